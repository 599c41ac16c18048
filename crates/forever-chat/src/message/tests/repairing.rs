//! What is put right before a model is asked.
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::message::build::MessageBuilder;
use crate::message::chunk::Chunk;
use crate::message::part::{Part, ToolState};
use crate::message::repair::{INTERRUPTED, Repair, repair};
use crate::message::tests::{message, streams};
use crate::message::ui_message::UiMessage;

fn answer(parts: Value) -> Vec<UiMessage> {
    vec![message(json!({ "id": "m", "role": "assistant", "parts": parts }))]
}

fn call(state: &str, more: Value) -> Value {
    let mut part = json!({ "type": "tool-look", "toolCallId": "c", "state": state, "input": { "a": 1 } });
    part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    part
}

/// Repairs one call, and gives its part and what was told of it.
fn repaired(part: Value, how: Repair) -> (Value, Vec<Chunk>) {
    let done = repair(answer(json!([part])), |_| how.clone());
    let told = done.calls.iter().map(|repaired| {
        assert_eq!((repaired.message.as_str(), repaired.call.as_str()), ("m", "c"));
        repaired.chunk.clone()
    });
    (serde_json::to_value(&done.messages[0].parts[0]).unwrap(), told.collect())
}

#[test]
fn case_97_an_interrupted_call_becomes_an_error_that_says_so() {
    for state in ["input-streaming", "input-available", "approval-requested", "approval-responded"] {
        let (part, told) = repaired(call(state, json!({})), Repair::Interrupted);
        assert_eq!(part, call("output-error", json!({ "errorText": INTERRUPTED })), "{state}");
        assert_eq!(told, [Chunk::tool_output_error("c", INTERRUPTED)]);
    }
}

#[test]
fn an_interrupted_call_becomes_what_its_program_says() {
    let (part, told) = repaired(call("input-available", json!({})), Repair::Failed("gone".into()));
    assert_eq!(part, call("output-error", json!({ "errorText": "gone" })));
    assert_eq!(told, [Chunk::tool_output_error("c", "gone")]);
    let (part, told) = repaired(call("input-available", json!({})), Repair::Output(json!([1])));
    assert_eq!(part, call("output-available", json!({ "output": [1] })));
    assert_eq!(told, [Chunk::tool_output_available("c", json!([1]))]);
}

#[test]
fn a_call_that_is_waited_for_is_left_alone() {
    for state in ["input-available", "approval-requested"] {
        let part = call(state, json!({ "input": null, "approval": { "id": "p" } }));
        assert_eq!(repaired(part.clone(), Repair::Wait), (part, vec![]));
    }
}

#[test]
fn a_call_that_has_its_result_is_not_asked_about() {
    for (state, more) in [
        ("output-available", json!({ "output": 1 })),
        ("output-available", json!({ "output": 1, "preliminary": false })),
        ("output-error", json!({ "errorText": "x" })),
        ("output-denied", json!({ "approval": { "id": "p", "approved": false } })),
        ("a state of tomorrow", json!({})),
    ] {
        let part = call(state, more);
        let done = repair(answer(json!([part])), |part| panic!("asked about {part:?}"));
        assert_eq!((done.messages, done.calls), (answer(json!([part])), vec![]));
    }
}

#[test]
fn a_call_whose_result_is_preliminary_has_none() {
    let (part, told) = repaired(call("output-available", json!({ "output": 1, "preliminary": true })), Repair::Interrupted);
    assert_eq!(part, call("output-error", json!({ "errorText": INTERRUPTED })));
    assert_eq!(told.len(), 1);
}

#[test]
fn input_that_is_no_object_becomes_one_and_is_kept_beside_it() {
    for (given, raw, input, kept) in [
        (json!({ "b": 2 }), None, json!({ "b": 2 }), None),
        (Value::Null, None, json!({}), None),
        (json!("{\"b\":2}"), None, json!({ "b": 2 }), Some(json!("{\"b\":2}"))),
        (json!("{\"b\":"), None, json!({}), Some(json!("{\"b\":"))),
        (json!("[1]"), None, json!({}), Some(json!("[1]"))),
        (json!([1]), None, json!({}), Some(json!([1]))),
        (json!([1]), Some(json!("was here")), json!({}), Some(json!("was here"))),
        (Value::Null, Some(json!({ "b": 2 })), json!({ "b": 2 }), Some(json!({ "b": 2 }))),
        (Value::Null, Some(json!("{\"b\":")), json!({}), Some(json!("{\"b\":"))),
    ] {
        let mut part = call("output-error", json!({ "errorText": "x", "input": given }));
        if let Some(raw) = raw {
            part["rawInput"] = raw;
        }
        let (made, _) = repaired(part.clone(), Repair::Interrupted);
        assert_eq!((&made["input"], made.get("rawInput")), (&input, kept.as_ref()), "{part}");
    }
}

