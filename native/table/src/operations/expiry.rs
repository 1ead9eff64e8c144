//! Objects that expire: their times, and what counts only those that live.

use crate::expiry::notices::{Notices, Why};
use crate::failure::{Cause, Failure};
use crate::object::schema::Probe;
use crate::object::{retire_body, Object, ObjectRef};
use crate::operations::insert::Incoming;
use crate::store::leases::Life;
use crate::table::{Handle, Table};
use cats_engine::Entry;
use cats_term::lease::{Request, NEVER};
use cats_term::Scratch;
use std::sync::Arc;

/// A time after now: some milliseconds, or no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    Milliseconds(u64),
    Infinity,
}

impl Time {
    /// The longest time in milliseconds, some 34 years. The sum of two of them and of the clock fits a lease, so each is kept exactly.
    pub const LONGEST: u64 = (1 << 40) - 1;

    fn number(self) -> u64 {
        match self {
            Self::Milliseconds(number) => {
                debug_assert!(number <= Self::LONGEST);
                number
            }
            Self::Infinity => NEVER,
        }
    }

    /// The request for a lease of this time.
    pub fn request(self) -> Request {
        Request::Given(self.number())
    }
}

impl Table {
    /// Lets a process be told what the table removes by itself. Before anybody else knows the table. False if it removes nothing.
    pub fn set_notices(&self, notices: Arc<Notices>) -> bool {
        // SAFETY: nobody else knows the table, so it keeps its contents.
        unsafe { &*self.store_pointer() }.set_notices(notices)
    }
}

