//! What is cleared away in steps, in slices of time: contents of deleted tables, large groups of objects, objects with many held terms, and
//! what else somebody leaves here. Each kind is a [`Garbage`] in the room that it belongs to.

use crate::exclusive::Exclusive;
use crate::failure::Failure;
use cats_sync::epoch;
use cats_sync::facade::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::mem;
use std::ptr::null_mut;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Something to clear away.
pub(crate) trait Garbage: Send {
    /// Does one step. Returns whether there is more to do. Fails, and has done nothing, while somebody else is at what the step needs.
    fn step(&mut self, reap: ReapProcess<'_>) -> Result<bool, Failure>;
}

/// Does one step of what the end of a process demands, and returns whether there is more to do. Whoever knows the tables gives it.
pub(crate) type ReapProcess<'a> = &'a dyn Fn(u64) -> Result<bool, Failure>;

/// Something to do. It is called until it succeeds.
pub type Rest = Box<dyn FnMut() -> Result<(), Failure> + Send>;

impl Garbage for Rest {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        self().map(|()| false)
    }
}

struct QueueNode {
    item: Item,
    next: *mut QueueNode,
}

/// Something that the reaper has got, and its expectation of it.
type Item = (Box<dyn Garbage>, Expected);

/// What was queued since it was last looked at, as a stack that is only ever taken whole.
static QUEUE: AtomicPtr<QueueNode> = AtomicPtr::new(null_mut());
/// How much is queued, being worked on, or on its way to the queue (retired, and perhaps still being read).
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Something was announced, and the reaper was not woken since.
static UNHEARD: AtomicBool = AtomicBool::new(false);
/// What is being worked on.
static WORK: LazyLock<Exclusive<Vec<Item>>> = LazyLock::new(Exclusive::default);

/// Places of an engine or of a group that are dismantled in a step.
pub(crate) const PLACES: usize = 32;
/// Retired objects that are freed at once.
const RETIRED: usize = 128;

/// That something is for the reaper: it is on its way to the queue, queued, or being worked on. It ends when this is dropped.
#[must_use]
pub(crate) struct Expected(());

impl Expected {
    /// Announces something that will come to the queue. The reaper is to be woken then.
    pub fn new() -> Self {
        // Relaxed: a count; the item itself is handed over by the queue.
        PENDING.fetch_add(1, Ordering::Relaxed);
        UNHEARD.store(true, Ordering::Relaxed);
        Self(())
    }

    /// Gives up the value, but not the expectation. [`from_raw`](Self::from_raw) makes a value of it again.
    pub fn into_raw(self) {
        mem::forget(self);
    }

    /// # Safety
    /// [`into_raw`](Self::into_raw) was called, and this is called once for it.
    pub unsafe fn from_raw() -> Self {
        Self(())
    }

    /// Queues what was expected.
    pub fn enqueue(self, garbage: impl Garbage + 'static) {
        push((Box::new(garbage), self));
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        // Relaxed: as in `new`.
        PENDING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether something was announced since this was last asked: then the reaper is to be woken.
pub fn unheard() -> bool {
    // Relaxed: a hint; the read first spares the line a write.
    UNHEARD.load(Ordering::Relaxed) && UNHEARD.swap(false, Ordering::Relaxed)
}

fn push(item: Item) {
    let node = Box::into_raw(Box::new(QueueNode { item, next: null_mut() }));
    // Relaxed: only the exchange uses the address.
    let mut head = QUEUE.load(Ordering::Relaxed);
    loop {
        // SAFETY: the node is not pushed yet, so still this thread's own.
        unsafe { (*node).next = head };
        // Release pairs with the Acquire of `take`.
        match QUEUE.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    // What came here by way of the epoch may come from any thread, after the reaper found nothing.
    epoch::announce_garbage();
}

/// Leaves something to the reaper, which is to be woken then.
pub fn leave(rest: Rest) {
    Expected::new().enqueue(rest);
}

/// Moves what is queued to `work`.
fn take(work: &mut Vec<Item>) {
    // Acquire pairs with the Release of `push`.
    let mut node = QUEUE.swap(null_mut(), Ordering::Acquire);
    while !node.is_null() {
        // SAFETY: the swap made the whole stack this thread's own.
        let taken = unsafe { Box::from_raw(node) };
        node = taken.next;
        work.push(taken.item);
    }
}

/// What is left to do after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Work that can be done now.
    Work,
    /// Work that waits for somebody: readers of what was announced, or the holder of a lock.
    Blocked,
    /// Garbage of which more can be freed in the next slice.
    Ripe,
    /// Garbage that is still being read, or that belongs to a thread in the middle of a call.
    Garbage,
    Nothing,
}

/// Clears away for about `budget`. What another thread is at is left to it.
pub(crate) fn clear(budget: Duration, reap: ReapProcess<'_>) -> Left {
    let start = Instant::now();
    let mut collected = epoch::collect_counted(RETIRED);
    let more = WORK.with(|work| {
        // Relaxed: as in `Expected::new`.
        while PENDING.load(Ordering::Relaxed) != 0 {
            take(work);
            match work.pop() {
                // All that is pending is still retired: its readers are to finish first.
                None => return Left::Blocked,
                Some((mut garbage, expected)) => match garbage.step(reap) {
                    Ok(false) => drop((garbage, expected)),
                    more => {
                        work.push((garbage, expected));
                        if more.is_err() {
                            return Left::Blocked;
                        }
                    }
                },
            }
            if start.elapsed() >= budget {
                return Left::Work;
            }
        }
        Left::Nothing
    });
    // The rest of the slice goes to what was retired; what is still being read stays.
    while collected.left && collected.freed > 0 && start.elapsed() < budget {
        collected = epoch::collect_counted(RETIRED);
    }
    match more.unwrap_or(Left::Blocked) {
        // What is pending may be behind garbage that can be freed.
        Left::Nothing | Left::Blocked if collected.left && collected.freed > 0 => Left::Ripe,
        Left::Nothing if collected.left || epoch::is_held() => Left::Garbage,
        more => more,
    }
}
