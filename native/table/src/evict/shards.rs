//! The queues of a table, in shards that are chosen by the hash of the key. Each has a lock, which only those take that add a key or evict.
//! It is taken before the locks of places.
//!
//! A limit that is raised or lowered has another number of shards. Where it becomes larger, items stay where they are: whoever evicts finds
//! them there, and new ones are spread over all shards. Where it becomes smaller, the items of the further shards move to the others.

use super::fifo;
use super::item::Item;
use super::policies::{Met, Policy, Queues, Rule};
use crate::exclusive::Exclusive;
use cats_engine::mix;
use cats_sync::cache_line::CacheLine;
use cats_sync::facade::{yield_now, AtomicU8, AtomicUsize, Ordering};
use cats_sync::Busy;
use std::collections::HashSet;
use std::sync::OnceLock;
use std::{array, iter};

/// The number of objects for which there is a shard, and the most shards.
const SHARE: u64 = 2048;
const MOST: u64 = 256;

/// The most objects that are visited with a shard locked, and of how many that are not spared the uses matter. So that takes a bounded time.
const VISITS: usize = SPARED + 64;
const SPARED: usize = 2048;

/// The further shards come in parts, each as large as all before it.
const PARTS: usize = MOST.ilog2() as usize + 1;

/// So many items of further shards move at once, and with each item that is added.
const MOVED: usize = 32;
const MOVED_BESIDE: usize = 4;

/// Stale items are sought when a shard has so many more items than twice its share of the objects.
const STALE: usize = 64;

/// What visits of a shard's objects have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Evicted,
    /// The shard has no objects, or only such as are spared.
    Nothing,
    /// Not all were visited.
    Unknown,
}

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

    /// Takes the queues of a policy, if these are others.
    fn take_policy(&mut self, policy: Policy) {
        if self.queues.policy() == policy {
            return;
        }
        let mut queues = Queues::new(policy);
        while let Some(item) = self.queues.pop() {
            queues.admit(item);
        }
        self.queues = queues;
    }

    /// Takes the item of the object that would be visited next.
    fn pop(&mut self) -> Option<T> {
        let item = self.queues.pop()?;
        self.owned -= item.owned_bytes();
        Some(item)
    }

    fn admit(&mut self, item: T) -> bool {
        self.owned += item.owned_bytes();
        self.queues.admit(item)
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
    parts: [OnceLock<Box<[Shard<T>]>>; PARTS],
    /// The number of shards to which items are added, a power of two, or 0. Release, for a new number, pairs with the Acquire of `count`:
    /// whoever sees it sees the shards.
    count: AtomicUsize,
    /// The number of shards in which items may be, if it is more than `count`. Relaxed: it is written under the lock `moving`, and who reads
    /// another number finds the items later.
    used: AtomicUsize,
    /// Held by who changes the number of shards, or moves items.
    moving: Exclusive<()>,
    /// The place of the policy. Relaxed: whoever takes the lock of a shard sees some present one.
    policy: AtomicU8,
    bytes: AtomicUsize,
    /// The shard whose turn it is, modulo their number.
    next: AtomicUsize,
}

impl<T: Item> Shards<T> {
    /// Queues for about this number of objects. Without a policy there are none.
    pub fn new(policy: Option<Policy>, objects: u64) -> Self {
        let shards = Self {
            parts: array::from_fn(|_| OnceLock::new()),
            count: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            moving: Exclusive::new(()),
            policy: AtomicU8::new(policy.map_or(0, |policy| policy as u8)),
            bytes: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        };
        if policy.is_some() {
            shards.make(number_for(objects));
        }
        shards
    }

    /// Makes shards until there are so many, and adds items to so many from now on.
    fn make(&self, count: usize) {
        let mut made = self.parts[0].get_or_init(|| self.part(count)).len();
        for part in &self.parts[1..] {
            if made >= count {
                break;
            }
            made += part.get_or_init(|| self.part(made)).len();
        }
        self.used.fetch_max(self.count(), Ordering::Relaxed);
        self.count.store(count, Ordering::Release);
    }

    fn part(&self, count: usize) -> Box<[Shard<T>]> {
        let shard = |_| Shard {
            queued: Exclusive::new(Queued {
                queues: Queues::new(self.policy()),
                check_at: STALE,
                owned: 0,
                counted: 0,
            }),
            _line: CacheLine,
        };
        (0..count).map(shard).collect()
    }

    fn shard(&self, number: usize) -> Option<&Shard<T>> {
        let first = self.parts[0].get()?;
        match number >> first.len().trailing_zeros() {
            0 => first.get(number),
            times => {
                let part = times.ilog2();
                self.parts[part as usize + 1].get()?.get(number - (first.len() << part))
            }
        }
    }

    /// Whether the table keeps queues at all.
    pub fn are_kept(&self) -> bool {
        self.count() > 0
    }

    fn policy(&self) -> Policy {
        Policy::at(self.policy.load(Ordering::Relaxed))
    }

    /// Each shard takes the queues of this policy when it is used next.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// Prepares for about this number of objects.
    pub fn resize(&self, objects: u64) -> Result<(), Busy> {
        match self.are_kept() && self.count() != number_for(objects) {
            true => self.moving.with(|()| self.make(number_for(objects))),
            false => Ok(()),
        }
    }

    /// Moves some items of shards to which none are added. Returns whether all are moved.
    pub fn gather(&self) -> Result<bool, Busy> {
        match self.is_scattered() {
            true => self.moving.with(|()| self.move_some(MOVED))?,
            false => Ok(true),
        }
    }

