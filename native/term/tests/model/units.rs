//! Single cases.

use super::Bytes;
use super::Model::{self, *};
use crate::ZEROS_IDENTICAL;
use cats_sync::epoch;
use cats_term::test_host::{counted, install_test_host, plain_reference, record, retained};
use cats_term::{
    compare, equal, hash_of, head, key_word, key_word_of_part, key_word_ordered, normalize, small, Block, Builder,
    Class, CountedBinary, CountedFun, HashState, NewElement, Rebuilt, Short, TermRef, View, ALIAS, BOTTOM, FUN_RECORD,
    NIL, TOP,
};
use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn int(value: i64) -> Model {
    Int(value.into())
}

/// The word of a small integer.
fn int_word(value: i64) -> u64 {
    small(value).unwrap()
}

#[test]
fn the_order_of_types() {
    let terms = [
        Float(1e300),
        Int(num_bigint::BigInt::from(1) << 3000),
        Atom("zzz"),
        Opaque(Class::Reference, 1),
        Plain(0),
        Opaque(Class::Fun, 1),
        LocalPort(1),
        Opaque(Class::Port, 1),
        LocalPid(1),
        Opaque(Class::Pid, 3),
        Tuple(vec![int(1)]),
        Opaque(Class::Record, 1),
        Map(vec![]),
        Nil,
        List(vec![int(1)], Box::new(Nil)),
        Binary(vec![], Bytes::Inline),
    ];
    for (i, a) in terms.iter().enumerate() {
        for (j, b) in terms.iter().enumerate() {
            let (x, y) = (a.key(), b.key());
            assert_eq!(compare(x.as_key(), y.as_key()), i.cmp(&j), "{a:?} {b:?}");
        }
        let (bottom, key, top) = (TermRef::immediate(BOTTOM), a.key(), TermRef::immediate(TOP));
        assert!(compare(bottom, key.as_key()).is_lt() && compare(key.as_key(), bottom).is_gt());
        assert!(compare(key.as_key(), top).is_lt() && compare(top, key.as_key()).is_gt());
        assert!(head(bottom, 0) < head(key.as_key(), 0) && head(key.as_key(), 0) < head(top, 0));
    }
}

#[test]
fn zeros_are_identical_as_the_host_says() {
    let (x, y) = (Float(0.0).key(), Float(-0.0).key());
    assert_eq!(equal(x.as_key(), y.as_key()), ZEROS_IDENTICAL);
    assert_eq!(key_word(x.as_key()), key_word(y.as_key()));
    let map = |zero| Map(vec![(Float(zero), int(1))]).key();
    let (x, y) = (map(-0.0), map(0.0));
    let expected = if ZEROS_IDENTICAL {
        Ordering::Equal
    } else {
        Ordering::Less
    };
    assert_eq!(compare(x.as_key(), y.as_key()), expected);
}

#[test]
fn a_float_has_the_hash_of_the_integer_that_it_equals() {
    for value in [0, 1, -1, 17, 1 << 53, -(1 << 59), (1 << 59) - 64] {
        let key = Float(value as f64).key();
        assert_eq!(key_word_ordered(key.as_key()), hash_of(small(value).unwrap()));
        assert_ne!(key_word(key.as_key()), hash_of(small(value).unwrap()));
    }
}

