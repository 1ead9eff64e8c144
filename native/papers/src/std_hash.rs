//! `std_hash`: the hash table of Rust's standard library behind one lock.
//!
//! Source: Klaftenegger, Sagonas, Winblad, "On the Scalability of the Erlang Term Storage", Erlang 2013, section 6.2.2,
//! which uses C++'s `std::unordered_set`. Here it is hashbrown, the table inside `std::collections::HashMap`. It is a
//! Swiss table: open addressing, with seven bits of the hash for each slot, sixteen of which are compared at once. Its
//! own interface is used, as that of `HashMap` has no lookup by a probe whose equality the schema decides. The lock is
//! any of [`crate::lock`].
//!
//! The table itself has no stable traversal order. The value that the table gets as the hash provides one. The entries
//! are divided into *bins* by the first bits of their place in traversal order (`cats_engine::linear`), with about
//! one entry a bin. All entries of a bin have one hash in the table, so a bin can be listed. A traversal goes through
//! the bins in order, as through buckets, and its position stays valid when the table is resized.
//!
//! When such a table is full, it would move all its entries at once. Instead a second table is made, and each insertion
//! or removal moves some bins, in order. Bins before `Map::moved` are in the new table, the others in the old one.
//! Only the allocation happens at once. It writes one byte for each slot.

use crate::detaching::{Detached, Detaching};
use crate::eventful::Eventful;
use crate::lock::{AnyLock, TableLock};
use crate::shared::single::{self, Single};
use cats_engine::config::Config;
use cats_engine::linear::{self, behind, position, First, Position};
use cats_engine::{hash_of, mix, Busy, Engine, Entry, Locked, Schema, Step};
use cats_sync::epoch::Guard;
use cats_sync::events::Events;
use cats_sync::facade::{AtomicUsize, Ordering};
use hashbrown::hash_table::{Entry as Place, IntoIter};
use hashbrown::HashTable;

/// The binary logarithm of the smallest number of bins.
const LEAST_DEPTH: u32 = 3;
/// Bins that move with each insertion or removal. Twice as many as are needed to finish before the old table is full.
const MOVED: usize = 8;
/// The most probes of an operation on many keys that another thread may run, because helping must stay short.
const LENT_PROBES: usize = 16;

/// See the module's documentation.
pub struct StdHash<S> {
    lock: AnyLock<Map<S>>,
    /// The number of bins and the bytes of the tables, for threads that do not hold the lock.
    /// Relaxed: figures, which the holder of the lock writes.
    bins: AtomicUsize,
    bytes: AtomicUsize,
    events: Events,
}

/// What the lock protects.
pub(crate) struct Map<S> {
    schema: S,
    table: Table,
    /// The old table, which is being emptied.
    old: Option<Table>,
    /// The first position whose bin has not moved, while there is an old table.
    moved: u64,
    /// Entries of tables that are being dismantled.
    remains: Vec<IntoIter<Entry>>,
}

/// A table divided into 2^`depth` bins.
struct Table {
    depth: u32,
    entries: HashTable<Entry>,
}

/// The place of an entry or probe in traversal order, by its key word.
#[inline]
fn place(word: u64) -> u64 {
    position(hash_of(word))
}

impl Table {
    /// A table with space for 7/4 entries a bin. `None` when memory is exhausted.
    fn new(depth: u32) -> Option<Self> {
        let mut entries = HashTable::new();
        let capacity = (7 << depth) / 4;
        entries
            .try_reserve(capacity, |_| unreachable!("the table is empty"))
            .ok()?;
        Some(Self { depth, entries })
    }

    #[inline]
    fn bin(&self, position: u64) -> u64 {
        position >> (u64::BITS - self.depth)
    }

    /// The hash that the table gets for all entries of the position's bin.
    #[inline]
    fn hash(&self, position: u64) -> u64 {
        mix(self.bin(position))
    }

