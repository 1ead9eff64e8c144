//! `select/2`, `match/2` and their kin, and `scan/2`: work over a table in slices, each well under a millisecond.
//!
//! A call carries out the first slice. If that was not all, it returns a cursor, from which `select_on/2` goes on. Cursors do
//! not change: going on twice from one does the same twice. Nothing is held between slices.

use super::*;
use crate::vm::external;
use cats_pattern::{Arena, Foregone, Output, PatternResult, Program};
use cats_sync::epoch::{pin, Guard};
use cats_sync::{probe, trace};
use cats_table::{Direction, Kind as TableKind, Met, Selection, SpotRef};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one slice takes, roughly, and words at which it ends early: behind a step, or even within.
const SLICE: Duration = Duration::from_micros(200);
pub(super) const SLICE_WORDS: usize = 8000;
const STEP_WORDS: Budget = Budget(4 * SLICE_WORDS);
/// Keys whose objects are asked for at once within a slice: some at first, more while a step takes no longer than `STEP`.
const SOME_OBJECTS: usize = 64;
/// Objects for which there is room at first: of so many, memory is had at once.
const ROOM: usize = 40;
const FEW_OBJECTS: usize = 8;
/// Keys of a range up to which a call goes without slices.
const FEW_KEYS: usize = 16;
/// Words of a specification from which on fewer objects are.
const FEW_WORDS: usize = 512;
const MANY_OBJECTS: usize = 128;
const MANY_ORDERED: usize = 512;
const STEP: Duration = Duration::from_micros(25);
/// From how many nanoseconds on a slice counts as one that has held its scheduler for long.
const LONG_NS: Budget = Budget(1_000_000);
/// Words of a list's cell.
const CELL_WORDS: usize = 2;
/// What it takes to delete or replace an object, in words to copy.
const CHANGE_WORDS: usize = 20;
/// How many words of an object are looked at in the time that it takes to copy one.
const LOOKED: usize = 4;
/// Words of an object from which on it counts, whatever is made of it: guards and replacements may go through all of it.
const LARGE: usize = 500;
/// How many times as many words of results as there are are expected at most.
const FORESIGHT: usize = 8;
/// An element in the line behind that of an object's beginning: few objects lie in one line, even if they are small.
const SECOND_LINE: usize = 7;
/// How many objects before it is come to an object's memory is asked for.
const AHEAD: usize = 32;

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

/// Work over a table, and how far it has come.
pub struct Cursor {
    table: Owned<Table>,
    task: Task,
}

#[derive(Clone)]
struct Task {
    work: Arc<Work>,
    selection: Selection,
    /// Whether results are wanted in chunks.
    chunked: bool,
    /// How many more results make a chunk; `usize::MAX` where the work does not stop for chunks.
    limit: usize,
    yields: Yields,
}

/// What a scan has shown and made so far.
#[derive(Clone, Copy, Default)]
struct Yields {
    objects: usize,
    words: usize,
}

impl Yields {
    /// How many words all results of a scan of so many objects may take. It extrapolates from what was made, with some room, up
    /// to a fixed factor.
    fn expected(self, objects: usize) -> usize {
        let words = self.words.saturating_mul(objects.max(self.objects)) / self.objects.max(1);
        (words + words / 8).min(FORESIGHT * self.words)
    }
}

/// What is done to the objects of a table.
struct Work {
    /// Without one, all objects are collected.
    program: Option<Program>,
    action: Action,
    /// The last place of an object that is tested, of those that the program's clauses test.
    tested: usize,
    /// Whether the program has clauses whose result for an object may be foregone.
    foregone: bool,
    /// Whether objects may be gone through in any order: they are counted, and without computing anything.
    unordered: bool,
}

impl Value for Cursor {
    const NAME: &'static CStr = c"cursor";
}

pub static CURSORS: Kind<Cursor> = Kind::new();

