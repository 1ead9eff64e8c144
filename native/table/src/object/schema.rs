//! How engines look into keys. [`Exact`] is for hash tables, whose keys match by `=:=`. [`Ordered`] is for ordered tables, whose keys are
//! equal by `==`. [`Words`] is for keys that are words themselves.

use crate::object::group::Group;
use crate::object::{is_block, is_group, key_of, referent, unseated, ObjectRef};
use cats_engine::{Entry, OrderedSchema, Schema};
use cats_sync::slab;
use cats_term::{
    compare, equal, equal_elements, hash, head, heads, key_word, key_word_ordered, mix, small_value, Block, Builder,
    Room, TermRef,
};
use std::cmp::Ordering;

/// A key to search for, with the key word of its entry.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    word: u64,
    key: Key<'a>,
}

/// Two words. More of them would make it slower to pass a probe on.
#[derive(Clone, Copy)]
enum Key<'a> {
    Stored(TermRef<'a>),
    Callers(&'a &'a dyn CallersKey),
}

const _: () = assert!(size_of::<Key<'_>>() == size_of::<TermRef<'_>>());

/// A key where the caller has it, not in stored form. It is compared with few stored keys, usually with one, so a stored form would cost
/// more than it saves. One thread at a time uses it.
pub trait CallersKey {
    /// Whether a stored key is exactly the same.
    fn is(&self, stored: TermRef<'_>) -> bool;
    /// The key in stored form, which is made when it is asked for.
    fn term(&self) -> TermRef<'_>;
}

impl<'a> Probe<'a> {
    /// A probe for a table that compares keys exactly.
    #[inline]
    pub fn exact(term: TermRef<'a>) -> Self {
        Self {
            word: key_word(term),
            key: Key::Stored(term),
        }
    }

    /// The same, for a key whose key word is known.
    #[inline]
    pub(crate) fn known(term: TermRef<'a>, word: u64) -> Self {
        debug_assert_eq!(word, key_word(term));
        Self::of_entry(term, word)
    }

    /// A probe for a key where the caller has it, in a table that compares keys exactly. `word` is its key word.
    #[inline]
    pub fn callers(key: &'a &'a dyn CallersKey, word: u64) -> Self {
        debug_assert_eq!(word, key_word(key.term()));
        Self {
            word,
            key: Key::Callers(key),
        }
    }

    /// A probe for a table whose keys are in term order.
    #[inline]
    pub fn ordered(term: TermRef<'a>) -> Self {
        Self {
            word: key_word_ordered(term),
            key: Key::Stored(term),
        }
    }

    /// A probe for the end of a range in a table whose keys are in term order. Its key word is that of no entry. So it is only compared, and
    /// need not be hashed.
    pub(crate) fn end(term: TermRef<'a>) -> Self {
        Self::of_entry(term, 0)
    }

    /// The probe for the key of a stored entry. `None` if its words cannot belong together.
    ///
    /// # Safety
    /// As for [`stored_key`].
    pub(crate) unsafe fn stored(entry: Entry, key: usize) -> Option<Self> {
        // SAFETY: as the caller promises.
        Some(Self::of_entry(unsafe { stored_key(entry, key) }?, entry.key))
    }

    /// The probe for the key of an entry, which is this term.
    #[inline]
    pub(crate) fn of_entry(term: TermRef<'a>, word: u64) -> Self {
        let key = Key::Stored(term);
        Self { word, key }
    }

    #[inline]
    pub fn word(&self) -> u64 {
        self.word
    }

    #[inline]
    pub fn term(&self) -> TermRef<'a> {
        match self.key {
            Key::Stored(term) => term,
            Key::Callers(key) => key.term(),
        }
    }

    /// Whether a stored key is exactly the same.
    #[inline]
    fn is(&self, stored: TermRef<'_>) -> bool {
        match self.key {
            Key::Stored(term) => equal(term, stored),
            Key::Callers(key) => key.is(stored),
        }
    }

    /// The same probe with the lifetime that engines expect. An engine uses it only during one call.
    #[inline]
    pub(crate) fn erase(&self) -> &Probe<'static> {
        // SAFETY: engines keep neither the reference nor what it refers to beyond the call. `self` outlives the call.
        unsafe { std::mem::transmute::<&Probe<'a>, &Probe<'static>>(self) }
    }
}

