//! All tables: by name, by owner, by fixing process.
//!
//! Names are resolved by [`lock_free`], or by another [`Directory`], for comparison. Every change of a table's name, owner,
//! heir, access or life takes a lock here for a moment. It is the lock of the part of the registry that the owner belongs to. A
//! table whose owner is dead is dead for whoever asks by name, and whoever meets one completes what the owner's death demands:
//! deletion, transfer to the heir, or a table without an owner until a process claims it.

mod lock_free;
#[cfg(feature = "compared")]
mod locked;

use crate::exclusive::Exclusive;
use crate::failure::{Cause, Failure};
use crate::garbage::{self, Expected, Garbage, Left, ReapProcess};
use crate::store::retire::free_store;
use crate::table::contents::Contents;
use crate::table::counters::Operation;
use crate::table::options::Access;
use crate::table::{Handle, Keeper, Naming, Right, Table, NOBODY};
use cats_sync::epoch::{pin, Guard};
use cats_sync::probe;
use cats_sync::trace::{self, Event, Kind};
use cats_sync::Busy;
use cats_term::Block;
use lock_free::LockFree;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What the registry asks of the VM, on behalf of one call.
pub trait Host {
    /// Whether the process lives.
    fn is_alive(&self, pid: u64) -> bool;
    /// Sees to it that [`Registry::owner_down`] is called when the process ends; false if it has ended.
    fn watch(&self, pid: u64) -> bool;
    /// Sends `{'ETS-TRANSFER', Table, From, Data}` to `to`; the data is the first element of the block.
    fn transfer(&self, table: &Table, from: u64, to: u64, data: &Block);
    /// Wakes the thread that calls [`Registry::reap`].
    fn wake(&self);
    /// The time.
    fn now(&self) -> Time;
    /// Whether the process that makes the call may end during it.
    fn may_outlive_caller(&self) -> bool;
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Monotonic, in the VM's native unit.
    pub monotonic: i64,
    /// Microseconds since the epoch.
    pub system: i64,
}

/// Who gets a table when its owner ends.
#[derive(Clone)]
pub struct Heir {
    /// With [`NOBODY`] the table stays, without an owner.
    pub pid: u64,
    /// The data of the message that the heir gets, in a tuple; no message without it.
    pub data: Option<Arc<Block>>,
}

/// The address of a table that is known to the registry.
#[derive(Clone, Copy)]
struct Known(*const Table);

// SAFETY: a table may be used by any thread.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

/// What can take the place of [`LockFree`]. All tables are in it, and calls by identifier look their table up too.
trait Directory: Send + Sync {
    /// Whether a table, found by its identifier, is there.
    fn holds(&self, table: &Table) -> Result<bool, Busy>;
    /// The table of a name.
    fn find(&self, name: u64) -> Result<Option<Known>, Busy>;
    /// Enters a table, by `name` too if there is one; false, and nothing done, if the name is taken.
    fn enter(&self, table: &Table, name: Option<u64>) -> Result<bool, Busy>;
    /// Kills a table and removes it, and its name if there is one.
    fn remove(&self, table: &Table, name: Option<u64>) -> Result<(), Busy>;
    /// Gives a table another name, unless that is taken.
    fn rename(&self, table: &Table, name: u64) -> Result<bool, Busy>;
}

struct Member {
    table: Known,
    /// Few tables have any of it.
    more: Option<Box<More>>,
}

impl Member {
    fn heir(&self) -> Option<&Heir> {
        self.more.as_ref()?.heir.as_ref()
    }

    /// The processes that have fixed the table.
    fn fixers(&self) -> &[(u64, u64)] {
        self.more.as_ref().map_or(&[], |more| &more.fixers)
    }
}

#[derive(Default)]
struct More {
    heir: Option<Heir>,
    /// Fixing processes, each with how many times.
    fixers: Vec<(u64, u64)>,
    fixed_at: Time,
}

/// The tables of some owners, by owner and serial number.
#[derive(Default)]
struct Members {
    tables: BTreeMap<(u64, u64), Member>,
    /// The one that came last, unless it went or another one did: a table that is soon deleted never comes into the tree.
    latest: Option<((u64, u64), Member)>,
    /// How many tables there were.
    made: u64,
}

impl Members {
    fn get(&self, owner: u64, table: &Table) -> Option<&Member> {
        let key = (owner, table.serial());
        match &self.latest {
            Some((latest, member)) if *latest == key => Some(member),
            _ => self.tables.get(&key),
        }
    }

