//! Nodes of a skip list: the place of one key, with a tower of links.
//!
//! What identifies the key never changes: its key head, and a name. The name is the key itself if that is an immediate,
//! and otherwise the address of a copy. So a search compares without locks, whatever happens to the entry. The node's
//! version lock covers the entry, the dead flag and the link at level 0. Higher links also change under the lock, but
//! readers need no consistent view of them.

use super::Sought;
use crate::hazard::Link;
use cats_engine::{Entry, OrderedSchema};
use cats_sync::facade::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*, Witness};
use cats_sync::slab;
use cats_sync::version_lock::VersionLock;
use cats_sync::Busy;
use std::cmp::Ordering;
use std::ptr::{self, NonNull};

/// The largest number of levels. One node in four is on the next level, so this is enough for 2^32 nodes.
pub const LEVELS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// The fields before the links.
#[repr(C)]
pub struct Fields {
    /// The first field, so that node and link have the same address.
    retired: Link,
    /// The key head at byte 0.
    head: u64,
    /// The key, if it is an immediate. Otherwise the address of its copy. 0 in the first node of the list.
    name: usize,
    pub lock: VersionLock,
    /// The entry. The key word is 0 if there is none.
    key: AtomicU64,
    body: AtomicU64,
    /// The node is unlinked for good, or about to be. Set under the lock, before the first link to it is removed.
    dead: AtomicBool,
    height: u8,
    witness: Witness,
}

/// The address of a node that is protected while this value is used. It is protected by a hazard pointer, by its held
/// lock while it is not dead, or because no other thread is there. The first node of the list is always protected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Node(NonNull<Fields>);

impl std::ops::Deref for Node {
    type Target = Fields;

    #[inline]
    fn deref(&self) -> &Fields {
        // SAFETY: the node is protected, as the type says.
        unsafe { self.0.as_ref() }
    }
}

/// Bytes of a node. A node with one level is one cache line.
pub const fn size(height: usize) -> usize {
    size_of::<Fields>() + height * size_of::<AtomicPtr<Fields>>()
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size(1) == 64);

impl Node {
    /// A node with this lock, without an entry, with null links. `None` when memory is exhausted.
    fn allocate(height: usize, head: u64, name: usize, lock: VersionLock) -> Option<Node> {
        let node = slab::alloc(size(height))?.cast::<Fields>();
        // SAFETY: new memory for the fields and the links after them.
        unsafe {
            node.write(Fields {
                retired: Link::new(),
                head,
                name,
                lock,
                key: AtomicU64::new(0),
                body: AtomicU64::new(0),
                dead: AtomicBool::new(false),
                height: height as u8,
                witness: Witness::new(),
            });
            node.as_ref().witness.see();
            let links = node.add(1).cast::<AtomicPtr<Fields>>();
            for level in 0..height {
                links.add(level).write(AtomicPtr::new(ptr::null_mut()));
            }
        }
        Some(Node(node))
    }

    /// The first node of a list. It is below all keys, never locked for long, and never dead.
    pub fn head() -> Option<Node> {
        Self::allocate(LEVELS, 0, 0, VersionLock::new(0))
    }

    /// A node for a key to search for. Its lock is free.
    pub fn new<S: OrderedSchema>(sought: &Sought<'_, S>, height: usize) -> Option<Node> {
        let word = sought.schema.word(sought.probe);
        let name = if word & 3 == 3 {
            word as usize
        } else {
            Box::into_raw(Box::new(sought.schema.own_probe(sought.probe))) as usize
        };
        let node = Self::allocate(height, sought.head, name, VersionLock::new(0));
        if node.is_none() && word & 3 != 3 {
            // SAFETY: boxed just now.
            drop(unsafe { Box::from_raw(name as *mut S::Key) });
        }
        node
    }

    /// # Safety
    /// The address is null, or of a node that is protected while the result is used.
    #[inline]
    pub unsafe fn from_address(address: *mut Fields) -> Option<Node> {
        NonNull::new(address).map(Node)
    }

    #[inline]
    pub fn address(self) -> *mut Fields {
        self.0.as_ptr()
    }

    pub fn as_retired(self) -> *mut Link {
        self.0.as_ptr().cast()
    }

    #[inline]
    pub fn height(self) -> usize {
        usize::from(self.height)
    }

    /// The link at a level below the node's height.
    #[inline]
    pub fn link<'a>(self, level: usize) -> &'a AtomicPtr<Fields> {
        debug_assert!(level < self.height());
        // SAFETY: the links come after the fields, and the node is protected.
        unsafe { self.0.add(1).cast::<AtomicPtr<Fields>>().add(level).as_ref() }
    }

