//! Resolves the names of a lowered body: which variable each identifier means, and what each
//! statement does to variables.
//!
//! Input: [`Body`]. Output: the same tree with declarations and flows filled in, and the table of
//! variables. The walk is in evaluation order and deterministic. No name of the user's is changed.
//! Where one variable hides another, [`Table::hidden`] lists both, and generated code that needs
//! the hidden one reaches it through an alias (`emit/alias.rs`).
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proc_macro2::TokenStream;
use syn::{Attribute, Expr, Ident, Pat, Type};

use crate::flow::Flow;
use crate::hir::{Bind, Block, Body, Branch, Control, For, Head, LASTING, REST, Stmt, StmtKind};
use crate::ids::{JumpId, PointId, VarId};
use crate::messages;
use crate::place;
use crate::report::Report;
use crate::sealed::Sealed;
use crate::values::MadeBy;

mod bindings;
mod cut;
mod expr;
pub(crate) mod format;
mod lent;
mod macros;
mod parts;

pub(crate) use parts::{Change, Evidence, Part};

/// Origin of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VarOrigin {
    /// The user's code.
    User,
    /// The remaining items of a `for` loop by value.
    Rest,
    /// An operand that is evaluated before a step.
    Operand,
    /// The source of a loop's items, evaluated once.
    Items,
    /// The value of the chosen arm of a `select!`.
    Chosen,
}

/// A variable of the function.
pub(crate) struct Var {
    pub(crate) ident: Ident,
    pub(crate) mutable: bool,
    pub(crate) kind: VarKind,
    /// The type written in its `let`, for the declaration that is repeated before the variable is
    /// set.
    pub(crate) ty: Option<Type>,
    /// The constant texts that are assigned to it, if it has no other values. Then the choice among
    /// them can be saved.
    pub(crate) texts: Texts,
    /// Whether its value is text that may borrow, as that of `String::from_utf8_lossy`.
    pub(crate) borrowed_text: bool,
    /// The place that owns its text, with the root of the place, as far as the methods that were
    /// called on the place show it.
    pub(crate) text_of: Option<(VarId, Expr)>,
    /// The form of its initialiser, for the error if it cannot be saved.
    pub(crate) made_by: MadeBy,
    /// The stored name, if it is not the variable's own.
    pub(crate) key: Option<String>,
    /// Its earlier stored name: `#[was = "old"]`.
    pub(crate) was: Option<String>,
    /// The variable whose remaining fields it holds.
    pub(crate) remainder_of: Option<VarId>,
    /// The last point before its declaration.
    pub(crate) at: PointId,
    /// The place that it borrows from, up to the first index.
    pub(crate) borrowed: Option<(VarId, Vec<syn::Member>)>,
}

impl Var {
    /// Its origin, by its stored name. The program's own variables have none, so their names may
    /// look like those that a pass adds.
    pub(crate) fn origin(&self) -> VarOrigin {
        let name = self.ident.to_string();
        let prefixes =
            [(REST, VarOrigin::Rest), ("__value_", VarOrigin::Operand), ("__items_", VarOrigin::Items), ("__chosen_", VarOrigin::Chosen)];
        let added = prefixes.into_iter().find(|(prefix, _)| self.key.is_some() && name.starts_with(prefix));
        added.map_or(VarOrigin::User, |(_, origin)| origin)
    }
}

/// The constant texts that are assigned to a variable.
#[derive(Clone, Default)]
pub(crate) enum Texts {
    /// None so far.
    #[default]
    None,
    Some(Vec<Expr>),
    /// It is, or may be, assigned another value.
    Other,
}

impl Texts {
    pub(crate) fn constants(&self) -> Option<&[Expr]> {
        if let Texts::Some(texts) = self { Some(texts) } else { None }
    }

