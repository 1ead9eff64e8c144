//! What is left to do of a call that goes over a table in slices, and the cursor that refers to it.

use super::*;

/// How many times as many words of results as there are are expected at most.
const FORESIGHT: usize = 8;

/// Work over a table, and how far it has come.
pub struct Cursor {
    pub(super) table: Owned<Table>,
    pub(super) task: Task,
}

#[derive(Clone)]
pub(super) struct Task {
    pub(super) work: Arc<Work>,
    pub(super) selection: Selection,
    /// Whether results are wanted in chunks.
    pub(super) chunked: bool,
    /// How many more results make a chunk; `usize::MAX` where the work does not stop for chunks.
    pub(super) limit: usize,
    pub(super) yields: Yields,
}

/// What a scan has shown and made so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Yields {
    pub(super) objects: usize,
    pub(super) words: usize,
}

impl Yields {
    /// How many words all results of a scan of so many objects may take. It extrapolates from what was made, with some room, up
    /// to a fixed factor.
    pub(super) fn expected(self, objects: usize) -> usize {
        let words = self.words.saturating_mul(objects.max(self.objects)) / self.objects.max(1);
        (words + words / 8).min(FORESIGHT * self.words)
    }
}

/// What is done to the objects of a table.
pub(super) struct Work {
    /// Without one, all objects are collected.
    pub(super) program: Option<Program>,
    pub(super) action: Action,
    /// The last place of an object that is tested, of those that the program's clauses test.
    pub(super) tested: usize,
    /// Whether the program has clauses whose result for an object may be foregone.
    pub(super) foregone: bool,
    /// Whether objects may be gone through in any order: they are counted, and without computing anything.
    pub(super) unordered: bool,
}

impl Value for Cursor {
    const NAME: &'static CStr = c"cursor";
}

pub static CURSORS: Kind<Cursor> = Kind::new();

pub(super) fn cursor(env: Env, handle: Handle<'_>, task: Task) -> Term {
    let table = owned(handle.table());
    CURSORS.make(env, Cursor { table, task })
}

/// The table of a cursor, if the term is one.
pub fn table_of_cursor(env: Env<'_>, term: Term) -> Option<&Table> {
    CURSORS.get(env, term).map(|cursor| &*cursor.table)
}

/// One more reference to a table.
pub fn owned(table: &Table) -> Owned<Table> {
    // SAFETY: tables exist inside resources only, and this one lives; the reference that is taken back here is taken first.
    unsafe {
        enif_keep_resource((table as *const Table).cast_mut().cast());
        Owned::from_raw(table)
    }
}
