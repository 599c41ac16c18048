//! Cut points: steps with bodies of every kind, and inline calls of the fixed fibers.
use super::Body;
use super::code::{Code, Effect, code};
use super::coverage::Construct as C;
use super::scope::Hold;
use super::types::Ty;

impl Body {
    /// Whether a step may be written here: not in a closure, a guard, a macro or a step, and within what a run may execute.
    pub(crate) fn can_step(&self) -> bool {
        self.steps_allowed && self.fuel >= self.trips
    }

    /// `sleep!`, if it may be afforded.
    pub(crate) fn sleep(&mut self) -> Option<Code> {
        if !self.can_step() {
            return None;
        }
        self.fuel -= self.trips;
        self.cover(C::Sleep);
        Some(Code::Sleep { time: Box::new(self.atom()) })
    }

    /// A number by two checkpoints: `recv!` or `steps!`.
    fn two_checkpoints(&mut self) -> Code {
        self.fuel -= 2 * self.trips;
        if self.prng.chance(50) {
            self.cover(C::Recv);
            return Code::Recv { otherwise: Box::new(self.atom()) };
        }
        self.cover(C::Steps);
        // Branches run side by side, so what they share they only read.
        self.scope.shared_only = true;
        let branches = [code!["plus(", self.atom(), ", ", self.atom(), ")"], self.atom()];
        self.scope.shared_only = false;
        Code::Steps { branches: Box::new(branches), taken: self.prng.below(2) }
    }

    /// A step that gives a value.
    pub(crate) fn step(&mut self, ty: Ty) -> Code {
        if ty == Ty::Number && self.fuel >= 2 * self.trips && self.prng.chance(15) {
            return self.two_checkpoints();
        }
        let body = |this: &mut Body| this.step_body(ty);
        self.step_around(body)
    }

    /// A step that gives the `Result` of a call.
    pub(crate) fn step_result(&mut self) -> Code {
        self.step_around(|body| code!["io.pick(", body.call_arguments(), ").await"])
    }

    fn step_around(&mut self, make: impl FnOnce(&mut Body) -> Code) -> Code {
        assert!(self.can_step(), "the caller asks first");
        self.fuel -= self.trips;
        self.steps += 1;
        let name = self.prng.chance(40).then(|| format!("step {}", self.steps));
        if name.is_some() {
            self.cover(C::StepNamed);
        }
        self.steps_allowed = false;
        let effect = self.prng.chance(25).then(|| self.effect());
        self.in_effect = effect.is_some();
        let may_move = self.moves_allowed;
        // What may be tried again cannot move anything.
        self.moves_allowed &= !effect.as_ref().is_some_and(|effect| effect.retry);
        // Nor may it go through what borrows exclusively.
        let shared_only = std::mem::replace(&mut self.scope.shared_only, self.in_effect);
        let body = make(self);
        self.scope.shared_only = shared_only;
        self.in_effect = false;
        self.moves_allowed = may_move;
        self.steps_allowed = true;
        Code::Step { name, effect, body: Box::new(body) }
    }

    /// The options of a step that is an effect.
    fn effect(&mut self) -> Effect {
        self.cover(C::Effect);
        let key = self.prng.chance(40).then(|| {
            self.cover(C::EffectKey);
            let number = self.atom();
            let text = self.find_where(|scope, id, var| var.ty == Ty::Text && var.hold != Hold::Exclusive && scope.readable(id));
            Box::new(match text {
                Some(text) => code!["(", number, ", ", self.borrow_of(text), ")"],
                None => number,
            })
        });
        let on_unknown = self.prng.chance(50).then(|| {
            self.cover(C::EffectOnUnknown);
            self.prng.pick(&["Retry", "Retry", "Park", "check(async |_| None)"])
        });
        let (retry, op) = (self.prng.chance(30), self.prng.chance(40));
        if retry {
            self.cover(C::EffectRetry);
        }
        if op {
            self.cover(C::EffectOp);
        }
        Effect { key, on_unknown, retry, op }
    }

