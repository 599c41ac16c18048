//! Places that can be named again on a resume, and the ways in which loops iterate.
use crate::place::{self, Items, Policy};

fn expr(text: &str) -> syn::Expr {
    syn::parse_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn places_can_be_named_again() {
    for place in
        ["x", "x.y", "x.0.y", "x[3]", "x[i]", "x[i.j]", "x[1..]", "x[..n]", "x[..]", "*x", "(*x).y", "x[i][j].z", "x[i + 1]", "x[n - i..]"]
    {
        assert!(place::is_place(&expr(place)), "{place}");
    }
    for other in ["x()", "x.y()", "x[f()]", "x + 1", "1", "&x", "x?", "x.await", "Self::x", "a::b", "x[i + f()]", "x[i & 1]", "{ x }"] {
        assert!(!place::is_place(&expr(other)), "{other}");
    }
}

#[test]
fn plain_borrows_are_borrows_of_places() {
    for borrow in ["&x", "&mut x", "&x.y[1..]", "(&x)", "&*x"] {
        assert!(place::plain_borrow(&expr(borrow)).is_some(), "{borrow}");
    }
    for other in ["x", "&x()", "&&x", "&(x + 1)", "x.first()"] {
        assert!(place::plain_borrow(&expr(other)).is_none(), "{other}");
    }
}

#[test]
fn constants_are_made_again() {
    for constant in [
        "\"a\"",
        "b\"a\"",
        "LIMIT",
        "limits::MAX",
        "&LIMIT",
        "&\"a\"",
        "(\"a\")",
        "concat!(\"a\", 1)",
        "env!(\"HOME\")",
        "[\"a\", LIMIT]",
        "(\"a\", 1)",
        "vec![(\"a\", -1.5)]",
    ] {
        assert!(place::is_constant(&expr(constant)), "{constant}");
    }
    for other in
        ["1", "[1, 2]", "[\"a\", n]", "vec![\"a\"; 3]", "limit", "Limit", "X", "f()", "&mut LIMIT", "\"a\".len()", "format!(\"a\")"]
    {
        assert!(!place::is_constant(&expr(other)), "{other}");
    }
}

#[test]
fn loops_keep_items_or_a_position() {
    let items = |text: &str| place::items(&expr(text), &|name| name == "borrowed");
    for owned in [
        "v",
        "0..3",
        "v.into_iter()",
        "f()",
        "plan.questions",
        "v.drain(..)",
        "map.into_keys()",
        "list().chars()",
        "Some(1)",
        "[1, 2]",
        "[a, b]",
    ] {
        assert_eq!(items(owned), Items::Owned, "{owned}");
    }
    for borrowed in [
        "&v",
        "&plan.questions",
        "&v[1..]",
        "borrowed",
        "borrowed.cells",
        "v.iter()",
        "plan.questions.iter().enumerate()",
        "v.iter().rev().skip(1).take(n)",
        "text.chars()",
        "text.trim().lines()",
        "map.keys().cloned()",
        "v.chunks(2)",
        "v.iter().zip(w.iter())",
        "v.iter().zip(&w)",
        "borrowed.into_iter()",
        "\"abc\".chars()",
        "v.iter().take(n + 1).skip(f())",
        "v.iter().zip(0..n)",
        "&rows[row]",
        "&map[&key]",
        "[\"law\", \"sales\"]",
        "[(\"law\", 1), (\"sales\", -2)]",
        "vec![\"law\"]",
        "TOPICS",
        "limits::TOPICS.iter().rev()",
        "&[1, 2, 3]",
        "list().iter()",
        "&list()",
    ] {
        assert_eq!(items(borrowed), Items::Borrowed, "{borrowed}");
    }
    for mutable in ["&mut v", "&mut plan.questions", "v.iter_mut()", "map.values_mut()", "v.iter_mut().enumerate()"] {
        assert_eq!(items(mutable), Items::Mutable, "{mutable}");
    }
    for closure in ["v.iter().map(|x| x + 1)", "v.iter().filter(|x| x.y).enumerate()", "text.split(|c| c == ',')"] {
        assert_eq!(items(closure), Items::WithClosure, "{closure}");
    }
}

#[test]
fn policies_are_made_again_if_their_parts_are_fixed() {
    for again in [
        "Retry::times(3)",
        "forever::fiber::Retry::times(n + 1).backoff(Backoff::none())",
        "Retry::<E>::times(LIMITS.retries).backoff(backoff).when(|e: &E| e.is_timeout())",
        "Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60) * 2).no_jitter()",
        "(Backoff::default())",
    ] {
        assert!(Policy::of(&expr(again)).is_some(), "{again}");
    }
    for value in [
        "Retry::times(count())",
        "Retry::times(list.len())",
        "Retry::times({ n += 1; n })",
        "Retry::times(n += 1)",
        "retry(3)",
        "again::Retry::new(3)",
        "Backoff::new()",
        "Retry::times(3).clone_from(&other)",
        "other.backoff(Backoff::none())",
    ] {
        assert!(Policy::of(&expr(value)).is_none(), "{value}");
    }
    let parsed = expr("Retry::times(n * m.x).when(|e| e.code > limit)");
    let policy = Policy::of(&parsed).unwrap();
    assert_eq!(policy.variables, ["n", "m"]);
    assert_eq!(policy.closures.len(), 1);
}
