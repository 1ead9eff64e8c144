//! A thread's pages, at most one for each class, and how pages change owners.
//!
//! A heap belongs to a thread slot. Its thread uses it while pinned, unless a raid was announced (see the bag in
//! [`crate::epoch`]). During a raid it uses pages without an owner, as every thread does for pages of others.

use super::arena;
use super::class::CLASSES;
use super::page::{Chain, Next, Page, Pool};
use crate::epoch::{pin, Guard};
use crate::facade::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

static POOLS: [Mutex<Pool>; CLASSES] = [const { Mutex::new(Pool::new()) }; CLASSES];

fn pool(class: usize) -> MutexGuard<'static, Pool> {
    // No code panics while it holds the lock.
    POOLS[class].lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module's documentation.
pub struct Heap {
    pages: [AtomicPtr<Page>; CLASSES],
}

impl Heap {
    pub fn new() -> Self {
        Self {
            pages: [const { AtomicPtr::new(ptr::null_mut()) }; CLASSES],
        }
    }

    /// The page of a class that the heap owns.
    #[inline]
    fn page(&self, class: usize) -> Option<&'static Page> {
        // Relaxed: written by the owner, or by a raider that has since given the heap back, as the owner has seen.
        // SAFETY: pages with an owner are not freed.
        unsafe { self.pages[class].load(Ordering::Relaxed).as_ref() }
    }

    fn set(&self, class: usize, page: *const Page) {
        // Relaxed: as in `page`.
        self.pages[class].store(page.cast_mut(), Ordering::Relaxed);
    }

    /// Whether the heap seems to own pages. Any thread may call it.
    pub fn is_used(&self) -> bool {
        // Relaxed: a hint.
        self.pages.iter().any(|page| !page.load(Ordering::Relaxed).is_null())
    }

    /// Disowns all pages.
    ///
    /// # Safety
    /// The caller is the heap's pinned thread, or raids it.
    pub unsafe fn disown_all(&self, guard: &Guard) {
        for class in 0..CLASSES {
            if let Some(page) = self.page(class) {
                self.set(class, ptr::null());
                // SAFETY: the caller's promise.
                unsafe { disown(page, guard) };
            }
        }
    }

    #[cold]
    fn alloc_in_general(&self, class: usize, guard: &Guard) -> Option<NonNull<u8>> {
        loop {
            if let Some(page) = self.page(class) {
                if page.refill() {
                    return page.pop();
                }
                self.set(class, ptr::null());
                // SAFETY: this heap owns the page.
                unsafe { disown(page, guard) };
            }
            let page = find(class)?;
            // SAFETY: `find` gives this thread the exclusive right.
            unsafe { page.adopt(self) };
            self.set(class, page);
            if let Some(block) = page.pop() {
                return Some(block);
            }
        }
    }
}

/// A page of the class with free blocks and without an owner, for the caller to adopt.
fn find(class: usize) -> Option<&'static Page> {
    let pooled = pool(class).take();
    pooled.or_else(|| arena::take(class))
}

/// Removes the owner of a page, and puts the page where it belongs then.
///
/// # Safety
/// The caller is the owner, or raids it.
unsafe fn disown(page: &'static Page, guard: &Guard) {
    let class = page.class();
    // SAFETY: the caller's promise.
    if unsafe { page.disown() } {
        list(page, class, guard);
    }
}

/// Puts a page into its pool. If it is empty, gives it back to its chunk instead.
#[cold]
fn list(page: &'static Page, class: usize, guard: &Guard) {
    let mut pool = pool(class);
    if page.is_empty() {
        drop(pool);
        arena::give(page, guard);
    } else {
        pool.insert(page);
    }
}

/// Takes an empty page out of its pool and gives it back to its chunk, unless another thread has used it meanwhile.
#[cold]
fn unlist(page: &'static Page, class: usize, guard: &Guard) {
    let mut pool = pool(class);
    if pool.has(page, class) && page.is_empty() {
        pool.remove(page);
        drop(pool);
        arena::give(page, guard);
    }
}

