//! `select/2`, `match/2` and their kin, and `scan/2`: work over a table in slices, each well under a millisecond.
//!
//! A call carries out the first slice. If that was not all, it returns a cursor, from which `select_on/2` goes on. Cursors do
//! not change: going on twice from one does the same twice. Nothing is held between slices.
//!
//! | module | |
//! |---|---|
//! | `arguments` | what the arguments of a call ask for |
//! | `task` | what is left to do, and cursors |
//! | `slice` | one slice of the work |
//! | `arrange` | the order of the objects of a step |
//! | `maker` | what a program sees and makes |

mod arguments;
mod arrange;
mod maker;
mod slice;
mod task;

pub use arguments::compiled;
pub use maker::{seen, Maker};
pub use task::{owned, table_of_cursor, CURSORS};

use super::*;
use arguments::{prepare, Order};
use cats_pattern::{Arena, Program};
use cats_sync::epoch::{pin, Guard};
use cats_table::{Direction, Kind as TableKind, Selection, SpotRef};
use maker::matching;
use slice::{run, Slice};
use std::sync::Arc;
use std::time::Instant;
use task::{cursor, Task, Work, Yields};

/// Words at which a slice ends early: behind a step, or even within.
pub(super) const SLICE_WORDS: usize = 8000;
const STEP_WORDS: Budget = Budget(4 * SLICE_WORDS);
/// Fewer objects than these are met without a look at the clock, and as many are asked for at once when a step takes long.
const FEW_OBJECTS: usize = 8;
/// Keys of a range up to which a call goes without slices.
const FEW_KEYS: usize = 16;
/// Words of a specification from which on fewer objects are.
const FEW_WORDS: usize = 512;
/// What it takes to delete or replace an object, in words to copy.
const CHANGE_WORDS: usize = 20;
/// How many words of an object are looked at in the time that it takes to copy one.
const LOOKED: usize = 4;

/// What is done to the objects that match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Results are put before a list.
    Collect,
    Count,
    Delete,
    Replace,
}

impl Action {
    fn right(self) -> Right {
        match self {
            Action::Collect | Action::Count => Right::Read,
            Action::Delete | Action::Replace => Right::Write,
        }
    }

    /// The whole call counts as one operation.
    fn want(self) -> Want {
        (self.right(), Some(Operation::Scan))
    }
}

/// `scan(Table | Cursor, List)`: puts all objects before the list, in the order that `select` has for them.
pub fn scan(env: Env, &[from, list]: &[Term; 2]) -> Result<Term, Failure> {
    if CURSORS.get(env, from).is_some() {
        return go_on(env, &[from, list]);
    }
    let _relief = Relief::new();
    let guard = pin();
    let handle = find(env, &guard, from, SCAN)?;
    let work = Work {
        program: None,
        action: Action::Collect,
        tested: 0,
        foregone: false,
        unordered: false,
    };
    let task = Task {
        work: Arc::new(work),
        selection: Selection::all(handle.table(), Direction::Down),
        chunked: false,
        limit: usize::MAX,
        yields: Yields::default(),
    };
    run(env, handle, task, list)
}

