//! Traversal in the order of the reversed bits of the hash ([`cats_engine::linear`]). The buckets of one lock are
//! adjacent in this order.

use super::locks::lock_of;
use super::{to_read, LinearHash, Locking, MOST_LOCKS};
use cats_engine::linear::{behind, hash_at, position, precedes, First, Position, StepFrom, EACH};
use cats_engine::{hash_of, Busy, Entry, Schema};
use cats_sync::epoch::Guard;
use smallvec::SmallVec;
use std::ptr;

impl<S: Schema> LinearHash<S> {
    /// The least hash of the next bucket in traversal order. `None` if the bucket of `hash` is the last. The caller
    /// holds the lock of that bucket.
    fn next_bucket(&self, hash: u64) -> Option<u64> {
        behind(position(hash), self.size().depth(hash)).map(hash_at)
    }

    /// Calls `look` with the first entry behind the key. It keeps the locks of all buckets that it has passed until the
    /// answer is known, because they must not change before. `None` if that would need too many locks. The caller holds
    /// the table lock in the mode for `locking`.
    fn step_in<R>(
        &self,
        guard: &Guard,
        locking: Locking,
        after: Option<&S::Probe>,
        look: &mut impl FnMut(Option<Entry>) -> R,
    ) -> Result<Option<R>, Busy> {
        let locks = self.locks.get(guard);
        let mut first = First::new(&self.schema, StepFrom::of(after));
        let mut held = SmallVec::<[_; 8]>::new();
        let mut last_lock = ptr::null();
        let mut at = Some(first.start());
        while let Some(hash) = at {
            let lock = lock_of(locks, hash);
            if !ptr::eq(lock, last_lock) && locking == Locking::Buckets {
                if held.len() == MOST_LOCKS {
                    return Ok(None);
                }
                held.push(lock.read()?);
                last_lock = lock;
            }
            // SAFETY: the entries of a locked chain are in the table.
            self.chain(guard, hash).each(|entry| unsafe { first.offer(entry) });
            if first.found().is_some() {
                break;
            }
            at = self.next_bucket(hash);
        }
        Ok(Some(look(first.found())))
    }

    /// See [`cats_engine::Engine::next`].
    pub(super) fn step_on<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        match self.shared(|| self.step_in(guard, self.locking, after, &mut look))? {
            Some(result) => Ok(result),
            None => self
                .within(Locking::Table, || self.step_in(guard, Locking::Table, after, &mut look))
                .map(|result| result.expect("no other lock is needed")),
        }
    }

    /// See [`cats_engine::Engine::scan`].
    pub(super) fn scan_on<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let mut places = 0;
        let mut scan = || {
            let locks = self.locks.get(guard);
            while !cursor.end && places < limit.max(1) {
                let lock = lock_of(locks, hash_at(cursor.at));
                let _held = to_read(lock, self.locking)?;
                // All buckets of the lock.
                while !cursor.end && places < limit.max(1) && ptr::eq(lock, lock_of(locks, hash_at(cursor.at))) {
                    let hash = hash_at(cursor.at);
                    let (before, mut met) = (out.len(), 0);
                    self.chain(guard, hash).each(|entry| {
                        if !precedes(hash_of(entry.key), hash) {
                            met += 1;
                            expand(entry, out);
                        }
                    });
                    places += met.max((out.len() - before) / EACH);
                    match behind(cursor.at, self.size().depth(hash)) {
                        Some(next) => cursor.at = next,
                        None => cursor.end = true,
                    }
                }
            }
            Ok(())
        };
        let result = self.shared(&mut scan);
        // Entries met before a lock was not free are a result.
        if result == Err(Busy) && places == 0 {
            return Err(Busy);
        }
        Ok(!cursor.end)
    }

    /// See [`cats_engine::Engine::slot`].
    pub(super) fn entries_of<T>(
        &self,
        guard: &Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        self.shared(|| {
            // A hash in the bucket of this number, if that bucket exists.
            let hash = (number as u64) << 2;
            let _held = to_read(lock_of(self.locks.get(guard), hash), self.locking)?;
            if number >= self.size().buckets() {
                return Ok(None);
            }
            let mut out = Vec::new();
            self.chain(guard, hash).each(|entry| expand(entry, &mut out));
            Ok(Some(out))
        })
    }
}
