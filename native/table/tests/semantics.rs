//! Random operations on every kind of table, compared with a model that is a list of objects.

use crate::common::*;
use cats_engine::testing::cases::cases;
use cats_sync::epoch;
use cats_table::{
    Addition, Budget, Cause, Collect, Direction, ElementOp, Failure, Handle, Kind, Number, Objects, OptionItem, Tuple,
    Used,
};
use cats_term::lease::Request;
use cats_term::{TermRef, NIL};
use proptest::prelude::*;
use std::cmp::Ordering;

/// A position, an increment, and perhaps a threshold and the value to set beyond it.
type Adding = (i64, i64, Option<(i64, i64)>);

#[derive(Clone, Debug)]
enum Op {
    Insert(Elements),
    InsertNew(Elements),
    InsertList(Vec<Elements>, bool),
    Delete(Value),
    DeleteObject(Elements),
    DeleteAll,
    Take(Value),
    Lookup(Value),
    Counter(Value, Option<i64>, i64, Option<Elements>),
    Counters(Value, Vec<Adding>),
    Element(Value, Vec<(i64, Value)>, Option<Elements>),
    Walk,
    Next(Value),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => (-1i64..4).prop_map(Value::Int),
        2 => (-1i64..4).prop_map(|value| Value::Float(value as f64)),
        1 => Just(Value::Float(0.5)),
        2 => (0u64..3).prop_map(Value::Atom),
        1 => prop_oneof![Just(1i128 << 59), Just(1i128 << 63), Just(-(1i128 << 70))].prop_map(|value| {
            i64::try_from(value).map_or(Value::Big(value), Value::Int)
        }),
        1 => prop::collection::vec(0u8..3, 0..10).prop_map(Value::Binary),
        1 => Just(Value::List(Vec::new())),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Tuple),
            prop::collection::vec(inner, 1..3).prop_map(Value::List),
        ]
    })
}

fn object() -> impl Strategy<Value = Elements> {
    prop_oneof![
        3 => prop::collection::vec(value(), 2..5),
        2 => prop::collection::vec((0i64..3).prop_map(Value::Int), 2..4),
    ]
}

/// Objects with one key, wherever that is.
fn objects_of_one_key() -> impl Strategy<Value = Vec<Elements>> {
    let number = prop_oneof![4 => 2usize..5, 1 => 5usize..70];
    (
        value(),
        number.prop_flat_map(|number| prop::collection::vec(object(), number)),
    )
        .prop_map(|(key, mut list)| {
            for object in &mut list {
                let second = object[1].clone();
                object[..2].fill(key.clone());
                object.push(second);
            }
            list
        })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => object().prop_map(Op::Insert),
        2 => object().prop_map(Op::InsertNew),
        2 => (prop::collection::vec(object(), 0..4), any::<bool>()).prop_map(|(list, new)| Op::InsertList(list, new)),
        1 => (objects_of_one_key(), any::<bool>()).prop_map(|(list, new)| Op::InsertList(list, new)),
        2 => value().prop_map(Op::Delete),
        3 => object().prop_map(Op::DeleteObject),
        1 => Just(Op::DeleteAll),
        1 => value().prop_map(Op::Take),
        2 => value().prop_map(Op::Lookup),
        3 => (value(), prop::option::of(0i64..5), prop_oneof![Just(1i64), Just(-1), Just(i64::MAX)], prop::option::of(object()))
            .prop_map(|(key, position, increment, default)| Op::Counter(key, position, increment, default)),
        2 => (value(), prop::collection::vec((0i64..4, -3i64..3, prop::option::of((0i64..3, 0i64..3))), 0..3))
            .prop_map(|(key, ops)| Op::Counters(key, ops)),
        2 => (value(), prop::collection::vec((0i64..5, value()), 0..3), prop::option::of(object()))
            .prop_map(|(key, changes, default)| Op::Element(key, changes, default)),
        1 => Just(Op::Walk),
        1 => value().prop_map(Op::Next),
    ]
}

/// The meaning of a table, written as simply as possible.
struct Model {
    kind: Kind,
    key: usize,
    objects: Vec<Elements>,
}

fn order(a: &Value, b: &Value) -> Ordering {
    with_key(a, |a| with_key(b, |b| cats_term::compare(a, b)))
}

impl Model {
    fn same(&self, a: &Value, b: &Value) -> bool {
        if self.kind == Kind::OrderedSet {
            order(a, b).is_eq()
        } else {
            a == b
        }
    }

