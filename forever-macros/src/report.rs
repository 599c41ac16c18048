//! Collects the errors of a function, so that all of them are reported at once.
use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The errors found so far, in the order in which the passes found them.
#[derive(Default)]
pub(crate) struct Report {
    errors: Vec<syn::Error>,
}

impl Report {
    /// Reports at a single place.
    pub(crate) fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// Reports over everything that `tokens` covers.
    pub(crate) fn over(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn push(&mut self, error: syn::Error) {
        self.errors.push(error);
    }

    pub(crate) fn append(&mut self, mut other: Report) {
        self.errors.append(&mut other.errors);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// All errors as `compile_error!` invocations, without duplicates of a message at one place.
    pub(crate) fn to_compile_errors(&self) -> TokenStream {
        let mut seen = std::collections::BTreeSet::new();
        let mut tokens = TokenStream::new();
        for error in self.errors.iter().flat_map(|e| e.clone().into_iter()) {
            if seen.insert((format!("{:?}", error.span()), error.to_string())) {
                tokens.extend(error.to_compile_error());
            }
        }
        tokens
    }

    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<String> {
        self.errors.iter().flat_map(|e| e.clone().into_iter()).map(|e| e.to_string()).collect()
    }
}
