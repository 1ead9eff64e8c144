//! Maps that are trees: reads and makes their nodes.
//!
//! The VM has a map of many pairs as a hash tree. Which child of a node a pair belongs to is up to the hash of its key,
//! and that hash is the VM's own. So a stored map has the shape of the tree ([`Map::nodes`](cats_term::Map::nodes)), and
//! the map is made again without hashing any key.
//!
//! | item | words |
//! |---|---|
//! | the root | header, number of pairs, children |
//! | another node | header, children |
//! | a node of pairs whose keys have the same hash | header of a tuple, children |
//! | a pair | a cell of key and value |
//!
//! A node's header has a bit for each child that exists. The VM iterates over the children in their order.

use super::{boxed, cell, BOXED, CELL, KIND, KIND_BITS, TUPLE, UNKNOWN};
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicU64, Ordering};
use rustler::sys::enif_is_identical;
use smallvec::SmallVec;
use std::ptr::NonNull;
use std::slice::from_raw_parts;

/// The kind of the headers of all maps, if trees are known. Accesses are relaxed: it is written before the first
/// table is made.
static KIND_OF_MAPS: AtomicU64 = AtomicU64::new(UNKNOWN);

/// The bits of a header that say which node it is: its kind, then two bits for the type.
const TYPE: u64 = 0xff;
const NODE: u64 = 1 << KIND_BITS;
/// A root has this bit. If it has all 16 children, the other bit of the type differs.
const ROOT: u64 = 2 << KIND_BITS;
/// The bits for the children.
const CHILDREN: u64 = 0xffff << CHILDREN_SHIFT;
const CHILDREN_SHIFT: u32 = 16;

/// Where a stored node has the bits for the children that are nodes.
const NODES_SHIFT: u32 = 32;
/// Most levels of a tree that is read. In the VM no tree has as many, but by chance or malice.
const LEVELS: usize = 32;

/// The words of a tree's stored nodes.
pub type Nodes = SmallVec<[u64; 64]>;

/// Whether trees are known.
#[inline(always)]
pub fn is_known() -> bool {
    KIND_OF_MAPS.load(Ordering::Relaxed) != UNKNOWN
}

/// Learns trees from maps of integers. `kind` is that of the headers of maps. `make` makes a map of this many pairs.
pub fn learn(env: Env, kind: u64, mut sizes: impl Iterator<Item = usize>, make: impl Fn(usize) -> Option<Term>) {
    let is_expected = |pairs| make(pairs).is_some_and(|map| is_tree(env, kind, map, pairs));
    let kind = if sizes.all(is_expected) { kind } else { UNKNOWN };
    KIND_OF_MAPS.store(kind, Ordering::Relaxed);
}

/// Leaves trees to `erl_nif` until they are learned again.
pub fn forget() {
    KIND_OF_MAPS.store(UNKNOWN, Ordering::Relaxed);
}

/// Whether a map of this many integers is a tree that can be read and made.
fn is_tree(env: Env, kind: u64, map: Term, pairs: usize) -> bool {
    let (mut keys, mut values) = (vec![0; pairs], vec![0; pairs]);
    // SAFETY: the layout of other terms is known. There are as many words as a header says.
    let Some(nodes) = (unsafe { read_as(kind, map, &mut keys, &mut values) }) else {
        return false;
    };
    let lying = std::iter::zip(keys, values);
    let (mut rest, mut in_order) = (lying.clone(), true);
    let passed = env.each_pair(map, pairs, |key, value| {
        in_order &= rest.next() == Some((key.0, value.0))
    });
    // SAFETY: the layout of environments is known, and the keys and values are immediates.
    let made = unsafe {
        let (at, behind) = make(env, super::next(env), &nodes, lying);
        super::set_next(env, behind);
        Term(at.addr().get() as u64 | BOXED)
    };
    // SAFETY: both are terms of the environment, if the nodes are what they should be.
    passed.is_some() && in_order && unsafe { enif_is_identical(made.raw(), map.raw()) } != 0
}

/// The number of children of the node with this header.
#[inline(always)]
fn children(header: u64) -> usize {
    match header & KIND {
        TUPLE => (header >> KIND_BITS) as usize,
        _ => (header & CHILDREN).count_ones() as usize,
    }
}

