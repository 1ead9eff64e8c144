//! All objects of one key in a bag or duplicate_bag: a list in the order of insertion, and above [`SMALL`] objects an index
//! by the hash of the object, so that looking for one of many equal-keyed objects takes O(log n), never a scan.
//!
//! One thread at a time changes a group: the holder of the engine's lock on the key's place. Others read meanwhile, under
//! guards, and the engine validates what they read: they follow `head` and `next` only, and unlinked nodes are retired.

use crate::object::{body_bytes, free_body, is_group, refers, retire_body, ObjectRef, GROUP};
use crate::reaper::{self, Garbage};
use crate::schema::{identical, object_hash};
use cats_engine::Entry;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab;
use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeMap;
use std::ptr::{null_mut, NonNull};

/// Up to so many objects are searched one by one.
const SMALL: usize = 16;

/// Bytes that an index takes for a node, roughly.
const INDEX_BYTES: usize = 24;

struct Node {
    body: AtomicU64,
    next: AtomicPtr<Node>,
    /// The node before; only for the writer.
    previous: Cell<*mut Node>,
    /// Another node whose object has the same hash, if there is an index; only for the writer.
    same: Cell<*mut Node>,
}

/// See the module's documentation.
pub struct Group {
    head: AtomicPtr<Node>,
    count: AtomicUsize,
    writer: UnsafeCell<Writer>,
}

/// What only the holder of the place's lock uses.
struct Writer {
    last: *mut Node,
    /// Bytes of the objects.
    bytes: usize,
    /// The first node of each hash.
    index: Option<BTreeMap<u64, *mut Node>>,
}

/// What a removal took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub objects: usize,
    pub bytes: usize,
}

/// Where the objects of a group have their key: the key word of the entry, and the place, counted from 0.
#[derive(Clone, Copy)]
pub struct KeyPlace {
    pub word: u64,
    pub place: usize,
}

impl KeyPlace {
    /// # Safety
    /// As for [`ObjectRef::new`].
    #[inline]
    pub unsafe fn object<'a>(self, body: u64) -> ObjectRef<'a> {
        let entry = Entry { key: self.word, body };
        // SAFETY: as the caller promises.
        unsafe { ObjectRef::new(entry, self.place) }
    }
}

impl Group {
    /// The body of a group with these two objects, in this order; nothing when memory is exhausted.
    pub fn of_two(first: u64, second: u64) -> Option<u64> {
        let group = Box::new(Group {
            head: AtomicPtr::new(null_mut()),
            count: AtomicUsize::new(0),
            writer: UnsafeCell::new(Writer {
                last: null_mut(),
                bytes: 0,
                index: None,
            }),
        });
        let a = allocate(first)?;
        let Some(b) = allocate(second) else {
            // SAFETY: the node is new and in no list.
            unsafe { free_node(a) };
            return None;
        };
        // SAFETY: the group is new: nobody else uses it.
        unsafe {
            group.append(a);
            group.append(b);
        }
        Some(Box::into_raw(group) as u64 | GROUP)
    }

    /// # Safety
    /// The body is that of a group, which lives for `'a`.
    #[inline]
    pub unsafe fn from_body<'a>(body: u64) -> &'a Group {
        // SAFETY: such a body is the address of a group plus a tag.
        unsafe { &*((body & !3) as *const Group) }
    }

