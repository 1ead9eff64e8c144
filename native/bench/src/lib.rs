//! What the benchmarks of the engines share. A crate of its own, so that the tests need not build the other libraries.

pub mod immediates;
pub mod split_ordered_list;
