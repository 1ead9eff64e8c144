//! Objects of tables: the body word of an [`Entry`] (docs/internals/objects.md), objects to store, and objects to read.

pub(crate) mod copy;
pub(crate) mod group;
pub(crate) mod key;
pub(crate) mod packed;
pub(crate) mod schema;

use crate::budget::Budget;
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess};
use crate::object::schema::{OwnedKey, Probe};
use cats_engine::Entry;
use cats_sync::epoch::{self, Guard};
use cats_sync::slab;
use cats_term::lease::{Lease, Request, SharedLease};
use cats_term::{
    block_weight, bytes_of, is_immediate, Block, BlockRef, ChangingRef, Dismantled, NewElement, Rebuilt, Scratch,
    Short, State, TermRef, CHANGING_LIMIT, SCRATCH_WORDS,
};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::num::NonZeroU64;
use std::ptr::NonNull;

/// The body of `{Key}`.
pub(crate) const SINGLE: u64 = 1;
/// The low bits of a body that is the address of a group.
pub const GROUP: u64 = 2;
const TAG: u64 = 3;
/// A further bit in the body of a block: elements of the object are changed in place.
const CHANGING: u64 = 4;
/// In a body that refers to memory, the bits above these of the address store the size of a block.
pub use cats_sync::slab::ADDRESS_BITS;
/// Among the bits above the address: something in the block is held or counted. Then fewer bits store the number of words, and the bits
/// above those store the weight.
const HELD: u64 = 1 << 15;
const HELD_WORDS: u64 = (1 << WEIGHT_AT) - 1;
const WEIGHT_AT: u32 = 10;
const MAX_WEIGHT: u64 = (1 << (15 - WEIGHT_AT)) - 1;
/// The number of bytes for which the weight 0 stands. Each further step of the weight doubles them.
const LEAST_WEIGHT: usize = 64;

/// Whether the body is the address of a group, which is all objects of one key.
#[inline]
pub fn is_group(body: u64) -> bool {
    body & TAG == GROUP
}

/// Whether the body refers to memory: to a block or a group.
#[inline]
pub fn refers(body: u64) -> bool {
    body & SINGLE == 0
}

/// Whether the body is the address of a block.
#[inline]
pub fn is_block(body: u64) -> bool {
    body & TAG == 0
}

/// Whether the body is the address of a block whose elements are changed in place.
#[inline]
pub fn is_changing(body: u64) -> bool {
    body & (TAG | CHANGING) == CHANGING
}

/// How the objects of a table are stored.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The position of the key, counted from 0.
    pub key: usize,
    /// Whether elements of objects are packed if that makes them smaller.
    pub packed: bool,
    /// Whether each object is in a block and has a [lease](cats_term::lease). Such objects are not packed.
    pub leased: bool,
}

