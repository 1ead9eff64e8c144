//! A split-ordered list: a hash table that grows without moving anything, and takes no lock.
//!
//! Source: Shalev, Shavit, "Split-ordered lists: lock-free extensible hash tables", JACM 2006. The list is that of Michael, "High
//! performance dynamic lock-free hash tables and list-based sets", SPAA 2002. As in the first, one counter has the number of keys.
//!
//! All keys are in one sorted list, in the order of their hashes with the bits reversed. A bucket is a shortcut to a *dummy* in the
//! list, before the keys of the bucket. The bits that a larger number of buckets adds are the last ones that this order compares. So
//! the keys of each new bucket lie together already, and it needs only a dummy between them, which the first access makes.
//!
//! The papers' list has keys only. Here an insertion of a key that is there stores the value in its node. If the node was deleted since
//! the insertion found it, that is as if the deletion came just after: both were under way. Epochs free the nodes.

use cats_engine::mix;
use cats_sync::epoch::{self, Guard};
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab;
use std::ptr::{self, NonNull};

/// Keys for each bucket on average, from which on there are twice as many buckets.
const LOAD: usize = 2;
/// Buckets of the first segment of the directory, which are those of a new table.
const FIRST: usize = 16;
/// Segments, each as large as all before it.
const SEGMENTS: usize = 40;

/// A key with its value, or a dummy.
struct Node {
    /// The reversed hash. The last bit is 1 in a key's and 0 in a dummy's.
    order: u64,
    key: u64,
    value: AtomicU64,
    /// The next node, with [`DELETED`] if this one is deleted. It never changes afterwards.
    next: AtomicPtr<Node>,
}

/// The bit of a link that says that the node which holds it is deleted.
const DELETED: usize = 1;

fn is_deleted(link: *mut Node) -> bool {
    link.addr() & DELETED != 0
}

fn deleted(link: *mut Node) -> *mut Node {
    link.map_addr(|address| address | DELETED)
}

fn whole(link: *mut Node) -> *mut Node {
    link.map_addr(|address| address & !DELETED)
}

/// Where a search ended: the first node that is not before what was sought, and the link to it.
struct Place<'g> {
    link: &'g AtomicPtr<Node>,
    node: *mut Node,
    /// Whether the node is what was sought.
    found: Option<&'g Node>,
}

/// A map from numbers to numbers.
pub struct SplitOrderedList {
    /// The links of the buckets to their dummies, null before their first access. Segment 0 has the first 16 buckets.
    directory: [AtomicPtr<AtomicPtr<Node>>; SEGMENTS],
    /// Buckets, a power of two.
    buckets: AtomicUsize,
    /// Keys.
    count: AtomicUsize,
}

impl Default for SplitOrderedList {
    fn default() -> Self {
        let guard = epoch::pin();
        let list = Self {
            directory: [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS],
            buckets: AtomicUsize::new(FIRST),
            count: AtomicUsize::new(0),
        };
        let head = new_node(0, 0, 0, ptr::null_mut(), &guard);
        // Relaxed: nobody else has the list.
        list.shortcut(0).store(head, Ordering::Relaxed);
        list
    }
}

impl SplitOrderedList {
    /// The value of a key.
    pub fn lookup(&self, key: u64) -> Option<u64> {
        let guard = epoch::pin();
        let hash = mix(key);
        let node = self
            .find(self.bucket_of(hash, &guard), order(hash), key, &guard)
            .found?;
        // SeqCst: one order of all values that are read and stored.
        Some(node.value.load(Ordering::SeqCst))
    }

    /// Gives a key a value, in place of the one it had. Whether it is new.
    pub fn insert(&self, key: u64, value: u64) -> bool {
        let guard = epoch::pin();
        let hash = mix(key);
        let start = self.bucket_of(hash, &guard);
        let mut new: *mut Node = ptr::null_mut();
        loop {
            let place = self.find(start, order(hash), key, &guard);
            if let Some(node) = place.found {
                // SeqCst: as in `lookup`.
                node.value.store(value, Ordering::SeqCst);
                if let Some(unused) = NonNull::new(new) {
                    // SAFETY: nobody else has seen it.
                    unsafe { slab::free(unused.cast(), size_of::<Node>()) };
                }
                return false;
            }
            if new.is_null() {
                new = new_node(order(hash), key, value, place.node, &guard);
            }
            // SAFETY: made above, and nobody else has seen it. Relaxed: the exchange publishes it.
            unsafe { (*new).next.store(place.node, Ordering::Relaxed) };
            if exchange(place.link, place.node, new) {
                self.count_one_more();
                return true;
            }
        }
    }

