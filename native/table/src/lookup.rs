//! `lookup/2`, `member/2` and what else reads one key.

use crate::failure::Failure;
use crate::group::{Filter, Group};
use crate::object::{is_group, key_of, ObjectRef, COPY_LIMIT};
use crate::schema::Probe;
use crate::store::Spot;
use crate::table::{Handle, Table};
use cats_engine::Entry;
use cats_term::TermRef;
use smallvec::SmallVec;
use std::borrow::Borrow;

/// The most objects of one key that a scheduler reads at once.
pub const GROUP_LIMIT: usize = 1000;

/// The most objects of one key whose signatures a scheduler reads at once.
pub const SIGNATURES_LIMIT: usize = 50_000;

/// The objects of one key, as they were at one instant. They live as long as the guard of the call.
pub enum Objects<'g> {
    None,
    One(ObjectRef<'g>),
    /// In the order of insertion.
    Many(SmallVec<[ObjectRef<'g>; FEW]>),
}

/// Objects of a key for which no memory is allocated.
const FEW: usize = 4;

/// Objects of a key from which on it pays to make a filter of a program.
const FILTERED: usize = 16;

impl<'g> Objects<'g> {
    /// All of them, in the order of insertion.
    pub fn as_slice(&self) -> &[ObjectRef<'g>] {
        match self {
            Objects::None => &[],
            Objects::One(object) => std::slice::from_ref(object),
            Objects::Many(objects) => objects,
        }
    }
}

/// What an optimistic look at a place copied out.
pub(crate) enum Looked<'g> {
    None,
    One(Entry),
    /// As they are stored.
    Many(SmallVec<[ObjectRef<'g>; FEW]>),
    TooMany,
}

impl Table {
    /// Copies out what a place holds, to be validated by the engine, which looks under a guard for `'g`.
    #[inline]
    pub(crate) fn look<'g>(&self, entry: Option<Entry>, patient: bool) -> Looked<'g> {
        match entry {
            None => Looked::None,
            Some(entry) if is_group(entry.body) => self.look_at_group(entry, patient),
            Some(entry) => Looked::One(entry),
        }
    }

    fn look_at_group<'g>(&self, entry: Entry, patient: bool) -> Looked<'g> {
        // SAFETY: groups are retired through the epoch.
        let group = unsafe { Group::from_body(entry.body) };
        let count = group.count();
        if count > GROUP_LIMIT && !patient {
            return Looked::TooMany;
        }
        let place = self.key_place(entry.key);
        let mut objects = SmallVec::with_capacity(count);
        group.each(|body| {
            // SAFETY: what was seen in a slot is retired through the epoch, too.
            objects.push(unsafe { place.stored(body) });
            // A reader that met writers may be led on for long; what it has is not valid anyway.
            objects.len() <= 2 * count + 16
        });
        Looked::Many(objects)
    }

    /// As [`look`](Self::look), of objects that the filter lets pass, or that are alone or few.
    fn look_through<'g, F: Borrow<Filter>>(
        &self,
        entry: Option<Entry>,
        patient: bool,
        filter: impl FnOnce() -> F,
    ) -> Looked<'g> {
        let Some(entry) = entry.filter(|entry| is_group(entry.body)) else {
            return self.look(entry, patient);
        };
        // SAFETY: as in `look_at_group`.
        let group = unsafe { Group::from_body(entry.body) };
        let count = group.count();
        if count <= FILTERED {
            return self.look_at_group(entry, patient);
        }
        let filter = filter();
        if filter.borrow().is_open() {
            return self.look_at_group(entry, patient);
        }
        if count > SIGNATURES_LIMIT && !patient {
            return Looked::TooMany;
        }
        let place = self.key_place(entry.key);
        let mut objects = SmallVec::new();
        // SAFETY: as in `look_at_group`.
        group.each_passing(filter.borrow(), |body| objects.push(unsafe { place.stored(body) }));
        match objects.len() > GROUP_LIMIT && !patient {
            true => Looked::TooMany,
            false => Looked::Many(objects),
        }
    }

    /// The words that it takes to copy what was looked at into a process, roughly.
    ///
    /// # Safety
    /// What was looked at is valid, and its objects live.
    #[inline]
    pub(crate) unsafe fn looked_words(&self, looked: &Looked<'_>) -> usize {
        let words = |object: &ObjectRef<'_>| object.words().max(object.packed_words());
        match looked {
            Looked::None | Looked::TooMany => 0,
            // SAFETY: as the caller promises.
            Looked::One(entry) => words(unsafe { &ObjectRef::stored(*entry, self.key()) }),
            Looked::Many(objects) => objects.iter().map(words).sum(),
        }
    }

    /// Fails with [`Failure::Big`] where it takes too long to unpack them for a caller that is not `patient`.
    ///
    /// # Safety
    /// What was looked at is valid, and its objects live for `'g`.
    #[inline]
    pub(crate) unsafe fn objects<'g>(&self, looked: Looked<'g>, patient: bool) -> Result<Objects<'g>, Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            Ok(match looked {
                Looked::None => Objects::None,
                Looked::One(entry) => Objects::One(ObjectRef::read(entry, self.key(), || patient)?),
                Looked::Many(mut objects) => {
                    if self.options().compressed() {
                        let words: usize = objects.iter().map(ObjectRef::packed_words).sum();
                        if words > COPY_LIMIT && !patient {
                            return Err(Failure::Big);
                        }
                        objects.iter_mut().for_each(|object| *object = object.unpacked());
                    }
                    Objects::Many(objects)
                }
                Looked::TooMany => return Err(Failure::Big),
            })
        }
    }
}

