//! Models of the synchronisation, checked exhaustively (up to a bound on preemptions) under the weak memory model:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p cats-sync --test models`.
#![cfg(loom)]

use cats_sync::epoch::{collect, pin};
use cats_sync::facade::{AtomicPtr, AtomicU64, Ordering};
use cats_sync::version_lock::VersionLock;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

#[test]
fn a_validated_read_of_two_words_is_one_state() {
    check(|| {
        let shared = Arc::new((VersionLock::default(), [AtomicU64::new(0), AtomicU64::new(0)]));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (lock, words) = &*shared;
                for value in 1..=2 {
                    if let Ok((version, _)) = lock.lock() {
                        words[0].store(value, Ordering::Relaxed);
                        words[1].store(value, Ordering::Relaxed);
                        lock.unlock(version);
                    }
                }
            })
        };
        let (lock, words) = &*shared;
        if let Some(token) = lock.token() {
            let seen = (words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed));
            if lock.validate(token) {
                assert_eq!(seen.0, seen.1);
                assert_eq!(seen.0, token / 2, "the state is that of the token");
            }
        }
        writer.join().unwrap();
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

/// A stand-in for memory: loom fails when an access is not ordered with the free.
struct Object(UnsafeCell<bool>);

// SAFETY: loom watches the accesses.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn alive(&self) -> bool {
        // SAFETY: loom watches the accesses.
        self.0.with(|alive| unsafe { *alive })
    }
}

unsafe fn mark_freed(address: *mut u8, _: usize) {
    // SAFETY: the models retire objects that outlive them.
    let object = unsafe { &*address.cast::<Object>() };
    // SAFETY: loom watches the accesses.
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
    // SAFETY: the objects outlive the model. The one who retires may use the object until then.
    assert!(unsafe { &*old }.alive());
    // SAFETY: unlinked just now, once. Large, so that the bag is full.
    unsafe { guard.retire_sized(old.cast(), 0, mark_freed, 1 << 20) };
    drop(guard);
}

#[test]
fn nothing_is_freed_under_a_reader() {
    check(|| {
        let shared = shared();
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || read(&shared))
        };
        unlink_and_retire(&shared);
        collect(10);
        reader.join().unwrap();
    });
}

#[test]
fn nothing_is_freed_under_a_reader_that_pins_again() {
    check(|| {
        let shared = shared();
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                read(&shared);
                read(&shared);
            })
        };
        unlink_and_retire(&shared);
        reader.join().unwrap();
    });
}

#[test]
fn an_object_retired_by_one_and_collected_by_another_is_freed_once() {
    check(|| {
        let shared = shared();
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || unlink_and_retire(&shared))
        };
        collect(10);
        writer.join().unwrap();
        collect(10);
        assert!(!shared.objects[0].alive());
    });
}

#[test]
fn an_owner_that_wakes_up_does_not_meet_its_raider() {
    check(|| {
        let shared = shared();
        let retire = |object: &Object| {
            let guard = pin();
            // SAFETY: nobody reads it. Two objects a bag, so the first stays in it.
            unsafe { guard.retire(std::ptr::from_ref(object).cast_mut().cast(), 0, mark_freed) };
            drop(guard);
        };
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
