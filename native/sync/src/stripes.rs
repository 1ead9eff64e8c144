//! Striped counters, with a cache line for each group of threads: many threads can change them without contention, and
//! reads are exact.
//!
//! Each stripe holds words that only grow. If two collects of all stripes are equal, nothing changed between them, and
//! the sum is the value at that instant. If writers leave no such instant, the readers take a snapshot: Sela, Petrank,
//! "Concurrent size", OOPSLA 2022. While a snapshot is being collected, each writer forwards the value that it has just
//! written. So when the snapshot closes, it has every change that was complete by then. No thread waits for another.
//!
//! A change is counted at some instant during its [`add`](Stripes::add). If the sum must agree with what other
//! operations see of the change, call `add` inside the critical section of the change.

use crate::cache_line::CacheLine;
use crate::epoch::{pin, slot_index, Guard};
use crate::facade::{store_load_fence, AtomicI64, AtomicPtr, AtomicU64, Ordering};
use crate::slab::{self, Own};
use std::ptr;
use std::sync::OnceLock;

/// How many double collects are tried before a snapshot is taken.
const ROUNDS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 4 };
/// The largest number of stripes.
const MAX_STRIPES: usize = 64;

#[derive(Debug)]
struct Pair {
    added: AtomicU64,
    removed: AtomicU64,
}

/// The share of `N` counters that one group of threads writes.
#[derive(Debug)]
struct Stripe<const N: usize>([Pair; N], CacheLine);

/// A snapshot of one counter while it is being collected. It has two cells for each stripe. A cell is 0, or one more
/// than the value to count.
#[derive(Debug)]
struct Snapshot {
    cells: Box<[AtomicU64]>,
    /// The common result, or `UNDECIDED`.
    sum: AtomicI64,
}

const UNDECIDED: i64 = i64::MIN;

/// `N` counters, for example of objects and bytes. See the module's documentation.
#[derive(Debug)]
pub struct Stripes<const N: usize = 1> {
    /// The values, if there are no stripes.
    plain: [AtomicI64; N],
    /// The stripes. Their number is a power of two.
    stripes: Option<Own<[Stripe<N>]>>,
    /// For each counter the snapshot that is being collected, or null.
    snapshots: [AtomicPtr<Snapshot>; N],
}

fn stripes_for_this_machine() -> usize {
    static NUMBER: OnceLock<usize> = OnceLock::new();
    let processors = || std::thread::available_parallelism().map_or(1, |number| number.get());
    *NUMBER.get_or_init(|| {
        if cfg!(any(loom, shuttle)) {
            2
        } else {
            processors().next_power_of_two().clamp(2, MAX_STRIPES)
        }
    })
}

