//! MRQD: detached sections and others, concurrent with readers. A thread sees what its detached sections did, whichever
//! thread ran them.

use crate::{all, make, patiently, read, write, Watched};
use cats_papers::lock::mrqd::{Delegation, Mrqd};
use cats_papers::lock::TableLock;

type Lock = Mrqd<Watched>;

crate::models!(Lock, 3, 3, 2);

fn run(value: &mut Watched, words: &[u64]) {
    value.add(words[0]);
}

fn detach(lock: &Lock, amount: u64) {
    // SAFETY: any thread may run it.
    patiently(|| unsafe { lock.detach(run, &[amount]) });
}

fn get(lock: &Lock) -> u64 {
    patiently(|| lock.read(|value| value.get()))
}

fn detach_and_read(lock: &Lock) {
    detach(lock, 10);
    assert!(get(lock) >= 10, "a thread sees what it has detached");
}

#[test]
fn a_thread_reads_what_it_has_detached() {
    let both = |lock: &Lock| assert_eq!(get(lock), 11);
    all(3, make::<Lock>, &[detach_and_read, write::<Lock>], both);
    all(3, make::<Lock>, &[write::<Lock>, detach_and_read], both);
}

#[test]
fn what_is_detached_twice_is_done_in_order() {
    fn set(value: &mut Watched, words: &[u64]) {
        let now = value.get();
        value.add(words[0].wrapping_sub(now));
    }
    fn twice(lock: &Lock) {
        // SAFETY: any thread may run it.
        patiently(|| unsafe { lock.detach(set, &[1]) });
        // SAFETY: as above.
        patiently(|| unsafe { lock.detach(set, &[2]) });
        assert_eq!(get(lock), 2);
    }
    fn nothing(lock: &Lock) {
        patiently(|| lock.write(|value| value.add(0)));
    }
    all(2, make::<Lock>, &[twice, nothing], |_| ());
    all(2, make::<Lock>, &[nothing, twice], |_| ());
}

#[test]
fn a_reader_meets_one_that_detaches_and_one_that_helps() {
    all(
        2,
        make::<Lock>,
        &[write::<Lock>, |lock| detach(lock, 1), read::<Lock>],
        |lock| assert_eq!(get(lock), 2),
    );
}

#[test]
fn arguments_on_the_heap_are_freed_by_who_runs_them() {
    fn boxed() -> Lock {
        Mrqd::with_delegation(Watched::new(), 2, Delegation::Malloc)
    }
    all(3, boxed, &[detach_and_read, write::<Lock>], |lock| {
        assert_eq!(get(lock), 11)
    });
}

/// A section may change what its caller has lent it. The change is complete when the call returns.
#[test]
fn a_caller_sees_what_was_done_for_it() {
    type Shared = (Lock, [Watched; 2]);
    fn lend((lock, own): &Shared, i: usize) {
        patiently(|| {
            lock.write(|value| {
                value.add(1);
                own[i].add(1)
            })
        });
        own[i].add(1);
    }
    let make = || (make::<Lock>(), [Watched::new(), Watched::new()]);
    all(
        3,
        make,
        &[|shared| lend(shared, 0), |shared| lend(shared, 1)],
        |shared| {
            assert_eq!(get(&shared.0), 2);
        },
    );
}
