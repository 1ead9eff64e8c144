//! Tables in a state, and calls on them.

use crate::model::{Call, Kind, BAD_KEY};
use crate::step::Answer;
use cats_sync::epoch::{self, Guard};
use cats_sync::facade::{AtomicBool, AtomicU64, Ordering};
use cats_table::{
    Access, Addition, Budget, Cause, Collect, Direction, ElementOp, EngineName, Failure, Handle, Host, Object, Objects,
    OptionItem, Probe, Registry, Right, Table, Time, Tuple, Used, WriteConcurrency,
};
use cats_term::{small, Block, NewElement, Scratch, TermRef};
use std::sync::Arc;

/// The objects of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Pairs of immediates, which need no memory of their own.
    Pair,
    /// Triples, each in a block.
    Triple,
    /// Triples that have been changed, and so are changed in place.
    Changed,
}

impl Form {
    pub fn text(self) -> &'static str {
        match self {
            Self::Pair => "pairs",
            Self::Triple => "triples",
            Self::Changed => "changed triples",
        }
    }
}

/// The owner of all tables, and a process that calls.
const OWNER: u64 = 0x13;
const CALLER: u64 = 0x23;

/// A VM in which all processes live.
struct Quiet;

impl Host for Quiet {
    fn is_alive(&self, _: u64) -> bool {
        true
    }
    fn watch(&self, _: u64) -> bool {
        true
    }
    fn transfer(&self, _: &Table, _: u64, _: u64, _: &Block) {}
    fn wake(&self) {}
    fn may_outlive_caller(&self) -> bool {
        false
    }
    fn now(&self) -> Time {
        Time::default()
    }
}

/// A table, and how to call it.
pub struct Subject {
    registry: &'static Registry,
    table: Arc<Table>,
    /// The word of its name, if it is called by name.
    name: Option<u64>,
    form: Form,
    bag: bool,
}

pub fn registry() -> &'static Registry {
    cats_term::test_host::install_test_host(false);
    // SAFETY: the registry gives up the reference that `Subject::new` gave it.
    let forget = |table: *const Table| drop(unsafe { Arc::from_raw(table) });
    Box::leak(Box::new(Registry::new(forget).expect("memory for a registry")))
}

/// The fault that the checker must find: a counter that all calls write. Accesses are relaxed: nothing depends on them.
static PLANTED: AtomicBool = AtomicBool::new(false);
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Plants the fault.
pub fn plant() {
    PLANTED.store(true, Ordering::Relaxed);
}

fn shared() {
    if PLANTED.load(Ordering::Relaxed) {
        COUNTER.fetch_add(1, Ordering::Relaxed);
    }
}

fn word(number: i64) -> u64 {
    small(number).expect("a small integer")
}

fn number(word: u64) -> i64 {
    TermRef::immediate(word).small().expect("a small integer")
}

impl Subject {
    /// A new empty table of an engine, public and with `write_concurrency`.
    pub fn new(registry: &'static Registry, engine: EngineName, bag: bool, name: Option<&str>, form: Form) -> Self {
        let mut options = Collect::default();
        let kinds = engine.kinds();
        options.add(OptionItem::Kind(if bag { cats_table::Kind::Bag } else { kinds[0] }));
        options.add(OptionItem::Access(Access::Public));
        options.add(OptionItem::Engine(engine));
        options.add(OptionItem::WriteConcurrency(WriteConcurrency::True));
        if name.is_some() {
            options.add(OptionItem::NamedTable);
        }
        let guard = epoch::pin();
        let name = name.map(cats_term::test_host::atom);
        let request = options.finish(64).expect("options that fit together");
        let table = Table::new(registry, request, name.unwrap_or(word(1)), OWNER);
        let table = Arc::new(table.expect("memory for a table"));
        registry.enter(&Quiet, &guard, &table, None).expect("a new table");
        // SAFETY: the registry owns this reference. It gives it up by `forget`.
        unsafe { Arc::increment_strong_count(Arc::as_ptr(&table)) };
        table.check(Right::Write, || OWNER).expect("a table to write to");
        Self {
            registry,
            table,
            name,
            form,
            bag,
        }
    }

    pub fn is_bag(&self) -> bool {
        self.bag
    }

    pub fn form(&self) -> Form {
        self.form
    }

    fn handle<'g>(&'g self, guard: &'g Guard, right: Right) -> Handle<'g> {
        match self.name {
            Some(name) => {
                let (table, naming) = self
                    .registry
                    .find_near(guard, name, (right, None), CALLER, |_| true)
                    .expect("a table of this name");
                Handle::by_name(table, guard, naming)
            }
            None => {
                self.table.check(right, || CALLER).expect("a public table");
                self.table.by_identifier(guard)
            }
        }
    }

