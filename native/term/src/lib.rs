//! Off-heap Erlang terms: layout, order, equality, hash, normalized keys.
//!
//! Knows nothing of tables, and of the VM only what [`Host`] does for it. The layout is that of docs/architecture.md,
//! "Stored terms".

mod block;
mod builder;
mod format;
mod host;

pub use block::{Block, BlockRef};
pub use builder::{Builder, Item};
pub use format::{is_immediate, small, Class, Elements, Integer, List, Map, TermRef, View, MAX_ARITY, NIL};
pub use host::{install, Held, Host, Retained};
