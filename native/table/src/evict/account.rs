//! What the contents of a table with a limit may still take.
//!
//! A call pays for what it adds from a [`Purse`]. It makes sure that it can before it changes a place, so the limit holds at each instant.
//! What it removes fills the purse. The account is written only where a call adds more than it removes, or less.

use super::policies::Policy;
use cats_sync::facade::{AtomicI64, Ordering};
use std::mem;

/// A limit of a table's contents, and what is done where they would pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub unit: Unit,
    /// At least 1.
    pub number: u64,
    /// Which objects are evicted. `None`: what would pass the limit is refused.
    pub policy: Option<Policy>,
    /// The percentage of its objects that the table gives up at a time when memory is short.
    pub share: u8,
}

impl Limit {
    /// The share of a table that is given none.
    pub const SHARE: u8 = 10;
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Objects,
    /// Bytes of memory, with those of shared binaries.
    Bytes,
}

/// See the module's documentation.
pub struct Account {
    /// What all objects may take together. Relaxed: a number of its own. What it becomes lower by was taken from what is free before.
    capacity: AtomicI64,
    /// What may still be added. Negative while calls owe something.
    free: AtomicI64,
}

impl Account {
    pub fn new(capacity: i64) -> Self {
        Self {
            capacity: AtomicI64::new(capacity),
            free: AtomicI64::new(capacity),
        }
    }

    /// An empty purse.
    pub fn purse(&self) -> Purse<'_> {
        Purse { account: self, has: 0 }
    }

    /// What all objects may take together.
    pub fn capacity(&self) -> i64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// What may still be added.
    pub fn free(&self) -> i64 {
        // Relaxed: a figure.
        self.free.load(Ordering::Relaxed)
    }

    /// Lets all objects take so much more together.
    pub fn raise(&self, amount: i64) {
        self.capacity.fetch_add(amount, Ordering::Relaxed);
        // AcqRel: as in the `drop` of a purse.
        self.free.fetch_add(amount, Ordering::AcqRel);
    }

    /// Whether this is free now.
    #[inline]
    pub fn has(&self, amount: i64) -> bool {
        self.free() >= amount
    }

    /// What calls owe together.
    pub fn debt(&self) -> i64 {
        // Who makes a debt sees it.
        -self.free().min(0)
    }
}

/// What a call may pay with. When it is dropped, the rest is free again.
pub struct Purse<'a> {
    account: &'a Account,
    /// Negative if the call owes something.
    has: i64,
}

impl Purse<'_> {
    /// Whether the call can pay this, perhaps with what is free.
    #[inline]
    pub fn affords(&mut self, amount: i64) -> bool {
        let wanted = amount - self.has;
        if wanted <= 0 {
            return true;
        }
        // Acquire pairs with the Release of `drop`. A failed attempt writes nothing.
        let take = |free: i64| (free >= wanted).then(|| free - wanted);
        let taken = self
            .account
            .free
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok();
        self.has += if taken { wanted } else { 0 };
        taken
    }

    /// Takes what is free, until the call has this amount.
    pub fn take(&mut self, amount: i64) {
        let most = (amount - self.has).max(0);
        // As in `affords`.
        let take = |free: i64| (free > 0).then(|| free - free.min(most));
        let before = self
            .account
            .free
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        self.has += before.map_or(0, |free| free.min(most));
    }

    /// An amount that is a little more than the call has, up to this one.
    pub fn more_up_to(&self, amount: i64) -> i64 {
        amount.min(self.has + 1)
    }

    /// Lets all objects take less together, by what the call has, up to this amount. Returns by how much.
    pub fn lower(&mut self, most: i64) -> i64 {
        let amount = self.has.clamp(0, most);
        self.has -= amount;
        self.account.capacity.fetch_sub(amount, Ordering::Relaxed);
        amount
    }

    /// Whether the call has this already.
    pub fn has(&self, amount: i64) -> bool {
        self.has >= amount
    }

    /// Pays, or gets something where the amount is negative.
    #[inline]
    pub fn pay(&mut self, amount: i64) {
        self.has -= amount;
    }

    /// Gets what another purse of the same account has.
    #[inline]
    pub fn take_over(&mut self, other: &mut Self) {
        self.has += mem::take(&mut other.has);
    }

    /// Whether the call neither has nor owes anything.
    #[inline]
    pub fn is_even(&self) -> bool {
        self.has == 0
    }

    /// Whether the call owes something.
    #[inline]
    pub fn owes(&self) -> bool {
        self.has < 0
    }
}

impl Drop for Purse<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.has != 0 {
            // AcqRel: whoever takes it sees that it was freed.
            self.account.free.fetch_add(self.has, Ordering::AcqRel);
        }
    }
}
