//! Random operations on a group, compared with a vector of the same objects.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "throughout: a single thread uses the group, and its objects live"
)]

use super::*;
use cats_sync::epoch::pin;
use cats_term::{small, Block};

const KEY: KeyPlace = KeyPlace { word: 0x1f, place: 0 };

/// `{1, A, B}`, or `{1, A, B, B, A, B}` if A is at least [`WIDE`].
fn body(a: u64, b: u64) -> u64 {
    let (first, second) = (small(a as i64).unwrap(), small(b as i64).unwrap());
    let words = [KEY.word, first, second, second, first, second];
    let words = &words[..if a < WIDE { 3 } else { 6 }];
    Block::flat(words, &pin()).unwrap().into_raw().as_ptr() as u64
}

const WIDE: u64 = 100_000;

struct Both {
    group: Option<Own<Group>>,
    objects: Vec<(u64, u64)>,
    state: u64,
}

impl Both {
    fn random(&mut self, below: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.state >> 33) % below
    }

    fn group(&self) -> &Group {
        self.group.as_ref().unwrap()
    }

    fn insert(&mut self, guard: &Guard, object: (u64, u64)) {
        self.objects.push(object);
        unsafe { assert!(self.group().insert(guard, KEY, body(object.0, object.1))) }
    }

    fn with<R>(&self, object: (u64, u64), f: impl FnOnce(&Group, ObjectRef<'_>) -> R) -> R {
        let body = body(object.0, object.1);
        let result = unsafe { f(self.group(), KEY.object(body)) };
        unsafe { free_body(body) };
        result
    }

    fn contains(&self, object: (u64, u64)) -> bool {
        self.with(object, |group, object| unsafe { group.contains(KEY, object) })
    }

    /// Searches until all chunks but the last are in the index.
    fn index_all(&self) {
        while unsafe { self.group().writer().end != self.group().writer().last } {
            self.contains((0, u64::MAX >> 8));
        }
    }

    fn remove(&mut self, guard: &Guard, object: (u64, u64)) {
        let before = self.objects.len();
        self.objects.retain(|other| *other != object);
        let removed = before - self.objects.len();
        let distinct = removed <= 1 && before.is_multiple_of(2);
        let limited =
            |group: &Group, object: ObjectRef<'_>, limit| unsafe { group.remove(guard, KEY, object, distinct, limit) };
        if removed > 0 {
            assert_eq!(
                self.with(object, |group, object| limited(group, object, removed - 1)),
                None
            );
        }
        let all = self.with(object, |group, object| limited(group, object, before));
        assert_eq!(all, Some(removed));
    }

    /// A filter for objects with this last element.
    fn filter(&self, b: u64) -> Filter {
        let signature = self.with((0, b), |_, object| signature(object, 0));
        Filter::of_place(2, signature)
    }

    fn remove_each(&mut self, guard: &Guard, b: u64, below: u64) {
        let before = self.objects.len();
        self.objects.retain(|(a, other)| *other != b || *a >= below);
        let filter = self.filter(b);
        let is_it = |object: &ObjectRef<'_>| values(*object).1 == b && values(*object).0 < below;
        let removed = before - self.objects.len();
        let limited =
            |limit: usize, fits: bool| unsafe { self.group().remove_each(guard, KEY, &filter, limit, |_| fits, is_it) };
        if removed > 0 {
            assert_eq!(limited(removed - 1, true), None);
            assert_eq!(limited(usize::MAX, false), None);
        }
        assert_eq!(limited(usize::MAX, true), Some(removed));
    }

    fn replace_each(&mut self, guard: &Guard, a: u64, new: u64) {
        let change = |(old, b): (u64, u64)| (old == a).then_some((new, b));
        let mut expected = 0;
        for object in &mut self.objects {
            if let Some(new) = change(*object) {
                *object = new;
                expected += 1;
            }
        }
        let new = |object: &ObjectRef<'_>| change(values(*object)).map(|(a, b)| body(a, b));
        let (replaced, _) = unsafe { self.group().replace_each(guard, KEY, new) };
        assert_eq!(replaced, expected);
    }

    /// Checks that the objects are the same in the same order, and that links, index and counts are right.
    fn check(&self) {
        let group = self.group();
        let mut seen = Vec::new();
        group.each(|body| {
            seen.push(values(unsafe { KEY.object(body) }));
            true
        });
        assert_eq!(seen, self.objects);
        seen.clear();
        group.each_passing(&Filter::open(), |body| seen.push(values(unsafe { KEY.object(body) })));
        assert_eq!(seen, self.objects);
        assert_eq!(group.count(), seen.len());
        let writer = unsafe { group.writer() };
        let mut bytes = size_of::<Group>() + writer.index.as_ref().map_or(0, |index| index.bytes());
        let (mut previous, mut entries) = (None::<Chunk>, Vec::new());
        for chunk in group.chunks() {
            assert!(chunk.previous() == previous);
            if let Some(previous) = previous {
                assert!(chunk.count() > 0 || previous.is_indexed() && chunk == writer.last);
                assert!(previous.count() > 0 && previous.capacity() == FULL);
                // Chunks that are not in the index stand after all chunks that are.
                assert!(previous.is_indexed() || !chunk.is_indexed());
            }
            if writer.index.is_some() {
                assert_eq!(
                    previous.is_none_or(|chunk| chunk.is_indexed()) && !chunk.is_indexed(),
                    writer.end == chunk
                );
            }
            bytes += chunk.bytes();
            for slot in bits(chunk.live()) {
                let body = chunk.get(slot);
                bytes += unsafe { body_bytes(body) };
                let object = unsafe { KEY.object(body) };
                let kept = u64::MAX.checked_shr(64 - 8 * chunk.kept() as u32).unwrap_or(0);
                assert_eq!(chunk.signature(slot), signature(object, 0) & kept);
                if chunk.is_indexed() {
                    entries.push(Indexed::new(hash(&object, KEY), chunk.position(slot), body));
                }
            }
            previous = Some(chunk);
        }
        assert!(previous == Some(writer.last) && !writer.last.is_indexed());
        match &writer.index {
            Some(index) => index.check(entries),
            None => assert!(entries.is_empty()),
        }
        assert_eq!(unsafe { group.bytes() }, bytes);
    }
}

