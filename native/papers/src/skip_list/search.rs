//! Searches, protected by hazard pointers.
//!
//! A search for a lookup uses three hazard slots in rotating roles. One is for the node on which it stands, one for the
//! node that it reads next, and one for the node at which it left the level above.
//!
//! A search for an update keeps the predecessors and successors of all levels protected. It has two slots for each
//! level and alternates between them as it walks, so no announcement is ever copied.

use super::node::{Node, LEVELS};
use super::{SkipList, Sought, ATTEMPTS};
use crate::hazard::Hazards;
use cats_engine::{Busy, OrderedSchema};
use std::cmp::Ordering;

/// The hazard slots that searches use, from 0 on.
pub const SLOTS: usize = 2 * LEVELS;

/// The node on which a search stood was removed.
pub struct Gone;

/// What to find: the predecessors of a key's place, those of the place behind it, or the last nodes of the list.
pub enum Target<'q, 'a, S: OrderedSchema> {
    At(&'q Sought<'a, S>),
    After(&'q Sought<'a, S>),
    End,
}

impl<S: OrderedSchema> Target<'_, '_, S> {
    /// Where the target is, compared with a node: `Greater` is behind the node, `Equal` is at it.
    #[inline]
    pub fn from(&self, node: Node) -> Ordering {
        match self {
            Target::At(sought) => node.compare(sought),
            Target::After(sought) => match node.compare(sought) {
                Ordering::Equal => Ordering::Greater,
                decided => decided,
            },
            Target::End => Ordering::Greater,
        }
    }
}

/// The neighbours of a target on all levels, protected until the next search.
pub struct Found {
    /// The last node before the target on each level. It was found not dead, with its successor behind it.
    pub preds: [Node; LEVELS],
    /// The next node on each level.
    pub succs: [Option<Node>; LEVELS],
    /// The node of the key itself.
    pub hit: Option<Node>,
}

impl<S: OrderedSchema> SkipList<S> {
    /// The node behind `pred` on a level, protected by a hazard slot. `pred` is protected too.
    #[inline]
    pub(super) fn follow(
        &self,
        hazards: &Hazards<'_>,
        pred: Node,
        level: usize,
        slot: usize,
    ) -> Result<Option<Node>, Gone> {
        let next = hazards.protect(slot, pred.link(level));
        // `next` was announced before the link was read for the last time. If `pred` is not dead, it was in the list
        // then. So was `next`, which therefore had not been retired. A dead node keeps its links even if the nodes
        // behind them are freed.
        if pred.is_dead() {
            return Err(Gone);
        }
        if level > 0 {
            pred.prefetch_next(level - 1);
        }
        // SAFETY: protected, as just explained, until the slot is used again.
        Ok(unsafe { Node::from_address(next) })
    }

    /// The key's node, if it is found on some level. It is protected until the next search.
    pub(super) fn lookup(&self, hazards: &Hazards<'_>, sought: &Sought<'_, S>) -> Result<Option<Node>, Busy> {
        'again: for _ in 0..ATTEMPTS {
            let (mut pred, mut beyond) = (self.head, None);
            let (mut at, mut looking, mut left) = (0, 1, 2);
            for level in (0..LEVELS).rev() {
                loop {
                    let Ok(next) = self.follow(hazards, pred, level, looking) else {
                        continue 'again;
                    };
                    let Some(node) = next else { break };
                    if next == beyond {
                        break;
                    }
                    match node.compare(sought) {
                        Ordering::Greater => {
                            pred = node;
                            (at, looking) = (looking, at);
                        }
                        Ordering::Equal => return Ok(Some(node)),
                        Ordering::Less => {
                            beyond = next;
                            (left, looking) = (looking, left);
                            break;
                        }
                    }
                }
            }
            return Ok(None);
        }
        Err(Busy)
    }

    /// The target's neighbours on all levels.
    pub(super) fn find(&self, hazards: &Hazards<'_>, target: &Target<'_, '_, S>) -> Result<Found, Busy> {
        'again: for _ in 0..ATTEMPTS {
            let mut found = Found {
                preds: [self.head; LEVELS],
                succs: [None; LEVELS],
                hit: None,
            };
            let (mut pred, mut beyond) = (self.head, None);
            for level in (0..LEVELS).rev() {
                let (mut looking, mut other) = (2 * level, 2 * level + 1);
                loop {
                    let Ok(next) = self.follow(hazards, pred, level, looking) else {
                        continue 'again;
                    };
                    found.succs[level] = next;
                    let Some(node) = next else { break };
                    if next == beyond {
                        break;
                    }
                    let further = target.from(node);
                    if further == Ordering::Greater {
                        pred = node;
                        (looking, other) = (other, looking);
                        continue;
                    }
                    if further == Ordering::Equal {
                        found.hit = next;
                    }
                    beyond = next;
                    break;
                }
                found.preds[level] = pred;
            }
            return Ok(found);
        }
        Err(Busy)
    }
}
