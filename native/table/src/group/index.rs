//! The index of a group: the position of each object, by the object's hash.
//!
//! Source: Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980. A bucket is a cache line of five entries,
//! and the table grows and shrinks a bucket at a time.
//!
//! One thread at a time uses it: the holder of the lock of the group's place. All lines of a bucket behind its first one are
//! full, and the first one is empty only if it is the only one: so adding takes O(1), and removing and looking up take O(1) but
//! among many objects of one hash.

use super::chunk::{bits, Position};
use cats_sync::slab::Own;

/// Entries of a line.
const PLACES: usize = 5;
/// Lines for which memory is taken at a time.
const SEGMENT: usize = 64;
/// Twice the entries of a bucket on average, at most.
const LOAD: usize = 7;
/// No line.
const NONE: u32 = u32::MAX;
/// Lines of a bucket in which an entry is sought that is to be changed.
const NEAR: usize = 16;

/// See the module's documentation.
pub struct Index {
    /// The first lines of the buckets.
    heads: Lines,
    /// All other lines.
    others: Lines,
    /// The first of those others that are not in use, which are linked.
    unused: u32,
    buckets: usize,
    len: usize,
}

/// Entries: those that have a position, which stand before the others. Where there are more, `next` tells.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    positions: [Option<Position>; PLACES],
    hashes: [u32; PLACES],
    next: u32,
}

impl Line {
    const EMPTY: Line = Line {
        positions: [None; PLACES],
        hashes: [0; PLACES],
        next: NONE,
    };

    /// The number of entries. Here and below all places are looked at, as where one ends is not foreseen by the processor.
    #[inline]
    fn len(&self) -> usize {
        let places = self.positions.iter();
        places.map(|position| usize::from(position.is_some())).sum()
    }

    /// The entries of this hash, and their places.
    #[inline]
    fn of_hash(&self, hash: u32) -> impl Iterator<Item = (usize, Position)> + '_ {
        let places = self.hashes.iter().enumerate();
        let same = places.fold(0, |same, (place, other)| same | u32::from(*other == hash) << place);
        bits(same.into()).filter_map(|place| Some((place, self.positions[place]?)))
    }

    /// The place of the entry of this position.
    #[inline]
    fn place(&self, position: Position) -> Option<usize> {
        let mut found = PLACES;
        for (place, other) in self.positions.iter().enumerate() {
            if *other == Some(position) {
                found = place;
            }
        }
        (found < PLACES).then_some(found)
    }

    fn entries(&self) -> impl Iterator<Item = Indexed> + '_ {
        let both = self.hashes.iter().zip(&self.positions);
        both.map_while(|(hash, position)| position.map(|position| Indexed { hash: *hash, position }))
    }

    fn set(&mut self, place: usize, entry: Indexed) {
        self.hashes[place] = entry.hash;
        self.positions[place] = Some(entry.position);
    }
}

/// That an object of this hash is at this position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    pub hash: u32,
    pub position: Position,
}

/// Lines by their numbers.
struct Lines(Vec<Own<[Line; SEGMENT]>>);

impl Lines {
    fn at(&self, line: usize) -> &Line {
        &self.0[line / SEGMENT][line % SEGMENT]
    }

    fn at_mut(&mut self, line: usize) -> &mut Line {
        &mut self.0[line / SEGMENT][line % SEGMENT]
    }

    /// Adds a segment of empty lines; false when memory is exhausted.
    fn extend(&mut self) -> bool {
        if self.0.try_reserve(1).is_err() {
            return false;
        }
        let segment = Own::new([Line::EMPTY; SEGMENT]);
        let extended = segment.is_some();
        self.0.extend(segment);
        extended
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<[Line; SEGMENT]>() + self.0.capacity() * size_of::<Own<[Line; SEGMENT]>>()
    }
}

impl Index {
    /// An empty index, or nothing when memory is exhausted.
    pub fn new() -> Option<Self> {
        let mut heads = Lines(Vec::new());
        heads.extend().then_some(Self {
            heads,
            others: Lines(Vec::new()),
            unused: NONE,
            buckets: SEGMENT,
            len: 0,
        })
    }

