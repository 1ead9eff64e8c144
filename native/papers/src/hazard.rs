//! Hazard pointers: memory reclamation that protects single objects.
//!
//! Source: Michael, "Hazard pointers: safe memory reclamation for lock-free objects", TPDS 2004.
//!
//! A thread announces the address of an object before it accesses the object. Then it makes sure that the object had
//! not been retired yet. Every later reclamation sees the announcement and does not free the object. Unlike with
//! [`cats_sync::epoch`], a sleeping reader prevents only the objects that it has announced from being freed.
//!
//! - Each thread has [`SLOTS`] announcements in its record. [`Hazards`] gives access to those of the thread that
//!   holds a guard, for one operation. The guard serves only to identify the thread.
//! - An announcement costs a store. The store must be ordered before the second read of the source. The reclaimer pays
//!   for that order (`membarrier`).
//! - A structure has its own [`Retired`] list, linked through the objects, so retiring never allocates. When the list
//!   is long, the thread that retires one more object takes the whole list, reads all announcements, and frees the
//!   objects that are not announced.
//!
//! Each list holds back at most [`BATCH`] objects, plus twice the number of objects announced at the last reclamation,
//! plus what is retired while a thread reclaims. A reclamation reads each thread's slots once for at least `BATCH`
//! objects. So for a given number of threads the amortised cost is constant.

use crate::thread::{self, Record};
use cats_sync::barrier;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use std::cell::Cell;
use std::ptr;

/// Announcements of one thread.
pub const SLOTS: usize = thread::HAZARDS;
/// A list with this many retired objects is reclaimed.
pub const BATCH: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };

/// The announcements of this thread, for one operation. Dropping it withdraws them. A thread has at most one at a time.
pub struct Hazards<'g> {
    record: &'static Record,
    /// The slots from this number on have not been used.
    used: Cell<usize>,
    _guard: &'g Guard,
}

impl<'g> Hazards<'g> {
    pub fn new(guard: &'g Guard) -> Self {
        let record = thread::own(guard);
        // Relaxed: only this thread writes the slots.
        debug_assert!(record.hazards[0].load(Ordering::Relaxed).is_null());
        Self {
            record,
            used: Cell::new(0),
            _guard: guard,
        }
    }

    /// Announces an object in place of the slot's former one. The object is protected if it is not retired yet. To
    /// check that, read the source of the address again.
    #[inline]
    pub fn announce<T>(&self, number: usize, object: *mut T) {
        if number >= self.used.get() {
            self.used.set(number + 1);
        }
        // Release pairs with the Acquire of `reclaim`: the accesses to the former object come before it is freed.
        self.record.hazards[number].store(object.cast(), Ordering::Release);
        // Pairs with the heavy barrier of `reclaim`. Either `reclaim` sees the announcement, or the caller's later
        // reads show the object unlinked.
        barrier::light();
    }

    /// Loads a pointer and protects its object, if the object is unlinked from `source` before it is retired. Repeats
    /// if another thread changes the source. That thread then made progress.
    #[inline]
    pub fn protect<T>(&self, number: usize, source: &AtomicPtr<T>) -> *mut T {
        // Acquire is more than is needed: the load below is the one that counts.
        let mut object = source.load(Ordering::Acquire);
        loop {
            self.announce(number, object);
            // Acquire pairs with the Release that published the object.
            let again = source.load(Ordering::Acquire);
            if again == object {
                return object;
            }
            object = again;
        }
    }
}

