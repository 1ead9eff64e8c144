//! Match specifications over objects that are terms of the caller: what a transaction sees is not a table.

use super::select::{compiled, seen, Maker, SLICE_WORDS};
use super::*;
use cats_pattern::{Arena, Keys};

/// `select_key(Specification, Position)`: `{Key}`, if objects match only with this key at that position, or `none`.
pub fn select_key(env: Env, &[specification, position]: &[Term; 2]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    let program = compiled(env, &pin(), specification)?;
    let position = position
        .small_integer()
        .and_then(|position| usize::try_from(position).ok());
    let place = position.and_then(|position| position.checked_sub(1)).ok_or_else(bad)?;
    match program.keys(place, false).ok_or_else(no_memory)? {
        Keys::Exact(keys) if keys.len() == 1 => {
            let key = keys[0].as_ref();
            check_words(key.words())?;
            Ok(env.tuple(&[decode::term(env, key.element(0))?]))
        }
        _ => Ok(atoms::none()),
    }
}

/// `select_terms(Objects, Specification, Results)`: puts the results for the first objects before the list of results, and returns
/// `{OtherObjects, Results}`.
pub fn select_terms(env: Env, &[objects, specification, results]: &[Term; 3]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    let guard = pin();
    let program = compiled(env, &guard, specification)?;
    check_words(program.words())?;
    let caller = env.this_process().0;
    let mut arena = Arena::within(fits);
    let (mut rest, mut results, mut words) = (objects, results, program.words());
    while let Some((object, others)) = env.cell(rest) {
        if words > SLICE_WORDS && rest != objects {
            break;
        }
        let block = match block(env, encode::tuple(env, object)?) {
            // What was done before counts.
            Err(Failure::Big) if rest != objects => break,
            block => block?,
        };
        let object = ObjectRef::Block(block.as_ref());
        words += object.words();
        if let Some(from) = program.candidate(seen(&object)) {
            arena.clear();
            let mut maker = Maker::new(env, &object);
            let made = program.run(from, &seen(&object), caller, &arena, &mut maker);
            words += arena.spent();
            match maker.finish(&arena) {
                Err(Failure::Big) if rest != objects => break,
                made => words += made?,
            }
            if let Some(result) = made {
                results = env.cons(result, results);
            }
        }
        rest = others;
    }
    account(env, words);
    match rest.0 == NIL || env.cell(rest).is_some() {
        true => Ok(env.tuple(&[rest, results])),
        false => Err(bad()),
    }
}
