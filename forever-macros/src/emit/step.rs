//! Code of a step: its attempts, its record in the ledger, and the conversion of its errors. The
//! same for a step alone and for a branch of `steps!`.
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned;

use super::Emit;
use crate::cut::{Effect, Step};
use crate::ids::CutId;

/// An `Option` of an expression of the user's.
fn optional(value: Option<&impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => emit!(::core::option::Option::Some(#value)),
        None => emit!(::core::option::Option::None),
    }
}

/// Span of errors about an option's value.
fn at(value: &Expr) -> Span {
    Span::mixed_site().located_at(value.span())
}

/// Whether the body may run more than once while the function runs.
pub(super) fn is_repeated(step: &Step) -> bool {
    step.retry.is_some() || step.effect.is_some() && step.timeout.is_some()
}

/// Tells the macros of the runtime whether a body may run more than once, and whether its error is
/// a value.
fn mode(step: &Step) -> TokenStream {
    let often = if is_repeated(step) { emit!(again) } else { emit!(once) };
    let caught = step.catch.then(|| emit!(caught));
    emit!(#often #caught)
}

/// Source of a step's op.
#[derive(Clone, Copy)]
pub(super) enum On<'a> {
    /// The frame, with the number of the cut point, and how it leaves memory until the time `it`.
    Frame { fiber: &'a Ident, cut: &'a TokenStream, pause: &'a TokenStream },
    /// The variable `branch`, in a branch of `steps!`.
    Branch,
}

impl On<'_> {
    /// Calls `method`, with further `arguments`.
    fn call(self, method: &TokenStream, arguments: &TokenStream) -> TokenStream {
        match self {
            On::Frame { fiber, cut, .. } => emit!(#fiber.#method(#cut, #arguments)),
            On::Branch => emit!(branch.#method(#arguments)),
        }
    }

    /// How the step leaves memory, as an argument of the macro that loops over its attempts. A
    /// branch leaves it to its `steps!`.
    fn pause(self, step: &Step) -> Option<TokenStream> {
        match self {
            On::Frame { pause, .. } if step.retry.is_some() => Some(emit!(, |it| #pause)),
            _ => None,
        }
    }

    /// The value of the option `retry`.
    fn retry(self, step: &Step) -> TokenStream {
        let retry = step.retry.as_ref().map(|retry| match self {
            On::Frame { .. } => retry.to_token_stream(),
            // Many branches may share it.
            On::Branch => emit!(::core::clone::Clone::clone(&(#retry))),
        });
        optional(retry.as_ref())
    }
}

impl Emit<'_> {
    /// The value of a step.
    pub(super) fn step_of(&self, cut: CutId, step: &Step, on: On<'_>) -> TokenStream {
        let (private, error, body) = (self.cx.private, self.cx.error, &step.body);
        if let Some(effect) = &step.effect {
            return self.effect_of(cut, step, effect, on);
        }
        if step.retry.is_none() && step.timeout.is_none() && !step.catch {
            return match &step.op {
                None => body.to_token_stream(),
                Some(op) => {
                    let made = on.call(&emit!(op), &TokenStream::new());
                    emit!({ let #op = &#made; #body })
                }
            };
        }
        let (retry, timeout) = (on.retry(step), optional(step.timeout.as_ref()));
        // One span for the whole expression, or the compiler reports its error twice.
        let span = step.timeout.as_ref().filter(|_| !step.catch).map_or_else(|| self.cut_span(cut), at);
        let (run, made) = match &step.timeout {
            _ if step.catch => (quote_spanned!(span=> run_caught), Some(self.made())),
            Some(_) => (quote_spanned!(span=> run_within), None),
            None => (quote_spanned!(span=> run), None),
        };
        let made = made.into_iter();
        let (outer, inner) = match &step.op {
            Some(op) => (Some(emit!(let op = &attempts.op();)), Some(emit!(let #op = op;))),
            None => (None, None),
        };
        let attempt = quote_spanned! {span=>
            #outer
            let attempt = attempts.#run(async { #inner ::core::result::Result::Ok::<_, #error>(#body) } #(, #made)*).await;
            attempt
        };
        let begun = on.call(&emit!(attempts::<#error>), &emit!(#retry, #timeout));
        let form = mode(step);
        let pause = on.pause(step);
        emit!(#private::attempts!(#form, #begun, |attempts| { #attempt } #pause))
    }

    /// A step that is stored as started before its body, and may have a stored value.
    fn effect_of(&self, cut: CutId, step: &Step, effect: &Effect, on: On<'_>) -> TokenStream {
        let (private, error) = (self.cx.private, self.cx.error);
        let (body, retry) = (&step.body, on.retry(step));
        // Bound first: what the key borrows must not be held while the operation begins.
        let (let_key, key) = match &effect.key {
            Some(key) => (quote_spanned!(at(key)=> let key = #private::Key::__key(&(#key));), emit!(::core::option::Option::Some(key))),
            None => (TokenStream::new(), emit!(::core::option::Option::None)),
        };
        let within = step.timeout.as_ref().map(|timeout| {
            let span = at(timeout);
            if step.catch {
                quote_spanned!(span=> .within_caught(#timeout))
            } else {
                quote_spanned!(span=> .within(#private::timeout::<#error>(#timeout)))
            }
        });
        let (on_unknown, known) = match &effect.on_unknown {
            Some(policy) => (policy.to_token_stream(), quote_spanned!(at(policy)=> #private::Gives::of(value))),
            None => (emit!(#private::OnUnknown::Park), emit!(value)),
        };
        let span = self.cut_span(cut);
        let op = step.op.as_ref().map(|op| emit!(let #op = &effect.op();));
        let (next, run) = match step.catch {
            false => (quote_spanned!(span=> next), quote_spanned!(span=> run)),
            true => (quote_spanned!(span=> next_caught), quote_spanned!(span=> run_caught)),
        };
        let codec = self.codec(cut);
        let next = quote_spanned!(span=> effect.#next(&mut on_unknown, #codec).await);
        let run = quote_spanned!(span=> effect.#run(async { ::core::result::Result::Ok::<_, #error>(#body) }, #codec).await);
        let made = self.made();
        let begun = on.call(&emit!(effect::<#error>), &emit!(#key, #retry, #made));
        let begun = match effect.key {
            Some(_) => emit!({ #let_key #begun.await #within }),
            None => emit!(#begun.await #within),
        };
        let (form, pause) = (mode(step), on.pause(step));
        emit!(#private::effect!([#form] #error, |effect, on_unknown| #begun, #on_unknown, #next, |value| #known, { #op } #run #pause))
    }

    /// The conversion of an error of the library to one of the fiber's type, if there is one.
    fn made(&self) -> TokenStream {
        let (private, error) = (self.cx.private, self.cx.error);
        emit!(#private::made!(#error))
    }
}
