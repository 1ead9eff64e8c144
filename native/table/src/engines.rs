//! The engines of tables, by name, and what each of them can do: its table types and its options. Which engines are built is in
//! [`crate::store`].

use cats_engine::config::{BaseLock, Delegate, LockName, MAX_BUCKET_LOCKS};

/// The four table types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Set,
    OrderedSet,
    Bag,
    DuplicateBag,
}

impl Kind {
    /// The name for users.
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

/// An engine, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineName {
    Hash,
    Ca,
    LinearHash,
    StdHash,
    Avl,
    CaAvl,
    CaTreap,
    SkipList,
}

/// An option that only some engines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EngineOption {
    /// The table lock.
    Lock,
    /// How operations are delegated, for a table lock that delegates.
    Delegate,
    StaticStack,
    /// `write_concurrency` with the number of bucket locks.
    WriteConcurrency,
    /// The thresholds at which a tree adapts to contention.
    Split,
    Join,
    /// The locks of base nodes.
    BaseLock,
}

/// The values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these names. The first one is the default.
    Names(&'static [&'static str]),
    /// A number from the first to the second.
    Numbers(u32, u32),
}

/// The largest threshold: statistics are signed 32-bit numbers.
pub const MAX_THRESHOLD: u32 = i32::MAX as u32;

impl EngineName {
    /// All engines, in the order in which they are listed. The first one that has a table type is the default for it.
    pub const ALL: [Self; 8] = [
        Self::Hash,
        Self::Ca,
        Self::LinearHash,
        Self::StdHash,
        Self::Avl,
        Self::CaAvl,
        Self::CaTreap,
        Self::SkipList,
    ];

    /// The name for users.
    pub fn text(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Ca => "ca",
            Self::LinearHash => "linear_hash",
            Self::StdHash => "std_hash",
            Self::Avl => "avl",
            Self::CaAvl => "ca_avl",
            Self::CaTreap => "ca_treap",
            Self::SkipList => "skip_list",
        }
    }

    /// The table types that the engine supports.
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Hash | Self::LinearHash => &[Kind::Set, Kind::Bag, Kind::DuplicateBag],
            Self::StdHash => &[Kind::Set],
            Self::Ca | Self::Avl | Self::CaAvl | Self::CaTreap | Self::SkipList => &[Kind::OrderedSet],
        }
    }

    /// Whether transactions can use tables of this engine and type.
    pub fn has_transactions(self, kind: Kind) -> bool {
        matches!(self, Self::Hash | Self::Ca) && self.kinds().contains(&kind)
    }

    /// Whether tables of this engine and type have `rank`, `nth` and `count`.
    pub fn has_order_statistics(self, kind: Kind) -> bool {
        matches!((self, kind), (Self::Ca, Kind::OrderedSet))
    }

    /// Whether snapshots can be taken of tables of this engine.
    pub fn has_snapshots(self) -> bool {
        matches!(self, Self::Hash | Self::Ca)
    }

    /// The options of the engine, besides those that all engines have.
    pub fn options(self) -> &'static [EngineOption] {
        use EngineOption::*;
        match self {
            Self::Hash | Self::SkipList => &[],
            Self::LinearHash => &[WriteConcurrency],
            Self::StdHash => &[Lock, Delegate],
            Self::Avl => &[Lock, Delegate, StaticStack],
            Self::Ca => &[Split, Join],
            Self::CaAvl | Self::CaTreap => &[Split, Join, BaseLock],
        }
    }

    /// The engine of a table of this type, if no engine is named.
    pub fn default_of(kind: Kind) -> Self {
        match kind {
            Kind::OrderedSet => Self::Ca,
            _ => Self::Hash,
        }
    }
}

impl EngineOption {
    pub const ALL: [Self; 7] = [
        Self::Lock,
        Self::Delegate,
        Self::StaticStack,
        Self::WriteConcurrency,
        Self::Split,
        Self::Join,
        Self::BaseLock,
    ];

    /// The name for users.
    pub fn text(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Delegate => "delegate",
            Self::StaticStack => "static_stack",
            Self::WriteConcurrency => "write_concurrency",
            Self::Split => "split",
            Self::Join => "join",
            Self::BaseLock => "base_lock",
        }
    }

    /// The values that the option can have.
    pub fn values(self) -> Values {
        match self {
            Self::Lock => Values::Names(LockName::TEXTS),
            Self::Delegate => Values::Names(Delegate::TEXTS),
            Self::StaticStack => Values::Names(&["false", "true"]),
            Self::WriteConcurrency => Values::Numbers(1, MAX_BUCKET_LOCKS),
            Self::Split | Self::Join => Values::Numbers(0, MAX_THRESHOLD),
            Self::BaseLock => Values::Names(BaseLock::TEXTS),
        }
    }
}
