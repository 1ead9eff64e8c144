//! `update_counter/3,4`, `update_element/3,4`.

use super::*;
use crate::vm::external;
use cats_table::{Addition, CounterOp, ElementOp, Number, Tuple, Words, DIGITS_LIMIT};
use cats_term::{NewElement, View};
use smallvec::SmallVec;

/// The number of operations for which there is room on the stack.
pub(super) const STACK_OPS: usize = 4;
/// With more operations than this, a call takes too long for a normal scheduler.
const OPERATIONS_LIMIT: Budget = Budget(1000);

pub fn update_counter(env: Env, &[table, key, ops]: &[Term; 3]) -> Result<Term, Failure> {
    counter(env, table, key, ops, None)
}

pub fn update_counter_default(env: Env, &[table, key, ops, default]: &[Term; 4]) -> Result<Term, Failure> {
    counter(env, table, key, ops, Some(default))
}

#[inline(always)]
fn counter(env: Env, table: Term, key: Term, ops: Term, default: Option<Term>) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, UPDATE)?;
    if !key.is_immediate() {
        return counter_by_other_key(env, handle, key, ops, default);
    }
    let probe = handle.table().probe(TermRef::immediate(key.0));
    if let (Some((position, increment)), true) = (simple_addition(env, handle, ops), is_sound(env, handle, default)) {
        if let Some(word) = handle.add(&probe, position, increment)? {
            return Ok(Term(word));
        }
    }
    counter_of(env, handle, &probe, ops, default)
}

pub(super) const NO_ADDITION: Addition = Addition {
    position: 0,
    increment: 0,
    limit: None,
};

/// Has `write` write each operation of a list to a place. Returns their number. 0 if there are fewer places, or if `write` cannot write one.
#[inline(always)]
fn write_few<P>(
    env: Env,
    ops: Term,
    mut places: impl Iterator<Item = P>,
    write: impl Fn(P, Term) -> Option<()>,
) -> usize {
    let (mut rest, mut count) = (ops, 0);
    while let Some((op, tail)) = env.cell(rest) {
        if places.next().and_then(|place| write(place, op)).is_none() {
            return 0;
        }
        count += 1;
        rest = tail;
    }
    match rest.0 == NIL {
        true => count,
        false => 0,
    }
}

/// [`write_few`] for valid operations of immediates.
#[inline(never)]
pub(super) fn few_additions(env: Env, ops: Term, additions: &mut [Addition; STACK_OPS]) -> usize {
    write_few(env, ops, additions.iter_mut(), |place, op| {
        *place = addition(env, op)?;
        Some(())
    })
}

/// Whether the default, if there is one, is an object for this table.
#[inline]
pub(super) fn is_sound(env: Env, handle: Handle<'_>, default: Option<Term>) -> bool {
    let has_key = |elements: &[Term]| elements.len() > handle.table().key();
    default.is_none_or(|tuple| env.tuple_elements(tuple).is_some_and(has_key))
}

/// The position, counted from 1, of the element behind a key at `place`, counted from 0.
#[inline]
pub(super) fn after(place: usize) -> i64 {
    place as i64 + 2
}

/// The position and the increment of an operation, if it is of the simplest form.
#[inline]
pub(super) fn simple_addition(env: Env, handle: Handle<'_>, ops: Term) -> Option<(i64, i64)> {
    if let Some(increment) = ops.small_integer() {
        return Some((after(handle.table().key()), increment));
    }
    match env.tuple_elements(ops) {
        Some(&[position, increment]) => Some((position.small_integer()?, increment.small_integer()?)),
        _ => None,
    }
}

/// Updates by a key that is not an immediate.
#[inline(never)]
fn counter_by_other_key(
    env: Env,
    handle: Handle<'_>,
    key: Term,
    ops: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    with_callers_key(env, handle.table(), key, |probe, _| {
        counter_of(env, handle, probe, ops, default)
    })
}

/// Tries first the case that all numbers are immediates and the object exists.
#[inline(never)]
fn counter_of(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    ops: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    if is_sound(env, handle, default) {
        let done = match single_addition(env, handle, ops) {
            Some(addition) => handle.add_one(probe, addition)?.map(Term),
            None => add_several(env, handle, probe, ops)?,
        };
        if let Some(result) = done {
            return Ok(result);
        }
    }
    counter_in_general(env, handle, probe, ops, default)
}

