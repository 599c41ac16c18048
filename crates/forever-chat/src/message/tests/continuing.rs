//! New attempts behind unfinished ones. The messages are as a client makes them, which `recorded` shows of the builder.
use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::message::build::{MessageBuilder, Prose};
use crate::message::chunk::Chunk;
use crate::message::continuation::Continuation;
use crate::message::part::{Part, ToolState};
use crate::message::tests::{built, chunks, parts, streams};
use crate::message::ui_message::UiMessage;

/// What goes behind an unfinished log for an attempt, and the parts of the message then.
fn continued(log: Value, attempt: Value) -> (Vec<Chunk>, Vec<Part>) {
    let mut builder = built(&chunks(log));
    let mut continuation = Continuation::of(&builder);
    let added: Vec<_> = chunks(attempt).into_iter().flat_map(|chunk| continuation.next(chunk)).collect();
    for chunk in &added {
        builder.apply(chunk).unwrap();
    }
    (added, builder.into_message().parts)
}

fn cut_text() -> Value {
    json!([
        { "type": "start", "messageId": "m" }, { "type": "start-step" },
        { "type": "text-start", "id": "1" }, { "type": "text-delta", "id": "1", "delta": "Hello, " },
    ])
}

#[test]
fn case_124_text_that_was_cut_off_goes_on_in_its_part() {
    let (added, parts_made) = continued(
        cut_text(),
        json!([
            { "type": "start", "messageId": "n" }, { "type": "start-step" },
            { "type": "text-start", "id": "a" }, { "type": "text-delta", "id": "a", "delta": "world" }, { "type": "text-end", "id": "a" },
            { "type": "text-start", "id": "a" }, { "type": "text-delta", "id": "a", "delta": "!" }, { "type": "text-end", "id": "a" },
            { "type": "finish-step" }, { "type": "finish" },
        ]),
    );
    let expected = json!([
        { "type": "text-delta", "id": "1", "delta": "world" }, { "type": "text-end", "id": "1" },
        { "type": "text-start", "id": "a" }, { "type": "text-delta", "id": "a", "delta": "!" }, { "type": "text-end", "id": "a" },
        { "type": "finish-step" }, { "type": "finish" },
    ]);
    assert_eq!(added, chunks(expected));
    let expected = json!([
        { "type": "step-start" }, { "type": "text", "text": "Hello, world", "state": "done" }, { "type": "text", "text": "!", "state": "done" },
    ]);
    assert_eq!(parts_made, parts(expected));
}

#[test]
fn case_124_text_that_had_ended_is_not_gone_on_with() {
    let mut log = cut_text();
    log.as_array_mut().unwrap().push(json!({ "type": "text-end", "id": "1" }));
    let again = json!([
        { "type": "start-step" }, { "type": "text-start", "id": "1" }, { "type": "text-delta", "id": "1", "delta": "world" },
    ]);
    let (added, parts_made) = continued(log, again.clone());
    assert_eq!(added, chunks(again), "an id may be used again after its end");
    let expected = json!([
        { "type": "step-start" }, { "type": "text", "text": "Hello, ", "state": "done" },
        { "type": "step-start" }, { "type": "text", "text": "world", "state": "streaming" },
    ]);
    assert_eq!(parts_made, parts(expected));
}

#[test]
fn reasoning_that_was_cut_off_goes_on_in_its_part_unless_it_is_kept_apart() {
    let log = [Chunk::start_step(), Chunk::reasoning_start("1"), Chunk::reasoning_delta("1", "so ")];
    let again = [Chunk::start_step(), Chunk::reasoning_start("2"), Chunk::reasoning_delta("2", "be it"), Chunk::reasoning_end("2")];
    let mut continuation = Continuation::of(&built(&log));
    let added: Vec<_> = again.clone().into_iter().flat_map(|chunk| continuation.next(chunk)).collect();
    assert_eq!(added, [Chunk::reasoning_delta("1", "be it"), Chunk::reasoning_end("1")]);

    let mut continuation = Continuation::of(&built(&log)).reasoning_apart();
    let added: Vec<_> = again.clone().into_iter().flat_map(|chunk| continuation.next(chunk)).collect();
    assert_eq!(added, [vec![Chunk::reasoning_end("1")], again.to_vec()].concat());
}

