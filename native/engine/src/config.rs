//! Configuration of engines: the options of a table, as far as an engine has a choice.

use crate::structures::ca::Thresholds;
use std::sync::OnceLock;

/// Defines an enumeration whose values have names that users write.
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
    /// The lock of an engine that has one lock for the whole table.
    LockName {
        /// Readers-writer lock, with reader groups if the table has read concurrency.
        #[default]
        Rw = "rw",
        /// Readers-writer lock with an MCS queue of writers and distributed read indicators.
        DrMcs = "dr_mcs",
        /// Combining lock with a queue of operations.
        CcSynch = "cc_synch",
        /// Multiple-reader queue delegation lock.
        Mrqd = "mrqd",
        /// Readers announce the pointer to the table.
        EtsPointer = "ets_pointer",
    }
}

named! {
    /// How an operation is delegated to the holder of a queue delegation lock.
    Delegate {
        /// The queue holds a copy of the object.
        #[default]
        Copy = "copy",
        /// The queue holds the address of the object.
        Malloc = "malloc",
        /// The caller waits for the result.
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

/// Which locks guard the buckets of a hash table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BucketLocks {
    /// Only the lock of the table.
    #[default]
    TableLock,
    /// This many locks, a power of two from 1 to [`MAX_BUCKET_LOCKS`]. Each guards its share of the buckets.
    Fixed(u32),
    /// The number of locks follows contention.
    Auto,
}

/// The largest number of locks for the buckets of a hash table.
pub const MAX_BUCKET_LOCKS: u32 = 32768;

/// The number of bucket locks of a table with write concurrency but no explicit number.
pub const DEFAULT_BUCKET_LOCKS: u32 = 64;

impl Config {
    /// The configured thresholds of adaptation.
    pub fn thresholds(&self) -> Thresholds {
        let default = Thresholds::default();
        let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        Thresholds {
            split: self.split.map_or(default.split, number),
            join: self.join.map_or(default.join, |value| -number(value)),
        }
    }
}

/// See the module's documentation. Each engine reads only the fields that concern it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub lock: LockName,
    /// For [`LockName::Mrqd`].
    pub delegate: Delegate,
    /// All searches share one stack in the tree, as in `ordered_set` of ETS. Otherwise each search has its own.
    pub static_stack: bool,
    pub bucket_locks: BucketLocks,
    /// A base node splits when its statistic is above this value. `None`: the engine's default.
    pub split: Option<u32>,
    /// A base node joins a neighbour when its statistic is below this value, negated. `None`: the engine's default.
    pub join: Option<u32>,
    pub base_lock: BaseLock,
    /// Many concurrent reads are expected: readers-writer locks get reader groups.
    pub read_concurrency: bool,
    /// The largest number of reader groups of one lock; at least 1.
    pub reader_groups: usize,
}

/// The default for the largest number of reader groups.
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

/// The number of processors. Cached, because finding it reads files.
fn processors() -> usize {
    static NUMBER: OnceLock<usize> = OnceLock::new();
    *NUMBER.get_or_init(|| std::thread::available_parallelism().map_or(1, |number| number.get()))
}
