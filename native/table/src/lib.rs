//! ETS semantics over the engines: options, access, ownership, traversal, atomic operations.
//!
//! A [`Registry`] knows all tables. A [`Table`] is found by name or identifier, which gives a [`Handle`] for one call, and the
//! operations are methods of that: one file a group of them.

mod delete;
mod detached;
mod engines;
mod exclusive;
mod failure;
mod group;
mod info;
mod insert;
mod lookup;
mod number;
mod object;
mod options;
mod packed;
pub mod reaper;
mod registry;
mod schema;
mod select;
mod store;
mod table;
mod traverse;
mod update;

pub use cats_engine::config::READER_GROUPS;
pub use engines::{EngineName, EngineOption, Values};
pub use failure::{Cause, Failure};
pub use info::BucketStatistics;
pub use insert::{is_flat, LIST_LIMIT};
pub use lookup::{Objects, GROUP_LIMIT};
pub use number::Number;
pub use object::{Object, ObjectRef, COPY_LIMIT};
pub use options::{Access, Collect, Kind, OptionItem, Options, Refusal, Request, WriteConcurrency};
pub use registry::{wake, Fixation, Heir, Host, Position, Registry, Time};
pub use schema::{OwnedKey, Probe};
pub use select::{Met, Place, Selection, Spot};
pub use store::is_built;
pub use table::{Handle, Right, Table};
pub use traverse::Direction;
pub use update::{Addition, CounterOp, ElementOp, Numbers, Tuple, Words, DIGITS_LIMIT};
