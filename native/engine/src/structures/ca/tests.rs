//! Tests of the contention adapting tree.

use super::inner::{bound, common, Bound};
use super::leaf::MAX_SLOTS;
use super::*;
use crate::testing::cases::cases;
use crate::testing::conformance::{entry, Map, Random, TestKey, TestSchema};
use crate::{Between, Entry, OrderedSchema, Schema, Unfinished};
use cats_sync::{cache_line, epoch};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// Adapts at every opportunity.
const NERVOUS: Thresholds = Thresholds { split: 0, join: 0 };

mod conformance {
    use super::*;
    crate::testing::conformance::suite!(|| Ca::new(TestSchema));
    crate::testing::conformance::ordered_suite!(|| Ca::new(TestSchema));
}

mod nervous {
    use super::*;
    crate::testing::conformance::suite!(|| Ca::with_thresholds(TestSchema, NERVOUS));
    crate::testing::conformance::ordered_suite!(|| Ca::with_thresholds(TestSchema, NERVOUS));

    #[test]
    #[ignore = "records for another program, see the module histories"]
    fn transaction_histories() {
        let make = || Ca::with_thresholds(TestSchema, NERVOUS);
        crate::testing::histories::histories_of_ordered_transactions(make, module_path!());
    }
}

mod with_cells {
    use super::*;
    use crate::testing::cells::{Celled, Unseating};
    crate::testing::conformance::suite!(|| Celled(Ca::with_thresholds(Unseating, NERVOUS)));
    crate::testing::conformance::ordered_suite!(|| Celled(Ca::with_thresholds(Unseating, NERVOUS)));
}

/// Asserts all invariants of a table that nobody else uses, and returns its keys in order.
struct Check<'a> {
    table: &'a Ca<TestSchema>,
    bytes: usize,
    keys: Vec<u64>,
    /// How many leaves have a known count.
    known: usize,
}

pub(super) fn check(table: &Ca<TestSchema>) -> Vec<u64> {
    checked(table).keys
}

fn checked(table: &Ca<TestSchema>) -> Check<'_> {
    let _guard = epoch::pin();
    let route = table.route();
    let mut check = Check {
        table,
        bytes: size_of::<Ca<TestSchema>>() + (route.len() - 1) * size_of::<TestKey>(),
        keys: Vec::new(),
        known: 0,
    };
    assert!(table.adapting.token().is_some());
    if let Route::Many(inner) = &route {
        check.bytes += inner.size();
    }
    for i in 0..route.len() {
        let base = table.base(route.child(i));
        check.bytes += size_of::<Base<TestKey>>();
        assert!(base.valid() && base.try_lock().is_some());
        assert_eq!((base.low, base.high), bounds(&route, i));
        check.node(base.root(), base.low, base.high);
    }
    assert!(check.keys.is_sorted_by(|a, b| a < b), "keys ascend");
    assert_eq!(check.bytes, table.bytes());
    check
}

/// The number of keys from one number on, and below another one.
pub(super) fn count(table: &Ca<TestSchema>, from: Option<u64>, to: Option<u64>) -> usize {
    let (from, to) = (from.map(TestKey::new), to.map(TestKey::new));
    let between = Between {
        from: from.as_ref().map(|from| (from, true)),
        to: to.as_ref().map(|to| (to, false)),
    };
    loop {
        match table.count_between(&epoch::pin(), between, usize::MAX) {
            Ok(count) => return count,
            Err(failure) => assert_eq!(failure, Unfinished::Busy),
        }
        cats_sync::facade::yield_now();
    }
}

/// The key with this number from the start, or with `down` from the end.
pub(super) fn nth(table: &Ca<TestSchema>, number: usize, down: bool) -> Option<u64> {
    let mut found = Vec::new();
    let expand = |entry, out: &mut Vec<_>| out.push(crate::testing::conformance::decode(entry));
    while table
        .find_nth(&epoch::pin(), (number, down), usize::MAX, &mut found, expand)
        .is_err()
    {
        found.clear();
        cats_sync::facade::yield_now();
    }
    assert!(found.len() <= 1);
    Some(found.pop()?.expect("a whole entry").0)
}

fn bounds(route: &Route<TestKey>, i: usize) -> (Bound<TestKey>, Bound<TestKey>) {
    match route {
        Route::One(_) => (ptr::null(), ptr::null()),
        Route::Many(inner) => inner.bounds(i, ptr::null(), ptr::null()),
    }
}

fn number(key: Bound<TestKey>) -> Option<u64> {
    // SAFETY: the table is not changed while it is checked.
    unsafe { bound(key) }.map(|key| key.number)
}

