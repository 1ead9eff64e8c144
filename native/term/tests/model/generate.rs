//! Random models. There are few different leaves, so terms often share a beginning or are equal. Numbers are often near the limits where
//! their representation changes.

#![allow(clippy::incompatible_msrv)] // Tests need a newer Rust than the library.

use super::Bytes;
use super::Model::{self, *};
use cats_term::Class;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{FromPrimitive, ToPrimitive};
use proptest::prelude::*;
use proptest::sample::select;

pub fn number() -> impl Strategy<Value = Model> {
    let exponent =
        prop_oneof![4 => 0u32..5, 4 => 50u32..70, 1 => 120u32..131, 1 => select(vec![200, 1000, 1023, 1024, 2000])];
    let near_power = (any::<bool>(), exponent, -2i32..3, any::<bool>());
    let near_power = near_power.prop_map(|(negative, exponent, delta, float)| {
        let power = BigInt::from(1) << exponent;
        let value = if float && exponent < 1024 {
            let steps = (0..delta.abs()).fold(power.to_f64().unwrap(), |value, _| {
                if delta > 0 {
                    value.next_up()
                } else {
                    value.next_down()
                }
            });
            return Float(if negative { -steps } else { steps });
        } else {
            power + delta
        };
        Int(if negative { -value } else { value })
    });
    prop_oneof![
        3 => (-3i64..4).prop_map(|value| Int(value.into())),
        2 => (-6i32..7).prop_map(|value| Float(value as f64 / 2.0)),
        // Near the largest integer that is one byte as an element of a list.
        1 => (246i64..252).prop_map(|value| Int(value.into())),
        1 => (492i32..504).prop_map(|value| Float(value as f64 / 2.0)),
        1 => Just(Float(-0.0)),
        6 => near_power,
        1 => any::<i64>().prop_map(|value| Int(value.into())),
        1 => prop::num::f64::NORMAL.prop_map(Float),
        1 => prop::num::f64::SUBNORMAL.prop_map(Float),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(select(vec![0u8, 1, 2, 8, 0x10, b'a', 0xf0, 0xff]), 0..5),
        1 => prop::collection::vec(select(vec![0u8, 1, 0xff]), 5..70),
    ]
}

fn bit_string() -> impl Strategy<Value = Model> {
    prop_oneof![
        4 => (bytes(), select(vec![Bytes::Inline, Bytes::HeldTerm, Bytes::Counted])).prop_map(|(bytes, at)| Binary(bytes, at)),
        1 => (bytes(), any::<u8>(), 1usize..8).prop_map(|(mut bytes, last, bits)| {
            let whole = bytes.len() * 8;
            bytes.push(last & !(0xff >> bits));
            Bits(bytes, whole + bits)
        }),
    ]
}

fn atom() -> impl Strategy<Value = Model> {
    select(vec![
        "",
        "\0",
        "\0a",
        "a",
        "a\0",
        "ab",
        "b",
        "é",
        "ok",
        "undefined",
        "undefined_function",
    ])
    .prop_map(Atom)
}

fn orderable_leaf() -> impl Strategy<Value = Model> {
    prop_oneof![6 => number(), 2 => atom(), 2 => bit_string(), 1 => Just(Nil)]
}

fn compound(inner: BoxedStrategy<Model>) -> impl Strategy<Value = Model> {
    let tail = prop_oneof![
        4 => Just(Nil),
        1 => inner.clone().prop_filter("a tail is no list", |tail| tail.class() != Class::List)
    ];
    prop_oneof![
        prop::collection::vec(inner.clone(), 0..4).prop_map(Tuple),
        (prop::collection::vec(inner, 1..4), tail).prop_map(|(elements, tail)| List(elements, Box::new(tail))),
    ]
}

/// Terms that are equal if their normalized keys are.
pub fn orderable() -> impl Strategy<Value = Model> {
    orderable_leaf().prop_recursive(3, 16, 4, compound)
}

/// A map, with its pairs in the order of keys.
fn map(pairs: Vec<(Model, Model)>) -> Model {
    let mut pairs = pairs;
    pairs.sort_by(|a, b| a.0.compare(&b.0, true));
    pairs.dedup_by(|a, b| a.0.same(&b.0));
    Map(pairs)
}

/// A pid or a reference, of this node or another one.
fn identifier() -> impl Strategy<Value = Model> {
    let class = select(vec![Class::Reference, Class::Pid]);
    let number = prop_oneof![0u64..4, (0u32..28).prop_map(|bit| 1 << bit), 0u64..1 << 28];
    prop_oneof![
        1 => (class, 0u64..8).prop_map(|(class, number)| Opaque(class, number)),
        1 => (0u64..8).prop_map(Plain),
        2 => number.prop_map(LocalPid),
    ]
}

