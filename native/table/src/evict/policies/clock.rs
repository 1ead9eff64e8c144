//! CLOCK: Corbato, "A paging experiment with the Multics system", 1968; also called FIFO reinsertion.

use super::{once, About, Evict, Met, Rule};
use crate::evict::fifo::Fifo;
use crate::evict::item::Item;

/// One queue. Objects that were used go back to its end once.
#[derive(Debug, Default)]
pub struct Clock<T>(Fifo<T>);

impl<T: Item> Evict<T> for Clock<T> {
    const ABOUT: About = About {
        name: "clock",
        uses: 1,
        // One more than it has: leaves of an `ordered_set` may take more than their objects pay for.
        queues: 2,
        kept: 0,
    };

    fn items(&self) -> usize {
        self.0.len()
    }

    fn admit(&mut self, item: T) -> bool {
        self.0.push(item);
        false
    }

    fn step(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
        let item = self.0.pop()?;
        let met = visit(&item, once);
        if matches!(met, Met::Stays | Met::Busy | Met::Spared) {
            self.0.push(item);
        }
        Some(met)
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    fn peek(&self, later: usize) -> Option<&T> {
        self.0.get(later)
    }

    fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
