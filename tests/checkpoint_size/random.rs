//! Random edits of several locals, killed at every checkpoint: what is restored is what was there.
use forever::fiber::Log;
use forever::prelude::*;
use forever_testkit::prng::Prng;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::{World, same};

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Edit {
    Push(usize),
    Extend(usize, usize),
    Clone(usize, usize),
    Swap(usize, usize),
    Clear(usize),
    Text(usize, usize),
    Call(usize, usize),
    Nothing,
}

const PLACES: usize = 3;

type State = (Vec<Log<String>>, Vec<String>);

fn apply((logs, texts): &mut State, edit: Edit, n: usize) {
    match edit {
        Edit::Push(log) | Edit::Call(log, _) => logs[log].push(format!("{n}")),
        Edit::Extend(log, items) => logs[log].extend((0..items).map(|item| "e".repeat(item * 7) + &n.to_string())),
        Edit::Clone(from, to) => logs[to] = logs[from].clone(),
        Edit::Swap(a, b) => logs.swap(a, b),
        Edit::Clear(log) => logs[log] = Log::new(),
        Edit::Text(text, bytes) => texts[text] = format!("{n}").repeat(bytes),
        Edit::Nothing => {}
    }
}

fn empty() -> State {
    (vec![Log::new(); PLACES], vec![String::new(); PLACES])
}

#[fiber]
async fn edited(world: Res<World>, edits: Vec<Edit>) -> anyhow::Result<String> {
    let (mut logs, texts) = empty();
    let [mut a, mut b, mut c]: [String; PLACES] = texts.try_into().unwrap();
    for (n, edit) in edits.iter().enumerate() {
        let mut state = (logs, vec![a, b, c]);
        apply(&mut state, *edit, n);
        logs = state.0;
        [a, b, c] = state.1.try_into().unwrap();
        if let Edit::Call(log, steps) = edit {
            let lent = std::mem::take(&mut logs[*log]);
            logs[*log] = forever::call!(lent_to(lent, a.clone(), *steps))?;
        }
        step!("edit", world.step(()).await?);
    }
    Ok(json!([logs, [a, b, c]]).to_string())
}

#[fiber]
async fn lent_to(world: Res<World>, log: Log<String>, text: String, steps: usize) -> anyhow::Result<Log<String>> {
    let mut log = log;
    for _ in 0..steps {
        step!("lent", world.step(()).await?);
        log.push(text.chars().take(3).collect());
    }
    Ok(log)
}

/// What the same edits come to on plain values, at the end and at each `edit`.
fn plainly(edits: &[Edit]) -> (String, Vec<serde_json::Value>) {
    let mut state = empty();
    let mut seen = Vec::new();
    for (n, edit) in edits.iter().enumerate() {
        apply(&mut state, *edit, n);
        if let Edit::Call(log, steps) = edit {
            let text: String = state.1[0].chars().take(3).collect();
            state.0[*log].extend(std::iter::repeat_n(text, *steps));
        }
        seen.push(json!([state.0, state.1]));
    }
    (json!([state.0, state.1]).to_string(), seen)
}

fn edit(prng: &mut Prng) -> Edit {
    let (a, b) = (prng.below(PLACES), prng.below(PLACES));
    match prng.below(12) {
        0..=2 => Edit::Push(a),
        3 | 4 => Edit::Extend(a, prng.below(6)),
        5 => Edit::Clone(a, b),
        6 => Edit::Swap(a, b),
        7 => Edit::Clear(a),
        8 | 9 => Edit::Text(a, [1, 400, 600, 5000][prng.below(4)]),
        10 => Edit::Call(a, prng.below(3)),
        _ => Edit::Nothing,
    }
}

#[tokio::test]
async fn random_edits_come_back_as_they_were() {
    let mut compared = 0;
    for seed in 0..25 {
        let mut prng = Prng::new(seed);
        let edits: Vec<Edit> = (0..12).map(|_| edit(&mut prng)).collect();
        let seen = same(|| edited(edits.clone())).await;
        let (value, states) = plainly(&edits);
        assert_eq!(seen.value, value, "seed {seed}: {edits:?}");
        for locals in seen.documents.iter().filter(|document| document["at"] == "edit").map(|document| &document["locals"]) {
            let done = usize::try_from(locals["edits.iter().enumerate() at"].as_u64().unwrap()).unwrap();
            let state = json!([locals["logs"], [locals["a"], locals["b"], locals["c"]]]);
            assert_eq!(state, states[done], "seed {seed}, edit {done}: {edits:?}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}
