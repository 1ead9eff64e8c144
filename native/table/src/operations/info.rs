//! What `info/1,2` reports about a table's contents. Options and ownership are in [`crate::table::options`] and [`crate::registry`].

use crate::evict::account::Limit;
use crate::object::ObjectRef;
use crate::registry::Registry;
use crate::table::Handle;
use cats_sync::events::{Event, COUNTERS};

/// How full the buckets of a hash table are, as `info(Table, stats)` of ETS reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketStatistics {
    pub buckets: usize,
    pub average: f64,
    pub deviation: f64,
    /// The deviation that a perfect hash function would have.
    pub expected_deviation: f64,
    pub minimum: usize,
    pub maximum: usize,
}

/// The memory in bytes that the VM uses for an identifier, without the table's value, which lies inside. These are the headers of a
/// resource, of its binary, and of their memory. The same from OTP 25 to OTP 29.
const IDENTIFIER_BYTES: usize = 152;

/// The number of buckets that are inspected: enough for good statistics, and few enough for a scheduler.
const SAMPLE: usize = 1000;

impl Handle<'_> {
    /// The number of objects, at one instant during the call.
    pub fn size(self) -> usize {
        self.store().size()
    }

    /// The bytes of memory that the table uses, including those in the VM and in the registry.
    pub fn bytes(self) -> usize {
        let contents = match self.table.is_blank() {
            true => 0,
            false => self.store().all_bytes(),
        };
        let registry = match self.table.is_snapshot() {
            true => 0,
            false => Registry::bytes_of(self.table),
        };
        size_of::<crate::Table>() + IDENTIFIER_BYTES + registry + contents + self.table.counter_bytes()
    }

    /// How often each event happened to the contents: see [`cats_sync::events`].
    pub fn events(self) -> [u64; COUNTERS] {
        self.store().event_sums()
    }

    /// Counts an event of the contents.
    pub fn count_event(self, event: Event, times: usize) {
        self.store().count_event(event, times);
    }

    /// Counts a slice of a long call: whether others run before the next one, and whether it took long.
    pub fn count_slice(self, yields: bool, long: bool) {
        if yields {
            self.count_event(Event::Slice, 1);
        }
        if long {
            self.count_event(Event::LongSlice, 1);
        }
    }

    /// The limit of the table's contents.
    pub fn limit(self) -> Option<Limit> {
        self.store().limit()
    }

    /// What is taken of the limit: objects, or bytes.
    pub fn taken(self) -> Option<u64> {
        self.store().taken()
    }

    /// Gives up so many objects, those that would be evicted at the limit. Returns how many it has given up. There are fewer if others are
    /// in the way, or nothing is evicted. Unit: objects. Atomic for each. Work: that of as many evictions.
    pub fn shed(self, objects: usize) -> usize {
        self.store().shed(self.guard, objects)
    }

    /// The number of base nodes of a contention adapting tree.
    pub fn base_nodes(self) -> Option<usize> {
        self.store().base_nodes()
    }

    /// Statistics of all buckets, or of an evenly spread sample. `None` for an ordered table.
    pub fn statistics(self) -> Result<Option<BucketStatistics>, crate::Failure> {
        let store = self.store();
        if store.is_ordered() {
            return Ok(None);
        }
        let buckets = store.buckets().max(1);
        let step = buckets.div_ceil(SAMPLE);
        let (mut count, mut sum, mut squares) = (0usize, 0usize, 0usize);
        let (mut minimum, mut maximum) = (usize::MAX, 0);
        for number in (0..buckets).step_by(step) {
            // Only the number of entries matters.
            let objects = store.slot(self.guard, number, |entry, out| {
                out.push(ObjectRef::Single([entry.key]))
            })?;
            let Some(objects) = objects else { break };
            let length = objects.len();
            count += 1;
            sum += length;
            squares += length * length;
            minimum = minimum.min(length);
            maximum = maximum.max(length);
        }
        let n = count.max(1) as f64;
        let average = sum as f64 / n;
        let variance = (squares as f64 / n - average * average).max(0.0);
        Ok(Some(BucketStatistics {
            buckets,
            average,
            deviation: variance.sqrt(),
            expected_deviation: (average * (1.0 - 1.0 / buckets as f64)).sqrt(),
            minimum: if count == 0 { 0 } else { minimum },
            maximum,
        }))
    }
}
