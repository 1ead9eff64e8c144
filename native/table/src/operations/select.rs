//! What `select`, `match` and similar calls do to a table. They scan in slices over the objects that a program can match. They remove or
//! replace an object that was found, if it is still there.

use crate::engines::Kind;
use crate::failure::Failure;
use crate::object::group::{retire_entry, Filter, Group, GROUP_LIMIT};
use crate::object::schema::{exact_order, OwnedKey, Probe};
use crate::object::{block_body, is_group, words_to_read, ObjectRef, COPY_LIMIT};
use crate::operations::lookup::{Objects, SIGNATURES_LIMIT};
use crate::operations::traverse::{Direction, Expansion};
use crate::snapshot::Snapshot;
use crate::table::{Handle, Table};
use cats_engine::{place_of, Entry, Range, Step};
use cats_pattern::{Keys, Program};
use cats_term::{is_immediate, Block, TermRef};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// Which objects a scan shows, and how far it has come. Nothing is held between two slices. A copy goes on by itself.
#[derive(Clone)]
pub struct Selection {
    wanted: Wanted,
    direction: Direction,
    /// Where a key has many objects, only those that pass this filter are read.
    filter: Filter,
    spot: Spot,
}

/// How far a selection has come, to [go back](Selection::go_back) to later.
#[derive(Clone)]
pub struct Spot(At);

#[derive(Clone)]
enum At {
    /// At the key with this index, or at the place with this number in an unordered table.
    Number(u64),
    /// After this key, which was the last one shown. At the start there is none.
    Key(Option<Arc<OwnedKey>>),
}

/// How far a selection has come.
pub enum SpotRef<'a> {
    Number(u64),
    /// After this key of an ordered table.
    Key(TermRef<'a>),
}

/// The number of the place after all others.
const END: u64 = u64::MAX;

#[derive(Clone)]
enum Wanted {
    /// The objects of these keys.
    Keys(Arc<Vec<Block>>),
    /// All objects of an unordered table.
    All,
    /// All objects of an ordered table.
    AllOrdered,
    /// The objects of an ordered table between two keys, both included.
    Range(Arc<(OwnedKey, OwnedKey)>),
}

/// The objects of one slice. Those of an ordered table are in its order. The objects of one key of a bag are ordered from the newest to the
/// oldest. The keys of an unordered table are in no particular order. [`place`](Self::place) and [`order`](Self::order) give the order of
/// `first` and `next`.
#[derive(Default)]
pub struct Met<'g> {
    objects: Vec<ObjectRef<'g>>,
    /// The key words of the objects' entries. Only filled if the selection covers a whole unordered table.
    words: Vec<u64>,
}

impl<'g> Met<'g> {
    /// No objects, with room for some.
    pub fn with_room(objects: usize) -> Self {
        Self {
            objects: Vec::with_capacity(objects),
            words: Vec::with_capacity(objects),
        }
    }

    #[inline]
    pub fn as_slice(&self) -> &[ObjectRef<'g>] {
        &self.objects
    }

    pub fn clear(&mut self) {
        self.objects.clear();
        self.words.clear();
    }

    /// The number of the place of an object of an unordered table, to [go to](Selection::go_to) later. All objects of one key have the same
    /// place. Different keys nearly always have different places. If the selection does not cover a whole unordered table, the number is
    /// the same for all objects.
    #[inline]
    pub fn place(&self, object: usize) -> u64 {
        self.words.get(object).map_or(0, |&word| place_of(word))
    }

    /// The order of two objects of the same place. `key` is the position of the key in objects, counted from 0.
    pub fn order(&self, key: usize, a: usize, b: usize) -> Ordering {
        let colliding = || match self.words.get(a) {
            Some(word) if !is_immediate(*word) => {
                exact_order(self.objects[a].element(key), self.objects[b].element(key))
            }
            _ => Ordering::Equal,
        };
        let words = self.words.get(a).cmp(&self.words.get(b));
        words.then_with(colliding).then(a.cmp(&b))
    }
}

impl Selection {
    fn new(wanted: Wanted, direction: Direction, filter: Filter) -> Self {
        let at = match wanted {
            Wanted::Keys(_) | Wanted::All => At::Number(0),
            Wanted::AllOrdered | Wanted::Range(_) => At::Key(None),
        };
        Self {
            wanted,
            direction,
            filter,
            spot: Spot(at),
        }
    }

    /// All objects. Those of an ordered table come in this direction.
    pub fn all(table: &Table, direction: Direction) -> Self {
        let wanted = match table.kind() {
            Kind::OrderedSet => Wanted::AllOrdered,
            _ => Wanted::All,
        };
        Self::new(wanted, direction, Filter::open())
    }

