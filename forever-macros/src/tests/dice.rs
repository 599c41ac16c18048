//! Random choices from a seed or from bytes, and token streams that are generated or mutated by
//! them.
use forever_testkit::prng::Prng;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Source of random choices.
pub(crate) enum Dice<'a> {
    /// Numbers that a seed repeats.
    Seed(Prng),
    /// Bytes; when they are used up, all numbers are 0.
    #[allow(dead_code, reason = "what the targets of cargo-fuzz draw from, which have this file as a module")]
    Bytes(&'a [u8]),
}

impl Dice<'_> {
    fn number(&mut self) -> u64 {
        match self {
            Dice::Seed(prng) => prng.number(),
            Dice::Bytes(bytes) => {
                let Some((first, rest)) = bytes.split_first() else { return 0 };
                *bytes = rest;
                u64::from(*first)
            }
        }
    }

    /// A number below `n`; where there are bytes, `n` takes two if it is large.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let number = if n > 256 { self.number() << 8 | self.number() & 0xff } else { self.number() };
        usize::try_from(number % n as u64).expect("it is below a usize")
    }

    pub(crate) fn one_of<'w, T: ?Sized>(&mut self, all: &[&'w T]) -> &'w T {
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
    "try_recv ! (\"topic\")",
    "close ! (\"topic\")",
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
    "catch ,",
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
pub(crate) fn random_tokens(dice: &mut Dice<'_>, depth: usize) -> TokenStream {
    let mut out = TokenStream::new();
    for _ in 0..dice.below(8) {
        if depth > 0 && dice.below(4) == 0 {
            let delimiter = [Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None][dice.below(4)];
            let inside = random_tokens(dice, depth - 1);
            out.extend([TokenTree::Group(Group::new(delimiter, inside))]);
        } else {
            out.extend(dice.one_of(WORDS).parse::<TokenStream>().expect("a word is tokens"));
        }
    }
    out
}

/// The tokens with one of them removed, doubled or replaced.
pub(crate) fn changed(dice: &mut Dice<'_>, stream: &TokenStream, spare: &[TokenTree]) -> TokenStream {
    let mut all: Vec<TokenTree> = stream.clone().into_iter().collect();
    if all.is_empty() {
        return random_tokens(dice, 1);
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
pub(crate) fn flat(stream: &TokenStream, found: &mut Vec<TokenTree>) {
    for token in stream.clone() {
        if let TokenTree::Group(group) = &token {
            flat(&group.stream(), found);
        }
        found.push(token);
    }
}
