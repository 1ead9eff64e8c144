//! The source of memory: the allocator that provides all large blocks, and that counts all chunks.

use super::account;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::OnceLock;

type Alloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

static SOURCE: OnceLock<(Alloc, Free)> = OnceLock::new();

/// Sets the source of all memory. `alloc` and `free` must behave like `malloc` and `free` of C and be callable from any
/// thread. Call it before the first allocation, because the first source used stays. Without a call it is C's
/// allocator.
pub fn set_source(alloc: Alloc, free: Free) {
    let _ = SOURCE.set((alloc, free));
}

fn source() -> (Alloc, Free) {
    *SOURCE.get_or_init(|| (libc::malloc, libc::free))
}

/// The bits of an address. Structures store other things in the bits above them. Processors with longer addresses (57 bits on x86-64, 52 bits
/// on aarch64) have systems that return such addresses only to programs that request them.
pub const ADDRESS_BITS: u32 = 48;

/// Whether the whole block has addresses of at most [`ADDRESS_BITS`].
pub fn is_addressable(block: NonNull<u8>, bytes: usize) -> bool {
    block.addr().get().saturating_add(bytes) <= 1 << ADDRESS_BITS
}

/// Memory from the source, aligned to at least 8. Memory with longer addresses than [`ADDRESS_BITS`] is refused, as if there were none.
/// So is what the [account](super::account) has no room for.
pub fn take(bytes: usize) -> Option<NonNull<u8>> {
    if !account::take(bytes) {
        return None;
    }
    let (alloc, free) = source();
    // SAFETY: the function that was set behaves like `malloc`.
    let raw = NonNull::new(unsafe { alloc(bytes) }.cast::<u8>());
    let taken = raw.filter(|raw| is_addressable(*raw, bytes));
    if taken.is_none() {
        account::give(bytes);
        if let Some(raw) = raw {
            // SAFETY: it came from the source just now.
            unsafe { free(raw.as_ptr().cast()) };
        }
    }
    taken
}

/// Gives memory back to the source.
///
/// # Safety
/// `raw` came from [`take`] with the same `bytes`, and nothing uses it any more.
pub unsafe fn give(raw: NonNull<u8>, bytes: usize) {
    account::give(bytes);
    // SAFETY: it came from the source, as the caller promises.
    unsafe { source().1(raw.as_ptr().cast()) }
}

/// The alignment of large blocks. The word before a block holds the address that the source returned.
const ALIGN: usize = 128;

/// The bytes that a large block needs from the source. `None` if the number is too large.
pub fn large(size: usize) -> Option<usize> {
    size.checked_add(size_of::<usize>() + ALIGN)
}

/// A block directly from the source.
pub fn alloc_large(size: usize) -> Option<NonNull<u8>> {
    let raw = take(large(size)?)?;
    // SAFETY: `large` includes space for the address and for alignment.
    unsafe {
        let after = raw.add(size_of::<usize>());
        let block = after.add(after.align_offset(ALIGN));
        block.cast::<NonNull<u8>>().sub(1).write(raw);
        Some(block)
    }
}

/// Gives back a block that came directly from the source.
///
/// # Safety
/// `block` came from [`alloc_large`] with the same `size`, and nothing uses it any more.
pub unsafe fn free_large(block: NonNull<u8>, size: usize) {
    // SAFETY: `alloc_large` wrote the address before the block, and `large` had a result for this size.
    unsafe {
        give(
            block.cast::<NonNull<u8>>().sub(1).read(),
            large(size).unwrap_unchecked(),
        )
    }
}

/// A block from C's allocator, whatever the source is. It ends exactly where its size says.
pub fn alloc_direct(size: usize) -> Option<NonNull<u8>> {
    if !account::take(size) {
        return None;
    }
    let alignment = [128, 64].into_iter().find(|n| size % *n == 0).unwrap_or(16);
    let mut block = std::ptr::null_mut();
    // SAFETY: the alignment is a power of two, and a multiple of a pointer's size.
    let failed = unsafe { libc::posix_memalign(&mut block, alignment, size) } != 0;
    let Some(block) = NonNull::new(block.cast::<u8>()).filter(|_| !failed) else {
        account::give(size);
        return None;
    };
    assert!(is_addressable(block, size));
    Some(block)
}

/// Gives back a block of [`alloc_direct`].
///
/// # Safety
/// `block` came from [`alloc_direct`] with the same `size`, and nothing uses it any more.
pub unsafe fn free_direct(block: NonNull<u8>, size: usize) {
    account::give(size);
    // SAFETY: it came from C's allocator, as the caller promises.
    unsafe { libc::free(block.as_ptr().cast()) }
}