impl<const N: usize> Default for Stripes<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Stripes<N> {
    /// Counters of value zero without stripes, for few writers. Reading one is a load.
    pub fn new() -> Self {
        Self {
            plain: std::array::from_fn(|_| AtomicI64::new(0)),
            stripes: None,
            snapshots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Counters of value zero with a stripe for each processor, at most 64, for many writers. A stripe of up to four
    /// counters is one cache line.
    pub fn striped() -> Self {
        let pair = |_| Pair {
            added: AtomicU64::new(0),
            removed: AtomicU64::new(0),
        };
        let stripes = Own::slice(stripes_for_this_machine(), || {
            Stripe(std::array::from_fn(pair), CacheLine)
        });
        Self {
            stripes: Some(slab::needed(stripes)),
            ..Self::new()
        }
    }

    /// Bytes of the stripes, without the value itself.
    pub fn stripe_bytes(&self) -> usize {
        self.stripes.as_ref().map_or(0, |stripes| size_of_val(&**stripes))
    }

    /// Adds `amount`, which may be negative, to a counter. Wait-free. Panics if there is no such counter.
    #[inline]
    pub fn add_to(&self, counter: usize, amount: i64) {
        let Some(stripes) = &self.stripes else {
            // Release pairs with the Acquire of `sum_of`: a reader of the sum sees what happened before this change.
            self.plain[counter].fetch_add(amount, Ordering::Release);
            return;
        };
        let index = slot_index() & (stripes.len() - 1);
        let pair = &stripes[index].0[counter];
        let (word, cell) = if amount >= 0 {
            (&pair.added, 2 * index)
        } else {
            (&pair.removed, 2 * index + 1)
        };
        // SeqCst, for both: a store-load pair with `join` and `collect`. Either the collector sees this change, or this
        // thread sees the snapshot and forwards the change.
        let value = word.fetch_add(amount.unsigned_abs(), Ordering::SeqCst) + amount.unsigned_abs();
        store_load_fence();
        if !self.snapshots[counter].load(Ordering::SeqCst).is_null() {
            self.forward(counter, cell, value);
        }
    }

    #[cold]
    fn forward(&self, counter: usize, cell: usize, value: u64) {
        let _guard = pin();
        // Acquire pairs with the Release in `join`: the cells are initialised. SAFETY: a snapshot is retired after it
        // was taken out of `snapshots`, so it outlives the guard.
        if let Some(snapshot) = unsafe { self.snapshots[counter].load(Ordering::SeqCst).as_ref() } {
            // If the snapshot has just closed, the forwarded value may count or not. Both are right, because the change
            // began before that and is not complete. SeqCst: see `snapshot`.
            snapshot.cells[cell].fetch_max(value + 1, Ordering::SeqCst);
        }
    }

    /// The value of a counter at one instant during the call. Lock-free; time is linear in the number of stripes.
    pub fn sum_of(&self, counter: usize) -> i64 {
        let Some(stripes) = &self.stripes else {
            // Acquire pairs with the Release of `add_to`.
            return self.plain[counter].load(Ordering::Acquire);
        };
        let mut before = Self::collect(stripes, counter);
        for _ in 0..ROUNDS {
            let after = Self::collect(stripes, counter);
            if before == after {
                return after.0.wrapping_sub(after.1) as i64;
            }
            before = after;
        }
        self.snapshot(stripes, counter)
    }

    /// The sums of all additions and of all removals. The words only grow, so equal sums mean equal words.
    fn collect(stripes: &[Stripe<N>], counter: usize) -> (u64, u64) {
        // Acquire: the loads of the second collect come after those of the first.
        let total = |sum: u64, word: &AtomicU64| sum.wrapping_add(word.load(Ordering::Acquire));
        stripes.iter().fold((0, 0), |(added, removed), stripe| {
            let pair = &stripe.0[counter];
            (total(added, &pair.added), total(removed, &pair.removed))
        })
    }

    #[cold]
    fn snapshot(&self, stripes: &[Stripe<N>], counter: usize) -> i64 {
        let guard = pin();
        let (snapshot, address) = self.join(stripes.len(), counter, &guard);
        store_load_fence();
        let words = stripes
            .iter()
            .map(|stripe| &stripe.0[counter])
            .flat_map(|pair| [&pair.added, &pair.removed]);
        for (word, cell) in words.zip(&snapshot.cells) {
            // SeqCst: see `add_to`. Only an empty cell is filled, so that a slow collector cannot change a closed
            // snapshot.
            let value = word.load(Ordering::SeqCst);
            // AcqRel, and Acquire if another collector was first: what the load of the word acquired is passed on through the cell.
            let _ = cell.compare_exchange(0, value + 1, Ordering::AcqRel, Ordering::Acquire);
        }
        // The snapshot closes. This is the instant of the result. SeqCst here, at the writers' load of the snapshot,
        // and on the cells: a store-load pair. If a writer still found it open, the changes that were complete before
        // are in the cells, which are read below.
        let closed =
            self.snapshots[counter].compare_exchange(address, ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst);
        if closed.is_ok() {
            // SAFETY: the exchange unlinked it. Only one exchange can succeed, because the address is not reused under
            // a guard.
            unsafe { guard.retire_sized(address.cast(), 0, drop_snapshot, size_of_val(&*snapshot.cells)) };
        }
        store_load_fence();
        // SeqCst: the other side of the pair for which the snapshot was closed.
        let value = |cell: &AtomicU64| cell.load(Ordering::SeqCst) - 1;
        let sum = snapshot.cells.chunks(2).fold(0_u64, |sum, pair| {
            sum.wrapping_add(value(&pair[0])).wrapping_sub(value(&pair[1]))
        }) as i64;
        // All collectors of the snapshot return the same sum, though late changes may still be forwarded. AcqRel: see
        // `add_to`.
        // Acquire, if another collector was first, pairs with its Release.
        match snapshot
            .sum
            .compare_exchange(UNDECIDED, sum, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => sum,
            Err(agreed) => agreed,
        }
    }

    /// The snapshot that is being collected, or a new one.
    fn join<'a>(&self, stripes: usize, counter: usize, _guard: &'a Guard) -> (&'a Snapshot, *mut Snapshot) {
        let current = &self.snapshots[counter];
        // SeqCst, here and below: see `add_to`. Also, Acquire pairs with the Release that published the snapshot.
        let mut address = current.load(Ordering::SeqCst);
        if address.is_null() {
            let fresh = Box::into_raw(Box::new(Snapshot {
                cells: (0..2 * stripes).map(|_| AtomicU64::new(0)).collect(),
                sum: AtomicI64::new(UNDECIDED),
            }));
            // SeqCst: as above.
            address = match current.compare_exchange(ptr::null_mut(), fresh, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => fresh,
                Err(other) => {
                    // SAFETY: made above and not published.
                    drop(unsafe { Box::from_raw(fresh) });
                    other
                }
            };
        }
        // SAFETY: linked while this thread is pinned, and retired only after it was unlinked.
        (unsafe { &*address }, address)
    }
}

unsafe fn drop_snapshot(address: *mut u8, _: usize) {
    // SAFETY: `snapshot` retires what `join` boxed.
    drop(unsafe { Box::from_raw(address.cast::<Snapshot>()) });
}

impl Stripes<1> {
    /// [`add_to`](Self::add_to) for the only counter.
    #[inline]
    pub fn add(&self, amount: i64) {
        self.add_to(0, amount);
    }

