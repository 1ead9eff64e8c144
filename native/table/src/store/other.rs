//! Engines besides the two default ones. They are behind one virtual call, so they cost tables with a default engine nothing.

use super::books::{noting, Books};
use super::content::{Content, Use};
use super::limited::Planned;
use crate::object::schema::Probe;
use crate::object::ObjectRef;
use crate::write_log::Actor;
use cats_engine::{Between, Entry, Locked, Range, Step, Trail};
#[cfg(feature = "compared")]
use cats_papers::detaching::Detaching;
use cats_sync::epoch::Guard;
use cats_sync::events::Events;
use cats_sync::Busy;
use std::any::Any;

pub type Look<'a> = &'a mut dyn FnMut(Option<Entry>);
pub type Expand<'a, 'g> = &'a mut dyn FnMut(Entry, &mut Vec<ObjectRef<'g>>);

/// The methods of [`Engine`] and [`OrderedEngine`] that a store needs, with the types that a store uses in place of type parameters. A
/// method that an engine does not support finds nothing.
pub trait Other: Send + Sync {
    fn is_ordered(&self) -> bool;
    /// The engine, if it is a snapshot.
    fn snapshot(&self) -> Option<&dyn Frozen> {
        None
    }
    /// What rarely happens to the engine, unless it is a snapshot.
    fn events(&self) -> Option<&Events> {
        None
    }
    fn read(&self, guard: &Guard, probe: &Probe<'static>, look: Look<'_>) -> Result<(), Busy>;
    fn update(
        &self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: &mut dyn FnMut(Option<Entry>) -> Step,
    ) -> Result<(), Busy>;
    fn update_many(
        &self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        change: &mut dyn FnMut(&mut dyn Locked),
    ) -> Result<(), Busy>;
    /// The engine, if it carries out steps for which the caller does not wait.
    #[cfg(feature = "compared")]
    fn detaching(&self) -> Option<&dyn Detaching> {
        None
    }
    fn next(&self, guard: &Guard, after: Option<&Probe<'static>>, look: Look<'_>) -> Result<(), Busy>;
    /// Upwards if the engine is unordered.
    fn previous(&self, guard: &Guard, before: Option<&Probe<'static>>, look: Look<'_>) -> Result<(), Busy>;
    fn scan<'g>(
        &self,
        _guard: &'g Guard,
        _position: &mut u64,
        _limit: usize,
        _out: &mut Vec<ObjectRef<'g>>,
        _expand: Expand<'_, 'g>,
    ) -> Result<bool, Busy> {
        Ok(false)
    }
    fn range<'g>(
        &self,
        _guard: &'g Guard,
        _range: Range<'_, Probe<'static>>,
        _limit: usize,
        _out: &mut Vec<ObjectRef<'g>>,
        _expand: Expand<'_, 'g>,
    ) -> Result<bool, Busy> {
        Ok(false)
    }
    fn buckets(&self) -> usize;
    fn slot<'g>(
        &self,
        guard: &'g Guard,
        number: usize,
        expand: Expand<'_, 'g>,
    ) -> Result<Option<Vec<ObjectRef<'g>>>, Busy>;
    fn base_nodes(&self) -> usize {
        0
    }
    fn bytes(&self) -> usize;
    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool;
}

/// A snapshot, as its contents and its table see it.
pub trait Frozen {
    /// See [`Store::count_between`](super::Store::count_between).
    fn count_between(&self, guard: &Guard, between: Between<'_, Probe<'static>>) -> Result<usize, Busy>;
    /// See [`Store::find_nth`](super::Store::find_nth).
    fn find_nth<'g>(
        &self,
        guard: &'g Guard,
        place: (usize, bool),
        out: &mut Vec<ObjectRef<'g>>,
        expand: Expand<'_, 'g>,
    ) -> Result<(), Busy>;
    /// To be called when the instant is past. Returns the number of objects.
    fn set_size(&self) -> usize;
    /// To be called when nobody reads the snapshot any more.
    fn release(&self);
    /// Whether it has died because what is kept for snapshots of its table is too large.
    fn is_overfull(&self) -> bool;
    /// For those who know what it is.
    fn as_any(&self) -> &dyn Any;
}

/// Contents of such an engine.
#[derive(Clone, Copy)]
pub struct Boxed<'s> {
    pub engine: &'s dyn Other,
    pub books: &'s Books,
}

impl Boxed<'_> {
    /// [`update`](Content::update). `present` says that `change` does nothing without an entry.
    fn change<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let (mut change, mut result, mut wrote) = (Some(change), None, present);
        self.engine.update(guard, probe, &mut |entry| {
            let change = change.take().expect("an engine runs a change once");
            let (step, value) = noting(&mut wrote, change(entry));
            result = Some(value);
            step
        })?;
        if wrote && self.books.history.is_awaited() {
            self.books.wrote(probe, self.engine.is_ordered());
        }
        Ok(result.expect("an engine runs a change"))
    }
}

impl<'s> Content<'s> for Boxed<'s> {
    fn books(self) -> &'s Books {
        self.books
    }

    fn read<U: Use, R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        looked(look, |look| self.engine.read(guard, probe, look))
    }

    fn update<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.change(guard, probe, false, change)
    }

    fn update_present<R: Default>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        self.change(guard, probe, true, |old| {
            old.map_or_else(|| (Step::Keep, R::default()), change)
        })
    }

    fn update_many<R>(
        self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        _actor: Actor<'_>,
        _planned: impl Fn(usize) -> Planned,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let (mut change, mut result) = (Some(change), None);
        self.engine.update_many(guard, probes, &mut |places| {
            result = change.take().map(|change| change(places));
        })?;
        Ok(result.expect("an engine runs the change"))
    }

    fn step<R>(
        self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        _trail: &mut Trail,
        down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        looked(look, |look| match down {
            true => self.engine.previous(guard, from, look),
            false => self.engine.next(guard, from, look),
        })
    }

    fn scan<'g>(
        self,
        guard: &'g Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        self.engine.scan(guard, position, limit, out, &mut expand)
    }

    fn range<'g>(
        self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        self.engine.range(guard, range, limit, out, &mut expand)
    }
}

/// The result of `look`.
fn looked<R>(
    mut look: impl FnMut(Option<Entry>) -> R,
    call: impl FnOnce(&mut dyn FnMut(Option<Entry>)) -> Result<(), Busy>,
) -> Result<R, Busy> {
    let mut result = None;
    call(&mut |entry| result = Some(look(entry)))?;
    Ok(result.expect("an engine looks"))
}
