//! Tests of the passes, on tokens.
mod bodies;
mod dice;
mod editors;
mod errors;
mod expansions;
mod flows;
mod generated;
mod held;
mod names;
mod places;
mod plans;
mod random_tokens;
mod rulings;
mod written;

use proc_macro2::TokenStream;
use quote::quote;

use crate::expand::{Lowered, expand, lowered};
use crate::report::Report;
use crate::{plan, signature};

/// The expansion as text, formatted.
fn expanded(attr: TokenStream, item: TokenStream) -> String {
    let tokens = expand(attr, item);
    match syn::parse2::<syn::File>(tokens.clone()) {
        Ok(file) => prettyplease::unparse(&file),
        Err(error) => format!("{error}\n{tokens}"),
    }
}

/// The tokens of a fiber function, which is written without its attribute.
fn tokens(source: &str) -> TokenStream {
    source.parse().unwrap_or_else(|error| panic!("{error}: {source}"))
}

/// The passes up to the plan, on a function without errors.
fn analysed(source: &str) -> Lowered {
    let function: syn::ItemFn = syn::parse2(tokens(source)).unwrap_or_else(|error| panic!("{error}: {source}"));
    let mut report = Report::default();
    let signature = signature::read(&function, &mut report);
    let lowered = lowered(&function, &signature, &syn::parse_quote!(::forever::__private), &mut report);
    assert_eq!(report.messages(), Vec::<String>::new(), "{source}");
    lowered
}

/// The plan as a table.
fn planned(source: &str) -> String {
    let Lowered { body, table, plan, .. } = analysed(source);
    plan::Shown { plan: &plan, body: &body, table: &table }.to_string()
}

/// The variables that the cut point with this name keeps.
fn kept(source: &str, step: &str) -> Vec<String> {
    let plan = analysed(source).plan;
    let cut = plan.names.iter().position(|(name, _)| name == step).unwrap_or_else(|| panic!("no step `{step}` in {source}"));
    plan.kept[cut].iter().map(|kept| kept.key.clone()).collect()
}

/// The errors of an item.
fn messages(attr: &str, item: &str) -> Vec<String> {
    let file: syn::File = syn::parse2(expand(tokens(attr), tokens(item))).expect("an expansion is a list of items");
    let errors = file.items.iter().filter_map(|item| match item {
        syn::Item::Macro(item) if item.mac.path.segments.last().is_some_and(|s| s.ident == "compile_error") => Some(&item.mac),
        _ => None,
    });
    errors.map(|mac| mac.parse_body::<syn::LitStr>().expect("a message is a text").value()).collect()
}

/// Prints the expansion of the function in the file that `SHOW` names: `SHOW=body.rs cargo test show -- --ignored --nocapture`.
#[test]
#[ignore = "a tool, not a test"]
fn show() {
    let text = std::fs::read_to_string(std::env::var("SHOW").expect("`SHOW` names a file")).expect("it can be read");
    println!("{}", expanded(quote!(), tokens(&text)));
}

/// Prints how long the expansions of the examples' fibers are: `cargo test -p forever-macros sizes -- --ignored --nocapture`.
#[test]
#[ignore = "a tool, not a test"]
fn sizes() {
    fn count(tokens: TokenStream) -> usize {
        let inside = |token| if let proc_macro2::TokenTree::Group(group) = token { count(group.stream()) } else { 0 };
        tokens.into_iter().map(|token| 1 + inside(token)).sum()
    }
    let fibers = editors::functions_of(&["../examples", "../examples/support"]);
    let expansions: Vec<TokenStream> = fibers.iter().map(|fiber| expand(quote!(), fiber.clone())).collect();
    let tokens: usize = expansions.iter().cloned().map(count).sum();
    let lines: usize = fibers.into_iter().map(|fiber| expanded(quote!(), fiber).lines().count()).sum();
    println!("fibers={} lines={lines} tokens={tokens}", expansions.len());
}
