//! Values with a destructor whose effect shows: guards that cannot be saved, in locals, patterns and temporaries, and values that
//! can be saved.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::loops::ITEMS;
use super::scope::{Join, Var};
use super::types::Ty;
use super::{Body, Written};

impl Body {
    /// A number for a value with a destructor.
    fn mark(&mut self) -> usize {
        self.prng.below(90)
    }

    fn guard_name(&mut self) -> String {
        self.names += 1;
        format!("held{}", self.names)
    }

    /// A step in a statement of its own, if there may be one.
    fn plain_step(&mut self) -> Code {
        if self.can_step() { code!["io.note(", self.step(Ty::Number), ");"] } else { "".into() }
    }

    /// A step behind a field or guard that is moved on one path, and within blocks behind a moved field: what is left of its value
    /// stands at the next cut point.
    fn apart(&mut self) -> Option<Code> {
        let has = |construct: &C| self.constructs.contains(construct);
        let moved = [C::PartMovedLet, C::PartMovedInStep, C::PartMovedByMatch, C::PartMovedInArms, C::PartMovedByLoop];
        if !has(&C::PartMovedOnePath) && (self.nesting == 0 || !has(&C::GuardOnePath) && !moved.iter().any(has)) {
            return Some("".into());
        }
        if self.can_step() { Some(self.plain_step()) } else { None }
    }

    /// A guard that is used once or twice, and held to the end of its block.
    pub(crate) fn guard_held(&mut self) -> Option<Written> {
        let apart = self.apart()?;
        Some((code![apart, self.held_guard()], false))
    }

    fn held_guard(&mut self) -> Code {
        let (guard, number) = (self.guard_name(), self.mark());
        let mut lines: Vec<Code> = vec![
            match self.prng.below(3) {
                0 => format!("let ({guard}, _) = (io.guard({number}), 1);"),
                1 => format!("let {guard} = vec![io.guard({number})].remove(0);"),
                _ => format!("let {guard} = io.guard({number});"),
            }
            .into(),
        ];
        lines.push(format!("io.note({guard}.number());").into());
        self.cover(C::GuardHeld);
        match self.prng.below(4) {
            0 => {
                self.cover(C::GuardHeldTwice);
                let value = code!["plus(", &guard, ".number(), ", self.atom(), ")"];
                lines.push(self.let_of(Ty::Number, value));
            }
            1 => {
                self.cover(C::GuardShadowed);
                let number = self.mark();
                lines.push(format!("let {guard} = io.guard({number});").into());
                lines.push(format!("io.note({guard}.into_number());").into());
            }
            _ => {}
        }
        lines.push(self.plain_step());
        Code::Lines(lines)
    }

    /// A guard that is gone before the step behind it: moved into a call, or a temporary of a statement.
    pub(crate) fn guard_gone(&mut self) -> Option<Written> {
        let (guard, number) = (self.guard_name(), self.mark());
        let line = match self.prng.below(4) {
            0 => {
                self.cover(C::GuardMoved);
                format!("let {guard} = io.guard({number}); io.note({guard}.into_number());")
            }
            1 => {
                self.cover(C::GuardMoved);
                format!("let {guard} = io.guard({number}); io.note({guard}.number()); io.note([{guard}].len());")
            }
            2 => {
                self.cover(C::GuardTemporary);
                format!("io.note(io.guard({number}).number());")
            }
            _ => {
                self.cover(C::GuardTemporary);
                format!("let _ = io.guard({number}); let _ = io.guard({number}).list();")
            }
        };
        Some((Code::Lines(vec![line.into(), self.plain_step()]), false))
    }

    /// A block behind a condition, with a guard as its first local.
    pub(crate) fn guard_in_arm(&mut self) -> Option<Written> {
        let apart = self.apart()?;
        self.cover(C::GuardInArm);
        let condition = self.condition(1);
        let mut join = Join::new(&self.scope);
        let (lines, gone) = self.nested(|body| {
            let held = body.held_guard();
            let (more, gone) = body.lines(2);
            ([vec![held], more].concat(), gone)
        });
        join.path(&mut self.scope, gone);
        let (other, gone) = self.block(2);
        join.path(&mut self.scope, gone);
        Some((code![apart, "if ", condition, " ", Code::Block(lines), " else ", other], join.meet(&mut self.scope)))
    }

