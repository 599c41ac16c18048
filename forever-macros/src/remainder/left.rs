//! The value that holds the remaining fields of a variable, under the same names.
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::Member;

/// Largest number of fields: serde has tuples of up to this length.
const MOST_FIELDS: usize = 16;

/// Writes the value with the remaining fields of a variable, and the types that it needs.
pub(super) struct Left<'a> {
    pub(super) private: &'a syn::Path,
    pub(super) structs: &'a mut TokenStream,
    pub(super) span: Span,
}

impl Left<'_> {
    /// `place` with only the given fields.
    pub(super) fn of(&mut self, place: &TokenStream, fields: &[Vec<Member>], name: &str) -> Option<TokenStream> {
        let span = self.span;
        if fields.iter().any(Vec::is_empty) {
            return Some(place.clone());
        }
        let mut members: Vec<&Member> = Vec::new();
        for field in fields {
            if !members.contains(&&field[0]) {
                members.push(&field[0]);
            }
        }
        let mut values = Vec::new();
        for member in &members {
            let inner: Vec<Vec<Member>> = fields.iter().filter(|f| f[0] == **member).map(|f| f[1..].to_vec()).collect();
            let name = format!("{name}_{}", member.to_token_stream());
            values.push(self.of(&quote_spanned!(span=> #place.#member), &inner, &name)?);
        }
        let is_tuple = members.iter().all(|m| matches!(m, Member::Unnamed(_)));
        if is_tuple {
            let index = |m: &Member| if let Member::Unnamed(index) = m { index.index as usize } else { 0 };
            let count = members.iter().map(|m| index(m) + 1).max().filter(|count| *count <= MOST_FIELDS)?;
            let all = (0..count).map(|at| match members.iter().position(|m| index(m) == at) {
                Some(place) => values[place].clone(),
                None => quote_spanned!(span=> ()),
            });
            return Some(quote_spanned!(span=> (#(#all,)*)));
        }
        let private = self.private;
        let serde = quote_spanned!(span=> #private::serde);
        let path = serde.to_string().replace(' ', "");
        let name = format_ident!("left_of_{}", name.trim_start_matches("r#"), span = span);
        let types: Vec<Ident> = (0..members.len()).map(|n| format_ident!("T{n}", span = span)).collect();
        self.structs.extend(quote_spanned! {span=>
            #[allow(non_camel_case_types)]
            #[derive(#serde::Serialize, #serde::Deserialize)]
            #[serde(crate = #path)]
            struct #name<#(#types),*> { #(#members: #types,)* }
        });
        Some(quote_spanned!(span=> #name { #(#members: #values,)* }))
    }
}