/// Of each probe, whether no later one has the same key. `ordered` says how the table compares keys.
pub(crate) fn last_of_keys(probes: &[&Probe<'static>], ordered: bool) -> Vec<bool> {
    let term = |i: &usize| probes[*i].term();
    let mut sorted: Vec<usize> = (0..probes.len()).collect();
    // Keys that are exactly equal are equal in the order of terms, too.
    sorted.sort_by(|a, b| compare(term(a), term(b)));
    let (mut lasting, mut found) = (vec![false; probes.len()], Vec::<usize>::new());
    for equals in sorted.chunk_by(|a, b| compare(term(a), term(b)).is_eq()) {
        found.clear();
        for i in equals.iter().rev() {
            if !found.iter().any(|later| ordered || equal(term(i), term(later))) {
                found.push(*i);
                lasting[*i] = true;
            }
        }
    }
    lasting
}

/// The key of an entry. `None` if the key word and the body cannot belong together: an optimistic read may see words of different entries.
///
/// # Safety
/// As for [`Schema::matches`]: both words were stored in this table, and the objects live under the caller's guard.
#[inline]
pub(crate) unsafe fn stored_key<'a>(entry: Entry, key: usize) -> Option<TermRef<'a>> {
    let mut entry = entry;
    if is_group(entry.body) {
        // SAFETY: as the caller promises.
        entry.body = unsafe { first_body(entry.body) }?;
    }
    // SAFETY: every object of this table has a key, and the body is not that of a group.
    (entry.key & 3 == 3 || is_block(entry.body)).then(|| unsafe { key_of(entry, key) })
}

/// The body of the first object of a group.
///
/// # Safety
/// As for [`stored_key`].
#[inline(never)]
unsafe fn first_body(group: u64) -> Option<u64> {
    // SAFETY: as the caller promises.
    unsafe { Group::from_body(group) }.first()
}

/// Prefetches the first two cache lines of the entry's block or group.
#[inline]
fn prefetch(entry: Entry) {
    if is_block(entry.body) || is_group(entry.body) {
        for line in [0, 64] {
            cats_sync::prefetch(referent(entry.body).cast_const().wrapping_add(line));
        }
    }
}

/// Keys that are compared exactly.
pub struct Exact {
    key: usize,
}

impl Exact {
    /// For objects whose key is at position `key`, counted from 0.
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
        unsafe { stored_key(entry, self.key) }.is_some_and(|key| probe.is(key))
    }

    unsafe fn compare_colliding(&self, probe: &Self::Probe, entry: Entry) -> Ordering {
        // SAFETY: as the caller promises.
        unsafe { stored_key(entry, self.key) }.map_or(Ordering::Greater, |key| exact_order(probe.term(), key))
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

/// A total order in which only exactly equal terms are equal.
///
/// Two terms that are `==` but not `=:=` differ in the type of some number, and so in their exact hashes. This order is needed only if
/// those collide. Then the terms' forms decide.
pub(crate) fn exact_order(a: TermRef<'_>, b: TermRef<'_>) -> Ordering {
    if equal(a, b) {
        return Ordering::Equal;
    }
    compare(a, b).then_with(|| forms(a).cmp(&forms(b)))
}

/// The words or exact hashes of a term's innermost parts, one after the other.
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
    /// For objects whose key is at position `key`, counted from 0.
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
        // Nearly always they are exactly the same, and that is faster to find out.
        equal(probe.term(), key) || compare(probe.term(), key).is_eq()
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
        // SAFETY: as the caller promises, the key word and the body belong together.
        OwnedKey::new(unsafe { key_of(entry, self.key) })
    }

    fn own_probe(&self, probe: &Self::Probe) -> OwnedKey {
        OwnedKey::new(probe.term())
    }

    fn key_bytes(&self, key: &OwnedKey) -> usize {
        key.block.as_ref().map_or(0, |block| block.as_ref().bytes())
    }

    fn probe<'a>(&self, key: &'a OwnedKey) -> &'a Self::Probe {
        // SAFETY: the probe refers to the block that the key owns. The engine uses the probe only while the key lives.
        unsafe { std::mem::transmute::<&'a Probe<'a>, &'a Probe<'static>>(key.probe()) }
    }

    #[inline]
    unsafe fn compare(&self, probe: &Self::Probe, entry: Entry) -> Ordering {
        // SAFETY: as the caller promises.
        unsafe { stored_key(entry, self.key) }.map_or(Ordering::Greater, |key| compare(probe.term(), key))
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
        compare(a.term(), b.term())
    }

    #[inline]
    fn head(&self, probe: &Self::Probe, skip: usize) -> u64 {
        head(probe.term(), skip)
    }

    #[inline]
    fn has_quick_heads(&self, probe: &Self::Probe) -> bool {
        !probe.term().is_list() && probe.term().as_tuple().is_none()
    }

    fn heads(&self, probe: &Self::Probe, skip: usize, out: &mut [u64]) {
        heads(probe.term(), skip, out)
    }

    #[inline]
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { stored_key(entry, self.key) }.map_or(0, |key| head(key, skip))
    }

    #[inline]
    fn number(&self, probe: &Self::Probe) -> Option<i64> {
        probe.term().small()
    }

    #[inline]
    fn number_of_word(&self, word: u64) -> Option<i64> {
        small_value(word)
    }
}

/// A schema for a table that shows [seats](cats_engine::seat). It also takes entries as they are stored, among which a `hash` searches.
pub struct Seated<S>(pub S);

