//! Nodes above the leaves: sorted separators with children. Used for the inner nodes of a base node's B+tree, and for
//! the route node, whose children are base nodes.
//!
//! A published node is immutable except for its child slots. A child may be replaced by one with the same key range.
//! The child left of a separator holds the keys below it, and the child to the right holds the others. The node also
//! holds the common prefix of the separators' normalized keys, and their key heads: the next eight bytes of each. A
//! search compares key heads first, and compares separators only if key heads are equal.
//!
//! Exactly one live node owns a separator. A node that replaces another takes over its separators. A separator that is
//! no longer needed is retired on its own.

use super::counts::{Count, CountsPointer};
use super::leaf::Leaf;
use super::Query;
use crate::shared::line::{opaque, wide, words_below, words_below_of_16};
use crate::OrderedSchema;
use cats_sync::facade::{AtomicPtr, Ordering::*};
use cats_sync::slab;
use smallvec::{smallvec, SmallVec};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The largest number of children of an inner node.
pub(super) const FANOUT: usize = 128;

/// A bound of a key range: a separator, or null if unbounded.
pub(super) type Bound<K> = *const K;

/// A reference to the key of a bound.
///
/// # Safety
/// The bound belongs to a node that was reached under the caller's guard.
pub(super) unsafe fn bound<'a, K>(bound: Bound<K>) -> Option<&'a K> {
    // SAFETY: separators are freed only through the epochs.
    unsafe { bound.as_ref() }
}

/// A pointer in one word: to a leaf (bit 0 set, number of lines in bits 1 to 5) or to an inner node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Node(pub *mut u8);

pub(super) enum Kind<K> {
    Leaf(Leaf),
    Inner(Inner<K>),
}

impl Node {
    pub fn leaf(leaf: Leaf) -> Self {
        Self(leaf.address().map_addr(|address| address | 1 | leaf.lines() << 1))
    }
    pub fn inner<K>(inner: Inner<K>) -> Self {
        Self(inner.at.as_ptr())
    }
    #[inline]
    pub fn kind<K>(self) -> Kind<K> {
        let tag = self.0.addr() & 63;
        // SAFETY: nodes are not null. The tag tells the kind. The holder of a node has it under a guard.
        unsafe {
            if tag & 1 == 1 {
                let at = NonNull::new_unchecked(self.0.map_addr(|address| address & !63));
                Kind::Leaf(Leaf::from_address(at, tag >> 1))
            } else {
                Kind::Inner(Inner::from_address(self.0))
            }
        }
    }
    /// The leaf that this is. Its place is one where only leaves are.
    pub fn as_leaf<K>(self) -> Leaf {
        match self.kind::<K>() {
            Kind::Leaf(leaf) => leaf,
            Kind::Inner(_) => unreachable!("all leaves of a tree are on one level"),
        }
    }
}

/// The first part of a node. The lines follow, each with eight key heads and the eight children that follow these, and
/// then the keys.
#[repr(C, align(64))]
struct Header {
    search: Search,
    /// The number of children.
    len: u32,
    /// The byte of the normalized keys where key heads begin.
    skip: usize,
    /// Up to this byte all keys of the node's range have the same normalized key. Up to `skip` all separators have.
    sure: usize,
    /// The bytes of the separators from `sure` to `skip`.
    prefix: [u64; PREFIX],
    /// How many entries each leaf below has. Only in nodes whose children are leaves.
    counts: CountsPointer,
    /// In a node with few children: all key heads. Otherwise the last key head of each line, if the lines are few
    /// enough. The remaining elements are `u64::MAX`. A search counts the guides below its key. If guides stand for
    /// lines, it then counts in one line.
    guides: Guides,
}

#[repr(C, align(64))]
struct Guides([[u64; LINE]; 2]);

/// How a node is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Search {
    /// Key heads begin at byte 0, and the guides are all key heads.
    Few,
    /// Key heads begin at byte 0. The search uses guides, then one line.
    Guided,
    /// In any other way.
    Other,
}

/// Words of a prefix.
pub(super) const PREFIX: usize = 4;
/// Key heads of a line. The last of them is a guide.
const LINE: usize = 8;
/// The largest number of guides.
const GUIDES: usize = 2 * LINE;

/// Key heads, with `u64::MAX` after the last, and children.
#[repr(C, align(64))]
struct Line {
    heads: [u64; LINE],
    children: [AtomicPtr<u8>; LINE],
}

