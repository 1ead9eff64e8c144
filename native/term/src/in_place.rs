//! Blocks that are changed in place while others read them. Such a change replaces immediates by immediates. In some blocks it also
//! replaces items by items of the same number of words.
//!
//! After the block's words stands a [`SeqCount`]. With it, readers get a copy that is one state. Its mark tells whether items are replaced.
//! The key never changes. In a block without the mark, no element that is not an immediate changes. What never changes is read in place.

use crate::block::{copy_words, Block, BlockRef, Short};
use crate::builder::{Builder, Room};
use crate::format::{is_immediate, plain_header, tuple_arity, TermRef, TAG_ITEM, TAG_MASK};
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
                elements[index].store(*word, Ordering::Relaxed);
            }
        })
    }

    /// Sets elements in place. Readers see all changes or none. The last change of an element counts. Does nothing, and returns false, in
    /// these cases: there is no such element, a new one does not fit, or a reader has requested rest. An immediate fits in place of an
    /// immediate. In a block where items are replaced, an item that refers to no other fits in place of such an item of as many words.
    ///
    /// # Safety
    /// Nobody else changes the block during this call. None of the elements is the key.
    #[inline]
    pub unsafe fn set_all(self, changes: &[NewElement<'_>]) -> bool {
        let elements = self.elements();
        let fits = |change: &NewElement<'_>| {
            let Some(slot) = elements.get(change.index) else {
                return false;
            };
            // Relaxed: as in `change`.
            let old = slot.load(Ordering::Relaxed);
            match change.words.first() {
                None => is_immediate(old),
                Some(new) => !is_immediate(old) && self.count().mark() && self.has_room(old, *new, change.words.len()),
            }
        };
        changes.iter().all(fits)
            && self.count().change_all(|| {
                for change in changes {
                    self.set(&elements[change.index], change);
                }
            })
    }

    /// Whether an item with header `new` fits in place of the one that the word `old` stands for.
    #[inline]
    fn has_room(self, old: u64, new: u64, words: usize) -> bool {
        // SAFETY: the word is of this block.
        let old = unsafe { TermRef::new(self.address.as_ptr(), old) };
        plain_header(old.header()) == new || old.plain_words().is_some_and(|old| old.len() == words)
    }

    /// Sets an element to one that fits. Readers look at the count.
    #[inline]
    fn set(self, slot: &AtomicU64, change: &NewElement<'_>) {
        let [header, words @ ..] = change.words else {
            return slot.store(change.word, Ordering::Relaxed);
        };
        let old = slot.load(Ordering::Relaxed);
        slot.store(old & !TAG_MASK | change.word & TAG_MASK, Ordering::Relaxed);
        // SAFETY: an item of as many words begins there. The words may be shared as atomics.
        let (first, rest) = unsafe {
            let first = self.address.add((old >> 2) as usize).cast::<AtomicU64>();
            (
                first.as_ref(),
                std::slice::from_raw_parts(first.add(1).as_ptr(), words.len()),
            )
        };
        first.store(*header, Ordering::Relaxed);
        for (place, word) in rest.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
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
    word: u64,
    /// The words of its item. Empty for an immediate.
    words: &'a [u64],
}

impl<'a> NewElement<'a> {
    /// An immediate.
    #[inline]
    pub fn immediate(index: usize, word: u64) -> Self {
        debug_assert!(is_immediate(word));
        Self {
            index,
            word,
            words: &[],
        }
    }

    /// Any term. Nothing if it is an item that refers to others, or is held or counted.
    #[inline]
    pub fn new(index: usize, term: TermRef<'a>) -> Option<Self> {
        let word = term.word();
        let words = match term.is_immediate() {
            true => &[],
            false => term.plain_words()?,
        };
        Some(Self { index, word, words })
    }

    /// The item that was written to a [`ShortItem`], which gave these words.
    #[inline]
    pub fn short(index: usize, words: ShortWords<'a>) -> Self {
        Self {
            index,
            word: TAG_ITEM,
            words: words.0,
        }
    }

    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }
}

/// Room on the stack for the words of a short item.
pub struct ShortItem([MaybeUninit<u64>; SHORT_WORDS]);

/// The words of a short item.
pub struct ShortWords<'a>(&'a [u64]);

/// The most words of a short item: a binary of 64 bytes.
const SHORT_WORDS: usize = 9;

impl ShortItem {
    #[inline(always)]
    pub const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; SHORT_WORDS])
    }

    /// Writes an item. Nothing if it is counted or has more words.
    #[inline(always)]
    pub fn write(&mut self, part: Short<'_>) -> Option<ShortWords<'_>> {
        let words = part.words();
        if words > SHORT_WORDS || part.kept_bytes().is_some() {
            return None;
        }
        let first = NonNull::from(&mut self.0).cast::<u64>();
        // SAFETY: there is room, and so many words are written.
        unsafe {
            part.write(first);
            Some(ShortWords(std::slice::from_raw_parts(first.as_ptr(), words)))
        }
    }
}

impl Default for ShortItem {
    fn default() -> Self {
        Self::new()
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
