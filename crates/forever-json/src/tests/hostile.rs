//! Texts that nobody wrote, and types that do not keep their word: errors that say where, and never a panic.
use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::{from_str, to_string};
use super::types::Everything;
use super::{Bits32, Bits64, Bytes};

#[track_caller]
fn fails<T: DeserializeOwned + Debug>(text: &str, with: &str) {
    assert_eq!(from_str::<T>(text).unwrap_err().to_string(), with, "{text}");
}

#[derive(Debug, Deserialize)]
struct Report {
    #[expect(dead_code, reason = "only read")]
    hits: Vec<Hit>,
}

#[derive(Debug, Deserialize)]
struct Hit {
    #[expect(dead_code, reason = "only read")]
    score: BTreeMap<String, Score>,
}

#[derive(Debug, Deserialize)]
enum Score {
    Of(#[expect(dead_code, reason = "only read")] u8),
}

#[test]
fn errors_say_where_and_what() {
    fails::<Report>(
        r#"{"hits":[{"score":{}},{"score":{"a":{"Of":"x"}}}]}"#,
        "at `hits[1].score.a.Of`: invalid type: string \"x\", expected u8",
    );
    fails::<Report>(
        r#"{"hits":[{"score":{"a b":{"Of":300}}}]}"#,
        "at `hits[0].score[\"a b\"].Of`: invalid value: integer `300`, expected u8",
    );
    fails::<Report>(r#"{"hits":[{}]}"#, "at `hits[0]`: missing field `score`");
    fails::<Report>(r#"{"hits":[{"score":{"a":{"If":1}}}]}"#, "at `hits[0].score.a`: unknown variant `If`, expected `Of`");
    fails::<BTreeMap<u8, u8>>(r#"{"$map":[[1,true]]}"#, "at `[1]`: invalid type: boolean `true`, expected u8");
    fails::<BTreeMap<u8, u8>>(r#"{"$map":[["x",1]]}"#, "in a map's key: invalid type: string \"x\", expected u8");
    fails::<Vec<u8>>("[1,2", "expected `,` at byte 4");
    fails::<Vec<u8>>("[1] 2", "more text than one value at byte 4");
    fails::<(u8, u8)>("[1,2,3]", "more entries than expected at byte 4");
    fails::<String>("\"a", "string without an end at byte 0");
    fails::<String>(r#""\ud800""#, "malformed string: unexpected end of hex escape at byte 0");
    fails::<u8>("01", "malformed number at byte 0");
    fails::<u8>("", "expected a value at byte 0");
    fails::<u64>("18446744073709551616", "the number 18446744073709551616 does not fit in 64 bits");
    fails::<f64>("1e999", "the number 1e999 is too large for a float");
    fails::<Value>(r#"{"$what":1}"#, "unknown escape `$what` at byte 0");
    fails::<Value>(r#"{"a":1,"$f64":"NaN"}"#, "misplaced escape `$f64`");
    fails::<Bits64>(r#"{"$f64":"nan"}"#, "malformed `$f64`: \"nan\"");
    fails::<Bits64>(r#"{"$f64":"NaN:3ff0000000000000"}"#, "malformed `$f64`: \"NaN:3ff0000000000000\"");
    fails::<Bytes>(r#"{"$bytes":"A"}"#, "malformed `$bytes`: \"A\"");
    fails::<Box<RawValue>>(r#"{"$raw":"nope"}"#, "expected ident at byte 0");
    fails::<u8>(r#"{"$u128":"-1"}"#, "malformed `$u128`: \"-1\"");
    fails::<Score>(r#"{"$some":1}"#, "the escape `$some` is not a variant at byte 0");
    fails::<Score>("1", "invalid type: integer `1`, expected enum Score");
}

#[test]
fn nothing_may_follow_the_list_of_a_map() {
    fails::<BTreeMap<u8, u8>>(r#"{"$map":[[1,2]],"3":4}"#, "more entries than expected at byte 15");
    fails::<BTreeMap<u8, u8>>(r#"{"$map":[[1,2,3]]}"#, "more entries than expected at byte 13");
    fails::<BTreeMap<u8, u8>>(r#"{"$map":[[1]]}"#, "expected `,` at byte 11");
    fails::<BTreeMap<u8, u8>>(r#"{"$map":{}}"#, "expected `[` at byte 8");
}

#[test]
fn text_that_was_edited_by_hand_is_read() {
    assert_eq!(from_str::<f64>(" 1\n").unwrap().to_bits(), 1_f64.to_bits());
    assert_eq!(from_str::<Option<Option<u8>>>("{ \"$some\" :\tnull }").unwrap(), Some(None));
    assert_eq!(from_str::<BTreeMap<u8, i8>>("{ \"1\" : -1 , \"$map\" : [ [ 2 , -2 ] ] }").unwrap(), BTreeMap::from([(1, -1), (2, -2)]));
    assert_eq!(from_str::<BTreeMap<u8, u8>>(r#"{"$map":[]}"#).unwrap(), BTreeMap::new());
}

#[test]
fn the_error_of_a_failing_impl_is_kept() {
    struct Fails;
    impl Serialize for Fails {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("the socket has no name"))
        }
    }
    /// Goes on as if nothing had happened.
    struct Swallows;
    impl Serialize for Swallows {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(Some(7))?;
            let _ = seq.serialize_element(&vec![Fails]);
            seq.serialize_element(&1)?;
            seq.end()
        }
    }

    let value = BTreeMap::from([("a", vec![None, Some(Fails)])]);
    assert_eq!(to_string(&value).unwrap_err().to_string(), "at `a[1]`: the socket has no name");
    assert!(to_string(&Swallows).unwrap_err().to_string().contains("the socket has no name"));
}

#[test]
fn lengths_that_lie_and_maps_out_of_step_do_no_harm() {
    struct Lies(u8);
    impl Serialize for Lies {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self.0 {
                0 => {
                    let mut seq = serializer.serialize_seq(Some(usize::MAX))?;
                    seq.serialize_element(&1)?;
                    seq.end()
                }
                1 => serializer.serialize_seq(None)?.end(),
                2 => {
                    let mut map = serializer.serialize_map(None)?;
                    map.serialize_key("a")?;
                    map.serialize_key("b")?;
                    map.end()
                }
                3 => {
                    let mut map = serializer.serialize_map(None)?;
                    map.serialize_value("a")?;
                    map.end()
                }
                _ => {
                    let mut map = serializer.serialize_map(None)?;
                    map.serialize_key("a")?;
                    map.end()
                }
            }
        }
    }
    assert_eq!(to_string(&Lies(0)).unwrap(), "[1]");
    assert_eq!(to_string(&Lies(1)).unwrap(), "[]");
    for n in 2..5 {
        assert!(to_string(&Lies(n)).is_err(), "{n}");
    }
}

#[test]
fn names_that_serde_json_would_take_for_its_own_are_refused() {
    for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
        let error = to_string(&BTreeMap::from([(key, "1")])).unwrap_err().to_string();
        assert_eq!(error, format!("the key `{key}` is reserved by serde_json, which could not read it back"));
    }
}

fn every_type(text: &str) {
    let _ = from_str::<Everything>(text);
    let _ = from_str::<Value>(text);
    let _ = from_str::<Box<RawValue>>(text);
    let _ = from_str::<BTreeMap<Option<String>, Vec<Bits32>>>(text);
    let _ = from_str::<(Option<Option<()>>, Bytes, i128, char)>(text);
    let _ = super::same(text, "[1]");
}

/// Texts that are JSON by half.
fn scraps() -> impl Strategy<Value = String> {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "$",
        "\"$some\":",
        "{\"$map\":[[",
        "{\"$f64\":\"NaN\"}",
        "{\"$bytes\":\"",
        "{\"$raw\":\"1\"}",
        "{\"$number\":\"",
        "\"a\"",
        "1",
        "-",
        ".5",
        "e9",
        "null",
        "tru",
        "\u{e9}",
        " ",
        "\\ud800",
        "\u{0}",
    ];
    proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in prop_oneof![scraps(), any::<String>()]) {
        every_type(&text);
    }

    #[test]
    fn damaged_texts_are_errors_or_values_but_never_panics(value in super::types::everything(), at in any::<proptest::sample::Index>(), scrap in scraps()) {
        let text = to_string(&value).unwrap();
        let at = (0..=at.index(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (before, after) = text.split_at(at);
        every_type(before);
        every_type(&(before.to_owned() + &scrap + after));
    }
}
