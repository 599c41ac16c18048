//! `if`, `if let`, let chains, `match`, `let else`, and the ways out of a block.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::patterns::{MATCHED, Pattern};
use super::scope::{Hold, Join, VarId};
use super::types::Ty;
use super::{Body, Written};

/// What is matched on.
struct Scrutinee {
    code: Code,
    ty: Ty,
    hold: Hold,
    borrows: Vec<VarId>,
}

impl Body {
    pub(crate) fn if_else(&mut self) -> Option<Written> {
        self.cover(C::If);
        Some(self.if_chain(true))
    }

    fn if_chain(&mut self, may_grow: bool) -> Written {
        let condition = self.condition(2);
        let mut join = Join::new(&self.scope);
        let (yes, gone) = self.block(3);
        join.path(&mut self.scope, gone);
        let mut parts = vec![code!["if ", condition, " ", yes]];
        if self.prng.chance(65) {
            let (other, gone) = if may_grow && self.prng.chance(35) {
                self.cover(C::ElseIf);
                self.if_chain(false)
            } else {
                self.block(3)
            };
            join.path(&mut self.scope, gone);
            parts.push(code![" else ", other]);
        } else {
            join.path(&mut self.scope, false);
        }
        (Code::Seq(parts), join.meet(&mut self.scope))
    }

    pub(crate) fn if_let(&mut self) -> Option<Written> {
        self.cover(C::IfLet);
        let scrutinee = self.scrutinee(C::StepIfLet, C::BorrowIfLet);
        let pattern = self.pattern_for(&scrutinee);
        let mut join = Join::new(&self.scope);
        let (chain, yes, gone) = self.nested(|body| {
            body.bind(&pattern);
            let mut chain = Vec::new();
            while chain.len() < 2 && body.prng.chance(35) {
                body.cover(C::LetChain);
                chain.push(body.chained());
            }
            let (yes, gone) = body.block(3);
            (Code::Seq(chain), yes, gone)
        });
        join.path(&mut self.scope, gone);
        let mut parts = vec![code!["if let ", pattern.text, " = ", scrutinee.code, chain, " ", yes]];
        if self.prng.chance(50) {
            let (no, gone) = self.block(2);
            join.path(&mut self.scope, gone);
            parts.push(code![" else ", no]);
        } else {
            join.path(&mut self.scope, false);
        }
        (Code::Seq(parts), join.meet(&mut self.scope)).into()
    }

    /// One more condition of a let chain.
    fn chained(&mut self) -> Code {
        if self.prng.chance(40) {
            let maybe = self.without_moves(|body| body.at(C::StepIfLet, Ty::Maybe, 0));
            let pattern = self.refutable(Ty::Maybe);
            self.bind(&pattern);
            return code![" && let ", pattern.text, " = ", maybe];
        }
        let condition = self.without_moves(|body| body.at(C::StepIf, Ty::Flag, 1));
        code![" && ", condition]
    }

    pub(crate) fn match_statement(&mut self) -> Option<Written> {
        Some(self.match_with(|body| body.block(3)))
    }

    /// `let x = match .. { .. };`
    pub(crate) fn let_match(&mut self) -> Option<Written> {
        let ty = self.some_type();
        let (code, gone) = self.match_with(|body| {
            if body.prng.chance(25) && body.may_leave() {
                body.cover(C::DivergingArm);
                return (body.leave(), true);
            }
            body.value_block(ty)
        });
        Some((self.let_of(ty, code), gone))
    }

    fn match_with(&mut self, mut arm: impl FnMut(&mut Body) -> Written) -> Written {
        self.cover(C::Match);
        let scrutinee = self.scrutinee(C::StepMatch, C::BorrowMatch);
        let mut join = Join::new(&self.scope);
        let mut arms = Vec::new();
        for _ in 0..=self.prng.below(3) {
            let pattern = self.pattern_for(&scrutinee);
            let (guard, written, gone) = self.nested(|body| {
                body.bind(&pattern);
                let guard = if body.prng.chance(35) { body.guard() } else { "".into() };
                let (written, gone) = arm(body);
                (guard, written, gone)
            });
            join.path(&mut self.scope, gone);
            arms.push(code![pattern.text, guard, " => ", written, ","]);
        }
        let (last, gone) = self.nested(arm);
        join.path(&mut self.scope, gone);
        arms.push(code!["_ => ", last, ","]);
        (code!["match ", scrutinee.code, " ", Code::Block(arms)], join.meet(&mut self.scope))
    }

    /// No steps and no moves in it.
    fn guard(&mut self) -> Code {
        self.cover(C::Guard);
        let allowed = std::mem::replace(&mut self.steps_allowed, false);
        let condition = self.value(Ty::Flag, 0);
        self.steps_allowed = allowed;
        code![" if ", condition]
    }

    pub(crate) fn let_else(&mut self) -> Option<Written> {
        if !self.may_leave() {
            return None;
        }
        self.cover(C::LetElse);
        let scrutinee = self.scrutinee(C::StepLetElse, C::BorrowLetElse);
        let pattern = self.pattern_for(&scrutinee);
        let mut join = Join::new(&self.scope);
        let otherwise = self.nested(|body| {
            let mut lines = Vec::new();
            if body.can_step() && body.prng.chance(50) {
                body.cover(C::StepInElse);
                let step = body.step(Ty::Number);
                lines.push(code!["io.note(", step, ");"]);
            }
            lines.push(code![body.leave(), ";"]);
            lines
        });
        join.path(&mut self.scope, true);
        self.bind(&pattern);
        let text = if pattern.text.contains(" | ") { format!("({})", pattern.text) } else { pattern.text };
        Some((code!["let ", text, " = ", scrutinee.code, " else ", Code::Block(otherwise), ";"], false))
    }