/// Terms of all kinds.
pub fn term() -> impl Strategy<Value = Model> {
    let classes = vec![Class::Fun, Class::Port, Class::Record];
    let leaf = prop_oneof![
        8 => orderable_leaf(),
        1 => (select(classes), 0u64..8).prop_map(|(class, number)| Opaque(class, number)),
        2 => identifier(),
        1 => (0u64..3).prop_map(LocalPort),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let small_map = prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        let large_map = prop::collection::vec((number(), inner.clone()), 30..50);
        prop_oneof![6 => compound(inner), 3 => small_map.prop_map(map), 1 => large_map.prop_map(map)]
    })
}

/// The same value with other numbers: integers become floats, and floats become integers, where that is possible.
pub fn with_other_numbers(term: &Model) -> Model {
    let all = |terms: &[Model]| terms.iter().map(with_other_numbers).collect();
    match term {
        Int(value) => match value.to_f64() {
            Some(float) if BigRational::from_float(float) == Some(BigRational::from(value.clone())) => Float(float),
            _ => term.clone(),
        },
        Float(value) if value.fract() == 0.0 => Int(BigInt::from_f64(*value).unwrap()),
        Tuple(elements) => Tuple(all(elements)),
        List(elements, tail) => List(all(elements), Box::new(with_other_numbers(tail))),
        Map(pairs) => Map(pairs
            .iter()
            .map(|(key, value)| (key.clone(), with_other_numbers(value)))
            .collect()),
        other => other.clone(),
    }
}

/// The same term with its maps iterated in another order, and with its binaries stored in another way.
pub fn reshaped(term: &Model) -> Model {
    let all = |terms: &[Model]| terms.iter().map(reshaped).collect();
    match term {
        Binary(bytes, Bytes::Inline) => Binary(bytes.clone(), Bytes::Counted),
        Binary(bytes, Bytes::Counted) => Binary(bytes.clone(), Bytes::HeldTerm),
        Binary(bytes, Bytes::HeldTerm) => Binary(bytes.clone(), Bytes::Inline),
        Tuple(elements) => Tuple(all(elements)),
        List(elements, tail) => List(all(elements), Box::new(reshaped(tail))),
        Map(pairs) => Map(pairs
            .iter()
            .rev()
            .map(|(key, value)| (reshaped(key), reshaped(value)))
            .collect()),
        other => other.clone(),
    }
}

/// The term with one leaf replaced by `other`. `number` chooses the leaf, modulo the number of leaves.
fn with_leaf(term: &Model, number: usize, other: &Model) -> Model {
    fn leaves(term: &Model) -> usize {
        match term {
            Tuple(elements) if !elements.is_empty() => elements.iter().map(leaves).sum(),
            List(elements, tail) => elements.iter().map(leaves).sum::<usize>() + leaves(tail),
            _ => 1,
        }
    }
    let mut left = number % leaves(term);
    let mut part = |part: &Model| {
        let count = leaves(part);
        let changed = match left < count {
            true => with_leaf(part, left, other),
            false => part.clone(),
        };
        left = left.wrapping_sub(count);
        changed
    };
    match term {
        Tuple(elements) if !elements.is_empty() => Tuple(elements.iter().map(part).collect()),
        List(elements, tail) => {
            let elements = elements.iter().map(&mut part).collect();
            match part(tail) {
                List(more, tail) => List([elements, more].concat(), tail),
                tail => List(elements, Box::new(tail)),
            }
        }
        _ => other.clone(),
    }
}

/// Two terms that are often equal or nearly so.
pub fn pair() -> impl Strategy<Value = (Model, Model)> {
    prop_oneof![
        3 => (term(), term()),
        3 => (number(), number()),
        1 => (bit_string(), bit_string()),
        1 => (identifier(), identifier()),
        1 => (identifier(), identifier(), number(), number()).prop_map(|(a, b, x, y)| (Tuple(vec![a, x]), Tuple(vec![b, y]))),
        1 => term().prop_map(|a| (a.clone(), a)),
        1 => term().prop_map(|a| (with_other_numbers(&a), a)),
        2 => (prop::collection::vec(orderable_leaf(), 1..4), orderable_leaf()).prop_map(|(a, other)| {
            let mut b = a.clone();
            *b.last_mut().unwrap() = other;
            (Tuple(a), Tuple(b))
        }),
        3 => (term(), any::<usize>(), term()).prop_map(|(a, number, other)| (with_leaf(&a, number, &other), a)),
        2 => (prop::collection::vec(number(), 1..12), any::<usize>(), term()).prop_map(|(numbers, number, other)| {
            let a = List(numbers, Box::new(Nil));
            (with_leaf(&a, number, &other), a)
        }),
    ]
}