    fn lookup(&self, key: &Value) -> Vec<Elements> {
        let objects = self.objects.iter();
        objects
            .filter(|object| self.same(&object[self.key], key))
            .cloned()
            .collect()
    }

    fn insert(&mut self, object: &Elements) {
        let place = self
            .objects
            .iter()
            .position(|other| self.same(&other[self.key], &object[self.key]));
        match (self.kind, place) {
            (Kind::Set | Kind::OrderedSet, Some(place)) => self.objects[place] = object.clone(),
            (Kind::Bag, _) if self.objects.contains(object) => (),
            _ => self.objects.push(object.clone()),
        }
    }

    fn delete(&mut self, key: &Value) {
        let mut objects = std::mem::take(&mut self.objects);
        objects.retain(|object| !self.same(&object[self.key], key));
        self.objects = objects;
    }

    /// For ordered tables, in the order of traversal. For others, in some fixed order.
    fn sorted(&self) -> Vec<Elements> {
        let mut objects = self.objects.clone();
        if self.kind == Kind::OrderedSet {
            objects.sort_by(|a, b| order(&a[self.key], &b[self.key]));
        } else {
            objects.sort_by_key(|object| format!("{object:?}"));
        }
        objects
    }

    fn base(&self, key: &Value, default: &Option<Elements>) -> Result<(Elements, bool), Option<Cause>> {
        if default.as_ref().is_some_and(|tuple| tuple.len() <= self.key) {
            return Err(Some(Cause::Default));
        }
        if self.kind.is_bag() {
            return Err(Some(Cause::TableType));
        }
        match (self.lookup(key).pop(), default) {
            (Some(object), _) => Ok((object, false)),
            (None, Some(tuple)) => {
                let mut tuple = tuple.clone();
                tuple[self.key] = key.clone();
                Ok((tuple, true))
            }
            (None, None) => Err(None),
        }
    }

    fn check(&self, base: &Elements, position: i64) -> Result<(), Cause> {
        if position == self.key as i64 + 1 {
            Err(Cause::KeyPosition)
        } else if position < 1 || position > base.len() as i64 {
            Err(Cause::Position)
        } else {
            Ok(())
        }
    }

    fn counters(&mut self, key: &Value, ops: &[Adding], default: &Option<Elements>) -> Result<Vec<i128>, Cause> {
        let (mut base, _) = self
            .base(key, default)
            .map_err(|cause| cause.unwrap_or(Cause::BadKey))?;
        for (position, ..) in ops {
            self.check(&base, *position)?;
            integer(&base[*position as usize - 1]).ok_or(Cause::None)?;
        }
        let mut values = Vec::new();
        for (position, increment, limit) in ops {
            let place = *position as usize - 1;
            let mut new = integer(&base[place]).unwrap() + *increment as i128;
            if let Some((limit, beyond)) = limit {
                if if *increment < 0 {
                    new < *limit as i128
                } else {
                    new > *limit as i128
                } {
                    new = *beyond as i128;
                }
            }
            base[place] = i64::try_from(new).map_or(Value::Big(new), Value::Int);
            values.push(new);
        }
        self.insert(&base);
        Ok(values)
    }

    fn elements(&mut self, key: &Value, changes: &[(i64, Value)], default: &Option<Elements>) -> Result<bool, Cause> {
        let mut base = match self.base(key, default) {
            Ok((base, _)) => base,
            Err(None) => return Ok(false),
            // ETS reports no cause here.
            Err(Some(Cause::TableType)) => return Err(Cause::None),
            Err(Some(cause)) => return Err(cause),
        };
        for (position, _) in changes {
            self.check(&base, *position)?;
        }
        for (position, value) in changes {
            base[*position as usize - 1] = value.clone();
        }
        self.insert(&base);
        Ok(true)
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(value) => Some(*value as i128),
        Value::Big(value) => Some(*value),
        _ => None,
    }
}

fn number(value: &Number) -> i128 {
    let (negative, digits) = value.digits();
    let magnitude = digits.iter().rev().fold(0i128, |sum, digit| sum << 64 | *digit as i128);
    if negative {
        -magnitude
    } else {
        magnitude
    }
}

fn bad<T: std::fmt::Debug>(result: Result<T, Failure>) -> Result<T, Cause> {
    result.map_err(|failure| match failure {
        Failure::Bad(cause) => cause,
        other => panic!("{other:?}"),
    })
}

