//! Address space from the operating system. It takes no memory before somebody touches it.

use super::source::is_addressable;
use super::system;
use std::ptr::{self, NonNull};

/// Address space of `bytes`, aligned to `align`, a power of two. Both are multiples of the system's page size. It reads
/// as zeros. `None` when the system has none, or none with addresses that structures can store.
pub fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    let all = bytes.checked_add(align)?;
    // SAFETY: asks for a new mapping at no particular address.
    let raw = unsafe { libc::mmap(ptr::null_mut(), all, protection, flags, -1, 0) };
    if raw == libc::MAP_FAILED {
        return None;
    }
    let raw: *mut u8 = raw.cast();
    let before = raw.align_offset(align);
    let start = raw.wrapping_add(before);
    // SAFETY: both parts are within the new mapping, and nobody has them.
    unsafe {
        unmap(raw, before);
        unmap(start.wrapping_add(bytes), align - before);
    }
    let start = NonNull::new(start)?;
    if !is_addressable(start, bytes) {
        // SAFETY: the caller has not seen it.
        unsafe { unmap(start.as_ptr(), bytes) };
        return None;
    }
    Some(start)
}

/// Gives address space back to the system, with the memory in it.
///
/// # Safety
/// The range is within one that came from [`map`], and nothing uses it any more.
pub unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // When the process has too many mappings, the system refuses to split one. Then the range stays mapped and
        // unused.
        // SAFETY: as the caller promises.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}

/// Gives the memory of a block back to the system, and keeps its address space. The allocator may have used it before, for
/// something else. Huge pages are refused, because a huge page would take memory for the whole block when the allocator
/// touches its own words beside it.
///
/// # Safety
/// The caller alone has the block, and nobody needs its contents.
pub unsafe fn vacate(block: NonNull<u8>, bytes: usize) {
    let page = system::page();
    let (first, last) = (block.addr().get(), block.addr().get() + bytes);
    let inside = (first.next_multiple_of(page), last / page * page);
    let around = (first / page * page, last.next_multiple_of(page));
    let address = |address| block.as_ptr().with_addr(address);
    // SAFETY: the pages inside are all the caller's. Advice about huge pages changes no contents.
    unsafe {
        system::give_back(address(inside.0), inside.1 - inside.0);
        system::keep_small(address(around.0), around.1 - around.0);
    }
}
