//! `budget/0` and `relieve/0`: the limit of the library's memory, and what is done when a call finds no memory within it.

use super::host::Vm;
use super::manage::reader_groups;
use super::*;
use cats_sync::facade::{AtomicBool, Ordering};
use cats_sync::slab::{account, give_back_unused, vacate_unused};
use cats_table::garbage::Left;
use cats_table::Position;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// How many objects a table gives up under one guard, and how many tables are looked at under one.
const SHED: usize = 256;
const TABLES_AT_ONCE: usize = 100;

/// How long garbage is cleared away for a call.
const SLICE: Duration = Duration::from_millis(2);

/// `{Limit, Held}` in bytes. Without a limit, that is `infinity`. Needs the settings.
pub fn budget(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    reader_groups()?;
    let limit = account::limit().map_or(atoms::infinity(), |limit| env.unsigned(limit as u64));
    Ok(env.tuple(&[limit, env.unsigned(account::held() as u64)]))
}

/// Makes memory free for a call that has found none within the limit. Chunks and pages that are not used go back first. If there were no such
/// pages, each table with a limit gives up its share, and garbage is cleared away. Returns `again` if there is some now, `busy` if others are
/// about to make some, otherwise `none`, and `undefined` without a limit. One caller at a time does so. Not on a scheduler.
pub fn relieve(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    static RELIEVING: Mutex<()> = Mutex::new(());
    if account::limit().is_none() {
        return Ok(atoms::undefined());
    }
    check_unlimited()?;
    let _relieving = match RELIEVING.try_lock() {
        Ok(relieving) => relieving,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(atoms::busy()),
    };
    let _relief = Relief::new();
    let gave_back = give_back_unused(&pin());
    if vacate_unused(&pin()) {
        return Ok(atoms::again());
    }
    let shed = shed(env)?;
    let left = registry().reap(&Vm(env), SLICE);
    Ok(if vacate_unused(&pin()) || shed > 0 {
        atoms::again()
    } else if gave_back || left != Left::Nothing {
        atoms::busy()
    } else {
        atoms::none()
    })
}

/// Tells `alarm_handler` that memory has become scarce, or is so no more. Only for the reaper's thread.
pub(super) fn tell() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let is_scarce = account::is_scarce();
    // Relaxed: only this thread uses it.
    if TOLD.swap(is_scarce, Ordering::Relaxed) == is_scarce {
        return;
    }
    let mut handler = MaybeUninit::<ErlNifPid>::uninit();
    // SAFETY: this thread is none of the VM's, so it has no environment. The pid is written if there is one.
    let handler = unsafe {
        let found = enif_whereis_pid(null_mut(), atoms::alarm_handler().raw(), handler.as_mut_ptr());
        (found != 0).then(|| enif_make_pid(null_mut(), handler.assume_init()))
    };
    if let Some(handler) = handler {
        // As `alarm_handler:set_alarm/1` and `clear_alarm/1` send it.
        reaper::send_term(Term::from_raw(handler).0, |env| {
            let name = env.atom("cats_memory_high_watermark");
            let alarm = match is_scarce {
                true => [env.atom("set_alarm"), env.tuple(&[name, Term(NIL)])],
                false => [env.atom("clear_alarm"), name],
            };
            Some(env.tuple(&[env.atom("notify"), env.tuple(&alarm)]))
        });
    }
}

/// Has each table with a limit give up its share. Returns how many objects that were.
fn shed(env: Env) -> Result<usize, Failure> {
    let mut all = 0;
    let mut from = Position::default();
    loop {
        let guard = pin();
        let mut any = false;
        let shares = |table: &Table| table.by_identifier(&guard).limit().is_some_and(|limit| limit.share > 0);
        let next = registry().each(&Vm(env), &guard, from, TABLES_AT_ONCE, |table| any |= shares(table))?;
        drop(guard);
        if any {
            all += shed_some(env, from)?;
        }
        match next {
            Some(next) => from = next,
            None => return Ok(all),
        }
    }
}

/// The same of some tables, from a position on.
fn shed_some(env: Env, mut from: Position) -> Result<usize, Failure> {
    let mut all = 0;
    for _ in 0..TABLES_AT_ONCE {
        // What is left of this table's share. A new guard for each part of it lets what was given up be freed.
        let mut left = None;
        let next = loop {
            let guard = pin();
            let next = registry().each(&Vm(env), &guard, from, 1, |table| {
                let handle = table.by_identifier(&guard);
                let share = || {
                    let percent = handle.limit().map_or(0, |limit| limit.share.into());
                    (handle.size() * percent).div_ceil(100)
                };
                let wanted = left.unwrap_or_else(share);
                let done = handle.shed(wanted.min(SHED));
                all += done;
                left = Some(if done == SHED { wanted - done } else { 0 });
            })?;
            if left.is_none_or(|left| left == 0) {
                break next;
            }
        };
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(all)
}