    /// Deletes a key. Whether it was there.
    pub fn delete(&self, key: u64) -> bool {
        let guard = epoch::pin();
        let hash = mix(key);
        let start = self.bucket_of(hash, &guard);
        loop {
            let place = self.find(start, order(hash), key, &guard);
            let Some(node) = place.found else {
                return false;
            };
            // Acquire: pairs with the exchange that linked that node.
            let next = node.next.load(Ordering::Acquire);
            if !is_deleted(next) && exchange(&node.next, next, deleted(next)) {
                match exchange(place.link, place.node, next) {
                    true => retire(place.node, &guard),
                    // Others changed the link: a search unlinks the node.
                    false => _ = self.find(start, order(hash), key, &guard),
                }
                // Relaxed: it guards nothing.
                self.count.fetch_sub(1, Ordering::Relaxed);
                return true;
            }
        }
    }

    /// Counts a new key, and doubles the number of buckets if there are many.
    fn count_one_more(&self) {
        // Relaxed: neither guards anything. A thread that sees few buckets starts at one before the key's.
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let buckets = self.buckets.load(Ordering::Relaxed);
        if count > LOAD * buckets && buckets < FIRST << (SEGMENTS - 1) {
            _ = self
                .buckets
                .compare_exchange(buckets, 2 * buckets, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The dummy from which a hash is sought.
    fn bucket_of<'g>(&self, hash: u64, guard: &'g Guard) -> &'g Node {
        // Relaxed: as in `count_one_more`.
        let buckets = self.buckets.load(Ordering::Relaxed);
        self.bucket(hash as usize & (buckets - 1), guard)
    }

    /// The dummy of a bucket, which is made if need be.
    fn bucket<'g>(&self, bucket: usize, guard: &'g Guard) -> &'g Node {
        let shortcut = self.shortcut(bucket);
        // Acquire: pairs with the store below.
        let mut dummy = shortcut.load(Ordering::Acquire);
        if dummy.is_null() {
            dummy = self.make_dummy(bucket, guard);
            // Release: publishes the node. Others store the same one.
            shortcut.store(dummy, Ordering::Release);
        }
        // SAFETY: dummies stay as long as the list does.
        unsafe { &*dummy }
    }

    #[cold]
    fn make_dummy(&self, bucket: usize, guard: &Guard) -> *mut Node {
        // The bucket whose keys were split: the same number without its highest bit.
        let parent = self.bucket(bucket & !(1 << bucket.ilog2()), guard);
        let order = (bucket as u64).reverse_bits();
        let mut new: *mut Node = ptr::null_mut();
        loop {
            let place = self.find(parent, order, 0, guard);
            if place.found.is_some() {
                if let Some(unused) = NonNull::new(new) {
                    // SAFETY: nobody else has seen it.
                    unsafe { slab::free(unused.cast(), size_of::<Node>()) };
                }
                return place.node;
            }
            if new.is_null() {
                new = new_node(order, 0, 0, place.node, guard);
            }
            // SAFETY: made above, and nobody else has seen it. Relaxed: the exchange publishes it.
            unsafe { (*new).next.store(place.node, Ordering::Relaxed) };
            if exchange(place.link, place.node, new) {
                return new;
            }
        }
    }

    /// The link of a bucket to its dummy.
    fn shortcut(&self, bucket: usize) -> &AtomicPtr<Node> {
        let (number, first, size) = match bucket / FIRST {
            0 => (0, 0, FIRST),
            more => (1 + more.ilog2() as usize, FIRST << more.ilog2(), FIRST << more.ilog2()),
        };
        // Acquire: pairs with the exchange below.
        let mut segment = self.directory[number].load(Ordering::Acquire);
        if segment.is_null() {
            let new: Box<[AtomicPtr<Node>]> = (0..size).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
            let new = Box::into_raw(new).cast::<AtomicPtr<Node>>();
            // AcqRel: publishes the segment, or reads that of another thread (Acquire).
            let before = self.directory[number].compare_exchange(segment, new, Ordering::AcqRel, Ordering::Acquire);
            segment = match before {
                Ok(_) => new,
                Err(others) => {
                    // SAFETY: made above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(new, size)) });
                    others
                }
            };
        }
        // SAFETY: a segment has that many links, and stays as long as the list does.
        unsafe { &*segment.add(bucket - first) }
    }

    /// Seeks a node from a dummy on that is before it, and unlinks the deleted ones that it meets.
    fn find<'g>(&self, start: &'g Node, order: u64, key: u64, guard: &'g Guard) -> Place<'g> {
        'again: loop {
            let mut link = &start.next;
            // Acquire: pairs with the exchange that linked the node.
            let mut node = link.load(Ordering::Acquire);
            loop {
                // SAFETY: it was linked, and the guard keeps it.
                let Some(here) = (unsafe { node.as_ref() }) else {
                    return Place {
                        link,
                        node,
                        found: None,
                    };
                };
                // Acquire: as above.
                let next = here.next.load(Ordering::Acquire);
                if is_deleted(next) {
                    // It fails if the node that holds the link is deleted too.
                    if !exchange(link, node, whole(next)) {
                        continue 'again;
                    }
                    retire(node, guard);
                    node = whole(next);
                    continue;
                }
                if (here.order, here.key) >= (order, key) {
                    let found = ((here.order, here.key) == (order, key)).then_some(here);
                    return Place { link, node, found };
                }
                link = &here.next;
                node = next;
            }
        }
    }
}

