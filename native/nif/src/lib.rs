//! The boundary between the Erlang VM and cats: the only crate that knows `erl_nif`.
//!
//! | module | |
//! |---|---|
//! | `load` | loading, replacing and unloading the library |
//! | `functions` | the list of native functions, each in a panic guard |
//! | `dirty` | the same functions on a dirty scheduler |
//! | `vm`, `atoms`, `failure` | terms, environments, atoms and exceptions of the VM |
//! | `calls` | the functions of `ets` |
//! | `resource` | Rust values that Erlang holds as references |
//! | `encode`, `decode`, `external` | terms into stored form, and back |
//! | `layout`, `lay` | terms as they lie in the VM's memory, and stored terms laid out there |
//! | `same` | terms of the VM against stored ones |
//! | `layout`, `binary` | terms as they lie in the VM's memory |
//! | `held` | terms that are stored in the VM's own form |
//! | `host` | what the VM does for stored terms |
//! | `memory` | where Rust's memory comes from |
//! | `monitor` | watches the processes that own or fix tables |
//! | `reaper` | the process that clears away in the background |
//! | `settings` | the settings of the application |
//! | `selftest` | functions for the tests of this crate, with the feature of that name only |

mod atoms;
mod binary;
mod calls;
mod decode;
mod dirty;
mod encode;
mod external;
mod failure;
mod functions;
mod held;
mod host;
mod lay;
mod layout;
mod load;
mod memory;
mod monitor;
mod reaper;
mod resource;
mod same;
#[cfg(feature = "selftest")]
mod selftest;
mod settings;
mod stow;
mod vm;
mod weight;