impl Drop for Hazards<'_> {
    fn drop(&mut self) {
        for announced in &self.record.hazards[..self.used.get()] {
            // Release: as in `announce`.
            announced.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

/// The first field of an object that can be retired.
pub struct Link(AtomicPtr<Link>);

impl Link {
    /// The link of an object that is not retired.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// Objects of one structure that were unlinked and are not freed yet.
pub struct Retired {
    /// A stack. It is only ever taken as a whole.
    first: AtomicPtr<Link>,
    /// The approximate number of objects. Relaxed: a statistic.
    count: AtomicUsize,
    /// The number of objects at which they are reclaimed.
    due: AtomicUsize,
}

impl Default for Retired {
    fn default() -> Self {
        Self {
            first: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
            due: AtomicUsize::new(BATCH),
        }
    }
}

impl Retired {
    /// The number of objects, which may already have changed.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are no objects, which may already have changed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes over an unlinked object, which only threads that have announced it can still access. If there are many
    /// objects, frees some through `free`. Lock-free.
    ///
    /// # Safety
    /// The object begins with a link, and is announced by the link's address. It is retired once. Any thread that
    /// retires to this list may call `free` for it.
    pub unsafe fn retire(&self, object: *mut Link, free: impl FnMut(*mut Link)) {
        // Relaxed: a statistic. It is incremented before the push, so that it never becomes negative.
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        // SAFETY: a single object is a chain that ends with itself.
        unsafe { self.push(object, object) };
        // Relaxed: a hint.
        if count >= self.due.load(Ordering::Relaxed) {
            self.reclaim(free);
        }
    }

    /// Pushes a chain.
    ///
    /// # Safety
    /// The caller owns the chain from `first` through the links to `last`.
    unsafe fn push(&self, first: *mut Link, last: *mut Link) {
        // SAFETY: only a thread that has taken the list frees its objects.
        let last = unsafe { &(*last).0 };
        // Relaxed: only the exchange uses the address.
        let mut head = self.first.load(Ordering::Relaxed);
        loop {
            // Relaxed: published below.
            last.store(head, Ordering::Relaxed);
            // Release pairs with the Acquire of `reclaim`: the thread that takes the list sees the objects unlinked.
            match self
                .first
                .compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Frees the objects that no thread has announced.
    #[cold]
    fn reclaim(&self, mut free: impl FnMut(*mut Link)) {
        // Acquire pairs with the Release of `push`: the links are seen, and the objects unlinked.
        let mut at = self.first.swap(ptr::null_mut(), Ordering::Acquire);
        let ordered = barrier::heavy();
        let mut announced = Vec::with_capacity(64);
        if ordered {
            for record in thread::records() {
                for announcement in &record.hazards {
                    // Acquire pairs with the Release that withdraws or replaces the announcement: that thread's
                    // accesses come before the free.
                    let object = announcement.load(Ordering::Acquire);
                    if !object.is_null() {
                        announced.push(object);
                    }
                }
            }
            announced.sort_unstable();
        }
        let (mut first, mut last): (*mut Link, *mut Link) = (ptr::null_mut(), ptr::null_mut());
        let (mut kept, mut freed) = (0, 0);
        while !at.is_null() {
            let object = at;
            // SAFETY: this thread took it from the list, and owns it until it is freed or pushed. Relaxed: the swap
            // acquired the chain.
            let link = unsafe { &(*object).0 };
            at = link.load(Ordering::Relaxed);
            if ordered && announced.binary_search(&object.cast()).is_err() {
                freed += 1;
                free(object);
                continue;
            }
            kept += 1;
            // Relaxed: this thread owns the chain, and `push` publishes it.
            link.store(first, Ordering::Relaxed);
            if last.is_null() {
                last = object;
            }
            first = object;
        }
        // Relaxed: statistics and hints.
        self.count.fetch_sub(freed, Ordering::Relaxed);
        self.due.store(BATCH + 2 * kept, Ordering::Relaxed);
        if !last.is_null() {
            // SAFETY: the remaining objects, linked from `first` to `last`.
            unsafe { self.push(first, last) };
        }
    }

    /// Frees all objects. For the structure's last user: no thread has announced any of them.
    pub fn clear(&mut self, mut free: impl FnMut(*mut Link)) {
        // Relaxed: the caller has exclusive access to the list.
        let mut at = self.first.swap(ptr::null_mut(), Ordering::Relaxed);
        while !at.is_null() {
            let object = at;
            // SAFETY: as in `reclaim`.
            at = unsafe { &(*object).0 }.load(Ordering::Relaxed);
            free(object);
        }
        self.count.store(0, Ordering::Relaxed);
    }
}
