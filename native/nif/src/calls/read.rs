//! `lookup/2`, `lookup_many/2`, `lookup_element/3,4`, `lookup_elements/3`, `member/2`.

use super::*;
use cats_table::Kind;
use cats_term::{equal, Scratch};

pub fn lookup(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    lookup_key::<Used>(env, handle, key)
}

#[inline(always)]
pub(super) fn lookup_key<U: Use>(env: Env, handle: Handle<'_>, key: Term) -> Result<Term, Failure> {
    match key.is_immediate() {
        true => lookup_probe::<U>(env, handle, &handle.table().probe(TermRef::immediate(key.0)), None),
        false => lookup_built::<U>(env, handle, key),
    }
}

#[inline(never)]
fn lookup_built<U: Use>(env: Env, handle: Handle<'_>, key: Term) -> Result<Term, Failure> {
    with_callers_key(env, handle.table(), key, |probe, may_stand| {
        lookup_probe::<U>(env, handle, probe, may_stand.then_some(key))
    })
}

/// The objects of a key. `own` is the caller's term if it may replace a copy of an exactly equal stored key. With `U`, the object of a table
/// with one object per key counts as used.
#[inline(always)]
fn lookup_probe<U: Use>(env: Env, handle: Handle<'_>, probe: &Probe<'_>, own: Option<Term>) -> Result<Term, Failure> {
    if handle.table().kind().is_bag() {
        return lookup_in_bag(env, handle, probe);
    }
    match handle.get::<U>(probe, &mut Scratch::new())? {
        None => {
            missed(handle);
            Ok(Term(NIL))
        }
        Some(object) => {
            let tuple = match own {
                Some(own) => tuple_of_key(env, handle.table(), &object, own, probe)?,
                None => tuple(env, &object)?,
            };
            account(env, object.words());
            Ok(env.cons(tuple, Term(NIL)))
        }
    }
}

#[inline(never)]
fn lookup_in_bag(env: Env, handle: Handle<'_>, probe: &Probe<'_>) -> Result<Term, Failure> {
    let mut found = Objects::none();
    handle.lookup(probe, &mut found)?;
    if found.as_slice().is_empty() {
        missed(handle);
    }
    tuples(env, found.as_slice())
}

/// Decodes the object that was found for a key. If the caller's key is exactly equal to the object's, the result has
/// the caller's key. That saves a copy, and terms never change.
#[inline(always)]
fn tuple_of_key(
    env: Env,
    table: &Table,
    object: &ObjectRef<'_>,
    own: Term,
    probe: &Probe<'_>,
) -> Result<Term, Failure> {
    match object {
        ObjectRef::Block(block)
            if table.kind() != Kind::OrderedSet || equal(block.element(table.key()), probe.term()) =>
        {
            decode::object_with(env, *block, table.key(), own)
        }
        _ => tuple(env, object),
    }
}

/// Keys, or objects, that a call with many of them prefetches together.
pub(super) const GROUP: usize = 16;
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

