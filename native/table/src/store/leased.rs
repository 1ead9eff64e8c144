//! Contents of a default engine whose objects have [leases](super::leases). Reads and changes see only what lives.

use super::books::{noting, Books};
use super::content::{Content, Use};
use super::engine::InlineEngine;
use super::leases::{deadline, is_expired, lease, lives, own_end, Leases, Life, ENDED};
use super::limited::{Limits, Paying, Planned};
use super::plain::Plain;
use crate::expiry::notices::Why;
use crate::object::group::free_entry;
use crate::object::schema::{last_of_keys, Probe};
use crate::object::{behind_seat, body_bytes, unseated, ObjectRef};
use crate::write_log::Actor;
use cats_engine::seat::Staged;
use cats_engine::{Entry, Locked, Range, Step, Trail};
use cats_sync::clock;
use cats_sync::epoch::Guard;
use cats_sync::events::Event;
use cats_sync::facade::Ordering;
use cats_sync::Busy;
use cats_term::lease::{Lease, NEVER, NOWHERE};

/// The number of expired objects, or of parts of a range of such objects, that a walk passes, and how many of these it leaves.
const STEPS: usize = 500;
const PASSED: usize = 250;

/// An engine, and what its contents have besides.
pub struct LeasedEngine<E: InlineEngine> {
    pub engine: E,
    pub leases: Box<Leases<E::Item>>,
}

/// See the module's documentation.
pub struct Leased<'s, E: InlineEngine> {
    pub owner: &'s LeasedEngine<E>,
    pub books: &'s Books,
}

impl<E: InlineEngine> Clone for Leased<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: InlineEngine> Copy for Leased<'_, E> {}

/// What the place of an entry has, without its lease. The place is locked, or an engine shows the entry.
#[inline(always)]
fn in_place(entry: Option<Entry>) -> Option<Entry> {
    // SAFETY: as for the function.
    entry.map(|entry| unsafe { unseated(entry) })
}

/// The body of an object that a change may put, and whether it does, by what the place has.
type Adding<'a> = (u64, &'a dyn Fn(Option<Entry>) -> bool);

