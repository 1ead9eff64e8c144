//! A hierarchical timer wheel. Source: Varghese and Lauck, "Hashed and hierarchical timing wheels: data structures for the efficient
//! implementation of a timer facility", SOSP 1987, scheme 7.
//!
//! An item says where an object is to be looked for, not when it expires: that is in the object's lease. So an item may fire early, and
//! whoever looks the object up then adds a new item. That is what moves items from a coarse level to a finer one. It also makes stale items
//! harmless.
//!
//! | level | a slot has |
//! |---|---|
//! | 0 | 1 tick, 16 ms |
//! | 1 | 64 ticks, 1 s |
//! | 2 | 4096 ticks, 65 s |
//! | ... | 64 times as much as the level below |
//!
//! An item is on the level of the highest digit, to base 64, in which its tick differs from the present one. So a slot of a level is
//! pending at one time only.
//!
//! The *place* of an item is the number of its slot, and a bit that changes each time that the slot is emptied. An object's lease has the
//! place of its item. An item that fires and finds another place in the lease is stale.
//!
//! The wheel is divided into parts with a lock each. A thread uses any part whose lock is free, so threads rarely wait for each other.

use crate::exclusive::Exclusive;
use cats_sync::cache_line::CacheLine;
use cats_sync::facade::{spin_loop, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use cats_sync::Busy;
use cats_term::lease::PLACES;
use std::cell::Cell;
use std::mem::take;

/// The milliseconds of a tick, as a binary logarithm.
const TICK_SHIFT: u32 = 4;
/// The binary logarithm of the slots of a level.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
/// As many levels as times have digits.
const LEVELS: usize = 7;
/// The bit of a place that changes when the slot is emptied.
const TURN_SHIFT: u32 = 9;
const _: () =
    assert!(LEVELS * SLOTS <= 1 << TURN_SHIFT && 1 << TURN_SHIFT <= PLACES && (448 | 1 << TURN_SHIFT) <= PLACES);

/// The items of the first chunk of a slot, and those of the largest. An item takes at most the room of `LEAST_ROOM`.
pub const LEAST_ROOM: usize = 2;
const MOST_ROOM: usize = 64;

/// Fewer items of a part are never too many.
pub const CROWD: usize = 4096;

/// What may own memory.
pub trait Owner {
    /// The bytes of this memory.
    fn owned_bytes(&self) -> usize {
        0
    }
}

impl Owner for u32 {}

/// The tick of a time.
#[inline]
fn tick_of(time: u64) -> u64 {
    time >> TICK_SHIFT
}

/// The time at which a tick begins.
#[inline]
fn time_of(tick: u64) -> u64 {
    tick << TICK_SHIFT
}

/// Items that are to be looked at, and the place where they were.
struct Due<T> {
    place: u64,
    items: Vec<T>,
}

impl<T: Owner> Due<T> {
    fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.items.iter().map(Owner::owned_bytes).sum::<usize>()
    }
}

/// Items that were taken from a wheel to be looked at. Those that are left when this is dropped are due again.
pub struct Taken<'a, T: Owner> {
    wheel: &'a Wheel<T>,
    pub place: u64,
    pub items: Vec<T>,
}

impl<T: Owner> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let (place, items) = (self.place, take(&mut self.items));
        if !items.is_empty() {
            self.wheel
                .with_any(|shared, part| shared.change(part, |part| part.push(Due { place, items })));
        }
        // Release: see `is_quiet`.
        self.wheel.done.fetch_add(1, Ordering::Release);
    }
}

/// Items of a slot. The chunks before it are full.
struct Chunk<T> {
    items: Vec<T>,
    before: Slot<T>,
}

/// The last chunk of a slot.
type Slot<T> = Option<Box<Chunk<T>>>;

impl<T> Drop for Chunk<T> {
    /// One chunk after the other, as they may be too many for the stack.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut chunk) = before {
            before = chunk.before.take();
        }
    }
}

struct Level<T> {
    /// A bit for each slot that has items.
    occupied: u64,
    /// A bit for each slot: whether it was emptied an odd number of times.
    turns: u64,
    slots: Option<Box<[Slot<T>; SLOTS]>>,
}

