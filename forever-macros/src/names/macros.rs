//! Variables used in the arguments of macros: as identifiers, and in format strings.
//!
//! The meaning of a macro's arguments is known only to the macro. Every identifier that could be a
//! variable in scope counts as a use, except where the tokens around it exclude that (`.field`,
//! `path::item`, `name: value`, `name = value`). A use too many keeps a value that need not be
//! kept. A missed use gives a compile error at the user's token.
use proc_macro2::{Delimiter, Literal, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::{Expr, Macro, Pat, Token};

use super::Names;
use crate::flow::Flow;
use crate::ids::VarId;

/// Macros that never return. Only the compiler knows which others do not, so those count as
/// returning.
const DIVERGING: &[&str] = &["panic", "bail", "unreachable", "todo", "unimplemented"];

/// Macros that move none of the variables among their arguments, as far as these are not part of an
/// expression that does.
const BORROWING: &[&str] = &[
    "anyhow",
    "assert",
    "assert_eq",
    "assert_ne",
    "bail",
    "debug",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "ensure",
    "eprint",
    "eprintln",
    "error",
    "format",
    "format_args",
    "info",
    "json",
    "matches",
    "panic",
    "print",
    "println",
    "todo",
    "trace",
    "unreachable",
    "warn",
    "write",
    "writeln",
];

/// A variable, where it is named, and the fields named after it.
type Found = (VarId, Span, Vec<syn::Member>);

impl Names<'_> {
    pub(super) fn macro_call(&mut self, mac: &Macro) -> Flow {
        if mac.path.is_ident("macro_rules") {
            return Flow::Nothing;
        }
        let mut found = Vec::new();
        // `json!({ key: 1 })`: an expression comes before the colon.
        let keys = mac.path.segments.last().is_some_and(|s| s.ident == "json" || s.ident == "json_internal");
        if mac.path.segments.last().is_some_and(|s| s.ident == "matches") {
            self.matches(mac.tokens.clone(), keys, &mut found);
        } else {
            self.tokens(mac.tokens.clone(), keys, &mut found);
        }
        let mut flow = Flow::Nothing;
        let borrows = mac.path.segments.last().is_some_and(|s| BORROWING.iter().any(|name| s.ident == name));
        for (id, span, path) in found {
            if !borrows && path.is_empty() {
                self.moved_whole(id);
            }
            flow.push(self.use_of_part(id, span, path));
        }
        if mac.path.is_ident("vec") {
            flow.push(self.moved_into_list(mac));
        }
        if mac.path.segments.last().is_some_and(|s| DIVERGING.iter().any(|name| s.ident == name)) {
            flow.push(Flow::Return);
        }
        flow
    }

    fn tokens(&mut self, tokens: TokenStream, keys: bool, found: &mut Vec<Found>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (place, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) if is_matches(&tokens[..place]) => self.matches(group.stream(), keys, found),
                TokenTree::Group(group) => self.tokens(group.stream(), keys, found),
                TokenTree::Ident(ident) => {
                    if ident == "break" || ident == "continue" {
                        self.hidden_jump.get_or_insert(ident.span());
                    }
                    if may_be_variable(&tokens, place, keys) {
                        found.extend(
                            self.lookup(&ident.to_string()).map(|id| (id, ident.span(), super::parts::path_behind(&tokens, place))),
                        );
                    }
                }
                TokenTree::Literal(literal) => self.literal(literal, found),
                TokenTree::Punct(_) => {}
            }
        }
    }

    /// `matches!(value, pattern if guard)`: the bindings of the pattern are no variables of the
    /// function.
    fn matches(&mut self, tokens: TokenStream, keys: bool, found: &mut Vec<Found>) {
        let parse = |input: syn::parse::ParseStream<'_>| {
            let value: Expr = input.parse()?;
            input.parse::<Token![,]>()?;
            let pat = Pat::parse_multi_with_leading_vert(input)?;
            let guard: TokenStream = input.parse()?;
            Ok((value, pat, guard))
        };
        let Ok((value, pat, guard)) = parse.parse2(tokens.clone()) else { return self.tokens(tokens, keys, found) };
        self.tokens(value.to_token_stream(), keys, found);
        let bound: Vec<_> = crate::pattern::bindings(&pat).into_iter().map(|b| b.ident).collect();
        let first = found.len();
        self.tokens(guard, keys, found);
        let mut place = 0;
        found.retain(|(id, ..)| {
            place += 1;
            place <= first || !bound.contains(&self.table.var(*id).ident)
        });
    }

    fn literal(&self, literal: &Literal, found: &mut Vec<Found>) {
        let text = literal.to_string();
        let names = super::format::captures(&text).into_iter().filter_map(|capture| self.lookup(&capture.name));
        found.extend(names.map(|id| (id, literal.span(), Vec::new())));
    }
}

/// Whether the next tokens are the arguments of `matches!`.
fn is_matches(before: &[TokenTree]) -> bool {
    matches!(before, [.., TokenTree::Ident(name), TokenTree::Punct(mark)] if name == "matches" && mark.as_char() == '!')
}

/// Whether an identifier can be a variable, by the tokens around it.
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