/// `scan(Table | Cursor, List)`: puts all objects before the list, in the order that `select` has for them.
pub fn scan(env: Env, &[from, list]: &[Term; 2]) -> Result<Term, Failure> {
    if CURSORS.get(env, from).is_some() {
        return go_on(env, &[from, list]);
    }
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
    let _relief = (function == atoms::match_delete() || function == atoms::select_delete()).then(Relief::new);
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

/// The table of a cursor, if the term is one.
pub fn table_of_cursor(env: Env<'_>, term: Term) -> Option<&Table> {
    CURSORS.get(env, term).map(|cursor| &*cursor.table)
}

/// `select_at(Function, Table, Specification, Place)`: a cursor where an equal selection with a limit has been.
pub fn select_at(env: Env, &[function, table, specification, place]: &[Term; 4]) -> Result<Term, Failure> {
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

/// What a call is to do.
struct Order<'g> {
    handle: Handle<'g>,
    program: Program,
    action: Action,
    direction: Direction,
    limit: usize,
}

impl Order<'_> {
    /// As it is carried out slice by slice.
    fn task(self) -> Result<Task, Failure> {
        let selection = Selection::of(self.handle.table(), &self.program, self.direction)?;
        let work = Work {
            tested: self.program.last_tested().unwrap_or(0),
            foregone: self.program.has_foregone(),
            unordered: self.action == Action::Count && self.program.is_foregone(),
            program: Some(self.program),
            action: self.action,
        };
        Ok(Task {
            work: Arc::new(work),
            chunked: self.limit != usize::MAX,
            limit: if selection.has_keys() { usize::MAX } else { self.limit },
            selection,
            yields: Yields::default(),
        })
    }
}

/// The order that the arguments of a call are.
fn prepare<'g>(
    env: Env<'g>,
    guard: &'g Guard,
    function: Term,
    table: Term,
    specification: Term,
    limit: Term,
) -> Result<Order<'g>, Failure> {
    let is = |name: fn() -> Term| function == name();
    let pattern = |result| (Some(result), Action::Collect);
    let (pattern, action) = if is(atoms::match_) {
        pattern(PatternResult::Bindings)
    } else if is(atoms::match_object) {
        pattern(PatternResult::Object)
    } else if is(atoms::match_delete) {
        (Some(PatternResult::True), Action::Delete)
    } else if is(atoms::select) || is(atoms::select_reverse) {
        (None, Action::Collect)
    } else if is(atoms::select_count) {
        (None, Action::Count)
    } else if is(atoms::select_delete) {
        (None, Action::Delete)
    } else if is(atoms::select_replace) {
        (None, Action::Replace)
    } else {
        return Err(bad());
    };
    let handle = find(env, guard, table, action.want())?;
    let table = handle.table();
    let limit = match limit == atoms::infinity() {
        true => usize::MAX,
        false => chunk(limit)?,
    };
    if action == Action::Replace && table.kind() == TableKind::Bag {
        return Err(Cause::TableType.into());
    }
    let program = match pattern {
        Some(result) => {
            Program::pattern(&vm(), specification_block(env, guard, specification)?, result).map_err(|_| bad())?
        }
        None => compiled(env, guard, specification)?,
    };
    if action == Action::Replace && !program.keeps_key(table.key()) {
        return Err(bad());
    }
    // A list is built from its end; where there is a limit, the caller turns it round.
    let direction = match is(atoms::select_reverse) == (limit != usize::MAX) {
        true => Direction::Down,
        false => Direction::Up,
    };
    Ok(Order {
        handle,
        program,
        action,
        direction,
        limit,
    })
}

/// A match specification as a program.
pub(super) fn compiled(env: Env, guard: &Guard, specification: Term) -> Result<Program, Failure> {
    Program::compile(&vm(), specification_block(env, guard, specification)?).map_err(|_| bad())
}

/// A specification as a program needs it.
#[inline]
fn specification_block(env: Env, guard: &Guard, specification: Term) -> Result<Block, Failure> {
    if !specification.is_immediate() {
        if let Some(block) = fast_block(env, guard, &[specification]) {
            return Ok(block);
        }
    }
    built(|builder| encode::specification(env, specification, builder))
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
    let _relief = (cursor.task.work.action == Action::Delete).then(Relief::new);
    let guard = pin();
    check(env, &guard, &cursor.table, (cursor.task.work.action.right(), None))?;
    let mut task = cursor.task.clone();
    task.limit = limit.unwrap_or(task.limit);
    run(env, cursor.table.by_identifier(&guard), task, result)
}

