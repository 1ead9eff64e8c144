//! The keys of which a node needs nothing more, as far as they are remembered. So most writes beside a snapshot need no search for a copy.
//!
//! Only keys that are immediates, because their key words are the keys. A word is in the line of eight words that its hash chooses. The
//! number of lines grows by four at a time with that of the keys (linear hashing).
//!
//! Whatever is found is true. But a word may be forgotten at any time: when its line is full, when a line is split, or when two threads
//! write one line. Then the copies tell. So nothing is locked.

use cats_engine::hash_of;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicU64, Ordering};
use cats_term::is_immediate;
use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::iter;
use std::ptr::null_mut;

/// Words of a line.
const WORDS: usize = 8;
/// Lines of the first segment. Each further segment doubles the number of lines, until a segment has [`LARGE`] lines.
const FIRST: usize = 8;
/// The most lines of a segment: 256 KiB. To make and to free one takes some 100 microseconds.
const LARGE: usize = 4096;
/// The number of segments until one is large.
const DOUBLING: usize = (LARGE / FIRST).ilog2() as usize + 2;
/// With all lines there are 16 MiB.
const MOST: usize = 64 * LARGE;
const SEGMENTS: usize = DOUBLING - 2 + MOST / LARGE;
/// For one key in so many, this number of lines is added. So a line has some four words.
const ONE_IN: u64 = 16;
const ADDED: usize = 4;

/// A cache line.
#[repr(C, align(64))]
struct Line([AtomicU64; WORDS]);

/// The number of lines, and the mask of the powers of two that are not less: in one word, so that a search computes little.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Size(u64);

impl Size {
    const NONE: Self = Self(0);

    fn new(lines: usize) -> Self {
        let mask = lines.next_power_of_two() as u64 - 1;
        Self(lines as u64 | mask << 32)
    }

    fn lines(self) -> usize {
        self.0 as u32 as usize
    }

    /// The line of a hash.
    #[inline]
    fn line_of(self, hash: u64) -> usize {
        let (mask, number) = (self.0 >> 32, hash >> 32 & self.0 >> 32);
        let number = if number < self.0 & u64::from(u32::MAX) {
            number
        } else {
            number & (mask >> 1)
        };
        number as usize
    }
}

/// See the module's documentation.
pub struct Settled {
    /// A [`Size`].
    size: AtomicU64,
    /// Where line 0 would be if the lines of the segment were the next ones.
    segments: [AtomicPtr<Line>; SEGMENTS],
}

/// The segment of a line.
#[inline]
fn segment_of(line: usize) -> usize {
    match line < 2 * LARGE {
        true => ((line | (FIRST - 1)).ilog2() - (FIRST - 1).ilog2()) as usize,
        false => DOUBLING - 2 + line / LARGE,
    }
}

/// The first line of a segment.
fn first_of(segment: usize) -> usize {
    match segment {
        0 => 0,
        _ if segment < DOUBLING => FIRST << (segment - 1),
        _ => (segment - (DOUBLING - 2)) * LARGE,
    }
}

fn layout_of(segment: usize) -> Layout {
    let lines = first_of(segment).clamp(FIRST, LARGE);
    Layout::array::<Line>(lines).expect("at most 256 KiB")
}

/// Frees a segment. Has the type `cats_sync::epoch::Drop`.
unsafe fn free(at: *mut u8, segment: usize) {
    // SAFETY: `provide` made it with this layout, and nobody uses it any more.
    unsafe { dealloc(at, layout_of(segment)) }
}

impl Default for Settled {
    fn default() -> Self {
        Self {
            size: AtomicU64::new(0),
            segments: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }
}

impl Settled {
    /// Whether it is known that nothing more of this key is needed.
    #[inline]
    pub fn has(&self, word: u64) -> bool {
        let size = self.size();
        if size == Size::NONE || !is_immediate(word) {
            return false;
        }
        let Some(line) = self.line(size.line_of(hash_of(word))) else {
            return false;
        };
        // Acquire pairs with the Release in `add`: whoever finds the word finds the copy, and so does who sees what is written next.
        line.0.iter().any(|kept| kept.load(Ordering::Acquire) == word)
    }

    /// Remembers that nothing more of this key is needed. `kept` says that it was kept just now.
    pub fn add(&self, word: u64, kept: bool) {
        if !is_immediate(word) {
            return;
        }
        let hash = hash_of(word);
        let size = self.size();
        if kept && (size == Size::NONE || hash >> 2 & (ONE_IN - 1) == 0) {
            self.grow(size);
        }
        let Some(line) = self.line(self.size().line_of(hash)) else {
            return;
        };
        // Relaxed: any place will do.
        let is_free = |place: &&AtomicU64| [0, word].contains(&place.load(Ordering::Relaxed));
        let place = line.0.iter().find(is_free);
        // Another word is forgotten. For each word it is always the one at the same place, so that few words forget each other in turns.
        let place = place.unwrap_or(&line.0[hash as usize >> 8 & (WORDS - 1)]);
        // Release: as in `has`.
        place.store(word, Ordering::Release);
    }

    #[inline]
    fn size(&self) -> Size {
        // Relaxed: any size is right.
        Size(self.size.load(Ordering::Relaxed))
    }

    /// The bytes of the lines.
    pub fn bytes(&self) -> usize {
        // Relaxed: only whether there is one.
        let is_there = |number: &usize| !self.segments[*number].load(Ordering::Relaxed).is_null();
        let there = (0..SEGMENTS).filter(is_there);
        there.map(|number| layout_of(number).size()).sum()
    }

