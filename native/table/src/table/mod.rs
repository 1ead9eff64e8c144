//! A table: its name, its owner, its access rights, and where its contents are.

pub(crate) mod changes;
pub(crate) mod contents;
pub(crate) mod counters;
pub(crate) mod options;

use crate::engines::Kind;
use crate::evict::allowance::is_small;
use crate::failure::{Cause, Failure};
use crate::object::group::KeyPlace;
use crate::object::Layout;
use crate::preferred;
use crate::store::other::{Frozen, Other};
use crate::store::Store;
use crate::table::contents::Contents;
use crate::table::counters::{Counters, Operation, OPERATIONS};
use crate::table::options::{Access, Options, Request};
use cats_sync::epoch::{pin, Guard};
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab::Own;
use cats_sync::Busy;
use std::ptr;
use std::sync::OnceLock;

/// Bit of the state: the table is dead.
const DEAD: usize = 0x80;
/// Bit of the state: a call by identifier must look the table up in the registry.
const LOOKED_UP: usize = 0x40;
/// Bit of the state: the table is blank. Its contents are those that all blank tables share.
const BLANK: usize = 0x20;
/// Bit of the state: the table is a snapshot. It is not in the registry.
const SNAPSHOT: usize = 0x10;
/// Bit of the state: the table counts its operations.
const COUNTED: usize = 0x08;
/// Bit of the state: calls on the table tell its recorder which process makes them.
const RECORDED: usize = 0x04;
/// Bit of the state: a transaction uses the table whose process may not write to it from outside. See [`inside`].
const INSIDE: usize = 0x100;
/// The bits of the state for the access.
const ACCESS: usize = 3;

/// The kind of a call, for checking access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Read,
    /// Writes objects. If it is allowed, checking it also gives a blank table contents of its own.
    Write,
    /// Changes the table, not its objects. Allowed if writing is.
    Manage,
    /// Reads what everyone may know about any table.
    Info,
}

/// The word of a name's atom, and above it the number of times that the table was renamed. An operation reads and then checks that the
/// table still has this naming. The number makes that check fail if the table had another name in the meantime (the ABA problem).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Naming(u64);

/// The number of bits of an atom's word: the VM has at most 2^31 atoms, and a word has six bits of tag.
const NAME_BITS: u32 = 40;

impl Naming {
    const NONE: Naming = Naming(0);

    /// The word of the name's atom.
    #[inline]
    pub fn name(self) -> u64 {
        self.0 & ((1 << NAME_BITS) - 1)
    }

    fn renamed(self, name: u64) -> Self {
        debug_assert!(name >> NAME_BITS == 0);
        Self((self.0 >> NAME_BITS).wrapping_add(1) << NAME_BITS | name)
    }
}

/// The owner of a table that nobody owns: of one that was kept when its owner ended. No pid has this word.
pub const NOBODY: u64 = 0;

/// Who knows tables: what a table asks of the registry.
pub trait Keeper: Sync {
    /// Whether calls by identifier must look a table up.
    fn looks_up(&self) -> bool;
    /// Looks a table up that was found by its identifier, where that takes a lock.
    fn holds(&self, table: &Table) -> Result<bool, Busy>;
    /// Calls `f` once, under the lock for the table. Nobody else changes the table meanwhile, nor becomes its owner.
    fn hold(&self, table: &Table, f: &mut dyn FnMut()) -> Result<(), Busy>;
    /// Gives up the reference to a table that is dead and that nobody reads.
    fn give_up(&self, table: *const Table);
}

