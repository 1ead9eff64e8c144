//! Tests that every structure has to pass.

pub mod conformance;
pub mod histories;
#[cfg(shuttle)]
pub mod schedules;
pub mod transactions;
