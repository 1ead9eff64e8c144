//! Models of readers: beside them, a key is written and the instant of a newer snapshot passes.

use super::world::{begin, probe, word, write};
use super::*;
use crate::engines::EngineName;
use crate::testing::{explore, patiently};
use cats_sync::epoch::pin;
use shuttle::thread::spawn;

/// What a snapshot has of the key: by a search for it, and by a walk.
fn by_key(snapshot: &Snapshot) -> u64 {
    let mut found = None;
    patiently(|| snapshot.read(&pin(), &probe(1), &mut |entry| found = entry));
    found.map_or(0, |entry| entry.body)
}

fn by_walk(snapshot: &Snapshot) -> u64 {
    patiently(|| {
        let guard = pin();
        let gathered = snapshot.entries_behind(&guard, None, false, 8, &mut |_, _| ())?;
        Ok(gathered.entries.first().map_or(0, |seen| seen.entry.body))
    })
}

/// A snapshot shows what was there at its instant, whatever passes while it is read.
fn stays_as_it_is(name: EngineName, read: fn(&Snapshot) -> u64) {
    explore(move || {
        // Nodes refer to it as long as they are in its chain, which only the reaper takes them out of.
        let live: &Store = Box::leak(Box::new(Store::new(name, None, 0, false).expect("memory")));
        write(live, 1, 1);
        let (snapshot, instant) = begin(live, name);
        assert!(patiently(|| instant.close()));
        let (newer, next) = begin(live, name);
        let others = [
            spawn(move || write(live, 1, 2)),
            spawn(move || {
                assert!(patiently(|| next.close()));
                write(live, 1, 3);
            }),
        ];
        assert_eq!(read(&snapshot), word(1));
        others.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!([read(&snapshot), by_key(&snapshot)], [word(1); 2]);
        drop(newer);
    });
}

#[test]
fn a_key_of_a_set_stays_as_it_is() {
    stays_as_it_is(EngineName::Hash, by_key);
}

#[test]
fn a_key_of_an_ordered_set_stays_as_it_is() {
    stays_as_it_is(EngineName::Ca, by_key);
}

#[test]
fn a_walk_over_a_set_stays_as_it_is() {
    stays_as_it_is(EngineName::Hash, by_walk);
}

#[test]
fn a_walk_over_an_ordered_set_stays_as_it_is() {
    stays_as_it_is(EngineName::Ca, by_walk);
}
