//! Models under shuttle: tasks that share a table, run in many random schedules.

use cats_sync::epoch::collect;
use std::sync::Arc;

/// Schedules for each model, with each of two strategies.
const SCHEDULES: usize = 1000;

/// Runs the model under random schedules, and under schedules with few preemptions.
pub fn explore(model: impl Fn() + Clone + Send + Sync + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

/// Runs the tasks concurrently.
pub fn together<T: Send + Sync + 'static>(table: &Arc<T>, tasks: &[fn(&T)]) {
    let threads: Vec<_> = tasks
        .iter()
        .map(|&task| {
            let table = table.clone();
            shuttle::thread::spawn(move || {
                task(&table);
                // Frees what left the structure as soon as possible.
                collect(10);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}
