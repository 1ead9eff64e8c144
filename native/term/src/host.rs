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
    /// The hash of a held term's word: equal for terms that are exactly the same.
    pub hash: fn(u64) -> u64,
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
    /// Keeps a term of a new stored object. The term belongs to the caller or, if it has a place, to another object. Copies the
    /// term and [relocates](Held::relocate) the words. Their place stays the same until they are released. For a binary of more
    /// than 64 bytes these are its `bytes`, and the result is the address of the kept ones.
    pub retain: fn(&Held, Class, bytes: Option<&[u8]>) -> *const u8,
    /// Gives back what [`retain`](Self::retain) took. Runs on any thread.
    pub release: fn(&Held),
    /// Counts one more reference to a binary, by the address of its record; there is one already.
    pub retain_binary: fn(u64),
    /// Gives a counted reference back. Runs on any thread.
    pub release_binary: fn(u64),
    /// The bytes of a whole binary to which there is a counted reference.
    pub binary_size: fn(u64) -> usize,
}

/// Where the VM keeps a term for a stored object.
#[derive(Clone, Copy, Debug)]
pub struct Retained {
    /// The VM's word.
    pub term: u64,
    /// What the host finds it by, not 0.
    pub place: u64,
}

/// The words of a held term inside a block. Terms are moved while others read them, so they are atomics.
#[repr(C)]
pub struct Held {
    term: AtomicU64,
    place: AtomicU64,
}

impl Held {
    /// The VM's word of the term.
    #[inline]
    pub fn term(&self) -> u64 {
        // Acquire: pairs with `relocate`, so that what the word points to is seen as it was copied.
        self.term.load(Acquire)
    }

    /// The hash of the exact term.
    #[inline]
    pub fn hash(&self) -> u64 {
        (host().hash)(self.term())
    }

    /// What the host finds it by, 0 for a term of the caller; in a [`Builder`](crate::Builder) that of another object.
    #[inline]
    pub fn place(&self) -> u64 {
        // Acquire: pairs with `relocate`; whoever follows the place sees what is there.
        self.place.load(Acquire)
    }

    /// Sets where the term is now: by the host, which sees to it that one thread at a time does.
    pub fn relocate(&self, to: Retained) {
        // Release: what the new places refer to is written before.
        self.term.store(to.term, Release);
        self.place.store(to.place, Release);
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
