//! An operation that fails for lack of memory changes nothing. It succeeds when there is memory again.

use crate::alone;
use crate::common::*;
use cats_sync::{epoch, slab};
use cats_table::{BagChange, Committed, Failure, Handle, Kind, Object, Reads, Right, Writes};
use cats_term::lease::Request;
use cats_term::small;
use std::collections::HashSet;
use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// The largest block that the slabs take from a page. Larger ones come directly from the source.
const LARGEST: usize = 32 << 10;
/// The alignment of pages.
const PAGE: usize = 64 << 10;

static EXHAUSTED: AtomicBool = AtomicBool::new(false);

extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(block: *mut c_void);
}

unsafe extern "C" fn allocate(size: usize) -> *mut c_void {
    match EXHAUSTED.load(SeqCst) {
        true => ptr::null_mut(),
        // SAFETY: no precondition.
        false => unsafe { malloc(size) },
    }
}

/// Makes this the source of the slabs' memory, before they take any.
pub fn set_source() {
    slab::set_source(allocate, free);
}

/// Runs `f` while there is no memory of any size.
fn without_memory(f: impl FnOnce()) {
    with_blocks_of(0, f);
}

/// There is no memory until this is dropped, also for the tests after one that fails.
struct Exhausted;

impl Exhausted {
    fn new() -> Self {
        EXHAUSTED.store(true, SeqCst);
        // The thread that keeps a stock may have got memory before. What it gets from now on is nothing.
        while slab::is_making_chunk() {
            thread::yield_now();
        }
        Self
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        EXHAUSTED.store(false, SeqCst);
    }
}

/// Runs `f` while there is no memory but blocks of this size, which have been used before.
fn with_blocks_of(left: usize, f: impl FnOnce()) {
    let exhausted = Exhausted::new();
    let blocks = (8..=LARGEST).rev().step_by(8).flat_map(|size| {
        let blocks = std::iter::from_fn(move || slab::alloc(size));
        blocks.map(move |block| (block, size))
    });
    let blocks: Vec<(NonNull<u8>, usize)> = blocks.collect();
    let free = |blocks: Vec<(NonNull<u8>, usize)>| {
        for (block, size) in blocks {
            // SAFETY: the block was allocated above with this size.
            unsafe { slab::free(block, size) };
        }
    };
    // One block of each page stays, so that the page stays one of this size.
    let mut pages = HashSet::new();
    let (left, others): (Vec<_>, Vec<_>) = blocks
        .into_iter()
        .partition(|(block, size)| *size == left && !pages.insert(block.addr().get() / PAGE));
    free(left);
    f();
    drop(exhausted);
    free(others);
}

#[test]
fn a_want_of_memory_passes() {
    alone(|| {
        let (registry, world) = (registry(), World::default());
        // A blank table gets contents of its own. Blank ones are the same for all tables, so that a new table may need no memory.
        let guard = epoch::pin();
        let table = enter_blank(registry, &world, &guard, options(Kind::Set, 1), atom(1), 1, None).unwrap();
        let handle = table.by_identifier(&guard);
        without_memory(|| {
            assert_eq!(table.check(Right::Write, || 1), Err(Failure::NoMemory));
            assert_eq!(table.check(Right::Read, || 1), Ok(()));
            assert_eq!((handle.size(), contents(handle).len()), (0, 0));
        });
        assert_eq!(table.check(Right::Write, || 1), Ok(()));
        let ordered = enter_blank(registry, &world, &guard, options(Kind::OrderedSet, 1), atom(1), 1, None).unwrap();
        without_memory(|| {
            let refused = panic::catch_unwind(AssertUnwindSafe(|| ordered.check(Right::Write, || 1)));
            assert!(refused.unwrap_err().is::<slab::OutOfMemory>());
        });
        assert_eq!(ordered.check(Right::Write, || 1), Ok(()));
        registry.delete(&world, ordered.by_identifier(&guard)).unwrap();
        let word = small(1).unwrap();
        handle.insert(Object::flat(&[word, word])).unwrap();
        assert_eq!(contents(handle).len(), 1);
        registry.delete(&world, handle).unwrap();
    });
}

