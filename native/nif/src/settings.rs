//! The settings of the application, as they were when the first reaper registered itself, which is before the first table.

use crate::atoms;
use crate::failure::Failure;
use crate::vm::{Env, Term};
use std::sync::OnceLock;

struct Settings {
    reader_groups: usize,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// `configure({ReaderGroups})`: the first call counts.
pub fn configure(env: Env, &[settings]: &[Term; 1]) -> Result<Term, Failure> {
    let bad = || Failure::Bad(atoms::none());
    let &[groups] = env.tuple_elements(settings).ok_or_else(bad)? else {
        return Err(bad());
    };
    let groups = groups
        .small_integer()
        .and_then(|groups| usize::try_from(groups).ok())
        .filter(|groups| *groups > 0)
        .ok_or_else(bad)?;
    SETTINGS.get_or_init(|| Settings { reader_groups: groups });
    Ok(atoms::ok())
}

/// The most groups that the readers of one lock are divided into.
pub fn reader_groups() -> usize {
    SETTINGS.get().map_or(1, |settings| settings.reader_groups)
}
