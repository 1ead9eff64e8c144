//! Rust values that Erlang holds as magic references (`erl_nif` resources).
//!
//! A value of a [`Kind`] is dropped when the last reference to it is gone, at any time and on any thread. A module that is
//! loaded again takes the kind over. If the old module was purged before that, the VM has forgotten its type and makes a new
//! one; so a kind remembers its former types, and references made under them go on working.

use crate::layout;
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicBool, AtomicPtr, Ordering};
use rustler::sys::*;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{null, null_mut, NonNull};
use std::sync::RwLock;

/// A value that Erlang can hold.
pub trait Value: Send + Sync + Sized + 'static {
    /// The type's name within the module.
    const NAME: &'static CStr;

    /// Called on any thread when a process that a value monitors is gone. Must be short.
    fn down(_env: Env, _process: Term) {}
}

/// A type of resource whose objects are values of `T`.
pub struct Kind<T> {
    current: AtomicPtr<ErlNifResourceType>,
    /// Whether an object of the current type exists that is never released: the type then keeps its address for ever.
    anchored: AtomicBool,
    former: RwLock<Vec<Former>>,
    value: PhantomData<fn() -> T>,
}

/// A type that the VM gave while the library is being loaded.
pub struct Opened(*mut ErlNifResourceType);

/// An anchored type that the VM has forgotten.
struct Former(*const ErlNifResourceType);

// SAFETY: a type's address is only handed back to the VM, which lets any thread do so.
unsafe impl Send for Former {}
// SAFETY: as for Send.
unsafe impl Sync for Former {}

impl<T: Value> Kind<T> {
    /// A kind, to be [opened](Self::open) before use.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        assert!(align_of::<T>() <= 8, "the VM aligns resources to 8 bytes");
        Self {
            current: AtomicPtr::new(null_mut()),
            anchored: AtomicBool::new(false),
            former: RwLock::new(Vec::new()),
            value: PhantomData,
        }
    }

    /// Registers the kind with the VM, or takes it over; nothing if the VM refuses. Only while the library is being loaded.
    /// Takes effect with [`commit`](Self::commit): the VM forgets what was opened if loading fails.
    pub fn open(&self, env: Env) -> Option<Opened> {
        // Both callbacks even where they have nothing to do. While a type is taken over the VM has functions of its own in their
        // places, and other schedulers run: where it asks twice whether there is one, to make or to free an object, a null before or
        // after that would make it write behind the object, or call null.
        let init = ErlNifResourceTypeInit {
            dtor: drop_value::<T> as *const ErlNifResourceDtor,
            stop: null(),
            down: down::<T> as *const ErlNifResourceDown,
            members: 3,
            dyncall: null(),
        };
        let open = |flags| {
            // SAFETY: the name ends with a zero, the callbacks are the library's, which is never unmapped.
            unsafe { enif_init_resource_type(env.raw(), T::NAME.as_ptr(), &init, flags, null_mut()) }
        };
        let mut opened = open(ErlNifResourceFlags::ERL_NIF_RT_TAKEOVER);
        if opened.is_null() {
            opened = open(ErlNifResourceFlags::ERL_NIF_RT_CREATE);
        }
        (!opened.is_null()).then_some(Opened(opened.cast_mut()))
    }

    /// Makes an opened type the kind's own, once nothing can fail any more.
    pub fn commit(&self, opened: Opened) {
        // AcqRel pairs with the Acquire of `get` and `make` in calls that run while an old module is being replaced.
        let former = self.current.swap(opened.0, Ordering::AcqRel);
        // AcqRel: as above. A type without an anchor may have no objects and is not worth remembering.
        if former != opened.0 && self.anchored.swap(false, Ordering::AcqRel) {
            self.former.write().unwrap().push(Former(former));
        }
    }

    /// A new value that no reference stands for yet.
    pub fn own(&self, value: T) -> Owned<T> {
        // Acquire pairs with `commit`.
        let kind = self.current.load(Ordering::Acquire);
        assert!(!kind.is_null());
        // SAFETY: the kind is open, as no function of the library is called before it is loaded. An object is filled before
        // anybody sees it. The anchor is neither seen nor released.
        unsafe {
            // Relaxed: only the VM's own data is touched under the flag.
            if !self.anchored.load(Ordering::Relaxed) && !self.anchored.swap(true, Ordering::Relaxed) {
                enif_alloc_resource(kind, size_of::<T>());
            }
            let object = NonNull::new_unchecked(enif_alloc_resource(kind, size_of::<T>()).cast::<T>());
            assert!(object.is_aligned());
            object.write(value);
            Owned(object)
        }
    }

    /// A reference to a new value.
    pub fn make(&self, env: Env, value: T) -> Term {
        self.own(value).reference(env)
    }

    /// The value that a reference stands for.
    #[inline(always)]
    pub fn get<'a>(&self, env: Env<'a>, term: Term) -> Option<&'a T> {
        // Acquire pairs with `commit`.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: a term of the environment lives as long as that.
        match unsafe { layout::resource(term, current) } {
            // SAFETY: the term keeps the object, and `make` filled it.
            Some(object) => Some(unsafe { object.cast().as_ref() }),
            None => self.ask_for(env, term, current),
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_for<'a>(&self, env: Env<'a>, term: Term, current: *const ErlNifResourceType) -> Option<&'a T> {
        match Self::value_of(env, term, current) {
            Some(value) => {
                // SAFETY: as in `get`; the VM says that it is one of this type.
                unsafe { layout::learn_resource(term, current, (&raw const *value).cast()) };
                Some(value)
            }
            None => {
                let former = self.former.read().unwrap();
                former.iter().find_map(|former| Self::value_of(env, term, former.0))
            }
        }
    }

    fn value_of<'a>(env: Env<'a>, term: Term, kind: *const ErlNifResourceType) -> Option<&'a T> {
        let mut object = MaybeUninit::uninit();
        // SAFETY: the VM checks that the term refers to an object of this type; `make` filled it. The term keeps it while its
        // environment lives.
        unsafe {
            if enif_get_resource(env.raw(), term.raw(), kind, object.as_mut_ptr()) == 0 {
                return None;
            }
            Some(&*object.assume_init().cast::<T>())
        }
    }

    /// Watches a process for a value: [`Value::down`] is called when it is gone. False if it is gone already.
    pub fn monitor(&self, env: Env, value: &Owned<T>, process: &ErlNifPid) -> bool {
        // SAFETY: the value is an object of a kind with a callback for this.
        unsafe { enif_monitor_process(env.raw(), value.0.as_ptr().cast(), process, null_mut()) == 0 }
    }
}

