//! Tests of the sequential ordered sets, compared with a sorted map of the standard library.

use super::*;
use cats_engine::testing::cases::cases;
use cats_engine::testing::conformance::{decode, entry, TestKey, TestSchema};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Asserts the shape that a balance promises.
trait Shape: Balance {
    /// Asserts what must hold between a node and its subtrees of these heights.
    fn check(node: &Node, heights: [usize; 2]);
    /// The largest height of a tree of this many entries.
    fn height(count: usize) -> usize;
}

impl Shape for Avl {
    fn check(node: &Node, [left, right]: [usize; 2]) {
        assert_eq!(node.rank, right as i64 - left as i64);
        assert!(node.rank.abs() <= 1);
    }
    fn height(count: usize) -> usize {
        (1.4405 * ((count + 2) as f64).log2()) as usize
    }
}

impl Shape for Treap {
    fn check(node: &Node, _: [usize; 2]) {
        for child in node.child {
            // SAFETY: the tree is not changed while it is checked.
            assert!(unsafe { child.as_ref() }.is_none_or(|child| child.rank <= node.rank));
        }
    }
    fn height(count: usize) -> usize {
        // Far more than is likely.
        10 + 5 * (count + 1).ilog2() as usize
    }
}

/// Numbers that are immediate keys, so nothing must be freed.
fn key(number: u64) -> TestKey {
    TestKey::new(number / 2 * 4 + number % 2)
}

fn number(entry: Entry) -> u64 {
    let number = decode(entry).expect("a whole entry").0;
    number / 4 * 2 + number % 4
}

/// Asserts all invariants, and returns the entries and the height.
fn check<B: Shape>(tree: &Tree<B>) -> (Vec<Entry>, usize) {
    fn go<B: Shape>(at: Link, out: &mut Vec<Entry>) -> usize {
        // SAFETY: the tree is not changed while it is checked.
        let Some(node) = (unsafe { at.as_ref() }) else { return 0 };
        let left = go::<B>(node.child[LEFT], out);
        out.push(node.entry);
        let right = go::<B>(node.child[RIGHT], out);
        // SAFETY: as above.
        assert_eq!(node.head, unsafe { TestSchema.entry_head(node.entry, 0) });
        B::check(node, [left, right]);
        1 + left.max(right)
    }
    let mut entries = Vec::new();
    let height = go::<B>(tree.root, &mut entries);
    assert!(entries.iter().map(|&e| number(e)).is_sorted_by(|a, b| a < b));
    assert!(height <= B::height(entries.len()), "{height} for {}", entries.len());
    (entries, height)
}

fn put<B: Balance>(tree: &mut Tree<B>, number: u64, value: u32) -> Option<Entry> {
    let key = key(number);
    let (old, more) = tree.update(&TestSchema, &key, |old| (Step::Put(entry(&key, value)), old));
    assert_eq!(more, i64::from(old.is_none()));
    old
}

fn remove<B: Balance>(tree: &mut Tree<B>, number: u64) -> Option<Entry> {
    let (old, more) = tree.update(&TestSchema, &key(number), |old| (Step::Remove, old));
    assert_eq!(more, -i64::from(old.is_some()));
    old
}

fn of<B: Balance>(numbers: impl IntoIterator<Item = u64>) -> Tree<B> {
    let mut tree = Tree::default();
    for number in numbers {
        assert_eq!(put(&mut tree, number, 1), None);
    }
    tree
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u32),
    Remove(u64),
    Keep(u64),
    Run(u64, u64),
    Clear(u64, u64),
    /// Cuts into this many parts and joins them again.
    Cut(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let number = prop_oneof![0..20u64, 0..400u64];
    let op = prop_oneof![
        5 => (number.clone(), 0..1000u32).prop_map(|(n, v)| Op::Put(n, v)),
        4 => number.clone().prop_map(Op::Remove),
        1 => number.clone().prop_map(Op::Keep),
        1 => (number.clone(), 0..100u64).prop_map(|(n, m)| Op::Run(n, m)),
        1 => (number, 0..100u64).prop_map(|(n, m)| Op::Clear(n, m)),
        2 => (1..12usize).prop_map(Op::Cut),
    ];
    prop::collection::vec(op, 0..80)
}

