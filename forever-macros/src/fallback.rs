//! Output for a function that cannot be lowered: an item of the same name, so that callers and
//! editors keep working.
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ItemFn;

use crate::signature::Signature;

/// A function whose head was refused, unchanged; its cut points are replaced by their bodies.
pub(crate) fn function(item: &ItemFn, private: &syn::Path) -> TokenStream {
    let (attrs, vis, sig, stmts) = (&item.attrs, &item.vis, &item.sig, &item.block.stmts);
    let macros = crate::cut::names();
    quote! {
        #(#attrs)*
        #[allow(unused_imports)]
        #vis #sig {
            use #private::ide::{#(#macros),*};
            #(#stmts)*
        }
    }
}

/// A fiber whose head was refused: callers find it, and the compiler reports nothing more about the
/// head.
pub(crate) fn refused(signature: &Signature, private: &syn::Path) -> TokenStream {
    let (vis, name) = (&signature.vis, &signature.name);
    let (impl_generics, _, where_clause) = signature.generics.split_for_impl();
    let params = signature.arguments.iter().map(|a| {
        let (name, ty) = (&a.name, &a.ty);
        quote!(#name: #ty)
    });
    quote! {
        #[allow(non_camel_case_types)]
        #vis struct #name {}

        #[allow(unused_variables, clippy::all, clippy::pedantic)]
        #vis fn #name #impl_generics (#(#params),*) -> #name #where_clause {
            #name {}
        }

        impl #private::Fiber for #name {
            type Output = ();
            type Error = ::std::string::String;
            const MACHINE: &'static #private::Machine = &#private::Machine {
                name: "", version: 0, max_recoveries: ::core::option::Option::None, arguments: &[], cuts: &[], first: &[],
                topics: &[],
                migrate: ::core::option::Option::None, secrets: &[], source: ::core::option::Option::None,
            };
            fn needs(_: &mut #private::Needs<'_>) {}
            fn arguments(_: #private::Arguments<'_, '_, Self>) -> ::core::result::Result<::core::option::Option<Self>, #private::Unreadable> {
                ::core::result::Result::Ok(::core::option::Option::Some(#name {}))
            }
            async fn drive(_: ::core::option::Option<Self>, _: &#private::FiberContext, _: &mut #private::Frame) -> ::core::result::Result<(), ::std::string::String> {
                ::core::result::Result::Ok(())
            }
        }
    }
}

/// An item of the name after `fn`, for tokens that are no function; nothing if there is no such
/// name.
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
