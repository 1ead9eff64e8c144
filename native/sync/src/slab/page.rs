//! A page: 64 KiB of blocks of one class, described by a header in its chunk.
//!
//! The owner's line of the header is touched by the thread whose heap owns the page, or, while it has no owner, by whoever
//! holds the right to change that: the pool's lock, or the raid of an idle thread. The shared line has one word for all
//! others:
//!
//! | bits | |
//! |---|---|
//! | 0..16 | the list of blocks freed by others: 1 + the first one's place in units of 8 bytes, or 0; the rest is linked likewise |
//! | 16..32 | while owned, the length of that list; otherwise the number of all free blocks of the page |
//! | 32..34 | owned; without owner; without owner and in the pool, or about to be |

use super::class::{self, PAGE};
use crate::facade::{AtomicPtr, AtomicU64, AtomicU8, Ordering};
use std::cell::Cell;
use std::ptr::{self, NonNull};

const OWNED: u64 = 0 << 32;
const UNLISTED: u64 = 1 << 32;
const LISTED: u64 = 2 << 32;
const STATE: u64 = 3 << 32;
const ONE: u64 = 1 << 16;

/// Bytes of the next free block that are asked for when one is handed out.
const PREFETCHED: usize = 256;

/// Bytes of a cache line.
const LINE: usize = 64;

/// What sizes and places of blocks are multiples of.
const UNIT: usize = 8;

fn count(word: u64) -> u32 {
    (word >> 16 & 0xffff) as u32
}

/// What the thread that freed a block into a page has to do next.
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
    /// The owner's list of free blocks, linked as the others' is.
    free: Cell<u32>,
    /// Where the blocks begin that were never handed out.
    bump: Cell<u32>,
    /// Blocks handed out and not back in the owner's hands.
    used: Cell<u32>,
    size: Cell<u32>,
    shared: Shared,
}

#[repr(align(64))]
struct Shared {
    word: AtomicU64,
    /// The heap that owns the page. Only that heap's thread learns anything from it.
    owner: AtomicPtr<super::Heap>,
    /// 1 + the class of the pool that the page is in, or 0. Written under that pool's lock.
    pooled: AtomicU8,
    class: Cell<u8>,
    capacity: Cell<u16>,
    /// Blocks that the last owner left in the owner's line. Counted in the word until the page is adopted.
    spare: Cell<u32>,
    /// Neighbours in the pool, under its lock.
    pub previous: Cell<*const Page>,
    pub next: Cell<*const Page>,
}

