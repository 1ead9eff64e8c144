//! A compiled match specification.

use crate::arena::Arena;
use crate::expression::Expression;
use crate::head::{Pattern, Variables};
use crate::matcher::{split, Comparison, Matcher};
use cats_term::{Block, BlockRef, Elements, TermRef, View, NIL};
use smallvec::{smallvec, SmallVec};
use std::sync::OnceLock;

/// What match specifications need of the VM: words of some atoms, and what the terms' own layout does not tell.
#[derive(Clone)]
pub struct Vm {
    pub true_: u64,
    pub false_: u64,
    /// `'EXIT'`, the value of a call that fails in a body.
    pub exit: u64,
    /// `'_'`
    pub underscore: u64,
    /// Appends the text of an atom in UTF-8.
    pub atom_text: fn(u64, &mut Vec<u8>),
    /// The node of a pid, port or reference.
    pub node_of: fn(TermRef<'_>) -> Option<u64>,
    /// The arity of a fun.
    pub fun_arity: fn(TermRef<'_>) -> Option<u64>,
    /// The number of bits of a bit string that is not of whole bytes.
    pub bit_size: fn(TermRef<'_>) -> Option<u64>,
}

impl Vm {
    pub(crate) fn boolean(&self, value: bool) -> TermRef<'static> {
        TermRef::immediate(if value { self.true_ } else { self.false_ })
    }
}

/// The term is no match specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// A compiled match specification. Owns the specification's terms.
pub struct Program {
    vm: Vm,
    /// The local node's name, once it was asked for.
    node: OnceLock<u64>,
    block: Block,
    pub(crate) clauses: Vec<Clause>,
}

pub(crate) struct Clause {
    pub(crate) head: Pattern,
    /// The word of the head, a term of the specification.
    word: u64,
    /// The guards that compare a variable with a constant.
    pub(crate) comparisons: SmallVec<[Comparison; 1]>,
    pub(crate) body: SmallVec<[Expression; 1]>,
    /// The head as it is run, with the comparisons.
    matcher: Matcher,
    /// The other guards.
    guards: SmallVec<[Expression; 1]>,
    variables: usize,
}

/// What the compiler of one specification needs everywhere.
pub(crate) struct Spec<'a> {
    pub(crate) vm: &'a Vm,
}

/// An object to match: its elements, and itself as a term if it is stored as one.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    pub(crate) elements: Elements<'a>,
    pub(crate) whole: Option<TermRef<'a>>,
}

impl<'a> Object<'a> {
    /// An object that is stored as a block.
    pub fn stored(block: BlockRef<'a>) -> Self {
        Object {
            elements: block.elements(),
            whole: Some(block.term()),
        }
    }

    /// A tuple of immediates that is no stored term.
    pub fn immediates(words: &'a [u64]) -> Self {
        Object {
            elements: Elements::immediates(words),
            whole: None,
        }
    }
}

/// Builds results. `Term` is a term of the VM, or whatever the caller collects.
pub trait Output {
    type Term: Copy;
    /// The object that is being matched (`'$_'`).
    fn object(&mut self) -> Self::Term;
    /// A copy of a stored term.
    fn term(&mut self, term: TermRef<'_>) -> Self::Term;
    fn tuple(&mut self, elements: &[Self::Term]) -> Self::Term;
    fn list(&mut self, elements: &[Self::Term], tail: Self::Term) -> Self::Term;
    /// Of equal keys the last one counts.
    fn map(&mut self, keys: &[Self::Term], values: &[Self::Term]) -> Self::Term;
}

/// One evaluation: the object, the constants, where new terms are made.
pub(crate) struct Run<'a> {
    pub(crate) program: &'a Program,
    pub(crate) arena: &'a Arena,
    pub(crate) object: Object<'a>,
    /// The calling process.
    pub(crate) caller: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn vm(&self) -> &'a Vm {
        &self.program.vm
    }

    /// The local node's name: that of the calling process.
    pub(crate) fn node(&self) -> Option<TermRef<'static>> {
        let node = &self.program.node;
        if node.get().is_none() {
            let name = (self.vm().node_of)(TermRef::immediate(self.caller))?;
            node.get_or_init(|| name);
        }
        node.get().copied().map(TermRef::immediate)
    }

    /// A term of the specification by its word.
    pub(crate) fn constant(&self, word: u64) -> TermRef<'a> {
        // SAFETY: the word was read from this block, which the program keeps.
        unsafe { TermRef::new(self.program.block.as_ref().address().as_ptr(), word) }
    }

    /// The object as a term.
    pub(crate) fn whole(&self) -> Option<TermRef<'a>> {
        self.object.whole.or_else(|| {
            self.arena.make(|builder| {
                let item = builder.tuple(self.object.elements.len());
                for (slot, element) in self.object.elements.iter().enumerate() {
                    let word = builder.copy(element);
                    builder.set(item, slot, word);
                }
                item.word()
            })
        })
    }
}

impl Program {
    /// Compiles the specification that is the first element of the block's tuple: a list of `{Head, Guards, Body}`.
    pub fn compile(vm: &Vm, block: Block) -> Result<Program, Invalid> {
        // SAFETY: the block is moved below, but not its memory.
        let spec: BlockRef<'_> = unsafe { BlockRef::from_raw(block.as_ref().address()) };
        let clauses = match spec.element(0).view() {
            View::Immediate(NIL) => Vec::new(),
            View::List(list) if list.tail().word() == NIL => {
                let mut clauses = Vec::with_capacity(list.elements().len());
                for clause in list.elements().iter() {
                    clauses.push(Clause::compile(vm, clause)?);
                }
                clauses
            }
            _ => return Err(Invalid),
        };
        Ok(Program {
            vm: vm.clone(),
            node: OnceLock::new(),
            block,
            clauses,
        })
    }

