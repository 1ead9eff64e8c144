//! `delete/2`, `delete_object/2` and `take/2`.

use crate::budget::Budget;
use crate::engines::Kind;
use crate::failure::Failure;
use crate::object::group::{extent, retire_replaced, Group, KeyPlace, GROUP_LIMIT};
use crate::object::schema::{identical, Probe};
use crate::object::{is_group, words_to_read, Object, ObjectRef};
use crate::operations::insert::Incoming;
use crate::operations::lookup::Objects;
use crate::registry::{wake, Host};
use crate::store::{Content, Store};
use crate::table::Handle;
use cats_engine::{Entry, Step};
use cats_term::lease::Request;
use cats_term::BlockRef;
use std::mem::MaybeUninit;

/// The number of words of the largest tuple of immediates that is written to the stack, to be compared with stored objects.
const ROOM: usize = 34;

impl<'g> Handle<'g> {
    /// `delete/2`: removes all objects of a key. Inlined, so that the handle stays in registers.
    #[inline(always)]
    pub fn delete(self, probe: &Probe<'_>) -> Result<(), Failure> {
        let store = self.store();
        let old = match store.plain() {
            Some(plain) => plain.update_present(
                self.guard,
                probe.erase(),
                #[inline(always)]
                move |old| self.remove(store, old),
            )?,
            None => self.delete_in_any(store, probe)?,
        };
        if old == 0 {
            return self.still_named();
        }
        // SAFETY: nothing links to the old entry any more.
        unsafe { retire_replaced(self.guard, old) }
        Ok(())
    }

    /// [`delete`](Self::delete) in a table with any engine and any form of objects. Returns the body that was removed, or 0.
    #[inline(never)]
    fn delete_in_any(self, store: &Store, probe: &Probe<'_>) -> Result<u64, Failure> {
        #[cfg(feature = "compared")]
        if let Some(engine) = self.detaching(store) {
            if let Some(result) = self.delete_detached(store, engine, probe) {
                return result.map(|()| 0);
            }
        }
        Ok(store.update_present(
            self.guard,
            probe,
            #[inline(always)]
            move |old| self.remove(store, old),
        )?)
    }

    /// The step of [`delete`](Self::delete). Returns the body that it removes, or 0.
    #[inline(always)]
    fn remove(self, store: &Store, old: Entry) -> (Step, u64) {
        match self.still_named() {
            Ok(()) => {
                self.uncount(store, old);
                (Step::Remove, old.body)
            }
            Err(_) => (Step::Keep, 0),
        }
    }

    /// `take/2`: removes all objects of a key and writes them to `taken`. Fails with [`Failure::Big`], and does nothing, if there are too
    /// many of them for this thread, or they have more words than this.
    #[inline]
    pub fn take(self, probe: &Probe<'_>, words: Budget, taken: &mut Objects<'g>) -> Result<(), Failure> {
        let store = self.store();
        let found = &mut *taken;
        let old = store.update(self.guard, probe, move |old| {
            if let Err(failure) = self.still_named() {
                return (Step::Keep, Err(failure));
            }
            let fits = found.look(self.table, old);
            // SAFETY: `found` was filled under the lock.
            if !fits || !words.admits(unsafe { found.words() }) {
                return (Step::Keep, Err(Failure::Big));
            }
            match old {
                None => (Step::Keep, Ok(0)),
                Some(old) => {
                    if self.table.options().compressed() {
                        // Before anything is removed, as there may be no memory.
                        // SAFETY: `found` was filled under the lock.
                        unsafe { found.unpack_all() }
                    }
                    self.uncount(store, old);
                    (Step::Remove, Ok(old.body))
                }
            }
        })??;
        store.written(probe);
        // SAFETY: nothing links to the old entry any more. The objects live for guards taken before, and this call has one.
        unsafe { retire_replaced(self.guard, old) }
        Ok(())
    }

    /// `delete_object/2`: removes all objects that are exactly this one. Fails with [`Failure::Big`], and does nothing, if they may be too
    /// many for this thread. Returns the number of objects.
    #[inline]
    pub fn delete_object(self, object: Object<'_>) -> Result<usize, Failure> {
        let layout = self.table.layout();
        if let Some(words) = object.immediates() {
            // An object that is only compared with others needs no block.
            let mut room = [const { MaybeUninit::uninit() }; ROOM];
            let block = BlockRef::flat_within(words, &mut room).filter(|_| layout.key < words.len());
            if let (Some(block), None) = (block, object.inline(layout)) {
                let probe = self.table.probe(object.element(layout.key));
                return self.delete_equal(&probe, block.address().as_ptr() as u64);
            }
        }
        // It is only compared, so it needs no lease of its own.
        let incoming = Incoming::requesting(self.guard, self.table, object, Request::Kept)?;
        self.delete_equal(&incoming.probe(), incoming.body())
    }

