//! With what contents are made, so that others can be made in the same way.

use crate::evict::account::Limit;
use cats_engine::config::Config;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// How the engine is built.
    pub config: Config,
    /// When objects expire. `None`: they do not.
    pub expiry: Option<Expiry>,
    pub limit: Option<Limit>,
}

/// When objects expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The milliseconds that an object lives, unless it is inserted with a time of its own. `u64::MAX`: it does not expire.
    pub ttl: u64,
    /// The milliseconds that an object lives after it was last read. `u64::MAX`: reads do not matter.
    pub idle: u64,
}

/// Whether contents with leases that expire so have them in cells. Where reads matter, an object has an own end, for which a cell has no room.
pub fn is_seated(expiry: Option<Expiry>) -> bool {
    expiry.is_none_or(|expiry| !expiry.has_idle())
}

impl Expiry {
    /// Whether reads make objects live longer.
    pub fn has_idle(&self) -> bool {
        self.idle != u64::MAX
    }
}

impl Default for Expiry {
    fn default() -> Self {
        Self {
            ttl: u64::MAX,
            idle: u64::MAX,
        }
    }
}
