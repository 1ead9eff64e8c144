//! Blocks that are changed in place while others read them. Such a change replaces immediates by immediates. In some blocks it also
//! replaces items by items of the same number of words.
//!
//! After the block's words stands a [`SeqCount`]. With it, readers get a copy that is one state. Its mark tells whether items are replaced.
//! The key never changes. In a block without the mark, no element that is not an immediate changes. What never changes is read in place.

use crate::block::{copy_words, Block, BlockRef, Short};
use crate::builder::{Builder, Room};
use crate::format::{
    as_chunks, header, is_immediate, padded, plain_header, tuple_arity, TermRef, BINARY, FLAT, FLOAT, TAG_ITEM,
    TAG_MASK, TUPLE,
};
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicU64, Ordering};
use cats_sync::seqlock::SeqCount;
use cats_sync::slab;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The number of words of the largest block that is changed in place. Copying it takes less than a microsecond.
pub const CHANGING_LIMIT: usize = 1022;

/// The number of words of the largest block in which items are replaced in place. A copy of it takes a few nanoseconds.
const ITEMS_LIMIT: usize = 64;

/// The number of words that [`Scratch`] has room for.
pub const SCRATCH_WORDS: usize = 128;

/// Room on the stack for a copy of most blocks that are changed in place or unpacked.
pub struct Scratch(pub [MaybeUninit<u64>; SCRATCH_WORDS]);

impl Scratch {
    #[inline(always)]
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; SCRATCH_WORDS])
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// A block that is changed in place, and lives for `'a`.
#[derive(Clone, Copy)]
pub struct ChangingRef<'a> {
    address: NonNull<u64>,
    words: usize,
    block: PhantomData<&'a AtomicU64>,
}

impl<'a> ChangingRef<'a> {
    /// Copies a block of at most [`CHANGING_LIMIT`] words into a block that can be changed in place. `change` changes the copy's element
    /// words. The memory has one word more, for the count. `None` if `change` returns `None`, or when memory is exhausted.
    ///
    /// # Safety
    /// No term in the block is held. Nobody changes the block during this call. `change` replaces only immediates, and only by immediates.
    /// Whoever gets the result frees it with this number of words.
    #[inline]
    pub unsafe fn changed<R>(
        block: BlockRef<'_>,
        guard: &'a Guard,
        change: impl FnOnce(&mut [u64]) -> Option<R>,
    ) -> Option<(Self, R)> {
        let words = block.as_words();
        if words.len() > ITEMS_LIMIT || block.has_held() {
            // SAFETY: as the caller promises.
            return unsafe { Self::changed_copy(block, guard, change) };
        }
        let mut changed = [0; ITEMS_LIMIT];
        let changed = &mut changed[..words.len()];
        changed.copy_from_slice(words);
        let result = change(&mut changed[1..1 + block.arity()])?;
        // SAFETY: as the caller promises.
        Some((unsafe { Self::new(changed, false, guard) }?, result))
    }

    /// [`changed`](Self::changed) for a block that is large, or in which something is counted.
    ///
    /// # Safety
    /// As for [`changed`](Self::changed).
    #[inline(never)]
    unsafe fn changed_copy<R>(
        block: BlockRef<'_>,
        guard: &'a Guard,
        change: impl FnOnce(&mut [u64]) -> Option<R>,
    ) -> Option<(Self, R)> {
        // SAFETY: as the caller promises.
        let copy = unsafe { Self::new(block.as_words(), false, guard) }?;
        // SAFETY: the elements follow the header of the new block. Nobody else knows that block yet.
        let elements = unsafe { std::slice::from_raw_parts_mut(copy.address.add(1).as_ptr(), block.arity()) };
        let Some(result) = change(elements) else {
            // SAFETY: the memory has one word more, and nothing in it is counted yet.
            unsafe { Block::free_words(copy.address.cast().as_ptr(), block.words() + 1) };
            return None;
        };
        copy.in_place().retain_counted();
        Some((copy, result))
    }