impl<'s, E: InlineEngine> Leased<'s, E> {
    /// The contents as if nothing expired.
    #[inline(always)]
    pub fn plain(self) -> Plain<'s> {
        Plain {
            engine: self.owner.engine.either(),
            books: self.books,
        }
    }

    /// An entry that the engine shows, without its seat, and its lease.
    ///
    /// # Safety
    /// As for [`lease`].
    #[inline(always)]
    unsafe fn look_at(entry: Entry) -> (Entry, Lease) {
        // SAFETY: as the caller promises.
        unsafe {
            match E::SEATED {
                true => {
                    let (entry, shared) = behind_seat(entry);
                    (entry, shared.load())
                }
                false => (entry, lease(entry)),
            }
        }
    }

    /// The bytes of the engine, without those that are a part of the store.
    #[inline]
    pub fn engine_bytes(self) -> usize {
        self.owner.engine.bytes() - size_of::<E>()
    }

    #[cold]
    pub fn count_event(self, event: Event) {
        self.owner.engine.events().count(event, 1);
    }

    /// Counts out an object that is removed, and why. An object that has ended was counted out then.
    ///
    /// # Safety
    /// The place of the entry is locked.
    pub unsafe fn count_out(self, entry: Entry, why: Event) {
        // SAFETY: the place is locked, so the object lives. Tables with leases have no groups.
        let (ended, bytes) = unsafe { (lease(entry).notes() & ENDED != 0, body_bytes(unseated(entry).body)) };
        self.books.count(-i64::from(!ended), -(bytes as i64));
        match ended {
            // Relaxed: a count.
            true => _ = self.owner.leases.ended.fetch_sub(1, Ordering::Relaxed),
            false => self.count_event(why),
        }
    }

    /// Runs a change of a locked place that knows nothing of leases. `old` is what the place has, and `now` is
    /// [the time for it](Leases::time_for). An object that has expired is hidden from the change, and removed. Its body is stored in `gone`,
    /// for the caller to part with after the step. A new object may be in `staged` until the step is done. The change is shown a seat where
    /// there is one.
    #[inline(always)]
    pub fn change<R>(
        self,
        (guard, now): (&Guard, u64),
        old: Option<Entry>,
        (gone, staged): (&mut u64, &Staged),
        paying: Option<&mut Paying<'_, E::Item>>,
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
            unsafe {
                self.count_out(dead, Event::Expired);
                *gone = self.owner.leases.leaving(guard, dead, Why::Expired);
            }
        }
        let step = match step {
            Step::Put(new) => Step::Put(self.owner.leases.grant(new, old, now, staged)),
            _ if dead.is_some() => Step::Remove,
            step => step,
        };
        if let Some(paying) = paying {
            paying.pay(old, step);
        }
        (step, result)
    }

    /// [`update`](Content::update), and a look at flights. `adding` is the body of what `change` may put, and says whether it will. `present`
    /// says that `change` does nothing without an entry.
    #[inline(always)]
    fn change_and_tell<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        adding: Option<Adding<'_>>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let mut wrote = present;
        let result = self.change_in_place(guard, probe, adding, present, |old| noting(&mut wrote, change(old)))?;
        self.tell(wrote, probe);
        Ok(result)
    }

    /// Ends the flight of a key, if it was written.
    fn tell(self, wrote: bool, probe: &Probe<'static>) {
        if wrote && self.books.history.is_awaited() {
            self.books.wrote(probe, E::ORDERED);
        }
    }

    /// [`change_and_tell`](Self::change_and_tell) without a look at flights: for what removes objects that have ended.
    fn change_in_place<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        adding: Option<Adding<'_>>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        if let Some(limits) = self.owner.leases.limits() {
            return self.change_within(limits, guard, probe, adding, present, change);
        }
        let (mut gone, staged) = (0, Staged::default());
        // The clock is read with the place locked. So a change after the instant of a snapshot is not of an earlier time.
        let result = self.plain().update_as_it_is(
            guard,
            probe,
            present,
            #[inline(always)]
            |old| self.change((guard, clock::now()), old, (&mut gone, &staged), None, change),
        )?;
        self.part_with_expired(guard, gone);
        Ok(result)
    }

    /// Parts with an object that has expired, if there is one.
    fn part_with_expired(self, guard: &Guard, gone: u64) {
        if gone != 0 {
            // SAFETY: the place has another entry now, or none.
            unsafe { self.owner.leases.part_with(guard, gone, Why::Expired) }
        }
    }

    /// [`change_in_place`](Self::change_in_place) where there is a limit.
    fn change_within<R>(
        self,
        limits: &'s Limits<E::Item>,
        guard: &Guard,
        probe: &Probe<'static>,
        adding: Option<Adding<'_>>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let (mut change, mut paying) = (Some(change), Paying::new(limits));
        if adding.is_some() {
            limits.hold(self, guard)?;
        }
        // Most of what full contents lack are objects that are about to be put. So room is made before the place is locked.
        let price = adding.filter(|(_, puts)| puts(None));
        if let Some(price) = price.map(|(body, _)| limits.price_of_one(body, None)) {
            if limits.lacks(price) && !self.owner.engine.may_have(guard, probe) {
                limits.make_room(self, guard, &[probe], price, &mut paying.purse)?;
            }
        }
        loop {
            let (mut gone, staged) = (0, Staged::default());
            let done = self.plain().update_as_it_is(guard, probe, present, |old| {
                let now = self.owner.leases.time_for(old);
                // SAFETY: the place is locked, so its object lives.
                let live = old.filter(|entry| unsafe { deadline(*entry) } > now);
                let price = match adding {
                    Some((body, puts)) if puts(live) => match limits.fits(body) {
                        true => limits.price_of_one(body, old),
                        false => limits.price_of_one(body, None),
                    },
                    _ => 0,
                };
                if !paying.purse.affords(price) {
                    return (Step::Keep, Err(price));
                }
                let change = change.take().expect("a change runs once");
                let (step, result) = self.change((guard, now), old, (&mut gone, &staged), Some(&mut paying), change);
                (step, Ok(result))
            })?;
            self.part_with_expired(guard, gone);
            match done {
                Ok(result) => {
                    limits.settle(self, guard, &[probe], paying);
                    return Ok(result);
                }
                Err(price) => limits.make_room(self, guard, &[probe], price, &mut paying.purse)?,
            }
        }
    }

    /// [`update_making`](Content::update_making) where there is a limit.
    fn make_within<R>(
        self,
        limits: &'s Limits<E::Item>,
        guard: &Guard,
        probe: &Probe<'static>,
        adds: bool,
        mut change: impl FnMut(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let (mut paying, mut purse, mut wrote) = (Paying::new(limits), limits.purse(), false);
        if adds {
            limits.hold(self, guard)?;
        }
        // No room is made before, as in `change_within`: the change may fail, and then nothing is to be evicted.
        loop {
            let (mut gone, staged) = (0, Staged::default());
            let done = self.plain().update_as_it_is(guard, probe, false, |old| {
                let now = self.owner.leases.time_for(old);
                self.change((guard, now), old, (&mut gone, &staged), Some(&mut paying), |live| {
                    let live = in_place(live);
                    let (step, result) = change(live);
                    if let Step::Put(new) = step {
                        let lack = match limits.fits(new.body) {
                            true => Some(limits.price_of_one(new.body, old)).filter(|price| !purse.affords(*price)),
                            false => Some(limits.price_of_one(new.body, None)),
                        };
                        if let Some(price) = lack {
                            // SAFETY: nobody else knows the object.
                            unsafe { free_entry(new.body) };
                            return (Step::Keep, Err(price));
                        }
                    }
                    self.books.count_step(live, step);
                    noting(&mut wrote, (step, Ok(result)))
                })
            })?;
            self.part_with_expired(guard, gone);
            match done {
                Ok(result) => {
                    paying.purse.take_over(&mut purse);
                    limits.settle(self, guard, &[probe], paying);
                    self.tell(wrote, probe);
                    return Ok(result);
                }
                Err(price) => {
                    purse.take_over(&mut paying.purse);
                    limits.make_room(self, guard, &[probe], price, &mut purse)?;
                }
            }
        }
    }

    /// Makes room for what a call on many keys will probably add. The engine grows for all its keys before it locks their places, so what is
    /// refused is refused before. With the places locked, the price is looked at again.
    fn prepay(
        self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        planned: &impl Fn(usize) -> Planned,
        paying: &mut Paying<'_, E::Item>,
        lasting: &mut Option<Vec<bool>>,
    ) -> Result<(), Busy> {
        let limits = paying.limits;
        limits.hold(self, guard)?;
        let whole = |i: usize| limits.price_of(planned(i), None);
        if !limits.lacks((0..probes.len()).map(whole).sum()) {
            return Ok(());
        }
        let lasting = lasting.get_or_insert_with(|| last_of_keys(probes, E::ORDERED));
        let (mut prices, now) = ((0, 0), clock::now());
        for i in (0..probes.len()).filter(|i| lasting[*i]) {
            let old = self.owner.engine.read(guard, probes[i], |entry| entry)?;
            if planned(i).is_refused(old, now) {
                return Ok(());
            }
            prices.0 += limits.price_of(planned(i), old);
            prices.1 += whole(i);
        }
        // If all are too large together, nothing is to be evicted for them.
        let price = if limits.has_capacity(prices.1) {
            prices.0
        } else {
            prices.1
        };
        if !paying.purse.affords(price) {
            limits.make_room(self, guard, probes, price, &mut paying.purse)?;
        }
        Ok(())
    }

    /// Makes room for what a call is about to put one by one, so that what is put last does not evict what was put first. Others may take
    /// the room meanwhile.
    pub fn make_room_for(
        self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        planned: impl Fn(usize) -> Planned,
    ) -> Result<(), Busy> {
        let Some(limits) = self.owner.leases.limits().filter(|limits| limits.evicts()) else {
            return Ok(());
        };
        let whole: i64 = (0..probes.len()).map(|i| limits.price_of(planned(i), None)).sum();
        // Where not all of them have room together, each makes its own.
        match limits.has_capacity(whole) {
            true => self.prepay(guard, probes, &planned, &mut Paying::new(limits), &mut None),
            false => Ok(()),
        }
    }

    /// Steps until an entry lives. `step` shows the entry after (or before) a key.
    fn next_living<R, L: FnMut(Option<Entry>) -> R>(
        self,
        guard: &Guard,
        after: Option<&Probe<'static>>,
        mut look: L,
        mut step: impl FnMut(Option<&Probe<'static>>, &mut dyn FnMut(Option<Entry>)) -> Result<(), Busy>,
    ) -> Result<R, Busy> {
        let mut after = after.copied();
        for number in 0..STEPS {
            let (mut dead, mut result) = (None, None);
            step(after.as_ref(), &mut |entry| {
                // SAFETY: engines show entries under the guard.
                let is_dead = entry.is_some_and(|entry| !unsafe { lives(entry) });
                let entry = in_place(entry);
                (dead, result) = match is_dead {
                    true => (entry, None),
                    false => (None, Some(look(entry))),
                };
            })?;
            match (dead, result) {
                (Some(dead), _) => {
                    // SAFETY: the engine has validated the entry. Its object lives as long as the call's guard.
                    after = unsafe { Probe::stored(dead, self.owner.leases.key) }.map(|probe| *probe.erase());
                    if let (Some(probe), true) = (&after, number >= PASSED) {
                        self.remove_dead(guard, probe)?;
                    }
                }
                (None, result) => return Ok(result.expect("an engine looks")),
            }
        }
        Err(Busy)
    }

    /// Removes an object that has expired, for a walk that has met many of them in a row. The walk is to be tried again.
    #[cold]
    fn remove_dead(self, guard: &Guard, probe: &Probe<'static>) -> Result<(), Busy> {
        // What is hidden from a change is removed.
        self.change_in_place(guard, probe, None, true, |_| (Step::Keep, ()))
    }

    /// A part of a range that has an entry that lives, if any follows. `part` reads a part of a range, and says whether more may follow.
    fn living_range<'a, T>(
        self,
        guard: &Guard,
        range: Range<'a, Probe<'static>>,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
        mut part: impl FnMut(
            Range<'_, Probe<'static>>,
            &mut Vec<Passed>,
            &mut dyn FnMut(Entry, &mut Vec<Passed>),
        ) -> Result<bool, Busy>,
    ) -> Result<bool, Busy> {
        let mut from = range.from.map(|(probe, inclusive)| (*probe, inclusive));
        let mut met = Vec::new();
        for number in 0..STEPS {
            let range = Range {
                from: from.as_ref().map(|(probe, inclusive)| (probe, *inclusive)),
                ..range
            };
            // SAFETY: engines show entries under the guard.
            let look = |entry| unsafe { Self::look_at(entry) };
            let read = |met: &mut Vec<Passed>, show: &mut dyn FnMut(Entry, &mut Vec<Passed>)| part(range, met, show);
            let before = out.len();
            let more = living_part(out, &mut met, look, &mut expand, read)?;
            if number >= PASSED {
                for dead in met.iter().filter(|met| !met.lives) {
                    // SAFETY: as in `next_living`.
                    if let Some(probe) = unsafe { Probe::stored(dead.entry, self.owner.leases.key) } {
                        self.remove_dead(guard, probe.erase())?;
                    }
                }
            }
            // SAFETY: as in `next_living`.
            let last = met
                .last()
                .and_then(|last| unsafe { Probe::stored(last.entry, self.owner.leases.key) });
            match last {
                Some(last) if more && out.len() == before => from = Some((*last.erase(), false)),
                _ => return Ok(more),
            }
        }
        Err(Busy)
    }

    /// See [`Store::touch`](super::Store::touch).
    pub fn touch(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        time: u64,
        may: impl FnOnce() -> bool,
    ) -> Result<bool, Busy> {
        self.change_and_tell(guard, probe, None, false, |old| match old {
            Some(entry) if may() => {
                self.owner.leases.touch(entry, time, clock::now());
                (Step::Touch, true)
            }
            _ => (Step::Keep, false),
        })
    }

    /// See [`Store::time_left`](super::Store::time_left).
    pub fn time_left(self, guard: &Guard, probe: &Probe<'static>) -> Result<Option<(u64, u64)>, Busy> {
        let found = self.owner.engine.read(guard, probe, |entry| {
            // SAFETY: engines show entries under the guard.
            entry.map(|entry| unsafe { (deadline(entry), own_end(entry.body, lease(entry))) })
        })?;
        // After the read: no object that comes meanwhile has more time left than it was given.
        let now = clock::now();
        let left = |time: u64| if time == NEVER { NEVER } else { time.saturating_sub(now) };
        Ok(found
            .filter(|(deadline, _)| *deadline > now)
            .map(|(deadline, end)| (left(deadline), left(end.max(deadline)))))
    }

    /// See [`Store::read_keeping`](super::Store::read_keeping).
    pub fn read_keeping(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        (stale, ahead): (u64, u64),
    ) -> Result<Option<(Entry, Life)>, Busy> {
        self.owner.leases.keep_for(stale);
        let found = self.owner.engine.read(guard, probe, |entry| {
            // SAFETY: engines show entries under the guard.
            entry.map(|shown| (shown, unsafe { Self::look_at(shown) }))
        })?;
        let Some((shown, (entry, lease))) = found else {
            return Ok(None);
        };
        // SAFETY: the engine has validated the entry.
        let life = unsafe { self.owner.leases.fetched(shown, lease, stale, ahead) };
        Ok(life.map(|life| (entry, life)))
    }

    /// See [`Store::keep_new`](super::Store::keep_new).
    pub fn keep_new(self, entry: Entry, stale: u64) {
        self.owner.leases.keep_for(stale);
        // SAFETY: the caller has the new object.
        self.owner.leases.keep(entry, unsafe { lease(entry) });
    }
}