    fn get_mut(&mut self, owner: u64, table: &Table) -> Option<&mut Member> {
        let key = (owner, table.serial());
        match &mut self.latest {
            Some((latest, member)) if *latest == key => Some(member),
            _ => self.tables.get_mut(&key),
        }
    }

    fn insert(&mut self, owner: u64, table: &Table, member: Member) {
        let former = self.latest.replace(((owner, table.serial()), member));
        self.tables.extend(former);
    }

    fn remove(&mut self, owner: u64, table: &Table) -> Option<Member> {
        let key = (owner, table.serial());
        match self.latest.take_if(|(latest, _)| *latest == key) {
            Some((_, member)) => Some(member),
            None => self.tables.remove(&key),
        }
    }

    /// All tables.
    fn in_order(&mut self) -> &BTreeMap<(u64, u64), Member> {
        self.tables.extend(self.latest.take());
        &self.tables
    }

    /// The first of an owner's tables.
    fn first_of(&mut self, owner: u64) -> Option<Known> {
        let first = self.in_order().range((owner, 0)..=(owner, u64::MAX)).next();
        first.map(|(_, member)| member.table)
    }

    /// The tables behind a place, in order.
    fn after(&mut self, place: Bound<(u64, u64)>) -> impl Iterator<Item = (Position, Known)> + '_ {
        let range = self.in_order().range((place, Bound::Unbounded));
        range.map(|(key, member)| (Position(Some(*key)), member.table))
    }

    fn len(&self) -> usize {
        self.tables.len() + usize::from(self.latest.is_some())
    }
}

/// Bytes of the registry for a table: nodes of a tree that grows at its end are half full.
const MEMBER_BYTES: usize = 2 * size_of::<((u64, u64), Member)>();
/// Bytes for the name of a table: an entry of a hash engine, with its share of the free places.
const NAME_BYTES: usize = 32;

/// Parts of the registry: the tables of different owners are rarely in one.
const PARTS: usize = 64;
/// Where in a serial number the part stands that gave it.
const SERIAL_BITS: u32 = 56;

/// The tables of some owners, in lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Part(Exclusive<Members>);

/// Attempts at what depends on others that are in the middle of something.
const ATTEMPTS: usize = 100;

/// Who has fixed a table, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixation {
    pub since: Time,
    pub processes: Vec<(u64, u64)>,
}

/// See the module's documentation.
pub struct Registry {
    names: LockFree,
    /// In use in place of `names`, if it is there.
    other: OnceLock<Box<dyn Directory>>,
    parts: Box<[Part]>,
    /// By fixing process and serial number. Its lock is taken after that of a part.
    fixes: Exclusive<BTreeMap<(u64, u64), Known>>,
    /// Gives up the registry's reference to a table.
    give_up: fn(*const Table),
}

impl Registry {
    /// An empty registry. `give_up` is called, on any thread, when the registry and all readers are done with a table that was
    /// entered.
    /// Nothing when memory is exhausted.
    pub fn new(give_up: fn(*const Table)) -> Option<Self> {
        Some(Self {
            names: LockFree::new()?,
            other: OnceLock::new(),
            parts: (0..PARTS).map(|_| Part::default()).collect(),
            fixes: Exclusive::default(),
            give_up,
        })
    }

    /// Bytes that a registry takes for a table, without what few tables have.
    pub(crate) fn bytes_of(table: &Table) -> usize {
        MEMBER_BYTES + if table.options().named() { NAME_BYTES } else { 0 }
    }

    /// Keeps all tables in locked meta tables from now on, where the readers of a lock are divided into `reader_groups` groups. To
    /// be called before there is any table.
    #[cfg(feature = "compared")]
    pub fn use_locks(&self, reader_groups: usize) {
        debug_assert!(self
            .parts
            .iter()
            .all(|part| part.0.with(|members| members.made) == Ok(0)));
        self.other.get_or_init(|| Box::new(locked::Locked::new(reader_groups)));
    }

    /// Whether tables are in locked meta tables.
    pub fn uses_locks(&self) -> bool {
        self.other.get().is_some()
    }

    /// The number of the part that a process belongs to. The lowest bits of a pid's word are a tag, those above count processes.
    fn place(owner: u64) -> usize {
        (owner >> 4) as usize % PARTS
    }

