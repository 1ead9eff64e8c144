//! The process that clears away in the background: it gets the message `reap` when there is work.

use crate::entry::failure::Failure;
use crate::vm::atoms;
use crate::vm::monitor::is_alive;
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicU64, Ordering};
use rustler::sys::enif_send;

/// The word of its pid, 0 as long as there is none.
static REAPER: AtomicU64 = AtomicU64::new(0);

/// `cats_nif:reaper(Pid)`: names the process.
pub fn reaper(env: Env, &[process]: &[Term; 1]) -> Result<Term, Failure> {
    env.local_pid(process).ok_or(Failure::Bad(atoms::none()))?;
    // Relaxed: the word is all there is to see.
    REAPER.store(process.0, Ordering::Relaxed);
    // It may have been named because the one before is gone, which has left work.
    wake(env);
    Ok(atoms::ok())
}

/// Whether the process is known and alive.
pub fn is_known(env: Env) -> bool {
    // Relaxed: as above.
    let process = REAPER.load(Ordering::Relaxed);
    process != 0 && is_alive(env, Term(process))
}

/// Tells the process that there is work.
pub fn wake(env: Env) {
    // Relaxed: as above.
    let process = REAPER.load(Ordering::Relaxed);
    if process == 0 {
        return;
    }
    if let Some(pid) = env.local_pid(Term(process)) {
        // SAFETY: the message is an atom, which needs no environment; a process that is gone gets none.
        unsafe { enif_send(env.raw(), &pid, std::ptr::null_mut(), atoms::reap().raw()) };
    }
}
