//! S3-FIFO as plain as its paper has it (Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1), and
//! as its authors changed it in their simulator libCacheSim.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Where new keys go while the cache fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// To the small queue: the paper.
    Small,
    /// To the small queue until it has its tenth, and then to the main queue: the authors' simulator since 2024.
    Both,
}

/// A cache of keys.
pub struct Model {
    limit: usize,
    start: Start,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// How often the keys of both queues were used since they came there.
    uses: HashMap<u32, u8>,
    /// The ghost queue: the keys that were evicted from the small queue by the number of the eviction, and the reverse.
    ghost: BTreeMap<usize, u32>,
    evicted_at: HashMap<u32, usize>,
    evictions: usize,
    has_evicted: bool,
}

impl Model {
    pub fn new(limit: usize, start: Start) -> Self {
        Self {
            limit,
            start,
            small: VecDeque::new(),
            main: VecDeque::new(),
            uses: HashMap::new(),
            ghost: BTreeMap::new(),
            evicted_at: HashMap::new(),
            evictions: 0,
            has_evicted: false,
        }
    }

    /// Whether the request hits. If not, the key gets into the cache.
    pub fn get(&mut self, key: u32) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = 3.min(*uses + 1);
            return true;
        }
        while self.uses.len() >= self.limit {
            self.evict();
        }
        let evicted_at = self.evicted_at.remove(&key);
        let is_back = evicted_at.is_some_and(|number| self.ghost.remove(&number).is_some());
        let fills_main = self.start == Start::Both && !self.has_evicted && self.is_small_full();
        match is_back || fills_main {
            true => self.main.push_back(key),
            false => self.small.push_back(key),
        }
        self.uses.insert(key, 0);
        false
    }

    pub fn hit_ratio(mut self, requests: &[u32]) -> f64 {
        requests.iter().filter(|key| self.get(**key)).count() as f64 / requests.len() as f64
    }

    fn is_small_full(&self) -> bool {
        self.small.len() * 10 >= self.limit
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        match self.is_small_full() {
            true => self.evict_from_small(),
            false => self.evict_from_main(),
        }
    }

    fn evict_from_small(&mut self) {
        while let Some(key) = self.small.pop_front() {
            if self.uses[&key] <= 1 {
                self.uses.remove(&key);
                return self.remember(key);
            }
            self.uses.insert(key, 0);
            self.main.push_back(key);
        }
    }

    /// The ghost queue has as many keys as the main queue.
    fn remember(&mut self, key: u32) {
        self.evictions += 1;
        self.evicted_at.insert(key, self.evictions);
        self.ghost.insert(self.evictions, key);
        if self.ghost.len() > self.limit - self.limit / 10 {
            self.ghost.pop_first();
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            if self.uses[&key] == 0 {
                self.uses.remove(&key);
                return;
            }
            self.uses.entry(key).and_modify(|uses| *uses -= 1);
            self.main.push_back(key);
        }
    }
}
