//! Fields moved out of locals whose other fields are used behind a step.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::loops::ITEMS;
use super::scope::{Join, Var};
use super::types::Ty;
use super::{Body, Written};

impl Body {
    /// `let it = ..; let tags = it.tags;`, statements, a step, and the other fields of `it`.
    pub(crate) fn partly_moved(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        let ty = self.prng.one_of(&[Ty::Item, Ty::Item, Ty::Pair]);
        let value = self.at(C::StepLet, ty, 1);
        let (name, mutable) = (self.fresh_name(ty), self.prng.chance(40));
        // Nothing else may name it: the others take it for unset.
        self.scope.push(Var::owned(name.clone(), ty).unset());
        self.reserved.push(name.clone());
        let mut lines = vec![code!["let ", if mutable { "mut " } else { "" }, &name, " = ", value, ";"]];
        let gone = if self.prng.chance(35) {
            self.moved_in_arms(&name, ty, mutable, &mut lines)
        } else {
            self.moved_in_turn(&name, ty, mutable, &mut lines)
        };
        self.reserved.pop();
        Some((Code::Lines(lines), gone))
    }

    /// Each arm moves the fields in an order of its own.
    fn moved_in_arms(&mut self, name: &str, ty: Ty, mutable: bool, lines: &mut Vec<Code>) -> bool {
        self.cover(C::PartMovedInArms);
        let number = self.value(Ty::Number, 0);
        let mut join = Join::new(&self.scope);
        let mut arms = Vec::new();
        for pattern in ["0", "1", "_"] {
            let (block, gone) = self.nested(|body| {
                let mut lines = Vec::new();
                let gone = body.moved_in_turn(name, ty, mutable, &mut lines);
                (lines, gone)
            });
            join.path(&mut self.scope, gone);
            arms.push(code![pattern, " => ", Code::Block(block)]);
        }
        lines.push(code!["match ", number, " % 3 ", Code::Block(arms)]);
        join.meet(&mut self.scope)
    }

    fn moved_in_turn(&mut self, name: &str, ty: Ty, mutable: bool, lines: &mut Vec<Code>) -> bool {
        let mut fields = if ty == Ty::Pair { vec![("1", Ty::Text)] } else { vec![("tags", Ty::Tags), ("next", Ty::Next)] };
        if ty == Ty::Item && self.prng.chance(50) {
            fields.reverse();
        }
        if self.prng.chance(40) {
            fields.truncate(1);
        }
        let number = if ty == Ty::Pair { format!("{name}.0") } else { format!("{name}.id") };
        for (place, (field, of)) in fields.iter().enumerate() {
            lines.push(self.moved_part(&format!("{name}.{field}"), *of));
            let (more, gone) = self.lines(2);
            lines.extend(more);
            if gone {
                return true;
            }
            if self.can_step() {
                lines.push(code!["io.note(", self.step(Ty::Number), ");"]);
            }
            let others: Vec<String> = fields[place + 1..].iter().map(|(field, _)| format!("&{name}.{field}")).collect();
            lines.push(format!("io.note(({number}, {}));", others.join(", ")).into());
            if mutable && self.prng.chance(50) {
                lines.push(code![&number, " = plus(", &number, ", ", self.atom(), ");"]);
            }
        }
        if self.can_step() {
            lines.push(code!["io.note(", self.step(Ty::Number), ");"]);
        }
        lines.push(format!("io.note({number});").into());
        false
    }

    /// A statement that moves a field, perhaps on one path only.
    fn moved_part(&mut self, place: &str, ty: Ty) -> Code {
        match self.prng.below(7) {
            0 => {
                self.cover(C::PartMovedOnePath);
                let condition = self.condition(1);
                code!["if ", condition, format!(" {{ io.note(keep({place})); }}")]
            }
            1 if self.can_step() => {
                self.cover(C::PartMovedInStep);
                let step = self.step_of(|body| {
                    // What may be tried again cannot move anything.
                    let value = if body.moves_allowed { place.to_owned() } else { format!("{place}.clone()") };
                    let call = body.next_call();
                    code!["{ let part = ", value, format!("; io.pick({call}, &[keep(part)]).await? }}")]
                });
                code!["io.note(", step, ");"]
            }
            2 | 6 if ty == Ty::Next => {
                self.cover(C::PartMovedByMatch);
                format!("match {place} {{ Some(next) => io.note(next), None => io.note(0) }}").into()
            }
            3 | 4 if ty == Ty::Tags && self.trips * ITEMS <= 12 => {
                self.cover(C::PartMovedByLoop);
                let tag = self.fresh_name(Ty::Text);
                let local = Var::owned(tag.clone(), Ty::Text);
                let bind = |body: &mut Body, (): &()| {
                    body.scope.push(local);
                    Vec::new()
                };
                let (label, (), block) = self.looped(None, ITEMS, |_| (), bind);
                code![label, "for ", tag, format!(" in {place} "), block]
            }
            5 => format!("io.note(keep({place}));").into(),
            _ => {
                self.cover(C::PartMovedLet);
                self.let_of(ty, place.into())
            }
        }
    }

    /// A guard that its block drops, without a step in it.
    pub(crate) fn guarded_block(&mut self) -> Option<Written> {
        self.cover(C::GuardBlock);
        self.names += 1;
        let guard = format!("let _held{} = io.guard({});", self.names, self.prng.below(90));
        let (allowed, mut join) = (std::mem::replace(&mut self.steps_allowed, false), Join::new(&self.scope));
        let (lines, gone) = self.nested(|body| {
            let (more, gone) = body.lines(2);
            ([vec![Code::from(guard)], more].concat(), gone)
        });
        self.steps_allowed = allowed;
        join.path(&mut self.scope, gone);
        Some((Code::Block(lines), join.meet(&mut self.scope)))
    }

    /// A guard that is dropped by name before a step.
    pub(crate) fn guard_dropped(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        self.cover(C::GuardDropped);
        self.names += 1;
        let guard = format!("held{}", self.names);
        let held = format!("let {guard} = io.guard({});", self.prng.below(90)).into();
        let note = self.note();
        let number = if self.prng.chance(50) { format!("io.note({guard}.number());") } else { format!("io.note(&{guard});") };
        let step = code!["io.note(", self.step(Ty::Number), ");"];
        Some((Code::Lines(vec![held, note, number.into(), format!("drop({guard});").into(), step]), false))
    }
}
