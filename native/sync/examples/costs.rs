//! Prints what the hot operations cost on one thread: `cargo run --release -p cats-sync --example costs`.

use cats_sync::epoch::{collect, pin, slot_index};
use cats_sync::slab;
use cats_sync::stripes::Stripes;
use std::hint::black_box;
use std::ptr::NonNull;

/// The processor time of this thread: other work on the machine counts as little as can be.
fn now() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn report(what: &str, rounds: usize, mut run: impl FnMut(usize)) {
    let best = (0..5)
        .map(|_| {
            let start = now();
            (0..rounds).for_each(&mut run);
            (now() - start) / rounds as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{what:60} {best:7.2} ns");
}

unsafe fn nothing(_: *mut u8, _: usize) {}

/// The two allocators behind one face.
struct Allocator {
    name: &'static str,
    alloc: fn(usize) -> *mut u8,
    free: fn(*mut u8, usize),
}

const ALLOCATORS: [Allocator; 2] = [
    Allocator {
        name: "slab",
        alloc: |size| slab::alloc(size).unwrap().as_ptr(),
        // SAFETY: given what `alloc` returned.
        free: |block, size| unsafe { slab::free(NonNull::new_unchecked(block), size) },
    },
    Allocator {
        name: "malloc",
        // SAFETY: any size will do.
        alloc: |size| unsafe { libc::malloc(size) }.cast(),
        // SAFETY: given what `alloc` returned.
        free: |block, _| unsafe { libc::free(block.cast()) },
    },
];

fn time(what: String, number: usize, run: impl FnOnce()) {
    let start = now();
    run();
    println!("{what:60} {:7.2} ns", (now() - start) / number as f64);
}

fn memory(allocator: &Allocator) {
    let Allocator { name, alloc, free } = allocator;
    for size in [48, 256, 2048] {
        report(&format!("{name}: alloc and free {size}, hot"), 1 << 22, |_| {
            free(black_box(alloc(size)), size)
        });
    }
    let sizes = |i: usize| 32 + (i * 7919) % 9 * 16;
    let number = 2_000_000;
    let mut blocks = Vec::with_capacity(number);
    time(format!("{name}: alloc 32 to 160, 2 million, and write"), number, || {
        for i in 0..number {
            let block = alloc(sizes(i));
            // SAFETY: the block has 32 bytes at least.
            unsafe { block.write_bytes(1, 32) };
            blocks.push((block, sizes(i)));
        }
    });
    let mut random = 88_172_645_463_325_252_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as usize % limit
    };
    let picks: Vec<usize> = (0..number).map(|_| below(number)).collect();
    time(format!("{name}: replace a random one of them"), number, || {
        for &pick in &picks {
            let (block, size) = blocks[pick];
            blocks[pick].0 = alloc(size);
            // SAFETY: the block has 32 bytes at least.
            unsafe { blocks[pick].0.write_bytes(2, 32) };
            free(block, size);
        }
    });
    for i in (1..number).rev() {
        blocks.swap(i, below(i + 1));
    }
    if *name == "slab" {
        let used: usize = blocks.iter().map(|(_, size)| slab::usable(*size)).sum();
        println!("{name}: {} bytes held for {used} in use", slab::held());
    }
    time(format!("{name}: free all in random order"), number, || {
        for (block, size) in blocks {
            free(block, size);
        }
    });
}

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
    ALLOCATORS.iter().for_each(memory);
    while collect(usize::MAX) {}
    // A thread of its own gives memory back.
    std::thread::sleep(std::time::Duration::from_secs(1));
    println!("slab: {} bytes held when all is free", slab::held());
}