impl Drop for SplitOrderedList {
    fn drop(&mut self) {
        // Relaxed, all: nobody else has the list.
        let mut node = self.shortcut(0).load(Ordering::Relaxed);
        while let Some(block) = NonNull::new(whole(node)) {
            // SAFETY: each node is in the list once, and nobody reads it.
            unsafe {
                node = block.as_ref().next.load(Ordering::Relaxed);
                slab::free(block.cast(), size_of::<Node>());
            }
        }
        for (number, segment) in self.directory.iter_mut().enumerate() {
            let size = FIRST << number.saturating_sub(1);
            if !segment.get_mut().is_null() {
                // SAFETY: `shortcut` made it, of this size.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(*segment.get_mut(), size)) });
            }
        }
    }
}

/// The place of a key in the list. It follows the dummies of all buckets that the key may be in.
fn order(hash: u64) -> u64 {
    hash.reverse_bits() | 1
}

fn new_node(order: u64, key: u64, value: u64, next: *mut Node, guard: &Guard) -> *mut Node {
    let node = slab::needed(slab::alloc_pinned(guard, size_of::<Node>())).cast::<Node>();
    let (value, next) = (AtomicU64::new(value), AtomicPtr::new(next));
    // SAFETY: new memory of this size.
    unsafe {
        node.write(Node {
            order,
            key,
            value,
            next,
        })
    };
    node.as_ptr()
}

