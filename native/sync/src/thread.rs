//! Thread slots: a record for each thread that uses this crate. Other threads find it through a lock-free list. After
//! its thread has ended, a slot is reused. Slots are never freed. Their number is the largest number of threads that
//! were alive at one time.

use crate::barrier;
use crate::epoch::Bag;
use crate::facade::{fence, global, per_thread, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::cell::Cell;
use std::ptr;

/// What other threads may read of a thread. Aligned to a pair of cache lines, so that no two threads write to the same
/// pair.
#[repr(align(128))]
pub(crate) struct Slot {
    /// The epoch that the thread announced when it pinned, or 0 while it is not pinned. Only the owner writes it.
    pub announced: AtomicU64,
    /// The retired memory of the thread. The owner uses it while pinned. Another thread may take it (a raid), as
    /// explained in [`crate::epoch`].
    pub bag: AtomicPtr<Bag>,
    /// Retired memory of the thread that no thread reads any more. The thread that noticed this left it here. Whoever
    /// takes it out owns it.
    pub ripe: AtomicPtr<Bag>,
    /// A raider is about to take the bag, so the owner must not use it.
    pub raided: AtomicBool,
    /// The pages from which the thread allocates. Used and raided like the bag.
    #[cfg(not(any(loom, shuttle)))]
    pub heap: crate::slab::Heap,
    pub index: usize,
    /// The recorder of the table on which the thread's last recorded call was, and the process that made it. See [`crate::recorder`].
    recorder: AtomicU64,
    caller: AtomicU64,
    owned: AtomicBool,
    next: *mut Slot,
}

// SAFETY: `next` is written before the slot is published, and never after. All other fields are atomic.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

impl Slot {
    /// Whether the slot seems to have retired memory or pages. Any thread may call it.
    pub fn has_anything(&self) -> bool {
        // Relaxed: a hint.
        let anything = !self.bag.load(Ordering::Relaxed).is_null();
        #[cfg(not(any(loom, shuttle)))]
        let anything = anything || self.heap.is_used();
        anything
    }
}

impl Slot {
    /// To be called by the owner.
    pub fn tell_caller(&self, recorder: u64, process: u64) {
        // Release: whoever sees the recorder's number sees this process, or a later one.
        self.caller.store(process, Ordering::Release);
        self.recorder.store(recorder, Ordering::Release);
    }

    /// The process that made the last recorded call of the thread, if that was for this recorder. Otherwise 0.
    fn told_caller(&self, recorder: u64) -> u64 {
        // Acquire: see `tell_caller`. The second look nearly always notices that the process is that of a later call.
        let is_it = || self.recorder.load(Ordering::Acquire) == recorder;
        let process = if is_it() {
            self.caller.load(Ordering::Acquire)
        } else {
            0
        };
        if is_it() {
            process
        } else {
            0
        }
    }
}

/// The process that makes the call of this thread, which is recorded by this recorder. 0 if it is not known.
pub(crate) fn caller(recorder: u64) -> u64 {
    THREAD.with(|thread| match thread.state.get() & UNREGISTERED {
        0 => thread.slot().told_caller(recorder),
        _ => 0,
    })
}

/// The process that makes a call of another thread, recorded by this recorder. If there are several, `choice` chooses one. 0 if there is
/// none.
pub(crate) fn other_caller(recorder: u64, choice: u64) -> u64 {
    let own = slot_index();
    let others = || {
        slots()
            // Relaxed: a hint. A thread that is not pinned is in no call.
            .filter(|slot| slot.index != own && slot.announced.load(Ordering::Relaxed) != 0)
            .map(|slot| slot.told_caller(recorder))
            .filter(|process| *process != 0)
    };
    match others().count() {
        0 => 0,
        number => others().nth((choice % number as u64) as usize).unwrap_or(0),
    }
}

global! {
    static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
}
global! {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
}

/// All slots, including those without an owner.
pub(crate) fn slots() -> impl Iterator<Item = &'static Slot> {
    // Acquire pairs with the Release of `claim`: a slot in the list is initialised.
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
        // Acquire pairs with the Release of `release`: the new owner sees the slot as the last one left it.
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
        // Relaxed: only uniqueness matters.
        index: NUMBER.fetch_add(1, Ordering::Relaxed),
        recorder: AtomicU64::new(0),
        caller: AtomicU64::new(0),
        owned: AtomicBool::new(true),
        next: ptr::null_mut(),
    }));
    // Relaxed: only the exchange uses the address.
    let mut head = SLOTS.load(Ordering::Relaxed);
    loop {
        // SAFETY: not published yet, so only this thread has it.
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
/// The thread is ending, and its destructors have run. The slot is given back at the next unpin.
pub(crate) const ENDING: u32 = 1 << 30;
/// Retired memory must be collected at the next unpin.
pub(crate) const DUE: u32 = 1 << 29;
/// Light barriers are fences on this system, so pinning executes one.
pub(crate) const FENCED: u32 = 1 << 28;
/// The bits that count the live guards.
pub(crate) const DEPTH: u32 = FENCED - 1;

/// Thread-local state.
pub(crate) struct Thread {
    /// The number of live guards, and the flags above. The common case is 0: registered, not pinned, nothing due, and
    /// no fence needed to pin.
    pub state: Cell<u32>,
    slot: Cell<*const Slot>,
    /// The environment of the call, or null outside of calls: see [`crate::caller`].
    pub call: Cell<*const u8>,
    /// This thread is freeing retired memory, and must not start to do so recursively.
    pub reclaiming: Cell<bool>,
}

per_thread! {
    pub(crate) static THREAD: Thread = Thread {
        state: Cell::new(UNREGISTERED),
        slot: Cell::new(ptr::null()),
        call: Cell::new(ptr::null()),
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
    /// The slot of this thread, which is registered.
    #[inline]
    pub fn slot(&self) -> &'static Slot {
        debug_assert!(self.state.get() & UNREGISTERED == 0);
        // SAFETY: set by `register`, which cleared UNREGISTERED, and slots are never freed.
        unsafe { &*self.slot.get() }
    }

    /// Gives the thread a slot, if it has none.
    #[cold]
    pub fn register(&self) {
        if self.state.get() & UNREGISTERED == 0 {
            return;
        }
        barrier::prepare();
        self.slot.set(claim());
        // A store-load pair. Another thread, after a fence of its own, may not find this slot in the list. Then this
        // thread's later loads see that thread's earlier stores.
        // SeqCst, for the pair.
        fence(Ordering::SeqCst);
        // After the destructors of the thread have run, only the next unpin can give the slot back. In a model all
        // thread-locals end together, so slots are not given back there.
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

    /// Gives the slot back. Its retired memory stays in it, for the next owner or a raider.
    pub fn release(&self) {
        if self.state.get() & UNREGISTERED == 0 {
            let slot = self.slot();
            // Release, for both: this thread's reads come before any free, and its writes before those of the next
            // owner.
            slot.announced.store(0, Ordering::Release);
            slot.owned.store(false, Ordering::Release);
            self.slot.set(ptr::null());
            self.state.set(UNREGISTERED);
        }
    }
}

/// A small number of this thread, for striping. It is below the largest number of threads that were alive at one time.
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
