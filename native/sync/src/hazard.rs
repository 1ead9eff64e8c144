//! Hazard pointers: memory reclamation that protects single objects.
//!
//! Source: Michael, "Hazard pointers: safe memory reclamation for lock-free objects", TPDS 2004.
//!
//! A thread announces the address of an object before it looks into it, and then makes sure that the object had not yet been
//! retired: whoever retires it later meets the announcement and spares it. Unlike [`crate::epoch`], a reader that sleeps holds
//! back no more than what it has announced.
//!
//! - Each thread has [`SLOTS`] announcements, in its thread slot. [`Hazards`] are those of the thread that holds a guard, for one
//!   operation; the guard's only part here is that the thread is known.
//! - Announcing costs a store: the order between it and the second look at the source is paid by the reclaimer (`membarrier`).
//! - A structure has its own [`Retired`] list, linked through the objects: retiring never allocates. Once it is long, whoever
//!   retires one more takes the list as a whole, looks at all announcements, and frees what is in none.
//!
//! Why not the crate haphazard: it pays a full fence for each protection, allocates a record for each retired object, and whoever
//! retires one too many goes on reclaiming until the list is short.
//!
//! Held back at most, for each list: [`BATCH`] objects, twice what was announced at the last reclamation, and what is retired
//! while one thread reclaims. Reclamation looks at each thread's slots once for at least `BATCH` objects: amortised, that is a
//! constant for a given number of threads.

use crate::barrier;
use crate::epoch::Guard;
use crate::facade::{AtomicPtr, AtomicUsize, Ordering};
use crate::thread::{slots, Slot};
use std::cell::Cell;
use std::ptr;

/// Announcements of one thread.
pub const SLOTS: usize = if cfg!(loom) { 8 } else { 104 };
/// Retired objects from which on a list is reclaimed.
pub const BATCH: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };

/// The announcements of a thread, as others see them.
pub(crate) struct Announced([AtomicPtr<u8>; SLOTS]);

impl Announced {
    pub fn none() -> Self {
        Self(std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())))
    }
}

/// The announcements of this thread, for one operation; withdrawn when dropped. Only one at a time for each thread.
pub struct Hazards<'g> {
    slot: &'static Slot,
    /// Slots from this on have not been used.
    used: Cell<usize>,
    _guard: &'g Guard,
}

impl<'g> Hazards<'g> {
    pub fn new(guard: &'g Guard) -> Self {
        let slot = guard.slot();
        // Relaxed: the slots are this thread's own.
        debug_assert!(slot.hazards.0[0].load(Ordering::Relaxed).is_null());
        Self {
            slot,
            used: Cell::new(0),
            _guard: guard,
        }
    }

    /// Announces an object, in place of what the slot announced so far. It is protected if it is not retired after this: look
    /// where the address came from once more.
    #[inline]
    pub fn announce<T>(&self, number: usize, object: *mut T) {
        if number >= self.used.get() {
            self.used.set(number + 1);
        }
        // Release pairs with the Acquire of `reclaim`: the accesses to the former object come before its free.
        self.slot.hazards.0[number].store(object.cast(), Ordering::Release);
        // Pairs with the heavy barrier of `reclaim`: either it sees the announcement, or what the caller reads from now on
        // shows the object unlinked.
        barrier::light();
    }

    /// Loads a pointer and protects what it points to, if that is unlinked from `source` before it is retired. Repeats when
    /// others change the source, which is their progress.
    #[inline]
    pub fn protect<T>(&self, number: usize, source: &AtomicPtr<T>) -> *mut T {
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
        for announced in &self.slot.hazards.0[..self.used.get()] {
            // Release: as in `announce`.
            announced.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

/// What an object begins with that can be retired.
pub struct Link(AtomicPtr<Link>);

impl Link {
    /// The link of an object that is not retired.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// Objects of one structure that were unlinked and are not yet freed.
pub struct Retired {
    /// A stack, only ever taken whole.
    first: AtomicPtr<Link>,
    /// About how many there are.
    count: AtomicUsize,
    /// The number from which on they are reclaimed.
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
    /// The number of objects, as it was a moment ago.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are none, as it was a moment ago.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes over an object that no thread can find any more but those that have announced it, and frees some through `free`
    /// when there are many. Lock-free.
    ///
    /// # Safety
    /// The object begins with a link and is announced by that address, is retired once, and `free` may be called for it by any
    /// thread that retires to this list.
    pub unsafe fn retire(&self, object: *mut Link, free: impl FnMut(*mut Link)) {
        // Relaxed: a statistic; added before the push so that it does not fall below zero.
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        // SAFETY: one object is a chain that ends with it.
        unsafe { self.push(object, object) };
        // Relaxed: a hint.
        if count >= self.due.load(Ordering::Relaxed) {
            self.reclaim(free);
        }
    }

    /// Pushes a chain.
    ///
    /// # Safety
    /// The chain, from `first` through the links to `last`, is the caller's own.
    unsafe fn push(&self, first: *mut Link, last: *mut Link) {
        // SAFETY: retired objects are freed only by who has taken the list.
        let last = unsafe { &(*last).0 };
        let mut head = self.first.load(Ordering::Relaxed);
        loop {
            // Relaxed: published below.
            last.store(head, Ordering::Relaxed);
            // Release pairs with the Acquire of `reclaim`: the taker sees the objects unlinked.
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
        let mut at = self.first.swap(ptr::null_mut(), Ordering::Acquire);
        let ordered = barrier::heavy();
        let mut announced = Vec::with_capacity(64);
        if ordered {
            for slot in slots() {
                for announcement in &slot.hazards.0 {
                    // Acquire pairs with the Release of whoever withdraws or replaces it: its accesses come before the free.
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
            // SAFETY: taken from the list, so this thread's own until freed or pushed. Relaxed: the swap acquired the chain.
            let link = unsafe { &(*object).0 };
            at = link.load(Ordering::Relaxed);
            if ordered && announced.binary_search(&object.cast()).is_err() {
                freed += 1;
                free(object);
                continue;
            }
            kept += 1;
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
            // SAFETY: the objects that were kept, linked from `first` to `last`.
            unsafe { self.push(first, last) };
        }
    }

    /// Frees all. For the structure's last user: nobody has announced anything of it.
    pub fn clear(&mut self, mut free: impl FnMut(*mut Link)) {
        // Relaxed: the list is the caller's own.
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
