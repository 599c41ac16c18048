//! `select!`, and errors of steps as values.
use super::code::{Code, Last, code};
use super::coverage::Construct as C;
use super::scope::{Join, Var};
use super::types::Ty;
use super::{Body, Written};

/// The topics of the messages that every world has some of.
pub(crate) const TOPICS: [&str; 2] = ["a", "b"];

impl Body {
    /// `select!` over messages and a timer or a child.
    pub(crate) fn select(&mut self) -> Option<Written> {
        let mut lines = Vec::new();
        let (select, gone) = self.select_with(&mut lines, |body| body.block(3))?;
        lines.push(select);
        Some((Code::Lines(lines), gone))
    }

    /// `let x = select! { .. };`
    pub(crate) fn let_select(&mut self) -> Option<Written> {
        let ty = self.some_type();
        let mut lines = Vec::new();
        let (code, gone) = self.select_with(&mut lines, |body| body.value_block(ty))?;
        self.cover(C::SelectValue);
        lines.push(self.let_of(ty, code));
        Some((Code::Lines(lines), gone))
    }

    /// `let child = spawn!(..);`, now and then with a step behind it: the handle, put into `lines`.
    fn spawned(&mut self, lines: &mut Vec<Code>) -> String {
        let handle = format!("child{}", self.fresh_name(Ty::Number));
        self.steps_allowed = false;
        let argument = Box::new(self.value(Ty::Number, 1));
        self.steps_allowed = true;
        lines.push(code!["let ", &handle, " = ", Code::Spawn { callee: "total", argument }, ";"]);
        if self.prng.chance(40) && self.can_step() {
            lines.push(code!["io.note(", self.step(Ty::Number), ");"]);
        }
        handle
    }

    /// What comes before the `select!` goes into `lines`.
    fn select_with(&mut self, lines: &mut Vec<Code>, mut arm: impl FnMut(&mut Body) -> Written) -> Option<Written> {
        if !self.can_step() || self.fuel < 4 * self.trips {
            return None;
        }
        self.cover(C::Select);
        // First, as what the child is given may make checkpoints of its own.
        self.fuel -= 2 * self.trips;
        let handle = self.prng.chance(40).then(|| {
            self.fuel -= self.trips;
            self.cover(C::SelectChild);
            let handle = self.spawned(lines);
            if self.prng.chance(30) && self.fuel > 4 * self.trips {
                self.fuel -= 2 * self.trips;
                self.cover(C::SelectChildAgain);
                lines.push(code!["io.note(", Code::Wait(handle.clone()), ");"]);
            }
            handle
        });
        let time = self.atom();
        let mut topics = TOPICS.to_vec();
        if self.prng.chance(60) {
            topics.remove(self.prng.below(2));
        } else {
            self.cover(C::SelectOfSeveral);
        }
        let mut join = Join::new(&self.scope);
        let mut arms = Vec::new();
        for topic in topics {
            let name = self.fresh_name(Ty::Number);
            let bound = Var::owned(name.clone(), Ty::Number);
            let (written, gone) = self.nested(|body| {
                body.scope.push(bound);
                arm(body)
            });
            join.path(&mut self.scope, gone);
            arms.push((topic, name, written));
        }
        let last = match handle {
            None => {
                let (late, gone) = self.nested(&mut arm);
                join.path(&mut self.scope, gone);
                Last::Time { time, late }
            }
            Some(handle) => {
                let name = self.fresh_name(Ty::Number);
                let bound = Var::owned(name.clone(), Ty::Number);
                let (ended, gone) = self.nested(|body| {
                    body.scope.push(bound);
                    arm(body)
                });
                join.path(&mut self.scope, gone);
                Last::Child { handle, name, ended }
            }
        };
        Some((Code::Select { arms, last: Box::new(last) }, join.meet(&mut self.scope)))
    }

    /// A step whose error is a value.
    pub(crate) fn caught(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        self.cover(C::Catch);
        let step = self.step_caught(|body| {
            if body.prng.chance(30) {
                return body.call(Ty::Number);
            }
            let (condition, n) = (body.value(Ty::Flag, 0), body.atom());
            code!["{ if ", condition, " { Err::<(), String>(label(\"why\", ", n, "))?; } ", body.call(Ty::Number), " }"]
        });
        let n = self.fresh_name(Ty::Number);
        match self.prng.below(4) {
            0 => {
                let value = code![step, ".unwrap_or(", self.atom(), ")"];
                Some((self.let_of(Ty::Number, value), false))
            }
            1 if self.can_step() => {
                self.cover(C::CatchKept);
                let kept = format!("caught{n}");
                let between = code!["io.note(", self.step(Ty::Number), ");"];
                let used = format!("io.note({kept}.as_ref().map_err(|why| why.to_string()));");
                let value = format!("{kept}.unwrap_or_else(|why| why.to_string().len() as u32)");
                let lines = vec![code!["let ", &kept, " = ", step, ";"], between, used.into(), self.let_of(Ty::Number, value.into())];
                Some((Code::Lines(lines), false))
            }
            2 => {
                let mut join = Join::new(&self.scope);
                join.path(&mut self.scope, false);
                let (otherwise, gone) = self.value_block(Ty::Number);
                join.path(&mut self.scope, gone);
                let arms =
                    code!["match ", step, " { Ok(", &n, ") => ", &n, ", Err(why) => { io.note(why.to_string()); ", otherwise, " } }"];
                let gone = join.meet(&mut self.scope);
                Some((self.let_of(Ty::Number, arms), gone))
            }
            _ => {
                let mut join = Join::new(&self.scope);
                let bound = Var::owned(n.clone(), Ty::Number);
                let (yes, gone) = self.nested(|body| {
                    body.scope.push(bound);
                    body.block(2)
                });
                join.path(&mut self.scope, gone);
                let (no, gone) = self.block(2);
                join.path(&mut self.scope, gone);
                let code = code!["if let Ok(", n, ") = ", step, " ", yes, " else ", no];
                Some((code, join.meet(&mut self.scope)))
            }
        }
    }
}
