//! Blocks whose elements are changed in place while others read them. Such a change replaces an immediate by an immediate.
//!
//! After the block's words stands a [`SeqCount`]. With it, readers get a copy that is one state. The key, and every element that is not an
//! immediate, never changes. Those are read in place.

use crate::block::{copy_words, BlockRef};
use crate::format::tuple_arity;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicU64, Ordering};
use cats_sync::seqlock::SeqCount;
use cats_sync::slab;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The number of words of the largest block that is changed in place. A copy of it takes a few nanoseconds and fits the stack.
pub const CHANGING_LIMIT: usize = 64;

/// Room on the stack for a copy.
pub struct Scratch(pub [MaybeUninit<u64>; CHANGING_LIMIT]);

impl Scratch {
    #[inline(always)]
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; CHANGING_LIMIT])
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
    /// Nothing in the block is held or counted. Nobody changes the block during this call. `change` replaces only immediates, and only by
    /// immediates. Whoever gets the result frees it with this number of words.
    #[inline]
    pub unsafe fn changed<R>(
        block: BlockRef<'_>,
        guard: &'a Guard,
        change: impl FnOnce(&mut [u64]) -> Option<R>,
    ) -> Option<(Self, R)> {
        let words = block.as_words();
        assert!(words.len() <= CHANGING_LIMIT);
        let mut changed = [0; CHANGING_LIMIT];
        let changed = &mut changed[..words.len()];
        changed.copy_from_slice(words);
        let result = change(&mut changed[1..1 + block.arity()])?;
        let address = slab::alloc_pinned(guard, (words.len() + 1) * 8)?.cast::<u64>();
        // SAFETY: the memory is new, aligned to 8 and large enough.
        unsafe {
            copy_words(changed, address);
            let count = address.add(words.len()).cast::<SeqCount>();
            count.write(SeqCount::default());
            Some((Self::from_raw(address, words.len()), result))
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

    /// Copies the block, as it is at one instant, to memory at `to`.
    ///
    /// # Safety
    /// There is memory for all of its words.
    #[inline]
    unsafe fn copy_to(self, to: NonNull<u64>) {
        let (words, elements) = (self.words(), self.elements());
        self.count().read(|| {
            for (i, word) in elements.iter().enumerate() {
                // Relaxed: as [`SeqCount::read`] demands.
                let word = word.load(Ordering::Relaxed);
                // SAFETY: as the caller promises.
                unsafe { to.add(1 + i).write(word) };
            }
        });
        let rest = 1 + elements.len();
        // SAFETY: as the caller promises. The header and the words after the elements never change.
        unsafe {
            to.write(self.address.read());
            to.add(rest)
                .copy_from_nonoverlapping(self.address.add(rest), words - rest);
        }
    }

    /// Copies the block, as it is at one instant, to `room`. Panics if that is too small.
    #[inline]
    pub fn copy_within<'s>(self, room: &'s mut [MaybeUninit<u64>]) -> BlockRef<'s> {
        assert!(self.words() <= room.len());
        let to = NonNull::from(room).cast();
        // SAFETY: there is room, as was asserted. The copy is borrowed as long as the room.
        unsafe {
            self.copy_to(to);
            BlockRef::from_raw(to)
        }
    }
}
