//! Tables by name, found without a lock: the default.
//!
//! Source: the "ETS pointers" of Sagonas and others, "Robust scalable Erlang virtual machine", RELEASE deliverable D2.4, 2015, section
//! 3.4.4. An identifier is the table's own address, so only names need a table here: a hash engine, from atom words to addresses.
//! Before it stands a direct-mapped array of addresses. A named table has the place of its name in it, unless another table has it.
//!
//! A table's names are changed under the registry's lock for that table, so names of different tables can change at the same time.
//! The renaming protocol is this project's own. It locks both names in the hash engine. It enters the new name, changes the table's
//! own name and removes the old name. The change of the table's own name is where the old name stops working and the new one begins.

use super::Known;
use crate::object::schema::Words;
use crate::table::{Naming, Table};
use cats_engine::hash::Hash;
use cats_engine::{Busy, Engine, Entry, Step};
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, Ordering};
use std::ptr;

/// Places of the array, a power of two.
const PLACES: usize = 512;

/// See the module's documentation.
pub struct LockFree {
    places: [AtomicPtr<Table>; PLACES],
    names: Hash<Words>,
}

impl LockFree {
    /// No tables. Nothing when memory is exhausted.
    pub fn new() -> Option<Self> {
        Some(Self {
            places: [const { AtomicPtr::new(ptr::null_mut()) }; PLACES],
            names: Hash::new(Words)?,
        })
    }

    /// The place of a name. The VM numbers atoms one after the other, above six bits of tag.
    #[inline]
    fn place(&self, name: u64) -> &AtomicPtr<Table> {
        &self.places[(name >> 6) as usize % PLACES]
    }

    /// The table in the place of a name, if it has the name.
    #[inline]
    pub fn near<'g>(&self, _guard: &'g Guard, name: u64) -> Option<(&'g Table, Naming)> {
        // Acquire pairs with the Release of `enter`: the table is seen as it was entered.
        let near = self.place(name).load(Ordering::Acquire);
        // SAFETY: a table leaves its place before the registry's reference to it is given up, through the epoch.
        let table = unsafe { near.as_ref() }?;
        let naming = table.naming();
        (naming.name() == name).then_some((table, naming))
    }

    /// The table that a name was entered for; whether it still has the name is for the caller to see.
    #[inline]
    pub fn find(&self, guard: &Guard, name: u64) -> Result<Option<Known>, Busy> {
        if let Some((table, _)) = self.near(guard, name) {
            return Ok(Some(Known(table)));
        }
        let entry = self.names.read(guard, &name, |entry| entry)?;
        Ok(entry.map(|entry| Known(entry.body as *const Table)))
    }

    /// Enters a name, unless it is taken.
    pub fn claim(&self, guard: &Guard, name: u64, table: &Table) -> Result<bool, Busy> {
        let entry = Self::entry(name, table);
        let entered = self.names.update(guard, &name, |old| match old {
            None => (Step::Put(entry), true),
            Some(_) => (Step::Keep, false),
        })?;
        if entered {
            self.enter(name, table);
        }
        Ok(entered)
    }

    /// Kills a table and removes its name.
    pub fn remove(&self, guard: &Guard, table: &Table) -> Result<(), Busy> {
        let name = table.name();
        self.names.update(guard, &name, |_| {
            // Dead before another table can have the name.
            table.kill();
            self.leave(name, table);
            (Step::Remove, ())
        })
    }

    /// Gives a table another name, unless that is taken. One operation on both names: half of it must not be left undone, or a
    /// name would lead to a table that is gone.
    pub fn rename(&self, guard: &Guard, table: &Table, name: u64) -> Result<bool, Busy> {
        let old = table.name();
        let entry = Self::entry(name, table);
        self.names.update_many(guard, &[&name, &old], |names| {
            if names.get(0).is_some() {
                return false;
            }
            names.update(0, &mut |_| Step::Put(entry));
            table.set_name(name);
            self.leave(old, table);
            self.enter(name, table);
            names.update(1, &mut |_| Step::Remove);
            true
        })
    }

    fn entry(name: u64, table: &Table) -> Entry {
        Entry {
            key: name,
            body: table as *const Table as u64,
        }
    }

    /// Puts a table in the place of its name. A place that is taken stays so.
    fn enter(&self, name: u64, table: &Table) {
        let table = ptr::from_ref(table).cast_mut();
        // Release: see `near`.
        let _ = self
            .place(name)
            .compare_exchange(ptr::null_mut(), table, Ordering::Release, Ordering::Relaxed);
    }

    /// Takes a table out of the place of a name, before the name is free for another table, which who looks it up must not miss.
    fn leave(&self, name: u64, table: &Table) {
        let table = ptr::from_ref(table).cast_mut();
        // Relaxed: the step of the hash engine orders it before whoever claims the name, and there is nothing to be seen behind a
        // null.
        let _ = self
            .place(name)
            .compare_exchange(table, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::table::options::Collect;
    use cats_sync::epoch::pin;
    use std::sync::Barrier;

    fn atom(number: u64) -> u64 {
        number << 6 | 0b001011
    }

    #[test]
    fn a_table_is_renamed_or_not_while_others_hold_either_name() {
        let registry = Box::leak(Box::new(Registry::new(|_| ()).unwrap()));
        let options = Collect::default().finish(1).unwrap();
        let table = Table::new(registry, options, atom(0), 1).unwrap();
        let names = LockFree::new().unwrap();
        let guard = pin();
        let found = |name| names.find(&guard, name).unwrap().map(|known| known.0);
        let here = Some(ptr::from_ref(&table));
        // So many that two names are rarely under one lock.
        for number in (0..1).chain(1000..2000) {
            assert!(names.claim(&guard, atom(number), &table).unwrap());
        }
        for (old, new) in (0..10).map(|number| (atom(number), atom(number + 1))) {
            for held in [old, new] {
                let both = Barrier::new(2);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        names.names.update(&pin(), &held, |_| {
                            both.wait();
                            both.wait();
                            (Step::Keep, ())
                        })
                    });
                    both.wait();
                    let renamed = names.rename(&guard, &table, new);
                    both.wait();
                    assert_eq!(renamed, Err(Busy));
                });
                assert_eq!((table.name(), found(old), found(new)), (old, here, None));
            }
            assert_eq!(names.rename(&guard, &table, new), Ok(true));
            assert_eq!((table.name(), found(old), found(new)), (new, None, here));
        }
    }
}
