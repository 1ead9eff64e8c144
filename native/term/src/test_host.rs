//! A host for tests without a VM. Its atoms and held terms live in tables of this file.

use crate::order::compare_keys;
use crate::{
    compare, equal, hash, install, learn_identifiers, mix, Builder, HeldReference, HeldTerm, Host, IdentifierLayout,
    Retained, TermRef,
};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// A term as this "VM" has it.
pub enum Form {
    /// A reference, fun, external pid or external port. Only its order is known: see [`foreign_pid`] and [`held_reference`].
    Opaque(u64),
    /// A plain reference.
    Plain(u64),
    /// Bits, and their number. Unused bits of the last byte are zero.
    Bits(Vec<u8>, usize),
    /// A reference-counted binary.
    Shared(Vec<u8>),
    /// A compound term, which is the key in the builder.
    Compound(Box<Builder<'static>>),
}

#[derive(Default)]
struct Heap {
    /// Atoms are never freed, as in the VM.
    atoms: Vec<&'static str>,
    words: HashMap<&'static str, u64>,
    terms: HashMap<u64, Arc<Form>>,
    retained: HashMap<u64, Arc<Form>>,
    /// The bytes of counted binaries. They are never freed.
    records: Vec<&'static [u8]>,
    /// The number of counted references of each binary, by its record.
    counted: HashMap<u64, usize>,
    last: u64,
}

static HEAP: OnceLock<Mutex<Heap>> = OnceLock::new();

fn heap() -> MutexGuard<'static, Heap> {
    HEAP.get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Heap {
    fn word(&mut self) -> u64 {
        self.last += 1;
        self.last << 2 | 2
    }
}

/// How pids of this host look.
pub const LAYOUT: IdentifierLayout = IdentifierLayout {
    id_bits: 5,
    bits: 28,
    rotated: 10,
    by: 3,
    counts_processes: true,
};

/// The number of an opaque term that is a pid of another node, and how it orders beside a pid of this node with that number.
pub fn foreign_pid(opaque: u64) -> (u64, Ordering) {
    (opaque / 2, (2 * (opaque % 2)).cmp(&1))
}

/// What orders an opaque term that is a reference. A few are of this node.
pub fn held_reference(opaque: u64) -> HeldReference {
    match opaque {
        ..2 => HeldReference::Elsewhere(Ordering::Less),
        2..4 => HeldReference::Here([2 * opaque as u32, opaque as u32 / 3, 0]),
        _ => HeldReference::Elsewhere(Ordering::Greater),
    }
}

/// Compares an opaque term that is a reference with a plain one.
fn compare_with_plain(opaque: u64, number: u64) -> Ordering {
    match held_reference(opaque) {
        HeldReference::Elsewhere(order) => order,
        HeldReference::Here(numbers) => numbers.iter().rev().cmp(plain_numbers(number).iter().rev()),
    }
}

/// Installs this host, once for all tests of a process.
pub fn install_test_host(zeros_identical: bool) {
    learn_identifiers(LAYOUT);
    install(Host {
        compare: |a, b| {
            let (x, y) = (form(a), form(b));
            match (x.as_deref(), y.as_deref()) {
                (Some(x), Some(y)) => compare_forms(x, y),
                (None, None) if is_atom(a) && is_atom(b) => atom_text(a).cmp(atom_text(b)),
                (None, None) if is_pid(a) && is_pid(b) => LAYOUT.number(a).cmp(&LAYOUT.number(b)),
                (Some(Form::Opaque(opaque)), None) if is_pid(b) => {
                    let (number, order) = foreign_pid(*opaque);
                    number.cmp(&LAYOUT.number(b)).then(order)
                }
                (None, Some(Form::Opaque(opaque))) if is_pid(a) => {
                    let (number, order) = foreign_pid(*opaque);
                    LAYOUT.number(a).cmp(&number).then(order.reverse())
                }
                // Local ports order by number, and before external ones.
                (None, None) => a.cmp(&b),
                (x, y) => x.is_some().cmp(&y.is_some()),
            }
        },
        identical: |a, b| match (form(a).as_deref(), form(b).as_deref()) {
            (Some(Form::Compound(x)), Some(Form::Compound(y))) => equal(x.as_key(), y.as_key()),
            (Some(x), Some(y)) => compare_forms(x, y).is_eq(),
            _ => a == b,
        },
        hash: |word| hash_form(&form(word).expect("only held terms are asked for their hash")),
        hash_whole: hash,
        atom_text: |word, out| out.extend_from_slice(atom_text(word).as_bytes()),
        zeros_identical,
        compare_mixed: |a, b| expanded(a, |a| expanded(b, |b| compare(a, b))),
        compare_keys: |a, b| match (opaque(a), opaque(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => expanded(a, |a| expanded(b, |b| compare_keys(a, b))),
        },
        identical_mixed: |a, b| expanded(a, |a| expanded(b, |b| equal(a, b))),
        foreign_pid: |word| match form(word).as_deref() {
            Some(Form::Opaque(opaque)) => {
                let (number, order) = foreign_pid(*opaque);
                (LAYOUT.parts(number), order)
            }
            _ => panic!("no pid of another node"),
        },
        held_reference: |word| match form(word).as_deref() {
            Some(Form::Opaque(opaque)) => held_reference(*opaque),
            _ => panic!("no held reference"),
        },
        bits: |word, out| match form(word).as_deref() {
            Some(Form::Bits(bytes, bits)) => {
                out.extend_from_slice(bytes);
                *bits
            }
            _ => panic!("no bit string"),
        },
        retain: |held, _, bytes| {
            let form = form(held.term()).expect("only held terms are retained");
            let kept = match (&*form, bytes) {
                (Form::Shared(kept), Some(bytes)) => {
                    assert_eq!(kept, bytes);
                    kept.as_ptr()
                }
                (Form::Shared(_), None) | (_, Some(_)) => panic!("only shared binaries have bytes"),
                _ => std::ptr::null(),
            };
            let mut heap = heap();
            let term = heap.word();
            heap.retained.insert(term, form);
            held.relocate(Retained { term, place: !term });
            kept
        },
        release: |held: &HeldTerm| {
            assert_eq!(held.place(), !held.term());
            assert!(
                heap().retained.remove(&held.term()).is_some(),
                "released twice, or never retained"
            );
        },
        counted_fun: |_| None,
        retain_counted: |record| *heap().counted.entry(record).or_default() += 1,
        release_counted: |record| match heap().counted.get_mut(&record) {
            Some(count) if *count > 0 => *count -= 1,
            _ => panic!("released twice, or never counted"),
        },
        kept_bytes: |_| 100,
        held_bytes: |_| 1000,
    });
}

fn is_atom(word: u64) -> bool {
    word & 0x3f == 0x0b
}

/// Words above this are addresses of plain references.
const ADDRESSES: u64 = 1 << 32;
/// The numbers of a plain reference. They grow with the one that is given.
fn plain_numbers(number: u64) -> [u32; 3] {
    let number = number as u32;
    [2 * number + 1, number / 2, number / 4]
}

/// The words of a plain reference.
pub fn plain_reference(number: u64) -> [u64; 3] {
    let [first, second, third] = plain_numbers(number).map(u64::from);
    [0x90, first << 32 | u64::from(u32::MAX), third << 32 | second]
}

/// The number of a plain reference.
pub fn plain_number(words: &[u64]) -> u64 {
    let number = words[1] >> 33;
    assert_eq!(words, plain_reference(number));
    number
}

fn is_pid(word: u64) -> bool {
    word & 0xf == 3
}

fn form(word: u64) -> Option<Arc<Form>> {
    if word & 3 == 2 && word > ADDRESSES {
        // SAFETY: a word of this kind above `ADDRESSES` is the address of a plain reference.
        let words = unsafe { std::slice::from_raw_parts((word & !3) as *const u64, 3) };
        return Some(Arc::new(Form::Plain(plain_number(words))));
    }
    let heap = heap();
    heap.terms.get(&word).or_else(|| heap.retained.get(&word)).cloned()
}

fn hash_form(form: &Form) -> u64 {
    match form {
        Form::Opaque(number) => *number,
        Form::Plain(number) => !number,
        Form::Compound(builder) => hash(builder.as_key()),
        bits => bits_of(bits)
            .into_iter()
            .fold(1, |state, bit| mix(state << 1 | u64::from(bit))),
    }
}

fn compare_forms(a: &Form, b: &Form) -> Ordering {
    match (a, b) {
        (Form::Opaque(a), Form::Opaque(b)) | (Form::Plain(a), Form::Plain(b)) => a.cmp(b),
        (Form::Opaque(a), Form::Plain(b)) => compare_with_plain(*a, *b),
        (Form::Plain(a), Form::Opaque(b)) => compare_with_plain(*b, *a).reverse(),
        (Form::Compound(a), Form::Compound(b)) => compare(a.as_key(), b.as_key()),
        (a, b) => bits_of(a).cmp(&bits_of(b)),
    }
}

/// The bits one by one. This is simple, and orders correctly.
fn bits_of(form: &Form) -> Vec<bool> {
    let (bytes, bits) = match form {
        Form::Bits(bytes, bits) => (bytes, *bits),
        Form::Shared(bytes) => (bytes, bytes.len() * 8),
        _ => panic!("no bit string"),
    };
    (0..bits).map(|i| bytes[i / 8] >> (7 - i % 8) & 1 == 1).collect()
}

/// Passes the term to `show`, in the form that it has when nothing is held.
fn expanded<R>(term: TermRef<'_>, show: impl FnOnce(TermRef<'_>) -> R) -> R {
    let mut builder = Builder::new();
    let root = builder.tuple(1);
    if let Some(bytes) = term.bytes() {
        // As a held bit string, because only such terms compare with bit strings.
        let word = hold(Form::Bits(bytes.to_vec(), bytes.len() * 8));
        // SAFETY: the word is one of this host, and lives forever.
        let word = unsafe { builder.held(crate::Class::BitString, word) };
        builder.set(root, 0, word);
        return show(builder.as_key());
    }
    let form = match term.view() {
        crate::View::HeldTerm(_, held) => form(held.term()),
        _ => None,
    };
    match form.as_deref() {
        Some(Form::Compound(builder)) => show(builder.as_key()),
        _ => show(term),
    }
}

/// The number of an opaque term.
fn opaque(term: TermRef<'_>) -> Option<u64> {
    match term.view() {
        crate::View::HeldTerm(_, held) => match form(held.term()).as_deref() {
            Some(Form::Opaque(number)) => Some(*number),
            _ => None,
        },
        _ => None,
    }
}

/// The word of an atom.
pub fn atom(text: &str) -> u64 {
    let mut heap = heap();
    if let Some(&word) = heap.words.get(text) {
        return word;
    }
    let word = (heap.atoms.len() as u64) << 6 | 0x0b;
    let text = text.to_owned().leak();
    heap.atoms.push(text);
    heap.words.insert(text, word);
    word
}

/// The text of an atom.
pub fn atom_text(word: u64) -> &'static str {
    heap().atoms[(word >> 6) as usize]
}

/// The word of a new term as the VM has it. It lives forever.
pub fn hold(form: Form) -> u64 {
    let mut heap = heap();
    let word = heap.word();
    heap.terms.insert(word, Arc::new(form));
    word
}

/// The term that a word stands for.
pub fn held_form(word: u64) -> Option<Arc<Form>> {
    form(word)
}

/// The record and the bytes of a new counted binary. It lives forever.
pub fn record(bytes: &[u8]) -> (u64, &'static [u8]) {
    let bytes = bytes.to_owned().leak();
    heap().records.push(bytes);
    (bytes.as_ptr() as u64, bytes)
}

/// The number of references that blocks have counted for the binary of this record.
pub fn counted(record: u64) -> usize {
    heap().counted.get(&record).copied().unwrap_or(0)
}

/// The number of copies of this opaque term that blocks hold now.
pub fn retained(number: u64) -> usize {
    heap()
        .retained
        .values()
        .filter(|form| matches!(&***form, Form::Opaque(n) if *n == number))
        .count()
}