    /// The objects that the program can match.
    pub fn of(table: &Table, program: &Program, direction: Direction) -> Result<Self, Failure> {
        let ordered = table.kind() == Kind::OrderedSet;
        let wanted = match program.keys(table.key(), ordered).ok_or(Failure::NoMemory)? {
            Keys::All if ordered => Wanted::AllOrdered,
            Keys::All => Wanted::All,
            Keys::Exact(keys) => {
                // The order of terms is not enough. Numbers that are equal in it may be different keys: 1 and 1.0, 0.0 and -0.0.
                let order = |a: &Block, b: &Block| {
                    let (a, b) = (table.probe(key_of(a)), table.probe(key_of(b)));
                    a.word().cmp(&b.word()).then_with(|| exact_order(a.term(), b.term()))
                };
                // Each key is kept once, in the order of the clauses.
                let mut keys: Vec<_> = keys.into_iter().enumerate().collect();
                keys.sort_by(|(_, a), (_, b)| order(a, b));
                keys.dedup_by(|(_, a), (_, b)| order(a, b).is_eq());
                keys.sort_by_key(|(clause, _)| *clause);
                Wanted::Keys(Arc::new(keys.into_iter().map(|(_, key)| key).collect()))
            }
            Keys::Range(lower, upper) => Wanted::Range(Arc::new((OwnedKey::of(lower), OwnedKey::of(upper)))),
        };
        let filter = match table.kind().is_bag() {
            true => Filter::of(program, table.key()),
            false => Filter::open(),
        };
        Ok(Self::new(wanted, direction, filter))
    }

    /// Whether it covers the whole table.
    pub fn is_whole(&self) -> bool {
        matches!(self.wanted, Wanted::All | Wanted::AllOrdered)
    }

    /// Whether it is a list of keys.
    pub fn has_keys(&self) -> bool {
        matches!(self.wanted, Wanted::Keys(_))
    }

    /// How far the scan has come between two slices. `None` at its start.
    pub fn place(&self) -> Option<SpotRef<'_>> {
        match &self.spot.0 {
            At::Number(number) => Some(SpotRef::Number(*number)),
            At::Key(last) => last.as_ref().map(|key| SpotRef::Key(key.probe().term())),
        }
    }

    /// Goes to a place that an equal selection of the same table has reached before. Returns false if this selection has no such places.
    pub fn go_to(&mut self, place: SpotRef<'_>) -> bool {
        match (&mut self.spot.0, place) {
            (At::Number(at), SpotRef::Number(number)) => *at = number,
            (At::Key(last), SpotRef::Key(key)) => *last = Some(Arc::new(OwnedKey::new(key))),
            _ => return false,
        }
        true
    }

    /// Goes to the place after all objects, if the table is unordered. Returns false if it is ordered.
    pub fn go_to_end(&mut self) -> bool {
        self.go_to(SpotRef::Number(END))
    }

    /// How far the scan has come.
    pub fn spot(&self) -> Spot {
        self.spot.clone()
    }

    /// Goes back to where the scan was before.
    pub fn go_back(&mut self, spot: Spot) {
        self.spot = spot;
    }
}

/// The key in a block that a program has for it.
fn key_of(block: &Block) -> TermRef<'_> {
    block.as_ref().element(0)
}

