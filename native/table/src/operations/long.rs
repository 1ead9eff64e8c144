//! What a long transaction has read: keys and ranges, and the [logs](crate::write_log) that tell whether others have written them.
//!
//! All that was read was there at the instant of the last look at the logs. So nothing is compared, and what a read costs does not depend on
//! the reads before it.

use crate::budget::Budget;
use crate::failure::Failure;
use crate::read_set::{Part, Parts};
use crate::store::leases::is_past;
use crate::table::{Handle, Table};
use crate::write_log::{Author, Look, Reader, NOBODY};
use cats_sync::epoch::{Guard, Moment};
use cats_sync::facade::{AtomicU64, Ordering};
use cats_term::lease::NEVER;
use std::ops::Deref;
use std::{mem, ptr};

/// More writes than this are looked at on a dirty scheduler.
const LOOK_LIMIT: Budget = Budget(10_000);

/// The author of the next long transaction.
static NEXT: AtomicU64 = AtomicU64::new(NOBODY + 1);

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
    /// When the whole of it was reserved.
    reserved: Option<Moment>,
}

/// What a look at the logs has found.
pub enum Found {
    /// All that was read is unchanged.
    Unchanged,
    /// The part that is not added yet may have been changed, and nothing else.
    ReadAgain,
    /// Something may have been changed that was read.
    Changed,
    /// What was read, and the logs, are more than its memory.
    Exhausted,
}

/// On what terms a long transaction runs.
#[derive(Clone, Copy)]
pub struct Terms {
    /// The word of its keeper's pid, if it is preferred.
    pub keeper: Option<u64>,
    /// The bytes of what it has read, and of the logs of its tables.
    pub memory: usize,
}

/// See the module's documentation.
pub struct LongReads<T: Owner> {
    author: Author,
    terms: Terms,
    members: Vec<Member<T>>,
    /// The earliest deadline of the objects.
    deadline: u64,
}

impl<T: Owner> LongReads<T> {
    /// Nothing was read.
    pub fn new(terms: Terms) -> Self {
        Self {
            // Relaxed: only the number matters.
            author: NEXT.fetch_add(1, Ordering::Relaxed),
            terms,
            members: Vec::new(),
            deadline: NEVER,
        }
    }

    /// Gives up what was read.
    pub fn end(&mut self) -> Self {
        mem::replace(self, Self::new(self.terms))
    }

    /// The author of what the transaction writes, for the logs.
    pub fn author(&self) -> Author {
        self.author
    }

    /// Whether no log is read.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether the log of a table is read.
    pub fn has_joined(&mut self, table: &Table) -> bool {
        self.member(table).is_some()
    }

    fn member(&mut self, table: &Table) -> Option<&mut Member<T>> {
        self.members.iter_mut().find(|member| ptr::eq(&*member.table, table))
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
            reader: store.log().read(store.history(), self.author, self.terms.memory)?,
            parts: Parts::of(table.kind()),
            complete: false,
            reserved: None,
        });
        Ok(())
    }

    /// Whether the logs of all tables tell of all writes. The caller has no guard.
    pub fn is_complete(&mut self) -> bool {
        self.members.iter_mut().all(|member| {
            let settled = || member.reserved.is_none_or(Moment::is_past);
            member.complete = member.complete || member.reader.is_complete() && settled();
            member.complete
        })
    }

    /// Has writers tell the log of this part of a table from now on. A key, or all keys, are announced before they are read. A range is
    /// announced when it was read: if this returns true, what was marked before is to be asked after that.
    pub fn announce(&mut self, guard: &Guard, table: &Table, part: &Part) -> bool {
        let member = self.member(table).filter(|member| !member.parts.covers(part));
        member.is_some_and(|member| member.reader.announce(guard, part))
    }

    /// Has commits of others that write this part of a table be refused, if the transaction is preferred. Returns whether it is. What was
    /// marked before is to be asked after that: a commit may have passed here and may have locked its places.
    pub fn reserve(&mut self, table: &Table, part: &Part) -> Result<bool, Failure> {
        let Some(keeper) = self.terms.keeper else {
            return Ok(false);
        };
        if let Some(member) = self.member(table) {
            member.reader.reserve(keeper, table.kind(), part.clone())?;
        }
        Ok(true)
    }

    /// The same for the whole of a set, of which nothing is marked. If this returns true, commits that have passed may be under way until
    /// the logs are [complete](Self::is_complete) again.
    pub fn reserve_whole(&mut self, table: &Table) -> Result<bool, Failure> {
        let keeper = self.terms.keeper;
        let member = self.member(table).filter(|member| member.reserved.is_none());
        let (Some(keeper), Some(member)) = (keeper, member) else {
            return Ok(false);
        };
        member.reader.reserve(keeper, table.kind(), Part::All)?;
        (member.reserved, member.complete) = (Some(Moment::now()), false);
        Ok(true)
    }

    /// Adds what was [announced](Self::announce) and read of a table that has [joined](Self::join), and the deadline of its objects.
    pub fn add(&mut self, table: &Table, part: Part, deadline: u64) {
        self.deadline = self.deadline.min(deadline);
        if let Some(member) = self.member(table) {
            member.parts.add(part);
        }
    }

    /// Looks whether all that was read still holds. `new` was read of a table, and will be added if it holds too. If a table has not joined,
    /// or is incomplete, nothing is known of it. A look that is too long for this thread fails with [`Failure::Big`].
    pub fn look(&mut self, guard: &Guard, new: Option<(&Table, &Part)>) -> Result<Found, Failure> {
        self.look_at(guard, new, LOOK_LIMIT.part_of(usize::MAX))
    }

    /// [`look`](Self::look) at so many writes of each table at most.
    fn look_at(&mut self, guard: &Guard, new: Option<(&Table, &Part)>, most: usize) -> Result<Found, Failure> {
        let mut again = false;
        for Member {
            table, reader, parts, ..
        } in &mut self.members
        {
            let new = new.filter(|(other, _)| ptr::eq(*other, &**table)).map(|(_, part)| part);
            let looked = reader.look(most, |write| {
                again |= new.is_some_and(|part| part.has(write.word(), write.key()));
                !parts.has(write.word(), write.key())
            })?;
            match looked {
                // After the log was looked at: so the table had these contents until then.
                Look::Unchanged if !table.is_dead() && reader.reads(table.store(guard).log()) => (),
                Look::Unfinished => return Err(Failure::Big),
                Look::CutOff => return Ok(Found::Exhausted),
                _ => return Ok(Found::Changed),
            }
        }
        Ok(match (is_past(self.deadline), again) {
            (true, _) => Found::Changed,
            (false, true) => Found::ReadAgain,
            (false, false) => Found::Unchanged,
        })
    }

    /// Whether what was read, and what is not looked at yet, is more than its memory.
    pub fn is_exhausted(&self) -> bool {
        let bytes = |member: &Member<T>| member.parts.bytes() + member.reader.bytes() + member.reader.behind();
        self.members.iter().map(bytes).sum::<usize>() > self.terms.memory
    }

    /// Whether it may be behind by any number of writes, because it is about to commit.
    pub fn spare(&self, spared: bool) {
        self.members.iter().for_each(|member| member.reader.spare(spared));
    }

    /// Whether all that was read still holds.
    pub fn hold(&mut self, guard: &Guard) -> Result<bool, Failure> {
        Ok(matches!(self.look_at(guard, None, usize::MAX)?, Found::Unchanged))
    }
}
