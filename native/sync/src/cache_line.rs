//! The size of a cache line, for data that must not share one with other data (false sharing).

/// Bytes of a cache line: 128 on Apple's processors, otherwise 64. `--cfg portable` has the larger size, which is right everywhere.
pub const BYTES: usize = align_of::<CacheLine>();

/// A structure with a field of this type begins with a cache line, and shares its lines with nothing else.
#[derive(Debug, Default)]
#[cfg_attr(
    any(all(target_vendor = "apple", target_arch = "aarch64"), portable),
    repr(align(128))
)]
#[cfg_attr(
    not(any(all(target_vendor = "apple", target_arch = "aarch64"), portable)),
    repr(align(64))
)]
pub struct CacheLine;
