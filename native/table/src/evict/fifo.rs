//! A queue of small values.
//!
//! It lies in blocks that are allocated and freed as it moves on. So it takes little more memory than its values, at each length, and
//! growing copies nothing.

use std::collections::VecDeque;
use std::mem;

/// The number of values in a block. A queue has up to three blocks that are nearly empty.
const BLOCK: usize = 32;

/// The bytes of a queue whose values are gone, at most. Each has so many bytes.
pub const fn empty_bytes(value: usize) -> usize {
    3 * (BLOCK * value + 2 * size_of::<usize>())
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Fifo<T> {
    blocks: VecDeque<Box<[T; BLOCK]>>,
    /// The place of the first value in the first block.
    first: usize,
    len: usize,
    /// A block that became empty, for the next one that is needed.
    spare: Option<Box<[T; BLOCK]>>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self {
            blocks: VecDeque::new(),
            first: 0,
            len: 0,
            spare: None,
        }
    }
}

impl<T: Default> Fifo<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a value.
    pub fn push(&mut self, value: T) {
        let place = self.first + self.len;
        if place == self.blocks.len() * BLOCK {
            let block = self
                .spare
                .take()
                .unwrap_or_else(|| Box::new(std::array::from_fn(|_| T::default())));
            self.blocks.push_back(block);
        }
        self.blocks[place / BLOCK][place % BLOCK] = value;
        self.len += 1;
    }

    /// Takes the oldest value.
    pub fn pop(&mut self) -> Option<T> {
        let value = mem::take(self.blocks.front_mut().filter(|_| self.len > 0)?.get_mut(self.first)?);
        self.len -= 1;
        self.first += 1;
        if self.first == BLOCK {
            self.first = 0;
            self.spare = self.blocks.pop_front();
        }
        Some(value)
    }

    /// The value at this place, counted from the oldest one.
    pub fn get(&self, place: usize) -> Option<&T> {
        let at = self.first + place;
        (place < self.len).then(|| &self.blocks[at / BLOCK][at % BLOCK])
    }

    /// Keeps the values for which `keep` returns true, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for _ in 0..self.len {
            if let Some(value) = self.pop().filter(&mut keep) {
                self.push(value);
            }
        }
    }

    /// The bytes of its memory.
    pub fn bytes(&self) -> usize {
        let blocks = self.blocks.len() + usize::from(self.spare.is_some());
        blocks * size_of::<[T; BLOCK]>() + self.blocks.capacity() * size_of::<Box<[T; BLOCK]>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_leave_in_their_order() {
        let (mut fifo, mut next, mut expected) = (Fifo::default(), 0_u32, 0_u32);
        for round in 0..1000 {
            for _ in 0..round % 7 * 50 {
                fifo.push(next);
                next += 1;
            }
            for _ in 0..(round + 3) % 7 * 50 {
                if let Some(value) = fifo.pop() {
                    assert_eq!(value, expected);
                    expected += 1;
                }
            }
            assert_eq!(fifo.len(), (next - expected) as usize);
            assert_eq!(fifo.get(0), (next > expected).then_some(&expected));
            assert!(fifo.bytes() <= 5 * fifo.len() + empty_bytes(4) + 256);
        }
    }

    #[test]
    fn retained_values_keep_their_order() {
        let mut fifo = Fifo::default();
        (0..1000_u32).for_each(|value| fifo.push(value));
        fifo.retain(|value| *value % 3 == 0);
        let left: Vec<_> = std::iter::from_fn(|| fifo.pop()).collect();
        assert_eq!(left, (0..1000).step_by(3).collect::<Vec<_>>());
    }
}
