//! What a builder tells beside its message.
use serde_json::json;

use crate::message::build::{MessageBuilder, Prose};
use crate::message::chunk::Chunk;
use crate::message::tests::{built, chunks, message, parts};

#[test]
fn what_is_open_is_told_in_the_order_of_its_parts_and_can_be_closed() {
    let mut builder = built(&chunks(json!([
        { "type": "start", "messageId": "m" },
        { "type": "text-start", "id": "z" },
        { "type": "reasoning-start", "id": "r" },
        { "type": "text-start", "id": "a" },
        { "type": "text-start", "id": "ended" },
        { "type": "text-end", "id": "ended" },
    ])));
    let open: Vec<_> = builder.open().into_iter().map(|part| (part.prose, part.id, part.at)).collect();
    assert_eq!(open, [(Prose::Text, "z".into(), 0), (Prose::Reasoning, "r".into(), 1), (Prose::Text, "a".into(), 2)]);

    let mut told = builder.clone();
    let ends = builder.close();
    assert_eq!(ends, [Chunk::text_end("z"), Chunk::reasoning_end("r"), Chunk::text_end("a")]);
    assert!(builder.open().is_empty());
    for end in &ends {
        told.apply(end).unwrap();
    }
    assert_eq!(told.message(), builder.message(), "the chunks do what closing does");
    assert!(builder.message().parts.iter().all(|part| part.str("state") == Some("done")));
    assert!(builder.close().is_empty());
}

#[test]
fn nothing_that_a_step_left_behind_is_open() {
    let builder = built(&[Chunk::start_step(), Chunk::text_start("t"), Chunk::reasoning_start("r"), Chunk::finish_step()]);
    assert_eq!(builder.open(), []);
}

#[test]
fn a_chunk_that_is_refused_names_what_is_wrong_and_changes_nothing() {
    let partial = json!({ "id": "m", "role": "assistant", "metadata": [1], "parts": [
        { "type": "text", "text": "a", "state": "streaming" },
        { "type": "tool-look", "toolCallId": "c", "state": "input-streaming", "rawInput": "{" },
    ] });
    let mut builder = MessageBuilder::new(message(partial));
    builder.apply(&Chunk::text_start("t")).unwrap();
    let before = builder.clone().into_message();
    for (chunk, why) in [
        (Chunk::text_delta("u", "x"), "chunk `text-delta`: text `u` has not begun, or has ended"),
        (Chunk::reasoning_end("t"), "chunk `reasoning-end`: reasoning `t` has not begun, or has ended"),
        (Chunk::tool_input_delta("d", "x"), "chunk `tool-input-delta`: the input of call `d` has not begun"),
        (Chunk::tool_output_error("d", "x"), "chunk `tool-output-error`: there is no call `d`"),
        (Chunk::metadata(json!({ "a": 1 })), "chunk `message-metadata`: metadata that is no object cannot be added to, nor added"),
        (chunks(json!([{ "type": "text-delta", "id": "t" }])).remove(0), "chunk `text-delta`: `delta` is missing"),
        (chunks(json!([{ "type": "start", "messageId": 7, "messageMetadata": {} }])).remove(0), "chunk `start`: `messageId` is not text"),
        (
            chunks(json!([{ "type": "finish", "finishReason": "unknown", "messageMetadata": {} }])).remove(0),
            "chunk `finish`: `finishReason` is not one of `stop`, `length`, `content-filter`, `tool-calls`, `error`, `other`",
        ),
    ] {
        assert_eq!(builder.apply(&chunk).unwrap_err().to_string(), why);
        assert_eq!(*builder.message(), before, "{why}");
        assert_eq!(builder.open().len(), 1, "{why}");
    }
    let start = chunks(json!([{ "type": "start", "messageId": "n", "messageMetadata": 1 }])).remove(0);
    builder.apply(&start).unwrap_err();
    assert_eq!(builder.message().id, "m", "not even in part");
}

#[test]
fn a_builder_knows_whether_the_message_has_started_and_why_it_finished() {
    let mut builder = MessageBuilder::default();
    assert!(!builder.is_started());
    builder.apply(&Chunk::start()).unwrap();
    assert!(builder.is_started());
    assert_eq!(builder.finish_reason(), None);
    for chunk in chunks(json!([{ "type": "finish", "finishReason": "length" }, { "type": "finish" }])) {
        builder.apply(&chunk).unwrap();
    }
    assert_eq!(builder.finish_reason(), Some("length"));
}

#[test]
fn input_that_nobody_looked_at_while_it_was_written_is_there_when_it_is_asked_for() {
    let mut builder = built(&chunks(json!([
        { "type": "tool-input-start", "toolCallId": "c", "toolName": "look" },
        { "type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{\"a\":" },
        { "type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "\"b" },
        { "type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "c" },
        { "type": "tool-output-error", "toolCallId": "c", "errorText": "no" },
    ])));
    let expected = parts(json!([{
        "type": "tool-look", "toolCallId": "c", "state": "output-error", "errorText": "no", "input": { "a": "bc" }, "rawInput": "{\"a\":\"bc",
    }]));
    assert_eq!(builder.message().parts, expected);
}
