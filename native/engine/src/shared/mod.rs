//! Code that several structures share.

pub mod line;
pub mod linear;
pub mod mark;
pub mod radix;
pub mod seat;
pub mod select;
pub mod trail;
