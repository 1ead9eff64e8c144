//! Random terms of all kinds, compared with a model whose order and equality are written naively.

#[path = "../../../cases.rs"]
mod cases;
mod generate;
mod properties;
mod units;

use crate::ZEROS_IDENTICAL;
use cats_term::test_host::{
    atom, atom_text, foreign_pid, held_form, held_reference, hold, install_test_host, plain_number, plain_reference,
    record, Form, LAYOUT,
};
use cats_term::{small, Builder, Class, HeldReference, Shared, TermRef, View, NIL};
use num_bigint::{BigInt, BigUint, Sign};
use num_rational::BigRational;
use num_traits::ToPrimitive;
use std::cmp::Ordering;

#[derive(Clone, Debug)]
pub enum Model {
    Int(BigInt),
    Float(f64),
    Atom(&'static str),
    /// A reference, fun, external port or external pid. Only its class and an order are known.
    Opaque(Class, u64),
    /// A plain reference.
    Plain(u64),
    LocalPort(u64),
    LocalPid(u64),
    Tuple(Vec<Model>),
    /// Pairs in the order of iteration.
    Map(Vec<(Model, Model)>),
    Nil,
    List(Vec<Model>, Box<Model>),
    Binary(Vec<u8>, Bytes),
    /// Bits, and their number, which is not a multiple of 8. Unused bits of the last byte are zero.
    Bits(Vec<u8>, usize),
    /// A compound term nested too deeply to be stored.
    Deep(Box<Model>),
}
use Model::*;

/// Where the bytes of a binary are.
#[derive(Clone, Copy, Debug)]
pub enum Bytes {
    Inline,
    /// In a held term.
    HeldTerm,
    /// In a counted binary.
    Counted,
}

impl Model {
    fn class(&self) -> Class {
        match self {
            Int(_) | Float(_) => Class::Number,
            Atom(_) => Class::Atom,
            Opaque(class, _) => *class,
            Plain(_) => Class::Reference,
            LocalPort(_) => Class::Port,
            LocalPid(_) => Class::Pid,
            Tuple(_) => Class::Tuple,
            Map(_) => Class::Map,
            Nil => Class::Nil,
            List(..) => Class::List,
            Binary(..) | Bits(..) => Class::BitString,
            Deep(inner) => inner.class(),
        }
    }

    fn bits(&self) -> Vec<bool> {
        let (bytes, bits) = match self {
            Binary(bytes, _) => (bytes, bytes.len() * 8),
            Bits(bytes, bits) => (bytes, *bits),
            other => panic!("{other:?} has no bits"),
        };
        (0..bits).map(|i| bytes[i / 8] >> (7 - i % 8) & 1 == 1).collect()
    }

