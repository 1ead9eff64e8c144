//! Models of the instant of a snapshot, whose code is that of `native/table/src/history/instant.rs`: its taker, others that close it, and
//! writers of two tables. Run by `make test-models`.
//!
//! A table is a word that tells whether it has a node, and the number of writes. For a writer, the instant is before or after its writes.
//! Sizes that are noted at the instant must be the number of writes before it.
#![cfg(loom)]

#[path = "../../table/src/history/instant.rs"]
#[allow(dead_code)]
mod instant;

mod history {
    use super::Table;
    use cats_sync::epoch::Guard;
    use cats_sync::facade::Ordering;
    use loom::sync::Arc;

    /// The node of a table.
    #[derive(Debug)]
    pub struct Node(pub Arc<[Table; 2]>, pub usize);

    impl Node {
        pub fn note_size(&self, _guard: &Guard, _time: u64) {
            let table = &self.0[self.1];
            // Relaxed: as in a table.
            let size = table.size.load(Ordering::Relaxed);
            table.noted.store(size, Ordering::Relaxed);
        }
    }
}

use cats_sync::epoch::pin;
use cats_sync::facade::{AtomicBool, AtomicUsize, Ordering};
use cats_sync::Busy;
use history::Node;
use instant::{Entry, Instant};
use loom::sync::Arc;
use loom::thread;

#[derive(Debug)]
pub struct Table {
    has_node: AtomicBool,
    size: AtomicUsize,
    noted: AtomicUsize,
    /// Writes before the instant, as writers see it.
    before: AtomicUsize,
}

struct World {
    tables: Arc<[Table; 2]>,
    nodes: [std::sync::Arc<Node>; 2],
    instant: Instant,
    /// The checker does not know that whoever finds the `OnceLock` of the instant set sees what was done before.
    begun: AtomicBool,
}

type Task = fn(&World);

fn world() -> World {
    let table = || Table {
        has_node: AtomicBool::new(false),
        size: AtomicUsize::new(0),
        noted: AtomicUsize::new(0),
        before: AtomicUsize::new(0),
    };
    let tables = Arc::new([table(), table()]);
    World {
        nodes: [0, 1].map(|number| std::sync::Arc::new(Node(tables.clone(), number))),
        tables,
        instant: Instant::default(),
        begun: AtomicBool::new(false),
    }
}

/// Puts a node into each table.
fn put_nodes(world: &World) {
    for table in world.tables.iter() {
        table.has_node.store(true, Ordering::Release);
    }
    world.instant.begin(world.nodes.iter());
    world.begun.store(true, Ordering::Release);
}

/// What writes after it is behind the instant.
fn close(world: &World) {
    if world.begun.load(Ordering::Acquire) && world.instant.close() == Ok(true) {
        assert!(!write(world, &[1, 0]), "a write after the instant");
    }
}

fn take(world: &World) {
    put_nodes(world);
    close(world);
}

fn take_patiently(world: &World) {
    put_nodes(world);
    close(world);
    close(world);
}

fn cancel(world: &World) {
    put_nodes(world);
    world.instant.cancel();
}

/// Writes to these tables as a transaction does. Returns whether that was before the instant.
fn write(world: &World, tables: &[usize]) -> bool {
    let _guard = pin();
    let mut inside = Vec::new();
    let mut after = Vec::new();
    for &number in tables {
        let table = &world.tables[number];
        let entry = match table.has_node.load(Ordering::Acquire) {
            true => world.instant.enter(),
            false => Ok(Entry::Never),
        };
        match entry {
            Ok(Entry::Past) => after.push(number),
            Ok(Entry::Before(value)) => inside.push(value),
            Ok(Entry::Never) => (),
            Err(Busy) => return false,
        }
    }
    assert!(
        after.is_empty() || after.len() == tables.len(),
        "one side of the instant"
    );
    for &number in tables {
        let table = &world.tables[number];
        table.size.fetch_add(1, Ordering::Relaxed);
        if after.is_empty() {
            table.before.fetch_add(1, Ordering::Relaxed);
        }
    }
    after.is_empty()
}

fn write_one(world: &World) {
    write(world, &[1]);
}

fn write_both(world: &World) {
    write(world, &[0, 1]);
}

fn write_twice(world: &World) {
    write(world, &[0]);
    write(world, &[0]);
}

/// Runs the tasks concurrently. The last one is that of the first thread.
fn model(preemptions: usize, begin: Task, tasks: &'static [Task]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || {
        let world = Arc::new(world());
        begin(&world);
        let (last, others) = tasks.split_last().expect("a task");
        let threads: Vec<_> = others
            .iter()
            .map(|task| {
                let world = world.clone();
                thread::spawn(move || task(&world))
            })
            .collect();
        last(&world);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        if world.instant.is_open() {
            assert_eq!(world.instant.close(), Ok(true), "nobody is inside");
        }
        for table in world.tables.iter().filter(|_| world.instant.is_past()) {
            let [noted, before] = [&table.noted, &table.before].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(noted, before, "the size at the instant");
        }
    });
}

/// Preemptions where three threads change the state. `make check` sets THOROUGH; then there is one more, which takes some fifty times as long.
fn of_three_at_the_state() -> usize {
    1 + usize::from(std::env::var_os("THOROUGH").is_some())
}

const NOTHING: Task = |_| ();

#[test]
fn a_writer_of_both_tables() {
    model(3, NOTHING, &[write_both, take]);
    model(3, NOTHING, &[take, write_both]);
}

#[test]
fn a_writer_between_attempts_to_close() {
    model(3, put_nodes, &[write_twice, take_patiently]);
}

#[test]
fn two_writers() {
    model(2, NOTHING, &[write_both, write_one, take]);
}

#[test]
fn another_one_closes() {
    model(of_three_at_the_state(), NOTHING, &[write_both, close, take]);
    model(of_three_at_the_state(), put_nodes, &[write_both, close, close]);
}

#[test]
fn another_one_closes_what_is_cancelled() {
    model(2, NOTHING, &[write_both, close, cancel]);
}
