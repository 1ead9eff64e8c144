//! The structures that exist for comparison: those of the papers and of ETS. Each is an engine like the default ones, and none
//! of those knows them.

pub mod avl;
pub mod ca_tree;
pub mod hazard;
pub mod linear_hash;
mod sequential;
mod shared;
pub mod skip_list;
pub mod std_hash;
mod thread;
