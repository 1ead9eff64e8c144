//! `lookup/2`, `member/2` and what else reads one key.

use crate::failure::Failure;
use crate::object::group::{Filter, Group};
use crate::object::schema::Probe;
use crate::object::{is_changing, is_group, key_of, ObjectRef, COPY_LIMIT};
use crate::table::store::Spot;
use crate::table::{Handle, Table};
use cats_engine::Entry;
use cats_term::{Scratch, TermRef};
use smallvec::SmallVec;
use std::borrow::Borrow;

/// The most objects of one key that a scheduler reads at once.
pub const GROUP_LIMIT: usize = 1000;

/// The most objects of one key whose signatures a scheduler reads at once.
pub const SIGNATURES_LIMIT: usize = 50_000;

/// The objects of one key in the order of insertion, as they were at one instant. They live as long as the guard of the call that they
/// were read in, which writes them where its caller has them: returned, they would be copied from place to place.
pub struct Objects<'g>(SmallVec<[ObjectRef<'g>; FEW]>);

/// Objects of a key for which no memory is allocated.
const FEW: usize = 16;

/// Objects of a key from which on it pays to make a filter of a program.
const FILTERED: usize = 16;

impl<'g> Objects<'g> {
    /// No objects.
    #[inline(always)]
    pub fn none() -> Self {
        Self(SmallVec::new())
    }

    /// All of them, in the order of insertion.
    #[inline]
    pub fn as_slice(&self) -> &[ObjectRef<'g>] {
        &self.0
    }

    /// Takes what a place of the table holds instead, as it is stored, or a copy of what is changed in place. The engine
    /// validates it, under a guard for `'g`. False if it is too much for a caller that is not `patient`.
    #[inline]
    pub(crate) fn look(&mut self, table: &Table, entry: Option<Entry>, patient: bool) -> bool {
        self.0.clear();
        match entry {
            None => true,
            Some(entry) if is_group(entry.body) => self.look_at_group(table, entry, patient),
            Some(entry) => {
                // SAFETY: an object is retired through the epoch.
                self.0.push(unsafe {
                    match is_changing(entry.body) {
                        true => ObjectRef::new(entry, table.key()),
                        false => ObjectRef::stored(entry, table.key()),
                    }
                });
                true
            }
        }
    }

    #[inline]
    fn look_at_group(&mut self, table: &Table, entry: Entry, patient: bool) -> bool {
        // SAFETY: groups are retired through the epoch.
        let group = unsafe { Group::from_body(entry.body) };
        let count = group.count();
        if count > GROUP_LIMIT && !patient {
            return false;
        }
        let place = table.key_place(entry.key);
        self.0.reserve(count);
        group.each(|body| {
            // SAFETY: what was seen in a slot is retired through the epoch, too.
            self.0.push(unsafe { place.stored(body) });
            // A reader that met writers may be led on for long; what it has is not valid anyway.
            self.0.len() <= 2 * count + 16
        });
        true
    }

    /// As [`look`](Self::look), of objects that the filter lets pass, or that are alone or few.
    fn look_through<F: Borrow<Filter>>(
        &mut self,
        table: &Table,
        entry: Option<Entry>,
        patient: bool,
        filter: impl FnOnce() -> F,
    ) -> bool {
        let Some(entry) = entry.filter(|entry| is_group(entry.body)) else {
            return self.look(table, entry, patient);
        };
        self.0.clear();
        // SAFETY: as in `look_at_group`.
        let group = unsafe { Group::from_body(entry.body) };
        let count = group.count();
        if count <= FILTERED {
            return self.look_at_group(table, entry, patient);
        }
        let filter = filter();
        if filter.borrow().is_open() {
            return self.look_at_group(table, entry, patient);
        }
        if count > SIGNATURES_LIMIT && !patient {
            return false;
        }
        let place = table.key_place(entry.key);
        // SAFETY: as in `look_at_group`.
        group.each_passing(filter.borrow(), |body| self.0.push(unsafe { place.stored(body) }));
        self.0.len() <= GROUP_LIMIT || patient
    }

    /// The words that it takes to copy them into a process, roughly, as they are [stored](ObjectRef::stored) or not.
    ///
    /// # Safety
    /// What was looked at is valid.
    #[inline]
    pub(crate) unsafe fn words(&self) -> usize {
        let words = |object: &ObjectRef<'_>| object.words().max(object.packed_words());
        self.0.iter().map(words).sum()
    }

    /// Unpacks what was looked at in a table; fails with [`Failure::Big`] where that takes too long for a caller that is not `patient`.
    ///
    /// # Safety
    /// What was looked at is valid.
    #[inline]
    pub(crate) unsafe fn unpack(&mut self, table: &Table, patient: bool) -> Result<(), Failure> {
        match table.options().compressed() {
            // SAFETY: as the caller promises.
            true => unsafe { self.unpack_each(patient) },
            false => Ok(()),
        }
    }

