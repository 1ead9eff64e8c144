//! See DESIGN section 5.
