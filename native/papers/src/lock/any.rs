//! A lock whose kind is chosen at run time, so that a structure need not be compiled once for each kind.

use super::cc_synch::CcSynch;
use super::dr_mcs::DrMcs;
use super::ets_pointer::EtsPointer;
use super::mrqd::{Delegation, Mrqd};
use super::rw::Rw;
use super::{Operation, TableLock};
use cats_engine::config::{Config, Delegate, LockName};
use cats_sync::Busy;

/// The kinds of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Rw,
    DrMcs,
    CcSynch,
    Mrqd(Delegation),
    EtsPointer,
}

impl Kind {
    /// All kinds, with a separate one for each delegation.
    pub const ALL: [Kind; 7] = [
        Kind::Rw,
        Kind::DrMcs,
        Kind::CcSynch,
        Kind::Mrqd(Delegation::Wait),
        Kind::Mrqd(Delegation::Malloc),
        Kind::Mrqd(Delegation::Copy),
        Kind::EtsPointer,
    ];
}

/// See the module's documentation.
#[derive(Debug)]
pub enum AnyLock<T> {
    Rw(Rw<T>),
    DrMcs(DrMcs<T>),
    CcSynch(CcSynch<T>),
    Mrqd(Mrqd<T>),
    EtsPointer(EtsPointer<T>),
}

macro_rules! each {
    ($self:expr, $lock:ident => $call:expr) => {
        match $self {
            Self::Rw($lock) => $call,
            Self::DrMcs($lock) => $call,
            Self::CcSynch($lock) => $call,
            Self::Mrqd($lock) => $call,
            Self::EtsPointer($lock) => $call,
        }
    };
}

impl<T: Send + Sync> AnyLock<T> {
    /// A free lock of this kind. See [`TableLock::new`].
    pub fn of(kind: Kind, value: T, groups: usize) -> Self {
        match kind {
            Kind::Rw => Self::Rw(Rw::new(value, groups)),
            Kind::DrMcs => Self::DrMcs(DrMcs::new(value, groups)),
            Kind::CcSynch => Self::CcSynch(CcSynch::new(value, groups)),
            Kind::Mrqd(delegation) => Self::Mrqd(Mrqd::with_delegation(value, groups, delegation)),
            Kind::EtsPointer => Self::EtsPointer(EtsPointer::new(value, groups)),
        }
    }

    /// A free lock of the configured kind.
    pub fn configured(config: &Config, value: T) -> Self {
        let kind = match (config.lock, config.delegate) {
            (LockName::Rw, _) => Kind::Rw,
            (LockName::DrMcs, _) => Kind::DrMcs,
            (LockName::CcSynch, _) => Kind::CcSynch,
            (LockName::Mrqd, Delegate::Wait) => Kind::Mrqd(Delegation::Wait),
            (LockName::Mrqd, Delegate::Malloc) => Kind::Mrqd(Delegation::Malloc),
            (LockName::Mrqd, Delegate::Copy) => Kind::Mrqd(Delegation::Copy),
            (LockName::EtsPointer, _) => Kind::EtsPointer,
        };
        Self::of(
            kind,
            value,
            if config.read_concurrency {
                config.reader_groups
            } else {
                1
            },
        )
    }
}

impl<T: Send + Sync> TableLock<T> for AnyLock<T> {
    /// A free lock of the default kind.
    fn new(value: T, groups: usize) -> Self {
        Self::of(Kind::default(), value, groups)
    }

    #[inline]
    fn read_here<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Busy> {
        each!(self, lock => lock.read_here(look))
    }

    #[inline]
    fn write_here<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        each!(self, lock => lock.write_here(change))
    }

    #[inline]
    fn read<R: Send>(&self, look: impl FnOnce(&T) -> R + Send) -> Result<R, Busy> {
        each!(self, lock => lock.read(look))
    }

    #[inline]
    fn write<R: Send>(&self, change: impl FnOnce(&mut T) -> R + Send) -> Result<R, Busy> {
        each!(self, lock => lock.write(change))
    }

    #[inline]
    fn detaches(&self) -> bool {
        each!(self, lock => lock.detaches())
    }

    #[inline]
    unsafe fn detach(&self, operation: Operation<T>, words: &[u64]) -> Result<(), Busy> {
        // SAFETY: the caller's promise.
        each!(self, lock => unsafe { lock.detach(operation, words) })
    }

    fn get_mut(&mut self) -> &mut T {
        each!(self, lock => lock.get_mut())
    }
}
