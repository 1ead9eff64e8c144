//! Tests of the contention adapting trees.

use super::inspect::*;
use super::*;
use cats_engine::testing::cases::cases;
use cats_engine::testing::conformance::{Map, Random, TestKey, TestSchema};
use cats_sync::epoch;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

/// A tree that splits and joins at random between operations, at the key of the operation. It does so far more often
/// than contention would cause.
struct Restless<B: Balance>(CaTree<TestSchema, B>);

impl<B: Balance> Restless<B> {
    fn new(shared: bool) -> Self {
        Self(make(NERVOUS, shared))
    }

    fn stir(&self, key: Option<&TestKey>) -> &CaTree<TestSchema, B> {
        let number = random();
        let target = match key {
            Some(key) if number & 4 == 0 => Target::At(key),
            Some(key) => Target::Below(key),
            None if number & 4 == 0 => Target::First,
            None => Target::Last,
        };
        match number >> 8 & 7 {
            0..=2 => force(&self.0, &target, true),
            3 | 4 => force(&self.0, &target, false),
            _ => {}
        }
        &self.0
    }
}

impl<B: Balance> Engine<TestSchema> for Restless<B> {
    type Cursor = Position<TestKey>;

    fn read<R>(&self, guard: &Guard, probe: &TestKey, look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        self.stir(Some(probe)).read(guard, probe, look)
    }
    fn update<R>(
        &self,
        guard: &Guard,
        probe: &TestKey,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.stir(Some(probe)).update(guard, probe, change)
    }
    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&TestKey],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        self.stir(probes.first().copied()).update_many(guard, probes, change)
    }
    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position<TestKey>,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.stir(None).scan(guard, cursor, limit, out, expand)
    }
    fn next<R>(&self, guard: &Guard, after: Option<&TestKey>, look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        self.stir(after).next(guard, after, look)
    }
    fn buckets(&self) -> usize {
        self.0.buckets()
    }
    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        self.stir(None).slot(guard, number, expand)
    }
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        self.0.dismantle(limit, free)
    }
}

impl<B: Balance> OrderedEngine<TestSchema> for Restless<B> {
    fn prev<R>(
        &self,
        guard: &Guard,
        before: Option<&TestKey>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.stir(before).prev(guard, before, look)
    }
    fn range<T>(
        &self,
        guard: &Guard,
        range: Range<'_, TestKey>,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.stir(range.from.map(|(key, _)| key))
            .range(guard, range, limit, out, expand)
    }
    fn base_nodes(&self) -> usize {
        self.0.base_nodes()
    }
}

macro_rules! conformance {
    ($($name:ident: $type:ty = $make:expr;)*) => {
        $(
            mod $name {
                use super::*;
                // One type for all engines of a kind, so that the suite is compiled once for them.
                const MAKE: &dyn Fn() -> $type = &|| $make;
                cats_engine::testing::conformance::suite!(MAKE);
                cats_engine::testing::conformance::ordered_suite!(MAKE);
            }
        )*
    };
}

conformance! {
    avl_mutex: CaAvl<TestSchema> = make(Thresholds::default(), false);
    avl_rw: CaAvl<TestSchema> = make(Thresholds::default(), true);
    treap_mutex: CaTreap<TestSchema> = make(Thresholds::default(), false);
    treap_rw: CaTreap<TestSchema> = make(Thresholds::default(), true);
    restless_avl: Restless<Avl> = Restless::<Avl>::new(true);
    restless_treap: Restless<Treap> = Restless::<Treap>::new(false);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u64),
    Remove(u64, u64),
    Split(u64),
    Join(u64),
}

fn invariants<B: Balance>(ops: Vec<Op>) {
    let map = Map(make::<B>(Thresholds::default(), true));
    let mut model = std::collections::BTreeSet::new();
    for op in ops {
        match op {
            Op::Put(from, count) => (from..from + count).for_each(|n| {
                map.put(n, 1);
                model.insert(n);
            }),
            Op::Remove(from, count) => (from..from + count).for_each(|n| {
                map.remove(n);
                model.remove(&n);
            }),
            Op::Split(n) => force(&map.0, &Target::At(&TestKey::new(n)), true),
            Op::Join(n) => force(&map.0, &Target::At(&TestKey::new(n)), false),
        }
        assert!(check(&map.0).iter().eq(&model));
    }
}

proptest! {
    #![proptest_config(cases(50))]

    #[test]
    fn invariants_hold(ops in prop::collection::vec(prop_oneof![
        2 => (0..200u64, 0..20u64).prop_map(|(n, m)| Op::Put(n, m)),
        1 => (0..200u64, 0..20u64).prop_map(|(n, m)| Op::Remove(n, m)),
        3 => (0..200u64).prop_map(Op::Split),
        3 => (0..200u64).prop_map(Op::Join),
    ], 0..120)) {
        invariants::<Avl>(ops.clone());
        invariants::<Treap>(ops);
    }
}

