//! Numbers and flags, and the choice between a step and an ordinary expression. Operands come in evaluation order, so that what
//! one of them moves is known to the next.
use super::Body;
use super::code::{Code, code};
use super::coverage::Construct;
use super::scope::{Hold, Join, Scope, Var, VarId};
use super::types::Ty;

impl Body {
    /// A value at a position where a step may stand.
    pub(crate) fn at(&mut self, position: Construct, ty: Ty, depth: usize) -> Code {
        if self.can_step() && self.prng.chance(30) {
            self.cover(position);
            return self.step(ty);
        }
        self.value(ty, depth)
    }

    /// A value that is not itself a step.
    pub(crate) fn value(&mut self, ty: Ty, depth: usize) -> Code {
        match ty {
            Ty::Number => self.number(depth),
            Ty::Flag => self.flag(depth),
            other => self.compound(other, depth),
        }
    }

    fn number(&mut self, depth: usize) -> Code {
        use Construct as C;
        if depth == 0 {
            return self.atom();
        }
        let inner = depth - 1;
        match self.prng.below(16) {
            0..=2 => self.atom(),
            3 => code!["plus(", self.at(C::StepArgument, Ty::Number, inner), ", ", self.at(C::StepArgument, Ty::Number, inner), ")"],
            4 => {
                let operator = self.prng.one_of(&[" ^ ", " | ", " & "]);
                code!["(", self.at(C::StepOperand, Ty::Number, inner), operator, self.at(C::StepOperand, Ty::Number, inner), ")"]
            }
            5 => code!["(", self.number(inner), format!(" % {})", 2 + self.prng.below(9))],
            6 => self.if_value(Ty::Number, inner),
            7 => {
                self.cover(C::BlockValue);
                let len = self.scope.len();
                let init = self.at(C::StepLet, Ty::Number, inner);
                let name = self.fresh_name(Ty::Number);
                self.scope.push(Var::owned(name.clone(), Ty::Number));
                let value = self.number(inner);
                self.scope.leave(len);
                code!["({ let ", name, " = ", init, "; ", value, " })"]
            }
            8 => {
                let scrutinee = self.at(C::StepMatch, Ty::Maybe, 0);
                self.cover(C::Match);
                let name = self.fresh_name(Ty::Number);
                let mut join = Join::new(&self.scope);
                let len = self.scope.len();
                self.scope.push(Var::owned(name.clone(), Ty::Number));
                let some = self.at(C::StepOperand, Ty::Number, inner);
                self.scope.leave(len);
                join.path(&mut self.scope, false);
                let none = self.number(inner);
                join.path(&mut self.scope, false);
                join.meet(&mut self.scope);
                code!["(match ", scrutinee, " { Some(", name, ") => ", some, ", None => ", none, " })"]
            }
            9 => {
                let receiver = self.value(Ty::Maybe, 0);
                code!["(", receiver, ").unwrap_or(", self.at(C::StepMethodArgument, Ty::Number, inner), ")"]
            }
            10 => code!["[", self.at(C::StepArray, Ty::Number, inner), ", ", self.at(C::StepArray, Ty::Number, inner), "][1]"],
            11 => code!["(", self.at(C::StepTuple, Ty::Number, inner), ", ", self.at(C::StepTuple, Ty::Number, inner), ").0"],
            12 if self.can_step() => {
                if self.prng.chance(50) {
                    self.cover(C::StepMethodReceiver);
                    code!["(", self.step(Ty::List), ".len() as u32)"]
                } else {
                    self.cover(C::StepBorrowed);
                    code!["sum(&", self.step(Ty::List), ")"]
                }
            }
            13 => {
                let ty = self.prng.one_of(&[Ty::Text, Ty::List, Ty::Item, Ty::Pair]);
                code!["keep(", self.value(ty, 0), ")"]
            }
            14 => self.folded(),
            _ => self.borrowed_argument(inner),
        }
    }