    /// Forgets all, and has each segment freed by itself: all of them at once would take long. Nobody asks for a word any more, except those
    /// who have begun.
    pub fn give_up(&self, guard: &Guard) {
        for (number, at) in self.take() {
            // SAFETY: the segment was taken here, so it is retired once.
            unsafe { guard.retire_sized(at, number, free, layout_of(number).size()) }
        }
    }

    /// Takes all segments out: their numbers and addresses.
    fn take(&self) -> impl Iterator<Item = (usize, *mut u8)> + '_ {
        // AcqRel: whoever frees the segment does so after everything that was done to it.
        let take = |segment: &AtomicPtr<Line>| segment.swap(null_mut(), Ordering::AcqRel);
        let taken = self.segments.iter().map(take).enumerate();
        let taken = taken.filter(|(_, start)| !start.is_null());
        taken.map(|(number, start)| (number, start.wrapping_add(first_of(number)).cast()))
    }

    /// A line, if there is memory for it.
    #[inline]
    fn line(&self, line: usize) -> Option<&Line> {
        // Acquire pairs with the Release in `provide`: the words are zeros first.
        let start = self.segments[segment_of(line)].load(Ordering::Acquire);
        // SAFETY: a segment lives as long as this value, and has this line.
        (!start.is_null()).then(|| unsafe { &*start.wrapping_add(line) })
    }

    /// Makes the segment of a line, unless it is there. Returns false if there is no memory.
    fn provide(&self, line: usize) -> bool {
        let segment = segment_of(line);
        let (place, layout) = (&self.segments[segment], layout_of(segment));
        // Relaxed: a hint. Who uses the segment loads it in `line`.
        if !place.load(Ordering::Relaxed).is_null() {
            return true;
        }
        // SAFETY: the layout has a size. Zeros are valid words.
        let made = unsafe { alloc_zeroed(layout) }.cast::<Line>();
        if made.is_null() {
            return false;
        }
        // Release: as in `line`.
        let start = made.wrapping_sub(first_of(segment));
        let put = place.compare_exchange(null_mut(), start, Ordering::Release, Ordering::Relaxed);
        if put.is_err() {
            // SAFETY: made above, and nobody else knows it.
            unsafe { dealloc(made.cast(), layout) };
        }
        true
    }

    #[cold]
    fn grow(&self, size: Size) {
        let (first, last) = match size.lines() {
            0 => (0, FIRST),
            lines => (lines, (lines + ADDED).min(MOST)),
        };
        if first >= last || !self.provide(first) || !self.provide(last - 1) {
            return;
        }
        // Relaxed: a line whose segment is not seen yet is passed over.
        let set = self
            .size
            .compare_exchange(size.0, Size::new(last).0, Ordering::Relaxed, Ordering::Relaxed);
        if set.is_ok() && first > 0 {
            (first..last).for_each(|line| self.split(line));
        }
    }

    /// Moves what belongs to a new line there.
    fn split(&self, line: usize) {
        let old = line - (line + 1).next_power_of_two() / 2;
        let (Some(from), Some(to)) = (self.line(old), self.line(line)) else {
            return;
        };
        for (from, to) in iter::zip(&from.0, &to.0) {
            // Acquire and Release: as in `has`.
            let word = from.load(Ordering::Acquire);
            if word != 0 && Size::new(line + 1).line_of(hash_of(word)) == line {
                to.store(word, Ordering::Release);
                from.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        for (number, at) in self.take() {
            // SAFETY: nobody uses the value any more.
            unsafe { free(at, number) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(number: u64) -> u64 {
        cats_term::small(number as i64).expect("a small integer")
    }

    #[test]
    fn lines_are_in_their_segments() {
        for line in 0..MOST {
            let (segment, first) = (segment_of(line), first_of(segment_of(line)));
            assert!(first <= line && (line - first) * size_of::<Line>() < layout_of(segment).size());
            assert!(segment < SEGMENTS);
        }
        assert_eq!(segment_of(MOST - 1), SEGMENTS - 1);
    }

    #[test]
    fn what_was_given_up_is_forgotten() {
        let settled = Settled::default();
        (0..200_000).for_each(|number| settled.add(word(number), true));
        settled.give_up(&cats_sync::epoch::pin());
        assert_eq!(settled.bytes(), 0);
        assert!((0..200_000).all(|number| !settled.has(word(number))));
        // A writer that began before may still add.
        settled.add(word(1), true);
    }

    /// What was not added is never found. Most of what was added is found, while it grows too.
    #[test]
    fn finds_only_what_was_added() {
        let settled = Settled::default();
        for number in 0..200_000 {
            assert!(!settled.has(word(number)));
            settled.add(word(number), true);
            assert!(settled.has(word(number)));
        }
        let found = (0..200_000).filter(|number| settled.has(word(*number))).count();
        assert!(found > 185_000, "{found}");
        assert!((200_000..400_000).all(|number| !settled.has(word(number))));
        assert!(settled.bytes() < 200_000 * 24, "{}", settled.bytes());
    }

    #[test]
    fn other_keys_are_not_remembered() {
        let settled = Settled::default();
        settled.add(hash_of(word(1)), true);
        assert!(!settled.has(hash_of(word(1))));
        assert_eq!(settled.bytes(), 0);
    }

    #[test]
    fn has_a_largest_size() {
        let settled = Settled::default();
        settled.add(word(1), true);
        settled.size.store(Size::new(MOST - 1).0, Ordering::Relaxed);
        for number in 0..100 {
            settled.add(word(number), true);
        }
        assert_eq!(settled.size().lines(), MOST);
    }
}