/// Runs several threads on one small table for some time. Returns the largest number of base nodes seen.
fn crowd<B: Balance>(map: &Map<CaTree<TestSchema, B>>, threads: u64, work: impl Fn(u64, &mut Random) + Sync) -> usize {
    let (end, most) = (Instant::now() + Duration::from_millis(1500), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (work, most) = (&work, &most);
            scope.spawn(move || {
                let mut random = Random(77 + thread);
                while Instant::now() < end {
                    (0..10).for_each(|_| work(thread, &mut random));
                    most.fetch_max(map.0.base_nodes(), Relaxed);
                }
            });
        }
    });
    most.into_inner()
}

/// Contention alone makes base nodes split. Without contention they join again.
fn adapts_to_contention<B: Balance>(shared: bool) {
    // Splits after the first conflict, and joins after a hundred quiet operations, because conflicts are rare on few
    // processors.
    let thresholds = Thresholds { split: 200, join: -100 };
    let map = Map(make::<B>(thresholds, shared));
    (0..1000).for_each(|n| map.put(n, 1));
    assert_eq!(map.0.base_nodes(), 1);
    let contention = || {
        crowd(&map, 4, |_, random| {
            let n = random.below(1000);
            map.change(n, |old| Some(old.unwrap_or(0) + 1));
        })
    };
    // On a busy machine the threads may run one after the other for long.
    assert!((0..40).any(|_| contention() > 1), "contention splits");
    assert_eq!(check(&map.0), (0..1000).collect::<Vec<_>>());
    for n in (0..1000).cycle().take(200_000) {
        map.put(n, 1);
    }
    assert_eq!(map.0.base_nodes(), 1, "quiet joins");
}

#[test]
fn avl_splits_under_contention_and_joins_without() {
    adapts_to_contention::<Avl>(false);
    adapts_to_contention::<Avl>(true);
}
#[test]
fn treap_splits_under_contention_and_joins_without() {
    adapts_to_contention::<Treap>(false);
    adapts_to_contention::<Treap>(true);
}

/// Readers that share locks also join quiet base nodes.
#[test]
fn shared_reads_join() {
    let map = Map(make::<Avl>(Thresholds::default(), true));
    (0..100).for_each(|n| map.put(n, 1));
    (0..20).for_each(|n| force(&map.0, &Target::At(&TestKey::new(n * 5)), true));
    assert!(map.0.base_nodes() > 3);
    for n in (0..100).cycle().take(500_000) {
        assert_eq!(map.get(n), Some(1));
    }
    assert_eq!(map.0.base_nodes(), 1);
}

/// Threads split and join continually, while others write, read, walk and change several keys.
fn adaptation_disturbs_nobody<B: Balance>(shared: bool) {
    const KEYS: u64 = 64;
    let map = Map(make::<B>(NERVOUS, shared));
    // Keys with bit 0 set stay, the others come and go.
    (0..KEYS).for_each(|n| map.put(n, 1));
    let most = crowd(&map, 5, |thread, random| {
        let n = random.below(KEYS);
        match thread {
            0 => force(&map.0, &Target::At(&TestKey::new(n)), random.below(2) == 0),
            1 => map.put(n, 1),
            2 if n & 1 == 0 => map.remove(n),
            2 => {
                let numbers = [n, (n + 14) % KEYS, (n + 32) % KEYS];
                assert_eq!(map.change_many(&numbers, |_| ()), [Some(1); 3]);
            }
            3 if n == 0 => {
                let walked = map.walk();
                assert!(walked.is_sorted_by(|a, b| a < b));
                assert!((1..KEYS).step_by(2).all(|n| walked.contains(&n)));
            }
            3 => {
                let (guard, key) = (epoch::pin(), TestKey::new(n));
                let below = |e: Option<Entry>| {
                    e.map(|e| cats_engine::testing::conformance::decode(e).expect("a whole entry").0)
                };
                if let Ok(found) = map.0.prev(&guard, Some(&key), below) {
                    assert!(found.is_some_and(|m| m < n && m + 2 >= n) || n < 2);
                }
            }
            _ => assert!(map.get(n) == Some(1) || n & 1 == 0),
        }
    });
    assert!(most > 1, "base nodes split");
    check(&map.0);
}

#[test]
fn avl_adaptation_disturbs_nobody() {
    adaptation_disturbs_nobody::<Avl>(false);
    adaptation_disturbs_nobody::<Avl>(true);
}
#[test]
fn treap_adaptation_disturbs_nobody() {
    adaptation_disturbs_nobody::<Treap>(false);
    adaptation_disturbs_nobody::<Treap>(true);
}

