//! Memory for objects that will be inserted into a group. Who has it before makes insertions that do not fail.

use super::chunk::{planes_of, Chunk, FULL};
use super::signature::signature;
use super::{Group, KeyPlace};
use cats_sync::slab::Own;
use smallvec::SmallVec;
use std::iter::repeat_n;

/// See the module's documentation. The default value has room for nothing.
#[derive(Default)]
pub struct Room {
    /// A group without objects.
    group: Option<Own<Group>>,
    /// Chunks without objects. The first one to be used is the last one here.
    chunks: SmallVec<[Chunk; 1]>,
}

impl Room {
    /// Room for a group of these objects. `None` when memory is exhausted.
    ///
    /// # Safety
    /// The objects live, and have this key.
    pub unsafe fn for_new(key: KeyPlace, bodies: impl Iterator<Item = u64>) -> Option<Self> {
        // SAFETY: as the caller promises.
        let signature = |body| signature(unsafe { key.object(body) }, key.place);
        let (objects, all) = bodies.fold((0, 0), |(count, all), body| (count + 1, all | signature(body)));
        let planes = planes_of(all);
        let chunk = Chunk::new(objects, planes)?;
        let mut room = Self {
            group: Some(Group::of_chunk(chunk, 0, 0)?),
            chunks: SmallVec::new(),
        };
        room.provide(objects, chunk.capacity(), planes).then_some(room)
    }

    /// Room for `more` objects in a group. With `removing`, objects will be removed from it before. `None` when memory is exhausted.
    ///
    /// # Safety
    /// The caller holds the lock of the place, and holds it until the objects are inserted.
    pub unsafe fn within(group: &Group, more: usize, removing: bool) -> Option<Self> {
        // SAFETY: as the caller promises.
        let last = unsafe { group.writer() }.last;
        // Where objects are removed, chunks may be joined. Then it is not known how much room the last one will have.
        let count = match removing && last.previous().is_some() {
            true => FULL,
            false => last.count(),
        };
        let mut room = Self::default();
        room.provide(count + more, last.capacity(), last.needed())
            .then_some(room)
    }

    /// Adds what is needed for so many objects in a last chunk of this capacity and in those after it. Returns false when memory is
    /// exhausted.
    fn provide(&mut self, objects: usize, capacity: usize, planes: usize) -> bool {
        if objects <= capacity {
            return true;
        }
        // A chunk that is not of the largest size is replaced by one for all of them.
        let first = (capacity < FULL).then_some(objects);
        let others = repeat_n(FULL, objects.saturating_sub(FULL).div_ceil(FULL));
        others.chain(first).all(|size| {
            let chunk = Chunk::new(size, planes);
            self.chunks.extend(chunk);
            chunk.is_some()
        })
    }

    /// The group without objects.
    pub fn take_group(&mut self) -> Option<u64> {
        self.group.take().map(Group::into_body)
    }

    pub(super) fn take_chunk(&mut self) -> Option<Chunk> {
        self.chunks.pop()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: nobody else has seen it.
            unsafe { chunk.free() }
        }
    }
}
