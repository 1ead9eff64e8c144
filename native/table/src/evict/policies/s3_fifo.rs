//! S3-FIFO: Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023.

use super::{About, Evict, Met, Rule, OFTEN};
use crate::evict::fifo::Fifo;
use crate::evict::ghost::{self, Ghost};
use crate::evict::item::Item;

/// The small queue has one item of so many.
const SMALL: usize = 10;

/// New objects go to a small queue. Those that are used twice there move to the main queue. The others are evicted soon, but remembered
/// for a while. If one of them comes back, it goes to the main queue at once.
#[derive(Debug, Default)]
pub struct S3Fifo<T> {
    small: Fifo<T>,
    main: Fifo<T>,
    ghost: Ghost,
    /// Whether an object was evicted.
    has_evicted: bool,
    /// Whether the search for an object to evict goes through the small queue. `None` if there is no search.
    from_small: Option<bool>,
}

impl<T: Item> Evict<T> for S3Fifo<T> {
    const ABOUT: About = About {
        name: "s3_fifo",
        uses: OFTEN,
        queues: 2,
        kept: ghost::EACH,
    };

    fn items(&self) -> usize {
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

    fn step(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        let small = self.is_small_next();
        let met = match small {
            true => self.step_in_small(visit),
            false => self.step_in_main(visit),
        };
        self.has_evicted |= met == Some(Met::Evicted);
        self.from_small = match met {
            Some(Met::Evicted) => None,
            // All items of a queue may be those of objects that are spared.
            Some(Met::Spared) => Some(!small),
            _ => Some(small),
        };
        met
    }

    fn pop(&mut self) -> Option<T> {
        match self.is_small_next() {
            true => self.small.pop(),
            false => self.main.pop(),
        }
    }

    fn peek(&self, later: usize) -> Option<&T> {
        match self.is_small_next() {
            true => self.small.get(later),
            false => self.main.get(later),
        }
    }

    fn expect(&self, hash: u32) {
        self.ghost.prefetch(hash);
    }

    fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.main.retain(&mut keep);
        self.small.retain(&mut keep);
        self.fit_ghost(2, 3);
    }

    fn bytes(&self) -> usize {
        self.small.bytes() + self.main.bytes() + self.ghost.bytes()
    }
}

impl<T: Item> S3Fifo<T> {
    /// Whether the next object to visit is in the small queue.
    fn is_small_next(&self) -> bool {
        let is_large = || self.is_small_large();
        self.main.is_empty() || !self.small.is_empty() && self.from_small.unwrap_or_else(is_large)
    }

    /// Whether the small queue has its share of the items.
    fn is_small_large(&self) -> bool {
        !self.small.is_empty() && self.small.len() * SMALL >= self.items()
    }

    fn step_in_small(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        let item = self.small.pop()?;
        self.ghost.prefetch(item.hash());
        let met = visit(&item, |uses| (uses > 1).then_some(0));
        match met {
            Met::Stays => self.main.push(item),
            Met::Evicted => self.remember(&item),
            Met::Busy | Met::Spared => self.small.push(item),
            Met::Gone => (),
        }
        Some(met)
    }

    fn step_in_main(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        let item = self.main.pop()?;
        let met = visit(&item, |uses| uses.checked_sub(1));
        if matches!(met, Met::Stays | Met::Busy | Met::Spared) {
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
        let (wanted, capacity) = (self.items() - self.items() / SMALL, self.ghost.capacity());
        if wanted > capacity * 3 / 2 || wanted < capacity * least / of {
            self.ghost.reset(wanted);
        }
    }
}
