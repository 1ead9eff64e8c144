//! `new/2`, `delete/1`, `rename/2`, `whereis/1`, `give_away/3`, `claim/1`, `setopts/2`, `safe_fixtable/2`, `all/0`.

use super::expiry::lifetime;
use super::notices;
use super::*;
use crate::entry::settings;
use cats_sync::slab::account;
use cats_sync::{probe_lazy, trace};
use cats_table::{
    pid_number, Access, Collect, EngineName, EngineOption, Heir, Kind as TableKind, Lifetime, OptionItem, Policy,
    Position, Refusal, Settings, Unit, Values, WriteConcurrency, NOBODY,
};
use std::ffi::CString;
use std::sync::Arc;

/// The most reader groups of one lock. Fails before the settings have been passed.
pub(super) fn reader_groups() -> Result<usize, Failure> {
    settings::reader_groups().ok_or(Failure::NoSettings)
}

pub fn new(env: Env, &[name, options]: &[Term; 2]) -> Result<Term, Failure> {
    if !env.is_atom(name) || !(options.0 == NIL || env.is_list(options)) {
        return Err(bad());
    }
    // First, as they say how the terms of the options are read.
    let groups = reader_groups()?;
    let mut collect = Collect::default();
    let (mut heir, mut receiver) = (None, None);
    let mut rest = options;
    while let Some((option, tail)) = env.cell(rest) {
        if let Some(item) = option_item(env, option) {
            collect.add(item);
        } else if let Some(option) = notices::option(env, option) {
            receiver = Some(option);
        } else {
            heir = heir_option(env, option)?;
        }
        rest = tail;
    }
    if rest.0 != NIL {
        return Err(bad());
    }
    if !reaper::start() {
        return Err(Failure::SystemLimit(atoms::thread()));
    }
    if account::is_spent() {
        return Err(no_memory());
    }
    let request = collect.finish(groups);
    let request = request.map_err(|refusal| refused(env, refusal))?;
    let guard = pin();
    let table = Table::new(registry(), request, name.0, env.this_process().0)?;
    let table = TABLES.own(table);
    if let Some((pid, options)) = receiver {
        notices::set(env, &table, pid, options)?;
    }
    registry().enter(&Vm(env), &guard, &table, heir)?;
    probe_lazy!(
        table_created,
        table.serial(),
        start(&atom_text(name)),
        pid_number(table.owner()),
        start(&c_text(table.options().engine().text().into()))
    );
    trace::record(|| trace::Event::new(trace::Kind::Created, table.serial(), [name.0, 0]).by(table.owner()));
    let term = designation(env, &table);
    // The registry has this reference now, and hands it back by `give_up`.
    table.into_raw();
    Ok(term)
}

/// The text of an atom, for a probe.
#[cold]
fn atom_text(atom: Term) -> CString {
    let mut text = Vec::new();
    crate::held::host::atom_text(atom.0, &mut text);
    c_text(text)
}

/// A text without zeros, which would end it for C.
#[cold]
fn c_text(mut text: Vec<u8>) -> CString {
    text.retain(|byte| *byte != 0);
    CString::new(text).unwrap_or_default()
}

/// Where a text lies. It stays until the end of the caller's statement.
fn start(text: &CString) -> *const c_char {
    text.as_ptr()
}

/// An option that is not about the heir. Inlined, as an item that passes through memory costs as much as to find it.
#[inline(always)]
fn option_item(env: Env, option: Term) -> Option<OptionItem> {
    if !option.is_immediate() {
        return option_of_two(env, option);
    }
    Some(if option == atoms::set() {
        OptionItem::Kind(TableKind::Set)
    } else if option == atoms::ordered_set() {
        OptionItem::Kind(TableKind::OrderedSet)
    } else if option == atoms::bag() {
        OptionItem::Kind(TableKind::Bag)
    } else if option == atoms::duplicate_bag() {
        OptionItem::Kind(TableKind::DuplicateBag)
    } else if option == atoms::public() {
        OptionItem::Access(Access::Public)
    } else if option == atoms::protected() {
        OptionItem::Access(Access::Protected)
    } else if option == atoms::private() {
        OptionItem::Access(Access::Private)
    } else if option == atoms::named_table() {
        OptionItem::NamedTable
    } else if option == atoms::compressed() {
        OptionItem::Compressed
    } else {
        return None;
    })
}

