//! A term that a guard or body builds: tuples, lists and maps inside one another, which are built at once.

use crate::program::{Output, Run};
use cats_term::{equal, needed, Builder, Item, TermRef, View, NIL};
use smallvec::{smallvec, SmallVec};
use std::sync::Arc;

/// The parts for which there is room on the processor's stack.
const STACK_PARTS: usize = 8;

/// The same for parts that are nested.
const SOME: usize = 16;

/// What is built.
#[derive(Default)]
pub(crate) struct Template {
    /// Each part before those that are nested in it. The tail of a list comes before its elements.
    pub(crate) pieces: SmallVec<[Piece; 4]>,
    /// The number of values that must be computed before.
    pub(crate) values: usize,
}

pub(crate) enum Piece {
    /// A tuple of so many elements.
    Tuple(usize),
    /// So many elements, at least one, before a tail.
    List(usize),
    /// So many pairs. Their keys are computed values from this one on. The values of the pairs follow.
    Map(usize, usize),
    /// A term of the specification, by its word.
    Constant(u64),
    Variable(usize),
    /// `'$_'`
    Object,
    /// `'$$'`: the places of all variables, in the order of the variables' numbers.
    Bindings(Arc<[usize]>),
    /// The computed value with this number.
    Value(usize),
    /// The same, if it is the object's element at a position. The second number is the word of the position.
    Element(usize, u64),
}

/// What the pieces without parts stand for.
struct Leaves<'r, 'a> {
    run: &'r Run<'a>,
    bindings: &'r [TermRef<'a>],
    values: &'r [TermRef<'a>],
    whole: TermRef<'a>,
}

impl<'a> Leaves<'_, 'a> {
    fn term(&self, piece: &Piece) -> Option<TermRef<'a>> {
        match *piece {
            Piece::Constant(word) => Some(self.run.constant(word)),
            Piece::Variable(place) => Some(self.bindings[place]),
            Piece::Object => Some(self.whole),
            Piece::Value(value) | Piece::Element(value, _) => Some(self.values[value]),
            Piece::Tuple(_) | Piece::List(_) | Piece::Map(..) | Piece::Bindings(_) => None,
        }
    }
}

/// The slots of an item that are to be filled next.
struct Hole {
    item: Item,
    next: usize,
    end: usize,
    /// The place of each value of a map, if some of its keys are equal.
    places: Option<Vec<usize>>,
}

impl Piece {
    /// The number of pieces that are nested in it directly.
    fn parts(&self) -> usize {
        match self {
            Piece::Tuple(count) | Piece::Map(count, _) => *count,
            Piece::List(count) => count + 1,
            _ => 0,
        }
    }
}

impl Template {
    /// The template of `'$$'`.
    pub(crate) fn bindings(places: Arc<[usize]>) -> Self {
        Template {
            pieces: smallvec![Piece::Bindings(places)],
            values: 0,
        }
    }

    /// The pieces of an element of the tuple that is built, if it is one.
    pub(crate) fn element(&self, position: usize) -> Option<&[Piece]> {
        let [Piece::Tuple(count), pieces @ ..] = &self.pieces[..] else {
            return None;
        };
        let mut rest = pieces;
        for _ in 0..position.min(*count) {
            rest = &rest[length(rest)..];
        }
        (position < *count).then(|| &rest[..length(rest)])
    }

    /// Marks the variables whose bindings the template uses.
    pub(crate) fn use_variables(&self, used: &mut [bool]) {
        for piece in &self.pieces {
            match piece {
                Piece::Variable(variable) => used[*variable] = true,
                Piece::Bindings(variables) => variables.iter().for_each(|&variable| used[variable] = true),
                _ => {}
            }
        }
    }

