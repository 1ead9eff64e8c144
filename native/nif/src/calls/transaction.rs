//! What `cats_transaction` calls. A transaction's state is in its process, as Erlang terms. Nothing is held between two calls.
//!
//! A note says what a transaction has read: `{Table, Key, Objects}`, or `{Table, From, To, Down, Objects}` for a range of
//! an ordered table. `From` and `To` are `[Key]` if the key belongs to the range, `{Key}` if not, or `[]` without a bound.
//! A read returns `conflict` if a note does not hold any more.
//!
//! A [long](super::long) transaction gives `{Long, Notes}` in place of the notes.

use super::long::{long_of, over, read_key, read_keys, read_range, Long};
use super::*;
use crate::layout::equal::equals_stored;
use crate::vm::identical;
use cats_table::{preferred, BagChange, Committed, Range, Reads, Writes, WRITES_LIMIT};

/// How often a call reads everything again because a place changed meanwhile. Then it counts as a conflict, although no
/// value may have changed.
pub(super) const ATTEMPTS: usize = 50;

/// The most objects that a call compares on a scheduler, in all attempts.
const COMPARED: Budget = Budget(500);

/// Notes are covered if there are at most so many, and at most so many writes.
const MOST_COVERED: usize = 8;

/// Up to this number of keys need no allocation.
const FEW: usize = 8;

/// The most words of an object that is compared while its place is locked.
const BRIEF: usize = 64;

/// `{Identifier, Type, KeyPosition}` of a table that the caller may `read` or `write`. Fails for an engine without transactions. The
/// caller's identifier is returned as it is, because a new one has to be collected.
pub fn transaction_table(env: Env, &[named, right]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let want = match right == atoms::write() {
        // Not a write, which the process of a preferred transaction may not make.
        true => (Right::Manage, None),
        false => READ,
    };
    let handle = find_for_transaction(env, &guard, named, want)?;
    let table = handle.table();
    if preferred::is_inside(env.this_process().0) {
        table.note_inside()?;
    }
    let identifier = match named.is_immediate() {
        true => identifier(env, table),
        false => named,
    };
    let kind = env.atom(table.kind().text());
    let position = Term::small(table.key() as u64 + 1);
    Ok(env.tuple(&[identifier, kind, position]))
}

/// The objects of a key, as they were when all notes held.
///
/// The key's place needs no mark: all notes hold from before it is read until after that.
pub fn transaction_read(env: Env, &[notes, table, key]: &[Term; 3]) -> Result<Term, Failure> {
    if let Some(long) = long_of(env, notes)? {
        return read_key(env, long, table, key);
    }
    let guard = pin();
    let handle = find_for_transaction(env, &guard, table, LOOKUP)?;
    if notes.0 == NIL {
        return read::lookup_key::<Used>(env, handle, key);
    }
    let found = with_probe(env, handle.table(), key, |probe| {
        read_with(env, &guard, notes, |_, found| Ok(handle.lookup(probe, found)?))
    })?;
    if found.0 == NIL {
        missed(handle);
    }
    Ok(found)
}

/// The objects of several keys, a list for each, as they were when all notes held. There may be fewer lists than keys: of the first ones.
pub fn transaction_read_many(env: Env, &[notes, table, keys]: &[Term; 3]) -> Result<Term, Failure> {
    let keys = terms_of(env, keys)?;
    if let Some(long) = long_of(env, notes)? {
        return read_keys(env, long, table, &keys);
    }
    let guard = pin();
    let handle = find_for_transaction(env, &guard, table, LOOKUP)?;
    let (mut reads, mut compared) = (Reads::none(), 0);
    for first in (0..ATTEMPTS).map(|attempt| attempt == 0) {
        reads.clear();
        if !observe(env, &guard, notes, 0, &mut reads, &mut compared)? {
            return Ok(atoms::conflict());
        }
        let (mut lists, mut words) = (SmallVec::<[_; FEW]>::new(), 0);
        for key in &keys {
            lists.push(look_up_in(env, handle, *key, &mut reads, (first, &mut words), |_| ())?.0);
        }
        account(env, words + keys.len() * 20);
        if reads.hold() {
            return Ok(env.list(&lists));
        }
        compared += keys.len();
        if is_long(compared) {
            break;
        }
    }
    Ok(atoms::conflict())
}

