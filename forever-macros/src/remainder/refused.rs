//! Checks of fields that are moved out of variables which are needed whole: that the fields are
//! only copied.
use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned;

use super::{Pass, by_value};
use crate::flow::{Flow, Live};
use crate::hir::{Block, Body, Control, StmtKind};
use crate::ids::{CutId, JumpId, VarId};
use crate::lower::stmt;
use crate::messages;
use crate::names::{Change, Evidence, Part};
use crate::plan::{self, Storage};

/// A field that is moved out of a variable which is needed whole.
struct Refused {
    part: usize,
    /// The cut point that keeps the variable, or one that is beside the move.
    cut: CutId,
    is_beside: bool,
}

impl Pass<'_> {
    /// Puts a check before each move of a field that is needed later; returns the checks as items.
    pub(super) fn refuse(&self, body: &mut Body) -> TokenStream {
        let mut refused: Vec<Refused> = Vec::new();
        for (cut, moved) in &self.moved.at_cut {
            for part in moved {
                let noted = &self.table.parts[part.0];
                if self.is_kept(noted.var, *cut) || self.is_left(noted, *cut) {
                    refused.push(Refused { part: part.0, cut: *cut, is_beside: false });
                }
            }
        }
        // A closure that is made again cannot take a field each time.
        for (part, noted) in self.table.parts.iter().enumerate() {
            let cut = super::borrowing(self.table, &self.needed, noted);
            refused.extend(cut.map(|cut| Refused { part, cut, is_beside: false }));
        }
        let mut beside = Vec::new();
        self.moved_beside(&body.block, &mut beside);
        if !beside.is_empty() {
            // A variable that keeps its own name may be partly moved.
            let storage = plan::plan(body, self.table).storage;
            beside.retain(|refused| storage.get(&self.table.parts[refused.part].var) == Some(&Storage::Carried));
            refused.extend(beside);
        }
        refused.retain(|refused| matches!(self.table.parts[refused.part].change, Change::Moved { certain: true, .. }));
        if refused.is_empty() {
            return TokenStream::new();
        }
        self.refuse_in(&mut body.block, &refused);
        let mut written = BTreeSet::new();
        refused.iter().filter(|refused| written.insert(self.check_name(refused.part))).map(|refused| self.check(refused)).collect()
    }

    /// Finds fields that are moved out in a block without cut points, beside a block with some,
    /// where the variable is needed after both: the blocks export whole variables.
    fn moved_beside(&self, block: &Block, found: &mut Vec<Refused>) {
        let mut note = |moved: Option<&Live>, needed: Option<&Live>, cut: CutId| {
            for part in moved.into_iter().flatten() {
                if needed.is_some_and(|live| live.contains(&self.table.parts[part.0].var)) {
                    found.push(Refused { part: part.0, cut, is_beside: true });
                }
            }
        };
        let mut inner = Vec::new();
        for stmt in &block.stmts {
            let (StmtKind::Control { control, .. }, Some(cuts)) = (&stmt.kind, &stmt.cuts) else { continue };
            let mut left = |id: &JumpId| {
                note(self.moved.at_break.get(id), self.needed.at_break.get(id), *cuts.start());
                note(self.moved.at_continue.get(id), self.needed.at_continue.get(id), *cuts.start());
            };
            match control {
                Control::Branch(branch) => {
                    for arm in &branch.arms {
                        let end = arm.block.end;
                        note(self.moved.at_point.get(&end), self.needed.at_point.get(&end), *cuts.start());
                        inner.push(&arm.block);
                    }
                }
                Control::Loop { id, body, .. } | Control::Scope { id, body, .. } => {
                    left(id);
                    inner.push(body);
                }
                Control::For(for_loop) => {
                    left(&for_loop.id);
                    inner.push(&for_loop.body);
                }
            }
        }
        inner.into_iter().for_each(|block| self.moved_beside(block, found));
    }

    /// Whether a field is among the remaining fields of the variable that it was taken from.
    fn is_left(&self, part: &Part, cut: CutId) -> bool {
        let is_remainder = |id: VarId| id != part.var && self.table.is_left_of(id, part.var);
        let uses_part = |id: VarId| self.table.uses.iter().any(|u| self.table.is_left_of(u.var, id) && part.overlaps(&u.path));
        (0..self.table.vars.len()).map(VarId).any(|id| is_remainder(id) && self.is_kept(id, cut) && uses_part(id))
    }

    fn refuse_in(&self, block: &mut Block, refused: &[Refused]) {
        let mut stmts = Vec::new();
        for mut inner in std::mem::take(&mut block.stmts) {
            let mut found = Vec::new();
            parts_in(&inner.flow, &mut found);
            found.retain(|part| refused.iter().any(|refused| refused.part == *part));
            let checks: TokenStream = found.into_iter().map(|part| self.asked(part)).collect();
            if !checks.is_empty() {
                let check = quote_spanned!(Span::mixed_site()=> if false { ::core::unreachable!(); #checks });
                stmts.push(stmt(StmtKind::Plain(syn::Stmt::Expr(Expr::Verbatim(check), None))));
            }
            if let StmtKind::Control { control, .. } = &mut inner.kind {
                match control {
                    Control::Branch(branch) => branch.arms.iter_mut().for_each(|arm| self.refuse_in(&mut arm.block, refused)),
                    Control::Loop { body, .. } | Control::Scope { body, .. } => self.refuse_in(body, refused),
                    Control::For(for_loop) => self.refuse_in(&mut for_loop.body, refused),
                }
            }
            stmts.push(inner);
        }
        block.stmts = stmts;
    }

    fn check_name(&self, part: usize) -> String {
        let Part { var, path, .. } = &self.table.parts[part];
        let path: String = path.iter().map(|m| format!("_{}", m.to_token_stream()).replace("r#", "")).collect();
        format!("copied_{}{path}_{}", self.table.var(*var).ident.to_string().trim_start_matches("r#"), var.0)
    }

    /// The use of a field's check.
    fn asked(&self, part: usize) -> TokenStream {
        let (name, part) = (self.check_name(part), &self.table.parts[part]);
        let Change::Moved { evidence, .. } = &part.change else { return TokenStream::new() };
        let ask = |span: Span, value: TokenStream| {
            let span = Span::mixed_site().located_at(span);
            let name = Ident::new(&name, span);
            quote_spanned!(span=> #name::OnlyCopied::only_copied(&#value);)
        };
        match evidence {
            Evidence::Place(place) => ask(place.span(), place.to_token_stream()),
            Evidence::Pattern(pattern, place) => {
                let asked = by_value(pattern).into_iter().map(|bound| ask(bound.span(), bound.to_token_stream()));
                quote_spanned!(Span::mixed_site()=> #[allow(unreachable_patterns)] match #place { #pattern => { #(#asked)* }, _ => {} })
            }
        }
    }

    /// The check that a field is copied, not moved.
    fn check(&self, refused: &Refused) -> TokenStream {
        let module = Ident::new(&self.check_name(refused.part), Span::mixed_site());
        let part = &self.table.parts[refused.part];
        let name = self.table.var(part.var).ident.to_string();
        let path: Vec<String> = part.path.iter().map(|m| m.to_token_stream().to_string()).collect();
        let step = self.titles[refused.cut].replace('{', "{{").replace('}', "}}");
        let say = if refused.is_beside { messages::moved_beside_step } else { messages::moved_before_step };
        let message = say(&name, &format!("{name}.{}", path.join(".")), &step);
        let note = messages::take_apart(&name, &path);
        let copied = crate::fact::name(&format!("{name}_{}", path.join("_")), "is_copied", part.change.span());
        quote_spanned! {Span::mixed_site()=>
            mod #module {
                #[diagnostic::on_unimplemented(message = #message, label = "moved out here", note = #note)]
                #[allow(non_camel_case_types)]
                pub(super) trait #copied {
                    fn only_copied(&self) {}
                }
                #[diagnostic::do_not_recommend]
                impl<T: ::core::marker::Copy> #copied for T {}
                pub(super) use #copied as OnlyCopied;
            }
        }
    }
}

fn parts_in(flow: &Flow, found: &mut Vec<usize>) {
    match flow {
        Flow::Part(part) => found.push(*part),
        Flow::Seq(items) | Flow::Either(items) => items.iter().for_each(|f| parts_in(f, found)),
        Flow::Loop(_, body) | Flow::Labelled(_, body) => parts_in(body, found),
        _ => {}
    }
}
