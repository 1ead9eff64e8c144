//! The boundary between the Erlang VM and cats: the only crate that knows `erl_nif`.
//!
//! | module | |
//! |---|---|
//! | `load` | loading, replacing and unloading the library |
//! | `functions` | the list of native functions, each in a panic guard |
//! | `dirty` | the same functions on a dirty scheduler |
//! | `vm`, `atoms`, `failure` | terms, environments, atoms and exceptions of the VM |
//! | `resource` | Rust values that Erlang holds as references |

mod atoms;
mod dirty;
mod failure;
mod functions;
mod load;
mod resource;
mod vm;