impl Layout {
    /// Whether objects are stored as they are.
    #[inline(always)]
    fn is_plain(self) -> bool {
        !self.packed && !self.leased
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

    /// The object's body in a table with leases. `None` when memory is exhausted.
    pub fn into_leased_body(self, request: Request, guard: &Guard) -> Option<u64> {
        let lease = Lease::of_request(request);
        let block = match self.block {
            // SAFETY: this value owns the block.
            Some(block) => unsafe { block_of(block.into_body()) }.leased(lease, guard),
            None => Block::flat_leased(self.elements, lease, guard),
        };
        block.map(address)
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
        true => address(slab::needed(
            block.leased(Lease::of_request(Request::Kept), &epoch::pin()),
        )),
        false => address(packed::pack(block, layout.key)),
    }
}

/// The body of a tuple of immediates, if it can be stored inline.
#[inline]
fn inline(words: &[u64], layout: Layout) -> Option<u64> {
    if layout.leased {
        return None;
    }
    match *words {
        [_] => Some(SINGLE),
        [first, second] => Some(if layout.key == 0 { second } else { first }),
        _ => None,
    }
}

/// The lease of an object of a table with leases.
///
/// # Safety
/// The body is that of such an object, and the object lives for `'a`.
#[inline(always)]
pub unsafe fn lease_of<'a>(body: u64) -> &'a SharedLease {
    debug_assert!(is_block(body));
    let known = known_words(body);
    // The count of an object that is changed in place stands behind the lease.
    let words = match known {
        // SAFETY: as the caller promises.
        0 => unsafe { block(body) }.expect("a block").words() as u64,
        known => known - u64::from(body & CHANGING != 0),
    };
    // SAFETY: the last word of the block is the lease, which all access as an atomic.
    unsafe { &*referent(body).cast::<SharedLease>().add(words as usize - 1) }
}

/// The body that refers to a block.
#[inline(always)]
fn address(block: Block) -> u64 {
    let view = block.as_ref();
    let words = view.words();
    let size = match view.has_held() {
        true => held_size_bits(words, view.weight()),
        false => size_bits(words),
    };
    word_of(block.into_raw()) | size << ADDRESS_BITS
}

/// What a body stores above the address, for a block of this number of words in which nothing is held or counted.
#[inline(always)]
fn size_bits(words: usize) -> u64 {
    match words as u64 {
        words if words < HELD => words,
        _ => 0,
    }
}

/// The same for a block of this weight in which something is held or counted.
#[inline]
fn held_size_bits(words: usize, weight: usize) -> u64 {
    let weight = u64::from(weight.div_ceil(LEAST_WEIGHT).next_power_of_two().ilog2());
    match words as u64 {
        words if words <= HELD_WORDS && weight <= MAX_WEIGHT => HELD | weight << WEIGHT_AT | words,
        _ => 0,
    }
}

#[inline(always)]
fn word_of(address: NonNull<u64>) -> u64 {
    let address = address.as_ptr() as u64;
    // All blocks and groups are memory of the slab, which has no longer addresses.
    debug_assert!(address >> ADDRESS_BITS == 0);
    address
}

/// The number of words of the block's memory, if the body stores it and nothing in the block is held or counted. So replacing or deleting
/// the object avoids a cache miss.
#[inline]
fn words(body: u64) -> Option<usize> {
    let size = body >> ADDRESS_BITS;
    (size.wrapping_sub(1) < HELD - 1).then_some(size as usize)
}

/// The number of words of the block's memory, or 0 if the body does not store it.
#[inline(always)]
fn known_words(body: u64) -> u64 {
    let size = body >> ADDRESS_BITS;
    match size & HELD {
        0 => size,
        _ => size & HELD_WORDS,
    }
}

/// The number of words and the weight of a block in which something is held or counted, if the body stores them. The weight is rounded up
/// by less than a factor of two.
#[inline]
fn held(body: u64) -> Option<(usize, usize)> {
    let size = body >> ADDRESS_BITS;
    let weight = LEAST_WEIGHT << (size >> WEIGHT_AT & MAX_WEIGHT);
    (size & HELD != 0).then_some(((size & HELD_WORDS) as usize, weight))
}

/// Changes one element in place, from an immediate to another immediate. Returns its new word. Does nothing, and returns `None`, in four
/// cases: the object is not [changed in place](is_changing), there is no such element, `change` returns `None`, or a reader requested rest.
///
/// # Safety
/// The object's place is locked. The element is not the key. `change` returns immediates, and returns `None` for anything that is not an
/// immediate.
#[inline(always)]
pub unsafe fn change_in_place(body: u64, index: usize, change: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
    // SAFETY: as the caller promises.
    unsafe { changing(body)?.change(index, change) }
}

/// The same for several elements: see [`ChangingRef::change_each`].
///
/// # Safety
/// As for [`ChangingRef::change_each`], and the object's place is locked.
#[inline(always)]
pub unsafe fn change_each_in_place(
    body: u64,
    indices: impl Iterator<Item = usize> + Clone,
    words: &mut [u64],
    change: impl Fn(usize, u64) -> Option<u64>,
) -> bool {
    // SAFETY: as the caller promises.
    unsafe { changing(body).is_some_and(|object| object.change_each(indices, words, change)) }
}

/// Sets elements of an object that is changed in place, but not its key: see [`ChangingRef::set_all`]. False if it is not such an object.
/// `key` is the key's position.
///
/// # Safety
/// The object's place is locked. A change gives the same new element each time.
#[inline(always)]
pub unsafe fn set_in_place<'n>(body: u64, key: usize, changes: &[impl Into<NewElement<'n>> + Copy]) -> bool {
    // SAFETY: as the caller promises.
    unsafe { changing(body).is_some_and(|object| object.set_all(key, changes)) }
}

/// Element `index` of an object that is changed in place. `None` if it is not such an object, or has no such element.
///
/// # Safety
/// The object's place is locked.
pub unsafe fn changing_element<'a>(body: u64, index: usize) -> Option<TermRef<'a>> {
    // SAFETY: as the caller promises.
    let block = unsafe { changing(body) }?.in_place();
    (index < block.arity()).then(|| block.element(index))
}

/// The body of a copy of an object in a block, with other elements at some places. Places are counted from 0. If the copy is small, it is
/// changed in place from now on, items included. `None` when memory is exhausted.
pub fn rebuilt<'t>(
    guard: &Guard,
    block: BlockRef<'_>,
    changes: impl Iterator<Item = (usize, TermRef<'t>)> + Clone,
    layout: Layout,
) -> Option<u64> {
    Some(match block.rebuilt(guard, changes)? {
        Rebuilt::Block(block) => block_body(block, layout),
        Rebuilt::Changing(block) => changing_body(block, size_bits(block.words() + 1)),
    })
}