    #[inline]
    fn find(&self, position: u64, equal: impl FnMut(&Entry) -> bool) -> Option<Entry> {
        self.entries.find(self.hash(position), equal).copied()
    }

    fn insert(&mut self, entry: Entry) {
        let depth = self.depth;
        let hash = |entry: &Entry| mix(place(entry.key) >> (u64::BITS - depth));
        self.entries.insert_unique(hash(&entry), entry, hash);
    }

    /// Removes an entry of the position's bin.
    fn take_one(&mut self, position: u64) -> Option<Entry> {
        let (bin, depth) = (self.bin(position), self.depth);
        let of_bin = |entry: &Entry| place(entry.key) >> (u64::BITS - depth) == bin;
        let found = self.entries.find_entry(mix(bin), of_bin).ok()?;
        Some(found.remove().0)
    }

    /// The entries of the position's bin.
    fn list(&self, position: u64) -> impl Iterator<Item = Entry> + '_ {
        let bin = self.bin(position);
        let of_bin = move |entry: &&Entry| self.bin(place(entry.key)) == bin;
        self.entries.iter_hash(mix(bin)).filter(of_bin).copied()
    }

    /// How many entries can be inserted before the table would rehash itself.
    #[inline]
    fn room(&self) -> usize {
        self.entries.capacity() - self.entries.len()
    }

    /// The depth of the table that should replace this one, if any.
    fn successor(&self, entries: usize) -> Option<u32> {
        let bins = 1_usize << self.depth;
        let full = self.room() < bins / 4 + 2;
        let sparse = entries < bins / 8 && self.depth > LEAST_DEPTH;
        (full || sparse).then(|| depth_for(entries).max(self.depth - 1).max(LEAST_DEPTH))
    }
}

/// The least depth with four bins for three entries.
fn depth_for(entries: usize) -> u32 {
    (entries + entries / 3 + 1).next_power_of_two().ilog2().max(LEAST_DEPTH)
}

impl<S: Schema> Map<S> {
    fn new(schema: S) -> Option<Self> {
        Some(Self {
            schema,
            table: Table::new(LEAST_DEPTH)?,
            old: None,
            moved: 0,
            remains: Vec::new(),
        })
    }

    fn len(&self) -> usize {
        self.table.entries.len() + self.old.as_ref().map_or(0, |old| old.entries.len())
    }

    /// The table that holds the entries at a position.
    #[inline]
    fn table(&self, position: u64) -> &Table {
        match &self.old {
            Some(old) if position >= self.moved => old,
            _ => &self.table,
        }
    }

    #[inline]
    fn find(&self, probe: &S::Probe) -> Option<Entry> {
        let word = self.schema.word(probe);
        let position = place(word);
        self.table(position).find(position, |entry| {
            // SAFETY: the entry is in the table, which the caller has locked.
            entry.key == word && (word & 3 == 3 || unsafe { self.schema.matches(probe, *entry) })
        })
    }

