//! Models of the synchronisation, checked exhaustively under the weak memory model, up to a bound on preemptions. Run
//! by `RUSTFLAGS="--cfg loom" cargo test --release -p cats-sync --test models`.
#![cfg(loom)]

use cats_sync::epoch::{announce_garbage, collect, on_garbage, pin, rest, Moment};
use cats_sync::facade::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use cats_sync::seqlock::SeqCount;
use cats_sync::trace::Ring;
use cats_sync::version_lock::VersionLock;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

fn check(model: impl Fn() + Sync + Send + 'static) {
    check_within(3, model);
}

fn check_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// Preemptions for a sequence of changes, and where much is reclaimed. `make check` sets THOROUGH; then there is one more, which takes four
/// times as long and more.
fn for_a_sequence() -> usize {
    2 + usize::from(std::env::var_os("THOROUGH").is_some())
}

/// Runs both concurrently, in either role, because the checker does not try every order of the first thread's accesses.
fn together<T: Send + Sync + 'static>(make: fn() -> Arc<T>, one: fn(&T), other: fn(&T)) {
    together_within(3, make, one, other);
}

fn together_within<T: Send + Sync + 'static>(preemptions: usize, make: fn() -> Arc<T>, one: fn(&T), other: fn(&T)) {
    for (first, second) in [(one, other), (other, one)] {
        check_within(preemptions, move || {
            let shared = make();
            let thread = {
                let shared = shared.clone();
                thread::spawn(move || first(&shared))
            };
            second(&shared);
            thread.join().unwrap();
        });
    }
}

type Words = (VersionLock, [AtomicU64; 2]);

fn words() -> Arc<Words> {
    Arc::new((VersionLock::default(), [AtomicU64::new(0), AtomicU64::new(0)]))
}

fn write_words((lock, words): &Words) {
    if let Ok((version, _)) = lock.lock() {
        for word in words {
            word.store(version + 2, Ordering::Relaxed);
        }
        lock.unlock(version);
    }
}

fn read_words((lock, words): &Words) {
    if let Some(token) = lock.token() {
        let seen = [0, 1].map(|i: usize| words[i].load(Ordering::Relaxed));
        if lock.validate(token) {
            assert_eq!(seen, [token, token], "the state is that of the token");
        }
    }
}

#[test]
fn a_validated_read_of_two_words_is_one_state() {
    let write_twice = |words: &Words| {
        write_words(words);
        write_words(words);
    };
    together(words, write_twice, read_words);
}

/// Reads without the lock, and then takes it only if the token is still valid.
fn read_and_write_words((lock, words): &Words) {
    if let Some(token) = lock.token() {
        let seen = [0, 1].map(|i: usize| words[i].load(Ordering::Relaxed));
        if lock.lock_since(token) {
            assert_eq!(seen, [token, token], "the state is that of the token");
            words.iter().for_each(|word| word.store(token + 2, Ordering::Relaxed));
            lock.unlock(token);
        }
    }
}

#[test]
fn a_lock_taken_since_a_token_holds_what_was_read() {
    together(words, read_and_write_words, write_words);
    together(words, read_and_write_words, read_and_write_words);
    together(words, read_and_write_words, read_words);
}

#[test]
fn a_token_shows_what_was_written_before_a_holder_that_changed_nothing() {
    check(|| {
        let shared = words();
        let threads = [write_words, read_words].map(|run| {
            let shared = shared.clone();
            thread::spawn(move || run(&shared))
        });
        if let Some(version) = shared.0.try_lock() {
            shared.0.unlock_unchanged(version);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn writers_exclude_each_other() {
    check(|| {
        let shared = Arc::new((VersionLock::default(), AtomicU64::new(0)));
        let write = |(lock, word): &(VersionLock, AtomicU64)| match lock.lock() {
            Ok((version, _)) => {
                word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                lock.unlock(version);
                1
            }
            Err(_) => 0,
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || write(&shared))
        };
        let written = write(&shared) + other.join().unwrap();
        assert_eq!(shared.1.load(Ordering::Relaxed), written);
        assert_eq!(shared.0.token(), Some(2 * written));
    });
}

#[test]
fn a_lock_released_unchanged_keeps_readers_valid() {
    check(|| {
        let shared = Arc::new((VersionLock::default(), AtomicU64::new(0)));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let version = shared.0.try_lock().unwrap();
                shared.0.unlock_unchanged(version);
            })
        };
        if let Some(token) = shared.0.token() {
            assert_eq!(token, 0);
        }
        writer.join().unwrap();
        assert!(shared.0.validate(0));
    });
}

