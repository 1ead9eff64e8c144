//! Tables by name, without a lock for who looks one up: the default.
//!
//! Source: the "ETS pointers" of RELEASE D2.4, section 3.4.4. An identifier is the table's own address, so only names need a
//! table here: a hash engine, from atom words to addresses. Before it stands a direct-mapped array of addresses: a named table has
//! the place of its name in it, unless another one had it before.
//!
//! A table's names are changed under the registry's lock for it, so those of different tables at the same time. The renaming protocol
//! is this project's: the new name is entered, the table's own name is changed (here the old name ceases to work and the new one
//! begins), the old one is removed.

use super::Known;
use crate::schema::Words;
use crate::table::Table;
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

    /// The table that a name was entered for; whether it still has the name is for the caller to see.
    #[inline]
    pub fn find(&self, guard: &Guard, name: u64) -> Result<Option<Known>, Busy> {
        // Acquire pairs with the Release of `claim`: the table is seen as it was entered.
        let near = self.place(name).load(Ordering::Acquire);
        // SAFETY: a table leaves its place before the registry's reference to it is given up, through the epoch.
        if unsafe { near.as_ref() }.is_some_and(|table| table.name() == name) {
            return Ok(Some(Known(near)));
        }
        self.find_in_hash(guard, name)
    }

    #[inline(never)]
    fn find_in_hash(&self, guard: &Guard, name: u64) -> Result<Option<Known>, Busy> {
        let entry = self.names.read(guard, &name, |entry| entry)?;
        Ok(entry.map(|entry| Known(entry.body as *const Table)))
    }

    /// Enters a name, unless it is taken.
    pub fn claim(&self, guard: &Guard, name: u64, table: &Table) -> Result<bool, Busy> {
        let entry = Entry {
            key: name,
            body: table as *const Table as u64,
        };
        let entered = self.names.update(guard, &name, |old| match old {
            None => (Step::Put(entry), true),
            Some(_) => (Step::Keep, false),
        })?;
        if entered {
            let table = ptr::from_ref(table).cast_mut();
            // Release: see `find`. A place that is taken stays so.
            let _ = self
                .place(name)
                .compare_exchange(ptr::null_mut(), table, Ordering::Release, Ordering::Relaxed);
        }
        Ok(entered)
    }

    /// Removes the name of a table.
    pub fn withdraw(&self, guard: &Guard, name: u64, table: &Table) -> Result<(), Busy> {
        self.names.update(guard, &name, |_| {
            let table = ptr::from_ref(table).cast_mut();
            // Before the name is free for another table, which who looks it up must not miss. Relaxed: the step of the hash engine
            // orders it before whoever claims the name, and there is nothing to be seen behind a null.
            let _ = self
                .place(name)
                .compare_exchange(table, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
            (Step::Remove, ())
        })
    }

    /// Gives a table another name, unless that is taken.
    pub fn rename(&self, guard: &Guard, table: &Table, name: u64) -> Result<bool, Busy> {
        if !self.claim(guard, name, table)? {
            return Ok(false);
        }
        let old = table.name();
        table.set_name(name);
        self.withdraw(guard, old, table)?;
        Ok(true)
    }
}
