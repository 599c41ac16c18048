//! The text of every ordinary and every escaped form, literally.
use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::{from_str, to_string};
use super::{Bits32, Bits64, Bytes, comes_back};

#[track_caller]
fn is<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, text: &str) {
    assert_eq!(comes_back(&value), text);
    assert!(super::same(text, text));
    drop(value);
}

/// As [`is`], and plain JSON: what `serde_json` writes.
#[track_caller]
fn plain<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, text: &str) {
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    is(value, text);
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Shape {
    Unit,
    Newtype(u8),
    Tuple(u8, String),
    Struct {
        a: u8,
    },
    #[serde(rename = "$odd")]
    Odd(u8),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Nothing;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Wrapper<T>(T);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Pair(u8, String);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Dollar {
    #[serde(rename = "$some")]
    some: Option<u8>,
}

#[test]
fn ordinary_values_are_ordinary_json() {
    plain((), "null");
    plain(Nothing, "null");
    plain(true, "true");
    plain(i8::MIN, "-128");
    plain(i64::MIN, "-9223372036854775808");
    plain(u64::MAX, "18446744073709551615");
    plain('\u{1f980}', "\"\u{1f980}\"");
    plain(String::new(), "\"\"");
    plain("\0\u{2028}\\ud800\"\n$some".to_owned(), "\"\\u0000\u{2028}\\\\ud800\\\"\\n$some\"");
    plain(Wrapper(Wrapper(7_u8)), "7");
    plain(Pair(1, "b".into()), r#"[1,"b"]"#);
    plain(Vec::<u8>::new(), "[]");
    plain(BTreeMap::<String, u8>::new(), "{}");
    plain(BTreeMap::<u8, u8>::new(), "{}");
    plain([(1_u8, 'x'), (2, 'y')], r#"[[1,"x"],[2,"y"]]"#);
    plain(BTreeMap::from([("a", 1)].map(|(k, v)| (k.to_owned(), v))), r#"{"a":1}"#);
    plain(BTreeMap::from([('a', 1)]), r#"{"a":1}"#);
    plain(BTreeMap::from([(Wrapper("a".to_owned()), 1)]), r#"{"a":1}"#);
    plain(BTreeMap::from([(Shape::Unit, 1)]), r#"{"Unit":1}"#);
    plain(BTreeMap::from([(Some("a".to_owned()), 1)]), r#"{"a":1}"#);
}

#[test]
fn floats_are_numbers_that_keep_their_bits() {
    plain(Bits64(1.0), "1.0");
    plain(Bits64(-0.0), "-0.0");
    plain(Bits64(0.1), "0.1");
    plain(Bits64(1e300), "1e+300");
    plain(Bits64(5e-324), "5e-324");
    plain(Bits64(f64::MAX), "1.7976931348623157e+308");
    plain(Bits32(0.1), "0.1");
    plain(Bits32(-0.0), "-0.0");
    plain(Bits32(1e-45), "1e-45");
    plain(Bits32(f32::MAX), "3.4028235e+38");
}

#[test]
fn the_float_that_rounds_twice_is_written_longer() {
    is(Bits32(f32::from_bits(0x15ae_43fd)), "7.038530691851209e-26");
    is(Bits32(-f32::from_bits(0x15ae_43fd)), "-7.038530691851209e-26");
}

#[test]
fn other_floats_are_escaped() {
    is(Bits64(f64::INFINITY), r#"{"$f64":"inf"}"#);
    is(Bits64(f64::NEG_INFINITY), r#"{"$f64":"-inf"}"#);
    is(Bits64(f64::from_bits(0x7ff8_0000_0000_0000)), r#"{"$f64":"NaN"}"#);
    is(Bits64(f64::from_bits(0xfff8_0000_0000_0000)), r#"{"$f64":"NaN:fff8000000000000"}"#);
    is(Bits64(f64::from_bits(0x7ff0_0000_0000_0001)), r#"{"$f64":"NaN:7ff0000000000001"}"#);
    is(Bits32(f32::INFINITY), r#"{"$f32":"inf"}"#);
    is(Bits32(f32::from_bits(0x7fc0_0000)), r#"{"$f32":"NaN"}"#);
    is(Bits32(f32::from_bits(0xffc0_0001)), r#"{"$f32":"NaN:ffc00001"}"#);
}

#[test]
fn wide_integers_are_escaped_only_past_64_bits() {
    plain(i128::from(i64::MIN), "-9223372036854775808");
    plain(i128::from(u64::MAX), "18446744073709551615");
    plain(u128::from(u64::MAX), "18446744073709551615");
    is(i128::from(i64::MIN) - 1, r#"{"$i128":"-9223372036854775809"}"#);
    is(i128::MAX, r#"{"$i128":"170141183460469231731687303715884105727"}"#);
    is(u128::MAX, r#"{"$u128":"340282366920938463463374607431768211455"}"#);
}

#[test]
fn options_are_escaped_only_where_null_would_be_ambiguous() {
    type Four = Option<Option<Option<Option<u8>>>>;
    plain(None::<u8>, "null");
    plain(Some(5), "5");
    plain(None::<Four>, "null");
    is(Some(None::<Option<Option<u8>>>), r#"{"$some":null}"#);
    is(Some(Some(None::<Option<u8>>)), r#"{"$some":{"$some":null}}"#);
    is(Some(Some(Some(None::<u8>))), r#"{"$some":{"$some":{"$some":null}}}"#);
    plain(Some(Some(Some(Some(5)))), "5");
    is(Some(()), r#"{"$some":null}"#);
    is(Some(Nothing), r#"{"$some":null}"#);
    is(Some(Wrapper(None::<u8>)), r#"{"$some":null}"#);
    is(Some(Value::Null), r#"{"$some":null}"#);
    is(vec![None, Some(None), Some(Some(1))], r#"[null,{"$some":null},1]"#);
    plain(Some(vec![None::<u8>]), "[null]");
    is(Some(Dollar { some: Some(1) }), r#"{"$$some":1}"#);
    is(Some(Bits64(f64::INFINITY)), r#"{"$f64":"inf"}"#);
}

#[test]
fn bytes_are_base64() {
    is(Bytes(vec![]), r#"{"$bytes":""}"#);
    is(Bytes(vec![0, 159, 255, 7]), r#"{"$bytes":"AJ//Bw=="}"#);
}

#[test]
fn enums_are_externally_tagged() {
    plain(Shape::Unit, r#""Unit""#);
    plain(Shape::Newtype(1), r#"{"Newtype":1}"#);
    plain(Shape::Tuple(1, "b".into()), r#"{"Tuple":[1,"b"]}"#);
    plain(Shape::Struct { a: 1 }, r#"{"Struct":{"a":1}}"#);
    is(Shape::Odd(1), r#"{"$$odd":1}"#);
}

#[test]
fn maps_list_their_entries_from_the_first_key_on_that_is_not_a_string() {
    is(BTreeMap::from([(1, 'a'), (2, 'b')]), r#"{"$map":[[1,"a"],[2,"b"]]}"#);
    is(BTreeMap::from([(true, 1)]), r#"{"$map":[[true,1]]}"#);
    is(BTreeMap::from([((), 1)]), r#"{"$map":[[null,1]]}"#);
    is(BTreeMap::from([((1, 'a'), 1)]), r#"{"$map":[[[1,"a"],1]]}"#);
    is(BTreeMap::from([(Bytes(vec![1]), 1)]), r#"{"$map":[[{"$bytes":"AQ=="},1]]}"#);
    is(BTreeMap::from([(Some(()), 1), (None, 2)]), r#"{"$map":[[null,2],[{"$some":null},1]]}"#);
    is(BTreeMap::from([(None, 1), (Some("a".to_owned()), 2)]), r#"{"$map":[[null,1],["a",2]]}"#);
    is(
        BTreeMap::from([(Shape::Unit, 0), (Shape::Newtype(1), 1), (Shape::Struct { a: 1 }, 2), (Shape::Odd(1), 3)]),
        r#"{"Unit":0,"$map":[[{"Newtype":1},1],[{"Struct":{"a":1}},2],[{"$$odd":1},3]]}"#,
    );
    is(BTreeMap::from([(BTreeMap::from([(1, 2)]), BTreeMap::from([(3, 4)]))]), r#"{"$map":[[{"$map":[[1,2]]},{"$map":[[3,4]]}]]}"#);
}

#[test]
fn names_that_begin_with_a_dollar_get_another() {
    let keys = ["$", "$$", "$map", "$some", "a$"];
    is(BTreeMap::from(keys.map(|k| (k.to_owned(), 1))), r#"{"$$":1,"$$$":1,"$$map":1,"$$some":1,"a$":1}"#);
    is(Dollar { some: None }, r#"{"$$some":null}"#);
    is(json!({"$ref": "$defs"}), r#"{"$$ref":"$defs"}"#);
    is(BTreeMap::from([(None, 1), (Some("$map".to_owned()), 2)]), r#"{"$map":[[null,1],["$map",2]]}"#);
}

#[test]
fn json_values_are_exact() {
    let value = json!({"z": [1, -1, 1.0, 1e-7, u64::MAX, i64::MIN, null, true, ""], "a": {"": {}}, "f": []});
    assert_eq!(comes_back(&value), serde_json::to_string(&value).unwrap());
    is(Some(json!([null])), "[null]");
}

/// A raw value's text, as it was put in.
fn raw(text: &str) -> String {
    let saved = to_string(&RawValue::from_string(text.to_owned()).unwrap()).unwrap();
    let again: Box<RawValue> = from_str(&saved).unwrap_or_else(|error| panic!("{saved}: {error}"));
    assert_eq!(again.get(), text);
    saved
}

#[test]
fn raw_json_keeps_every_byte() {
    for text in ["null", "1.50", "-0", "1e999", "123456789012345678901234567890", r#""\u0041""#, r#"{ "b" : 1, "a" : [ ] , "b":2}"#] {
        assert_eq!(raw(text), text);
    }
    assert_eq!(raw(r#"{"$ref":1}"#), r#"{"$raw":"{\"$ref\":1}"}"#);
    assert_eq!(raw(r#"{"\u0024some":1}"#), r#"{"$raw":"{\"\\u0024some\":1}"}"#);
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    assert_eq!(raw(&deep), format!(r#"{{"$raw":"{deep}"}}"#));
    let some: Option<Box<RawValue>> = from_str(&to_string(&Some(RawValue::NULL)).unwrap()).unwrap();
    assert_eq!(some.unwrap().get(), "null");
}

#[test]
fn raw_json_is_a_key_too() {
    struct Once(Box<RawValue>);
    impl Serialize for Once {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(&self.0, &1)?;
            map.end()
        }
    }
    impl<'de> Deserialize<'de> for Once {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Once;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a map")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Once, A::Error> {
                    let entry: Option<(Box<RawValue>, u8)> = map.next_entry()?;
                    map.next_key::<serde::de::IgnoredAny>()?;
                    Ok(Once(entry.unwrap().0))
                }
            }
            deserializer.deserialize_map(Visitor)
        }
    }
    for text in [r#""a\u0041""#, r#""$""#, "1.50", r#"{"a":1}"#, "null"] {
        let saved = to_string(&Once(RawValue::from_string(text.to_owned()).unwrap())).unwrap();
        let again: Once = from_str(&saved).unwrap_or_else(|error| panic!("{saved}: {error}"));
        assert_eq!(again.0.get(), text, "{saved}");
    }
}

#[test]
fn raw_json_can_be_read_as_another_type() {
    let saved = to_string(&RawValue::from_string(r#"{"$some":5}"#.to_owned()).unwrap()).unwrap();
    assert_eq!(from_str::<Value>(&saved).unwrap(), json!({"$some": 5}));
    assert_eq!(from_str::<Dollar>(&saved).unwrap(), Dollar { some: Some(5) });
}

#[test]
fn numbers_of_any_precision_are_escaped_where_64_bits_would_change_their_text() {
    /// What `serde_json::Number` does under `arbitrary_precision`.
    struct Number(&'static str);
    impl Serialize for Number {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut number = serializer.serialize_struct("$serde_json::private::Number", 1)?;
            number.serialize_field("$serde_json::private::Number", self.0)?;
            number.end()
        }
    }
    for text in ["0", "-1", "18446744073709551615", "1.5", "-0.0", "1e-7"] {
        assert_eq!(to_string(&Number(text)).unwrap(), text);
    }
    for text in ["1.50", "1E5", "-0", "18446744073709551616", "0.1000000000000000000001", "1e999"] {
        assert_eq!(to_string(&Number(text)).unwrap(), format!(r#"{{"$number":"{text}"}}"#));
    }
    // Another crate in the build may turn the feature on.
    match from_str::<Value>(r#"{"$number":"1.50"}"#) {
        Ok(value) => assert_eq!(value.to_string(), "1.50"),
        Err(error) => assert_eq!(
            error.to_string(),
            "`$number` \"1.50\" cannot be read: malformed, or the feature `arbitrary_precision` of serde_json is off"
        ),
    }
}
