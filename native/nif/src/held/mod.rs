//! Held terms: terms of the VM that live in environments of their own, each shared by a batch of objects.
//!
//! A thread fills a batch of its own; when it has 64 terms, or they weigh 256 KiB, it is closed and the thread begins the next.
//! Adding takes no lock: only the owner adds, and whoever reads a term has seen the words that were published after it was
//! written. Giving back is one atomic subtraction from the batch's state. A closed batch is freed with its last term. When its
//! terms weigh a quarter of what they once weighed, the rest move to the current batch of the thread that noticed it. The
//! environment is freed as soon as no reader can be in it. So dead terms weigh at most three times as much as living ones. The
//! same is done to open batches by the reaper ([`sweep`]).
//!
//! A binary whose references cannot be counted ([`binary`](crate::layout::binary)) is shared all the same: it keeps what it is a
//! part of. Such terms, and those with unknown parts, may keep more memory than they weigh. So they have batches of their own
//! kind. A dead one is never kept by living references. A term that is heavy has a batch alone. Where the VM does not tell what a
//! term weighs, it is weighed ([`weight`]).
//!
//! Who is to compact a batch claims it, under a lock that it holds until all terms have moved. Who gives a term back clears its
//! slot, then subtracts. If the batch was claimed before, it waits for the lock: then either the term has moved, and is given back
//! where it is now, or it was seen to be none any more. The lock is one of a fixed set, chosen by the batch's address. A batch's
//! memory goes through the epoch, as others may be about to find out that they are not the one to claim it.

mod bytes;
pub mod host;
mod weight;

use crate::calls::TABLES;
use crate::layout;
use crate::vm::{Env, Term};
use cats_sync::epoch::{self, Guard};
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab::{self, account, Own};
use cats_term::{kept_weight, Class, HeldTerm, Retained};
use rustler::sys::{enif_alloc_env, enif_free_env, enif_keep_resource, enif_release_resource, ErlNifEnv};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Terms in a batch, and the weight in bytes, at which it is full.
const ITEMS: usize = align_of::<Batch>();
const FULL: usize = 256 << 10;
/// Weight of a term that has a batch alone.
const ALONE: usize = 64 << 10;
/// Weight of a term besides the bytes of a binary.
const ITEM_WEIGHT: usize = 64;
/// A batch is compacted when what lives weighs this part of all, or less.
const LIVING_PART: usize = 4;

/// The number of living terms is in the lowest bits of a batch's state, their weight in the bits from here on.
const WEIGHT_SHIFT: u32 = 32;
const COUNT: u64 = (1 << WEIGHT_SHIFT) - 1;
/// The state of an open batch: this much more than what lives, as what is given back is subtracted at once, and what was added
/// is added when the batch is closed. So an open batch has more terms than a closed one can have.
const OPEN: u64 = 1 << 16 | 1 << (WEIGHT_SHIFT + 20);
/// Bit of a batch's state: its living terms are moved or have been. What was subtracted later means nothing.
const CLAIMED: u64 = 1 << 63;

/// In a place: the term is a reference to a table, and the other bits are the table's address.
const TABLE: u64 = 1 << 63;

struct Slot {
    /// The words that stand for the term in its object; null when it was given back.
    held: AtomicPtr<HeldTerm>,
    weight: AtomicUsize,
    /// What the object's table counts for it ([`bytes`]).
    bytes: AtomicUsize,
}

/// What a term takes, as far as it is known before it is copied.
#[derive(Clone, Copy)]
struct Size {
    weight: Option<usize>,
    bytes: usize,
}

/// Aligned so that an index fits into the low bits of an address.
#[repr(align(64))]
struct Batch {
    env: *mut ErlNifEnv,
    /// Number and weight of the living terms, whether it is open, and whether it is claimed.
    state: AtomicU64,
    /// Whether its terms may keep more than their weight tells.
    hides: bool,
    /// Terms added, and their weight. Only the owner changes them, before it closes the batch.
    added: AtomicUsize,
    weight: AtomicUsize,
    slots: Own<[Slot]>,
}

