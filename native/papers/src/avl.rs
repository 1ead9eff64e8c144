//! `avl`: an AVL tree behind one lock, like `ordered_set` of ETS.
//!
//! Source: Klaftenegger, Sagonas, Winblad, "On the Scalability of the Erlang Term Storage", Erlang 2013: section 2 for
//! the structure, sections 5.1.3 and 5.3 for the static stack. The lock is any of [`crate::lock`].
//!
//! With a *static stack* a search leaves its path on a stack that belongs to the table, unless another thread is using
//! it. Then a step from the last found key need not search. But all readers write that stack, and the resulting
//! contention is the bottleneck that the paper found.
//!
//! All operations of the traits are linearizable, with two exceptions. A call of `scan` is linearizable range by range,
//! and `slot` is not linearizable.

use crate::detaching::{Detached, Detaching};
use crate::eventful::Eventful;
use crate::lock::{AnyLock, TableLock};
use crate::sequential::{Avl as Balanced, Descent, Tree, NODE};
use crate::shared::by_range::{self, Position};
use crate::shared::single::{self, Single};
use cats_engine::config::Config;
use cats_engine::{Busy, Engine, Entry, Locked, OrderedEngine, OrderedSchema, Range, Step};
use cats_sync::epoch::Guard;
use cats_sync::events::Events;
use cats_sync::facade::{AtomicBool, AtomicI64, Ordering::*};
use std::cell::UnsafeCell;

/// See the module's documentation.
pub struct Avl<S> {
    lock: AnyLock<Contents>,
    schema: S,
    /// The number of entries: a statistic, changed under the lock.
    count: AtomicI64,
    events: Events,
}

pub(crate) struct Contents {
    tree: Tree<Balanced>,
    stack: Option<Stack>,
}

/// A stack that searches leave for later ones, in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Stack {
    busy: AtomicBool,
    place: UnsafeCell<Descent>,
}

// SAFETY: only the thread that set `busy`, or a thread with exclusive access, uses the stack.
unsafe impl Sync for Stack {}

impl Stack {
    /// Lends the stack, or a fresh one if it is in use.
    fn with<R>(&self, search: impl FnOnce(&mut Descent) -> R) -> R {
        // Acquire pairs with the Release below: this thread sees the stack as its last user left it.
        if self.busy.swap(true, Acquire) {
            return search(&mut Descent::default());
        }
        // SAFETY: this thread set `busy`, and a writer with exclusive access cannot run beside readers.
        let result = search(unsafe { &mut *self.place.get() });
        // Release pairs with the Acquire above.
        self.busy.store(false, Release);
        result
    }
}

impl Contents {
    #[inline]
    fn find<S: OrderedSchema>(&self, schema: &S, probe: &S::Probe) -> Option<Entry> {
        match &self.stack {
            None => self.tree.find(schema, probe),
            Some(stack) => stack.with(|place| {
                let order = self.tree.seek(place, schema, probe);
                place.entry().filter(|_| order.is_some_and(|order| order.is_eq()))
            }),
        }
    }

    /// The entry next to a key.
    fn step<S: OrderedSchema>(&self, schema: &S, from: &S::Probe, down: bool) -> Option<Entry> {
        match &self.stack {
            None => self.tree.entries(schema, Some((from, false)), down).next(),
            Some(stack) => stack.with(|place| {
                // SAFETY: the entry is in the table.
                let here = |at| unsafe { schema.compare(from, at) }.is_eq();
                if place.entry().is_some_and(here) {
                    place.step(down);
                } else {
                    self.tree.from(place, schema, from, false, down);
                }
                place.entry()
            }),
        }
    }

    fn update<S: OrderedSchema, R>(
        &mut self,
        schema: &S,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> (R, i64) {
        let (result, more) = self.tree.update(schema, probe, change);
        if let (Some(stack), true) = (&mut self.stack, more != 0) {
            stack.place.get_mut().clear();
        }
        (result, more)
    }
}

impl<S: OrderedSchema> Avl<S> {
    /// An empty table with the configured lock, and with a static stack if configured. `None` when memory is exhausted.
    pub fn new(schema: S, config: &Config) -> Option<Self> {
        let contents = Contents {
            tree: Tree::default(),
            stack: config.static_stack.then(Stack::default),
        };
        Some(Self {
            lock: AnyLock::configured(config, contents),
            schema,
            count: AtomicI64::new(0),
            events: Events::default(),
        })
    }

    fn add(&self, more: i64) {
        if more != 0 {
            // Relaxed: a statistic, written under the lock.
            self.count.store(self.count.load(Relaxed) + more, Relaxed);
        }
    }

    fn neighbour<R>(
        &self,
        from: Option<&S::Probe>,
        down: bool,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.lock.read_here(|contents| {
            look(match from {
                Some(from) => contents.step(&self.schema, from, down),
                None => contents.tree.entries(&self.schema, None, down).next(),
            })
        })
    }
}

impl<S: OrderedSchema> Single for Avl<S> {
    type Contents = Contents;

    fn lock(&self) -> &AnyLock<Contents> {
        &self.lock
    }

    fn step_at(&self, contents: &mut Contents, at: Entry, step: Step) -> Option<Entry> {
        // SAFETY: the entry belongs to this step, and is alive.
        let key = unsafe { self.schema.own(at) };
        let (old, more) = contents.update(&self.schema, self.schema.probe(&key), |old| (step, old));
        self.add(more);
        old
    }
}

impl<S> Eventful for Avl<S> {
    fn events(&self) -> &Events {
        &self.events
    }
}

impl<S: OrderedSchema> Detaching for Avl<S> {
    #[inline]
    fn detaches(&self) -> bool {
        self.lock.detaches()
    }

