//! Held terms: terms of the VM that live in environments of their own, each shared by a batch of objects.
//!
//! A thread fills a batch of its own; when it has 64 terms, or they weigh 64 KiB, it is closed and the thread begins the next.
//! Adding takes no lock: only the owner adds, and whoever reads a term has seen the words that were published after it was
//! written. A closed batch is freed with its last term. When its terms weigh a quarter of what they weighed once, those left
//! move to the current batch of the thread that saw it, and the environment goes as soon as no reader can be in it: so what is
//! dead weighs at most three times what lives, but for the one open batch a thread.
//!
//! A term that is heavy, or whose weight the VM does not tell, has a batch alone. A binary of up to 4 KiB is copied on its way
//! in: it may be a part of a much larger one, and would keep all of that.
//!
//! Giving back and moving hold the lock of the batch. It is one of a fixed set, chosen by the batch's address, so that it can be
//! taken before it is known whether the batch still exists: it does if, under the lock, the held words name it.

use crate::vm::{Env, Term};
use cats_sync::epoch;
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_term::{Class, Held, Retained};
use rustler::sys::{enif_alloc_env, enif_free_env, ErlNifEnv};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Terms in a batch, and the weight in bytes, at which it is full.
const ITEMS: usize = align_of::<Batch>();
const FULL: usize = 64 << 10;
/// Weight of a term that has a batch alone.
const ALONE: usize = 32 << 10;
/// Weight of a term besides the bytes of a binary.
const ITEM_WEIGHT: usize = 64;
/// Longest binary that is copied, in bytes.
const COPIED: usize = 4 << 10;
/// A batch is compacted when what lives weighs this part of all, or less.
const LIVING_PART: usize = 4;

/// Bit of a batch's state: nothing is added any more.
const CLOSED: u64 = 1 << 31;
/// The weight of what lives is in the bits from here on, the number of terms in the lowest.
const WEIGHT_SHIFT: u32 = 32;

struct Slot {
    /// The words that stand for the term in its object; null when it was given back.
    held: AtomicPtr<Held>,
    weight: AtomicUsize,
}

/// Aligned so that an index fits into the low bits of an address.
#[repr(align(64))]
struct Batch {
    env: *mut ErlNifEnv,
    /// Number and weight of the living terms, and whether it is closed.
    state: AtomicU64,
    /// Terms added, and their weight. Only the owner changes them, before it closes the batch.
    added: AtomicUsize,
    weight: AtomicUsize,
    slots: Box<[Slot]>,
}

/// The batch that a thread fills.
struct Current(Cell<*mut Batch>);

impl Drop for Current {
    fn drop(&mut self) {
        let batch = self.0.replace(null_mut());
        if !batch.is_null() {
            close(vec![batch]);
        }
    }
}

thread_local! {
    static CURRENT: Current = const { Current(Cell::new(null_mut())) };
}

static LOCKS: [Lock; 64] = [const { Lock(Mutex::new(())) }; 64];

/// A lock in a cache line of its own.
#[repr(align(64))]
struct Lock(Mutex<()>);

/// Batches that exist.
#[cfg(feature = "selftest")]
static BATCHES: AtomicUsize = AtomicUsize::new(0);

/// The number of batches that exist.
#[cfg(feature = "selftest")]
pub fn batches() -> usize {
    // Relaxed: a statistic.
    BATCHES.load(Ordering::Relaxed)
}

impl Batch {
    fn new(items: usize) -> *mut Batch {
        #[cfg(feature = "selftest")]
        BATCHES.fetch_add(1, Ordering::Relaxed);
        let slot = || Slot {
            held: AtomicPtr::new(null_mut()),
            weight: AtomicUsize::new(0),
        };
        Box::into_raw(Box::new(Batch {
            // SAFETY: no precondition.
            env: unsafe { enif_alloc_env() },
            state: AtomicU64::new(0),
            added: AtomicUsize::new(0),
            weight: AtomicUsize::new(0),
            slots: (0..items).map(|_| slot()).collect(),
        }))
    }

    fn is_full(&self) -> bool {
        // Relaxed: the owner asks, and only it changes them.
        self.added.load(Ordering::Relaxed) == self.slots.len() || self.weight.load(Ordering::Relaxed) >= FULL
    }

