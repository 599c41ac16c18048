//! The expansion of functions that are written by the input, and of those of the examples with pieces exchanged: no panic, always a list of items.
#![no_main]
// As in the crate that these files are of.
#![allow(dead_code, unused_imports, clippy::all, clippy::pedantic)]

// Where no compiler listens, it says so.
extern crate proc_macro;

/// The passes, which know each other as modules of the crate's root.
#[path = "../../forever-macros/src"]
mod macros {
    pub(crate) mod attributes;
    pub(crate) mod check;
    pub(crate) mod cut;
    pub(crate) mod emit;
    pub(crate) mod expand;
    pub(crate) mod fact;
    pub(crate) mod fallback;
    pub(crate) mod flow;
    pub(crate) mod held;
    pub(crate) mod hir;
    pub(crate) mod ids;
    pub(crate) mod kept;
    pub(crate) mod lower;
    pub(crate) mod messages;
    pub(crate) mod names;
    pub(crate) mod options;
    pub(crate) mod pattern;
    pub(crate) mod place;
    pub(crate) mod plan;
    pub(crate) mod remainder;
    pub(crate) mod report;
    pub(crate) mod scan;
    pub(crate) mod sealed;
    pub(crate) mod signature;
    pub(crate) mod source;
    pub(crate) mod text;
    pub(crate) mod texts;
    pub(crate) mod values;

    #[path = "tests/dice.rs"]
    pub(crate) mod dice;
    #[path = "tests/written.rs"]
    pub(crate) mod written;
}

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use macros::dice::{Dice, changed, flat};
use macros::{
    attributes, check, cut, emit, expand, fact, fallback, flow, held, hir, ids, kept, lower, messages, names, options, pattern, place,
    plan, remainder, report, scan, sealed, signature, source, text, texts, values, written,
};
use proc_macro2::TokenStream;
use quote::ToTokens;

thread_local! {
    /// The functions of the examples and of the tests of the language, in order.
    static FUNCTIONS: Vec<TokenStream> = functions();
}

fn functions() -> Vec<TokenStream> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut files: Vec<_> = ["examples", "tests/it/language", "tests/ops"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).expect("it can be read"))
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("it can be read");
        collect(syn::parse_file(&text).expect("it is Rust").items, &mut found);
    }
    found
}

fn collect(items: Vec<syn::Item>, found: &mut Vec<TokenStream>) {
    for item in items {
        match item {
            syn::Item::Fn(mut function) if function.sig.asyncness.is_some() => {
                function.attrs.clear();
                found.push(function.to_token_stream());
            }
            syn::Item::Mod(module) => collect(module.content.map(|(_, items)| items).unwrap_or_default(), found),
            _ => {}
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let mut dice = Dice::Bytes(rest);
    let (attr, item) = if first % 2 == 0 {
        let mut author = written::Author::new(&mut dice);
        let (options, function) = (author.options(), author.function());
        (options.parse().expect("it is tokens"), function.parse().expect("it is tokens"))
    } else {
        FUNCTIONS.with(|functions| {
            let mut item = functions[dice.below(functions.len())].clone();
            let mut spare = Vec::new();
            flat(&functions[dice.below(functions.len())], &mut spare);
            for _ in 0..=dice.below(6) {
                item = changed(&mut dice, &item, &spare);
            }
            (TokenStream::new(), item)
        })
    };
    let out = expand::expand(attr, item.clone());
    if let Ok(function) = syn::parse2::<syn::ItemFn>(item) {
        let file = syn::parse2::<syn::File>(out).expect("what comes out is a list of items");
        let named = |item: &syn::Item| matches!(item, syn::Item::Fn(found) if found.sig.ident == function.sig.ident);
        assert!(file.items.iter().any(named), "an item of its name comes out");
    }
});