/// The batch that a thread fills: taken out while the thread adds to it, so it belongs to whoever has taken it.
struct Current {
    batch: AtomicPtr<Batch>,
    /// Whether it is among [`CURRENTS`].
    known: Cell<bool>,
}

impl Current {
    const fn new() -> Self {
        Self {
            batch: AtomicPtr::new(null_mut()),
            known: Cell::new(false),
        }
    }

    #[cold]
    fn begin(&self, hides: bool) -> *mut Batch {
        if !self.known.replace(true) {
            currents().push(At(&raw const self.batch));
        }
        Batch::new(ITEMS, hides)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mine = &raw const self.batch;
        currents().retain(|at| at.0 != mine);
        // Relaxed: no longer shared.
        let batch = self.batch.swap(null_mut(), Ordering::Relaxed);
        if !batch.is_null() {
            close(batch);
        }
    }
}

thread_local! {
    /// For terms that hide nothing, and for those that may.
    static CURRENT: [Current; 2] = const { [Current::new(), Current::new()] };
}

/// The place of a thread's current batch.
struct At(*const AtomicPtr<Batch>);

// SAFETY: a place is read while it is among `CURRENTS`, and the thread that it belongs to takes it out before it ends.
unsafe impl Send for At {}

/// The places of all threads that have had one.
static CURRENTS: Mutex<Vec<At>> = Mutex::new(Vec::new());

fn currents() -> MutexGuard<'static, Vec<At>> {
    // Each change is one push or retain.
    CURRENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the open batches that are light, so that what is dead in them goes although their threads add nothing more; whether there
/// were any. O(threads).
pub fn sweep() -> bool {
    // So the batches that are looked at stay.
    let guard = epoch::pin();
    let (mut taken, mut found) = (Vec::new(), false);
    for At(at) in currents().iter() {
        // SAFETY: it is among them.
        let at = unsafe { &**at };
        // Acquire pairs with the store in `add_to_current`.
        let batch = at.load(Ordering::Acquire);
        // SAFETY: batches go through the epoch.
        let light = unsafe { batch.as_ref() }.is_some_and(|batch| batch.is_light(batch.state_when_closed()));
        found |= light;
        // Acquire: as above. Relaxed on failure: its thread is adding to it.
        if light
            && at
                .compare_exchange(batch, null_mut(), Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            taken.push(batch);
        }
    }
    drop(guard);
    taken.into_iter().for_each(close);
    found
}

static LOCKS: [Lock; 64] = [const { Lock(Mutex::new(())) }; 64];

/// A lock in a cache line of its own.
#[repr(align(64))]
struct Lock(Mutex<()>);

/// Batches that exist. Relaxed: a statistic.
#[cfg(feature = "selftest")]
static BATCHES: AtomicUsize = AtomicUsize::new(0);

/// The number of batches that exist.
#[cfg(feature = "selftest")]
pub fn batches() -> usize {
    // Relaxed: a statistic.
    BATCHES.load(Ordering::Relaxed)
}

impl Batch {
    fn new(items: usize, hides: bool) -> *mut Batch {
        let slot = || Slot {
            held: AtomicPtr::new(null_mut()),
            weight: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        };
        let slots = slab::needed(Own::slice(items, slot));
        let batch = slab::needed(Own::new_with(|| Batch {
            // SAFETY: no precondition.
            env: unsafe { enif_alloc_env() },
            state: AtomicU64::new(OPEN),
            hides,
            added: AtomicUsize::new(0),
            weight: AtomicUsize::new(0),
            slots,
        }));
        #[cfg(feature = "selftest")]
        BATCHES.fetch_add(1, Ordering::Relaxed);
        batch.into_raw()
    }