/// The body of a copy of an object, whose element words `change` has changed. Unless the object is large, the copy is changed in place from
/// now on. `None` in these cases: `change` returns `None`, memory is exhausted, or the object has no block, has more than [`COPY_LIMIT`] words
/// or has held terms.
///
/// # Safety
/// The object's place is locked. `change` does not change the key. It replaces only immediates, and only by immediates.
#[inline]
pub unsafe fn changed<R>(guard: &Guard, body: u64, change: impl FnOnce(&mut [u64]) -> Option<R>) -> Option<(u64, R)> {
    prefetch_small(body);
    // SAFETY: as the caller promises.
    let block = unsafe { block(body) }.filter(|block| block.words() <= COPY_LIMIT.0)?;
    let words = block.words() + 1;
    let size = match block.has_held() {
        false => size_bits(words),
        true if block.has_held_terms() => return None,
        true => held_size_bits(words, block.weight()),
    };
    if words > CHANGING_LIMIT + 1 || size == 0 {
        // SAFETY: as the caller promises.
        let (block, result) = unsafe { block.changed(guard, change) }?;
        return Some((address(block), result));
    }
    // SAFETY: as the caller promises. The body stores the number of words with which the memory is freed.
    let (block, result) = unsafe { ChangingRef::changed(block, guard, change) }?;
    Some((changing_body(block, size), result))
}

/// The present state of an object that is changed in place. `None` for any other body.
///
/// # Safety
/// The body is one that was stored in a table, and what it refers to lives for `'a`.
#[inline]
pub unsafe fn state<'a>(body: u64) -> Option<State<'a>> {
    // SAFETY: as the caller promises.
    Some(unsafe { changing(body) }?.state())
}

/// The body that refers to a block that is changed in place. `size` is that of the block's memory, which includes the word of the count.
#[inline]
fn changing_body(block: ChangingRef<'_>, size: u64) -> u64 {
    word_of(block.address()) | size << ADDRESS_BITS | CHANGING
}

/// The address that a body refers to: of a block, or of a group.
#[inline]
pub fn referent(body: u64) -> *mut u8 {
    (body & ((1 << ADDRESS_BITS) - 1) & !(TAG | CHANGING)) as *mut u8
}

/// Prefetches the first cache line of the block or group.
#[inline]
pub fn prefetch(body: u64) {
    cats_sync::prefetch(referent(body).cast_const());
}

/// The number of words of the largest block that is prefetched as a whole.
const PREFETCHED: usize = 64;

/// Prefetches all cache lines of a small block, if the body stores its number of words. So they are all requested at once, before the first
/// one has arrived.
#[inline]
fn prefetch_small(body: u64) {
    if let Some(words) = words(body).filter(|words| *words <= PREFETCHED) {
        let at = referent(body).cast_const();
        for word in (0..words).step_by(8).chain([words - 1]) {
            cats_sync::prefetch(at.wrapping_add(8 * word));
        }
    }
}

/// The size in bytes of the block of `body`, minus that of the block of `than`. An inline object has no block.
///
/// # Safety
/// As for [`body_bytes`], for both.
#[inline(always)]
pub unsafe fn more_bytes(body: u64, than: u64) -> i64 {
    let alike = match (is_block(body), is_block(than)) {
        (true, true) => body >> ADDRESS_BITS != 0 && (body ^ than) >> ADDRESS_BITS == 0,
        (one, other) => one == other,
    };
    match alike {
        true => 0,
        // SAFETY: as the caller promises.
        false => unsafe { body_bytes(body) as i64 - body_bytes(than) as i64 },
    }
}

/// The size in bytes of the block that the body refers to. 0 for inline objects.
///
/// # Safety
/// The body is not that of a group, and the object lives.
#[inline(never)]
pub unsafe fn body_bytes(body: u64) -> usize {
    if !is_block(body) {
        return 0;
    }
    match words(body).or(held(body).map(|(words, _)| words)) {
        Some(words) => bytes_of(words),
        // SAFETY: as the caller promises.
        None => unsafe { block(body) }.map_or(0, BlockRef::bytes),
    }
}

/// The same, with the bytes of shared binaries and held terms that the object keeps. Reads the block only if something in it is held or counted.
///
/// # Safety
/// As for [`body_bytes`].
pub unsafe fn memory_of(body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe {
        match words(body) {
            None if is_block(body) => body_bytes(body) + block(body).map_or(0, BlockRef::kept_bytes),
            _ => body_bytes(body),
        }
    }
}