/// Reads a map that is a tree: writes its keys and values, in the order of iteration, and returns its nodes. Nothing if
/// trees are not known, or the map is no tree of that many pairs.
///
/// # Safety
/// As for [`boxed`](super::boxed). The term is a map.
pub unsafe fn read(map: Term, keys: &mut [u64], values: &mut [u64]) -> Option<Nodes> {
    let kind = KIND_OF_MAPS.load(Ordering::Relaxed);
    if kind == UNKNOWN {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { read_as(kind, map, keys, values) }
}

/// # Safety
/// As for [`read`]; maps have this kind.
unsafe fn read_as(kind: u64, map: Term, keys: &mut [u64], values: &mut [u64]) -> Option<Nodes> {
    // SAFETY: as the caller promises; a root has a number of pairs, and then as many children as its header says.
    unsafe {
        let (header, behind) = boxed(map)?;
        let is_root = header & (TYPE & !NODE) == kind | ROOT && *behind == keys.len() as u64;
        if !is_root || keys.len() != values.len() {
            return None;
        }
        let mut reader = Reader {
            kind,
            keys,
            values,
            pairs: 0,
            nodes: Nodes::new(),
        };
        reader.node(header, behind.add(1), LEVELS)?;
        (reader.pairs == reader.keys.len()).then_some(reader.nodes)
    }
}

struct Reader<'a> {
    kind: u64,
    keys: &'a mut [u64],
    values: &'a mut [u64],
    /// The number of pairs so far.
    pairs: usize,
    nodes: Nodes,
}

impl Reader<'_> {
    /// Reads a node with this header, and everything below it. Nothing if there are more levels, or more pairs.
    ///
    /// # Safety
    /// These are the children of the node.
    unsafe fn node(&mut self, header: u64, first: *const u64, levels: usize) -> Option<()> {
        let levels = levels.checked_sub(1)?;
        let place = self.nodes.len();
        self.nodes.push(header);
        // SAFETY: as the caller promises. A child is a cell or a node.
        unsafe {
            for (i, &child) in from_raw_parts(first, children(header)).iter().enumerate() {
                if let Some((key, value)) = cell(Term(child)) {
                    *self.keys.get_mut(self.pairs)? = key.0;
                    *self.values.get_mut(self.pairs)? = value.0;
                    self.pairs += 1;
                } else {
                    let (below, first) = boxed(Term(child))?;
                    if below & TYPE != self.kind | NODE && below & KIND != TUPLE {
                        return None;
                    }
                    // A tuple has pairs only.
                    if header & KIND == TUPLE {
                        return None;
                    }
                    self.nodes[place] |= 1 << (NODES_SHIFT as usize + i);
                    self.node(below, first, levels)?;
                }
            }
        }
        Some(())
    }
}

/// Makes a map of these pairs at `next`, or where there is room. The words of a pair are immediates, or are set later.
/// Returns where the map is, and the place behind it. The cells of the pairs are the last items before that
/// place.
///
/// # Safety
/// As for [`room`](super::room). [`read`] gave the nodes, for a map of as many pairs.
#[inline(always)]
pub unsafe fn make(
    env: Env,
    next: NonNull<u64>,
    nodes: &[u64],
    pairs: impl ExactSizeIterator<Item = (u64, u64)>,
) -> (NonNull<u64>, NonNull<u64>) {
    // Each pair is a cell, and each node has a header. Each is the child of one node, except for the root. That has the
    // number of pairs instead.
    let count = pairs.len();
    let words = 3 * count + 2 * nodes.len();
    // SAFETY: as the caller promises.
    unsafe {
        let at = super::room(env, next, words);
        let behind = at.add(words);
        let cells = behind.sub(2 * count);
        for (i, (key, value)) in pairs.enumerate() {
            cells.add(2 * i).write(key);
            cells.add(2 * i + 1).write(value);
        }
        Writer { nodes, at, cells }.node(Some(count));
        (at, behind)
    }
}

struct Writer<'a> {
    nodes: &'a [u64],
    /// Where the next node goes.
    at: NonNull<u64>,
    /// The cell of the next pair.
    cells: NonNull<u64>,
}

impl Writer<'_> {
    /// Writes the next node, and everything below it. If it is the root, `pairs` is the number of pairs.
    ///
    /// # Safety
    /// There is room for all nodes and cells.
    unsafe fn node(&mut self, pairs: Option<usize>) {
        let Some((&node, rest)) = self.nodes.split_first() else {
            return;
        };
        self.nodes = rest;
        let header = node & u64::from(u32::MAX);
        let count = children(header);
        // SAFETY: as the caller promises. There is room for a header, the number of pairs in a root, and the children.
        unsafe {
            self.at.write(header);
            let mut slot = self.at.add(1);
            if let Some(pairs) = pairs {
                slot.write(pairs as u64);
                slot = slot.add(1);
            }
            self.at = slot.add(count);
            let mut below = node >> NODES_SHIFT;
            for i in 0..count {
                let slot = slot.add(i);
                if below & 1 == 0 {
                    slot.write(self.cells.addr().get() as u64 | CELL);
                    self.cells = self.cells.add(2);
                } else {
                    slot.write(self.at.addr().get() as u64 | BOXED);
                    self.node(None);
                }
                below >>= 1;
            }
        }
    }
}
