//! Iterators that are walked by hand, borrowed loops that end by changing what they go over, patterns with `ref`, and names that
//! look like others.
use super::code::{Code, code};
use super::coverage::Construct as C;
use super::loops::ITEMS;
use super::scope::{Hold, Join, Var};
use super::types::Ty;
use super::{Body, Written};

impl Body {
    /// `let mut r = ..; while let Some(x) = r.next() { .. }`
    pub(crate) fn walked(&mut self) -> Option<Written> {
        if self.trips * ITEMS > 12 {
            return None;
        }
        self.names += 1;
        let (walk, n) = (format!("walk{}", self.names), self.fresh_name(Ty::Number));
        let source: Code = if self.prng.chance(50) {
            self.cover(C::WalkedInclusive);
            self.prng.one_of(&["1..=3u32", "2..=2u32", "3..=2u32", "0..=2u32"]).into()
        } else {
            self.cover(C::WalkedRange);
            code!["0..", self.value(Ty::Number, 0), " % 4"]
        };
        let next = self.prng.one_of(&["next", "next", "next", "next_back"]);
        let declared = code!["let mut ", &walk, " = ", source, ";"];
        let rest = self.prng.chance(40);
        let local = Var::owned(n.clone(), Ty::Number);
        let bind = |body: &mut Body, (): &()| {
            body.scope.push(local);
            Vec::new()
        };
        let (label, (), block) = self.looped(None, ITEMS, |_| (), bind);
        let mut lines = vec![declared, code![label, format!("while let Some({n}) = {walk}.{next}() "), block]];
        if rest {
            lines.push(format!("io.note({walk}.count());").into());
        }
        Some((Code::Lines(lines), false))
    }

    /// An iterator that is walked between two steps.
    pub(crate) fn walked_between(&mut self) -> Option<Written> {
        let list = self.find_where(|scope, id, var| var.ty == Ty::List && var.hold == Hold::Owned && scope.readable(id))?;
        self.cover(C::WalkedBetween);
        let name = self.scope.var(list).name.clone();
        self.names += 1;
        let walk = format!("walk{}", self.names);
        let source = self.prng.one_of(&[".clone().into_iter()", ".clone().into_iter().peekable()", ".iter().copied().cycle().take(4)"]);
        let walked =
            format!("let mut {walk} = {name}{source}; while let Some(q) = {walk}.next() {{ io.note(q); }} io.note({walk}.next());");
        let step = if self.can_step() { code!["io.note(", self.step(Ty::Number), ");"] } else { "".into() };
        Some((Code::Lines(vec![walked.into(), step]), false))
    }

    /// A loop over a borrow that gives its list another value, or none, and ends.
    pub(crate) fn replaced_list(&mut self) -> Option<Written> {
        if self.trips * ITEMS > 12 {
            return None;
        }
        let list = self.find_where(|scope, id, var| var.ty == Ty::List && var.hold == Hold::Owned && scope.writable(id))?;
        self.cover(C::ForReplaced);
        let name = self.scope.var(list).name.clone();
        let n = self.fresh_name(Ty::Number);
        let (item, local) = (n.clone(), Var::owned(n.clone(), Ty::Number).borrowing(Hold::Shared, &[list]));
        let replaced = match self.prng.below(3) {
            0 => format!("{name}.clear();"),
            1 => format!("{name} = vec![1, {}];", self.prng.below(9)),
            _ => format!("{name}.push({});", self.prng.below(9)),
        };
        let by_iter = self.prng.chance(30);
        let bind = |body: &mut Body, (): &()| {
            body.scope.push(local);
            let step = if body.can_step() { code!["io.note(", body.step(Ty::Number), ");"] } else { "".into() };
            vec![step, code![format!("if *{n} % 2 == 0 "), Code::Block(vec![replaced.into(), "break;".into()])]]
        };
        let (label, (), block) = self.looped(None, ITEMS, |_| (), bind);
        let source = if by_iter { format!("{name}.iter()") } else { format!("&{name}") };
        let over = code![label, "for ", item, " in ", source, " ", block];
        Some((Code::Lines(vec![over, format!("io.note(&{name});").into()]), false))
    }

