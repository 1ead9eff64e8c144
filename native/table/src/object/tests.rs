//! Sizes and weights in bodies, changes in place, leases, and objects that are freed in steps.

use super::copy::copied;
use super::*;
use cats_engine::Entry;
use cats_sync::epoch::{collect, pin};
use cats_term::lease::{Lease, Request};
use cats_term::test_host::{counted, hold, install_test_host, record, retained, Form};
use cats_term::{Builder, Class, Dismantled, View, CHANGING_LIMIT, NIL};

const LAYOUT: Layout = Layout {
    key: 0,
    packed: false,
    leased: false,
    seated: false,
    idle: false,
    bounded: false,
};

/// A body stores the number of words of its block, unless they are too many.
#[test]
fn bodies_store_words() {
    let guard = pin();
    for arity in [3, 100, 0x7ffe, 0x7fff, 0xffff, 100_000] {
        let body = Object::flat(&vec![NIL; arity]).into_body(LAYOUT, &guard).unwrap();
        assert_eq!(words(body), Some(arity + 1).filter(|words| *words <= 0x7fff));
        assert_eq!(held(body), None);
        // SAFETY: the object lives until it is retired, and it is retired once.
        unsafe {
            assert_eq!(block(body).unwrap().arity(), arity);
            assert_eq!(body_bytes(body), block(body).unwrap().bytes());
            retire_body(&guard, body);
        }
    }
}

/// If something is held in a block, the body stores the weight, rounded up, and the number of words, unless they are too many.
#[test]
fn bodies_store_weights_of_held_blocks() {
    install_test_host(false);
    let mut builder = Builder::new();
    for arity in [2, 5, 1019, 1020, 4000] {
        builder.clear();
        let root = builder.tuple(arity);
        (0..arity).for_each(|slot| builder.set(root, slot, NIL));
        // SAFETY: the term lives forever.
        let term = unsafe { builder.held(Class::Fun, hold(Form::Opaque(7))) };
        builder.set(root, 1, term);
        let body = block_body(builder.finish().unwrap(), LAYOUT);
        assert_eq!((words(body), retained(7)), (None, 1));
        // SAFETY: the object lives until it is freed, and it is freed once.
        unsafe {
            let view = block(body).unwrap();
            assert_eq!(held(body).is_some(), view.words() < 1024, "{arity}");
            if let Some((words, weight)) = held(body) {
                assert_eq!(words, view.words());
                assert!((view.weight()..2 * view.weight()).contains(&weight), "{arity}");
            }
            assert_eq!(body_bytes(body), view.bytes());
            match arity % 2 {
                0 => free_body(body),
                _ => retire_body(&pin(), body),
            }
        }
        while arity % 2 != 0 && retained(7) != 0 {
            collect(usize::MAX);
        }
        assert_eq!(retained(7), 0);
    }
}

/// An object with a counted binary, also a packed one, is changed in place. Each copy has a reference of its own and gives it back.
#[test]
fn objects_with_counted_binaries_are_changed_in_place() {
    install_test_host(false);
    let (record, bytes) = record(&[7; 100]);
    for (arity, list, in_place) in [
        (3, 0, true),
        (3, 100, true),
        (500, 0, true),
        (900, 100, true),
        (1100, 0, false),
    ] {
        let layout = Layout {
            packed: list > 0,
            ..LAYOUT
        };
        let mut builder = Builder::new();
        let root = builder.tuple(arity);
        (0..arity).for_each(|slot| builder.set(root, slot, 0xf));
        // SAFETY: the bytes live forever.
        let binary = unsafe { builder.counted_binary(record, bytes) };
        builder.set(root, 1, binary);
        if list > 0 {
            let item = builder.proper_list(list);
            builder.set(root, 2, item.word());
        }
        let body = block_body(builder.finish().unwrap(), layout);
        let set = |words: &mut [u64]| {
            words[0] = 0x1f;
            Some(())
        };
        let guard = pin();
        // SAFETY: the objects live until they are freed, and each is freed once.
        unsafe {
            assert_eq!((counted(record), block(body).unwrap().has_packed()), (1, list > 0));
            assert!(changed(&guard, body, |_| None::<()>).is_none());
            assert_eq!(counted(record), 1);
            let (copy, ()) = changed(&guard, body, set).unwrap();
            assert_eq!((counted(record), is_changing(copy)), (2, in_place));
            free_body(body);
            assert_eq!(counted(record), 1);
            assert_eq!(change_in_place(copy, 0, |_| Some(0x2f)).is_some(), in_place);
            let object = ObjectRef::new(Entry { key: 0, body: copy }, 0);
            assert_eq!(object.element(0).word(), if in_place { 0x2f } else { 0x1f });
            assert_eq!(object.element(1).bytes(), Some(bytes));
            if list > 0 {
                assert!(matches!(object.element(2).view(), View::List(found) if found.elements().len() == list));
            }
            let again = copy::copied(&guard, Entry { key: 0, body: copy }, 0, false).unwrap();
            assert_eq!((counted(record), is_changing(again)), (2, false));
            assert!(body_bytes(copy) >= body_bytes(again));
            free_body(again);
            match arity % 2 {
                0 => free_body(copy),
                _ => retire_body(&guard, copy),
            }
        }
        drop(guard);
        while arity % 2 != 0 && counted(record) != 0 {
            collect(usize::MAX);
        }
        assert_eq!(counted(record), 0, "{arity}");
    }
}