    /// Whether items may be in shards to which none are added.
    fn is_scattered(&self) -> bool {
        self.count() < self.used()
    }

    /// See [`gather`](Self::gather). The caller holds the lock `moving`.
    fn move_some(&self, most: usize) -> Result<bool, Busy> {
        for number in (self.count()..self.used()).rev() {
            let mut items = Vec::new();
            self.with(number, |queued| {
                let popped = iter::from_fn(|| queued.pop());
                items.extend(popped.take(most));
                if items.is_empty() {
                    queued.queues = Queues::new(self.policy());
                }
            })?;
            if !items.is_empty() {
                items.into_iter().for_each(|item| _ = self.put(item, |_, _| ()));
                return Ok(false);
            }
            self.used.store(number, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// The number of shards to which items are added.
    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The number of shards in which items may be.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed).max(self.count())
    }

    /// The number of the shard of items with this hash.
    pub fn number_of(&self, hash: u32) -> usize {
        mix(hash.into()) as usize & self.count().saturating_sub(1)
    }

    pub fn bytes(&self) -> usize {
        let parts = self.parts.iter().filter_map(OnceLock::get);
        // Relaxed: a figure.
        parts.map(|part| size_of_val(&**part)).sum::<usize>() + self.bytes.load(Ordering::Relaxed)
    }

    fn with<R>(&self, number: usize, f: impl FnOnce(&mut Queued<T>) -> R) -> Result<R, Busy> {
        self.shard(number).ok_or(Busy)?.queued.with(|queued| {
            queued.take_policy(self.policy());
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
        if !self.are_kept() {
            return false;
        }
        if self.is_scattered() {
            // Who has lowered the limit may be gone. Where others are in the way, they do it.
            self.moving.try_with(|()| self.move_some(MOVED_BESIDE));
        }
        self.put(item, |queued, count| {
            if queued.queues.items() >= queued.check_at {
                self.clean(queued, objects() / count, &is_alive);
            }
        })
    }

    /// Adds an item to its shard, and calls `then` with that and the number of shards.
    fn put(&self, item: T, mut then: impl FnMut(&mut Queued<T>, usize)) -> bool {
        let hash = item.hash();
        let (mut item, mut is_back) = (Some(item), false);
        loop {
            let number = self.number_of(hash);
            let added = self.with(number, |queued| {
                // Whoever moves the items of this shard takes the lock after it has lowered the number. So it meets this item, or this
                // thread sees the number.
                let count = self.count();
                if number >= count {
                    return false;
                }
                if let Some(item) = item.take() {
                    is_back = queued.admit(item);
                }
                then(queued, count);
                true
            });
            if added == Ok(true) {
                return is_back;
            }
            // The object is in the table already. The holder of the lock needs a bounded time, unless its thread does not run.
            yield_now();
        }
    }

    /// The number of each shard by turns.
    pub fn in_turn(&self) -> usize {
        // Relaxed: a number.
        self.next.fetch_add(1, Ordering::Relaxed) % self.used().max(1)
    }

    /// Drops the stale items of one shard. Fails if others are at it.
    pub fn trim(&self, is_alive: impl Fn(&T) -> bool) -> Result<(), Busy> {
        if !self.are_kept() {
            return Ok(());
        }
        self.with(self.in_turn(), |queued| queued.drop_stale(&is_alive))
    }

    /// Drops stale items, if there are many.
    fn clean(&self, queued: &mut Queued<T>, objects: usize, is_alive: &impl Fn(&T) -> bool) {
        if queued.queues.items() > 2 * objects + STALE {
            queued.drop_stale(is_alive);
        }
        queued.check_at = queued.queues.items() + queued.queues.items() / 4 + STALE;
    }

    /// Evicts an object of a shard. The caller will perhaps admit an item with the hash `coming`. `visit` visits the object of an item.
    /// `ahead` is called with items that will be visited soon, the later one first. `spared` counts the objects that were spared since another
    /// one was met. Returns the number of visits, and what they found.
    pub fn evict(
        &self,
        number: usize,
        coming: Option<u32>,
        spared: &mut usize,
        visit: &mut impl FnMut(&T, Rule) -> Met,
        ahead: &impl Fn(&T, bool),
    ) -> Result<(usize, Found), Busy> {
        self.with(number, |queued| {
            if let Some(hash) = coming {
                queued.queues.expect(hash);
            }
            let (mut visits, mut judged, mut found) = (0, 0, Found::Nothing);
            // A policy visits all others after so many that are spared.
            while *spared <= 2 * queued.queues.items() {
                if visits == VISITS {
                    found = Found::Unknown;
                    break;
                }
                let mut dropped = 0;
                let met = queued.queues.step(|item, rule| {
                    let met = visit(item, if judged < SPARED { rule } else { |_| None });
                    if matches!(met, Met::Evicted | Met::Gone) {
                        dropped = item.owned_bytes();
                    }
                    met
                });
                let Some(met) = met else {
                    break;
                };
                visits += 1;
                queued.owned -= dropped;
                match met {
                    Met::Evicted => {
                        found = Found::Evicted;
                        break;
                    }
                    Met::Spared => *spared += 1,
                    _ => (judged, *spared) = (judged + 1, 0),
                }
            }
            if let Some(item) = queued.queues.peek(1) {
                ahead(item, true);
            }
            if let Some(item) = queued.queues.peek(0) {
                ahead(item, false);
            }
            (visits, found)
        })
    }
}
