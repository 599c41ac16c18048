//! Where the function stands in its file, for people: its text, and the places of its cut points
//! and locals in it. No part of the layout.
//!
//! Comes in: the tokens of the item, and the plan. Outside of a compiler, as in unit tests, and
//! where a macro has put the tokens together, there is no text, and nothing is recorded.
use proc_macro2::{Literal, Span, TokenStream, TokenTree};

use crate::hir::Body;
use crate::names::Table;
use crate::plan::Plan;

/// `quote!` with mixed-site hygiene.
macro_rules! emit {
    ($($tokens:tt)*) => { ::quote::quote_spanned!(Span::mixed_site()=> $($tokens)*) };
}

/// Text of a function, from its first token behind the attributes.
struct Text {
    text: String,
    /// Line and column of its first character.
    line: usize,
    column: usize,
    /// Last line.
    end: usize,
}

/// `Some(Source { .. })`, or `None` where the source is not known or not wanted.
pub(crate) fn source(is_wanted: bool, item: &TokenStream, private: &syn::Path, lowered: Option<(&Body, &Table, &Plan)>) -> TokenStream {
    let (Some((body, table, plan)), Some(text)) = (lowered, Text::of(item)) else {
        return emit!(::core::option::Option::None);
    };
    let cuts = body.cuts.iter().map(|cut| {
        let (line, column) = text.place(cut.span).unwrap_or((u32::MAX, 0));
        let (end, _) = text.place(cut.end).unwrap_or((line, 0));
        let [line, column, end] = [line, column, end].map(Literal::u32_unsuffixed);
        emit!((#line, #column, #end))
    });
    let cuts: Vec<_> = cuts.collect();
    let mut seen = std::collections::BTreeSet::new();
    let locals = plan.first_kept().filter_map(|(var, _)| {
        let key = plan.key_of(var)?;
        let (line, _) = text.place(table.var(var).ident.span())?;
        seen.insert(key.to_owned()).then(|| {
            let line = Literal::u32_unsuffixed(line);
            emit!((#key, #line))
        })
    });
    let locals: Vec<_> = locals.collect();
    let [line, column] = [text.line, text.column].map(|n| Literal::u32_unsuffixed(u32::try_from(n).unwrap_or(u32::MAX)));
    let written = if is_wanted { &*text.text } else { "" };
    emit! {
        ::core::option::Option::Some(#private::SourceSpec {
            file: ::core::file!(), line: #line, column: #column, text: #written, cuts: &[#(#cuts),*], locals: &[#(#locals),*],
        })
    }
}

impl Text {
    fn of(item: &TokenStream) -> Option<Self> {
        if !proc_macro::is_available() {
            return None;
        }
        let mut tokens = item.clone().into_iter().peekable();
        // Attributes: `#` and a group each.
        while matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#') {
            tokens.next();
            tokens.next();
        }
        let first = tokens.peek()?.span().unwrap();
        let (line, column) = (first.line(), first.column());
        let (mut text, mut at) = (String::new(), (line, column));
        for token in tokens {
            let span = token.span();
            let (written, span) = (span.source_text()?, span.unwrap());
            let start = (span.line(), span.column());
            // Tokens of several places, put together by a macro.
            if start < at || start.0 - at.0 > 200 {
                return None;
            }
            if start.0 > at.0 {
                text.push_str(&"\n".repeat(start.0 - at.0));
                text.push_str(&" ".repeat(start.1.saturating_sub(1)));
            } else {
                text.push_str(&" ".repeat(start.1 - at.1));
            }
            text.push_str(&written);
            let end = span.end();
            at = (end.line(), end.column());
        }
        Some(Text { text, line, column, end: at.0 })
    }

    /// Line of a span, counted from the function's first, and its column.
    fn place(&self, span: Span) -> Option<(u32, u32)> {
        let span = span.unwrap();
        let is_inside = (self.line..=self.end).contains(&span.line());
        is_inside.then(|| u32::try_from(span.line() - self.line).ok().zip(u32::try_from(span.column()).ok()))?
    }
}
