//! `first` to `prev_lookup`, and `slot/2`. A traversal of any table is safe without fixing the table. The position is a hash in a hash
//! table, and a key in an ordered table. Neither needs to be in the table any more.

use crate::budget::Budget;
use crate::engines::Kind;
use crate::failure::{Cause, Failure};
use crate::object::group::{Group, GROUP_LIMIT};
use crate::object::schema::{stored_key, Probe};
use crate::object::{is_changing, is_group, unseated, Copies, ObjectRef, COPY_LIMIT};
use crate::operations::lookup::Objects;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::table::Handle;
use cats_engine::{Busy, Entry, Origin, Trail};
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicU64, Ordering};
use cats_term::{is_immediate, Scratch, TermRef};
use std::cell::RefCell;

/// The direction of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `first` and `next`.
    Up,
    /// `last` and `prev`. The same as [`Up`](Self::Up) in an unordered table.
    Down,
}

/// The largest number of entries of an ordered table without order statistics that a scheduler passes to find one by its number.
const SLOTS_LIMIT: Budget = Budget(50_000);

/// The smallest number of slots of a hash table, which is that of ETS. Programs may expect that so many slots exist. If there are fewer
/// buckets, the last slots are empty.
const MIN_SLOTS: usize = 256;

/// The number of trails that each thread keeps.
const TRAIL_COUNT: usize = 4;

/// The number of keys of a snapshot that a fold reads at once.
const RUN: usize = 128;

/// The number of a place without a number.
const UNNUMBERED: u64 = 0;

/// The number of numbers that a trail gets at once.
const NUMBERS: u64 = 1 << 12;

/// The total number of numbers. They are reused only after so many others that nobody has an old one any more.
const ALL_NUMBERS: u64 = 1 << 58;

/// The next number that is not in use.
static NUMBER: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This thread's trails. A store's address determines its trail.
    static TRAILS: RefCell<[Trail; TRAIL_COUNT]> = const { RefCell::new([const { Trail::new() }; TRAIL_COUNT]) };
}

