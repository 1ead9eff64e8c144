//! Which object to evict.
//!
//! A policy keeps queues of *items*. An item finds the place of an object again; the object may be gone, or be another one by then. How
//! often an object was used is in the object itself, where its readers count. So readers touch no queue.
//!
//! | policy | source |
//! |---|---|
//! | `S3Fifo` | Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023 |
//! | `Sieve` | Zhang and others, "SIEVE is simpler than LRU", NSDI 2024 |
//! | `Clock` | Corbato, "A paging experiment with the Multics system", 1968; also called FIFO reinsertion |

use super::fifo::Fifo;
use super::ghost::Ghost;

/// Which objects are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    S3Fifo,
    Sieve,
    Clock,
}

/// Finds the place of an object again.
pub trait Item: Owner + Default {
    /// A hash of the object's key.
    fn hash(&self) -> u32;
}

/// What may own memory.
pub trait Owner {
    /// The bytes of this memory.
    fn owned_bytes(&self) -> usize {
        0
    }
}

impl Owner for u32 {}

/// How often an object was used: from 0 to [`OFTEN`].
pub type Uses = u8;
/// Further uses are not counted.
pub const OFTEN: Uses = 3;

/// What becomes of an object that was used so often: the number of uses with which it stays, or `None` if it is evicted.
pub type Rule = fn(Uses) -> Option<Uses>;

/// What the visit of an object came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    Evicted,
    Stays,
    /// There is no such object any more.
    Gone,
    /// Others were at its place.
    Busy,
}

/// The queues of a policy. Each object has an item in them, except for some that two objects may share.
#[derive(Debug)]
pub enum Queues<T> {
    S3Fifo(S3Fifo<T>),
    Sieve(Sieve<T>),
    Clock(Fifo<T>),
}

impl<T: Item> Queues<T> {
    pub fn new(policy: Policy) -> Self {
        match policy {
            Policy::S3Fifo => Self::S3Fifo(S3Fifo::default()),
            Policy::Sieve => Self::Sieve(Sieve::default()),
            Policy::Clock => Self::Clock(Fifo::default()),
        }
    }

    /// The number of items.
    pub fn items(&self) -> usize {
        match self {
            Self::S3Fifo(queues) => queues.len(),
            Self::Sieve(queues) => queues.ahead.len() + queues.behind.len(),
            Self::Clock(queue) => queue.len(),
        }
    }

    /// Adds the item of a new object. It was not used yet. Returns whether such an item is remembered as one that was evicted.
    pub fn admit(&mut self, item: T) -> bool {
        match self {
            Self::S3Fifo(queues) => return queues.admit(item),
            Self::Sieve(queues) => queues.ahead.push(item),
            Self::Clock(queue) => queue.push(item),
        }
        false
    }

    /// Visits the next object, which is evicted if the rule says so. `None` if there is no item.
    pub fn step(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        match self {
            Self::S3Fifo(queues) => queues.step(visit),
            Self::Sieve(queues) => queues.step(visit),
            Self::Clock(queue) => {
                let item = queue.pop()?;
                let met = visit(&item, once);
                if matches!(met, Met::Stays | Met::Busy) {
                    queue.push(item);
                }
                Some(met)
            }
        }
    }

    /// The item of an object that will probably be visited after `later` others.
    pub fn peek(&self, later: usize) -> Option<&T> {
        match self {
            Self::S3Fifo(queues) => queues.next_queue().get(later),
            Self::Sieve(queues) => queues.ahead.get(later),
            Self::Clock(queue) => queue.get(later),
        }
    }

    /// Prefetches what an item with this hash needs when it is admitted.
    pub fn expect(&self, hash: u32) {
        if let Self::S3Fifo(queues) = self {
            queues.ghost.prefetch(hash);
        }
    }

    /// Drops the items for which `keep` returns false, and what is kept in memory for those that are gone.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        match self {
            Self::S3Fifo(queues) => {
                queues.main.retain(&mut keep);
                queues.small.retain(&mut keep);
                queues.fit_ghost(2, 3);
            }
            Self::Sieve(queues) => {
                queues.ahead.retain(&mut keep);
                queues.behind.retain(&mut keep);
            }
            Self::Clock(queue) => queue.retain(keep),
        }
    }

    /// The bytes of their memory, without the value itself.
    pub fn bytes(&self) -> usize {
        match self {
            Self::S3Fifo(queues) => queues.small.bytes() + queues.main.bytes() + queues.ghost.bytes(),
            Self::Sieve(queues) => queues.ahead.bytes() + queues.behind.bytes(),
            Self::Clock(queue) => queue.bytes(),
        }
    }
}

