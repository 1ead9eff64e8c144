//! `lookup/2`, `member/2` and everything else that reads one key.

use crate::budget::Budget;
use crate::failure::Failure;
use crate::object::group::{Filter, Group, GROUP_LIMIT};
use crate::object::schema::Probe;
use crate::object::{is_group, key_of, ObjectRef, COPY_LIMIT};
use crate::snapshot::Snapshot;
use crate::store::{Unused, Use, Used};
use crate::table::{Handle, Table};
use cats_engine::Entry;
use cats_term::{Scratch, TermRef};
use smallvec::SmallVec;
use std::borrow::Borrow;

/// The largest number of objects of one key whose signatures a scheduler reads at once.
pub const SIGNATURES_LIMIT: Budget = Budget(50_000);

/// The objects of one key, in the order of insertion, as they were at one instant. They live as long as the guard of the call that read
/// them. The caller provides this value and calls fill it: returning it would copy it several times.
pub struct Objects<'g>(SmallVec<[ObjectRef<'g>; STACK_OBJECTS]>);

/// For up to this number of objects no memory is allocated.
const STACK_OBJECTS: usize = 16;

/// A filter is made from a program only for groups of more objects than this.
const FILTERED: usize = 16;

impl<'g> Objects<'g> {
    /// No objects.
    #[inline(always)]
    pub fn none() -> Self {
        Self(SmallVec::new())
    }

    /// These objects.
    pub(crate) fn set(&mut self, objects: impl Iterator<Item = ObjectRef<'g>>) {
        self.0.clear();
        self.0.extend(objects);
    }

    /// The object of an entry of a table with one object per key: see [`look`](Self::look).
    #[inline(always)]
    pub(crate) fn one(table: &Table, entry: Entry) -> ObjectRef<'g> {
        // SAFETY: objects are retired through the epoch.
        unsafe { ObjectRef::stable(entry, table.key()) }
    }

    /// All objects, in the order of insertion.
    #[inline]
    pub fn as_slice(&self) -> &[ObjectRef<'g>] {
        &self.0
    }

    /// Replaces the contents by the objects of an entry of the table. They are in the form in which they are stored, except that objects
    /// that are changed in place are copied. Returns false if this is too much work for this thread. The engine calls this under a guard for
    /// `'g`, and validates the result.
    #[inline]
    pub(crate) fn look(&mut self, table: &Table, entry: Option<Entry>) -> bool {
        self.0.clear();
        match entry {
            None => true,
            Some(entry) if is_group(entry.body) => self.look_at_group(table, entry),
            Some(entry) => {
                self.0.push(Self::one(table, entry));
                true
            }
        }
    }

    #[inline]
    fn look_at_group(&mut self, table: &Table, entry: Entry) -> bool {
        // SAFETY: groups are retired through the epoch.
        let group = unsafe { Group::from_body(entry.body) };
        let count = group.count();
        if !GROUP_LIMIT.admits(count) {
            return false;
        }
        let place = table.key_place(entry.key);
        self.0.reserve(count);
        group.each(|body| {
            // SAFETY: objects that were in a slot are retired through the epoch, too.
            self.0.push(unsafe { place.stored(body) });
            // A bound, because writers could make a concurrent reader go on and on. Its result is not valid then anyway.
            self.0.len() <= 2 * count + 16
        });
        true
    }

    /// Like [`look`](Self::look). From a group of more than [`FILTERED`] objects, takes only objects that pass the filter.
    fn look_through<F: Borrow<Filter>>(
        &mut self,
        table: &Table,
        entry: Option<Entry>,
        filter: impl FnOnce() -> F,
    ) -> bool {
        let Some(entry) = entry.filter(|entry| is_group(entry.body)) else {
            return self.look(table, entry);
        };
        self.0.clear();
        // SAFETY: as in `look_at_group`.
        let group = unsafe { Group::from_body(entry.body) };
        let count = group.count();
        if count <= FILTERED {
            return self.look_at_group(table, entry);
        }
        let filter = filter();
        if filter.borrow().is_open() {
            return self.look_at_group(table, entry);
        }
        if !SIGNATURES_LIMIT.admits(count) {
            return false;
        }
        let place = table.key_place(entry.key);
        // SAFETY: as in `look_at_group`.
        group.each_passing(filter.borrow(), |body| self.0.push(unsafe { place.stored(body) }));
        GROUP_LIMIT.admits(self.0.len())
    }

    /// The approximate number of words that copies of the objects take in a process, whether they are in the [stored](ObjectRef::stored)
    /// form or not.
    ///
    /// # Safety
    /// The engine has validated the objects.
    #[inline]
    pub(crate) unsafe fn words(&self) -> usize {
        self.0.iter().map(ObjectRef::words).sum()
    }

    /// Unpacks the objects of a table. Fails with [`Failure::Big`] if this takes too long for this thread.
    ///
    /// # Safety
    /// The engine has validated the objects.
    #[inline]
    unsafe fn unpack(&mut self, table: &Table) -> Result<(), Failure> {
        if table.options().compressed() {
            COPY_LIMIT.check(self.0.iter().map(ObjectRef::packed_words).sum())?;
            // SAFETY: as the caller promises.
            unsafe { self.unpack_all() }
        }
        Ok(())
    }

    /// Unpacks the objects, however long they are.
    ///
    /// # Safety
    /// The engine has validated the objects.
    #[cold]
    pub(crate) unsafe fn unpack_all(&mut self) {
        for object in &mut self.0 {
            // SAFETY: the objects live as long as the guard for `'g`.
            *object = unsafe { object.unpacked() };
        }
    }
}