    /// The number of objects.
    #[inline]
    pub fn count(&self) -> usize {
        // Relaxed: readers validate the place after reading, writers hold its lock.
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes that the group takes besides its objects.
    pub fn bytes_for(objects: usize) -> usize {
        let index = if objects > SMALL { INDEX_BYTES } else { 0 };
        size_of::<Group>() + objects * (size_of::<Node>() + index)
    }

    /// Shows the objects' bodies in the order of insertion, until `show` returns false. What a reader without the lock sees
    /// counts only once the engine has validated the place.
    #[inline]
    pub fn each(&self, mut show: impl FnMut(u64) -> bool) {
        // Acquire, here and below: pairs with the Release by which a node is linked, so that its fields are seen.
        let mut node = self.head.load(Ordering::Acquire);
        while !node.is_null() {
            // SAFETY: nodes are retired through the epoch; this thread holds a guard or the place's lock.
            let at = unsafe { &*node };
            // Acquire: pairs with the Release of `replace_each`.
            if !show(at.body.load(Ordering::Acquire)) {
                return;
            }
            node = at.next.load(Ordering::Acquire);
        }
    }

    /// The first object's body, if there is one.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        let mut first = None;
        self.each(|body| {
            first = Some(body);
            false
        });
        first
    }

    /// Whether an equal object is in the group.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn contains(&self, key: KeyPlace, object: ObjectRef<'_>) -> bool {
        // SAFETY: the caller is the only writer; the objects live while it holds the lock.
        unsafe {
            match &(*self.writer.get()).index {
                Some(index) => {
                    let mut node = index
                        .get(&object_hash(object, key.place))
                        .copied()
                        .unwrap_or(null_mut());
                    while !node.is_null() {
                        if identical(key.object((*node).body.load(Ordering::Relaxed)), object) {
                            return true;
                        }
                        node = (*node).same.get();
                    }
                    false
                }
                None => {
                    let mut found = false;
                    self.each(|body| {
                        found = identical(key.object(body), object);
                        !found
                    });
                    found
                }
            }
        }
    }

    /// Adds an object at the end; false, and nothing done, when memory is exhausted. O(log n).
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn insert(&self, key: KeyPlace, body: u64) -> bool {
        let Some(node) = allocate(body) else { return false };
        // SAFETY: the caller is the only writer.
        unsafe {
            self.append(node);
            let writer = &mut *self.writer.get();
            if let Some(index) = &mut writer.index {
                enter(index, key, node);
            } else if self.count() > SMALL {
                self.build_index(key);
            }
        }
        true
    }

    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn build_index(&self, key: KeyPlace) {
        let mut index = BTreeMap::new();
        // Relaxed: the writer's own links.
        let mut node = self.head.load(Ordering::Relaxed);
        // SAFETY: the caller is the only writer; nodes in the list live.
        unsafe {
            while !node.is_null() {
                enter(&mut index, key, node);
                node = (*node).next.load(Ordering::Relaxed);
            }
            (*self.writer.get()).index = Some(index);
        }
    }

    /// Puts other objects in the places of those for which `new` gives one, by its body; how many, and by how many bytes the
    /// objects have grown. O(n).
    ///
    /// # Safety
    /// The caller holds the lock of the place; the new objects have the group's key, and are the group's from now on.
    pub unsafe fn replace_each(
        &self,
        guard: &Guard,
        key: KeyPlace,
        mut new: impl FnMut(&ObjectRef<'_>) -> Option<u64>,
    ) -> (usize, i64) {
        let (mut replaced, mut growth) = (0, 0);
        // SAFETY: the caller is the only writer; objects in the list live, and are retired once they are out of it.
        unsafe {
            // Relaxed: the writer's own links and bodies.
            let mut node = self.head.load(Ordering::Relaxed);
            while !node.is_null() {
                let old = (*node).body.load(Ordering::Relaxed);
                if let Some(body) = new(&key.object(old)) {
                    // Release: a reader sees the new object's block.
                    (*node).body.store(body, Ordering::Release);
                    growth += body_bytes(body) as i64 - body_bytes(old) as i64;
                    retire_body(guard, old);
                    replaced += 1;
                }
                node = (*node).next.load(Ordering::Relaxed);
            }
            let writer = &mut *self.writer.get();
            writer.bytes = writer.bytes.saturating_add_signed(growth as isize);
            if replaced > 0 && writer.index.is_some() {
                self.build_index(key);
            }
        }
        (replaced, growth)
    }

    /// # Safety
    /// The caller holds the lock of the place, or is the group's only user; the node is in no list.
    unsafe fn append(&self, node: *mut Node) {
        // SAFETY: as the caller promises.
        unsafe {
            let writer = &mut *self.writer.get();
            (*node).previous.set(writer.last);
            let link = if writer.last.is_null() {
                &self.head
            } else {
                &(*writer.last).next
            };
            // Release: publishes the node's fields to readers that follow the link.
            link.store(node, Ordering::Release);
            writer.last = node;
            writer.bytes += body_bytes((*node).body.load(Ordering::Relaxed));
        }
        // Relaxed: see `count`.
        self.count.store(self.count() + 1, Ordering::Relaxed);
    }

    /// Removes all objects equal to this one. O(log n) and O(1) for each.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn remove(&self, guard: &Guard, key: KeyPlace, object: ObjectRef<'_>) -> Removed {
        let mut removed = Removed::default();
        // SAFETY: the caller is the only writer; nodes are retired only once they are unlinked from the list and the index.
        unsafe {
            let writer = &mut *self.writer.get();
            if let Some(index) = &mut writer.index {
                let hash = object_hash(object, key.place);
                let mut node = index.remove(&hash).unwrap_or(null_mut());
                let mut kept: *mut Node = null_mut();
                while !node.is_null() {
                    let same = (*node).same.get();
                    if identical(key.object((*node).body.load(Ordering::Relaxed)), object) {
                        removed.add(self.unlink(guard, node));
                    } else {
                        (*node).same.set(kept);
                        kept = node;
                    }
                    node = same;
                }
                if !kept.is_null() {
                    index.insert(hash, kept);
                }
            } else {
                let mut node = self.head.load(Ordering::Relaxed);
                while !node.is_null() {
                    let next = (*node).next.load(Ordering::Relaxed);
                    if identical(key.object((*node).body.load(Ordering::Relaxed)), object) {
                        removed.add(self.unlink(guard, node));
                    }
                    node = next;
                }
            }
        }
        removed
    }

    /// # Safety
    /// The caller holds the lock of the place; the node is in the list, and in no index any more.
    unsafe fn unlink(&self, guard: &Guard, node: *mut Node) -> Removed {
        // SAFETY: as the caller promises.
        unsafe {
            let writer = &mut *self.writer.get();
            let previous = (*node).previous.get();
            let next = (*node).next.load(Ordering::Relaxed);
            let link = if previous.is_null() {
                &self.head
            } else {
                &(*previous).next
            };
            // Release: a reader that comes by this link sees the next node's fields.
            link.store(next, Ordering::Release);
            if next.is_null() {
                writer.last = previous;
            } else {
                (*next).previous.set(previous);
            }
            // Relaxed: see `count`.
            self.count.store(self.count() - 1, Ordering::Relaxed);
            let bytes = body_bytes((*node).body.load(Ordering::Relaxed));
            writer.bytes -= bytes;
            guard.retire(node.cast(), 0, drop_node);
            Removed { objects: 1, bytes }
        }
    }

    /// The bytes of all objects.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn object_bytes(&self) -> usize {
        // SAFETY: the caller is the only writer.
        unsafe { (*self.writer.get()).bytes }
    }

    /// Frees up to `limit` objects of a group that nobody else can see; true when none is left.
    pub fn dismantle(&mut self, limit: usize) -> bool {
        let mut freed = 0;
        while freed < limit {
            let node = self.head.load(Ordering::Relaxed);
            if node.is_null() {
                break;
            }
            // SAFETY: this is the only user.
            unsafe {
                self.head.store((*node).next.load(Ordering::Relaxed), Ordering::Relaxed);
                drop_node(node.cast(), 0);
            }
            freed += 1;
        }
        let index = &mut self.writer.get_mut().index;
        while freed < limit {
            if index.as_mut().and_then(BTreeMap::pop_first).is_none() {
                *index = None;
                break;
            }
            freed += 1;
        }
        self.head.load(Ordering::Relaxed).is_null() && index.is_none()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        while !self.dismantle(usize::MAX) {}
    }
}

