//! The index of a group. For each object it has its position and the address of its block, found by the object's hash. So a search for an
//! object waits for a line of the index and for the block, but not for the chunk in between.
//!
//! Source: Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980. A bucket is a list of *lines*, cache lines of
//! four entries each. The table grows and shrinks by one bucket at a time.
//!
//! Only the holder of the lock of the group's place uses it. Two invariants hold: all lines of a bucket after its first one are full, and
//! the first one is empty only if it is the only one. So adding takes O(1). Removing and looking up take O(1) too, except among many
//! objects of one hash.

use super::chunk::{bits, Position};
use crate::object::{is_block, referent, ADDRESS_BITS};
use cats_sync::slab::Own;

/// The number of entries of a line.
const PLACES: usize = 4;
/// The number of lines for which memory is allocated at a time.
const SEGMENT: usize = 64;
/// The largest average number of entries of a bucket, doubled.
const LOAD: usize = 5;
/// Stands for no line.
const NONE: u32 = u32::MAX;
/// An entry that must be changed is sought in at most this number of lines of its bucket.
const NEAR: usize = 16;
/// The number of bits of a hash, which limits the number of buckets. With more than some forty million objects, buckets grow longer.
pub const HASH_BITS: u32 = 24;

/// The place in an entry's second word that has a byte of the next line's number.
const NEXT_SHIFT: u32 = 56;

/// See the module's documentation.
pub struct Index {
    /// The first lines of the buckets.
    heads: Lines,
    /// All other lines.
    others: Lines,
    /// The first unused one of the other lines. The unused ones are linked.
    unused: u32,
    buckets: usize,
    len: usize,
}

/// The position of an object with this hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    pub hash: u32,
    pub position: Position,
    /// The address of the object's block, or 0 if the object is inline.
    block: u64,
}

impl Indexed {
    /// For an object with this body.
    #[inline]
    pub fn new(hash: u32, position: Position, body: u64) -> Self {
        let block = match is_block(body) {
            true => referent(body) as u64,
            false => 0,
        };
        Self { hash, position, block }
    }

    #[inline]
    fn words(self) -> [u64; 2] {
        let hash = u64::from(self.hash);
        debug_assert!((self.position.word() | self.block) >> ADDRESS_BITS == 0);
        [
            self.position.word() | hash << ADDRESS_BITS,
            self.block | hash >> 16 << ADDRESS_BITS,
        ]
    }

    /// The object's body, without the size of its block.
    #[inline]
    pub fn body(&self) -> u64 {
        match self.block {
            0 => self.position.body(),
            block => block,
        }
    }
}

/// A cache line of entries. Used entries stand before unused ones.
///
/// | bits | first word | second word |
/// |---|---|---|
/// | 0 to 47 | position, 0 if unused | address of the block |
/// | 48 to 55 | hash, bits 0 to 7 | hash, bits 16 to 23 |
/// | 56 to 63 | hash, bits 8 to 15 | one byte of the next line's number |
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([[u64; 2]; PLACES]);

impl Line {
    const EMPTY: Line = Line([[0, (NONE as u64) << NEXT_SHIFT]; PLACES]);

    /// The number of used entries. Here and below a loop goes over all places: leaving it early would often be a mispredicted branch.
    #[inline]
    fn len(&self) -> usize {
        self.0.iter().map(|words| usize::from(low(words[0]) != 0)).sum()
    }

    #[inline]
    fn get(&self, place: usize) -> Option<Indexed> {
        let words = self.0[place];
        Some(Indexed {
            hash: hash(words),
            position: Position::from_word(low(words[0]))?,
            block: low(words[1]),
        })
    }

