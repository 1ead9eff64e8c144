//! Sorting by a number.

/// From this length on, sorting by digits is faster than by comparison, whatever the numbers are.
const MANY_PAIRS: usize = 200;

/// Sorts pairs by their first value. Pairs with equal first values may come in any order.
pub(crate) fn sort<K: radsort::Key + Ord + Copy>(pairs: &mut [(K, usize)]) {
    match pairs.len() {
        MANY_PAIRS.. => radsort::sort_by_key(pairs, |(number, _)| *number),
        _ => pairs.sort_unstable_by_key(|(number, _)| *number),
    }
}
