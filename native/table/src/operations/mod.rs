//! The operations on a table. They are methods of [`Handle`](crate::Handle). Each file has one group of them.

pub(crate) mod add;
pub(crate) mod bag_change;
pub(crate) mod contention;
mod delete;
#[cfg(feature = "compared")]
mod detached;
pub(crate) mod expiry;
mod flights;
pub(crate) mod info;
pub(crate) mod insert;
pub(crate) mod long;
pub(crate) mod lookup;
pub(crate) mod number;
pub(crate) mod order;
mod replace;
pub(crate) mod select;
pub(crate) mod settings;
pub(crate) mod transaction;
pub(crate) mod traverse;
pub(crate) mod update;