/// A handle to an inner node or the route node. Its holder got it from a structure that was reached under a guard that
/// is still alive, or owns the node. So the memory behind it is such a node. That is why its methods are safe to call.
pub(super) struct Inner<K> {
    at: NonNull<u8>,
    of: PhantomData<*const K>,
}

impl<K> Clone for Inner<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Inner<K> {}

/// What replaces a child: one node, or several with separators between them.
pub(super) struct Piece<K> {
    pub first: Node,
    pub others: SmallVec<[(Bound<K>, Node); 2]>,
}

impl<K> Piece<K> {
    pub fn one(node: Node) -> Self {
        Self {
            first: node,
            others: SmallVec::new(),
        }
    }
    pub fn two(left: Node, key: Bound<K>, right: Node) -> Self {
        Self {
            first: left,
            others: smallvec![(key, right)],
        }
    }
}

/// The contents of a node, from which another is made. `heads` are the key heads of `keys` at `skip`. `counts` tells for
/// each child where its entries are counted, if they are. It is empty if no child is counted.
pub(super) struct Parts<K> {
    pub skip: usize,
    pub heads: Vec<u64>,
    pub keys: Vec<Bound<K>>,
    pub children: Vec<*mut u8>,
    pub counts: Vec<Option<Count>>,
}

impl<K> Parts<K> {
    /// One child.
    pub fn single(child: *mut u8) -> Self {
        Self {
            skip: 0,
            heads: Vec::new(),
            keys: Vec::new(),
            children: vec![child],
            counts: Vec::new(),
        }
    }

    /// The nodes of a piece.
    pub fn of<S: OrderedSchema<Key = K>>(schema: &S, piece: Piece<K>) -> Self {
        let mut parts = Self::single(piece.first.0);
        parts.put(schema, 0, piece);
        parts
    }

