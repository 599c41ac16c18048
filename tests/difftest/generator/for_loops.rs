//! `for` over ranges, over values and iterator chains, and over borrows.
use super::Body;
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::loops::ITEMS;
use super::scope::{Hold, Var, VarId};
use super::types::Ty;

impl Body {
    /// A `for` loop: the source is written before the loop begins, `locals` are what each round binds.
    fn for_loop(&mut self, pattern: &str, source: Code, rounds: usize, locals: Vec<Var>) -> Code {
        let bind = |body: &mut Body, (): &()| {
            for local in locals {
                body.scope.push(local);
            }
            Vec::new()
        };
        let (label, (), block) = self.looped(None, rounds, |_| (), bind);
        code![label, "for ", pattern, " in ", source, " ", block]
    }

    pub(crate) fn for_range(&mut self) -> Code {
        self.cover(C::ForRange);
        let name = self.new_name(Ty::Number);
        let source: Code = match self.prng.below(4) {
            0 => code!["0..", self.at(C::StepFor, Ty::Number, 1), " % 4"],
            1 => "1..=2u32".into(),
            2 => code!["(0..", self.at(C::StepFor, Ty::Number, 0), " % 4).rev()"],
            _ => "2..4u32".into(),
        };
        let local = Var::owned(name.clone(), Ty::Number);
        self.for_loop(&name, source, ITEMS, vec![local])
    }

    pub(crate) fn for_value(&mut self) -> Code {
        let n = self.fresh_name(Ty::Number);
        let number = Var::owned(n.clone(), Ty::Number);
        match self.prng.below(8) {
            0 => {
                self.cover(C::ForArray);
                let items = code!["[", self.at(C::StepArray, Ty::Number, 1), ", ", self.at(C::StepArray, Ty::Number, 1), "]"];
                self.for_loop(&n, items, 2, vec![number])
            }
            1 => {
                self.cover(C::ForOption);
                let maybe = self.at(C::StepFor, Ty::Maybe, 0);
                self.for_loop(&n, maybe, 1, vec![number])
            }
            2 | 3 => {
                self.cover(C::ForIterator);
                let list = self.at(C::StepFor, Ty::List, 0);
                let copies = self.copies_of(Ty::Number);
                let chain = match copies.iter().find(|name| !name.starts_with('*')) {
                    Some(captured) if self.prng.chance(60) => format!(".into_iter().map(move |q| q ^ {captured}).collect::<Vec<_>>()"),
                    _ => self
                        .prng
                        .one_of(&[".into_iter().rev()", ".into_iter().filter(|q| *q % 2 == 0).collect::<Vec<_>>()", ".into_iter().take(2)"])
                        .to_owned(),
                };
                self.for_loop(&n, code![list, chain], ITEMS, vec![number])
            }
            4 => {
                self.cover(C::ForIterator);
                let i = self.fresh_name(Ty::Index);
                let list = self.at(C::StepFor, Ty::List, 0);
                let index = Var::owned(i.clone(), Ty::Index);
                self.for_loop(&format!("({i}, {n})"), code![list, ".into_iter().enumerate()"], ITEMS, vec![index, number])
            }
            5 => {
                self.cover(C::ForValue);
                let it = self.fresh_name(Ty::Item);
                let items = self.at(C::StepFor, Ty::Items, 0);
                let local = Var::owned(it.clone(), Ty::Item);
                self.for_loop(&it, items, ITEMS, vec![local])
            }
            6 if let Some(id) = self.find_where(|scope, id, var| var.ty == Ty::Item && scope.movable(id)) => {
                self.cover(C::PartlyMoved);
                let t = self.fresh_name(Ty::Text);
                let tags = code![self.move_out(id), ".tags"];
                let local = Var::owned(t.clone(), Ty::Text);
                self.for_loop(&t, tags, ITEMS, vec![local])
            }
            _ => {
                self.cover(C::ForValue);
                let list = self.at(C::StepFor, Ty::List, 1);
                let mutable = self.prng.chance(30);
                let (pattern, number) = if mutable { (format!("mut {n}"), number.mutable()) } else { (n, number) };
                self.for_loop(&pattern, list, ITEMS, vec![number])
            }
        }
    }