    /// Builds the term in the arena. `None` if it costs too much.
    #[inline(never)]
    pub(crate) fn build<'a>(
        &self,
        run: &Run<'a>,
        bindings: &[TermRef<'a>],
        values: &[TermRef<'a>],
    ) -> Option<TermRef<'a>> {
        run.arena.spend(self.pieces.len())?;
        let has_object = self.pieces.iter().any(|piece| matches!(piece, Piece::Object));
        let leaves = Leaves {
            run,
            bindings,
            values,
            whole: match has_object {
                true => run.whole()?,
                false => TermRef::immediate(NIL),
            },
        };
        run.arena.make(|builder| {
            let mut holes: SmallVec<[Hole; 4]> = SmallVec::new();
            let mut root = NIL;
            let mut pieces = &self.pieces[..];
            while let [piece, rest @ ..] = pieces {
                pieces = rest;
                let mut inner: SmallVec<[Hole; 2]> = SmallVec::new();
                let word = match piece {
                    Piece::Tuple(count) => {
                        let item = builder.tuple(*count);
                        inner.push(Hole::new(item, 0, *count));
                        item.word()
                    }
                    Piece::List(count) => {
                        let (item, has_tail) = begin_list(&leaves, builder, *count, pieces.first()?)?;
                        inner.push(Hole::new(item, 0, *count));
                        match has_tail {
                            true => pieces = &pieces[1..],
                            false => inner.push(Hole::new(item, *count, count + 1)),
                        }
                        item.word()
                    }
                    Piece::Map(count, first_key) => {
                        let hole = begin_map(&leaves, builder, &values[*first_key..][..*count])?;
                        let word = hole.item.word();
                        inner.push(hole);
                        word
                    }
                    Piece::Bindings(places) if places.is_empty() => NIL,
                    Piece::Bindings(places) => {
                        let item = builder.list(places.len());
                        let bound = places.iter().map(|&place| bindings[place]);
                        run.arena.copy_all(builder, item, 0, bound)?;
                        item.word()
                    }
                    leaf => run.arena.copy(builder, leaves.term(leaf)?)?,
                };
                match holes.last_mut() {
                    None => root = word,
                    Some(hole) => {
                        hole.fill(builder, word);
                        if hole.next == hole.end {
                            holes.pop();
                        }
                    }
                }
                needed(holes.try_reserve(2).ok());
                holes.extend(inner.into_iter().filter(|hole| hole.next < hole.end));
            }
            Some(root)
        })
    }

