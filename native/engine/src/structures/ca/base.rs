//! Base node: a key range, the B+tree that holds its entries, and a statistic of the contention met there.
//!
//! Source: Sagonas, Winblad, "More Scalable Ordered Set for ETS Using Adaptation", Erlang 2014, section 3. Reads lower
//! the statistic as in the contention adapting tree of Erlang/OTP ("gravity").
//!
//! The lock guards the structure of the tree only. Operations on single keys lock leaves. Not every operation writes
//! the statistic, as that would cause contention. One in 64 uncontended changes of a leaf does, with 64 times the
//! amount.

use super::inner::{Bound, Node};
use cats_sync::cache_line::CacheLine;
use cats_sync::events::Events;
use cats_sync::facade::{AtomicBool, AtomicPtr, Ordering::*};
use cats_sync::slab;
use cats_sync::stat_lock::StatLock;
use cats_sync::Busy;

/// An uncontended change counts -1. One in this many of a leaf is counted.
pub(super) const SAMPLING: u32 = 64;
/// Added to the statistic of each base node by an operation on several of them.
pub(super) const WIDE: i32 = -100;
/// One read in this many adds `GRAVITY` to the statistic.
pub(super) const GRAVITY_SAMPLING: u32 = 512;
pub(super) const GRAVITY: i32 = -500;

/// Each half has a cache line of its own, to avoid false sharing. Readers read the first. Threads that meet contention
/// write the second.
#[repr(C)]
pub(super) struct Base<K> {
    root: AtomicPtr<u8>,
    /// The lower bound of the keys, inclusive.
    pub low: Bound<K>,
    /// The upper bound of the keys, exclusive.
    pub high: Bound<K>,
    changing: Changing,
}

#[repr(C)]
struct Changing {
    _line: CacheLine,
    lock: StatLock,
    valid: AtomicBool,
}

impl<K> Base<K> {
    pub fn allocate(low: Bound<K>, high: Bound<K>, root: Node) -> *mut u8 {
        let at = slab::needed(slab::alloc(size_of::<Self>()));
        // SAFETY: this function owns the memory, which is large enough.
        unsafe {
            at.cast().write(Self {
                root: AtomicPtr::new(root.0),
                low,
                high,
                changing: Changing {
                    _line: CacheLine,
                    lock: StatLock::new(),
                    valid: AtomicBool::new(true),
                },
            });
        }
        at.as_ptr()
    }

    /// Acquire pairs with the Release of `set_root`: the reader sees the complete node.
    #[inline]
    pub fn root(&self) -> Node {
        Node(self.root.load(Acquire))
    }
    /// Call it under the lock.
    pub fn set_root(&self, node: Node) {
        // Release: as for `root`.
        self.root.store(node.0, Release);
    }

    /// Whether this is the only base node of its table.
    pub fn alone(&self) -> bool {
        self.low.is_null() && self.high.is_null()
    }
    /// Relaxed: read under the lock.
    pub fn valid(&self) -> bool {
        self.changing.valid.load(Relaxed)
    }
    /// Call it under the lock.
    pub fn invalidate(&self) {
        // Relaxed: as for `valid`.
        self.changing.valid.store(false, Relaxed);
    }

    /// The contention met in this base node.
    pub fn statistic(&self) -> &StatLock {
        &self.changing.lock
    }

    /// Takes the lock after a bounded spin. `hash` is that of the key for which.
    pub fn lock(&self, events: &Events, hash: u64) -> Result<Structure<'_, K>, Busy> {
        let version = self.changing.lock.lock(events, hash)?;
        Ok(Structure { base: self, version })
    }
    pub fn try_lock(&self) -> Option<Structure<'_, K>> {
        let version = self.changing.lock.version_lock().try_lock()?;
        Some(Structure { base: self, version })
    }
}

/// A locked base node. No other thread changes the structure of its tree. Dropping it frees the lock.
pub(super) struct Structure<'a, K> {
    pub base: &'a Base<K>,
    version: u64,
}

impl<K> Drop for Structure<'_, K> {
    fn drop(&mut self) {
        self.base.changing.lock.version_lock().unlock(self.version);
    }
}
