//! Erlang terms outside the VM's heaps: layout, order, equality, hash, normalized keys.
//!
//! This crate knows nothing of tables. It knows the VM only through [`Host`]. The layout is described in docs/internals/terms.md.

mod block;
mod builder;
mod compact;
pub mod draft;
mod equal;
mod format;
mod hash;
mod host;
mod identifier;
mod in_place;
pub mod lease;
mod normalized_key;
mod number;
mod order;
#[cfg(feature = "test-host")]
pub mod test_host;

pub use block::{
    block_weight, bytes_of, kept_weight, Block, BlockRef, CountedBinary, CountedFun, Dismantled, Shape, Short,
};
pub use builder::{Builder, Item, Room};
pub use compact::{Part, Parts};
pub use equal::{equal, equal_elements};
pub use format::{
    is_immediate, small, small_value, vm_word_at, Class, Elements, Fun, Head, Integer, List, Map, Shared, TermRef,
    View, ALIAS, BOTTOM, FUN_RECORD, MAX_ARITY, MAX_DEPTH, NIL, PLAIN_REFERENCE, TOP,
};
pub use hash::{hash, hash_of, hash_ordered, key_word, key_word_of_part, key_word_ordered, mix, State as HashState};
pub use host::{install, HeldTerm, Host, Retained};
pub use identifier::{learn_identifiers, HeldReference, IdentifierLayout};
pub use in_place::{ChangingRef, NewElement, Rebuilt, Scratch, State, CHANGING_LIMIT, SCRATCH_WORDS};
pub use normalized_key::{head, heads, normalize};
pub use order::compare;

pub use cats_sync::slab::needed;