    /// A list folded by a closure that captures a number.
    fn folded(&mut self) -> Code {
        let captured = self.copies_of(Ty::Number);
        match (self.find_readable(Ty::List), captured.first()) {
            (Some(list), Some(n)) => {
                self.cover(Construct::Closure);
                code![self.scope.var(list).name.clone(), ".iter().fold(1, |a, q| plus(a, *q ^ ", n, "))"]
            }
            _ => self.atom(),
        }
    }

    /// A call with a borrowed operand before another one.
    fn borrowed_argument(&mut self, depth: usize) -> Code {
        let Some(text) = self.find_shared(Ty::Text) else { return self.atom() };
        let borrow = self.borrow_of(text);
        self.scope.pin(text);
        let number = self.after_borrow(depth);
        self.scope.unpin();
        code!["(label(", borrow, ", ", number, ").len() as u32)"]
    }

    /// An operand that comes after a borrowed one.
    pub(crate) fn after_borrow(&mut self, depth: usize) -> Code {
        if self.can_step() && self.prng.chance(50) {
            self.cover(Construct::BorrowBeforeStep);
            return self.step(Ty::Number);
        }
        self.number(depth)
    }

    /// `if` with a value.
    pub(crate) fn if_value(&mut self, ty: Ty, depth: usize) -> Code {
        self.cover(Construct::If);
        let condition = self.condition(depth.min(1));
        let mut join = Join::new(&self.scope);
        let yes = self.at(Construct::StepOperand, ty, depth);
        join.path(&mut self.scope, false);
        let no = self.value(ty, depth);
        join.path(&mut self.scope, false);
        join.meet(&mut self.scope);
        code!["(if ", condition, " { ", yes, " } else { ", no, " })"]
    }

    fn flag(&mut self, depth: usize) -> Code {
        if depth == 0 {
            let copies = self.copies_of(Ty::Flag);
            return if copies.is_empty() { code!["(", self.atom(), " % 2 == 0)"] } else { self.prng.one_of(&copies).into() };
        }
        let inner = depth - 1;
        match self.prng.below(9) {
            0 => self.flag(0),
            1 => code!["(", self.at(Construct::StepOperand, Ty::Number, inner), " % 3 != 1)"],
            2 => code!["(", self.number(inner), " < ", self.at(Construct::StepOperand, Ty::Number, inner), ")"],
            3 => code!["!", self.flag(inner)],
            4 | 5 => code!["(", self.junction(inner), ")"],
            6 => match self.find_readable(Ty::Maybe) {
                Some(maybe) => {
                    self.cover(Construct::MacroMatches);
                    let n = self.atom();
                    code!["matches!(", self.read(maybe), ", Some(q) if q > ", n, ")"]
                }
                None => self.flag(0),
            },
            7 => match self.find_readable(Ty::List) {
                Some(list) => code!["!", self.scope.var(list).name.clone(), ".is_empty()"],
                None => self.flag(0),
            },
            _ => code!["(", self.number(inner), " != ", self.number(inner), ")"],
        }
    }

    /// `a && b` or `a || b`; what the right side moves is moved on one path only.
    fn junction(&mut self, depth: usize) -> Code {
        let (operator, position) = self.prng.one_of(&[(" && ", Construct::StepAnd), (" || ", Construct::StepOr)]);
        let left = self.at(Construct::StepOperand, Ty::Flag, depth);
        let right = self.on_one_path(|body| {
            if body.can_step() && body.prng.chance(60) {
                body.cover(position);
                body.step(Ty::Flag)
            } else {
                body.flag(depth)
            }
        });
        code![left, operator, right]
    }

    /// What may be skipped when the program runs.
    pub(crate) fn on_one_path(&mut self, make: impl FnOnce(&mut Body) -> Code) -> Code {
        let mut join = Join::new(&self.scope);
        join.arrive(&self.scope);
        let written = make(self);
        join.path(&mut self.scope, false);
        join.meet(&mut self.scope);
        written
    }