/// One slice.
fn run(env: Env, handle: Handle<'_>, mut task: Task, result: Term) -> Result<Term, Failure> {
    if task.work.action != Action::Collect && env.get_u64(result).is_none() {
        return Err(bad());
    }
    if let Some(program) = &task.work.program {
        check_words(program.words())?;
    }
    let mut slice = Slice::new(env, handle, task.work.action, task.limit, result);
    slice.yields = task.yields;
    let mut met = Met::with_room(ROOM);
    let most = if slice.ordered() { MANY_ORDERED } else { MANY_OBJECTS };
    let begin = Instant::now();
    probe!(slice_begin, handle.table().serial());
    // Each object may be compared with all of the specification.
    let words = task.work.program.as_ref().map_or(0, Program::words);
    let few = (FEW_OBJECTS * FEW_WORDS / words.max(FEW_WORDS)).max(1);
    let (mut step, mut now) = (SOME_OBJECTS.min(few * SOME_OBJECTS / FEW_OBJECTS), begin);
    let mut steps = 0_u32;
    let state = loop {
        met.clear();
        let before = (
            task.selection.spot(),
            slice.result,
            slice.found,
            slice.counted,
            slice.yields,
        );
        // Where few objects match, more are asked for each time. Objects beyond a chunk's end are met once more by the next chunk.
        let wanted = slice.limit - slice.found;
        let reach = match slice.whole {
            true => wanted,
            false => wanted << steps.min(step.ilog2()),
        };
        let done = slice
            .delete_by_key(&task.work, &mut task.selection)
            .and_then(|deleted| match deleted {
                Some(more) => Ok((more, true)),
                None => {
                    let limit = step.min(reach.max(wanted));
                    let more = handle.slice(&mut task.selection, limit, &mut met)?;
                    slice.yields.objects += met.as_slice().len();
                    let whole = slice.step(&task.work, &mut task.selection, &met)?;
                    Ok((more, whole))
                }
            });
        let before_step = std::mem::replace(&mut now, Instant::now());
        step = match now - before_step <= STEP {
            true => (2 * step).min(most),
            false => (step / 2).max(few),
        };
        match done {
            Ok((false, true)) if !slice.may_go_on() => break State::Complete,
            Ok(_) if slice.found >= slice.limit => break State::Chunk,
            Ok((_, whole)) if !whole || now - begin >= SLICE || slice.words >= SLICE_WORDS => break State::Slice,
            Ok(_) => {}
            // What was done before counts, and the next slice begins with this step.
            Err(Failure::Busy | Failure::Big) if steps > 0 => {
                let (spot, result, found, counted, yields) = before;
                task.selection.go_back(spot);
                (slice.result, slice.found, slice.counted, slice.yields) = (result, found, counted, yields);
                break State::Slice;
            }
            Err(failure) => return Err(failure),
        }
        steps += 1;
    };
    let taken = (now - begin).as_nanos() as usize;
    probe!(slice_end, handle.table().serial(), taken);
    let long = !LONG_NS.admits(taken);
    if long {
        probe!(long_hold, handle.table().serial(), taken);
    }
    trace::record_since(begin, || {
        let event = trace::Event::new(trace::Kind::Slice, handle.table().serial(), [long.into(), 0]);
        event.by(env.this_process().0)
    });
    handle.count_slice(matches!(state, State::Slice), long);
    env.account(taken);
    wake(env);
    let result = slice.finish(task.work.action)?;
    Ok(match state {
        State::Complete if task.chunked => {
            let left = slice.found > task.limit || task.selection.has_keys();
            last_chunk(env, handle, left.then_some(task), result)
        }
        State::Complete => result,
        State::Slice => {
            if task.limit != usize::MAX {
                task.limit -= slice.found;
            }
            task.yields = slice.yields;
            // Of a part of the table nobody knows how large it is: as many objects as were seen may come once more.
            let objects = match task.selection.is_whole() {
                true => handle.size(),
                false => 2 * slice.yields.objects,
            };
            let words = slice.yields.expected(objects);
            env.tuple(&[result, cursor(env, handle, task), env.unsigned(words as u64)])
        }
        State::Chunk => {
            let place = match task.selection.place() {
                Some(SpotRef::Number(number)) => env.unsigned(number),
                Some(SpotRef::Key(key)) => env.cons(decode::term(env, key)?, Term(NIL)),
                None => Term(NIL),
            };
            let (order, identifier) = (chunk_order(handle.table()), identifier(env, handle.table()));
            env.tuple(&[order, result, cursor(env, handle, task), place, identifier])
        }
    })
}

enum State {
    Complete,
    /// There is more to do.
    Slice,
    /// There are as many results as were asked for.
    Chunk,
}

struct Slice<'e, 'g> {
    env: Env<'e>,
    handle: Handle<'g>,
    caller: u64,
    arena: Arena,
    result: Term,
    /// What comes to a result that is a number.
    counted: usize,
    words: usize,
    yields: Yields,
    /// Results so far, and how many of them are wanted.
    found: usize,
    limit: usize,
    /// Whether most objects of the last step became results, which takes all of an object.
    whole: bool,
    /// Memory for the candidates of a step.
    room: (Vec<Candidate>, Vec<u64>),
}

/// An object that may match.
#[derive(Clone, Copy, Default)]
struct Candidate {
    /// Its [place](Met::place), where objects are to be put in order.
    place: u64,
    /// Which one of the objects that were met it is, and above [`INDEX_BITS`] the clause for which it is a candidate.
    index_and_clause: u64,
}