impl Check<'_> {
    /// Returns the node's height.
    fn node(&mut self, node: Node, low: Bound<TestKey>, high: Bound<TestKey>) -> usize {
        let inside = |n: u64| number(low).is_none_or(|low| low <= n) && number(high).is_none_or(|high| n < high);
        let skip = common(&TestSchema, low, high);
        match node.kind::<TestKey>() {
            Kind::Inner(inner) => {
                assert!((2..=inner::FANOUT).contains(&inner.len()));
                assert!(inner.skip() >= skip);
                let skip = inner.skip();
                let parts = inner.parts();
                assert!(parts.keys.iter().all(|&key| number(key).is_some_and(inside)));
                assert!(parts.keys.is_sorted_by(|&a, &b| number(a) < number(b)));
                for (&head, &key) in parts.heads.iter().zip(&parts.keys) {
                    // SAFETY: as in `number`.
                    assert_eq!(head, TestSchema.head(unsafe { &*key }, skip));
                }
                self.bytes += inner.size() + parts.keys.len() * size_of::<TestKey>();
                if let Some(counts) = inner.counts() {
                    self.bytes += size_of_val(counts);
                    for i in 0..inner.len() {
                        let Kind::Leaf(leaf) = Node(inner.child(i)).kind::<TestKey>() else {
                            panic!("only leaves are counted")
                        };
                        let known = counts.at(i).known();
                        self.known += usize::from(known.is_some());
                        assert!(
                            known.is_none_or(|known| known == leaf.info().count()),
                            "a count is right"
                        );
                    }
                }
                let heights: BTreeSet<usize> = (0..inner.len())
                    .map(|i| {
                        let (low, high) = inner.bounds(i, low, high);
                        self.node(Node(inner.child(i)), low, high)
                    })
                    .collect();
                assert_eq!(heights.len(), 1, "all leaves are on one level");
                1 + heights.first().expect("a child")
            }
            Kind::Leaf(leaf) => {
                let info = leaf.info();
                assert!(!info.dead() && leaf.lock().token().is_some());
                assert_eq!(leaf.skip(), skip);
                assert_eq!(leaf.entries::<TestSchema>().count(), info.count());
                self.bytes += leaf.size::<TestSchema>();
                let mut keys = Vec::new();
                for entry in leaf.entries::<TestSchema>() {
                    let (number, _) = crate::testing::conformance::decode(entry).expect("a whole entry");
                    assert!(inside(number));
                    let key = TestKey::new(number);
                    let found = leaf.find(&TestSchema, &key, Wanted::new(key.word), info);
                    assert_eq!(found.map(|found| found.1), Some(entry));
                    assert!(self.table.find(&key).1 == leaf, "a search finds the leaf");
                    keys.push(number);
                }
                assert!(!info.ordered() || keys.is_sorted(), "an ordered leaf is in order");
                keys.sort_unstable();
                self.keys.extend(keys);
                0
            }
        }
    }
}

pub(super) fn force(table: &Ca<TestSchema>, number: u64, split: bool) {
    let guard = epoch::pin();
    let key = TestKey::new(number);
    let base = table.find_base(&key);
    if split {
        table.split_base(&guard, base);
    } else {
        table.join_base(&guard, base);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u64),
    Remove(u64, u64),
    Split(u64),
    Join(u64),
    Sort(u64, u64),
    /// Order statistics around this number.
    Count(u64, u64),
    Trim,
}

proptest! {
    #![proptest_config(cases(20))]

    /// Random insertions, removals, ordered steps and forced adaptations keep every invariant.
    #[test]
    fn invariants_hold(ops in prop::collection::vec((0..7u8, 0..20_000u64, 1..4000u64), 0..60)) {
        let map = Map(Ca::new(TestSchema));
        let mut model = BTreeSet::new();
        for (kind, from, many) in ops {
            let op = match kind {
                0 => Op::Put(from, many),
                1 => Op::Remove(from, 2 * many),
                2 => Op::Split(from),
                3 => Op::Join(from),
                4 => Op::Count(from, many),
                5 => Op::Trim,
                _ => Op::Sort(from, many / 40),
            };
            match op {
                Op::Put(from, many) => for n in from..from + many {
                    // Up, down, and alternating.
                    let n = match many % 3 { 0 => n, 1 => 2 * from + many - 1 - n, _ => from + (n - from) * 1021 % many };
                    map.put(n, 1);
                    model.insert(n);
                },
                Op::Remove(from, many) => for n in from..from + many {
                    map.remove(n);
                    model.remove(&n);
                },
                Op::Split(n) => force(&map.0, n, true),
                Op::Join(n) => force(&map.0, n, false),
                Op::Trim => prop_assert_eq!(map.0.trim(&epoch::pin(), 0), Ok(())),
                Op::Count(from, many) => {
                    for (from, to) in [(None, Some(from)), (Some(from), Some(from + many)), (Some(from), None)] {
                        let expected = model.range(from.unwrap_or(0)..to.unwrap_or(u64::MAX)).count();
                        prop_assert_eq!(count(&map.0, from, to), expected);
                    }
                    let number = many as usize % (model.len() + 2);
                    prop_assert_eq!(nth(&map.0, number, false), model.iter().nth(number).copied());
                    prop_assert_eq!(nth(&map.0, number, true), model.iter().rev().nth(number).copied());
                }
                Op::Sort(from, many) => {
                    let mut at = from;
                    for _ in 0..many {
                        let next = map.next(Some(at)).map(|next| next.0);
                        prop_assert_eq!(next, model.range(at + 1..).next().copied());
                        let Some(next) = next else { break };
                        at = next;
                    }
                }
            }
            prop_assert_eq!(check(&map.0), model.iter().copied().collect::<Vec<_>>());
        }
    }
}

