use std::collections::BTreeMap;
use std::sync::Arc;

use super::item::MOST_CHANGES;
use super::{History, Past, Recorder};
use crate::frame::snapshot::Snapshot;
use crate::store::{Epoch, SnapshotDelta, SnapshotRows, StreamBatch};
use crate::testing::dice::Dice;

/// A fiber that makes checkpoints, with the stream of its history.
struct Fiber {
    recorder: Recorder,
    number: u64,
    epoch: Epoch,
    batches: Vec<StreamBatch>,
    parts: BTreeMap<String, Arc<str>>,
    /// Main text and parts of each checkpoint.
    stood: Vec<(String, BTreeMap<String, Arc<str>>)>,
}

impl Fiber {
    fn new() -> Self {
        let recorder = History::all().recorder("l", 0).unwrap();
        Fiber { recorder, number: 0, epoch: 1, batches: Vec::new(), parts: BTreeMap::new(), stood: Vec::new() }
    }

    fn checkpoint(&mut self, at: &str, text: &str, delta: &SnapshotDelta) {
        self.number += 1;
        let now_ms = i64::try_from(self.number).unwrap() * 10;
        let append = self.recorder.record(self.number, at, text, delta, self.epoch, now_ms);
        assert!(!append.data.contains('\n'), "one line: {}", append.data);
        let first = self.batches.last().map_or(0, |batch| batch.first + batch.count);
        self.batches.push(StreamBatch { first, count: append.count, data: append.data, stored_ms: now_ms });
        for name in &delta.removed_parts {
            self.parts.remove(name);
        }
        self.parts.extend(delta.parts.iter().cloned());
        self.stood.push((text.to_owned(), self.parts.clone()));
    }

    /// Its process dies, and another one goes on from the last checkpoint.
    fn is_taken_over(&mut self) {
        self.epoch += 1;
        self.recorder = History::all().recorder("l", 0).unwrap();
        self.recorder.resume(&SnapshotRows { parts: self.parts.clone(), ..SnapshotRows::default() });
    }

    /// What is read is what was stored, at each checkpoint from `from` on.
    fn check(&self, from: u64) {
        for (number, (text, parts)) in (1..).zip(&self.stood).filter(|(number, _)| *number >= from) {
            let past = Past::read(&self.batches, number).unwrap();
            assert_eq!(past.entries.last().unwrap().number, number);
            let stood = past.stood.unwrap();
            let expected: Snapshot = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_value(&stood.snapshot).unwrap(), serde_json::to_value(&expected).unwrap(), "checkpoint {number}");
            for (name, text) in parts {
                assert_eq!(stood.parts.get(name), Some(text), "part {name} at checkpoint {number}");
            }
        }
    }
}

fn below(dice: &mut Dice, limit: usize) -> usize {
    usize::try_from(dice.below(limit as u64)).unwrap()
}

fn locals(dice: &mut Dice) -> String {
    let names = ["total", "draft", "1:odd", "quote\\\"d", "é"];
    let values = ["17", "\"a,b}]{[\\\"\\\\\"", "null", "[1,[2,{\"x\":\"]\"}],3]", "{}", "-1.5e3", "true"];
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if dice.below(3) > 0 {
            all.push(format!("\"{name}\":{}", values[below(dice, values.len())]));
        }
    }
    if dice.below(2) == 0 {
        all.reverse();
    }
    all.join(",")
}

#[test]
fn every_checkpoint_is_read_back_whatever_changed_and_whoever_went_on() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let mut fiber = Fiber::new();
        let mut outer = locals(&mut dice);
        for _ in 0..200 {
            if dice.below(40) == 0 {
                fiber.is_taken_over();
            }
            let at = ["plan", "charge \"card\"", "é"][below(&mut dice, 3)];
            let at_json = serde_json::to_string(at).unwrap();
            let text = match dice.below(4) {
                // In a call, whose caller stays as it was.
                0 | 1 => {
                    let inner = locals(&mut dice);
                    format!(
                        r#"{{"at":"call","locals":{{{outer}}},"call":{{"fiber":"inner","layout":"h","at":{at_json},"locals":{{{inner}}},"call":null}}}}"#
                    )
                }
                _ => {
                    outer = locals(&mut dice);
                    format!(r#"{{"at":{at_json},"locals":{{{outer}}},"call":null}}"#)
                }
            };
            let mut delta = SnapshotDelta::default();
            if dice.below(5) == 0 {
                delta.parts.push(("notes".into(), format!("\"{}\"", "x".repeat(below(&mut dice, 2000))).into()));
            }
            if dice.below(9) == 0 && fiber.parts.contains_key("notes") && delta.parts.is_empty() {
                delta.removed_parts.push("notes".into());
            }
            fiber.checkpoint(at, &text, &delta);
        }
        fiber.check(1);
    }
}

#[test]
fn what_is_left_when_old_items_are_deleted_is_read_from_the_first_whole_one() {
    let mut fiber = Fiber::new();
    for n in 0..300 {
        fiber.checkpoint(
            "step",
            &format!(r#"{{"at":"step","locals":{{"kept":"{}","n":{n}}},"call":null}}"#, "x".repeat(400)),
            &SnapshotDelta::default(),
        );
    }
    let changes = fiber.batches.iter().filter(|batch| !batch.data.contains("\"snapshot\"")).count();
    assert!(changes > 250, "most say only what changed: {changes}");
    fiber.batches.drain(..100);
    let entries = Past::read(&fiber.batches, u64::MAX).unwrap().entries;
    assert!(entries[0].number <= 101 + u64::from(MOST_CHANGES) + 1, "{}", entries[0].number);
    assert_eq!(entries.last().unwrap().number, 300);
    assert_eq!(entries[1].changed, ["n"]);
    fiber.check(entries[0].number);
}

#[test]
fn an_item_that_cannot_be_read_is_named() {
    let mut fiber = Fiber::new();
    fiber.checkpoint("a", r#"{"at":"a","locals":{},"call":null}"#, &SnapshotDelta::default());
    for damage in ["", "7", "{\"n\":1}", "{\"n\":2,\"at\":\"a\",\"ms\":1,\"took\":1,\"set\":{\"3:x\":1}}"] {
        let batch = StreamBatch { first: 1, count: 1, data: damage.into(), stored_ms: 0 };
        let batches = [fiber.batches[0].clone(), batch];
        let read = Past::read(&batches, 9);
        if damage.is_empty() {
            assert!(read.is_ok(), "no line, no item");
        } else {
            assert!(read.unwrap_err().starts_with("item 1 of its history "), "{damage}");
        }
    }
}

#[test]
fn failed_attempts_and_resumes_are_told() {
    let mut fiber = Fiber::new();
    let text = r#"{"at":"a","locals":{},"call":null}"#;
    fiber.checkpoint("a", text, &SnapshotDelta::default());
    fiber.recorder.attempt_failed(1, "first");
    fiber.recorder.attempt_failed(2, "the \"second\"");
    fiber.checkpoint("a", text, &SnapshotDelta::default());
    fiber.is_taken_over();
    fiber.checkpoint("a", text, &SnapshotDelta::default());
    let entries = Past::read(&fiber.batches, u64::MAX).unwrap().entries;
    let told: Vec<_> = entries.iter().map(|e| (e.failed_attempts, e.error.as_deref(), e.is_resumed)).collect();
    assert_eq!(told, [(0, None, false), (2, Some("the \"second\""), false), (0, None, true)]);
    assert_eq!(entries[1].took.as_millis(), 10);
}