/// See the module's documentation.
///
/// The value lies in memory that the boundary provides, in a resource of the VM. It stays there as long as anybody has the table's
/// identifier, which may be long after the table was deleted. What a table owns is given up when it dies. A table that the registry does not know, and a
/// snapshot, die when they are dropped.
pub struct Table {
    /// Distinguishes the tables of a registry. Set before anybody else knows the table, and never changed after that: Relaxed is enough.
    serial: AtomicU64,
    options: Options,
    /// The [`Naming`]. Tables that are not found by name have one too.
    /// Release, for a new name, pairs with the Acquire of `naming`.
    naming: AtomicU64,
    /// The word of the owner's pid, or [`NOBODY`](crate::NOBODY).
    /// Release, for a new owner, pairs with the Acquire of `owner`.
    owner: AtomicU64,
    /// The access and the bits [`DEAD`], [`LOOKED_UP`] and [`BLANK`].
    /// Whoever changes it holds the registry's lock for the table, so that Relaxed is enough to load it, and stores with Release. This
    /// pairs with the Acquire of all others: whoever sees a change sees what was done before.
    state: AtomicUsize,
    /// The contents. If they are the table's own, they are retired when the table dies.
    /// Acquire pairs with the Release of who stores others: whoever finds contents sees them whole.
    store: AtomicPtr<Store>,
    /// The bytes that copies for snapshots of the table may have.
    snapshot_limit: usize,
    /// The operations, if they are counted, or were.
    counters: OnceLock<Counters>,
    keeper: &'static dyn Keeper,
}

impl Table {
    /// A table that nobody knows yet. [`Registry::enter`](crate::Registry::enter) makes it known.
    pub fn new(keeper: &'static dyn Keeper, request: Request, name: u64, owner: u64) -> Result<Self, Failure> {
        let Request {
            options,
            setup,
            snapshot_limit,
            counted,
        } = request;
        let counters = match counted {
            true => Counters::new(is_small(setup.as_ref().and_then(|setup| setup.limit)))
                .ok_or(Failure::NoMemory)?
                .into(),
            false => OnceLock::new(),
        };
        let (store, blank) = match setup {
            None => (
                ptr::from_ref(Store::blank(options.engine()).ok_or(Failure::NoMemory)?).cast_mut(),
                BLANK,
            ),
            setup => (Contents::empty(options, setup)?.into_raw(), 0),
        };
        let look_up = if keeper.looks_up() { LOOKED_UP } else { 0 };
        let count = if counted { COUNTED } else { 0 };
        Ok(Self {
            serial: AtomicU64::new(0),
            naming: AtomicU64::new(name),
            owner: AtomicU64::new(owner),
            state: AtomicUsize::new(options.access() as usize | look_up | blank | count),
            store: AtomicPtr::new(store),
            options,
            snapshot_limit,
            counters,
            keeper,
        })
    }

    /// A snapshot of a table. `None` when memory is exhausted.
    pub(crate) fn of_snapshot(source: &Table, snapshot: Box<dyn Other>) -> Option<Self> {
        let options = source.options.of_snapshot();
        let store = Own::new(Store::of_snapshot(snapshot))?;
        Some(Self {
            serial: AtomicU64::new(0),
            naming: AtomicU64::new(source.name()),
            owner: AtomicU64::new(NOBODY),
            state: AtomicUsize::new(options.access() as usize | SNAPSHOT),
            store: AtomicPtr::new(store.into_raw()),
            options,
            snapshot_limit: usize::MAX,
            counters: OnceLock::new(),
            keeper: source.keeper,
        })
    }

    #[inline]
    pub fn serial(&self) -> u64 {
        // Relaxed: whoever has the table got it through a synchronizing operation after the serial was set.
        self.serial.load(Ordering::Relaxed)
    }

    /// To be called before anybody else knows the table.
    pub(crate) fn set_serial(&self, serial: u64) {
        self.serial.store(serial, Ordering::Relaxed);
    }

    #[inline]
    pub fn options(&self) -> Options {
        self.options
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        self.options.kind()
    }

    /// The bytes that copies for snapshots of the table may have.
    pub fn snapshot_limit(&self) -> usize {
        self.snapshot_limit
    }

    /// Whether the table is a snapshot.
    #[inline]
    pub fn is_snapshot(&self) -> bool {
        // Relaxed: this never changes.
        self.state.load(Ordering::Relaxed) & SNAPSHOT != 0
    }

