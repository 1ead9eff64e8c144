//! Models of hazard pointers, checked exhaustively under the weak memory model, up to a bound on preemptions. Run by
//! `RUSTFLAGS="--cfg loom" cargo test --release -p cats-papers --test hazard_model`.
#![cfg(loom)]

use cats_papers::hazard::{Hazards, Link, Retired};
use cats_sync::epoch::{pin, Guard};
use cats_sync::facade::{AtomicBool, AtomicPtr, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::ptr;

/// Mistakes of a reader. The models must detect each.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// It does not read the source again after announcing.
    NoSecondLook,
    /// It does not check whether the node on which it stands has been removed.
    NoDeadCheck,
    /// It checks that before announcing the next node.
    EarlyDeadCheck,
    /// It withdraws an announcement before its last access.
    EarlyWithdrawal,
}

/// A node of a list. As in the skip list, a removed node keeps its links.
#[repr(C)]
struct Node {
    link: Link,
    next: AtomicPtr<Node>,
    dead: AtomicBool,
    /// Stands for memory: loom reports an access that is not ordered with the free.
    alive: UnsafeCell<bool>,
}

// SAFETY: loom checks the accesses.
unsafe impl Sync for Node {}
// SAFETY: as above.
unsafe impl Send for Node {}

impl Node {
    fn new() -> Self {
        Self {
            link: Link::new(),
            next: AtomicPtr::new(ptr::null_mut()),
            dead: AtomicBool::new(false),
            alive: UnsafeCell::new(true),
        }
    }

    fn address(&self) -> *mut Node {
        ptr::from_ref(self).cast_mut()
    }

    fn alive(&self) -> bool {
        // SAFETY: loom checks the accesses.
        self.alive.with(|alive| unsafe { *alive })
    }
}

fn free(node: *mut Link) {
    // SAFETY: the models retire nodes that outlive them.
    let node = unsafe { &*node.cast::<Node>() };
    // SAFETY: loom checks the accesses.
    node.alive
        .with_mut(|alive| assert!(unsafe { alive.replace(false) }, "freed twice"));
}

/// `nodes[0]`, the head, links to `nodes[1]`, and that to `nodes[2]`. The last node is in no list.
struct List {
    nodes: [Node; 4],
    retired: Retired,
    mistake: Mistake,
}

impl List {
    fn new(mistake: Mistake) -> Arc<Self> {
        let list = Arc::new(Self {
            nodes: std::array::from_fn(|_| Node::new()),
            retired: Retired::default(),
            mistake,
        });
        let [head, first, second, _] = &list.nodes;
        head.next.store(first.address(), Ordering::Relaxed);
        first.next.store(second.address(), Ordering::Relaxed);
        list
    }

    /// The node behind `pred`, protected. `None` at the end, or if `pred` was removed.
    fn follow(&self, hazards: &Hazards<'_>, pred: &Node, slot: usize) -> Option<&Node> {
        if self.mistake == Mistake::EarlyDeadCheck && pred.dead.load(Ordering::Acquire) {
            return None;
        }
        let next = if self.mistake == Mistake::NoSecondLook {
            let next = pred.next.load(Ordering::Acquire);
            hazards.announce(slot, next);
            next
        } else {
            hazards.protect(slot, &pred.next)
        };
        let checking = !matches!(self.mistake, Mistake::NoDeadCheck | Mistake::EarlyDeadCheck);
        if checking && pred.dead.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the nodes outlive the model.
        unsafe { next.as_ref() }
    }

    /// Walks to the end of the list.
    fn walk(&self, guard: &Guard) {
        let hazards = Hazards::new(guard);
        let mut at = &self.nodes[0];
        let mut slot = 0;
        while let Some(next) = self.follow(&hazards, at, slot) {
            if self.mistake == Mistake::EarlyWithdrawal {
                hazards.announce(slot, ptr::null_mut::<Node>());
            }
            assert!(next.alive(), "read after free");
            at = next;
            slot = 1 - slot;
        }
    }

