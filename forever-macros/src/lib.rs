//! The `#[fiber]` attribute and the cut-point macros of `forever`; use them through that crate.
//!
//! A compiler in passes, one file each, over `proc_macro2` tokens; this file only hands the tokens
//! over.

// One arm for each case, also where there are only two, beside siblings with more.
#![allow(clippy::single_match_else, clippy::match_bool, clippy::match_like_matches_macro, clippy::collapsible_if)]
// syn's nodes are large, and each function has one tree.
#![allow(clippy::large_enum_variant, clippy::type_complexity)]
// A walk over all kinds of expressions is one long match.
#![allow(clippy::too_many_lines)]
// Passes are verbs: `into_bind` puts an expression into a binding. Helpers of a pass are its
// methods, with or without state.
#![allow(clippy::wrong_self_convention, clippy::unused_self, clippy::self_only_used_in_recursion, clippy::needless_pass_by_value)]
#![allow(clippy::needless_for_each, clippy::struct_field_names, clippy::redundant_closure_for_method_calls, clippy::redundant_closure)]
#![allow(clippy::maybe_infinite_iter)] // numbers run out of names never

mod attributes;
mod check;
mod cut;
mod emit;
mod expand;
mod extended;
mod fact;
mod fallback;
mod flow;
mod held;
mod hir;
mod ids;
mod kept;
mod lower;
mod messages;
mod named;
mod names;
mod options;
mod pattern;
mod place;
mod plan;
mod remainder;
mod report;
mod scan;
mod sealed;
mod secrets;
mod signature;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod texts;
mod values;

use proc_macro::TokenStream;
use quote::quote;

// The macros are documented where they are exported, in `src/language.rs` of the facade, with
// tested examples.

#[allow(missing_docs)]
#[proc_macro_attribute]
pub fn fiber(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(attr.into(), item.into()).into()
}

#[allow(missing_docs)]
#[proc_macro]
pub fn step(_: TokenStream) -> TokenStream {
    outside("step!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn call(_: TokenStream) -> TokenStream {
    outside("call!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn spawn(_: TokenStream) -> TokenStream {
    outside("spawn!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn sleep(_: TokenStream) -> TokenStream {
    outside("sleep!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn sleep_until(_: TokenStream) -> TokenStream {
    outside("sleep_until!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn recv(_: TokenStream) -> TokenStream {
    outside("recv!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn try_recv(_: TokenStream) -> TokenStream {
    outside("try_recv!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn close(_: TokenStream) -> TokenStream {
    outside("close!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn wait(_: TokenStream) -> TokenStream {
    outside("wait!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn wait_all(_: TokenStream) -> TokenStream {
    outside("wait_all!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn steps(_: TokenStream) -> TokenStream {
    outside("steps!")
}

#[allow(missing_docs)]
#[proc_macro]
pub fn select(_: TokenStream) -> TokenStream {
    outside("select!")
}

fn outside(name: &str) -> TokenStream {
    let message = format!("`{name}` can be used only in the body of a `#[fiber]` function");
    quote!(::core::compile_error!(#message)).into()
}
