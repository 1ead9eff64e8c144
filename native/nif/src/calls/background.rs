//! `reap/0` and `memory/0`.

use super::*;
use crate::held;
use cats_sync::epoch::pin;
use cats_table::Position;
use std::time::{Duration, Instant};

/// How long one slice takes.
const SLICE: Duration = Duration::from_micros(200);

/// Clears away for a slice.
pub fn reap(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    let start = Instant::now();
    held::sweep();
    let more = cats_table::reaper::reap(registry(), &Vm(env), SLICE);
    env.account(start.elapsed().as_nanos() as usize);
    Ok(if more { atoms::more() } else { atoms::idle() })
}

/// Tables that a scheduler looks at.
const TABLES_LIMIT: usize = 1000;

/// The bytes that all tables hold.
pub fn memory(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    if registry().count()? > TABLES_LIMIT && !on_dirty_scheduler() {
        return Err(Failure::Big);
    }
    let mut bytes = 0;
    let mut position = Position::default();
    loop {
        let guard = pin();
        let next = registry().each(&Vm(env), &guard, position, 100, |table| {
            bytes += table.by_identifier(&guard).bytes();
        })?;
        match next {
            Some(next) => position = next,
            None => return Ok(env.unsigned(bytes as u64)),
        }
    }
}