fn terms_of(env: Env, list: Term) -> Result<SmallVec<[Term; FEW]>, Failure> {
    let (mut terms, mut rest) = (SmallVec::new(), list);
    while let Some((term, tail)) = env.cell(rest) {
        terms.push(term);
        COMPARED.check(terms.len())?;
        rest = tail;
    }
    match rest.0 {
        NIL => Ok(terms),
        _ => Err(bad()),
    }
}

/// The objects of a key, whose place is added to the reads, and what `before` makes of the key. Only the `first` time it counts as a use.
/// Adds the words of the objects.
pub(super) fn look_up_in<'g, P>(
    env: Env,
    handle: Handle<'g>,
    key: Term,
    reads: &mut Reads<'g>,
    (first, words): (bool, &mut usize),
    before: impl FnOnce(&Probe<'_>) -> P,
) -> Result<(Term, P), Failure> {
    with_probe(env, handle.table(), key, |probe| {
        let prepared = before(probe);
        // Before its deadline is noted, which this may move.
        if first && handle.table().options().leased() {
            handle.member::<Used>(probe)?;
        }
        let mut found = Objects::none();
        handle.lookup_in(reads, probe, &mut found)?;
        if first && found.as_slice().is_empty() {
            missed(handle);
        }
        *words += found.as_slice().iter().map(ObjectRef::words).sum::<usize>();
        check_words(*words)?;
        Ok((tuples(env, found.as_slice())?, prepared))
    })
}

/// The first objects of a range of an ordered table, up to a limit, as they were when all notes held.
pub fn transaction_range(env: Env, &[notes, table, from, to, down, limit]: &[Term; 6]) -> Result<Term, Failure> {
    let limit = match limit.small_integer() {
        Some(limit) if limit >= 1 => limit as usize,
        None if limit == atoms::infinity() => usize::MAX,
        _ => return Err(bad()),
    };
    if let Some(long) = long_of(env, notes)? {
        return read_range(env, long, table, (from, to, down), limit);
    }
    let guard = pin();
    let handle = find_for_transaction(env, &guard, table, SCAN)?;
    with_range(env, handle, (from, to, down), |range| {
        read_with(env, &guard, notes, |reads, found| {
            Ok(handle.range_in(reads, range, limit, found)?)
        })
    })
}

/// Carries out writes if all notes hold, atomically: `true`, or `conflict` or `memory` if not. If the transaction of another keeper has
/// reserved what is to be written, returns `{preferred, Keeper}`.
///
/// A write is `{Table, Key, Objects}`. The key gets these objects in place of those that it has: none or one. In a bag it is
/// `{Table, Key, []}` or `{Table, Key, {All, Gone, Added}}`. With `All`, the key loses all its objects. Otherwise it loses those that equal
/// one of `Gone`. Then it gets those of `Added`.
pub fn transaction_commit(env: Env, &[notes, writes, keeper]: &[Term; 3]) -> Result<Term, Failure> {
    if keeper.0 == preferred::keeper() {
        preferred::end(env.this_process().0);
    }
    let (long, notes) = match long_of(env, notes)? {
        Some((long, notes)) => (Some(long), notes),
        None => (None, notes),
    };
    let mut long = long.map(Long::lock);
    let guard = pin();
    let (mut reads, mut compared) = (Reads::none(), 0);
    // Only keys in a block need a room.
    let mut rooms: Vec<KeyRoom> = Vec::new();
    let count = count_writes(env, writes)?;
    let _relief = count.stores_none.then(Relief::new);
    rooms.resize_with(count.rooms, key_room);
    // Once, keys that are read and written are compared while they are locked. If that fails, it may be that they were not compared because
    // that takes long. Then all is compared before it is locked.
    let mut covered = Covered::by(env, notes, count.writes);
    for _ in 0..ATTEMPTS {
        reads.clear();
        // Once more with all places locked. Then there is little to look at.
        if let Some(long) = &mut long {
            if let Some(over) = over(long, &guard)? {
                return Ok(over);
            }
        }
        let mut changes = Writes::none();
        fill(env, &guard, writes, &mut rooms, &mut covered, &mut changes)?;
        if !observe(env, &guard, notes, covered.notes, &mut reads, &mut compared)? {
            return Ok(atoms::conflict());
        }
        let is_noted = |noted, found: Option<ObjectRef<'_>>| is_briefly_noted(env, found, noted);
        let done = changes.commit(&guard, &mut reads, long.as_deref_mut(), is_noted);
        match done.map_err(|failure| of_table(env, failure, changes.failed()))? {
            Committed::Done => {
                drop(changes);
                wake(env);
                return Ok(atoms::true_());
            }
            // If it is not preferred any more, the call is made again.
            Committed::Reserved => {
                let keeper = living_keeper(env).ok_or(Failure::Busy)?;
                return Ok(env.tuple(&[atoms::preferred(), keeper]));
            }
            Committed::Changed => (),
        }
        covered = Covered::nothing();
        compared += changes.cost();
        if is_long(compared) {
            break;
        }
    }
    Ok(atoms::conflict())
}

