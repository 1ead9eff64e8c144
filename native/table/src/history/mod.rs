//! The snapshots of some contents, as a chain of nodes from the newest to the oldest. A writer keeps what it is about to change in the
//! newest node.
//!
//! ```text
//! Store.history --> newest <==> node <==> oldest
//!                     |          |          |
//!                   copies     copies     copies
//! ```
//!
//! A key is kept in a node at most once: when it is changed for the first time since the node became the newest. So what a key was at the
//! instant of a node is in the first node from that one to the newest that has the key. If none has it, the key was not changed.
//!
//! Writers and readers follow the chain under guards. [`CHAINS`] is held to change a chain. Nodes that nobody needs go from the oldest end.
//! Others that nobody reads are [merged](merge) into older ones.
//!
//! | module | |
//! |---|---|
//! | `instant` | the instant that the tables of one call share |
//! | `settled` | the keys of which a node needs nothing more |
//! | `merge` | nodes of which nobody reads the snapshot go into older ones |
//! | `marks` | the numbers of some keys, which readers note |

pub(crate) mod instant;
pub(crate) mod marks;
mod merge;
mod settled;

use crate::engines::EngineName;
use crate::exclusive::Exclusive;
use crate::failure;
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess};
use crate::object::copy::{copied, copied_bytes, may_copy, tombstone};
use crate::object::schema::Probe;
use crate::object::unseated;
use crate::store::leases::deadline;
use crate::store::retire::retire_store;
use crate::store::setup::Setup;
use crate::store::{Store, Unused};
use cats_engine::{Entry, Locked, Step};
use cats_sync::epoch::{pin, Guard};
use cats_sync::facade::{fence, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab::Own;
use cats_sync::Busy;
use instant::{Entry as Entered, Inside, Instant};
use marks::Marks;
use merge::Merge;
use settled::Settled;
use std::ptr::{self, null_mut};
use std::sync::{Arc, LazyLock, Weak};

/// Held to change a chain. Has all nodes, and some that are gone.
static CHAINS: LazyLock<Exclusive<Vec<Weak<Node>>>> = LazyLock::new(Exclusive::default);

/// Bit of the word of a history: the table has given its contents up. They live for their snapshots.
const GIVEN_UP: usize = 1;
/// Bit of the word of a history: the contents have [flights](crate::flights), of which writers must know.
const AWAITED: usize = 2;
/// Bit of the word of a history: the contents have a [log](crate::write_log) that somebody reads.
const LOGGED: usize = 4;
/// The bits beside the address.
const BITS: usize = GIVEN_UP | AWAITED | LOGGED;

/// The newest node of some contents, or null. With the bits of [`BITS`].
#[derive(Default)]
pub struct History(AtomicPtr<Node>);

/// How contents are stored, for a node.
#[derive(Clone, Copy)]
pub struct Form {
    pub engine: EngineName,
    /// The position of the key in objects, counted from 0.
    pub key: usize,
    pub ordered: bool,
    /// Whether objects have leases.
    pub leased: bool,
    /// The bytes that copies for snapshots of these contents may have.
    pub limit: usize,
}

/// A snapshot of some contents, as writers see it.
pub struct Node {
    instant: Arc<Instant>,
    /// The contents. They live while the node is linked.
    live: *const Store,
    form: Form,
    /// What was kept. Null when nobody needs it any more.
    /// Acquire, and AcqRel for who takes it: whoever finds null sees that the node has left the chain.
    copies: AtomicPtr<Store>,
    /// Keys of which nothing need be kept any more while the node is the newest one whose instant is past.
    settled: Settled,
    /// The bytes of the objects that were kept, if there is a limit. Relaxed: a figure.
    bytes: AtomicUsize,
    /// The number of objects at the instant.
    /// Relaxed, as for the time: written at the instant, and whoever reads it has seen that the instant is past.
    size: AtomicUsize,
    /// The instant as a time of leases. Relaxed: as for the size.
    time: AtomicU64,
    /// Of an ordered table.
    marks: Marks,
    /// Its neighbours. Acquire, for those who follow the chain, pairs with the Release of the holder of [`CHAINS`]: they see a whole node.
    newer: AtomicPtr<Node>,
    older: AtomicPtr<Node>,
    /// Whether it is in the chain. Changed by the holder of [`CHAINS`]. Relaxed: the lock orders it.
    linked: AtomicBool,
    /// Whether it is being merged into the older one. Likewise.
    merging: AtomicBool,
    /// Nobody reads the snapshot any more.
    /// AcqRel for who releases it, Acquire for who looks: what was read of the snapshot comes before what is done without it.
    released: AtomicBool,
    /// It has died because the copies were too large. Nothing is kept for it any more.
    overfull: AtomicBool,
}

// SAFETY: the contents and the copies may be used by any thread, and the pointers are followed only while what they point to lives.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Drop for Node {
    fn drop(&mut self) {
        let copies = *self.copies.get_mut();
        // Those of a node that was in a chain were given up when it left the chain.
        if !copies.is_null() {
            // SAFETY: `attach` made them, and nobody else knew them.
            drop(unsafe { Own::from_raw(copies) });
        }
    }
}

