//! Transactions: reads that are validated together, and a commit that validates them and writes.
//!
//! Source: Tu and others, "Speedy transactions in multicore in-memory databases", SOSP 2013 (Silo), for the order of a
//! commit: lock what is written, validate what was read, write.
//!
//! A transaction keeps what it has read as values. Each call reads them again, and compares. The [`Reads`] of a call
//! hold a mark of each place. If all marks hold at the end, all values were there at one instant.
//!
//! A commit holds the locks of all places that it writes when it asks the marks. So the values that were read hold at
//! an instant at which nobody else can change what is written. That instant is the transaction's place in the order of
//! all operations.

use crate::budget::Budget;
use crate::failure::{Cause, Failure};
use crate::object::group::{retire_entry, Room, GROUP_LIMIT};
use crate::object::schema::Probe;
use crate::object::{prefetch, refers, state, unseated, Object, ObjectRef};
use crate::operations::bag_change::BagChange;
use crate::operations::insert::{check_room, Incoming, LIST_LIMIT};
use crate::operations::long::{LongReads, Owner};
use crate::operations::lookup::Objects;
use crate::store::engine::DefaultEngine;
use crate::store::leases::{deadline, is_past};
use crate::store::limited::Planned;
use crate::store::Store;
use crate::table::counters::Operation;
use crate::table::{Handle, Table};
use crate::write_log::{Actor, NOBODY};
use cats_engine::{Entry, HeldPlace, Locked, Mark, Range, Step};
use cats_sync::epoch::Guard;
use cats_sync::facade::{fence, Ordering};
use cats_sync::slab::Relief;
use cats_term::lease::NEVER;
use cats_term::State;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ptr;

/// Up to this number of reads, writes or tables need no allocation.
const FEW: usize = 8;

/// Up to this number of changes of one table need no allocation.
const FEW_CHANGES: usize = 4;

/// How many changes ahead an object is prefetched.
const AHEAD: usize = 8;

/// The bodies of objects that a commit has replaced or removed.
type Replaced = SmallVec<[u64; FEW]>;

/// The largest cost of the writes of a commit on a scheduler. Half of that of a list, because a commit reads too.
pub const WRITES_LIMIT: Budget = Budget(LIST_LIMIT.0 / 2);

/// The most tables that a transaction writes. A commit needs room on the stack for each of them.
pub const TABLES_LIMIT: usize = 32;

