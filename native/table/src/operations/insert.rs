//! `insert/2` and `insert_new/2`, of one object and of lists. A list is inserted atomically and in isolation: all its places are locked
//! together.

use crate::budget::Budget;
use crate::engines::Kind;
use crate::failure::{Cause, Failure};
use crate::object::group::{retire_entry, retire_replaced, Group};
use crate::object::schema::{identical, Probe};
use crate::object::{body_bytes, free_new, is_group, key_of, more_bytes, refers, unseated, Layout, Object};
use crate::store::limited::Planned;
use crate::store::{Content, Plain, Store};
use crate::table::{Handle, Table};
use crate::write_log::Actor;
use cats_engine::{Entry, Step};
use cats_sync::epoch::Guard;
use cats_sync::slab::{self, account, Relief};
use cats_term::lease::Request;
use cats_term::{equal, is_immediate, TermRef};
use smallvec::SmallVec;
use std::cell::Cell;

/// The largest [cost](Object::cost) of a list's objects on a scheduler. It is chosen so that the insertion stays below a millisecond even
/// in an `ordered_set` where every access misses the caches.
pub const LIST_LIMIT: Budget = Budget(1000);

/// These stand in place of a body. The table lost the name by which it was found, memory is exhausted, or the key has an object. A result
/// of one word stays in a register. Only seats have these low bits, and greater words.
const NOT_NAMED: u64 = 0b0101;
const EXHAUSTED: u64 = 0b1101;
const PRESENT: u64 = 0b10101;

/// The probe for the key of an object to insert. The object has a key.
#[inline(always)]
fn probe_of<'a>(table: &Table, object: &'a Object<'_>) -> Probe<'a> {
    match table.kind() {
        Kind::OrderedSet => Probe::ordered(object.element(table.key())),
        _ => object.exact_probe(table.key()),
    }
}

/// About the bytes that structures take for an object, at most.
const PLACE_BYTES: usize = 64;

/// Fails if structures would pass the limit of all memory by so many objects, which are in memory already. A call that puts several of them
/// checks this first, and has a [`Relief`] when it puts them. So it does not fail half way.
pub(super) fn check_room(objects: usize) -> Result<(), Failure> {
    let bytes = objects * PLACE_BYTES;
    match objects == 0 || account::admits(|| bytes) || slab::has_unused(bytes) {
        true => Ok(()),
        false => Err(Failure::NoMemory),
    }
}

/// Lists of up to this number of objects need no allocation.
const STACK_OBJECTS: usize = 16;

/// An object ready to be stored. It is freed when this value is dropped, unless it was [taken](Self::take).
pub(crate) struct Incoming {
    entry: Entry,
    /// That of the object, without what it requests.
    body: u64,
    /// Refers into the object.
    probe: Probe<'static>,
    taken: Cell<bool>,
}

impl Incoming {
    /// For a table without leases, which stores the object as it is. Fails with [`Cause::None`] if the object has no key. Inlined, because
    /// copying the value through memory would be a large part of the cost of an insertion.
    #[inline(always)]
    pub fn new(guard: &Guard, table: &Table, object: Object<'_>) -> Result<Self, Failure> {
        let layout = Layout {
            packed: false,
            leased: false,
            seated: false,
            idle: false,
            bounded: false,
            ..table.layout()
        };
        if object.arity() <= layout.key {
            return Err(Cause::None.into());
        }
        debug_assert!(!table.layout().leased);
        let probe = probe_of(table, &object);
        // SAFETY: an immediate refers to no memory. Any other key is in the block. That stays where it is, and lives as long as this value,
        // or if the object is taken, as long as the guard.
        let probe: Probe<'static> = unsafe { std::mem::transmute::<Probe<'_>, Probe<'static>>(probe) };
        let body = match object.inline(layout) {
            Some(body) => body,
            None => object.into_body(layout, guard).ok_or(Failure::NoMemory)?,
        };
        let entry = Entry {
            key: probe.word(),
            body,
        };
        Ok(Self {
            entry,
            body,
            probe,
            taken: Cell::new(false),
        })
    }

    /// For any table. If the table's objects have leases, the key is read from what is stored.
    #[inline(never)]
    pub fn for_any(guard: &Guard, table: &Table, object: Object<'_>) -> Result<Self, Failure> {
        Self::requesting(guard, table, object, Request::Fresh)
    }

