//! Ordered operations: `next`, `prev`, ranges, scans and slots by number.
//!
//! Each operation gathers a chain: consecutive nodes of level 0, each with a token and protected by a hazard pointer. A
//! token is taken before the node's link and entry are read. All tokens are validated at the end. So at one instant the
//! first node was in the list and each link led to the next node.
//!
//! Nothing is locked. An attempt that another thread overtakes is repeated with half as many nodes. Links lead upwards
//! only, so a downward chain begins at a predecessor on a higher level.

use super::node::Node;
use super::search::{self, Target};
use super::{SkipList, Sought, ATTEMPTS};
use crate::hazard::{self, Hazards};
use cats_engine::{Busy, Cursor, Entry, OrderedSchema};
use cats_sync::epoch::Guard;
use smallvec::SmallVec;

/// The most nodes of a chain behind its first.
const LONGEST: usize = hazard::SLOTS - search::SLOTS - 1;

/// A node of a chain, with its token and entry.
struct Member {
    node: Node,
    token: u64,
    entry: Option<Entry>,
}

/// See the module's documentation.
#[derive(Default)]
struct Chain {
    members: SmallVec<[Member; 4]>,
    /// How many nodes were added, including those dropped again.
    added: usize,
}

impl Chain {
    fn clear(&mut self) {
        self.members.clear();
        self.added = 0;
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> + '_ {
        self.members.iter().filter_map(|member| member.entry)
    }

    /// The hazard slot for the next node. It protects none of the last `LONGEST` nodes.
    fn slot(&self) -> usize {
        search::SLOTS + self.added % (LONGEST + 1)
    }

    /// Adds a node; false if it is dead.
    fn add(&mut self, node: Node, token: u64) -> bool {
        let (dead, entry) = (node.is_dead(), node.entry());
        self.members.push(Member { node, token, entry });
        self.added += 1;
        !dead
    }

    fn holds(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.node.lock.validate(member.token))
    }
}

/// How a chain ends.
enum End {
    /// At the end of the list, in the direction of the walk.
    OfList,
    /// Before the end.
    Open,
    /// A node was removed during the walk.
    Gone,
}

