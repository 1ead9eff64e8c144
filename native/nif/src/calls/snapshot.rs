//! Taking a snapshot.

use super::*;
use cats_sync::facade::spin_loop;
use cats_table::{begin_snapshot, is_snapshot_of, Begun};

/// Most tables whose snapshot a scheduler takes.
const TABLES_LIMIT: Budget = Budget(200);

/// How often the first call tries to finish, and how long it spins after each attempt. Other calls take some microseconds, so it mostly
/// succeeds.
const ATTEMPTS: usize = 10;
const SPINS: usize = 50;

/// A snapshot that must wait. Nobody has a reference to one of its tables before it is finished.
pub struct Beginning {
    rest: cats_table::Beginning,
    tables: Vec<Owned<Table>>,
}

impl Value for Beginning {
    const NAME: &'static CStr = c"beginning";
}

pub static BEGINNINGS: Kind<Beginning> = Kind::new();

/// Takes a snapshot of a list of tables: `[Snapshot]`, or `again` if it must be called again. Returns `{wait, Beginning}` if it must wait.
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
        TABLES_LIMIT.check(sources.len())?;
        begin_snapshot(&guard, &sources)?
    };
    let (rest, taken) = match begun {
        Begun::Taken(rest, taken) => (rest, taken),
        Begun::Beside(other) => {
            other.finish()?;
            return Ok(atoms::again());
        }
    };
    let beginning = Beginning {
        rest,
        tables: taken.into_iter().map(|table| TABLES.own(table)).collect(),
    };
    for _ in 0..ATTEMPTS {
        match beginning.finish(env, tables) {
            Err(Failure::Busy) => (0..SPINS).for_each(|_| spin_loop()),
            finished => return finished,
        }
    }
    Ok(env.tuple(&[atoms::wait(), BEGINNINGS.make(env, beginning)]))
}

/// Finishes a snapshot of these tables. Fails with `busy` while it must wait. Otherwise returns as [`snapshot`].
pub fn finish(env: Env, &[tables, beginning]: &[Term; 2]) -> Result<Term, Failure> {
    let beginning = BEGINNINGS.get(env, beginning).ok_or_else(bad)?;
    beginning.finish(env, tables)
}

impl Beginning {
    /// The snapshots, if they are finished and all tables still have the contents that they are of. Otherwise `again`.
    fn finish(&self, env: Env, tables: Term) -> Result<Term, Failure> {
        if !self.rest.finish(&self.tables)? {
            return Ok(atoms::again());
        }
        let guard = pin();
        let mut rest = tables;
        for snapshot in &self.tables {
            let (table, tail) = env.cell(rest).ok_or_else(bad)?;
            if !is_snapshot_of(snapshot, find(env, &guard, table, READ)?) {
                return Ok(atoms::again());
            }
            rest = tail;
        }
        let references: Vec<Term> = self.tables.iter().map(|table| table.reference(env)).collect();
        Ok(env.list(&references))
    }
}
