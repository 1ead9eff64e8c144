//! The tests of tables, all but those in `alone.rs`. They are one program, as each one more is linked with all of the library. The name
//! of a module before that of a test chooses those of a file: `cargo test -p cats-table transactions::`.

mod common;
mod detached;
mod eviction;
mod limits;
mod semantics;
mod snapshots;
mod threads;
mod transactions;
