//! Remainders: variables of which a field was moved out before a cut point.
//!
//! `let title = plan.title;`, then a step, then `plan.questions`: at the step `plan` is no longer
//! whole, and the rest of the function needs only its other fields. So before the checkpoint these
//! move into a variable of the same name, whose type has fields of the same names:
//!
//! ```text
//! let plan = Left { questions: plan.questions };
//! ```
//!
//! The user's code after it is unchanged, and the snapshot has the remaining fields under `plan`.
//! Where the earlier fields were only copied out, `plan` is whole and stays as it is. The compiler
//! decides which case it is (`__private::remains`), by the types of the fields. The code of the
//! other case is behind a call that cannot return, so that moves in it do not count.
//!
//! This works if every later use of the variable names one of its other fields, and nothing outside
//! of the block needs it. Otherwise a check is put before the move, that the field is only copied,
//! with an error that says why that matters.
use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{Expr, Member};

use crate::cut::CutBody;
use crate::flow::{Assigned, Flow, Live, Needed, assigned};
use crate::hir::{Block, Body, Control, Remainder, Stmt, StmtKind};
use crate::ids::{CutId, JumpId, PointId, VarId};
use crate::lower::stmt;
use crate::names::{self, Change, Evidence, Part, Table, VarKind};
use crate::plan;
use crate::report::Report;

mod left;
mod refused;

use left::Left;

/// Moves the remaining fields of variables into variables of their own, and resolves the names
/// again.
pub(crate) fn keep_remainders(body: &mut Body, mut table: Table, given: &[Ident], private: &syn::Path) -> Table {
    if !table.parts.iter().any(|part| matches!(part.change, Change::Moved { .. })) {
        return table;
    }
    // A move out of a remainder shows only after the remainder is declared.
    loop {
        let pass = Pass::new(body, &table, private);
        let mut block = std::mem::replace(&mut body.block, Block { stmts: Vec::new(), end: PointId::UNSET });
        let found = pass.keep_next(&mut block, &mut Vec::new());
        body.block = block;
        let only_copied = if found { TokenStream::new() } else { pass.refuse(body) };
        table = names::resolve(body, given, &mut Report::default());
        if !found {
            table.only_copied = only_copied;
            return table;
        }
    }
}

struct Pass<'a> {
    table: &'a Table,
    private: &'a syn::Path,
    needed: Needed,
    /// The parts that are moved out, by point; the number of a part is used as that of a variable.
    moved: Assigned,
    /// Whether each cut point is a call of another fiber.
    calls: Vec<bool>,
    titles: Vec<String>,
}

impl<'a> Pass<'a> {
    fn new(body: &Body, table: &'a Table, private: &'a syn::Path) -> Self {
        let flow = plan::flow_of(&body.block, table);
        let needed = plan::needed(&flow, &assigned(&flow), table);
        let moved = assigned(&moves(&flow, &|part| borrowing(table, &needed, part).is_none(), &table.parts));
        let calls = body.cuts.iter().map(|cut| matches!(cut.body, CutBody::Call { .. })).collect();
        let titles = plan::step_names(body).iter().zip(&body.cuts).map(|((name, _), cut)| cut.shown(name)).collect();
        Pass { table, private, needed, moved, calls, titles }
    }

    /// Finds the first variable whose remaining fields can be kept, and keeps them.
    fn keep_next(&self, block: &mut Block, around: &mut Vec<JumpId>) -> bool {
        for place in 0..block.stmts.len() {
            if block.stmts[place].cuts.is_none() {
                continue;
            }
            let at_value = match &block.stmts[place].kind {
                StmtKind::Cut { cut, .. } if !self.calls[*cut] => Some(*cut),
                _ => None,
            };
            let moved = match at_value {
                Some(cut) => self.moved.at_cut.get(&cut),
                None => self.moved.at_point.get(&block.stmts[place].start),
            };
            let vars: BTreeSet<VarId> = moved.into_iter().flatten().map(|part| self.table.parts[part.0].var).collect();
            let is_needed = |var: &VarId| match at_value {
                Some(cut) => self.is_kept(*var, cut),
                // A block with cut points exports whole variables.
                None => self.is_needed_at(*var, block.stmts[place].start),
            };
            for var in vars.into_iter().filter(is_needed) {
                let moved: Vec<&Part> =
                    moved.into_iter().flatten().map(|part| &self.table.parts[part.0]).filter(|part| part.var == var).collect();
                if at_value.is_none() && self.is_borrowed_in_head(var, block, place) {
                    continue;
                }
                let first = if at_value.is_some() { block.stmts[place].after } else { block.stmts[place].start };
                let Some(fields) = self.fields_after(var, first.0, block, around) else { continue };
                let Some(remainder) = self.remainder(var, &fields, &moved) else { continue };
                match at_value {
                    Some(_) => block.stmts[place].remainders.push(remainder),
                    None => {
                        let code = syn::Stmt::Expr(Expr::Verbatim(remainder.code.clone()), None);
                        let kept = Stmt { remainders: vec![remainder], ..stmt(StmtKind::Plain(code)) };
                        block.stmts.insert(place, kept);
                    }
                }
                return true;
            }
            if let StmtKind::Control { control, .. } = &mut block.stmts[place].kind
                && self.inside(control, around)
            {
                return true;
            }
        }
        false
    }

