//! Items of queues and of timer wheels. An item finds the place of an object again. The object may be gone, or be another one by then.

pub use crate::expiry::wheel::Owner;
use cats_engine::mix;

/// Finds the place of an object again.
pub trait Item: Owner + Default {
    /// A hash of the object's key.
    fn hash(&self) -> u32;
}

/// Half of an object's place in the order of walks.
impl Item for u32 {
    #[inline]
    fn hash(&self) -> u32 {
        mix((*self).into()) as u32
    }
}