impl<'s, E: InlineEngine> Content<'s> for Leased<'s, E> {
    fn books(self) -> &'s Books {
        self.books
    }

    fn read<U: Use, R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        // The body of what was found as it was shown, or 0, and its lease.
        let none = Lease::new(NEVER, NOWHERE);
        let mut seen = (0, none);
        let result = self.owner.engine.read(guard, probe, |entry: Option<Entry>| {
            // SAFETY: engines show entries under the guard.
            let found = entry.map(|shown| (shown.body, unsafe { Self::look_at(shown) }));
            let living = found.filter(|(_, (_, lease))| !is_expired(*lease));
            seen = living.map_or((0, none), |(body, (_, lease))| (body, lease));
            look(living.map(|(_, (entry, _))| entry))
        })?;
        let (body, lease) = seen;
        if U::COUNTS && body != 0 {
            self.owner.leases.used(body, lease);
        }
        Ok(result)
    }

    #[inline(always)]
    fn read_entry<U: Use>(self, guard: &Guard, probe: &Probe<'static>) -> Result<Option<Entry>, Busy> {
        let found = self.owner.engine.read(guard, probe, |entry| {
            // SAFETY: engines show entries under the guard.
            entry.map(|shown| (shown.body, unsafe { Self::look_at(shown) }))
        })?;
        let Some((shown, (entry, lease))) = found else {
            return Ok(None);
        };
        if is_expired(lease) {
            return Ok(None);
        }
        if U::COUNTS {
            self.owner.leases.used(shown, lease);
        }
        Ok(Some(entry))
    }

    fn update<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.change_and_tell(guard, probe, None, false, |old| change(in_place(old)))
    }

    fn update_present<R: Default>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        self.change_and_tell(guard, probe, None, true, |old| {
            in_place(old).map_or_else(|| (Step::Keep, R::default()), change)
        })
    }

    fn update_adding<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        body: u64,
        puts: impl Fn(Option<Entry>) -> bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.change_and_tell(guard, probe, Some((body, &|old| puts(in_place(old)))), false, |old| {
            change(in_place(old))
        })
    }

    fn update_making<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        adds: bool,
        mut change: impl FnMut(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        match self.owner.leases.limits() {
            Some(limits) => self.make_within(limits, guard, probe, adds, change),
            None => self.update(guard, probe, |old| {
                let (step, result) = change(old);
                self.books.count_step(old, step);
                (step, result)
            }),
        }
    }

    fn update_many<R>(
        self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        actor: Actor<'_>,
        planned: impl Fn(usize) -> Planned,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let (mut change, mut paying) = (Some(change), self.owner.leases.limits().map(Paying::new));
        // Of several writes of one key the last one counts. That is looked at if there is no room for all of them.
        let mut lasting = None;
        if let Some(paying) = &mut paying {
            self.prepay(guard, probes, &planned, paying, &mut lasting)?;
        }
        loop {
            let done = self.plain().update_many_as_it_is(guard, probes, actor, |places| {
                // As in `change_in_place`.
                let now = clock::now();
                let is_refused = || (0..probes.len()).any(|i| planned(i).is_refused(places.get(i), now));
                if let Some(paying) = paying.as_mut().filter(|_| !is_refused()) {
                    let lasts = |i: &usize| lasting.as_ref().is_none_or(|lasting: &Vec<bool>| lasting[*i]);
                    let price = |old: &dyn Fn(usize) -> Option<Entry>| -> i64 {
                        let lasting = (0..probes.len()).filter(lasts);
                        lasting.map(|i| paying.limits.price_of(planned(i), old(i))).sum()
                    };
                    let needed = price(&|i| places.get(i));
                    if !paying.purse.affords(needed) {
                        // If all are too large together, nothing is to be evicted for them.
                        let whole = price(&|_| None);
                        return Err(if paying.limits.has_capacity(whole) {
                            needed
                        } else {
                            whole
                        });
                    }
                }
                let change = change.take().expect("a change runs once");
                let mut places = LeasedPlaces {
                    places,
                    content: self,
                    time: (guard, now),
                    staged: Staged::default(),
                    paying: paying.as_mut(),
                    gone: Vec::new(),
                };
                Ok((change(&mut places), places.gone))
            })?;
            let price = match done {
                Ok((result, gone)) => {
                    gone.into_iter().for_each(|body| self.part_with_expired(guard, body));
                    if let Some(paying) = paying {
                        paying.limits.settle(self, guard, probes, paying);
                    }
                    return Ok(result);
                }
                Err(price) => price,
            };
            if lasting.is_none() && probes.len() > 1 {
                lasting = Some(last_of_keys(probes, E::ORDERED));
                continue;
            }
            let paying = paying.as_mut().ok_or(Busy)?;
            paying.limits.make_room(self, guard, probes, price, &mut paying.purse)?;
        }
    }

    fn step<R>(
        self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        trail: &mut Trail,
        down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.next_living(guard, from, look, |from, look| {
            self.owner.engine.step(guard, from, trail, down, look)
        })
    }

    fn scan<'g>(
        self,
        guard: &'g Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        self.owner.engine.scan_from(guard, position, limit, out, |entry, out| {
            // SAFETY: engines show entries under the guard.
            if unsafe { lives(entry) } {
                // SAFETY: as above.
                expand(unsafe { unseated(entry) }, out);
            }
        })
    }

    fn range<'g>(
        self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        self.living_range(guard, range, out, expand, |range, out, expand| {
            self.owner.engine.range(guard, range, limit, out, expand)
        })
    }
}

