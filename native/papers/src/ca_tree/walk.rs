//! Ordered operations: `next`, `prev` and ranges.
//!
//! A step locks the base node of its start key. While it finds nothing there, it also locks the following ones, and it
//! holds all of them until the end. So at one instant everything held. Upwards it waits for locks. Downwards is against
//! the locking order, so it only tries them, and starts again if it does not get one.

use super::{CaTree, Held, Target, ATTEMPTS};
use crate::sequential::{Balance, Entries};
use cats_engine::{Busy, OrderedSchema};
use cats_sync::epoch::Guard;
use cats_sync::facade::spin_loop;
use smallvec::SmallVec;

impl<S: OrderedSchema, B: Balance> CaTree<S, B> {
    /// Calls `visit` with the entries from a key on, up or down, of the first base node that has any. Also tells
    /// whether other base nodes follow. Shows no entries only at the end of the table.
    pub(super) fn walk<R>(
        &self,
        guard: &Guard,
        from: Option<(&S::Probe, bool)>,
        down: bool,
        visit: impl FnOnce(Entries<'_>, bool) -> R,
    ) -> Result<R, Busy> {
        let target = match from {
            None if down => Target::Last,
            None => Target::First,
            Some((probe, false)) if down => Target::Below(probe),
            Some((probe, _)) => Target::At(probe),
        };
        for _ in 0..ATTEMPTS {
            let mut held = self.enter(guard, &target, self.shared)?;
            let mut from = from;
            // Base nodes without matching entries. An empty vector costs nothing.
            let mut passed = SmallVec::<[Held<S::Key, B>; 2]>::new();
            loop {
                let border = if down { held.base().low } else { held.base().high };
                // SAFETY: bounds live as long as their node.
                let border = unsafe { border.as_ref() };
                let entries = held.tree().entries(&self.schema, from, down);
                let Some(border) = border.filter(|_| entries.is_at_end()) else {
                    let result = visit(entries, border.is_some());
                    let empty = passed.iter().chain([&held]).find(|held| held.tree().is_empty());
                    let empty = empty.map(|held| held.found);
                    if passed.is_empty() {
                        self.leave(guard, held);
                    } else {
                        drop((held, passed));
                    }
                    if let Some(empty) = empty {
                        self.drop_empty(guard, empty);
                    }
                    return Ok(result);
                };
                from = None;
                let probe = self.schema.probe(border);
                let next = if down {
                    self.try_enter(guard, &Target::Below(probe))
                } else {
                    Some(self.enter(guard, &Target::At(probe), self.shared)?)
                };
                passed.push(held);
                match next {
                    Some(next) => held = next,
                    None => break,
                }
            }
            drop(passed);
            spin_loop();
        }
        Err(Busy)
    }

    /// Like `enter`, without waiting.
    fn try_enter<'g>(&self, guard: &'g Guard, target: &Target<S>) -> Option<Held<'g, S::Key, B>> {
        let found = self.find(guard, target);
        let held = Held::try_lock(found, self.shared);
        if held.is_none() {
            found.base.lock().statistic().contended();
        }
        held.filter(|held| held.base().valid())
    }
}
