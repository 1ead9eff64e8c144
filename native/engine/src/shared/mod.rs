//! Code that several structures share.

pub mod by_range;
pub mod line;
pub mod linear;
pub mod mark;
pub mod radix;
pub mod random;
pub mod room;
pub mod select;
pub mod single;
pub mod trail;