    /// A condition of `if`, without needless parentheses.
    pub(crate) fn condition(&mut self, depth: usize) -> Code {
        if self.can_step() && self.prng.chance(25) {
            self.cover(Construct::StepIf);
            return self.step(Ty::Flag);
        }
        if self.prng.chance(25) { self.junction(depth) } else { self.flag(depth) }
    }

    /// The shortest numbers: a local, something of a local, a literal.
    pub(crate) fn atom(&mut self) -> Code {
        let constants = self.prng.chance(15);
        let locals = self.scope.find(|scope, id, var| scope.readable(id) && (constants || !matches!(var.ty, Ty::Token | Ty::Literal)));
        if locals.is_empty() || self.prng.chance(12) {
            return format!("{}u32", self.prng.below(40)).into();
        }
        let numbers: Vec<VarId> = locals.iter().copied().filter(|id| self.scope.var(*id).ty == Ty::Number).collect();
        let from = if !numbers.is_empty() && self.prng.chance(50) { numbers } else { locals };
        let id = self.prng.one_of(&from);
        self.number_of(id).into()
    }

    /// A number that depends on a local.
    pub(crate) fn number_of(&self, id: VarId) -> String {
        let Var { name, ty, .. } = self.scope.var(id);
        match ty {
            Ty::Number => self.read(id),
            Ty::Flag => format!("u32::from({})", self.read(id)),
            Ty::Maybe => format!("{name}.unwrap_or(3)"),
            Ty::Pair => format!("{name}.0"),
            Ty::Item => format!("{name}.id"),
            Ty::Boxed => format!("weigh({})", self.borrow_of(id)),
            Ty::Shape => format!("rank({})", self.borrow_of(id)),
            Ty::List => format!("sum({})", self.borrow_of(id)),
            Ty::Next => format!("u32::from({name}.is_some())"),
            Ty::Letter | Ty::Index => format!("({} as u32)", self.read(id)),
            Ty::Text | Ty::Literal | Ty::Slice | Ty::Grid | Ty::Items | Ty::Tags => format!("({name}.len() as u32)"),
            Ty::Token | Ty::Noisy => format!("{name}.number()"),
            Ty::Choice => unreachable!("no local is one"),
        }
    }

    /// The value of a local that can be copied.
    pub(crate) fn read(&self, id: VarId) -> String {
        let var = self.scope.var(id);
        if var.hold == Hold::Owned { var.name.clone() } else { format!("*{}", var.name) }
    }

    /// A shared borrow of a local's value.
    pub(crate) fn borrow_of(&self, id: VarId) -> String {
        let var = self.scope.var(id);
        if var.hold == Hold::Owned { format!("&{}", var.name) } else { var.name.clone() }
    }

    /// How the locals of a type that can be copied are read.
    pub(crate) fn copies_of(&self, ty: Ty) -> Vec<String> {
        self.readable(ty).into_iter().map(|id| self.read(id)).collect()
    }

    pub(crate) fn readable(&self, ty: Ty) -> Vec<VarId> {
        self.scope.find(|scope, id, var| var.ty == ty && scope.readable(id))
    }

    /// Some local of a type.
    pub(crate) fn find_readable(&mut self, ty: Ty) -> Option<VarId> {
        let found = self.readable(ty);
        self.some_of(&found)
    }

    /// Some local of a type that is owned or behind a shared borrow.
    pub(crate) fn find_shared(&mut self, ty: Ty) -> Option<VarId> {
        self.find_where(|scope, id, var| var.ty == ty && var.hold != Hold::Exclusive && scope.readable(id))
    }

    pub(crate) fn find_where(&mut self, wanted: impl Fn(&Scope, VarId, &Var) -> bool) -> Option<VarId> {
        let found = self.scope.find(wanted);
        self.some_of(&found)
    }

    fn some_of(&mut self, found: &[VarId]) -> Option<VarId> {
        if found.is_empty() { None } else { Some(self.prng.one_of(found)) }
    }
}
