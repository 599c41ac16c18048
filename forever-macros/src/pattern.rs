//! The variables that a pattern binds.
//!
//! A lone identifier may be a constant. Where a pattern cannot fail, it is a variable; elsewhere
//! only the compiler knows, and the case of its first letter decides. A mistake is a
//! compile error: a binding that is taken for a constant is not restored, and its use on a resume
//! does not compile.
use std::cell::RefCell;
use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::parse::Parser;
use syn::visit::{self, Visit};
use syn::{Ident, Pat, PatType};

thread_local! {
    /// The names of the variables of the function that is expanded.
    static VARIABLES: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Records the variables of a function, however they are spelled, for [`is_variable`].
pub(crate) fn note_variables(function: &syn::ItemFn) {
    VARIABLES.take();
    let mut variables = Variables(BTreeSet::new());
    for input in &function.sig.inputs {
        if let syn::FnArg::Typed(input) = input {
            variables.add(&input.pat);
        }
    }
    variables.visit_block(&function.block);
    VARIABLES.set(variables.0);
}

/// Whether the function has a variable of this name: then it is no constant.
pub(crate) fn is_variable(ident: &Ident) -> bool {
    VARIABLES.with_borrow(|names| names.contains(&ident.to_string()))
}

/// Whether tokens may name a variable of the function.
pub(crate) fn names_a_variable(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => is_variable(&ident),
        TokenTree::Group(group) => names_a_variable(&group.stream()),
        _ => false,
    })
}

struct Variables(BTreeSet<String>);

impl Variables {
    /// The names in a pattern that cannot fail.
    fn add(&mut self, pat: &Pat) {
        Irrefutable(self).visit_pat(pat);
    }

