//! What `new/2` can ask of a table. How the option list is read is the boundary's affair; how options act on each other is ETS'
//! and stands here: a later option overrides an earlier one, but `set` and `protected` ask for nothing. What an engine lacks is
//! refused.

use crate::engines::{EngineName, EngineOption};
use cats_engine::config::{BaseLock, BucketLocks, Config, Delegate, LockName, DEFAULT_BUCKET_LOCKS, MAX_BUCKET_LOCKS};

/// The four table types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Set,
    OrderedSet,
    Bag,
    DuplicateBag,
}

impl Kind {
    /// What users call it.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Set => "set",
            Kind::OrderedSet => "ordered_set",
            Kind::Bag => "bag",
            Kind::DuplicateBag => "duplicate_bag",
        }
    }

    /// Whether a key may have several objects.
    #[inline]
    pub fn is_bag(self) -> bool {
        matches!(self, Kind::Bag | Kind::DuplicateBag)
    }
}

/// Who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// Everyone reads and writes.
    Public = 0,
    /// Everyone reads, the owner writes.
    Protected = 1,
    /// The owner reads and writes.
    Private = 2,
}

/// The value of `write_concurrency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteConcurrency {
    False,
    True,
    Auto,
    /// So many bucket locks.
    Locks(u32),
}

impl WriteConcurrency {
    /// So many bucket locks; nothing when there cannot be so many.
    pub fn locks(number: u32) -> Option<Self> {
        (number.is_power_of_two() && number <= MAX_BUCKET_LOCKS).then_some(Self::Locks(number))
    }
}

/// One option, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionItem {
    Kind(Kind),
    Access(Access),
    NamedTable,
    Compressed,
    KeyPosition(u32),
    WriteConcurrency(WriteConcurrency),
    ReadConcurrency(bool),
    DecentralizedCounters(bool),
    Engine(EngineName),
    /// An option that only some engines have, but `write_concurrency`: its number, or the place of its name, in its
    /// [`values`](EngineOption::values).
    OfEngine(EngineOption, u32),
}

/// Why options are refused: the engine cannot do what they ask for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The engine does not hold tables of this type.
    Kind(EngineName, Kind),
    /// The engine does not have this option.
    Option(EngineName, EngineOption),
    /// How to delegate is said, but not to a lock that does.
    NoDelegation,
}

/// The options of a table as they came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub kind: Kind,
    pub access: Access,
    pub named: bool,
    pub compressed: bool,
    /// From 1.
    pub key_position: u32,
    pub write_concurrency: WriteConcurrency,
    pub read_concurrency: bool,
    pub decentralized_counters: bool,
    pub engine: EngineName,
    /// How the engine is built, unless it is the default one and nothing was said of it.
    pub config: Option<Box<Config>>,
    /// The engine is the default one of the type, and objects are not compressed.
    pub plain: bool,
}

/// Collects options in the order of the list.
#[derive(Debug)]
pub struct Collect {
    options: Options,
    config: Config,
    engine: Option<EngineName>,
    decentralized: Option<bool>,
    /// Options that only some engines have.
    given: Vec<EngineOption>,
}

impl Default for Collect {
    fn default() -> Self {
        Self {
            options: Options {
                kind: Kind::Set,
                access: Access::Protected,
                named: false,
                compressed: false,
                key_position: 1,
                write_concurrency: WriteConcurrency::False,
                read_concurrency: false,
                decentralized_counters: false,
                engine: EngineName::Hash,
                config: None,
                plain: false,
            },
            config: Config::default(),
            engine: None,
            decentralized: None,
            given: Vec::new(),
        }
    }
}