/// A search that stands at a route node when it is removed reaches an invalid node or the right one.
#[test]
fn a_walker_survives_the_removal_of_its_route_node() {
    for (number, valid) in [(10, false), (90, true)] {
        let map = Map(make::<Avl>(Thresholds::default(), false));
        (0..100).for_each(|n| map.put(n, 1));
        let (low, key) = (TestKey::new(0), TestKey::new(number));
        force(&map.0, &Target::First, true);
        // So the right half has a route node too, and stays in the tree when the route node above is removed.
        force(&map.0, &Target::Last, true);
        force(&map.0, &Target::Last, true);
        let guard = epoch::pin();
        let stale = map.0.find(&guard, &Target::At(&low)).parent.expect("a route node");
        assert!(stale.valid());
        force(&map.0, &Target::First, false);
        assert!(!stale.valid());
        let mut node: Node<TestKey, Avl> = stale.child(Target::At(&key).side(&TestSchema, &stale.key));
        let base = loop {
            // SAFETY: nodes live as long as the guard.
            match unsafe { node.child() } {
                Child::Route(route) => node = route.child(Target::At(&key).side(&TestSchema, &route.key)),
                Child::Base(base) => break base,
            }
        };
        assert_eq!(base.valid(), valid);
        assert!(!valid || ptr::eq(base, map.0.find(&guard, &Target::At(&key)).base));
        assert_eq!(check(&map.0), (0..100).collect::<Vec<_>>());
    }
}

/// Insertions in order, each followed by a split of the last base node, do not make the route nodes a list.
#[test]
fn route_nodes_do_not_degenerate() {
    let map = Map(make::<Avl>(Thresholds::default(), false));
    for n in 0..2000 {
        map.put(n, 1);
        force(&map.0, &Target::Last, true);
    }
    let guard = epoch::pin();
    assert_eq!(map.0.find(&guard, &Target::Last).depth, 16);
    assert_eq!(check(&map.0).len(), 2000);
}

/// A base node that a walk finds empty is removed.
#[test]
fn walks_do_away_with_empty_base_nodes() {
    let map = Map(make::<Treap>(Thresholds::default(), true));
    (0..100).for_each(|n| map.put(n, 1));
    (0..40).for_each(|n| force(&map.0, &Target::At(&TestKey::new(n * 2)), true));
    let before = map.0.base_nodes();
    (1..99).for_each(|n| map.remove(n));
    assert_eq!(map.0.base_nodes(), before);
    (0..before).for_each(|_| assert_eq!(map.next(Some(0)), Some((99, 1))));
    assert!(map.0.base_nodes() <= 2);
}

#[test]
fn unwinding_frees_all_locks() {
    let map = Map(make::<Avl>(Thresholds::default(), true));
    (0..100).for_each(|n| map.put(n * 4, 1));
    force(&map.0, &Target::First, true);
    let guard = epoch::pin();
    let (a, b) = (TestKey::new(0), TestKey::new(300));
    let unwind = |call: &dyn Fn()| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        assert!(caught.is_err());
    };
    unwind(&|| _ = map.0.update(&guard, &a, |_| -> (Step, ()) { panic!("on purpose") }));
    unwind(&|| _ = map.0.update_many(&guard, &[&a, &b], |_| -> () { panic!("on purpose") }));
    unwind(&|| _ = map.0.read(&guard, &a, |_| panic!("on purpose")));
    unwind(&|| _ = map.0.next(&guard, Some(&a), |_| panic!("on purpose")));
    assert_eq!(check(&map.0).len(), 100);
}

/// A lock that is held for long results in `Busy`, and nothing is done.
#[test]
fn held_locks_are_reported_as_busy() {
    let map = Map(make::<Avl>(Thresholds::default(), true));
    (0..100).for_each(|n| map.put(n * 4, 1));
    force(&map.0, &Target::First, true);
    let guard = epoch::pin();
    let (low, high) = (TestKey::new(0), TestKey::new(396));
    let held = map.0.enter(&guard, &Target::At(&high), false).expect("a free lock");
    let border = held.base().low;
    assert_eq!(map.0.read(&guard, &high, |_| ()), Err(Busy));
    assert_eq!(map.0.update(&guard, &high, |_| (Step::Remove, ())), Err(Busy));
    assert_eq!(map.0.update_many(&guard, &[&high, &low], |_| ()), Err(Busy));
    assert_eq!(map.0.prev(&guard, None, |_| ()), Err(Busy));
    assert_eq!(map.0.read(&guard, &low, |entry| entry.is_some()), Ok(true));
    // SAFETY: bounds live as long as their node.
    let border = TestKey::new(unsafe { border.as_ref() }.expect("a bound").number - 4);
    assert_eq!(map.0.next(&guard, Some(&border), |_| ()), Err(Busy));
    drop(held);
    // The other direction, downwards.
    let held = map.0.enter(&guard, &Target::At(&low), false).expect("a free lock");
    let border = TestKey::new(border.number + 4);
    assert_eq!(map.0.prev(&guard, Some(&border), |_| ()), Err(Busy));
    // An adaptation gives up if its neighbour is locked.
    force(&map.0, &Target::At(&high), false);
    assert_eq!(map.0.base_nodes(), 2);
    drop(held);
    assert_eq!(check(&map.0).len(), 100);
}

/// Writers do not starve behind readers that share the lock.
#[test]
fn writers_get_past_readers() {
    let map = Map(make::<Avl>(Thresholds::default(), true));
    map.put(0, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    assert!(map.get(0).is_some());
                }
            });
        }
        (0..1000).for_each(|n| map.put(0, n));
        done.store(true, Relaxed);
    });
    assert_eq!(map.get(0), Some(999));
}