    /// Something to match on: a step, a local, a borrow, a pair of values.
    fn scrutinee(&mut self, step: C, borrow: C) -> Scrutinee {
        let owned = |code, ty| Scrutinee { code, ty, hold: Hold::Owned, borrows: Vec::new() };
        let ty = self.prng.one_of(&MATCHED);
        match self.prng.below(10) {
            0..=2 if self.can_step() => {
                self.cover(step);
                owned(self.step(ty), ty)
            }
            3..=6 => {
                let held = self.find_where(|scope, id, var| {
                    let matched = matches!(var.ty, Ty::Maybe | Ty::Pair | Ty::Item | Ty::Shape | Ty::Next);
                    matched && var.hold != Hold::Exclusive && scope.readable(id)
                });
                let Some(id) = held else { return owned(code!["(", self.value(ty, 1), ")"], ty) };
                self.cover(borrow);
                let var = self.scope.var(id).clone();
                if var.ty == Ty::Item && self.prng.chance(50) {
                    return Scrutinee { code: format!("&{}.next", var.name).into(), ty: Ty::Next, hold: Hold::Shared, borrows: vec![id] };
                }
                Scrutinee { code: self.borrow_of(id).into(), ty: var.ty, hold: Hold::Shared, borrows: vec![id] }
            }
            7 => {
                let (flag, maybe) = (self.at(step, Ty::Flag, 1), self.at(step, Ty::Maybe, 0));
                owned(code!["(", flag, ", ", maybe, ")"], Ty::Choice)
            }
            _ => match self.take(ty) {
                Some(code) => owned(code, ty),
                None => owned(code!["(", self.value(ty, 1), ")"], ty),
            },
        }
    }

    fn pattern_for(&mut self, scrutinee: &Scrutinee) -> Pattern {
        self.refutable(scrutinee.ty).of(scrutinee.hold, &scrutinee.borrows)
    }

    /// A block that ends in a value, or in a way out.
    pub(crate) fn value_block(&mut self, ty: Ty) -> Written {
        let (lines, gone) = self.nested(|body| {
            if body.prng.chance(40) {
                return (vec![body.at(C::StepOperand, ty, 1)], false);
            }
            body.cover(C::BlockValue);
            let (mut lines, gone) = body.lines(2);
            if !gone {
                lines.push(body.at(C::StepOperand, ty, 1));
            }
            (lines, gone)
        });
        (Code::Block(lines), gone)
    }

    /// Whether to leave at all: what comes after a return that is taken early is never run.
    pub(crate) fn may_leave(&mut self) -> bool {
        !self.exits.is_empty() || self.statements < 6 || self.prng.chance(25)
    }

    /// A way out of the function, a loop or a labelled block, as an expression.
    pub(crate) fn leave(&mut self) -> Code {
        let innermost = self.exits.len().wrapping_sub(1);
        let usable: Vec<usize> =
            (0..self.exits.len()).filter(|i| self.exits[*i].label.is_some() || (*i == innermost && self.exits[*i].is_loop)).collect();
        if usable.is_empty() || self.prng.chance(8) {
            return self.return_now();
        }
        let exit = self.prng.one_of(&usable);
        if self.exits[exit].is_loop && self.prng.chance(55) {
            let label = self.label_of(exit, C::LabelledContinue);
            self.cover(C::Continue);
            return code!["continue", label];
        }
        self.break_out(exit)
    }

    /// `break` out of one of the exits.
    pub(crate) fn break_out(&mut self, exit: usize) -> Code {
        let label = self.label_of(exit, C::LabelledBreak);
        self.cover(C::Break);
        let value = match self.exits[exit].value {
            Some(ty) => {
                self.cover(C::BreakValue);
                code![" ", self.at(C::StepBreak, ty, 1)]
            }
            None => "".into(),
        };
        self.exits[exit].join.arrive(&self.scope);
        code!["break", label, value]
    }

    /// The label to write, if one is needed or chance will have it.
    fn label_of(&mut self, exit: usize, labelled: C) -> String {
        let needed = exit + 1 < self.exits.len() || !self.exits[exit].is_loop;
        match &self.exits[exit].label {
            Some(label) if needed || self.prng.chance(30) => {
                let text = format!(" '{label}");
                self.cover(labelled);
                text
            }
            _ => String::new(),
        }
    }

    fn return_now(&mut self) -> Code {
        self.cover(C::EarlyReturn);
        if self.prng.chance(30) {
            return code!["return Err(", self.captured(), ")"];
        }
        code!["return Ok(", self.at(C::StepReturn, self.output, 1), ")"]
    }

    /// What `make` writes without moving any local: whether it is reached does not show in what comes after.
    fn without_moves(&mut self, make: impl FnOnce(&mut Body) -> Code) -> Code {
        self.moves_allowed = false;
        let written = make(self);
        self.moves_allowed = true;
        written
    }
}