fn listed(objects: &Objects<'_>) -> Vec<Elements> {
    objects.as_slice().iter().map(elements).collect()
}

fn lookup(handle: Handle<'_>, key: TermRef<'_>) -> Result<Vec<Elements>, Failure> {
    let mut found = Objects::none();
    handle.lookup(&handle.table().probe(key), &mut found)?;
    Ok(listed(&found))
}

fn take(handle: Handle<'_>, key: TermRef<'_>, words: usize) -> Result<Vec<Elements>, Failure> {
    let mut taken = Objects::none();
    handle.take(&handle.table().probe(key), Budget(words), &mut taken)?;
    Ok(listed(&taken))
}

fn run(kind: Kind, key_position: u32, ops: Vec<Op>) {
    run_with(options(kind, key_position), kind, key_position, ops);
}

fn run_with(options: Collect, kind: Kind, key_position: u32, ops: Vec<Op>) {
    let registry = registry();
    let world = World::default();
    let key = key_position as usize - 1;
    let mut model = Model {
        kind,
        key,
        objects: Vec::new(),
    };
    let table = enter(registry, &world, &epoch::pin(), options, atom(1), 1, None).unwrap();
    for op in ops {
        let guard = epoch::pin();
        let handle = table.by_identifier(&guard);
        let look = |key: &Value| with_key(key, |term| lookup(handle, term).unwrap());
        match &op {
            Op::Insert(object) => {
                with_object(object, |object| handle.insert(object)).unwrap();
                model.insert(object);
            }
            Op::InsertNew(object) => {
                let new = model.lookup(&object[key]).is_empty();
                assert_eq!(
                    with_object(object, |object| handle.insert_new(object)),
                    Ok(new),
                    "{op:?}"
                );
                if new {
                    model.insert(object);
                }
            }
            Op::InsertList(list, new) => {
                let done = !new || list.iter().all(|object| model.lookup(&object[key]).is_empty());
                let words: Vec<_> = list.iter().map(|object| immediates(object)).collect();
                let objects = list.iter().zip(&words).map(|(object, words)| {
                    Ok::<_, Failure>(match cats_table::is_flat(words) {
                        true => cats_table::Object::flat(words),
                        false => cats_table::Object::in_block(words, block(object)),
                    })
                });
                assert_eq!(handle.insert_list(objects, *new, Request::Fresh), Ok(done), "{op:?}");
                if done {
                    list.iter().for_each(|object| model.insert(object));
                }
            }
            Op::Delete(key) => {
                with_key(key, |term| handle.delete(&table.probe(term))).unwrap();
                model.delete(key);
            }
            Op::DeleteObject(object) => {
                with_object(object, |object| handle.delete_object(object)).unwrap();
                model.objects.retain(|other| other != object);
            }
            Op::DeleteAll => {
                handle.delete_all_objects(&world).unwrap();
                model.objects.clear();
            }
            Op::Take(key) => {
                let taken = with_key(key, |term| take(handle, term, 10_000).unwrap());
                assert_eq!(taken, model.lookup(key), "{op:?}");
                model.delete(key);
            }
            Op::Lookup(key) => {
                assert_eq!(look(key), model.lookup(key), "{op:?}");
                let member = with_key(key, |term| handle.member::<Used>(&table.probe(term)).unwrap());
                assert_eq!(member, !model.lookup(key).is_empty());
            }
            Op::Counter(key, position, increment, default) => {
                let place = position.unwrap_or(key_position as i64 + 1);
                let default_block = default.as_ref().map(|tuple| block(tuple));
                let tuple = default_block
                    .as_ref()
                    .map(|block| Tuple::Terms(block.as_ref().elements()));
                let addition = Addition {
                    position: place,
                    increment: *increment,
                    limit: None,
                };
                let result = with_key(key, |term| add(handle, &table.probe(term), &[addition], tuple));
                let result = bad(result).map(|values| values.iter().map(number).collect::<Vec<_>>());
                assert_eq!(
                    result,
                    model.counters(key, &[(place, *increment, None)], default),
                    "{op:?}"
                );
            }
            Op::Counters(key, ops) => {
                let additions: Vec<Addition> = ops
                    .iter()
                    .map(|&(position, increment, limit)| Addition {
                        position,
                        increment,
                        limit,
                    })
                    .collect();
                let result = with_key(key, |term| add(handle, &table.probe(term), &additions, None));
                let result = bad(result).map(|values| values.iter().map(number).collect::<Vec<_>>());
                assert_eq!(result, model.counters(key, ops, &None), "{op:?}");
            }
            Op::Element(key, changes, default) => {
                let values: Vec<Value> = changes.iter().map(|(_, value)| value.clone()).collect();
                let values = block(&values);
                let natives: Vec<ElementOp<'_>> = changes
                    .iter()
                    .enumerate()
                    .map(|(i, (position, _))| ElementOp::Set(*position, values.as_ref().element(i)))
                    .collect();
                let default_block = default.as_ref().map(|tuple| block(tuple));
                let tuple = default_block
                    .as_ref()
                    .map(|block| Tuple::Terms(block.as_ref().elements()));
                let result = with_key(key, |term| set_elements(handle, &table.probe(term), &natives, tuple));
                let updated = match bad(result) {
                    Err(Cause::BadKey) => Ok(false),
                    result => result.map(|()| true),
                };
                assert_eq!(updated, model.elements(key, changes, default), "{op:?}");
            }
            Op::Walk => {
                let mut seen: Vec<Value> = Vec::new();
                let mut next = handle.step(None, Direction::Up).unwrap().map(Value::of);
                while let Some(at) = next {
                    next = with_key(&at, |term| {
                        let mut found = Objects::none();
                        handle
                            .step_lookup(Some(&table.probe(term)), Direction::Up, &mut found)
                            .unwrap();
                        found.as_slice().first().map(|object| {
                            let key = Value::of(object.element(key));
                            assert_eq!(listed(&found), model.lookup(&key));
                            key
                        })
                    });
                    seen.push(at);
                }
                let mut keys: Vec<Value> = Vec::new();
                for object in model.sorted() {
                    if !keys.contains(&object[key]) {
                        keys.push(object[key].clone());
                    }
                }
                if kind != Kind::OrderedSet {
                    seen.sort_by_key(|key| format!("{key:?}"));
                    keys.sort_by_key(|key| format!("{key:?}"));
                }
                assert_eq!(seen, keys);
            }
            Op::Next(from) => {
                // The key may be absent. Without an order, the test only checks that a walk from it ends.
                let next = |direction| {
                    with_key(from, |term| {
                        // Leaves a trail from another key.
                        handle.step_from(NIL, direction).unwrap();
                        // Twice, because the second one goes on from where the first one began.
                        let along = || handle.step_from(term.word(), direction).unwrap().map(Value::of);
                        let along = term.is_immediate().then(|| [along(), along()]);
                        let next = handle.step(Some(&table.probe(term)), direction).unwrap().map(Value::of);
                        if let Some(along) = along {
                            assert_eq!(along, [next.clone(), next.clone()]);
                        }
                        next
                    })
                };
                if kind == Kind::OrderedSet {
                    let sorted = model.sorted();
                    let above = sorted.iter().find(|object| order(&object[key], from).is_gt());
                    let below = sorted.iter().rev().find(|object| order(&object[key], from).is_lt());
                    assert_eq!(next(Direction::Up), above.map(|object| object[key].clone()));
                    assert_eq!(next(Direction::Down), below.map(|object| object[key].clone()));
                } else {
                    next(Direction::Up);
                }
            }
        }
        assert_eq!(handle.size(), model.objects.len(), "{op:?}");
    }
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    let mut all = contents(handle);
    if kind == Kind::OrderedSet {
        all.reverse();
    } else {
        all.sort_by_key(|object| format!("{object:?}"));
    }
    assert_eq!(all, model.sorted());
    registry.delete(&world, handle).unwrap();
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn set(position in 1u32..3, ops in prop::collection::vec(op(), 1..60)) {
        run(Kind::Set, position, ops);
    }

    #[test]
    fn ordered_set(position in 1u32..3, ops in prop::collection::vec(op(), 1..60)) {
        run(Kind::OrderedSet, position, ops);
    }

    #[test]
    fn bag(position in 1u32..3, ops in prop::collection::vec(op(), 1..60)) {
        run(Kind::Bag, position, ops);
    }

    #[test]
    fn duplicate_bag(position in 1u32..3, ops in prop::collection::vec(op(), 1..60)) {
        run(Kind::DuplicateBag, position, ops);
    }
}

