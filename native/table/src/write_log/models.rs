//! Models of the log: writers and readers in random schedules.

use super::*;
use crate::object::schema::Probe;
use cats_engine::testing::schedules::explore;
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

/// What a call returns when it gets its lock.
fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> R {
    loop {
        match call() {
            Ok(returned) => return returned,
            Err(Busy) => yield_now(),
        }
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
