//! The [flights](crate::flights) of keys.

use crate::failure::Failure;
use crate::flights::{Flight, Known};
use crate::object::key::Key;
use crate::object::schema::Probe;
use crate::store::due;
use crate::table::Handle;
use cats_term::Block;

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

    /// Begins a flight, unless the key has one for which `lives` returns true. Returns whether it did. Fails with [`Failure::Busy`] if the
    /// table has other contents by now.
    pub fn begin_flight(
        self,
        probe: &Probe<'_>,
        flight: Flight,
        lives: impl Fn(&Flight) -> bool,
    ) -> Result<bool, Failure> {
        let store = self.store();
        // Made before the lock is taken, as it may be long.
        let key = Key::own(probe.term(), store.is_ordered());
        store
            .flights()
            .begin(store.history(), (key, flight), lives, || self.still_named())
    }

    /// Ends the flight of a key, if it is the one of this process, which is not told. Returns whether it was.
    pub fn end_flight(self, probe: &Probe<'_>, process: u64) -> bool {
        let store = self.store();
        let key = Key::sought(probe.term(), store.is_ordered());
        let ended = store
            .flights()
            .remove(store.history(), &key, |flight| flight.process == process, false);
        ended.is_some()
    }

    /// The same as its function has failed, which is remembered for some milliseconds. The failure is the first element of the block.
    pub fn fail_flight(self, probe: &Probe<'_>, process: u64, failed: Block, time: u64) -> bool {
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
