//! Slab allocator: memory for blocks, by size class.
//!
//! Source: Bonwick, "The slab allocator: an object-caching kernel memory allocator", USENIX 1994. The lists for blocks
//! freed by other threads: Leijen, Zorn, de Moura, "Mimalloc: free list sharding in action", APLAS 2019. Pages without
//! an owner are like the partial slabs of Linux' SLUB.
//!
//! Blocks of up to 32 KiB come from pages of 64 KiB with one size class each. Larger blocks come directly from the
//! source. A thread owns at most one page of a class, from which it allocates. There it allocates and frees without
//! shared writes. All other pages have no owner.
//!
//! Blocks that are freed into a page without an owner go into a list of the page by compare-and-swap. One
//! compare-and-swap serves all blocks of a page that a bag of [`crate::epoch`] frees. When a sixteenth of such a page
//! is free, it is put into the pool of its class. There any thread that needs a page finds it. An empty page goes back
//! to its chunk. A region whose chunks are all empty goes back to the system, except for one region that is kept to
//! avoid thrashing. [`crate::epoch::collect`] takes the pages of idle threads back.
//!
//! With `--cfg direct`, for the address sanitizer, every block comes from C's allocator. Otherwise the sanitizer could
//! not tell which blocks are free.
//!
//! There is a lock for each class, and one for all chunks. They are held for a few dozen instructions, once for many
//! blocks. Like the locks in C's allocators they are leaf locks: no other lock is taken under them.

pub mod account;
#[cfg(not(any(loom, shuttle)))]
mod arena;
mod class;
#[cfg(not(any(loom, shuttle)))]
mod heap;
#[cfg(not(any(loom, shuttle)))]
mod map;
mod own;
#[cfg(not(any(loom, shuttle)))]
mod page;
mod source;
#[cfg(not(any(loom, shuttle)))]
mod system;

pub use account::held;
#[cfg(not(any(loom, shuttle)))]
pub use arena::{give_back_unused, is_making_chunk, reserve, vacate_unused};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use heap::Heap;
pub use own::Own;
pub use source::{set_source, ADDRESS_BITS};
#[cfg(not(any(loom, shuttle)))]
pub use system::run_anywhere;

use crate::epoch::{pin, Guard};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The panic payload when memory is exhausted and a call cannot go on.
pub struct OutOfMemory;

/// The result of an allocation that a call needs. Unwinds with [`OutOfMemory`] if there is none. It prints no message,
/// because exhausted memory is no error of the program.
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

thread_local! {
    static RELIEVING: Cell<bool> = const { Cell::new(false) };
}

/// While this value lives, the thread is in a call that stores nothing, gives memory back in the end, or must not fail half way. Then the
/// [account](account) may grow up to its limit. If there is no other memory, what it allocates comes from a reserve, unless it is large.
pub struct Relief {
    before: bool,
    /// It does not leave its thread.
    thread: PhantomData<*mut ()>,
}

impl Relief {
    #[inline]
    pub fn new() -> Self {
        Self {
            before: RELIEVING.replace(true),
            thread: PhantomData,
        }
    }
}

impl Default for Relief {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Relief {
    #[inline]
    fn drop(&mut self) {
        RELIEVING.set(self.before);
    }
}

/// Whether the thread has a [`Relief`].
fn is_relieving() -> bool {
    RELIEVING.get()
}

/// Whether there is unused memory of so many bytes in whole pages, beside the reserve. O(chunks) if there is not.
pub fn has_unused(_bytes: usize) -> bool {
    #[cfg(not(any(loom, shuttle)))]
    if !cfg!(direct) {
        return arena::has_unused(_bytes);
    }
    false
}

/// Uninitialised memory of `size` bytes. Aligned to 8, or to 16, 64 or 128 if the size is a multiple of that. `None`
/// when memory is exhausted. Usually a few instructions. More when a page is used up, and a page fault for a new chunk.
#[inline]
pub fn alloc(size: usize) -> Option<NonNull<u8>> {
    alloc_pinned(&pin(), size)
}

/// Like [`alloc`], for a caller that has a guard.
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

/// Frees a block.
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
        // SAFETY: blocks of at most this size are in pages.
        return unsafe { heap::free(block) };
    }
    // SAFETY: larger blocks come from the source.
    unsafe { source::free_large(block, size) }
}

/// Frees one block after another, at less cost than [`free`]. Some are freed only when this is dropped.
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

    /// Frees a block, perhaps only when this is dropped.
    ///
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
