//! Tables with a limit: that it holds, and which objects stay.

use crate::common::*;
use crate::eviction::{is_thorough, modelled, traces, Cache};
use cats_engine::testing::cases::thorough;
use cats_sync::epoch::pin;
use cats_table::{
    Collect, Committed, Failure, Handle, Kind, Objects, OptionItem, Policy, Reads, Registry, Table, Unit, Writes,
};
use cats_term::TermRef;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::thread;

const S3: Option<Policy> = Some(Policy::S3Fifo);
const KINDS: [Kind; 2] = [Kind::Set, Kind::OrderedSet];

/// All that option `evict` may be.
fn with_none() -> impl Iterator<Item = Option<Policy>> {
    Policy::ALL.iter().copied().map(Some).chain([None])
}

fn limited(kind: Kind, unit: Unit, number: u64, policy: Option<Policy>) -> Collect {
    let mut collect = options(kind, 1);
    collect.add(OptionItem::Limit(unit, number));
    collect.add(OptionItem::Evict(policy));
    collect
}

fn table(registry: &'static Registry, options: Collect) -> Arc<Table> {
    enter(registry, &World::default(), &pin(), options, atom(1), 1, None).unwrap()
}

/// Repeats what others are in the way of.
fn patiently<R>(mut f: impl FnMut(Handle<'_>) -> Result<R, Failure>, table: &Table) -> Result<R, Failure> {
    loop {
        match f(table.by_identifier(&pin())) {
            Err(Failure::Busy) => thread::yield_now(),
            done => return done,
        }
    }
}

fn put(table: &Table, elements: &[Value]) -> Result<(), Failure> {
    patiently(|handle| with_object(elements, |object| handle.insert(object)), table)
}

fn put_number(table: &Table, key: i64) -> Result<(), Failure> {
    put(table, &[Value::Int(key), Value::Int(key)])
}

fn find(table: &Table, key: i64) -> bool {
    let guard = pin();
    loop {
        let mut objects = Objects::none();
        let probe = table.probe(TermRef::immediate(cats_term::small(key).unwrap()));
        match table.by_identifier(&guard).lookup(&probe, &mut objects) {
            Err(Failure::Busy) => thread::yield_now(),
            done => {
                done.unwrap();
                return !objects.as_slice().is_empty();
            }
        }
    }
}

fn size(table: &Table) -> usize {
    table.by_identifier(&pin()).size()
}

fn bytes(table: &Table) -> usize {
    table.by_identifier(&pin()).bytes()
}

/// A request to a cache: whether it hits. If not, the key gets an object.
fn request(table: &Table, key: u32) -> bool {
    let hit = find(table, key.into());
    if !hit {
        put_number(table, key.into()).unwrap();
    }
    hit
}

fn hit_ratio(kind: Kind, policy: Policy, limit: usize, requests: &[u32], threads: usize) -> f64 {
    let table = table(registry(), limited(kind, Unit::Objects, limit as u64, Some(policy)));
    let (hits, next) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| loop {
                let from = next.fetch_add(50, SeqCst);
                let Some(part) = requests.get(from..) else {
                    return;
                };
                let part = &part[..part.len().min(50)];
                hits.fetch_add(part.iter().filter(|key| request(&table, **key)).count(), SeqCst);
            });
        }
    });
    assert_eq!(size(&table), limit);
    hits.load(SeqCst) as f64 / requests.len() as f64
}

/// Compares tables with the queues alone, which `eviction` compares with a simulator. `make check`, which sets THOROUGH, takes all traces that
/// are chosen. Otherwise it is a part of two: one rests on frequency, and one on recency.
fn compare(kind: Kind, policies: &[Policy], threads: usize, tolerance: f64, is_chosen: impl Fn(&str) -> bool) {
    let mut failed = 0;
    let is_taken = |name: &str| is_chosen(name) && (is_thorough() || ["Zipf 1.0", "loops"].contains(&name));
    for (name, trace) in traces::TRACES.into_iter().filter(|(name, _)| is_taken(name)) {
        let all = trace();
        let requests = &all[..if is_thorough() { all.len() } else { all.len() / 5 }];
        for policy in policies {
            for size in [1000, 10_000] {
                let expected = Cache::new(*policy, size).hit_ratio(requests);
                let ratio = hit_ratio(kind, *policy, size, requests, threads);
                println!("{name}, {size}, {policy:?}, {kind:?}, {threads} threads: {ratio:.4}, queues {expected:.4}");
                failed += usize::from((expected - ratio).abs() > tolerance);
            }
        }
    }
    assert_eq!(failed, 0);
}

