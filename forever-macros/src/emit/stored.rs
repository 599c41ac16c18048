//! Values that cut points store themselves: the results of effects and of branches, and messages.
//!
//! Each such cut point has a trait of its own, as kept variables have (`savable.rs`). Its codec
//! comes from the trait, and the runtime asks nothing of the type, so that a type that cannot be
//! saved is one error, which names the cut point.
use std::collections::BTreeMap;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Pat;

use super::Emit;
use crate::cut::{Awaited, AwaitedEvent, CutBody, Steps, Topics};
use crate::fact;
use crate::hir::{Bind, Block, Body, Control, StmtKind};
use crate::ids::{CutId, VarId};
use crate::messages;

/// How a variable is stored by the cut point that gives it its value.
#[derive(Clone, Copy)]
pub(super) enum StoredBy {
    /// It is the value.
    Value(CutId),
    /// It is the arm that a `select!` has chosen.
    Choice(CutId),
}

/// The variables that their own cut point stores.
pub(super) fn stored_by(body: &Body) -> BTreeMap<VarId, StoredBy> {
    fn walk(block: &Block, body: &Body, found: &mut BTreeMap<VarId, StoredBy>) {
        for stmt in &block.stmts {
            match &stmt.kind {
                StmtKind::Cut { cut, bind: Bind::Let { pat, .. } } => {
                    let is_name = crate::scan::simple_name(pat).is_some();
                    let stored = match &body.cuts[*cut].body {
                        CutBody::Step(step) if is_name && !matches!(pat, Pat::Type(_)) && step.effect.is_some() && !step.catch => {
                            StoredBy::Value(*cut)
                        }
                        CutBody::Recv { topics: Topics::One(_), until: None } if is_name => StoredBy::Value(*cut),
                        CutBody::Steps(steps) if matches!(&**steps, Steps::Branches(_)) && is_tuple_of_names(pat) => StoredBy::Value(*cut),
                        CutBody::Select(_) => StoredBy::Choice(*cut),
                        _ => continue,
                    };
                    let is_whole = stmt.remainders.is_empty() || matches!(stored, StoredBy::Choice(_));
                    found.extend(stmt.declares.iter().filter(|_| is_whole).map(|var| (*var, stored)));
                }
                StmtKind::Plain(_) | StmtKind::Cut { .. } => {}
                StmtKind::Control { control, .. } => match control {
                    Control::Branch(branch) => branch.arms.iter().for_each(|arm| walk(&arm.block, body, found)),
                    Control::Loop { body: inner, .. } | Control::Scope { body: inner, .. } => walk(inner, body, found),
                    Control::For(for_loop) => walk(&for_loop.body, body, found),
                },
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&body.block, body, &mut found);
    found
}

fn is_tuple_of_names(pat: &Pat) -> bool {
    let is_name = |pat: &Pat| matches!(pat, Pat::Wild(_)) || crate::scan::simple_name(pat).is_some();
    matches!(pat, Pat::Tuple(tuple) if tuple.elems.iter().all(is_name))
}

impl Emit<'_> {
    /// The traits of the cut points that store a value.
    pub(super) fn stored_values(&self) -> TokenStream {
        let private = self.cx.private;
        let traits = self.cx.body.cuts.iter().enumerate().filter_map(|(cut, kind)| {
            // The message is a format string of the compiler's.
            let shown = kind.shown(&self.cx.plan.names[cut].0).replace('{', "{{").replace('}', "}}");
            let (makes, message, way) = match &kind.body {
                CutBody::Step(step) if step.effect.is_some() => ("store", messages::effect_stored(&shown), messages::EFFECT_STORED),
                CutBody::Steps(_) => ("store", messages::branch_stored(&shown), messages::BRANCH_STORED),
                CutBody::Recv { .. } | CutBody::TryRecv(_) | CutBody::Close(_) => {
                    ("receive", messages::message_stored(&shown), messages::MESSAGE_STORED)
                }
                CutBody::Select(arms) if arms.iter().any(Awaited::is_message) => {
                    ("receive", messages::message_stored(&shown), messages::MESSAGE_STORED)
                }
                _ => return None,
            };
            let (name, span) = (self.value_name(cut), self.cut_span(cut));
            let savable = fact::name(&self.cx.plan.names[cut].0, "can_be_saved", span);
            let makes = Ident::new(makes, span);
            Some(quote_spanned!(span=> #private::#makes! { #name: #savable, #message, #way }))
        });
        traits.collect()
    }

    /// The codec of what a cut point stores.
    pub(super) fn codec(&self, cut: CutId) -> TokenStream {
        self.codec_at(cut, self.cut_span(cut))
    }

    /// As [`Emit::codec`], with the place of errors.
    pub(super) fn codec_at(&self, cut: CutId, span: Span) -> TokenStream {
        let mut name = self.value_name(cut);
        name.set_span(span);
        quote_spanned!(span=> #name::Savable::codec())
    }

    /// The module of a cut point's trait.
    pub(super) fn value_name(&self, cut: CutId) -> Ident {
        format_ident!("value_{}", cut, span = self.cut_span(cut))
    }

    /// The codecs of the arms of a `select!`, each with those of the arms after it.
    pub(super) fn codecs_of_arms(&self, cut: CutId) -> TokenStream {
        let CutBody::Select(arms) = &self.cx.body.cuts[cut].body else { return TokenStream::new() };
        arms.iter().rev().fold(TokenStream::new(), |later, arm| {
            let span = Span::mixed_site().located_at(arm.span);
            let codec = if arm.is_message() { self.codec_at(cut, span) } else { quote_spanned!(span=> ()) };
            quote_spanned!(span=> (#codec, #later))
        })
    }
}

impl Awaited {
    pub(crate) fn is_message(&self) -> bool {
        matches!(self.what, AwaitedEvent::Message { .. })
    }
}
