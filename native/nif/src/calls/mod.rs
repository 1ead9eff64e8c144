//! The functions of `ets`, each as one native function that calls `cats_table`.
//!
//! | module | |
//! |---|---|
//! | `read` | lookup, member and their kin |
//! | `write` | insert, delete, take |
//! | `update` | update_counter, update_element |
//! | `notices` | removed, and option `notify` of new |
//! | `one` | replace, remove, lookup_to_update, lookup_to_fetch, add |
//! | `many` | lookup_many, lookup_many_to_fetch, take_many, delete_many, insert_many |
//! | `expiry` | insert/3, insert_new/3, touch, ttl |
//! | `flights` | what `cats_flight` and its kin call |
//! | `traverse` | first to prev_lookup, slot |
//! | `order` | rank, nth, count, range |
//! | `select` | select, match and their kin, scan |
//! | `select_terms` | match specifications over terms of the caller |
//! | `transaction` | what `cats_transaction` calls |
//! | `long` | reads of long transactions |
//! | `snapshot` | taking a snapshot |
//! | `tracing` | what `cats_trace` calls |
//! | `manage` | new, delete/1, rename, whereis, give_away, claim, setopts, safe_fixtable, all |
//! | `info` | info |
//! | `contention` | contention |
//! | `reaper` | the thread that works in the background |
//! | `shortage` | the limit of the library's memory |
//!
//! What they share:
//!
//! | module | |
//! |---|---|
//! | `host` | the registry, and the VM as `cats_table` sees it |
//! | `finding` | the table that an argument names, and what the caller may do to it |
//! | `keys` | keys to search for |
//! | `objects` | objects of terms, and terms of objects |

mod finding;
mod host;
mod keys;
mod objects;

pub mod contention;
pub mod expiry;
pub mod flights;
pub mod info;
pub mod long;
pub mod manage;
pub mod many;
pub mod notices;
pub mod one;
pub mod order;
pub mod read;
pub mod reaper;
pub mod select;
pub mod select_terms;
pub mod shortage;
pub mod snapshot;
pub mod tracing;
pub mod transaction;
pub mod traverse;
pub mod update;
pub mod write;

pub use finding::{again, serial};
pub use host::{prepare, registry, wake, TABLES};

use crate::decode;
use crate::encode::{self, check_words, fits, SCHEDULER_WORDS};
use crate::entry::failure::{bad, no_memory, Failure};
use crate::layout;
use crate::vm::atoms;
use crate::vm::monitor;
use crate::vm::resource::{Kind, Owned, Value};
use crate::vm::{on_dirty_scheduler, on_scheduler, Env, Term};
use cats_sync::epoch::{pin, Guard};
use cats_sync::events::Event;
use cats_sync::slab::Relief;
use cats_sync::trace;
use cats_table::{
    check_unlimited, Budget, Cause, Handle, Object, ObjectRef, Objects, Operation, Probe, Right, Table, Unused, Use,
    Used,
};
use cats_term::{Block, Builder, Room, TermRef, NIL};
use finding::*;
use host::{designation, identifier, node_of, send_transfer, Vm};
use keys::*;
use objects::*;
use rustler::sys::*;
use smallvec::SmallVec;
use std::ffi::CStr;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};
