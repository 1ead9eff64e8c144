//! How objects that have expired are found by their items, and removed.

use super::engine::InlineEngine;
use super::leased::Leased;
use super::leases::{lease, ENDED};
use crate::expiry::notices::Why;
use crate::expiry::wheel::{Owner, Wheel, CROWD};
use crate::failure::Failure;
use crate::object::lease_of;
use crate::object::schema::Probe;
use cats_engine::Step;
use cats_sync::clock;
use cats_sync::epoch::Guard;
use cats_sync::events::Event;
use cats_sync::facade::Ordering;
use cats_sync::Busy;
use cats_term::lease::{NEVER, NOWHERE};
use std::time::{Duration, Instant};

/// If a wheel has so many times as many items as the table has objects, stale ones are sought.
const STALE_FACTOR: usize = 2;

/// The number of items that are looked at between two questions whether to go on.
const ITEMS: usize = 16;
/// A call helps to sweep by so many times as many.
const HELPED: usize = 8;
/// How long a scheduler settles at once.
const SLICE: Duration = Duration::from_micros(500);
/// How far ahead of an item another one is prefetched.
const AHEAD: usize = 8;

impl<E: InlineEngine> Leased<'_, E> {
    /// Looks for the object of an item that fires at a place. Removes it if it has expired and is not kept. Otherwise adds an item for the
    /// next time to look. With `clear`, also removes what is kept.
    fn visit(self, guard: &Guard, probe: &Probe<'static>, place: u64, clear: bool) -> Result<(), Busy> {
        let mut gone = 0;
        self.plain().update_as_it_is(guard, probe, true, |old| {
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
                let end = self.owner.leases.end_of(lease);
                if ended && (clear || end <= now) {
                    goes = true;
                    return None;
                }
                let next = match if ended { end } else { lease.deadline() } {
                    NEVER => NOWHERE,
                    time => self.owner.leases.add(entry, time, now),
                };
                ends = ended && lease.notes() & ENDED == 0;
                let notes = lease.notes() | if ended { ENDED } else { 0 };
                Some(lease.with_place(next).with_notes(notes))
            });
            if goes {
                // SAFETY: the place is locked.
                unsafe { self.count_out(entry, Event::Expired) };
                if let Some(limits) = self.owner.leases.limits() {
                    // SAFETY: the place is locked, so the object lives.
                    unsafe { limits.give_back(entry.body) }
                }
                // SAFETY: as above.
                gone = unsafe { self.owner.leases.leaving(guard, entry, Why::Expired) };
                return (Step::Remove, ());
            }
            if ends {
                // Relaxed: a count.
                self.owner.leases.ended.fetch_add(1, Ordering::Relaxed);
                self.books.count(-1, 0);
                self.count_event(Event::Expired);
            }
            (Step::Keep, ())
        })?;
        if gone != 0 {
            // SAFETY: nothing links to the object any more.
            unsafe { self.owner.leases.part_with(guard, gone, Why::Expired) }
        }
        Ok(())
    }

    /// Looks for the objects whose items fire by the time, the tick of the time included if it is `whole`. `more` is asked now and then
    /// whether to go on. With `clear`, also removes what is kept of these. Returns whether this is complete.
    fn turn(
        self,
        guard: &Guard,
        (time, whole): (u64, bool),
        clear: bool,
        more: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Busy> {
        let mut found = Vec::new();
        let prefetch = |item: &E::Item| self.owner.engine.prefetch_keys(guard, item);
        turn(
            &self.owner.leases.wheel,
            (time, whole),
            more,
            prefetch,
            |item, place| {
                // SAFETY: the engine shows entries under the guard.
                let wanted = |entry| unsafe { lease(entry) }.place() == place;
                let key = self.owner.leases.key;
                self.owner
                    .engine
                    .each_key(guard, item, key, &mut found, wanted, |probe| {
                        self.visit(guard, probe, place, clear)
                    })
            },
        )
    }

    /// The reaper's work, until `more` returns false. Returns whether it is complete.
    pub fn expire(self, guard: &Guard, more: &mut dyn FnMut() -> bool) -> Result<bool, Busy> {
        if let Some(notices) = self.owner.leases.notices() {
            notices.ring(guard);
        }
        let now = clock::now();
        // Others may have looked at the last items of a sweep.
        let wheel = &self.owner.leases.wheel;
        if !wheel.is_crowded() && wheel.due() > now && !self.owner.leases.is_sweeping() {
            return Ok(true);
        }
        if !self.owner.leases.is_sweeping() {
            let many = self
                .owner
                .leases
                .wheel
                .items()
                .map(|items| items > STALE_FACTOR * self.objects() + CROWD);
            if let Err(busy) = many.and_then(|many| if many { self.owner.leases.begin_sweep() } else { Ok(()) }) {
                // That items have become many is not told again.
                self.owner.leases.wheel.crowd();
                return Err(busy);
            }
        }
        let (complete, ended) = self.turn_in_sweep(guard, now, more)?;
        if ended {
            // What came during the sweep may be too much.
            self.owner.leases.wheel.crowd();
        }
        Ok(complete && !ended)
    }

    /// The number of objects, with those that have ended and are kept.
    pub fn objects(self) -> usize {
        // Relaxed: a figure.
        self.books.size() + self.owner.leases.ended.load(Ordering::Relaxed)
    }

    /// The bytes of the wheel.
    pub fn wheel_bytes(self) -> usize {
        self.owner.leases.wheel.bytes()
    }

    /// [`turn`](Self::turn) to the time. Returns whether it is complete, and whether a sweep ended with it.
    fn turn_in_sweep(self, guard: &Guard, now: u64, more: &mut dyn FnMut() -> bool) -> Result<(bool, bool), Busy> {
        // Relaxed: as in `begin_sweep`. A sweep that began later does not end here.
        let sweep = self.owner.leases.sweep.load(Ordering::Relaxed);
        let complete = self.turn(guard, (now, false), false, more)?;
        let end = || {
            self.owner
                .leases
                .sweep
                .compare_exchange(sweep, sweep + 1, Ordering::Relaxed, Ordering::Relaxed)
        };
        Ok((complete, complete && sweep % 2 == 1 && end().is_ok()))
    }

    /// Looks at some items if a sweep goes on, or if one `is_due`. Whoever adds many items calls this, as the reaper may be too slow. Fails
    /// where others are in the way. They or the reaper go on.
    pub fn help_to_sweep(self, guard: &Guard, is_due: bool) -> Result<(), Busy> {
        if is_due {
            self.owner.leases.begin_sweep()?;
        }
        if !self.owner.leases.is_sweeping() {
            return Ok(());
        }
        let mut parts = HELPED;
        let mut more = || {
            parts -= 1;
            parts > 0
        };
        self.turn_in_sweep(guard, clock::now(), &mut more).map(|_| ())
    }

    /// Removes what has expired, or counts it out. With `clear`, nothing that has expired is left. Fails with [`Failure::Slice`] as
    /// long as more of that is left.
    pub fn settle(self, guard: &Guard, clear: bool) -> Result<(), Failure> {
        let now = clock::now();
        let start = Instant::now();
        let mut more = || start.elapsed() < SLICE;
        // Relaxed: what this call has counted out it sees. What others count out, the next attempt sees.
        let is_left = || clear && self.owner.leases.ended.load(Ordering::Relaxed) > 0;
        if is_left() && self.owner.leases.wheel.due() > 0 {
            // Finds what is kept. If the call is made again, it is due.
            self.owner.leases.wheel.empty()?;
        }
        // What fires early is added again, in the same tick perhaps. So one turn is enough.
        let quiet = self.owner.leases.wheel.is_quiet(now);
        match quiet || self.turn(guard, (now, true), clear, &mut more)? {
            false => Err(Failure::Slice),
            // Others may be at work at what has expired.
            true if is_left() || self.owner.leases.wheel.is_at_work() => Err(Failure::Busy),
            true => Ok(()),
        }
    }
}

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
