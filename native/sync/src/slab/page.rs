//! A page: 64 KiB of blocks of one size class. A header in its chunk describes it.
//!
//! The header has an owner's cache line and a shared cache line. The thread whose heap owns the page uses the owner's
//! line. While the page has no owner, a thread needs a right to use that line: it holds the pool's lock, or raids an
//! idle thread. The shared line has one word for all other threads:
//!
//! | bits | |
//! |---|---|
//! | 0..16 | the list of blocks freed by others: 1 + the offset of the first block in units of 8 bytes, or 0; the blocks are linked the same way |
//! | 16..32 | while owned, the length of that list; otherwise the number of all free blocks of the page |
//! | 32..34 | owned; without owner; without owner and in the pool, or about to be |

use super::class::{self, PAGE};
use crate::cache_line::CacheLine;
use crate::facade::{AtomicPtr, AtomicU64, AtomicU8, Ordering};
use std::cell::Cell;
use std::ptr::{self, NonNull};

const OWNED: u64 = 0 << 32;
const UNLISTED: u64 = 1 << 32;
const LISTED: u64 = 2 << 32;
const STATE: u64 = 3 << 32;
const ONE: u64 = 1 << 16;

/// Bytes of the next free block that are prefetched when a block is allocated.
const PREFETCHED: usize = 256;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Sizes and offsets of blocks are multiples of this.
const UNIT: usize = 8;

fn count(word: u64) -> u32 {
    (word >> 16 & 0xffff) as u32
}

/// What a thread must do after it has freed a block into a page.
pub enum Next {
    Nothing,
    /// Put the page into the pool.
    List,
    /// The page is empty: take it out of the pool and give it back to its chunk.
    Unlist,
}

/// See the module's documentation.
#[repr(C, align(128))]
pub struct Page {
    base: Cell<*mut u8>,
    /// The owner's list of free blocks, linked like the others' list.
    free: Cell<u32>,
    /// The offset from which on no block was ever allocated.
    bump: Cell<u32>,
    /// Blocks that are allocated, or freed by others and not yet in the owner's list.
    used: Cell<u32>,
    size: Cell<u32>,
    shared: Shared,
}

struct Shared {
    _line: CacheLine,
    word: AtomicU64,
    /// The heap that owns the page. Only that heap's own thread may rely on it.
    /// Relaxed, for that: the thread sees what it wrote itself, and other values mean that it is not the owner.
    owner: AtomicPtr<super::Heap>,
    /// 1 + the class of the pool that holds the page, or 0. Written under that pool's lock.
    /// Relaxed: the lock orders what its holders write, and others compare only.
    pooled: AtomicU8,
    class: Cell<u8>,
    capacity: Cell<u16>,
    /// Free blocks that the last owner left in the owner's line. The word counts them until the page is adopted.
    spare: Cell<u32>,
    /// The neighbours in the pool. Used under the pool's lock.
    pub previous: Cell<*const Page>,
    pub next: Cell<*const Page>,
}

