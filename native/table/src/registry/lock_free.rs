//! Tables by name, without a lock for who looks one up: the default.
//!
//! Source: the "ETS pointers" of RELEASE D2.4, section 3.4.4. An identifier is the table's own address, so only names need a
//! table here: a hash engine, from atom words to addresses.
//!
//! All changes are made under the registry's lock. The renaming protocol is this project's: the new name is entered, the table's
//! own name is changed (here the old name ceases to work and the new one begins), the old one is removed.

use super::Known;
use crate::schema::Atoms;
use crate::table::Table;
use cats_engine::hash::Hash;
use cats_engine::{Busy, Engine, Entry, Step};
use cats_sync::epoch::Guard;

/// See the module's documentation.
pub struct LockFree(Hash<Atoms>);

impl LockFree {
    /// No tables. Nothing when memory is exhausted.
    pub fn new() -> Option<Self> {
        Hash::new(Atoms).map(Self)
    }

    /// The table that a name was entered for; whether it still has the name is for the caller to see.
    #[inline]
    pub fn find(&self, guard: &Guard, name: u64) -> Result<Option<Known>, Busy> {
        let entry = self.0.read(guard, &name, |entry| entry)?;
        Ok(entry.map(|entry| Known(entry.body as *const Table)))
    }

    /// Enters a name, unless it is taken.
    pub fn claim(&self, guard: &Guard, name: u64, table: &Table) -> Result<bool, Busy> {
        let entry = Entry {
            key: name,
            body: table as *const Table as u64,
        };
        self.0.update(guard, &name, |old| match old {
            None => (Step::Put(entry), true),
            Some(_) => (Step::Keep, false),
        })
    }

    pub fn withdraw(&self, guard: &Guard, name: u64) -> Result<(), Busy> {
        self.0.update(guard, &name, |_| (Step::Remove, ()))
    }

    /// Gives a table another name, unless that is taken.
    pub fn rename(&self, guard: &Guard, table: &Table, name: u64) -> Result<bool, Busy> {
        if !self.claim(guard, name, table)? {
            return Ok(false);
        }
        let old = table.name();
        table.set_name(name);
        self.withdraw(guard, old)?;
        Ok(true)
    }
}
