//! What rarely happens to an engine, as for the default ones.

use cats_sync::events::Events;

/// What an engine has besides [`cats_engine::Engine`] so that what happens to it is counted.
pub trait Eventful {
    fn events(&self) -> &Events;
}