    /// Prefetches the next node on a level. A search reads it if it descends to that level.
    #[inline]
    pub fn prefetch_next(self, level: usize) {
        // Relaxed: the address serves only for prefetching.
        cats_sync::prefetch(self.link(level).load(Relaxed));
    }

    /// Whether the node is dead. Acquire: later reads of the node come after this one, and if it is dead, they see what
    /// its remover saw.
    #[inline]
    pub fn is_dead(self) -> bool {
        self.dead.load(Acquire)
    }

    /// The entry. For the holder of the lock, or for a reader that validates an earlier token.
    #[inline]
    pub fn entry(self) -> Option<Entry> {
        // Acquire: a body may be the address of a new object.
        let key = self.key.load(Acquire);
        let body = self.body.load(Acquire);
        (key != 0).then_some(Entry { key, body })
    }

    /// How the sought key compares with the node's. Reads only fields that never change.
    #[inline]
    pub fn compare<S: OrderedSchema>(self, sought: &Sought<'_, S>) -> Ordering {
        self.witness.look();
        match sought.head.cmp(&self.head) {
            Ordering::Equal => self.compare_names(sought),
            decided => decided,
        }
    }

    fn compare_names<S: OrderedSchema>(self, sought: &Sought<'_, S>) -> Ordering {
        if self.name & 3 == 3 {
            let word = self.name as u64;
            // SAFETY: an immediate key is compared by its key word alone.
            return unsafe { sought.schema.compare(sought.probe, Entry { key: word, body: word }) };
        }
        // SAFETY: the copy lives as long as the node.
        let key = unsafe { &*(self.name as *const S::Key) };
        sought.schema.compare_probes(sought.probe, sought.schema.probe(key))
    }

    /// A copy of the node's key.
    pub fn own<S: OrderedSchema>(self, schema: &S) -> S::Key {
        if self.name & 3 == 3 {
            let word = self.name as u64;
            // SAFETY: an immediate key is copied by its key word alone.
            return unsafe { schema.own(Entry { key: word, body: word }) };
        }
        // SAFETY: the copy lives as long as the node.
        let key = unsafe { &*(self.name as *const S::Key) };
        schema.own_probe(schema.probe(key))
    }

    /// The bytes of the node and its key.
    pub fn bytes<S: OrderedSchema>(self, schema: &S) -> usize {
        let key = if self.name & 3 == 3 {
            0
        } else {
            // SAFETY: the copy lives as long as the node.
            size_of::<S::Key>() + schema.key_bytes(unsafe { &*(self.name as *const S::Key) })
        };
        slab::usable(size(self.height())) + key
    }

    // The following methods are for the holder of the lock.

    /// Stores the entry.
    pub fn put(self, entry: Entry) {
        // Release pairs with the Acquire of `entry`. The body is stored first, so a reader that sees a new key sees a
        // body that was stored with it or later.
        self.body.store(entry.body, Release);
        self.key.store(entry.key, Release);
    }

    /// Removes the entry.
    pub fn take(self) {
        // Release: as in `put`.
        self.key.store(0, Release);
    }

    /// Marks the node dead.
    pub fn die(self) {
        // Release, before the links to the node are removed. A search that passes through the unlinked node sees that
        // it is dead.
        self.dead.store(true, Release);
    }

    /// Frees the node and its key.
    ///
    /// # Safety
    /// No other thread uses the node, and it is not used again. `S` is the schema that made it.
    pub unsafe fn free<S: OrderedSchema>(self) {
        self.witness.see();
        if cfg!(loom) {
            // The model checker still tracks accesses to its atomics.
            return;
        }
        if self.name & 3 == 0 && self.name != 0 {
            // SAFETY: boxed by `new`.
            drop(unsafe { Box::from_raw(self.name as *mut S::Key) });
        }
        // SAFETY: allocated with this size.
        unsafe { slab::free(self.0.cast(), size(self.height())) };
    }
}

/// A locked node. Dropping it frees the lock, by default as changed.
pub struct Held {
    pub node: Node,
    version: u64,
    /// Whether something was changed that tokens cover.
    pub changed: bool,
}

impl Held {
    /// Locks a node after a bounded wait.
    #[inline]
    pub fn lock(node: Node) -> Result<Held, Busy> {
        let (version, _) = node.lock.lock()?;
        Ok(Held {
            node,
            version,
            changed: false,
        })
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if self.changed {
            self.node.lock.unlock(self.version);
        } else {
            self.node.lock.unlock_unchanged(self.version);
        }
    }
}
