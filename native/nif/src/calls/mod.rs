//! The functions of `ets`, one native function each, over `cats_table`.
//!
//! | module | |
//! |---|---|
//! | `read` | lookup, member and their kin |
//! | `write` | insert, delete, take |
//! | `update` | update_counter, update_element |
//! | `traverse` | first to prev_lookup, slot |
//! | `select` | select, match and their kin, scan |
//! | `manage` | new, delete/1, rename, whereis, give_away, setopts, safe_fixtable, all |
//! | `info` | info |
//! | `reaper` | the thread that works in the background |
//!
//! Here stands what they share: finding the table, keys to search for, objects in and out.

pub mod info;
pub mod manage;
pub mod read;
pub mod reaper;
pub mod select;
pub mod traverse;
pub mod update;
pub mod write;

use crate::decode;
use crate::encode::{self, check_words, fits, SCHEDULER_WORDS};
use crate::entry::failure::Failure;
use crate::layout;
use crate::vm::atoms;
use crate::vm::external;
use crate::vm::monitor;
use crate::vm::resource::{Kind, Owned, Value};
use crate::vm::{on_dirty_scheduler, Env, Term};
use cats_sync::epoch::Guard;
use cats_table::{Cause, Handle, Host, Object, ObjectRef, Objects, Probe, Registry, Right, Table, Time};
use cats_term::{Block, Builder, Room, TermRef, NIL};
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

/// Tables, each inside the resource that is its identifier.
pub static TABLES: Kind<Table> = Kind::new();

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Makes what the functions need. Called while the library is being loaded; the first time counts.
pub fn prepare() -> bool {
    if REGISTRY.get().is_none() {
        let Some(registry) = Registry::new(forget) else {
            return false;
        };
        let _ = REGISTRY.set(registry);
    }
    monitor::on_down(|env, process| registry().owner_down(&Vm(env), process.0));
    true
}

/// The registry of all tables.
pub fn registry() -> &'static Registry {
    REGISTRY.get().expect("made when the library is loaded")
}

/// The registry and all readers are done with a table.
fn forget(table: *const Table) {
    // SAFETY: `new` left this reference to the registry.
    drop(unsafe { Owned::from_raw(table) });
}

/// The table's identifier.
fn identifier(env: Env, table: &Table) -> Term {
    // SAFETY: tables exist inside resources only. The reference is not given up here, as it was not taken.
    let owned = ManuallyDrop::new(unsafe { Owned::from_raw(table) });
    owned.reference(env)
}

/// What `ets` calls the table: its name if it is a named one, else its identifier.
fn designation(env: Env, table: &Table) -> Term {
    if table.options().named() {
        Term(table.name())
    } else {
        identifier(env, table)
    }
}

/// The VM during one call.
struct Vm<'a>(Env<'a>);

impl Host for Vm<'_> {
    fn is_alive(&self, pid: u64) -> bool {
        monitor::is_alive(self.0, Term(pid))
    }

    fn watch(&self, pid: u64) -> bool {
        monitor::watch(self.0, Term(pid))
    }

    fn transfer(&self, table: &Table, from: u64, to: u64, data: &Block) {
        // A term that was stored can be made, unless memory is exhausted; then the message is lost, as any would be.
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
        // SAFETY: the message is copied, or it takes what its own environment has; a process that is gone gets none.
        unsafe { enif_send(env.raw(), &pid, own, message.raw()) };
    }
}