    /// The entries with this hash, and their places.
    #[inline]
    fn of_hash(&self, sought: u32) -> impl Iterator<Item = (usize, Indexed)> + '_ {
        let places = self.0.iter().enumerate();
        let same = places.fold(0, |same, (place, words)| {
            same | u64::from(hash(*words) == sought) << place
        });
        bits(same).filter_map(|place| Some((place, self.get(place)?)))
    }

    /// The place of the entry with this position.
    #[inline]
    fn place(&self, position: Position) -> Option<usize> {
        let mut found = PLACES;
        for (place, words) in self.0.iter().enumerate() {
            if low(words[0]) == position.word() {
                found = place;
            }
        }
        (found < PLACES).then_some(found)
    }

    fn entries(&self) -> impl Iterator<Item = Indexed> + '_ {
        (0..PLACES).map_while(|place| self.get(place))
    }

    /// Sets the words of the entry at this place. Position 0 makes it unused.
    #[inline]
    fn set(&mut self, place: usize, [first, second]: [u64; 2]) {
        let next = self.0[place][1] >> NEXT_SHIFT << NEXT_SHIFT;
        self.0[place] = [first, second << 8 >> 8 | next];
    }

    #[inline]
    fn next(&self) -> u32 {
        let bytes = self.0.map(|words| (words[1] >> NEXT_SHIFT) as u8);
        u32::from_le_bytes(bytes)
    }

    fn set_next(&mut self, next: u32) {
        for (words, byte) in self.0.iter_mut().zip(next.to_le_bytes()) {
            words[1] = words[1] << 8 >> 8 | u64::from(byte) << NEXT_SHIFT;
        }
    }
}

/// The position or address in a word.
#[inline]
fn low(word: u64) -> u64 {
    word & ((1 << ADDRESS_BITS) - 1)
}

