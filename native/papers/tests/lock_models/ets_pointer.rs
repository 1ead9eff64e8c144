//! The table lock made of ETS pointers.

use crate::Watched;
use cats_papers::lock::ets_pointer::EtsPointer;

crate::models!(EtsPointer<Watched>, 3, 3, 2);
