//! Stored objects. A block is an array of words in slab memory that begins with its outermost tuple. Blocks never change, except those of
//! `in_place.rs`.

use crate::builder::{Builder, Room};
use crate::format::*;
use crate::host::host;
use cats_sync::epoch::{self, Guard};
use cats_sync::facade::{AtomicU64, Ordering};
use cats_sync::slab::{self, account};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// A block that belongs to its holder. Dropping it frees its memory, and gives the VM back what the block holds.
pub struct Block {
    address: NonNull<u64>,
}

// SAFETY: a block is immutable except for atomics, and the host's functions run on any thread.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// The [shape](BlockRef::shape) of a block.
pub struct Shape {
    /// For each word of the block, what it has in common with the other words at its place: these bits, under this mask.
    words: Box<[(u64, u64)]>,
}

impl Shape {
    /// Whether the block has this shape. O(words), without a look at what the words mean: where the words of one item agree, the next item
    /// begins at the same place.
    #[inline]
    pub fn is_of(&self, block: BlockRef<'_>) -> bool {
        let words = block.as_words();
        // Without a branch for each word.
        let differing = |differing, (word, (bits, mask)): (&u64, &(u64, u64))| differing | (word ^ bits) & mask;
        words.len() == self.words.len() && words.iter().zip(&self.words).fold(0, differing) == 0
    }
}

/// A term that occupies a few words after its tuple's element words. It contains no offset to another item.
#[derive(Clone, Copy)]
pub enum Short<'a> {
    Float(f64),
    /// Bytes that are stored within the block.
    Binary(&'a [u8]),
    /// A plain reference, an alias, or a fun of immediates: its words in the VM, including the header.
    Same(&'a [u64]),
    /// A binary to which the block gets a counted reference of its own.
    Counted(CountedBinary<'a>),
    /// A fun to which the block gets a counted reference of its own.
    Fun(CountedFun<'a>),
    /// A tuple of immediates.
    Tuple(&'a [u64]),
}

/// A fun of the VM whose references we count in its record.
#[derive(Clone, Copy)]
pub struct CountedFun<'a> {
    /// The words of the item before the environment.
    pub(crate) words: [u64; COUNTED_FUN_WORDS],
    /// Immediates.
    pub(crate) env: &'a [u64],
}

impl<'a> CountedFun<'a> {
    /// A fun of immediates with this record and these words of [`Fun`].
    ///
    /// # Safety
    /// `record` is the record of a fun. Somebody has a counted reference to it for `'a`.
    #[inline]
    pub unsafe fn new(record: u64, header: u64, creator: u64, env: &'a [u64]) -> Self {
        debug_assert!(record & FUN_RECORD != 0);
        Self {
            words: [record, header, creator],
            env,
        }
    }

    /// A fun that is counted in a block.
    #[inline]
    pub(crate) fn of(fun: Fun<'a>) -> Self {
        Self {
            words: [fun.words[1], fun.words[0], fun.creator],
            env: fun.env.words(),
        }
    }

    /// The word of who has created it.
    #[inline]
    pub fn creator(&self) -> u64 {
        self.words[2]
    }

    /// Its [words](Fun::words).
    #[inline]
    pub(crate) fn fun_words(&self) -> [u64; 2] {
        [self.words[1], self.words[0]]
    }

    /// The words of its item.
    #[inline]
    pub fn item_words(&self) -> usize {
        1 + COUNTED_FUN_WORDS + self.env.len()
    }

    /// Writes its item, without counting a reference.
    ///
    /// # Safety
    /// There is memory for its [words](Self::item_words).
    #[inline(always)]
    pub unsafe fn write(&self, to: NonNull<u64>) {
        // SAFETY: as the caller promises.
        unsafe {
            to.write(header(COUNTED_FUN, self.env.len()));
            copy_words(&self.words, to.add(1));
            copy_words(self.env, to.add(1 + COUNTED_FUN_WORDS));
        }
    }
}

/// A binary of the VM whose references we count in its record.
#[derive(Clone, Copy)]
pub struct CountedBinary<'a> {
    record: u64,
    bytes: &'a [u8],
}

impl<'a> CountedBinary<'a> {
    /// # Safety
    /// `record` is the address of the record of a binary that contains `bytes`. Somebody has a counted reference to it for `'a`.
    #[inline]
    pub unsafe fn new(record: u64, bytes: &'a [u8]) -> Self {
        Self { record, bytes }
    }
}

impl Short<'_> {
    /// The number of its words, including a header.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        match self {
            Short::Float(_) => 2,
            Short::Binary(bytes) => 1 + bytes.len().div_ceil(8),
            Short::Same(words) => words.len(),
            Short::Counted(_) => 1 + COUNTED_WORDS,
            Short::Fun(fun) => fun.item_words(),
            Short::Tuple(elements) => 1 + elements.len(),
        }
    }

    /// The number of words of a block that contains only this term and its tuple of `elements` elements.
    #[inline]
    pub fn words_with(&self, elements: usize) -> usize {
        1 + elements + self.words()
    }

    /// If this is counted: the size of the whole binary that it keeps alive, or 0.
    #[inline]
    pub fn kept_bytes(&self) -> Option<usize> {
        match self {
            Short::Counted(binary) => Some((host().kept_bytes)(binary.record)),
            Short::Fun(_) => Some(0),
            _ => None,
        }
    }

    /// # Safety
    /// There is memory for [`words`](Self::words) words.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, to: NonNull<u64>) {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Short::Float(value) => {
                    to.write(header(FLOAT, 0));
                    to.add(1).write(value.to_bits());
                }
                Short::Binary(bytes) => {
                    to.write(header(BINARY, bytes.len()));
                    write_bytes(bytes, to.add(1));
                }
                // Copies of a fixed size are no loops.
                Short::Same(words) => match <&[u64; REFERENCE_WORDS]>::try_from(*words) {
                    Ok(words) => copy_words(words, to),
                    Err(_) => copy_words(words, to),
                },
                Short::Counted(binary) => {
                    to.write(header(COUNTED_BINARY, binary.bytes.len()));
                    to.add(1).write(binary.record);
                    to.add(2).write(binary.bytes.as_ptr() as u64);
                    (host().retain_counted)(binary.record);
                }
                Short::Fun(fun) => {
                    fun.write(to);
                    (host().retain_counted)(fun.words[0]);
                }
                Short::Tuple(elements) => {
                    to.write(header(TUPLE, elements.len()) | FLAT);
                    copy_words(elements, to.add(1));
                }
            }
        }
    }
}

