//! The slab refuses memory whose addresses are longer than structures can store. An own program, because the source of memory is set once.
#![cfg(not(any(loom, direct)))]

use cats_sync::slab::{self, ADDRESS_BITS};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The bit that makes an address too long.
const LONG: usize = 1 << ADDRESS_BITS;

static FAR: AtomicBool = AtomicBool::new(true);
static GIVEN_BACK: AtomicUsize = AtomicUsize::new(0);

/// Like `malloc`. The address has one bit too many while `FAR` is set.
unsafe extern "C" fn alloc(bytes: usize) -> *mut c_void {
    // SAFETY: no precondition.
    let block = unsafe { libc::malloc(bytes) };
    block.map_addr(|address| address | if FAR.load(SeqCst) { LONG } else { 0 })
}

unsafe extern "C" fn free(block: *mut c_void) {
    GIVEN_BACK.fetch_add(block.addr() / LONG, SeqCst);
    // SAFETY: without the bit it came from `malloc`.
    unsafe { libc::free(block.map_addr(|address| address & (LONG - 1))) }
}

#[test]
fn memory_with_long_addresses_is_refused() {
    slab::set_source(alloc, free);
    for (refused, size) in [64, 1 << 20].into_iter().enumerate() {
        assert!(slab::alloc(size).is_none());
        assert_eq!((GIVEN_BACK.load(SeqCst), slab::held()), (refused + 1, 0));
    }
    FAR.store(false, SeqCst);
    for size in [64, 1 << 20] {
        let block = slab::alloc(size).expect("memory with short addresses");
        // SAFETY: allocated with this size, and nothing uses it.
        unsafe { slab::free(block, size) };
    }
}
