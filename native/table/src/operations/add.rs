//! `add/3`: counters that are integers or floats.

use crate::failure::{Cause, Failure};
use crate::object::schema::Probe;
use crate::object::{changing_element, set_in_place};
use crate::operations::number::Number;
use crate::operations::update::{check_integer, earlier, index_of, HasInteger, DIGITS_LIMIT, NOTHING};
use crate::store::Unused;
use crate::table::Handle;
use cats_term::{Builder, Elements, NewElement, Room, TermRef, View};
use smallvec::SmallVec;

/// The number of additions for which there is room on the stack.
const STACK_ADDITIONS: usize = 4;

/// An integer or a float.
#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    Integer(Number),
    Float(f64),
}

/// The values of counters.
pub type Amounts = SmallVec<[Amount; STACK_ADDITIONS]>;

impl Amount {
    /// The number, if the term is one.
    pub fn of(term: TermRef<'_>) -> Option<Self> {
        match Number::of(term) {
            Some(number) => Some(Self::Integer(number)),
            None => match term.view() {
                View::Float(value) => Some(Self::Float(value)),
                _ => None,
            },
        }
    }

    /// The sum. A float if one of both is. `None` if it is too large for a float.
    fn add(&self, other: &Self) -> Option<Self> {
        if let (Self::Integer(a), Self::Integer(b)) = (self, other) {
            return Some(Self::Integer(a.add(b)));
        }
        let sum = self.as_float() + other.as_float();
        sum.is_finite().then_some(Self::Float(sum))
    }

    /// The number as a float. Infinite if it is too large.
    fn as_float(&self) -> f64 {
        match self {
            Self::Integer(number) => number.as_float(),
            Self::Float(value) => *value,
        }
    }

    /// The number of its 64-bit digits. 0 if it fits one word.
    fn size(&self) -> usize {
        match self {
            Self::Integer(number) => number.size(),
            Self::Float(_) => 0,
        }
    }

    fn build(&self, builder: &mut Builder) -> u64 {
        match self {
            Self::Integer(number) => number.build(builder),
            Self::Float(value) => builder.float(*value),
        }
    }
}

/// One counter: its position, counted from 1, and what is added to it.
pub type Increment = (i64, Amount);

impl Handle<'_> {
    /// `add/3`. Returns the value after each addition.
    ///
    /// Fails with [`Cause::Overflow`] if a sum is too large for a float, and with [`Failure::LargeInteger`] if it is an integer that the host
    /// does not have. Fails with [`Failure::Big`] if the object is too large for this thread, or the counters have too many
    /// digits.
    pub fn add_amounts(
        self,
        probe: &Probe<'_>,
        increments: &[Increment],
        has_integer: HasInteger<'_>,
    ) -> Result<Amounts, Failure> {
        let key = self.table.key();
        if self.table.kind().is_bag() {
            return Err(Cause::TableType.into());
        }
        let mut sums = Amounts::new();
        if increments.is_empty() {
            return match self.member::<Unused>(probe)? {
                true => Ok(sums),
                false => Err(Cause::BadKey.into()),
            };
        }
        if increments.len() <= STACK_ADDITIONS && self.add_amounts_in_place(probe, increments, &mut sums)? {
            return Ok(sums);
        }
        let plain = self.table.options().plain();
        self.update(probe, None, |base| {
            let indices = increments.iter().map(|(position, _)| base.index(*position, key));
            let indices = indices.collect::<Result<SmallVec<[usize; STACK_ADDITIONS]>, _>>()?;
            let sums = sums_of(increments, &indices, has_integer, |index| base.counter(index))?;
            let mut builder = Builder::new();
            let changes = indices.iter().copied().zip(built(&mut builder, &sums).iter());
            let body = base.change(self.guard, changes, self.table.layout(), plain)?;
            Ok((body, sums))
        })
    }

    /// [`add_amounts`](Self::add_amounts) of an object that is changed in place, if each sum fits in place of its counter. Otherwise returns
    /// false, and does nothing.
    fn add_amounts_in_place(
        self,
        probe: &Probe<'_>,
        increments: &[Increment],
        sums: &mut Amounts,
    ) -> Result<bool, Failure> {
        let indices: SmallVec<[usize; STACK_ADDITIONS]> =
            increments.iter().map(|(position, _)| index_of(*position)).collect();
        if indices.contains(&self.table.key()) {
            return Ok(false);
        }
        self.change_in_place(probe, |body| {
            // SAFETY: the place is locked.
            let element = |index| unsafe { changing_element(body, index) };
            if indices.iter().any(|index| element(*index).is_none()) {
                return NOTHING;
            }
            let element = |index| element(index).expect("looked for above");
            // What fails here fails in the other way too, which says why.
            let Ok(found) = sums_of(increments, &indices, &|_| false, element) else {
                return NOTHING;
            };
            let mut room = Room::<32>::new();
            let mut builder = Builder::within(&mut room);
            let terms = built(&mut builder, &found).iter();
            let changes: Option<SmallVec<[NewElement<'_>; STACK_ADDITIONS]>> = indices
                .iter()
                .zip(terms)
                .map(|(index, term)| NewElement::new(*index, term))
                .collect();
            // SAFETY: the place is locked.
            match changes.is_some_and(|changes| unsafe { set_in_place(body, self.table.key(), &changes) }) {
                true => {
                    *sums = found;
                    body
                }
                false => NOTHING,
            }
        })
    }
}

/// The value after each addition. An addition to a counter that has been added to before goes on from there.
fn sums_of<'t>(
    increments: &[Increment],
    indices: &[usize],
    has_integer: HasInteger<'_>,
    element: impl Fn(usize) -> TermRef<'t>,
) -> Result<Amounts, Failure> {
    let earlier = earlier(indices);
    let (mut sums, mut digits) = (Amounts::new(), 0);
    for (i, (_, increment)) in increments.iter().enumerate() {
        let sum = match earlier[i] {
            Some(earlier) => sums[earlier].add(increment),
            None => Amount::of(element(indices[i])).ok_or(Cause::None)?.add(increment),
        };
        let sum = sum.ok_or(Cause::Overflow)?;
        digits += sum.size();
        DIGITS_LIMIT.check(digits)?;
        if let Amount::Integer(sum) = &sum {
            check_integer(sum, has_integer)?;
        }
        sums.push(sum);
    }
    Ok(sums)
}

/// Builds a tuple of these numbers, and returns its elements.
fn built<'b>(builder: &'b mut Builder<'_>, numbers: &[Amount]) -> Elements<'b> {
    let root = builder.tuple(numbers.len());
    for (slot, number) in numbers.iter().enumerate() {
        let word = number.build(builder);
        builder.set(root, slot, word);
    }
    match builder.root().view() {
        View::Tuple(elements) => elements,
        _ => unreachable!("a tuple was built"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_a_float_if_one_of_both_is() {
        let integer = |value: i64| Amount::Integer(value.into());
        assert_eq!(integer(1).add(&integer(2)), Some(integer(3)));
        assert_eq!(integer(1).add(&Amount::Float(0.5)), Some(Amount::Float(1.5)));
        assert_eq!(Amount::Float(0.5).add(&integer(1)), Some(Amount::Float(1.5)));
        assert_eq!(Amount::Float(f64::MAX).add(&Amount::Float(f64::MAX)), None);
    }
}
