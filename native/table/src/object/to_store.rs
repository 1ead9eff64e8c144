//! Objects to store, and the bodies that they get.

use super::body::{address, block_of, held_size_bits, lease_of, referent, size_bits, unseated, word_of};
use super::free::{free_block, free_body};
use crate::object::packed;
use crate::object::schema::Probe;
use crate::object::{ADDRESS_BITS, SINGLE};
use cats_engine::seat::{is_seat, Staged};
use cats_engine::Entry;
use cats_sync::epoch::{self, Guard};
use cats_sync::slab::{self, account};
use cats_term::lease::{Lease, Request, NEVER};
use cats_term::{block_weight, is_immediate, Block, BlockRef, Short, TermRef};
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;
use std::ptr::NonNull;

/// How the objects of a table are stored.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The position of the key, counted from 0.
    pub key: usize,
    /// Whether elements of objects are packed if that makes them smaller.
    pub packed: bool,
    /// Whether each object has a [lease](cats_term::lease). Such objects are not packed.
    pub leased: bool,
    /// Whether leases are in cells, beside the entries. Otherwise each object is in a block, with its lease.
    pub seated: bool,
    /// Whether reads make objects live longer. Then they may have an own end.
    pub idle: bool,
    /// Whether all objects have room for an own end, as the table has a time to live besides.
    pub bounded: bool,
}

impl Layout {
    /// Whether objects are stored as they are.
    #[inline(always)]
    fn is_plain(self) -> bool {
        !self.packed && (!self.leased || self.seated)
    }
}

/// An object to store.
pub struct Object<'a> {
    elements: &'a [u64],
    block: Option<InBlock>,
    /// The [`key_word`](cats_term::key_word) of the key, if it is known.
    key_word: Option<NonZeroU64>,
}

/// The body of an object in a block. Nobody else knows the block yet.
struct InBlock(NonZeroU64);

impl InBlock {
    /// The block has `words` words. Its tuple has other elements than immediates. If something in the block is held or counted, `weighs` is
    /// its weight.
    #[inline(always)]
    fn new(block: Block, words: usize, weighs: Option<usize>) -> Self {
        let size = match weighs {
            None => size_bits(words),
            Some(weight) => held_size_bits(words, weight),
        };
        let body = word_of(block.into_raw()) | size << ADDRESS_BITS;
        // SAFETY: addresses of blocks are never null.
        Self(unsafe { NonZeroU64::new_unchecked(body) })
    }

    #[inline(always)]
    fn into_body(self) -> u64 {
        ManuallyDrop::new(self).0.get()
    }

    #[inline(always)]
    fn view(&self) -> BlockRef<'_> {
        // SAFETY: the body refers to a block, which this value owns.
        unsafe { BlockRef::from_raw(NonNull::new_unchecked(referent(self.0.get()).cast())) }
    }
}

impl Drop for InBlock {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nobody else knows the block.
        unsafe { free_block(self.0.get()) }
    }
}

impl<'a> Object<'a> {
    /// A tuple of immediates.
    #[inline(always)]
    pub fn flat(elements: &'a [u64]) -> Self {
        Self {
            elements,
            block: None,
            key_word: None,
        }
    }

    /// A tuple with other elements than immediates. In `elements` those that are immediates are given, so reading them need not wait for
    /// the block. The words at the other places are not used. They must not be immediates.
    #[inline(always)]
    pub fn in_block(elements: &'a [u64], block: Block) -> Self {
        let view = block.as_ref();
        // The block may be flat: the VM sometimes makes the lowest small integer as a large one.
        debug_assert!(!elements.iter().all(|word| is_immediate(*word)));
        debug_assert!(elements
            .iter()
            .zip(view.elements_raw())
            .all(|(a, b)| a == b || !is_immediate(*a)));
        let (words, weighs) = (view.words(), view.has_held().then(|| view.weight()));
        Self {
            elements,
            block: Some(InBlock::new(block, words, weighs)),
            key_word: None,
        }
    }

