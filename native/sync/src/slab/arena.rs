//! Chunks of 2 MiB, aligned to their size so that a block's address leads to its page's header, in regions of one to fifteen
//! from the operating system.
//!
//! The VM tells the memory of tables as its own, because the source counts each chunk in use. The VM cannot be told of memory
//! that its allocators did not give. They align to 8 bytes: with 2 MiB to spare for aligning, and with chunks that nobody has
//! touched yet, they would count up to twice the memory in use. So each touched chunk has an *account*: a block of the source
//! of the same size. Nobody touches it, so it takes address space and no memory. Without an account there is no chunk.
//!
//! A chunk's first 64 KiB hold the headers of its 31 pages. Their place in it depends on the chunk's address, so headers of
//! different chunks do not compete for the same cache sets. Memory is not touched before it is used, and regions grow with what
//! is in use.
//!
//! The first touch of a huge page takes a millisecond or two, more than a scheduler may be held. So a thread of its own, begun
//! with the third chunk, keeps some chunks in stock whose memory it has had made of huge pages and touched. They come from the
//! node on which the last one was wanted. Who finds the stock empty takes a chunk as it is, in small pages. The same thread gives regions back to the system, which may take as long.
//! Waking it does not preempt the running thread, which is likely a scheduler. Where all processors are busy, it waits for a
//! tick of the system's clock. Once it runs, others wait for the next tick. So it naps after each chunk.
//!
//! One chunk is the *reserve*. Its pages are for calls that give [relief](super::Relief), when there is no other memory. Pages that come back
//! to it stay in it. When it has lost many, an empty chunk or a new one takes its place.
//!
//! If the [account](super::account) has a limit, regions are one chunk long, so that each empty chunk can be given back. The stock takes at most
//! a part of what is left. When memory is short, the system gets that of unused pages back. Such a page is *vacant*: the account does not count
//! it until it is used again.

use super::class::PAGE;
use super::map::{map, unmap, vacate};
use super::page::Page;
use super::{account, source, system};
use crate::epoch::Guard;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

const CHUNK: usize = 2 << 20;
const PAGES: usize = CHUNK / PAGE;
/// The bytes of a chunk's headers: its own and one a page.
const HEADERS: usize = PAGES * size_of::<Page>();
/// Chunks in a region at most.
const MOST_CHUNKS: usize = 15;
/// Chunks in use from which on some are kept in stock: a small store must not touch 2 MiB at once.
const STOCK_FROM: usize = 2;
/// Chunks in use from which on one is the reserve: less is not worth it.
const RESERVE_FROM: usize = 2;
/// Pages that the reserve has at least, when an empty chunk could take its place.
const RESERVED: u32 = PAGES as u32 / 2;
/// Chunks in stock at most, and at most one for as many in use.
const MOST_STOCK: usize = 8;
const USED_PER_STOCK: usize = 8;
/// The stock has at most this part of what the account may still take.
const STOCK_OF_ROOM: usize = 4;

const _: () = assert!(HEADERS * (PAGE / HEADERS) == PAGE && size_of::<Chunk>() <= size_of::<Page>());

/// A chunk's own header, in the place of that of page 0. Everything in it is under the arena's lock.
#[repr(C)]
struct Chunk {
    region: *mut Region,
    /// One bit for each unused page, and for each of those that is vacant.
    unused: u32,
    vacant: u32,
    /// The list that the chunk is in, and its neighbours there.
    list: List,
    previous: *mut Chunk,
    next: *mut Chunk,
}

