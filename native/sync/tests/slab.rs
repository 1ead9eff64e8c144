//! The allocator with real threads. Its state is global to the process, so the tests run one after another.
#![cfg(not(loom))]

use cats_sync::epoch::{collect, pin};
use cats_sync::slab::{alloc, free, held, usable};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{mpsc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What may remain held when every block is free: the region that is kept, and the stock.
const KEPT: usize = 64 << 20;

/// A block, filled with a pattern of its own.
struct Block {
    at: NonNull<u8>,
    size: usize,
    pattern: u8,
}

// SAFETY: the holder owns the block.
unsafe impl Send for Block {}

impl Block {
    fn new(size: usize, pattern: usize) -> Self {
        let at = alloc(size).expect("memory");
        let alignment = [128, 64, 16].into_iter().find(|n| size % *n == 0).unwrap_or(8);
        assert_eq!(at.addr().get() % alignment, 0, "alignment of {size}");
        let pattern = pattern as u8;
        // A block of a page owns all the bytes that it occupies. Those of a large block include what comes before it.
        let fill = if size <= 32 << 10 {
            usable(size).min(size + 64)
        } else {
            size
        };
        // SAFETY: the block has at least that size.
        unsafe { at.as_ptr().write_bytes(pattern, fill) };
        Self { at, size, pattern }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: this still owns the block, which was filled.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.at.as_ptr(), self.size);
            assert!(
                bytes.iter().all(|byte| *byte == self.pattern),
                "a block of {} was overwritten",
                self.size
            );
            // The two ways to free blocks: one by one, and from bags.
            if self.pattern % 2 == 0 || self.size > 32 << 10 {
                free(self.at, self.size);
            } else {
                pin().retire_memory(self.at, self.size);
            }
        }
    }
}