impl<S: OrderedSchema> SkipList<S> {
    /// Calls `visit` with the first entries from a key on, up or down, and whether they are the last ones. Shows about
    /// `limit` entries, and at least one if there is any. `visit` may be repeated. The last call, whose result is
    /// returned, saw one state.
    pub(super) fn chain<R>(
        &self,
        guard: &Guard,
        from: Option<(Sought<'_, S>, bool)>,
        down: bool,
        limit: usize,
        mut visit: impl FnMut(&[Entry], bool) -> R,
    ) -> Result<R, Busy> {
        let hazards = Hazards::new(guard);
        let target = match &from {
            None => Target::End,
            Some((sought, inclusive)) if *inclusive == down => Target::After(sought),
            Some((sought, _)) => Target::At(sought),
        };
        let mut limit = limit.clamp(1, LONGEST);
        let mut chain = Chain::default();
        for _ in 0..ATTEMPTS {
            chain.clear();
            let end = if down {
                self.gather_down(&hazards, &target, limit, &mut chain)?
            } else {
                self.gather_up(&hazards, &target, from.is_none(), limit, &mut chain)?
            };
            let entries: SmallVec<[Entry; 4]> = if down {
                chain.entries().rev().take(limit).collect()
            } else {
                chain.entries().collect()
            };
            let end = match end {
                End::Gone => continue,
                End::Open => false,
                End::OfList => entries.len() == chain.entries().count(),
            };
            if entries.is_empty() && !end {
                // Only empty nodes, which contending updates left.
                if let Some(member) = chain.members.last() {
                    self.clean_node(&hazards, member.node);
                }
                continue;
            }
            let result = visit(&entries, end);
            if chain.holds() {
                return Ok(result);
            }
            limit = (limit / 2).max(1);
        }
        Err(Busy)
    }

    fn gather_up(
        &self,
        hazards: &Hazards<'_>,
        target: &Target<'_, '_, S>,
        from_first: bool,
        limit: usize,
        chain: &mut Chain,
    ) -> Result<End, Busy> {
        let mut last = if from_first {
            self.head
        } else {
            self.find(hazards, target)?.preds[0]
        };
        let token = last.lock.token_spinning()?;
        if !chain.add(last, token) {
            return Ok(End::Gone);
        }
        // The first node comes before the first result.
        chain.members[0].entry = None;
        let mut entries = 0;
        while entries < limit && chain.members.len() <= LONGEST {
            let Ok(next) = self.follow(hazards, last, 0, chain.slot()) else {
                return Ok(End::Gone);
            };
            let Some(node) = next else { return Ok(End::OfList) };
            let token = match node.lock.token() {
                Some(token) => token,
                // The gathered entries are enough for one call.
                None if entries > 0 => break,
                None => node.lock.token_spinning()?,
            };
            // A node that was inserted after the search, before the first result. The chain begins there.
            let before = !from_first && target.from(node).is_gt();
            if before {
                chain.members.clear();
            }
            if !chain.add(node, token) {
                return Ok(End::Gone);
            }
            if before {
                chain.members[0].entry = None;
            }
            entries += usize::from(chain.members.last().is_some_and(|member| member.entry.is_some()));
            last = node;
        }
        Ok(End::Open)
    }

    fn gather_down(
        &self,
        hazards: &Hazards<'_>,
        target: &Target<'_, '_, S>,
        limit: usize,
        chain: &mut Chain,
    ) -> Result<End, Busy> {
        let found = self.find(hazards, target)?;
        // A predecessor on a level is about 4 ^ level nodes before the target.
        let mut level = limit.next_power_of_two().ilog2().div_ceil(2) as usize;
        loop {
            chain.clear();
            let mut last = found.preds.get(level).copied().unwrap_or(self.head);
            let first = last;
            loop {
                let token = last.lock.token_spinning()?;
                if !chain.add(last, token) {
                    return Ok(End::Gone);
                }
                if chain.members.len() > LONGEST {
                    chain.members.remove(0);
                }
                let Ok(next) = self.follow(hazards, last, 0, chain.slot()) else {
                    return Ok(End::Gone);
                };
                match next {
                    Some(node) if target.from(node).is_gt() => last = node,
                    _ => break,
                }
            }
            if chain.members[0].node == self.head {
                return Ok(End::OfList);
            }
            if first == self.head || chain.entries().next().is_some() {
                return Ok(End::Open);
            }
            level += 1;
        }
    }

    /// The first entry after or before a key.
    pub(super) fn step<R>(
        &self,
        guard: &Guard,
        from: Option<&S::Probe>,
        down: bool,
        look: &mut impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let from = from.map(|probe| (self.sought(probe), false));
        self.chain(guard, from, down, 1, |entries, _| look(entries.first().copied()))
    }

    pub(super) fn scan_up<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position<S::Key>,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let mut places = 0;
        while !cursor.done && places < limit.max(1) {
            let start = out.len();
            let from = cursor
                .behind
                .as_ref()
                .map(|key| (self.sought(self.schema.probe(key)), false));
            let step = self.chain(guard, from, false, limit.max(1) - places, |entries, end| {
                out.truncate(start);
                entries.iter().for_each(|&entry| expand(entry, out));
                (entries.len(), entries.last().copied(), end)
            });
            let Ok((shown, last, end)) = step else {
                // Removes what failed attempts appended. What comes before is complete, and the cursor is behind it.
                out.truncate(start);
                return if places > 0 { Ok(true) } else { Err(Busy) };
            };
            places += shown;
            cursor.done = end;
            if let Some(last) = last {
                // SAFETY: the entry was valid under the guard, so what it points to is not freed yet.
                cursor.behind = Some(unsafe { self.schema.own(last) });
            }
        }
        Ok(!cursor.done)
    }

    pub(super) fn nth<T>(
        &self,
        guard: &Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        let mut left = number;
        let mut behind: Option<S::Key> = None;
        loop {
            let from = behind.as_ref().map(|key| (self.sought(self.schema.probe(key)), false));
            let mut out = Vec::new();
            let (shown, last, end) = self.chain(guard, from, false, left.saturating_add(1), |entries, end| {
                out.clear();
                if let Some(&entry) = entries.get(left) {
                    expand(entry, &mut out);
                }
                (entries.len(), entries.last().copied(), end)
            })?;
            if left < shown {
                return Ok(Some(out));
            }
            if end {
                return Ok(None);
            }
            left -= shown;
            // SAFETY: the entry was valid under the guard, so what it points to is not freed yet.
            behind = last.map(|last| unsafe { self.schema.own(last) });
        }
    }
}

/// The position of a scan: behind a key.
pub struct Position<K> {
    behind: Option<K>,
    done: bool,
}

impl<K> Default for Position<K> {
    fn default() -> Self {
        Self {
            behind: None,
            done: false,
        }
    }
}

impl<K: Send> Cursor for Position<K> {}
