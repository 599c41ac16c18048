use forever::prelude::*;

use super::harness::{Io, everywhere};

#[fiber]
async fn straight(io: Res<Io>, topic: String) -> anyhow::Result<String> {
    let plan = step!(io.did("plan", format!("plan of {topic}")).await?);
    let draft = step!("write", io.did("write", plan.len()).await?);
    let mut notes = Vec::new();
    notes.push(step!(io.did("note", draft + 1).await?));
    Ok(format!("{topic}: {draft} {notes:?}"))
}

#[test]
fn straight_line() {
    let (outcome, log, snapshots) = everywhere(|| straight("t".into()));
    assert_eq!(outcome, "Completed(\"t: 9 [10]\")");
    assert_eq!(log, ["plan", "write", "note"]);
    assert_eq!(snapshots[0], r#"{"at":"plan","locals":{"topic":"t","plan":"plan of t"},"call":null}"#);
    assert_eq!(snapshots[1], r#"{"at":"write","locals":{"topic":"t","draft":9},"call":null}"#);
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Plan {
    questions: Vec<String>,
    mode: Mode,
}
#[derive(Clone, serde::Serialize, serde::Deserialize)]
enum Mode {
    Tag(String),
    Plain,
}

#[fiber]
async fn research(_ctx: &FiberContext, io: Res<Io>, plan: Plan) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut left = 3;
    while step!("more", io.did("more", left > 0).await?) {
        left -= 1;
        for q in &plan.questions {
            let Some(hit) = step!("find", io.did("find", (q.len() > 1).then_some(q.len())).await?) else {
                step!("miss", io.did("miss", ()).await?);
                continue;
            };
            match &plan.mode {
                Mode::Tag(tag) => {
                    let r = step!("tag", io.did("tag", hit + tag.len()).await?);
                    out.push_str(&format!("{tag}{r}"));
                }
                Mode::Plain if hit > 2 => {
                    step!("plain", io.did("plain", hit).await?);
                    out.push('p');
                }
                _ => out.push('_'),
            }
        }
    }
    Ok(out)
}

#[test]
fn loops_and_borrows() {
    for mode in [Mode::Tag("t".into()), Mode::Plain] {
        let plan = Plan { questions: vec!["a".into(), "bb".into(), "ccc".into()], mode };
        let (outcome, ..) = everywhere(|| research(plan.clone()));
        println!("{outcome}");
    }
}

#[fiber]
async fn owned_for(io: Res<Io>, plan: Plan) -> anyhow::Result<usize> {
    let mut total = 0;
    'outer: for question in plan.questions {
        for i in 0..question.len() {
            let hits = step!("search", io.did(format!("search {question} {i}"), vec![i; 2]).await?);
            if hits.is_empty() {
                continue;
            }
            if i == 2 {
                continue 'outer;
            }
            total += hits.len() + step!(io.did("sum", 1usize).await?);
        }
        if question.len() > 3 {
            step!("last", io.did("last", ()).await?);
            break;
        }
    }
    Ok(total)
}

#[test]
fn owned_loops() {
    let plan = Plan { questions: ["a", "bbbbb", "cc", "dddd", "e"].map(Into::into).into(), mode: Mode::Plain };
    let (outcome, _, snapshots) = everywhere(|| owned_for(plan.clone()));
    println!("{outcome}\n{}", snapshots.join("\n"));
}

#[fiber]
async fn child(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let a = step!(io.did("child a", n).await?);
    let b = step!(io.did("child b", a + 1).await?);
    Ok(a + b)
}

#[fiber]
async fn parent(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let before = step!(io.did("before", n).await?);
    let mut sum = call!(child(before))?;
    for i in 0..2 {
        sum += call!(child(i))?;
    }
    match call!(child(7)) {
        Ok(v) => sum += v,
        Err(e) => {
            step!("oh", io.did(e.to_string(), ()).await?);
        }
    }
    step!("after", io.did("after", ()).await?);
    Ok(sum)
}

#[test]
fn calls() {
    let (outcome, _, snapshots) = everywhere(|| parent(3));
    println!("{outcome}\n{}", snapshots.join("\n"));
}