    /// A program of one clause without guards whose result is `output_of(bindings)`: what `match` and `match_object` run.
    /// The pattern is the first element of the block's tuple.
    pub fn pattern(vm: &Vm, block: Block, result: PatternResult) -> Result<Program, Invalid> {
        // SAFETY: as in `compile`.
        let spec: BlockRef<'_> = unsafe { BlockRef::from_raw(block.as_ref().address()) };
        let mut variables = Variables::default();
        let head = Pattern::compile(&Spec { vm }, spec.element(0), &mut variables)?;
        let body = match result {
            PatternResult::Bindings => Expression::Bindings(variables.in_order()),
            PatternResult::Object => Expression::Object,
            PatternResult::True => Expression::Constant(vm.true_),
        };
        let clause = Clause::new(
            head,
            spec.element(0).word(),
            SmallVec::new(),
            smallvec![body],
            variables.len(),
        );
        Ok(Program {
            vm: vm.clone(),
            node: OnceLock::new(),
            block,
            clauses: vec![clause],
        })
    }

    /// The only key that objects can have for the program to match them, if it is of one clause with a bound key. `position` is
    /// the key's place in objects, counted from 0.
    pub fn only_key(&self, position: usize) -> Option<TermRef<'_>> {
        let [clause] = &self.clauses[..] else { return None };
        match (&clause.head, self.constant(clause.word).view()) {
            (Pattern::Tuple(patterns), View::Tuple(elements)) if patterns.get(position)?.is_ground() => {
                Some(elements.get(position))
            }
            _ => None,
        }
    }

    /// A term of the specification by its word.
    pub(crate) fn constant(&self, word: u64) -> TermRef<'_> {
        // SAFETY: the word was read from this block.
        unsafe { TermRef::new(self.block.as_ref().address().as_ptr(), word) }
    }

    /// Runs the program over an object: the result of the first clause that matches, as `output` builds it, or nothing.
    /// `caller` is the word of the calling process' pid.
    pub fn run<O: Output>(&self, object: Object<'_>, caller: u64, arena: &Arena, output: &mut O) -> Option<O::Term> {
        self.first_match(object, caller, arena, |run, clause, bindings| {
            clause.result(run, bindings, output)
        })
    }

    /// Whether the program's result for the object is `true`: what counting and deleting ask.
    pub fn is_true(&self, object: Object<'_>, caller: u64, arena: &Arena) -> bool {
        self.value(object, caller, arena)
            .is_some_and(|value| value.word() == self.vm.true_)
    }

    /// The program's result for the object as a stored term, which lives as long as the arena is not cleared.
    pub fn value<'a>(&'a self, object: Object<'a>, caller: u64, arena: &'a Arena) -> Option<TermRef<'a>> {
        self.first_match(object, caller, arena, |run, clause, bindings| {
            clause.body.last()?.evaluate(run, bindings, true)
        })
    }

    fn first_match<'a, R>(
        &'a self,
        object: Object<'a>,
        caller: u64,
        arena: &'a Arena,
        result: impl FnOnce(&Run<'a>, &'a Clause, &[TermRef<'a>]) -> Option<R>,
    ) -> Option<R> {
        let run = Run {
            program: self,
            arena,
            object,
            caller,
        };
        for clause in self.clauses.iter().filter(|clause| clause.matcher.passes(&run)) {
            let mut bindings = SmallVec::<[_; 16]>::new();
            bindings.resize(clause.variables, TermRef::immediate(NIL));
            if clause.matches(&run, &mut bindings) {
                return result(&run, clause, &bindings);
            }
        }
        None
    }
}

/// What a single pattern yields for an object that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternResult {
    /// The list of the variables' values in the order of their numbers (`'$$'`).
    Bindings,
    /// The object (`'$_'`).
    Object,
    /// `true`.
    True,
}

impl Clause {
    fn compile(vm: &Vm, clause: TermRef<'_>) -> Result<Clause, Invalid> {
        let View::Tuple(parts) = clause.view() else {
            return Err(Invalid);
        };
        if parts.len() != 3 {
            return Err(Invalid);
        }
        let spec = Spec { vm };
        let mut variables = Variables::default();
        let head = Pattern::compile(&spec, parts.get(0), &mut variables)?;
        let guards = Expression::compile_list(&spec, parts.get(1), &variables)?;
        let body = Expression::compile_list(&spec, parts.get(2), &variables)?;
        if body.is_empty() {
            return Err(Invalid);
        }
        Ok(Self::new(head, parts.get(0).word(), guards, body, variables.len()))
    }

    fn new(
        head: Pattern,
        word: u64,
        guards: SmallVec<[Expression; 1]>,
        body: SmallVec<[Expression; 1]>,
        variables: usize,
    ) -> Clause {
        let (comparisons, guards) = split(guards);
        Clause {
            matcher: Matcher::new(&head, variables, &comparisons, guards.iter().chain(&body)),
            head,
            word,
            comparisons,
            body,
            guards,
            variables,
        }
    }

    /// Whether an object that passes the matcher's tests matches; binds variables.
    #[inline]
    fn matches<'a>(&self, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> bool {
        self.matcher.matches(run, bindings)
            && self.guards.iter().all(|guard| {
                guard
                    .evaluate(run, bindings, false)
                    .is_some_and(|value| value.word() == run.vm().true_)
            })
    }

    fn result<'a, O: Output>(&self, run: &Run<'a>, bindings: &[TermRef<'a>], output: &mut O) -> Option<O::Term> {
        self.body.last()?.output(run, bindings, output)
    }
}
