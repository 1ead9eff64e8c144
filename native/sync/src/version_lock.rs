//! Version lock (sequence lock): one word that is even while free and odd while a writer holds it.
//!
//! Source: Boehm, "Can seqlocks get along with programming language memory models?", MSPC'12.
//!
//! A reader takes a [`token`](VersionLock::token), reads atomics that writers may be changing, and then asks
//! [`validate`](VersionLock::validate) whether what it read belongs together. It must not act on anything it read before that,
//! except to follow pointers to memory that is reclaimed only through [`crate::epoch`].

use crate::events::{self, Events};
use crate::facade::{fence, spin_loop, AtomicU64, Ordering};
use crate::{backoff, Busy};
use std::ptr;

/// How often a waiter looks at a held lock before it gives up: some microseconds, more than any critical section that runs
/// takes, and far less than a scheduler may be held.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 2000 };

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct VersionLock {
    word: AtomicU64,
}

impl VersionLock {
    /// A free lock whose word is `version`, which must be even.
    pub fn new(version: u64) -> Self {
        debug_assert!(version & 1 == 0);
        Self {
            word: AtomicU64::new(version),
        }
    }

    /// A lock that its maker holds since version 0: `unlock(0)` frees it.
    pub fn held() -> Self {
        Self {
            word: AtomicU64::new(1),
        }
    }

    /// Takes the lock if it is free and returns the version it had.
    #[inline]
    pub fn try_lock(&self) -> Option<u64> {
        // Relaxed: the exchange looks again.
        let version = self.word.load(Ordering::Relaxed);
        if version & 1 == 1 {
            return None;
        }
        // Acquire pairs with the Release of `unlock`: this holder sees all that the last one wrote.
        self.word
            .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // No data store of this holder may become visible before the odd word (W1 of the sequence lock).
        fence(Ordering::Release);
        Some(version)
    }

    /// Takes the lock, spinning a bounded time. The second value tells whether it had to wait.
    #[inline]
    pub fn lock(&self) -> Result<(u64, bool), Busy> {
        match self.try_lock() {
            Some(version) => Ok((version, false)),
            None => self.lock_contended(None, 0),
        }
    }

    /// The same, and counts a wait. `hash` is that of the key for which the lock is wanted, or 0.
    #[inline]
    pub fn lock_counted(&self, events: &Events, hash: u64) -> Result<(u64, bool), Busy> {
        match self.try_lock() {
            Some(version) => Ok((version, false)),
            None => self.lock_contended(Some(events), hash),
        }
    }

    #[cold]
    fn lock_contended(&self, events: Option<&Events>, hash: u64) -> Result<(u64, bool), Busy> {
        let place = self.address();
        events::waiting(events, place, hash, || {
            backoff::back_off(place);
            for _ in 0..SPINS {
                spin_loop();
                if let Some(version) = self.try_lock() {
                    return Ok((version, true));
                }
            }
            Err(Busy)
        })
    }

    /// Takes the lock if no writer has held it since `token` was returned: what was read since then holds.
    #[inline]
    pub fn lock_since(&self, token: u64) -> bool {
        // The reads before must not move below the exchange: as in `validate`.
        fence(Ordering::Acquire);
        // Acquire and the fence: as in `try_lock`.
        let taken = self
            .word
            .compare_exchange(token, token + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        // Release: as in `try_lock`.
        fence(Ordering::Release);
        taken
    }

    /// Frees the lock after a change: readers that began before fail to validate.
    #[inline]
    pub fn unlock(&self, version: u64) {
        // Release pairs with the Acquire of `token` and `try_lock`: whoever sees the new version sees the change.
        self.word.store(version + 2, Ordering::Release);
    }

    /// Frees the lock when nothing that a reader can see was written since it was taken.
    #[inline]
    pub fn unlock_unchanged(&self, version: u64) {
        // Release pairs with the Acquire of `try_lock`: the next holder comes after what this one did.
        self.word.store(version, Ordering::Release);
    }

    /// The version at which the present holder took the lock: lets a holder that handed it on without it be freed.
    #[inline]
    pub fn held_version(&self) -> u64 {
        // Relaxed: the word does not change while the caller holds the lock.
        self.word.load(Ordering::Relaxed) - 1
    }

    /// The current version for an optimistic read, or nothing while a writer holds the lock.
    #[inline]
    pub fn token(&self) -> Option<u64> {
        // Acquire pairs with the Release of `unlock`: what is read from now on is not older than this version.
        let version = self.word.load(Ordering::Acquire);
        (version & 1 == 0).then_some(version)
    }

    /// The current version for an optimistic read, spinning a bounded time while a writer holds the lock.
    #[inline]
    pub fn token_spinning(&self) -> Result<u64, Busy> {
        match self.token() {
            Some(version) => Ok(version),
            None => self.token_contended(None, 0),
        }
    }

    /// The same, and counts a wait. `hash` is that of the key to read, or 0.
    #[inline]
    pub fn token_counted(&self, events: &Events, hash: u64) -> Result<u64, Busy> {
        match self.token() {
            Some(version) => Ok(version),
            None => self.token_contended(Some(events), hash),
        }
    }

    #[cold]
    fn token_contended(&self, events: Option<&Events>, hash: u64) -> Result<u64, Busy> {
        events::waiting(events, self.address(), hash, || {
            for _ in 0..SPINS {
                spin_loop();
                if let Some(version) = self.token() {
                    return Ok(version);
                }
            }
            Err(Busy)
        })
    }

    /// The address by which waits name the lock.
    pub fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// How often the lock was freed after a change, counted from its first version.
    pub fn changes(&self) -> u64 {
        // Relaxed: a statistic.
        self.word.load(Ordering::Relaxed) / 2
    }

    /// Whether no writer has held the lock since `token` was returned: all reads between the two saw one state.
    #[inline]
    pub fn validate(&self, token: u64) -> bool {
        // The reads before must not move below the load (R2): pairs with the Release fence of `try_lock`.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == token
    }
}
