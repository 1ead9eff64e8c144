//! Table structures behind one trait.
//!
//! An engine stores [`Entry`]s, two words each, by key. It knows keys only through [`Schema`]: it never decodes a term, never
//! frees what an entry's words point to, and counts nothing: what a table does with an object happens in closures that the
//! engine runs while it holds the right lock.

pub mod config;
mod shared;
mod structures;
#[cfg(test)]
mod testing;

use cats_sync::epoch::Guard;
use std::cmp::Ordering;

pub use cats_sync::Busy;
pub use cats_term::{hash_of, mix};
pub use shared::trail::Trail;
pub use structures::{avl, ca, ca_tree, hash, linear_hash, skip_list, std_hash};

/// What an engine stores for a key.
///
/// `key` is never 0. If its low two bits are 11 it *is* the key (an immediate term: integer, atom, pid, ...), equal keys having
/// equal words; if they are 00 it is a hash of the key and [`Schema::matches`] decides. `body` belongs to the table layer; an
/// engine copies it and gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    pub key: u64,
    pub body: u64,
}

/// How an engine looks into keys.
pub trait Schema: Send + Sync + 'static {
    /// A key to search for, prepared once for a call.
    type Probe: Copy;

    /// The word that an entry of this key has.
    fn word(&self, probe: &Self::Probe) -> u64;

    /// Whether the entry has the probe's key; asked only when the words are equal and their low bits are 00.
    ///
    /// # Safety
    /// The entry was read under the caller's guard; `key` and `body` need not belong together (an optimistic read), but each
    /// was stored in this table.
    unsafe fn matches(&self, probe: &Self::Probe, entry: Entry) -> bool;

    /// Some fixed total order between keys that have the same hash, for traversal; asked only when the words are equal and
    /// their low bits are 00.
    ///
    /// # Safety
    /// As for [`matches`](Self::matches).
    unsafe fn compare_colliding(&self, probe: &Self::Probe, entry: Entry) -> Ordering;

    /// The same order between two stored entries whose key words are equal and end in 00.
    ///
    /// # Safety
    /// As for [`matches`](Self::matches), for both.
    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering;

    /// Asks the processor for what the entry points to; its words need not belong together.
    fn prefetch(&self, _entry: Entry) {}
}

/// Keys with a total order, for ordered engines.
///
/// The order identifies keys: `compare` is `Equal` exactly for the same key. A number that is not an immediate may equal one
/// that is (1.0 and 1): such a key's word is the *hash* of the immediate's word, `hash_of(immediate)`, so both have one hash.
pub trait OrderedSchema: Schema {
    /// A key that the structure owns: a separator that outlives the objects.
    type Key: Send + Sync + 'static;

    /// The owned key of a stored entry.
    ///
    /// # Safety
    /// The entry is valid under the caller's guard or lock.
    unsafe fn own(&self, entry: Entry) -> Self::Key;
    /// The owned key of a probe.
    fn own_probe(&self, probe: &Self::Probe) -> Self::Key;
    /// The bytes that an owned key takes besides its own.
    fn key_bytes(&self, _key: &Self::Key) -> usize {
        0
    }
    /// The probe that searches for an owned key.
    fn probe<'a>(&self, key: &'a Self::Key) -> &'a Self::Probe;
    /// # Safety
    /// As for [`Schema::matches`].
    unsafe fn compare(&self, probe: &Self::Probe, entry: Entry) -> Ordering;
    /// # Safety
    /// As for [`Schema::matches`], for both.
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering;
    /// The order of two probes.
    fn compare_probes(&self, a: &Self::Probe, b: &Self::Probe) -> Ordering;

    /// Eight bytes, as a big-endian number, of the probe's normalized key from byte `skip` on, zero-padded: a byte string whose
    /// order agrees with the key's order, except that equal or exhausted strings decide nothing.
    fn head(&self, probe: &Self::Probe, skip: usize) -> u64;
    /// Sets what is 0 to the [`head`](Self::head) at `skip`, that at eight bytes more, and so on.
    fn heads(&self, probe: &Self::Probe, skip: usize, heads: &mut [u64]) {
        for (i, head) in heads.iter_mut().enumerate() {
            *head = self.head(probe, skip + 8 * i);
        }
    }
    /// The head of a stored entry.
    ///
    /// # Safety
    /// As for [`Schema::matches`].
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64;
}

/// What a closure under an engine's lock decides about the key's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing that a reader can see was changed.
    Keep,
    /// The place stays, but something that it points to was changed.
    Touch,
    /// The place holds this entry now (inserted, or in place of the old one).
    Put(Entry),
    /// The place is free now.
    Remove,
}

/// What is to be done, under the lock, once a detached step was carried out: with its context, the step, and what the place held
/// before. May run on any thread.
pub type Settle = unsafe fn(*const (), Step, Option<Entry>);

/// An update whose outcome nobody asks for: see [`Engine::detach`].
#[derive(Clone, Copy)]
pub struct Detached {
    /// [`Step::Put`] or [`Step::Remove`].
    pub step: Step,
    /// The place: an entry with its key. The body is not looked at if the key is an immediate.
    pub key: Entry,
    pub settle: Settle,
    pub context: *const (),
}

/// The keys of one multi-key operation, all locked. Index `i` is the probe's place in the list that was passed.
pub trait Locked {
    /// The entry of probe `i` as it is now.
    fn get(&self, i: usize) -> Option<Entry>;
    /// Carries out the step that `change` chooses for probe `i`, of which it sees the entry as it is now. Called once.
    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step);
}

/// Where a scan of a whole table stands: an engine's own position, which growth, shrinking and other writers do not disturb.
pub trait Cursor: Default + Send {}

