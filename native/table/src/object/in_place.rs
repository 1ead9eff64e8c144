//! Changes of objects: in place, and in copies that are changed in place from then on.

use super::body::{address, block, changing, held_size_bits, prefetch_small, size_bits, word_of, CHANGING};
use crate::object::{block_body, Layout, ADDRESS_BITS, COPY_LIMIT};
use cats_sync::epoch::Guard;
use cats_term::{BlockRef, ChangingRef, NewElement, Rebuilt, State, TermRef, CHANGING_LIMIT};

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
