//! Taking a snapshot.

use super::*;
use cats_sync::facade::spin_loop;
use cats_table::{begin_snapshot, finish_snapshot, is_snapshot_of, Begun};

/// Most tables whose snapshot a scheduler takes.
const TABLES_LIMIT: usize = 200;

/// How often the first call tries to finish, and how long it spins after each attempt. Other calls take some microseconds, so it mostly
/// succeeds.
const ATTEMPTS: usize = 10;
const SPINS: usize = 50;

/// Takes a snapshot of a list of tables: `[Snapshot]`, or `again` if it must be called again. Returns `{wait, [Snapshot]}` if it must wait.
/// Then [`finish`] is to be called.
pub fn snapshot(env: Env, &[tables]: &[Term; 1]) -> Result<Term, Failure> {
    let begun = {
        let guard = pin();
        let mut sources = Vec::new();
        let mut rest = tables;
        while let Some((table, tail)) = env.cell(rest) {
            sources.push(find(env, &guard, table, READ)?);
            rest = tail;
        }
        if rest.0 != NIL {
            return Err(bad());
        }
        if sources.len() > TABLES_LIMIT && !on_dirty_scheduler() {
            return Err(Failure::Big);
        }
        begin_snapshot(&guard, &sources)?
    };
    let taken = match begun {
        Begun::Taken(taken) => taken,
        Begun::Beside(other) => {
            other.finish()?;
            return Ok(atoms::again());
        }
    };
    let taken: Vec<Owned<Table>> = taken.into_iter().map(|table| TABLES.own(table)).collect();
    let references: Vec<Term> = taken.iter().map(|table| table.reference(env)).collect();
    let references = env.list(&references);
    let snapshots: Vec<&Table> = taken.iter().map(|table| &**table).collect();
    for _ in 0..ATTEMPTS {
        match finish_snapshot(&snapshots) {
            Err(cats_table::Failure::Busy) => (0..SPINS).for_each(|_| spin_loop()),
            finished => return result(env, finished?, tables, references, &snapshots),
        }
    }
    Ok(env.tuple(&[atoms::wait(), references]))
}

/// Finishes a snapshot. Raises `busy` while it must wait. Otherwise returns as [`snapshot`].
pub fn finish(env: Env, &[tables, references]: &[Term; 2]) -> Result<Term, Failure> {
    let mut snapshots = Vec::new();
    let mut rest = references;
    while let Some((table, tail)) = env.cell(rest) {
        let table = TABLES.get(env, table).filter(|table| table.is_snapshot());
        snapshots.push(table.ok_or_else(bad)?);
        rest = tail;
    }
    result(env, finish_snapshot(&snapshots)?, tables, references, &snapshots)
}

/// The snapshots, if they are `finished` and all tables still have the contents that they are of. Otherwise `again`.
fn result(env: Env, finished: bool, tables: Term, references: Term, snapshots: &[&Table]) -> Result<Term, Failure> {
    if !finished {
        return Ok(atoms::again());
    }
    let guard = pin();
    let mut rest = tables;
    for snapshot in snapshots {
        let (table, tail) = env.cell(rest).ok_or_else(bad)?;
        if !is_snapshot_of(snapshot, find(env, &guard, table, READ)?) {
            return Ok(atoms::again());
        }
        rest = tail;
    }
    Ok(references)
}