const INDEX_BITS: u32 = 32;

impl Candidate {
    #[inline(always)]
    fn new(place: u64, index: usize, clause: usize) -> Self {
        Self {
            place,
            index_and_clause: index as u64 | (clause as u64) << INDEX_BITS,
        }
    }

    #[inline(always)]
    fn index(self) -> usize {
        self.index_and_clause as u32 as usize
    }

    #[inline(always)]
    fn clause(self) -> usize {
        (self.index_and_clause >> INDEX_BITS) as usize
    }
}

/// What comes after a candidate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Candidate,
    /// The step ends here, and the next slice goes on with this candidate.
    Slice,
    /// The chunk is full.
    Chunk,
}

/// Puts candidates in the order that `precedes` gives. It agrees with the order of their places.
///
/// Buckets come in order, so few candidates overtake another. A *run* is the shortest stretch that none has to leave. `least` is
/// working memory.
fn arrange(candidates: &mut [Candidate], least: &mut Vec<u64>, precedes: impl Fn(&Candidate, &Candidate) -> bool) {
    // The least place from each candidate on.
    least.clear();
    least.resize(candidates.len(), u64::MAX);
    let mut low = u64::MAX;
    for (candidate, least) in candidates.iter().zip(least.iter_mut()).rev() {
        low = low.min(candidate.place);
        *least = low;
    }
    let (mut begin, mut high) = (0, 0);
    for end in 1..=candidates.len() {
        high = high.max(candidates[end - 1].place);
        if least.get(end).is_none_or(|least| high < *least) {
            let run = &mut candidates[begin..end];
            match run.len() {
                0..=1 => (),
                2..=8 => sort_by_rank::<8>(run, least[begin], high, &precedes),
                9..=16 => sort_by_rank::<16>(run, least[begin], high, &precedes),
                _ => sort_by_moves(run, &precedes),
            }
            begin = end;
        }
    }
}

/// Bits of a key that tell lanes apart.
const LANE_BITS: u32 = 4;

/// Sorts a run of at most `LANES` candidates between two places: counts for each how many come before it, in vectors and without a
/// branch. A branch for each comparison would be mispredicted every other time.
fn sort_by_rank<const LANES: usize>(
    run: &mut [Candidate],
    low: u64,
    high: u64,
    precedes: impl Fn(&Candidate, &Candidate) -> bool,
) {
    // Keys of 31 bits: as much of the places as there is room for, and the lane, so that no two are equal.
    let kept = i32::BITS - 1 - LANE_BITS;
    let shift = (u64::BITS - (high - low).leading_zeros()).saturating_sub(kept);
    let mut keys = [i32::MAX; LANES];
    for (lane, (key, candidate)) in keys.iter_mut().zip(run.iter()).enumerate() {
        *key = ((candidate.place - low) >> shift << LANE_BITS) as i32 | lane as i32;
    }
    let mut ranks = [0_i32; LANES];
    for other in keys {
        for (rank, key) in ranks.iter_mut().zip(keys) {
            *rank += i32::from(other < key);
        }
    }
    let mut sorted = [Candidate::default(); LANES];
    for (candidate, rank) in run.iter().zip(ranks) {
        sorted[rank as usize % LANES] = *candidate;
    }
    run.copy_from_slice(&sorted[..run.len()]);
    // Candidates that share the bits of a key.
    sort_by_moves(run, precedes);
}

/// Moves of a candidate from which on another way of sorting is quicker, on average.
const MOVES: usize = 8;

/// Sorts candidates of which nearly all are where they belong.
fn sort_by_moves(candidates: &mut [Candidate], precedes: impl Fn(&Candidate, &Candidate) -> bool) {
    let mut moves = 0;
    for end in 1..candidates.len() {
        let candidate = candidates[end];
        let mut place = end;
        while place > 0 && precedes(&candidate, &candidates[place - 1]) {
            candidates[place] = candidates[place - 1];
            place -= 1;
        }
        candidates[place] = candidate;
        moves += end - place;
        if moves > MOVES * (end + MOVES) {
            return candidates.sort_unstable_by(|a, b| match precedes(a, b) {
                true => Ordering::Less,
                false => Ordering::Greater,
            });
        }
    }
}

fn cursor(env: Env, handle: Handle<'_>, task: Task) -> Term {
    let table = owned(handle.table());
    CURSORS.make(env, Cursor { table, task })
}

