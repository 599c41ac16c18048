//! Derived types: every representation that serde offers, with values picked to be awkward.
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::super::{from_str, to_string};
use super::{Bits32, Bits64, Bytes, comes_back};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Everything {
    options: [Option<Option<Option<Option<()>>>>; 2],
    floats: Vec<(Bits64, Bits32)>,
    wide: (i128, u128, i64, u64),
    keyed: Keyed,
    external: Vec<External>,
    internal: Vec<Internal>,
    adjacent: Vec<Adjacent>,
    untagged: Vec<Untagged>,
    flat: Flat,
    tagged: FlatTagged,
    listed: FlatListed,
    empty: Empty,
}

type Empty = (Vec<()>, BTreeMap<String, ()>, (), Unit, Braces, [u8; 0], String, Bytes);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Keyed {
    strings: BTreeMap<String, Option<Option<u8>>>,
    numbers: BTreeMap<i128, char>,
    bools: BTreeMap<bool, Bytes>,
    tuples: BTreeMap<(u8, String), BTreeMap<u8, u8>>,
    enums: BTreeMap<Key, u8>,
    options: BTreeMap<Option<Option<String>>, u8>,
    floats: Vec<(Bits64, u8)>,
    sets: BTreeSet<Option<()>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Key {
    Unit,
    #[serde(rename = "$unit")]
    Dollar,
    Newtype(String),
    Struct {
        a: u8,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Braces {}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum External {
    Unit,
    Newtype(Option<()>),
    Tuple(Bits32, String),
    Struct { a: u128, b: Box<Option<External>> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Inner {
    name: String,
    twice: Option<Option<u8>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<Bits64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "$type")]
enum Internal {
    Unit,
    Struct { float: Bits64, single: Bits32, unit: Option<()>, bytes: Bytes },
    Newtype(Inner),
    Numbers(BTreeMap<u32, String>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", content = "$c")]
enum Adjacent {
    Unit,
    Newtype(Option<Option<()>>),
    Tuple(i128, Bits64),
    Struct { map: BTreeMap<(u8, bool), Bits32> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Integer(i64),
    Unsigned(u64),
    Float(Bits64),
    // Before the text, which serde also makes of bytes.
    Bytes(Bytes),
    Text(String),
    Pair(bool, Option<Option<u8>>),
    Named { single: Bits32, unit: Option<()> },
    Map { numbers: BTreeMap<i8, Untagged> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flat {
    id: Option<()>,
    #[serde(flatten)]
    inner: Inner,
    #[serde(flatten)]
    rest: BTreeMap<String, Untagged>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct FlatTagged {
    #[serde(flatten)]
    inner: Inner,
    #[serde(flatten)]
    tagged: Internal,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct FlatListed {
    id: u8,
    #[serde(flatten)]
    rest: BTreeMap<i64, Option<Option<u8>>>,
}

fn bits64() -> impl Strategy<Value = Bits64> {
    let odd = [0.0, -0.0, 1.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        proptest::sample::select(odd.to_vec()),
        (0x7ff0_0000_0000_0001..0x7ff0_0000_0000_0100_u64).prop_map(f64::from_bits)
    ]
    .prop_map(Bits64)
}

fn bits32() -> impl Strategy<Value = Bits32> {
    prop_oneof![any::<u32>(), (0x7f80_0001..0x7f80_0100_u32), 0..0x100_u32, Just(0x15ae_43fd)].prop_map(|bits| Bits32(f32::from_bits(bits)))
}

fn text() -> impl Strategy<Value = String> {
    let odd = ["", "$", "$some", "$$map", "null", "\0", "\u{2028}", "\\ud800", "\"", "1", "NaN", "\u{10ffff}"];
    prop_oneof![any::<String>(), proptest::sample::select(odd.to_vec()).prop_map(str::to_owned)]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    any::<Vec<u8>>().prop_map(Bytes)
}

fn few<S: Strategy>(of: S) -> impl Strategy<Value = Vec<S::Value>> {
    proptest::collection::vec(of, 0..4)
}

fn map<K: Strategy<Value: Ord>, V: Strategy>(key: K, value: V) -> impl Strategy<Value = BTreeMap<K::Value, V::Value>> {
    proptest::collection::btree_map(key, value, 0..4)
}

fn external() -> impl Strategy<Value = External> {
    let leaf = prop_oneof![
        Just(External::Unit),
        any::<Option<()>>().prop_map(External::Newtype),
        (bits32(), text()).prop_map(|(a, b)| External::Tuple(a, b)),
    ];
    leaf.prop_recursive(4, 8, 1, |of| (any::<u128>(), proptest::option::of(of)).prop_map(|(a, b)| External::Struct { a, b: Box::new(b) }))
}

fn inner() -> impl Strategy<Value = Inner> {
    (text(), any::<Option<Option<u8>>>(), proptest::option::of(bits64())).prop_map(|(name, twice, left_out)| Inner {
        name,
        twice,
        left_out,
    })
}

fn internal() -> impl Strategy<Value = Internal> {
    prop_oneof![
        Just(Internal::Unit),
        (bits64(), bits32(), any::<Option<()>>(), bytes()).prop_map(|(float, single, unit, bytes)| Internal::Struct {
            float,
            single,
            unit,
            bytes
        }),
        inner().prop_map(Internal::Newtype),
        map(any::<u32>(), text()).prop_map(Internal::Numbers),
    ]
}

fn adjacent() -> impl Strategy<Value = Adjacent> {
    prop_oneof![
        Just(Adjacent::Unit),
        any::<Option<Option<()>>>().prop_map(Adjacent::Newtype),
        (any::<i128>(), bits64()).prop_map(|(a, b)| Adjacent::Tuple(a, b)),
        map(any::<(u8, bool)>(), bits32()).prop_map(|map| Adjacent::Struct { map }),
    ]
}

fn untagged() -> impl Strategy<Value = Untagged> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Untagged::Integer),
        (u64::MAX / 2 + 1..).prop_map(Untagged::Unsigned),
        bits64().prop_map(Untagged::Float),
        text().prop_map(Untagged::Text),
        bytes().prop_map(Untagged::Bytes),
        any::<(bool, Option<Option<u8>>)>().prop_map(|(a, b)| Untagged::Pair(a, b)),
        (bits32(), any::<Option<()>>()).prop_map(|(single, unit)| Untagged::Named { single, unit }),
    ];
    leaf.prop_recursive(3, 8, 2, |of| map(any::<i8>(), of).prop_map(|numbers| Untagged::Map { numbers }))
}

fn flat() -> impl Strategy<Value = Flat> {
    let rest = map(text().prop_map(|text| format!("$rest {text}")), untagged());
    (any::<Option<()>>(), inner(), rest).prop_map(|(id, inner, rest)| Flat { id, inner, rest })
}

fn flat_tagged() -> impl Strategy<Value = FlatTagged> {
    // Not the variants that would take the fields beside them for their own.
    let fits = |tagged: &Internal| matches!(tagged, Internal::Unit | Internal::Struct { .. });
    (inner(), internal().prop_filter("fields of its own", fits)).prop_map(|(inner, tagged)| FlatTagged { inner, tagged })
}

fn keyed() -> impl Strategy<Value = Keyed> {
    let key = prop_oneof![Just(Key::Unit), Just(Key::Dollar), text().prop_map(Key::Newtype), any::<u8>().prop_map(|a| Key::Struct { a })];
    (
        map(text(), any::<Option<Option<u8>>>()),
        map(any::<i128>(), any::<char>()),
        map(any::<bool>(), bytes()),
        map((any::<u8>(), text()), map(any::<u8>(), any::<u8>())),
        map(key, any::<u8>()),
        map(proptest::option::of(proptest::option::of(text())), any::<u8>()),
        few((bits64(), any::<u8>())),
        proptest::collection::btree_set(any::<Option<()>>(), 0..3),
    )
        .prop_map(|(strings, numbers, bools, tuples, enums, options, floats, sets)| Keyed {
            strings,
            numbers,
            bools,
            tuples,
            enums,
            options,
            floats,
            sets,
        })
}

pub(super) fn everything() -> impl Strategy<Value = Everything> {
    (
        any::<[Option<Option<Option<Option<()>>>>; 2]>(),
        few((bits64(), bits32())),
        any::<(i128, u128, i64, u64)>(),
        keyed(),
        few(external()),
        few(internal()),
        few(adjacent()),
        few(untagged()),
        (flat(), flat_tagged()),
        (any::<u8>(), map(any::<i64>(), any::<Option<Option<u8>>>())).prop_map(|(id, rest)| FlatListed { id, rest }),
    )
        .prop_map(|(options, floats, wide, keyed, external, internal, adjacent, untagged, (flat, tagged), listed)| Everything {
            options,
            floats,
            wide,
            keyed,
            external,
            internal,
            adjacent,
            untagged,
            flat,
            tagged,
            listed,
            empty: (vec![], BTreeMap::new(), (), Unit, Braces {}, [], String::new(), Bytes(vec![])),
        })
}

proptest! {
    #[test]
    fn every_representation_comes_back(value in everything()) {
        comes_back(&value);
    }
}

#[test]
fn escapes_are_known_where_serde_buffers() {
    let text = comes_back(&Internal::Struct { float: Bits64(f64::INFINITY), single: Bits32(0.1), unit: Some(()), bytes: Bytes(vec![1]) });
    let expected = r#"{"$$type":"Struct","float":{"$f64":"inf"},"single":0.1,"unit":{"$some":null},"bytes":{"$bytes":"AQ=="}}"#;
    assert_eq!(text, expected);
    assert_eq!(comes_back(&Internal::Numbers(BTreeMap::from([(7, "x".into())]))), r#"{"$$type":"Numbers","$map":[[7,"x"]]}"#);
    assert_eq!(comes_back(&FlatListed { id: 1, rest: BTreeMap::from([(-1, Some(None))]) }), r#"{"id":1,"$map":[[-1,{"$some":null}]]}"#);
}

#[test]
fn what_serde_cannot_buffer_is_an_error() {
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Wide {
        Wide { wide: i128 },
    }
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Raw {
        Raw { raw: Box<serde_json::value::RawValue> },
    }
    #[derive(Debug, Serialize, Deserialize)]
    struct FlatRaw {
        #[serde(flatten)]
        raw: Box<serde_json::value::RawValue>,
    }
    let text = to_string(&Wide::Wide { wide: i128::MAX }).unwrap();
    let error = from_str::<Wide>(&text).unwrap_err().to_string();
    assert!(error.contains("170141183460469231731687303715884105727"), "{error}");

    let text = to_string(&Raw::Raw { raw: serde_json::value::RawValue::NULL.to_owned() }).unwrap();
    assert!(from_str::<Raw>(&text).is_err());

    assert!(to_string(&FlatRaw { raw: serde_json::value::RawValue::NULL.to_owned() }).is_err());
}

#[test]
fn an_integer_that_a_float_would_round_is_not_read_as_one() {
    assert_eq!(from_str::<Bits64>("9007199254740992").unwrap(), Bits64(9_007_199_254_740_992.0));
    assert_eq!(from_str::<Bits32>("16777216").unwrap(), Bits32(16_777_216.0));
    assert_eq!(from_str::<Bits64>("5").unwrap(), Bits64(5.0));
    let why = from_str::<f64>("9007199254740993").unwrap_err().to_string();
    assert_eq!(why, "the integer 9007199254740993 would be rounded to 9007199254740992 as a float");
    assert!(from_str::<f32>("16777217").is_err());
}
