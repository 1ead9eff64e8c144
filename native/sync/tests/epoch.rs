//! Reclamation with real threads. Its state is global to the process, so the tests run one after another.
#![cfg(not(loom))]

use cats_sync::epoch::{collect, pin, slot_index};
use cats_sync::slab;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Barrier, Mutex, MutexGuard};
use std::{ptr, thread};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    while collect(usize::MAX) {}
    turn
}

unsafe fn count(address: *mut u8, number: usize) {
    // SAFETY: the tests retire counters that outlive them.
    unsafe { &*address.cast::<AtomicUsize>() }.fetch_add(number, SeqCst);
}

fn retire_counted(counter: &'static AtomicUsize, number: usize) {
    // SAFETY: `count` frees nothing.
    unsafe { pin().retire(ptr::from_ref(counter).cast_mut().cast(), number, count) }
}

#[test]
fn every_object_is_freed_once() {
    let _turn = turn();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..100_000 {
                    retire_counted(&FREED, 1);
                    if i % 1000 == 0 {
                        collect(100);
                    }
                }
            });
        }
    });
    while collect(1000) {}
    assert_eq!(FREED.load(SeqCst), 400_000);
}

#[test]
fn every_block_is_released_before_its_memory_goes() {
    let _turn = turn();
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe fn release(address: *mut u8) {
        // SAFETY: a block of this test, with a number in each word.
        let number = unsafe { address.cast::<[usize; 4]>().read() };
        assert!(number.iter().all(|&word| word == number[0]));
        RELEASED.fetch_add(number[0], SeqCst);
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 1..=10_000 {
                    let block = slab::alloc(32).unwrap();
                    // SAFETY: the block has this many words, and no other code knows it.
                    unsafe {
                        block.cast::<[usize; 4]>().write([number; 4]);
                        pin().retire_releasing(block, 32, release, 500);
                    }
                }
            });
        }
    });
    while collect(1000) {}
    assert_eq!(RELEASED.load(SeqCst), 4 * 10_000 * 10_001 / 2);
}

#[test]
fn nothing_is_freed_while_a_guard_could_read_it() {
    let _turn = turn();
    struct Node(AtomicU64);
    const ALIVE: u64 = 0x600d;
    unsafe fn poison(address: *mut u8, _: usize) {
        // SAFETY: retired as a leaked Node.
        let node = unsafe { Box::from_raw(address.cast::<Node>()) };
        node.0.store(0, SeqCst);
    }
    fn node() -> *mut Node {
        Box::into_raw(Box::new(Node(AtomicU64::new(ALIVE))))
    }
    let shared = AtomicPtr::new(node());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    let guard = pin();
                    // SAFETY: read under the guard, so not freed before it is dropped.
                    let node = unsafe { &*shared.load(SeqCst) };
                    for _ in 0..20 {
                        assert_eq!(node.0.load(SeqCst), ALIVE);
                    }
                    drop(guard);
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for i in 0..200_000 {
                        let guard = pin();
                        let old = shared.swap(node(), SeqCst);
                        // SAFETY: this thread alone has unlinked it, by the swap.
                        unsafe { guard.retire_sized(old.cast(), 0, poison, 1000) };
                        drop(guard);
                        if i % 100 == 0 {
                            collect(1000);
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, SeqCst);
    });
    // SAFETY: the last node, which no thread reads any more.
    unsafe { poison(shared.into_inner().cast(), 0) };
    while collect(1000) {}
}

#[test]
fn a_guard_holds_back_what_is_retired_after_it_was_made_and_nothing_else() {
    let _turn = turn();
    static BEFORE: AtomicUsize = AtomicUsize::new(0);
    static AFTER: AtomicUsize = AtomicUsize::new(0);
    retire_counted(&BEFORE, 1);
    collect(0);
    let (pinned, released) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = pin();
            let nested = pin();
            drop(guard);
            pinned.wait();
            released.wait();
            drop(nested);
        });
        pinned.wait();
        retire_counted(&AFTER, 1);
        for _ in 0..10 {
            assert!(collect(1000), "garbage is left");
        }
        assert_eq!((BEFORE.load(SeqCst), AFTER.load(SeqCst)), (1, 0));
        released.wait();
    });
    assert!(!collect(1000));
    assert_eq!(AFTER.load(SeqCst), 1);
}

#[test]
fn garbage_of_idle_and_of_ended_threads_is_within_reach() {
    let _turn = turn();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let (retired, released) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            retire_counted(&FREED, 1);
            retired.wait();
            released.wait();
            retire_counted(&FREED, 10);
        });
        retired.wait();
        assert!(!collect(1000));
        assert_eq!(FREED.load(SeqCst), 1);
        released.wait();
    });
    assert!(!collect(1000));
    assert_eq!(FREED.load(SeqCst), 11);
}

#[test]
fn what_a_thread_retired_it_frees_itself_while_it_goes_on() {
    let _turn = turn();
    static OWN: AtomicUsize = AtomicUsize::new(0);
    static OTHERS: AtomicUsize = AtomicUsize::new(0);
    unsafe fn note(_: *mut u8, retirer: usize) {
        let counter = if retirer == slot_index() { &OWN } else { &OTHERS };
        counter.fetch_add(1, SeqCst);
    }
    // SAFETY: `note` ignores the address.
    let retire = |bags| (0..64 * bags).for_each(|_| unsafe { pin().retire(ptr::null_mut(), slot_index(), note) });
    let (sealed, left) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            retire(6);
            assert_eq!(OWN.load(SeqCst), 0, "too little to be worth a round");
            sealed.wait();
            left.wait();
            let before = OWN.load(SeqCst);
            retire(1);
            assert!(OWN.load(SeqCst) > before);
        });
        sealed.wait();
        retire(2);
        assert!(OWN.load(SeqCst) > 0);
        left.wait();
    });
    assert_eq!(OTHERS.load(SeqCst), 0);
    while collect(1000) {}
    assert_eq!(OWN.load(SeqCst) + OTHERS.load(SeqCst), 9 * 64);
}

