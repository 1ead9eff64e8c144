//! SIEVE: Zhang and others, "SIEVE is simpler than LRU", NSDI 2024.

use super::{once, About, Evict, Met, Rule};
use crate::evict::fifo::Fifo;
use crate::evict::item::Item;
use std::mem;

/// A hand goes from the oldest object to the newest one, and again. It evicts objects that were not used since it last passed. The others
/// stay where they are, so the hand keeps old and popular objects apart from new ones.
#[derive(Debug, Default)]
pub struct Sieve<T> {
    /// The items before the hand, which it will visit next. New ones are the last.
    ahead: Fifo<T>,
    /// The items that the hand has passed, which are older than those before it.
    behind: Fifo<T>,
}

impl<T: Item> Evict<T> for Sieve<T> {
    const ABOUT: About = About {
        name: "sieve",
        uses: 1,
        queues: 2,
        kept: 0,
    };

    fn items(&self) -> usize {
        self.ahead.len() + self.behind.len()
    }

    fn admit(&mut self, item: T) -> bool {
        self.ahead.push(item);
        false
    }

    fn step(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        let item = self.pop()?;
        let met = visit(&item, once);
        if matches!(met, Met::Stays | Met::Busy | Met::Spared) {
            self.behind.push(item);
        }
        Some(met)
    }

    fn pop(&mut self) -> Option<T> {
        // At the end the hand turns.
        if self.ahead.is_empty() {
            mem::swap(&mut self.ahead, &mut self.behind);
        }
        self.ahead.pop()
    }

    fn peek(&self, later: usize) -> Option<&T> {
        self.ahead.get(later)
    }

    fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.ahead.retain(&mut keep);
        self.behind.retain(&mut keep);
    }

    fn bytes(&self) -> usize {
        self.ahead.bytes() + self.behind.bytes()
    }
}