impl<'e, 'g> Slice<'e, 'g> {
    fn new(env: Env<'e>, handle: Handle<'g>, action: Action, limit: usize, result: Term) -> Self {
        // Objects of a bag's key are changed together: an evaluation that gives up would leave some of them.
        let arena = match handle.table().kind().is_bag() && action.right() == Right::Write {
            true => Arena::new(),
            false => Arena::within(fits),
        };
        Self {
            env,
            handle,
            caller: env.this_process().0,
            arena,
            result,
            counted: 0,
            words: 0,
            yields: Yields::default(),
            found: 0,
            limit,
            whole: false,
            room: (Vec::new(), Vec::new()),
        }
    }

    fn ordered(&self) -> bool {
        self.handle.table().kind() == TableKind::OrderedSet
    }

    /// Whether there is a chunk behind this one although nothing more is to be seen: in an ordered table objects may yet
    /// come behind its last one.
    fn may_go_on(&self) -> bool {
        self.found >= self.limit && self.ordered()
    }

    /// The result, with what was counted.
    fn finish(&self, action: Action) -> Result<Term, Failure> {
        if action == Action::Collect {
            return Ok(self.result);
        }
        let before = self.env.get_u64(self.result).ok_or_else(bad)?;
        Ok(self.env.unsigned(before.wrapping_add(self.counted as u64)))
    }