fn against_model<B: Shape>(ops: Vec<Op>) {
    let mut tree = Tree::<B>::default();
    let mut model = BTreeMap::new();
    for op in ops {
        match op {
            Op::Put(n, v) => assert_eq!(put(&mut tree, n, v), model.insert(n, entry(&key(n), v))),
            Op::Remove(n) => assert_eq!(remove(&mut tree, n), model.remove(&n)),
            Op::Keep(n) => {
                let found = tree.update(&TestSchema, &key(n), |old| (Step::Keep, old));
                assert_eq!(found, (model.get(&n).copied(), 0));
            }
            Op::Run(n, m) => (n..n + m).for_each(|n| {
                put(&mut tree, n, 7);
                model.insert(n, entry(&key(n), 7));
            }),
            Op::Clear(n, m) => (n..n + m).for_each(|n| {
                remove(&mut tree, n);
                model.remove(&n);
            }),
            Op::Cut(parts) => {
                let mut pieces = vec![tree];
                for i in 0..parts {
                    let at = i * 7 % pieces.len();
                    if let Some((left, right)) = pieces[at].split() {
                        assert!(!left.is_empty() && !right.is_empty());
                        check(&left);
                        check(&right);
                        pieces.splice(at..=at, [left, right]);
                    }
                }
                tree = pieces.into_iter().reduce(Tree::join).expect("a piece");
            }
        }
        let entries = check(&tree).0;
        assert!(entries.iter().eq(model.values()));
    }
    for n in 0..420 {
        let key = key(n);
        assert_eq!(tree.find(&TestSchema, &key), model.get(&n).copied());
        for inclusive in [false, true] {
            let above = tree.entries(&TestSchema, Some((&key, inclusive)), false);
            assert!(above.eq(model.range(n + u64::from(!inclusive)..).map(|(_, &e)| e)));
            let below = tree.entries(&TestSchema, Some((&key, inclusive)), true);
            assert!(below.eq(model.range(..n + u64::from(inclusive)).rev().map(|(_, &e)| e)));
        }
    }
    assert!(tree.entries(&TestSchema, None, false).eq(model.values().copied()));
    assert!(tree.entries(&TestSchema, None, true).eq(model.values().rev().copied()));
    let mut shown = Vec::new();
    while tree.dismantle(3, &mut |entry| shown.push(entry)) == 3 {}
    assert!(shown.iter().eq(model.values()) && tree.is_empty());
}

proptest! {
    #![proptest_config(cases(50))]

    #[test]
    fn avl_does_as_the_model(ops in ops()) {
        against_model::<Avl>(ops);
    }
    #[test]
    fn treap_does_as_the_model(ops in ops()) {
        against_model::<Treap>(ops);
    }
}

fn joins_of_all_sizes<B: Shape>() {
    for left in 0..100 {
        for right in 0..100 {
            let joined = of::<B>(0..left).join(of::<B>(left..left + right));
            assert_eq!(check(&joined).0.len() as u64, left + right);
        }
    }
}

#[test]
fn avl_joins_trees_of_all_sizes() {
    joins_of_all_sizes::<Avl>();
}
#[test]
fn treap_joins_trees_of_all_sizes() {
    joins_of_all_sizes::<Treap>();
}

/// Every order of insertion and removal of six keys.
fn all_orders<B: Shape>() {
    fn permutations(rest: &mut Vec<u64>, order: &mut Vec<u64>, visit: &mut impl FnMut(&[u64])) {
        if rest.is_empty() {
            return visit(order);
        }
        for i in 0..rest.len() {
            order.push(rest.remove(i));
            permutations(rest, order, visit);
            rest.insert(i, order.pop().expect("pushed above"));
        }
    }
    permutations(&mut (0..6).collect(), &mut Vec::new(), &mut |order| {
        let mut tree = of::<B>(order.iter().copied());
        check(&tree);
        for n in order.iter().rev() {
            assert!(remove(&mut tree, *n).is_some());
            check(&tree);
        }
        for n in order {
            let mut tree = of::<B>(0..6);
            assert!(remove(&mut tree, *n).is_some());
            check(&tree);
        }
    });
}

#[test]
fn avl_is_balanced_after_all_orders() {
    all_orders::<Avl>();
}
#[test]
fn treap_is_a_heap_after_all_orders() {
    all_orders::<Treap>();
}

/// Ascending or descending runs, which degenerate a tree without balancing.
#[test]
fn runs_do_not_degenerate() {
    fn height<B: Shape>(numbers: impl IntoIterator<Item = u64>) -> usize {
        check(&of::<B>(numbers)).1
    }
    const COUNT: u64 = 100_000;
    assert_eq!(height::<Avl>(0..COUNT), 17);
    assert_eq!(height::<Avl>((0..COUNT).rev()), 17);
    for height in [height::<Treap>(0..COUNT), height::<Treap>((0..COUNT).rev())] {
        assert!((25..70).contains(&height), "{height}");
    }
}

#[test]
fn a_change_that_unwinds_changes_nothing() {
    let mut tree = of::<Avl>(0..10);
    for n in [5, 50] {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            tree.update(&TestSchema, &key(n), |_| -> (Step, ()) { panic!("on purpose") })
        }));
        assert!(unwound.is_err());
    }
    assert_eq!(check(&tree).0.len(), 10);
}
