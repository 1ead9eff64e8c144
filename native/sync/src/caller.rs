//! Which process makes the call that a thread is in. It is asked for only where the thread waits, or where something else happens that
//! is rare. A call leaves its environment with its thread while somebody may ask: a [trace](crate::trace), or a tool that looks at the
//! [probes](crate::probe) of waits.

use crate::probe;
use crate::thread::THREAD;
use crate::trace;
use std::ptr;
use std::sync::OnceLock;

/// A process, or nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The word by which the VM knows it, or 0.
    pub word: u64,
    /// The number by which [probes](crate::probe) name it, or 0.
    pub number: u64,
}

/// Tells who makes the call with this environment.
pub type Ask = unsafe fn(*const u8) -> Caller;

static ASK: OnceLock<Ask> = OnceLock::new();

/// Sets how to ask. The first one stays.
pub fn set_source(ask: Ask) {
    let _ = ASK.set(ask);
}

/// Runs a call. `call` must be valid for [`Ask`] until it returns.
#[inline(always)]
pub fn within<R>(call: *const u8, run: impl FnOnce() -> R) -> R {
    let asked = trace::is_on() || probe::is_looked_at();
    if asked {
        set(call);
    }
    let result = run();
    if asked {
        set(ptr::null());
    }
    result
}

#[cold]
#[inline(never)]
fn set(call: *const u8) {
    THREAD.with(|thread| thread.call.set(call));
}

/// The process that makes the call of this thread.
#[cold]
pub fn caller() -> Caller {
    let call = THREAD.with(|thread| thread.call.get());
    match ASK.get() {
        // SAFETY: the call has not ended.
        Some(ask) if !call.is_null() => unsafe { ask(call) },
        _ => Caller::default(),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_caller_until_it_ends() {
        unsafe fn ask(call: *const u8) -> Caller {
            let number = call.addr() as u64;
            Caller {
                word: number << 4,
                number,
            }
        }
        set(ptr::without_provenance(7));
        assert_eq!(caller(), Caller::default());
        set_source(ask);
        assert_eq!(caller(), Caller { word: 112, number: 7 });
        let elsewhere = std::thread::spawn(caller).join().unwrap();
        assert_eq!(elsewhere, Caller::default());
        set(ptr::null());
        assert_eq!(caller(), Caller::default());
        // Nobody asks.
        assert_eq!(within(ptr::without_provenance(7), caller), Caller::default());
    }
}
