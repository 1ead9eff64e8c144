//! What the arguments of a call ask for.

use super::*;
use crate::vm::external;
use cats_pattern::PatternResult;

/// What a call is to do.
pub(super) struct Order<'g> {
    pub(super) handle: Handle<'g>,
    pub(super) program: Program,
    pub(super) action: Action,
    pub(super) direction: Direction,
    pub(super) limit: usize,
}

impl Order<'_> {
    /// As it is carried out slice by slice.
    pub(super) fn task(self) -> Result<Task, Failure> {
        let selection = Selection::of(self.handle.table(), &self.program, self.direction)?;
        let work = Work {
            tested: self.program.last_tested().unwrap_or(0),
            foregone: self.program.has_foregone(),
            unordered: self.action == Action::Count && self.program.is_foregone(),
            program: Some(self.program),
            action: self.action,
        };
        Ok(Task {
            work: Arc::new(work),
            chunked: self.limit != usize::MAX,
            limit: if selection.has_keys() { usize::MAX } else { self.limit },
            selection,
            yields: Yields::default(),
        })
    }
}

/// The order that the arguments of a call are.
pub(super) fn prepare<'g>(
    env: Env<'g>,
    guard: &'g Guard,
    function: Term,
    table: Term,
    specification: Term,
    limit: Term,
) -> Result<Order<'g>, Failure> {
    let is = |name: fn() -> Term| function == name();
    let pattern = |result| (Some(result), Action::Collect);
    let (pattern, action) = if is(atoms::match_) {
        pattern(PatternResult::Bindings)
    } else if is(atoms::match_object) {
        pattern(PatternResult::Object)
    } else if is(atoms::match_delete) {
        (Some(PatternResult::True), Action::Delete)
    } else if is(atoms::select) || is(atoms::select_reverse) {
        (None, Action::Collect)
    } else if is(atoms::select_count) {
        (None, Action::Count)
    } else if is(atoms::select_delete) {
        (None, Action::Delete)
    } else if is(atoms::select_replace) {
        (None, Action::Replace)
    } else {
        return Err(bad());
    };
    let handle = find(env, guard, table, action.want())?;
    let table = handle.table();
    let limit = match limit == atoms::infinity() {
        true => usize::MAX,
        false => chunk(limit)?,
    };
    if action == Action::Replace && table.kind() == TableKind::Bag {
        return Err(Cause::TableType.into());
    }
    let program = match pattern {
        Some(result) => {
            Program::pattern(&vm(), specification_block(env, guard, specification)?, result).map_err(|_| bad())?
        }
        None => compiled(env, guard, specification)?,
    };
    if action == Action::Replace && !program.keeps_key(table.key()) {
        return Err(bad());
    }
    // A list is built from its end; where there is a limit, the caller turns it round.
    let direction = match is(atoms::select_reverse) == (limit != usize::MAX) {
        true => Direction::Down,
        false => Direction::Up,
    };
    Ok(Order {
        handle,
        program,
        action,
        direction,
        limit,
    })
}

/// A match specification as a program.
pub fn compiled(env: Env, guard: &Guard, specification: Term) -> Result<Program, Failure> {
    Program::compile(&vm(), specification_block(env, guard, specification)?).map_err(|_| bad())
}

/// A specification as a program needs it.
#[inline]
fn specification_block(env: Env, guard: &Guard, specification: Term) -> Result<Block, Failure> {
    if !specification.is_immediate() {
        if let Some(block) = fast_block(env, guard, &[specification]) {
            return Ok(block);
        }
    }
    built(|builder| encode::specification(env, specification, builder))
}

/// What programs need of the VM.
fn vm() -> cats_pattern::Vm {
    cats_pattern::Vm {
        true_: atoms::true_().0,
        false_: atoms::false_().0,
        exit: atoms::exit().0,
        underscore: atoms::underscore().0,
        atom_text: crate::held::host::atom_text,
        node_of: |term| crate::held::host::with_term(term, |env, term| node_of(env, term).map(|node| node.0)),
        fun_arity: |term| {
            crate::held::host::with_term(term, |env, term| {
                external::of(env, term).and_then(|bytes| external::fun_arity(&bytes))
            })
        },
        bit_size: |term| {
            crate::held::host::with_term(term, |env, term| {
                external::of(env, term).map(|bytes| external::bits(&bytes, &mut Vec::new()) as u64)
            })
        },
        open: |term| {
            crate::held::host::with_term(term, |env, term| {
                built(|builder| encode::specification(env, term, builder)).ok()
            })
        },
    }
}