    /// Whether any of the children is counted.
    fn is_counted(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Replaces the child at `i` by one that may have another range.
    fn replace(&mut self, i: usize, child: Node) {
        self.children[i] = child.0;
        if self.is_counted() {
            self.counts[i] = None;
        }
    }

    /// Puts a piece in the place of the child at `i`.
    pub fn put<S: OrderedSchema<Key = K>>(&mut self, schema: &S, i: usize, piece: Piece<K>) {
        self.replace(i, piece.first);
        for (i, (key, child)) in (i..).zip(piece.others) {
            self.heads.insert(i, head(schema, key, self.skip));
            self.keys.insert(i, key);
            self.children.insert(i + 1, child.0);
            if self.is_counted() {
                self.counts.insert(i + 1, None);
            }
        }
    }

    /// Replaces the child at `i` and the one behind it by one. Returns the key that was between them.
    pub fn merge(&mut self, i: usize, one: Node) -> Bound<K> {
        self.heads.remove(i);
        self.children.remove(i + 1);
        if self.is_counted() {
            self.counts.remove(i + 1);
        }
        self.replace(i, one);
        self.keys.remove(i)
    }

    /// Takes the key heads at `skip`.
    fn heads_at<S: OrderedSchema<Key = K>>(&mut self, schema: &S, skip: usize) -> Vec<u64> {
        match skip == self.skip {
            true => std::mem::take(&mut self.heads),
            false => self.keys.iter().map(|&key| head(schema, key, skip)).collect(),
        }
    }

    /// Appends a neighbour's contents behind `key`.
    pub fn append<S: OrderedSchema<Key = K>>(&mut self, schema: &S, key: Bound<K>, right: Self) {
        if self.is_counted() || right.is_counted() {
            self.counts.resize(self.children.len(), None);
            self.counts.extend(right.counts);
            self.counts.resize(self.children.len() + right.children.len(), None);
        }
        self.heads.push(head(schema, key, self.skip));
        self.keys.push(key);
        if right.skip == self.skip {
            self.heads.extend(right.heads);
        } else {
            self.heads
                .extend(right.keys.iter().map(|&key| head(schema, key, self.skip)));
        }
        self.keys.extend(right.keys);
        self.children.extend(right.children);
    }

    /// Cuts off the children from `i` on. Returns them and the key before them.
    pub fn cut(&mut self, i: usize) -> (Bound<K>, Self) {
        let right = Self {
            skip: self.skip,
            heads: self.heads.split_off(i),
            keys: self.keys.split_off(i),
            children: self.children.split_off(i),
            counts: self.counts.split_off(i.min(self.counts.len())),
        };
        self.heads.pop();
        (self.keys.pop().expect("a key between two children"), right)
    }
}

fn head<S: OrderedSchema>(schema: &S, key: Bound<S::Key>, skip: usize) -> u64 {
    // SAFETY: the keys of a node are not null, and live as long as the caller's guard.
    let key = unsafe { &*key };
    schema.head(schema.probe(key), skip)
}

/// The longest common prefix considered, in bytes. The cost of a key head grows with its distance from the start of the
/// key.
const DEEPEST: usize = 256;

/// The common prefix, in bytes, of the normalized keys of all keys between two bounds. See `common_within`.
pub(super) fn common<S: OrderedSchema>(schema: &S, low: Bound<S::Key>, high: Bound<S::Key>) -> usize {
    if low.is_null() || high.is_null() {
        return 0;
    }
    common_within(schema, low, high, DEEPEST)
}

/// The common prefix, in bytes, of two separators' normalized keys, up to about `limit`. It is 0 if they differ in the first
/// eight bytes: then the key head at byte 0 decides much, and is the cheapest to compute.
fn common_within<S: OrderedSchema>(schema: &S, low: Bound<S::Key>, high: Bound<S::Key>, limit: usize) -> usize {
    let mut skip = 0;
    while skip < limit {
        let (a, b) = (head(schema, low, skip), head(schema, high, skip));
        if a != b && skip > 0 {
            return skip + ((a ^ b).leading_zeros() / 8) as usize;
        }
        // If both are 0, the strings have probably ended.
        if a != b || a == 0 {
            return skip;
        }
        skip += 8;
    }
    skip
}

/// The common prefix of the key heads of sorted separators, at most seven bytes. 0 if they tell all separators apart.
fn common_if_some_tie(heads: &[u64]) -> usize {
    match heads {
        [first, .., last] if heads.windows(2).any(|pair| pair[0] == pair[1]) => {
            ((first ^ last).leading_zeros() / 8) as usize % 8
        }
        _ => 0,
    }
}

/// Lines of a node with this many children.
fn lines(len: usize) -> usize {
    len.div_ceil(LINE)
}

/// Bytes of a node with this many children.
fn size(len: usize) -> usize {
    (size_of::<Header>() + lines(len) * size_of::<Line>() + (len - 1) * size_of::<Bound<()>>()).next_multiple_of(64)
}

impl<K> Inner<K> {
    /// A new node for the key range from `low` to `high`. If it is `counted`, it has fresh counts.
    pub fn build<S: OrderedSchema<Key = K>>(
        schema: &S,
        low: Bound<K>,
        high: Bound<K>,
        mut parts: Parts<K>,
        counted: bool,
    ) -> Self {
        let len = parts.children.len();
        assert!(len > 1 && parts.keys.len() == len - 1 && parts.heads.len() == len - 1);
        let sure = common(schema, low, high);
        let mut skip = match parts.keys[..] {
            [first, .., last] => {
                let limit = sure + PREFIX * 8;
                common_within(schema, first, last, limit).clamp(sure, limit)
            }
            _ => sure,
        };
        let mut heads = parts.heads_at(schema, skip);
        if let (0, common @ 1..) = (skip, common_if_some_tie(&heads)) {
            skip = common;
            heads = parts.heads_at(schema, skip);
        }
        let words = (skip - sure).div_ceil(8);
        let prefix = std::array::from_fn(|i| {
            if i < words {
                head(schema, parts.keys[0], sure + 8 * i)
            } else {
                0
            }
        });
        let head_at = |i| heads.get(i).copied().unwrap_or(u64::MAX);
        let guide_at = |i| head_at(if len <= GUIDES { i } else { i * LINE + LINE - 1 });
        let at = slab::needed(slab::alloc(size(len)));
        let inner = Self { at, of: PhantomData };
        // SAFETY: this function owns the memory, which is large enough for the header, the lines and the keys behind
        // it.
        unsafe {
            at.cast().write(Header {
                search: match len {
                    _ if skip > 0 => Search::Other,
                    ..=GUIDES => Search::Few,
                    _ if lines(len) <= GUIDES => Search::Guided,
                    _ => Search::Other,
                },
                len: len as u32,
                skip,
                sure,
                prefix,
                counts: CountsPointer::new(counted),
                guides: Guides([0, LINE].map(|first| std::array::from_fn(|i| guide_at(first + i)))),
            });
            for i in 0..lines(len) {
                let child = |at: usize| parts.children.get(at).copied().unwrap_or(std::ptr::null_mut());
                inner.line_at(i).write(Line {
                    heads: std::array::from_fn(|at| head_at(i * LINE + at)),
                    children: std::array::from_fn(|at| AtomicPtr::new(child(i * LINE + at))),
                });
            }
            for (i, &key) in parts.keys.iter().enumerate() {
                inner.keys_at(i).write(key);
            }
        }
        inner
    }

