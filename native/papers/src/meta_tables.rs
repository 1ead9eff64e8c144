//! Locked meta tables: the tables of a registry by number and by name, as ETS had them up to R16B.
//!
//! Source: Sagonas and others, "Robust scalable Erlang virtual machine", RELEASE deliverable D2.4, 2015, section 3.1. The *main table*
//! finds tables by number, the *name table* by name. A place of either is under one of 256 readers-writer locks with reader groups.
//! Every operation that looks a table up holds the place's lock for reading while it does.
//!
//! A table's names are changed under the caller's lock for it, and under the locks of all places concerned. The main table's come
//! before the name table's, in the order of their indices. `Busy` means that nothing was done.

use crate::lock::rw::Rw;
use crate::lock::TableLock;
use cats_sync::Busy;
use std::collections::HashMap;

/// Locks of a meta table.
pub const LOCKS: usize = 256;

/// Tables by number or by name, in parts with a lock each.
struct MetaTable<T>(Box<[Rw<HashMap<u64, T>>]>);

impl<T: Copy + Send + Sync> MetaTable<T> {
    fn new(reader_groups: usize) -> Self {
        Self((0..LOCKS).map(|_| Rw::new(HashMap::new(), reader_groups)).collect())
    }

    /// The part of a table's number, whose lowest bits tell.
    fn of_number(&self, number: u64) -> &Rw<HashMap<u64, T>> {
        &self.0[number as usize % LOCKS]
    }

    /// The place of the part of a name: numbers of atoms stand above six bits of tag.
    fn place_of_name(name: u64) -> usize {
        (name >> 6) as usize % LOCKS
    }
}

/// See the module's documentation.
pub struct MetaTables<T> {
    main: MetaTable<T>,
    names: MetaTable<T>,
}

impl<T: Copy + Send + Sync> MetaTables<T> {
    /// No tables. The readers of one lock are divided into `reader_groups` groups.
    pub fn new(reader_groups: usize) -> Self {
        Self {
            main: MetaTable::new(reader_groups),
            names: MetaTable::new(reader_groups),
        }
    }

    /// Whether a table, found by its identifier, is in the main table.
    pub fn holds(&self, number: u64) -> Result<bool, Busy> {
        self.main
            .of_number(number)
            .read_here(|tables| tables.contains_key(&number))
    }

    /// The table of a name.
    pub fn find(&self, name: u64) -> Result<Option<T>, Busy> {
        let part = &self.names.0[MetaTable::<T>::place_of_name(name)];
        part.read_here(|tables| tables.get(&name).copied())
    }

    /// Enters a table, by `name` too if there is one; false, and nothing done, if the name is taken.
    pub fn enter(&self, number: u64, name: Option<u64>, table: T) -> Result<bool, Busy> {
        self.main.of_number(number).write_here(|main| {
            if let Some(name) = name {
                let part = &self.names.0[MetaTable::<T>::place_of_name(name)];
                if !part.write_here(|names| claim(names, name, table))? {
                    return Ok(false);
                }
            }
            main.insert(number, table);
            Ok(true)
        })?
    }

    /// Removes a table, and its name if there is one. Before another table can have the name, `kill` is called.
    pub fn remove(&self, number: u64, name: Option<u64>, kill: impl FnOnce()) -> Result<(), Busy> {
        self.main.of_number(number).write_here(|main| {
            match name {
                None => kill(),
                Some(name) => self.names.0[MetaTable::<T>::place_of_name(name)].write_here(|names| {
                    kill();
                    names.remove(&name);
                })?,
            }
            main.remove(&number);
            Ok(())
        })?
    }

    /// Gives a table another name, unless that is taken. While both are locked, `rename` is called.
    pub fn rename(&self, table: T, old: u64, new: u64, rename: impl FnOnce()) -> Result<bool, Busy> {
        let (from, to) = (MetaTable::<T>::place_of_name(old), MetaTable::<T>::place_of_name(new));
        let change = |names: &mut HashMap<u64, T>| {
            let claimed = claim(names, new, table);
            if claimed {
                rename();
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
        let both = |leaving: &mut HashMap<u64, T>, coming: &mut HashMap<u64, T>| {
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
fn claim<T>(names: &mut HashMap<u64, T>, name: u64, table: T) -> bool {
    let free = !names.contains_key(&name);
    if free {
        names.insert(name, table);
    }
    free
}