/// Frees an object that nobody else can see.
///
/// # Safety
/// The body is not that of a group. It came from [`Object::into_body`], and nobody uses it any more.
#[inline]
pub unsafe fn free_body(body: u64) {
    if is_block(body) {
        // SAFETY: as the caller promises.
        unsafe { free_block(body) }
    }
}

/// [`free_body`] for an object in a block. Not inlined: each insertion ends with `free_body`, and usually nothing must be freed there.
///
/// # Safety
/// As for [`free_body`], and the object is in a block.
#[inline(never)]
unsafe fn free_block(body: u64) {
    // SAFETY: the address of a block that nobody else uses.
    unsafe {
        match words(body) {
            Some(words) => Block::free_words(referent(body), words),
            None if held(body).is_some() => held(body).map_or((), |(words, _)| Block::free_held(referent(body), words)),
            None if is_for_reaper(body) => {
                Expected::new().into_raw();
                enqueue_block(referent(body), 0);
            }
            None => Block::free(referent(body), 0),
        }
    }
}

/// If something is held or counted in a block of at least this number of words, the reaper frees it in slices. The body of such a block
/// does not store its number of words.
const FREE_IN_SLICES: usize = 4 << 10;
const _: () = assert!(FREE_IN_SLICES > HELD_WORDS as usize);

/// Whether the reaper must free the block.
///
/// # Safety
/// The body is the address of a block that lives.
#[inline]
unsafe fn is_for_reaper(body: u64) -> bool {
    if held(body).is_some() {
        return false;
    }
    // SAFETY: as the caller promises.
    unsafe { block(body) }.is_some_and(|block| block.has_held() && block.words() >= FREE_IN_SLICES)
}

/// Items of a block that are freed in a step.
const ITEMS: usize = 256;

impl Garbage for Option<Dismantled> {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        *self = self.take().and_then(|block| block.step(ITEMS));
        Ok(self.is_some())
    }
}

/// Hands a block to the reaper, whose expectation of it has become raw. Has the type `cats_sync::epoch::Drop`.
///
/// # Safety
/// The address came from [`Block::into_raw`], and nobody reads the block any more. [`Expected::into_raw`] was called for it.
unsafe fn enqueue_block(address: *mut u8, _: usize) {
    // SAFETY: as the caller promises. Addresses of blocks are never null.
    let (block, expected) = unsafe {
        (
            Block::from_raw(NonNull::new_unchecked(address.cast())),
            Expected::from_raw(),
        )
    };
    expected.enqueue(Some(Dismantled::new(block)));
}

/// Frees an object as soon as no reader can see it.
///
/// # Safety
/// As for [`free_body`], except that others may still read the object under guards.
#[inline]
pub unsafe fn retire_body(guard: &Guard, body: u64) {
    if is_block(body) {
        // SAFETY: unlinked, as the caller promises, and retired once.
        unsafe {
            match words(body) {
                Some(words) => block_of(body).retire_words(guard, words),
                None => retire_in_general(guard, body),
            }
        }
    }
}

/// [`retire_body`] for a block in which something is held or counted, or which is large.
///
/// # Safety
/// As for [`retire_body`].
#[inline(never)]
unsafe fn retire_in_general(guard: &Guard, body: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        match held(body) {
            Some((words, weight)) => block_of(body).retire_held(guard, words, weight),
            None if is_for_reaper(body) => {
                Expected::new().into_raw();
                guard.retire_sized(referent(body), 0, enqueue_block, FREE_IN_SLICES * 8);
            }
            None => block_of(body).retire(guard),
        }
    }
}

/// # Safety
/// The body is the address of a block, and the caller has the right to retire it.
#[inline]
unsafe fn block_of(body: u64) -> Block {
    // SAFETY: as the caller promises. Addresses of blocks are never null.
    unsafe { Block::from_raw(NonNull::new_unchecked(referent(body).cast())) }
}

/// Like [`retire_body`]. Returns the object's [bytes](body_bytes).
///
/// # Safety
/// As for [`retire_body`].
#[inline]
pub unsafe fn retire_counted(guard: &Guard, body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe {
        let bytes = match words(body) {
            Some(words) if is_block(body) => bytes_of(words),
            _ => body_bytes(body),
        };
        retire_body(guard, body);
        bytes
    }
}

/// The word of an element of an object in a block.
///
/// # Safety
/// The object is such an object, lives, and is not linked in any place any more.
#[inline]
pub unsafe fn element_word(body: u64, index: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { block(body) }.expect("a block").elements_raw()[index]
}

/// The words of an object that a scheduler copies at once.
pub const COPY_LIMIT: Budget = Budget(16 << 10);

