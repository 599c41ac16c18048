//! What was recorded of the npm package `ai`, chunk by chunk.
use forever_runtime::ErrorKind;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::message::build::MessageBuilder;
use crate::message::check::check;
use crate::message::chunk::Chunk;
use crate::message::part::Part;
use crate::message::partial_json;
use crate::message::ui_message::{Role, UiMessage};

/// A stream, and what the client made of each of its chunks.
#[derive(Deserialize)]
struct Stream {
    name: String,
    message: Option<UiMessage>,
    chunks: Vec<Chunk>,
    after: Vec<Option<Change>>,
    /// Why the client refused the last of the chunks.
    refused: Option<String>,
}

/// What a chunk changes in a message.
#[derive(Deserialize)]
struct Change {
    id: Option<String>,
    metadata: Option<Value>,
    #[serde(default)]
    parts: std::collections::BTreeMap<usize, Part>,
}

impl Change {
    fn make(self, message: &mut UiMessage) {
        if let Some(id) = self.id {
            message.id = id;
        }
        message.metadata = self.metadata.or(message.metadata.take());
        for (at, part) in self.parts {
            if at < message.parts.len() {
                message.parts[at] = part;
            } else {
                message.parts.push(part);
            }
        }
    }
}

fn read<T: for<'de> Deserialize<'de>>(file: &str) -> Vec<T> {
    let path = format!("{}/src/message/tests/recorded/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    serde_json::from_str(&text).expect(file)
}

/// Whether two values are the same to a client, to which all numbers are floats.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => same_fields(a, b),
        (a, b) => a == b,
    }
}

fn same_fields(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
}

fn agrees(builder: &mut MessageBuilder, expected: &UiMessage, name: &str) {
    let (made, expected) = (serde_json::to_value(builder.message()).unwrap(), serde_json::to_value(expected).unwrap());
    assert!(same(&made, &expected), "{name}:\n   made {made}\nexpected {expected}");
}

/// Applies a stream, and looks at the message after every chunk or only at the end.
fn replay(stream: Stream, look: bool) {
    let Stream { name, message, chunks, after, refused } = stream;
    let mut expected = message.unwrap_or_else(|| UiMessage::new("", Role::Assistant));
    let mut builder = MessageBuilder::new(expected.clone());
    let accepted = after.len();
    assert_eq!(chunks.len(), accepted + usize::from(refused.is_some()), "{name}");
    for (n, (chunk, change)) in chunks.iter().zip(after).enumerate() {
        builder.apply(chunk).unwrap_or_else(|why| panic!("{name}, chunk {n}: {why}"));
        if let Some(change) = change {
            change.make(&mut expected);
        }
        if look {
            agrees(&mut builder, &expected, &format!("{name}, chunk {n}"));
        }
    }
    if let Some(refused) = refused {
        let why = builder.apply(&chunks[accepted]).expect_err(&refused);
        assert_eq!(why.kind(), ErrorKind::Value, "{name}: {why}");
    }
    agrees(&mut builder, &expected, &name);
}

fn replay_all(file: &str) {
    let streams: Vec<Stream> = read(file);
    assert!(streams.len() > 10, "{file}");
    for (stream, again) in streams.into_iter().zip(read(file)) {
        replay(stream, true);
        replay(again, false);
    }
}

#[test]
fn a_message_is_what_the_client_makes_of_streams_of_every_kind_of_chunk() {
    replay_all("listed.json");
}

#[test]
fn a_message_is_what_the_client_makes_of_streams_recorded_on_the_wire() {
    replay_all("wire.json");
}

#[test]
fn a_message_is_what_the_client_makes_of_random_streams() {
    replay_all("random.json");
}

#[test]
fn a_chunk_is_refused_if_the_client_refuses_it() {
    let chunks: Vec<(Chunk, bool)> = read("fields.json");
    assert!(chunks.len() > 500);
    for (chunk, valid) in chunks {
        assert_eq!(check(&chunk).is_ok(), valid, "{}: {:?}", chunk.to_text(), check(&chunk));
    }
}

/// A text, and what the client reads of it when it is cut after each of its characters: `[]` is nothing, `0` the same as before.
#[derive(Deserialize)]
struct Cut {
    text: String,
    read: Vec<Value>,
}

#[test]
fn of_cut_off_json_is_read_what_the_client_reads() {
    let texts: Vec<Cut> = read("partial-json.json");
    assert!(texts.len() > 50);
    for Cut { text, read } in texts {
        let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        let mut expected = Value::Array(Vec::new());
        let mut seen = 0;
        for (end, read) in ends.zip(read) {
            if read != 0 {
                expected = read;
            }
            let made = Value::Array(partial_json::read(&text[..end]).into_iter().collect());
            assert!(same(&made, &expected), "of {:?}\n    read {made}\nexpected {expected}", &text[..end]);
            seen += 1;
        }
        assert_eq!(seen, text.chars().count() + 1);
    }
}