    /// Does the work on each object, in the order of the scan. False when it had to stop because others held a lock, or enough
    /// was made. Then the selection goes on from there.
    fn step(&mut self, work: &Work, selection: &mut Selection, met: &Met<'g>) -> Result<bool, Failure> {
        let objects = met.as_slice();
        let program = work.program.as_ref();
        let found = self.found;
        let reach = match self.whole || program.is_none() {
            true => work.tested.max(SECOND_LINE),
            false => work.tested,
        };
        let prefetch = |object: &ObjectRef<'g>| object.prefetch(reach);
        objects.iter().take(AHEAD).for_each(prefetch);
        let clause = |object: &ObjectRef<'g>| match program {
            None => Some(0),
            Some(program) => program.candidate(seen(object)),
        };
        let mut changed = None;
        let mut go_on = Next::Candidate;
        if self.ordered() || work.unordered {
            let mut before = None;
            for (index, object) in objects.iter().enumerate() {
                if let Some(later) = objects.get(index + AHEAD) {
                    prefetch(later);
                }
                let Some(clause) = clause(object) else { continue };
                let candidate = Candidate::new(0, index, clause);
                go_on = self.act(work, selection, objects, before, candidate, &mut changed)?;
                if go_on != Next::Candidate {
                    break;
                }
                before = Some((candidate, candidate));
            }
        } else {
            let (mut room, mut least) = std::mem::take(&mut self.room);
            room.clear();
            room.reserve(objects.len());
            for (index, object) in objects.iter().enumerate() {
                // Where there is nothing to test, nobody looks at the object yet.
                if let (Some(later), Some(_)) = (objects.get(index + AHEAD), program) {
                    prefetch(later);
                }
                if let Some(clause) = clause(object) {
                    room.push(Candidate::new(met.place(index), index, clause));
                }
            }
            let key = self.handle.table().key();
            arrange(&mut room, &mut least, |a, b| {
                let places = a.place.cmp(&b.place);
                places.then_with(|| met.order(key, a.index(), b.index())).is_lt()
            });
            for (position, &candidate) in room.iter().enumerate() {
                if let Some(later) = room.get(position + AHEAD) {
                    prefetch(&objects[later.index()]);
                }
                let before = position.checked_sub(1).map(|last| (room[0], room[last]));
                go_on = self.act(work, selection, objects, before, candidate, &mut changed)?;
                if go_on != Next::Candidate {
                    break;
                }
            }
            self.room = (room, least);
        }
        self.whole = self.found - found > objects.len() / 2;
        Ok(go_on != Next::Slice)
    }

    /// As [`step`](Self::step), for one object. `before` has the first and the last candidate before this one. `changed` is the object of
    /// a bag of whose key all objects were changed last.
    #[inline(always)]
    fn act<'o>(
        &mut self,
        work: &Work,
        selection: &mut Selection,
        objects: &'o [ObjectRef<'g>],
        before: Option<(Candidate, Candidate)>,
        candidate: Candidate,
        changed: &mut Option<&'o ObjectRef<'g>>,
    ) -> Result<Next, Failure> {
        let object = &objects[candidate.index()];
        // The objects of a key come all or none of them: those that fit a scheduler must not be too much because of what came before.
        let enough = match self.handle.table().kind().is_bag() {
            true => STEP_WORDS.0 - SCHEDULER_WORDS.0,
            false => STEP_WORDS.0,
        };
        if self.words >= enough || self.found >= self.limit {
            if let Some((_, last)) = before {
                if self.go_between(selection, objects, last, candidate) {
                    return Ok(Next::Slice);
                }
            }
        }
        let words = self.words;
        let done = match words >= STEP_WORDS.0 && self.is_too_much(object, *changed) {
            true => Err(Failure::Big),
            false => self.apply(work, selection, object, candidate.clause(), changed),
        };
        if object.words() > LARGE {
            let looked = match work.action {
                Action::Collect | Action::Count => object.words() / LOOKED,
                Action::Delete | Action::Replace => object.words(),
            };
            self.words = self.words.max(words + looked);
        }
        match (done, before) {
            // What was changed stays so, and must not be met again. Of the object's own key nothing was, so if this is the only key,
            // there is nothing to stop behind.
            (Err(Failure::Busy | Failure::Big), Some((first, _)))
                if work.action.right() == Right::Write && self.go_between(selection, objects, first, candidate) =>
            {
                return Ok(Next::Slice);
            }
            (done, _) => done?,
        }
        if self.found >= self.limit && self.ordered() {
            let key = object.element(self.handle.table().key());
            selection.go_to(SpotRef::Key(key));
            return Ok(Next::Chunk);
        }
        Ok(Next::Candidate)
    }

    /// Has the next slice go on with the object of a candidate, if one before it was another place's; whether that is so.
    fn go_between(
        &self,
        selection: &mut Selection,
        objects: &[ObjectRef<'g>],
        before: Candidate,
        candidate: Candidate,
    ) -> bool {
        if self.ordered() {
            let last = &objects[candidate.index() - 1];
            return selection.go_to(SpotRef::Key(last.element(self.handle.table().key())));
        }
        before.place != candidate.place && selection.go_to(SpotRef::Number(candidate.place))
    }

    /// Does to an object what is to be done, if it matches. `from` is the clause for which it is a candidate, `changed` the object of a
    /// bag of whose key all objects were changed last.
    #[inline(always)]
    fn apply<'o>(
        &mut self,
        work: &Work,
        selection: &Selection,
        object: &'o ObjectRef<'g>,
        from: usize,
        changed: &mut Option<&'o ObjectRef<'g>>,
    ) -> Result<(), Failure> {
        let Some(program) = &work.program else {
            return self.take(object);
        };
        if changed.is_some_and(|changed| self.is_same_key(changed, object)) {
            return Ok(());
        }
        check_words(object.words())?;
        match work.action {
            Action::Collect if work.foregone => self.collect(program, from, object),
            Action::Collect => self.collect_made(program, from, object),
            Action::Count => {
                self.counted += usize::from(self.is_true(program, from, object)?);
                Ok(())
            }
            Action::Delete | Action::Replace => {
                let any = match work.action {
                    Action::Replace => self.replace(program, from, object)?,
                    _ => self.remove(program, selection, from, object)?,
                };
                *changed = (any && self.handle.table().kind().is_bag()).then_some(object);
                Ok(())
            }
        }
    }

    /// Whether a step that may not stop before this object, and has done enough, is one for another scheduler. Where the object's key
    /// is done, there is nothing left to do to it.
    #[cold]
    fn is_too_much(&self, object: &ObjectRef<'g>, changed: Option<&ObjectRef<'g>>) -> bool {
        !changed.is_some_and(|changed| self.is_same_key(changed, object)) && on_scheduler()
    }

    /// Puts the object before the result.
    #[inline(always)]
    fn take(&mut self, object: &ObjectRef<'_>) -> Result<(), Failure> {
        let made = tuple(self.env, object)?;
        self.put(made, object.words());
        Ok(())
    }

    /// Puts a term of so many words before the result.
    #[inline(always)]
    fn put(&mut self, term: Term, words: usize) {
        self.words += words + CELL_WORDS;
        self.yields.words += words + CELL_WORDS;
        self.result = self.env.cons(term, self.result);
        self.found += 1;
    }

    #[inline(never)]
    fn is_true(&mut self, program: &Program, from: usize, object: &ObjectRef<'g>) -> Result<bool, Failure> {
        self.arena.clear();
        let is_true = program.is_true(from, &seen(object), self.caller, &self.arena);
        self.count_cost()?;
        Ok(is_true)
    }

    /// Counts what the last evaluation cost. `Big` if it was given up as too much for this scheduler.
    #[inline(always)]
    fn count_cost(&mut self) -> Result<(), Failure> {
        self.words += self.arena.spent();
        match self.arena.is_exhausted() {
            true => Err(Failure::Big),
            false => Ok(()),
        }
    }

    /// Out of line, as is all that is done to an object that matches: the loop that finds it keeps its registers.
    #[inline(never)]
    fn collect(&mut self, program: &Program, from: usize, object: &ObjectRef<'_>) -> Result<(), Failure> {
        match program.foregone(from, &seen(object)) {
            Some(Foregone::Object) => self.take(object),
            Some(Foregone::Value(word)) => {
                self.put(Term(word), 0);
                Ok(())
            }
            Some(Foregone::Nothing) => Ok(()),
            None => self.collect_made(program, from, object),
        }
    }

    #[inline(never)]
    fn collect_made(&mut self, program: &Program, from: usize, object: &ObjectRef<'_>) -> Result<(), Failure> {
        self.arena.clear();
        let mut maker = Maker::new(self.env, object);
        let made = program.run(from, &seen(object), self.caller, &self.arena, &mut maker);
        self.words += self.arena.spent();
        let words = maker.finish(&self.arena)?;
        if let Some(term) = made {
            self.put(term, words);
        }
        Ok(())
    }

    fn is_same_key(&self, before: &ObjectRef<'g>, object: &ObjectRef<'g>) -> bool {
        let key = self.handle.table().key();
        cats_term::equal(before.element(key), object.element(key))
    }

    /// Replaces all objects of a key that match; how many.
    fn replace_all(&mut self, program: &Program, probe: &Probe<'_>) -> Result<usize, Failure> {
        let mut exhausted = false;
        let new = |object: &ObjectRef<'_>| {
            self.arena.clear();
            let from = program.candidate(seen(object))?;
            let new = stored(program.value(from, &seen(object), self.caller, &self.arena)?);
            exhausted |= new.is_none();
            new
        };
        let replaced = self.handle.replace_all(probe, new)?;
        self.count_cost()?;
        match exhausted {
            true => Err(no_memory()),
            false => Ok(replaced),
        }
    }

    /// If the object matches, replaces all objects that match and have its key, and tells that.
    fn replace(&mut self, program: &Program, from: usize, object: &ObjectRef<'g>) -> Result<bool, Failure> {
        self.arena.clear();
        let matches = program.value(from, &seen(object), self.caller, &self.arena).is_some();
        self.count_cost()?;
        if !matches {
            return Ok(false);
        }
        let table = self.handle.table();
        self.counted += self.replace_all(program, &table.probe(object.element(table.key())))?;
        Ok(true)
    }

    /// If the object matches, removes all objects that match and have its key, and tells that.
    fn remove(
        &mut self,
        program: &Program,
        selection: &Selection,
        from: usize,
        object: &ObjectRef<'g>,
    ) -> Result<bool, Failure> {
        if !self.is_true(program, from, object)? {
            return Ok(false);
        }
        let table = self.handle.table();
        let probe = table.probe(object.element(table.key()));
        let unwanted = matching(program, self.caller, &mut self.arena);
        self.counted += self.handle.remove_all(selection, &probe, unwanted)?;
        self.count_cost()?;
        Ok(true)
    }

    /// Where objects of a bag are deleted whose keys the program has, deletes those of the next key; whether there are more keys.
    fn delete_by_key(&mut self, work: &Work, selection: &mut Selection) -> Result<Option<bool>, Failure> {
        let (Action::Delete, Some(program)) = (work.action, &work.program) else {
            return Ok(None);
        };
        if !self.handle.table().kind().is_bag() {
            return Ok(None);
        }
        let unwanted = matching(program, self.caller, &mut self.arena);
        let done = self.handle.remove_slice(selection, unwanted)?;
        Ok(done.map(|(removed, more)| {
            self.counted += removed;
            more
        }))
    }
}