    /// Lets `output` build the term.
    #[inline]
    pub(crate) fn output<'a, O: Output>(
        &self,
        run: &Run<'a>,
        bindings: &[TermRef<'a>],
        values: &[TermRef<'a>],
        output: &mut O,
    ) -> O::Term {
        match &self.pieces[..] {
            // Nothing in it has parts, which is the usual case.
            [root, parts @ ..] if parts.len() == root.parts() && root.parts() <= STACK_PARTS => {
                let mut made = [output.term(TermRef::immediate(NIL)); STACK_PARTS];
                for (slot, part) in made.iter_mut().zip(parts) {
                    *slot = Self::leaf(part, run, bindings, values, output);
                }
                Self::whole(root, &made[..parts.len()], values, output)
                    .unwrap_or_else(|| Self::leaf(root, run, bindings, values, output))
            }
            _ => self.output_nested(run, bindings, values, output),
        }
    }

    /// A piece without parts.
    #[inline(always)]
    fn leaf<'a, O: Output>(
        piece: &Piece,
        run: &Run<'a>,
        bindings: &[TermRef<'a>],
        values: &[TermRef<'a>],
        output: &mut O,
    ) -> O::Term {
        match piece {
            Piece::Constant(word) => output.term(run.constant(*word)),
            Piece::Variable(place) => output.term(bindings[*place]),
            Piece::Value(value) | Piece::Element(value, _) => output.term(values[*value]),
            _ => Self::other_leaf(piece, bindings, output),
        }
    }

    #[inline(never)]
    fn other_leaf<O: Output>(piece: &Piece, bindings: &[TermRef<'_>], output: &mut O) -> O::Term {
        match piece {
            Piece::Object => output.object(),
            Piece::Bindings(places) => {
                let bound = places.iter().map(|&place| output.term(bindings[place]));
                let bound: SmallVec<[_; STACK_PARTS]> = bound.collect();
                let nil = output.term(TermRef::immediate(NIL));
                output.list(&bound, nil)
            }
            Piece::Map(..) => output.map(&[], &[]),
            _ => output.tuple(&[]),
        }
    }

    /// A piece with these parts. `None` if it is not of a kind that has parts.
    #[inline(always)]
    fn whole<O: Output>(piece: &Piece, parts: &[O::Term], values: &[TermRef<'_>], output: &mut O) -> Option<O::Term> {
        match (piece, parts) {
            (Piece::Tuple(_), parts) => Some(output.tuple(parts)),
            (Piece::List(_), [tail, elements @ ..]) => Some(output.list(elements, *tail)),
            (Piece::Map(count, first_key), parts) => {
                let keys = values[*first_key..][..*count].iter().map(|key| output.term(*key));
                let keys: SmallVec<[_; STACK_PARTS]> = keys.collect();
                Some(output.map(&keys, parts))
            }
            _ => None,
        }
    }

    #[inline(never)]
    fn output_nested<'a, O: Output>(
        &self,
        run: &Run<'a>,
        bindings: &[TermRef<'a>],
        values: &[TermRef<'a>],
        output: &mut O,
    ) -> O::Term {
        let (nil, root) = (output.term(TermRef::immediate(NIL)), (&self.pieces[0], 0));
        if self.pieces.len() <= SOME {
            return self.output_in(&mut [nil; SOME], &mut [root; SOME], run, bindings, values, output);
        }
        self.output_in(
            &mut filled(nil, self.pieces.len()),
            &mut filled(root, self.pieces.len()),
            run,
            bindings,
            values,
            output,
        )
    }

    /// `made` and `open` have room for all pieces.
    #[inline(always)]
    fn output_in<'a, 't, O: Output>(
        &'t self,
        // What is made and not yet in a whole.
        made: &mut [O::Term],
        // The pieces whose parts are being made, each inside the one before, and the first part of each.
        open: &mut [(&'t Piece, usize)],
        run: &Run<'a>,
        bindings: &[TermRef<'a>],
        values: &[TermRef<'a>],
        output: &mut O,
    ) -> O::Term {
        let (mut count, mut depth) = (0, 0);
        for piece in &self.pieces {
            if piece.parts() > 0 {
                open[depth] = (piece, count);
                depth += 1;
                continue;
            }
            made[count] = Self::leaf(piece, run, bindings, values, output);
            count += 1;
            while let Some(&(piece, first)) = open[..depth].last() {
                if count < first + piece.parts() {
                    break;
                }
                if let Some(whole) = Self::whole(piece, &made[first..count], values, output) {
                    made[first] = whole;
                }
                count = first + 1;
                depth -= 1;
            }
        }
        made[0]
    }
}

/// So many times the same.
pub(crate) fn filled<T: Copy>(item: T, count: usize) -> Vec<T> {
    let mut list = Vec::new();
    needed(list.try_reserve_exact(count).ok());
    list.resize(count, item);
    list
}

/// The number of pieces of the first part with all that is nested in it.
fn length(pieces: &[Piece]) -> usize {
    let (mut left, mut count) = (1, 0);
    while left > 0 {
        left += pieces[count].parts();
        left -= 1;
        count += 1;
    }
    count
}

/// Begins a list of elements before a tail. The tail, which may itself be a list, is added if it is a leaf. Returns whether it is.
fn begin_list(leaves: &Leaves, builder: &mut Builder, count: usize, tail: &Piece) -> Option<(Item, bool)> {
    let arena = leaves.run.arena;
    if let Piece::Bindings(places) = tail {
        let item = builder.list(count + places.len());
        let bound = places.iter().map(|&place| leaves.bindings[place]);
        arena.copy_all(builder, item, count, bound)?;
        return Some((item, true));
    }
    let Some(tail) = leaves.term(tail) else {
        return Some((builder.list(count), false));
    };
    let (more, end) = match tail.view() {
        View::List(list) => (Some(list.elements()), list.tail()),
        _ => (None, tail),
    };
    let item = builder.list(count + more.map_or(0, |more| more.len()));
    let more = more.into_iter().flat_map(|more| more.iter());
    arena.copy_all(builder, item, count, more.chain([end]))?;
    Some((item, true))
}

/// Begins a map with these keys. Of equal keys the last one counts.
fn begin_map<'a>(leaves: &Leaves<'_, 'a>, builder: &mut Builder, keys: &[TermRef<'a>]) -> Option<Hole> {
    let arena = leaves.run.arena;
    // Each key is compared with all keys after it.
    arena.spend(keys.len() * keys.len())?;
    let last = |i: usize| {
        (i + 1..keys.len())
            .rev()
            .find(|&later| equal(keys[later], keys[i]))
            .unwrap_or(i)
    };
    let last: Vec<usize> = (0..keys.len()).map(last).collect();
    let kept: Vec<usize> = (0..keys.len()).filter(|&i| last[i] == i).collect();
    let item = builder.unordered_map(kept.len());
    arena.copy_all(builder, item, 0, kept.iter().map(|&i| keys[i]))?;
    // The value of an earlier key is overwritten by that of the last one.
    let place = |i: &usize| kept.len() + kept.partition_point(|kept| kept < i);
    Some(match kept.len() == keys.len() {
        true => Hole::new(item, keys.len(), 2 * keys.len()),
        false => Hole {
            places: Some(last.iter().map(place).collect()),
            ..Hole::new(item, 0, keys.len())
        },
    })
}

impl Hole {
    fn new(item: Item, next: usize, end: usize) -> Self {
        Hole {
            item,
            next,
            end,
            places: None,
        }
    }

    fn fill(&mut self, builder: &mut Builder, word: u64) {
        let slot = self.places.as_ref().map_or(self.next, |places| places[self.next]);
        builder.set(self.item, slot, word);
        self.next += 1;
    }
}