#[test]
fn what_is_open_ends_before_something_else_begins() {
    for other in [
        json!({ "type": "reasoning-start", "id": "1" }),
        json!({ "type": "tool-input-start", "toolCallId": "c", "toolName": "look" }),
        json!({ "type": "file", "url": "u", "mediaType": "x/y" }),
        json!({ "type": "finish-step" }),
    ] {
        let (added, made) = continued(cut_text(), json!([{ "type": "start" }, { "type": "start-step" }, other]));
        assert_eq!(added, chunks(json!([{ "type": "text-end", "id": "1" }, { "type": "start-step" }, other])));
        assert_eq!(made[1].str("state"), Some("done"));
    }
    let (added, _) = continued(cut_text(), json!([{ "type": "finish" }]));
    assert_eq!(added, chunks(json!([{ "type": "text-end", "id": "1" }, { "type": "finish" }])));
}

#[test]
fn only_what_was_said_last_is_gone_on_with() {
    let log = json!([
        { "type": "text-start", "id": "1" }, { "type": "text-start", "id": "2" }, { "type": "reasoning-start", "id": "1" },
    ]);
    let (added, _) = continued(log.clone(), json!([{ "type": "reasoning-start", "id": "x" }, { "type": "reasoning-end", "id": "x" }]));
    let ends = json!([{ "type": "text-end", "id": "1" }, { "type": "text-end", "id": "2" }, { "type": "reasoning-end", "id": "1" }]);
    assert_eq!(added, chunks(ends.clone()));
    let (added, _) = continued(log, json!([{ "type": "text-start", "id": "1" }]));
    let mut ends = chunks(ends);
    ends.push(Chunk::text_start("1"));
    assert_eq!(added, ends);
}

#[test]
fn an_id_that_is_open_in_the_log_is_not_used_for_another_part() {
    let log = json!([{ "type": "text-start", "id": "1" }, { "type": "text-start", "id": "2" }, { "type": "text-delta", "id": "2", "delta": "a" }]);
    let (added, made) = continued(
        log,
        json!([
            { "type": "text-start", "id": "1" }, { "type": "text-start", "id": "2" }, { "type": "text-start", "id": "2-2" },
            { "type": "text-delta", "id": "1", "delta": "b" }, { "type": "text-delta", "id": "2", "delta": "c" },
            { "type": "text-delta", "id": "2-2", "delta": "d" },
            { "type": "text-end", "id": "1" }, { "type": "text-end", "id": "2" }, { "type": "text-end", "id": "2-2" },
            { "type": "text-start", "id": "2" }, { "type": "text-end", "id": "2" },
        ]),
    );
    let names: Vec<_> = added.iter().filter(|chunk| chunk.kind() == "text-start").map(|chunk| chunk.str("id").unwrap()).collect();
    assert_eq!(names, ["2-2", "2-2-2", "2"]);
    let texts: Vec<_> = made.iter().map(|part| (part.as_text().unwrap(), part.str("state").unwrap())).collect();
    assert_eq!(texts, [("", "done"), ("ab", "done"), ("c", "done"), ("d", "done"), ("", "done")]);
}

#[test]
fn an_id_is_free_when_the_step_that_used_it_is_over() {
    let again = json!([
        { "type": "text-start", "id": "a" }, { "type": "finish-step" }, { "type": "start-step" },
        { "type": "text-start", "id": "1" }, { "type": "text-start", "id": "a" },
    ]);
    let (added, _) = continued(cut_text(), again.clone());
    assert_eq!(added, chunks(again)[1..]);
}

#[test]
fn a_message_begins_once_and_keeps_its_id() {
    let again = json!([{ "type": "start", "messageId": "n" }, { "type": "start", "messageId": "n", "messageMetadata": { "a": 1 } }]);
    let (added, _) = continued(cut_text(), again.clone());
    assert_eq!(added, [Chunk::metadata(json!({ "a": 1 }))]);
    let (added, _) = continued(json!([]), again.clone());
    assert_eq!(added, [chunks(again).remove(0), Chunk::metadata(json!({ "a": 1 }))], "unless it had not begun");
}

#[test]
fn a_step_that_had_nothing_in_it_begins_once() {
    let again = json!([{ "type": "start-step" }, { "type": "text-start", "id": "1" }]);
    let (added, _) = continued(json!([{ "type": "start" }, { "type": "start-step" }]), again.clone());
    assert_eq!(added, [Chunk::text_start("1")]);
    let (added, _) = continued(json!([{ "type": "start" }, { "type": "start-step" }, { "type": "finish-step" }]), again);
    assert_eq!(added, [Chunk::text_start("1")], "nor does one that had ended so");
}

