//! How the VM comes into the library.

pub mod dirty;
pub mod failure;
pub mod functions;
mod load;
#[cfg(feature = "selftest")]
mod selftest;
pub mod settings;
