//! The delegation queue: a buffer for critical sections. A thread that finds the lock taken delegates its section to
//! the holder, the *helper*.
//!
//! Source: Klaftenegger, Sagonas, Winblad, "Queue delegation locking", TPDS 2018, and "Delegation locking libraries for
//! improved performance of multithreaded programs", Euro-Par 2014. The memory orderings of `open` and `enqueue` are
//! this project's own.
//!
//! A session begins when the lock's holder [opens](DelegationQueue::open) the queue. It ends when its
//! [`flush`](DelegationQueue::flush) has closed it. A section takes effect with its reservation of space in the buffer.
//! Sections run in the order of their reservations. A session serves only what fits into the buffer, so helping is
//! bounded. When it ends, no section remains.

use super::call::{contain, uncontain};
use super::{Line, Operation, Queued};
use cats_sync::facade::{AtomicBool, AtomicU64, Ordering};
use std::marker::PhantomData;

/// Words of the buffer: 4096 bytes.
pub(super) const CAPACITY: usize = if cfg!(loom) { 7 } else { 512 };
/// Words before the payload: the operation and the payload's length.
const HEADER: usize = 2;
/// The longest payload, in words.
pub const LONGEST: usize = if cfg!(loom) { 2 } else { 14 };

/// A word of the buffer in which nothing was written. Any other value except `FULL` is an operation's address.
const EMPTY: u64 = 0;
/// Instead of an operation's address: this reservation does not fit, and the session ends.
const FULL: u64 = 1;

/// See the module's documentation.
#[derive(Debug)]
pub struct DelegationQueue<T> {
    /// The number of reserved words. If it is `CAPACITY` or more, the queue is closed.
    reserved: Line<AtomicU64>,
    /// A hint, so that late threads need not add to `reserved`.
    /// Relaxed: a late thread that misses it finds `reserved` closed.
    closed: AtomicBool,
    /// Records: the address of an operation, the length of its payload, the payload. All words are `EMPTY` between
    /// sessions.
    buffer: Box<[AtomicU64]>,
    value: PhantomData<fn(&mut T)>,
}

/// A store to a word that others change by read-modify-write. The model checker does not order such a store and a
/// read-modify-write correctly. It lets a thread, after its own store, read what a change made of the older value. For
/// two read-modify-writes it does not.
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
        // Release, and the additions continue the release sequence. So a thread that reserves space in this session
        // sees the words cleared before it writes them, and sees the lock taken. This holds even for a thread that
        // slept since it found the queue open in an earlier session.
        store_among_exchanges(&self.reserved, 0, Ordering::Release);
        // Relaxed: a hint.
        self.closed.store(false, Ordering::Relaxed);
    }

    /// Delegates an operation to the helper. False if there is no session or no space: then nothing was done.
    ///
    /// # Safety
    /// `operation` may be called with this payload, of at most `LONGEST` words, on any thread until the helper's call
    /// returns.
    #[inline]
    pub unsafe fn enqueue(&self, operation: Operation<T>, payload: &[u64]) -> bool {
        debug_assert!(payload.len() <= LONGEST);
        // Relaxed: a hint.
        if self.closed.load(Ordering::Relaxed) {
            return false;
        }
        let size = HEADER + payload.len();
        // Acquire pairs with the Release of `open`. Release: the flush reads the sum, and must not see earlier accesses
        // of this thread as later ones.
        let place = self.reserved.fetch_add(size as u64, Ordering::AcqRel);
        if place >= CAPACITY as u64 {
            return false;
        }
        let place = place as usize;
        if place + size > CAPACITY {
            // Only one reservation crosses the end. Release pairs with the Acquire of `flush`.
            self.buffer[place].store(FULL, Ordering::Release);
            return false;
        }
        let (header, words) = self.buffer[place..place + size].split_at(HEADER);
        // Relaxed: published by the store of the operation.
        header[1].store(payload.len() as u64, Ordering::Relaxed);
        for (word, value) in words.iter().zip(payload) {
            word.store(*value, Ordering::Relaxed);
        }
        // Release pairs with the Acquire of `flush`. It publishes the payload and what the payload refers to.
        header[0].store(operation as usize as u64, Ordering::Release);
        true
    }

    /// Runs the operations in the queue until the buffer is used up or no more come, and closes the session. The caller
    /// has the lock, and so `value`. A panic of an operation is caught here.
    pub fn flush(&self, value: &mut T) {
        let mut done = 0;
        loop {
            // Acquire pairs with the Release of the additions in `enqueue`.
            let reserved = self.reserved.load(Ordering::Acquire).min(CAPACITY as u64) as usize;
            if reserved == done {
                // Relaxed: it only rejects later threads.
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

    /// Runs the operation at `place` once it is there, and clears its words. Returns their number, or `None` at the
    /// mark of the end.
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
        // Clearing is Relaxed, here and below. Program order or the lock orders it before the next `open`.
        first.store(EMPTY, Ordering::Relaxed);
        if operation == FULL {
            return None;
        }
        // Relaxed: the operation's word published the length and the payload.
        let len = self.buffer[place + 1].load(Ordering::Relaxed) as usize;
        self.buffer[place + 1].store(EMPTY, Ordering::Relaxed);
        let mut payload = [0; LONGEST];
        for (i, word) in self.buffer[place + HEADER..][..len].iter().enumerate() {
            // Relaxed: as above.
            payload[i] = word.load(Ordering::Relaxed);
            word.store(EMPTY, Ordering::Relaxed);
        }
        // SAFETY: `enqueue` has stored the address of an operation here.
        let operation = unsafe { std::mem::transmute::<usize, Operation<T>>(operation as usize) };
        // SAFETY: its caller has promised that it may be called this way.
        let result = contain(|| unsafe { operation(value, &payload[..len]) });
        // No caller waits for this operation, as a waiting caller catches the panic in its own frame. But the model
        // checker reports errors by panics.
        if cfg!(loom) {
            uncontain(result);
        }
        Some(HEADER + len)
    }
}