/// An operation that is not in a list, if its numbers are immediates.
#[inline(always)]
fn single_addition(env: Env, handle: Handle<'_>, ops: Term) -> Option<Addition> {
    match ops.small_integer() {
        Some(increment) => Some(Addition {
            position: after(handle.table().key()),
            increment,
            limit: None,
        }),
        None => addition(env, ops),
    }
}

/// The results of a list of operations, if they and the elements have only immediates and the key has an object.
#[inline(always)]
fn add_several(env: Env, handle: Handle<'_>, probe: &Probe<'_>, ops: Term) -> Result<Option<Term>, Failure> {
    let (mut additions, mut words) = ([NO_ADDITION; STACK_OPS], [0; STACK_OPS]);
    let count = few_additions(env, ops, &mut additions);
    let words = &mut words[..count];
    match count > 0 && handle.add_in_place(probe, &additions[..count], words)? {
        true => Ok(Some(env.list(Term::slice(words)))),
        false => add_anew(env, handle, probe, ops),
    }
}

/// The same, in a new object.
#[inline(never)]
fn add_anew(env: Env, handle: Handle<'_>, probe: &Probe<'_>, ops: Term) -> Result<Option<Term>, Failure> {
    let (mut additions, mut words) = (SmallVec::<[Addition; STACK_OPS]>::new(), Words::new());
    let mut rest = ops;
    while let Some((op, tail)) = env.cell(rest) {
        let Some(addition) = addition(env, op) else {
            return Ok(None);
        };
        additions.push(addition);
        check_count(additions.len())?;
        rest = tail;
    }
    let done = rest.0 == NIL && handle.add_all(probe, &additions, &mut words)?;
    Ok(done.then(|| env.list(Term::slice(&words))))
}

/// Fails with `Big` if these are too many operations for this scheduler.
#[inline]
fn check_count(operations: usize) -> Result<(), Failure> {
    Ok(OPERATIONS_LIMIT.check(operations)?)
}

/// An operation on one position, if its numbers are immediates.
#[inline(always)]
fn addition(env: Env, op: Term) -> Option<Addition> {
    let (position, increment, limit) = match *env.tuple_elements(op)? {
        [position, increment] => (position, increment, None),
        [position, increment, threshold, value] => (
            position,
            increment,
            Some((threshold.small_integer()?, value.small_integer()?)),
        ),
        _ => return None,
    };
    Some(Addition {
        position: position.small_integer()?,
        increment: increment.small_integer()?,
        limit,
    })
}

#[inline(never)]
fn counter_in_general(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    ops: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    let place = handle.table().key();
    let update = |ops: &[CounterOp]| {
        with_default(env, place, default, |default| {
            handle.update_counter(probe, ops, default, &has_integer(env))
        })
    };
    let mut digits = 0;
    if let Some(increment) = get_number(env, ops, &mut digits)? {
        let op = CounterOp::Add {
            position: after(place),
            increment,
            limit: None,
        };
        return number(env, &update(&[op])?[0]);
    }
    if env.tuple_elements(ops).is_some() {
        return number(env, &update(&[counter_op(env, ops, &mut digits)?])?[0]);
    }
    let mut list: SmallVec<[CounterOp; STACK_OPS]> = SmallVec::new();
    each(env, ops, |op| {
        let op = op.map_or(Ok(CounterOp::Invalid), |op| counter_op(env, op, &mut digits))?;
        list.push(op);
        Ok(list.last() != Some(&CounterOp::Invalid))
    })?;
    let mut result = Term(NIL);
    for value in update(&list)?.iter().rev() {
        result = env.cons(number(env, value)?, result);
    }
    Ok(result)
}

/// An operation `{Position, Increment}` or `{Position, Increment, Threshold, SetValue}`. Counts digits as
/// [`get_number`] does.
fn counter_op(env: Env, op: Term, digits: &mut usize) -> Result<CounterOp, Failure> {
    let mut number = |term| get_number(env, term, digits);
    let (position, increment, limit) = match env.tuple_elements(op) {
        Some(&[position, increment]) => (position, number(increment)?, Some(None)),
        Some(&[position, increment, threshold, value]) => (
            position,
            number(increment)?,
            number(threshold)?.zip(number(value)?).map(Some),
        ),
        _ => return Ok(CounterOp::Invalid),
    };
    Ok(match (position.small_integer(), increment, limit) {
        (Some(position), Some(increment), Some(limit)) => CounterOp::Add {
            position,
            increment,
            limit,
        },
        _ => CounterOp::Invalid,
    })
}

