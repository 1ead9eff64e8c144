//! DR-MCS: the store-load pair, and the scan that a writer spares itself to whom the lock was handed over.

use crate::Watched;
use cats_sync::lock::dr_mcs::DrMcs;

crate::models!(DrMcs<Watched>, 3, 3, 2);
