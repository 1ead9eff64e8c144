//! Epoch-based memory reclamation with pins that last one call.
//!
//! Source: Fraser, "Practical lock-freedom", 2004, with one grace period for each batch of garbage in place of three generations.
//!
//! A thread that reads shared structures holds a [`Guard`]; memory handed to [`Guard::retire`] is freed when no guard is left
//! that was alive at that moment. Pinning writes one line of the thread's own; the rare reclaimer pays for the order between
//! a reader's announcement and its reads (`membarrier`, or a fence on both sides where the kernel lacks it).
//!
//! - A pin announces the current epoch. Retired objects gather in the thread's bag; a full bag is sealed: pushed to a list
//!   that all threads share.
//! - Whoever reclaims (one thread at a time, the others don't wait) takes the list, tags it with the epoch that it then ends.
//!   A thread that announces a later epoch has seen the objects unlinked. So, after a barrier that makes earlier announcements
//!   visible, bags with a tag below every announced epoch are free of readers.
//! - A thread's bag is its own while it is pinned, and so is its heap of [`crate::slab`]. [`collect`] raids the threads that
//!   are not: it warns the owner by `raided`, runs the barrier, and takes bag and pages if the owner is still not pinned. An
//!   owner that pins later sees the warning and keeps its hands off. So idle threads hold nothing back.
//!
//! - Who finds bags without readers frees its own. Those of another thread are left to it, as their memory is near its
//!   processor and will be allocated there again; it frees them when it seals its next bag, and has one lot left to it at a time,
//!   none of much memory. [`collect`] frees what is left to any thread, and leaves nothing.
//!
//! This bounds the garbage. Each thread's bag has at most 64 objects or 64 KiB, and some 300 objects or 512 KiB are left to the
//! thread. Sealed bags have some 512 KiB. What is retired while the oldest guard lives comes on top. A thread that seals a bag
//! then frees up to four at its unpin, so a backlog shrinks.

use crate::facade::{fence, global, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, Witness};
use crate::slab;
use crate::thread::{slots, Slot, Thread, DEPTH, DUE, ENDING, THREAD, UNREGISTERED};
use crate::trace::{self, Event, Kind};
use crate::{barrier, probe};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

pub use crate::thread::slot_index;

/// Frees one retired object: its address and the number it was retired with. It may pin and retire, and must not panic.
pub type Drop = unsafe fn(*mut u8, usize);

/// Gives back what a retired block refers to, before its memory is: its address. Otherwise as [`Drop`].
pub type Release = unsafe fn(*mut u8);

struct Retired {
    address: *mut u8,
    number: usize,
    how: How,
}

/// How a retired object is freed.
#[derive(Clone, Copy)]
enum How {
    /// It is a block of the slab of `number` bytes.
    Block,
    /// The same, that something is to be done for before.
    Release(Release),
    Drop(Drop),
}

/// Objects in a bag at most.
const BAG_OBJECTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// The weight of an object besides its bytes, that of bytes that are not told, and the weight at which a bag is full. What weighs
/// little waits in greater numbers, as a barrier for each few hundred objects would be half of what it costs to free them.
const OBJECT_WEIGHT: usize = 256;
const UNTOLD: usize = 768;
const BAG_WEIGHT: usize = BAG_OBJECTS * 1024;
/// Weight of sealed bags at which a thread that seals one reclaims.
const DUE_WEIGHT: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 * BAG_WEIGHT };
/// Weight that is not left to a thread, which may be idle: blocks so large are no processor's.
const LOT_WEIGHT: usize = if cfg!(any(loom, shuttle)) {
    usize::MAX
} else {
    DUE_WEIGHT
};
/// How many objects before one is freed its memory is asked for.
const AHEAD: usize = 8;
/// Objects that one unpin frees at most.
const UNPIN_LIMIT: usize = 256;

/// Retired objects: filled by one thread, sealed, tagged, and emptied by one thread.
pub(crate) struct Bag {
    next: *mut Bag,
    /// The thread that filled it.
    owner: &'static Slot,
    tag: u64,
    weight: usize,
    len: usize,
    witness: Witness,
    objects: [MaybeUninit<Retired>; BAG_OBJECTS],
}

