//! Order statistics of ordered tables: how many objects are between two keys, the object with a number, and the objects between two keys
//! in order.
//!
//! A `ca` answers by the counts of its leaves. A snapshot passes the objects.

use crate::budget::Budget;
use crate::failure::Failure;
use crate::object::schema::Probe;
use crate::object::ObjectRef;
use crate::operations::traverse::Expansion;
use crate::table::Handle;
use cats_engine::{Between, Range};
use cats_term::compare;

/// The largest amount of work of a store that keeps counts, on a scheduler. It is less than 0.1 µs each.
const WORK_LIMIT: Budget = Budget(5000);

impl<'g> Handle<'g> {
    /// Whether the table has [`count`](Self::count) and [`nth`](Self::nth).
    pub fn has_order_statistics(self) -> bool {
        self.table.options().engine().has_order_statistics(self.table.kind())
    }

    /// The number of objects between two bounds. Fails with [`Failure::Big`] if counting takes too long for this thread.
    pub fn count(self, between: Between<'_, Probe<'_>>) -> Result<usize, Failure> {
        self.settle(true)?;
        let count = self
            .store()
            .count_between(self.guard, between, WORK_LIMIT.part_of(usize::MAX))?;
        self.still_named()?;
        Ok(count)
    }

    /// The object with this number in the order of keys, counted from 0. With `down`, in the opposite order. `None` if there are not so
    /// many objects. Fails as [`count`](Self::count) does, and if the object is packed and long.
    pub fn nth(self, number: usize, down: bool) -> Result<Option<ObjectRef<'g>>, Failure> {
        let (mut expansion, mut objects) = (Expansion::new(), Vec::new());
        let expand = |entry, out: &mut Vec<_>| self.expand(entry, &mut expansion, out);
        let (place, limit) = ((number, down), WORK_LIMIT.part_of(usize::MAX));
        self.settle(true)?;
        self.store().find_nth(self.guard, place, limit, &mut objects, expand)?;
        self.still_named()?;
        expansion.finish()?;
        Ok(objects.pop())
    }

    /// Appends up to `limit` objects between two bounds to `out`, which is empty, in order. With `down`, goes from the last one to the first
    /// one. Returns whether more of them may follow.
    pub fn range(
        self,
        between: Between<'_, Probe<'_>>,
        down: bool,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
    ) -> Result<bool, Failure> {
        let mut expansion = Expansion::new();
        let range = range_of(between, down);
        let expand = |entry, out: &mut Vec<ObjectRef<'g>>| self.expand(entry, &mut expansion, out);
        let more = self.store().range(self.guard, range, limit, out, expand)?;
        expansion.finish()?;
        self.still_named()?;
        // An engine may show some more.
        if out.len() > limit {
            out.truncate(limit);
            return Ok(true);
        }
        let last = out.last().map(|object| object.element(self.table.key()));
        match (last, far_end(between, down)) {
            (Some(last), Some((end, false))) if compare(end.term(), last).is_eq() => {
                out.pop();
                Ok(false)
            }
            _ => Ok(more),
        }
    }
}

/// The range between two bounds. It also has the key of an end that is exclusive.
fn range_of<'a, 'p>(between: Between<'a, Probe<'p>>, down: bool) -> Range<'a, Probe<'p>> {
    let Between { from, to } = between;
    Range {
        from: if down { to } else { from },
        to: far_end(between, down).map(|(key, _)| key),
        down,
    }
}

/// The bound where a walk in this direction ends.
fn far_end<'a, 'p>(between: Between<'a, Probe<'p>>, down: bool) -> Option<(&'a Probe<'p>, bool)> {
    match down {
        true => between.from,
        false => between.to,
    }
}
