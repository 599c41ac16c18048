//! Code around a stretch of the user's code: takes carried variables out of their places and puts
//! them back, makes borrows again, and exports values.
use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote_spanned};
use syn::Expr;

use super::{Emit, Start};
use crate::flow::Live;
use crate::held;
use crate::hir::{Control, Stmt, StmtKind};
use crate::ids::{PointId, VarId};
use crate::names::{ReborrowId, VarKind};
use crate::plan::Storage;
use crate::values;

impl Emit<'_> {
    /// Variables that the start of a statement mentions, and those that they are made from.
    pub(super) fn head_mentions(&self, plain: &[Stmt], stmt: &Stmt) -> BTreeSet<VarId> {
        let mut found = BTreeSet::new();
        plain.iter().for_each(|s| s.flow.mentioned(&mut found));
        match &stmt.kind {
            StmtKind::Control { control: Control::Branch(branch), .. } => {
                stmt.flow.mentioned(&mut found);
                for arm in &branch.arms {
                    arm.enter.mentioned(&mut found);
                    let stmts = &arm.block.stmts;
                    match stmts.iter().position(|s| !matches!(s.kind, StmtKind::Plain(_))) {
                        Some(first) => found.extend(self.head_mentions(&stmts[..first], &stmts[first])),
                        None => stmts.iter().for_each(|s| s.flow.mentioned(&mut found)),
                    }
                }
            }
            // The items of a borrowed loop are named again on a resume, outside of the stretch.
            StmtKind::Control { control: Control::For(_), .. } => {}
            _ => stmt.flow.mentioned(&mut found),
        }
        found
    }

    /// Brings the mentioned variables under their own names.
    pub(super) fn open_stretch(&mut self, mentioned: &BTreeSet<VarId>, declared: &BTreeSet<VarId>, start: PointId) -> TokenStream {
        let live = self.live(start);
        let mut tokens = TokenStream::new();
        // Variables of blocks and closures inside plain statements are not planned: they are
        // declared where they are used.
        let planned = |v: &VarId| self.cx.plan.storage.contains_key(v);
        let missing: Vec<VarId> =
            mentioned.iter().copied().filter(|v| planned(v) && !self.open.contains(v) && !declared.contains(v)).collect();
        let (again, values): (Vec<VarId>, Vec<VarId>) = missing.into_iter().partition(|v| self.made_again(*v));
        for var in values {
            tokens.extend(self.take(var, &live, start));
        }
        let mut made: BTreeSet<ReborrowId> = BTreeSet::new();
        for var in again {
            self.make_reborrow(var, start, &mut made, &mut tokens);
        }
        tokens
    }

    /// Takes one variable out of its place, or declares it where it is assigned before it is used.
    fn take(&mut self, var: VarId, live: &Live, point: PointId) -> TokenStream {
        let info = self.cx.table.var(var);
        if matches!(info.kind, VarKind::Given | VarKind::Item(_) | VarKind::Position) {
            return TokenStream::new();
        }
        self.open.insert(var);
        let (ident, carried) = (self.binder(var, point), self.storage(var) == Storage::Carried);
        let ty = info.ty.as_ref().map(|ty| emit!(: #ty));
        let (place, private) = (self.place(var), self.cx.private);
        if carried {
            self.taken.push(var);
        }
        let aliases = self.alias_bound(&[var], point);
        let taken = match (carried, live.contains(&var)) {
            (true, true) if self.outliving.contains(&var) => emit!(#ident = #private::take(&mut #place);),
            (true, true) => emit!(let mut #ident = #private::take(&mut #place);),
            (true, false) if self.outliving.contains(&var) => emit! {
                #[allow(unused_assignments)]
                if false { #ident = #private::take(&mut #place); }
            },
            (true, false) => emit! {
                let mut #ident #ty;
                #[allow(unused_assignments)]
                if false { #ident = #private::take(&mut #place); }
            },
            (false, _) => emit!(let mut #ident #ty;),
        };
        emit!(#taken #aliases)
    }

    fn make_reborrow(&mut self, var: VarId, point: PointId, made: &mut BTreeSet<ReborrowId>, tokens: &mut TokenStream) {
        let VarKind::Reborrow(id) = self.cx.table.var(var).kind else { return };
        if self.open.contains(&var) || !made.insert(id) {
            return;
        }
        let again = &self.cx.table.reborrows[id.0];
        for &base in &again.bases {
            self.make_reborrow(base, point, made, tokens);
        }
        tokens.extend(self.again(again, point));
        tokens.extend(self.typed(&again.makes));
        self.open.extend(&again.makes);
    }

    /// Fixes the error type of a `Retry` to that of this function, where nothing else may infer it.
    fn typed(&self, declares: &[VarId]) -> TokenStream {
        let (private, error) = (self.cx.private, self.cx.error);
        let is_policy =
            |v: &&VarId| matches!(self.cx.table.var(**v).kind, VarKind::Reborrow(again) if self.cx.table.policies.contains(&again));
        let policies = declares.iter().filter(is_policy).map(|v| {
            let (ident, span) = (self.ident(*v), self.place_of(*v));
            quote_spanned!(span=> #private::policy::<#error, _>(&#ident);)
        });
        policies.collect()
    }

    /// Puts what was taken since `from` back where it is still needed.
    pub(super) fn put_back(&self, from: usize, live: &Live) -> TokenStream {
        let mut tokens = TokenStream::new();
        for &var in self.taken.iter().skip(from).filter(|v| live.contains(v) || self.returned.contains(v)) {
            let (named, place) = (self.named(var), self.place(var));
            tokens.extend(emit!(#place = ::core::option::Option::Some(#named);));
        }
        tokens
    }

    /// The last stretch of a block: no cut point follows in it.
    pub(super) fn last_stretch(&mut self, stmts: &[Stmt], end: PointId) -> TokenStream {
        let Some(first) = stmts.first() else { return TokenStream::new() };
        let mut mentioned = BTreeSet::new();
        stmts.iter().for_each(|s| s.flow.mentioned(&mut mentioned));
        let declared = stmts.iter().flat_map(|s| &s.declares).copied().collect();
        let (taken, open) = (self.taken.len(), self.open.clone());
        let opening = self.open_stretch(&mentioned, &declared, first.start);
        self.open.extend(&declared);
        let live = self.live(end);
        let returned = self.in_order_of_drop(&mentioned, stmts, end);
        let outer_returned = std::mem::replace(&mut self.returned, returned);
        let put_back = self.put_back(taken, &live);
        self.returned = outer_returned;
        let outer = std::mem::replace(&mut self.mentioned, mentioned);
        let outer_given = std::mem::take(&mut self.given);
        stmts.iter().for_each(|stmt| stmt.flow.assigned(&mut self.given));
        let left = self.left_may_be_dropped(&live);
        let tokens = self.plain_with_end(stmts, &emit!(#left #put_back));
        self.given = outer_given;
        self.mentioned = outer;
        self.taken.truncate(taken);
        self.open = open;
        emit!(#opening #tokens)
    }

    /// Emits plain statements, then `end`; the value of the last statement stays the value.
    pub(super) fn plain_with_end(&mut self, stmts: &[Stmt], end: &TokenStream) -> TokenStream {
        if end.is_empty() {
            return self.plain(stmts);
        }
        match stmts.split_last() {
            Some((Stmt { kind: StmtKind::Plain(syn::Stmt::Expr(value, None)), .. }, before)) => {
                let before = self.plain(before);
                let value = self.rewrite_expr(value);
                emit!(#before let value = #value; #end value)
            }
            _ => {
                let stmts = self.plain(stmts);
                emit!(#stmts #end)
            }
        }
    }

    /// Emits plain statements with their jumps.
    pub(super) fn plain(&mut self, stmts: &[Stmt]) -> TokenStream {
        let mut tokens = TokenStream::new();
        for stmt in stmts {
            let StmtKind::Plain(syntax) = &stmt.kind else { continue };
            if matches!(syntax, syn::Stmt::Item(_)) {
                continue;
            }
            let unset =
                !stmt.declares.is_empty() && stmt.declares.iter().all(|v| self.cx.table.unset.contains(v) && !self.mentioned.contains(v));
            if unset {
                // Declared again where it is set: nothing here infers its type.
                continue;
            }
            self.check_hidden_jump(stmt);
            tokens.extend(self.text_is_owned(&stmt.declares));
            let reached = self.through_aliases(stmt, syntax);
            let code = self.rewrite_stmt(&self.with_borrowed_captures(stmt, &reached));
            let code = self.with_outliving(stmt, &reached, code);
            let once_set = self.may_be_dropped_once_set(stmt);
            tokens.extend(match syntax {
                syn::Stmt::Expr(_, None) if !once_set.is_empty() => emit!({ let value = #code; #once_set value }),
                _ => emit!(#code #once_set),
            });
            self.begin(&stmt.declares);
            self.given.extend(stmt.declares.iter().filter(|v| !self.cx.table.unset.contains(v)));
            stmt.flow.assigned(&mut self.given);
            tokens.extend(self.moved(stmt, syntax));
            tokens.extend(self.alias_declared(&stmt.declares));
            tokens.extend(self.touch(&stmt.declares));
            tokens.extend(self.may_be_dropped(&stmt.declares));
            tokens.extend(self.lent_may_be_dropped(stmt, syntax));
            tokens.extend(self.typed(&stmt.declares));
            if matches!(syntax, syn::Stmt::Local(local) if local.init.is_some()) {
                tokens.extend(self.witness_of(&stmt.declares));
            }
        }
        tokens
    }

    /// Says that one kept variable gets the value of another: `let b = a;`, `b = a;`.
    fn moved(&self, stmt: &Stmt, syntax: &syn::Stmt) -> TokenStream {
        let value = match syntax {
            syn::Stmt::Local(local) => local.init.as_ref().map(|init| &init.expr),
            syn::Stmt::Expr(Expr::Assign(assign), Some(_)) if matches!(&*assign.left, Expr::Path(_)) => Some(&assign.right),
            _ => None,
        };
        let (mut from, mut to) = (BTreeSet::new(), stmt.declares.iter().copied().collect());
        stmt.flow.used(&mut from);
        stmt.flow.assigned(&mut to);
        let (Some(Expr::Path(_)), Some(&from), Some(&to), 1) =
            (value.map(|value| &**value), from.first(), to.first(), from.len() * to.len())
        else {
            return TokenStream::new();
        };
        let (fiber, plan) = (&self.fiber, self.cx.plan);
        // An argument was stored under its name, also where no cut point keeps it.
        let is_argument =
            |stmt: &Stmt| stmt.declares.contains(&from) && matches!(&stmt.kind, StmtKind::Plain(syntax) if held::is_arguments(syntax));
        let argument = self.cx.body.block.stmts.first().filter(|first| is_argument(first)).map(|_| self.ident(from).to_string());
        match (plan.key_of(from).map(str::to_owned).or(argument), plan.key_of(to)) {
            (Some(from), Some(to)) if from != to => emit!(#fiber.moved(#from, #to);),
            _ => TokenStream::new(),
        }
    }

    /// A `let` of a `move` closure that a cut point needs, as it is made again after it: otherwise
    /// what it captures could not be saved.
    fn with_borrowed_captures<'s>(&self, stmt: &Stmt, syntax: &'s syn::Stmt) -> std::borrow::Cow<'s, syn::Stmt> {
        let is_needed = |v: &VarId| self.made_again(*v) && self.cx.plan.needed.at_cut.values().any(|live| live.contains(v));
        match syntax {
            syn::Stmt::Local(local) if stmt.declares.iter().any(is_needed) => {
                let mut local = local.clone();
                if let Some(init) = &mut local.init {
                    values::borrow_captures(&mut init.expr);
                }
                std::borrow::Cow::Owned(syn::Stmt::Local(local))
            }
            _ => std::borrow::Cow::Borrowed(syntax),
        }
    }

    /// Ties the types of places to variables where no value is put into them.
    pub(super) fn witness_of(&self, declares: &[VarId]) -> TokenStream {
        let private = self.cx.private;
        let mut tokens = TokenStream::new();
        for &var in declares.iter().filter(|v| self.witnessed.contains(v)) {
            let (ident, place) = (self.ident(var), self.place(var));
            tokens.extend(if self.witness_assigns {
                emit!(#[allow(unused_assignments)] { #place = #private::none_like(&#ident); })
            } else {
                emit!(let #place = #private::none_like(&#ident);)
            });
        }
        tokens
    }

    /// A start that only runs plain statements, before a loop or a scope.
    pub(super) fn start_plain(&mut self, plain: &[Stmt], stmt: &Stmt) -> Start {
        let exports = self.exports(plain, None);
        let live = self.live(stmt.before);
        let outer = self.witness(&exports, &live);
        let code = self.plain(plain);
        let put_back = self.put_back_stretch(&live);
        if exports.is_empty() {
            self.witnessed = outer;
            return Start { run: emit!(#code #put_back), resume: TokenStream::new(), pat: TokenStream::new() };
        }
        let values: Vec<_> = exports.iter().map(|v| self.export_value(*v, &live)).collect();
        self.witnessed = outer;
        let resume = self.restore(&exports, None);
        Start { run: emit!(#code #put_back (#(#values,)*)), resume, pat: self.export_pattern(&exports, stmt.start) }
    }

    /// Puts back everything that this stretch took, drops what borrows from it and is made again,
    /// and says what keeps the fiber in memory from here on.
    pub(super) fn put_back_stretch(&self, live: &Live) -> TokenStream {
        let (held, borrowing, put_back) = (self.hold(), self.open_checks(live), self.put_back(self.stretch, live));
        let left = self.left_may_be_dropped(live);
        emit!(#held #left #(::core::mem::drop(#borrowing);)* #put_back)
    }

    /// The `OnUnknown::check(..)`s in scope that the function still needs. Nothing has used them
    /// here, since their use moves them.
    fn open_checks(&self, live: &Live) -> Vec<TokenStream> {
        let is_check = |v: &&VarId| matches!(self.cx.table.var(**v).kind, VarKind::Reborrow(again) if values::is_check(&self.cx.table.reborrows[again.0].init));
        self.open.iter().filter(|v| live.contains(v)).filter(is_check).map(|v| self.named(*v)).collect()
    }

    /// The stored variables among those that statements declare.
    pub(super) fn exports(&self, plain: &[Stmt], own: Option<&Stmt>) -> Vec<VarId> {
        let declared: Vec<VarId> = plain.iter().chain(own).flat_map(|s| &s.declares).copied().collect();
        self.exported(&declared)
    }

    pub(super) fn exported(&self, declared: &[VarId]) -> Vec<VarId> {
        declared.iter().copied().filter(|v| self.storage(*v) != Storage::Local).collect()
    }

    /// A variable's value as it leaves its stretch.
    pub(super) fn export_value(&self, var: VarId, live: &Live) -> TokenStream {
        let named = self.named(var);
        let value = match self.storage(var) {
            Storage::Carried if live.contains(&var) => emit!(::core::option::Option::Some(#named)),
            Storage::Carried if self.witnessed.contains(&var) && self.declared_with_value(var) => self.place(var).to_token_stream(),
            Storage::Carried => emit!(::core::option::Option::None),
            _ => named,
        };
        self.of_its_type(var, value)
    }

    /// Ties the type of an exported value to that of the same variable wherever else it is exported
    /// or restored. Otherwise a restored value has no type yet where a `#[fresh]` value is made
    /// from it, and no coercion (`&String` to `&str`) or method call on it would compile.
    pub(super) fn of_its_type(&self, var: VarId, value: TokenStream) -> TokenStream {
        if !self.made_from.contains(&var) {
            return value;
        }
        let name = self.type_name(var);
        quote_spanned!(self.place_of(var)=> #name.of(#value))
    }

    /// The declarations that [`Emit::of_its_type`] refers to.
    pub(super) fn types(&self) -> TokenStream {
        let (private, names) = (self.cx.private, self.made_from.iter().map(|v| self.type_name(*v)));
        emit!(#(let #names = #private::TypeWitness::new();)*)
    }

    fn type_name(&self, var: VarId) -> proc_macro2::Ident {
        let name = self.ident(var).to_string();
        quote::format_ident!("type_of_{}_{}", name.trim_start_matches("r#"), var.0, span = proc_macro2::Span::mixed_site())
    }

    /// Whether a variable gets a value where it is declared, so that its place has a witness.
    fn declared_with_value(&self, var: VarId) -> bool {
        !self.cx.table.unset.contains(&var)
    }

    /// The pattern that binds exported values at `point`.
    pub(super) fn export_pattern(&self, exports: &[VarId], point: PointId) -> TokenStream {
        let names = exports.iter().map(|v| self.export_name(*v, point));
        emit!((#(#names,)*))
    }

    pub(super) fn export_name(&self, var: VarId, point: PointId) -> TokenStream {
        let name = self.bound_name(var, point);
        if self.storage(var) == Storage::Carried || self.cx.table.var(var).mutable { emit!(mut #name) } else { name }
    }

    /// Name of an exported variable right after the pattern that binds it.
    pub(super) fn bound_name(&self, var: VarId, point: PointId) -> TokenStream {
        if self.storage(var) == Storage::Carried { self.place(var).to_token_stream() } else { self.binder(var, point).to_token_stream() }
    }

    /// Pattern of variables as values, for `let .. else`.
    pub(super) fn values_pattern(&self, vars: &[VarId]) -> TokenStream {
        let names = vars.iter().filter(|v| !self.made_again(**v)).map(|v| {
            let ident = self.ident(*v);
            if self.cx.table.var(*v).mutable { emit!(mut #ident) } else { emit!(#ident) }
        });
        emit!((#(#names,)*))
    }

    /// Reads exported variables from the snapshot; `arrive` is the cut point at which the resume
    /// ends.
    pub(super) fn restore(&mut self, exports: &[VarId], arrive: Option<usize>) -> TokenStream {
        let fiber = self.fiber.clone();
        let cut = arrive;
        let arrive = arrive.map(|cut| {
            let cut = super::number(cut);
            emit!(#fiber.arrive(#cut).await;)
        });
        let (fresh, saved): (Vec<VarId>, Vec<VarId>) = exports.iter().copied().partition(|v| self.is_fresh(*v));
        let reads: Vec<_> = saved.iter().map(|v| self.read(*v)).collect();
        let kept_here: TokenStream = saved.iter().map(|v| self.kept_here(*v)).collect();
        let is_read = !saved.iter().all(|v| self.cx.plan.kept_at(*v).is_empty());
        // If nothing is made again from it, restoring and arriving is one call.
        let at_once = cut.filter(|_| is_read && fresh.is_empty()).map(super::number);
        let restored = if saved.is_empty() {
            emit!(())
        } else if !is_read {
            let nones = saved.iter().map(|_| emit!(::core::option::Option::None));
            emit!((#(#nones,)*))
        } else {
            let read = emit!(|saved| ::core::result::Result::Ok((#(#reads,)*)));
            let restored = match &at_once {
                Some(cut) => emit!(#fiber.restore_at(#cut, #read).await),
                None => emit!(#fiber.restore(#read).await),
            };
            if kept_here.is_empty() { restored } else { emit!({ #kept_here #restored }) }
        };
        if fresh.is_empty() {
            return match arrive {
                None => restored,
                Some(_) if at_once.is_some() => restored,
                Some(arrive) if saved.is_empty() => arrive,
                Some(arrive) => emit!(#arrive #restored),
            };
        }
        // Each under its own name, in the order of declaration: what is made again is the user's
        // expression.
        let temporary = |var: VarId| quote::format_ident!("restored_{}", var.0, span = proc_macro2::Span::mixed_site());
        let temporaries: Vec<_> = saved.iter().map(|v| temporary(*v)).collect();
        let mut bound = TokenStream::new();
        for &var in exports {
            if self.is_fresh(var) {
                bound.extend(self.make_fresh(var, &saved));
                continue;
            }
            let (name, temporary) = (self.export_name(var, PointId::UNSET), temporary(var));
            bound.extend(emit!(#[allow(unused_variables)] let #name = #temporary;));
            if self.storage(var) != Storage::Carried {
                bound.extend(self.alias_bound(&[var], PointId::UNSET));
            }
        }
        let values =
            exports.iter().map(|v| if self.storage(*v) == Storage::Carried { self.place(*v).to_token_stream() } else { self.named(*v) });
        let values: Vec<_> = values.collect();
        emit!(let (#(#temporaries,)*) = #restored; #bound #arrive (#(#values,)*))
    }

    fn is_fresh(&self, var: VarId) -> bool {
        matches!(self.cx.table.var(var).kind, VarKind::Fresh(_))
    }

    /// Reads one value from the snapshot.
    fn read(&self, var: VarId) -> TokenStream {
        let Some(key) = self.cx.plan.key_of(var) else { return emit!(::core::option::Option::None) };
        let read = self.checked_read(var, key, self.storage(var) == Storage::Carried);
        let read = match self.cx.plan.shares_key.contains(&var) {
            true => self.read_where_kept(var, &read),
            false => read,
        };
        self.of_its_type(var, read)
    }

    /// `let kept_here = ..;` for a variable whose stored name means another value at other cut
    /// points.
    pub(super) fn kept_here(&self, var: VarId) -> TokenStream {
        if !self.cx.plan.shares_key.contains(&var) {
            return TokenStream::new();
        }
        let (name, fiber) = (self.kept_here_name(var), &self.fiber);
        let cuts: Vec<_> = self.cx.plan.kept_at(var).iter().map(|cut| super::number(*cut)).collect();
        emit!(let #name = false #(|| #fiber.inside(#cuts..=#cuts))*;)
    }

    /// Reads a value that the snapshot may hold under this name for another variable.
    pub(super) fn read_where_kept(&self, var: VarId, read: &TokenStream) -> TokenStream {
        let name = self.kept_here_name(var);
        emit!(if #name { #read } else { ::core::option::Option::None })
    }

    fn kept_here_name(&self, var: VarId) -> proc_macro2::Ident {
        quote::format_ident!("is_kept_{}", var.0, span = proc_macro2::Span::mixed_site())
    }

    /// Makes a `#[fresh]` variable again, if the cut point of the resume needs it.
    fn make_fresh(&mut self, var: VarId, restored: &[VarId]) -> TokenStream {
        let VarKind::Fresh(id) = self.cx.table.var(var).kind else { return TokenStream::new() };
        let again = &self.cx.table.reborrows[id.0];
        let (init, fiber) = (again.init.to_token_stream(), self.fiber.clone());
        // The written type may be another one, to which the value is coerced.
        let init = match &self.cx.table.var(var).ty {
            Some(ty) => emit!({ let anew: #ty = #init; anew }),
            None => init,
        };
        let bases: BTreeSet<VarId> = again.bases.iter().copied().collect();
        let (taken, open) = (self.taken.len(), self.open.clone());
        self.open = self.outside.clone().unwrap_or_else(|| open.clone());
        let plain: Vec<VarId> = restored.iter().copied().filter(|v| self.storage(*v) == Storage::Plain).collect();
        self.open.extend(plain);
        let all = bases.clone();
        let mut opening = TokenStream::new();
        for &base in bases.iter().filter(|v| !self.made_again(**v) && !self.open.contains(v)).collect::<Vec<_>>() {
            opening.extend(self.take(base, &all, PointId::UNSET));
        }
        let mut made = BTreeSet::new();
        for base in bases {
            self.make_reborrow(base, PointId::UNSET, &mut made, &mut opening);
        }
        let put_back = self.put_back(taken, &all);
        self.taken.truncate(taken);
        self.open = open;
        let anew = if opening.is_empty() { emit!(#init) } else { emit!({ #opening let anew = #init; #put_back anew }) };
        if self.storage(var) == Storage::Plain {
            let (ident, aliases) = (self.ident(var), self.alias_declared(&[var]));
            return emit!(let mut #ident = #anew; #aliases);
        }
        let place = self.place(var);
        let needed: Vec<_> = self.cx.plan.needed_at(var).map(super::number).collect();
        if needed.is_empty() {
            return emit!(let #place = ::core::option::Option::None;);
        }
        emit!(let #place = if #(#fiber.inside(#needed..=#needed))||* { ::core::option::Option::Some(#anew) } else { ::core::option::Option::None };)
    }
}
