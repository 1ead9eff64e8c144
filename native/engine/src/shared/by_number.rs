//! Sorting by a number.

/// From so many on, sorting by digits is faster than by comparing, whatever the numbers.
const MANY: usize = 200;

/// Sorts pairs by their first value; equal ones come in any order.
pub(crate) fn sort<K: radsort::Key + Ord + Copy>(pairs: &mut [(K, usize)]) {
    match pairs.len() {
        MANY.. => radsort::sort_by_key(pairs, |(number, _)| *number),
        _ => pairs.sort_unstable_by_key(|(number, _)| *number),
    }
}