/// A thread that retires as many bags of objects as it is sent.
fn retirer<'scope>(scope: &'scope thread::Scope<'scope, '_>, counter: &'static AtomicUsize) -> impl Fn(usize) {
    let (orders, told) = mpsc::channel::<usize>();
    let (done, dones) = mpsc::channel::<()>();
    scope.spawn(move || {
        slot_index();
        done.send(()).unwrap();
        for bags in told {
            (0..64 * bags).for_each(|_| retire_counted(counter, 1));
            done.send(()).unwrap();
        }
    });
    dones.recv().unwrap();
    move |bags| {
        orders.send(bags).unwrap();
        dones.recv().unwrap();
    }
}

#[test]
fn what_is_left_to_idle_threads_is_collected_beside_busy_ones() {
    let _turn = turn();
    static IDLE: AtomicUsize = AtomicUsize::new(0);
    static BUSY: AtomicUsize = AtomicUsize::new(0);
    thread::scope(|scope| {
        // In whichever order threads are visited, an idle one comes after the busy one.
        let first = retirer(scope, &IDLE);
        let busy = retirer(scope, &BUSY);
        let last = retirer(scope, &IDLE);
        let round = || (0..64 * 2).for_each(|_| retire_counted(&BUSY, 1));
        first(3);
        last(3);
        round();
        assert_eq!(IDLE.load(SeqCst), 0, "left to the idle threads");
        for _ in 0..100 {
            busy(6);
            round();
            collect(1);
        }
        assert_eq!(IDLE.load(SeqCst), 6 * 64);
    });
    while collect(1000) {}
}

#[test]
fn much_memory_is_not_left_to_its_thread() {
    let _turn = turn();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let (retired, released) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let guard = pin();
        scope.spawn(|| {
            for _ in 0..100 {
                // SAFETY: `count` frees nothing.
                unsafe { pin().retire_sized(ptr::from_ref(&FREED).cast_mut().cast(), 1, count, 1 << 20) };
            }
            retired.wait();
            released.wait();
        });
        retired.wait();
        drop(guard);
        assert_eq!(FREED.load(SeqCst), 0, "the guard held everything back");
        // SAFETY: as above.
        unsafe { pin().retire_sized(ptr::from_ref(&FREED).cast_mut().cast(), 1, count, 1 << 20) };
        let freed = FREED.load(SeqCst);
        released.wait();
        assert!(freed >= 100, "freed {freed}");
    });
    while collect(1000) {}
}

#[test]
fn a_drop_may_pin_retire_and_collect() {
    let _turn = turn();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    unsafe fn chain(address: *mut u8, left: usize) {
        FREED.fetch_add(1, SeqCst);
        if left > 0 {
            // SAFETY: `chain` ignores the address.
            unsafe { pin().retire(address, left - 1, chain) };
            collect(1000);
        }
    }
    for _ in 0..200 {
        // SAFETY: as above.
        unsafe { pin().retire(ptr::null_mut(), 9, chain) };
    }
    while collect(1000) {}
    assert_eq!(FREED.load(SeqCst), 2000);
}

#[test]
fn one_unpin_frees_a_bounded_number() {
    let _turn = turn();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let guard = pin();
    for _ in 0..100_000 {
        retire_counted(&FREED, 1);
    }
    assert_eq!(FREED.load(SeqCst), 0, "the guard holds everything back");
    drop(guard);
    let first = FREED.load(SeqCst);
    assert!((1..=320).contains(&first), "freed {first} in one unpin");
    assert!(collect(1000));
    assert!(FREED.load(SeqCst) - first <= 1064);
    while collect(1000) {}
    assert_eq!(FREED.load(SeqCst), 100_000);
}

#[test]
fn garbage_does_not_pile_up_while_calls_are_short() {
    let _turn = turn();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let mut most = 0;
    for retired in 1..=200_000 {
        retire_counted(&FREED, 1);
        most = most.max(retired - FREED.load(SeqCst));
    }
    assert!(most <= 1000, "{most} objects held back");
    for _ in 0..1000 {
        // SAFETY: `count` frees nothing.
        unsafe { pin().retire_sized(ptr::from_ref(&FREED).cast_mut().cast(), 1, count, 1 << 20) };
        most = most.max(1);
    }
    let held = 201_000 - FREED.load(SeqCst);
    assert!(held <= 64, "{held} large objects held back");
    while collect(1000) {}
}

#[test]
fn slots_are_reused_and_are_usable_until_the_thread_has_ended() {
    let _turn = turn();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            retire_counted(&FREED, 1);
        }
    }
    thread_local! { static LATE: Late = const { Late }; }
    let mut highest = 0;
    for _ in 0..500 {
        let index = thread::spawn(|| {
            // Registered before the slot, and so destroyed after it.
            LATE.with(|_| ());
            let guard = pin();
            let index = slot_index();
            drop(guard);
            assert_eq!(index, slot_index());
            index
        });
        highest = highest.max(index.join().unwrap());
    }
    assert!(highest < 32, "index {highest} after threads one after the other");
    while collect(1000) {}
    assert_eq!(FREED.load(SeqCst), 500);
}
