//! `lookup_many/2`, `take_many/2`, `delete_many/2`, `insert_many/2`, and the lookups of `fetch_many/3`: the same operation on many keys or
//! objects, one after the other. In a large table the memory for a group of them is prefetched before the first is treated, so the cache
//! misses overlap.
//!
//! One call treats the first of them, and says what is left. It fails only while it has done nothing.

use super::one::check_single;
use super::read::lookup_key;
use super::*;
use cats_term::Scratch;

/// Keys, or objects, that a call with many of them prefetches together.
const GROUP: usize = 16;
/// The most keys, or objects, that one such call treats.
pub(super) const MOST_AT_ONCE: usize = 256;

/// The objects of each key, as a list of lists. If one call cannot look up all keys: `{Lists, Rest}` with the lists of
/// the first keys and the keys that are left.
pub fn lookup_many(env: Env, &[table, keys]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    match env.cell(keys) {
        Some((key, Term(NIL))) => Ok(env.cons(lookup_key::<Used>(env, handle, key)?, Term(NIL))),
        _ => lookup_several(env, handle, keys),
    }
}

/// The same for `fetch_many`: the caller may write to the table. If it gives objects a time to live, fails unless they can expire.
pub fn lookup_many_to_fetch(env: Env, &[table, keys, lasting]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP_TO_FETCH)?;
    check_single(handle.table())?;
    if lasting == atoms::true_() {
        handle.check_expiry()?;
    }
    lookup_several(env, handle, keys)
}

#[inline(always)]
fn lookup_several(env: Env, handle: Handle<'_>, keys: Term) -> Result<Term, Failure> {
    let mut found = Found {
        lists: SmallVec::new(),
        words: 0,
    };
    let most = handle.lookups_at_once(MOST_AT_ONCE);
    let rest = match handle.outgrows_caches() {
        true => look_up_together(env, handle, keys, &mut found)?,
        false if most < MOST_AT_ONCE => timed(env, || look_up_each(env, handle, keys, most, &mut found))?,
        false => look_up_each(env, handle, keys, MOST_AT_ONCE, &mut found)?,
    };
    account(env, found.words + found.lists.len() * 20);
    // The call itself was counted as one.
    handle
        .table()
        .count_more(Operation::Lookup, found.lists.len().saturating_sub(1));
    match (rest.0, &found.lists[..]) {
        (NIL, [list]) => Ok(env.cons(*list, Term(NIL))),
        (NIL, lists) => Ok(env.list(lists)),
        (_, []) => Err(Failure::Big),
        (_, lists) => Ok(env.tuple(&[env.list(lists), rest])),
    }
}

/// The lists of objects of the first keys, and the words of these keys and objects.
struct Found {
    lists: SmallVec<[Term; MOST_AT_ONCE]>,
    words: usize,
}

impl Found {
    /// Counts this many more words. If that becomes too much for this scheduler, returns false and does not count them.
    #[inline(always)]
    fn count(&mut self, words: usize) -> bool {
        let fits = fits(self.words + words);
        self.words += if fits { words } else { 0 };
        fits
    }

    /// Looks up one more key. False if that becomes too much for this scheduler.
    #[inline(always)]
    fn look_up(&mut self, env: Env, handle: Handle<'_>, probe: &Probe<'_>) -> Result<bool, Failure> {
        if handle.table().kind().is_bag() {
            let mut found = Objects::none();
            return match handle.lookup(probe, &mut found) {
                Err(cats_table::Failure::Big) => Ok(false),
                Err(failure) => Err(failure.into()),
                Ok(()) => self.take(env, handle, found.as_slice()),
            };
        }
        match handle.get::<Used>(probe, &mut Scratch::new())? {
            None => self.take(env, handle, &[]),
            Some(object) => self.take(env, handle, &[object]),
        }
    }

    /// Adds the list of the objects of one more key. False if that becomes too much for this scheduler.
    #[inline(always)]
    fn take(&mut self, env: Env, handle: Handle<'_>, objects: &[ObjectRef<'_>]) -> Result<bool, Failure> {
        let fits = self.count(objects.iter().map(ObjectRef::words).sum());
        if fits {
            if objects.is_empty() {
                missed(handle);
            }
            self.lists.push(list(env, objects)?);
        }
        Ok(fits)
    }
}

