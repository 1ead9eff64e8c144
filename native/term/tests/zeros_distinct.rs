//! Terms as OTP 27 and newer have them: 0.0 =/= -0.0.

const ZEROS_IDENTICAL: bool = false;
mod model;