#[test]
fn data_sources_and_metadata_do_not_come_between_a_text_and_the_rest_of_it() {
    let mut log = cut_text();
    let beside = json!([
        { "type": "data-w", "data": 1 }, { "type": "source-url", "sourceId": "s", "url": "u" },
        { "type": "message-metadata", "messageMetadata": { "a": 1 } }, { "type": "not-known" },
    ]);
    log.as_array_mut().unwrap().extend(beside.as_array().unwrap().clone());
    let mut again = vec![json!({ "type": "start-step" })];
    again.extend(beside.as_array().unwrap().clone());
    again.push(json!({ "type": "text-start", "id": "x" }));
    let (added, made) = continued(log, again.into());
    assert_eq!(added, chunks(beside), "shown at once, and the step goes on");
    assert_eq!(made.iter().filter(|part| part.kind() == "text").count(), 1);
}

#[test]
fn what_the_provider_says_of_a_part_is_not_lost_with_its_beginning() {
    let (added, made) = continued(cut_text(), json!([{ "type": "text-start", "id": "x", "providerMetadata": { "p": { "id": 7 } } }]));
    assert_eq!(added, chunks(json!([{ "type": "text-delta", "id": "1", "delta": "", "providerMetadata": { "p": { "id": 7 } } }])));
    assert_eq!(made[1].get("providerMetadata"), Some(&json!({ "p": { "id": 7 } })));
}

#[test]
fn a_stream_that_is_taken_up_where_it_was_cut_is_left_as_it_is() {
    let log = json!([
        { "type": "start-step" }, { "type": "text-start", "id": "1" }, { "type": "reasoning-start", "id": "1" },
    ]);
    let rest = json!([
        { "type": "text-delta", "id": "1", "delta": "a" }, { "type": "reasoning-end", "id": "1" },
        { "type": "text-start", "id": "2" }, { "type": "text-end", "id": "1" }, { "type": "text-end", "id": "2" }, { "type": "finish-step" },
    ]);
    let (added, _) = continued(log, rest.clone());
    assert_eq!(added, chunks(rest));
}

/// A log with one call, in one state.
fn called(state: Value) -> Value {
    let mut log =
        json!([{ "type": "start" }, { "type": "start-step" }, { "type": "tool-input-start", "toolCallId": "c", "toolName": "look" }]);
    log.as_array_mut().unwrap().extend(state.as_array().unwrap().clone());
    log
}

fn replay(result: Value) -> Value {
    json!([
        { "type": "start-step" },
        { "type": "tool-input-start", "toolCallId": "c", "toolName": "look" },
        { "type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{}" },
        { "type": "tool-input-available", "toolCallId": "c", "toolName": "look", "input": {} },
        result,
        { "type": "text-start", "id": "1" },
    ])
}

#[test]
fn case_125_a_call_that_has_its_result_is_not_made_again() {
    let input = json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "look", "input": { "a": 1 } });
    for result in [
        json!({ "type": "tool-output-available", "toolCallId": "c", "output": 1 }),
        json!({ "type": "tool-output-error", "toolCallId": "c", "errorText": "no" }),
        json!({ "type": "tool-output-denied", "toolCallId": "c" }),
    ] {
        let log = called(json!([input, result]));
        let before = built(&chunks(log.clone())).into_message().parts;
        for again in [
            json!({ "type": "tool-output-available", "toolCallId": "c", "output": 2 }),
            json!({ "type": "tool-output-error", "toolCallId": "c", "errorText": "too late" }),
            json!({ "type": "tool-output-denied", "toolCallId": "c" }),
            json!({ "type": "tool-approval-request", "toolCallId": "c", "approvalId": "p" }),
            json!({ "type": "tool-input-error", "toolCallId": "c", "toolName": "look", "input": 1, "errorText": "no" }),
        ] {
            let (added, made) = continued(log.clone(), replay(again));
            assert_eq!(added, [Chunk::start_step(), Chunk::text_start("1")]);
            assert_eq!(made[..before.len()], before);
        }
    }
}

#[test]
fn a_call_whose_input_was_there_is_given_its_result_but_not_its_input_again() {
    let input = json!({ "type": "tool-input-available", "toolCallId": "c", "toolName": "look", "input": { "a": 1 } });
    let question = json!({ "type": "tool-approval-request", "toolCallId": "c", "approvalId": "p" });
    let preliminary = json!({ "type": "tool-output-available", "toolCallId": "c", "output": 1, "preliminary": true });
    for state in [json!([input]), json!([input, question]), json!([input, preliminary])] {
        let (added, made) = continued(called(state), replay(json!({ "type": "tool-output-available", "toolCallId": "c", "output": 2 })));
        assert_eq!(added, [Chunk::start_step(), Chunk::tool_output_available("c", json!(2)), Chunk::text_start("1")]);
        assert_eq!((made[1].get("input"), made[1].get("output")), (Some(&json!({ "a": 1 })), Some(&json!(2))));
    }
}

