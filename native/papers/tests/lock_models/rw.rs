//! The readers-writer lock with reader groups.

use crate::Watched;
use cats_papers::lock::rw::Rw;

crate::models!(Rw<Watched>, 3, 3, 2);
