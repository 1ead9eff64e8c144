//! Contents of tables whose objects expire: each object has a [lease](cats_term::lease).
//!
//! Reads look at the lease of what they find. So an object is gone when its time has come. A [timer wheel](Wheel) says when to look for it
//! and to free it.
//!
//! An item of the wheel is made from the key. In a `hash`, it is half of the key's place in the order of walks: 4 bytes. In a `ca`, it is
//! the key: 8 bytes if that is an immediate, otherwise a copy of it.
//!
//! An object that expires has an item in the wheel that fires by its deadline. Where a deadline becomes later, the old item stays: when it
//! fires, a new one is added.
//!
//! A fetch may give an object out for some time after its end. The notes of such an object's lease say [`KEPT`]. Only
//! [`Store::read_keeping`] sees it then. Its item fires at its end, when it is counted out and noted as [`ENDED`], and once more when it is
//! to be removed.

use super::limited::{Limits, Paying};
use super::setup::Expiry;
use super::{DefaultEngine, Store};
use crate::evict::account::Limit;
use crate::evict::allowance::{wheel_parts, Limited};
use crate::expiry::notices::{Notices, Why};
use crate::expiry::wake_by;
use crate::expiry::wheel::{Owner, Wheel, CROWD, FEW_PARTS, PARTS};
use crate::failure::Failure;
use crate::object::schema::{OwnedKey, Probe};
use crate::object::{body_bytes, key_of, lease_of, retire_body};
use cats_engine::{place_of, Entry, Locked, Range, Step};
use cats_sync::clock;
use cats_sync::epoch::Guard;
use cats_sync::events::Event;
use cats_sync::facade::{AtomicU64, AtomicUsize, Ordering};
use cats_sync::Busy;
use cats_term::lease::{Lease, Request, NEVER, NOWHERE};
use cats_term::{is_immediate, TermRef, NIL};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A read moves the deadline of an object only if that becomes later by this part of the table's idle time.
const IDLE_PARTS: u64 = 16;

/// The number of expired objects, or of parts of a range of such objects, that a walk passes, and how many of these it leaves.
const STEPS: usize = 500;
const PASSED: usize = 250;

/// If a wheel has so many times as many items as the table has objects, stale ones are sought.
const STALE_FACTOR: usize = 2;

/// In the notes of a lease: a fetch may give the object out for some time after its end.
const KEPT: u64 = 4;
/// In the notes of a lease: the object has ended, and is counted out.
const ENDED: u64 = 8;

/// What a table with leases has besides its engine.
pub struct Leases {
    expiry: Expiry,
    /// The longest time in milliseconds for which a fetch wants objects after their end.
    stale: AtomicU64,
    /// The number of objects that have ended and are kept.
    ended: AtomicUsize,
    /// The position of the key.
    key: usize,
    wheel: Items,
    /// Odd while all items are looked at, as there were too many. Each such sweep has another number.
    sweep: AtomicUsize,
    /// For a table with a limit.
    limits: Option<Limits>,
    /// For a table that tells a process what it removes.
    notices: OnceLock<Arc<Notices>>,
}

enum Items {
    OfHash(Wheel<u32>),
    OfCa(Wheel<KeyItem>),
}

/// Calls a method of the wheel.
macro_rules! wheel {
    ($self:expr, $wheel:ident => $call:expr) => {
        match &$self.wheel {
            Items::OfHash($wheel) => $call,
            Items::OfCa($wheel) => $call,
        }
    };
}

/// The key of an object of a `ca`: an immediate, or the address of a copy that belongs to the item.
pub struct KeyItem(u64);

// SAFETY: the item owns what it refers to.
unsafe impl Send for KeyItem {}

impl Default for KeyItem {
    fn default() -> Self {
        Self(NIL)
    }
}

impl KeyItem {
    pub fn new(key: TermRef<'_>) -> Self {
        match key.is_immediate() {
            true => Self(key.word()),
            false => Self(Box::into_raw(Box::new(OwnedKey::new(key))) as u64),
        }
    }