    fn step_body(&mut self, ty: Ty) -> Code {
        let may_move = self.moves_allowed;
        match self.prng.below(if ty == Ty::Number { 22 } else { 14 }) {
            0..=8 => self.call(ty),
            9 | 10 => {
                self.cover(C::BodyBlock);
                let name = self.fresh_name(Ty::Number);
                let n = self.atom();
                let call = self.next_call();
                code!["{ let ", &name, " = ", n, "; io.", ty.call(), format!("({call}, &[{name}]).await? }}")]
            }
            11 => {
                self.cover(C::BodyBranch);
                let condition = self.value(Ty::Flag, 0);
                code!["if ", condition, " { ", self.call(ty), " } else { ", self.call(ty), " }"]
            }
            // An effect's body may be left out, and then changes nothing.
            12 | 13 => match self.find_where(|scope, id, var| var.ty == Ty::Number && scope.writable(id)) {
                Some(id) if !self.in_effect => {
                    self.cover(C::BodyMutates);
                    let place = self.read(id);
                    code!["{ ", &place, " = plus(", &place, ", 1); ", self.call(ty), " }"]
                }
                _ => self.call(ty),
            },
            14 | 20 | 21 => match self.find_where(|scope, id, var| may_move && var.ty == Ty::Text && scope.movable(id)) {
                Some(id) => {
                    self.cover(C::BodyMoves);
                    let text = self.move_out(id);
                    let call = self.next_call();
                    code!["{ let kept = ", text, format!("; io.read({call}, &kept).await? }}")]
                }
                None => self.call(ty),
            },
            15 => {
                self.cover(C::BodyPure);
                code!["plus(", self.atom(), ", ", self.atom(), ")"]
            }
            16 => {
                self.cover(C::BodyLoop);
                let (call, n) = (self.next_call(), self.atom());
                let head = "{ let mut total = 0; for q in 0..3 { if q == 1 { continue; } ";
                code![head, format!("total ^= io.pick({call}, &[q, "), n, "]).await?; } total }"]
            }
            17 => {
                self.cover(C::BodyHandles);
                code!["io.pick(", self.call_arguments(), ").await.unwrap_or(5)"]
            }
            18 => {
                self.cover(C::BodyTwoCalls);
                code![self.call(ty), " ^ ", self.call(ty)]
            }
            _ => {
                self.cover(C::BodyClosure);
                let n = self.atom();
                code!["{ let twist = |q: u32| q ^ ", n, "; twist(", self.call(ty), ") }"]
            }
        }
    }

    fn call(&mut self, ty: Ty) -> Code {
        if ty == Ty::Number
            && self.prng.chance(15)
            && let Some(text) = self.find_where(|scope, id, var| var.ty == Ty::Text && var.hold != Hold::Exclusive && scope.readable(id))
        {
            return code![format!("io.read({}, {}).await?", self.next_call(), self.borrow_of(text))];
        }
        code!["io.", ty.call(), "(", self.call_arguments(), ").await?"]
    }

    /// The number of a call and what it is called with.
    fn call_arguments(&mut self) -> Code {
        let call = self.next_call();
        if self.prng.chance(15)
            && let Some(list) = self.find_shared(Ty::List)
        {
            return format!("{call}, {}", self.borrow_of(list)).into();
        }
        let mut arguments = vec![Code::from(format!("{call}, &["))];
        for index in 0..self.prng.below(3) {
            arguments.push(code![if index > 0 { ", " } else { "" }, self.atom()]);
        }
        arguments.push("]".into());
        Code::Seq(arguments)
    }

    fn next_call(&mut self) -> u32 {
        self.calls += 1;
        self.calls
    }

    /// An inline call of a fixed fiber, if it may be afforded: the code of its `Result` and the type of its `Ok`.
    pub(crate) fn inline_call(&mut self) -> Option<(Code, Ty)> {
        /// Name, type of the argument, type of the value, checkpoints at most.
        const CHILDREN: [(&str, Ty, Ty, usize); 3] =
            [("total", Ty::Number, Ty::Number, 4), ("describe", Ty::Item, Ty::Text, 2), ("nested", Ty::Number, Ty::List, 6)];
        let (callee, takes, gives, checkpoints) = self.prng.pick(&CHILDREN);
        if !self.can_step() || self.fuel < self.trips * checkpoints {
            return None;
        }
        self.fuel -= self.trips * checkpoints;
        self.cover(C::Call);
        self.steps_allowed = false;
        let argument = Box::new(self.value(takes, 1));
        self.steps_allowed = true;
        Some((Code::Call { callee, argument }, gives))
    }
}
