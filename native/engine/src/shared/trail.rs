//! Trails: where the last `next` or `prev` of a walk ended, so that the following step need not search.
//!
//! A trail belongs to a thread, and holds no pin, no lock and no memory. It keeps addresses that were seen under an
//! earlier guard, and the epoch of that guard. While the epoch stays the same, nothing that was reachable then has been
//! freed ([`Guard::epoch`]). A step along the trail returns an entry of the run: entries copied from the leaf or bucket
//! of an earlier step. Then it validates the token of that leaf or bucket. If it is valid, nothing has changed there,
//! so the run is still right. That validation is the linearization point.

use crate::Entry;
use cats_sync::epoch::Guard;
use cats_sync::version_lock::VersionLock;
use std::ptr;

/// Entries that are copied at once.
pub(crate) const RUN: usize = 8;

/// Where a step along a trail may start.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// At the entry that the last step came to.
    Entry(Entry),
    /// At the key with this key word, if it is an immediate. The last step started there, so this one comes to the same
    /// entry.
    Word(u64),
}

/// A node to which a trail will come next, with the fields that the trail will take from it.
#[derive(Clone, Copy)]
pub(crate) struct Beyond {
    pub node: *mut u8,
    pub bound: *const u8,
    pub note: usize,
}

/// See the module's documentation.
pub struct Trail {
    /// The address of the engine; null while the trail leads nowhere.
    engine: *const u8,
    epoch: u64,
    /// The lock of the node from which the run was copied, and its token at that time.
    lock: *const VersionLock,
    token: u64,
    /// For the engine, to go on behind the run: addresses that live as long as the node, and a number.
    pub(crate) node: *mut u8,
    pub(crate) bound: *const u8,
    pub(crate) note: usize,
    /// The node beyond the bound, once it has been found.
    pub(crate) beyond: Option<Beyond>,
    down: bool,
    /// The key word from which a search in the node led to the first entry of the run, or 0.
    from: u64,
    /// For the user of the trail, to number the places. An engine does not use it.
    pub number: u64,
    at: usize,
    len: usize,
    run: [Entry; RUN],
}

impl Trail {
    /// A trail that leads nowhere.
    pub const fn new() -> Self {
        Self {
            engine: ptr::null(),
            epoch: 0,
            lock: ptr::null(),
            token: 0,
            node: ptr::null_mut(),
            bound: ptr::null(),
            note: 0,
            beyond: None,
            down: false,
            from: 0,
            number: 0,
            at: 0,
            len: 0,
            run: [Entry { key: 0, body: 0 }; RUN],
        }
    }

    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        self.engine = ptr::null();
    }

    /// Starts at an entry that a step reached. The entry is in the node with this lock and token, which was valid after
    /// `epoch` was the guard's. `from` is the key word from which a search in that node led there, or 0.
    #[inline]
    pub(crate) fn begin<E>(
        &mut self,
        engine: &E,
        epoch: u64,
        (down, from): (bool, u64),
        (lock, token): (&VersionLock, u64),
        entry: Entry,
    ) {
        self.engine = ptr::from_ref(engine).cast();
        self.epoch = epoch;
        self.down = down;
        self.lead(entry, (lock, token));
        self.from = from;
    }

    /// Goes on to an entry in another node, which is valid in the trail's epoch.
    #[inline]
    pub(crate) fn lead(&mut self, entry: Entry, (lock, token): (&VersionLock, u64)) {
        (self.lock, self.token) = (lock, token);
        (self.at, self.len) = (0, 1);
        self.from = 0;
        self.run[0] = entry;
    }

    /// The entry of the last step. `None` if that step was in another engine or direction, or if memory seen then may
    /// have been freed.
    #[inline]
    pub(crate) fn here<E>(&self, engine: &E, guard: &Guard, down: bool) -> Option<Entry> {
        let valid =
            ptr::eq(self.engine, ptr::from_ref(engine).cast()) && self.down == down && self.epoch == guard.epoch();
        valid.then(|| self.run[self.at])
    }

    /// The key word from which a search in the present node led to the present entry, or 0. Call [`here`](Self::here)
    /// first.
    #[inline]
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// The next entry of the run.
    #[inline]
    pub(crate) fn ahead(&self) -> Option<Entry> {
        self.run[..self.len].get(self.at + 1).copied()
    }

    /// Whether the node is unchanged. Call [`here`](Self::here) first.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        // SAFETY: the node was reachable in this epoch, as `here` checked, so it has not been freed.
        unsafe { &*self.lock }.validate(self.token)
    }

    /// [`holds`](Self::holds) for later, when the trail may have gone on. Call [`here`](Self::here) with this guard first.
    #[inline]
    pub(crate) fn witness<'g>(&self, _: &'g Guard) -> impl Fn() -> bool + use<'g> {
        let (lock, token) = (self.lock, self.token);
        // SAFETY: as above, and the guard still keeps it.
        move || unsafe { &*lock }.validate(token)
    }

    /// The number of entries of the run before the present one.
    #[inline]
    pub(crate) fn passed(&self) -> usize {
        self.at
    }

    /// Calls `look` with `next`, which must be the result of [`ahead`](Self::ahead). Goes on to it if the node is
    /// unchanged.
    #[inline(always)]
    pub(crate) fn step<R>(&mut self, next: Entry, look: &mut impl FnMut(Option<Entry>) -> R) -> Option<R> {
        let result = look(Some(next));
        self.holds().then(|| {
            self.at += 1;
            result
        })
    }

    /// Calls `look` with the entry of the last step once more, if the node is unchanged. `here` must be that entry.
    #[inline(always)]
    pub(crate) fn repeat<R>(&self, here: Entry, look: &mut impl FnMut(Option<Entry>) -> R) -> Option<R> {
        let result = look(Some(here));
        self.holds().then_some(result)
    }

    /// Copies the entries behind the present one into the run, as many as fit.
    #[inline]
    pub(crate) fn extend(&mut self, entries: impl Iterator<Item = Entry>) {
        self.run[0] = self.run[self.at];
        (self.at, self.len) = (0, 1);
        self.from = 0;
        for (place, entry) in self.run[1..].iter_mut().zip(entries) {
            *place = entry;
            self.len += 1;
        }
    }
}

impl Default for Trail {
    fn default() -> Self {
        Self::new()
    }
}
