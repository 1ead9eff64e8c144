//! How long random tests are. The crates whose tests lie on no common floor include this file.

use proptest::prelude::ProptestConfig;

/// So many times as much is done as `make test` does. `make check` sets it.
pub fn thorough() -> u32 {
    std::env::var("THOROUGH").map_or(1, |times| times.parse().expect("a number"))
}

/// So many cases of a random test, or THOROUGH times as many.
pub fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: thorough() * count,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