    /// Records an assignment.
    fn given(&mut self, value: Option<&Expr>) {
        *self = match (std::mem::take(self), value.and_then(place::constant_texts)) {
            (Texts::None, Some(texts)) => Texts::Some(texts),
            (Texts::Some(mut all), Some(texts)) => {
                all.extend(texts);
                Texts::Some(all)
            }
            _ => Texts::Other,
        };
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VarKind {
    /// Saved in the snapshot.
    Value,
    /// A borrow from a place, or a constant: made again wherever it is needed.
    Reborrow(ReborrowId),
    /// `#[fresh] let`: not saved, and made again on a resume.
    Fresh(ReborrowId),
    /// Context and resources, which exist from the start of the function.
    Given,
    /// Bound by a borrowed `for`: exists wherever the loop's body runs.
    Item(Vec<VarId>),
    /// The position of a borrowed `for`.
    Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReborrowId(pub(crate) usize);

/// A statement that makes variables again.
pub(crate) struct Reborrow {
    /// The pattern that is matched; `None` for a `#[fresh]` variable.
    pub(crate) pat: Option<Pat>,
    pub(crate) init: Expr,
    /// The variables it makes.
    pub(crate) makes: Vec<VarId>,
    /// The variables that it needs.
    pub(crate) bases: Vec<VarId>,
    /// The variables that it may name in the arguments of a macro, where no alias can be used. The
    /// closure can be made only where none of them is hidden.
    pub(crate) in_macros: Vec<VarId>,
    /// Whether it borrows exclusively.
    pub(crate) mutable: bool,
    /// Whether it is a pattern, rather than `let y = &mut place`.
    pub(crate) pattern: bool,
}

/// One use of a variable.
pub(crate) struct Use {
    pub(crate) var: VarId,
    pub(crate) span: proc_macro2::Span,
    /// The expression that uses it, for messages.
    pub(crate) by: Rc<str>,
    /// Whether the whole variable is assigned.
    pub(crate) assigns: bool,
    /// The fields named after it: `plan.meta.title`.
    pub(crate) path: Vec<syn::Member>,
    /// The last point before it.
    pub(crate) at: PointId,
    /// The variable through which it is used, if that one is made from it.
    pub(crate) through: Option<VarId>,
}

/// The variables of a function, and where each is visible.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) vars: Vec<Var>,
    pub(crate) reborrows: Vec<Reborrow>,
    /// The ones that make a `Retry` or a `Backoff`.
    pub(crate) policies: BTreeSet<ReborrowId>,
    /// By point, the variables in scope whose name means another one there: (hidden, hiding).
    pub(crate) hidden: BTreeMap<PointId, Vec<(VarId, VarId)>>,
    /// Variables whose name means another one at a jump inside a plain statement.
    pub(crate) hidden_at_jumps: BTreeSet<VarId>,
    /// By cut point, the variables that it keeps in any case: those of borrowed loops, and those
    /// that the values of blocks borrow from.
    pub(crate) forced: Vec<Vec<VarId>>,
    /// By the end of its scope, the variables that values of blocks in it borrow from.
    pub(crate) lent_until: BTreeMap<PointId, Vec<VarId>>,
    /// By the first variable that it is bound to, what the value of a control construct borrows
    /// from.
    pub(crate) lent: BTreeMap<VarId, Vec<Owner>>,
    /// Every use, in the order of the walk.
    pub(crate) uses: Vec<Use>,
    /// Moves and assignments of fields, in the order of the walk.
    pub(crate) parts: Vec<Part>,
    /// The checks that fields are only copied, as items.
    pub(crate) only_copied: TokenStream,
    /// By cut point, the number of uses before it.
    pub(crate) uses_before: Vec<usize>,
    /// Variables declared without a value.
    pub(crate) unset: BTreeSet<VarId>,
    /// By variable, the number of cut points before its first use by value, which may move it.
    pub(crate) moved_at: Vec<usize>,
    /// Variables whose first use by value is in the block that declares them, on every path.
    pub(crate) moved_surely: BTreeSet<VarId>,
    /// Statements (by their `after` point) with a `break` or `continue` among a macro's arguments.
    pub(crate) hidden_jumps: BTreeMap<PointId, proc_macro2::Span>,
}

impl Table {
    pub(crate) fn var(&self, id: VarId) -> &Var {
        &self.vars[id.0]
    }

    /// The variable whose remaining fields a variable holds, or itself.
    pub(crate) fn origin(&self, id: VarId) -> VarId {
        self.var(id).remainder_of.map_or(id, |of| self.origin(of))
    }

    /// Whether a variable is another one, or holds what remains of it.
    pub(crate) fn is_left_of(&self, id: VarId, whole: VarId) -> bool {
        id == whole || self.var(id).remainder_of.is_some_and(|of| self.is_left_of(of, whole))
    }

    /// Context and resources.
    pub(crate) fn given(&self) -> impl Iterator<Item = VarId> {
        self.vars.iter().enumerate().take_while(|(_, var)| var.kind == VarKind::Given).map(|(place, _)| VarId(place))
    }
}

/// Resolves `body`; `given` are the names of context and resources.
pub(crate) fn resolve(body: &mut Body, given: &[Ident], report: &mut Report) -> Table {
    let mut names = Names {
        table: Table { forced: vec![Vec::new(); body.cuts.len()], uses_before: vec![0; body.cuts.len()], ..Table::default() },
        by: Rc::from(""),
        report,
        scopes: vec![Vec::new()],
        jumps: Vec::new(),
        next_jump: JumpId::FIRST_PLAIN,
        next_point: 0,
        borrowed_loops: Vec::new(),
        hidden_jump: None,
        sealed: None,
        lent: Lent::default(),
        lasting: BTreeMap::new(),
    };
    for ident in given {
        names.declare(ident, false, VarKind::Given);
    }
    let mut cuts = std::mem::take(&mut body.cuts);
    names.block(&mut body.block, &mut cuts);
    body.cuts = cuts;
    names.table.moved_at = names.lent.moved_at;
    names.table.moved_surely = names.lent.moved_surely;
    names.table
}

struct Names<'a> {
    table: Table,
    report: &'a mut Report,
    scopes: Vec<Vec<(String, VarId)>>,
    jumps: Vec<Target>,
    /// Next number for a loop inside a plain statement, which the lowered tree does not number.
    next_jump: u32,
    next_point: u32,
    borrowed_loops: Vec<VarId>,
    hidden_jump: Option<proc_macro2::Span>,
    /// The sealed body that is walked, if any, with the first variable that is declared in it.
    sealed: Option<(Sealed, VarId)>,
    /// Description of the statement that is walked, for messages.
    by: Rc<str>,
    lent: Lent,
    /// The temporaries with names of their own, and their values.
    lasting: BTreeMap<String, syn::Expr>,
}

/// What the values of blocks borrow from, and what is needed to decide what can be kept.
#[derive(Default)]
struct Lent {
    /// The control constructs that are walked and whose values are bound, innermost last.
    values: Vec<BlockValue>,
    /// Whether the value of the block that is walked is that of the last of `values`.
    in_value: bool,
    /// Whether the operand of a `return` is walked: no cut point comes behind it.
    returns: bool,
    /// The number of cut points that the walk has passed.
    cuts: usize,
    /// The number of cut points before each variable's declaration, and before its first use by
    /// value.
    declared_at: Vec<usize>,
    moved_at: Vec<usize>,
    /// How many scopes are around the walk that it always comes through, as the body of a step.
    always: usize,
    /// How many other scopes were around each declaration, and the variables that are used by value
    /// with as many around.
    scopes_at: Vec<usize>,
    moved_surely: BTreeSet<VarId>,
    /// How many control constructs are around the walk, and were around each declaration.
    depth: usize,
    declared_in: Vec<usize>,
    /// The variables that are borrowed from.
    owners: BTreeSet<VarId>,
    /// Items of borrowed loops that are no references, and those that may be none.
    copies: BTreeSet<VarId>,
    in_doubt: BTreeSet<VarId>,
}

/// A value of a control construct.
#[derive(Default)]
struct BlockValue {
    /// The number of variables that are declared before it.
    first: usize,
    /// The loops and blocks whose `break` gives it.
    jumps: BTreeSet<JumpId>,
    owners: BTreeSet<Owner>,
}

/// A variable that a value borrows from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) var: VarId,
    /// Whether the form of the value leaves no doubt.
    pub(crate) is_certain: bool,
}

