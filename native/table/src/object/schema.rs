//! How engines look into keys: [`Exact`] for hash tables (keys match by `=:=`), [`Ordered`] for ordered ones (keys are equal
//! by `==`), [`Words`] for immediates and hashes.

use crate::object::group::Group;
use crate::object::{is_block, is_group, key_of, referent, ObjectRef};
use cats_engine::{Entry, OrderedSchema, Schema};
use cats_sync::slab;
use cats_term::{
    compare, equal, equal_elements, hash, head, heads, key_word, key_word_ordered, mix, Block, Builder, Room, TermRef,
};
use std::cmp::Ordering;

/// A key to search for, with the word that its entry has.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    word: u64,
    term: TermRef<'a>,
}

impl<'a> Probe<'a> {
    /// For a table whose keys match exactly.
    #[inline]
    pub fn exact(term: TermRef<'a>) -> Self {
        Self {
            word: key_word(term),
            term,
        }
    }

    /// The same of which the word is known.
    #[inline]
    pub(crate) fn known(term: TermRef<'a>, word: u64) -> Self {
        debug_assert_eq!(word, key_word(term));
        Self { word, term }
    }

    /// For a table whose keys are in term order.
    #[inline]
    pub fn ordered(term: TermRef<'a>) -> Self {
        Self {
            word: key_word_ordered(term),
            term,
        }
    }

    #[inline]
    pub fn word(&self) -> u64 {
        self.word
    }

    #[inline]
    pub fn term(&self) -> TermRef<'a> {
        self.term
    }

    /// The same probe for an engine, which uses it only during one call.
    #[inline]
    pub(crate) fn erase(&self) -> &Probe<'static> {
        // SAFETY: engines keep neither the reference nor what it refers to beyond the call, and `self` outlives that.
        unsafe { std::mem::transmute::<&Probe<'a>, &Probe<'static>>(self) }
    }
}

/// The key of an entry, if key and body can belong together (an optimistic read may bring together what does not).
///
/// # Safety
/// As for [`Schema::matches`]: each word was stored in this table, and the objects live under the caller's guard.
#[inline]
pub(crate) unsafe fn stored_key<'a>(entry: Entry, key: usize) -> Option<TermRef<'a>> {
    let mut entry = entry;
    if is_group(entry.body) {
        // SAFETY: as the caller promises.
        entry.body = unsafe { first_body(entry.body) }?;
    }
    // SAFETY: every object of this table has a key; the body is not that of a group.
    (entry.key & 3 == 3 || is_block(entry.body)).then(|| unsafe { key_of(entry, key) })
}

/// The first object of a group.
///
/// # Safety
/// As for [`stored_key`].
#[inline(never)]
unsafe fn first_body(group: u64) -> Option<u64> {
    // SAFETY: as the caller promises.
    unsafe { Group::from_body(group) }.first()
}

/// Asks the processor for the block or the group of an entry: the first lines of it.
#[inline]
fn prefetch(entry: Entry) {
    if is_block(entry.body) || is_group(entry.body) {
        for line in [0, 64] {
            cats_sync::prefetch(referent(entry.body).cast_const().wrapping_add(line));
        }
    }
}

/// Keys that match exactly.
pub struct Exact {
    key: usize,
}

impl Exact {
    /// For objects with their key at `key`, counted from 0.
    pub fn new(key: usize) -> Self {
        Self { key }
    }
}

impl Schema for Exact {
    type Probe = Probe<'static>;

    #[inline]
    fn word(&self, probe: &Self::Probe) -> u64 {
        probe.word
    }

    #[inline]
    unsafe fn matches(&self, probe: &Self::Probe, entry: Entry) -> bool {
        // SAFETY: as the caller promises.
        unsafe { stored_key(entry, self.key) }.is_some_and(|key| equal(probe.term, key))
    }