    /// Calls `f` with the probe for the key.
    pub fn with_probe<R>(&self, f: impl FnOnce(&Probe<'_>) -> R) -> R {
        match is_immediate(self.0) {
            true => f(&Probe::ordered(TermRef::immediate(self.0))),
            // SAFETY: made by `new`, and dropped with the item.
            false => f(unsafe { &*(self.0 as *const OwnedKey) }.probe()),
        }
    }

    /// The bytes of the copy.
    pub fn bytes(&self) -> usize {
        match is_immediate(self.0) {
            true => 0,
            // SAFETY: as in `with_probe`.
            false => unsafe { &*(self.0 as *const OwnedKey) }.bytes(),
        }
    }
}

impl Drop for KeyItem {
    fn drop(&mut self) {
        if !is_immediate(self.0) {
            // SAFETY: as in `with_probe`.
            drop(unsafe { Box::from_raw(self.0 as *mut OwnedKey) });
        }
    }
}

/// The lease of an entry.
///
/// # Safety
/// The entry is one of a table with leases, and its object lives under the caller's guard.
#[inline(always)]
pub unsafe fn lease(entry: Entry) -> Lease {
    // SAFETY: as the caller promises.
    unsafe { lease_of(entry.body) }.load()
}

/// Whether an entry of a table with leases has not expired.
///
/// # Safety
/// As for [`lease`].
#[inline(always)]
pub unsafe fn lives(entry: Entry) -> bool {
    // SAFETY: as the caller promises.
    !is_expired(unsafe { lease(entry) })
}

/// Whether the deadline of a lease is past.
#[inline(always)]
pub fn is_expired(lease: Lease) -> bool {
    is_past(lease.deadline())
}

/// Whether a deadline is past. Reads no clock for one that never comes.
#[inline(always)]
pub fn is_past(deadline: u64) -> bool {
    deadline != NEVER && clock::is_past(deadline)
}

/// The deadline of an entry of a table with leases.
///
/// # Safety
/// As for [`lease`].
#[inline]
pub unsafe fn deadline(entry: Entry) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { lease(entry) }.deadline()
}

/// The item of an object of a `hash`, whose entry has this key word.
#[inline]
pub fn place_item(key: u64) -> u32 {
    (place_of(key) >> 32) as u32
}

/// A time after now. What is too late for a deadline is [`NEVER`].
fn after(now: u64, time: u64) -> u64 {
    now.saturating_add(time).min(NEVER)
}

impl Leases {
    pub fn new(expiry: Option<Expiry>, limit: Option<Limit>, key: usize, ordered: bool, shared: bool) -> Self {
        let limited = Limited {
            ordered,
            expires: expiry.is_some(),
            shared,
        };
        let parts = match &limit {
            Some(limit) => wheel_parts(limit, limited),
            None if shared => PARTS,
            None => FEW_PARTS,
        };
        let wheel = match ordered {
            true => Items::OfCa(Wheel::new(parts)),
            false => Items::OfHash(Wheel::new(parts)),
        };
        let limits = limit.map(|limit| Limits::new(limit, limited, key));
        Self {
            expiry: expiry.unwrap_or_default(),
            stale: AtomicU64::new(0),
            ended: AtomicUsize::new(0),
            key,
            wheel,
            sweep: AtomicUsize::new(0),
            limits,
            notices: OnceLock::new(),
        }
    }

    /// Who is told what is removed.
    pub fn notices(&self) -> Option<&Arc<Notices>> {
        self.notices.get()
    }

    /// Before anybody else knows the contents.
    pub fn set_notices(&self, notices: Arc<Notices>) {
        self.notices.get_or_init(|| notices);
    }

    /// Gives up an object that the table has removed by itself.
    ///
    /// # Safety
    /// The body is that of an object to which nothing links any more. It is given up once.
    #[inline]
    pub unsafe fn part_with(&self, guard: &Guard, body: u64, why: Why) {
        // SAFETY: as the caller promises.
        unsafe {
            match self.notices() {
                Some(notices) => notices.take_over(guard, body, why),
                None => retire_body(guard, body),
            }
        }
    }

