//! Static probes (USDT): places where tools like bpftrace, perf and gdb can look into a running node.
//!
//! A probe is one `nop` in the code and a note in the library, which names it and tells where its arguments are. A tool
//! that looks puts a trap in place of the `nop`. So a probe costs nothing until somebody looks. Probes are on paths that
//! are rare or slow. They would force their arguments into registers on others.
//!
//! The crate `probe` writes the notes on Linux, and nothing elsewhere. Models, Miri and the portable build have no
//! probes.

#[doc(hidden)]
pub use ::probe as notes;

/// A probe of the provider `cats`, with integers or pointers as arguments. They are always evaluated.
#[cfg(not(any(loom, shuttle, miri, portable)))]
#[macro_export]
macro_rules! probe {
    ($name:ident $(, $argument:expr)* $(,)?) => { $crate::probe::notes::probe!(cats, $name $(, $argument)*) };
}
/// A probe of the provider `cats`. Its arguments are evaluated only while a tool looks.
#[cfg(not(any(loom, shuttle, miri, portable)))]
#[macro_export]
macro_rules! probe_lazy {
    ($name:ident $(, $argument:expr)* $(,)?) => {{ $crate::probe::notes::probe_lazy!(cats, $name $(, $argument)*); }};
}
/// No probe.
#[cfg(any(loom, shuttle, miri, portable))]
#[macro_export]
macro_rules! probe {
    ($name:ident $(, $argument:expr)* $(,)?) => {{ let _ = ($($argument,)*); }};
}
/// No probe.
#[cfg(any(loom, shuttle, miri, portable))]
#[macro_export]
macro_rules! probe_lazy {
    ($name:ident $(, $argument:expr)* $(,)?) => {{ if false { let _ = ($($argument,)*); } }};
}