impl Collect {
    /// Takes the next option of the list.
    #[inline(always)]
    pub fn add(&mut self, item: OptionItem) {
        let options = &mut self.options;
        match item {
            OptionItem::Kind(Kind::Set) | OptionItem::Access(Access::Protected) => (),
            OptionItem::Kind(kind) => {
                options.kind = kind;
                if kind == Kind::OrderedSet {
                    options.decentralized_counters = true;
                }
            }
            OptionItem::Access(access) => options.access = access,
            OptionItem::NamedTable => options.named = true,
            OptionItem::Compressed => options.compressed = true,
            OptionItem::KeyPosition(position) => options.key_position = position,
            OptionItem::WriteConcurrency(value) => {
                options.write_concurrency = value;
                match value {
                    WriteConcurrency::Auto => options.decentralized_counters = true,
                    WriteConcurrency::True | WriteConcurrency::Locks(_) if options.kind != Kind::OrderedSet => {
                        options.decentralized_counters = false
                    }
                    _ => (),
                }
            }
            OptionItem::ReadConcurrency(value) => options.read_concurrency = value,
            OptionItem::DecentralizedCounters(value) => self.decentralized = Some(value),
            OptionItem::Engine(engine) => self.engine = Some(engine),
            OptionItem::OfEngine(option, value) => {
                self.given.push(option);
                let config = &mut self.config;
                match option {
                    EngineOption::Lock => config.lock = LockName::ALL[value as usize],
                    EngineOption::Delegate => config.delegate = Delegate::ALL[value as usize],
                    EngineOption::StaticStack => config.static_stack = value == 1,
                    EngineOption::Split => config.split = Some(value),
                    EngineOption::Join => config.join = Some(value),
                    EngineOption::BaseLock => config.base_lock = BaseLock::ALL[value as usize],
                    EngineOption::WriteConcurrency => (),
                }
            }
        }
    }

