//! Tests of the passes, on tokens.
use proc_macro2::TokenStream;
use quote::quote;

use crate::expand::expand;

/// The expansion as text, formatted.
pub(crate) fn expanded(attr: TokenStream, item: TokenStream) -> String {
    let tokens = expand(attr, item);
    match syn::parse2::<syn::File>(tokens.clone()) {
        Ok(file) => prettyplease::unparse(&file),
        Err(error) => format!("{error}\n{tokens}"),
    }
}

#[test]
fn show() {
    let text = std::fs::read_to_string(std::env::var("SHOW").unwrap_or_default()).unwrap_or_default();
    if let Ok(tokens) = text.parse() {
        let text = expanded(quote!(), tokens);
        println!("{}", &text[text.find("async fn").unwrap_or(0)..]);
    }
}