#[test]
fn terms_of_the_same_parts_in_other_places_have_other_hashes() {
    let tuple = |elements: &[Model]| Tuple(elements.to_vec());
    let list = |elements: &[Model], tail: Model| List(elements.to_vec(), Box::new(tail));
    let map = |key: Model, value: Model| Map(vec![(key, value)]);
    let (a, b) = (|| int(1), || int(2));
    let terms = [
        tuple(&[]),
        tuple(&[tuple(&[])]),
        tuple(&[tuple(&[]), tuple(&[])]),
        tuple(&[tuple(&[tuple(&[])])]),
        tuple(&[a(), b()]),
        tuple(&[b(), a()]),
        tuple(&[tuple(&[a(), b()])]),
        tuple(&[tuple(&[a()]), b()]),
        tuple(&[a(), tuple(&[b()])]),
        list(&[a(), b()], Nil),
        list(&[a()], b()),
        list(&[a(), b()], a()),
        list(&[list(&[a()], Nil), b()], Nil),
        list(&[a(), list(&[b()], Nil)], Nil),
        Map(vec![]),
        map(a(), b()),
        map(b(), a()),
        Map(vec![(a(), a()), (b(), b())]),
        Map(vec![(a(), b()), (b(), a())]),
        map(map(a(), b()), a()),
        map(a(), map(b(), a())),
        Binary(vec![], Bytes::Inline),
        Binary(vec![0], Bytes::Inline),
        Binary(vec![0, 0], Bytes::Inline),
        Float(1.5),
        int(1 << 60),
        int(-(1 << 60)),
    ];
    for ordered in [false, true] {
        let word = |term: &Model| match ordered {
            false => key_word(term.key().as_key()),
            true => key_word_ordered(term.key().as_key()),
        };
        let mut words: Vec<_> = terms.iter().map(word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), terms.len());
    }
}

/// Each bit of the hashes of similar keys is set in about half of the hashes, within 7 standard deviations.
#[test]
fn all_bits_of_hashes_are_mixed() {
    let kinds: [fn(i64) -> Model; 4] = [
        |i| Tuple(vec![int(i % 64), int(i / 64)]),
        |i| Binary(format!("key_{i}").into_bytes(), Bytes::Inline),
        |i| List(vec![int(i)], Box::new(Nil)),
        |i| Float(i as f64 + 0.5),
    ];
    for kind in kinds {
        let words: Vec<_> = (0..4096).map(|i| key_word(kind(i).key().as_key())).collect();
        for bit in 2..64 {
            let ones = words.iter().filter(|&&word| word >> bit & 1 == 1).count();
            assert!(
                ones.abs_diff(2048) < 7 * 32,
                "{:?}: bit {bit} is set {ones} times of 4096",
                kind(0)
            );
        }
    }
}

/// The marks of positive and negative integers differ in low bits. The lowest digit must not cancel that difference, whatever carries
/// occur.
#[test]
fn what_follows_a_mark_does_not_make_up_for_it() {
    let number = |sign: i64, low: u64| Int(((num_bigint::BigInt::from(3) << 64) + low) * sign);
    let word = |model: Model| key_word(model.key().as_key());
    for low in 0..256 {
        for carried in 1..40 {
            let other = low ^ ((1 << carried) - 1);
            assert_ne!(word(number(1, low)), word(number(-1, other)), "{low} {other}");
        }
    }
}

/// The key word of a float may be the hash of an equal small integer. A key word that is a hash must not be 0.
#[test]
fn no_small_integer_has_the_hash_0() {
    // The words that the mixer maps to the numbers below 4, found by inverting it.
    fn unmix(hash: u64) -> u64 {
        let inverse = |odd: u64| (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))));
        let mut h = hash ^ hash >> 33;
        h = h.wrapping_mul(inverse(0xc4ce_b9fe_1a85_ec53));
        h ^= h >> 33;
        h = h.wrapping_mul(inverse(0xff51_afd7_ed55_8ccd));
        h ^ h >> 33
    }
    for hash in 0..4 {
        let word = unmix(hash);
        assert_eq!(cats_term::mix(word), hash);
        assert_ne!(word & 0xf, 0xf);
    }
}

#[test]
fn heads_of_small_integers_order_them() {
    let mut values: Vec<i64> = (0..59)
        .flat_map(|e| [1 << e, (1 << e) + 1, -(1 << e), -(1 << e) - 1])
        .collect();
    values.extend([0, -(1 << 59), (1 << 59) - 1]);
    values.sort_unstable();
    values.dedup();
    let heads: Vec<_> = values
        .iter()
        .map(|&value| head(TermRef::immediate(small(value).unwrap()), 0))
        .collect();
    assert!(heads.is_sorted());
    // The head has seven bytes below the exponent. So neighbours from 2^57 on may have the same head, and all other values have different
    // ones.
    for (pair, heads) in values.windows(2).zip(heads.windows(2)) {
        assert!(heads[0] < heads[1] || pair[0].abs() >= 1 << 57, "{pair:?}");
    }
}