    /// Lets objects that are [kept](Self::keep) stay for so many milliseconds after their end.
    pub fn keep_for(&self, stale: u64) {
        // Relaxed: a number of its own. The load first spares the line a write.
        if self.stale.load(Ordering::Relaxed) < stale {
            self.stale.fetch_max(stale, Ordering::Relaxed);
        }
    }

    /// Lets a fetch have an object for some time after its end, unless that would take room from others that nobody frees.
    #[cold]
    pub fn keep(&self, entry: Entry, lease: Lease) {
        if lease.notes() & KEPT != 0 || self.limits.as_ref().is_some_and(|limits| !limits.evicts()) {
            return;
        }
        // SAFETY: the caller has read the entry under its guard, or made the object.
        unsafe { lease_of(entry.body) }.change(|lease| Some(lease.with_notes(lease.notes() | KEPT)));
    }

    /// Counts out an object that is removed, and why. An object that has ended was counted out then.
    ///
    /// # Safety
    /// The place of the entry is locked.
    pub unsafe fn count_out(&self, store: &Store, entry: Entry, why: Event) {
        // SAFETY: the place is locked, so the object lives. Tables with leases have no groups.
        let (ended, bytes) = unsafe { (lease(entry).notes() & ENDED != 0, body_bytes(entry.body)) };
        store.count(-i64::from(!ended), -(bytes as i64));
        match ended {
            // Relaxed: a count.
            true => _ = self.ended.fetch_sub(1, Ordering::Relaxed),
            false => store.count_event(why, 1),
        }
    }

    /// When an object with this lease is removed.
    fn end_of(&self, lease: Lease) -> u64 {
        match lease.notes() & KEPT != 0 {
            // Relaxed: a number of its own. Where it becomes larger, the object is removed when it would have been.
            true => after(lease.deadline(), self.stale.load(Ordering::Relaxed)),
            false => lease.deadline(),
        }
    }

    /// What a fetch may have of an entry: whether its object has ended, by less than `stale` milliseconds. `None` if it has nothing. What
    /// lives counts as used, and is kept.
    ///
    /// # Safety
    /// As for [`lease`].
    pub unsafe fn fetched(&self, entry: Entry, stale: u64) -> Option<bool> {
        // SAFETY: as the caller promises.
        let seen = unsafe { lease(entry) };
        if is_expired(seen) {
            return (seen.notes() & KEPT != 0 && !is_past(after(seen.deadline(), stale))).then_some(true);
        }
        if stale > 0 {
            self.keep(entry, seen);
        }
        self.used(entry.body, seen);
        Some(false)
    }

    /// The time at which the next slot of the wheel may fire, or the process that is told of removals is to be sent a message.
    pub fn due(&self) -> u64 {
        let notices = self.notices().map_or(u64::MAX, |notices| notices.due());
        wheel!(self, wheel => wheel.due()).min(notices)
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + wheel!(self, wheel => wheel.bytes())
            + self.limits.as_ref().map_or(0, Limits::bytes)
            + self.notices().map_or(0, |notices| notices.bytes())
    }

    pub fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    /// To be called after a read has found an object that lived, by its body and its lease.
    #[inline(always)]
    pub fn used(&self, body: u64, lease: Lease) {
        if let Some(limits) = &self.limits {
            limits.used(body, lease);
        }
        if self.expiry.idle != u64::MAX {
            self.extend(body);
        }
    }

    /// Moves the deadline of an object of a table with an idle time, if that becomes later by some time. So few reads write.
    #[inline(never)]
    fn extend(&self, body: u64) {
        let idle = self.expiry.idle;
        // SAFETY: the caller has read the object under its guard.
        let shared = unsafe { lease_of(body) };
        let deadline = shared.load().deadline();
        if deadline == NEVER || after(clock::about_now(), idle).saturating_sub(deadline) <= idle / IDLE_PARTS {
            return;
        }
        let now = clock::now();
        let new = after(now, idle);
        shared.change(|lease| {
            let lives = lease.deadline() > now;
            (lives && lease.deadline() < new).then(|| lease.with_deadline(new))
        });
    }

