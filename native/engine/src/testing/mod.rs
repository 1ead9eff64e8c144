//! Tests that every structure has to pass. Other crates with structures use them by the feature `testing`.

#[path = "../../../cases.rs"]
pub mod cases;
pub mod cells;
pub mod conformance;
pub mod histories;
#[cfg(shuttle)]
pub mod schedules;
pub mod transactions;
