//! Order statistics of a snapshot. The counts of the live table are not those of the snapshot, so entries are passed, from the nearest
//! [mark](crate::history::marks) on.

use super::{Snapshot, MOST_ENTRIES};
use crate::budget::Budget;
use crate::history::marks::{Mark, EVERY};
use crate::object::schema::{OwnedKey, Probe};
use crate::object::ObjectRef;
use crate::snapshot::gather::Gathered;
use crate::store::other::Expand;
use cats_engine::{Between, Range};
use cats_sync::epoch::Guard;
use cats_sync::Busy;
use cats_term::compare;

/// The entries and nodes that a scheduler passes.
const COUNTED: Budget = Budget(10_000);

impl Snapshot {
    /// The number of entries between two bounds.
    pub(super) fn number_between(&self, guard: &Guard, between: Between<'_, Probe<'static>>) -> Result<usize, Busy> {
        let Between { from, to } = between;
        let Some((first, inclusive)) = from else {
            return self.count_up_to(guard, to);
        };
        let marks = self.marks();
        let to_key = to.map(|(key, _)| key.term());
        if marks.has_passed(Some(first.term()))? && marks.has_passed(to_key)? {
            let below = self.count_up_to(guard, Some((first, !inclusive)))?;
            return Ok(self.count_up_to(guard, to)?.saturating_sub(below));
        }
        let range = Range {
            from,
            to: to.map(|(key, _)| key),
            down: false,
        };
        let mut count = 0;
        self.each_part(guard, range, MOST_ENTRIES, COUNTED, &mut |_, _| (), |gathered| {
            count += counted(gathered, to);
            true
        })?;
        Ok(count)
    }

    /// The number of entries up to a bound.
    fn count_up_to(&self, guard: &Guard, to: Option<(&Probe<'static>, bool)>) -> Result<usize, Busy> {
        let marks = self.marks();
        let mark = match to {
            Some((key, _)) => marks.below(key.term())?,
            None => match marks.size()? {
                Some(size) => return Ok(size),
                None => marks.before(usize::MAX)?,
            },
        };
        let mut count = mark.number;
        self.pass(guard, mark, to.map(|(key, _)| key), |_, gathered| {
            count += counted(gathered, to);
            true
        })?;
        Ok(count)
    }

    /// Appends the objects of the entry with this number in the order of keys, counted from 0. With `true`, in the opposite order. Appends
    /// nothing if there are not so many entries.
    pub(super) fn by_number<'g>(
        &self,
        guard: &'g Guard,
        (number, down): (usize, bool),
        out: &mut Vec<ObjectRef<'g>>,
        expand: Expand<'_, 'g>,
    ) -> Result<(), Busy> {
        let mut found = None;
        match self.upwards(number, down)? {
            Some((number, mark)) => self.pass(guard, mark, None, |first, gathered| {
                found = gathered.entries.get(number - first).map(|seen| seen.entry);
                found.is_none()
            })?,
            None => {
                let all = Range {
                    from: None,
                    to: None,
                    down,
                };
                let mut left = number;
                self.each_part(guard, all, MOST_ENTRIES, COUNTED, &mut |_, _| (), |gathered| {
                    found = gathered.entries.get(left).map(|seen| seen.entry);
                    left = left.saturating_sub(gathered.entries.len());
                    found.is_none()
                })?;
            }
        }
        // The entry does not change.
        found.into_iter().for_each(|entry| expand(entry, out));
        Ok(())
    }

    /// The number of an entry as counted from the first one, and the mark before it. `None` if it is nearer from the last one, or is not
    /// there.
    fn upwards(&self, number: usize, down: bool) -> Result<Option<(usize, Mark)>, Busy> {
        let marks = self.marks();
        if !down {
            return Ok(Some((number, marks.before(number)?)));
        }
        let size = marks.size()?.or_else(|| self.exact_size());
        let Some(upwards) = size.and_then(|size| size.checked_sub(number)?.checked_sub(1)) else {
            return Ok(None);
        };
        let mark = marks.before(upwards)?;
        Ok((upwards - mark.number <= number).then_some((upwards, mark)))
    }

    /// Calls `show` with the parts from a mark on up to a key, and the number of the first entry of each, until it returns false. Notes
    /// marks.
    fn pass<'g>(
        &self,
        guard: &'g Guard,
        mark: Mark,
        to: Option<&Probe<'static>>,
        mut show: impl FnMut(usize, &Gathered<'g>) -> bool,
    ) -> Result<(), Busy> {
        let marks = self.marks();
        let Mark { mut number, key } = mark;
        let range = Range {
            from: key.as_deref().map(OwnedKey::probe).map(|probe| (probe.erase(), false)),
            to,
            down: false,
        };
        let mut complete = to.is_none();
        self.each_part(guard, range, EVERY, COUNTED, &mut |_, _| (), |gathered| {
            let first = number;
            for seen in &gathered.entries {
                number += 1;
                marks.note(number, seen.key);
            }
            let more = show(first, gathered);
            complete &= more;
            more
        })?;
        if complete {
            marks.note_size(number);
        }
        Ok(())
    }
}

/// The number of entries of a part that is within a bound, whose own key may be excluded.
fn counted(gathered: &Gathered<'_>, to: Option<(&Probe<'static>, bool)>) -> usize {
    let entries = &gathered.entries;
    let excluded = match (entries.last(), to) {
        (Some(last), Some((key, false))) => compare(last.key, key.term()).is_eq(),
        _ => false,
    };
    entries.len() - usize::from(excluded)
}