    /// The engine of a snapshot that was not deleted.
    pub(crate) fn snapshot(&self) -> Option<&dyn Frozen> {
        // Acquire pairs with the Release in `delete_snapshot`.
        if self.state.load(Ordering::Acquire) & (SNAPSHOT | DEAD) != SNAPSHOT {
            return None;
        }
        // SAFETY: a snapshot has its store until it is deleted, and longer under guards taken before.
        unsafe { &*self.store_pointer() }.snapshot()
    }

    /// To be called once when the instant of a snapshot is past.
    pub(crate) fn set_snapshot_size(&self) {
        if let Some(snapshot) = self.snapshot() {
            let size = snapshot.set_size();
            // SAFETY: as in `snapshot`.
            unsafe { &*self.store_pointer() }.count(size as i64, 0);
        }
    }

    /// Deletes a snapshot, which anybody may who has it. Fails if it was deleted before.
    pub fn delete_snapshot(&self, guard: &Guard) -> Result<(), Failure> {
        debug_assert!(self.is_snapshot());
        // AcqRel: of several callers, one finds that it is alive.
        if self.state.fetch_or(DEAD, Ordering::AcqRel) & DEAD != 0 {
            return Err(Cause::Id.into());
        }
        // SAFETY: the table has just died, so nobody finds the store any more.
        unsafe { self.retire_snapshot(guard) };
        Ok(())
    }

    /// Gives up the store of a snapshot.
    ///
    /// # Safety
    /// Called once, when nobody finds the store any more.
    unsafe fn retire_snapshot(&self, guard: &Guard) {
        unsafe fn free(store: *mut u8, _: usize) {
            // SAFETY: retired once, and nobody uses it any more.
            drop(unsafe { Own::from_raw(store.cast::<Store>()) });
        }
        // SAFETY: as the caller promises.
        unsafe { guard.retire(self.store_pointer().cast(), 0, free) };
    }

    /// The position of the key in objects, counted from 0.
    #[inline]
    pub fn key(&self) -> usize {
        self.options.key_position() as usize - 1
    }

    /// How objects are stored.
    #[inline]
    pub(crate) fn layout(&self) -> Layout {
        Layout {
            key: self.key(),
            packed: self.options.compressed(),
            leased: self.options.leased(),
            seated: self.options.seated(),
            idle: self.options.idle(),
            bounded: self.options.bounded(),
        }
    }

    /// The key's position, together with a key word.
    #[inline]
    pub(crate) fn key_place(&self, word: u64) -> KeyPlace {
        KeyPlace {
            word,
            place: self.key(),
        }
    }

