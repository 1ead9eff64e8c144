//! Tables with [cells](crate::seat) for the conformance suite. Each body tells what its cell is. Whatever moves an entry must move its cell, and
//! a read that is valid must see both of one entry.

use super::conformance::{decode, TestKey, TestSchema};
use crate::seat::{body_of, cell_of, is_seat, Staged};
use crate::{mix, Busy, Engine, Entry, Locked, OrderedEngine, OrderedSchema, Origin, Range, Schema, Step, Trail};
use cats_sync::epoch::Guard;
use cats_sync::facade::Ordering;
use std::cmp;

/// A table that shows bodies in place of seats, for callers that know nothing of cells.
pub struct Celled<E>(pub E);

/// How such a table looks into keys.
pub struct Unseating;

impl Schema for Unseating {
    type Probe = TestKey;

    fn word(&self, probe: &TestKey) -> u64 {
        TestSchema.word(probe)
    }

    unsafe fn matches(&self, probe: &TestKey, entry: Entry) -> bool {
        // SAFETY: as the caller promises. A table may search among what is stored.
        unsafe { TestSchema.matches(probe, if is_seat(entry.body) { unseated(entry) } else { entry }) }
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

impl OrderedSchema for Unseating {
    type Key = TestKey;
    const CELLS: bool = true;

    unsafe fn own(&self, entry: Entry) -> TestKey {
        // SAFETY: as the caller promises, here and below.
        unsafe { TestSchema.own(if is_seat(entry.body) { unseated(entry) } else { entry }) }
    }
    fn own_probe(&self, probe: &TestKey) -> TestKey {
        *probe
    }
    fn probe<'a>(&self, key: &'a TestKey) -> &'a TestKey {
        key
    }
    unsafe fn compare(&self, probe: &TestKey, entry: Entry) -> cmp::Ordering {
        // SAFETY: as above.
        unsafe { TestSchema.compare(probe, unseated(entry)) }
    }
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> cmp::Ordering {
        // SAFETY: as above.
        unsafe { TestSchema.compare_entries(unseated(a), unseated(b)) }
    }
    fn compare_probes(&self, a: &TestKey, b: &TestKey) -> cmp::Ordering {
        TestSchema.compare_probes(a, b)
    }
    fn head(&self, probe: &TestKey, skip: usize) -> u64 {
        TestSchema.head(probe, skip)
    }
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64 {
        // SAFETY: as above.
        unsafe { TestSchema.entry_head(unseated(entry), skip) }
    }
    fn number(&self, probe: &TestKey) -> Option<i64> {
        TestSchema.number(probe)
    }
    fn number_of_word(&self, word: u64) -> Option<i64> {
        TestSchema.number_of_word(word)
    }
}

/// In place of a body whose cell is that of another one. No entry is whole with it.
const TORN: u64 = 2;

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

impl<E: Engine<Unseating>> Engine<TestSchema> for Celled<E> {
    type Cursor = E::Cursor;

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
        cursor: &mut E::Cursor,
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

    fn next_on<R>(
        &self,
        guard: &Guard,
        after: Option<&TestKey>,
        trail: &mut Trail,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.0.next_on(guard, after, trail, |entry| look(entry.map(unseated)))
    }

    fn follow<R>(
        &self,
        guard: &Guard,
        trail: &mut Trail,
        down: bool,
        is_here: impl Fn(Origin) -> bool,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        let is_here = |origin| match origin {
            // The last step's place may hold another entry now. Then the trail does not lead on.
            Origin::Entry(entry) => {
                let entry = unseated(entry);
                decode(entry).is_some() && is_here(Origin::Entry(entry))
            }
            origin => is_here(origin),
        };
        self.0
            .follow(guard, trail, down, is_here, |entry| look(entry.map(unseated)))
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

impl<E: OrderedEngine<Unseating>> OrderedEngine<TestSchema> for Celled<E> {
    fn prev<R>(
        &self,
        guard: &Guard,
        before: Option<&TestKey>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.0.prev(guard, before, |entry| look(entry.map(unseated)))
    }

    fn prev_on<R>(
        &self,
        guard: &Guard,
        before: Option<&TestKey>,
        trail: &mut Trail,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.0.prev_on(guard, before, trail, |entry| look(entry.map(unseated)))
    }

    fn range<T>(
        &self,
        guard: &Guard,
        range: Range<'_, TestKey>,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.0
            .range(guard, range, limit, out, |entry, out| expand(unseated(entry), out))
    }

    fn base_nodes(&self) -> usize {
        self.0.base_nodes()
    }
}
