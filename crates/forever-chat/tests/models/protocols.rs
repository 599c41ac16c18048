//! What each recorded answer becomes.
use forever_chat::model::FinishReason;

use crate::support::{RECORDED, recorded};

#[test]
fn each_recorded_answer_becomes_these_events() {
    for recorded in RECORDED {
        insta::assert_snapshot!(recorded.name, recorded.whole().lines());
    }
}

#[test]
fn the_id_of_a_response_is_the_first_event() {
    for recorded in RECORDED.iter().filter(|recorded| recorded.name.starts_with("responses-")) {
        let lines = recorded.whole().lines();
        assert!(lines.starts_with("response resp_"), "{}: {lines}", recorded.name);
        // And there before anything else has come.
        let first = recorded.text.find("\n\n").expect("there are events") + 2;
        let told = recorded.read([&recorded.text.as_bytes()[..first]], None);
        assert_eq!(told.events.len(), 1, "{}", recorded.name);
    }
}

#[test]
fn unknown_events_fields_and_items_change_nothing() {
    for recorded in RECORDED {
        let text = recorded.text.replace("data: {", "data: {\"of_the_future\":{\"x\":[1,null]},");
        let strange = "event: nobody.knows\ndata: {\"type\":\"nobody.knows\",\"item\":{\"type\":\"thing\"},\"delta\":{\"a\":1}}\n\n";
        let text: String = text.split_inclusive("\n\n").flat_map(|event| [strange, event]).collect();
        assert_eq!(recorded.read([text.as_bytes()], None), recorded.whole(), "{}", recorded.name);
    }
}

#[test]
fn an_event_that_is_no_json_is_an_error_and_not_passed_over() {
    for name in ["responses-text", "completions-text", "anthropic-text"] {
        let recorded = recorded(name);
        let broken = recorded.text.replacen("\"}", "\"", 1);
        assert!(recorded.read([broken.as_bytes()], None).end.expect_err("something is missing").kind().is_transient(), "{name}");
    }
}

#[test]
fn nothing_behind_the_end_is_read() {
    for recorded in RECORDED.iter().filter(|recorded| recorded.whole().end.is_ok() && recorded.name != "completions-loose") {
        // Another answer, a second end, and an error.
        let text = format!("{0}{0}data: this is no JSON\n\n", recorded.text);
        assert_eq!(recorded.read([text.as_bytes()], None), recorded.whole(), "{}", recorded.name);
    }
}

#[test]
fn a_reason_that_is_not_known_is_another_one() {
    let of_future = |name: &str, known: &str, unknown: &str| {
        let recorded = recorded(name);
        assert!(recorded.text.contains(known), "{name}");
        recorded.read([recorded.text.replace(known, unknown).as_bytes()], None).end.map(|end| end.reason)
    };
    for (name, known, unknown) in [
        ("completions-text", r#""finish_reason":"stop""#, r#""finish_reason":"tired""#),
        ("anthropic-text", r#""stop_reason":"end_turn""#, r#""stop_reason":"tired""#),
        ("responses-incomplete", r#""reason":"max_output_tokens""#, r#""reason":"tired""#),
    ] {
        assert_eq!(of_future(name, known, unknown), Ok(FinishReason::Other), "{name}");
    }
}