impl Page {
    /// Prepares an unused page with memory at `base` for `class`.
    ///
    /// # Safety
    /// `page` is the header of unused memory at `base`, zeroed or used before. Only the caller has access to it.
    pub unsafe fn prepare(page: NonNull<Page>, base: *mut u8, class: usize) -> &'static Page {
        // SAFETY: only the caller has access to the header, and zeros are valid for all of its fields.
        let page = unsafe { page.as_ref() };
        let size = class::size(class);
        page.base.set(base);
        page.free.set(0);
        page.bump.set(0);
        page.used.set(0);
        page.size.set(size as u32);
        page.shared.class.set(class as u8);
        page.shared.capacity.set((PAGE / size) as u16);
        page.shared.spare.set(0);
        // `pooled` stays 0, because a late freer may read it. Relaxed: no other thread has a block of the page.
        page.shared.word.store(OWNED, Ordering::Relaxed);
        page
    }

    /// The size class of the page's blocks.
    pub fn class(&self) -> usize {
        self.shared.class.get() as usize
    }

    /// A number that differs between neighbouring pages.
    #[inline]
    pub fn number(&self) -> usize {
        ptr::from_ref(self).addr() / size_of::<Self>()
    }

    fn capacity(&self) -> u32 {
        self.shared.capacity.get() as u32
    }

    /// A page without an owner is put into the pool when this many blocks are free. With fewer, changing its owner
    /// would not be worth the cost.
    fn offered_from(&self) -> u32 {
        (self.capacity() / 16).max(1)
    }

    /// Allocates a block from the owner's part.
    #[inline]
    pub fn pop(&self) -> Option<NonNull<u8>> {
        let free = self.free.get();
        let block;
        if free != 0 {
            // SAFETY: the list holds offsets of free blocks of this page. Each block begins with the offset of the next
            // one.
            unsafe {
                block = self.base.get().add((free as usize - 1) * UNIT);
                let next = block.cast::<u32>().read();
                self.free.set(next);
                // A block that was freed some time ago is probably not cached, so the next call would have a cache
                // miss.
                let next = self.base.get().wrapping_add((next as usize * UNIT).wrapping_sub(UNIT));
                let size = self.size.get() as usize;
                crate::prefetch(next);
                crate::prefetch(next.wrapping_add(size.min(PREFETCHED) - 1));
                if size > 2 * LINE {
                    crate::prefetch(next.wrapping_add(LINE));
                    crate::prefetch(next.wrapping_add(2 * LINE));
                }
            }
        } else {
            let bump = self.bump.get();
            if bump + self.size.get() > PAGE as u32 {
                return None;
            }
            // SAFETY: the block ends within the page.
            block = unsafe { self.base.get().add(bump as usize) };
            self.bump.set(bump + self.size.get());
        }
        self.used.set(self.used.get() + 1);
        // SAFETY: pages have memory.
        Some(unsafe { NonNull::new_unchecked(block) })
    }

    /// Moves the blocks that others freed to the owner's list, which must be empty. False if there are none.
    pub fn refill(&self) -> bool {
        // Relaxed: a hint. The exchange below decides.
        if count(self.shared.word.load(Ordering::Relaxed)) == 0 {
            return false;
        }
        // Acquire pairs with the Release of `push`: the links are written, and the freeing threads no longer use the
        // blocks.
        let word = self.shared.word.swap(OWNED, Ordering::Acquire);
        self.free.set((word & 0xffff) as u32);
        self.used.set(self.used.get() - count(word));
        true
    }

    /// Whether this heap, which is the caller's own, owns the page.
    #[inline]
    pub fn is_owned_by(&self, heap: &super::Heap) -> bool {
        // Relaxed: it equals the caller's heap only if the caller set it, or a raider that has since given the heap
        // back, as the caller has seen.
        ptr::eq(self.shared.owner.load(Ordering::Relaxed), heap)
    }

    /// Frees a block of a page that the caller owns.
    ///
    /// # Safety
    /// The block belongs to this page and is allocated, and nothing uses it any more.
    #[inline]
    pub unsafe fn push_own(&self, block: NonNull<u8>) {
        // SAFETY: the caller owns the block, which has at least 16 bytes.
        unsafe { block.cast::<u32>().write(self.free.get()) };
        self.free.set(place(block));
        self.used.set(self.used.get() - 1);
    }

    /// Frees blocks of a page that the caller does not own. Lock-free.
    ///
    /// # Safety
    /// As for [`push_own`](Self::push_own). The caller is pinned. Before it has done what the result demands, it uses
    /// only those parts of this page that the pool's lock allows. The page may be in other use by then.
    #[inline]
    pub unsafe fn push(&self, chain: Chain) -> Next {
        let (capacity, offered_from) = (self.capacity(), self.offered_from());
        // Relaxed: the exchange looks again.
        let mut word = self.shared.word.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller owns the block, which has at least 16 bytes.
            unsafe { chain.last.cast::<u32>().write((word & 0xffff) as u32) };
            let mut new = (word & !0xffff) + u64::from(chain.count) * ONE + u64::from(chain.first);
            let next = match word & STATE {
                UNLISTED if count(new) >= offered_from => {
                    new = new & !STATE | LISTED;
                    Next::List
                }
                LISTED if count(new) == capacity => Next::Unlist,
                _ => Next::Nothing,
            };
            // Release: a thread that takes the list sees the links, and this thread no longer uses the blocks. Acquire:
            // a thread that finds the page empty knows that no freeing thread uses its blocks.
            match self
                .shared
                .word
                .compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return next,
                Err(now) => word = now,
            }
        }
    }

    /// Makes `heap` the owner of a page without an owner.
    ///
    /// # Safety
    /// The caller has the exclusive right to do so: it made the page, or took it out of the pool.
    pub unsafe fn adopt(&self, heap: *const super::Heap) {
        self.shared.owner.store(heap.cast_mut(), Ordering::Relaxed);
        let spare = u64::from(self.shared.spare.replace(0)) * ONE;
        let owned = |word: u64| Some(((word & !STATE) - spare) | OWNED);
        // Relaxed: the pool's lock orders the owner's line. The list is taken with Acquire.
        let _ = self
            .shared
            .word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, owned);
    }

    /// Removes the owner of the page. True if the page must be put into the pool.
    ///
    /// # Safety
    /// The caller is the owner, or raids it.
    pub unsafe fn disown(&self) -> bool {
        self.shared.owner.store(ptr::null_mut(), Ordering::Relaxed);
        let spare = self.capacity() - self.used.get();
        let offered_from = self.offered_from();
        self.shared.spare.set(spare);
        let free = |word: u64| word + u64::from(spare) * ONE;
        let listed = |word: u64| count(free(word)) >= offered_from;
        // Release: the thread that puts the page into the pool publishes the owner's line.
        // Acquire: as in `push`.
        let update = self
            .shared
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                Some(free(word) | if listed(word) { LISTED } else { UNLISTED })
            });
        update.is_ok_and(listed)
    }

    /// Whether all blocks of a page without an owner are free. Only for the holder of the pool's lock. If the page is
    /// in the pool or about to be, it stays so, because no thread has a block to free.
    pub fn is_empty(&self) -> bool {
        // Acquire pairs with the Release of `push`: no freeing thread uses the blocks any more.
        let word = self.shared.word.load(Ordering::Acquire);
        word & STATE == LISTED && count(word) == self.capacity()
    }
}

