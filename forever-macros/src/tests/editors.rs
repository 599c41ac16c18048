//! Half-written functions: an editor expands on every key press, and needs the item in each
//! expansion.
use std::panic::{AssertUnwindSafe, catch_unwind};

use forever_testkit::sizes::stride;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

use super::bodies::{CONSTRUCTS, RICH};
use super::tokens;
use crate::expand::expand;

/// Placeholders that an editor inserts where an expression is missing, as rust-analyzer does.
const FIXUPS: &[&str] = &["__ra_fixup", "__ra_fixup;", "__ra_fixup {}", "_ in __ra_fixup {}", "= __ra_fixup;"];

/// The files of the examples, which contain fibers and plain functions.
fn examples() -> Vec<(String, TokenStream)> {
    files(&["../examples", "../examples/support"])
}

/// The functions with macros, as fibers have, in the files of some folders.
pub(super) fn functions_of(folders: &[&str]) -> Vec<TokenStream> {
    let mut found = Vec::new();
    files(folders).into_iter().for_each(|(_, tokens)| functions(tokens, &mut found));
    found.retain(|function| function.to_string().contains(" ! "));
    found
}

/// The files of some folders, in order.
fn files(folders: &[&str]) -> Vec<(String, TokenStream)> {
    let mut files = Vec::new();
    for folder in folders {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        files.extend(entries.map(|entry| entry.expect("a folder can be read").path()).filter(|p| p.extension().is_some_and(|e| e == "rs")));
    }
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).expect("an example can be read");
            (file.display().to_string(), text.parse().expect("an example is Rust"))
        })
        .collect()
}

/// Collects the functions among the tokens of a file, at any depth, with the tokens before `fn` and
/// after it.
fn functions(tokens: TokenStream, found: &mut Vec<TokenStream>) {
    let mut item: Vec<TokenTree> = Vec::new();
    let mut is_function = false;
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            functions(group.stream(), found);
        }
        is_function |= matches!(&token, TokenTree::Ident(ident) if ident == "fn");
        let ends = match &token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => matches!(punct.as_char(), ';' | ',' | '='),
            _ => false,
        };
        // Attributes are removed: the fiber's own is absent when the macro runs.
        let attribute = matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket) && !is_function;
        item.push(token);
        if attribute {
            item.clear();
        } else if ends {
            let item = std::mem::take(&mut item);
            if std::mem::take(&mut is_function) {
                found.push(item.into_iter().collect());
            }
        }
    }
}

/// Number of places to cut at: before each token, at any depth.
fn cuts(tokens: &TokenStream) -> usize {
    tokens.clone().into_iter().map(|token| if let TokenTree::Group(group) = token { 1 + cuts(&group.stream()) } else { 1 }).sum()
}

/// The first `left` tokens, with the groups around the cut closed, and `fixup` at the cut.
fn cut(tokens: &TokenStream, left: &mut usize, fixup: &TokenStream) -> TokenStream {
    let mut out = TokenStream::new();
    for token in tokens.clone() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        match token {
            TokenTree::Group(group) => {
                let inside = cut(&group.stream(), left, fixup);
                let open = *left == 0 && inside.clone().into_iter().count() < group.stream().into_iter().count();
                let mut kept = Group::new(group.delimiter(), inside);
                kept.set_span(group.span());
                out.extend([TokenTree::Group(kept)]);
                if open {
                    return out;
                }
            }
            token => out.extend([token]),
        }
    }
    if *left == 0 {
        out.extend(fixup.clone());
    }
    out
}

/// The name after `fn`, if the cut is behind it.
fn name(tokens: &TokenStream) -> Option<String> {
    let mut tokens = tokens.clone().into_iter();
    tokens.find(|token| matches!(token, TokenTree::Ident(ident) if ident == "fn"))?;
    match tokens.next() {
        Some(TokenTree::Ident(name)) => Some(name.to_string()),
        _ => None,
    }
}

