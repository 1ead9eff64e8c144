//! Rust's memory: what is large comes from the VM's allocators, the rest from C's.
//!
//! The VM has C's allocator give large blocks back to the system as soon as they are freed, and so a call with some 100 KiB of working
//! memory would have all of its pages made anew, where the VM's own allocators keep some for the next one: a list of 10,000 objects
//! inserted into a set takes 100 ns an object for 165. What is small C's allocator gives faster.

use rustler::EnifAllocator;
use std::alloc::{GlobalAlloc, Layout, System};

#[global_allocator]
static MEMORY: Memory = Memory;

struct Memory;

/// From here on C's allocator would map each block by itself.
const LARGE: usize = 128 << 10;
/// What the VM's allocators align to.
const ALIGN: usize = 8;

/// Whether memory is the VM's. Not with the address sanitizer, which knows only C's allocator.
fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= ALIGN && !cfg!(direct)
}

// SAFETY: each block is given back, and changes its size, where it came from, as a layout tells.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises, in both cases.
        unsafe {
            match is_large(layout) {
                true => EnifAllocator.alloc(layout),
                false => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; a block of this layout came from there.
        unsafe {
            match is_large(layout) {
                true => EnifAllocator.dealloc(block, layout),
                false => System.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that there is such a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(wanted) {
            // SAFETY: as the caller promises; blocks of both layouts are C's.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the layout is that of the caller's promise, and the blocks do not overlap.
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
