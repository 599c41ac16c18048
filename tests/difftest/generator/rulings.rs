//! Bodies in which plain Rust and a resume come apart unless the macro keeps to its rulings: arguments that change after they
//! were used, copies out of borrows, names inside macros, values that nothing takes, ends that are never reached.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::loops::ITEMS;
use super::scope::{Hold, Join, Var, VarId};
use super::types::Ty;
use super::{Body, Exit, Written};

impl Body {
    /// A loop whose body changes what its iterator was made with.
    pub(crate) fn argument_that_changes(&mut self) -> Option<Written> {
        if self.trips * ITEMS > 12 {
            return None;
        }
        let list = self.find_where(|scope, id, var| var.ty == Ty::List && var.hold == Hold::Owned && scope.readable(id))?;
        let name = self.scope.var(list).name.clone();
        let (k, q) = (self.fresh_name(Ty::Index), self.fresh_name(Ty::Number));
        let number = || Var::owned(q.clone(), Ty::Number).borrowing(Hold::Shared, &[list]);
        let slice = || Var::owned(q.clone(), Ty::Slice).borrowing(Hold::Shared, &[list]);
        let (first, source, local) = match self.prng.below(8) {
            0 => ("2".to_owned(), format!("{name}.iter().take({k})"), number()),
            1 => ("1".to_owned(), format!("{name}.iter().skip({k})"), number()),
            2 => ("1".to_owned(), format!("{name}.iter().rev().step_by({k} + 1)"), number()),
            3 => ("1".to_owned(), format!("{name}.chunks({k})"), slice()),
            4 => ("1".to_owned(), format!("{name}.windows({k})"), slice()),
            5 => (format!("{name}.len().min(1)"), format!("&{name}[{k}..]"), number()),
            6 => (format!("{name}.len().min(2)"), format!("{name}[..{k}].iter()"), number()),
            _ => ("1".to_owned(), format!("{name}.iter().take({k} + 1).skip({k} - 1)"), number()),
        };
        self.cover(C::ForArgument);
        self.scope.push(Var::owned(k.clone(), Ty::Index).mutable());
        self.reserved.push(k.clone());
        let changed: Code = format!("{k} += 1;").into();
        let bind = |body: &mut Body, (): &()| {
            body.scope.push(local);
            vec![changed]
        };
        let (label, (), block) = self.looped(None, ITEMS, |_| (), bind);
        self.reserved.pop();
        let declared = format!("let mut {k} = {first};").into();
        Some((Code::Lines(vec![declared, code![label, "for ", q, " in ", source, " ", block]]), false))
    }

    /// A row of a list of lists, by an index that changes.
    pub(crate) fn row_that_changes(&mut self) -> Option<Written> {
        if self.trips * ITEMS > 12 {
            return None;
        }
        let grid = self.find_where(|scope, id, var| var.ty == Ty::Grid && var.hold == Hold::Owned && scope.writable(id))?;
        let name = self.scope.var(grid).name.clone();
        let (row, cell) = (self.fresh_name(Ty::Index), self.fresh_name(Ty::Number));
        self.cover(C::ForArgument);
        let pushed = code![&name, ".push(", self.value(Ty::List, 0), ");"];
        self.scope.push(Var::owned(row.clone(), Ty::Index).mutable());
        self.reserved.push(row.clone());
        let source = if self.prng.chance(50) { format!("&{name}[{row}]") } else { format!("{name}[{row}].iter().rev()") };
        let local = Var::owned(cell.clone(), Ty::Number).borrowing(Hold::Shared, &[grid]);
        let changed: Code = format!("{row} = 0;").into();
        let bind = |body: &mut Body, (): &()| {
            body.scope.push(local);
            vec![changed]
        };
        let (label, (), block) = self.looped(None, ITEMS, |_| (), bind);
        self.reserved.pop();
        let declared = format!("let mut {row} = {name}.len() - 1;").into();
        Some((Code::Lines(vec![pushed, declared, code![label, "for ", cell, " in ", source, " ", block]]), false))
    }

