//! Expressions whose value is text of another variable: `line.split_once('=')`,
//! `body["city"].as_str().unwrap_or("nowhere")`.
//!
//! Such text cannot be kept, and only the borrow checker could report it, in an error about
//! lifetimes. So it is found by the methods that are called, all of which are methods of text, its
//! iterators and `Option`. Whether the place at the root owns its text depends on its type.
use syn::{Expr, Pat, Type};

use crate::place;

/// Value of a part of such an expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    /// The place, or a reference to something in it.
    Place,
    /// Text, perhaps in an `Option`, a `Result` or a pair.
    Text,
    /// An iterator over references into the place.
    References,
    /// An iterator over texts.
    Texts,
    /// A collection of texts.
    Collected,
}

/// The place from which a variable borrows text, if it is bound by `pat` to the value of `expr`.
pub(crate) fn owner<'e>(pat: &Pat, expr: &'e Expr) -> Option<&'e Expr> {
    let ty = if let Pat::Type(typed) = pat { Some(&*typed.ty) } else { None };
    let items = left_of_loop(expr);
    let (place, gives) = given(items.unwrap_or(expr), ty)?;
    // An iterator outside of a `for` is refused as an iterator.
    let are_texts = matches!(gives, Gives::Text | Gives::Collected) || gives == Gives::Texts && items.is_some();
    are_texts.then_some(place)
}

/// The place into which a method call returns a reference.
pub(crate) fn referred(expr: &Expr) -> Option<&Expr> {
    let (place, gives) = given(expr, None)?;
    let is_reference = matches!(gives, Gives::Place | Gives::Text) && !place::is_place(expr);
    is_reference.then_some(place)
}

/// The source of a `for` by value, if lowering made the expression of it.
fn left_of_loop(expr: &Expr) -> Option<&Expr> {
    if let Expr::MethodCall(rest) = expr
        && let Expr::Call(source) = &*rest.receiver
        && let (Expr::Path(path), Some(items)) = (&*source.func, source.args.first())
        && rest.method == "rest"
        && path.path.segments.last().is_some_and(|name| name.ident == "Source")
    {
        return Some(items);
    }
    None
}

fn given<'e>(expr: &'e Expr, ty: Option<&Type>) -> Option<(&'e Expr, Gives)> {
    match expr {
        Expr::Paren(e) => given(&e.expr, ty),
        Expr::Group(e) => given(&e.expr, ty),
        Expr::Try(e) => given(&e.expr, ty).filter(|(_, gives)| *gives == Gives::Text),
        Expr::MethodCall(call) => {
            let (place, gives) = given(&call.receiver, None)?;
            Some((place, gives_after(gives, call, ty)?))
        }
        place if place::is_place(place) => Some((place, Gives::Place)),
        _ => None,
    }
}

/// The value of a method call, by its receiver.
fn gives_after(on: Gives, call: &syn::ExprMethodCall, ty: Option<&Type>) -> Option<Gives> {
    let name = call.method.to_string();
    let name = name.as_str();
    Some(match (on, name) {
        (Gives::Place | Gives::Text, name) if OF_TEXT.contains(&name) => Gives::Text,
        (Gives::Place | Gives::Text, name) if ITERATORS_OF_TEXT.contains(&name) => Gives::Texts,
        (Gives::Place | Gives::Text, "map" | "and_then") if maps_to_text(call) => Gives::Text,
        (Gives::Place | Gives::Text, name) if OF_OPTIONS.contains(&name) => on,
        (Gives::Place, name) if PARTS.contains(&name) => Gives::Place,
        (Gives::Place, "iter" | "keys" | "values") => Gives::References,
        (Gives::References | Gives::Texts, "map" | "filter_map" | "flat_map") if maps_to_text(call) => Gives::Texts,
        (Gives::References | Gives::Texts, name) if OF_ITERATORS.contains(&name) => on,
        (Gives::References, name) if ITEMS.contains(&name) => Gives::Place,
        (Gives::Texts, name) if ITEMS.contains(&name) => Gives::Text,
        (Gives::Texts, "collect") if collects_texts(call, ty) => Gives::Collected,
        _ => return None,
    })
}

/// `|line| line.trim()`, `String::as_str`, `str::trim`.
fn maps_to_text(call: &syn::ExprMethodCall) -> bool {
    match call.args.first() {
        Some(Expr::Closure(closure)) => {
            let inputs: Vec<_> = closure.inputs.iter().flat_map(crate::pattern::bindings).map(|b| b.ident).collect();
            let is_input = |place: &Expr| place::root(place).is_some_and(|root| inputs.contains(root));
            given(&closure.body, None).is_some_and(|(place, gives)| gives == Gives::Text && is_input(place))
        }
        Some(Expr::Path(path)) => {
            let mut names = path.path.segments.iter().rev().map(|s| s.ident.to_string());
            let (method, of) = (names.next(), names.next());
            matches!(of.as_deref(), Some("str" | "String" | "Value")) && method.is_some_and(|name| OF_TEXT.contains(&name.as_str()))
        }
        _ => false,
    }
}

/// Whether `collect` makes a collection of the texts themselves, rather than one text of them all.
fn collects_texts(call: &syn::ExprMethodCall, ty: Option<&Type>) -> bool {
    let written = call.turbofish.as_ref().and_then(|of| of.args.first());
    let ty = match written {
        Some(syn::GenericArgument::Type(ty)) => Some(ty),
        _ => ty,
    };
    let Some(Type::Path(path)) = ty else { return false };
    let last = path.path.segments.last();
    last.is_some_and(|last| matches!(&last.arguments, syn::PathArguments::AngleBracketed(_)) && last.ident != "Cow")
}

/// Methods of text, or of what holds one, that return text.
const OF_TEXT: &[&str] = &[
    "as_deref",
    "as_str",
    "rsplit_once",
    "split_at",
    "split_once",
    "strip_prefix",
    "strip_suffix",
    "trim",
    "trim_end",
    "trim_end_matches",
    "trim_matches",
    "trim_start",
    "trim_start_matches",
];

const ITERATORS_OF_TEXT: &[&str] =
    &["lines", "rsplit", "rsplitn", "split", "split_ascii_whitespace", "split_inclusive", "split_terminator", "split_whitespace", "splitn"];

/// Methods of `Option` and `Result` that return their content, or an `Option` or `Result` of it.
const OF_OPTIONS: &[&str] = &[
    "context",
    "expect",
    "filter",
    "ok",
    "ok_or",
    "ok_or_else",
    "or",
    "or_else",
    "unwrap",
    "unwrap_or",
    "unwrap_or_default",
    "unwrap_or_else",
    "with_context",
];

/// Methods of what holds texts that return a reference to one of them.
const PARTS: &[&str] = &["as_ref", "first", "get", "last", "pointer"];

/// Methods of iterators that return an iterator over the same items.
const OF_ITERATORS: &[&str] = &["chain", "filter", "fuse", "peekable", "rev", "skip", "skip_while", "step_by", "take", "take_while"];

/// Methods of iterators that return an item.
const ITEMS: &[&str] = &["find", "last", "max", "max_by_key", "min", "min_by_key", "next", "next_back", "nth"];
