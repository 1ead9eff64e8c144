//! What the tests share: terms as Rust values, tables without a VM, and a host whose processes are numbers.
#![allow(dead_code)]

use cats_sync::epoch::Guard;
use cats_table::{
    Access, Addition, Collect, CounterOp, Direction, ElementOp, Failure, Handle, Host, Kind, LongReads, Number, Object,
    ObjectRef, OptionItem, Probe, Registry, Right, Table, Time, Tuple, Words, WriteConcurrency,
};
use cats_term::{Block, Builder, NewElement, TermRef, View};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};

thread_local! {
    static ON_SCHEDULER: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call as it is on a scheduler.
pub fn on_scheduler<R>(call: impl FnOnce() -> R) -> R {
    cats_table::set_on_scheduler(|| ON_SCHEDULER.get());
    ON_SCHEDULER.set(true);
    let result = call();
    ON_SCHEDULER.set(false);
    result
}

/// What a commit of a transaction that is not long gets.
pub const SHORT: Option<&mut LongReads<Arc<Table>>> = None;

/// What a commit asks of notes that nobody made. One function, as a commit is compiled anew for each.
pub fn all_hold((): (), _: Option<ObjectRef<'_>>) -> bool {
    true
}

/// Sets a flag in the end, even if the test fails.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A term.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Big(i128),
    Float(f64),
    Atom(u64),
    Binary(Vec<u8>),
    Tuple(Vec<Value>),
    List(Vec<Value>),
}

/// An object's elements.
pub type Elements = Vec<Value>;

impl Value {
    /// The word of an immediate.
    pub fn immediate(&self) -> Option<u64> {
        match self {
            Value::Int(value) => cats_term::small(*value),
            Value::Atom(number) => Some(atom(*number)),
            Value::List(elements) if elements.is_empty() => Some(cats_term::NIL),
            _ => None,
        }
    }

    fn build(&self, builder: &mut Builder) -> u64 {
        if let Some(word) = self.immediate() {
            return word;
        }
        match self {
            Value::Int(value) => builder.integer_i64(*value),
            Value::Big(value) => {
                let magnitude = value.unsigned_abs();
                builder.integer(*value < 0, &[magnitude as u64, (magnitude >> 64) as u64])
            }
            Value::Float(value) => builder.float(*value),
            Value::Binary(bytes) => builder.binary(bytes),
            Value::Tuple(elements) => {
                let item = builder.tuple(elements.len());
                for (slot, element) in elements.iter().enumerate() {
                    let word = element.build(builder);
                    builder.set(item, slot, word);
                }
                item.word()
            }
            Value::List(elements) => {
                let item = builder.list(elements.len());
                for (slot, element) in elements.iter().enumerate() {
                    let word = element.build(builder);
                    builder.set(item, slot, word);
                }
                item.word()
            }
            Value::Atom(_) => unreachable!("an immediate"),
        }
    }

    pub fn of(term: TermRef<'_>) -> Value {
        match term.view() {
            View::Immediate(word) => match term.small() {
                Some(value) => Value::Int(value),
                None if word == cats_term::NIL => Value::List(Vec::new()),
                None => Value::Atom((0..).find(|number| atom(*number) == word).unwrap()),
            },
            View::Tuple(elements) => Value::Tuple(elements.iter().map(Value::of).collect()),
            View::List(list) => Value::List(list.elements().iter().map(Value::of).collect()),
            View::Float(value) => Value::Float(value),
            View::Integer(integer) => {
                let magnitude = integer
                    .digits
                    .iter()
                    .rev()
                    .fold(0i128, |sum, digit| sum << 64 | *digit as i128);
                let value = if integer.negative { -magnitude } else { magnitude };
                i64::try_from(value).map_or(Value::Big(value), Value::Int)
            }
            View::Binary(bytes) => Value::Binary(bytes.to_vec()),
            _ => unreachable!("not made by these tests"),
        }
    }
}

