//! Tables in locked meta tables, for comparison: as ETS had them up to R16B.
//!
//! Source: Sagonas and others, "Robust scalable Erlang virtual machine", RELEASE deliverable D2.4, 2015, section 3.1. The *main table*
//! finds tables by number, the *name table* by name. A place of either is under one of 256 readers-writer locks with reader groups.
//! Every operation that looks a table up holds the place's lock for reading while it does. (The registry itself knows the owners and
//! fixers of tables.)
//!
//! A table's names are changed under the registry's lock for it, and under the locks of all places concerned, the main table's
//! before the name table's, in the order of their indices. `Busy` means that nothing was done.

use super::{Known, SERIAL_BITS};
use crate::table::Table;
use cats_engine::Busy;
use cats_sync::lock::rw::Rw;
use cats_sync::lock::TableLock;
use std::collections::HashMap;

/// Locks of a meta table.
const LOCKS: usize = 256;

/// Tables by number or by name, in parts with a lock each.
struct MetaTable(Box<[Rw<HashMap<u64, Known>>]>);

impl MetaTable {
    fn new(reader_groups: usize) -> Self {
        Self((0..LOCKS).map(|_| Rw::new(HashMap::new(), reader_groups)).collect())
    }

    /// The part of a table's number.
    fn of_number(&self, serial: u64) -> &Rw<HashMap<u64, Known>> {
        &self.0[Self::place_of_number(serial)]
    }

    /// The place of the part of a number. The tables of each part of the registry are numbered one after the other.
    fn place_of_number(serial: u64) -> usize {
        (serial ^ serial >> SERIAL_BITS) as usize % LOCKS
    }

    /// The place of the part of a name: numbers of atoms stand above six bits of tag.
    fn place_of_name(name: u64) -> usize {
        (name >> 6) as usize % LOCKS
    }
}

/// See the module's documentation.
pub struct Locked {
    main: MetaTable,
    names: MetaTable,
}

impl Locked {
    /// No tables. The readers of one lock are divided into `reader_groups` groups.
    pub fn new(reader_groups: usize) -> Self {
        Self {
            main: MetaTable::new(reader_groups),
            names: MetaTable::new(reader_groups),
        }
    }

    /// Whether a table, found by its identifier, is in the main table.
    pub fn holds(&self, serial: u64) -> Result<bool, Busy> {
        self.main
            .of_number(serial)
            .read_here(|tables| tables.contains_key(&serial))
    }

    /// The table of a name.
    pub fn find(&self, name: u64) -> Result<Option<Known>, Busy> {
        let part = &self.names.0[MetaTable::place_of_name(name)];
        part.read_here(|tables| tables.get(&name).copied())
    }

    /// Enters a table, by `name` too if there is one; false, and nothing done, if the name is taken.
    pub fn enter(&self, table: &Table, name: Option<u64>) -> Result<bool, Busy> {
        self.main.of_number(table.serial()).write_here(|main| {
            if let Some(name) = name {
                let part = &self.names.0[MetaTable::place_of_name(name)];
                if !part.write_here(|names| claim(names, name, table))? {
                    return Ok(false);
                }
            }
            main.insert(table.serial(), Known(table));
            Ok(true)
        })?
    }

    /// Kills a table and removes it, and its name if there is one.
    pub fn remove(&self, table: &Table, name: Option<u64>) -> Result<(), Busy> {
        self.main.of_number(table.serial()).write_here(|main| {
            match name {
                None => table.kill(),
                Some(name) => self.names.0[MetaTable::place_of_name(name)].write_here(|names| {
                    // Dead before another table can have the name.
                    table.kill();
                    names.remove(&name);
                })?,
            }
            main.remove(&table.serial());
            Ok(())
        })?
    }

    /// Gives a table another name, unless that is taken.
    pub fn rename(&self, table: &Table, name: u64) -> Result<bool, Busy> {
        let old = table.name();
        let (from, to) = (MetaTable::place_of_name(old), MetaTable::place_of_name(name));
        let change = |names: &mut HashMap<u64, Known>| {
            let claimed = claim(names, name, table);
            if claimed {
                table.set_name(name);
            }
            claimed
        };
        if from == to {
            return self.names.0[to].write_here(|names| {
                let claimed = change(names);
                if claimed {
                    names.remove(&old);
                }
                claimed
            });
        }
        let both = |leaving: &mut HashMap<u64, Known>, coming: &mut HashMap<u64, Known>| {
            let claimed = change(coming);
            if claimed {
                leaving.remove(&old);
            }
            claimed
        };
        let (first, second) = (&self.names.0[from.min(to)], &self.names.0[from.max(to)]);
        first.write_here(|first| {
            second.write_here(|second| match from < to {
                true => both(first, second),
                false => both(second, first),
            })
        })?
    }
}

/// Enters a name, unless it is taken.
fn claim(names: &mut HashMap<u64, Known>, name: u64, table: &Table) -> bool {
    let free = !names.contains_key(&name);
    if free {
        names.insert(name, Known(table));
    }
    free
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::registry::{Members, Registry, PARTS};
    use std::collections::HashSet;

    #[test]
    fn tables_of_different_owners_are_under_different_locks() {
        let owners = (0..PARTS as u64).map(|number| number << 4);
        let places: HashSet<_> = owners
            .map(|owner| MetaTable::place_of_number(Registry::next_serial(&mut Members::default(), owner)))
            .collect();
        assert_eq!(places.len(), PARTS);
    }
}
