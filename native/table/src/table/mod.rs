//! A table: what it is called, who owns it, who may do what, and where its contents are.

pub(crate) mod engines;
pub(crate) mod options;
pub(crate) mod store;

use crate::failure::{Cause, Failure};
use crate::object::group::KeyPlace;
use crate::object::Layout;
use crate::registry::Registry;
use crate::table::options::{Access, Kind, Options, Request};
use crate::table::store::Store;
use cats_engine::config::Config;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab::Own;
use std::ptr;

/// Bit of the state: the table is deleted.
const DEAD: usize = 0x80;
/// Bit of the state: whoever comes by the identifier has to look it up in the registry.
const LOOKED_UP: usize = 0x40;
/// Bit of the state: nobody has written to the table yet. Its contents are those that all such tables share.
const BLANK: usize = 0x20;
/// The access, in the state.
const ACCESS: usize = 3;

/// What an operation does to a table, as far as access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Read,
    /// To write objects. Who is allowed to finds contents to write to.
    Write,
    /// As writing, to do something to the table, not to its objects.
    Manage,
    /// What everyone may know of any table.
    Info,
}

/// The word of a name's atom, and above it a count of the table's renamings. A reader compares it before and after. The count
/// shows it a table that had another name meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Naming(u64);

/// Bits of an atom's word: the VM has at most 2^31 atoms, and six bits of tag.
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

/// See the module's documentation.
///
/// The value lives in memory that the boundary provides (a resource of the VM) for as long as anybody has its identifier, which
/// may be long after the table was deleted. It has nothing to be dropped: what a table owns ends with its death, or with the attempt to
/// make it known.
pub struct Table {
    /// Distinguishes the tables of a registry. Given before the table is known, and then never changed.
    serial: AtomicU64,
    options: Options,
    /// The [`Naming`], also of a table that is not found by its name.
    naming: AtomicU64,
    /// The word of the owner's pid.
    owner: AtomicU64,
    /// The access, with [`DEAD`], [`LOOKED_UP`] and [`BLANK`].
    state: AtomicUsize,
    /// The contents, retired when the table dies, unless they are not its own.
    store: AtomicPtr<Store>,
    registry: &'static Registry,
}

impl Table {
    /// A table that nobody knows yet: to be made known by [`Registry::enter`].
    pub fn new(registry: &'static Registry, request: Request, name: u64, owner: u64) -> Result<Self, Failure> {
        const { assert!(!std::mem::needs_drop::<Self>()) };
        let Request { options, config } = request;
        let (store, blank) = match config {
            None => (
                ptr::from_ref(Store::blank(options.engine()).ok_or(Failure::SystemLimit)?).cast_mut(),
                BLANK,
            ),
            config => (empty_store(options, config)?.into_raw(), 0),
        };
        let look_up = if registry.uses_locks() { LOOKED_UP } else { 0 };
        Ok(Self {
            serial: AtomicU64::new(0),
            naming: AtomicU64::new(name),
            owner: AtomicU64::new(owner),
            state: AtomicUsize::new(options.access() as usize | look_up | blank),
            store: AtomicPtr::new(store),
            options,
            registry,
        })
    }

    #[inline]
    pub fn serial(&self) -> u64 {
        // Relaxed: who knows the table has learnt of it since.
        self.serial.load(Ordering::Relaxed)
    }

    /// The table is not known yet.
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