/// The integer that a term is, if it is one. Adds the number of its digits to `digits`. Fails with `Big` when they
/// become too many for this scheduler.
pub(super) fn get_number(env: Env, term: Term, digits: &mut usize) -> Result<Option<Number>, Failure> {
    if let Some(value) = term.small_integer() {
        return Ok(Some(Number::Small(value)));
    }
    if term.is_immediate() || !env.is_number(term) {
        return Ok(None);
    }
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    encode::key(env, term, &mut builder)?;
    *digits += builder.words();
    DIGITS_LIMIT.check(*digits)?;
    Ok(Number::of(builder.as_key()))
}

/// Whether the VM has an integer. O(digits).
pub(super) fn has_integer(env: Env<'_>) -> impl Fn(&Number) -> bool + '_ {
    move |value| number(env, value).is_ok()
}

pub(super) fn number(env: Env, value: &Number) -> Result<Term, Failure> {
    match value {
        Number::Small(value) => Ok(env.integer(*value)),
        Number::Big(_) => {
            let (negative, digits) = value.digits();
            external::make_integer(env, negative, &digits).ok_or_else(|| Failure::SystemLimit(atoms::integer()))
        }
    }
}

/// Calls `show` with each element of a list while it returns true. For an improper list it is called with nothing at
/// the end. Fails with `Big` when there are too many elements for this scheduler.
pub(super) fn each(
    env: Env,
    list: Term,
    mut show: impl FnMut(Option<Term>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (mut rest, mut count) = (list, 0);
    while let Some((head, tail)) = env.cell(rest) {
        count += 1;
        check_count(count)?;
        if !show(Some(head))? {
            return Ok(());
        }
        rest = tail;
    }
    if rest.0 != NIL {
        show(None)?;
    }
    Ok(())
}

/// Runs an update in a table whose key is at `place`, with the default tuple if there is one. A default that needs a
/// block is built only if the key has no object.
fn with_default<R>(
    env: Env,
    place: usize,
    default: Option<Term>,
    update: impl Fn(Option<Tuple<'_>>) -> Result<R, cats_table::Failure>,
) -> Result<R, Failure> {
    let Some(default) = default else {
        return Ok(update(None)?);
    };
    let elements = env.tuple_elements(default).ok_or(Cause::Default)?;
    if let Some(words) = encode::immediates(elements) {
        return Ok(update(Some(Tuple::Flat(words)))?);
    }
    if elements.len() <= place {
        return Err(Cause::Default.into());
    }
    match update(None) {
        Err(cats_table::Failure::Bad(Cause::BadKey)) => (),
        result => return Ok(result?),
    }
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    encode::object(env, elements, &mut builder)?;
    match builder.root().view() {
        View::Tuple(elements) => Ok(update(Some(Tuple::Terms(elements)))?),
        _ => unreachable!("a tuple was built"),
    }
}

pub fn update_element(env: Env, &[table, key, elements]: &[Term; 3]) -> Result<Term, Failure> {
    change_elements(env, table, key, elements, None)
}

pub fn update_element_default(env: Env, &[table, key, elements, default]: &[Term; 4]) -> Result<Term, Failure> {
    change_elements(env, table, key, elements, Some(default))
}

#[inline(always)]
fn change_elements(env: Env, table: Term, key: Term, ops: Term, default: Option<Term>) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, UPDATE)?;
    if !key.is_immediate() {
        return change_by_other_key(env, handle, key, ops, default);
    }
    let probe = handle.table().probe(TermRef::immediate(key.0));
    if let (Some((position, value)), true) = (change(env, ops), is_sound(env, handle, default)) {
        if value.is_immediate() && handle.set(&probe, position, value.0)? {
            return Ok(atoms::true_());
        }
    }
    change_of(env, handle, &probe, ops, default)
}

/// Updates by a key that is not an immediate.
#[inline(never)]
fn change_by_other_key(
    env: Env,
    handle: Handle<'_>,
    key: Term,
    ops: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    with_callers_key(env, handle.table(), key, |probe, _| {
        change_of(env, handle, probe, ops, default)
    })
}

/// Tries first the cases that the object exists, and all elements are immediates or fit in place, or there is only one.
#[inline(always)]
fn change_of(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    ops: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    match env.cell(ops) {
        None => change_one(env, handle, probe, ops, default),
        Some(_) => change_several(env, handle, probe, ops, default),
    }
}

/// An operation that is not in a list.
#[inline(never)]
fn change_one(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    op: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    if let (Some((position, value)), true) = (change(env, op), is_sound(env, handle, default)) {
        let done = match new_element(env, index_of(position), value) {
            Some(new) => handle.set_in_place(probe, &[new])?,
            None => false,
        };
        if done || set_item(env, handle, probe, position, value)? {
            return Ok(atoms::true_());
        }
    }
    set_in_general(env, handle, probe, op, default)
}

/// The operations of a list of at least one.
#[inline(never)]
fn change_several(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    ops: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    if is_sound(env, handle, default) {
        let done = set_few(env, handle, probe, ops)?
            || set_longer(env, handle, probe, ops)?
            || set_words_anew(env, handle, probe, ops)?;
        if done {
            return Ok(atoms::true_());
        }
    }
    set_in_general(env, handle, probe, ops, default)
}

/// Sets few elements in place that are immediates or short. False if that was not possible; then nothing was done.
#[inline(always)]
fn set_few(env: Env, handle: Handle<'_>, probe: &Probe<'_>, ops: Term) -> Result<bool, Failure> {
    let mut few = [(0, NIL); STACK_OPS];
    let count = write_few(
        env,
        ops,
        few.iter_mut(),
        #[inline(always)]
        |place, op| {
            let (position, value) = change(env, op)?;
            *place = (index_of(position), value.0);
            Some(())
        },
    );
    let few = &few[..count];
    if few.is_empty() {
        return Ok(false);
    }
    if few.iter().all(|(_, word)| Term(*word).is_immediate()) {
        return Ok(handle.set_in_place(probe, few)?);
    }
    let mut elements = [NewElement::immediate(0, NIL); STACK_OPS];
    for (place, (index, word)) in elements.iter_mut().zip(few) {
        match new_element(env, *index, Term(*word)) {
            Some(new) => *place = new,
            None => return Ok(false),
        }
    }
    Ok(handle.set_in_place(probe, &elements[..count])?)
}

/// A new element, if it is an immediate or [`encode::short`] and not counted.
#[inline(always)]
fn new_element<'e>(env: Env<'e>, index: usize, value: Term) -> Option<NewElement<'e>> {
    if value.is_immediate() {
        return Some(NewElement::immediate(index, value.0));
    }
    if !layout::is_known() {
        return None;
    }
    // SAFETY: the layout of terms is known, and this term belongs to the environment.
    unsafe {
        encode::short(
            env,
            value,
            #[inline(always)]
            |part| NewElement::short(index, part),
        )
    }
}

