//! What code names a variable, and how often: a variable can be declared earlier than its `let`
//! only where nothing in between means another one of its name.
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Pat, Stmt};

use crate::pattern;

/// How often a statement may name a variable or a function of this name, its own declaration
/// included.
pub(crate) fn in_stmt(stmt: &Stmt, name: &str) -> usize {
    counted(name, |named| named.visit_stmt(stmt))
}

pub(crate) fn in_expr(expr: &Expr, name: &str) -> usize {
    counted(name, |named| named.visit_expr(expr))
}

pub(crate) fn in_block(block: &syn::Block, name: &str) -> usize {
    counted(name, |named| named.visit_block(block))
}

pub(crate) fn in_arm(arm: &syn::Arm, name: &str) -> usize {
    counted(name, |named| named.visit_arm(arm))
}

pub(crate) fn in_pat(pat: &Pat, name: &str) -> usize {
    counted(name, |named| named.visit_pat(pat))
}

fn counted(name: &str, visit: impl FnOnce(&mut Named<'_>)) -> usize {
    let mut named = Named { name, times: 0 };
    visit(&mut named);
    named.times
}

struct Named<'n> {
    name: &'n str,
    times: usize,
}

impl Named<'_> {
    fn is_bound(&self, pat: &Pat) -> bool {
        pattern::bindings(pat).iter().any(|bound| bound.ident == self.name)
    }
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.times += usize::from(path.get_ident().is_some_and(|ident| ident == self.name));
        visit::visit_path(self, path);
    }

    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        self.times += usize::from(pat.ident == self.name);
        visit::visit_pat_ident(self, pat);
    }

    // What binds the name hides other variables in its scope.

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        if !closure.inputs.iter().any(|input| self.is_bound(input)) {
            visit::visit_expr_closure(self, closure);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !self.is_bound(&arm.pat) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_expr_if(&mut self, e: &'ast syn::ExprIf) {
        let Expr::Let(binding) = &*e.cond else { return visit::visit_expr_if(self, e) };
        self.visit_expr(&binding.expr);
        if !self.is_bound(&binding.pat) {
            self.visit_block(&e.then_branch);
        }
        e.else_branch.iter().for_each(|(_, otherwise)| self.visit_expr(otherwise));
    }

    fn visit_expr_for_loop(&mut self, e: &'ast syn::ExprForLoop) {
        self.visit_expr(&e.expr);
        if !self.is_bound(&e.pat) {
            self.visit_block(&e.body);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Local(local) if self.is_bound(&local.pat) => {
                    return local.init.iter().for_each(|init| self.visit_local_init(init));
                }
                other => self.visit_stmt(other),
            }
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.times += in_tokens(&mac.tokens, self.name);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.times += in_tokens(tokens, self.name);
    }

    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

pub(crate) fn has_jump(tokens: &TokenStream) -> bool {
    in_tokens(tokens, "break") + in_tokens(tokens, "continue") > 0
}

/// As names, and in the texts of formats.
fn in_tokens(tokens: &TokenStream, name: &str) -> usize {
    let of = |token| match token {
        TokenTree::Ident(ident) => usize::from(ident == name),
        TokenTree::Group(group) => in_tokens(&group.stream(), name),
        TokenTree::Literal(text) => usize::from(text.to_string().contains(&format!("{{{name}"))),
        TokenTree::Punct(_) => 0,
    };
    tokens.clone().into_iter().map(of).sum()
}

/// Whether an expression has a name as an expression, and in no arguments of a macro.
pub(crate) fn is_in_paths(expr: &Expr, name: &str) -> bool {
    let places = places(name, |places| places.visit_expr(expr));
    !places.in_macro && !places.bound && in_expr(expr, name) > 0
}

/// Whether a statement names a variable in the arguments of a macro, which may show the name.
pub(crate) fn in_macros(stmt: &Stmt, name: &str) -> bool {
    places(name, |places| places.visit_stmt(stmt)).in_macro
}

fn places<'n>(name: &'n str, visit: impl FnOnce(&mut Places<'n>)) -> Places<'n> {
    let mut places = Places { name, in_macro: false, bound: false };
    visit(&mut places);
    places
}

/// Where code has a name.
struct Places<'n> {
    name: &'n str,
    in_macro: bool,
    /// Whether a pattern binds it.
    bound: bool,
}

impl<'ast> Visit<'ast> for Places<'_> {
    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.in_macro |= in_tokens(&mac.tokens, self.name) > 0;
    }

    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        self.bound |= pat.ident == self.name;
        visit::visit_pat_ident(self, pat);
    }
}

/// Reaches what has a name through an alias of it.
pub(crate) struct Reached<'n> {
    pub(crate) name: &'n str,
    pub(crate) alias: &'n Ident,
}

impl VisitMut for Reached<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Path(path) if path.path.get_ident().is_some_and(|ident| ident == self.name) => {
                let alias = self.alias;
                *expr = syn::parse_quote!(#alias!());
            }
            other => visit_mut::visit_expr_mut(self, other),
        }
    }

    fn visit_field_value_mut(&mut self, field: &mut syn::FieldValue) {
        field.colon_token.get_or_insert_with(Default::default);
        visit_mut::visit_field_value_mut(self, field);
    }
}

/// Gives a variable another name, where all that has its name means it.
pub(crate) struct Renamed<'n> {
    pub(crate) from: &'n str,
    pub(crate) to: &'n Ident,
}

impl VisitMut for Renamed<'_> {
    fn visit_pat_ident_mut(&mut self, pat: &mut syn::PatIdent) {
        if pat.ident == self.from {
            pat.ident = self.to.clone();
        }
        visit_mut::visit_pat_ident_mut(self, pat);
    }

    fn visit_field_pat_mut(&mut self, field: &mut syn::FieldPat) {
        if field.colon_token.is_none() && pattern::bindings(&field.pat).iter().any(|bound| bound.ident == self.from) {
            field.colon_token = Some(<syn::Token![:]>::default());
        }
        visit_mut::visit_field_pat_mut(self, field);
    }

    fn visit_field_value_mut(&mut self, field: &mut syn::FieldValue) {
        field.colon_token.get_or_insert_with(Default::default);
        visit_mut::visit_field_value_mut(self, field);
    }

    fn visit_expr_path_mut(&mut self, path: &mut syn::ExprPath) {
        if path.path.get_ident().is_some_and(|ident| ident == self.from) {
            path.path = self.to.clone().into();
        }
    }

    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}
