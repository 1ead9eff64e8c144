//! The settings of the application. They are fixed when the first table is made.

use crate::calls::{reaper, registry};
use crate::entry::failure::Failure;
use crate::layout;
use crate::vm::atoms;
use crate::vm::{Env, Term};
use cats_sync::slab::{self, account};
use std::sync::OnceLock;

struct Settings {
    reader_groups: usize,
    /// Whether terms of the VM may be read and made in place.
    in_place: bool,
    /// The bytes that are taken at the start.
    reserve: usize,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// `configure({ReaderGroups, Registry, VmTerms, MemoryLimit, Reserve})`. The registry is `lock_free` or `locked`. The terms of the VM are
/// read and made `in_place`, or all by `erl_nif`. The library holds at most so many bytes, or `infinity`. It takes so many bytes
/// at once. Only the first call has an effect. Fails with the name of a setting that is wrong, and with `not_built` if this build lacks the
/// registry.
pub fn configure(env: Env, &[settings]: &[Term; 1]) -> Result<Term, Failure> {
    let wrong = |name| move || Failure::Bad(env.atom(name));
    let &[groups, registry_kind, vm_terms, memory_limit, reserve] =
        env.tuple_elements(settings).ok_or_else(wrong("none"))?
    else {
        return Err(wrong("none")());
    };
    let groups = groups
        .small_integer()
        .and_then(|groups| usize::try_from(groups).ok())
        .filter(|groups| *groups > 0)
        .ok_or_else(wrong("reader_groups"))?;
    let locked = either(env, registry_kind, "lock_free", "locked").ok_or_else(wrong("registry"))?;
    let by_vm = either(env, vm_terms, "in_place", "erl_nif").ok_or_else(wrong("vm_terms"))?;
    let bytes = |value: Term| value.small_integer().and_then(|bytes| usize::try_from(bytes).ok());
    let limit = match memory_limit == atoms::infinity() {
        true => None,
        false => Some(
            bytes(memory_limit)
                .filter(|bytes| *bytes >= account::LEAST_LIMIT)
                .ok_or_else(wrong("memory_limit"))?,
        ),
    };
    let reserve = bytes(reserve)
        .filter(|bytes| limit.is_none_or(|limit| *bytes <= account::mark(limit)))
        .ok_or_else(wrong("reserve"))?;
    if locked && !cfg!(feature = "compared") {
        return Err(wrong("not_built")());
    }
    SETTINGS.get_or_init(|| {
        #[cfg(feature = "compared")]
        if locked {
            registry().use_locks(groups);
        }
        if !by_vm {
            layout::learn(env);
        }
        if let Some(limit) = limit {
            account::set_limit(limit, reaper::wake);
        }
        if reserve > 0 {
            slab::reserve(reserve);
        }
        Settings {
            reader_groups: groups,
            in_place: !by_vm,
            reserve,
        }
    });
    Ok(atoms::ok())
}

/// Whether a value is the second of these atoms. Nothing if it is neither.
fn either(env: Env, value: Term, first: &str, second: &str) -> Option<bool> {
    [first, second]
        .iter()
        .position(|name| env.atom(name) == value)
        .map(|place| place == 1)
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
    let vm_terms = if settings.in_place { "in_place" } else { "erl_nif" };
    Ok(env.tuple(&[
        env.unsigned(settings.reader_groups as u64),
        env.atom(kind),
        env.atom(vm_terms),
        account::limit().map_or(atoms::infinity(), |limit| env.unsigned(limit as u64)),
        env.unsigned(settings.reserve as u64),
    ]))
}
