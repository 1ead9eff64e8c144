//! A compiled match specification.

use crate::arena::Arena;
use crate::bounds::open_places;
use crate::expression::{Expression, Guards, Op};
use crate::head::{Pattern, Variables};
use crate::matcher::{Comparison, Matcher};
use crate::name::{name, Name};
use cats_term::{is_immediate, needed, Block, BlockRef, Elements, List, Shape, TermRef, View, NIL};
use smallvec::{smallvec, Array, SmallVec};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

/// What match specifications need from the VM: the words of some atoms, and facts about terms that their layout does not show.
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
    /// The number of bits of a bit string whose last byte is incomplete.
    pub bit_size: fn(TermRef<'_>) -> Option<u64>,
    /// A held tuple, list or map with nothing held for its depth, as the first element of a block. `None` if that is too much for this
    /// scheduler.
    pub open: fn(TermRef<'_>) -> Option<Block>,
}

impl Vm {
    pub(crate) fn boolean(&self, value: bool) -> TermRef<'static> {
        TermRef::immediate(if value { self.true_ } else { self.false_ })
    }
}

/// The term is not a valid match specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// A compiled match specification. Owns the specification's terms.
pub struct Program {
    block: Block,
    pub(crate) code: Arc<Code>,
    /// The local node's name, once it was needed.
    node: OnceLock<u64>,
}

/// The compiled code of all specifications of one [shape](BlockRef::shape).
///
/// Code refers to a term of a specification by a *word*. As a rule that is the word in the specification's block. Specifications of one
/// shape may differ in small integers, local pids and ports. So for one of these the word is a multiple of four and says where in the block
/// it stands.
pub(crate) struct Code {
    vm: Vm,
    pub(crate) clauses: Vec<Clause>,
    /// That of the specification that was compiled.
    shape: Shape,
}

/// How a specification is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Clauses,
    Pattern(PatternResult),
}

/// The number of compiled codes that each thread keeps, and the number of words of the longest specification whose code is kept.
const KEPT: usize = 64;
const KEPT_WORDS: usize = 256;

thread_local! {
    /// Codes that were compiled, those first that are wanted often, each with the [label](Code::label) of its specifications. A program
    /// usually makes the same calls again with other keys. Compiling a small specification takes longer than running it.
    static CODES: RefCell<Vec<(u64, Arc<Code>)>> = const { RefCell::new(Vec::new()) };
}

/// The number of bindings for which there is room on the stack.
const STACK_BINDINGS: usize = 16;

pub(crate) struct Clause {
    pub(crate) head: Pattern,
    /// The word of the head, which is a term of the specification.
    pub(crate) word: u64,
    /// Which elements of the head are [ground](Pattern::is_ground), if it is a tuple.
    ground: SmallVec<[bool; 8]>,
    /// For each element of such a head, its [open places](open_places).
    pub(crate) open: Vec<Option<Box<[usize]>>>,
    /// The guards that compare a variable with a constant, in the order of the variables.
    pub(crate) comparisons: SmallVec<[Comparison; 1]>,
    /// The last expression of the body, which is the result.
    pub(crate) body: Expression,
    /// Whether the body has no other expression.
    pub(crate) has_one_body: bool,
    /// The head and the comparisons, as they run.
    matcher: Matcher,
    /// The other guards.
    guards: SmallVec<[Expression; 1]>,
    /// The number of bindings that a run needs: up to the last variable that something uses.
    bindings: usize,
    /// The result for every object that passes the matcher's tests. Absent if such an object may still not match, or something must be
    /// evaluated.
    foregone: Option<Foregone>,
}

/// The result for an object, known without evaluating anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Foregone {
    /// The object itself.
    Object,
    /// This immediate.
    Value(u64),
    /// The object does not match.
    Nothing,
}

/// The specification that is being compiled.
pub(crate) struct Spec<'a> {
    pub(crate) vm: &'a Vm,
    block: BlockRef<'a>,
}

impl<'a> Spec<'a> {
    /// The word by which code refers to an element.
    pub(crate) fn word(&self, elements: Elements<'a>, index: usize) -> u64 {
        match elements.get(index) {
            term if term.varies() => (self.place(elements, index) as u64) << 2,
            term => term.word(),
        }
    }

    /// An element, and the word by which code refers to it.
    pub(crate) fn part(&self, elements: Elements<'a>, index: usize) -> (TermRef<'a>, u64) {
        (elements.get(index), self.word(elements, index))
    }

