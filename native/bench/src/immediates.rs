//! The schema of the benchmarks: integer keys, which are immediates.

use cats_engine::{Entry, OrderedSchema, Schema};
use std::cmp::Ordering;

/// Keys that are immediates.
pub struct Immediates;

impl Schema for Immediates {
    type Probe = u64;
    fn word(&self, probe: &u64) -> u64 {
        probe << 4 | 15
    }
    unsafe fn matches(&self, _: &u64, _: Entry) -> bool {
        unreachable!("all keys are immediates")
    }
    unsafe fn compare_colliding(&self, _: &u64, _: Entry) -> Ordering {
        unreachable!("all keys are immediates")
    }
    unsafe fn compare_colliding_entries(&self, _: Entry, _: Entry) -> Ordering {
        unreachable!("all keys are immediates")
    }
}

impl OrderedSchema for Immediates {
    type Key = u64;
    unsafe fn own(&self, entry: Entry) -> u64 {
        entry.key >> 4
    }
    fn own_probe(&self, probe: &u64) -> u64 {
        *probe
    }
    fn probe<'a>(&self, key: &'a u64) -> &'a u64 {
        key
    }
    unsafe fn compare(&self, probe: &u64, entry: Entry) -> Ordering {
        probe.cmp(&(entry.key >> 4))
    }
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering {
        a.key.cmp(&b.key)
    }
    fn compare_probes(&self, a: &u64, b: &u64) -> Ordering {
        a.cmp(b)
    }
    fn head(&self, probe: &u64, skip: usize) -> u64 {
        probe.checked_shl(8 * skip as u32).unwrap_or(0)
    }
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64 {
        self.head(&(entry.key >> 4), skip)
    }
}
