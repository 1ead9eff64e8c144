//! Integers of any size, for counters.

use cats_term::{small, Builder, TermRef, View};
use num_bigint::{BigInt, BigUint, Sign};
use num_traits::ToPrimitive;
use std::cmp::Ordering;

/// An integer. Each value has one form: `Small` whenever it fits 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    Small(i64),
    Big(BigInt),
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Number::Small(value)
    }
}

impl From<BigInt> for Number {
    fn from(value: BigInt) -> Self {
        i64::try_from(&value).map_or(Number::Big(value), Number::Small)
    }
}

impl Number {
    /// The integer, if the term is one.
    #[inline]
    pub fn of(term: TermRef<'_>) -> Option<Number> {
        if let Some(value) = term.small() {
            return Some(Number::Small(value));
        }
        match term.view() {
            View::Integer(integer) => {
                let bytes: Vec<u8> = integer.digits.iter().flat_map(|digit| digit.to_le_bytes()).collect();
                let sign = if integer.negative { Sign::Minus } else { Sign::Plus };
                Some(BigInt::from_biguint(sign, BigUint::from_bytes_le(&bytes)).into())
            }
            _ => None,
        }
    }

    /// If the term is an integer: the number of its 64-bit digits, which is 0 for an immediate.
    #[inline]
    pub(crate) fn digits_of(term: TermRef<'_>) -> Option<usize> {
        if term.small().is_some() {
            return Some(0);
        }
        match term.view() {
            View::Integer(integer) => Some(integer.digits.len()),
            _ => None,
        }
    }

    /// The number of its 64-bit digits. 0 if it fits one digit.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        match self {
            Number::Small(_) => 0,
            Number::Big(value) => value.bits().div_ceil(64) as usize,
        }
    }

    fn big(&self) -> BigInt {
        match self {
            Number::Small(value) => BigInt::from(*value),
            Number::Big(value) => value.clone(),
        }
    }

    /// The sum.
    #[inline]
    pub fn add(&self, other: &Number) -> Number {
        if let (Number::Small(a), Number::Small(b)) = (self, other) {
            if let Some(sum) = a.checked_add(*b) {
                return Number::Small(sum);
            }
        }
        (self.big() + other.big()).into()
    }

    /// The nearest float. Infinite if the integer is too large.
    pub(crate) fn as_float(&self) -> f64 {
        match self {
            Number::Small(value) => *value as f64,
            Number::Big(value) => value.to_f64().unwrap_or(f64::INFINITY),
        }
    }

    pub fn is_negative(&self) -> bool {
        match self {
            Number::Small(value) => *value < 0,
            Number::Big(value) => value.sign() == Sign::Minus,
        }
    }

    /// The number's word, if it is an immediate of the VM.
    #[inline]
    pub fn immediate(&self) -> Option<u64> {
        match self {
            Number::Small(value) => small(*value),
            Number::Big(_) => None,
        }
    }

    /// Whether it is negative, and the 64-bit digits of its magnitude, least digit first.
    pub fn digits(&self) -> (bool, Vec<u64>) {
        match self {
            Number::Small(value) => (*value < 0, vec![value.unsigned_abs()]),
            Number::Big(value) => (value.sign() == Sign::Minus, value.magnitude().to_u64_digits()),
        }
    }

    /// Adds the number to a builder.
    pub fn build(&self, builder: &mut Builder) -> u64 {
        self.immediate().unwrap_or_else(|| {
            let (negative, digits) = self.digits();
            builder.integer(negative, &digits)
        })
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> Ordering {
        match (self, other) {
            (Number::Small(a), Number::Small(b)) => a.cmp(b),
            _ => self.big().cmp(&other.big()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_one_form() {
        let max = Number::Small(i64::MAX);
        let one = Number::Small(1);
        let over = max.add(&one);
        assert!(matches!(over, Number::Big(_)));
        assert!(over > max);
        assert_eq!(over.add(&Number::Small(-1)), max);
        assert!(max.immediate().is_none());
        assert_eq!(Number::Small(-5).digits(), (true, vec![5]));
    }
}
