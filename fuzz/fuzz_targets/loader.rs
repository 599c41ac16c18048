//! A snapshot that is any text: the fiber goes on, fails or is parked; and what was read is written and read again as the same.
#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::sync::OnceLock;

use forever::fiber::Log;
use forever::prelude::*;
use forever::testing::{Outcome, Stage, StartFrom};
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
    let played = runtime.block_on(Stage::new().run(StartFrom::<keeps>::Snapshot(text.to_owned()), None));
    (played.outcome, played.snapshots)
}

/// The cut points of the function and of the one that it calls, each with the locals that it keeps.
fn cuts() -> &'static [Vec<(String, Vec<String>)>; 2] {
    static CUTS: OnceLock<[Vec<(String, Vec<String>)>; 2]> = OnceLock::new();
    CUTS.get_or_init(|| [forever::layout::of::<keeps>(), forever::layout::of::<inner>()].map(|layout| of(&layout)))
}

fn of(layout: &forever::layout::Layout) -> Vec<(String, Vec<String>)> {
    let layout = serde_json::to_value(layout).expect("a layout is JSON");
    let text = |value: &serde_json::Value| value["name"].as_str().expect("it has a name").to_owned();
    let list = |value: &serde_json::Value| value.as_array().expect("it is a list").clone();
    list(&layout["steps"]).iter().map(|step| (text(step), list(&step["keeps"]).iter().map(text).collect())).collect()
}

/// A snapshot that stands at one of the cut points, with a value from the input for each local; in the call, if it stands there.
fn snapshot(dice: u8, text: &str) -> String {
    let [outer, called] = cuts();
    let mut values = text.split('\n').chain(std::iter::repeat("null"));
    let mut locals =
        |names: &[String]| names.iter().map(|name| format!("{name:?}:{}", values.next().unwrap_or_default())).collect::<Vec<_>>().join(",");
    let place = usize::from(dice) % (outer.len() + called.len());
    let Some((at, names)) = outer.get(place) else {
        let (at, names) = &called[place - outer.len()];
        let call = outer.iter().find(|(at, _)| at == "inner").expect("there is a call");
        // While the call has not returned, its value is not there.
        let kept: Vec<String> = call.1.iter().filter(|name| *name != "inner").cloned().collect();
        let (outside, inside) = (locals(&kept), locals(names));
        let call = format!("{{\"fiber\":\"inner\",\"at\":{at:?},\"locals\":{{{inside}}},\"call\":null}}");
        return format!("{{\"at\":\"inner\",\"locals\":{{{outside}}},\"call\":{call}}}");
    };
    format!("{{\"at\":{at:?},\"locals\":{{{}}},\"call\":null}}", locals(names))
}

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let text = if *first == 0 { text.into_owned() } else { snapshot(first - 1, &text) };
    if serde_json::from_str::<forever::fiber::Snapshot>(&text).is_err() {
        return;
    }
    let (outcome, snapshots) = play(&text);
    if let Outcome::Completed(value) = outcome {
        for snapshot in snapshots.iter().take(3) {
            assert_eq!(play(snapshot).0, Outcome::Completed(value.clone()), "from {snapshot}");
        }
    }
});
