//! Reads of long transactions, see [`LongReads`]. In place of its notes such a transaction gives `{Long, Notes}`. The notes are of what it
//! has read while the log of some table was not complete. When all are, the notes become reads of the log, and the caller has none any more:
//! a read returns `{logged, Objects}` then.

use super::transaction::*;
use super::*;
use cats_table::{Found, LongReads, Part, Range, Reads};
use cats_term::lease::NEVER;
use std::sync::MutexGuard;

/// What a long transaction has read. Used by one process.
pub struct Long(Mutex<LongReads<Owned<Table>>>);

impl Value for Long {
    const NAME: &'static CStr = c"long";
}

impl Drop for Long {
    fn drop(&mut self) {
        let long = std::mem::take(&mut *self.lock());
        if !long.is_empty() {
            drop(long);
            // What is much was left to it.
            reaper::wake();
        }
    }
}

pub static LONG: Kind<Long> = Kind::new();

impl Long {
    pub(super) fn lock(&self) -> MutexGuard<'_, LongReads<Owned<Table>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to read the logs of the tables of these notes. The reads of a transaction with `{Long, Notes}` are by this from now on.
pub fn transaction_long(env: Env, &[notes]: &[Term; 1]) -> Result<Term, Failure> {
    let guard = pin();
    let mut long = LongReads::default();
    let mut rest = notes;
    while let Some((note, tail)) = env.cell(rest) {
        let table = *encode::tuple(env, note)?.first().ok_or_else(bad)?;
        // One that is gone by now is found by the next read.
        if let Some(handle) = find_noted(env, &guard, table)? {
            join(env, &mut long, handle, table)?;
        }
        rest = tail;
    }
    match rest.0 {
        NIL => Ok(LONG.make(env, Long(Mutex::new(long)))),
        _ => Err(bad()),
    }
}

/// Gives up what a long transaction has read. From then on writers need not tell of what they write.
pub fn transaction_end(env: Env, &[long]: &[Term; 1]) -> Result<Term, Failure> {
    let long = LONG.get(env, long).ok_or_else(bad)?;
    drop(std::mem::take(&mut *long.lock()));
    wake(env);
    Ok(atoms::ok())
}

/// Begins to read the log of a table. Returns false if that was done before.
fn join(env: Env, long: &mut LongReads<Owned<Table>>, handle: Handle<'_>, table: Term) -> Result<bool, Failure> {
    if long.has_joined(handle.table()) {
        return Ok(false);
    }
    long.join(handle, TABLES.owner(env, table).ok_or_else(bad)?)?;
    Ok(true)
}

/// What a long transaction and its notes are, if this is one.
#[inline]
pub(super) fn long_of<'a>(env: Env<'a>, reads: Term) -> Result<Option<(&'a Long, Term)>, Failure> {
    match env.tuple_elements(reads) {
        Some(&[long, notes]) => Ok(Some((LONG.get(env, long).ok_or_else(bad)?, notes))),
        _ => Ok(None),
    }
}

/// [`transaction_read`](super::transaction::transaction_read) of a long transaction.
pub(super) fn read_key(env: Env, (long, notes): (&Long, Term), table: Term, key: Term) -> Result<Term, Failure> {
    let mut first = true;
    read_long(env, long, notes, (table, LOOKUP), |handle, reads, found| {
        with_probe(env, handle.table(), key, |probe| {
            // Once, and before its deadline is noted, which this may move.
            if first && handle.table().options().leased() {
                handle.member::<Used>(probe)?;
            }
            handle.lookup_in(reads, probe, on_dirty_scheduler(), found)?;
            if first && found.as_slice().is_empty() {
                missed(handle);
            }
            first = false;
            Ok(Part::key(handle.table(), probe))
        })
    })
}

/// [`transaction_range`](super::transaction::transaction_range) of a long transaction.
pub(super) fn read_range(
    env: Env,
    (long, notes): (&Long, Term),
    table: Term,
    bounds: (Term, Term, Term),
    limit: usize,
) -> Result<Term, Failure> {
    read_long(env, long, notes, (table, SCAN), |handle, reads, found| {
        with_range(env, handle, bounds, |range| {
            handle.range_in(reads, range, limit, on_dirty_scheduler(), found)?;
            Ok(part_of(handle, &range, limit, found))
        })
    })
}

/// With a limit, the range that was read ends at the last object.
fn part_of(handle: Handle<'_>, range: &Range<'_, Probe<'_>>, limit: usize, found: &Objects<'_>) -> Part {
    let last = found.as_slice().last().filter(|_| found.as_slice().len() >= limit);
    Part::range(range, last.map(|object| object.element(handle.table().key())))
}

