//! The index of a group: nodes by the hash of their objects, in a table of the engine `hash`, as that grows a bucket at a time.

use super::chunk::{Chunk, Node};
use crate::object::prefetch;
use crate::schema::Words;
use cats_engine::hash::Hash;
use cats_engine::{Engine, Entry, Step};
use cats_sync::epoch::Guard;
use cats_sync::slab::Own;
use std::cell::Cell;
use std::ptr::null_mut;

/// See the module's documentation. One thread at a time uses it: the holder of the lock of the group's place.
pub struct Index {
    /// The last node of each hash; it leads to the first.
    last: Hash<Words>,
    /// The number of nodes.
    len: usize,
}

/// The word of a hash.
fn word(hash: u64) -> u64 {
    (hash & !3).max(4)
}

impl Index {
    /// Bytes for each node, roughly.
    pub const BYTES: usize = size_of::<Node>() + 32;

    /// An empty index, or nothing when memory is exhausted.
    pub fn new() -> Option<Self> {
        Some(Self {
            last: Hash::new(Words)?,
            len: 0,
        })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a node, of an object in this chunk, behind those of the same hash; nothing when memory is exhausted.
    pub fn add(&mut self, guard: &Guard, hash: u64, chunk: Chunk) -> Option<*mut Node> {
        let node = Own::new(Node {
            chunk: Cell::new(chunk),
            same: Cell::new(null_mut()),
        })?;
        let node = node.into_raw();
        self.len += 1;
        self.change(guard, hash, |last| {
            // SAFETY: nodes in the index are in use, and this one is new in it.
            unsafe {
                let first = if last.is_null() {
                    node
                } else {
                    (*last).same.replace(node)
                };
                (*node).same.set(first);
            }
            node
        });
        Some(node)
    }

    /// Asks the processor for what [`remove`](Self::remove) will read.
    #[inline]
    pub fn prefetch(&self, guard: &Guard, hash: u64, node: *mut Node) {
        self.last.prefetch(guard, &word(hash));
        prefetch(node as u64);
    }

    /// Replaces the last node of a hash; null stands for none.
    #[inline]
    fn change(&self, guard: &Guard, hash: u64, new: impl FnOnce(*mut Node) -> *mut Node) {
        let word = word(hash);
        let changed = self.last.update(guard, &word, |old| {
            let last = old.map_or(0, |entry| entry.body) as *mut Node;
            let new = new(last);
            let step = match new.is_null() {
                true => Step::Remove,
                false if new == last => Step::Keep,
                false => Step::Put(Entry {
                    key: word,
                    body: new as u64,
                }),
            };
            (step, ())
        });
        changed.expect("nobody else locks it");
    }

    /// The nodes of a hash, in the order in which they were added.
    pub fn nodes(&self, guard: &Guard, hash: u64) -> impl Iterator<Item = *mut Node> {
        let found = self.last.read(guard, &word(hash), |entry| entry);
        let last = found
            .expect("nobody else locks it")
            .map(|entry| entry.body as *mut Node);
        let mut before = last;
        std::iter::from_fn(move || {
            // SAFETY: nodes in the index are in use.
            let node = unsafe { (*before?).same.get() };
            before = (Some(node) != last).then_some(node);
            Some(node)
        })
    }

    /// Takes out a node and frees it. O(1) for the first one of its hash.
    ///
    /// # Safety
    /// The node is in the index, under this hash, and nothing refers to it any more.
    pub unsafe fn remove(&mut self, guard: &Guard, hash: u64, node: *mut Node) {
        // SAFETY: nodes in the index are in use.
        self.change(guard, hash, |last| unsafe {
            let mut before = last;
            while (*before).same.get() != node {
                before = (*before).same.get();
            }
            if before == node {
                return null_mut();
            }
            (*before).same.set((*node).same.get());
            if last == node {
                before
            } else {
                last
            }
        });
        // SAFETY: the caller's promise.
        unsafe { self.free(node) };
    }

    /// Frees a node of an index that is not used any more but for [`dismantle`](Self::dismantle).
    ///
    /// # Safety
    /// As for [`remove`](Self::remove).
    pub unsafe fn free(&mut self, node: *mut Node) {
        // SAFETY: nodes come from `add`.
        drop(unsafe { Own::from_raw(node) });
        self.len -= 1;
    }

    /// Takes an index apart whose nodes are freed, some places at a time; true when nothing is left.
    pub fn dismantle(&mut self, limit: usize) -> bool {
        self.last.dismantle(limit, &mut |_| {})
    }
}
