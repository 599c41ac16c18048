//! Values that are more than a number or a flag: literals of every shape, clones, and moves out of locals.
use super::Body;
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::scope::{Hold, VarId};
use super::types::Ty;

impl Body {
    pub(crate) fn compound(&mut self, ty: Ty, depth: usize) -> Code {
        if self.prng.chance(if depth == 0 { 60 } else { 30 })
            && let Some(taken) = self.take(ty)
        {
            return taken;
        }
        if depth > 0 && self.prng.chance(12) {
            return self.if_value(ty, depth - 1);
        }
        let inner = depth.saturating_sub(1);
        let choice = self.prng.below(5);
        match ty {
            Ty::Text => self.new_text(choice, inner),
            Ty::List => self.new_list(choice, inner),
            Ty::Maybe => self.new_maybe(choice, inner),
            Ty::Pair => code!["(", self.at(C::StepTuple, Ty::Number, inner), ", ", self.at(C::StepTuple, Ty::Text, inner), ")"],
            Ty::Item => self.new_item(choice, inner),
            Ty::Shape => self.new_shape(choice, inner),
            Ty::Grid => code!["Vec::from([", self.at(C::StepArray, Ty::List, inner), ", ", self.value(Ty::List, inner), "])"],
            Ty::Items => {
                self.cover(C::MacroVec);
                let n = self.atom();
                code!["vec![make_item(", n, ", \"one\".to_string())]"]
            }
            other => unreachable!("{other:?} comes out of patterns only"),
        }
    }

    fn new_text(&mut self, choice: usize, depth: usize) -> Code {
        match choice {
            0 => code!["\"plain\".to_string()"],
            1 => match self.find_shared(Ty::Text) {
                Some(text) => {
                    let borrow = self.borrow_of(text);
                    self.scope.pin(text);
                    let number = self.after_borrow(depth);
                    self.scope.unpin();
                    code!["label(", borrow, ", ", number, ")"]
                }
                None => code!["label(\"text\", ", self.at(C::StepArgument, Ty::Number, depth), ")"],
            },
            2 => {
                let n = self.atom();
                code!["format!(\"{:>width$}\", ", n, ", width = 4)"]
            }
            _ => self.captured(),
        }
    }

    /// `format!` with captured locals.
    pub(crate) fn captured(&mut self) -> Code {
        let locals = self.scope.find(|scope, id, _| scope.readable(id));
        if locals.is_empty() {
            return code!["String::from(\"none\")"];
        }
        self.cover(C::FormatCapture);
        let mut captures = Vec::new();
        for _ in 0..=self.prng.below(3) {
            let id = self.prng.one_of(&locals);
            let var = self.scope.var(id);
            let plain = matches!(var.ty, Ty::Number | Ty::Text | Ty::Literal);
            captures.push(if plain { format!("{{{}}}", var.name) } else { format!("{{{}:?}}", var.name) });
        }
        code!["format!(\"", captures.join(" "), "\")"]
    }

    fn new_list(&mut self, choice: usize, depth: usize) -> Code {
        match choice {
            0 => {
                self.cover(C::MacroVec);
                let (a, b) = (self.atom(), self.atom());
                code!["vec![", a, ", ", b, "]"]
            }
            1 => match (self.find_readable(Ty::List), self.copies_of(Ty::Number).first()) {
                (Some(list), Some(n)) => {
                    self.cover(C::Closure);
                    code![self.scope.var(list).name.clone(), ".iter().map(|q| q ^ ", n, ").collect::<Vec<u32>>()"]
                }
                _ => code!["Vec::from([", self.at(C::StepArray, Ty::Number, depth), "])"],
            },
            2 => code!["(0..", self.at(C::StepOperand, Ty::Number, depth), " % 4).collect::<Vec<u32>>()"],
            _ => code!["Vec::from([", self.at(C::StepArray, Ty::Number, depth), ", ", self.at(C::StepArray, Ty::Number, depth), "])"],
        }
    }

    fn new_maybe(&mut self, choice: usize, depth: usize) -> Code {
        match choice {
            0 => code!["None::<u32>"],
            1 => match self.find_readable(Ty::List) {
                Some(list) => code![self.scope.var(list).name.clone(), ".first().copied()"],
                None => code!["Some(", self.value(Ty::Number, depth), ")"],
            },
            2 => match self.copies_of(Ty::Maybe).first() {
                Some(maybe) if !maybe.starts_with('*') => {
                    let n = self.atom();
                    code![maybe, ".filter(|q| *q > ", n, ")"]
                }
                _ => code!["Some(", self.at(C::StepVariant, Ty::Number, depth), ")"],
            },
            _ => code!["Some(", self.at(C::StepVariant, Ty::Number, depth), ")"],
        }
    }

    fn new_item(&mut self, choice: usize, depth: usize) -> Code {
        match choice {
            0 => code!["make_item(", self.at(C::StepArgument, Ty::Number, depth), ", ", self.at(C::StepArgument, Ty::Text, depth), ")"],
            1 => match self.find_shared(Ty::Item) {
                Some(item) => {
                    self.scope.pin(item);
                    let id = self.at(C::StepStructField, Ty::Number, depth);
                    self.scope.unpin();
                    code!["Item { id: ", id, ", ..", self.scope.var(item).name.clone(), ".clone() }"]
                }
                None => code!["make_item(4, ", self.value(Ty::Text, depth), ")"],
            },
            2 if depth > 0 => {
                let id = self.at(C::StepStructField, Ty::Number, depth);
                code!["Item { id: ", id, ", tags: Vec::new(), next: Some(Box::new(", self.value(Ty::Item, depth - 1), ")) }"]
            }
            _ => {
                let id = self.at(C::StepStructField, Ty::Number, depth);
                let tag = self.at(C::StepArray, Ty::Text, depth);
                code!["Item { id: ", id, ", tags: Vec::from([", tag, "]), next: None }"]
            }
        }
    }

    fn new_shape(&mut self, choice: usize, depth: usize) -> Code {
        match choice {
            0 => code!["Shape::Empty"],
            1 => code!["Shape::One(", self.at(C::StepVariant, Ty::Number, depth), ")"],
            2 | 3 => {
                code!["Shape::Two(", self.at(C::StepVariant, Ty::Number, depth), ", ", self.at(C::StepVariant, Ty::Text, depth), ")"]
            }
            _ => {
                let id = self.at(C::StepStructField, Ty::Number, depth);
                code!["Shape::Named { id: ", id, ", item: ", self.at(C::StepStructField, Ty::Item, depth), " }"]
            }
        }
    }

    /// The value of some local, moved where it can be and chance will have it, or cloned.
    pub(crate) fn take(&mut self, ty: Ty) -> Option<Code> {
        let id = self.find_readable(ty)?;
        if ty.is_copy() {
            return Some(self.read(id).into());
        }
        if self.moves_allowed && self.scope.movable(id) && self.prng.chance(50) {
            return Some(self.move_out(id));
        }
        Some(code![self.scope.var(id).name.clone(), ".clone()"])
    }

    /// A local's value, gone from it afterwards.
    pub(crate) fn move_out(&mut self, id: VarId) -> Code {
        debug_assert_eq!(self.scope.var(id).hold, Hold::Owned);
        self.cover(C::Moved);
        self.scope.set(id, false);
        self.scope.var(id).name.clone().into()
    }
}
