//! Objects as tables hold them: the body word of an [`Entry`] (docs/internals/objects.md), objects on their way in, and
//! objects to read.

pub(crate) mod group;
pub(crate) mod packed;
pub(crate) mod schema;

use crate::failure::Failure;
use crate::object::schema::Probe;
use crate::registry::reaper::{self, Garbage};
use cats_engine::Entry;
use cats_sync::epoch::{self, Guard};
use cats_sync::slab;
use cats_term::{
    block_weight, bytes_of, is_immediate, key_word_of_part, Block, BlockRef, ChangingRef, Dismantled, Scratch, Short,
    TermRef, CHANGING_LIMIT,
};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::num::NonZeroU64;
use std::ptr::NonNull;

/// The body of `{Key}`.
pub const SINGLE: u64 = 1;
/// The low bits of a body that is the address of a group.
pub const GROUP: u64 = 2;
const TAG: u64 = 3;
/// Beside the tag of a block: elements of the object are changed in place.
const CHANGING: u64 = 4;
/// The bits of a body that refers to memory which are the address; those above tell the size of a block.
pub const ADDRESS_BITS: u32 = 48;
/// In those bits: something in the block is held. Then its words are fewer bits, and above them it is told what it weighs.
const HELD: u64 = 1 << 15;
const HELD_WORDS: u64 = (1 << WEIGHT_AT) - 1;
const WEIGHT_AT: u32 = 10;
const MAX_WEIGHT: u64 = (1 << (15 - WEIGHT_AT)) - 1;
/// Bytes that the lowest weight stands for; each further one for twice as many.
const LEAST_WEIGHT: usize = 64;

/// Whether the body is the address of a group: all objects of one key.
#[inline]
pub fn is_group(body: u64) -> bool {
    body & TAG == GROUP
}

/// Whether the body refers to memory, a block or a group.
#[inline]
pub fn refers(body: u64) -> bool {
    body & SINGLE == 0
}

/// Whether the body is the address of a block.
#[inline]
pub fn is_block(body: u64) -> bool {
    body & TAG == 0
}

/// Whether the body is the address of a block of which elements are changed in place.
#[inline]
pub fn is_changing(body: u64) -> bool {
    body & (TAG | CHANGING) == CHANGING
}

/// How the objects of a table are stored.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The place of the key, counted from 0.
    pub key: usize,
    /// Objects are packed when that makes them smaller.
    pub packed: bool,
}

/// An object to store.
pub struct Object<'a> {
    elements: &'a [u64],
    block: Option<InBlock>,
    /// The [`key_word`](cats_term::key_word) of the key, if it is known.
    key_word: Option<NonZeroU64>,
}

/// The body of an object in a block, not packed, that nobody else knows yet.
struct InBlock(NonZeroU64);

impl InBlock {
    /// The block is that of a tuple with other elements than immediates, and has so many words; if something in it is held or counted, it
    /// `weighs` something.
    #[inline(always)]
    fn new(block: Block, words: usize, weighs: Option<usize>) -> Self {
        let tells = match weighs {
            None => told(words),
            Some(weight) => told_of_held(words, weight),
        };
        let body = word_of(block.into_raw()) | tells << ADDRESS_BITS;
        // SAFETY: addresses of blocks are never null.
        Self(unsafe { NonZeroU64::new_unchecked(body) })
    }

    #[inline(always)]
    fn into_body(self) -> u64 {
        ManuallyDrop::new(self).0.get()
    }

    #[inline(always)]
    fn view(&self) -> BlockRef<'_> {
        // SAFETY: the body refers to a block, which is this value's own.
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

