//! The log alone, and with a few threads.

use super::*;
use cats_sync::epoch::pin;
use cats_term::TermRef;

/// The memory of a reader.
const MOST: usize = 1 << 20;

fn probe(number: u64) -> Probe<'static> {
    Probe::exact(TermRef::immediate(number << 4 | 15))
}

fn chain(author: Author, numbers: &[u64]) -> Chain {
    let probes: Vec<Probe<'static>> = numbers.iter().copied().map(probe).collect();
    Chain::new(author, false, probes.iter())
}

/// What a reader is shown, as numbers.
fn shown(reader: &mut Reader) -> Vec<u64> {
    let mut seen = Vec::new();
    let look = reader.look(usize::MAX, |write| {
        seen.push(write.word() >> 4);
        true
    });
    assert!(matches!(look, Ok(Look::Unchanged)));
    seen
}

fn begin() -> (History, WriteLog, Reader) {
    let (history, log) = (History::default(), WriteLog::default());
    assert!(log.wanted(&history).is_none());
    let reader = log.read(&history, 7, MOST).expect("a free lock");
    assert!(history.is_logged());
    (history, log, reader)
}

#[test]
fn shows_the_writes_of_others_once() {
    let (history, log, mut reader) = begin();
    let writers = log.wanted(&history).expect("a reader");
    writers.add(chain(NOBODY, &[1]));
    writers.add(chain(7, &[2, 3]));
    writers.add(chain(8, &[4]));
    assert_eq!(shown(&mut reader), [1, 4]);
    assert!(shown(&mut reader).is_empty());
    writers.add(chain(NOBODY, &[5]));
    assert_eq!(shown(&mut reader), [5]);
}

#[test]
fn stays_where_it_was_shown_a_change() {
    let (history, log, mut reader) = begin();
    log.wanted(&history).expect("a reader").add(chain(NOBODY, &[1, 2]));
    for _ in 0..2 {
        let look = reader.look(usize::MAX, |write| write.word() != probe(2).word());
        assert!(matches!(look, Ok(Look::Changed)));
    }
    assert!(matches!(reader.look(0, |_| true), Ok(Look::Unfinished)));
    assert_eq!(shown(&mut reader), [2]);
}

#[test]
fn is_complete_when_the_guards_of_its_beginning_have_ended() {
    let guard = pin();
    let (_history, _log, reader) = begin();
    assert!(!reader.is_complete());
    drop(guard);
    // Another test may have a guard.
    while !reader.is_complete() {
        yield_now();
    }
}

#[test]
fn frees_what_all_readers_have_passed() {
    let (history, log, mut first) = begin();
    let mut second = log.read(&history, 7, MOST).expect("a free lock");
    let writers = log.wanted(&history).expect("two readers");
    let empty = writers.bytes();
    for number in 1..=100 {
        writers.add(chain(NOBODY, &[number]));
    }
    assert_eq!(shown(&mut first).len(), 100);
    // The first one has left a place of its own.
    assert_eq!(writers.bytes(), empty + 99 * size_of::<Write>());
    assert_eq!(shown(&mut second).len(), 100);
    // Both are at the last one.
    assert_eq!(writers.bytes(), size_of::<Write>());
    writers.add(chain(NOBODY, &[1, 2, 3]));
    drop((first, second));
    assert_eq!(writers.bytes(), size_of::<Write>());
    assert!(log.wanted(&history).is_none());
    assert!(!history.is_logged());
}

/// As when a table is emptied or deleted.
#[test]
fn stays_with_its_readers_when_the_contents_end() {
    let (history, log, reader) = begin();
    let mut other = log.read(&history, 7, MOST).expect("a free lock");
    let probes: Vec<Probe<'static>> = (1..=100).map(probe).collect();
    let writers = log.wanted(&history).expect("readers");
    writers.add(Chain::new(NOBODY, true, probes.iter()));
    let mut keys = Vec::new();
    let look = other.look(usize::MAX, |write| {
        keys.extend(write.key().cloned());
        true
    });
    assert!(matches!(look, Ok(Look::Unchanged)) && keys.len() == 100);
    let held = || keys.iter().filter(|key| Arc::strong_count(key) > 1).count();
    drop((other, log));
    assert_eq!(held(), 100);
    drop(reader);
    assert_eq!(held(), 0);
}