#[test]
fn integers_that_fit_are_immediates() {
    let mut builder = Builder::new();
    for value in [0, 1, -1, -(1 << 59), (1 << 59) - 1] {
        assert_eq!(builder.integer_i64(value), small(value).unwrap());
        assert_eq!(
            builder.integer(value < 0, &[value.unsigned_abs(), 0, 0]),
            small(value).unwrap()
        );
    }
    assert_eq!(builder.words(), 0);
    for value in [1 << 59, -(1 << 59) - 1, i64::MAX, i64::MIN] {
        assert_eq!(small(value), None);
        let key = int(value).key();
        assert!(!key.as_key().is_immediate());
    }
}

#[test]
fn flat_blocks() {
    let words = [small(7).unwrap(), NIL, small(-7).unwrap()];
    let block = Block::flat(&words, &cats_sync::epoch::pin()).unwrap();
    assert!(block.as_ref().is_flat());
    assert_eq!(block.as_ref().elements_raw(), words);
    assert_eq!((block.as_ref().arity(), block.as_ref().words()), (3, 4));
    let other = block
        .as_ref()
        .with_elements([(1, TermRef::immediate(words[0]))].into_iter())
        .unwrap();
    assert_eq!(other.as_ref().elements_raw(), [words[0], words[0], words[2]]);
    let empty = Block::flat(&[], &cats_sync::epoch::pin()).unwrap();
    assert!(empty.as_ref().is_flat() && empty.as_ref().arity() == 0);

    let address = other.into_raw();
    assert_eq!(address.as_ptr() as usize % 8, 0);
    // SAFETY: the address is that of a block, which is freed once.
    unsafe { Block::free(address.as_ptr().cast(), 0) };
}

#[test]
fn shapes() {
    let block = |element: Model| Tuple(vec![element, Atom("a")]).key().finish().unwrap();
    let string = |bytes: &[u8]| Binary(bytes.to_vec(), Bytes::Inline);
    // Within a group, all have the same shape. Of two groups, none have.
    let groups = [
        vec![int(1), int(-5)],
        vec![LocalPid(1), LocalPid(2)],
        vec![LocalPort(1), LocalPort(2)],
        vec![Atom("a")],
        vec![Atom("b")],
        vec![Nil],
        vec![Float(1.0), Float(2.5)],
        vec![string(b"abc"), string(b"xyz")],
        vec![string(b"abcd")],
        vec![Tuple(vec![int(1)]), Tuple(vec![int(2)])],
        vec![List(vec![int(1)], Box::new(Nil))],
    ];
    for (i, group) in groups.iter().enumerate() {
        let shape = block(group[0].clone()).as_ref().shape();
        for (j, other) in groups.iter().enumerate() {
            for model in other {
                assert_eq!(
                    shape.is_of(block(model.clone()).as_ref()),
                    i == j,
                    "{model:?} {:?}",
                    group[0]
                );
            }
        }
    }
}