/// The same of an option with a value.
fn option_of_two(env: Env, option: Term) -> Option<OptionItem> {
    let &[what, value] = env.tuple_elements(option)? else {
        return None;
    };
    let flag = || match value {
        value if value == atoms::true_() => Some(true),
        value if value == atoms::false_() => Some(false),
        _ => None,
    };
    if what == atoms::heir() {
        None
    } else if what == atoms::keypos() {
        let position = value.small_integer()?;
        // A key position that no tuple has is one that no object has.
        (position > 0).then(|| OptionItem::KeyPosition(u32::try_from(position).unwrap_or(u32::MAX)))
    } else if what == atoms::write_concurrency() {
        Some(OptionItem::WriteConcurrency(if value == atoms::auto() {
            WriteConcurrency::Auto
        } else if let Some(number) = value.small_integer() {
            WriteConcurrency::locks(u32::try_from(number).ok()?)?
        } else if let Some(flag) = flag() {
            match flag {
                true => WriteConcurrency::True,
                false => WriteConcurrency::False,
            }
        } else {
            hash_locks(env, value)?
        }))
    } else if what == atoms::read_concurrency() {
        flag().map(OptionItem::ReadConcurrency)
    } else if what == atoms::decentralized_counters() {
        flag().map(OptionItem::DecentralizedCounters)
    } else if what == atoms::snapshot_limit() {
        let bytes = value.small_integer()?;
        Some(OptionItem::SnapshotLimit(usize::try_from(bytes).ok()?))
    } else if what == atoms::stats() {
        flag().map(OptionItem::Stats)
    } else if what == atoms::ttl() {
        Some(OptionItem::Ttl(milliseconds(value)?))
    } else if what == atoms::idle() {
        Some(OptionItem::Idle(milliseconds(value)?))
    } else if what == atoms::limit() {
        limit(env, value)
    } else if what == atoms::evict() {
        policy(env, value)
    } else if what == atoms::share() {
        let share = u8::try_from(value.small_integer()?).ok()?;
        (share <= 100).then_some(OptionItem::Share(share))
    } else if what == atoms::engine() {
        EngineName::ALL
            .into_iter()
            .find(|engine| env.atom(engine.text()) == value)
            .map(OptionItem::Engine)
    } else {
        let option = EngineOption::ALL
            .into_iter()
            .find(|option| env.atom(option.text()) == what)?;
        let value = match option.values() {
            Values::Names(names) => names.iter().position(|name| env.atom(name) == value)? as u32,
            Values::Numbers(least, most) => {
                let number = u32::try_from(value.small_integer()?).ok()?;
                (least..=most).contains(&number).then_some(number)?
            }
        };
        Some(OptionItem::OfEngine(option, value))
    }
}

/// A policy of eviction, or `none`.
fn policy(env: Env, value: Term) -> Option<OptionItem> {
    if value == atoms::none() {
        return Some(OptionItem::Evict(None));
    }
    let mut policies = Policy::ALL.iter();
    let policy = policies.find(|policy| env.atom(policy.about().name) == value)?;
    Some(OptionItem::Evict(Some(*policy)))
}

/// `{objects, N}` or `{bytes, N}`.
fn limit(env: Env, value: Term) -> Option<OptionItem> {
    let &[unit, number] = env.tuple_elements(value)? else {
        return None;
    };
    let number = u64::try_from(number.small_integer()?)
        .ok()
        .filter(|number| *number > 0)?;
    if unit == atoms::objects() {
        Some(OptionItem::Limit(Unit::Objects, number))
    } else if unit == atoms::bytes() {
        Some(OptionItem::Limit(Unit::Bytes, number))
    } else {
        None
    }
}

/// Milliseconds. `u64::MAX` stands for `infinity`.
fn milliseconds(value: Term) -> Option<u64> {
    Some(match lifetime(value)? {
        Lifetime::Infinity => u64::MAX,
        Lifetime::Milliseconds(time) => time,
    })
}

/// `{debug_hash_fixed_number_of_locks, Number}`.
#[cold]
fn hash_locks(env: Env, value: Term) -> Option<WriteConcurrency> {
    let &[what, number] = env.tuple_elements(value)? else {
        return None;
    };
    let number = u32::try_from(number.small_integer()?).ok()?;
    WriteConcurrency::hash_locks(number).filter(|_| what == atoms::debug_hash_fixed_number_of_locks())
}

/// What the boundary tells of options that do not go together; `cats_failure` has the words.
#[cold]
fn refused(env: Env, refusal: Refusal) -> Failure {
    let parts = match refusal {
        Refusal::NotBuilt(engine) => {
            return Failure::Bad(env.tuple(&[env.atom("engine_not_built"), env.atom(engine.text())]))
        }
        Refusal::Kind(engine, kind) => ["engine_lacks_type", engine.text(), kind.text()],
        Refusal::Option(engine, option) => ["engine_lacks_option", engine.text(), option.text()],
        Refusal::NoDelegation => return Failure::Bad(env.atom("nothing_delegated")),
        Refusal::NoExpiry => return Failure::Bad(env.atom("no_expiry_here")),
        Refusal::NoLimit => return Failure::Bad(env.atom("no_limit_here")),
        Refusal::SmallLimit => return Failure::Bad(env.atom("small_limit")),
        Refusal::NothingEvicted => return Failure::Bad(env.atom("nothing_evicted")),
        Refusal::NoHashTable => return Failure::Bad(env.atom("no_hash_table")),
        Refusal::NoTtl => return Failure::Bad(env.atom("no_ttl")),
        Refusal::Unlimited => return Failure::Bad(env.atom("unlimited")),
        Refusal::OtherUnit(unit) => return Failure::Bad(env.tuple(&[env.atom("other_unit"), unit_atom(unit)])),
        Refusal::NoQueues => return Failure::Bad(env.atom("no_queues")),
    };
    Failure::Bad(env.tuple(&parts.map(|part| env.atom(part))))
}