impl Chunk {
    /// The unused pages that have memory.
    fn present(&self) -> u32 {
        self.unused & !self.vacant
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    /// In no list: the chunk has no unused pages, or is the reserve.
    None,
    /// Chunks with unused pages that have memory.
    Present,
    /// Chunks in stock.
    Stock,
    /// Chunks whose unused pages are all vacant.
    Vacant,
}

/// Address space from the system.
struct Region {
    /// The first chunk's address, the number of chunks, and how many of them have been touched.
    first: NonNull<u8>,
    chunks: usize,
    touched: usize,
    /// The account of each touched chunk.
    accounts: [Option<NonNull<u8>>; MOST_CHUNKS],
    /// Pages in use or being vacated, and chunks being made.
    used: usize,
    /// Vacant pages, when it was taken out of all lists.
    vacant: usize,
    next: *mut Region,
}

struct Arena {
    /// The lists, and the number of chunks in stock.
    present: *mut Chunk,
    vacant: *mut Chunk,
    stock: *mut Chunk,
    stocked: usize,
    /// Regions with untouched chunks.
    regions: *mut Region,
    /// Chunks touched, in all regions.
    touched: usize,
    /// Chunks being made.
    making: usize,
    /// An unused region that is kept.
    kept: *mut Region,
    /// The reserve, in no list. It counts as a page in use of its region.
    reserve: *mut Chunk,
    /// Whether the thread that keeps the stock runs, and the regions that it is to give back.
    stocking: bool,
    dead: *mut Region,
    /// So many chunks stay, whether they are used or not.
    reserved: usize,
    /// The processors' node on which a chunk was wanted last. Chunks in stock come from there.
    node: u32,
}

// SAFETY: chunks and regions belong to whoever holds the arena's lock.
unsafe impl Send for Arena {}

static ARENA: Mutex<Arena> = Mutex::new(Arena {
    present: ptr::null_mut(),
    vacant: ptr::null_mut(),
    stock: ptr::null_mut(),
    stocked: 0,
    regions: ptr::null_mut(),
    touched: 0,
    making: 0,
    kept: ptr::null_mut(),
    reserve: ptr::null_mut(),
    stocking: false,
    dead: ptr::null_mut(),
    reserved: 0,
    node: 0,
});

/// Told when the stock is low, and when a region is dead.
static WORK: Condvar = Condvar::new();

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

/// Where the memory of a page is, by its number and an address in its chunk.
fn memory_of(address: *mut u8, index: usize) -> *mut u8 {
    address.map_addr(|address| (address & !(CHUNK - 1)) + index * PAGE)
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

/// An unused page, made ready for `class`; nothing when the source or the system has no memory.
pub fn take(class: usize) -> Option<&'static Page> {
    let mut arena = lock();
    loop {
        // SAFETY: chunks in the list are under the lock.
        if let Some(chunk) = unsafe { arena.present.as_mut() } {
            let page = arena.page_of_chunk(chunk);
            arena.relink(chunk);
            // A call that gives relief takes no more than it needs.
            if arena.lacks_reserve() && !super::is_relieving() {
                keep_reserve(arena);
            }
            return Some(page.prepare(class));
        }
        // SAFETY: chunks in stock are under the lock.
        if let Some(chunk) = unsafe { arena.stock.as_mut() } {
            arena.unlink(chunk);
            arena.link(chunk, List::Present);
        // SAFETY: as above.
        } else if let Some(chunk) = unsafe { arena.vacant.as_mut() }.filter(|_| account::take(PAGE)) {
            chunk.vacant &= chunk.vacant - 1;
            arena.relink(chunk);
            continue;
        } else {
            arena = match touch_chunk(arena, false) {
                Some(arena) => arena,
                None => return super::is_relieving().then(|| take_reserved(class))?,
            };
        }
        if arena.stocked < arena.goal() {
            arena.node = system::node();
            start_stocking(&mut arena);
            WORK.notify_one();
        }
    }
}

/// An unused page that nobody else has.
struct Unused {
    header: *mut Page,
    base: *mut u8,
}

impl Unused {
    fn prepare(self, class: usize) -> &'static Page {
        // SAFETY: the page's bit was set, so its header and memory were unused, and now are this value's.
        unsafe { Page::prepare(NonNull::new_unchecked(self.header), self.base, class) }
    }
}

