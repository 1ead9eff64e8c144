//! The lease of an object: how long it lives, and what the table's policies note about it.
//!
//! In a table with expiry or a limit, each object is a block whose last item is one word, its *lease*. So the block's number of words
//! includes it, and it is freed and copied with the block. It is the only word of a block that readers may write, and is always accessed
//! as an atomic. An object without a block has its lease in a cell of the table's engine.
//!
//! ```text
//!  bit 63                    22 21          12  11  10       6 5       0
//!    +------------------------+--------------+-----+----------+---------+
//!    | deadline, milliseconds | place        | own | notes    | kind    |
//!    +------------------------+--------------+-----+----------+---------+
//! ```
//!
//! - *Deadline*: a time of the library's clock. All ones: the object does not expire.
//! - *Place*: where the timer wheel has an item for this object.
//! - *Own*: the word before the lease is the object's *own end*, in the field of the deadline. Reads move the deadline no further. A block
//!   has that word from the start or never.
//! - *Notes*: five bits for policies. Nothing here uses them. A new object has none.
//!
//! Before an object is in its table, its lease is a *request*. The place tells which one. An own end is a time after now then.

use crate::block::{Block, BlockRef};
use crate::builder::Builder;
use crate::format::{is_lease, item_words, LEASE};
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicU64, Ordering};
use cats_sync::slab;

const DEADLINE_SHIFT: u32 = 22;
const PLACE_SHIFT: u32 = 12;
const PLACE_MASK: u64 = 0x3ff;
const NOTES_SHIFT: u32 = 6;
const NOTES_MASK: u64 = 0x1f;
const OWN: u64 = 1 << 11;

/// The deadline of an object that does not expire: some 139 years.
pub const NEVER: u64 = u64::MAX >> DEADLINE_SHIFT;

/// The place of an object for which the wheel has no item.
pub const NOWHERE: u64 = PLACE_MASK;
/// The place of a request for the table's own time to live.
const FRESH: u64 = PLACE_MASK - 1;
/// The place of a request for the time that stands in place of the deadline.
const GIVEN: u64 = PLACE_MASK - 2;
/// The place of a request for the lease of the object that is replaced.
const KEPT: u64 = PLACE_MASK - 3;
/// Places of the wheel are below this number.
pub const PLACES: u64 = KEPT;

/// The value of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(u64);

/// What the lease of a new object shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The table's time to live, from now on.
    Fresh,
    /// This many milliseconds from now on, or [`NEVER`].
    Given(u64),
    /// So many milliseconds from now on, and at most `most` if reads make it longer.
    Bounded { time: u64, most: u64 },
    /// That of the object that is replaced. If there is none, as for `Fresh`.
    Kept,
}

impl Lease {
    /// A lease with this deadline, for which the wheel has an item at this place.
    #[inline]
    pub fn new(deadline: u64, place: u64) -> Self {
        debug_assert!(deadline <= NEVER && (place < PLACES || place == NOWHERE));
        Self(deadline << DEADLINE_SHIFT | place << PLACE_SHIFT | LEASE)
    }

    #[inline]
    pub fn of_request(request: Request) -> Self {
        let (time, place) = match request {
            Request::Fresh => (0, FRESH),
            Request::Given(time) | Request::Bounded { time, .. } => (time.min(NEVER), GIVEN),
            Request::Kept => (0, KEPT),
        };
        Self(time << DEADLINE_SHIFT | place << PLACE_SHIFT | LEASE)
    }

    #[inline]
    pub fn of_word(word: u64) -> Self {
        debug_assert!(is_lease(word));
        Self(word)
    }

    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The word before the lease, for an object that has an own end, or may get that of the object that it replaces.
    #[inline]
    pub fn own_end(end: u64) -> Self {
        Self::new(end.min(NEVER), NOWHERE)
    }

    /// Whether the word before the lease is the object's own end.
    #[inline(always)]
    pub fn has_own_end(self) -> bool {
        self.0 & OWN != 0
    }

    #[inline]
    fn with_own_end(self, own: bool) -> Self {
        Self(self.0 & !OWN | if own { OWN } else { 0 })
    }

    /// The request of an object that is not in its table yet, without its own end. A copy of an object that is there asks for the lease of
    /// that one.
    #[inline]
    pub fn request(self) -> Request {
        match self.0 >> PLACE_SHIFT & PLACE_MASK {
            FRESH => Request::Fresh,
            GIVEN => Request::Given(self.deadline()),
            _ => Request::Kept,
        }
    }

