//! Contents of tables with a limit: what their objects cost, and the items by which those to evict are found. The [items](super::items) are
//! made as those of the timer wheel.

use super::engine::InlineEngine;
use super::items::KeyItem;
use super::leased::Leased;
use super::leases::{change_seen, deadline, is_expired, lease};
use crate::budget::Budget;
use crate::evict::account::{Account, Limit, Purse, Unit};
use crate::evict::allowance::{about_objects, Allowance, Bytes, Limited};
use crate::evict::policies::{Met, Policy, Rule, OFTEN};
use crate::evict::shards::{Found, Shards};
use crate::expiry::notices::Why;
use crate::failure;
use crate::object::schema::Probe;
use crate::object::{key_of, lease_of, memory_of, unseated};
use cats_engine::{Entry, Step};
use cats_sync::epoch::Guard;
use cats_sync::events::Event;
use cats_sync::facade::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use cats_sync::Busy;
use cats_term::compare;
use cats_term::lease::Lease;
use smallvec::SmallVec;
use std::cell::Cell;

/// The bits of a lease's notes that count uses.
const USES: u64 = OFTEN as u64;

/// After so many visits of objects, a call on a scheduler lets others run. It begins anew then, with what it has freed.
const VISITS: Budget = Budget(1024);

/// After some 16 writes, a thread looks at what the structure takes: whenever this, added for each write, overflows. It is a multiple of the
/// golden ratio, so that it overflows at other writes where a thread writes to several tables by turns.
const STEP: u32 = 0x0fd3_6f3f;

/// A call that needs more evictions takes so many from each shard by turns. Otherwise one shard would lose all, with what is used.
const OF_A_SHARD: usize = 16;

/// An eviction counts for a write for each so many objects that it visits.
const VISITS_OF_A_WRITE: usize = 4;

/// A key counts for a write more for each so many bytes.
const ITEM: usize = 32;

/// In place of the number of a policy: nothing is evicted.
const NO_POLICY: u8 = u8::MAX;

/// So many calls in turn find nothing to evict, and are tried again, before one is refused.
const STARVED: u32 = 100_000;

thread_local! {
    /// The sum of the steps of this thread's writes, as far as it has not overflown.
    static NEXT_TIDIED: Cell<u32> = const { Cell::new(0) };
}

/// What a call may do in one of several places.
#[derive(Clone, Copy)]
pub enum Planned {
    /// Puts the object with this body.
    Put(u64),
    /// The same. If the key of one such object has an object that lives, the call does nothing in any place.
    PutNew(u64),
    /// Removes the object that is there.
    Remove,
}

impl Planned {
    /// Whether the call does nothing because of what this place has. The place is locked, or was read under the caller's guard.
    pub fn is_refused(self, old: Option<Entry>, now: u64) -> bool {
        // SAFETY: the object lives while the place is locked, or under the guard.
        matches!(self, Self::PutNew(_)) && old.is_some_and(|old| unsafe { deadline(old) } > now)
    }
}

/// Why a purse was not filled.
enum Lack {
    /// Others are in the way, or it takes long.
    Busy,
    /// Nothing can be evicted.
    Full,
}

/// The keys that a call writes. It evicts their objects only where it finds no others.
struct Own<'a> {
    /// In the order of a `ca`, or of the key words of a `hash`.
    probes: SmallVec<[&'a Probe<'static>; 1]>,
    ordered: bool,
    /// The position of the key.
    key: usize,
}

impl<'a> Own<'a> {
    fn new(probes: &[&'a Probe<'static>], ordered: bool, key: usize) -> Self {
        let mut probes: SmallVec<[&Probe; 1]> = SmallVec::from_slice(probes);
        match ordered {
            true => probes.sort_unstable_by(|a, b| compare(a.term(), b.term())),
            false => probes.sort_unstable_by_key(|probe| probe.word()),
        }
        Self { probes, ordered, key }
    }

