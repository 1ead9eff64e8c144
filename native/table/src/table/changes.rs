//! What is changed of a table under the lock that its keeper has for it: its contents as a whole, and the bits of its state.

use super::{Handle, Table, BLANK, INSIDE, RECORDED};
use crate::failure::{Cause, Failure};
use crate::preferred;
use crate::store::Store;
use crate::table::contents::Contents;
use cats_sync::epoch::{pin, Guard};
use cats_sync::facade::Ordering;
use cats_sync::probe;
use cats_sync::recorder::Recorder;
use cats_sync::trace::{self, Event, Kind};
use cats_sync::Busy;
use std::sync::Arc;

impl Table {
    /// Runs `f` under the lock for the table: nobody else changes the table meanwhile.
    pub(crate) fn alone<R>(&self, f: impl FnOnce() -> R) -> Result<R, Busy> {
        let (mut f, mut result) = (Some(f), None);
        self.keeper.hold(self, &mut || result = f.take().map(|f| f()))?;
        result.ok_or(Busy)
    }

    /// Gives the table contents of its own, if it is still blank.
    #[inline(never)]
    pub(crate) fn furnish(&self) -> Result<(), Failure> {
        let contents = Contents::empty(self.options(), None)?;
        self.alone(|| {
            if self.is_dead() {
                return Err(Failure::Bad(Cause::Id));
            }
            if self.is_blank() {
                self.tell_of(&contents);
                // Release pairs with the Acquire in `store`. Relaxed, for the state: as in `set_bit`.
                self.store.store(contents.into_raw(), Ordering::Release);
                let state = self.state.load(Ordering::Relaxed);
                // Release: the contents are stored before, so no writer ever sees those that blank tables share.
                self.state.store(state & !BLANK, Ordering::Release);
            }
            Ok(())
        })?
    }

    /// Says whether a transaction uses the table whose process may not write to it, if there is such a process at all.
    pub fn note_inside(&self) -> Result<(), Failure> {
        self.alone(|| match self.is_dead() {
            true => (),
            false => self.set_bit(INSIDE, !preferred::is_nobody_inside()),
        })?;
        Ok(())
    }

    /// Takes back one call of [`record`](Handle::record). After the last one the table is not recorded any more. The table may be dead.
    pub fn stop_recording(&self, recorder: &Arc<Recorder>) -> Result<(), Failure> {
        unsafe fn free(recorder: *mut u8, _: usize) {
            // SAFETY: made by `into_raw` below.
            drop(unsafe { Arc::from_raw(recorder.cast::<Recorder>()) });
        }
        let guard = pin();
        self.alone(|| {
            if recorder.used(false) == 0 && !self.is_dead() {
                self.set_bit(RECORDED, false);
                if let Some(events) = self.store(&guard).recordable() {
                    events.set_recorder(None);
                }
            }
        })?;
        let owner = Arc::into_raw(Arc::clone(recorder)).cast_mut().cast();
        // SAFETY: nobody finds the recorder any more, if this was its last user. It is dropped once, and may be so on any thread.
        unsafe { guard.retire(owner, 0, free) };
        Ok(())
    }

    /// Sets or clears a bit of the state. The caller holds the lock for the table.
    pub(crate) fn set_bit(&self, bit: usize, set: bool) {
        // Relaxed: only who holds the lock changes the state. Release pairs with the Acquire of those who check it.
        let state = self.state.load(Ordering::Relaxed) & !bit;
        self.state.store(state | if set { bit } else { 0 }, Ordering::Release);
    }

    /// Tells who looks that the table has contents of its own, if it has.
    pub(crate) fn tell_contents(&self, guard: &Guard) {
        if !self.is_blank() {
            self.tell_of(self.store(guard));
        }
    }

    fn tell_of(&self, store: &Store) {
        probe!(table_contents, self.serial(), store.engine_address());
        trace::record(|| Event::new(Kind::Contents, self.serial(), [store.trace_address(), 0]));
    }
}

impl Handle<'_> {
    /// Gives the table fresh contents in place of those that it has. An operation that began before takes effect before.
    pub(crate) fn empty(self) -> Result<(), Failure> {
        let table = self.table();
        debug_assert!(!table.is_blank());
        let setup = self.store().setup();
        let fresh = Contents::empty(table.options(), setup.clone().map(Box::new))?;
        let old = table.alone(|| {
            self.still_named()?;
            if table.is_dead() {
                return Err(Failure::Bad(Cause::Id));
            }
            // They were changed meanwhile.
            if self.store().setup() != setup {
                return Err(Failure::Busy);
            }
            // What other calls count in the old contents from here on is not told any more.
            fresh.absorb_events(self.store());
            if let Some(notices) = self.store().notices() {
                fresh.set_notices(notices.clone());
            }
            // Release: whoever finds the fresh contents sees them whole. Acquire: likewise for this thread and the old ones.
            let old = table.store.swap(fresh.into_raw(), Ordering::AcqRel);
            // SAFETY: the table had them, and has others now.
            Ok(unsafe { Contents::from_raw(old) })
        })??;
        drop(old);
        table.tell_contents(self.guard);
        Ok(())
    }

    /// Has the waits of the table recorded, until [`stop_recording`](Table::stop_recording). The caller may read the table.
    pub fn record(self) -> Result<Arc<Recorder>, Failure> {
        let table = self.table();
        if table.is_blank() {
            table.furnish()?;
        }
        table.alone(|| {
            self.still_named()?;
            if table.is_dead() {
                return Err(Failure::Bad(Cause::Id));
            }
            let Some(events) = self.store().recordable() else {
                return Err(Failure::Bad(Cause::NoContention));
            };
            let recorder = events.own_recorder().unwrap_or_else(|| Arc::new(Recorder::new()));
            if !events.set_recorder(Some(&recorder)) {
                return Err(Failure::NoMemory);
            }
            recorder.used(true);
            table.set_bit(RECORDED, true);
            Ok(recorder)
        })?
    }
}