/// The hash of the entry with these words.
#[inline]
fn hash(words: [u64; 2]) -> u32 {
    let byte = words[1] << 8 >> NEXT_SHIFT;
    (words[0] >> ADDRESS_BITS | byte << 16) as u32
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

    /// Adds a segment of empty lines. Returns false when memory is exhausted.
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
    /// An empty index. `None` when memory is exhausted.
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

    /// The size of its memory in bytes.
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

    /// Prefetches the line that a call with this hash reads first.
    #[inline]
    pub fn prefetch(&self, hash: u32) {
        cats_sync::prefetch(self.heads.at(self.bucket(hash)));
    }

    /// The lines of a bucket. All except the first have a number.
    #[inline]
    fn lines(&self, bucket: usize) -> impl Iterator<Item = (Option<usize>, &Line)> {
        let head = (None, self.heads.at(bucket));
        std::iter::successors(Some(head), |(_, line)| {
            let next = line.next();
            (next != NONE).then(|| (Some(next as usize), self.others.at(next as usize)))
        })
    }

    /// An upper bound of the number of objects with this hash. If there may be more than `limit`, the result is any number above `limit`.
    #[inline]
    pub fn most(&self, hash: u32, limit: usize) -> usize {
        PLACES * self.lines(self.bucket(hash)).take(limit / PLACES + 1).count()
    }

    /// Calls `show` with the entries of this hash, until it returns false.
    #[inline]
    pub fn each(&self, hash: u32, mut show: impl FnMut(Indexed) -> bool) {
        for (_, line) in self.lines(self.bucket(hash)) {
            for (_, entry) in line.of_hash(hash) {
                if !show(entry) {
                    return;
                }
            }
        }
    }

    /// Adds an entry. Returns false when memory is exhausted.
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
            self.heads.at_mut(bucket).set(len, entry.words());
            return true;
        }
        let Some(other) = self.take_unused() else { return false };
        let mut head = Line::EMPTY;
        head.set(0, entry.words());
        head.set_next(other);
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
        self.unused = self.others.at(line as usize).next();
        Some(line)
    }

    fn give_unused(&mut self, line: u32) {
        let unused = self.unused;
        self.others.at_mut(line as usize).set_next(unused);
        self.unused = line;
    }

    /// Removes and returns the first entry of this hash for which `is_it` is true.
    #[inline]
    pub fn take(&mut self, hash: u32, mut is_it: impl FnMut(&Indexed) -> bool) -> Option<Indexed> {
        let bucket = self.bucket(hash);
        let (line, place, entry) = self.lines(bucket).find_map(|(number, line)| {
            let (place, entry) = line.of_hash(hash).find(|(_, entry)| is_it(entry))?;
            Some((number, place, entry))
        })?;
        self.remove_at(bucket, line, place);
        Some(entry)
    }

    /// The line and place of an entry, if it is in one of the first `most` lines of its bucket.
    #[inline]
    fn find(&self, bucket: usize, position: Position, most: usize) -> Option<(Option<usize>, usize)> {
        let mut lines = self.lines(bucket).take(most);
        lines.find_map(|(number, line)| line.place(position).map(|place| (number, place)))
    }

    /// Removes the entry of this position. Returns false if it is not in the first [`NEAR`] lines of its bucket. O(1).
    #[inline]
    pub fn remove_near(&mut self, hash: u32, position: Position) -> bool {
        self.remove_within(hash, position, NEAR)
    }

    /// Removes the entry of this position, which must exist.
    pub fn remove(&mut self, hash: u32, position: Position) {
        let removed = self.remove_within(hash, position, usize::MAX);
        debug_assert!(removed);
    }

    #[inline]
    fn remove_within(&mut self, hash: u32, position: Position, most: usize) -> bool {
        let bucket = self.bucket(hash);
        let found = self.find(bucket, position, most);
        if let Some((line, place)) = found {
            self.remove_at(bucket, line, place);
        }
        found.is_some()
    }

    /// Removes the entry at this place of this line of a bucket.
    #[inline]
    fn remove_at(&mut self, bucket: usize, line: Option<usize>, place: usize) {
        // The last entry of the first line replaces it.
        let head = self.heads.at_mut(bucket);
        let last = head.len() - 1;
        let words = head.0[last];
        let line = match line {
            None => head,
            Some(line) => self.others.at_mut(line),
        };
        line.set(place, words);
        let head = self.heads.at_mut(bucket);
        head.set(last, [0, 0]);
        if last == 0 && head.next() != NONE {
            let next = head.next();
            *head = *self.others.at(next as usize);
            self.give_unused(next);
        }
        self.len -= 1;
        if 2 * self.len < self.buckets {
            self.merge();
        }
    }

    /// Records that an object moved from position `from` to that of `entry`. Returns false if it is not in the first [`NEAR`] lines of its
    /// bucket. O(1).
    pub fn move_near(&mut self, from: Position, entry: Indexed) -> bool {
        let bucket = self.bucket(entry.hash);
        let Some((line, place)) = self.find(bucket, from, NEAR) else {
            return false;
        };
        let line = match line {
            Some(line) => self.others.at_mut(line),
            None => self.heads.at_mut(bucket),
        };
        line.set(place, entry.words());
        true
    }

    /// Adds a bucket, if there is memory for it.
    fn split(&mut self) {
        let new = self.buckets;
        if new >> HASH_BITS != 0 || new % SEGMENT == 0 && !self.heads.extend() {
            return;
        }
        let old = self.bucket(new as u32);
        self.buckets += 1;
        // The entries need no more lines than before. Each line that becomes free is available for its own entries.
        let mut line = std::mem::replace(self.heads.at_mut(old), Line::EMPTY);
        loop {
            for entry in line.entries() {
                let put = self.put(self.bucket(entry.hash), entry);
                debug_assert!(put, "the bucket had the memory");
            }
            let next = line.next();
            if next == NONE {
                return;
            }
            line = *self.others.at(next as usize);
            self.give_unused(next);
        }
    }

    /// Removes the last bucket, if its entries fit the first line of the bucket to which they belong then.
    #[cold]
    fn merge(&mut self) {
        let last = self.buckets - 1;
        if last < SEGMENT {
            return;
        }
        let line = *self.heads.at(last);
        self.buckets = last;
        let into = self.bucket(last as u32);
        if line.next() != NONE || line.len() + self.heads.at(into).len() > PLACES {
            self.buckets += 1;
            return;
        }
        for entry in line.entries() {
            self.put(into, entry);
        }
        *self.heads.at_mut(last) = Line::EMPTY;
        if last % SEGMENT == 0 {
            self.heads.0.pop();
        }
    }

    /// Frees a part of the memory of an index that is no longer used. Returns true when nothing is left.
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
    /// Checks that the index has exactly these entries, each where it is sought.
    pub fn check(&self, mut expected: Vec<Indexed>) {
        let order = |entry: &Indexed| (entry.hash, entry.position.chunk().address(), entry.position.slot());
        let mut all = Vec::new();
        let mut lines = 0;
        for bucket in 0..self.buckets {
            for (number, line) in self.lines(bucket) {
                assert!(line.entries().all(|entry| self.bucket(entry.hash) == bucket));
                match number {
                    Some(_) => assert_eq!(line.len(), PLACES),
                    None => assert!(line.len() > 0 || line.next() == NONE),
                }
                lines += usize::from(number.is_some());
                all.extend(line.entries());
            }
        }
        let unused = |line: &u32| (*line != NONE).then_some(*line);
        let next = |line: &u32| unused(&self.others.at(*line as usize).next());
        lines += std::iter::successors(unused(&self.unused), next).count();
        assert_eq!(lines, SEGMENT * self.others.0.len());
        assert_eq!(self.len, all.len());
        all.sort_by_key(order);
        expected.sort_by_key(order);
        assert!(all == expected);
    }
}