    /// Adds the elements from place `from` on to a list of which the last is taken first.
    pub(crate) fn add_parts<A: Array>(
        &self,
        list: &mut SmallVec<A>,
        elements: Elements<'a>,
        from: usize,
        item: impl Fn(TermRef<'a>, u64) -> A::Item,
    ) {
        needed(list.try_reserve(elements.len() - from).ok());
        let parts = (from..elements.len()).rev().map(|index| self.part(elements, index));
        list.extend(parts.map(|(term, word)| item(term, word)));
    }

    /// What the first element of a tuple names, and the elements, if that is no tuple. A tuple with a tuple as its only element stands for
    /// that.
    pub(crate) fn call(&self, term: TermRef<'a>) -> Option<(Name, Elements<'a>)> {
        let elements = term.as_tuple().filter(|elements| !elements.is_empty())?;
        match (elements.len(), elements.get(0).as_tuple()) {
            (1, Some(_)) => None,
            _ => Some((name(self.vm, elements.get(0)), elements)),
        }
    }

    /// The place in the block where an element's word stands.
    pub(crate) fn place(&self, elements: Elements<'_>, index: usize) -> usize {
        self.block.place_of(elements) + index
    }

    /// The word by which code refers to a list's tail.
    pub(crate) fn tail_word(&self, list: List<'a>) -> u64 {
        let elements = list.elements();
        match list.tail() {
            // The tail stands after the elements.
            tail if tail.varies() => ((self.block.place_of(elements) + elements.len()) as u64) << 2,
            tail => tail.word(),
        }
    }
}

/// An object to match: its elements, and its block if it is stored as one.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    pub(crate) elements: Elements<'a>,
    block: Option<BlockRef<'a>>,
}

impl<'a> Object<'a> {
    /// An object that is stored as a block.
    #[inline]
    pub fn stored(block: BlockRef<'a>) -> Self {
        Object {
            elements: block.elements(),
            block: Some(block),
        }
    }

    /// A tuple of immediates that is not stored as a block.
    #[inline]
    pub fn immediates(words: &'a [u64]) -> Self {
        Object {
            elements: Elements::immediates(words),
            block: None,
        }
    }
}

/// Builds results. `Term` is a term of the VM, or something else that the caller collects.
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

/// The place in the block of a term that [varies](TermRef::varies), if code refers to one by this word.
#[inline(always)]
pub(crate) fn place(word: u64) -> Option<usize> {
    (word & 3 == 0).then_some((word >> 2) as usize)
}

/// One evaluation: the object, the constants, and the memory for new terms.
pub(crate) struct Run<'a> {
    pub(crate) program: &'a Program,
    pub(crate) arena: &'a Arena,
    pub(crate) object: &'a Object<'a>,
    /// The word of the calling process' pid.
    pub(crate) caller: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn vm(&self) -> &'a Vm {
        &self.program.code.vm
    }

    /// The number of words of the object and the specification together.
    pub(crate) fn words(&self) -> usize {
        let object = self.object.block.map_or(self.object.elements.len(), BlockRef::words);
        object + self.program.words()
    }

    /// The local node's name, which is the node of the calling process.
    pub(crate) fn node(&self) -> Option<TermRef<'static>> {
        let node = &self.program.node;
        if node.get().is_none() {
            let name = (self.vm().node_of)(TermRef::immediate(self.caller))?;
            node.get_or_init(|| name);
        }
        node.get().copied().map(TermRef::immediate)
    }

    /// A term of the specification, by the word by which code refers to it.
    #[inline]
    pub(crate) fn constant(&self, word: u64) -> TermRef<'a> {
        self.program.constant(word)
    }

    /// A term with nothing held in it for its depth. `None` if that costs too much.
    #[inline]
    pub(crate) fn opened(&self, term: TermRef<'a>) -> Option<TermRef<'a>> {
        match term.is_held_compound() {
            true => self.arena.open(self.vm(), term),
            false => Some(term),
        }
    }

    /// The object as a term.
    pub(crate) fn whole(&self) -> Option<TermRef<'a>> {
        self.object.block.map(BlockRef::term).or_else(|| {
            self.arena.make(|builder| {
                let item = builder.tuple(self.object.elements.len());
                self.arena.copy_all(builder, item, 0, self.object.elements.iter())?;
                Some(item.word())
            })
        })
    }
}