/// Names the table whose limit was met.
#[cold]
fn of_table(env: Env, failure: cats_table::Failure, table: Option<&Table>) -> Failure {
    match (failure.into(), table) {
        (Failure::SystemLimit(limit), Some(table)) => Failure::SystemLimit(env.tuple(&[limit, identifier(env, table)])),
        (failure, _) => failure,
    }
}

/// The keeper of the preferred transaction, or `none`.
pub fn transaction_preferred(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    Ok(living_keeper(env).unwrap_or_else(atoms::none))
}

/// Prefers the transaction of this keeper, which the calling process runs: `false` if there is another living keeper.
pub fn transaction_prefer(env: Env, &[keeper]: &[Term; 1]) -> Result<Term, Failure> {
    env.local_pid(keeper).ok_or_else(bad)?;
    let preferred = living_keeper(env).is_none() && preferred::begin(keeper.0, env.this_process().0);
    Ok(atoms::boolean(preferred))
}

/// Prefers the transaction of this keeper no more.
pub fn transaction_yield(_: Env, &[keeper]: &[Term; 1]) -> Result<Term, Failure> {
    preferred::dismiss(keeper.0);
    Ok(atoms::ok())
}

/// The keeper of the preferred transaction, if it lives.
fn living_keeper(env: Env) -> Option<Term> {
    let keeper = Term(preferred::keeper());
    if keeper.0 == 0 {
        return None;
    }
    if monitor::is_alive(env, keeper) {
        return Some(keeper);
    }
    preferred::dismiss(keeper.0);
    None
}

pub(super) fn find_for_transaction<'g>(
    env: Env<'g>,
    guard: &'g Guard,
    table: Term,
    want: Want,
) -> Result<Handle<'g>, Failure> {
    let handle = find(env, guard, table, want)?;
    match handle.has_transactions() {
        true => Ok(handle),
        false if handle.table().is_snapshot() => Err(Failure::Bad(atoms::snapshot())),
        false => Err(Failure::Bad(atoms::no_transactions())),
    }
}

/// The objects that `read` finds, if all notes held at the same instant.
fn read_with<'g>(
    env: Env<'g>,
    guard: &'g Guard,
    notes: Term,
    mut read: impl FnMut(&mut Reads<'g>, &mut Objects<'g>) -> Result<(), Failure>,
) -> Result<Term, Failure> {
    let (mut reads, mut compared) = (Reads::none(), 0);
    let mut found = Objects::none();
    for _ in 0..ATTEMPTS {
        reads.clear();
        if !observe(env, guard, notes, 0, &mut reads, &mut compared)? {
            return Ok(atoms::conflict());
        }
        read(&mut reads, &mut found)?;
        if reads.hold() {
            return tuples(env, found.as_slice());
        }
        if is_long(compared) {
            break;
        }
    }
    Ok(atoms::conflict())
}

/// Whether a call that has compared so many objects may not compare more.
pub(super) fn is_long(compared: usize) -> bool {
    !COMPARED.admits(compared)
}

