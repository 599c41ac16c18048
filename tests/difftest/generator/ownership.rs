//! Locals that are unset, moved out and assigned again, shadowed, or typed only later.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::scope::{Hold, Join, Var, VarId};
use super::types::Ty;
use super::{Body, Written};

impl Body {
    /// `let x; if .. { x = 1; } else { x = 2; }`
    pub(crate) fn late_set(&mut self) -> Option<Written> {
        self.cover(C::LateSet);
        let ty = self.some_type();
        let name = self.fresh_name(ty);
        let id = self.scope.push(Var::owned(name.clone(), ty).unset());
        let condition = self.condition(1);
        self.reserved.push(name.clone());
        let mut join = Join::new(&self.scope);
        let mut blocks = Vec::new();
        for _ in 0..2 {
            let (lines, gone) = self.nested(|body| {
                let (mut lines, gone) = body.lines(2);
                if !gone {
                    lines.push(code![&name, " = ", body.at(C::StepAssign, ty, 1), ";"]);
                    body.scope.set(id, true);
                }
                (lines, gone)
            });
            join.path(&mut self.scope, gone);
            blocks.push(Code::Block(lines));
        }
        self.reserved.pop();
        let gone = join.meet(&mut self.scope);
        let (no, yes) = (blocks.pop()?, blocks.pop()?);
        let annotated = if gone { format!("let {name}: {};", ty.text()) } else { format!("let {name};") };
        Some((Code::Lines(vec![annotated.into(), code!["if ", condition, " ", yes, " else ", no]]), gone))
    }

    /// A local whose type shows only after a step.
    pub(crate) fn late_type(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        self.cover(C::LateType);
        let step = code!["io.note(", self.step(Ty::Number), ");"];
        let n = self.atom();
        let (ty, made, used): (Ty, &str, _) = match self.prng.below(3) {
            0 => (Ty::List, "Vec::new()", [".push(", ");"]),
            1 => (Ty::Maybe, "None", [" = Some(", ");"]),
            _ => (Ty::Number, "5", [" = plus(", ", 2);"]),
        };
        let name = self.fresh_name(ty);
        self.scope.push(Var::owned(name.clone(), ty).mutable());
        let declared = format!("let mut {name} = {made};").into();
        let [open, close] = used;
        Some((Code::Lines(vec![declared, step, code![name, open, n, close]]), false))
    }

    /// An owned local that can be moved out and assigned again here.
    fn movable_now(&mut self, wanted: impl Fn(&Body, VarId, &Var) -> bool) -> Option<VarId> {
        let found = self.scope.find(|scope, id, var| {
            let whole = var.hold == Hold::Owned && !var.ty.is_copy() && var.ty != Ty::Token;
            whole && id >= scope.moves_from && scope.readable(id) && !scope.is_borrowed(id) && wanted(self, id, var)
        });
        if found.is_empty() { None } else { Some(self.prng.one_of(&found)) }
    }

    /// Moves a local into the log.
    fn spent(&mut self, id: VarId) -> Code {
        code!["io.note(keep(", self.move_out(id), "));"]
    }

    /// A local that is moved out at a step and assigned after it.
    pub(crate) fn moved_and_assigned(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        let id = self.movable_now(|_, _, var| var.mutable && super::VALUES.contains(&var.ty))?;
        self.cover(if self.scope.outside_loop(id) { C::ReassignedInLoop } else { C::Reassigned });
        let spent = self.spent(id);
        let step = code!["io.note(", self.step(Ty::Number), ");"];
        let Var { name, ty, .. } = self.scope.var(id).clone();
        let assigned = code![name, " = ", self.at(C::StepAssign, ty, 1), ";"];
        self.scope.set(id, true);
        Some((Code::Lines(vec![spent, step, assigned]), false))
    }

    /// A local that only one path moves; whether it is assigned again is left to chance.
    pub(crate) fn moved_on_one_path(&mut self) -> Option<Written> {
        let id = self.movable_now(|body, id, _| body.scope.movable(id))?;
        self.cover(C::MovedOnePath);
        let condition = self.without_this(id, |body| body.condition(1));
        let mut join = Join::new(&self.scope);
        let (lines, gone) = self.nested(|body| {
            let mut lines = vec![body.spent(id)];
            let (more, gone) = body.lines(2);
            lines.extend(more);
            (lines, gone)
        });
        join.path(&mut self.scope, gone);
        let (other, gone) = self.block(2);
        join.path(&mut self.scope, gone);
        Some((code!["if ", condition, " ", Code::Block(lines), " else ", other], join.meet(&mut self.scope)))
    }

