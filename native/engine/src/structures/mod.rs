//! The structures, one file or folder each. An engine is a structure with the trait [`Engine`](crate::Engine).

pub mod ca;
pub mod hash;
