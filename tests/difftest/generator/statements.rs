//! Which statement comes next, and the plain ones.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::scope::{Hold, Var};
use super::types::{Ty, VALUES};
use super::{Body, Written};

/// Writes a statement, or nothing where it cannot stand.
type Writer = fn(&mut Body) -> Option<Written>;

/// Statements without statements inside.
const SIMPLE: &[(usize, Writer)] = &[
    (14, Body::let_value),
    (6, Body::step_statement),
    (2, Body::sleep_statement),
    (12, Body::change),
    (7, Body::note_statement),
    (2, Body::asserted),
    (3, Body::destructured),
    (4, Body::called),
    (3, Body::question_outside),
    (4, Body::closures),
    (3, Body::closure_kept),
    (2, Body::literal),
    (1, Body::fresh),
    (3, Body::fresh_of_a_local),
    (3, Body::field_moved),
    (2, Body::guard_dropped),
    (4, Body::borrow),
    (6, Body::borrow_element),
    (2, Body::late_type),
    (6, Body::moved_and_assigned),
    (3, Body::shadow_borrowed),
    (4, Body::named_in_macros),
    (2, Body::chosen_literal),
    (5, Body::guard_held),
    (3, Body::guard_gone),
    (3, Body::guard_operand),
    (2, Body::walked_between),
    (2, Body::capitals),
    (2, Body::text_macros),
    (1, Body::fresh_behind_a_trait),
];

/// Statements with statements inside.
const NESTED: &[(usize, Writer)] = &[
    (5, Body::if_else),
    (4, Body::if_let),
    (4, Body::match_statement),
    (3, Body::let_match),
    (4, Body::let_else),
    (14, Body::any_loop),
    (2, Body::labelled_block),
    (2, Body::let_block),
    (3, Body::leave_if),
    (2, Body::late_set),
    (4, Body::pattern_set_later),
    (2, Body::moved_on_one_path),
    (6, Body::moved_then_left),
    (2, Body::exclusive_borrow),
    (3, Body::shadow_inside),
    (4, Body::argument_that_changes),
    (4, Body::row_that_changes),
    (3, Body::copied_out),
    (2, Body::changed_items),
    (3, Body::dropped_value),
    (3, Body::diverging_macro),
    (2, Body::literal_list),
    (5, Body::partly_moved),
    (2, Body::guarded_block),
    (3, Body::select),
    (2, Body::let_select),
    (5, Body::caught),
    (3, Body::side_by_side),
    (3, Body::noisy),
    (2, Body::guard_in_arm),
    (5, Body::guard_in_block),
    (3, Body::guard_bound),
    (4, Body::guard_matched),
    (2, Body::guard_gone_over),
    (2, Body::guard_on_one_path),
    (3, Body::walked),
    (3, Body::replaced_list),
    (3, Body::by_reference),
];

impl Body {
    /// A statement that can stand here.
    pub(crate) fn statement(&mut self) -> Written {
        for _ in 0..20 {
            let nested = self.nesting < 4 && self.statements > 0 && self.prng.chance(45);
            let table = if nested { NESTED } else { SIMPLE };
            let weights: Vec<usize> = table.iter().map(|(weight, _)| *weight).collect();
            let (_, writer) = table[self.prng.weighted(&weights)];
            if let Some(written) = writer(self) {
                return written;
            }
        }
        (self.note(), false)
    }

    /// A type for a new local; numbers are the most useful ones.
    pub(crate) fn some_type(&mut self) -> Ty {
        let common = [Ty::Number, Ty::Number, Ty::List, Ty::Item, Ty::Text];
        if self.prng.chance(60) { self.prng.one_of(&common) } else { self.prng.one_of(&VALUES) }
    }

    /// `let` of a value that is already written.
    pub(crate) fn let_of(&mut self, ty: Ty, value: Code) -> Code {
        let name = self.new_name(ty);
        let var = Var::owned(name.clone(), ty);
        let mutable = self.prng.chance(60);
        self.scope.push(if mutable { var.mutable() } else { var });
        code!["let ", if mutable { "mut " } else { "" }, name, " = ", value, ";"]
    }

    fn let_value(&mut self) -> Option<Written> {
        let ty = self.some_type();
        let value = self.at(C::StepLet, ty, 2);
        Some((self.let_of(ty, value), false))
    }

    fn let_block(&mut self) -> Option<Written> {
        let ty = self.some_type();
        let (value, gone) = self.value_block(ty);
        Some((self.let_of(ty, value), gone))
    }

    fn step_statement(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        self.cover(C::StepStatement);
        let ty = self.some_type();
        Some((code![self.step(ty), ";"], false))
    }

