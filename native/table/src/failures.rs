//! How functions of fetches have failed, for some time: a call that misses a key fails in the same way without running its function.
//!
//! Bounded: where many keys fail, the failures that would be forgotten first are forgotten before their time.

use crate::object::key::Key;
use cats_term::Block;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes that the failures of some contents take.
pub const MOST_BYTES: usize = 4 << 20;

/// The most bytes of one failure.
const MOST_OF_ONE: usize = MOST_BYTES / 64;

/// About the bytes of a failure besides its key and its block: its places in both maps.
const PLACES: usize = 128;

/// A failure, the first element of the block.
pub type Failed = Arc<Block>;

/// The time at which a failure is forgotten, and a number that no other failure has.
type End = (u64, u64);

#[derive(Default)]
pub(crate) struct Failures {
    by_key: BTreeMap<Arc<Key>, (End, Failed)>,
    by_end: BTreeMap<End, Arc<Key>>,
    bytes: usize,
    /// How many have been remembered.
    number: u64,
}

fn bytes_of(key: &Key, failed: &Block) -> usize {
    let failed = failed.as_ref();
    key.bytes() + failed.bytes() + failed.kept_bytes() + PLACES
}

impl Failures {
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The failure of a key.
    pub fn of(&self, key: &Key, now: u64) -> Option<&Failed> {
        let (end, failed) = self.by_key.get(key)?;
        (end.0 > now).then_some(failed)
    }

    /// Remembers a failure up to a time, unless it is large.
    pub fn remember(&mut self, key: Key, failed: Failed, until: u64) {
        let bytes = bytes_of(&key, &failed);
        self.forget(&key);
        if bytes > MOST_OF_ONE {
            return;
        }
        while self.bytes + bytes > MOST_BYTES {
            self.forget_first();
        }
        self.number += 1;
        let (key, end) = (Arc::new(key), (until, self.number));
        self.by_end.insert(end, key.clone());
        self.by_key.insert(key, (end, failed));
        self.bytes += bytes;
    }

    /// Forgets the failure of a key. Returns whether there was one.
    pub fn forget(&mut self, key: &Key) -> bool {
        let Some((key, (end, failed))) = self.by_key.remove_entry(key) else {
            return false;
        };
        self.by_end.remove(&end);
        self.bytes -= bytes_of(&key, &failed);
        true
    }

    fn forget_first(&mut self) {
        if let Some((_, key)) = self.by_end.pop_first() {
            let (_, failed) = self.by_key.remove(&key).expect("each failure is in both maps");
            self.bytes -= bytes_of(&key, &failed);
        }
    }

    /// Forgets some failures whose time is over. Returns whether all of these are forgotten.
    pub fn expire(&mut self, now: u64) -> bool {
        for _ in 0..64 {
            if self.due() > now {
                return true;
            }
            self.forget_first();
        }
        false
    }

    /// When the first failure is forgotten.
    pub fn due(&self) -> u64 {
        self.by_end.first_key_value().map_or(u64::MAX, |((until, _), _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cats_term::{Builder, TermRef};
    use std::collections::BTreeMap;

    fn key(number: u64) -> Key {
        Key::own(TermRef::immediate(number << 4 | 15), false)
    }

    fn failed(words: usize) -> Failed {
        let mut builder = Builder::new();
        let root = builder.tuple(words.max(1));
        for place in 0..words.max(1) {
            builder.set(root, place, 15);
        }
        Arc::new(builder.finish().unwrap())
    }

    /// Random steps against a map with the ends of keys.
    #[test]
    fn as_a_map() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let (mut failures, mut model, mut now) = (Failures::default(), BTreeMap::new(), 0);
        for _ in 0..20_000 {
            let number = random(40);
            match random(4) {
                0 => {
                    let until = now + random(50);
                    failures.remember(key(number), failed(random(20) as usize), until);
                    model.insert(number, until);
                }
                1 => {
                    failures.forget(&key(number));
                    model.remove(&number);
                }
                2 => {
                    now += random(5);
                    assert!(failures.expire(now));
                    model.retain(|_, until| *until > now);
                }
                _ => assert_eq!(
                    failures.of(&key(number), now).is_some(),
                    model.get(&number).is_some_and(|until| *until > now)
                ),
            }
            assert_eq!(failures.by_key.len(), failures.by_end.len());
            assert_eq!(failures.due(), model.values().copied().min().unwrap_or(u64::MAX));
        }
        while !failures.expire(u64::MAX - 1) {}
        assert_eq!((failures.bytes(), failures.is_empty()), (0, true));
    }

    /// What would be forgotten first makes room, and what is too large is not remembered.
    #[test]
    fn bounded() {
        let mut failures = Failures::default();
        for number in 0..100_000 {
            failures.remember(key(number), failed(10), number + 1);
            assert!(failures.bytes() <= MOST_BYTES);
        }
        assert!(failures.bytes() > MOST_BYTES / 2);
        assert!(failures.of(&key(0), 0).is_none());
        assert!(failures.of(&key(99_999), 0).is_some());
        failures.remember(key(99_999), failed(MOST_OF_ONE / 8), 200_000);
        assert!(failures.of(&key(99_999), 0).is_none());
    }
}