/// Stands for memory: loom reports an access that is not ordered with the free.
struct Object(UnsafeCell<bool>);

// SAFETY: loom checks the accesses.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn alive(&self) -> bool {
        // SAFETY: loom checks the accesses.
        self.0.with(|alive| unsafe { *alive })
    }
}

unsafe fn mark_freed(address: *mut u8, _: usize) {
    // SAFETY: the models retire objects that outlive them.
    let object = unsafe { &*address.cast::<Object>() };
    // SAFETY: loom checks the accesses.
    object
        .0
        .with_mut(|alive| assert!(unsafe { alive.replace(false) }, "freed twice"));
}

struct Shared {
    link: AtomicPtr<Object>,
    objects: [Object; 2],
}

fn shared() -> Arc<Shared> {
    let shared = Arc::new(Shared {
        link: AtomicPtr::new(std::ptr::null_mut()),
        objects: [true, true].map(|alive| Object(UnsafeCell::new(alive))),
    });
    shared
        .link
        .store(std::ptr::from_ref(&shared.objects[0]).cast_mut(), Ordering::Relaxed);
    shared
}

fn read(shared: &Shared) {
    let guard = pin();
    // SAFETY: the objects outlive the model.
    let object = unsafe { &*shared.link.load(Ordering::Acquire) };
    assert!(object.alive() && object.alive(), "read after free");
    drop(guard);
}

fn unlink_and_retire(shared: &Shared) {
    let guard = pin();
    let new = std::ptr::from_ref(&shared.objects[1]).cast_mut();
    let old = shared.link.swap(new, Ordering::AcqRel);
    // SAFETY: the objects outlive the model. Until it retires the object, this thread may use it.
    assert!(unsafe { &*old }.alive());
    // SAFETY: unlinked just now, once. Large, so that the bag is full.
    unsafe { guard.retire_sized(old.cast(), 0, mark_freed, 1 << 20) };
    drop(guard);
}

/// Uses and retires an object that no other thread reads. Two of these fill a bag, so the first one stays in it.
fn retire(object: &Object) {
    let guard = pin();
    assert!(object.alive());
    // SAFETY: nobody reads it.
    unsafe { guard.retire(std::ptr::from_ref(object).cast_mut().cast(), 0, mark_freed) };
    drop(guard);
}

#[test]
fn nothing_is_freed_under_a_reader() {
    let reclaim = |shared: &Shared| {
        unlink_and_retire(shared);
        collect(10);
    };
    together(shared, reclaim, read);
}

#[test]
fn nothing_is_freed_under_a_reader_that_pins_again() {
    let read_twice = |shared: &Shared| {
        read(shared);
        read(shared);
    };
    together(shared, unlink_and_retire, read_twice);
}

/// Frees the object when all guards of the moment after it was unlinked have ended.
fn unlink_and_wait(shared: &Shared) {
    let new = std::ptr::from_ref(&shared.objects[1]).cast_mut();
    let old = shared.link.swap(new, Ordering::AcqRel);
    if Moment::now().is_past() {
        // SAFETY: the objects outlive the model.
        unsafe { mark_freed(old.cast(), 0) };
    }
}

/// Runs the barrier that another moment may need.
fn run_a_barrier(_: &Shared) {
    let _ = Moment::now().is_past();
}

#[test]
fn no_guard_of_a_past_moment_is_left() {
    together(shared, unlink_and_wait, read);
}

#[test]
fn a_barrier_before_a_moment_is_none_for_it() {
    let barred = || {
        let shared = shared();
        run_a_barrier(&shared);
        shared
    };
    together(barred, unlink_and_wait, read);
}