    unsafe fn detach(&self, _: &Guard, update: Detached) -> Result<(), Busy> {
        // SAFETY: the caller's promise.
        unsafe { single::detach(self, update) }
    }
}

impl<S: OrderedSchema> Engine<S> for Avl<S> {
    type Cursor = Position<S::Key>;

    fn read<R>(&self, _: &Guard, probe: &S::Probe, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        single::read(&self.lock, |contents| look(contents.find(&self.schema, probe)))
    }

    fn update<R>(
        &self,
        _: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        single::write(&self.lock, |contents| {
            let (result, more) = contents.update(&self.schema, probe, change);
            self.add(more);
            result
        })
    }

    fn update_many<R>(
        &self,
        _: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        self.lock.write_here(|contents| {
            change(&mut Many {
                table: self,
                contents,
                probes,
            })
        })
    }

    /// In ascending order.
    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position<S::Key>,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        by_range::scan(self, &self.schema, guard, cursor, limit, out, expand)
    }

    fn next<R>(&self, _: &Guard, after: Option<&S::Probe>, look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        self.neighbour(after, false, look)
    }

    fn buckets(&self) -> usize {
        0
    }

    /// O(n).
    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        by_range::slot(self, &self.schema, guard, number, expand)
    }

    fn bytes(&self) -> usize {
        // Relaxed: a statistic.
        size_of::<Self>() + usize::try_from(self.count.load(Relaxed)).unwrap_or(0) * NODE
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        let contents = self.lock.get_mut();
        contents.stack = None;
        contents.tree.dismantle(limit, free);
        contents.tree.is_empty()
    }
}

impl<S: OrderedSchema> OrderedEngine<S> for Avl<S> {
    fn prev<R>(&self, _: &Guard, before: Option<&S::Probe>, look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        self.neighbour(before, true, look)
    }

    fn range<T>(
        &self,
        _: &Guard,
        range: Range<'_, S::Probe>,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.lock.read_here(|contents| {
            let mut entries = contents.tree.entries(&self.schema, range.from, range.down);
            for entry in entries.by_ref().take(limit.max(1)) {
                // SAFETY: the entry is in the tree, which is locked.
                if !unsafe { range.has(&self.schema, entry) } {
                    return false;
                }
                expand(entry, out);
            }
            !entries.is_at_end()
        })
    }

    /// The table has no base nodes.
    fn base_nodes(&self) -> usize {
        0
    }
}

/// The keys of one operation, in the locked tree.
struct Many<'a, S: OrderedSchema> {
    table: &'a Avl<S>,
    contents: &'a mut Contents,
    probes: &'a [&'a S::Probe],
}

impl<S: OrderedSchema> Locked for Many<'_, S> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.contents.tree.find(&self.table.schema, self.probes[i])
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let probe = self.probes[i];
        let (_, more) = self.contents.update(&self.table.schema, probe, |old| (change(old), ()));
        self.table.add(more);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use cats_engine::config::{Delegate, LockName};
    use cats_engine::testing::conformance::{Map, Random, TestKey, TestSchema};
    use cats_sync::epoch;
    use std::collections::BTreeSet;

    fn config(lock: LockName, static_stack: bool) -> Config {
        Config {
            lock,
            static_stack,
            read_concurrency: static_stack,
            ..Config::default()
        }
    }

    fn make(config: Config) -> Avl<TestSchema> {
        Avl::new(TestSchema, &config).expect("memory")
    }

    macro_rules! conformance {
        ($($name:ident: $make:expr;)*) => {
            $(
                mod $name {
                    use super::*;
                    // One type for all configurations, so that the suite is compiled once.
                    const MAKE: &dyn Fn() -> Avl<TestSchema> = &|| make($make);
                    cats_engine::testing::conformance::suite!(MAKE, crate::testing::leave(&MAKE()));
                    cats_engine::testing::conformance::ordered_suite!(MAKE);
                    #[test]
                    fn detached_steps_are_seen() {
                        crate::testing::detached_steps_are_seen(MAKE)
                    }
                }
            )*
        };
    }

    conformance! {
        rw: config(LockName::Rw, false);
        static_stack: config(LockName::Rw, true);
        dr_mcs: config(LockName::DrMcs, false);
        cc_synch: config(LockName::CcSynch, false);
        mrqd: config(LockName::Mrqd, false);
        mrqd_wait: Config { delegate: Delegate::Wait, ..config(LockName::Mrqd, true) };
        ets_pointer: config(LockName::EtsPointer, true);
    }

    /// Walks up and down over a static stack, disturbed by lookups and changes of other keys.
    #[test]
    fn steps_from_a_static_stack_go_to_the_neighbours() {
        let map = Map(make(config(LockName::Rw, true)));
        let (mut model, mut random) = (BTreeSet::new(), Random(3));
        let guard = epoch::pin();
        let number =
            |e: Option<Entry>| e.map(|e| cats_engine::testing::conformance::decode(e).expect("a whole entry").0);
        let mut at = 0;
        for _ in 0..100_000 {
            let n = random.below(300);
            match random.below(8) {
                0 => {
                    map.put(n, 1);
                    model.insert(n);
                }
                1 => {
                    map.remove(n);
                    model.remove(&n);
                }
                2 => assert_eq!(map.get(n).is_some(), model.contains(&n)),
                3 => at = n,
                4 | 5 => {
                    let next = map.0.next(&guard, Some(&TestKey::new(at)), number).expect("not busy");
                    assert_eq!(next, model.range(at + 1..).next().copied());
                    at = next.unwrap_or(0);
                }
                _ => {
                    let previous = map.0.prev(&guard, Some(&TestKey::new(at)), number).expect("not busy");
                    assert_eq!(previous, model.range(..at).next_back().copied());
                    at = previous.unwrap_or(300);
                }
            }
        }
    }
}
