//! The settings of the application. They are fixed when the first table is made.

use crate::calls::registry;
use crate::entry::failure::Failure;
use crate::vm::atoms;
use crate::vm::{Env, Term};
use std::sync::OnceLock;

struct Settings {
    reader_groups: usize,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// `configure({ReaderGroups, Registry})`: the registry is `lock_free` or `locked`. Only the first call has an effect.
pub fn configure(env: Env, &[settings]: &[Term; 1]) -> Result<Term, Failure> {
    let bad = || Failure::Bad(atoms::none());
    let &[groups, kind] = env.tuple_elements(settings).ok_or_else(bad)? else {
        return Err(bad());
    };
    let groups = groups
        .small_integer()
        .and_then(|groups| usize::try_from(groups).ok())
        .filter(|groups| *groups > 0)
        .ok_or_else(bad)?;
    let locked = kind == env.atom("locked");
    if !locked && kind != env.atom("lock_free") {
        return Err(bad());
    }
    SETTINGS.get_or_init(|| {
        if locked {
            registry().use_locks(groups);
        }
        Settings { reader_groups: groups }
    });
    Ok(atoms::ok())
}

/// The most reader groups of one lock. Nothing before the settings have been passed.
pub fn reader_groups() -> Option<usize> {
    SETTINGS.get().map(|settings| settings.reader_groups)
}

/// `settings()`: the settings in use, in the form that `configure` takes, or `none`.
pub fn settings(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    let Some(settings) = SETTINGS.get() else {
        return Ok(atoms::none());
    };
    let kind = if registry().uses_locks() { "locked" } else { "lock_free" };
    Ok(env.tuple(&[env.unsigned(settings.reader_groups as u64), env.atom(kind)]))
}
