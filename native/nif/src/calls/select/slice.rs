//! A slice of a call: it goes over the objects of a table step by step, and does to each that matches what is to be done.

use super::arrange::{arrange, Candidate};
use super::maker::stored;
use super::*;
use cats_pattern::Foregone;
use cats_sync::{probe, trace};
use cats_table::Met;
use std::time::Duration;

/// How long one slice takes, roughly.
const SLICE: Duration = Duration::from_micros(200);
/// Keys whose objects are asked for at once within a slice: some at first, more while a step takes no longer than `STEP`.
const SOME_OBJECTS: usize = 64;
const MANY_OBJECTS: usize = 128;
const MANY_ORDERED: usize = 512;
const STEP: Duration = Duration::from_micros(25);
/// Objects for which there is room at first: of so many, memory is had at once.
const ROOM: usize = 40;
/// From how many nanoseconds on a slice counts as one that has held its scheduler for long.
const LONG_NS: Budget = Budget(1_000_000);
/// Words of a list's cell.
const CELL_WORDS: usize = 2;
/// Words of an object from which on it counts, whatever is made of it: guards and replacements may go through all of it.
const LARGE: usize = 500;
/// An element in the line behind that of an object's beginning: few objects lie in one line, even if they are small.
const SECOND_LINE: usize = 7;
/// How many objects before it is come to an object's memory is asked for.
const AHEAD: usize = 32;

/// One slice.
pub(super) fn run(env: Env, handle: Handle<'_>, mut task: Task, result: Term) -> Result<Term, Failure> {
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

pub(super) struct Slice<'e, 'g> {
    pub(super) env: Env<'e>,
    pub(super) handle: Handle<'g>,
    pub(super) caller: u64,
    pub(super) arena: Arena,
    pub(super) result: Term,
    /// What comes to a result that is a number.
    pub(super) counted: usize,
    pub(super) words: usize,
    pub(super) yields: Yields,
    /// Results so far, and how many of them are wanted.
    pub(super) found: usize,
    pub(super) limit: usize,
    /// Whether most objects of the last step became results, which takes all of an object.
    pub(super) whole: bool,
    /// Memory for the candidates of a step.
    pub(super) room: (Vec<Candidate>, Vec<u64>),
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

impl<'e, 'g> Slice<'e, 'g> {
    pub(super) fn new(env: Env<'e>, handle: Handle<'g>, action: Action, limit: usize, result: Term) -> Self {
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
    pub(super) fn is_true(&mut self, program: &Program, from: usize, object: &ObjectRef<'g>) -> Result<bool, Failure> {
        self.arena.clear();
        let is_true = program.is_true(from, &seen(object), self.caller, &self.arena);
        self.count_cost()?;
        Ok(is_true)
    }

    /// Counts what the last evaluation cost. `Big` if it was given up as too much for this scheduler.
    #[inline(always)]
    pub(super) fn count_cost(&mut self) -> Result<(), Failure> {
        self.words += self.arena.spent();
        match self.arena.is_exhausted() {
            true => Err(Failure::Big),
            false => Ok(()),
        }
    }

    /// Out of line, as is all that is done to an object that matches: the loop that finds it keeps its registers.
    #[inline(never)]
    pub(super) fn collect(&mut self, program: &Program, from: usize, object: &ObjectRef<'_>) -> Result<(), Failure> {
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
    pub(super) fn replace_all(&mut self, program: &Program, probe: &Probe<'_>) -> Result<usize, Failure> {
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