/// The engines that are built, for `cats:engines/0`: `{Name, Types, Options, Transactions, OrderStatistics}`. An option is `{Option, Names}`
/// or `{Option, {Least, Most}}`. The last two are the types with which these work.
pub fn engines(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    let option = |option: &EngineOption| {
        let values = match option.values() {
            Values::Names(names) => {
                let names: Vec<Term> = names.iter().map(|name| env.atom(name)).collect();
                env.list(&names)
            }
            Values::Numbers(least, most) => env.tuple(&[env.unsigned(least.into()), env.unsigned(most.into())]),
        };
        env.tuple(&[env.atom(option.text()), values])
    };
    let engine = |engine: EngineName| {
        let kinds: Vec<Term> = engine.kinds().iter().map(|kind| env.atom(kind.text())).collect();
        let options: Vec<Term> = engine.options().iter().map(option).collect();
        let with = |has: fn(EngineName, TableKind) -> bool| {
            let kinds = engine.kinds().iter().filter(|kind| has(engine, **kind));
            let kinds: Vec<Term> = kinds.map(|kind| env.atom(kind.text())).collect();
            env.list(&kinds)
        };
        env.tuple(&[
            env.atom(engine.text()),
            env.list(&kinds),
            env.list(&options),
            with(EngineName::has_transactions),
            with(EngineName::has_order_statistics),
            atoms::boolean(engine.has_snapshots()),
        ])
    };
    let built = EngineName::ALL
        .into_iter()
        .filter(|engine| cats_table::is_built(*engine));
    let engines: Vec<Term> = built.map(engine).collect();
    Ok(env.list(&engines))
}

/// The name of what a limit counts.
pub fn unit_atom(unit: Unit) -> Term {
    match unit {
        Unit::Objects => atoms::objects(),
        Unit::Bytes => atoms::bytes(),
    }
}

/// What the boundary tells of one option.
#[cold]
fn refused_option(env: Env, why: Term, option: Term) -> Failure {
    Failure::Bad(env.tuple(&[why, option]))
}

/// `{heir, none}`, `{heir, keep}`, `{heir, Pid}` or `{heir, Pid, Data}`.
fn heir_option(env: Env, option: Term) -> Result<Option<Heir>, Failure> {
    let invalid = || refused_option(env, atoms::invalid_option(), option);
    let elements = env.tuple_elements(option).ok_or_else(invalid)?;
    match *elements {
        [what, pid] if what == atoms::heir() && pid == atoms::none() => Ok(None),
        [what, pid] if what == atoms::heir() && pid == atoms::keep() => Ok(Some(Heir {
            pid: NOBODY,
            data: None,
        })),
        [what, pid] if what == atoms::heir() && env.local_pid(pid).is_some() => {
            Ok(Some(Heir { pid: pid.0, data: None }))
        }
        [what, pid, data] if what == atoms::heir() && env.local_pid(pid).is_some() => Ok(Some(Heir {
            pid: pid.0,
            data: Some(Arc::new(block(env, &[data])?)),
        })),
        _ => Err(invalid()),
    }
}

pub fn delete(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    let guard = pin();
    if let Some(snapshot) = snapshot_of(env, table) {
        snapshot.delete_snapshot(&guard)?;
        return Ok(atoms::true_());
    }
    let handle = find(env, &guard, table, MANAGE)?;
    registry().delete(&Vm(env), handle)?;
    Ok(atoms::true_())
}

/// The table, if it is a snapshot.
fn snapshot_of(env: Env<'_>, table: Term) -> Option<&Table> {
    let table = (!table.is_immediate()).then(|| TABLES.get(env, table))?;
    table.filter(|table| table.is_snapshot())
}

pub fn rename(env: Env, &[table, name]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, MANAGE)?;
    if !env.is_atom(name) {
        return Err(bad());
    }
    registry().rename(&Vm(env), handle, name.0, env.this_process().0)?;
    notices::renamed(env, handle)?;
    probe_lazy!(table_renamed, handle.table().serial(), start(&atom_text(name)));
    let renamed = || trace::Event::new(trace::Kind::Renamed, handle.table().serial(), [name.0, 0]);
    trace::record(|| renamed().by(env.this_process().0));
    Ok(if handle.table().options().named() { name } else { table })
}

