//! Statistics lock: a version lock that measures its own contention.
//!
//! Source: Sagonas, Winblad, "More Scalable Ordered Set for ETS Using Adaptation", Erlang 2014, section 3.1. The
//! constants are those of Erlang/OTP (`erl_db_catree.c`).
//!
//! The statistic is a heuristic, so a lost update is harmless. It is changed by a load and a store instead of an atomic
//! addition. An atomic addition would be an expensive shared write on a path that must be cheap.

use crate::events::Events;
use crate::facade::{AtomicI32, AtomicU32, Ordering};
use crate::version_lock::VersionLock;
use crate::Busy;

const CONTENDED: i32 = 250;
const UNCONTENDED: i32 = -1;
/// The statistic stays within this limit, so that it follows a change of the load soon.
const LIMIT: i32 = 20_000;
/// Above this statistic, what the lock protects should split.
pub const SPLIT_ABOVE: i32 = 1000;
/// Below this statistic, what the lock protects should join with its neighbour.
pub const JOIN_BELOW: i32 = -1000;

/// The contention on a lock: high under contention, low without.
#[derive(Debug, Default)]
pub struct Statistic(AtomicI32);

impl Statistic {
    /// Counts an acquisition, which had to wait or not.
    #[inline]
    pub fn acquired(&self, waited: bool) {
        self.bump(if waited { CONTENDED } else { UNCONTENDED });
    }

    /// Counts a conflict without an acquisition, such as an optimistic read that failed.
    #[inline]
    pub fn contended(&self) {
        self.bump(CONTENDED);
    }

    /// Adds to the statistic, within the limits. Concurrent additions may get lost.
    #[inline]
    pub fn bump(&self, amount: i32) {
        // Relaxed: a heuristic, see above.
        let statistic = self.0.load(Ordering::Relaxed).saturating_add(amount);
        self.0.store(statistic.clamp(-LIMIT, LIMIT), Ordering::Relaxed);
    }

    /// The statistic now.
    #[inline]
    pub fn value(&self) -> i32 {
        // Relaxed: as in `bump`.
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the statistic to 0, when a split or join was not possible.
    #[inline]
    pub fn reset(&self) {
        // Relaxed: as in `bump`.
        self.0.store(0, Ordering::Relaxed);
    }
}

/// See the module's documentation. The holder decides about adaptation, after its operation and before it unlocks.
#[derive(Debug, Default)]
pub struct StatLock {
    lock: VersionLock,
    statistic: Statistic,
    /// How often contention was met.
    conflicts: AtomicU32,
}

impl StatLock {
    /// A free lock with statistic 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the lock after a bounded spin, and returns the version for [`VersionLock::unlock`]. Records whether it had
    /// to wait, and counts the wait.
    #[inline]
    pub fn lock(&self, events: &Events, hash: u64) -> Result<u64, Busy> {
        match self.lock.lock_counted(events, hash) {
            Ok((version, true)) => {
                self.contended();
                Ok(version)
            }
            Ok((version, false)) => {
                self.statistic.acquired(false);
                Ok(version)
            }
            Err(Busy) => {
                self.contended();
                Err(Busy)
            }
        }
    }

    /// The version lock inside. Optimistic reads, tries and unlocking do not change the statistic.
    #[inline]
    pub fn version_lock(&self) -> &VersionLock {
        &self.lock
    }

    /// See [`Statistic::contended`].
    pub fn contended(&self) {
        self.statistic.contended();
        // Relaxed: as the statistic.
        let conflicts = self.conflicts.load(Ordering::Relaxed).saturating_add(1);
        self.conflicts.store(conflicts, Ordering::Relaxed);
    }

    /// How often contention was met here.
    pub fn conflicts(&self) -> u32 {
        // Relaxed: a figure.
        self.conflicts.load(Ordering::Relaxed)
    }

    /// See [`Statistic::bump`].
    #[inline]
    pub fn bump(&self, amount: i32) {
        self.statistic.bump(amount);
    }

    /// See [`Statistic::value`].
    #[inline]
    pub fn statistic(&self) -> i32 {
        self.statistic.value()
    }

    /// See [`Statistic::reset`].
    #[inline]
    pub fn reset(&self) {
        self.statistic.reset();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn five_conflicts_split_and_a_thousand_quiet_operations_join() {
        let lock = StatLock::new();
        let quiet = || {
            let version = lock.lock(&Events::default(), 0).unwrap();
            lock.version_lock().unlock_unchanged(version);
        };
        let version = lock.version_lock().try_lock().unwrap();
        for conflicts in 1..=5 {
            assert!(lock.statistic() <= SPLIT_ABOVE, "after {} conflicts", conflicts - 1);
            assert_eq!(lock.lock(&Events::default(), 0), Err(Busy));
        }
        assert!(lock.statistic() > SPLIT_ABOVE);
        assert_eq!(lock.conflicts(), 5);
        lock.reset();
        lock.version_lock().unlock(version);
        for _ in 0..1000 {
            quiet();
            assert!(lock.statistic() >= JOIN_BELOW);
        }
        quiet();
        assert!(lock.statistic() < JOIN_BELOW);
    }

    #[test]
    fn the_statistic_stays_within_limits() {
        let lock = StatLock::new();
        lock.bump(i32::MAX);
        lock.contended();
        assert_eq!(lock.statistic(), LIMIT);
        lock.bump(i32::MIN);
        lock.bump(i32::MIN);
        assert_eq!(lock.statistic(), -LIMIT);
    }
}
