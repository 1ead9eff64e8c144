//! What a long transaction has read of a table: keys and ranges.

use crate::engines::Kind;
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess};
use crate::object::key::Key;
use crate::object::schema::Probe;
use cats_engine::Range;
use cats_term::TermRef;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Bound;
use std::sync::Arc;

/// More keys and ranges than this are freed by the reaper, so many at once.
const FREED: usize = 500;

/// A copy of a key of an ordered table.
fn own(key: TermRef<'_>) -> Arc<Key> {
    Arc::new(Key::own(key, true))
}

/// Where a range ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Lowest,
    At(Arc<Key>),
    Highest,
}

impl End {
    fn at(key: TermRef<'_>) -> Self {
        Self::At(own(key))
    }

    fn key(&self) -> Option<&Arc<Key>> {
        match self {
            Self::At(key) => Some(key),
            Self::Lowest | Self::Highest => None,
        }
    }
}

/// What was read by one call.
#[derive(Clone)]
pub enum Part {
    /// A key of a set, by the word of its probe. Another key may have the same word. Then a write of that one makes the transaction fail.
    Word(u64),
    /// All keys of a set.
    All,
    /// A key of an ordered table.
    Key(KeyRead),
    /// The keys of an ordered table from one to another. Both belong to it. So a write of one of them may make the transaction fail although
    /// it was not read.
    Range(RangeRead),
}

/// See [`Part`]. The word of the key's probe, and the key.
#[derive(Clone)]
pub struct KeyRead(pub(crate) u64, pub(crate) Arc<Key>);

/// See [`Part`].
#[derive(Clone)]
pub struct RangeRead(End, End);

impl RangeRead {
    pub(crate) fn has(&self, key: &Key) -> bool {
        let from = match &self.0 {
            End::Lowest => true,
            End::At(lowest) => **lowest <= *key,
            End::Highest => false,
        };
        from && match &self.1 {
            End::Lowest => false,
            End::At(highest) => *key <= **highest,
            End::Highest => true,
        }
    }

    /// The smallest range that has both, if that is not this one.
    pub(crate) fn widened(&self, other: &Self) -> Option<Self> {
        let (lowest, highest) = ((&self.0).min(&other.0), (&self.1).max(&other.1));
        let wider = *lowest < self.0 || *highest > self.1;
        wider.then(|| Self(lowest.clone(), highest.clone()))
    }
}

impl Part {
    /// A key of a table of this kind.
    pub fn key(kind: Kind, probe: &Probe<'_>) -> Self {
        match kind {
            Kind::OrderedSet => Self::Key(KeyRead(probe.word(), own(probe.term()))),
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

    /// Whether a key with this word belongs to it. Of an ordered table, the key itself is known.
    pub(crate) fn has(&self, word: u64, key: Option<&Arc<Key>>) -> bool {
        match (self, key) {
            (Self::Word(own), _) => *own == word,
            (Self::All, _) => true,
            (Self::Key(KeyRead(_, own)), Some(key)) => own == key,
            (Self::Range(range), Some(key)) => range.has(key),
            (Self::Key(_) | Self::Range(_), None) => true,
        }
    }
}

/// All that was read of a table.
pub enum Parts {
    Words(BTreeSet<u64>),
    All,
    Ranges(Ranges),
}

/// Ranges that do not meet.
#[derive(Default)]
pub struct Ranges {
    /// Where each begins, and where it ends.
    ends: BTreeMap<End, End>,
    /// About the bytes of their memory.
    bytes: usize,
}

impl Parts {
    /// Nothing of a table of this kind.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::OrderedSet => Self::Ranges(Ranges::default()),
            _ => Self::Words(BTreeSet::new()),
        }
    }

    pub fn add(&mut self, part: Part) {
        match (self, part) {
            (Self::Words(words), Part::Word(word)) => _ = words.insert(word),
            (words @ Self::Words(_), Part::All) => *words = Self::All,
            (Self::Ranges(ranges), Part::Key(KeyRead(_, key))) => ranges.add(End::At(key.clone()), End::At(key)),
            (Self::Ranges(ranges), Part::Range(RangeRead(lowest, highest))) if lowest <= highest => {
                ranges.add(lowest, highest);
            }
            // No key is in it, or all are known to be read, or it is of another table.
            _ => (),
        }
    }

    /// Whether a part has the key, see [`Part::has`].
    pub(crate) fn has(&self, word: u64, key: Option<&Arc<Key>>) -> bool {
        match (self, key) {
            (Self::Words(words), _) => words.contains(&word),
            (Self::All, _) => true,
            (Self::Ranges(ranges), Some(key)) => {
                let at = End::At(key.clone());
                let before = ranges.ends.range((Bound::Unbounded, Bound::Included(&at))).next_back();
                before.is_some_and(|(_, highest)| at <= *highest)
            }
            (Self::Ranges(_), None) => true,
        }
    }

    /// Whether a part that is one key belongs to them.
    pub fn covers(&self, part: &Part) -> bool {
        match part {
            Part::Word(word) => self.has(*word, None),
            Part::Key(KeyRead(word, key)) => self.has(*word, Some(key)),
            Part::All | Part::Range(_) => false,
        }
    }

    /// How many keys and ranges there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Words(words) => words.len(),
            Self::All => 1,
            Self::Ranges(ranges) => ranges.ends.len(),
        }
    }

    /// About the bytes of their memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Words(words) => 2 * size_of::<u64>() * words.len(),
            Self::All => 0,
            Self::Ranges(ranges) => ranges.bytes,
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if self.len() > FREED {
            Expected::new().enqueue(Forgotten(mem::replace(self, Self::All)));
        }
    }
}

/// Parts that the reaper frees.
struct Forgotten(Parts);

impl Garbage for Forgotten {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        for _ in 0..FREED {
            let more = match &mut self.0 {
                Parts::Words(words) => words.pop_first().is_some(),
                Parts::All => false,
                Parts::Ranges(ranges) => ranges.ends.pop_first().is_some(),
            };
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Ranges {
    /// Adds a range, and joins it with those that it meets.
    fn add(&mut self, mut lowest: End, mut highest: End) {
        if let Some((before, end)) = self
            .ends
            .range((Bound::Unbounded, Bound::Included(&lowest)))
            .next_back()
        {
            if *end >= highest {
                return;
            }
            if *end >= lowest {
                lowest = before.clone();
            }
        }
        loop {
            let mut inside = self.ends.range((Bound::Included(&lowest), Bound::Included(&highest)));
            let Some(begin) = inside.next().map(|(begin, _)| begin.clone()) else {
                break;
            };
            if let Some(end) = self.ends.remove(&begin) {
                self.bytes -= bytes_of(&begin, &end);
                highest = end.max(highest);
            }
        }
        self.bytes += bytes_of(&lowest, &highest);
        self.ends.insert(lowest, highest);
    }
}

/// About the bytes of a range.
fn bytes_of(lowest: &End, highest: &End) -> usize {
    let key = |end: &End| end.key().map_or(0, |key| key.bytes());
    let same = lowest.key().is_some() && lowest == highest;
    2 * size_of::<End>() + key(lowest) + if same { 0 } else { key(highest) }
}
