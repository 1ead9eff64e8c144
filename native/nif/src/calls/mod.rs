//! The functions of `ets`, each as one native function that calls `cats_table`.
//!
//! | module | |
//! |---|---|
//! | `read` | lookup, member and their kin |
//! | `write` | insert, delete, take |
//! | `update` | update_counter, update_element |
//! | `notices` | removed, and option `notify` of new |
//! | `one` | replace, remove, lookup_to_update, lookup_to_fetch, add |
//! | `many` | take_many, delete_many, insert_many |
//! | `expiry` | insert/3, touch, ttl |
//! | `flights` | what `cats_fetch` calls |
//! | `traverse` | first to prev_lookup, slot |
//! | `order` | rank, nth, count, range |
//! | `select` | select, match and their kin, scan |
//! | `select_terms` | match specifications over terms of the caller |
//! | `transaction` | what `cats_transaction` calls |
//! | `snapshot` | taking a snapshot |
//! | `tracing` | what `cats_trace` calls |
//! | `manage` | new, delete/1, rename, whereis, give_away, claim, setopts, safe_fixtable, all |
//! | `info` | info |
//! | `contention` | contention |
//! | `reaper` | the thread that works in the background |
//!
//! This file has what they share: finding the table, keys to search for, encoding and decoding objects.

pub mod contention;
pub mod expiry;
pub mod flights;
pub mod info;
pub mod manage;
pub mod many;
pub mod notices;
pub mod one;
pub mod order;
pub mod read;
pub mod reaper;
pub mod select;
pub mod select_terms;
pub mod snapshot;
pub mod tracing;
pub mod transaction;
pub mod traverse;
pub mod update;
pub mod write;

use crate::decode;
use crate::encode::callers_key::Callers;
use crate::encode::{self, check_words, fits, SCHEDULER_WORDS};
use crate::entry::failure::Failure;
use crate::layout;
use crate::vm::atoms;
use crate::vm::external;
use crate::vm::monitor;
use crate::vm::resource::{Kind, Owned, Value};
use crate::vm::{on_dirty_scheduler, on_scheduler, Env, Term};
use cats_sync::epoch::{pin, Guard};
use cats_sync::events::Event;
use cats_sync::slab::Relief;
use cats_sync::trace;
use cats_table::{
    CallersKey, Cause, Handle, Host, Naming, Object, ObjectRef, Objects, Operation, Probe, Registry, Right, Table,
    Time, Unused, Use, Used,
};
use cats_term::{key_word_of_part, Block, Builder, Room, TermRef, NIL};
use rustler::sys::*;
use smallvec::SmallVec;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

impl Value for Table {
    const NAME: &'static CStr = c"table";
}

/// Tables. Each is inside the resource that is its identifier.
pub static TABLES: Kind<Table> = Kind::new();

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Makes the registry. Called while the library is being loaded; only the first call has an effect.
pub fn prepare() -> bool {
    if REGISTRY.get().is_none() {
        let Some(registry) = Registry::new(forget) else {
            return false;
        };
        let _ = REGISTRY.set(registry);
    }
    cats_table::set_patience(|| !on_scheduler());
    monitor::on_down(|env, process| registry().owner_down(&Vm(env), process.0));
    true
}

/// The registry of all tables.
pub fn registry() -> &'static Registry {
    REGISTRY.get().expect("made when the library is loaded")
}

/// Drops the registry's reference to a table when neither the registry nor a reader uses it any more.
fn forget(table: *const Table) {
    // SAFETY: `new` gave this reference to the registry.
    drop(unsafe { Owned::from_raw(table) });
}

/// The table's identifier.
fn identifier(env: Env, table: &Table) -> Term {
    // SAFETY: tables exist only inside resources. This reference was not taken, so it is not given up.
    let owned = ManuallyDrop::new(unsafe { Owned::from_raw(table) });
    owned.reference(env)
}