/// A value of a [`Kind`] that lives as long as this, or a reference to it, does.
pub struct Owned<T>(NonNull<T>);

// SAFETY: the value is only shared, which `Value` allows; the VM counts owners atomically.
unsafe impl<T: Value> Send for Owned<T> {}
// SAFETY: as for Send.
unsafe impl<T: Value> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Leaves the value to whoever has the address.
    pub fn into_raw(self) -> *const T {
        let address = self.0.as_ptr();
        std::mem::forget(self);
        address
    }

    /// Takes a value back.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), once for each time that it is taken back.
    pub unsafe fn from_raw(address: *const T) -> Self {
        // SAFETY: addresses of objects are never null.
        Owned(unsafe { NonNull::new_unchecked(address.cast_mut()) })
    }

    /// A reference to the value.
    pub fn reference(&self, env: Env) -> Term {
        // SAFETY: the object lives.
        Term::from_raw(unsafe { enif_make_resource(env.raw(), self.0.as_ptr().cast()) })
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object is filled, and lives.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: this is one owner of the object.
        unsafe { enif_release_resource(self.0.as_ptr().cast()) }
    }
}

/// The VM calls it when an object is no longer referred to.
unsafe extern "C" fn drop_value<T: Value>(_env: *mut ErlNifEnv, object: *mut c_void) {
    // SAFETY: `make` filled the object, and nothing refers to it any more. A panic must not unwind into the VM.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe { object.cast::<T>().drop_in_place() }));
}

/// The VM calls it when a monitored process is gone.
unsafe extern "C" fn down<T: Value>(
    env: *mut ErlNifEnv,
    _object: *mut c_void,
    process: *const ErlNifPid,
    _monitor: *const ErlNifMonitor,
) {
    // SAFETY: the VM passes a valid process, and an environment for the call. A panic must not unwind into the VM.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe {
        T::down(Env::new(env), Term::from_raw(enif_make_pid(env, *process)));
    }));
}