    /// A tuple that has others, too. Its immediate elements are given, so reading them need not wait for the block. The words in
    /// the places of the others do not matter, but are no immediates.
    #[inline(always)]
    pub fn in_block(elements: &'a [u64], block: Block) -> Self {
        let view = block.as_ref();
        debug_assert!(!view.is_flat());
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

    /// A tuple of which the element with this index is `part`, and all others are immediates, in a block: see [`Block::of_short`]. Nothing
    /// when memory is exhausted. `hashed`: the part is the key of a table that matches keys exactly.
    #[inline(always)]
    pub fn of_short(elements: &'a [u64], index: usize, part: Short<'_>, hashed: bool, guard: &Guard) -> Option<Self> {
        let key_word = match hashed {
            true => key_word_of_part(&part).and_then(NonZeroU64::new),
            false => None,
        };
        let (words, kept) = (part.words_with(elements.len()), part.kept_bytes());
        let block = Block::of_short(elements, index, part, guard)?;
        let weighs = kept.map(|bytes| block_weight(words, bytes));
        Some(Self {
            elements,
            block: Some(InBlock::new(block, words, weighs)),
            key_word,
        })
    }

    /// The key to search for, at this place, of a table that matches keys exactly.
    #[inline(always)]
    pub(crate) fn exact_probe(&self, key: usize) -> Probe<'_> {
        match (self.elements[key], self.key_word) {
            (word, _) if is_immediate(word) => Probe::exact(TermRef::immediate(word)),
            (_, Some(word)) => Probe::known(self.element(key), word.get()),
            (_, None) => Probe::exact(self.element(key)),
        }
    }

    /// How many times as long as that of a tuple of immediates the insertion takes at worst.
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

    /// The words that it takes to store the object, roughly.
    #[inline]
    pub fn words(&self) -> usize {
        self.block
            .as_ref()
            .map_or(self.elements.len(), |block| block.view().words())
    }

    /// Element `index`, counted from 0; panics when there is none.
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

    /// The body word of a tuple of immediates that needs no block.
    #[inline(always)]
    pub fn inline(&self, layout: Layout) -> Option<u64> {
        inline(self.immediates()?, layout.key)
    }

    /// The object's body word, in the form that the layout asks for. Nothing when memory is exhausted.
    #[inline(always)]
    pub fn into_body(self, layout: Layout, guard: &Guard) -> Option<u64> {
        match self.block {
            // SAFETY: the block is this value's own.
            Some(block) if layout.packed => Some(unsafe { stored(block_of(block.into_body()), layout) }),
            Some(block) => Some(block.into_body()),
            None => match inline(self.elements, layout.key) {
                Some(body) => Some(body),
                None => Block::flat(self.elements, guard).map(|block| stored(block, layout)),
            },
        }
    }
}

/// The body of a block's tuple: the block, unless it can do without.
#[inline(always)]
pub fn block_body(block: Block, layout: Layout) -> u64 {
    match block.as_ref().is_flat() {
        true => flat_body(block, layout),
        false => stored(block, layout),
    }
}

/// The same of a tuple of immediates: a pair may have become one.
#[cold]
fn flat_body(block: Block, layout: Layout) -> u64 {
    match inline(block.as_ref().elements_raw(), layout.key) {
        Some(body) => body,
        None => stored(block, layout),
    }
}

/// The body of a tuple that needs a block.
#[inline(always)]
fn stored(block: Block, layout: Layout) -> u64 {
    match layout.packed {
        true => address(packed::pack(block, layout.key)),
        false => address(block),
    }
}

/// The body of a tuple of immediates that needs no block.
#[inline]
fn inline(words: &[u64], key: usize) -> Option<u64> {
    match *words {
        [_] => Some(SINGLE),
        [first, second] => Some(if key == 0 { second } else { first }),
        _ => None,
    }
}

/// The body that refers to a block.
#[inline(always)]
fn address(block: Block) -> u64 {
    let view = block.as_ref();
    let words = view.words();
    let tells = match view.has_held() {
        true => told_of_held(words, view.weight()),
        false => told(words),
    };
    word_of(block.into_raw()) | tells << ADDRESS_BITS
}

/// What a body tells of a block of so many words.
#[inline(always)]
fn told(words: usize) -> u64 {
    match words as u64 {
        words if words < HELD => words,
        _ => 0,
    }
}

/// The same of one in which something is held, and which weighs so much.
#[inline]
fn told_of_held(words: usize, weight: usize) -> u64 {
    let weight = u64::from(weight.div_ceil(LEAST_WEIGHT).next_power_of_two().ilog2());
    match words as u64 {
        words if words <= HELD_WORDS && weight <= MAX_WEIGHT => HELD | weight << WEIGHT_AT | words,
        _ => 0,
    }
}

#[inline(always)]
fn word_of(address: NonNull<u64>) -> u64 {
    let address = address.as_ptr() as u64;
    // The kernel gives addresses that are longer only to who asks for them.
    assert!(address >> ADDRESS_BITS == 0);
    address
}