    /// `ref` in a pattern, also in one that may not match.
    pub(crate) fn by_reference(&mut self) -> Option<Written> {
        let id = self.find_where(|scope, id, var| var.ty == Ty::Item && var.hold == Hold::Owned && scope.readable(id))?;
        let Var { name, mutable, .. } = self.scope.var(id).clone();
        let may_change = mutable && self.scope.writable(id) && self.prng.chance(60);
        let tags = self.fresh_name(Ty::Tags);
        let local = Var::owned(tags.clone(), Ty::Tags).borrowing(Hold::Shared, &[id]);
        let changed: Code = if may_change { format!("{name}.id = {};", self.prng.below(60)).into() } else { "".into() };
        let used: Code = format!("io.note({tags});").into();
        if self.prng.chance(40) {
            self.cover(C::RefPattern);
            self.scope.push(local);
            let step = if self.can_step() { code!["io.note(", self.step(Ty::Number), ");"] } else { "".into() };
            let line = format!("let Item {{ tags: ref {tags}, .. }} = {name};").into();
            return Some((Code::Lines(vec![line, changed, step, used]), false));
        }
        self.cover(C::RefRefutable);
        let mut join = Join::new(&self.scope);
        let (some, gone) = self.nested(|body| {
            body.scope.push(local);
            let step = if body.can_step() { code!["io.note(", body.step(Ty::Number), ");"] } else { "".into() };
            let (more, gone) = body.lines(2);
            ([vec![changed, step, used], more].concat(), gone)
        });
        join.path(&mut self.scope, gone);
        let (none, gone) = self.block(2);
        join.path(&mut self.scope, gone);
        let pattern = format!("Item {{ id: 0..=40, tags: ref {tags}, .. }}");
        let code = if self.prng.chance(50) {
            code!["match ", name, " { ", pattern, " => ", Code::Block(some), " _ => ", none, " }"]
        } else {
            code!["if let ", pattern, " = ", name, " ", Code::Block(some), " else ", none]
        };
        Some((code, join.meet(&mut self.scope)))
    }

    /// A local that is named as a constant is.
    pub(crate) fn capitals(&mut self) -> Option<Written> {
        self.cover(C::Capitals);
        self.names += 1;
        let name = format!("LIMIT{}", self.names);
        let value = self.at(C::StepLet, Ty::Number, 1);
        let line = match self.prng.below(2) {
            0 => code!["let (", &name, ", _) = (", value, ", 1);"],
            _ => code!["let ", &name, " = ", value, ";"],
        };
        self.scope.push(Var::owned(name, Ty::Number));
        let step = if self.can_step() { code!["io.note(", self.step(Ty::Number), ");"] } else { "".into() };
        Some((Code::Lines(vec![line, step]), false))
    }

    /// A macro of the program's own that is named as one of std that makes text.
    pub(crate) fn text_macros(&mut self) -> Option<Written> {
        let id = self.find_where(|scope, id, var| var.ty == Ty::Number && var.hold == Hold::Owned && scope.readable(id))?;
        self.cover(C::TextMacros);
        let n = self.scope.var(id).name.clone();
        let number = self.prng.below(50);
        let value = match self.prng.below(3) {
            0 => format!("concat!({n}, {number})"),
            1 => format!("env!({n})"),
            _ => format!("file!({n} + 0)"),
        };
        let before = self.let_of(Ty::Number, value.clone().into());
        let step = if self.can_step() { code!["io.note(", self.step(Ty::Number), ");"] } else { "".into() };
        Some((Code::Lines(vec![before, step]), false))
    }

    /// A `#[fresh]` local of a written type, to which its value is coerced.
    pub(crate) fn fresh_behind_a_trait(&mut self) -> Option<Written> {
        self.cover(C::FreshTyped);
        let (name, number) = (self.fresh_name(Ty::Token), self.prng.below(90));
        let ty = self.prng.one_of(&["std::sync::Arc<dyn Numbered>", "Box<dyn Numbered>"]);
        let make = if ty.starts_with("Box") { "Box::new" } else { "std::sync::Arc::new" };
        let line = code![Code::Fresh, format!("let {name}: {ty} = {make}(Token::new({number}));")];
        self.scope.push(Var::owned(name.clone(), Ty::Token));
        let step = if self.can_step() { code!["io.note(", self.step(Ty::Number), ");"] } else { "".into() };
        Some((Code::Lines(vec![line, step, format!("io.note({name}.number());").into()]), false))
    }
}
