//! Budgets: how much work one call may do on a scheduler of the host, where others wait meanwhile.
//!
//! Whether a call is on a scheduler is asked only when its work has become more than the budget, which is rare. The answer belongs to the
//! thread. So no operation is told it, and what has to know it deep inside of an engine can ask too.

use crate::failure::Failure;
use std::sync::OnceLock;

/// Tells whether the present thread is a scheduler.
static ON_SCHEDULER: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets what tells whether the present thread is a scheduler. The first call counts. Without it, no thread is one.
pub fn set_on_scheduler(is_on_scheduler: fn() -> bool) {
    ON_SCHEDULER.get_or_init(|| is_on_scheduler);
}

/// Whether the present thread is a scheduler.
#[cold]
#[inline(never)]
fn on_scheduler() -> bool {
    ON_SCHEDULER.get().is_some_and(|is_on_scheduler| is_on_scheduler())
}

/// The most work of one kind that a call may do on a scheduler. On other threads there is no limit.
#[derive(Clone, Copy, Debug)]
pub struct Budget(pub usize);

impl Budget {
    /// Whether this thread may do so much work.
    #[inline(always)]
    pub fn admits(self, work: usize) -> bool {
        work <= self.0 || !on_scheduler()
    }

    /// Fails with [`Failure::Big`] if this thread may not do so much work.
    #[inline(always)]
    pub fn check(self, work: usize) -> Result<(), Failure> {
        match self.admits(work) {
            true => Ok(()),
            false => Err(Failure::Big),
        }
    }

    /// Tries some work within this budget. If that does not do, does it within none, if this thread may.
    #[inline(always)]
    pub fn try_within<R>(self, work: impl Fn(usize) -> Option<R>) -> Option<R> {
        match work(self.0) {
            None if !on_scheduler() => work(usize::MAX),
            done => done,
        }
    }

    /// How much of some work this thread may do.
    #[inline]
    pub fn part_of(self, work: usize) -> usize {
        match self.admits(work) {
            true => work,
            false => self.0,
        }
    }
}

/// Fails with [`Failure::Big`] on a scheduler. For work of which nobody knows how long it takes.
pub fn check_unlimited() -> Result<(), Failure> {
    match on_scheduler() {
        true => Err(Failure::Big),
        false => Ok(()),
    }
}
