//! The account of all memory that the library holds, and its limit.
//!
//! It counts the blocks of the [source](super::source), which are chunks and large blocks. With a limit it also counts Rust's own blocks, and
//! the binaries that the host keeps for tables. Those come one by one, so each thread adds them up, and changes the account when its sum
//! has become large.
//!
//! What a call stores is refused above the *mark*, a part below the limit. The rest is for calls that must not fail half way: those with a
//! [`Relief`](super::Relief). So such a call meets the limit only if it needs more than that part.

use super::is_relieving;
use crate::facade::Ordering;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::OnceLock;

/// The least limit.
pub const LEAST_LIMIT: usize = 32 << 20;

/// The part of the limit above the mark, and its bounds.
const ABOVE: usize = 16;
const LEAST_ABOVE: usize = 8 << 20;
const MOST_ABOVE: usize = 64 << 20;

/// The percentages of the limit at which memory is scarce, and below which it is scarce no more.
const SCARCE: usize = 80;
const AMPLE: usize = 75;

/// A thread changes the account by at least so many bytes at once, but for blocks of the source.
const STEP: isize = 64 << 10;

// Relaxed, all of them: numbers of their own. Nobody reads other memory because of them.
static HELD: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static IS_SCARCE: AtomicBool = AtomicBool::new(false);

/// Called when memory becomes scarce, or is so no more. It is short, and takes no lock.
static ON_CHANGE: OnceLock<fn()> = OnceLock::new();

thread_local! {
    /// What this thread has not added to the account yet.
    static UNADDED: Cell<isize> = const { Cell::new(0) };
    /// The bytes for which there was no room when this thread asked last.
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// Limits the account to so many bytes, at least [`LEAST_LIMIT`]. `on_change` is called whenever [`is_scarce`] changes. It is short, and
/// takes no lock. Call it once, before the first table is made.
pub fn set_limit(bytes: usize, on_change: fn()) {
    ON_CHANGE.get_or_init(|| on_change);
    LIMIT.store(bytes.max(LEAST_LIMIT), Ordering::Relaxed);
}

/// The limit, if there is one.
pub fn limit() -> Option<usize> {
    let limit = LIMIT.load(Ordering::Relaxed);
    (limit != usize::MAX).then_some(limit)
}

/// Bytes that the library holds.
pub fn held() -> usize {
    // Threads give back what others have added, and may do so first.
    usize::try_from(HELD.load(Ordering::Relaxed) as isize).unwrap_or(0)
}

/// Whether the account is near its limit.
pub fn is_scarce() -> bool {
    notice();
    IS_SCARCE.load(Ordering::Relaxed)
}

/// Whether this thread's last call that found no room asked for more than an empty account has. Asked once for each.
pub fn asked_too_much() -> bool {
    let refused = REFUSED.take();
    limit().is_some_and(|limit| refused >= mark(limit))
}

/// How far the account may grow by the calls of this thread.
fn bound() -> usize {
    match limit() {
        None => usize::MAX,
        Some(limit) if is_relieving() => limit,
        Some(limit) => mark(limit),
    }
}

/// The mark of a limit: what calls without a relief may store.
pub fn mark(limit: usize) -> usize {
    limit - (limit / ABOVE).clamp(LEAST_ABOVE, MOST_ABOVE)
}

/// How many bytes this thread's calls may still store. `usize::MAX` without a limit.
pub fn room() -> usize {
    match bound() {
        usize::MAX => usize::MAX,
        bound => bound.saturating_sub(held()),
    }
}

/// Whether this thread's calls may store something that keeps so many bytes. They are asked for only if there is a limit.
#[inline]
pub fn admits(bytes: impl FnOnce() -> usize) -> bool {
    match room() {
        usize::MAX => true,
        room => {
            let bytes = bytes();
            REFUSED.set(bytes);
            bytes < room
        }
    }
}

/// Whether half of what is kept above the mark is taken, too. Calls that take other memory than the source's are refused then.
#[inline]
pub fn is_spent() -> bool {
    limit().is_some_and(|limit| held() > limit - (limit - mark(limit)) / 2)
}

/// Adds a block of the source. False if the limit has no room for it.
pub(super) fn take(bytes: usize) -> bool {
    if limit().is_none() {
        HELD.fetch_add(bytes, Ordering::Relaxed);
        return true;
    }
    let bound = bound();
    let more = |held: usize| {
        let sum = usize::try_from(held as isize).unwrap_or(0).checked_add(bytes)?;
        (sum <= bound).then(|| held.wrapping_add(bytes))
    };
    let taken = HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
    if !taken {
        REFUSED.set(bytes);
    }
    notice();
    taken
}

/// Takes back a block of the source.
pub(super) fn give(bytes: usize) {
    HELD.fetch_sub(bytes, Ordering::Relaxed);
    notice();
}

/// Takes back a part of a block that was given before the block.
pub(super) fn restore(bytes: usize) {
    HELD.fetch_add(bytes, Ordering::Relaxed);
}

/// Adds memory that is not the source's, or takes it back if the number is negative. Only with a limit.
#[inline]
pub fn count(bytes: isize) {
    if limit().is_some() {
        add_up(bytes);
    }
}

#[inline(never)]
fn add_up(bytes: isize) {
    // A thread that is ending has no sum.
    let sum = UNADDED.try_with(|unadded| {
        let sum = unadded.get() + bytes;
        let is_small = sum.abs() < STEP;
        unadded.set(if is_small { sum } else { 0 });
        if is_small {
            0
        } else {
            sum
        }
    });
    let sum = sum.unwrap_or(bytes);
    if sum != 0 {
        HELD.fetch_add(sum as usize, Ordering::Relaxed);
        notice();
    }
}

/// Notices whether memory has become scarce.
fn notice() {
    let Some(limit) = limit() else { return };
    let was_scarce = IS_SCARCE.load(Ordering::Relaxed);
    let percent = if was_scarce { AMPLE } else { SCARCE };
    let is_scarce = held() >= limit / 100 * percent;
    let changed = is_scarce != was_scarce
        && IS_SCARCE
            .compare_exchange(was_scarce, is_scarce, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
    if let Some(on_change) = ON_CHANGE.get().filter(|_| changed) {
        on_change();
    }
}
