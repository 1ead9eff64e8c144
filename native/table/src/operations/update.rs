//! `update_counter/3,4` and `update_element/3,4`: they change some elements of one object, atomically and in isolation.

use crate::budget::Budget;
use crate::failure::{Cause, Failure};
use crate::object::group::retire_entry;
use crate::object::schema::Probe;
use crate::object::{
    block_body, change_each_in_place, change_in_place, changed, element_word, rebuilt, retire_body, set_in_place,
    stored_words, Layout, Object, ObjectRef, COPY_LIMIT,
};
use crate::operations::number::Number;
use crate::store::Content;
use crate::table::Handle;
use cats_engine::{Entry, Step};
use cats_sync::epoch::Guard;
use cats_term::{is_immediate, small, Builder, Elements, NewElement, TermRef, View, NIL};
use smallvec::SmallVec;

/// The number of operations, or of elements of a new object, for which there is room on the stack.
const STACK_OPS: usize = 4;

/// The largest number of 64-bit digits that a call on a scheduler may handle, counted over all integers that are not immediates and all
/// values that counters get.
pub const DIGITS_LIMIT: Budget = Budget(2000);

/// Whether the host has an integer, asked for those of more than [`DIGITS_LIMIT`] digits.
pub type HasInteger<'a> = &'a dyn Fn(&Number) -> bool;

/// The values of counters, and the same as words, if they are immediates.
pub type Numbers = SmallVec<[Number; STACK_OPS]>;
pub type Words = SmallVec<[u64; STACK_OPS]>;

/// One operation of `update_counter` whose numbers are immediates, which is the usual case.
#[derive(Clone, Copy, Debug)]
pub struct Addition {
    /// Counted from 1.
    pub position: i64,
    pub increment: i64,
    /// As in [`CounterOp`].
    pub limit: Option<(i64, i64)>,
}

impl Addition {
    /// The word of the counter after the operation. `None` if it, or the word before, is not an immediate.
    #[inline]
    fn of(&self, word: u64) -> Option<u64> {
        match self.limit {
            None => added(word, self.increment),
            Some((limit, beyond)) => {
                let value = value_of(word)?.checked_add(self.increment)?;
                small(if passes(self.increment < 0, &value, &limit) {
                    beyond
                } else {
                    value
                })
            }
        }
    }
}

/// The value of a counter. `None` if it is not an immediate.
#[inline]
fn value_of(word: u64) -> Option<i64> {
    (word & 0xf == 0xf).then_some(word as i64 >> 4)
}

/// The word of a counter after an addition. `None` if it, or the word before, is not an immediate.
#[inline]
fn added(word: u64, increment: i64) -> Option<u64> {
    small(value_of(word)?.checked_add(increment)?)
}

/// Whether a counter that has become `value` is beyond its limit. `down` is the direction in which it was changed.
#[inline]
fn passes<T: Ord>(down: bool, value: &T, limit: &T) -> bool {
    if down {
        value < limit
    } else {
        value > limit
    }
}

/// Fails if a counter would become an integer that the host does not have.
pub(super) fn check_integer(value: &Number, has_integer: HasInteger<'_>) -> Result<(), Failure> {
    match value.size() <= DIGITS_LIMIT.0 || has_integer(value) {
        true => Ok(()),
        false => Err(Failure::LargeInteger),
    }
}

/// The index of a position that is counted from 1. If there is no such position, an index that no element has.
#[inline]
pub(super) fn index_of(position: i64) -> usize {
    (position as usize).wrapping_sub(1)
}

/// One operation of `update_counter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterOp {
    Add {
        /// Counted from 1.
        position: i64,
        increment: Number,
        /// If the value is beyond the first number, the counter is set to the second one.
        limit: Option<(Number, Number)>,
    },
    /// Not a valid operation or list of operations. The call fails, but only if the key is found.
    Invalid,
}

