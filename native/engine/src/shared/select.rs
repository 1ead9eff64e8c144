//! A choice between two values that the processor should not try to predict.

/// `yes` if the condition holds, otherwise `no`. There is no branch, but for compilers before Rust 1.88, which may make one.
#[rustversion::since(1.88)]
#[clippy::msrv = "1.88"]
#[inline(always)]
pub fn select<T>(condition: bool, yes: T, no: T) -> T {
    std::hint::select_unpredictable(condition, yes, no)
}

#[rustversion::before(1.88)]
#[inline(always)]
pub fn select<T>(condition: bool, yes: T, no: T) -> T {
    if condition {
        yes
    } else {
        no
    }
}