/// Writes bytes as words. The rest of the last word is zero.
///
/// # Safety
/// There is memory for these words.
#[inline]
pub unsafe fn write_bytes(bytes: &[u8], to: NonNull<u64>) {
    let (whole, rest) = as_chunks::<8, _>(bytes);
    // SAFETY: as the caller promises.
    unsafe {
        for (i, bytes) in whole.iter().enumerate() {
            to.add(i).write(u64::from_ne_bytes(*bytes));
        }
        if !rest.is_empty() {
            to.add(whole.len()).write(padded(rest));
        }
    }
}

/// The least weight of a held binary while it waits to be freed.
const PART_WEIGHT: usize = 4 << 10;

/// The bytes of kept memory of which an eighth weighs.
const LIGHT: usize = 64 << 10;

/// What memory weighs that something keeps alive while it waits to be freed: at least one eighth, as what waits in greater numbers is freed
/// at less cost. What is above [`LIGHT`] weighs in full: it soon is more than all else that waits, and copying it costs more than freeing.
#[inline]
pub fn kept_weight(bytes: usize) -> usize {
    (bytes / 8).max(bytes.saturating_sub(LIGHT))
}

/// The weight of a block of `words` words that keeps `kept` bytes alive in counted binaries: see [`BlockRef::weight`].
#[inline]
pub fn block_weight(words: usize, kept: usize) -> usize {
    words * size_of::<u64>() + kept_weight(kept)
}

/// Bytes of memory that a block of `words` words occupies.
#[inline]
pub fn bytes_of(words: usize) -> usize {
    slab::usable(words * 8)
}

/// A block that lives for `'a`.
#[derive(Clone, Copy)]
pub struct BlockRef<'a> {
    address: NonNull<u64>,
    block: PhantomData<&'a [u64]>,
}

impl Block {
    /// A copy of `words` in memory of its own. `None` when memory is exhausted.
    ///
    /// # Safety
    /// The words are a well-formed block. What is held or counted in it is not retained yet.
    #[inline]
    pub unsafe fn from_words(words: &[u64], guard: &Guard) -> Option<Block> {
        let address = slab::alloc_pinned(guard, size_of_val(words))?.cast::<u64>();
        // SAFETY: the memory is new, aligned to 8 and large enough.
        unsafe { copy_words(words, address) };
        Some(Block { address })
    }