    fn sleep_statement(&mut self) -> Option<Written> {
        Some((code![self.sleep()?, ";"], false))
    }

    /// Puts a few locals down in the log, so that a wrong value shows.
    pub(crate) fn note(&mut self) -> Code {
        let locals = self.scope.find(|scope, id, _| scope.readable(id));
        if self.prng.chance(50) && !locals.is_empty() {
            let id = self.prng.one_of(&locals);
            let borrow =
                if self.scope.var(id).hold == Hold::Exclusive { format!("&*{}", self.scope.var(id).name) } else { self.borrow_of(id) };
            return code!["io.note(", borrow, ");"];
        }
        code!["io.note(", self.captured(), ");"]
    }

    fn note_statement(&mut self) -> Option<Written> {
        Some((self.note(), false))
    }

    fn asserted(&mut self) -> Option<Written> {
        self.cover(C::MacroAssert);
        let (n, text) = (self.atom(), self.captured());
        Some((code!["assert!(plus(", n, ", 1) != 7_000_001, \"{}\", ", text, ");"], false))
    }

    /// A local changed in place, or given a new value.
    fn change(&mut self) -> Option<Written> {
        let unset = self.find_where(|scope, id, var| !var.set && VALUES.contains(&var.ty) && scope.assignable(id));
        if let Some(id) = unset
            && self.prng.chance(70)
        {
            let ty = self.scope.var(id).ty;
            let value = self.at(C::StepAssign, ty, 1);
            self.cover(C::Reassigned);
            self.scope.set(id, true);
            return Some((code![self.scope.var(id).name.clone(), " = ", value, ";"], false));
        }
        let changed = |ty: Ty| VALUES.contains(&ty) || ty == Ty::Tags;
        let id = self.find_where(|scope, id, var| changed(var.ty) && scope.writable(id))?;
        let var = self.scope.var(id).clone();
        self.cover(C::Mutated);
        let (name, place) = (var.name.clone(), self.read(id));
        // The place is not borrowed while the value is worked out, but it must still be there.
        self.scope.pin(id);
        let code = match var.ty {
            Ty::Number if self.prng.chance(60) => {
                let operator = self.prng.one_of(&[" ^= ", " |= ", " &= "]);
                code![place, operator, self.at(C::StepCompound, Ty::Number, 1), ";"]
            }
            Ty::List => code![name, ".push(", self.at(C::StepMethodArgument, Ty::Number, 1), ");"],
            Ty::Tags => code![name, ".push(", self.at(C::StepMethodArgument, Ty::Text, 1), ");"],
            Ty::Text => code![name, ".push_str(&", self.value(Ty::Text, 1), ");"],
            Ty::Item if self.prng.chance(70) => match self.prng.below(3) {
                0 => code![name, ".id = ", self.at(C::StepAssign, Ty::Number, 1), ";"],
                1 => code![name, ".tags.push(", self.at(C::StepMethodArgument, Ty::Text, 1), ");"],
                _ => code![name, ".next = Some(Box::new(", self.value(Ty::Item, 1), "));"],
            },
            Ty::Pair => code![name, ".1 = ", self.at(C::StepAssign, Ty::Text, 1), ";"],
            Ty::Grid => code![name, ".push(", self.at(C::StepMethodArgument, Ty::List, 1), ");"],
            ty => code![place, " = ", self.at(C::StepAssign, ty, 1), ";"],
        };
        self.scope.unpin();
        Some((code, false))
    }

    fn destructured(&mut self) -> Option<Written> {
        self.cover(C::Destructured);
        let ty = self.prng.one_of(&[Ty::Pair, Ty::Item]);
        let value = self.at(C::StepLet, ty, 1);
        let pattern = self.irrefutable(ty);
        self.bind(&pattern);
        Some((code!["let ", pattern.text, " = ", value, ";"], false))
    }

    fn called(&mut self) -> Option<Written> {
        let (call, ty) = self.inline_call()?;
        if ty == Ty::Number && self.prng.chance(40) {
            self.cover(C::Match);
            let value = code!["match ", call, " { Ok(n) => n, Err(why) => why.len() as u32 }"];
            return Some((self.let_of(ty, value), false));
        }
        self.cover(C::QuestionOutside);
        Some((self.let_of(ty, code![call, "?"]), false))
    }

    fn question_outside(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        let step = self.step_result();
        if !self.may_leave() || self.prng.chance(50) {
            self.cover(C::QuestionOutside);
            return Some((self.let_of(Ty::Number, code![step, "?"]), false));
        }
        self.cover(C::StepMatch);
        self.cover(C::DivergingArm);
        let out = self.on_one_path(Body::leave);
        let value = code!["match ", step, " { Ok(n) => n, Err(why) if why.is_empty() => 1, Err(_) => ", out, " }"];
        Some((self.let_of(Ty::Number, value), false))
    }

