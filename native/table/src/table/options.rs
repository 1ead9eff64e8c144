//! The options of `new/2`. The boundary reads the option list. This file has ETS' rules for how options interact: a later option overrides
//! an earlier one, but `set` and `protected` override nothing. Options that an engine does not support are refused.

use crate::engines::{EngineName, EngineOption, Kind};
use crate::evict::account::{Limit, Unit};
use crate::evict::allowance::{leaves_room, Limited};
use crate::evict::policies::Policy;
use crate::store::is_built;
use crate::store::setup::{is_seated, Expiry, Setup};
use cats_engine::config::{BaseLock, BucketLocks, Config, Delegate, LockName, DEFAULT_BUCKET_LOCKS, MAX_BUCKET_LOCKS};
use std::fmt;

/// Who may read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// Everyone may read and write.
    Public = 0,
    /// Everyone may read, and only the owner may write.
    Protected = 1,
    /// Only the owner may read and write.
    Private = 2,
}

/// The value of `write_concurrency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteConcurrency {
    False,
    True,
    Auto,
    /// This number of bucket locks.
    Locks(u32),
    /// This number of bucket locks, given by the option with which ETS tests itself. Engines without bucket locks ignore it.
    HashLocks(u32),
}

/// The smallest number of locks that ETS uses for [`WriteConcurrency::HashLocks`].
const MIN_HASH_LOCKS: u32 = 64;

impl WriteConcurrency {
    /// This number of bucket locks. `None` if the number is not allowed.
    pub fn locks(number: u32) -> Option<Self> {
        (number.is_power_of_two() && number <= MAX_BUCKET_LOCKS).then_some(Self::Locks(number))
    }

    /// The number of bucket locks that ETS uses for this number. `None` if ETS refuses the number.
    pub fn hash_locks(number: u32) -> Option<Self> {
        let rounded = 1 << number.checked_ilog2()?;
        (number <= MAX_BUCKET_LOCKS).then_some(Self::HashLocks(MIN_HASH_LOCKS.max(rounded)))
    }
}

/// One option of the list.
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
    /// The bytes that copies for snapshots of the table may have.
    SnapshotLimit(usize),
    /// Whether operations are counted.
    Stats(bool),
    /// How many milliseconds an object lives.
    Ttl(u64),
    /// How many milliseconds an object lives after it was last read.
    Idle(u64),
    /// The limit of the contents.
    Limit(Unit, u64),
    /// Which objects are evicted at the limit. `None`: none, so what would pass the limit is refused.
    Evict(Option<Policy>),
    /// The percentage of its objects that the table gives up at a time when memory is short.
    Share(u8),
    /// An option that only some engines have, except `write_concurrency`. The number is the value, or the value's place in the option's
    /// [`values`](EngineOption::values).
    OfEngine(EngineOption, u32),
}

/// Why options are refused: the engine does not support them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The engine does not support tables of this type.
    Kind(EngineName, Kind),
    /// This build lacks the engine.
    NotBuilt(EngineName),
    /// The engine does not have this option.
    Option(EngineName, EngineOption),
    /// An option says how to delegate, but the lock does not delegate.
    NoDelegation,
    /// [`WriteConcurrency::HashLocks`] is given for an ordered table.
    NoHashTable,
    /// Objects of such tables cannot expire.
    NoExpiry,
    /// Such tables cannot have a limit.
    NoLimit,
    /// The limit of bytes leaves no room for objects.
    SmallLimit,
    /// A policy of eviction, or a share, is given for a table without a limit.
    NothingEvicted,
    /// A table that was made without a time for its objects cannot have one later.
    NoTtl,
    /// Nor one that was made without a limit.
    Unlimited,
    /// The table's limit counts these.
    OtherUnit(Unit),
    /// A table that was made to evict nothing cannot evict later.
    NoQueues,
}

/// The options of a `new/2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub options: Options,
    /// With what the contents are made. `None` if the engine is the default one, and no option is about it or its objects' ends.
    pub setup: Option<Box<Setup>>,
    /// The bytes that copies for snapshots of the table may have.
    pub snapshot_limit: usize,
    /// Whether operations are counted.
    pub counted: bool,
}

