//! Properties of all terms.

use super::cases::cases;
use super::generate::{orderable, pair, reshaped, term, with_other_numbers};
use super::Model::{self, List, Nil};
use crate::ZEROS_IDENTICAL;
use cats_term::test_host::install_test_host;
use cats_term::{
    compare, equal, hash, hash_ordered, head, heads, key_word, key_word_ordered, normalize, Builder, TermRef, View,
};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::mem::MaybeUninit;

/// Memory for so many words.
fn words(count: usize) -> Vec<MaybeUninit<u64>> {
    vec![MaybeUninit::uninit(); count]
}

fn normalized(term: TermRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    normalize(term, &mut bytes, usize::MAX / 2);
    bytes
}

/// The order of two terms according to their heads, compared one after another.
fn compare_heads(a: TermRef<'_>, b: TermRef<'_>, length: usize) -> Ordering {
    let mut heads = (0..length).step_by(8).map(|skip| head(a, skip).cmp(&head(b, skip)));
    heads.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn order_and_equality_are_those_of_the_model((a, b) in pair()) {
        let (x, y) = (a.key(), b.key());
        let (x, y) = (x.as_key(), y.as_key());
        prop_assert_eq!(compare(x, y), a.compare(&b, false));
        prop_assert_eq!(compare(y, x), b.compare(&a, false));
        prop_assert_eq!(equal(x, y), a.same(&b));
        prop_assert!(equal(x, x) && compare(x, x).is_eq());
    }

    #[test]
    fn equal_terms_have_equal_hashes((a, b) in pair()) {
        let (x, y) = (a.key(), b.key());
        let (x, y) = (x.as_key(), y.as_key());
        if equal(x, y) {
            prop_assert_eq!(hash(x), hash(y));
            prop_assert_eq!(key_word(x), key_word(y));
        } else {
            // The hash has 62 bits, so equal hashes of different terms do not happen here by accident.
            prop_assert!(hash(x) != hash(y) || compare(x, y).is_eq(), "{:?} {:?}", a, b);
        }
        if compare(x, y).is_eq() {
            prop_assert_eq!(hash_ordered(x), hash_ordered(y));
        }
        for (word, hash) in [(key_word(x), hash(x)), (key_word_ordered(x), hash_ordered(x))] {
            prop_assert_eq!(hash & 3, 0);
            prop_assert_ne!(word, 0);
            if x.is_immediate() {
                prop_assert_eq!(word, x.word());
            } else {
                prop_assert_eq!(word, hash);
            }
        }
    }

    #[test]
    fn kinds_told_by_the_header_are_those_of_the_view(a in term()) {
        let key = a.key();
        let term = key.as_key();
        prop_assume!(!term.is_immediate());
        let tuple = match term.view() {
            View::Tuple(elements) if term.is_flat() => Some(elements.words()),
            _ => None,
        };
        prop_assert_eq!(term.flat_tuple(), tuple);
        let binary = if let View::Binary(bytes) = term.view() { Some(bytes) } else { None };
        prop_assert_eq!(term.own_binary(), binary);
        let reference = if let View::Reference(words) = term.view() { Some(words) } else { None };
        prop_assert_eq!(term.same_words(), reference);
        let bits = if let View::Float(value) = term.view() { Some(value.to_bits()) } else { None };
        prop_assert_eq!(term.float_words(), bits.as_ref().map(std::slice::from_ref));
    }

    #[test]
    fn terms_are_the_same_in_another_shape(a in term()) {
        let (b, c) = (reshaped(&a), with_other_numbers(&a));
        let (x, y, z) = (a.key(), b.key(), c.key());
        let (x, y, z) = (x.as_key(), y.as_key(), z.as_key());
        if !has_map_in_map_key(&a, false) {
            prop_assert!(compare(x, y).is_eq());
            prop_assert!(compare(x, z).is_eq());
            prop_assert_eq!(hash_ordered(x), hash_ordered(z));
        }
        prop_assert!(equal(x, y));
        prop_assert_eq!(hash(x), hash(y));
    }

    #[test]
    fn order_is_transitive(a in orderable(), b in orderable(), c in orderable()) {
        let keys = [a.key(), b.key(), c.key()];
        let mut terms: Vec<_> = keys.iter().map(Builder::as_key).collect();
        terms.sort_by(|a, b| compare(*a, *b));
        prop_assert!(compare(terms[0], terms[2]).is_le());
    }

    #[test]
    fn normalized_keys_agree_with_the_order((a, b) in pair()) {
        let (x, y) = (a.key(), b.key());
        let (x, y) = (x.as_key(), y.as_key());
        let (m, n) = (normalized(x), normalized(y));
        prop_assert!(m == n || !(m.starts_with(&n) || n.starts_with(&m)), "{:x?} {:x?}", m, n);
        if m != n {
            prop_assert_eq!(m.cmp(&n), compare(x, y));
        }
        prop_assert_eq!(m.cmp(&n), compare_heads(x, y, m.len().max(n.len())));
        if compare(x, y).is_eq() {
            prop_assert_eq!(m, n);
        }
    }

    #[test]
    fn heads_are_pieces_of_the_normalized_key(a in term(), skip in 0usize..40, limit in 0usize..40) {
        let key = a.key();
        let bytes = normalized(key.as_key());
        let mut cut = vec![7];
        normalize(key.as_key(), &mut cut, limit);
        prop_assert_eq!(&cut[1..], &bytes[..limit.min(bytes.len())]);
        for skip in [0, skip] {
            let mut expected = [0; 8];
            let piece = bytes.iter().skip(skip).take(8);
            expected.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
            prop_assert_eq!(head(key.as_key(), skip), u64::from_be_bytes(expected));
            let each: [u64; 3] = std::array::from_fn(|i| head(key.as_key(), skip + 8 * i));
            let mut all = [0; 3];
            heads(key.as_key(), skip, &mut all);
            prop_assert_eq!(all, each);
        }
    }

    #[test]
    fn normalized_keys_tell_everything_of_orderable_terms(a in orderable(), b in orderable()) {
        let (x, y) = (a.key(), b.key());
        prop_assert_eq!(normalized(x.as_key()).cmp(&normalized(y.as_key())), compare(x.as_key(), y.as_key()));
    }

    #[test]
    fn blocks_give_back_what_was_put_in(a in term(), b in term(), c in term()) {
        let mut builder = Builder::new();
        super::install_test_host(crate::ZEROS_IDENTICAL);
        let elements = vec![a, b];
        Model::Tuple(elements.clone()).build(&mut builder);
        let block = builder.finish().unwrap();
        prop_assert_eq!(builder.words(), 0);
        prop_assert_eq!(block.as_ref().arity(), 2);
        let read = |i| Model::read(block.as_ref().element(i));
        prop_assert!(read(0).same(&elements[0]) && read(1).same(&elements[1]));
        prop_assert!(block.as_ref().bytes() >= block.as_ref().words() * 8);
        prop_assert_eq!(block.as_ref().is_flat(), block.as_ref().elements().iter().all(TermRef::is_immediate));

        let key = c.key();
        let changes = [(0, key.as_key()), (1, key.as_key()), (0, block.as_ref().element(1))];
        let changed = block.as_ref().with_elements(changes.into_iter());
        drop(block);
        let changed = changed.unwrap();
        prop_assert!(Model::read(changed.as_ref().element(0)).same(&elements[1]));
        prop_assert!(Model::read(changed.as_ref().element(1)).same(&c));
    }
}

