//! What the structure of a table with a limit of bytes may take.
//!
//! Each object pays for its share of the structure, as large as that may become. A fixed part of the limit is kept apart for the rest. So
//! what a table has room for depends on its objects only: not on how they came there, and not on memory that waits to be freed.
//!
//! Structures keep to their allowance by themselves, except for stale items of the queues and of the timer wheel. These are dropped when they
//! would take more.

use super::account::{Limit, Unit};
use super::policies::{KEPT, QUEUES};
use super::shards;
use crate::expiry::wheel;

/// The bytes of a table beside its engine and its items: its values, its place in the registry, and what it counts.
const TABLE: usize = 4096;

/// This part of the limit is kept for the log of the engine, and for counters with more stripes, at most so many bytes.
const LOG_PART: u64 = 64;
const LOG_MOST: u64 = 64 << 10;

/// A small `hash` grows by powers of two, and a larger one by 36 or 54 KiB. For that, this part of the limit is kept.
const GROWTH_PART: u64 = 8;

/// The bytes of an engine.
#[derive(Clone, Copy, Debug)]
struct Structure {
    /// For each object.
    each: usize,
    /// For few objects, with what comes between two looks at stale items.
    few: usize,
    /// At most so many are kept to grow by.
    growth: u64,
    /// An object takes so many beside the engine at least.
    smallest: usize,
    /// In a crowded engine an object takes so many in overflow blocks.
    overflow: usize,
}

/// It has 26 to 32 bytes for each object, with overflow blocks.
const HASH: Structure = Structure {
    each: 36,
    few: 1536,
    growth: 26 << 10,
    smallest: 32,
    overflow: 7,
};

/// A `hash` with cells has 33 to 46 bytes for each object, with overflow blocks. A pair has no block.
const SEATED_HASH: Structure = Structure {
    each: 52,
    few: 2176,
    growth: 39 << 10,
    smallest: 0,
    overflow: 10,
};

/// It has 20 to 32 bytes for each object, and more where many objects were deleted. A leaf does not shrink alone.
const CA: Structure = Structure {
    each: 40,
    few: 3072,
    growth: 0,
    smallest: 32,
    overflow: 0,
};

/// A `ca` with cells has half as many bytes again. A pair has no block.
const SEATED_CA: Structure = Structure {
    each: 54,
    few: 4096,
    growth: 0,
    smallest: 0,
    overflow: 0,
};

/// There may be one stale item for so many objects. Those that deletions leave are dropped with less work than those of the wheel, which
/// evictions leave, too.
const STALE_OF_DELETIONS: usize = 4;
const STALE_OF_EVICTIONS: usize = 2;

/// The bytes that an object is taken to have, for the number of shards.
const ABOUT: u64 = 128;

/// In a table with many writers, so many bytes of the limit give the wheel a part.
const WHEEL_PART: u64 = 256 << 10;

/// Tables with a smaller limit have no striped counters, and no large wheel.
const SMALL: u64 = wheel::PARTS as u64 * WHEEL_PART;

/// A limit that leaves fewer bytes for objects is refused.
const LEAST: i64 = 512;

/// What has the limit.
#[derive(Clone, Copy, Debug)]
pub struct Limited {
    /// The engine is a `ca`, not a `hash`.
    pub ordered: bool,
    /// The engine has cells.
    pub seated: bool,
    /// Objects may expire.
    pub expires: bool,
    /// Many processes may write at the same time.
    pub shared: bool,
}

/// The bytes of queues, or of a wheel.
#[derive(Clone, Copy, Debug, Default)]
struct Items {
    empty: usize,
    /// For each object.
    each: usize,
    /// The copies of the keys.
    copies: usize,
}

/// See the module's documentation.
///
/// A limit may be changed. What is kept for the structure is what the largest limit that the table had asks for, as the structure may not
/// become smaller again.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    engine: Structure,
    /// What an object pays whose key is an immediate.
    each: usize,
    /// The queues and the wheel without stale items. `empty` of the queues is that of a shard.
    queues: Items,
    wheel: Items,
    /// The bytes of an item without its key.
    item: usize,
    /// For so many objects there may be a stale item. 0 if there are no items.
    stale: usize,
}

impl Allowance {
    pub fn new(limit: &Limit, limited: Limited) -> Self {
        let item = if limited.ordered { 8 } else { 4 };
        let queues = match limit.policy {
            None => Items::default(),
            // Another policy may take its place.
            Some(_) => Items {
                empty: shards::empty_bytes(QUEUES, item),
                each: item + KEPT,
                copies: 1,
            },
        };
        let parts = wheel_parts(limit, limited);
        let wheel = match limited.expires {
            false => Items {
                empty: wheel::new_bytes(parts),
                ..Items::default()
            },
            true => Items {
                empty: wheel::empty_bytes(parts, item),
                each: wheel::LEAST_ROOM * item,
                copies: 1,
            },
        };
        let stale = match (limit.policy, limited.expires) {
            (None, false) => 0,
            (Some(_), false) => STALE_OF_DELETIONS,
            (_, true) => STALE_OF_EVICTIONS,
        };
        let mut allowance = Self {
            engine: match (limited.ordered, limited.seated) {
                (true, false) => CA,
                (true, true) => SEATED_CA,
                (false, true) => SEATED_HASH,
                (false, false) => HASH,
            },
            each: 0,
            queues,
            wheel,
            item,
            stale,
        };
        allowance.each = allowance.share(0);
        allowance
    }

