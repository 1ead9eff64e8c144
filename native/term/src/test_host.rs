//! A host for tests that run without a VM: atoms and held terms live in tables here.

use crate::{compare, equal, hash, install, mix, Builder, Held, Host, Retained, TermRef};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// A term in the "VM's" form.
pub enum Form {
    /// A reference, fun, external pid or port: all that is known of it is an order.
    Opaque(u64),
    /// Bits, the last byte filled up with zeros, and their number.
    Bits(Vec<u8>, usize),
    /// A reference-counted binary.
    Shared(Vec<u8>),
    /// A compound term: the key of the builder.
    Compound(Box<Builder<'static>>),
}

#[derive(Default)]
struct Heap {
    /// As in a VM, atoms stay.
    atoms: Vec<&'static str>,
    words: HashMap<&'static str, u64>,
    terms: HashMap<u64, Arc<Form>>,
    retained: HashMap<u64, Arc<Form>>,
    /// The bytes of counted binaries, which stay.
    records: Vec<&'static [u8]>,
    /// References counted of binaries, by their records.
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

/// Installs this host (once for all tests of a process).
pub fn install_test_host(zeros_identical: bool) {
    install(Host {
        compare: |a, b| {
            let (x, y) = (form(a), form(b));
            match (x.as_deref(), y.as_deref()) {
                (Some(x), Some(y)) => compare_forms(x, y),
                (None, None) if is_atom(a) && is_atom(b) => atom_text(a).cmp(atom_text(b)),
                // Local pids and ports by number, and before external ones.
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
        atom_text: |word, out| out.extend_from_slice(atom_text(word).as_bytes()),
        zeros_identical,
        compare_mixed: |a, b| expanded(a, |a| expanded(b, |b| compare(a, b))),
        identical_mixed: |a, b| expanded(a, |a| expanded(b, |b| equal(a, b))),
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
        release: |held: &Held| {
            assert_eq!(held.place(), !held.term());
            assert!(
                heap().retained.remove(&held.term()).is_some(),
                "released twice, or never retained"
            );
        },
        retain_binary: |record| *heap().counted.entry(record).or_default() += 1,
        release_binary: |record| match heap().counted.get_mut(&record) {
            Some(count) if *count > 0 => *count -= 1,
            _ => panic!("released twice, or never counted"),
        },
        binary_size: |_| 100,
    });
}

fn is_atom(word: u64) -> bool {
    word & 0x3f == 0x0b
}

/// Words from here on are addresses of plain references.
const ADDRESSES: u64 = 1 << 32;
/// What orders plain references behind the other opaque terms.
const PLAIN: u64 = 1 << 20;

/// The words of a plain reference.
pub fn plain_reference(number: u64) -> [u64; 3] {
    [0x90, number, !number]
}

/// The number of such.
pub fn plain_number(words: &[u64]) -> u64 {
    assert_eq!(words, plain_reference(words[1]));
    words[1]
}

fn form(word: u64) -> Option<Arc<Form>> {
    if word & 3 == 2 && word > ADDRESSES {
        // SAFETY: words of this kind that are none of this host's stand for plain references.
        let words = unsafe { std::slice::from_raw_parts((word & !3) as *const u64, 3) };
        return Some(Arc::new(Form::Opaque(PLAIN + plain_number(words))));
    }
    let heap = heap();
    heap.terms.get(&word).or_else(|| heap.retained.get(&word)).cloned()
}

fn hash_form(form: &Form) -> u64 {
    match form {
        Form::Opaque(number) => *number,
        Form::Compound(builder) => hash(builder.as_key()),
        bits => bits_of(bits)
            .into_iter()
            .fold(1, |state, bit| mix(state << 1 | u64::from(bit))),
    }
}

fn compare_forms(a: &Form, b: &Form) -> Ordering {
    match (a, b) {
        (Form::Opaque(a), Form::Opaque(b)) => a.cmp(b),
        (Form::Compound(a), Form::Compound(b)) => compare(a.as_key(), b.as_key()),
        (a, b) => bits_of(a).cmp(&bits_of(b)),
    }
}

/// Bit by bit: simple, and in the right order.
fn bits_of(form: &Form) -> Vec<bool> {
    let (bytes, bits) = match form {
        Form::Bits(bytes, bits) => (bytes, *bits),
        Form::Shared(bytes) => (bytes, bytes.len() * 8),
        _ => panic!("no bit string"),
    };
    (0..bits).map(|i| bytes[i / 8] >> (7 - i % 8) & 1 == 1).collect()
}

/// Shows the term as it would be if nothing were held.
fn expanded<R>(term: TermRef<'_>, show: impl FnOnce(TermRef<'_>) -> R) -> R {
    let mut builder = Builder::new();
    let root = builder.tuple(1);
    if let Some(bytes) = term.bytes() {
        // As a bit string, which compares with other ones.
        let word = hold(Form::Bits(bytes.to_vec(), bytes.len() * 8));
        // SAFETY: the word is one of this host, and lives for ever.
        let word = unsafe { builder.held(crate::Class::BitString, word) };
        builder.set(root, 0, word);
        return show(builder.as_key());
    }
    let form = match term.view() {
        crate::View::Held(_, held) => form(held.term()),
        _ => None,
    };
    match form.as_deref() {
        Some(Form::Compound(builder)) => show(builder.as_key()),
        _ => show(term),
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

/// The word of a new term in the VM's form, which lives for ever.
pub fn hold(form: Form) -> u64 {
    let mut heap = heap();
    let word = heap.word();
    heap.terms.insert(word, Arc::new(form));
    word
}

/// What a word stands for.
pub fn held_form(word: u64) -> Option<Arc<Form>> {
    form(word)
}

/// The record and the bytes of a new counted binary, which lives for ever.
pub fn record(bytes: &[u8]) -> (u64, &'static [u8]) {
    let bytes = bytes.to_owned().leak();
    heap().records.push(bytes);
    (bytes.as_ptr() as u64, bytes)
}

/// How many references to the binary of this record blocks have counted.
pub fn counted(record: u64) -> usize {
    heap().counted.get(&record).copied().unwrap_or(0)
}

/// How many copies of this opaque term blocks hold now.
pub fn retained(number: u64) -> usize {
    heap()
        .retained
        .values()
        .filter(|form| matches!(&***form, Form::Opaque(n) if *n == number))
        .count()
}
