//! Finds which operations on tables conflict in a cache line although they commute: see docs/internals/scaling.md.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn main() {
    eprintln!("cats: the checker of conflicts runs on Linux on x86-64 only");
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod check;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod model;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod owner;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod step;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod table;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn main() {
    check::main();
}
