//! Traversal in the order of the reversed bits of the hash ([`crate::shared::linear`]).

use super::bucket::Bucket;
use super::resize::LONELY;
use super::{Hash, Held, Size, OPTIMISM, PLAIN, SPINS};
use crate::shared::linear::{behind, hash_at, position, precedes, First, Position, StepFrom, EACH};
use crate::{hash_of, Busy, Entry, Origin, Schema, Step, Trail};
use cats_sync::epoch::Guard;
use cats_sync::facade::spin_loop;
use smallvec::SmallVec;

/// How many buckets ahead a scan prefetches.
const AHEAD: u64 = 4;

impl<S: Schema, const WORDS: usize> Hash<S, WORDS> {
    /// Appends to `out` the entries of the bucket that holds `hash`, without those before the hash `from`. Tries
    /// optimistically first. Returns the number of entries, and the size by which the bucket was chosen.
    fn visit<T>(
        &self,
        guard: &Guard,
        hash: u64,
        from: u64,
        out: &mut Vec<T>,
        expand: &mut impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<(usize, Size), Busy> {
        let before = out.len();
        let mut overtaken = 0;
        let mut read = |bucket: Bucket<'_, WORDS>, token| {
            let size = self.size();
            let mut met = 0;
            out.truncate(before);
            let whole = bucket.each(guard, token, |entry| {
                if !precedes(hash_of(entry.key), from) {
                    met += 1;
                    expand(entry, out);
                }
            });
            (whole && bucket.head.lock.validate(token)).then_some((met, size))
        };
        for _ in 0..SPINS {
            let Some((bucket, token)) = self.token(guard, hash) else {
                spin_loop();
                continue;
            };
            if let Some(done) = read(bucket, token) {
                return Ok(done);
            }
            overtaken += 1;
            if overtaken == OPTIMISM {
                break;
            }
        }
        let held = self.lock_to_read(guard, hash)?;
        Ok(read(held.bucket, held.token()).expect("nobody else changes a locked bucket"))
    }

    /// The first entries behind a place, in the first bucket that has any, and the start of the next bucket. `open`
    /// chooses the buckets and may lock them.
    fn least<'g, 'a>(
        &'a self,
        guard: &'g Guard,
        after: StepFrom<'a, S>,
        mut open: impl FnMut(u64) -> Option<(Bucket<'g, WORDS>, u64)>,
    ) -> Option<(First<'a, S>, Option<u64>)> {
        let mut first = First::new(&self.shared.0.schema, after);
        let mut hash = first.start();
        loop {
            let (bucket, token) = open(hash)?;
            let size = self.size();
            // SAFETY: entries are read under the caller's guard, and each word was stored in this table.
            let whole = bucket.each(guard, token, |entry| unsafe { first.offer(entry) });
            if !whole {
                return None;
            }
            let next = behind(position(hash), size.depth(hash)).map(hash_at);
            match next {
                Some(next) if first.found().is_none() => hash = next,
                _ => return Some((first, next)),
            }
        }
    }

    /// Prefetches the bucket of a hash.
    #[inline]
    pub(super) fn prefetch_bucket(&self, guard: &Guard, hash: u64) {
        if let Some(bucket) = self.bucket(guard, self.size().number_of(hash)) {
            bucket.prefetch();
        }
    }

    /// Prefetches what a walk will read when it reaches the bucket of this hash.
    fn prefetch_walk(&self, guard: &Guard, hash: u64) {
        let size = self.size();
        let Some(bucket) = self.bucket(guard, size.number_of(hash)) else {
            return;
        };
        // Its cache lines were prefetched when the walk reached the previous bucket. What is read here serves only for
        // prefetching, so it need not be valid.
        bucket.show_block(|entry| self.shared.0.schema.prefetch(entry));
        if let Some(next) = behind(position(hash), size.depth(hash)) {
            self.prefetch_bucket(guard, hash_at(next));
        }
    }

    /// See [`crate::Engine::next_on`].
    pub(super) fn walk<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        trail: &mut Trail,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.step_from(guard, StepFrom::of(after), trail, &mut look)
    }

    /// See [`crate::Engine::follow`]. A trail leads from bucket to bucket.
    #[inline(always)]
    pub(super) fn step_along<R>(
        &self,
        guard: &Guard,
        trail: &mut Trail,
        is_here: impl Fn(Origin) -> bool,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        let here = trail.here(self, guard, false)?;
        if !is_here(Origin::Entry(here)) {
            return None;
        }
        if let Some(next) = trail.ahead() {
            return trail.step(next, &mut look);
        }
        // The entry may be gone. A step needs only its key, which a seat tells while the bucket is unchanged.
        let holds = trail.witness(guard);
        let found = self.step_from(guard, StepFrom::Entry(here), trail, &mut look).ok()?;
        (WORDS == PLAIN || holds()).then_some(found)
    }

