//! Prints what the hot operations cost on one thread: `cargo run --release -p cats-sync --example costs`.

use cats_sync::epoch::{collect, pin, slot_index};
use cats_sync::stripes::Stripes;
use std::hint::black_box;
use std::time::Instant;

fn report(what: &str, rounds: usize, mut run: impl FnMut(usize)) {
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..rounds).for_each(&mut run);
            start.elapsed().as_nanos() as f64 / rounds as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{what:40} {best:7.2} ns");
}

unsafe fn nothing(_: *mut u8, _: usize) {}

fn main() {
    let rounds = 1 << 22;
    report("pin and unpin", rounds, |_| drop(black_box(pin())));
    let guard = pin();
    report("pin and unpin, nested", rounds, |_| drop(black_box(pin())));
    drop(guard);
    report("slot_index", rounds, |_| {
        black_box(slot_index());
    });
    report("pin, retire, unpin, free", rounds, |i| {
        // SAFETY: `nothing` frees nothing.
        unsafe { pin().retire(black_box(i as *mut u8), 0, nothing) }
    });
    while collect(usize::MAX) {}
    for (name, counter) in [("one stripe", Stripes::<1>::new()), ("striped", Stripes::striped())] {
        report(&format!("add to a counter, {name}"), rounds, |_| {
            counter.add(black_box(1))
        });
        report(&format!("sum of a counter, {name}"), rounds, |_| {
            black_box(counter.sum());
        });
    }
}