impl Bag {
    fn boxed(owner: &'static Slot) -> *mut Bag {
        Box::into_raw(Box::new(Bag {
            next: ptr::null_mut(),
            owner,
            tag: 0,
            weight: 0,
            len: 0,
            witness: Witness::new(),
            objects: [const { MaybeUninit::uninit() }; BAG_OBJECTS],
        }))
    }

    /// Adds an object to a bag that is not full; true when it is full now.
    #[inline]
    fn push(&mut self, object: Retired, bytes: usize) -> bool {
        self.witness.see();
        debug_assert!(self.len < BAG_OBJECTS);
        // SAFETY: the bag is not full.
        unsafe { self.objects.get_unchecked_mut(self.len) }.write(object);
        self.len += 1;
        self.weight += bytes + OBJECT_WEIGHT;
        self.len == BAG_OBJECTS || self.weight >= BAG_WEIGHT
    }
}

/// Tagged bags, oldest first, and how far the last scan saw that they have no readers.
struct Waiting {
    head: *mut Bag,
    tail: *mut Bag,
    /// Bags with a tag below have no readers.
    safe: u64,
    witness: Witness,
}

struct Domain {
    /// The epoch: grows by one for each batch of garbage. Starts above 0, which means "not pinned". Every pin reads it, so it does
    /// not stand in the line that whoever seals a bag writes.
    epoch: Apart<AtomicU64>,
    /// An epoch after whose beginning a barrier was run on all processors.
    barred: AtomicU64,
    /// Sealed bags without a tag: a stack, only ever taken whole.
    sealed: AtomicPtr<Bag>,
    /// The weight of all bags that are sealed and not yet taken to be freed.
    weight: AtomicUsize,
    /// How many objects were in bags that were sealed, and in those that were freed.
    sealed_objects: AtomicUsize,
    freed_objects: AtomicUsize,
    /// Whether a thread holds `waiting`.
    reclaiming: AtomicBool,
    waiting: UnsafeCell<Waiting>,
    /// Where [`free_left`] begins next.
    first: AtomicUsize,
}

/// What shares no pair of lines with anything else.
#[repr(align(128))]
struct Apart<T>(T);

// SAFETY: `waiting` and the bags in it belong to the thread that set `reclaiming`; the bags in `sealed` to whoever takes them;
// the objects in them may be freed by any thread, as the callers of `retire` promise.
unsafe impl Sync for Domain {}
// SAFETY: as above.
unsafe impl Send for Domain {}

global! {
    static DOMAIN: Domain = Domain {
        epoch: Apart(AtomicU64::new(1)),
        barred: AtomicU64::new(0),
        sealed: AtomicPtr::new(ptr::null_mut()),
        weight: AtomicUsize::new(0),
        sealed_objects: AtomicUsize::new(0),
        freed_objects: AtomicUsize::new(0),
        reclaiming: AtomicBool::new(false),
        waiting: UnsafeCell::new(Waiting { head: ptr::null_mut(), tail: ptr::null_mut(), safe: 0, witness: Witness::new() }),
        first: AtomicUsize::new(0),
    };
}

/// Proof that this thread is announced. Must not outlive the call that made it, and does not leave its thread.
pub struct Guard {
    thread: *const Thread,
    not_send: PhantomData<*mut u8>,
}

impl Guard {
    /// [`slot_index`] of the thread that holds the guard.
    #[inline]
    pub fn slot_index(&self) -> usize {
        // SAFETY: the thread's state outlives its guards. While a thread has a guard it has a slot.
        unsafe { (*self.thread).slot() }.index
    }
}

/// Announces this thread. Guards nest.
#[inline]
pub fn pin() -> Guard {
    THREAD.with(|thread| {
        let state = thread.state.get();
        if state == 0 {
            announce(thread.slot());
            barrier::light_if_free();
            thread.state.set(1);
        } else if state & DEPTH != 0 {
            thread.state.set(state + 1);
        } else {
            pin_unusually(thread);
        }
        Guard {
            thread,
            not_send: PhantomData,
        }
    })
}

