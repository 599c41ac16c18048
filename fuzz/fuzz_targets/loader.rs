//! A snapshot that is any text: the fiber goes on, fails or is parked; and what was read is written and read again as the same.
#![no_main]

use std::collections::{BTreeMap, VecDeque};

use forever::prelude::*;
use forever::testing::{From, Outcome, Stage};
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

/// A value of each kind that serde knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    numbers: (u8, i16, u64, i128, u128),
    float: f32,
    option: Option<Option<()>>,
    text: String,
    letter: char,
    list: VecDeque<Shape>,
    odd: BTreeMap<(bool, u8), Tagged>,
    plain: BTreeMap<String, Untagged>,
    any: serde_json::Value,
    boxed: Option<Box<Everything>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Unit,
    Newtype(f64),
    Tuple(u8, String),
    Struct { x: i64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    A { n: u32 },
    B,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(i64),
    Text(String),
    Rest(Flat),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    a: Option<u8>,
    #[serde(flatten)]
    rest: BTreeMap<String, u8>,
}

/// Each local with another type; a snapshot may stand at each step, in a call and in loops.
#[fiber]
async fn keeps(all: Everything) -> anyhow::Result<String> {
    let mut log: Log<Shape> = Log::new();
    let shapes: Vec<Shape> = step!("shapes", Vec::new());
    for (n, shape) in shapes.iter().enumerate() {
        log.push(shape.clone());
        step!("borrowed", n);
    }
    for shape in shapes.clone() {
        step!("rest", ());
        log.push(shape);
    }
    let mut sum = 0_u32;
    for n in 0..3_u8 {
        sum = sum.wrapping_add(u32::from(step!("range", n)));
    }
    let inner = call!(inner(all.float))?;
    step!("last", ());
    Ok(format!("{all:?} {log:?} {shapes:?} {sum} {inner:?}"))
}

#[fiber]
async fn inner(float: f32) -> anyhow::Result<(f32, Untagged)> {
    let untagged: Untagged = step!("untagged", Untagged::Number(1));
    step!("end", ());
    Ok((float, untagged))
}

/// What comes of a snapshot, and the snapshots that it makes on its way.
fn play(text: &str) -> (Outcome<String>, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let played = runtime.block_on(Stage::new().play(From::<keeps>::Snapshot(text.to_owned()), None));
    (played.outcome, played.snapshots)
}

/// A snapshot that a run could have made, with places for other values.
const LOCALS: [&str; 6] = ["all", "shapes", "log", "sum", "shapes at", "for n"];
const STEPS: [&str; 6] = ["shapes", "borrowed", "rest", "range", "inner", "last"];

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(rest).into_owned();
    let text = if first % 4 == 0 {
        text
    } else {
        // The values of locals, one after the other.
        let values = text.split('\n').zip(LOCALS).map(|(value, name)| format!("{name:?}:{value}"));
        let locals = values.collect::<Vec<_>>().join(",");
        format!("{{\"at\":{:?},\"locals\":{{{locals}}},\"call\":null}}", STEPS[usize::from(first / 4) % STEPS.len()])
    };
    if serde_json::from_str::<forever::Snapshot>(&text).is_err() {
        return;
    }
    let (outcome, snapshots) = play(&text);
    if let Outcome::Completed(value) = outcome {
        for snapshot in snapshots.iter().take(3) {
            assert_eq!(play(snapshot).0, Outcome::Completed(value.clone()), "from {snapshot}");
        }
    }
});