    /// The order of terms, or of map keys when `exact`.
    pub fn compare(&self, other: &Model, exact: bool) -> Ordering {
        let each = |a: &[Model], b: &[Model]| {
            a.iter()
                .zip(b)
                .map(|(a, b)| a.compare(b, exact))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        match (self, other) {
            (Deep(a), b) => a.compare(b, exact),
            (a, Deep(b)) => a.compare(b, exact),
            (Float(a), Float(b)) if exact && !ZEROS_IDENTICAL => a.total_cmp(b),
            (Float(a), Float(b)) => a.partial_cmp(b).unwrap(),
            (Int(a), Int(b)) => a.cmp(b),
            (Int(_), Float(_)) if exact => Ordering::Less,
            (Float(_), Int(_)) if exact => Ordering::Greater,
            (Int(a), Float(b)) => BigRational::from(a.clone()).cmp(&BigRational::from_float(*b).unwrap()),
            (Float(_), Int(_)) => other.compare(self, exact).reverse(),
            (Atom(a), Atom(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Opaque(class, a), Opaque(other, b)) if class == other => a.cmp(b),
            (Plain(a), Opaque(Class::Reference, b)) => match held_reference(*b) {
                HeldReference::Elsewhere(order) => order.reverse(),
                HeldReference::Here([low, ..]) => (2 * a + 1).cmp(&low.into()),
            },
            (LocalPid(a), Opaque(Class::Pid, b)) => {
                let (number, order) = foreign_pid(*b);
                a.cmp(&number).then(order.reverse())
            }
            (Opaque(Class::Reference, _), Plain(_)) | (Opaque(Class::Pid, _), LocalPid(_)) => {
                other.compare(self, exact).reverse()
            }
            (Plain(a), Plain(b)) | (LocalPid(a), LocalPid(b)) | (LocalPort(a), LocalPort(b)) => a.cmp(b),
            (LocalPort(_), Opaque(Class::Port, _)) => Ordering::Less,
            (Opaque(Class::Port, _), LocalPort(_)) => Ordering::Greater,
            (Tuple(a), Tuple(b)) => a.len().cmp(&b.len()).then_with(|| each(a, b)),
            (List(a, a_tail), List(b, b_tail)) => each(a, b).then_with(|| match a.len().cmp(&b.len()) {
                Ordering::Equal => a_tail.compare(b_tail, exact),
                Ordering::Less => a_tail.compare(&List(b[a.len()..].to_vec(), b_tail.clone()), exact),
                Ordering::Greater => List(a[b.len()..].to_vec(), a_tail.clone()).compare(b_tail, exact),
            }),
            (Map(a), Map(b)) => a.len().cmp(&b.len()).then_with(|| {
                let sorted = |map: &[(Model, Model)]| {
                    let mut map = map.to_vec();
                    map.sort_by(|a, b| a.0.compare(&b.0, true));
                    map
                };
                let (a, b) = (sorted(a), sorted(b));
                let keys = a.iter().zip(&b).map(|(a, b)| a.0.compare(&b.0, true));
                let values = a.iter().zip(&b).map(|(a, b)| a.1.compare(&b.1, exact));
                keys.chain(values).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
            }),
            (Binary(..) | Bits(..), Binary(..) | Bits(..)) => self.bits().cmp(&other.bits()),
            _ => self.class().cmp(&other.class()),
        }
    }

    /// Whether the terms are exactly the same, by the order of map keys.
    pub fn same(&self, other: &Model) -> bool {
        self.compare(other, true).is_eq()
    }

    pub fn build(&self, builder: &mut Builder) -> u64 {
        match self {
            Int(value) => {
                let (sign, digits) = value.to_u64_digits();
                builder.integer(sign == Sign::Minus, &digits)
            }
            Float(value) => builder.float(*value),
            Atom(text) => atom(text),
            LocalPort(number) => number << 4 | 7,
            LocalPid(number) => LAYOUT.word(*number),
            Nil => NIL,
            Tuple(elements) => {
                let item = builder.tuple(elements.len());
                // From the last element to the first, because slots may be filled in any order.
                for (i, element) in elements.iter().enumerate().rev() {
                    let word = element.build(builder);
                    builder.set(item, i, word);
                }
                item.word()
            }
            List(elements, tail) => {
                let tail = (!matches!(**tail, Nil)).then_some(&**tail);
                let item = match tail {
                    Some(_) => builder.list(elements.len()),
                    None => builder.proper_list(elements.len()),
                };
                for (i, element) in elements.iter().chain(tail).enumerate() {
                    let word = element.build(builder);
                    builder.set(item, i, word);
                }
                item.word()
            }
            Map(pairs) => {
                let item = builder.map(pairs.len());
                for (i, (key, value)) in pairs.iter().enumerate() {
                    let word = key.build(builder);
                    builder.set(item, i, word);
                    let word = value.build(builder);
                    builder.set(item, pairs.len() + i, word);
                }
                item.word()
            }
            Binary(bytes, Bytes::Inline) => builder.binary(bytes),
            Binary(bytes, Bytes::Counted) => {
                let (record, bytes) = record(bytes);
                // SAFETY: the bytes live forever. The test host counts references for any number.
                unsafe { builder.counted_binary(record, bytes) }
            }
            Binary(bytes, Bytes::HeldTerm) => {
                let word = hold(Form::Shared(bytes.clone()));
                let form = held_form(word).unwrap();
                let Form::Shared(bytes) = &*form else { unreachable!() };
                // SAFETY: the host keeps the term, and its bytes in their place, forever.
                unsafe { builder.shared_binary(word, bytes) }
            }
            Bits(bytes, bits) => self.build_held(Form::Bits(bytes.clone(), *bits), builder),
            Plain(number) => builder.same(&plain_reference(*number)),
            Opaque(_, number) => self.build_held(Form::Opaque(*number), builder),
            Deep(inner) => self.build_held(Form::Compound(Box::new(inner.key())), builder),
        }
    }

    fn build_held(&self, form: Form, builder: &mut Builder) -> u64 {
        // SAFETY: the host keeps the term forever.
        unsafe { builder.held(self.class(), hold(form)) }
    }

    /// A builder with this term as a key to search for.
    pub fn key(&self) -> Builder<'static> {
        install_test_host(ZEROS_IDENTICAL);
        let mut builder = Builder::new();
        let root = builder.tuple(1);
        let word = self.build(&mut builder);
        builder.set(root, 0, word);
        builder
    }

    /// Reads a term back.
    pub fn read(term: TermRef<'_>) -> Model {
        match term.view() {
            View::Immediate(word) => match Class::of_immediate(word) {
                Class::Number => Int(term.small().unwrap().into()),
                Class::Atom => Atom(atom_text(word)),
                Class::Pid => LocalPid(LAYOUT.number(word)),
                Class::Port => LocalPort(word >> 4),
                Class::Nil => Nil,
                class => panic!("an immediate {class:?}"),
            },
            View::Tuple(elements) => Tuple(elements.iter().map(Model::read).collect()),
            View::List(list) => List(
                list.elements().iter().map(Model::read).collect(),
                Box::new(Model::read(list.tail())),
            ),
            View::Map(map) => Map(map
                .keys
                .iter()
                .zip(map.values.iter())
                .map(|(k, v)| (Model::read(k), Model::read(v)))
                .collect()),
            View::Float(value) => Float(value),
            View::Integer(integer) => {
                assert!(integer.digits.last() != Some(&0));
                let digits = integer
                    .digits
                    .iter()
                    .flat_map(|digit| digit.to_le_bytes())
                    .collect::<Vec<_>>();
                let magnitude = BigInt::from(BigUint::from_bytes_le(&digits));
                let value = if integer.negative { -magnitude } else { magnitude };
                assert!(value.to_i64().and_then(small).is_none(), "{value} is an immediate");
                Int(value)
            }
            View::Binary(bytes) => Binary(bytes.to_vec(), Bytes::Inline),
            View::SharedBinary(Shared::HeldTerm(_), bytes) => Binary(bytes.to_vec(), Bytes::HeldTerm),
            View::SharedBinary(Shared::Counted(_), bytes) => Binary(bytes.to_vec(), Bytes::Counted),
            View::Reference(words) => Plain(plain_number(words)),
            View::Fun(_) => unreachable!("no model has funs"),
            View::HeldTerm(class, held) => match &*held_form(held.term()).expect("held terms live") {
                Form::Opaque(number) => Opaque(class, *number),
                Form::Bits(bytes, bits) => Bits(bytes.clone(), *bits),
                Form::Compound(inner) => Deep(Box::new(Model::read(inner.as_key()))),
                Form::Plain(_) | Form::Shared(_) => panic!("not in a shared binary"),
            },
        }
    }
}
