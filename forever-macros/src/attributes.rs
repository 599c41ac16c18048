//! Other attributes on a fiber function, and errors for those that cannot work.
//!
//! An attribute macro above `#[fiber]` has already run, and only its effect on the body remains.
//! One below would get the function that makes the invocation instead of the body. Attributes of
//! the compiler and of tools are kept.
use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemFn};

use crate::messages;
use crate::report::Report;
use crate::scan::block_has_cut;
use crate::signature::Signature;

/// Built-in attributes that may be on a function.
const BUILT_IN: &[&str] = &[
    "allow",
    "automatically_derived",
    "cfg",
    "cfg_attr",
    "cold",
    "coverage",
    "deny",
    "deprecated",
    "doc",
    "expect",
    "export_name",
    "forbid",
    "ignore",
    "inline",
    "instruction_set",
    "link_section",
    "must_use",
    "no_mangle",
    "optimize",
    "should_panic",
    "target_feature",
    "track_caller",
    "warn",
];
const TOOLS: &[&str] = &["clippy", "diagnostic", "miri", "rust_analyzer", "rustdoc", "rustfmt"];

/// Reports the attribute macros below `#[fiber]`, and removes them.
pub(crate) fn below(signature: &mut Signature, report: &mut Report) {
    for attr in signature.attrs.iter().filter(|a| !is_kept(a)) {
        report.over(attr.path(), messages::attribute_below(&crate::text::compact(attr.path()), &signature.name.to_string()));
    }
    signature.attrs.retain(is_kept);
}

fn is_kept(attr: &Attribute) -> bool {
    let Some(first) = attr.path().segments.first() else { return true };
    let known = if attr.path().segments.len() == 1 { BUILT_IN } else { TOOLS };
    // `unsafe(..)` wraps an attribute of the compiler.
    known.iter().any(|name| first.ident == name) || attr.path().is_ident("unsafe")
}

/// Whether an attribute macro above has moved the steps into an `async` block of its own; reports
/// it.
pub(crate) fn above(function: &ItemFn, report: &mut Report) -> bool {
    let mut moved = Moved(false);
    moved.visit_block(&function.block);
    if moved.0 {
        report.at(Span::call_site(), messages::ATTRIBUTE_ABOVE);
    }
    moved.0
}

struct Moved(bool);

impl<'ast> Visit<'ast> for Moved {
    fn visit_expr_async(&mut self, block: &'ast syn::ExprAsync) {
        // A keyword that a macro wrote has other source text, or none.
        let is_written = block.async_token.span.source_text().is_none_or(|text| text == "async");
        self.0 |= !is_written && block_has_cut(&block.block);
        visit::visit_expr_async(self, block);
    }
}
