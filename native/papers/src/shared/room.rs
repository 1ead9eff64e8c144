//! Memory for one value.

use cats_sync::slab;
use std::ptr::NonNull;

/// Slab memory for a `T`. Dropping it frees the memory, unless a value was put there.
pub(crate) struct Room<T>(NonNull<T>);

impl<T> Room<T> {
    /// `None` when memory is exhausted.
    #[inline]
    pub fn take() -> Option<Self> {
        // The size is a multiple of the alignment. The slabs align by size.
        const { assert!(matches!(align_of::<T>(), 1..=16 | 64 | 128)) };
        slab::alloc(size_of::<T>()).map(|memory| Self(memory.cast()))
    }

    /// Puts a value there. The caller owns it from now on.
    #[inline]
    pub fn fill(self, value: T) -> *mut T {
        // SAFETY: this value owns the memory, which is large enough and aligned as the slabs promise.
        unsafe { self.0.write(value) };
        let at = self.0.as_ptr();
        std::mem::forget(self);
        at
    }

    /// Drops a value and frees its memory.
    ///
    /// # Safety
    /// `value` came from [`fill`](Self::fill), and nobody uses it any more.
    #[inline]
    pub unsafe fn free(value: *mut T) {
        // SAFETY: the caller's promise.
        unsafe {
            value.drop_in_place();
            if cfg!(shuttle) {
                // Under a model checker, a use after free then reads garbage and shows.
                value.cast::<u8>().write_bytes(0xdd, size_of::<T>());
            }
            drop(Self(NonNull::new_unchecked(value)));
        }
    }

    /// [`free`](Self::free), with the signature that epochs call.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    pub unsafe fn free_retired(value: *mut u8, _: usize) {
        // SAFETY: the caller's promise.
        unsafe { Self::free(value.cast()) }
    }
}

impl<T> Drop for Room<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size, and holds no value.
        unsafe { slab::free(self.0.cast(), size_of::<T>()) }
    }
}