impl From<cats_table::Failure> for Failure {
    #[cold]
    fn from(failure: cats_table::Failure) -> Self {
        match failure {
            cats_table::Failure::Busy => Failure::Busy,
            cats_table::Failure::Big => Failure::Big,
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
fn bad() -> Failure {
    Failure::Bad(atoms::none())
}

/// The table that an argument names, if the caller may do this to it.
#[inline(always)]
fn find<'g>(env: Env<'g>, guard: &'g Guard, term: Term, right: Right) -> Result<Handle<'g>, Failure> {
    if term.is_immediate() {
        return find_named(env, guard, term, right);
    }
    let table = TABLES.get(env, term).ok_or(Cause::Type)?;
    check(env, guard, table, right)?;
    Ok(table.by_identifier(guard))
}

/// Whether the caller may do this to a table whose identifier it has.
#[inline(always)]
fn check(env: Env, guard: &Guard, table: &Table, right: Right) -> Result<(), Failure> {
    match table.check(right, || env.this_process().0) {
        Ok(()) => Ok(()),
        Err(_) => check_again(env, guard, table, right),
    }
}

/// The same when it was refused: the owner may be dead, and the caller its heir.
#[cold]
fn check_again(env: Env, guard: &Guard, table: &Table, right: Right) -> Result<(), Failure> {
    registry().lives(&Vm(env), guard, table)?;
    Ok(table.check(right, || env.this_process().0)?)
}

#[inline(never)]
fn find_named<'g>(env: Env<'g>, guard: &'g Guard, name: Term, right: Right) -> Result<Handle<'g>, Failure> {
    let caller = env.this_process().0;
    let handle = match registry().find(&Vm(env), guard, name.0, caller) {
        Ok(handle) => handle,
        Err(_) if !env.is_atom(name) => return Err(Cause::Type.into()),
        Err(failure) => return Err(failure.into()),
    };
    handle.table().check_found(right, || caller)?;
    Ok(handle)
}

/// Lends a key to search for in this table. `f` stands in two places, so that nothing is asked or kept for an immediate that only
/// other keys need: for it to be inlined there a closure has to say so.
#[inline(always)]
fn with_probe<R>(
    env: Env,
    table: &Table,
    key: Term,
    f: impl FnOnce(&Probe<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match key.is_immediate() {
        true => f(&table.probe(TermRef::immediate(key.0))),
        // Taken apart, or the result for immediates would pass through the memory that this one is left in.
        false => match with_built_probe(env, table, key, f) {
            Ok(result) => Ok(result),
            Err(failure) => Err(failure),
        },
    }
}

/// [`with_probe`] of a key that has to be built.
#[inline(never)]
fn with_built_probe<R>(
    env: Env,
    table: &Table,
    key: Term,
    f: impl FnOnce(&Probe<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    with_built_key(env, key, |key| f(&table.probe(key.term)))
}

/// A key that has been built.
struct BuiltKey<'b> {
    term: TermRef<'b>,
    /// The words that it took, if they may be many.
    words: usize,
    /// Whether the caller's term may stand for a copy of a stored one that is equal to it.
    may_stand: bool,
}

/// Lends a key, no immediate, as it is stored.
#[inline(always)]
fn with_built_key<R>(env: Env, key: Term, f: impl FnOnce(BuiltKey<'_>) -> Result<R, Failure>) -> Result<R, Failure> {
    let (mut room, mut builder) = (Room::new(), None);
    f(built_key(env, key, &mut room, &mut builder, |room| {
        Builder::within(room)
    })?)
}

/// Builds a key: in `room` if it is not long, else in a builder.
#[inline(always)]
fn built_key<'b, 'r: 'b, 's>(
    env: Env,
    key: Term,
    room: &'r mut Room<{ encode::fast::WORDS }>,
    builder: &'b mut Option<Builder<'s>>,
    make: impl FnOnce(&'r mut Room<{ encode::fast::WORDS }>) -> Builder<'s>,
) -> Result<BuiltKey<'b>, Failure> {
    if layout::is_known() {
        // SAFETY: terms are as expected, and this one is of the environment, as what is counted in it is. It was laid out in the room.
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

/// Words of an object for which there is room on the stack.
const OBJECT_WORDS: usize = 128;

/// Elements of a tuple of immediates that needs no block, at most.
const INLINE: usize = 2;

/// Makes an object to store in this table of a tuple's elements.
#[inline(always)]
fn object<'a>(env: Env, handle: Handle<'_>, elements: &'a [Term]) -> Result<Object<'a>, Failure> {
    match inline(elements) {
        Some(words) => Ok(Object::flat(words)),
        None => other_object(env, handle, elements),
    }
}

/// The words of a tuple that needs no block.
#[inline(always)]
fn inline(elements: &[Term]) -> Option<&[u64]> {
    match elements.len() <= INLINE {
        true => encode::immediates(elements),
        false => None,
    }
}

/// As [`object`], of any other tuple. What is commonest is made in line.
#[inline(always)]
fn other_object<'a>(env: Env, handle: Handle<'_>, elements: &'a [Term]) -> Result<Object<'a>, Failure> {
    check_words(elements.len())?;
    let mut hashed = false;
    match elements.get(handle.table().key()) {
        // Its place is fetched while the block is made.
        Some(key) if key.is_immediate() => handle.announce(key.0),
        Some(_) => hashed = handle.table().kind() != cats_table::Kind::OrderedSet,
        None => (),
    }
    let words = Term::words(elements);
    if elements.len() > INLINE && encode::immediates(elements).is_some() {
        return Ok(Object::flat(words));
    }
    if layout::is_known() {
        if let Some((index, element)) = only_other(elements) {
            // SAFETY: terms are as expected, and this one is of the environment.
            let object = unsafe {
                encode::short(
                    env,
                    element,
                    #[inline(always)]
                    |part| Object::of_short(words, index, part, hashed, handle.guard()),
                )
            };
            if let Some(object) = object {
                return Ok(object);
            }
        }
    }
    Ok(Object::in_block(words, object_block(env, handle.guard(), elements)?))
}

/// The place of the only element of a tuple that is no immediate, and that element.
#[inline(always)]
fn only_other(elements: &[Term]) -> Option<(usize, Term)> {
    let is_other = |element: &Term| !element.is_immediate();
    let index = elements.iter().position(is_other)?;
    let rest = elements[index + 1..].iter().any(is_other);
    (!rest).then(|| (index, elements[index]))
}

/// Stores the tuple of these terms, not all of which are immediates.
#[inline(never)]
fn object_block(env: Env, guard: &Guard, elements: &[Term]) -> Result<Block, Failure> {
    if layout::is_known() {
        // SAFETY: terms are as expected, and these are of the environment.
        if let Some(block) = unsafe { encode::fast::object(env, elements, guard) } {
            return Ok(block);
        }
    }
    block(env, elements)
}

/// Stores the tuple of these terms. Not inlined: its buffer would lie in the frame of those that need none.
#[inline(never)]
fn block(env: Env, elements: &[Term]) -> Result<Block, Failure> {
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    encode::object(env, elements, &mut builder)?;
    builder.finish().ok_or(Failure::SystemLimit)
}

/// Makes a term of an object.
#[inline(always)]
fn tuple(env: Env, object: &ObjectRef<'_>) -> Result<Term, Failure> {
    match object {
        ObjectRef::Pair(words) => Ok(env.tuple_of(*words)),
        ObjectRef::Single(words) => Ok(env.tuple_of(*words)),
        ObjectRef::Block(block) => decode::object(env, *block),
    }
}

/// Makes the list of these objects, unless it is too large for this scheduler.
fn tuples(env: Env, objects: &[ObjectRef<'_>]) -> Result<Term, Failure> {
    let words = objects.iter().map(|object| object.words() + 2).sum();
    check_words(words)?;
    let list = list(env, objects)?;
    account(env, words);
    Ok(list)
}

/// Makes the list of these objects.
fn list(env: Env, objects: &[ObjectRef<'_>]) -> Result<Term, Failure> {
    match objects {
        [] => Ok(Term(NIL)),
        [object] => Ok(env.cons(tuple(env, object)?, Term(NIL))),
        // SAFETY: terms and environments are as expected.
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

/// Makes a term of one element, unless its object is too large for this scheduler.
#[inline]
fn element(env: Env, object: &ObjectRef<'_>, index: usize) -> Result<Term, Failure> {
    let element = object.element(index);
    if element.is_immediate() {
        return Ok(Term(element.word()));
    }
    check_words(object.words())?;
    decode::term(env, element)
}

/// Nanoseconds that it takes to copy a word in or out, roughly.
const WORD_NS: usize = 5;

/// Reports to the scheduler the time that a call takes that copies so many words.
#[inline]
fn account(env: Env, words: usize) {
    env.account(words * WORD_NS);
}

/// Whether the call may take its time, for tables in which it matters: those with many objects for a key, or objects to be
/// unpacked.
#[inline]
fn patient(table: &Table) -> bool {
    (table.kind().is_bag() || table.options().compressed()) && on_dirty_scheduler()
}

/// Wakes the reaper if there is news for it.
#[inline]
pub(crate) fn wake(env: Env) {
    cats_table::wake(&Vm(env));
}
