//! `if`, `match` and `let .. else` with cut points in their arms.
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::{Expr, Pat};

use super::{Emit, Start, number};
use crate::hir::{Arm, Bind, Block, Branch, Control, Head, Stmt, StmtKind};
use crate::ids::VarId;
use crate::lower::ends::breaks_in;
use crate::pattern;
use crate::place;
use crate::plan::{Storage, diverges, flow_of};

impl Emit<'_> {
    pub(super) fn start_branch(&mut self, plain: &[Stmt], stmt: &Stmt, bind: &Bind, branch: &Branch, later_cuts: bool) -> Start {
        let exports = self.exports(plain, None);
        let carried: Vec<VarId> = exports.iter().copied().filter(|v| self.storage(*v) == Storage::Carried).collect();
        // Each arm ends separately, and puts variables away into places that are outside of it.
        let places: Vec<_> = carried.iter().map(|v| self.place(*v)).collect();
        let witnessed = std::mem::replace(&mut self.witnessed, carried.iter().copied().collect());
        let assigned = std::mem::replace(&mut self.witness_assigns, true);
        let mut code = self.plain(plain);
        let bound: Vec<VarId> = stmt.declares.iter().chain(branch.arms.iter().flat_map(|arm| &arm.declares)).copied().collect();
        code.extend(self.text_is_owned(&bound));
        (self.witnessed, self.witness_assigns) = (witnessed, assigned);
        let (taken, open) = (self.taken.len(), self.open.clone());
        self.taken.extend(&carried);
        self.open.extend(plain.iter().flat_map(|s| &s.declares));
        let entry = self.enum_of(stmt);
        let outside = self.restored_outside(&exports);
        let (decide, resume, variants) = self.decision(&entry, stmt, bind, branch, later_cuts);
        self.outside = outside;
        self.declare_enum(&entry, &variants);
        self.taken.truncate(taken);
        self.open = open;
        let entered = entry_var(stmt);
        let values: Vec<_> = exports
            .iter()
            .map(|v| self.of_its_type(*v, if carried.contains(v) { self.place(*v).to_token_stream() } else { self.named(*v) }))
            .collect();
        if exports.is_empty() {
            return Start { run: emit!(#code #decide), resume, pat: entered.to_token_stream() };
        }
        let names: Vec<_> = exports.iter().map(|v| self.export_name(*v, stmt.start)).collect();
        let restored = self.restore(&exports, None);
        let pat = self.export_pattern(&exports, stmt.start);
        let aliases = self.alias_exports(&exports, stmt.start);
        Start {
            run: emit! {
                #(#[allow(unused_assignments)] let mut #places = ::core::option::Option::None;)*
                #code
                let #entered = #decide;
                (#(#values,)* #entered)
            },
            // First, since what it makes anew may come from what is exported.
            resume: emit!(let #pat = { #restored }; #aliases let #entered = { #resume }; (#(#values,)* #entered)),
            pat: emit!((#(#names,)* #entered)),
        }
    }

    /// Marks variables as in scope for the resumes of the arms, which stand behind where these are
    /// restored. Gives what was in scope before.
    fn restored_outside(&mut self, restored: &[VarId]) -> Option<std::collections::BTreeSet<VarId>> {
        let before = self.outside.clone();
        let plain: Vec<VarId> = restored.iter().copied().filter(|v| self.storage(*v) == Storage::Plain).collect();
        self.outside.get_or_insert_with(|| self.open.clone()).extend(plain);
        before
    }

    /// Emits the decision for a running fiber, its counterpart for a resuming one, and the variants
    /// of the enum.
    fn decision(
        &mut self,
        entry: &Ident,
        stmt: &Stmt,
        bind: &Bind,
        branch: &Branch,
        later_cuts: bool,
    ) -> (TokenStream, TokenStream, Vec<(Ident, bool)>) {
        let fiber = self.fiber.clone();
        let mut variants: Vec<(Ident, bool)> = Vec::new();
        let mut arms = Vec::new();
        let mut resumes: Vec<(TokenStream, TokenStream)> = Vec::new();
        for (place, arm) in branch.arms.iter().enumerate() {
            let (open, begun, given) = (self.open.clone(), self.begun.clone(), self.given.clone());
            self.open.extend(&arm.declares);
            self.begin(&arm.declares);
            let code = match &arm.cuts {
                None => self.done_arm(entry, stmt, bind, branch, arm, &mut variants),
                Some(cuts) => {
                    let variant = variant_name(branch, place);
                    let (first, later) = split(&arm.block.stmts);
                    let entering = self.exported(&arm.declares);
                    let start = self.arm_start(&entering, first, later);
                    let (run, resume) = (start.run, start.resume);
                    let payload = !start.pat.is_empty();
                    variants.push((variant.clone(), payload));
                    let range = (number(*cuts.start()), number(*cuts.end()));
                    let (from, to) = range;
                    resumes.push((
                        emit!(#fiber.inside(#from..=#to)),
                        if payload { emit!(#entry::#variant({ #resume })) } else { emit!({ #resume #entry::#variant }) },
                    ));
                    if payload { emit!({ #entry::#variant({ #run }) }) } else { emit!({ #run #entry::#variant }) }
                }
            };
            (self.open, self.begun, self.given) = (open, begun, given);
            // The types of variables that are declared before are known once they are set.
            let mut touch = self.outliving_bound(&arm.declares);
            touch.extend(self.touch(&arm.declares));
            touch.extend(self.alias_declared(&arm.declares));
            touch.extend(self.may_be_dropped(&arm.declares));
            arms.push(if touch.is_empty() { code } else { emit!({ #touch #code }) });
        }
        let past = later_cuts;
        if past {
            variants.push((Ident::new("Past", Span::mixed_site()), false));
        }
        let resume = resume_chain(entry, resumes, past);
        (self.head(branch, &arms), resume, variants)
    }

    /// Emits the start of an arm with a stretch of its own. The variables of its pattern are
    /// exported like declared ones.
    fn arm_start(&mut self, entering: &[VarId], plain: &[Stmt], rest: &[Stmt]) -> Start {
        let (stmt, later) = rest.split_first().expect("an arm with cut points has a statement with one");
        let carried: Vec<VarId> = entering.iter().copied().filter(|v| self.storage(*v) == Storage::Carried).collect();
        let taken = self.taken.len();
        self.taken.extend(&carried);
        let outside = self.restored_outside(entering);
        let start = self.start(plain, stmt, later.iter().any(|s| s.cuts.is_some()));
        self.outside = outside;
        self.taken.truncate(taken);
        if entering.is_empty() {
            return start;
        }
        let places: Vec<_> = carried.iter().map(|v| self.place(*v)).collect();
        let values: Vec<_> = entering
            .iter()
            .map(|v| self.of_its_type(*v, if carried.contains(v) { self.place(*v).to_token_stream() } else { self.named(*v) }))
            .collect();
        let point = self.binding_point(stmt);
        let names: Vec<_> = entering.iter().map(|v| self.export_name(*v, point)).collect();
        let restored = self.restore(entering, None);
        let pat = self.export_pattern(entering, point);
        let aliases = self.alias_exports(entering, point);
        let (run, resume) = (start.run, start.resume);
        let places = emit!(#(#[allow(unused_assignments)] let mut #places = ::core::option::Option::None;)*);
        if start.pat.is_empty() {
            return Start {
                run: emit!(#places #run (#(#values,)*)),
                resume: emit!(let entered = { #restored }; #resume entered),
                pat: emit!((#(#names,)*)),
            };
        }
        let inner = start.pat;
        Start {
            run: emit!(#places let inner = { #run }; (#(#values,)* inner)),
            resume: emit!(let #pat = { #restored }; #aliases let inner = { #resume }; (#(#values,)* inner)),
            pat: emit!((#(#names,)* #inner)),
        }
    }

    /// Emits an arm without cut points. It runs where it is decided, and its value is exported.
    fn done_arm(
        &mut self,
        entry: &Ident,
        stmt: &Stmt,
        bind: &Bind,
        branch: &Branch,
        arm: &Arm,
        variants: &mut Vec<(Ident, bool)>,
    ) -> TokenStream {
        let done = Ident::new("Done", Span::mixed_site());
        let is_let_else = matches!(branch.head, Head::LetElse { .. });
        let has_value = is_let_else && arm.id.is_none() || wants_value(branch, bind);
        let block_end = self.live(arm.block.end);
        let put_back = self.put_back_stretch(&block_end);
        let items = super::items(&arm.block.stmts);
        if diverges(arm) {
            let code = self.plain(&arm.block.stmts);
            return emit!({ #items #code });
        }
        if !variants.iter().any(|(name, _)| *name == done) {
            variants.push((done.clone(), has_value));
        }
        if is_let_else && arm.id.is_none() {
            let vars = stmt.declares.iter().filter(|v| !self.made_again(**v)).map(|v| self.ident(*v));
            let touch = self.touch(&stmt.declares);
            return emit!({ #touch #put_back #entry::#done((#(#vars,)*)) });
        }
        if !has_value {
            let code = self.plain(&arm.block.stmts);
            return emit!({ #items #code #put_back #entry::#done });
        }
        let code = self.plain_with_end(&arm.block.stmts, &put_back);
        emit!({ #entry::#done({ #items #code }) })
    }

    fn head(&mut self, branch: &Branch, arms: &[TokenStream]) -> TokenStream {
        match &branch.head {
            Head::If { cond, attrs } => {
                let (then, otherwise) = (&arms[0], &arms[1]);
                let mut cond = cond.clone();
                if let Expr::Let(binding) = &mut cond {
                    *binding.pat = self.with_outliving_parts(&binding.pat, &branch.arms[0].declares);
                }
                let cond = self.rewrite_expr(&cond);
                let attrs = outer(attrs);
                emit!(#attrs if #cond #then else #otherwise)
            }
            Head::Match { scrutinee, attrs } => {
                let scrutinee = self.rewrite_expr(scrutinee);
                let arms = branch.arms.iter().zip(arms).map(|(arm, code)| {
                    let attrs = &arm.attrs;
                    let pat = arm.pat.as_ref().map(|pat| self.with_outliving_parts(pat, &arm.declares));
                    emit!(#(#attrs)* #pat => #code)
                });
                let arms: Vec<_> = arms.collect();
                let attrs = outer(attrs);
                emit!(#attrs match #scrutinee { #(#arms)* })
            }
            Head::LetElse { pat, init, .. } => {
                let (bound, otherwise) = (&arms[0], &arms[1]);
                // A place of the user's has a type, and must not be moved as a whole.
                let is_ours = place::root(init).is_some_and(|root| root.to_string().starts_with("__value_"));
                let stays = place::is_place(init) && !is_ours || pattern::bindings(pat).iter().any(|b| b.by_ref);
                let init = self.rewrite_expr(init);
                if stays {
                    let pat = if let Pat::Type(typed) = pat { &*typed.pat } else { pat };
                    return emit!(match (#init) { #pat => #bound #[allow(unreachable_patterns)] _ => #otherwise });
                }
                let (matched, found) = pattern::matched(pat, init);
                emit! {{
                    let matched = #matched;
                    match matched {
                        #found => #bound
                        ::core::option::Option::None => #otherwise
                    }
                }}
            }
        }
    }

    /// Emits the rest of each arm, in a `match` on the decision.
    pub(super) fn rest_branch(&mut self, branch: &Branch, stmt: &Stmt, bind: &Bind, later_cuts: bool) -> TokenStream {
        let entry = self.enum_of(stmt);
        let entered = entry_var(stmt);
        let done = Ident::new("Done", Span::mixed_site());
        let is_let_else = matches!(branch.head, Head::LetElse { .. });
        let mut arms = Vec::new();
        if branch.arms.iter().any(|a| a.cuts.is_none() && !diverges(a)) {
            let has_value = is_let_else || wants_value(branch, bind);
            arms.push(if has_value { emit!(#entry::#done(value) => value,) } else { emit!(#entry::#done => {}) });
        }
        for (place, arm) in branch.arms.iter().enumerate().filter(|(_, a)| a.cuts.is_some()) {
            let variant = variant_name(branch, place);
            let open = self.open.clone();
            let pat = self.arm_pattern(arm);
            let mut code = self.arm_rest(arm);
            if let Head::LetElse { otherwise, .. } = &branch.head
                && flow_of(&arm.block, self.cx.table).completes()
            {
                // Only the compiler knows whether control reaches the end of the block, and reports
                // it at the block.
                let (private, span) = (self.cx.private, Span::mixed_site().located_at(*otherwise));
                let value = quote_spanned!(span=> { #code });
                code = emit!(let _: #private::Never = #value; ::core::unreachable!());
            }
            self.open = open;
            let pat = if pat.is_empty() { TokenStream::new() } else { emit!((#pat)) };
            arms.push(emit!(#entry::#variant #pat => { #code }));
        }
        if later_cuts {
            let has_value = is_let_else || wants_value(branch, bind);
            arms.push(if has_value { emit!(#entry::Past => ::core::unreachable!(),) } else { emit!(#entry::Past => {}) });
        }
        emit!(match #entered { #(#arms)* })
    }

    /// Pattern of the value of an arm's start: its own variables, then the value of its first
    /// statement.
    fn arm_pattern(&mut self, arm: &Arm) -> TokenStream {
        let (plain, rest) = split(&arm.block.stmts);
        let entering = self.exported(&arm.declares);
        let point = self.binding_point(&rest[0]);
        let names: Vec<_> = entering.iter().map(|v| self.export_name(*v, point)).collect();
        let inner = self.start_pattern(plain, &rest[0]);
        match (names.is_empty(), inner.is_empty()) {
            (true, _) => inner,
            (false, true) => emit!((#(#names,)*)),
            (false, false) => emit!((#(#names,)* #inner)),
        }
    }

    /// Pattern that `start` has for a statement, without emitting it again.
    fn start_pattern(&mut self, plain: &[Stmt], stmt: &Stmt) -> TokenStream {
        let (exports, point) = (self.start_exports(plain, stmt), self.binding_point(stmt));
        let names: Vec<_> = exports.iter().map(|v| self.export_name(*v, point)).collect();
        match (names.is_empty(), self.start_value(stmt)) {
            (true, None) => TokenStream::new(),
            (true, Some(last)) => last,
            (false, last) => emit!((#(#names,)* #last)),
        }
    }

    /// What a start gives besides exported variables.
    pub(super) fn start_value(&self, stmt: &Stmt) -> Option<TokenStream> {
        match &stmt.kind {
            StmtKind::Cut { cut, .. } if self.is_call(*cut) => Some(emit!(invocation)),
            StmtKind::Control { control: Control::Branch(_), .. } => Some(entry_var(stmt).to_token_stream()),
            _ => None,
        }
    }

    /// Emits an arm after its start: the rest of its first statement and what follows.
    fn arm_rest(&mut self, arm: &Arm) -> TokenStream {
        let (plain, rest) = split(&arm.block.stmts);
        for &var in &arm.declares {
            if self.storage(var) == Storage::Plain {
                self.open.insert(var);
            }
        }
        self.open_declared(plain, &rest[0]);
        let outer = std::mem::replace(&mut self.declared, super::declared(&arm.block, &arm.declares));
        let mut bound = self.exported(&arm.declares);
        bound.extend(self.start_exports(plain, &rest[0]));
        let mut tokens = self.alias_exports(&bound, self.binding_point(&rest[0]));
        tokens.extend(self.rest(&rest[0], &rest[1..], &TokenStream::new()));
        tokens.extend(self.stmts(&rest[1..], arm.block.end));
        self.declared = outer;
        tokens
    }

    fn enum_of(&self, stmt: &Stmt) -> Ident {
        let first = stmt.cuts.as_ref().map_or(0, |c| *c.start());
        let last = stmt.cuts.as_ref().map_or(0, |c| *c.end());
        // The points before statements make the name unique; the cut points make it readable.
        format_ident!("Entered{}To{}At{}", first, last, stmt.before.0, span = Span::mixed_site())
    }

    fn declare_enum(&mut self, entry: &Ident, variants: &[(Ident, bool)]) {
        let generics: Vec<Ident> = variants.iter().filter(|(_, payload)| *payload).map(|(name, _)| format_ident!("{}_", name)).collect();
        let mut generic = generics.iter();
        let variants = variants.iter().map(|(name, payload)| match generic.next_if_payload(*payload) {
            Some(ty) => emit!(#name(#ty)),
            None => emit!(#name),
        });
        let variants: Vec<_> = variants.collect();
        self.items.extend(emit! {
            #[allow(dead_code, non_camel_case_types, clippy::large_enum_variant, clippy::enum_variant_names)]
            enum #entry<#(#generics),*> { #(#variants),* }
        });
    }
}

trait NextIf<'a> {
    fn next_if_payload(&mut self, payload: bool) -> Option<&'a Ident>;
}

impl<'a> NextIf<'a> for std::slice::Iter<'a, Ident> {
    fn next_if_payload(&mut self, payload: bool) -> Option<&'a Ident> {
        if payload { self.next() } else { None }
    }
}

fn entry_var(stmt: &Stmt) -> Ident {
    format_ident!("entered_{}", stmt.before.0, span = Span::mixed_site())
}

fn variant_name(branch: &Branch, place: usize) -> Ident {
    let span = Span::mixed_site();
    match (&branch.head, place) {
        (Head::If { .. }, 0) => Ident::new("Then", span),
        (Head::If { .. }, _) => Ident::new("Else", span),
        (Head::LetElse { .. }, _) => Ident::new("Otherwise", span),
        (Head::Match { .. }, n) => format_ident!("Arm{}", n + 1, span = span),
    }
}

/// Splits statements into the plain ones at the beginning, and the rest.
pub(super) fn split(stmts: &[Stmt]) -> (&[Stmt], &[Stmt]) {
    let first = stmts.iter().position(|s| !matches!(s.kind, StmtKind::Plain(_))).unwrap_or(stmts.len());
    stmts.split_at(first)
}

/// Whether the arms have a value: one that is bound, or one of which only the type matters.
pub(super) fn wants_value(branch: &Branch, bind: &Bind) -> bool {
    !matches!(bind, Bind::Discard) || branch.arms.iter().any(ends_in_value)
}

/// Whether a loop or block has a value other than `()`.
pub(super) fn has_value(control: &Control) -> bool {
    match control {
        Control::Loop { body, .. } => breaks_with_value(body),
        Control::Scope { label, body, .. } => block_has_value(body) || label.is_some() && breaks_with_value(body),
        Control::Branch(_) | Control::For(_) => false,
    }
}

fn breaks_with_value(block: &Block) -> bool {
    block.stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Plain(syntax) => breaks_in(syntax),
        StmtKind::Cut { .. } => false,
        StmtKind::Control { control, .. } => match control {
            Control::Branch(branch) => branch.arms.iter().any(|arm| breaks_with_value(&arm.block)),
            Control::Loop { body, .. } | Control::Scope { body, .. } => breaks_with_value(body),
            Control::For(for_loop) => breaks_with_value(&for_loop.body),
        },
    })
}

fn ends_in_value(arm: &Arm) -> bool {
    block_has_value(&arm.block)
}

fn block_has_value(block: &Block) -> bool {
    match block.stmts.last().map(|s| &s.kind) {
        Some(StmtKind::Plain(syn::Stmt::Expr(_, None))) => true,
        Some(StmtKind::Control { bind: Bind::Tail, .. }) => true,
        _ => false,
    }
}

/// `if inside(first) { .. } else if inside(second) { .. } else { last, or past all of them }`.
fn resume_chain(entry: &Ident, mut resumes: Vec<(TokenStream, TokenStream)>, past: bool) -> TokenStream {
    let last = if past { emit!(#entry::Past) } else { resumes.pop().map_or_else(TokenStream::new, |(_, value)| value) };
    resumes.into_iter().rev().fold(last, |otherwise, (test, value)| emit!(if #test { #value } else { #otherwise }))
}

fn outer(attrs: &[syn::Attribute]) -> TokenStream {
    let attrs = attrs.iter().filter(|a| matches!(a.style, syn::AttrStyle::Outer));
    emit!(#(#attrs)*)
}