#[test]
fn a_barrier_of_another_thread_is_one_for_an_earlier_moment() {
    for tasks in [
        [run_a_barrier, read, unlink_and_wait],
        [run_a_barrier, unlink_and_wait, read],
    ] {
        check_within(for_a_sequence(), move || {
            let shared = shared();
            let threads = [tasks[0], tasks[1]].map(|task: fn(&Shared)| {
                let shared = shared.clone();
                thread::spawn(move || task(&shared))
            });
            tasks[2](&shared);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// Finds an object under one guard, and uses it under the next guard, in the same epoch.
fn read_again(shared: &Shared) {
    let guard = pin();
    let epoch = guard.epoch();
    // SAFETY: the objects outlive the model.
    let object = unsafe { &*shared.link.load(Ordering::Acquire) };
    drop(guard);
    let guard = pin();
    if guard.epoch() == epoch {
        assert!(object.alive() && object.alive(), "read after free");
    }
    drop(guard);
}

#[test]
fn nothing_is_freed_under_a_reader_that_goes_on_in_the_same_epoch() {
    let reclaim = |shared: &Shared| {
        unlink_and_retire(shared);
        collect(10);
    };
    together(shared, reclaim, read_again);
}

#[test]
fn an_object_retired_by_one_and_collected_by_another_is_freed_once() {
    for large in [true, false] {
        check(move || {
            let shared = shared();
            let writer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    if large {
                        unlink_and_retire(&shared)
                    } else {
                        retire(&shared.objects[0])
                    }
                })
            };
            collect(10);
            writer.join().unwrap();
            while collect(10) {}
            assert!(!shared.objects[0].alive());
        });
    }
}

#[test]
fn what_is_left_to_its_thread_is_freed_once() {
    check_within(for_a_sequence(), || {
        let (mine, theirs) = (shared(), shared());
        let other = {
            let theirs = theirs.clone();
            thread::spawn(move || {
                unlink_and_retire(&theirs);
                retire(&theirs.objects[1]);
            })
        };
        unlink_and_retire(&mine);
        other.join().unwrap();
        while collect(10) {}
        assert!(!mine.objects[0].alive() && theirs.objects.iter().all(|object| !object.alive()));
    });
}

#[test]
fn two_reclaimers_do_not_meet() {
    check_within(for_a_sequence(), || {
        let shared = shared();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                retire(&shared.objects[0]);
                collect(10);
            })
        };
        retire(&shared.objects[1]);
        collect(10);
        other.join().unwrap();
        while collect(10) {}
        assert!(!shared.objects[0].alive() && !shared.objects[1].alive());
    });
}

#[test]
fn an_owner_that_wakes_up_does_not_meet_its_raider() {
    check(|| {
        let shared = shared();
        retire(&shared.objects[0]);
        let raider = thread::spawn(|| {
            collect(10);
        });
        retire(&shared.objects[1]);
        raider.join().unwrap();
        while collect(10) {}
        assert!(!shared.objects[0].alive() && !shared.objects[1].alive());
    });
}

loom::lazy_static! {
    static ref WOKEN: AtomicBool = AtomicBool::new(false);
}

/// Whether there is garbage, and whether the collector found it.
type Garbage = [AtomicBool; 2];

fn leave_garbage([garbage, _]: &Garbage) {
    garbage.store(true, Ordering::Relaxed);
    announce_garbage();
}

fn look_for_garbage([garbage, found]: &Garbage) {
    rest(true);
    found.store(garbage.load(Ordering::Relaxed), Ordering::Relaxed);
}

#[test]
fn a_collector_that_rests_finds_the_garbage_or_is_woken() {
    on_garbage(|| WOKEN.store(true, Ordering::Relaxed));
    let (leave, look): (fn(&Garbage), fn(&Garbage)) = (leave_garbage, look_for_garbage);
    for (first, second) in [(leave, look), (look, leave)] {
        check(move || {
            let garbage = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let thread = {
                let garbage = garbage.clone();
                thread::spawn(move || first(&garbage))
            };
            second(&garbage);
            thread.join().unwrap();
            assert!(garbage[1].load(Ordering::Relaxed) || WOKEN.load(Ordering::Relaxed));
        });
    }
}

/// Two words that are changed alternately, with the count of their changes. The first is equal to the second, or one
/// more.
type Sequence = (SeqCount, [AtomicU64; 2]);