impl Program {
    /// Compiles the specification that is the first element of the block's tuple: a list of `{Head, Guards, Body}`.
    pub fn compile(vm: &Vm, block: Block) -> Result<Program, Invalid> {
        Self::new(vm, block, Form::Clauses)
    }

    /// A program of one clause without guards, which `match` and `match_object` run. Its result is `result`. The pattern is the first
    /// element of the block's tuple.
    pub fn pattern(vm: &Vm, block: Block, result: PatternResult) -> Result<Program, Invalid> {
        Self::new(vm, block, Form::Pattern(result))
    }

    fn new(vm: &Vm, block: Block, form: Form) -> Result<Program, Invalid> {
        let spec = block.as_ref();
        let code = match spec.words() <= KEPT_WORDS {
            true => Code::kept(vm, spec, form)?,
            false => Arc::new(Code::new(vm, spec, form)?),
        };
        Ok(Program {
            block,
            code,
            node: OnceLock::new(),
        })
    }

    /// The number of words of the specification.
    pub fn words(&self) -> usize {
        self.block.as_ref().words()
    }

    /// All words of the specification's block, and the word there that stands for an element of the clause's head, which is a tuple.
    pub(crate) fn words_and_element(&self, clause: &Clause, position: usize) -> Option<(&[u64], u64)> {
        let element = self.constant(clause.word).as_tuple()?.get(position).word();
        Some((self.block.as_ref().as_words(), element))
    }

    /// The only key with which an object can match, if there is one clause and its key is bound. `position` is the key's place in objects,
    /// counted from 0.
    pub fn only_key(&self, position: usize) -> Option<TermRef<'_>> {
        let [clause] = &self.code.clauses[..] else { return None };
        match self.constant(clause.word).view() {
            View::Tuple(elements) if *clause.ground.get(position)? => Some(elements.get(position)),
            _ => None,
        }
    }

    /// A term of the specification, by the word by which code refers to it.
    #[inline]
    pub(crate) fn constant(&self, word: u64) -> TermRef<'_> {
        // SAFETY: the word comes from this block, or from one of the same shape. In both it stands for an item at the same place.
        unsafe { TermRef::new(self.block.as_ref().address().as_ptr(), self.word(word)) }
    }

    /// The word that stands in the specification's block for a term.
    #[inline(always)]
    pub(crate) fn word(&self, word: u64) -> u64 {
        match place(word) {
            // SAFETY: the place comes from a block of the same shape, which has as many words as this one.
            Some(place) => unsafe { self.block.as_ref().address().add(place).read() },
            None => word,
        }
    }

    /// The place, counted from 0, of the last element that is read before it is known whether an object may match.
    pub fn last_tested(&self) -> Option<usize> {
        let clauses = self.code.clauses.iter();
        clauses.filter_map(|clause| clause.matcher.last_tested()).max()
    }

    /// The place of the first clause whose tests the object passes. If there is none, no clause matches the object. In a scan most objects
    /// end here. So this is inlined into the caller's loop, where the object is in registers.
    #[inline(always)]
    pub fn candidate(&self, object: Object<'_>) -> Option<usize> {
        // A loop, because `position` would become a function call.
        for (place, clause) in self.code.clauses.iter().enumerate() {
            if clause.matcher.passes(object.elements, self) {
                return Some(place);
            }
        }
        None
    }

    /// Whether the result may be [`foregone`](Self::foregone) for some objects.
    pub fn has_foregone(&self) -> bool {
        self.code.clauses.iter().any(|clause| clause.foregone.is_some())
    }

    /// Whether the result is [`foregone`](Self::foregone) for all objects.
    pub fn is_foregone(&self) -> bool {
        self.code.clauses.iter().all(|clause| clause.foregone.is_some())
    }

    /// The result for an object, if nothing must be bound or evaluated for it. `from` is the object's [`candidate`](Self::candidate).
    #[inline(always)]
    pub fn foregone(&self, from: usize, object: &Object<'_>) -> Option<Foregone> {
        let clause = &self.code.clauses[from];
        let result = clause.foregone?;
        match clause.matcher.tuples_pass(object.elements, self) {
            true => Some(result),
            false => (from + 1 == self.code.clauses.len()).then_some(Foregone::Nothing),
        }
    }

    /// Runs the program over an object. Returns the result of the first clause that matches, built by `output`. `None` if no clause
    /// matches. `from` is the object's [`candidate`](Self::candidate). `caller` is the word of the calling process' pid.
    pub fn run<O: Output>(
        &self,
        from: usize,
        object: &Object<'_>,
        caller: u64,
        arena: &Arena,
        output: &mut O,
    ) -> Option<O::Term> {
        self.first_match(from, object, caller, arena, |run, clause, bindings| {
            clause.result(run, bindings, output)
        })
    }

    /// Whether the program's result for the object is `true`. Counting and deleting need that. Arguments as for [`run`](Self::run).
    #[inline(always)]
    pub fn is_true(&self, from: usize, object: &Object<'_>, caller: u64, arena: &Arena) -> bool {
        match self.foregone(from, object) {
            Some(result) => result == Foregone::Value(self.code.vm.true_),
            None => self.comes_to_true(from, object, caller, arena),
        }
    }

    #[inline(never)]
    fn comes_to_true(&self, from: usize, object: &Object<'_>, caller: u64, arena: &Arena) -> bool {
        self.value(from, object, caller, arena)
            .is_some_and(|value| value.word() == self.code.vm.true_)
    }

    /// The program's result for the object, as a stored term. It lives until the arena is cleared. Arguments as for [`run`](Self::run).
    pub fn value<'a>(
        &'a self,
        from: usize,
        object: &'a Object<'a>,
        caller: u64,
        arena: &'a Arena,
    ) -> Option<TermRef<'a>> {
        self.first_match(from, object, caller, arena, |run, clause, bindings| {
            clause.body.evaluate(run, bindings, true)
        })
    }

    #[inline(always)]
    fn first_match<'a, R>(
        &'a self,
        from: usize,
        object: &'a Object<'a>,
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
        let mut clauses = self.code.clauses[from..].iter();
        let mut next = clauses.next();
        while let Some(clause) = next {
            let mut few = [const { MaybeUninit::uninit() }; STACK_BINDINGS];
            let mut many = Vec::new();
            let bindings = match few.get_mut(..clause.bindings) {
                Some(few) => unbound(few),
                None => {
                    many.resize(clause.bindings, TermRef::immediate(NIL));
                    &mut many[..]
                }
            };
            if clause.matches(&run, bindings) {
                return result(&run, clause, bindings);
            }
            next = clauses.find(|clause| clause.matcher.passes(object.elements, self));
        }
        None
    }
}

