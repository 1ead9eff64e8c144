//! Contents of a default engine whose objects have no leases. Of these there is no virtual call, so what a change refers to can stay in
//! registers.

use super::apart;
use super::books::Books;
use super::content::{Content, Use};
use super::engine::DefaultEngine;
use super::limited::Planned;
use crate::object::schema::Probe;
use crate::object::ObjectRef;
use crate::write_log::Actor;
use cats_engine::{Entry, Locked, Range, Step, Trail};
use cats_sync::epoch::Guard;
use cats_sync::Busy;

/// See the module's documentation.
#[derive(Clone, Copy)]
pub struct Plain<'s> {
    pub engine: DefaultEngine<'s>,
    pub books: &'s Books,
}

impl<'s> Plain<'s> {
    /// [`update`](Content::update) without a look at flights, which the caller does. `present` says that `change` does nothing without an
    /// entry.
    #[inline(always)]
    pub fn update_as_it_is<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.change(guard, probe, false, present, change)
    }

    /// [`update_as_it_is`](Self::update_as_it_is), with a look at flights if they `may` be awaited.
    #[inline(always)]
    fn change<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        may: bool,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let Self { engine, books } = self;
        match books.watch(engine, guard, probe, may)? {
            Some(watch) => apart(move || books.update_watched(engine, watch, guard, probe, present, change)),
            None if present => {
                let mut change = Some(change);
                let mut change = |old| change.take().expect("a change runs once")(old);
                let found = engine.update_present(guard, probe, |entry| {
                    let (step, result) = change(Some(entry));
                    (step, Some(result))
                })?;
                Ok(found.unwrap_or_else(|| change(None).1))
            }
            None => engine.update(guard, probe, change),
        }
    }

    /// [`update_many`](Content::update_many) without a look at flights.
    #[inline(always)]
    pub fn update_many_as_it_is<R>(
        self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        actor: Actor<'_>,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        match self.books.history.is_watched() {
            true => self
                .books
                .update_many_watched(self.engine, guard, probes, actor, change),
            false => self.engine.update_many(guard, probes, change),
        }
    }
}

impl<'s> Content<'s> for Plain<'s> {
    #[inline(always)]
    fn books(self) -> &'s Books {
        self.books
    }

    #[inline(always)]
    fn read<U: Use, R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.engine.read(guard, probe, look)
    }

    #[inline(always)]
    fn update<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.change(guard, probe, true, false, change)
    }

    #[inline(always)]
    fn update_present<R: Default>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        let Self { engine, books } = self;
        match books.watch(engine, guard, probe, true)? {
            Some(watch) => apart(move || {
                books.update_watched(engine, watch, guard, probe, true, |old| {
                    old.map_or_else(|| (Step::Keep, R::default()), change)
                })
            }),
            None => engine.update_present(guard, probe, change),
        }
    }

    #[inline(always)]
    fn update_many<R>(
        self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        actor: Actor<'_>,
        _planned: impl Fn(usize) -> Planned,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        self.update_many_as_it_is(guard, probes, actor, change)
    }

    #[inline(always)]
    fn step<R>(
        self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        trail: &mut Trail,
        down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.engine.step(guard, from, trail, down, look)
    }

    #[inline(always)]
    fn scan<'g>(
        self,
        guard: &'g Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        self.engine.scan(guard, position, limit, out, expand)
    }

    #[inline(always)]
    fn range<'g>(
        self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        self.engine.range(guard, range, limit, out, expand)
    }
}