/// To be followed by a light barrier, which pairs with the heavy ones in `scan` and `raid`.
#[inline]
fn announce(slot: &Slot) {
    // Acquire pairs with the increment in `tag`: a thread that announces an epoch has seen what was unlinked before it began.
    let epoch = DOMAIN.epoch.0.load(Ordering::Acquire);
    // Release: a scan that meets this announcement, and not the end of the one before, must still see that one's reads done.
    slot.announced.store(epoch, Ordering::Release);
}

/// Pins a thread that has no guard, and no slot, something left to do, or a fence to make.
#[cold]
fn pin_unusually(thread: &Thread) {
    if thread.state.get() & UNREGISTERED != 0 {
        thread.register();
    }
    announce(thread.slot());
    barrier::light();
    thread.state.set(thread.state.get() + 1);
}

impl core::ops::Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard does not leave its thread, and the thread's record has no destructor.
        let thread = unsafe { &*self.thread };
        let state = thread.state.get() - 1;
        thread.state.set(state);
        if state == 0 {
            // Release pairs with the Acquire of a scan: all reads under the guard come before a free.
            thread.slot().announced.store(0, Ordering::Release);
        } else if state & DEPTH == 0 {
            thread.slot().announced.store(0, Ordering::Release);
            unpinned(thread, UNPIN_LIMIT);
        }
    }
}

/// What is left to do for a thread that has just dropped its last guard.
#[cold]
fn unpinned(thread: &Thread, limit: usize) {
    if thread.reclaiming.get() {
        return;
    }
    if thread.state.get() & DUE != 0 {
        thread.state.set(thread.state.get() & !DUE);
        reclaim(thread, limit, false);
    }
    if thread.state.get() & ENDING != 0 {
        thread.release();
    }
}