/// The table as `ets` shows it: its name if it is a named table, else its identifier.
fn designation(env: Env, table: &Table) -> Term {
    if table.options().named() {
        Term(table.name())
    } else {
        identifier(env, table)
    }
}

/// The VM as `cats_table` sees it during one call.
struct Vm<'a>(Env<'a>);

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
fn send_transfer(env: Env, own: Option<Env>, table: &Table, from: u64, to: u64, data: Term) {
    let maker = own.unwrap_or(env);
    let message = maker.tuple(&[atoms::ets_transfer(), designation(maker, table), Term(from), data]);
    if let Some(pid) = env.local_pid(Term(to)) {
        let own = own.map_or(null_mut(), Env::raw);
        // SAFETY: without an environment of its own the message is copied, else it is moved. A process that has ended gets none.
        unsafe { enif_send(env.raw(), &pid, own, message.raw()) };
    }
}

impl From<cats_table::Failure> for Failure {
    #[cold]
    fn from(failure: cats_table::Failure) -> Self {
        match failure {
            cats_table::Failure::Busy => Failure::Busy,
            cats_table::Failure::Big => Failure::Big,
            cats_table::Failure::Slice => Failure::Slice,
            cats_table::Failure::SystemLimit => Failure::SystemLimit,
            cats_table::Failure::Bad(cause) => cause.into(),
        }
    }
}

impl From<Cause> for Failure {
    #[cold]
    fn from(cause: Cause) -> Self {
        Failure::Bad(match cause {
            Cause::None => atoms::none(),
            Cause::Type => atoms::type_(),
            Cause::Id => atoms::id(),
            Cause::Access => atoms::access(),
            Cause::TableType => atoms::table_type(),
            Cause::BadKey => atoms::badkey(),
            Cause::KeyPosition => atoms::keypos(),
            Cause::Position => atoms::position(),
            Cause::Owner => atoms::owner(),
            Cause::NotOwner => atoms::not_owner(),
            Cause::AlreadyExists => atoms::already_exists(),
            Cause::Default => atoms::default(),
            Cause::Overflow => atoms::overflow(),
            Cause::Owned => atoms::owned(),
            Cause::Snapshot => atoms::snapshot(),
            Cause::NoExpiry => atoms::no_expiry(),
            Cause::SnapshotLimit => atoms::snapshot_limit(),
            Cause::NoSnapshots => atoms::no_snapshots(),
            Cause::NoContention => atoms::no_contention(),
            Cause::InsideTransaction => atoms::inside_transaction(),
        })
    }
}

/// The node of a pid, port or reference.
fn node_of(env: Env, term: Term) -> Option<Term> {
    let bytes = external::of(env, term)?;
    let mut name = Vec::new();
    external::node_text(&bytes, &mut name)?;
    Some(env.atom(std::str::from_utf8(&name).ok()?))
}

/// `badarg` without a cause.
#[cold]
pub fn bad() -> Failure {
    Failure::Bad(atoms::none())
}

/// What a call wants of a table: a right, and what it does, if that counts as an operation.
type Want = (Right, Option<Operation>);

/// The wants of most calls.
const LOOKUP: Want = (Right::Read, Some(Operation::Lookup));
const LOOKUP_TO_UPDATE: Want = (Right::Write, Some(Operation::Lookup));
/// Whoever may write may fetch. A hit writes nothing, so a transaction refuses it nowhere.
const LOOKUP_TO_FETCH: Want = (Right::Manage, Some(Operation::Lookup));
const STEP: Want = (Right::Read, Some(Operation::Step));
const SCAN: Want = (Right::Read, Some(Operation::Scan));
const INSERT: Want = (Right::Write, Some(Operation::Insert));
const UPDATE: Want = (Right::Write, Some(Operation::Update));
const DELETE: Want = (Right::Write, Some(Operation::Delete));
const READ: Want = (Right::Read, None);
const WRITE: Want = (Right::Write, None);
const MANAGE: Want = (Right::Manage, None);
const INFO: Want = (Right::Info, None);

