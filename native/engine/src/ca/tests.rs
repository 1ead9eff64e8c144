//! Tests of the contention adapting tree.

use super::*;
use crate::conformance::TestSchema;

mod conformance {
    use super::*;
    crate::conformance::suite!(|| Ca::new(TestSchema));
    crate::conformance::ordered_suite!(|| Ca::new(TestSchema));
}

mod nervous {
    use super::*;
    const NERVOUS: Thresholds = Thresholds { split: 0, join: 0 };
    crate::conformance::suite!(|| Ca::with_thresholds(TestSchema, NERVOUS));
    crate::conformance::ordered_suite!(|| Ca::with_thresholds(TestSchema, NERVOUS));
}
