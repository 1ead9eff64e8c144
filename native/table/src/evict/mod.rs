//! Limits of tables, and the eviction of objects.

pub(crate) mod account;
pub(crate) mod allowance;
mod fifo;
mod ghost;
pub mod item;
pub mod policies;
pub(crate) mod shards;