/// An object. Some are large enough to be packed.
fn large_object() -> impl Strategy<Value = Elements> {
    (value(), 0i64..3, 0usize..200)
        .prop_map(|(key, number, length)| vec![key, Value::Int(number), Value::List(vec![Value::Int(number); length])])
}

fn op_on_large_objects() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => op(),
        3 => large_object().prop_map(Op::Insert),
        1 => large_object().prop_map(Op::DeleteObject),
        1 => prop::collection::vec(large_object(), 0..4).prop_map(|list| Op::InsertList(list, false)),
    ]
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn compressed(
        kind in prop_oneof![Just(Kind::Set), Just(Kind::OrderedSet), Just(Kind::Bag), Just(Kind::DuplicateBag)],
        ops in prop::collection::vec(op_on_large_objects(), 1..60),
    ) {
        let mut options = options(kind, 1);
        options.add(OptionItem::Compressed);
        run_with(options, kind, 1, ops);
    }
}

/// Many objects have one key, so the group has an index.
#[test]
fn large_groups() {
    for kind in [Kind::Bag, Kind::DuplicateBag] {
        let registry = registry();
        let world = World::default();
        let guard = epoch::pin();
        let table = enter(registry, &world, &guard, options(kind, 1), atom(1), 1, None).unwrap();
        let handle = table.by_identifier(&guard);
        // Some are pairs of immediates, which have no blocks.
        let object = |number: i64| match number % 4 {
            0 => vec![Value::Atom(0), Value::Int(350 - number % 700)],
            _ => vec![
                Value::Atom(0),
                Value::Int(number % 700),
                Value::Float((number % 7) as f64),
            ],
        };
        let mut model = Model {
            kind,
            key: 0,
            objects: Vec::new(),
        };
        for number in 0..1000 {
            with_object(&object(number), |object| handle.insert(object)).unwrap();
            model.insert(&object(number));
        }
        for number in (0..1000).step_by(3) {
            with_object(&object(number), |object| handle.delete_object(object)).unwrap();
            model.objects.retain(|other| *other != object(number));
        }
        with_key(&Value::Atom(0), |term| {
            assert_eq!(lookup(handle, term).unwrap(), model.objects);
        });
        assert_eq!(handle.size(), model.objects.len());
        for number in 0..1000 {
            with_object(&object(number), |object| handle.delete_object(object)).unwrap();
        }
        assert_eq!(handle.size(), 0);
        assert_eq!(contents(handle), Vec::<Elements>::new());
        registry.delete(&world, handle).unwrap();
    }
}