pub fn whereis(env: Env, &[name]: &[Term; 1]) -> Result<Term, Failure> {
    let guard = pin();
    if let Some((table, _)) = find_near(env, &guard, name, INFO) {
        return Ok(identifier(env, table));
    }
    if !env.is_atom(name) {
        return Err(bad());
    }
    match registry().find(&Vm(env), &guard, name.0, env.this_process().0) {
        Ok(handle) => Ok(identifier(env, handle.table())),
        Err(cats_table::Failure::Bad(_)) => Ok(atoms::undefined()),
        Err(failure) => Err(failure.into()),
    }
}

pub fn give_away(env: Env, &[table, process, data]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, MANAGE)?;
    if env.local_pid(process).is_none() || !monitor::is_alive(env, process) {
        return Err(bad());
    }
    let caller = env.this_process().0;
    registry().give_away(&Vm(env), handle, caller, process.0)?;
    send_transfer(env, None, handle.table(), caller, process.0, data);
    Ok(atoms::true_())
}

/// Any process may claim a table that nobody owns, whatever its access.
pub fn claim(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INFO)?;
    if handle.table().is_snapshot() {
        return Err(Cause::Snapshot.into());
    }
    registry().claim(&Vm(env), handle, env.this_process().0)?;
    Ok(atoms::true_())
}

pub fn setopts(env: Env, &[table, options]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, MANAGE)?;
    let mut heir = None;
    let mut access = None;
    let mut settings = Settings::default();
    let mut set = |option: Term| {
        let is_repeated = match env.tuple_elements(option) {
            Some(&[what, value]) if what == atoms::protection() => match option_item(env, value) {
                Some(OptionItem::Access(value)) => access.replace(value).is_some(),
                _ => return Err(refused_option(env, atoms::invalid_option(), option)),
            },
            Some(&[what, _]) if what != atoms::heir() => match option_of_two(env, option) {
                Some(OptionItem::Stats(value)) => settings.counted.replace(value).is_some(),
                Some(OptionItem::Ttl(time)) => settings.ttl.replace(time).is_some(),
                Some(OptionItem::Limit(unit, number)) => settings.limit.replace((unit, number)).is_some(),
                Some(OptionItem::Evict(policy)) => settings.evict.replace(policy).is_some(),
                _ => return Err(refused_option(env, atoms::invalid_option(), option)),
            },
            _ => heir.replace(heir_option(env, option)?).is_some(),
        };
        match is_repeated {
            true => Err(refused_option(env, atoms::repeated_option(), option)),
            false => Ok(()),
        }
    };
    if env.tuple_elements(options).is_some() {
        set(options)?;
    } else {
        let mut rest = options;
        while let Some((option, tail)) = env.cell(rest) {
            set(option)?;
            rest = tail;
        }
        if rest.0 != NIL {
            return Err(bad());
        }
    }
    let caller = env.this_process().0;
    // Whoever may write may have operations counted, so that an operator can.
    let counted = Settings {
        counted: settings.counted,
        ..Settings::default()
    };
    let only_counts = (heir.is_none(), access, settings) == (true, None, counted) && settings.counted.is_some();
    if !only_counts && !registry().owns(&Vm(env), handle, caller)? {
        return Err(bad());
    }
    handle
        .check_settings(settings)
        .map_err(|refusal| refused(env, refusal))?;
    timed(env, || {
        handle.apply(settings).map_err(|failure| match failure {
            cats_table::Failure::Full => Failure::SystemLimit(env.atom("holds_more")),
            failure => failure.into(),
        })
    })?;
    if !only_counts {
        registry().set_options(&Vm(env), handle, caller, heir, access)?;
    }
    Ok(atoms::true_())
}

pub fn safe_fixtable(env: Env, &[table, fix]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, READ)?;
    if fix != atoms::true_() && fix != atoms::false_() {
        return Err(bad());
    }
    if handle.table().is_snapshot() {
        return Ok(atoms::true_());
    }
    registry().fix(&Vm(env), handle, env.this_process().0, fix == atoms::true_())?;
    Ok(atoms::true_())
}

/// Tables that `all/0` lists on a scheduler.
const ALL_LIMIT: Budget = Budget(2000);

pub fn all(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    ALL_LIMIT.check(registry().count()?)?;
    let mut list = Term(NIL);
    let mut position = Position::default();
    loop {
        let guard = pin();
        let next = registry().each(&Vm(env), &guard, position, 100, |table| {
            list = env.cons(designation(env, table), list);
        })?;
        match next {
            Some(next) => position = next,
            None => return Ok(list),
        }
    }
}
