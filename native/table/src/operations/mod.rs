//! The operations on a table, one file a group of them: each is a method of [`Handle`](crate::Handle).

mod delete;
mod detached;
pub(crate) mod info;
pub(crate) mod insert;
pub(crate) mod lookup;
pub(crate) mod number;
pub(crate) mod select;
pub(crate) mod traverse;
pub(crate) mod update;
