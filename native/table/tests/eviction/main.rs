//! Hit ratios of the policies, beside those that an independent simulator computes.

mod simulated;
mod traces;

use cats_table::evict::policy::{Item, Met, Policy, Queues, Uses, OFTEN};
use simulated::HIT_RATIOS;

/// What the sequential ratio may differ from the simulator's.
const TOLERANCE: f64 = 0.005;

#[derive(Default)]
struct Key(u32);

impl Item for Key {
    fn hash(&self) -> u32 {
        (cats_engine::mix(self.0.into()) >> 2) as u32
    }
}

/// A cache of objects without contents, around the queues of a policy.
struct Cache {
    queues: Queues<Key>,
    /// For each key: `None` if it has no object.
    uses: Vec<Option<Uses>>,
    size: usize,
    limit: usize,
}

impl Cache {
    fn new(policy: Policy, limit: usize) -> Self {
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
}

#[test]
fn policies_hit_as_often_as_in_a_simulator() {
    let mut failed = 0;
    for (name, trace) in traces::TRACES {
        let requests = trace();
        for (_, size, policy, expected) in HIT_RATIOS.iter().filter(|row| row.0 == name) {
            let mut cache = Cache::new(*policy, *size);
            let hits = requests.iter().filter(|key| cache.get(**key)).count();
            let ratio = hits as f64 / requests.len() as f64;
            println!("{name}, {size}, {policy:?}: {ratio:.4}, simulated {expected:.4}");
            failed += usize::from((ratio - expected).abs() > TOLERANCE);
        }
    }
    assert_eq!(failed, 0);
}
