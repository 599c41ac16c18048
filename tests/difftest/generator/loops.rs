//! `loop`, `while`, `while let` and labelled blocks; every loop is bounded.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::scope::{Hold, Join, Var};
use super::types::Ty;
use super::{Body, Exit, Written};

/// How many items a collection is taken to have.
pub(crate) const ITEMS: usize = 3;
/// Nothing is nested deeper than this many rounds.
const MOST_TRIPS: usize = 12;

impl Body {
    /// A random loop.
    pub(crate) fn any_loop(&mut self) -> Option<Written> {
        if self.trips * ITEMS > MOST_TRIPS {
            return None;
        }
        if self.scope.loops() > 0 {
            self.cover(C::NestedLoops);
        }
        let code = match self.prng.below(14) {
            0 => self.endless(),
            1 => self.endless_with_value(),
            2 => self.while_loop(),
            3 | 4 => self.while_let(),
            5 => self.for_range(),
            6 | 7 | 12 | 13 => self.for_value(),
            8 => self.for_rows(),
            _ => self.for_borrow(),
        };
        Some((code, false))
    }

    /// Writes a loop's body; `head` writes what is evaluated in every round, `bind` brings its locals into scope.
    pub(crate) fn looped<T>(
        &mut self,
        value: Option<Ty>,
        rounds: usize,
        head: impl FnOnce(&mut Body) -> T,
        bind: impl FnOnce(&mut Body, &T) -> Vec<Code>,
    ) -> (Code, T, Code) {
        let mut join = Join::new(&self.scope);
        join.arrive(&self.scope);
        let label = self.prng.chance(65).then(|| self.new_label());
        let shown = label.as_ref().map_or(String::new(), |label| format!("'{label}: "));
        self.scope.enter_loop();
        self.trips *= rounds;
        let head = head(self);
        self.exits.push(Exit { label, is_loop: true, value, join });
        let (lines, gone) = self.nested(|body| {
            let mut lines = bind(body, &head);
            let (more, gone) = body.lines(4);
            lines.extend(more);
            (lines, gone)
        });
        self.trips /= rounds;
        self.scope.leave_loop();
        let mut exit = self.exits.pop().expect("it was pushed above");
        exit.join.path(&mut self.scope, gone);
        exit.join.meet(&mut self.scope);
        (shown.into(), head, Code::Block(lines))
    }

    pub(crate) fn new_label(&mut self) -> String {
        self.cover(C::Label);
        self.names += 1;
        format!("l{}", self.names)
    }

    /// A counter that nothing else touches: its name and its declaration.
    fn fuel_counter(&mut self, rounds: usize) -> (String, Code) {
        self.names += 1;
        let name = format!("fuel{}", self.names);
        let declared = format!("let mut {name} = {rounds}u32;").into();
        (name, declared)
    }

    fn endless(&mut self) -> Code {
        self.cover(C::Loop);
        let (fuel, declared) = self.fuel_counter(ITEMS);
        let check = vec![code!["if ", &fuel, " == 0 { break; }"], code![&fuel, " -= 1;"]];
        let (label, (), block) = self.looped(None, ITEMS, |_| (), |_, ()| check);
        Code::Lines(vec![declared, code![label, "loop ", block]])
    }

    fn endless_with_value(&mut self) -> Code {
        self.cover(C::LoopValue);
        let ty = self.some_type();
        let (fuel, declared) = self.fuel_counter(ITEMS);
        let bind = |body: &mut Body, (): &()| {
            let last = body.at(C::StepBreak, ty, 1);
            let mut lines = vec![code!["if ", &fuel, " == 0 { break ", last, "; }"], code![&fuel, " -= 1;"]];
            if body.prng.chance(60) {
                let condition = body.condition(1);
                let exit = body.exits.len() - 1;
                let out = body.on_one_path(|body| body.break_out(exit));
                lines.push(code!["if ", condition, " { ", out, "; }"]);
            }
            lines
        };
        let (label, (), block) = self.looped(Some(ty), ITEMS, |_| (), bind);
        let value = code![label, "loop ", block];
        Code::Lines(vec![declared, self.let_of(ty, value)])
    }

    fn while_loop(&mut self) -> Code {
        self.cover(C::While);
        let (fuel, declared) = self.fuel_counter(2);
        let step_alone = self.prng.chance(40);
        let head = |body: &mut Body| {
            if step_alone && body.can_step() {
                body.cover(C::StepWhile);
                return body.step(Ty::Flag);
            }
            let condition = body.on_one_path(|body| body.at(C::StepWhile, Ty::Flag, 1));
            code![&fuel, " > 0 && ", condition]
        };
        let bind = |_: &mut Body, _: &Code| vec![code!["if ", &fuel, " == 0 { break; }"], code![&fuel, " -= 1;"]];
        let (label, condition, block) = self.looped(None, ITEMS, head, bind);
        Code::Lines(vec![declared, code![label, "while ", condition, " ", block]])
    }

    fn while_let(&mut self) -> Code {
        self.cover(C::WhileLet);
        let (fuel, declared) = self.fuel_counter(2);
        let stack = self.find_where(|scope, id, var| var.ty == Ty::List && var.hold == Hold::Owned && scope.writable(id));
        let name = self.fresh_name(Ty::Number);
        let head = |body: &mut Body| {
            if let Some(stack) = stack
                && body.prng.chance(60)
            {
                return code![body.scope.var(stack).name.clone(), ".pop()"];
            }
            if body.can_step() && body.prng.chance(75) {
                body.cover(C::StepWhileLet);
                return body.step(Ty::Maybe);
            }
            body.value(Ty::Maybe, 1)
        };
        let bind = |body: &mut Body, _: &Code| {
            body.scope.push(Var::owned(name.clone(), Ty::Number));
            vec![code!["if ", &fuel, " == 0 { break; }"], code![&fuel, " -= 1;"]]
        };
        let (label, scrutinee, block) = self.looped(None, ITEMS, head, bind);
        Code::Lines(vec![declared, code![label, "while let Some(", name, ") = ", scrutinee, " ", block]])
    }

    /// `let x = 'l: { .. };`
    pub(crate) fn labelled_block(&mut self) -> Option<Written> {
        self.cover(C::LabelledBlock);
        let ty = self.some_type();
        let label = self.new_label();
        let join = Join::new(&self.scope);
        self.exits.push(Exit { label: Some(label.clone()), is_loop: false, value: Some(ty), join });
        let (lines, gone) = self.nested(|body| {
            let condition = body.condition(1);
            let exit = body.exits.len() - 1;
            let out = body.on_one_path(|body| body.break_out(exit));
            let mut lines = vec![code!["if ", condition, " { ", out, "; }"]];
            let (more, gone) = body.lines(3);
            lines.extend(more);
            if !gone {
                lines.push(body.at(C::StepOperand, ty, 1));
            }
            (lines, gone)
        });
        let mut exit = self.exits.pop().expect("it was pushed above");
        exit.join.path(&mut self.scope, gone);
        let gone = exit.join.meet(&mut self.scope);
        let value = code![format!("'{label}: "), Code::Block(lines)];
        Some((self.let_of(ty, value), gone))
    }
}
