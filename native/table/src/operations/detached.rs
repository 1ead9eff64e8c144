//! Detached insertions and deletions: their callers do not wait for them. They are used in tables whose lock delegates.
//!
//! Source: Sagonas and others, "Robust scalable Erlang virtual machine", RELEASE deliverable D2.4, 2015, section 3.4.3: the second and
//! third step of porting ETS to queue delegation.
//!
//! The result of such an operation is known as soon as its arguments are checked. So it is delegated to the thread that holds the lock,
//! together with everything that it needs: the entry, or a key that is an immediate. The holder counts and retires what the operation
//! replaces.
//!
//! The contents live until then. The holder is in an operation on these contents, under a guard of its own. That guard began before the
//! contents could be retired.

use crate::failure::Failure;
use crate::object::body_bytes;
use crate::object::group::retire_entry;
use crate::object::schema::Probe;
use crate::operations::insert::Incoming;
use crate::store::Store;
use crate::table::Handle;
use cats_engine::{Entry, Step};
use cats_papers::detaching::{Detached, Detaching};
use cats_sync::epoch::pin;
use cats_term::is_immediate;

/// Counts what a step has changed, and retires what it has replaced.
///
/// # Safety
/// `store` is the address of the store to which the place belongs. The place is locked. The step was carried out, and before it the place
/// had the entry `old`.
unsafe fn settle(store: *const (), step: Step, old: Option<Entry>) {
    // SAFETY: as the caller promises. Bags have no detached operations, so the body is not that of a group.
    let bytes = |entry: Entry| unsafe { body_bytes(entry.body) } as i64;
    let (objects, more) = match step {
        Step::Put(entry) => (1, bytes(entry)),
        _ => (0, 0),
    };
    let (gone, less) = old.map_or((0, 0), |entry| (1, bytes(entry)));
    // SAFETY: as the caller promises.
    unsafe { &*store.cast::<Store>() }.count(objects - gone, more - less);
    if let Some(old) = old {
        // SAFETY: the place has another entry now, or none.
        unsafe { retire_entry(&pin(), old.body) }
    }
}

impl Handle<'_> {
    /// The engine, if insertions and deletions are detached. They are not if the table was found by name. Then the table may lose the name
    /// before the operation takes effect, and the caller must learn that.
    pub(crate) fn detaching(self, store: &Store) -> Option<&dyn Detaching> {
        match self.is_by_identifier() && !self.table.kind().is_bag() {
            true => store.detaching(),
            false => None,
        }
    }

    /// `insert/2`, for a table whose engine is [`detaching`](Self::detaching).
    pub(crate) fn insert_detached(
        self,
        store: &Store,
        engine: &dyn Detaching,
        incoming: Incoming,
    ) -> Result<(), Failure> {
        self.detach(store, engine, Step::Put(incoming.entry()), incoming.entry())?;
        incoming.take();
        Ok(())
    }

    /// `delete/2`, for a table whose engine is [`detaching`](Self::detaching). `None` if the key is not an immediate.
    pub(crate) fn delete_detached(
        self,
        store: &Store,
        engine: &dyn Detaching,
        probe: &Probe<'_>,
    ) -> Option<Result<(), Failure>> {
        let key = Entry {
            key: probe.word(),
            body: 0,
        };
        is_immediate(key.key).then(|| self.detach(store, engine, Step::Remove, key))
    }

    fn detach(self, store: &Store, engine: &dyn Detaching, step: Step, key: Entry) -> Result<(), Failure> {
        let update = Detached {
            step,
            key,
            settle,
            context: std::ptr::from_ref(store).cast(),
        };
        // SAFETY: the engine and the context live, as the module's documentation says. The entry belongs to the table, unless this fails.
        Ok(unsafe { engine.detach(self.guard, update) }?)
    }
}