    /// # Safety
    /// `at` is the address of a node that the caller may read (see [`Inner`]).
    pub unsafe fn from_address(at: *mut u8) -> Self {
        Self {
            // SAFETY: the caller's promise.
            at: unsafe { NonNull::new_unchecked(at) },
            of: PhantomData,
        }
    }
    pub fn address(self) -> *mut u8 {
        self.at.as_ptr()
    }
    pub fn size(self) -> usize {
        size(self.len())
    }
    fn header<'a>(self) -> &'a Header {
        // SAFETY: see `Inner`.
        unsafe { self.at.cast().as_ref() }
    }
    pub fn counts_pointer<'a>(self) -> &'a CountsPointer {
        &self.header().counts
    }
    #[inline]
    pub fn len(self) -> usize {
        self.header().len as usize
    }
    pub fn skip(self) -> usize {
        self.header().skip
    }

    /// Whether [`child_of`](Self::child_of) can decide in this node.
    #[inline(always)]
    pub fn is_searched_by_heads(self) -> bool {
        self.header().search != Search::Other
    }

    fn line_at(self, i: usize) -> *mut Line {
        // SAFETY: callers stay within the node.
        unsafe { self.at.as_ptr().add(size_of::<Header>()).cast::<Line>().add(i) }
    }
    fn keys_at(self, i: usize) -> *mut Bound<K> {
        // SAFETY: as above.
        unsafe { self.line_at(lines(self.len())).cast::<Bound<K>>().add(i) }
    }
    #[inline]
    fn line<'a>(self, i: usize) -> &'a Line {
        debug_assert!(i < lines(self.len()));
        // SAFETY: see `Inner`. The callers' `i` comes from a search of this node. Key heads are not written after
        // publication.
        unsafe { &*self.line_at(i) }
    }
    fn head(self, i: usize) -> u64 {
        self.line(i / LINE).heads[i % LINE]
    }
    pub fn key(self, i: usize) -> Bound<K> {
        assert!(i + 1 < self.len());
        // SAFETY: see `Inner`. Keys are not written after publication.
        unsafe { *self.keys_at(i) }
    }
    pub fn slot<'a>(self, i: usize) -> &'a AtomicPtr<u8> {
        debug_assert!(i < self.len());
        &self.line(i / LINE).children[i % LINE]
    }
    /// Acquire pairs with the Release stores that publish nodes: the reader sees the complete node.
    #[inline]
    pub fn child(self, i: usize) -> *mut u8 {
        self.slot(i).load(Acquire)
    }

    /// The bounds of child `i`, given those of the node.
    pub fn bounds(self, i: usize, low: Bound<K>, high: Bound<K>) -> (Bound<K>, Bound<K>) {
        let low = if i > 0 { self.key(i - 1) } else { low };
        let high = if i + 1 < self.len() { self.key(i) } else { high };
        (low, high)
    }

    /// The index of the child whose range holds the key. Without `through`, of the child that holds the keys right
    /// below it.
    pub fn search<S: OrderedSchema<Key = K>>(self, query: &Query<S>, through: bool) -> usize {
        let header = self.header();
        if header.skip != header.sure {
            match self.compare_prefix(query) {
                Ordering::Less => return 0,
                Ordering::Equal => {}
                Ordering::Greater => return self.len() - 1,
            }
        }
        let head = query.head(header.skip);
        // SAFETY: `WIDE` only if `wide` is true.
        let below = unsafe {
            match wide() {
                true => self.below::<true>(head),
                false => self.below::<false>(head),
            }
        };
        if below < self.len() - 1 && self.head(below) == head {
            self.search_equal(query, head, below, through)
        } else {
            below
        }
    }

    /// How many separators have a key head below this one.
    ///
    /// # Safety
    /// `WIDE` only if [`wide`] is true.
    #[inline(always)]
    unsafe fn below<const WIDE: bool>(self, head: u64) -> usize {
        // SAFETY: the caller's promise.
        let guides_below = || unsafe { words_below_of_16::<WIDE>(&self.header().guides.0, head) };
        let line = match lines(self.len()) {
            _ if self.len() <= GUIDES => return guides_below(),
            ..=GUIDES => guides_below(),
            lines => (1..lines).filter(|&next| self.head(next * LINE - 1) < head).count(),
        };
        // SAFETY: as above.
        line * LINE + unsafe { words_below::<WIDE>(&self.line(line).heads, head) }
    }

