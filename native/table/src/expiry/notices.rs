//! What a process is told of the objects that a table removed by itself: because they expired, or because of a limit.
//!
//! Whoever removes such an object puts its body into a queue, in place of retiring it. The reaper sends the process a message that there
//! are some, and the process takes them. So nobody waits for the process, and it is sent no second message before it has come.
//!
//! | the queue | what happens |
//! |---|---|
//! | gets its first object | the reaper sends the message, after some time in which others may follow |
//! | has some, and the message was sent | the process takes a batch. If some are left, it gets another message at once |
//! | is full | objects are only counted |
//! | belongs to a process that has ended | the reaper empties it, and nothing is queued any more |

use super::wake_by;
use crate::exclusive::Exclusive;
use crate::object::copy::copied;
use crate::object::{memory_of, retire_body};
use cats_engine::Entry;
use cats_sync::clock;
use cats_sync::epoch::{pin, Guard};
use cats_sync::facade::{yield_now, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab::Relief;
use cats_sync::Busy;
use cats_term::Block;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// Why a table removed an object by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Expired,
    Evicted,
}

/// What is told, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub expired: bool,
    pub evicted: bool,
    /// Only the keys are told.
    pub keys: bool,
    /// The most objects in the queue.
    pub queue: usize,
    /// The most objects of a batch.
    pub batch: usize,
    /// The milliseconds from the first object to the message.
    pub interval: u64,
}

/// While a process has not come for its objects, the reaper asks after so many milliseconds whether it lives.
const PATIENCE: u64 = 1000;

/// Sends a process a message, the first element of a block. Returns false if the process has ended. With `None` it only says whether it
/// lives.
type Send = fn(pid: u64, message: Option<&Block>) -> bool;

static SEND: OnceLock<Send> = OnceLock::new();

/// Sets what sends messages, on the thread that calls [`expire`](super::expire). The first call counts.
pub fn on_notice(send: Send) {
    SEND.get_or_init(|| send);
}

#[derive(Default)]
struct Queue {
    objects: VecDeque<(u64, Why)>,
    /// The bytes of these objects.
    bytes: usize,
    /// The message was sent, and the process has not come since.
    sent: bool,
    /// It names the table. Before it is set nothing is removed.
    message: Option<Arc<Block>>,
}

/// See the module's documentation.
pub struct Notices {
    /// The word of the pid.
    receiver: u64,
    options: Options,
    queue: Exclusive<Queue>,
    /// When the reaper is to look. `u64::MAX`: it need not.
    due: AtomicU64,
    /// The objects that were not queued since the process last came.
    lost: AtomicUsize,
    /// The process has ended.
    off: AtomicBool,
}

impl Notices {
    pub fn new(receiver: u64, options: Options) -> Self {
        Self {
            receiver,
            options,
            queue: Exclusive::default(),
            due: AtomicU64::new(u64::MAX),
            lost: AtomicUsize::new(0),
            off: AtomicBool::new(false),
        }
    }

    /// Sets the message. If objects wait, the process gets it, as one that was sent before may name no table any more. What the caller has
    /// done cannot be taken back, so it waits for the lock.
    pub fn set_message(&self, message: Block) {
        let message = Arc::new(message);
        let set = |queue: &mut Queue| {
            queue.message = Some(message.clone());
            queue.sent = false;
            !queue.objects.is_empty()
        };
        loop {
            match self.queue.with(set) {
                Ok(true) => return self.look_at(clock::now()),
                Ok(false) => return,
                Err(Busy) => yield_now(),
            }
        }
    }

    pub fn receiver(&self) -> u64 {
        self.receiver
    }

    pub fn options(&self) -> Options {
        self.options
    }

    /// Whether the process was found to have ended.
    pub fn is_off(&self) -> bool {
        // Relaxed: it becomes true once, and nothing depends on who sees it.
        self.off.load(Ordering::Relaxed)
    }

    /// Takes an object that was removed, or retires it.
    ///
    /// # Safety
    /// The body is that of an object to which nothing links any more. It is given up once.
    #[cold]
    pub unsafe fn take_over(&self, guard: &Guard, body: u64, why: Why) {
        if self.wants(why) && self.push(body, why) {
            return;
        }
        // SAFETY: as the caller promises.
        unsafe { retire_body(guard, body) }
    }

    /// Whether the process is to be told.
    fn wants(&self, why: Why) -> bool {
        let wanted = match why {
            Why::Expired => self.options.expired,
            Why::Evicted => self.options.evicted,
        };
        wanted && !self.is_off()
    }