    /// Whether an entry has such a key. The place is locked. In a `hash`, another key with the same hash does.
    fn has(&self, entry: Entry) -> bool {
        let found = match self.ordered {
            true => {
                // SAFETY: the place is locked, so its object lives.
                let key = unsafe { key_of(unseated(entry), self.key) };
                self.probes.binary_search_by(|probe| compare(probe.term(), key))
            }
            false => self.probes.binary_search_by_key(&entry.key, |probe| probe.word()),
        };
        found.is_ok()
    }
}

/// What a table with a limit has besides its leases.
pub struct Limits<T: KeyItem> {
    /// The number of the limit, and the largest one that it was. Relaxed: numbers of their own. Who changes them holds the lock for the
    /// table.
    number: AtomicU64,
    largest: AtomicU64,
    account: Account,
    /// What the structure may take, if bytes are limited.
    allowance: Option<Allowance>,
    /// The bytes of copies of all keys, if bytes are limited.
    keys: AtomicI64,
    /// A write that finds the engine larger than this looks at the structure.
    tidied_above: AtomicUsize,
    /// The structure is larger than it may be, as other threads were in the way of who looked at it.
    is_hindered: AtomicBool,
    /// How many calls in turn found nothing to evict. Relaxed: a count.
    starved: AtomicU32,
    /// The policy. `None`: nothing is evicted. As for `number`.
    policy: AtomicU8,
    /// The largest number of uses that matters to the policy, 0 if nothing is evicted. Relaxed: a number of its own.
    most_uses: AtomicU64,
    /// See [`Limit::share`].
    share: u8,
    /// The position of the key.
    key: usize,
    /// Of all objects.
    items: Shards<T>,
}

impl<T: KeyItem> Limits<T> {
    pub fn new(limit: Limit, limited: Limited, key: usize) -> Self {
        let allowance = (limit.unit == Unit::Bytes).then(|| Allowance::new(&limit, limited));
        let limits = Self {
            number: AtomicU64::new(limit.number),
            largest: AtomicU64::new(limit.number),
            account: Account::new(0),
            allowance,
            keys: AtomicI64::new(0),
            tidied_above: AtomicUsize::new(0),
            is_hindered: AtomicBool::new(false),
            starved: AtomicU32::new(0),
            policy: AtomicU8::new(NO_POLICY),
            most_uses: AtomicU64::new(0),
            share: limit.share,
            key,
            items: Shards::new(limit.policy, about_objects(limit.unit, limit.number)),
        };
        limits.account.raise(limits.capacity_of(limit.number));
        limits.set_policy(limit.policy);
        limits
    }

    /// The limit at present.
    pub fn limit(&self) -> Limit {
        // Relaxed: a number of its own.
        let policy = self.policy.load(Ordering::Relaxed);
        Limit {
            unit: self.unit(),
            number: self.number.load(Ordering::Relaxed),
            policy: (policy != NO_POLICY).then(|| Policy::at(policy)),
            share: self.share,
        }
    }

    fn unit(&self) -> Unit {
        match self.counts_bytes() {
            true => Unit::Bytes,
            false => Unit::Objects,
        }
    }

    /// What is taken of the limit. Of bytes, that is what objects have paid, and what is kept for the structure.
    pub fn taken(&self) -> u64 {
        let number = self.number.load(Ordering::Relaxed);
        number - number.min(self.account.free().max(0) as u64)
    }

    /// Bytes of this number.
    fn bytes_of(&self, number: u64) -> Bytes {
        let largest = self.largest.load(Ordering::Relaxed).max(number);
        Bytes { number, largest }
    }

    /// What all objects may take together with a limit of this number.
    fn capacity_of(&self, number: u64) -> i64 {
        match &self.allowance {
            None => number as i64,
            Some(allowance) => allowance.capacity(self.bytes_of(number)),
        }
    }

    /// Whether the table may have this limit in place of its own: it counts the same, and leaves room.
    pub fn may_become(&self, unit: Unit, number: u64) -> bool {
        let leaves_room = |allowance: &Allowance| allowance.leaves_room(self.bytes_of(number));
        unit == self.unit() && self.allowance.as_ref().is_none_or(leaves_room)
    }

