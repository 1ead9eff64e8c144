//! The [flights](crate::flights) of keys.

use crate::failure::Failure;
use crate::failures::Failed;
use crate::flights::{Flight, Known};
use crate::object::key::Key;
use crate::object::schema::Probe;
use crate::store::due;
use crate::table::Handle;

impl Handle<'_> {
    /// The flight of a key for which `lives` returns true, or else the failure that is remembered.
    pub fn flight_to(self, probe: &Probe<'_>, lives: impl Fn(&Flight) -> bool) -> Result<Option<Known>, Failure> {
        let store = self.store();
        let known = store
            .flights()
            .of(&Key::sought(probe.term(), store.is_ordered()), lives)?;
        self.still_named()?;
        Ok(known)
    }

    /// The number of keys that have a flight, also of those whose process has died.
    pub fn flights(self) -> Result<usize, Failure> {
        Ok(self.store().flights().rows()?)
    }

    /// Begins a flight, unless the key has one for which `lives` returns true, or `failures` count and one is remembered. Returns what is so,
    /// or `None`. Fails with [`Failure::Busy`] if the table has other contents by now.
    pub fn begin_flight(
        self,
        probe: &Probe<'_>,
        flight: Flight,
        lives: impl Fn(&Flight) -> bool,
        failures: bool,
    ) -> Result<Option<Known>, Failure> {
        let store = self.store();
        // Made before the lock is taken, as it may be long.
        let key = Key::own(probe.term(), store.is_ordered());
        store
            .flights()
            .begin(store.history(), (key, flight), (lives, failures), || self.still_named())
    }

    /// Notes that the leader of this process now stores the object of a key, if that has this flight: its process is not told that the key
    /// is written.
    pub fn store_flight(self, probe: &Probe<'_>, process: u64) {
        let store = self.store();
        let key = Key::sought(probe.term(), store.is_ordered());
        store.flights().store(&key, |flight| flight.process == process);
    }

    /// Ends the flight of a key, if it is the one of this process, which is not told.
    pub fn end_flight(self, probe: &Probe<'_>, process: u64) {
        let store = self.store();
        let key = Key::sought(probe.term(), store.is_ordered());
        store
            .flights()
            .remove(store.history(), &key, |flight| flight.process == process, false);
    }

    /// Ends the flight of a key as a write does.
    pub fn outdate_flight(self, probe: &Probe<'_>) {
        let store = self.store();
        store
            .flights()
            .end(store.history(), &Key::sought(probe.term(), store.is_ordered()));
    }

    /// Ends the flight of a key as its function has failed, if it is the one of this process. The failure is remembered for some
    /// milliseconds. It is the first element of the block.
    pub fn fail_flight(self, probe: &Probe<'_>, process: u64, failed: Failed, time: u64) {
        let store = self.store();
        let key = Key::own(probe.term(), store.is_ordered());
        let first = || {
            if !store.is_leased() {
                due::enter(store);
            }
        };
        store.flights().fail(
            store.history(),
            key,
            |flight| flight.process == process,
            (failed, time),
            first,
        )
    }
}
