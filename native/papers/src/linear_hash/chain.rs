//! Buckets: chains of nodes, one node for each key.
//!
//! All of it is plain memory, which is read and written under the bucket's lock. So a node is freed as soon as it is
//! out of its chain.

use cats_engine::Entry;
use cats_sync::slab;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// The node of a key.
pub struct Node {
    next: Link,
    entry: Entry,
}

/// The next node, or null.
pub type Link = *mut Node;

const NODE: usize = size_of::<Node>();

/// The bytes that an entry takes.
pub fn bytes_of_entry() -> usize {
    slab::usable(NODE)
}

/// A bucket whose lock is held.
#[derive(Clone, Copy)]
pub struct Chain<'l> {
    first: *mut Link,
    held: PhantomData<&'l Link>,
}

/// A link in a chain: to a key's node, or at the end of the chain.
#[derive(Clone, Copy)]
pub struct Place<'l> {
    link: *mut Link,
    held: PhantomData<&'l Link>,
}

impl<'l> Chain<'l> {
    /// # Safety
    /// `first` is a bucket's link to its chain. While the value and its places are used, the caller holds the bucket's
    /// lock. It holds the lock for writing if it calls a method that changes the chain. A change of the chain at one
    /// place makes the other places invalid.
    pub unsafe fn new(first: *mut Link) -> Self {
        Self {
            first,
            held: PhantomData,
        }
    }

    /// The place of the key with this key word for which `matches` is true.
    #[inline]
    pub fn find(self, word: u64, mut matches: impl FnMut(Entry) -> bool) -> Place<'l> {
        let mut place = self.start();
        while let Some(entry) = place.entry() {
            if entry.key == word && (word & 3 == 3 || matches(entry)) {
                break;
            }
            place = place.next();
        }
        place
    }

    /// Shows all entries.
    #[inline]
    pub fn each(self, mut show: impl FnMut(Entry)) {
        let mut place = self.start();
        while let Some(entry) = place.entry() {
            show(entry);
            place = place.next();
        }
    }

    /// The place of the first node.
    #[inline]
    pub fn start(self) -> Place<'l> {
        Place {
            link: self.first,
            held: PhantomData,
        }
    }

    /// Moves the nodes whose key words satisfy `moves` to the end of another chain.
    pub fn divide(self, to: Chain<'_>, moves: impl Fn(u64) -> bool) {
        let mut place = self.start();
        let mut end = to.find(0, |_| false);
        while let Some(entry) = place.entry() {
            if moves(entry.key) {
                end.link_node(place.unlink());
                end = end.next();
            } else {
                place = place.next();
            }
        }
    }
}

impl Place<'_> {
    #[inline]
    fn node(&self) -> Link {
        // SAFETY: `Chain::new`: the link is in a bucket or in a node of its chain, and the caller holds the bucket's
        // lock.
        unsafe { *self.link }
    }

    #[inline]
    pub fn entry(&self) -> Option<Entry> {
        // SAFETY: a linked node is alive, and the caller holds the bucket's lock.
        unsafe { self.node().as_ref() }.map(|node| node.entry)
    }

    /// The place behind a node.
    #[inline]
    fn next(self) -> Self {
        Self {
            // SAFETY: as in `entry`. The caller knows that there is a node.
            link: unsafe { &raw mut (*self.node()).next },
            held: PhantomData,
        }
    }

    /// Replaces the entry of a place that has one.
    #[inline]
    pub fn replace(&self, entry: Entry) {
        // SAFETY: as in `next`. The caller holds the bucket's lock for writing.
        unsafe { (*self.node()).entry = entry }
    }

    /// Adds an entry at the end of a chain, in a spare node.
    #[inline]
    pub fn append(&self, entry: Entry, spare: &mut Spare) {
        let node = spare.pop().expect("a spare node was provided");
        self.link_node(node);
        self.replace(entry);
    }

    /// Takes the node out of the chain.
    #[inline]
    pub fn remove(&self, spare: &mut Spare) {
        spare.push(self.unlink());
    }

    #[inline]
    fn link_node(&self, node: NonNull<Node>) {
        // SAFETY: the caller owns the node, which is in no chain. The place is the end of a chain whose lock the caller
        // holds for writing.
        unsafe {
            (*node.as_ptr()).next = ptr::null_mut();
            *self.link = node.as_ptr();
        }
    }

    #[inline]
    fn unlink(&self) -> NonNull<Node> {
        let node = NonNull::new(self.node()).expect("a place with a node");
        // SAFETY: as in `replace`.
        unsafe { *self.link = node.as_ref().next };
        node
    }
}

/// Nodes that are in no chain. Dropping the list frees them, which should happen after the locks are freed.
pub struct Spare(Link);

impl Spare {
    #[inline]
    pub fn new() -> Self {
        Self(ptr::null_mut())
    }

    /// Adds a new node; unwinds when memory is exhausted.
    #[inline]
    pub fn allocate_or_panic(&mut self) {
        let node = slab::needed(slab::alloc(NODE)).cast::<Node>();
        let entry = Entry { key: 0, body: 0 };
        // SAFETY: new memory for a node.
        unsafe { node.write(Node { next: self.0, entry }) };
        self.0 = node.as_ptr();
    }

    #[inline]
    fn push(&mut self, node: NonNull<Node>) {
        // SAFETY: the caller took the node out of its chain.
        unsafe { (*node.as_ptr()).next = self.0 };
        self.0 = node.as_ptr();
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.0)?;
        // SAFETY: the list owns its nodes.
        self.0 = unsafe { node.as_ref() }.next;
        Some(node)
    }
}

impl Drop for Spare {
    #[inline]
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            // SAFETY: it came from the slab with this size, and no other thread can reach it.
            unsafe { slab::free(node.cast(), NODE) }
        }
    }
}
