//! Thread slots: a record for each thread that uses this crate, found by others through a lock-free list, and reused once its
//! thread has ended. Slots are never freed; there are as many as threads were alive at one time.

use crate::barrier;
use crate::epoch::Bag;
use crate::facade::{fence, global, per_thread, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use crate::hazard::Announced;
use std::cell::Cell;
use std::ptr;

/// What others may know of a thread. Aligned so that no two threads write one pair of lines.
#[repr(align(128))]
pub(crate) struct Slot {
    /// The epoch that the thread announced when it pinned, or 0 while it is not pinned. Written by the owner.
    pub announced: AtomicU64,
    /// The garbage of the thread. Touched by the owner while pinned, and by a raider as [`crate::epoch`] says.
    pub bag: AtomicPtr<Bag>,
    /// Garbage of the thread that nobody reads any more, left by whoever found that out; it is whose who takes it out.
    pub ripe: AtomicPtr<Bag>,
    /// A raider is about to take the bag: the owner keeps its hands off.
    pub raided: AtomicBool,
    /// The pages that the thread allocates from; as the bag.
    #[cfg(not(any(loom, shuttle)))]
    pub heap: crate::slab::Heap,
    /// The lock under which the thread is reading: see [`crate::lock::ets_pointer`].
    pub ets_pointer: AtomicPtr<()>,
    /// A node to queue with: see [`crate::lock::cc_synch`]. The owner's alone.
    pub combining_node: AtomicPtr<crate::lock::cc_synch::Node>,
    pub index: usize,
    owned: AtomicBool,
    next: *mut Slot,
    /// What the thread has announced to [`crate::hazard`]. Written by the owner.
    pub hazards: Announced,
}

// SAFETY: `next` is written before the slot is published and never after; everything else is atomic.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

impl Slot {
    /// Whether the slot seems to have garbage or pages; anyone may ask.
    pub fn has_anything(&self) -> bool {
        // Relaxed: a hint.
        let anything = !self.bag.load(Ordering::Relaxed).is_null();
        #[cfg(not(any(loom, shuttle)))]
        let anything = anything || self.heap.is_used();
        anything
    }
}

global! {
    static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
}
global! {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
}

/// All slots, those without an owner included.
pub(crate) fn slots() -> impl Iterator<Item = &'static Slot> {
    // Acquire pairs with the Release of `claim`: a slot in the list is complete.
    let mut at = SLOTS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: slots are never freed.
        let slot = unsafe { at.as_ref() }?;
        at = slot.next;
        Some(slot)
    })
}

fn claim() -> &'static Slot {
    for slot in slots() {
        // Acquire pairs with the Release of `release`: this owner finds the slot as the last one left it.
        let free = !slot.owned.load(Ordering::Relaxed);
        if free
            && slot
                .owned
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return slot;
        }
    }
    let slot = Box::into_raw(Box::new(Slot {
        announced: AtomicU64::new(0),
        bag: AtomicPtr::new(ptr::null_mut()),
        ripe: AtomicPtr::new(ptr::null_mut()),
        raided: AtomicBool::new(false),
        #[cfg(not(any(loom, shuttle)))]
        heap: crate::slab::Heap::new(),
        ets_pointer: AtomicPtr::new(ptr::null_mut()),
        combining_node: AtomicPtr::new(ptr::null_mut()),
        // Relaxed: only uniqueness matters.
        index: NUMBER.fetch_add(1, Ordering::Relaxed),
        owned: AtomicBool::new(true),
        next: ptr::null_mut(),
        hazards: Announced::none(),
    }));
    let mut head = SLOTS.load(Ordering::Relaxed);
    loop {
        // SAFETY: not published yet, so this thread alone has it.
        unsafe { (*slot).next = head };
        // Release publishes the slot's fields to `slots`.
        match SLOTS.compare_exchange_weak(head, slot, Ordering::Release, Ordering::Relaxed) {
            // SAFETY: slots are never freed.
            Ok(_) => return unsafe { &*slot },
            Err(now) => head = now,
        }
    }
}

/// The thread has no slot yet.
pub(crate) const UNREGISTERED: u32 = 1 << 31;
/// The thread is ending, its destructors have run: the slot goes back at the next unpin.
pub(crate) const ENDING: u32 = 1 << 30;
/// Garbage is to be collected at the next unpin.
pub(crate) const DUE: u32 = 1 << 29;
/// Light barriers are fences here, so that pinning takes one.
pub(crate) const FENCED: u32 = 1 << 28;
/// The bits that count the guards alive.
pub(crate) const DEPTH: u32 = FENCED - 1;

/// What a thread knows of itself.
pub(crate) struct Thread {
    /// The number of guards alive, and the flags above. 0 is the common case: registered, not pinned, nothing to do, and no fence
    /// to make when it pins.
    pub state: Cell<u32>,
    slot: Cell<*const Slot>,
    /// This thread is freeing garbage, and must not begin to again from within.
    pub reclaiming: Cell<bool>,
}

per_thread! {
    pub(crate) static THREAD: Thread = Thread {
        state: Cell::new(UNREGISTERED),
        slot: Cell::new(ptr::null()),
        reclaiming: Cell::new(false),
    };
}

/// Gives the slot back when the thread ends.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        THREAD.with(Thread::release);
    }
}

std::thread_local! { static EXIT: Exit = const { Exit }; }

impl Thread {
    /// The slot of a registered thread.
    #[inline]
    pub fn slot(&self) -> &'static Slot {
        debug_assert!(self.state.get() & UNREGISTERED == 0);
        // SAFETY: set by `register`, which cleared UNREGISTERED, and slots are never freed.
        unsafe { &*self.slot.get() }
    }

    /// Gives the thread a slot, unless it has one.
    #[cold]
    pub fn register(&self) {
        if self.state.get() & UNREGISTERED == 0 {
            return;
        }
        barrier::prepare();
        self.slot.set(claim());
        // A store-load pair: who does not find the slot in the list, after a fence of its own, has stored before what this thread
        // loads from here on.
        fence(Ordering::SeqCst);
        // Once the destructors of the thread have run, nobody would give the slot back but the next unpin. In a model all
        // thread-locals end at once: there, slots are not given back.
        let ending = cfg!(not(any(loom, shuttle))) && EXIT.try_with(|_| ()).is_err();
        let fenced = if barrier::is_light_free() { 0 } else { FENCED };
        self.state.set(if ending { ENDING | fenced } else { fenced });
    }

    /// Gives the slot back if the thread's destructors have run and it has no guard.
    pub fn release_if_ended(&self) {
        if self.state.get() & !FENCED == ENDING {
            self.release();
        }
    }

    /// Gives the slot back. Its garbage stays in it, for the next owner or a raider.
    pub fn release(&self) {
        if self.state.get() & UNREGISTERED == 0 {
            let slot = self.slot();
            // Release, twice: the reads of this thread come before a free, its writes before those of the next owner.
            slot.announced.store(0, Ordering::Release);
            slot.owned.store(false, Ordering::Release);
            self.slot.set(ptr::null());
            self.state.set(UNREGISTERED);
        }
    }
}

/// A small number of this thread's own, for striping: below the number of threads that were alive at one time.
#[inline]
pub fn slot_index() -> usize {
    THREAD.with(|thread| {
        if thread.state.get() & UNREGISTERED != 0 {
            thread.register();
        }
        let index = thread.slot().index;
        thread.release_if_ended();
        index
    })
}
