//! Arbitrary tokens: for any input, the macro returns and does not panic.
use std::panic::{AssertUnwindSafe, catch_unwind};

use forever_testkit::prng::Prng;
use forever_testkit::sizes::stride;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::bodies::{CONSTRUCTS, RICH};
use super::dice::{Dice, changed, flat, random_tokens};
use super::tokens;
use crate::expand::expand;

fn survives(attr: &TokenStream, item: &TokenStream, seed: usize) {
    let out = catch_unwind(AssertUnwindSafe(|| expand(attr.clone(), item.clone())));
    assert!(out.is_ok(), "seed {seed}: #[fiber({attr})] {item}");
}

#[test]
fn no_tokens_make_the_macro_panic() {
    for seed in 0..500 / stride(5) {
        let mut dice = Dice::Seed(Prng::new(seed as u64));
        let (a, b, c) = (random_tokens(&mut dice, 3), random_tokens(&mut dice, 3), random_tokens(&mut dice, 2));
        let name = format_ident!("f");
        survives(&a, &b, seed);
        survives(&quote!(), &quote!(async fn #name(#a) -> Result<(), E> { #b }), seed);
        survives(&quote!(), &quote!(async fn #name(x: u32, plan: Plan) -> Result<(), E> { let y = step!(#a); #b; step!(#c); Ok(x) }), seed);
        survives(
            &quote!(),
            &quote!(async fn #name(x: u32, plan: Plan) -> Result<(), E> { let y = steps!(#a, #c); recv!(#b); wait!(#c) }),
            seed,
        );
        survives(
            &quote!(),
            &quote!(async fn #name(x: u32, plan: Plan) -> Result<(), E> { steps!(for #a in #b, #c); sleep!(#c); spawn!(x(#c)) }),
            seed,
        );
        survives(
            &quote!(),
            &quote!(async fn #name(x: u32) -> Result<(), E> { if #a { step!(y) } for plan in #b { step!(plan); } match x { #c => step!(y) } }),
            seed,
        );
    }
}

#[test]
fn no_change_of_a_token_makes_the_macro_panic() {
    let mut bodies = vec![tokens(RICH)];
    bodies.extend(CONSTRUCTS.iter().map(|(_, source)| tokens(source)));
    let mut spare = Vec::new();
    for body in &bodies {
        flat(body, &mut spare);
    }
    for seed in 0..1500 / stride(5) {
        let mut dice = Dice::Seed(Prng::new(seed as u64));
        let mut body = bodies[seed % bodies.len()].clone();
        for _ in 0..=dice.below(3) {
            body = changed(&mut dice, &body, &spare);
        }
        survives(&quote!(), &body, seed);
    }
}
