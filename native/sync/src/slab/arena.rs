//! Chunks of 2 MiB, aligned to their size so that a block's address leads to its page's header, in regions of one to seven
//! from the source.
//!
//! A chunk's first 64 KiB hold the headers of its 31 pages; where in them depends on the chunk's address, so that the headers
//! of different chunks do not compete for the same lines of a cache. Memory is not touched before it is used. From the fifth
//! chunk on, huge pages are asked for. Regions grow with what is in use.

use super::class::PAGE;
use super::page::Page;
use super::source;
use crate::epoch::Guard;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

const CHUNK: usize = 2 << 20;
const PAGES: usize = CHUNK / PAGE;
/// The bytes of a chunk's headers: its own and one a page.
const HEADERS: usize = PAGES * size_of::<Page>();
/// Chunks in a region at most: 16 MiB with what aligning loses, some hundred microseconds to give back.
const MOST_CHUNKS: usize = 7;
/// Chunks in use from which on huge pages are asked for: a small store must not touch 2 MiB at once.
const HUGE_FROM: usize = 4;

const _: () = assert!(HEADERS * (PAGE / HEADERS) == PAGE && size_of::<Chunk>() <= size_of::<Page>());

/// A chunk's own header, in the place of that of page 0. Everything in it is under the arena's lock.
#[repr(C)]
struct Chunk {
    region: *mut Region,
    /// One bit for each unused page.
    unused: u32,
    /// Neighbours in the list of chunks with unused pages.
    previous: *mut Chunk,
    next: *mut Chunk,
}

/// Memory from the source.
struct Region {
    raw: NonNull<u8>,
    bytes: usize,
    /// The first chunk's address, the number of chunks, and how many of them have been touched.
    first: *mut u8,
    chunks: usize,
    touched: usize,
    /// Pages in use, and chunks being made.
    used: usize,
    next: *mut Region,
}

struct Arena {
    /// Chunks with unused pages.
    chunks: *mut Chunk,
    /// Regions with untouched chunks.
    regions: *mut Region,
    /// Chunks touched, in all regions.
    touched: usize,
    /// An unused region that is kept.
    kept: *mut Region,
}

// SAFETY: chunks and regions belong to whoever holds the arena's lock.
unsafe impl Send for Arena {}

static ARENA: Mutex<Arena> = Mutex::new(Arena {
    chunks: ptr::null_mut(),
    regions: ptr::null_mut(),
    touched: 0,
    kept: ptr::null_mut(),
});

fn lock() -> MutexGuard<'static, Arena> {
    // Nothing panics while it holds the lock.
    ARENA.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the headers of the chunk are that an address lies in: the chunk's own, then those of the pages from 1 on.
#[inline]
fn headers(address: *mut u8) -> *mut u8 {
    address.map_addr(|address| {
        let chunk = address & !(CHUNK - 1);
        chunk + (chunk / CHUNK % (PAGE / HEADERS)) * HEADERS
    })
}

/// The header of the page that a block lies in.
///
/// # Safety
/// The block is in use.
#[inline]
pub unsafe fn page_of(block: NonNull<u8>) -> &'static Page {
    let index = block.addr().get() % CHUNK / PAGE;
    // SAFETY: blocks lie in pages of chunks, and a page is not given back while a block is in use.
    unsafe { &*headers(block.as_ptr()).cast::<Page>().add(index) }
}

/// An unused page, made ready for `class`; nothing when the source has no memory.
pub fn take(class: usize) -> Option<&'static Page> {
    let mut arena = lock();
    loop {
        // SAFETY: chunks in the list are under the lock.
        if let Some(chunk) = unsafe { arena.chunks.as_mut() } {
            let index = chunk.unused.trailing_zeros() as usize;
            chunk.unused &= chunk.unused - 1;
            // SAFETY: a region is there while it has a chunk in the list.
            unsafe { (*chunk.region).used += 1 };
            if arena.kept == chunk.region {
                arena.kept = ptr::null_mut();
            }
            if chunk.unused == 0 {
                arena.unlink(chunk);
            }
            let header = ptr::from_mut(chunk).cast::<Page>().wrapping_add(index);
            let base = header
                .cast::<u8>()
                .map_addr(|header| (header & !(CHUNK - 1)) + index * PAGE);
            drop(arena);
            // SAFETY: the page's bit was set, so its header and memory were unused, and now are the caller's.
            return Some(unsafe { Page::prepare(NonNull::new_unchecked(header), base, class) });
        }
        // SAFETY: regions in the list are under the lock.
        if let Some(region) = unsafe { arena.regions.as_mut() } {
            // SAFETY: the region has an untouched chunk, or it would not be in the list.
            let address = unsafe { region.first.add(region.touched * CHUNK) };
            region.touched += 1;
            // Keeps the region while the lock is not held.
            region.used += 1;
            if arena.kept == region {
                arena.kept = ptr::null_mut();
            }
            if region.touched == region.chunks {
                arena.regions = region.next;
            }
            arena.touched += 1;
            let huge = arena.touched > HUGE_FROM;
            let region = ptr::from_mut(region);
            drop(arena);
            // SAFETY: the chunk is untouched, so the caller's.
            let chunk = unsafe { make_chunk(address, region, huge) };
            arena = lock();
            // SAFETY: kept by the count above.
            unsafe { (*region).used -= 1 };
            arena.link(chunk);
            continue;
        }
        let chunks = (arena.touched / 2).clamp(1, MOST_CHUNKS);
        drop(arena);
        let region = make_region(chunks)?;
        arena = lock();
        // SAFETY: just made, and only this thread has it.
        unsafe { (*region).next = arena.regions };
        arena.regions = region;
    }
}

