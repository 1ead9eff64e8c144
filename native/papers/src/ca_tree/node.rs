//! Nodes of a contention adapting tree.

use crate::sequential::{Balance, Tree};
use crate::stat_rw_lock::StatRwLock;
use cats_sync::cache_line::CacheLine;
use cats_sync::facade::{AtomicBool, AtomicI64, AtomicPtr, Ordering::*};
use cats_sync::version_lock::VersionLock;
use std::cell::UnsafeCell;
use std::marker::PhantomData;

/// The key of a bound, in a route node that lives as long as the base node. Null if unbounded.
pub(super) type Bound<K> = *const K;

/// Keys below the route key are in the left branch, the others in the right branch.
pub(super) struct Route<K> {
    pub key: K,
    /// The left and the right child.
    children: [AtomicPtr<u8>; 2],
    /// Held by a join to change the children or `valid`. A child slot that holds a base node is an exception: it needs
    /// only the lock of that base node.
    pub lock: VersionLock,
    valid: AtomicBool,
}

impl<K> Route<K> {
    /// The children are not in a tree yet, or stay where they are.
    pub fn new(key: K) -> Self {
        Self {
            key,
            children: Default::default(),
            lock: VersionLock::default(),
            valid: AtomicBool::new(true),
        }
    }

    #[inline]
    pub fn slot(&self, side: usize) -> &AtomicPtr<u8> {
        &self.children[side]
    }

    #[inline]
    pub fn child<B>(&self, side: usize) -> Node<K, B> {
        // Acquire pairs with the Release that published the node.
        Node::from_address(self.children[side].load(Acquire))
    }

    /// The side of a child.
    pub fn side_of<B>(&self, node: Node<K, B>) -> usize {
        let side = usize::from(self.child::<B>(0).address() != node.address());
        debug_assert!(self.child::<B>(side).address() == node.address());
        side
    }

    /// Relaxed: read and written under the lock.
    pub fn valid(&self) -> bool {
        self.valid.load(Relaxed)
    }
    pub fn invalidate(&self) {
        // Relaxed: as for `valid`.
        self.valid.store(false, Relaxed);
    }
}

/// A part of the table: an ordered set under a lock. It has a cache line of its own, to avoid false sharing.
pub(super) struct Base<K, B> {
    _line: CacheLine,
    lock: StatRwLock,
    valid: AtomicBool,
    /// The number of entries. A split halves it as an estimate, so only the sum over all nodes is exact.
    count: AtomicI64,
    tree: UnsafeCell<Tree<B>>,
    /// The lower bound of the keys, inclusive.
    pub low: Bound<K>,
    /// The upper bound of the keys, exclusive.
    pub high: Bound<K>,
}

impl<K, B: Balance> Base<K, B> {
    pub fn new(tree: Tree<B>, count: i64, low: Bound<K>, high: Bound<K>) -> Self {
        Self {
            _line: CacheLine,
            lock: StatRwLock::default(),
            valid: AtomicBool::new(true),
            count: AtomicI64::new(count),
            tree: UnsafeCell::new(tree),
            low,
            high,
        }
    }
}

impl<K, B> Base<K, B> {
    #[inline]
    pub fn lock(&self) -> &StatRwLock {
        &self.lock
    }

    /// Relaxed: read and written under the lock.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid.load(Relaxed)
    }
    pub fn invalidate(&self) {
        // Relaxed: as for `valid`.
        self.valid.store(false, Relaxed);
    }

    /// The contents, for the holder of the lock.
    #[inline]
    pub fn tree(&self) -> *mut Tree<B> {
        self.tree.get()
    }

    /// Relaxed: a statistic, written under the lock.
    pub fn count(&self) -> i64 {
        self.count.load(Relaxed)
    }
    #[inline]
    pub fn add(&self, more: i64) {
        if more != 0 {
            // Relaxed: as for `count`.
            self.count.store(self.count.load(Relaxed) + more, Relaxed);
        }
    }

    /// Whether this is the only base node of its table.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.low.is_null() && self.high.is_null()
    }
}

/// The address of a route node. With its lowest bit set, the address of a base node.
pub(super) struct Node<K, B> {
    address: *mut u8,
    kind: PhantomData<(K, B)>,
}

impl<K, B> Clone for Node<K, B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, B> Copy for Node<K, B> {}

/// What a [`Node`] points to.
pub(super) enum Child<'g, K, B> {
    Route(&'g Route<K>),
    Base(&'g Base<K, B>),
}

impl<K, B> Node<K, B> {
    #[inline]
    pub fn from_address(address: *mut u8) -> Self {
        Self {
            address,
            kind: PhantomData,
        }
    }
    pub fn route(route: *const Route<K>) -> Self {
        Self::from_address(route.cast_mut().cast())
    }
    pub fn base(base: *const Base<K, B>) -> Self {
        Self::from_address(base.cast_mut().cast::<u8>().wrapping_add(1))
    }
    #[inline]
    pub fn address(self) -> *mut u8 {
        self.address
    }

    /// # Safety
    /// The node lives as long as the result is used.
    #[inline]
    pub unsafe fn child<'g>(self) -> Child<'g, K, B> {
        // SAFETY: made from the address of a node of that kind. It lives, as the caller promises.
        unsafe {
            if self.address.addr() & 1 == 0 {
                Child::Route(&*self.address.cast())
            } else {
                Child::Base(&*self.address.wrapping_sub(1).cast())
            }
        }
    }
}