struct Target {
    label: Option<String>,
    id: JumpId,
    is_loop: bool,
}

impl Names<'_> {
    fn block(&mut self, block: &mut Block, cuts: &mut Vec<crate::hir::Cut>) {
        self.scopes.push(Vec::new());
        let (is_value, count) = (self.in_value(), block.stmts.len());
        for (place, stmt) in block.stmts.iter_mut().enumerate() {
            self.set_in_value(is_value && place + 1 == count);
            self.stmt(stmt, cuts);
        }
        self.set_in_value(is_value);
        if let (true, Some(Stmt { kind: StmtKind::Plain(syn::Stmt::Expr(value, None)), .. })) = (is_value, block.stmts.last()) {
            self.gives(value);
        }
        block.end = self.point();
        let scope = self.scopes.pop().unwrap_or_default();
        self.end_of_scope(&scope, block.end);
    }

    fn stmt(&mut self, stmt: &mut Stmt, cuts: &mut Vec<crate::hir::Cut>) {
        self.hidden_jump = None;
        stmt.start = self.point();
        match &mut stmt.kind {
            StmtKind::Plain(_) if !stmt.remainders.is_empty() => {
                (stmt.flow, stmt.declares) = self.remainders(&stmt.remainders);
                stmt.before = PointId::UNSET;
            }
            StmtKind::Plain(syntax) => {
                self.by = described(syntax).into();
                let (flow, declares) = self.plain(syntax);
                (stmt.flow, stmt.declares) = (flow, declares);
                stmt.before = PointId::UNSET;
            }
            StmtKind::Cut { bind, cut } => {
                self.by = format!("used by `{}`", cuts[*cut].title()).into();
                stmt.flow = self.cut(&cuts[*cut].body);
                stmt.before = self.point();
                self.table.uses_before[*cut] = self.table.uses.len();
                self.table.forced[*cut] = self.borrowed_loops.clone();
                self.lent.cuts = *cut + 1;
                stmt.declares = self.bind(bind);
                let (flow, declares) = self.remainders(&stmt.remainders);
                stmt.flow.push(flow);
                stmt.declares.extend(declares);
            }
            StmtKind::Control { bind, control } => {
                self.scopes.push(Vec::new());
                self.by = Rc::from(match control {
                    Control::Branch(Branch { head: Head::If { .. }, .. }) => "used in an `if` condition",
                    Control::Branch(Branch { head: Head::Match { .. }, .. }) => "used in what a `match` looks at",
                    Control::Branch(Branch { head: Head::LetElse { .. }, .. }) => "used in a `let .. else`",
                    _ => "what a `for` loop goes over",
                });
                let outer = self.enter_value(bind, control);
                let (flow, before, mut declares) = self.control(control, cuts);
                // The code that follows sees the declared variables under their own names.
                let scope = self.scopes.pop().unwrap_or_default();
                self.top().extend(scope.into_iter().filter(|(_, id)| declares.contains(id)));
                stmt.flow = flow;
                stmt.before = before;
                let bound = self.bind(bind);
                self.leave_value(bind, outer, &bound);
                declares.extend(bound);
                stmt.declares = declares;
            }
        }
        stmt.after = self.point();
        if let Some(span) = self.hidden_jump.take() {
            self.table.hidden_jumps.insert(stmt.after, span);
        }
    }

    fn bind(&mut self, bind: &Bind) -> Vec<VarId> {
        let Bind::Let { attrs, pat } = bind else { return Vec::new() };
        let key = key_of(attrs);
        let declares = self.pattern(pat, &VarKind::Value);
        self.renamed(attrs, &declares);
        for &id in &declares {
            if key.is_some() {
                self.table.vars[id.0].key.clone_from(&key);
            }
        }
        declares
    }

    /// Applies `#[was = "old"]` before a `let` to the variable that it declares.
    fn renamed(&mut self, attrs: &[Attribute], declares: &[VarId]) {
        for attr in attrs.iter().filter(|a| a.path().is_ident("was")) {
            match (literal_of(attr), declares) {
                (Some(old), &[var]) if !old.trim().is_empty() => self.table.vars[var.0].was = Some(old),
                (Some(_), &[_]) | (None, _) => self.report.over(attr, messages::WAS_LOCAL),
                (Some(_), _) => self.report.over(attr, messages::WAS_OF_SEVERAL),
            }
        }
    }

    /// Walks a control construct: flow and point of its head, and the variables that a
    /// `let .. else` declares.
    fn control(&mut self, control: &mut Control, cuts: &mut Vec<crate::hir::Cut>) -> (Flow, PointId, Vec<VarId>) {
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
            Control::For(for_loop) => self.for_(for_loop, cuts),
        }
    }

    fn for_(&mut self, for_loop: &mut For, cuts: &mut Vec<crate::hir::Cut>) -> (Flow, PointId, Vec<VarId>) {
        let flow = self.place(&for_loop.items);
        let before = self.point();
        let mut bases = BTreeSet::new();
        flow.mentioned(&mut bases);
        for_loop.bases = bases.into_iter().collect();
        let position = self.declare(&for_loop.position, false, VarKind::Position);
        self.table.vars[position.0].key = Some(format!("{} at", for_loop.key));
        for_loop.position_var = Some(position);
        let outer = self.borrowed_loops.len();
        self.borrowed_loops.push(position);
        let values = for_loop.bases.iter().filter(|b| self.table.var(**b).kind == VarKind::Value);
        self.borrowed_loops.extend(values.copied().collect::<Vec<_>>());
        let kind = VarKind::Item(for_loop.bases.clone());
        let borrowed = self.borrowed(&for_loop.items);
        for_loop.declares = self.pattern(&for_loop.pat, &kind);
        for_loop.declares.iter().for_each(|id| self.table.vars[id.0].borrowed.clone_from(&borrowed));
        self.note_items(for_loop);
        self.within(for_loop.label.as_ref(), for_loop.id, true, |names| names.block(&mut for_loop.body, cuts));
        self.borrowed_loops.truncate(outer);
        (flow, before, Vec::new())
    }

    fn branch(&mut self, branch: &mut Branch, cuts: &mut Vec<crate::hir::Cut>) -> (Flow, PointId, Vec<VarId>) {
        match &mut branch.head {
            Head::If { cond, .. } => {
                self.scopes.push(Vec::new());
                let flow = self.expr(cond);
                let before = self.point();
                branch.arms[0].declares = self.top().iter().map(|(_, id)| *id).collect();
                branch.arms[0].enter = self.bound_here();
                self.block(&mut branch.arms[0].block, cuts);
                let scope = self.scopes.pop().unwrap_or_default();
                self.end_of_scope(&scope, branch.arms[0].block.end);
                self.block(&mut branch.arms[1].block, cuts);
                (flow, before, Vec::new())
            }
            Head::Match { scrutinee, .. } => {
                let flow = self.place(scrutinee);
                let before = self.point();
                for arm in &mut branch.arms {
                    self.scopes.push(Vec::new());
                    if let Some(pat) = &arm.pat {
                        arm.enter = self.arm_pattern(pat, scrutinee);
                        arm.declares = self.top().iter().map(|(_, id)| *id).collect();
                    }
                    self.block(&mut arm.block, cuts);
                    let scope = self.scopes.pop().unwrap_or_default();
                    self.end_of_scope(&scope, arm.block.end);
                }
                (flow, before, Vec::new())
            }
            Head::LetElse { pat, init, .. } => {
                let mut flow = self.place(init);
                flow.push(self.moved_by_pattern(pat, init));
                let before = self.point();
                for arm in &mut branch.arms {
                    self.block(&mut arm.block, cuts);
                }
                let declares = self.bindings_of(pat, init);
                (flow, before, declares)
            }
        }
    }

    /// Declares an arm's bindings, and walks its guard.
    fn arm_pattern(&mut self, pat: &Pat, scrutinee: &Expr) -> Flow {
        if let Pat::Guard(guarded) = pat {
            let mut flow = self.moved_by_pattern(&guarded.pat, scrutinee);
            let declares = self.bindings_of(&guarded.pat, scrutinee);
            flow.push(assign_all(&declares));
            flow.push(self.expr(&guarded.guard));
            return flow;
        }
        let mut flow = self.moved_by_pattern(pat, scrutinee);
        let declares = self.bindings_of(pat, scrutinee);
        flow.push(assign_all(&declares));
        flow
    }

    fn within(&mut self, label: Option<&syn::Label>, id: JumpId, is_loop: bool, walk: impl FnOnce(&mut Self)) {
        self.jumps.push(Target { label: label.map(|l| l.name.ident.to_string()), id, is_loop });
        walk(self);
        self.jumps.pop();
    }

    /// Walks a statement without cut points: its flow, and the variables that it declares.
    fn plain(&mut self, stmt: &syn::Stmt) -> (Flow, Vec<VarId>) {
        match stmt {
            syn::Stmt::Local(local) => self.local(local),
            syn::Stmt::Expr(expr, _) => (self.expr(expr), Vec::new()),
            syn::Stmt::Macro(mac) => (self.macro_call(&mac.mac), Vec::new()),
            syn::Stmt::Item(_) => (Flow::Nothing, Vec::new()),
        }
    }

    fn declare(&mut self, ident: &Ident, mutable: bool, kind: VarKind) -> VarId {
        let id = VarId(self.table.vars.len());
        let name = ident.to_string();
        let ident = ident.clone();
        let var = Var {
            ident,
            mutable,
            kind,
            ty: None,
            key: None,
            was: None,
            texts: Texts::None,
            borrowed_text: false,
            text_of: None,
            remainder_of: None,
            at: self.now(),
            borrowed: None,
            made_by: MadeBy::Other,
        };
        self.table.vars.push(var);
        self.note_declared();
        self.top().push((name.trim_start_matches("r#").to_owned(), id));
        id
    }

    fn top(&mut self) -> &mut Vec<(String, VarId)> {
        self.scopes.last_mut().expect("the function's scope stays")
    }

    fn lookup(&self, name: &str) -> Option<VarId> {
        let name = name.trim_start_matches("r#");
        self.scopes.iter().rev().flat_map(|s| s.iter().rev()).find(|(n, _)| n == name).map(|(_, id)| *id)
    }

    /// Records a use of a variable, and of what it is made from.
    fn use_of(&mut self, id: VarId, span: proc_macro2::Span) -> Flow {
        let mut flow = Flow::Use(id);
        let at = self.now();
        self.table.uses.push(Use { var: id, span, by: Rc::clone(&self.by), assigns: false, path: Vec::new(), at, through: None });
        let bases: Vec<VarId> = match &self.table.var(id).kind {
            VarKind::Reborrow(again) | VarKind::Fresh(again) => self.table.reborrows[again.0].bases.clone(),
            VarKind::Item(bases) => bases.clone(),
            _ => Vec::new(),
        };
        for base in bases {
            let noted = self.table.uses.len();
            flow.push(self.use_of(base, span));
            let path = self.table.var(id).borrowed.clone().filter(|(from, _)| *from == base).map(|(_, path)| path);
            let noted = &mut self.table.uses[noted];
            (noted.through, noted.path) = (Some(id), path.unwrap_or_default());
        }
        flow
    }

    /// Whether an expression is a plain borrow, or a place inside a borrowed variable.
    fn borrows_from(&self, expr: &Expr) -> bool {
        let is_fixed = |id: VarId| !self.table.var(id).mutable && !self.may_change(id);
        let fixed_index = place::index_variables(expr).iter().all(|i| self.lookup(&i.to_string()).is_none_or(is_fixed));
        let from_borrow = || {
            place::is_place(expr)
                && place::root(expr).and_then(|r| self.lookup(&r.to_string())).is_some_and(|id| match &self.table.var(id).kind {
                    // A copy out of it may outlive the borrow, and its source may change then.
                    VarKind::Reborrow(_) if !matches!(expr, Expr::Path(_)) && self.may_change(id) => false,
                    VarKind::Reborrow(again) => !self.table.reborrows[again.0].mutable && !self.table.reborrows[again.0].bases.is_empty(),
                    VarKind::Item(_) => true,
                    _ => false,
                })
        };
        fixed_index && (place::plain_borrow(expr).is_some() || from_borrow())
    }

    /// Whether the source of a variable is a variable that can be changed.
    fn may_change(&self, id: VarId) -> bool {
        match &self.table.var(id).kind {
            VarKind::Reborrow(again) => {
                self.table.reborrows[again.0].bases.iter().any(|base| self.table.var(*base).mutable || self.may_change(*base))
            }
            VarKind::Item(bases) => bases.iter().any(|base| self.table.var(*base).mutable || self.may_change(*base)),
            _ => false,
        }
    }

    /// The variables that a place, or a borrow of one, names.
    fn variables_in(&self, expr: &Expr) -> Vec<VarId> {
        let names = place::root(expr).into_iter().chain(place::index_variables(expr));
        let mut found: Vec<VarId> = names.filter_map(|name| self.lookup(&name.to_string())).collect();
        found.dedup();
        found
    }

    /// The last point that the walk passed.
    fn now(&self) -> PointId {
        PointId(self.next_point.saturating_sub(1))
    }

    fn point(&mut self) -> PointId {
        let point = PointId(self.next_point);
        self.next_point += 1;
        let hidden = self.hidden();
        self.table.hidden.insert(point, hidden);
        point
    }

    /// The variables in scope whose name means another one here, each with that one.
    fn hidden(&self) -> Vec<(VarId, VarId)> {
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
        hidden
    }
}

