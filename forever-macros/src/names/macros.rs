//! Variables used in the arguments of macros: as identifiers, and in format strings.
//!
//! A macro's arguments are tokens whose meaning is the macro's. Every identifier that could be a variable in scope counts as
//! a use, except where the tokens around it say otherwise (`.field`, `path::item`, `name: value`, `name = value`). Counting
//! too many keeps a value that need not be kept; counting too few does not compile, loudly, at the user's token.
use proc_macro2::{Delimiter, Literal, Spacing, Span, TokenStream, TokenTree};
use syn::Macro;

use super::{Names, VarId};
use crate::flow::Flow;

impl Names<'_> {
    pub(super) fn macro_call(&mut self, mac: &Macro) -> Flow {
        if mac.path.is_ident("macro_rules") {
            return Flow::Nothing;
        }
        let mut found = Vec::new();
        // `json!({ key: 1 })`: what stands before a colon is an expression.
        let keys = mac.path.segments.last().is_some_and(|s| s.ident == "json" || s.ident == "json_internal");
        self.tokens(mac.tokens.clone(), keys, &mut found);
        let mut flow = Flow::Nothing;
        for (id, span) in found {
            flow.push(self.use_of(id, span));
        }
        flow
    }

    fn tokens(&mut self, tokens: TokenStream, keys: bool, found: &mut Vec<(VarId, Span)>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (place, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream(), keys, found),
                TokenTree::Ident(ident) => {
                    if ident == "break" || ident == "continue" {
                        self.hidden_jump.get_or_insert(ident.span());
                    }
                    if may_be_variable(&tokens, place, keys) {
                        found.extend(self.lookup(&ident.to_string()).map(|id| (id, ident.span())));
                    }
                }
                TokenTree::Literal(literal) => self.literal(literal, found),
                TokenTree::Punct(_) => {}
            }
        }
    }

    fn literal(&self, literal: &Literal, found: &mut Vec<(VarId, Span)>) {
        let text = literal.to_string();
        if !(text.starts_with('"') || text.starts_with("r\"") || text.starts_with("r#")) {
            return;
        }
        let names = captures(&text).into_iter().filter_map(|capture| self.lookup(&text[capture]));
        found.extend(names.map(|id| (id, literal.span())));
    }
}

/// Whether the tokens around an identifier leave it the name of a variable.
fn may_be_variable(tokens: &[TokenTree], place: usize, keys: bool) -> bool {
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
    !(is_field || is_path || is_name || is_macro || is_label)
}

/// Where a format string names variables: `{x}`, `{x:?}`, `{0:w$}`, `{:>w$.p$}`.
fn captures(text: &str) -> Vec<std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut i = 0;
    let raw = text.starts_with('r');
    while i < bytes.len() {
        if bytes[i] == b'\\' && !raw {
            // `\u{c}` is a character, not a capture.
            i = match text[i..].strip_prefix("\\u{").and_then(|rest| rest.find('}')) {
                Some(length) => i + "\\u{".len() + length + 1,
                None => i + 2,
            };
            continue;
        }
        if bytes[i] != b'{' {
            i += 1;
            continue;
        }
        if bytes.get(i + 1) == Some(&b'{') {
            i += 2;
            continue;
        }
        let start = i + 1;
        let Some(length) = text[start..].find(['}', '{']) else { break };
        let end = start + length;
        let argument = &text[start..end];
        let name_end = argument.find(':').unwrap_or(argument.len());
        let name = argument[..name_end].trim_end();
        if is_name(name) {
            found.push(start..start + name.len());
        }
        if let Some(spec) = argument.get(name_end + 1..) {
            for (dollar, _) in spec.match_indices('$') {
                let first = spec[..dollar]
                    .rfind(|c: char| !c.is_alphanumeric() && c != '_')
                    .map_or(0, |p| p + spec[p..].chars().next().map_or(1, char::len_utf8));
                // A fill character stands right before the alignment: `{:a<w$}`.
                if is_name(&spec[first..dollar]) {
                    found.push(start + name_end + 1 + first..start + name_end + 1 + dollar);
                }
            }
        }
        i = end + 1;
    }
    found
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
}
