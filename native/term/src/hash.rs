//! Hashes of terms: of the exact term, equal under `=:=`, and of its value, equal under `==`.
//!
//! Words are absorbed by multiplication folded to 64 bits (the step of wyhash and rapidhash), two at a time where they stand side by
//! side, under secrets that are drawn once per load; bytes are hashed by rapidhash, under another secret.

use crate::format::{is_immediate, small, Class, Elements, Map, TermRef, View};
use crate::number::{small_value, Whole};
use rapidhash::v3::{rapidhash_v3_seeded, RapidSecrets};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// The hash of the key that a key word stands for: all 64 bits well mixed but for the low two, which are zero.
#[inline]
pub fn hash_of(word: u64) -> u64 {
    if is_immediate(word) {
        fold(fold(word, MULTIPLIER), ANOTHER) & !3
    } else {
        word
    }
}

/// A bijective mixer of 64 bits (the finaliser of MurmurHash3).
#[inline]
pub fn mix(word: u64) -> u64 {
    let mut h = word;
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// The hash of the exact term: low two bits zero, and never 0 unless for an immediate. Terms nested deeper than 64 have
/// the hash of their held form.
#[inline]
pub fn hash(term: TermRef<'_>) -> u64 {
    if term.is_immediate() {
        hash_of(term.word())
    } else {
        hash_item::<false>(term)
    }
}

/// The hash of the term's value: equal for terms that are equal in term order. A float that is equal to a small integer has
/// the hash of that.
#[inline]
pub fn hash_ordered(term: TermRef<'_>) -> u64 {
    if term.is_immediate() {
        hash_of(term.word())
    } else {
        hash_item::<true>(term)
    }
}

/// The word of a key in a table that matches keys exactly: the key's own word, or its [`hash`]. Never 0.
#[inline]
pub fn key_word(term: TermRef<'_>) -> u64 {
    if term.is_immediate() {
        term.word()
    } else {
        hash_item::<false>(term)
    }
}

/// The word of a key in a table that compares keys in term order: the key's own word, or its [`hash_ordered`]. Never 0.
#[inline]
pub fn key_word_ordered(term: TermRef<'_>) -> u64 {
    if term.is_immediate() {
        term.word()
    } else {
        hash_item::<true>(term)
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Of wyhash. Folded once only, multiples of some powers of two would crowd in few buckets.
const ANOTHER: u64 = 0xa076_1d64_78bd_642f;

/// The product, its upper half folded onto the lower one.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

struct Secrets {
    start: u64,
    second: u64,
    bytes: RapidSecrets,
}

static SECRETS: LazyLock<Secrets> = LazyLock::new(|| {
    let random = RandomState::new();
    Secrets {
        start: random.hash_one(0),
        second: random.hash_one(1),
        bytes: RapidSecrets::seed(random.hash_one(2)),
    }
});

/// What is absorbed before the parts of each kind of term, so that terms of different kinds differ.
#[derive(Clone, Copy)]
enum Mark {
    Tuple = 1,
    List,
    Map,
    Float,
    Positive,
    Negative,
    Bytes,
    Reference,
    Held,
}

/// `ORDERED`: by value.
fn hash_item<const ORDERED: bool>(term: TermRef<'_>) -> u64 {
    if let (true, View::Float(value)) = (ORDERED, term.view()) {
        if let Some(word) = small_value(value).and_then(small) {
            return hash_of(word);
        }
    }
    let mut state = State::new();
    state.absorb_item::<ORDERED>(term);
    state.finish()
}

struct State {
    state: u64,
    secrets: &'static Secrets,
}

impl State {
    #[inline]
    fn new() -> State {
        let secrets = &*SECRETS;
        State {
            state: secrets.start,
            secrets,
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        (fold(self.state ^ self.secrets.second, MULTIPLIER) & !3).max(4)
    }

    #[inline]
    fn absorb(&mut self, word: u64) {
        self.state = fold(self.state ^ word, MULTIPLIER);
    }

    #[inline]
    fn absorb_two(&mut self, first: u64, second: u64) {
        self.state = fold(self.state ^ first, self.secrets.second ^ second);
    }

    /// To be followed by [`absorb`](Self::absorb) or [`absorb_two`](Self::absorb_two), unless the item has no parts. Marks that are
    /// alike are spread over all bits, so that a word that follows does not make up for the difference by one of its own.
    #[inline]
    fn mark(&mut self, mark: Mark, size: usize) {
        let mark = (size as u64) << 8 | mark as u64;
        self.state = self.state.rotate_left(23).wrapping_add(mark.wrapping_mul(MULTIPLIER));
    }

    #[inline]
    fn absorb_term<const ORDERED: bool>(&mut self, term: TermRef<'_>) {
        if term.is_immediate() {
            self.absorb(term.word());
        } else {
            self.absorb_item::<ORDERED>(term);
        }
    }

    fn absorb_item<const ORDERED: bool>(&mut self, term: TermRef<'_>) {
        match term.view() {
            View::Immediate(word) => self.absorb(word),
            View::Tuple(elements) => {
                self.mark(Mark::Tuple, elements.len());
                self.absorb_elements::<ORDERED>(elements);
            }
            View::List(list) => {
                self.mark(Mark::List, list.elements().len());
                self.absorb_elements::<ORDERED>(list.elements());
                self.absorb_term::<ORDERED>(list.tail());
            }
            View::Map(map) => {
                self.mark(Mark::Map, map.keys.len());
                self.absorb(sum_of_pairs::<ORDERED>(map));
            }
            View::Float(value) => self.absorb_float::<ORDERED>(value),
            View::Integer(integer) => {
                self.absorb_digits(integer.negative, integer.digits.iter().copied());
            }
            View::Binary(bytes) | View::SharedBinary(_, bytes) => {
                self.mark(Mark::Bytes, bytes.len());
                self.absorb(rapidhash_v3_seeded(bytes, &self.secrets.bytes));
            }
            View::Reference(words) => {
                self.mark(Mark::Reference, words.len());
                words.iter().for_each(|word| self.absorb(*word));
            }
            View::Held(class, held) => {
                self.mark(Mark::Held, class as usize);
                // Equal numbers may hide in these under different exact hashes.
                let hides_numbers = !matches!(class, Class::Reference | Class::Port | Class::Pid | Class::BitString);
                if !(ORDERED && hides_numbers) {
                    self.absorb(held.hash());
                }
            }
        }
    }

    fn absorb_elements<const ORDERED: bool>(&mut self, elements: Elements<'_>) {
        let mut rest = elements.iter();
        while let Some(first) = rest.next() {
            let Some(second) = rest.next() else {
                return self.absorb_term::<ORDERED>(first);
            };
            match (single_word::<ORDERED>(first), single_word::<ORDERED>(second)) {
                (Some(first), Some(second)) => self.absorb_two(first, second),
                _ => {
                    self.absorb_term::<ORDERED>(first);
                    self.absorb_term::<ORDERED>(second);
                }
            }
        }
    }

    fn absorb_digits(&mut self, negative: bool, digits: impl ExactSizeIterator<Item = u64>) {
        self.mark(if negative { Mark::Negative } else { Mark::Positive }, digits.len());
        digits.for_each(|digit| self.absorb(digit));
    }

    /// A float of a whole value is absorbed as the integer of that value, when `ORDERED`.
    fn absorb_float<const ORDERED: bool>(&mut self, value: f64) {
        if ORDERED {
            if let Some(word) = small_value(value).and_then(small) {
                return self.absorb(word);
            }
            if value.abs() >= (1u64 << 59) as f64 {
                let whole = Whole::of(value);
                return self.absorb_digits(value < 0.0, (0..whole.len()).map(|i| whole.digit(i)));
            }
        }
        self.mark(Mark::Float, 0);
        // Adding 0.0 makes 0.0 of -0.0, which may be the same term.
        self.absorb((value + 0.0).to_bits());
    }
}

/// The word as which a term is absorbed, if it is one.
#[inline]
fn single_word<const ORDERED: bool>(term: TermRef<'_>) -> Option<u64> {
    if term.is_immediate() {
        return Some(term.word());
    }
    match term.view() {
        View::Float(value) if ORDERED => small_value(value).and_then(small),
        _ => None,
    }
}

/// The keys of a map are compared exactly even where values are not, and in any order.
fn sum_of_pairs<const ORDERED: bool>(map: Map<'_>) -> u64 {
    map.keys.iter().zip(map.values.iter()).fold(0, |sum, (key, value)| {
        let mut pair = State::new();
        pair.absorb_term::<false>(key);
        pair.absorb_term::<ORDERED>(value);
        pair.finish().wrapping_add(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: u32 = 12;
    const BUCKETS: usize = 1 << BITS;
    const KEYS: u64 = 5 * BUCKETS as u64;

    /// How the bits of the hash that engines use spread keys, each as a ratio to what chance would do: the variance of the number of
    /// keys for the low bits and for the high ones, and the pairs with the same low bits of which eight high bits are the same, too.
    fn spread(word: impl Fn(u64) -> u64) -> [f64; 3] {
        let mut buckets = vec![Vec::new(); BUCKETS];
        let mut high = vec![0u32; BUCKETS];
        for i in 0..KEYS {
            let hash = hash_of(word(i));
            buckets[(hash >> 2) as usize % BUCKETS].push(hash >> 53 & 0xff);
            high[(hash >> (64 - BITS)) as usize] += 1;
        }
        let mean = KEYS as f64 / BUCKETS as f64;
        let variance = |counts: &mut dyn Iterator<Item = usize>| {
            counts.map(|count| (count as f64 - mean).powi(2)).sum::<f64>() / KEYS as f64
        };
        let (mut pairs, mut same) = (0, 0);
        for tags in &buckets {
            for (i, tag) in tags.iter().enumerate() {
                pairs += i;
                same += tags[..i].iter().filter(|other| *other == tag).count();
            }
        }
        [
            variance(&mut buckets.iter().map(Vec::len)),
            variance(&mut high.iter().map(|count| *count as usize)),
            256.0 * same as f64 / pairs as f64,
        ]
    }

    #[test]
    fn immediates_are_spread_as_by_chance() {
        let check = |name: String, word: &dyn Fn(u64) -> u64| {
            let ratios = spread(word);
            assert!(ratios.iter().all(|ratio| *ratio < 1.5), "{name}: {ratios:?}");
        };
        let integer = |value: i64| (value as u64) << 4 | 0xf;
        for shift in 0..44 {
            check(format!("multiples of 2^{shift}"), &|i| integer((i as i64) << shift));
            check(format!("negative, of 2^{shift}"), &|i| integer(-(i as i64) << shift));
        }
        for factor in [3, 10, 100, 1000, 65_537, 999_983, 1_000_000] {
            check(format!("multiples of {factor}"), &|i| integer(i as i64 * factor));
        }
        check("squares".into(), &|i| integer((i * i) as i64));
        check("pairs of numbers".into(), &|i| {
            integer(((i & 0x7f) << 40 | i >> 7) as i64)
        });
        check("times in microseconds".into(), &|i| {
            integer(1_790_000_000_000_000 + 1000 * i as i64)
        });
        check("atoms".into(), &|i| i << 6 | 0xb);
        check("pids".into(), &|i| i << 4 | 0x3);
        check("pids of two numbers".into(), &|i| {
            (i & 0xfff) << 4 | (i >> 12) << 32 | 0x3
        });
    }
}
