//! `update_counter/3,4` and `update_element/3,4`: changes of some elements of one object, atomic and isolated.

use crate::failure::{Cause, Failure};
use crate::group::retire_entry;
use crate::number::Number;
use crate::object::{body_bytes, Layout, Object, ObjectRef};
use crate::schema::Probe;
use crate::store::Store;
use crate::table::Handle;
use cats_engine::{Entry, Step};
use cats_term::{small, Builder, Elements, TermRef};

/// One operation of `update_counter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterOp {
    Add {
        /// Counted from 1; nothing for the element after the key.
        position: Option<i64>,
        increment: Number,
        /// A value beyond the first becomes the second.
        limit: Option<(Number, Number)>,
    },
    /// What is no operation, or no list of such: fails, but only once the key is found.
    Invalid,
}

/// One operation of `update_element`.
#[derive(Clone, Copy)]
pub enum ElementOp<'a> {
    /// Position, counted from 1, and the new element.
    Set(i64, TermRef<'a>),
    /// As [`CounterOp::Invalid`].
    Invalid,
}

/// A tuple that is not stored yet.
#[derive(Clone, Copy)]
pub enum Tuple<'a> {
    /// The elements are immediates.
    Flat(&'a [u64]),
    Terms(Elements<'a>),
}

impl<'a> Tuple<'a> {
    #[inline]
    pub fn arity(self) -> usize {
        match self {
            Tuple::Flat(words) => words.len(),
            Tuple::Terms(elements) => elements.len(),
        }
    }

    #[inline]
    fn element(self, index: usize) -> TermRef<'a> {
        match self {
            Tuple::Flat(words) => TermRef::immediate(words[index]),
            Tuple::Terms(elements) => elements.get(index),
        }
    }
}

/// What an update starts from.
#[derive(Clone, Copy)]
enum Base<'a> {
    Stored(ObjectRef<'a>),
    /// A default object, with the key that was asked for.
    Default {
        tuple: Tuple<'a>,
        key: usize,
        term: TermRef<'a>,
    },
}

type Change<'a> = (usize, TermRef<'a>);

impl<'a> Base<'a> {
    #[inline]
    fn arity(&self) -> usize {
        match self {
            Base::Stored(object) => object.arity(),
            Base::Default { tuple, .. } => tuple.arity(),
        }
    }

    #[inline]
    fn element(&self, index: usize) -> TermRef<'a> {
        match *self {
            Base::Stored(object) => object.element(index),
            Base::Default { key, term, .. } if index == key => term,
            Base::Default { tuple, .. } => tuple.element(index),
        }
    }

    /// The index of a position, counted from 1, that may be updated.
    #[inline]
    fn index(&self, position: i64, key: usize) -> Result<usize, Failure> {
        if position == key as i64 + 1 {
            return Err(Cause::KeyPosition.into());
        }
        match usize::try_from(position) {
            Ok(position) if (1..=self.arity()).contains(&position) => Ok(position - 1),
            _ => Err(Cause::Position.into()),
        }
    }

    /// The body of the changed object.
    fn change(&self, changes: &[Change<'_>], layout: Layout) -> Result<u64, Failure> {
        if let Base::Stored(ObjectRef::Block(block)) = self {
            let block = block.with_elements(changes).ok_or(Failure::SystemLimit)?;
            return Object::Block(block).into_body(layout).ok_or(Failure::SystemLimit);
        }
        let arity = self.arity();
        let element = |index: usize| {
            let change = changes.iter().rev().find(|(place, _)| *place == index);
            change.map_or_else(|| self.element(index), |(_, term)| *term)
        };
        if (0..arity).all(|index| element(index).is_immediate()) {
            let words: Vec<u64> = (0..arity).map(|index| element(index).word()).collect();
            return Object::Flat(&words).into_body(layout).ok_or(Failure::SystemLimit);
        }
        let mut builder = Builder::new();
        let root = builder.tuple(arity);
        for index in 0..arity {
            let word = builder.copy(element(index));
            builder.set(root, index, word);
        }
        let block = builder.finish().ok_or(Failure::SystemLimit)?;
        Object::Block(block).into_body(layout).ok_or(Failure::SystemLimit)
    }
}