/// Bindings of variables that are not bound yet.
#[inline(always)]
fn unbound<'a, 'b>(room: &'b mut [MaybeUninit<TermRef<'a>>]) -> &'b mut [TermRef<'a>] {
    for slot in room.iter_mut() {
        slot.write(TermRef::immediate(NIL));
    }
    // SAFETY: all slots were written. `MaybeUninit<T>` has the same memory layout as `T`.
    unsafe { &mut *(std::ptr::from_mut(room) as *mut [TermRef<'a>]) }
}

/// The result that a single pattern has for an object that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternResult {
    /// The list of the variables' values, in the order of the variables' numbers (`'$$'`).
    Bindings,
    /// The object (`'$_'`).
    Object,
    /// `true`.
    True,
}

impl Form {
    fn number(self) -> u64 {
        match self {
            Form::Clauses => 0,
            Form::Pattern(PatternResult::Bindings) => 1,
            Form::Pattern(PatternResult::Object) => 2,
            Form::Pattern(PatternResult::True) => 3,
        }
    }
}

impl Code {
    /// A number that tells most codes apart without a look at their shapes.
    fn label(block: BlockRef<'_>, form: Form) -> u64 {
        (block.words() as u64) << 2 | form.number()
    }

    /// The code for a specification. The specification is compiled if no code for its shape is kept.
    fn kept(vm: &Vm, block: BlockRef<'_>, form: Form) -> Result<Arc<Code>, Invalid> {
        let label = Self::label(block, form);
        CODES.with_borrow_mut(|codes| {
            let is_wanted = |(other, code): &(u64, Arc<Code>)| *other == label && code.shape.is_of(block);
            if let Some(place) = codes.iter().position(is_wanted) {
                let code = codes[place].1.clone();
                // Half the way to the front, so that the order tells how often codes are wanted, and a change of it costs little.
                codes.swap(place, place / 2);
                return Ok(code);
            }
            let code = Arc::new(Code::new(vm, block, form)?);
            codes.truncate(KEPT - 1);
            codes.push((label, code.clone()));
            Ok(code)
        })
    }

    /// Compiles the specification that is the first element of the block's tuple.
    fn new(vm: &Vm, block: BlockRef<'_>, form: Form) -> Result<Code, Invalid> {
        let spec = Spec { vm, block };
        let clauses = match form {
            Form::Clauses => Self::clauses(&spec)?,
            Form::Pattern(result) => vec![Clause::of_pattern(&spec, result)?],
        };
        Ok(Code {
            vm: vm.clone(),
            clauses,
            shape: block.shape(),
        })
    }

    fn clauses(spec: &Spec<'_>) -> Result<Vec<Clause>, Invalid> {
        match spec.block.element(0).view() {
            View::Immediate(NIL) => Ok(Vec::new()),
            View::List(list) if list.tail().word() == NIL => {
                let clauses = list.elements().iter();
                clauses.map(|clause| Clause::compile(spec, clause)).collect()
            }
            _ => Err(Invalid),
        }
    }
}

impl Clause {
    fn of_pattern(spec: &Spec<'_>, result: PatternResult) -> Result<Clause, Invalid> {
        let mut variables = Variables::default();
        let elements = spec.block.elements();
        let head = Pattern::compile(spec, elements.get(0), spec.word(elements, 0), 0, &mut variables)?;
        let body = match result {
            PatternResult::Bindings => Expression::bindings(variables.in_order()),
            PatternResult::Object => Expression::object(),
            PatternResult::True => Expression::constant(spec.vm.true_),
        };
        let guards = (SmallVec::new(), SmallVec::new());
        Ok(Self::new(
            spec,
            head,
            elements.get(0),
            guards,
            (body, true),
            variables.len(),
        ))
    }

    fn compile<'a>(spec: &Spec<'a>, clause: TermRef<'a>) -> Result<Clause, Invalid> {
        let View::Tuple(parts) = clause.view() else {
            return Err(Invalid);
        };
        if parts.len() != 3 {
            return Err(Invalid);
        }
        let mut variables = Variables::default();
        let head = Pattern::compile(spec, parts.get(0), spec.word(parts, 0), 0, &mut variables)?;
        let guards = Expression::compile_guards(spec, parts.get(1), &variables)?;
        let body = Expression::compile_body(spec, parts.get(2), &variables)?;
        Ok(Self::new(spec, head, parts.get(0), guards, body, variables.len()))
    }

    /// `term` is the head in the specification.
    fn new(
        spec: &Spec<'_>,
        head: Pattern,
        term: TermRef<'_>,
        (mut comparisons, guards): Guards,
        (body, has_one_body): (Expression, bool),
        variables: usize,
    ) -> Clause {
        comparisons.sort_by_key(|comparison| comparison.variable);
        let mut used: SmallVec<[bool; 16]> = smallvec![false; variables];
        head.use_variables(&mut used);
        let users = guards.iter().chain([&body]);
        users.for_each(|expression| expression.use_variables(&mut used));
        let matcher = Matcher::new(&head, &comparisons, &used);
        let foregone = match body.ops[..] {
            _ if !guards.is_empty() || !matcher.is_tests_alone() => None,
            [Op::Object] => Some(Foregone::Object),
            [Op::Constant(word)] if is_immediate(word) => Some(Foregone::Value(word)),
            _ => None,
        };
        let ground = match &head {
            Pattern::Tuple(elements) => elements.iter().map(Pattern::is_ground).collect(),
            _ => SmallVec::new(),
        };
        let open = match (&head, term.view()) {
            (Pattern::Tuple(patterns), View::Tuple(elements)) if comparisons.is_empty() => {
                let parts = patterns.iter().zip(elements.iter());
                parts.map(|(pattern, part)| open_places(spec, pattern, part)).collect()
            }
            _ => Vec::new(),
        };
        Clause {
            matcher,
            foregone,
            ground,
            open,
            head,
            word: term.word(),
            comparisons,
            body,
            has_one_body,
            guards,
            bindings: used.iter().rposition(|used| *used).map_or(0, |last| last + 1),
        }
    }

    /// Whether an object that passes the matcher's tests matches. Binds variables.
    #[inline(always)]
    fn matches<'a>(&self, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> bool {
        self.matcher.matches(run, bindings)
            && self.guards.iter().all(|guard| {
                guard
                    .evaluate(run, bindings, false)
                    .is_some_and(|value| value.word() == run.vm().true_)
            })
    }

    #[inline(always)]
    fn result<'a, O: Output>(&self, run: &Run<'a>, bindings: &[TermRef<'a>], output: &mut O) -> Option<O::Term> {
        self.body.output(run, bindings, output)
    }
}
