//! Borrows that live across steps.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::scope::{Hold, Var};
use super::types::{Ty, VALUES};
use super::{Body, Written};

impl Body {
    /// `let y = &x;` or `let y = &x.field;`
    pub(crate) fn borrow(&mut self) -> Option<Written> {
        let id = self.find_where(|scope, id, var| {
            let whole = var.hold == Hold::Owned && VALUES.contains(&var.ty);
            scope.readable(id) && (whole || (var.hold == Hold::Shared && matches!(var.ty, Ty::Item | Ty::Pair)))
        })?;
        let Var { name, ty, hold, .. } = self.scope.var(id).clone();
        let field = match ty {
            Ty::Item => Some(self.prng.one_of(&[(".id", Ty::Number), (".tags", Ty::Tags), (".next", Ty::Next)])),
            Ty::Pair => Some(self.prng.one_of(&[(".0", Ty::Number), (".1", Ty::Text)])),
            _ => None,
        };
        let (place, ty) = match field {
            Some((field, ty)) if hold == Hold::Shared || self.prng.chance(60) => {
                self.cover(C::BorrowField);
                (format!("&{name}{field}"), ty)
            }
            _ => {
                self.cover(C::BorrowWhole);
                (format!("&{name}"), ty)
            }
        };
        let new = self.fresh_name(ty);
        self.scope.push(Var::owned(new.clone(), ty).borrowing(Hold::Shared, &[id]));
        Some((format!("let {new} = {place};").into(), false))
    }

    /// `let y = &v[i];` or `let y = &v[1..];` of a list that has such an element.
    pub(crate) fn borrow_element(&mut self) -> Option<Written> {
        let id = self.find_where(|scope, id, var| var.ty == Ty::List && var.hold == Hold::Owned && scope.writable(id))?;
        let name = self.scope.var(id).name.clone();
        let push = code![&name, ".push(", self.atom(), ");"];
        if self.prng.chance(35) {
            self.cover(C::BorrowSlice);
            let new = self.fresh_name(Ty::Slice);
            self.scope.push(Var::owned(new.clone(), Ty::Slice).borrowing(Hold::Shared, &[id]));
            return Some((Code::Lines(vec![push, format!("let {new} = &{name}[1..];").into()]), false));
        }
        self.cover(C::BorrowIndex);
        let new = self.fresh_name(Ty::Number);
        let mut lines = vec![push];
        let index = if self.prng.chance(40) {
            "0".to_owned()
        } else {
            let index = self.fresh_name(Ty::Index);
            lines.push(format!("let {index} = {name}.len() - 1;").into());
            self.scope.push(Var::owned(index.clone(), Ty::Index));
            index
        };
        self.scope.push(Var::owned(new.clone(), Ty::Number).borrowing(Hold::Shared, &[id]));
        lines.push(format!("let {new} = &{name}[{index}];").into());
        Some((Code::Lines(lines), false))
    }

    /// `let y = &mut x;` with steps between its uses.
    pub(crate) fn exclusive_borrow(&mut self) -> Option<Written> {
        let id = self.find_where(|scope, id, var| {
            let changed = matches!(var.ty, Ty::Number | Ty::Text | Ty::List | Ty::Item);
            changed && var.hold == Hold::Owned && scope.writable(id)
        })?;
        self.cover(C::BorrowMut);
        let Var { name, ty, .. } = self.scope.var(id).clone();
        let (place, ty) = if ty == Ty::Item && self.prng.chance(50) { (format!("{name}.tags"), Ty::Tags) } else { (name, ty) };
        let (lines, gone) = self.nested(|body| {
            let new = body.fresh_name(ty);
            body.reserved.push(new.clone());
            let borrow = body.scope.push(Var::owned(new.clone(), ty).borrowing(Hold::Exclusive, &[id]));
            let changed: Code = match ty {
                Ty::Number => format!("*{new} ^= 3;"),
                Ty::Text => format!("{new}.push('!');"),
                Ty::List => format!("{new}.push(8);"),
                Ty::Tags => format!("{new}.push(String::new());"),
                _ => format!("{new}.id ^= 1;"),
            }
            .into();
            let mut lines = vec![format!("let {new} = &mut {place};").into(), changed.clone()];
            if body.can_step() {
                lines.push(code!["io.note(", body.step(Ty::Number), ");"]);
            }
            let (more, gone) = body.lines(2);
            lines.extend(more);
            if !gone && !body.scope.is_borrowed(borrow) {
                lines.push(changed);
            }
            body.reserved.pop();
            (lines, gone)
        });
        Some((Code::Block(lines), gone))
    }
}
