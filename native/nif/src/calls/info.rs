//! `info/2`, `memory/0` and `garbage/0`.

use super::manage::unit_atom;
use super::*;
use cats_sync::epoch::{self, Garbage};
use cats_table::Time;
use cats_table::{all_held_back, Access, Direction, Met, Position, Selection, WriteConcurrency, NOBODY};
use cats_term::View;

pub fn info(env: Env, &[table, item]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = match find(env, &guard, table, INFO) {
        Ok(handle) => handle,
        Err(Failure::Bad(cause)) if cause == atoms::id() && item != atoms::binary() => return Ok(atoms::undefined()),
        Err(failure) => return Err(failure),
    };
    // The owner of a table that was found by its name lives.
    let lives = table.is_immediate() || handle.table().owner() == env.this_process().0;
    if !lives && !registry().lives(&Vm(env), &guard, handle.table())? {
        if item == atoms::binary() {
            return Err(Cause::Id.into());
        }
        return Ok(atoms::undefined());
    }
    match item == atoms::size() {
        true => size(env, handle),
        false => other(env, handle, item),
    }
}

#[inline(always)]
fn size(env: Env, handle: Handle<'_>) -> Result<Term, Failure> {
    if handle.table().is_snapshot() && handle.table().options().leased() {
        return count(env, handle);
    }
    handle.settle(false)?;
    Ok(env.unsigned(handle.size() as u64))
}

/// Any item but the size. Not inlined, as it needs more registers.
#[inline(never)]
fn other(env: Env, handle: Handle<'_>, item: Term) -> Result<Term, Failure> {
    let table = handle.table();
    let options = table.options();
    let integer = |value: usize| Ok(env.unsigned(value as u64));
    match item {
        _ if item == atoms::memory() => {
            handle.settle(false)?;
            integer(handle.bytes().div_ceil(8))
        }
        _ if item == atoms::ttl() || item == atoms::idle() => Ok(match handle.expiry() {
            None => atoms::undefined(),
            Some((ttl, idle)) => match if item == atoms::ttl() { ttl } else { idle } {
                u64::MAX => atoms::infinity(),
                time => env.unsigned(time),
            },
        }),
        _ if item == atoms::limit() => Ok(match handle.limit() {
            None => atoms::undefined(),
            Some(limit) => env.tuple(&[unit_atom(limit.unit), env.unsigned(limit.number)]),
        }),
        _ if item == atoms::used() => Ok(match handle.taken() {
            None => atoms::undefined(),
            Some(_) => {
                handle.settle(false)?;
                env.unsigned(handle.taken().unwrap_or(0))
            }
        }),
        _ if item == atoms::evict() => Ok(match handle.limit() {
            None => atoms::undefined(),
            Some(limit) => limit
                .policy
                .map_or(atoms::none(), |policy| env.atom(policy.about().name)),
        }),
        _ if item == atoms::share() => Ok(match handle.limit() {
            None => atoms::undefined(),
            Some(limit) => Term::byte(limit.share),
        }),
        _ if item == atoms::type_() => Ok(env.atom(options.kind().text())),
        _ if item == atoms::owner() => Ok(match table.owner() {
            NOBODY => atoms::undefined(),
            owner => Term(owner),
        }),
        _ if item == atoms::heir() => Ok(match registry().heir(table)? {
            None => atoms::none(),
            Some(NOBODY) => atoms::keep(),
            Some(pid) => Term(pid),
        }),
        _ if item == atoms::protection() => Ok(match table.access() {
            Access::Public => atoms::public(),
            Access::Protected => atoms::protected(),
            Access::Private => atoms::private(),
        }),
        _ if item == atoms::write_concurrency() => Ok(match options.write_concurrency() {
            WriteConcurrency::False => atoms::false_(),
            WriteConcurrency::True => atoms::true_(),
            WriteConcurrency::Auto => atoms::auto(),
            WriteConcurrency::Locks(number) => env.unsigned(number.into()),
            WriteConcurrency::HashLocks(number) => {
                env.tuple(&[atoms::debug_hash_fixed_number_of_locks(), env.unsigned(number.into())])
            }
        }),
        _ if item == atoms::read_concurrency() => Ok(atoms::boolean(options.read_concurrency())),
        _ if item == atoms::name() => Ok(Term(table.name())),
        _ if item == atoms::keypos() => integer(options.key_position() as usize),
        _ if item == atoms::node() => node_of(env, env.this_process()).ok_or_else(no_memory),
        _ if item == atoms::named_table() => Ok(atoms::boolean(options.named())),
        _ if item == atoms::compressed() => Ok(atoms::boolean(options.compressed())),
        _ if item == atoms::id() => Ok(identifier(env, table)),
        _ if item == atoms::decentralized_counters() => Ok(atoms::boolean(options.decentralized_counters())),
        _ if item == atoms::engine() => Ok(env.atom(options.engine().text())),
        _ if item == atoms::base_nodes() => handle.base_nodes().map_or(Ok(atoms::undefined()), integer),
        _ if item == atoms::fixed() => Ok(atoms::boolean(registry().fixation(&Vm(env), handle)?.is_some())),
        _ if item == atoms::safe_fixed() => safe_fixed(env, handle, |since| {
            let (seconds, micro) = (since.system / 1_000_000, since.system % 1_000_000);
            env.tuple(&[seconds / 1_000_000, seconds % 1_000_000, micro].map(|part| env.integer(part)))
        }),
        _ if item == atoms::safe_fixed_monotonic_time() => {
            safe_fixed(env, handle, |since| env.integer(since.monotonic))
        }
        _ if item == atoms::binary() => binaries(env, handle),
        _ if item == env.atom("notify") => Ok(super::notices::info(env, handle)),
        _ if item == atoms::stats() => statistics(env, handle),
        _ if item == atoms::counters() => Ok(counters(env, handle)),
        _ if item == env.atom("flights") => integer(handle.flights()?),
        _ if item == atoms::trace() => {
            let numbers = [table.serial(), handle.trace_address()];
            Ok(env.tuple(&numbers.map(|number| env.unsigned(number))))
        }
        _ => Err(bad()),
    }
}