    /// A loop in a loop, by value or by borrow.
    pub(crate) fn for_rows(&mut self) -> Code {
        let (row, cell) = (self.fresh_name(Ty::List), self.fresh_name(Ty::Number));
        let grid = self.find_where(|scope, id, var| var.ty == Ty::Grid && var.hold != Hold::Exclusive && scope.readable(id));
        let (source, hold, borrows, prelude) = match grid {
            Some(grid) if self.prng.chance(60) => (Code::from(self.borrow_of(grid)), Hold::Shared, vec![grid], None),
            _ if self.prng.chance(50) => {
                let g = self.fresh_name(Ty::Grid);
                let made = self.at(C::StepLet, Ty::Grid, 0);
                let id = self.scope.push(Var::owned(g.clone(), Ty::Grid));
                (format!("&{g}").into(), Hold::Shared, vec![id], Some(code!["let ", g, " = ", made, ";"]))
            }
            _ => (self.at(C::StepFor, Ty::Grid, 0), Hold::Owned, Vec::new(), None),
        };
        self.cover(if hold == Hold::Shared { C::ForNestedBorrow } else { C::ForNested });
        let local = Var::owned(row.clone(), Ty::List).borrowing(hold, &borrows);
        let bind = |body: &mut Body, (): &()| {
            let id = body.scope.push(local);
            let (source, borrows) = match hold {
                Hold::Owned => (body.move_out(id), Vec::new()),
                _ => (Code::from(row.clone()), vec![id]),
            };
            let item = Var::owned(cell.clone(), Ty::Number).borrowing(hold, &borrows);
            vec![body.for_loop(&cell, source, 2, vec![item])]
        };
        let (label, (), block) = self.looped(None, 2, |_| (), bind);
        let code = code![label, "for ", &row, " in ", source, " ", block];
        prelude.map_or(code.clone(), |declared| Code::Lines(vec![declared, code]))
    }

    pub(crate) fn for_borrow(&mut self) -> Code {
        let source = self.find_where(|scope, id, var| {
            let iterable = matches!(var.ty, Ty::List | Ty::Slice | Ty::Items | Ty::Tags | Ty::Item | Ty::Text | Ty::Maybe | Ty::Literal);
            iterable && var.hold != Hold::Exclusive && scope.readable(id)
        });
        let Some(id) = source else { return self.for_value() };
        let var = self.scope.var(id).clone();
        let place = if var.ty == Ty::Item { format!("{}.tags", var.name) } else { var.name.clone() };
        let (item, is_place) = match var.ty {
            Ty::List | Ty::Slice | Ty::Maybe => (Ty::Number, var.ty != Ty::Item),
            Ty::Items => (Ty::Item, true),
            Ty::Tags | Ty::Item => (Ty::Text, true),
            _ => (Ty::Letter, false),
        };
        let q = self.fresh_name(item);
        if item == Ty::Letter {
            self.cover(C::ForBorrowChain);
            let source = code![place, ".chars().take(3)"];
            let owned = vec![Var::owned(q.clone(), item), Self::hidden_borrow(id)];
            return self.for_loop(&q, source, ITEMS, owned);
        }
        let borrowed = Var::owned(q.clone(), item).borrowing(Hold::Shared, &[id]);
        if is_place && self.prng.chance(60) {
            self.cover(C::ForBorrow);
            let already = var.hold == Hold::Shared && var.ty != Ty::Item;
            let source = if already { place } else { format!("&{place}") };
            return self.for_loop(&q, source.into(), ITEMS, vec![borrowed]);
        }
        self.cover(C::ForBorrowChain);
        self.borrowed_chain(id, &place, &q, borrowed)
    }

    fn borrowed_chain(&mut self, id: VarId, place: &str, q: &str, borrowed: Var) -> Code {
        let i = self.fresh_name(Ty::Index);
        let index = Var::owned(i.clone(), Ty::Index);
        let is_list = matches!(self.scope.var(id).ty, Ty::List | Ty::Slice);
        match self.prng.below(if is_list { 9 } else { 4 }) {
            0 => self.for_loop(&format!("({i}, {q})"), format!("{place}.iter().enumerate()").into(), ITEMS, vec![index, borrowed]),
            1 => self.for_loop(q, format!("{place}.iter().rev()").into(), ITEMS, vec![borrowed]),
            2 => self.for_loop(q, format!("{place}.iter().skip(1)").into(), ITEMS, vec![borrowed]),
            3 => {
                let source = format!("{place}.iter().take(2).enumerate()");
                self.for_loop(&format!("({i}, {q})"), source.into(), 2, vec![index, borrowed])
            }
            4 => {
                let n = self.fresh_name(Ty::Number);
                let number = Var::owned(n.clone(), Ty::Number).borrowing(Hold::Shared, &[id]);
                let source = format!("{place}.iter().zip({place}.iter().rev())");
                self.for_loop(&format!("({q}, {n})"), source.into(), ITEMS, vec![borrowed, number])
            }
            5 => {
                let copied = Var::owned(q.to_owned(), Ty::Number);
                let hidden = Self::hidden_borrow(id);
                self.for_loop(q, format!("{place}.iter().copied()").into(), ITEMS, vec![copied, hidden])
            }
            6 | 7 => {
                let method = self.prng.one_of(&["chunks(2)", "windows(2)"]);
                let v = self.fresh_name(Ty::Slice);
                let slice = Var::owned(v.clone(), Ty::Slice).borrowing(Hold::Shared, &[id]);
                self.for_loop(&v, format!("{place}.{method}").into(), 2, vec![slice])
            }
            _ => self.for_loop(q, format!("{place}.iter().chain({place}.iter())").into(), ITEMS * 2, vec![borrowed]),
        }
    }

    /// The borrow that an iterator holds, under no name.
    fn hidden_borrow(id: VarId) -> Var {
        Var::owned(String::new(), Ty::Number).borrowing(Hold::Shared, &[id])
    }
}
