//! Patterns of every kind, with what they bind.
use super::Body;
use super::coverage::Construct as C;
use super::scope::{Hold, Var, VarId};
use super::types::Ty;

/// A pattern and the locals that it makes.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    bindings: Vec<(String, Ty)>,
    hold: Hold,
    borrows: Vec<VarId>,
}

/// The types that patterns can take apart.
pub(crate) const MATCHED: [Ty; 5] = [Ty::Number, Ty::Maybe, Ty::Pair, Ty::Item, Ty::Shape];

impl Pattern {
    fn new(text: String, bindings: Vec<(String, Ty)>) -> Self {
        Pattern { text, bindings, hold: Hold::Owned, borrows: Vec::new() }
    }

    /// The same, matched against a borrow of a local.
    pub(crate) fn of(self, hold: Hold, borrows: &[VarId]) -> Self {
        Pattern { hold, borrows: borrows.to_vec(), ..self }
    }
}

impl Body {
    /// Brings what a pattern binds into scope.
    pub(crate) fn bind(&mut self, pattern: &Pattern) -> Vec<VarId> {
        let Pattern { bindings, hold, borrows, .. } = pattern;
        bindings.iter().map(|(name, ty)| self.scope.push(Var::owned(name.clone(), *ty).borrowing(*hold, borrows))).collect()
    }

    /// A pattern that some values of the type match.
    pub(crate) fn refutable(&mut self, ty: Ty) -> Pattern {
        let choice = self.prng.below(5);
        match ty {
            Ty::Number => self.number_pattern(choice),
            Ty::Maybe => self.maybe_pattern(choice),
            Ty::Pair => {
                let (n, t) = (self.fresh_name(Ty::Number), self.fresh_name(Ty::Text));
                match choice {
                    0 | 1 => Pattern::new(format!("(0..=9, {t})"), vec![(t, Ty::Text)]),
                    2 => {
                        self.cover(C::OrPattern);
                        Pattern::new(format!("(1 | 2 | 3, {t})"), vec![(t, Ty::Text)])
                    }
                    _ => {
                        self.cover(C::AtPattern);
                        Pattern::new(format!("({n} @ 5..=600, _)"), vec![(n, Ty::Number)])
                    }
                }
            }
            Ty::Item => self.item_pattern(choice),
            Ty::Shape => self.shape_pattern(choice),
            Ty::Next => {
                let it = self.fresh_name(Ty::Boxed);
                Pattern::new(format!("Some({it})"), vec![(it, Ty::Boxed)])
            }
            Ty::Choice => {
                let n = self.fresh_name(Ty::Number);
                match choice {
                    0 => {
                        self.cover(C::OrPattern);
                        Pattern::new("(true, None) | (false, Some(0..=3))".to_owned(), Vec::new())
                    }
                    1 | 2 => Pattern::new(format!("(true, Some({n}))"), vec![(n, Ty::Number)]),
                    _ => Pattern::new(format!("(_, Some({n}))"), vec![(n, Ty::Number)]),
                }
            }
            other => unreachable!("nothing matches on {other:?}"),
        }
    }

    fn number_pattern(&mut self, choice: usize) -> Pattern {
        match choice {
            0 => Pattern::new("0".to_owned(), Vec::new()),
            1 => {
                self.cover(C::OrPattern);
                Pattern::new("1 | 2 | 5..=8".to_owned(), Vec::new())
            }
            _ => {
                self.cover(C::AtPattern);
                let n = self.fresh_name(Ty::Number);
                Pattern::new(format!("{n} @ 3..=500"), vec![(n, Ty::Number)])
            }
        }
    }

    fn maybe_pattern(&mut self, choice: usize) -> Pattern {
        match choice {
            0 => {
                self.cover(C::OrPattern);
                Pattern::new("Some(0 | 1)".to_owned(), Vec::new())
            }
            1 => {
                self.cover(C::AtPattern);
                let n = self.fresh_name(Ty::Number);
                Pattern::new(format!("Some({n} @ (2..=9 | 30..))"), vec![(n, Ty::Number)])
            }
            _ => {
                let n = self.new_name(Ty::Number);
                Pattern::new(format!("Some({n})"), vec![(n, Ty::Number)])
            }
        }
    }

    fn item_pattern(&mut self, choice: usize) -> Pattern {
        let (n, it, tags) = (self.fresh_name(Ty::Number), self.fresh_name(Ty::Boxed), self.fresh_name(Ty::Tags));
        match choice {
            0 | 1 => {
                self.cover(C::NestedPattern);
                Pattern::new(format!("Item {{ id: {n}, next: Some({it}), .. }}"), vec![(n, Ty::Number), (it, Ty::Boxed)])
            }
            2 => Pattern::new(format!("Item {{ id: 0..=30, tags: {tags}, .. }}"), vec![(tags, Ty::Tags)]),
            3 => Pattern::new(format!("Item {{ tags: {tags}, next: None, .. }}"), vec![(tags, Ty::Tags)]),
            _ => {
                self.cover(C::AtPattern);
                let text = format!("Item {{ id: {n} @ 1..=300, tags: {tags}, next: _ }}");
                Pattern::new(text, vec![(n, Ty::Number), (tags, Ty::Tags)])
            }
        }
    }

    fn shape_pattern(&mut self, choice: usize) -> Pattern {
        let (n, t) = (self.fresh_name(Ty::Number), self.fresh_name(Ty::Text));
        match choice {
            0 => {
                self.cover(C::OrPattern);
                Pattern::new(format!("Shape::One({n}) | Shape::Two({n}, _)"), vec![(n, Ty::Number)])
            }
            1 => Pattern::new(format!("Shape::Two({n}, {t})"), vec![(n, Ty::Number), (t, Ty::Text)]),
            2 => {
                self.cover(C::NestedPattern);
                let tags = self.fresh_name(Ty::Tags);
                let text = format!("Shape::Named {{ id: {n}, item: Item {{ tags: {tags}, .. }} }}");
                Pattern::new(text, vec![(n, Ty::Number), (tags, Ty::Tags)])
            }
            3 => {
                let it = self.fresh_name(Ty::Item);
                Pattern::new(format!("Shape::Named {{ item: {it}, .. }}"), vec![(it, Ty::Item)])
            }
            _ => {
                self.cover(C::OrPattern);
                Pattern::new("Shape::Empty | Shape::One(0)".to_owned(), Vec::new())
            }
        }
    }

    /// A pattern that every value of the type matches.
    pub(crate) fn irrefutable(&mut self, ty: Ty) -> Pattern {
        match ty {
            Ty::Pair => {
                let (n, t) = (self.fresh_name(Ty::Number), self.fresh_name(Ty::Text));
                Pattern::new(format!("({n}, {t})"), vec![(n, Ty::Number), (t, Ty::Text)])
            }
            Ty::Item => {
                let (n, tags, next) = (self.fresh_name(Ty::Number), self.fresh_name(Ty::Tags), self.fresh_name(Ty::Next));
                let bindings = vec![(n.clone(), Ty::Number), (tags.clone(), Ty::Tags), (next.clone(), Ty::Next)];
                match self.prng.below(3) {
                    0 => Pattern::new(format!("Item {{ id: {n}, .. }}"), bindings[..1].to_vec()),
                    1 => Pattern::new(format!("Item {{ id: {n}, tags: {tags}, .. }}"), bindings[..2].to_vec()),
                    _ => Pattern::new(format!("Item {{ id: {n}, tags: {tags}, next: {next} }}"), bindings),
                }
            }
            other => unreachable!("{other:?} is not taken apart"),
        }
    }
}
