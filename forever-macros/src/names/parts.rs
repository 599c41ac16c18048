//! Fields of variables: which ones a use names, and which are moved out or assigned again.
//!
//! Whether `plan.title` as a value moves or copies the field depends on its type. So a move that is
//! recorded here is a possible one, and the [`Evidence`] lets the compiler decide (`remainder.rs`).
use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{BinOp, Expr, Macro, Member, Pat};

use super::{Names, ReborrowId, VarKind};
use crate::flow::Flow;
use crate::hir::Remainder;
use crate::ids::VarId;
use crate::pattern;

/// A move or assignment of a field of a variable.
pub(crate) struct Part {
    pub(crate) var: VarId,
    pub(crate) path: Vec<Member>,
    pub(crate) change: Change,
    /// The closure that captures the field, if it can be made again.
    pub(crate) closure: Option<ReborrowId>,
}

pub(crate) enum Change {
    /// Moved out, unless its type is `Copy`.
    Moved {
        evidence: Evidence,
        /// Whether it is then certainly moved; a method may take `self` by reference.
        certain: bool,
    },
    /// Assigned again.
    Filled,
}

impl Change {
    /// Where the user's code changes the field.
    pub(crate) fn span(&self) -> Span {
        let at = match self {
            Change::Moved { evidence: Evidence::Place(place), .. } => place.span(),
            Change::Moved { evidence: Evidence::Pattern(pattern, _), .. } => pattern.span(),
            Change::Filled => Span::call_site(),
        };
        Span::mixed_site().located_at(at)
    }
}

/// Expression whose types show whether a field was moved out.
pub(crate) enum Evidence {
    /// The place itself.
    Place(Expr),
    /// The values that a pattern binds.
    Pattern(Box<Pat>, Expr),
}