impl<'g> Handle<'g> {
    /// Who is told what the table removes by itself.
    pub fn notices(self) -> Option<&'g Arc<Notices>> {
        self.store().notices()
    }

    /// What [`Notices::take`] has taken is given to `show`, and retired.
    pub fn show_removed<E>(
        self,
        batch: Vec<(Entry, Why)>,
        mut show: impl FnMut(&ObjectRef<'_>, Why) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<Failure>,
    {
        let mut result = Ok(());
        for (entry, why) in batch {
            if result.is_ok() {
                let mut scratch = Scratch::new();
                // SAFETY: the object was removed, and belongs to the batch.
                let object = unsafe { ObjectRef::read_within(entry, self.table.key(), &mut scratch) };
                result = object.map_err(E::from).and_then(|object| show(&object, why));
            }
            // SAFETY: as above. Others may still read it under their guards.
            unsafe { retire_body(self.guard, entry.body) }
        }
        result
    }

    /// Fails unless objects of the table can expire.
    pub fn check_expiry(self) -> Result<(), Failure> {
        match self.store().is_leased() {
            true => Ok(()),
            false => Err(self.no_expiry()),
        }
    }

    /// Why objects of the table cannot expire.
    #[cold]
    fn no_expiry(self) -> Failure {
        match self.table.is_snapshot() {
            true => Cause::Snapshot.into(),
            false => Cause::NoExpiry.into(),
        }
    }

    /// The milliseconds that the table's objects live, and those that they live after a read. `u64::MAX` stands for no end. `None` if they
    /// cannot expire.
    pub fn expiry(self) -> Option<(u64, u64)> {
        let expiry = self.store().setup()?.expiry?;
        Some((expiry.ttl, expiry.idle))
    }

    /// The request for a lease, where reads do not make an object live beyond a time of its own.
    pub(crate) fn bounded(self, request: Request) -> Request {
        match request {
            Request::Given(most) if most != NEVER && self.table.options().idle() => {
                let idle = self.expiry().map_or(NEVER, |(_, idle)| idle);
                Request::Bounded {
                    time: most.min(idle),
                    most,
                }
            }
            request => request,
        }
    }

    /// [`insert`](Self::insert) of an object that lives for this time.
    pub fn insert_lasting(self, object: Object<'_>, time: Time) -> Result<(), Failure> {
        self.check_expiry()?;
        let incoming = Incoming::requesting(self.guard, self.table, object, self.bounded(time.request()))?;
        self.insert_incoming(self.store(), incoming)
    }

    /// The same for the first of these times, and for at most the second one if reads make it longer.
    pub fn insert_bounded(self, object: Object<'_>, time: Time, most: Time) -> Result<(), Failure> {
        self.check_expiry()?;
        let request = match most {
            Time::Milliseconds(most) if self.table.options().idle() => Request::Bounded {
                time: time.number(),
                most,
            },
            _ => time.request(),
        };
        let incoming = Incoming::requesting(self.guard, self.table, object, request)?;
        self.insert_incoming(self.store(), incoming)
    }

    /// [`insert_new`](Self::insert_new) of an object that lives for this time.
    pub fn insert_new_lasting(self, object: Object<'_>, time: Time) -> Result<bool, Failure> {
        self.check_expiry()?;
        let incoming = Incoming::requesting(self.guard, self.table, object, self.bounded(time.request()))?;
        self.insert_new_incoming(&incoming)
    }

    /// Lets the object of a key live for this time from now on. Returns false if there is none.
    pub fn touch(self, probe: &Probe<'_>, time: Time) -> Result<bool, Failure> {
        let is_named = || self.still_named().is_ok();
        let touched = self.store().touch(self.guard, probe, time.number(), is_named);
        let touched = touched.ok_or_else(|| self.no_expiry())??;
        self.still_named()?;
        Ok(touched)
    }

    /// How long the object of a key still lives, and how long at most if it is read. `None` if there is none. Does not count as a read.
    pub fn time_left(self, probe: &Probe<'_>) -> Result<Option<(Time, Time)>, Failure> {
        let left = self.store().time_left(self.guard, probe);
        let left = left.ok_or_else(|| self.no_expiry())??;
        self.still_named()?;
        let time = |left| match left {
            NEVER => Time::Infinity,
            left => Time::Milliseconds(left),
        };
        Ok(left.map(|(left, most)| (time(left), time(most))))
    }

    /// What `fetch` finds: the object of a key that lives, and whether it ends within the milliseconds of the second time, or that has ended
    /// less than the milliseconds of the first one ago. What lives counts as read.
    pub fn fetch<'h>(
        self,
        probe: &Probe<'_>,
        times: (u64, u64),
        scratch: &'h mut Scratch,
    ) -> Result<Option<(ObjectRef<'h>, Life)>, Failure>
    where
        Self: 'h,
    {
        let found = self.store().read_keeping(self.guard, probe, times);
        let found = found.ok_or_else(|| self.no_expiry())??;
        self.still_named()?;
        let Some((entry, life)) = found else {
            return Ok(None);
        };
        // SAFETY: the engine has validated the entry, and objects are retired through the epoch.
        let object = unsafe { ObjectRef::read_within(entry, self.table.key(), scratch)? };
        Ok(Some((object, life)))
    }

    /// [`insert_new`](Self::insert_new) of an object that lives for this time, or for the table's, and that a fetch may have for `stale`
    /// milliseconds after its end.
    pub fn insert_fetched(self, object: Object<'_>, time: Option<Time>, stale: u64) -> Result<bool, Failure> {
        self.insert_new_incoming(&self.fetched(object, time, stale)?)
    }

    /// [`replace`](Self::replace) by such an object.
    pub fn replace_fetched<E: From<Failure>>(
        self,
        object: Object<'_>,
        (time, stale): (Option<Time>, u64),
        is_surely: impl Fn(&ObjectRef<'_>) -> bool,
        is_old: impl Fn(&ObjectRef<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let incoming = self.fetched(object, time, stale)?;
        self.replace_by(&incoming, is_surely, is_old)
    }

    fn fetched(self, object: Object<'_>, time: Option<Time>, stale: u64) -> Result<Incoming, Failure> {
        let request = self.bounded(time.map_or(Request::Fresh, Time::request));
        let incoming = Incoming::requesting(self.guard, self.table, object, request)?;
        if stale > 0 {
            self.store().keep_new(incoming.entry(), stale);
        }
        Ok(incoming)
    }

    /// Removes what has expired, or counts it out, so that what is counted lives. With `clear`, nothing that has expired is left. Fails
    /// with [`Failure::Slice`] as long as more of that is left.
    pub fn settle(self, clear: bool) -> Result<(), Failure> {
        self.store().settle(self.guard, clear)
    }
}
