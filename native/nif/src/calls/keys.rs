//! Keys to search for, made of the caller's terms.
//!
//! - [`with_probe`] lends the probe for one key. [`with_callers_key`] does for a key that is no immediate, and says more of it.
//! - [`probe_in`] is for several keys at once. Their stored forms lie in rooms of the caller.
//! - [`with_built_key`] lends the stored form alone.

use super::*;
use crate::encode::callers_key::Callers;
use cats_table::CallersKey;

/// Lends a key to search for in this table. `f` is called in two places, so the code for an immediate has no branches
/// for other keys. To be inlined in both, a closure must be marked for inlining.
#[inline(always)]
pub(super) fn with_probe<R>(
    env: Env,
    table: &Table,
    key: Term,
    f: impl FnOnce(&Probe<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match key.is_immediate() {
        true => f(&table.probe(TermRef::immediate(key.0))),
        // The result is taken apart. Otherwise the result for immediates would pass through memory too.
        false => match with_built_probe(env, table, key, f) {
            Ok(result) => Ok(result),
            Err(failure) => Err(failure),
        },
    }
}

/// [`with_probe`] for a key that is not an immediate.
#[inline(never)]
fn with_built_probe<R>(
    env: Env,
    table: &Table,
    key: Term,
    f: impl FnOnce(&Probe<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    with_callers_key(env, table, key, |probe, _| f(probe))
}

/// Lends the probe for a key, not an immediate, in this table. And whether the caller's term may replace a copy of an exactly equal stored
/// key in a result. Where possible, the key is not brought into stored form.
#[inline(always)]
pub(super) fn with_callers_key<R>(
    env: Env,
    table: &Table,
    key: Term,
    f: impl FnOnce(&Probe<'_>, bool) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let (mut callers, mut builder) = (Callers::new(env, key), None);
    let in_place: &dyn CallersKey = &callers;
    let word = match layout::is_known() && table.kind() != cats_table::Kind::OrderedSet {
        // SAFETY: the layout of terms is known, and the key belongs to the environment.
        true => unsafe { callers.word() },
        false => None,
    };
    let (probe, may_stand) = match word {
        Some(word) => (Probe::callers(&in_place, word), true),
        None => {
            let built = built_key(env, key, callers.room(), &mut builder, Builder::within)?;
            (table.probe(built.term), built.may_stand)
        }
    };
    f(&probe, may_stand)
}

/// A key in stored form that is not an immediate.
pub(super) struct BuiltKey<'b> {
    pub(super) term: TermRef<'b>,
    /// The words that were built, or 0 if they are few.
    pub(super) words: usize,
    /// Whether the caller's term may replace a copy of an exactly equal stored key in a result.
    pub(super) may_stand: bool,
}

/// Lends a key, not an immediate, in stored form.
#[inline(always)]
pub(super) fn with_built_key<R>(
    env: Env,
    key: Term,
    f: impl FnOnce(BuiltKey<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let (mut room, mut builder) = (Room::new(), None);
    f(built_key(env, key, &mut room, &mut builder, |room| {
        Builder::within(room)
    })?)
}

/// Builds a key: by the fast path in `room` if it is short, else in a builder.
#[inline(always)]
fn built_key<'b, 'r: 'b, 's>(
    env: Env,
    key: Term,
    room: &'r mut Room<{ encode::fast::WORDS }>,
    builder: &'b mut Option<Builder<'s>>,
    make: impl FnOnce(&'r mut Room<{ encode::fast::WORDS }>) -> Builder<'s>,
) -> Result<BuiltKey<'b>, Failure> {
    if layout::is_known() {
        // SAFETY: the layout of terms is known. This term and the binaries counted in it belong to the environment. The
        // word was made for this room.
        unsafe {
            if let Some((word, may_stand)) = encode::fast::key(env, key, room) {
                return Ok(BuiltKey {
                    term: room.term(word),
                    words: 0,
                    may_stand,
                });
            }
        }
    }
    built_long_key(env, key, builder.insert(make(room)))
}

/// Room for the stored form of a key that is not an immediate.
pub(super) type KeyRoom = (Room<{ encode::fast::WORDS }>, Option<Builder<'static>>);

/// The probe for a key, and [`BuiltKey::words`]. If the key is not an immediate, its stored form is built in the room that `room` gives.
#[inline]
pub(super) fn probe_in<'r>(
    env: Env,
    table: &Table,
    key: Term,
    room: impl FnOnce() -> Option<&'r mut KeyRoom>,
) -> Result<(Probe<'r>, usize), Failure> {
    if key.is_immediate() {
        return Ok((table.probe(TermRef::immediate(key.0)), 0));
    }
    let (room, builder) = room().ok_or_else(bad)?;
    let key = built_key(env, key, room, builder, |_| Builder::new())?;
    Ok((table.probe(key.term), key.words))
}

/// A room in which nothing is built yet.
pub(super) fn key_room() -> KeyRoom {
    (Room::new(), None)
}

/// The bound that a term stands for: `[Key]` if the key belongs to the range, `{Key}` if not, `[]` for none.
pub(super) fn bound(env: Env, term: Term) -> Result<Option<(Term, bool)>, Failure> {
    match (env.cell(term), env.tuple_elements(term)) {
        (Some((key, Term(NIL))), _) => Ok(Some((key, true))),
        (_, Some(&[key])) => Ok(Some((key, false))),
        _ if term.0 == NIL => Ok(None),
        _ => Err(bad()),
    }
}

/// The probe of a [bound] of a range, with whether the key belongs to it. `room` is for the key.
pub(super) fn bound_in<'r>(
    env: Env,
    table: &Table,
    bound: Option<(Term, bool)>,
    room: &'r mut Option<KeyRoom>,
) -> Result<Option<(Probe<'r>, bool)>, Failure> {
    let Some((key, inclusive)) = bound else { return Ok(None) };
    let (probe, _) = probe_in(env, table, key, || Some(room.insert(key_room())))?;
    Ok(Some((probe, inclusive)))
}

#[inline(never)]
fn built_long_key<'b>(env: Env, key: Term, builder: &'b mut Builder<'_>) -> Result<BuiltKey<'b>, Failure> {
    encode::key(env, key, builder)?;
    let (term, words) = (builder.as_key(), builder.words());
    Ok(BuiltKey {
        term,
        words,
        may_stand: decode::may_stand(term),
    })
}
