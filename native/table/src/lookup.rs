//! `lookup/2`, `member/2` and what else reads one key.

use crate::failure::Failure;
use crate::group::{Filter, Group};
use crate::object::{is_group, key_of, ObjectRef};
use crate::schema::Probe;
use crate::store::Spot;
use crate::table::{Handle, Table};
use cats_engine::Entry;
use cats_term::TermRef;

/// The most objects of one key that a scheduler reads at once.
pub const GROUP_LIMIT: usize = 1000;

/// The most objects of one key whose signatures a scheduler reads at once.
pub const SIGNATURES_LIMIT: usize = 50_000;

/// The objects of one key, as they were at one instant. They live as long as the guard of the call.
pub enum Objects<'g> {
    None,
    One(ObjectRef<'g>),
    /// In the order of insertion.
    Many(Vec<ObjectRef<'g>>),
}

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
pub(crate) enum Looked {
    None,
    One(Entry),
    Many(u64, Vec<u64>),
    TooMany,
}

/// Copies out what a place holds, to be validated by the engine.
#[inline]
pub(crate) fn look(entry: Option<Entry>, patient: bool) -> Looked {
    match entry {
        None => Looked::None,
        Some(entry) if is_group(entry.body) => look_at_group(entry, patient),
        Some(entry) => Looked::One(entry),
    }
}

#[cold]
fn look_at_group(entry: Entry, patient: bool) -> Looked {
    // SAFETY: groups are retired through the epoch, and an engine looks under a guard.
    let group = unsafe { Group::from_body(entry.body) };
    let count = group.count();
    if count > GROUP_LIMIT && !patient {
        return Looked::TooMany;
    }
    let mut bodies = Vec::with_capacity(count);
    group.each(|body| {
        bodies.push(body);
        // A reader that met writers may be led on for long; what it has is not valid anyway.
        bodies.len() <= 2 * count + 16
    });
    Looked::Many(entry.key, bodies)
}

/// As [`look`], of objects that the filter lets pass, or that are alone.
fn look_through(entry: Option<Entry>, patient: bool, filter: &Filter) -> Looked {
    match entry {
        Some(entry) if is_group(entry.body) && !filter.is_open() => {
            // SAFETY: as in `look_at_group`.
            let group = unsafe { Group::from_body(entry.body) };
            if group.count() > SIGNATURES_LIMIT && !patient {
                return Looked::TooMany;
            }
            let mut bodies = Vec::new();
            group.each_passing(filter, |body| bodies.push(body));
            match bodies.len() > GROUP_LIMIT && !patient {
                true => Looked::TooMany,
                false => Looked::Many(entry.key, bodies),
            }
        }
        entry => look(entry, patient),
    }
}

impl Table {
    /// The words that it takes to copy what was looked at into a process, roughly.
    ///
    /// # Safety
    /// What was looked at is valid, and its objects live.
    #[inline]
    pub(crate) unsafe fn looked_words(&self, looked: &Looked) -> usize {
        // SAFETY: as the caller promises.
        unsafe {
            match looked {
                Looked::None | Looked::TooMany => 0,
                Looked::One(entry) => ObjectRef::new(*entry, self.key()).words(),
                Looked::Many(key, bodies) => {
                    let place = self.key_place(*key);
                    bodies.iter().map(|body| place.object(*body).words()).sum()
                }
            }
        }
    }

    /// # Safety
    /// What was looked at is valid, and its objects live for `'g`.
    #[inline]
    pub(crate) unsafe fn objects<'g>(&self, looked: Looked) -> Result<Objects<'g>, Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            Ok(match looked {
                Looked::None => Objects::None,
                Looked::One(entry) => Objects::One(ObjectRef::new(entry, self.key())),
                Looked::Many(key, bodies) => {
                    let place = self.key_place(key);
                    Objects::Many(bodies.into_iter().map(|body| place.object(body)).collect())
                }
                Looked::TooMany => return Err(Failure::Big),
            })
        }
    }
}

impl<'g> Handle<'g> {
    /// The objects of a key. Fails with [`Failure::Big`] when they are too many for a caller that is not `patient`.
    #[inline]
    pub fn lookup(self, probe: &Probe<'_>, patient: bool) -> Result<Objects<'g>, Failure> {
        let looked = self.store().read(self.guard, probe, |entry| look(entry, patient))?;
        self.still_named()?;
        // SAFETY: the engine has validated it, and objects are retired through the epoch.
        unsafe { self.table.objects(looked) }
    }

    /// As [`lookup`](Self::lookup), without objects of which the filter tells that they are not sought.
    pub(crate) fn lookup_filtered(
        self,
        probe: &Probe<'_>,
        filter: &Filter,
        patient: bool,
    ) -> Result<Objects<'g>, Failure> {
        let store = self.store();
        let looked = store.read(self.guard, probe, |entry| look_through(entry, patient, filter))?;
        self.still_named()?;
        // SAFETY: as in `lookup`.
        unsafe { self.table.objects(looked) }
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

    /// The only object of a key, for table types that have one only.
    #[inline(always)]
    pub fn get(self, probe: &Probe<'_>) -> Result<Option<ObjectRef<'g>>, Failure> {
        debug_assert!(!self.table.kind().is_bag());
        let entry = self.store().read(self.guard, probe, |entry| entry)?;
        self.still_named()?;
        // SAFETY: as in `lookup`.
        Ok(entry.map(|entry| unsafe { ObjectRef::new(entry, self.table.key()) }))
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