    /// Runs a change of a locked place that knows nothing of leases. `old` is what the place has, and `now` is
    /// [the time for it](Self::time_for). An object that has expired is hidden from the change, and removed. Its body is stored in `gone`,
    /// for the caller to part with after the step.
    #[inline(always)]
    pub fn change<R>(
        &self,
        store: &Store,
        now: u64,
        old: Option<Entry>,
        gone: &mut u64,
        paying: Option<&mut Paying<'_>>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> (Step, R) {
        // SAFETY: the place is locked, so its object lives.
        let live = old.filter(|entry| unsafe { lease(*entry) }.deadline() > now);
        let (step, result) = change(live);
        let dead = match live {
            None => old,
            Some(_) => None,
        };
        if let Some(dead) = dead {
            // SAFETY: the place is locked.
            unsafe { self.count_out(store, dead, Event::Expired) };
            *gone = dead.body;
        }
        let step = match step {
            Step::Put(new) => {
                self.grant(new, old, now);
                step
            }
            _ if dead.is_some() => Step::Remove,
            step => step,
        };
        if let Some(paying) = paying {
            paying.pay(old, step);
        }
        (step, result)
    }

    /// The time for a change of a place, which is locked and has `old`. 0 if nothing there expires.
    #[inline]
    pub fn time_for(&self, old: Option<Entry>) -> u64 {
        let default = self.expiry.ttl.min(self.expiry.idle);
        // SAFETY: the place is locked, so its object lives.
        match default == u64::MAX && old.is_none_or(|old| unsafe { deadline(old) } == NEVER) {
            true => 0,
            false => clock::now(),
        }
    }

    /// Gives a new object the lease that it requests. `old` is what its place has, expired or not. The place is locked.
    fn grant(&self, new: Entry, old: Option<Entry>, now: u64) {
        // SAFETY: the place is locked, so its object lives, and the new one too.
        let (requested, old) = unsafe { (lease(new), old.map(|old| lease(old))) };
        // Nothing asked for the time before.
        let now = match requested.request() {
            Request::Given(time) if now == 0 && time != NEVER => clock::now(),
            _ => now,
        };
        let kept = old.filter(|old| old.deadline() > now);
        let deadline = match (requested.request(), kept) {
            (Request::Kept, Some(old)) => old.deadline(),
            (Request::Given(time), _) => after(now, time),
            (Request::Kept | Request::Fresh, _) => after(now, self.expiry.ttl.min(self.expiry.idle)),
        };
        let uses = match (&self.limits, kept) {
            (Some(limits), Some(old)) => limits.uses_after(old),
            _ => 0,
        };
        let kept_as = match (requested.request(), kept) {
            (Request::Kept, old) => old.map_or(0, Lease::notes),
            _ => requested.notes(),
        };
        let notes = uses | kept_as & KEPT;
        let place = self.place_for(new, old, deadline, now);
        // SAFETY: as above.
        unsafe { lease_of(new.body) }.store(Lease::new(deadline, place).with_notes(notes));
    }

    /// The time by which the item of an object with this lease fires.
    fn fires_by(&self, lease: Lease) -> u64 {
        match lease.notes() & ENDED != 0 {
            true => self.end_of(lease),
            false => lease.deadline(),
        }
    }

    /// The place of an item for an object with this deadline: that of the item which the key has, if that fires in time. Otherwise adds one.
    fn place_for(&self, entry: Entry, old: Option<Lease>, deadline: u64, now: u64) -> u64 {
        match old {
            Some(old) if old.place() != NOWHERE && self.fires_by(old) <= deadline => old.place(),
            _ if deadline == NEVER => NOWHERE,
            _ => self.add(entry, deadline, now),
        }
    }

