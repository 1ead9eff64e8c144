//! The way of a walk: where the last step of `next` or `prev` ended, so that the one after it need not search.
//!
//! A trail is a thread's own and holds nothing: no pin, no lock, no memory. It keeps addresses that it saw under an earlier guard,
//! with the epoch of that time; while the epoch is the same, what was reachable then has not been freed ([`Guard::epoch`]). A step
//! along the trail reads the same leaf or bucket as the step before and validates that step's token: nothing in there has changed
//! since, so the run of entries that was copied from it is still what follows, and the step is linearized where it validates.

use crate::Entry;
use cats_sync::epoch::Guard;
use cats_sync::version_lock::VersionLock;
use std::ptr;

/// Entries that are copied at once.
pub(crate) const RUN: usize = 8;

/// A node that a trail will come to, and what is to be known of it, as of the trail's own.
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
    /// The lock of the node that the run is from, and its token at that time.
    lock: *const VersionLock,
    token: u64,
    /// What the engine must know to go on behind the run: addresses that live as long as the node, and a number.
    pub(crate) node: *mut u8,
    pub(crate) bound: *const u8,
    pub(crate) note: usize,
    /// The node beyond the bound, once it has been sought.
    pub(crate) beyond: Option<Beyond>,
    down: bool,
    /// Whoever steps may number the places that it comes to; an engine does nothing with it.
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
            number: 0,
            at: 0,
            len: 0,
            run: [Entry { key: 0, body: 0 }; RUN],
        }
    }

    /// Forgets the way.
    #[inline]
    pub fn clear(&mut self) {
        self.engine = ptr::null();
    }

    /// Begins at an entry that a step in an engine came to, in the node with this lock and token, which was valid after `epoch`
    /// was the guard's.
    #[inline]
    pub(crate) fn begin<E>(
        &mut self,
        engine: &E,
        epoch: u64,
        down: bool,
        (lock, token): (&VersionLock, u64),
        entry: Entry,
    ) {
        self.engine = ptr::from_ref(engine).cast();
        self.epoch = epoch;
        self.down = down;
        self.lead(entry, (lock, token));
    }

    /// Leads on to an entry in another node, valid in the trail's epoch.
    #[inline]
    pub(crate) fn lead(&mut self, entry: Entry, (lock, token): (&VersionLock, u64)) {
        (self.lock, self.token) = (lock, token);
        (self.at, self.len) = (0, 1);
        self.run[0] = entry;
    }

    /// The entry that the last step came to, if that was in this engine and direction, and all that was seen then is still there.
    #[inline]
    pub(crate) fn here<E>(&self, engine: &E, guard: &Guard, down: bool) -> Option<Entry> {
        let valid =
            ptr::eq(self.engine, ptr::from_ref(engine).cast()) && self.down == down && self.epoch == guard.epoch();
        valid.then(|| self.run[self.at])
    }

    /// The next entry of the run.
    #[inline]
    pub(crate) fn ahead(&self) -> Option<Entry> {
        self.run[..self.len].get(self.at + 1).copied()
    }

    /// Whether the node is as it was; after [`here`](Self::here).
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        // SAFETY: the node was reachable in this epoch, as `here` has found, so it has not been freed.
        unsafe { &*self.lock }.validate(self.token)
    }

    /// Entries of the run before the present one.
    #[inline]
    pub(crate) fn passed(&self) -> usize {
        self.at
    }

    /// Shows `look` the next entry of the run, which is [`ahead`](Self::ahead), and goes on to it if the node is as it was.
    #[inline(always)]
    pub(crate) fn step<R>(&mut self, next: Entry, look: &mut impl FnMut(Option<Entry>) -> R) -> Option<R> {
        let result = look(Some(next));
        self.holds().then(|| {
            self.at += 1;
            result
        })
    }

    /// Copies the entries behind the present one, as many as there is room for.
    #[inline]
    pub(crate) fn extend(&mut self, entries: impl Iterator<Item = Entry>) {
        self.run[0] = self.run[self.at];
        (self.at, self.len) = (0, 1);
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