/// Description of a statement, as the reason for keeping what it uses.
fn described(stmt: &syn::Stmt) -> String {
    if matches!(stmt, syn::Stmt::Local(local) if key_of(&local.attrs).is_some()) {
        return "used before a step in the same expression, or gone over by a `for` loop".to_owned();
    }
    if is_wait(stmt) {
        return "when a `sleep!` ends".to_owned();
    }
    let text = match crate::lower::lasting::value(stmt) {
        Some(value) => crate::text::compact(value),
        None => crate::text::compact(stmt),
    };
    if text.starts_with("let::core::option::Option::Some(") {
        return "gone over by a `for` loop".to_owned();
    }
    // The pass `lower` names such values.
    let text = text.replace(LASTING, "__value_");
    let mut parts = text.split("__value_");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push('_');
        shown.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    format!("used in `{shown}`")
}

/// Whether a statement is the wait of a `sleep!`: a call on the frame, which is no variable.
fn is_wait(stmt: &syn::Stmt) -> bool {
    let expr = match stmt {
        syn::Stmt::Expr(expr, _) => expr,
        syn::Stmt::Local(syn::Local { init: Some(init), .. }) => &*init.expr,
        _ => return false,
    };
    matches!(expr, Expr::Await(e) if matches!(&*e.base, Expr::MethodCall(call) if matches!(&*call.receiver, Expr::Verbatim(_))))
}

pub(crate) fn assign_all(vars: &[VarId]) -> Flow {
    let mut flow = Flow::Nothing;
    for &var in vars {
        flow.push(Flow::Assign(var));
    }
    flow
}

/// The stored name that the pass `lower` wrote on a generated `let`.
fn key_of(attrs: &[Attribute]) -> Option<String> {
    attrs.iter().find(|a| a.path().is_ident("forever_key")).and_then(literal_of)
}

/// The text of `#[attribute = "text"]`.
fn literal_of(attr: &Attribute) -> Option<String> {
    match &attr.meta {
        syn::Meta::NameValue(syn::MetaNameValue { value: Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }), .. }) => {
            Some(text.value())
        }
        _ => None,
    }
}

/// Whether an attribute belongs to `#[fiber]`, and must not reach the compiler.
pub(crate) fn is_ours(attr: &Attribute) -> bool {
    ["forever_key", "fresh", "was", "secret", "public"].iter().any(|name| attr.path().is_ident(name))
}
