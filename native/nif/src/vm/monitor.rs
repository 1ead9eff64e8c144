//! Watches processes that own or fix tables: one resource monitor each, however many tables.
//!
//! The VM calls back after the process' links and earlier monitors have fired, which may be long after its death. So that a
//! process is dead is to be asked of [`is_alive`]; the callback only sees to it that nothing is forgotten.

use crate::vm::resource::{Kind, Owned, Value};
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicU64, Ordering};
use rustler::sys::enif_is_process_alive;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A process that is watched.
pub struct Watched;

impl Value for Watched {
    const NAME: &'static CStr = c"process";

    fn down(env: Env, process: Term) {
        let watched = {
            let mut shard = shard(process);
            // Release pairs with the Acquire of `watch`. Within the lock: who takes it after this knows the process no more.
            ENDED.fetch_add(1, Ordering::Release);
            shard.remove(&process.0)
        };
        drop(watched);
        if let Some(down) = DOWN.get() {
            down(env, process);
        }
    }
}

pub static WATCHED: Kind<Watched> = Kind::new();

/// What is called when a watched process is gone. It must be short: it runs on whatever thread cleans up after the process.
static DOWN: OnceLock<fn(Env, Term)> = OnceLock::new();

/// Sets what is called when a watched process is gone; the first time counts.
pub fn on_down(down: fn(Env, Term)) {
    DOWN.get_or_init(|| down);
}

/// The processes that are watched, by the words of their pids, in parts with a lock each.
static PROCESSES: [Mutex<Option<Part>>; 16] = [const { Mutex::new(None) }; 16];

/// Counts the watched processes that have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The process that this thread last found to be watched, and [`ENDED`] before that: as long as it stays the same, that one is
    /// watched.
    static LATEST: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// What watches each process.
type Part = HashMap<u64, Owned<Watched>>;

/// The part that a process belongs to.
fn shard(process: Term) -> Shard {
    // The lowest bits of a pid's word are a tag, those above count processes.
    let part = (process.0 >> 4) as usize % PROCESSES.len();
    // A map is whole even if a holder panicked.
    Shard(PROCESSES[part].lock().unwrap_or_else(PoisonError::into_inner))
}

struct Shard(MutexGuard<'static, Option<Part>>);

impl Shard {
    fn remove(&mut self, process: &u64) -> Option<Owned<Watched>> {
        self.0.as_mut()?.remove(process)
    }
}

/// Sees to it that the function set by [`on_down`] is called once when a local process ends; false if it has ended, and the call
/// was made or will not be. A process that ends during the call may be reported either way.
pub fn watch(env: Env, process: Term) -> bool {
    // Acquire pairs with the Release of who counts an end.
    let ended = ENDED.load(Ordering::Acquire);
    if LATEST.get() == (process.0, ended) {
        // Who calls has not ended, unless it does during the call.
        return process == env.this_process() || is_alive(env, process);
    }
    let watched = watch_other(env, process);
    if watched {
        LATEST.set((process.0, ended));
    }
    watched
}

/// As [`watch`], of any process, on any thread.
#[inline(never)]
pub fn watch_other(env: Env, process: Term) -> bool {
    let Some(pid) = env.local_pid(process) else {
        return false;
    };
    let mut shard = shard(process);
    let processes = shard.0.get_or_insert_default();
    if processes.contains_key(&process.0) {
        return is_alive(env, process);
    }
    let watched = WATCHED.own(Watched);
    if !WATCHED.monitor(env, &watched, &pid) {
        return false;
    }
    processes.insert(process.0, watched);
    true
}

/// The number of processes that are watched.
#[cfg(feature = "selftest")]
pub fn watched() -> usize {
    let size = |part: &Mutex<Option<Part>>| part.lock().unwrap().as_ref().map_or(0, HashMap::len);
    PROCESSES.iter().map(size).sum()
}

/// Whether a local process lives. A process that is exiting is dead.
#[inline]
pub fn is_alive(env: Env, process: Term) -> bool {
    let pid = process.as_local_pid();
    // SAFETY: the pid is that of a local process.
    unsafe { enif_is_process_alive(env.raw(), &pid) != 0 }
}
