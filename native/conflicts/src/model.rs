//! Operations, and what they do by a sequential model of ETS. Two operations commute where both orders give both the same answers, and the
//! same table.

use crate::step::Answer;
use std::collections::{BTreeMap, HashMap};

/// An operation on one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Lookup,
    LookupElement,
    Member,
    Insert,
    InsertNew,
    Delete,
    DeleteObject,
    Take,
    UpdateCounter,
    UpdateElement,
    Next,
    Prev,
    Range,
    First,
    Last,
    Size,
    Whereis,
}

impl Kind {
    pub const ALL: [Self; 17] = [
        Self::Lookup,
        Self::LookupElement,
        Self::Member,
        Self::Insert,
        Self::InsertNew,
        Self::Delete,
        Self::DeleteObject,
        Self::Take,
        Self::UpdateCounter,
        Self::UpdateElement,
        Self::Next,
        Self::Prev,
        Self::Range,
        Self::First,
        Self::Last,
        Self::Size,
        Self::Whereis,
    ];

    pub fn text(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::LookupElement => "lookup_element",
            Self::Member => "member",
            Self::Insert => "insert",
            Self::InsertNew => "insert_new",
            Self::Delete => "delete",
            Self::DeleteObject => "delete_object",
            Self::Take => "take",
            Self::UpdateCounter => "update_counter",
            Self::UpdateElement => "update_element",
            Self::Next => "next",
            Self::Prev => "prev",
            Self::Range => "range of three",
            Self::First => "first",
            Self::Last => "last",
            Self::Size => "info size",
            Self::Whereis => "whereis",
        }
    }

    /// Whether the operation is about one key.
    pub fn has_key(self) -> bool {
        !matches!(self, Self::First | Self::Last | Self::Size | Self::Whereis)
    }

    /// Whether it reads or writes nothing but the objects of one key.
    pub fn is_of_one_key(self) -> bool {
        self.has_key() && !matches!(self, Self::Next | Self::Prev | Self::Range)
    }

    /// Whether bags refuse it.
    pub fn needs_one_object(self) -> bool {
        matches!(self, Self::UpdateCounter | Self::UpdateElement)
    }
}

/// A call: an operation, its key, and the number that it writes.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: Kind,
    pub key: i64,
    pub number: i64,
}

/// The answer of a call with a key that has no object but needs one.
pub const BAD_KEY: i64 = i64::MIN;

/// A table that changes are tried on. An object is its number, the second element.
pub struct Model {
    pub bag: bool,
    objects: BTreeMap<i64, Vec<i64>>,
    /// All keys that are used, in the table's order, and the place of each.
    order: Vec<i64>,
    places: HashMap<i64, usize>,
}

/// What calls have changed.
type Changes = BTreeMap<i64, Vec<i64>>;

impl Model {
    pub fn new(bag: bool, objects: BTreeMap<i64, Vec<i64>>, order: Vec<i64>) -> Self {
        let places = order.iter().enumerate().map(|(place, key)| (*key, place)).collect();
        Self {
            bag,
            objects,
            order,
            places,
        }
    }

    pub fn commute(&self, a: Call, b: Call) -> bool {
        let (mut one, mut other) = (Changes::new(), Changes::new());
        let first = (self.run(a, &mut one), self.run(b, &mut one));
        let b_before = self.run(b, &mut other);
        first == (self.run(a, &mut other), b_before) && self.normal(one) == self.normal(other)
    }

    /// The answer of a call on the table as it is.
    pub fn answer(&self, call: Call) -> Answer {
        self.run(call, &mut Changes::new())
    }

    /// What really differs.
    fn normal(&self, mut changes: Changes) -> Changes {
        changes.retain(|key, numbers| self.objects.get(key).map_or(&[][..], |old| old) != numbers);
        changes
    }

    fn get<'a>(&'a self, changes: &'a Changes, key: i64) -> &'a [i64] {
        changes
            .get(&key)
            .or_else(|| self.objects.get(&key))
            .map_or(&[], |numbers| numbers)
    }

    fn run(&self, call: Call, changes: &mut Changes) -> Answer {
        let Call { kind, key, number } = call;
        let old = self.get(changes, key).to_vec();
        let step = |from: usize, up: bool| {
            let is_there = |place: &usize| !self.get(changes, self.order[*place]).is_empty();
            match up {
                true => (from..self.order.len()).find(is_there),
                false => (0..from).rev().find(is_there),
            }
        };
        let key_at = |place: Option<usize>| Answer::of(&place.map_or(vec![], |place| vec![self.order[place]]));
        let change = |changes: &mut Changes, numbers: Vec<i64>| {
            changes.insert(key, numbers);
        };
        match kind {
            Kind::Lookup | Kind::LookupElement => Answer::of(&old),
            Kind::Member => Answer::of(&[i64::from(!old.is_empty())]),
            Kind::Insert => {
                let mut new = old;
                if !self.bag {
                    new.clear();
                }
                if !new.contains(&number) {
                    new.push(number);
                }
                change(changes, new);
                Answer::new()
            }
            Kind::InsertNew => {
                if old.is_empty() {
                    change(changes, vec![number]);
                }
                Answer::of(&[i64::from(old.is_empty())])
            }
            Kind::Delete => {
                change(changes, vec![]);
                Answer::new()
            }
            Kind::DeleteObject => {
                change(changes, old.into_iter().filter(|other| *other != number).collect());
                Answer::new()
            }
            Kind::Take => {
                change(changes, vec![]);
                Answer::of(&old)
            }
            Kind::UpdateCounter | Kind::UpdateElement => {
                let [old] = *old else {
                    return Answer::of(&[BAD_KEY]);
                };
                let counts = kind == Kind::UpdateCounter;
                change(changes, vec![if counts { old + 1 } else { number }]);
                match counts {
                    true => Answer::of(&[old + 1]),
                    false => Answer::new(),
                }
            }
            Kind::Next => key_at(step(self.places[&key] + 1, true)),
            Kind::Prev => key_at(step(self.places[&key], false)),
            Kind::First => key_at(step(0, true)),
            Kind::Last => key_at(step(self.order.len(), false)),
            Kind::Range => {
                let mut answer = Answer::new();
                let mut from = self.places[&key] + 1;
                for _ in 0..3 {
                    let Some(place) = step(from, true) else { break };
                    answer.push(self.order[place]);
                    from = place + 1;
                }
                answer
            }
            Kind::Size => {
                let more =
                    |(key, new): (&i64, &Vec<i64>)| new.len() as i64 - self.objects.get(key).map_or(0, Vec::len) as i64;
                let before: usize = self.objects.values().map(Vec::len).sum();
                Answer::of(&[before as i64 + changes.iter().map(more).sum::<i64>()])
            }
            Kind::Whereis => Answer::of(&[1]),
        }
    }
}