fn values(object: ObjectRef<'_>) -> (u64, u64) {
    let value = |place| object.element(place).small().unwrap() as u64;
    (value(1), value(2))
}

fn both(seed: u64) -> Both {
    let group = unsafe { Group::of_two(KEY, body(0, 0), body(1, 1), 0) }.unwrap();
    Both {
        group: Some(unsafe { Own::from_raw((group & !3) as *mut Group) }),
        objects: vec![(0, 0), (1, 1)],
        state: seed,
    }
}

#[test]
fn operations_at_random() {
    for seed in 0..40 {
        let mut both = both(seed);
        let most = [5, 20, 60, 150, 800][seed as usize % 5];
        // With few values there are equal objects.
        let values = [10, 1000][seed as usize % 2];
        for round in 0..3000 {
            let guard = pin();
            let (a, b) = (both.random(values), both.random(10));
            let growing = (round / 700) % 2 == 0;
            match both.random(20) {
                0..=13 if growing && both.objects.len() < most => both.insert(&guard, (a, b)),
                0..=5 => both.insert(&guard, (a, b)),
                6..=13 => {
                    let sought = match both.objects.get(a as usize) {
                        Some(object) => *object,
                        None => (a, b),
                    };
                    both.remove(&guard, sought);
                }
                14..=15 => assert_eq!(both.contains((a, b)), both.objects.contains(&(a, b))),
                16 if round % 7 == 0 => both.remove_each(&guard, b, a),
                17 => both.replace_each(&guard, a, b),
                _ => {}
            }
            drop(guard);
            if both.objects.is_empty() {
                break;
            }
            if round % 10 == 0 {
                both.check();
            }
        }
        both.check_end();
    }
}

impl Both {
    fn check_end(mut self) {
        if !self.objects.is_empty() {
            self.check();
        }
        while !self.group.as_mut().is_none_or(|group| group.dismantle(7)) {}
        let mut left = self.group.take().unwrap();
        assert!(left.dismantle(1));
    }
}

/// Objects are removed, so that chunks are joined, and then others inserted into the room that was provided before.
#[test]
fn room_is_enough() {
    for seed in 0..210 {
        let mut both = both(seed);
        let guard = pin();
        for _ in 0..[0, 5, 28, 58, 59, 118, 400][seed as usize % 7] {
            let object = (both.random(10), both.random(10));
            both.insert(&guard, object);
        }
        if seed % 3 == 0 && both.objects.len() > SMALL {
            both.index_all();
        }
        for _ in 0..4 {
            let removals = both.random(9);
            let added = both.random(200);
            let mut room = unsafe { Room::within(both.group(), added as usize, removals > 0) }.unwrap();
            for _ in 0..removals {
                let b = both.random(10);
                both.remove_each(&guard, b, 10);
            }
            for _ in 0..added {
                let (a, b) = (both.random(10), both.random(10));
                both.objects.push((a, b));
                unsafe { both.group().insert_into_room(&guard, KEY, body(a, b), &mut room) }
            }
            if both.objects.is_empty() {
                return;
            }
            both.check();
            // What is not needed if none is removed is not provided.
            assert!(removals > 0 || room.take_chunk().is_none());
        }
        both.check_end();
    }
}