    /// # Safety
    /// As for [`unpack`](Self::unpack).
    #[cold]
    unsafe fn unpack_each(&mut self, patient: bool) -> Result<(), Failure> {
        let words: usize = self.0.iter().map(ObjectRef::packed_words).sum();
        if words > COPY_LIMIT && !patient {
            return Err(Failure::Big);
        }
        for object in &mut self.0 {
            // SAFETY: the objects live as long as the guard for `'g`.
            *object = unsafe { object.unpacked() };
        }
        Ok(())
    }
}

impl<'g> Handle<'g> {
    /// Writes the objects of a key to `found`. Fails with [`Failure::Big`] when they are too many, or too large to be unpacked, for a
    /// caller that is not `patient`.
    #[inline]
    pub fn lookup(self, probe: &Probe<'_>, patient: bool, found: &mut Objects<'g>) -> Result<(), Failure> {
        let table = self.table;
        let fits = self
            .store()
            .read(self.guard, probe, |entry| found.look(table, entry, patient))?;
        self.looked(fits, patient, found)
    }

    /// As [`lookup`](Self::lookup), without objects of which the filter tells that they are not sought.
    pub(crate) fn lookup_filtered<F: Borrow<Filter>>(
        self,
        probe: &Probe<'_>,
        patient: bool,
        filter: impl Fn() -> F,
        found: &mut Objects<'g>,
    ) -> Result<(), Failure> {
        let table = self.table;
        let fits = self.store().read(self.guard, probe, |entry| {
            found.look_through(table, entry, patient, &filter)
        })?;
        self.looked(fits, patient, found)
    }

    /// What follows a look that the engine has validated.
    #[inline]
    pub(crate) fn looked(self, fits: bool, patient: bool, found: &mut Objects<'g>) -> Result<(), Failure> {
        self.still_named()?;
        match fits {
            // SAFETY: the engine has validated it.
            true => unsafe { found.unpack(self.table, patient) },
            false => Err(Failure::Big),
        }
    }

    /// Whether the table is so large that what a call reads is likely to come from memory.
    #[inline]
    pub fn outgrows_caches(self) -> bool {
        self.store().outgrows_caches()
    }

    /// Prefetches what a call with this immediate key will read of the engine first. Only for large tables, and where that needs
    /// no search: in a small table finding the address costs more than it gains.
    #[inline(always)]
    pub fn announce(self, key: u64) {
        self.store().announce(self.guard, key);
    }

    /// Asks the processor for what [`lookup`](Self::lookup) will read of the engine.
    #[inline]
    pub fn approach(self, probe: &Probe<'_>) -> Spot<'g> {
        self.store().approach(self.guard, probe)
    }

    /// Asks it for the key's object, as soon as what it was asked for on the approach is there.
    #[inline]
    pub fn prefetch_object(self, probe: &Probe<'_>, spot: Spot<'g>) {
        self.store().prefetch_object(self.guard, probe, spot);
    }

    /// The only object of a key, for table types that have one only, in `scratch` if that is changed in place. Fails with [`Failure::Big`] when it is too large to be
    /// unpacked for a caller that is not `patient`, which is only asked then.
    #[inline(always)]
    pub fn get<'o>(
        self,
        probe: &Probe<'_>,
        patient: impl FnOnce() -> bool,
        scratch: &'o mut Scratch,
    ) -> Result<Option<ObjectRef<'o>>, Failure>
    where
        'g: 'o,
    {
        // SAFETY: the engine has validated it, and objects are retired through the epoch.
        self.entry(probe)?
            .map(|entry| unsafe { ObjectRef::read_within(entry, self.table.key(), patient, scratch) })
            .transpose()
    }

    /// As [`get`](Self::get), but in place, for who reads one element only: others may be changed meanwhile.
    #[inline(always)]
    pub fn get_for_element(
        self,
        probe: &Probe<'_>,
        patient: impl FnOnce() -> bool,
    ) -> Result<Option<ObjectRef<'g>>, Failure> {
        // SAFETY: as in `get`.
        self.entry(probe)?
            .map(|entry| unsafe { ObjectRef::read_in_place(entry, self.table.key(), patient) })
            .transpose()
    }

    /// What the place of a key holds, for table types that have one object only.
    #[inline(always)]
    fn entry(self, probe: &Probe<'_>) -> Result<Option<Entry>, Failure> {
        debug_assert!(!self.table.kind().is_bag());
        let entry = self.store().read(self.guard, probe, |entry| entry)?;
        self.still_named()?;
        Ok(entry)
    }

    /// Whether the key has an object.
    #[inline]
    pub fn member(self, probe: &Probe<'_>) -> Result<bool, Failure> {
        let found = self.store().read(self.guard, probe, |entry| entry.is_some())?;
        self.still_named()?;
        Ok(found)
    }

    /// The key of an entry that holds one object.
    ///
    /// # Safety
    /// As for [`key_of`].
    #[inline]
    pub(crate) unsafe fn key(self, entry: Entry) -> TermRef<'g> {
        // SAFETY: as the caller promises.
        unsafe { key_of(entry, self.table.key()) }
    }
}