    /// The index of the child for the keys whose normalized key begins with this key head. `None` if key heads alone
    /// cannot decide: if they do not begin at byte 0, or if a separator has the same one.
    #[inline(always)]
    pub fn index_of(self, head: u64) -> Option<usize> {
        if !self.is_searched_by_heads() {
            return None;
        }
        // SAFETY: `WIDE` only if `wide` is true.
        let below = unsafe {
            match wide() {
                true => self.below::<true>(head),
                false => self.below::<false>(head),
            }
        };
        // Behind the last key head comes `u64::MAX`, so a key with that head is never decided.
        (self.head(below) != head).then_some(below)
    }

    /// The child for the keys whose normalized key begins with this key head. `None` if key heads alone cannot decide:
    /// if they do not begin at byte 0, or if a separator has the same one.
    ///
    /// # Safety
    /// `WIDE` only if [`wide`] is true.
    #[inline(always)]
    pub unsafe fn child_of<const WIDE: bool>(self, head: u64) -> Option<Node> {
        let header = self.header();
        // SAFETY: the caller's promise. Neither guides nor key heads are written after publication.
        let guides_below = || unsafe { words_below_of_16::<WIDE>(&header.guides.0, head) };
        let line = match header.search {
            Search::Few => {
                let below = guides_below();
                // There are more guides than key heads, so the count is less than the number of guides.
                let guide = header.guides.0.as_flattened()[below % GUIDES];
                return (guide != head).then(|| Node(self.child(below % GUIDES)));
            }
            Search::Guided => guides_below(),
            Search::Other => return None,
        };
        let line = opaque(self.line(line));
        cats_sync::prefetch(&line.children);
        // SAFETY: as above. If the last key head of a line is below, a guide leads past this line. So the count is less
        // than the length of a line.
        unsafe {
            let below = words_below::<WIDE>(&line.heads, head);
            debug_assert!(below < LINE);
            // Acquire: see `child`.
            (*line.heads.get_unchecked(below) != head).then(|| Node(line.children.get_unchecked(below).load(Acquire)))
        }
    }

    /// How the key compares with the common prefix of the separators. Other keys of the node's range need not have that
    /// prefix.
    #[inline(never)]
    fn compare_prefix<S: OrderedSchema<Key = K>>(self, query: &Query<S>) -> Ordering {
        let header = self.header();
        query.look_ahead(header.sure, header.skip);
        for (i, &prefix) in header.prefix.iter().enumerate() {
            let at = header.sure + 8 * i;
            if at >= header.skip {
                break;
            }
            let rest = 64 - 8 * (header.skip - at).min(8);
            let order = (query.head(at) >> rest).cmp(&(prefix >> rest));
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }

    /// Continues the search among separators with equal key heads, from `first` on.
    #[cold]
    fn search_equal<S: OrderedSchema<Key = K>>(
        self,
        query: &Query<S>,
        head: u64,
        first: usize,
        through: bool,
    ) -> usize {
        let mut low = first;
        let mut high = (first..self.len() - 1)
            .find(|&i| self.head(i) != head)
            .unwrap_or(self.len() - 1);
        while low < high {
            let middle = (low + high) / 2;
            // SAFETY: separators live as long as the caller's guard.
            let key = query.schema.probe(unsafe { &*self.key(middle) });
            let order = query.schema.compare_probes(key, query.probe);
            if order.is_lt() || through && order.is_eq() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// A copy of the contents. The vectors have room for two more children.
    pub fn parts(self) -> Parts<K> {
        let len = self.len();
        let mut heads = Vec::with_capacity((lines(len) * LINE).max(len + 1));
        let mut children = Vec::with_capacity(len + 2);
        for i in 0..lines(len) {
            let line = self.line(i);
            heads.extend_from_slice(&line.heads);
            // Acquire: see `child`.
            children.extend(
                line.children[..LINE.min(len - i * LINE)]
                    .iter()
                    .map(|child| child.load(Acquire)),
            );
        }
        heads.truncate(len - 1);
        let mut keys = Vec::with_capacity(len + 1);
        keys.extend((0..len - 1).map(|i| self.key(i)));
        let counts = match self.counts() {
            Some(counts) => (0..len).map(|i| Some(counts.at(i))).collect(),
            None => Vec::new(),
        };
        Parts {
            skip: self.skip(),
            heads,
            keys,
            children,
            counts,
        }
    }
}
