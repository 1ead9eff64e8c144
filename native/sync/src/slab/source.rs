//! Where memory comes from: the allocator that all chunks and all large blocks are taken from.

use crate::facade::Ordering;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::OnceLock;

type Alloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

static SOURCE: OnceLock<(Alloc, Free)> = OnceLock::new();
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Makes `alloc` and `free` (as `malloc` and `free` of C, callable from any thread) the source of all memory. To be called
/// before the first allocation: the first source used stays, that of C if none was set.
pub fn set_source(alloc: Alloc, free: Free) {
    let _ = SOURCE.set((alloc, free));
}

fn source() -> (Alloc, Free) {
    *SOURCE.get_or_init(|| (libc::malloc, libc::free))
}

/// Bytes held from the source.
pub fn held() -> usize {
    // Relaxed: a statistic.
    HELD.load(Ordering::Relaxed)
}

/// Memory from the source, aligned to 8 at least.
pub fn take(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: whoever set the source gave a `malloc`.
    let raw = NonNull::new(unsafe { source().0(bytes) }.cast())?;
    HELD.fetch_add(bytes, Ordering::Relaxed);
    Some(raw)
}

/// Gives memory back to the source.
///
/// # Safety
/// `raw` came from [`take`] with the same `bytes`, and nothing uses it any more.
pub unsafe fn give(raw: NonNull<u8>, bytes: usize) {
    HELD.fetch_sub(bytes, Ordering::Relaxed);
    // SAFETY: the source's own, as the caller promises.
    unsafe { source().1(raw.as_ptr().cast()) }
}

/// The alignment of large blocks; a block is preceded by the source's address of it.
const ALIGN: usize = 128;

/// The bytes that a large block takes from the source; nothing when there are no such sizes.
pub fn large(size: usize) -> Option<usize> {
    size.checked_add(size_of::<usize>() + ALIGN)
}

/// A block straight from the source.
pub fn alloc_large(size: usize) -> Option<NonNull<u8>> {
    let raw = take(large(size)?)?;
    // SAFETY: `large` has room for the address and for aligning.
    unsafe {
        let after = raw.add(size_of::<usize>());
        let block = after.add(after.align_offset(ALIGN));
        block.cast::<NonNull<u8>>().sub(1).write(raw);
        Some(block)
    }
}

/// Gives back a block that came straight from the source.
///
/// # Safety
/// `block` came from [`alloc_large`] with the same `size`, and nothing uses it any more.
pub unsafe fn free_large(block: NonNull<u8>, size: usize) {
    // SAFETY: `alloc_large` wrote the address before the block and found `large` to have a value.
    unsafe {
        give(
            block.cast::<NonNull<u8>>().sub(1).read(),
            large(size).unwrap_unchecked(),
        )
    }
}

/// A block that ends where it is said to end, from C's allocator, whatever the source is.
pub fn alloc_direct(size: usize) -> Option<NonNull<u8>> {
    let alignment = [128, 64].into_iter().find(|n| size.is_multiple_of(*n)).unwrap_or(16);
    // SAFETY: the alignment is a power of two.
    let block = NonNull::new(unsafe { libc::memalign(alignment, size) }.cast())?;
    HELD.fetch_add(size, Ordering::Relaxed);
    Some(block)
}

/// Gives back a block of [`alloc_direct`].
///
/// # Safety
/// `block` came from [`alloc_direct`] with the same `size`, and nothing uses it any more.
pub unsafe fn free_direct(block: NonNull<u8>, size: usize) {
    HELD.fetch_sub(size, Ordering::Relaxed);
    // SAFETY: C's allocator's own, as the caller promises.
    unsafe { libc::free(block.as_ptr().cast()) }
}
