//! The structures, one file or folder each. An engine is a structure with the trait [`Engine`](crate::Engine).

pub mod avl;
pub mod ca;
pub mod ca_tree;
pub mod hash;
pub mod linear_hash;
mod sequential;
pub mod skip_list;
pub mod std_hash;
