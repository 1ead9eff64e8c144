//! Order statistics of ordered tables: how many objects are between two keys, the object with a number, and the objects between two keys
//! in order.
//!
//! A store that keeps counts answers by them. In any other store, the objects are passed in slices. The call keeps only the last key of a
//! slice. So an object that is in the table during the whole call is counted exactly once, too.

use crate::failure::Failure;
use crate::object::schema::{stored_key, OwnedKey, Probe};
use crate::object::ObjectRef;
use crate::operations::traverse::Expansion;
use crate::table::Handle;
use cats_engine::{Between, Entry, Range};
use cats_term::compare;
use std::ops::ControlFlow;

/// The number of entries that are passed at once.
const SLICE: usize = 500;

/// The largest number of entries that a scheduler passes.
const PASSED_LIMIT: usize = 5000;

/// The largest amount of work of a store that keeps counts, on a scheduler. It is less than 0.1 µs each.
const WORK_LIMIT: usize = 5000;

impl<'g> Handle<'g> {
    /// Whether the table has [`count`](Self::count) and [`nth`](Self::nth).
    pub fn has_order_statistics(self) -> bool {
        self.table.options().engine().has_order_statistics(self.table.kind())
    }

    /// The number of objects between two bounds. Fails with [`Failure::Big`] if counting takes long, unless the caller is `patient`.
    pub fn count(self, between: Between<'_, Probe<'_>>, patient: bool) -> Result<usize, Failure> {
        if let Some(count) = self.store().count_between(self.guard, between, work_limit(patient)) {
            self.still_named()?;
            return Ok(count?);
        }
        let mut count = 0;
        self.pass(between, false, patient, |entries| {
            count += entries.len();
            ControlFlow::Continue(())
        })?;
        self.still_named()?;
        Ok(count)
    }

    /// The object with this number in the order of keys, counted from 0. With `down`, in the opposite order. `None` if there are not so
    /// many objects. Fails as [`count`](Self::count) does, and if the object is packed and long.
    pub fn nth(self, number: usize, down: bool, patient: bool) -> Result<Option<ObjectRef<'g>>, Failure> {
        let (mut expansion, mut objects) = (Expansion::new(patient), Vec::new());
        let expand = |entry, out: &mut Vec<_>| self.expand(entry, &mut expansion, out);
        let (place, limit) = ((number, down), work_limit(patient));
        match self.store().find_nth(self.guard, place, limit, &mut objects, expand) {
            Some(found) => found?,
            None => {
                let found = self.pass_to(number, down, patient)?;
                found
                    .into_iter()
                    .for_each(|entry| self.expand(entry, &mut expansion, &mut objects));
            }
        }
        self.still_named()?;
        expansion.finish()?;
        Ok(objects.pop())
    }

    /// The entry with this number, in a store that keeps no counts.
    fn pass_to(self, number: usize, down: bool, patient: bool) -> Result<Option<Entry>, Failure> {
        let (mut left, mut found) = (number, None);
        let all = Between { from: None, to: None };
        self.pass(all, down, patient, |entries| match entries.get(left) {
            Some(entry) => {
                found = Some(*entry);
                ControlFlow::Break(())
            }
            None => {
                left -= entries.len();
                ControlFlow::Continue(())
            }
        })?;
        Ok(found)
    }

    /// Appends up to about `limit` objects between two bounds, in order. With `down`, goes from the last one to the first one. Returns
    /// whether more of them may follow.
    pub fn range(
        self,
        between: Between<'_, Probe<'_>>,
        down: bool,
        limit: usize,
        patient: bool,
        out: &mut Vec<ObjectRef<'g>>,
    ) -> Result<bool, Failure> {
        let mut expansion = Expansion::new(patient);
        let range = range_of(between, down);
        let expand = |entry, out: &mut Vec<ObjectRef<'g>>| self.expand(entry, &mut expansion, out);
        let more = self.store().range(self.guard, range, limit, out, expand)?;
        expansion.finish()?;
        self.still_named()?;
        let last = out.last().map(|object| object.element(self.table.key()));
        match (last, far_end(between, down)) {
            (Some(last), Some((end, false))) if compare(end.term(), last).is_eq() => {
                out.pop();
                Ok(false)
            }
            _ => Ok(more),
        }
    }

    /// Shows the entries between two bounds in slices, until there are no more or `see` breaks.
    fn pass(
        self,
        between: Between<'_, Probe<'_>>,
        down: bool,
        patient: bool,
        mut see: impl FnMut(&[Entry]) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let (store, place) = (self.store(), self.table.key());
        let (mut objects, mut entries) = (Vec::new(), Vec::new());
        let (mut last, mut passed) = (None, 0);
        loop {
            objects.clear();
            let mut range = range_of(between, down);
            range.from = last
                .as_ref()
                .map_or(range.from, |key: &OwnedKey| Some((key.probe(), false)));
            let more = store.range(self.guard, range, SLICE, &mut objects, |entry, objects| {
                // The engine may have taken back some entries that it showed before.
                entries.truncate(objects.len());
                entries.push(entry);
                // SAFETY: objects are retired through the epoch. The engine takes back what was not valid.
                objects.push(unsafe { ObjectRef::stored(entry, place) });
            })?;
            entries.truncate(objects.len());
            // SAFETY: the engine has validated the entries.
            let key = |entry: &Entry| unsafe { stored_key(*entry, place) };
            let end = entries.last().and_then(key);
            let mut shown = &entries[..];
            if let (Some(end), Some((to, false))) = (end, far_end(between, down)) {
                if compare(to.term(), end).is_eq() {
                    shown = &entries[..entries.len() - 1];
                }
            }
            passed += shown.len();
            if see(shown).is_break() || !more {
                return Ok(());
            }
            if passed > PASSED_LIMIT && !patient {
                return Err(Failure::Big);
            }
            last = end.map(OwnedKey::new);
        }
    }
}

/// How much work a store that keeps counts may do.
fn work_limit(patient: bool) -> usize {
    match patient {
        true => usize::MAX,
        false => WORK_LIMIT,
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
