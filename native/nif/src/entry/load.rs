//! How the VM loads, replaces and unloads the library.
//!
//! All state is in statics of this image, which is never unmapped (see [`mapping`]), and outlives the module: loading the same
//! file again finds every table as it was. A different image would find none, and its idea of memory may differ; so it refuses
//! to replace one that is loaded. A module and a library that do not belong together refuse each other: the module passes the
//! version that it was written for, and the VM insists that every function here has its stub there. The module also passes a
//! digest of the library's file: the linker gives the old image for a file that was replaced in place, and the digest tells.

use crate::calls::contention::RECORDINGS;
use crate::calls::long::LONG;
use crate::calls::select::CURSORS;
use crate::calls::snapshot::BEGINNINGS;
use crate::calls::tracing::TRACES;
use crate::calls::{self, TABLES};
use crate::entry::dirty;
use crate::entry::functions::FUNCTIONS;
use crate::entry::mapping;
use crate::held::host;
use crate::vm::atoms;
use crate::vm::monitor::WATCHED;
use crate::vm::{Env, Term};
use cats_sync::caller::Caller;
use cats_table::pid_number;
use rustler::sys::*;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null;
use std::sync::OnceLock;

/// Why loading is refused; `cats_nif` explains the numbers.
#[derive(Clone, Copy)]
enum Refusal {
    OtherLibraryLoaded = 1,
    OtherModule = 2,
    UnknownTerms = 3,
    NoResourceType = 4,
    Panic = 5,
    NoMemory = 6,
    MayBeUnmapped = 7,
}

/// Its address identifies this image of the library.
static IMAGE: u64 = 0;

/// What the VM learns about the library.
struct Entry {
    entry: ErlNifEntry,
    /// Kept for `entry.funcs`.
    _functions: Vec<ErlNifFunc>,
}

// SAFETY: the entry's pointers are to constants and to memory that is never freed; nobody changes them.
unsafe impl Send for Entry {}
// SAFETY: as for Send.
unsafe impl Sync for Entry {}

static ENTRY: OnceLock<Entry> = OnceLock::new();

/// Called by the VM, first of all, whenever the library is opened.
#[no_mangle]
pub extern "C" fn nif_init() -> *const ErlNifEntry {
    // SAFETY: does nothing where symbols are linked directly, else fills the table that all calls go through.
    unsafe { internal_write_symbols() };
    &ENTRY.get_or_init(entry).entry
}

fn entry() -> Entry {
    let functions: Vec<ErlNifFunc> = FUNCTIONS.iter().map(|function| function.declaration()).collect();
    let mut entry = ErlNifEntry::new(c"cats_nif", &functions, load);
    entry.upgrade = Some(upgrade);
    entry.unload = Some(unload);
    entry.options = ERL_NIF_DIRTY_NIF_OPTION;
    Entry {
        entry,
        _functions: functions,
    }
}

unsafe extern "C" fn load(env: *mut ErlNifEnv, private: *mut *mut c_void, info: ErlNifTerm) -> c_int {
    // SAFETY: the VM passes an environment for the call and a place for private data.
    unsafe { start(env, private, null(), info) }
}

unsafe extern "C" fn upgrade(
    env: *mut ErlNifEnv,
    private: *mut *mut c_void,
    old_private: *mut *mut c_void,
    info: ErlNifTerm,
) -> c_int {
    // SAFETY: as in `load`.
    unsafe { start(env, private, *old_private, info) }
}

/// Frees nothing: the new module, calls that are still running and other threads' destructors use the same state.
unsafe extern "C" fn unload(_env: *mut ErlNifEnv, _private: *mut c_void) {}

/// # Safety
/// The VM calls, while loading; `old` is the private data of the library that is being replaced, or null.
unsafe fn start(env: *mut ErlNifEnv, private: *mut *mut c_void, old: *const c_void, info: ErlNifTerm) -> c_int {
    let image = (&raw const IMAGE).cast::<c_void>();
    // SAFETY: the environment is the caller's for the call.
    let env = unsafe { Env::new(env) };
    let started = catch_unwind(AssertUnwindSafe(|| {
        if !old.is_null() && old != image {
            return Err(Refusal::OtherLibraryLoaded);
        }
        if !mapping::keep(image) {
            return Err(Refusal::MayBeUnmapped);
        }
        check_stamps(env, Term::from_raw(info))?;
        cats_sync::slab::set_source(allocate, free);
        cats_sync::caller::set_source(caller);
        check_terms(env)?;
        atoms::make(env);
        dirty::make_names(env);
        host::install(env);
        if !calls::prepare() {
            return Err(Refusal::NoMemory);
        }
        open_kinds(env)
    }));
    match started {
        Ok(Ok(())) => {
            // SAFETY: the VM passes a place for private data.
            unsafe { *private = image.cast_mut() };
            0
        }
        Ok(Err(refusal)) => refusal as c_int,
        Err(_) => Refusal::Panic as c_int,
    }
}