/// Whether a key of a map contains a map. Such inner maps are compared in their order of iteration. The VM makes that order the same for
/// the same keys.
fn has_map_in_map_key(term: &Model, in_key: bool) -> bool {
    match term {
        Model::Tuple(elements) => elements.iter().any(|element| has_map_in_map_key(element, in_key)),
        Model::List(elements, tail) => elements
            .iter()
            .chain([&**tail])
            .any(|part| has_map_in_map_key(part, in_key)),
        Model::Map(pairs) => {
            in_key
                || pairs
                    .iter()
                    .any(|(key, value)| has_map_in_map_key(key, true) || has_map_in_map_key(value, false))
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// Objects with lists, some of which are long. Elements that are held stay as they are.
    #[test]
    fn packed_objects_are_the_same_when_they_are_unpacked(
        elements in prop::collection::vec((term(), 0usize..12), 1..6),
        key in 0usize..6,
    ) {
        install_test_host(ZEROS_IDENTICAL);
        let mut builder = Builder::new();
        let root = builder.tuple(elements.len());
        for (slot, (element, times)) in elements.iter().enumerate() {
            let element = match times {
                0 => element.clone(),
                _ => List(vec![element.clone(); *times], Box::new(Nil)),
            };
            let word = element.build(&mut builder);
            builder.set(root, slot, word);
        }
        let block = builder.finish().unwrap();
        let (whole, read) = (block.as_ref(), |term: TermRef<'_>| format!("{:?}", Model::read(term)));
        prop_assert_eq!(whole.unpacked_words(), whole.words());
        if let Some(packed) = whole.packed(key) {
            let view = packed.as_ref();
            prop_assert!(view.has_packed() && view.words() < whole.words());
            prop_assert_eq!(view.has_held(), whole.has_held());
            prop_assert!(key >= elements.len() || view.element(key).packed_words().is_none());
            prop_assert_eq!(view.unpacked_words(), whole.words());
            let (mut memory, mut other) = (words(whole.words()), words(whole.words()));
            let unpacked = view.unpacked_within(&mut memory);
            prop_assert!(!unpacked.has_packed());
            prop_assert_eq!(read(unpacked.term()), read(whole.term()));
            if !whole.has_held() {
                prop_assert_eq!(unpacked.as_words(), whole.unpacked_within(&mut other).as_words());
            }
            for index in 0..elements.len() {
                if let (Some(count), Some(mut parts)) = (view.element(index).packed_words(), view.element(index).parts()) {
                    let mut memory = vec![0; count];
                    prop_assert_eq!(read(parts.unpack(&mut memory)), read(whole.element(index)));
                }
            }
            // Again, after an element was replaced.
            let changed = view.with_elements([(0, whole.element(elements.len() - 1))].into_iter()).unwrap();
            let changed = changed.as_ref().packed(key).unwrap_or(changed);
            let mut memory = words(changed.as_ref().unpacked_words());
            let unpacked = changed.as_ref().unpacked_within(&mut memory);
            for index in 0..elements.len() {
                let from = if index == 0 { elements.len() - 1 } else { index };
                prop_assert_eq!(read(unpacked.element(index)), read(whole.element(from)));
            }
        }
    }
}