/// The final options of a table, in one word. A structure that is written field by field and then copied as a whole would cause a
/// store-forwarding stall.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Options(u64);

/// The place of an option in the word: its lowest bit, and the number of its bits.
#[derive(Clone, Copy)]
struct Field(u32, u32);

/// Counted from 1.
const KEY_POSITION: Field = Field(0, 32);
const KIND: Field = Field(32, 2);
const ACCESS: Field = Field(34, 2);
const ENGINE: Field = Field(36, 4);
/// 0, 1 and 2 stand for `false`, `true` and `auto`. From [`LOCKS`] and from [`HASH_LOCKS`] on, the logarithm of a number of locks is added.
const WRITE_CONCURRENCY: Field = Field(40, 5);
const READ_CONCURRENCY: Field = Field(45, 1);
const DECENTRALIZED_COUNTERS: Field = Field(46, 1);
const NAMED: Field = Field(47, 1);
const COMPRESSED: Field = Field(48, 1);
const PLAIN: Field = Field(49, 1);
const LEASED: Field = Field(50, 1);
const IDLE: Field = Field(51, 1);
const BOUNDED: Field = Field(52, 1);

const LOCKS: u64 = 3;
const HASH_LOCKS: u64 = LOCKS + 1 + MAX_BUCKET_LOCKS.ilog2() as u64 - MIN_HASH_LOCKS.ilog2() as u64;

impl Field {
    const fn mask(self) -> u64 {
        (1 << self.1) - 1
    }
}

impl Options {
    #[inline(always)]
    const fn get(self, field: Field) -> u64 {
        self.0 >> field.0 & field.mask()
    }

    #[inline(always)]
    fn set(&mut self, field: Field, value: u64) {
        debug_assert!(value <= field.mask());
        self.0 = self.0 & !(field.mask() << field.0) | value << field.0;
    }

    #[inline]
    pub fn kind(self) -> Kind {
        match self.get(KIND) {
            0 => Kind::Set,
            1 => Kind::OrderedSet,
            2 => Kind::Bag,
            _ => Kind::DuplicateBag,
        }
    }

    #[inline]
    pub fn access(self) -> Access {
        match self.get(ACCESS) {
            0 => Access::Public,
            1 => Access::Protected,
            _ => Access::Private,
        }
    }

    #[inline]
    pub fn named(self) -> bool {
        self.get(NAMED) != 0
    }

    #[inline]
    pub fn compressed(self) -> bool {
        self.get(COMPRESSED) != 0
    }

    /// Counted from 1.
    #[inline]
    pub fn key_position(self) -> u32 {
        self.get(KEY_POSITION) as u32
    }

    pub fn write_concurrency(self) -> WriteConcurrency {
        match self.get(WRITE_CONCURRENCY) {
            0 => WriteConcurrency::False,
            1 => WriteConcurrency::True,
            2 => WriteConcurrency::Auto,
            number if number < HASH_LOCKS + u64::from(MIN_HASH_LOCKS.ilog2()) => {
                WriteConcurrency::Locks(1 << (number - LOCKS))
            }
            number => WriteConcurrency::HashLocks(1 << (number - HASH_LOCKS)),
        }
    }

    pub fn read_concurrency(self) -> bool {
        self.get(READ_CONCURRENCY) != 0
    }

    pub fn decentralized_counters(self) -> bool {
        self.get(DECENTRALIZED_COUNTERS) != 0
    }

    #[inline]
    pub fn engine(self) -> EngineName {
        EngineName::ALL[self.get(ENGINE) as usize]
    }

    /// Whether the table's objects have [leases](cats_term::lease).
    #[inline]
    pub fn leased(self) -> bool {
        self.get(LEASED) != 0
    }

    /// Whether leases are in cells: as [`is_seated`] says of an expiry.
    #[inline]
    pub fn seated(self) -> bool {
        self.leased() && !self.idle()
    }

    /// Whether reads make the table's objects live longer.
    #[inline]
    pub fn idle(self) -> bool {
        self.get(IDLE) != 0
    }

