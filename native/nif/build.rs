//! Tells the linker what each system needs of a library that the VM loads.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_portable = std::env::var_os("CARGO_CFG_PORTABLE").is_some();
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        // The library is never unmapped. Elsewhere `entry::load` sees to it.
        Ok("linux") if !is_portable => println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete"),
        // The functions of the VM are found when the library is loaded.
        Ok("macos") => println!("cargo:rustc-cdylib-link-arg=-Wl,-undefined,dynamic_lookup"),
        _ => (),
    }
}