/// The number of words of the block from which the object is read, with its elements unpacked. 0 for an inline object.
///
/// # Safety
/// The body is not that of a group, and the object lives.
#[inline]
pub unsafe fn words_to_read(body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe { block(body) }.map_or(0, BlockRef::unpacked_words)
}

/// The number of words of the object's block. 0 for an inline object.
///
/// # Safety
/// As for [`words_to_read`].
#[inline]
pub unsafe fn stored_words(body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe { block(body) }.map_or(0, BlockRef::words)
}

/// The bytes of an [`OwnedKey`] for the key of an object, 0 if the key is an immediate. A deeply nested key is taken to be as large as the
/// object. `key` is the position of the key.
///
/// # Safety
/// As for [`body_bytes`].
#[inline]
pub unsafe fn owned_key_bytes(body: u64, key: usize) -> usize {
    // SAFETY: as the caller promises.
    match unsafe { block(body) }.map(|block| block.element(key)) {
        // SAFETY: as above.
        Some(key) if !key.is_immediate() => OwnedKey::bytes_for(key, || unsafe { body_bytes(body) }),
        _ => 0,
    }
}

/// # Safety
/// If the body refers to a block, that lives for `'a`.
#[inline]
unsafe fn block<'a>(body: u64) -> Option<BlockRef<'a>> {
    if !is_block(body) {
        return None;
    }
    // SAFETY: bodies with these low bits are addresses of blocks, never 0.
    Some(unsafe { BlockRef::from_raw(NonNull::new_unchecked(referent(body).cast())) })
}

/// # Safety
/// If the body refers to a block, that lives for `'a`.
#[inline]
unsafe fn changing<'a>(body: u64) -> Option<ChangingRef<'a>> {
    is_changing(body).then(|| {
        let words = known_words(body) as usize - 1;
        // SAFETY: bodies of this kind come from `changing_body`.
        unsafe { ChangingRef::from_raw(NonNull::new_unchecked(referent(body).cast()), words) }
    })
}

/// An object to read.
#[derive(Clone, Copy)]
pub enum ObjectRef<'a> {
    /// `{Key}`, where the key is an immediate.
    Single([u64; 1]),
    /// A pair of immediates.
    Pair([u64; 2]),
    Block(BlockRef<'a>),
}