    pub(crate) fn keeper(&self) -> &'static dyn Keeper {
        self.keeper
    }

    /// The word of the name's atom.
    #[inline]
    pub fn name(&self) -> u64 {
        self.naming().name()
    }

    #[inline]
    pub(crate) fn naming(&self) -> Naming {
        // Acquire pairs with the Release in `set_name`: whoever sees the new name sees everything that was done before the renaming.
        Naming(self.naming.load(Ordering::Acquire))
    }

    /// The caller holds the registry's lock for the table.
    pub(crate) fn set_name(&self, name: u64) {
        self.naming.store(self.naming().renamed(name).0, Ordering::Release);
    }

    /// The word of the owner's pid, or [`NOBODY`](crate::NOBODY).
    #[inline]
    pub fn owner(&self) -> u64 {
        // Acquire pairs with the Release in `set_owner`.
        self.owner.load(Ordering::Acquire)
    }

    /// The caller holds the registry's locks for both owners.
    pub(crate) fn set_owner(&self, owner: u64) {
        self.owner.store(owner, Ordering::Release);
    }

    #[inline]
    pub fn is_dead(&self) -> bool {
        // Acquire pairs with the Release in `kill`.
        self.state.load(Ordering::Acquire) & DEAD != 0
    }

    pub fn access(&self) -> Access {
        match self.state.load(Ordering::Acquire) & ACCESS {
            0 => Access::Public,
            1 => Access::Protected,
            _ => Access::Private,
        }
    }

    /// The caller holds the registry's lock for the table, and the table is not dead.
    pub(crate) fn set_access(&self, access: Access) {
        let flags = self.state.load(Ordering::Relaxed) & !ACCESS;
        self.state.store(access as usize | flags, Ordering::Release);
    }

    /// The caller holds the registry's lock for the table.
    pub(crate) fn kill(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state | DEAD, Ordering::Release);
    }

    /// Ends a table that was never made known.
    ///
    /// # Safety
    /// Nobody else knows it, and this is called once.
    pub(crate) unsafe fn kill_unknown(&self) {
        self.kill();
        // SAFETY: as the caller promises.
        drop(unsafe { self.take_contents() });
    }

    /// The contents of a table that is dead, if they are its own. The address of them stays: see [`store_pointer`](Self::store_pointer).
    ///
    /// # Safety
    /// This is called once, and nobody finds the table any more.
    pub(crate) unsafe fn take_contents(&self) -> Option<Contents> {
        // SAFETY: as the caller promises.
        (!self.is_blank()).then(|| unsafe { Contents::from_raw(self.store_pointer()) })
    }

    /// Whether the table is blank. For a dead table this does not change any more.
    pub(crate) fn is_blank(&self) -> bool {
        // Acquire pairs with the Release in `furnish`: whoever sees that the table is not blank sees its own contents.
        self.state.load(Ordering::Acquire) & BLANK != 0
    }

    /// Whether `caller` may do this to the table, which was found by its identifier. `caller` is called only if it matters.
    #[inline]
    pub fn check(&self, right: Right, caller: impl FnOnce() -> u64) -> Result<(), Failure> {
        self.check_for(&pin(), right, None, caller)
    }

    /// The same. If the caller may, counts the operation for which it asks.
    #[inline]
    pub fn check_for(
        &self,
        guard: &Guard,
        right: Right,
        operation: Option<Operation>,
        caller: impl FnOnce() -> u64,
    ) -> Result<(), Failure> {
        let state = self.state.load(Ordering::Acquire);
        if state & (DEAD | LOOKED_UP | BLANK | SNAPSHOT | COUNTED | RECORDED | INSIDE) != 0 {
            let simple = state & (DEAD | LOOKED_UP | BLANK | SNAPSHOT) == 0;
            let open = simple && Self::is_open(state & ACCESS, right);
            if open && state & (RECORDED | INSIDE) == 0 {
                return self.counted(guard, operation);
            }
            let caller = caller();
            if simple {
                self.tell_caller(guard, state, caller);
                self.check_inside(state, right, caller)?;
            }
            return match open || simple && caller == self.owner() {
                true => self.counted(guard, operation),
                false => self.check_in_general(guard, right, operation, caller),
            };
        }
        self.allows(state, right, caller)
    }

    /// Whether the table lives, needs no further look, and grants this right. `is_owner` says whether the caller is the owner. It is called
    /// only if it matters. If so, counts the operation.
    #[inline(always)]
    pub(crate) fn is_simply_open(
        &self,
        guard: &Guard,
        right: Right,
        operation: Option<Operation>,
        is_owner: impl FnOnce() -> bool,
    ) -> bool {
        let state = self.state.load(Ordering::Acquire);
        match state & (DEAD | LOOKED_UP | BLANK | COUNTED | RECORDED | INSIDE) {
            0 => Self::is_open(state, right) || is_owner(),
            COUNTED => (Self::is_open(state & ACCESS, right) || is_owner()) && self.counted(guard, operation).is_ok(),
            _ => false,
        }
    }

    /// The same for a table that must be looked up in the registry, or is dead, blank, a snapshot or counted.
    #[cold]
    fn check_in_general(
        &self,
        guard: &Guard,
        right: Right,
        operation: Option<Operation>,
        caller: u64,
    ) -> Result<(), Failure> {
        if self.is_snapshot() {
            return self.check_snapshot(right);
        }
        match self.keeper.holds(self)? {
            true => self.check_found(guard, right, operation, || caller),
            false => Err(Cause::Id.into()),
        }
    }

    /// Tells the recorder, if there is one, which process makes this call.
    fn tell_caller(&self, guard: &Guard, state: usize, caller: u64) {
        if state & RECORDED != 0 {
            if let Some(recorder) = self.store(guard).recorder() {
                guard.tell_caller(recorder, caller);
            }
        }
    }

    /// Refuses a write by the process of a transaction that uses the table. If no such transaction runs any more, forgets that one did.
    fn check_inside(&self, state: usize, right: Right, caller: u64) -> Result<(), Failure> {
        if state & INSIDE == 0 {
            return Ok(());
        }
        if preferred::is_nobody_inside() {
            // If it fails, the next call does it.
            let _ = self.note_inside();
        }
        match right == Right::Write && preferred::is_inside(caller) {
            true => Err(Cause::InsideTransaction.into()),
            false => Ok(()),
        }
    }

    /// Counts an operation, if operations are counted. Never fails.
    #[cold]
    #[inline(never)]
    fn counted(&self, guard: &Guard, operation: Option<Operation>) -> Result<(), Failure> {
        if let Some(counters) = self.counters() {
            counters.count(guard, operation);
        }
        Ok(())
    }

    /// Whether operations are counted.
    #[inline(always)]
    pub fn is_counted(&self) -> bool {
        // Relaxed: the counters bring their own order.
        self.state.load(Ordering::Relaxed) & COUNTED != 0
    }

    /// The counters, if operations are counted.
    fn counters(&self) -> Option<&Counters> {
        self.counters.get().filter(|_| self.is_counted())
    }

    /// Makes the counters for [`set_counted`](Self::set_counted).
    pub(crate) fn make_counters(&self, small: bool) -> Result<(), Failure> {
        if self.counters.get().is_none() {
            // Others may be faster.
            _ = self.counters.set(Counters::new(small).ok_or(Failure::NoMemory)?);
        }
        Ok(())
    }

    /// Whether operations are counted from now on. The caller holds the lock for the table, and has made the counters.
    pub(crate) fn set_counted(&self, counted: bool) {
        self.set_bit(COUNTED, counted);
    }

    /// Counts further operations of a call, if operations are counted.
    #[inline(always)]
    pub fn count_more(&self, operation: Operation, times: usize) {
        if self.is_counted() {
            self.add_count(operation, times);
        }
    }

    #[cold]
    fn add_count(&self, operation: Operation, times: usize) {
        if let Some(counters) = self.counters() {
            counters.add(operation, times as u64);
        }
    }

    /// Takes back what this thread counted last, for a call that did nothing and is made again.
    pub fn take_back_count(&self, guard: &Guard) {
        if let Some(counters) = self.counters() {
            counters.take_back(guard);
        }
    }

    /// The number of operations of each kind, if they are counted.
    pub fn operations(&self) -> Option<[u64; OPERATIONS]> {
        self.counters().map(Counters::sums)
    }

    /// Bytes of the counters of operations.
    pub(crate) fn counter_bytes(&self) -> usize {
        self.counters.get().map_or(0, Counters::bytes)
    }

    /// Whether a snapshot lives, and grants this right.
    fn check_snapshot(&self, right: Right) -> Result<(), Failure> {
        Err(match self.snapshot() {
            None => Cause::Id.into(),
            Some(snapshot) if snapshot.is_overfull() => Cause::SnapshotLimit.into(),
            Some(_) if matches!(right, Right::Read | Right::Info) => return Ok(()),
            Some(_) => Cause::Snapshot.into(),
        })
    }

    /// The same for a table that was looked up in the registry.
    pub fn check_found(
        &self,
        guard: &Guard,
        right: Right,
        operation: Option<Operation>,
        caller: impl FnOnce() -> u64,
    ) -> Result<(), Failure> {
        let state = self.state.load(Ordering::Acquire);
        if state & DEAD != 0 {
            return Err(Cause::Id.into());
        }
        if state & (RECORDED | INSIDE) == 0 {
            self.allows(state & ACCESS, right, caller)?;
        } else {
            let caller = caller();
            self.allows(state & ACCESS, right, || caller)?;
            self.tell_caller(guard, state, caller);
            self.check_inside(state, right, caller)?;
        }
        if state & BLANK != 0 && right == Right::Write {
            self.furnish()?;
        }
        self.counted(guard, operation)
    }

    /// Whether everybody has this right.
    #[inline(always)]
    fn is_open(access: usize, right: Right) -> bool {
        match right {
            Right::Read => access != Access::Private as usize,
            Right::Write | Right::Manage => access == Access::Public as usize,
            Right::Info => true,
        }
    }

    #[inline]
    fn allows(&self, access: usize, right: Right, caller: impl FnOnce() -> u64) -> Result<(), Failure> {
        if Self::is_open(access, right) || caller() == self.owner() {
            Ok(())
        } else {
            Err(Cause::Access.into())
        }
    }

    /// The present contents. The table was alive at some time under this guard.
    #[inline]
    pub(crate) fn store<'g>(&self, _guard: &'g Guard) -> &'g Store {
        // Acquire pairs with the Release in `empty`. A store is retired only after the table is dead or has another store.
        let store = self.store.load(Ordering::Acquire);
        // SAFETY: the store lives as long as the table, and longer under guards taken before the table's death.
        unsafe { &*store }
    }

    /// The address of the contents. It stays when the table dies, for operations that began before, under their guards.
    pub(crate) fn store_pointer(&self) -> *mut Store {
        self.store.load(Ordering::Acquire)
    }

    /// A handle for operations on a table found by its identifier.
    #[inline]
    pub fn by_identifier<'g>(&'g self, guard: &'g Guard) -> Handle<'g> {
        Handle {
            table: self,
            guard,
            found_by: Naming::NONE,
        }
    }
}

