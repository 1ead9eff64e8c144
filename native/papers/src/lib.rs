//! What exists for comparison: the structures of the papers and of ETS. Each engine is one like the default ones, and none of those
//! knows them.

pub mod avl;
pub mod bucket_lock;
pub mod ca_tree;
pub mod detaching;
pub mod eventful;
pub mod hazard;
pub mod linear_hash;
pub mod lock;
pub mod meta_tables;
mod sequential;
mod shared;
pub mod skip_list;
pub mod stat_rw_lock;
pub mod std_hash;
#[cfg(all(test, not(any(loom, shuttle))))]
mod testing;
mod thread;
