//! With what contents are made, so that others can be made in the same way.

use crate::engines::EngineName;
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

/// Whether contents with leases have them in cells, in this engine. `idle` says whether reads matter: there is no room for an own end in a
/// cell.
pub fn is_seated(engine: EngineName, idle: bool) -> bool {
    engine == EngineName::Hash && !idle
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
