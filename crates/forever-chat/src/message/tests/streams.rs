//! Random streams as a model and its tools write them: every part ends, and ends in its step.
use proptest::prelude::*;
use serde_json::json;

use crate::message::build::Prose;
use crate::message::chunk::Chunk;

/// One attempt at an answer, from `start` to `finish`.
pub(super) fn attempt() -> impl Strategy<Value = Vec<Chunk>> {
    prop::collection::vec((0..10_u8, any::<u8>()), 0..30).prop_map(|choices| {
        let mut writer = Writer { chunks: vec![Chunk::start()], open: Vec::new(), calls: Vec::new(), made: 0, in_step: false, written: 0 };
        for (what, which) in choices {
            writer.write(what, which);
        }
        writer.end_step();
        writer.chunks.push(Chunk::finish());
        writer.chunks
    })
}

struct Writer {
    chunks: Vec<Chunk>,
    open: Vec<(Prose, String)>,
    /// Calls that have no result: their ids, and whether their input is there.
    calls: Vec<(String, bool)>,
    made: usize,
    in_step: bool,
    written: usize,
}

impl Writer {
    fn write(&mut self, what: u8, which: u8) {
        // Some models know no steps. Input is written within one.
        if !self.in_step && !which.is_multiple_of(5) && self.calls.iter().all(|(_, given)| *given) {
            self.chunks.push(Chunk::start_step());
            self.in_step = true;
        }
        match what {
            0 | 1 => self.begin(which),
            2..=4 => self.add(which),
            5 => self.end(which),
            6 => self.call(which),
            7 => self.go_on_with_call(which),
            8 => self.chunks.push(match which % 4 {
                0 => Chunk::data("w", Some("x"), which.into()),
                1 => Chunk::data("w", None, which.into()),
                2 => Chunk::metadata(json!({ "n": which })),
                _ => Chunk::from_json(json!({ "type": "source-url", "sourceId": "s", "url": "u" })).unwrap(),
            }),
            _ => self.end_step(),
        }
    }

    fn begin(&mut self, which: u8) {
        let part = (if which.is_multiple_of(3) { Prose::Reasoning } else { Prose::Text }, (which % 4).to_string());
        if self.open.contains(&part) {
            return;
        }
        self.chunks.push(match part.0 {
            Prose::Text => Chunk::text_start(&part.1),
            Prose::Reasoning => Chunk::reasoning_start(&part.1),
        });
        self.open.push(part);
    }

    fn add(&mut self, which: u8) {
        if self.open.is_empty() {
            return;
        }
        self.written += 1;
        let (prose, id) = &self.open[usize::from(which) % self.open.len()];
        let delta = format!("{}{} ", char::from(b'a' + which % 26), self.written);
        self.chunks.push(match prose {
            Prose::Text => Chunk::text_delta(id, delta),
            Prose::Reasoning => Chunk::reasoning_delta(id, delta),
        });
    }

    fn end(&mut self, which: u8) {
        if self.open.is_empty() {
            return;
        }
        let (prose, id) = self.open.remove(usize::from(which) % self.open.len());
        self.chunks.push(match prose {
            Prose::Text => Chunk::text_end(id),
            Prose::Reasoning => Chunk::reasoning_end(id),
        });
    }

    fn call(&mut self, which: u8) {
        let call = format!("c{}", self.made);
        self.made += 1;
        let mut chunk = Chunk::tool_input_start(&call, "look");
        if which.is_multiple_of(3) {
            chunk.set("dynamic", true);
        }
        self.chunks.push(chunk);
        self.calls.push((call, false));
    }

    fn go_on_with_call(&mut self, which: u8) {
        if self.calls.is_empty() {
            return;
        }
        let at = usize::from(which / 8) % self.calls.len();
        let (call, given) = self.calls[at].clone();
        let dynamic = self.chunks.iter().any(|chunk| chunk.str("toolCallId") == Some(&call) && chunk.get("dynamic").is_some());
        let preliminary = which % 8 == 7;
        let chunk = match (given, which % 4) {
            (false, 0) => Chunk::tool_input_delta(&call, "{\"a\":"),
            (false, _) => {
                self.calls[at].1 = true;
                let mut chunk = Chunk::tool_input_available(&call, "look", json!({ "n": which }));
                if dynamic {
                    chunk.set("dynamic", true);
                }
                chunk
            }
            (true, 0) => Chunk::tool_approval_request(&call, format!("p{which}")),
            (true, 1) => Chunk::tool_output_error(&call, "no"),
            (true, _) => {
                let mut chunk = Chunk::tool_output_available(&call, which.into());
                if preliminary {
                    chunk.set("preliminary", true);
                }
                chunk
            }
        };
        if chunk.kind().starts_with("tool-output") && !preliminary {
            self.calls.remove(at);
        }
        self.chunks.push(chunk);
    }

    /// Ends the step, and all that is open in it. Input that has no end stays so: that call is lost.
    fn end_step(&mut self) {
        while !self.open.is_empty() {
            self.end(0);
        }
        self.calls.retain(|(_, given)| *given);
        if std::mem::take(&mut self.in_step) {
            self.chunks.push(Chunk::finish_step());
        }
    }
}