    /// A block of these words that can be changed in place. `items` says whether items may be replaced. `None` when memory is exhausted.
    ///
    /// # Safety
    /// The words are a block of at most [`CHANGING_LIMIT`] words. No term in it is held, and what is counted in it is retained next. Whoever
    /// gets the result frees it with one word more.
    #[inline]
    pub(crate) unsafe fn new(words: &[u64], items: bool, guard: &'a Guard) -> Option<Self> {
        debug_assert!(words.len() <= CHANGING_LIMIT);
        let address = slab::alloc_pinned(guard, (words.len() + 1) * 8)?.cast::<u64>();
        // SAFETY: the memory is new, aligned to 8 and large enough.
        unsafe {
            copy_words(words, address);
            let count = address.add(words.len()).cast::<SeqCount>();
            count.write(SeqCount::marked(items));
            Some(Self::from_raw(address, words.len()))
        }
    }

    /// The block at an address. `words` is the number of its words without the count. The caller has that number from elsewhere. So the
    /// count's place is known without waiting for the block's header.
    ///
    /// # Safety
    /// The address is that of a block that came from [`changed`](Self::changed) and lives for `'a`.
    #[inline]
    pub unsafe fn from_raw(address: NonNull<u64>, words: usize) -> Self {
        // SAFETY: a block has a header, which does not change.
        debug_assert_eq!(words, unsafe { BlockRef::from_raw(address) }.words());
        Self {
            address,
            words,
            block: PhantomData,
        }
    }

    #[inline]
    pub fn address(self) -> NonNull<u64> {
        self.address
    }

    /// The number of its words, without the count.
    #[inline]
    pub fn words(self) -> usize {
        self.words
    }