    /// The body of a copy of an object that is stored inline, for [`take_over`](Self::take_over). 0 if it is not needed, or there is no
    /// memory for it. `key` is the position of the key.
    ///
    /// # Safety
    /// The place of the entry is locked.
    #[cold]
    pub unsafe fn copy_of(&self, guard: &Guard, entry: Entry, key: usize, why: Why) -> u64 {
        if !self.wants(why) {
            return 0;
        }
        let _relief = Relief::new();
        // SAFETY: as the caller promises.
        let copy = unsafe { copied(guard, entry, key, true) };
        copy.unwrap_or_else(|| {
            // Relaxed: a count.
            self.lost.fetch_add(1, Ordering::Relaxed);
            0
        })
    }

    fn push(&self, body: u64, why: Why) -> bool {
        let sent = self.queue.with(|queue| {
            if queue.objects.len() >= self.options.queue {
                return None;
            }
            queue.objects.push_back((body, why));
            // SAFETY: the object belongs to the queue.
            queue.bytes += unsafe { memory_of(body) };
            Some(queue.sent)
        });
        // A lock that is held too long is as good as a full queue.
        let Ok(Some(sent)) = sent else {
            // Relaxed: a count.
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let time = clock::now() + if sent { PATIENCE } else { self.options.interval };
        // Relaxed: the lock of the queue orders this behind the store of `ring`, if that did not find the object. The load first spares the
        // line a write.
        if self.due.load(Ordering::Relaxed) > time {
            self.look_at(time);
        }
        true
    }

    /// Lets the reaper look at this time.
    fn look_at(&self, time: u64) {
        // Relaxed: ordered by the barrier of `wake_by`.
        self.due.fetch_min(time, Ordering::Relaxed);
        wake_by(time);
    }

    /// When the reaper is to look.
    pub fn due(&self) -> u64 {
        // Relaxed: ordered by the barrier of the caller.
        self.due.load(Ordering::Relaxed)
    }

    /// The reaper's work: sends the message if it is time, or finds that the process has ended.
    pub fn ring(&self, guard: &Guard) {
        if self.due() > clock::now() {
            return;
        }
        // Relaxed: whoever queues something after this sets it again.
        self.due.store(u64::MAX, Ordering::Relaxed);
        let message = self.queue.with(|queue| {
            let send = !queue.sent && !queue.objects.is_empty();
            queue.sent |= send;
            queue.message.clone().filter(|_| send)
        });
        let (Ok(message), Some(deliver)) = (message, SEND.get()) else {
            return self.look_at(clock::now());
        };
        if !deliver(self.receiver, message.as_deref()) {
            // Relaxed: as in `is_off`.
            self.off.store(true, Ordering::Relaxed);
            self.clear(guard);
        }
    }

    /// The next objects, at most a batch of them, and at most about so many words, for the process. Also the number of those that were lost
    /// since it last came. The caller retires their bodies.
    pub fn take(&self, words: usize) -> Result<(Vec<(Entry, Why)>, usize), Busy> {
        let mut batch = Vec::with_capacity(self.options.batch.min(64));
        let left = self.queue.with(|queue| {
            let mut size = 0;
            while batch.len() < self.options.batch && size < words {
                let Some((body, why)) = queue.objects.pop_front() else {
                    break;
                };
                // SAFETY: the object belonged to the queue.
                let bytes = unsafe { memory_of(body) };
                queue.bytes -= bytes;
                size += bytes / 8;
                batch.push((Entry { key: 0, body }, why));
            }
            queue.sent = false;
            if queue.objects.is_empty() {
                queue.objects = VecDeque::new();
            }
            !queue.objects.is_empty()
        })?;
        if left {
            self.look_at(clock::now());
        }
        // Relaxed: a count.
        Ok((batch, self.lost.swap(0, Ordering::Relaxed)))
    }

    fn clear(&self, guard: &Guard) {
        let queue = self.queue.with(std::mem::take);
        for (body, _) in queue.unwrap_or_default().objects {
            // SAFETY: the object belonged to the queue.
            unsafe { retire_body(guard, body) }
        }
    }

    /// The bytes of the queue and of its objects.
    pub fn bytes(&self) -> usize {
        let bytes = |queue: &mut Queue| queue.bytes + queue.objects.capacity() * size_of::<(u64, Why)>();
        size_of::<Self>() + self.queue.with(bytes).unwrap_or(0)
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.clear(&pin());
    }
}
