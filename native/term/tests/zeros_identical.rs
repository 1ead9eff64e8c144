//! Terms as in OTP 25 and 26: 0.0 =:= -0.0.

const ZEROS_IDENTICAL: bool = true;
mod model;