    /// A copy out of a borrow, and a change of what it was copied from.
    pub(crate) fn copied_out(&mut self) -> Option<Written> {
        let id =
            self.find_where(|scope, id, var| matches!(var.ty, Ty::Number | Ty::Maybe) && var.hold == Hold::Owned && scope.writable(id))?;
        let Var { name, ty, .. } = self.scope.var(id).clone();
        self.cover(C::CopiedOut);
        if ty == Ty::Number {
            let copy = self.fresh_name(Ty::Number);
            self.scope.push(Var::owned(copy.clone(), Ty::Number));
            let pattern =
                if self.prng.chance(50) { format!("let &{copy} = &{name};") } else { format!("let (&{copy}, _) = (&{name}, 1);") };
            return Some((Code::Lines(vec![pattern.into(), format!("{name} = plus({name}, 10);").into()]), false));
        }
        let copy = self.fresh_name(Ty::Number);
        let bound = Var::owned(copy.clone(), Ty::Number);
        let changed: Code = format!("{name} = Some(plus({copy}, 100));").into();
        let mut join = Join::new(&self.scope);
        let (some, gone) = self.nested(|body| {
            body.scope.push(bound);
            let (more, gone) = body.lines(2);
            ([vec![changed], more].concat(), gone)
        });
        join.path(&mut self.scope, gone);
        let (none, gone) = self.block(2);
        join.path(&mut self.scope, gone);
        let code = if self.prng.chance(50) {
            code!["match &", name, " { &Some(", copy, ") => ", Code::Block(some), " &None => ", none, " }"]
        } else {
            code!["if let &Some(", copy, ") = &", name, " ", Code::Block(some), " else ", none]
        };
        Some((code, join.meet(&mut self.scope)))
    }

    /// A loop over a borrow whose items are copies that may be changed.
    pub(crate) fn changed_items(&mut self) -> Option<Written> {
        if self.trips * ITEMS > 12 {
            return None;
        }
        let list = self.find_where(|scope, id, var| var.ty == Ty::List && var.hold == Hold::Owned && scope.readable(id))?;
        self.cover(C::ItemChanged);
        let name = self.scope.var(list).name.clone();
        let q = self.fresh_name(Ty::Number);
        let (pattern, source) = if self.prng.chance(60) {
            (format!("&(mut {q})"), format!("&{name}"))
        } else {
            (format!("mut {q}"), format!("{name}.iter().copied()"))
        };
        let changed: Code = format!("{q} = plus({q}, 1);").into();
        let (item, held) =
            (Var::owned(q.clone(), Ty::Number).mutable(), Var::owned(String::new(), Ty::Number).borrowing(Hold::Shared, &[list]));
        let bind = |body: &mut Body, (): &()| {
            body.scope.push(held);
            body.scope.push(item);
            vec![changed]
        };
        let (label, (), block) = self.looped(None, ITEMS, |_| (), bind);
        Some((code![label, "for ", pattern, " in ", source, " ", block], false))
    }

    /// A name where only its text matters, beside one where its value does.
    pub(crate) fn named_in_macros(&mut self) -> Option<Written> {
        let id = self.find_where(|scope, id, var| var.ty == Ty::Number && var.hold == Hold::Owned && scope.readable(id))?;
        self.cover(C::MacroNames);
        let n = self.scope.var(id).name.clone();
        let line = match self.prng.below(6) {
            0 => format!("io.note(stringify!({n} + 1));"),
            1 => format!("io.note(vec![\"{{{n}}}\", \"{n}\"][0]);"),
            2 => format!("io.note(format!(\"{{{n}}} {{}}\", {n}, {n} = plus({n}, 1)));"),
            3 => format!("io.note(matches!(Some(Point {{ {n}: 3 }}), Some(Point {{ {n}, .. }}) if {n} > 2));"),
            4 => format!("io.note(vec![Point {{ {n} }}]);"),
            _ => format!("io.note([{n}; 2].iter().map(|{n}| format!(\"{{{n}:>0w$}}\", w = 3)).collect::<Vec<_>>());"),
        };
        // A struct whose field has the variable's name.
        let point = format!("{{ #[derive(Debug)] struct Point {{ {n}: u32 }} {line} }}");
        Some((point.into(), false))
    }

