//! What counts as the same value.
use std::collections::{HashMap, HashSet};

use super::{same, to_string};

#[test]
fn texts_are_the_same_whatever_the_order_of_entries_and_items() {
    for (a, b) in [
        (r#"{"a":1,"b":[1,2]}"#, r#"{"b":[2,1],"a":1}"#),
        (r#"{"$map":[[1,2],[3,4]]}"#, r#"{"$map":[[3,4],[1,2]]}"#),
        (r#"{"a":1,"$map":[[null,2],["$b",3]]}"#, r#"{"$$b":3,"$map":[[null,2],["a",1]]}"#),
        (r#"[{"a":1},{"a":2}]"#, r#"[{"a":2},{"a":1}]"#),
        ("[[1,2],[3]]", "[[3],[2,1]]"),
        (r#"{"$$map":[[1]]}"#, r#"{"$$map":[[1]]}"#),
    ] {
        assert!(same(a, b), "{a} {b}");
    }
}

#[test]
fn texts_of_other_values_are_not_the_same() {
    for (a, b) in [
        ("1", "1.0"),
        ("0.0", "-0.0"),
        ("null", r#"{"$some":null}"#),
        ("[1,1,2]", "[1,2,2]"),
        ("[1]", "[1,1]"),
        (r#"{"$map":[[1,2]]}"#, r#"{"$map":[[2,1]]}"#),
        (r#"{"$f64":"NaN"}"#, r#"{"$$f64":"NaN"}"#),
        (r#"{"$some":null}"#, r#"{"$$some":null}"#),
        (r#"{"a":1}"#, r#"[["a",1]]"#),
        (r#"{"a":{"b":1}}"#, r#"{"b":{"a":1}}"#),
        ("\"a\"", "\"A\""),
        ("\"1\"", "1"),
        ("[", "]"),
        ("", "1"),
    ] {
        assert!(!same(a, b), "{a} {b}");
    }
}

#[test]
fn unordered_collections_are_the_same_as_their_copies() {
    // Two maps of the same entries have different orders, as each has a random state of its own.
    let map = || {
        (0..200)
            .map(|n| ((n % 3 > 0).then(|| format!("${n}")).or(Some(n.to_string())).filter(|_| n != 7), HashSet::from([n, n + 1])))
            .collect::<HashMap<_, _>>()
    };
    let (a, b) = (to_string(&map()).unwrap(), to_string(&map()).unwrap());
    assert_ne!(a, b);
    assert!(same(&a, &b), "{a} {b}");
}
