//! Table structures behind one trait.
//!
//! An engine maps keys to [`Entry`]s of two words each. It looks into keys only through [`Schema`]. It never decodes a
//! term, never frees what an entry points to, and counts no objects. What a table does with an object happens in
//! closures. The engine runs them while it holds the lock of the key's place.

pub mod config;
mod shared;
mod structures;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use cats_sync::epoch::Guard;
use std::cmp::Ordering;

pub use cats_sync::Busy;
pub use cats_term::{hash_of, mix};
pub use shared::linear;
pub use shared::mark::{HeldPlace, Mark};
pub use shared::seat;
pub use shared::trail::{Origin, Trail};
pub use structures::{ca, hash};

/// What an engine stores for a key.
///
/// `key` is the key word. It is never 0. Its low two bits tell its kind:
/// - 11: the word *is* the key, an immediate term (integer, atom, pid, ...). Equal keys have equal words.
/// - 00: the word is a hash of the key, and [`Schema::matches`] decides.
///
/// `body` belongs to the table layer. An engine only copies it. A [`seat`] may stand in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    pub key: u64,
    pub body: u64,
}

/// The entries from one key to another one, in ascending order. With `down`, in descending order.
pub struct Range<'a, P> {
    /// The key where it begins, and whether that key belongs to it. Without one, it begins at the end of the table.
    pub from: Option<(&'a P, bool)>,
    /// The last key that belongs to it. Without one, it goes to the other end of the table.
    pub to: Option<&'a P>,
    pub down: bool,
}

// By hand, because a derived one would require that `P` is `Copy`.
impl<P> Clone for Range<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Range<'_, P> {}

impl<'a, P> Range<'a, P> {
    /// All entries above the key, or all entries.
    pub fn above(key: Option<&'a P>) -> Self {
        Self {
            from: key.map(|key| (key, false)),
            to: None,
            down: false,
        }
    }

    /// Whether an entry that the structure met on the way from `from` is not beyond `to`.
    ///
    /// # Safety
    /// As for [`OrderedSchema::compare`].
    pub unsafe fn has<S: OrderedSchema<Probe = P>>(&self, schema: &S, entry: Entry) -> bool {
        self.to.is_none_or(|to| {
            // SAFETY: as the caller promises.
            let order = unsafe { schema.compare(to, entry) };
            if self.down {
                order.is_le()
            } else {
                order.is_ge()
            }
        })
    }
}

/// The keys between two bounds. A bound is a key, and whether that key belongs to them. Without a bound they are unbounded on that side.
pub struct Between<'a, P> {
    pub from: Option<(&'a P, bool)>,
    pub to: Option<(&'a P, bool)>,
}

// By hand, because a derived one would require that `P` is `Copy`.
impl<P> Clone for Between<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Between<'_, P> {}

/// Why an order statistic was not found. Nothing has changed that a reader can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// As for [`Busy`].
    Busy,
    /// It takes more work than the caller allows.
    Long,
}

impl From<Busy> for Unfinished {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

/// How an engine looks into keys.
pub trait Schema: Send + Sync + 'static {
    /// A key to search for, prepared once for a call.
    type Probe: Copy;

    /// The key word of an entry with this key. 0 if it is the end of a range, which no entry has for its key.
    fn word(&self, probe: &Self::Probe) -> u64;

    /// Whether the entry has the probe's key. Called only when the key words are equal and end in bits 00.
    ///
    /// # Safety
    /// The entry was read under the caller's guard. After an optimistic read, `key` and `body` may belong to different
    /// entries, but each was stored in this table.
    unsafe fn matches(&self, probe: &Self::Probe, entry: Entry) -> bool;

    /// A fixed total order between keys that have the same hash, for traversal. Called only when the key words are
    /// equal and end in bits 00.
    ///
    /// # Safety
    /// As for [`matches`](Self::matches).
    unsafe fn compare_colliding(&self, probe: &Self::Probe, entry: Entry) -> Ordering;

    /// The order of [`compare_colliding`](Self::compare_colliding), between two stored entries. Their key words are
    /// equal and end in bits 00.
    ///
    /// # Safety
    /// As for [`matches`](Self::matches), for both.
    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering;

    /// Prefetches what the entry points to. Its two words need not belong together.
    fn prefetch(&self, _entry: Entry) {}
}

/// Keys with a total order, for ordered engines.
///
/// The order identifies keys: `compare` is `Equal` exactly for the same key. A number that is not an immediate may
/// equal one that is, as 1.0 equals 1. The key word of such a key is `hash_of(immediate)`, so both keys have one hash.
pub trait OrderedSchema: Schema {
    /// A key that the structure owns: a separator, which may outlive the objects.
    type Key: Send + Sync + 'static;
    /// Whether the table has [cells](seat). Then all entries that the methods take are as the table shows them. What [`own`](Self::own) takes
    /// may be as it is stored.
    const CELLS: bool = false;