/// The word of an atom.
pub fn atom(number: u64) -> u64 {
    cats_term::test_host::atom(&format!("a{number}"))
}

/// A tuple as a block of its own.
pub fn block(elements: &[Value]) -> Block {
    let mut builder = Builder::new();
    let root = builder.tuple(elements.len());
    for (slot, element) in elements.iter().enumerate() {
        let word = element.build(&mut builder);
        builder.set(root, slot, word);
    }
    builder.finish().unwrap()
}

/// The words of the immediates among these elements. 0 for other elements.
pub fn immediates(elements: &[Value]) -> Vec<u64> {
    elements
        .iter()
        .map(|element| element.immediate().unwrap_or(0))
        .collect()
}

/// Runs `f` with an object to store.
pub fn with_object<R>(elements: &[Value], f: impl FnOnce(Object<'_>) -> R) -> R {
    let words: Option<Vec<u64>> = elements.iter().map(Value::immediate).collect();
    match words {
        Some(words) => f(Object::flat(&words)),
        None => f(Object::in_block(&immediates(elements), block(elements))),
    }
}

pub fn elements(object: &ObjectRef<'_>) -> Elements {
    (0..object.arity()).map(|i| Value::of(object.element(i))).collect()
}

/// Runs `f` with a key to search for.
pub fn with_key<R>(key: &Value, f: impl FnOnce(TermRef<'_>) -> R) -> R {
    let block = block(std::slice::from_ref(key));
    f(block.as_ref().element(0))
}

/// Installs the test host of `cats_term`.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| cats_term::test_host::install_test_host(false));
}

/// A host whose processes are numbers. Those in `dead` are dead.
#[derive(Default)]
pub struct World {
    pub dead: Mutex<HashSet<u64>>,
    pub messages: Mutex<Vec<(u64, u64, u64, Value)>>,
}

impl World {
    pub fn kill(&self, pid: u64) {
        self.dead.lock().unwrap().insert(pid);
    }
}

impl Host for World {
    fn is_alive(&self, pid: u64) -> bool {
        !self.dead.lock().unwrap().contains(&pid)
    }
    fn watch(&self, pid: u64) -> bool {
        self.is_alive(pid)
    }
    fn transfer(&self, table: &Table, from: u64, to: u64, data: &Block) {
        let data = Value::of(data.as_ref().element(0));
        self.messages.lock().unwrap().push((table.serial(), from, to, data));
    }
    fn wake(&self) {}
    fn may_outlive_caller(&self) -> bool {
        true
    }
    fn now(&self) -> Time {
        Time::default()
    }
}

/// A registry for one test.
pub fn registry() -> &'static Registry {
    install();
    // SAFETY: the registry gives up the reference that `enter_blank` gave it.
    let forget = |table: *const Table| drop(unsafe { Arc::from_raw(table) });
    Box::leak(Box::new(Registry::new(forget).unwrap()))
}

/// For one test, two registries: one is lock-free, and one has locked meta tables.
pub fn registries() -> [&'static Registry; 2] {
    let locked = registry();
    locked.use_locks(2);
    [registry(), locked]
}

/// Options of a public table.
pub fn options(kind: Kind, key_position: u32) -> Collect {
    let mut collect = Collect::default();
    collect.add(OptionItem::Kind(kind));
    collect.add(OptionItem::Access(Access::Public));
    collect.add(OptionItem::KeyPosition(key_position));
    collect.add(OptionItem::WriteConcurrency(WriteConcurrency::True));
    collect
}

/// Enters a table into the registry, and makes it writable.
pub fn enter(
    registry: &'static Registry,
    host: &dyn Host,
    guard: &Guard,
    options: Collect,
    name: u64,
    owner: u64,
    heir: Option<cats_table::Heir>,
) -> Result<Arc<Table>, Failure> {
    let table = enter_blank(registry, host, guard, options, name, owner, heir)?;
    table.check(Right::Write, || owner)?;
    Ok(table)
}