/// An entry of a range, without its seat.
struct Passed {
    entry: Entry,
    lives: bool,
    /// Where its objects end.
    end: usize,
}

/// Appends what `expand` appends for the entries that live among those which `read` shows. `met` gets all of them. `look` tells the entry and
/// its lease. As engines do, `read` may take back entries that it has shown, by truncating `met`.
fn living_part<T>(
    out: &mut Vec<T>,
    met: &mut Vec<Passed>,
    look: impl Fn(Entry) -> (Entry, Lease),
    mut expand: impl FnMut(Entry, &mut Vec<T>),
    read: impl FnOnce(&mut Vec<Passed>, &mut dyn FnMut(Entry, &mut Vec<Passed>)) -> Result<bool, Busy>,
) -> Result<bool, Busy> {
    let before = out.len();
    let end = |met: &[Passed]| met.last().map_or(before, |last| last.end);
    met.clear();
    let more = read(met, &mut |entry, met| {
        out.truncate(end(met));
        let (entry, lease) = look(entry);
        let lives = !is_expired(lease);
        if lives {
            expand(entry, out);
        }
        let end = out.len();
        met.push(Passed { entry, lives, end });
    });
    out.truncate(if more.is_ok() { end(met) } else { before });
    more
}

/// The places of an operation on many keys, for a change that knows nothing of leases.
struct LeasedPlaces<'a, 's, E: InlineEngine> {
    places: &'a mut dyn Locked,
    content: Leased<'s, E>,
    time: (&'a Guard, u64),
    staged: Staged,
    /// For a table with a limit.
    paying: Option<&'a mut Paying<'s, E::Item>>,
    /// The bodies of objects that have expired and were removed. The caller parts with them.
    gone: Vec<u64>,
}

impl<E: InlineEngine> Locked for LeasedPlaces<'_, '_, E> {
    fn get(&self, i: usize) -> Option<Entry> {
        // SAFETY: the place is locked, so its object lives.
        let live = self
            .places
            .get(i)
            .filter(|entry| unsafe { lease(*entry) }.deadline() > self.time.1);
        in_place(live)
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let (content, time, staged) = (self.content, self.time, &self.staged);
        let (mut gone, paying) = (0, &mut self.paying);
        self.places.update(i, &mut |old| {
            let paying = paying.as_deref_mut();
            let (step, ()) = content.change(time, old, (&mut gone, staged), paying, |old| {
                (change(in_place(old)), ())
            });
            step
        });
        if gone != 0 {
            self.gone.push(gone);
        }
    }