    /// A guard that is held to the end of a block of its own.
    pub(crate) fn guard_in_block(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        let (guard, number, other) = (self.guard_name(), self.mark(), self.mark());
        let conditions = [self.condition(1), self.condition(1)];
        let choice = self.prng.below(6);
        let made = format!("let {guard} = io.guard({number});");
        let noted = format!("io.note({guard}.number());");
        let (lines, gone) = self.nested(|body| {
            let mut lines: Vec<Code> = match choice {
                0 => {
                    body.cover(C::GuardOfOneName);
                    vec![made.into(), noted.clone().into(), format!("let {guard} = io.guard({other});").into(), noted.into()]
                }
                1 => {
                    body.cover(C::GuardSetLater);
                    let [condition, _] = conditions;
                    let set = format!(" {{ {guard} = io.guard({number}); }} else {{ {guard} = io.guard({other}); }}");
                    vec![format!("let {guard};").into(), code!["if ", condition, set], noted.into()]
                }
                2 => {
                    body.cover(C::GuardInClosure);
                    vec![made.into(), format!("let {guard} = move || {guard}.number();").into(), format!("io.note({guard}());").into()]
                }
                3 => {
                    body.cover(C::GuardBorrowed);
                    vec![format!("let {guard} = &io.guard({number});").into(), noted.into()]
                }
                4 => {
                    body.cover(C::GuardInSum);
                    let sum = format!("io.guard({number}).number() as u32 + 1");
                    vec![code!["io.note(plus(", sum, ", ", body.step(Ty::Number), "));"]]
                }
                _ => {
                    body.cover(C::GuardInInnerArm);
                    let [outer, inner] = conditions;
                    let held = vec![made.into(), noted.into(), body.plain_step(), "io.note(1);".into()];
                    vec![code!["if ", outer, " ", Code::Block(vec![code!["if ", inner, " ", Code::Block(held)], "io.note(2);".into()])]]
                }
            };
            lines.push(body.plain_step());
            let (more, gone) = body.lines(2);
            ([lines, more].concat(), gone)
        });
        Some((Code::Block(lines), gone))
    }

    /// A guard that a pattern binds.
    pub(crate) fn guard_bound(&mut self) -> Option<Written> {
        let apart = self.apart()?;
        let (code, gone) = self.bound_guard()?;
        Some((code![apart, code], gone))
    }

    fn bound_guard(&mut self) -> Option<Written> {
        let (guard, number, flag) = (self.guard_name(), self.mark(), self.value(Ty::Flag, 0));
        let first = code![format!("io.note({guard}.number());")];
        let scrutinee = code!["io.guard_if(", flag, format!(", {number})")];
        let choice = self.prng.below(4);
        if choice == 3 {
            if self.trips * ITEMS > 12 {
                return None;
            }
            self.cover(C::GuardOfRound);
            self.names += 1;
            let fuel = format!("fuel{}", self.names);
            let declared = format!("let mut {fuel} = 2u32;").into();
            let source = format!("io.guard_if({fuel} > 0, {number})");
            let lines = vec![format!("{fuel} -= 1;").into(), first];
            let (label, (), block) = self.looped(None, ITEMS, |_| (), |_, ()| lines);
            return Some((Code::Lines(vec![declared, code![label, "while let Some(", guard, ") = ", source, " ", block]]), false));
        }
        if choice == 2 && self.may_leave() {
            self.cover(C::GuardOfLetElse);
            let mut join = Join::new(&self.scope);
            let otherwise = self.nested(|body| vec![body.plain_step(), code![body.leave(), ";"]]);
            join.path(&mut self.scope, true);
            let line = code!["let Some(", &guard, ") = ", scrutinee, " else ", Code::Block(otherwise), ";"];
            return Some((Code::Lines(vec![line, first, self.plain_step()]), false));
        }
        self.cover(C::GuardBound);
        let mut join = Join::new(&self.scope);
        let (some, gone) = self.nested(|body| {
            let step = body.plain_step();
            let (more, gone) = body.lines(2);
            ([vec![first, step], more].concat(), gone)
        });
        join.path(&mut self.scope, gone);
        let (none, gone) = self.block(2);
        join.path(&mut self.scope, gone);
        let code = if choice == 0 {
            code!["match ", scrutinee, " { Some(", guard, ") => ", Code::Block(some), " None => ", none, " }"]
        } else {
            code!["if let Some(", guard, ") = ", scrutinee, " ", Code::Block(some), " else ", none]
        };
        Some((code, join.meet(&mut self.scope)))
    }

    /// A guard that is a temporary of what is matched on.
    pub(crate) fn guard_matched(&mut self) -> Option<Written> {
        let apart = self.apart()?;
        let (code, gone) = self.matched_guard()?;
        Some((code![apart, code], gone))
    }

