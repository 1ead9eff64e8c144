//! The semantics of ETS on top of the engines: options, access rights, ownership, traversal, atomic operations.
//!
//! A [`Registry`] knows all tables. Finding a [`Table`] by name or identifier gives a [`Handle`] for one call. The operations are methods
//! of the handle. Each file in `operations` has one group of them.

mod budget;
mod engines;
pub mod evict;
mod exclusive;
pub mod expiry;
mod failure;
mod failures;
pub mod flights;
pub mod garbage;
mod history;
mod object;
mod operations;
pub mod preferred;
mod read_set;
mod registry;
mod snapshot;
mod store;
mod table;
#[cfg(test)]
mod testing;
mod write_log;

pub use budget::{check_unlimited, set_on_scheduler, Budget};
pub use cats_engine::ca::{Stretch, LEAF_SIZES};
pub use cats_engine::config::READER_GROUPS;
pub use cats_engine::hash::{View as Buckets, LOADS, STRIPS};
pub use cats_engine::{Between, Range};
pub use engines::{EngineName, EngineOption, Kind, Values};
pub use evict::account::{Limit, Unit};
pub use evict::policies::Policy;
pub use expiry::notices;
pub use failure::{Cause, Failure};
pub use history::all_held_back;
pub use object::group::GROUP_LIMIT;
pub use object::schema::{CallersKey, OwnedKey, Probe};
pub use object::{Object, ObjectRef, COPY_LIMIT};
pub use operations::add::{Amount, Amounts, Increment};
pub use operations::bag_change::BagChange;
pub use operations::contention::{Seen, SizedKey};
pub use operations::expiry::Time as Lifetime;
pub use operations::info::BucketStatistics;
pub use operations::insert::{is_flat, LIST_LIMIT};
pub use operations::long::{Found, LongReads, Terms};
pub use operations::lookup::Objects;
pub use operations::number::Number;
pub use operations::select::{Met, Selection, Spot, SpotRef};
pub use operations::settings::Settings;
pub use operations::transaction::{Committed, Reads, Writes, WRITES_LIMIT};
pub use operations::traverse::Direction;
pub use operations::update::{Addition, CounterOp, ElementOp, HasInteger, Numbers, Tuple, Words, DIGITS_LIMIT};
pub use read_set::Part;
pub use registry::{pid_number, wake, Fixation, Heir, Host, Position, Registry, Time};
pub use snapshot::take::{begin as begin_snapshot, is_of as is_snapshot_of, Beginning, Begun};
pub use store::due;
pub use store::leases::Life;
pub use store::{is_built, Unused, Use, Used};
pub use table::counters::{Operation, OPERATIONS};
pub use table::options::{Access, Collect, OptionItem, Options, Refusal, Request, WriteConcurrency};
pub use table::{Handle, Keeper, Naming, Right, Table, NOBODY};
