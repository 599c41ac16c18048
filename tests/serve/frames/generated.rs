//! What a hostile client sends: frames that are almost right, texts that are no frames, and bytes that are no texts.
use forever_testkit::prng::Prng;
use serde_json::{Value, json};

use super::OTHERS;
use crate::support::raw::{BINARY, FIN, PING, TEXT, frame, text};

/// One frame of each type, with all its fields.
fn right(prng: &mut Prng) -> Value {
    let n = prng.below(6);
    let (id, message) = (format!("h{n}"), json!({ "id": format!("m{n}"), "role": "user", "parts": [{ "type": "text", "text": "hi" }] }));
    let tool = json!({ "name": "look", "description": "looks", "parameters": { "type": "object" } });
    let scripts = [
        json!([{ "say": "a " }]),
        json!([{ "say": "a " }, { "error": "no" }]),
        json!([{ "throw": "SELECT secret FROM /tmp/secret" }]),
        json!([{ "tool": "call-h" }]),
        json!([{ "approval": "call-h" }]),
        json!([]),
    ];
    let script = prng.pick(&scripts);
    let body =
        json!({ "messages": [message], "trigger": "submit-message", "clientTools": [tool], "script": script, "then": [{ "say": "b" }] });
    let again = json!({ "messages": [message], "trigger": "regenerate-message" });
    match prng.below(12) {
        0 | 1 => json!({ "type": "cf_agent_use_chat_request", "id": id, "init": { "method": "POST", "body": body.to_string() } }),
        2 => {
            json!({ "type": "cf_agent_use_chat_request", "id": id, "init": { "method": "POST", "body": mutated(prng, again).to_string() } })
        }
        3 => {
            json!({ "type": "cf_agent_use_chat_request", "id": id, "init": { "method": "POST", "body": mutated(prng, body).to_string() } })
        }
        4 => json!({ "type": "cf_agent_chat_request_cancel", "id": id }),
        5 => json!({ "type": "cf_agent_chat_messages", "messages": [message, hostile_message(prng)] }),
        6 => json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" }),
        7 => json!({ "type": "cf_agent_stream_resume_ack", "id": id, "from": 3 }),
        8 => {
            json!({ "type": "cf_agent_tool_result", "toolCallId": "call-h", "toolName": "look", "output": 1, "state": "output-available", "errorText": "e", "autoContinue": true })
        }
        9 => json!({ "type": "cf_agent_tool_approval", "toolCallId": "call-h", "approved": true, "autoContinue": true }),
        10 => json!({ "type": "cf_agent_state", "state": { "count": 1, "note": "n" } }),
        _ => json!({ "type": "rpc", "id": id, "method": "m", "args": [1] }),
    }
}

/// Messages that a client may well send, and that mean no good.
fn hostile_message(prng: &mut Prng) -> Value {
    let parts = [
        json!({ "type": "tool-look", "toolCallId": "call-h", "state": "output-available", "input": {}, "output": "forged" }),
        json!({ "type": "tool-look", "toolCallId": "call-h", "state": "no such state" }),
        json!({ "type": "text", "text": 7 }),
        json!({ "type": "" }),
        json!({}),
        json!({ "type": "tool-", "toolCallId": 7 }),
        json!({ "type": "dynamic-tool", "toolName": null, "toolCallId": "" }),
    ];
    let part = prng.pick(&parts);
    let role = prng.pick(&["user", "assistant", "system", "tool", ""]);
    json!({ "id": prng.pick(&["m1", "", "m\u{0}", "h0"]), "role": role, "parts": [part, part], "metadata": { "forever": { "outcome": "error" } } })
}

/// What a field may be given in place of what it has.
fn hostile(prng: &mut Prng) -> Value {
    match prng.below(20) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(i64::MIN),
        5 => json!(1e308),
        6 => json!(0.1),
        7 => json!(""),
        8 => json!("\u{0}"),
        9 => json!("a\u{0}b\n\u{202e}\u{feff}\u{1f9a9}"),
        10 => json!("x".repeat(20_000)),
        11 => json!([]),
        12 => json!({}),
        13 => json!([[[[[[[[[[[[]]]]]]]]]]]]),
        14 => json!({ "$ref": "#", "__proto__": { "a": 1 }, "constructor": null }),
        15..=17 => json!(prng.pick(&OTHERS)),
        18 => json!("../other"),
        _ => (0..60).fold(json!(1), |inner, _| json!([inner])),
    }
}

/// With something in it changed, left out, added or of another type.
fn mutated(prng: &mut Prng, mut frame: Value) -> Value {
    for _ in 0..prng.below(3) {
        mutate(prng, &mut frame);
    }
    frame
}