    fn matched_guard(&mut self) -> Option<Written> {
        let (number, n) = (self.mark(), self.fresh_name(Ty::Number));
        let choice = self.prng.below(8);
        if choice == 7 {
            if self.trips * ITEMS > 12 {
                return None;
            }
            self.cover(C::GuardWhileLet);
            self.names += 1;
            let fuel = format!("fuel{}", self.names);
            let declared = format!("let mut {fuel} = 2u32;").into();
            let source = format!("io.guard({number} + {fuel} % 2).even().filter(|_| {fuel} > 0)");
            let line: Code = format!("{fuel} -= 1;").into();
            let local = Var::owned(n.clone(), Ty::Number);
            let bind = |body: &mut Body, (): &()| {
                body.scope.push(local);
                vec![line]
            };
            let (label, (), block) = self.looped(None, ITEMS, |_| (), bind);
            return Some((Code::Lines(vec![declared, code![label, "while let Some(", n, ") = ", source, " ", block]]), false));
        }
        let (flag, other) = (self.value(Ty::Flag, 0), self.mark());
        let mut join = Join::new(&self.scope);
        let (some, gone) = self.nested(|body| {
            body.scope.push(Var::owned(n.clone(), Ty::Number));
            let step = body.plain_step();
            let (more, gone) = body.lines(2);
            ([vec![step], more].concat(), gone)
        });
        join.path(&mut self.scope, gone);
        let has_else = choice != 2 || self.prng.chance(70);
        let (none, gone) = if has_else { self.block(2) } else { ("".into(), false) };
        join.path(&mut self.scope, gone);
        let (source, other) = (format!("io.guard({number})"), code!["io.guard_if(", flag, format!(", {other})")]);
        let code = match choice {
            0 => {
                self.cover(C::GuardMatched);
                code!["match ", source, ".even() { Some(", n, ") => ", Code::Block(some), " None => ", none, " }"]
            }
            1 => {
                self.cover(C::GuardMatched);
                code!["match ", source, ".number() { ", &n, " if ", &n, " % 3 != 0 => ", Code::Block(some), " _ => ", none, " }"]
            }
            2 if has_else => {
                self.cover(C::GuardIfLetElse);
                code!["if let Some(", n, ") = ", source, ".even() ", Code::Block(some), " else ", none]
            }
            2 => {
                self.cover(C::GuardIfLet);
                code!["if let Some(", n, ") = ", source, ".even() ", Code::Block(some)]
            }
            3 => {
                self.cover(C::GuardInChain);
                code!["if let Some(", n, ") = ", source, ".even() && let Some(_) = ", other, " ", Code::Block(some), " else ", none]
            }
            4 => {
                self.cover(C::GuardLeft);
                let declared = code!["let ", n, " = 6;"];
                let matched = self.prng.chance(50);
                let (head, between, end) =
                    if matched { ("match ", " { Some(_) => ", " None => ") } else { ("if let Some(_) = ", " ", " else ") };
                let end = code![end, none, if matched { " }" } else { "" }];
                code![head, other, between, Code::Block(vec![declared, Code::Block(some)]), end]
            }
            5 => {
                self.cover(C::GuardLeft);
                let (first, held) = (code![other, ".is_some()"], self.guard_name());
                let declared = code!["let ", n, " = ", &held, ".number();"];
                let pair = code!["match (", source, ", ", first, format!(", io.guard({})) {{ (", self.mark()), held, ", true, _) => "];
                code![pair, Code::Block(vec![declared, Code::Block(some)]), " (_, _, _) => ", none, " }"]
            }
            _ => {
                self.cover(C::GuardIf);
                let declared = code!["let ", n, " = 5;"];
                code!["if ", source, ".number() % 3 != 0 ", Code::Block(vec![declared, Code::Block(some)]), " else ", none]
            }
        };
        Some((code, join.meet(&mut self.scope)))
    }

    /// A guard that is a temporary of the items of a loop.
    pub(crate) fn guard_gone_over(&mut self) -> Option<Written> {
        if self.trips * ITEMS > 12 {
            return None;
        }
        let apart = self.apart()?;
        self.cover(C::GuardGoneOver);
        let (number, n) = (self.mark(), self.fresh_name(Ty::Number));
        let local = Var::owned(n.clone(), Ty::Number);
        let bind = |body: &mut Body, (): &()| {
            body.scope.push(local);
            Vec::new()
        };
        let (label, (), block) = self.looped(None, ITEMS, |_| (), bind);
        Some((code![apart, label, "for ", n, format!(" in io.guard({number}).list() "), block], false))
    }

