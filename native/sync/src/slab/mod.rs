//! Slab allocator: memory for blocks, by size class.
//!
//! Source: Bonwick, "The slab allocator", USENIX'94; the thread-free lists of Leijen, Zorn, de Moura, "Mimalloc: free list
//! sharding in action", 2019; and, for pages without an owner, the lists of partial slabs of Linux' SLUB.
//!
//! Blocks of up to 32 KiB come from pages of 64 KiB, one size class each; larger ones from the source itself. A thread owns at
//! most one page of a class, the one that it allocates from: there, allocating and freeing touch nothing shared. All other
//! pages have no owner. Blocks freed into them gather in a list of the page's own, by a compare-and-swap, which the blocks that a
//! bag of [`crate::epoch`] brings back to one page have in common; a page of which a sixteenth is free is put into the pool of its
//! class, where any thread that needs a page finds it; an empty page goes back to its chunk, and a region all of whose chunks are
//! empty back to the source, but for one that is kept against thrashing.
//! [`crate::epoch::collect`] takes the pages of idle threads back.
//!
//! Built with `--cfg direct`, for the address sanitizer, every block is one of C's allocator: else it could not tell free blocks.
//!
//! The locks (one a class, and one for all chunks) are held for some dozen instructions, once for many blocks. Like those of
//! the allocators of C they are leaves: nothing is called under them.

#[cfg(not(any(loom, shuttle)))]
mod arena;
mod class;
#[cfg(not(any(loom, shuttle)))]
mod heap;
mod own;
#[cfg(not(any(loom, shuttle)))]
mod page;
mod source;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use heap::Heap;
pub use own::Own;
pub use source::{held, set_source};

use crate::epoch::{pin, Guard};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// What unwinds where memory is exhausted and a call cannot go on.
pub struct OutOfMemory;

/// The memory that was asked for. Unwinds with [`OutOfMemory`] where there was none, silently: it is no fault of the program.
#[inline]
pub fn needed<T>(memory: Option<T>) -> T {
    #[cold]
    #[inline(never)]
    fn unwind() -> ! {
        std::panic::resume_unwind(Box::new(OutOfMemory))
    }
    match memory {
        Some(memory) => memory,
        None => unwind(),
    }
}

/// Uninitialised memory of `size` bytes. Aligned to 8; to 16, 64 or 128 if the size is a multiple of that.
/// Nothing when memory is exhausted. Some nanoseconds; when a page runs out, some hundred, and for a new chunk a page fault.
#[inline]
pub fn alloc(size: usize) -> Option<NonNull<u8>> {
    alloc_pinned(&pin(), size)
}

/// As [`alloc`], for who has a guard.
#[inline]
pub fn alloc_pinned(_guard: &Guard, size: usize) -> Option<NonNull<u8>> {
    if cfg!(direct) {
        return source::alloc_direct(size);
    }
    #[cfg(not(any(loom, shuttle)))]
    if size <= class::LARGEST {
        return heap::alloc(class::of(size), _guard);
    }
    source::alloc_large(size)
}

/// Gives back a block.
///
/// # Safety
/// `block` came from [`alloc`] with the same `size`, and nothing uses it any more.
#[inline]
pub unsafe fn free(block: NonNull<u8>, size: usize) {
    if cfg!(direct) {
        // SAFETY: as the caller promises.
        return unsafe { source::free_direct(block, size) };
    }
    #[cfg(not(any(loom, shuttle)))]
    if size <= class::LARGEST {
        // SAFETY: a block of at most this size is in a page.
        return unsafe { heap::free(block) };
    }
    // SAFETY: larger blocks are the source's.
    unsafe { source::free_large(block, size) }
}

/// Gives back block after block, with less effort than [`free`]: all are only when this is dropped.
pub(crate) struct Gatherer<'g> {
    #[cfg(not(any(loom, shuttle)))]
    pages: heap::Gatherer<'g>,
    guard: PhantomData<&'g Guard>,
}

impl<'g> Gatherer<'g> {
    pub fn new(_guard: &'g Guard) -> Self {
        Self {
            #[cfg(not(any(loom, shuttle)))]
            pages: heap::Gatherer::new(_guard),
            guard: PhantomData,
        }
    }

    /// # Safety
    /// As for [`free`].
    #[inline]
    pub unsafe fn free(&mut self, block: NonNull<u8>, size: usize) {
        #[cfg(not(any(loom, shuttle)))]
        if size <= class::LARGEST && !cfg!(direct) {
            // SAFETY: as in `free`.
            return unsafe { self.pages.free(block) };
        }
        // SAFETY: as the caller promises.
        unsafe { free(block, size) }
    }
}

/// The bytes that a block of `size` bytes occupies.
#[inline]
pub fn usable(size: usize) -> usize {
    if cfg!(direct) {
        size
    } else if size <= class::LARGEST {
        class::size(class::of(size))
    } else {
        source::large(size).unwrap_or(usize::MAX)
    }
}
