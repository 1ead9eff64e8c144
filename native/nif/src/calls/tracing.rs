//! `trace_start/2`, `trace_stop/1`, `trace_slots/1`, `trace_events/2`: what `cats_trace` calls.

use super::*;
use cats_sync::trace::{Kind as What, Recorded, Recording};
use cats_table::Host;

impl Value for Recording {
    const NAME: &'static CStr = c"trace";
}

/// Recordings. One whose reference is gone has ended.
pub static TRACES: Kind<Recording> = Kind::new();

/// Starts to record events of these kinds, a list of names, up to so many of each thread: a reference to the recording, or `false` if one
/// is on.
pub fn start(env: Env, &[kinds, room]: &[Term; 2]) -> Result<Term, Failure> {
    let room = env.get_u64(room).filter(|room| *room > 0).ok_or_else(bad)?;
    let mut wanted = 0_u64;
    let mut rest = kinds;
    while let Some((name, tail)) = env.cell(rest) {
        let kind = What::ALL.iter().find(|kind| env.atom(kind.text()) == name);
        wanted |= 1 << *kind.ok_or_else(bad)? as u32;
        rest = tail;
    }
    Ok(match Recording::start(wanted, room as usize) {
        Some(recording) => TRACES.make(env, recording),
        None => atoms::false_(),
    })
}

/// Ends a recording: the nanoseconds since its start, and the VM's monotonic time now.
pub fn stop(env: Env, &[recording]: &[Term; 1]) -> Result<Term, Failure> {
    let recording = TRACES.get(env, recording).ok_or_else(bad)?;
    recording.stop();
    let now = Vm(env).now().monotonic;
    Ok(env.tuple(&[env.unsigned(recording.elapsed()), env.integer(now)]))
}

/// The numbers of the threads that have recorded anything, and how many events found no room at all.
pub fn slots(env: Env, &[recording]: &[Term; 1]) -> Result<Term, Failure> {
    let recording = TRACES.get(env, recording).ok_or_else(bad)?;
    let slots: Vec<Term> = recording.slots().map(|slot| env.unsigned(slot as u64)).collect();
    Ok(env.tuple(&[env.list(&slots), env.unsigned(recording.missed())]))
}

/// What one of these threads has recorded: `{Name, Lost, Events}`. On a dirty scheduler only.
pub fn events(env: Env, &[recording, slot]: &[Term; 2]) -> Result<Term, Failure> {
    check_unlimited()?;
    let recording = TRACES.get(env, recording).ok_or_else(bad)?;
    let slot = env.get_u64(slot).ok_or_else(bad)?;
    let (name, events, lost) = recording.events(slot as usize).ok_or_else(bad)?;
    let kinds = What::ALL.map(|kind| env.atom(kind.text()));
    let mut list = Term(NIL);
    for recorded in events.iter().rev() {
        list = env.cons(event(env, &kinds, recorded), list);
    }
    Ok(env.tuple(&[env.binary(name.as_bytes()), env.unsigned(lost), list]))
}

/// `{Kind, End, Duration, Subject, Process, First, Second}`. Names, pids and functions are terms, other arguments are numbers.
fn event(env: Env, kinds: &[Term], recorded: &Recorded) -> Term {
    let Recorded { event, end, duration } = recorded;
    let number = |number| env.unsigned(number);
    // Processes and atoms are words of terms that are no pointers.
    let process = |word| match word {
        0 => atoms::undefined(),
        word => Term(word),
    };
    let [first, second] = match (event.kind, event.arguments) {
        (What::Created | What::Renamed | What::Call | What::CallBegin, [name, other]) => [Term(name), number(other)],
        (What::Given, both) => both.map(process),
        (_, both) => both.map(number),
    };
    env.tuple(&[
        kinds[event.kind as usize],
        number(*end),
        number(*duration),
        number(event.subject),
        process(event.process),
        first,
        second,
    ])
}