/// A block with a short part equals, word by word, the block that a builder makes of the same terms.
#[test]
fn blocks_of_short_parts() {
    install_test_host(ZEROS_IDENTICAL);
    let bytes: Vec<u8> = (1..=64).collect();
    let reference = plain_reference(5);
    let alias = [ALIAS, 5, 6, 7];
    let (record, shared) = record(&[7; 100]);
    let numbers: Vec<u64> = (0..5).filter_map(small).collect();
    let fun = [0x2_0314, 77, numbers[0], numbers[1]];
    let fun_record = 0x1000 | FUN_RECORD;
    let others = [
        Short::Float(1.5),
        Short::Float(-0.0),
        Short::Same(&reference),
        Short::Same(&alias),
        Short::Same(&fun),
        // SAFETY: the bytes live forever. The test host counts references for any number.
        Short::Counted(unsafe { CountedBinary::new(record, shared) }),
        // SAFETY: as above.
        Short::Fun(unsafe { CountedFun::new(fun_record, fun[0], numbers[3], &numbers[..2]) }),
    ];
    let binaries = (0..=bytes.len()).map(|length| Short::Binary(&bytes[..length]));
    let tuples = (0..=numbers.len()).map(|arity| Short::Tuple(&numbers[..arity]));
    for part in others.into_iter().chain(binaries).chain(tuples) {
        for (arity, index) in (1..6).flat_map(|arity| (0..arity).map(move |index| (arity, index))) {
            let mut elements = vec![NIL; arity];
            elements[index] = 2;
            let mut builder = Builder::new();
            let root = builder.filled_tuple(&elements);
            let word = match part {
                Short::Float(value) => builder.float(value),
                Short::Binary(bytes) => builder.binary(bytes),
                Short::Same(words) => builder.same(words),
                Short::Tuple(elements) => builder.filled_tuple(elements).word(),
                // SAFETY: as above.
                Short::Counted(_) => unsafe { builder.counted_binary(record, shared) },
                Short::Fun(fun) => builder.counted_fun(fun),
            };
            builder.set(root, index, word);
            let block = Block::of_short(&elements, index, part, &cats_sync::epoch::pin()).unwrap();
            // The hash is the same where the part lies.
            let absorbed = match part {
                Short::Float(value) => Some(HashState::new().exact_float(value)),
                Short::Binary(bytes) => Some(HashState::new().short_binary(bytes)),
                Short::Same(words) if words[0] != fun[0] => Some(HashState::new().reference(words)),
                Short::Tuple(elements) => Some(HashState::new().tuple(elements.len()).words(elements)),
                Short::Same(_) | Short::Counted(_) | Short::Fun(_) => None,
            };
            let stored = key_word(block.as_ref().element(index));
            assert!(absorbed.is_none_or(|state| state.finish() == stored));
            assert!(key_word_of_part(&part).is_none_or(|word| word == stored));
            let built = builder.finish().unwrap();
            assert_eq!(block.as_ref().as_words(), built.as_ref().as_words());
            assert_eq!((counted(record) % 2, counted(fun_record) % 2), (0, 0));
            if let (Short::Fun(short), View::Fun(stored)) = (part, block.as_ref().element(index).view()) {
                let copy = block
                    .as_ref()
                    .with_elements(std::iter::once((index, block.as_ref().element(index))))
                    .unwrap();
                assert_eq!((stored.words, stored.creator), ([fun[0], fun_record], numbers[3]));
                assert!(equal(copy.as_ref().element(index), block.as_ref().element(index)));
                assert_eq!(copy.as_ref().words(), 1 + arity + short.item_words());
                assert_eq!(counted(fun_record), 3);
            }
        }
    }
    assert_eq!((counted(record), counted(fun_record)), (0, 0));
}

/// A plain reference stands in the block exactly as the VM has it, and occupies nothing more.
#[test]
fn plain_references_take_three_words() {
    install_test_host(ZEROS_IDENTICAL);
    let references = [plain_reference(1), plain_reference(2)];
    let mut builder = Builder::new();
    let object = builder.tuple(3);
    for (slot, words) in references.iter().enumerate() {
        let word = builder.same(words);
        builder.set(object, slot, word);
    }
    builder.set(object, 2, small(7).unwrap());
    let block = builder.finish().unwrap();
    assert_eq!(block.as_ref().words(), 1 + 3 + 2 * 3);
    let copy = block
        .as_ref()
        .with_elements([(2, block.as_ref().element(0))].into_iter())
        .unwrap();
    for (slot, words) in [0, 1, 0].into_iter().map(|place| references[place]).enumerate() {
        assert!(matches!(copy.as_ref().element(slot).view(), View::Reference(found) if found == words));
    }
}