impl<'a> ObjectRef<'a> {
    /// The object of an entry. `key` is the key's position, counted from 0. It may be called within an optimistic read of an engine. If that
    /// is not valid in the end, only the object's number of words and its arity may be read.
    ///
    /// # Safety
    /// The body is not that of a group. Its block, if any, lives for `'a`, and this thread has a guard during `'a`.
    #[inline]
    pub unsafe fn new(entry: Entry, key: usize) -> ObjectRef<'a> {
        // SAFETY: as the caller promises.
        unsafe { Self::stable(entry, key).unpacked() }
    }

    /// Like [`new`](Self::new), without unpacking elements.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline]
    pub unsafe fn stable(entry: Entry, key: usize) -> ObjectRef<'a> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) => Copies::new(changing.words()).copy(changing),
                None => Self::stored(entry, key),
            }
        }
    }

    /// Like [`stable`](Self::stable), after an engine has validated the entry. A copy of an object that is changed in place is written to
    /// `scratch`. Fails with [`Failure::Busy`] if a writer of the object takes too long.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub unsafe fn read_within(entry: Entry, key: usize, scratch: &'a mut Scratch) -> Result<ObjectRef<'a>, Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) => {
                    let room = match changing.words() <= SCRATCH_WORDS {
                        true => &mut scratch.0[..],
                        false => memory_for_now(changing.words()),
                    };
                    match changing.copy_within(room) {
                        (block, true) => Ok(ObjectRef::Block(block)),
                        (_, false) => Err(Failure::Busy),
                    }
                }
                None => Ok(Self::stored(entry, key)),
            }
        }
    }

    /// Like [`read_within`](Self::read_within), for a caller that reads only the element at `index`, and only once. So an object that is
    /// changed in place is rarely copied.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub unsafe fn read_for_element(
        entry: Entry,
        key: usize,
        index: usize,
        scratch: &'a mut Scratch,
    ) -> Result<ObjectRef<'a>, Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) if changing.replaces(index) => Self::read_within(entry, key, scratch),
                Some(changing) if changing.settled() => Ok(ObjectRef::Block(changing.in_place())),
                Some(_) => Err(Failure::Busy),
                None => Ok(Self::stored(entry, key)),
            }
        }
    }

    /// The number of words that [`unpacked`](Self::unpacked) writes. 0 if no element is packed.
    #[inline]
    pub fn packed_words(&self) -> usize {
        match self {
            ObjectRef::Block(block) if block.has_packed() => block.unpacked_words(),
            _ => 0,
        }
    }

    /// The object as it is read, given the form in which it is [stored](Self::stored).
    ///
    /// # Safety
    /// The object lives, and this thread has a guard during `'a`.
    #[inline]
    pub unsafe fn unpacked(self) -> ObjectRef<'a> {
        match self {
            // SAFETY: as the caller promises.
            ObjectRef::Block(block) if block.has_packed() => ObjectRef::Block(unsafe { packed::unpack(block) }),
            object => object,
        }
    }

    /// Like [`new`](Self::new), but returns the form in which the object is stored, perhaps with packed elements. Does not read the block.
    ///
    /// # Safety
    /// As for [`new`](Self::new). If the object is changed in place, its elements are read only while its place is locked.
    #[inline]
    pub unsafe fn stored(entry: Entry, key: usize) -> ObjectRef<'a> {
        // SAFETY: as the caller promises.
        match unsafe { block(entry.body) } {
            Some(block) => ObjectRef::Block(block),
            None if entry.body == SINGLE => ObjectRef::Single([entry.key]),
            None if key == 0 => ObjectRef::Pair([entry.key, entry.body]),
            None => ObjectRef::Pair([entry.body, entry.key]),
        }
    }

    /// Prefetches the beginning of the object's block, and the memory of element `index`, counted from 0.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let ObjectRef::Block(block) = self {
            block.prefetch();
            block.prefetch_element(index);
        }
    }

    #[inline]
    pub fn arity(&self) -> usize {
        match self {
            ObjectRef::Single(_) => 1,
            ObjectRef::Pair(_) => 2,
            ObjectRef::Block(block) => block.arity(),
        }
    }

    /// Element `index`, counted from 0. Panics if there is none.
    #[inline]
    pub fn element(&self, index: usize) -> TermRef<'a> {
        match self {
            ObjectRef::Single(words) => TermRef::immediate(words[index]),
            ObjectRef::Pair(words) => TermRef::immediate(words[index]),
            ObjectRef::Block(block) => block.element(index),
        }
    }

    /// The element words, if all elements are immediates.
    #[inline]
    pub fn flat(&self) -> Option<&[u64]> {
        match self {
            ObjectRef::Single(words) => Some(words),
            ObjectRef::Pair(words) => Some(words),
            ObjectRef::Block(block) => block.is_flat().then(|| block.elements_raw()),
        }
    }

    /// The approximate number of words that a copy of the object takes in a process. O(items) if some elements are packed.
    #[inline]
    pub fn words(&self) -> usize {
        match self {
            ObjectRef::Block(block) => block.unpacked_words(),
            other => other.arity() + 1,
        }
    }

    /// The number of words of the object's block, as it is stored.
    #[inline]
    pub fn stored_words(&self) -> usize {
        match self {
            ObjectRef::Block(block) => block.words(),
            _ => 0,
        }
    }

    /// The same tuple with other elements at some places. Places are counted from 0. The last change of a place counts. `None` when memory
    /// is exhausted.
    pub fn with_elements(&self, changes: &[(usize, TermRef<'_>)]) -> Option<Block> {
        match self {
            ObjectRef::Block(block) => block.with_elements(changes.iter().copied()),
            ObjectRef::Single(words) => inline_with_elements(words, changes),
            ObjectRef::Pair(words) => inline_with_elements(words, changes),
        }
    }
}

fn inline_with_elements(words: &[u64], changes: &[(usize, TermRef<'_>)]) -> Option<Block> {
    Block::flat(words, &epoch::pin())?
        .as_ref()
        .with_elements(changes.iter().copied())
}

/// Memory for copies of objects that are changed in place. It lives as long as the thread's present guards.
pub struct Copies {
    words: usize,
    /// The unused rest of the memory.
    free: &'static mut [MaybeUninit<u64>],
}

impl Copies {
    /// Allocates memory for `words` words at a time, when it is needed.
    pub fn new(words: usize) -> Self {
        let free = &mut [];
        Self { words, free }
    }

    /// The object of an entry, as it is at one instant.
    ///
    /// # Safety
    /// As for [`ObjectRef::new`], and the object is [changed in place](is_changing).
    #[inline]
    pub unsafe fn object<'a>(&mut self, entry: Entry) -> ObjectRef<'a> {
        // SAFETY: as the caller promises.
        unsafe { self.copy(changing(entry.body).expect("an object that is changed in place")) }
    }

    /// # Safety
    /// As for [`ObjectRef::new`].
    #[inline]
    unsafe fn copy<'a>(&mut self, object: ChangingRef<'_>) -> ObjectRef<'a> {
        let words = object.words();
        if words > self.free.len() {
            // SAFETY: as the caller promises.
            self.free = unsafe { memory_for_now(self.words.max(words)) };
        }
        let (room, free) = std::mem::take(&mut self.free).split_at_mut(words);
        self.free = free;
        // If the copy is not whole, the writer holds the lock of the object's place. So this is an optimistic read that is not valid.
        ObjectRef::Block(object.copy_within(room).0)
    }
}

/// New memory of `words` words.
///
/// # Safety
/// This thread has a guard as long as the memory is used.
#[inline(never)]
unsafe fn memory_for_now<'a>(words: usize) -> &'a mut [MaybeUninit<u64>] {
    let guard = epoch::pin();
    let memory = slab::needed(slab::alloc_pinned(&guard, words * 8));
    // SAFETY: the memory is new and has no other user. It is retired once, so it lives until all present guards have ended.
    unsafe {
        guard.retire_memory(memory, words * 8);
        std::slice::from_raw_parts_mut(memory.cast().as_ptr(), words)
    }
}

/// The key of an entry's object.
///
/// # Safety
/// As for [`ObjectRef::new`].
#[inline]
pub unsafe fn key_of<'a>(entry: Entry, key: usize) -> TermRef<'a> {
    if is_immediate(entry.key) {
        return TermRef::immediate(entry.key);
    }
    // SAFETY: a key that is not an immediate is in the block.
    match unsafe { block(entry.body) } {
        Some(block) => block.element(key),
        None => unreachable!("an object without a block has an immediate key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cats_sync::epoch::{collect, pin};
    use cats_term::test_host::{counted, hold, install_test_host, record, retained, Form};
    use cats_term::{Builder, Class, View, NIL};

    const LAYOUT: Layout = Layout {
        key: 0,
        packed: false,
        leased: false,
    };

    /// A body stores the number of words of its block, unless they are too many.
    #[test]
    fn bodies_store_words() {
        let guard = pin();
        for arity in [3, 100, 0x7ffe, 0x7fff, 0xffff, 100_000] {
            let body = Object::flat(&vec![NIL; arity]).into_body(LAYOUT, &guard).unwrap();
            assert_eq!(words(body), Some(arity + 1).filter(|words| *words <= 0x7fff));
            assert_eq!(held(body), None);
            // SAFETY: the object lives until it is retired, and it is retired once.
            unsafe {
                assert_eq!(block(body).unwrap().arity(), arity);
                assert_eq!(body_bytes(body), block(body).unwrap().bytes());
                retire_body(&guard, body);
            }
        }
    }

    /// If something is held in a block, the body stores the weight, rounded up, and the number of words, unless they are too many.
    #[test]
    fn bodies_store_weights_of_held_blocks() {
        install_test_host(false);
        let mut builder = Builder::new();
        for arity in [2, 5, 1019, 1020, 4000] {
            builder.clear();
            let root = builder.tuple(arity);
            (0..arity).for_each(|slot| builder.set(root, slot, NIL));
            // SAFETY: the term lives forever.
            let term = unsafe { builder.held(Class::Fun, hold(Form::Opaque(7))) };
            builder.set(root, 1, term);
            let body = block_body(builder.finish().unwrap(), LAYOUT);
            assert_eq!((words(body), retained(7)), (None, 1));
            // SAFETY: the object lives until it is freed, and it is freed once.
            unsafe {
                let view = block(body).unwrap();
                assert_eq!(held(body).is_some(), view.words() < 1024, "{arity}");
                if let Some((words, weight)) = held(body) {
                    assert_eq!(words, view.words());
                    assert!((view.weight()..2 * view.weight()).contains(&weight), "{arity}");
                }
                assert_eq!(body_bytes(body), view.bytes());
                match arity % 2 {
                    0 => free_body(body),
                    _ => retire_body(&pin(), body),
                }
            }
            while arity % 2 != 0 && retained(7) != 0 {
                collect(usize::MAX);
            }
            assert_eq!(retained(7), 0);
        }
    }

    /// An object with a counted binary, also a packed one, is changed in place. Each copy has a reference of its own and gives it back.
    #[test]
    fn objects_with_counted_binaries_are_changed_in_place() {
        install_test_host(false);
        let (record, bytes) = record(&[7; 100]);
        for (arity, list, in_place) in [
            (3, 0, true),
            (3, 100, true),
            (500, 0, true),
            (900, 100, true),
            (1100, 0, false),
        ] {
            let layout = Layout {
                packed: list > 0,
                ..LAYOUT
            };
            let mut builder = Builder::new();
            let root = builder.tuple(arity);
            (0..arity).for_each(|slot| builder.set(root, slot, 0xf));
            // SAFETY: the bytes live forever.
            let binary = unsafe { builder.counted_binary(record, bytes) };
            builder.set(root, 1, binary);
            if list > 0 {
                let item = builder.proper_list(list);
                builder.set(root, 2, item.word());
            }
            let body = block_body(builder.finish().unwrap(), layout);
            let set = |words: &mut [u64]| {
                words[0] = 0x1f;
                Some(())
            };
            let guard = pin();
            // SAFETY: the objects live until they are freed, and each is freed once.
            unsafe {
                assert_eq!((counted(record), block(body).unwrap().has_packed()), (1, list > 0));
                assert!(changed(&guard, body, |_| None::<()>).is_none());
                assert_eq!(counted(record), 1);
                let (copy, ()) = changed(&guard, body, set).unwrap();
                assert_eq!((counted(record), is_changing(copy)), (2, in_place));
                free_body(body);
                assert_eq!(counted(record), 1);
                assert_eq!(change_in_place(copy, 0, |_| Some(0x2f)).is_some(), in_place);
                let object = ObjectRef::new(Entry { key: 0, body: copy }, 0);
                assert_eq!(object.element(0).word(), if in_place { 0x2f } else { 0x1f });
                assert_eq!(object.element(1).bytes(), Some(bytes));
                if list > 0 {
                    assert!(matches!(object.element(2).view(), View::List(found) if found.elements().len() == list));
                }
                let again = copy::copied(&guard, Entry { key: 0, body: copy }, 0, false).unwrap();
                assert_eq!((counted(record), is_changing(again)), (2, false));
                assert!(body_bytes(copy) >= body_bytes(again));
                free_body(again);
                match arity % 2 {
                    0 => free_body(copy),
                    _ => retire_body(&guard, copy),
                }
            }
            drop(guard);
            while arity % 2 != 0 && counted(record) != 0 {
                collect(usize::MAX);
            }
            assert_eq!(counted(record), 0, "{arity}");
        }
    }

    /// The lease is found by the body, for objects of any size, with held terms, and changed in place.
    #[test]
    fn leases_are_found() {
        install_test_host(false);
        let guard = pin();
        let lease = |body| {
            // SAFETY: the object lives until it is freed.
            unsafe { lease_of(body) }.load()
        };
        let given = Request::Given(1234);
        for arity in [1, 2, 3, 100, 0x7ffd, 0x7ffe, 0xffff] {
            let elements = vec![NIL; arity];
            let body = Object::flat(&elements).into_leased_body(given, &guard).unwrap();
            assert_eq!(lease(body).request(), given);
            // SAFETY: the object lives, nobody else knows it, and it is freed once.
            unsafe {
                assert_eq!(block(body).unwrap().elements_raw(), elements);
                lease_of(body).store(Lease::new(77, 3));
                if let Some((copy, ())) = changed(&guard, body, |words| words.last_mut().map(|word| *word = 0x1f)) {
                    assert_eq!(is_changing(copy), arity + 2 <= CHANGING_LIMIT);
                    assert_eq!(lease(copy), Lease::new(77, 3));
                    retire_body(&guard, copy);
                }
                free_body(body);
            }
        }
        for arity in [2, 5, 1019, 1020, 4000] {
            let mut builder = Builder::new();
            let root = builder.tuple(arity);
            (0..arity).for_each(|slot| builder.set(root, slot, NIL));
            // SAFETY: the term lives forever.
            let term = unsafe { builder.held(Class::Fun, hold(Form::Opaque(9))) };
            builder.set(root, 1, term);
            let block = builder.finish().unwrap();
            let words: Vec<u64> = block.as_ref().elements_raw().to_vec();
            let body = Object::in_block(&words, block).into_leased_body(given, &guard).unwrap();
            assert_eq!((lease(body).request(), retained(9)), (given, 1), "{arity}");
            // SAFETY: as above.
            unsafe { free_body(body) };
            assert_eq!(retained(9), 0, "{arity}");
        }
    }

    /// In a large block, held terms are given back item by item.
    #[test]
    fn large_blocks_are_freed_in_steps() {
        install_test_host(false);
        let mut builder = Builder::new();
        let root = builder.tuple(FREE_IN_SLICES);
        (0..FREE_IN_SLICES).for_each(|slot| builder.set(root, slot, NIL));
        for slot in [1, 2, 3] {
            // SAFETY: the term lives forever.
            let term = unsafe { builder.held(Class::Fun, hold(Form::Opaque(8))) };
            builder.set(root, slot, term);
        }
        let body = block_body(builder.finish().unwrap(), LAYOUT);
        assert_eq!(held(body), None);
        // SAFETY: this test owns the block, and frees it once.
        let mut rest = Some(Dismantled::new(unsafe { block_of(body) }));
        for left in [2, 1, 0] {
            rest = rest.expect("more items").step(1);
            assert_eq!(retained(8), left);
        }
        assert!(rest.expect("the memory").step(1).is_none());
    }
}