    /// Calls `look` with the first entry behind a place, and starts a trail there.
    #[inline(never)]
    fn step_from<'a, R>(
        &'a self,
        guard: &Guard,
        after: StepFrom<'a, S>,
        trail: &mut Trail,
        look: &mut impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        trail.clear();
        let epoch = guard.epoch();
        // Few buckets, because a table shrinks with its keys.
        let mut read = SmallVec::<[(Bucket<'_, WORDS>, u64); 8]>::new();
        let mut overtaken = 0;
        for _ in 0..SPINS {
            read.clear();
            let least = self.least(guard, after, |hash| {
                let opened = self.token(guard, hash)?;
                read.push(opened);
                Some(opened)
            });
            let Some((found, next)) = least else {
                spin_loop();
                continue;
            };
            let result = look(found.found());
            // No bucket has changed since it was read. So at one instant all were as read.
            if read.iter().all(|(bucket, token)| bucket.head.lock.validate(*token)) {
                if let (Some(first), Some((bucket, token))) = (found.found(), read.last()) {
                    trail.begin(self, epoch, (false, 0), (&bucket.head.lock, *token), first);
                    trail.extend(found.entries().skip(1));
                }
                if let Some(next) = next {
                    match after {
                        StepFrom::Entry(_) => self.prefetch_walk(guard, next),
                        _ => self.prefetch_bucket(guard, next),
                    }
                }
                return Ok(result);
            }
            overtaken += 1;
            if overtaken == OPTIMISM {
                break;
            }
        }
        // Against the locking order of others, but no wait is unbounded.
        let mut locked: Vec<Held<'_, WORDS>> = Vec::new();
        let least = self.least(guard, after, |hash| {
            let held = self.lock_to_read(guard, hash).ok()?;
            let opened = (held.bucket, held.token());
            locked.push(held);
            Some(opened)
        });
        least.map(|(found, _)| look(found.found())).ok_or(Busy)
    }

    /// See [`crate::Engine::scan`].
    pub(super) fn scan_on<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let mut places = 0;
        while !cursor.end && places < limit.max(1) {
            let (before, hash) = (out.len(), hash_at(cursor.at));
            let Ok((met, size)) = self.visit(guard, hash, hash, out, &mut expand) else {
                out.truncate(before);
                return if places > 0 { Ok(true) } else { Err(Busy) };
            };
            places += met.max((out.len() - before) / EACH);
            match behind(cursor.at, size.depth(hash)) {
                Some(next) => {
                    let ahead = next.saturating_add((next - cursor.at).saturating_mul(AHEAD));
                    self.prefetch_bucket(guard, hash_at(ahead));
                    cursor.at = next;
                }
                None => cursor.end = true,
            }
        }
        Ok(!cursor.end)
    }

    /// Calls `expand` for the entries of the bucket that has a [place](crate::place_of), from that place on.
    pub fn entries_at<T>(
        &self,
        guard: &Guard,
        place: u64,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<(), Busy> {
        let (before, hash) = (out.len(), hash_at(place));
        match self.visit(guard, hash, hash, out, &mut expand) {
            Ok(_) => Ok(()),
            Err(Busy) => {
                out.truncate(before);
                Err(Busy)
            }
        }
    }

    /// What `look` makes of the first entry at a [place](crate::place_of) of which it makes something.
    pub fn find_at<R>(
        &self,
        guard: &Guard,
        place: u64,
        mut look: impl FnMut(Entry) -> Option<R>,
    ) -> Result<Option<R>, Busy> {
        for _ in 0..SPINS {
            if let Some((bucket, token)) = self.token(guard, hash_at(place)) {
                let mut found = None;
                let whole = bucket.each(guard, token, |entry| {
                    if found.is_none() {
                        found = look(entry);
                    }
                });
                if whole && bucket.head.lock.validate(token) {
                    return Ok(found);
                }
            }
            spin_loop();
        }
        Err(Busy)
    }

    /// Calls `change` with the first entry at a [place](crate::place_of) that is wanted, with the place locked. The step is `Keep` or
    /// `Remove`.
    pub fn update_at<R>(
        &self,
        guard: &Guard,
        place: u64,
        wanted: impl FnMut(Entry) -> bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let mut after = self.aftermath(guard);
        // Dropped, and so unlocked, before the aftermath.
        let mut held = self.lock(guard, hash_at(place))?;
        held.changed = false;
        let found = held.bucket.search_where(guard, wanted);
        let (step, result) = change(found.map(|(_, entry)| entry));
        if let (Step::Remove, Some((slot, entry))) = (step, found) {
            let crowd = held.bucket.crowd();
            held.bucket.remove(guard, slot, &mut after.spare);
            self.count_sample(hash_of(entry.key), -1);
            after.lonely = crowd <= LONELY;
            held.changed = true;
        }
        drop(held);
        self.finish(guard, &after);
        Ok(result)
    }

    /// Prefetches the bucket that has a place.
    pub fn prefetch_at(&self, guard: &Guard, place: u64) {
        self.prefetch_bucket(guard, hash_at(place));
    }

    /// See [`crate::Engine::slot`].
    pub(super) fn entries_of<T>(
        &self,
        guard: &Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        if number >= self.size().buckets() {
            return Ok(None);
        }
        let mut out = Vec::new();
        // A hash in the bucket of this number, if that bucket exists.
        let (_, size) = self.visit(guard, (number as u64) << 2, 0, &mut out, &mut expand)?;
        Ok((number < size.buckets()).then_some(out))
    }
}