fn give_all_back() {
    // Another thread gives the regions back, after some time.
    for _ in 0..10_000 {
        while collect(usize::MAX) {}
        if held() <= KEPT {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{} bytes held after all was freed", held());
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
    /// Mostly small sizes, and some of every magnitude.
    fn size(&mut self) -> usize {
        let most = [64, 64, 256, 256, 1024, 8192, 40_000][self.below(7)];
        1 + self.below(most)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]
    #[test]
    fn blocks_in_use_do_not_overlap(steps in prop::collection::vec((any::<bool>(), 1..70_000usize, any::<u16>()), 1..400)) {
        let _turn = turn();
        let mut live: BTreeMap<usize, Block> = BTreeMap::new();
        for (step, (add, size, pick)) in steps.into_iter().enumerate() {
            if add || live.is_empty() {
                let size = if size % 3 == 0 { size } else { size % 512 + 1 };
                prop_assert!(usable(size) >= size);
                let block = Block::new(size, step);
                let address = block.at.addr().get();
                if let Some((below, other)) = live.range(..=address).next_back() {
                    prop_assert!(below + other.size <= address);
                }
                if let Some((above, _)) = live.range(address..).next() {
                    prop_assert!(address + size <= *above);
                }
                live.insert(address, block);
            } else {
                let address = *live.keys().nth(pick as usize % live.len()).unwrap();
                live.remove(&address);
            }
        }
    }
}

#[test]
fn blocks_freed_by_other_threads_are_reused_and_memory_goes_back() {
    let _turn = turn();
    for _ in 0..3 {
        thread::scope(|scope| {
            for number in 0..2 {
                let (sender, receiver) = mpsc::sync_channel::<Vec<Block>>(4);
                scope.spawn(move || {
                    let mut random = Random(7 + number);
                    for batch in 0..300 {
                        sender
                            .send((0..500).map(|i| Block::new(random.size(), batch + i)).collect())
                            .unwrap();
                    }
                });
                scope.spawn(move || {
                    let mut held_back: Vec<Block> = Vec::new();
                    for batch in receiver {
                        held_back.extend(batch);
                        if held_back.len() > 20_000 {
                            held_back.drain(..15_000);
                        }
                    }
                });
            }
        });
        give_all_back();
    }
}

#[test]
fn threads_share_raid_and_exit_without_harm() {
    let _turn = turn();
    let shared: Vec<Mutex<Vec<Block>>> = (0..8).map(|_| Mutex::new(Vec::new())).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let shared = &shared;
                scope.spawn(move || {
                    // Short-lived threads, one after another.
                    for life in 0..15 {
                        thread::scope(|scope| {
                            scope.spawn(|| {
                                let mut random = Random(1 + number * 100 + life);
                                for step in 0..10_000 {
                                    let block = Block::new(random.size(), step);
                                    let mut shelf = shared[random.below(8)].lock().unwrap();
                                    shelf.push(block);
                                    let freed = if shelf.len() > 1000 {
                                        let keep = random.below(1000);
                                        shelf.split_off(keep)
                                    } else {
                                        Vec::new()
                                    };
                                    drop(shelf);
                                    drop(freed);
                                }
                            });
                        });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(SeqCst) {
                collect(1000);
                thread::yield_now();
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, SeqCst);
        results.into_iter().for_each(|result| result.unwrap());
    });
    drop(shared);
    give_all_back();
}

#[test]
fn an_idle_threads_memory_is_not_held_back() {
    let _turn = turn();
    let (ready, go) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let (ready_sender, go_receiver) = (ready.0, go.1);
        scope.spawn(move || {
            // One block of many classes each keeps a page. After they are freed, the thread still owns the pages.
            for _ in 0..3 {
                let blocks: Vec<_> = (0..2000).map(|i| Block::new(16 + i * 16, i)).collect();
                drop(blocks);
            }
            ready_sender.send(()).unwrap();
            go_receiver.recv().unwrap();
            drop(Block::new(100, 1));
        });
        ready.1.recv().unwrap();
        give_all_back();
        go.0.send(()).unwrap();
    });
}

#[test]
fn blocks_spread_thinly_are_no_reason_to_take_more() {
    let _turn = turn();
    let fill = |number: usize| -> Vec<Block> { (0..number).map(|i| Block::new(96, i)).collect() };
    let mut first = fill(1_000_000);
    let full = held();
    // Frees three quarters of the blocks of every page. The others keep all pages in use.
    let mut number = 0;
    first.retain(|_| {
        number += 1;
        number % 4 == 0
    });
    let second = thread::scope(|scope| scope.spawn(|| fill(700_000)).join().unwrap());
    // A region may have filled up the stock meanwhile.
    assert!(held() <= full + (32 << 20), "{} bytes held, {full} before", held());
    drop((first, second));
    give_all_back();
}

#[test]
fn large_blocks_go_straight_back() {
    let _turn = turn();
    for size in [32_769, 65_536, 1 << 20, 5_000_000] {
        drop(Block::new(size, size / 7));
    }
    // More than anything else here holds. It is never written.
    let size = 1 << 32;
    let block = alloc(size).expect("memory");
    assert!(held() >= size);
    // SAFETY: allocated above.
    unsafe { free(block, size) };
    assert!(held() < size);
    assert!(alloc(usize::MAX).is_none() && alloc(isize::MAX as usize).is_none());
}

#[test]
fn an_owner_does_not_meet_its_raider() {
    let _turn = turn();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let owners: Vec<_> = (1..=2_u64)
            .map(|owner| {
                scope.spawn(move || {
                    for round in 0..300_000_u64 {
                        let mark = owner << 32 | round;
                        let blocks = [(); 4].map(|()| alloc(64).expect("memory").cast::<u64>());
                        // SAFETY: blocks of 64 bytes, which this thread owns until they are freed.
                        unsafe {
                            blocks.iter().for_each(|block| block.write(mark));
                            blocks.iter().for_each(|block| assert_eq!(block.read(), mark));
                            blocks.iter().for_each(|block| free(block.cast(), 64));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(SeqCst) {
                collect(0);
            }
        });
        let results: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        done.store(true, SeqCst);
        results.into_iter().for_each(|result| result.unwrap());
    });
    give_all_back();
}