    /// Copies a term into the batch and relocates its words; the result is the address of a binary's bytes.
    ///
    /// Only the owner calls, while the batch is open and not full.
    fn add(&self, held: &Held, weight: usize, bytes: Option<&[u8]>) -> *const u8 {
        // SAFETY: only the owner adds to the environment, and others only read what was published to them.
        let env = unsafe { Env::new(self.env) };
        let source = Term(held.term());
        let of_caller = held.place() == 0;
        // SAFETY: the source is a term of the caller's own call, or one that lives while its guard does.
        let copy = || unsafe { env.copy(source) };
        let (term, address) = match bytes {
            None => (copy(), std::ptr::null()),
            Some(bytes) if of_caller && bytes.len() <= COPIED => {
                let term = env.binary(bytes);
                (term, env.binary_bytes(term).map_or(std::ptr::null(), <[u8]>::as_ptr))
            }
            Some(bytes) => {
                let term = copy();
                match env.binary_bytes(term) {
                    Some(shared) if std::ptr::eq(shared, bytes) => (term, shared.as_ptr()),
                    // Bytes that do not begin at a whole byte are laid out anew at each look: they need a place of their own.
                    _ => {
                        let term = env.binary(bytes);
                        (term, env.binary_bytes(term).map_or(std::ptr::null(), <[u8]>::as_ptr))
                    }
                }
            }
        };
        // Relaxed: only the owner changes these, and `close` publishes them.
        let index = self.added.load(Ordering::Relaxed);
        self.added.store(index + 1, Ordering::Relaxed);
        self.weight
            .store(self.weight.load(Ordering::Relaxed) + weight, Ordering::Relaxed);
        let slot = &self.slots[index];
        slot.weight.store(weight, Ordering::Relaxed);
        // Release, here and in `relocate`: whoever finds the term through its words sees the slot and the count.
        slot.held.store((&raw const *held).cast_mut(), Ordering::Release);
        self.state
            .fetch_add(1 | (weight as u64) << WEIGHT_SHIFT, Ordering::Release);
        held.relocate(Retained {
            term: term.0,
            place: (&raw const *self) as u64 | index as u64,
        });
        address
    }

    /// Frees the batch; the environment at once, or when `readers` may not be in it any more.
    ///
    /// # Safety
    /// Nothing living is in the closed batch, and the caller is the one that saw it happen.
    unsafe fn free(batch: *mut Batch, readers: bool) {
        // SAFETY: made by `new`; nobody names it any more.
        let batch = unsafe { Box::from_raw(batch) };
        #[cfg(feature = "selftest")]
        BATCHES.fetch_sub(1, Ordering::Relaxed);
        if readers {
            // SAFETY: no words lead to the environment any more.
            unsafe { epoch::pin().retire(batch.env.cast(), 0, free_env) };
        } else {
            // SAFETY: its terms were given back, which happens when no reader can be in their objects.
            unsafe { enif_free_env(batch.env) };
        }
    }
}

unsafe fn free_env(env: *mut u8, _: usize) {
    // SAFETY: retired once, and no reader is in it.
    unsafe { enif_free_env(env.cast()) };
}

/// The batch of a place, and the index of the term in it.
fn at(place: u64) -> (*mut Batch, usize) {
    let index = place % ITEMS as u64;
    ((place - index) as *mut Batch, index as usize)
}

fn lock(batch: *mut Batch) -> MutexGuard<'static, ()> {
    let lock = &LOCKS[(batch as usize >> 7) % LOCKS.len()].0;
    // Nothing can be half done when a holder panics: each change is one store.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a term for a stored object ([`cats_term::Host::retain`]).
pub fn retain(held: &Held, class: Class, bytes: Option<&[u8]>) -> *const u8 {
    let weight = match (class, bytes) {
        (_, Some(bytes)) => (bytes.len() + ITEM_WEIGHT).min(ALONE),
        (Class::Reference | Class::Port | Class::Pid, None) => ITEM_WEIGHT,
        _ => ALONE,
    };
    if weight < ALONE {
        let (address, full) = add_to_current(held, weight, bytes);
        close(full.into_iter().collect());
        address
    } else {
        let batch = Batch::new(1);
        // SAFETY: this thread owns the new batch.
        let address = unsafe { &*batch }.add(held, weight, bytes);
        close(vec![batch]);
        address
    }
}