impl<'g> Handle<'g> {
    /// Writes the objects of a key to `found`. Fails with [`Failure::Big`] if they are too many for this thread, or too large to be unpacked.
    #[inline]
    pub fn lookup(self, probe: &Probe<'_>, found: &mut Objects<'g>) -> Result<(), Failure> {
        let table = self.table;
        let fits = self
            .store()
            .read::<Used, _>(self.guard, probe, |entry| found.look(table, entry))?;
        self.looked(fits, found)
    }

    /// Like [`lookup`](Self::lookup), without objects that the filter rules out. Does not count as a use.
    pub(crate) fn lookup_filtered<F: Borrow<Filter>>(
        self,
        probe: &Probe<'_>,
        filter: impl Fn() -> F,
        found: &mut Objects<'g>,
    ) -> Result<(), Failure> {
        let table = self.table;
        let fits = self
            .store()
            .read::<Unused, _>(self.guard, probe, |entry| found.look_through(table, entry, &filter))?;
        self.looked(fits, found)
    }

    /// Completes a read that the engine has validated.
    #[inline]
    pub(crate) fn looked(self, fits: bool, found: &mut Objects<'g>) -> Result<(), Failure> {
        self.still_named()?;
        match fits {
            // SAFETY: the engine has validated the objects.
            true => unsafe { found.unpack(self.table) },
            false => Err(Failure::Big),
        }
    }

    /// Whether the table is so large that a call's reads probably miss the caches.
    #[inline]
    pub fn outgrows_caches(self) -> bool {
        self.store().outgrows_caches()
    }

    /// For a snapshot, how many others may have kept what it shows.
    pub fn newer_snapshots(self) -> usize {
        Snapshot::of(self.store()).map_or(0, |snapshot| snapshot.nodes(self.guard))
    }

    /// How many lookups a call does, of `most` at most: fewer in a snapshot that many others follow.
    #[inline]
    pub fn lookups_at_once(self, most: usize) -> usize {
        match Snapshot::of(self.store()) {
            Some(snapshot) => snapshot.keys_at_once(self.guard, most),
            None => most,
        }
    }

    /// Prefetches what a call with this key will read first in the engine. The key is an immediate. Does nothing if the table is small, or
    /// if finding the address needs a search.
    #[inline(always)]
    pub fn announce(self, key: u64) {
        self.store().announce(self.guard, key);
    }

    /// Prefetches what calls with these keys will read: first the memory of the engine, then that of the objects. So the cache misses overlap.
    #[inline(always)]
    pub fn prefetch_together<'p, 'k: 'p>(self, probes: impl Iterator<Item = &'p Probe<'k>> + Clone) {
        let store = self.store();
        let spots = probes.clone().map(|probe| store.approach(self.guard, probe));
        let spots: SmallVec<[_; 16]> = spots.collect();
        for (probe, spot) in probes.zip(spots) {
            store.prefetch_object(self.guard, probe, spot);
        }
    }

    /// The only object of a key, in a table type that allows only one. It is in the form in which it is stored, and copied to `scratch` if
    /// it is changed in place. With `U`, it counts as used.
    #[inline(always)]
    pub fn get<'o, U: Use>(self, probe: &Probe<'_>, scratch: &'o mut Scratch) -> Result<Option<ObjectRef<'o>>, Failure>
    where
        'g: 'o,
    {
        // SAFETY: the engine has validated the entry, and objects are retired through the epoch.
        self.entry::<U>(probe)?
            .map(|entry| unsafe { ObjectRef::read_within(entry, self.table.key(), scratch) })
            .transpose()
    }

    /// Like [`get`](Self::get), for a caller that reads only the element at `index`. Other elements may be changed meanwhile.
    #[inline(always)]
    pub fn get_for_element<'o>(
        self,
        probe: &Probe<'_>,
        index: usize,
        scratch: &'o mut Scratch,
    ) -> Result<Option<ObjectRef<'o>>, Failure>
    where
        'g: 'o,
    {
        // SAFETY: as in `get`.
        self.entry::<Used>(probe)?
            .map(|entry| unsafe { ObjectRef::read_for_element(entry, self.table.key(), index, scratch) })
            .transpose()
    }

    /// The entry of a key, in a table type that allows only one object.
    #[inline(always)]
    fn entry<U: Use>(self, probe: &Probe<'_>) -> Result<Option<Entry>, Failure> {
        debug_assert!(!self.table.kind().is_bag());
        let entry = self.store().read_entry::<U>(self.guard, probe)?;
        self.still_named()?;
        Ok(entry)
    }

    /// Whether the key has an object. With `U`, that counts as used.
    #[inline(always)]
    pub fn member<U: Use>(self, probe: &Probe<'_>) -> Result<bool, Failure> {
        let entry = self.store().read_entry::<U>(self.guard, probe)?;
        self.still_named()?;
        Ok(entry.is_some())
    }

    /// The key of an entry with one object.
    ///
    /// # Safety
    /// As for [`key_of`].
    #[inline]
    pub(crate) unsafe fn key(self, entry: Entry) -> TermRef<'g> {
        // SAFETY: as the caller promises.
        unsafe { key_of(entry, self.table.key()) }
    }
}
