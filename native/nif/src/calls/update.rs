//! `update_counter/3,4`, `update_element/3,4`.

use super::*;
use crate::external;
use cats_sync::epoch::pin;
use cats_table::{CounterOp, ElementOp, Number, Tuple};
use cats_term::View;

pub fn update_counter(env: Env, &[table, key, ops]: &[Term; 3]) -> Result<Term, Failure> {
    counter(env, table, key, ops, None)
}

pub fn update_counter_default(env: Env, &[table, key, ops, default]: &[Term; 4]) -> Result<Term, Failure> {
    counter(env, table, key, ops, Some(default))
}

#[inline(always)]
fn counter(env: Env, table: Term, key: Term, ops: Term, default: Option<Term>) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, Right::Write)?;
    let sound = default.is_none_or(|tuple| env.tuple_elements(tuple).is_some_and(|tuple| !tuple.is_empty()));
    if let (Some((position, increment)), true, true) = (addition(env, ops), key.is_immediate(), sound) {
        let probe = handle.table().probe(TermRef::immediate(key.0));
        if let Some(value) = handle.add_to_pair(&probe, position, increment)? {
            return Ok(env.integer(value));
        }
    }
    counter_in_general(env, handle, key, ops, default)
}

/// The position, if there is one, and the increment of the simplest operations.
#[inline]
fn addition(env: Env, ops: Term) -> Option<(Option<i64>, i64)> {
    if let Some(increment) = ops.small_integer() {
        return Some((None, increment));
    }
    match env.tuple_elements(ops) {
        Some(&[position, increment]) => Some((Some(position.small_integer()?), increment.small_integer()?)),
        _ => None,
    }
}

#[inline(never)]
fn counter_in_general(
    env: Env,
    handle: Handle<'_>,
    key: Term,
    ops: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    with_default(env, default, |default| {
        with_probe(env, handle.table(), key, |probe| {
            if let Some((position, increment)) = addition(env, ops) {
                return number(env, &handle.add_to_counter(probe, position, increment, default)?);
            }
            if let Some(increment) = get_number(env, ops) {
                let op = CounterOp::Add {
                    position: None,
                    increment,
                    limit: None,
                };
                return number(env, &handle.update_counter(probe, &[op], default)?[0]);
            }
            if env.tuple_elements(ops).is_some() {
                return number(env, &handle.update_counter(probe, &[counter_op(env, ops)], default)?[0]);
            }
            let mut list = Vec::new();
            each(env, ops, |op| {
                list.push(op.map_or(CounterOp::Invalid, |op| counter_op(env, op)));
                list.last() != Some(&CounterOp::Invalid)
            });
            let values = handle.update_counter(probe, &list, default)?;
            let mut result = Term(NIL);
            for value in values.iter().rev() {
                result = env.cons(number(env, value)?, result);
            }
            Ok(result)
        })
    })
}

/// `{Position, Increment}` or `{Position, Increment, Threshold, SetValue}`.
fn counter_op(env: Env, op: Term) -> CounterOp {
    let parse = || {
        let elements = env.tuple_elements(op)?;
        let limit = match *elements {
            [_, _] => None,
            [_, _, threshold, value] => Some((get_number(env, threshold)?, get_number(env, value)?)),
            _ => return None,
        };
        Some(CounterOp::Add {
            position: Some(elements[0].small_integer()?),
            increment: get_number(env, elements[1])?,
            limit,
        })
    };
    parse().unwrap_or(CounterOp::Invalid)
}

fn get_number(env: Env, term: Term) -> Option<Number> {
    if let Some(value) = term.small_integer() {
        return Some(Number::Small(value));
    }
    if term.is_immediate() || !env.is_number(term) {
        return None;
    }
    let mut builder = Builder::new();
    encode::key(env, term, &mut builder).ok()?;
    Number::of(builder.as_key())
}

fn number(env: Env, value: &Number) -> Result<Term, Failure> {
    match value {
        Number::Small(value) => Ok(env.integer(*value)),
        Number::Big(_) => {
            let (negative, digits) = value.digits();
            external::make_integer(env, negative, &digits).ok_or(Failure::SystemLimit)
        }
    }
}

/// Shows each element of a list, and then nothing if it is no proper list, while `show` returns true.
fn each(env: Env, list: Term, mut show: impl FnMut(Option<Term>) -> bool) {
    let mut rest = list;
    while let Some((head, tail)) = env.cell(rest) {
        if !show(Some(head)) {
            return;
        }
        rest = tail;
    }
    if rest.0 != NIL {
        show(None);
    }
}

/// Lends the default tuple, if there is one.
fn with_default<R>(
    env: Env,
    default: Option<Term>,
    f: impl FnOnce(Option<Tuple<'_>>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let Some(default) = default else { return f(None) };
    let elements = env.tuple_elements(default).ok_or(Cause::Default)?;
    if let Some(words) = encode::immediates(elements) {
        return f(Some(Tuple::Flat(words)));
    }
    let mut builder = Builder::new();
    encode::object(env, elements, &mut builder)?;
    match builder.root().view() {
        View::Tuple(elements) => f(Some(Tuple::Terms(elements))),
        _ => unreachable!("a tuple was built"),
    }
}

pub fn update_element(env: Env, &[table, key, elements]: &[Term; 3]) -> Result<Term, Failure> {
    change_elements(env, table, key, elements, None)
}

pub fn update_element_default(env: Env, &[table, key, elements, default]: &[Term; 4]) -> Result<Term, Failure> {
    change_elements(env, table, key, elements, Some(default))
}

fn change_elements(env: Env, table: Term, key: Term, ops: Term, default: Option<Term>) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, Right::Write)?;
    let mut positions: Vec<Option<i64>> = Vec::new();
    let mut values: Vec<Term> = Vec::new();
    let mut add = |op: Option<Term>| {
        let pair = op.and_then(|op| match env.tuple_elements(op) {
            Some(&[position, value]) => Some((position.small_integer()?, value)),
            _ => None,
        });
        positions.push(pair.map(|(position, _)| position));
        values.push(pair.map_or(Term(NIL), |(_, value)| value));
        pair.is_some()
    };
    if env.tuple_elements(ops).is_some() {
        add(Some(ops));
    } else {
        each(env, ops, add);
    }
    let mut builder = Builder::new();
    encode::object(env, &values, &mut builder)?;
    let View::Tuple(elements) = builder.root().view() else {
        unreachable!("a tuple was built")
    };
    let ops: Vec<ElementOp<'_>> = positions
        .iter()
        .zip(elements.iter())
        .map(|(position, value)| position.map_or(ElementOp::Invalid, |position| ElementOp::Set(position, value)))
        .collect();
    let updated = with_default(env, default, |default| {
        with_probe(env, handle.table(), key, |probe| {
            Ok(handle.update_element(probe, &ops, default)?)
        })
    })?;
    Ok(atoms::boolean(updated))
}