    /// Whether that is so, and the table has a time to live besides.
    #[inline]
    pub fn bounded(self) -> bool {
        self.get(BOUNDED) != 0
    }

    /// Whether this is a plain table: it has the default engine of its type, and its objects are stored as they are.
    #[inline]
    pub fn plain(self) -> bool {
        self.get(PLAIN) != 0
    }

    /// The options of a snapshot of a table with these options.
    pub(crate) fn of_snapshot(mut self) -> Self {
        self.set(ACCESS, Access::Protected as u64);
        self.set(NAMED, 0);
        self.set(PLAIN, 0);
        self
    }

    /// Whether many processes may write at the same time.
    #[inline]
    pub(crate) fn shared(self) -> bool {
        self.get(ACCESS) == Access::Public as u64 || self.get(WRITE_CONCURRENCY) != 0
    }
}

impl Default for Options {
    fn default() -> Self {
        Self(1 << KEY_POSITION.0 | (Access::Protected as u64) << ACCESS.0)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("kind", &self.kind())
            .field("access", &self.access())
            .field("engine", &self.engine())
            .finish_non_exhaustive()
    }
}

impl WriteConcurrency {
    #[inline(always)]
    fn number(self) -> u64 {
        match self {
            Self::False => 0,
            Self::True => 1,
            Self::Auto => 2,
            Self::Locks(number) => LOCKS + u64::from(number.ilog2()),
            Self::HashLocks(number) => HASH_LOCKS + u64::from(number.ilog2()),
        }
    }
}

/// Collects options in the order of the list.
#[derive(Debug, Default)]
pub struct Collect {
    options: Options,
    engine: Option<EngineName>,
    decentralized: Option<bool>,
    snapshot_limit: Option<usize>,
    counted: bool,
    expiry: Option<Expiry>,
    limit: Option<(Unit, u64)>,
    evict: Option<Option<Policy>>,
    share: Option<u8>,
    /// Options that only few tables have.
    special: Option<Box<Special>>,
}

/// Options about the engine: which were given, of those that only some engines have, and how the engine is built then.
#[derive(Debug, Default)]
struct Special {
    given: Vec<EngineOption>,
    config: Config,
}

impl Collect {
    /// Adds the next option of the list.
    #[inline(always)]
    pub fn add(&mut self, item: OptionItem) {
        let options = &mut self.options;
        match item {
            OptionItem::Kind(Kind::Set) | OptionItem::Access(Access::Protected) => (),
            OptionItem::Kind(kind) => {
                options.set(KIND, kind as u64);
                if kind == Kind::OrderedSet {
                    options.set(DECENTRALIZED_COUNTERS, 1);
                }
            }
            OptionItem::Access(access) => options.set(ACCESS, access as u64),
            OptionItem::NamedTable => options.set(NAMED, 1),
            OptionItem::Compressed => options.set(COMPRESSED, 1),
            OptionItem::KeyPosition(position) => options.set(KEY_POSITION, position.into()),
            OptionItem::WriteConcurrency(value) => {
                options.set(WRITE_CONCURRENCY, value.number());
                match value {
                    WriteConcurrency::Auto | WriteConcurrency::HashLocks(_) => options.set(DECENTRALIZED_COUNTERS, 1),
                    WriteConcurrency::True | WriteConcurrency::Locks(_) if options.kind() != Kind::OrderedSet => {
                        options.set(DECENTRALIZED_COUNTERS, 0)
                    }
                    _ => (),
                }
            }
            OptionItem::ReadConcurrency(value) => options.set(READ_CONCURRENCY, value.into()),
            OptionItem::DecentralizedCounters(value) => self.decentralized = Some(value),
            OptionItem::Engine(engine) => self.engine = Some(engine),
            OptionItem::SnapshotLimit(bytes) => self.snapshot_limit = Some(bytes),
            OptionItem::Stats(value) => self.counted = value,
            OptionItem::Ttl(time) => self.expiry.get_or_insert_default().ttl = time,
            OptionItem::Idle(time) => self.expiry.get_or_insert_default().idle = time,
            OptionItem::Limit(unit, number) => self.limit = Some((unit, number)),
            OptionItem::Evict(policy) => self.evict = Some(policy),
            OptionItem::Share(share) => self.share = Some(share),
            OptionItem::OfEngine(option, value) => {
                self.special.get_or_insert_default().add(option, value);
            }
        }
    }

