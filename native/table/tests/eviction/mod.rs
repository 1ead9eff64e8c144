//! Hit ratios of the policies, beside those that an independent simulator computes.

pub mod paper;
pub mod simulated;
pub mod traces;

use cats_engine::testing::cases::thorough;
use cats_table::evict::item::{Item, Owner};
use cats_table::evict::policies::{Met, Policy, Queues, Uses, OFTEN};
use paper::{Model, Start};
use simulated::HIT_RATIOS;

/// Whether all is compared, as in `make check`.
pub fn is_thorough() -> bool {
    thorough() > 1
}

/// The hit ratio of a plain model of S3-FIFO. In `make check` beside it, for the eye, that of the paper.
pub fn modelled(limit: usize, requests: &[u32]) -> (f64, Option<f64>) {
    let ratio = |start| Model::new(limit, start).hit_ratio(requests);
    (ratio(Start::Both), is_thorough().then(|| ratio(Start::Small)))
}

/// What the sequential ratio may differ from the simulator's.
const TOLERANCE: f64 = 0.005;

#[derive(Default)]
struct Key(u32);

impl Owner for Key {}

impl Item for Key {
    fn hash(&self) -> u32 {
        (cats_engine::mix(self.0.into()) >> 2) as u32
    }
}

/// A cache of objects without contents, around the queues of a policy.
pub struct Cache {
    queues: Queues<Key>,
    /// For each key: `None` if it has no object.
    uses: Vec<Option<Uses>>,
    size: usize,
    limit: usize,
}

impl Cache {
    pub fn new(policy: Policy, limit: usize) -> Self {
        Self {
            queues: Queues::new(policy),
            uses: Vec::new(),
            size: 0,
            limit,
        }
    }

    /// Whether the request hits. If not, the key gets an object.
    fn get(&mut self, key: u32) -> bool {
        if self.uses.len() <= key as usize {
            self.uses.resize(key as usize + 1, None);
        }
        if let Some(uses) = &mut self.uses[key as usize] {
            *uses = OFTEN.min(*uses + 1);
            return true;
        }
        while self.size >= self.limit {
            self.step();
        }
        self.uses[key as usize] = Some(0);
        self.size += 1;
        self.queues.admit(Key(key));
        false
    }

    fn step(&mut self) {
        let uses = &mut self.uses;
        let met = self.queues.step(|item, rule| {
            let uses = &mut uses[item.0 as usize];
            let Some(used) = *uses else {
                return Met::Gone;
            };
            *uses = rule(used);
            match uses {
                Some(_) => Met::Stays,
                None => Met::Evicted,
            }
        });
        self.size -= usize::from(met == Some(Met::Evicted));
    }

    /// The share of the requests that hit.
    pub fn hit_ratio(mut self, requests: &[u32]) -> f64 {
        requests.iter().filter(|key| self.get(**key)).count() as f64 / requests.len() as f64
    }
}

#[test]
fn policies_hit_as_often_as_in_a_simulator() {
    let mut failed = 0;
    for (name, trace) in traces::TRACES {
        let requests = trace();
        for (_, size, policy, expected) in HIT_RATIOS.iter().filter(|row| row.0 == name) {
            let ratio = Cache::new(*policy, *size).hit_ratio(&requests);
            println!("{name}, {size}, {policy:?}: {ratio:.4}, simulated {expected:.4}");
            failed += usize::from((ratio - expected).abs() > TOLERANCE);
        }
    }
    assert_eq!(failed, 0);
}

/// The policy has another ghost queue: it mistakes a few keys for others, and forgets the oldest quarter at once. On loops that are longer than
/// the cache, a key more or less in the main queue changes what all later ones meet.
#[test]
fn s3_fifo_hits_as_often_as_a_plain_model() {
    let mut failed = 0;
    let mut compare = |limit, name: &str, requests: &[u32], tolerance| {
        let ratio = Cache::new(Policy::S3Fifo, limit).hit_ratio(requests);
        let (expected, paper) = modelled(limit, requests);
        println!("{limit}, {name}: {ratio:.4}, model {expected:.4}, paper {paper:.4?}");
        failed += usize::from(expected - ratio > tolerance);
    };
    for limit in [16, 100, 1000] {
        for percent in traces::LOOPS {
            compare(
                limit,
                &format!("loop of {percent} %"),
                &traces::one_loop(limit, percent),
                0.025,
            );
        }
        for (name, trace) in &traces::TRACES[..1 + usize::from(is_thorough())] {
            compare(limit, name, &trace(), 0.0025);
        }
    }
    assert_eq!(failed, 0);
}

/// The Erlang suites go over the policies of this type.
#[test]
fn the_type_of_policies_has_them_all() {
    let names: Vec<_> = Policy::ALL.iter().map(|policy| policy.about().name).collect();
    let expected = format!("-type policy() :: {} | none.\n", names.join(" | "));
    assert!(
        include_str!("../../../../src/cats.erl").contains(&expected),
        "{expected}"
    );
}