    /// A local from outside of a loop, moved by the round that ends it.
    pub(crate) fn moved_then_left(&mut self) -> Option<Written> {
        let exit = self.exits.len().checked_sub(1).filter(|exit| self.exits[*exit].is_loop)?;
        let id = self.movable_now(|body, id, _| body.scope.loops_of(id) + 1 == body.scope.loops())?;
        self.cover(C::MovedThenBreak);
        let condition = self.without_this(id, |body| body.condition(1));
        let mut join = Join::new(&self.scope);
        let lines = self.nested(|body| {
            let mut lines = vec![body.spent(id)];
            if body.can_step() {
                lines.push(code!["io.note(", body.step(Ty::Number), ");"]);
            }
            lines.push(code![body.break_out(exit), ";"]);
            lines
        });
        join.path(&mut self.scope, true);
        Some((code!["if ", condition, " ", Code::Block(lines)], false))
    }

    /// A field moved out of a local, which is not used again before it is assigned.
    pub(crate) fn field_moved(&mut self) -> Option<Written> {
        let id = self.movable_now(|body, id, var| matches!(var.ty, Ty::Pair | Ty::Item) && body.scope.movable(id))?;
        self.cover(C::PartlyMoved);
        let (field, ty) = if self.scope.var(id).ty == Ty::Pair { (".1", Ty::Text) } else { (".tags", Ty::Tags) };
        let value = code![self.move_out(id), field];
        Some((self.let_of(ty, value), false))
    }

    /// Code that leaves a local where it is.
    fn without_this(&mut self, id: VarId, make: impl FnOnce(&mut Body) -> Code) -> Code {
        self.scope.pin(id);
        let written = make(self);
        self.scope.unpin();
        written
    }

    /// `let y = &x.tags; let x = ..;` with `y` in use afterwards.
    pub(crate) fn shadow_borrowed(&mut self) -> Option<Written> {
        let reserved = self.reserved.clone();
        let id = self.find_where(|scope, id, var| {
            var.ty == Ty::Item && var.hold == Hold::Owned && scope.readable(id) && !reserved.contains(&var.name)
        })?;
        self.cover(C::ShadowBorrowed);
        self.cover(C::BorrowField);
        let name = self.scope.var(id).name.clone();
        let tags = self.fresh_name(Ty::Tags);
        self.scope.push(Var::owned(tags.clone(), Ty::Tags).borrowing(Hold::Shared, &[id]));
        let value = self.at(C::StepLet, Ty::Number, 1);
        self.scope.push(Var::owned(name.clone(), Ty::Number));
        let borrowed = code![format!("let {tags} = &{name}.tags;")];
        Some((Code::Lines(vec![borrowed, code!["let ", name, " = ", value, ";"], format!("io.note({tags});").into()]), false))
    }

    /// The same name live twice: an inner one and, after its block, the outer one again.
    pub(crate) fn shadow_inside(&mut self) -> Option<Written> {
        let reserved = self.reserved.clone();
        let id = self.find_where(|scope, id, var| var.hold == Hold::Owned && scope.readable(id) && !reserved.contains(&var.name))?;
        self.cover(C::ShadowOuter);
        let name = self.scope.var(id).name.clone();
        let (lines, gone) = self.nested(|body| {
            let ty = body.some_type();
            let value = body.at(C::StepLet, ty, 1);
            body.scope.push(Var::owned(name.clone(), ty));
            let mut lines = vec![code!["let ", &name, " = ", value, ";"]];
            let (more, gone) = body.lines(2);
            lines.extend(more);
            if !gone {
                lines.push(body.note());
            }
            (lines, gone)
        });
        let block = Code::Block(lines);
        if gone || !self.scope.readable(id) {
            return Some((block, gone));
        }
        Some((Code::Lines(vec![block, code!["io.note(", self.borrow_of(id), ");"]]), false))
    }
}
