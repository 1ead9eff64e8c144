//! How an engine is to be built: what the options of a table choose, for the engines that have a choice.

use crate::structures::ca::Thresholds;
use cats_sync::lock::{AnyLock, Delegation, Kind};
use std::sync::OnceLock;

/// An enumeration whose values have names that users write.
macro_rules! named {
    ($(#[$attribute:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $($(#[$note])* $variant),*
        }

        impl $name {
            /// All values, the default first.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// Their names, in the same order.
            pub const TEXTS: &'static [&'static str] = &[$($text),*];
        }
    };
}

named! {
    /// The lock of an engine that has one for the whole table.
    LockName {
        /// Readers-writer lock; with reader groups where the table asks for read concurrency.
        #[default]
        Rw = "rw",
        /// Readers-writer lock whose writers queue as in MCS, with distributed read indicators.
        DrMcs = "dr_mcs",
        /// Combining lock with a queue of requests.
        CcSynch = "cc_synch",
        /// Multiple-reader queue delegation.
        Mrqd = "mrqd",
        /// The pointer to the table is what readers announce.
        EtsPointer = "ets_pointer",
    }
}

named! {
    /// How an operation is delegated to the holder of a queue delegation lock.
    Delegate {
        /// Operations carry their object with them in the queue.
        #[default]
        Copy = "copy",
        /// Operations carry the address of their object.
        Malloc = "malloc",
        /// Whoever delegates waits for the outcome.
        Wait = "wait",
    }
}

named! {
    /// The lock of a base node of a contention adapting tree.
    BaseLock {
        #[default]
        Mutex = "mutex",
        Rw = "rw",
    }
}

/// What guards the buckets of a hash table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BucketLocks {
    /// The lock of the table alone.
    #[default]
    TableLock,
    /// So many locks, a power of two from 1 to [`MAX_BUCKET_LOCKS`], each for its share of the buckets.
    Fixed(u32),
    /// As many as contention asks for.
    Auto,
}

/// The most locks that guard the buckets of a hash table.
pub const MAX_BUCKET_LOCKS: u32 = 32768;

/// The bucket locks of a table that asks for write concurrency without a number.
pub const DEFAULT_BUCKET_LOCKS: u32 = 64;

impl Config {
    /// The lock of the whole table that is asked for, around `value`.
    pub fn table_lock<T: Send + Sync>(&self, value: T) -> AnyLock<T> {
        let kind = match (self.lock, self.delegate) {
            (LockName::Rw, _) => Kind::Rw,
            (LockName::DrMcs, _) => Kind::DrMcs,
            (LockName::CcSynch, _) => Kind::CcSynch,
            (LockName::Mrqd, Delegate::Wait) => Kind::Mrqd(Delegation::Wait),
            (LockName::Mrqd, Delegate::Malloc) => Kind::Mrqd(Delegation::Malloc),
            (LockName::Mrqd, Delegate::Copy) => Kind::Mrqd(Delegation::Copy),
            (LockName::EtsPointer, _) => Kind::EtsPointer,
        };
        AnyLock::of(kind, value, if self.read_concurrency { self.reader_groups } else { 1 })
    }

    /// The thresholds of adaptation that are asked for.
    pub fn thresholds(&self) -> Thresholds {
        let default = Thresholds::default();
        let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        Thresholds {
            split: self.split.map_or(default.split, number),
            join: self.join.map_or(default.join, |value| -number(value)),
        }
    }
}

/// See the module's documentation. An engine looks at what concerns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub lock: LockName,
    /// Of [`LockName::Mrqd`].
    pub delegate: Delegate,
    /// A tree keeps one stack for all searches, as ETS once did, in place of one for each.
    pub static_stack: bool,
    pub bucket_locks: BucketLocks,
    /// The statistic above which a base node splits, where it is not to be the engine's own.
    pub split: Option<u32>,
    /// The statistic, negated, below which a base node joins a neighbour, where it is not to be the engine's own.
    pub join: Option<u32>,
    pub base_lock: BaseLock,
    /// Reads are expected to be frequent and at once: readers-writer locks have reader groups.
    pub read_concurrency: bool,
    /// The most groups that readers of one lock are divided into; at least 1.
    pub reader_groups: usize,
}

/// The most groups of readers, unless one is told otherwise.
pub const READER_GROUPS: usize = 64;

impl Default for Config {
    fn default() -> Self {
        Self {
            lock: LockName::default(),
            delegate: Delegate::default(),
            static_stack: false,
            bucket_locks: BucketLocks::default(),
            split: None,
            join: None,
            base_lock: BaseLock::default(),
            read_concurrency: false,
            reader_groups: processors().min(READER_GROUPS),
        }
    }
}

/// The number of processors, asked for once: to find out reads files, some 40 µs.
fn processors() -> usize {
    static NUMBER: OnceLock<usize> = OnceLock::new();
    *NUMBER.get_or_init(|| std::thread::available_parallelism().map_or(1, |number| number.get()))
}