    unsafe fn compare_colliding(&self, probe: &Self::Probe, entry: Entry) -> Ordering {
        // SAFETY: as the caller promises.
        unsafe { stored_key(entry, self.key) }.map_or(Ordering::Greater, |key| exact_order(probe.term, key))
    }

    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering {
        // SAFETY: as the caller promises.
        match unsafe { (stored_key(a, self.key), stored_key(b, self.key)) } {
            (Some(a), Some(b)) => exact_order(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }

    fn prefetch(&self, entry: Entry) {
        prefetch(entry);
    }
}

/// A total order in which only terms that are exactly the same are equal. Two terms that are `==` but not `=:=` differ in the
/// type of some number, and so in their exact hashes: they are asked for only when those collide, and then their forms decide.
pub(crate) fn exact_order(a: TermRef<'_>, b: TermRef<'_>) -> Ordering {
    if equal(a, b) {
        return Ordering::Equal;
    }
    compare(a, b).then_with(|| forms(a).cmp(&forms(b)))
}

/// The classes and exact hashes of a term's parts, one after the other.
fn forms(term: TermRef<'_>) -> Vec<u64> {
    use cats_term::View;
    fn add(term: TermRef<'_>, out: &mut Vec<u64>) {
        match term.view() {
            View::Tuple(elements) => elements.iter().for_each(|element| add(element, out)),
            View::List(list) => {
                list.elements().iter().for_each(|element| add(element, out));
                add(list.tail(), out);
            }
            View::Map(map) => map.keys.iter().chain(map.values.iter()).for_each(|part| add(part, out)),
            View::Immediate(word) => out.push(word),
            View::Float(value) => out.push(value.to_bits()),
            _ => out.push(hash(term)),
        }
    }
    let mut out = Vec::new();
    add(term, &mut out);
    out
}

/// Keys in term order.
pub struct Ordered {
    key: usize,
}

impl Ordered {
    /// For objects with their key at `key`, counted from 0.
    pub fn new(key: usize) -> Self {
        Self { key }
    }
}

impl Schema for Ordered {
    type Probe = Probe<'static>;

    #[inline]
    fn word(&self, probe: &Self::Probe) -> u64 {
        probe.word
    }

    #[inline(always)]
    unsafe fn matches(&self, probe: &Self::Probe, entry: Entry) -> bool {
        // SAFETY: as the caller promises.
        let Some(key) = (unsafe { stored_key(entry, self.key) }) else {
            return false;
        };
        // Nearly always they are the same, which is quicker to tell.
        equal(probe.term, key) || compare(probe.term, key).is_eq()
    }

    unsafe fn compare_colliding(&self, probe: &Self::Probe, entry: Entry) -> Ordering {
        // SAFETY: as the caller promises.
        unsafe { self.compare(probe, entry) }
    }

    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering {
        // SAFETY: as the caller promises.
        unsafe { self.compare_entries(a, b) }
    }

    fn prefetch(&self, entry: Entry) {
        prefetch(entry);
    }
}

impl OrderedSchema for Ordered {
    type Key = OwnedKey;

    unsafe fn own(&self, entry: Entry) -> OwnedKey {
        // SAFETY: as the caller promises, key and body belong together.
        OwnedKey::new(unsafe { key_of(entry, self.key) })
    }

    fn own_probe(&self, probe: &Self::Probe) -> OwnedKey {
        OwnedKey::new(probe.term)
    }

    fn key_bytes(&self, key: &OwnedKey) -> usize {
        key.block.as_ref().map_or(0, |block| block.as_ref().bytes())
    }

    fn probe<'a>(&self, key: &'a OwnedKey) -> &'a Self::Probe {
        // SAFETY: the probe refers to the block that the key owns; the engine uses it only while the key lives.
        unsafe { std::mem::transmute::<&'a Probe<'a>, &'a Probe<'static>>(key.probe()) }
    }

    #[inline]
    unsafe fn compare(&self, probe: &Self::Probe, entry: Entry) -> Ordering {
        // SAFETY: as the caller promises.
        unsafe { stored_key(entry, self.key) }.map_or(Ordering::Greater, |key| compare(probe.term, key))
    }

