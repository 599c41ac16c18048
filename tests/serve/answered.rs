//! Whatever a client asks is answered, with its id: what is understood, what is not, and what it
//! may not ask. And what it is told beyond that, once.
use std::sync::{Arc, Mutex};

use forever::prelude::*;
use forever::serve::{Rejection, RequestKind};
use serde_json::{Value, json};

use crate::support::client::{Client, MESSAGES, RESPONSE, types};
use crate::support::place::Place;
use crate::support::raw::{CLOSE, FIN, Raw, frame};
use tokio_tungstenite::tungstenite::Message;

const REFUSED: &str = "forever_refused";

fn question(id: &str, body: &str) -> Value {
    json!({ "type": "cf_agent_use_chat_request", "id": id, "init": { "method": "POST", "body": body } })
}

#[tokio::test]
async fn a_question_that_is_not_understood_is_answered_with_an_error() {
    let place = Place::new();
    let up = place.up().await;
    let mut client = up.settled("ada").await;
    let bodies = [
        r#"{"messages":[{"id":"u","role":"robot","parts":[]}]}"#,
        r#"{"messages":[{"id":"u","role":"user","parts":[{"type":"text","text":1e400}]}]}"#,
        r#"{"messages":[{"id":"u","role":"user","parts":[7]}]}"#,
        r#"{"messages":{}}"#,
        r#"{"messages":[],"n":1e400}"#,
        r#"{"messages":"#,
        "",
        "null",
    ];
    for (n, body) in bodies.iter().enumerate() {
        let id = format!("q{n}");
        client.send(question(&id, body)).await;
        let told = client.done(&id).await;
        assert_eq!((&told["error"], &told["outcome"]), (&json!(true), &json!("error")), "{body}");
    }
    // And frames that are none.
    let frames = [
        r#"{"type":"cf_agent_use_chat_request","id":"f0"}"#,
        r#"{"type":"cf_agent_use_chat_request","id":"f1","init":{}}"#,
        r#"{"type":"cf_agent_use_chat_request","id":"f2","init":{"body":7}}"#,
        r#"{"type":"cf_agent_use_chat_request","id":"f3","init":1e400}"#,
    ];
    for (n, frame) in frames.iter().enumerate() {
        client.put(Message::text(*frame)).await;
        assert_eq!(client.done(&format!("f{n}")).await["error"], true, "{frame}");
    }
    assert!(up.agent("ada").messages().await.unwrap().is_empty());
    assert!(up.agent("ada").turns(&[]).await.unwrap().is_empty());
    up.down().await;
}