/// `select(Function, Table, Specification, Limit)`: `Function` is the `ets` function's name; `Limit` is `infinity` where there
/// is none.
///
/// Results are put before a list as they come. An ordered table is gone through so that the list is in order, or with a limit in
/// the opposite one. A scan of an unordered table takes the keys in the order of `first` and `next`, and the objects of a key
/// from the newest to the oldest. Each result goes before the list. So the list has the keys in the opposite order, and the
/// objects of a key in the order of insertion.
///
/// Returns `{Result, Cursor, Words}` when there is more to do: all results may take so many words together. Returns the result
/// when there is not and there is no limit. With a limit, returns `{Order, Result, Cursor, Place, Table}` when there are as many
/// results as it says, or all. `Order` is `reversed` in an ordered table and `chunk` in another one. There are more results than the
/// limit where those of a key come together, and where the specification has the keys. `Place` is for `select_at/4`, `Table` the
/// table's identifier; both and the cursor are `'$end_of_table'` where nothing is left, the place alone where results are.
pub fn select(env: Env, &[function, table, specification, limit]: &[Term; 4]) -> Result<Term, Failure> {
    let _relief = (function != atoms::select_replace()).then(Relief::new);
    let guard = pin();
    let order = prepare(env, &guard, function, table, specification, limit)?;
    let table = order.handle.table();
    if let Some(key) = order.program.only_key(table.key()) {
        let (result, found) = at_key(env, &order, &table.probe(key))?;
        if order.limit == usize::MAX {
            return Ok(result);
        }
        let (handle, left) = (order.handle, found > order.limit);
        return Ok(last_chunk(env, handle, left.then(|| order.task()).transpose()?, result));
    }
    if let Some(result) = few_in_range(env, &order)? {
        return Ok(result);
    }
    let start = match order.action {
        Action::Collect => Term(NIL),
        _ => Term::byte(0),
    };
    run(env, order.handle, order.task()?, start)
}

/// The whole of a call that collects the objects of a range of keys, if they are few. Making a task for slices, and looking at the clock,
/// would take longer than the work.
fn few_in_range(env: Env, order: &Order<'_>) -> Result<Option<Term>, Failure> {
    let (handle, program) = (order.handle, &order.program);
    if order.action != Action::Collect || order.limit != usize::MAX || program.words() > FEW_WORDS {
        return Ok(None);
    }
    let Some(objects) = handle.few_in_range(program, order.direction, FEW_KEYS)? else {
        return Ok(None);
    };
    let looked = objects.iter().map(ObjectRef::words).sum();
    check_words(looked)?;
    let mut slice = Slice::new(env, handle, order.action, usize::MAX, Term(NIL));
    for object in &objects {
        if let Some(from) = program.candidate(seen(object)) {
            slice.collect(program, from, object)?;
        }
        check_words(slice.words)?;
    }
    account(env, slice.words + looked / LOOKED);
    Ok(Some(slice.result))
}

/// `is_cursor(Term)`.
pub fn is_cursor(env: Env, &[term]: &[Term; 1]) -> Result<Term, Failure> {
    Ok(atoms::boolean(CURSORS.get(env, term).is_some()))
}

/// `select_at(Function, Table, Specification, Place)`: a cursor where an equal selection with a limit has been.
pub fn select_at(env: Env, &[function, table, specification, place]: &[Term; 4]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    let guard = pin();
    let order = prepare(env, &guard, function, table, specification, env.integer(1))?;
    let handle = order.handle;
    let mut task = order.task()?;
    let found = match (env.get_u64(place), env.cell(place)) {
        (Some(number), _) => task.selection.go_to(SpotRef::Number(number)),
        (None, Some((key, _))) => with_probe(env, handle.table(), key, |probe| {
            Ok(task.selection.go_to(SpotRef::Key(probe.term())))
        })?,
        (None, None) => place == atoms::end_of_table() && task.selection.go_to_end(),
    };
    match found && task.work.action == Action::Collect {
        true => Ok(cursor(env, handle, task)),
        false => Err(bad()),
    }
}

