//! Items of timer wheels and of queues, by which the object of a key is found again. In a `hash`, an item is half of the key's place in the
//! order of walks: 4 bytes. In a `ca`, it is the key: 8 bytes if that is an immediate, otherwise a copy of it.

use crate::evict::item::Item;
use crate::expiry::wheel::Owner;
use crate::object::schema::{OwnedKey, Probe};
use crate::object::{key_of, owned_key_bytes, unseated};
use cats_engine::{hash_of, mix, place_of, Entry};
use cats_term::{is_immediate, TermRef, NIL};

/// An item that is made from a key.
pub trait KeyItem: Item + Send {
    /// The item for the key of an entry, whose key is at position `key` of its object.
    ///
    /// # Safety
    /// The entry's object lives.
    unsafe fn of(entry: Entry, key: usize) -> Self;

    /// The [hash](Item::hash) of the item for a key.
    fn hash_for(probe: &Probe<'_>) -> u32;

    /// The bytes that the item for the key of this object owns.
    ///
    /// # Safety
    /// The body is that of an object which lives.
    unsafe fn bytes_for(_body: u64, _key: usize) -> usize {
        0
    }
}

/// The item of a `hash`.
impl KeyItem for u32 {
    #[inline]
    unsafe fn of(entry: Entry, _key: usize) -> Self {
        place_item(entry.key)
    }

    #[inline]
    fn hash_for(probe: &Probe<'_>) -> u32 {
        place_item(probe.word()).hash()
    }
}

/// The item of a `hash` for the key of this word.
#[inline]
pub fn place_item(word: u64) -> u32 {
    (place_of(word) >> 32) as u32
}

/// The item of a `ca`: an immediate key, or the address of a copy that belongs to the item.
pub struct CopiedKey(u64);

// SAFETY: the item owns what it refers to.
unsafe impl Send for CopiedKey {}

impl Default for CopiedKey {
    fn default() -> Self {
        Self(NIL)
    }
}

impl CopiedKey {
    fn new(key: TermRef<'_>) -> Self {
        match key.is_immediate() {
            true => Self(key.word()),
            false => Self(Box::into_raw(Box::new(OwnedKey::new(key))) as u64),
        }
    }

    /// Calls `f` with the probe for the key.
    pub fn with_probe<R>(&self, f: impl FnOnce(&Probe<'static>) -> R) -> R {
        match is_immediate(self.0) {
            true => f(Probe::ordered(TermRef::immediate(self.0)).erase()),
            // SAFETY: made by `new`, and dropped with the item.
            false => f(unsafe { &*(self.0 as *const OwnedKey) }.probe().erase()),
        }
    }
}

impl Drop for CopiedKey {
    fn drop(&mut self) {
        if !is_immediate(self.0) {
            // SAFETY: as in `with_probe`.
            drop(unsafe { Box::from_raw(self.0 as *mut OwnedKey) });
        }
    }
}

impl Owner for CopiedKey {
    fn owned_bytes(&self) -> usize {
        match is_immediate(self.0) {
            true => 0,
            // SAFETY: as in `with_probe`.
            false => unsafe { &*(self.0 as *const OwnedKey) }.bytes(),
        }
    }
}

impl Item for CopiedKey {
    fn hash(&self) -> u32 {
        self.with_probe(|probe| Self::hash_for(probe))
    }
}

impl KeyItem for CopiedKey {
    unsafe fn of(entry: Entry, key: usize) -> Self {
        // SAFETY: as the caller promises.
        Self::new(unsafe { key_of(unseated(entry), key) })
    }

    fn hash_for(probe: &Probe<'_>) -> u32 {
        mix(hash_of(probe.word())) as u32
    }

    #[inline]
    unsafe fn bytes_for(body: u64, key: usize) -> usize {
        // SAFETY: as the caller promises.
        unsafe { owned_key_bytes(unseated(Entry { key: 0, body }).body, key) }
    }
}