/// An object that was used stays once.
fn once(uses: Uses) -> Option<Uses> {
    (uses > 0).then_some(0)
}

/// New objects go to a small queue. Those that are used twice there move to the main queue. The others are evicted soon, but remembered
/// for a while. If one of them comes back, it goes to the main queue at once.
#[derive(Debug)]
pub struct S3Fifo<T> {
    small: Fifo<T>,
    main: Fifo<T>,
    ghost: Ghost,
    /// Whether an object was evicted.
    has_evicted: bool,
    /// Whether the search for an object to evict goes through the small queue. `None` if there is no search.
    from_small: Option<bool>,
}

/// The small queue has one item of so many.
const SMALL: usize = 10;

impl<T: Item> Default for S3Fifo<T> {
    fn default() -> Self {
        Self {
            small: Fifo::default(),
            main: Fifo::default(),
            ghost: Ghost::default(),
            has_evicted: false,
            from_small: None,
        }
    }
}

impl<T: Item> S3Fifo<T> {
    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn admit(&mut self, item: T) -> bool {
        // Until the first eviction nothing is remembered, and new objects go to the main queue, too, once the small one has its share. The
        // paper has them all in the small queue, of which nearly all must leave then. So its authors changed this in their simulator.
        let is_main = match self.has_evicted {
            false => self.is_small_large(),
            true => self.ghost.forget(item.hash()),
        };
        match is_main {
            true => self.main.push(item),
            false => self.small.push(item),
        }
        is_main && self.has_evicted
    }

    /// Whether the next object to visit is in the small queue.
    fn is_small_next(&self) -> bool {
        let is_large = || self.is_small_large();
        self.main.is_empty() || !self.small.is_empty() && self.from_small.unwrap_or_else(is_large)
    }

    /// Whether the small queue has its share of the items.
    fn is_small_large(&self) -> bool {
        !self.small.is_empty() && self.small.len() * SMALL >= self.len()
    }

    fn next_queue(&self) -> &Fifo<T> {
        match self.is_small_next() {
            true => &self.small,
            false => &self.main,
        }
    }

    fn step(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        let small = self.is_small_next();
        let met = match small {
            true => self.step_in_small(visit),
            false => self.step_in_main(visit),
        };
        self.has_evicted |= met == Some(Met::Evicted);
        self.from_small = (met != Some(Met::Evicted)).then_some(small);
        met
    }

    fn step_in_small(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        let item = self.small.pop()?;
        self.ghost.prefetch(item.hash());
        let met = visit(&item, |uses| (uses > 1).then_some(0));
        match met {
            Met::Stays => self.main.push(item),
            Met::Evicted => self.remember(&item),
            Met::Busy => self.small.push(item),
            Met::Gone => (),
        }
        Some(met)
    }

    fn step_in_main(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        let item = self.main.pop()?;
        let met = visit(&item, |uses| uses.checked_sub(1));
        if matches!(met, Met::Stays | Met::Busy) {
            self.main.push(item);
        }
        Some(met)
    }

    fn remember(&mut self, item: &T) {
        self.fit_ghost(1, 3);
        self.ghost.remember(item.hash());
    }

    /// Lets the ghost queue remember as many objects as the main queue has when it is full. It forgets all then, so that is done only where
    /// this is more than 3 / 2 of what it remembers, or less than `least` / `of`.
    fn fit_ghost(&mut self, least: usize, of: usize) {
        let (wanted, capacity) = (self.len() - self.len() / SMALL, self.ghost.capacity());
        if wanted > capacity * 3 / 2 || wanted < capacity * least / of {
            self.ghost.reset(wanted);
        }
    }
}

/// A hand goes from the oldest object to the newest one, and again. It evicts objects that were not used since it last passed. The others
/// stay where they are, so the hand keeps old and popular objects apart from new ones.
#[derive(Debug)]
pub struct Sieve<T> {
    /// The items before the hand, which it will visit next. New ones are the last.
    ahead: Fifo<T>,
    /// The items that the hand has passed, which are older than those before it.
    behind: Fifo<T>,
}

impl<T: Item> Default for Sieve<T> {
    fn default() -> Self {
        Self {
            ahead: Fifo::default(),
            behind: Fifo::default(),
        }
    }
}

impl<T: Item> Sieve<T> {
    fn step(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        if self.ahead.is_empty() {
            std::mem::swap(&mut self.ahead, &mut self.behind);
        }
        let item = self.ahead.pop()?;
        let met = visit(&item, once);
        if matches!(met, Met::Stays | Met::Busy) {
            self.behind.push(item);
        }
        Some(met)
    }
}
