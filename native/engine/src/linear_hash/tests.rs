//! The conformance suite for each way to lock, and what only this engine promises.

use super::*;
use crate::conformance::{suite, TestSchema};

/// As a function pointer, so that the suite is compiled once.
type Make = fn() -> LinearHash<TestSchema>;

fn table(bucket_locks: BucketLocks) -> LinearHash<TestSchema> {
    let config = Config {
        bucket_locks,
        reader_groups: 2,
        ..Config::default()
    };
    LinearHash::new(TestSchema, &config).expect("memory")
}

mod table_lock {
    use super::*;
    const MAKE: Make = || table(BucketLocks::TableLock);
    suite!(MAKE);
}

mod one_bucket_lock {
    use super::*;
    const MAKE: Make = || table(BucketLocks::Fixed(1));
    suite!(MAKE);
}

mod bucket_locks_16 {
    use super::*;
    const MAKE: Make = || table(BucketLocks::Fixed(16));
    suite!(MAKE);
}

mod bucket_locks_64 {
    use super::*;
    const MAKE: Make = || table(BucketLocks::Fixed(64));
    suite!(MAKE);
}

mod auto {
    use super::*;
    const MAKE: Make = || table(BucketLocks::Auto);
    suite!(MAKE);
}