/// What one call has read: marks of the places, and the contents of the tables.
pub struct Reads<'g> {
    marks: Vec<Mark<'g>>,
    /// The states of objects that are changed in place. Such a change need not change the version of the place.
    states: Vec<State<'g>>,
    stores: SmallVec<[(&'g Table, *const Store); FEW]>,
    /// The earliest deadline of the objects.
    deadline: u64,
}

impl<'g> Reads<'g> {
    /// Nothing was read.
    pub fn none() -> Self {
        Self {
            marks: Vec::new(),
            states: Vec::new(),
            stores: SmallVec::new(),
            deadline: NEVER,
        }
    }

    /// The earliest deadline of the objects that were read.
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Forgets what was read.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.states.clear();
        self.stores.clear();
        self.deadline = NEVER;
    }

    /// The contents of a table, which must stay the table's until the end.
    fn store(&mut self, handle: Handle<'g>) -> &'g Store {
        let store = handle.store();
        // Blank tables share their contents.
        let known = |(table, other): &(&Table, *const Store)| ptr::eq(*table, handle.table) && ptr::eq(*other, store);
        if !self.stores.iter().any(known) {
            self.stores.push((handle.table, store));
        }
        store
    }

    /// Whether no table was deleted or emptied.
    fn tables_hold(&self) -> bool {
        let holds = |(table, store): &(&Table, *const Store)| {
            !table.is_dead() && ptr::eq(table.store_pointer().cast_const(), *store)
        };
        self.stores.iter().all(holds)
    }

    /// Whether all that was read was so at one instant, after the last read.
    pub fn hold(&self) -> bool {
        self.hold_with(Mark::holds)
    }

    /// The same for a caller that holds locks itself. `held` is sorted.
    fn hold_beside(&self, held: &[HeldPlace]) -> bool {
        self.hold_with(|mark| mark.holds() || held.binary_search(&mark.place()).is_ok())
    }

    /// The order matters. The tables come first: all places are unchanged from their reads until after that. The states come last. A
    /// writer changes an object in place while it holds the lock. If the mark held, that was before the mark was asked, and
    /// then the state has changed, or it was after that.
    fn hold_with(&self, holds: impl FnMut(&Mark<'g>) -> bool) -> bool {
        if !self.tables_hold() || !self.marks.iter().all(holds) {
            return false;
        }
        // Acquire pairs with the Release by which a writer frees the lock of a place: whoever sees that sees the new state.
        fence(Ordering::Acquire);
        // What had expired when it was read stays so.
        self.states.iter().all(State::holds) && !is_past(self.deadline)
    }
}

impl<'g> Handle<'g> {
    /// Whether transactions can use the table.
    pub fn has_transactions(self) -> bool {
        let engine = self.table.options().engine();
        engine.has_transactions(self.table.kind()) && !self.table.is_snapshot()
    }

    /// The engine of the contents, which `reads` has from now on. Fails if the table has no transactions.
    fn marked_engine(self, reads: &mut Reads<'g>) -> Result<DefaultEngine<'g>, Failure> {
        Ok(reads.store(self).default_engine().ok_or(Cause::TableType)?)
    }

    /// Whether a commit can compare the object of a key while its place is locked: it is the only one, and stored as it is.
    #[inline]
    pub fn is_comparable(self) -> bool {
        let layout = self.table.layout();
        !layout.packed && !layout.leased && !self.table.kind().is_bag()
    }

    /// Like [`lookup`](Self::lookup), and adds the place to `reads`. Does not count as a use: what a transaction has read it looks at again
    /// and again. The table must have [transactions](Self::has_transactions).
    pub fn lookup_in(self, reads: &mut Reads<'g>, probe: &Probe<'_>, found: &mut Objects<'g>) -> Result<(), Failure> {
        let (engine, table) = (self.marked_engine(reads)?, self.table);
        let leased = self.table.options().leased();
        let ((fits, state, deadline), mark) = engine.read_marked(self.guard, probe, |entry| {
            let (entry, deadline) = living(leased, entry);
            // SAFETY: objects are retired through the epoch. First the state, then the object.
            let state = entry.and_then(|entry| unsafe { state(entry.body) });
            (found.look(table, entry), state, deadline)
        })?;
        reads.deadline = reads.deadline.min(deadline);
        reads.marks.push(mark);
        reads.states.extend(state);
        self.looked(fits, found)
    }

    /// Writes the objects of an ordered table from one key to another to `found`: up to `limit` of them. Adds the range
    /// to `reads`. Fails with [`Failure::Big`] if they are too many for this thread.
    pub fn range_in(
        self,
        reads: &mut Reads<'g>,
        range: Range<'_, Probe<'_>>,
        limit: usize,
        found: &mut Objects<'g>,
    ) -> Result<(), Failure> {
        let (engine, table) = (self.marked_engine(reads)?, self.table);
        // With one more it is known that there are too many.
        let most = match GROUP_LIMIT.admits(limit) {
            true => limit,
            false => GROUP_LIMIT.0 + 1,
        };
        // SAFETY: objects are retired through the epoch. First the state, then the object.
        let read = |entry: Entry| (unsafe { state(entry.body) }, Objects::one(table, entry));
        let leased = self.table.options().leased();
        let (begun, mut skipped) = (reads.marks.len(), 0);
        let (mut objects, deadline) = loop {
            let (mut objects, mut deadline, mut expired) = (Vec::new(), NEVER, 0);
            let expand = |entry: Entry, objects: &mut Vec<_>| {
                let (entry, until) = living(leased, Some(entry));
                deadline = deadline.min(until);
                match entry {
                    Some(entry) => objects.push(read(entry)),
                    None => expired += 1,
                }
            };
            // The engine counts entries, also those that have expired.
            let entries = most.saturating_add(skipped);
            let more = engine.range_marked(self.guard, range, entries, &mut objects, &mut reads.marks, expand)?;
            if !more || objects.len() >= most {
                break (objects, deadline);
            }
            reads.marks.truncate(begun);
            skipped = 2 * expired;
        };
        objects.truncate(most);
        let fits = GROUP_LIMIT.admits(objects.len());
        reads.deadline = reads.deadline.min(deadline);
        reads.states.extend(objects.iter().filter_map(|(state, _)| *state));
        found.set(objects.into_iter().map(|(_, object)| object));
        self.looked(fits, found)
    }
}

/// What transactions see of an entry, and until when. `leased` says whether the table has leases.
fn living(leased: bool, entry: Option<Entry>) -> (Option<Entry>, u64) {
    match entry {
        Some(entry) if leased => {
            // SAFETY: engines show entries under the guard.
            let deadline = unsafe { deadline(entry) };
            match is_past(deadline) {
                true => (None, NEVER),
                // SAFETY: as above.
                false => (Some(unsafe { unseated(entry) }), deadline),
            }
        }
        entry => (entry, NEVER),
    }
}

/// What shall become of a key.
enum Change<'k> {
    Put(Incoming),
    Delete(Probe<'k>),
    Bag(Box<BagChange>),
}

impl Change<'_> {
    fn probe(&self) -> &Probe<'static> {
        match self {
            Self::Put(incoming) => incoming.stable_probe(),
            Self::Delete(probe) => probe.erase(),
            Self::Bag(change) => change.probe(),
        }
    }

    /// How many objects it inserts, and how many it deletes at least.
    fn counts(&self) -> (usize, usize) {
        match self {
            Self::Put(_) => (1, 0),
            Self::Delete(_) => (0, 1),
            Self::Bag(change) => change.counts(),
        }
    }
}

/// The changes of one table.
struct TableChanges<'g, 'k, N> {
    handle: Handle<'g>,
    store: &'g Store,
    /// With what was noted of the key, if that is compared while the place is locked.
    changes: SmallVec<[(Change<'k>, Option<N>); FEW_CHANGES]>,
    /// Whether a commit failed here.
    failed: Cell<bool>,
}

/// What has become of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    Done,
    /// What was read does not hold any more.
    Changed,
    /// The preferred transaction has read what would be written.
    Reserved,
}

/// What a transaction writes. `N` is what it has noted of a key that it has read.
pub struct Writes<'g, 'k, N = ()> {
    tables: SmallVec<[TableChanges<'g, 'k, N>; 1]>,
    cost: usize,
}

impl<'g, 'k, N: Copy> Writes<'g, 'k, N> {
    /// Nothing is written.
    pub fn none() -> Self {
        Self {
            tables: SmallVec::new(),
            cost: 0,
        }
    }

    /// The object shall be the only one of its key, in a table that is no bag. Each key may be written once. If something was `noted` of the
    /// key, the commit compares it with what the key has. The table must be [comparable](Handle::is_comparable) then.
    pub fn put(&mut self, handle: Handle<'g>, object: Object<'_>, noted: Option<N>) -> Result<(), Failure> {
        self.count(&object)?;
        let incoming = Incoming::for_any(handle.guard, handle.table, object)?;
        self.add(handle, Change::Put(incoming), noted)
    }

    /// The key shall have no object. `noted` is as for [`put`](Self::put).
    pub fn delete(&mut self, handle: Handle<'g>, probe: Probe<'k>, noted: Option<N>) -> Result<(), Failure> {
        self.pay(1)?;
        self.add(handle, Change::Delete(probe), noted)
    }

    /// The key of a bag shall be changed so. All objects of the change have this key, and were [counted](Self::count).
    pub fn change(&mut self, handle: Handle<'g>, change: BagChange) -> Result<(), Failure> {
        self.add(handle, Change::Bag(Box::new(change)), None)
    }

    /// What the writes cost, as [`LIST_LIMIT`] counts it.
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// The table because of which a commit failed.
    pub fn failed(&self) -> Option<&'g Table> {
        let table = self.tables.iter().find(|table| table.failed.get());
        table.map(|table| table.handle.table)
    }

    /// Counts an object of a change of a bag.
    pub fn count(&mut self, object: &Object<'_>) -> Result<(), Failure> {
        self.pay(object.cost())
    }

    fn pay(&mut self, cost: usize) -> Result<(), Failure> {
        self.cost += cost;
        WRITES_LIMIT.check(self.cost)
    }

    fn add(&mut self, handle: Handle<'g>, change: Change<'k>, noted: Option<N>) -> Result<(), Failure> {
        debug_assert!(noted.is_none() || handle.is_comparable());
        let is_it = |table: &TableChanges<'_, '_, N>| ptr::eq(table.handle.table, handle.table);
        let at = match self.tables.iter().rposition(is_it) {
            Some(at) => at,
            None if self.tables.len() == TABLES_LIMIT => return Err(Failure::TooManyTables),
            None => {
                self.tables.push(TableChanges {
                    handle,
                    store: handle.store(),
                    changes: SmallVec::new(),
                    failed: Cell::new(false),
                });
                self.tables.len() - 1
            }
        };
        self.tables[at].changes.push((change, noted));
        Ok(())
    }

    /// Writes everything, if what was read still holds and no table was deleted or emptied meanwhile. Of the keys of which something was
    /// noted, `is_noted` tells whether it is what they have. It is called while their places are locked. Otherwise it writes
    /// nothing. Atomic, also against operations outside of transactions. After it the value is spent. `long` is what else the
    /// transaction has read, if it is long.
    pub fn commit<T: Owner>(
        &mut self,
        guard: &Guard,
        reads: &mut Reads<'g>,
        mut long: Option<&mut LongReads<T>>,
        is_noted: impl Fn(N, Option<ObjectRef<'_>>) -> bool,
    ) -> Result<Committed, Failure> {
        for table in &self.tables {
            reads.stores.push((table.handle.table, table.store));
        }
        self.tables.iter_mut().for_each(TableChanges::arrange);
        // In one order for all commits. So two commits do not keep each other from finishing.
        self.tables.sort_unstable_by_key(|table| table.handle.table.serial());
        let writes = self.tables.iter().map(|table| table.changes.len()).sum();
        let changes = self.tables.iter().flat_map(|table| &table.changes);
        check_room(
            changes
                .filter(|(change, _)| !matches!(change, Change::Delete(_)))
                .count(),
        )?;
        let (author, marked) = (
            long.as_deref().map_or(NOBODY, LongReads::author),
            !reads.marks.is_empty(),
        );
        if let Some(long) = &long {
            long.spare(true);
        }
        // The log first: what it tells of holds until then, and what is marked holds from before until after that.
        let mut holds = |held: &[HeldPlace]| {
            let logged = long.as_mut().map_or(Ok(true), |long| long.hold(guard))?;
            Ok(logged && reads.hold_beside(held))
        };
        let refused = Cell::new(false);
        let mut commit = Commit {
            guard,
            actor: Actor::commit(author, &refused),
            holds: &mut holds,
            is_noted,
            marked,
            held: Vec::new(),
            replaced: SmallVec::with_capacity(writes),
        };
        let done = commit.carry_out(&self.tables);
        let replaced = commit.replaced;
        if let Some(long) = &long {
            long.spare(false);
        }
        if let Ok(true) = done {
            self.tables.iter().for_each(TableChanges::count);
        }
        for old in replaced {
            // SAFETY: the places have other entries now, or none.
            unsafe { retire_entry(guard, old) }
        }
        match done {
            Ok(true) => Ok(Committed::Done),
            Ok(false) => Ok(Committed::Changed),
            Err(_) if refused.get() => Ok(Committed::Reserved),
            Err(failure) => Err(failure),
        }
    }
}

/// A commit that is being carried out.
struct Commit<'a, F> {
    guard: &'a Guard,
    actor: Actor<'a>,
    /// Whether what was read holds. The places that the transaction writes are locked by it, and sorted.
    holds: &'a mut dyn FnMut(&[HeldPlace]) -> Result<bool, Failure>,
    is_noted: F,
    /// Whether places that were read have marks.
    marked: bool,
    held: Vec<HeldPlace>,
    replaced: Replaced,
}

impl<F> Commit<'_, F> {
    /// Locks the places of these tables, and those of the tables behind them while it holds the lock. When all are locked, and in the logs
    /// of their tables, asks whether the reads hold. If they do, each table is written before its locks are freed.
    fn carry_out<N: Copy>(&mut self, tables: &[TableChanges<'_, '_, N>]) -> Result<bool, Failure>
    where
        F: Fn(N, Option<ObjectRef<'_>>) -> bool,
    {
        let Some((table, rest)) = tables.split_first() else {
            self.held.sort_unstable();
            return (self.holds)(&self.held);
        };
        let probes: SmallVec<[_; FEW]> = table.changes.iter().map(|(change, _)| change.probe()).collect();
        let planned = |i: usize| match &table.changes[i].0 {
            Change::Put(incoming) => Planned::Put(incoming.body()),
            // Only contents without bags have prices.
            Change::Delete(_) | Change::Bag(_) => Planned::Remove,
        };
        let (guard, actor) = (self.guard, self.actor);
        let change = |places: &mut dyn Locked| {
            if !table.are_noted(places, &self.is_noted) {
                return Ok(false);
            }
            if self.marked {
                places.held(&mut self.held);
            }
            let rooms = table.provide(places)?;
            let valid = self.carry_out(rest)?;
            if valid {
                let _relief = Relief::new();
                table.write(places, rooms, &mut self.replaced);
            }
            Ok(valid)
        };
        let done = table.store.update_many(guard, &probes, actor, planned, change);
        table.failed.set(done.is_err());
        let valid = done?;
        if matches!(valid, Ok(true)) {
            probes.iter().for_each(|probe| table.store.written(probe));
        }
        valid
    }
}

impl<N: Copy> TableChanges<'_, '_, N> {
    /// Whether all keys of which something was noted have it. All places are locked.
    #[inline]
    fn are_noted(&self, places: &dyn Locked, is_noted: impl Fn(N, Option<ObjectRef<'_>>) -> bool) -> bool {
        let object = |entry: Entry| Objects::one(self.handle.table, entry);
        let mut changes = self.changes.iter().enumerate();
        changes.all(|(i, (_, noted))| noted.is_none_or(|noted| is_noted(noted, places.get(i).map(object))))
    }

    /// Memory for what the changes add to bags, one for each of the table's changes if it is a bag. All places are locked. So this is all that
    /// is missing, and is there before anything is written.
    #[inline]
    fn provide(&self, places: &dyn Locked) -> Result<Vec<Room>, Failure> {
        match self.handle.table.kind().is_bag() {
            true => self.provide_for_bag(places),
            false => Ok(Vec::new()),
        }
    }

    #[inline(never)]
    fn provide_for_bag(&self, places: &dyn Locked) -> Result<Vec<Room>, Failure> {
        let changes = self.changes.iter().enumerate();
        changes
            .map(|(i, (change, _))| match change {
                Change::Bag(change) => change.provide(self.handle.table, places.get(i)),
                _ => Ok(Room::default()),
            })
            .collect()
    }

    /// Brings many changes into the order of their places. So the caches help while these are locked.
    fn arrange(&mut self) {
        if self.changes.len() > FEW {
            if let Some(engine) = self.store.default_engine().filter(|engine| !engine.is_ordered()) {
                // The order in which the places lie in memory at this time.
                self.changes
                    .sort_by_cached_key(|(change, _)| engine.number(change.probe()));
            }
        }
    }

    /// Carries out the changes. All places are locked, so this does nothing that could be done before or after.
    fn write(&self, places: &mut dyn Locked, mut rooms: Vec<Room>, replaced: &mut Replaced) {
        let sums = Cell::new((0, 0));
        let add = |objects, bytes| sums.set((sums.get().0 + objects, sums.get().1 + bytes));
        places.update_all(self.changes.len(), &mut |i, old| {
            if let Some((Change::Put(next), _)) = self.changes.get(i + AHEAD) {
                if refers(next.body()) {
                    prefetch(next.body());
                }
            }
            let (step, gone) = match (&self.changes[i].0, old) {
                (Change::Put(incoming), old) => {
                    let (step, result) = self.handle.put(old, incoming, add);
                    (step, result.ok().flatten())
                }
                (Change::Delete(_), None) => (Step::Keep, None),
                (Change::Delete(_), Some(old)) => {
                    self.handle.uncount(self.store, old);
                    (Step::Remove, Some(old.body))
                }
                (Change::Bag(change), old) => {
                    let place = (self.handle.guard, self.handle.table);
                    change.carry_out(place, old, std::mem::take(&mut rooms[i]), add)
                }
            };
            replaced.extend(gone.filter(|body| refers(*body)));
            step
        });
        let (objects, bytes) = sums.get();
        self.store.count(objects, bytes);
    }

    /// Counts the changes, if operations are counted.
    fn count(&self) {
        let table = self.handle.table;
        if table.is_counted() {
            let counts = self.changes.iter().map(|(change, _)| change.counts());
            let (puts, deletions) = counts.fold((0, 0), |all, counts| (all.0 + counts.0, all.1 + counts.1));
            table.count_more(Operation::Insert, puts);
            table.count_more(Operation::Delete, deletions);
        }
    }
}
