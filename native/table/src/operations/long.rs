//! What a long transaction has read: keys and ranges, and the [logs](crate::write_log) that tell whether others have written them.
//!
//! All that was read was there at the instant of the last look at the logs. So nothing is compared, and what a read costs does not depend on
//! the reads before it.

use crate::engines::Kind;
use crate::failure::Failure;
use crate::garbage;
use crate::object::key::Key;
use crate::object::schema::Probe;
use crate::store::leases::is_past;
use crate::table::{Handle, Table};
use crate::write_log::{Author, Look, Reader, Write, NOBODY};
use cats_engine::Range;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicU64, Ordering};
use cats_term::lease::NEVER;
use cats_term::TermRef;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Deref};
use std::ptr;
use std::sync::Arc;

/// More writes than this are looked at on a dirty scheduler, and more reads are forgotten by the reaper.
const MANY: usize = 1000;

/// The author of the next long transaction.
static NEXT: AtomicU64 = AtomicU64::new(NOBODY + 1);

/// Where a range ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Lowest,
    At(Arc<Key>),
    Highest,
}

impl End {
    fn at(key: TermRef<'_>) -> Self {
        Self::At(Arc::new(Key::own(key, true)))
    }
}

/// What was read by one call.
pub enum Part {
    /// A key of a set, by the word of its probe. Another key may have the same word. Then a write of that one makes the transaction fail.
    Word(u64),
    /// All keys of a set.
    All,
    /// The keys of an ordered table from one to another. Both belong to it. So a write of one of them may make the transaction fail although
    /// it was not read.
    Range(RangeRead),
}

/// See [`Part`].
pub struct RangeRead(End, End);

impl Part {
    /// A key of a table.
    pub fn key(table: &Table, probe: &Probe<'_>) -> Self {
        match table.kind() {
            Kind::OrderedSet => {
                let at = End::at(probe.term());
                Self::Range(RangeRead(at.clone(), at))
            }
            _ => Self::Word(probe.word()),
        }
    }

    /// A range up to its end, or up to the `last` key that was read.
    pub fn range(range: &Range<'_, Probe<'_>>, last: Option<TermRef<'_>>) -> Self {
        let from = range.from.map(|(probe, _)| probe.term());
        let to = last.or(range.to.map(Probe::term));
        let (lowest, highest) = if range.down { (to, from) } else { (from, to) };
        Self::Range(RangeRead(
            lowest.map_or(End::Lowest, End::at),
            highest.map_or(End::Highest, End::at),
        ))
    }

    fn has(&self, write: &Write) -> bool {
        match (self, write.key()) {
            (Self::Word(word), _) => *word == write.word(),
            (Self::All, _) => true,
            (Self::Range(RangeRead(lowest, highest)), Some(key)) => {
                let at = End::At(key.clone());
                *lowest <= at && at <= *highest
            }
            (Self::Range(_), None) => true,
        }
    }
}

/// All that was read of a table.
enum Parts {
    Words(BTreeSet<u64>),
    All,
    /// Ranges that do not meet: where each begins, and where it ends.
    Ranges(BTreeMap<End, End>),
}

impl Parts {
    fn of(table: &Table) -> Self {
        match table.kind() {
            Kind::OrderedSet => Self::Ranges(BTreeMap::new()),
            _ => Self::Words(BTreeSet::new()),
        }
    }

    fn add(&mut self, part: Part) {
        match (self, part) {
            (Self::Words(words), Part::Word(word)) => _ = words.insert(word),
            (words @ Self::Words(_), Part::All) => *words = Self::All,
            (Self::Ranges(ranges), Part::Range(RangeRead(lowest, highest))) if lowest <= highest => {
                add_range(ranges, lowest, highest);
            }
            // No key is in it, or all are known to be read, or it is of another table.
            _ => (),
        }
    }

    fn has(&self, write: &Write) -> bool {
        match (self, write.key()) {
            (Self::Words(words), _) => words.contains(&write.word()),
            (Self::All, _) => true,
            (Self::Ranges(ranges), Some(key)) => {
                let at = End::At(key.clone());
                let before = ranges.range((Bound::Unbounded, Bound::Included(&at))).next_back();
                before.is_some_and(|(_, highest)| at <= *highest)
            }
            (Self::Ranges(_), None) => true,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Words(words) => words.len(),
            Self::All => 1,
            Self::Ranges(ranges) => ranges.len(),
        }
    }
}

/// Adds a range, and joins it with those that it meets.
fn add_range(ranges: &mut BTreeMap<End, End>, mut lowest: End, mut highest: End) {
    if let Some((before, end)) = ranges.range((Bound::Unbounded, Bound::Included(&lowest))).next_back() {
        if *end >= highest {
            return;
        }
        if *end >= lowest {
            lowest = before.clone();
        }
    }
    loop {
        let mut inside = ranges.range((Bound::Excluded(&lowest), Bound::Included(&highest)));
        let Some(begin) = inside.next().map(|(begin, _)| begin.clone()) else {
            break;
        };
        highest = ranges.remove(&begin).map_or(highest.clone(), |end| end.max(highest));
    }
    ranges.insert(lowest, highest);
}