#[test]
fn a_new_group_has_room_for_its_objects() {
    for (count, wide) in [2, 3, 6, 7, 14, 15, 30, 31, 60, 61, 120, 121, 1000]
        .into_iter()
        .flat_map(|n| [(n, 0), (n, WIDE)])
    {
        let guard = pin();
        let objects: Vec<(u64, u64)> = (0..count).map(|n| (n + wide, n % 7)).collect();
        let bodies: Vec<u64> = objects.iter().map(|(a, b)| body(*a, *b)).collect();
        let mut room = unsafe { Room::for_new(KEY, bodies.iter().copied()) }.unwrap();
        let group = room.take_group().unwrap();
        for body in bodies {
            unsafe { Group::from_body(group).insert_into_room(&guard, KEY, body, &mut room) }
        }
        assert!(room.take_chunk().is_none() && room.take_group().is_none());
        let both = Both {
            group: Some(unsafe { Own::from_raw((group & !3) as *mut Group) }),
            objects,
            state: 0,
        };
        both.check();
        let kept: Vec<_> = both.group().chunks().map(Chunk::kept).collect();
        assert!(
            count <= 30 || kept.iter().all(|kept| *kept == if wide == 0 { 3 } else { 6 }),
            "{kept:?}"
        );
        both.check_end();
    }
}

#[test]
fn many_equal_objects_are_removed_at_once() {
    let mut both = both(1);
    let guard = pin();
    for n in 0..20_000 {
        both.insert(&guard, if n % 2 == 0 { (7, 7) } else { (n, 3) });
    }
    assert!(both.contains((19_999, 3)));
    both.remove(&guard, (7, 7));
    both.check();
    for n in 0..3000 {
        both.remove(&guard, (2 * n + 1, 3));
    }
    both.check();
    both.remove_each(&guard, 3, 15_000);
    both.check();
    both.check_end();
}

#[test]
fn many_equal_objects_are_matched_at_once() {
    let mut both = both(2);
    let guard = pin();
    for n in 0..20_000 {
        both.insert(&guard, if n % 2 == 0 { (7, 7) } else { (n, n % 5) });
    }
    both.index_all();
    both.check();
    both.remove_each(&guard, 7, 8);
    both.check();
    assert!(both.contains((19_999, 4)) && !both.contains((7, 7)));
    both.check_end();
}

/// Some objects have more elements than their chunks have planes. They must still be found by them.
#[test]
fn wide_objects_among_narrow_ones() {
    let mut both = both(3);
    let guard = pin();
    let number = |n: u64| if n % 260 < 130 { n } else { WIDE + n };
    for n in 0..1300 {
        both.insert(&guard, (number(n), n % 10));
    }
    both.check();
    let mut kept: Vec<_> = both.group().chunks().map(Chunk::kept).collect();
    kept.dedup();
    assert!(kept.starts_with(&[3, 6, 3, 6]), "{kept:?}");
    for n in (0..1300).filter(|n| n / 130 % 4 == 2 || n % 8 > 0) {
        both.remove(&guard, (number(n), n % 10));
    }
    both.check();
    for n in 0..1300 {
        let object = (number(n), n % 10);
        assert_eq!(both.contains(object), both.objects.contains(&object));
    }
    both.remove_each(&guard, 8, u64::MAX);
    both.check();
    both.check_end();
}

/// In the index, entries of the same hash are far apart.
#[test]
fn equal_objects_that_are_mixed_with_others_are_removed() {
    for one_by_one in [false, true] {
        let mut both = both(4);
        let guard = pin();
        for _ in 0..20_000 {
            let object = (both.random(3), 0);
            both.insert(&guard, object);
        }
        both.index_all();
        both.check();
        match one_by_one {
            true => both.remove(&guard, (0, 0)),
            false => both.remove_each(&guard, 0, 1),
        }
        both.check();
        assert!(both.contains((1, 0)) && !both.contains((0, 0)));
        both.index_all();
        both.check();
        (1..3).for_each(|value| both.remove(&guard, (value, 0)));
        both.check();
        both.check_end();
    }
}