/// Looks up one key after the other, of which there are `most`. Returns the keys that are left.
#[inline]
fn look_up_each(env: Env, handle: Handle<'_>, keys: Term, most: usize, found: &mut Found) -> Result<Term, Failure> {
    let mut rest = keys;
    while found.lists.len() < most && rest.0 != NIL {
        let (key, tail) = env.cell(rest).ok_or_else(bad)?;
        let fits = match key.is_immediate() {
            true => found.look_up(env, handle, &handle.table().probe(TermRef::immediate(key.0)))?,
            false => look_up_built(env, handle, key, found)?,
        };
        if !fits {
            break;
        }
        rest = tail;
    }
    Ok(rest)
}

/// [`Found::look_up`] for a key that is not an immediate.
#[inline(never)]
fn look_up_built(env: Env, handle: Handle<'_>, key: Term, found: &mut Found) -> Result<bool, Failure> {
    with_built_key(env, key, |key| {
        Ok(found.count(key.words) && found.look_up(env, handle, &handle.table().probe(key.term))?)
    })
}

/// As [`look_up_each`], for a large table.
#[inline(never)]
fn look_up_together(env: Env, handle: Handle<'_>, keys: Term, found: &mut Found) -> Result<Term, Failure> {
    of_each(env, handle, keys, MOST_AT_ONCE, |probe| {
        match found.look_up(env, handle, probe)? {
            true => Ok(()),
            false => Err(Failure::Big),
        }
    })
}

/// The objects of each key, as a list of lists, which are not in the table any more. If one call cannot take all: `{Lists, Rest}` with the
/// lists of the first keys and the keys that are left.
pub fn take_many(env: Env, &[table, keys]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    let (mut lists, mut words) = (SmallVec::<[Term; MOST_AT_ONCE]>::new(), 0);
    let rest = of_each(env, handle, keys, MOST_AT_ONCE, |probe| {
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
    let rest = of_each(env, handle, keys, MOST_AT_ONCE, |probe| {
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

/// Calls `act` for the first keys of a list, of which there are `most`. Returns the rest: those for which there was no time, or the first
/// for which `act` failed and those behind it. Fails if nothing was done.
pub(super) fn of_each(
    env: Env,
    handle: Handle<'_>,
    keys: Term,
    most: usize,
    mut act: impl FnMut(&Probe<'_>) -> Result<(), Failure>,
) -> Result<Term, Failure> {
    let together = handle.outgrows_caches();
    let (mut rest, mut words, mut count) = (keys, 0, 0);
    // A room is large, so it is made only when a key needs it.
    let mut rooms: [Option<Box<KeyRoom>>; GROUP] = Default::default();
    while count < most && rest.0 != NIL {
        let mut probes = SmallVec::<[Probe<'_>; GROUP]>::new();
        let (mut next, mut failure) = (rest, None);
        for room in &mut rooms {
            let Some((key, tail)) = env.cell(next) else { break };
            let probe = probe_in(env, handle.table(), key, || {
                Some(room.get_or_insert_with(|| Box::new(key_room())))
            });
            match probe {
                Ok((probe, built)) if fits(words + built) => {
                    words += built;
                    probes.push(probe);
                }
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
        let mut done = 0;
        for probe in &probes {
            if let Err(error) = act(probe) {
                failure = Some(error);
                break;
            }
            done += 1;
        }
        count += done;
        rest = match done == probes.len() {
            true => next,
            false => behind(env, rest, done),
        };
        match failure {
            Some(failure) if count == 0 => return Err(failure),
            Some(_) => break,
            None => (),
        }
    }
    Ok(rest)
}

/// The rest of a list behind its first elements.
fn behind(env: Env, list: Term, count: usize) -> Term {
    (0..count).fold(list, |rest, _| env.cell(rest).map_or(rest, |(_, tail)| tail))
}

/// Inserts the first objects, and returns those that are left.
pub fn insert_many(env: Env, &[table, objects]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    let (mut rest, mut words, mut count) = (objects, 0, 0);
    // A group makes room for all of it, so that its last objects do not evict its first ones.
    let most = if handle.evicts() { MOST_AT_ONCE } else { GROUP };
    while count < MOST_AT_ONCE && rest.0 != NIL {
        let mut group = SmallVec::<[Object<'_>; GROUP]>::new();
        let (mut next, mut failure) = (rest, None);
        while group.len() < most && next.0 != NIL {
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
