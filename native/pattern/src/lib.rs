//! Match specifications. They are compiled once, and run over stored objects. Objects that do not match are not copied.
//!
//! The language, with its corner cases, is that of the VM's own compiler. `erl_db_util.c` of OTP is the reference: which heads are
//! patterns, what is a constant, and what happens if a call fails in a guard or in a body. See [`Program`].

mod arena;
mod arithmetic;
mod bounds;
mod compile;
mod expression;
mod function;
mod head;
mod keeps_key;
mod matcher;
mod name;
mod program;
mod template;

pub use arena::Arena;
pub use bounds::Keys;
pub use program::{Foregone, Invalid, Object, Output, PatternResult, Program, Vm};
