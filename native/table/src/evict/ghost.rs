//! The ghost queue of S3-FIFO: which objects were evicted lately. It keeps two bytes of each, and no keys.
//!
//! The bytes lie in sets of one cache line. Within a set the oldest object gives way, so the search for an object reads one cache line.
//! Sets have a quarter more places than needed, as they do not fill evenly. So each object also has an *age group*, by which it is
//! forgotten at the right time:
//!
//! ```text
//!  bit 15           3 2          0
//!    +---------------+-----------+
//!    | fingerprint   | age group |    all 0: a free place
//!    +---------------+-----------+
//! ```

/// The places of a set.
const WAYS: usize = 32;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set([u16; WAYS]);

const GROUP_BITS: u32 = 3;
const GROUP_MASK: u16 = (1 << GROUP_BITS) - 1;
/// All objects that are remembered are of so many age groups. Numbers of groups are used again after twice as many.
const GROUPS: u16 = 1 << (GROUP_BITS - 1);

/// The bytes for each object, at most: a quarter more places of 2 bytes than it remembers objects, and these may be half as many again.
pub const EACH: usize = 4;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Ghost {
    sets: Vec<Set>,
    /// The number of objects that are remembered.
    capacity: usize,
    /// The present age group, and how many of its objects are still to come.
    group: u16,
    left: usize,
}

impl Ghost {
    /// The number of objects that it remembers.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Remembers this number of objects from now on, and forgets all.
    pub fn reset(&mut self, objects: usize) {
        self.sets = Vec::new();
        self.sets.resize((objects + objects / 4).div_ceil(WAYS), Set([0; WAYS]));
        self.capacity = objects;
        (self.group, self.left) = (0, self.group_size());
    }

    /// The number of objects of an age group. Rounded up, so that few objects are remembered long enough, too.
    fn group_size(&self) -> usize {
        self.capacity.div_ceil(GROUPS.into())
    }

    /// Remembers an object with this hash. Without room, it does nothing.
    pub fn remember(&mut self, hash: u32) {
        if self.left == 0 {
            self.left = self.group_size();
            self.group = (self.group + 1) & GROUP_MASK;
        }
        self.left = self.left.saturating_sub(1);
        let mark = fingerprint(hash) | self.group;
        if let Some(Set(set)) = self.set(hash) {
            set.copy_within(..WAYS - 1, 1);
            set[0] = mark;
        }
    }

    /// Forgets an object with this hash. Returns whether it was remembered.
    pub fn forget(&mut self, hash: u32) -> bool {
        let (group, sought) = (self.group, fingerprint(hash));
        let is_young = |mark: u16| group.wrapping_sub(mark) & GROUP_MASK < GROUPS;
        let Some(Set(set)) = self.set(hash) else {
            return false;
        };
        // Without a branch for each, so that the compiler compares many at once.
        let mut same = set.iter().enumerate().fold(0_u32, |same, (place, mark)| {
            same | u32::from(mark & !GROUP_MASK == sought) << place
        });
        let mut place = None;
        while same != 0 && place.is_none() {
            let first = same.trailing_zeros() as usize;
            place = is_young(set[first]).then_some(first);
            same &= same - 1;
        }
        if let Some(place) = place {
            set.copy_within(place + 1.., place);
            set[WAYS - 1] = 0;
            // Another one may have its room.
            self.left += 1;
        }
        place.is_some()
    }

    /// The bytes of its memory.
    pub fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<Set>()
    }

    /// The set of a hash, chosen by its high bits.
    fn set(&mut self, hash: u32) -> Option<&mut Set> {
        let place = self.place(hash);
        self.sets.get_mut(place)
    }

    fn place(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.sets.len() as u64) >> u32::BITS) as usize
    }

    /// Prefetches what a call with this hash reads.
    pub fn prefetch(&self, hash: u32) {
        cats_sync::prefetch(self.sets.as_ptr().wrapping_add(self.place(hash)));
    }
}

/// Never 0.
fn fingerprint(hash: u32) -> u16 {
    (hash as u16).max(1 << GROUP_BITS) & !GROUP_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> u32 {
        (cats_engine::mix(number.into()) >> 2) as u32
    }

    #[test]
    fn the_latest_are_remembered() {
        let mut ghost = Ghost::default();
        ghost.remember(hash(1));
        assert!(!ghost.forget(hash(1)));
        ghost.reset(3200);
        (0..100_000).for_each(|number| ghost.remember(hash(number)));
        let remembered = |ghost: &mut Ghost, from| (from..from + 100).filter(|n| ghost.forget(hash(*n))).count();
        assert!(remembered(&mut ghost, 97_200) > 90);
        // Longer ago than there are places, by more than an age group.
        assert!(remembered(&mut ghost, 96_200) < 10);
        assert_eq!(remembered(&mut ghost, 99_900), 100);
        // Each is forgotten once.
        assert!(remembered(&mut ghost, 99_900) < 10);
    }

    /// Up to one set. The oldest age group is forgotten as a whole.
    #[test]
    fn few_are_remembered_as_long_as_many() {
        for objects in 1..=25 {
            let mut ghost = Ghost::default();
            ghost.reset(objects);
            (0..100).for_each(|number| ghost.remember(hash(number)));
            let latest = 100 - objects as u32..100;
            let remembered = latest.filter(|number| ghost.forget(hash(*number))).count();
            assert!(remembered >= objects - objects / 4, "{remembered} of {objects}");
        }
    }

    #[test]
    fn what_is_forgotten_leaves_its_room() {
        let mut ghost = Ghost::default();
        ghost.reset(3200);
        (0..3200).for_each(|number| ghost.remember(hash(number)));
        (800..2400).for_each(|number| _ = ghost.forget(hash(number)));
        (3200..4600).for_each(|number| ghost.remember(hash(number)));
        assert!((0..800).filter(|number| ghost.forget(hash(*number))).count() > 700);
    }
}
