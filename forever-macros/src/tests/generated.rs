//! Generated functions, and mutated functions of the examples and the tests: for any input, the
//! macro returns a list of items, always the same.
use forever_testkit::prng::Prng;
use forever_testkit::sizes::stride;
use proc_macro2::{TokenStream, TokenTree};

use super::dice::{Dice, changed, flat};
use super::editors::{complaint, functions_of};
use super::tokens;
use super::written::Author;
use crate::expand::expand;

/// The gate tries one of so many that the night tries.
const GATE: usize = 5;

/// Outcome of an expansion, or what is wrong with it.
fn outcome(attr: &TokenStream, item: &TokenStream) -> Result<Outcome, String> {
    if let Some(complaint) = complaint(attr, item) {
        return Err(complaint);
    }
    let (out, again) = (expand(attr.clone(), item.clone()), expand(attr.clone(), item.clone()));
    if out.to_string() != again.to_string() {
        return Err("it is not the same again".to_owned());
    }
    if syn::parse2::<syn::ItemFn>(item.clone()).is_err() {
        return Ok(Outcome::NoFunction);
    }
    let file = syn::parse2::<syn::File>(out.clone()).map_err(|error| format!("what comes out is no list of items: {error}: {out}"))?;
    let is_error = |mac: &syn::Macro| mac.path.segments.last().is_some_and(|s| s.ident == "compile_error");
    let refuses = |item: &syn::Item| matches!(item, syn::Item::Macro(item) if is_error(&item.mac));
    Ok(if file.items.iter().any(refuses) { Outcome::Refused } else { Outcome::Accepted })
}

enum Outcome {
    NoFunction,
    Refused,
    Accepted,
}

/// Counts the outcomes of all expansions.
fn outcomes(functions: impl Iterator<Item = (TokenStream, TokenStream)>) -> (usize, usize) {
    let (mut accepted, mut refused, mut complaints) = (0, 0, Vec::new());
    for (attr, item) in functions {
        match outcome(&attr, &item) {
            Ok(Outcome::Accepted) => accepted += 1,
            Ok(Outcome::Refused) => refused += 1,
            Ok(Outcome::NoFunction) => {}
            Err(why) => complaints.push(format!("#[fiber({attr})] {item}\n    {why}")),
        }
    }
    complaints.sort_by_key(String::len);
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints[..complaints.len().min(5)].join("\n\n"));
    (accepted, refused)
}

#[test]
fn every_function_that_is_written_gives_a_list_of_items() {
    let written = (0..2000 / stride(GATE) as u64).map(|seed| {
        let mut dice = Dice::Seed(Prng::new(seed));
        let mut author = Author::new(&mut dice);
        let (options, function) = (author.options(), author.function());
        (tokens(&options), tokens(&function))
    });
    let (accepted, refused) = outcomes(written);
    assert!(accepted.min(refused) * stride(GATE) > 200, "{accepted} accepted, {refused} refused: they are too much alike");
}

#[test]
fn no_exchange_of_pieces_between_functions_makes_the_macro_panic() {
    let mut functions = functions_of(&["../examples", "../tests/it/language", "../tests/ops", "../tests/old/programs"]);
    let mut spare: Vec<TokenTree> = Vec::new();
    functions.iter().for_each(|function| flat(function, &mut spare));
    // Keeps only the fibers: other functions are refused for their head.
    functions.retain(|function| matches!(outcome(&TokenStream::new(), function), Ok(Outcome::Accepted)));
    assert!(functions.len() > 80, "{} fibers", functions.len());
    let exchanged = (0..3000 / stride(GATE) as u64).map(|seed| {
        let mut dice = Dice::Seed(Prng::new(seed));
        let mut item = functions[dice.below(functions.len())].clone();
        // One in two has a single exchange, and may still be accepted.
        for _ in 0..=dice.below(2) * dice.below(4) {
            item = changed(&mut dice, &item, &spare);
        }
        (TokenStream::new(), item)
    });
    let (accepted, _) = outcomes(exchanged);
    assert!(accepted * stride(GATE) > 100, "{accepted}");
}

/// Functions that this fuzzing found.
#[test]
fn functions_that_once_gave_no_list_of_items() {
    let found = [
        // No cut point that can be resumed needs the `#[fresh]` variable.
        "async fn f(io: Res<Io>) -> Result<u32, E> { #[fresh] let client = io.client(); return step!(a()); client }",
        // A `+` after the type.
        "async fn f() -> Result<u32, E> + { Ok(step!(a())) }",
    ];
    assert_eq!(outcomes(found.iter().map(|function| (TokenStream::new(), tokens(function)))), (found.len(), 0));
}
