//! A snapshot among many newer ones.

use super::world::{begin, word, write};
use super::*;
use crate::engines::EngineName;
use crate::models::patiently;
use cats_sync::epoch::pin;

/// A part of an old snapshot has the fewer keys the more snapshots are newer: it looks at what each has kept. All parts together are whole.
#[test]
fn a_part_of_an_old_snapshot_is_bounded() {
    const KEYS: u64 = 65;
    for (name, snapshots) in [
        (EngineName::Hash, 3),
        (EngineName::Hash, 300),
        (EngineName::Ca, 3),
        (EngineName::Ca, 300),
    ] {
        let live: &Store = Box::leak(Box::new(Store::new(name, None, 0, false).expect("memory")));
        let write_all = |value| (1..=KEYS).for_each(|key| write(live, key, value));
        write_all(0);
        let taken: Vec<Snapshot> = (1..=snapshots)
            .map(|value| {
                let (snapshot, instant) = begin(live, name);
                assert!(patiently(|| instant.close()));
                write_all(value);
                snapshot
            })
            .collect();
        let oldest = &taken[0];
        let guard = pin();
        let (mut keys, mut most, mut last) = (Vec::new(), 0, None::<u64>);
        loop {
            let after = last.map(|key| Probe::ordered(cats_term::TermRef::immediate(key)));
            let gathered = patiently(|| {
                let after = after.as_ref().map(Probe::erase);
                oldest.entries_behind(&guard, after, false, MOST_ENTRIES, &mut |_, _| ())
            });
            most = most.max(gathered.looked_at);
            let Some(end) = gathered.entries.last() else { break };
            last = Some(end.entry.key);
            assert!(gathered.entries.iter().all(|seen| seen.entry.body == word(0)));
            keys.extend(gathered.entries.iter().map(|seen| seen.entry.key));
        }
        keys.sort_unstable();
        assert_eq!(keys, (1..=KEYS).map(word).collect::<Vec<_>>());
        assert!(most <= 2 * PASSED.0, "{most} entries were looked at");
    }
}