fn sequence() -> Arc<Sequence> {
    Arc::new((SeqCount::default(), [AtomicU64::new(0), AtomicU64::new(0)]))
}

/// Makes the changes until a reader requests rest.
fn change_in_turn((count, words): &Sequence) {
    for change in 0..4 {
        if !count.change(&words[change % 2], change as u64 / 2 + 1) {
            return;
        }
    }
}

fn read_in_turn((count, words): &Sequence) {
    // In the wrong order, which reveals the most.
    let seen = count.read(|| [1, 0].map(|i: usize| words[i].load(Ordering::Relaxed)));
    let [second, first] = seen.expect("words are changed one at a time");
    assert!(
        first == second || first == second + 1,
        "{first} and {second} are no state"
    );
}

#[test]
fn words_that_are_changed_one_at_a_time_are_read_together() {
    together_within(for_a_sequence(), sequence, change_in_turn, read_in_turn);
    let read_otherwise = |(count, words): &Sequence| {
        let seen = count.read(|| [0, 1].map(|i: usize| words[i].load(Ordering::Relaxed)));
        let [first, second] = seen.expect("words are changed one at a time");
        assert!(
            first == second || first == second + 1,
            "{first} and {second} are no state"
        );
    };
    together_within(for_a_sequence(), sequence, change_in_turn, read_otherwise);
}

/// Changes both words together, then the first alone, then both again. The states are 00, 11, 21, 33.
fn change_together((count, words): &Sequence) {
    let set = |values: [u64; 2]| {
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    };
    let _ = count.change_all(|| set([1, 1])) && count.change(&words[0], 2) && count.change_all(|| set([3, 3]));
}

fn read_together<const FIRST: usize>((count, words): &Sequence) {
    let order = [FIRST, 1 - FIRST];
    let seen = count.read(|| order.map(|i: usize| words[i].load(Ordering::Relaxed)));
    let Some(seen) = seen else { return };
    let state = order.map(|i| seen[i]);
    assert!(
        matches!(state, [0, 0] | [1, 1] | [2, 1] | [3, 3]),
        "{state:?} is no state"
    );
}

#[test]
fn words_that_are_changed_together_are_read_together() {
    together_within(for_a_sequence(), sequence, change_together, read_together::<0>);
    together_within(for_a_sequence(), sequence, change_together, read_together::<1>);
}

fn read_in_two_steps<const FIRST: usize>((count, words): &Sequence) {
    let read = |i: usize| count.settled().then(|| words[i].load(Ordering::Acquire));
    if let (Some(first), Some(second)) = (read(FIRST), read(1 - FIRST)) {
        // The change of both words that the value is as late as.
        let late = |value: u64| value.div_ceil(2);
        assert!(late(first) <= late(second), "{first}, then {second}");
    }
}

#[test]
fn words_that_are_read_one_after_the_other_do_not_go_back() {
    together(sequence, change_together, read_in_two_steps::<0>);
    together(sequence, change_together, read_in_two_steps::<1>);
}

#[test]
fn nothing_is_changed_after_a_request_for_rest_was_heard() {
    check_within(for_a_sequence(), || {
        let shared = sequence();
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                change_in_turn(&shared);
                let seen = [0, 1].map(|i: usize| shared.1[i].load(Ordering::Relaxed));
                (seen, shared.0.change(&shared.1[0], seen[0]))
            })
        };
        read_in_turn(&shared);
        if let ([first, second], false) = writer.join().unwrap() {
            let count = &shared.0;
            assert!(!count.change(&shared.1[1], 9), "a request is heard for ever");
            assert_eq!(
                [first, second],
                [0, 1].map(|i: usize| shared.1[i].load(Ordering::Relaxed))
            );
        }
    });
}

/// The words of an entry of a ring: it is whole if they belong together.
fn entry(number: u64) -> [u64; 2] {
    [number, !number]
}

#[test]
fn an_entry_that_is_read_while_its_place_is_written_again_is_whole() {
    let ring = || Arc::new(Ring::<2>::new(1).unwrap());
    let write = |ring: &Ring<2>| (0..2).for_each(|number| ring.write(entry(number)));
    let read = |ring: &Ring<2>| {
        ring.read(|words| assert_eq!(words, entry(words[0])));
    };
    together(ring, write, read);
}