    /// The final options. The readers of a lock are divided into at most `reader_groups` groups.
    #[inline(always)]
    pub fn finish(self, reader_groups: usize) -> Result<Request, Refusal> {
        let mut options = self.options;
        let default = EngineName::default_of(options.kind());
        let engine = self.engine.unwrap_or(default);
        options.set(ENGINE, engine as u64);
        let asked = options.write_concurrency();
        if matches!(asked, WriteConcurrency::HashLocks(_)) && options.kind() == Kind::OrderedSet {
            return Err(Refusal::NoHashTable);
        }
        if let Some(decentralized) = self.decentralized {
            options.set(DECENTRALIZED_COUNTERS, decentralized.into());
        }
        // A private table does not need concurrency. ETS reports it so in `info`.
        if options.access() == Access::Private {
            options.set(WRITE_CONCURRENCY, 0);
            options.set(READ_CONCURRENCY, 0);
        }
        if options.get(WRITE_CONCURRENCY) == 0 {
            options.set(DECENTRALIZED_COUNTERS, 0);
        }
        let policy = self.evict.unwrap_or(Some(Policy::ALL[0]));
        let share = self.share.unwrap_or(Limit::SHARE);
        let limit = self.limit.map(|(unit, number)| Limit {
            unit,
            number,
            policy,
            share,
        });
        if limit.is_none() && (self.evict.is_some() || self.share.is_some()) {
            return Err(Refusal::NothingEvicted);
        }
        let leased = self.expiry.is_some() || limit.is_some();
        options.set(LEASED, leased.into());
        let idle = self.expiry.is_some_and(|expiry| expiry.has_idle());
        options.set(IDLE, idle.into());
        let bounded = idle && self.expiry.is_some_and(|expiry| expiry.ttl != u64::MAX);
        options.set(BOUNDED, bounded.into());
        options.set(PLAIN, (engine == default && !leased && !options.compressed()).into());
        let locks = matches!(asked, WriteConcurrency::Locks(_));
        let setup = match engine == default && self.special.is_none() && !locks && !leased {
            true => None,
            false => {
                let Special { given, config } = self.special.map_or_else(Special::default, |special| *special);
                let setup = Setup {
                    config,
                    expiry: self.expiry,
                    limit,
                };
                Some(finish_setup(options, asked, given, setup, reader_groups)?)
            }
        };
        Ok(Request {
            options,
            setup,
            snapshot_limit: self.snapshot_limit.unwrap_or(usize::MAX),
            counted: self.counted,
        })
    }
}

