//! How pids and references order, as far as their numbers tell.
//!
//! * Pids order by serial, then by ID, then by node.
//! * References order by node, then by their numbers, the last number first. Numbers that are missing are 0.
//!
//! Nodes order by name, then by creation. This module and [normalized keys](crate::normalize) only tell whether another node orders below or
//! above this one. The host says that, and always the same, although the name of this node may change.

use crate::format::CLASS_MASK;
use std::cmp::Ordering;
use std::sync::OnceLock;

/// How the numbers of pids and references of this node stand in their words.
///
/// The number of a pid is its serial above its ID. The lowest bits of the word are its tag. The bits above are those of the number, of which
/// the lowest ones are rotated to the right. Higher bits of the word tell nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifierLayout {
    /// The number of bits of an ID, and of an ID and a serial together.
    pub id_bits: u32,
    pub bits: u32,
    /// How many bits are rotated, and by how many.
    pub rotated: u32,
    pub by: u32,
    /// Whether the process of an alias counts as two more numbers of that reference.
    pub counts_processes: bool,
}

const TAG_BITS: u32 = 4;

/// The lowest `count` bits, which are less than all.
const fn low(count: u32) -> u64 {
    (1 << count) - 1
}

impl IdentifierLayout {
    /// The number in the word of a pid of this node.
    #[inline]
    pub fn number(self, word: u64) -> u64 {
        let number = word >> TAG_BITS & low(self.bits);
        let turned = number & low(self.rotated);
        let back = (turned << self.by | turned >> (self.rotated - self.by)) & low(self.rotated);
        number ^ turned ^ back
    }

    /// A word with this number. Bits that tell nothing are 0.
    pub fn word(self, number: u64) -> u64 {
        let straight = number & low(self.rotated);
        let turned = (straight >> self.by | straight << (self.rotated - self.by)) & low(self.rotated);
        (number ^ straight ^ turned) << TAG_BITS | PID
    }

    /// The serial and the ID.
    #[inline]
    pub fn parts(self, number: u64) -> [u32; 2] {
        [(number >> self.id_bits) as u32, (number & low(self.id_bits)) as u32]
    }

    /// The number of this serial and ID. `None` if no pid of this node has them.
    pub fn number_of(self, [serial, id]: [u32; 2]) -> Option<u64> {
        let number = u64::from(serial) << self.id_bits | u64::from(id);
        (u64::from(id) <= low(self.id_bits) && number <= low(self.bits)).then_some(number)
    }
}

/// The tag of pids of this node.
const PID: u64 = 0x3;

static LAYOUT: OnceLock<IdentifierLayout> = OnceLock::new();

/// Says how pids and references of this node look. It must be so for all of them, and [`Host::foreign_pid`](crate::Host) and
/// [`Host::held_reference`](crate::Host) must be able to answer. This happens before any term is compared, or never: then the host compares
/// pids and references.
pub fn learn_identifiers(layout: IdentifierLayout) {
    // A second layout is the same as the first one.
    let _ = LAYOUT.set(layout);
}

/// The layout, if it is known.
#[inline]
pub(crate) fn identifiers() -> Option<IdentifierLayout> {
    LAYOUT.get().copied()
}

/// The order of two words, if both are pids of this node whose layout is known.
#[inline]
pub(crate) fn compare_pids(a: u64, b: u64) -> Option<Ordering> {
    let are_pids = a & CLASS_MASK == PID && b & CLASS_MASK == PID;
    let layout = are_pids.then(identifiers).flatten()?;
    Some(layout.number(a).cmp(&layout.number(b)))
}

/// A reference of this node that is held, or of another one.
#[derive(Clone, Copy, Debug)]
pub enum HeldReference {
    /// Of this node, with these numbers.
    Here([u32; 3]),
    /// Of a node that orders below or above this one.
    Elsewhere(Ordering),
}

impl IdentifierLayout {
    /// The numbers of a plain reference or an alias, given its words including the header: the highest two, the next two, and the lowest.
    #[inline]
    pub(crate) fn reference_numbers(self, words: &[u64]) -> (u64, u64, u32) {
        let process = words.get(3).filter(|_| self.counts_processes);
        (process.copied().unwrap_or(0), words[2], (words[1] >> 32) as u32)
    }
}

/// The order of two plain references or aliases, given their words, if the layout is known.
pub(crate) fn compare_references(a: &[u64], b: &[u64]) -> Option<Ordering> {
    let layout = identifiers()?;
    Some(layout.reference_numbers(a).cmp(&layout.reference_numbers(b)))
}
