//! CC-Synch, with two bounds. One combiner runs only its own section and hands over each time, the other also runs
//! those of other threads. There are two threads. With three, two could spin alternately for ever under the checker.

use crate::{all, check, make, patiently, read, write, Watched};
use cats_papers::lock::cc_synch::CcSynch;
use cats_papers::lock::TableLock;
use loom::sync::Arc;
use loom::thread;

/// Hands over each time.
type Passing = CcSynch<Watched, 1>;
/// Also runs the section of the other thread.
type Combining = CcSynch<Watched, 4>;

mod passing {
    crate::models!(super::Passing, 3, 3);
}

mod combining {
    crate::models!(super::Combining, 3, 3);
}

fn get<L: TableLock<Watched>>(lock: &L) -> u64 {
    patiently(|| lock.read(|value| value.get()))
}

/// A section that must stay on its thread, among others that need not.
fn write_here(lock: &Combining) {
    let me = thread::current().id();
    patiently(|| {
        lock.write_here(|value| {
            assert_eq!(thread::current().id(), me);
            value.add(1)
        })
    });
}

#[test]
fn a_section_that_stays_on_its_thread_takes_its_turn() {
    fn mixed(lock: &Combining) {
        write_here(lock);
        write(lock);
    }
    let three = |lock: &Combining| assert_eq!(get(lock), 3);
    all(3, make::<Combining>, &[write::<Combining>, mixed], three);
    all(3, make::<Combining>, &[mixed, write::<Combining>], three);
}

/// The second round queues the nodes of the first again, while the other thread may still read them.
#[test]
fn nodes_are_used_again() {
    fn twice<L: TableLock<Watched>>(lock: &L) {
        write(lock);
        write(lock);
    }
    all(2, make::<Passing>, &[twice::<Passing>, twice::<Passing>], |lock| {
        assert_eq!(get(lock), 4)
    });
    all(
        2,
        make::<Combining>,
        &[twice::<Combining>, twice::<Combining>],
        |lock| {
            assert_eq!(get(lock), 4);
        },
    );
}

/// Each caller gets the result of its own section.
#[test]
fn results_reach_those_who_wait() {
    check(3, || {
        let lock = Arc::new(make::<Combining>());
        let take = |lock: &Combining| patiently(|| lock.write(|value| value.add(1)));
        let other = {
            let lock = lock.clone();
            thread::spawn(move || [take(&lock), take(&lock)])
        };
        read(&*lock);
        let mine = take(&lock);
        let [first, second] = other.join().unwrap();
        assert!(first < second && mine != first && mine != second && mine + first + second == 6);
    });
}