impl<'g> Handle<'g> {
    /// The objects of a key. Fails with [`Failure::Big`] when they are too many, or too large to be unpacked, for a caller that is not
    /// `patient`.
    #[inline]
    pub fn lookup(self, probe: &Probe<'_>, patient: bool) -> Result<Objects<'g>, Failure> {
        let looked = self
            .store()
            .read(self.guard, probe, |entry| self.table.look(entry, patient))?;
        self.still_named()?;
        // SAFETY: the engine has validated it, and objects are retired through the epoch.
        unsafe { self.table.objects(looked, patient) }
    }

    /// As [`lookup`](Self::lookup), without objects of which the filter tells that they are not sought.
    pub(crate) fn lookup_filtered<F: Borrow<Filter>>(
        self,
        probe: &Probe<'_>,
        patient: bool,
        filter: impl Fn() -> F,
    ) -> Result<Objects<'g>, Failure> {
        let store = self.store();
        let looked = store.read(self.guard, probe, |entry| {
            self.table.look_through(entry, patient, &filter)
        })?;
        self.still_named()?;
        // SAFETY: as in `lookup`.
        unsafe { self.table.objects(looked, patient) }
    }

    /// Whether the table is so large that what a call reads is likely to come from memory.
    #[inline]
    pub fn outgrows_caches(self) -> bool {
        self.store().outgrows_caches()
    }

    /// Asks the processor for what a call with this key, an immediate, will read of the engine first, if the table is large and that
    /// needs no search: to find out takes four nanoseconds, which a call in a small table would lose.
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

    /// The only object of a key, for table types that have one only. Fails with [`Failure::Big`] when it is too large to be
    /// unpacked for a caller that is not `patient`, which is only asked then.
    #[inline(always)]
    pub fn get(self, probe: &Probe<'_>, patient: impl FnOnce() -> bool) -> Result<Option<ObjectRef<'g>>, Failure> {
        debug_assert!(!self.table.kind().is_bag());
        let entry = self.store().read(self.guard, probe, |entry| entry)?;
        self.still_named()?;
        // SAFETY: as in `lookup`.
        entry
            .map(|entry| unsafe { ObjectRef::read(entry, self.table.key(), patient) })
            .transpose()
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
