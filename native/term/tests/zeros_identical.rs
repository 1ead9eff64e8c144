//! Terms as OTP 25 and 26 have them: 0.0 =:= -0.0.

const ZEROS_IDENTICAL: bool = true;
mod model;
