//! What `setopts/2` changes of a table beside its heir and its access.

use crate::evict::account::Unit;
use crate::evict::allowance::is_small;
use crate::evict::policies::Policy;
use crate::failure::{Cause, Failure};
use crate::store::Store;
use crate::table::options::Refusal;
use crate::table::Handle;
use std::ptr;

/// What is to change. `None`: it stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether operations are counted.
    pub counted: Option<bool>,
    /// The milliseconds that objects live. `u64::MAX`: they do not expire.
    pub ttl: Option<u64>,
    pub limit: Option<(Unit, u64)>,
    /// Which objects are evicted. `Some(None)`: none.
    pub evict: Option<Option<Policy>>,
}

impl Handle<'_> {
    /// Fails if the table cannot have these settings.
    pub fn check_settings(self, settings: Settings) -> Result<(), Refusal> {
        let store = self.store();
        let limit = store.limit();
        if settings.ttl.is_some()
            && self
                .expiry()
                .is_none_or(|_| self.table.options().idle() && !self.table.options().bounded())
        {
            return Err(Refusal::NoTtl);
        }
        if (settings.limit.is_some() || settings.evict.is_some()) && limit.is_none() {
            return Err(Refusal::Unlimited);
        }
        if let (Some((unit, number)), Some(limit)) = (settings.limit, limit) {
            if unit != limit.unit {
                return Err(Refusal::OtherUnit(limit.unit));
            }
            if !store.may_become(unit, number) {
                return Err(Refusal::SmallLimit);
            }
        }
        match settings.evict {
            Some(policy) if !store.may_evict_by(policy) => Err(Refusal::NoQueues),
            _ => Ok(()),
        }
    }

    /// Gives the table settings that it can have. Fails with [`Failure::Slice`] as long as a lower limit needs more evictions. If nothing is
    /// evicted and the table holds more than that limit, fails with [`Failure::Full`] and changes nothing.
    pub fn apply(self, settings: Settings) -> Result<(), Failure> {
        let store = self.store();
        let evict = |policy| self.alone_with(store, &mut || store.set_policy(policy));
        // A policy lets a lower limit take effect.
        if let Some(policy @ Some(_)) = settings.evict {
            evict(policy)?;
        }
        if let Some((_, number)) = settings.limit {
            store.set_limit(self.guard, number, &|change| self.alone_with(store, change))?;
        }
        if let Some(None) = settings.evict {
            evict(None)?;
        }
        if let Some(ttl) = settings.ttl {
            self.alone_with(store, &mut || store.set_ttl(ttl))?;
        }
        if let Some(counted) = settings.counted {
            if counted {
                self.table.make_counters(is_small(store.limit()))?;
            }
            self.table.alone(|| self.table.set_counted(counted))?;
        }
        Ok(())
    }

    /// Runs a change under the lock for the table. Fails with [`Failure::Busy`] if it has other contents by now.
    fn alone_with(self, store: &Store, change: &mut dyn FnMut()) -> Result<(), Failure> {
        self.table.alone(|| {
            self.still_named()?;
            if self.table.is_dead() {
                return Err(Failure::Bad(Cause::Id));
            }
            if !ptr::eq(store, self.store()) {
                return Err(Failure::Busy);
            }
            change();
            Ok(())
        })?
    }
}
