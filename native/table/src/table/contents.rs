//! Contents of a table as a value that cannot be given up without the reaper's knowledge.

use crate::failure::Failure;
use crate::garbage::Expected;
use crate::store::due;
use crate::store::retire::{expectation_of, retire_store};
use crate::store::setup::Setup;
use crate::store::Store;
use crate::table::options::Options;
use cats_sync::epoch::pin;
use cats_sync::slab::Own;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// The contents of one table. As long as this value lives, or a table has it as a pointer, the reaper finds them if something of them may
/// expire. So
/// they are never freed at once: what is dropped is retired.
pub(crate) struct Contents(NonNull<Store>);

impl Contents {
    /// Empty contents for a table with these options.
    pub fn empty(options: Options, setup: Option<Box<Setup>>) -> Result<Self, Failure> {
        let key = options.key_position() as usize - 1;
        let store = Store::new(options.engine(), setup, key, options.shared());
        let store = store.and_then(Own::new).ok_or(Failure::NoMemory)?.into_raw();
        // SAFETY: the address of a value is not null.
        let contents = Self(unsafe { NonNull::new_unchecked(store) });
        if contents.is_leased() {
            due::enter(&contents);
        }
        Ok(contents)
    }

    /// The address of the contents. Whoever has it makes a value of it again: [`from_raw`](Self::from_raw).
    pub fn into_raw(self) -> *mut Store {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and becomes a value once. No table has it any more, or only a dead one.
    pub unsafe fn from_raw(store: *mut Store) -> Self {
        // SAFETY: the address of a value is not null.
        Self(unsafe { NonNull::new_unchecked(store) })
    }

    /// To be called before they are retired: nothing expires any more, and nobody makes an object for them.
    fn close(&self) {
        if self.flights().close(self.history()) || self.is_leased() {
            due::leave(self);
        }
    }

    /// Gives up the contents of a table with which they are freed. Returns the reaper's expectation, if they are for the reaper, and
    /// their bytes.
    pub fn go_with_table(self) -> (Option<Expected>, usize) {
        self.close();
        let expected = expectation_of(&self);
        _ = self.into_raw();
        expected
    }
}

impl Deref for Contents {
    type Target = Store;

    fn deref(&self) -> &Store {
        // SAFETY: they are retired when this value is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.close();
        // SAFETY: no table has them any more, and nobody finds them by the reaper's list.
        unsafe { retire_store(&pin(), self.0.as_ptr()) }
    }
}