/// Sets one element that could not be set in place as a short one. False if the key has no object; then nothing was done.
#[inline(never)]
fn set_item(env: Env, handle: Handle<'_>, probe: &Probe<'_>, position: i64, value: Term) -> Result<bool, Failure> {
    if value.is_immediate() {
        return Ok(handle.set(probe, position, value.0)?);
    }
    let mut room = Room::new();
    match new_item(env, position, value, &mut room) {
        Some(change) if handle.set_in_place(probe, &[change])? => Ok(true),
        _ => set_anew(env, handle, probe, position, value),
    }
}

/// Sets few elements in place, among them longer items. False if that was not possible; then nothing was done.
#[inline(never)]
fn set_longer(env: Env, handle: Handle<'_>, probe: &Probe<'_>, ops: Term) -> Result<bool, Failure> {
    let mut room = Room::new();
    let Some(changes) = new_elements(env, ops, &mut room) else {
        return Ok(false);
    };
    Ok(handle.set_in_place(probe, &changes)?)
}

/// Sets immediates in a new object.
#[inline(never)]
fn set_words_anew(env: Env, handle: Handle<'_>, probe: &Probe<'_>, ops: Term) -> Result<bool, Failure> {
    let mut words = SmallVec::new();
    Ok(push_words(env, ops, &mut words)? && handle.set_all(probe, &words)?)
}

/// One new element, which is not an immediate. Nothing if it can never be set in place.
#[inline(never)]
fn new_item<'r>(
    env: Env,
    position: i64,
    value: Term,
    room: &'r mut Room<{ encode::fast::WORDS }>,
) -> Option<NewElement<'r>> {
    if !layout::is_known() {
        return None;
    }
    // SAFETY: the layout of terms is known, and this term belongs to the environment.
    let (word, _) = unsafe { encode::fast::key(env, value, room) }?;
    // SAFETY: the word was made for this room. Binaries outside the heap, which belong to the environment, are counted. So they make no
    // element.
    NewElement::new(index_of(position), unsafe { room.term(word) })
}