    /// A tuple in a block: see [`Block::of_short`]. Element `index` is `part`, and all others are immediates. `None` when memory is
    /// exhausted.
    #[inline(always)]
    pub fn of_short(elements: &'a [u64], index: usize, part: Short<'_>, guard: &Guard) -> Option<Self> {
        let (words, kept) = (part.words_with(elements.len()), part.kept_bytes());
        let block = Block::of_short(elements, index, part, guard)?;
        let weighs = kept.map(|bytes| block_weight(words, bytes));
        Some(Self {
            elements,
            block: Some(InBlock::new(block, words, weighs)),
            key_word: None,
        })
    }

    /// The same object, whose key has this [`key_word`](cats_term::key_word) if one is given.
    #[inline(always)]
    pub fn with_key_word(mut self, word: Option<u64>) -> Self {
        self.key_word = word.and_then(NonZeroU64::new);
        self
    }

    /// The probe for this object's key in a table that compares keys exactly. `key` is the key's position.
    #[inline(always)]
    pub(crate) fn exact_probe(&self, key: usize) -> Probe<'_> {
        match (self.elements[key], self.key_word) {
            (word, _) if is_immediate(word) => Probe::exact(TermRef::immediate(word)),
            (_, Some(word)) => Probe::known(self.element(key), word.get()),
            (_, None) => Probe::exact(self.element(key)),
        }
    }

    /// How many times longer an insertion of this object takes, at worst, than one of a tuple of immediates.
    pub fn cost(&self) -> usize {
        match self.block {
            None => 1,
            Some(_) => 3,
        }
    }

    /// The number of elements.
    #[inline]
    pub fn arity(&self) -> usize {
        self.elements.len()
    }

    /// The approximate number of words that storing the object takes.
    #[inline]
    pub fn words(&self) -> usize {
        self.block
            .as_ref()
            .map_or(self.elements.len(), |block| block.view().words())
    }

    /// Element `index`, counted from 0. Panics if there is none.
    #[inline(always)]
    pub fn element(&self, index: usize) -> TermRef<'_> {
        match (self.elements[index], &self.block) {
            (word, Some(block)) if !is_immediate(word) => block.view().element(index),
            (word, _) => TermRef::immediate(word),
        }
    }

    /// The elements, if all are immediates.
    #[inline(always)]
    pub fn immediates(&self) -> Option<&'a [u64]> {
        match self.block {
            None => Some(self.elements),
            Some(_) => None,
        }
    }

    /// The body of the object, if it is stored inline.
    #[inline(always)]
    pub fn inline(&self, layout: Layout) -> Option<u64> {
        inline(self.immediates()?, layout)
    }

    /// The object with elements packed where that makes them smaller, except the one at `key`.
    #[inline]
    pub fn packed(mut self, key: usize) -> Self {
        if let Some(block) = self.block.as_ref().and_then(|block| block.view().packed(key)) {
            let view = block.as_ref();
            let (words, weighs) = (view.words(), view.has_held().then(|| view.weight()));
            self.block = Some(InBlock::new(block, words, weighs));
        }
        self
    }

    /// The object's body, in the form that it has. `None` when memory is exhausted.
    #[inline(always)]
    pub fn into_body(self, layout: Layout, guard: &Guard) -> Option<u64> {
        match self.block {
            Some(block) => Some(block.into_body()),
            None => match inline(self.elements, layout) {
                Some(body) => Some(body),
                None => Block::flat(self.elements, guard).map(|block| stored(block, layout)),
            },
        }
    }

    /// The object's body in a table with leases. `None` when memory is exhausted. Where leases are in cells, a body requests the lease of the
    /// object that it replaces. For any other request, there is a [seat](cats_engine::seat) of its own, for [`free_new`] or
    /// [`take_staged`].
    pub fn into_leased_body(self, request: Request, layout: Layout, guard: &Guard) -> Option<u64> {
        // What finds the object when it is to end is no memory of the slab, and is not refused later.
        if account::is_spent() {
            return None;
        }
        let (lease, end) = (Lease::of_request(request), own_end(request, layout));
        if layout.seated {
            let body = self.into_body(layout, guard)?;
            return match request {
                Request::Kept => Some(body),
                _ => staged(body, lease, guard),
            };
        }
        let block = match self.block {
            // SAFETY: this value owns the block.
            Some(block) => unsafe { block_of(block.into_body()) }.leased(lease, end, guard),
            None => Block::flat_leased(self.elements, lease, end, guard),
        };
        block.map(address)
    }
}