    fn members(&self, owner: u64) -> &Exclusive<Members> {
        &self.parts[Self::place(owner)].0
    }

    /// A number for a new table of this owner, whose part's members these are.
    fn next_serial(members: &mut Members, owner: u64) -> u64 {
        members.made += 1;
        members.made | (Self::place(owner) as u64) << SERIAL_BITS
    }

    /// Runs `f` under the lock of the table's owner's part: nobody else changes the table meanwhile, nor becomes its owner.
    fn hold<R>(&self, table: &Table, f: impl FnOnce(&mut Members, u64) -> R) -> Result<R, Busy> {
        let mut f = Some(f);
        for _ in 0..ATTEMPTS {
            let owner = table.owner();
            let done = self.members(owner).with(|members| {
                let f = f.take_if(|_| table.owner() == owner)?;
                Some(f(members, owner))
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
        Err(Busy)
    }

    /// Makes a new table known, by its name too if it is a named one. On success the registry owns one reference to it; if it
    /// fails, the table is dead.
    pub fn enter(&self, host: &dyn Host, guard: &Guard, table: &Table, heir: Option<Heir>) -> Result<(), Failure> {
        let entered = self.try_enter(host, guard, table, heir);
        if entered.is_err() {
            // SAFETY: it is a new one.
            unsafe { table.kill_unknown() };
        }
        entered
    }

    fn try_enter(&self, host: &dyn Host, guard: &Guard, table: &Table, heir: Option<Heir>) -> Result<(), Failure> {
        let owner = table.owner();
        // A dead heir is no heir, as in ETS.
        let heir = heir.filter(|heir| heir.pid == owner || stands(host, heir.pid));
        if !host.watch(owner) {
            return Err(Cause::None.into());
        }
        for _ in 0..ATTEMPTS {
            let entered = self.members(owner).with(|members| {
                table.set_serial(Self::next_serial(members, owner));
                if !self.introduce(guard, table)? {
                    return Ok(false);
                }
                let more = heir.clone().map(|heir| More {
                    heir: Some(heir),
                    ..More::default()
                });
                let member = Member {
                    table: Known(table),
                    more: more.map(Box::new),
                };
                members.insert(owner, table, member);
                Ok::<_, Failure>(true)
            })??;
            if entered {
                table.tell_contents(guard);
                // The owner's death may have been reported before.
                if host.may_outlive_caller() && !host.is_alive(owner) {
                    self.owner_down(host, owner);
                }
                return Ok(());
            }
            // The name is taken, unless that table's owner is dead. One that is being withdrawn leads nowhere, and is not free yet.
            match self.find(host, guard, table.name(), owner) {
                Ok(_) => return Err(Cause::AlreadyExists.into()),
                Err(Failure::Bad(_)) => (),
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Busy)
    }

    /// Makes a table findable, unless its name is taken.
    fn introduce(&self, guard: &Guard, table: &Table) -> Result<bool, Busy> {
        let name = table.options().named().then(|| table.name());
        match (self.other.get(), name) {
            (Some(other), name) => other.enter(table, name),
            (None, Some(name)) => self.names.claim(guard, name, table),
            (None, None) => Ok(true),
        }
    }

    /// Makes a table dead, and lets nobody find it any more.
    fn kill(&self, guard: &Guard, table: &Table) -> Result<(), Busy> {
        let named = table.options().named();
        match self.other.get() {
            Some(other) => other.remove(table, named.then(|| table.name()))?,
            None if named => self.names.remove(guard, table)?,
            None => table.kill(),
        }
        Ok(())
    }

    /// The table that a name leads to.
    fn look_up(&self, guard: &Guard, name: u64) -> Result<Option<Known>, Busy> {
        match self.other.get() {
            None => self.names.find(guard, name),
            Some(other) => other.find(name),
        }
    }

    /// The table of a name, with its [`Naming`], in the usual case. Then the table is in its place, and nothing is to be done for it first.
    /// The caller has this right to it. The owner is the caller, or lives. Otherwise returns nothing, and [`find`](Self::find) says why.
    #[inline(always)]
    pub fn find_near<'g>(
        &self,
        guard: &'g Guard,
        name: u64,
        (right, operation): (Right, Option<Operation>),
        caller: u64,
        is_alive: impl FnOnce(u64) -> bool,
    ) -> Option<(&'g Table, Naming)> {
        // With another directory, no table is in such a place.
        let (table, naming) = self.names.near(guard, name)?;
        let owner = table.owner();
        let is_open = table.is_simply_open(guard, right, operation, || caller == owner);
        (is_open && (owner == caller || owner == NOBODY || is_alive(owner))).then_some((table, naming))
    }

    /// The table of a name. If its owner is dead, first completes what that demands.
    pub fn find<'g>(&self, host: &dyn Host, guard: &'g Guard, name: u64, caller: u64) -> Result<Handle<'g>, Failure> {
        loop {
            let Some(known) = self.look_up(guard, name)? else {
                return Err(Cause::Id.into());
            };
            // SAFETY: the registry's reference to an entered table is given up through the epoch, after the name is gone.
            let table: &'g Table = unsafe { &*known.0 };
            let naming = table.naming();
            if table.is_dead() || naming.name() != name {
                return Err(Cause::Id.into());
            }
            let owner = table.owner();
            if owner == caller || stands(host, owner) {
                return Ok(Handle::by_name(table, guard, naming));
            }
            self.complete(host, guard, table, owner)?;
        }
    }

    /// Whether a table that was found by its identifier lives; if its owner is dead, first completes what that demands.
    pub fn lives(&self, host: &dyn Host, guard: &Guard, table: &Table) -> Result<bool, Failure> {
        loop {
            if table.is_dead() {
                return Ok(false);
            }
            let owner = table.owner();
            if stands(host, owner) {
                return Ok(true);
            }
            self.complete(host, guard, table, owner)?;
        }
    }

    /// Whether a table is the caller's. If its owner is dead, first completes what that demands.
    pub fn owns(&self, host: &dyn Host, handle: Handle<'_>, caller: u64) -> Result<bool, Failure> {
        let table = handle.table();
        if table.owner() != caller {
            self.lives(host, handle.guard, table)?;
        }
        Ok(table.owner() == caller)
    }

    /// Does what the death of `owner` demands of a table, unless the table has another owner by now.
    fn complete(&self, host: &dyn Host, guard: &Guard, table: &Table, owner: u64) -> Result<(), Failure> {
        let heir = self
            .members(owner)
            .with(|members| members.get(owner, table).and_then(|member| member.heir().cloned()))?;
        let accepts = |heir: &Heir| heir.pid == NOBODY || heir.pid != owner && host.watch(heir.pid);
        let Some(heir) = heir.filter(accepts) else {
            return self.remove(host, table.by_identifier(guard), Some(owner));
        };
        if self.hand_over(host, table.by_identifier(guard), owner, heir.pid)? {
            if let Some(data) = &heir.data {
                host.transfer(table, owner, heir.pid, data);
            }
        }
        Ok(())
    }

    /// Makes `to`, which is watched or is [`NOBODY`], the owner, if `from` is the owner now and the table still has the name
    /// by which it was found.
    fn hand_over(&self, host: &dyn Host, handle: Handle<'_>, from: u64, to: u64) -> Result<bool, Failure> {
        let table = handle.table();
        let hand = |leaving: &mut Members, coming: Option<&mut Members>| {
            if handle.still_named().is_err() {
                return false;
            }
            let Some(member) = leaving.remove(from, table) else {
                return false;
            };
            coming.unwrap_or(leaving).insert(to, table, member);
            table.set_owner(to);
            probe!(table_given, table.serial(), pid_number(from), pid_number(to));
            trace::record(|| Event::new(Kind::Given, table.serial(), [from, to]));
            true
        };
        let (leaving, coming) = (self.members(from), self.members(to));
        // In the order of the parts.
        let done = match Self::place(from).cmp(&Self::place(to)) {
            Equal => leaving.with(|both| hand(both, None))?,
            Less => leaving.with(|leaving| coming.with(|coming| hand(leaving, Some(coming))))??,
            Greater => coming.with(|coming| leaving.with(|leaving| hand(leaving, Some(coming))))??,
        };
        if done && !stands(host, to) {
            // Its end may have been seen before the table was its.
            self.owner_down(host, to);
        }
        Ok(done)
    }

    /// `give_away/3`: the caller has write access, and `to` is a local process. The message is the caller's to send.
    pub fn give_away(&self, host: &dyn Host, handle: Handle<'_>, caller: u64, to: u64) -> Result<(), Failure> {
        if !host.watch(to) {
            return Err(Cause::None.into());
        }
        handle.still_named()?;
        if !self.owns(host, handle, caller)? {
            return Err(Cause::NotOwner.into());
        }
        if to == caller {
            return Err(Cause::Owner.into());
        }
        if self.hand_over(host, handle, caller, to)? {
            Ok(())
        } else {
            Err(Cause::Id.into())
        }
    }

    /// `claim/1`: makes the caller the owner of a table that nobody owns.
    pub fn claim(&self, host: &dyn Host, handle: Handle<'_>, caller: u64) -> Result<(), Failure> {
        let table = handle.table();
        if !host.watch(caller) {
            return Err(Cause::None.into());
        }
        // Its owner may just have ended.
        if !self.lives(host, handle.guard, table)? {
            return Err(Cause::Id.into());
        }
        // Of several callers, one finds the table without an owner.
        match self.hand_over(host, handle, NOBODY, caller)? {
            true => Ok(()),
            false if table.is_dead() || handle.still_named().is_err() => Err(Cause::Id.into()),
            false => Err(Cause::Owned.into()),
        }
    }

    /// `setopts/2`, by the owner: another heir (or none), another access.
    pub fn set_options(
        &self,
        host: &dyn Host,
        handle: Handle<'_>,
        caller: u64,
        heir: Option<Option<Heir>>,
        access: Option<Access>,
    ) -> Result<(), Failure> {
        let table = handle.table();
        let heir = heir.map(|heir| heir.filter(|heir| heir.pid == caller || stands(host, heir.pid)));
        self.hold(table, |members, _| {
            handle.still_named()?;
            if table.is_dead() {
                return Err(Cause::Id.into());
            }
            let Some(member) = members.get_mut(caller, table) else {
                return Err(Cause::None.into());
            };
            if let Some(heir) = heir {
                member.more.get_or_insert_default().heir = heir;
            }
            if let Some(access) = access {
                table.set_access(access);
            }
            Ok(())
        })?
    }

    /// Gives a table another name: [`Cause::None`] if it is taken. The caller has write access.
    pub fn rename(&self, host: &dyn Host, handle: Handle<'_>, name: u64, caller: u64) -> Result<(), Failure> {
        let (table, guard) = (handle.table(), handle.guard);
        for _ in 0..ATTEMPTS {
            if table.options().named() {
                match self.find(host, guard, name, caller) {
                    Ok(_) => return Err(Cause::None.into()),
                    Err(Failure::Bad(_)) => (),
                    Err(failure) => return Err(failure),
                }
            }
            let renamed = self.hold(table, |_, _| {
                handle.still_named()?;
                if table.is_dead() {
                    return Err(Failure::Bad(Cause::Id));
                }
                if !table.options().named() {
                    table.set_name(name);
                    return Ok(true);
                }
                Ok(match self.other.get() {
                    None => self.names.rename(guard, table, name)?,
                    Some(other) => other.rename(table, name)?,
                })
            })??;
            if renamed {
                return Ok(());
            }
        }
        Err(Failure::Busy)
    }

    /// `delete/1`. The caller has write access.
    pub fn delete(&self, host: &dyn Host, handle: Handle<'_>) -> Result<(), Failure> {
        self.remove(host, handle, None)
    }

    /// Makes a table dead (if `owner` is its owner, when one is given), and leaves its contents to the reaper.
    fn remove(&self, host: &dyn Host, handle: Handle<'_>, owner: Option<u64>) -> Result<(), Failure> {
        let (table, guard) = (handle.table(), handle.guard);
        let removed = self.hold(table, |members, now| {
            handle.still_named()?;
            if table.is_dead() {
                return Err(Cause::Id.into());
            }
            if owner.is_some_and(|owner| owner != now) {
                return Ok(None);
            }
            let fixers = members.get(now, table).map_or(&[][..], Member::fixers);
            if !fixers.is_empty() {
                self.fixes.with(|fixes| {
                    for (pid, _) in fixers {
                        fixes.remove(&(*pid, table.serial()));
                    }
                })?;
            }
            self.kill(guard, table)?;
            if let Some(events) = table.store(guard).recordable() {
                events.set_recorder(None);
            }
            // What goes with it is freed without the lock.
            Ok::<_, Failure>(Some(members.remove(now, table).and_then(|member| member.more)))
        })?;
        match removed {
            Ok(Some(_more)) => {
                probe!(table_deleted, table.serial(), pid_number(table.owner()));
                trace::record(|| Event::new(Kind::Deleted, table.serial(), [0, 0]).by(table.owner()));
                // SAFETY: the table is dead and its name gone: nobody finds the store or the registry's reference any more.
                unsafe { self.retire_table(guard, table) };
                wake(host);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(failure) if owner.is_none() => Err(failure),
            Err(Failure::Bad(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Frees a table and what it contains once nobody reads them: the contents of a small one at once, others by the reaper.
    ///
    /// # Safety
    /// The table is dead, and nobody finds it any more.
    unsafe fn retire_table(&self, guard: &Guard, table: &Table) {
        // SAFETY: as the caller promises; a table dies once.
        let contents = unsafe { table.take_contents() };
        let (expected, bytes) = contents.map_or((None, 0), Contents::go_with_table);
        let expected = expected.map(Expected::into_raw).is_some();
        // SAFETY: as the caller promises; a table dies once.
        unsafe {
            guard.retire_sized(
                ptr::from_ref(table).cast_mut().cast(),
                expected.into(),
                give_up_table,
                bytes,
            )
        }
    }

    /// A process that owned or fixed tables has ended. What that demands is done by the reaper, or by whoever is faster.
    pub fn owner_down(&self, host: &dyn Host, pid: u64) {
        Expected::new().enqueue(Ended(pid));
        wake(host);
    }

    /// Clears away for about `budget`. What another thread is at is left to it.
    pub fn reap(&self, host: &dyn Host, budget: Duration) -> Left {
        garbage::clear(budget, &|pid| self.reap_process(host, &pin(), pid))
    }

    /// Does one step of what a process' end demands; false when nothing is left to do.
    pub fn reap_process(&self, host: &dyn Host, guard: &Guard, pid: u64) -> Result<bool, Failure> {
        let next = self.members(pid).with(|members| members.first_of(pid))?;
        if let Some(known) = next {
            // SAFETY: found under this guard while the registry knew it.
            let table = unsafe { &*known.0 };
            self.complete(host, guard, table, pid)?;
            return Ok(true);
        }
        let fix = self.fixes.with(|fixes| {
            let first = fixes.range((pid, 0)..=(pid, u64::MAX)).next();
            first.map(|(key, known)| (*key, *known))
        })?;
        let Some((key, known)) = fix else {
            return Ok(false);
        };
        // SAFETY: fixes are removed before their table is retired, and this one was found under this guard.
        let table = unsafe { &*known.0 };
        self.hold(table, |members, owner| {
            self.fixes.with(|fixes| fixes.remove(&key))?;
            let member = members.get_mut(owner, table);
            if let Some(more) = member.and_then(|member| member.more.as_mut()) {
                more.fixers.retain(|(fixer, _)| *fixer != pid);
            }
            Ok(true)
        })?
    }

    /// `safe_fixtable/2`: keeps account only, as traversal is safe without it.
    pub fn fix(&self, host: &dyn Host, handle: Handle<'_>, caller: u64, fixed: bool) -> Result<(), Failure> {
        let table = handle.table();
        if fixed && !host.watch(caller) {
            return Err(Cause::None.into());
        }
        let now = host.now();
        self.hold(table, |members, owner| {
            handle.still_named()?;
            let Some(member) = members.get_mut(owner, table) else {
                return Err(Cause::Id.into());
            };
            let place = member.fixers().iter().position(|(pid, _)| *pid == caller);
            let more = member.more.get_or_insert_default();
            match (fixed, place) {
                (true, Some(place)) => more.fixers[place].1 += 1,
                (true, None) => {
                    self.fixes
                        .with(|fixes| fixes.insert((caller, table.serial()), Known(table)))?;
                    if more.fixers.is_empty() {
                        more.fixed_at = now;
                    }
                    more.fixers.push((caller, 1));
                }
                (false, Some(place)) if more.fixers[place].1 > 1 => more.fixers[place].1 -= 1,
                (false, Some(place)) => {
                    self.fixes.with(|fixes| fixes.remove(&(caller, table.serial())))?;
                    more.fixers.swap_remove(place);
                }
                (false, None) => (),
            }
            Ok(())
        })?
    }

    /// Who has fixed the table; nothing when nobody has.
    pub fn fixation(&self, host: &dyn Host, handle: Handle<'_>) -> Result<Option<Fixation>, Failure> {
        let table = handle.table();
        let fixation = self.hold(table, |members, owner| {
            let member = members.get(owner, table)?;
            member.more.as_ref().map(|more| Fixation {
                since: more.fixed_at,
                processes: more.fixers.clone(),
            })
        })?;
        Ok(fixation.and_then(|mut fixation| {
            fixation.processes.retain(|(pid, _)| host.is_alive(*pid));
            (!fixation.processes.is_empty()).then_some(fixation)
        }))
    }

    /// The heir's pid, or [`NOBODY`] if the table is to be kept.
    pub fn heir(&self, table: &Table) -> Result<Option<u64>, Failure> {
        Ok(self.hold(table, |members, owner| {
            let member = members.get(owner, table)?;
            member.heir().map(|heir| heir.pid)
        })?)
    }

    /// Shows up to `limit` tables that live, from a position on; the position to go on from, if there are more. A table that
    /// lives during the whole walk is shown, unless it changes its owner.
    pub fn each(
        &self,
        host: &dyn Host,
        guard: &Guard,
        from: Position,
        limit: usize,
        mut show: impl FnMut(&Table),
    ) -> Result<Option<Position>, Failure> {
        let mut some = Vec::<(Position, Known)>::new();
        let mut lower = from.0.map_or(Bound::Unbounded, Bound::Excluded);
        let first = from.0.map_or(0, |(owner, _)| Self::place(owner));
        for part in &self.parts[first..] {
            part.0
                .with(|members| some.extend(members.after(lower).take(limit - some.len())))?;
            lower = Bound::Unbounded;
        }
        for (_, known) in &some {
            // SAFETY: found under this guard while the registry knew it.
            let table = unsafe { &*known.0 };
            if self.lives(host, guard, table)? {
                show(table);
            }
        }
        let more = some.len() == limit;
        Ok(some.last().filter(|_| more).map(|(position, _)| *position))
    }

    /// The number of tables, roughly while others make and delete some.
    pub fn count(&self) -> Result<usize, Failure> {
        let mut count = 0;
        for part in &self.parts {
            count += part.0.with(|members| members.len())?;
        }
        Ok(count)
    }
}

impl Keeper for Registry {
    fn looks_up(&self) -> bool {
        self.uses_locks()
    }

    fn holds(&self, table: &Table) -> Result<bool, Busy> {
        self.other.get().map_or(Ok(true), |other| other.holds(table))
    }

    fn hold(&self, table: &Table, f: &mut dyn FnMut()) -> Result<(), Busy> {
        Self::hold(self, table, |_, _| f())
    }

    fn give_up(&self, table: *const Table) {
        (self.give_up)(table);
    }
}

/// Whether a table may stay with this owner: it lives, or is [`NOBODY`].
fn stands(host: &dyn Host, owner: u64) -> bool {
    owner == NOBODY || host.is_alive(owner)
}

/// The number of a process, for probes: that between the dots of its pid, or 0 for [`NOBODY`].
pub fn pid_number(pid: u64) -> u64 {
    // The lowest bits are a tag. From OTP 26 on all 28 bits above are the number. Before, 15 of them are printed as the number.
    (pid >> 4) & 0xfff_ffff
}

/// Where a walk over all tables stands; the default is the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position(Option<(u64, u64)>);

/// A process that has ended.
struct Ended(u64);

impl Garbage for Ended {
    fn step(&mut self, reap: ReapProcess<'_>) -> Result<bool, Failure> {
        reap(self.0)
    }
}

/// Wakes the reaper if there is news for it.
pub fn wake(host: &dyn Host) {
    if garbage::unheard() {
        host.wake();
    }
}

/// Frees what a retired table contained, if that was its own, and gives up the registry's reference to the table. The number says whether the
/// reaper expects the contents.
///
/// # Safety
/// As for [`free_store`].
unsafe fn give_up_table(table: *mut u8, expected: usize) {
    let table = table.cast::<Table>();
    // SAFETY: the registry still has its reference to the table, and nobody else looks at what it contained. The number was made from an
    // expectation.
    unsafe {
        if expected != 0 || !(*table).is_blank() {
            free_store((*table).store_pointer(), (expected != 0).then(|| Expected::from_raw()));
        }
        (*table).keeper().give_up(table);
    }
}
