//! Helpers for tests and models of the contention adapting trees.

use super::*;
use cats_engine::testing::conformance::{TestKey, TestSchema};
use cats_sync::epoch;
use cats_sync::events::Event;

/// Adapts at every opportunity.
pub const NERVOUS: Thresholds = Thresholds { split: 0, join: 0 };

pub fn make<B: Balance>(thresholds: Thresholds, shared: bool) -> CaTree<TestSchema, B> {
    CaTree::with(TestSchema, thresholds, shared).expect("memory")
}

/// Splits or joins the base node of `target`, if no other thread is in the way.
pub fn force<B: Balance>(table: &CaTree<TestSchema, B>, target: &Target<TestSchema>, split: bool) {
    let guard = epoch::pin();
    let held = table.enter(&guard, target, false);
    match held {
        Ok(held) if split => table.split(&guard, held),
        Ok(held) => table.join(&guard, held),
        Err(Busy) => {}
    }
}

/// Asserts all invariants of a table that nobody else uses, and returns its keys in order.
pub fn check<B: Balance>(table: &CaTree<TestSchema, B>) -> Vec<u64> {
    fn go<B: Balance>(
        node: Node<TestKey, B>,
        low: *const TestKey,
        high: *const TestKey,
        bytes: &mut usize,
        keys: &mut Vec<u64>,
    ) {
        // SAFETY: the table is not changed while it is checked.
        match unsafe { node.child() } {
            Child::Route(route) => {
                assert!(route.valid() && route.lock.token().is_some());
                *bytes += size_of::<Route<TestKey>>();
                go::<B>(route.child(0), low, &raw const route.key, bytes, keys);
                go::<B>(route.child(1), &raw const route.key, high, bytes, keys);
            }
            Child::Base(base) => {
                assert!(base.valid() && base.lock().is_free());
                assert_eq!((base.low, base.high), (low, high));
                // SAFETY: as above.
                let (tree, low, high) = unsafe { (&*base.tree(), low.as_ref(), high.as_ref()) };
                let inside: Vec<u64> = tree
                    .entries(&TestSchema, None, false)
                    .map(|entry| {
                        cats_engine::testing::conformance::decode(entry)
                            .expect("a whole entry")
                            .0
                    })
                    .collect();
                assert!(inside
                    .iter()
                    .all(|&n| low.is_none_or(|low| low.number <= n) && high.is_none_or(|high| n < high.number)));
                *bytes += size_of::<Base<TestKey, B>>() + inside.len() * NODE;
                keys.extend(inside);
            }
        }
    }
    let _guard = epoch::pin();
    let (mut bytes, mut keys) = (size_of::<CaTree<TestSchema, B>>(), Vec::new());
    go(table.root(), ptr::null(), ptr::null(), &mut bytes, &mut keys);
    assert!(keys.is_sorted_by(|a, b| a < b), "keys ascend");
    assert_eq!(bytes, table.bytes());
    let bases = table.measure().1;
    assert_eq!(table.bases.load(Relaxed), bases);
    // Models count no events.
    if cfg!(not(shuttle)) {
        let sums = table.events.sums();
        assert_eq!(
            1 + sums[Event::Split as usize] - sums[Event::Join as usize],
            bases as u64
        );
    }
    keys
}