    fn inside(&self, control: &mut Control, around: &mut Vec<JumpId>) -> bool {
        match control {
            Control::Branch(branch) => branch.arms.iter_mut().any(|arm| self.keep_next(&mut arm.block, around)),
            Control::Loop { id, body, .. } | Control::Scope { id, body, .. } => {
                around.push(*id);
                let found = self.keep_next(body, around);
                around.pop();
                found
            }
            Control::For(for_loop) => {
                around.push(for_loop.id);
                let found = self.keep_next(&mut for_loop.body, around);
                around.pop();
                found
            }
        }
    }

    fn is_needed_at(&self, var: VarId, point: PointId) -> bool {
        self.table.var(var).kind == VarKind::Value && self.needed.at_point.get(&point).is_some_and(|live| live.contains(&var))
    }

    fn is_kept(&self, var: VarId, cut: CutId) -> bool {
        self.table.var(var).kind == VarKind::Value && self.needed.at_cut.get(&cut).is_some_and(|live| live.contains(&var))
    }

    /// The fields of a variable that the rest of a block uses, if it uses nothing else of it and
    /// nothing after the block does.
    fn fields_after(&self, var: VarId, first: u32, block: &Block, around: &[JumpId]) -> Option<Vec<Vec<Member>>> {
        let is_live = |live: Option<&Live>| live.is_some_and(|live| live.contains(&var));
        let leaves = |id: &JumpId| is_live(self.needed.at_continue.get(id)) || is_live(self.needed.at_break.get(id));
        // An end that is never reached needs nothing.
        let is_left = self.moved.at_point.contains_key(&block.end);
        if is_left && is_live(self.needed.at_point.get(&block.end)) || around.iter().any(leaves) || self.table.unset.contains(&var) {
            return None;
        }
        let mut fields: Vec<Vec<Member>> = Vec::new();
        for used in self.table.uses.iter().filter(|u| u.var == var && u.at.0 >= first && u.at < block.end) {
            // A borrow that was made earlier is made again from the whole variable.
            let is_through_older = used.through.is_some_and(|through| self.table.var(through).at.0 < first);
            if used.path.is_empty() || is_through_older {
                return None;
            }
            if !fields.iter().any(|field| is_in(&used.path, field)) {
                fields.retain(|field| !is_in(field, &used.path));
                fields.push(used.path.clone());
            }
        }
        (!fields.is_empty()).then_some(fields)
    }

    /// Whether a borrow from a variable may be named before the first cut point of a statement.
    /// Then the variable cannot be moved before the statement.
    fn is_borrowed_in_head(&self, var: VarId, block: &Block, place: usize) -> bool {
        let mut borrowing = BTreeSet::from([var]);
        for stmt in &block.stmts[..place] {
            let is_owned = match &stmt.kind {
                StmtKind::Plain(syn::Stmt::Local(local)) => {
                    local.init.as_ref().is_some_and(|init| is_owned(&init.expr, &self.table.var(var).ident))
                }
                _ => false,
            };
            let mut mentioned = BTreeSet::new();
            plan::mentions(stmt, &mut mentioned);
            if !is_owned && mentioned.iter().any(|v| borrowing.contains(v)) {
                // The value of a cut point can be saved, and holds no references.
                if !matches!(stmt.kind, StmtKind::Cut { .. }) {
                    borrowing.extend(&stmt.declares);
                }
                let mut given = BTreeSet::new();
                stmt.flow.assigned(&mut given);
                borrowing.extend(given);
            }
        }
        borrowing.remove(&var);
        let mut mentioned = BTreeSet::new();
        let stmt = &block.stmts[place];
        match &stmt.kind {
            StmtKind::Control { control: Control::Branch(_), .. } => plan::mentions(stmt, &mut mentioned),
            _ => stmt.flow.mentioned(&mut mentioned),
        }
        mentioned.iter().any(|v| borrowing.contains(v))
    }

