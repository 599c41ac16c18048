//! Depth: a limit with a clear error, and no stack overflow on either side of it.
use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::{from_str, to_string};
use super::{Bits64, Bytes, comes_back};

const TOO_DEEP: &str = "nested deeper than 100 levels";

/// A value of any depth that takes no memory.
#[derive(Clone, Copy)]
enum Endless {
    Items(usize),
    Fields(usize),
    Keys(usize),
    Variants(usize),
    Somes(usize),
    Newtypes(usize),
}

impl Serialize for Endless {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Endless::Items(0) | Endless::Fields(0) | Endless::Keys(0) | Endless::Variants(0) | Endless::Somes(0) | Endless::Newtypes(0) => {
                serializer.serialize_unit()
            }
            Endless::Items(n) => serializer.collect_seq([Endless::Items(n - 1)]),
            Endless::Fields(n) => serializer.collect_map([("a", Endless::Fields(n - 1))]),
            Endless::Keys(n) => serializer.collect_map([(Endless::Keys(n - 1), 1)]),
            Endless::Variants(n) => serializer.serialize_newtype_variant("V", 0, "V", &Endless::Variants(n - 1)),
            Endless::Somes(n) => serializer.serialize_some(&Endless::Somes(n - 1)),
            Endless::Newtypes(n) => serializer.serialize_newtype_struct("N", &Endless::Newtypes(n - 1)),
        }
    }
}

#[test]
fn whatever_is_too_deep_is_an_error_as_soon_as_it_is() {
    for n in [101, 1_000_000] {
        for value in [Endless::Items(n), Endless::Fields(n), Endless::Keys(n), Endless::Variants(n)] {
            let error = to_string(&value).unwrap_err().to_string();
            assert!(error.ends_with(TOO_DEEP), "{error}");
            assert!(error.len() < 4000, "{error}");
        }
    }
    assert_eq!(to_string(&Endless::Somes(101)).unwrap_err().to_string(), TOO_DEEP);
    for value in [Endless::Somes(1_000_000), Endless::Newtypes(1_000_000)] {
        assert_eq!(to_string(&value).unwrap_err().to_string(), "nested deeper than 400 options and newtypes");
    }
    assert_eq!(to_string(&Endless::Newtypes(400)).unwrap(), "null");
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Tree {
    List(Vec<Tree>),
    Map(BTreeMap<u8, Tree>),
    Leaf(Leaf),
    Some(Option<Option<()>>),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Leaf {
    float: Bits64,
    bytes: Bytes,
    wide: u128,
    keys: BTreeMap<(u8, u8), Option<Option<()>>>,
}

#[test]
fn what_is_written_at_the_limit_can_be_read() {
    let mut written = 0;
    for depth in 0..=101 {
        for kind in 0..4 {
            let leaf = Leaf {
                float: Bits64(f64::INFINITY),
                bytes: Bytes(vec![1]),
                wide: u128::MAX,
                keys: BTreeMap::from([((1, 2), Some(None)), ((3, 4), Some(Some(())))]),
            };
            let mut tree = match kind {
                0 => Tree::Leaf(leaf),
                1 => Tree::Some(Some(Some(()))),
                2 => Tree::List(vec![]),
                _ => Tree::Map(BTreeMap::new()),
            };
            for level in 0..depth {
                tree = if level % 4 == 3 { Tree::Map(BTreeMap::from([(1, tree)])) } else { Tree::List(vec![tree]) };
            }
            match to_string(&tree) {
                Ok(_) => {
                    written += 1;
                    comes_back(&tree);
                }
                Err(error) => assert!(error.to_string().ends_with(TOO_DEEP), "{error}"),
            }
        }
    }
    assert!(written > 4 * 35, "{written}");
}

#[test]
fn a_hundred_levels_are_not_too_deep() {
    let deep = |n: usize| (1..n).fold(Value::Array(vec![]), |value, _| Value::Array(vec![value]));
    comes_back(&deep(100));
    assert!(to_string(&deep(101)).is_err());
    // The snapshot around a local is read by `serde_json`, with a limit of its own.
    assert!(serde_json::from_str::<Value>(&to_string(&deep(100)).unwrap()).is_ok());
}

#[derive(Debug, Deserialize)]
struct Lists(#[expect(dead_code, reason = "only read")] Vec<Lists>);

#[derive(Debug, Deserialize)]
struct Chain(#[expect(dead_code, reason = "only read")] Option<Box<Chain>>);

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Knot(Box<Knot>);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Untagged {
    #[expect(dead_code, reason = "only read")]
    List(Vec<Untagged>),
}

#[test]
fn deep_text_is_an_error_and_never_overflows() {
    for text in ["[".repeat(1_000_000), r#"{"a":"#.repeat(1_000_000), r#"{"$some":"#.repeat(1_000_000), r#"{"$map":[["#.repeat(1_000_000)] {
        assert!(from_str::<Value>(&text).is_err());
        assert!(from_str::<Lists>(&text).is_err());
        assert!(from_str::<Chain>(&text).is_err());
        assert!(from_str::<Knot>(&text).is_err());
        assert!(from_str::<Untagged>(&text).is_err());
        assert!(from_str::<IgnoredAny>(&text).is_err());
        assert!(from_str::<Box<RawValue>>(&text).is_err());
        assert!(!super::same(&text, "1"));
    }
    assert!(from_str::<Chain>("5").unwrap_err().to_string().contains("nested deeper than 400"));
    assert!(from_str::<Knot>("5").unwrap_err().to_string().contains("nested deeper than 400"));
    assert!(from_str::<BTreeMap<Knot, u8>>(r#"{"a":1}"#).unwrap_err().to_string().contains("nested deeper than 400"));
}