/// In a block in which items are replaced in place, an immediate stays an immediate, and an item stays one of as many words. Readers count on
/// that. Nothing is changed if one of several new elements does not fit.
#[test]
fn what_fits_in_place() {
    install_test_host(ZEROS_IDENTICAL);
    let mut builder = Builder::new();
    let object = builder.tuple(4);
    let (float, binary) = (builder.float(1.5), builder.binary(b"four words of eight bytes"));
    for (slot, word) in [int_word(1), int_word(2), float, binary].into_iter().enumerate() {
        builder.set(object, slot, word);
    }
    let block = builder.finish().unwrap();
    let guard = epoch::pin();
    let changes = [(1, TermRef::immediate(int_word(3)))];
    let Some(Rebuilt::Changing(changing)) = block.as_ref().rebuilt(&guard, changes.into_iter()) else {
        panic!("a small block without counted terms")
    };
    let immediate = |index| NewElement::immediate(index, int_word(4));
    let short = |index, part| NewElement::short(index, part).unwrap();
    let (float, tuple) = (Short::Float(2.5), [int_word(5); 4]);
    for (fits, new) in [
        (true, vec![immediate(1)]),
        (
            true,
            vec![short(2, float), immediate(1), short(3, Short::Tuple(&tuple))],
        ),
        (true, vec![short(3, Short::Binary(&[7; 32]))]),
        (false, vec![immediate(2)]),
        (false, vec![short(1, float)]),
        (false, vec![short(2, Short::Binary(b"two more words"))]),
        (false, vec![immediate(1), short(3, float)]),
        (false, vec![immediate(4)]),
        (false, vec![immediate(0)]),
    ] {
        let words = changing.in_place().as_words().to_vec();
        // SAFETY: nobody else knows the block.
        assert_eq!(unsafe { changing.set_all(0, &new) }, fits);
        assert!(fits || words == changing.in_place().as_words());
    }
    // SAFETY: as above. The memory has one word more than the block, and nothing is counted in it.
    unsafe { Block::free_words(changing.address().cast().as_ptr(), changing.words() + 1) }
}

#[test]
fn maps_in_map_keys_are_compared_in_the_order_of_iteration() {
    // The VM iterates over small maps by atom index. So the order of iteration may pair b with a, and c with b.
    let key = |first, second| Map(vec![(Atom(first), int(1)), (Atom(second), int(1))]);
    let map = |inner| Map(vec![(inner, int(1))]).key();
    let (x, y) = (map(key("b", "a")), map(key("a", "c")));
    assert_eq!(compare(x.as_key(), y.as_key()), Ordering::Greater);
    let (x, y) = (key("b", "a").key(), key("a", "c").key());
    assert_eq!(compare(x.as_key(), y.as_key()), Ordering::Less);
}

fn normalized(key: &Builder) -> Vec<u8> {
    let mut bytes = Vec::new();
    normalize(key.as_key(), &mut bytes, 1000);
    bytes
}

#[test]
fn what_normalized_keys_cannot_tell_ends_them() {
    let pair = |first: Model, second| Tuple(vec![first, int(second)]).key();
    let map = |key| Map(vec![(int(key), Nil)]);
    let deep = || Tuple(vec![(0..16).fold(Nil, |inner, _| Tuple(vec![inner]))]);
    for (a, b) in [
        (Opaque(Class::Reference, 0), Opaque(Class::Reference, 1)),
        (Opaque(Class::Port, 1), LocalPort(2)),
        (map(1), map(2)),
        (Deep(Box::new(deep())), Deep(Box::new(deep()))),
        (deep(), deep()),
    ] {
        // What follows in the tuple makes no difference.
        assert_eq!(normalized(&pair(a.clone(), 2)), normalized(&pair(b, 1)), "{a:?}");
    }
    for (a, b) in [
        (Bits(vec![0x10], 4), Bits(vec![0x10], 5)),
        (Bits(vec![0x10], 4), Binary(vec![0x10], Bytes::Inline)),
        (Map(vec![]), map(1)),
        (Map(vec![]), Map(vec![])),
        (Tuple(vec![Nil]), Tuple(vec![Nil])),
        (LocalPid(1 << 20), LocalPid(1 << 20)),
        (LocalPid(1), LocalPid(2)),
        (LocalPid(1), Opaque(Class::Pid, 3)),
        (Plain(3), Plain(3)),
        (Plain(3), Plain(4)),
        (Opaque(Class::Reference, 2), Opaque(Class::Reference, 2)),
    ] {
        let same = a.same(&b);
        let (a, b) = if same {
            (pair(a, 1), pair(b, 2))
        } else {
            (pair(a, 2), pair(b, 1))
        };
        assert!(normalized(&a) < normalized(&b), "{:?}", Model::read(a.as_key()));
    }
}

