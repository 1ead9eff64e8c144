//! The library's entry points for the VM.

pub mod dirty;
pub mod failure;
pub mod functions;
mod load;
#[cfg(feature = "selftest")]
mod selftest;
pub mod settings;
