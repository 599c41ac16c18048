//! Arbitrary tokens: whatever comes in, the macro gives an answer and does not panic.
use std::panic::{AssertUnwindSafe, catch_unwind};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::{format_ident, quote};

use super::bodies::{CONSTRUCTS, RICH};
use super::tokens;
use crate::expand::expand;

/// A generator of numbers that gives the same ones each time (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.number() % n as u64).expect("it is below a usize")
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

const WORDS: &[&str] = &[
    "step",
    "call",
    "step !",
    "call !",
    "sleep !",
    "sleep_until !",
    "recv !",
    "recv ! (\"topic\")",
    "spawn !",
    "wait !",
    "wait_all !",
    "steps !",
    "for x in y ,",
    "limit =",
    "x",
    "y",
    "plan",
    "self",
    "Self",
    "_",
    "__ra_fixup",
    "r#type",
    "let",
    "mut",
    "ref",
    "if",
    "else",
    "match",
    "loop",
    "while",
    "for",
    "in",
    "break",
    "continue",
    "return",
    "async",
    "await",
    ". await",
    "move",
    "fn",
    "const",
    "unsafe",
    "struct",
    "impl",
    "dyn",
    "where",
    "as",
    "'a",
    "'a :",
    "\"{x}\"",
    "\"{x:>y$.plan$}\"",
    "\"{\"",
    "\"{{{}\"",
    "r#\"{x\"#",
    "b\"x\"",
    "'c'",
    "1",
    "1.0",
    "0..",
    "true",
    "=",
    "==",
    "=>",
    "->",
    "+",
    "-",
    "*",
    "/",
    "&",
    "&&",
    "|",
    "||",
    "!",
    "?",
    ".",
    "..",
    "..=",
    ",",
    ";",
    ":",
    "::",
    "<",
    ">",
    "#",
    "@",
    "$",
    "é",
    "retry =",
    "timeout =",
    "was =",
    "effect",
    "effect ,",
    "key =",
    "on_unknown =",
    "|op|",
    "# [fresh]",
    "# [cfg (a)]",
    "macro_rules !",
    "Some",
    "None",
    "Ok",
    "println !",
    "vec !",
];

/// A handful of tokens and groups.
fn soup(dice: &mut Dice, depth: usize) -> TokenStream {
    let mut out = TokenStream::new();
    for _ in 0..dice.below(8) {
        if depth > 0 && dice.below(4) == 0 {
            let delimiter = [Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None][dice.below(4)];
            let inside = soup(dice, depth - 1);
            out.extend([TokenTree::Group(Group::new(delimiter, inside))]);
        } else {
            out.extend(tokens(dice.one_of(WORDS)));
        }
    }
    out
}

/// The tokens with one of them removed, doubled, or replaced, somewhere.
fn changed(dice: &mut Dice, stream: &TokenStream, spare: &[TokenTree]) -> TokenStream {
    let mut all: Vec<TokenTree> = stream.clone().into_iter().collect();
    if all.is_empty() {
        return soup(dice, 1);
    }
    let place = dice.below(all.len());
    if let (TokenTree::Group(group), true) = (&all[place], dice.below(8) > 0) {
        let mut inside = Group::new(group.delimiter(), changed(dice, &group.stream(), spare));
        inside.set_span(group.span());
        all[place] = TokenTree::Group(inside);
        return all.into_iter().collect();
    }
    match dice.below(4) {
        0 => drop(all.remove(place)),
        1 => all.insert(place, all[place].clone()),
        2 => all[place] = spare[dice.below(spare.len())].clone(),
        _ => all.insert(place, spare[dice.below(spare.len())].clone()),
    }
    all.into_iter().collect()
}

/// All tokens and groups of a stream.
fn flat(stream: &TokenStream, found: &mut Vec<TokenTree>) {
    for token in stream.clone() {
        if let TokenTree::Group(group) = &token {
            flat(&group.stream(), found);
        }
        found.push(token);
    }
}

fn survives(attr: &TokenStream, item: &TokenStream, seed: usize) {
    let out = catch_unwind(AssertUnwindSafe(|| expand(attr.clone(), item.clone())));
    assert!(out.is_ok(), "seed {seed}: #[fiber({attr})] {item}");
}

#[test]
fn no_tokens_make_the_macro_panic() {
    for seed in 0..500 {
        let mut dice = Dice(seed as u64);
        let (a, b, c) = (soup(&mut dice, 3), soup(&mut dice, 3), soup(&mut dice, 2));
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
    for seed in 0..1500 {
        let mut dice = Dice(seed as u64);
        let mut body = bodies[seed % bodies.len()].clone();
        for _ in 0..=dice.below(3) {
            body = changed(&mut dice, &body, &spare);
        }
        survives(&quote!(), &body, seed);
    }
}