    /// The same, for an object that requests this lease. In a table without leases the request does nothing.
    pub fn requesting(guard: &Guard, table: &Table, object: Object<'_>, request: Request) -> Result<Self, Failure> {
        let layout = table.layout();
        if object.arity() <= layout.key {
            return Err(Cause::None.into());
        }
        if !layout.leased {
            let object = match layout.packed {
                true => object.packed(layout.key),
                false => object,
            };
            return Self::new(guard, table, object);
        }
        let word = probe_of(table, &object).word();
        let body = object
            .into_leased_body(request, layout, guard)
            .ok_or(Failure::NoMemory)?;
        let entry = Entry { key: word, body };
        // SAFETY: nobody else knows the object.
        let object = unsafe { unseated(entry) };
        Ok(Self {
            entry,
            body: object.body,
            // SAFETY: as in `new`.
            probe: table.probe(unsafe { key_of(object, layout.key) }),
            taken: Cell::new(false),
        })
    }

    #[inline]
    pub fn probe(&self) -> Probe<'_> {
        self.probe
    }

    /// The probe, which is valid as long as this value.
    #[inline]
    pub(crate) fn stable_probe(&self) -> &Probe<'static> {
        &self.probe
    }

    /// The entry that the object will have.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        self.entry
    }

    /// The body of the object, without what it requests.
    #[inline]
    pub fn body(&self) -> u64 {
        self.body
    }

    /// The size in bytes of the object's block.
    #[inline]
    pub(crate) fn bytes(&self) -> i64 {
        // SAFETY: this value owns the object.
        unsafe { body_bytes(self.body()) as i64 }
    }

    /// The entry, which belongs to the table from now on.
    #[inline]
    pub(crate) fn take(&self) -> Entry {
        self.taken.set(true);
        self.entry
    }
}

/// Counts objects and bytes that were added to or removed from a store, and adds the sums to its counters when dropped. Counting once for a
/// list is cheaper than for each object. If a step panics because memory is exhausted, what was inserted before it stays and is counted.
struct Counted<'a> {
    store: &'a Store,
    /// Objects and bytes.
    sums: Cell<(i64, i64)>,
}

impl<'a> Counted<'a> {
    fn nothing(store: &'a Store) -> Self {
        Self {
            store,
            sums: Cell::new((0, 0)),
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let (objects, bytes) = self.sums.get();
        self.store.count(objects, bytes);
    }
}

impl Drop for Incoming {
    #[inline]
    fn drop(&mut self) {
        if !self.taken.get() {
            // SAFETY: nobody else has seen the object.
            unsafe { free_new(self.entry.body) }
        }
    }
}

impl Table {
    /// The probe for a key in this table.
    #[inline(always)]
    pub fn probe<'a>(&self, key: TermRef<'a>) -> Probe<'a> {
        if self.kind() == Kind::OrderedSet {
            Probe::ordered(key)
        } else {
            Probe::exact(key)
        }
    }
}

