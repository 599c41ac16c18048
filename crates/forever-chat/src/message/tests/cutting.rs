//! JSON that is cut off, beside what was recorded: random values, cut anywhere.
use proptest::prelude::*;
use serde_json::Value;

use crate::message::partial_json::read;

fn values() -> impl Strategy<Value = Value> {
    let text = "[a-c\"\\\\\u{e9}\u{1f600}\n{}\\[\\],:]{0,6}";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e6..1e6_f64).prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d\u{e9} ]{0,3}", inner, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Whether one value is the beginning of another: what is there of it is right, but for what comes last, which may be cut.
fn begins(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::String(part), Value::String(whole)) => whole.starts_with(part.as_str()),
        (Value::Array(part), Value::Array(whole)) => part.len() <= whole.len() && part.iter().zip(whole).all(|(a, b)| begins(a, b)),
        (Value::Object(part), Value::Object(whole)) => part.iter().all(|(key, a)| whole.get(key).is_some_and(|b| begins(a, b))),
        (Value::Number(_), Value::Number(_)) => true,
        (part, whole) => part == whole,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_of_cut_off_json_is_a_beginning_of_its_value(value in values(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        for (end, c) in text.char_indices() {
            let part = read(&text[..end]);
            prop_assert!(part.as_ref().is_none_or(|part| begins(part, &value)), "{} gives {part:?}", &text[..end]);
            // The client keeps the sign of a list's first number, and then cannot read the list.
            if end > 0 && value.is_object() && !text[..end].contains('\\') && !text[..end].ends_with('-') {
                prop_assert!(part.is_some(), "nothing is read of {} before {c}", &text[..end]);
            }
        }
        prop_assert_eq!(read(&text), Some(value));
    }

    #[test]
    fn no_text_makes_reading_it_panic(text in "[\\[\\]{}\",:\\\\u0-9a-fd8tr\u{e9}\u{1f600}. -]{0,40}") {
        read(&text);
    }
}

#[test]
fn text_that_is_nested_too_deep_is_not_read() {
    assert_eq!(read(&"[".repeat(100_000)), None);
    assert_eq!(read(&"{\"a\":".repeat(100_000)), None);
}
