//! Blocks of which elements are changed in place, an immediate into another, while others read them.
//!
//! Behind the block's words stands a [`SeqCount`], by which others get a copy that is one state. The key, and all that is no
//! immediate, never changes, and is read in place.

use crate::block::{copy_words, BlockRef};
use crate::format::tuple_arity;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicU64, Ordering};
use cats_sync::seqlock::SeqCount;
use cats_sync::slab;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Words of the largest block that is changed in place: a copy is made in some nanoseconds, and fits the stack.
pub const CHANGING_LIMIT: usize = 64;

/// Room for a copy.
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
    /// A copy of a block of no more than [`CHANGING_LIMIT`] words, with what `change` does to its element words, to be changed in place:
    /// memory of one word more. Nothing if `change` gives nothing, or memory is exhausted.
    ///
    /// # Safety
    /// Nothing in the block is held or counted, and nobody changes it meanwhile. `change` puts immediates only in the place of
    /// immediates. Whoever gets the result frees it with as many words.
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

    /// The block at an address, whose words are told by who knows them without a look at it, that of the count left out: so nobody waits
    /// for its header before the count is asked for.
    ///
    /// # Safety
    /// It is that of one which came from [`changed`](Self::changed) and lives for `'a`.
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

    /// Its words, without that of the count.
    #[inline]
    pub fn words(self) -> usize {
        self.words
    }

    /// The words of the elements.
    #[inline]
    fn elements(self) -> &'a [AtomicU64] {
        // SAFETY: the elements follow the header, and may be shared as atomics: they are only read otherwise by who excludes writers.
        unsafe {
            let arity = tuple_arity(self.address.read());
            std::slice::from_raw_parts(self.address.add(1).cast().as_ptr(), arity)
        }
    }

    #[inline]
    fn count(self) -> &'a SeqCount {
        // SAFETY: it stands behind the block's words.
        unsafe { self.address.add(self.words()).cast().as_ref() }
    }

    /// Changes element `index`, counted from 0, in place: its new word. Nothing, and nothing is done, if there is no such element,
    /// `change` gives nothing, or a reader asked that no more is changed here.
    ///
    /// # Safety
    /// Nobody else changes the block meanwhile. It is not the key that is changed, and `change` gives immediates, and of immediates
    /// only.
    #[inline(always)]
    pub unsafe fn change(self, index: usize, change: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
        let slot = self.elements().get(index)?;
        // Relaxed: who changed it excluded this caller.
        let new = change(slot.load(Ordering::Relaxed))?;
        self.count().change(slot, new).then_some(new)
    }

    /// The block as it is at one instant, copied to memory for all of its words.
    ///
    /// # Safety
    /// There is as much.
    #[inline]
    unsafe fn copy_to(self, to: NonNull<u64>) {
        let (words, elements) = (self.words(), self.elements());
        self.count().read(|| {
            for (i, word) in elements.iter().enumerate() {
                // Relaxed: what the count asks for.
                let word = word.load(Ordering::Relaxed);
                // SAFETY: as the caller promises.
                unsafe { to.add(1 + i).write(word) };
            }
        });
        let rest = 1 + elements.len();
        // SAFETY: as the caller promises; the header and what is behind the elements never changes.
        unsafe {
            to.write(self.address.read());
            to.add(rest)
                .copy_from_nonoverlapping(self.address.add(rest), words - rest);
        }
    }

    /// The block as it is at one instant, copied to where there is room; panics where there is not.
    #[inline]
    pub fn copy_within<'s>(self, room: &'s mut [MaybeUninit<u64>]) -> BlockRef<'s> {
        assert!(self.words() <= room.len());
        let to = NonNull::from(room).cast();
        // SAFETY: there is room, as was seen, and the copy is borrowed as long as the room.
        unsafe {
            self.copy_to(to);
            BlockRef::from_raw(to)
        }
    }
}
