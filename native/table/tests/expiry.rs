//! What the reaper does to the items of objects that expire. In a test binary of its own, as the reaper works at all tables.

mod common;

use cats_sync::epoch;
use cats_table::expiry::{expire, Next};
use cats_table::{Kind, Object, OptionItem};
use cats_term::small;
use common::*;
use std::time::Duration;

/// Most slices that the reaper may take. It looks at 16 items in each, at least.
const SLICES: usize = 100_000;

/// Stale items stand between those of objects that live.
#[test]
fn stale_items_go() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        let mut options = options(kind, 1);
        options.add(OptionItem::Ttl(86_400_000));
        let table = enter(registry(), &World::default(), &epoch::pin(), options, atom(1), 1, None).unwrap();
        let insert = |key: i64| {
            let guard = epoch::pin();
            let words = [key, 0].map(|number| small(number).unwrap());
            table.by_identifier(&guard).insert(Object::flat(&words)).unwrap();
        };
        let delete = |key: i64| {
            let guard = epoch::pin();
            with_key(&Value::Int(key), |term| {
                table.by_identifier(&guard).delete(&table.probe(term))
            })
            .unwrap();
        };
        let bytes = || table.by_identifier(&epoch::pin()).bytes();
        (0..30_000).for_each(&insert);
        let before = bytes();
        (0..30_000).for_each(delete);
        for key in 0..30_000 {
            insert(key);
            for other in [key + 30_000, key + 60_000] {
                insert(other);
                delete(other);
            }
        }
        let slices = (0..SLICES).find(|_| !matches!(expire(Duration::from_micros(200)), Next::Work { .. }));
        assert!(slices.is_some(), "{kind:?}: the reaper never rests");
        assert!(bytes() < before + 500_000, "{kind:?}: {} of {before}", bytes());
    }
}
