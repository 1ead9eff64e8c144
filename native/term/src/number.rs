//! Numbers by value: integers of any size and floats, compared exactly.

use crate::format::{small_word, Integer, TermRef, View};
use std::cmp::Ordering;

/// A number taken apart.
#[derive(Clone, Copy)]
pub(crate) enum Number<'a> {
    Small(i64),
    /// An integer outside the range of small ones.
    Big(Integer<'a>),
    Float(f64),
}

/// The smallest magnitude that is too large for small integers, as a float. (However, -2^59 is a small integer.)
const SMALL_END: f64 = (1u64 << 59) as f64;

impl<'a> Number<'a> {
    /// The number, if the term is one.
    #[inline]
    pub fn of(term: TermRef<'a>) -> Option<Number<'a>> {
        if term.is_immediate() {
            return term.small().map(Number::Small);
        }
        match term.view() {
            View::Integer(integer) => Some(Number::Big(integer)),
            View::Float(value) => Some(Number::Float(value)),
            _ => None,
        }
    }

    /// Compares by value.
    pub fn compare(self, other: Number<'_>) -> Ordering {
        use Number::*;
        match (self, other) {
            (Small(a), Small(b)) => a.cmp(&b),
            (Float(a), Float(b)) => compare_floats(a, b),
            (Small(a), Float(b)) => compare_small_float(a, b),
            (Float(a), Small(b)) => compare_small_float(b, a).reverse(),
            (Big(a), Big(b)) => compare_bigs(a, b),
            (Big(a), Float(b)) => compare_big_float(a, b),
            (Float(a), Big(b)) => compare_big_float(b, a).reverse(),
            (Small(_), Big(b)) => sign(b).reverse(),
            (Big(a), Small(_)) => sign(a),
        }
    }

    /// Compares in the order of map keys: by value, but all integers come before all floats, and -0.0 before 0.0 unless `zeros_identical`.
    pub fn compare_exact(self, other: Number<'_>, zeros_identical: bool) -> Ordering {
        use Number::*;
        match (self, other) {
            (Float(a), Float(b)) if zeros_identical => compare_floats(a, b),
            (Float(a), Float(b)) => a.total_cmp(&b),
            (Float(_), _) => Ordering::Greater,
            (_, Float(_)) => Ordering::Less,
            _ => self.compare(other),
        }
    }
}

#[inline]
pub(crate) fn compare_floats(a: f64, b: f64) -> Ordering {
    // Terms are never NaN.
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

/// The order of a big integer relative to any small one.
fn sign(a: Integer<'_>) -> Ordering {
    if a.negative {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}

fn compare_small_float(a: i64, b: f64) -> Ordering {
    if b >= SMALL_END {
        Ordering::Less
    } else if b < -SMALL_END {
        Ordering::Greater
    } else {
        // The conversion truncates. If the integers are equal, the fraction decides.
        a.cmp(&(b as i64)).then_with(|| compare_floats(0.0, b.fract()))
    }
}

fn compare_bigs(a: Integer<'_>, b: Integer<'_>) -> Ordering {
    match (a.negative, b.negative) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (negative, _) => {
            let magnitudes = a
                .digits
                .len()
                .cmp(&b.digits.len())
                .then_with(|| a.digits.iter().rev().cmp(b.digits.iter().rev()));
            if negative {
                magnitudes.reverse()
            } else {
                magnitudes
            }
        }
    }
}

fn compare_big_float(a: Integer<'_>, b: f64) -> Ordering {
    if b.abs() < SMALL_END || (b < 0.0) != a.negative {
        return sign(a);
    }
    let b = Whole::of(b);
    let magnitudes = a.digits.len().cmp(&b.len()).then_with(|| {
        a.digits
            .iter()
            .copied()
            .rev()
            .cmp((0..b.len()).rev().map(|i| b.digit(i)))
    });
    if a.negative {
        magnitudes.reverse()
    } else {
        magnitudes
    }
}

/// The mantissa and the exponent of a finite float that is not 0. The mantissa's highest bit is bit 52. The magnitude is mantissa *
/// 2^(exponent - 52).
pub(crate) fn decompose(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52 & 0x7ff) as i32 {
        0 => {
            let shift = fraction.leading_zeros() as i32 - 11;
            (fraction << shift, -1022 - shift)
        }
        biased => (fraction | 1 << 52, biased - 1023),
    }
}

/// The magnitude of a float of at least 2^52, as an integer.
#[derive(Clone, Copy)]
pub(crate) struct Whole {
    mantissa: u64,
    shift: u32,
}

impl Whole {
    pub fn of(value: f64) -> Whole {
        let (mantissa, exponent) = decompose(value);
        debug_assert!(exponent >= 52);
        Whole {
            mantissa,
            shift: (exponent - 52) as u32,
        }
    }

    /// The number of 64-bit digits.
    pub fn len(self) -> usize {
        (self.shift as usize + 53).div_ceil(64)
    }

    /// Digit `i`. Digit 0 is the least.
    pub fn digit(self, i: usize) -> u64 {
        let low = (self.mantissa as u128) << (self.shift % 64);
        match i.checked_sub(self.shift as usize / 64) {
            Some(0) => low as u64,
            Some(1) => (low >> 64) as u64,
            _ => 0,
        }
    }
}

/// The word of the small integer that equals this float, if there is one.
#[inline]
pub(crate) fn small_value(value: f64) -> Option<u64> {
    if has_fraction(value) || !(-SMALL_END..SMALL_END).contains(&value) {
        return None;
    }
    // SAFETY: the value is in the range of small integers.
    Some(small_word(unsafe { value.to_int_unchecked() }))
}

/// Whether a float is not an integer; false for 0.0. Looks at the bits, which is several times as fast as converting the value to an
/// integer and comparing.
#[inline]
fn has_fraction(value: f64) -> bool {
    let bits = value.to_bits();
    let zeros = (bits | 1 << 52).trailing_zeros();
    // The exponent of the lowest bit that is set, plus 1075.
    let lowest = (bits >> 52 & 0x7ff) as u32 + zeros;
    lowest < 1075 && value != 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::small;

    #[test]
    fn floats_that_equal_small_integers_are_told() {
        let by_conversion = |value: f64| {
            let integer = value as i64;
            small(integer).filter(|_| integer as f64 == value)
        };
        let check = |value: f64| {
            for value in [value, -value] {
                assert_eq!(small_value(value), by_conversion(value), "{value:?}");
            }
        };
        for exponent in 0..2047u64 {
            // Each exponent with a mantissa of a single bit, and with one of all bits from some bit on.
            for bit in 0..52 {
                for mantissa in [0, 1 << bit, (1 << 52) - (1 << bit)] {
                    check(f64::from_bits(exponent << 52 | mantissa));
                }
            }
        }
    }
}