/// A part of the wheel.
struct Part<T> {
    /// The present tick: slots of earlier ones are empty.
    at: u64,
    levels: [Level<T>; LEVELS],
    due: Vec<Due<T>>,
    items: usize,
    bytes: usize,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self {
            at: 0,
            levels: std::array::from_fn(|_| Level {
                occupied: 0,
                turns: 0,
                slots: None,
            }),
            due: Vec::new(),
            items: 0,
            bytes: 0,
        }
    }
}

impl<T: Owner> Part<T> {
    /// Adds an item that fires at this tick or before. Returns its place.
    fn add(&mut self, item: T, tick: u64) -> u64 {
        let tick = tick.max(self.at);
        self.bytes += item.owned_bytes();
        let level = ((u64::BITS - 1 - ((tick ^ self.at) | 1).leading_zeros()) / DIGIT) as usize;
        let slot = (tick >> (DIGIT * level as u32)) as usize % SLOTS;
        let Level { occupied, turns, slots } = &mut self.levels[level];
        let slots = slots.get_or_insert_with(|| {
            self.bytes += size_of::<[Slot<T>; SLOTS]>();
            Box::new(std::array::from_fn(|_| None))
        });
        *occupied |= 1 << slot;
        match &mut slots[slot] {
            Some(chunk) if chunk.items.len() < chunk.items.capacity() => chunk.items.push(item),
            last => {
                let room = last
                    .as_ref()
                    .map_or(LEAST_ROOM, |chunk| (2 * chunk.items.capacity()).min(MOST_ROOM));
                let mut items = Vec::with_capacity(room);
                self.bytes += items.capacity() * size_of::<T>();
                items.push(item);
                let before = last.take();
                *last = Some(Box::new(Chunk { items, before }));
            }
        }
        self.items += 1;
        (level * SLOTS + slot) as u64 | (*turns >> slot & 1) << TURN_SHIFT
    }

    /// The tick at which the next slot fires.
    fn next(&self) -> Option<u64> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        let shift = DIGIT * level as u32;
        let slot = u64::from(self.levels[level].occupied.trailing_zeros());
        Some((self.at >> shift >> DIGIT << DIGIT | slot) << shift)
    }

    /// Makes the items of a slot due.
    fn empty(&mut self, level: usize, slot: usize) {
        let Level { occupied, turns, slots } = &mut self.levels[level];
        let Some(slots) = slots else { return };
        let place = (level * SLOTS + slot) as u64 | (*turns >> slot & 1) << TURN_SHIFT;
        *occupied &= !(1 << slot);
        *turns ^= 1 << slot;
        let mut last = slots[slot].take();
        while let Some(mut chunk) = last {
            let items = take(&mut chunk.items);
            self.due.push(Due { place, items });
            last = chunk.before.take();
        }
    }

    /// Goes on to a tick. What fires up to then, it included, becomes due.
    fn advance(&mut self, tick: u64) {
        while let Some(next) = self.next().filter(|next| *next <= tick) {
            self.at = self.at.max(next);
            let level = self.levels.iter().position(|level| level.occupied != 0);
            let level = level.expect("a slot fires");
            let slot = self.levels[level].occupied.trailing_zeros() as usize;
            self.empty(level, slot);
        }
        self.at = self.at.max(tick);
    }

    /// Makes all items due.
    fn empty_all(&mut self) {
        for level in 0..LEVELS {
            while self.levels[level].occupied != 0 {
                let slot = self.levels[level].occupied.trailing_zeros() as usize;
                self.empty(level, slot);
            }
        }
    }

    /// The next items that are due.
    fn pop(&mut self) -> Option<Due<T>> {
        let due = self.due.pop()?;
        self.items -= due.items.len();
        self.bytes -= due.bytes();
        Some(due)
    }

    fn push(&mut self, due: Due<T>) {
        self.items += due.items.len();
        self.bytes += due.bytes();
        self.due.push(due);
    }
}

/// A part with its lock.
struct Shared<T> {
    part: Exclusive<Part<T>>,
    /// No slot fires before this time. 0: something is due. `u64::MAX`: there is none. Written by the holder of the lock.
    /// Relaxed, for who holds the lock, and for a look that may be late: the next one finds what this one missed.
    due: AtomicU64,
    /// The bytes of the part. Written by the holder of the lock. Relaxed: a figure.
    bytes: AtomicUsize,
    _line: CacheLine,
}

