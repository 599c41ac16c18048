//! Resolves the names of a lowered body: which variable each identifier means, and what each statement does to variables.
//!
//! Comes in: [`Body`]. Goes out: the same tree with declarations and flows filled in, and the table of variables. The walk is
//! in evaluation order and deterministic, so a second walk gives the same numbers; [`Renames`] lets it give a variable
//! another name where two of the same name are needed at once.
use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, Ident, Pat, Type};

use crate::flow::{Flow, JumpId, PointId};
use crate::pattern;
use crate::place;
use crate::report::Report;
use crate::tree::{Bind, Block, Body, Branch, Control, For, Head, Stmt, StmtKind};

mod expr;
mod macros;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VarId(pub(crate) usize);

/// One variable of the function.
pub(crate) struct Var {
    pub(crate) ident: Ident,
    pub(crate) mutable: bool,
    pub(crate) kind: VarKind,
    /// The type written in its `let`, needed where it is declared again before it is set.
    pub(crate) ty: Option<Type>,
    /// The stored name, if it is not the variable's own.
    pub(crate) key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VarKind {
    /// Saved.
    Value,
    /// Borrows from a place, or is a constant: made again wherever it is needed.
    Again(AgainId),
    /// `#[fresh] let`: not saved, made anew after a resume.
    Fresh(AgainId),
    /// Context and resources: there from the start of the function.
    Given,
    /// Bound by a borrowed `for`: there wherever the loop's body is.
    Item(Vec<VarId>),
    /// The position of a borrowed `for`.
    Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgainId(pub(crate) usize);

/// A statement that makes variables again.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) tokens: TokenStream,
    /// The variables it makes.
    pub(crate) makes: Vec<VarId>,
    /// What it needs.
    pub(crate) bases: Vec<VarId>,
    /// A `let` with `&mut`: it must not stand beside another use of its base.
    pub(crate) mutable: bool,
}

/// New names by variable.
pub(crate) type Renames = BTreeMap<VarId, Ident>;

/// The variables of a function and where they are visible.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) vars: Vec<Var>,
    pub(crate) agains: Vec<Again>,
    /// At each point, the variables in scope whose name means another one there: (hidden, hiding).
    pub(crate) hidden: BTreeMap<PointId, Vec<(VarId, VarId)>>,
    /// Borrowed loops' variables to keep at each cut point.
    pub(crate) forced: Vec<Vec<VarId>>,
    /// Variables declared without a value.
    pub(crate) unset: BTreeSet<VarId>,
    /// Statements (by their `after` point) with a `break` or `continue` among a macro's arguments.
    pub(crate) hidden_jumps: BTreeMap<PointId, proc_macro2::Span>,
}

impl Table {
    pub(crate) fn var(&self, id: VarId) -> &Var {
        &self.vars[id.0]
    }
}

/// Resolves `body`; `given` are the names of context and resources.
pub(crate) fn resolve(body: &mut Body, given: &[Ident], renames: &Renames, report: &mut Report) -> Table {
    let mut names = Names {
        table: Table { forced: vec![Vec::new(); body.cuts.len()], ..Table::default() },
        renames,
        report,
        scopes: vec![Vec::new()],
        jumps: Vec::new(),
        next_jump: 1_000_000,
        next_point: 0,
        borrowed_loops: Vec::new(),
        hidden_jump: None,
    };
    for ident in given {
        let mut ident = ident.clone();
        names.declare(&mut ident, false, VarKind::Given);
    }
    let mut cuts = std::mem::take(&mut body.cuts);
    names.block(&mut body.block, &mut cuts);
    body.cuts = cuts;
    names.table
}

struct Names<'a> {
    table: Table,
    renames: &'a Renames,
    report: &'a mut Report,
    scopes: Vec<Vec<(String, VarId)>>,
    jumps: Vec<Target>,
    /// Ids for the loops inside plain statements, which the lowered tree does not number.
    next_jump: u32,
    next_point: u32,
    borrowed_loops: Vec<VarId>,
    hidden_jump: Option<proc_macro2::Span>,
}

struct Target {
    label: Option<String>,
    id: JumpId,
    is_loop: bool,
}