/// `{Time, [{Pid, Count}]}`, or `false`.
fn safe_fixed(env: Env, handle: Handle<'_>, time: impl FnOnce(Time) -> Term) -> Result<Term, Failure> {
    let Some(fixation) = registry().fixation(&Vm(env), handle)? else {
        return Ok(atoms::false_());
    };
    let pairs = fixation
        .processes
        .iter()
        .map(|(pid, count)| env.tuple(&[Term(*pid), env.unsigned(*count)]));
    let pairs: Vec<Term> = pairs.collect();
    Ok(env.tuple(&[time(fixation.since), env.list(&pairs)]))
}

/// `{Events, Operations}`: two tuples of numbers, in the order of `cats_sync::events` and of [`Operation`]. `Operations` is `false` for a
/// table that does not count them.
fn counters(env: Env, handle: Handle<'_>) -> Term {
    let tuple = |sums: &[u64]| {
        // A sum that is read while others count may be a little below zero.
        let sums: Vec<Term> = sums.iter().map(|sum| env.unsigned(0.max(*sum as i64) as u64)).collect();
        env.tuple(&sums)
    };
    let operations = handle.table().operations();
    env.tuple(&[
        tuple(&handle.events()),
        operations.map_or(atoms::false_(), |operations| tuple(&operations)),
    ])
}

/// For a hash table: the eight figures of ETS. The last two, objects kept for a fixation and locks, are 0. For a tree:
/// the number of route nodes, the number of base nodes, and the depth of the route nodes.
fn statistics(env: Env, handle: Handle<'_>) -> Result<Term, Failure> {
    let count = |value: usize| env.unsigned(value as u64);
    if let Some(base_nodes) = handle.base_nodes() {
        let (routes, depth) = (base_nodes.saturating_sub(1).min(1), (base_nodes > 1) as usize);
        return Ok(env.tuple(&[count(routes), count(base_nodes), count(depth)]));
    }
    // A slot of a snapshot may be a large part of the live table.
    if handle.table().is_snapshot() {
        check_unlimited()?;
    }
    handle.settle(false)?;
    let Some(figures) = handle.statistics()? else {
        return Ok(atoms::false_());
    };
    Ok(env.tuple(&[
        count(figures.buckets),
        env.float(figures.average),
        env.float(figures.deviation),
        env.float(figures.expected_deviation),
        count(figures.minimum),
        count(figures.maximum),
        count(0),
        count(0),
    ]))
}