impl<T: Owner> Shared<T> {
    fn new() -> Self {
        Self {
            part: Exclusive::default(),
            due: AtomicU64::new(u64::MAX),
            bytes: AtomicUsize::new(0),
            _line: CacheLine,
        }
    }

    /// Runs `f` with the part, and notes when it fires next.
    fn change<R>(&self, part: &mut Part<T>, f: impl FnOnce(&mut Part<T>) -> R) -> R {
        let result = f(part);
        self.bytes.store(part.bytes, Ordering::Relaxed);
        let due = match part.due.is_empty() {
            true => part.next().map_or(u64::MAX, time_of),
            false => 0,
        };
        // Release pairs with the Acquire in `may_fire`: whoever sees the time sees that items were taken.
        self.due.store(due, Ordering::Release);
        result
    }
}

/// See the module's documentation. `T` is an item.
pub struct Wheel<T: Owner> {
    parts: Box<[Shared<T>]>,
    /// How often items were taken, and how often the work at them has ended.
    taken: AtomicUsize,
    done: AtomicUsize,
    /// The items of a part have become many. Relaxed: a hint.
    crowded: AtomicBool,
}

thread_local! {
    /// The part that this thread used last.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// The number of parts of a wheel that many threads use, and of one that few use or that is to be small. There are at least two, so that
/// one is free while another is emptied.
pub const PARTS: usize = 16;
pub const FEW_PARTS: usize = 2;

/// The bytes of a wheel with so many parts whose items are gone, at most, and of the next chunks. An item has so many bytes.
pub const fn empty_bytes(parts: usize, item: usize) -> usize {
    // The type of the items does not matter to the other sizes.
    new_bytes(parts) + parts * (LEVELS * size_of::<[Slot<u32>; SLOTS]>() + MOST_ROOM * item)
}

/// The bytes of a wheel with so many parts that never had an item.
pub const fn new_bytes(parts: usize) -> usize {
    parts * size_of::<Shared<u32>>()
}

impl<T: Owner> Wheel<T> {
    pub fn new(parts: usize) -> Self {
        Self {
            parts: (0..parts).map(|_| Shared::new()).collect(),
            taken: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
        }
    }

    /// Adds an item that fires by the time, and returns its place. `now` is the time.
    ///
    /// Whenever the items of a part have doubled, [`is_crowded`](Self::is_crowded) tells so.
    pub fn add(&self, item: T, time: u64, now: u64) -> u64 {
        self.with_any(|shared, part| {
            if part.items == 0 {
                // Nothing refers to the time at which the part stands.
                part.at = part.at.max(tick_of(now));
            }
            let place = part.add(item, tick_of(time));
            // Relaxed: a figure.
            shared.bytes.store(part.bytes, Ordering::Relaxed);
            // A slot of a coarse level may fire earlier. But nobody waits for that: its items have the same time at least.
            if shared.due.load(Ordering::Relaxed) > time {
                // Release: as in `change`.
                shared.due.store(time, Ordering::Release);
            }
            if part.items >= CROWD && part.items.is_power_of_two() {
                self.crowded.store(true, Ordering::Relaxed);
            }
            place
        })
    }

    /// Runs `f` with a part that nobody uses.
    fn with_any<R>(&self, f: impl FnOnce(&Shared<T>, &mut Part<T>) -> R) -> R {
        let mut f = Some(f);
        let first = MINE.get();
        let mut number = first;
        // Parts are held for less than a microsecond, and there are several. So one of them is free soon.
        loop {
            let shared = &self.parts[number % self.parts.len()];
            let done = shared
                .part
                .try_with(|part| f.take().expect("a part runs this once")(shared, part));
            if let Some(result) = done {
                if number != first {
                    MINE.set(number % self.parts.len());
                }
                return result;
            }
            number = number.wrapping_add(1);
            spin_loop();
        }
    }

    /// The time at which the next slot may fire. `u64::MAX` if there is none, 0 if items are due.
    pub fn due(&self) -> u64 {
        // Acquire: see `change`.
        let due = self.parts.iter().map(|shared| shared.due.load(Ordering::Acquire));
        due.min().unwrap_or(u64::MAX)
    }

    /// Whether nothing fires by the time, and nobody works at items.
    pub fn is_quiet(&self, time: u64) -> bool {
        // Acquire pairs with the Release in `done`. What was taken before has ended before, if the numbers are equal.
        let done = self.done.load(Ordering::Acquire);
        self.due() > time && self.taken.load(Ordering::Acquire) == done
    }

    /// Whether somebody works at items.
    pub fn is_at_work(&self) -> bool {
        // Acquire: as in `is_quiet`.
        let done = self.done.load(Ordering::Acquire);
        self.taken.load(Ordering::Acquire) != done
    }

    /// Makes due what fires by the time. With `whole`, this includes the tick of the time. Fails if a part is in use for long, and leaves
    /// that out.
    pub fn advance(&self, time: u64, whole: bool) -> Result<(), Busy> {
        let Some(tick) = tick_of(time).checked_sub(u64::from(!whole)) else {
            return Ok(());
        };
        let mut done = Ok(());
        for shared in &self.parts {
            if shared.due.load(Ordering::Relaxed) <= time {
                let advanced = shared.part.with(|part| shared.change(part, |part| part.advance(tick)));
                done = done.and(advanced);
            }
        }
        done
    }

    /// Makes everything due. Fails if a part is in use for long, and leaves that out.
    pub fn empty(&self) -> Result<(), Busy> {
        let mut done = Ok(());
        for shared in &self.parts {
            let emptied = shared.part.with(|part| shared.change(part, Part::empty_all));
            done = done.and(emptied);
        }
        done
    }

    /// Items that are due. Fails if a part is in use for long and no other one has any.
    pub fn take(&self) -> Result<Option<Taken<'_, T>>, Busy> {
        let mut none = Ok(None);
        for shared in &self.parts {
            // Relaxed: a hint. 0 is seen once what made something due is seen.
            if shared.due.load(Ordering::Relaxed) != 0 {
                continue;
            }
            let due = shared.part.with(|part| {
                if part.due.is_empty() {
                    return None;
                }
                // Relaxed: the store of the time comes after it.
                self.taken.fetch_add(1, Ordering::Relaxed);
                shared.change(part, Part::pop)
            });
            match due {
                Ok(Some(Due { place, items })) => {
                    let wheel = self;
                    return Ok(Some(Taken { wheel, place, items }));
                }
                Ok(None) => (),
                Err(Busy) => none = Err(Busy),
            }
        }
        none
    }

    /// Whether items have become many since this was last asked.
    pub fn is_crowded(&self) -> bool {
        // Relaxed: a hint. The load first spares the line a write.
        self.crowded.load(Ordering::Relaxed) && self.crowded.swap(false, Ordering::Relaxed)
    }

    /// Whether [`is_crowded`](Self::is_crowded) has that to tell.
    #[inline]
    pub fn has_crowd(&self) -> bool {
        // Relaxed: a hint. For the reaper, the barrier of the caller orders it.
        self.crowded.load(Ordering::Relaxed)
    }

    /// Lets [`is_crowded`](Self::is_crowded) tell once more that items have become many.
    pub fn crowd(&self) {
        // Relaxed: a hint.
        self.crowded.store(true, Ordering::Relaxed);
    }

    /// The number of items. Fails if a part is in use for long.
    pub fn items(&self) -> Result<usize, Busy> {
        self.parts
            .iter()
            .map(|shared| shared.part.with(|part| part.items))
            .sum()
    }

    /// The bytes of memory.
    pub fn bytes(&self) -> usize {
        // Relaxed: a figure.
        let bytes = self.parts.iter().map(|shared| shared.bytes.load(Ordering::Relaxed));
        size_of_val(&*self.parts) + bytes.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The items that are due at a time, with their places.
    fn fire(wheel: &Wheel<u32>, now: u64) -> Vec<(u32, u64)> {
        wheel.advance(now, true).unwrap();
        let mut fired = Vec::new();
        while let Some(mut due) = wheel.take().unwrap() {
            let place = due.place;
            fired.extend(due.items.drain(..).map(|item| (item, place)));
        }
        fired
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        /// Each item fires at its time at the latest, if those that fire early are added again. It has the place that it was given.
        #[test]
        fn items_fire_in_time(start in 0..1_u64 << 41, steps in prop::collection::vec((0..3_u8, 0..40_u32, 0..1_000_000_u64), 1..200)) {
            let wheel = Wheel::new(FEW_PARTS);
            let (mut now, mut pending) = (start, std::collections::HashMap::new());
            for (n, (kind, shift, amount)) in steps.into_iter().enumerate() {
                if kind < 2 {
                    let time = now + (amount & ((1 << (shift / 2)) - 1));
                    let place = wheel.add(n as u32, time, now);
                    pending.insert(n as u32, (time, place));
                    continue;
                }
                now += amount & ((1 << (shift / 2)) - 1);
                prop_assert!(pending.values().all(|(time, _)| *time > now || !wheel.is_quiet(now)));
                for (item, place) in fire(&wheel, now) {
                    let (time, expected) = pending[&item];
                    prop_assert_eq!(place, expected);
                    if time <= now {
                        pending.remove(&item);
                    } else {
                        let place = wheel.add(item, time, now);
                        prop_assert!(place != expected);
                        pending.insert(item, (time, place));
                    }
                }
                prop_assert!(pending.values().all(|(time, _)| *time > now));
                prop_assert_eq!(wheel.items().unwrap(), pending.len());
            }
        }
    }

    /// After all slots of the lowest levels were used, they are used again.
    #[test]
    fn the_wheel_wraps() {
        let wheel = Wheel::new(FEW_PARTS);
        let mut now = 0;
        for round in 0..10_000_u32 {
            wheel.add(round, now + 100, now);
            now += 101;
            assert_eq!(fire(&wheel, now).last().map(|(item, _)| *item), Some(round));
            assert_eq!(wheel.items().unwrap(), 0);
        }
    }

    /// An item that fires early goes to a finer level, so it fires at most once for each level.
    #[test]
    fn items_fire_once_a_level() {
        for shift in 0..40 {
            let (time, mut now, mut fired) = ((1 << shift) + 54_321, 0, 0);
            let wheel = Wheel::new(FEW_PARTS);
            wheel.add(0, time, now);
            while tick_of(now) < tick_of(time) {
                now += ((time - now) / 100).max(1);
                // It fires at once, and the wheel looks at which slot is next.
                wheel.add(1, now, now);
                for (item, _) in fire(&wheel, now).into_iter().filter(|(item, _)| *item == 0) {
                    fired += 1;
                    assert!(fired <= LEVELS, "{fired} times by {now} for {time}");
                    wheel.add(item, time, now);
                }
            }
        }
    }

    /// A thread that uses a part and does not run keeps others from the items of that part only.
    #[test]
    fn a_part_in_use_is_passed_over() {
        let wheel = Wheel::new(FEW_PARTS);
        for (held, item) in [(1, 8), (0, 7)] {
            wheel.parts[held].part.with(|_| _ = wheel.add(item, 100, 0)).unwrap();
        }
        let taken = || {
            wheel
                .take()
                .map(|due| due.map(|mut due| due.items.drain(..).collect::<Vec<_>>()))
        };
        wheel.parts[0]
            .part
            .with(|_| {
                assert_eq!(wheel.empty(), Err(Busy));
                assert_eq!(taken(), Ok(Some(vec![7])));
                assert_eq!(taken(), Ok(None));
            })
            .unwrap();
        wheel.advance(200, true).unwrap();
        wheel.parts[0].part.with(|_| assert_eq!(taken(), Err(Busy))).unwrap();
        assert_eq!(taken(), Ok(Some(vec![8])));
        assert!(wheel.is_quiet(200));
    }

    #[test]
    fn many_items_take_few_bytes() {
        let wheel = Wheel::new(FEW_PARTS);
        (0..1_000_000).for_each(|n| _ = wheel.add(n, u64::from(n), 0));
        let bytes = wheel.bytes();
        assert!(bytes < 4_800_000, "{bytes}");
        assert_eq!(fire(&wheel, 1_000_000).len(), 1_000_000);
        assert!(wheel.bytes() < 100_000);
    }
}