    /// The deadline, or [`NEVER`].
    #[inline(always)]
    pub fn deadline(self) -> u64 {
        self.0 >> DEADLINE_SHIFT
    }

    #[inline]
    pub fn place(self) -> u64 {
        self.0 >> PLACE_SHIFT & PLACE_MASK
    }

    #[inline]
    pub fn notes(self) -> u64 {
        self.0 >> NOTES_SHIFT & NOTES_MASK
    }

    #[inline]
    pub fn with_deadline(self, deadline: u64) -> Self {
        debug_assert!(deadline <= NEVER);
        Self(self.0 & ((1 << DEADLINE_SHIFT) - 1) | deadline << DEADLINE_SHIFT)
    }

    #[inline]
    pub fn with_place(self, place: u64) -> Self {
        debug_assert!(place <= PLACE_MASK);
        Self(self.0 & !(PLACE_MASK << PLACE_SHIFT) | place << PLACE_SHIFT)
    }

    #[inline]
    pub fn with_notes(self, notes: u64) -> Self {
        debug_assert!(notes <= NOTES_MASK);
        Self(self.0 & !(NOTES_MASK << NOTES_SHIFT) | notes << NOTES_SHIFT)
    }
}

/// The lease of an object that others may read.
///
/// All orderings but those of an own end are Relaxed: nothing else depends on a lease.
#[repr(transparent)]
pub struct SharedLease(AtomicU64);

impl SharedLease {
    /// The lease that a word is, which stands beside its object.
    #[inline(always)]
    pub fn of_cell(cell: &AtomicU64) -> &Self {
        // SAFETY: a lease is such a word and nothing else.
        unsafe { &*std::ptr::from_ref(cell).cast() }
    }

    #[inline(always)]
    pub fn load(&self) -> Lease {
        Lease::of_word(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn store(&self, lease: Lease) {
        self.0.store(lease.word(), Ordering::Relaxed);
    }

    /// Changes the lease, unless `change` gives `None`. `change` runs again whenever another thread has changed the lease meanwhile: that
    /// may be another field, so no change is lost.
    #[inline]
    pub fn change(&self, mut change: impl FnMut(Lease) -> Option<Lease>) {
        let word = |word| change(Lease::of_word(word)).map(Lease::word);
        _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, word);
    }
}

impl Block {
    /// The tuple of these immediates, with a lease, and perhaps an own end. `None` when memory is exhausted.
    pub fn flat_leased(elements: &[u64], lease: Lease, end: Option<Lease>, guard: &Guard) -> Option<Block> {
        let lease = lease.with_own_end(end.is_some()).word();
        match end {
            Some(end) => Self::flat_with(elements, &[end.word(), lease], guard),
            None => Self::flat_with(elements, &[lease], guard),
        }
    }

