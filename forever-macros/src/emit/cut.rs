//! Steps and calls: the body, the checkpoint after it, and the value out of the snapshot instead.
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Expr;

use super::sealed::Seal;
use super::step::{On, is_repeated};
use super::{Emit, Start, number};
use crate::cut::{CutBody, Pending, Step};
use crate::hir::{Bind, Stmt};
use crate::ids::{CutId, VarId};
use crate::names::{VarOrigin, is_ours};
use crate::plan::Storage;

impl Emit<'_> {
    /// Emits plain statements, a cut point's body, and the checkpoint after it.
    pub(super) fn start_cut(&mut self, plain: &[Stmt], stmt: &Stmt, bind: &Bind, cut: CutId, body: &CutBody) -> Start {
        let exports = self.exports(plain, Some(stmt));
        let live = self.cx.plan.needed.at_cut.get(&cut).cloned().unwrap_or_default();
        let witnessed = self.witness(&exports, &live);
        let code = self.plain(plain);
        let (fiber, place) = (&self.fiber, number(cut));
        let begin = match body {
            CutBody::Step(step) if step.effect.is_some() => Some(emit!(#fiber.reach(#place);)),
            CutBody::Step(_) | CutBody::Steps(_) => Some(emit!(#fiber.begin(#place).await;)),
            _ => None,
        };
        let is_made_later = matches!(body, CutBody::Pending(Pending::Attempts));
        let body = match body {
            CutBody::Step(step) => self.step_body(plain, stmt, cut, step),
            other => self.body(plain, stmt, cut, other),
        };
        self.open.extend(plain.iter().chain([stmt]).flat_map(|s| &s.declares));
        let once_set = self.may_be_dropped_once_set(stmt);
        let bound = match bind {
            Bind::Let { attrs, pat } => {
                let attrs = attrs.iter().filter(|a| !is_ours(a));
                let (own, _) = self.own_and_remainders(stmt);
                let aliases = self.alias_declared(&own);
                let witness = self.witness_of(&own);
                let held = self.may_be_dropped(&own);
                emit!(#(#attrs)* let #pat = #body; #aliases #witness #held)
            }
            Bind::Discard | Bind::Tail if body.is_empty() => TokenStream::new(),
            Bind::Discard | Bind::Tail => emit!(#body;),
        };
        let (_, remainders) = self.own_and_remainders(stmt);
        let left = stmt.remainders.iter().map(|r| &r.code);
        let (left_aliases, left_witness) = (self.alias_declared(&remainders), self.witness_of(&remainders));
        let left = emit!(#(#left)* #left_aliases #left_witness);
        let checkpoint = if is_made_later { TokenStream::new() } else { self.checkpoint(cut) };
        let put_back = self.put_back_stretch(&live);
        let run = emit!(#code #begin #bound #once_set #left #checkpoint #put_back);
        if exports.is_empty() {
            let (fiber, cut) = (&self.fiber, number(cut));
            return Start { run, resume: emit!(#fiber.arrive(#cut).await;), pat: TokenStream::new() };
        }
        let values: Vec<_> = exports.iter().map(|v| self.export_value(*v, &live)).collect();
        let resume = self.restore(&exports, Some(cut));
        self.witnessed = witnessed;
        Start { run: emit!(#run (#(#values,)*)), resume, pat: self.export_pattern(&exports, stmt.after) }
    }

    /// The variables that a cut point's value is bound to, and the remainders of variables that its
    /// operands moved out of.
    fn own_and_remainders(&self, stmt: &Stmt) -> (Vec<VarId>, Vec<VarId>) {
        stmt.declares.iter().partition(|var| self.cx.table.var(**var).remainder_of.is_none())
    }

    fn step_body(&mut self, plain: &[Stmt], stmt: &Stmt, cut: CutId, step: &Step) -> TokenStream {
        let number = number(cut);
        let seal = step.sealed().map(|_| self.seal(plain, stmt, cut, &[(&step.body, is_repeated(step))], &[]));
        let Seal { before, after } = seal.unwrap_or_default();
        let pause = self.pause(cut, step);
        let value = self.step_of(cut, step, On::Frame { fiber: &self.fiber, cut: &number, pause: &pause });
        match (before.is_empty(), after.is_empty()) {
            (true, _) => value,
            (false, true) => emit!({ #before #value }),
            (false, false) => emit!({ #before let value = #value; #after value }),
        }
    }

    /// Call that leaves memory before an attempt that is due later. What the step needs is stored
    /// then, at the cut point before it.
    fn pause(&mut self, cut: CutId, step: &Step) -> TokenStream {
        if step.retry.is_none() {
            return TokenStream::new();
        }
        let before = cut - 1;
        let (save, span) = (self.save(before, false), self.cut_span(cut));
        let (fiber, before) = (&self.fiber, number(before));
        quote_spanned!(span=> #fiber.pause(#before, it, #save).await)
    }

    /// The checkpoint at a cut point.
    fn checkpoint(&mut self, cut: CutId) -> TokenStream {
        let save = self.save(cut, false);
        let (fiber, number) = (&self.fiber, number(cut));
        let span = self.cut_span(cut);
        quote_spanned!(span=> #fiber.checkpoint(#number, #save).await;)
    }

    /// The closure that saves what a cut point keeps, with or without its own value.
    fn save(&mut self, cut: CutId, without_result: bool) -> TokenStream {
        let kept: Vec<_> = self.cx.plan.kept[cut].iter().filter(|k| !(without_result && k.result)).collect();
        if kept.is_empty() {
            return emit!(|_| {});
        }
        let puts = kept.iter().map(|kept| {
            let key = &kept.key;
            let named = self.named(kept.var);
            let value = if self.open.contains(&kept.var) {
                quote_spanned!(self.place_of(kept.var)=> &#named)
            } else {
                let place = self.place(kept.var);
                let private = self.cx.private;
                quote_spanned!(self.place_of(kept.var)=> #private::carried(&#place))
            };
            let value = self.checked(kept.var, &value);
            let span = self.cut_span(cut);
            let info = self.cx.table.var(kept.var);
            if info.mutable && info.origin() == VarOrigin::User {
                return quote_spanned!(span=> save.put_mut(#key, #value););
            }
            quote_spanned!(span=> save.put(#key, #value);)
        });
        let puts: Vec<_> = puts.collect();
        let span = self.cut_span(cut);
        quote_spanned!(span=> |save| { #(#puts)* })
    }

    /// Span of errors about a cut point as a whole.
    pub(super) fn cut_span(&self, cut: CutId) -> Span {
        Span::mixed_site().located_at(self.cx.body.cuts[cut].span)
    }

    pub(super) fn start_call(&mut self, plain: &[Stmt], stmt: &Stmt, _cut: CutId, invocation: &Expr) -> Start {
        let exports = self.exports(plain, None);
        let live = self.live(stmt.before);
        let witnessed = self.witness(&exports, &live);
        let code = self.plain(plain);
        let invocation = self.rewrite_expr(invocation);
        let put_back = self.put_back_stretch(&live);
        let values: Vec<_> = exports.iter().map(|v| self.export_value(*v, &live)).collect();
        let names: Vec<_> = exports.iter().map(|v| self.export_name(*v, stmt.start)).collect();
        self.witnessed = witnessed;
        let run = emit!(#code let invocation = ::core::option::Option::Some(#invocation); #put_back);
        if exports.is_empty() {
            return Start { run: emit!(#run invocation), resume: emit!(::core::option::Option::None), pat: emit!(invocation) };
        }
        let restored = self.restore(&exports, None);
        let pat = self.export_pattern(&exports, stmt.start);
        let resumed: Vec<_> = exports.iter().map(|v| self.bound_name(*v, stmt.start)).collect();
        Start {
            run: emit!(#run (#(#values,)* invocation)),
            resume: emit!(let #pat = { #restored }; (#(#resumed,)* ::core::option::Option::None)),
            pat: emit!((#(#names,)* invocation)),
        }
    }

    /// Emits the call: entered from the start or from the callee's snapshot, or its value read from
    /// the caller's snapshot.
    pub(super) fn rest_call(&mut self, stmt: &Stmt, bind: &Bind, cut: CutId, question: Option<Span>) -> TokenStream {
        let (fiber, ctx, number) = (self.fiber.clone(), self.cx.ctx, number(cut));
        let exports = self.exported(&stmt.declares);
        let live = self.cx.plan.needed.at_cut.get(&cut).cloned().unwrap_or_default();
        let result = self.cx.plan.kept[cut].iter().find(|k| k.result).map(|k| (k.var, k.key.clone()));
        let save = self.save(cut, true);
        let key = match &result {
            Some((_, key)) => emit!(::core::option::Option::Some(#key)),
            None => emit!(::core::option::Option::None),
        };
        let question = question.map(|span| syn::Token![?](span));
        let span = self.cut_span(cut);
        let call = quote_spanned!(span=> #fiber.call(#number, invocation, #ctx, #key, #save).await #question);
        let Bind::Let { attrs, pat } = bind else {
            return emit!(if #fiber.calls(#number) { #call; } else { #fiber.arrive(#number).await; });
        };
        if exports.is_empty() {
            // Nothing later needs the value, so the resumed fiber continues without it.
            return emit!(if #fiber.calls(#number) { let _ = #call; } else { #fiber.arrive(#number).await; });
        }
        let attrs = attrs.iter().filter(|a| !is_ours(a));
        let values: Vec<_> = exports.iter().map(|v| self.export_value(*v, &live)).collect();
        let kept = self.export_pattern(&exports, stmt.after);
        let restored = match (&result, question) {
            (Some((var, key)), None) => self.restore_called(*var, key, cut),
            _ => self.restore(&exports, Some(cut)),
        };
        self.open_values(&stmt.declares);
        let (declared, aliases) = (self.alias_declared(&stmt.declares), self.alias_exports(&exports, stmt.after));
        let holdings = self.holdings(&self.carried(&exports));
        emit! {
            #holdings
            let #kept = if #fiber.calls(#number) { #(#attrs)* let #pat = #call; #declared (#(#values,)*) } else { #restored };
            #aliases
        }
    }

    /// Restores a call's whole `Result`: at its own cut point only an `Ok` is ever kept.
    fn restore_called(&mut self, var: VarId, key: &str, cut: CutId) -> TokenStream {
        let (fiber, own) = (self.fiber.clone(), number(cut));
        let carried = self.storage(var) == Storage::Carried;
        let wrap = |value: TokenStream| if carried { emit!(::core::option::Option::Some(#value)) } else { value };
        let at_own = wrap(emit!(::core::result::Result::Ok(saved.get(#key)?)));
        let read = self.checked_read(var, key, carried);
        let elsewhere = self.cx.plan.kept_at(var).iter().any(|other| *other != cut);
        let otherwise = match (elsewhere, carried) {
            (true, true) if !self.kept_here(var).is_empty() => self.read_where_kept(var, &read),
            (true, _) => read,
            (false, true) => emit!(::core::option::Option::None),
            (false, false) => emit!(::core::unreachable!()),
        };
        let kept_here = self.kept_here(var);
        let value = self.of_its_type(var, emit!(if own { #at_own } else { #otherwise }));
        emit! {
            #kept_here
            let own = #fiber.inside(#own..=#own);
            let restored = #fiber.restore(|saved| ::core::result::Result::Ok((#value,))).await;
            #fiber.arrive(#own).await;
            restored
        }
    }

    /// Variables that leave the stretch without a value although they had one in it.
    pub(super) fn witness(&mut self, exports: &[VarId], live: &crate::flow::Live) -> std::collections::BTreeSet<VarId> {
        let without = exports.iter().copied().filter(|v| self.storage(*v) == Storage::Carried && !live.contains(v)).collect();
        std::mem::replace(&mut self.witnessed, without)
    }
}