/// Gives back a page that is empty and in no pool.
pub fn give(page: &'static Page, guard: &Guard) {
    let header = ptr::from_ref(page).cast_mut();
    let chunk = headers(header.cast()).cast::<Chunk>();
    let index = (header.addr() - chunk.addr()) / size_of::<Page>();
    let mut arena = lock();
    // SAFETY: the chunk is there while a page of it is in use, and its header is under the lock.
    let (region, was_full) = unsafe {
        let was_full = (*chunk).unused == 0;
        (*chunk).unused |= 1 << index;
        (*(*chunk).region).used -= 1;
        (&mut *(*chunk).region, was_full)
    };
    if was_full {
        arena.link(chunk);
    }
    if region.used > 0 {
        return;
    }
    let Some(region) = arena.keep_smaller(region) else {
        return;
    };
    arena.remove(region);
    drop(arena);
    let bytes = region.bytes;
    // A thread that freed a block may still be looking at the header of the block's page, under its guard.
    // SAFETY: the region was made by `make_region`, and unlinked just now.
    unsafe { guard.retire_sized(ptr::from_mut(region).cast(), 0, drop_region, bytes) };
}

impl Arena {
    fn link(&mut self, chunk: *mut Chunk) {
        // SAFETY: chunks in the list, and this one, are under the lock.
        unsafe {
            (*chunk).previous = ptr::null_mut();
            (*chunk).next = self.chunks;
            if let Some(first) = self.chunks.as_mut() {
                first.previous = chunk;
            }
        }
        self.chunks = chunk;
    }

    fn unlink(&mut self, chunk: *mut Chunk) {
        // SAFETY: chunks in the list, and this one, are under the lock.
        unsafe {
            let (previous, next) = ((*chunk).previous, (*chunk).next);
            match previous.as_mut() {
                Some(previous) => previous.next = next,
                None => self.chunks = next,
            }
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
        }
    }

    /// Keeps this unused region or the one kept so far, and returns the other.
    fn keep_smaller<'a>(&mut self, region: &'a mut Region) -> Option<&'a mut Region> {
        // SAFETY: the kept region is under the lock, and another, or `region` would have been in use.
        let Some(kept) = (unsafe { self.kept.as_mut() }) else {
            self.kept = region;
            return None;
        };
        if kept.bytes <= region.bytes {
            return Some(region);
        }
        self.kept = region;
        Some(kept)
    }

    /// Takes an unused region and its chunks out of all lists.
    fn remove(&mut self, region: &mut Region) {
        for number in 0..region.touched {
            // All touched chunks are in the list: they have unused pages only.
            self.unlink(headers(region.first.wrapping_add(number * CHUNK)).cast());
        }
        self.touched -= region.touched;
        let mut at = &raw mut self.regions;
        // SAFETY: regions in the list are under the lock.
        unsafe {
            while !(*at).is_null() {
                if ptr::eq(*at, region) {
                    *at = region.next;
                    return;
                }
                at = &raw mut (**at).next;
            }
        }
    }
}

fn make_region(chunks: usize) -> Option<*mut Region> {
    let bytes = (chunks + 1) * CHUNK;
    let raw = source::take(bytes)?;
    Some(Box::into_raw(Box::new(Region {
        raw,
        bytes,
        first: raw.as_ptr().map_addr(|address| address.next_multiple_of(CHUNK)),
        chunks,
        touched: 0,
        used: 0,
        next: ptr::null_mut(),
    })))
}

unsafe fn drop_region(address: *mut u8, _: usize) {
    // SAFETY: `give` retires what `make_region` has boxed, once.
    unsafe {
        let region = Box::from_raw(address.cast::<Region>());
        source::give(region.raw, region.bytes);
    }
}

/// Writes the headers of an untouched chunk.
///
/// # Safety
/// The caller alone has the 2 MiB at `address`.
unsafe fn make_chunk(address: *mut u8, region: *mut Region, huge: bool) -> *mut Chunk {
    #[cfg(target_os = "linux")]
    if huge {
        // SAFETY: the range is the caller's; the advice changes no contents, and may be refused.
        unsafe { libc::madvise(address.cast(), CHUNK, libc::MADV_HUGEPAGE) };
    }
    let chunk = headers(address).cast::<Chunk>();
    // SAFETY: the headers lie in the chunk's first page, which is for nothing else.
    unsafe {
        chunk.cast::<u8>().write_bytes(0, HEADERS);
        chunk.write(Chunk {
            region,
            // Page 0 is the headers'.
            unused: u32::MAX - 1,
            previous: ptr::null_mut(),
            next: ptr::null_mut(),
        });
    }
    chunk
}