impl Handle<'_> {
    /// `insert/2` of one object.
    #[inline(always)]
    pub fn insert(self, object: Object<'_>) -> Result<(), Failure> {
        let store = self.store();
        match store.plain().filter(|_| self.table.options().plain()) {
            Some(plain) => self.insert_directly::<false>(store, plain, object),
            None => self.insert_into_any(store, object),
        }
    }

    /// [`insert`](Self::insert) into a default engine without leases. `PACKED` says whether the table packs its objects.
    #[inline(always)]
    fn insert_directly<const PACKED: bool>(
        self,
        store: &Store,
        plain: Plain<'_>,
        object: Object<'_>,
    ) -> Result<(), Failure> {
        let object = match PACKED {
            true => object.packed(self.table.key()),
            false => object,
        };
        let incoming = Incoming::new(self.guard, self.table, object)?;
        let probe = incoming.probe;
        let old = plain.update(
            self.guard,
            &probe,
            // If the object is not taken, the step frees it, and the key with it. That is allowed: if nothing is put, the default engines
            // do not use the key after the step.
            #[inline(always)]
            move |old| self.put_if_named(store, old, &incoming),
        )?;
        self.retire_outcome(old)
    }

    #[inline(never)]
    fn insert_into_any(self, store: &Store, object: Object<'_>) -> Result<(), Failure> {
        if let Some(plain) = store.plain() {
            return self.insert_directly::<true>(store, plain, object);
        }
        let incoming = Incoming::for_any(self.guard, self.table, object)?;
        self.insert_incoming(store, incoming)
    }

    pub(crate) fn insert_incoming(self, store: &Store, incoming: Incoming) -> Result<(), Failure> {
        #[cfg(feature = "compared")]
        if let Some(engine) = self.detaching(store) {
            return self.insert_detached(store, engine, incoming);
        }
        let probe = incoming.probe;
        let body = incoming.body();
        let old = store.update_adding(
            self.guard,
            &probe,
            body,
            |_| true,
            |old| self.put_if_named(store, old, &incoming),
        )?;
        self.retire_outcome(old)
    }

    /// Inserts objects one after the other, each as [`insert`](Self::insert) does. The cache misses of all of them overlap. Returns how many
    /// were inserted, and why the next one was not.
    pub fn insert_together<'a>(self, objects: impl IntoIterator<Item = Object<'a>>) -> (usize, Result<(), Failure>) {
        let store = self.store();
        let mut failed = Ok(());
        let mut incoming = SmallVec::<[Incoming; STACK_OBJECTS]>::new();
        for object in objects {
            match Incoming::for_any(self.guard, self.table, object) {
                Ok(object) => incoming.push(object),
                Err(failure) => {
                    failed = Err(failure);
                    break;
                }
            }
        }
        let all = incoming.len();
        if all > 1 && self.evicts() {
            let probes: SmallVec<[_; STACK_OBJECTS]> = incoming.iter().map(Incoming::stable_probe).collect();
            let planned = |i: usize| Planned::Put(incoming[i].body());
            if let Err(busy) = store.make_room_for(self.guard, &probes, planned) {
                return (0, Err(busy.into()));
            }
        }
        let (mut rest, together) = (incoming.into_iter(), self.outgrows_caches());
        for count in 0..all {
            if together && count % STACK_OBJECTS == 0 {
                let next = rest.as_slice().iter().take(STACK_OBJECTS);
                self.prefetch_together(next.map(Incoming::stable_probe));
            }
            let Some(incoming) = rest.next() else { break };
            if let Err(failure) = self.insert_incoming(store, incoming) {
                return (count, Err(failure));
            }
        }
        (all, failed)
    }

    /// Whether objects are evicted where others are added.
    pub fn evicts(self) -> bool {
        self.store().limit().is_some_and(|limit| limit.policy.is_some())
    }

    /// [`put`](Self::put), if the table still has the name by which it was found. Returns the body of the replaced entry, 0 if there was
    /// none, or one of the two constants.
    #[inline(always)]
    fn put_if_named(self, store: &Store, old: Option<Entry>, incoming: &Incoming) -> (Step, u64) {
        if self.still_named().is_err() {
            return (Step::Keep, NOT_NAMED);
        }
        let (step, replaced) = self.put(old, incoming, |objects, bytes| store.count(objects, bytes));
        (step, replaced.map_or(EXHAUSTED, |old| old.unwrap_or(0)))
    }

    /// Retires what [`put_if_named`](Self::put_if_named) replaced, or returns its failure.
    #[inline(always)]
    fn retire_outcome(self, old: u64) -> Result<(), Failure> {
        if refers(old) {
            // SAFETY: the place has another entry now.
            unsafe { retire_replaced(self.guard, old) }
            return Ok(());
        }
        match old {
            NOT_NAMED => Err(Cause::Id.into()),
            EXHAUSTED => Err(Failure::NoMemory),
            _ => Ok(()),
        }
    }

    /// `insert_new/2` of one object. Returns false if the key already has an object.
    #[inline(always)]
    pub fn insert_new(self, object: Object<'_>) -> Result<bool, Failure> {
        let store = self.store();
        match store.plain().filter(|_| self.table.options().plain()) {
            Some(plain) => self.insert_new_directly(store, plain, object),
            None => self.insert_new_into_any(object),
        }
    }

    /// [`insert_new`](Self::insert_new) into a plain table.
    #[inline(always)]
    fn insert_new_directly(self, store: &Store, plain: Plain<'_>, object: Object<'_>) -> Result<bool, Failure> {
        let incoming = Incoming::new(self.guard, self.table, object)?;
        let probe = incoming.probe;
        let outcome = plain.update(
            self.guard,
            &probe,
            // As in `insert_directly`, the step frees an object that is not taken.
            #[inline(always)]
            move |old| match old {
                Some(_) if self.still_named().is_ok() => (Step::Keep, PRESENT),
                Some(_) => (Step::Keep, NOT_NAMED),
                None => self.put_if_named(store, None, &incoming),
            },
        )?;
        match outcome {
            PRESENT => Ok(false),
            outcome => self.retire_outcome(outcome).map(|()| true),
        }
    }

    #[inline(never)]
    fn insert_new_into_any(self, object: Object<'_>) -> Result<bool, Failure> {
        let incoming = Incoming::for_any(self.guard, self.table, object)?;
        self.insert_new_incoming(&incoming)
    }

    #[inline]
    pub(crate) fn insert_new_incoming(self, incoming: &Incoming) -> Result<bool, Failure> {
        let store = self.store();
        let probe = incoming.probe;
        store.update_adding(
            self.guard,
            &probe,
            incoming.body(),
            |old| old.is_none(),
            |old| {
                if let Err(failure) = self.still_named() {
                    return (Step::Keep, Err(failure));
                }
                if old.is_some() {
                    return (Step::Keep, Ok(false));
                }
                let (step, result) = self.put(None, incoming, |objects, bytes| store.count(objects, bytes));
                (step, result.map(|_| true))
            },
        )?
    }

    /// `insert/2` and `insert_new/2` of a list, atomically and in isolation. With `new`, returns false and does nothing if one of the keys
    /// already has an object. Fails with [`Failure::Big`], and does nothing, if the objects cost too much for this thread.
    /// If an object could not be made, fails as the first such object did. The objects request this lease, where they have any.
    pub fn insert_list<'a, E: From<Failure>>(
        self,
        objects: impl ExactSizeIterator<Item = Result<Object<'a>, E>>,
        new: bool,
        request: Request,
    ) -> Result<bool, E> {
        let store = self.store();
        let (layout, request) = (self.table.layout(), self.bounded(request));
        let mut incoming = SmallVec::<[Incoming; STACK_OBJECTS]>::with_capacity(objects.len());
        let mut cost = 0;
        for object in objects {
            let object = object?;
            cost += object.cost();
            LIST_LIMIT.check(cost)?;
            // `new` is inlined, so it is called where that is possible.
            incoming.push(match layout.packed || layout.leased {
                false => Incoming::new(self.guard, self.table, object)?,
                true => Incoming::requesting(self.guard, self.table, object, request)?,
            });
        }
        if incoming.is_empty() {
            return Ok(true);
        }
        if let Some(plain) = store.plain().filter(|_| self.is_for_one_key(&incoming)) {
            return Ok(self.insert_for_key(store, plain, &incoming, new)?);
        }
        let probes: SmallVec<[_; STACK_OBJECTS]> = incoming.iter().map(|incoming| &incoming.probe).collect();
        check_room(incoming.len())?;
        let mut replaced = Vec::new();
        let planned = |i: usize| match new {
            true => Planned::PutNew(incoming[i].body()),
            false => Planned::Put(incoming[i].body()),
        };
        let result = store.update_many(self.guard, &probes, Actor::OUTSIDE, planned, |places| {
            self.still_named()?;
            if new && (0..incoming.len()).any(|i| places.get(i).is_some()) {
                return Ok(false);
            }
            let (sums, counted) = (Cell::new((0, 0)), Counted::nothing(store));
            let add = |objects, bytes| sums.set((sums.get().0 + objects, sums.get().1 + bytes));
            let _relief = Relief::new();
            let done = incoming.iter().enumerate().try_for_each(|(i, incoming)| {
                // Two variables of one word each. A result of two words would pass through memory, which causes a store-forwarding stall.
                let (mut body, mut outcome) = (0, Ok(()));
                places.update(i, &mut |old| {
                    let (step, result) = self.put(old, incoming, add);
                    match result {
                        Ok(replaced) => body = replaced.unwrap_or(0),
                        Err(failure) => outcome = Err(failure),
                    }
                    step
                });
                counted.sums.set(sums.get());
                replaced.extend(Some(body).filter(|body| *body != 0 && refers(*body)));
                outcome
            });
            done.map(|()| true)
        });
        for old in replaced {
            // SAFETY: the places have other entries now.
            unsafe { retire_entry(self.guard, old) }
        }
        let inserted = result.map_err(Failure::from)??;
        if inserted {
            probes.iter().for_each(|probe| store.written(probe));
        }
        Ok(inserted)
    }

    /// Whether a list of objects is for one key of a bag with a default engine. Then one step inserts it.
    fn is_for_one_key(self, incoming: &[Incoming]) -> bool {
        let (first, rest) = incoming.split_first().expect("an object");
        let word = first.entry.key;
        let has_same_key = |other: &Incoming| {
            other.entry.key == word && (is_immediate(word) || equal(other.probe.term(), first.probe.term()))
        };
        self.table.kind().is_bag() && self.table.options().plain() && rest.iter().all(has_same_key)
    }

    /// [`insert_list`](Self::insert_list) of objects [for one key](Self::is_for_one_key).
    fn insert_for_key(
        self,
        store: &Store,
        plain: Plain<'_>,
        incoming: &[Incoming],
        new: bool,
    ) -> Result<bool, Failure> {
        plain.update(self.guard, &incoming[0].probe, |old| {
            if let Err(failure) = self.still_named() {
                return (Step::Keep, Err(failure));
            }
            if new && old.is_some() {
                return (Step::Keep, Ok(false));
            }
            let counted = Counted::nothing(store);
            let add = |objects, bytes| {
                let (all, size) = counted.sums.get();
                counted.sums.set((all + objects, size + bytes));
            };
            // The entry after the objects so far, and the step from the old entry to it.
            let (mut entry, mut all) = (old, Step::Keep);
            let mut put = |incoming: &Incoming, more: usize| {
                let (step, result) = match entry {
                    Some(entry) => self.put_in_bag(entry, incoming, more, add),
                    None => {
                        add(1, incoming.bytes());
                        (Step::Put(incoming.take()), Ok(()))
                    }
                };
                match step {
                    Step::Put(new) => (entry, all) = (Some(new), step),
                    Step::Touch if all == Step::Keep => all = step,
                    _ => (),
                }
                result
            };
            let done = incoming
                .iter()
                .zip((0..incoming.len()).rev())
                .try_for_each(|(incoming, more)| put(incoming, more));
            (all, done.map(|()| true))
        })?
    }

    /// Puts an object into a locked place. Calls `count` with the objects and bytes that are added. The second result is the body of an
    /// entry that the step replaces. The caller retires it after the step.
    #[inline(always)]
    pub(crate) fn put(
        self,
        old: Option<Entry>,
        incoming: &Incoming,
        count: impl Fn(i64, i64),
    ) -> (Step, Result<Option<u64>, Failure>) {
        let Some(old) = old else {
            count(1, incoming.bytes());
            return (Step::Put(incoming.take()), Ok(None));
        };
        if !self.table.kind().is_bag() {
            // SAFETY: the place is locked, so its object lives.
            let more = unsafe { more_bytes(incoming.body(), old.body) };
            // Counting is a function call, and usually there is nothing to count.
            if more != 0 {
                count(0, more);
            }
            return (Step::Put(incoming.take()), Ok(Some(old.body)));
        }
        let (step, result) = self.put_in_bag(old, incoming, 0, count);
        (step, result.map(|()| None))
    }

    /// [`put`](Self::put) into a place of a bag that has an entry. `more` objects will follow.
    #[inline(always)]
    fn put_in_bag(
        self,
        old: Entry,
        incoming: &Incoming,
        more: usize,
        count: impl Fn(i64, i64),
    ) -> (Step, Result<(), Failure>) {
        let (step, result) = self.add_to_bag(old, incoming.body(), more, count);
        if step != Step::Keep {
            incoming.take();
        }
        (step, result)
    }

    /// Adds the object with this body to a place of a bag that has an entry. Any step but [`Step::Keep`] takes the object.
    #[inline(never)]
    fn add_to_bag(self, old: Entry, body: u64, more: usize, count: impl Fn(i64, i64)) -> (Step, Result<(), Failure>) {
        let key = self.table.key_place(old.key);
        let unique = self.table.kind() == Kind::Bag;
        // SAFETY: the place is locked, so its objects live and this is the group's only writer. The caller owns the new object.
        unsafe {
            let object = key.object(body);
            if is_group(old.body) {
                let group = Group::from_body(old.body);
                let before = group.bytes();
                if unique && group.contains(key, object) {
                    count(0, group.bytes() as i64 - before as i64);
                    return (Step::Keep, Ok(()));
                }
                if !group.insert(self.guard, key, body) {
                    return (Step::Keep, Err(Failure::NoMemory));
                }
                count(1, group.bytes() as i64 - before as i64);
                return (Step::Touch, Ok(()));
            }
            if unique && identical(key.object(old.body), object) {
                return (Step::Keep, Ok(()));
            }
            let Some(group) = Group::of_two(key, old.body, body, more) else {
                return (Step::Keep, Err(Failure::NoMemory));
            };
            count(1, Group::from_body(group).bytes() as i64 - body_bytes(old.body) as i64);
            let entry = Entry {
                key: old.key,
                body: group,
            };
            (Step::Put(entry), Ok(()))
        }
    }
}

/// Whether all of a tuple's words are immediates. Then it can be stored as it is.
#[inline]
pub fn is_flat(words: &[u64]) -> bool {
    words.iter().all(|word| is_immediate(*word))
}
