//! The registry of all tables, and the VM as `cats_table` sees it.

use super::*;
use crate::vm::external;
use cats_table::{Host, Registry, Time};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

impl Value for Table {
    const NAME: &'static CStr = c"table";
}

/// Tables. Each is inside the resource that is its identifier.
pub static TABLES: Kind<Table> = Kind::new();

pub(super) static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Makes the registry. Called while the library is being loaded; only the first call has an effect.
pub fn prepare() -> bool {
    if REGISTRY.get().is_none() {
        let Some(registry) = Registry::new(give_up) else {
            return false;
        };
        let _ = REGISTRY.set(registry);
    }
    cats_table::set_on_scheduler(on_scheduler);
    monitor::on_down(|env, process| registry().owner_down(&Vm(env), process.0));
    true
}

/// The registry of all tables.
pub fn registry() -> &'static Registry {
    REGISTRY.get().expect("made when the library is loaded")
}

/// Drops the registry's reference to a table when neither the registry nor a reader uses it any more.
pub(super) fn give_up(table: *const Table) {
    // SAFETY: `new` gave this reference to the registry.
    drop(unsafe { Owned::from_raw(table) });
}

/// The table's identifier.
pub(super) fn identifier(env: Env, table: &Table) -> Term {
    // SAFETY: tables exist only inside resources. This reference was not taken, so it is not given up.
    let owned = ManuallyDrop::new(unsafe { Owned::from_raw(table) });
    owned.reference(env)
}

/// The table as `ets` shows it: its name if it is a named table, else its identifier.
pub(super) fn designation(env: Env, table: &Table) -> Term {
    if table.options().named() {
        Term(table.name())
    } else {
        identifier(env, table)
    }
}

/// The VM as `cats_table` sees it during one call.
pub(super) struct Vm<'a>(pub(super) Env<'a>);

impl Host for Vm<'_> {
    fn is_alive(&self, pid: u64) -> bool {
        monitor::is_alive(self.0, Term(pid))
    }

    fn watch(&self, pid: u64) -> bool {
        monitor::watch(self.0, Term(pid))
    }

    fn transfer(&self, table: &Table, from: u64, to: u64, data: &Block) {
        // Decoding a stored term fails only when memory is exhausted. Then the message is lost.
        if let Ok(data) = decode::term(self.0, data.as_ref().element(0)) {
            send_transfer(self.0, None, table, from, to, data);
        }
    }

    fn wake(&self) {
        reaper::wake();
    }

    fn may_outlive_caller(&self) -> bool {
        on_dirty_scheduler()
    }

    fn now(&self) -> Time {
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time {
            // SAFETY: no precondition on a scheduler.
            monotonic: unsafe { enif_monotonic_time(ErlNifTimeUnit::ERL_NIF_NSEC) },
            system: system.as_micros() as i64,
        }
    }
}

/// Sends `{'ETS-TRANSFER', Table, From, Data}`. The data is a term of `own`, an environment for the message alone, or else of `env`.
pub(super) fn send_transfer(env: Env, own: Option<Env>, table: &Table, from: u64, to: u64, data: Term) {
    let maker = own.unwrap_or(env);
    let message = maker.tuple(&[atoms::ets_transfer(), designation(maker, table), Term(from), data]);
    if let Some(pid) = env.local_pid(Term(to)) {
        let own = own.map_or(null_mut(), Env::raw);
        // SAFETY: without an environment of its own the message is copied, else it is moved. A process that has ended gets none.
        unsafe { enif_send(env.raw(), &pid, own, message.raw()) };
    }
}

/// The node of a pid, port or reference.
pub(super) fn node_of(env: Env, term: Term) -> Option<Term> {
    let bytes = external::of(env, term)?;
    let mut name = Vec::new();
    external::node_text(&bytes, &mut name)?;
    Some(env.atom(std::str::from_utf8(&name).ok()?))
}

/// Wakes the reaper if it has work to do.
#[inline]
pub fn wake(env: Env) {
    cats_table::wake(&Vm(env));
}