    /// Adds an item for an object, and returns its place. The object's place is locked.
    fn add(&self, entry: Entry, deadline: u64, now: u64) -> u64 {
        let place = match &self.wheel {
            Items::OfHash(wheel) => wheel.add(place_item(entry.key), deadline, now),
            // SAFETY: the place is locked, so its object lives.
            Items::OfCa(wheel) => wheel.add(KeyItem::new(unsafe { key_of(entry, self.key) }), deadline, now),
        };
        wake_by(deadline);
        place
    }

    /// Steps until an entry lives. `step` shows the entry after (or before) a key.
    pub fn next_living<R, L: FnMut(Option<Entry>) -> R>(
        &self,
        (store, guard): (&Store, &Guard),
        after: Option<&Probe<'static>>,
        mut look: L,
        mut step: impl FnMut(Option<&Probe<'static>>, &mut dyn FnMut(Option<Entry>)) -> Result<(), Busy>,
    ) -> Result<R, Busy> {
        let mut after = after.copied();
        for number in 0..STEPS {
            let (mut dead, mut result) = (None, None);
            step(after.as_ref(), &mut |entry| {
                // SAFETY: engines show entries under the guard.
                dead = entry.filter(|entry| !unsafe { lives(*entry) });
                result = dead.is_none().then(|| look(entry));
            })?;
            match (dead, result) {
                (Some(dead), _) => {
                    // SAFETY: the engine has validated the entry. Its object lives as long as the call's guard.
                    after = unsafe { Probe::stored(dead, self.key) }.map(|probe| *probe.erase());
                    if let (Some(probe), true) = (&after, number >= PASSED) {
                        self.remove_dead(store, guard, probe)?;
                    }
                }
                (None, result) => return Ok(result.expect("an engine looks")),
            }
        }
        Err(Busy)
    }

    /// Removes an object that has expired, for a walk that has met many of them in a row. The walk is to be tried again.
    #[cold]
    fn remove_dead(&self, store: &Store, guard: &Guard, probe: &Probe<'_>) -> Result<(), Busy> {
        // What is hidden from a change is removed.
        store.change_leased(self, guard, probe, None, true, |_| (Step::Keep, ()))
    }

    /// A part of a range that has an entry that lives, if any follows. `part` appends what `expand` appends for the entries of a range, and
    /// says whether more may follow.
    pub fn living_range<'a, T>(
        &self,
        (store, guard): (&Store, &Guard),
        range: Range<'a, Probe<'static>>,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
        mut part: impl FnMut(
            Range<'_, Probe<'static>>,
            &mut Vec<T>,
            &mut dyn FnMut(Entry, &mut Vec<T>),
        ) -> Result<bool, Busy>,
    ) -> Result<bool, Busy> {
        let before = out.len();
        let mut from = range.from.map(|(probe, inclusive)| (*probe, inclusive));
        let mut dead = Vec::new();
        for number in 0..STEPS {
            let mut last = None;
            let range = Range {
                from: from.as_ref().map(|(probe, inclusive)| (probe, *inclusive)),
                ..range
            };
            let more = part(range, out, &mut |entry, out| {
                last = Some(entry);
                // SAFETY: engines show entries under the guard.
                if unsafe { lives(entry) } {
                    expand(entry, out);
                } else if number >= PASSED {
                    dead.push(entry);
                }
            })?;
            for entry in dead.drain(..) {
                // SAFETY: as in `next_living`.
                if let Some(probe) = unsafe { Probe::stored(entry, self.key) } {
                    self.remove_dead(store, guard, &probe)?;
                }
            }
            // SAFETY: as in `next_living`.
            let last = last.and_then(|last| unsafe { Probe::stored(last, self.key) });
            match last {
                Some(last) if more && out.len() == before => from = Some((*last.erase(), false)),
                _ => return Ok(more),
            }
        }
        Err(Busy)
    }

    /// Gives an object that lives a deadline `time` after now. The place is locked.
    pub fn touch(&self, entry: Entry, time: u64, now: u64) {
        let deadline = after(now, time);
        // SAFETY: the place is locked, so its object lives.
        let shared = unsafe { lease_of(entry.body) };
        let place = self.place_for(entry, Some(shared.load()), deadline, now);
        shared.change(|lease| Some(lease.with_deadline(deadline).with_place(place)));
    }

