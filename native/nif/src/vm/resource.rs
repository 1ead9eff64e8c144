//! Rust values that Erlang holds as magic references (resources of `erl_nif`).
//!
//! A value of a [`Kind`] is dropped when the last reference to it is gone. That happens at any time and on any thread.
//! A module that is loaded again takes the kind over. If the old module was purged before, the VM has forgotten its
//! type and makes a new one. So a kind remembers its former types, and references of these types keep working.

use crate::layout;
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
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

    /// Called on any thread when a process that a value monitors has ended. Must be short.
    fn down(_env: Env, _process: Term) {}
}

/// An object of the VM.
#[repr(C)]
struct Resource<T> {
    value: T,
    /// The words of a reference to it, once [`Kind::reference_of`] has written them.
    reference: [AtomicU64; layout::REFERENCE_WORDS],
}

/// A type of resource whose objects are values of `T`.
pub struct Kind<T> {
    current: AtomicPtr<ErlNifResourceType>,
    /// Whether an object of the current type exists that is never released. It keeps the address of the type valid for
    /// ever.
    anchored: AtomicBool,
    former: RwLock<Vec<Former>>,
    value: PhantomData<fn() -> T>,
}

/// A type that the VM gave while the library was being loaded.
pub struct Opened(*mut ErlNifResourceType);

/// An anchored type that the VM has forgotten.
struct Former(*const ErlNifResourceType);

// SAFETY: the address of a type is only given back to the VM, which allows that on any thread.
unsafe impl Send for Former {}
// SAFETY: as for Send.
unsafe impl Sync for Former {}

impl<T: Value> Kind<T> {
    /// A kind. It must be [opened](Self::open) before use.
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

    /// Registers the kind with the VM, or takes it over. Nothing if the VM refuses. Only while the library is being
    /// loaded. Takes effect with [`commit`](Self::commit), because the VM forgets what was opened if loading fails.
    pub fn open(&self, env: Env) -> Option<Opened> {
        // Both callbacks are always given, even where they have nothing to do. While the VM takes a type over, it puts
        // functions of its own in their places, and other schedulers run. To make or free an object the VM reads twice
        // whether a callback exists. If a callback were null before or after, the two reads could differ. Then the VM
        // would write behind the object or call null.
        let init = ErlNifResourceTypeInit {
            dtor: drop_value::<T> as *const ErlNifResourceDtor,
            stop: null(),
            down: down::<T> as *const ErlNifResourceDown,
            members: 3,
            dyncall: null(),
        };
        let open = |flags| {
            // SAFETY: the name ends with a zero. The callbacks belong to the library, which is never unmapped.
            unsafe { enif_init_resource_type(env.raw(), T::NAME.as_ptr(), &init, flags, null_mut()) }
        };
        let mut opened = open(ErlNifResourceFlags::ERL_NIF_RT_TAKEOVER);
        if opened.is_null() {
            opened = open(ErlNifResourceFlags::ERL_NIF_RT_CREATE);
        }
        (!opened.is_null()).then_some(Opened(opened.cast_mut()))
    }

    /// Makes an opened type the kind's own. Called when loading can no longer fail.
    pub fn commit(&self, opened: Opened) {
        // AcqRel pairs with the Acquire of `own` and `get` in calls that run while an old module is being replaced.
        let former = self.current.swap(opened.0, Ordering::AcqRel);
        // AcqRel: as above. A type without an anchor may have no objects, so it need not be remembered.
        if former != opened.0 && self.anchored.swap(false, Ordering::AcqRel) {
            self.former.write().unwrap().push(Former(former));
        }
    }

    /// A new value without a reference so far.
    pub fn own(&self, value: T) -> Owned<T> {
        // Acquire pairs with `commit`.
        let kind = self.current.load(Ordering::Acquire);
        assert!(!kind.is_null());
        // SAFETY: the kind is open, because no function of the library is called before it is loaded. An object is
        // filled before anybody sees it. The anchor is never read and never released.
        unsafe {
            // Relaxed: the flag protects no data of ours.
            if !self.anchored.load(Ordering::Relaxed) && !self.anchored.swap(true, Ordering::Relaxed) {
                enif_alloc_resource(kind, size_of::<Resource<T>>());
            }
            let object = NonNull::new_unchecked(enif_alloc_resource(kind, size_of::<Resource<T>>()).cast());
            assert!(object.is_aligned());
            object.write(Resource {
                value,
                reference: [const { AtomicU64::new(0) }; layout::REFERENCE_WORDS],
            });
            Owned(object.cast())
        }
    }

    /// A reference to a new value.
    pub fn make(&self, env: Env, value: T) -> Term {
        self.own(value).reference(env)
    }