    fn closures(&mut self) -> Option<Written> {
        self.names += 1;
        let twist = format!("twist{}", self.names);
        let list = self.find_where(|scope, id, var| var.ty == Ty::List && var.hold == Hold::Owned && scope.writable(id));
        // A list that may be changed is rare enough to be changed whenever there is one.
        if let Some(list) = list {
            self.cover(C::ClosureMut);
            let name = self.scope.var(list).name.clone();
            let calls = format!("let mut {twist} = |q: u32| {name}.push(q); {twist}(1); {twist}(2);");
            return Some((calls.into(), false));
        }
        self.cover(C::Closure);
        let (captured, n) = (self.atom(), self.atom());
        let made = code!["let ", &twist, " = |q: u32| plus(q, ", captured, ");"];
        let used = self.let_of(Ty::Number, code![&twist, "(", n, ")"]);
        Some((Code::Lines(vec![made, used]), false))
    }

    /// A closure that is called behind a step, also one that takes what it captures.
    fn closure_kept(&mut self) -> Option<Written> {
        if !self.can_step() {
            return None;
        }
        let id = self.find_where(|scope, id, var| var.hold == Hold::Owned && !var.mutable && scope.readable(id))?;
        self.cover(C::ClosureKept);
        self.names += 1;
        let twist = format!("twist{}", self.names);
        let takes = self.scope.var(id).ty.is_copy() && self.prng.chance(50);
        let captured = self.number_of(id);
        let made = format!("let {twist} = {}|q: u32| plus(q, {captured});", if takes { "move " } else { "" });
        self.scope.pin(id);
        let step = code!["io.note(", self.step(Ty::Number), ");"];
        let n = self.atom();
        let used = self.let_of(Ty::Number, code![&twist, "(", n, ")"]);
        self.scope.unpin();
        Some((Code::Lines(vec![made.into(), step, used]), false))
    }

    fn leave_if(&mut self) -> Option<Written> {
        if !self.may_leave() {
            return None;
        }
        let condition = self.condition(1);
        let out = self.nested(|body| body.on_one_path(Body::leave));
        self.cover(C::If);
        Some((code!["if ", condition, " { ", out, "; }"], false))
    }

    fn literal(&mut self) -> Option<Written> {
        self.cover(C::LiteralLocal);
        let name = self.new_name(Ty::Literal);
        let text = self.prng.one_of(&["ada", "née", "a \\\"b\\\""]);
        self.scope.push(Var::owned(name.clone(), Ty::Literal));
        Some((format!("let {name} = \"{text}\";").into(), false))
    }

    fn fresh(&mut self) -> Option<Written> {
        self.cover(C::Fresh);
        let name = self.fresh_name(Ty::Token);
        let number = self.prng.below(90);
        self.scope.push(Var::owned(name.clone(), Ty::Token));
        Some((code![Code::Fresh, format!("let {name} = Token::new({number});")], false))
    }

    /// A fresh local that is made from another one, by a coercion, a method call or a field.
    fn fresh_of_a_local(&mut self) -> Option<Written> {
        const FROM: [Ty; 5] = [Ty::Text, Ty::List, Ty::Slice, Ty::Item, Ty::Boxed];
        let id = self.find_where(|scope, id, var| FROM.contains(&var.ty) && var.hold != Hold::Exclusive && scope.readable(id))?;
        self.cover(C::FreshOfALocal);
        let Var { name: from, ty, .. } = self.scope.var(id).clone();
        let borrow = self.borrow_of(id);
        let by_method = self.prng.chance(50);
        let made = match ty {
            Ty::Text if by_method => format!("Token::new({from}.trim().len() as u32)"),
            Ty::Text => format!("Token::of_text({borrow})"),
            Ty::List | Ty::Slice if by_method => format!("Token::new({from}.len() as u32)"),
            Ty::List | Ty::Slice => format!("Token::of_list({borrow})"),
            _ if by_method => format!("Token::new({from}.tags.len() as u32)"),
            _ => format!("Token::of_item({borrow})"),
        };
        let name = self.fresh_name(Ty::Token);
        // As a borrow would, it keeps the other local from being changed or moved.
        self.scope.push(Var::owned(name.clone(), Ty::Token).borrowing(Hold::Owned, &[id]));
        Some((code![Code::Fresh, format!("let {name} = {made};")], false))
    }
}