#[test]
fn a_call_whose_input_was_being_written_is_begun_again_in_its_part() {
    let log = called(json!([{ "type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{\"a\":" }]));
    let (added, made) = continued(log, replay(json!({ "type": "tool-output-available", "toolCallId": "c", "output": 2 })));
    assert_eq!(added.len(), 5, "all but the beginning of the step");
    let expected = json!([
        { "type": "step-start" },
        { "type": "tool-look", "toolCallId": "c", "state": "output-available", "input": {}, "output": 2 },
        { "type": "text", "text": "", "state": "streaming" },
    ]);
    assert_eq!(made, parts(expected));
}

#[test]
fn a_person_who_has_answered_is_not_asked_again() {
    let partial = json!({ "id": "m", "role": "assistant", "parts": [
        { "type": "tool-pay", "toolCallId": "c", "state": "approval-responded", "input": {}, "approval": { "id": "p", "approved": true } },
    ] });
    let builder = MessageBuilder::new(super::message(partial));
    let mut continuation = Continuation::of(&builder);
    assert_eq!(continuation.next(Chunk::tool_approval_request("c", "q")), []);
    let paid = Chunk::tool_output_available("c", json!("paid"));
    assert_eq!(continuation.next(paid.clone()), [paid]);
}

fn prose(message: &UiMessage, prose: Prose) -> String {
    let texts = message.parts.iter().filter(|part| part.kind() == prose.as_str());
    texts.filter_map(|part| part.str("text")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// However often an answer is cut off, what a client has seen stays, and what is said afterwards is added to it.
    #[test]
    fn a_client_that_saw_every_attempt_has_one_right_message(
        cut in prop::collection::vec((streams::attempt(), any::<prop::sample::Index>()), 1..3),
        last in streams::attempt(),
    ) {
        let mut attempts: Vec<_> = cut.into_iter().map(|(chunks, at)| chunks[..at.index(chunks.len())].to_vec()).collect();
        attempts.push(last);
        let mut log = MessageBuilder::default();
        let mut open = BTreeSet::new();
        let mut starts = 0;
        for attempt in attempts {
            let before = log.clone().into_message();
            let mut continuation = Continuation::of(&log);
            for chunk in attempt.clone().into_iter().flat_map(|chunk| continuation.next(chunk)) {
                prop_assert!(log.apply(&chunk).is_ok(), "{}: {:?}", chunk.to_text(), log.apply(&chunk));
                let part = (chunk.kind().split_once('-').map(|(prose, _)| prose.to_owned()), chunk.str("id").map(str::to_owned));
                match chunk.kind() {
                    "start" => starts += 1,
                    "finish-step" => prop_assert!(open.is_empty(), "the step leaves {open:?} open"),
                    "text-start" | "reasoning-start" => prop_assert!(open.insert(part), "{} is open already", chunk.to_text()),
                    "text-end" | "reasoning-end" => drop(open.remove(&part)),
                    _ => {}
                }
            }
            let after = log.clone().into_message();
            let said = built(&attempt).into_message();
            for kind in [Prose::Text, Prose::Reasoning] {
                prop_assert_eq!(prose(&after, kind), prose(&before, kind) + &prose(&said, kind));
            }
            for (was, is) in before.parts.iter().zip(&after.parts) {
                prop_assert_eq!(was.kind(), is.kind());
                prop_assert_eq!(was.tool_call_id(), is.tool_call_id());
                prop_assert!(is.str("text").unwrap_or_default().starts_with(was.str("text").unwrap_or_default()));
                let final_result = was.get("preliminary").is_none();
                if was.tool_state().is_some_and(ToolState::is_settled) && final_result {
                    prop_assert_eq!(was, is);
                }
            }
            for call in before.parts.iter().filter(|part| part.tool_state() != Some(ToolState::InputStreaming)).filter_map(Part::tool_call_id) {
                let count = |message: &UiMessage| message.parts.iter().filter(|part| part.tool_call_id() == Some(call)).count();
                prop_assert_eq!(count(&after), count(&before), "{} is made twice", call);
            }
            prop_assert!(after.parts.len() >= before.parts.len());
        }
        prop_assert!(starts <= 1);
        let message = log.into_message();
        let streaming: Vec<_> = message.parts.iter().filter(|part| matches!(part.kind(), "text" | "reasoning") && part.str("state") != Some("done")).collect();
        prop_assert!(streaming.is_empty(), "{streaming:?}");
    }
}