/// A position that a number tells, as that of every unordered engine is: so a table keeps it, and a program may write it down,
/// whatever the engine. The start is 0. The number of a [place](place_of) is the position where a scan goes on with the entries
/// of that place and those that follow it in the order of traversal.
pub trait Numbered: Cursor {
    /// The position as a number, for later scans of the same table. It grows on the way.
    fn number(&self) -> u64;
    /// The position of such a number; any number is some position.
    fn of_number(number: u64) -> Self;
}

/// The place of the entries with this key word in the order of traversal of an unordered engine, in which [`Engine::next`] goes. Entries of
/// the same place are in the order of their key words, then of the schema.
#[inline]
pub fn place_of(word: u64) -> u64 {
    shared::linear::position(hash_of(word))
}

/// A concurrent map from keys to entries.
///
/// Every method runs under the caller's guard, never blocks for longer than a bounded spin ([`Busy`]: nothing was done, try
/// again later), and holds no lock when it returns. Closures run under a lock or may be repeated: they are short, do not call
/// back into the engine, and do not panic. Those of `read`, `update`, `update_many` and `next` may run on another thread while
/// the caller waits ([`cats_sync::lock`]): they may use all that the caller has, its guard included, but nothing that is told
/// by the thread itself, as the terms of a process are.
pub trait Engine<S: Schema>: Send + Sync {
    /// Position of a scan.
    type Cursor: Cursor;

    /// Shows `look` the key's entry, or that there is none. May call `look` several times; the last call, whose result is
    /// returned, saw one state of the place and of all it points to. Linearizable. Writes nothing shared.
    fn read<R>(&self, guard: &Guard, probe: &S::Probe, look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy>;

    /// Runs `change` once on the key's place, exclusively, and carries out its step. Linearizable.
    fn update<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy>;

    /// As [`update`](Self::update) of an entry that is there; nothing is done, and the default returned, if there is none.
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

    /// Runs `change` once while the places of all `probes` (in any order, repeats allowed) are held exclusively. Atomic and
    /// isolated: two-phase locking in one global order.
    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy>;

    /// Whether [`detach`](Self::detach) can be called, and spares a wait.
    #[inline]
    fn detaches(&self) -> bool {
        false
    }

    /// Carries out a step whose outcome nobody asks for, perhaps after the call has returned, but before whatever any thread
    /// asks of this engine from then on: nobody can tell. Linearizable.
    ///
    /// # Safety
    /// The engine and the context live, and what was put or is to be settled is the engine's, until every call has returned that
    /// was under way when this one returned. `settle` may be called so, once, on any thread.
    unsafe fn detach(&self, _guard: &Guard, _update: Detached) -> Result<(), Busy> {
        unreachable!("asked for by `detaches`")
    }

    /// Continues a scan: appends to `out`, through `expand`, entries of at least one and about `limit` places, moves the
    /// cursor behind them, and returns false when the scan is complete. Each entry present during the whole scan is met
    /// exactly once, others at most once. What one call appends from one lock's places is one state. Of an unordered
    /// engine, buckets come in the order of traversal, the entries of one bucket in any order. `expand` may be repeated for places that
    /// another thread was changing; what it appended is then taken back.
    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Self::Cursor,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy>;

    /// Shows `look` the first entry in traversal order after the key (or of all, without one), present or not.
    fn next<R>(&self, guard: &Guard, after: Option<&S::Probe>, look: impl FnMut(Option<Entry>) -> R)
        -> Result<R, Busy>;

    /// As [`next`](Self::next), and begins a trail there.
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

    /// Goes one step along a trail in its direction, `down` or not, if `is_here` of the entry that the last step came to: shows
    /// `look` what [`next`](Self::next) (or [`prev`](OrderedEngine::prev)) of its key would. Nothing, and nothing is done, where
    /// the trail ends or something was changed in its way: then that is to be called.
    fn follow<R>(
        &self,
        _guard: &Guard,
        _trail: &mut Trail,
        _down: bool,
        _is_here: impl FnOnce(Entry) -> bool,
        _look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        None
    }

    /// The number of buckets, or 0 for a structure that has none; `slot` shows the entries of one of them (of the place with
    /// that number in order, for an ordered structure), and returns nothing past the end.
    fn buckets(&self) -> usize;
    /// See [`buckets`](Self::buckets).
    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy>;

    /// Bytes that the structure itself holds (not what entries point to).
    fn bytes(&self) -> usize;

    /// Takes the structure apart, about `limit` places at a time, showing each entry once; true when nothing is left. Only for
    /// the last user of the engine.
    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool;
}

/// What an ordered engine can do besides.
pub trait OrderedEngine<S: OrderedSchema>: Engine<S> {
    /// As [`Engine::next`], downwards.
    fn prev<R>(
        &self,
        guard: &Guard,
        before: Option<&S::Probe>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy>;

    /// As [`prev`](Self::prev), and begins a trail there.
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

    /// Appends to `out`, in order, up to about `limit` entries above the key (below it, descending, when `down`; from the end
    /// when there is no key), stopping early perhaps at a lock's border; `Ok(false)` when no entry lies beyond those appended.
    /// What one call appends from one lock's places is one state.
    #[expect(
        clippy::too_many_arguments,
        reason = "each stands alone, and a struct would be built for one call"
    )]
    fn range<T>(
        &self,
        guard: &Guard,
        from: Option<&S::Probe>,
        inclusive: bool,
        down: bool,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy>;

    /// The number of base nodes now; 0 for a structure that is not divided into any.
    fn base_nodes(&self) -> usize;
}