impl Special {
    #[cold]
    fn add(&mut self, option: EngineOption, value: u32) {
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

/// Checks a setup against the other options, and completes it. `asked` is the given `write_concurrency`, and `given` are the options
/// that only some engines have.
#[cold]
fn finish_setup(
    options: Options,
    asked: WriteConcurrency,
    mut given: Vec<EngineOption>,
    setup: Setup,
    reader_groups: usize,
) -> Result<Box<Setup>, Refusal> {
    let Setup {
        mut config,
        expiry,
        limit,
    } = setup;
    if !is_built(options.engine()) {
        return Err(Refusal::NotBuilt(options.engine()));
    }
    if !options.engine().kinds().contains(&options.kind()) {
        return Err(Refusal::Kind(options.engine(), options.kind()));
    }
    if matches!(asked, WriteConcurrency::Locks(_)) {
        given.push(EngineOption::WriteConcurrency);
    }
    let default = EngineName::default_of(options.kind());
    let can_expire = options.engine() == default && !options.kind().is_bag() && !options.compressed();
    if expiry.is_some() && !can_expire {
        return Err(Refusal::NoExpiry);
    }
    if limit.is_some() && !can_expire {
        return Err(Refusal::NoLimit);
    }
    let limited = Limited {
        ordered: options.engine() == EngineName::Ca,
        seated: is_seated(expiry),
        expires: expiry.is_some(),
        shared: options.shared(),
    };
    if limit.is_some_and(|limit| !leaves_room(&limit, limited)) {
        return Err(Refusal::SmallLimit);
    }
    if let Some(lacking) = given.iter().find(|option| !options.engine().options().contains(option)) {
        return Err(Refusal::Option(options.engine(), *lacking));
    }
    if given.contains(&EngineOption::Delegate) && config.lock != LockName::Mrqd {
        return Err(Refusal::NoDelegation);
    }
    config.bucket_locks = match options.write_concurrency() {
        WriteConcurrency::False => BucketLocks::TableLock,
        WriteConcurrency::True => BucketLocks::Fixed(DEFAULT_BUCKET_LOCKS),
        WriteConcurrency::Auto => BucketLocks::Auto,
        WriteConcurrency::Locks(number) | WriteConcurrency::HashLocks(number) => BucketLocks::Fixed(number),
    };
    config.read_concurrency = options.read_concurrency();
    config.reader_groups = reader_groups;
    Ok(Box::new(Setup { config, expiry, limit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(items: &[OptionItem]) -> Result<Request, Refusal> {
        let mut collect = Collect::default();
        for item in items {
            collect.add(*item);
        }
        collect.finish(1)
    }

    fn collect(items: &[OptionItem]) -> Result<Options, Refusal> {
        request(items).map(|request| request.options)
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
        assert_eq!(options.kind(), Kind::Bag);
        assert_eq!(options.access(), Access::Public);
    }

    #[test]
    fn counters_follow_type_and_concurrency() {
        let ordered = OptionItem::Kind(Kind::OrderedSet);
        let write = OptionItem::WriteConcurrency(WriteConcurrency::True);
        assert!(collect(&[ordered, write]).unwrap().decentralized_counters());
        assert!(collect(&[write, ordered]).unwrap().decentralized_counters());
        assert!(!collect(&[write]).unwrap().decentralized_counters());
        assert!(!collect(&[ordered]).unwrap().decentralized_counters());
        assert!(!collect(&[OptionItem::DecentralizedCounters(true)])
            .unwrap()
            .decentralized_counters());
    }

    #[test]
    fn an_engine_that_lacks_the_type_is_refused() {
        let ordered = OptionItem::Kind(Kind::OrderedSet);
        let ask = |engine, items: &[OptionItem]| {
            let result = collect(&[&[OptionItem::Engine(engine)], items].concat());
            result.map(|options| options.engine())
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
        // An option that a later one overrides counts as not given.
        let plain = OptionItem::WriteConcurrency(WriteConcurrency::True);
        assert!(collect(&[locks, plain]).is_ok());
        assert_eq!(
            request(&[linear, locks]).unwrap().setup.unwrap().config.bucket_locks,
            BucketLocks::Fixed(16)
        );
        let ordered = OptionItem::Kind(Kind::OrderedSet);
        assert_eq!(
            request(&[ordered, split]).unwrap().setup.unwrap().config.split,
            Some(10)
        );
        assert_eq!(request(&[ordered]).unwrap().setup, None);
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
        let config = request(&[engine, wait, lock(LockName::Mrqd)])
            .unwrap()
            .setup
            .unwrap()
            .config;
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

    #[test]
    fn numbers_of_hash_locks_are_rounded_as_in_ets() {
        for (number, rounded) in [(1, 64), (64, 64), (127, 64), (128, 128), (1023, 512), (32768, 32768)] {
            assert_eq!(
                WriteConcurrency::hash_locks(number),
                Some(WriteConcurrency::HashLocks(rounded))
            );
        }
        for number in [0, 32769, 65536, u32::MAX] {
            assert_eq!(WriteConcurrency::hash_locks(number), None);
        }
    }

    #[test]
    fn every_write_concurrency_is_kept() {
        let numbers = (0..16).map(|logarithm| 1 << logarithm);
        let all = numbers.flat_map(|number| [WriteConcurrency::locks(number), WriteConcurrency::hash_locks(number)]);
        for value in all.flatten() {
            let mut options = Options::default();
            options.set(WRITE_CONCURRENCY, value.number());
            assert_eq!(options.write_concurrency(), value);
        }
    }
}
