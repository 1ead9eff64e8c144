//! Match specifications: compiled once, run over stored objects without copying those that do not match.
//!
//! The language is that of the VM's own compiler, with its corner cases: which heads are patterns, what is a constant, how a
//! failing call behaves in a guard or in a body. The reference is OTP's `erl_db_util.c`. See [`Program`].

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
