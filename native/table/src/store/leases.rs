//! What contents have besides whose objects expire: each object has a [lease](cats_term::lease).
//!
//! Reads look at the lease of what they find. So an object is gone when its time has come. A [timer wheel](Wheel) says when to look for it
//! and to free it.
//!
//! An object that expires has an [item](super::items) in the wheel that fires by its deadline. Where a deadline becomes later, the old item stays: when it
//! fires, a new one is added.
//!
//! A fetch may give an object out for some time after its end. The notes of such an object's lease say [`KEPT`]. Only
//! [`Store::read_keeping`](super::Store::read_keeping) sees it then. Its item fires at its end, when it is counted out and noted as [`ENDED`], and once more when it is
//! to be removed.

use super::items::KeyItem;
use super::limited::Limits;
use super::setup::Expiry;
use crate::evict::account::Limit;
use crate::evict::allowance::{wheel_parts, Limited};
use crate::expiry::notices::{Notices, Why};
use crate::expiry::wake_by;
use crate::expiry::wheel::{Wheel, FEW_PARTS, PARTS};
use crate::object::{lease_of, own_end_of, refers, retire_body, take_staged, unseated};
use cats_engine::seat::{is_seat, Staged};
use cats_engine::Entry;
use cats_sync::clock;
use cats_sync::epoch::Guard;
use cats_sync::facade::{fence, AtomicU64, AtomicUsize, Ordering};
use cats_sync::Busy;
use cats_term::lease::{Lease, Request, NEVER, NOWHERE};
use std::sync::{Arc, OnceLock};

/// A read moves the deadline of an object only if that becomes later by this part of the table's idle time.
const IDLE_PARTS: u64 = 16;

/// In the notes of a lease: a fetch may give the object out for some time after its end.
pub const KEPT: u64 = 4;
/// In the notes of a lease: the object has ended, and is counted out.
pub const ENDED: u64 = 8;