/// Reads again what is in the notes, except for those of these bits. Returns false if something has changed. Counts the objects that it
/// compared.
pub(super) fn observe<'g>(
    env: Env<'g>,
    guard: &'g Guard,
    notes: Term,
    mut except: u64,
    reads: &mut Reads<'g>,
    compared: &mut usize,
) -> Result<bool, Failure> {
    let mut found = Objects::none();
    let (mut rest, mut cost, mut words) = (notes, 0, 0);
    while let Some((note, tail)) = env.cell(rest) {
        rest = tail;
        let covered = except & 1 != 0;
        except >>= 1;
        if covered {
            continue;
        }
        let noted = match *encode::tuple(env, note)? {
            [table, key, objects] => {
                let Some(handle) = find_noted(env, guard, table)? else {
                    return Ok(false);
                };
                with_probe(env, handle.table(), key, |probe| {
                    Ok(handle.lookup_in(reads, probe, &mut found)?)
                })?;
                objects
            }
            [table, from, to, down, objects] => {
                let Some(handle) = find_noted(env, guard, table)? else {
                    return Ok(false);
                };
                with_range(env, handle, (from, to, down), |range| {
                    Ok(handle.range_in(reads, range, usize::MAX, &mut found)?)
                })?;
                objects
            }
            _ => return Err(bad()),
        };
        cost += 1 + found.as_slice().len();
        words += found.as_slice().iter().map(ObjectRef::words).sum::<usize>();
        COMPARED.check(cost)?;
        check_words(words)?;
        if !are_noted(env, found.as_slice(), noted)? {
            return Ok(false);
        }
    }
    account(env, words + cost * 20);
    *compared += cost;
    match rest.0 {
        NIL => Ok(true),
        _ => Err(bad()),
    }
}