/// A seat of its own, with this body and lease. Frees the object and is `None` when memory is exhausted.
fn staged(body: u64, lease: Lease, guard: &Guard) -> Option<u64> {
    let Some(memory) = slab::alloc_pinned(guard, size_of::<Staged>()) else {
        // SAFETY: nobody else knows the object.
        unsafe { free_body(body) }
        return None;
    };
    let memory = memory.cast::<Staged>();
    // SAFETY: new memory of this size, which nobody else has.
    unsafe {
        memory.write(Staged::default());
        Some(memory.as_ref().seat(body, lease.word()))
    }
}

/// Frees an object that nobody else can see, as [`free_body`] does, and also one with a seat of its own.
///
/// # Safety
/// As for [`free_body`].
#[inline]
pub unsafe fn free_new(body: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        match is_seat(body) {
            true => free_body(take_staged(body).0),
            false => free_body(body),
        }
    }
}

/// The body and the lease of a seat of its own, which it frees.
///
/// # Safety
/// The seat is of [`Object::into_leased_body`], and nobody uses it any more.
#[inline]
pub unsafe fn take_staged(seat: u64) -> (u64, Lease) {
    // SAFETY: as the caller promises. It came from the slab with this size.
    unsafe {
        let (entry, lease) = (unseated(Entry { key: 0, body: seat }), lease_of(seat).load());
        slab::free(
            NonNull::new_unchecked(Staged::address(seat).cast()),
            size_of::<Staged>(),
        );
        (entry.body, lease)
    }
}

/// What an object that requests this lease has before it: its own end, or room for that of the table or of the object that it replaces.
fn own_end(request: Request, layout: Layout) -> Option<Lease> {
    match request {
        Request::Bounded { most, .. } => Some(Lease::own_end(most)),
        Request::Kept => layout.idle.then(|| Lease::own_end(NEVER)),
        Request::Fresh | Request::Given(_) => layout.bounded.then(|| Lease::own_end(NEVER)),
    }
}

/// The body of a block's tuple. It refers to the block, unless the object can be stored inline.
#[inline(always)]
pub fn block_body(block: Block, layout: Layout) -> u64 {
    match block.as_ref().is_flat() {
        true => flat_body(block, layout),
        false => stored(block, layout),
    }
}

/// The same for a tuple of immediates. It may be a pair, which is stored inline.
#[cold]
fn flat_body(block: Block, layout: Layout) -> u64 {
    match inline(block.as_ref().elements_raw(), layout) {
        Some(body) => body,
        None => stored(block, layout),
    }
}

/// The body of a tuple that needs a block.
#[inline(always)]
fn stored(block: Block, layout: Layout) -> u64 {
    match layout.is_plain() {
        true => address(block),
        false => stored_in_general(block, layout),
    }
}

/// [`stored`] for a table that packs its objects, or where they have leases. A lease that it adds requests that of the object that is
/// replaced.
#[inline(never)]
fn stored_in_general(block: Block, layout: Layout) -> u64 {
    match layout.leased {
        true => {
            let (lease, end) = (Lease::of_request(Request::Kept), own_end(Request::Kept, layout));
            address(slab::needed(block.leased(lease, end, &epoch::pin())))
        }
        false => address(packed::pack(block, layout.key)),
    }
}

/// The body of a tuple of immediates, if it can be stored inline.
#[inline]
fn inline(words: &[u64], layout: Layout) -> Option<u64> {
    if layout.leased && !layout.seated {
        return None;
    }
    match *words {
        [_] => Some(SINGLE),
        [first, second] => Some(if layout.key == 0 { second } else { first }),
        _ => None,
    }
}
