//! The numbers of some keys of an ordered snapshot, which never change. Whoever passes its entries in order notes every [`EVERY`]th key.
//! Later searches by number, and for the number of a key, begin there.

use crate::exclusive::Exclusive;
use crate::object::schema::OwnedKey;
use cats_sync::Busy;
use cats_term::{compare, TermRef};
use std::sync::Arc;

/// The entries between two marks.
pub const EVERY: usize = 128;

/// See the module's documentation.
#[derive(Default)]
pub struct Marks(Exclusive<Known>);

#[derive(Default)]
struct Known {
    /// The keys behind which the entries with the numbers `EVERY`, `2 * EVERY`, ... begin.
    keys: Vec<Arc<OwnedKey>>,
    /// The number of all entries, once somebody has passed them.
    size: Option<usize>,
    /// The bytes of the keys.
    bytes: usize,
}

/// The number of the first entry behind a key. Without a key, it is 0.
pub struct Mark {
    pub number: usize,
    pub key: Option<Arc<OwnedKey>>,
}

impl Known {
    /// The mark behind so many keys.
    fn mark(&self, keys: usize) -> Mark {
        let keys = keys.min(self.keys.len());
        Mark {
            number: keys * EVERY,
            key: keys.checked_sub(1).map(|last| self.keys[last].clone()),
        }
    }

    /// How many marks are at keys below this one.
    fn below(&self, key: TermRef<'_>) -> usize {
        self.keys
            .partition_point(|mark| compare(mark.probe().term(), key).is_lt())
    }
}

impl Marks {
    /// The last mark that is not behind this number.
    pub fn before(&self, number: usize) -> Result<Mark, Busy> {
        self.0.with(|known| known.mark(number / EVERY))
    }

    /// The last mark at a key below this one.
    pub fn below(&self, key: TermRef<'_>) -> Result<Mark, Busy> {
        self.0.with(|known| known.mark(known.below(key)))
    }

    /// Whether somebody has passed this key. Without a key: all entries.
    pub fn has_passed(&self, key: Option<TermRef<'_>>) -> Result<bool, Busy> {
        self.0.with(|known| {
            let behind = key.is_some_and(|key| known.below(key) < known.keys.len());
            behind || known.size.is_some()
        })
    }

    /// The number of all entries, if somebody has passed them.
    pub fn size(&self) -> Result<Option<usize>, Busy> {
        self.0.with(|known| known.size)
    }

    /// Notes that the entry with this number is the first one behind a key. A lock that somebody holds, or a number that is not the next one,
    /// leaves it out.
    pub fn note(&self, number: usize, key: TermRef<'_>) {
        if number % EVERY != 0 {
            return;
        }
        self.0.try_with(|known| {
            if number == (known.keys.len() + 1) * EVERY {
                let key = OwnedKey::new(key);
                known.bytes += key.bytes();
                known.keys.push(Arc::new(key));
            }
        });
    }

    /// Notes the number of all entries.
    pub fn note_size(&self, size: usize) {
        self.0.try_with(|known| known.size = Some(size));
    }

    /// Forgets all marks. If somebody holds the lock, they stay.
    pub fn clear(&self) {
        let _ = self.0.with(std::mem::take);
    }

    /// The bytes of the marks.
    pub fn bytes(&self) -> usize {
        let bytes = |known: &mut Known| known.bytes + known.keys.capacity() * size_of::<Arc<OwnedKey>>();
        self.0.with(bytes).unwrap_or(0)
    }
}