/// The table that an argument names, if the caller may do to it what it wants. That is counted, if the table counts.
#[inline(always)]
fn find<'g>(env: Env<'g>, guard: &'g Guard, term: Term, want: Want) -> Result<Handle<'g>, Failure> {
    if term.is_immediate() {
        return match find_near(env, guard, term, want) {
            Some((table, naming)) => Ok(Handle::by_name(table, guard, naming)),
            None => find_named(env, guard, term, want),
        };
    }
    let table = TABLES.get(env, term).ok_or(Cause::Type)?;
    check(env, guard, table, want)?;
    Ok(table.by_identifier(guard))
}

/// Checks that the caller may do what it wants to a table whose identifier it has.
#[inline(always)]
fn check(env: Env, guard: &Guard, table: &Table, (right, operation): Want) -> Result<(), Failure> {
    match table.check_for(guard, right, operation, || env.this_process().0) {
        Ok(()) => Ok(()),
        Err(_) => check_again(env, guard, table, (right, operation)),
    }
}

/// As [`check`] after a refusal: the owner may be dead, so that the caller as its heir now owns the table.
#[cold]
fn check_again(env: Env, guard: &Guard, table: &Table, (right, operation): Want) -> Result<(), Failure> {
    registry().lives(&Vm(env), guard, table)?;
    Ok(table.check_for(guard, right, operation, || env.this_process().0)?)
}

/// Counts a lookup that found nothing, if the table counts.
#[inline(always)]
fn missed(handle: Handle<'_>) {
    if handle.table().is_counted() {
        handle.count_miss();
    }
}

/// Counts that a call is made again for this reason. What it did does not count.
#[cold]
pub fn again(env: Env, table: Term, event: Event) {
    let guard = pin();
    let handle = match TABLES.get(env, table) {
        Some(table) if !table.is_dead() => table.by_identifier(&guard),
        Some(_) => return,
        None => match registry().find(&Vm(env), &guard, table.0, env.this_process().0) {
            Ok(handle) => handle,
            Err(_) => return,
        },
    };
    handle.table().take_back_count(&guard);
    if event == Event::Busy {
        let again = || trace::Event::new(trace::Kind::Busy, handle.table().serial(), [0, 0]);
        trace::record(|| again().by(env.this_process().0));
    }
    handle.count_event(event, 1);
}

/// The serial number of the table, or of the table of a cursor, that an argument names; 0 for others. For a trace.
#[cold]
pub fn serial(env: Env, term: Term) -> u64 {
    if let Some(table) = TABLES.get(env, term) {
        return table.serial();
    }
    if let Some(table) = select::table_of_cursor(env, term) {
        return table.serial();
    }
    let guard = pin();
    let found = registry().find(&Vm(env), &guard, term.0, env.this_process().0);
    found.map_or(0, |handle| handle.table().serial())
}

/// The table of a name in the usual case: see [`Registry::find_near`]. Not inlined, so that calls by identifier need fewer
/// registers. Its result is two words, which stay in registers.
#[inline(never)]
fn find_near<'g>(env: Env<'g>, guard: &'g Guard, name: Term, want: Want) -> Option<(&'g Table, Naming)> {
    let is_alive = |owner| monitor::is_alive(env, Term(owner));
    registry().find_near(guard, name.0, want, env.this_process().0, is_alive)
}

#[cold]
#[inline(never)]
fn find_named<'g>(env: Env<'g>, guard: &'g Guard, name: Term, (right, operation): Want) -> Result<Handle<'g>, Failure> {
    let caller = env.this_process().0;
    let handle = match registry().find(&Vm(env), guard, name.0, caller) {
        Ok(handle) => handle,
        Err(_) if !env.is_atom(name) => return Err(Cause::Type.into()),
        Err(failure) => return Err(failure.into()),
    };
    handle.table().check_found(guard, right, operation, || caller)?;
    Ok(handle)
}