/// One operation of `update_element`.
#[derive(Clone, Copy)]
pub enum ElementOp<'a> {
    /// The position, counted from 1, and the new element.
    Set(i64, TermRef<'a>),
    /// See [`CounterOp::Invalid`].
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

/// The object before an update.
#[derive(Clone, Copy)]
pub(super) enum Base<'a> {
    Stored(ObjectRef<'a>),
    /// A default object. `term` is the key of the call, and `key` its position.
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

    /// Element `index`, if it is a number. Otherwise any term that is none.
    #[inline]
    pub(super) fn counter(&self, index: usize) -> TermRef<'a> {
        match self.element(index) {
            // Numbers are not packed.
            element if element.packed_words().is_some() => TermRef::immediate(NIL),
            element => element,
        }
    }

    /// The index of a position, counted from 1. Fails if that element must not be updated.
    #[inline]
    pub(super) fn index(&self, position: i64, key: usize) -> Result<usize, Failure> {
        if position == key as i64 + 1 {
            return Err(Cause::KeyPosition.into());
        }
        match usize::try_from(position) {
            Ok(position) if (1..=self.arity()).contains(&position) => Ok(position - 1),
            _ => Err(Cause::Position.into()),
        }
    }

    /// The body of the changed object. With `again`, a small object is made so that it can be changed in place.
    pub(super) fn change<'t>(
        &self,
        guard: &Guard,
        changes: impl Iterator<Item = Change<'t>> + Clone,
        layout: Layout,
        again: bool,
    ) -> Result<u64, Failure> {
        if let Base::Stored(ObjectRef::Block(block)) = self {
            if again && !changes.clone().all(|(_, term)| term.is_immediate()) {
                return rebuilt(guard, *block, changes, layout).ok_or(Failure::NoMemory);
            }
            let block = block.with_elements(changes).ok_or(Failure::NoMemory)?;
            return Ok(block_body(block, layout));
        }
        let mut elements: SmallVec<[TermRef<'_>; 4 * STACK_OPS]> =
            (0..self.arity()).map(|index| self.element(index)).collect();
        for (index, term) in changes {
            elements[index] = term;
        }
        if elements.iter().all(|element| element.is_immediate()) {
            let words: SmallVec<[u64; 4 * STACK_OPS]> = elements.iter().map(|element| element.word()).collect();
            return Object::flat(&words).into_body(layout, guard).ok_or(Failure::NoMemory);
        }
        let mut builder = Builder::new();
        let root = builder.tuple(elements.len());
        for (index, element) in elements.iter().enumerate() {
            let word = builder.copy(*element);
            builder.set(root, index, word);
        }
        let block = builder.finish().ok_or(Failure::NoMemory)?;
        Ok(block_body(block, layout))
    }
}

// Results of an update that changes immediates: it did nothing, or the table has another name. Results are single words, so they stay in a
// register.
pub(super) const NOTHING: u64 = 0;
const RENAMED: u64 = 2;
/// Several elements were changed in place.
const DONE: u64 = 6;