#[test]
fn a_set_hits_as_often_as_its_queues_alone() {
    compare(Kind::Set, Policy::ALL, 1, 0.0025, |_| true);
}

#[test]
fn an_ordered_set_hits_as_often_as_its_queues_alone() {
    compare(Kind::OrderedSet, &[Policy::S3Fifo], 1, 0.0025, |_| true);
}

/// Threads take a trace out of order. Only in the traces of independent requests does no ratio depend on the order.
#[test]
fn eight_threads_hit_as_often_as_one() {
    compare(Kind::Set, &[Policy::S3Fifo, Policy::Sieve], 8, 0.005, |trace| {
        trace.starts_with("Zipf")
    });
}

/// One shard and four.
#[test]
fn a_set_hits_on_loops_as_often_as_a_plain_model() {
    let mut failed = 0;
    for limit in [1000, 8192] {
        let chosen = |percent: usize| limit == 1000 || is_thorough() || [100, 120, 200].contains(&percent);
        for percent in traces::LOOPS
            .into_iter()
            .filter(|percent| *percent >= 100 && chosen(*percent))
        {
            let requests = traces::one_loop(limit, percent);
            let ratio = hit_ratio(Kind::Set, Policy::S3Fifo, limit, &requests, 1);
            let (expected, paper) = modelled(limit, &requests);
            println!("{limit}, loop of {percent} %: {ratio:.4}, model {expected:.4}, paper {paper:.4?}");
            failed += usize::from(expected - ratio > 0.025);
        }
    }
    assert_eq!(failed, 0);
}

/// A full leaf would get room for an absent key that is inserted.
#[test]
fn deletions_of_absent_keys_take_no_memory() {
    for kind in KINDS {
        let table = table(registry(), limited(kind, Unit::Objects, 1000, S3));
        (0..1000).for_each(|key| put_number(&table, 2 * key).unwrap());
        let before = bytes(&table);
        for key in (1..2000).step_by(2) {
            let probe = table.probe(TermRef::immediate(cats_term::small(key).unwrap()));
            patiently(|handle| handle.delete(&probe), &table).unwrap();
        }
        assert_eq!((size(&table), bytes(&table)), (1000, before), "{kind:?}");
    }
}

