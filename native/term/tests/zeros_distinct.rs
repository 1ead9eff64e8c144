//! Terms as in OTP 27 and newer: 0.0 =/= -0.0.

const ZEROS_IDENTICAL: bool = false;
mod model;