#[test]
fn an_answer_with_nothing_to_read_is_left_out() {
    for nothing in [
        json!([]),
        json!([{ "type": "step-start" }, { "type": "data-w", "data": 1 }]),
        json!([{ "type": "text", "text": "", "state": "streaming" }]),
        json!([{ "type": "reasoning", "text": " \n" }, { "type": "source-url", "sourceId": "s", "url": "u" }]),
    ] {
        assert_eq!(repair(answer(nothing.clone()), |_| Repair::Interrupted).messages, [], "{nothing}");
    }
    for something in [
        json!([{ "type": "step-start" }, { "type": "text", "text": "a" }]),
        json!([{ "type": "reasoning", "text": "a" }]),
        json!([{ "type": "file", "url": "u", "mediaType": "x/y" }]),
        json!([call("output-available", json!({ "output": 1 }))]),
    ] {
        assert_eq!(repair(answer(something.clone()), |_| Repair::Interrupted).messages, answer(something));
    }
}

#[test]
fn text_and_reasoning_that_were_cut_off_are_done() {
    let done = repair(
        answer(
            json!([{ "type": "reasoning", "id": "r", "text": "a", "state": "streaming" }, { "type": "text", "text": "b", "state": "streaming" }]),
        ),
        |_| Repair::Interrupted,
    );
    let expected =
        json!([{ "type": "reasoning", "id": "r", "text": "a", "state": "done" }, { "type": "text", "text": "b", "state": "done" }]);
    assert_eq!(done.messages, answer(expected));
}

#[test]
fn what_persons_and_programs_have_said_is_not_touched() {
    let said: Vec<_> = ["user", "system"]
        .into_iter()
        .map(|role| message(json!({ "id": "m", "role": role, "parts": [call("input-available", json!({})), { "type": "text", "text": "", "state": "streaming" }] })))
        .chain([message(json!({ "id": "m", "role": "user", "parts": [] }))])
        .collect();
    assert_eq!(repair(said.clone(), |_| Repair::Interrupted).messages, said);
}

fn hows() -> impl Fn(&Part) -> Repair {
    // Any rule will do that says the same about the same part.
    |part| match part.tool_state() {
        Some(ToolState::ApprovalRequested) => Repair::Wait,
        Some(ToolState::InputAvailable) => Repair::Output(json!("x")),
        Some(ToolState::ApprovalResponded) => Repair::Failed("y".into()),
        _ => Repair::Interrupted,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_put_right_stays_as_it_is(chunks in streams::attempt(), cut in any::<prop::sample::Index>()) {
        let partial = super::built(&chunks[..=cut.index(chunks.len())]).into_message();
        let once = repair(vec![partial], hows());
        let twice = repair(once.messages.clone(), hows());
        prop_assert_eq!(&twice.messages, &once.messages);
        prop_assert_eq!(twice.calls, vec![]);
        for part in once.messages.iter().flat_map(|message| &message.parts).filter(|part| part.is_tool()) {
            let settled = part.tool_state().is_some_and(ToolState::is_settled) && part.get("preliminary") != Some(&json!(true));
            let waits = part.tool_state() == Some(ToolState::ApprovalRequested);
            prop_assert!(settled != waits, "{:?}", part);
            prop_assert!(waits || part.get("input").is_some_and(Value::is_object), "{:?}", part);
        }
    }

    /// A client that has the message open and one that is shown the repaired message see the same.
    #[test]
    fn the_chunks_of_a_repair_do_what_the_repair_does(chunks in streams::attempt(), cut in any::<prop::sample::Index>()) {
        let partial = super::built(&chunks[..=cut.index(chunks.len())]).into_message();
        let once = repair(vec![partial.clone()], hows());
        let mut told = MessageBuilder::new(partial);
        for repaired in &once.calls {
            told.apply(&repaired.chunk).unwrap();
        }
        let again = repair(vec![told.into_message()], |part| if part.tool_state() == Some(ToolState::ApprovalRequested) { Repair::Wait } else { panic!("left over: {part:?}") });
        prop_assert_eq!(again.messages, once.messages);
    }
}