#[test]
fn normalized_keys_of_lists() {
    let list = |elements: &[f64], tail| {
        let whole = |value: f64| {
            if value.fract() == 0.0 {
                int(value as i64)
            } else {
                Float(value)
            }
        };
        List(elements.iter().map(|&value| whole(value)).collect(), Box::new(tail))
    };
    // In ascending order.
    let lists = [
        list(&[-300.0], Nil),
        list(&[0.0], Nil),
        list(&[0.5], Nil),
        list(&[1.0], int(-3)),
        list(&[1.0], Nil),
        list(&[1.0, 0.0], Nil),
        list(&[1.0, 248.0], Nil),
        list(&[1.0, 248.5], Nil),
        list(&[1.0, 249.0], Nil),
        list(&[1.0], Binary(vec![], Bytes::Inline)),
        list(&[1.5], Nil),
        list(&[2.0], Nil),
        list(&[248.0, 1.0], Nil),
        list(&[248.5], Nil),
        list(&[249.0], Nil),
        list(&[249.5], Nil),
        List(vec![Atom("")], Box::new(Nil)),
    ];
    let keys: Vec<_> = lists.iter().map(|list| normalized(&list.key())).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "{keys:x?}");
    // One byte an element.
    assert_eq!(normalized(&list(&[97.0; 20], Nil).key()).len(), 22);
    let end = |list: Model, tail| {
        let mut builder = Builder::new();
        let (root, item) = (builder.tuple(1), builder.list(1));
        builder.set(root, 0, item.word());
        let List(elements, _) = list else { unreachable!() };
        let word = elements[0].build(&mut builder);
        builder.set(item, 0, word);
        builder.set(item, 1, tail);
        normalized(&builder)
    };
    let (low, high) = (end(lists[4].clone(), BOTTOM), end(lists[4].clone(), TOP));
    let within: Vec<_> = keys.iter().map(|key| low < *key && *key < high).collect();
    assert_eq!(
        within,
        (0..keys.len()).map(|i| (3..10).contains(&i)).collect::<Vec<_>>()
    );
}

#[test]
fn normalized_keys_of_large_tuples() {
    let sizes = [0, 1, 0xef, 0xf0, 0xf1, 0xff, 0x100, 0x101, 0xffff, 0x10000, 0x12345];
    let keys: Vec<_> = sizes.iter().map(|&size| Tuple(vec![Nil; size]).key()).collect();
    for pair in keys.windows(2) {
        assert!(normalized(&pair[0]) < normalized(&pair[1]));
    }
}

#[test]
fn a_list_is_the_same_with_and_without_the_word_of_its_tail() {
    install_test_host(ZEROS_IDENTICAL);
    let with = |list: &dyn Fn(&mut Builder) -> u64| {
        let mut builder = Builder::new();
        let root = builder.tuple(1);
        let word = list(&mut builder);
        builder.set(root, 0, word);
        builder
    };
    let elements = [small(1).unwrap(), NIL, small(3).unwrap()];
    let fill = |builder: &mut Builder, item| {
        (0..3).for_each(|slot| builder.set(item, slot, elements[slot]));
        item.word()
    };
    let short = with(&|builder| {
        let item = builder.proper_list(3);
        fill(builder, item)
    });
    let long = with(&|builder| {
        let item = builder.list(3);
        fill(builder, item)
    });
    let pushed = with(&|builder| {
        let item = builder.open_list();
        elements.iter().for_each(|word| builder.push(*word));
        builder.close_list(item, NIL);
        item.word()
    });
    assert_eq!((short.words(), long.words(), pushed.words()), (6, 7, 6));
    for other in [&long, &pushed] {
        let (a, b) = (short.as_key(), other.as_key());
        assert!(equal(a, b) && compare(a, b).is_eq() && a.is_flat() && b.is_flat());
        assert_eq!((key_word(a), head(a, 0)), (key_word(b), head(b, 0)));
        assert_eq!(Model::read(b).key().words(), 6);
    }
}

