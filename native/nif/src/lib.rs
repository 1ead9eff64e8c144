//! nif