impl Page {
    /// Makes a page for `class` out of an unused one whose memory is at `base`.
    ///
    /// # Safety
    /// `page` is the header, zeroed or used before, of unused memory at `base`, and the caller alone has it.
    pub unsafe fn prepare(page: NonNull<Page>, base: *mut u8, class: usize) -> &'static Page {
        // SAFETY: the caller alone has the header, and zeros are a value of each of its fields.
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
        // `pooled` stays 0: a late freer may be asking for it. Relaxed: nobody else has a block of the page.
        page.shared.word.store(OWNED, Ordering::Relaxed);
        page
    }

    /// The class of the page's blocks.
    pub fn class(&self) -> usize {
        self.shared.class.get() as usize
    }

    /// A number that neighbours do not have in common.
    #[inline]
    pub fn number(&self) -> usize {
        ptr::from_ref(self).addr() / size_of::<Self>()
    }

    fn capacity(&self) -> u32 {
        self.shared.capacity.get() as u32
    }

    /// A page without an owner is offered to others when so many blocks are free: fewer would not be worth the transfer.
    fn offered_from(&self) -> u32 {
        (self.capacity() / 16).max(1)
    }

    /// Takes a block from the owner's hands.
    #[inline]
    pub fn pop(&self) -> Option<NonNull<u8>> {
        let free = self.free.get();
        let block;
        if free != 0 {
            // SAFETY: the list holds places of free blocks of this page, each beginning with the next one's.
            unsafe {
                block = self.base.get().add((free as usize - 1) * UNIT);
                let next = block.cast::<u32>().read();
                self.free.set(next);
                // What was freed some time ago is in no near cache: the next call need not wait for it.
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

    /// Takes the blocks that others freed into the owner's hands, which must be empty of a list; false when there are none.
    pub fn refill(&self) -> bool {
        // Relaxed: a hint, the exchange below decides.
        if count(self.shared.word.load(Ordering::Relaxed)) == 0 {
            return false;
        }
        // Acquire pairs with the Release of `push`: the links are there, and the freer is done with the blocks.
        let word = self.shared.word.swap(OWNED, Ordering::Acquire);
        self.free.set((word & 0xffff) as u32);
        self.used.set(self.used.get() - count(word));
        true
    }

    /// Whether this heap, the caller's own, owns the page.
    #[inline]
    pub fn is_owned_by(&self, heap: &super::Heap) -> bool {
        // Relaxed: it equals the caller's heap only if the caller set it, or a raider whose withdrawal the caller has seen.
        ptr::eq(self.shared.owner.load(Ordering::Relaxed), heap)
    }

    /// Frees a block of a page that the caller owns.
    ///
    /// # Safety
    /// The block is one of this page's, handed out, and nothing uses it any more.
    #[inline]
    pub unsafe fn push_own(&self, block: NonNull<u8>) {
        // SAFETY: the block is the caller's, and at least 16 bytes.
        unsafe { block.cast::<u32>().write(self.free.get()) };
        self.free.set(place(block));
        self.used.set(self.used.get() - 1);
    }

    /// Frees blocks of a page that the caller does not own. Lock-free.
    ///
    /// # Safety
    /// As for [`push_own`](Self::push_own). The caller is pinned, and before it does what it is told to it touches no more of
    /// this page than the pool's lock allows: the page may be another by then.
    #[inline]
    pub unsafe fn push(&self, chain: Chain) -> Next {
        let (capacity, offered_from) = (self.capacity(), self.offered_from());
        let mut word = self.shared.word.load(Ordering::Relaxed);
        loop {
            // SAFETY: the block is the caller's, and at least 16 bytes.
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
            // Release: whoever takes the list sees the links, and this thread done with the blocks. Acquire: whoever finds the
            // page empty sees all freers done.
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

    /// Gives a page without an owner to `heap`.
    ///
    /// # Safety
    /// The caller alone has the right to: it made the page, or took it out of the pool.
    pub unsafe fn adopt(&self, heap: *const super::Heap) {
        self.shared.owner.store(heap.cast_mut(), Ordering::Relaxed);
        let spare = u64::from(self.shared.spare.replace(0)) * ONE;
        let owned = |word: u64| Some(((word & !STATE) - spare) | OWNED);
        // Relaxed: the pool's lock orders the owner's line; the list is taken with Acquire.
        let _ = self
            .shared
            .word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, owned);
    }

    /// Takes the page from its owner; true when it is to be put into the pool.
    ///
    /// # Safety
    /// The caller is the owner, or has raided it.
    pub unsafe fn disown(&self) -> bool {
        self.shared.owner.store(ptr::null_mut(), Ordering::Relaxed);
        let spare = self.capacity() - self.used.get();
        let offered_from = self.offered_from();
        self.shared.spare.set(spare);
        let free = |word: u64| word + u64::from(spare) * ONE;
        let listed = |word: u64| count(free(word)) >= offered_from;
        // Release: who finds the page unlisted and lists it passes the owner's line on.
        let update = self
            .shared
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                Some(free(word) | if listed(word) { LISTED } else { UNLISTED })
            });
        update.is_ok_and(listed)
    }

    /// Whether all blocks of a page without an owner are free. Only for the holder of the pool's lock: then it stays so if
    /// the page is in the pool or about to be, as nobody has a block to free.
    pub fn is_empty(&self) -> bool {
        // Acquire pairs with the Release of `push`: all freers are done with the blocks.
        let word = self.shared.word.load(Ordering::Acquire);
        word & STATE == LISTED && count(word) == self.capacity()
    }
}

/// Blocks of one page, linked as in the page's lists.
#[derive(Clone, Copy)]
pub struct Chain {
    /// As in the lists.
    first: u32,
    last: NonNull<u8>,
    count: u32,
}

impl Chain {
    /// One block.
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
        // SAFETY: the block is the caller's, and at least 16 bytes.
        unsafe { block.cast::<u32>().write(self.first) };
        self.first = place(block);
        self.count += 1;
    }
}

/// 1 + the place of a block in its page, in units.
#[inline]
fn place(block: NonNull<u8>) -> u32 {
    ((block.addr().get() & (PAGE - 1)) / UNIT) as u32 + 1
}

/// The pages of one class that have free blocks and no owner: a list through their headers. Everything here happens under
/// the lock of the class.
pub struct Pool {
    first: *const Page,
}

// SAFETY: pages may be handed from thread to thread under the pool's lock.
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
        // SAFETY: pages in the pool are not given back.
        if let Some(first) = unsafe { self.first.as_ref() } {
            first.shared.previous.set(page);
        }
        self.first = page;
    }

    /// Whether the page is in this pool, that of `class`.
    pub fn has(&self, page: &Page, class: usize) -> bool {
        // Relaxed: this value is written under this pool's lock only.
        page.shared.pooled.load(Ordering::Relaxed) == class as u8 + 1
    }

    /// Takes a page of this pool out.
    pub fn remove(&mut self, page: &Page) {
        let (previous, next) = (page.shared.previous.get(), page.shared.next.get());
        page.shared.pooled.store(0, Ordering::Relaxed);
        // SAFETY: pages in the pool are not given back.
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

    /// Takes out the page that was added last.
    pub fn take(&mut self) -> Option<&'static Page> {
        // SAFETY: pages in the pool are not given back.
        let page = unsafe { self.first.as_ref() }?;
        self.remove(page);
        Some(page)
    }
}
