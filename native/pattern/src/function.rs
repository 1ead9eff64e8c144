//! The functions that guards and bodies may call, which are Erlang's guard functions. A call returns `None` where the function fails.

use crate::arithmetic::Number;
use crate::head::{map_get, rest};
use crate::program::{Run, Vm};
use cats_term::{compare, equal, small, Class, Map, TermRef, View, NIL};
use smallvec::SmallVec;
use std::cmp::Ordering::{Equal, Greater, Less};

macro_rules! functions {
    ($($name:literal / $arity:literal => $function:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Function { $($function,)* }

        impl Function {
            /// The names of all functions. A name with several arities occurs several times.
            pub(crate) const NAMES: &[&str] = &[$($name),*];

            /// The function with this name and this number of arguments.
            pub(crate) fn find(name: &str, arity: usize) -> Option<Function> {
                match (name, arity) {
                    $(($name, $arity) => Some(Function::$function),)*
                    _ => None,
                }
            }
        }
    };
}

functions! {
    "is_atom"/1 => IsAtom,
    "is_binary"/1 => IsBinary,
    "is_bitstring"/1 => IsBitString,
    "is_boolean"/1 => IsBoolean,
    "is_float"/1 => IsFloat,
    "is_function"/1 => IsFun,
    "is_function"/2 => HasArity,
    "is_integer"/1 => IsInteger,
    "is_integer"/3 => IsIntegerBetween,
    "is_list"/1 => IsList,
    "is_map"/1 => IsMap,
    "is_map_key"/2 => IsMapKey,
    "is_number"/1 => IsNumber,
    "is_pid"/1 => IsPid,
    "is_port"/1 => IsPort,
    "is_record"/3 => IsRecord,
    "is_reference"/1 => IsReference,
    "is_tuple"/1 => IsTuple,
    "abs"/1 => Abs,
    "binary_part"/2 => BinaryPartOfPair,
    "binary_part"/3 => BinaryPart,
    "bit_size"/1 => BitSize,
    "byte_size"/1 => ByteSize,
    "ceil"/1 => Ceil,
    "element"/2 => Element,
    "float"/1 => Float,
    "floor"/1 => Floor,
    "hd"/1 => Head,
    "length"/1 => Length,
    "map_get"/2 => MapGet,
    "map_size"/1 => MapSize,
    "max"/2 => Max,
    "min"/2 => Min,
    "node"/0 => Node,
    "node"/1 => NodeOf,
    "round"/1 => Round,
    "size"/1 => Size,
    "tl"/1 => Tail,
    "trunc"/1 => Trunc,
    "tuple_size"/1 => TupleSize,
    "+"/1 => Plus,
    "-"/1 => Minus,
    "+"/2 => Add,
    "-"/2 => Subtract,
    "*"/2 => Multiply,
    "/"/2 => Divide,
    "div"/2 => Quotient,
    "rem"/2 => Remainder,
    "band"/2 => BitAnd,
    "bor"/2 => BitOr,
    "bxor"/2 => BitXor,
    "bnot"/1 => BitNot,
    "bsl"/2 => ShiftLeft,
    "bsr"/2 => ShiftRight,
    ">"/2 => Above,
    ">="/2 => AtLeast,
    "<"/2 => Below,
    "=<"/2 => AtMost,
    "=="/2 => EqualTo,
    "/="/2 => Unequal,
    "=:="/2 => Same,
    "=/="/2 => Different,
    "not"/1 => Not,
    "xor"/2 => Xor,
}

/// The number of words that can be compared in the time in which one word can be made.
const COMPARED: usize = 16;

impl Function {
    /// The comparison that is equivalent when its arguments are exchanged. `None` for functions that are not comparisons.
    pub(crate) fn mirrored(self) -> Option<Function> {
        match self {
            Function::Above => Some(Function::Below),
            Function::Below => Some(Function::Above),
            Function::AtLeast => Some(Function::AtMost),
            Function::AtMost => Some(Function::AtLeast),
            Function::EqualTo | Function::Unequal | Function::Same | Function::Different => Some(self),
            _ => None,
        }
    }

    /// Calls the function. `arguments` has as many terms as the function's arity.
    #[inline]
    pub(crate) fn call<'a>(self, run: &Run<'a>, arguments: &[TermRef<'a>]) -> Option<TermRef<'a>> {
        if let [a, b] = arguments {
            if let (Some(a), Some(b)) = (a.small(), b.small()) {
                if let Some(word) = self.of_small(a, b, run.vm()) {
                    return Some(TermRef::immediate(word));
                }
            }
        }
        self.call_any(run, arguments)
    }

    /// The word of the result for two small integers. `None` if the function is not listed here, or if its result is not an immediate.
    #[inline]
    fn of_small(self, a: i64, b: i64, vm: &Vm) -> Option<u64> {
        let boolean = |value: bool| Some(vm.boolean(value).word());
        match self {
            Function::Above => boolean(a > b),
            Function::AtLeast => boolean(a >= b),
            Function::Below => boolean(a < b),
            Function::AtMost => boolean(a <= b),
            Function::EqualTo | Function::Same => boolean(a == b),
            Function::Unequal | Function::Different => boolean(a != b),
            // This cannot overflow, as small integers have 60 bits.
            Function::Add => small(a + b),
            Function::Subtract => small(a - b),
            Function::Multiply => a.checked_mul(b).and_then(small),
            Function::Quotient => a.checked_div(b).and_then(small),
            Function::Remainder => a.checked_rem(b).and_then(small),
            Function::BitAnd => small(a & b),
            Function::BitOr => small(a | b),
            Function::BitXor => small(a ^ b),
            _ => None,
        }
    }

    /// Whether the function looks at the parts of a tuple, list or map.
    fn looks_inside(self) -> bool {
        use Function::*;
        matches!(
            self,
            BinaryPartOfPair
                | Element
                | Head
                | IsMapKey
                | IsRecord
                | Length
                | MapGet
                | MapSize
                | Size
                | Tail
                | TupleSize
        )
    }

    #[cold]
    fn call_opened<'a>(self, run: &Run<'a>, arguments: &[TermRef<'a>]) -> Option<TermRef<'a>> {
        let opened = arguments.iter().map(|&argument| run.opened(argument));
        self.call_any(run, &opened.collect::<Option<SmallVec<[_; 3]>>>()?)
    }

    fn call_any<'a>(self, run: &Run<'a>, arguments: &[TermRef<'a>]) -> Option<TermRef<'a>> {
        use Function::*;
        if self.looks_inside() && arguments.iter().any(|argument| argument.is_held_compound()) {
            return self.call_opened(run, arguments);
        }
        let vm = run.vm();
        let boolean = |value: bool| Some(vm.boolean(value));
        let class = |class: Class| boolean(arguments[0].class() == class);
        let number = |i: usize| {
            let number = Number::of(arguments[i])?;
            run.arena.spend(number.digits())?;
            Some(number)
        };
        let integer = |i: usize| number(i).filter(|number| !matches!(number, Number::Float(_)));
        // To be called before two numbers are multiplied or divided. That takes time in proportion to the product of their lengths.
        let pair = |a: Option<Number>, b: Option<Number>| {
            let (a, b) = (a?, b?);
            run.arena.spend(a.digits() * b.digits() / COMPARED)?;
            Some((a, b))
        };
        let made = |number: Number| number.term(run.arena);
        let count = |count: u64| {
            i64::try_from(count)
                .ok()
                .and_then(|count| Number::Small(count).term(run.arena))
        };
        let order = || compare(arguments[0], arguments[1]);
        let found = |map: Map<'a>| {
            run.arena.spend(map.keys.len() / COMPARED)?;
            Some(map_get(map, arguments[0]))
        };
        let truth = |i: usize| match arguments[i].word() {
            word if word == vm.true_ => Some(true),
            word if word == vm.false_ => Some(false),
            _ => None,
        };
        if let [a, b, ..] = arguments {
            if !a.is_immediate() && !b.is_immediate() {
                // It is not known how far they must be compared. At most all words of the object and the specification are.
                run.arena.spend(run.words() / COMPARED)?;
            }
        }
        match self {
            IsAtom => class(Class::Atom),
            IsBinary => boolean(arguments[0].bytes().is_some()),
            IsBitString => class(Class::BitString),
            IsBoolean => boolean(truth(0).is_some()),
            IsFloat => boolean(matches!(number(0), Some(Number::Float(_)))),
            IsFun => class(Class::Fun),
            HasArity => {
                // A negative arity makes the call fail. It is not just a mismatch.
                let arity = arguments[1];
                let negative = match arity.view() {
                    View::Integer(big) => big.negative,
                    _ => arity.small()? < 0,
                };
                (!negative).then_some(())?;
                let is_fun = arguments[0].class() == Class::Fun;
                boolean(is_fun && (vm.fun_arity)(arguments[0]).and_then(|n| i64::try_from(n).ok()) == arity.small())
            }
            IsInteger => boolean(integer(0).is_some()),
            IsIntegerBetween => {
                integer(1)?;
                integer(2)?;
                let between =
                    compare(arguments[1], arguments[0]) != Greater && compare(arguments[0], arguments[2]) != Greater;
                boolean(integer(0).is_some() && between)
            }
            IsList => boolean(matches!(arguments[0].class(), Class::List | Class::Nil)),
            IsMap => class(Class::Map),
            IsMapKey => match arguments[1].view() {
                View::Map(map) => boolean(found(map)?.is_some()),
                _ => None,
            },
            IsNumber => class(Class::Number),
            IsPid => class(Class::Pid),
            IsPort => class(Class::Port),
            IsRecord => {
                let (tag, size) = (arguments[1], arguments[2]);
                (tag.class() == Class::Atom).then_some(())?;
                if size.class() == Class::Atom {
                    // The atom names the module of a native record. The VM does not tell a library which record a term is.
                    return boolean(false);
                }
                let size = size.small()?;
                boolean(match arguments[0].view() {
                    View::Tuple(elements) => {
                        !elements.is_empty() && elements.len() as i64 == size && equal(elements.get(0), tag)
                    }
                    _ => false,
                })
            }
            IsReference => class(Class::Reference),
            IsTuple => class(Class::Tuple),
            Abs => made(number(0)?.absolute()?),
            BinaryPartOfPair => match arguments[1].view() {
                View::Tuple(pair) if pair.len() == 2 => binary_part(run, arguments[0], pair.get(0), pair.get(1)),
                _ => None,
            },
            BinaryPart => binary_part(run, arguments[0], arguments[1], arguments[2]),
            BitSize => count(bits(run, arguments[0])?),
            ByteSize => count(bits(run, arguments[0])?.div_ceil(8)),
            Ceil => made(number(0)?.rounded(f64::ceil)?),
            Element => match arguments[1].view() {
                View::Tuple(elements) => {
                    let index = usize::try_from(arguments[0].small()?).ok()?.checked_sub(1)?;
                    (index < elements.len()).then(|| elements.get(index))
                }
                _ => None,
            },
            Float => made(Number::Float(number(0)?.float()?)),
            Floor => made(number(0)?.rounded(f64::floor)?),
            Head => match arguments[0].view() {
                View::List(list) => Some(list.elements().get(0)),
                _ => None,
            },
            Length => match arguments[0].view() {
                View::Immediate(NIL) => count(0),
                View::List(list) if list.tail().word() == NIL => count(list.elements().len() as u64),
                _ => None,
            },
            MapGet => match arguments[1].view() {
                View::Map(map) => found(map)?,
                _ => None,
            },
            MapSize => match arguments[0].view() {
                View::Map(map) => count(map.keys.len() as u64),
                _ => None,
            },
            Max => Some(if order() == Less { arguments[1] } else { arguments[0] }),
            Min => Some(if order() == Greater { arguments[1] } else { arguments[0] }),
            Node => run.node(),
            NodeOf => match arguments[0].class() {
                Class::Pid | Class::Port | Class::Reference => (vm.node_of)(arguments[0]).map(TermRef::immediate),
                _ => None,
            },
            Round => made(number(0)?.rounded(f64::round)?),
            Size => match arguments[0].view() {
                View::Tuple(elements) => count(elements.len() as u64),
                _ => count(bits(run, arguments[0])? / 8),
            },
            Tail => match arguments[0].view() {
                View::List(list) => rest(list, 1, run.arena),
                _ => None,
            },
            Trunc => made(number(0)?.rounded(f64::trunc)?),
            TupleSize => match arguments[0].view() {
                View::Tuple(elements) => count(elements.len() as u64),
                _ => None,
            },
            Plus => number(0).map(|_| arguments[0]),
            Minus => made(number(0)?.negate()?),
            Add => made(number(0)?.add(number(1)?)?),
            Subtract => made(number(0)?.subtract(number(1)?)?),
            Multiply => {
                let (a, b) = pair(number(0), number(1))?;
                made(a.multiply(b)?)
            }
            Divide => made(number(0)?.divide(number(1)?)?),
            Quotient | Remainder => {
                let (a, b) = pair(integer(0), integer(1))?;
                let (quotient, remainder) = a.quotient_remainder(b)?;
                made(if self == Quotient { quotient } else { remainder })
            }
            BitAnd => made(integer(0)?.bitwise(integer(1)?, |a, b| a & b, |a, b| a & b)?),
            BitOr => made(integer(0)?.bitwise(integer(1)?, |a, b| a | b, |a, b| a | b)?),
            BitXor => made(integer(0)?.bitwise(integer(1)?, |a, b| a ^ b, |a, b| a ^ b)?),
            BitNot => made(integer(0)?.complement()?),
            ShiftLeft => made(integer(0)?.shift_left(integer(1)?)?),
            ShiftRight => made(integer(0)?.shift_left(integer(1)?.negate()?)?),
            Above => boolean(order() == Greater),
            AtLeast => boolean(order() != Less),
            Below => boolean(order() == Less),
            AtMost => boolean(order() != Greater),
            EqualTo => boolean(order() == Equal),
            Unequal => boolean(order() != Equal),
            Same => boolean(equal(arguments[0], arguments[1])),
            Different => boolean(!equal(arguments[0], arguments[1])),
            Not => boolean(!truth(0)?),
            Xor => boolean(truth(0)? != truth(1)?),
        }
    }
}

/// The number of bits of a bit string.
fn bits(run: &Run<'_>, term: TermRef<'_>) -> Option<u64> {
    match term.bytes() {
        Some(bytes) => Some(bytes.len() as u64 * 8),
        None if term.class() == Class::BitString => (run.vm().bit_size)(term),
        None => None,
    }
}

/// A part of a binary. It begins at position `at`, or ends there if the length is negative.
fn binary_part<'a>(run: &Run<'a>, binary: TermRef<'a>, at: TermRef<'a>, length: TermRef<'a>) -> Option<TermRef<'a>> {
    let bytes = binary.bytes()?;
    let (at, length) = (at.small()?, length.small()?);
    let other = at.checked_add(length)?;
    let (from, to) = (
        usize::try_from(at.min(other)).ok()?,
        usize::try_from(at.max(other)).ok()?,
    );
    let part = bytes.get(from..to)?;
    run.arena.make(|builder| Some(builder.binary(part)))
}
