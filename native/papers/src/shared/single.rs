//! Critical sections of engines with one lock for the whole table. Another thread may run them (delegation).
//!
//! Closures passed to an engine may run on any thread while the caller waits ([`cats_engine::Engine`]). They are lent to the
//! lock with everything that they refer to, including the caller's guard. Using that guard acts on the caller's thread
//! state, such as its announcement and its list of retired memory. The caller waits meanwhile, so the two threads never
//! use it at once. The lock orders the call, the section and the return, so each thread sees what the other did with
//! it.

use crate::detaching::{Detached, Settle};
use crate::lock::{AnyLock, Operation, TableLock};
use cats_engine::{Busy, Entry, Step};

/// Captures or results of a critical section that another thread may run.
struct Lent<T>(T);

// SAFETY: see the module's documentation.
unsafe impl<T> Send for Lent<T> {}

impl<T> Lent<T> {
    /// A method, so that a closure captures the whole value.
    fn get(self) -> T {
        self.0
    }
}

/// Runs a critical section that only reads, on this or another thread.
#[inline]
pub(crate) fn read<T: Send + Sync, R>(lock: &AnyLock<T>, look: impl FnOnce(&T) -> R) -> Result<R, Busy> {
    let section = Lent(|contents: &T| Lent(look(contents)));
    lock.read(move |contents| section.get()(contents)).map(Lent::get)
}

/// Runs a critical section that writes, on this or another thread.
#[inline]
pub(crate) fn write<T: Send + Sync, R>(lock: &AnyLock<T>, change: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
    let section = Lent(|contents: &mut T| Lent(change(contents)));
    lock.write(move |contents| section.get()(contents)).map(Lent::get)
}

/// An engine that carries out detached steps.
pub(crate) trait Single {
    /// What the lock protects.
    type Contents: Send + Sync;

    fn lock(&self) -> &AnyLock<Self::Contents>;

    /// Carries out a step, under the lock, on the place of an entry's key. Returns the previous entry.
    fn step_at(&self, contents: &mut Self::Contents, at: Entry, step: Step) -> Option<Entry>;
}

/// See [`Detaching::detach`](crate::detaching::Detaching::detach).
///
/// # Safety
/// As there.
pub(crate) unsafe fn detach<E: Single>(engine: &E, update: Detached) -> Result<(), Busy> {
    let (operation, entry): (Operation<E::Contents>, _) = match update.step {
        Step::Put(entry) => (run::<E, true>, entry),
        Step::Remove => (run::<E, false>, update.key),
        Step::Keep | Step::Touch => return Ok(()),
    };
    let words = [
        entry.key,
        entry.body,
        update.settle as usize as u64,
        update.context as u64,
        std::ptr::from_ref(engine) as u64,
    ];
    // SAFETY: these are the words that `run` expects. The engine and the context live until the calls under way have
    // returned, as the caller promises. The lock runs the operation before that.
    unsafe { engine.lock().detach(operation, &words) }
}

/// Carries out a detached step.
///
/// # Safety
/// The words are those of [`detach`].
unsafe fn run<E: Single, const PUT: bool>(contents: &mut E::Contents, words: &[u64]) {
    let &[key, body, settle, context, engine] = words else {
        unreachable!("five words")
    };
    let entry = Entry { key, body };
    let step = if PUT { Step::Put(entry) } else { Step::Remove };
    // SAFETY: the engine lives, by the promise of `detach`'s caller.
    let old = unsafe { &*(engine as *const E) }.step_at(contents, entry, step);
    // SAFETY: the word is the address of such a function.
    let settle = unsafe { std::mem::transmute::<usize, Settle>(settle as usize) };
    // SAFETY: the caller of `detach` promised this.
    unsafe { settle(context as *const (), step, old) };
}
