use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::item::MOST_CHANGES;
use super::{History, Past, Recorder, with_whole_values};
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

    /// What is exported is read as what was stored, also with other spaces in it.
    fn check_export(&self) {
        let lines: Vec<String> = self.batches.iter().map(|batch| batch.data.clone()).collect();
        let formatted = |line: &String| {
            let item: Value = serde_json::from_str(line).unwrap();
            serde_json::to_string_pretty(&item).unwrap().replace('\n', " ")
        };
        let exported: Vec<String> = with_whole_values(&lines).unwrap().iter().map(formatted).collect();
        let batch = StreamBatch { first: 0, count: exported.len() as u64, data: exported.join("\n"), stored_ms: 0 };
        let entries = Past::read(&self.batches, u64::MAX).unwrap().entries;
        assert_eq!(Past::read(std::slice::from_ref(&batch), u64::MAX).unwrap().entries.len(), entries.len());
        for (number, (text, _)) in (1..).zip(&self.stood) {
            let stood = Past::read(std::slice::from_ref(&batch), number).unwrap().stood.unwrap();
            let expected: Value = serde_json::from_str(text).unwrap();
            let found = serde_json::to_value(&stood.snapshot).unwrap();
            assert_eq!(found["locals"], expected["locals"], "checkpoint {number}");
            assert_eq!(found["call"]["locals"], expected["call"]["locals"], "checkpoint {number}");
        }
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
        match dice.below(6) {
            0 | 1 => {}
            2 => all.push(format!("\"{name}\":{}", page(dice))),
            _ => all.push(format!("\"{name}\":{}", values[below(dice, values.len())])),
        }
    }
    if dice.below(2) == 0 {
        all.reverse();
    }
    all.join(",")
}

/// A long text, which differs from another one in a few places at most.
fn page(dice: &mut Dice) -> String {
    let mut lines = vec!["é \"\\ 漢\n"; 20 + below(dice, 4)];
    let place = below(dice, lines.len());
    lines[place] = ["", "è", "🦀}]", "\u{7}"][below(dice, 4)];
    serde_json::to_string(&lines.concat()).unwrap()
}

#[test]
fn every_checkpoint_is_read_back_whatever_changed_and_whoever_went_on() {
    let mut pieces = [0, 0];
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
                let notes = if dice.below(2) == 0 { page(&mut dice) } else { format!("\"{}\"", "x".repeat(below(&mut dice, 2000))) };
                delta.parts.push(("notes".into(), notes.into()));
            }
            if dice.below(9) == 0 && fiber.parts.contains_key("notes") && delta.parts.is_empty() {
                delta.removed_parts.push("notes".into());
            }
            fiber.checkpoint(at, &text, &delta);
        }
        fiber.check(1);
        fiber.check_export();
        for (pieces, field) in pieces.iter_mut().zip(["\"set\":[[", "\"parts\":[["]) {
            *pieces += fiber.batches.iter().filter(|batch| batch.data.contains(field)).count();
        }
    }
    assert!(pieces.iter().all(|pieces| *pieces > 20), "pieces are stored: {pieces:?}");
}

#[test]
fn a_long_value_that_grows_is_stored_by_what_is_new() {
    let mut fiber = Fiber::new();
    let mut transcript = "[]".to_owned();
    for n in 0..100 {
        let message = format!("{}{{\"role\":\"user\",\"text\":\"{}\"}}]", if n == 0 { "" } else { "," }, "é\\\\".repeat(500));
        transcript.replace_range(transcript.len() - 1.., &message);
        // The same as a part, which has all texts that are so long, and in the main text.
        let delta = SnapshotDelta { parts: vec![("transcript".into(), transcript.as_str().into())], ..SnapshotDelta::default() };
        fiber.checkpoint("answer", &format!(r#"{{"at":"answer","locals":{{"all":{transcript},"n":{n}}},"call":null}}"#), &delta);
    }
    let stored: usize = fiber.batches.iter().map(|batch| batch.data.len()).sum();
    assert!(stored < 10 * transcript.len(), "{stored} bytes for two texts that have grown to {}", transcript.len());
    fiber.check(1);
}

#[test]
fn an_item_in_the_form_of_values_alone_is_read() {
    let items = [
        r#"{"n":1,"ms":1,"took":0,"at":"a","epoch":1,"layout":"l","snapshot":{"at":"a","locals":{"total":1},"call":null},"parts":{"notes":"\"x\""}}"#,
        r#"{"n":2,"ms":2,"took":1,"at":"b","set":{"total":17},"gone":[],"parts":{"notes":"\"y\""}}"#,
    ];
    let batch = StreamBatch { first: 0, count: 2, data: items.join("\n"), stored_ms: 0 };
    let past = Past::read(&[batch], 2).unwrap();
    assert_eq!(past.entries[1].changed, ["notes", "total"]);
    let stood = past.stood.unwrap();
    assert_eq!((stood.snapshot.locals["total"].get(), stood.parts["notes"].as_ref()), ("17", r#""\"y\"""#));
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
    let left: Vec<String> = fiber.batches.iter().map(|batch| batch.data.clone()).collect();
    let exported = with_whole_values(&left).unwrap();
    assert!(exported.len() == entries.len() && exported[0].contains("\"snapshot\""), "what cannot be read is not exported");
}

#[test]
fn an_item_that_cannot_be_read_is_named() {
    let mut fiber = Fiber::new();
    fiber.checkpoint("a", r#"{"at":"a","locals":{"page":"écrit"},"call":null}"#, &SnapshotDelta::default());
    let changes = [
        r#""set":{"3:x":1}"#,
        r#""set":[["x",1,0,"y"]]"#,
        r#""set":[["x"]]"#,
        r#""set":[["x",1,0]]"#,
        r#""set":[["x",-1,0,"y"]]"#,
        r#""set":[[1,2]]"#,
        r#""set":"x""#,
        r#""parts":[["notes",9,1,""]]"#,
        r#""set":[["page",1,0,"no string"]]"#,
        r#""set":[["page",2,0,"z\""]]"#,
        r#""set":[["page",8,8,""]]"#,
    ];
    let changes = changes.map(|changes| format!(r#"{{"n":2,"at":"a","ms":1,"took":1,{changes}}}"#));
    for damage in ["", "7", "{\"n\":1}"].into_iter().chain(changes.iter().map(String::as_str)) {
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
