//! The conformance suite, and what only this engine promises.

use super::*;
use crate::conformance::{suite, TestSchema};

suite!(|| Hash::new(TestSchema).expect("memory"));