    fn update_all(&mut self, probes: usize, change: &mut dyn FnMut(usize, Option<Entry>) -> Step) {
        let (content, time, staged) = (self.content, self.time, &self.staged);
        let (all_gone, paying) = (&mut self.gone, &mut self.paying);
        self.places.update_all(probes, &mut |i, old| {
            let (mut gone, paying) = (0, paying.as_deref_mut());
            let (step, ()) = content.change(time, old, (&mut gone, staged), paying, |old| {
                (change(i, in_place(old)), ())
            });
            all_gone.extend(Some(gone).filter(|gone| *gone != 0));
            step
        });
    }

    fn held(&self, held: &mut Vec<cats_engine::HeldPlace>) {
        self.places.held(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine reads a leaf whose entries have expired, and takes back the next one, which has others.
    #[test]
    fn what_was_taken_back_was_not_met() {
        let entry = |key| Entry { key, body: 0 };
        let look = |entry: Entry| (entry, Lease::new(if entry.key % 2 == 0 { NEVER } else { 0 }, NOWHERE));
        let expand = |entry: Entry, out: &mut Vec<u64>| out.push(entry.key);
        let (mut out, mut met) = (vec![77], Vec::new());
        // Shows the keys, takes back those behind so many, and shows others.
        let mut read = |keys: &[u64], left: usize, others: &[u64]| {
            let more = living_part(&mut out, &mut met, look, expand, |met, show| {
                keys.iter().for_each(|key| show(entry(*key), met));
                met.truncate(left);
                others.iter().for_each(|key| show(entry(*key), met));
                Ok(true)
            });
            assert_eq!(more.map_err(|_| ()), Ok(true));
            let met: Vec<_> = met.iter().map(|met| (met.entry.key, met.lives)).collect();
            (out.clone(), met)
        };
        assert_eq!(read(&[1, 3, 4, 6], 2, &[]), (vec![77], vec![(1, false), (3, false)]));
        assert_eq!(
            read(&[2, 4, 6], 1, &[3, 8]),
            (vec![77, 2, 8], vec![(2, true), (3, false), (8, true)])
        );
        assert_eq!(read(&[4, 6], 0, &[]), (vec![77, 2, 8], vec![]));
    }
}
