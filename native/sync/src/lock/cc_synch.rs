//! CC-Synch: combining over a queue. Callers line up, and the first of them runs the sections of those behind it.
//!
//! Source: Fatourou, Kallimanis, "Revisiting the combining synchronization technique", PPoPP 2012.
//!
//! The queue always ends in a node without a section. A caller puts a fresh node at the end and writes its section into the one
//! that was there, which is its own now. So nodes pass from thread to thread; each thread keeps one, beside its slot. There is no
//! shared mode: reads are combined too.
//!
//! A section that must stay on its thread is not run by others: the combiner hands its part over to the thread that wants it.

use super::call::{contain, uncontain, Call};
use super::{Line, Queued, TableLock};
use crate::epoch::pin;
use crate::facade::{AtomicBool, AtomicPtr, Ordering};
use crate::Busy;
use std::cell::UnsafeCell;
use std::ptr;

/// Sections that one thread runs in a row, at most, before it hands its part over: as in the authors' lock library.
const COMBINED: usize = 512;

/// A section in its caller's frame: what runs it, and its address. Null for one that must stay on its thread.
#[derive(Clone, Copy)]
struct Request {
    run: *const (),
    call: *const (),
}

/// A place in the queue.
#[repr(align(128))]
pub(crate) struct Node {
    /// Written by the owner before it sets `next`, read by the combiner after it has read `next`.
    request: UnsafeCell<Request>,
    next: AtomicPtr<Node>,
    wait: AtomicBool,
    /// The section was run, and not only its turn has come.
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

/// See the module's documentation. A combiner runs `BOUND` sections at most.
#[derive(Debug)]
pub struct CcSynch<T, const BOUND: usize = COMBINED> {
    tail: Line<AtomicPtr<Node>>,
    value: UnsafeCell<T>,
}

// SAFETY: only the combiner reaches the value, and the part of the combiner passes from thread to thread through `Node::wait`.
// Sections that another thread runs are `Send`.
unsafe impl<T: Send, const BOUND: usize> Sync for CcSynch<T, BOUND> {}
// SAFETY: whoever has the lock for itself has the value and the last node.
unsafe impl<T: Send, const BOUND: usize> Send for CcSynch<T, BOUND> {}

/// The type of what runs a section.
type Run<T> = unsafe fn(&mut T, *const ());

/// Runs the section of the call at the address.
///
/// # Safety
/// It is that of a `Call<F, R>` whose owner waits, and may run here.
unsafe fn run_call<T, F: FnOnce(&mut T) -> R, R>(value: &mut T, call: *const ()) {
    // SAFETY: the caller's promise.
    unsafe { (*call.cast::<Call<F, R>>()).perform(value) }
}

/// This thread's spare node, to be given back.
fn take_node() -> *mut Node {
    let guard = pin();
    let spare = &guard.slot().combining_node;
    // Relaxed, here and below: the slot's owner alone uses it.
    let node = spare.load(Ordering::Relaxed);
    if node.is_null() {
        return Node::boxed();
    }
    spare.store(ptr::null_mut(), Ordering::Relaxed);
    node
}

/// Keeps a node that this thread owns for the next call.
fn keep_node(node: *mut Node) {
    let guard = pin();
    let spare = &guard.slot().combining_node;
    let other = spare.load(Ordering::Relaxed);
    spare.store(node, Ordering::Relaxed);
    if !other.is_null() {
        // SAFETY: this thread's own, and in no queue.
        drop(unsafe { Box::from_raw(other) });
    }
}

impl<T: Send, const BOUND: usize> CcSynch<T, BOUND> {
    /// Lines up, and returns once the section was run by another thread, or else once it is this thread's turn to combine: then
    /// runs `own`, and the sections of those behind.
    #[inline]
    fn apply(&self, request: Request, own: impl FnOnce(&mut T)) {
        let mine = take_node();
        // SAFETY: this thread's own, and in no queue.
        let last = unsafe { &*mine };
        // Relaxed: published by the swap.
        last.next.store(ptr::null_mut(), Ordering::Relaxed);
        last.wait.store(true, Ordering::Relaxed);
        last.done.store(false, Ordering::Relaxed);
        // Release publishes the node; Acquire: the node that was there is as its former owner has initialised it.
        let at = self.tail.swap(mine, Ordering::AcqRel);
        // SAFETY: it has no owner but this thread from the swap on, and the combiner only reads it until `next` is set.
        let node = unsafe { &*at };
        // SAFETY: as above: the combiner reads it after `next`.
        unsafe { *node.request.get() = request };
        // Release publishes the request, and all that it refers to.
        node.next.store(mine, Ordering::Release);
        let mut queued = Queued::default();
        // Acquire pairs with the Release of the combiner: the result, or what all before have done to the value.
        while node.wait.load(Ordering::Acquire) {
            queued.wait();
        }
        // Relaxed: published by `wait`.
        if !node.done.load(Ordering::Relaxed) {
            // SAFETY: it is this thread's turn, and nobody else's until it has set another node's `wait` to false.
            let value = unsafe { &mut *self.value.get() };
            own(value);
            self.combine(last, value);
        }
        keep_node(at);
    }

    /// Runs the sections from `first` on, and hands the part of the combiner over to the owner of the node after them.
    fn combine(&self, first: &Node, value: &mut T) {
        let mut node = first;
        for _ in 1..BOUND {
            // Acquire pairs with the Release of the owner: the request is there.
            let next = node.next.load(Ordering::Acquire);
            if next.is_null() {
                break;
            }
            // SAFETY: written before `next`, and not again before the owner has seen `wait`.
            let request = unsafe { *node.request.get() };
            if request.run.is_null() {
                break;
            }
            // SAFETY: the address of such a function.
            let run = unsafe { std::mem::transmute::<*const (), Run<T>>(request.run) };
            // SAFETY: its owner waits for it, and the section is `Send`.
            unsafe { run(value, request.call) };
            node.done.store(true, Ordering::Relaxed);
            // Release: the owner sees the result. The node is the owner's to use again from here on.
            node.wait.store(false, Ordering::Release);
            // SAFETY: a node in the queue, behind one of which the owner waited.
            node = unsafe { &*next };
        }
        // Not done, but no reason to wait: its owner, present or future, combines. Release hands over the value.
        node.wait.store(false, Ordering::Release);
    }
}

impl<T: Send + Sync, const BOUND: usize> TableLock<T> for CcSynch<T, BOUND> {
    /// There are no groups of readers.
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
        // SAFETY: performed by this thread, so no other thread has.
        self.apply(request, |value| unsafe { call.perform(value) });
        Ok(call.result())
    }

    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T, const BOUND: usize> Drop for CcSynch<T, BOUND> {
    fn drop(&mut self) {
        // Relaxed: the lock is the caller's own.
        // SAFETY: the one node without an owner is the lock's.
        drop(unsafe { Box::from_raw(self.tail.load(Ordering::Relaxed)) });
    }
}
