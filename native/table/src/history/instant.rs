//! The instant of a snapshot. All tables of one call share one.
//!
//! ```text
//! PENDING ---> CLOSING ---> LIVE
//!    ^            |
//!    +------------+          CANCELLED: from the first two
//! ```
//!
//! While the instant is pending, writers say that they are inside, and write as if there were no snapshot. To close, somebody lets no more
//! writers in, and waits for those that are inside. Then nobody writes, so the sizes of the tables are exact. The store of [`LIVE`] is the
//! instant, for all tables. Every write to one of them is wholly before or wholly after it.
//!
//! The taker closes it. A process that wants another snapshot of one of the tables closes it too, so it need not wait for the taker, which
//! may not run for long.

use super::Node;
use cats_sync::clock;
use cats_sync::epoch::{pin, Moment};
use cats_sync::facade::{spin_loop, store_load_fence, AtomicU32, AtomicUsize, Ordering};
use cats_sync::Busy;
use std::sync::{Arc, OnceLock, Weak};

const PENDING: u32 = 0;
const CLOSING: u32 = 1;
const LIVE: u32 = 2;
const CANCELLED: u32 = 3;

/// How often a writer or the taker looks before it gives up: some microseconds.
const SPINS: usize = if cfg!(any(loom, shuttle)) { 3 } else { 1000 };

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Instant {
    state: AtomicU32,
    /// Writers that are inside.
    writers: AtomicUsize,
    begun: OnceLock<Members>,
}

/// The nodes of all tables, and when all were in their places.
#[derive(Debug)]
struct Members {
    nodes: Vec<Weak<Node>>,
    moment: Moment,
}

/// What a writer has to do for a snapshot.
pub enum Entry<'a> {
    /// The instant is past, so the writer must keep what it changes.
    Past,
    /// The instant is not before the writer drops this value.
    Before(Inside<'a>),
    /// The snapshot was given up.
    Never,
}

/// A writer that is inside.
pub struct Inside<'a>(&'a Instant);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Release pairs with the load in `close`: the taker sees what the writer did.
        self.0.writers.fetch_sub(1, Ordering::Release);
    }
}

impl Instant {
    /// To be called when the nodes of all tables are in their places.
    pub fn begin<'a>(&self, nodes: impl Iterator<Item = &'a Arc<Node>>) {
        let nodes = nodes.map(Arc::downgrade).collect();
        self.begun.get_or_init(|| Members {
            nodes,
            moment: Moment::now(),
        });
    }

    /// To be called by a writer before it changes anything. Fails while the taker closes.
    pub fn enter(&self) -> Result<Entry<'_>, Busy> {
        for _ in 0..SPINS {
            // Acquire pairs with the Release in `set`.
            match self.state.load(Ordering::Acquire) {
                LIVE => return Ok(Entry::Past),
                CANCELLED => return Ok(Entry::Never),
                PENDING => {
                    // SeqCst, for both: a store-load pair with `close`. Either the taker sees this writer, or the writer sees the new state.
                    self.writers.fetch_add(1, Ordering::SeqCst);
                    let inside = Inside(self);
                    store_load_fence();
                    if self.state.load(Ordering::SeqCst) == PENDING {
                        return Ok(Entry::Before(inside));
                    }
                }
                _ => spin_loop(),
            }
        }
        Err(Busy)
    }

    /// Makes this the past when no writer is inside and none can enter, and notes the sizes of the tables. Fails while somebody still writes
    /// as if there were no snapshot. Returns false if the snapshot was given up. The caller has no guard.
    pub fn close(&self) -> Result<bool, Busy> {
        if !self.is_open() {
            return Ok(self.is_past());
        }
        let begun = self.begun.get().ok_or(Busy)?;
        if !begun.moment.is_past() {
            return Err(Busy);
        }
        let guard = pin();
        let exchange = |from, to| {
            // SeqCst: as in `enter`.
            self.state
                .compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire)
        };
        match exchange(PENDING, CLOSING) {
            Err(LIVE) => return Ok(true),
            Err(CANCELLED) => return Ok(false),
            Err(_) => return Err(Busy),
            Ok(_) => store_load_fence(),
        }
        for _ in 0..SPINS {
            // SeqCst: as in `enter`. Acquire pairs with the Release of a writer that leaves.
            if self.writers.load(Ordering::SeqCst) == 0 {
                let time = clock::now();
                for node in begun.nodes.iter().filter_map(Weak::upgrade) {
                    node.note_size(&guard, time);
                }
                return Ok(exchange(CLOSING, LIVE).is_ok());
            }
            spin_loop();
        }
        match exchange(CLOSING, PENDING) {
            Ok(_) => Err(Busy),
            Err(_) => Ok(false),
        }
    }

    /// Gives the snapshot up, unless its instant is past.
    pub fn cancel(&self) {
        for from in [PENDING, CLOSING, PENDING] {
            // AcqRel: as in `close`.
            let _ = self
                .state
                .compare_exchange(from, CANCELLED, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Whether it is not known yet if there will be a snapshot.
    pub fn is_open(&self) -> bool {
        // Acquire: as in `enter`.
        matches!(self.state.load(Ordering::Acquire), PENDING | CLOSING)
    }

    pub fn is_past(&self) -> bool {
        // Acquire: as in `enter`.
        self.state.load(Ordering::Acquire) == LIVE
    }

    pub fn is_cancelled(&self) -> bool {
        // Acquire: as in `enter`.
        self.state.load(Ordering::Acquire) == CANCELLED
    }
}
