//! A value in a block of the slab allocator, like a `Box` for any alignment up to 128.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Owns a value, or several values of one type.
#[derive(Debug)]
pub struct Own<T: ?Sized>(NonNull<T>);

// SAFETY: like a box, it owns the value exclusively.
unsafe impl<T: ?Sized + Send> Send for Own<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Own<T> {}

/// New memory for this many values. `None` when memory is exhausted.
fn allocate<T>(count: usize) -> Option<NonNull<T>> {
    // The size is a multiple of the alignment, and blocks are aligned accordingly.
    const { assert!(align_of::<T>() <= 128 && size_of::<T>() > 0) };
    super::alloc(count.checked_mul(size_of::<T>())?).map(NonNull::cast)
}

impl<T> Own<T> {
    /// Puts the value into memory of its own. When memory is exhausted, drops the value and returns `None`.
    pub fn new(value: T) -> Option<Self> {
        Self::new_with(|| value)
    }

    /// The same of a value that is made when there is memory for it. If it is not made, what it would own is still the caller's.
    pub fn new_with(make: impl FnOnce() -> T) -> Option<Self> {
        let at = allocate::<T>(1)?;
        // SAFETY: new, large enough and aligned.
        unsafe { at.write(make()) };
        Some(Self(at))
    }

    /// The address of the value, which this no longer owns.
    pub fn into_raw(self) -> *mut T {
        let at = self.0.as_ptr();
        std::mem::forget(self);
        at
    }

    /// Owns a value again.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and no other code uses the value any more.
    pub unsafe fn from_raw(at: *mut T) -> Self {
        // SAFETY: such an address is not null.
        Self(unsafe { NonNull::new_unchecked(at) })
    }
}

impl<T> Own<[T]> {
    /// This many values, at least one. `None` when memory is exhausted.
    pub fn slice(count: usize, make: impl Fn() -> T) -> Option<Self> {
        assert!(count > 0);
        let at = allocate::<T>(count)?;
        for i in 0..count {
            // SAFETY: new, large enough and aligned.
            unsafe { at.add(i).write(make()) };
        }
        Some(Self(NonNull::slice_from_raw_parts(at, count)))
    }
}

impl<T: ?Sized> Deref for Own<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this owns the value.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for Own<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl<T: ?Sized> Drop for Own<T> {
    fn drop(&mut self) {
        let size = size_of_val(&**self);
        // SAFETY: this owns the value and its block, which has this size.
        unsafe {
            self.0.drop_in_place();
            super::free(self.0.cast(), size);
        }
    }
}