impl Names<'_> {
    fn block(&mut self, block: &mut Block, cuts: &mut Vec<crate::tree::Cut>) {
        self.scopes.push(Vec::new());
        for stmt in &mut block.stmts {
            self.stmt(stmt, cuts);
        }
        block.end = self.point();
        self.scopes.pop();
    }

    fn stmt(&mut self, stmt: &mut Stmt, cuts: &mut Vec<crate::tree::Cut>) {
        self.hidden_jump = None;
        stmt.start = self.point();
        match &mut stmt.kind {
            StmtKind::Plain(syntax) => {
                let (flow, declares) = self.plain(syntax);
                (stmt.flow, stmt.declares) = (flow, declares);
                stmt.before = PointId::UNSET;
            }
            StmtKind::Cut { bind, cut } => {
                stmt.flow = self.cut(&mut cuts[*cut].body);
                stmt.before = self.point();
                self.table.forced[*cut] = self.borrowed_loops.clone();
                stmt.declares = self.bind(bind);
            }
            StmtKind::Control { bind, control } => {
                self.scopes.push(Vec::new());
                let (flow, before, mut declares) = self.control(control, cuts);
                self.scopes.pop();
                for &id in &declares {
                    let name = self.table.var(id).ident.to_string();
                    self.top().push((name, id));
                }
                stmt.flow = flow;
                stmt.before = before;
                declares.extend(self.bind(bind));
                stmt.declares = declares;
            }
        }
        stmt.after = self.point();
        if let Some(span) = self.hidden_jump.take() {
            self.table.hidden_jumps.insert(stmt.after, span);
        }
    }

    fn bind(&mut self, bind: &mut Bind) -> Vec<VarId> {
        let Bind::Let { attrs, pat } = bind else { return Vec::new() };
        let key = take_key(attrs);
        let declares = self.pattern(pat, &VarKind::Value);
        for &id in &declares {
            self.table.vars[id.0].key.clone_from(&key);
        }
        declares
    }

    /// A control construct: flow and point of its head, and the variables that a `let .. else` declares.
    fn control(&mut self, control: &mut Control, cuts: &mut Vec<crate::tree::Cut>) -> (Flow, PointId, Vec<VarId>) {
        match control {
            Control::Branch(branch) => self.branch(branch, cuts),
            Control::Loop { label, id, body } => {
                let before = self.point();
                self.within(label.as_ref(), *id, true, |names| names.block(body, cuts));
                (Flow::Nothing, before, Vec::new())
            }
            Control::Scope { label, id, body, .. } => {
                let before = self.point();
                self.within(label.as_ref(), *id, false, |names| names.block(body, cuts));
                (Flow::Nothing, before, Vec::new())
            }
            Control::For(looped) => self.for_(looped, cuts),
        }
    }

    fn for_(&mut self, looped: &mut For, cuts: &mut Vec<crate::tree::Cut>) -> (Flow, PointId, Vec<VarId>) {
        let flow = self.expr(&mut looped.items);
        let before = self.point();
        let mut bases = BTreeSet::new();
        flow.mentioned(&mut bases);
        looped.bases = bases.into_iter().collect();
        let key = crate::lower::items_key(&looped.items, &looped.pat);
        let position = self.declare(&mut looped.position, false, VarKind::Position);
        self.table.vars[position.0].key = Some(key);
        looped.position_var = Some(position);
        let outer = self.borrowed_loops.len();
        self.borrowed_loops.push(position);
        let values = looped.bases.iter().filter(|b| self.table.var(**b).kind == VarKind::Value);
        self.borrowed_loops.extend(values.copied().collect::<Vec<_>>());
        let kind = VarKind::Item(looped.bases.clone());
        self.pattern(&mut looped.pat, &kind);
        self.within(looped.label.as_ref(), looped.id, true, |names| names.block(&mut looped.body, cuts));
        self.borrowed_loops.truncate(outer);
        (flow, before, Vec::new())
    }

    fn branch(&mut self, branch: &mut Branch, cuts: &mut Vec<crate::tree::Cut>) -> (Flow, PointId, Vec<VarId>) {
        match &mut branch.head {
            Head::If { cond, .. } => {
                self.scopes.push(Vec::new());
                let flow = self.expr(cond);
                let before = self.point();
                branch.arms[0].declares = self.top().iter().map(|(_, id)| *id).collect();
                self.block(&mut branch.arms[0].block, cuts);
                self.scopes.pop();
                self.block(&mut branch.arms[1].block, cuts);
                (flow, before, Vec::new())
            }
            Head::Match { scrutinee, .. } => {
                let flow = self.expr(scrutinee);
                let before = self.point();
                let scrutinee = scrutinee.clone();
                for arm in &mut branch.arms {
                    self.scopes.push(Vec::new());
                    if let Some(pat) = &mut arm.pat {
                        arm.enter = self.arm_pattern(pat, &scrutinee);
                        arm.declares = self.top().iter().map(|(_, id)| *id).collect();
                    }
                    self.block(&mut arm.block, cuts);
                    self.scopes.pop();
                }
                (flow, before, Vec::new())
            }
            Head::LetElse { pat, init } => {
                let flow = self.expr(init);
                let before = self.point();
                self.block(&mut branch.arms[1].block, cuts);
                let declares = self.bindings_of(pat, init);
                (flow, before, declares)
            }
        }
    }

    /// Declares an arm's bindings and walks its guard.
    fn arm_pattern(&mut self, pat: &mut Pat, scrutinee: &Expr) -> Flow {
        let guarded = if let Pat::Guard(guarded) = pat {
            let declares = self.bindings_of(&mut guarded.pat, scrutinee);
            let mut flow = assign_all(&declares);
            flow.push(self.expr(&mut guarded.guard));
            return flow;
        } else {
            self.bindings_of(pat, scrutinee)
        };
        assign_all(&guarded)
    }

    /// Declares the variables of a pattern matched against `init`: values, or borrows to be taken again.
    fn bindings_of(&mut self, pat: &mut Pat, init: &Expr) -> Vec<VarId> {
        let bindings = pattern::bindings(pat);
        let by_ref = !bindings.is_empty() && bindings.iter().all(|b| b.by_ref) && place::is_place(init);
        if bindings.is_empty() || !(by_ref || self.borrows_from(init)) || bindings.iter().any(|b| b.mutable) {
            return self.pattern(pat, &VarKind::Value);
        }
        let bases = self.variables_in(init);
        let again = AgainId(self.table.agains.len());
        let mutable = place::plain_borrow(init).is_some_and(|r| r.mutability.is_some()) || bindings.iter().any(|b| b.by_ref_mut);
        self.table.agains.push(Again { tokens: TokenStream::new(), makes: Vec::new(), bases, mutable });
        let declares = self.pattern(pat, &VarKind::Again(again));
        let again = &mut self.table.agains[again.0];
        again.tokens = quote! {
            #[allow(irrefutable_let_patterns, unused_variables, unused_parens)]
            let (#pat) = (#init) else { ::core::unreachable!() };
        };
        again.makes.clone_from(&declares);
        declares
    }

    fn within(&mut self, label: Option<&syn::Label>, id: JumpId, is_loop: bool, walk: impl FnOnce(&mut Self)) {
        self.jumps.push(Target { label: label.map(|l| l.name.ident.to_string()), id, is_loop });
        walk(self);
        self.jumps.pop();
    }

    /// A statement without cut points: its flow and what it declares.
    fn plain(&mut self, stmt: &mut syn::Stmt) -> (Flow, Vec<VarId>) {
        match stmt {
            syn::Stmt::Local(local) => self.local(local),
            syn::Stmt::Expr(expr, _) => (self.expr(expr), Vec::new()),
            syn::Stmt::Macro(mac) => (self.macro_call(&mut mac.mac), Vec::new()),
            syn::Stmt::Item(_) => (Flow::Nothing, Vec::new()),
        }
    }

    fn local(&mut self, local: &mut syn::Local) -> (Flow, Vec<VarId>) {
        let key = take_key(&mut local.attrs);
        let fresh = local.attrs.iter().position(|a| a.path().is_ident("fresh"));
        let fresh = fresh.map(|place| local.attrs.remove(place));
        let mut flow = Flow::Nothing;
        if let Some(init) = &mut local.init {
            flow = self.expr(&mut init.expr);
            if let Some((_, otherwise)) = &mut init.diverge {
                flow.push(Flow::Either(vec![Flow::Nothing, self.expr(otherwise)]));
            }
        }
        let declares = match (&local.init, fresh) {
            (Some(init), Some(_)) => {
                let mut bases = BTreeSet::new();
                flow.mentioned(&mut bases);
                let again = AgainId(self.table.agains.len());
                let expr = (*init.expr).clone();
                self.table.agains.push(Again {
                    tokens: expr.to_token_stream(),
                    makes: Vec::new(),
                    bases: bases.into_iter().collect(),
                    mutable: false,
                });
                let declares = self.pattern(&mut local.pat, &VarKind::Fresh(again));
                if declares.len() != 1 || pattern::bindings(&local.pat).len() != 1 || init.diverge.is_some() {
                    self.report.over(&local.pat, "`#[fresh]` makes one variable anew: `#[fresh] let client = connect();`");
                }
                self.table.agains[again.0].makes.clone_from(&declares);
                declares
            }
            (None, Some(attr)) => {
                self.report.over(attr, "`#[fresh]` needs a value to make anew: `#[fresh] let client = connect();`");
                self.pattern(&mut local.pat, &VarKind::Value)
            }
            (Some(init), None) => {
                let init_expr = (*init.expr).clone();
                self.local_bindings(local, &init_expr)
            }
            (None, None) => {
                let declares = self.pattern(&mut local.pat, &VarKind::Value);
                self.table.unset.extend(&declares);
                declares
            }
        };
        let ty = match &local.pat {
            Pat::Type(typed) => Some((*typed.ty).clone()),
            _ => None,
        };
        for &id in &declares {
            let var = &mut self.table.vars[id.0];
            var.key.clone_from(&key);
            if local.init.is_none() || declares.len() == 1 {
                var.ty.clone_from(&ty);
            }
        }
        if local.init.is_some() {
            flow.push(assign_all(&declares));
        }
        (flow, declares)
    }

    fn local_bindings(&mut self, local: &mut syn::Local, init: &Expr) -> Vec<VarId> {
        let constant = place::is_constant(init) && pattern::bindings(&local.pat).iter().all(|b| !b.mutable);
        let pat_is_name = crate::scan::simple_name(&local.pat).is_some();
        if !constant || !pat_is_name {
            return self.bindings_of(&mut local.pat, init);
        }
        let again = AgainId(self.table.agains.len());
        self.table.agains.push(Again { tokens: TokenStream::new(), makes: Vec::new(), bases: Vec::new(), mutable: false });
        let declares = self.pattern(&mut local.pat, &VarKind::Again(again));
        let again = &mut self.table.agains[again.0];
        let pat = &local.pat;
        again.tokens = quote!(let #pat = #init;);
        again.makes.clone_from(&declares);
        declares
    }

    /// Declares the variables of a pattern, renaming where asked.
    fn pattern(&mut self, pat: &mut Pat, kind: &VarKind) -> Vec<VarId> {
        let mut declares: Vec<VarId> = Vec::new();
        self.pattern_into(pat, kind, &mut declares);
        declares
    }

    fn pattern_into(&mut self, pat: &mut Pat, kind: &VarKind, declares: &mut Vec<VarId>) {
        match pat {
            Pat::Ident(p) => {
                if pattern::is_binding(p) {
                    // The other alternatives of an or-pattern bind the same variables.
                    let known = declares.iter().copied().find(|id| {
                        let name = p.ident.to_string();
                        self.top().iter().any(|(n, v)| v == id && *n == name)
                    });
                    if let Some(id) = known {
                        if let Some(new) = self.renames.get(&id) {
                            p.ident = new.clone();
                        }
                    } else {
                        let mutable = p.by_ref.is_none() && p.mutability.is_some();
                        let id = self.declare(&mut p.ident, mutable, kind.clone());
                        declares.push(id);
                    }
                }
                if let Some((_, sub)) = &mut p.subpat {
                    self.pattern_into(sub, kind, declares);
                }
            }
            Pat::Guard(p) => self.pattern_into(&mut p.pat, kind, declares),
            Pat::Or(p) => p.cases.iter_mut().for_each(|c| self.pattern_into(c, kind, declares)),
            Pat::Paren(p) => self.pattern_into(&mut p.pat, kind, declares),
            Pat::Reference(p) => self.pattern_into(&mut p.pat, kind, declares),
            Pat::Slice(p) => p.elems.iter_mut().for_each(|e| self.pattern_into(e, kind, declares)),
            Pat::Struct(p) => {
                for field in &mut p.fields {
                    self.pattern_into(&mut field.pat, kind, declares);
                    let renamed = field.colon_token.is_none()
                        && pattern::bindings(&field.pat)
                            .first()
                            .is_some_and(|b| matches!(&field.member, syn::Member::Named(n) if *n != b.ident));
                    if renamed {
                        field.colon_token = Some(syn::Token![:](proc_macro2::Span::call_site()));
                    }
                }
            }
            Pat::Tuple(p) => p.elems.iter_mut().for_each(|e| self.pattern_into(e, kind, declares)),
            Pat::TupleStruct(p) => p.elems.iter_mut().for_each(|e| self.pattern_into(e, kind, declares)),
            Pat::Type(p) => self.pattern_into(&mut p.pat, kind, declares),
            _ => {}
        }
    }

    fn declare(&mut self, ident: &mut Ident, mutable: bool, kind: VarKind) -> VarId {
        let id = VarId(self.table.vars.len());
        let name = ident.to_string();
        let key = self.renames.get(&id).map(|_| name.clone());
        if let Some(new) = self.renames.get(&id) {
            *ident = new.clone();
        }
        self.table.vars.push(Var { ident: ident.clone(), mutable, kind, ty: None, key });
        self.top().push((name, id));
        id
    }

    fn top(&mut self) -> &mut Vec<(String, VarId)> {
        self.scopes.last_mut().expect("the function's scope stays")
    }

    fn lookup(&self, name: &str) -> Option<VarId> {
        self.scopes.iter().rev().flat_map(|s| s.iter().rev()).find(|(n, _)| n == name).map(|(_, id)| *id)
    }

    /// A use of a variable, and of what it is made from.
    fn use_of(&self, id: VarId) -> Flow {
        let mut flow = Flow::Use(id);
        let bases: &[VarId] = match &self.table.var(id).kind {
            VarKind::Again(again) | VarKind::Fresh(again) => &self.table.agains[again.0].bases,
            VarKind::Item(bases) => bases,
            _ => &[],
        };
        for &base in bases {
            flow.push(self.use_of(base));
        }
        flow
    }

    /// Whether an expression is a plain borrow, or a place inside something that is a borrow.
    fn borrows_from(&self, expr: &Expr) -> bool {
        let fixed_index =
            place::index_variables(expr).iter().all(|i| self.lookup(&i.to_string()).is_none_or(|id| !self.table.var(id).mutable));
        let from_borrow = || {
            place::is_place(expr)
                && place::root(expr).and_then(|r| self.lookup(&r.to_string())).is_some_and(|id| match &self.table.var(id).kind {
                    VarKind::Again(again) => !self.table.agains[again.0].mutable && !self.table.agains[again.0].bases.is_empty(),
                    VarKind::Item(_) => true,
                    _ => false,
                })
        };
        fixed_index && (place::plain_borrow(expr).is_some() || from_borrow())
    }

    /// The variables that a place or a borrow of one names.
    fn variables_in(&self, expr: &Expr) -> Vec<VarId> {
        let names = place::root(expr).into_iter().chain(place::index_variables(expr));
        let mut found: Vec<VarId> = names.filter_map(|name| self.lookup(&name.to_string())).collect();
        found.dedup();
        found
    }

    fn point(&mut self) -> PointId {
        let point = PointId(self.next_point);
        self.next_point += 1;
        let mut visible: BTreeMap<&str, VarId> = BTreeMap::new();
        let mut hidden = Vec::new();
        for (name, id) in self.scopes.iter().rev().flat_map(|s| s.iter().rev()) {
            match visible.get(name.as_str()) {
                Some(&hiding) => hidden.push((*id, hiding)),
                None => {
                    visible.insert(name, *id);
                }
            }
        }
        self.table.hidden.insert(point, hidden);
        point
    }
}

pub(crate) fn assign_all(vars: &[VarId]) -> Flow {
    let mut flow = Flow::Nothing;
    for &var in vars {
        flow.push(Flow::Assign(var));
    }
    flow
}

/// Takes the stored name that lowering wrote on a `let` of its own.
fn take_key(attrs: &mut Vec<Attribute>) -> Option<String> {
    let place = attrs.iter().position(|a| a.path().is_ident("forever_key"))?;
    let attr = attrs.remove(place);
    match attr.meta {
        syn::Meta::NameValue(syn::MetaNameValue { value: Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }), .. }) => {
            Some(text.value())
        }
        _ => None,
    }
}