    /// A guard that is a temporary of an operand before a step, or with one.
    pub(crate) fn guard_operand(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        let number = self.mark();
        let choice = self.prng.below(8);
        if choice < 5 {
            self.cover(C::GuardOperand);
            let step = self.step(Ty::Number);
            let value = code!["plus(", format!("io.guard({number}).number()"), ", ", step, ")"];
            return Some((if choice < 2 { code!["io.note(", value, ");"] } else { self.let_of(Ty::Number, value) }, false));
        }
        let n = self.fresh_name(Ty::Number);
        if choice == 5 {
            self.cover(C::GuardOperandMatch);
            let (matched, first) = (self.mark(), format!("io.guard({number}).number()"));
            let arms = [self.step(Ty::Number), self.atom()];
            let [some, none] = arms;
            let value = code![
                "match ",
                format!("io.guard({matched}).even()"),
                " { Some(",
                &n,
                ") => plus(",
                n,
                ", ",
                some,
                "), None => ",
                none,
                " }"
            ];
            return Some((code!["io.note(plus(", first, ", ", value, "));"], false));
        }
        let value = code![format!("io.guard({number}).even().or("), self.step(Ty::Maybe), ")"];
        let mut join = Join::new(&self.scope);
        if choice == 6 {
            if !self.may_leave() {
                return None;
            }
            self.cover(C::GuardOperandElse);
            let otherwise = self.nested(|body| vec![body.plain_step(), code![body.leave(), ";"]]);
            join.path(&mut self.scope, true);
            let line = code!["let Some(", &n, ") = ", value, " else ", Code::Block(otherwise), ";"];
            self.scope.push(Var::owned(n, Ty::Number));
            return Some((line, false));
        }
        self.cover(C::GuardOperandIfLet);
        let (some, gone) = self.nested(|body| {
            body.scope.push(Var::owned(n.clone(), Ty::Number));
            body.lines(2)
        });
        join.path(&mut self.scope, gone);
        let (none, gone) = self.block(2);
        join.path(&mut self.scope, gone);
        Some((code!["if let Some(", n, ") = ", value, " ", Code::Block(some), " else ", none], join.meet(&mut self.scope)))
    }

    /// A guard that one path moves.
    pub(crate) fn guard_on_one_path(&mut self) -> Option<Written> {
        let apart = self.apart()?;
        self.cover(C::GuardOnePath);
        let (guard, number) = (self.guard_name(), self.mark());
        let held = format!("let {guard} = io.guard({number});").into();
        let condition = self.value(Ty::Flag, 0);
        let mut join = Join::new(&self.scope);
        let (lines, gone) = self.nested(|body| {
            let (more, gone) = body.lines(2);
            ([vec![Code::from(format!("io.note({guard}.into_number());"))], more].concat(), gone)
        });
        join.path(&mut self.scope, gone);
        let (other, gone) = self.block(2);
        join.path(&mut self.scope, gone);
        let code = code!["if ", condition, " ", Code::Block(lines), " else ", other];
        let gone = join.meet(&mut self.scope);
        Some((Code::Lines(vec![apart, held, code]), gone))
    }

    /// A value that can be saved, and whose destructor has an effect.
    pub(crate) fn noisy(&mut self) -> Option<Written> {
        let apart = self.apart()?;
        let (name, number) = (self.fresh_name(Ty::Noisy), self.mark());
        let made = format!("io.noisy({number})");
        match self.prng.below(4) {
            0 => {
                self.cover(C::NoisyUnused);
                Some((Code::Lines(vec![apart, format!("let _{name} = {made};").into(), self.plain_step()]), false))
            }
            1 => {
                self.cover(C::NoisyUsed);
                let used = format!("let {name} = {made}; io.note(&{name});").into();
                Some((Code::Lines(vec![apart, used, self.plain_step()]), false))
            }
            choice => {
                let again = (choice == 2).then(|| self.mark());
                self.cover(if again.is_some() { C::NoisyReplaced } else { C::NoisyKept });
                // It is used to the end of its block: one that is not is dropped at the next step.
                let (lines, gone) = self.nested(|body| {
                    let mut lines =
                        vec![format!("let mut {name} = {made};").into(), body.plain_step(), format!("io.note(&{name});").into()];
                    if let Some(again) = again {
                        lines.extend([format!("{name} = io.noisy({again});").into(), body.plain_step()]);
                    }
                    lines.push(format!("io.note({name}.number());").into());
                    body.reserved.push(name.clone());
                    let (more, gone) = body.lines(2);
                    body.reserved.pop();
                    lines.extend(more);
                    if !gone {
                        lines.push(format!("io.note(&{name});").into());
                    }
                    (lines, gone)
                });
                Some((Code::Lines(vec![apart, Code::Block(lines)]), gone))
            }
        }
    }
}