    /// `let plan = ..;` with the remaining fields of a variable; `None` if the whole variable may
    /// remain.
    fn remainder(&self, var: VarId, fields: &[Vec<Member>], moved: &[&Part]) -> Option<Remainder> {
        // A field that is used again was copied; otherwise the check below reports it.
        let is_used = |part: &Part| fields.iter().any(|field| part.overlaps(field));
        let moved: Vec<&Part> = moved.iter().copied().filter(|part| !is_used(part)).collect();
        if moved.is_empty() {
            return None;
        }
        let (private, of) = (self.private, self.table.var(var));
        let (ident, span) = (&of.ident, Span::mixed_site().located_at(of.ident.span()));
        let mut structs = TokenStream::new();
        let left = Left { private, structs: &mut structs, span }.of(&quote_spanned!(span=> #ident), fields, &of.ident.to_string())?;
        let evidence = moved.iter().map(|part| self.evidence(part));
        let mutable = of.mutable.then(|| syn::Token![mut](span));
        let code = quote_spanned! {span=>
            #[allow(unused_variables, unused_mut, unreachable_code)]
            let #mutable #ident = {
                #structs
                #[allow(unused_imports)]
                use #private::remains::{Copied as _, Moved as _};
                let choice = if false {
                    ::core::unreachable!();
                    (&#private::remains::evidence((#(#evidence,)*))).choice()
                } else {
                    ::core::default::Default::default()
                };
                if choice.is_whole() {
                    choice.only_whole();
                    choice.whole(#ident)
                } else {
                    choice.only_fields();
                    choice.fields(#left)
                }
            };
        };
        let places = fields.iter().map(|field| syn::parse_quote!(#ident #(.#field)*)).collect();
        Some(Remainder { ident: ident.clone(), mutable: of.mutable, fields: places, code })
    }

    /// An expression whose type is `Copy` if nothing was moved.
    fn evidence(&self, part: &Part) -> TokenStream {
        let private = self.private;
        let Change::Moved { evidence, .. } = &part.change else { return TokenStream::new() };
        match evidence {
            Evidence::Place(place) => quote_spanned!(Span::mixed_site()=> #private::remains::seen(&#place)),
            Evidence::Pattern(pattern, place) => {
                let bound = by_value(pattern);
                quote_spanned! {Span::mixed_site()=>
                    #[allow(unreachable_patterns)]
                    match #place { #pattern => (#(#private::remains::seen(&#bound),)*), _ => ::core::unreachable!() }
                }
            }
        }
    }
}

impl Part {
    /// Whether moving it takes a field or a part of it.
    fn overlaps(&self, field: &[Member]) -> bool {
        match &self.change {
            Change::Moved { evidence: Evidence::Place(_), .. } => is_in(field, &self.path) || is_in(&self.path, field),
            Change::Moved { evidence: Evidence::Pattern(..), .. } => is_in(&self.path, field),
            Change::Filled => false,
        }
    }
}

/// Whether an expression has a value that borrows from nothing, by its form.
fn is_owned(expr: &Expr, var: &Ident) -> bool {
    const OWNED: [&str; 8] = ["len", "is_empty", "clone", "to_string", "to_owned", "to_vec", "count", "contains"];
    match expr {
        // A saved variable holds no references.
        Expr::Field(_) => crate::place::root(expr) == Some(var),
        Expr::MethodCall(e) => OWNED.iter().any(|name| e.method == name),
        Expr::Binary(_) => true,
        Expr::Macro(e) => e.mac.path.is_ident("format"),
        _ => false,
    }
}

/// The values that a pattern binds.
fn by_value(pat: &syn::Pat) -> Vec<Ident> {
    crate::pattern::bindings(pat).into_iter().filter(|b| !b.by_ref).map(|b| b.ident).collect()
}

/// Whether one place is another one, or inside of it.
fn is_in(inner: &[Member], outer: &[Member]) -> bool {
    inner.starts_with(outer)
}

/// The first cut point that needs the closure which captures a field. Such a closure is made again
/// after the cut point, so it borrows the field.
fn borrowing(table: &Table, needed: &Needed, part: &Part) -> Option<CutId> {
    let makes = &table.reborrows[part.closure?.0].makes;
    needed.at_cut.iter().find(|(_, live)| makes.iter().any(|var| live.contains(var))).map(|(cut, _)| *cut)
}

/// The moves of parts as assignments of variables with the parts' numbers. They end where the part
/// or the variable has a new value.
fn moves(flow: &Flow, is_moved: &dyn Fn(&Part) -> bool, parts: &[Part]) -> Flow {
    let ended = |is_ended: &dyn Fn(&Part) -> bool| {
        let ended = parts.iter().enumerate().filter(|(_, part)| is_ended(part));
        Flow::Seq(ended.map(|(number, _)| Flow::Unset(VarId(number))).collect())
    };
    let all = |items: &[Flow]| items.iter().map(|f| moves(f, is_moved, parts)).collect();
    match flow {
        Flow::Part(number) => match &parts[*number] {
            part @ Part { change: Change::Moved { .. }, .. } if is_moved(part) => Flow::Assign(VarId(*number)),
            Part { change: Change::Moved { .. }, .. } => Flow::Nothing,
            filled => ended(&|part| part.var == filled.var && is_in(&part.path, &filled.path)),
        },
        Flow::Assign(var) | Flow::Unset(var) => ended(&|part| part.var == *var),
        Flow::Use(_) => Flow::Nothing,
        Flow::Seq(items) => Flow::Seq(all(items)),
        Flow::Either(items) => Flow::Either(all(items)),
        Flow::Loop(id, body) => Flow::Loop(*id, Box::new(moves(body, is_moved, parts))),
        Flow::Labelled(id, body) => Flow::Labelled(*id, Box::new(moves(body, is_moved, parts))),
        Flow::Cut(cut, _) => Flow::Cut(*cut, Vec::new()),
        Flow::Nothing | Flow::Break(_) | Flow::Continue(_) | Flow::Return | Flow::Point(_) => flow.clone(),
    }
}