    /// Accesses the first node twice, announcing it in one slot.
    fn look_twice(&self, guard: &Guard) {
        let hazards = Hazards::new(guard);
        for _ in 0..2 {
            if let Some(first) = self.follow(&hazards, &self.nodes[0], 0) {
                assert!(first.alive(), "read after free");
            }
        }
    }

    /// Removes the first node.
    fn remove_first(&self) {
        let head = &self.nodes[0];
        // SAFETY: the nodes outlive the model. Relaxed: only one thread removes nodes.
        let Some(first) = (unsafe { head.next.load(Ordering::Relaxed).as_ref() }) else {
            return;
        };
        first.dead.store(true, Ordering::Release);
        head.next.store(first.next.load(Ordering::Relaxed), Ordering::Release);
        self.retire(first);
    }

    fn retire(&self, node: &Node) {
        // SAFETY: unlinked, and retired once. `free` does not free its memory.
        unsafe { self.retired.retire(node.address().cast(), free) };
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    check_within(3, model);
}

fn check_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// Preemptions beside two removals: they find each mistake. `make check` sets THOROUGH; then there is one more, which takes ten times as
/// long.
fn beside(removals: usize) -> usize {
    if removals == 1 || std::env::var_os("THOROUGH").is_some() {
        3
    } else {
        2
    }
}

fn walk_while_nodes_are_removed(mistake: Mistake, removals: usize) {
    for walker_first in [true, false] {
        check_within(beside(removals), move || {
            let list = List::new(mistake);
            let walk = |list: &List| list.walk(&pin());
            let remove = move |list: &List| {
                let guard = pin();
                (0..removals).for_each(|_| list.remove_first());
                // Objects that were kept postpone the next reclamation. This causes another one.
                list.retire(&list.nodes[3]);
                drop(guard);
            };
            let other = {
                let list = list.clone();
                thread::spawn(move || if walker_first { remove(&list) } else { walk(&list) })
            };
            if walker_first {
                walk(&list);
            } else {
                remove(&list);
            }
            other.join().unwrap();
        });
    }
}

#[test]
fn a_protected_node_is_not_freed() {
    walk_while_nodes_are_removed(Mistake::None, 1);
}

#[test]
fn neighbours_can_be_removed_under_a_walk() {
    walk_while_nodes_are_removed(Mistake::None, 2);
}

/// The reader starts. The fault of a slot that is stored with Relaxed then needs one thread switch less.
#[test]
fn a_slot_can_be_used_again() {
    check(|| {
        let list = List::new(Mistake::None);
        let other = {
            let list = list.clone();
            thread::spawn(move || {
                let guard = pin();
                list.remove_first();
                list.retire(&list.nodes[3]);
                drop(guard);
            })
        };
        list.look_twice(&pin());
        other.join().unwrap();
    });
}

/// What one thread has announced, the other does not free. Nothing gets lost, and nothing is freed twice.
#[test]
fn two_threads_retire_to_one_list() {
    check(|| {
        let list = List::new(Mistake::None);
        let other = {
            let list = list.clone();
            thread::spawn(move || {
                let guard = pin();
                let hazards = Hazards::new(&guard);
                hazards.announce(0, list.nodes[2].address());
                drop(hazards);
                list.retire(&list.nodes[1]);
            })
        };
        let guard = pin();
        list.retire(&list.nodes[2]);
        other.join().unwrap();
        list.retire(&list.nodes[3]);
        drop(guard);
        let left = list.nodes[1..].iter().filter(|node| node.alive()).count();
        assert_eq!(left, list.retired.len());
        assert!(left <= 2);
    });
}

#[test]
#[should_panic]
fn a_reader_must_look_twice() {
    walk_while_nodes_are_removed(Mistake::NoSecondLook, 1);
}

#[test]
#[should_panic]
fn a_walk_must_ask_whether_its_node_is_dead() {
    walk_while_nodes_are_removed(Mistake::NoDeadCheck, 2);
}

#[test]
#[should_panic]
fn a_walk_must_ask_that_after_announcing() {
    walk_while_nodes_are_removed(Mistake::EarlyDeadCheck, 2);
}

#[test]
#[should_panic]
fn an_announcement_must_outlast_the_reading() {
    walk_while_nodes_are_removed(Mistake::EarlyWithdrawal, 1);
}