/// A list gets what the structure needs from the reserve. If that is used up, the objects that were inserted before stay, and are counted.
#[test]
fn a_list_that_fails_half_way_is_counted() {
    alone(|| {
        let (registry, world) = (registry(), World::default());
        let guard = epoch::pin();
        let table = enter(registry, &world, &guard, options(Kind::OrderedSet, 1), atom(1), 1, None).unwrap();
        let handle = table.by_identifier(&guard);
        let pairs: Vec<[u64; 2]> = (0..300_000).map(|i| [small(i).unwrap(); 2]).collect();
        without_memory(|| {
            let objects = pairs.iter().map(|pair| Ok::<_, Failure>(Object::flat(pair)));
            let inserted = panic::catch_unwind(AssertUnwindSafe(|| handle.insert_list(objects, false, Request::Fresh)));
            assert!(inserted.unwrap_err().is::<slab::OutOfMemory>());
        });
        let found = contents(handle).len();
        assert!(found > 0);
        assert_eq!(handle.size(), found);
        registry.delete(&world, handle).unwrap();
    });
}

fn number(number: i64) -> u64 {
    small(number).unwrap()
}

/// Runs a test alone, with an empty table of each kind of bag.
fn with_each_bag(test: impl Fn(&epoch::Guard, Handle<'_>) + Sync) {
    alone(|| {
        let (registry, world) = (registry(), World::default());
        for kind in [Kind::Bag, Kind::DuplicateBag] {
            let table = enter(registry, &world, &epoch::pin(), options(kind, 1), atom(1), 1, None).unwrap();
            let guard = epoch::pin();
            let handle = table.by_identifier(&guard);
            test(&guard, handle);
            registry.delete(&world, handle).unwrap();
        }
    });
}

/// How many blocks of a size there are, up to this number.
fn blocks_of(size: usize, most: usize) -> usize {
    let blocks: Vec<_> = std::iter::from_fn(|| slab::alloc(size)).take(most).collect();
    for block in &blocks {
        // SAFETY: the block was allocated above with this size.
        unsafe { slab::free(*block, size) };
    }
    blocks.len()
}

/// The second object of a key needs a group and a chunk of it. Where only one of both has memory, that is given back once.
#[test]
fn a_group_is_made_with_memory_or_not_at_all() {
    with_each_bag(|_, handle| {
        let insert = |value| handle.insert(Object::flat(&[number(1), number(value)]));
        insert(1).unwrap();
        let before = contents(handle);
        // Each size is a class of its own, up to this one.
        for size in (16..=256).step_by(8) {
            with_blocks_of(size, || {
                let all = blocks_of(size, usize::MAX);
                assert_eq!(insert(2), Err(Failure::NoMemory), "{size}");
                assert_eq!(blocks_of(size, 2 * all), all, "{size}");
            });
            assert_eq!(contents(handle), before);
        }
        insert(2).unwrap();
        assert_eq!(handle.size(), 2);
    });
}

/// Calls that give memory back take what they need from a reserve.
#[test]
fn deletions_have_a_reserve() {
    alone(|| {
        let (registry, world) = (registry(), World::default());
        for kind in [Kind::Set, Kind::OrderedSet, Kind::Bag] {
            let table = enter(registry, &world, &epoch::pin(), options(kind, 1), atom(1), 1, None).unwrap();
            let key = |number: i64| small(number).unwrap();
            let insert = |number| {
                let guard = epoch::pin();
                table
                    .by_identifier(&guard)
                    .insert(Object::flat(&[key(number), key(0), key(0)]))
            };
            (0..100_000).for_each(|number| insert(number).unwrap());
            without_memory(|| {
                let guard = epoch::pin();
                let handle = table.by_identifier(&guard);
                let fails = |f: &dyn Fn() -> Result<(), Failure>| {
                    let done = panic::catch_unwind(AssertUnwindSafe(f));
                    done.map_or(true, |done| done == Err(Failure::NoMemory))
                };
                assert!(fails(&|| insert(-1)), "{kind:?}");
                assert!(fails(&|| handle.delete_all_objects(&world)), "{kind:?}");
                let _relief = slab::Relief::new();
                for number in 0..20_000 {
                    handle
                        .delete(&table.probe(cats_term::TermRef::immediate(key(number))))
                        .unwrap();
                }
                assert_eq!(handle.size(), 80_000);
                assert_eq!(handle.delete_all_objects(&world), Ok(()));
                assert_eq!(handle.size(), 0);
            });
            insert(1).unwrap();
            // The next table finds a reserve, whether what this one took is freed by then or not.
            registry.delete(&world, table.by_identifier(&epoch::pin())).unwrap();
        }
    });
}

/// While what the reserve gave is in use, another chunk is the reserve.
#[test]
fn a_reserve_that_is_used_up_is_renewed() {
    alone(|| {
        let take = || std::iter::from_fn(|| slab::alloc(LARGEST));
        let mut blocks: Vec<NonNull<u8>> = take().take(300).collect();
        for round in 0..3 {
            let exhausted = Exhausted::new();
            blocks.extend(take());
            let relief = slab::Relief::new();
            let before = blocks.len();
            blocks.extend(take());
            assert!(blocks.len() > before, "round {round}");
            drop((relief, exhausted));
            blocks.extend(take().take(100));
        }
        for block in blocks {
            // SAFETY: the block was allocated above with this size.
            unsafe { slab::free(block, LARGEST) };
        }
    });
}

/// A commit gets all memory that its bags need before it writes any of them.
#[test]
fn a_commit_writes_bags_with_memory_or_not_at_all() {
    with_each_bag(|guard, handle| {
        let insert = |key, value| handle.insert(Object::flat(&[number(key), number(value)])).unwrap();
        // There is room for some objects more, for one of key 3, and for none of the others.
        (0..64).for_each(|value| insert(1, value));
        (0..60).for_each(|value| insert(2, value));
        (0..29).for_each(|value| insert(3, value));
        insert(4, 0);
        let before = contents(handle);
        let commit = |keys: &[i64], all: bool, added: usize| {
            let mut writes = Writes::<()>::none();
            for &key in keys {
                let mut change = BagChange::new(all);
                for value in 0..added {
                    change
                        .add(handle, Object::flat(&[number(key), number(1000 + value as i64)]))
                        .unwrap();
                }
                change.remove(handle, Object::flat(&[number(key), number(3)])).unwrap();
                writes.change(handle, change).unwrap();
            }
            writes.commit(guard, &mut Reads::none(), SHORT, all_hold)
        };
        without_memory(|| {
            for keys in [&[1, 2, 3, 4][..], &[1, 2], &[1, 3], &[1, 4], &[4, 3, 2, 1]] {
                assert_eq!(commit(keys, false, 2), Err(Failure::NoMemory));
                assert_eq!(commit(keys, true, 2), Err(Failure::NoMemory));
            }
            assert_eq!(contents(handle), before);
            assert_eq!(handle.size(), before.len());
            // With one object each, two keys need memory.
            assert_eq!(commit(&[1, 2], false, 1), Err(Failure::NoMemory));
            assert_eq!(commit(&[1, 4], false, 1), Err(Failure::NoMemory));
            assert_eq!(contents(handle), before);
            assert_eq!(commit(&[3], false, 1), Ok(Committed::Done));
        });
        assert_eq!(commit(&[1, 2, 3, 4], false, 2), Ok(Committed::Done));
    });
}
