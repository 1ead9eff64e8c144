//! The limit of the account of memory. An own program, because the limit is set once.
#![cfg(not(loom))]

use cats_sync::epoch::{collect, pin};
use cats_sync::slab::{self, account, free, give_back_unused, is_making_chunk, vacate_unused, Relief};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const LIMIT: usize = 64 << 20;

static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// A block. `None` if there is no memory for it, also when the chunk that is being made meanwhile is there.
fn alloc(size: usize) -> Option<NonNull<u8>> {
    loop {
        let making = is_making_chunk();
        match slab::alloc(size) {
            None if making => thread::yield_now(),
            block => return block,
        }
    }
}

/// As many blocks of a size as there is memory for. The account stays within `most`.
fn fill(size: usize, most: usize) -> Vec<NonNull<u8>> {
    let blocks = std::iter::from_fn(|| alloc(size).inspect(|_| assert!(account::held() <= most)));
    blocks.collect()
}

fn free_all(blocks: Vec<NonNull<u8>>, size: usize) {
    for block in blocks {
        // SAFETY: allocated with this size, and nothing uses it.
        unsafe { free(block, size) };
    }
}

/// Waits until the account holds less than this.
fn shrink_to(bytes: usize) {
    while account::held() >= bytes {
        give_back_unused(&pin());
        collect(usize::MAX);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nothing_passes_the_limit() {
    account::set_limit(LIMIT, || {
        CHANGES.fetch_add(1, SeqCst);
    });
    let mark = account::mark(LIMIT);
    for size in [64, 30_000, 100_000, 3 << 20, 64] {
        assert!(!account::is_scarce());
        let blocks = fill(size, mark);
        // All but a large block, the chunk that is reserved, what the pages lose, and what is still being given back.
        assert!(
            blocks.len() * size + size + (16 << 20) > mark,
            "{} of {size}",
            blocks.len()
        );
        assert!(account::is_scarce() && alloc(size).is_none());
        {
            let _relief = Relief::new();
            let more = fill(size, LIMIT);
            assert!(size > LIMIT - mark || !more.is_empty(), "{size}");
            free_all(more, size);
        }
        free_all(blocks, size);
        shrink_to(12 << 20);
    }
    assert_eq!(CHANGES.load(SeqCst), 10);

    // Each second page is unused. Others can have its memory once it is vacant, and it can be used again. Only Linux is asked to take it.
    let vacates = cfg!(all(target_os = "linux", not(portable), not(direct)));
    for _ in 0..if vacates { 2 } else { 0 } {
        let blocks = fill(64, mark);
        assert!(blocks.len() * 64 <= mark);
        let (odd, even): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|block| block.addr().get() >> 16 & 1 == 1);
        let bytes = odd.len() * 64;
        free_all(odd, 64);
        // What was being given back may serve a few.
        let few = fill(3 << 20, mark);
        let before = account::held();
        assert!(vacate_unused(&pin()));
        assert!(before - account::held() > bytes - bytes / 8);
        assert!(!vacate_unused(&pin()));
        let large = fill(3 << 20, mark);
        assert!(large.len() * (3 << 20) > bytes / 2, "{}", large.len());
        free_all(large, 3 << 20);
        free_all(few, 3 << 20);
        let again = fill(64, mark);
        assert!(again.len() * 64 > bytes - bytes / 8, "{} of {bytes}", again.len() * 64);
        free_all(again, 64);
        // Their chunks go back with vacant pages.
        assert!(vacate_unused(&pin()));
        free_all(even, 64);
        shrink_to(12 << 20);
    }

    // What is counted elsewhere leaves less room, and little is lost in the sums of threads. Meanwhile chunks may come, or be given back.
    let slack = (4 << 16) + (8 << 20);
    let before = account::held();
    let threads: Vec<_> = (0..4)
        .map(|_| thread::spawn(|| (0..1000).for_each(|_| account::count(4 << 10))))
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let counted = account::held() - before;
    assert!(counted.abs_diff(4000 << 12) < slack, "{counted}");
    assert!(!account::admits(|| mark - counted));
    account::count(LIMIT as isize);
    assert!(!account::admits(|| 0) && account::room() == 0 && alloc(100_000).is_none());
    account::count(-((LIMIT + (4000 << 12)) as isize));
    assert!(account::held() <= before + slack && account::admits(|| mark - before - slack));
}