    /// Copies a term into the batch and relocates its words; the result is the address of a binary's bytes, and whether the batch is
    /// full now.
    ///
    /// Only the owner calls, while the batch is open and not full.
    #[inline]
    fn add(&self, held: &HeldTerm, size: Size, bytes: Option<&[u8]>) -> (*const u8, bool) {
        // SAFETY: only the owner adds to the environment, and others only read what was published to them.
        let env = unsafe { Env::new(self.env) };
        let (term, copied) = match bytes.filter(|bytes| !stay(Term(held.term()), bytes)) {
            Some(bytes) => (env.binary(bytes), None),
            // SAFETY: the source is a term of the caller's own call, or one that lives while its guard does.
            None => unsafe { weight::copied(env, Term(held.term())) },
        };
        let weight = size.weight.unwrap_or_else(|| {
            // SAFETY: as above.
            let bytes = copied.or_else(|| unsafe { weight::weight(Term(held.term()), ALONE) });
            bytes.map_or(ALONE, |bytes| (bytes + ITEM_WEIGHT).min(ALONE))
        });
        let address = match bytes {
            Some(_) => env.binary_bytes(term).map_or(std::ptr::null(), <[u8]>::as_ptr),
            None => std::ptr::null(),
        };
        // Relaxed: only the owner changes these, and `close` publishes them.
        let index = self.added.load(Ordering::Relaxed);
        let total = self.weight.load(Ordering::Relaxed) + weight;
        self.added.store(index + 1, Ordering::Relaxed);
        self.weight.store(total, Ordering::Relaxed);
        let slot = &self.slots[index];
        // Relaxed: the store of `held` publishes both.
        slot.weight.store(weight, Ordering::Relaxed);
        slot.bytes.store(size.bytes, Ordering::Relaxed);
        // Release, here and in `relocate`: whoever finds the term through its words sees the slot.
        slot.held.store((&raw const *held).cast_mut(), Ordering::Release);
        held.relocate(Retained {
            term: term.0,
            place: (&raw const *self) as u64 | index as u64,
        });
        (address, index + 1 == self.slots.len() || total >= FULL)
    }

    /// The state that an open batch would have if it was closed now, a hint.
    fn state_when_closed(&self) -> u64 {
        // Relaxed: a hint.
        self.state.load(Ordering::Relaxed).wrapping_sub(self.open_part())
    }

    /// What the state of an open batch has too much.
    fn open_part(&self) -> u64 {
        // Relaxed: the owner's own, or a hint.
        let added = self.added.load(Ordering::Relaxed) as u64;
        let weight = self.weight.load(Ordering::Relaxed) as u64;
        OPEN - (added | weight << WEIGHT_SHIFT)
    }

    /// Whether a closed batch with this state is to be freed, or compacted.
    fn is_light(&self, state: u64) -> bool {
        // Relaxed: the owner wrote it before it closed the batch.
        (state >> WEIGHT_SHIFT) as usize * LIVING_PART <= self.weight.load(Ordering::Relaxed)
    }
}

/// Whether the bytes of a binary are always at the same place. Those that do not begin at a whole byte are laid out anew at each look.
/// They need a place of their own, and then they keep nothing of what they are a part of.
fn stay(binary: Term, bytes: &[u8]) -> bool {
    let stay = |env: Env| env.binary_bytes(binary).is_some_and(|now| std::ptr::eq(now, bytes));
    weight::with_scratch(stay).unwrap_or(false)
}

unsafe fn free_env(env: *mut u8, _: usize) {
    // SAFETY: retired once, and no reader is in it.
    unsafe { enif_free_env(env.cast()) };
}

unsafe fn free_batch(batch: *mut u8, _: usize) {
    #[cfg(feature = "selftest")]
    BATCHES.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: made by `new`, retired once, and nobody names it any more.
    drop(unsafe { Own::from_raw(batch.cast::<Batch>()) });
}

/// The batch of a place, and the index of the term in it.
fn at(place: u64) -> (*mut Batch, usize) {
    let index = place % ITEMS as u64;
    ((place - index) as *mut Batch, index as usize)
}

fn lock(batch: *const Batch) -> MutexGuard<'static, ()> {
    let lock = &LOCKS[(batch as usize >> 6) % LOCKS.len()].0;
    // Nothing can be half done when a holder panics: each change is one store.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a term for a stored object ([`cats_term::Host::retain`]).