    /// Whether the table may have this policy. One that was made without queues cannot evict.
    pub fn may_evict_by(&self, policy: Option<Policy>) -> bool {
        policy.is_none() || self.items.are_kept()
    }

    /// From now on, objects are evicted by this policy. The caller holds the lock for the table.
    pub fn set_policy(&self, policy: Option<Policy>) {
        // Relaxed: numbers of their own.
        self.policy
            .store(policy.map_or(NO_POLICY, |policy| policy as u8), Ordering::Relaxed);
        if let Some(policy) = policy {
            self.items.set_policy(policy);
        }
        let uses = policy.map_or(0, |policy| policy.about().uses.into());
        self.most_uses.store(uses, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.items.bytes()
    }

    pub fn purse(&self) -> Purse<'_> {
        self.account.purse()
    }

    /// What an object costs: its bytes, and its share of the structure.
    ///
    /// # Safety
    /// The body is that of an object with a lease, which lives.
    #[inline]
    pub unsafe fn cost(&self, body: u64) -> i64 {
        let Some(allowance) = &self.allowance else {
            return 1;
        };
        // SAFETY: as the caller promises.
        unsafe {
            let Entry { body, .. } = unseated(Entry { key: 0, body });
            (memory_of(body) + allowance.of_object(T::bytes_for(body, self.key))) as i64
        }
    }

    /// Counts the keys of objects that come or go, by their bodies.
    ///
    /// # Safety
    /// As for [`cost`](Self::cost), for both.
    #[inline]
    unsafe fn count_keys(&self, new: Option<u64>, old: Option<u64>) {
        if self.counts_bytes() {
            // SAFETY: as the caller promises.
            let bytes = |body: Option<u64>| body.map_or(0, |body| unsafe { T::bytes_for(body, self.key) as i64 });
            let more = bytes(new) - bytes(old);
            if more != 0 {
                // Relaxed: a figure.
                self.keys.fetch_add(more, Ordering::Relaxed);
                // What such keys leave is more than other items.
                let writes = more.unsigned_abs() as usize / ITEM;
                NEXT_TIDIED.set(NEXT_TIDIED.get().saturating_add(STEP.saturating_mul(writes as u32)));
            }
        }
    }

    /// Takes back what an object that is removed has paid.
    ///
    /// # Safety
    /// As for [`cost`](Self::cost). Its place is locked, or nothing links to it any more.
    pub unsafe fn give_back(&self, body: u64) {
        // SAFETY: as the caller promises.
        unsafe {
            self.count_keys(None, Some(body));
            self.account.purse().pay(-self.cost(body));
        }
    }

    /// What must be paid before this is done where `old` is. The place is locked, or was read under the caller's guard.
    pub fn price_of(&self, planned: Planned, old: Option<Entry>) -> i64 {
        match planned {
            Planned::Put(body) | Planned::PutNew(body) => self.price_of_one(body, old),
            // SAFETY: the object lives while the place is locked, or under the guard.
            Planned::Remove => -old.map_or(0, |old| unsafe { self.cost(old.body) }),
        }
    }

    /// What must be paid before an object with this body is put where `old` is. The place is locked, or was read under the caller's guard.
    pub fn price_of_one(&self, body: u64, old: Option<Entry>) -> i64 {
        // SAFETY: the caller has the new object. The old one lives while the place is locked, or under the guard.
        unsafe { self.cost(body) - old.map_or(0, |old| self.cost(old.body)) }
    }

    /// Whether there would be room for an object with this body if all others were evicted. If not, none is to be evicted for it.
    pub fn fits(&self, body: u64) -> bool {
        self.has_capacity(self.price_of_one(body, None))
    }

    /// The same for all objects that cost so much together.
    pub fn has_capacity(&self, cost: i64) -> bool {
        cost <= self.capacity()
    }

