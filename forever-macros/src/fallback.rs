//! What is emitted when a function cannot be lowered: an item of the same name, so that callers and editors keep working.
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ItemFn;

/// A function whose head was refused stays as it is, its cut points standing for their bodies.
pub(crate) fn function(item: &ItemFn, private: &syn::Path) -> TokenStream {
    let (attrs, vis, sig, stmts) = (&item.attrs, &item.vis, &item.sig, &item.block.stmts);
    quote! {
        #(#attrs)*
        #[allow(unused_imports)]
        #vis #sig {
            use #private::ide::{call, step};
            #(#stmts)*
        }
    }
}

/// Tokens that are no function: an item of the name that follows `fn`, if one does.
pub(crate) fn tokens(item: &TokenStream) -> TokenStream {
    let mut tokens = item.clone().into_iter();
    while let Some(token) = tokens.next() {
        if matches!(&token, TokenTree::Ident(ident) if ident == "fn") {
            if let Some(TokenTree::Ident(name)) = tokens.next() {
                return quote! {
                    #[allow(dead_code, non_camel_case_types)]
                    fn #name() {}
                };
            }
        }
    }
    item.to_token_stream()
}
