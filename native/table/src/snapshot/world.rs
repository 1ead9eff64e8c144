//! A table and its snapshots, for tests and models.

use super::Snapshot;
use crate::engines::EngineName;
use crate::history::instant::Instant;
use crate::history::{attach, Attached, Form};
use crate::object::schema::Probe;
use crate::store::Store;
use crate::testing::patiently;
use cats_engine::{Entry, Step};
use cats_sync::epoch::pin;
use cats_term::TermRef;
use std::sync::Arc;

/// An immediate.
pub fn word(number: u64) -> u64 {
    number << 4 | 15
}

pub fn probe(key: u64) -> Probe<'static> {
    Probe::ordered(TermRef::immediate(word(key)))
}

pub fn write(live: &Store, key: u64, value: u64) {
    let entry = Entry {
        key: word(key),
        body: word(value),
    };
    patiently(|| live.update(&pin(), &probe(key), |_| (Step::Put(entry), ())));
}

pub fn remove(live: &Store, key: u64) {
    patiently(|| live.update(&pin(), &probe(key), |_| (Step::Remove, ())));
}

/// A snapshot that is begun. To close its instant finishes it.
pub fn begin(live: &Store, name: EngineName) -> (Snapshot, Arc<Instant>) {
    let instant = Arc::new(Instant::default());
    let form = Form {
        engine: name,
        key: 0,
        ordered: name == EngineName::Ca,
        leased: false,
        limit: usize::MAX,
    };
    let Attached::Done(node) = patiently(|| attach(&pin(), live, form, &instant)) else {
        unreachable!("nobody else begins a snapshot")
    };
    instant.begin([&node].into_iter());
    (Snapshot::new(node), instant)
}
