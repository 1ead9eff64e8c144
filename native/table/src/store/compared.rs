//! The engines that exist for comparison, those of `native/papers`. A build without the feature `compared` lacks them.

use super::other::{Expand, Look, Other};
use crate::engines::EngineName;
use crate::object::schema::{Exact, Ordered, Probe};
use crate::object::ObjectRef;
use cats_engine::config::Config;
use cats_engine::{Engine, Entry, Locked, Numbered, OrderedEngine, Range, Step};
use cats_papers::detaching::Detaching;
use cats_papers::eventful::Eventful;
use cats_sync::epoch::Guard;
use cats_sync::events::Events;
use cats_sync::Busy;

/// One line for each engine: `Name => unordered Type` or `Name => ordered Type`. `Type<S>` has a function `new(S, &Config) ->
/// Option<Self>`.
macro_rules! others {
    ($($name:ident => $order:ident $($engine:ident)::+),* $(,)?) => {
        /// An engine of this name, for objects whose key is at position `key`. Without a configuration it has the defaults. `None` when
        /// memory is exhausted. The default engines are not here.
        pub fn make(name: EngineName, config: Option<&Config>, key: usize) -> Option<Box<dyn Other>> {
            let default = Config::default();
            let config = config.unwrap_or(&default);
            match name {
                $(EngineName::$name => Some(others!(@ $order, $($engine)::+, config, key)),)*
                EngineName::Hash | EngineName::Ca => None,
            }
        }
    };
    (@ unordered, $($engine:ident)::+, $config:ident, $key:ident) => {
        Box::new(Unordered($($engine)::+::<Exact>::new(Exact::new($key), $config)?))
    };
    (@ ordered, $($engine:ident)::+, $config:ident, $key:ident) => {
        Box::new(InOrder($($engine)::+::<Ordered>::new(Ordered::new($key), $config)?))
    };
}

others! {
    Avl => ordered cats_papers::avl::Avl,
    CaAvl => ordered cats_papers::ca_tree::CaAvl,
    CaTreap => ordered cats_papers::ca_tree::CaTreap,
    LinearHash => unordered cats_papers::linear_hash::LinearHash,
    SkipList => ordered cats_papers::skip_list::SkipList,
    StdHash => unordered cats_papers::std_hash::StdHash,
}

/// An engine that does not order its keys. Its address is that of the engine, by which probes know it.
#[repr(transparent)]
struct Unordered<E>(E);
/// An engine that orders its keys.
#[repr(transparent)]
struct InOrder<E>(E);

/// The methods that are the same for both.
macro_rules! passed_on {
    () => {
        fn events(&self) -> Option<&Events> {
            Some(self.0.events())
        }

        fn read(&self, guard: &Guard, probe: &Probe<'static>, look: Look<'_>) -> Result<(), Busy> {
            self.0.read(guard, probe, look)
        }

        fn update(
            &self,
            guard: &Guard,
            probe: &Probe<'static>,
            change: &mut dyn FnMut(Option<Entry>) -> Step,
        ) -> Result<(), Busy> {
            self.0.update(guard, probe, |entry| (change(entry), ()))
        }

        fn update_many(
            &self,
            guard: &Guard,
            probes: &[&Probe<'static>],
            change: &mut dyn FnMut(&mut dyn Locked),
        ) -> Result<(), Busy> {
            self.0.update_many(guard, probes, change)
        }

        fn detaching(&self) -> Option<&dyn Detaching> {
            self.0.detaches().then_some(&self.0)
        }

        fn next(&self, guard: &Guard, after: Option<&Probe<'static>>, look: Look<'_>) -> Result<(), Busy> {
            self.0.next(guard, after, look)
        }

        fn buckets(&self) -> usize {
            self.0.buckets()
        }

        fn slot<'g>(
            &self,
            guard: &'g Guard,
            number: usize,
            expand: Expand<'_, 'g>,
        ) -> Result<Option<Vec<ObjectRef<'g>>>, Busy> {
            self.0.slot(guard, number, expand)
        }

        fn bytes(&self) -> usize {
            self.0.bytes()
        }

        fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
            self.0.dismantle(limit, free)
        }
    };
}

impl<E: Engine<Exact, Cursor: Numbered> + Detaching + Eventful> Other for Unordered<E> {
    passed_on!();

    fn is_ordered(&self) -> bool {
        false
    }

    fn previous(&self, guard: &Guard, before: Option<&Probe<'static>>, look: Look<'_>) -> Result<(), Busy> {
        self.0.next(guard, before, look)
    }

    fn scan<'g>(
        &self,
        guard: &'g Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: Expand<'_, 'g>,
    ) -> Result<bool, Busy> {
        let mut cursor = E::Cursor::of_number(*position);
        let more = self.0.scan(guard, &mut cursor, limit, out, expand)?;
        *position = cursor.number();
        Ok(more)
    }
}

impl<E: OrderedEngine<Ordered> + Detaching + Eventful> Other for InOrder<E> {
    passed_on!();

    fn is_ordered(&self) -> bool {
        true
    }

    fn previous(&self, guard: &Guard, before: Option<&Probe<'static>>, look: Look<'_>) -> Result<(), Busy> {
        self.0.prev(guard, before, look)
    }

    fn range<'g>(
        &self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: Expand<'_, 'g>,
    ) -> Result<bool, Busy> {
        self.0.range(guard, range, limit, out, expand)
    }

    fn base_nodes(&self) -> usize {
        self.0.base_nodes()
    }
}
