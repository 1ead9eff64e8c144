//! Reads of long transactions, see [`LongReads`]. In place of its notes such a transaction gives `{Long, Notes}`. The notes are of what it
//! has read while the log of some table was not complete. When all are, the notes become reads of the log, and the caller has none any more:
//! a read returns `{logged, Objects}` then.

use super::transaction::*;
use super::*;
use cats_table::{Found, LongReads, Part, Range, Reads, Terms};
use cats_term::lease::NEVER;
use std::sync::MutexGuard;

/// What a long transaction has read of its tables.
pub(super) type LongTables = LongReads<Owned<Table>>;

/// The same, as a term. Used by one process.
pub struct Long(Mutex<LongTables>);

impl Value for Long {
    const NAME: &'static CStr = c"long";
}

impl Drop for Long {
    fn drop(&mut self) {
        let long = self.lock().end();
        if !long.is_empty() {
            drop(long);
            // What is much was left to it.
            reaper::wake();
        }
    }
}

pub static LONG: Kind<Long> = Kind::new();

impl Long {
    pub(super) fn lock(&self) -> MutexGuard<'_, LongTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to read the logs of the tables of these notes. The reads of a transaction with `{Long, Notes}` are by this from now on. If the
/// transaction is preferred, it has a keeper. Its memory is in bytes.
pub fn transaction_long(env: Env, &[notes, keeper, memory]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let memory = match memory == atoms::infinity() {
        true => usize::MAX,
        false => env.get_u64(memory).ok_or_else(bad)? as usize,
    };
    let mut long = LongReads::new(Terms {
        keeper: (keeper != atoms::none()).then_some(keeper.0),
        memory,
    });
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
    let ended = long.lock().end();
    drop(ended);
    wake(env);
    Ok(atoms::ok())
}

/// Begins to read the log of a table. Returns false if that was done before.
fn join(env: Env, long: &mut LongTables, handle: Handle<'_>, table: Term) -> Result<bool, Failure> {
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
pub(super) fn read_key(env: Env, long: (&Long, Term), table: Term, key: Term) -> Result<Term, Failure> {
    let read = read_one(env, long, table, key, &mut 0)?;
    Ok(read.term(env))
}

fn read_one(
    env: Env,
    (long, notes): (&Long, Term),
    table: Term,
    key: Term,
    words: &mut usize,
) -> Result<Read, Failure> {
    let mut first = true;
    read_long(env, long, notes, (table, LOOKUP), |guard, long, handle, reads| {
        let announce = |probe: &Probe<'_>| {
            let part = Part::key(handle.table().kind(), probe);
            long.announce(guard, handle.table(), &part);
            part
        };
        let read = look_up_in(env, handle, key, reads, (first, &mut *words), announce)?;
        first = false;
        Ok((read, false))
    })
}

/// [`transaction_read_many`](super::transaction::transaction_read_many) of a long transaction. As long as the log of some table is not
/// complete, reads the first key only.
pub(super) fn read_keys(env: Env, (long, notes): (&Long, Term), table: Term, keys: &[Term]) -> Result<Term, Failure> {
    let (mut lists, mut notes, mut words) = (Vec::with_capacity(keys.len()), notes, 0);
    for key in keys {
        match read_one(env, (long, notes), table, *key, &mut words)? {
            Read::Logged(objects) => lists.push(objects),
            Read::Noted(objects) => return Ok(env.list(&[objects])),
            Read::Over(why) => return Ok(why),
        }
        notes = Term(NIL);
    }
    account(env, words + keys.len() * 20);
    Ok(env.tuple(&[atoms::logged(), env.list(&lists)]))
}

/// What a long transaction has read.
enum Read {
    /// The objects. No notes are needed any more.
    Logged(Term),
    /// The objects, which are to be noted.
    Noted(Term),
    /// Nothing, as the transaction is over: `conflict` or `memory`.
    Over(Term),
}

impl Read {
    fn term(self, env: Env) -> Term {
        match self {
            Self::Logged(objects) => env.tuple(&[atoms::logged(), objects]),
            Self::Noted(objects) => objects,
            Self::Over(why) => why,
        }
    }
}

/// [`transaction_range`](super::transaction::transaction_range) of a long transaction.
pub(super) fn read_range(
    env: Env,
    (long, notes): (&Long, Term),
    table: Term,
    bounds: (Term, Term, Term),
    limit: usize,
) -> Result<Term, Failure> {
    let read = read_long(env, long, notes, (table, SCAN), |guard, long, handle, reads| {
        with_range(env, handle, bounds, |range| {
            let mut found = Objects::none();
            handle.range_in(reads, range, limit, &mut found)?;
            let part = part_of(handle, &range, limit, &found);
            let widened = long.announce(guard, handle.table(), &part);
            Ok(((tuples(env, found.as_slice())?, part), widened))
        })
    })?;
    Ok(read.term(env))
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
    mut read: impl for<'g> FnMut(
        &'g Guard,
        &mut LongTables,
        Handle<'g>,
        &mut Reads<'g>,
    ) -> Result<((Term, Part), bool), Failure>,
) -> Result<Read, Failure> {
    let long = &mut *long.lock();
    // Asked without a guard, as those who began before this one may wait for it.
    let complete = long.is_complete();
    let guard = pin();
    let handle = find_for_transaction(env, &guard, table, want)?;
    let complete = !join(env, long, handle, table)? && complete;
    if long.is_exhausted() {
        return Ok(Read::Over(atoms::memory()));
    }
    let (mut reads, mut compared) = (Reads::none(), 0);
    let mut deadline = NEVER;
    if complete {
        match move_to_logs(env, &guard, notes, long)? {
            Ok(earliest) => deadline = earliest,
            Err(over) => return Ok(Read::Over(over)),
        }
    }
    for _ in 0..ATTEMPTS {
        reads.clear();
        if !complete && !observe(env, &guard, notes, 0, &mut reads, &mut compared)? {
            return Ok(Read::Over(atoms::conflict()));
        }
        let ((objects, part), widened) = read(&guard, long, handle, &mut reads)?;
        if (long.reserve(handle.table(), &part)? || widened) && !reads.hold() {
            match is_long(compared) {
                true => break,
                false => continue,
            }
        }
        match long.look(&guard, Some((handle.table(), &part)))? {
            Found::Changed => return Ok(Read::Over(atoms::conflict())),
            Found::Exhausted => return Ok(Read::Over(atoms::memory())),
            Found::ReadAgain if complete => continue,
            _ if complete => {
                long.add(handle.table(), part, deadline.min(reads.deadline()));
                return Ok(Read::Logged(objects));
            }
            // The marks after the logs: so what either tells of was there when the logs were looked at.
            _ if reads.hold() => return Ok(Read::Noted(objects)),
            _ if is_long(compared) => break,
            _ => (),
        }
    }
    Ok(Read::Over(atoms::conflict()))
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
    if join(env, long, handle, table)? || !complete || long.reserve_whole(handle.table())? {
        return Err(Failure::Busy);
    }
    let deadline = match move_to_logs(env, &guard, notes, long)? {
        Ok(deadline) => deadline,
        Err(over) => return Ok(over),
    };
    long.announce(&guard, handle.table(), &Part::All);
    // What was written before the whole is read does no harm.
    if let Some(over) = over(long, &guard)? {
        return Ok(over);
    }
    long.add(handle.table(), Part::All, deadline);
    let expire = handle.table().options().leased();
    Ok(env.tuple(&[atoms::logged(), atoms::boolean(expire)]))
}

