//! How the numbers of this node's pids stand in their words, and how pids and references of other nodes lie in memory.
//!
//! The VM turns some bits of a pid's number, so that processes made one after the other have places in different cache lines. How many bits
//! these are depends on the size of its table of processes. So it is learned from pids of chosen numbers, which the VM reads from their
//! external format.

use super::{boxed, header, node, KIND, REFERENCE, REFERENCE_KIND};
use crate::held::host::compare;
use crate::vm::external;
use crate::vm::monitor::{Watched, WATCHED};
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicUsize, Ordering};
use cats_term::{learn_identifiers, vm_word_at, IdentifierLayout, ALIAS, PLAIN_REFERENCE};
use std::sync::OnceLock;

/// The header of a pid of another node. An address of the node and another one follow, then the ID and the serial in one word.
const FOREIGN_PID: u64 = header(0x30, FOREIGN_PID_WORDS);
const FOREIGN_PID_WORDS: usize = 3;

/// The word of the pid of this node whose serial and ID are 0.
pub const LOWEST_PID: u64 = 3;

/// The offset of the numbers of a reference in the record of what it refers to. And those that are tried: up to OTP 26, and later.
/// Accesses are relaxed, as for everything in this file: all is written before the first table is made.
static NUMBERS: AtomicUsize = AtomicUsize::new(0);
const RECORD_NUMBERS: [usize; 2] = [32, 40];

/// The layout, once it is learned.
static LAYOUT: OnceLock<IdentifierLayout> = OnceLock::new();

/// Learns the layout, if it is as expected. It cannot be forgotten, as keys that are kept depend on it.
pub fn learn(env: Env) {
    if REFERENCE.load(Ordering::Relaxed) != PLAIN_REFERENCE {
        return;
    }
    if let Some(layout) = examine(env) {
        learn_identifiers(*LAYOUT.get_or_init(|| layout));
    }
}

fn examine(env: Env) -> Option<IdentifierLayout> {
    let format = external::of(env, env.ask_for_process())?;
    let here = |parts| external::pid_like(env, &format, parts, 0).filter(|pid| pid.is_immediate());
    // The VM refuses numbers of more bits than a pid of its own has.
    let one_bit = |place: u32| 1u32 << place;
    let id_bits = (0..32).take_while(|&place| here([0, one_bit(place)]).is_some()).count() as u32;
    let serial_bits = (0..32).take_while(|&place| here([one_bit(place), 0]).is_some()).count() as u32;
    let bits = id_bits + serial_bits;
    let straight = IdentifierLayout {
        id_bits,
        bits,
        rotated: 0,
        by: 0,
        counts_processes: counts_processes(env),
    };
    // Where each bit of the number stands.
    let mut places = Vec::new();
    for place in 0..bits {
        let at = straight.number(here(straight.parts(1 << place))?.0);
        places.push(at.is_power_of_two().then(|| at.trailing_zeros())?);
    }
    let rotated = (0..bits)
        .rev()
        .find(|&place| places[place as usize] != place)
        .map_or(0, |place| place + 1);
    let layout = IdentifierLayout {
        rotated,
        by: rotated - *places.first()?.min(&rotated),
        ..straight
    };
    let numbers =
        (0..bits)
            .map(|place| 1 << place)
            .chain([0, (1 << bits) - 1, 0x0123_4567_89ab_cdef & ((1 << bits) - 1)]);
    let is_so = |number| {
        let pid = here(layout.parts(number))?;
        let word = layout.word(number);
        (layout.number(pid.0) == number && layout.number(word) == number && pid.0 & word == word).then_some(())
    };
    numbers.into_iter().try_for_each(is_so)?;
    let is_foreign = |parts: [u32; 2]| {
        // A node of this name with another creation is another node.
        let pid = external::pid_like(env, &format, parts, 1 << 30)?;
        // SAFETY: this is called while the layout of terms is learned; if the header counts this many words, they exist.
        let told = unsafe { foreign_parts(pid)? };
        (told == parts).then_some(())
    };
    [[1, 2], [0, 0x8000_0001], [u32::MAX, 3]]
        .into_iter()
        .try_for_each(is_foreign)?;
    if !node::is_as_expected(env, &format)? {
        return None;
    }
    NUMBERS.store(numbers_of_resources(env)?, Ordering::Relaxed);
    Some(layout)
}

/// The offset of the numbers in the record of a resource, if they are as expected.
fn numbers_of_resources(env: Env) -> Option<usize> {
    let example = || {
        let reference = WATCHED.make(env, Watched);
        Some((reference, external::reference_numbers(&external::of(env, reference)?)?))
    };
    let examples = [example()?, example()?];
    // SAFETY: references to resources look like this in all releases, and their records are longer than this.
    let has = |offset: &usize| unsafe {
        NUMBERS.store(*offset, Ordering::Relaxed);
        examples
            .iter()
            .all(|(reference, numbers)| numbers_here(*reference) == Some(*numbers))
    };
    RECORD_NUMBERS.into_iter().find(has)
}

/// Whether aliases that differ in nothing but their process are not the same to the VM's order.
fn counts_processes(env: Env) -> bool {
    let numbers = [super::PLAIN, 0];
    let alias = |process: Term| [ALIAS, numbers[0], numbers[1], process.0];
    let (a, b) = (alias(env.ask_for_process()), alias(Term(LOWEST_PID)));
    compare(Term(vm_word_at(&a)), Term(vm_word_at(&b))).is_ne()
}

/// The layout, if it is known.
pub fn layout() -> Option<IdentifierLayout> {
    LAYOUT.get().copied()
}

/// The numbers of a reference to a resource or another thing of this node. Nothing for a reference of another node.
///
/// # Safety
/// As for [`boxed`]; the reference is neither a plain one nor an alias.
pub unsafe fn numbers_here(reference: Term) -> Option<[u32; 3]> {
    // SAFETY: as the caller promises; the word behind the header is the address of a record, which lives as long as the term.
    unsafe {
        let (header, record) = boxed(reference)?;
        (header & KIND == REFERENCE_KIND).then(|| {
            let numbers = *record as *const u8;
            numbers.add(NUMBERS.load(Ordering::Relaxed)).cast::<[u32; 3]>().read()
        })
    }
}

/// The serial and the ID of a pid of another node. Nothing for other terms, or if such pids are not as expected.
///
/// # Safety
/// As for [`boxed`].
pub unsafe fn foreign_parts(pid: Term) -> Option<[u32; 2]> {
    // SAFETY: as the caller promises.
    unsafe {
        let (found, words) = boxed(pid)?;
        (found == FOREIGN_PID).then(|| {
            let word = *words.add(FOREIGN_PID_WORDS - 1);
            [(word >> 32) as u32, word as u32]
        })
    }
}