/// An unused page of the reserve.
#[cold]
fn take_reserved(class: usize) -> Option<&'static Page> {
    let mut arena = lock();
    // SAFETY: the reserve is under the lock.
    let reserve = unsafe { arena.reserve.as_mut() }.filter(|chunk| chunk.unused != 0)?;
    let page = arena.page_of_chunk(reserve);
    drop(arena);
    Some(page.prepare(class))
}

/// Touches a chunk for the reserve. Without memory, the next call tries again.
#[cold]
fn keep_reserve(arena: MutexGuard<'static, Arena>) {
    let Some(mut arena) = touch_chunk(arena, false) else {
        return;
    };
    if arena.lacks_reserve() {
        // It was linked just now.
        let chunk = arena.present;
        arena.reserve_chunk(chunk);
    }
}

/// Touches one more chunk, in a new region if need be, without holding the lock meanwhile.
fn touch_chunk(mut arena: MutexGuard<'static, Arena>, stocked: bool) -> Option<MutexGuard<'static, Arena>> {
    arena.making += 1;
    drop(arena);
    let made = new_chunk(stocked);
    let mut arena = lock();
    arena.making -= 1;
    let (chunk, region) = made?;
    // SAFETY: kept by the count of `new_chunk`.
    unsafe { (*region).used -= 1 };
    arena.link(chunk, if stocked { List::Stock } else { List::Present });
    Some(arena)
}

/// A new chunk, in no list, and its region, in which it counts as a page in use.
fn new_chunk(stocked: bool) -> Option<(*mut Chunk, *mut Region)> {
    let account = source::take(CHUNK)?;
    // SAFETY: just taken, and nobody has it.
    unsafe { vacate(account, CHUNK) };
    let mut arena = lock();
    if arena.regions.is_null() {
        let most = if account::limit().is_some() { 1 } else { MOST_CHUNKS };
        let chunks = (arena.touched / 4).clamp(1, most);
        drop(arena);
        let Some(region) = make_region(chunks) else {
            // SAFETY: just taken, and nobody has it.
            unsafe { source::give(account, CHUNK) };
            return None;
        };
        arena = lock();
        // SAFETY: just made, and only this thread has it.
        unsafe { (*region).next = arena.regions };
        arena.regions = region;
    }
    let region = arena.regions;
    // SAFETY: regions in the list are under the lock, have an untouched chunk, and while in use are not given back.
    let address = unsafe {
        let region = &mut *region;
        let number = region.touched;
        region.accounts[number] = Some(account);
        region.touched += 1;
        if region.touched == region.chunks {
            arena.regions = region.next;
        }
        region.first.as_ptr().add(number * CHUNK)
    };
    arena.touched += 1;
    arena.occupy(region, 1);
    drop(arena);
    // SAFETY: the chunk is untouched, so the caller's.
    unsafe {
        if stocked {
            touch(address);
        }
        Some((make_chunk(address, region), region))
    }
}

/// Takes so many bytes from the system soon, and keeps them, whether they are used or not.
pub fn reserve(bytes: usize) {
    let mut arena = lock();
    arena.reserved = bytes.div_ceil(CHUNK);
    start_stocking(&mut arena);
    WORK.notify_one();
}

/// Whether there are unused pages of so many bytes that have memory, beside those of the reserve.
pub fn has_unused(bytes: usize) -> bool {
    let arena = lock();
    let mut pages = 0;
    for mut at in [arena.present, arena.stock] {
        // SAFETY: chunks in the lists are under the lock.
        while let Some(chunk) = unsafe { at.as_ref() } {
            if pages * PAGE >= bytes {
                return true;
            }
            pages += chunk.present().count_ones() as usize;
            at = chunk.next;
        }
    }
    pages * PAGE >= bytes
}

/// Whether a chunk is being made. The source has given its memory, or is being asked for it.
pub fn is_making_chunk() -> bool {
    lock().making > 0
}

/// Gives chunks back that are not used: those in stock, and an empty region that was kept. Returns whether there were any.
pub fn give_back_unused(guard: &Guard) -> bool {
    let mut arena = lock();
    // SAFETY: the kept region is under the lock.
    let kept = unsafe { mem::replace(&mut arena.kept, ptr::null_mut()).as_mut() };
    let mut removed: *mut Region = ptr::null_mut();
    let mut unused = kept.or_else(|| arena.unused_stock(arena.reserved));
    while let Some(region) = unused {
        arena.remove(region);
        region.next = removed;
        removed = region;
        unused = arena.unused_stock(arena.reserved);
    }
    drop(arena);
    let any = !removed.is_null();
    retire(removed, guard);
    any
}

/// Vacates unused pages: the system gets their memory back. Returns whether there were any. Takes microseconds for each.
pub fn vacate_unused(guard: &Guard) -> bool {
    let (mut any, mut arena) = (false, lock());
    for _ in 0..arena.touched {
        let chunk = arena.present;
        if chunk.is_null() || arena.touched <= arena.reserved {
            break;
        }
        // SAFETY: chunks in the list are under the lock, and their regions too.
        let (pages, region) = unsafe { ((*chunk).present(), (*chunk).region) };
        // As if they were in use, so that nobody else takes them and the chunk stays.
        // SAFETY: as above.
        unsafe { (*chunk).unused &= !pages };
        arena.occupy(region, pages.count_ones() as usize);
        arena.relink(chunk);
        drop(arena);
        let taken = (0..PAGES).filter(|index| pages & 1 << index != 0);
        // SAFETY: these pages are unused, and nobody else takes them.
        let vacated = taken.filter(|index| unsafe { system::give_back(memory_of(chunk.cast(), *index), PAGE) });
        let vacated = vacated.fold(0, |vacated, index| vacated | 1 << index);
        arena = lock();
        // SAFETY: as above. The chunk is there, as it had pages in use.
        unsafe {
            (*chunk).unused |= pages;
            (*chunk).vacant |= vacated;
            (*region).used -= pages.count_ones() as usize;
        }
        arena.relink(chunk);
        account::give(vacated.count_ones() as usize * PAGE);
        any |= vacated != 0;
        // SAFETY: as above.
        release(arena, unsafe { &mut *region }, guard);
        if vacated != pages {
            return any;
        }
        arena = lock();
    }
    any
}

/// Begins the thread that keeps the stock. Without it, chunks are touched by whoever needs them.
#[cold]
fn start_stocking(arena: &mut Arena) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let stocker = thread::Builder::new().name("cats_memory".into()).stack_size(128 << 10);
        arena.stocking = stocker.spawn(keep_stock).is_ok();
    });
}