/// Objects are removed by an element that they have in common. The test uses groups of many sizes, with no index, a partial index and a
/// full index. It removes no object, all of them, the first, the last, those beside the borders of chunks, and others.
#[test]
fn objects_are_removed_by_an_element() {
    let last = |n: u64| n - 1;
    let patterns: [&dyn Fn(u64, u64) -> bool; 10] = [
        &|_, _| false,
        &|_, _| true,
        &|at, _| at == 0,
        &|at, n| at == last(n),
        &|at, n| at != 0 && at != last(n),
        &|at, _| at % FULL as u64 == 0,
        &|at, _| at % FULL as u64 == FULL as u64 - 1,
        &|at, _| at / FULL as u64 == 1,
        &|at, _| at % 100 == 7,
        &|at, _| at % 7 != 3,
    ];
    let full = FULL as u64;
    for n in [
        2,
        3,
        6,
        7,
        30,
        full,
        full + 1,
        2 * full,
        2 * full + 1,
        3 * full,
        1000,
        20_000,
    ] {
        for searches in [0, 3, 400] {
            for (number, pattern) in patterns.iter().enumerate() {
                let mut both = both(n + number as u64);
                let guard = pin();
                both.objects.clear();
                let bit = |at| u64::from(pattern(at, n));
                both.objects = (0..n).map(|at| (at, bit(at))).collect();
                let objects = both.objects.clone();
                let new = |at: usize| body(objects[at].0, objects[at].1);
                let group = unsafe { Group::of_two(KEY, new(0), new(1), 0) }.unwrap();
                both.group = Some(unsafe { Own::from_raw((group & !3) as *mut Group) });
                for at in 2..n as usize {
                    assert!(unsafe { both.group().insert(&guard, KEY, new(at)) });
                }
                for _ in 0..searches {
                    both.contains((n, 5));
                }
                both.check();
                both.remove_each(&guard, 1, n);
                both.check();
                if both.objects.is_empty() {
                    continue;
                }
                for at in 0..200 {
                    both.insert(&guard, (n + at, 2));
                    let (at, sought) = (both.random(n), both.random(2));
                    assert_eq!(both.contains((at, sought)), both.objects.contains(&(at, sought)));
                    if at % 2 == 0 {
                        both.remove(&guard, (at, sought));
                    }
                    if both.objects.is_empty() {
                        break;
                    }
                }
                both.check();
                both.check_end();
            }
        }
    }
}

#[test]
fn sparse_chunks_are_joined() {
    for indexed in [false, true] {
        let mut both = both(3);
        let guard = pin();
        let full = FULL as u64;
        // First, all objects but one are removed from every second chunk.
        let class = |n: u64| match (n % full, n / full % 2) {
            (0, _) => 2,
            (_, odd) => odd,
        };
        (2..100 * full).for_each(|n| both.insert(&guard, (n, class(n))));
        if indexed {
            both.index_all();
        }
        for class in [0, 1] {
            both.remove_each(&guard, class, u64::MAX);
            both.check();
        }
        assert!(both.group().chunks().count() <= 4 * both.objects.len() / FULL + 2);
        both.check_end();
    }
}

#[test]
fn equal_elements_have_equal_bytes() {
    use cats_term::Builder;
    let with = |build: &dyn Fn(&mut Builder) -> u64| {
        let mut builder = Builder::new();
        let root = builder.tuple(2);
        builder.set(root, 0, KEY.word);
        let word = build(&mut builder);
        builder.set(root, 1, word);
        let block = builder.finish().unwrap();
        signature(ObjectRef::Block(block.as_ref()), 0)
    };
    assert_eq!(with(&|b| b.float(0.0)), with(&|b| b.float(-0.0)));
    assert_ne!(
        with(&|b| b.binary(b"abcdefghijkl")),
        with(&|b| b.binary(b"abcdefghijkm"))
    );
    assert_ne!(with(&|b| b.binary(b"a")), with(&|b| b.binary(b"")));
    assert_eq!(
        with(&|b| b.integer(true, &[1, 2])),
        with(&|b| b.integer(true, &[1, 2, 0]))
    );
}

#[test]
fn signatures_pass_that_agree_in_the_bits_of_the_mask() {
    let words: Vec<u64> = (0..FULL as u64).map(|n| (n % 7) << 32 | (n % 3) << 8 | 5).collect();
    let filters = [
        (0, 0),
        (!0, words[8]),
        (0xff << 32, 3 << 32),
        (0xff00, 0x100),
        (0xff, 6),
        (!0, 2 << 32 | 5),
    ];
    for (used, planes) in (0..=FULL)
        .map(|used| (used, PLANES))
        .chain((0..PLANES).map(|planes| (FULL, planes)))
    {
        let chunk = Chunk::new(used, planes).unwrap();
        let kept = u64::MAX.checked_shr(64 - 8 * planes as u32).unwrap_or(0);
        for word in &words[..used] {
            chunk.push(1, *word);
        }
        for (mask, bits) in filters {
            let expected = (0..used).filter(|slot| (words[*slot] ^ bits) & mask & kept == 0);
            let expected = expected.fold(0, |passing, slot| passing | 1 << slot);
            assert_eq!(chunk.passing(&Filter::of_bits(mask, bits)), expected);
        }
        for (slot, word) in words[..used].iter().enumerate() {
            assert_eq!(chunk.signature(slot), *word & kept);
        }
        unsafe { chunk.free() }
    }
}
