//! Hashes of terms. One is equal for terms that are equal under `=:=` (the exact hash). The other is equal for terms that are equal under
//! `==`.
//!
//! Words are absorbed by a multiplication whose product is folded to 64 bits. That is the step of wyhash and rapidhash. Two words are
//! absorbed at once where they stand side by side. The secrets are drawn once each time the library is loaded.
//!
//! Where words stand for nothing but themselves, up to eight are absorbed at once. Their products do not depend on each other, so the
//! processor computes them in parallel. The bytes of short binaries are absorbed in the same way. Longer binaries are hashed by rapidhash
//! under another secret.

use crate::block::Short;
use crate::format::{as_chunks, is_immediate, padded, Class, Elements, Fun, Map, TermRef, View, MAX_DEPTH};
use crate::host::host;
use crate::number::{small_value, Whole};
use rapidhash::v3::{rapidhash_v3_seeded, RapidSecrets};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// The hash of the key that a key word stands for. All bits are well mixed, except the two low bits, which are zero.
#[inline]
pub fn hash_of(word: u64) -> u64 {
    if is_immediate(word) {
        fold(fold(word, MULTIPLIER), ANOTHER) & !3
    } else {
        word
    }
}

/// A bijective mixer of 64 bits: the finalizer of MurmurHash3.
#[inline]
pub fn mix(word: u64) -> u64 {
    let mut h = word;
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// The exact hash. Its two low bits are zero. It is 0 only for immediates. Terms nested deeper than 64 levels have the hash of their held
/// form.
#[inline]
pub fn hash(term: TermRef<'_>) -> u64 {
    if term.is_immediate() {
        hash_of(term.word())
    } else {
        hash_item::<false>(term)
    }
}

/// The hash by value: equal for terms that are equal in term order. A float that equals a small integer has that integer's hash.
#[inline]
pub fn hash_ordered(term: TermRef<'_>) -> u64 {
    if term.is_immediate() {
        hash_of(term.word())
    } else {
        hash_item::<true>(term)
    }
}

/// The key word in a table that compares keys exactly: the key's own word, or its [`hash`]. Never 0.
#[inline]
pub fn key_word(term: TermRef<'_>) -> u64 {
    if term.is_immediate() {
        term.word()
    } else {
        hash_item::<false>(term)
    }
}

/// The key word in a table that compares keys in term order: the key's own word, or its [`hash_ordered`]. Never 0.
#[inline]
pub fn key_word_ordered(term: TermRef<'_>) -> u64 {
    if term.is_immediate() {
        term.word()
    } else {
        hash_item::<true>(term)
    }
}

/// The [`key_word`] of a part, where it can be computed before the part is stored. Reading words that were just written would cause a
/// store-forwarding stall.
#[inline(always)]
pub fn key_word_of_part(part: &Short<'_>) -> Option<u64> {
    match part {
        Short::Float(value) => Some(hash_float::<false>(*value)),
        Short::Tuple(elements) => Some(hash_words(Mark::Tuple, elements.len(), elements)),
        Short::Binary(bytes) => Some(hash_short_binary(bytes)),
        Short::Same(_) | Short::Counted(_) | Short::Fun(_) => None,
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// A constant of wyhash. If words were folded only once, multiples of some powers of two would crowd in few buckets.
const ANOTHER: u64 = 0xa076_1d64_78bd_642f;

/// The 128-bit product, its upper half folded onto the lower one.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

struct Secrets {
    start: u64,
    second: u64,
    /// One secret for each word of a chunk.
    chunk: [u64; CHUNK],
    bytes: RapidSecrets,
}

/// The number of words that are absorbed at once.
const CHUNK: usize = 8;
/// Binaries of up to this number of bytes are absorbed as a chunk.
const SHORT: usize = 8 * CHUNK;

static SECRETS: LazyLock<Secrets> = LazyLock::new(|| {
    let random = RandomState::new();
    Secrets {
        start: random.hash_one(0),
        second: random.hash_one(1),
        bytes: RapidSecrets::seed(random.hash_one(2)),
        chunk: std::array::from_fn(|i| random.hash_one(3 + i)),
    }
});

impl Secrets {
    /// Multiplies the words in pairs and adds up the folded products. Any number of zero words may follow.
    #[inline]
    fn product_of(&self, words: &[u64]) -> u64 {
        let (pairs, last) = as_chunks::<2, _>(words);
        let (keys, _) = as_chunks::<2, _>(&self.chunk);
        let product = |[first, second]: [u64; 2], key: [u64; 2]| fold(first ^ key[0], second ^ key[1]);
        let sum = pairs
            .iter()
            .zip(keys)
            .fold(0u64, |sum, (pair, key)| sum.wrapping_add(product(*pair, *key)));
        match last {
            [last] => sum.wrapping_add(product([*last, 0], keys[pairs.len()])),
            _ => sum,
        }
    }
}

/// Absorbed before the parts of a term, so that terms of different kinds differ.
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
    Fun,
    HeldTerm,
}

/// The hash of a term that is not an immediate. `ORDERED`: by value.
#[inline(always)]
fn hash_item<const ORDERED: bool>(term: TermRef<'_>) -> u64 {
    match term.float_words() {
        Some(&[bits]) => hash_float::<ORDERED>(f64::from_bits(bits)),
        _ => hash_other::<ORDERED>(term),
    }
}

/// A function of its own, because other kinds of terms need registers that must be saved.
#[inline(never)]
fn hash_float<const ORDERED: bool>(value: f64) -> u64 {
    match small_value(value) {
        Some(word) if ORDERED => hash_of(word),
        _ => State::new().float::<ORDERED>(value).finish(),
    }
}

/// The hash of a term with this mark, size and words.
#[inline(never)]
fn hash_words(mark: Mark, size: usize, words: &[u64]) -> u64 {
    State::new().mark(mark, size).words(words).finish()
}

/// The hash of a binary of at most [`SHORT`] bytes.
#[inline(never)]
fn hash_short_binary(bytes: &[u8]) -> u64 {
    State::new().short_binary(bytes).finish()
}

#[inline(never)]
fn hash_other<const ORDERED: bool>(term: TermRef<'_>) -> u64 {
    State::new().item::<ORDERED>(term, 1).finish()
}

/// The state of a hash. It is passed by value, so that it stays in registers. Whoever absorbs the parts of a term in the order of its
/// stored form gets the hash of that, wherever the term lies.
#[derive(Clone, Copy)]
pub struct State {
    state: u64,
    secrets: &'static Secrets,
}

impl State {
    /// Nothing is absorbed yet.
    #[inline]
    #[allow(clippy::new_without_default)]
    pub fn new() -> State {
        let secrets = &*SECRETS;
        State {
            state: secrets.start,
            secrets,
        }
    }

    /// The hash.
    #[inline]
    pub fn finish(self) -> u64 {
        (fold(self.state ^ self.secrets.second, MULTIPLIER) & !3).max(4)
    }

    /// Absorbs an immediate.
    #[inline]
    pub fn word(self, word: u64) -> Self {
        let state = fold(self.state ^ word, MULTIPLIER);
        Self { state, ..self }
    }

    /// Absorbs two immediates that are neighbours.
    #[inline]
    pub fn two_words(self, first: u64, second: u64) -> Self {
        let state = fold(self.state ^ first, self.secrets.second ^ second);
        Self { state, ..self }
    }

    /// Absorbs words that stand for nothing but themselves.
    #[inline(always)]
    pub fn words(self, words: &[u64]) -> Self {
        match *words {
            [word] => self.word(word),
            [first, second] => self.two_words(first, second),
            _ => self.chunks(words),
        }
    }

    #[inline(never)]
    fn chunks(self, words: &[u64]) -> Self {
        words
            .chunks(CHUNK)
            .fold(self, |state, chunk| state.word(state.secrets.product_of(chunk)))
    }

    /// Begins a tuple. The elements follow: by [`words`](Self::words) if all are immediates, otherwise in pairs. A pair of immediates is
    /// absorbed by [`two_words`](Self::two_words).
    #[inline(always)]
    pub fn tuple(self, arity: usize) -> Self {
        self.mark(Mark::Tuple, arity)
    }

    /// Begins a list that is not empty. If all is immediate, its tail follows and then its elements, otherwise its elements and then its
    /// tail. Elements are as those of a tuple.
    #[inline(always)]
    pub fn list(self, length: usize) -> Self {
        self.mark(Mark::List, length)
    }

    /// Absorbs a binary of at most [`SHORT`] bytes.
    #[inline(always)]
    pub fn short_binary(self, bytes: &[u8]) -> Self {
        let state = self.mark(Mark::Bytes, bytes.len());
        let (whole, rest) = as_chunks(bytes);
        match (whole, rest) {
            ([], []) => state,
            ([], rest) => state.word(padded(rest)),
            ([word], []) => state.word(u64::from_ne_bytes(*word)),
            ([first], rest) => state.two_words(u64::from_ne_bytes(*first), padded(rest)),
            ([first, second], []) => state.two_words(u64::from_ne_bytes(*first), u64::from_ne_bytes(*second)),
            _ => state.padded_words(whole, rest),
        }
    }

    /// Absorbs at most [`CHUNK`] words, the last of which may be incomplete.
    #[inline(never)]
    fn padded_words(self, whole: &[[u8; 8]], rest: &[u8]) -> Self {
        let mut words = [0; CHUNK];
        for (word, bytes) in words.iter_mut().zip(whole) {
            *word = u64::from_ne_bytes(*bytes);
        }
        if !rest.is_empty() {
            words[whole.len()] = padded(rest);
        }
        self.words(&words[..whole.len() + !rest.is_empty() as usize])
    }

    /// Absorbs a plain reference or an alias, with its header.
    #[inline(always)]
    pub fn reference(self, words: &[u64]) -> Self {
        let state = self.mark(Mark::Reference, words.len());
        words.iter().fold(state, |state, word| state.word(*word))
    }

    /// Absorbs an integer that is not an immediate.
    #[inline(always)]
    pub fn integer(self, negative: bool, digits: &[u64]) -> Self {
        self.digits(negative, digits.iter().copied())
    }

    /// Absorbs a float exactly.
    #[inline(always)]
    pub fn exact_float(self, value: f64) -> Self {
        self.float::<false>(value)
    }

    /// Absorbs a mark. [`word`](Self::word) or [`two_words`](Self::two_words) must follow, unless the item has no parts. The multiplication
    /// spreads similar marks over all bits, so the next word cannot cancel their difference.
    #[inline]
    fn mark(self, mark: Mark, size: usize) -> Self {
        let mark = (size as u64) << 8 | mark as u64;
        let state = self.state.rotate_left(23).wrapping_add(mark.wrapping_mul(MULTIPLIER));
        Self { state, ..self }
    }

    #[inline]
    fn term<const ORDERED: bool>(self, term: TermRef<'_>, depth: usize) -> Self {
        match single_word::<ORDERED>(term) {
            Some(word) => self.word(word),
            None => self.nested::<ORDERED>(term, depth),
        }
    }

    #[inline(never)]
    fn nested<const ORDERED: bool>(self, term: TermRef<'_>, depth: usize) -> Self {
        match depth >= MAX_DEPTH {
            true => self.deep::<ORDERED>(term),
            false => self.item::<ORDERED>(term, depth),
        }
    }

    /// What is nested so deep is held in an object.
    #[cold]
    fn deep<const ORDERED: bool>(self, term: TermRef<'_>) -> Self {
        match term.view() {
            View::Tuple(_) | View::List(_) | View::Map(_) => {
                let state = self.mark(Mark::HeldTerm, term.class() as usize);
                match ORDERED {
                    true => state,
                    false => state.word((host().hash_whole)(term)),
                }
            }
            _ => self.item::<ORDERED>(term, MAX_DEPTH),
        }
    }

    /// `depth` is how deep the term is nested in an object.
    #[inline(always)]
    fn item<const ORDERED: bool>(self, term: TermRef<'_>, depth: usize) -> Self {
        let inner = depth + 1;
        match term.view() {
            View::Immediate(word) => self.word(word),
            View::Tuple(elements) => {
                let state = self.tuple(elements.len());
                match !ORDERED && term.is_flat() {
                    true => state.words(elements.words()),
                    false => state.elements::<ORDERED>(elements, inner),
                }
            }
            View::List(list) => {
                let state = self.list(list.elements().len());
                match !ORDERED && term.is_flat() {
                    true => state.word(list.tail().word()).words(list.elements().words()),
                    false => state
                        .elements::<ORDERED>(list.elements(), inner)
                        .term::<ORDERED>(list.tail(), inner),
                }
            }
            View::Map(map) => self
                .mark(Mark::Map, map.keys.len())
                .word(sum_of_pairs::<ORDERED>(map, inner)),
            View::Float(value) => self.float::<ORDERED>(value),
            View::Integer(integer) => self.integer(integer.negative, integer.digits),
            View::Binary(bytes) | View::SharedBinary(_, bytes) if bytes.len() > SHORT => self
                .mark(Mark::Bytes, bytes.len())
                .word(rapidhash_v3_seeded(bytes, &self.secrets.bytes)),
            View::Binary(bytes) | View::SharedBinary(_, bytes) => match term.plain_words() {
                // Whole words are read faster than bytes.
                Some(words) => self.mark(Mark::Bytes, bytes.len()).words(&words[1..]),
                None => self.short_binary(bytes),
            },
            View::Reference(words) => self.reference(words),
            // As for held terms, the environment may contain numbers that are equal under `==`.
            View::Fun(_) if ORDERED => self.mark(Mark::HeldTerm, Class::Fun as usize),
            View::Fun(Fun { env, words, .. }) => self.fun(words, env, inner),
            View::HeldTerm(class, held) => {
                // The same fun may be counted elsewhere.
                if class == Class::Fun && !ORDERED {
                    if let Some(fun) = (host().counted_fun)(held) {
                        return self.fun(fun.fun_words(), Elements::immediates(fun.env), inner);
                    }
                }
                let state = self.mark(Mark::HeldTerm, class as usize);
                // Such terms may contain numbers that are equal under `==` but have different exact hashes.
                match ORDERED && class.may_hold_numbers() {
                    true => state,
                    false => state.word(held.hash()),
                }
            }
        }
    }

    fn fun(self, [first, second]: [u64; 2], env: Elements<'_>, depth: usize) -> Self {
        let state = self.mark(Mark::Fun, env.len()).two_words(first, second);
        state.elements::<false>(env, depth)
    }

    #[inline(never)]
    fn elements<const ORDERED: bool>(self, elements: Elements<'_>, depth: usize) -> Self {
        let (mut state, mut rest) = (self, elements.iter());
        while let Some(first) = rest.next() {
            let Some(second) = rest.next() else {
                return state.term::<ORDERED>(first, depth);
            };
            state = match (single_word::<ORDERED>(first), single_word::<ORDERED>(second)) {
                (Some(first), Some(second)) => state.two_words(first, second),
                _ => state.term::<ORDERED>(first, depth).term::<ORDERED>(second, depth),
            };
        }
        state
    }

    #[inline]
    fn digits(self, negative: bool, digits: impl ExactSizeIterator<Item = u64>) -> Self {
        let mark = if negative { Mark::Negative } else { Mark::Positive };
        let state = self.mark(mark, digits.len());
        digits.fold(state, |state, digit| state.word(digit))
    }

    /// Absorbs a float. If `ORDERED`, a float with an integral value is absorbed as that integer. Floats equal to small integers do not
    /// come here.
    #[inline]
    fn float<const ORDERED: bool>(self, value: f64) -> Self {
        if ORDERED && value.abs() >= (1u64 << 59) as f64 {
            let whole = Whole::of(value);
            return self.digits(value < 0.0, (0..whole.len()).map(|i| whole.digit(i)));
        }
        // -0.0 is absorbed as 0.0, because on some releases they are the same term. Adding 0.0 would do so too, but would move the bits
        // through floating-point registers.
        let bits = value.to_bits();
        self.mark(Mark::Float, 0)
            .word(if bits == (-0.0_f64).to_bits() { 0 } else { bits })
    }
}

/// The word as which a term is absorbed, if it is absorbed as one word.
#[inline]
fn single_word<const ORDERED: bool>(term: TermRef<'_>) -> Option<u64> {
    if term.is_immediate() {
        return Some(term.word());
    }
    match term.view() {
        View::Float(value) if ORDERED => small_value(value),
        _ => None,
    }
}

/// The order of the pairs makes no difference. Keys are hashed exactly even where values are not.
fn sum_of_pairs<const ORDERED: bool>(map: Map<'_>, depth: usize) -> u64 {
    map.keys.iter().zip(map.values.iter()).fold(0, |sum, (key, value)| {
        let pair = State::new().term::<false>(key, depth).term::<ORDERED>(value, depth);
        pair.finish().wrapping_add(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{NIL, PLAIN_REFERENCE};
    use crate::Builder;

    const BITS: u32 = 12;
    const BUCKETS: usize = 1 << BITS;
    const KEYS: u64 = 5 * BUCKETS as u64;

    /// Measures how well the bits of the hash that engines use spread keys. Each result is a ratio to what chance would give:
    ///
    /// * the variance of the number of keys with the same low bits,
    /// * the same for the high bits,
    /// * among pairs of keys with the same low bits, the share with the same eight high bits.
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

    #[test]
    fn short_terms_are_spread_as_by_chance() {
        fn check(name: &str, build: impl Fn(&mut Builder, u64) -> u64) {
            let ratios = spread(|i| {
                let mut builder = Builder::new();
                let key = builder.tuple(1);
                let word = build(&mut builder, i);
                builder.set(key, 0, word);
                key_word(builder.as_key())
            });
            assert!(ratios.iter().all(|ratio| *ratio < 1.5), "{name}: {ratios:?}");
        }
        let integer = |value: u64| value << 4 | 0xf;
        let text = |i: u64| format!("user:{i}");
        check("floats", |builder, i| builder.float(i as f64));
        check("fractions", |builder, i| builder.float(i as f64 / 1024.0));
        check("binaries", |builder, i| builder.binary(text(i).as_bytes()));
        check("long binaries", |builder, i| {
            builder.binary(format!("{i:80}").as_bytes())
        });
        check("words of bytes", |builder, i| builder.binary(&i.to_be_bytes()));
        check("strings", |builder, i| {
            let list = builder.open_list();
            text(i).bytes().for_each(|byte| builder.push(integer(byte.into())));
            builder.close_list(list, NIL);
            list.word()
        });
        check("triples of small numbers", |builder, i| {
            let elements = [i & 0x1f, i >> 5 & 0x1f, i >> 10].map(integer);
            builder.filled_tuple(&elements).word()
        });
        check("atom and number", |builder, i| {
            builder.filled_tuple(&[0x4b, integer(i)]).word()
        });
        check("references", |builder, i| builder.same(&[PLAIN_REFERENCE, i << 32, 0]));
    }
}
