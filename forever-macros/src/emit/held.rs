//! Locals that no cut point keeps, and that are dropped where their block ends all the same.
//!
//! The code of a stretch is a block of its own, at whose end its locals would be dropped. One that
//! lives on is declared before the stretch and gets its value in it, so that the compiler drops it
//! where it drops the user's: at the end of the block, unless it has been moved. A run that skips
//! the stretch has no value to drop.
use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::Expr;
use syn::visit_mut::{self, VisitMut};

use super::{Emit, branch};
use crate::held;
use crate::hir::{Branch, Control, Head, LASTING, LASTING_IN_BLOCK, Stmt, StmtKind};
use crate::ids::{PointId, VarId};
use crate::names::{VarKind, VarOrigin, is_ours};
use crate::pattern;
use crate::plan::Storage;

/// Values of a stretch that are dropped after it.
#[derive(Default)]
pub(super) struct Outliving {
    /// Until the end of the block: variables that are declared before the stretch.
    pub(super) block: BTreeSet<VarId>,
    /// Until the end of the statement that the stretch leads to: variables that are declared before
    /// the stretch, too.
    pub(super) statement: BTreeSet<VarId>,
}

impl Emit<'_> {
    /// The variables of a stretch that live on after it.
    pub(super) fn outliving(&self, plain: &[Stmt], stmt: &Stmt) -> Outliving {
        let mut found = Outliving::default();
        let mut before = TokenStream::new();
        for stmt in plain {
            let StmtKind::Plain(syntax) = &stmt.kind else { continue };
            before.extend(syntax.to_token_stream());
            for var in self.held_by_value(stmt, syntax) {
                let name = self.ident(var).to_string();
                if name.starts_with(LASTING_IN_BLOCK) {
                    found.block.insert(var);
                } else if name.starts_with(LASTING) {
                    found.statement.insert(var);
                } else if self.lives_on(var, stmt.after) && times_named(&before, &name) == 1 {
                    found.block.insert(var);
                }
            }
        }
        if let StmtKind::Control { control, .. } = &stmt.kind {
            if let Control::Branch(branch) = control {
                self.outliving_in_arms(branch, &mut found);
            }
        } else {
            // A cut point ends with its statement.
            found.statement.clear();
        }
        found
    }

    /// The variables that live on to the end of an arm, which is that of the whole statement.
    fn outliving_in_arms(&self, branch: &Branch, found: &mut Outliving) {
        for arm in branch.arms.iter().filter(|arm| arm.cuts.is_some()) {
            let (plain, rest) = branch::split(&arm.block.stmts);
            let pattern = match &branch.head {
                Head::If { cond: Expr::Let(binding), .. } => Some((&*binding.pat, binding.to_token_stream())),
                Head::Match { .. } => arm.pat.as_ref().map(|pat| (pat, pat.to_token_stream())),
                _ => None,
            };
            if let (Some((pat, tokens)), Some(first)) = (pattern, arm.block.stmts.first()) {
                let bindings = pattern::bindings(pat);
                let by_value = |var: &VarId| bindings.iter().any(|bound| bound.ident == *self.ident(*var) && !bound.by_ref);
                let is_named = |var: &VarId| times_named(&tokens, &self.ident(*var).to_string()) == 1;
                let vars = arm.declares.iter().copied().filter(by_value).filter(is_named).filter(|v| self.lives_on(*v, first.start));
                vars.for_each(|var| self.add_to_statement(var, found));
            }
            for stmt in plain {
                let StmtKind::Plain(syntax) = &stmt.kind else { continue };
                for var in self.held_by_value(stmt, syntax) {
                    let name = self.ident(var).to_string();
                    // A temporary ends with its own statement.
                    let is_last = !name.starts_with(LASTING) || rest.len() == 1;
                    let is_named = is_last && times_named(&syntax.to_token_stream(), &name) == 1;
                    if is_named && self.lives_on(var, stmt.after) {
                        self.add_to_statement(var, found);
                    }
                }
            }
            // An arm that ends with another branch ends with it.
            if let [Stmt { kind: StmtKind::Control { control: Control::Branch(inner), .. }, .. }] = rest {
                self.outliving_in_arms(inner, found);
            }
        }
    }

    /// Adds a variable, unless another one of its name is declared at the same place.
    fn add_to_statement(&self, var: VarId, found: &mut Outliving) {
        let ident = self.ident(var);
        if found.block.iter().chain(&found.statement).all(|other| self.ident(*other) != ident) {
            found.statement.insert(var);
        }
    }

    /// The variables that a `let` gives values of their own.
    fn held_by_value(&self, stmt: &Stmt, syntax: &syn::Stmt) -> Vec<VarId> {
        let syn::Stmt::Local(local) = syntax else { return Vec::new() };
        let by_value = !held::takes_next_item(syntax)
            && !held::is_arguments(syntax)
            && local.init.as_ref().is_some_and(|init| !extends_temporaries(&init.expr))
            && stmt.remainders.is_empty()
            && stmt.flow.completes()
            && !local.attrs.iter().any(is_ours)
            && pattern::bindings(&local.pat).iter().all(|b| !b.by_ref)
            && stmt.declares.iter().all(|v| self.cx.table.var(*v).kind == VarKind::Value);
        if by_value { stmt.declares.clone() } else { Vec::new() }
    }

    /// The carried variables that no cut point keeps, and that nothing needs after a stretch.
    pub(super) fn last_used(&self, mentioned: &BTreeSet<VarId>, start: PointId, end: PointId) -> BTreeSet<VarId> {
        let (table, from, to) = (self.cx.table, self.live(start), self.live(end));
        let is_hidden = |var: VarId| table.hidden.get(&start).is_some_and(|all| all.iter().any(|(hidden, _)| *hidden == var));
        let is_last = |var: &VarId| {
            let info = table.var(*var);
            self.storage(*var) == Storage::Carried
                && info.kind == VarKind::Value
                && info.origin() == VarOrigin::User
                && self.cx.plan.kept_at(*var).is_empty()
                && from.contains(var)
                && !to.contains(var)
                && !self.open.contains(var)
                && !self.is_aliased(*var)
                && !is_hidden(*var)
        };
        mentioned.iter().copied().filter(is_last).collect()
    }

    /// Whether a variable may be declared before its stretch, as far as its uses show.
    fn lives_on(&self, var: VarId, at: PointId) -> bool {
        let table = self.cx.table;
        // One that is moved would count as held by the compiler.
        let stays = table.moved_at[var.0] == usize::MAX || !table.moved_surely.contains(&var);
        stays && self.cx.plan.kept_at(var).is_empty() && self.is_only_here(var) && !self.hides_another(var, at)
    }

    /// Whether a variable of the user's is mentioned in its stretch alone.
    fn is_only_here(&self, var: VarId) -> bool {
        let (table, info) = (self.cx.table, self.cx.table.var(var));
        self.storage(var) == Storage::Local
            && info.kind == VarKind::Value
            && info.origin() == VarOrigin::User
            && info.key.is_none()
            && (info.ident.to_string().starts_with('_') || table.uses.iter().any(|u| u.var == var && !u.assigns))
    }

    /// Whether a variable has the name of another one that is in scope, too.
    fn hides_another(&self, var: VarId, at: PointId) -> bool {
        self.cx.table.hidden.get(&at).is_some_and(|all| all.iter().any(|(_, hiding)| *hiding == var))
    }

    /// Whether an exported variable may be declared before its stretch.
    pub(super) fn may_be_declared_before(&self, var: VarId, plain: &[Stmt]) -> bool {
        if self.storage(var) == Storage::Carried {
            return true;
        }
        let name = self.ident(var).to_string();
        let names_itself = |stmt: &Stmt| match &stmt.kind {
            StmtKind::Plain(syntax) if held::is_arguments(syntax) => false,
            StmtKind::Plain(syn::Stmt::Local(syn::Local { init: Some(init), .. })) => times_named(&init.expr.to_token_stream(), &name) > 0,
            _ => true,
        };
        let declaring = plain.iter().find(|stmt| stmt.declares.contains(&var));
        declaring.is_some_and(|stmt| !names_itself(stmt) && !self.hides_another(var, stmt.after))
    }

    /// `let name;` for each.
    pub(super) fn declarations(&self, vars: &BTreeSet<VarId>) -> TokenStream {
        let lets = vars.iter().map(|v| {
            let (ident, mutable) = (self.ident(*v), self.cx.table.var(*v).mutable.then(|| emit!(mut)));
            emit!(let #mutable #ident;)
        });
        lets.collect()
    }

    /// The pattern of an arm in which variables that are declared before have other names.
    pub(super) fn with_outliving_parts(&self, pat: &syn::Pat, declares: &[VarId]) -> syn::Pat {
        let mut pat = pat.clone();
        let vars: Vec<VarId> = declares.iter().copied().filter(|v| self.outliving.contains(v)).collect();
        if !vars.is_empty() {
            Parts { emit: self, vars }.visit_pat_mut(&mut pat);
        }
        pat
    }

    /// Gives such variables their values.
    pub(super) fn outliving_bound(&self, declares: &[VarId]) -> TokenStream {
        let set = declares.iter().filter(|v| self.outliving.contains(v)).map(|var| {
            let (ident, part) = (self.ident(*var), part_name(*var));
            emit!(#ident = #part;)
        });
        set.collect()
    }

    /// The code of a `let`, for variables that are declared before.
    pub(super) fn with_outliving(&self, stmt: &Stmt, code: TokenStream) -> TokenStream {
        if !stmt.declares.iter().any(|v| self.outliving.contains(v)) {
            return code;
        }
        if let StmtKind::Plain(syn::Stmt::Local(syn::Local { attrs, pat: syn::Pat::Ident(name), init: Some(init), .. })) = &stmt.kind
            && attrs.is_empty()
            && init.diverge.is_none()
        {
            let (name, value) = (&name.ident, self.rewrite_expr(&init.expr));
            return emit!(#name = #value;);
        }
        let names: Vec<_> = stmt.declares.iter().map(|v| self.ident(*v)).collect();
        let value = if let [name] = &names[..] { emit!(#name) } else { emit!((#(#names),*)) };
        let made = emit!({ #[allow(unused_mut)] #code #value });
        let lives_on = |v: &&VarId| self.outliving.contains(*v);
        if stmt.declares.iter().all(|v| lives_on(&v)) {
            return emit!(#value = #made;);
        }
        // Others get their names only now, since the value may mention variables that they hide.
        let mut set = TokenStream::new();
        let parts = stmt.declares.iter().map(|v| {
            let ident = self.ident(*v);
            if lives_on(&v) {
                let part = part_name(*v);
                set.extend(emit!(#ident = #part;));
                return emit!(#part);
            }
            let mutable = self.cx.table.var(*v).mutable.then(|| emit!(mut));
            emit!(#mutable #ident)
        });
        let parts: Vec<_> = parts.collect();
        emit! {
            let (#(#parts),*) = #made;
            #set
        }
    }
}

fn part_name(var: VarId) -> proc_macro2::Ident {
    format_ident!("__part_{}", var.0, span = Span::mixed_site())
}

/// Renames variables of a pattern.
struct Parts<'a> {
    emit: &'a Emit<'a>,
    vars: Vec<VarId>,
}

impl VisitMut for Parts<'_> {
    fn visit_pat_ident_mut(&mut self, name: &mut syn::PatIdent) {
        if let Some(var) = self.vars.iter().find(|v| *self.emit.ident(**v) == name.ident) {
            (name.ident, name.mutability) = (part_name(*var), None);
        }
        visit_mut::visit_pat_ident_mut(self, name);
    }

    fn visit_field_pat_mut(&mut self, field: &mut syn::FieldPat) {
        let before = field.pat.to_token_stream().to_string();
        self.visit_pat_mut(&mut field.pat);
        if field.pat.to_token_stream().to_string() != before {
            field.colon_token.get_or_insert_with(Default::default);
        }
    }
}

/// Whether a value may borrow from temporaries that live as long as the variable.
fn extends_temporaries(init: &Expr) -> bool {
    let end = |block: &syn::Block| match block.stmts.last() {
        Some(syn::Stmt::Expr(value, None)) => extends_temporaries(value),
        Some(syn::Stmt::Macro(mac)) => mac.semi_token.is_none(),
        _ => false,
    };
    match init {
        Expr::Reference(_) => true,
        Expr::Macro(e) => !e.mac.path.is_ident("vec"),
        Expr::Paren(e) => extends_temporaries(&e.expr),
        Expr::Group(e) => extends_temporaries(&e.expr),
        Expr::Cast(e) => extends_temporaries(&e.expr),
        Expr::Tuple(e) => e.elems.iter().any(extends_temporaries),
        Expr::Array(e) => e.elems.iter().any(extends_temporaries),
        Expr::Struct(e) => e.fields.iter().any(|field| extends_temporaries(&field.expr)),
        // Of a tuple struct or variant; a function's arguments end with the statement.
        Expr::Call(e) => is_constructor(&e.func) && e.args.iter().any(extends_temporaries),
        Expr::Block(e) => end(&e.block),
        Expr::Unsafe(e) => end(&e.block),
        Expr::If(e) => end(&e.then_branch) || e.else_branch.as_ref().is_some_and(|(_, otherwise)| extends_temporaries(otherwise)),
        Expr::Match(e) => e.arms.iter().any(|arm| extends_temporaries(&arm.body)),
        _ => false,
    }
}

fn is_constructor(func: &Expr) -> bool {
    let Expr::Path(path) = func else { return false };
    path.path.segments.last().is_some_and(|s| s.ident.to_string().starts_with(char::is_uppercase))
}

/// How often tokens name something.
fn times_named(tokens: &TokenStream, name: &str) -> usize {
    let of = |token| match token {
        TokenTree::Ident(ident) => usize::from(ident == name),
        TokenTree::Group(group) => times_named(&group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => 0,
    };
    tokens.clone().into_iter().map(of).sum()
}