fn read_long(
    env: Env,
    long: &Long,
    notes: Term,
    (table, want): (Term, Want),
    mut read: impl for<'g> FnMut(Handle<'g>, &mut Reads<'g>, &mut Objects<'g>) -> Result<Part, Failure>,
) -> Result<Term, Failure> {
    let long = &mut *long.lock();
    // Asked without a guard, as those who began before this one may wait for it.
    let complete = long.is_complete();
    let guard = pin();
    let handle = find_for_transaction(env, &guard, table, want)?;
    let complete = !join(env, long, handle, table)? && complete;
    let patient = on_dirty_scheduler();
    let (mut reads, mut compared, mut found) = (Reads::none(), 0, Objects::none());
    let mut deadline = NEVER;
    if complete {
        match move_to_logs(env, &guard, notes, long)? {
            Some(earliest) => deadline = earliest,
            None => return Ok(atoms::conflict()),
        }
    }
    for _ in 0..ATTEMPTS {
        reads.clear();
        if !complete && !observe(env, &guard, notes, 0, &mut reads, &mut compared)? {
            return Ok(atoms::conflict());
        }
        let part = read(handle, &mut reads, &mut found)?;
        match long.look(&guard, Some((handle.table(), &part)), patient)? {
            Found::Changed => return Ok(atoms::conflict()),
            Found::ReadAgain if complete => continue,
            _ if complete => {
                long.add(handle.table(), part, deadline.min(reads.deadline()));
                let objects = tuples(env, found.as_slice())?;
                return Ok(env.tuple(&[atoms::logged(), objects]));
            }
            // The marks after the logs: so what either tells of was there when the logs were looked at.
            _ if reads.hold() => return tuples(env, found.as_slice()),
            _ if is_long(compared) => break,
            _ => (),
        }
    }
    Ok(atoms::conflict())
}

/// Adds the whole of a table, which is a set, to what a long transaction has read. It reads the table behind that. Returns `{logged, Expire}`:
/// objects that may expire are to be read one by one, as their deadlines count.
pub fn transaction_whole(env: Env, &[reads, table]: &[Term; 2]) -> Result<Term, Failure> {
    let (long, notes) = long_of(env, reads)?.ok_or_else(bad)?;
    let long = &mut *long.lock();
    // As in `read_long`.
    let complete = long.is_complete();
    let guard = pin();
    let handle = find_for_transaction(env, &guard, table, SCAN)?;
    if join(env, long, handle, table)? || !complete {
        return Err(Failure::Busy);
    }
    let Some(deadline) = move_to_logs(env, &guard, notes, long)? else {
        return Ok(atoms::conflict());
    };
    long.add(handle.table(), Part::All, deadline);
    let expire = handle.table().options().leased();
    Ok(env.tuple(&[atoms::logged(), atoms::boolean(expire)]))
}

/// Whether all that a long transaction has read still holds.
pub fn transaction_unchanged(env: Env, &[long]: &[Term; 1]) -> Result<Term, Failure> {
    let long = LONG.get(env, long).ok_or_else(bad)?;
    let guard = pin();
    let unchanged = is_unchanged(&mut long.lock(), &guard)?;
    Ok(atoms::boolean(unchanged))
}

/// Whether all that was read still holds.
pub(super) fn is_unchanged(long: &mut LongReads<Owned<Table>>, guard: &Guard) -> Result<bool, Failure> {
    let found = long.look(guard, None, on_dirty_scheduler())?;
    Ok(matches!(found, Found::Unchanged))
}

/// Makes reads of the logs, which are complete, of what is noted. Returns the earliest deadline of the noted objects, or nothing if a note
/// does not hold any more.
fn move_to_logs(
    env: Env,
    guard: &Guard,
    notes: Term,
    long: &mut LongReads<Owned<Table>>,
) -> Result<Option<u64>, Failure> {
    if notes.0 == NIL {
        return Ok(Some(NEVER));
    }
    if !is_unchanged(long, guard)? {
        return Ok(None);
    }
    remember(env, guard, notes, long)?;
    let (mut reads, mut compared) = (Reads::none(), 0);
    let hold = observe(env, guard, notes, 0, &mut reads, &mut compared)? && is_unchanged(long, guard)?;
    Ok(hold.then(|| reads.deadline()))
}

/// Adds what the notes say was read.
fn remember(env: Env, guard: &Guard, notes: Term, long: &mut LongReads<Owned<Table>>) -> Result<(), Failure> {
    let mut rest = notes;
    while let Some((note, tail)) = env.cell(rest) {
        rest = tail;
        let elements = encode::tuple(env, note)?;
        let table = *elements.first().ok_or_else(bad)?;
        // If it is gone, the comparison finds that.
        let Some(handle) = find_noted(env, guard, table)? else {
            continue;
        };
        let part = match *elements {
            [_, key, _] => with_probe(env, handle.table(), key, |probe| Ok(Part::key(handle.table(), probe)))?,
            [_, from, to, down, _] => with_range(env, handle, (from, to, down), |range| Ok(Part::range(&range, None)))?,
            _ => return Err(bad()),
        };
        long.add(handle.table(), part, NEVER);
    }
    Ok(())
}