    /// The same block with this lease, and perhaps an own end. If it has a lease, that is replaced, and whether it has a word for an own end
    /// stays. `None` when memory is exhausted.
    pub fn leased(self, lease: Lease, end: Option<Lease>, guard: &Guard) -> Option<Block> {
        let view = self.as_ref();
        if view.has_lease() {
            let last = view.words() - 1;
            let own = Lease::of_word(view.as_words()[last]).has_own_end();
            // SAFETY: the last word is the lease, the one before it is the own end if it has one, and nobody else knows the block.
            unsafe {
                self.address().add(last).write(lease.with_own_end(own).word());
                if let Some(end) = end.filter(|_| own) {
                    self.address().add(last - 1).write(end.word());
                }
            }
            return Some(self);
        }
        let lease = lease.with_own_end(end.is_some());
        // The host knows where the words of held terms are, so they do not move.
        if view.has_held_terms() {
            let mut builder = Builder::new();
            view.build_with_elements(&mut builder, std::iter::empty());
            end.into_iter().for_each(|end| builder.lease(end.word()));
            builder.lease(lease.word());
            return builder.finish();
        }
        let words = view.words();
        let more = 1 + usize::from(end.is_some());
        let address = slab::alloc_pinned(guard, (words + more) * 8)?.cast::<u64>();
        // SAFETY: the memory is new and has room for these words more. What is counted in the block belongs to the new one, so the old memory
        // is freed alone. Items refer to each other by offsets.
        unsafe {
            address.copy_from_nonoverlapping(view.address(), words);
            address.write(address.read() + ((more as u64) << 32));
            if let Some(end) = end {
                address.add(words).write(end.word());
            }
            address.add(words + more - 1).write(lease.word());
            Block::free_words(self.into_raw().as_ptr().cast(), words);
            Some(Block::from_raw(address))
        }
    }
}

impl BlockRef<'_> {
    /// Whether the block has a lease. O(items).
    pub fn has_lease(self) -> bool {
        let (mut at, end) = (1 + self.arity(), self.words());
        if at == end {
            return false;
        }
        let words = self.as_words();
        while at + 1 < end {
            at += item_words(words[at]);
        }
        at < end && is_lease(words[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::NIL;
    use cats_sync::epoch::pin;

    #[test]
    fn fields_do_not_touch_each_other() {
        let lease = Lease::new(123_456_789, 777).with_notes(0x15);
        assert_eq!(
            (lease.deadline(), lease.place(), lease.notes()),
            (123_456_789, 777, 0x15)
        );
        for own in [false, true] {
            let lease = lease
                .with_own_end(own)
                .with_deadline(NEVER)
                .with_place(NOWHERE)
                .with_notes(0x1f);
            assert_eq!((lease.deadline(), lease.place(), lease.notes()), (NEVER, NOWHERE, 0x1f));
            assert_eq!((lease.has_own_end(), lease.with_notes(0).has_own_end()), (own, own));
        }
        assert!(is_lease(lease.word()));
        for request in [
            Request::Fresh,
            Request::Given(1000),
            Request::Given(NEVER),
            Request::Kept,
        ] {
            assert_eq!(Lease::of_request(request).request(), request);
        }
        assert_eq!(Lease::new(5, 0).request(), Request::Kept);
    }

    /// A change that comes while another one is made keeps its own.
    #[test]
    fn no_change_is_lost() {
        let shared = SharedLease(AtomicU64::new(Lease::new(1, 1).word()));
        let mut runs = 0;
        shared.change(|lease| {
            runs += 1;
            if runs == 1 {
                shared.change(|lease| Some(lease.with_place(2).with_notes(3)));
            }
            Some(lease.with_deadline(lease.deadline() + 1))
        });
        assert_eq!((runs, shared.load()), (2, Lease::new(2, 2).with_notes(3)));
        shared.change(|_| None);
        assert_eq!(shared.load(), Lease::new(2, 2).with_notes(3));
    }

    #[test]
    fn blocks_get_a_lease() {
        let guard = pin();
        let flat = Block::flat_leased(&[NIL; 3], Lease::new(7, 1), None, &guard).unwrap();
        assert!(flat.as_ref().has_lease() && flat.as_ref().is_flat());
        assert_eq!(
            (flat.as_ref().words(), flat.as_ref().elements_raw()),
            (5, &[NIL; 3][..])
        );
        let mut builder = Builder::new();
        let root = builder.tuple(2);
        let float = builder.float(f64::from_bits(Lease::new(9, 9).word()));
        builder.set(root, 0, NIL);
        builder.set(root, 1, float);
        // The last word of the float looks like a lease.
        let plain = builder.finish().unwrap();
        assert!(!plain.as_ref().has_lease());
        let leased = plain.leased(Lease::new(8, 2), None, &guard).unwrap();
        assert!(leased.as_ref().has_lease());
        assert_eq!(leased.as_ref().words(), 6);
        // A block that has no word for an own end gets none.
        let again = leased
            .leased(Lease::new(10, 3), Some(Lease::own_end(5)), &guard)
            .unwrap();
        assert_eq!(
            (again.as_ref().words(), again.as_ref().as_words()[5]),
            (6, Lease::new(10, 3).word())
        );
    }

    /// The own end stands before the lease, and stays when the lease is replaced.
    #[test]
    fn blocks_get_an_own_end() {
        let guard = pin();
        let (lease, end) = (Lease::new(7, 1), Lease::own_end(99));
        let flat = Block::flat_leased(&[NIL; 3], lease, Some(end), &guard).unwrap();
        let mut builder = Builder::new();
        let root = builder.tuple(1);
        let float = builder.float(1.5);
        builder.set(root, 0, float);
        let built = builder.finish().unwrap().leased(lease, Some(end), &guard).unwrap();
        for (block, words) in [(flat, 6), (built, 6)] {
            assert!(block.as_ref().has_lease());
            assert_eq!(block.as_ref().words(), words);
            let block = block.leased(Lease::new(8, 2), None, &guard).unwrap();
            let [.., own, last] = block.as_ref().as_words() else {
                unreachable!()
            };
            assert_eq!((Lease::of_word(*own), Lease::of_word(*last).deadline()), (end, 8));
            assert!(Lease::of_word(*last).has_own_end());
        }
    }
}
