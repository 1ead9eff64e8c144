//! CC-Synch: combining with a queue. Callers queue, and the first one runs the critical sections of those behind it.
//!
//! Source: Fatourou, Kallimanis, "Revisiting the combining synchronization technique", PPoPP 2012.
//!
//! The queue always ends in a node without a section. A caller appends a fresh node and writes its section into the
//! former last node, which it then owns. So nodes pass from thread to thread. Each thread keeps one in its record.
//! There is no shared mode, so reads are combined too.
//!
//! Other threads do not run a section that must stay on its thread. The combiner makes the thread of that section the
//! next combiner.

use super::call::{contain, uncontain, Call};
use super::{Line, Queued, TableLock};
use crate::thread::own;
use cats_sync::epoch::pin;
use cats_sync::facade::{AtomicBool, AtomicPtr, Ordering};
use cats_sync::Busy;
use std::cell::UnsafeCell;
use std::ptr;

/// The most sections that one combiner runs before it hands over: as in the authors' lock library.
const COMBINED: usize = 512;

/// A section in its caller's frame: the function that runs it, and its address. Null for a section that must stay on
/// its thread.
#[derive(Clone, Copy)]
struct Request {
    run: *const (),
    call: *const (),
}

/// A node of the queue.
#[repr(align(128))]
struct Node {
    /// The owner writes it before it sets `next`. The combiner reads it after it has read `next`.
    request: UnsafeCell<Request>,
    next: AtomicPtr<Node>,
    wait: AtomicBool,
    /// True if the section was run. Otherwise the owner is the next combiner.
    done: AtomicBool,
}

impl Node {
    fn boxed() -> *mut Node {
        Box::into_raw(Box::new(Node {
            request: UnsafeCell::new(LOCAL),
            next: AtomicPtr::new(ptr::null_mut()),
            wait: AtomicBool::new(false),
            done: AtomicBool::new(false),
        }))
    }
}

const LOCAL: Request = Request {
    run: ptr::null(),
    call: ptr::null(),
};

/// See the module's documentation. A combiner runs at most `BOUND` sections.
#[derive(Debug)]
pub struct CcSynch<T, const BOUND: usize = COMBINED> {
    tail: Line<AtomicPtr<Node>>,
    value: UnsafeCell<T>,
}

// SAFETY: only the combiner accesses the value. The role of the combiner passes from thread to thread through
// `Node::wait`. A section that another thread runs is `Send`.
unsafe impl<T: Send, const BOUND: usize> Sync for CcSynch<T, BOUND> {}
// SAFETY: the owner of the lock owns the value and the last node.
unsafe impl<T: Send, const BOUND: usize> Send for CcSynch<T, BOUND> {}

/// The type of a function that runs a section.
type Run<T> = unsafe fn(&mut T, *const ());

/// Runs the section of the call at this address.
///
/// # Safety
/// It is the address of a `Call<F, R>` whose owner waits, and which may run on this thread.
unsafe fn run_call<T, F: FnOnce(&mut T) -> R, R>(value: &mut T, call: *const ()) {
    // SAFETY: the caller's promise.
    unsafe { (*call.cast::<Call<F, R>>()).perform(value) }
}

/// Takes this thread's spare node.
fn take_node() -> *mut Node {
    let guard = pin();
    let spare = &own(&guard).combining_node;
    // Relaxed, here and below: only the record's owner uses it.
    let node: *mut Node = spare.load(Ordering::Relaxed).cast();
    if node.is_null() {
        return Node::boxed();
    }
    // Relaxed: as above.
    spare.store(ptr::null_mut(), Ordering::Relaxed);
    node
}

/// Keeps a node, which this thread owns, for the next call.
fn keep_node(node: *mut Node) {
    let guard = pin();
    let spare = &own(&guard).combining_node;
    // Relaxed, for both: as in `take_node`.
    let other: *mut Node = spare.load(Ordering::Relaxed).cast();
    spare.store(node.cast(), Ordering::Relaxed);
    if !other.is_null() {
        // SAFETY: this thread owns it, and it is in no queue.
        drop(unsafe { Box::from_raw(other) });
    }
}