/// Those who are too far behind are cut off. Others are not.
#[test]
fn cuts_readers_off_rather_than_grow_without_end() {
    let (history, log, mut late) = begin();
    let mut patient = log.read(&history, 8, 100 * MOST).expect("a free lock");
    let mut quick = log.read(&history, 9, MOST).expect("a free lock");
    late.spare(true);
    let writers = log.wanted(&history).expect("readers");
    let add = |all: u64, quick: &mut Reader| {
        for number in 0..all {
            writers.add(chain(NOBODY, &[number + 1]));
            if number % 1000 == 0 {
                shown(quick);
            }
        }
    };
    let all = (3 * MOST / size_of::<Write>()) as u64;
    add(all, &mut quick);
    assert!(late.behind() > 2 * MOST && quick.behind() < MOST);
    late.spare(false);
    add(all, &mut quick);
    assert!(matches!(late.look(usize::MAX, |_| true), Ok(Look::CutOff)));
    assert_eq!(shown(&mut patient).len() as u64, 2 * all);
    shown(&mut quick);
    // What was cut off is the reaper's. It frees the writes that nobody has to see.
    drop((late, patient));
    while crate::garbage::clear(std::time::Duration::from_millis(10), &|_| Ok(false)) != crate::garbage::Left::Nothing {
        yield_now();
    }
    assert_eq!(writers.bytes(), size_of::<Write>());
    assert_eq!(shown(&mut quick), []);
}

/// Of the keys from 1 to 100, those that writers add to the log.
fn announced(log: &Log) -> Vec<u64> {
    let guard = pin();
    let probes: Vec<_> = (1..=100_u64)
        .map(|number| Probe::ordered(TermRef::immediate(number << 4 | 15)))
        .collect();
    let chain = log.chain(&guard, NOBODY, false, &probes.iter().collect::<Vec<_>>());
    chain.iter().map(|write| write.word() >> 4).collect()
}

/// A part of an ordered table.
fn range(from: u64, to: u64) -> Part {
    let [from, to] = [from, to].map(probe);
    let range = cats_engine::Range {
        from: Some((&from, true)),
        to: Some(&to),
        down: false,
    };
    Part::range(&range, None)
}

/// Other tests, and chance, may make the filter take few other keys for announced ones.
#[test]
fn writers_add_what_was_announced() {
    let (history, log, mut reader) = begin();
    let writers = log.wanted(&history).expect("a reader");
    let guard = pin();
    assert!(announced(writers).len() < 50);
    assert!(!reader.announce(&guard, &Part::Word(probe(7).word())));
    assert!(!reader.announce(&guard, &Part::key(Kind::OrderedSet, &probe(9))));
    let few = announced(writers);
    assert!(few.contains(&7) && few.contains(&9) && few.len() < 50);
    assert!(reader.announce(&guard, &range(20, 30)));
    assert!(!reader.announce(&guard, &range(22, 30)));
    assert!(reader.announce(&guard, &range(25, 90)));
    let walked = announced(writers);
    assert!((20..=90).all(|number| walked.contains(&number)) && walked.len() < 90);
    drop(reader);
    assert!(announced(writers).len() < 50);
}

#[test]
fn more_walks_than_there_are_places() {
    let (history, log, first) = begin();
    let guard = pin();
    let mut readers = vec![first];
    readers.extend((0..10).map(|_| log.read(&history, 7, MOST).expect("a free lock")));
    let writers = log.wanted(&history).expect("readers");
    for (reader, number) in readers.iter_mut().zip(1..) {
        assert!(reader.announce(&guard, &range(number, number)));
        let all = announced(writers).len() == 100;
        assert_eq!(all, number > 8);
        assert!(announced(writers).contains(&number));
    }
    readers.truncate(8);
    assert!(announced(writers).len() < 50);
    readers.remove(3);
    assert!(announced(writers).len() < 50 && !announced(writers).contains(&50));
    let mut next = log.read(&history, 7, MOST).expect("a free lock");
    assert!(next.announce(&guard, &range(50, 60)) && announced(writers).contains(&50));
    drop((readers, next));
    assert!(announced(writers).len() < 50);
}