/// The words of memory of the block that the body refers to, where it tells them and nothing in the block is held: then who replaces
/// or deletes the object need not wait for it.
#[inline]
fn words(body: u64) -> Option<usize> {
    let tells = body >> ADDRESS_BITS;
    (tells.wrapping_sub(1) < HELD - 1).then_some(tells as usize)
}

/// The same of one in which something is held, and what it weighs, or up to twice as much.
#[inline]
fn held(body: u64) -> Option<(usize, usize)> {
    let tells = body >> ADDRESS_BITS;
    let weight = LEAST_WEIGHT << (tells >> WEIGHT_AT & MAX_WEIGHT);
    (tells & HELD != 0).then_some(((tells & HELD_WORDS) as usize, weight))
}

/// Changes one element, an immediate, into another, in place: its new word. Nothing, and nothing is done, if the object is not one that
/// is [changed in place](is_changing), there is no such element, `change` gives nothing, or a reader asked for rest.
///
/// # Safety
/// The object's place is locked. `index` is not that of the key. `change` gives immediates, and of immediates only.
#[inline(always)]
pub unsafe fn change_in_place(body: u64, index: usize, change: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
    // SAFETY: as the caller promises.
    unsafe { changing(body)?.change(index, change) }
}

/// The body of a copy of an object with what `change` does to its element words: one that is changed in place from now on, if it is small.
/// Nothing if that gives nothing, the object is not in a block, or packed, or of more than [`COPY_LIMIT`] words, or has held terms, or
/// memory is exhausted.
///
/// # Safety
/// The object's place is locked. `change` leaves the key as it is, and puts immediates only in the place of immediates.
#[inline]
pub unsafe fn changed<R>(guard: &Guard, body: u64, change: impl FnOnce(&mut [u64]) -> Option<R>) -> Option<(u64, R)> {
    prefetch_small(body);
    let is_readable = |block: &BlockRef<'_>| is_changing(body) || !packed::is_packed(*block);
    // SAFETY: as the caller promises.
    let block = unsafe { block(body) }.filter(|block| is_readable(block) && block.words() <= COPY_LIMIT)?;
    if block.words() > CHANGING_LIMIT || block.has_held() {
        // SAFETY: as the caller promises.
        let (block, result) = unsafe { block.changed(guard, change) }?;
        return Some((address(block), result));
    }
    // SAFETY: as the caller promises. The body tells the words of memory.
    let (block, result) = unsafe { ChangingRef::changed(block, guard, change) }?;
    Some((changing_address(block), result))
}

/// The body that refers to a block which is changed in place.
#[inline]
fn changing_address(block: ChangingRef<'_>) -> u64 {
    // The count is part of its memory.
    let words = block.words() as u64 + 1;
    word_of(block.address()) | words << ADDRESS_BITS | CHANGING
}

/// What a body refers to: a block, or a group.
#[inline]
pub fn referent(body: u64) -> *mut u8 {
    (body & ((1 << ADDRESS_BITS) - 1) & !(TAG | CHANGING)) as *mut u8
}

/// Asks the processor for the first line of what the body refers to.
#[inline]
pub fn prefetch(body: u64) {
    cats_sync::prefetch(referent(body).cast_const());
}

/// Asks it for all lines of the block of a body that tells its words, if these are no more than can be changed in place. They are known
/// before the first of them is there.
#[inline]
fn prefetch_small(body: u64) {
    if let Some(words) = words(body).filter(|words| *words <= CHANGING_LIMIT) {
        let at = referent(body).cast_const();
        for word in (0..words).step_by(8).chain([words - 1]) {
            cats_sync::prefetch(at.wrapping_add(8 * word));
        }
    }
}

/// By how many bytes the block of a body is larger than that of another, which may not be there either.
///
/// # Safety
/// As for [`body_bytes`], of both.
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

/// Bytes of the block that the body refers to; 0 for inline objects.
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

/// Frees an object that nobody else can see.
///
/// # Safety
/// The body is not that of a group, came from [`Object::into_body`], and nobody uses it any more.
#[inline]
pub unsafe fn free_body(body: u64) {
    if is_block(body) {
        // SAFETY: as the caller promises.
        unsafe { free_block(body) }
    }
}