impl Handle<'_> {
    /// `update_counter/3,4` with one operation without a limit, on the fast path. Returns the word of the counter. `None`, and nothing is
    /// done, if [`update_counter`](Self::update_counter) must be called.
    #[inline(always)]
    pub fn add(self, probe: &Probe<'_>, position: i64, increment: i64) -> Result<Option<u64>, Failure> {
        self.change_word(probe, position, move |word| added(word, increment))
    }

    /// The same with any operation on immediates.
    #[inline(always)]
    pub fn add_one(self, probe: &Probe<'_>, op: Addition) -> Result<Option<u64>, Failure> {
        self.change_word(
            probe,
            op.position,
            #[inline(always)]
            move |word| op.of(word),
        )
    }

    /// The same for `update_element/3,4` with one operation whose new element is an immediate.
    #[inline(always)]
    pub fn set(self, probe: &Probe<'_>, position: i64, element: u64) -> Result<bool, Failure> {
        let change = move |word| is_immediate(word).then_some(element);
        Ok(self.change_word(probe, position, change)?.is_some())
    }

    /// Changes one element from an immediate to another, and returns the new one. Does nothing, and returns `None`, in these cases:
    ///
    /// * The key has no object.
    /// * The object is neither a pair nor in a block without held terms.
    /// * The object has no such element.
    /// * `change` returns `None`.
    #[inline(always)]
    fn change_word(
        self,
        probe: &Probe<'_>,
        position: i64,
        change: impl Fn(u64) -> Option<u64> + Copy,
    ) -> Result<Option<u64>, Failure> {
        let key = self.table.key();
        let index = index_of(position);
        if index == key || self.table.kind().is_bag() {
            return Ok(None);
        }
        let done = self.store().update_making(
            self.guard,
            probe,
            false,
            #[inline(always)]
            move |old| self.change_entry(old, index, change),
        )?;
        match done {
            word if is_immediate(word) => Ok(Some(word)),
            NOTHING => Ok(None),
            RENAMED => Err(Cause::Id.into()),
            // SAFETY: the object lives as long as the guard, and nothing links to it any more.
            old => unsafe {
                let element = element_word(old, index);
                retire_body(self.guard, old);
                Ok(Some(change(element).expect("as before")))
            },
        }
    }

    /// The step of [`change_word`](Self::change_word). Its result is the new word if that was changed in place, the body of the old block,
    /// or one of the two constants.
    #[inline(always)]
    fn change_entry(self, old: Option<Entry>, index: usize, change: impl Fn(u64) -> Option<u64>) -> (Step, u64) {
        if self.still_named().is_err() {
            return (Step::Keep, RENAMED);
        }
        let Some(Entry { key, body: old }) = old else {
            return (Step::Keep, NOTHING);
        };
        if is_immediate(old) {
            let word = match index == 1 - self.table.key() {
                true => change(old).unwrap_or(NOTHING),
                false => NOTHING,
            };
            return match word {
                NOTHING => (Step::Keep, NOTHING),
                body => (Step::Put(Entry { key, body }), body),
            };
        }
        // SAFETY: the place is locked, and the element is not the key. As in `change_word`, immediates are changed into immediates.
        if let Some(word) = unsafe { change_in_place(old, index, &change) } {
            return (Step::Keep, word);
        }
        match change_in_block(self.guard, old, index, change) {
            NOTHING => (Step::Keep, NOTHING),
            body => (Step::Put(Entry { key, body }), old),
        }
    }

    /// `update_counter/3,4` with operations on immediates. Appends the counter's word after each operation. Returns false, and does
    /// nothing, if [`update_counter`](Self::update_counter) must be called.
    pub fn add_all(self, probe: &Probe<'_>, ops: &[Addition], words: &mut Words) -> Result<bool, Failure> {
        if let [op] = ops {
            let word = self.add_one(probe, *op)?;
            words.extend(word);
            return Ok(word.is_some());
        }
        let key = self.table.key();
        self.change_words(probe, |elements| {
            words.clear();
            for op in ops {
                let index = index_of(op.position);
                let place = elements.get_mut(index).filter(|_| index != key)?;
                *place = op.of(*place)?;
                words.push(*place);
            }
            Some(())
        })
    }

    /// The same for `update_element/3,4`. Each operation has a position and a new element, which is an immediate.
    pub fn set_all(self, probe: &Probe<'_>, ops: &[(i64, u64)]) -> Result<bool, Failure> {
        if let [(position, word)] = *ops {
            return self.set(probe, position, word);
        }
        let key = self.table.key();
        self.change_words(probe, |elements| {
            for (position, word) in ops {
                let index = index_of(*position);
                let place = elements.get_mut(index).filter(|_| index != key)?;
                *place = is_immediate(*place).then_some(*word)?;
            }
            Some(())
        })
    }

    /// Changes some elements from immediates to others. Returns false, and does nothing, where [`change_word`](Self::change_word) does
    /// nothing.
    #[inline(always)]
    fn change_words(
        self,
        probe: &Probe<'_>,
        mut change: impl FnMut(&mut [u64]) -> Option<()>,
    ) -> Result<bool, Failure> {
        let key = self.table.key();
        if self.table.kind().is_bag() {
            return Ok(false);
        }
        // The result is the body of the object that was replaced, or one of the two constants.
        let done = self.store().update_making(self.guard, probe, false, |old| {
            if self.still_named().is_err() {
                return (Step::Keep, RENAMED);
            }
            let Some(Entry { key: word, body: old }) = old else {
                return (Step::Keep, NOTHING);
            };
            match change_body(self.guard, old, key, &mut change) {
                0 => (Step::Keep, NOTHING),
                body => (Step::Put(Entry { key: word, body }), old),
            }
        })?;
        match done {
            NOTHING => Ok(false),
            RENAMED => Err(Cause::Id.into()),
            old => {
                // SAFETY: the place has another entry now.
                unsafe { retire_body(self.guard, old) }
                Ok(true)
            }
        }
    }

    /// `update_counter/3,4` with few operations on immediates, of a pair of immediates or an object that is changed in place: see
    /// [`ChangingRef::change_each`](cats_term::ChangingRef::change_each). Stores the counter's word after each operation in `words`. Otherwise
    /// returns false, and does nothing.
    #[inline(always)]
    pub fn add_in_place(self, probe: &Probe<'_>, ops: &[Addition], words: &mut [u64]) -> Result<bool, Failure> {
        let indices = ops.iter().map(|op| index_of(op.position));
        let change = |i: usize, word| ops[i].of(word);
        let key = self.table.key();
        self.change_in_place(
            probe,
            #[inline(always)]
            move |old| {
                if is_immediate(old) {
                    return change_pair(old, key, indices, words, change);
                }
                if indices.clone().any(|index| index == key) {
                    return NOTHING;
                }
                // SAFETY: the place is locked, and none of the elements is the key. Immediates are changed into immediates.
                match unsafe { change_each_in_place(old, indices, words, change) } {
                    true => old,
                    false => NOTHING,
                }
            },
        )
    }

    /// `update_element/3,4` of a pair of immediates or an object that is changed in place. All new elements must fit in place of the old
    /// ones, see [`ChangingRef::set_all`](cats_term::ChangingRef::set_all). Otherwise returns false, and does nothing.
    #[inline(always)]
    pub fn set_in_place<'n>(
        self,
        probe: &Probe<'_>,
        changes: &[impl Into<NewElement<'n>> + Copy],
    ) -> Result<bool, Failure> {
        let key = self.table.key();
        self.change_in_place(
            probe,
            #[inline(always)]
            move |old| {
                if is_immediate(old) {
                    return set_in_pair(old, key, changes).unwrap_or(NOTHING);
                }
                // SAFETY: the place is locked. The changes are new elements, or become them by copying.
                match unsafe { set_in_place(old, key, changes) } {
                    true => old,
                    false => NOTHING,
                }
            },
        )
    }

    /// Changes elements of an object without a new block. `change` gets the body. It returns the same body if it has changed the object in
    /// place, another one of an object without a block, or [`NOTHING`]. False if there is no object, or nothing was done.
    #[inline(always)]
    pub(super) fn change_in_place(self, probe: &Probe<'_>, change: impl FnOnce(u64) -> u64) -> Result<bool, Failure> {
        // Only the default engines make readers repeat what they read meanwhile.
        let Some(plain) = self.store().plain().filter(|_| !self.table.kind().is_bag()) else {
            return Ok(false);
        };
        let done = plain.update(
            self.guard,
            probe.erase(),
            #[inline(always)]
            move |old| {
                let Some(Entry { key, body: old }) = old else {
                    return (Step::Keep, NOTHING);
                };
                if self.still_named().is_err() {
                    return (Step::Keep, RENAMED);
                }
                match change(old) {
                    NOTHING => (Step::Keep, NOTHING),
                    body if body == old => (Step::Touch, DONE),
                    body => (Step::Put(Entry { key, body }), DONE),
                }
            },
        )?;
        match done {
            RENAMED => Err(Cause::Id.into()),
            done => Ok(done == DONE),
        }
    }

    /// `update_counter/3,4` with any operations. Returns the value after each operation. If the key has no object, the update starts from
    /// the default tuple.
    ///
    /// Fails with [`Failure::LargeInteger`] if a counter would become an integer that the host does not have. Fails with [`Failure::Big`] if
    /// the object is too large for this thread, or the counters have too many digits.
    pub fn update_counter(
        self,
        probe: &Probe<'_>,
        ops: &[CounterOp],
        default: Option<Tuple<'_>>,
        has_integer: HasInteger<'_>,
    ) -> Result<Numbers, Failure> {
        let key = self.table.key();
        self.check_updatable(default, Cause::TableType)?;
        self.update(probe, default, |base| {
            let mut digits = 0;
            let mut count = |more| {
                digits += more;
                DIGITS_LIMIT.check(digits)
            };
            let mut indices: SmallVec<[usize; STACK_OPS]> = SmallVec::new();
            for op in ops {
                let CounterOp::Add { position, .. } = op else {
                    return Err(Cause::None.into());
                };
                let index = base.index(*position, key)?;
                count(Number::digits_of(base.counter(index)).ok_or(Cause::None)?)?;
                indices.push(index);
            }
            let earlier = earlier(&indices);
            let mut values = Numbers::new();
            for (i, op) in ops.iter().enumerate() {
                let CounterOp::Add { increment, limit, .. } = op else {
                    unreachable!("checked above")
                };
                let new = match earlier[i] {
                    Some(earlier) => values[earlier].add(increment),
                    None => Number::of(base.counter(indices[i]))
                        .expect("checked above")
                        .add(increment),
                };
                count(new.size())?;
                check_integer(&new, has_integer)?;
                values.push(match limit {
                    Some((limit, beyond)) if passes(increment.is_negative(), &new, limit) => beyond.clone(),
                    _ => new,
                });
            }
            let words: Option<Words> = values.iter().map(Number::immediate).collect();
            let mut builder = Builder::new();
            let elements = match &words {
                Some(words) => Elements::immediates(words),
                None => {
                    let root = builder.tuple(values.len());
                    for (slot, value) in values.iter().enumerate() {
                        let word = value.build(&mut builder);
                        builder.set(root, slot, word);
                    }
                    match builder.root().view() {
                        View::Tuple(elements) => elements,
                        _ => unreachable!("a tuple was built"),
                    }
                }
            };
            let changes = indices.iter().copied().zip(elements.iter());
            let body = base.change(self.guard, changes, self.table.layout(), false)?;
            Ok((body, values))
        })
    }

    /// `update_element/3,4`. Fails with [`Cause::BadKey`] if there is neither an object nor a default tuple. Fails with [`Failure::Big`] if
    /// the object is too large for this thread.
    pub fn update_element(
        self,
        probe: &Probe<'_>,
        ops: &[ElementOp<'_>],
        default: Option<Tuple<'_>>,
    ) -> Result<(), Failure> {
        let key = self.table.key();
        self.check_updatable(default, Cause::None)?;
        self.update(probe, default, |base| {
            for op in ops {
                match *op {
                    ElementOp::Set(position, _) => base.index(position, key)?,
                    ElementOp::Invalid => return Err(Cause::None.into()),
                };
            }
            let changes = ops.iter().filter_map(|op| match *op {
                ElementOp::Set(position, term) => Some((position as usize - 1, term)),
                ElementOp::Invalid => None,
            });
            let again = self.table.options().plain();
            Ok((base.change(self.guard, changes, self.table.layout(), again)?, ()))
        })
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

    /// Replaces the object of a key. `change` gets the old object, or the default tuple, and makes the body of the new one.
    pub(super) fn update<R>(
        self,
        probe: &Probe<'_>,
        default: Option<Tuple<'_>>,
        mut change: impl FnMut(Base<'_>) -> Result<(u64, R), Failure>,
    ) -> Result<R, Failure> {
        let key = self.table.key();
        let change = |old: Option<Entry>| {
            if let Err(failure) = self.still_named() {
                return (Step::Keep, Err(failure));
            }
            let base = match (old, default) {
                // SAFETY: the place is locked, so its object lives.
                (Some(entry), _) if !COPY_LIMIT.admits(unsafe { stored_words(entry.body) }) => {
                    return (Step::Keep, Err(Failure::Big));
                }
                // SAFETY: as above. Nobody else changes the object.
                (Some(entry), _) => Base::Stored(unsafe { ObjectRef::stored(entry, key) }),
                (None, Some(tuple)) => Base::Default {
                    tuple,
                    key,
                    term: probe.term(),
                },
                (None, None) => return (Step::Keep, Err(Cause::BadKey.into())),
            };
            match change(base) {
                Ok((body, result)) => {
                    let key = old.map_or(probe.word(), |old| old.key);
                    (Step::Put(Entry { key, body }), Ok((result, old)))
                }
                Err(failure) => (Step::Keep, Err(failure)),
            }
        };
        let (result, old) = self
            .store()
            .update_making(self.guard, probe, default.is_some(), change)??;
        if let Some(old) = old {
            // SAFETY: the place has another entry now.
            unsafe { retire_entry(self.guard, old.body) }
        }
        Ok(result)
    }
}

/// For each index, the place of the last equal index before it, if there is one.
pub(super) fn earlier(indices: &[usize]) -> SmallVec<[Option<usize>; STACK_OPS]> {
    let mut order: SmallVec<[(usize, usize); STACK_OPS]> = indices.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let mut earlier = SmallVec::from_elem(None, indices.len());
    for pair in order.windows(2) {
        if pair[0].0 == pair[1].0 {
            earlier[pair[1].1] = Some(pair[0].1);
        }
    }
    earlier
}

/// The body of a pair of immediates after some changes, each of which is stored in `words`. [`NOTHING`] if one is not possible, or
/// there are fewer words than changes. `key` is the key's position.
#[inline(never)]
fn change_pair(
    mut body: u64,
    key: usize,
    indices: impl Iterator<Item = usize>,
    words: &mut [u64],
    change: impl Fn(usize, u64) -> Option<u64>,
) -> u64 {
    for (i, index) in indices.enumerate() {
        let new = change(i, body).filter(|_| index == 1 - key);
        match (new, words.get_mut(i)) {
            (Some(word), Some(place)) => (body, *place) = (word, word),
            _ => return NOTHING,
        }
    }
    body
}

/// The body of a pair of immediates whose elements are set. `None` if one cannot be set. `key` is the key's position.
#[inline(never)]
fn set_in_pair<'n>(body: u64, key: usize, changes: &[impl Into<NewElement<'n>> + Copy]) -> Option<u64> {
    changes.iter().try_fold(body, |_, change| {
        let change: NewElement<'_> = (*change).into();
        let word = change.as_immediate()?;
        (change.index() == 1 - key).then_some(word)
    })
}

/// The body of a copy, with one element changed, of an object in a block. 0 if there is none. The place is locked.
#[inline(never)]
fn change_in_block(guard: &Guard, body: u64, index: usize, change: impl Fn(u64) -> Option<u64>) -> u64 {
    let change = |elements: &mut [u64]| {
        let place = elements.get_mut(index)?;
        *place = change(*place)?;
        Some(())
    };
    // SAFETY: the place is locked. As in `change_word`, the key does not change, and immediates are changed into immediates.
    unsafe { changed(guard, body, change) }.map_or(0, |(body, ())| body)
}

/// The body of an object with its element words changed. 0 if there is none. The place is locked. `key` is the key's position.
#[inline(never)]
fn change_body(guard: &Guard, body: u64, key: usize, change: &mut impl FnMut(&mut [u64]) -> Option<()>) -> u64 {
    let changed = if is_immediate(body) {
        let mut pair = [body; 2];
        change(&mut pair).map(|()| pair[1 - key])
    } else {
        // SAFETY: the place is locked, so its object lives. The callers change only immediates, and only into immediates.
        unsafe { changed(guard, body, change) }.map(|(body, ())| body)
    };
    changed.unwrap_or(0)
}