/// The whole of a call about the objects of one key, and how many results there are.
fn at_key(env: Env, order: &Order<'_>, probe: &Probe<'_>) -> Result<(Term, usize), Failure> {
    let (handle, program) = (order.handle, &order.program);
    let table = handle.table();
    let mut slice = Slice::new(env, handle, order.action, usize::MAX, Term(NIL));
    // How long a call takes that looks at few objects is told by the words that it reads and makes.
    let mut begin = (table.kind().is_bag() && order.action == Action::Replace).then(Instant::now);
    let mut looked = 0;
    let count = match order.action {
        Action::Collect | Action::Count => {
            let mut found = Objects::none();
            handle.lookup_for(program, probe, &mut found)?;
            let objects = found.as_slice();
            looked = objects.iter().map(ObjectRef::words).sum();
            check_words(looked)?;
            begin = (objects.len() > FEW_OBJECTS).then(Instant::now);
            let mut collect = |object: &ObjectRef<'_>| {
                if let Some(from) = program.candidate(seen(object)) {
                    slice.collect(program, from, object)?;
                }
                check_words(slice.words)
            };
            if order.action == Action::Count {
                let mut count = 0;
                for object in objects {
                    if let Some(from) = program.candidate(seen(object)) {
                        count += usize::from(slice.is_true(program, from, object)?);
                        check_words(slice.words)?;
                    }
                }
                count
            } else {
                objects.iter().rev().try_for_each(&mut collect)?;
                0
            }
        }
        Action::Delete => {
            let mut matches = matching(program, slice.caller, &mut slice.arena);
            let unwanted = |object: &ObjectRef<'_>| {
                looked += object.words();
                matches(object)
            };
            let (removed, signatures) = handle.remove_for(program, probe, unwanted)?;
            drop(matches);
            looked += signatures / LOOKED;
            slice.count_cost()?;
            removed
        }
        Action::Replace => slice.replace_all(program, probe)?,
    };
    match begin {
        Some(begin) => env.account(begin.elapsed().as_nanos() as usize),
        None => account(env, slice.words + looked / LOOKED + count * CHANGE_WORDS),
    }
    if order.action == Action::Collect {
        return Ok((slice.result, slice.found));
    }
    wake(env);
    Ok((env.unsigned(count as u64), count))
}

/// What is returned when nothing is left to be gone through, and a task for a cursor if there may be results left.
fn last_chunk(env: Env, handle: Handle<'_>, left: Option<Task>, result: Term) -> Term {
    let end = atoms::end_of_table();
    let (cursor, identifier) = match left {
        Some(mut task) => {
            task.selection.go_to_end();
            (cursor(env, handle, task), identifier(env, handle.table()))
        }
        None => (end, end),
    };
    env.tuple(&[chunk_order(handle.table()), result, cursor, end, identifier])
}

/// How the results of a chunk are ordered.
fn chunk_order(table: &Table) -> Term {
    match table.kind() {
        TableKind::OrderedSet => atoms::reversed(),
        _ => atoms::chunk(),
    }
}

/// How many results make a chunk.
fn chunk(limit: Term) -> Result<usize, Failure> {
    let limit = limit.small_integer().and_then(|limit| usize::try_from(limit).ok());
    limit.filter(|&limit| limit > 0).ok_or_else(bad)
}

/// `select_on(Cursor, Result)`: the next slice. Returns as `select` does.
pub fn go_on(env: Env, &[cursor, result]: &[Term; 2]) -> Result<Term, Failure> {
    next(env, cursor, None, result)
}

/// `select_chunk(Table, Cursor, Limit)`: the first slice of the next chunk, of so many results. Returns as `select` does. With limit 0
/// just looks whether the chunk may be asked for: the cursor is one of this table, which can be read. Returns `ok` then.
pub fn next_chunk(env: Env, &[table, from, limit]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, READ)?;
    let cursor = CURSORS.get(env, from).ok_or_else(bad)?;
    if !std::ptr::eq::<Table>(handle.table(), &*cursor.table) {
        return Err(bad());
    }
    // The owner may have died so recently that nobody has noticed. A continuation of its table must not go on.
    if !registry().lives(&Vm(env), &guard, handle.table())? {
        return Err(Cause::Id.into());
    }
    match limit == Term::byte(0) {
        true => Ok(atoms::ok()),
        false => next(env, from, Some(chunk(limit)?), Term(NIL)),
    }
}

fn next(env: Env, cursor: Term, limit: Option<usize>, result: Term) -> Result<Term, Failure> {
    let cursor = CURSORS.get(env, cursor).ok_or_else(bad)?;
    let _relief = (cursor.task.work.action != Action::Replace).then(Relief::new);
    let guard = pin();
    check(env, &guard, &cursor.table, (cursor.task.work.action.right(), None))?;
    let mut task = cursor.task.clone();
    task.limit = limit.unwrap_or(task.limit);
    run(env, cursor.table.by_identifier(&guard), task, result)
}
