//! MCS queue lock: mutual exclusion, first in first out, each waiter looking at a line of its own.
//!
//! Source: Mellor-Crummey, Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", TOCS 1991
//! (ALGORITHMS section 4.3). The node stands in the caller's frame, so a thread may hold several such locks.

use super::{Line, Queued};
use crate::facade::{AtomicBool, AtomicPtr, Ordering};
use std::ptr;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Mcs {
    /// The last in the queue, or null when the lock is free.
    tail: Line<AtomicPtr<Node>>,
}

/// A place in the queue. Lives in its owner's frame until the owner has handed the lock on.
#[derive(Debug)]
#[repr(align(128))]
struct Node {
    next: AtomicPtr<Node>,
    wait: AtomicBool,
}

/// The hold of the node's owner.
struct Held<'a> {
    lock: &'a Mcs,
    node: &'a Node,
}

impl Mcs {
    /// Whether nobody has or waits for the lock. A load that takes part in store-load pairs.
    #[inline]
    pub fn is_free(&self) -> bool {
        // SeqCst: the load of a reader's store-load pair. Its Acquire part pairs with the Release of the unlock.
        self.tail.load(Ordering::SeqCst).is_null()
    }

    /// Runs `section` while this thread has the lock; tells it whether the lock was handed over by another thread, so that it was
    /// not free in between. Waits as long as it takes.
    #[inline]
    pub fn with<R>(&self, section: impl FnOnce(bool) -> R) -> R {
        let node = Node {
            next: AtomicPtr::new(ptr::null_mut()),
            wait: AtomicBool::new(true),
        };
        // SeqCst: the store of a store-load pair, of which `ReadIndicator::wait_empty` has the load. Release: the successor writes into an initialised node. Acquire: who
        // finds the queue empty sees what the last holder wrote.
        let before = self.tail.swap((&raw const node).cast_mut(), Ordering::SeqCst);
        // SAFETY: a node in the queue lives until its owner has met its successor.
        if let Some(before) = unsafe { before.as_ref() } {
            // Release: as the swap, for the one who finds the node here.
            before.next.store((&raw const node).cast_mut(), Ordering::Release);
            let mut queued = Queued::default();
            // Acquire pairs with the Release of the hand-over.
            while node.wait.load(Ordering::Acquire) {
                queued.wait();
            }
        }
        let held = Held {
            lock: self,
            node: &node,
        };
        let result = section(!before.is_null());
        drop(held);
        result
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let mine = ptr::from_ref(self.node).cast_mut();
        // Acquire, here and below: the successor's node is initialised.
        let mut next = self.node.next.load(Ordering::Acquire);
        if next.is_null() {
            // Release pairs with the Acquire part of the swap, and of a reader's look.
            let free = self
                .lock
                .tail
                .compare_exchange(mine, ptr::null_mut(), Ordering::Release, Ordering::Relaxed);
            if free.is_ok() {
                return;
            }
            // Somebody has taken the place behind and is about to say so.
            let mut queued = Queued::default();
            loop {
                next = self.node.next.load(Ordering::Acquire);
                if !next.is_null() {
                    break;
                }
                queued.wait();
            }
        }
        // SAFETY: the successor waits in its frame for this very store. Release hands it what this holder wrote.
        unsafe { &*next }.wait.store(false, Ordering::Release);
    }
}