/// The node at an address that was found under the guard.
fn at(node: *mut Node, _guard: &Guard) -> Option<&Node> {
    // SAFETY: nodes of a chain are retired through the epoch after they are unlinked.
    unsafe { node.map_addr(|address| address & !BITS).as_ref() }
}

impl History {
    /// Whether a writer has something to do besides: there is a snapshot, perhaps one of which nobody reads any more, or a flight.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        // Acquire pairs with the Release in `attach`. Contents that were given up are not written.
        !self.0.load(Ordering::Acquire).is_null()
    }

    /// Whether there are flights.
    pub fn is_awaited(&self) -> bool {
        // Acquire pairs with the AcqRel in `set_bit`.
        self.0.load(Ordering::Acquire).addr() & AWAITED != 0
    }

    /// Notes whether there are flights. The caller holds their lock.
    pub fn set_awaited(&self, awaited: bool) {
        self.set_bit(AWAITED, awaited);
    }

    /// Whether somebody reads the log.
    pub fn is_logged(&self) -> bool {
        // Acquire pairs with the AcqRel in `set_bit`.
        self.0.load(Ordering::Acquire).addr() & LOGGED != 0
    }

    /// Notes whether somebody reads the log. The caller holds its number of readers.
    pub fn set_logged(&self, logged: bool) {
        self.set_bit(LOGGED, logged);
    }

    fn set_bit(&self, bit: usize, to: bool) {
        let to = if to { bit } else { 0 };
        let set = |word: *mut Node| Some(word.map_addr(|address| address & !bit | to));
        // AcqRel: as in `set_newest`. It never fails, as `set` always returns a word.
        _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
    }

    pub fn newest<'g>(&self, guard: &'g Guard) -> Option<&'g Node> {
        // Acquire pairs with the Release in `set_newest`: the node is whole.
        at(self.0.load(Ordering::Acquire), guard)
    }

    /// Whether it is known at once that nothing need be kept of the key with this word.
    #[inline]
    pub fn is_settled(&self, guard: &Guard, word: u64) -> bool {
        // A node in which a word is found is one whose instant is past.
        self.newest(guard).is_some_and(|node| node.settled.has(word))
    }

    /// To be called when the table has given the contents up. Returns whether there is no snapshot, so that they can be freed. Otherwise
    /// the last snapshot retires them.
    pub fn give_up(&self) -> bool {
        // AcqRel pairs with itself in `set_newest`: whoever comes second sees all that the first has done.
        let flagged = |word: *mut Node| Some(word.map_addr(|address| address | GIVEN_UP));
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, flagged);
        before.is_ok_and(|word| word.addr() & !BITS == 0)
    }

    /// Whether the table has given the contents up.
    pub fn is_given_up(&self) -> bool {
        // Acquire pairs with the AcqRel in `give_up`.
        self.0.load(Ordering::Acquire).addr() & GIVEN_UP != 0
    }

    /// Replaces the newest node. Returns whether the contents are given up. The caller holds [`CHAINS`].
    fn set_newest(&self, node: *mut Node) -> bool {
        let set = |word: *mut Node| Some(node.map_addr(|address| address | word.addr() & BITS));
        // Release pairs with the Acquire of those who follow the chain. AcqRel: see `give_up`.
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
        before.is_ok_and(|word| word.addr() & GIVEN_UP != 0)
    }
}

