//! `insert/2` and `insert_new/2`, of one object and of lists. A list is atomic and isolated: all places are locked together.

use crate::failure::{Cause, Failure};
use crate::object::group::{retire_entry, retire_replaced, Group};
use crate::object::schema::{identical, Probe};
use crate::object::{body_bytes, free_body, is_group, key_of, more_bytes, refers, Layout, Object};
use crate::table::options::Kind;
use crate::table::store::Store;
use crate::table::{Handle, Table};
use cats_engine::{Entry, Step};
use cats_sync::epoch::Guard;
use cats_term::{is_immediate, TermRef};
use smallvec::SmallVec;
use std::cell::Cell;

/// The most that the objects of a list may [cost](Object::cost) on a scheduler: in an `ordered_set` where all misses the caches
/// it takes 0.7 ms.
pub const LIST_LIMIT: usize = 1000;

/// In the place of a body: the table lost the name by which it was found, or memory is exhausted. One word is passed on, as two would
/// go through memory. No body has these low bits.
const NOT_NAMED: u64 = 0b0101;
const EXHAUSTED: u64 = 0b1101;

/// The key of an object that is to be inserted, to search for. The object has one.
#[inline(always)]
fn probe_of<'a>(table: &Table, object: &'a Object<'_>) -> Probe<'a> {
    match table.kind() {
        Kind::OrderedSet => Probe::ordered(object.element(table.key())),
        _ => object.exact_probe(table.key()),
    }
}

/// Objects of a list for which nothing need be allocated.
const FEW: usize = 16;

/// An object ready to be stored, which frees itself unless it was [taken](Self::take).
pub(crate) struct Incoming {
    entry: Entry,
    /// Refers into the object.
    probe: Probe<'static>,
    taken: Cell<bool>,
}

impl Incoming {
    /// For a table that does not pack its objects. Fails with [`Cause::None`] when the object has no key. Inlined, as copying the
    /// value through memory would cost a third of inserting it.
    #[inline(always)]
    pub fn new(guard: &Guard, table: &Table, object: Object<'_>) -> Result<Self, Failure> {
        let layout = Layout {
            packed: false,
            ..table.layout()
        };
        if object.arity() <= layout.key {
            return Err(Cause::None.into());
        }
        debug_assert!(!table.layout().packed);
        let probe = probe_of(table, &object);
        // SAFETY: an immediate refers to nothing; any other key is in the block, which stays where it is and lives as long as
        // this value, or as the guard under which this value is taken.
        let probe: Probe<'static> = unsafe { std::mem::transmute::<Probe<'_>, Probe<'static>>(probe) };
        let body = match object.inline(layout) {
            Some(body) => body,
            None => object.into_body(layout, guard).ok_or(Failure::SystemLimit)?,
        };
        let entry = Entry {
            key: probe.word(),
            body,
        };
        Ok(Self {
            entry,
            probe,
            taken: Cell::new(false),
        })
    }

    /// For any table: in one that packs its objects the key is read from where it is once the object is packed.
    #[inline(never)]
    pub fn for_any(guard: &Guard, table: &Table, object: Object<'_>) -> Result<Self, Failure> {
        let layout = table.layout();
        if !layout.packed || object.arity() <= layout.key {
            return Self::new(guard, table, object);
        }
        let word = probe_of(table, &object).word();
        let body = object.into_body(layout, guard).ok_or(Failure::SystemLimit)?;
        let entry = Entry { key: word, body };
        Ok(Self {
            entry,
            // SAFETY: as in `new`.
            probe: table.probe(unsafe { key_of(entry, layout.key) }),
            taken: Cell::new(false),
        })
    }

    #[inline]
    pub fn probe(&self) -> Probe<'_> {
        self.probe
    }

    /// The entry that the object will have.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        self.entry
    }

    /// The body of the object.
    #[inline]
    pub fn body(&self) -> u64 {
        self.entry.body
    }

    /// Bytes of the object's block.
    #[inline]
    pub(crate) fn bytes(&self) -> i64 {
        // SAFETY: the object is this value's own.
        unsafe { body_bytes(self.entry.body) as i64 }
    }

    /// The entry, now the table's.
    #[inline]
    pub(crate) fn take(&self) -> Entry {
        self.taken.set(true);
        self.entry
    }
}

/// What has come into a store and gone from it, counted once for all: to count takes a quarter as long as to put an object. Also
/// where a step unwinds, as it does for want of memory: what was put before it stays.
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
            unsafe { free_body(self.entry.body) }
        }
    }
}