/// Lends a key to search for in this table. `f` is called in two places, so the code for an immediate has no branches
/// for other keys. To be inlined in both, a closure must be marked for inlining.
#[inline(always)]
fn with_probe<R>(
    env: Env,
    table: &Table,
    key: Term,
    f: impl FnOnce(&Probe<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match key.is_immediate() {
        true => f(&table.probe(TermRef::immediate(key.0))),
        // The result is taken apart. Otherwise the result for immediates would pass through memory too.
        false => match with_built_probe(env, table, key, f) {
            Ok(result) => Ok(result),
            Err(failure) => Err(failure),
        },
    }
}

/// [`with_probe`] for a key that is not an immediate.
#[inline(never)]
fn with_built_probe<R>(
    env: Env,
    table: &Table,
    key: Term,
    f: impl FnOnce(&Probe<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    with_callers_key(env, table, key, |probe, _| f(probe))
}

/// Lends the probe for a key, not an immediate, in this table. And whether the caller's term may replace a copy of an exactly equal stored
/// key in a result. Where possible, the key is not brought into stored form.
#[inline(always)]
fn with_callers_key<R>(
    env: Env,
    table: &Table,
    key: Term,
    f: impl FnOnce(&Probe<'_>, bool) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let (mut callers, mut builder) = (Callers::new(env, key), None);
    let in_place: &dyn CallersKey = &callers;
    let word = match layout::is_known() && table.kind() != cats_table::Kind::OrderedSet {
        // SAFETY: the layout of terms is known, and the key belongs to the environment.
        true => unsafe { callers.word() },
        false => None,
    };
    let (probe, may_stand) = match word {
        Some(word) => (Probe::callers(&in_place, word), true),
        None => {
            let built = built_key(env, key, callers.room(), &mut builder, Builder::within)?;
            (table.probe(built.term), built.may_stand)
        }
    };
    f(&probe, may_stand)
}

/// A key in stored form that is not an immediate.
struct BuiltKey<'b> {
    term: TermRef<'b>,
    /// The words that were built, or 0 if they are few.
    words: usize,
    /// Whether the caller's term may replace a copy of an exactly equal stored key in a result.
    may_stand: bool,
}

/// Lends a key, not an immediate, in stored form.
#[inline(always)]
fn with_built_key<R>(env: Env, key: Term, f: impl FnOnce(BuiltKey<'_>) -> Result<R, Failure>) -> Result<R, Failure> {
    let (mut room, mut builder) = (Room::new(), None);
    f(built_key(env, key, &mut room, &mut builder, |room| {
        Builder::within(room)
    })?)
}

/// Builds a key: by the fast path in `room` if it is short, else in a builder.
#[inline(always)]
fn built_key<'b, 'r: 'b, 's>(
    env: Env,
    key: Term,
    room: &'r mut Room<{ encode::fast::WORDS }>,
    builder: &'b mut Option<Builder<'s>>,
    make: impl FnOnce(&'r mut Room<{ encode::fast::WORDS }>) -> Builder<'s>,
) -> Result<BuiltKey<'b>, Failure> {
    if layout::is_known() {
        // SAFETY: the layout of terms is known. This term and the binaries counted in it belong to the environment. The
        // word was made for this room.
        unsafe {
            if let Some((word, may_stand)) = encode::fast::key(env, key, room) {
                return Ok(BuiltKey {
                    term: room.term(word),
                    words: 0,
                    may_stand,
                });
            }
        }
    }
    built_long_key(env, key, builder.insert(make(room)))
}

/// Room for the stored form of a key that is not an immediate.
type KeyRoom = (Room<{ encode::fast::WORDS }>, Option<Builder<'static>>);

/// The probe for a key, not an immediate, whose stored form is built in the room, and [`BuiltKey::words`].
#[inline]
fn probe_in<'r>(env: Env, table: &Table, key: Term, room: &'r mut KeyRoom) -> Result<(Probe<'r>, usize), Failure> {
    let (room, builder) = room;
    let key = built_key(env, key, room, builder, |_| Builder::new())?;
    Ok((table.probe(key.term), key.words))
}

/// The probe for a key, which is built in the room if it needs one.
fn probe_of<'r>(env: Env, handle: Handle<'_>, key: Term, room: &'r mut Option<KeyRoom>) -> Result<Probe<'r>, Failure> {
    match key.is_immediate() {
        true => Ok(handle.table().probe(TermRef::immediate(key.0))),
        false => Ok(probe_in(env, handle.table(), key, room.insert((Room::new(), None)))?.0),
    }
}

/// The bound that a term stands for: `[Key]` if the key belongs to the range, `{Key}` if not, `[]` for none.
fn bound(env: Env, term: Term) -> Result<Option<(Term, bool)>, Failure> {
    match (env.cell(term), env.tuple_elements(term)) {
        (Some((key, Term(NIL))), _) => Ok(Some((key, true))),
        (_, Some(&[key])) => Ok(Some((key, false))),
        _ if term.0 == NIL => Ok(None),
        _ => Err(bad()),
    }
}

#[inline(never)]
fn built_long_key<'b>(env: Env, key: Term, builder: &'b mut Builder<'_>) -> Result<BuiltKey<'b>, Failure> {
    encode::key(env, key, builder)?;
    let (term, words) = (builder.as_key(), builder.words());
    Ok(BuiltKey {
        term,
        words,
        may_stand: decode::may_stand(term),
    })
}

/// Words of an object that the buffer on the stack has room for.
const OBJECT_WORDS: usize = 128;

/// Most elements of a tuple of immediates that needs no block.
const INLINE: usize = 2;

/// Makes an object of a tuple's elements, to be stored in this table.
#[inline(always)]
fn object<'a>(env: Env, handle: Handle<'_>, elements: &'a [Term]) -> Result<Object<'a>, Failure> {
    match inline(elements) {
        Some(words) => Ok(Object::flat(words)),
        None => other_object(env, handle, elements, None),
    }
}

/// The words of a tuple that needs no block, if it is one.
#[inline(always)]
fn inline(elements: &[Term]) -> Option<&[u64]> {
    match elements.len() <= INLINE {
        true => encode::immediates(elements),
        false => None,
    }
}

/// As [`object`], for any other tuple. The most common kinds are made inline. `key_word` is given if the key's
/// [word](cats_term::key_word) in a table that compares keys exactly is known.
#[inline(always)]
fn other_object<'a>(
    env: Env,
    handle: Handle<'_>,
    elements: &'a [Term],
    key_word: Option<u64>,
) -> Result<Object<'a>, Failure> {
    check_words(elements.len())?;
    let mut hashed = false;
    match elements.get(handle.table().key()) {
        // The memory of its place is prefetched while the block is made.
        Some(key) if key.is_immediate() => handle.announce(key.0),
        Some(_) => hashed = key_word.is_none() && handle.table().kind() != cats_table::Kind::OrderedSet,
        None => (),
    }
    let words = Term::words(elements);
    if elements.len() > INLINE && encode::immediates(elements).is_some() {
        return Ok(Object::flat(words));
    }
    if layout::is_known() {
        if let Some((index, element)) = only_other(elements) {
            // SAFETY: the layout of terms is known, and this term belongs to the environment.
            let object = unsafe {
                encode::short(
                    env,
                    element,
                    #[inline(always)]
                    |part| {
                        let key_word = match hashed {
                            true => key_word_of_part(&part),
                            false => key_word,
                        };
                        let object = Object::of_short(words, index, part, handle.guard())?;
                        Some(object.with_key_word(key_word))
                    },
                )
            };
            if let Some(object) = object {
                return Ok(object);
            }
        }
    }
    let block = object_block(env, handle.guard(), elements)?;
    Ok(Object::in_block(words, block).with_key_word(key_word))
}

/// If exactly one element of a tuple is not an immediate: its index, and the element.
#[inline(always)]
fn only_other(elements: &[Term]) -> Option<(usize, Term)> {
    let is_other = |element: &Term| !element.is_immediate();
    let index = elements.iter().position(is_other)?;
    let rest = elements[index + 1..].iter().any(is_other);
    (!rest).then(|| (index, elements[index]))
}

/// Makes a block of the tuple of these terms, not all of which are immediates.
#[inline(never)]
fn object_block(env: Env, guard: &Guard, elements: &[Term]) -> Result<Block, Failure> {
    match fast_block(env, guard, elements) {
        Some(block) => Ok(block),
        None => block(env, elements),
    }
}

/// The same, if that can be made by the fast path.
#[inline(always)]
fn fast_block(env: Env, guard: &Guard, elements: &[Term]) -> Option<Block> {
    if !layout::is_known() {
        return None;
    }
    // SAFETY: the layout of terms is known, and these terms belong to the environment.
    unsafe { encode::fast::object(env, elements, guard) }
}

/// Makes a block of the tuple of these terms.
fn block(env: Env, elements: &[Term]) -> Result<Block, Failure> {
    built(|builder| encode::object(env, elements, builder))
}

/// Makes a block of what a function builds. Not inlined: its buffer would enlarge the stack frame of callers that do not need it.
#[inline(never)]
fn built(build: impl FnOnce(&mut Builder) -> Result<(), Failure>) -> Result<Block, Failure> {
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    build(&mut builder)?;
    builder.finish().ok_or(Failure::SystemLimit)
}

/// Decodes an object.
#[inline(always)]
fn tuple(env: Env, object: &ObjectRef<'_>) -> Result<Term, Failure> {
    match object {
        ObjectRef::Pair(words) => Ok(env.tuple_of(*words)),
        ObjectRef::Single(words) => Ok(env.tuple_of(*words)),
        ObjectRef::Block(block) => decode::object(env, *block),
    }
}

/// The list of these objects. Fails with `Big` if it is too large for this scheduler.
fn tuples(env: Env, objects: &[ObjectRef<'_>]) -> Result<Term, Failure> {
    let words = objects.iter().map(|object| object.words() + 2).sum();
    check_words(words)?;
    let list = list(env, objects)?;
    account(env, words);
    Ok(list)
}

/// The list of these objects.
fn list(env: Env, objects: &[ObjectRef<'_>]) -> Result<Term, Failure> {
    match objects {
        [] => Ok(Term(NIL)),
        [object] => Ok(env.cons(tuple(env, object)?, Term(NIL))),
        // SAFETY: the layout of terms and environments is known.
        objects if layout::is_known() => unsafe { decode::fast::list(env, objects) },
        objects => {
            let mut tuples = SmallVec::<[Term; 32]>::new();
            for object in objects {
                tuples.push(tuple(env, object)?);
            }
            Ok(env.list(&tuples))
        }
    }
}

/// Decodes one element. Fails with `Big` if it is packed and too large for this scheduler, or otherwise its object is.
#[inline]
fn element(env: Env, object: &ObjectRef<'_>, index: usize) -> Result<Term, Failure> {
    let element = object.element(index);
    if element.is_immediate() {
        return Ok(Term(element.word()));
    }
    check_words(element.packed_words().unwrap_or_else(|| object.stored_words()))?;
    decode::element(env, element)
}

/// A rough estimate of the nanoseconds for encoding or decoding one word.
const WORD_NS: usize = 5;

/// Reports to the scheduler how long a call takes that copies this many words.
#[inline]
fn account(env: Env, words: usize) {
    env.account(words * WORD_NS);
}

/// Whether the call may take long. Always false for tables where that makes no difference: it does where a key may have
/// many objects or objects must be unpacked.
#[inline]
fn patient(table: &Table) -> bool {
    (table.kind().is_bag() || table.options().compressed()) && on_dirty_scheduler()
}

/// Wakes the reaper if it has work to do.
#[inline]
pub(crate) fn wake(env: Env) {
    cats_table::wake(&Vm(env));
}
