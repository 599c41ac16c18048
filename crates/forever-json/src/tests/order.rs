//! What counts as the same value.
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::super::to_canonical;
use super::{from_str, same, to_string};

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

#[test]
fn the_canonical_text_of_equal_values_is_the_same() {
    let forward: Vec<(String, u32)> = (0..200).map(|n| (format!("key {n}"), n)).collect();
    let backward: HashMap<String, u32> = forward.iter().rev().cloned().collect();
    let other: HashMap<String, u32> = forward.iter().cloned().collect();
    let sorted: BTreeMap<String, u32> = forward.into_iter().collect();
    let texts = [to_canonical(&backward).unwrap(), to_canonical(&other).unwrap(), to_canonical(&sorted).unwrap()];
    assert!(texts.iter().all(|text| *text == texts[0]));

    let numbered: HashMap<u32, &str> = (0..100).map(|n| (n, "x")).collect();
    let sorted: BTreeMap<u32, &str> = (0..100).map(|n| (n, "x")).collect();
    assert_eq!(to_canonical(&numbered).unwrap(), to_canonical(&sorted).unwrap());
}

#[test]
fn canonical_texts_are_json_of_the_same_value() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Order {
        #[serde(rename = "$total")]
        total: f64,
        id: String,
        #[serde(rename = "a")]
        items: Vec<(Option<u8>, BTreeMap<u16, bool>)>,
    }
    let order = Order { total: f64::INFINITY, id: "\"7\"\n".into(), items: vec![(None, BTreeMap::from([(3, true), (1, false)]))] };
    let text = to_canonical(&order).unwrap();
    assert_eq!(text, r#"{"$$total":{"$f64":"inf"},"a":[[null,{"$map":[[1,false],[3,true]]}]],"id":"\"7\"\n"}"#);
    assert_eq!(from_str::<Order>(&text).unwrap(), order);
    assert_eq!(to_canonical(&("o-1", 100u64)).unwrap(), r#"["o-1",100]"#);
}

#[test]
fn canonical_texts_of_different_values_differ() {
    let texts = [
        to_canonical(&vec![1, 2]).unwrap(),
        to_canonical(&vec![2, 1]).unwrap(),
        to_canonical(&vec!["1", "2"]).unwrap(),
        to_canonical(&1.0).unwrap(),
        to_canonical(&1).unwrap(),
        to_canonical(&BTreeMap::from([("a", 1)])).unwrap(),
        to_canonical(&BTreeMap::from([("$a", 1)])).unwrap(),
        to_canonical(&BTreeMap::from([("a", 2)])).unwrap(),
        to_canonical(&()).unwrap(),
    ];
    let distinct: std::collections::BTreeSet<_> = texts.iter().collect();
    assert_eq!(distinct.len(), texts.len(), "{texts:#?}");
}