/// What became of an attempt to begin a snapshot of some contents.
pub enum Attached {
    Done(Arc<Node>),
    /// Nothing was done, because another snapshot of the contents begins, of this instant.
    Beside(Arc<Instant>),
    /// Memory is exhausted.
    NoMemory,
}

/// Begins a snapshot of these contents. They are those of a table that was alive under the guard.
pub fn attach(guard: &Guard, live: &Store, form: Form, instant: &Arc<Instant>) -> Result<Attached, Busy> {
    let setup = live.setup().map(|setup| {
        // Copies keep their leases, but do not expire and are not evicted.
        Box::new(Setup {
            config: setup.config,
            ..Setup::default()
        })
    });
    let Some(copies) = Store::new(form.engine, setup, form.key, true).and_then(Own::new) else {
        return Ok(Attached::NoMemory);
    };
    let node = Arc::new(Node {
        instant: instant.clone(),
        live,
        form,
        copies: AtomicPtr::new(copies.into_raw()),
        settled: Settled::default(),
        bytes: AtomicUsize::new(0),
        size: AtomicUsize::new(0),
        time: AtomicU64::new(0),
        marks: Marks::default(),
        newer: AtomicPtr::new(null_mut()),
        older: AtomicPtr::new(null_mut()),
        linked: AtomicBool::new(false),
        merging: AtomicBool::new(false),
        released: AtomicBool::new(false),
        overfull: AtomicBool::new(false),
    });
    let history = live.history();
    CHAINS.with(|all| {
        let newest = history.newest(guard);
        if let Some(newest) = newest {
            if newest.instant.is_open() && !Arc::ptr_eq(&newest.instant, instant) {
                return Attached::Beside(newest.instant.clone());
            }
        }
        // The chain has a reference of its own.
        let raw = Arc::into_raw(node.clone()).cast_mut();
        node.linked.store(true, Ordering::Relaxed);
        if let Some(newest) = newest {
            node.older.store(ptr::from_ref(newest).cast_mut(), Ordering::Release);
            newest.newer.store(raw, Ordering::Release);
        }
        history.set_newest(raw);
        if all.len() == all.capacity() {
            all.retain(|node| node.strong_count() > 0);
        }
        all.push(Arc::downgrade(&node));
        Attached::Done(node)
    })
}

/// Takes nodes that nobody needs out of the chain of this one.
pub fn sweep(guard: &Guard, node: &Node) -> Result<(), Busy> {
    let mut gone = Vec::new();
    let free = CHAINS.with(|_| {
        let history = node.linked_history()?;
        let mut given_up = false;
        // Nodes that have kept nothing go from the newest end too.
        while let Some(newest) = history.newest(guard).filter(|newest| newest.instant.is_cancelled()) {
            let older = newest.older.load(Ordering::Acquire);
            given_up = history.set_newest(older);
            if let Some(older) = at(older, guard) {
                older.newer.store(null_mut(), Ordering::Release);
            }
            gone.push(newest);
        }
        let mut oldest = history.newest(guard);
        while let Some(older) = oldest.and_then(|node| node.older(guard)) {
            oldest = Some(older);
        }
        while let Some(node) = oldest.filter(|node| node.is_done()) {
            oldest = node.newer(guard);
            match oldest {
                Some(newer) => newer.older.store(null_mut(), Ordering::Release),
                None => given_up = history.set_newest(null_mut()),
            }
            gone.push(node);
        }
        gone.iter().for_each(|node| node.linked.store(false, Ordering::Relaxed));
        (given_up && history.newest(guard).is_none()).then_some(node.live)
    })?;
    for node in gone {
        // SAFETY: the node is out of the chain.
        unsafe { node.give_up(guard) }
    }
    if let Some(live) = free {
        // SAFETY: neither the table nor a snapshot refers to the contents any more.
        unsafe { retire_store(guard, live.cast_mut()) }
    }
    Ok(())
}

/// Gives up a chain's reference to a node. Has the type `cats_sync::epoch::Drop`.
unsafe fn give_up_node(node: *mut u8, _: usize) {
    // SAFETY: `attach` made the reference.
    drop(unsafe { Arc::from_raw(node.cast::<Node>()) });
}