    /// Looks for the object of an item that fires at a place: removes it if it has expired and is not kept, or adds an item for the next
    /// time to look. With `clear`, also removes what is kept.
    fn visit(&self, store: &Store, guard: &Guard, probe: &Probe<'_>, place: u64, clear: bool) -> Result<(), Busy> {
        let mut gone = 0;
        store.update_as_it_is(guard, probe, true, |old| {
            let Some(entry) = old else {
                return (Step::Keep, ());
            };
            // SAFETY: the place is locked, so its object lives.
            let shared = unsafe { lease_of(entry.body) };
            let (mut goes, mut ends) = (false, false);
            // If a reader makes the deadline later meanwhile, or counts a use, this is done again, and one item more is stale.
            shared.change(|lease| {
                (goes, ends) = (false, false);
                if lease.place() != place {
                    return None;
                }
                let now = clock::now();
                let ended = lease.deadline() <= now;
                let end = self.end_of(lease);
                if ended && (clear || end <= now) {
                    goes = true;
                    return None;
                }
                let next = match if ended { end } else { lease.deadline() } {
                    NEVER => NOWHERE,
                    time => self.add(entry, time, now),
                };
                ends = ended && lease.notes() & ENDED == 0;
                let notes = lease.notes() | if ended { ENDED } else { 0 };
                Some(lease.with_place(next).with_notes(notes))
            });
            if goes {
                // SAFETY: the place is locked.
                unsafe { self.count_out(store, entry, Event::Expired) };
                if let Some(limits) = &self.limits {
                    // SAFETY: the place is locked, so the object lives.
                    unsafe { limits.give_back(entry.body) }
                }
                gone = entry.body;
                return (Step::Remove, ());
            }
            if ends {
                // Relaxed: a count.
                self.ended.fetch_add(1, Ordering::Relaxed);
                store.count(-1, 0);
                store.count_event(Event::Expired, 1);
            }
            (Step::Keep, ())
        })?;
        if gone != 0 {
            // SAFETY: nothing links to the object any more.
            unsafe { self.part_with(guard, gone, Why::Expired) }
        }
        Ok(())
    }