    /// An owned copy of a stored entry's key.
    ///
    /// # Safety
    /// The entry is valid under the caller's guard or lock.
    unsafe fn own(&self, entry: Entry) -> Self::Key;
    /// An owned copy of a probe's key.
    fn own_probe(&self, probe: &Self::Probe) -> Self::Key;
    /// The heap bytes of an owned key, beside the value itself.
    fn key_bytes(&self, _key: &Self::Key) -> usize {
        0
    }
    /// The probe that searches for an owned key.
    fn probe<'a>(&self, key: &'a Self::Key) -> &'a Self::Probe;
    /// How the probe's key compares with the entry's key.
    ///
    /// # Safety
    /// As for [`Schema::matches`].
    unsafe fn compare(&self, probe: &Self::Probe, entry: Entry) -> Ordering;
    /// How the keys of two entries compare.
    ///
    /// # Safety
    /// As for [`Schema::matches`], for both.
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering;
    /// How the keys of two probes compare.
    fn compare_probes(&self, a: &Self::Probe, b: &Self::Probe) -> Ordering;

    /// The key head at byte `skip`: eight bytes of the probe's normalized key, zero-padded, as a big-endian number.
    ///
    /// A normalized key is a byte string whose order agrees with the order of the keys. If two strings are equal, or
    /// one has ended, they decide nothing.
    fn head(&self, probe: &Self::Probe, skip: usize) -> u64;
    /// Fills the elements that are 0 with the [`head`](Self::head)s at `skip`, `skip + 8`, and so on.
    fn heads(&self, probe: &Self::Probe, skip: usize, heads: &mut [u64]) {
        for (i, head) in heads.iter_mut().enumerate() {
            *head = self.head(probe, skip + 8 * i);
        }
    }
    /// Whether computing a head of this key, and of keys like it, takes less time than comparing two of them.
    fn has_quick_heads(&self, _probe: &Self::Probe) -> bool {
        true
    }
    /// The key head of a stored entry.
    ///
    /// # Safety
    /// As for [`Schema::matches`].
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64;

    /// A number that stands for the probe's key, if there is one. Such numbers order as their keys do.
    fn number(&self, _probe: &Self::Probe) -> Option<i64> {
        None
    }
    /// The [`number`](Self::number) of a key, from its key word alone. `None` for any other word, and for 0.
    fn number_of_word(&self, _word: u64) -> Option<i64> {
        None
    }
}

/// What a closure, run under an engine's lock, decides about the key's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No reader can see a change.
    Keep,
    /// The entry stays, but something that it points to was changed.
    Touch,
    /// The place holds this entry from now on. It was inserted, or replaces another entry.
    Put(Entry),
    /// The place is free now.
    Remove,
}

/// The keys of one operation on many keys, all locked. Index `i` stands for the `i`-th probe of the call.
pub trait Locked {
    /// The present entry of probe `i`.
    fn get(&self, i: usize) -> Option<Entry>;
    /// Calls `change` with the present entry of probe `i`, and carries out the step that it returns. `change` is called
    /// once.
    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step);
    /// [`update`](Self::update) of each of the `probes` probes.
    fn update_all(&mut self, probes: usize, change: &mut dyn FnMut(usize, Option<Entry>) -> Step) {
        for i in 0..probes {
            self.update(i, &mut |old| change(i, old));
        }
    }
    /// Appends the locks that guard the places. Only for an engine that is [`Marked`].
    fn held(&self, _held: &mut Vec<HeldPlace>) {
        unreachable!("only asked for with marks")
    }
}

/// The position of a scan of a whole table. Each engine has its own type. Growth, shrinking and other writers do not
/// disturb it.
pub trait Cursor: Default + Send {}

/// A position that is one number. Every unordered engine has such positions, so a table can store one, and a program
/// may keep it.
///
/// The start is 0. The number of a [place](place_of) is the position from which a scan goes on with the entries of that
/// place and all later ones.
pub trait Numbered: Cursor {
    /// The position as a number, for later scans of the same table. It grows during the scan.
    fn number(&self) -> u64;
    /// The position with this number. Every number is a valid position.
    fn of_number(number: u64) -> Self;
}

/// The place of the entries with this key word in the traversal order of an unordered engine.
///
/// [`Engine::next`] goes in this order. Entries of one place are in the order of their key words, then of the schema.
#[inline]
pub fn place_of(word: u64) -> u64 {
    shared::linear::position(hash_of(word))
}

/// The position from which a scan goes on behind the entries of a place. The largest number if no place is behind it.
#[inline]
pub fn behind_place(place: u64) -> u64 {
    // A bucket of this depth would have one place.
    shared::linear::behind(place, 62).unwrap_or(u64::MAX)
}