    /// The tuple of these immediates, made by one allocation and one copy. `None` when memory is exhausted. Panics above [`MAX_ARITY`].
    #[inline(never)]
    pub fn flat(elements: &[u64], guard: &Guard) -> Option<Block> {
        Self::flat_with(elements, &[], guard)
    }

    /// [`flat`](Self::flat), perhaps with the words of a lease behind the elements.
    #[inline(always)]
    pub(crate) fn flat_with(elements: &[u64], lease: &[u64], guard: &Guard) -> Option<Block> {
        debug_assert!(elements.iter().all(|&word| is_immediate(word)));
        assert!(elements.len() <= MAX_ARITY);
        let total = elements.len() + 1 + lease.len();
        let address = slab::alloc_pinned(guard, total * 8)?.cast::<u64>();
        // SAFETY: the memory is new, aligned to 8 and of `total` words.
        unsafe {
            address.write(header(TUPLE, elements.len()) | FLAT | (total as u64) << 32);
            address
                .add(1)
                .copy_from_nonoverlapping(NonNull::from(elements).cast(), elements.len());
            for (i, word) in lease.iter().enumerate() {
                address.add(1 + elements.len() + i).write(*word);
            }
        }
        Some(Block { address })
    }

    /// The tuple of these elements. All are immediates, except that `part` stands for the one at `index`. There is one allocation, and each
    /// word is written where it stays. `None` when memory is exhausted. Panics above [`MAX_ARITY`].
    #[inline(always)]
    pub fn of_short(elements: &[u64], index: usize, part: Short<'_>, guard: &Guard) -> Option<Block> {
        assert!(index < elements.len() && elements.len() <= MAX_ARITY);
        let at = elements.len() + 1;
        let total = part.words_with(elements.len());
        let held = match part {
            Short::Counted(binary) => {
                cats_sync::prefetch(binary.record as *const u8);
                if !account::admits(|| (host().kept_bytes)(binary.record)) {
                    return None;
                }
                HAS_HELD
            }
            Short::Fun(_) => HAS_HELD,
            _ => 0,
        };
        let address = slab::alloc_pinned(guard, total * 8)?.cast::<u64>();
        // SAFETY: the memory is new, aligned to 8 and of `total` words. That is the sum of the header, the elements and the part. The slot
        // of the part is among those of the elements.
        unsafe {
            address.write(header(TUPLE, elements.len()) | held | (total as u64) << 32);
            copy_words(elements, address.add(1));
            address.add(1 + index).write((at as u64) << 2 | TAG_ITEM);
            part.write(address.add(at));
        }
        Some(Block { address })
    }

    /// A new block, before what is held or counted in it is retained. So it is not dropped: if the host panics, it is leaked, as it would
    /// give back what was never retained. `None` if memory has no room for what it keeps.
    pub(crate) fn unretained(self) -> Option<ManuallyDrop<Self>> {
        let block = ManuallyDrop::new(self);
        let view = block.as_ref();
        if view.has_held() && !account::admits(|| view.kept_bytes()) {
            // SAFETY: nobody else knows the block, and nothing in it is retained.
            unsafe { Self::free_words(block.address.as_ptr().cast(), view.words()) };
            return None;
        }
        Some(block)
    }

