//! The delegation queue: a buffer in which threads that find a lock taken leave their sections to the one who has it, the *helper*.
//!
//! Source: Klaftenegger, Sagonas, Winblad, "Queue delegation locking", TPDS 2018 and Euro-Par 2014. The orderings of `open` and
//! `enqueue` are this project's own.
//!
//! A session begins when the lock's holder [opens](DelegationQueue::open) the queue and ends when its
//! [`flush`](DelegationQueue::flush) has closed it. A section counts from its reservation of a place on, and sections run in the
//! order of their places. A session serves what fits into the buffer, so helping is bounded; no section is left when it ends.

use super::call::{contain, uncontain};
use super::{Line, Operation, Queued};
use crate::facade::{AtomicBool, AtomicU64, Ordering};
use std::marker::PhantomData;

/// Words of the buffer: 4096 bytes.
pub(super) const CAPACITY: usize = if cfg!(loom) { 7 } else { 512 };
/// Words before the payload: the operation, and the payload's length.
const HEADER: usize = 2;
/// The longest payload, in words.
pub const LONGEST: usize = if cfg!(loom) { 2 } else { 14 };

/// A word of the buffer in which nothing was written. Any other but `FULL` is an operation's address.
const EMPTY: u64 = 0;
/// In place of an operation's address: what was reserved here does not fit, and the session ends.
const FULL: u64 = 1;

/// See the module's documentation.
#[derive(Debug)]
pub struct DelegationQueue<T> {
    /// How many words of the buffer are reserved; `CAPACITY` or more when the queue is closed.
    reserved: Line<AtomicU64>,
    /// A hint that spares who comes late the addition to `reserved`.
    closed: AtomicBool,
    /// Entries: the address of an operation, the length of the payload, the payload. All `EMPTY` between sessions.
    buffer: Box<[AtomicU64]>,
    value: PhantomData<fn(&mut T)>,
}

/// A store to a word that others change by read-modify-write. The model checker does not keep a store and such a change in one
/// order (it lets a thread read, after its own store, what a change made of the value before); two changes it does.
#[inline]
fn store_among_exchanges(word: &AtomicU64, value: u64, ordering: Ordering) {
    #[cfg(loom)]
    word.swap(value, ordering);
    #[cfg(not(loom))]
    word.store(value, ordering);
}

impl<T> Default for DelegationQueue<T> {
    fn default() -> Self {
        Self {
            reserved: Line(AtomicU64::new(CAPACITY as u64)),
            closed: AtomicBool::new(true),
            buffer: (0..CAPACITY).map(|_| AtomicU64::new(EMPTY)).collect(),
            value: PhantomData,
        }
    }
}

impl<T> DelegationQueue<T> {
    /// Begins a session. The caller has the lock.
    #[inline]
    pub fn open(&self) {
        // Release, continued by the additions: who reserves a place in this session, even one that found the queue open in an
        // earlier one and slept, sees the words cleared before it writes them, and the lock taken.
        store_among_exchanges(&self.reserved, 0, Ordering::Release);
        // Relaxed: a hint.
        self.closed.store(false, Ordering::Relaxed);
    }

    /// Leaves an operation to the helper; false when there is no session or no room, and nothing was done.
    ///
    /// # Safety
    /// `operation` may be called with this payload, of `LONGEST` words at most, on any thread until the helper's call returns.
    #[inline]
    pub unsafe fn enqueue(&self, operation: Operation<T>, payload: &[u64]) -> bool {
        debug_assert!(payload.len() <= LONGEST);
        // Relaxed: a hint.
        if self.closed.load(Ordering::Relaxed) {
            return false;
        }
        let size = HEADER + payload.len();
        // Acquire pairs with the Release of `open`. Release: the flush, which reads the sum, does not take part of the caller's
        // past for its future.
        let place = self.reserved.fetch_add(size as u64, Ordering::AcqRel);
        if place >= CAPACITY as u64 {
            return false;
        }
        let place = place as usize;
        if place + size > CAPACITY {
            // The only one to straddle the end. Release pairs with the Acquire of `flush`.
            self.buffer[place].store(FULL, Ordering::Release);
            return false;
        }
        let (header, words) = self.buffer[place..place + size].split_at(HEADER);
        // Relaxed: published by the store of the operation.
        header[1].store(payload.len() as u64, Ordering::Relaxed);
        for (word, value) in words.iter().zip(payload) {
            word.store(*value, Ordering::Relaxed);
        }
        // Release pairs with the Acquire of `flush`: it publishes the payload, and what the payload refers to.
        header[0].store(operation as usize as u64, Ordering::Release);
        true
    }

    /// Runs what was left in the queue, until the buffer is used up or nothing more comes, and closes the session. The caller has
    /// the lock, and `value` with it. A panic of an operation ends there.
    pub fn flush(&self, value: &mut T) {
        let mut done = 0;
        loop {
            let reserved = self.reserved.load(Ordering::Acquire).min(CAPACITY as u64) as usize;
            if reserved == done {
                // Relaxed: it only turns away who comes after it.
                let closed = done == CAPACITY
                    || self
                        .reserved
                        .compare_exchange(done as u64, CAPACITY as u64, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok();
                if closed {
                    break;
                }
            }
            while done < reserved {
                match self.serve(done, value) {
                    Some(size) => done += size,
                    None => {
                        self.closed.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            }
        }
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Runs the operation at `place` once it is there, and clears its words; returns their number, or nothing at the mark of the end.
    #[inline]
    fn serve(&self, place: usize, value: &mut T) -> Option<usize> {
        let first = &self.buffer[place];
        let mut queued = Queued::default();
        let operation = loop {
            // Acquire pairs with the Release of `enqueue`.
            match first.load(Ordering::Acquire) {
                EMPTY => queued.wait(),
                operation => break operation,
            }
        };
        // Clearing is relaxed, here and below: it comes before the next `open` in the order of the program or of the lock.
        first.store(EMPTY, Ordering::Relaxed);
        if operation == FULL {
            return None;
        }
        let len = self.buffer[place + 1].load(Ordering::Relaxed) as usize;
        self.buffer[place + 1].store(EMPTY, Ordering::Relaxed);
        let mut payload = [0; LONGEST];
        for (i, word) in self.buffer[place + HEADER..][..len].iter().enumerate() {
            payload[i] = word.load(Ordering::Relaxed);
            word.store(EMPTY, Ordering::Relaxed);
        }
        // SAFETY: `enqueue` has stored the address of an operation here.
        let operation = unsafe { std::mem::transmute::<usize, Operation<T>>(operation as usize) };
        // SAFETY: its caller has promised that it may be called so.
        let result = contain(|| unsafe { operation(value, &payload[..len]) });
        // Nobody waits for the operation (who waits has its panic in a frame of its own), but the model checker speaks by panics.
        if cfg!(loom) {
            uncontain(result);
        }
        Some(HEADER + len)
    }
}
