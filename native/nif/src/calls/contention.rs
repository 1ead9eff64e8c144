//! What `cats_contention` asks: what the structure of a table looks like, how it adapted, and where processes wait for each other.

use super::select::owned;
use super::*;
use cats_sync::facade::{AtomicBool, Ordering};
use cats_sync::recorder::Recorder;
use cats_table::{garbage, Buckets, OwnedKey, Seen, SizedKey};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// Buckets and leaves that one call looks at.
const BUCKETS: usize = 4096;
const LEAVES: usize = 1024;

/// A right to have a table recorded. It ends when the process that has it does, or earlier.
pub struct Recording {
    /// What ends it.
    end: Arc<End>,
}

struct End {
    table: Owned<Table>,
    recorder: Arc<Recorder>,
    ended: AtomicBool,
}

impl End {
    /// Ends the recording, unless it has ended.
    fn end(&self) -> Result<(), cats_table::Failure> {
        // Relaxed: only one caller may go on. What it does is under a lock.
        if self.ended.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.table.stop_recording(&self.recorder).inspect_err(|_| {
            // Relaxed: as above.
            self.ended.store(false, Ordering::Relaxed);
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.end.end().is_err() {
            let end = Arc::clone(&self.end);
            garbage::leave(Box::new(move || end.end()));
            reaper::wake();
        }
    }
}

impl Value for Recording {
    const NAME: &'static CStr = c"recording";
}

pub static RECORDINGS: Kind<Recording> = Kind::new();

/// The table, if contention is known of it.
fn find_recordable<'g>(env: Env<'g>, guard: &'g Guard, table: Term, want: Want) -> Result<Handle<'g>, Failure> {
    let handle = find(env, guard, table, want)?;
    match handle.hash_buckets().is_some() || handle.has_tree() {
        true => Ok(handle),
        false => Err(Cause::NoContention.into()),
    }
}

/// `record(Table)`: has the waits of a table recorded, as long as the process has the result.
pub fn record(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, READ)?;
    let recorder = handle.record()?;
    let end = End {
        table: owned(handle.table()),
        recorder,
        ended: AtomicBool::new(false),
    };
    Ok(RECORDINGS.make(env, Recording { end: Arc::new(end) }))
}

/// `stop_recording(Recording)`.
pub fn stop_recording(env: Env, &[recording]: &[Term; 1]) -> Result<Term, Failure> {
    let recording = RECORDINGS.get(env, recording).ok_or_else(bad)?;
    recording.end.end()?;
    Ok(atoms::true_())
}

/// A key as `[Key]`, or `[]`.
fn key_list(env: Env, key: Option<&OwnedKey>) -> Result<Term, Failure> {
    match key {
        None => Ok(Term(NIL)),
        Some(key) => sized_key_list(env, Some((key.probe().term(), key.bytes() / 8))),
    }
}

fn sized_key_list(env: Env, key: Option<SizedKey<'_>>) -> Result<Term, Failure> {
    let Some((key, words)) = key else {
        return Ok(Term(NIL));
    };
    if !key.is_immediate() {
        check_words(words)?;
    }
    Ok(env.cons(decode::term(env, key)?, Term(NIL)))
}

/// `adaptations(Table)`: `{Split, Nanoseconds, Number, [Key] | []}` for each of the last adaptations, the oldest first. They are so long
/// ago, and left so many base nodes or buckets.
pub fn adaptations(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find_recordable(env, &guard, table, INFO)?;
    let mut list = Vec::new();
    let mut result = Ok(());
    // One time for all, so that their order in time is that in the log. For an adaptation that happens after it the difference is 0.
    let now = Instant::now();
    handle.each_adaptation(|adaptation, key| {
        // Other threads may wait for the log, so that large keys are only made on a dirty scheduler.
        match key_list(env, key) {
            Ok(key) => list.push(env.tuple(&[
                atoms::boolean(adaptation.split),
                env.unsigned(now.duration_since(adaptation.at).as_nanos() as u64),
                env.unsigned(adaptation.number as u64),
                key,
            ])),
            Err(failure) => result = Err(failure),
        }
    });
    result?;
    Ok(env.list(&list))
}

/// `recorded(Table)`: `false` for a table that is not recorded. Otherwise `{Nanoseconds, Waits, Reads, Time, Places, Meetings}` since the
/// recording began. Places are `{Hash, Waits, Reads, Time, [Process], Strip, [Key] | []}`, without a key if the hash is 0. Only the engine
/// `hash` has strips and keys here. Meetings are `{Process, Other, Waits, Time}`.
pub fn recorded(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find_recordable(env, &guard, table, INFO)?;
    let Some(recorder) = handle.recorder() else {
        return Ok(atoms::false_());
    };
    let number = |number: u64| env.unsigned(number);
    let begin = Instant::now();
    let strips = handle.hash_buckets().map(Buckets::strips);
    let mut places = Vec::new();
    for met in recorder.places() {
        let processes = met.processes.iter().filter(|process| **process != 0);
        let processes: Vec<Term> = processes.map(|process| Term(*process)).collect();
        let (strip, key) = match strips {
            Some(strips) if met.what.1 != 0 => (
                Buckets::strip_of(met.what.1, strips) + 1,
                handle.key_of_hash(met.what.1)?,
            ),
            _ => (0, None),
        };
        places.push(env.tuple(&[
            number(met.what.1),
            number(met.waits),
            number(met.reads),
            number(met.time),
            env.list(&processes),
            number(strip as u64),
            sized_key_list(env, key)?,
        ]));
    }
    let meetings: Vec<Term> = recorder
        .meetings()
        .iter()
        .map(|met| env.tuple(&[Term(met.what.0), Term(met.what.1), number(met.waits), number(met.time)]))
        .collect();
    let all = recorder.recorded();
    env.account(begin.elapsed().as_nanos() as usize);
    Ok(env.tuple(&[
        number(all.since.as_nanos() as u64),
        number(all.waits),
        number(all.reads),
        number(all.time),
        env.list(&places),
        env.list(&meetings),
    ]))
}

/// `structure(Table, From, Every)`: a part of the structure of the table. `From` is `[]` for the first part, and then the last element of
/// the part before. That is `[]` after the last part. One in `Every` buckets or leaves is read.
///
/// With the engine `hash`: `{Buckets, Strips, Loads, Next}`. `Strips` are the sums `{Buckets, Keys, Changes}` for each strip of the hash
/// range, and `Loads` say how many buckets have 0, 1, ... keys.
///
/// With the engine `ca`: `{Stretches, Found, Next}`. A stretch is `{[Key] | [], Base, Statistic, Conflicts, Height, Leaves, Keys, Changes,
/// Sizes}`, with `{Slots, Leaves, Keys}` for each size of leaves. `Found` are `{Number, Hash, [Key]}` for the recorded keys in the stretch with
/// this number.
pub fn structure(env: Env, &[table, from, every]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find_recordable(env, &guard, table, INFO)?;
    let every = every.small_integer().filter(|every| *every > 0).ok_or_else(bad)? as usize;
    let first = env.cell(from).map(|(first, _)| first);
    let begin = Instant::now();
    let structure = match handle.hash_buckets() {
        Some(buckets) => hash_structure(env, handle, buckets, first, every)?,
        None => match first {
            None => tree_structure(env, handle, None, every)?,
            Some(key) => with_probe(env, handle.table(), key, |probe| {
                tree_structure(env, handle, Some(probe), every)
            })?,
        },
    };
    env.account(begin.elapsed().as_nanos() as usize);
    Ok(structure)
}

fn hash_structure(
    env: Env,
    handle: Handle<'_>,
    buckets: usize,
    first: Option<Term>,
    every: usize,
) -> Result<Term, Failure> {
    let number = |number: usize| env.unsigned(number as u64);
    let first = match first {
        None => 0,
        Some(first) => first.small_integer().filter(|first| *first >= 0).ok_or_else(bad)?,
    };
    let mut view = Buckets::default();
    let strips = Buckets::strips(buckets);
    // Bucket numbers differ in their low bits first, so that an even distance would leave out some strips.
    let next = handle.view_buckets(first as usize, (BUCKETS, every | 1), strips, &mut view);
    let strips: Vec<Term> = view.strips[..strips]
        .iter()
        .map(|strip| env.tuple(&[number(strip.buckets), number(strip.keys), env.unsigned(strip.changes)]))
        .collect();
    let loads: Vec<Term> = view.loads.iter().map(|buckets| number(*buckets)).collect();
    let next = next.map_or(Term(NIL), |next| env.cons(number(next), Term(NIL)));
    Ok(env.tuple(&[number(buckets), env.list(&strips), env.list(&loads), next]))
}

fn tree_structure(env: Env, handle: Handle<'_>, from: Option<&Probe<'_>>, every: usize) -> Result<Term, Failure> {
    let number = |number: usize| env.unsigned(number as u64);
    let recorder = handle.recorder();
    let hashes: HashSet<u64> = recorder.map_or(HashSet::new(), |recorder| {
        let hashes = recorder.places().into_iter().map(|met| met.what.1);
        hashes.filter(|hash| *hash != 0).collect()
    });
    // A search reads all entries.
    let leaves = if hashes.is_empty() { LEAVES } else { LEAVES / 4 };
    let (mut stretches, mut keys) = (Vec::new(), Vec::new());
    let next = handle.view_tree(from, (leaves, every), &hashes, |seen| match seen {
        Seen::Stretch(stretch) => stretches.push(stretch),
        Seen::Key(hash, key) => keys.push((stretches.len() - 1, hash, key)),
    })?;
    let mut rows = Vec::new();
    for stretch in stretches {
        let sizes = stretch
            .sizes
            .map(|(slots, leaves, keys)| env.tuple(&[number(slots), number(leaves), number(keys)]));
        rows.push(env.tuple(&[
            key_list(env, stretch.from)?,
            number(stretch.base),
            env.integer(stretch.statistic.into()),
            env.unsigned(stretch.conflicts.into()),
            number(stretch.height),
            number(stretch.leaves),
            number(stretch.keys),
            env.unsigned(stretch.changes),
            env.list(&sizes),
        ]));
    }
    let mut found = Vec::new();
    for (row, hash, key) in keys {
        found.push(env.tuple(&[number(row), env.unsigned(hash), sized_key_list(env, Some(key))?]));
    }
    Ok(env.tuple(&[env.list(&rows), env.list(&found), key_list(env, next)?]))
}