impl<S: Schema> Schema for Seated<S> {
    type Probe = S::Probe;

    #[inline]
    fn word(&self, probe: &Self::Probe) -> u64 {
        self.0.word(probe)
    }

    #[inline(always)]
    unsafe fn matches(&self, probe: &Self::Probe, entry: Entry) -> bool {
        // SAFETY: as the caller promises, here and below.
        unsafe { self.0.matches(probe, unseated(entry)) }
    }

    unsafe fn compare_colliding(&self, probe: &Self::Probe, entry: Entry) -> Ordering {
        // SAFETY: as above.
        unsafe { self.0.compare_colliding(probe, unseated(entry)) }
    }

    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering {
        // SAFETY: as above.
        unsafe { self.0.compare_colliding_entries(unseated(a), unseated(b)) }
    }

    fn prefetch(&self, entry: Entry) {
        // SAFETY: the table shows the entry under the caller's guard.
        self.0.prefetch(unsafe { unseated(entry) });
    }
}

impl<S: OrderedSchema> OrderedSchema for Seated<S> {
    type Key = S::Key;
    const CELLS: bool = true;

    unsafe fn own(&self, entry: Entry) -> S::Key {
        // SAFETY: as above.
        unsafe { self.0.own(unseated(entry)) }
    }

    fn own_probe(&self, probe: &Self::Probe) -> S::Key {
        self.0.own_probe(probe)
    }

    fn key_bytes(&self, key: &S::Key) -> usize {
        self.0.key_bytes(key)
    }

    fn probe<'a>(&self, key: &'a S::Key) -> &'a Self::Probe {
        self.0.probe(key)
    }

    #[inline]
    unsafe fn compare(&self, probe: &Self::Probe, entry: Entry) -> Ordering {
        // SAFETY: as above.
        unsafe { self.0.compare(probe, unseated(entry)) }
    }

    #[inline]
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering {
        // SAFETY: as above.
        unsafe { self.0.compare_entries(unseated(a), unseated(b)) }
    }

    fn compare_probes(&self, a: &Self::Probe, b: &Self::Probe) -> Ordering {
        self.0.compare_probes(a, b)
    }

    #[inline]
    fn head(&self, probe: &Self::Probe, skip: usize) -> u64 {
        self.0.head(probe, skip)
    }

    #[inline]
    fn has_quick_heads(&self, probe: &Self::Probe) -> bool {
        self.0.has_quick_heads(probe)
    }

    fn heads(&self, probe: &Self::Probe, skip: usize, out: &mut [u64]) {
        self.0.heads(probe, skip, out)
    }

    #[inline]
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.entry_head(unseated(entry), skip) }
    }

    #[inline]
    fn number(&self, probe: &Self::Probe) -> Option<i64> {
        self.0.number(probe)
    }

    #[inline]
    fn number_of_word(&self, word: u64) -> Option<i64> {
        self.0.number_of_word(word)
    }
}

/// The number of words of a key for which there is room on the stack while it is copied.
const ROOM: usize = 64;

/// The levels to which a key is looked at for its size.
const DEPTH: usize = 4;

/// A key in term order, with memory of its own.
pub struct OwnedKey {
    /// Refers to the block, if there is one.
    probe: Probe<'static>,
    block: Option<Block>,
}

// SAFETY: the probe refers only to the block of this key, or to nothing.
unsafe impl Send for OwnedKey {}
// SAFETY: as above.
unsafe impl Sync for OwnedKey {}

impl OwnedKey {
    /// A copy of a key. If there is no memory for it, the process ends, as for any failing small allocation.
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

    /// A key from a block. The key is the only element of the block's tuple.
    pub fn of(block: Block) -> Self {
        // SAFETY: the block lives as long as the key, and stays where it is.
        let term = unsafe { TermRef::new(block.as_ref().address().as_ptr(), block.as_ref().element(0).word()) };
        Self {
            probe: Probe::ordered(term),
            block: Some(block),
        }
    }

    /// The bytes of its memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.block.as_ref().map_or(0, |block| block.as_ref().bytes())
    }

    /// The bytes of a copy of a key that is no immediate. If it is deeply nested, `whole` is taken for its own bytes.
    pub fn bytes_for(key: TermRef<'_>, whole: impl FnOnce() -> usize) -> usize {
        // Its block has a header, and the element.
        let bytes = key
            .words_within(DEPTH)
            .map_or_else(whole, |words| cats_term::bytes_of(words + 2));
        size_of::<Self>() + bytes
    }

    pub fn probe(&self) -> &Probe<'_> {
        &self.probe
    }
}

/// Keys that are words themselves. The registry uses them for the names of tables, which are atoms.
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
        // Two immediates are the same if and only if their words are.
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
    // A cheap step for each element is enough, because the final result is mixed.
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
