//! Match specifications: compiled once, run over stored objects without copying those that do not match.
//!
//! The language and its corners are those of the VM's own compiler (OTP's `erl_db_util.c` is the reference): which heads are
//! patterns, what is a constant, how a failing call in a guard or in a body behaves. See [`Program`].

mod arena;
mod arithmetic;
mod bounds;
mod expression;
mod function;
mod head;
mod keeps_key;
mod matcher;
mod name;
mod program;

pub use arena::Arena;
pub use bounds::Keys;
pub use program::{Foregone, Invalid, Object, Output, PatternResult, Program, Vm};