    /// Makes the host retain the held terms of a new block, which until now belong to somebody else, and counts its references to binaries.
    pub(crate) fn retain_held(&self) {
        let host = host();
        let base = self.address.as_ptr();
        let retain_held = |term: TermRef<'_>| match term.view() {
            View::SharedBinary(Shared::HeldTerm(held), bytes) => {
                let kept = (host.retain)(held, Class::BitString, Some(bytes));
                let address = (term.word() >> 2) as usize + 1 + HELD_WORDS;
                // SAFETY: in a shared binary the address follows the held words. The block is new, so nobody else knows it or reads this
                // word.
                unsafe { base.add(address).write(kept as u64) };
            }
            _ => retain_held(term),
        };
        self.as_ref()
            .for_each_kept(|record| (host.retain_counted)(record), retain_held);
    }

    /// Gives back what is held or counted in a block that nobody reads any more.
    #[inline(never)]
    fn release_held(&self) {
        self.as_ref().for_each_kept(release_counted, release_held);
    }

    /// A reference through which the block is read.
    #[inline]
    pub fn as_ref(&self) -> BlockRef<'_> {
        BlockRef {
            address: self.address,
            block: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn address(&self) -> NonNull<u64> {
        self.address
    }

    /// Gives up ownership of the block. Whoever has the address owns it now. The address is a multiple of 8.
    #[inline]
    pub fn into_raw(self) -> NonNull<u64> {
        let address = self.address;
        std::mem::forget(self);
        address
    }

    /// Takes ownership of a block again.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and this is called once for it.
    #[inline]
    pub unsafe fn from_raw(address: NonNull<u64>) -> Block {
        Block { address }
    }

    /// Frees the block as soon as no reader can see it.
    ///
    /// # Safety
    /// No guard made from now on can reach the block.
    #[inline]
    pub unsafe fn retire(self, guard: &Guard) {
        let block = self.as_ref();
        let words = block.words();
        // SAFETY: as the caller promises.
        unsafe {
            match block.has_held() {
                true => {
                    let weight = block.weight();
                    self.retire_held(guard, words, weight);
                }
                false => self.retire_words(guard, words),
            }
        }
    }

    /// Like [`retire`](Self::retire), for a block of `words` words in which nothing is held or counted. Does not read the block.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire), and the block is such a block.
    #[inline]
    pub unsafe fn retire_words(self, guard: &Guard, words: usize) {
        // SAFETY: as the caller promises. The slab handed the block out with this size.
        unsafe { guard.retire_memory(self.into_raw().cast(), words * 8) }
    }

    /// Like [`retire`](Self::retire), for a block of `words` words and this [weight](BlockRef::weight) in which something is held or
    /// counted. Does not read the block.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire), and the block is such a block.
    #[inline]
    pub unsafe fn retire_held(self, guard: &Guard, words: usize, weight: usize) {
        // SAFETY: as the caller promises. The slab handed the block out with this size.
        unsafe { guard.retire_releasing(self.into_raw().cast(), words * 8, Block::release_at, weight) }
    }

    /// Gives back what is held or counted in the block at this address. Has the type `cats_sync::epoch::Release`.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and nobody reads the block any more. This is called once.
    unsafe fn release_at(address: *mut u8) {
        // SAFETY: as the caller promises. Addresses of blocks are never null. `ManuallyDrop`, as the caller frees the memory.
        let block = ManuallyDrop::new(unsafe { Block::from_raw(NonNull::new_unchecked(address.cast())) });
        block.release_held();
    }

    /// Frees a block of `words` words in which nothing is held or counted. Does not read the block.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw). The block is such a block, and nobody reads it any more.
    #[inline]
    pub unsafe fn free_words(address: *mut u8, words: usize) {
        // SAFETY: as the caller promises. Addresses of blocks are never null.
        unsafe { slab::free(NonNull::new_unchecked(address), words * 8) }
    }

    /// Frees a block of `words` words in which something is held or counted.
    ///
    /// # Safety
    /// As for [`free_words`](Self::free_words), except that the block is such a block.
    pub unsafe fn free_held(address: *mut u8, words: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            Self::release_at(address);
            Self::free_words(address, words);
        }
    }

    /// Frees the block at this address. Has the type `cats_sync::epoch::Drop`.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and nobody reads the block any more.
    pub unsafe fn free(address: *mut u8, _: usize) {
        // SAFETY: as the caller promises. Addresses of blocks are never null.
        drop(unsafe { Block::from_raw(NonNull::new_unchecked(address.cast())) });
    }
}

fn release_counted(record: u64) {
    (host().release_counted)(record);
}

/// Makes the host retain a held term of a new block. The term is no binary.
pub(crate) fn retain_held(term: TermRef<'_>) {
    match term.view() {
        View::HeldTerm(class, held) => (host().retain)(held, class, None),
        _ => unreachable!("an item that is held"),
    };
}

fn release_held(term: TermRef<'_>) {
    match term.view() {
        View::SharedBinary(Shared::HeldTerm(held), _) | View::HeldTerm(_, held) => (host().release)(held),
        _ => unreachable!("an item that is held"),
    }
}

/// A block that is dismantled in steps, because many terms in it are held or counted. Nobody reads it any more.
pub struct Dismantled {
    block: ManuallyDrop<Block>,
    /// The word where the next item begins.
    at: usize,
}