/// The table of a note. Nothing if the caller may not read it any more: another process may have deleted it, for example.
pub(super) fn find_noted<'g>(env: Env<'g>, guard: &'g Guard, table: Term) -> Result<Option<Handle<'g>>, Failure> {
    match find_for_transaction(env, guard, table, READ) {
        Ok(handle) => Ok(Some(handle)),
        Err(Failure::Bad(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Whether the list has exactly these objects.
fn are_noted(env: Env, objects: &[ObjectRef<'_>], noted: Term) -> Result<bool, Failure> {
    let mut rest = noted;
    for object in objects {
        let Some((head, tail)) = env.cell(rest) else {
            return Ok(false);
        };
        if !is_noted(env, object, head)? {
            return Ok(false);
        }
        rest = tail;
    }
    Ok(rest.0 == NIL)
}

fn is_noted(env: Env, object: &ObjectRef<'_>, noted: Term) -> Result<bool, Failure> {
    let Some(elements) = env
        .tuple_elements(noted)
        .filter(|elements| elements.len() == object.arity())
    else {
        return Ok(false);
    };
    let equals = |i: usize| equals_stored(env, elements[i], object.element(i));
    // `equals_stored` may miss that terms are equal. Then they are compared by the VM.
    Ok((0..elements.len()).all(equals) || identical(tuple(env, object)?, noted))
}

/// Lends a range of an ordered table.
pub(super) fn with_range<R>(
    env: Env,
    handle: Handle<'_>,
    (from, to, down): (Term, Term, Term),
    f: impl FnOnce(Range<'_, Probe<'_>>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    if handle.table().kind() != cats_table::Kind::OrderedSet {
        return Err(bad());
    }
    let down = down == atoms::true_();
    let (from, to) = (bound(env, from)?, bound(env, to)?);
    if to.is_some_and(|(_, inclusive)| !inclusive) {
        return Err(bad());
    }
    let (mut from_room, mut to_room) = (None, None);
    let from = bound_in(env, handle.table(), from, &mut from_room)?;
    let to = bound_in(env, handle.table(), to, &mut to_room)?.map(|(probe, _)| probe);
    f(Range {
        from: from.as_ref().map(|(probe, inclusive)| (probe, *inclusive)),
        to: to.as_ref(),
        down,
    })
}

/// How many writes there are, and how many of them delete a key that is not an immediate. Whether none of them stores an object.
struct Count {
    writes: usize,
    rooms: usize,
    stores_none: bool,
}

/// Fails with `Big` if these are too many writes.
fn count_writes(env: Env, writes: Term) -> Result<Count, Failure> {
    let mut count = Count {
        writes: 0,
        rooms: 0,
        stores_none: true,
    };
    let mut rest = writes;
    while let Some((write, tail)) = env.cell(rest) {
        if let Some(&[_, key, objects]) = env.tuple_elements(write) {
            count.rooms += usize::from(objects.0 == NIL && !key.is_immediate());
            count.stores_none &= objects.0 == NIL || matches!(env.tuple_elements(objects), Some([_, _, Term(NIL)]));
        }
        count.writes += 1;
        WRITES_LIMIT.check(count.writes)?;
        rest = tail;
    }
    match rest.0 {
        NIL => Ok(count),
        _ => Err(bad()),
    }
}

/// Notes of keys that are written too. They are compared while the keys are locked, so the places are read once.
struct Covered {
    candidates: SmallVec<[[Term; 3]; MOST_COVERED]>,
    /// A bit for each note that is covered.
    notes: u64,
}

impl Covered {
    fn nothing() -> Self {
        Self {
            candidates: SmallVec::new(),
            notes: 0,
        }
    }

    /// If there are few notes and writes, the notes may be covered.
    fn by(env: Env, notes: Term, writes: usize) -> Self {
        let mut covered = Self::nothing();
        let mut rest = notes;
        while let Some((note, tail)) = env.cell(rest) {
            let Some(&[table, key, objects]) = env.tuple_elements(note) else {
                return Self::nothing();
            };
            if covered.candidates.len() == MOST_COVERED || writes > MOST_COVERED {
                return Self::nothing();
            }
            covered.candidates.push([table, key, objects]);
            rest = tail;
        }
        covered
    }

    /// What was noted of a key of a table, if the terms are the same words.
    fn take(&mut self, table: Term, key: Term) -> Option<Term> {
        let is_it = |note: &[Term; 3]| note[0] == table && note[1] == key;
        let at = self.candidates.iter().position(is_it)?;
        self.notes |= 1 << at;
        Some(self.candidates[at][2])
    }
}

/// Whether this is what was noted. A false answer may be wrong. It takes little time, because a place is locked meanwhile.
#[inline]
fn is_briefly_noted(env: Env, found: Option<ObjectRef<'_>>, noted: Term) -> bool {
    match (found, env.cell(noted)) {
        (None, None) => true,
        (Some(object), Some((tuple, Term(NIL)))) => env.tuple_elements(tuple).is_some_and(|elements| {
            elements.len() == object.arity()
                && object.words() <= BRIEF
                && (0..elements.len()).all(|i| equals_stored(env, elements[i], object.element(i)))
        }),
        _ => false,
    }
}

/// Makes everything that is to be written.
fn fill<'g, 'k>(
    env: Env<'g>,
    guard: &'g Guard,
    writes: Term,
    rooms: &'k mut [KeyRoom],
    covered: &mut Covered,
    changes: &mut Writes<'g, 'k, Term>,
) -> Result<(), Failure> {
    let mut rooms = rooms.iter_mut();
    let (mut rest, mut words) = (writes, 0);
    while let Some((write, tail)) = env.cell(rest) {
        let &[table, key, objects] = encode::tuple(env, write)? else {
            return Err(bad());
        };
        let handle = find_for_transaction(env, guard, table, (Right::Write, None))?;
        let noted = match handle.is_comparable() {
            true => covered.take(table, key),
            false => None,
        };
        match env.cell(objects) {
            Some((tuple, Term(NIL))) if !handle.table().kind().is_bag() => {
                let object = object(env, handle, encode::tuple(env, tuple)?)?;
                words += object.words();
                check_words(words)?;
                changes.put(handle, object, noted)?;
            }
            None if objects.0 == NIL => {
                let (probe, _) = probe_in(env, handle.table(), key, || rooms.next())?;
                changes.delete(handle, probe, noted)?;
            }
            None if handle.table().kind().is_bag() => change_bag(env, handle, objects, changes, &mut words)?,
            _ => return Err(bad()),
        }
        rest = tail;
    }
    account(env, words);
    Ok(())
}

/// Makes what is to be done with a key of a bag. Adds the words of the objects.
#[inline(never)]
fn change_bag<'g>(
    env: Env<'g>,
    handle: Handle<'g>,
    change: Term,
    changes: &mut Writes<'g, '_, Term>,
    words: &mut usize,
) -> Result<(), Failure> {
    let (all, gone, added) = match *encode::tuple(env, change)? {
        [all, gone, added] if (gone, added) != (Term(NIL), Term(NIL)) => (all, gone, added),
        _ => return Err(bad()),
    };
    let mut bag = BagChange::new(all == atoms::true_());
    for (list, is_added) in [(gone, false), (added, true)] {
        let mut rest = list;
        while let Some((tuple, tail)) = env.cell(rest) {
            let object = object(env, handle, encode::tuple(env, tuple)?)?;
            *words += object.words();
            check_words(*words)?;
            changes.count(&object)?;
            match is_added {
                true => bag.add(handle, object)?,
                false => bag.remove(handle, object)?,
            }
            rest = tail;
        }
        if rest.0 != NIL {
            return Err(bad());
        }
    }
    Ok(changes.change(handle, bag)?)
}