/// A tuple as an object to store; nothing when memory is exhausted. A program that keeps the key has no other results.
fn stored(value: TermRef<'_>) -> Option<Block> {
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    builder.copy(value);
    let is_plain = builder.words() <= encode::fast::WORDS && !builder.has_held();
    if is_plain || encode::is_as_encoded(value, 0) {
        return builder.finish();
    }
    crate::held::host::with_term(value, |env, object| {
        encode::any_object(env, encode::tuple(env, object).ok()?, &mut builder).ok()?;
        // The builder refers to terms of this environment.
        builder.finish()
    })
}

/// The object as a program sees it.
#[inline(always)]
pub(super) fn seen<'a>(object: &'a ObjectRef<'_>) -> cats_pattern::Object<'a> {
    match object {
        ObjectRef::Block(block) => cats_pattern::Object::stored(*block),
        ObjectRef::Pair(words) => cats_pattern::Object::immediates(words),
        ObjectRef::Single(words) => cats_pattern::Object::immediates(words),
    }
}

/// One more reference to a table.
pub(super) fn owned(table: &Table) -> Owned<Table> {
    // SAFETY: tables exist inside resources only, and this one lives; the reference that is taken back here is taken first.
    unsafe {
        enif_keep_resource((table as *const Table).cast_mut().cast());
        Owned::from_raw(table)
    }
}