/// Lends the trail of a store.
#[inline]
fn with_trail<R>(store: &Store, f: impl FnOnce(&mut Trail) -> R) -> R {
    let place = (std::ptr::from_ref(store).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    TRAILS.with_borrow_mut(|trails| f(&mut trails[place as usize % TRAIL_COUNT]))
}

/// Searches the way of a step.
#[inline(always)]
fn step<R>(
    store: &Store,
    guard: &Guard,
    from: Option<&Probe<'_>>,
    trail: &mut Trail,
    direction: Direction,
    look: impl FnMut(Option<Entry>) -> R,
) -> Result<R, Busy> {
    match direction {
        Direction::Up => store.next(guard, from, trail, look),
        Direction::Down => store.previous(guard, from, trail, look),
    }
}

/// The entry, with a group replaced by the group's first object.
#[inline(always)]
fn first_of(entry: Option<Entry>) -> Option<Entry> {
    match entry {
        Some(entry) if is_group(entry.body) => first_of_group(entry),
        entry => entry,
    }
}

#[inline(never)]
fn first_of_group(entry: Entry) -> Option<Entry> {
    // SAFETY: groups are retired through the epoch, and engines call this under a guard.
    let body = unsafe { Group::from_body(entry.body) }.first()?;
    Some(Entry { body, ..entry })
}

impl<'g> Handle<'g> {
    /// The key after (or before) this one, which need not be in the table. Without a key, the first (or last) one.
    ///
    /// Inlined, because otherwise the result would pass through memory.
    #[inline(always)]
    pub fn step(self, from: Option<&Probe<'_>>, direction: Direction) -> Result<Option<TermRef<'g>>, Failure> {
        // Captured, because a result as large would pass through memory.
        let mut found = None;
        self.step_with(
            from,
            direction,
            #[inline(always)]
            |entry| found = first_of(entry),
        )?;
        Ok(self.found_key(found))
    }

    /// [`step`](Self::step) from an immediate. First tries to go on from where this thread's last step began or ended.
    #[inline(always)]
    pub fn step_from(self, key: u64, direction: Direction) -> Result<Option<TermRef<'g>>, Failure> {
        let store = self.store();
        let probe = self.table.probe(TermRef::immediate(key));
        // An immediate is the key word of itself and of no other key.
        let is_here = |origin| match origin {
            Origin::Entry(entry) => entry.key == key,
            Origin::Word(word) => word == key,
        };
        let mut found = None;
        with_trail(store, |trail| {
            trail.number = UNNUMBERED;
            let down = direction == Direction::Down;
            let along = store.follow(
                self.guard,
                trail,
                down,
                is_here,
                #[inline(always)]
                |entry| found = first_of(entry),
            );
            match along {
                Some(()) => Ok(()),
                None => step(
                    store,
                    self.guard,
                    Some(&probe),
                    trail,
                    direction,
                    #[inline(always)]
                    |entry| found = first_of(entry),
                ),
            }
        })?;
        self.still_named()?;
        Ok(self.found_key(found))
    }

    /// [`step`](Self::step) from the key that this thread's last step in the table came to. `is_key` must say that this key is the one to
    /// go on from. `None` if it says no, or if the way must be searched.
    #[inline(always)]
    pub fn step_along(
        self,
        is_key: impl Fn(TermRef<'g>) -> bool,
        direction: Direction,
    ) -> Result<Option<Option<TermRef<'g>>>, Failure> {
        let mut found = None;
        let along = self.follow(self.at_key(is_key), UNNUMBERED, direction, |entry| {
            found = first_of(entry)
        })?;
        Ok(along.map(|()| self.found_key(found)))
    }

    #[inline]
    fn found_key(self, found: Option<Entry>) -> Option<TermRef<'g>> {
        // SAFETY: the engine has validated the entry, and objects are retired through the epoch.
        found.map(|entry| unsafe { self.key(entry) })
    }

    /// Like [`step`](Self::step), but writes all objects of the key to `found`.
    pub fn step_lookup(
        self,
        from: Option<&Probe<'_>>,
        direction: Direction,
        found: &mut Objects<'g>,
    ) -> Result<(), Failure> {
        let fits = self.step_with(from, direction, |entry| found.look(self.table, entry))?;
        self.looked(fits, found)
    }

    /// Like [`step_along`](Self::step_along), with the only object of the key, in a table type that allows only one.
    #[inline(always)]
    pub fn step_get_along<'o>(
        self,
        is_key: impl Fn(TermRef<'g>) -> bool,
        direction: Direction,
        scratch: &'o mut Scratch,
    ) -> Result<Option<Option<ObjectRef<'o>>>, Failure>
    where
        'g: 'o,
    {
        debug_assert!(!self.table.kind().is_bag());
        self.step_get(self.at_key(is_key), UNNUMBERED, direction, scratch)
    }

    /// Gives a number to the place that this thread's last step in the table came to. That step made a search. No other place has this
    /// number. Each [step](Self::step_get_from) from there adds one to it. So a caller that has the number need not compare keys. Numbers
    /// are not 0.
    pub fn number(self) -> u64 {
        // Relaxed: only the number itself matters.
        let number = NUMBER.fetch_add(NUMBERS, Ordering::Relaxed) % ALL_NUMBERS + 1;
        with_trail(self.store(), |trail| trail.number = number);
        number
    }

    /// Like [`step_get_along`](Self::step_get_along), from the place with this number.
    #[inline(always)]
    pub fn step_get_from<'o>(
        self,
        number: u64,
        direction: Direction,
        scratch: &'o mut Scratch,
    ) -> Result<Option<Option<ObjectRef<'o>>>, Failure>
    where
        'g: 'o,
    {
        // After a multiple of `NUMBERS`, the numbers of another trail begin.
        let is_here = |at, origin| matches!(origin, Origin::Entry(_)) && at == number && number % NUMBERS != 0;
        self.step_get(is_here, number.wrapping_add(1), direction, scratch)
    }

    #[inline(always)]
    fn step_get<'o>(
        self,
        is_here: impl Fn(u64, Origin) -> bool,
        number: u64,
        direction: Direction,
        scratch: &'o mut Scratch,
    ) -> Result<Option<Option<ObjectRef<'o>>>, Failure>
    where
        'g: 'o,
    {
        let found = self.follow(is_here, number, direction, |entry| entry)?;
        let Some(Some(entry)) = found else {
            return Ok(found.map(|_| None));
        };
        // SAFETY: as in `found_key`.
        let object = unsafe { ObjectRef::read_within(entry, self.table.key(), scratch) };
        Ok(Some(Some(object?)))
    }

    #[inline(always)]
    fn step_with<R>(
        self,
        from: Option<&Probe<'_>>,
        direction: Direction,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Failure> {
        let store = self.store();
        let result = with_trail(store, |trail| {
            trail.number = UNNUMBERED;
            step(store, self.guard, from, trail, direction, look)
        })?;
        self.still_named()?;
        Ok(result)
    }

    /// A function that says whether a place of a trail is that of a key.
    #[inline(always)]
    fn at_key<F: Fn(TermRef<'g>) -> bool>(self, is_key: F) -> impl Fn(u64, Origin) -> bool + use<'g, F> {
        move |_, origin| match origin {
            // SAFETY: a trail shows only entries that were valid in this epoch.
            Origin::Entry(entry) => unsafe { stored_key(unseated(entry), self.table.key()) }.is_some_and(&is_key),
            Origin::Word(word) => is_immediate(word) && is_key(TermRef::immediate(word)),
        }
    }

    /// Goes one step along the trail, to a place that gets this number. `is_here` gets the number of the trail's place, and says whether
    /// to start from there.
    #[inline(always)]
    fn follow<R>(
        self,
        is_here: impl Fn(u64, Origin) -> bool,
        number: u64,
        direction: Direction,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<Option<R>, Failure> {
        let store = self.store();
        let result = with_trail(store, |trail| {
            let at = trail.number;
            let down = direction == Direction::Down;
            let result = store.follow(self.guard, trail, down, |origin| is_here(at, origin), look)?;
            trail.number = number;
            Some(result)
        });
        self.still_named()?;
        Ok(result)
    }

    /// The objects of the key after (or before) this one of a snapshot, and of those that follow: of a step of a fold, in its order. There may
    /// be many, as nothing changes before the fold comes to them. They are those of one key, or as many as `fits` accepts by their number of
    /// words.
    pub fn objects_behind(
        self,
        probe: &Probe<'_>,
        direction: Direction,
        fits: impl Fn(usize) -> bool,
    ) -> Result<Vec<ObjectRef<'g>>, Failure> {
        let snapshot = Snapshot::of(self.store()).ok_or(Cause::None)?;
        let from = (probe.erase(), direction == Direction::Down);
        let mut found = Err(Failure::Big);
        // If so many are too much work, perhaps one is not.
        for limit in [RUN, 1] {
            let mut expansion = Expansion::new();
            let expand = &mut |entry, out: &mut Vec<_>| self.expand(entry, &mut expansion, out);
            let objects = snapshot.objects_behind(self.guard, from, limit, &fits, expand)?;
            found = expansion.finish().map(|()| objects);
            if found.is_ok() {
                break;
            }
        }
        found
    }

    /// `slot/2`: the objects of a bucket, or in an ordered table of the entry with this number. `None` for the number just after the last
    /// one. Fails for numbers beyond that. Fails with [`Failure::Big`] if there are too many objects for this thread.
    pub fn slot(self, number: usize) -> Result<Option<Vec<ObjectRef<'g>>>, Failure> {
        let store = self.store();
        let ordered = self.table.kind() == Kind::OrderedSet;
        let found = if self.has_order_statistics() {
            self.nth(number, false)?.map(|object| vec![object])
        } else if ordered && !SLOTS_LIMIT.admits(number.min(store.size())) {
            return Err(Failure::Big);
        } else {
            let mut expansion = Expansion::new();
            let found = store.slot(self.guard, number, |entry, out| self.expand(entry, &mut expansion, out))?;
            self.still_named()?;
            expansion.finish()?;
            found
        };
        if found.is_some() {
            return Ok(found);
        }
        let end = match ordered {
            true => store.size(),
            false if number < MIN_SLOTS => return Ok(Some(Vec::new())),
            false => store.buckets().max(MIN_SLOTS),
        };
        // The number may be below the end, if the table has grown in the meantime.
        match number <= end {
            true => Ok(None),
            false => Err(Cause::None.into()),
        }
    }

    /// Appends the objects of an entry, in the order of insertion. If that is too much work, [`Expansion::finish`] fails, and the appended
    /// objects are not used. Reads objects only if they may be packed.
    #[inline(always)]
    pub(crate) fn expand(self, entry: Entry, expansion: &mut Expansion, out: &mut Vec<ObjectRef<'g>>) {
        if is_group(entry.body) || is_changing(entry.body) || self.table.options().compressed() {
            return self.expand_more(entry, expansion, out);
        }
        // SAFETY: objects are retired through the epoch. The engine takes back what was not valid.
        out.push(unsafe { ObjectRef::stored(entry, self.table.key()) });
    }

    #[inline(never)]
    fn expand_more(self, entry: Entry, expansion: &mut Expansion, out: &mut Vec<ObjectRef<'g>>) {
        // SAFETY: objects and groups are retired through the epoch. The engine takes back what was not valid.
        unsafe {
            if is_group(entry.body) {
                let place = self.table.key_place(entry.key);
                let group = Group::from_body(entry.body);
                if expansion.admits_group(group) {
                    group.each(|body| {
                        let object = place.stored(body);
                        let admitted = expansion.admits(&object);
                        out.push(if admitted { object.unpacked() } else { object });
                        admitted
                    });
                }
                return;
            }
            let object = match is_changing(entry.body) {
                true => expansion.copies.object(entry),
                false => ObjectRef::stored(entry, self.table.key()),
            };
            // An object that is not admitted is appended too. Otherwise the engine would go on to find more objects.
            out.push(if expansion.admits(&object) {
                object.unpacked()
            } else {
                object
            });
        }
    }
}

/// Limits the work of one step of a scan on a scheduler.
pub(crate) struct Expansion {
    /// The number of words that were unpacked.
    words: usize,
    large: bool,
    copies: Copies,
}

/// The number of words of memory that are allocated at once for copies of objects.
const COPIES: usize = 1 << 10;

impl Expansion {
    pub fn new() -> Self {
        Self {
            words: 0,
            large: false,
            copies: Copies::new(COPIES),
        }
    }

    fn admits_group(&mut self, group: &Group) -> bool {
        self.large |= !GROUP_LIMIT.admits(group.count());
        !self.large
    }

    fn admits(&mut self, object: &ObjectRef<'_>) -> bool {
        self.words += object.packed_words();
        self.large |= !COPY_LIMIT.admits(self.words);
        !self.large
    }

    /// Fails with [`Failure::Big`] if something was not admitted.
    pub fn finish(self) -> Result<(), Failure> {
        match self.large {
            true => Err(Failure::Big),
            false => Ok(()),
        }
    }
}