/// The number of objects of a snapshot of a table where they expire. Nobody has counted them.
fn count(env: Env, handle: Handle<'_>) -> Result<Term, Failure> {
    check_unlimited()?;
    let mut count = 0;
    let mut selection = Selection::all(handle.table(), Direction::Up);
    let mut met = Met::default();
    loop {
        met.clear();
        let more = handle.slice(&mut selection, BINARIES_LIMIT.0, &mut met)?;
        count += met.as_slice().len();
        if !more {
            return Ok(env.unsigned(count as u64));
        }
    }
}

/// Most objects that a normal scheduler searches for binaries.
const BINARIES_LIMIT: Budget = Budget(1000);

/// `{Address, Size, References}` of each binary that is stored by reference. The VM does not say how many references
/// there are, so `References` is always 1.
fn binaries(env: Env, handle: Handle<'_>) -> Result<Term, Failure> {
    // A snapshot of few objects may have to pass many of the live table.
    match handle.table().is_snapshot() {
        true => check_unlimited()?,
        false => BINARIES_LIMIT.check(handle.size())?,
    }
    let mut list = Term(NIL);
    let mut selection = Selection::all(handle.table(), Direction::Up);
    let mut met = Met::default();
    loop {
        met.clear();
        let more = handle.slice(&mut selection, BINARIES_LIMIT.0, &mut met)?;
        for object in met.as_slice() {
            for index in 0..object.arity() {
                each_shared(object.element(index), &mut |bytes| {
                    let address = env.unsigned(bytes.as_ptr() as u64);
                    list = env.cons(
                        env.tuple(&[address, env.unsigned(bytes.len() as u64), env.integer(1)]),
                        list,
                    );
                });
            }
        }
        if !more {
            return Ok(list);
        }
    }
}

/// Calls `show` with the bytes of each binary that is stored by reference. The recursion is as deep as stored terms are
/// nested.
fn each_shared(term: TermRef<'_>, show: &mut dyn FnMut(&[u8])) {
    match term.view() {
        View::SharedBinary(_, bytes) => show(bytes),
        View::Tuple(elements) => elements.iter().for_each(|element| each_shared(element, show)),
        View::List(list) => {
            list.elements().iter().for_each(|element| each_shared(element, show));
            each_shared(list.tail(), show);
        }
        View::Map(map) => map
            .keys
            .iter()
            .chain(map.values.iter())
            .for_each(|part| each_shared(part, show)),
        _ => (),
    }
}

/// Tables that a scheduler looks at.
const TABLES_LIMIT: Budget = Budget(1000);

/// The bytes that all tables and snapshots hold.
pub fn memory(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    TABLES_LIMIT.check(registry().count()?)?;
    let mut bytes = 0;
    let mut position = Position::default();
    loop {
        let guard = pin();
        let next = registry().each(&Vm(env), &guard, position, 100, |table| {
            bytes += table.by_identifier(&guard).bytes();
        })?;
        match next {
            Some(next) => position = next,
            None => break,
        }
    }
    let snapshots = all_held_back(&pin(), TABLES_LIMIT.part_of(usize::MAX))?.ok_or(Failure::Big)?;
    Ok(env.unsigned((bytes + snapshots) as u64))
}

/// What was retired, what of it was freed, and the bytes of the rest.
pub fn garbage(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    let Garbage { retired, freed, bytes } = epoch::garbage();
    Ok(env.tuple(&[retired, freed, bytes].map(|number| env.unsigned(number as u64))))
}