/// Makes results in the caller's environment.
pub(super) struct Maker<'e, 'a> {
    env: Env<'e>,
    object: &'a ObjectRef<'a>,
    words: usize,
    /// The first failure; what is made from then on is not used.
    failure: Option<Failure>,
}

impl<'e, 'a> Maker<'e, 'a> {
    pub(super) fn new(env: Env<'e>, object: &'a ObjectRef<'a>) -> Self {
        Self {
            env,
            object,
            words: 0,
            failure: None,
        }
    }

    /// The number of words that were made, or why the result has no meaning. `arena` is that of the evaluation.
    pub(super) fn finish(self, arena: &Arena) -> Result<usize, Failure> {
        match (arena.is_exhausted(), self.failure) {
            (true, _) => Err(Failure::Big),
            (false, Some(failure)) => Err(failure),
            (false, None) => Ok(self.words),
        }
    }

    /// Counts so many words more; false if that is too much for this scheduler, or something has failed before.
    fn count(&mut self, words: usize) -> bool {
        self.words += words;
        if !STEP_WORDS.admits(self.words) {
            self.failure.get_or_insert(Failure::Big);
        }
        self.failure.is_none()
    }

    fn checked(&mut self, made: Result<Term, Failure>) -> Term {
        made.unwrap_or_else(|failure| {
            self.failure.get_or_insert(failure);
            Term(NIL)
        })
    }
}

impl Output for Maker<'_, '_> {
    type Term = Term;

    fn object(&mut self) -> Term {
        if !self.count(self.object.words()) {
            return Term(NIL);
        }
        let made = tuple(self.env, self.object);
        self.checked(made)
    }

    fn term(&mut self, term: TermRef<'_>) -> Term {
        if term.is_immediate() {
            return Term(term.word());
        }
        // An object too large for a scheduler has been refused before any of its parts is asked for.
        if !self.count(self.object.words()) {
            return Term(NIL);
        }
        let made = check_words(self.object.words()).and_then(|()| decode::term(self.env, term));
        self.checked(made)
    }

    fn tuple(&mut self, elements: &[Term]) -> Term {
        self.words += elements.len() + 1;
        self.env.tuple(elements)
    }

    fn list(&mut self, elements: &[Term], tail: Term) -> Term {
        self.words += 2 * elements.len();
        elements
            .iter()
            .rev()
            .fold(tail, |tail, &head| self.env.cons(head, tail))
    }

    fn map(&mut self, keys: &[Term], values: &[Term]) -> Term {
        self.words += 2 * keys.len();
        if let Some(map) = self.env.map(keys, values) {
            return map;
        }
        let empty = self.env.map(&[], &[]).expect("the empty map");
        let pairs = keys.iter().zip(values);
        pairs.fold(empty, |map, (&key, &value)| self.env.map_put(map, key, value))
    }
}

/// Whether an object matches.
fn matching<'a>(program: &'a Program, caller: u64, arena: &'a mut Arena) -> impl FnMut(&ObjectRef<'_>) -> bool + 'a {
    move |object| {
        arena.clear();
        let from = program.candidate(seen(object));
        from.is_some_and(|from| program.is_true(from, &seen(object), caller, arena))
    }
}

/// What programs need of the VM.
fn vm() -> cats_pattern::Vm {
    cats_pattern::Vm {
        true_: atoms::true_().0,
        false_: atoms::false_().0,
        exit: atoms::exit().0,
        underscore: atoms::underscore().0,
        atom_text: crate::held::host::atom_text,
        node_of: |term| crate::held::host::with_term(term, |env, term| node_of(env, term).map(|node| node.0)),
        fun_arity: |term| {
            crate::held::host::with_term(term, |env, term| {
                external::of(env, term).and_then(|bytes| external::fun_arity(&bytes))
            })
        },
        bit_size: |term| {
            crate::held::host::with_term(term, |env, term| {
                external::of(env, term).map(|bytes| external::bits(&bytes, &mut Vec::new()) as u64)
            })
        },
        open: |term| {
            crate::held::host::with_term(term, |env, term| {
                built(|builder| encode::specification(env, term, builder)).ok()
            })
        },
    }
}