    /// Calls `change` for the place with this key word for which `equal` is true, and carries out its step.
    #[inline]
    fn change<R>(
        &mut self,
        word: u64,
        equal: impl Fn(&S, Entry) -> bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> R {
        let position = place(word);
        let table = match &mut self.old {
            Some(old) if position >= self.moved => old,
            _ => &mut self.table,
        };
        assert!(table.room() > 0, "memory is exhausted");
        let (schema, depth) = (&self.schema, table.depth);
        let found = table.entries.entry(
            table.hash(position),
            |entry| entry.key == word && equal(schema, *entry),
            |entry| mix(place(entry.key) >> (u64::BITS - depth)),
        );
        let (result, resized) = match found {
            Place::Occupied(mut found) => {
                let (step, result) = change(Some(*found.get()));
                match step {
                    Step::Keep | Step::Touch => {}
                    Step::Put(entry) => *found.get_mut() = entry,
                    Step::Remove => _ = found.remove(),
                }
                (result, step == Step::Remove)
            }
            Place::Vacant(free) => {
                let (step, result) = change(None);
                if let Step::Put(entry) = step {
                    free.insert(entry);
                }
                (result, matches!(step, Step::Put(_)))
            }
        };
        if resized {
            self.advance();
        }
        result
    }

    fn update<R>(&mut self, probe: &S::Probe, change: impl FnOnce(Option<Entry>) -> (Step, R)) -> R {
        let word = self.schema.word(probe);
        // SAFETY: the entry is in the table, which the caller has locked.
        let equal = |schema: &S, entry| word & 3 == 3 || unsafe { schema.matches(probe, entry) };
        self.change(word, equal, change)
    }

    /// Like `update`, for the place of an entry's key.
    fn update_at<R>(&mut self, at: Entry, change: impl FnOnce(Option<Entry>) -> (Step, R)) -> R {
        let equal = |schema: &S, entry| {
            // SAFETY: the entry is in the table, which the caller has locked. The other entry belongs to the caller.
            at.key & 3 == 3 || unsafe { schema.compare_colliding_entries(entry, at) }.is_eq()
        };
        self.change(at.key, equal, change)
    }

    /// Continues the move to a new table, or starts one if it is time.
    fn advance(&mut self) {
        if self.old.is_some() {
            self.move_bins(MOVED);
        } else if let Some(depth) = self.table.successor(self.len()) {
            self.begin(depth);
        }
    }

    /// Starts to move to a new table, if there is memory.
    fn begin(&mut self, depth: u32) {
        if let Some(table) = Table::new(depth) {
            self.old = Some(std::mem::replace(&mut self.table, table));
            self.moved = 0;
        }
    }

    /// Moves `count` bins of the coarser table, from the present position on.
    fn move_bins(&mut self, count: usize) {
        for _ in 0..count {
            let Some(old) = &mut self.old else { return };
            let end = behind(self.moved, old.depth.min(self.table.depth));
            let mut at = Some(self.moved);
            while let Some(from) = at.filter(|at| end.is_none_or(|end| *at < end)) {
                while let Some(entry) = old.take_one(from) {
                    self.table.insert(entry);
                }
                at = behind(from, old.depth);
            }
            match end {
                Some(end) => self.moved = end,
                None => self.old = None,
            }
        }
    }

    /// Reserves memory for entries that will be inserted at once, so that no insertion in between can fail.
    fn provide(&mut self, more: usize) {
        // For few entries, the bins move fast enough.
        if more <= (1 << self.table.depth) / 16 {
            return;
        }
        self.move_bins(usize::MAX);
        if self.table.room() <= more + (1 << self.table.depth) / 4 {
            self.begin(depth_for(self.len() + more));
            self.move_bins(usize::MAX);
            assert!(self.table.room() > more, "memory is exhausted");
        }
    }

    /// Shows the entries of the bin that holds a position. Returns the position behind that bin.
    fn visit(&self, at: u64, look: impl FnMut(Entry)) -> Option<u64> {
        // Bins move by whole bins of both tables, so no bin's interval lies on both sides of `moved`.
        let table = self.table(at);
        table.list(at).for_each(look);
        behind(at, table.depth)
    }

    fn bins(&self) -> usize {
        1 << self.table.depth
    }

    fn bytes(&self) -> usize {
        let bytes = |table: &Table| table.entries.allocation_size();
        bytes(&self.table) + self.old.as_ref().map_or(0, bytes)
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        for table in self.old.iter_mut().chain([&mut self.table]) {
            if !table.entries.is_empty() {
                self.remains.push(std::mem::take(&mut table.entries).into_iter());
            }
        }
        for _ in 0..limit.max(1) {
            let Some(last) = self.remains.last_mut() else { break };
            match last.next() {
                Some(entry) => free(entry),
                None => _ = self.remains.pop(),
            }
        }
        self.remains.is_empty()
    }
}

impl<S: Schema> StdHash<S> {
    /// An empty table with the configured lock. `None` when memory is exhausted.
    pub fn new(schema: S, config: &Config) -> Option<Self> {
        let map = Map::new(schema)?;
        let (bins, bytes) = (map.bins(), map.bytes());
        Some(Self {
            lock: AnyLock::configured(config, map),
            bins: AtomicUsize::new(bins),
            bytes: AtomicUsize::new(bytes),
            events: Events::default(),
        })
    }

