//! The queues of a table, in shards that are chosen by the hash of the key. Each has a lock, which only those take that add a key or evict.
//! It is taken before the locks of places.

use super::fifo;
use super::item::Item;
use super::policies::{Met, Policy, Queues, Rule};
use crate::exclusive::Exclusive;
use cats_engine::mix;
use cats_sync::cache_line::CacheLine;
use cats_sync::facade::{yield_now, AtomicUsize, Ordering};
use cats_sync::Busy;
use std::collections::HashSet;

/// The number of objects for which there is a shard, and the most shards.
const SHARE: u64 = 2048;
const MOST: u64 = 256;

/// The most objects that are visited for one eviction, and of how many of these the uses matter. So an eviction takes a bounded time.
const VISITS: usize = SPARED + 64;
const SPARED: usize = 2048;

/// Stale items are sought when a shard has so many more items than twice its share of the objects.
const STALE: usize = 64;

struct Shard<T> {
    queued: Exclusive<Queued<T>>,
    _line: CacheLine,
}

/// The queues of a shard.
struct Queued<T> {
    queues: Queues<T>,
    /// When there are so many items, stale ones are sought.
    check_at: usize,
    /// The bytes that the items own.
    owned: usize,
    /// The bytes that were counted.
    counted: usize,
}

impl<T: Item> Queued<T> {
    fn bytes(&self) -> usize {
        self.queues.bytes() + self.owned
    }

    /// Drops stale items: those that find no object, and all but one of an object.
    fn drop_stale(&mut self, is_alive: &impl Fn(&T) -> bool) {
        let (mut met, mut owned) = (HashSet::new(), 0);
        self.queues.retain(|item| {
            let keep = is_alive(item) && met.insert(item.hash());
            owned += if keep { item.owned_bytes() } else { 0 };
            keep
        });
        self.owned = owned;
    }
}

/// The number of shards for about this number of objects.
pub fn number_for(objects: u64) -> usize {
    (objects / SHARE).clamp(1, MOST).next_power_of_two() as usize
}

/// The bytes of a shard with so many queues whose items are gone, at most. Each has so many bytes.
pub fn empty_bytes(queues: usize, item: usize) -> usize {
    size_of::<Shard<u64>>() + queues * fifo::empty_bytes(item)
}

/// See the module's documentation.
pub struct Shards<T> {
    shards: Box<[Shard<T>]>,
    bytes: AtomicUsize,
    /// The shard that is trimmed next, modulo their number.
    next: AtomicUsize,
}

impl<T: Item> Shards<T> {
    /// Queues for about this number of objects. Without a policy there are none.
    pub fn new(policy: Option<Policy>, objects: u64) -> Self {
        let shard = |policy| Shard {
            queued: Exclusive::new(Queued {
                queues: Queues::new(policy),
                check_at: STALE,
                owned: 0,
                counted: 0,
            }),
            _line: CacheLine,
        };
        let shards = policy.map(|policy| (0..number_for(objects)).map(|_| shard(policy)).collect());
        Self {
            shards: shards.unwrap_or_default(),
            bytes: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// The number of shards.
    pub fn count(&self) -> usize {
        self.shards.len()
    }

    /// The number of the shard of items with this hash.
    pub fn number_of(&self, hash: u32) -> usize {
        mix(hash.into()) as usize & self.count().saturating_sub(1)
    }

    pub fn bytes(&self) -> usize {
        // Relaxed: a figure.
        size_of_val(&*self.shards) + self.bytes.load(Ordering::Relaxed)
    }

    fn with<R>(&self, number: usize, f: impl FnOnce(&mut Queued<T>) -> R) -> Result<R, Busy> {
        self.shards[number].queued.with(|queued| {
            let result = f(queued);
            let bytes = queued.bytes();
            if bytes != queued.counted {
                // Relaxed: a figure. It wraps around where the queues shrink.
                self.bytes
                    .fetch_add(bytes.wrapping_sub(queued.counted), Ordering::Relaxed);
                queued.counted = bytes;
            }
            result
        })
    }

    /// Adds the item of a new object. `is_alive` says whether an item finds an object, and `objects` is the number of all objects.
    /// Returns whether such an item was evicted lately.
    pub fn admit(&self, item: T, objects: impl Fn() -> usize, is_alive: impl Fn(&T) -> bool) -> bool {
        if self.shards.is_empty() {
            return false;
        }
        let number = self.number_of(item.hash());
        let (mut item, mut is_back) = (Some(item), false);
        let mut add = |queued: &mut Queued<T>| {
            if let Some(item) = item.take() {
                queued.owned += item.owned_bytes();
                is_back = queued.queues.admit(item);
            }
            if queued.queues.items() >= queued.check_at {
                self.clean(queued, objects() / self.count(), &is_alive);
            }
        };
        // The object is in the table already. The holder of the lock needs a bounded time, unless its thread does not run.
        while self.with(number, &mut add).is_err() {
            yield_now();
        }
        is_back
    }

    /// Drops the stale items of one shard. Fails if others are at it.
    pub fn trim(&self, is_alive: impl Fn(&T) -> bool) -> Result<(), Busy> {
        if self.shards.is_empty() {
            return Ok(());
        }
        // Relaxed: a number.
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.count();
        self.with(number, |queued| queued.drop_stale(&is_alive))
    }

    /// Drops stale items, if there are many.
    fn clean(&self, queued: &mut Queued<T>, objects: usize, is_alive: &impl Fn(&T) -> bool) {
        if queued.queues.items() > 2 * objects + STALE {
            queued.drop_stale(is_alive);
        }
        queued.check_at = queued.queues.items() + queued.queues.items() / 4 + STALE;
    }

    /// Evicts an object of a shard. The caller will perhaps admit an item with the hash `coming`. `visit` visits the object of an item.
    /// `ahead` is called with items that will be visited soon, the later one first. Returns the number of visits, or `None` if the shard
    /// has no items.
    pub fn evict(
        &self,
        number: usize,
        coming: Option<u32>,
        visit: &mut impl FnMut(&T, Rule) -> Met,
        ahead: &impl Fn(&T, bool),
    ) -> Result<Option<usize>, Busy> {
        self.with(number, |queued| {
            if let Some(hash) = coming {
                queued.queues.expect(hash);
            }
            let mut visits = 0;
            while visits < VISITS {
                let mut dropped = 0;
                visits += 1;
                let met = queued.queues.step(|item, rule| {
                    let met = visit(item, if visits < SPARED { rule } else { |_| None });
                    if matches!(met, Met::Evicted | Met::Gone) {
                        dropped = item.owned_bytes();
                    }
                    met
                })?;
                queued.owned -= dropped;
                if met == Met::Evicted {
                    break;
                }
            }
            if let Some(item) = queued.queues.peek(1) {
                ahead(item, true);
            }
            if let Some(item) = queued.queues.peek(0) {
                ahead(item, false);
            }
            Some(visits)
        })
    }
}