impl Guard {
    /// The slot of the thread that the guard pins.
    #[inline]
    pub(crate) fn slot(&self) -> &'static Slot {
        // SAFETY: a guard does not leave its thread, and the thread's record has no destructor.
        unsafe { &*self.thread }.slot()
    }

    /// The current epoch. What was found reachable under an earlier guard of this thread, after that guard gave the same number,
    /// has not been freed, and will not be under this one.
    //
    // It was unlinked later than found, so its bag has a tag that is not below the number. A scan to free it either saw this
    // guard, which announced no later epoch; or it came before, with its barrier, and so did the increment that ended the epoch
    // of the tag, which this load then sees.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // Acquire pairs with the increment in `tag`: what is read after it, and was unlinked before the epoch began, is seen
        // unlinked.
        DOMAIN.epoch.0.load(Ordering::Acquire)
    }

    /// Hands over `address`, already unlinked, to be freed by `drop(address, number)` once nobody can read it. O(1), no locks.
    ///
    /// # Safety
    /// The object is unreachable for guards made from now on, is retired once, and `drop` may run on any thread.
    #[inline]
    pub unsafe fn retire(&self, address: *mut u8, number: usize, drop: Drop) {
        // SAFETY: the caller's promise.
        unsafe { self.retire_sized(address, number, drop, UNTOLD) }
    }

    /// As [`retire`](Self::retire), for an object of `bytes` bytes: large ones are freed sooner.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire).
    #[inline]
    pub unsafe fn retire_sized(&self, address: *mut u8, number: usize, drop: Drop, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.put(address, number, How::Drop(drop), bytes) }
    }

    /// The same for a block of [`crate::slab`] of `size` bytes that needs nothing but to be given back, which is then done without a
    /// call for each.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire), and the block came from the slab with this size.
    #[inline]
    pub unsafe fn retire_memory(&self, block: NonNull<u8>, size: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.put(block.as_ptr(), size, How::Block, size) }
    }

    /// The same for a block for which `release` is to be called before, and which weighs so much.
    ///
    /// # Safety
    /// As for [`retire_memory`](Self::retire_memory), and `release` may run on any thread.
    #[inline]
    pub unsafe fn retire_releasing(&self, block: NonNull<u8>, size: usize, release: Release, weight: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.put(block.as_ptr(), size, How::Release(release), weight) }
    }

    /// The fields of a [`Retired`] one by one, as they come in registers so: what is written to memory and read in wider words makes
    /// the processor wait.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire).
    #[inline(never)]
    unsafe fn put(&self, address: *mut u8, number: usize, how: How, bytes: usize) {
        let Some(bag) = self.own_bag() else {
            return self.put_in_new(address, number, how, bytes);
        };
        // SAFETY: the bag is this thread's own, and not full, or it would have been sealed.
        if unsafe { (*bag.as_ptr()).push(Retired { address, number, how }, bytes) } {
            self.seal_own(bag);
        }
    }

    /// The thread's bag, if it has one and may use it.
    #[inline]
    fn own_bag(&self) -> Option<NonNull<Bag>> {
        let slot = self.slot();
        // Acquire pairs with the Release of `raid`: once the warning is withdrawn, the raider's last access is done. Before the
        // bag is looked at, which is this thread's own then: Relaxed.
        match slot.raided.load(Ordering::Acquire) {
            true => None,
            false => NonNull::new(slot.bag.load(Ordering::Relaxed)),
        }
    }

    /// As [`put`](Self::put), where there is no bag: into a new one, which is the thread's if it may have one of its own.
    #[cold]
    #[inline(never)]
    fn put_in_new(&self, address: *mut u8, number: usize, how: How, bytes: usize) {
        let slot = self.slot();
        let bag = Bag::boxed(slot);
        // SAFETY: new, and nobody else's.
        let full = unsafe { (*bag).push(Retired { address, number, how }, bytes) };
        // As in `own_bag`. A warning that is withdrawn by now left no bag.
        if full || slot.raided.load(Ordering::Acquire) || !slot.bag.load(Ordering::Relaxed).is_null() {
            self.seal_bag(bag);
        } else {
            slot.bag.store(bag, Ordering::Relaxed);
        }
        // The models have no collector that rests.
        #[cfg(not(any(loom, shuttle)))]
        announce_garbage();
    }

    /// Seals the thread's bag.
    #[cold]
    #[inline(never)]
    fn seal_own(&self, bag: NonNull<Bag>) {
        // Relaxed: the thread's own, as in `own_bag`.
        self.slot().bag.store(ptr::null_mut(), Ordering::Relaxed);
        self.seal_bag(bag.as_ptr());
    }

    /// Seals a bag of this thread, and has garbage collected at the unpin if there is enough.
    #[cold]
    fn seal_bag(&self, bag: *mut Bag) {
        seal(bag);
        // Relaxed: hints.
        if DOMAIN.weight.load(Ordering::Relaxed) >= DUE_WEIGHT || !self.slot().ripe.load(Ordering::Relaxed).is_null() {
            // SAFETY: a guard does not leave its thread, and the thread's record has no destructor.
            let thread = unsafe { &*self.thread };
            thread.state.set(thread.state.get() | DUE);
        }
    }
}

