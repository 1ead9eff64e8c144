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
/// A probe of the provider `cats` that counts the tools which look at it in `LOOKING` of this module, for [`is_looked_at`]. Its arguments are
/// always evaluated.
#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri, portable))))]
#[macro_export]
macro_rules! probe_counted {
    ($name:ident $(, $argument:expr)* $(,)?) => {{
        use $crate::probe::LOOKING;
        $crate::probe::notes::sdt!([sym "{}" LOOKING], cats, $name, $($argument,)*);
    }};
}
/// No probe.
#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri, portable)))))]
#[macro_export]
macro_rules! probe_counted {
    ($name:ident $(, $argument:expr)* $(,)?) => {{ let _ = ($($argument,)*); }};
}
/// How many tools look at the probes of `probe_counted`. They write it.
#[doc(hidden)]
#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri, portable))))]
#[link_section = ".probes"]
pub static mut LOOKING: u16 = 0;

/// Whether a tool looks at the probes of `probe_counted`.
#[inline(always)]
pub fn is_looked_at() -> bool {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri, portable))))]
    // SAFETY: nothing in this program writes it.
    return unsafe { std::ptr::read_volatile(&raw const LOOKING) } != 0;
    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri, portable)))))]
    false
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