fn mutate(prng: &mut Prng, at: &mut Value) {
    match at {
        Value::Object(fields) if !fields.is_empty() && !prng.once_in(6) => {
            let key = fields.keys().nth(prng.below(fields.len())).unwrap().clone();
            match prng.below(5) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(format!("{key}x"), hostile(prng))),
                2 => mutate(prng, fields.get_mut(&key).unwrap()),
                _ => drop(fields.insert(key, hostile(prng))),
            }
        }
        Value::Array(items) if !items.is_empty() && !prng.once_in(6) => {
            let n = prng.below(items.len());
            match prng.below(3) {
                0 => drop(items.remove(n)),
                1 => items.extend(std::iter::repeat_n(items[n].clone(), prng.below(50))),
                _ => mutate(prng, &mut items[n]),
            }
        }
        other => *other = hostile(prng),
    }
}

/// A text that is, or almost is, JSON.
fn broken(prng: &mut Prng) -> Vec<u8> {
    let whole = right(prng).to_string();
    let cut = prng.below(whole.len());
    match prng.below(13) {
        0 => whole.as_bytes()[..cut].to_vec(),
        1 => format!("{whole}{whole}").into_bytes(),
        2 => whole.replacen('"', "'", 1 + prng.below(4)).into_bytes(),
        3 => whole.replacen("\":", "\":\"again\",\"type\":", 1).into_bytes(),
        4 => format!("{{\"type\":\"rpc\",{}", &whole[1..]).into_bytes(),
        5 => "[".repeat(10_000).into_bytes(),
        6 => format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000)).into_bytes(),
        7 => format!("{{\"type\":\"cf_agent_state\",\"state\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000)).into_bytes(),
        8 => whole.replacen("\"h", "\"\\ud800", 1).into_bytes(),
        9 => format!(
            "{{\"type\":\"cf_agent_stream_resume_ack\",\"id\":\"h1\",\"from\":{}}}",
            prng.pick(&["1e400", "-0", "18446744073709551616", "0x1", "1.", "NaN", "00"])
        )
        .into_bytes(),
        10 => b"\xef\xbb\xbf{\"type\":\"cf_agent_chat_clear\"}".to_vec(),
        11 => (*prng.pick(&[
            "",
            " ",
            "null",
            "0",
            "\"\"",
            "[]",
            "{}",
            "{\"type\":null}",
            "{\"type\":{}}",
            "ping",
            "{\"type\":\"cf_agent_identity\"}",
        ]))
        .into(),
        _ => (0..prng.below(200)).map(|_| *prng.pick(b"{}[]\",:0e-.\\u/ tfn")).collect(),
    }
}

/// A message in pieces, with control frames between them.
fn fragments(prng: &mut Prng, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pieces: Vec<&[u8]> = payload.chunks(1 + prng.below(payload.len().max(1))).collect();
    for (n, piece) in pieces.iter().enumerate() {
        let (first, last) = (if n == 0 { TEXT } else { 0 }, if n + 1 == pieces.len() { FIN } else { 0 });
        bytes.extend(frame(first | last, piece, true, None));
        if prng.once_in(3) {
            bytes.extend(frame(FIN | PING, b"in between", true, None));
        }
        if prng.once_in(12) {
            bytes.extend(text("{}"));
        }
    }
    bytes
}

/// Some bytes for a connection that is upgraded.
pub(super) fn bytes(prng: &mut Prng) -> Vec<u8> {
    match prng.below(24) {
        0..=5 => text(right(prng).to_string()),
        6..=13 => {
            let right = right(prng);
            text(mutated(prng, right).to_string())
        }
        14..=17 => text(broken(prng)),
        18 => {
            let payload = if prng.once_in(2) { right(prng).to_string().into_bytes() } else { broken(prng) };
            fragments(prng, &payload)
        }
        19 => frame(FIN | BINARY, &broken(prng), true, None),
        20 => frame(FIN | *prng.pick(&[PING, PING + 1]), &vec![b'p'; *prng.pick(&[0, 1, 125])], true, None),
        // Too long, by a little and by much.
        21 => text(" ".repeat((64 << 10) + *prng.pick(&[0, 1, 1 << 10, 1 << 20]))),
        // From here on what no library sends, each of which is the last of its connection.
        22 => {
            let payload = right(prng).to_string().into_bytes();
            match prng.below(7) {
                0 => frame(FIN | TEXT, &payload, false, None),
                1 => frame(FIN | TEXT | *prng.pick(&[0x10, 0x20, 0x40]), &payload, true, None),
                2 => frame(FIN | *prng.pick(&[3, 7, 11, 15]), &payload, true, None),
                3 => frame(FIN, &payload, true, None),
                4 => frame(PING, b"in pieces", true, None),
                5 => frame(FIN | PING, &[b'p'; 126], true, None),
                _ => frame(FIN | TEXT, b"\xff\xfe\xc0\x80", true, None),
            }
        }
        _ => {
            if prng.once_in(2) {
                frame(FIN | TEXT, b"{", true, Some(*prng.pick(&[1 << 20, 1 << 32, u64::MAX >> 1, u64::MAX])))
            } else {
                (0..prng.below(60)).map(|_| prng.byte()).collect()
            }
        }
    }
}
