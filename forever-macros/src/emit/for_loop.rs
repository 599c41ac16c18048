//! Loops and scopes with cut points in them.
use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use syn::Label;
use syn::spanned::Spanned;

use super::{Emit, Target};
use crate::hir::{Block, For, Stmt};
use crate::ids::{JumpId, VarId};
use crate::kept::Role;
use crate::names::VarKind;
use crate::place;
use crate::plan::{Storage, mentions, stretches};

impl Emit<'_> {
    pub(super) fn loop_(
        &mut self,
        stmt: &Stmt,
        label: Option<&Label>,
        id: JumpId,
        body: &Block,
    ) -> (TokenStream, TokenStream, TokenStream) {
        let open = self.open.clone();
        let taken = self.taken.len();
        let mut mentioned = BTreeSet::new();
        body.stmts.iter().for_each(|s| mentions(s, &mut mentioned));
        let before = self.take_for_loop(stmt, &mentioned, &BTreeSet::new(), id, body);
        let anew = self.made_anew(id, body);
        let body = self.jump_target(label, id, true, |emit| emit.block(body, &[]));
        let after = self.put_back(taken, &self.live(stmt.after));
        self.taken.truncate(taken);
        self.open = open;
        (before, emit!(#label loop { #anew #body }), after)
    }

    pub(super) fn scope(&mut self, label: Option<&Label>, id: JumpId, is_unsafe: bool, body: &Block) -> TokenStream {
        let body = self.jump_target(label, id, false, |emit| emit.block(body, &[]));
        if is_unsafe { emit!(unsafe { #body }) } else { emit!(#label { #body }) }
    }

    pub(super) fn for_(&mut self, stmt: &Stmt, for_loop: &For) -> (TokenStream, TokenStream, TokenStream) {
        let (open, taken) = (self.open.clone(), self.taken.len());
        let bases: BTreeSet<VarId> = for_loop.bases.iter().copied().collect();
        let mut mentioned = bases.clone();
        for_loop.body.stmts.iter().for_each(|s| mentions(s, &mut mentioned));
        let mut before = self.take_for_loop(stmt, &mentioned, &bases, for_loop.id, &for_loop.body);
        let opening = self.open_stretch(&bases, &BTreeSet::new(), stmt.before);
        before.extend(opening);
        let fiber = self.fiber.clone();
        let position = &for_loop.position;
        let position_var = for_loop.position_var.expect("resolved before it is emitted");
        let key = self.cx.plan.kept.iter().flatten().find(|k| k.var == position_var).map(|k| k.key.clone()).unwrap_or_default();
        let items = self.in_order(&for_loop.items);
        // What is saved with the position cannot change. Anything else may be another list when the
        // fiber is resumed.
        let is_saved = |base: &VarId| self.cx.table.var(*base).kind == VarKind::Value;
        let outside = for_loop.bases.is_empty() || !for_loop.bases.iter().all(is_saved);
        before.extend(if outside {
            let private = self.cx.private;
            emit! {
                let stood: ::core::option::Option<#private::LoopPosition> = if #fiber.running() {
                    ::core::option::Option::None
                } else {
                    ::core::option::Option::Some(#fiber.restore(|saved| saved.get(#key)).await)
                };
            }
        } else {
            emit! {
                let first: usize = if #fiber.running() { 0 } else { #fiber.restore(|saved| saved.get(#key)).await };
            }
        });
        self.open.insert(position_var);
        for (index, var) in self.cx.table.vars.iter().enumerate() {
            if matches!(&var.kind, VarKind::Item(_)) {
                self.open.insert(VarId(index));
            }
        }
        let aliases = self.alias_declared(&for_loop.declares);
        let anew = self.made_anew(for_loop.id, &for_loop.body);
        let body = self.jump_target(for_loop.label.as_ref(), for_loop.id, true, |emit| emit.block(&for_loop.body, &[]));
        let (label, attrs, pat) = (&for_loop.label, &for_loop.attrs, &for_loop.pat);
        let value = if outside {
            let (private, over) = (self.cx.private, key.strip_suffix(" at").unwrap_or(&key));
            // In a `match`, so that the temporaries of the user's expression live as long as the
            // loop.
            emit! {
                match ::core::iter::IntoIterator::into_iter(#items) {
                    items => {
                        let mut cursor = #private::LoopCursor::new(stood, &items);
                        #(#attrs)*
                        #label for (place, item) in ::core::iter::Iterator::enumerate(items) {
                            let text = {
                                #[allow(unused_imports)]
                                use #private::{ByJson as _, ByPlace as _};
                                (&&#private::Item(&item)).key()
                            };
                            let #position = match cursor.come_to(place, text) {
                                #private::LoopItem::Current(position) => position,
                                #private::LoopItem::Done => continue,
                                #private::LoopItem::Changed => match #fiber.other_items(#over).await {},
                            };
                            let #pat = item;
                            #aliases #anew #body
                        }
                    }
                }
            }
        } else {
            emit! {
                #(#attrs)*
                #label for (#position, #pat) in ::core::iter::Iterator::skip(::core::iter::Iterator::enumerate(::core::iter::IntoIterator::into_iter(#items)), first) { #aliases #anew #body }
            }
        };
        let put_back = self.put_back(taken, &self.live(stmt.after));
        self.taken.truncate(taken);
        self.open = open;
        // With fewer items than before, the loop does not come to the cut point, and nothing after
        // the loop may run.
        let cuts = self.cx.plan.kept.iter().enumerate().filter(|(_, kept)| kept.iter().any(|k| k.var == position_var));
        let cuts: Vec<_> = cuts.map(|(cut, _)| super::number(cut)).collect();
        let behind = cuts.first().zip(cuts.last()).map(|(first, last)| emit!(#fiber.behind(#first..=#last).await;));
        (before, value, emit!(#behind #put_back))
    }

    /// The items of a borrowed loop, with the check that their source keeps its order.
    pub(super) fn in_order(&self, items: &syn::Expr) -> syn::Expr {
        let private = self.cx.private;
        if place::is_by_value(items) {
            return syn::parse_quote_spanned!(items.span()=> #private::KeepsOrder::__in_order_value(#items));
        }
        let mut items = items.clone();
        place::wrap_root(&mut items, &|root, place| match root {
            place::Root::Borrowed => syn::parse_quote_spanned!(place.span()=> #private::KeepsOrder::__in_order(&#place)),
            place::Root::Value => syn::parse_quote_spanned!(place.span()=> #private::KeepsOrder::__in_order_value(#place)),
        });
        items
    }

    fn jump_target(
        &mut self,
        label: Option<&Label>,
        id: JumpId,
        is_loop: bool,
        walk: impl FnOnce(&mut Self) -> TokenStream,
    ) -> TokenStream {
        self.jumps.push(Target { label: label.map(|l| l.name.ident.to_string()), id, is_loop, taken: self.taken.len() });
        let tokens = walk(self);
        self.jumps.pop();
        tokens
    }

    /// Names the kept locals that each turn of a loop declares: those that its head does not need,
    /// but for values that a cut point gives.
    fn made_anew(&self, id: JumpId, body: &Block) -> TokenStream {
        let Some(cuts) = body.cuts() else { return TokenStream::new() };
        let needed = self.cx.plan.needed.at_continue.get(&id);
        let kept = cuts.flat_map(|cut| &self.cx.plan.kept[cut]);
        let declared =
            kept.filter(|kept| kept.role == Role::Value && !kept.result && !needed.is_some_and(|needed| needed.contains(&kept.var)));
        let names: BTreeSet<&str> = declared.map(|kept| &*kept.key).collect();
        let (fiber, names) = (&self.fiber, names.into_iter());
        if names.len() == 0 { TokenStream::new() } else { emit!(#fiber.anew(&[#(#names),*]);) }
    }

    /// Takes carried variables out for a whole loop, where every cut point in it needs them.
    fn take_for_loop(
        &mut self,
        stmt: &Stmt,
        mentioned: &BTreeSet<VarId>,
        forced: &BTreeSet<VarId>,
        id: JumpId,
        body: &Block,
    ) -> TokenStream {
        let needed = &self.cx.plan.needed;
        let mut exits = Vec::new();
        stretches(&body.stmts, Some(id), needed, &mut exits);
        exits.extend(needed.at_continue.get(&id).cloned());
        let before = self.live(stmt.before);
        let mut tokens = TokenStream::new();
        for &var in mentioned {
            let always = || before.contains(&var) && exits.iter().all(|live| live.contains(&var));
            if self.storage(var) != Storage::Carried || self.open.contains(&var) || !(forced.contains(&var) || always()) {
                continue;
            }
            let (binder, place) = (self.binder(var, stmt.before), self.place(var));
            tokens.extend(emit!(let mut #binder = #place.take().expect("kept from the stretch before");));
            tokens.extend(self.alias_bound(&[var], stmt.before));
            self.open.insert(var);
            self.taken.push(var);
        }
        tokens
    }
}
