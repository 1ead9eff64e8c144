//! What a transaction does with a key of a bag. It does not replace the objects of the key, of which there may be very many. So it need not
//! have read them.

use crate::engines::Kind;
use crate::failure::Failure;
use crate::object::group::{extent, Group, KeyPlace, Room, GROUP_LIMIT};
use crate::object::schema::{identical, Probe};
use crate::object::{is_group, Object};
use crate::operations::insert::Incoming;
use crate::table::{Handle, Table};
use cats_engine::{Entry, Step};
use cats_sync::epoch::Guard;

/// First removes objects of the key, and then adds others. Has at least one object.
pub struct BagChange {
    /// Whether all objects are removed.
    all: bool,
    /// Otherwise those that equal one of these are.
    gone: Vec<Incoming>,
    added: Vec<Incoming>,
}

impl BagChange {
    /// Removes `all` objects or none.
    pub fn new(all: bool) -> Self {
        Self {
            all,
            gone: Vec::new(),
            added: Vec::new(),
        }
    }

    /// Removes what equals this object, before others are added.
    pub fn remove(&mut self, handle: Handle<'_>, object: Object<'_>) -> Result<(), Failure> {
        self.gone.push(Incoming::for_any(handle.guard, handle.table, object)?);
        Ok(())
    }

    /// Adds this object, in a `bag` unless the key has it.
    pub fn add(&mut self, handle: Handle<'_>, object: Object<'_>) -> Result<(), Failure> {
        self.added.push(Incoming::for_any(handle.guard, handle.table, object)?);
        Ok(())
    }

    fn first(&self) -> &Incoming {
        self.added.iter().chain(&self.gone).next().expect("an object")
    }

    pub(super) fn probe(&self) -> &Probe<'static> {
        self.first().stable_probe()
    }

    /// How many objects it adds, and how many it removes at least.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.added.len(), self.gone.len() + usize::from(self.all))
    }

    fn key(&self, table: &Table) -> KeyPlace {
        table.key_place(self.first().entry().key)
    }

    /// What [`carry_out`](Self::carry_out) needs. Changes nothing. Fails with [`Failure::Big`] if very many objects may be removed on a
    /// scheduler. `old` is the entry of the place, which is locked.
    pub(super) fn provide(&self, table: &Table, old: Option<Entry>) -> Result<Room, Failure> {
        let key = self.key(table);
        let old = old.filter(|_| !self.all).map(|old| old.body);
        let room = match old.filter(|body| is_group(*body)) {
            // SAFETY: the place is locked until the change was carried out, and this value owns its objects.
            Some(body) => unsafe {
                let group = Group::from_body(body);
                let limit = GROUP_LIMIT.part_of(group.count());
                let is_much = |gone: &Incoming| group.may_equal_more(key, key.object(gone.body()), limit);
                if self.gone.iter().any(is_much) {
                    return Err(Failure::Big);
                }
                Room::within(group, self.added.len(), !self.gone.is_empty())
            },
            None if usize::from(old.is_some()) + self.added.len() < 2 => Some(Room::default()),
            // SAFETY: as above.
            None => unsafe { Room::for_new(key, old.into_iter().chain(self.added.iter().map(Incoming::body))) },
        };
        room.ok_or(Failure::NoMemory)
    }

    /// Returns the step for the place, and the body of an entry that nothing links to after the step. Calls `count` with the objects and
    /// bytes that are added. The place is locked, and was locked when the `room` was provided for its entry.
    pub(super) fn carry_out(
        &self,
        (guard, table): (&Guard, &Table),
        old: Option<Entry>,
        mut room: Room,
        count: impl Fn(i64, i64),
    ) -> (Step, Option<u64>) {
        let key = self.key(table);
        let unique = table.kind() == Kind::Bag;
        let old = old.map(|old| old.body);
        // SAFETY: the place is locked, so its objects live. They are looked at before they are retired, and the new ones are this value's.
        let extent = |body: Option<u64>| unsafe { body.map_or((0, 0), |body| extent(body)) };
        let before = extent(old);
        // The body of the key's entry so far, whether the former one has changed, and whether a new group has its object.
        let mut now = old.filter(|_| !self.all);
        let (mut touched, mut moved) = (false, false);
        // SAFETY: the place is locked, so its objects live, and this is the only writer of its group. This value owns the new objects.
        unsafe {
            for gone in &self.gone {
                let gone = key.object(gone.body());
                match now {
                    Some(body) if is_group(body) => {
                        let removed = Group::from_body(body).remove(guard, key, gone, unique, usize::MAX);
                        touched |= removed != Some(0);
                    }
                    Some(body) if identical(key.object(body), gone) => now = None,
                    _ => (),
                }
            }
            for added in &self.added {
                let object = key.object(added.body());
                let Some(body) = now else {
                    now = Some(added.take().body);
                    continue;
                };
                if !is_group(body) {
                    if unique && identical(key.object(body), object) {
                        continue;
                    }
                    let new = room.take_group().expect("room for a group");
                    Group::from_body(new).insert_into_room(guard, key, body, &mut room);
                    (now, moved) = (Some(new), moved || old == Some(body));
                }
                let group = Group::from_body(now.unwrap_or(body));
                if unique && is_group(body) && group.contains(key, object) {
                    continue;
                }
                group.insert_into_room(guard, key, added.take().body, &mut room);
                touched = true;
            }
        }
        let now = now.filter(|body| extent(Some(*body)).0 != 0);
        let after = extent(now);
        if after != before {
            count(after.0 as i64 - before.0 as i64, after.1 as i64 - before.1 as i64);
        }
        let step = match now {
            None if old.is_none() => Step::Keep,
            None => Step::Remove,
            now if now == old && touched => Step::Touch,
            now if now == old => Step::Keep,
            Some(body) => Step::Put(Entry { key: key.word, body }),
        };
        (step, old.filter(|_| now != old && !moved))
    }
}
