//! What of a function may hold a value that `#[secret]` marks.
//!
//! A name is secret once anything that mentions a secret goes into it: a `let`, an assignment, a
//! pattern, an argument of a method that may change it. The analysis goes by names, not by scopes,
//! and repeats until it finds no more. `#[public]` on a `let` takes its names out.
use std::collections::BTreeSet;

use proc_macro2::{Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Block, Expr, Pat, Stmt, Token};

use crate::hir::Body;
use crate::names::format::captures;
use crate::pattern::{bindings, is_public, is_secret};
use crate::plan::Plan;
use crate::signature::Signature;

/// The entry for the result of the function. It is no name of a variable.
const RESULT: &str = "return";

/// The sorted entries of the table: names of arguments and variables, `@NAME` for each cut point
/// whose code mentions one of them, and `return` if the function may return one.
pub(crate) fn of(signature: &Signature, block: &Block, lowered: Option<(&Body, &Plan)>) -> Vec<String> {
    let mut flow = Flow::default();
    for argument in signature.arguments.iter().filter(|argument| argument.secret) {
        flow.add(&argument.name.to_string());
        flow.bind(&argument.pat);
    }
    let mut marked = Marked(&mut flow);
    signature.arguments.iter().for_each(|argument| marked.visit_pat(&argument.pat));
    marked.visit_block(block);
    if flow.secret.is_empty() {
        return Vec::new();
    }
    loop {
        let before = (flow.secret.len(), flow.returns);
        flow.visit_block(block);
        if let Some(Stmt::Expr(last, None)) = block.stmts.last() {
            flow.returns |= flow.mentions(last);
        }
        if before == (flow.secret.len(), flow.returns) {
            break;
        }
    }
    let mut entries: Vec<String> = flow.secret.iter().cloned().collect();
    if let Some((body, plan)) = lowered {
        let cuts = body.cuts.iter().zip(&plan.names);
        let secret = cuts.filter(|(cut, _)| crate::text::words(&cut.text).iter().any(|word| flow.secret.contains(word)));
        entries.extend(secret.map(|(_, (name, _))| format!("@{name}")));
    }
    entries.extend(flow.returns.then(|| RESULT.to_owned()));
    entries.sort();
    entries
}

#[derive(Default)]
struct Flow {
    secret: BTreeSet<String>,
    /// Names that `#[public]` marks.
    public: BTreeSet<String>,
    /// Names that are declared `mut`.
    mutable: BTreeSet<String>,
    /// Whether the function returns a value that mentions one.
    returns: bool,
}

/// Collects what the attributes of `let`s say.
struct Marked<'a>(&'a mut Flow);

impl<'ast> Visit<'ast> for Marked<'_> {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        if local.attrs.iter().any(is_public) {
            self.0.public.extend(bindings(&local.pat).iter().map(|binding| plain(&binding.ident.to_string())));
        }
        if local.attrs.iter().any(is_secret) {
            self.0.bind(&local.pat);
        }
        visit::visit_local(self, local);
    }

    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        if pat.mutability.is_some() {
            self.0.mutable.insert(plain(&pat.ident.to_string()));
        }
    }
}

impl Flow {
    fn add(&mut self, name: &str) {
        let name = plain(name);
        if !self.public.contains(&name) {
            self.secret.insert(name);
        }
    }

    fn bind(&mut self, pat: &Pat) {
        bindings(pat).iter().for_each(|binding| self.add(&binding.ident.to_string()));
    }

    /// A pattern takes a value apart.
    fn flows(&mut self, from: &Expr, into: &Pat) {
        if self.mentions(from) {
            self.bind(into);
        }
    }

    /// Whether tokens mention a secret as a variable, or in a format string.
    fn mentions(&self, tokens: &impl ToTokens) -> bool {
        self.in_tokens(tokens.to_token_stream())
    }

    fn in_tokens(&self, tokens: TokenStream) -> bool {
        let mut behind_dot = false;
        tokens.into_iter().any(|token| {
            let is_field = behind_dot;
            behind_dot = matches!(&token, TokenTree::Punct(dot) if dot.as_char() == '.' && dot.spacing() == Spacing::Alone && !is_field);
            match token {
                TokenTree::Ident(name) => !is_field && self.secret.contains(&plain(&name.to_string())),
                TokenTree::Literal(text) => captures(&text.to_string()).iter().any(|capture| self.secret.contains(&plain(&capture.name))),
                TokenTree::Group(group) => self.in_tokens(group.stream()),
                TokenTree::Punct(_) => false,
            }
        })
    }

    /// What a call that mentions a secret may write it to: its receiver, and what it borrows as
    /// mutable.
    fn written(&mut self, receiver: Option<&Expr>, arguments: &Punctuated<Expr, Token![,]>) {
        if let Some(root) = receiver.and_then(crate::place::root).filter(|root| self.mutable.contains(&plain(&root.to_string()))) {
            self.add(&root.to_string());
        }
        for argument in arguments {
            match argument {
                Expr::Reference(borrow) if borrow.mutability.is_some() => self.assigned(&borrow.expr),
                // Its parameters may be given it.
                Expr::Closure(closure) => closure.inputs.iter().for_each(|pat| self.bind(pat)),
                _ => {}
            }
        }
    }