    /// A value that nothing takes.
    pub(crate) fn dropped_value(&mut self) -> Option<Written> {
        self.cover(C::DroppedValue);
        match self.prng.below(4) {
            0 => {
                let (lines, gone) = self.nested(Body::lines_and_value);
                Some((code![Code::Block(lines), ";"], gone))
            }
            1 => {
                let condition = self.condition(1);
                let mut join = Join::new(&self.scope);
                let (yes, gone) = self.nested(Body::lines_and_value);
                join.path(&mut self.scope, gone);
                let (no, gone) = self.nested(Body::lines_and_value);
                join.path(&mut self.scope, gone);
                let code = code!["if ", condition, " ", Code::Block(yes), " else ", Code::Block(no), ";"];
                Some((code, join.meet(&mut self.scope)))
            }
            2 => {
                // A `break` without a label in it would be one out of this loop.
                let join = Join::new(&self.scope);
                self.exits.push(Exit { label: None, is_loop: false, value: None, join });
                let (mut lines, gone) = self.nested(Body::lines_and_value);
                self.exits.pop();
                if gone {
                    return Some((code![Code::Block(lines), ";"], true));
                }
                let value = lines.pop()?;
                lines.push(code!["break ", value, ";"]);
                Some((code!["loop ", Code::Block(lines), ";"], false))
            }
            _ => {
                let scrutinee = self.at(C::StepMatch, Ty::Maybe, 0);
                let n = self.fresh_name(Ty::Number);
                let mut join = Join::new(&self.scope);
                let (some, gone) = self.nested(|body| {
                    body.scope.push(Var::owned(n.clone(), Ty::Number));
                    body.lines_and_value()
                });
                join.path(&mut self.scope, gone);
                let none = self.value(Ty::Number, 0);
                join.path(&mut self.scope, false);
                let code = code!["match ", scrutinee, " { Some(", n, ") => ", Code::Block(some), " None => ", none, " };"];
                Some((code, join.meet(&mut self.scope)))
            }
        }
    }

    /// Statements and, if their end is reached, a number.
    fn lines_and_value(&mut self) -> (Vec<Code>, bool) {
        let (mut lines, gone) = self.lines(2);
        if !gone {
            lines.push(self.at(C::StepReturn, Ty::Number, 1));
        }
        (lines, gone)
    }

    /// An end that is never reached, behind a macro that leaves the function.
    pub(crate) fn diverging_macro(&mut self) -> Option<Written> {
        self.cover(C::DivergingMacro);
        if self.prng.chance(50) {
            let value = self.at(C::StepLetElse, Ty::Maybe, 0);
            let mut join = Join::new(&self.scope);
            let otherwise = self.nested(Body::lines_and_failure);
            join.path(&mut self.scope, true);
            let n = self.fresh_name(Ty::Number);
            let code = code!["let Some(", &n, ") = ", value, " else ", Code::Block(otherwise), ";"];
            self.scope.push(Var::owned(n, Ty::Number));
            return Some((code, false));
        }
        let name = self.fresh_name(Ty::Number);
        let id: VarId = self.scope.push(Var::owned(name.clone(), Ty::Number).unset());
        self.reserved.push(name.clone());
        let condition = self.condition(1);
        let mut join = Join::new(&self.scope);
        let (set, gone) = self.nested(|body| {
            let (mut lines, gone) = body.lines(2);
            if !gone {
                lines.push(code![&name, " = ", body.at(C::StepAssign, Ty::Number, 1), ";"]);
                body.scope.set(id, true);
            }
            (lines, gone)
        });
        join.path(&mut self.scope, gone);
        let otherwise = self.nested(Body::lines_and_failure);
        join.path(&mut self.scope, true);
        self.reserved.pop();
        let unset = self.scope.find(|_, other, var| other != id && !var.set);
        let gone = join.meet(&mut self.scope);
        // Nor that what was moved before it has a value again on the one path that goes on.
        for moved in unset {
            self.scope.set(moved, false);
        }
        let declared = format!("let {name}: u32;").into();
        let code = code!["if ", condition, " ", Code::Block(set), " else ", Code::Block(otherwise)];
        Some((Code::Lines(vec![declared, code]), gone))
    }