impl Handle<'_> {
    /// `update_counter/3,4` with a list of operations: the values after each. A default tuple stands in for an absent object.
    pub fn update_counter(
        self,
        probe: &Probe<'_>,
        ops: &[CounterOp],
        default: Option<Tuple<'_>>,
    ) -> Result<Vec<Number>, Failure> {
        let key = self.table.key();
        self.check_updatable(default, Cause::TableType)?;
        self.update(probe, default, Cause::BadKey, |base| {
            let mut indices = Vec::with_capacity(ops.len());
            for op in ops {
                let CounterOp::Add { position, .. } = op else {
                    return Err(Cause::None.into());
                };
                let index = base.index(position.unwrap_or(key as i64 + 2), key)?;
                Number::of(base.element(index)).ok_or(Cause::None)?;
                indices.push(index);
            }
            let mut values: Vec<Number> = Vec::with_capacity(ops.len());
            for (i, op) in ops.iter().enumerate() {
                let CounterOp::Add { increment, limit, .. } = op else {
                    unreachable!("checked above")
                };
                let earlier = indices[..i].iter().rposition(|index| *index == indices[i]);
                let old = match earlier {
                    Some(earlier) => values[earlier].clone(),
                    None => Number::of(base.element(indices[i])).expect("checked above"),
                };
                let mut new = old.add(increment);
                if let Some((limit, beyond)) = limit {
                    let passed = if increment.is_negative() {
                        new < *limit
                    } else {
                        new > *limit
                    };
                    if passed {
                        new = beyond.clone();
                    }
                }
                values.push(new);
            }
            let mut builder = Builder::new();
            let root = builder.tuple(values.len());
            for (slot, value) in values.iter().enumerate() {
                let word = value.build(&mut builder);
                builder.set(root, slot, word);
            }
            let cats_term::View::Tuple(elements) = builder.root().view() else {
                unreachable!("a tuple")
            };
            let changes: Vec<Change<'_>> = indices.iter().copied().zip(elements.iter()).collect();
            Ok((base.change(&changes, self.table.layout())?, values))
        })
    }

    /// `update_counter/3,4` with one operation that has no limit.
    pub fn add_to_counter(
        self,
        probe: &Probe<'_>,
        position: Option<i64>,
        increment: i64,
        default: Option<Tuple<'_>>,
    ) -> Result<Number, Failure> {
        if let Some(value) = self.add_to_pair(probe, position, increment)? {
            return Ok(Number::Small(value));
        }
        let op = CounterOp::Add {
            position,
            increment: Number::Small(increment),
            limit: None,
        };
        let mut values = self.update_counter(probe, &[op], default)?;
        Ok(values.remove(0))
    }

    /// The same for a counter in a pair `{Key, Counter}`, in place and without allocation. Nothing, and nothing done, if there
    /// is no such pair, or its counter would not stay an immediate.
    #[inline(always)]
    pub fn add_to_pair(self, probe: &Probe<'_>, position: Option<i64>, increment: i64) -> Result<Option<i64>, Failure> {
        if self.table.kind().is_bag() || self.table.key() != 0 || position.unwrap_or(2) != 2 {
            return Ok(None);
        }
        self.store().update(self.guard, probe, move |old| {
            if let Err(failure) = self.still_named() {
                return (Step::Keep, Err(failure));
            }
            let Some(entry) = old else {
                return (Step::Keep, Ok(None));
            };
            match add_in_place(entry.body, increment) {
                Some((body, value)) => (Step::Put(Entry { key: entry.key, body }), Ok(Some(value))),
                None => (Step::Keep, Ok(None)),
            }
        })?
    }

    /// `update_element/3,4`: false when there is no object and no default.
    pub fn update_element(
        self,
        probe: &Probe<'_>,
        ops: &[ElementOp<'_>],
        default: Option<Tuple<'_>>,
    ) -> Result<bool, Failure> {
        let key = self.table.key();
        self.check_updatable(default, Cause::None)?;
        let updated = self.update(probe, default, Cause::BadKey, |base| {
            let mut changes = Vec::with_capacity(ops.len());
            for op in ops {
                match *op {
                    ElementOp::Set(position, term) => changes.push((base.index(position, key)?, term)),
                    ElementOp::Invalid => return Err(Cause::None.into()),
                }
            }
            Ok((base.change(&changes, self.table.layout())?, ()))
        });
        match updated {
            Ok(()) => Ok(true),
            Err(Failure::Bad(Cause::BadKey)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn check_updatable(self, default: Option<Tuple<'_>>, wrong_type: Cause) -> Result<(), Failure> {
        if default.is_some_and(|tuple| tuple.arity() <= self.table.key()) {
            return Err(Cause::Default.into());
        }
        if self.table.kind().is_bag() {
            return Err(wrong_type.into());
        }
        Ok(())
    }

    /// Replaces the object of a key (or a default) by the one whose body `change` makes.
    fn update<R>(
        self,
        probe: &Probe<'_>,
        default: Option<Tuple<'_>>,
        absent: Cause,
        change: impl FnOnce(Base<'_>) -> Result<(u64, R), Failure>,
    ) -> Result<R, Failure> {
        let key = self.table.key();
        let store = self.store();
        let (result, old) = store.update(self.guard, probe, move |old| {
            if let Err(failure) = self.still_named() {
                return (Step::Keep, Err(failure));
            }
            let base = match (old, default) {
                // SAFETY: the place is locked, so its object lives.
                (Some(entry), _) => Base::Stored(unsafe { ObjectRef::new(entry, key) }),
                (None, Some(tuple)) => Base::Default {
                    tuple,
                    key,
                    term: probe.term(),
                },
                (None, None) => return (Step::Keep, Err(absent.into())),
            };
            match change(base) {
                Ok((body, result)) => {
                    let key = old.map_or(probe.word(), |old| old.key);
                    // SAFETY: the place is locked, and the new object is not shared yet.
                    unsafe { recount(store, old, body) };
                    (Step::Put(Entry { key, body }), Ok((result, old)))
                }
                Err(failure) => (Step::Keep, Err(failure)),
            }
        })??;
        if let Some(old) = old {
            // SAFETY: the place holds another entry now.
            unsafe { retire_entry(self.guard, old.body) }
        }
        Ok(result)
    }
}

/// The body and the value of a counter in a pair after an addition, if it stays an immediate.
#[inline]
fn add_in_place(body: u64, increment: i64) -> Option<(u64, i64)> {
    if body & 0xf != 0xf {
        return None;
    }
    let value = (body as i64 >> 4).checked_add(increment)?;
    Some((small(value)?, value))
}

/// # Safety
/// Both objects live, and neither is a group.
unsafe fn recount(store: &Store, old: Option<Entry>, body: u64) {
    // SAFETY: as the caller promises.
    let (new_bytes, old_bytes) = unsafe { (body_bytes(body), old.map_or(0, |old| body_bytes(old.body))) };
    store.count(old.is_none() as i64, new_bytes as i64 - old_bytes as i64);
}
