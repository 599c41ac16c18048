//! The `#[fiber]` attribute and the cut-point macros of `forever`; use them through that crate.
//!
//! A compiler in passes, one file each, over `proc_macro2` tokens; this file only hands them over.

mod check;
mod cut;
mod emit;
mod expand;
mod fallback;
mod flow;
mod lower;
mod messages;
mod names;
mod options;
mod pattern;
mod place;
mod plan;
mod report;
mod scan;
mod signature;
#[cfg(test)]
mod tests;
mod tree;

use proc_macro::TokenStream;
use quote::quote;

/// Makes an `async fn` durable: it carries on in the middle after its process is gone.
#[proc_macro_attribute]
pub fn fiber(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(attr.into(), item.into()).into()
}

/// One piece of work that is not repeated once it has finished.
#[proc_macro]
pub fn step(_: TokenStream) -> TokenStream {
    outside("step!")
}

/// Runs another fiber inline, its place kept in this one's snapshot.
#[proc_macro]
pub fn call(_: TokenStream) -> TokenStream {
    outside("call!")
}

fn outside(name: &str) -> TokenStream {
    let message = format!("`{name}` can be used only in the body of a `#[fiber]` function");
    quote!(::core::compile_error!(#message)).into()
}