/// The index of a position that is counted from 1. If there is no such position, an index that no element has.
#[inline]
fn index_of(position: i64) -> usize {
    (position as usize).wrapping_sub(1)
}

/// The new elements of few operations, whose items are written to `room`. `None` if one is not valid or cannot be set in place.
fn new_elements<'r>(
    env: Env,
    ops: Term,
    room: &'r mut Room<{ encode::fast::WORDS }>,
) -> Option<SmallVec<[NewElement<'r>; STACK_OPS]>> {
    let (mut indices, mut values) = ([0; STACK_OPS], [Term(NIL); STACK_OPS]);
    let count = write_few(env, ops, indices.iter_mut().zip(&mut values), |(index, place), op| {
        let (position, value) = change(env, op)?;
        (*index, *place) = (index_of(position), value);
        Some(())
    });
    if count == 0 || !layout::is_known() {
        return None;
    }
    // SAFETY: the layout of terms is known, and these terms belong to the environment.
    let items = unsafe { encode::fast::tuple(env, &values[..count], room) }?;
    let View::Tuple(items) = items.view() else {
        unreachable!("a tuple was built")
    };
    let elements = indices.iter().zip(items.iter());
    elements.map(|(index, item)| NewElement::new(*index, item)).collect()
}

/// Sets one element, which is not an immediate, in a new object. False if the key has no object; then nothing was done.
#[inline(never)]
fn set_anew(env: Env, handle: Handle<'_>, probe: &Probe<'_>, position: i64, value: Term) -> Result<bool, Failure> {
    with_built_key(env, value, |value| {
        let op = ElementOp::Set(position, value.term);
        match handle.update_element(probe, &[op], None) {
            Err(cats_table::Failure::Bad(Cause::BadKey)) => Ok(false),
            result => Ok(result.map(|()| true)?),
        }
    })
}

/// Appends all operations as positions and words. False unless all are valid and their elements are immediates.
#[inline]
fn push_words(env: Env, ops: Term, words: &mut SmallVec<[(i64, u64); STACK_OPS]>) -> Result<bool, Failure> {
    let mut count = 0;
    let mut push = |op| match change(env, op) {
        Some((position, value)) if value.is_immediate() => {
            words.push((position, value.0));
            true
        }
        _ => false,
    };
    let mut rest = ops;
    while let Some((op, tail)) = env.cell(rest) {
        count += 1;
        check_count(count)?;
        if !push(op) {
            return Ok(false);
        }
        rest = tail;
    }
    Ok(rest.0 == NIL || rest == ops && push(ops))
}

#[inline(never)]
fn set_in_general(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    ops: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    // Position and element of each operation; nothing for one that is not valid.
    let mut changes: SmallVec<[Option<(i64, Term)>; STACK_OPS]> = SmallVec::new();
    if env.tuple_elements(ops).is_some() {
        changes.push(change(env, ops));
    } else {
        each(env, ops, |op| {
            let change = op.and_then(|op| change(env, op));
            changes.push(change);
            Ok(change.is_some())
        })?;
    }
    let values: SmallVec<[Term; STACK_OPS]> = changes
        .iter()
        .map(|change| change.map_or(Term(NIL), |(_, value)| value))
        .collect();
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    encode::object(env, &values, &mut builder)?;
    let View::Tuple(values) = builder.root().view() else {
        unreachable!("a tuple was built")
    };
    let op = |(change, value): (&Option<(i64, Term)>, _)| match change {
        Some((position, _)) => ElementOp::Set(*position, value),
        None => ElementOp::Invalid,
    };
    let ops: SmallVec<[ElementOp<'_>; STACK_OPS]> = changes.iter().zip(values.iter()).map(op).collect();
    let absent = Failure::from(Cause::BadKey);
    let place = handle.table().key();
    match with_default(env, place, default, |default| {
        handle.update_element(probe, &ops, default)
    }) {
        Err(failure) if failure == absent => Ok(atoms::false_()),
        result => result.map(|()| atoms::true_()),
    }
}

/// Position and element of an operation of `update_element`, if it is one.
#[inline]
fn change(env: Env, op: Term) -> Option<(i64, Term)> {
    match env.tuple_elements(op) {
        Some(&[position, value]) => Some((position.small_integer()?, value)),
        _ => None,
    }
}
