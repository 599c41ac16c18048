//! Whether chunks fit together as those who make a message from them expect.
use std::collections::{HashMap, HashSet};

use forever_chat::message::Chunk;
use forever_chat::model::ModelEvent;

/// What has been begun.
#[derive(Debug, Default)]
pub(crate) struct Fitting {
    /// Open pieces of text and reasoning, by kind and id.
    open: HashSet<(&'static str, String)>,
    /// Tool calls, and whether their input is there.
    calls: HashMap<String, bool>,
}

impl Fitting {
    /// # Panics
    /// If one of the chunks does not follow from those before it.
    pub(crate) fn of(events: &[ModelEvent]) -> Self {
        let mut fitting = Fitting::default();
        for event in events {
            if let ModelEvent::Chunk(chunk) = event {
                fitting.add(chunk);
            }
        }
        fitting
    }

    /// Whether everything that was begun has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.is_empty() && self.calls.values().all(|&whole| whole)
    }

    fn add(&mut self, chunk: &Chunk) {
        let text =
            |field: &str| chunk.get(field).and_then(|value| value.as_str()).unwrap_or_else(|| panic!("no {field} in {chunk:?}")).to_owned();
        match chunk.kind() {
            "text-start" => self.begin("text", text("id")),
            "text-delta" => {
                assert!(self.open.contains(&("text", text("id"))), "no text has begun for {chunk:?}");
                assert!(!text("delta").is_empty(), "there is nothing in {chunk:?}");
            }
            "text-end" => assert!(self.open.remove(&("text", text("id"))), "no text has begun for {chunk:?}"),
            "reasoning-start" => self.begin("reasoning", text("id")),
            "reasoning-delta" => assert!(self.open.contains(&("reasoning", text("id"))), "no reasoning has begun for {chunk:?}"),
            "reasoning-end" => assert!(self.open.remove(&("reasoning", text("id"))), "no reasoning has begun for {chunk:?}"),
            "tool-input-start" => {
                assert!(!text("toolCallId").is_empty() && !text("toolName").is_empty(), "{chunk:?} has no name");
                assert_eq!(self.calls.insert(text("toolCallId"), false), None, "a call begins twice: {chunk:?}");
            }
            "tool-input-delta" => assert_eq!(self.calls.get(&text("toolCallId")), Some(&false), "no call is being written for {chunk:?}"),
            "tool-input-available" | "tool-input-error" => {
                assert!(chunk.get("input").is_some(), "no input in {chunk:?}");
                assert_eq!(self.calls.insert(text("toolCallId"), true), Some(false), "no call is being written for {chunk:?}");
            }
            "source-url" => assert!(!text("url").is_empty() && !text("sourceId").is_empty()),
            other => panic!("no adaptor gives chunks of type {other}"),
        }
    }

    fn begin(&mut self, kind: &'static str, id: String) {
        assert!(self.open.is_empty(), "{kind} {id} begins while {:?} is open", self.open);
        self.open.insert((kind, id));
    }
}
