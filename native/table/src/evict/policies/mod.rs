//! Which object to evict.
//!
//! A policy keeps queues of *items*, by which objects are found again. How often an object was used is in the object itself, where its
//! readers count. So readers touch no queue. Each policy is a module of this folder, and has one line in the list below.

mod clock;
mod s3_fifo;
mod sieve;

use super::item::Item;

/// How often an object was used: from 0 to [`OFTEN`].
pub type Uses = u8;
/// Further uses are not counted.
pub const OFTEN: Uses = 3;

/// What becomes of an object that was used so often: the number of uses with which it stays, or `None` if it is evicted.
pub type Rule = fn(Uses) -> Option<Uses>;

/// What the visit of an object came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    Evicted,
    Stays,
    /// There is no such object any more.
    Gone,
    /// Others were at its place.
    Busy,
    /// Who evicts writes to it itself.
    Spared,
}

/// What a policy says of itself.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name for users.
    pub name: &'static str,
    /// A hit counts as a use of its object while that has fewer: from 1 to [`OFTEN`].
    pub uses: Uses,
    /// A limit of bytes keeps room for so many queues. It has no more.
    pub queues: usize,
    /// The bytes that it keeps for each object beside the item, at most.
    pub kept: usize,
}

/// A policy: its queues. Each object has an item in them, except for some that two objects may share.
pub trait Evict<T: Item>: Default {
    const ABOUT: About;

    /// The number of items.
    fn items(&self) -> usize;

    /// Adds the item of a new object. It was not used yet. Returns whether such an item is remembered as one that was evicted.
    fn admit(&mut self, item: T) -> bool;

    /// Visits the next object, which is evicted if the rule says so. Only the items of those that stay or are spared, and of those where
    /// others were, are kept. After some that are spared, it visits others, if there are any. `None` if there is no item.
    fn step(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met>;

    /// Takes the item of the object that would be visited next.
    fn pop(&mut self) -> Option<T>;

    /// The item of an object that will probably be visited after `later` others.
    fn peek(&self, later: usize) -> Option<&T>;

    /// Prefetches what an item with this hash needs when it is admitted.
    fn expect(&self, _hash: u32) {}

    /// Drops the items for which `keep` returns false, and what is kept in memory for those that are gone.
    fn retain(&mut self, keep: impl FnMut(&T) -> bool);

    /// The bytes of their memory, without the value itself.
    fn bytes(&self) -> usize;
}

/// One line for each policy, the default first: `Name in module`. `module::Name<T>` implements [`Evict`].
macro_rules! policies {
    ($($name:ident in $module:ident),* $(,)?) => {
        /// Which objects are evicted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Policy {
            $($name),*
        }

        impl Policy {
            /// All policies, the default first.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The policy with this place in [`ALL`](Self::ALL).
            pub fn at(place: u8) -> Self {
                Self::ALL[usize::from(place)]
            }

            /// What the policy says of itself.
            pub const fn about(self) -> About {
                match self {
                    $(Self::$name => <$module::$name<u32> as Evict<u32>>::ABOUT),*
                }
            }
        }

        /// The queues of a policy, see [`Evict`].
        #[derive(Debug)]
        pub enum Queues<T> {
            $($name($module::$name<T>)),*
        }

        impl<T: Item> Queues<T> {
            pub fn new(policy: Policy) -> Self {
                match policy {
                    $(Policy::$name => Self::$name(Default::default())),*
                }
            }

            /// Whose queues these are.
            pub fn policy(&self) -> Policy {
                match self {
                    $(Self::$name(_) => Policy::$name),*
                }
            }

            /// See [`Evict::items`].
            pub fn items(&self) -> usize {
                match self {
                    $(Self::$name(queues) => queues.items()),*
                }
            }

            /// See [`Evict::admit`].
            pub fn admit(&mut self, item: T) -> bool {
                match self {
                    $(Self::$name(queues) => queues.admit(item)),*
                }
            }

            /// See [`Evict::step`].
            pub fn step(&mut self, visit: impl FnOnce(&T, Rule) -> Met) -> Option<Met> {
                match self {
                    $(Self::$name(queues) => queues.step(visit)),*
                }
            }

            /// See [`Evict::pop`].
            pub fn pop(&mut self) -> Option<T> {
                match self {
                    $(Self::$name(queues) => queues.pop()),*
                }
            }

            /// See [`Evict::peek`].
            pub fn peek(&self, later: usize) -> Option<&T> {
                match self {
                    $(Self::$name(queues) => queues.peek(later)),*
                }
            }

            /// See [`Evict::expect`].
            pub fn expect(&self, hash: u32) {
                match self {
                    $(Self::$name(queues) => queues.expect(hash)),*
                }
            }

            /// See [`Evict::retain`].
            pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
                match self {
                    $(Self::$name(queues) => queues.retain(keep)),*
                }
            }

            /// See [`Evict::bytes`].
            pub fn bytes(&self) -> usize {
                match self {
                    $(Self::$name(queues) => queues.bytes()),*
                }
            }
        }
    };
}