/// Memory of the VM's own allocators.
unsafe extern "C" fn allocate(bytes: usize) -> *mut c_void {
    // SAFETY: no precondition.
    unsafe { enif_alloc(bytes) }
}

unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: the caller gives back what `allocate` gave.
    unsafe { enif_free(memory) }
}

/// The process with this environment.
///
/// # Safety
/// The environment is that of a call of this thread, which has not ended.
unsafe fn caller(env: *const u8) -> Caller {
    // SAFETY: the caller's promise.
    let word = unsafe { Env::new(env.cast_mut().cast()) }.this_process().0;
    let number = pid_number(word);
    Caller { word, number }
}

/// Opens the resource types: all of them, or none.
fn open_kinds(env: Env) -> Result<(), Refusal> {
    let watched = WATCHED.open(env).ok_or(Refusal::NoResourceType)?;
    let tables = TABLES.open(env).ok_or(Refusal::NoResourceType)?;
    let cursors = CURSORS.open(env).ok_or(Refusal::NoResourceType)?;
    let recordings = RECORDINGS.open(env).ok_or(Refusal::NoResourceType)?;
    let traces = TRACES.open(env).ok_or(Refusal::NoResourceType)?;
    let long = LONG.open(env).ok_or(Refusal::NoResourceType)?;
    let beginnings = BEGINNINGS.open(env).ok_or(Refusal::NoResourceType)?;
    #[cfg(feature = "selftest")]
    {
        use crate::entry::selftest::KEPT;
        let kept = KEPT.open(env).ok_or(Refusal::NoResourceType)?;
        KEPT.commit(kept);
    }
    WATCHED.commit(watched);
    TABLES.commit(tables);
    CURSORS.commit(cursors);
    RECORDINGS.commit(recordings);
    TRACES.commit(traces);
    LONG.commit(long);
    BEGINNINGS.commit(beginnings);
    Ok(())
}

/// The digest of the file that this image was loaded from first.
static DIGEST: OnceLock<Vec<u8>> = OnceLock::new();

/// Checks what the module passes: `{Version, Digest}`.
fn check_stamps(env: Env, info: Term) -> Result<(), Refusal> {
    let Some(&[version, digest]) = env.tuple_elements(info) else {
        return Err(Refusal::OtherModule);
    };
    // The digest comes first: where the version is another one, this image stays too, and the file may be replaced.
    // The VM is asked for binaries, as their layout may be learned at this moment.
    let digest = env.inspected_binary(digest).unwrap_or_default();
    if DIGEST.get_or_init(|| digest.to_vec()) != digest {
        return Err(Refusal::OtherLibraryLoaded);
    }
    if env.inspected_binary(version) != Some(env!("CARGO_PKG_VERSION").as_bytes()) {
        return Err(Refusal::OtherModule);
    }
    Ok(())
}

/// Checks what stored words rely on. Tag bits tell immediates. Small integers have 60 bits. A tuple made of stored words has them
/// as its elements.
fn check_terms(env: Env) -> Result<(), Refusal> {
    let small_max = (1i64 << 59) - 1;
    let immediates = [
        env.make_integer(0),
        env.make_integer(-1),
        env.make_integer(small_max),
        env.make_integer(-small_max - 1),
        env.atom("true"),
        env.atom(""),
        env.list(&[]),
        env.this_process(),
    ];
    let boxed = [
        env.make_integer(small_max + 1),
        env.make_integer(-small_max - 2),
        env.float(0.0),
        env.tuple(&[]),
        env.tuple(&immediates),
        env.list(&immediates),
        env.binary(b""),
    ];
    let integers = immediates[..4].iter().map(|term| term.small_integer());
    let sound = immediates.iter().all(|term| term.is_immediate())
        && boxed.iter().all(|term| !term.is_immediate())
        && integers.eq([0, -1, small_max, -small_max - 1].map(Some))
        && immediates[4..].iter().all(|term| term.small_integer().is_none())
        && env.tuple_elements(env.tuple(&immediates)) == Some(&immediates[..]);
    if sound {
        Ok(())
    } else {
        Err(Refusal::UnknownTerms)
    }
}