/// [`free_body`] of an object in a block: out of line, as that is asked at the end of each insertion, where nothing is left to be freed.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn free_block(body: u64) {
    // SAFETY: the address of a block that has no other user.
    unsafe {
        match words(body) {
            Some(words) => Block::free_words(referent(body), words),
            None if leave_to_reaper(body) => enqueue_block(referent(body), 0),
            None => Block::free(referent(body), 0),
        }
    }
}

/// Words from which on the reaper frees a block in which something is held, in slices. The body of such a block does not tell them.
const FREE_IN_SLICES: usize = 4 << 10;
const _: () = assert!(FREE_IN_SLICES > HELD_WORDS as usize);

/// Whether the block is one for the reaper, which is told so.
///
/// # Safety
/// The body is the address of a block, which lives.
#[inline]
unsafe fn leave_to_reaper(body: u64) -> bool {
    if held(body).is_some() {
        return false;
    }
    // SAFETY: as the caller promises.
    let large = unsafe { block(body) }.is_some_and(|block| block.has_held() && block.words() >= FREE_IN_SLICES);
    if large {
        reaper::expect();
    }
    large
}

/// Leaves a block to the reaper, which has been told so; fits `cats_sync::epoch::Drop`.
///
/// # Safety
/// The address came from [`Block::into_raw`], and nobody reads the block any more.
unsafe fn enqueue_block(address: *mut u8, _: usize) {
    // SAFETY: as the caller promises; addresses of blocks are never null.
    let block = unsafe { Block::from_raw(NonNull::new_unchecked(address.cast())) };
    reaper::enqueue(Garbage::Block(Dismantled::new(block)));
}

/// Frees an object once nobody can be reading it.
///
/// # Safety
/// As for [`free_body`], but that others may still be reading it under guards.
#[inline]
pub unsafe fn retire_body(guard: &Guard, body: u64) {
    if is_block(body) {
        // SAFETY: unlinked, as the caller promises, and retired once.
        unsafe {
            match words(body) {
                Some(words) => block_of(body).retire_words(guard, words),
                None => retire_otherwise(guard, body),
            }
        }
    }
}

/// [`retire_body`] of a block in which something is held, or that is large.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn retire_otherwise(guard: &Guard, body: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        match held(body) {
            Some((words, weight)) => block_of(body).retire_held(guard, words, weight),
            None if leave_to_reaper(body) => guard.retire_sized(referent(body), 0, enqueue_block, FREE_IN_SLICES * 8),
            None => block_of(body).retire(guard),
        }
    }
}

/// # Safety
/// The body is the address of a block, which is the caller's to retire.
#[inline]
unsafe fn block_of(body: u64) -> Block {
    // SAFETY: as the caller promises; addresses of blocks are never null.
    unsafe { Block::from_raw(NonNull::new_unchecked(referent(body).cast())) }
}

/// As [`retire_body`]; the [bytes](body_bytes) that go with it.
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

/// The word of an element of an object in a block that is not packed.
///
/// # Safety
/// It is one, lives, and is in no place any more.
#[inline]
pub unsafe fn element_word(body: u64, index: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { block(body) }.expect("a block").elements_raw()[index]
}

/// Words of a stored object beyond which a copy of it takes too long for a scheduler.
pub const COPY_LIMIT: usize = 16 << 10;

/// The words of the block that the object is read from, 0 of an inline one. Does not unpack it.
///
/// # Safety
/// The body is not that of a group, and the object lives.
#[inline]
pub unsafe fn words_to_read(body: u64) -> usize {
    // SAFETY: as the caller promises.
    match unsafe { block(body) } {
        Some(block) if !is_changing(body) && packed::is_packed(block) => packed::unpacked_words(block),
        Some(block) => block.words(),
        None => 0,
    }
}

/// # Safety
/// The block that the body refers to, if any, lives for `'a`.
#[inline]
unsafe fn block<'a>(body: u64) -> Option<BlockRef<'a>> {
    if !is_block(body) {
        return None;
    }
    // SAFETY: bodies with these low bits are addresses of blocks, never 0.
    Some(unsafe { BlockRef::from_raw(NonNull::new_unchecked(referent(body).cast())) })
}

