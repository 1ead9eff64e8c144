//! Base node: a key range, the B+tree that holds its entries, and a statistic of the contention met in it.
//!
//! Source: Sagonas, Winblad, contention adapting search trees (000, section 3); the read gravity is OTP's. The lock guards the
//! tree's structure only; operations on single keys lock leaves. So that the statistic is no word that every operation
//! writes, one in 64 uncontended changes of a leaf lowers it, by as much more.

use super::inner::{Bound, Node};
use cats_sync::facade::{AtomicBool, AtomicPtr, Ordering::*};
use cats_sync::slab;
use cats_sync::stat_lock::StatLock;
use cats_sync::Busy;

/// An uncontended change counts -1; one in so many of a leaf is counted.
pub(super) const SAMPLING: u32 = 64;
/// An operation on several base nodes, for each.
pub(super) const WIDE: i32 = -100;
/// One read in so many lowers the statistic by as much as `GRAVITY`.
pub(super) const GRAVITY_SAMPLING: u32 = 512;
pub(super) const GRAVITY: i32 = -500;

/// The two halves stand in lines of their own: readers read the first, the second is written by whoever meets contention.
#[repr(C, align(64))]
pub(super) struct Base<K> {
    root: AtomicPtr<u8>,
    /// Keys from here on.
    pub low: Bound<K>,
    /// Keys up to here, exclusive.
    pub high: Bound<K>,
    changing: Changing,
}

#[repr(C, align(64))]
struct Changing {
    lock: StatLock,
    valid: AtomicBool,
}

impl<K> Base<K> {
    pub fn allocate(low: Bound<K>, high: Bound<K>, root: Node) -> *mut u8 {
        let at = slab::needed(slab::alloc(size_of::<Self>()));
        // SAFETY: the memory is this function's own, and large enough.
        unsafe {
            at.cast().write(Self {
                root: AtomicPtr::new(root.0),
                low,
                high,
                changing: Changing {
                    lock: StatLock::new(),
                    valid: AtomicBool::new(true),
                },
            });
        }
        at.as_ptr()
    }

    /// Acquire pairs with the Release of `set_root`: the node is seen complete.
    #[inline]
    pub fn root(&self) -> Node {
        Node(self.root.load(Acquire))
    }
    /// Under the lock.
    pub fn set_root(&self, node: Node) {
        self.root.store(node.0, Release);
    }

    /// Whether this is the only base node of its table.
    pub fn alone(&self) -> bool {
        self.low.is_null() && self.high.is_null()
    }
    /// Relaxed: asked under the lock.
    pub fn valid(&self) -> bool {
        self.changing.valid.load(Relaxed)
    }
    /// Under the lock.
    pub fn invalidate(&self) {
        self.changing.valid.store(false, Relaxed);
    }

    /// The contention met in the base node.
    pub fn statistic(&self) -> &StatLock {
        &self.changing.lock
    }

    /// Takes the lock, spinning a bounded time.
    pub fn lock(&self) -> Result<Structure<'_, K>, Busy> {
        let version = self.changing.lock.lock()?;
        Ok(Structure { base: self, version })
    }
    pub fn try_lock(&self) -> Option<Structure<'_, K>> {
        let version = self.changing.lock.version_lock().try_lock()?;
        Some(Structure { base: self, version })
    }
}

/// A base node whose lock is held: nobody else changes its tree's structure. Freed when dropped.
pub(super) struct Structure<'a, K> {
    pub base: &'a Base<K>,
    version: u64,
}

impl<K> Drop for Structure<'_, K> {
    fn drop(&mut self) {
        self.base.changing.lock.version_lock().unlock(self.version);
    }
}
