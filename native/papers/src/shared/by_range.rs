//! Scans, and slots by number, for ordered engines that can do nothing better than read range after range.

use cats_engine::{Busy, Cursor, Entry, OrderedEngine, OrderedSchema, Range};
use cats_sync::epoch::Guard;

/// Entries that are counted while a lock is held once: some microseconds.
const SLICE: usize = 256;

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

/// [`Engine::scan`](cats_engine::Engine::scan), in ascending order. Each range is one state.
pub(crate) fn scan<S: OrderedSchema, T>(
    engine: &impl OrderedEngine<S>,
    schema: &S,
    guard: &Guard,
    cursor: &mut Position<S::Key>,
    limit: usize,
    out: &mut Vec<T>,
    mut expand: impl FnMut(Entry, &mut Vec<T>),
) -> Result<bool, Busy> {
    let mut places = 0;
    while !cursor.done && places < limit.max(1) {
        let mut last = None;
        let from = cursor.behind.as_ref().map(|key| schema.probe(key));
        let range = engine.range(guard, Range::above(from), limit.max(1) - places, out, |entry, out| {
            places += 1;
            last = Some(entry);
            expand(entry, out);
        });
        match range {
            Ok(more) => cursor.done = !more,
            // Earlier ranges are complete, and the cursor is behind them.
            Err(Busy) if places > 0 => return Ok(true),
            Err(Busy) => return Err(Busy),
        }
        if let Some(last) = last {
            // SAFETY: the entry was in the table under the guard, so what it points to is not freed yet.
            cursor.behind = Some(unsafe { schema.own(last) });
        }
    }
    Ok(!cursor.done)
}

/// [`Engine::slot`](cats_engine::Engine::slot), in linear time. Not linearizable.
pub(crate) fn slot<S: OrderedSchema, T>(
    engine: &impl OrderedEngine<S>,
    schema: &S,
    guard: &Guard,
    number: usize,
    mut expand: impl FnMut(Entry, &mut Vec<T>),
) -> Result<Option<Vec<T>>, Busy> {
    let (mut left, mut behind) = (number, None);
    loop {
        let (mut last, mut found) = (None, None);
        let from = behind.as_ref().map(|key| schema.probe(key));
        let limit = SLICE.min(left.saturating_add(1));
        let more = engine.range(guard, Range::above(from), limit, &mut Vec::<()>::new(), |entry, _| {
            last = Some(entry);
            if left > 0 {
                left -= 1;
            } else if found.is_none() {
                let mut out = Vec::new();
                expand(entry, &mut out);
                found = Some(out);
            }
        })?;
        if found.is_some() || !more {
            return Ok(found);
        }
        if let Some(last) = last {
            // SAFETY: the entry was in the table under the guard, so what it points to is not freed yet.
            behind = Some(unsafe { schema.own(last) });
        }
    }
}
