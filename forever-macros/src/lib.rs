//! The `#[fiber]` attribute and the cut-point macros.
use proc_macro::TokenStream;
/// To be replaced.
#[proc_macro_attribute]
pub fn fiber(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// To be replaced.
#[proc_macro]
pub fn step(item: TokenStream) -> TokenStream {
    item
}
/// To be replaced.
#[proc_macro]
pub fn call(item: TokenStream) -> TokenStream {
    item
}
