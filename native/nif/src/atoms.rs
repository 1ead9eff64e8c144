//! Atoms that native functions raise or return, made once when the library is loaded. An atom's word never changes in a VM.

use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicU64, Ordering};

macro_rules! atoms {
    ($($name:ident = $text:literal),* $(,)?) => {
        #[allow(non_upper_case_globals)]
        mod words {
            use super::AtomicU64;
            $(pub static $name: AtomicU64 = AtomicU64::new(0);)*
        }

        $(
            #[doc = concat!("The atom `", $text, "`.")]
            #[inline]
            pub fn $name() -> Term {
                // Relaxed: the words are written before the VM lets anybody call the library.
                Term(words::$name.load(Ordering::Relaxed))
            }
        )*

        /// Makes all atoms. Called when the library is loaded, before any other function of it.
        pub fn make(env: Env) {
            // Relaxed: as for the loads.
            $(words::$name.store(env.atom($text).0, Ordering::Relaxed);)*
        }
    };
}

atoms! {
    badarg = "badarg",
    busy = "busy",
    dirty = "dirty",
    error = "error",
    false_ = "false",
    idle = "idle",
    more = "more",
    none = "none",
    ok = "ok",
    panic = "panic",
    reap = "reap",
    reaper = "reaper",
    system_limit = "system_limit",
    true_ = "true",
    undefined = "undefined",
}

/// `true` or `false`.
#[inline]
pub fn boolean(value: bool) -> Term {
    if value {
        true_()
    } else {
        false_()
    }
}
