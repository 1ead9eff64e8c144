//! Keeps the library mapped. When its module is purged, other threads may still run its code, and tables still need it. On Linux the linker
//! marks the file (see `build.rs`). Elsewhere, and with `--cfg portable`, the library opens itself once more and never closes that handle.

/// Sees to it that this image of the library is never unmapped. `anything` is an address in it. False if that is not possible.
#[cfg(not(all(target_os = "linux", not(portable))))]
pub fn keep(anything: *const libc::c_void) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the result is read only if the call says that it was written. Opening a file that is open runs none of its code.
    unsafe {
        libc::dladdr(anything, found.as_mut_ptr()) != 0
            && !libc::dlopen(
                found.assume_init().dli_fname,
                libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
            )
            .is_null()
    }
}

/// As above.
#[cfg(all(target_os = "linux", not(portable)))]
pub fn keep(_anything: *const std::ffi::c_void) -> bool {
    true
}
