//! Insertions and deletions that nobody waits for, in tables whose lock delegates.
//!
//! Source: Sagonas and others, "Robust scalable Erlang virtual machine", RELEASE deliverable D2.4, 2015, section 3.4.3, its second and
//! third step of porting ETS to queue delegation.
//!
//! Their outcome is known once their arguments are checked. So they are delegated to the thread that has the lock, with all that
//! it needs: the entry, or an immediate key. What they replace that thread counts and retires.
//!
//! The contents live until then: the thread that has the lock is in an operation on them, under a guard of its own, which it
//! began before they could be retired.

use crate::failure::Failure;
use crate::object::body_bytes;
use crate::object::group::retire_entry;
use crate::object::schema::Probe;
use crate::operations::insert::Incoming;
use crate::table::store::Store;
use crate::table::Handle;
use cats_engine::{Detached, Entry, Step};
use cats_sync::epoch::pin;
use cats_term::is_immediate;

/// Counts what a step has changed, and retires what it replaced.
///
/// # Safety
/// `store` is the address of the store that holds the place, which is locked; the step was carried out, and `old` was there before.
unsafe fn settle(store: *const (), step: Step, old: Option<Entry>) {
    // SAFETY: the caller's promise; tables with many objects under a key have no such steps, so no body is a group's.
    let bytes = |entry: Entry| unsafe { body_bytes(entry.body) } as i64;
    let (objects, more) = match step {
        Step::Put(entry) => (1, bytes(entry)),
        _ => (0, 0),
    };
    let (gone, less) = old.map_or((0, 0), |entry| (1, bytes(entry)));
    // SAFETY: the caller's promise.
    unsafe { &*store.cast::<Store>() }.count(objects - gone, more - less);
    if let Some(old) = old {
        // SAFETY: the place holds another entry now, or none.
        unsafe { retire_entry(&pin(), old.body) }
    }
}

impl Handle<'_> {
    /// Whether insertions and deletions need not wait. Those of a table that was found by its name must, or nobody could tell them
    /// that it has that name no more where they take effect.
    pub(crate) fn detaches(self, store: &Store) -> bool {
        self.is_by_identifier() && !self.table.kind().is_bag() && store.detaches()
    }

    /// `insert/2`, where [`detaches`](Self::detaches).
    pub(crate) fn insert_detached(self, store: &Store, incoming: Incoming) -> Result<(), Failure> {
        self.detach(store, Step::Put(incoming.entry()), incoming.entry())?;
        incoming.take();
        Ok(())
    }

    /// `delete/2`, where [`detaches`](Self::detaches); nothing when the key is not one to be left to others.
    pub(crate) fn delete_detached(self, store: &Store, probe: &Probe<'_>) -> Option<Result<(), Failure>> {
        let key = Entry {
            key: probe.word(),
            body: 0,
        };
        is_immediate(key.key).then(|| self.detach(store, Step::Remove, key))
    }

    fn detach(self, store: &Store, step: Step, key: Entry) -> Result<(), Failure> {
        let update = Detached {
            step,
            key,
            settle,
            context: std::ptr::from_ref(store).cast(),
        };
        // SAFETY: engine and context live (see above), and the entry is the table's unless this fails.
        Ok(unsafe { store.detach(self.guard, update) }?)
    }
}