fn keep_stock() {
    system::yield_to_others();
    system::run_anywhere();
    let mut node = u32::MAX;
    let mut arena = lock();
    loop {
        // SAFETY: dead regions are under the lock.
        if let Some(region) = unsafe { arena.dead.as_mut() } {
            arena.dead = region.next;
            drop(arena);
            // SAFETY: made by `make_region`, unlinked, and past its grace period.
            unsafe {
                empty(region);
                give_back(region);
            }
            arena = lock();
            continue;
        }
        if arena.stocked < arena.goal() {
            if arena.node != node {
                node = arena.node;
                system::prefer_node(node);
            }
            if let Some(more) = touch_chunk(arena, true) {
                drop(more);
                nap();
                arena = lock();
                continue;
            }
            // No memory: wait until somebody has found some, or gives some back.
            arena = lock();
            if !arena.dead.is_null() {
                continue;
            }
        }
        arena = WORK.wait(arena).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Lets others have the processor, whoever they are. As short as the system's timers allow, some 50 µs.
fn nap() {
    thread::sleep(Duration::from_nanos(1));
}

/// Gives back a page that is empty and in no pool.
pub fn give(page: &'static Page, guard: &Guard) {
    let header = ptr::from_ref(page).cast_mut();
    let chunk = headers(header.cast()).cast::<Chunk>();
    let index = (header.addr() - chunk.addr()) / size_of::<Page>();
    let mut arena = lock();
    // SAFETY: the chunk is there while a page of it is in use, and its header is under the lock.
    let region = unsafe {
        (*chunk).unused |= 1 << index;
        (*(*chunk).region).used -= 1;
        &mut *(*chunk).region
    };
    if chunk == arena.reserve {
        return;
    }
    arena.relink(chunk);
    arena.renew_reserve(chunk);
    release(arena, region, guard);
}

/// Gives a region back if it is unused now, and those that are in stock beyond the goal.
fn release(mut arena: MutexGuard<'static, Arena>, region: &mut Region, guard: &Guard) {
    if region.used > 0 || arena.touched - region.touched < arena.reserved {
        return;
    }
    let mut unneeded = arena.keep_smaller(region);
    let mut removed: *mut Region = ptr::null_mut();
    while let Some(region) = unneeded {
        arena.remove(region);
        region.next = removed;
        removed = region;
        unneeded = arena.unused_stock(arena.goal());
    }
    drop(arena);
    retire(removed, guard);
}

/// Gives a list of regions back that are in no other list any more.
fn retire(mut removed: *mut Region, guard: &Guard) {
    // SAFETY: made by `make_region`, and the caller's.
    while let Some(region) = unsafe { removed.as_mut() } {
        removed = region.next;
        // A thread that freed a block may still be looking at the header of the block's page, under its guard.
        // SAFETY: as above.
        unsafe { guard.retire_sized(ptr::from_mut(region).cast(), 0, drop_region, region.chunks * CHUNK) };
    }
}

impl Arena {
    /// Takes an unused page of a chunk that has one with memory.
    fn page_of_chunk(&mut self, chunk: &mut Chunk) -> Unused {
        let index = chunk.present().trailing_zeros() as usize;
        chunk.unused &= !(1 << index);
        self.occupy(chunk.region, 1);
        let header = ptr::from_mut(chunk).cast::<Page>().wrapping_add(index);
        Unused {
            header,
            base: memory_of(header.cast(), index),
        }
    }

    /// Whether there should be a reserve, and there is none, or one that has lost many pages.
    fn lacks_reserve(&self) -> bool {
        // SAFETY: the reserve is under the lock.
        let unused = unsafe { self.reserve.as_ref() }.map_or(0, |reserve| reserve.unused.count_ones());
        unused < RESERVED && self.touched > RESERVE_FROM
    }

    /// Makes an empty chunk, which is in a list, the reserve. The one before has pages in use, if there was one.
    fn reserve_chunk(&mut self, chunk: *mut Chunk) {
        self.unlink(chunk);
        // SAFETY: the chunk is under the lock, and its region is there.
        let region = unsafe { (*chunk).region };
        self.occupy(region, 1);
        let before = mem::replace(&mut self.reserve, chunk);
        // SAFETY: as above.
        if let Some(before) = unsafe { before.as_mut() } {
            // SAFETY: as above.
            unsafe { (*before.region).used -= 1 };
            self.relink(before);
        }
    }

    /// Counts so many pages as used. Their region is no unused one that is kept.
    fn occupy(&mut self, region: *mut Region, pages: usize) {
        // SAFETY: regions are under the lock, and there while they have a chunk in a list, the reserve, or an untouched chunk.
        unsafe { (*region).used += pages };
        if self.kept == region {
            self.kept = ptr::null_mut();
        }
    }

    /// Makes this chunk, which is in the list, the reserve, if it is empty and the reserve has lost many pages.
    fn renew_reserve(&mut self, chunk: *mut Chunk) {
        // SAFETY: the chunk is under the lock.
        let unused = unsafe { (*chunk).present().count_ones() };
        if unused as usize == PAGES - 1 && !self.reserve.is_null() && self.lacks_reserve() {
            self.reserve_chunk(chunk);
        }
    }

    /// How many chunks there should be in stock.
    fn goal(&self) -> usize {
        let used = self.touched - self.stocked;
        let stock = if used < STOCK_FROM {
            0
        } else {
            let most = account::room() / CHUNK / STOCK_OF_ROOM;
            used.div_ceil(USED_PER_STOCK).min(MOST_STOCK).min(most)
        };
        stock.max(self.reserved.saturating_sub(used))
    }

    fn first(&mut self, list: List) -> &mut *mut Chunk {
        match list {
            List::Stock => &mut self.stock,
            List::Vacant => &mut self.vacant,
            List::Present | List::None => &mut self.present,
        }
    }

    /// Adds a chunk that is in no list.
    fn link(&mut self, chunk: *mut Chunk, list: List) {
        if list == List::None {
            return;
        }
        self.stocked += usize::from(list == List::Stock);
        let first = self.first(list);
        // SAFETY: chunks in the lists, and this one, are under the lock.
        unsafe {
            (*chunk).list = list;
            (*chunk).previous = ptr::null_mut();
            (*chunk).next = *first;
            if let Some(first) = first.as_mut() {
                first.previous = chunk;
            }
        }
        *first = chunk;
    }

    fn unlink(&mut self, chunk: *mut Chunk) {
        // SAFETY: chunks in the lists, and this one, are under the lock.
        unsafe {
            let (list, previous, next) = ((*chunk).list, (*chunk).previous, (*chunk).next);
            if list == List::None {
                return;
            }
            (*chunk).list = List::None;
            self.stocked -= usize::from(list == List::Stock);
            match previous.as_mut() {
                Some(previous) => previous.next = next,
                None => *self.first(list) = next,
            }
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
        }
    }

    /// Moves a chunk that is neither in stock nor the reserve to the list of its unused pages.
    fn relink(&mut self, chunk: *mut Chunk) {
        // SAFETY: the chunk is under the lock.
        let (now, unused, present) = unsafe { ((*chunk).list, (*chunk).unused, (*chunk).present()) };
        let list = match (unused, present) {
            (0, _) => List::None,
            (_, 0) => List::Vacant,
            _ => List::Present,
        };
        if list != now {
            self.unlink(chunk);
            self.link(chunk, list);
        }
    }

    /// A region that has nothing but chunks in stock, when there are more of those than `most`.
    fn unused_stock<'a>(&self, most: usize) -> Option<&'a mut Region> {
        let mut at = self.stock;
        // SAFETY: chunks in stock are under the lock, and so are their regions.
        while let Some(chunk) = unsafe { at.as_ref() } {
            // SAFETY: as above.
            if self.stocked > most && chunk.region != self.kept && unsafe { (*chunk.region).used } == 0 {
                // SAFETY: as above.
                return Some(unsafe { &mut *chunk.region });
            }
            at = chunk.next;
        }
        None
    }

    /// Keeps this unused region or the one kept so far, and returns the other.
    fn keep_smaller<'a>(&mut self, region: &'a mut Region) -> Option<&'a mut Region> {
        // SAFETY: the kept region is under the lock, and another, or `region` would have been in use.
        let Some(kept) = (unsafe { self.kept.as_mut() }) else {
            self.kept = region;
            return None;
        };
        if kept.chunks <= region.chunks {
            return Some(region);
        }
        self.kept = region;
        Some(kept)
    }

    /// Takes an unused region and its chunks out of all lists.
    fn remove(&mut self, region: &mut Region) {
        for number in 0..region.touched {
            // All touched chunks are in a list: they have unused pages only.
            let chunk: *mut Chunk = headers(region.first.as_ptr().wrapping_add(number * CHUNK)).cast();
            self.unlink(chunk);
            // SAFETY: the chunk is under the lock.
            region.vacant += unsafe { (*chunk).vacant.count_ones() as usize };
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
    Some(Box::into_raw(Box::new(Region {
        first: map(chunks * CHUNK, CHUNK)?,
        chunks,
        touched: 0,
        accounts: [None; MOST_CHUNKS],
        used: 0,
        vacant: 0,
        next: ptr::null_mut(),
    })))
}

unsafe fn drop_region(address: *mut u8, _: usize) {
    let region = address.cast::<Region>();
    let mut arena = lock();
    if arena.stocking {
        // SAFETY: `give` retires what `make_region` has boxed, once.
        unsafe { (*region).next = arena.dead };
        arena.dead = region;
        WORK.notify_one();
    } else {
        drop(arena);
        // SAFETY: as above.
        unsafe { give_back(region) };
    }
}

/// Gives a region back to the system, and its accounts to the source.
///
/// # Safety
/// The region came from `make_region`, and the caller alone has it.
unsafe fn give_back(region: *mut Region) {
    // SAFETY: the caller's promise.
    unsafe {
        let region = Box::from_raw(region);
        unmap(region.first.as_ptr(), region.chunks * CHUNK);
        for account in region.accounts.into_iter().flatten() {
            source::give(account, CHUNK);
        }
        account::restore(region.vacant * PAGE);
    }
}

/// Gives the memory of a region's chunks back to the system, one after the other. Page faults wait while the system unmaps
/// memory, so it must not unmap much at once.
///
/// # Safety
/// As for [`give_back`].
unsafe fn empty(region: &Region) {
    for number in 0..region.touched {
        // SAFETY: the chunk is the caller's, and nobody needs its contents.
        if unsafe { system::give_back(region.first.as_ptr().add(number * CHUNK), CHUNK) } {
            nap();
        }
    }
}

/// Has a chunk made of huge pages, if the system has them, and touches it.
///
/// # Safety
/// The caller alone has the 2 MiB at `address`.
unsafe fn touch(address: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { system::make_huge(address, CHUNK) };
    for offset in (0..CHUNK).step_by(system::page()) {
        // SAFETY: within the caller's range. Volatile, as nobody reads what is written.
        unsafe { address.add(offset).write_volatile(0) };
    }
}

/// Writes the headers of an unused chunk.
///
/// # Safety
/// The caller alone has the 2 MiB at `address`.
unsafe fn make_chunk(address: *mut u8, region: *mut Region) -> *mut Chunk {
    let chunk = headers(address).cast::<Chunk>();
    // SAFETY: the headers lie in the chunk's first page, which is for nothing else.
    unsafe {
        chunk.cast::<u8>().write_bytes(0, HEADERS);
        chunk.write(Chunk {
            region,
            // Page 0 is the headers'.
            unused: u32::MAX - 1,
            vacant: 0,
            list: List::None,
            previous: ptr::null_mut(),
            next: ptr::null_mut(),
        });
    }
    chunk
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::class;
    use super::*;
    use std::time::{Duration, Instant};

    /// As many pages as make the arena take this many chunks, or more.
    fn chunks(number: usize) -> Vec<&'static Page> {
        let pages = number * (PAGES - 1);
        (0..pages).map(|_| take(class::of(64)).expect("memory")).collect()
    }

    fn wait_for_stock() {
        let begun = Instant::now();
        loop {
            let arena = lock();
            if arena.stocked >= arena.goal() {
                return;
            }
            drop(arena);
            assert!(begun.elapsed() < Duration::from_secs(60), "the stock stays low");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_stock_is_filled_up_again_as_soon_as_something_is_taken() {
        let mut pages = chunks(STOCK_FROM + 1);
        for _ in 0..4 {
            wait_for_stock();
            pages.append(&mut chunks(1));
        }
        wait_for_stock();
        let guard = crate::epoch::pin();
        pages.into_iter().for_each(|page| give(page, &guard));
    }
}
