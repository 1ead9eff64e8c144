//! MCS queue lock: mutual exclusion in FIFO order. Each waiter spins on a cache line of its own, for a bounded time.
//!
//! Source: Mellor-Crummey, Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", TOCS
//! 1991. Waiters may leave, as in MCS-TP: He, Scherer, Scott, "Preemption adaptivity in time-published queue-based spin
//! locks", HiPC 2005. A thread that has waited long enough marks its node as left. A thread that hands the lock on
//! skips such nodes.
//!
//! A thread that finds the lock free has its node in its own frame. A thread that queues has its node on the heap,
//! because the node may still be in the queue after its owner has left. The thread that takes such a node out of the
//! queue frees it.

use super::{Line, Queued, SPINS};
use cats_sync::facade::{spin_loop, AtomicPtr, AtomicU8, AtomicUsize, Ordering, Witness};
use cats_sync::Busy;
use std::ptr;

/// The most nodes in a queue whose owners have left. While there are more, no thread queues. So skipping them takes microseconds at
/// most.
const LEFT_AT_MOST: usize = 64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Mcs {
    /// The last node of the queue, or null when the lock is free.
    tail: Line<AtomicPtr<Node>>,
    /// The number of nodes in the queue whose owners have left. Relaxed: an approximate bound.
    left: AtomicUsize,
}

/// The node's owner waits.
const WAITING: u8 = 0;
/// The node's owner has the lock.
const HANDED_OVER: u8 = 1;
/// The node's owner has left.
const LEFT: u8 = 2;

/// A node of the queue.
#[repr(align(128))]
struct Node {
    next: AtomicPtr<Node>,
    state: AtomicU8,
    witness: Witness,
}

impl Node {
    fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU8::new(WAITING),
            witness: Witness::new(),
        }
    }
}

/// The lock, held by the node's owner. Dropping it hands the lock on.
struct Held<'a> {
    lock: &'a Mcs,
    node: *mut Node,
    on_heap: bool,
}

impl Mcs {
    /// Whether no thread has the lock or waits for it. This load takes part in store-load pairs.
    #[inline]
    pub fn is_free(&self) -> bool {
        // SeqCst: the load of a reader's store-load pair. Its Acquire part pairs with the Release of the unlock.
        self.tail.load(Ordering::SeqCst).is_null()
    }

    /// Runs `section` while this thread has the lock. Tells it whether another thread handed the lock over, so that it
    /// was not free in between. Fails if that takes too long.
    #[inline]
    pub fn with<R>(&self, section: impl FnOnce(bool) -> R) -> Result<R, Busy> {
        let node = Node::new();
        let mine = (&raw const node).cast_mut();
        // Relaxed: a first look, before the exchange. SeqCst: the store of a store-load pair, whose load is in the read
        // indicator. Its Acquire part: this thread sees what the last holder wrote. Its Release part: the successor
        // sees an initialised node.
        let free = self.tail.load(Ordering::Relaxed).is_null()
            && self
                .tail
                .compare_exchange(ptr::null_mut(), mine, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok();
        let (held, handed_over) = if free {
            let held = Held {
                lock: self,
                node: mine,
                on_heap: false,
            };
            (held, false)
        } else {
            self.line_up()?
        };
        let result = section(handed_over);
        drop(held);
        Ok(result)
    }

    /// Waits in the queue. Returns the held lock, and whether another thread handed it over.
    #[cold]
    fn line_up(&self) -> Result<(Held<'_>, bool), Busy> {
        // Relaxed, here and below: an approximate bound.
        if self.left.load(Ordering::Relaxed) > LEFT_AT_MOST {
            return Err(Busy);
        }
        let mine = Box::into_raw(Box::new(Node::new()));
        let held = || Held {
            lock: self,
            node: mine,
            on_heap: true,
        };
        // SeqCst: as in `with`.
        let before = self.tail.swap(mine, Ordering::SeqCst);
        // SAFETY: a thread takes a node out of the queue only after it has found the node's successor.
        let Some(before) = (unsafe { before.as_ref() }) else {
            return Ok((held(), false));
        };
        before.witness.look();
        // Release, like the swap, for the thread that finds the node here.
        before.next.store(mine, Ordering::Release);
        // SAFETY: until this thread has the lock or has left, only this thread frees the node.
        let node = unsafe { &*mine };
        node.witness.look();
        for _ in 0..SPINS {
            // Acquire pairs with the Release of the hand-over.
            if node.state.load(Ordering::Acquire) == HANDED_OVER {
                return Ok((held(), true));
            }
            spin_loop();
        }
        self.left.fetch_add(1, Ordering::Relaxed);
        // Release: this thread's accesses come before the node is freed. Acquire, if this thread has just got the lock:
        // as above.
        let left = node
            .state
            .compare_exchange(WAITING, LEFT, Ordering::Release, Ordering::Acquire);
        if left.is_ok() {
            return Err(Busy);
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
        Ok((held(), true))
    }

    /// Takes the first node out of the queue. Returns the next node, or null if the lock is free now.
    #[inline]
    fn behind(&self, first: *mut Node) -> *mut Node {
        // SAFETY: the node is in the queue.
        let node = unsafe { &*first };
        node.witness.look();
        // Acquire, here and below: this thread sees the successor's node initialised.
        let next = node.next.load(Ordering::Acquire);
        if !next.is_null() {
            return next;
        }
        // Release pairs with the Acquire part of the swap, and of a reader's load.
        let free = self
            .tail
            .compare_exchange(first, ptr::null_mut(), Ordering::Release, Ordering::Relaxed);
        if free.is_ok() {
            return ptr::null_mut();
        }
        // Another thread has swapped the tail, and is about to link its node.
        let mut queued = Queued::default();
        loop {
            // Acquire: as above.
            let next = node.next.load(Ordering::Acquire);
            if !next.is_null() {
                return next;
            }
            queued.wait();
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let (mut node, mut on_heap) = (self.node, self.on_heap);
        loop {
            let next = self.lock.behind(node);
            if on_heap {
                // SAFETY: `line_up` made it. It is out of the queue. Its owner has left it, or is this thread.
                let node = unsafe { Box::from_raw(node) };
                node.witness.see();
            }
            // SAFETY: the node is in the queue.
            let Some(successor) = (unsafe { next.as_ref() }) else {
                return;
            };
            successor.witness.look();
            // Release hands over what this holder wrote. From there on the owner may free the node. Acquire, if the
            // owner has left: its accesses come before the free.
            let handed_over =
                successor
                    .state
                    .compare_exchange(WAITING, HANDED_OVER, Ordering::Release, Ordering::Acquire);
            if handed_over.is_ok() {
                return;
            }
            self.lock.left.fetch_sub(1, Ordering::Relaxed);
            (node, on_heap) = (next, true);
        }
    }
}
