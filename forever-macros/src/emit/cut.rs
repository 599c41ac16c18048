//! Steps and calls: the body, the checkpoint after it, and what comes out of the snapshot instead.
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned;

use super::{Emit, Start, number};
use crate::cut::{CutBody, Effect, Step};
use crate::names::{VarId, is_ours};
use crate::plan::Storage;
use crate::tree::{Bind, CutId, Stmt};

/// An `Option` of a value of the user's.
fn optional(value: Option<&Expr>) -> TokenStream {
    match value {
        Some(value) => emit!(::core::option::Option::Some(#value)),
        None => emit!(::core::option::Option::None),
    }
}

/// Where errors about an option's value point.
fn at(value: &Expr) -> Span {
    Span::mixed_site().located_at(value.span())
}

impl Emit<'_> {
    /// Plain statements, a cut point's body, and the checkpoint behind it.
    pub(super) fn start_cut(&mut self, plain: &[Stmt], stmt: &Stmt, bind: &Bind, cut: CutId, body: &CutBody) -> Start {
        let exports = self.exports(plain, Some(stmt));
        let live = self.cx.plan.needed.at_cut.get(&cut).cloned().unwrap_or_default();
        let witnessed = self.witness(&exports, &live);
        let code = self.plain(plain);
        let (fiber, place) = (&self.fiber, number(cut));
        let begin = match body {
            CutBody::Step(step) if step.effect.is_some() => Some(emit!(#fiber.reach(#place);)),
            CutBody::Step(_) | CutBody::Steps(_) => Some(emit!(#fiber.begin(#place);)),
            _ => None,
        };
        let body = match body {
            CutBody::Step(step) => self.step_body(cut, step),
            other => self.body(stmt, cut, other),
        };
        self.open.extend(plain.iter().chain([stmt]).flat_map(|s| &s.declares));
        let once_set = self.may_be_dropped_once_set(stmt);
        let bound = match bind {
            Bind::Let { attrs, pat } => {
                let attrs = attrs.iter().filter(|a| !is_ours(a));
                let witness = self.witness_of(&stmt.declares);
                let held = self.may_be_dropped(&stmt.declares);
                emit!(#(#attrs)* let #pat = #body; #witness #held)
            }
            Bind::Discard | Bind::Tail if body.is_empty() => TokenStream::new(),
            Bind::Discard | Bind::Tail => emit!(#body;),
        };
        let checkpoint = self.checkpoint(cut);
        let put_back = self.put_back_stretch(&live);
        let run = emit!(#code #begin #bound #once_set #checkpoint #put_back);
        if exports.is_empty() {
            let (fiber, cut) = (&self.fiber, number(cut));
            return Start { run, resume: emit!(#fiber.arrive(#cut);), pat: TokenStream::new() };
        }
        let values: Vec<_> = exports.iter().map(|v| self.export_value(*v, &live)).collect();
        let resume = self.restore(&exports, Some(cut));
        self.witnessed = witnessed;
        Start { run: emit!(#run (#(#values,)*)), resume, pat: self.export_pattern(&exports) }
    }

    fn step_body(&mut self, cut: CutId, step: &Step) -> TokenStream {
        let (fiber, private, error, number) = (&self.fiber, self.cx.private, self.cx.error, number(cut));
        let body = &step.body;
        if let Some(effect) = &step.effect {
            return self.effect_body(cut, step, effect);
        }
        if step.retry.is_none() && step.timeout.is_none() {
            return match &step.op {
                None => body.to_token_stream(),
                Some(op) => emit!({ let #op = &#fiber.op(#number); #body }),
            };
        }
        let (retry, timeout) = (optional(step.retry.as_ref()), optional(step.timeout.as_ref()));
        let op = step.op.as_ref().map(|op| emit!(let #op = op;));
        let run = match &step.timeout {
            Some(timeout) => quote_spanned!(at(timeout)=> run_within),
            None => emit!(run),
        };
        emit!({
            let mut attempts = #fiber.attempts::<#error>(#number, #retry, #timeout);
            loop {
                let op = &attempts.op();
                let attempt = attempts.#run(async { #op ::core::result::Result::Ok::<_, #error>(#body) }).await;
                match attempt {
                    #private::Attempt::Done(value) => break value,
                    #private::Attempt::Failed(error) => return ::core::result::Result::Err(error),
                    #private::Attempt::Again => {}
                }
            }
        })
    }

    /// A step that is stored as started before its body, and perhaps has a value already.
    fn effect_body(&self, cut: CutId, step: &Step, effect: &Effect) -> TokenStream {
        let (fiber, private, error, number) = (&self.fiber, self.cx.private, self.cx.error, number(cut));
        let (body, retry) = (&step.body, optional(step.retry.as_ref()));
        // Bound first: what the key borrows must not be held while the operation begins.
        let (let_key, key) = match &effect.key {
            Some(key) => (quote_spanned!(at(key)=> let key = #private::key(&(#key));), emit!(::core::option::Option::Some(key))),
            None => (TokenStream::new(), emit!(::core::option::Option::None)),
        };
        let within = step.timeout.as_ref().map(|timeout| quote_spanned!(at(timeout)=> .within(#timeout)));
        let (on_unknown, known) = match &effect.on_unknown {
            Some(policy) => (policy.to_token_stream(), quote_spanned!(at(policy)=> effect.known(value))),
            None => (emit!(#private::OnUnknown::Park), emit!(value)),
        };
        let span = self.cut_span(cut);
        let op = step.op.as_ref().map(|op| emit!(let #op = &effect.op();));
        let next = quote_spanned!(span=> effect.next(&mut on_unknown).await);
        let run = quote_spanned!(span=> effect.run(async { ::core::result::Result::Ok::<_, #error>(#body) }).await);
        let begin = emit! {
            #let_key
            let mut effect = {
                use #private::{Made as _, NotMade as _};
                #fiber.effect::<#error>(#number, #key, #retry, (&#private::Probe::<#error>::new()).made()).await #within
            };
        };
        let policy = emit!(let mut on_unknown: #private::OnUnknown<'_, _, #error> = #on_unknown;);
        if step.retry.is_none() && step.timeout.is_none() {
            // Without a loop, so that the body may move what it uses, and change what the check borrows.
            return emit!({
                #begin
                let next = {
                    #policy
                    #next
                };
                match next {
                    #private::Next::Value(value) => #known,
                    #private::Next::Error(error) => return ::core::result::Result::Err(error),
                    #private::Next::Run => {
                        #op
                        match #run {
                            #private::Attempt::Done(value) => value,
                            #private::Attempt::Failed(error) => return ::core::result::Result::Err(error),
                            #private::Attempt::Again => return ::core::result::Result::Err(effect.unsure().await),
                        }
                    }
                }
            });
        }
        emit!({
            #begin
            #policy
            loop {
                match #next {
                    #private::Next::Value(value) => break #known,
                    #private::Next::Error(error) => return ::core::result::Result::Err(error),
                    #private::Next::Run => {}
                }
                #op
                match #run {
                    #private::Attempt::Done(value) => break value,
                    #private::Attempt::Failed(error) => return ::core::result::Result::Err(error),
                    #private::Attempt::Again => {}
                }
            }
        })
    }

    /// The checkpoint at a cut point.
    fn checkpoint(&mut self, cut: CutId) -> TokenStream {
        let save = self.save(cut, false);
        let (fiber, number) = (&self.fiber, number(cut));
        let span = self.cut_span(cut);
        quote_spanned!(span=> #fiber.checkpoint(#number, #save).await;)
    }

    /// The closure that puts down what a cut point keeps, with or without its own value.
    fn save(&mut self, cut: CutId, without_result: bool) -> TokenStream {
        let kept: Vec<_> = self.cx.plan.kept[cut].iter().filter(|k| !(without_result && k.result)).collect();
        if kept.is_empty() {
            return emit!(|_| {});
        }
        let puts = kept.iter().map(|kept| {
            let key = &kept.key;
            let ident = self.ident(kept.var);
            let value = if self.open.contains(&kept.var) {
                quote_spanned!(self.place_of(kept.var)=> &#ident)
            } else {
                let place = self.place(kept.var);
                let private = self.cx.private;
                quote_spanned!(self.place_of(kept.var)=> #private::carried(&#place))
            };
            let value = self.checked(kept.var, &value);
            let span = self.cut_span(cut);
            quote_spanned!(span=> save.put(#key, #value);)
        });
        let puts: Vec<_> = puts.collect();
        let span = self.cut_span(cut);
        quote_spanned!(span=> |save| { #(#puts)* })
    }

    /// Where errors about a cut point as a whole point.
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
        let names: Vec<_> = exports.iter().map(|v| self.export_name(*v)).collect();
        self.witnessed = witnessed;
        let run = emit!(#code let invocation = ::core::option::Option::Some(#invocation); #put_back);
        if exports.is_empty() {
            return Start { run: emit!(#run invocation), resume: emit!(::core::option::Option::None), pat: emit!(invocation) };
        }
        let restored = self.restore(&exports, None);
        let pat = self.export_pattern(&exports);
        let resumed: Vec<_> = exports
            .iter()
            .map(|v| if self.storage(*v) == Storage::Carried { self.place(*v).to_token_stream() } else { self.ident(*v).to_token_stream() })
            .collect();
        Start {
            run: emit!(#run (#(#values,)* invocation)),
            resume: emit!(let #pat = { #restored }; (#(#resumed,)* ::core::option::Option::None)),
            pat: emit!((#(#names,)* invocation)),
        }
    }

    /// The call itself, entered anew or into the callee's snapshot, or its value out of ours.
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
            return emit!(if #fiber.calls(#number) { #call; } else { #fiber.arrive(#number); });
        };
        if exports.is_empty() {
            // Nothing later needs the value; the resumed fiber goes on without it.
            return emit!(if #fiber.calls(#number) { let _ = #call; } else { #fiber.arrive(#number); });
        }
        let attrs = attrs.iter().filter(|a| !is_ours(a));
        let values: Vec<_> = exports.iter().map(|v| self.export_value(*v, &live)).collect();
        let kept = self.export_pattern(&exports);
        let restored = match (&result, question) {
            (Some((var, key)), None) => self.restore_called(*var, key, cut),
            _ => self.restore(&exports, Some(cut)),
        };
        self.open_values(&stmt.declares);
        emit! {
            let #kept = if #fiber.calls(#number) { #(#attrs)* let #pat = #call; (#(#values,)*) } else { #restored };
        }
    }

    /// A call's whole `Result`: at its own cut point only an `Ok` is ever kept.
    fn restore_called(&mut self, var: VarId, key: &str, cut: CutId) -> TokenStream {
        let (fiber, own) = (self.fiber.clone(), number(cut));
        let carried = self.storage(var) == Storage::Carried;
        let wrap = |value: TokenStream| if carried { emit!(::core::option::Option::Some(#value)) } else { value };
        let at_own = wrap(emit!(::core::result::Result::Ok(saved.get(#key)?)));
        let read = self.checked_read(var, key, carried);
        let elsewhere = self.cx.plan.kept.iter().enumerate().any(|(other, kept)| other != cut && kept.iter().any(|k| k.var == var));
        let otherwise = match (elsewhere, carried) {
            (true, _) => read,
            (false, true) => emit!(::core::option::Option::None),
            (false, false) => emit!(::core::unreachable!()),
        };
        emit! {
            let own = #fiber.inside(#own..=#own);
            let restored = #fiber.restore(|saved| ::core::result::Result::Ok((if own { #at_own } else { #otherwise },))).await;
            #fiber.arrive(#own);
            restored
        }
    }

    /// Variables that leave the stretch without a value though they had one in it.
    pub(super) fn witness(&mut self, exports: &[VarId], live: &crate::flow::Live) -> std::collections::BTreeSet<VarId> {
        let without = exports.iter().copied().filter(|v| self.storage(*v) == Storage::Carried && !live.contains(v)).collect();
        std::mem::replace(&mut self.witnessed, without)
    }
}