/// Has the reaper sweep the chain of a node, and begin a merge there if there is one.
fn sweep_later(node: Arc<Node>) {
    Expected::new().enqueue(node);
}

impl Garbage for Arc<Node> {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        let guard = pin();
        sweep(&guard, self)?;
        if let Some(merge) = Merge::find(&guard, self)? {
            Expected::new().enqueue(merge);
        }
        Ok(false)
    }
}

impl Node {
    pub fn instant(&self) -> &Arc<Instant> {
        &self.instant
    }

    pub fn form(&self) -> Form {
        self.form
    }

    /// The contents. `None` if the snapshot has died.
    pub fn live<'g>(&self, _guard: &'g Guard) -> Option<&'g Store> {
        // SAFETY: a node that is needed is linked, so its contents live, and are retired later through the epoch.
        (!self.is_overfull()).then(|| unsafe { &*self.live })
    }

    pub fn older<'g>(&self, guard: &'g Guard) -> Option<&'g Node> {
        at(self.older.load(Ordering::Acquire), guard)
    }

    pub fn newer<'g>(&self, guard: &'g Guard) -> Option<&'g Node> {
        at(self.newer.load(Ordering::Acquire), guard)
    }

    /// To be called at the instant, which is at this time of leases.
    pub fn note_size(&self, guard: &Guard, time: u64) {
        // Relaxed: as below.
        self.time.store(time, Ordering::Relaxed);
        // Relaxed: whoever reads it has seen that the instant is past.
        self.size
            .store(self.live(guard).map_or(0, Store::size), Ordering::Relaxed);
    }

    /// Whether an entry had not expired at the instant, which is past. It is one of the contents, or a copy.
    ///
    /// # Safety
    /// Its object lives.
    pub unsafe fn lived(&self, entry: Entry) -> bool {
        // SAFETY: as the caller promises.
        !self.form.leased || unsafe { deadline(entry) } > self.time.load(Ordering::Relaxed)
    }

    /// The number of objects at the instant, which is past. If they have leases, this includes some that had expired.
    pub fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// What was kept. `None` if nobody needs it any more.
    pub fn copies<'g>(&self, _guard: &'g Guard) -> Option<&'g Store> {
        // SAFETY: the copies are retired through the epoch.
        unsafe { self.copies.load(Ordering::Acquire).as_ref() }
    }

    pub fn is_overfull(&self) -> bool {
        // Acquire pairs with the Release in `die`.
        self.overfull.load(Ordering::Acquire)
    }

    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// The history in whose chain the node is. `None` if it has left it. The caller holds [`CHAINS`].
    fn linked_history(&self) -> Option<&History> {
        // Relaxed: only the holder of the lock changes it.
        let linked = self.linked.load(Ordering::Relaxed);
        // SAFETY: while a node is linked, the contents live.
        linked.then(|| unsafe { &*self.live }.history())
    }

    /// Another reference to a node of a chain.
    fn counted(&self) -> Arc<Self> {
        // SAFETY: the chain has a reference to the node, which it gives up through the epoch.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    /// Gives up what the node has kept, and the chain's reference to it.
    ///
    /// # Safety
    /// The node has just left the chain.
    unsafe fn give_up(&self, guard: &Guard) {
        // SAFETY: as the caller promises, both are done once.
        unsafe {
            retire_store(guard, self.copies.swap(null_mut(), Ordering::AcqRel));
            self.settled.give_up(guard);
            guard.retire(ptr::from_ref(self).cast_mut().cast(), 0, give_up_node);
        }
    }

    /// Whether nobody will read the snapshot.
    fn is_done(&self) -> bool {
        self.is_released() || self.is_overfull() || self.instant.is_cancelled()
    }

    /// To be called when nobody reads the snapshot any more. The first call counts.
    pub fn release(self: Arc<Self>) {
        self.instant.cancel();
        if !self.released.swap(true, Ordering::AcqRel) {
            self.marks.clear();
            sweep_later(self);
        }
    }

    /// Whether a key is kept in this node.
    fn has(&self, guard: &Guard, probe: &Probe<'_>) -> Result<bool, Busy> {
        let copies = self.copies(guard);
        copies.map_or(Ok(false), |copies| {
            copies.read_entry::<Unused>(guard, probe).map(|entry| entry.is_some())
        })
    }

    /// Keeps what a key has, unless it is kept already. The key's place in the contents is locked, and has this entry.
    fn keep(&self, guard: &Guard, probe: &Probe<'_>, entry: Option<Entry>) -> Result<(), Busy> {
        let Some(copies) = self.copies(guard) else {
            return Ok(());
        };
        // SAFETY: the place is locked.
        let object = entry.map(|entry| unsafe { unseated(entry) });
        // SAFETY: as above.
        if object.is_some_and(|object| unsafe { !may_copy(object.body) }) {
            return Err(failure::too_long());
        }
        // In an ordered table the stored key may be another term than the probe's.
        // SAFETY: the place is locked, so the entry's key lives.
        let stored = object.and_then(|object| unsafe { Probe::stored(object, self.form.key) });
        let probe = stored.as_ref().unwrap_or(probe);
        let kept = self.put_copy(guard, probe, copies, || match entry {
            // SAFETY: the place is locked.
            Some(entry) => unsafe { copied(guard, entry, self.form.key, self.form.leased) },
            None => tombstone(probe, self.form.key),
        })?;
        match kept {
            Some(bytes) => self.watch_limit(guard, bytes),
            // No memory for the copy.
            None => self.die(guard),
        }
        // Release pairs with the Acquire fences of readers: whoever sees something of the change that follows finds what was kept, or that
        // the snapshot has died.
        fence(Ordering::Release);
        Ok(())
    }

    /// Puts a copy that `make` makes into these copies, unless they have the key. Returns its bytes. `None` if there is no memory for it.
    fn put_copy(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        copies: &Store,
        make: impl FnOnce() -> Option<u64>,
    ) -> Result<Option<usize>, Busy> {
        copies.update(guard, probe, |kept| {
            if kept.is_some() {
                return (Step::Keep, Some(0));
            }
            let Some(body) = make() else {
                return (Step::Keep, None);
            };
            // SAFETY: the copy is new.
            let bytes = unsafe { copied_bytes(body) };
            copies.count(1, bytes as i64);
            let key = probe.word();
            (Step::Put(Entry { key, body }), Some(bytes))
        })
    }

    /// Counts bytes of copies, which a merge has copied, for an older node instead of this one.
    fn give_bytes(&self, older: &Self, bytes: usize) {
        if self.form.limit != usize::MAX {
            // Relaxed: a count.
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            older.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts bytes that were kept. If they are too many, the snapshots of the contents die.
    fn watch_limit(&self, guard: &Guard, bytes: usize) {
        if self.form.limit == usize::MAX {
            return;
        }
        // Relaxed: a count.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let all = std::iter::successors(Some(self), |node| node.older(guard));
        // Behind a node that has died, all have.
        let living = all.take_while(|node| !node.is_overfull());
        let total: usize = living.map(|node| node.held(guard)).sum();
        if total > self.form.limit {
            self.die(guard);
        }
    }

    /// The bytes of the node and of what it has kept.
    fn own_bytes(&self, guard: &Guard) -> usize {
        size_of::<Self>() + self.settled.bytes() + self.marks.bytes() + self.copies(guard).map_or(0, Store::all_bytes)
    }

    /// The bytes of the copies, and of the structures that tell of them.
    fn held(&self, guard: &Guard) -> usize {
        let structure = self.copies(guard).map_or(0, Store::structure_bytes);
        structure + self.settled.bytes() + self.bytes.load(Ordering::Relaxed)
    }

    /// Ends this snapshot, which is the newest one, and all older ones.
    #[cold]
    fn die(&self, guard: &Guard) {
        let mut last = None;
        for node in std::iter::successors(Some(self), |node| node.older(guard)) {
            // AcqRel: the Release pairs with the Acquire in `is_overfull`.
            if !node.overfull.swap(true, Ordering::AcqRel) {
                last = Some(node);
            }
        }
        if let Some(node) = last {
            sweep_later(node.counted());
        }
    }
}

/// A writer of contents that have snapshots.
pub struct Writer<'g> {
    guard: &'g Guard,
    /// Where it keeps what it changes.
    node: Option<&'g Node>,
    inside: Option<Inside<'g>>,
}

impl<'g> Writer<'g> {
    /// To be called before the writer locks anything. Fails while a snapshot begins.
    pub fn enter(history: &History, guard: &'g Guard) -> Result<Self, Busy> {
        let mut node = history.newest(guard);
        let mut inside: Option<(&Instant, Inside<'g>)> = None;
        while let Some(newer) = node {
            let known = inside
                .as_ref()
                .is_some_and(|(instant, _)| ptr::eq(*instant, &*newer.instant));
            if !known {
                match newer.instant.enter()? {
                    Entered::Past => break,
                    // Only the newest nodes are of an open instant, and all of the same.
                    Entered::Before(value) => inside = Some((&newer.instant, value)),
                    Entered::Never => (),
                }
            }
            node = newer.older(guard);
        }
        Ok(Self {
            guard,
            // If the newest one has died, all older ones have.
            node: node.filter(|node| !node.is_overfull()),
            inside: inside.map(|(_, inside)| inside),
        })
    }

    /// Whether a snapshot begins. Its instant is not before this value is dropped.
    pub fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// Prefetches where the copy of a key of a hash table is.
    pub fn approach(&self, probe: &Probe<'_>) {
        if let Some(copies) = self.node.and_then(|node| node.copies(self.guard)) {
            copies.approach(self.guard, probe);
        }
    }

    /// Whether the writer must keep what this key has before it changes it.
    ///
    /// Nothing need be kept if each snapshot that somebody reads finds the key. Those are the nodes from the newest one that is read to the
    /// newest of all.
    pub fn must_keep(&self, probe: &Probe<'_>) -> Result<bool, Busy> {
        let Some(newest) = self.node else {
            return Ok(false);
        };
        let mut next = Some(newest);
        while let Some(node) = next {
            if node.has(self.guard, probe)? {
                break;
            }
            if !node.is_released() {
                return Ok(true);
            }
            next = node.older(self.guard);
        }
        newest.settled.add(probe.word(), false);
        Ok(false)
    }

    /// Keeps what the key has, which is this entry. Its place is locked.
    pub fn keep(&self, probe: &Probe<'_>, entry: Option<Entry>) -> Result<(), Busy> {
        let Some(node) = self.node else {
            return Ok(());
        };
        node.keep(self.guard, probe, entry)?;
        node.settled.add(probe.word(), true);
        Ok(())
    }

    /// The same for all places of an operation on many keys.
    pub fn keep_all(&self, probes: &[&Probe<'static>], places: &dyn Locked) -> Result<(), Busy> {
        for (i, probe) in probes.iter().enumerate() {
            let settled = self.node.is_some_and(|node| node.settled.has(probe.word()));
            if !settled && self.must_keep(probe)? {
                self.keep(probe, places.get(i))?;
            }
        }
        Ok(())
    }
}

/// The bytes that a node and the released ones that it needs hold back.
pub fn held_back(node: &Node, guard: &Guard) -> usize {
    let mut bytes = 0;
    let mut next = Some(node);
    while let Some(node) = next {
        bytes += node.own_bytes(guard);
        next = node.newer(guard).filter(|newer| newer.is_released());
    }
    if let Some(live) = node.live(guard).filter(|live| live.history().is_given_up()) {
        bytes += live.all_bytes();
    }
    bytes
}

/// The bytes that all snapshots hold back. `None` if there are `limit` of them or more.
pub fn all_held_back(guard: &Guard, limit: usize) -> Result<Option<usize>, Busy> {
    let nodes: Vec<Arc<Node>> = CHAINS.with(|all| {
        let nodes = all.iter().filter_map(Weak::upgrade);
        nodes
            .filter(|node| node.linked_history().is_some())
            .take(limit)
            .collect()
    })?;
    if nodes.len() == limit {
        return Ok(None);
    }
    let mut bytes = nodes.iter().map(|node| node.own_bytes(guard)).sum();
    let given_up = nodes.iter().filter_map(|node| node.live(guard));
    let mut given_up: Vec<&Store> = given_up.filter(|live| live.history().is_given_up()).collect();
    given_up.sort_by_key(|live| ptr::from_ref(*live));
    given_up.dedup_by_key(|live| ptr::from_ref(*live));
    bytes += given_up.into_iter().map(Store::all_bytes).sum::<usize>();
    Ok(Some(bytes))
}
