//! What a write of a default engine does for others. It keeps what a snapshot needs, ends the flight of its key, and notes the key in the
//! log of long transactions.

use super::books::{noting, Books};
use super::engine::DefaultEngine;
use crate::history::Writer;
use crate::object::schema::Probe;
use crate::write_log::{Actor, Log, NOBODY};
use cats_engine::{Entry, Locked, Step};
use cats_sync::epoch::Guard;
use cats_sync::Busy;
use cats_term::is_immediate;

/// What a writer has to do besides.
pub struct Watch<'g> {
    /// The writer, and whether it must keep what the key has.
    writer: Option<(Writer<'g>, bool)>,
    /// Whether there are flights.
    awaited: bool,
    /// The log, if somebody reads it.
    log: Option<&'g Log>,
}

// Arguments of one or two words each, which are passed in registers: otherwise the hot way would have them in memory too.
impl Books {
    /// What a writer of this key has to do besides. It looks at flights if they `may` be awaited.
    #[inline(always)]
    pub fn watch<'g>(
        &'g self,
        engine: DefaultEngine<'_>,
        guard: &'g Guard,
        probe: &Probe<'static>,
        may: bool,
    ) -> Result<Option<Watch<'g>>, Busy> {
        match self.history.is_watched() {
            true => self.watch_in_general(engine, guard, probe, may),
            false => Ok(None),
        }
    }

    #[cold]
    #[inline(never)]
    fn watch_in_general<'g>(
        &'g self,
        engine: DefaultEngine<'_>,
        guard: &'g Guard,
        probe: &Probe<'static>,
        may: bool,
    ) -> Result<Option<Watch<'g>>, Busy> {
        let writer = match self.is_settled(engine, guard, probe.word()) {
            true => None,
            false => self.writer(engine, guard, probe)?,
        };
        let log = self.wanted_log();
        let awaited = may && self.history.is_awaited();
        Ok((writer.is_some() || awaited || log.is_some()).then_some(Watch { writer, awaited, log }))
    }

    /// Whether a snapshot needs nothing more of the key with this word, as far as that is known without a search.
    fn is_settled(&self, engine: DefaultEngine<'_>, guard: &Guard, word: u64) -> bool {
        if !is_immediate(word) {
            return false;
        }
        // The cache misses of this and of the key's place overlap.
        engine.announce(guard, word);
        self.history.is_settled(guard, word)
    }

    /// The writer of a key, and whether it must keep what the key has. `None` if it may change the key as if there were no snapshots.
    ///
    /// A snapshot that begins later makes no difference: it waits for the writer's guard.
    fn writer<'g>(
        &'g self,
        engine: DefaultEngine<'_>,
        guard: &'g Guard,
        probe: &Probe<'static>,
    ) -> Result<Option<(Writer<'g>, bool)>, Busy> {
        let writer = Writer::enter(&self.history, guard)?;
        // The cache misses of both places overlap, and then that of the object and the search for the copy.
        if !engine.is_ordered() {
            writer.approach(probe);
        }
        engine.prefetch(guard, probe);
        let keep = writer.must_keep(probe)?;
        Ok((keep || writer.is_inside()).then_some((writer, keep)))
    }

    /// [`update_as_it_is`](super::plain::Plain::update_as_it_is) with something to do besides. `present` says that `change` does nothing without an entry. A
    /// deletion is such a change. It ends a flight also if there is nothing to delete.
    #[cold]
    #[inline(never)]
    pub fn update_watched<R>(
        &self,
        engine: DefaultEngine<'_>,
        watch: Watch<'_>,
        guard: &Guard,
        probe: &Probe<'static>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let (mut change, mut result, mut wrote) = (Some(change), None, present);
        let mut step = |entry: Option<Entry>| {
            if let Some(log) = watch.log.filter(|_| entry.is_some() || !present) {
                log.add(log.chain(guard, NOBODY, engine.is_ordered(), &[probe]));
            }
            let change = change.take().expect("an engine runs a change once");
            let (step, value) = noting(&mut wrote, change(entry));
            result = Some(value);
            step
        };
        self.update_keeping(engine, watch.writer, guard, probe, present, &mut step)?;
        if watch.awaited && wrote {
            self.wrote(probe, engine.is_ordered());
        }
        Ok(result.expect("an engine runs a change"))
    }

    /// Keeps what the key has, if there is a writer who must, and then calls `change`.
    #[inline(never)]
    fn update_keeping(
        &self,
        engine: DefaultEngine<'_>,
        writer: Option<(Writer<'_>, bool)>,
        guard: &Guard,
        probe: &Probe<'static>,
        present: bool,
        change: &mut dyn FnMut(Option<Entry>) -> Step,
    ) -> Result<(), Busy> {
        engine.update(guard, probe, |old: Option<Entry>| {
            let kept = match &writer {
                Some((writer, true)) if old.is_some() || !present => writer.keep(probe, old),
                _ => Ok(()),
            };
            match kept {
                Ok(()) => (change(old), Ok(())),
                Err(Busy) => (Step::Keep, Err(Busy)),
            }
        })?
    }

    /// [`update_many_as_it_is`](super::plain::Plain::update_many_as_it_is) of contents that have snapshots or a log.
    #[cold]
    #[inline(never)]
    pub fn update_many_watched<R>(
        &self,
        engine: DefaultEngine<'_>,
        guard: &Guard,
        probes: &[&Probe<'static>],
        actor: Actor<'_>,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let writer = Writer::enter(&self.history, guard)?;
        let log = self.wanted_log();
        engine.update_many(guard, probes, |places: &mut dyn Locked| {
            let chain = log.map(|log| (log, log.chain(guard, actor.author(), engine.is_ordered(), probes)));
            if let Some((log, chain)) = &chain {
                log.admit(actor, chain)?;
            }
            writer.keep_all(probes, places)?;
            if let Some((log, chain)) = chain {
                log.add(chain);
            }
            Ok(change(places))
        })?
    }
}
