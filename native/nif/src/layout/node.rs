//! How pids, ports and references of other nodes order beside those of this one.
//!
//! The VM takes this node's present name for that. The name may change, but the keys of a table must keep their order. So here this node
//! has for ever the name that it had when such an order was first asked for.
//!
//! Nodes order by name, then by creation. A node of the same name whose creation is one more or less is this node's neighbour: no other
//! node is between the two. So another node orders beside this one as it does beside the neighbour, whatever this node's name has become.

use super::identifier::{foreign_parts, layout, LOWEST_PID};
use super::{address, boxed, is_known, KIND, KIND_BITS};
use crate::held::host::{compare, Workspace};
use crate::vm::external;
use crate::vm::{Env, Term};
use cats_sync::slab;
use cats_term::vm_word_at;
use std::cmp::Ordering;
use std::mem::ManuallyDrop;
use std::slice::from_raw_parts;
use std::sync::OnceLock;

/// The kinds of pids, ports and references of other nodes. Behind the header all have an address of the node, another address, and numbers.
const KINDS: [u64; 3] = [0x30, 0x34, 0x38];
/// The largest number of words behind the header. References have the most.
const MOST_WORDS: usize = 6;

/// A pid, port or reference of another node: its words including the header.
#[derive(Clone, Copy)]
struct Foreign<'a>(&'a [u64]);

impl Foreign<'_> {
    /// Nothing for other terms.
    ///
    /// # Safety
    /// As for [`boxed`]; it lives for the result's lifetime.
    unsafe fn of(term: Term) -> Option<Self> {
        // SAFETY: as the caller promises, there are as many words as the header says.
        unsafe {
            let (header, _) = boxed(term)?;
            let words = (header >> KIND_BITS) as usize;
            (KINDS.contains(&(header & KIND)) && words <= MOST_WORDS)
                .then(|| Self(from_raw_parts(address(term), 1 + words)))
        }
    }

    fn term(self) -> Term {
        Term(vm_word_at(self.0))
    }

    /// The order beside a pid, port or reference of this node.
    fn compare_with_own(self, own: Term) -> Ordering {
        // SAFETY: the words are those of a term that lives.
        let parts = unsafe { foreign_parts(self.term()) };
        let has = |parts| layout().is_some_and(|layout| layout.number_of(parts) == Some(layout.number(own.0)));
        match parts {
            // Pids order by their numbers first.
            Some(parts) if !has(parts) => compare(self.term(), own),
            _ => Neighbour::get().compare(self),
        }
    }
}

/// This node's neighbour.
#[derive(Clone, Copy)]
struct Neighbour {
    /// The addresses in its pids, ports and references.
    addresses: [u64; 2],
    /// How it orders beside this node.
    order: Ordering,
}

impl Neighbour {
    fn get() -> Self {
        static NEIGHBOUR: OnceLock<Neighbour> = OnceLock::new();
        *NEIGHBOUR.get_or_init(|| {
            // Never freed, so that the addresses stay valid.
            let workspace = ManuallyDrop::new(Workspace::new());
            let format = slab::needed(external::of(workspace.env(), Term(LOWEST_PID)));
            Self::of(workspace.env(), &format).expect("the same was made when the layout was learned")
        })
    }

    /// That of this node, given the external format of one of its pids. The addresses are valid as long as the environment.
    fn of(env: Env, format: &[u8]) -> Option<Self> {
        let pid = external::pid_like(env, format, [0, 0], 1)?;
        // SAFETY: the term lives in the environment, and the layout is known or being learned.
        let pid = unsafe { Foreign::of(pid)? };
        let order = match format.last()? & 1 {
            0 => Ordering::Greater,
            _ => Ordering::Less,
        };
        Some(Self {
            addresses: [pid.0[1], pid.0[2]],
            order,
        })
    }

    /// How the node of a pid, port or reference of another node orders beside this node.
    fn compare(self, foreign: Foreign) -> Ordering {
        // The same numbers of the neighbour, so that the nodes decide.
        let mut words = [0; 1 + MOST_WORDS];
        let twin = &mut words[..foreign.0.len()];
        twin.copy_from_slice(foreign.0);
        twin[1..3].copy_from_slice(&self.addresses);
        compare(foreign.term(), Term(vm_word_at(twin))).then(self.order)
    }
}

/// Whether ports and references of other nodes are as expected. `format` is the external format of a pid of this node.
pub fn is_as_expected(env: Env, format: &[u8]) -> Option<bool> {
    let neighbour = Neighbour::of(env, format)?;
    let has_kind = |term, kind| {
        // SAFETY: the term lives in the environment, and the layout is being learned.
        let foreign = unsafe { Foreign::of(term) };
        foreign.is_some_and(|foreign| foreign.0[0] & KIND == kind && neighbour.compare(foreign) == neighbour.order)
    };
    let pid = external::of(env, external::pid_like(env, format, [0, 0], 1)?)?;
    let [port, reference] = external::port_and_reference_beside(env, &pid)?;
    Some(has_kind(port, KINDS[1]) && has_kind(reference, KINDS[2]))
}

/// How the node of a pid, port or reference of another node orders beside this one.
///
/// # Safety
/// As for [`boxed`], and the layout of identifiers is known.
pub unsafe fn compare_node(foreign: Term) -> Ordering {
    // SAFETY: as the caller promises.
    let foreign = unsafe { Foreign::of(foreign) }.expect("the layout of identifiers is known");
    Neighbour::get().compare(foreign)
}

/// Compares two terms of one class as the VM does, but with the name of this node that it has for ever.
///
/// # Safety
/// As for [`boxed`], if the layout of identifiers is known.
pub unsafe fn compare_kept(a: Term, b: Term) -> Ordering {
    if !is_known() || layout().is_none() {
        return compare(a, b);
    }
    // SAFETY: as the caller promises.
    match unsafe { (Foreign::of(a), Foreign::of(b)) } {
        (Some(a), None) => a.compare_with_own(b),
        (None, Some(b)) => b.compare_with_own(a).reverse(),
        _ => compare(a, b),
    }
}
