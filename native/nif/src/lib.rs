//! The boundary between the Erlang VM and cats: the only crate that knows `erl_nif`.
//!
//! | folder | what is in it |
//! |---|---|
//! | `entry` | how the VM comes in: loading, the list of native functions, settings, failures |
//! | `calls` | the native functions, in groups of `ets` functions |
//! | `encode` | terms of the VM become stored terms |
//! | `decode` | stored terms become terms of the VM |
//! | `held` | terms that are stored in the VM's own form |
//! | `layout` | how the VM's terms lie in memory |
//! | `vm` | what the VM gives: environments, terms, atoms, resources, monitors, memory |

mod calls;
mod decode;
mod encode;
mod entry;
mod held;
mod layout;
mod vm;