/// Why the expansion of an item is of no use to an editor; `None` if it is.
pub(super) fn complaint(attr: &TokenStream, item: &TokenStream) -> Option<String> {
    let Ok(out) = catch_unwind(AssertUnwindSafe(|| expand(attr.clone(), item.clone()))) else { return Some("it panics".to_owned()) };
    let name = name(item)?;
    if syn::parse_str::<syn::Ident>(&name).is_err() {
        return None;
    }
    match syn::parse2::<syn::File>(out.clone()) {
        Err(error) => Some(format!("what comes out is no list of items: {error}: {out}")),
        Ok(file) => {
            let found = file.items.iter().any(|item| matches!(item, syn::Item::Fn(function) if function.sig.ident == name));
            (!found).then(|| format!("no function `{name}` comes out: {out}"))
        }
    }
}

/// Of so many beginnings the gate expands one. As many as fixups would meet the same one each time.
const GATE: usize = 6;

/// Expands the beginnings of an item, all of them in the night; returns how many there were, and
/// collects the complaints.
fn every_beginning(of: &str, item: &TokenStream, complaints: &mut Vec<String>) -> usize {
    let mut count = 0;
    for place in (0..=cuts(item)).step_by(stride(GATE)) {
        // Without a fixup, and with one of them; the next place uses the next one.
        for fixup in ["", FIXUPS[place % FIXUPS.len()]] {
            let begun = cut(item, &mut { place }, &tokens(fixup));
            count += 1;
            complaints.extend(complaint(&quote!(), &begun).map(|why| format!("{of}: {why}\n    {begun}")));
        }
    }
    count
}

#[test]
fn every_beginning_of_every_function_of_the_examples_gives_an_item_of_its_name() {
    let (mut complaints, mut fibers) = (Vec::new(), 0);
    for (file, tokens) in examples() {
        let mut found = Vec::new();
        functions(tokens, &mut found);
        for item in &found {
            fibers += usize::from(item.to_string().contains("step !"));
            every_beginning(&file, item, &mut complaints);
        }
    }
    assert!(fibers >= 3, "the examples have fibers, {fibers} were found");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints[..complaints.len().min(5)].join("\n\n"));
}

#[test]
fn every_beginning_of_a_long_function_gives_an_item_of_its_name() {
    let mut complaints = Vec::new();
    let count = every_beginning("the long function", &tokens(RICH), &mut complaints);
    assert!(count * stride(GATE) > 1000, "{count}");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints[..complaints.len().min(5)].join("\n\n"));
}

#[test]
fn every_beginning_of_each_construct_gives_an_item_of_its_name() {
    let mut complaints = Vec::new();
    for (name, source) in CONSTRUCTS {
        every_beginning(name, &tokens(source), &mut complaints);
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints[..complaints.len().min(5)].join("\n\n"));
}

#[test]
fn an_editor_gets_the_body_as_it_was_written() {
    for (name, source) in CONSTRUCTS.iter().filter(|(name, _)| *name != "patterns_in_parameters") {
        let body = syn::parse_str::<syn::ItemFn>(source).expect("it is a function").block;
        let statements: String = body.stmts.iter().map(|stmt| quote!(#stmt).to_string() + " ").collect();
        let out = expand(quote!(), tokens(source)).to_string();
        let editors = out.split("# [cfg (rust_analyzer)]").nth(1).expect("editors have a version of their own");
        assert!(editors.contains(statements.trim()), "{name}: {editors}");
    }
}

#[test]
fn half_written_options_leave_the_item_as_it_is() {
    let options = tokens("name = \"shop.checkout\", version = 2, max_recoveries = 5, crate = a::b, migrate = c::d");
    let item = tokens("async fn checkout(order: u32) -> anyhow::Result<u32> { Ok(step!(pay(order).await?)) }");
    for place in (0..=cuts(&options)).step_by(stride(GATE)) {
        for fixup in FIXUPS {
            let begun = cut(&options, &mut { place }, &tokens(fixup));
            assert_eq!(complaint(&begun, &item), None, "{begun}");
        }
    }
}