impl Drop for Table {
    #[inline]
    fn drop(&mut self) {
        let state = *self.state.get_mut();
        if state & (SNAPSHOT | DEAD) == 0 {
            // SAFETY: nobody knew the table, or it would be dead.
            drop(unsafe { self.take_contents() });
        }
        if state & (SNAPSHOT | DEAD) == SNAPSHOT {
            if let Some(snapshot) = self.snapshot() {
                snapshot.release();
            }
            // SAFETY: nobody has the snapshot any more, and it was not deleted.
            unsafe { self.retire_snapshot(&pin()) };
        }
    }
}

/// A table as one call found it, with the call's guard.
#[derive(Clone, Copy)]
pub struct Handle<'g> {
    pub(crate) table: &'g Table,
    pub(crate) guard: &'g Guard,
    /// The naming under which it was found. [`Naming::NONE`] if it was found by its identifier.
    found_by: Naming,
}

impl<'g> Handle<'g> {
    /// A handle for operations on a table found by a name, when it had this naming.
    #[inline]
    pub fn by_name(table: &'g Table, guard: &'g Guard, naming: Naming) -> Self {
        Self {
            table,
            guard,
            found_by: naming,
        }
    }

    /// Counts a lookup that found nothing, in a table that counts its operations.
    #[cold]
    #[inline(never)]
    pub fn count_miss(self) {
        if let Some(counters) = self.table.counters() {
            counters.count_beside(self.guard, Operation::Miss);
        }
    }

    /// The call's guard.
    #[inline]
    pub fn guard(self) -> &'g Guard {
        self.guard
    }

    #[inline]
    pub fn table(self) -> &'g Table {
        self.table
    }

    #[inline]
    pub(crate) fn store(self) -> &'g Store {
        self.table.store(self.guard)
    }

    /// By which a [trace](cats_sync::trace) knows the contents, 0 if they are not the table's own.
    pub fn trace_address(self) -> u64 {
        self.store().trace_address()
    }

    /// Whether the table was found by its identifier, not by a name.
    #[inline]
    pub(crate) fn is_by_identifier(self) -> bool {
        self.found_by == Naming::NONE
    }

    /// Fails if the table was found by name and has another [`Naming`] now. It is called where an operation takes effect. So after a
    /// renaming, no operation by the old name takes effect.
    #[inline]
    pub(crate) fn still_named(self) -> Result<(), Failure> {
        if self.is_by_identifier() || self.found_by == self.table.naming() {
            Ok(())
        } else {
            Err(Failure::Bad(Cause::Id))
        }
    }
}
