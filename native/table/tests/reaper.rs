//! What the reaper says is left, by which its thread sleeps, and how soon it frees what nothing announces.

use crate::alone;
use crate::common::*;
use cats_sync::epoch;
use cats_table::garbage::Left;
use cats_table::Kind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Garbage that no work announces is freed in a few slices. An idle reaper takes one slice a second.
#[test]
fn idle_garbage_is_given_back_soon() {
    const RETIRED: usize = 3000;
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn free(_: *mut u8, _: usize) {
        FREED.fetch_add(1, Relaxed);
    }
    alone(|| {
        install();
        let (registry, world) = (registry(), World::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: `free` only counts.
                (0..RETIRED).for_each(|_| unsafe { epoch::pin().retire_sized(std::ptr::null_mut(), 0, free, 0) });
            });
        });
        // No slice ends by its time, which passes on a busy machine.
        (0..4).for_each(|_| _ = registry.reap(&world, Duration::MAX));
        assert_eq!(FREED.load(Relaxed), RETIRED);
    });
}

#[test]
fn what_can_be_freed_is_told_from_what_is_read() {
    const RETIRED: usize = 100_000;
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn free(_: *mut u8, _: usize) {
        FREED.fetch_add(1, Relaxed);
    }
    alone(|| {
        install();
        let (registry, world) = (registry(), World::default());
        let left = |budget| registry.reap(&world, budget);
        while left(Duration::ZERO) != Left::Nothing {}
        let guard = epoch::pin();
        for number in 1..=RETIRED {
            // SAFETY: `free` only counts.
            unsafe { guard.retire(std::ptr::without_provenance_mut(8 * number), 0, free) };
        }
        assert_eq!(left(Duration::from_millis(1)), Left::Garbage);
        assert_eq!(FREED.load(Relaxed), 0);
        drop(guard);
        let mut ripe = 0;
        loop {
            let freed = FREED.load(Relaxed);
            match left(Duration::ZERO) {
                Left::Ripe => {
                    ripe += 1;
                    assert!(FREED.load(Relaxed) > freed);
                }
                Left::Nothing => break,
                other => assert_eq!(other, Left::Garbage),
            }
        }
        assert_eq!(FREED.load(Relaxed), RETIRED);
        assert!(ripe > 10, "{ripe} slices");

        // Contents that are still read do not keep what can be freed.
        let guard = epoch::pin();
        let table = enter(registry, &world, &guard, options(Kind::Set, 1), atom(1), 1, None).unwrap();
        for key in 0..10_000 {
            with_object(&[Value::Int(key)], |object| table.by_identifier(&guard).insert(object)).unwrap();
        }
        for number in 1..=RETIRED {
            // SAFETY: as above.
            unsafe { guard.retire(std::ptr::without_provenance_mut(8 * number), 0, free) };
        }
        drop(guard);
        let guard = epoch::pin();
        registry.delete(&world, table.by_identifier(&guard)).unwrap();
        let mut slices = 0;
        while left(Duration::ZERO) != Left::Blocked {
            slices += 1;
        }
        assert!(slices > 10, "{slices} slices");
        // The last ones are not sealed yet.
        assert!(FREED.load(Relaxed) > 2 * RETIRED - 1000);
        drop(guard);
    });
}
