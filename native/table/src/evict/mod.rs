//! Limits of tables, and the eviction of objects.

mod fifo;
mod ghost;
pub mod policy;