/// Adds a term to this thread's batch; also returns the batch if it is full now and no longer the thread's, to be closed.
fn add_to_current(held: &Held, weight: usize, bytes: Option<&[u8]>) -> (*const u8, Option<*mut Batch>) {
    let added = CURRENT.try_with(|current| {
        let mut batch = current.0.get();
        if batch.is_null() {
            batch = Batch::new(ITEMS);
            current.0.set(batch);
        }
        // SAFETY: this thread owns the batch, and nobody frees it while it is open.
        let batch_ref = unsafe { &*batch };
        let address = batch_ref.add(held, weight, bytes);
        if batch_ref.is_full() {
            current.0.set(null_mut());
            (address, Some(batch))
        } else {
            (address, None)
        }
    });
    // A thread that is ending has no batch of its own any more.
    added.unwrap_or_else(|_| {
        let batch = Batch::new(1);
        // SAFETY: this thread owns the new batch.
        (unsafe { &*batch }.add(held, weight, bytes), Some(batch))
    })
}

/// Closes batches that this thread owns. Holds no lock when it is called.
fn close(mut full: Vec<*mut Batch>) {
    while let Some(batch) = full.pop() {
        let guard = lock(batch);
        // SAFETY: an open batch is not freed. AcqRel: who sees it closed sees all that the owner wrote.
        let state = unsafe { &*batch }.state.fetch_or(CLOSED, Ordering::AcqRel) | CLOSED;
        // SAFETY: the batch exists, under its lock.
        unsafe { settle(batch, state, guard, &mut full) };
    }
}

/// Gives a term back ([`cats_term::Host::release`]).
pub fn release(held: &Held) {
    loop {
        let place = held.place();
        let (batch, index) = at(place);
        let guard = lock(batch);
        if held.place() != place {
            // Moved meanwhile.
            continue;
        }
        // SAFETY: the words name the batch under its lock, so it exists.
        let batch_ref = unsafe { &*batch };
        let slot = &batch_ref.slots[index];
        // Relaxed: under the lock, and written before the words were published.
        slot.held.store(null_mut(), Ordering::Relaxed);
        let part = 1 | (slot.weight.load(Ordering::Relaxed) as u64) << WEIGHT_SHIFT;
        // AcqRel: as in `close`.
        let state = batch_ref.state.fetch_sub(part, Ordering::AcqRel) - part;
        let mut full = Vec::new();
        // SAFETY: the batch exists, under its lock.
        unsafe { settle(batch, state, guard, &mut full) };
        return close(full);
    }
}

/// Frees or compacts a batch if it is time to. Batches that become full are added to `full`, to be closed without a lock held.
///
/// # Safety
/// The batch exists, `guard` is its lock, and `state` is its state now.
unsafe fn settle(batch: *mut Batch, state: u64, guard: MutexGuard<'static, ()>, full: &mut Vec<*mut Batch>) {
    if state & CLOSED == 0 {
        return;
    }
    let living = (state & (CLOSED - 1)) as usize;
    let living_weight = (state >> WEIGHT_SHIFT) as usize;
    if living == 0 {
        drop(guard);
        // SAFETY: the last term was given back under the lock by this thread, or before it closed the batch.
        return unsafe { Batch::free(batch, false) };
    }
    // SAFETY: the batch exists, under its lock.
    let batch_ref = unsafe { &*batch };
    // Relaxed: the owner wrote it before it closed the batch.
    if living_weight * LIVING_PART > batch_ref.weight.load(Ordering::Relaxed) {
        return;
    }
    for slot in &batch_ref.slots {
        // Acquire pairs with `add`.
        let held = slot.held.load(Ordering::Acquire);
        // SAFETY: words that were not given back are in an object that exists; its holder gives them back under this lock.
        if let Some(held) = unsafe { held.as_ref() } {
            // The bytes of a binary stay where they are: `add` copies none of a term that has a batch.
            let weight = slot.weight.load(Ordering::Relaxed);
            full.extend(add_to_current(held, weight, None).1);
        }
    }
    drop(guard);
    // SAFETY: all terms have moved.
    unsafe { Batch::free(batch, true) };
}
