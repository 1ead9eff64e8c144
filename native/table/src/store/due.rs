//! Which contents have leases or remember failures, and when these expire.

use super::Store;
use crate::expiry::WAKES;
use cats_sync::barrier;
use cats_sync::clock;
use cats_sync::epoch::{self, Guard};
use cats_sync::facade::{AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The addresses of all contents with leases, or with failures, that belong to a table.
static STORES: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The least milliseconds between two looks of the reaper. What has expired takes memory so much longer.
const PAUSE: u64 = 50;

fn stores() -> MutexGuard<'static, BTreeSet<usize>> {
    // Each change is one insertion or removal.
    STORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To be called when contents with leases are made, and when others remember the first failure.
pub(crate) fn enter(store: &Store) {
    stores().insert(ptr::from_ref(store).expose_provenance());
}

/// To be called before such contents are retired or freed.
pub(crate) fn leave(store: &Store) {
    stores().remove(&ptr::from_ref(store).addr());
}

/// Whether contents are noted.
#[cfg(debug_assertions)]
pub(crate) fn is_entered(store: &Store) -> bool {
    stores().contains(&ptr::from_ref(store).addr())
}

/// Calls `f` for all contents that are noted, until it returns false. Returns whether it never did.
fn each_store(mut f: impl FnMut(&Store, &Guard) -> bool) -> bool {
    let mut last = Bound::Unbounded;
    loop {
        // One guard for each of them, so that what was removed can be freed.
        let guard = epoch::pin();
        let Some(address) = stores().range((last, Bound::Unbounded)).next().copied() else {
            return true;
        };
        last = Bound::Excluded(address);
        // SAFETY: contents leave the set before they are retired, and this guard was there before.
        let store = unsafe { &*ptr::with_exposed_provenance::<Store>(address) };
        if !f(store, &guard) {
            return false;
        }
    }
}

/// What the reaper does after it has removed what has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It goes on. With `late`, it does so at once.
    Work { late: bool },
    /// It may rest for this time, or without a limit.
    Rest(Option<Duration>),
}

/// The milliseconds after which unfinished work is late. On a busy machine a nap may be much longer than it was meant to be.
const LATE: u64 = 200;

/// Removes objects and failures that have expired, for about `budget`.
pub fn expire(budget: Duration) -> Next {
    /// Since when there is work.
    static SINCE: AtomicU64 = AtomicU64::new(u64::MAX);
    let start = Instant::now();
    // Relaxed: nobody need wake who works.
    WAKES.store(0, Ordering::Relaxed);
    let mut more = || start.elapsed() < budget;
    // If a lock is not free, another look is needed.
    let complete = each_store(|store, guard| store.expire(guard, &mut more).unwrap_or(false));
    let now = clock::now();
    if !complete {
        // Relaxed: only the reaper uses it.
        let since = SINCE.load(Ordering::Relaxed).min(now);
        SINCE.store(since, Ordering::Relaxed);
        return Next::Work {
            late: now - since > LATE,
        };
    }
    // Relaxed: as above.
    SINCE.store(u64::MAX, Ordering::Relaxed);
    // From here on, who adds an item wakes the reaper. Either the item is seen below, or who adds it sees this store.
    // Relaxed: the barrier orders it.
    WAKES.store(u64::MAX, Ordering::Relaxed);
    if !barrier::heavy() {
        return Next::Rest(Some(Duration::from_millis(PAUSE)));
    }
    let mut due = u64::MAX;
    each_store(|store, _| {
        due = due.min(store.due());
        true
    });
    if due == u64::MAX {
        return Next::Rest(None);
    }
    let due = due.max(now + PAUSE);
    // Relaxed: as above.
    WAKES.fetch_min(due, Ordering::Relaxed);
    Next::Rest(Some(Duration::from_millis(due - now)))
}
