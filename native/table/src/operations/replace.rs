//! `replace/3`: compare-and-swap of one whole object.

use crate::engines::Kind;
use crate::failure::{Cause, Failure};
use crate::object::group::retire_replaced;
use crate::object::schema::identical;
use crate::object::{is_changing, words_to_read, Object, ObjectRef, COPY_LIMIT};
use crate::operations::insert::Incoming;
use crate::store::Unused;

use crate::table::{Handle, Table};
use cats_engine::{Entry, Step};
use cats_term::lease::Request;
use cats_term::{compare, equal, Scratch, TermRef};

/// How often an object is read again because others replace it by an equal one. Then the call fails with [`Failure::Busy`].
const ATTEMPTS: usize = 8;

/// The number of words of the largest object that is compared while its place is locked.
const SMALL: usize = 64;

// These stand in place of the body of the object that was replaced. No object of a set or an ordered set has such a body.
/// The place has another entry.
const OTHER: u64 = 0;
/// The table has lost the name by which it was found.
const RENAMED: u64 = 2;

impl Table {
    /// Whether these are the same key in this table.
    pub fn is_same_key(&self, a: TermRef<'_>, b: TermRef<'_>) -> bool {
        equal(a, b) || self.kind() == Kind::OrderedSet && compare(a, b).is_eq()
    }
}

impl Handle<'_> {
    /// Stores a tuple in place of another one. Both are given by their words, are [stored inline](Object::inline) and have the same key. The
    /// table type allows one object for each key. Returns whether the table held the old one.
    #[inline]
    pub fn replace_inline(self, old: &[u64], new: &[u64]) -> Result<bool, Failure> {
        let layout = self.table.layout();
        let key = old[layout.key];
        let entry = |words| Entry {
            key,
            body: Object::flat(words).inline(layout).expect("stored inline"),
        };
        let (old, new) = (entry(old), entry(new));
        let probe = self.table.probe(TermRef::immediate(key));
        // A tuple that can be stored inline is always stored so. It has no block, so there is nothing to count or to retire.
        let change = move |now: Option<Entry>| match now {
            _ if self.still_named().is_err() => (Step::Keep, RENAMED),
            Some(now) if now == old => (Step::Put(new), old.body),
            _ => (Step::Keep, OTHER),
        };
        match self.store().update(self.guard, &probe, change)? {
            RENAMED => Err(Cause::Id.into()),
            done => Ok(done != OTHER),
        }
    }

    /// Stores an object in place of the one with its key, if that is the sought one. The table type allows one object for each key. Returns
    /// whether it did. Fails with [`Failure::Big`] if the old object is too large to be unpacked on this thread.
    ///
    /// Two functions say whether an object is the sought one. `is_surely` may return false for the sought one, too. It takes a time that the
    /// object's number of words bounds, and runs while the place is locked. `is_old` is exact, may be called several times, and runs without
    /// a lock.
    pub fn replace<E: From<Failure>>(
        self,
        new: Object<'_>,
        is_surely: impl Fn(&ObjectRef<'_>) -> bool,
        is_old: impl Fn(&ObjectRef<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let incoming = match self.table.options().plain() {
            true => Incoming::new(self.guard, self.table, new)?,
            // The lease of the old object stays.
            false => Incoming::requesting(self.guard, self.table, new, Request::Kept)?,
        };
        self.replace_by(&incoming, is_surely, is_old)
    }

    /// The same by an object that requests its lease itself.
    pub(crate) fn replace_by<E: From<Failure>>(
        self,
        incoming: &Incoming,
        is_surely: impl Fn(&ObjectRef<'_>) -> bool,
        is_old: impl Fn(&ObjectRef<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let key = self.table.key();
        let (plain, leased) = (self.table.options().plain(), self.table.options().leased());
        // SAFETY: the place is locked, so its object lives and nobody changes it.
        let is_small = |now: Entry| unsafe { (plain || leased) && words_to_read(now.body) <= SMALL };
        let is_it = |now: Entry| {
            // SAFETY: as above.
            is_small(now) && is_surely(&unsafe { ObjectRef::stored(now, key) })
        };
        if self.swap(incoming, is_it)? {
            return Ok(true);
        }
        for _ in 0..ATTEMPTS {
            let entry = self
                .store()
                .read::<Unused, _>(self.guard, &incoming.probe(), |entry| entry);
            self.still_named()?;
            let Some(entry) = entry.map_err(Failure::from)? else {
                return Ok(false);
            };
            let mut scratch = Scratch::new();
            // SAFETY: the engine has validated the entry, and objects are retired through the epoch.
            let seen = unsafe { ObjectRef::read_within(entry, key, &mut scratch)? };
            COPY_LIMIT.check(seen.packed_words())?;
            // SAFETY: as above.
            let seen = unsafe { seen.unpacked() };
            if !is_old(&seen)? {
                return Ok(false);
            }
            // The same body is the same object: its memory is not used again under this guard. Only an object that is changed in place may
            // have changed since.
            let is_same = |now: Entry| {
                // SAFETY: the place is locked, so its object lives and nobody changes it.
                now == entry
                    && (!is_changing(now.body) || identical(unsafe { ObjectRef::stored(now, key).unpacked() }, seen))
            };
            if self.swap(incoming, is_same)? {
                return Ok(true);
            }
        }
        Err(Failure::Busy.into())
    }

    /// Puts an object in the place of its key, if `is_old` accepts the entry there.
    #[inline(always)]
    fn swap(self, incoming: &Incoming, is_old: impl Fn(Entry) -> bool) -> Result<bool, Failure> {
        let store = self.store();
        let change = |old: Option<Entry>| match old {
            _ if self.still_named().is_err() => (Step::Keep, RENAMED),
            Some(old) if is_old(old) => {
                let (step, _) = self.put(Some(old), incoming, |objects, bytes| store.count(objects, bytes));
                (step, old.body)
            }
            _ => (Step::Keep, OTHER),
        };
        let puts = |old: Option<Entry>| old.is_some_and(&is_old);
        let old = store.update_adding(self.guard, &incoming.probe(), incoming.body(), puts, change)?;
        match old {
            OTHER => Ok(false),
            RENAMED => Err(Cause::Id.into()),
            old => {
                // SAFETY: the place has another entry now.
                unsafe { retire_replaced(self.guard, old) }
                Ok(true)
            }
        }
    }
}