    fn assigned(&mut self, place: &Expr) {
        match place {
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|part| self.assigned(part)),
            Expr::Array(array) => array.elems.iter().for_each(|part| self.assigned(part)),
            Expr::Paren(inner) => self.assigned(&inner.expr),
            Expr::Unary(inner) => self.assigned(&inner.expr),
            place => {
                if let Some(root) = crate::place::root(place) {
                    self.add(&root.to_string());
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Flow {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let Some(init) = &local.init {
            self.flows(&init.expr, &local.pat);
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_let(&mut self, found: &'ast syn::ExprLet) {
        self.flows(&found.expr, &found.pat);
        visit::visit_expr_let(self, found);
    }

    fn visit_expr_match(&mut self, found: &'ast syn::ExprMatch) {
        found.arms.iter().for_each(|arm| self.flows(&found.expr, &arm.pat));
        visit::visit_expr_match(self, found);
    }

    fn visit_expr_for_loop(&mut self, found: &'ast syn::ExprForLoop) {
        self.flows(&found.expr, &found.pat);
        visit::visit_expr_for_loop(self, found);
    }

    fn visit_expr_assign(&mut self, found: &'ast syn::ExprAssign) {
        if self.mentions(&found.right) {
            self.assigned(&found.left);
        }
        visit::visit_expr_assign(self, found);
    }

    fn visit_expr_binary(&mut self, found: &'ast syn::ExprBinary) {
        if crate::place::is_assignment(found.op) && self.mentions(&found.right) {
            self.assigned(&found.left);
        }
        visit::visit_expr_binary(self, found);
    }

    fn visit_expr_method_call(&mut self, found: &'ast syn::ExprMethodCall) {
        if self.mentions(found) {
            self.written(Some(&found.receiver), &found.args);
        }
        visit::visit_expr_method_call(self, found);
    }

    fn visit_expr_call(&mut self, found: &'ast syn::ExprCall) {
        if self.mentions(found) {
            self.written(None, &found.args);
        }
        visit::visit_expr_call(self, found);
    }

    fn visit_expr_return(&mut self, found: &'ast syn::ExprReturn) {
        self.returns |= found.expr.as_ref().is_some_and(|value| self.mentions(value));
        visit::visit_expr_return(self, found);
    }

    /// The arguments of most macros are expressions; those of the others are only mentioned.
    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        let is = |name: &str| found.path.segments.last().is_some_and(|last| last.ident == name);
        let mentions = self.mentions(&found.tokens);
        let Ok(arguments) = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(found.tokens.clone()) else {
            // As in the arms of a `select!`: what may be written to is.
            let named = crate::text::words(&crate::text::whole(&found.tokens)).into_iter();
            let written: Vec<String> = named.filter(|name| mentions && self.mutable.contains(name)).collect();
            return written.iter().for_each(|name| self.add(name));
        };
        if mentions && (is("write") || is("writeln")) {
            arguments.first().into_iter().for_each(|target| self.assigned(target));
        }
        for argument in &arguments {
            match argument {
                // `key = token`: an option of the macro, and no variable.
                Expr::Assign(option) => self.visit_expr(&option.right),
                argument => self.visit_expr(argument),
            }
        }
    }
}

fn plain(name: &str) -> String {
    name.trim_start_matches("r#").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries for the body of `async fn f(#[secret] token: String, mut list: Vec<String>)`.
    fn entries(body: &str) -> String {
        let function: syn::ItemFn = syn::parse_str(&format!(
            "async fn f(#[secret] token: String, mut list: Vec<String>, plain: u32) -> Result<u32, E> {{ {body} }}"
        ))
        .unwrap();
        let mut report = crate::report::Report::default();
        let signature = crate::signature::read(&function, &mut report);
        let lowered = crate::expand::lowered(&function, &signature, &syn::parse_quote!(p), &mut report);
        assert!(report.is_empty(), "{}", report.to_compile_errors());
        of(&signature, &function.block, Some((&lowered.body, &lowered.plan))).join(" ")
    }

    #[test]
    fn what_mentions_a_secret_is_one() {
        for (body, found) in [
            ("step!(plain); Ok(1)", "token"),
            ("let n = step!(token.len()); Ok(1)", "@n n token"),
            (r#"let n = step!("go", format!("Bearer {token}")); step!(n.len()); Ok(1)"#, "@go @len n token"),
            ("let a = token.clone(); let (b, c) = (a, 1); Ok(1)", "a b c token"),
            ("let b = a; let a = token; Ok(1)", "a b token"),
            ("let mut a = 0; a += token.len(); Ok(1)", "a token"),
            ("let mut a = 0; a = token.len(); Ok(1)", "a token"),
            ("let a; a = token; Ok(1)", "a token"),
            ("list.push(token.clone()); Ok(1)", "list token"),
            ("list[0] = token; Ok(1)", "list token"),
            ("if let Some(x) = token.get(1) { use_it(x); } Ok(1)", "token x"),
            ("match token.len() { 0 => {} n => use_it(n) } Ok(1)", "n token"),
            ("for c in token.chars() { step!(c); } Ok(1)", "@step c token"),
            ("token.chars().for_each(|c| list.push(c)); Ok(1)", "c list token"),
            ("fill(&mut list, &token); Ok(1)", "list token"),
            (r#"let n = step!("pay", effect, key = token.clone(), |op| pay(op.id())); Ok(1)"#, "@pay n token"),
            (r#"select! { x = recv!("a") => list.push(token.clone()), _ = sleep!(d) => {} } Ok(1)"#, "list token"),
            (r#"let mut text = String::new(); write!(text, "{token}")?; Ok(1)"#, "text token"),
            (r#"step!("a", { let inner = token.len(); inner }); Ok(1)"#, "@a inner token"),
            ("if plain > 1 { return Ok(token.len()); } Ok(1)", "return token"),
            ("Ok(step!(token.len()))", "@len return token"),
            // No variable of that name.
            ("let a = plain.token; let b = other::<u8>().token(); Ok(1)", "token"),
            ("#[public] let n = token.len(); let m = n; step!(m); Ok(n)", "token"),
            ("#[secret] let own = plain; let m = own; Ok(1)", "m own token"),
        ] {
            assert_eq!(entries(body), found, "{body}");
        }
    }
}