/// # Safety
/// The block that the body refers to, if any, lives for `'a`.
#[inline]
unsafe fn changing<'a>(body: u64) -> Option<ChangingRef<'a>> {
    is_changing(body).then(|| {
        let words = (body >> ADDRESS_BITS) as usize - 1;
        // SAFETY: bodies of this kind come from `changing_address`.
        unsafe { ChangingRef::from_raw(NonNull::new_unchecked(referent(body).cast()), words) }
    })
}

/// An object to read.
#[derive(Clone, Copy)]
pub enum ObjectRef<'a> {
    /// `{Key}`, an immediate.
    Single([u64; 1]),
    /// A pair of immediates.
    Pair([u64; 2]),
    Block(BlockRef<'a>),
}

impl<'a> ObjectRef<'a> {
    /// The object of an entry; `key` is the key's place, counted from 0.
    ///
    /// # Safety
    /// The body is not that of a group, its block, if any, lives for `'a`, and this thread has a guard during `'a`.
    #[inline]
    pub unsafe fn new(entry: Entry, key: usize) -> ObjectRef<'a> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) => Copies::new(changing.words()).copy(changing),
                None => Self::stored(entry, key).unpacked(),
            }
        }
    }

    /// As [`new`](Self::new), but fails with [`Failure::Big`] where it takes too long to unpack the object for a caller that is not
    /// `patient`, which is only asked then.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline]
    pub unsafe fn read(entry: Entry, key: usize, patient: impl FnOnce() -> bool) -> Result<ObjectRef<'a>, Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) => Ok(Copies::new(changing.words()).copy(changing)),
                None => Self::read_in_place(entry, key, patient),
            }
        }
    }

    /// As [`read`](Self::read), where there is room for a copy of an object that is changed in place.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub unsafe fn read_within(
        entry: Entry,
        key: usize,
        patient: impl FnOnce() -> bool,
        scratch: &'a mut Scratch,
    ) -> Result<ObjectRef<'a>, Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) => Ok(ObjectRef::Block(changing.copy_within(&mut scratch.0))),
                None => Self::read_in_place(entry, key, patient),
            }
        }
    }

    /// As [`read`](Self::read), but without a copy: of an object that is [changed in place](is_changing) one
    /// [element](Self::element) may be read.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub unsafe fn read_in_place(
        entry: Entry,
        key: usize,
        patient: impl FnOnce() -> bool,
    ) -> Result<ObjectRef<'a>, Failure> {
        // SAFETY: as the caller promises.
        match unsafe { Self::stored(entry, key) } {
            ObjectRef::Block(block) if packed::is_packed(block) => {
                if packed::unpacked_words(block) > COPY_LIMIT && !patient() {
                    return Err(Failure::Big);
                }
                // SAFETY: as the caller promises.
                Ok(ObjectRef::Block(unsafe { packed::unpack(block) }))
            }
            object => Ok(object),
        }
    }

    /// The words that [`unpacked`](Self::unpacked) has to unpack, 0 of an object that is not packed.
    #[inline]
    pub fn packed_words(&self) -> usize {
        match self {
            ObjectRef::Block(block) if packed::is_packed(*block) => packed::unpacked_words(*block),
            _ => 0,
        }
    }

    /// The object as it is read, if this is how it is [stored](Self::stored).
    ///
    /// # Safety
    /// It lives, and this thread has a guard during `'a`.
    #[inline]
    pub unsafe fn unpacked(self) -> ObjectRef<'a> {
        match self {
            // SAFETY: as the caller promises.
            ObjectRef::Block(block) if packed::is_packed(block) => ObjectRef::Block(unsafe { packed::unpack(block) }),
            object => object,
        }
    }

    /// As [`new`](Self::new), in the form in which it is stored. Does not read the block.
    ///
    /// # Safety
    /// As for [`new`](Self::new). Elements of an object that is [changed in place](is_changing) are read only where its place is locked.
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

    /// Asks the processor for the object's memory, and for that of the element `index`, counted from 0.
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

    /// Element `index`, counted from 0; panics when there is none.
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

    /// The words that it takes to copy the object into a process, roughly.
    #[inline]
    pub fn words(&self) -> usize {
        match self {
            ObjectRef::Block(block) => block.words(),
            other => other.arity() + 1,
        }
    }

    /// The same tuple with other elements at some places, counted from 0; the last change of a place counts. Nothing when
    /// memory is exhausted.
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