    #[inline]
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering {
        // SAFETY: as the caller promises.
        match unsafe { (stored_key(a, self.key), stored_key(b, self.key)) } {
            (Some(a), Some(b)) => compare(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }

    fn compare_probes(&self, a: &Self::Probe, b: &Self::Probe) -> Ordering {
        compare(a.term, b.term)
    }

    #[inline]
    fn head(&self, probe: &Self::Probe, skip: usize) -> u64 {
        head(probe.term, skip)
    }

    fn heads(&self, probe: &Self::Probe, skip: usize, out: &mut [u64]) {
        heads(probe.term, skip, out)
    }

    #[inline]
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { stored_key(entry, self.key) }.map_or(0, |key| head(key, skip))
    }
}

/// Words of a key for which there is room on the stack while it is copied.
const ROOM: usize = 64;

/// A key with memory of its own, in term order.
pub struct OwnedKey {
    /// Refers to the block, if there is one.
    probe: Probe<'static>,
    block: Option<Block>,
}

// SAFETY: the probe refers only to the block that goes with it, or to nothing.
unsafe impl Send for OwnedKey {}
// SAFETY: as above.
unsafe impl Sync for OwnedKey {}

impl OwnedKey {
    /// A copy of a key. Memory for keys is taken to be there: a key that cannot be copied ends the process, as any small
    /// allocation that fails does.
    pub fn new(term: TermRef<'_>) -> Self {
        if term.is_immediate() {
            let probe = Probe::ordered(TermRef::immediate(term.word()));
            return Self { probe, block: None };
        }
        let mut room = Room::<ROOM>::new();
        let mut builder = Builder::within(&mut room);
        let root = builder.tuple(1);
        let word = builder.copy(term);
        builder.set(root, 0, word);
        Self::of(slab::needed(builder.finish()))
    }

    /// The key that is the only element of the block's tuple.
    pub fn of(block: Block) -> Self {
        // SAFETY: the block lives, at the same place, as long as the key.
        let term = unsafe { TermRef::new(block.as_ref().address().as_ptr(), block.as_ref().element(0).word()) };
        Self {
            probe: Probe::ordered(term),
            block: Some(block),
        }
    }

    pub fn probe(&self) -> &Probe<'_> {
        &self.probe
    }
}

/// Words that are keys themselves, as the names of tables, which are atoms.
pub struct Words;

impl Schema for Words {
    type Probe = u64;

    #[inline]
    fn word(&self, probe: &u64) -> u64 {
        *probe
    }

    unsafe fn matches(&self, probe: &u64, entry: Entry) -> bool {
        *probe == entry.key
    }

    unsafe fn compare_colliding(&self, probe: &u64, entry: Entry) -> Ordering {
        probe.cmp(&entry.key)
    }

    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering {
        a.key.cmp(&b.key)
    }
}

/// Whether two objects are exactly the same.
pub fn identical(a: ObjectRef<'_>, b: ObjectRef<'_>) -> bool {
    match (a, b) {
        // Immediates are the same if their words are.
        (ObjectRef::Block(a), ObjectRef::Block(b)) if a.is_flat() && b.is_flat() => {
            a.elements_raw() == b.elements_raw()
        }
        (ObjectRef::Block(a), ObjectRef::Block(b)) => {
            a.arity() == b.arity() && equal_elements(a.elements(), b.elements())
        }
        _ => a.arity() == b.arity() && (0..a.arity()).all(|i| equal(a.element(i), b.element(i))),
    }
}

/// A hash of the object without its key.
#[inline]
pub fn object_hash(object: &ObjectRef<'_>, key: usize) -> u64 {
    let arity = object.arity();
    // Cheap for each element, as the whole is mixed.
    let step = |state: u64, word: u64| (state.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let places = (0..arity).filter(|place| *place != key);
    mix(match object.flat() {
        Some(words) => places.fold(arity as u64, |state, place| step(state, words[place])),
        None => places.fold(arity as u64, |state, place| {
            let element = object.element(place);
            step(
                state,
                match element.is_immediate() {
                    true => element.word(),
                    false => hash(element),
                },
            )
        }),
    })
}
