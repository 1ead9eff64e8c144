//! `take_many/2`, `delete_many/2`, `insert_many/2`: the same operation on many keys or objects, one after the other. In a large table the
//! memory for a group of them is prefetched before the first is treated, so the cache misses overlap.
//!
//! One call treats the first of them, and says what is left. It fails only while it has done nothing.

use super::read::{behind, GROUP, MOST_AT_ONCE};
use super::*;

/// The objects of each key, as a list of lists, which are not in the table any more. If one call cannot take all: `{Lists, Rest}` with the
/// lists of the first keys and the keys that are left.
pub fn take_many(env: Env, &[table, keys]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    let (mut lists, mut words) = (SmallVec::<[Term; MOST_AT_ONCE]>::new(), 0);
    let rest = of_each(env, handle, keys, |probe| {
        let mut taken = Objects::none();
        handle.take(probe, Budget(SCHEDULER_WORDS.0.saturating_sub(words)), &mut taken)?;
        let objects = taken.as_slice();
        words += objects.iter().map(ObjectRef::words).sum::<usize>();
        lists.push(list(env, objects)?);
        Ok(())
    })?;
    wake(env);
    count_others(handle, Operation::Delete, lists.len());
    account(env, words + lists.len() * 30);
    Ok(match rest.0 {
        NIL => env.list(&lists),
        _ => env.tuple(&[env.list(&lists), rest]),
    })
}

/// Deletes the objects of the first keys, and returns the keys that are left.
pub fn delete_many(env: Env, &[table, keys]: &[Term; 2]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    let mut count = 0;
    let rest = of_each(env, handle, keys, |probe| {
        count += 1;
        Ok(handle.delete(probe)?)
    })?;
    wake(env);
    count_others(handle, Operation::Delete, count);
    account(env, count * 30);
    Ok(rest)
}

/// Counts the operations of a call but one, as which the call itself was counted.
fn count_others(handle: Handle<'_>, operation: Operation, count: usize) {
    handle.table().count_more(operation, count.saturating_sub(1));
}

/// Calls `act` for the first keys of a list. Returns the rest: those for which there was no time, or the first for which `act` failed and
/// those behind it. Fails if nothing was done.
fn of_each(
    env: Env,
    handle: Handle<'_>,
    keys: Term,
    mut act: impl FnMut(&Probe<'_>) -> Result<(), Failure>,
) -> Result<Term, Failure> {
    let together = handle.outgrows_caches();
    let (mut rest, mut words, mut count) = (keys, 0, 0);
    // A room is large, so it is made only when a key needs it.
    let mut rooms: [Option<Box<KeyRoom>>; GROUP] = Default::default();
    while count < MOST_AT_ONCE && rest.0 != NIL {
        let mut probes = SmallVec::<[Probe<'_>; GROUP]>::new();
        let (mut next, mut failure) = (rest, None);
        for room in &mut rooms {
            let Some((key, tail)) = env.cell(next) else { break };
            let probe = match key.is_immediate() {
                true => Ok(handle.table().probe(TermRef::immediate(key.0))),
                false => {
                    let room = room.get_or_insert_with(|| Box::new((Room::new(), None)));
                    probe_in(env, handle.table(), key, room).map(|(probe, built)| {
                        words += built;
                        probe
                    })
                }
            };
            match probe {
                Ok(probe) if fits(words) => probes.push(probe),
                Ok(_) => failure = Some(Failure::Big),
                Err(error) => failure = Some(error),
            }
            if failure.is_some() {
                break;
            }
            next = tail;
        }
        if probes.is_empty() && failure.is_none() {
            failure = Some(bad());
        }
        if together {
            handle.prefetch_together(probes.iter());
        }
        for probe in &probes {
            if let Err(error) = act(probe) {
                failure = Some(error);
                break;
            }
            count += 1;
            rest = behind(env, rest, 1);
        }
        match failure {
            Some(failure) if count == 0 => return Err(failure),
            Some(_) => break,
            None => (),
        }
    }
    Ok(rest)
}

/// Inserts the first objects, and returns those that are left.
pub fn insert_many(env: Env, &[table, objects]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    let (mut rest, mut words, mut count) = (objects, 0, 0);
    while count < MOST_AT_ONCE && rest.0 != NIL {
        let mut group = SmallVec::<[Object<'_>; GROUP]>::new();
        let (mut next, mut failure) = (rest, None);
        while group.len() < GROUP && next.0 != NIL {
            let made = env.cell(next).ok_or_else(bad).and_then(|(head, tail)| {
                next = tail;
                object(env, handle, env.tuple_elements(head).ok_or_else(bad)?)
            });
            match made {
                Ok(object) if fits(words + object.words()) => {
                    words += object.words();
                    group.push(object);
                }
                Ok(_) => failure = Some(Failure::Big),
                Err(error) => failure = Some(error),
            }
            if failure.is_some() {
                break;
            }
        }
        let (inserted, result) = handle.insert_together(group);
        count += inserted;
        rest = behind(env, rest, inserted);
        let failure = result.map_err(Failure::from).err().or(failure);
        match failure {
            Some(failure) if count == 0 => return Err(failure),
            Some(_) => break,
            None => (),
        }
    }
    count_others(handle, Operation::Insert, count);
    account(env, words + count * 50);
    Ok(rest)
}
