//! What changes of contents with leases while they live: how long new objects live, and the limit.

use super::engine::InlineEngine;
use super::leased::Leased;
use crate::evict::account::Unit;
use crate::evict::policies::Policy;
use crate::failure::Failure;
use cats_sync::epoch::Guard;
use cats_sync::Busy;
use std::time::{Duration, Instant};

/// How long a scheduler evicts at once for a lower limit, and how many evictions there are between two looks at the clock.
const SLICE: Duration = Duration::from_micros(500);
const EVICTIONS: usize = 16;

/// Runs a change under the lock for the table. Fails if these are not the table's contents any more.
pub type Alone<'a> = &'a dyn Fn(&mut dyn FnMut()) -> Result<(), Failure>;

impl<E: InlineEngine> Leased<'_, E> {
    /// Gives up so many objects, those that would be evicted at the limit. Returns how many it has given up. There are fewer if others are
    /// in the way, or the contents evict nothing.
    pub fn shed(self, guard: &Guard, objects: usize) -> usize {
        let Some(limits) = self.owner.leases.limits().filter(|limits| limits.evicts()) else {
            return 0;
        };
        limits.free_up(self, guard, (limits.capacity(), objects), &mut limits.purse())
    }

    /// Gives the contents a limit of another number. A lower one takes effect step by step: what was evicted, the limit becomes lower by at
    /// once. So it holds at each instant. Fails with [`Failure::Slice`] as long as more is to be done. If nothing can be evicted that should
    /// be, fails with [`Failure::Full`] and changes nothing.
    pub fn set_limit(self, guard: &Guard, number: u64, alone: Alone<'_>) -> Result<(), Failure> {
        let Some(limits) = self.owner.leases.limits() else {
            return Ok(());
        };
        let start = Instant::now();
        let until = |done: &mut dyn FnMut() -> Result<bool, Busy>| {
            while !done()? {
                if start.elapsed() >= SLICE {
                    return Err(Failure::Slice);
                }
            }
            Ok(())
        };
        // The shards become fewer first. Otherwise one of them might lose all that it has.
        let least = number.min(limits.limit().number);
        until(&mut || limits.arrange(least))?;
        let mut purse = limits.purse();
        if limits.evicts() {
            while !purse.has(limits.excess(number)) {
                let done = limits.free_up(self, guard, (limits.excess(number), EVICTIONS), &mut purse);
                if done < EVICTIONS || start.elapsed() >= SLICE {
                    break;
                }
            }
        } else if !purse.affords(limits.excess(number)) {
            // What has expired is no reason to refuse.
            self.settle(guard, false)?;
            if !purse.affords(limits.excess(number)) {
                return Err(Failure::Full);
            }
        }
        let mut is_there = false;
        alone(&mut || is_there = limits.approach(number, &mut purse))?;
        if !is_there {
            return Err(Failure::Slice);
        }
        if let Some(bytes) = limits.bucket_bytes() {
            self.owner.engine.keep_within(bytes);
        }
        until(&mut || limits.arrange(number))?;
        until(&mut || Ok(limits.shrink(self, guard)))
    }

    /// Whether the contents may have this limit in place of the one that they have.
    pub fn may_become(self, unit: Unit, number: u64) -> bool {
        let limits = self.owner.leases.limits();
        limits.is_some_and(|limits| limits.may_become(unit, number))
    }

    /// See [`Limits::set_policy`](super::limited::Limits::set_policy).
    pub fn set_policy(self, policy: Option<Policy>) {
        if let Some(limits) = self.owner.leases.limits() {
            limits.set_policy(policy);
        }
    }
}
