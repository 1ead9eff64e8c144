//! Tables in locked meta tables, for comparison. A build without the feature `compared` lacks them.

use super::{Directory, Known, SERIAL_BITS};
use crate::table::Table;
use cats_engine::Busy;
use cats_papers::meta_tables::MetaTables;

/// See [`cats_papers::meta_tables`].
pub struct Locked(MetaTables<Known>);

impl Locked {
    /// No tables. The readers of one lock are divided into `reader_groups` groups.
    pub fn new(reader_groups: usize) -> Self {
        Self(MetaTables::new(reader_groups))
    }
}

/// The number of a table in the main table. The tables of each part of the registry have serial numbers one after the other.
fn number(serial: u64) -> u64 {
    serial ^ serial >> SERIAL_BITS
}

impl Directory for Locked {
    fn holds(&self, table: &Table) -> Result<bool, Busy> {
        self.0.holds(number(table.serial()))
    }

    fn find(&self, name: u64) -> Result<Option<Known>, Busy> {
        self.0.find(name)
    }

    fn enter(&self, table: &Table, name: Option<u64>) -> Result<bool, Busy> {
        self.0.enter(number(table.serial()), name, Known(table))
    }

    fn remove(&self, table: &Table, name: Option<u64>) -> Result<(), Busy> {
        self.0.remove(number(table.serial()), name, || table.kill())
    }

    fn rename(&self, table: &Table, name: u64) -> Result<bool, Busy> {
        self.0.rename(Known(table), table.name(), name, || table.set_name(name))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::registry::{Members, Registry, PARTS};
    use cats_papers::meta_tables::LOCKS;
    use std::collections::HashSet;

    #[test]
    fn tables_of_different_owners_are_under_different_locks() {
        let owners = (0..PARTS as u64).map(|number| number << 4);
        let places: HashSet<_> = owners
            .map(|owner| number(Registry::next_serial(&mut Members::default(), owner)) as usize % LOCKS)
            .collect();
        assert_eq!(places.len(), PARTS);
    }
}