/// The bytes of an empty tree, and of an entry of a trimmed one.
const EMPTY: usize = 1024;
const EACH: usize = 35;

/// However entries came and went, a tree can be trimmed to few bytes an entry.
#[test]
fn a_trimmed_tree_takes_few_bytes_an_entry() {
    for (number, (kept, sequences)) in [
        (1, 1),
        (2, 1),
        (3, 1),
        (5, 1),
        (30, 1),
        (200, 1),
        (1, 50),
        (3, 50),
        (1, 900),
    ]
    .into_iter()
    .enumerate()
    {
        let (map, mut random) = (Map(Ca::new(TestSchema)), Random(number as u64 + 1));
        // Only immediates, of which none share a hash. They ascend in each of the sequences.
        let key = |n: u64| 4 * (n % sequences * 1_000_000 + n / sequences);
        let (mut keys, guard) = (BTreeSet::new(), epoch::pin());
        for n in 0..30_000 {
            map.put(key(n), 1);
            keys.insert(key(n));
            for _ in 0..2 {
                let gone = key(random.below(n + 1));
                if kept > 1 && random.below(kept) > 0 && keys.remove(&gone) {
                    map.remove(gone);
                }
            }
            // A table with a limit does so.
            let most = EMPTY + (EACH + 3) * keys.len();
            if n % 16 == 0 && n > 20_000 {
                map.0.trim(&guard, most).unwrap();
                assert!(
                    n < 25_000 || map.0.bytes() <= most,
                    "{kept}, {sequences}: {} of {most}",
                    map.0.bytes()
                );
            }
        }
        (0..1000).for_each(|_| map.0.trim(&guard, 0).unwrap());
        let bytes = map.0.bytes();
        println!(
            "{kept}, {sequences}: {} keys, {bytes} bytes, {:.1} each",
            keys.len(),
            bytes as f64 / keys.len() as f64
        );
        assert!(bytes <= EMPTY + EACH * keys.len());
        assert_eq!(check(&map.0), keys.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn splits_down_to_single_entries_and_joins_again() {
    let map = Map(Ca::new(TestSchema));
    (0..100_000).for_each(|n| map.put(n, 1));
    assert_eq!(map.0.base_nodes(), 1, "a quiet table has one base node");
    for n in (0..100_000).step_by(1000) {
        (0..9).for_each(|_| force(&map.0, n, true));
    }
    let bases = map.0.base_nodes();
    assert!(bases > 100 && bases <= adapt::MAX_BASES, "{bases}");
    assert_eq!(check(&map.0).len(), 100_000);
    for _ in 0..bases {
        force(&map.0, 50_000, false);
    }
    assert_eq!(map.0.base_nodes(), 1);
    assert_eq!(check(&map.0).len(), 100_000);
}

/// Searches are right for keys that do not have the common prefix of the separators.
#[test]
fn keys_beside_the_common_prefix_are_found() {
    const FROM: u64 = 1 << 30;
    let map = Map(Ca::new(TestSchema));
    (FROM..FROM + 20_000).for_each(|n| map.put(n, 1));
    let (guard, below, above) = (epoch::pin(), 5, 1 << 40);
    let prev = |n| map.0.prev(&guard, Some(&TestKey::new(n)), |e| e.map(|e| e.key));
    assert_eq!((map.get(below), map.get(above)), (None, None));
    assert_eq!(map.next(Some(below)), Some((FROM, 1)));
    assert_eq!(map.next(Some(above)), None);
    assert_eq!(prev(below), Ok(None));
    assert_eq!(prev(above), Ok(Some(TestKey::new(FROM + 19_999).word)));
    map.put(below, 2);
    map.put(above, 2);
    assert_eq!((map.get(below), map.get(above)), (Some(2), Some(2)));
    let expected: Vec<u64> = [below].into_iter().chain(FROM..FROM + 20_000).chain([above]).collect();
    assert_eq!(check(&map.0), expected);
}

/// Steps from each key, and from beside it, where the first key heads tell nearly all separators apart.
#[test]
fn steps_that_key_heads_lead_are_right() {
    let map = Map(Ca::new(TestSchema));
    let key = |n: u64| n << 44 | 2;
    // Every eighth key has a neighbour with the same key head.
    let keys: BTreeSet<u64> = (1..6000)
        .flat_map(|n| [Some(key(n)), (n % 8 == 0).then_some(key(n) + 4)])
        .flatten()
        .collect();
    keys.iter().for_each(|&n| map.put(n, 1));
    let guard = epoch::pin();
    let Route::One(base) = map.0.route() else {
        panic!("one base node")
    };
    let Kind::Inner(root) = base.root().kind::<TestKey>() else {
        panic!("many leaves")
    };
    let prev = |n| map.0.prev(&guard, Some(&TestKey::new(n)), |e| e.map(|e| e.key));
    let word = |n: Option<&u64>| n.map(|&n| TestKey::new(n).word);
    let mut decided = 0;
    for &n in &keys {
        for n in [n - 1, n, n + 1] {
            let probe = TestKey::new(n);
            let index = root.index_of(TestSchema.head(&probe, 0));
            for through in [true, false] {
                let search = root.search(&Query::new(&TestSchema, &probe), through);
                assert!(index.is_none_or(|index| index == search), "{n:x}, {through}");
            }
            decided += usize::from(index.is_some());
            assert_eq!(map.next(Some(n)).map(|e| e.0), keys.range(n + 1..).next().copied());
            assert_eq!(prev(n), Ok(word(keys.range(..n).next_back())));
        }
    }
    assert!(decided > keys.len(), "{decided} steps by key heads");
    assert_eq!(check(&map.0), keys.into_iter().collect::<Vec<_>>());
}

/// Keys that come beside the last ones get leaves of their own. Leaves split in half would take 32 bytes a key. Only a few keys beside each
/// other get no large leaf.
#[test]
fn keys_that_come_beside_each_other_fill_their_leaves() {
    const RUNS: u64 = 16;
    const KEYS: u64 = 16_000;
    let ascending = |i: u64| i % RUNS * (KEYS / RUNS) + i / RUNS;
    let descending = |i| KEYS - 1 - ascending(i);
    let inwards = |i: u64| if i % 2 == 0 { i / 2 } else { KEYS - 1 - i / 2 };
    let eights = |i: u64| i / 8 * 1021 % (KEYS / 8) * 8 + i % 8;
    let orders: [&dyn Fn(u64) -> u64; 4] = [&ascending, &descending, &inwards, &eights];
    for order in orders {
        let map = Map(Ca::new(TestSchema));
        (0..KEYS).for_each(|i| map.put(order(i), 1));
        let bytes = map.0.bytes() as u64;
        assert!(bytes < 31 * KEYS, "{} bytes a key", bytes / KEYS);
        assert_eq!(check(&map.0), (0..KEYS).collect::<Vec<_>>());
    }
}

/// A table of one leaf is no larger for the order in which its keys came.
#[test]
fn a_table_of_few_keys_is_small() {
    let (ascending, random) = (Map(Ca::new(TestSchema)), Map(Ca::new(TestSchema)));
    (0..55).for_each(|i| {
        ascending.put(i, 1);
        random.put(i * 23 % 55, 1);
    });
    assert_eq!(ascending.0.bytes(), random.0.bytes());
}

/// How many leaves of a table with one base node are ordered, and how many are not.
fn leaves_in_order(table: &Ca<TestSchema>) -> (usize, usize) {
    let _guard = epoch::pin();
    let Route::One(base) = table.route() else {
        panic!("one base node")
    };
    let (mut nodes, mut counts) = (vec![base.root()], (0, 0));
    while let Some(node) = nodes.pop() {
        match node.kind::<TestKey>() {
            Kind::Inner(inner) => nodes.extend((0..inner.len()).map(|i| Node(inner.child(i)))),
            Kind::Leaf(leaf) if leaf.info().ordered() => counts.0 += 1,
            Kind::Leaf(_) => counts.1 += 1,
        }
    }
    counts
}

#[test]
fn ascending_keys_stay_in_order_and_others_are_put_in_order_when_asked_for() {
    let map = Map(Ca::new(TestSchema));
    (0..10_000).for_each(|n| map.put(2 * n, 1));
    let (ordered, others) = leaves_in_order(&map.0);
    assert!(
        ordered > 70 && others == 0,
        "{ordered} leaves in order and {others} not"
    );
    // No ordered operation has used the last leaf, which has space. So keeping its order is not worth a search.
    map.put(19_997, 1);
    assert_eq!(leaves_in_order(&map.0).1, 1);
    assert_eq!(map.next(Some(19_996)), Some((19_997, 1)));
    assert_eq!(leaves_in_order(&map.0).1, 0);
    map.put(19_995, 1);
    assert_eq!(leaves_in_order(&map.0).1, 0);
    assert_eq!(check(&map.0).len(), 10_002);
    let map = Map(Ca::new(TestSchema));
    (0..10_000).for_each(|n| map.put(n * 7919 % 10_000, 1));
    let (ordered, others) = leaves_in_order(&map.0);
    // The exceptions are leaves that were just started beside a full one.
    assert!(ordered < 5 && others > 70, "{ordered} leaves in order and {others} not");
    assert_eq!(map.walk().len(), 10_000);
    assert_eq!(leaves_in_order(&map.0).1, 0);
}

#[test]
fn writers_that_meet_split_and_a_lone_reader_joins() {
    let map = Map(Ca::new(TestSchema));
    (0..10_000).for_each(|n| map.put(n, 1));
    let (guard, key) = (epoch::pin(), TestKey::new(5000));
    let split = (0..1000).any(|i| {
        let held = Held::try_lock(map.0.find(&key).1).expect("a free lock");
        let met = map.0.update(&guard, &key, |_| (Step::Keep, ()));
        assert!(met.is_err());
        drop(held);
        map.put(5000, i);
        map.0.base_nodes() > 3
    });
    assert!(split, "base nodes split under contention");
    drop(guard);
    let joined = (0..10_000).any(|_| {
        for _ in 0..1000 {
            map.get(5000);
        }
        map.0.base_nodes() == 1
    });
    assert!(joined, "base nodes join without contention");
    check(&map.0);
}

#[test]
fn a_lone_writer_joins() {
    let map = Map(Ca::new(TestSchema));
    (0..1000).for_each(|n| map.put(n, 1));
    (0..8).for_each(|_| force(&map.0, 500, true));
    assert!(map.0.base_nodes() > 3);
    let joined = (0..10_000).any(|_| {
        for i in 0..1000 {
            map.put(500, i);
        }
        map.0.base_nodes() == 1
    });
    assert!(joined);
}

/// Others are in the way of a deletion, so it locks the leaf, which is full.
#[test]
fn an_absent_key_gets_no_room_for_its_deletion() {
    let (map, guard) = (Map(Ca::new(TestSchema)), epoch::pin());
    let is_full = |n: u64| {
        let key = TestKey::new(n);
        map.0.find(&key).1.room(Wanted::new(key.word).hash).is_none()
    };
    (0..MAX_SLOTS as u64 - 4).for_each(|n| map.put(2 * n, 1));
    let (before, mut met) = (map.0.bytes(), 0);
    for n in (1..2000).step_by(2).filter(|n| is_full(*n)) {
        let (key, delete) = (TestKey::new(n), |old: Option<Entry>| (Step::Remove, old.is_some()));
        let deleted = map.0.update_again(&guard, &key, Wanted::new(key.word), false, delete);
        assert_eq!(deleted.ok(), Some(false));
        met += 1;
    }
    assert!(met > 0);
    assert_eq!(map.0.bytes(), before);
    check(&map.0);
}

/// One random operation on numbers below `range`, or an adaptation.
fn stir(map: &Map<Ca<TestSchema>>, random: &mut Random, range: u64, number: impl Fn(u64) -> u64) {
    let n = random.below(range);
    let some = n..(n + 300).min(range);
    match random.below(20) {
        0 => force(&map.0, number(n), true),
        1 => force(&map.0, number(n), false),
        2 => _ = map.next(Some(number(n))),
        3 => {
            let numbers: Vec<u64> = (0..10).map(|_| number(random.below(range))).collect();
            let value = random.below(2) as u32;
            map.change_many(&numbers, |values| values.fill(value.checked_sub(1)));
        }
        4 => some.for_each(|n| map.remove(number(n))),
        5 => some.for_each(|n| map.put(number(n), 2)),
        // Others may be in the way.
        6 => _ = map.0.trim(&epoch::pin(), 0),
        7..12 => map.put(number(n), 3),
        12..17 => map.remove(number(n)),
        _ => _ = map.get(number(n)),
    }
}

/// All operations concurrently, with random forced adaptations. At the end, all invariants hold.
#[test]
fn invariants_hold_after_a_storm() {
    for range in [20, 500, 20_000] {
        let map = Map(Ca::with_thresholds(TestSchema, NERVOUS));
        let end = Instant::now() + Duration::from_secs(1);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let map = &map;
                scope.spawn(move || {
                    let mut random = Random(77 + thread);
                    while Instant::now() < end {
                        stir(map, &mut random, range, |n| n);
                        if thread == 3 {
                            _ = count(&map.0, None, Some(random.below(range)));
                        }
                    }
                });
            }
        });
        assert_eq!(check(&map.0), map.walk());
        assert_eq!(count(&map.0, None, None), map.walk().len());
    }
}