impl Table {
    /// A key to search for in this table.
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
        if !self.table.options().plain() {
            return self.insert_into_any(object);
        }
        let store = self.store();
        let incoming = Incoming::new(self.guard, self.table, object)?;
        let probe = incoming.probe;
        let old = store.update_plain(
            self.guard,
            &probe,
            // What is not taken is freed in the step: the default engines are done with the key then, as nothing is put.
            #[inline(always)]
            move |old| self.put_if_named(store, old, &incoming),
        )?;
        self.retire_outcome(old)
    }

    #[inline(never)]
    fn insert_into_any(self, object: Object<'_>) -> Result<(), Failure> {
        let store = self.store();
        let incoming = Incoming::for_any(self.guard, self.table, object)?;
        if self.detaches(store) {
            return self.insert_detached(store, incoming);
        }
        let probe = incoming.probe;
        let old = store.update(self.guard, &probe, |old| self.put_if_named(store, old, &incoming))?;
        self.retire_outcome(old)
    }

    /// As [`put`](Self::put), if the table still has the name by which it was found: the body of the entry that is replaced, 0 for none,
    /// or why it failed.
    #[inline(always)]
    fn put_if_named(self, store: &Store, old: Option<Entry>, incoming: &Incoming) -> (Step, u64) {
        if self.still_named().is_err() {
            return (Step::Keep, NOT_NAMED);
        }
        let (step, replaced) = self.put(old, incoming, |objects, bytes| store.count(objects, bytes));
        (step, replaced.map_or(EXHAUSTED, |old| old.unwrap_or(0)))
    }

    /// Retires what [`put_if_named`](Self::put_if_named) replaced.
    #[inline(always)]
    fn retire_outcome(self, old: u64) -> Result<(), Failure> {
        if refers(old) {
            // SAFETY: the place holds another entry now.
            unsafe { retire_replaced(self.guard, old) }
            return Ok(());
        }
        match old {
            NOT_NAMED => Err(Cause::Id.into()),
            EXHAUSTED => Err(Failure::SystemLimit),
            _ => Ok(()),
        }
    }

    /// `insert_new/2` of one object: false when the key has an object.
    pub fn insert_new(self, object: Object<'_>) -> Result<bool, Failure> {
        let store = self.store();
        let incoming = Incoming::for_any(self.guard, self.table, object)?;
        let probe = incoming.probe;
        store.update(self.guard, &probe, |old| {
            if let Err(failure) = self.still_named() {
                return (Step::Keep, Err(failure));
            }
            if old.is_some() {
                return (Step::Keep, Ok(false));
            }
            let (step, result) = self.put(None, &incoming, |objects, bytes| store.count(objects, bytes));
            (step, result.map(|_| true))
        })?
    }

    /// `insert/2` and `insert_new/2` of a list, atomic and isolated. With `new`, false and nothing done when one of the keys
    /// has an object already. Fails with [`Failure::Big`], and nothing done, when they cost too much for a caller that is not
    /// `patient`, and as the first of the objects that failed.
    pub fn insert_list<'a, E: From<Failure>>(
        self,
        objects: impl ExactSizeIterator<Item = Result<Object<'a>, E>>,
        new: bool,
        patient: bool,
    ) -> Result<bool, E> {
        let store = self.store();
        let packed = self.table.layout().packed;
        let mut incoming = SmallVec::<[Incoming; FEW]>::with_capacity(objects.len());
        let mut cost = 0;
        for object in objects {
            let object = object?;
            cost += object.cost();
            if cost > LIST_LIMIT && !patient {
                return Err(Failure::Big.into());
            }
            // In line where that is possible: see there.
            incoming.push(match packed {
                false => Incoming::new(self.guard, self.table, object)?,
                true => Incoming::for_any(self.guard, self.table, object)?,
            });
        }
        if incoming.is_empty() {
            return Ok(true);
        }
        let probes: SmallVec<[_; FEW]> = incoming.iter().map(|incoming| &incoming.probe).collect();
        let mut replaced = Vec::new();
        let result = store.update_many(self.guard, &probes, |places| {
            self.still_named()?;
            if new && (0..incoming.len()).any(|i| places.get(i).is_some()) {
                return Ok(false);
            }
            let (sums, counted) = (Cell::new((0, 0)), Counted::nothing(store));
            let add = |objects, bytes| sums.set((sums.get().0 + objects, sums.get().1 + bytes));
            let done = incoming.iter().enumerate().try_for_each(|(i, incoming)| {
                // One word each, and not one result: two words that pass through memory and are read as one make the processor wait.
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
            // SAFETY: the places hold other entries now.
            unsafe { retire_entry(self.guard, old) }
        }
        Ok(result.map_err(Failure::from)??)
    }

    /// Puts an object in a place that is locked, and has the objects and bytes that come or go counted. The second value is the body
    /// of an entry that the step replaces, to be retired after the step.
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
            // To count is a call, and mostly there is nothing.
            if more != 0 {
                count(0, more);
            }
            return (Step::Put(incoming.take()), Ok(Some(old.body)));
        }
        let (step, result) = self.add_to_bag(old, incoming.body(), count);
        if step != Step::Keep {
            incoming.take();
        }
        (step, result.map(|()| None))
    }

    /// Puts the object with this body, which is kept by any step but [`Step::Keep`], into a place of a bag that has one.
    #[inline(never)]
    fn add_to_bag(self, old: Entry, body: u64, count: impl Fn(i64, i64)) -> (Step, Result<(), Failure>) {
        let key = self.table.key_place(old.key);
        let unique = self.table.kind() == Kind::Bag;
        // SAFETY: the place is locked, so its objects live and this is the group's only writer; the new object is our own.
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
                    return (Step::Keep, Err(Failure::SystemLimit));
                }
                count(1, group.bytes() as i64 - before as i64);
                return (Step::Touch, Ok(()));
            }
            if unique && identical(key.object(old.body), object) {
                return (Step::Keep, Ok(()));
            }
            let Some(group) = Group::of_two(key, old.body, body) else {
                return (Step::Keep, Err(Failure::SystemLimit));
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

/// Whether all of a tuple's words are immediates, so that it can be stored as they are.
#[inline]
pub fn is_flat(words: &[u64]) -> bool {
    words.iter().all(|word| is_immediate(*word))
}