    /// What all objects may take together.
    pub fn capacity(&self) -> i64 {
        self.account.capacity()
    }

    /// What the buckets of a `hash` may take, if bytes are limited.
    pub fn bucket_bytes(&self) -> Option<usize> {
        let number = self.number.load(Ordering::Relaxed);
        self.allowance
            .map(|allowance| allowance.of_buckets(self.bytes_of(number)))
    }

    /// Whether bytes are limited, not objects.
    pub fn counts_bytes(&self) -> bool {
        self.allowance.is_some()
    }

    /// Whether a call that pays this must evict something, by what is free now.
    #[inline]
    pub fn lacks(&self, price: i64) -> bool {
        !self.account.has(price)
    }

    /// Notes that an object was used, by its body and its lease, if that matters.
    #[inline(always)]
    pub fn used(&self, body: u64, lease: Lease) {
        if lease.notes() & USES < self.most_uses.load(Ordering::Relaxed) {
            self.count_use(body, lease);
        }
    }

    #[cold]
    fn count_use(&self, body: u64, seen: Lease) {
        // SAFETY: the caller has read the object under its guard, or its place is locked.
        unsafe { change_seen(body, seen, |lease| self.with_use(lease)) }
    }

    /// The lease with one use more, if that matters.
    #[inline]
    fn with_use(&self, lease: Lease) -> Option<Lease> {
        let notes = lease.notes();
        (notes & USES < self.most_uses.load(Ordering::Relaxed)).then(|| lease.with_notes(notes + 1))
    }

    /// The uses of an object that replaces one with this lease.
    pub fn uses_after(&self, old: Lease) -> u64 {
        self.with_use(old).unwrap_or(old).notes() & USES
    }

    /// Whether objects are evicted.
    pub fn evicts(&self) -> bool {
        self.most_uses.load(Ordering::Relaxed) > 0
    }