/// Where nobody writes, counts are exact, whatever happens beside it.
#[test]
fn quiet_keys_are_counted_once_in_a_storm() {
    const QUIET: u64 = 5000;
    for (below, above) in [(0, 3000), (3000, 3000), (40, 40)] {
        let map = Map(Ca::with_thresholds(TestSchema, NERVOUS));
        (below..below + QUIET).for_each(|n| map.put(n, 1));
        let end = Instant::now() + Duration::from_secs(1);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let map = &map;
                scope.spawn(move || {
                    let mut random = Random(7 + thread);
                    while Instant::now() < end {
                        let beside = |n| if n < below { n } else { n + QUIET };
                        stir(map, &mut random, below + above, beside);
                    }
                });
                scope.spawn(move || {
                    let mut random = Random(17 + thread);
                    while Instant::now() < end {
                        let (from, many) = (random.below(QUIET), random.below(QUIET));
                        let (from, to) = (below + from, below + (from + many).min(QUIET));
                        assert_eq!(count(&map.0, Some(from), Some(to)), (to - from) as usize);
                        if below == 0 {
                            assert_eq!(count(&map.0, None, Some(to)), to as usize);
                            assert_eq!(nth(&map.0, from as usize, false), Some(from));
                        } else {
                            let rank = count(&map.0, None, Some(from));
                            assert!(rank as u64 >= from - below && rank as u64 <= from);
                        }
                    }
                });
            }
        });
        let keys = check(&map.0);
        assert_eq!(keys, map.walk());
        for (rank, &n) in keys.iter().enumerate() {
            assert_eq!(nth(&map.0, rank, false), Some(n));
            assert_eq!(nth(&map.0, keys.len() - 1 - rank, true), Some(n));
        }
    }
}

