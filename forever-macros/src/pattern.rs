//! The variables that a pattern binds.
//!
//! A lone identifier may be a constant. The compiler knows and a macro does not, so the case of its
//! first letter decides. A mistake is a compile error: a binding that is taken for a constant is
//! not restored, and its use on a resume does not compile.
use syn::{Ident, Pat};

/// One variable bound by a pattern.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // each is a word of the pattern's, and they are independent
pub(crate) struct Binding {
    pub(crate) ident: Ident,
    pub(crate) by_ref: bool,
    pub(crate) by_ref_mut: bool,
    pub(crate) mutable: bool,
    /// It is under a `&`, and so a copy of whatever it came from.
    pub(crate) copied: bool,
}

/// Whether an attribute is `#[secret]`, before an argument or a `let`.
pub(crate) fn is_secret(attr: &syn::Attribute) -> bool {
    attr.path().is_ident("secret")
}

/// The variables of a pattern in source order. All alternatives of an or-pattern bind the same
/// ones, so the first is used.
pub(crate) fn bindings(pat: &Pat) -> Vec<Binding> {
    let mut found = Vec::new();
    collect(pat, false, &mut found);
    found
}

fn collect(pat: &Pat, copied: bool, found: &mut Vec<Binding>) {
    match pat {
        Pat::Ident(p) => {
            if is_binding(p) {
                found.push(Binding {
                    ident: p.ident.clone(),
                    by_ref: p.by_ref.is_some(),
                    by_ref_mut: p.by_ref.is_some() && p.mutability.is_some(),
                    mutable: p.by_ref.is_none() && p.mutability.is_some(),
                    copied: p.by_ref.is_none() && copied,
                });
            }
            if let Some((_, sub)) = &p.subpat {
                collect(sub, copied, found);
            }
        }
        Pat::Guard(p) => collect(&p.pat, copied, found),
        Pat::Or(p) => {
            if let Some(first) = p.cases.first() {
                collect(first, copied, found);
            }
        }
        Pat::Paren(p) => collect(&p.pat, copied, found),
        Pat::Reference(p) => collect(&p.pat, true, found),
        Pat::Slice(p) => p.elems.iter().for_each(|e| collect(e, copied, found)),
        Pat::Struct(p) => p.fields.iter().for_each(|f| collect(&f.pat, copied, found)),
        Pat::Tuple(p) => p.elems.iter().for_each(|e| collect(e, copied, found)),
        Pat::TupleStruct(p) => p.elems.iter().for_each(|e| collect(e, copied, found)),
        Pat::Type(p) => collect(&p.pat, copied, found),
        _ => {}
    }
}

/// Whether an identifier in a pattern is a variable, by the case of its first letter.
pub(crate) fn is_binding(p: &syn::PatIdent) -> bool {
    let explicit = p.by_ref.is_some() || p.mutability.is_some() || p.subpat.is_some();
    let text = p.ident.to_string();
    let first = text.trim_start_matches("r#").trim_start_matches('_').chars().next();
    explicit || first.is_none_or(|c| !c.is_uppercase())
}