pub fn retain(held: &HeldTerm, class: Class, bytes: Option<&[u8]>) -> *const u8 {
    if class == Class::Reference && retain_table(held) {
        return std::ptr::null();
    }
    let hides = !matches!((class, bytes), (Class::Reference | Class::Port | Class::Pid, None));
    let weight = match bytes {
        Some(bytes) => Some(bytes.len()),
        None if !hides => Some(0),
        // A fun is mostly small. So it is weighed while it is copied into the batch.
        None if class == Class::Fun && layout::is_known() => None,
        // SAFETY: the words name a term of the call, or one that lives while its guard does.
        None => Some(unsafe { weight::weight(Term(held.term()), ALONE) }.unwrap_or(ALONE)),
    };
    let weight = weight.map(|weight| (weight + ITEM_WEIGHT).min(ALONE));
    let size = Size {
        weight,
        bytes: match bytes {
            Some(bytes) => bytes.len(),
            // SAFETY: as above.
            None => unsafe { bytes::bytes(Term(held.term()), class) },
        },
    };
    let (address, full) = match weight {
        Some(ALONE) => (add_alone(held, size, hides, bytes), None),
        _ => add_to_current(held, size, hides, bytes),
    };
    account::count(size.bytes as isize);
    if let Some(full) = full {
        close(full);
    }
    address
}

/// Keeps a table for a stored reference to it, which needs no copy of the term. False for other references.
#[inline]
fn retain_table(held: &HeldTerm) -> bool {
    // SAFETY: the words name a term of the call, or one that lives while its guard does.
    let Some((table, reference)) = (unsafe { TABLES.reference_of(Term(held.term())) }) else {
        return false;
    };
    // SAFETY: the term keeps the table alive until now.
    unsafe { enif_keep_resource(table.as_ptr().cast()) };
    held.relocate(Retained {
        term: reference.0,
        place: table.as_ptr().expose_provenance() as u64 | TABLE,
    });
    true
}

/// Adds a term to a batch of its own.
#[cold]
fn add_alone(held: &HeldTerm, size: Size, hides: bool, bytes: Option<&[u8]>) -> *const u8 {
    let batch = Batch::new(1, hides);
    // SAFETY: this thread owns the new batch.
    let (address, _) = unsafe { &*batch }.add(held, size, bytes);
    close(batch);
    address
}

/// Adds a term to this thread's batch; also returns the batch if it is full now and no longer the thread's, to be closed.
#[inline]
fn add_to_current(held: &HeldTerm, size: Size, hides: bool, bytes: Option<&[u8]>) -> (*const u8, Option<*mut Batch>) {
    let added = CURRENT.try_with(|currents| {
        let current = &currents[usize::from(hides)];
        // Relaxed: this thread's own, or somebody has taken it to close it.
        let mut batch = current.batch.swap(null_mut(), Ordering::Relaxed);
        if batch.is_null() {
            batch = current.begin(hides);
        }
        // SAFETY: this thread owns the batch, and nobody frees it while it is open.
        let (address, full) = unsafe { &*batch }.add(held, size, bytes);
        if full {
            return (address, Some(batch));
        }
        // Release: who takes it sees what was added.
        current.batch.store(batch, Ordering::Release);
        (address, None)
    });
    // A thread that is ending has no batch of its own any more.
    added.unwrap_or_else(|_| (add_alone(held, size, hides, bytes), None))
}

/// Closes a batch that this thread owns. Holds no lock when it is called.
#[cold]
fn close(batch: *mut Batch) {
    // The batch may be claimed as soon as it is closed, by who gives something back.
    let guard = epoch::pin();
    // SAFETY: an open batch is not freed.
    let batch = unsafe { &*batch };
    let part = batch.open_part();
    // AcqRel: who sees it closed sees all that the owner wrote.
    let state = batch.state.fetch_sub(part, Ordering::AcqRel) - part;
    if batch.is_light(state) {
        settle(&guard, batch, state);
    }
}