/// A block of the class.
#[inline]
pub fn alloc(class: usize, guard: &Guard) -> Option<NonNull<u8>> {
    let slot = guard.slot();
    // Acquire: as in `Guard::retire`.
    if slot.raided.load(Ordering::Acquire) {
        return alloc_apart(class, guard);
    }
    if let Some(block) = slot.heap.page(class).and_then(Page::pop) {
        return Some(block);
    }
    slot.heap.alloc_in_general(class, guard)
}

/// A block of a page that no heap keeps: it is disowned right after the allocation.
#[cold]
fn alloc_apart(class: usize, guard: &Guard) -> Option<NonNull<u8>> {
    loop {
        let page = find(class)?;
        // SAFETY: `find` gives this thread the exclusive right.
        unsafe { page.adopt(ptr::null()) };
        let mut block = page.pop();
        if block.is_none() && page.refill() {
            block = page.pop();
        }
        // SAFETY: adopted above.
        unsafe { disown(page, guard) };
        if block.is_some() {
            return block;
        }
    }
}

/// Frees a block.
///
/// # Safety
/// The block came from [`alloc`], and nothing uses it any more.
#[inline]
pub unsafe fn free(block: NonNull<u8>) {
    let guard = pin();
    // SAFETY: the caller's promise.
    if let Some(page) = unsafe { free_own(block, &guard) } {
        // SAFETY: the caller's promise.
        unsafe { give_back(page, Chain::of(block), &guard) }
    }
}

/// Frees a block if this thread owns its page. Otherwise returns the page.
///
/// # Safety
/// As for [`free`].
#[inline]
unsafe fn free_own(block: NonNull<u8>, guard: &Guard) -> Option<&'static Page> {
    let slot = guard.slot();
    // SAFETY: the block was in use until now.
    let page = unsafe { arena::page_of(block) };
    // Acquire: as in `Guard::retire`. The order matters: first the announcement of a raid, then the owner.
    if slot.raided.load(Ordering::Acquire) || !page.is_owned_by(&slot.heap) {
        return Some(page);
    }
    // SAFETY: the caller's promise, and this thread owns the page.
    unsafe { page.push_own(block) };
    None
}

/// Gives blocks back to a page that this thread need not own.
///
/// # Safety
/// As for [`free`], for all of them.
#[inline]
unsafe fn give_back(page: &'static Page, blocks: Chain, guard: &Guard) {
    let class = page.class();
    // SAFETY: the caller's promise, and this thread is pinned.
    match unsafe { page.push(blocks) } {
        Next::Nothing => {}
        Next::List => list(page, class, guard),
        Next::Unlist => unlist(page, class, guard),
    }
}

/// How many pages can have gathered blocks at a time.
const GATHERED: usize = 4;

/// Frees one block after another. Blocks of a page of another owner are gathered, because each return to such a page is
/// an atomic exchange. Dropping this returns the gathered blocks.
pub struct Gatherer<'g> {
    guard: &'g Guard,
    gathered: [Option<(&'static Page, Chain)>; GATHERED],
}

impl<'g> Gatherer<'g> {
    pub fn new(guard: &'g Guard) -> Self {
        Self {
            guard,
            gathered: [None; GATHERED],
        }
    }

    /// Frees a block, perhaps only when this is dropped.
    ///
    /// # Safety
    /// As for [`free`].
    #[inline]
    pub unsafe fn free(&mut self, block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        let Some(page) = (unsafe { free_own(block, self.guard) }) else {
            return;
        };
        let place = &mut self.gathered[page.number() % GATHERED];
        match place {
            // SAFETY: the caller's promise.
            Some((known, chain)) if ptr::eq(*known, page) => return unsafe { chain.add(block) },
            // SAFETY: these are free, by the promises of earlier callers.
            Some((other, chain)) => unsafe { give_back(other, *chain, self.guard) },
            None => (),
        }
        *place = Some((page, Chain::of(block)));
    }
}

impl Drop for Gatherer<'_> {
    fn drop(&mut self) {
        for (page, chain) in self.gathered.into_iter().flatten() {
            // SAFETY: these are free, by the promises of the callers of `free`.
            unsafe { give_back(page, chain, self.guard) }
        }
    }
}
