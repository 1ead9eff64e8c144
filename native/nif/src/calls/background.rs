//! `reap/0` and `memory/0`.

use super::*;
use cats_sync::epoch::pin;
use cats_table::Position;
use std::time::Duration;

/// How long one slice takes.
const SLICE: Duration = Duration::from_micros(200);

/// Clears away for a slice.
pub fn reap(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    let more = cats_table::reaper::reap(registry(), &Vm(env), SLICE);
    env.consume_timeslice(20);
    Ok(if more { atoms::more() } else { atoms::idle() })
}

/// The bytes that all tables hold.
pub fn memory(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
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