/// What a table with leases has besides its engine.
pub struct Leases<T: KeyItem> {
    /// The milliseconds that new objects live. `u64::MAX`: they do not expire. Relaxed: a number of its own.
    ttl: AtomicU64,
    /// The milliseconds that an object lives after it was last read, as in [`Expiry`].
    idle: u64,
    /// The longest time in milliseconds for which a fetch wants objects after their end.
    stale: AtomicU64,
    /// The number of objects that have ended and are kept.
    pub ended: AtomicUsize,
    /// The position of the key.
    pub key: usize,
    /// Whether leases are in cells.
    seated: bool,
    pub wheel: Wheel<T>,
    /// Odd while all items are looked at, as there were too many. Each such sweep has another number.
    pub sweep: AtomicUsize,
    /// For a table with a limit.
    limits: Option<Limits<T>>,
    /// For a table that tells a process what it removes.
    notices: OnceLock<Arc<Notices>>,
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

/// Changes the lease of an object that was read. Where it has a seat, only if the lease is still the one that was seen: otherwise it may
/// be that of another object.
///
/// # Safety
/// The object was read under the caller's guard.
#[inline]
pub unsafe fn change_seen(body: u64, seen: Lease, mut change: impl FnMut(Lease) -> Option<Lease>) {
    // SAFETY: as the caller promises.
    let shared = unsafe { lease_of(body) };
    shared.change(|lease| match is_seat(body) && lease != seen {
        true => None,
        false => change(lease),
    });
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

/// How an object lives that a fetch has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Lives,
    /// It ends soon.
    Due,
    /// It is kept after its end.
    Ended,
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

/// The own end of an object with this body and this lease, or [`NEVER`].
///
/// # Safety
/// The body is that of an object of a table with leases, which lives under the caller's guard.
pub unsafe fn own_end(body: u64, lease: Lease) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { own_end_of(body, lease) }.map_or(NEVER, |end| end.load().deadline())
}

/// A time after now. What is too late for a deadline is [`NEVER`].
fn after(now: u64, time: u64) -> u64 {
    now.saturating_add(time).min(NEVER)
}

impl<T: KeyItem> Leases<T> {
    pub fn new(
        expiry: Option<Expiry>,
        limit: Option<Limit>,
        key: usize,
        (ordered, seated): (bool, bool),
        shared: bool,
    ) -> Self {
        let limited = Limited {
            ordered,
            seated,
            expires: expiry.is_some(),
            shared,
        };
        let parts = match &limit {
            Some(limit) => wheel_parts(limit, limited),
            None if shared => PARTS,
            None => FEW_PARTS,
        };
        let limits = limit.map(|limit| Limits::new(limit, limited, key));
        let Expiry { ttl, idle } = expiry.unwrap_or_default();
        Self {
            ttl: AtomicU64::new(ttl),
            idle,
            stale: AtomicU64::new(0),
            ended: AtomicUsize::new(0),
            key,
            seated,
            wheel: Wheel::new(parts),
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

    /// The body of an object that is about to leave its place, for [`part_with`](Self::part_with): 0 if nothing is to be parted with. One
    /// without a block is copied if somebody is told of it.
    ///
    /// # Safety
    /// The place is locked.
    #[inline]
    pub unsafe fn leaving(&self, guard: &Guard, entry: Entry, why: Why) -> u64 {
        // SAFETY: as the caller promises.
        let body = unsafe { unseated(entry) }.body;
        match (refers(body), self.notices()) {
            (true, _) => body,
            (false, None) => 0,
            // SAFETY: as the caller promises.
            (false, Some(notices)) => unsafe { notices.copy_of(guard, entry, self.key, why) },
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
    pub fn keep(&self, entry: Entry, seen: Lease) {
        if seen.notes() & KEPT != 0 || self.limits.as_ref().is_some_and(|limits| !limits.evicts()) {
            return;
        }
        // SAFETY: the caller has read the entry under its guard, or made the object.
        unsafe { change_seen(entry.body, seen, |lease| Some(lease.with_notes(lease.notes() | KEPT))) }
    }

    /// When an object with this lease is removed.
    pub fn end_of(&self, lease: Lease) -> u64 {
        match lease.notes() & KEPT != 0 {
            // Relaxed: a number of its own. Where it becomes larger, the object is removed when it would have been.
            true => after(lease.deadline(), self.stale.load(Ordering::Relaxed)),
            false => lease.deadline(),
        }
    }

    /// What a fetch may have of an entry with this lease: one that lives, and perhaps ends within `ahead` milliseconds, or that has ended less
    /// than `stale` milliseconds ago. `None` if it has nothing. What lives counts as used, and is kept.
    ///
    /// # Safety
    /// As for [`lease`].
    pub unsafe fn fetched(&self, entry: Entry, seen: Lease, stale: u64, ahead: u64) -> Option<Life> {
        if is_expired(seen) {
            return (seen.notes() & KEPT != 0 && !is_past(after(seen.deadline(), stale))).then_some(Life::Ended);
        }
        if stale > 0 {
            self.keep(entry, seen);
        }
        self.used(entry.body, seen);
        if ahead == 0 {
            return Some(Life::Lives);
        }
        // A use may have moved the deadline, unless there is a seat. It moves no own end.
        // SAFETY: as the caller promises.
        let end = unsafe {
            let now = if is_seat(entry.body) { seen } else { lease(entry) };
            own_end_of(entry.body, now).map_or(now, |end| end.load()).deadline()
        };
        Some(match end {
            NEVER => Life::Lives,
            end if is_past(end.saturating_sub(ahead)) => Life::Due,
            _ => Life::Lives,
        })
    }

    /// The time at which the next slot of the wheel may fire, or the process that is told of removals is to be sent a message.
    /// 0 if items have become many.
    pub fn due(&self) -> u64 {
        if self.wheel.has_crowd() {
            return 0;
        }
        let notices = self.notices().map_or(u64::MAX, |notices| notices.due());
        self.wheel.due().min(notices)
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.wheel.bytes()
            + self.limits.as_ref().map_or(0, |limits| limits.bytes())
            + self.notices().map_or(0, |notices| notices.bytes())
    }

    pub fn limits(&self) -> Option<&Limits<T>> {
        self.limits.as_ref()
    }

    /// To be called after a read has found an object that lived, by its body and its lease.
    #[inline(always)]
    pub fn used(&self, body: u64, lease: Lease) {
        if let Some(limits) = &self.limits {
            limits.used(body, lease);
        }
        if self.idle != u64::MAX {
            self.extend(body);
        }
    }

    /// Moves the deadline of an object of a table with an idle time, if that becomes later by some time, or reaches its own end. So few reads
    /// write.
    #[inline(never)]
    fn extend(&self, body: u64) {
        debug_assert!(!is_seat(body), "the place may have another object by now");
        let idle = self.idle;
        // SAFETY: the caller has read the object under its guard.
        let shared = unsafe { lease_of(body) };
        let seen = shared.load();
        // SAFETY: as above.
        let end = || unsafe { own_end(body, seen) };
        let (deadline, soon) = (seen.deadline(), after(clock::about_now(), idle));
        let is_late = soon.saturating_sub(deadline) > idle / IDLE_PARTS;
        let is_due = match seen.has_own_end() {
            false => is_late,
            true => deadline < end() && (is_late || soon >= end()),
        };
        if deadline == NEVER || !is_due {
            return;
        }
        let now = clock::now();
        let new = after(now, idle);
        shared.change(|lease| {
            // Acquire pairs with the Release of `touch`: who sees its deadline sees the own end that it set.
            fence(Ordering::Acquire);
            let (lives, new) = (lease.deadline() > now, new.min(end()));
            (lives && lease.deadline() < new).then(|| lease.with_deadline(new))
        });
        if seen.has_own_end() {
            // A touch may have set an earlier end, with the same deadline that was seen above. Acquire: as above.
            fence(Ordering::Acquire);
            shared.change(|lease| (lease.deadline() > end()).then(|| lease.with_deadline(end())));
        }
    }

    /// The milliseconds that a new object lives. `u64::MAX`: it does not expire.
    #[inline]
    fn lifetime(&self) -> u64 {
        self.ttl().min(self.idle)
    }

    /// The milliseconds that new objects live, unless reads matter.
    #[inline]
    pub fn ttl(&self) -> u64 {
        self.ttl.load(Ordering::Relaxed)
    }

    /// Objects that are written from now on live so long.
    pub fn set_ttl(&self, ttl: u64) {
        self.ttl.store(ttl, Ordering::Relaxed);
    }

    /// The time for a change of a place, which is locked and has `old`. 0 if nothing there expires.
    #[inline]
    pub fn time_for(&self, old: Option<Entry>) -> u64 {
        // SAFETY: the place is locked, so its object lives.
        match self.lifetime() == u64::MAX && old.is_none_or(|old| unsafe { deadline(old) } == NEVER) {
            true => 0,
            false => clock::now(),
        }
    }

    /// Gives a new object the lease that it requests. `old_entry` is what its place has, expired or not. The place is locked. Returns the
    /// entry to put. If that has a seat, it is the one of `staged`.
    pub fn grant(&self, new: Entry, old_entry: Option<Entry>, now: u64, staged: &Staged) -> Entry {
        // SAFETY: the place is locked, so its object lives, and the new one too.
        let old = old_entry.map(|old| unsafe { lease(old) });
        let (body, requested) = match (is_seat(new.body), self.seated) {
            // SAFETY: the new object's own, which nobody needs any more.
            (true, _) => unsafe { take_staged(new.body) },
            (false, true) => (new.body, Lease::of_request(Request::Kept)),
            // SAFETY: as above.
            (false, false) => (new.body, unsafe { lease(new) }),
        };
        let new = Entry { body, ..new };
        let lifetime = self.lifetime();
        let asked = match requested.request() {
            Request::Given(time) | Request::Bounded { time, .. } => time != NEVER,
            Request::Kept | Request::Fresh => lifetime != u64::MAX,
        };
        // Nothing asked for the time before, or the table's lifetime was another one then.
        let now = if now == 0 && asked { clock::now() } else { now };
        let kept = old.filter(|old| old.deadline() > now);
        let deadline = match (requested.request(), kept) {
            (Request::Kept, Some(old)) => old.deadline(),
            (Request::Given(time) | Request::Bounded { time, .. }, _) => after(now, time),
            (Request::Kept | Request::Fresh, _) => after(now, lifetime),
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
        if requested.has_own_end() {
            // SAFETY: as above.
            unsafe { self.grant_own_end(new, requested, kept.and(old_entry), now) }
        }
        let place = self.place_for(new, old, deadline, now);
        let granted = requested.with_deadline(deadline).with_place(place).with_notes(notes);
        if self.seated {
            return Entry {
                body: staged.seat(new.body, granted.word()),
                ..new
            };
        }
        // SAFETY: as above.
        unsafe { lease_of(new.body) }.store(granted);
        new
    }

    /// Gives a new object its own end: the one that it requests, that of the object which it replaces, if it keeps the lease, or that of the
    /// table.
    ///
    /// # Safety
    /// The place is locked, so its object lives, and the new one too. That has a word for its own end.
    #[cold]
    unsafe fn grant_own_end(&self, new: Entry, requested: Lease, kept: Option<Entry>, now: u64) {
        // SAFETY: as the caller promises.
        unsafe {
            let Some(own) = own_end_of(new.body, requested) else {
                return;
            };
            let end = match (requested.request(), kept) {
                (Request::Given(_) | Request::Bounded { .. }, _) => after(now, own.load().deadline()),
                (Request::Kept, Some(old)) => own_end(old.body, lease(old)),
                (Request::Kept | Request::Fresh, _) => after(now, self.ttl()),
            };
            own.store(Lease::own_end(end));
        }
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
    pub fn add(&self, entry: Entry, deadline: u64, now: u64) -> u64 {
        // SAFETY: the place is locked, so its object lives.
        let item = unsafe { T::of(entry, self.key) };
        let place = self.wheel.add(item, deadline, now);
        wake_by(if self.wheel.has_crowd() { 0 } else { deadline });
        place
    }

    /// Gives an object that lives a deadline `time` after now, and if it has an own end, that as well. Where the table has a time to live,
    /// this is a new one. The place is locked.
    pub fn touch(&self, entry: Entry, time: u64, now: u64) {
        let deadline = after(now, time);
        // SAFETY: the place is locked, so its object lives.
        let (shared, own) = unsafe { (lease_of(entry.body), own_end_of(entry.body, lease(entry))) };
        let place = self.place_for(entry, Some(shared.load()), deadline, now);
        if let Some(own) = own.filter(|own| self.ttl() != u64::MAX || own.load().deadline() != NEVER) {
            own.store(Lease::own_end(deadline));
            // Release pairs with the Acquire of `extend`.
            fence(Ordering::Release);
        }
        shared.change(|lease| Some(lease.with_deadline(deadline).with_place(place)));
    }

    pub fn is_sweeping(&self) -> bool {
        // Relaxed: who sees a sweep too late does not help, and nothing else depends on it.
        self.sweep.load(Ordering::Relaxed) % 2 == 1
    }

    /// Makes all items due, unless that was done and not all of them were looked at yet. Otherwise objects that have got an item would be
    /// looked at anew, and nobody might ever come to the others. Every object that lives gets an item again, so no item is stale in the end.
    pub fn begin_sweep(&self) -> Result<(), Busy> {
        // Relaxed: the locks of the wheel order what was made due.
        let sweep = self.sweep.load(Ordering::Relaxed);
        let begin = |from, to| {
            self.sweep
                .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
        };
        if sweep % 2 == 0 && begin(sweep, sweep + 1).is_ok() {
            // What is due already when this fails is swept.
            return self.wheel.empty();
        }
        Ok(())
    }
}
