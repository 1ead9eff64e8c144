//! What the VM does for terms. The library installs it once when it is loaded, so this crate does not depend on the VM.

use crate::block::CountedFun;
use crate::format::{Class, TermRef};
use crate::identifier::HeldReference;
use cats_sync::facade::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::cmp::Ordering;
use std::sync::OnceLock;

/// The functions of the VM. Here a word is a word of the VM: an immediate or a held term.
#[derive(Clone, Copy)]
pub struct Host {
    /// Compares two words in term order (`==` and `<`). Of pids, ports and references of two nodes the order never changes, if the
    /// [layout](crate::IdentifierLayout) of identifiers is known.
    pub compare: fn(u64, u64) -> Ordering,
    /// Whether two words are exactly the same term (`=:=`).
    pub identical: fn(u64, u64) -> bool,
    /// The hash of a held term's word. Equal for terms that are exactly the same.
    pub hash: fn(u64) -> u64,
    /// The hash that a term would have if it were held.
    pub hash_whole: fn(TermRef<'_>) -> u64,
    /// Appends the text of an atom in UTF-8.
    pub atom_text: fn(u64, &mut Vec<u8>),
    /// Whether `0.0 =:= -0.0`, which is true before OTP 27.
    pub zeros_identical: bool,
    /// Compares in term order two terms of one class, however deep they are nested.
    pub compare_mixed: fn(TermRef<'_>, TermRef<'_>) -> Ordering,
    /// Compares two terms of one class in the order of map keys. They may hold numbers that are equal in term order
    /// ([`Class::may_hold_numbers`]).
    pub compare_keys: fn(TermRef<'_>, TermRef<'_>) -> Ordering,
    /// Whether two terms are exactly the same, however deep they are nested.
    pub identical_mixed: fn(TermRef<'_>, TermRef<'_>) -> bool,
    /// The serial and the ID of a pid of another node, and how it orders beside a pid of this node with the same ones. Asked only if the
    /// [layout](crate::IdentifierLayout) of pids is known, as below.
    pub foreign_pid: fn(u64) -> ([u32; 2], Ordering),
    /// What orders a held reference beside references of this node.
    pub held_reference: fn(u64) -> HeldReference,
    /// Appends the bits of a held bit string, and returns their number. Unused bits of the last byte are zero.
    pub bits: fn(u64, &mut Vec<u8>) -> usize,
    /// Retains a term of a new stored object: copies it, and [relocates](HeldTerm::relocate) the words to the copy. The term belongs to the
    /// caller, or to another object if it has a place. The new place stays the same until the term is released. For a shared binary, the
    /// caller passes its `bytes`, and the result is the address of the copy's bytes.
    pub retain: fn(&HeldTerm, Class, bytes: Option<&[u8]>) -> *const u8,
    /// Gives back a term that [`retain`](Self::retain) copied. Runs on any thread.
    pub release: fn(&HeldTerm),
    /// The parts of a held fun that is the same as a counted one, although it has another creator.
    pub counted_fun: for<'a> fn(&'a HeldTerm) -> Option<CountedFun<'a>>,
    /// Counts one more reference to the binary or fun whose record this is. At least one is counted already. That of a binary is an address,
    /// that of a fun an address with [`FUN_RECORD`](crate::FUN_RECORD).
    pub retain_counted: fn(u64),
    /// Gives back a counted reference. Runs on any thread.
    pub release_counted: fn(u64),
    /// The size in bytes of the whole binary of a record, or 0 for a fun. At least one reference to it is counted.
    pub kept_bytes: fn(u64) -> usize,
    /// About how many bytes a [retained](Self::retain) term takes, with the whole binaries that it refers to. It stays the same until the
    /// term is released. 0 if it is known to take little.
    pub held_bytes: fn(&HeldTerm) -> usize,
}

/// Where the VM keeps a held term of a stored object.
#[derive(Clone, Copy, Debug)]
pub struct Retained {
    /// The VM's word.
    pub term: u64,
    /// The number by which the host finds the term. Not 0.
    pub place: u64,
}

/// The held words of an item. They are atomics, because the host moves terms while others read them.
#[repr(C)]
pub struct HeldTerm {
    term: AtomicU64,
    place: AtomicU64,
}

impl HeldTerm {
    /// The VM's word of the term.
    #[inline]
    pub fn term(&self) -> u64 {
        // Acquire pairs with the Release in `relocate`: whoever has the word sees the term that it points to.
        self.term.load(Acquire)
    }

    /// The exact hash.
    #[inline]
    pub fn hash(&self) -> u64 {
        (host().hash)(self.term())
    }

    /// The number by which the host finds the term, or 0 if the term belongs to the caller. In a [`Builder`](crate::Builder) it may belong
    /// to another object.
    #[inline]
    pub fn place(&self) -> u64 {
        // Acquire pairs with the Release in `relocate`: whoever has the place sees what is there.
        self.place.load(Acquire)
    }

    /// Says where the term is now. Only the host calls this, from one thread at a time.
    pub fn relocate(&self, to: Retained) {
        // Release: whatever the new word and place refer to was written before.
        self.term.store(to.term, Release);
        self.place.store(to.place, Release);
    }
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Installs the host. This happens once, before any term is used. Returns false, and does nothing, if there is a host already.
pub fn install(host: Host) -> bool {
    HOST.set(host).is_ok()
}

/// The host.
#[inline]
pub(crate) fn host() -> &'static Host {
    HOST.get().expect("a host is installed before terms are used")
}
