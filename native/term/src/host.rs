//! What the VM has to do for terms: installed once when the library is loaded, so that this crate needs no VM.

use crate::format::{Class, TermRef};
use cats_sync::facade::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::cmp::Ordering;
use std::sync::OnceLock;

/// The functions of the VM. "Words" are words of the VM: immediates and held terms.
#[derive(Clone, Copy)]
pub struct Host {
    /// Compares two words in term order (`==` and `<`).
    pub compare: fn(u64, u64) -> Ordering,
    /// Whether two words are exactly the same term (`=:=`).
    pub identical: fn(u64, u64) -> bool,
    /// Appends the text of an atom in UTF-8.
    pub atom_text: fn(u64, &mut Vec<u8>),
    /// Whether `0.0 =:= -0.0`: so before OTP 27.
    pub zeros_identical: bool,
    /// Compares in term order two terms of one class of which one is held and the other is not.
    pub compare_mixed: fn(TermRef<'_>, TermRef<'_>) -> Ordering,
    /// Whether two terms of one class are exactly the same, when one is held and the other is not.
    pub identical_mixed: fn(TermRef<'_>, TermRef<'_>) -> bool,
    /// Appends the bits of a held bit string, the last byte filled up with zeros, and returns how many of them there are.
    pub bits: fn(u64, &mut Vec<u8>) -> usize,
    /// Keeps a term of a new stored object, which belongs to the caller or (if it has a batch) to another object: copies it
    /// into a batch and [relocates](Held::relocate) the words, whose place stays the same until they are released. For a
    /// binary of more than 64 bytes these are its `bytes`, and the result is the address of the kept ones.
    pub retain: fn(&Held, Class, bytes: Option<&[u8]>) -> *const u8,
    /// Gives back what [`retain`](Self::retain) took. Runs on any thread.
    pub release: fn(&Held),
}

/// Where the VM keeps a term for a stored object.
#[derive(Clone, Copy, Debug)]
pub struct Retained {
    pub term: u64,
    pub batch: u64,
    pub index: u32,
}

/// The words of a held term inside a block. Batches are compacted while others read, so they are atomics.
#[repr(C)]
pub struct Held {
    term: AtomicU64,
    batch: AtomicU64,
    /// The index in the batch, and above bit 32 the offset of the block's next held item.
    index_and_next: AtomicU64,
    hash: u64,
}

impl Held {
    /// The VM's word of the term.
    #[inline]
    pub fn term(&self) -> u64 {
        // Acquire: pairs with `relocate`, so that what the word points to is seen as it was copied.
        self.term.load(Acquire)
    }

    /// The hash that the builder was given: of the exact term.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The batch's address, 0 for a term of the caller; in a [`Builder`](crate::Builder) that of another object's batch.
    #[inline]
    pub fn batch(&self) -> u64 {
        // Acquire: pairs with `relocate`; whoever follows the address sees the batch.
        self.batch.load(Acquire)
    }

    /// The index in the batch.
    #[inline]
    pub fn index(&self) -> u32 {
        // Acquire: as for the batch, whose index this is.
        self.index_and_next.load(Acquire) as u32
    }

    /// The word offset of the block's next held item, 0 at the end.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        // Acquire costs nothing here, and keeps one rule for the word.
        (self.index_and_next.load(Acquire) >> 32) as u32
    }

    /// Sets where the term is now: by whoever compacts the batch that it was in, under that batch's lock.
    pub fn relocate(&self, to: Retained) {
        let next = self.next() as u64;
        // Release: what the new places refer to is written before, and whoever sees the batch sees the index in it.
        self.term.store(to.term, Release);
        self.index_and_next.store(next << 32 | to.index as u64, Release);
        self.batch.store(to.batch, Release);
    }
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Installs the host; once, and before any term is used. False, and nothing done, if there is one already.
pub fn install(host: Host) -> bool {
    HOST.set(host).is_ok()
}

/// The host.
#[inline]
pub(crate) fn host() -> &'static Host {
    HOST.get().expect("a host is installed before terms are used")
}
