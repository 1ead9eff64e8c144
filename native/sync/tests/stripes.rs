//! Striped counters with real threads.
#![cfg(not(loom))]

use cats_sync::stripes::Stripes;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::thread;

proptest! {
    #[test]
    fn the_sum_is_the_sum_of_what_was_added(amounts in prop::collection::vec((0..2usize, -1000..1000i64), 0..100)) {
        for counters in [Stripes::<2>::new(), Stripes::<2>::striped()] {
            let mut sums = [0; 2];
            for &(counter, amount) in &amounts {
                counters.add_to(counter, amount);
                sums[counter] += amount;
                prop_assert_eq!(counters.sum_of(counter), sums[counter]);
            }
        }
    }
}

#[test]
fn the_sum_is_exact_while_others_move_units_around() {
    // Each mover adds one and then removes it. Between the two it changes the other counter. So the sum is always
    // between 0 and the number of movers.
    for counters in [Stripes::<2>::new(), Stripes::<2>::striped()] {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(SeqCst) {
                        counters.add_to(0, 1);
                        counters.add_to(1, 7);
                        counters.add_to(0, -1);
                    }
                });
            }
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut last = 0;
                        for _ in 0..20_000 {
                            let sum = counters.sum_of(0);
                            assert!((0..=4).contains(&sum), "{sum}");
                            let growing = counters.sum_of(1);
                            assert!(growing >= last && growing % 7 == 0, "{growing} after {last}");
                            last = growing;
                        }
                    })
                })
                .collect();
            let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            done.store(true, SeqCst);
            results.into_iter().for_each(|result| result.unwrap());
        });
        assert_eq!(counters.sum_of(0), 0);
    }
}

#[test]
fn the_sum_has_every_change_complete_before_the_call() {
    let counters = Stripes::<1>::striped();
    let (begun, complete) = (AtomicI64::new(0), AtomicI64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    begun.fetch_add(1, SeqCst);
                    counters.add(1);
                    complete.fetch_add(1, SeqCst);
                }
            });
        }
        scope.spawn(|| {
            while complete.load(SeqCst) < 150_000 {
                let least = complete.load(SeqCst);
                let sum = counters.sum();
                assert!(least <= sum && sum <= begun.load(SeqCst));
            }
        });
    });
    assert_eq!(counters.sum(), 150_000);
}