// SAFETY: what is not atomic is used only under the lock of the place.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

impl Removed {
    fn add(&mut self, other: Removed) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

/// # Safety
/// As for [`Group::insert`]; the node is in the list.
unsafe fn enter(index: &mut BTreeMap<u64, *mut Node>, key: KeyPlace, node: *mut Node) {
    // SAFETY: as the caller promises.
    unsafe {
        let hash = object_hash(key.object((*node).body.load(Ordering::Relaxed)), key.place);
        let first = index.insert(hash, node).unwrap_or(null_mut());
        (*node).same.set(first);
    }
}

fn allocate(body: u64) -> Option<*mut Node> {
    let node = slab::alloc(size_of::<Node>())?.cast::<Node>().as_ptr();
    // SAFETY: the memory is new and large enough.
    unsafe {
        node.write(Node {
            body: AtomicU64::new(body),
            next: AtomicPtr::new(null_mut()),
            previous: Cell::new(null_mut()),
            same: Cell::new(null_mut()),
        });
    }
    Some(node)
}

/// # Safety
/// The node is in no list and has no other user; its object stays.
unsafe fn free_node(node: *mut Node) {
    // SAFETY: as the caller promises; nodes come from `allocate`.
    unsafe { slab::free(NonNull::new_unchecked(node.cast()), size_of::<Node>()) }
}

/// Frees a node and its object; fits `cats_sync::epoch::Drop`.
unsafe fn drop_node(address: *mut u8, _: usize) {
    let node = address.cast::<Node>();
    // SAFETY: the node is unlinked and nobody reads it any more.
    unsafe {
        free_body((*node).body.load(Ordering::Relaxed));
        free_node(node);
    }
}

/// Groups up to this size are freed where they are met, larger ones by the reaper: a thread that frees what it has retired
/// frees some hundred of them at once.
const FREE_AT_ONCE: usize = 64;

/// Frees what an entry's body refers to, an object or a group, once nobody can be reading it.
///
/// # Safety
/// The entry is unlinked, and this happens once.
pub unsafe fn retire_entry(guard: &Guard, body: u64) {
    // SAFETY: what the entry refers to is unlinked, as the caller promises.
    unsafe {
        if is_group(body) {
            let large = leave_to_reaper(Group::from_body(body));
            guard.retire((body & !3) as *mut u8, large as usize, drop_group);
        } else {
            retire_body(guard, body);
        }
    }
}

/// The same of a place that has another entry now, or none; 0 if it had none before.
///
/// # Safety
/// As for [`retire_entry`], unless the body is 0.
#[inline(always)]
pub unsafe fn retire_replaced(guard: &Guard, body: u64) {
    if body != 0 && refers(body) {
        // SAFETY: as the caller promises.
        unsafe { retire_entry(guard, body) }
    }
}

/// Frees what an entry of a dismantled engine refers to; a large group is left to be freed in slices.
///
/// # Safety
/// Nobody else uses the entry.
pub unsafe fn free_entry(body: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        if is_group(body) {
            let large = leave_to_reaper(Group::from_body(body));
            drop_group((body & !3) as *mut u8, large as usize);
        } else {
            free_body(body);
        }
    }
}

/// Whether the group is one for the reaper, which is told so.
fn leave_to_reaper(group: &Group) -> bool {
    let large = group.count() > FREE_AT_ONCE;
    if large {
        reaper::expect();
    }
    large
}

/// Frees a group, or leaves it to the reaper if the number is not 0; fits `cats_sync::epoch::Drop`.
unsafe fn drop_group(address: *mut u8, large: usize) {
    // SAFETY: groups are boxed, and this one is unlinked and unread.
    let group = unsafe { Box::from_raw(address.cast::<Group>()) };
    if large != 0 {
        reaper::enqueue(Garbage::Group(group));
    }
}