impl<'g> Handle<'g> {
    /// Writes the objects of about `limit` more keys to `met`, in an ordered table of at most `limit` keys. `met` is empty before. Returns
    /// false when the selection is complete. Then the selection's place need not be after these objects. If this fails, nothing has
    /// changed.
    pub fn slice(self, selection: &mut Selection, limit: usize, met: &mut Met<'g>) -> Result<bool, Failure> {
        let Met { objects: out, words } = met;
        let more = match (&selection.wanted, &mut selection.spot.0) {
            (Wanted::Keys(keys), At::Number(next)) => {
                let Some(key) = usize::try_from(*next).ok().and_then(|next| keys.get(next)) else {
                    return Ok(false);
                };
                let probe = self.table.probe(key_of(key));
                let mut found = Objects::none();
                self.lookup_filtered(&probe, || &selection.filter, &mut found)?;
                out.extend(found.as_slice().iter().rev());
                *next += 1;
                *next < keys.len() as u64
            }
            (Wanted::All, At::Number(place)) => {
                let before = *place;
                let mut expansion = Expansion::new();
                let bag = self.table.kind().is_bag();
                if let Some(snapshot) = Snapshot::of(self.store()) {
                    let gathered =
                        snapshot.gather(self.guard, place, limit, &mut |entry, out: &mut Vec<ObjectRef<'g>>| {
                            self.expand(entry, &mut expansion, out)
                        })?;
                    expansion.finish().inspect_err(|_| *place = before)?;
                    for seen in &gathered.entries {
                        let objects = gathered.objects_of(seen).iter();
                        match bag {
                            true => out.extend(objects.rev()),
                            false => out.extend(objects),
                        }
                        words.resize(out.len(), seen.entry.key);
                    }
                    return Ok(*place & 1 == 0);
                }
                let more = self.store().scan(
                    self.guard,
                    place,
                    limit,
                    out,
                    #[inline(always)]
                    |entry, out| {
                        // The engine may have taken back some objects that it showed before.
                        let met = out.len();
                        words.truncate(met);
                        self.expand(entry, &mut expansion, out);
                        if bag {
                            out[met..].reverse();
                            words.resize(out.len(), entry.key);
                        } else {
                            words.push(entry.key);
                        }
                    },
                )?;
                words.truncate(out.len());
                expansion.finish().inspect_err(|_| *place = before)?;
                more
            }
            (Wanted::AllOrdered, At::Key(last)) => self.slice_range(None, last, selection.direction, limit, out)?,
            (Wanted::Range(range), At::Key(last)) => {
                self.slice_range(Some(range), last, selection.direction, limit, out)?
            }
            _ => unreachable!("a place of another kind of selection"),
        };
        self.still_named()?;
        Ok(more)
    }

    /// [`slice`](Self::slice) of an ordered table.
    fn slice_range(
        self,
        range: Option<&(OwnedKey, OwnedKey)>,
        last: &mut Option<Arc<OwnedKey>>,
        direction: Direction,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
    ) -> Result<bool, Failure> {
        let down = direction == Direction::Down;
        let (near, far) = match range {
            Some((lower, upper)) if down => (Some(upper), Some(lower)),
            Some((lower, upper)) => (Some(lower), Some(upper)),
            None => (None, None),
        };
        let range = Range {
            from: last.as_deref().or(near).map(|key| (key.probe(), last.is_none())),
            to: far.map(OwnedKey::probe),
            down,
        };
        let more = self.show_range(range, limit, out)?;
        if let (Some(object), true) = (out.last(), more) {
            let key = object.element(self.table.key());
            let behind = if down { Ordering::Greater } else { Ordering::Less };
            let goes_on = |last: &Arc<OwnedKey>| cats_term::compare(last.probe().term(), key) == behind;
            // Funs may have changed their order since they were inserted. Such a search ends rather than goes round.
            if !last.as_ref().is_none_or(goes_on) {
                return Ok(false);
            }
            *last = Some(Arc::new(OwnedKey::new(key)));
        }
        Ok(more)
    }

    fn show_range(
        self,
        range: Range<'_, Probe<'_>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
    ) -> Result<bool, Failure> {
        let mut expansion = Expansion::new();
        let expand = |entry, out: &mut Vec<ObjectRef<'g>>| self.expand(entry, &mut expansion, out);
        let more = self.store().range(self.guard, range, limit, out, expand)?;
        expansion.finish()?;
        Ok(more)
    }

    /// Returns the objects that the program can match, in this direction. The program must limit the keys of an ordered table to a range
    /// that has at most `limit` keys. Otherwise returns `None`. Quicker than [`slice`](Self::slice), as nothing is kept for a next slice.
    pub fn few_in_range(
        self,
        program: &Program,
        direction: Direction,
        limit: usize,
    ) -> Result<Option<Vec<ObjectRef<'g>>>, Failure> {
        let show = |lower: TermRef<'_>, upper: TermRef<'_>| {
            let (lower, upper) = (Probe::end(lower), Probe::end(upper));
            let down = direction == Direction::Down;
            let (near, far) = if down { (&upper, &lower) } else { (&lower, &upper) };
            let range = Range {
                from: Some((near, true)),
                to: Some(far),
                down,
            };
            let mut out = Vec::with_capacity(limit);
            let more = self.show_range(range, limit, &mut out)?;
            self.still_named()?;
            Ok((!more).then_some(out))
        };
        match self.table.kind() == Kind::OrderedSet {
            true => program.with_range(self.table.key(), show).unwrap_or(Ok(None)),
            false => Ok(None),
        }
    }

    /// Replaces the objects of a key by those that `new` returns for them, in the order of insertion. Returns the number of replaced
    /// objects. The table is not a `bag`. Fails with [`Failure::Big`], and does nothing, if they are too many or too large for this thread.
    /// `new` is short and does not operate on tables. The objects that it returns have the same key.
    pub fn replace_all(
        self,
        probe: &Probe<'_>,
        mut new: impl FnMut(&ObjectRef<'_>) -> Option<Block>,
    ) -> Result<usize, Failure> {
        let store = self.store();
        let mut new = |object: &ObjectRef<'_>| new(object).map(|block| block_body(block, self.table.layout()));
        let (replaced, old) = store.update_making(self.guard, probe, false, |old| {
            if let Err(failure) = self.still_named() {
                return (Step::Keep, Err(failure));
            }
            let Some(old) = old else {
                return (Step::Keep, Ok((0, None)));
            };
            // In an ordered_set the key may be another term than the probe's.
            let key = self.table.key_place(old.key);
            match is_group(old.body) {
                true => {
                    // SAFETY: the place is locked, so the group lives and this is its only writer.
                    let group = unsafe { Group::from_body(old.body) };
                    // SAFETY: as above.
                    if !GROUP_LIMIT.admits(group.count()) || !COPY_LIMIT.admits(unsafe { group.words_to_read() }) {
                        return (Step::Keep, Err(Failure::Big));
                    }
                    // SAFETY: as above. The new objects have the same key, as the caller promises.
                    let (replaced, growth) = unsafe { group.replace_each(self.guard, key, &mut new) };
                    store.count(0, growth);
                    (Step::Touch, Ok((replaced, None)))
                }
                // SAFETY: the place is locked, so its object lives.
                false if !COPY_LIMIT.admits(unsafe { words_to_read(old.body) }) => (Step::Keep, Err(Failure::Big)),
                // SAFETY: as above.
                false => match new(&unsafe { key.object(old.body) }) {
                    None => (Step::Keep, Ok((0, None))),
                    Some(body) => (Step::Put(Entry { key: old.key, body }), Ok((1, Some(old)))),
                },
            }
        })??;
        if let Some(old) = old {
            // SAFETY: the place has another entry now.
            unsafe { retire_entry(self.guard, old.body) }
        }
        Ok(replaced)
    }

    /// Writes the objects of a key that the program can match to `found`. If there are few objects, writes all of them. Fails with
    /// [`Failure::Big`] if they are too many for this thread.
    pub fn lookup_for(self, program: &Program, probe: &Probe<'_>, found: &mut Objects<'g>) -> Result<(), Failure> {
        self.lookup_filtered(probe, || Filter::of(program, self.table.key()), found)
    }

    /// Removes objects of a key, all at once, and returns their number. Removes those that the selection can show and for which `unwanted`
    /// returns true. Fails with [`Failure::Big`], and does nothing, if they are too large for this thread, or may be too many. `unwanted` is short and does not operate on tables.
    pub fn remove_all(
        self,
        selection: &Selection,
        probe: &Probe<'_>,
        unwanted: impl FnMut(&ObjectRef<'_>) -> bool,
    ) -> Result<usize, Failure> {
        self.remove_filtered(probe, || &selection.filter, unwanted, &mut 0)
    }

    /// Like [`remove_all`](Self::remove_all), for objects that the program can match. Also returns of how many objects the signatures were
    /// read.
    pub fn remove_for(
        self,
        program: &Program,
        probe: &Probe<'_>,
        unwanted: impl FnMut(&ObjectRef<'_>) -> bool,
    ) -> Result<(usize, usize), Failure> {
        let filter = || Filter::of(program, self.table.key());
        let mut signatures = 0;
        let removed = self.remove_filtered(probe, filter, unwanted, &mut signatures)?;
        Ok((removed, signatures))
    }

    fn remove_filtered<F: Borrow<Filter>>(
        self,
        probe: &Probe<'_>,
        filter: impl FnOnce() -> F,
        unwanted: impl FnMut(&ObjectRef<'_>) -> bool,
        signatures: &mut usize,
    ) -> Result<usize, Failure> {
        let fits = |words| COPY_LIMIT.admits(words);
        self.remove_from(probe, fits, unwanted, |group, key, unwanted| {
            *signatures = group.count();
            if !SIGNATURES_LIMIT.admits(group.count()) {
                return None;
            }
            let limit = GROUP_LIMIT.part_of(group.count());
            // SAFETY: the place is locked.
            unsafe { group.remove_each(self.guard, key, filter().borrow(), limit, fits, unwanted) }
        })
    }

    /// [`remove_all`](Self::remove_all) for the next key of a selection that is a list of keys. Also returns whether there are more keys.
    /// For other selections, does nothing and returns `None`.
    pub fn remove_slice(
        self,
        selection: &mut Selection,
        unwanted: impl FnMut(&ObjectRef<'_>) -> bool,
    ) -> Result<Option<(usize, bool)>, Failure> {
        let (Wanted::Keys(keys), At::Number(at)) = (&selection.wanted, &selection.spot.0) else {
            return Ok(None);
        };
        let at = usize::try_from(*at).unwrap_or(usize::MAX);
        let Some(key) = keys.get(at) else {
            return Ok(Some((0, false)));
        };
        let more = at + 1 < keys.len();
        let removed = self.remove_all(selection, &self.table.probe(key_of(key)), unwanted)?;
        selection.spot.0 = At::Number(at as u64 + 1);
        Ok(Some((removed, more)))
    }
}