    /// Makes a call, and returns its answer.
    pub fn call(&self, call: Call) -> Answer {
        let guard = epoch::pin();
        let right = match call.kind {
            Kind::Insert | Kind::InsertNew | Kind::Delete | Kind::DeleteObject | Kind::Take => Right::Write,
            Kind::UpdateCounter | Kind::UpdateElement => Right::Write,
            _ => Right::Read,
        };
        if call.kind == Kind::Whereis && self.name.is_none() {
            return Answer::of(&[1]);
        }
        let answer = self
            .run(call, self.handle(&guard, right))
            .expect("a call that succeeds");
        shared();
        answer
    }

    fn run(&self, call: Call, handle: Handle<'_>) -> Result<Answer, Failure> {
        let elements = [word(call.key), word(call.number), word(0)];
        let object = || Object::flat(&elements[..if self.form == Form::Pair { 2 } else { 3 }]);
        let probe = handle.table().probe(TermRef::immediate(elements[0]));
        let mut answer = Answer::new();
        let mut objects = Objects::none();
        match call.kind {
            Kind::Lookup | Kind::LookupElement if self.bag => handle.lookup(&probe, &mut objects)?,
            Kind::Lookup => {
                let mut scratch = Scratch::new();
                if let Some(object) = handle.get::<Used>(&probe, &mut scratch)? {
                    answer.push(number(object.element(1).word()));
                }
            }
            Kind::LookupElement => {
                let mut scratch = Scratch::new();
                if let Some(object) = handle.get_for_element(&probe, 1, &mut scratch)? {
                    answer.push(number(object.element(1).word()));
                }
            }
            Kind::Member => answer.push(handle.member::<Used>(&probe)?.into()),
            Kind::Insert => handle.insert(object())?,
            Kind::InsertNew => answer.push(handle.insert_new(object())?.into()),
            Kind::Delete => handle.delete(&probe)?,
            Kind::DeleteObject => {
                handle.delete_object(object())?;
            }
            Kind::Take => handle.take(&probe, Budget(usize::MAX), &mut objects)?,
            Kind::UpdateCounter => match self.add(handle, &probe) {
                Ok(number) => answer.push(number),
                Err(failure) => answer.push(bad_key(failure)),
            },
            Kind::UpdateElement => match self.set(handle, &probe, elements[1]) {
                Ok(()) => (),
                Err(failure) => answer.push(bad_key(failure)),
            },
            Kind::Next => answer_key(&mut answer, handle.step(Some(&probe), Direction::Up)?),
            Kind::Prev => answer_key(&mut answer, handle.step(Some(&probe), Direction::Down)?),
            Kind::First => answer_key(&mut answer, handle.step(None, Direction::Up)?),
            Kind::Last => answer_key(&mut answer, handle.step(None, Direction::Down)?),
            Kind::Range => {
                let mut key = handle.step(Some(&probe), Direction::Up)?;
                for more in [true, true, false] {
                    let Some(found) = key else { break };
                    answer_key(&mut answer, key);
                    if more {
                        key = handle.step(Some(&handle.table().probe(found)), Direction::Up)?;
                    }
                }
            }
            Kind::Size => answer.push(handle.size() as i64),
            Kind::Whereis => answer.push(1),
        }
        for object in objects.as_slice() {
            answer.push(number(object.element(1).word()));
        }
        Ok(answer)
    }

    /// `update_counter/3`, as the native function does it.
    fn add(&self, handle: Handle<'_>, probe: &Probe<'_>) -> Result<i64, Failure> {
        if let Some(word) = handle.add(probe, 2, 1)? {
            return Ok(number(word));
        }
        let addition = Addition {
            position: 2,
            increment: 1,
            limit: None,
        };
        let mut words = cats_table::Words::new();
        match handle.add_all(probe, &[addition], &mut words)? {
            true => Ok(number(words[0])),
            false => Err(Cause::BadKey.into()),
        }
    }

    /// `update_element/3`, as the native function does it.
    fn set(&self, handle: Handle<'_>, probe: &Probe<'_>, element: u64) -> Result<(), Failure> {
        let new = NewElement::immediate(1, element);
        if handle.set_in_place(probe, &[new])? || handle.set(probe, 2, element)? {
            return Ok(());
        }
        let op = ElementOp::Set(2, TermRef::immediate(element));
        handle.update_element(probe, &[op], None::<Tuple<'_>>)
    }
}

fn answer_key(answer: &mut Answer, key: Option<TermRef<'_>>) {
    if let Some(key) = key {
        answer.push(number(key.word()));
    }
}

fn bad_key(failure: Failure) -> i64 {
    match failure {
        Failure::Bad(Cause::BadKey) => BAD_KEY,
        other => panic!("{other:?}"),
    }
}