    /// The value that a reference stands for. Nothing for other terms.
    #[inline(always)]
    pub fn get<'a>(&self, env: Env<'a>, term: Term) -> Option<&'a T> {
        // Acquire pairs with `commit`.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: a term of the environment lives as long as the environment.
        match unsafe { layout::resource(term, current) } {
            // SAFETY: the term keeps the object alive, and `own` filled it.
            Some(object) => Some(unsafe { object.cast().as_ref() }),
            None => self.ask_for(env, term, current),
        }
    }

    /// If a term is a reference to a value of this kind: the value's address, and a reference to it that lives as long as the value. Nothing
    /// for former types, and if the layout of references is not known.
    ///
    /// # Safety
    /// The term is alive.
    #[inline]
    pub unsafe fn reference_of(&self, term: Term) -> Option<(NonNull<T>, Term)> {
        // Acquire pairs with `commit`.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: as the caller promises. `own` filled the object.
        let (object, words) = unsafe {
            (
                layout::resource(term, current)?,
                &*layout::address(term).cast::<[u64; layout::REFERENCE_WORDS]>(),
            )
        };
        // SAFETY: as above.
        let reference = unsafe { &object.cast::<Resource<T>>().as_ref().reference };
        // Acquire pairs with the last store below: whoever sees that one sees the others.
        if reference[0].load(Ordering::Acquire) == 0 {
            // Relaxed: threads that do this at the same time write the same words. The link of a copy is its own.
            reference[1].store(words[1], Ordering::Relaxed);
            reference[0].store(words[0], Ordering::Release);
        }
        Some((
            object.cast(),
            Term(reference.as_ptr().expose_provenance() as u64 | layout::BOXED),
        ))
    }

    #[cold]
    #[inline(never)]
    fn ask_for<'a>(&self, env: Env<'a>, term: Term, current: *const ErlNifResourceType) -> Option<&'a T> {
        match Self::value_of(env, term, current) {
            Some(value) => {
                // SAFETY: as in `get`. The VM says that the object has this type.
                unsafe { layout::learn_resource(term, current, (&raw const *value).cast()) };
                Some(value)
            }
            None => {
                let former = self.former.read().unwrap();
                former.iter().find_map(|former| Self::value_of(env, term, former.0))
            }
        }
    }

    /// An owner of the value that a reference stands for. Nothing for other terms.
    pub fn owner(&self, env: Env, term: Term) -> Option<Owned<T>> {
        let value = NonNull::from(self.get(env, term)?);
        // SAFETY: the value is one of this kind, and the term keeps it alive. The owner gives the reference up.
        unsafe { enif_keep_resource(value.as_ptr().cast()) };
        Some(Owned(value))
    }

    fn value_of<'a>(env: Env<'a>, term: Term, kind: *const ErlNifResourceType) -> Option<&'a T> {
        let mut object = MaybeUninit::uninit();
        // SAFETY: the VM checks that the term refers to an object of this type, and `own` filled it. The term keeps it
        // alive while the environment lives.
        unsafe {
            if enif_get_resource(env.raw(), term.raw(), kind, object.as_mut_ptr()) == 0 {
                return None;
            }
            Some(&*object.assume_init().cast::<T>())
        }
    }

    /// Monitors a process for a value: [`Value::down`] is called when it ends. False if it has ended already.
    pub fn monitor(&self, env: Env, value: &Owned<T>, process: &ErlNifPid) -> bool {
        // SAFETY: the value is an object of a kind with a `down` callback.
        unsafe { enif_monitor_process(env.raw(), value.0.as_ptr().cast(), process, null_mut()) == 0 }
    }
}

/// An owner of a value of a [`Kind`]. The value lives as long as an owner or a reference exists.
pub struct Owned<T>(NonNull<T>);

// SAFETY: the value is only shared, which `Value` allows. The VM counts owners atomically.
unsafe impl<T: Value> Send for Owned<T> {}
// SAFETY: as for Send.
unsafe impl<T: Value> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Gives up the value without dropping it. [`from_raw`](Self::from_raw) takes it back.
    pub fn into_raw(self) -> *const T {
        let address = self.0.as_ptr();
        std::mem::forget(self);
        address
    }

    /// Takes a value back.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and is taken back once for each such call.
    pub unsafe fn from_raw(address: *const T) -> Self {
        // SAFETY: addresses of objects are never null.
        Owned(unsafe { NonNull::new_unchecked(address.cast_mut()) })
    }

    /// A reference to the value.
    pub fn reference(&self, env: Env) -> Term {
        // SAFETY: the object is alive.
        Term::from_raw(unsafe { enif_make_resource(env.raw(), self.0.as_ptr().cast()) })
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object is filled and alive.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: this owner is dropped once.
        unsafe { enif_release_resource(self.0.as_ptr().cast()) }
    }
}

/// The VM calls this when nothing refers to an object any more.
unsafe extern "C" fn drop_value<T: Value>(_env: *mut ErlNifEnv, object: *mut c_void) {
    // SAFETY: `own` filled the object, and nothing refers to it any more. A panic must not unwind into the VM.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe { object.cast::<T>().drop_in_place() }));
}

/// The VM calls this when a monitored process has ended.
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
