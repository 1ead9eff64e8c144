//! Objects of tables.
//!
//! | module | |
//! |---|---|
//! | `body` | the body word of an [`Entry`](cats_engine::Entry) (docs/internals/objects.md) |
//! | `to_store`, `to_read` | objects to store, and objects to read |
//! | `in_place` | changes of objects |
//! | `free` | the end of objects |
//! | `copy` | copies for snapshots |
//! | `group` | all objects of a key in a bag |
//! | `packed` | objects of `compressed` tables |
//! | `key`, `schema` | keys outside of the engines, and what engines ask about those within |

pub(crate) mod copy;
pub(crate) mod group;
pub(crate) mod key;
pub(crate) mod packed;
pub(crate) mod schema;

mod body;
mod free;
mod in_place;
#[cfg(test)]
mod tests;
mod to_read;
mod to_store;

pub use body::*;
pub use free::*;
pub use in_place::*;
pub use to_read::*;
pub use to_store::*;

use crate::budget::Budget;

/// The words of an object that a scheduler copies at once.
pub const COPY_LIMIT: Budget = Budget(16 << 10);
