//! Patterns without a value, whose variables are set later: on each path in another way, and on some not at all.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::scope::{Join, Var, VarId};
use super::types::{Ty, VALUES};
use super::{Body, Exit, Written};

/// A variable of the pattern.
struct Part {
    name: String,
    ty: Ty,
    id: VarId,
}

impl Body {
    /// `let (a, b); if .. { (a, b) = (1, step!(..)); } else { b = 2; a = 3; }`
    pub(crate) fn pattern_set_later(&mut self) -> Option<Written> {
        self.cover(C::DeferredPattern);
        let number_and_text = [Ty::Number, Ty::Text];
        let types: Vec<Ty> = match self.prng.below(5) {
            0 => number_and_text.to_vec(),
            1 => vec![Ty::Number, Ty::Tags],
            2 => vec![Ty::Number, Ty::Number],
            3 => vec![self.prng.one_of(&VALUES), self.prng.one_of(&VALUES), Ty::Number],
            _ => vec![self.prng.one_of(&VALUES), self.prng.one_of(&VALUES)],
        };
        let mut bound = Vec::new();
        let mut parts = Vec::new();
        for ty in types {
            let (name, mutable) = (self.fresh_name(ty), self.prng.chance(30));
            let var = Var::owned(name.clone(), ty).unset();
            let id = self.scope.push(if mutable { var.mutable() } else { var });
            bound.push(format!("{}{name}", if mutable { "mut " } else { "" }));
            parts.push(Part { name, ty, id });
        }
        let reserved = self.reserved.len();
        self.reserved.extend(parts.iter().map(|part| part.name.clone()));
        let (paths, gone) = match self.prng.below(4) {
            0 => self.set_in_block(&parts),
            1 => self.set_in_arms(&parts),
            _ => self.set_in_branches(&parts),
        };
        self.reserved.truncate(reserved);
        // `(a, (b, c))`
        let nested = parts.len() == 3;
        let shape = |of: &[String]| if nested { format!("({}, ({}, {}))", of[0], of[1], of[2]) } else { format!("({})", of.join(", ")) };
        let types: Vec<String> = parts.iter().map(|part| part.ty.text().to_owned()).collect();
        // Where no path sets them, nothing else says what they are.
        let ty = if gone { format!(": {}", shape(&types)) } else { String::new() };
        Some((Code::Lines(vec![format!("let {}{ty};", shape(&bound)).into(), paths]), gone))
    }

    fn set_in_branches(&mut self, parts: &[Part]) -> Written {
        let condition = self.condition(1);
        let mut join = Join::new(&self.scope);
        let (yes, gone) = self.path(parts);
        join.path(&mut self.scope, gone);
        let (no, gone) = self.path(parts);
        join.path(&mut self.scope, gone);
        (code!["if ", condition, " ", yes, " else ", no], join.meet(&mut self.scope))
    }

    fn set_in_arms(&mut self, parts: &[Part]) -> Written {
        let number = self.at(C::StepMatch, Ty::Number, 1);
        let mut join = Join::new(&self.scope);
        let mut arms = Vec::new();
        for pattern in ["0..=20", "21..=300", "_"] {
            let (block, gone) = self.path(parts);
            join.path(&mut self.scope, gone);
            arms.push(code![pattern, " => ", block, ","]);
        }
        (code!["match (", number, ") ", Code::Block(arms)], join.meet(&mut self.scope))
    }