    /// The number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.heads.bytes() + self.others.bytes()
    }

    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        let mask = self.buckets.next_power_of_two() - 1;
        let bucket = hash as usize & mask;
        if bucket < self.buckets {
            bucket
        } else {
            bucket & mask >> 1
        }
    }

    /// Asks the processor for what a call with this hash will read.
    #[inline]
    pub fn prefetch(&self, hash: u32) {
        cats_sync::prefetch(self.heads.at(self.bucket(hash)));
    }

    /// The lines of a bucket; the number of each but the first.
    #[inline]
    fn lines(&self, bucket: usize) -> impl Iterator<Item = (Option<usize>, &Line)> {
        let head = (None, self.heads.at(bucket));
        std::iter::successors(Some(head), |(_, line)| {
            (line.next != NONE).then(|| (Some(line.next as usize), self.others.at(line.next as usize)))
        })
    }

    /// How many objects of this hash there are at most; where there may be more than `limit`, any number above that.
    #[inline]
    pub fn most(&self, hash: u32, limit: usize) -> usize {
        PLACES * self.lines(self.bucket(hash)).take(limit / PLACES + 1).count()
    }

    /// Shows the positions of objects of this hash, until `show` returns false.
    #[inline]
    pub fn each(&self, hash: u32, mut show: impl FnMut(Position) -> bool) {
        for (_, line) in self.lines(self.bucket(hash)) {
            for (_, position) in line.of_hash(hash) {
                if !show(position) {
                    return;
                }
            }
        }
    }

    /// Adds an entry; false when memory is exhausted.
    pub fn add(&mut self, entry: Indexed) -> bool {
        if 2 * self.len >= LOAD * self.buckets {
            self.split();
        }
        let added = self.put(self.bucket(entry.hash), entry);
        self.len += usize::from(added);
        added
    }

    /// Adds an entry to a bucket.
    fn put(&mut self, bucket: usize, entry: Indexed) -> bool {
        let len = self.heads.at(bucket).len();
        if len < PLACES {
            self.heads.at_mut(bucket).set(len, entry);
            return true;
        }
        let Some(other) = self.take_unused() else { return false };
        let mut head = Line::EMPTY;
        head.set(0, entry);
        head.next = other;
        *self.others.at_mut(other as usize) = std::mem::replace(self.heads.at_mut(bucket), head);
        true
    }

    fn take_unused(&mut self) -> Option<u32> {
        if self.unused == NONE {
            let begin = SEGMENT * self.others.0.len();
            if begin + SEGMENT >= NONE as usize || !self.others.extend() {
                return None;
            }
            (begin..begin + SEGMENT)
                .rev()
                .for_each(|line| self.give_unused(line as u32));
        }
        let line = self.unused;
        self.unused = self.others.at(line as usize).next;
        Some(line)
    }

    fn give_unused(&mut self, line: u32) {
        self.others.at_mut(line as usize).next = self.unused;
        self.unused = line;
    }

    /// Takes out the first entry of this hash for whose position `is_it` is true.
    #[inline]
    pub fn take(&mut self, hash: u32, mut is_it: impl FnMut(Position) -> bool) -> Option<Position> {
        let bucket = self.bucket(hash);
        let (line, place, position) = self.lines(bucket).find_map(|(number, line)| {
            let (place, position) = line.of_hash(hash).find(|(_, position)| is_it(*position))?;
            Some((number, place, position))
        })?;
        self.remove_at(bucket, line, place);
        Some(position)
    }

    /// The line and place of an entry, if it is in one of the first `most` lines of its bucket.
    #[inline]
    fn find(&self, bucket: usize, position: Position, most: usize) -> Option<(Option<usize>, usize)> {
        let mut lines = self.lines(bucket).take(most);
        lines.find_map(|(number, line)| line.place(position).map(|place| (number, place)))
    }

    /// Takes out an entry; false if it is not in the first lines of its bucket. O(1).
    #[inline]
    pub fn remove_near(&mut self, entry: Indexed) -> bool {
        self.remove_within(entry, NEAR)
    }

    /// Takes out an entry, which is there.
    pub fn remove(&mut self, entry: Indexed) {
        let removed = self.remove_within(entry, usize::MAX);
        debug_assert!(removed);
    }

    #[inline]
    fn remove_within(&mut self, entry: Indexed, most: usize) -> bool {
        let bucket = self.bucket(entry.hash);
        let found = self.find(bucket, entry.position, most);
        if let Some((line, place)) = found {
            self.remove_at(bucket, line, place);
        }
        found.is_some()
    }

    /// Takes out the entry at this place of this line of a bucket.
    #[inline]
    fn remove_at(&mut self, bucket: usize, line: Option<usize>, place: usize) {
        // The last entry of the first line comes in its place.
        let head = self.heads.at_mut(bucket);
        let last = head.len() - 1;
        let (hash, position) = (head.hashes[last], head.positions[last]);
        let line = match line {
            None => head,
            Some(line) => self.others.at_mut(line),
        };
        (line.hashes[place], line.positions[place]) = (hash, position);
        let head = self.heads.at_mut(bucket);
        head.positions[last] = None;
        let next = head.next;
        if last == 0 && next != NONE {
            *self.heads.at_mut(bucket) = *self.others.at(next as usize);
            self.give_unused(next);
        }
        self.len -= 1;
        if 2 * self.len < self.buckets {
            self.merge();
        }
    }

    /// An entry's object is at another position now; false if it is not in the first lines of its bucket. O(1).
    pub fn move_near(&mut self, entry: Indexed, position: Position) -> bool {
        let bucket = self.bucket(entry.hash);
        let Some((line, place)) = self.find(bucket, entry.position, NEAR) else {
            return false;
        };
        let line = match line {
            Some(line) => self.others.at_mut(line),
            None => self.heads.at_mut(bucket),
        };
        line.positions[place] = Some(position);
        true
    }

    /// Adds a bucket, if there is memory for it.
    fn split(&mut self) {
        let new = self.buckets;
        if new > u32::MAX as usize || new.is_multiple_of(SEGMENT) && !self.heads.extend() {
            return;
        }
        let old = self.bucket(new as u32);
        self.buckets += 1;
        // The entries need no more lines than they had: each line that is given back is there for its own.
        let mut line = std::mem::replace(self.heads.at_mut(old), Line::EMPTY);
        loop {
            for entry in line.entries() {
                let put = self.put(self.bucket(entry.hash), entry);
                debug_assert!(put, "the bucket had the memory");
            }
            if line.next == NONE {
                return;
            }
            let next = line.next;
            line = *self.others.at(next as usize);
            self.give_unused(next);
        }
    }

    /// Takes away the last bucket, if the one that its entries go to has room for them in its first line.
    #[cold]
    fn merge(&mut self) {
        let last = self.buckets - 1;
        if last < SEGMENT {
            return;
        }
        let line = *self.heads.at(last);
        self.buckets = last;
        let into = self.bucket(last as u32);
        if line.next != NONE || line.len() + self.heads.at(into).len() > PLACES {
            self.buckets += 1;
            return;
        }
        for entry in line.entries() {
            self.put(into, entry);
        }
        *self.heads.at_mut(last) = Line::EMPTY;
        if last.is_multiple_of(SEGMENT) {
            self.heads.0.pop();
        }
    }

    /// Frees some of its memory, of an index that is used no more; true when nothing is left.
    pub fn dismantle(&mut self, limit: usize) -> bool {
        for _ in 0..limit.div_ceil(SEGMENT) {
            if self.heads.0.pop().or_else(|| self.others.0.pop()).is_none() {
                return true;
            }
        }
        self.heads.0.is_empty() && self.others.0.is_empty()
    }
}

#[cfg(test)]
impl Index {
    /// That it has just these entries, where they are found.
    pub fn check(&self, mut expected: Vec<Indexed>) {
        let order = |entry: &Indexed| (entry.hash, entry.position.chunk().address(), entry.position.slot());
        let mut all = Vec::new();
        let mut lines = 0;
        for bucket in 0..self.buckets {
            for (number, line) in self.lines(bucket) {
                assert!(line.entries().all(|entry| self.bucket(entry.hash) == bucket));
                match number {
                    Some(_) => assert_eq!(line.len(), PLACES),
                    None => assert!(line.len() > 0 || line.next == NONE),
                }
                lines += usize::from(number.is_some());
                all.extend(line.entries());
            }
        }
        let unused = |line: &u32| (*line != NONE).then_some(*line);
        let next = |line: &u32| unused(&self.others.at(*line as usize).next);
        lines += std::iter::successors(unused(&self.unused), next).count();
        assert_eq!(lines, SEGMENT * self.others.0.len());
        assert_eq!(self.len, all.len());
        all.sort_by_key(order);
        expected.sort_by_key(order);
        assert!(all == expected);
    }
}