impl Dismantled {
    pub fn new(block: Block) -> Self {
        let at = 1 + block.as_ref().arity();
        let block = ManuallyDrop::new(block);
        Self { block, at }
    }

    /// Gives back what is held or counted in the next `items` items. After the last item it frees the memory and returns `None`.
    pub fn step(mut self, items: usize) -> Option<Self> {
        let block = self.block.as_ref();
        for _ in 0..items {
            if self.at >= block.words() {
                let size = block.words() * size_of::<u64>();
                // SAFETY: the block was allocated with this size, and this was its last holder.
                unsafe { slab::free(self.block.address.cast(), size) };
                return None;
            }
            // SAFETY: items follow one another up to the block's end.
            self.at += unsafe { block.show_kept(self.at, &mut release_counted, &mut release_held) };
        }
        Some(self)
    }
}

/// The header of a block that consists of a tuple of `arity` immediates.
#[inline]
fn flat_header(arity: usize) -> u64 {
    header(TUPLE, arity) | FLAT | ((arity + 1) as u64) << 32
}

/// Up to this number of words, an object is built on the stack. Then memory is allocated only once, for the block.
const SHORT: usize = 128;

/// The number of bytes of scratch memory that a thread keeps.
const KEPT: usize = 1 << 16;

/// Up to this number, words are copied one by one.
const ONE_BY_ONE: usize = 32;

/// Copies words that were probably written just before. Each word is copied by itself: a wider load of recent stores causes a
/// store-forwarding stall.
///
/// # Safety
/// There is memory for as many words at `to`, and it does not overlap them.
#[inline]
pub(crate) unsafe fn copy_words(words: &[u64], to: NonNull<u64>) {
    // SAFETY: as the caller promises.
    unsafe {
        if words.len() > ONE_BY_ONE {
            return to.copy_from_nonoverlapping(NonNull::from(words).cast(), words.len());
        }
        for (i, word) in words.iter().enumerate() {
            // Volatile: the compiler does not merge these loads into wider ones.
            to.add(i).write((&raw const *word).read_volatile());
        }
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let block = self.as_ref();
        if block.has_held() {
            self.release_held();
        }
        let size = block.words() * 8;
        // SAFETY: the block was allocated with this size, and this was its last holder.
        unsafe { slab::free(self.address.cast(), size) }
    }
}