    /// [`sum_of`](Self::sum_of) for the only counter.
    pub fn sum(&self) -> i64 {
        self.sum_of(0)
    }
}

/// Run by `RUSTFLAGS="--cfg loom" cargo test --release -p cats-sync --lib`.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::facade::AtomicBool;
    use loom::sync::Arc;
    use loom::thread;

    fn removals_follow_additions(sum: fn(&Stripes) -> i64) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let shared = Arc::new((Stripes::<1>::striped(), AtomicBool::new(false)));
            // So the adder's stripe is collected before the remover's.
            slot_index();
            thread::spawn(slot_index).join().unwrap();
            let adder = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.0.add(1);
                    shared.1.store(true, Ordering::Release);
                })
            };
            let remover = {
                let shared = shared.clone();
                thread::spawn(move || {
                    if shared.1.load(Ordering::Acquire) {
                        shared.0.add(-1);
                    }
                })
            };
            let complete = shared.1.load(Ordering::Acquire);
            let value = sum(&shared.0);
            assert!(value == 0 || value == 1, "{value}");
            adder.join().unwrap();
            remover.join().unwrap();
            assert!(
                !complete || value == 1 || shared.0.sum() == 0,
                "a complete change is missing"
            );
        });
    }

    #[test]
    fn a_double_collect_has_no_removal_without_its_addition() {
        removals_follow_additions(Stripes::sum);
    }

    #[test]
    fn a_snapshot_has_no_removal_without_its_addition() {
        removals_follow_additions(|counters| counters.snapshot(counters.stripes.as_ref().unwrap(), 0));
    }
}