#[inline(always)]
fn lookup_several(env: Env, handle: Handle<'_>, keys: Term) -> Result<Term, Failure> {
    let mut found = Found {
        lists: SmallVec::new(),
        words: 0,
    };
    let rest = match handle.outgrows_caches() {
        true => look_up_together(env, handle, keys, &mut found)?,
        false => look_up_each(env, handle, keys, &mut found)?,
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

/// Looks up one key after the other. Returns the keys that are left.
#[inline]
fn look_up_each(env: Env, handle: Handle<'_>, keys: Term, found: &mut Found) -> Result<Term, Failure> {
    let mut rest = keys;
    while found.lists.len() < MOST_AT_ONCE && rest.0 != NIL {
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

/// As [`look_up_each`], for a large table. It prefetches the memory for a group of keys before it looks up the first of
/// them.
#[inline(never)]
fn look_up_together(env: Env, handle: Handle<'_>, keys: Term, found: &mut Found) -> Result<Term, Failure> {
    let mut rest = keys;
    // A room is large, so it is made only when a key needs it.
    let mut rooms: [Option<Box<KeyRoom>>; GROUP] = Default::default();
    while found.lists.len() < MOST_AT_ONCE && rest.0 != NIL {
        let mut probes = SmallVec::<[Probe<'_>; GROUP]>::new();
        let mut full = false;
        for room in &mut rooms {
            let Some((key, tail)) = env.cell(rest) else { break };
            probes.push(match key.is_immediate() {
                true => handle.table().probe(TermRef::immediate(key.0)),
                false => {
                    let room = room.get_or_insert_with(|| Box::new((Room::new(), None)));
                    let (probe, words) = probe_in(env, handle.table(), key, room)?;
                    full = !found.count(words);
                    if full {
                        break;
                    }
                    probe
                }
            });
            rest = tail;
        }
        if probes.is_empty() && !full {
            return Err(bad());
        }
        handle.prefetch_together(probes.iter());
        for probe in &probes {
            if !found.look_up(env, handle, probe)? {
                return Ok(behind(env, keys, found.lists.len()));
            }
        }
        if full {
            break;
        }
    }
    Ok(rest)
}

/// The rest of a list behind its first elements.
pub(super) fn behind(env: Env, list: Term, count: usize) -> Term {
    (0..count).fold(list, |rest, _| env.cell(rest).map_or(rest, |(_, tail)| tail))
}

pub fn member(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    with_probe(
        env,
        handle.table(),
        key,
        #[inline(always)]
        move |probe| {
            let found = handle.member::<Used>(probe)?;
            if !found {
                missed(handle);
            }
            Ok(atoms::boolean(found))
        },
    )
}

pub fn lookup_element(env: Env, &[table, key, position]: &[Term; 3]) -> Result<Term, Failure> {
    element_or(env, table, key, position, || Err(Cause::BadKey.into()))
}

pub fn lookup_element_default(env: Env, &[table, key, position, default]: &[Term; 4]) -> Result<Term, Failure> {
    element_or(env, table, key, position, || Ok(default))
}

#[inline]
fn element_or(
    env: Env,
    table: Term,
    key: Term,
    position: Term,
    absent: impl FnOnce() -> Result<Term, Failure>,
) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    let index = index(position)?;
    with_probe(
        env,
        handle.table(),
        key,
        #[inline(always)]
        move |probe| {
            if handle.table().kind().is_bag() {
                return elements_in_bag(env, handle, probe, index, absent);
            }
            match handle.get_for_element(probe, index, &mut Scratch::new())? {
                None => {
                    missed(handle);
                    absent()
                }
                Some(object) if index < object.arity() => element(env, &object, index),
                Some(_) => Err(bad()),
            }
        },
    )
}

#[inline(never)]
fn elements_in_bag(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    index: usize,
    absent: impl FnOnce() -> Result<Term, Failure>,
) -> Result<Term, Failure> {
    let mut found = Objects::none();
    handle.lookup(probe, &mut found)?;
    if found.as_slice().is_empty() {
        missed(handle);
        return absent();
    }
    let words = |object: &ObjectRef<'_>| match index < object.arity() && !object.element(index).is_immediate() {
        true => object.words(),
        false => 0,
    };
    of_each(env, found.as_slice(), words, |object| {
        if index < object.arity() {
            element(env, object, index)
        } else {
            Err(bad())
        }
    })
}

/// With more positions than this, a call takes too long for a normal scheduler.
const POSITIONS_LIMIT: Budget = Budget(1000);

pub fn lookup_elements(env: Env, &[table, key, positions]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    let mut indices = Vec::new();
    let mut rest = positions;
    while let Some((position, tail)) = env.cell(rest) {
        indices.push(index(position)?);
        POSITIONS_LIMIT.check(indices.len())?;
        rest = tail;
    }
    if rest.0 != NIL {
        return Err(bad());
    }
    // If the positions ascend, each element occurs at most once. Otherwise all may be that of the longest element.
    let times = match indices.is_sorted_by(|a, b| a < b) {
        true => 1,
        false => indices.len(),
    };
    let words = |object: &ObjectRef<'_>| match object.flat() {
        Some(_) => 2 * indices.len(),
        None => 2 * indices.len() + times * object.words(),
    };
    with_probe(env, handle.table(), key, |probe| {
        let mut found = Objects::none();
        handle.lookup(probe, &mut found)?;
        let elements = |object: &ObjectRef<'_>| {
            let mut list = Term(NIL);
            for index in indices.iter().rev() {
                if *index >= object.arity() {
                    return Err(bad());
                }
                list = env.cons(element(env, object, *index)?, list);
            }
            Ok(list)
        };
        match found.as_slice() {
            [] => {
                missed(handle);
                Err(Cause::BadKey.into())
            }
            [object] if !handle.table().kind().is_bag() => {
                check_words(words(object))?;
                elements(object)
            }
            objects => of_each(env, objects, words, elements),
        }
    })
}

/// The list of the results of `make` for each object. Each result has at most `words` words.
fn of_each(
    env: Env,
    objects: &[ObjectRef<'_>],
    words: impl Fn(&ObjectRef<'_>) -> usize,
    make: impl Fn(&ObjectRef<'_>) -> Result<Term, Failure>,
) -> Result<Term, Failure> {
    check_words(objects.iter().map(words).sum())?;
    let mut list = Term(NIL);
    for object in objects.iter().rev() {
        list = env.cons(make(object)?, list);
    }
    account(env, objects.iter().map(ObjectRef::words).sum());
    Ok(list)
}

/// The index, counted from 0, of a position that is counted from 1.
#[inline]
fn index(position: Term) -> Result<usize, Failure> {
    match position.small_integer() {
        Some(position) if position >= 1 => Ok(position as usize - 1),
        _ => Err(bad()),
    }
}
