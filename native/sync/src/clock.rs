//! The clock of leases: milliseconds of the system's monotonic clock.
//!
//! Most questions need no exact time. On Linux, the coarse clock of the system costs a few nanoseconds and is late by at most a tick. So
//! what is past by the coarse clock is past, and what is further away than [`LATE`] is not.

use crate::facade::{global, AtomicU64, Ordering};

/// The milliseconds by which the coarse clock is late at most. A tick of the system is 1 to 10 ms.
const LATE: u64 = 50;

global! {
    /// If tests have stopped the clock, one more than the time at which it stands.
    static STOPPED: AtomicU64 = AtomicU64::new(0);
}

/// Stops the clock at a time, or lets it go on. For tests.
pub fn stop(at: Option<u64>) {
    // SeqCst is more than is needed, as the load is Relaxed. Only tests call this.
    STOPPED.store(at.map_or(0, |time| time + 1), Ordering::SeqCst);
}

/// The time at which the clock was stopped.
#[inline]
fn stopped() -> Option<u64> {
    // Relaxed: a test that sets the time synchronizes with the threads that shall see it.
    STOPPED.load(Ordering::Relaxed).checked_sub(1)
}

/// The time.
#[inline]
pub fn now() -> u64 {
    stopped().unwrap_or_else(system::exact)
}

/// The time, late by at most [`LATE`].
#[inline]
pub fn about_now() -> u64 {
    stopped().unwrap_or_else(system::coarse)
}

/// Whether the time has come.
#[inline]
pub fn is_past(time: u64) -> bool {
    if let Some(now) = stopped() {
        return time <= now;
    }
    let coarse = system::coarse();
    time <= coarse || time - coarse <= LATE && time <= system::exact()
}

#[cfg(target_os = "linux")]
mod system {
    use std::mem::transmute;
    use std::sync::OnceLock;

    type Clock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

    /// `clock_gettime` in the pages of the kernel that each process has. A fourth of a call through the C library is the library's.
    fn clock() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| {
            // SAFETY: glibc lists these pages among the libraries, and they stay. Others do not know the name.
            let pages = unsafe { libc::dlopen(c"linux-vdso.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
            let names = [c"__vdso_clock_gettime", c"__kernel_clock_gettime"];
            // SAFETY: the pages were found.
            let find = |name: &std::ffi::CStr| unsafe { libc::dlsym(pages, name.as_ptr()) };
            match names.map(|name| if pages.is_null() { pages } else { find(name) }) {
                [found, _] | [_, found] if !found.is_null() => {
                    // SAFETY: functions of these names have this type.
                    unsafe { transmute::<*mut libc::c_void, Clock>(found) }
                }
                _ => libc::clock_gettime,
            }
        })
    }

    #[inline]
    fn read(id: libc::clockid_t) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the function writes the time. It fails only for clocks that do not exist.
        unsafe { clock()(id, &raw mut time) };
        time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
    }

    #[inline]
    pub fn exact() -> u64 {
        read(libc::CLOCK_MONOTONIC)
    }

    #[inline]
    pub fn coarse() -> u64 {
        read(libc::CLOCK_MONOTONIC_COARSE)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::sync::OnceLock;
    use std::time::Instant;

    pub fn exact() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_millis() as u64
    }

    pub fn coarse() -> u64 {
        exact()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_is_late_by_less_than_assumed() {
        let late = || {
            let (before, coarse, after) = (system::exact(), system::coarse(), system::exact());
            assert!(coarse <= after, "{coarse} {after}");
            // The thread may have been preempted between the readings.
            before.saturating_sub(coarse)
        };
        // Where the machine itself does not run all the time, no tick comes meanwhile.
        let in_time = || (0..100_000).all(|_| late() <= LATE);
        assert!((0..1000).any(|_| in_time()));
        let now = now();
        assert!(is_past(now) && is_past(now - 1) && !is_past(now + 10_000));
    }
}