/// Pushes a bag that the caller owns to the shared list.
fn seal(bag: *mut Bag) {
    // SAFETY: the caller's own bag.
    let owned = unsafe { &mut *bag };
    probe!(retire, owned.len, owned.weight);
    trace::record(|| Event::new(Kind::Retire, 0, [owned.len as u64, owned.weight as u64]));
    // Relaxed: a statistic; added before the push so that it never falls below zero.
    DOMAIN.weight.fetch_add(owned.weight, Ordering::Relaxed);
    count(&DOMAIN.sealed_objects, owned.len);
    let mut head = DOMAIN.sealed.load(Ordering::Relaxed);
    loop {
        // SAFETY: not pushed yet, so still the caller's own. The stack is only ever taken whole: no ABA.
        unsafe { (*bag).next = head };
        // Release pairs with the Acquire of `tag`: the taker sees the contents, and the objects unlinked.
        match DOMAIN
            .sealed
            .compare_exchange_weak(head, bag, Ordering::Release, Ordering::Relaxed)
        {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// What wakes the collector.
static WAKE: OnceLock<fn()> = OnceLock::new();

global! {
    /// Whether the collector sleeps until it is woken.
    static RESTING: AtomicBool = AtomicBool::new(false);
}

/// Sets what wakes the collector, which is whoever calls [`collect`] in the background. The first call counts. `wake` is called on any
/// thread, possibly under a guard, and must be short.
pub fn on_garbage(wake: fn()) {
    WAKE.get_or_init(|| wake);
}

/// The collector says whether it is about to sleep until it is woken. It looks for garbage once more after it has said so: what it
/// does not find then will wake it.
pub fn rest(resting: bool) {
    // Relaxed: ordered by the fence.
    RESTING.store(resting, Ordering::Relaxed);
    // Pairs with the fence in `announce_garbage`: the collector finds the garbage, or who announces it sees that the collector rests.
    fence(Ordering::SeqCst);
}

/// Wakes the collector if it rests. To be called when there is something that it will free.
pub fn announce_garbage() {
    // SeqCst pairs with the fence in `rest`: what was announced comes before the look at the collector.
    fence(Ordering::SeqCst);
    // Relaxed: ordered by the fence. The load first spares the line a write.
    if RESTING.load(Ordering::Relaxed) && RESTING.swap(false, Ordering::Relaxed) {
        if let Some(wake) = WAKE.get() {
            wake();
        }
    }
}

/// A moment in the past. It tells when all guards that were there then have ended.
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl Moment {
    /// The present moment. A guard that is made later sees what this thread did before. O(1).
    pub fn now() -> Self {
        // Release pairs with the Acquire in `announce`: a thread that announces a later epoch sees what was done before. Acquire keeps
        // the chain of increments.
        Self(DOMAIN.epoch.0.fetch_add(1, Ordering::AcqRel))
    }

    /// Whether all guards of that moment have ended. The caller has no guard of its own from before. O(threads), and a barrier on all
    /// processors, which takes microseconds, if nobody has run one since the moment.
    pub fn is_past(self) -> bool {
        // After the barrier, a thread whose announcement is not seen here sees what was done before the moment. A barrier since a later
        // epoch began came after the moment. Acquire pairs with the Release of `bar`: the announcements that it made visible are seen.
        if DOMAIN.barred.load(Ordering::Acquire) <= self.0 && bar().is_none() {
            return false;
        }
        slots().all(|slot| {
            // Acquire pairs with the Release of unpin: what was done under the ended guards is seen.
            let announced = slot.announced.load(Ordering::Acquire);
            announced == 0 || announced > self.0
        })
    }
}

/// Runs a barrier on all processors: a thread whose announcement is not seen after it sees what was done before the epoch that is told
/// began. Nothing if the kernel had no memory for it.
fn bar() -> Option<u64> {
    // Relaxed: with the fence of `heavy` it pairs with the increments of `tag` and `Moment::now`. What was done before the epoch is seen
    // here before the barrier.
    let epoch = DOMAIN.epoch.0.load(Ordering::Relaxed);
    if !barrier::heavy() {
        return None;
    }
    // Release pairs with the Acquire of `is_past`. Where it replaces a later epoch, that costs another barrier.
    DOMAIN.barred.store(epoch, Ordering::Release);
    Some(epoch)
}

/// What [`collect_counted`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collected {
    /// How many objects it freed.
    pub freed: usize,
    /// Whether garbage is left, perhaps still in use.
    pub left: bool,
}

/// Frees up to about `limit` objects, and takes over what idle threads hold: garbage, and pages of their heaps. True when garbage is left
/// (perhaps still in use). Frees nothing retired under a guard of its own caller. Never waits.
pub fn collect(limit: usize) -> bool {
    collect_counted(limit).left
}

/// [`collect`], which tells how many objects it freed, too.
pub fn collect_counted(limit: usize) -> Collected {
    THREAD.with(|thread| {
        thread.register();
        if thread.reclaiming.get() {
            return Collected { freed: 0, left: true };
        }
        let collected = reclaim(thread, limit, true);
        thread.release_if_ended();
        collected
    })
}

/// Whether a thread holds garbage, or pages of a heap, that [`collect`] can take when the thread is not pinned.
pub fn is_held() -> bool {
    slots().any(Slot::has_anything)
}

/// Frees what was left to this thread; then, if enough is sealed, one round of reclamation, unless another thread is at it: raids
/// idle threads if asked to, tags, scans, frees.
fn reclaim(thread: &Thread, limit: usize, raiding: bool) -> Collected {
    thread.reclaiming.set(true);
    let mut freed = if raiding {
        free_left(limit)
    } else {
        free_ripe(thread.slot())
    };
    // Perhaps it was only for that: a round has its price, a barrier on all processors. Relaxed: a hint.
    let due = raiding || DOMAIN.weight.load(Ordering::Relaxed) >= DUE_WEIGHT;
    let ripe = due.then(|| take_ripe(limit.saturating_sub(freed), raiding)).flatten();
    match ripe {
        // Raided threads are idle, so nothing is left to them.
        Some(ripe) if raiding => freed += free(ripe),
        Some(ripe) => free_or_leave(ripe, thread.slot()),
        None => {}
    }
    thread.reclaiming.set(false);
    // Relaxed: hints.
    let left = |slot: &Slot| !slot.ripe.load(Ordering::Relaxed).is_null();
    Collected {
        freed,
        left: ripe.is_none() || DOMAIN.weight.load(Ordering::Relaxed) != 0 || raiding && slots().any(left),
    }
}

/// Frees what was left to threads, until it was `limit` objects; how many.
fn free_left(limit: usize) -> usize {
    // It begins with the next thread each time: those that are busy are soon left more, and would keep it from coming to those behind
    // them. Relaxed: any thread will do.
    let first = DOMAIN.first.fetch_add(1, Ordering::Relaxed) % slots().count();
    let mut freed = 0;
    for slot in slots().skip(first).chain(slots().take(first)) {
        if freed >= limit {
            break;
        }
        freed += free_ripe(slot);
    }
    freed
}

/// Frees what was left to a thread, which may be another one than this; how many objects.
fn free_ripe(slot: &Slot) -> usize {
    // Relaxed: a hint, to spare the line a write.
    if slot.ripe.load(Ordering::Relaxed).is_null() {
        return 0;
    }
    // Acquire pairs with the Release of `free_or_leave`: the bags are seen as the reclaimer left them.
    free(slot.ripe.swap(ptr::null_mut(), Ordering::Acquire))
}

/// Bags that nobody reads, of `limit` objects in all or little more; nothing if another thread is at it.
fn take_ripe(limit: usize, raiding: bool) -> Option<*mut Bag> {
    // Acquire pairs with the Release below: `waiting` is as the last reclaimer left it.
    DOMAIN
        .reclaiming
        .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
        .ok()?;
    // SAFETY: this thread set `reclaiming`.
    let waiting = unsafe { &mut *DOMAIN.waiting.get() };
    waiting.witness.see();
    if raiding {
        raid();
    }
    waiting.tag();
    // SAFETY: bags in the list belong to the holder of `waiting`.
    if unsafe { waiting.head.as_ref() }.is_some_and(|bag| bag.tag >= waiting.safe) {
        waiting.scan();
    }
    let ripe = waiting.take(limit);
    // Release pairs with the Acquire above, of the next reclaimer.
    DOMAIN.reclaiming.store(false, Ordering::Release);
    Some(ripe)
}

/// Frees bags that nobody reads. Bags of another thread are left to that thread, if they are not too heavy and it has taken what
/// was left to it before. Memory that is freed by the thread that allocates it again moves no cache lines between processors.
fn free_or_leave(mut ripe: *mut Bag, own: &Slot) {
    // SAFETY: the bags are this thread's own, and those that are left nobody's until they are taken.
    while let Some(first) = unsafe { ripe.as_ref() } {
        let owner = first.owner;
        let (theirs, weight, others) = divide(ripe, owner);
        ripe = others;
        let leave = || {
            // Release pairs with the Acquire of `free_ripe`.
            owner
                .ripe
                .compare_exchange(ptr::null_mut(), theirs, Ordering::Release, Ordering::Relaxed)
        };
        if ptr::eq(owner, own) || weight >= LOT_WEIGHT || leave().is_err() {
            free(theirs);
        }
    }
}

/// The bags of a chain that this thread filled, their weight, and the others.
fn divide(mut at: *mut Bag, owner: &Slot) -> (*mut Bag, usize, *mut Bag) {
    let (mut theirs, mut weight, mut others) = (ptr::null_mut(), 0_usize, ptr::null_mut());
    // SAFETY: the caller's own bags.
    while let Some(bag) = unsafe { at.as_mut() } {
        let chain = if ptr::eq(bag.owner, owner) {
            weight = weight.saturating_add(bag.weight);
            &mut theirs
        } else {
            &mut others
        };
        let next = mem::replace(&mut bag.next, *chain);
        *chain = at;
        at = next;
    }
    (theirs, weight, others)
}

impl Waiting {
    /// Appends the sealed bags with the epoch that ends here as their tag.
    fn tag(&mut self) {
        // Relaxed: a hint; what is pushed now waits for the next round.
        if DOMAIN.sealed.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Acquire pairs with the Release of `seal`: the bags are seen as they were sealed.
        let first = DOMAIN.sealed.swap(ptr::null_mut(), Ordering::Acquire);
        // Release: a thread that announces a later epoch sees the objects unlinked. Acquire keeps the chain of increments.
        let tag = DOMAIN.epoch.0.fetch_add(1, Ordering::AcqRel);
        let mut last = ptr::null_mut();
        let mut at = first;
        while !at.is_null() {
            // SAFETY: the swap made the whole stack this thread's own.
            let bag = unsafe { &mut *at };
            bag.witness.see();
            bag.tag = tag;
            last = at;
            at = bag.next;
        }
        if self.head.is_null() {
            self.head = first;
        } else {
            // SAFETY: bags in the list belong to the holder of `waiting`, and the tail is one when the head is.
            unsafe { (*self.tail).next = first };
        }
        self.tail = last;
    }

    /// Finds out which tagged bags have no readers.
    fn scan(&mut self) {
        // After the barrier, a thread whose announcement is not seen here sees all that bags with a lower tag hold unlinked.
        let Some(mut safe) = bar() else {
            return;
        };
        for slot in slots() {
            // Acquire pairs with the Release stores of pin and unpin: the reads of ended guards come before the frees.
            let announced = slot.announced.load(Ordering::Acquire);
            if announced != 0 {
                safe = safe.min(announced);
            }
        }
        self.safe = safe;
    }

    /// Takes bags without readers, of `limit` objects in all or little more.
    fn take(&mut self, limit: usize) -> *mut Bag {
        let first = self.head;
        let mut last: *mut Bag = ptr::null_mut();
        let (mut objects, mut weight) = (0, 0);
        // SAFETY: bags in the list belong to the holder of `waiting`.
        while let Some(bag) = unsafe { self.head.as_ref() } {
            if bag.tag >= self.safe || objects >= limit {
                break;
            }
            objects += bag.len;
            weight += bag.weight;
            last = self.head;
            self.head = bag.next;
        }
        // Relaxed: a statistic.
        DOMAIN.weight.fetch_sub(weight, Ordering::Relaxed);
        if last.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { (*last).next = ptr::null_mut() };
        first
    }
}

/// Seals the bags of this thread and of those that are not pinned, and takes the pages from their heaps.
fn raid() {
    let guard = pin();
    // Relaxed: a hint.
    let idle = |slot: &&Slot| slot.announced.load(Ordering::Relaxed) == 0 && slot.has_anything();
    let mut warned = false;
    for slot in slots().filter(idle) {
        slot.raided.store(true, Ordering::Relaxed);
        warned = true;
    }
    // After the barrier, a thread whose announcement is not seen here sees the warning when it retires or allocates.
    let ordered = warned && barrier::heavy();
    // Relaxed: only the holder of `waiting` changes it.
    for slot in slots().filter(|slot| slot.raided.load(Ordering::Relaxed)) {
        // Acquire pairs with the Release of unpin: the owner's last access to its things is done.
        if ordered && slot.announced.load(Ordering::Acquire) == 0 {
            // SAFETY: the owner is not pinned and has been warned.
            unsafe { strip(slot, &guard) };
        }
        // Release pairs with the Acquire of `retire` and of the heap.
        slot.raided.store(false, Ordering::Release);
    }
    // SAFETY: this thread's own, and it is pinned.
    unsafe { strip(guard.slot(), &guard) };
}

/// Seals the slot's bag and takes the pages from its heap.
///
/// # Safety
/// The caller is the slot's pinned thread, or raids it.
unsafe fn strip(slot: &Slot, _guard: &Guard) {
    #[cfg(not(any(loom, shuttle)))]
    // SAFETY: the caller's right.
    unsafe {
        slot.heap.disown_all(_guard)
    };
    // Relaxed: the thread's own, or the raider has seen in the announcement that the owner is done with it.
    let bag = slot.bag.swap(ptr::null_mut(), Ordering::Relaxed);
    if !bag.is_null() {
        seal(bag);
    }
}

/// Frees what is in a chain of bags that nobody reads; how many objects.
fn free(mut at: *mut Bag) -> usize {
    // So that nothing that is freed has to announce the thread.
    let guard = pin();
    let mut gatherer = slab::Gatherer::new(&guard);
    let (mut freed, mut weight) = (0, 0);
    while !at.is_null() {
        // SAFETY: made by `Bag::boxed`, and taken from the list by this thread alone.
        let mut bag = unsafe { Box::from_raw(at) };
        at = bag.next;
        bag.witness.see();
        let len = mem::take(&mut bag.len);
        freed += len;
        weight += bag.weight;
        for (i, object) in bag.objects[..len].iter().enumerate() {
            if let Some(ahead) = bag.objects[..len].get(i + AHEAD) {
                // SAFETY: the first `len` are initialised.
                crate::prefetch(unsafe { ahead.assume_init_ref() }.address);
            }
            // SAFETY: the first `len` are initialised, and read once.
            let Retired { address, number, how } = unsafe { object.assume_init_read() };
            // SAFETY: no guard is left that could have read the object, and this is how its owner wanted it freed.
            unsafe {
                match how {
                    How::Block => gatherer.free(NonNull::new_unchecked(address), number),
                    How::Release(release) => {
                        release(address);
                        gatherer.free(NonNull::new_unchecked(address), number);
                    }
                    How::Drop(drop) => drop(address, number),
                }
            }
        }
    }
    probe!(reclaim, freed, weight);
    trace::record(|| Event::new(Kind::Reclaim, 0, [freed as u64, weight as u64]));
    count(&DOMAIN.freed_objects, freed);
    freed
}

/// Adds to a statistic, but in models, for which it would be one more thing to interleave.
fn count(statistic: &AtomicUsize, objects: usize) {
    if cfg!(not(any(loom, shuttle))) {
        // Relaxed: a statistic.
        statistic.fetch_add(objects, Ordering::Relaxed);
    }
}

/// What has become of all that was retired. Threads tell of it when they have retired some, so the last of each are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Objects that were retired.
    pub retired: usize,
    /// Those of them that were freed.
    pub freed: usize,
    /// About how many bytes wait to be freed.
    pub bytes: usize,
}

/// What has become of all that was retired until now.
pub fn garbage() -> Garbage {
    // Relaxed: statistics, which are not of one instant.
    let freed = DOMAIN.freed_objects.load(Ordering::Relaxed);
    Garbage {
        // Read later, and never less.
        retired: DOMAIN.sealed_objects.load(Ordering::Relaxed).max(freed),
        freed,
        bytes: DOMAIN.weight.load(Ordering::Relaxed),
    }
}