#[tokio::test]
async fn a_frame_that_is_not_understood_is_answered_with_its_id() {
    let place = Place::new();
    let up = place.up().await;
    let mut client = up.settled("ada").await;
    for args in ["7", "{}", "\"x\"", "[1e400]"] {
        client.put(Message::text(format!(r#"{{"type":"rpc","id":"c","method":"sum","args":{args}}}"#))).await;
        let told = client.until(|frame| frame["id"] == "c").await;
        assert_eq!(told, json!({ "type": "rpc", "id": "c", "success": false, "error": "the call was not understood" }), "{args}");
    }
    let refused = [
        (r#"{"type":"cf_agent_no_such","id":"x"}"#, json!({ "of": "unknown", "id": "x" })),
        (r#"{"type":"cf_agent_chat_messages","messages":[{"id":"u","role":"robot"}]}"#, json!({ "of": MESSAGES })),
        (r#"{"type":"cf_agent_chat_messages","messages":7}"#, json!({ "of": MESSAGES })),
        (r#"{"type":"cf_agent_tool_approval","toolCallId":"c"}"#, json!({ "of": "cf_agent_tool_approval", "toolCallId": "c" })),
        (r#"{"type":"cf_agent_tool_result","toolCallId":"c","output":1e400}"#, json!({ "of": "cf_agent_tool_result", "toolCallId": "c" })),
        (r#"{"type":"cf_agent_stream_resume_ack","id":"r","from":-1}"#, json!({ "of": "cf_agent_stream_resume_ack", "id": "r" })),
    ];
    for (sent, mut expected) in refused {
        client.put(Message::text(sent)).await;
        let told = client.of_type(REFUSED).await;
        (expected["type"], expected["error"]) = (json!(REFUSED), json!("the frame was not understood"));
        assert_eq!(told, expected, "{sent}");
    }
    client.put(Message::text(r#"{"type":"cf_agent_state","state":1e400}"#)).await;
    client.of_type("cf_agent_state_error").await;
    // An id that is none, where one is needed.
    for kind in ["rpc", "cf_agent_use_chat_request"] {
        for id in ["", r#","id":7"#, r#","id":null"#] {
            client.put(Message::text(format!(r#"{{"type":"{kind}"{id}}}"#))).await;
            let expected = json!({ "type": REFUSED, "of": kind, "error": "the frame was not understood" });
            assert_eq!(client.of_type(REFUSED).await, expected, "{id}");
        }
    }
    // What says nothing of itself is passed over.
    for nothing in ["", "null", "[]", "{}", r#"{"type":7,"id":"x"}"#, r#"{"type":"cf_agent_no_such"}"#] {
        client.put(Message::text(nothing)).await;
    }
    assert_eq!(types(&client.settled().await), [] as [&str; 0]);
    up.down().await;
}

#[tokio::test]
async fn who_comes_when_nothing_is_under_way_hears_that_nothing_is_recovered() {
    let place = Place::new();
    let up = place.up().await;
    let is_told = |frames: &[Value]| frames.iter().filter(|frame| frame["type"] == "cf_agent_chat_recovering").cloned().collect::<Vec<_>>();
    let mut first = up.settled("ada").await;
    assert_eq!(is_told(&first.seen), [json!({ "type": "cf_agent_chat_recovering", "recovering": false, "connect": true })]);
    first.ask("r1", json!({ "script": [{ "wait": "half" }] })).await;
    place.gates.reached("half").await;
    let second = up.settled("ada").await;
    assert_eq!(is_told(&second.seen), [] as [Value; 0]);
    up.down().await;
}

#[tokio::test]
async fn a_farewell_is_answered_with_a_farewell() {
    let place = Place::new();
    let up = place.up().await;
    for payload in [&[][..], &1000_u16.to_be_bytes(), &3999_u16.to_be_bytes()] {
        let mut raw = Raw::upgraded(up.address, "/agents/chat-agent/ada").await;
        raw.send(&frame(FIN | CLOSE, payload, true, None)).await;
        raw.received_all().await;
        let code = (!payload.is_empty()).then(|| u16::from_be_bytes([payload[0], payload[1]]));
        assert_eq!(raw.code(), Some(code.unwrap_or(1005)), "{payload:?}");
    }
    up.down().await;
}

#[tokio::test]
async fn a_bystander_is_sent_the_conversation_once_for_a_turn() {
    let place = Place::new();
    let up = place.up().await;
    let (mut asks, mut other) = (up.settled("ada").await, up.settled("ada").await);
    other.send(json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" })).await;
    other.settled().await;
    // One of an older package, whose page gives what it watches an id of its own.
    let mut older = up.settled("ada").await;
    asks.ask("r1", json!({ "script": [{ "say": "well " }, { "say": "said" }] })).await;
    asks.done("r1").await;
    other.done("r1").await;
    other.settled().await;
    let whole = |client: &Client| client.seen.iter().filter(|frame| frame["type"] == MESSAGES).count();
    assert_eq!((whole(&asks), whole(&other)), (0, 1));
    older.done("r1").await;
    older.settled().await;
    assert_eq!(whole(&older), 2, "with the question, and in place of what it has watched");
    // And the answer by itself, before its end.
    let stored = serde_json::to_value(&up.agent("ada").messages().await.unwrap()[1]).unwrap();
    let places = ["cf_agent_message_updated", RESPONSE].map(|kind| other.seen.iter().rposition(|frame| frame["type"] == kind).unwrap());
    assert!(places[0] < places[1]);
    assert_eq!(other.seen[places[0]]["message"], stored);
    // An error stands in the message, which is sent again behind it.
    asks.ask("r2", json!({ "script": [{ "say": "half " }, { "error": "no" }] })).await;
    other.done("r2").await;
    let message = other.of_type("cf_agent_message_updated").await;
    assert_eq!(message["message"]["metadata"]["forever"], json!({ "outcome": "error", "reason": "no" }));
    assert_eq!(whole(&other), 2);
    // Nothing was shown of it that the message could take the place of.
    asks.ask("r3", json!({ "script": [{ "throw": "the kitchen" }] })).await;
    other.done("r3").await;
    other.settled().await;
    let last = other.seen.iter().rfind(|frame| frame["type"] == MESSAGES).unwrap();
    assert_eq!(last["messages"].as_array().unwrap().last().unwrap()["metadata"]["forever"]["reason"], "The kitchen is closed.");
    up.down().await;
}

#[tokio::test]
async fn a_turn_is_ended_by_a_client_that_only_watches_it() {
    let place = Place::new();
    let up = place.up().await;
    let (mut asks, mut other) = (up.settled("ada").await, up.settled("ada").await);
    asks.ask("r1", json!({ "script": [{ "say": "well " }, { "wait": "never" }] })).await;
    let shown = other.of_type(RESPONSE).await;
    other.send(json!({ "type": "cf_agent_chat_request_cancel", "id": shown["id"] })).await;
    assert_eq!(asks.done("r1").await["outcome"], "aborted");
    assert_eq!(other.done("r1").await["outcome"], "aborted");
    up.down().await;
}

#[tokio::test]
async fn each_kind_of_request_is_authorized_and_a_frame_that_is_refused_is_answered() {
    let place = Place::new();
    let seen: Arc<Mutex<Vec<RequestKind>>> = Arc::default();
    let asked = Arc::clone(&seen);
    let up = place
        .up_with(|server| {
            server.authorize(move |request| {
                assert_eq!(request.name, "ada");
                assert!(request.headers.contains_key("host") && request.client.is_some());
                asked.lock().unwrap().push(request.kind.clone());
                let may = request.kind.is_read() || request.headers.contains_key("x-writer");
                async move { if may { Ok(()) } else { Err(Rejection::forbidden("readers do not write")) } }
            })
        })
        .await;
    let path = "/agents/chat-agent/ada";
    let mut reader = Client::try_connect(up.address, path, &[]).await.ok().unwrap();
    let mut writer = Client::try_connect(up.address, path, &[("x-writer", "1")]).await.ok().unwrap();
    writer.ask("r1", json!({})).await;
    writer.done("r1").await;
    reader.done("r1").await;
    assert_eq!(up.get(&format!("{path}/get-messages")).await.status, 200);
    assert_eq!(up.get(&format!("{path}/stream/r1")).await.status, 200);
    let before = up.agent("ada").messages().await.unwrap();
    let user = json!({ "id": "u9", "role": "user", "parts": [{ "type": "text", "text": "mine" }] });
    let refused = |of: &str| json!({ "type": REFUSED, "of": of, "error": "readers do not write" });
    let with = |mut frame: Value, field: &str, value: &str| {
        frame[field] = json!(value);
        frame
    };
    let cases = [
        (
            json!({ "type": "cf_agent_chat_request_cancel", "id": "r1" }),
            with(refused("cf_agent_chat_request_cancel"), "id", "r1"),
            RequestKind::Cancel,
        ),
        (json!({ "type": "cf_agent_chat_clear" }), refused("cf_agent_chat_clear"), RequestKind::Clear),
        (json!({ "type": MESSAGES, "messages": [user] }), refused(MESSAGES), RequestKind::ReplaceMessages),
        (
            json!({ "type": "cf_agent_tool_result", "toolCallId": "c", "output": 1 }),
            with(refused("cf_agent_tool_result"), "toolCallId", "c"),
            RequestKind::ToolResult,
        ),
        (
            json!({ "type": "cf_agent_tool_approval", "toolCallId": "c", "approved": true }),
            with(refused("cf_agent_tool_approval"), "toolCallId", "c"),
            RequestKind::Approve,
        ),
        (
            json!({ "type": "cf_agent_state", "state": { "count": 7 } }),
            json!({ "type": "cf_agent_state_error", "error": "readers do not write" }),
            RequestKind::SetState,
        ),
        (
            json!({ "type": "rpc", "id": "c", "method": "sum", "args": [] }),
            json!({ "type": "rpc", "id": "c", "success": false, "error": "readers do not write" }),
            RequestKind::Call("sum".to_owned()),
        ),
    ];
    for (sent, told, kind) in cases {
        reader.send(sent.clone()).await;
        assert_eq!(reader.until(|frame| frame["type"] == told["type"]).await, told, "{sent}");
        assert_eq!(seen.lock().unwrap().last(), Some(&kind));
    }
    reader.ask("r2", json!({})).await;
    assert_eq!(reader.done("r2").await["body"], "readers do not write");
    let seen = seen.lock().unwrap().clone();
    for kind in [RequestKind::Connect, RequestKind::ReadMessages, RequestKind::Stream, RequestKind::Ask] {
        assert!(seen.contains(&kind), "{kind:?}");
    }
    assert_eq!(up.agent("ada").messages().await.unwrap(), before);
    assert_eq!(up.agent("ada").turns(&[]).await.unwrap().len(), 1);
    up.down().await;
}

#[tokio::test]
async fn a_long_conversation_is_shown_by_its_newest_messages_and_keeps_the_others() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_conversation_bytes(2_000)).await;
    let message = |n: usize| forever::chat::message::UiMessage::user(format!("m{n:03}"), "x".repeat(100));
    let all: Vec<_> = (0..100).map(message).collect();
    up.agent("ada").set_messages(all.clone()).await.unwrap();
    let mut client = up.settled("ada").await;
    let shown = client.seen.iter().find(|frame| frame["type"] == MESSAGES).unwrap()["messages"].clone();
    let shown = shown.as_array().unwrap();
    assert!(shown.len() > 5 && serde_json::to_vec(shown).unwrap().len() <= 2_002, "{}", shown.len());
    assert_eq!(shown.last().unwrap()["id"], "m099");
    let note = client.seen.iter().find(|frame| frame["type"] == "forever_truncated").unwrap();
    assert_eq!(note, &json!({ "type": "forever_truncated", "messages": 100, "sent": shown.len() }));
    // What it was not shown it does not take away.
    client.send(json!({ "type": MESSAGES, "messages": &shown[..1] })).await;
    client.settled().await;
    let left = up.agent("ada").messages().await.unwrap();
    assert_eq!(left, all[..=100 - shown.len()]);
    // One that is longer by itself is shown all the same.
    up.agent("bob").set_messages([forever::chat::message::UiMessage::user("long", "x".repeat(5_000))]).await.unwrap();
    let client = up.settled("bob").await;
    assert!(client.seen.iter().any(|frame| frame["messages"][0]["id"] == "long"));
    up.down().await;
}