impl<'a> BlockRef<'a> {
    /// The block at an address.
    ///
    /// # Safety
    /// The address came from [`Block::into_raw`], and the block lives for `'a`.
    #[inline]
    pub unsafe fn from_raw(address: NonNull<u64>) -> BlockRef<'a> {
        BlockRef {
            address,
            block: PhantomData,
        }
    }

    /// The tuple of these immediates, written to `room`. `None` if that is too small.
    #[inline]
    pub fn flat_within(elements: &[u64], room: &'a mut [MaybeUninit<u64>]) -> Option<BlockRef<'a>> {
        debug_assert!(elements.iter().all(|&word| is_immediate(word)));
        let total = elements.len() + 1;
        let room = room.get_mut(..total)?;
        let words = std::iter::once(flat_header(elements.len())).chain(elements.iter().copied());
        for (place, word) in room.iter_mut().zip(words) {
            place.write(word);
        }
        Some(BlockRef {
            address: NonNull::from(room).cast(),
            block: PhantomData,
        })
    }

    /// The block that a tuple begins which was encoded to be used in place. It does not tell its number of words. `None` for any other term.
    #[inline]
    pub fn in_place(term: TermRef<'a>) -> Option<BlockRef<'a>> {
        let elements = term.as_tuple().filter(|_| term.word() == TAG_ITEM)?;
        // SAFETY: the header stands before the elements, and is the first word that the tuple's words count from.
        let address = unsafe { NonNull::from(elements.words()).cast::<u64>().sub(1) };
        let block = PhantomData;
        Some(BlockRef { address, block })
    }

    #[inline]
    pub fn address(self) -> NonNull<u64> {
        self.address
    }

    /// Prefetches the block's beginning.
    #[inline]
    pub fn prefetch(self) {
        cats_sync::prefetch(self.address.as_ptr());
    }

    /// Prefetches the memory of element `index`, if there is one.
    #[inline]
    pub fn prefetch_element(self, index: usize) {
        cats_sync::prefetch(self.address.as_ptr().wrapping_add(1 + index));
    }

    #[inline]
    fn header(self) -> u64 {
        // SAFETY: a block has a header.
        unsafe { self.address.read() }
    }

    /// Number of words.
    #[inline]
    pub fn words(self) -> usize {
        (self.header() >> 32) as usize
    }

    /// All words. [`Block::from_words`] copies them if nothing in them is held or counted.
    #[inline]
    pub fn as_words(self) -> &'a [u64] {
        // SAFETY: the header stores the number of words. Only the words of held items ever change, and those change atomically. A copy of
        // them would be no well-formed block, so no caller uses what it reads there.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words()) }
    }

    /// The block's shape: all headers, and the element words of tuples, lists and maps. Of small integers, local pids and local ports only
    /// the class belongs to it, and nothing of the values of floats, large integers, binaries and held terms.
    ///
    /// In two blocks of the same shape the same words stand for items, and the same atoms stand at the same places.
    pub fn shape(self) -> Shape {
        let words = self.as_words();
        let mut shape = vec![(0, 0); words.len()];
        let mut at = 0;
        while at < words.len() {
            let header = words[at];
            shape[at] = (header, !0);
            for slot in at + 1..at + 1 + slots(header) {
                shape[slot] = match varies(words[slot]) {
                    true => (words[slot] & CLASS_MASK, CLASS_MASK),
                    false => (words[slot], !0),
                };
            }
            at += item_words(header);
        }
        Shape { words: shape.into() }
    }

    /// The place of an item's elements in the block: the word at which the first of them stands.
    pub fn place_of(self, elements: Elements<'_>) -> usize {
        let place = (elements.words().as_ptr().addr() - self.address.addr().get()) / size_of::<u64>();
        debug_assert!(place + elements.len() <= self.words());
        place
    }

    /// Bytes of memory that the block occupies.
    #[inline]
    pub fn bytes(self) -> usize {
        bytes_of(self.words())
    }

    /// What the block weighs while it waits to be freed: its own bytes, and those that its shared binaries keep alive, by [`kept_weight`].
    /// The size of a binary that a held term keeps alive is not known, so such a term adds at least `PART_WEIGHT`.
    #[inline(never)]
    pub fn weight(self) -> usize {
        let weight = Cell::new(block_weight(self.words(), 0));
        let add = |more: usize| weight.set(weight.get() + more);
        self.for_each_kept(
            |record| add(block_weight(0, (host().kept_bytes)(record))),
            |term| {
                if let View::SharedBinary(_, bytes) = term.view() {
                    add(kept_weight(bytes.len()).max(PART_WEIGHT));
                }
            },
        );
        weight.get()
    }

    /// The bytes of what the block keeps alive: shared binaries and held terms. The same binary may be kept by others, too.
    pub fn kept_bytes(self) -> usize {
        let kept = Cell::new(0);
        let add = |more: usize| kept.set(kept.get() + more);
        self.for_each_kept(
            |record| add((host().kept_bytes)(record)),
            |term| match term.view() {
                View::SharedBinary(_, bytes) => add(bytes.len()),
                View::HeldTerm(_, held) => add((host().held_bytes)(held)),
                _ => (),
            },
        );
        kept.get()
    }

    /// The tuple's arity.
    #[inline]
    pub fn arity(self) -> usize {
        tuple_arity(self.header())
    }

    /// Whether all elements are immediates.
    #[inline]
    pub fn is_flat(self) -> bool {
        self.header() & FLAT != 0
    }

    /// Whether the block has held terms or counted binaries.
    #[inline]
    pub fn has_held(self) -> bool {
        self.header() & HAS_HELD != 0
    }

    /// Whether some elements are packed.
    #[inline]
    pub fn has_packed(self) -> bool {
        self.header() & HAS_PACKED != 0
    }

    /// The number of words of the block that [`unpacked_within`](Self::unpacked_within) makes. O(items) if some elements are packed.
    #[inline]
    pub fn unpacked_words(self) -> usize {
        match self.has_packed() {
            true => self.words_if_unpacked(),
            false => self.words(),
        }
    }

    #[inline(never)]
    fn words_if_unpacked(self) -> usize {
        let (mut words, mut at) = (self.words(), 1 + self.arity());
        while at < self.words() {
            // SAFETY: an item of the block, which lives for `'a`.
            let item = unsafe { TermRef::new(self.address.as_ptr(), (at as u64) << 2 | TAG_ITEM) };
            let packed = item_words(item.header());
            words += item.packed_words().map_or(0, |words| words - packed);
            at += packed;
        }
        words
    }

    /// A copy in `memory` in which no element is packed. What is held or counted in it lives as long as in this block. Panics if the memory
    /// has fewer words than [`unpacked_words`](Self::unpacked_words). Not inlined, as in most tables nothing is packed.
    #[inline(never)]
    pub fn unpacked_within(self, memory: &mut [MaybeUninit<u64>]) -> BlockRef<'_> {
        let mut builder = Builder::over(memory);
        let root = builder.filled_tuple(self.elements_raw());
        for (index, element) in self.elements().iter().enumerate() {
            if !element.is_immediate() {
                let word = builder.unpack(element);
                builder.set(root, index, word);
            }
        }
        builder.in_place()
    }

    /// A copy in which elements are packed where that makes them smaller, except the one at `key`. `None` if there is no such element.
    pub fn packed(self, key: usize) -> Option<Block> {
        thread_local! {
            static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let is_worth = |(index, element): (usize, TermRef<'_>)| index != key && element.is_worth_packing();
        if self.is_flat() || !self.elements().iter().enumerate().any(is_worth) {
            return None;
        }
        let mut room = Room::<SHORT>::new();
        let mut builder = Builder::within(&mut room);
        let root = builder.filled_tuple(self.elements_raw());
        let mut any = false;
        BYTES.with_borrow_mut(|bytes| {
            for (index, element) in self.elements().iter().enumerate() {
                if element.is_immediate() {
                    continue;
                }
                let (word, packed) = match index == key {
                    true => (builder.copy(element), false),
                    false => builder.pack(element, bytes),
                };
                builder.set(root, index, word);
                any |= packed;
            }
            bytes.clear();
            bytes.shrink_to(KEPT);
        });
        match any {
            true => builder.finish(),
            false => None,
        }
    }

    /// The element words. In a flat block these are the VM's own words of the terms.
    #[inline]
    pub fn elements_raw(self) -> &'a [u64] {
        // SAFETY: the elements follow the header.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().add(1), self.arity()) }
    }

    #[inline]
    pub fn elements(self) -> Elements<'a> {
        Elements::new(self.address, self.elements_raw())
    }

    /// Element `index`, counted from 0. Panics if there is none.
    #[inline]
    pub fn element(self, index: usize) -> TermRef<'a> {
        assert!(index < self.arity());
        // SAFETY: the elements follow the header. They may be shared as atomics.
        let word = unsafe { self.address.add(1 + index).cast::<AtomicU64>().as_ref() };
        // Acquire: in a block that is changed in place, see [`SeqCount::settled`](cats_sync::seqlock::SeqCount::settled).
        let word = word.load(Ordering::Acquire);
        // SAFETY: the word belongs to this block, which lives for `'a`.
        unsafe { TermRef::new(self.address.as_ptr(), word) }
    }

    /// The tuple itself.
    #[inline]
    pub fn term(self) -> TermRef<'a> {
        // SAFETY: the outermost item is at the start of the block, which lives for `'a`.
        unsafe { TermRef::new(self.address.as_ptr(), TAG_ITEM) }
    }

    /// Calls `counted` with the record of each counted binary or fun, and `held` with each held item. O(items).
    #[inline]
    fn for_each_kept(self, mut counted: impl FnMut(u64), mut held: impl FnMut(TermRef<'a>)) {
        if !self.has_held() {
            return;
        }
        // The items after the outermost tuple.
        let (mut at, end) = (1 + self.arity(), self.words());
        while at < end {
            // SAFETY: items follow one another up to the block's end.
            at += unsafe { self.show_kept(at, &mut counted, &mut held) };
        }
    }

    /// Does what [`for_each_kept`](Self::for_each_kept) does, for one item. Returns the number of its words.
    ///
    /// # Safety
    /// An item other than the outermost tuple begins at word `at`.
    #[inline(always)]
    unsafe fn show_kept(self, at: usize, counted: &mut impl FnMut(u64), held: &mut impl FnMut(TermRef<'a>)) -> usize {
        let base = self.address.as_ptr();
        // SAFETY: the caller's promise.
        let header = unsafe { base.add(at).read() };
        if is_counted(header) {
            // SAFETY: the item's first data word is the record's address.
            counted(unsafe { base.add(at + 1).read() });
            return item_words(header);
        }
        if is_held(header) {
            // SAFETY: an item of the block, which lives for `'a`.
            held(unsafe { TermRef::new(base, (at as u64) << 2 | TAG_ITEM) });
        }
        item_words(header)
    }

    /// Counts the references to binaries and funs in a copy of a block in which no term is held.
    pub(crate) fn retain_counted(self) {
        self.for_each_kept(host().retain_counted, |_| unreachable!("no term is held"));
    }

    /// Whether the block has held terms. O(items).
    pub fn has_held_terms(self) -> bool {
        let mut held = false;
        self.for_each_kept(|_| (), |_| held = true);
        held
    }

    /// A copy. `None` if a term in the block is held, or when memory is exhausted.
    #[inline]
    fn copied(self, guard: &Guard) -> Option<Block> {
        if self.has_held() {
            return self.copied_counting(guard);
        }
        // SAFETY: a block in which nothing is held or counted.
        unsafe { Block::from_words(self.as_words(), guard) }
    }

    /// [`copied`](Self::copied) for a block in which something is held or counted.
    #[inline(never)]
    fn copied_counting(self, guard: &Guard) -> Option<Block> {
        if self.has_held_terms() {
            return None;
        }
        // SAFETY: a block. The references in it are counted below.
        let block = unsafe { Block::from_words(self.as_words(), guard) }?;
        block.retain_held();
        Some(block)
    }

    /// A copy whose element words `change` has changed. `None` if `change` returns `None`, if a term in the block is held, or when memory
    /// is exhausted.
    ///
    /// # Safety
    /// `change` replaces only immediates, and only by immediates.
    #[inline]
    pub unsafe fn changed<R>(self, guard: &Guard, change: impl FnOnce(&mut [u64]) -> Option<R>) -> Option<(Block, R)> {
        let block = self.copied(guard)?;
        // SAFETY: the elements follow the header of the new block. Nobody else knows that block yet.
        let elements = unsafe { std::slice::from_raw_parts_mut(block.address.as_ptr().add(1), self.arity()) };
        let result = change(elements)?;
        Some((block, result))
    }

    /// The same tuple with other elements at some places. Places are counted from 0. The last change of a place counts. `None` when memory
    /// is exhausted.
    ///
    /// The terms of the changes must live during the call. O(words). It is a plain copy if immediates are changed into immediates and no
    /// term in the block is held.
    #[inline]
    pub fn with_elements<'t>(self, changes: impl Iterator<Item = (usize, TermRef<'t>)> + Clone) -> Option<Block> {
        let elements = self.elements_raw();
        let simple = |(index, term): (usize, TermRef<'_>)| term.is_immediate() && is_immediate(elements[index]);
        let change = |elements: &mut [u64]| {
            changes.clone().for_each(|(index, term)| elements[index] = term.word());
            Some(())
        };
        if changes.clone().all(simple) {
            // SAFETY: only immediates are changed, and only into immediates, as the test above found.
            if let Some((block, ())) = unsafe { self.changed(&epoch::pin(), change) } {
                return Some(block);
            }
        }
        self.built_with_elements(changes)
    }

    /// [`with_elements`](Self::with_elements) for terms of any kind.
    #[inline(never)]
    fn built_with_elements<'t>(self, changes: impl Iterator<Item = (usize, TermRef<'t>)> + Clone) -> Option<Block> {
        let mut room = Room::<SHORT>::new();
        let mut builder = Builder::within(&mut room);
        self.build_with_elements(&mut builder, changes);
        builder.finish()
    }

    /// Builds the same tuple with other elements at some places: see [`with_elements`](Self::with_elements).
    #[inline]
    pub(crate) fn build_with_elements<'t>(
        self,
        builder: &mut Builder<'_>,
        changes: impl Iterator<Item = (usize, TermRef<'t>)> + Clone,
    ) {
        let root = builder.filled_tuple(self.elements_raw());
        // In the meantime, a slot that is to be changed has the number of its last change.
        let number = |i: usize| (i as u64) << 4 | SMALL;
        for (i, (index, _)) in changes.clone().enumerate() {
            builder.set(root, index, number(i));
        }
        for index in 0..self.arity() {
            let word = builder.slot(root, index);
            if !is_immediate(word) {
                let word = builder.copy(self.element(index));
                builder.set(root, index, word);
            }
        }
        for (i, (index, term)) in changes.enumerate() {
            if builder.slot(root, index) == number(i) {
                let word = builder.copy(term);
                builder.set(root, index, word);
            }
        }
    }
}