/// One order statistic makes all counts known, and changes of leaves keep them so.
#[test]
fn counts_become_known_and_stay_so() {
    let map = Map(Ca::new(TestSchema));
    (0..50_000).for_each(|n| map.put(n * 7919 % 50_000 * 4, 1));
    assert_eq!(checked(&map.0).known, 0);
    assert_eq!(count(&map.0, None, None), 50_000);
    let leaves = checked(&map.0).known;
    assert!(leaves > 50_000 / inner::FANOUT, "{leaves} known counts");
    (0..50_000).step_by(100).for_each(|n| map.remove(n * 4));
    (0..20_000).for_each(|n| map.put(n * 4 + 1, 1));
    // Only new leaves have unknown counts.
    let left = checked(&map.0).known;
    assert!(left > leaves * 9 / 10, "{left} known counts of {leaves}");
    assert_eq!(count(&map.0, None, None), 69_500);
    // Work is limited.
    let between = Between { from: None, to: None };
    assert_eq!(map.0.count_between(&epoch::pin(), between, 2), Err(Unfinished::Long));
}

/// Two threads append, two take the first entry. Every entry comes out once, in order, and the structure stays small.
#[test]
fn works_as_a_queue() {
    const EACH: u64 = 200_000;
    let map = Map(Ca::new(TestSchema));
    let (taken, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for producer in 0..2 {
            let map = &map;
            scope.spawn(move || (0..EACH).for_each(|n| map.put(2 * n + producer, 1)));
        }
        for _ in 0..2 {
            let (map, taken, sum) = (&map, &taken, &sum);
            scope.spawn(move || {
                while taken.load(Relaxed) < 2 * EACH {
                    let Some((n, _)) = map.next(None) else {
                        std::thread::yield_now();
                        continue;
                    };
                    if map.change(n, |_| None).is_some() {
                        taken.fetch_add(1, Relaxed);
                        sum.fetch_add(n, Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), (0..2 * EACH).sum());
    assert_eq!(check(&map.0), []);
    // Contention delayed some merges and joins. Walks make up for them.
    while map.0.bytes() > 20_000 {
        assert_eq!(map.next(None), None);
    }
}

#[test]
fn sizes_are_as_promised() {
    let empty = Ca::new(TestSchema).bytes();
    assert!(empty <= 280 + 2 * cache_line::BYTES, "{empty}");
    let map = Map(Ca::new(TestSchema));
    let mut random = Random(1);
    (0..200_000).for_each(|_| map.put(random.below(1 << 40) * 4, 1));
    let each = map.0.bytes() as f64 / 200_000.0;
    assert!(each <= 40.0, "random insertions leave {each} bytes an entry");
    let map = Map(Ca::new(TestSchema));
    (0..200_000).for_each(|n| map.put(n * 4, 1));
    let each = map.0.bytes() as f64 / 200_000.0;
    assert!(each <= 24.0, "ascending insertions leave {each} bytes an entry");
}

#[test]
fn unwinding_frees_all_locks() {
    let map = Map(Ca::new(TestSchema));
    (0..1000).for_each(|n| map.put(n * 4, 1));
    let guard = epoch::pin();
    let (a, b) = (TestKey::new(0), TestKey::new(2000));
    let unwind = |call: &dyn Fn()| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        assert!(caught.is_err());
    };
    unwind(&|| _ = map.0.update(&guard, &a, |_| -> (Step, ()) { panic!("on purpose") }));
    unwind(&|| _ = map.0.update_many(&guard, &[&a, &b], |_| -> () { panic!("on purpose") }));
    unwind(&|| _ = map.0.read(&guard, &a, |_| panic!("on purpose")));
    assert_eq!(check(&map.0).len(), 1000);
    map.put(0, 2);
    assert_eq!(map.get(0), Some(2));
}

/// `Busy` is returned, and nothing is done, if a structure is being changed or a leaf is held for long.
#[test]
fn held_locks_are_reported_as_busy() {
    let map = Map(Ca::new(TestSchema));
    (0..1000).for_each(|n| map.put(n * 4, 1));
    let guard = epoch::pin();
    let key = TestKey::new(400);
    let leaf = map.0.find(&key).1;
    let (held, _) = Held::lock(leaf, map.0.events(), 0).expect("a free lock");
    assert_eq!(map.0.read(&guard, &key, |_| ()), Err(Busy));
    assert_eq!(map.0.update(&guard, &key, |_| (Step::Remove, ())), Err(Busy));
    assert_eq!(map.0.update_present(&guard, &key, |_| (Step::Remove, ())), Err(Busy));
    assert_eq!(map.0.update_many(&guard, &[&key], |_| ()), Err(Busy));
    assert_eq!(map.0.next(&guard, Some(&key), |_| ()), Err(Busy));
    let (mut cursor, mut out) = (Position::default(), Vec::new());
    while map
        .0
        .scan(&guard, &mut cursor, 50, &mut out, |e, out| out.push(e))
        .is_ok()
    {}
    assert!(out.len() <= 400 / 4, "a scan stops before a locked leaf");
    drop(held);
    assert_eq!(check(&map.0).len(), 1000);
}

/// 1 and 1.0 are one key of an ordered table, whichever of them is stored.
#[test]
fn equal_numbers_are_one_key() {
    crate::testing::conformance::equal_numbers_are_one_key(Ca::new(crate::testing::conformance::Numbers));
}

/// One call removes an entry and puts it back, with more keys than a leaf holds.
#[test]
fn a_long_list_splits_leaves_under_its_locks() {
    let lists: [Vec<u64>; 3] = [
        (1..3000).collect(),
        (1..3000).rev().chain(500..600).collect(),
        (1..3000).map(|n| n * 7 % 3000).chain(1..3000).collect(),
    ];
    for numbers in lists {
        let map = Map(Ca::new(TestSchema));
        map.put(0, 1);
        map.put(1_000_000, 1);
        let keys: Vec<TestKey> = numbers.iter().map(|&n| TestKey::new(n)).collect();
        let probes: Vec<&TestKey> = keys.iter().collect();
        let guard = epoch::pin();
        let done = map.0.update_many(&guard, &probes, |locked| {
            for (i, key) in keys.iter().enumerate() {
                if locked.get(i).is_none() {
                    locked.update(i, &mut |_| Step::Put(entry(key, 1)));
                }
            }
        });
        assert_eq!(done, Ok(()));
        let expected: Vec<u64> = (0..3000).chain([1_000_000]).collect();
        assert_eq!(check(&map.0), expected);
    }
}

/// A schema of immediates whose order is turned round at some time.
struct Turning(AtomicBool);

impl Turning {
    fn turned(&self, order: Ordering) -> Ordering {
        match self.0.load(Relaxed) {
            true => order.reverse(),
            false => order,
        }
    }
}

impl Schema for Turning {
    type Probe = TestKey;

    fn word(&self, probe: &TestKey) -> u64 {
        probe.word
    }
    unsafe fn matches(&self, _: &TestKey, _: Entry) -> bool {
        unreachable!("immediates")
    }
    unsafe fn compare_colliding(&self, _: &TestKey, _: Entry) -> Ordering {
        unreachable!("immediates")
    }
    unsafe fn compare_colliding_entries(&self, _: Entry, _: Entry) -> Ordering {
        unreachable!("immediates")
    }
}

impl OrderedSchema for Turning {
    type Key = TestKey;

    unsafe fn own(&self, entry: Entry) -> TestKey {
        TestKey::new(entry.key >> 4)
    }
    fn own_probe(&self, probe: &TestKey) -> TestKey {
        *probe
    }
    fn probe<'a>(&self, key: &'a TestKey) -> &'a TestKey {
        key
    }
    unsafe fn compare(&self, probe: &TestKey, entry: Entry) -> Ordering {
        self.turned(probe.number.cmp(&(entry.key >> 4)))
    }
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering {
        self.turned(a.key.cmp(&b.key))
    }
    fn compare_probes(&self, a: &TestKey, b: &TestKey) -> Ordering {
        self.turned(a.number.cmp(&b.number))
    }
    fn head(&self, _: &TestKey, _: usize) -> u64 {
        0
    }
    unsafe fn entry_head(&self, _: Entry, _: usize) -> u64 {
        0
    }
}

/// Whenever the order turns round during a call, the call ends, and no lock stays.
#[test]
fn a_list_is_inserted_while_the_order_turns_round() {
    let keys = |numbers: std::ops::Range<u64>| numbers.map(|n| TestKey::new(n * 4)).collect::<Vec<_>>();
    for turn in [0, 1, 50, 500, 1999] {
        let table = Ca::new(Turning(AtomicBool::new(false)));
        let insert = |keys: &[TestKey], turn: usize| {
            let guard = epoch::pin();
            let probes: Vec<&TestKey> = keys.iter().collect();
            table.update_many(&guard, &probes, |locked| {
                for (i, key) in keys.iter().enumerate() {
                    if i == turn {
                        table.schema.0.fetch_xor(true, Relaxed);
                    }
                    locked.update(i, &mut |_| Step::Put(entry(key, 1)));
                }
            })
        };
        assert_eq!(insert(&keys(0..1000), usize::MAX), Ok(()));
        assert_eq!(insert(&keys(500..2500), turn), Ok(()), "turned at {turn}");
        assert_eq!(insert(&keys(0..3000), turn), Ok(()), "turned back at {turn}");
        assert_eq!(insert(&keys(0..3000), usize::MAX), Ok(()), "all locks are free");
    }
}

/// All stretches, a limited number of leaves after the other.
fn viewed<'g>(table: &'g Ca<TestSchema>, guard: &'g epoch::Guard, amount: (usize, usize)) -> Vec<Stretch<'g, TestKey>> {
    let mut stretches = Vec::new();
    let mut from = None;
    loop {
        let before = stretches.len();
        from = table
            .view(guard, from, amount, None, |sight| match sight {
                Sight::Stretch(stretch) => stretches.push(stretch),
                Sight::Entry(_) => panic!("no entry is wanted"),
            })
            .unwrap();
        assert!(stretches.len() > before);
        if from.is_none() {
            return stretches;
        }
    }
}

#[test]
fn a_view_shows_each_leaf_once_and_each_base_node_where_it_is() {
    let map = Map(Ca::new(TestSchema));
    let mut random = Random(3);
    let keys: BTreeSet<u64> = (0..50_000).map(|_| random.below(1 << 20)).collect();
    keys.iter().for_each(|n| map.put(*n, 1));
    for n in (0..1 << 20).step_by(1 << 16) {
        let guard = epoch::pin();
        map.0.split_base(&guard, map.0.find(&TestKey::new(n)).0);
    }
    let guard = epoch::pin();
    let hot = TestKey::new(700_000);
    let (base, leaf) = map.0.find(&hot);
    (0..3).for_each(|_| base.statistic().contended());
    let changes = leaf.lock().changes();
    for limit in [1, 200, usize::MAX] {
        let stretches = viewed(&map.0, &guard, (limit, 1));
        assert_eq!(stretches.iter().map(|stretch| stretch.keys).sum::<usize>(), keys.len());
        assert!(stretches.is_sorted_by_key(|stretch| stretch.from.map(|key| key.number)));
        let mut bases: Vec<usize> = stretches.iter().map(|stretch| stretch.base).collect();
        bases.dedup();
        assert_eq!(bases.len(), map.0.base_nodes());
        for stretch in &stretches {
            let sum = |of: fn(&(usize, usize, usize)) -> usize| stretch.sizes.iter().map(of).sum::<usize>();
            assert_eq!((sum(|size| size.1), sum(|size| size.2)), (stretch.leaves, stretch.keys));
            let is_hot = stretch.base == ptr::from_ref(base).addr();
            assert_eq!(
                (stretch.conflicts, stretch.statistic),
                if is_hot { (3, 750) } else { (0, 0) }
            );
        }
        let at = stretches
            .iter()
            .rposition(|stretch| stretch.from.is_none_or(|key| key.number <= hot.number));
        assert!(stretches[at.unwrap()].changes >= changes);
        let estimates = viewed(&map.0, &guard, (limit, 5));
        let estimate: usize = estimates.iter().map(|stretch| stretch.keys).sum();
        assert!(estimate.abs_diff(keys.len()) < keys.len() / 5, "{estimate}");
    }
    drop(guard);
    check(&map.0);
}

#[test]
fn a_view_shows_the_entries_that_are_wanted_in_their_stretches() {
    let map = Map(Ca::new(TestSchema));
    (0..10_000).for_each(|n| map.put(n, 1));
    let guard = epoch::pin();
    // Keys whose hashes no others have.
    let wanted = [4, 5000, 9996, 1_000_004].map(|n| TestSchema.word(&TestKey::new(n)));
    let (mut from, mut found) = (0, Vec::new());
    let is_wanted = |entry: Entry| wanted.contains(&entry.key).then_some(entry);
    // Few leaves are read for the sums, but all are searched.
    let end = map.0.view(
        &guard,
        None,
        (usize::MAX, 1000),
        Some(&is_wanted),
        |sight| match sight {
            Sight::Stretch(stretch) => from = stretch.from.map_or(0, |key| key.number),
            Sight::Entry(entry) => found.push((entry.key, from)),
        },
    );
    assert!(end.unwrap().is_none());
    let words: Vec<u64> = found.iter().map(|found| found.0).collect();
    assert_eq!(words, wanted[..3]);
    for (n, (_, from)) in [4, 5000, 9996].into_iter().zip(found) {
        assert!(from <= n && n < from + 20_000);
    }
}

/// The leaf that writers change all the time is the one that people want to see. Its entry may move to a leaf that is read later.
#[test]
fn a_view_shows_the_entries_of_a_leaf_that_writers_change() {
    let map = Map(Ca::new(TestSchema));
    (0..10_000).for_each(|n| map.put(n, 1));
    let word = TestSchema.word(&TestKey::new(5000));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (map, done) = (&map, &done);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    map.put(5000 + thread, 2);
                }
            });
        }
        for _ in 0..2000 {
            let (guard, mut found) = (epoch::pin(), 0);
            let is_wanted = |entry: Entry| (entry.key == word).then_some(entry);
            let end = map.0.view(&guard, None, (usize::MAX, 1000), Some(&is_wanted), |sight| {
                found += usize::from(matches!(sight, Sight::Entry(_)));
            });
            if end.is_ok() && found == 0 {
                done.store(true, Relaxed);
                panic!("found no entry");
            }
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn adaptations_are_logged_with_their_keys() {
    let map = Map(Ca::new(TestSchema));
    (0..50_000).for_each(|n| map.put(n, 1));
    let split_or_join = |split: bool| {
        let guard = epoch::pin();
        let base = map.0.find(&TestKey::new(30_000)).0;
        if split {
            map.0.split_base(&guard, base);
        } else {
            map.0.join_base(&guard, base);
        }
    };
    [true, true, false].into_iter().for_each(split_or_join);
    let mut logged = Vec::new();
    map.0.events().each_adaptation(|adaptation| {
        let key: &TestKey = adaptation
            .key
            .as_ref()
            .and_then(|key| key.downcast_ref())
            .expect("a key");
        logged.push((adaptation.split, adaptation.number, key.number));
    });
    let Route::Many(route) = map.0.route() else {
        panic!("two base nodes are left")
    };
    assert_eq!(
        logged.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>(),
        [(true, 2), (true, 3), (false, 2)]
    );
    // The join undid one of the two splits.
    let left = number(route.key(0)).expect("a separator");
    assert!(logged[..2].iter().any(|one| one.2 == left) && logged[2].2 != left);
}