/// Writers insert objects of several sizes, delete and take. Another thread looks at the table all the time.
fn storm(kind: Kind, unit: Unit, limit: usize, policy: Option<Policy>) {
    let table = table(registry(), limited(kind, unit, limit as u64, policy));
    let (done, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    let used = || match unit {
        Unit::Objects => size(&table),
        Unit::Bytes => bytes(&table),
    };
    let look = || most.fetch_max(used(), SeqCst);
    let (table, done, look) = (&table, &done, &look);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                look();
            }
        });
        let writers: Vec<_> = (0..4_i64)
            .map(|writer| {
                scope.spawn(move || {
                    for i in 0..10_000 * i64::from(thorough()) {
                        let key = (i * 7919 + writer * 31) % 30_000;
                        let object = match i % 5 {
                            0 => vec![Value::Int(key), Value::Binary(vec![1; (key % 300) as usize])],
                            1 => vec![Value::Int(key), Value::Int(1), Value::Int(2), Value::Int(3)],
                            2 => vec![Value::Binary(key.to_le_bytes().to_vec()), Value::Float(1.5)],
                            _ => vec![Value::Int(key)],
                        };
                        match put(table, &object) {
                            Ok(()) => (),
                            Err(Failure::Full) if policy.is_none() => (),
                            failed => failed.unwrap(),
                        }
                        if i % 1000 == 0 {
                            // The other thread may not run meanwhile.
                            look();
                        }
                        if i % 11 == 0 {
                            let deleted = patiently(
                                |handle| with_key(&Value::Int(key / 2), |key| handle.delete(&table.probe(key))),
                                table,
                            );
                            deleted.unwrap();
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, SeqCst);
    });
    let most = most.load(SeqCst);
    println!(
        "{kind:?}, {unit:?}, {policy:?}: at most {most} of {limit}, now {}",
        used()
    );
    assert!(most <= limit && used() <= limit, "{most} of {limit}");
    // Of bytes, objects pay for more than they mostly take.
    let least = match unit {
        Unit::Objects => limit - limit / 10,
        Unit::Bytes => limit * 2 / 3,
    };
    assert!(most >= least, "{most} of {limit}");
    let guard = pin();
    assert_eq!(contents(table.by_identifier(&guard)).len(), size(table));
}

#[test]
fn a_limit_of_objects_holds_in_a_storm() {
    for kind in KINDS {
        for policy in with_none() {
            storm(kind, Unit::Objects, 10_000, policy);
            storm(kind, Unit::Objects, 7, policy);
        }
    }
}

#[test]
fn a_limit_of_bytes_holds_in_a_storm() {
    for kind in KINDS {
        for policy in with_none() {
            storm(kind, Unit::Bytes, 1 << 20, policy);
        }
    }
}

#[test]
fn without_eviction_a_full_table_refuses() {
    for kind in KINDS {
        let table = table(registry(), limited(kind, Unit::Objects, 3, None));
        for key in 0..3 {
            assert_eq!(put_number(&table, key), Ok(()));
        }
        assert_eq!(put_number(&table, 4), Err(Failure::Full));
        // Another object of the same key is not one more.
        assert_eq!(put_number(&table, 2), Ok(()));
        assert!(size(&table) == 3 && !find(&table, 4));
        let two = [[1, 4], [2, 5]].map(|words| words.map(|word| cats_term::small(word).unwrap()));
        let objects = |handle: Handle<'_>| {
            let objects = two
                .iter()
                .map(|words| Ok::<_, Failure>(cats_table::Object::flat(words)));
            handle.insert_list(objects, false, cats_term::lease::Request::Fresh)
        };
        assert_eq!(patiently(objects, &table), Ok(true));
        let other = [[7, 4], [2, 9]].map(|words| words.map(|word| cats_term::small(word).unwrap()));
        let objects = |handle: Handle<'_>| {
            let objects = other
                .iter()
                .map(|words| Ok::<_, Failure>(cats_table::Object::flat(words)));
            handle.insert_list(objects, false, cats_term::lease::Request::Fresh)
        };
        assert_eq!(patiently(objects, &table), Err(Failure::Full));
        let delete = |handle: Handle<'_>| with_key(&Value::Int(0), |key| handle.delete(&table.probe(key)));
        assert_eq!(patiently(delete, &table), Ok(()));
        assert_eq!(patiently(objects, &table), Ok(true));
        assert_eq!(size(&table), 3);
    }
}

#[test]
fn an_object_that_is_too_large_is_refused() {
    for policy in [S3, None] {
        let table = table(registry(), limited(Kind::Set, Unit::Bytes, 200_000, policy));
        put_number(&table, 1).unwrap();
        let large = [Value::Int(2), Value::Binary(vec![0; 300_000])];
        assert_eq!(put(&table, &large), Err(Failure::TooLarge));
        assert!(find(&table, 1) && !find(&table, 2));
    }
}

#[test]
fn a_transaction_holds_the_limit() {
    let table = table(registry(), limited(Kind::Set, Unit::Objects, 100, S3));
    for round in 0..100_i64 {
        let commit = |handle: Handle<'_>| {
            let guard = handle.guard();
            let mut writes = Writes::none();
            for key in 0..10 {
                let words = [round * 10 + key, 1].map(|word| cats_term::small(word).unwrap());
                writes.put(table.by_identifier(guard), cats_table::Object::flat(&words), None)?;
            }
            writes.commit(guard, &mut Reads::none(), SHORT, all_hold)
        };
        assert_eq!(patiently(commit, &table), Ok(Committed::Done));
        assert!(size(&table) <= 100);
    }
    assert_eq!(size(&table), 100);
}

/// Keys that come and go leave items behind, which do not gather.
#[test]
fn stale_items_do_not_gather() {
    for kind in KINDS {
        let table = table(registry(), limited(kind, Unit::Objects, 100_000, S3));
        let mut most = 0;
        for round in 0..200_000_i64 {
            put_number(&table, round % 50).unwrap();
            let delete =
                |handle: Handle<'_>| with_key(&Value::Int((round + 25) % 50), |key| handle.delete(&table.probe(key)));
            patiently(delete, &table).unwrap();
            if round == 100_000 {
                most = bytes(&table);
            }
        }
        assert!(bytes(&table) < most + 20_000, "{most} bytes, then {}", bytes(&table));
    }
}
