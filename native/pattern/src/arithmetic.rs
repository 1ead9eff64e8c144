//! Numbers in guards and bodies: integers of any size and floats. Operations fail where the VM's fail.

use crate::arena::Arena;
use cats_term::{TermRef, View};
use num_bigint::{BigInt, Sign};
use num_integer::Integer as _;
use num_traits::{FromPrimitive, Signed, ToPrimitive, Zero};

/// The number of bits of the largest result of a shift or a multiplication. It is the VM's own limit since OTP 28.
const MAX_BITS: u64 = 4_194_240;

#[derive(Clone, Debug)]
pub(crate) enum Number {
    Small(i64),
    Big(BigInt),
    Float(f64),
}
use Number::*;

impl Number {
    pub(crate) fn of(term: TermRef<'_>) -> Option<Number> {
        if let Some(value) = term.small() {
            return Some(Small(value));
        }
        match term.view() {
            View::Float(value) => Some(Float(value)),
            View::Integer(integer) => {
                let bytes: Vec<u8> = integer.digits.iter().flat_map(|digit| digit.to_le_bytes()).collect();
                let sign = if integer.negative { Sign::Minus } else { Sign::Plus };
                Some(Big(BigInt::from_bytes_le(sign, &bytes)))
            }
            _ => None,
        }
    }

    /// The term. `None` for a float that is not finite, as the VM has none.
    pub(crate) fn term(self, arena: &Arena) -> Option<TermRef<'_>> {
        match self {
            Small(value) => match cats_term::small(value) {
                Some(word) => Some(TermRef::immediate(word)),
                None => arena.make(|builder| Some(builder.integer_i64(value))),
            },
            Big(value) => {
                let (sign, digits) = value.to_u64_digits();
                arena.make(|builder| Some(builder.integer(sign == Sign::Minus, &digits)))
            }
            Float(value) if value.is_finite() => arena.make(|builder| Some(builder.float(value))),
            Float(_) => None,
        }
    }

    fn big(self) -> Option<BigInt> {
        match self {
            Small(value) => Some(value.into()),
            Big(value) => Some(value),
            Float(_) => None,
        }
    }

    /// The nearest float. `None` for an integer beyond the range of floats.
    pub(crate) fn float(self) -> Option<f64> {
        match self {
            Small(value) => Some(value as f64),
            Big(value) => value.to_f64().filter(|value| value.is_finite()),
            Float(value) => Some(value),
        }
    }

    fn combine(
        self,
        other: Number,
        small: fn(i64, i64) -> Option<i64>,
        big: fn(BigInt, BigInt) -> BigInt,
        float: fn(f64, f64) -> f64,
    ) -> Option<Number> {
        match (self, other) {
            (Small(a), Small(b)) => Some(match small(a, b) {
                Some(value) => Small(value),
                None => Big(big(a.into(), b.into())),
            }),
            (a, b) if matches!(a, Float(_)) || matches!(b, Float(_)) => Some(Float(float(a.float()?, b.float()?))),
            (a, b) => Some(Big(big(a.big()?, b.big()?))),
        }
    }

    pub(crate) fn add(self, other: Number) -> Option<Number> {
        self.combine(other, i64::checked_add, |a, b| a + b, |a, b| a + b)
    }

    pub(crate) fn subtract(self, other: Number) -> Option<Number> {
        self.combine(other, i64::checked_sub, |a, b| a - b, |a, b| a - b)
    }

    /// The number of 64-bit digits of a large integer. 0 for other numbers.
    pub(crate) fn digits(&self) -> usize {
        match self {
            Big(value) => value.bits().div_ceil(64) as usize,
            Small(_) | Float(_) => 0,
        }
    }

    /// Fails beyond the VM's limit for integers.
    pub(crate) fn multiply(self, other: Number) -> Option<Number> {
        if 64 * (self.digits() + other.digits()) as u64 > MAX_BITS + 2 * 64 {
            return None;
        }
        self.combine(other, i64::checked_mul, |a, b| a * b, |a, b| a * b)
    }

    /// `/`. The result is always a float. Fails if the divisor is zero.
    pub(crate) fn divide(self, other: Number) -> Option<Number> {
        let divisor = other.float()?;
        (divisor != 0.0).then_some(())?;
        Some(Float(self.float()? / divisor))
    }

    /// `div` and `rem` of integers, truncated towards zero. Fails if the divisor is zero.
    pub(crate) fn quotient_remainder(self, other: Number) -> Option<(Number, Number)> {
        if let (Small(a), Small(b)) = (&self, &other) {
            if let (Some(quotient), Some(remainder)) = (a.checked_div(*b), a.checked_rem(*b)) {
                return Some((Small(quotient), Small(remainder)));
            }
        }
        let (a, b) = (self.big()?, other.big()?);
        (!b.is_zero()).then(|| {
            let (quotient, remainder) = a.div_rem(&b);
            (Big(quotient), Big(remainder))
        })
    }

    pub(crate) fn negate(self) -> Option<Number> {
        match self {
            Float(value) => Some(Float(-value)),
            other => Small(0).subtract(other),
        }
    }

    pub(crate) fn absolute(self) -> Option<Number> {
        match self {
            Float(value) => Some(Float(value.abs())),
            Small(value) if value >= 0 => Some(Small(value)),
            other => Some(Big(other.big()?.abs())),
        }
    }

    /// Rounds a float to an integer by `rounding`. Integers stay as they are.
    pub(crate) fn rounded(self, rounding: fn(f64) -> f64) -> Option<Number> {
        match self {
            Float(value) => BigInt::from_f64(rounding(value)).map(Big),
            other => Some(other),
        }
    }

    pub(crate) fn bitwise(
        self,
        other: Number,
        small: fn(i64, i64) -> i64,
        big: fn(BigInt, BigInt) -> BigInt,
    ) -> Option<Number> {
        match (self, other) {
            (Small(a), Small(b)) => Some(Small(small(a, b))),
            (a, b) => Some(Big(big(a.big()?, b.big()?))),
        }
    }

    pub(crate) fn complement(self) -> Option<Number> {
        match self {
            Small(value) => Some(Small(!value)),
            other => Some(Big(!other.big()?)),
        }
    }

    /// `bsl`. Shifts right if `count` is negative. Fails beyond the VM's limit for integers.
    pub(crate) fn shift_left(self, count: Number) -> Option<Number> {
        let value = self.big()?;
        let count = count.big()?;
        if value.is_zero() {
            return Some(Small(0));
        }
        let distance = count.magnitude().to_u64();
        if count.is_negative() {
            return Some(Big(match distance {
                Some(distance) if distance <= value.bits() => value >> distance,
                _ if value.is_negative() => BigInt::from(-1),
                _ => BigInt::zero(),
            }));
        }
        let distance = distance.filter(|distance| distance.saturating_add(value.bits()) <= MAX_BITS)?;
        Some(Big(value << distance))
    }
}