    /// Statements that move nothing from outside: that what is moved before a macro which leaves the function is not needed
    /// behind it, only the compiler knows.
    fn lines_and_failure(&mut self) -> Vec<Code> {
        let declared = self.scope.len();
        let moves_from = std::mem::replace(&mut self.scope.moves_from, declared);
        let (mut lines, gone) = self.lines(2);
        self.scope.moves_from = moves_from;
        if !gone {
            let why = self.captured();
            lines.push(code!["fail!(", why, ");"]);
        }
        lines
    }

    /// A loop over literals.
    pub(crate) fn literal_list(&mut self) -> Option<Written> {
        if self.trips * 2 > 12 {
            return None;
        }
        self.cover(C::LiteralList);
        let name = self.fresh_name(Ty::Literal);
        let words = format!("words{}", self.names);
        let (pattern, source) = match self.prng.below(10) {
            0 => (name.clone(), "[\"law\", \"sales\"]"),
            1 => (name.clone(), "vec![\"law\", \"sales\"]"),
            2 => (name.clone(), "TOPICS"),
            3 => (format!("({name}, _)"), "[(\"law\", 1), (\"sales\", -2)]"),
            4 => (name.clone(), "[\"law\", \"sales\"].into_iter().rev()"),
            5 => (name.clone(), "WORDS"),
            6 => (format!("(_, {name})"), "WORDS.into_iter().enumerate()"),
            7 => (format!("({name}, _)"), "WORDS.into_iter().rev().zip(TOPICS)"),
            _ => (format!("&{name}"), "&[\"law\", \"sales\"][FROM..]"),
        };
        if source.contains("FROM") {
            self.cover(C::LiteralSlice);
        }
        let from = self.value(Ty::Number, 0);
        let declared = if source.contains("WORDS") { format!("let {words} = [\"tax\", \"née\"];") } else { String::new() };
        let source = source.replace("WORDS", &words);
        let source = match source.split_once("FROM") {
            Some((before, after)) => code![before, "(", from, " % 3) as usize", after],
            None => source.into(),
        };
        // The items have the type that they have in the plain function.
        let typed = format!("let _: &'static str = {name};").into();
        let local = Var::owned(name, Ty::Literal);
        let bind = |body: &mut Body, (): &()| {
            body.scope.push(local);
            vec![typed]
        };
        let (label, (), block) = self.looped(None, 2, |_| (), bind);
        Some((Code::Lines(vec![declared.into(), code![label, "for ", pattern, " in ", source, " ", block]]), false))
    }

    /// A text that is one of several literals.
    pub(crate) fn chosen_literal(&mut self) -> Option<Written> {
        self.cover(C::LiteralChosen);
        let name = self.fresh_name(Ty::Literal);
        let condition = self.value(Ty::Flag, 0);
        if self.prng.chance(50) {
            self.scope.push(Var::owned(name.clone(), Ty::Literal));
            return Some((code!["let ", name, " = if ", condition, " { \"large\" } else { \"small\" };"], false));
        }
        let declared = code!["let mut ", &name, " = \"start\";"];
        self.scope.push(Var::owned(name.clone(), Ty::Literal).mutable());
        let changed = code!["if ", condition, " { ", name, " = \"later\"; }"];
        Some((Code::Lines(vec![declared, changed]), false))
    }
}