    /// Adds the items of new objects, and makes good what the call owes if that is possible. `probes` are the keys that it wrote.
    pub fn settle<E: InlineEngine<Item = T>>(
        &self,
        content: Leased<'_, E>,
        guard: &Guard,
        probes: &[&Probe<'static>],
        paying: Paying<'_, T>,
    ) {
        let Paying { mut purse, new, .. } = paying;
        for entry in &new {
            // SAFETY: the entry was put under this guard, so its object lives.
            let item = unsafe { T::of(*entry, self.key) };
            let is_back = self
                .items
                .admit(item, || content.books.size(), |item| is_there(content, guard, item));
            if is_back {
                content.count_event(Event::Readmitted);
            }
        }
        let debt = self.account.debt();
        if purse.owes() || debt > 0 {
            // What cannot be evicted now is owed on.
            _ = self.fill(content, guard, probes.first().copied(), &[], debt, &mut purse);
        }
        // What only replaces an object by one of the same size leaves no item, except perhaps in the wheel.
        let leaves_nothing = new.is_empty() && purse.is_even();
        self.tidy_sometimes(content, guard, probes.len(), leaves_nothing);
    }

    /// Calls [`tidy`](Self::tidy) after some writes, or where the engine has become too large, if bytes are limited. No place is locked.
    #[inline]
    fn tidy_sometimes<E: InlineEngine<Item = T>>(
        &self,
        content: Leased<'_, E>,
        guard: &Guard,
        writes: usize,
        leaves_nothing: bool,
    ) {
        let Some(allowance) = self.allowance.as_ref().filter(|it| !leaves_nothing || it.has_wheel()) else {
            return;
        };
        // Relaxed: hints.
        let is_large = || content.engine_bytes() > self.tidied_above.load(Ordering::Relaxed);
        if is_tidied_after(writes) || self.is_hindered.load(Ordering::Relaxed) || is_large() {
            _ = self.tidy(allowance, content, guard);
        }
    }

    /// To be called before objects are added. If the structure is too large because other threads were in the way, makes it smaller. Fails
    /// if they still are.
    #[inline]
    pub fn hold<E: InlineEngine<Item = T>>(&self, content: Leased<'_, E>, guard: &Guard) -> Result<(), Busy> {
        match &self.allowance {
            // Relaxed: a hint.
            Some(allowance) if self.is_hindered.load(Ordering::Relaxed) => self.tidy(allowance, content, guard),
            _ => Ok(()),
        }
    }

    /// Makes the structure smaller, if it is larger than it may be. Gives up rather than wait. Fails if the structure is still too large
    /// because other threads are in the way.
    #[inline(never)]
    fn tidy<E: InlineEngine<Item = T>>(
        &self,
        allowance: &Allowance,
        content: Leased<'_, E>,
        guard: &Guard,
    ) -> Result<(), Busy> {
        // Relaxed: a figure.
        let keys = usize::try_from(self.keys.load(Ordering::Relaxed)).unwrap_or(0);
        let (objects, queues, wheel) = (content.objects(), self.items.bytes(), content.wheel_bytes());
        let largest = self.largest.load(Ordering::Relaxed);
        let most = allowance.of_engine(objects, largest);
        let mut done = trim(content, guard, most);
        let is_crowded = queues + wheel > allowance.of_items(objects, keys, largest);
        if is_crowded && queues > allowance.of_queues(objects, keys, largest) {
            let trimmed = self.items.trim(|item| is_there(content, guard, item));
            done = done.and(trimmed);
        }
        let is_due = is_crowded && wheel > allowance.of_wheel(objects, keys);
        done = content.help_to_sweep(guard, is_due).and(done);
        let engine = content.engine_bytes();
        // Where nothing can be done, the next write need not look. Relaxed: a hint.
        self.tidied_above.store(engine.max(most), Ordering::Relaxed);
        let is_hindered = done.is_err() && self.is_large(allowance, content);
        // Relaxed: a hint. The load first spares the line a write.
        if self.is_hindered.load(Ordering::Relaxed) != is_hindered {
            self.is_hindered.store(is_hindered, Ordering::Relaxed);
        }
        if is_hindered {
            done
        } else {
            Ok(())
        }
    }

    /// Makes the purse hold this amount, by evicting objects. Those of the first key's shard come first. The call writes these keys.
    #[cold]
    pub fn make_room<E: InlineEngine<Item = T>>(
        &self,
        content: Leased<'_, E>,
        guard: &Guard,
        probes: &[&Probe<'static>],
        amount: i64,
        purse: &mut Purse<'_>,
    ) -> Result<(), Busy> {
        let lack = match self.fill(content, guard, probes.first().copied(), probes, amount, purse) {
            Ok(()) => {
                // Relaxed: a count. The load first spares the line a write.
                if self.starved.load(Ordering::Relaxed) > 0 {
                    self.starved.store(0, Ordering::Relaxed);
                }
                return Ok(());
            }
            Err(lack) => lack,
        };
        let is_too_large = !self.has_capacity(amount);
        let is_full = match lack {
            Lack::Busy => false,
            Lack::Full if is_too_large => true,
            // Others have taken all that there is, and put objects that no queue has yet.
            Lack::Full if self.evicts() => self.starved.fetch_add(1, Ordering::Relaxed) > STARVED,
            // What has expired is no reason to refuse.
            Lack::Full => match content.settle(guard, false) {
                Ok(()) => !purse.affords(amount),
                Err(_) => false,
            },
        };
        match is_full {
            false if purse.has(amount) => Ok(()),
            false => Err(Busy),
            true => {
                content.count_event(Event::Refused);
                Err(match is_too_large {
                    true => failure::too_large(),
                    false => failure::full(),
                })
            }
        }
    }

    /// By how much the capacity is more than that of a limit of this number.
    pub fn excess(&self, number: u64) -> i64 {
        (self.account.capacity() - self.capacity_of(number)).max(0)
    }

    /// Fills the purse up to this amount with what is free, and by so many evictions at most, in all shards by turns. Returns how many
    /// evictions there were. There are fewer if others are in the way, or nothing can be evicted.
    pub fn free_up<E: InlineEngine<Item = T>>(
        &self,
        content: Leased<'_, E>,
        guard: &Guard,
        (amount, evictions): (i64, usize),
        purse: &mut Purse<'_>,
    ) -> usize {
        purse.take(amount);
        let done = (0..evictions).take_while(|_| {
            let next = purse.more_up_to(amount);
            !purse.has(amount) && self.fill(content, guard, None, &[], next, purse).is_ok()
        });
        done.count()
    }

    /// Gives the limit this number, or lowers it by what the purse has of the difference. Returns whether it has the number. The caller
    /// holds the lock for the table.
    pub fn approach(&self, number: u64, purse: &mut Purse<'_>) -> bool {
        let more = self.capacity_of(number) - self.account.capacity();
        let lowered = purse.lower((-more).max(0));
        if lowered < -more {
            self.number.fetch_sub(lowered as u64, Ordering::Relaxed);
            return false;
        }
        self.account.raise(more.max(0));
        self.number.store(number, Ordering::Relaxed);
        self.largest.fetch_max(number, Ordering::Relaxed);
        true
    }

    /// Lets the shards be as many as a limit of this number asks for. Returns whether all items are there.
    pub fn arrange(&self, number: u64) -> Result<bool, Busy> {
        self.items.resize(about_objects(self.unit(), number))?;
        self.items.gather()
    }

    /// Makes the structure smaller, if bytes are limited, after many evictions. Returns whether it is as small as it must be, or does not
    /// become smaller any more. What others hinder, the next insertion does.
    pub fn shrink<E: InlineEngine<Item = T>>(&self, content: Leased<'_, E>, guard: &Guard) -> bool {
        let Some(allowance) = &self.allowance else {
            return true;
        };
        let bytes = || self.items.bytes() + content.wheel_bytes() + content.engine_bytes();
        let before = bytes();
        self.tidy(allowance, content, guard).is_err() || bytes() >= before || !self.is_large(allowance, content)
    }

    /// Whether the structure is larger than it may be.
    fn is_large<E: InlineEngine<Item = T>>(&self, allowance: &Allowance, content: Leased<'_, E>) -> bool {
        // Relaxed: a figure.
        let keys = usize::try_from(self.keys.load(Ordering::Relaxed)).unwrap_or(0);
        let (objects, largest) = (content.objects(), self.largest.load(Ordering::Relaxed));
        let items = self.items.bytes() + content.wheel_bytes();
        content.engine_bytes() > allowance.of_engine(objects, largest)
            || items > allowance.of_items(objects, keys, largest)
    }

    /// See [`make_room`](Self::make_room). The objects of `probe`'s shard come first, or those of the shard whose turn it is.
    fn fill<E: InlineEngine<Item = T>>(
        &self,
        content: Leased<'_, E>,
        guard: &Guard,
        probe: Option<&Probe<'static>>,
        own: &[&Probe<'static>],
        amount: i64,
        purse: &mut Purse<'_>,
    ) -> Result<(), Lack> {
        if !self.has_capacity(amount) || !self.evicts() {
            return if purse.affords(amount) { Ok(()) } else { Err(Lack::Full) };
        }
        let tally = Tally::default();
        let own = Own::new(own, E::ORDERED, self.key);
        let first = probe.map(T::hash_for);
        let mut visit = |item: &T, rule: Rule| {
            self.visit(content, guard, rule, &own, &tally, |look| {
                update_item(content, guard, self.key, item, look)
            })
        };
        let far = content.owner.engine.outgrows_caches();
        let ahead = |item: &T, early: bool| {
            if far {
                content.owner.engine.prefetch_found(guard, item, early);
            }
        };
        let filled = fill(&self.items, first, amount, purse, &tally, &mut visit, &ahead);
        // A large object takes the room of many small ones, whose share of the structure must be free by then.
        if let Some(allowance) = self
            .allowance
            .as_ref()
            .filter(|_| is_tidied_after(tally.visits.get() / VISITS_OF_A_WRITE))
        {
            _ = self.tidy(allowance, content, guard);
        }
        filled
    }

    /// Visits an object: evicts it if it was not used enough, or has expired. `update` locks the object's place and runs a change.
    fn visit<E: InlineEngine<Item = T>>(
        &self,
        content: Leased<'_, E>,
        guard: &Guard,
        rule: Rule,
        own: &Own<'_>,
        tally: &Tally,
        update: impl FnOnce(&mut dyn FnMut(Option<Entry>) -> Step) -> Result<(), Busy>,
    ) -> Met {
        let (mut met, mut gone, mut why) = (Met::Gone, 0, Why::Evicted);
        tally.visits.set(tally.visits.get() + 1);
        let done = update(&mut |old| {
            let Some(entry) = old else {
                return Step::Keep;
            };
            // SAFETY: the place is locked, so its object lives.
            let seen = unsafe { lease(entry) };
            let uses = (seen.notes() & USES) as u8;
            let expired = is_expired(seen);
            if !expired && !tally.own.get() && own.has(entry) {
                met = Met::Spared;
                return Step::Keep;
            }
            if let Some(left) = rule(uses).filter(|_| !expired) {
                if left != uses {
                    // SAFETY: as above.
                    unsafe { lease_of(entry.body) }.change(|lease| {
                        let left = rule((lease.notes() & USES) as u8)?;
                        Some(lease.with_notes(lease.notes() & !USES | u64::from(left)))
                    });
                }
                met = Met::Stays;
                return Step::Keep;
            }
            let event;
            (event, why) = match expired {
                true => (Event::Expired, Why::Expired),
                false => (Event::Evicted, Why::Evicted),
            };
            met = Met::Evicted;
            // SAFETY: the place is locked.
            unsafe {
                content.count_out(entry, event);
                self.count_keys(None, Some(entry.body));
                tally.freed.set(tally.freed.get() + self.cost(entry.body));
                gone = content.owner.leases.leaving(guard, entry, why);
            }
            Step::Remove
        });
        if gone != 0 {
            // SAFETY: nothing links to the object any more.
            unsafe { content.owner.leases.part_with(guard, gone, why) }
        }
        done.map_or(Met::Busy, |()| met)
    }
}

/// What visits to objects have done.
#[derive(Default)]
struct Tally {
    /// What they have freed, and is not in a purse yet.
    freed: Cell<i64>,
    visits: Cell<usize>,
    /// Whether the objects of the call's own keys may be evicted, as no others were found.
    own: Cell<bool>,
}

/// Counts writes. Whether the structure is to be looked at after these.
#[inline]
fn is_tidied_after(writes: usize) -> bool {
    let (next, is_due) = NEXT_TIDIED.get().overflowing_add(STEP.saturating_mul(writes as u32));
    NEXT_TIDIED.set(next);
    is_due
}

/// Makes an engine smaller until it takes at most so many bytes, or cannot be made smaller. Fails if other threads were in the way.
fn trim<E: InlineEngine>(content: Leased<'_, E>, guard: &Guard, most: usize) -> Result<(), Busy> {
    let mut before = usize::MAX;
    loop {
        content.owner.engine.trim(guard, most + size_of::<E>())?;
        let bytes = content.engine_bytes();
        if bytes <= most || bytes >= before {
            return Ok(());
        }
        before = bytes;
    }
}

/// Whether an item has an entry. If others are in the way, it has.
fn is_there<E: InlineEngine>(content: Leased<'_, E>, guard: &Guard, item: &E::Item) -> bool {
    content
        .owner
        .engine
        .find(guard, item)
        .map_or(true, |found| found.is_some())
}

/// Runs a change of the entry of an item. It keeps the entry or removes it. The key of an object is at position `key`.
fn update_item<E: InlineEngine>(
    content: Leased<'_, E>,
    guard: &Guard,
    key: usize,
    item: &E::Item,
    change: &mut dyn FnMut(Option<Entry>) -> Step,
) -> Result<(), Busy> {
    if !content.books.history.is_watched() {
        return content.owner.engine.update_found(guard, item, change);
    }
    let found = content.owner.engine.find(guard, item)?;
    // SAFETY: the engine has validated the entry, and objects are retired through the epoch.
    let probe = found.and_then(|entry| unsafe { Probe::stored(entry, key) });
    probe.map_or(Ok(()), |probe| {
        content
            .plain()
            .update_as_it_is(guard, probe.erase(), true, |old| (change(old), ()))
    })
}

/// Evicts objects until the purse holds the amount. `first` is the hash of an item whose shard comes first. Without it, that of the shard
/// whose turn it is comes first. `tally` has what `visit` freed and is not in the purse yet.
fn fill<T: KeyItem>(
    shards: &Shards<T>,
    first: Option<u32>,
    amount: i64,
    purse: &mut Purse<'_>,
    tally: &Tally,
    visit: &mut impl FnMut(&T, Rule) -> Met,
    ahead: &impl Fn(&T, bool),
) -> Result<(), Lack> {
    let count = shards.used();
    let mut number = first.map_or_else(|| shards.in_turn(), |hash| shards.number_of(hash));
    let (mut without, mut spared, mut visits, mut evictions) = (0, 0, 0, 0);
    while !purse.affords(amount) {
        if without == count {
            if tally.own.replace(true) {
                return Err(Lack::Full);
            }
            without = 0;
        }
        // A call that has met only what it writes itself would do so again when it is tried again.
        if (evictions > 0 || spared == 0) && !VISITS.admits(visits) {
            return Err(Lack::Busy);
        }
        let done = shards.evict(number, first, &mut spared, visit, ahead);
        purse.pay(-tally.freed.take());
        let (more, found) = done.map_err(|Busy| Lack::Busy)?;
        visits += more;
        match found {
            Found::Evicted => {
                (evictions, without, spared) = (evictions + 1, 0, 0);
                if evictions % OF_A_SHARD == 0 {
                    // Not the next one: a call that is tried again would begin with the same ones.
                    number = shards.in_turn();
                }
            }
            Found::Nothing => {
                (number, without, spared) = ((number + 1) % count, without + 1, 0);
            }
            Found::Unknown => (),
        }
    }
    Ok(())
}

/// How the engines' steps are looked at: see [`change`](super::leased::Leased::change).
pub struct Paying<'a, T: KeyItem> {
    pub limits: &'a Limits<T>,
    pub purse: Purse<'a>,
    /// The entries of new keys.
    pub new: SmallVec<[Entry; 1]>,
}

impl<'a, T: KeyItem> Paying<'a, T> {
    pub fn new(limits: &'a Limits<T>) -> Self {
        Self {
            limits,
            purse: limits.purse(),
            new: SmallVec::new(),
        }
    }

    /// Pays for a step. `old` is what the place had, expired or not. The place is locked.
    #[inline]
    pub fn pay(&mut self, old: Option<Entry>, step: Step) {
        // SAFETY: the place is locked, so both objects live.
        let cost = |entry: Entry| unsafe { self.limits.cost(entry.body) };
        let body = |entry: Entry| entry.body;
        // SAFETY: as above.
        let count_keys = |new| unsafe { self.limits.count_keys(new, old.map(body)) };
        let paid = match step {
            Step::Put(new) => {
                count_keys(Some(new.body));
                cost(new) - old.map_or(0, cost)
            }
            Step::Remove => {
                count_keys(None);
                -old.map_or(0, cost)
            }
            Step::Keep | Step::Touch => {
                if let Some(entry) = old {
                    // SAFETY: as above.
                    self.limits.used(entry.body, unsafe { lease(entry) });
                }
                return;
            }
        };
        self.purse.pay(paid);
        if let (Step::Put(entry), None) = (step, old) {
            // SAFETY: as above. The seat is not there any more when the items are added.
            self.new.push(unsafe { unseated(entry) });
        }
    }
}
