//! Taking a snapshot.
//!
//! 1. A node is put into the history of each table. From now on, whoever begins to write sees it.
//! 2. The guards that were there before end. Then no writer is left that has not seen the node.
//! 3. The instant [closes](crate::history::instant).
//!
//! A table may have been deleted or emptied meanwhile. Then the snapshot is given up, and the caller starts over.

use super::Snapshot;
use crate::failure::{Cause, Failure};
use crate::history::instant::Instant;
use crate::history::{attach, Attached, Form};
use crate::table::{Handle, Table};
use cats_sync::epoch::Guard;
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, OnceLock};

/// A snapshot that was begun, or could not begin yet.
pub enum Begun {
    /// A table for each of the tables. They must not be used before [`Beginning::finish`] has returned true. If they are dropped, the
    /// snapshot is given up.
    Taken(Beginning, Vec<Table>),
    /// Another snapshot of one of the tables begins.
    Beside(Other),
}

/// A snapshot that somebody else has begun.
pub struct Other(Arc<Instant>);

impl Other {
    /// Finishes it in the place of its taker. Fails with [`Failure::Busy`] as [`Beginning::finish`] does. The caller has no guard.
    pub fn finish(&self) -> Result<(), Failure> {
        Ok(self.0.close().map(|_| ())?)
    }
}

/// Begins a snapshot of these tables, for each of which the caller has the right to read.
pub fn begin(guard: &Guard, sources: &[Handle<'_>]) -> Result<Begun, Failure> {
    let instant = Arc::new(Instant::default());
    let mut snapshots = Vec::with_capacity(sources.len());
    for source in sources {
        let table = source.table();
        let engine = table.options().engine();
        if table.is_snapshot() {
            return Err(Cause::Snapshot.into());
        }
        if !engine.has_snapshots() {
            return Err(Cause::NoSnapshots.into());
        }
        // Contents that tables share have no history.
        if table.is_blank() {
            table.furnish()?;
        }
        let form = Form {
            engine,
            key: table.key(),
            ordered: source.store().is_ordered(),
            leased: table.options().leased(),
            limit: table.snapshot_limit(),
        };
        let store = source.store();
        let node = match attach(guard, store, form, &instant)? {
            Attached::Done(node) => node,
            Attached::Beside(other) => return Ok(Begun::Beside(Other(other))),
            Attached::NoMemory => return Err(Failure::NoMemory),
        };
        let snapshot = Box::new(Snapshot::new(node));
        snapshots.push(Table::of_snapshot(table, snapshot).ok_or(Failure::NoMemory)?);
    }
    let taken = snapshots.iter().filter_map(of_table);
    instant.begin(taken.map(|snapshot| &snapshot.node));
    let beginning = Beginning {
        instant,
        sized: OnceLock::new(),
    };
    Ok(Begun::Taken(beginning, snapshots))
}

/// What is left to do for a snapshot that was begun.
pub struct Beginning {
    instant: Arc<Instant>,
    /// Whether the snapshots know their sizes.
    sized: OnceLock<()>,
}

impl Beginning {
    /// Finishes the snapshot, which is these tables. Fails with [`Failure::Busy`] while somebody still writes as if there were none.
    /// Returns false if it was given up. The caller has no guard. More than one call makes no difference.
    pub fn finish(&self, snapshots: &[impl Deref<Target = Table>]) -> Result<bool, Failure> {
        if snapshots.is_empty() {
            return Ok(true);
        }
        let finished = self.instant.close()?;
        if finished {
            self.sized
                .get_or_init(|| snapshots.iter().for_each(|snapshot| snapshot.set_snapshot_size()));
        }
        Ok(finished)
    }
}

/// The snapshot that a table is.
fn of_table(table: &Table) -> Option<&Snapshot> {
    Snapshot::behind(table.snapshot()?)
}

/// Whether a snapshot that is finished is one of the present contents of a table. Otherwise the table was emptied, and perhaps before the
/// instant.
pub fn is_of(snapshot: &Table, source: Handle<'_>) -> bool {
    let live = of_table(snapshot).and_then(|snapshot| snapshot.node.live(source.guard()));
    live.is_some_and(|live| !source.table().is_dead() && ptr::eq(live, source.store()))
}
