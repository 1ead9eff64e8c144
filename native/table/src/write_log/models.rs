//! Models of the log: writers and readers in random schedules.

use super::*;
use crate::object::schema::Probe;
use crate::testing::{explore, patiently};
use cats_sync::facade::AtomicBool;
use cats_sync::version_lock::VersionLock;
use cats_term::TermRef;
use shuttle::thread::spawn;

/// The memory of a reader.
const MEMORY: usize = 1 << 20;

fn probe(number: u64) -> Probe<'static> {
    Probe::exact(TermRef::immediate(number << 4 | 15))
}

fn chain(author: Author, number: u64) -> Chain {
    Chain::new(author, false, [probe(number)].iter())
}

/// The contents of a table, as far as a log needs them.
#[derive(Default)]
struct Contents {
    history: History,
    log: WriteLog,
}

impl Contents {
    fn read(&self, author: Author) -> Reader {
        patiently(|| self.log.read(&self.history, author, MEMORY))
    }

    fn log(&self) -> &Log {
        self.log.wanted(&self.history).expect("a reader")
    }
}

/// Whether nobody else has written this.
fn is_unwritten(reader: &mut Reader, number: u64) -> bool {
    let look = patiently(|| reader.look(usize::MAX, |write| write.word() != probe(number).word()));
    matches!(look, Look::Unchanged)
}

/// Of two transactions that have read what the other one writes, at most one commits.
#[test]
fn one_of_two_sees_the_other() {
    explore(|| {
        let contents = Arc::new(Contents::default());
        let readers = [1, 2].map(|own| (own, contents.read(own)));
        let commits = readers.map(|(own, mut reader)| {
            let contents = contents.clone();
            spawn(move || {
                contents.log().add(chain(own, own));
                is_unwritten(&mut reader, 3 - own)
            })
        });
        let committed = commits.map(|thread| thread.join().expect("no panic"));
        assert_ne!(committed, [true, true]);
    });
}

/// A reader that has found a value unchanged has not passed over its write.
#[test]
fn a_write_is_seen_once_it_has_changed_something() {
    explore(|| {
        let contents = Arc::new(Contents::default());
        let mut reader = contents.read(7);
        let value = Arc::new(AtomicBool::new(false));
        let writers = [1, 2].map(|number| {
            let (contents, value) = (contents.clone(), value.clone());
            spawn(move || {
                contents.log().add(chain(NOBODY, number));
                if number == 1 {
                    // Release, and below Acquire: as an engine's lock.
                    value.store(true, Ordering::Release);
                }
            })
        });
        let changed = value.load(Ordering::Acquire);
        assert!(!changed || !is_unwritten(&mut reader, 1));
        for thread in writers {
            thread.join().expect("no panic");
        }
        let log = contents.log.get();
        drop(reader);
        // SAFETY: it lives as long as the contents.
        assert_eq!(unsafe { (*log).bytes() }, size_of::<Write>());
    });
}

/// What a preferred transaction has read, no other one writes.
#[test]
fn what_is_reserved_stays() {
    explore(|| {
        let (keeper, other) = (12, 8);
        let contents = Arc::new(Contents::default());
        let place = Arc::new(VersionLock::default());
        let mut reader = contents.read(7);
        assert!(preferred::begin(keeper, 1));
        let writer = {
            let (contents, place) = (contents.clone(), place.clone());
            spawn(move || {
                let (version, _) = patiently(|| place.lock());
                let (refused, chain) = (Cell::new(false), chain(other, 1));
                let admitted = contents.log().admit(Actor::commit(other, &refused), &chain).is_ok();
                if admitted {
                    contents.log().add(chain);
                }
                match admitted {
                    true => place.unlock(version),
                    false => place.unlock_unchanged(version),
                }
                admitted
            })
        };
        let token = place.token();
        patiently(|| reader.reserve(keeper, Kind::Set, Part::Word(probe(1).word())));
        let read = token.is_some_and(|token| place.validate(token)) && is_unwritten(&mut reader, 1);
        let admitted = writer.join().expect("no panic");
        preferred::dismiss(keeper);
        assert!(!read || !admitted && is_unwritten(&mut reader, 1));
    });
}

/// What a writer changes of a place. It adds the key, which is 1, to the log if there is a reader and it is announced.
fn write(contents: &Contents, place: &VersionLock, value: &AtomicBool) {
    let guard = pin();
    let probe = Probe::ordered(TermRef::immediate(1 << 4 | 15));
    let logged = contents.history.is_logged();
    let log = logged.then(|| contents.log.wanted(&contents.history)).flatten();
    let (version, _) = patiently(|| place.lock());
    if let Some(log) = log {
        log.add(log.chain(&guard, NOBODY, true, &[&probe]));
    }
    // Relaxed, and below: the lock orders them.
    value.store(true, Ordering::Relaxed);
    place.unlock(version);
}

/// What was read before a write, the log tells of, also if the writer did not find it announced at first, or began before the reader.
fn is_told(part: fn(&Probe<'_>) -> Part) {
    explore(move || beside_a_write(part, |_| ()));
    explore(move || beside_a_write(part, |contents| drop(contents.read(6))));
}

/// `before` is what readers do while the write begins.
fn beside_a_write(part: fn(&Probe<'_>) -> Part, before: fn(&Contents)) {
    let contents = Arc::new(Contents::default());
    let (place, value) = (Arc::new(VersionLock::default()), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (contents, place, value) = (contents.clone(), place.clone(), value.clone());
        spawn(move || write(&contents, &place, &value))
    };
    before(&contents);
    let mut reader = contents.read(7);
    while !reader.is_complete() {
        yield_now();
    }
    let part = part(&Probe::ordered(TermRef::immediate(1 << 4 | 15)));
    let is_range = matches!(part, Part::Range(_));
    let read = loop {
        let guard = pin();
        if !is_range {
            reader.announce(&guard, &part);
        }
        let token = place.token();
        // Relaxed: as in `write`.
        let read = value.load(Ordering::Relaxed);
        let holds = || token.is_some_and(|token| place.validate(token));
        if holds() && (!is_range || !reader.announce(&guard, &part) || holds()) {
            break read;
        }
        yield_now();
    };
    writer.join().expect("no panic");
    assert!(read || !is_unwritten(&mut reader, 1));
}

#[test]
fn the_log_tells_of_a_key_that_was_read() {
    is_told(|probe| Part::key(Kind::OrderedSet, probe));
}

#[test]
fn the_log_tells_of_a_range_that_was_read() {
    is_told(|probe| {
        let range = cats_engine::Range {
            from: Some((probe, true)),
            to: Some(probe),
            down: false,
        };
        Part::range(&range, None)
    });
}

#[test]
fn the_log_tells_of_all_keys() {
    is_told(|_| Part::All);
}

/// A reader that is cut off knows it, and all writes are freed.
#[test]
fn who_is_cut_off_knows_it() {
    explore(|| {
        let contents = Arc::new(Contents::default());
        let mut late = patiently(|| contents.log.read(&contents.history, 7, 0));
        let mut other = contents.read(8);
        let writer = {
            let contents = contents.clone();
            spawn(move || {
                let log = contents.log();
                log.add(chain(NOBODY, 1));
                log.cut_off(log.total.load(Ordering::Relaxed));
                log.add(chain(NOBODY, 2));
            })
        };
        let before = is_unwritten(&mut late, 1);
        writer.join().expect("no panic");
        assert!(before || !is_unwritten(&mut late, 1));
        assert!(!is_unwritten(&mut late, 2) && !is_unwritten(&mut other, 1));
    });
}