    /// The words of the elements.
    #[inline]
    fn elements(self) -> &'a [AtomicU64] {
        // SAFETY: the elements follow the header. They may be shared as atomics: plain reads of them happen only where writers are
        // excluded.
        unsafe {
            let arity = tuple_arity(self.address.read());
            std::slice::from_raw_parts(self.address.add(1).cast().as_ptr(), arity)
        }
    }

    #[inline]
    fn count(self) -> &'a SeqCount {
        // SAFETY: the count stands after the block's words.
        unsafe { self.address.add(self.words()).cast().as_ref() }
    }

    /// Changes element `index`, counted from 0, in place. Returns its new word. Does nothing, and returns `None`, in three cases: there is
    /// no such element, `change` returns `None`, or a reader has requested rest.
    ///
    /// # Safety
    /// Nobody else changes the block during this call. The element is not the key. `change` returns immediates, and returns `None` for
    /// anything that is not an immediate.
    #[inline(always)]
    pub unsafe fn change(self, index: usize, change: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
        let slot = self.elements().get(index)?;
        // Relaxed: the caller excludes other writers, and has synchronized with the last one.
        let new = change(slot.load(Ordering::Relaxed))?;
        self.count().change(slot, new).then_some(new)
    }

    /// Changes several elements in place. Readers see all changes or none. For each index, `change` gets its number among them and the old
    /// word. The new word is stored in `words`. An index may occur twice. Does nothing, and returns false, in these cases: there is no such
    /// element, `change` returns `None`, there are fewer words than indices, or a reader has requested rest. Takes time quadratic in the
    /// number of indices if one occurs twice.
    ///
    /// # Safety
    /// Nobody else changes the block during this call. None of the elements is the key. `change` returns immediates, and returns `None` for
    /// anything that is not an immediate.
    #[inline(always)]
    pub unsafe fn change_each(
        self,
        indices: impl Iterator<Item = usize> + Clone,
        words: &mut [u64],
        change: impl Fn(usize, u64) -> Option<u64>,
    ) -> bool {
        let elements = self.elements();
        // One bit for each element that was met.
        let mut met = 0u64;
        for (i, index) in indices.clone().enumerate() {
            let (Some(slot), true) = (elements.get(index), i < words.len()) else {
                return false;
            };
            let bit = 1 << (index % CHANGING_LIMIT);
            // Relaxed: as in `change`.
            let old = match met & bit {
                0 => slot.load(Ordering::Relaxed),
                _ => latest(indices.clone(), index, &words[..i]),
            };
            met |= bit;
            let Some(new) = change(i, old) else {
                return false;
            };
            words[i] = new;
        }
        self.count().change_all(|| {
            for (index, word) in indices.zip(&*words) {
                // Relaxed: the count orders it.
                elements[index].store(*word, Ordering::Relaxed);
            }
        })
    }

    /// Sets elements in place. Readers see all changes or none. The last change of an element counts. Does nothing, and returns false, in
    /// these cases: a change is of the element `fixed`, there is no such element, a new one does not fit, or a reader has requested rest. An
    /// immediate fits in place of an immediate. In a block where items are replaced, an item that refers to no other fits in place of such an
    /// item of as many words.
    ///
    /// # Safety
    /// Nobody else changes the block during this call. The element `fixed` is the key. A change gives the same new element each time.
    #[inline(always)]
    pub unsafe fn set_all<'n>(self, fixed: usize, changes: &[impl Into<NewElement<'n>> + Copy]) -> bool {
        let elements = self.elements();
        for change in changes {
            let NewElement { index, new } = (*change).into();
            let (Some(slot), true) = (elements.get(index), index != fixed) else {
                return false;
            };
            // Relaxed: as in `change`.
            let old = slot.load(Ordering::Relaxed);
            let fits = match new {
                New::Immediate(_) => is_immediate(old),
                _ => !is_immediate(old) && self.count().mark() && self.has_room(old, new.header(), new.words()),
            };
            if !fits {
                return false;
            }
        }
        self.count().change_all(
            #[inline(always)]
            || {
                for change in changes {
                    let NewElement { index, new } = (*change).into();
                    self.set(&elements[index], new);
                }
            },
        )
    }

    /// Whether an item with header `new` fits in place of the one that the word `old` stands for.
    #[inline(always)]
    fn has_room(self, old: u64, new: u64, words: usize) -> bool {
        // SAFETY: the word is of this block.
        let old = unsafe { TermRef::new(self.address.as_ptr(), old) };
        plain_header(old.header()) == new || old.plain_words().is_some_and(|old| old.len() == words)
    }

    /// Sets an element to one that fits. Relaxed: readers look at the count, which orders it.
    #[inline(always)]
    fn set(self, slot: &AtomicU64, new: New<'_>) {
        let old = slot.load(Ordering::Relaxed);
        if let New::Immediate(word) = new {
            return slot.store(word, Ordering::Relaxed);
        }
        slot.store(old & !TAG_MASK | new.tag(), Ordering::Relaxed);
        // SAFETY: an item of as many words begins there.
        let first = unsafe { self.address.as_ptr().add((old >> 2) as usize) };
        new.each_word(
            #[inline(always)]
            |i, word| {
                // SAFETY: as above. The words may be shared as atomics.
                unsafe { &*first.add(i).cast::<AtomicU64>() }.store(word, Ordering::Relaxed)
            },
        );
    }

    /// The state of the block now. What is read of the block after this is not older.
    #[inline]
    pub fn state(self) -> State<'a> {
        State {
            count: self.count(),
            token: self.count().token(),
        }
    }

    /// Waits until no change of several words is in progress. False if that takes too long. After this, an
    /// [element](BlockRef::element) is read in place, unless it is [replaced](Self::replaces).
    #[inline]
    pub fn settled(self) -> bool {
        self.count().settled()
    }

    /// Whether element `index` is an item that may be replaced. This never changes. False if there is no such element.
    #[inline]
    pub fn replaces(self, index: usize) -> bool {
        // Relaxed: in place, an immediate stays an immediate and an item stays an item.
        let is_item = |slot: &AtomicU64| !is_immediate(slot.load(Ordering::Relaxed));
        self.count().mark() && self.elements().get(index).is_some_and(is_item)
    }

    /// The block where it stands.
    #[inline]
    pub fn in_place(self) -> BlockRef<'a> {
        // SAFETY: the block lives for `'a`.
        unsafe { BlockRef::from_raw(self.address) }
    }

    /// Copies the block to memory at `to`. The copy is the block at one instant, unless this returns false. Then the writer takes too long,
    /// and the copy may not even be a well-formed block.
    ///
    /// # Safety
    /// There is memory for all of its words.
    #[inline]
    unsafe fn copy_to(self, to: NonNull<u64>) -> bool {
        let words = self.words();
        // Words from here on never change.
        let rest = match self.count().mark() {
            true => words,
            false => 1 + self.elements().len(),
        };
        // SAFETY: the words follow the header. They may be shared as atomics.
        let changing =
            unsafe { std::slice::from_raw_parts(self.address.add(1).cast::<AtomicU64>().as_ptr(), rest - 1) };
        let whole = self.count().read(|| {
            for (i, word) in changing.iter().enumerate() {
                // Relaxed: as [`SeqCount::read`] demands.
                let word = word.load(Ordering::Relaxed);
                // SAFETY: as the caller promises.
                unsafe { to.add(1 + i).write(word) };
            }
        });
        // SAFETY: as the caller promises. The header and the words from `rest` on never change.
        unsafe {
            to.write(self.address.read());
            to.add(rest)
                .copy_from_nonoverlapping(self.address.add(rest), words - rest);
        }
        whole.is_some()
    }

    /// Copies the block to `room`. The second result says whether the copy is the block at one instant. If not, the writer takes too long,
    /// and only the copy's [number of words](BlockRef::words) and arity may be read. Panics if the room is too small.
    #[inline]
    pub fn copy_within<'s>(self, room: &'s mut [MaybeUninit<u64>]) -> (BlockRef<'s>, bool) {
        assert!(self.words() <= room.len());
        let to = NonNull::from(room).cast();
        // SAFETY: there is room, as was asserted. The copy is borrowed as long as the room.
        unsafe {
            let whole = self.copy_to(to);
            (BlockRef::from_raw(to), whole)
        }
    }
}