    /// Publishes the sizes of the tables, after a change and under the lock.
    #[inline]
    fn note(&self, map: &Map<S>) {
        let bytes = map.bytes();
        // Relaxed, here and below: a statistic.
        if self.bytes.load(Ordering::Relaxed) != bytes {
            self.bytes.store(bytes, Ordering::Relaxed);
            self.bins.store(map.bins(), Ordering::Relaxed);
        }
    }

    /// Runs a critical section that changes the tables, on this or another thread.
    #[inline]
    fn write<R>(&self, change: impl FnOnce(&mut Map<S>) -> R) -> Result<R, Busy> {
        single::write(&self.lock, |map| {
            let result = change(map);
            self.note(map);
            result
        })
    }
}

impl<S: Schema> Single for StdHash<S> {
    type Contents = Map<S>;

    fn lock(&self) -> &AnyLock<Map<S>> {
        &self.lock
    }

    fn step_at(&self, map: &mut Map<S>, at: Entry, step: Step) -> Option<Entry> {
        let old = map.update_at(at, |old| (step, old));
        self.note(map);
        old
    }
}

impl<S> Eventful for StdHash<S> {
    fn events(&self) -> &Events {
        &self.events
    }
}

impl<S: Schema> Detaching for StdHash<S> {
    #[inline]
    fn detaches(&self) -> bool {
        self.lock.detaches()
    }

    unsafe fn detach(&self, _: &Guard, update: Detached) -> Result<(), Busy> {
        // SAFETY: the caller's promise.
        unsafe { single::detach(self, update) }
    }
}

impl<S: Schema> Engine<S> for StdHash<S> {
    type Cursor = Position;

    fn read<R>(&self, _: &Guard, probe: &S::Probe, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        single::read(&self.lock, |map| look(map.find(probe)))
    }

    fn update<R>(
        &self,
        _: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.write(|map| map.update(probe, change))
    }

    fn update_many<R>(
        &self,
        _: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let section = |map: &mut Map<S>| {
            map.provide(probes.len());
            change(&mut Many { map, probes })
        };
        if probes.len() <= LENT_PROBES {
            return self.write(section);
        }
        self.lock.write_here(|map| {
            let result = section(map);
            self.note(map);
            result
        })
    }

    fn scan<T>(
        &self,
        _: &Guard,
        cursor: &mut Position,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        if cursor.end {
            return Ok(false);
        }
        self.lock.read_here(|map| {
            let mut places = 0;
            while !cursor.end && places < limit.max(1) {
                let at = cursor.at;
                let (before, mut met) = (out.len(), 0);
                let next = map.visit(at, |entry| {
                    if place(entry.key) >= at {
                        met += 1;
                        expand(entry, out);
                    }
                });
                places += met.max((out.len() - before) / linear::EACH);
                match next {
                    Some(next) => cursor.at = next,
                    None => cursor.end = true,
                }
            }
            !cursor.end
        })
    }

    fn next<R>(
        &self,
        _: &Guard,
        after: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        single::read(&self.lock, |map| {
            let mut first = First::new(&map.schema, linear::StepFrom::of(after));
            let mut at = Some(position(first.start()));
            while let Some(from) = at.filter(|_| first.found().is_none()) {
                // SAFETY: the entries are in the table, which is locked.
                at = map.visit(from, |entry| unsafe { first.offer(entry) });
            }
            look(first.found())
        })
    }

    fn buckets(&self) -> usize {
        self.bins.load(Ordering::Relaxed)
    }

