//! A snapshot among many newer ones.

use super::world::{begin, remove, word, write};
use super::*;
use crate::engines::EngineName;
use crate::testing::patiently;
use cats_sync::epoch::pin;
use cats_term::TermRef;

const KEYS: u64 = 65;

/// A table, and the snapshots between which `write` has changed it. All values are 0 in the oldest one.
fn taken(name: EngineName, keys: u64, snapshots: u64, write_some: impl Fn(&Store, u64)) -> Vec<Snapshot> {
    let live: &Store = Box::leak(Box::new(Store::new(name, None, 0, false).expect("memory")));
    (1..=keys).for_each(|key| write(live, key, 0));
    let take = |number| {
        let (snapshot, instant) = begin(live, name);
        assert!(patiently(|| instant.close()));
        write_some(live, number);
        snapshot
    };
    (1..=snapshots).map(take).collect()
}

/// All parts of a snapshot, by `next`, of which all values are 0. Returns the number of parts, and how many entries were looked at for one at
/// most.
fn whole<'g>(present: u64, mut next: impl FnMut(Option<u64>) -> Option<Gathered<'g>>) -> (usize, usize) {
    let (mut keys, mut parts, mut most) = (Vec::new(), 0, 0);
    while let Some(gathered) = next(keys.last().copied()) {
        (parts, most) = (parts + 1, most.max(gathered.looked_at));
        assert!(gathered.entries.iter().all(|seen| seen.entry.body == word(0)));
        keys.extend(gathered.entries.iter().map(|seen| seen.entry.key));
    }
    keys.sort_unstable();
    let number = keys.len();
    assert!(keys.into_iter().eq((1..=present).map(word)), "{number} keys");
    (parts, most)
}

/// A walk from key to key.
fn walk(snapshot: &Snapshot, keys: u64) -> (usize, usize) {
    let guard = pin();
    whole(keys, |last| {
        let after = last.map(|key| Probe::ordered(TermRef::immediate(key)));
        let after = after.as_ref().map(Probe::erase);
        let part = || snapshot.entries_behind(&guard, after, false, MOST_ENTRIES, &mut |_, _| ());
        Some(patiently(part)).filter(|gathered| !gathered.entries.is_empty())
    })
}

/// A walk from place to place, of an unordered table.
fn scan(snapshot: &Snapshot, keys: u64) -> (usize, usize) {
    let (guard, mut place) = (pin(), 0);
    whole(keys, |_| {
        (place != END).then(|| patiently(|| snapshot.gather(&guard, &mut place, MOST_ENTRIES, &mut |_, _| ())))
    })
}

const BOTH: [EngineName; 2] = [EngineName::Hash, EngineName::Ca];

/// What looks at one entry of many nodes does not count as one entry.
#[test]
fn nodes_count_for_the_budget() {
    for name in BOTH {
        let snapshots = taken(name, KEYS, 100, |_, _| ());
        let (_, most) = walk(&snapshots[0], KEYS);
        assert!(most >= KEYS as usize + 50, "{name:?}: {most}");
        let (_, most) = walk(&snapshots[99], KEYS);
        assert!(most <= KEYS as usize + 1, "{name:?}: {most}");
    }
}

/// Where each of many snapshots has kept all, a part is small.
#[test]
fn a_part_is_bounded() {
    for name in BOTH {
        let taken = taken(name, KEYS, 300, |live, number| {
            (1..=KEYS).for_each(|key| write(live, key, number))
        });
        let scanned = (name == EngineName::Hash).then(|| scan(&taken[0], KEYS));
        for (_, most) in scanned.into_iter().chain([walk(&taken[0], KEYS)]) {
            assert!(most <= 10_000, "{most} entries were looked at");
        }
    }
}

/// Where each has kept little, a part is large.
#[test]
fn a_part_is_no_smaller_than_it_must_be() {
    for name in BOTH {
        let taken = taken(name, KEYS, 300, |live, number| write(live, 1 + number % KEYS, number));
        let (parts, _) = walk(&taken[0], KEYS);
        assert!(parts <= 2, "{parts} parts");
    }
}

/// Where newer nodes have more behind the end of an older one than before it.
#[test]
fn a_part_ends_where_the_first_node_ends() {
    let (keys, few) = (6000, 500);
    for name in BOTH {
        let taken = taken(name, keys, 5, |live, number| match number {
            1 => (1..=keys).for_each(|key| remove(live, key)),
            _ if number % 2 == 0 => (1..=few).for_each(|key| write(live, key, number)),
            _ => (1..=few).for_each(|key| remove(live, key)),
        });
        if name == EngineName::Hash {
            scan(&taken[0], keys);
        }
        walk(&taken[0], keys);
    }
}

#[test]
fn few_keys_are_looked_up_at_once_among_many_snapshots() {
    let at_once = |snapshots| taken(EngineName::Hash, KEYS, snapshots, |_, _| ())[0].keys_at_once(&pin(), 256);
    assert_eq!([1, 10, 500].map(at_once), [256, 200, 4]);
}
