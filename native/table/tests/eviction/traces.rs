//! Sequences of requests to a cache. A request is a number that stands for a key.

use std::ops::Range;

/// The number of requests of a trace.
pub const REQUESTS: usize = 500_000;
/// The keys that are in use at a time.
const KEYS: u32 = 100_000;
/// A name, and what makes the requests.
pub type Trace = (&'static str, fn() -> Vec<u32>);

/// The traces.
pub const TRACES: [Trace; 8] = [
    ("Zipf 0.7", || zipf(0.7)),
    ("Zipf 0.8", || zipf(0.8)),
    ("Zipf 0.9", || zipf(0.9)),
    ("Zipf 1.0", || zipf(1.0)),
    ("Zipf 1.2", || zipf(1.2)),
    ("loops", loops),
    ("scans mixed in", scans),
    ("shifting working set", shifting),
];

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u32) -> u32 {
        ((u64::from(limit) * (self.next() >> 32)) >> 32) as u32
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Draws ranks of a Zipf distribution.
struct Zipf {
    sums: Vec<f64>,
    random: Random,
}

impl Zipf {
    fn new(exponent: f64, ranks: u32) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Self {
            sums: sums.collect(),
            random: Random(7),
        }
    }

    fn rank(&mut self) -> u32 {
        let at = self.random.share() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum <= at) as u32
    }
}

fn zipf(exponent: f64) -> Vec<u32> {
    let mut zipf = Zipf::new(exponent, KEYS);
    (0..REQUESTS).map(|_| zipf.rank()).collect()
}

/// The lengths of loops, in percent of the cache's limit.
#[allow(dead_code, reason = "not all that share this module have loops")]
pub const LOOPS: [usize; 9] = [50, 90, 100, 110, 120, 150, 180, 200, 300];

/// Goes through the same keys again and again.
#[allow(dead_code, reason = "as above")]
pub fn one_loop(limit: usize, percent: usize) -> Vec<u32> {
    let keys = (limit * percent / 100) as u32;
    (0..20).flat_map(|_| 0..keys).collect()
}

/// Goes through ranges of keys again and again. Some are smaller than the caches, some are larger. One request in four is for any key.
fn loops() -> Vec<u32> {
    let ranges: [Range<u32>; 4] = [0..800, 2000..3500, 5000..14_000, 20_000..35_000];
    let mut random = Random(11);
    let requests = (0..REQUESTS as u32).map(|i| {
        let range = &ranges[(i / 50_000) as usize % ranges.len()];
        match random.below(4) {
            0 => random.below(KEYS),
            _ => range.start + i % (range.end - range.start),
        }
    });
    requests.collect()
}

/// A popular part, and scans of keys that are requested once.
fn scans() -> Vec<u32> {
    let (mut zipf, mut fresh) = (Zipf::new(1.0, KEYS), KEYS);
    let requests = (0..REQUESTS).map(|i| {
        if i % 20_000 < 5000 {
            fresh += 1;
            return fresh;
        }
        zipf.rank()
    });
    requests.collect()
}

/// Other keys become popular as time goes on.
fn shifting() -> Vec<u32> {
    let mut zipf = Zipf::new(1.0, KEYS / 2);
    (0..REQUESTS)
        .map(|i| (zipf.rank() + i as u32 / 25_000 * 3000) % KEYS)
        .collect()
}
