//! The library's entry points for the VM.

pub mod dirty;
pub mod failure;
pub mod functions;
mod load;
mod mapping;
#[cfg(feature = "selftest")]
mod selftest;
pub mod settings;
