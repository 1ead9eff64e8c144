//! Code that several of these structures share.

pub mod by_range;
pub mod random;
pub mod room;
pub mod single;