impl Names<'_> {
    /// Walks an expression that names a place: nothing is moved out of it.
    pub(super) fn place(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Paren(e) => self.place(&e.expr),
            Expr::Group(e) => self.place(&e.expr),
            Expr::Field(e) => match fields(expr).and_then(|(root, path)| Some((self.lookup(&root.to_string())?, root.span(), path))) {
                Some((id, span, path)) => self.use_of_part(id, span, path),
                None => self.place(&e.base),
            },
            Expr::Index(e) => {
                let mut flow = self.place(&e.expr);
                flow.push(self.expr(&e.index));
                flow
            }
            Expr::Unary(e) if matches!(e.op, syn::UnOp::Deref(_)) => self.place(&e.expr),
            Expr::Path(path) => self.name(path),
            other => self.expr(other),
        }
    }

    /// Records a use of a field of a variable.
    pub(super) fn use_of_part(&mut self, id: VarId, span: Span, path: Vec<Member>) -> Flow {
        let own = self.table.uses.len();
        let flow = self.use_of(id, span);
        self.table.uses[own].path = path;
        flow
    }

    /// The variable and the fields that a place names, if it is a field of a saved variable.
    fn part(&self, expr: &Expr) -> Option<(VarId, Vec<Member>)> {
        let (root, path) = fields(expr)?;
        let id = self.lookup(&root.to_string()).filter(|id| self.table.var(*id).kind == VarKind::Value)?;
        (!path.is_empty()).then_some((id, path))
    }

    /// The variable that a borrow or an iteration comes from, and the fields up to the first index.
    pub(super) fn borrowed(&self, expr: &Expr) -> Option<(VarId, Vec<Member>)> {
        let below = match expr {
            Expr::Reference(e) => &e.expr,
            Expr::MethodCall(e) => &e.receiver,
            Expr::Index(e) => &e.expr,
            Expr::Unary(e) => &e.expr,
            Expr::Paren(e) => &e.expr,
            Expr::Group(e) => &e.expr,
            Expr::Field(e) if fields(expr).is_none() => &e.base,
            other => {
                let (root, path) = fields(other)?;
                return Some((self.lookup(&root.to_string())?, path));
            }
        };
        self.borrowed(below)
    }

    fn note(&mut self, expr: &Expr, change: impl FnOnce() -> Change) -> Flow {
        let Some((var, path)) = self.part(expr) else { return Flow::Nothing };
        let change = change();
        if matches!(change, Change::Moved { .. }) {
            if path.is_empty() { self.moved_whole(var) } else { self.moved_in_part(var) }
        }
        self.table.parts.push(Part { var, path, change, closure: None });
        Flow::Part(self.table.parts.len() - 1)
    }

    /// Records a field that is used as a value.
    pub(super) fn moved(&mut self, expr: &Expr, certain: bool) -> Flow {
        self.note(expr, || Change::Moved { evidence: Evidence::Place(expr.clone()), certain })
    }

    /// Records a field that is assigned.
    pub(super) fn filled(&mut self, expr: &Expr) -> Flow {
        self.note(expr, || Change::Filled)
    }

    /// Records a field that is matched by a pattern with bindings by value.
    pub(super) fn moved_by_pattern(&mut self, pat: &Pat, expr: &Expr) -> Flow {
        if pattern::bindings(pat).iter().all(|b| b.by_ref) {
            return Flow::Nothing;
        }
        if let (Expr::Path(_), Some(id)) = (expr, crate::place::root(expr).and_then(|root| self.lookup(&root.to_string()))) {
            self.moved_whole(id);
        }
        self.note(expr, || Change::Moved { evidence: Evidence::Pattern(Box::new(pat.clone()), expr.clone()), certain: true })
    }

    /// Records the fields that a pattern moves which cannot fail: `let Plan { title, .. } = plan;`.
    pub(super) fn taken_apart(&mut self, pat: &Pat, place: &Expr) -> Flow {
        let member = |member: &Member| -> Expr { syn::parse_quote!(#place.#member) };
        let index = |index: usize| Member::Unnamed(syn::Index::from(index));
        let parts: Vec<(Expr, &Pat)> = match pat {
            Pat::Paren(p) => return self.taken_apart(&p.pat, place),
            Pat::Type(p) => return self.taken_apart(&p.pat, place),
            Pat::Struct(p) => p.fields.iter().map(|f| (member(&f.member), &*f.pat)).collect(),
            Pat::Tuple(syn::PatTuple { elems, .. }) | Pat::TupleStruct(syn::PatTupleStruct { elems, .. }) if is_counted(elems) => {
                elems.iter().enumerate().map(|(place, p)| (member(&index(place)), p)).collect()
            }
            Pat::Ident(p) if p.by_ref.is_none() && pattern::is_binding(p) => return self.moved(&at(place, p.ident.span()), true),
            Pat::Wild(_) | Pat::Rest(_) => return Flow::Nothing,
            _ => return self.moved_by_pattern(pat, place),
        };
        let mut flow = Flow::Nothing;
        for (place, pat) in parts {
            flow.push(self.taken_apart(pat, &place));
        }
        flow
    }

    /// Records the elements of a `vec![..]`.
    pub(super) fn moved_into_list(&mut self, mac: &Macro) -> Flow {
        let mut flow = Flow::Nothing;
        if let Ok(elements) = mac.parse_body_with(Punctuated::<Expr, syn::Token![,]>::parse_terminated) {
            for element in elements.iter().filter(|e| matches!(e, Expr::Field(_))) {
                flow.push(self.moved(element, true));
            }
        }
        flow
    }

    /// Records what a `move` closure mentions, from the use with number `first` on.
    pub(super) fn moved_by_capture(&mut self, first: usize) -> Flow {
        let mut flow = Flow::Nothing;
        for place in first..self.table.uses.len() {
            self.moved_whole(self.table.uses[place].var);
            let noted = &self.table.uses[place];
            let var = self.table.var(noted.var);
            if var.kind != VarKind::Value || noted.path.is_empty() {
                continue;
            }
            let (ident, path) = (Ident::new(&var.ident.to_string(), noted.span), &noted.path);
            let named: Expr = syn::parse_quote!(#ident #(.#path)*);
            let part = Part {
                var: noted.var,
                path: noted.path.clone(),
                change: Change::Moved { evidence: Evidence::Place(named), certain: false },
                closure: None,
            };
            self.table.parts.push(part);
            flow.push(Flow::Part(self.table.parts.len() - 1));
        }
        flow
    }

    /// Notes that fields are captured by a closure that can be made again.
    pub(super) fn captured_by(&mut self, flow: &Flow, closure: ReborrowId) {
        match flow {
            Flow::Part(part) => self.table.parts[*part].closure = Some(closure),
            Flow::Seq(items) | Flow::Either(items) => items.iter().for_each(|f| self.captured_by(f, closure)),
            Flow::Loop(_, body) | Flow::Labelled(_, body) => self.captured_by(body, closure),
            _ => {}
        }
    }

    /// Records what the body of a closure moves out of the variables around it.
    pub(super) fn moved_inside(&self, body: &Flow, outer: &BTreeSet<VarId>, flow: &mut Flow) {
        match body {
            Flow::Part(part) => {
                let part_of = &self.table.parts[*part];
                if outer.contains(&part_of.var) && matches!(part_of.change, Change::Moved { .. }) {
                    flow.push(Flow::Part(*part));
                }
            }
            Flow::Seq(items) | Flow::Either(items) => items.iter().for_each(|f| self.moved_inside(f, outer, flow)),
            Flow::Loop(_, body) | Flow::Labelled(_, body) => self.moved_inside(body, outer, flow),
            _ => {}
        }
    }

    /// Declares the variables that hold remaining fields.
    pub(super) fn remainders(&mut self, remainders: &[Remainder]) -> (Flow, Vec<VarId>) {
        let (mut flow, mut declares) = (Flow::Nothing, Vec::new());
        for remainder in remainders {
            let of = self.lookup(&remainder.ident.to_string());
            let id = self.declare(&remainder.ident, remainder.mutable, VarKind::Value);
            self.table.vars[id.0].remainder_of = of;
            flow.push(of.map_or(Flow::Nothing, Flow::Use));
            flow.push(Flow::Assign(id));
            declares.push(id);
        }
        (flow, declares)
    }
}

/// `plan.meta.title` as `plan` and `meta`, `title`.
pub(super) fn fields(expr: &Expr) -> Option<(&Ident, Vec<Member>)> {
    match expr {
        Expr::Path(path) if path.qself.is_none() => Some((path.path.get_ident()?, Vec::new())),
        Expr::Field(e) => {
            let (root, mut path) = fields(&e.base)?;
            path.push(e.member.clone());
            Some((root, path))
        }
        Expr::Paren(e) => fields(&e.expr),
        Expr::Group(e) => fields(&e.expr),
        _ => None,
    }
}

/// A place, for errors at `span`.
fn at(place: &Expr, span: Span) -> Expr {
    let tokens = place.to_token_stream().into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    let tokens: TokenStream = tokens.collect();
    syn::parse_quote!(#tokens)
}

/// Whether the elements of a pattern are numbered from the first on: none comes after a `..`.
fn is_counted(elems: &Punctuated<Pat, syn::Token![,]>) -> bool {
    elems.iter().rev().skip(1).all(|p| !matches!(p, Pat::Rest(_)))
}

/// The fields that are named after an identifier among a macro's arguments.
pub(super) fn path_behind(tokens: &[TokenTree], place: usize) -> Vec<Member> {
    let punct = |at: usize, char: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == char);
    let (mut path, mut at) = (Vec::new(), place + 1);
    while punct(at, '.') && !punct(at + 1, '.') {
        let is_call = matches!(tokens.get(at + 2), Some(TokenTree::Group(g)) if g.delimiter() == proc_macro2::Delimiter::Parenthesis);
        match tokens.get(at + 1) {
            Some(TokenTree::Ident(field)) if field != "await" && !is_call && !punct(at + 2, ':') => path.push(Member::Named(field.clone())),
            // `pair.0.1` is one number to the compiler's lexer.
            Some(TokenTree::Literal(numbers)) => {
                for number in numbers.to_string().split('.') {
                    let Ok(index) = number.parse() else { return path };
                    path.push(Member::Unnamed(syn::Index { index, span: numbers.span() }));
                }
            }
            _ => return path,
        }
        at += 2;
    }
    path
}

/// Whether a method takes `self` by value, judged by its name.
pub(super) fn takes_self(method: &Ident) -> bool {
    let name = method.to_string();
    name.starts_with("into_")
        || name.starts_with("unwrap")
        || ["expect", "ok_or", "ok_or_else", "ok", "err", "map", "map_err", "map_or", "map_or_else", "and_then", "or_else", "flatten"]
            .contains(&&*name)
}

/// Operators that borrow what they compare.
pub(super) fn compares(op: &BinOp) -> bool {
    matches!(op, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
}
