//! The conformance suite over a table with cells. Each body tells what its cell is. Whatever moves an entry must move its cell, and a read that
//! is valid must see both of one entry.

use super::*;
use crate::mix;
use crate::seat::{body_of, cell_of, is_seat, Staged};
use crate::testing::conformance::{suite, Map, TestKey, TestSchema};
use std::cmp;

/// A table that shows bodies in place of seats, for callers that know nothing of cells.
struct Celled(Hash<Unseating, WITH_CELLS>);

/// How such a table looks into keys.
struct Unseating;

impl Schema for Unseating {
    type Probe = TestKey;

    fn word(&self, probe: &TestKey) -> u64 {
        TestSchema.word(probe)
    }

    unsafe fn matches(&self, probe: &TestKey, entry: Entry) -> bool {
        // SAFETY: as the caller promises.
        unsafe { TestSchema.matches(probe, entry) }
    }

    unsafe fn compare_colliding(&self, probe: &TestKey, entry: Entry) -> cmp::Ordering {
        // SAFETY: as the caller promises.
        unsafe { TestSchema.compare_colliding(probe, unseated(entry)) }
    }

    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> cmp::Ordering {
        // SAFETY: as the caller promises.
        unsafe { TestSchema.compare_colliding_entries(unseated(a), unseated(b)) }
    }
}

/// In place of a body whose cell is that of another one. No entry is whole with it.
const TORN: u64 = 2;

fn celled() -> Celled {
    Celled(Hash::new(Unseating).expect("memory"))
}

fn cell_for(body: u64) -> u64 {
    mix(body) | 1
}

fn unseated(entry: Entry) -> Entry {
    assert!(is_seat(entry.body));
    // SAFETY: the table shows the entry under the caller's guard.
    let (body, cell) = unsafe { (body_of(entry.body), cell_of(entry.body)) };
    // Acquire, for both: as in the table layer.
    let (cell, body) = (cell.load(Ordering::Acquire), body.load(Ordering::Acquire));
    let body = if cell == cell_for(body) { body } else { TORN };
    Entry { body, ..entry }
}

fn seated(step: Step, staged: &Staged) -> Step {
    match step {
        Step::Put(entry) => Step::Put(Entry {
            body: staged.seat(entry.body, cell_for(entry.body)),
            ..entry
        }),
        step => step,
    }
}

/// The same for places of an operation on many keys.
struct Places<'a>(&'a mut dyn Locked, Staged);

impl Locked for Places<'_> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.0.get(i).map(unseated)
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let Self(places, staged) = self;
        places.update(i, &mut |old| seated(change(old.map(unseated)), staged));
    }
}

impl Engine<TestSchema> for Celled {
    type Cursor = Position;

    fn read<R>(&self, guard: &Guard, probe: &TestKey, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        self.0.read(guard, probe, |entry| look(entry.map(unseated)))
    }

    fn update<R>(
        &self,
        guard: &Guard,
        probe: &TestKey,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let staged = Staged::default();
        self.0.update(guard, probe, |old| {
            let (step, result) = change(old.map(unseated));
            (seated(step, &staged), result)
        })
    }

    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&TestKey],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        self.0.update_many(guard, probes, |places: &mut dyn Locked| {
            change(&mut Places(places, Staged::default()))
        })
    }

    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.0
            .scan(guard, cursor, limit, out, |entry, out| expand(unseated(entry), out))
    }

    fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&TestKey>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.0.next(guard, after, |entry| look(entry.map(unseated)))
    }

    fn buckets(&self) -> usize {
        self.0.buckets()
    }

    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        self.0.slot(guard, number, |entry, out| expand(unseated(entry), out))
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        self.0.dismantle(limit, &mut |entry| free(unseated(entry)))
    }
}

suite!(celled);

#[test]
fn memory_follows_the_number_of_keys() {
    let map = Map(celled());
    for n in 0..100_000 {
        map.put(n, 1);
        if n % 10_000 == 9_999 {
            let each = map.0.bytes() as f64 / (n + 1) as f64;
            assert!((33.0..46.0).contains(&each), "{each} bytes an entry at {n}");
        }
    }
    (0..100_000).for_each(|n| map.remove(n));
    assert!(map.0.bytes() < 12_288, "{} bytes are left", map.0.bytes());
}