/// A concurrent map from keys to entries.
///
/// Every method runs under the caller's guard. It waits no longer than a bounded spin, and then returns [`Busy`]:
/// nothing was done, and the caller may try again later. It holds no lock when it returns.
///
/// Closures run under a lock, or may be repeated. So they are short, do not call back into the engine, and do not
/// panic. The closures of `read`, `update`, `update_many` and `next` may run on another thread while the caller waits.
/// They may use everything that the caller has, even its guard. They must not depend on the current thread, as access
/// to a process's terms does.
pub trait Engine<S: Schema>: Send + Sync {
    /// Position of a scan.
    type Cursor: Cursor;

    /// Calls `look` with the key's entry, or with `None`. Linearizable. Writes no shared memory, except for engines
    /// that take locks to read.
    ///
    /// `look` may be called several times, and its last result is returned. That last call saw one state of the place
    /// and of everything that it points to.
    fn read<R>(&self, guard: &Guard, probe: &S::Probe, look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy>;

    /// Calls `change` once with the entry of the key's place, exclusively, and carries out its step. Linearizable.
    fn update<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy>;

    /// Like [`update`](Self::update) of an entry that exists. If there is none, nothing is done and the default is
    /// returned.
    #[inline(always)]
    fn update_present<R: Default>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        self.update(guard, probe, |old| {
            old.map_or_else(|| (Step::Keep, R::default()), change)
        })
    }

    /// Calls `change` once while it holds the places of all `probes` exclusively. The probes may be in any order, with
    /// repeats. Atomic and isolated: two-phase locking in one global order.
    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy>;

    /// Continues a scan. Returns false when the scan is complete.
    ///
    /// Calls `expand` for the entries of at least one and about `limit` places, which appends to `out`. Moves the
    /// cursor behind them. Each entry that is present during the whole scan is met exactly once, others at most once.
    /// The entries of one lock that one call appends are one state.
    ///
    /// An unordered engine shows buckets in traversal order, and the entries of a bucket in any order. If another
    /// thread changes a place meanwhile, what `expand` appended is removed and `expand` is repeated.
    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Self::Cursor,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy>;

    /// Calls `look` with the first entry after the key in traversal order, or with the first entry of all if there is
    /// no key. The key need not be present.
    fn next<R>(&self, guard: &Guard, after: Option<&S::Probe>, look: impl FnMut(Option<Entry>) -> R)
        -> Result<R, Busy>;

    /// Like [`next`](Self::next), and starts a trail there.
    fn next_on<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        trail: &mut Trail,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        trail.clear();
        self.next(guard, after, look)
    }

    /// Goes one step along a trail, downwards if `down`. `is_here` must accept the place where it starts. An engine asks
    /// for the entry of the last step, and may ask for the key from which that step started.
    ///
    /// Calls `look` as [`next`](Self::next) or [`prev`](OrderedEngine::prev) of that key would. Returns `None`,
    /// and does nothing, if the trail ends or the structure has changed there. Then the caller must use `next` or
    /// `prev`.
    fn follow<R>(
        &self,
        _guard: &Guard,
        _trail: &mut Trail,
        _down: bool,
        _is_here: impl Fn(Origin) -> bool,
        _look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        None
    }

    /// The number of buckets, or 0 for a structure without buckets.
    fn buckets(&self) -> usize;
    /// The entries of the bucket with this number. For an ordered structure, the entry with this number in order.
    /// `None` past the end.
    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy>;

    /// Bytes of the structure itself, without what entries point to.
    fn bytes(&self) -> usize;

    /// Takes the structure apart, about `limit` places a call, and shows each entry once. Returns true when nothing is
    /// left. Only for the last user of the engine.
    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool;
}

/// An engine whose reads give marks, by which several reads can be validated together.
pub trait Marked<S: Schema>: Engine<S> {
    /// Like [`Engine::read`], with a mark of what the key's place was.
    fn read_marked<'g, R>(
        &self,
        guard: &'g Guard,
        probe: &S::Probe,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<(R, Mark<'g>), Busy>;
}

/// Further operations of an ordered engine.
pub trait OrderedEngine<S: OrderedSchema>: Engine<S> {
    /// Like [`Engine::next`], downwards.
    fn prev<R>(
        &self,
        guard: &Guard,
        before: Option<&S::Probe>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy>;

    /// Like [`prev`](Self::prev), and starts a trail there.
    fn prev_on<R>(
        &self,
        guard: &Guard,
        before: Option<&S::Probe>,
        trail: &mut Trail,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        trail.clear();
        self.prev(guard, before, look)
    }

    /// Appends to `out`, in order, up to about `limit` entries of the range.
    ///
    /// It may stop early at the border of what one lock guards. Returns `Ok(false)` when no entry of the range lies
    /// beyond the appended ones. The entries of one lock that one call appends are one state.
    ///
    /// As in [`scan`](Engine::scan), what `expand` appended may be removed again. So what a caller notes of an entry
    /// belongs into `out`, too.
    fn range<T>(
        &self,
        guard: &Guard,
        range: Range<'_, S::Probe>,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy>;

    /// The present number of base nodes, or 0 for a structure that has none.
    fn base_nodes(&self) -> usize;
}