    /// `'a: { if .. { (a, b) = ..; break 'a; } (a, b) = ..; }`
    fn set_in_block(&mut self, parts: &[Part]) -> Written {
        let label = self.new_label();
        let join = Join::new(&self.scope);
        self.exits.push(Exit { label: Some(label.clone()), is_loop: false, value: None, join });
        let exit = self.exits.len() - 1;
        let (lines, gone) = self.nested(|body| {
            let condition = body.condition(1);
            let mut inner = Join::new(&body.scope);
            let first = body.nested(|body| {
                let mut lines = body.set(parts);
                // No other way out may leave the block before all is set.
                lines.push(code![body.break_out(exit), ";"]);
                lines
            });
            inner.path(&mut body.scope, true);
            let mut lines = vec![code!["if ", condition, " ", Code::Block(first)]];
            lines.extend(body.set(parts));
            (lines, false)
        });
        let mut exit = self.exits.pop().expect("it was pushed above");
        exit.join.path(&mut self.scope, gone);
        let gone = exit.join.meet(&mut self.scope);
        (code![format!("'{label}: "), Code::Block(lines)], gone)
    }

    /// A block that sets all parts, or leaves.
    fn path(&mut self, parts: &[Part]) -> Written {
        let (lines, gone) = self.nested(|body| {
            let (mut lines, gone) = body.lines(2);
            if gone {
                return (lines, true);
            }
            if body.prng.chance(20) && body.may_leave() {
                body.cover(C::DeferredLeft);
                lines.push(code![body.leave(), ";"]);
                return (lines, true);
            }
            lines.extend(body.set(parts));
            (lines, false)
        });
        (Code::Block(lines), gone)
    }

    /// Statements that set all parts.
    fn set(&mut self, parts: &[Part]) -> Vec<Code> {
        let names: Vec<&str> = parts.iter().map(|part| &*part.name).collect();
        let types: Vec<Ty> = parts.iter().map(|part| part.ty).collect();
        let line = match self.prng.below(6) {
            0 | 1 if types == [Ty::Number, Ty::Text] => {
                self.cover(C::DeferredWhole);
                code![format!("({}, {}) = ", names[0], names[1]), self.at(C::StepAssign, Ty::Pair, 1), ";"]
            }
            0 | 1 if types == [Ty::Number, Ty::Tags] => {
                self.cover(C::DeferredStruct);
                let item = self.at(C::StepAssign, Ty::Item, 1);
                code![format!("Item {{ id: {}, tags: {}, .. }} = ", names[0], names[1]), item, ";"]
            }
            0 | 1 if types == [Ty::Number, Ty::Number] => {
                self.cover(C::DeferredArray);
                let (a, b) = (self.at(C::StepArray, Ty::Number, 1), self.at(C::StepArray, Ty::Number, 1));
                code![format!("[{}, {}] = [", names[1], names[0]), a, ", ", b, "];"]
            }
            2 => return self.set_apart(parts),
            3 => {
                self.cover(C::DeferredHole);
                let first = code![format!("({}, _) = (", names[0]), self.part(types[0]), ", 7);"];
                let mut lines = vec![first];
                self.scope.set(parts[0].id, true);
                lines.extend(self.set_apart(&parts[1..]));
                return lines;
            }
            _ => {
                self.cover(C::DeferredTuple);
                let values: Vec<Code> = types.iter().map(|ty| code![self.part(*ty), ", "]).collect();
                code![format!("({}) = (", names.join(", ")), Code::Seq(values), ");"]
            }
        };
        for part in parts {
            self.scope.set(part.id, true);
        }
        vec![line]
    }

    /// One after the other, with what comes between.
    fn set_apart(&mut self, parts: &[Part]) -> Vec<Code> {
        self.cover(C::DeferredApart);
        let mut order: Vec<&Part> = parts.iter().collect();
        if self.prng.chance(50) {
            order.reverse();
        }
        let mut lines = Vec::new();
        for part in order {
            lines.push(code![&part.name, " = ", self.part(part.ty), ";"]);
            self.scope.set(part.id, true);
            if self.can_step() && self.prng.chance(40) {
                lines.push(code!["io.note(", self.step(Ty::Number), ");"]);
            }
        }
        lines
    }

    fn part(&mut self, ty: Ty) -> Code {
        if ty == Ty::Tags { code![self.value(Ty::Item, 1), ".tags"] } else { self.at(C::StepTuple, ty, 1) }
    }
}