    /// Looks for the objects whose items fire by the time, the tick of the time included if it is `whole`. `more` is asked now and then
    /// whether to go on. With `clear`, also removes what is kept of these. Returns whether this is complete.
    fn turn(
        &self,
        store: &Store,
        guard: &Guard,
        (time, whole): (u64, bool),
        clear: bool,
        more: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Busy> {
        match &self.wheel {
            Items::OfHash(wheel) => {
                let DefaultEngine::Hash(engine) = store.default_engine() else {
                    unreachable!("a wheel of a hash");
                };
                let place_of_item = |item: u32| u64::from(item) << 32;
                let mut found = Vec::new();
                let prefetch = |item: &u32| engine.prefetch_at(guard, place_of_item(*item));
                turn(wheel, (time, whole), more, prefetch, |item, place| {
                    found.clear();
                    engine.entries_at(guard, place_of_item(*item), &mut found, |entry, found| {
                        // SAFETY: the engine shows entries under the guard.
                        if place_item(entry.key) == *item && unsafe { lease(entry) }.place() == place {
                            found.push(entry);
                        }
                    })?;
                    found.iter().try_for_each(|entry| {
                        // SAFETY: the engine has validated the entry.
                        let probe = unsafe { Probe::stored(*entry, self.key) };
                        probe.map_or(Ok(()), |probe| self.visit(store, guard, &probe, place, clear))
                    })
                })
            }
            Items::OfCa(wheel) => {
                let prefetch = |_: &KeyItem| ();
                turn(wheel, (time, whole), more, prefetch, |item, place| {
                    item.with_probe(|probe| self.visit(store, guard, probe, place, clear))
                })
            }
        }
    }

    /// The reaper's work, until `more` returns false. Returns whether it is complete.
    pub fn expire(&self, store: &Store, guard: &Guard, more: &mut dyn FnMut() -> bool) -> Result<bool, Busy> {
        if let Some(notices) = self.notices() {
            notices.ring(guard);
        }
        let now = clock::now();
        // Others may have looked at the last items of a sweep.
        if !wheel!(self, wheel => wheel.is_crowded() || wheel.due() <= now) && !self.is_sweeping() {
            return Ok(true);
        }
        if !self.is_sweeping() {
            let many =
                wheel!(self, wheel => wheel.items()).map(|items| items > STALE_FACTOR * self.objects(store) + CROWD);
            if let Err(busy) = many.and_then(|many| if many { self.begin_sweep() } else { Ok(()) }) {
                // That items have become many is not told again.
                wheel!(self, wheel => wheel.crowd());
                return Err(busy);
            }
        }
        let (complete, ended) = self.turn_in_sweep(store, guard, now, more)?;
        if ended {
            // What came during the sweep may be too much.
            wheel!(self, wheel => wheel.crowd());
        }
        Ok(complete && !ended)
    }

    /// The number of objects, with those that have ended and are kept.
    pub fn objects(&self, store: &Store) -> usize {
        // Relaxed: a figure.
        store.size() + self.ended.load(Ordering::Relaxed)
    }

    /// The bytes of the wheel.
    pub fn wheel_bytes(&self) -> usize {
        wheel!(self, wheel => wheel.bytes())
    }

    fn is_sweeping(&self) -> bool {
        // Relaxed: who sees a sweep too late does not help, and nothing else depends on it.
        self.sweep.load(Ordering::Relaxed) % 2 == 1
    }

    /// Makes all items due, unless that was done and not all of them were looked at yet. Otherwise objects that have got an item would be
    /// looked at anew, and nobody might ever come to the others. Every object that lives gets an item again, so no item is stale in the end.
    fn begin_sweep(&self) -> Result<(), Busy> {
        // Relaxed: the locks of the wheel order what was made due.
        let sweep = self.sweep.load(Ordering::Relaxed);
        let begin = |from, to| {
            self.sweep
                .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
        };
        if sweep % 2 == 0 && begin(sweep, sweep + 1).is_ok() {
            // What is due already when this fails is swept.
            return wheel!(self, wheel => wheel.empty());
        }
        Ok(())
    }

    /// [`turn`](Self::turn) to the time. Returns whether it is complete, and whether a sweep ended with it.
    fn turn_in_sweep(
        &self,
        store: &Store,
        guard: &Guard,
        now: u64,
        more: &mut dyn FnMut() -> bool,
    ) -> Result<(bool, bool), Busy> {
        // Relaxed: as in `begin_sweep`. A sweep that began later does not end here.
        let sweep = self.sweep.load(Ordering::Relaxed);
        let complete = self.turn(store, guard, (now, false), false, more)?;
        let end = || {
            self.sweep
                .compare_exchange(sweep, sweep + 1, Ordering::Relaxed, Ordering::Relaxed)
        };
        Ok((complete, complete && sweep % 2 == 1 && end().is_ok()))
    }

    /// Looks at some items if a sweep goes on, or if one `is_due`. Whoever adds many items calls this, as the reaper may be too slow. Fails
    /// where others are in the way. They or the reaper go on.
    pub fn help_to_sweep(&self, store: &Store, guard: &Guard, is_due: bool) -> Result<(), Busy> {
        if is_due {
            self.begin_sweep()?;
        }
        if !self.is_sweeping() {
            return Ok(());
        }
        let mut parts = HELPED;
        let mut more = || {
            parts -= 1;
            parts > 0
        };
        self.turn_in_sweep(store, guard, clock::now(), &mut more).map(|_| ())
    }

    /// Removes what has expired, or counts it out. With `clear`, nothing that has expired is left. Fails with [`Failure::Slice`] as
    /// long as more of that is left.
    pub fn settle(&self, store: &Store, guard: &Guard, clear: bool) -> Result<(), Failure> {
        let now = clock::now();
        let start = Instant::now();
        let mut more = || start.elapsed() < SLICE;
        // Relaxed: what this call has counted out it sees. What others count out, the next attempt sees.
        let is_left = || clear && self.ended.load(Ordering::Relaxed) > 0;
        if is_left() && wheel!(self, wheel => wheel.due()) > 0 {
            // Finds what is kept. If the call is made again, it is due.
            wheel!(self, wheel => wheel.empty())?;
        }
        // What fires early is added again, in the same tick perhaps. So one turn is enough.
        let quiet = wheel!(self, wheel => wheel.is_quiet(now));
        match quiet || self.turn(store, guard, (now, true), clear, &mut more)? {
            false => Err(Failure::Slice),
            // Others may be at work at what has expired.
            true if is_left() || wheel!(self, wheel => wheel.is_at_work()) => Err(Failure::Busy),
            true => Ok(()),
        }
    }
}

/// The number of items that are looked at between two questions whether to go on.
const ITEMS: usize = 16;
/// A call helps to sweep by so many times as many.
const HELPED: usize = 8;
/// How long a scheduler settles at once.
const SLICE: Duration = Duration::from_micros(500);
/// How far ahead of an item another one is prefetched.
const AHEAD: usize = 8;

fn turn<T: Owner>(
    wheel: &Wheel<T>,
    (time, whole): (u64, bool),
    more: &mut dyn FnMut() -> bool,
    prefetch: impl Fn(&T),
    mut visit: impl FnMut(&T, u64) -> Result<(), Busy>,
) -> Result<bool, Busy> {
    // Where a part is in use for long, the others are looked at first.
    let advanced = wheel.advance(time, whole);
    while let Some(mut due) = wheel.take()? {
        while let Some(item) = due.items.pop() {
            if let Some(ahead) = due.items.len().checked_sub(AHEAD) {
                prefetch(&due.items[ahead]);
            }
            if let Err(busy) = visit(&item, due.place) {
                due.items.push(item);
                return Err(busy);
            }
            if due.items.len() % ITEMS == 0 && !more() {
                return Ok(false);
            }
        }
    }
    advanced.map(|()| true)
}

/// The places of an operation on many keys, for a change that knows nothing of leases.
pub struct LeasedPlaces<'a, 'l> {
    pub places: &'a mut dyn Locked,
    pub leases: &'l Leases,
    pub store: &'a Store,
    pub now: u64,
    /// For a table with a limit.
    pub paying: Option<&'a mut Paying<'l>>,
    /// The bodies of objects that have expired and were removed. The caller parts with them.
    pub gone: Vec<u64>,
}

impl Locked for LeasedPlaces<'_, '_> {
    fn get(&self, i: usize) -> Option<Entry> {
        // SAFETY: the place is locked, so its object lives.
        self.places
            .get(i)
            .filter(|entry| unsafe { lease(*entry) }.deadline() > self.now)
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let (leases, store, now) = (self.leases, self.store, self.now);
        let (mut gone, paying) = (0, &mut self.paying);
        self.places.update(i, &mut |old| {
            let paying = paying.as_deref_mut();
            let (step, ()) = leases.change(store, now, old, &mut gone, paying, |old| (change(old), ()));
            step
        });
        if gone != 0 {
            self.gone.push(gone);
        }
    }

    fn update_all(&mut self, probes: usize, change: &mut dyn FnMut(usize, Option<Entry>) -> Step) {
        let (leases, store, now) = (self.leases, self.store, self.now);
        let (all_gone, paying) = (&mut self.gone, &mut self.paying);
        self.places.update_all(probes, &mut |i, old| {
            let (mut gone, paying) = (0, paying.as_deref_mut());
            let (step, ()) = leases.change(store, now, old, &mut gone, paying, |old| (change(i, old), ()));
            all_gone.extend(Some(gone).filter(|gone| *gone != 0));
            step
        });
    }

    fn held(&self, held: &mut Vec<cats_engine::HeldPlace>) {
        self.places.held(held);
    }
}
