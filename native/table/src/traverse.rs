//! `first` to `prev_lookup`, and `slot/2`. Traversal of any table is safe without fixing it: the position in a
//! hash table is a hash, in an ordered one a key, and neither needs to be in the table any more.

use crate::failure::{Cause, Failure};
use crate::group::Group;
use crate::lookup::{look, Objects, GROUP_LIMIT};
use crate::object::{is_group, ObjectRef};
use crate::options::Kind;
use crate::schema::Probe;
use crate::table::Handle;
use cats_engine::Entry;
use cats_term::TermRef;

/// The direction of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `first` and `next`.
    Up,
    /// `last` and `prev`; the same as [`Up`](Self::Up) in a table without order.
    Down,
}

/// Places of an ordered table that a scheduler passes, a leaf of some ninety at a time, to come to one by its number.
const SLOTS_LIMIT: usize = 50_000;

/// The fewest buckets that a hash table of ETS has: a program may count on being allowed to ask for as many.
const ETS_BUCKETS: usize = 256;

impl<'g> Handle<'g> {
    /// The key after (before) this one, in the table or not; the first (last) without one.
    pub fn step(self, from: Option<&Probe<'_>>, direction: Direction) -> Result<Option<TermRef<'g>>, Failure> {
        let entry = self.step_with(from, direction, |entry| {
            let mut entry = entry?;
            if is_group(entry.body) {
                // SAFETY: groups are retired through the epoch.
                entry.body = unsafe { Group::from_body(entry.body) }.first()?;
            }
            Some(entry)
        })?;
        // SAFETY: the engine has validated it, and objects are retired through the epoch.
        Ok(entry.map(|entry| unsafe { self.key(entry) }))
    }

    /// As [`step`](Self::step), with all objects of the key.
    pub fn step_lookup(
        self,
        from: Option<&Probe<'_>>,
        direction: Direction,
        patient: bool,
    ) -> Result<Option<(TermRef<'g>, Objects<'g>)>, Failure> {
        let looked = self.step_with(from, direction, |entry| look(entry, patient))?;
        // SAFETY: as in `step`.
        let objects = unsafe { self.table.objects(looked)? };
        let key = objects
            .as_slice()
            .first()
            .map(|object| object.element(self.table.key()));
        Ok(key.map(|key| (key, objects)))
    }

    fn step_with<R>(
        self,
        from: Option<&Probe<'_>>,
        direction: Direction,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Failure> {
        let store = self.store();
        let result = match direction {
            Direction::Up => store.next(self.guard, from, look)?,
            Direction::Down => store.previous(self.guard, from, look)?,
        };
        self.still_named()?;
        Ok(result)
    }

    /// `slot/2`: the objects of a bucket, or of the place with that number in an ordered table; nothing just behind the last.
    /// Fails with [`Failure::Big`] when there are too many for a caller that is not `patient`.
    pub fn slot(self, number: usize, patient: bool) -> Result<Option<Vec<ObjectRef<'g>>>, Failure> {
        let store = self.store();
        let ordered = self.table.kind() == Kind::OrderedSet;
        if ordered && !patient && number.min(store.size()) > SLOTS_LIMIT {
            return Err(Failure::Big);
        }
        let mut large = false;
        let found = store.slot(self.guard, number, |entry, out| {
            if !patient && self.is_large(entry) {
                large = true;
            } else {
                self.expand(entry, out);
            }
        })?;
        self.still_named()?;
        if large {
            return Err(Failure::Big);
        }
        if found.is_none() {
            let end = if ordered {
                store.size()
            } else {
                store.buckets().max(ETS_BUCKETS)
            };
            if number > end {
                return Err(Cause::None.into());
            }
        }
        Ok(found)
    }

    /// Whether the entry is a group of more objects than a scheduler may look at.
    pub(crate) fn is_large(self, entry: Entry) -> bool {
        // SAFETY: groups are retired through the epoch.
        is_group(entry.body) && unsafe { Group::from_body(entry.body) }.count() > GROUP_LIMIT
    }

    /// Appends the objects of an entry, in the order of insertion. Looks into them only where they may be packed.
    #[inline]
    pub(crate) fn expand(self, entry: Entry, out: &mut Vec<ObjectRef<'g>>) {
        // SAFETY: objects and groups are retired through the epoch; the engine takes back what was not valid.
        unsafe {
            if is_group(entry.body) {
                let place = self.table.key_place(entry.key);
                Group::from_body(entry.body).each(|body| {
                    out.push(place.object(body));
                    true
                });
            } else if self.table.options().compressed {
                out.push(ObjectRef::new(entry, self.table.key()));
            } else {
                out.push(ObjectRef::stored(entry, self.table.key()));
            }
        }
    }
}