/// Enters a table into the registry.
pub fn enter_blank(
    registry: &'static Registry,
    host: &dyn Host,
    guard: &Guard,
    options: Collect,
    name: u64,
    owner: u64,
    heir: Option<cats_table::Heir>,
) -> Result<Arc<Table>, Failure> {
    let table = Arc::new(Table::new(registry, options.finish(1).unwrap(), name, owner)?);
    registry.enter(host, guard, &table, heir)?;
    // SAFETY: the registry owns this reference. It gives it up by `forget`.
    unsafe { Arc::increment_strong_count(Arc::as_ptr(&table)) };
    Ok(table)
}

/// All objects of a table.
pub fn contents(handle: Handle<'_>) -> Vec<Elements> {
    let mut selection = cats_table::Selection::all(handle.table(), Direction::Down);
    let mut all = Vec::new();
    loop {
        let mut met = cats_table::Met::default();
        let more = match handle.slice(&mut selection, 3, &mut met) {
            Err(Failure::Busy) => {
                std::thread::yield_now();
                continue;
            }
            more => more.unwrap(),
        };
        all.extend(met.as_slice().iter().map(elements));
        if !more {
            return all;
        }
    }
}

fn is_sound(handle: Handle<'_>, default: Option<Tuple<'_>>) -> bool {
    default.is_none_or(|tuple| tuple.arity() > handle.table().key())
}

/// `update_counter/3,4` as the native functions implement it: the fast paths for simple cases come first.
pub fn add(
    handle: Handle<'_>,
    probe: &Probe<'_>,
    additions: &[Addition],
    default: Option<Tuple<'_>>,
) -> Result<Vec<Number>, Failure> {
    let number = |word: u64| Number::Small(TermRef::immediate(word).small().unwrap());
    if let (&[addition], true) = (additions, is_sound(handle, default)) {
        if let Some(word) = handle.add_one(probe, addition)? {
            return Ok(vec![number(word)]);
        }
    }
    let mut words = vec![0; additions.len()];
    if is_sound(handle, default) && handle.add_in_place(probe, additions, &mut words)? {
        return Ok(words.into_iter().map(number).collect());
    }
    let mut words = Words::new();
    if handle.add_all(probe, additions, &mut words)? {
        return Ok(words.into_iter().map(number).collect());
    }
    let op = |addition: &Addition| CounterOp::Add {
        position: addition.position,
        increment: addition.increment.into(),
        limit: addition.limit.map(|(limit, beyond)| (limit.into(), beyond.into())),
    };
    let ops: Vec<CounterOp> = additions.iter().map(op).collect();
    Ok(handle.update_counter(probe, &ops, default, &|_| true)?.to_vec())
}

/// `update_element/3,4`, in the same way.
pub fn set_elements(
    handle: Handle<'_>,
    probe: &Probe<'_>,
    ops: &[ElementOp<'_>],
    default: Option<Tuple<'_>>,
) -> Result<(), Failure> {
    let words: Option<Vec<(i64, u64)>> = ops
        .iter()
        .map(|op| match *op {
            ElementOp::Set(position, term) if term.is_immediate() => Some((position, term.word())),
            _ => None,
        })
        .collect();
    let elements = ops.iter().map(|op| match *op {
        ElementOp::Set(position, term) => NewElement::new((position as usize).wrapping_sub(1), term),
        ElementOp::Invalid => None,
    });
    let elements: Option<Vec<NewElement<'_>>> = elements.collect();
    if let (Some(elements), true) = (elements, is_sound(handle, default)) {
        if handle.set_in_place(probe, &elements)? {
            return Ok(());
        }
    }
    let done = match words.as_deref() {
        Some(&[(position, word)]) => handle.set(probe, position, word)?,
        Some(words) => handle.set_all(probe, words)?,
        None => false,
    };
    match done {
        true => Ok(()),
        false => handle.update_element(probe, ops, default),
    }
}