/// Blocks of one page, linked like the page's lists.
#[derive(Clone, Copy)]
pub struct Chain {
    /// As in the page's lists.
    first: u32,
    last: NonNull<u8>,
    count: u32,
}

impl Chain {
    /// A chain of one block.
    #[inline]
    pub fn of(block: NonNull<u8>) -> Self {
        Self {
            first: place(block),
            last: block,
            count: 1,
        }
    }

    /// Adds a block of the same page.
    ///
    /// # Safety
    /// Nothing uses the block any more.
    #[inline]
    pub unsafe fn add(&mut self, block: NonNull<u8>) {
        // SAFETY: the caller owns the block, which has at least 16 bytes.
        unsafe { block.cast::<u32>().write(self.first) };
        self.first = place(block);
        self.count += 1;
    }
}

/// 1 + the offset of a block in its page, in units.
#[inline]
fn place(block: NonNull<u8>) -> u32 {
    ((block.addr().get() & (PAGE - 1)) / UNIT) as u32 + 1
}

/// The pages of one class that have free blocks and no owner, as a list through their headers. Everything here happens
/// under the lock of the class.
pub struct Pool {
    first: *const Page,
}

// SAFETY: under the pool's lock, pages may move from thread to thread.
unsafe impl Send for Pool {}

impl Pool {
    pub const fn new() -> Self {
        Self { first: ptr::null() }
    }

    /// Adds a page that is not in a pool.
    pub fn insert(&mut self, page: &'static Page) {
        page.shared.pooled.store(page.class() as u8 + 1, Ordering::Relaxed);
        page.shared.previous.set(ptr::null());
        page.shared.next.set(self.first);
        // SAFETY: pages in the pool are not freed.
        if let Some(first) = unsafe { self.first.as_ref() } {
            first.shared.previous.set(page);
        }
        self.first = page;
    }

    /// Whether the page is in this pool, which is that of `class`.
    pub fn has(&self, page: &Page, class: usize) -> bool {
        // Relaxed: only a holder of this pool's lock writes this value.
        page.shared.pooled.load(Ordering::Relaxed) == class as u8 + 1
    }

    /// Takes a page out of this pool.
    pub fn remove(&mut self, page: &Page) {
        let (previous, next) = (page.shared.previous.get(), page.shared.next.get());
        page.shared.pooled.store(0, Ordering::Relaxed);
        // SAFETY: pages in the pool are not freed.
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.shared.next.set(next),
                None => self.first = next,
            }
            if let Some(next) = next.as_ref() {
                next.shared.previous.set(previous);
            }
        }
    }

    /// Takes out the page that was inserted last.
    pub fn take(&mut self) -> Option<&'static Page> {
        // SAFETY: pages in the pool are not freed.
        let page = unsafe { self.first.as_ref() }?;
        self.remove(page);
        Some(page)
    }
}