/// The word of the last of these indices that is `index`. The others that follow have no word.
#[cold]
fn latest(indices: impl Iterator<Item = usize>, index: usize, words: &[u64]) -> u64 {
    let earlier = indices.zip(words).filter(|(at, _)| *at == index).last();
    *earlier.expect("the index was met before").1
}

/// A state of a block that is changed in place.
#[derive(Clone, Copy)]
pub struct State<'a> {
    count: &'a SeqCount,
    token: u32,
}

impl State<'_> {
    /// Whether the block was in this state, without a break, until the caller synchronized with the block's writers. The
    /// caller has done that by the lock that they hold.
    #[inline]
    pub fn holds(&self) -> bool {
        self.count.is_at(self.token)
    }
}

/// An element for [`ChangingRef::set_all`].
#[derive(Clone, Copy)]
pub struct NewElement<'a> {
    /// Where it is to be, counted from 0.
    index: usize,
    new: New<'a>,
}

impl From<(usize, u64)> for NewElement<'_> {
    /// An immediate, with its index.
    #[inline(always)]
    fn from((index, word): (usize, u64)) -> Self {
        Self::immediate(index, word)
    }
}

/// An immediate, or what an item consists of, which need not be in stored form.
#[derive(Clone, Copy)]
enum New<'a> {
    Immediate(u64),
    Float(f64),
    Binary(&'a [u8]),
    /// The immediates of a tuple.
    Tuple(&'a [u64]),
    /// The tag of its word, and the words of the item.
    Item {
        tag: u64,
        words: &'a [u64],
    },
}

impl New<'_> {
    /// The header of the item.
    #[inline(always)]
    fn header(&self) -> u64 {
        match self {
            New::Float(_) => header(FLOAT, 0),
            New::Binary(bytes) => header(BINARY, bytes.len()),
            New::Tuple(elements) => header(TUPLE, elements.len()) | FLAT,
            New::Item { words, .. } => words[0],
            New::Immediate(_) => unreachable!("no item"),
        }
    }

    /// The number of words of the item.
    #[inline(always)]
    fn words(&self) -> usize {
        match self {
            New::Float(_) => 2,
            New::Binary(bytes) => 1 + bytes.len().div_ceil(8),
            New::Tuple(elements) => 1 + elements.len(),
            New::Item { words, .. } => words.len(),
            New::Immediate(_) => 0,
        }
    }

    /// The tag of the word that stands for the item.
    #[inline(always)]
    fn tag(&self) -> u64 {
        match self {
            New::Item { tag, .. } => *tag,
            _ => TAG_ITEM,
        }
    }

    /// Shows the words of the item, with the place of each.
    #[inline(always)]
    fn each_word(&self, mut show: impl FnMut(usize, u64)) {
        show(0, self.header());
        match *self {
            New::Immediate(_) => (),
            New::Float(value) => show(1, value.to_bits()),
            New::Binary(bytes) => {
                let (whole, rest) = as_chunks::<8, _>(bytes);
                for (i, bytes) in whole.iter().enumerate() {
                    show(1 + i, u64::from_ne_bytes(*bytes));
                }
                if !rest.is_empty() {
                    show(1 + whole.len(), padded(rest));
                }
            }
            New::Tuple(elements) => {
                for (i, word) in elements.iter().enumerate() {
                    show(1 + i, *word);
                }
            }
            New::Item { words, .. } => {
                for (i, word) in words.iter().enumerate().skip(1) {
                    show(i, *word);
                }
            }
        }
    }
}

