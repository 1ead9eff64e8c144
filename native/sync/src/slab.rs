//! Memory for blocks: `alloc` and `free` by size.

use std::alloc::Layout;
use std::ptr::NonNull;

const ALIGN: usize = 8;

/// Uninitialised memory of `size` bytes (not 0), aligned to 8; sizes that are multiples of 64 are aligned to 64.
/// Nothing when memory is exhausted.
pub fn alloc(size: usize) -> Option<NonNull<u8>> {
    let layout = layout(size)?;
    // SAFETY: the layout's size is not zero, as the caller promises.
    NonNull::new(unsafe { std::alloc::alloc(layout) })
}

/// Gives back a block.
///
/// # Safety
/// `block` came from [`alloc`] with the same `size`, and nothing uses it any more.
pub unsafe fn free(block: NonNull<u8>, size: usize) {
    if let Some(layout) = layout(size) {
        // SAFETY: the caller passes the block and the size of one `alloc`.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) }
    }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, if size.is_multiple_of(64) { 64 } else { ALIGN }).ok()
}