    /// The place of the key in an object, counted from 0.
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
        }
    }

    /// Where objects with this key word have their key.
    #[inline]
    pub(crate) fn key_place(&self, word: u64) -> KeyPlace {
        KeyPlace {
            word,
            place: self.key(),
        }
    }

    #[inline]
    pub fn registry(&self) -> &'static Registry {
        self.registry
    }

    /// The word of the name's atom.
    #[inline]
    pub fn name(&self) -> u64 {
        self.naming().name()
    }

    #[inline]
    pub(crate) fn naming(&self) -> Naming {
        // Acquire: pairs with `set_name`; who sees the new name sees all that was done before the renaming.
        Naming(self.naming.load(Ordering::Acquire))
    }

    /// The registry's lock for the table is held.
    pub(crate) fn set_name(&self, name: u64) {
        self.naming.store(self.naming().renamed(name).0, Ordering::Release);
    }

    /// The word of the owner's pid.
    #[inline]
    pub fn owner(&self) -> u64 {
        // Acquire: pairs with `set_owner`.
        self.owner.load(Ordering::Acquire)
    }

    /// The registry's locks of both owners' parts are held.
    pub(crate) fn set_owner(&self, owner: u64) {
        self.owner.store(owner, Ordering::Release);
    }

    #[inline]
    pub fn is_dead(&self) -> bool {
        // Acquire: pairs with `kill`.
        self.state.load(Ordering::Acquire) & DEAD != 0
    }

    pub fn access(&self) -> Access {
        match self.state.load(Ordering::Acquire) & ACCESS {
            0 => Access::Public,
            1 => Access::Protected,
            _ => Access::Private,
        }
    }

    /// The registry's lock for the table is held, and the table is not dead.
    pub(crate) fn set_access(&self, access: Access) {
        let flags = self.state.load(Ordering::Relaxed) & !ACCESS;
        self.state.store(access as usize | flags, Ordering::Release);
    }

    /// The registry's lock for the table is held.
    pub(crate) fn kill(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state | DEAD, Ordering::Release);
    }

    /// Ends a table that was not made known.
    ///
    /// # Safety
    /// Nobody else knows it, and it was not ended before.
    pub(crate) unsafe fn discard(&self) {
        self.kill();
        if !self.is_blank() {
            // SAFETY: the store is the table's own.
            drop(unsafe { Own::from_raw(self.store_pointer()) });
        }
    }

    /// Whether nobody has written to the table yet. Stays so once the table is dead.
    pub(crate) fn is_blank(&self) -> bool {
        // Acquire: pairs with `furnish`; who sees that it is not blank sees the contents of its own.
        self.state.load(Ordering::Acquire) & BLANK != 0
    }

    /// Gives a blank table contents of its own, which are empty. The registry's lock for the table is held, and it is not dead.
    pub(crate) fn furnish(&self, store: Own<Store>) {
        debug_assert!(self.is_blank());
        self.store.store(store.into_raw(), Ordering::Release);
        let state = self.state.load(Ordering::Relaxed);
        // Release: after the contents, so that who may write never meets those of all blank tables.
        self.state.store(state & !BLANK, Ordering::Release);
    }

    /// Whether `caller` may do this to the table, which was found by its identifier; `caller` is only asked for when it matters.
    #[inline]
    pub fn check(&self, right: Right, caller: impl FnOnce() -> u64) -> Result<(), Failure> {
        let state = self.state.load(Ordering::Acquire);
        if state & (DEAD | LOOKED_UP | BLANK) != 0 {
            return self.check_closely(right, caller());
        }
        self.allows(state, right, caller)
    }

    /// The same for a table that takes more than its identifier to find, or is blank.
    #[cold]
    fn check_closely(&self, right: Right, caller: u64) -> Result<(), Failure> {
        match self.registry.holds(self)? {
            true => self.check_found(right, || caller),
            false => Err(Cause::Id.into()),
        }
    }

    /// The same for a table that was looked up in the registry.
    pub fn check_found(&self, right: Right, caller: impl FnOnce() -> u64) -> Result<(), Failure> {
        let state = self.state.load(Ordering::Acquire);
        if state & DEAD != 0 {
            return Err(Cause::Id.into());
        }
        self.allows(state & ACCESS, right, caller)?;
        if state & BLANK != 0 && right == Right::Write {
            return self.registry.furnish(self);
        }
        Ok(())
    }

    #[inline]
    fn allows(&self, access: usize, right: Right, caller: impl FnOnce() -> u64) -> Result<(), Failure> {
        let open = match right {
            Right::Read => access != Access::Private as usize,
            Right::Write | Right::Manage => access == Access::Public as usize,
            Right::Info => true,
        };
        if open || caller() == self.owner() {
            Ok(())
        } else {
            Err(Cause::Access.into())
        }
    }

    /// The contents now; for tables that were not dead under this guard.
    #[inline]
    pub(crate) fn store<'g>(&self, _guard: &'g Guard) -> &'g Store {
        // Acquire: pairs with the Release of `replace_store`. A store is retired only after the table is dead or the pointer
        // was changed.
        let store = self.store.load(Ordering::Acquire);
        // SAFETY: the store lives as long as the table does, and for guards taken before its death.
        unsafe { &*store }
    }

    /// The address of the contents, which is left in place when the table dies: for who asked before, under a guard.
    pub(crate) fn store_pointer(&self) -> *mut Store {
        self.store.load(Ordering::Acquire)
    }

    /// Puts another store in the place of this one, which is now the caller's to retire. The registry's lock for the table is held.
    pub(crate) fn replace_store(&self, store: *mut Store) -> *mut Store {
        self.store.swap(store, Ordering::AcqRel)
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

/// Contents for a table with these options, and this configuration of the engine.
pub(crate) fn empty_store(options: Options, config: Option<Box<Config>>) -> Result<Own<Store>, Failure> {
    let key = options.key_position() as usize - 1;
    let store = Store::new(options.engine(), config, key, options.shared());
    store.and_then(Own::new).ok_or(Failure::SystemLimit)
}

/// A table that an operation works on, under a guard, and how it was found.
#[derive(Clone, Copy)]
pub struct Handle<'g> {
    pub(crate) table: &'g Table,
    pub(crate) guard: &'g Guard,
    /// The name by which it was found, or none.
    found_by: Naming,
}

impl<'g> Handle<'g> {
    pub(crate) fn by_name(table: &'g Table, guard: &'g Guard, naming: Naming) -> Self {
        Self {
            table,
            guard,
            found_by: naming,
        }
    }

    /// The guard under which it was found.
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

    /// Whether the table was found by its identifier, not by a name.
    #[inline]
    pub(crate) fn is_by_identifier(self) -> bool {
        self.found_by == Naming::NONE
    }

    /// Fails if the table was found by a name that it does not have any more, or did not have at some time since. Asked where an
    /// operation takes effect, so that an operation by the old name is never seen after the renaming.
    #[inline]
    pub(crate) fn still_named(self) -> Result<(), Failure> {
        if self.is_by_identifier() || self.found_by == self.table.naming() {
            Ok(())
        } else {
            Err(Failure::Bad(Cause::Id))
        }
    }
}