/// What a term takes ([`cats_term::Host::held_bytes`]).
pub fn bytes(held: &HeldTerm) -> usize {
    // So the batch that the words name stays while it is looked at.
    let _guard = epoch::pin();
    let place = held.place();
    // A table takes no less without this reference. A term that is not retained has no batch.
    if place & TABLE != 0 || place == 0 {
        return 0;
    }
    let (batch, index) = at(place);
    // SAFETY: the words named the batch under the guard, and it goes through the epoch.
    let slot = &unsafe { &*batch }.slots[index];
    // Relaxed: written before the words named the batch, which `place` acquires.
    slot.bytes.load(Ordering::Relaxed)
}

/// Gives a term back ([`cats_term::Host::release`]).
pub fn release(held: &HeldTerm) {
    // A table's place stays the same.
    if held.place() & TABLE != 0 {
        let table = std::ptr::with_exposed_provenance_mut((held.place() & !TABLE) as usize);
        // SAFETY: `retain_table` kept it, and this is given back once.
        return unsafe { enif_release_resource(table) };
    }
    // So the batch that the words name stays while it is looked at.
    let guard = epoch::pin();
    loop {
        let place = held.place();
        let (batch, index) = at(place);
        // SAFETY: the words named the batch under the guard, and it goes through the epoch.
        let batch = unsafe { &*batch };
        let slot = &batch.slots[index];
        // Relaxed: written before the words named the batch, which `place` acquires.
        let part = 1 | (slot.weight.load(Ordering::Relaxed) as u64) << WEIGHT_SHIFT;
        let bytes = slot.bytes.load(Ordering::Relaxed);
        slot.held.store(null_mut(), Ordering::Relaxed);
        // AcqRel: as in `close`; and who claims the batch later sees the slot empty.
        let state = batch.state.fetch_sub(part, Ordering::AcqRel) - part;
        if state & CLAIMED != 0 {
            // Once whoever claimed it is done, the term has moved, or was seen to be gone.
            drop(lock(batch));
            if held.place() != place {
                continue;
            }
        } else if state & COUNT <= ITEMS as u64 {
            if batch.is_light(state) {
                settle(&guard, batch, state);
            }
        } else if batch.is_light(batch.state_when_closed()) {
            // It is open, and perhaps its thread adds nothing more.
            epoch::announce_garbage();
        }
        return account::count(-(bytes as isize));
    }
}

/// Frees or compacts a batch that is closed and light, unless somebody else does.
#[cold]
fn settle(guard: &Guard, batch: &Batch, state: u64) {
    let compacting = lock(batch);
    // AcqRel: what is read of the batch from here on is as those left it who gave back before; the others see the claim. If this
    // fails, the batch is claimed, or somebody has given back since and tries it, too.
    let claim = batch
        .state
        .compare_exchange(state, state | CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
    if claim.is_err() {
        return;
    }
    let mut full = Vec::new();
    if state & COUNT != 0 {
        for slot in batch.slots.iter() {
            // Acquire pairs with `add`.
            let held = slot.held.load(Ordering::Acquire);
            // SAFETY: whoever gives these words back waits for the lock, so their object exists.
            if let Some(held) = unsafe { held.as_ref() } {
                // The bytes of a binary stay where they are: `add` copies none of a term that has a batch.
                let size = Size {
                    weight: Some(slot.weight.load(Ordering::Relaxed)),
                    bytes: slot.bytes.load(Ordering::Relaxed),
                };
                full.extend(add_to_current(held, size, batch.hides, None).1);
            }
        }
    }
    drop(compacting);
    // SAFETY: this thread has claimed the batch, and no words lead to it any more.
    unsafe {
        match state & COUNT {
            // What was in it was given back, which happens when no reader can be in its objects.
            0 => enif_free_env(batch.env),
            // Relaxed: the owner changed it before it closed the batch, and the claim came after that.
            _ => guard.retire_sized(
                batch.env.cast(),
                0,
                free_env,
                kept_weight(batch.weight.load(Ordering::Relaxed)),
            ),
        }
        guard.retire((&raw const *batch).cast_mut().cast(), 0, free_batch);
    }
    full.into_iter().for_each(close);
}