impl<'a> NewElement<'a> {
    /// An immediate.
    #[inline(always)]
    pub fn immediate(index: usize, word: u64) -> Self {
        debug_assert!(is_immediate(word));
        let new = New::Immediate(word);
        Self { index, new }
    }

    /// A part. Nothing if it is counted.
    #[inline(always)]
    pub fn short(index: usize, part: Short<'a>) -> Option<Self> {
        let new = match part {
            Short::Float(value) => New::Float(value),
            Short::Binary(bytes) => New::Binary(bytes),
            Short::Tuple(elements) => New::Tuple(elements),
            Short::Same(words) => New::Item { tag: TAG_ITEM, words },
            Short::Counted(_) | Short::Fun(_) => return None,
        };
        Some(Self { index, new })
    }

    /// Any term. Nothing if it is an item that refers to others, or is held or counted.
    #[inline]
    pub fn new(index: usize, term: TermRef<'a>) -> Option<Self> {
        let new = match term.is_immediate() {
            true => New::Immediate(term.word()),
            false => New::Item {
                tag: term.word() & TAG_MASK,
                words: term.plain_words()?,
            },
        };
        Some(Self { index, new })
    }

    #[inline(always)]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The immediate, if it is one.
    #[inline(always)]
    pub fn as_immediate(&self) -> Option<u64> {
        match self.new {
            New::Immediate(word) => Some(word),
            _ => None,
        }
    }
}

/// A tuple that was built anew.
pub enum Rebuilt<'a> {
    Block(Block),
    /// It can be changed in place, items included.
    Changing(ChangingRef<'a>),
}

impl BlockRef<'_> {
    /// As [`with_elements`](Self::with_elements). But if the new block is small, it is one that is changed in place. This does not hold for
    /// tuples of immediates, nor if something in the block is held or counted.
    #[inline(never)]
    pub fn rebuilt<'g, 't>(
        self,
        guard: &'g Guard,
        changes: impl Iterator<Item = (usize, TermRef<'t>)> + Clone,
    ) -> Option<Rebuilt<'g>> {
        let mut room = Room::<{ 2 * ITEMS_LIMIT }>::new();
        let mut builder = Builder::within(&mut room);
        self.build_with_elements(&mut builder, changes);
        if !builder.has_held() && !builder.is_flat() && builder.words() <= ITEMS_LIMIT {
            // SAFETY: these are the words of a block, and they are few. Nothing in it is held or counted.
            return unsafe { ChangingRef::new(builder.whole(), true, guard) }.map(Rebuilt::Changing);
        }
        builder.finish().map(Rebuilt::Block)
    }
}