    /// [`delete_object`](Self::delete_object) of an object that is only compared with others, and so need not be made. It has a key, and the
    /// table does not pack its objects.
    #[inline]
    pub fn delete_like(self, sought: BlockRef<'_>) -> Result<usize, Failure> {
        let layout = self.table.layout();
        debug_assert!(!layout.packed && layout.key < sought.arity());
        let probe = self.table.probe(sought.element(layout.key));
        self.delete_equal(&probe, sought.address().as_ptr() as u64)
    }

    /// Removes all objects of the probe's key that equal the object with this body, and returns their number. That object does not belong
    /// to the table. Otherwise like [`delete_object`](Self::delete_object).
    #[inline]
    pub(crate) fn delete_equal(self, probe: &Probe<'_>, body: u64) -> Result<usize, Failure> {
        // The key word is the probe's. In an ordered table, the stored object's key may be another term that is only equal in term order.
        // SAFETY: the object with this body belongs to the caller.
        let sought = unsafe { self.table.key_place(probe.word()).object(body) };
        let is_it = |object: &ObjectRef<'_>| identical(*object, sought);
        let any_words = |_| true;
        self.remove_from(probe, any_words, is_it, |group, key, _| {
            let distinct = self.table.kind() == Kind::Bag;
            // SAFETY: the place is locked.
            GROUP_LIMIT.try_within(|limit| unsafe { group.remove(self.guard, key, sought, distinct, limit) })
        })
    }

    /// Removes objects of a key and returns their number. If the key has a single object, removes it if `unwanted` returns true. If it has
    /// a group, calls `from_group` with the group, its key's place and `unwanted`, while the place is locked.
    ///
    /// Fails with [`Failure::Big`], and does nothing, if `from_group` has done nothing and returns `None`, or if `fits` does not accept the
    /// number of words of a single object.
    pub(crate) fn remove_from<F: FnMut(&ObjectRef<'_>) -> bool>(
        self,
        probe: &Probe<'_>,
        fits: impl Fn(usize) -> bool,
        mut unwanted: F,
        from_group: impl FnOnce(&Group, KeyPlace, &mut F) -> Option<usize>,
    ) -> Result<usize, Failure> {
        let store = self.store();
        // These are not part of the closure's result. A result of several words would pass through memory, which causes a store-forwarding
        // stall.
        let (mut removed, mut gone) = (0, 0);
        store.update(self.guard, probe, |old| {
            if let Err(failure) = self.still_named() {
                return (Step::Keep, Err(failure));
            }
            let Some(old) = old else {
                return (Step::Keep, Ok(()));
            };
            let key = self.table.key_place(old.key);
            if is_group(old.body) {
                // SAFETY: the place is locked, so the group lives and this is its only writer.
                let group = unsafe { Group::from_body(old.body) };
                let shrunk = self.shrink(store, group, |group| from_group(group, key, &mut unwanted));
                let Some((step, number)) = shrunk else {
                    return (Step::Keep, Err(Failure::Big));
                };
                removed = number;
                if step == Step::Remove {
                    gone = old.body;
                }
                return (step, Ok(()));
            }
            // SAFETY: the place is locked, so its object lives.
            if !fits(unsafe { words_to_read(old.body) }) {
                return (Step::Keep, Err(Failure::Big));
            }
            // SAFETY: as above.
            if !unwanted(&unsafe { key.object(old.body) }) {
                return (Step::Keep, Ok(()));
            }
            self.uncount(store, old);
            (removed, gone) = (1, old.body);
            (Step::Remove, Ok(()))
        })??;
        // SAFETY: nothing links to the old entry any more, or there was none.
        unsafe { retire_replaced(self.guard, gone) }
        Ok(removed)
    }

    /// Removes objects of a group whose place is locked, and subtracts them from the counters. Returns the step for the place, and the
    /// number of objects. `None` if `remove` has done nothing and returns `None`.
    fn shrink(
        self,
        store: &Store,
        group: &Group,
        remove: impl FnOnce(&Group) -> Option<usize>,
    ) -> Option<(Step, usize)> {
        // SAFETY: the place is locked.
        let bytes = || unsafe { group.bytes() };
        let before = bytes();
        let removed = remove(group)?;
        let after = if group.count() == 0 { 0 } else { bytes() };
        store.count(-(removed as i64), after as i64 - before as i64);
        let step = match removed {
            0 => Step::Keep,
            _ if group.count() == 0 => Step::Remove,
            _ => Step::Touch,
        };
        Some((step, removed))
    }

    /// Subtracts the objects of a locked place from the counters.
    #[inline]
    pub(crate) fn uncount(self, store: &Store, entry: Entry) {
        // SAFETY: the place is locked, so its objects live.
        let (objects, bytes) = unsafe { extent(entry.body) };
        store.count(-(objects as i64), -(bytes as i64));
    }

    /// `delete_all_objects/1`: one exchange of the contents. An operation that began before takes effect before.
    pub fn delete_all_objects(self, host: &dyn Host) -> Result<(), Failure> {
        self.empty()?;
        wake(host);
        Ok(())
    }
}