/// The lease is found by the body, for objects of any size, with held terms, and changed in place.
#[test]
fn leases_are_found() {
    install_test_host(false);
    let guard = pin();
    let lease = |body| {
        // SAFETY: the object lives until it is freed.
        unsafe { lease_of(body) }.load()
    };
    let given = Request::Given(1234);
    for arity in [1, 2, 3, 100, 0x7ffd, 0x7ffe, 0xffff] {
        let elements = vec![NIL; arity];
        let body = Object::flat(&elements).into_leased_body(given, LAYOUT, &guard).unwrap();
        assert_eq!(lease(body).request(), given);
        // SAFETY: the object lives, nobody else knows it, and it is freed once.
        unsafe {
            assert_eq!(block(body).unwrap().elements_raw(), elements);
            lease_of(body).store(Lease::new(77, 3));
            if let Some((copy, ())) = changed(&guard, body, |words| words.last_mut().map(|word| *word = 0x1f)) {
                assert_eq!(is_changing(copy), arity + 2 <= CHANGING_LIMIT);
                assert_eq!(lease(copy), Lease::new(77, 3));
                retire_body(&guard, copy);
            }
            free_body(body);
        }
    }
    for arity in [2, 5, 1019, 1020, 4000] {
        let mut builder = Builder::new();
        let root = builder.tuple(arity);
        (0..arity).for_each(|slot| builder.set(root, slot, NIL));
        // SAFETY: the term lives forever.
        let term = unsafe { builder.held(Class::Fun, hold(Form::Opaque(9))) };
        builder.set(root, 1, term);
        let block = builder.finish().unwrap();
        let words: Vec<u64> = block.as_ref().elements_raw().to_vec();
        let body = Object::in_block(&words, block)
            .into_leased_body(given, LAYOUT, &guard)
            .unwrap();
        assert_eq!((lease(body).request(), retained(9)), (given, 1), "{arity}");
        // SAFETY: as above.
        unsafe { free_body(body) };
        assert_eq!(retained(9), 0, "{arity}");
    }
}

/// Where leases are in cells, objects are stored as in a plain table. What requests a lease has a seat until it is put.
#[test]
fn requests_have_seats() {
    let guard = pin();
    let (word, other) = (0x1f, NIL);
    let body = |words: &[u64], key, request| {
        let layout = Layout {
            key,
            leased: true,
            seated: true,
            ..LAYOUT
        };
        Object::flat(words).into_leased_body(request, layout, &guard).unwrap()
    };
    assert_eq!(body(&[word, other], 0, Request::Kept), other);
    assert_eq!(body(&[other, word], 1, Request::Kept), other);
    assert_eq!(body(&[word], 0, Request::Kept), SINGLE);
    for (words, key) in [
        (&[word, other][..], 0),
        (&[other, word], 1),
        (&[word], 0),
        (&[word, other, NIL], 0),
    ] {
        let stored = body(words, key, Request::Kept);
        let seat = body(words, key, Request::Given(1234));
        let entry = Entry { key: word, body: seat };
        // SAFETY: nobody else knows the objects, and each is freed once.
        unsafe {
            let object = unseated(entry).body;
            assert_eq!(
                (body_bytes(object), is_block(object)),
                (body_bytes(stored), words.len() > 2)
            );
            assert_eq!(lease_of(seat).load().request(), Request::Given(1234));
            lease_of(seat).store(Lease::new(77, 3));
            let copy = copied(&guard, entry, key, true).unwrap();
            assert_eq!(block(copy).unwrap().elements_raw(), words);
            assert_eq!((lease_of(copy).load(), body_bytes(seat)), (Lease::new(77, 3), 0));
            free_body(copy);
            free_new(seat);
            free_new(stored);
        }
    }
}

/// In a large block, held terms are given back item by item.
#[test]
fn large_blocks_are_freed_in_steps() {
    install_test_host(false);
    let mut builder = Builder::new();
    let root = builder.tuple(FREE_IN_SLICES);
    (0..FREE_IN_SLICES).for_each(|slot| builder.set(root, slot, NIL));
    for slot in [1, 2, 3] {
        // SAFETY: the term lives forever.
        let term = unsafe { builder.held(Class::Fun, hold(Form::Opaque(8))) };
        builder.set(root, slot, term);
    }
    let body = block_body(builder.finish().unwrap(), LAYOUT);
    assert_eq!(held(body), None);
    // SAFETY: this test owns the block, and frees it once.
    let mut rest = Some(Dismantled::new(unsafe { block_of(body) }));
    for left in [2, 1, 0] {
        rest = rest.expect("more items").step(1);
        assert_eq!(retained(8), left);
    }
    assert!(rest.expect("the memory").step(1).is_none());
}