policies! {
    S3Fifo in s3_fifo,
    Sieve in sieve,
    Clock in clock,
}

/// The most queues and the most bytes beside the item of all policies. A table with a limit of bytes has room for these, whichever it has.
pub const QUEUES: usize = most().0;
pub const KEPT: usize = most().1;

const fn most() -> (usize, usize) {
    let (mut queues, mut kept, mut place) = (0, 0, 0);
    while place < Policy::ALL.len() {
        let about = Policy::ALL[place].about();
        queues = if about.queues > queues { about.queues } else { queues };
        kept = if about.kept > kept { about.kept } else { kept };
        place += 1;
    }
    (queues, kept)
}

/// An object that was used stays once.
fn once(uses: Uses) -> Option<Uses> {
    (uses > 0).then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::fifo;
    use cats_engine::mix;
    use std::collections::HashSet;

    /// Numbers at random, below a limit.
    fn random(seed: &mut u64, limit: u64) -> u64 {
        *seed += 1;
        mix(*seed) % limit
    }

    #[test]
    fn an_item_is_visited_until_its_object_is_gone() {
        for policy in Policy::ALL {
            let (mut queues, mut here, mut seed) = (Queues::new(*policy), HashSet::new(), 1);
            for number in 0..20_000_u32 {
                queues.admit(number);
                here.insert(number);
                let mut visit = |item: &u32, rule: Rule| {
                    let met = match random(&mut seed, 5) {
                        0 => Met::Busy,
                        1 => Met::Gone,
                        2 => Met::Spared,
                        _ => rule(random(&mut seed, u64::from(OFTEN) + 1) as Uses).map_or(Met::Evicted, |_| Met::Stays),
                    };
                    let is_here = match met {
                        Met::Busy | Met::Spared | Met::Stays => here.contains(item),
                        Met::Gone | Met::Evicted => here.remove(item),
                    };
                    assert!(is_here, "{policy:?}");
                    met
                };
                while queues.items() > 1000 {
                    queues.step(&mut visit);
                }
                assert_eq!(queues.items(), here.len(), "{policy:?}");
            }
            queues.retain(|item| item % 2 == 0 || !here.remove(item));
            assert!(
                here.iter().all(|item| item % 2 == 0) && queues.items() == here.len(),
                "{policy:?}"
            );
            while queues
                .step(|item, _| if here.remove(item) { Met::Evicted } else { Met::Busy })
                .is_some()
            {}
            assert!(here.is_empty() && queues.items() == 0, "{policy:?}");
        }
    }

    /// In whichever queue they are.
    #[test]
    fn others_are_found_among_those_that_are_spared() {
        for policy in Policy::ALL {
            for other in 0..100_u32 {
                let mut queues = Queues::new(*policy);
                (0..100).for_each(|item| _ = queues.admit(item));
                let visit = |item: &u32, _: Rule| match *item == other {
                    true => Met::Evicted,
                    false => Met::Spared,
                };
                let steps = (1..).find(|_| queues.step(visit) == Some(Met::Evicted));
                assert!(steps.is_some_and(|steps| steps <= 200), "{policy:?}: {steps:?}");
            }
        }
    }

    /// A limit of bytes goes by that.
    #[test]
    fn queues_take_what_the_policy_says() {
        for policy in Policy::ALL {
            let About {
                uses,
                queues: number,
                kept,
                ..
            } = policy.about();
            assert!((1..=OFTEN).contains(&uses), "{policy:?}");
            for objects in [2, 40, 100, 20_000] {
                // An item has 4 bytes, and up to one more for the address of its block.
                let most = number * fifo::empty_bytes(4) + objects * (4 + 1 + kept);
                let (mut queues, mut seed) = (Queues::new(*policy), 1);
                for number in 0..20 * objects as u32 {
                    let mut visit = |_: &u32, rule: Rule| match rule(random(&mut seed, u64::from(uses) + 1) as Uses) {
                        Some(_) => Met::Stays,
                        None => Met::Evicted,
                    };
                    while queues.items() == objects {
                        queues.step(&mut visit);
                    }
                    queues.admit(number);
                    let bytes = queues.bytes();
                    assert!(bytes <= most, "{policy:?}: {bytes} of {most} for {objects}");
                }
            }
        }
    }
}
