//! The reaper: a thread of the library's own that does in the background what calls leave behind. It hands over and deletes the
//! tables of processes that have ended, frees the contents of deleted tables, removes objects that have expired, and frees what was
//! retired.
//!
//! `vm/monitor.rs` notices the end of a process, and `Registry::reap` does what it demands.
//!
//! It is no process of the VM, so nobody can stop it, kill it or fill its mailbox. It sleeps without a time limit when nothing is
//! left to do and nothing expires. Otherwise it works in slices, and naps after each: where all processors are busy, it takes one from
//! a scheduler.

use super::*;
use crate::held;
use crate::vm::monitor;
use cats_sync::epoch;
use cats_table::due::{self, Next};
use cats_table::expiry;
use cats_table::garbage::Left;
use cats_table::notices;
use cats_table::{Host, Time};
use std::sync::OnceLock;
use std::thread::{self, Thread};
use std::time::Duration;

/// How long one slice takes.
const SLICE: Duration = Duration::from_micros(200);
/// The sleep after a slice. As short as the system's timers allow, some 50 µs.
const NAP: Duration = Duration::from_nanos(1);
/// The first sleep while work waits for somebody. It doubles, up to a tick.
const BACK_OFF: Duration = Duration::from_micros(50);
/// The sleep while garbage is left that belongs to others.
const TICK: Duration = Duration::from_secs(1);
/// What is freed may leave garbage in its turn: an object its held terms, these their batch. So after each tick come so many slices,
/// with a pause before each but the first.
const BURST: u32 = 4;
/// The sleep while garbage is left that may be freed, so that it takes 2 % of a processor. Threads that write free theirs themselves.
const PAUSE: Duration = Duration::from_millis(10);

/// The thread, once it has been started.
static REAPER: OnceLock<Thread> = OnceLock::new();

/// Starts the thread unless it runs; false if the system gives none.
pub fn start() -> bool {
    static STARTING: Mutex<()> = Mutex::new(());
    if REAPER.get().is_some() {
        return true;
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if REAPER.get().is_none() {
        epoch::on_garbage(wake);
        expiry::on_due(wake);
        notices::on_notice(send);
        flights::on_end(flights::tell, wake);
        let Ok(thread) = thread::Builder::new().name("cats_reaper".into()).spawn(serve) else {
            return false;
        };
        // Whoever wanted to wake it before did not know it yet.
        REAPER.get_or_init(|| thread.thread().clone()).unpark();
    }
    true
}

/// Tells the thread that there is work. Short, and takes no lock.
pub fn wake() {
    if let Some(thread) = REAPER.get() {
        thread.unpark();
    }
}

fn serve() {
    cats_sync::slab::run_anywhere();
    let mut wait = BACK_OFF;
    let mut slices = 0;
    loop {
        let (left, rest) = slice();
        match left {
            Left::Work if rest == Some(Duration::ZERO) => thread::yield_now(),
            Left::Work => thread::sleep(NAP),
            Left::Blocked => {
                park(rest, Some(wait));
                wait = (2 * wait).min(TICK);
                continue;
            }
            Left::Ripe => park(rest, Some(PAUSE)),
            Left::Garbage => {
                slices += 1;
                park(rest, Some(if slices % BURST == 0 { TICK } else { PAUSE }));
            }
            Left::Nothing => {
                slices = 0;
                epoch::rest(true);
                // What came since the last slice woke nobody.
                if let (Left::Nothing, rest) = slice() {
                    park(rest, None);
                }
                epoch::rest(false);
            }
        }
        wait = BACK_OFF;
    }
}

/// Sleeps until it is woken, or for the shorter one of two times. `None` stands for a time without an end.
fn park(one: Option<Duration>, other: Option<Duration>) {
    match one.into_iter().chain(other).min() {
        Some(time) => thread::park_timeout(time),
        None => thread::park(),
    }
}

/// Does what there is to do, for a slice. Also returns when something expires: at once if that is late.
fn slice() -> (Left, Option<Duration>) {
    shortage::tell();
    let left = reap_slice();
    // First what is garbage already.
    if left == Left::Work {
        return (left, None);
    }
    match catch_unwind(|| due::expire(SLICE)).unwrap_or(Next::Rest(Some(TICK))) {
        Next::Work { late: true } => (Left::Work, Some(Duration::ZERO)),
        Next::Work { late: false } => (Left::Work, None),
        Next::Rest(rest) => (left, rest),
    }
}

fn reap_slice() -> Left {
    // What panicked is lost; the thread goes on. A back-off keeps a slice that always panics from using a processor.
    let left = catch_unwind(AssertUnwindSafe(|| match registry().reap(&Outside, SLICE) {
        Left::Work => Left::Work,
        left if held::sweep() && left == Left::Nothing => Left::Garbage,
        left => left,
    }));
    left.unwrap_or(Left::Blocked)
}

/// Sends a message, the first element of a block, or only asks whether the process lives.
fn send(pid: u64, message: Option<&Block>) -> bool {
    match message {
        Some(message) => send_term(pid, |env| decode::term(env, message.as_ref().element(0)).ok()),
        None => monitor::is_alive(Outside.env(), Term(pid)),
    }
}

/// Sends a message that `make` makes, unless it cannot. Returns whether the process lives. Only for the reaper's thread.
pub(super) fn send_term(pid: u64, make: impl FnOnce(Env) -> Option<Term>) -> bool {
    let env = Outside.env();
    let alive = monitor::is_alive(env, Term(pid));
    let (true, Some(to)) = (alive, env.local_pid(Term(pid))) else {
        return alive;
    };
    // SAFETY: no precondition; freed below. This thread alone has it.
    let own = unsafe { Env::new(enif_alloc_env()) };
    if let Some(message) = make(own) {
        // SAFETY: the message is a term of the environment, which is emptied by this.
        unsafe { enif_send(env.raw(), &to, own.raw(), message.raw()) };
    }
    // SAFETY: made above, and nobody refers to it.
    unsafe { enif_free_env(own.raw()) };
    alive
}

/// The VM as a thread sees it that is none of the VM's own.
struct Outside;

impl Outside {
    /// What the VM expects in place of an environment on such a thread.
    fn env(&self) -> Env<'static> {
        // SAFETY: the functions of the VM that are called here take null on such a thread.
        unsafe { Env::new(null_mut()) }
    }
}

impl Host for Outside {
    fn is_alive(&self, pid: u64) -> bool {
        monitor::is_alive(self.env(), Term(pid))
    }

    fn watch(&self, pid: u64) -> bool {
        monitor::watch_other(self.env(), Term(pid))
    }

    fn transfer(&self, table: &Table, from: u64, to: u64, data: &Block) {
        // SAFETY: no precondition; freed below. This thread alone has it.
        let message = unsafe { Env::new(enif_alloc_env()) };
        // A term that was stored can be made, unless memory is exhausted; then the message is lost, as any would be.
        if let Ok(data) = decode::term(message, data.as_ref().element(0)) {
            send_transfer(self.env(), Some(message), table, from, to, data);
        }
        // SAFETY: made above, and nobody refers to it.
        unsafe { enif_free_env(message.raw()) };
    }

    /// This is the thread that would be woken.
    fn wake(&self) {}

    fn may_outlive_caller(&self) -> bool {
        true
    }

    fn now(&self) -> Time {
        Time::default()
    }
}
