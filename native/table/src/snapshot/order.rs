//! Order statistics of a snapshot. The counts of the live table are not those of the snapshot, so all entries up to the end are passed.

use super::{Snapshot, MANY};
use crate::object::schema::Probe;
use crate::object::ObjectRef;
use crate::table::store::other::Expand;
use cats_engine::{Between, Range};
use cats_sync::epoch::Guard;
use cats_sync::Busy;
use cats_term::compare;

/// The entries that a scheduler passes.
const COUNTED: usize = 10_000;

impl Snapshot {
    /// The number of entries between two bounds.
    pub fn count_between(&self, guard: &Guard, between: Between<'_, Probe<'static>>) -> Result<usize, Busy> {
        let Between { from, to } = between;
        let range = Range {
            from,
            to: to.map(|(key, _)| key),
            down: false,
        };
        let mut count = 0;
        self.each_part(guard, range, MANY, COUNTED, &mut |_, _| (), |gathered| {
            count += gathered.entries.len();
            if let (Some(last), Some((key, false))) = (gathered.entries.last(), to) {
                count -= usize::from(compare(last.key, key.term()).is_eq());
            }
            true
        })?;
        Ok(count)
    }

    /// Appends the objects of the entry with this number in the order of keys, counted from 0. With `true`, in the opposite order. Appends
    /// nothing if there are not so many entries.
    pub fn find_nth<'g>(
        &self,
        guard: &'g Guard,
        (number, down): (usize, bool),
        out: &mut Vec<ObjectRef<'g>>,
        expand: Expand<'_, 'g>,
    ) -> Result<(), Busy> {
        let all = Range {
            from: None,
            to: None,
            down,
        };
        let (mut left, mut found) = (number, None);
        self.each_part(guard, all, MANY, COUNTED, &mut |_, _| (), |gathered| {
            found = gathered.entries.get(left).map(|seen| seen.entry);
            left = left.saturating_sub(gathered.entries.len());
            found.is_none()
        })?;
        // The entry does not change.
        found.into_iter().for_each(|entry| expand(entry, out));
        Ok(())
    }
}