    fn slot<T>(
        &self,
        _: &Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        self.lock.read_here(|map| {
            if number >= map.bins() {
                return None;
            }
            let depth = map.table.depth;
            let start = (number as u64) << (u64::BITS - depth);
            let end = behind(start, depth);
            let inside = |at: u64| at >= start && end.is_none_or(|end| at < end);
            let mut out = Vec::new();
            let mut at = Some(start);
            while let Some(from) = at.filter(|at| inside(*at)) {
                at = map.visit(from, |entry| {
                    if inside(place(entry.key)) {
                        expand(entry, &mut out);
                    }
                });
            }
            Some(out)
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.load(Ordering::Relaxed)
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        self.lock.get_mut().dismantle(limit, free)
    }
}

/// The keys of one operation, in the locked table.
struct Many<'a, S: Schema> {
    map: &'a mut Map<S>,
    probes: &'a [&'a S::Probe],
}

impl<S: Schema> Locked for Many<'_, S> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.map.find(self.probes[i])
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        self.map.update(self.probes[i], |old| (change(old), ()));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use cats_engine::config::{Delegate, LockName};
    use cats_engine::testing::conformance::{Map as TestMap, TestSchema};

    fn make(lock: LockName, delegate: Delegate) -> StdHash<TestSchema> {
        let config = Config {
            lock,
            delegate,
            read_concurrency: true,
            reader_groups: 2,
            ..Config::default()
        };
        StdHash::new(TestSchema, &config).expect("memory")
    }

    macro_rules! conformance {
        ($($name:ident: $lock:ident, $delegate:ident;)*) => {
            $(
                mod $name {
                    use super::*;
                    // One type for all configurations, so that the suite is compiled once.
                    const MAKE: &dyn Fn() -> StdHash<TestSchema> = &|| make(LockName::$lock, Delegate::$delegate);
                    cats_engine::testing::conformance::suite!(MAKE, crate::testing::leave(&MAKE()));
                    cats_engine::testing::conformance::tests!(MAKE, steps_of_scans_are_bounded);

                    #[test]
                    fn detached_steps_are_seen() {
                        crate::testing::detached_steps_are_seen(MAKE)
                    }
                }
            )*
        };
    }

    conformance! {
        rw: Rw, Copy;
        dr_mcs: DrMcs, Copy;
        cc_synch: CcSynch, Copy;
        mrqd_wait: Mrqd, Wait;
        mrqd_malloc: Mrqd, Malloc;
        mrqd_copy: Mrqd, Copy;
        ets_pointer: EtsPointer, Copy;
    }

    /// Fills and empties tables of many sizes, one entry at a time. No entry gets lost between two tables, and no table
    /// rehashes itself.
    #[test]
    fn tables_grow_and_shrink_by_a_few_bins_at_a_time() {
        let map = TestMap(make(LockName::Rw, Delegate::Copy));
        for count in [10, 100, 1000, 20_000] {
            let look = |map: &TestMap<StdHash<TestSchema>>, n| {
                let room = map
                    .0
                    .lock
                    .read_here(|map| (map.table.room(), map.old.as_ref().map(Table::room)));
                assert!(room.is_ok_and(|(room, old)| room > 0 && old != Some(0)), "at {n}");
            };
            for n in 0..count {
                map.put(n, 1);
                look(&map, n);
            }
            let bins = map.0.buckets() as u64;
            assert!(
                bins >= count / 2 && bins <= 4 * count.max(8),
                "{bins} bins for {count} entries"
            );
            assert_eq!(map.scan(7).len() as u64, count);
            for n in (0..count).rev() {
                assert_eq!(map.get(n), Some(1));
                map.remove(n);
                look(&map, n);
            }
            assert!(map.0.buckets() <= 64, "an empty table is small");
        }
        // Insertions and removals without growth, which leave tombstones.
        for n in 0..100_000 {
            map.put(n, 1);
            if n >= 50 {
                map.remove(n - 50);
            }
        }
        assert_eq!(map.scan(7).len(), 50);
        assert!(map.0.buckets() <= 256);
    }
}