#[test]
fn announcements_end_with_their_reader() {
    let (history, log, mut reader) = begin();
    let guard = pin();
    for number in 1..=300_000 {
        reader.announce(&guard, &Part::Word(probe(number).word()));
    }
    let writers = log.wanted(&history).expect("a reader");
    assert!(announced(writers).len() == 100 && reader.bytes() >= 1_200_000);
    // Under the guard, what other tests leave would never come to the reaper.
    drop((reader, guard));
    while crate::garbage::clear(std::time::Duration::from_millis(10), &|_| Ok(false)) != crate::garbage::Left::Nothing {
        yield_now();
    }
    assert!(announced(writers).len() < 50);
}

fn reserved(log: &Log, author: Author, numbers: &[u64]) -> bool {
    let refused = Cell::new(false);
    let admitted = log.admit(Actor::commit(author, &refused), &chain(author, numbers));
    assert_eq!(admitted.is_err(), refused.get());
    refused.get()
}

#[test]
fn refuses_commits_that_write_what_is_reserved() {
    let (history, log, reader) = begin();
    let writers = log.wanted(&history).expect("a reader");
    let word = |number| Part::Word(probe(number).word());
    let keeper = 12;
    // Not before the keeper is the preferred one.
    reader.reserve(keeper, Kind::Set, word(1)).expect("a free lock");
    assert!(!reserved(writers, NOBODY, &[1]));
    assert!(preferred::begin(keeper, 1));
    for number in [1, 300] {
        reader.reserve(keeper, Kind::Set, word(number)).expect("a free lock");
    }
    let many: Vec<u64> = (2..=300).collect();
    assert!(reserved(writers, NOBODY, &[1]) && reserved(writers, 8, &[2, 1]) && reserved(writers, 8, &many));
    assert!(!reserved(writers, NOBODY, &many[..298]) && !reserved(writers, 7, &[1]));
    assert!(writers.admit(Actor::OUTSIDE, &chain(NOBODY, &[1])).is_ok());
    // Another one is preferred.
    preferred::dismiss(keeper);
    assert!(preferred::begin(13, 2));
    assert!(!reserved(writers, NOBODY, &[1]));
    let other = log.read(&history, 9, MOST).expect("a free lock");
    other.reserve(13, Kind::Set, word(2)).expect("a free lock");
    assert!(reserved(writers, NOBODY, &[2]) && !reserved(writers, NOBODY, &[1]));
    drop(other);
    assert!(!reserved(writers, NOBODY, &[2]));
    preferred::dismiss(13);
}

#[test]
fn loses_nothing_between_threads() {
    const EACH: u64 = if cfg!(miri) { 50 } else { 5000 };
    let (history, log, mut reader) = begin();
    let mut other = log.read(&history, 7, MOST).expect("a free lock");
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let writers = log.wanted(&history).expect("readers");
            scope.spawn(move || (0..EACH).for_each(|i| writers.add(chain(NOBODY, &[1 + 3 * i + writer]))));
        }
        let mut seen = Vec::new();
        while seen.len() < 3 * EACH as usize {
            _ = reader.look(100, |write| {
                seen.push(write.word() >> 4);
                true
            });
        }
        // Each writer's own in their order.
        for writer in 0..3 {
            let own: Vec<u64> = seen
                .iter()
                .copied()
                .filter(|number| (number - 1) % 3 == writer)
                .collect();
            assert!(own.is_sorted());
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(1..=3 * EACH));
    });
    assert_eq!(shown(&mut other).len(), 3 * EACH as usize);
}