/// Memory for copies of objects that are changed in place, which lives as long as the guards that its thread has.
pub struct Copies {
    words: usize,
    /// What is left of the memory, once there is some.
    free: &'static mut [MaybeUninit<u64>],
}

impl Copies {
    /// Takes memory for so many words at a time, when it is needed.
    pub fn new(words: usize) -> Self {
        let free = &mut [];
        Self { words, free }
    }

    /// The object of such an entry as it is at one instant.
    ///
    /// # Safety
    /// As for [`ObjectRef::new`], and it [is one](is_changing).
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
        ObjectRef::Block(object.copy_within(room))
    }
}

/// So many words.
///
/// # Safety
/// This thread has a guard as long as they are used.
#[inline(never)]
unsafe fn memory_for_now<'a>(words: usize) -> &'a mut [MaybeUninit<u64>] {
    let guard = epoch::pin();
    let memory = slab::needed(slab::alloc_pinned(&guard, words * 8));
    // SAFETY: the memory is new, and has no other user; it is retired once, and lives until the guards that there are now end.
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
    // SAFETY: a key that is no immediate is in the block.
    match unsafe { block(entry.body) } {
        Some(block) if !is_changing(entry.body) && packed::is_packed(block) => packed::key(block),
        Some(block) => block.element(key),
        None => unreachable!("an object without a block has an immediate key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cats_sync::epoch::{collect, pin};
    use cats_term::test_host::{hold, install_test_host, retained, Form};
    use cats_term::{Builder, Class, NIL};

    const LAYOUT: Layout = Layout { key: 0, packed: false };

    /// A body tells the words of its block, but for those that are too many, and what it weighs where something is held.
    #[test]
    fn bodies_tell_words() {
        let guard = pin();
        for arity in [3, 100, 0x7ffe, 0x7fff, 0xffff, 100_000] {
            let body = Object::flat(&vec![NIL; arity]).into_body(LAYOUT, &guard).unwrap();
            assert_eq!(words(body), Some(arity + 1).filter(|words| *words <= 0x7fff));
            assert_eq!(held(body), None);
            // SAFETY: the object lives until it is retired, which it is once.
            unsafe {
                assert_eq!(block(body).unwrap().arity(), arity);
                assert_eq!(body_bytes(body), block(body).unwrap().bytes());
                retire_body(&guard, body);
            }
        }
    }

    /// Of a block in which something is held a body tells the words, unless they are many, and what it weighs, or up to twice as much.
    #[test]
    fn bodies_tell_what_held_blocks_weigh() {
        install_test_host(false);
        let mut builder = Builder::new();
        for arity in [2, 5, 1019, 1020, 4000] {
            builder.clear();
            let root = builder.tuple(arity);
            (0..arity).for_each(|slot| builder.set(root, slot, NIL));
            // SAFETY: the term lives for ever.
            let term = unsafe { builder.held(Class::Fun, hold(Form::Opaque(7))) };
            builder.set(root, 1, term);
            let body = block_body(builder.finish().unwrap(), LAYOUT);
            assert_eq!((words(body), retained(7)), (None, 1));
            // SAFETY: the object lives until it is freed, which it is once.
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

    /// What is held in a large block is given back item by item.
    #[test]
    fn large_blocks_are_freed_in_steps() {
        install_test_host(false);
        let mut builder = Builder::new();
        let root = builder.tuple(FREE_IN_SLICES);
        (0..FREE_IN_SLICES).for_each(|slot| builder.set(root, slot, NIL));
        for slot in [1, 2, 3] {
            // SAFETY: the term lives for ever.
            let term = unsafe { builder.held(Class::Fun, hold(Form::Opaque(8))) };
            builder.set(root, slot, term);
        }
        let body = block_body(builder.finish().unwrap(), LAYOUT);
        assert_eq!(held(body), None);
        // SAFETY: the block is this test's own, which frees it once.
        let mut rest = Some(Dismantled::new(unsafe { block_of(body) }));
        for left in [2, 1, 0] {
            rest = rest.expect("more items").step(1);
            assert_eq!(retained(8), left);
        }
        assert!(rest.expect("the memory").step(1).is_none());
    }
}