#[test]
fn maps_iterated_in_different_orders() {
    let map = |pairs: &[(i64, i64)]| Map(pairs.iter().map(|&(key, value)| (int(key), int(value))).collect()).key();
    let (x, y) = (map(&[(1, 1), (2, 2), (3, 3)]), map(&[(3, 3), (1, 1), (2, 2)]));
    assert!(equal(x.as_key(), y.as_key()) && compare(x.as_key(), y.as_key()).is_eq());
    assert_eq!(key_word(x.as_key()), key_word(y.as_key()));
    // The smallest key with different values decides, wherever it stands.
    let z = map(&[(3, 4), (1, 1), (2, 0)]);
    assert!(!equal(x.as_key(), z.as_key()) && compare(x.as_key(), z.as_key()).is_gt());
    assert!(!equal(y.as_key(), z.as_key()) && compare(y.as_key(), z.as_key()).is_gt());
}

/// Nested terms with the layout that the boundary makes are the same wherever they lie in their blocks, unless a leaf differs.
#[test]
fn nested_terms_are_the_same_wherever_they_lie() {
    const LEAVES: usize = 9;
    let block = |before: usize, changed: usize| {
        let mut builder = Builder::new();
        let builder = &mut builder;
        let leaf = |i: usize| 100 * i as i64 + i64::from(i == changed);
        let number = |i| small(leaf(i)).unwrap();
        let root = builder.tuple(before + 1);
        for slot in 0..before {
            let word = builder.float(slot as f64);
            builder.set(root, slot, word);
        }
        let term = builder.tuple(4);
        builder.set(root, before, term.word());
        let inner = builder.tuple(2);
        builder.set(term, 0, inner.word());
        builder.set(inner, 0, number(0));
        let word = builder.binary(format!("binary of number {:05}", leaf(1)).as_bytes());
        builder.set(inner, 1, word);
        builder.set(term, 1, number(2));
        let flat = builder.filled_tuple(&[number(3), number(4), number(5)]);
        builder.set(term, 2, flat.word());
        let last = builder.tuple(3);
        builder.set(term, 3, last.word());
        let word = builder.float(leaf(6) as f64);
        builder.set(last, 0, word);
        let word = builder.integer(false, &[leaf(7) as u64, 1 << 60]);
        builder.set(last, 1, word);
        let word = builder.same(&plain_reference(leaf(8) as u64));
        builder.set(last, 2, word);
        builder.finish().unwrap()
    };
    for (before, after) in [(0, 0), (0, 1), (2, 1), (3, 3)] {
        for (one, other) in (0..=LEAVES).flat_map(|i| [(i, i), (i, LEAVES), (LEAVES, i), (i, (i + 1) % LEAVES)]) {
            let (x, y) = (block(before, one), block(after, other));
            let (x, y) = (x.as_ref().element(before), y.as_ref().element(after));
            assert_eq!(equal(x, y), one == other, "{before} {after} {one} {other}");
        }
    }
}

#[test]
fn the_tail_of_a_shorter_list_is_compared_with_a_list() {
    let list = |elements: &[i64], tail| List(elements.iter().copied().map(int).collect(), Box::new(tail)).key();
    let long = list(&[1, 2], Nil);
    for (tail, order) in [
        (Nil, Ordering::Less),
        (int(9), Ordering::Less),
        (Binary(vec![], Bytes::Inline), Ordering::Greater),
    ] {
        let short = list(&[1], tail);
        assert_eq!(compare(short.as_key(), long.as_key()), order);
        assert_eq!(compare(long.as_key(), short.as_key()), order.reverse());
    }
}

#[test]
fn terms_nested_too_deeply_are_compared_by_the_host() {
    let deep = |value| Deep(Box::new(Tuple(vec![value])));
    let plain = |value| Tuple(vec![value]);
    for (a, b) in [(1, 1), (1, 2), (2, 1)] {
        for (x, y) in [
            (deep(int(a)), deep(int(b))),
            (deep(int(a)), plain(int(b))),
            (plain(int(a)), deep(int(b))),
        ] {
            let (x, y) = (x.key(), y.key());
            assert_eq!(compare(x.as_key(), y.as_key()), a.cmp(&b));
            assert_eq!(equal(x.as_key(), y.as_key()), a == b);
        }
    }
    let (x, y) = (deep(int(1)).key(), deep(Float(1.0)).key());
    assert!(compare(x.as_key(), y.as_key()).is_eq() && !equal(x.as_key(), y.as_key()));
    assert_eq!(key_word_ordered(x.as_key()), key_word_ordered(y.as_key()));
    assert_ne!(key_word(x.as_key()), key_word(y.as_key()));
}

