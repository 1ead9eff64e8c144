//! Objects of `compressed` tables. The words of their blocks are compressed by LZ4. Their keys stay readable.
//!
//! A packed object is the tuple `{BOTTOM, Words, Key, Bytes}`. `BOTTOM` is a word that no term of the VM has. `Words` is the number of
//! words that the bytes unpack to. `Key` is the key, and `Bytes` are the compressed words of the object's block. An object is not packed if
//! it is small, if packing does not make it smaller, or if it has held or counted terms.

use cats_sync::epoch;
use cats_sync::slab;
use cats_term::{small, Block, BlockRef, Builder, TermRef, BOTTOM};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use std::cell::RefCell;

/// Blocks of fewer words are not packed.
const WORTHWHILE: usize = 16;
/// The number of words of scratch memory that is kept from one call to the next.
const KEPT: usize = 1 << 13;

thread_local! {
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static WORDS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The object in packed form, if that is smaller. Otherwise the object as it is.
pub fn pack(block: Block, key: usize) -> Block {
    let view = block.as_ref();
    if view.words() < WORTHWHILE || view.has_held() {
        return block;
    }
    let packed = BYTES.with_borrow_mut(|bytes| {
        let words = view.as_words();
        // SAFETY: words may be read as bytes. A block without held terms never changes.
        let source = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
        bytes.resize(get_maximum_output_size(source.len()), 0);
        let length = compress_into(source, bytes).ok()?;
        let mut builder = Builder::new();
        let root = builder.tuple(4);
        builder.set(root, 0, BOTTOM);
        builder.set(root, 1, small(words.len() as i64)?);
        let key = builder.copy(view.element(key));
        builder.set(root, 2, key);
        let data = builder.binary(&bytes[..length]);
        builder.set(root, 3, data);
        bytes.clear();
        bytes.shrink_to(8 * KEPT);
        if builder.words() >= words.len() {
            return None;
        }
        builder.finish()
    });
    packed.unwrap_or(block)
}

/// Whether an object is in packed form.
#[inline]
pub fn is_packed(block: BlockRef<'_>) -> bool {
    // Reads a single element, because the object may be one that is being changed in place.
    block.arity() == 4 && block.element(0).word() == BOTTOM
}

/// The key of a packed object.
#[inline]
pub fn key(block: BlockRef<'_>) -> TermRef<'_> {
    block.element(2)
}

/// The number of words of the unpacked object.
#[inline]
pub fn unpacked_words(packed: BlockRef<'_>) -> usize {
    packed.element(1).small().expect("a packed object") as usize
}

/// The unpacked object, in memory that lives as long as the thread's present guards.
///
/// # Safety
/// The block is packed, and this thread has a guard during `'a`.
#[cold]
pub unsafe fn unpack<'a>(packed: BlockRef<'_>) -> BlockRef<'a> {
    let block = WORDS.with_borrow_mut(|words| {
        let count = unpacked_words(packed);
        let source = packed.element(3).bytes().expect("a packed object");
        words.resize(count, 0);
        // SAFETY: words may be written as bytes, as any bytes are valid words.
        let target = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 8 * count) };
        let length = decompress_into(source, target).expect("what was packed unpacks");
        assert_eq!(length, 8 * count);
        // SAFETY: these are the words of a block without held terms.
        let block = slab::needed(unsafe { Block::from_words(words, &epoch::pin()) });
        words.clear();
        words.shrink_to(KEPT);
        block
    });
    let bytes = block.as_ref().bytes();
    let address = block.into_raw();
    // SAFETY: only this thread knows the block, and uses it only while it has its guard. The block is retired once, so it lives until that
    // guard has ended.
    unsafe {
        epoch::pin().retire_sized(address.as_ptr().cast(), 0, Block::free, bytes);
        BlockRef::from_raw(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cats_term::View;

    fn object(list: usize) -> Block {
        let mut builder = Builder::new();
        let root = builder.tuple(2);
        let key = builder.float(1.5);
        builder.set(root, 0, key);
        let item = builder.list(list);
        for slot in 0..list {
            builder.set(item, slot, small(slot as i64 % 5).unwrap());
        }
        builder.set(root, 1, item.word());
        builder.finish().unwrap()
    }

    #[test]
    fn packed_objects_are_smaller_and_come_back_as_they_were() {
        let words = object(1000).as_ref().words();
        let packed = pack(object(1000), 0);
        assert!(is_packed(packed.as_ref()));
        assert!(packed.as_ref().words() < words / 4);
        assert!(matches!(key(packed.as_ref()).view(), View::Float(value) if value == 1.5));
        let _guard = epoch::pin();
        // SAFETY: this thread has a guard.
        let unpacked = unsafe { unpack(packed.as_ref()) };
        assert_eq!(unpacked.as_words(), object(1000).as_ref().as_words());
    }

    #[test]
    fn small_objects_stay_as_they_are() {
        assert!(!is_packed(pack(object(5), 0).as_ref()));
    }
}
