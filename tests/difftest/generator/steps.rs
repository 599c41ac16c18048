//! Cut points: steps with bodies of every kind, and inline calls of the fixed fibers.
use super::code::{Code, Effect, code};
use super::coverage::Construct as C;
use super::scope::Hold;
use super::types::Ty;
use super::{Body, Written};

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
            let topic = self.prng.chance(60).then(|| self.prng.one_of(&super::waits::TOPICS));
            self.cover(if topic.is_some() { C::RecvMessage } else { C::Recv });
            return Code::Recv { topic, otherwise: Box::new(self.atom()) };
        }
        self.cover(C::Steps);
        // Branches run side by side, so what they share they only read.
        let shared_only = std::mem::replace(&mut self.scope.shared_only, true);
        let branches = [self.branch(), self.branch()];
        self.scope.shared_only = shared_only;
        let taken = self.prng.below(2);
        let caught = matches!(branches[taken], Code::Step { catch: true, .. });
        Code::Steps { branches: Box::new(branches), taken, caught }
    }

    /// A branch of `steps!`, which calls nothing: the order of calls in two branches is not the plain function's.
    fn branch(&mut self) -> Code {
        let value = if self.prng.chance(50) { code!["plus(", self.atom(), ", ", self.atom(), ")"] } else { self.atom() };
        if self.prng.chance(40) {
            return value;
        }
        let (retry, catch) = (self.prng.chance(30), self.prng.chance(35));
        let name = (catch || self.prng.chance(60)).then(|| {
            self.cover(C::StepsNamed);
            self.steps += 1;
            format!("branch {}", self.steps)
        });
        let effect = (!retry && self.prng.chance(50)).then(|| {
            self.cover(C::StepsEffect);
            self.effect()
        });
        if retry {
            self.cover(C::StepsRetry);
        }
        if !catch {
            return Code::Step { name, catch, retry, effect, body: Box::new(value) };
        }
        self.cover(C::StepsCatch);
        let condition = code!["(", self.atom(), " % 2 == 0)"];
        let body = Box::new(code!["{ if ", condition, " { Err::<(), String>(\"side\".to_owned())?; } ", value, " }"]);
        Code::Step { name, catch, retry, effect, body }
    }

    /// `let all = steps!(for n in .., ..);`
    pub(crate) fn side_by_side(&mut self) -> Option<Written> {
        if !self.can_step() || self.fuel < 2 * self.trips {
            return None;
        }
        self.fuel -= 2 * self.trips;
        self.cover(C::StepsEach);
        let list = self.find_shared(Ty::List);
        let name = list.map(|list| self.scope.var(list).name.clone());
        let item = self.fresh_name(Ty::Number);
        let (pattern, items, copy) = match (name, self.prng.below(3)) {
            (Some(list), 0) => (item.clone(), format!("{list}.clone()"), item),
            (Some(list), 1) => (item.clone(), format!("{list}.iter()"), format!("*{item}")),
            (Some(list), _) => (format!("&{item}"), format!("{list}.iter()"), item),
            (None, _) => (item.clone(), format!("0..{}u32", 1 + self.prng.below(3)), item),
        };
        let mut options = String::new();
        if self.prng.chance(40) {
            options.push_str("limit = 2, ");
        }
        if self.prng.chance(50) {
            self.cover(C::StepsEachOptions);
            options.push_str(self.prng.one_of(&[
                "",
                "retry = forever::fiber::Retry::times(2).when(|why: &String| why.is_empty()), ",
                "effect, ",
            ]));
        }
        let name = self.prng.chance(40).then(|| {
            self.steps += 1;
            format!("each {}", self.steps)
        });
        let shared_only = std::mem::replace(&mut self.scope.shared_only, true);
        let body = Box::new(code!["plus(", copy, ", ", self.atom(), ")"]);
        self.scope.shared_only = shared_only;
        let value = Code::Each { name, item: pattern, items, options, body };
        Some((self.let_of(Ty::List, value), false))
    }

    /// A step that gives a value.
    pub(crate) fn step(&mut self, ty: Ty) -> Code {
        if ty == Ty::Number && self.fuel >= 2 * self.trips && self.prng.chance(15) {
            return self.two_checkpoints();
        }
        let body = |this: &mut Body| this.step_body(ty);
        self.step_of(body)
    }

    /// A step that gives the `Result` of a call.
    pub(crate) fn step_result(&mut self) -> Code {
        self.step_of(|body| code!["io.pick(", body.call_arguments(), ").await"])
    }

    /// A step around a body.
    pub(crate) fn step_of(&mut self, make: impl FnOnce(&mut Body) -> Code) -> Code {
        self.step_around(false, make)
    }

    /// A step that gives its error as a value.
    pub(crate) fn step_caught(&mut self, make: impl FnOnce(&mut Body) -> Code) -> Code {
        self.step_around(true, make)
    }

    fn step_around(&mut self, catch: bool, make: impl FnOnce(&mut Body) -> Code) -> Code {
        assert!(self.can_step(), "the caller asks first");
        self.fuel -= self.trips;
        self.steps += 1;
        let name = self.prng.chance(40).then(|| format!("step {}", self.steps));
        if name.is_some() {
            self.cover(C::StepNamed);
        }
        self.steps_allowed = false;
        let effect = self.prng.chance(25).then(|| self.effect());
        if catch && effect.is_some() {
            self.cover(C::CatchEffect);
        }
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
        Code::Step { name, catch, retry: false, effect, body: Box::new(body) }
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
            self.prng.one_of(&["Retry", "Retry", "Park", "check(async |_| None)"])
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
        match self.prng.below(if ty == Ty::Number { 23 } else { 14 }) {
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
            19 => {
                self.cover(C::BodyGuard);
                let n = self.prng.below(90);
                code![format!("{{ let held = io.guard({n}); held.number() ^ "), self.call(ty), " }"]
            }
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

    pub(crate) fn call(&mut self, ty: Ty) -> Code {
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

    pub(crate) fn next_call(&mut self) -> u32 {
        self.calls += 1;
        self.calls
    }

    /// An inline call of a fixed fiber, if it may be afforded: the code of its `Result` and the type of its `Ok`.
    pub(crate) fn inline_call(&mut self) -> Option<(Code, Ty)> {
        /// Name, type of the argument, type of the value, checkpoints at most.
        const CHILDREN: [(&str, Ty, Ty, usize); 3] =
            [("total", Ty::Number, Ty::Number, 4), ("describe", Ty::Item, Ty::Text, 2), ("nested", Ty::Number, Ty::List, 6)];
        let (callee, takes, gives, checkpoints) = self.prng.one_of(&CHILDREN);
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