#[test]
fn held_terms_are_released_once() {
    static NEXT: AtomicU64 = AtomicU64::new(1000);
    install_test_host(ZEROS_IDENTICAL);
    let number = NEXT.fetch_add(1, Relaxed);
    let reference = || Opaque(Class::Reference, number);
    let object = Tuple(vec![
        reference(),
        List(vec![Binary(vec![1; 100], Bytes::HeldTerm), reference()], Box::new(Nil)),
        Map(vec![(int(1), reference())]),
    ]);

    let mut builder = Builder::new();
    object.build(&mut builder);
    builder.clear();
    assert_eq!(retained(number), 0);

    object.build(&mut builder);
    let block = builder.finish().unwrap();
    assert!(block.as_ref().has_held());
    assert_eq!(retained(number), 3);

    let other = block
        .as_ref()
        .with_elements([(0, TermRef::immediate(NIL))].into_iter())
        .unwrap();
    assert_eq!(retained(number), 5);
    drop(block);
    assert_eq!(retained(number), 2);
    let address = other.into_raw();
    assert_eq!(retained(number), 2);
    // SAFETY: the address is that of a block, which is taken back once.
    drop(unsafe { Block::from_raw(address) });
    assert_eq!(retained(number), 0);

    let number = NEXT.fetch_add(1, Relaxed);
    let key = Opaque(Class::Reference, number).key();
    assert!(equal(key.as_key(), key.as_key()));
    drop(key);
    assert_eq!(retained(number), 0);
}

/// Each block has references of its own to its counted binaries, no matter how the block was made.
#[test]
fn binaries_are_counted() {
    install_test_host(ZEROS_IDENTICAL);
    let (record, bytes) = record(&[7; 100]);
    let other = Opaque(Class::Reference, 999);
    // If the block also has a held term, changing an element builds the block anew.
    for (held, words) in [(false, 9), (true, 12)] {
        let mut builder = Builder::new();
        let root = builder.tuple(3);
        let list = builder.proper_list(1);
        builder.set(root, 0, list.word());
        // SAFETY: the bytes live forever. The test host counts references for any number.
        let word = unsafe { builder.counted_binary(record, bytes) };
        builder.set(list, 0, word);
        if held {
            let word = other.build(&mut builder);
            builder.set(root, 2, word);
        }
        assert_eq!(counted(record), 0);
        let block = builder.finish().unwrap();
        assert_eq!((block.as_ref().words(), counted(record)), (words, 1));

        let change = |index, term| block.as_ref().with_elements([(index, term)].into_iter()).unwrap();
        let changed = change(1, TermRef::immediate(TOP));
        assert_eq!(counted(record), 2);
        let copied = change(1, block.as_ref().element(0));
        assert_eq!(counted(record), 4);
        assert!(equal(copied.as_ref().element(0), changed.as_ref().element(0)));
        let without = change(0, TermRef::immediate(NIL));
        assert_eq!((without.as_ref().has_held(), counted(record)), (held, 4));
        drop((block, copied));
        assert_eq!(counted(record), 1);
        assert_eq!(changed.as_ref().element(1).word(), TOP);
        drop(changed);
        assert_eq!(counted(record), 0);
    }
}

/// The deepest term that can be stored is compared, hashed, copied and freed on a small stack.
#[test]
fn depth() {
    install_test_host(ZEROS_IDENTICAL);
    let term = (0..63).fold(int(1), |inner, level| match level % 3 {
        0 => Tuple(vec![inner]),
        1 => List(vec![inner], Box::new(Nil)),
        _ => Map(vec![(int(1), inner)]),
    });
    let run = move || {
        let (x, y) = (term.key(), term.key());
        assert!(equal(x.as_key(), y.as_key()) && compare(x.as_key(), y.as_key()).is_eq());
        assert_eq!(key_word_ordered(x.as_key()), key_word_ordered(y.as_key()));
        let mut builder = Builder::new();
        let root = builder.tuple(1);
        let word = builder.copy(x.as_key());
        builder.set(root, 0, word);
        assert!(equal(builder.finish().unwrap().as_ref().element(0), y.as_key()));
    };
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}
