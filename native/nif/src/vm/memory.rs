//! Rust's global allocator: large blocks come from the VM's allocators, all others from C's.
//!
//! The VM configures C's allocator to give large blocks back to the system as soon as they are freed. So each call that
//! needs more than some 100 KiB would have new pages mapped. The VM's own allocators keep some pages for the next call.
//! For small blocks C's allocator is faster. All are counted in the account of the library's memory.

use cats_sync::slab::account;
use rustler::EnifAllocator;
use std::alloc::{GlobalAlloc, Layout, System};

#[global_allocator]
static MEMORY: Memory = Memory;

struct Memory;

/// From this size on C's allocator would map each block by itself.
const LARGE: usize = 128 << 10;
/// The alignment of blocks from the VM's allocators.
const ALIGN: usize = 8;

/// Whether a block comes from the VM. Never with the address sanitizer, which knows only C's allocator.
fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= ALIGN && !cfg!(direct)
}

// SAFETY: the layout alone decides which allocator a block comes from, so each block goes back to the allocator it came
// from.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        account::count(layout.size() as isize);
        // SAFETY: as the caller promises, in both cases.
        unsafe {
            match is_large(layout) {
                true => EnifAllocator.alloc(layout),
                false => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        account::count(-(layout.size() as isize));
        // SAFETY: as the caller promises; a block of this layout came from this allocator.
        unsafe {
            match is_large(layout) {
                true => EnifAllocator.dealloc(block, layout),
                false => System.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that this layout is valid.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(wanted) {
            account::count(size as isize - layout.size() as isize);
            // SAFETY: as the caller promises; blocks of both layouts are C's.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the layout is valid, and the two blocks do not overlap.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
