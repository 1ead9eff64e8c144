//! What contents can do, in one form for all of them. A [`Store`](super::Store) has [plain ones](super::plain), [leased ones](super::leased)
//! or [others](super::other).

use super::books::Books;
use super::limited::Planned;
use crate::object::schema::Probe;
use crate::object::ObjectRef;
use crate::write_log::Actor;
use cats_engine::{Entry, Locked, Range, Step, Trail};
use cats_sync::epoch::Guard;
use cats_sync::Busy;

/// Whether a read of a key counts as a use of its object: for option `idle`, and for evictions.
pub trait Use {
    const COUNTS: bool;
}

/// A read that its caller asked for.
pub struct Used;

/// A look for the sake of something else, which leaves the object as it is.
pub struct Unused;

impl Use for Used {
    const COUNTS: bool = true;
}

impl Use for Unused {
    const COUNTS: bool = false;
}

/// The contents of a store, with its books. Each function is explained at the one of [`Store`](super::Store) with its name.
pub trait Content<'s>: Copy {
    fn books(self) -> &'s Books;

    fn read<U: Use, R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy>;

    #[inline(always)]
    fn read_entry<U: Use>(self, guard: &Guard, probe: &Probe<'static>) -> Result<Option<Entry>, Busy> {
        self.read::<U, _>(guard, probe, |entry| entry)
    }

    fn update<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy>;

    fn update_present<R: Default>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy>;

    #[inline(always)]
    fn update_adding<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        _body: u64,
        _puts: impl Fn(Option<Entry>) -> bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.update(guard, probe, change)
    }

    #[inline(always)]
    fn update_making<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        _adds: bool,
        mut change: impl FnMut(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let books = self.books();
        self.update(
            guard,
            probe,
            #[inline(always)]
            move |old| {
                let (step, result) = change(old);
                books.count_step(old, step);
                (step, result)
            },
        )
    }

    fn update_many<R>(
        self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        actor: Actor<'_>,
        planned: impl Fn(usize) -> Planned,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy>;

    /// [`Store::next`](super::Store::next), or [`Store::previous`](super::Store::previous) if `down`.
    fn step<R>(
        self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        trail: &mut Trail,
        down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy>;

    fn scan<'g>(
        self,
        guard: &'g Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy>;

    fn range<'g>(
        self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy>;
}