/// What keeps a table alive.
pub trait Owner: Deref<Target = Table> + Send + 'static {}

impl<T: Deref<Target = Table> + Send + 'static> Owner for T {}

/// A table that the transaction has read.
struct Member<T> {
    table: T,
    reader: Reader,
    parts: Parts,
    /// Whether all writes since the reader began are in the log.
    complete: bool,
}

/// What a look at the logs has found.
pub enum Found {
    /// All that was read is unchanged.
    Unchanged,
    /// The part that is not added yet may have been changed, and nothing else.
    ReadAgain,
    /// Something may have been changed that was read.
    Changed,
}

/// See the module's documentation.
pub struct LongReads<T: Owner> {
    author: Author,
    members: Vec<Member<T>>,
    /// The earliest deadline of the objects.
    deadline: u64,
}

impl<T: Owner> Default for LongReads<T> {
    fn default() -> Self {
        Self {
            // Relaxed: only the number matters.
            author: NEXT.fetch_add(1, Ordering::Relaxed),
            members: Vec::new(),
            deadline: NEVER,
        }
    }
}

impl<T: Owner> LongReads<T> {
    /// The author of what the transaction writes, for the logs.
    pub fn author(&self) -> Author {
        self.author
    }

    /// Whether no log is read.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether the log of a table is read.
    pub fn has_joined(&self, table: &Table) -> bool {
        self.members.iter().any(|member| ptr::eq(&*member.table, table))
    }

    /// Begins to read the log of a table, which has transactions. `owner` is of the same table.
    pub fn join(&mut self, handle: Handle<'_>, owner: T) -> Result<(), Failure> {
        let table = handle.table();
        if table.is_blank() {
            // Contents that tables share have no log.
            table.furnish()?;
        }
        let store = handle.store();
        self.members.push(Member {
            table: owner,
            reader: store.log().read(store.history())?,
            parts: Parts::of(table),
            complete: false,
        });
        Ok(())
    }

    /// Whether the logs of all tables tell of all writes. The caller has no guard.
    pub fn is_complete(&mut self) -> bool {
        self.members.iter_mut().all(|member| {
            member.complete = member.complete || member.reader.is_complete();
            member.complete
        })
    }

    /// Adds what was read of a table that has [joined](Self::join), and the deadline of its objects.
    pub fn add(&mut self, table: &Table, part: Part, deadline: u64) {
        self.deadline = self.deadline.min(deadline);
        let member = self.members.iter_mut().find(|member| ptr::eq(&*member.table, table));
        if let Some(member) = member {
            member.parts.add(part);
        }
    }

    /// Looks whether all that was read still holds. `new` was read of a table, and will be added if it holds too. If a table has not joined,
    /// or is incomplete, nothing is known of it. A long look fails with [`Failure::Big`], unless the caller is `patient`.
    pub fn look(&mut self, guard: &Guard, new: Option<(&Table, &Part)>, patient: bool) -> Result<Found, Failure> {
        let most = if patient { usize::MAX } else { MANY };
        let mut again = false;
        for Member {
            table, reader, parts, ..
        } in &mut self.members
        {
            let new = new.filter(|(other, _)| ptr::eq(*other, &**table)).map(|(_, part)| part);
            let looked = reader.look(self.author, most, |write| {
                again |= new.is_some_and(|part| part.has(write));
                !parts.has(write)
            })?;
            match looked {
                // After the log was looked at: so the table had these contents until then.
                Look::Unchanged if !table.is_dead() && reader.reads(table.store(guard).log()) => (),
                Look::Unfinished => return Err(Failure::Big),
                _ => return Ok(Found::Changed),
            }
        }
        Ok(match (is_past(self.deadline), again) {
            (true, _) => Found::Changed,
            (false, true) => Found::ReadAgain,
            (false, false) => Found::Unchanged,
        })
    }

    /// Whether all that was read still holds.
    pub fn hold(&mut self, guard: &Guard) -> Result<bool, Failure> {
        Ok(matches!(self.look(guard, None, true)?, Found::Unchanged))
    }
}

impl<T: Owner> Drop for LongReads<T> {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(|member| member.reader.quit());
        let cost = |member: &Member<T>| member.parts.len() + member.reader.behind();
        if self.members.iter().map(cost).sum::<usize>() > MANY {
            let mut members = std::mem::take(&mut self.members);
            garbage::leave(Box::new(move || {
                members.clear();
                Ok(())
            }));
        }
    }
}