impl<T: Send, const BOUND: usize> CcSynch<T, BOUND> {
    /// Queues, and returns once another thread has run the section. If this thread becomes the combiner instead, it
    /// runs `own` and the sections behind.
    #[inline]
    fn apply(&self, request: Request, own: impl FnOnce(&mut T)) {
        let mine = take_node();
        // SAFETY: this thread owns it, and it is in no queue.
        let last = unsafe { &*mine };
        // Relaxed: published by the swap.
        last.next.store(ptr::null_mut(), Ordering::Relaxed);
        last.wait.store(true, Ordering::Relaxed);
        last.done.store(false, Ordering::Relaxed);
        // Release publishes the node. Acquire: this thread sees the former last node initialised.
        let at = self.tail.swap(mine, Ordering::AcqRel);
        // SAFETY: from the swap on this thread is its only owner. The combiner only reads it, and only after `next` is
        // set.
        let node = unsafe { &*at };
        // SAFETY: as above. The combiner reads it after `next`.
        unsafe { *node.request.get() = request };
        // Release publishes the request and everything that it refers to.
        node.next.store(mine, Ordering::Release);
        let mut queued = Queued::default();
        // Acquire pairs with the Release of the combiner. This thread sees the result, or what all earlier sections did
        // to the value.
        while node.wait.load(Ordering::Acquire) {
            queued.wait();
        }
        // Relaxed: published by `wait`.
        if !node.done.load(Ordering::Relaxed) {
            // SAFETY: this thread is the only combiner until it sets another node's `wait` to false.
            let value = unsafe { &mut *self.value.get() };
            own(value);
            self.combine(last, value);
        }
        keep_node(at);
    }

    /// Runs the sections from `first` on. Then makes the owner of the next node the combiner.
    fn combine(&self, first: &Node, value: &mut T) {
        let mut node = first;
        for _ in 1..BOUND {
            // Acquire pairs with the Release of the owner: the request is complete.
            let next = node.next.load(Ordering::Acquire);
            if next.is_null() {
                break;
            }
            // SAFETY: written before `next`, and not again before the owner has seen `wait`.
            let request = unsafe { *node.request.get() };
            if request.run.is_null() {
                break;
            }
            // SAFETY: the word is the address of such a function.
            let run = unsafe { std::mem::transmute::<*const (), Run<T>>(request.run) };
            // SAFETY: its owner waits for it, and the section is `Send`.
            unsafe { run(value, request.call) };
            // Relaxed: the store of `wait` publishes it.
            node.done.store(true, Ordering::Relaxed);
            // Release: the owner sees the result. From here on the owner may reuse the node.
            node.wait.store(false, Ordering::Release);
            // SAFETY: a node in the queue, because the node before it has a waiting owner.
            node = unsafe { &*next };
        }
        // Not done, but its owner need not wait: the present or future owner is the combiner. Release hands over the
        // value.
        node.wait.store(false, Ordering::Release);
    }
}

impl<T: Send + Sync, const BOUND: usize> TableLock<T> for CcSynch<T, BOUND> {
    /// There are no reader groups.
    fn new(value: T, _groups: usize) -> Self {
        Self {
            tail: Line(AtomicPtr::new(Node::boxed())),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    fn read_here<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Busy> {
        self.write_here(|value| look(value))
    }

    fn write_here<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        let mut result = None;
        self.apply(LOCAL, |value| result = Some(contain(|| change(value))));
        Ok(uncontain(result.expect("run by this thread, as nobody else could")))
    }

    #[inline]
    fn read<R: Send>(&self, look: impl FnOnce(&T) -> R + Send) -> Result<R, Busy> {
        self.write(|value| look(value))
    }

    #[inline]
    fn write<R: Send>(&self, change: impl FnOnce(&mut T) -> R + Send) -> Result<R, Busy> {
        fn runner<T, F: FnOnce(&mut T) -> R, R>(_: &Call<F, R>) -> Run<T> {
            run_call::<T, F, R>
        }
        let call = Call::new(change);
        let request = Request {
            run: runner::<T, _, R>(&call) as *const (),
            call: ptr::from_ref(&call).cast(),
        };
        // SAFETY: this thread is its combiner, so no other thread has run it.
        self.apply(request, |value| unsafe { call.perform(value) });
        Ok(call.result())
    }

    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T, const BOUND: usize> Drop for CcSynch<T, BOUND> {
    fn drop(&mut self) {
        // Relaxed: the caller owns the lock. SAFETY: the lock owns the one node without an owner.
        drop(unsafe { Box::from_raw(self.tail.load(Ordering::Relaxed)) });
    }
}