/// Replaces a link.
fn exchange(link: &AtomicPtr<Node>, old: *mut Node, new: *mut Node) -> bool {
    // AcqRel: publishes the new node, and what it follows was published.
    link.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// Frees a node that was unlinked just now, when nobody can read it any more.
fn retire(node: *mut Node, guard: &Guard) {
    // SAFETY: who unlinks a node is one thread, and the block came from the slab with this size.
    unsafe { guard.retire_memory(NonNull::new_unchecked(node).cast(), size_of::<Node>()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Barrier;

    /// The nodes of a list that nobody uses: whether each is a key, its order, key and value.
    fn nodes(list: &SplitOrderedList) -> Vec<(bool, u64, u64, u64)> {
        let mut nodes = Vec::new();
        let mut node = list.shortcut(0).load(Ordering::SeqCst);
        // SAFETY: nobody else uses the list, and nodes in it are not freed.
        while let Some(here) = unsafe { node.as_ref() } {
            node = here.next.load(Ordering::SeqCst);
            assert!(!is_deleted(node), "a deleted node is still linked");
            nodes.push((
                here.order & 1 == 1,
                here.order,
                here.key,
                here.value.load(Ordering::SeqCst),
            ));
        }
        nodes
    }

    /// Whether the list is in order, has each dummy once that a bucket names, and has these keys.
    fn check(list: &SplitOrderedList, expected: &HashMap<u64, u64>) {
        let nodes = nodes(list);
        assert!(
            nodes.windows(2).all(|two| (two[0].1, two[0].2) < (two[1].1, two[1].2)),
            "not in order"
        );
        let found: HashMap<u64, u64> = nodes
            .iter()
            .filter(|node| node.0)
            .map(|node| (node.2, node.3))
            .collect();
        assert_eq!(&found, expected);
        assert_eq!(list.count.load(Ordering::SeqCst), expected.len());
        for bucket in 0..list.buckets.load(Ordering::SeqCst) {
            let dummy = list.shortcut(bucket).load(Ordering::SeqCst);
            // SAFETY: dummies stay as long as the list does.
            let Some(dummy) = (unsafe { dummy.as_ref() }) else {
                continue;
            };
            let places = nodes.iter().filter(|node| node.1 == dummy.order);
            assert_eq!(places.count(), 1, "the dummy of bucket {bucket}");
            assert_eq!(dummy.order.reverse_bits(), bucket as u64);
        }
    }

    #[test]
    fn it_does_what_a_map_does() {
        for range in [1_u64, 10, 1000, 100_000] {
            let (list, mut map) = (SplitOrderedList::default(), HashMap::new());
            let mut random = range;
            for number in 0..20_000 {
                random = mix(random.wrapping_add(0x9e37_79b9_7f4a_7c15));
                let key = random % range;
                match random >> 62 {
                    0 | 1 => assert_eq!(list.insert(key, number), map.insert(key, number).is_none()),
                    2 => assert_eq!(list.delete(key), map.remove(&key).is_some()),
                    _ => assert_eq!(list.lookup(key), map.get(&key).copied()),
                }
            }
            check(&list, &map);
        }
    }

    #[test]
    fn it_grows_with_its_keys() {
        let list = SplitOrderedList::default();
        (0..10_000).for_each(|key| assert!(list.insert(key, key)));
        let buckets = list.buckets.load(Ordering::SeqCst);
        assert!(buckets * LOAD >= 10_000 && buckets < 10_000, "{buckets} buckets");
        (0..10_000).for_each(|key| assert_eq!(list.lookup(key), Some(key)));
        check(&list, &(0..10_000).map(|key| (key, key)).collect());
        // Nearly all buckets have been accessed, and have their dummies.
        let dummies = nodes(&list).iter().filter(|node| !node.0).count();
        assert!(dummies > buckets / 2 && dummies <= buckets, "{dummies} dummies");
    }

    /// Threads insert and delete the same keys, so as many insertions of a key were new as deletions found it, or one more. Keys
    /// of their own are always as they left them.
    #[test]
    fn threads_do_not_lose_each_others_changes() {
        const THREADS: u64 = 4;
        const SHARED: u64 = 2;
        let list = SplitOrderedList::default();
        let barrier = Barrier::new(THREADS as usize);
        let work = |thread: u64| {
            let mut new = [0_i64; SHARED as usize];
            let mut own = HashMap::new();
            let mut random = thread;
            barrier.wait();
            for number in 0..400_000 {
                random = mix(random.wrapping_add(0x9e37_79b9_7f4a_7c15));
                let shared = random % SHARED;
                let key = SHARED + (random >> 20) % 2000 * THREADS + thread;
                match random >> 61 {
                    0 | 1 => new[shared as usize] += i64::from(list.insert(shared, number)),
                    2 | 3 => new[shared as usize] -= i64::from(list.delete(shared)),
                    4 | 5 => assert_eq!(list.insert(key, number), own.insert(key, number).is_none()),
                    6 => assert_eq!(list.delete(key), own.remove(&key).is_some()),
                    _ => assert_eq!(list.lookup(key), own.get(&key).copied()),
                }
            }
            (new, own)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        let mut expected = HashMap::new();
        for shared in 0..SHARED {
            let new: i64 = results.iter().map(|(new, _)| new[shared as usize]).sum();
            let value = list.lookup(shared);
            assert_eq!(new, i64::from(value.is_some()), "key {shared}");
            expected.extend(value.map(|value| (shared, value)));
        }
        results.into_iter().for_each(|(_, own)| expected.extend(own));
        check(&list, &expected);
    }

    /// One thread counts the value of a key up, and another deletes it. No value comes back after a later one or after a deletion.
    #[test]
    fn values_come_in_their_order_and_once() {
        const LAST: u64 = 200_000;
        let list = SplitOrderedList::default();
        let reader = || {
            let (mut latest, mut is_gone) = (0, false);
            while latest < LAST {
                match list.lookup(7) {
                    Some(value) => {
                        assert!(value > latest || value == latest && !is_gone, "{value} after {latest}");
                        (latest, is_gone) = (value, false);
                    }
                    None => is_gone = true,
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(reader);
            scope.spawn(reader);
            let writer = scope.spawn(|| (1..LAST).for_each(|value| _ = list.insert(7, value)));
            (1..LAST).for_each(|_| _ = list.delete(7));
            writer.join().expect("no panic");
            list.insert(7, LAST);
        });
        assert_eq!(list.lookup(7), Some(LAST));
    }
}
