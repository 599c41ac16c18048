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

use super::Emit;
use crate::held;
use crate::hir::{Stmt, StmtKind};
use crate::ids::VarId;
use crate::names::{VarKind, VarOrigin, is_ours};
use crate::pattern;
use crate::plan::Storage;

impl Emit<'_> {
    /// The variables of a stretch that live on after it.
    pub(super) fn outliving(&self, plain: &[Stmt]) -> BTreeSet<VarId> {
        let mut found = BTreeSet::new();
        let mut before = TokenStream::new();
        for stmt in plain {
            let StmtKind::Plain(syntax) = &stmt.kind else { continue };
            before.extend(syntax.to_token_stream());
            let syn::Stmt::Local(local) = syntax else { continue };
            if held::takes_next_item(syntax) || held::is_arguments(syntax) {
                continue;
            }
            let by_value = local.init.as_ref().is_some_and(|init| !extends_temporaries(&init.expr))
                && stmt.remainders.is_empty()
                && stmt.flow.completes()
                && !local.attrs.iter().any(is_ours)
                && pattern::bindings(&local.pat).iter().all(|b| !b.by_ref)
                && stmt.declares.iter().all(|v| self.cx.table.var(*v).kind == VarKind::Value);
            if by_value {
                found.extend(stmt.declares.iter().copied().filter(|v| self.lives_on(*v, stmt, &before)));
            }
        }
        found
    }

    /// Whether a variable may be declared before its stretch: its name means nothing else there.
    fn lives_on(&self, var: VarId, stmt: &Stmt, before: &TokenStream) -> bool {
        let (table, info) = (self.cx.table, self.cx.table.var(var));
        let hides = |(_, hiding): &(VarId, VarId)| *hiding == var;
        self.storage(var) == Storage::Local
            && info.origin() == VarOrigin::User
            && info.key.is_none()
            // One that may be moved would count as held by the compiler, even where it is not.
            && table.moved_at[var.0] == usize::MAX
            && table.uses.iter().any(|u| u.var == var && !u.assigns)
            && !table.hidden.get(&stmt.after).is_some_and(|all| all.iter().any(hides))
            && times_named(before, &info.ident.to_string()) == 1
    }

    /// `let name;` for each.
    pub(super) fn declarations(&self, vars: &BTreeSet<VarId>) -> TokenStream {
        let lets = vars.iter().map(|v| {
            let (ident, mutable) = (self.ident(*v), self.cx.table.var(*v).mutable.then(|| emit!(mut)));
            emit!(let #mutable #ident;)
        });
        lets.collect()
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
                let part = format_ident!("__part_{}", v.0, span = Span::mixed_site());
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