    /// What all objects may take together with this limit: without the part that is kept for what no object pays.
    pub fn capacity(&self, Bytes { number, largest }: Bytes) -> i64 {
        let table = TABLE + (largest / LOG_PART).min(LOG_MOST) as usize;
        let kept = table + self.few(largest) + self.empty_queues(largest) + self.wheel.empty;
        number as i64 - kept as i64
    }

    /// Whether this limit leaves room for at least a small object.
    pub fn leaves_room(&self, bytes: Bytes) -> bool {
        self.capacity(bytes) >= LEAST
    }

    /// The part that is kept for the engine.
    fn few(&self, largest: u64) -> usize {
        self.engine.few + (largest / GROWTH_PART).min(self.engine.growth) as usize
    }

    fn empty_queues(&self, largest: u64) -> usize {
        self.queues.empty * shards::number_for(about_objects(Unit::Bytes, largest))
    }

    /// What the buckets of a `hash` may take at most, with the smallest objects.
    pub fn of_buckets(&self, bytes: Bytes) -> usize {
        let Structure {
            each,
            smallest,
            overflow,
            ..
        } = self.engine;
        let objects = usize::try_from(self.capacity(bytes)).unwrap_or(0) / (smallest + self.of_object(0));
        self.few(bytes.largest) + objects * (each - overflow)
    }

    /// What the engine may take for so many objects.
    pub fn of_engine(&self, objects: usize, largest: u64) -> usize {
        self.few(largest) + self.engine.each * objects
    }

    /// What an object pays beside its own bytes. Its key takes so many bytes in an item.
    #[inline]
    pub fn of_object(&self, key: usize) -> usize {
        match key {
            0 => self.each,
            _ => self.share(key),
        }
    }

    fn share(&self, key: usize) -> usize {
        let items = self.queues.each + self.wheel.each + (self.queues.copies + self.wheel.copies) * key;
        self.engine.each + items + self.stale(1, key)
    }

    /// The bytes of stale items for so many objects.
    fn stale(&self, objects: usize, keys: usize) -> usize {
        match self.stale {
            0 => 0,
            part => (self.item * objects + keys).div_ceil(part),
        }
    }

    /// Whether objects may have items in the wheel.
    #[inline]
    pub fn has_wheel(&self) -> bool {
        self.wheel.copies > 0
    }

    /// What the queues and the wheel may take for so many objects, if the bytes of their keys are `keys`.
    pub fn of_items(&self, objects: usize, keys: usize, largest: u64) -> usize {
        self.of_queues(objects, keys, largest) + self.of_wheel(objects, keys) + self.stale(objects, keys)
    }

    /// What the queues take at most if no item is stale.
    pub fn of_queues(&self, objects: usize, keys: usize, largest: u64) -> usize {
        self.empty_queues(largest) + self.queues.each * objects + self.queues.copies * keys
    }

    /// What the wheel takes at most if no item is stale.
    pub fn of_wheel(&self, objects: usize, keys: usize) -> usize {
        self.wheel.empty + self.wheel.each * objects + self.wheel.copies * keys
    }
}

/// A limit of bytes, and the largest one that the table had.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    pub number: u64,
    pub largest: u64,
}

/// About how many objects have room.
pub fn about_objects(unit: Unit, number: u64) -> u64 {
    match unit {
        Unit::Objects => number,
        Unit::Bytes => number / ABOUT,
    }
}

/// The number of parts of the wheel.
pub fn wheel_parts(limit: &Limit, limited: Limited) -> usize {
    let most = match limit.unit {
        _ if !limited.shared || !limited.expires => wheel::FEW_PARTS as u64,
        Unit::Objects => wheel::PARTS as u64,
        Unit::Bytes => limit.number / WHEEL_PART,
    };
    most.clamp(wheel::FEW_PARTS as u64, wheel::PARTS as u64) as usize
}

/// Whether a limit is of so few bytes that its table is to be small.
pub fn is_small(limit: Option<Limit>) -> bool {
    limit.is_some_and(|limit| limit.unit == Unit::Bytes && limit.number < SMALL)
}

/// Whether a limit of a new table leaves room for at least a small object.
pub fn leaves_room(limit: &Limit, limited: Limited) -> bool {
    let bytes = Bytes {
        number: limit.number,
        largest: limit.number,
    };
    limit.unit == Unit::Objects || Allowance::new(limit, limited).leaves_room(bytes)
}