    /// The `let` and `for` of statements in the arguments of macros, as in arms of a `select!`.
    fn tokens(&mut self, tokens: &TokenStream) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let is = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident == word);
        for (place, token) in tokens.iter().enumerate() {
            let (before, after) = (&tokens[..place], &tokens[place + 1..]);
            let is_statement = match before.last() {
                Some(TokenTree::Punct(punct)) => matches!(punct.as_char(), ';' | '>' | ']' | '#'),
                Some(before) => !is(before, "if") && !is(before, "while"),
                None => true,
            };
            let mut rest = after.iter().take_while(|token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';'));
            match token {
                TokenTree::Group(group) => self.tokens(&group.stream()),
                token if is(token, "for") || is(token, "let") && is_statement && !rest.any(|token| is(token, "else")) => {
                    let pattern = |input: syn::parse::ParseStream<'_>| {
                        let pat = Pat::parse_multi(input)?;
                        // A `for` may also be that of an `impl` or of a bound.
                        let binds = is(token, "let") || input.peek(syn::Token![in]);
                        input.parse::<TokenStream>().map(|_| binds.then_some(pat))
                    };
                    if let Ok(Some(pat)) = pattern.parse2(after.iter().cloned().collect()) {
                        self.add(&pat);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Variables {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        if local.init.as_ref().is_none_or(|init| init.diverge.is_none()) {
            self.add(&local.pat);
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_for_loop(&mut self, e: &'ast syn::ExprForLoop) {
        self.add(&e.pat);
        visit::visit_expr_for_loop(self, e);
    }

    fn visit_expr_closure(&mut self, e: &'ast syn::ExprClosure) {
        e.inputs.iter().for_each(|pat| self.add(pat));
        visit::visit_expr_closure(self, e);
    }

    fn visit_pat_ident(&mut self, p: &'ast syn::PatIdent) {
        if is_binding(p) {
            self.0.insert(p.ident.to_string());
        }
        visit::visit_pat_ident(self, p);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(&mac.tokens);
        if mac.path.segments.last().is_some_and(|segment| segment.ident == "select") {
            let mut arms = Variables(BTreeSet::new());
            for (pat, body) in crate::cut::select::bodies(mac) {
                arms.add(&pat);
                arms.visit_expr(&body);
            }
            self.0.extend(arms.0);
        }
    }

    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

struct Irrefutable<'a>(&'a mut Variables);

impl<'ast> Visit<'ast> for Irrefutable<'_> {
    fn visit_pat_ident(&mut self, p: &'ast syn::PatIdent) {
        self.0.0.insert(p.ident.to_string());
        visit::visit_pat_ident(self, p);
    }
}

/// One variable bound by a pattern.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // each is a word of the pattern's, and they are independent
pub(crate) struct Binding {
    pub(crate) ident: Ident,
    pub(crate) by_ref: bool,
    pub(crate) by_ref_mut: bool,
    pub(crate) mutable: bool,
    /// It is under a `&`, and so a copy of whatever it came from.
    pub(crate) copied: bool,
}

/// `match value { pat => Some((a, b)), _ => None }`, and the pattern `Some((mut a, b))` of what it
/// gives: what a `let .. else` looks at, and its temporaries, end before its `else`.
pub(crate) fn matched(pat: &Pat, value: TokenStream) -> (TokenStream, TokenStream) {
    let span = Span::mixed_site();
    let bindings = bindings(pat);
    let values = bindings.iter().map(|bound| &bound.ident);
    let names = bindings.iter().map(|bound| {
        let (mutable, name) = (bound.mutable.then(|| quote_spanned!(span=> mut)), &bound.ident);
        quote_spanned!(span=> #mutable #name)
    });
    let found = quote_spanned!(span=> ::core::option::Option::Some((#(#names,)*)));
    // A `match` cannot have a type annotation.
    let (pat, value) = match pat {
        Pat::Type(PatType { pat, ty, .. }) => (&**pat, quote_spanned!(span=> { let init: #ty = #value; init })),
        pat => (pat, value),
    };
    let matched = quote_spanned! {span=>
        match (#value) {
            #pat => ::core::option::Option::Some((#(#values,)*)),
            #[allow(unreachable_patterns)]
            _ => ::core::option::Option::None,
        }
    };
    (matched, found)
}

/// Whether an attribute is `#[secret]`, before an argument or a `let`.
pub(crate) fn is_secret(attr: &syn::Attribute) -> bool {
    attr.path().is_ident("secret")
}

/// Whether an attribute is `#[public]`, before a `let` whose value mentions a secret and is none.
pub(crate) fn is_public(attr: &syn::Attribute) -> bool {
    attr.path().is_ident("public")
}

/// The variables of a pattern in source order. All alternatives of an or-pattern bind the same
/// ones, so the first is used.
pub(crate) fn bindings(pat: &Pat) -> Vec<Binding> {
    let mut found = Vec::new();
    collect(pat, false, &mut found);
    found
}

fn collect(pat: &Pat, copied: bool, found: &mut Vec<Binding>) {
    match pat {
        Pat::Ident(p) => {
            if is_binding(p) {
                found.push(Binding {
                    ident: p.ident.clone(),
                    by_ref: p.by_ref.is_some(),
                    by_ref_mut: p.by_ref.is_some() && p.mutability.is_some(),
                    mutable: p.by_ref.is_none() && p.mutability.is_some(),
                    copied: p.by_ref.is_none() && copied,
                });
            }
            if let Some((_, sub)) = &p.subpat {
                collect(sub, copied, found);
            }
        }
        Pat::Guard(p) => collect(&p.pat, copied, found),
        Pat::Or(p) => {
            if let Some(first) = p.cases.first() {
                collect(first, copied, found);
            }
        }
        Pat::Paren(p) => collect(&p.pat, copied, found),
        Pat::Reference(p) => collect(&p.pat, true, found),
        Pat::Slice(p) => p.elems.iter().for_each(|e| collect(e, copied, found)),
        Pat::Struct(p) => p.fields.iter().for_each(|f| collect(&f.pat, copied, found)),
        Pat::Tuple(p) => p.elems.iter().for_each(|e| collect(e, copied, found)),
        Pat::TupleStruct(p) => p.elems.iter().for_each(|e| collect(e, copied, found)),
        Pat::Type(p) => collect(&p.pat, copied, found),
        _ => {}
    }
}

/// Whether a value that matches may keep a part: none of the pattern's variables takes it.
pub(crate) fn leaves_a_part(pat: &Pat) -> bool {
    match pat {
        Pat::Wild(_) | Pat::Rest(_) => true,
        Pat::Ident(p) => p.by_ref.is_some(),
        Pat::Guard(p) => leaves_a_part(&p.pat),
        Pat::Or(p) => p.cases.iter().any(leaves_a_part),
        Pat::Paren(p) => leaves_a_part(&p.pat),
        Pat::Slice(p) => p.elems.iter().any(leaves_a_part),
        Pat::Struct(p) => p.rest.is_some() || p.fields.iter().any(|f| leaves_a_part(&f.pat)),
        Pat::Tuple(p) => p.elems.iter().any(leaves_a_part),
        Pat::TupleStruct(p) => p.elems.iter().any(leaves_a_part),
        Pat::Type(p) => leaves_a_part(&p.pat),
        // What is behind a reference stays there in any case.
        _ => false,
    }
}

/// Whether an identifier in a pattern is a variable: one of the function's, or by the case of its
/// first letter.
pub(crate) fn is_binding(p: &syn::PatIdent) -> bool {
    let explicit = p.by_ref.is_some() || p.mutability.is_some() || p.subpat.is_some();
    let text = p.ident.to_string();
    let first = text.trim_start_matches("r#").trim_start_matches('_').chars().next();
    explicit || first.is_none_or(|c| !c.is_uppercase()) || is_variable(&p.ident)
}
