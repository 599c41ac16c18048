//! Variables used in the arguments of macros: as identifiers, and in format strings.
//!
//! A macro's arguments are tokens whose meaning is the macro's. Every identifier that could be a variable in scope counts as
//! a use, except where the tokens around it say otherwise (`.field`, `path::item`, `name: value`, `name = value`). Counting
//! too many keeps a value that need not be kept; counting too few does not compile, loudly, at the user's token.
use proc_macro2::{Delimiter, Group, Literal, Spacing, TokenStream, TokenTree};
use syn::{Ident, Macro};

use super::{Names, Renames, VarId};
use crate::flow::Flow;

/// Macros that leave the function. Of others only the compiler knows; for them less is known of what comes after.
const DIVERGING: &[&str] = &["panic", "bail", "unreachable", "todo", "unimplemented"];

impl Names<'_> {
    pub(super) fn macro_call(&mut self, mac: &mut Macro) -> Flow {
        if mac.path.is_ident("macro_rules") {
            return Flow::Nothing;
        }
        let mut found = Vec::new();
        // `json!({ key: 1 })`: what stands before a colon is an expression.
        let keys = mac.path.segments.last().is_some_and(|s| s.ident == "json" || s.ident == "json_internal");
        mac.tokens = self.tokens(mac.tokens.clone(), keys, &mut found);
        let mut flow = Flow::Nothing;
        for (id, span) in found {
            flow.push(self.use_of(id, span));
        }
        if mac.path.segments.last().is_some_and(|s| DIVERGING.iter().any(|name| s.ident == name)) {
            flow.push(Flow::Return);
        }
        flow
    }

    fn tokens(&mut self, tokens: TokenStream, keys: bool, found: &mut Vec<(VarId, proc_macro2::Span)>) -> TokenStream {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut out = TokenStream::new();
        for (place, token) in tokens.iter().enumerate() {
            let new = match token {
                TokenTree::Group(group) => {
                    let mut inner = Group::new(group.delimiter(), self.tokens(group.stream(), keys, found));
                    inner.set_span(group.span());
                    TokenTree::Group(inner)
                }
                TokenTree::Ident(ident) => {
                    if ident == "break" || ident == "continue" {
                        self.hidden_jump.get_or_insert(ident.span());
                    }
                    TokenTree::Ident(self.ident(ident, &tokens, place, keys, found))
                }
                TokenTree::Literal(literal) => TokenTree::Literal(self.literal(literal, found)),
                punct @ TokenTree::Punct(_) => punct.clone(),
            };
            out.extend([new]);
        }
        out
    }

    fn ident(&self, ident: &Ident, tokens: &[TokenTree], place: usize, keys: bool, found: &mut Vec<(VarId, proc_macro2::Span)>) -> Ident {
        let punct = |i: usize| match tokens.get(i) {
            Some(TokenTree::Punct(p)) => Some((p.as_char(), p.spacing())),
            _ => None,
        };
        let before = place.checked_sub(1).and_then(punct);
        let before_that = place.checked_sub(2).and_then(punct);
        let (after, after_that) = (punct(place + 1), punct(place + 2));
        let is_field = matches!(before, Some(('.', _))) && !matches!(before_that, Some(('.', _)));
        let is_path = matches!((after, after_that), (Some((':', Spacing::Joint)), Some((':', _))))
            || matches!((before_that, before), (Some((':', Spacing::Joint)), Some((':', _))));
        let is_name = !keys && matches!(after, Some((':', Spacing::Alone)))
            || matches!(after, Some(('=', Spacing::Alone))) && !matches!(before, Some(('=' | '<' | '>' | '!', Spacing::Joint)));
        let is_macro = matches!(after, Some(('!', Spacing::Alone)))
            && matches!(tokens.get(place + 2), Some(TokenTree::Group(g)) if g.delimiter() != Delimiter::None);
        let is_label = matches!(before, Some(('\'', _)));
        if is_field || is_path || is_name || is_macro || is_label {
            return ident.clone();
        }
        let Some(id) = self.lookup(&ident.to_string()) else { return ident.clone() };
        found.push((id, ident.span()));
        renamed(self.renames, id, ident)
    }

    fn literal(&self, literal: &Literal, found: &mut Vec<(VarId, proc_macro2::Span)>) -> Literal {
        let text = literal.to_string();
        let mut new = text.clone();
        for capture in super::format::captures(&text).into_iter().rev() {
            let Some(id) = self.lookup(&capture.name) else { continue };
            found.push((id, literal.span()));
            if let Some(name) = self.renames.get(&id) {
                new.replace_range(capture.place, &name.new.to_string());
            }
        }
        if new == text {
            return literal.clone();
        }
        let mut replaced: Literal = new.parse().unwrap_or_else(|_| literal.clone());
        replaced.set_span(literal.span());
        replaced
    }
}

fn renamed(renames: &Renames, id: VarId, ident: &Ident) -> Ident {
    let mut new = renames.get(&id).map_or(ident, |rename| &rename.new).clone();
    new.set_span(ident.span());
    new
}