/// `true` if all that a long transaction has read still holds. Otherwise it is over: `conflict` or `memory`.
pub fn transaction_unchanged(env: Env, &[long]: &[Term; 1]) -> Result<Term, Failure> {
    let long = LONG.get(env, long).ok_or_else(bad)?;
    let guard = pin();
    let over = over(&mut long.lock(), &guard)?;
    Ok(over.unwrap_or_else(atoms::true_))
}

/// Why a long transaction is over, if something of what it has read does not hold any more: `conflict` or `memory`.
pub(super) fn over(long: &mut LongTables, guard: &Guard) -> Result<Option<Term>, Failure> {
    match long.look(guard, None)? {
        Found::Unchanged => Ok(None),
        Found::Exhausted => Ok(Some(atoms::memory())),
        Found::Changed | Found::ReadAgain => Ok(Some(atoms::conflict())),
    }
}

/// Makes reads of the logs, which are complete, of what is noted. Returns the earliest deadline of the noted objects, or why the
/// transaction is over.
fn move_to_logs(env: Env, guard: &Guard, notes: Term, long: &mut LongTables) -> Result<Result<u64, Term>, Failure> {
    if notes.0 == NIL {
        return Ok(Ok(NEVER));
    }
    if let Some(over) = over(long, guard)? {
        return Ok(Err(over));
    }
    remember(env, guard, notes, long)?;
    let (mut reads, mut compared) = (Reads::none(), 0);
    if !observe(env, guard, notes, 0, &mut reads, &mut compared)? {
        return Ok(Err(atoms::conflict()));
    }
    Ok(over(long, guard)?.map_or_else(|| Ok(reads.deadline()), Err))
}

/// Adds what the notes say was read.
fn remember(env: Env, guard: &Guard, notes: Term, long: &mut LongTables) -> Result<(), Failure> {
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
            [_, key, _] => with_probe(env, handle.table(), key, |probe| {
                Ok(Part::key(handle.table().kind(), probe))
            })?,
            [_, from, to, down, _] => with_range(env, handle, (from, to, down), |range| Ok(Part::range(&range, None)))?,
            _ => return Err(bad()),
        };
        long.announce(guard, handle.table(), &part);
        long.add(handle.table(), part, NEVER);
    }
    Ok(())
}