#[test]
fn what_is_too_much_for_a_scheduler_is_refused_with_nothing_done() {
    let registry = registry();
    let world = World::default();
    let guard = epoch::pin();
    let table = enter(registry, &world, &guard, options(Kind::Bag, 1), atom(1), 1, None).unwrap();
    let handle = table.by_identifier(&guard);
    let objects: Vec<[u64; 2]> = (0..2000).map(|i| [atom(0), cats_term::small(i).unwrap()]).collect();
    let list = || {
        objects
            .iter()
            .map(|words| Ok::<_, Failure>(cats_table::Object::flat(words)))
    };
    assert_eq!(
        on_scheduler(|| handle.insert_list(list(), false, Request::Fresh)),
        Err(Failure::Big)
    );
    assert_eq!(handle.size(), 0);
    assert_eq!(handle.insert_list(list(), false, Request::Fresh), Ok(true));
    assert_eq!(handle.size(), 2000);
    with_key(&Value::Atom(0), |term| {
        assert_eq!(on_scheduler(|| lookup(handle, term)), Err(Failure::Big));
        assert_eq!(on_scheduler(|| take(handle, term, 10_000)), Err(Failure::Big));
        assert_eq!(take(handle, term, 0).unwrap().len(), 2000);
    });
    assert_eq!(handle.size(), 0);

    let table = enter(
        registry,
        &world,
        &guard,
        options(Kind::DuplicateBag, 1),
        atom(2),
        1,
        None,
    )
    .unwrap();
    let handle = table.by_identifier(&guard);
    let equal = || cats_table::Object::flat(&objects[0]);
    let list = (0..2000).map(|_| Ok::<_, Failure>(equal()));
    assert_eq!(handle.insert_list(list, false, Request::Fresh), Ok(true));
    assert_eq!(on_scheduler(|| handle.delete_object(equal())), Err(Failure::Big));
    assert_eq!(handle.size(), 2000);
    assert_eq!(handle.delete_object(equal()), Ok(2000));
    assert_eq!(handle.size(), 0);
}
