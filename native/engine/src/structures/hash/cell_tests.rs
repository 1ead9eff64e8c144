//! The conformance suite over a table with cells.

use super::*;
use crate::testing::cells::{Celled, Unseating};
use crate::testing::conformance::{suite, Map};

fn celled() -> Celled<Hash<Unseating, WITH_CELLS>> {
    Celled(Hash::new(Unseating).expect("memory"))
}

suite!(celled);

#[test]
fn memory_follows_the_number_of_keys() {
    let map = Map(celled());
    for n in 0..100_000 {
        map.put(n, 1);
        if n % 10_000 == 9_999 {
            let each = map.0.bytes() as f64 / (n + 1) as f64;
            assert!((33.0..46.0).contains(&each), "{each} bytes an entry at {n}");
        }
    }
    (0..100_000).for_each(|n| map.remove(n));
    assert!(map.0.bytes() < 12_288, "{} bytes are left", map.0.bytes());
}