    /// The options of the table. Readers of one lock are divided into `reader_groups` groups at most.
    pub fn finish(self, reader_groups: usize) -> Result<Options, Refusal> {
        let (mut options, mut config) = (self.options, self.config);
        options.engine = self.engine.unwrap_or(EngineName::default_of(options.kind));
        if !options.engine.kinds().contains(&options.kind) {
            return Err(Refusal::Kind(options.engine, options.kind));
        }
        let mut given = self.given;
        if matches!(options.write_concurrency, WriteConcurrency::Locks(_)) {
            given.push(EngineOption::WriteConcurrency);
        }
        if let Some(lacking) = given.iter().find(|option| !options.engine.options().contains(option)) {
            return Err(Refusal::Option(options.engine, *lacking));
        }
        if given.contains(&EngineOption::Delegate) && config.lock != LockName::Mrqd {
            return Err(Refusal::NoDelegation);
        }
        options.decentralized_counters = self.decentralized.unwrap_or(options.decentralized_counters);
        // A private table has no use for concurrency, and ETS says so in `info`.
        if options.access == Access::Private {
            options.write_concurrency = WriteConcurrency::False;
            options.read_concurrency = false;
        }
        if options.write_concurrency == WriteConcurrency::False {
            options.decentralized_counters = false;
        }
        config.bucket_locks = match options.write_concurrency {
            WriteConcurrency::False => BucketLocks::TableLock,
            WriteConcurrency::True => BucketLocks::Fixed(DEFAULT_BUCKET_LOCKS),
            WriteConcurrency::Auto => BucketLocks::Auto,
            WriteConcurrency::Locks(number) => BucketLocks::Fixed(number),
        };
        options.plain = options.engine == EngineName::default_of(options.kind) && !options.compressed;
        config.read_concurrency = options.read_concurrency;
        config.reader_groups = reader_groups;
        let default = options.engine == EngineName::default_of(options.kind) && given.is_empty();
        options.config = (!default).then(|| Box::new(config));
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(items: &[OptionItem]) -> Result<Options, Refusal> {
        let mut collect = Collect::default();
        for item in items {
            collect.add(*item);
        }
        collect.finish(1)
    }

    #[test]
    fn later_options_override_but_defaults_do_not() {
        let options = collect(&[
            OptionItem::Kind(Kind::OrderedSet),
            OptionItem::Kind(Kind::Bag),
            OptionItem::Kind(Kind::Set),
            OptionItem::Access(Access::Public),
            OptionItem::Access(Access::Protected),
        ])
        .unwrap();
        assert_eq!(options.kind, Kind::Bag);
        assert_eq!(options.access, Access::Public);
    }

    #[test]
    fn counters_follow_type_and_concurrency() {
        let ordered = OptionItem::Kind(Kind::OrderedSet);
        let write = OptionItem::WriteConcurrency(WriteConcurrency::True);
        assert!(collect(&[ordered, write]).unwrap().decentralized_counters);
        assert!(collect(&[write, ordered]).unwrap().decentralized_counters);
        assert!(!collect(&[write]).unwrap().decentralized_counters);
        assert!(!collect(&[ordered]).unwrap().decentralized_counters);
        assert!(
            !collect(&[OptionItem::DecentralizedCounters(true)])
                .unwrap()
                .decentralized_counters
        );
    }

    #[test]
    fn an_engine_that_lacks_the_type_is_refused() {
        let ordered = OptionItem::Kind(Kind::OrderedSet);
        let ask = |engine, items: &[OptionItem]| {
            let result = collect(&[&[OptionItem::Engine(engine)], items].concat());
            result.map(|options| options.engine)
        };
        assert_eq!(ask(EngineName::Hash, &[]), Ok(EngineName::Hash));
        assert_eq!(ask(EngineName::Ca, &[ordered]), Ok(EngineName::Ca));
        assert_eq!(ask(EngineName::Ca, &[]), Err(Refusal::Kind(EngineName::Ca, Kind::Set)));
        assert_eq!(
            ask(EngineName::Hash, &[ordered]),
            Err(Refusal::Kind(EngineName::Hash, Kind::OrderedSet))
        );
        let bag = [OptionItem::Kind(Kind::Bag)];
        assert_eq!(
            ask(EngineName::StdHash, &bag),
            Err(Refusal::Kind(EngineName::StdHash, Kind::Bag))
        );
    }

    #[test]
    fn an_engine_that_lacks_the_option_is_refused() {
        let locks = OptionItem::WriteConcurrency(WriteConcurrency::locks(16).unwrap());
        let split = OptionItem::OfEngine(EngineOption::Split, 10);
        let linear = OptionItem::Engine(EngineName::LinearHash);
        let lacks = |option| Err(Refusal::Option(EngineName::Hash, option));
        assert_eq!(collect(&[locks]), lacks(EngineOption::WriteConcurrency));
        assert_eq!(collect(&[split]), lacks(EngineOption::Split));
        // What a later option overrides was not asked for.
        let plain = OptionItem::WriteConcurrency(WriteConcurrency::True);
        assert!(collect(&[locks, plain]).is_ok());
        assert_eq!(
            collect(&[linear, locks]).unwrap().config.unwrap().bucket_locks,
            BucketLocks::Fixed(16)
        );
        let ordered = OptionItem::Kind(Kind::OrderedSet);
        assert_eq!(collect(&[ordered, split]).unwrap().config.unwrap().split, Some(10));
        assert_eq!(collect(&[ordered]).unwrap().config, None);
    }

    #[test]
    fn only_a_lock_that_delegates_is_told_how() {
        let engine = OptionItem::Engine(EngineName::StdHash);
        let wait = Delegate::ALL.iter().position(|delegate| *delegate == Delegate::Wait);
        let wait = OptionItem::OfEngine(EngineOption::Delegate, wait.unwrap() as u32);
        let lock = |name| {
            let place = LockName::ALL.iter().position(|lock| *lock == name);
            OptionItem::OfEngine(EngineOption::Lock, place.unwrap() as u32)
        };
        assert_eq!(collect(&[engine, wait]), Err(Refusal::NoDelegation));
        assert_eq!(
            collect(&[engine, wait, lock(LockName::DrMcs)]),
            Err(Refusal::NoDelegation)
        );
        let config = collect(&[engine, wait, lock(LockName::Mrqd)]).unwrap().config.unwrap();
        assert_eq!((config.lock, config.delegate), (LockName::Mrqd, Delegate::Wait));
    }

    #[test]
    fn numbers_of_bucket_locks_are_powers_of_two() {
        for number in [1, 2, 16, 64, 32768] {
            assert_eq!(WriteConcurrency::locks(number), Some(WriteConcurrency::Locks(number)));
        }
        for number in [0, 3, 17, 65536] {
            assert_eq!(WriteConcurrency::locks(number), None);
        }
    }
}
