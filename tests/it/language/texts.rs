//! Text that is part of the program, `&'static str`, wherever it comes from and whatever holds it.
use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::harness::{
    Io, Letters, locals, plain_call as call, plain_recv as recv, plain_step as step, plain_steps as steps, same, same_with, twin,
};

fn kind(n: u32) -> &'static str {
    match n {
        0 => "none",
        1..=9 => "some \"quoted\"\n",
        _ => "many",
    }
}

twin! {
    async fn computed(io, n: u32) -> anyhow::Result<String> {
        let kind = kind(n);
        step!("first", io.did(kind, ()).await?);
        let mut words = vec![kind];
        for i in 0..n {
            words.push(if i % 2 == 0 { "even" } else { "odd" });
            step!("word", io.did(words.concat(), ()).await?);
        }
        let counts: BTreeMap<&str, usize> = words.iter().map(|word| (*word, word.len())).collect();
        let last = words.last().copied();
        let pair = (kind, last.ok_or("nothing"));
        step!("second", io.did(format!("{counts:?} {pair:?}"), ()).await?);
        let from_step = step!("third", io.did("third", kind).await?);
        let branches = steps!(io.get("a", "x").await, io.get("b", kind).await);
        let chosen = if n > 2 { step!("more", io.did("more", ()).await?); "large" } else { "small" };
        step!("fourth", io.did(chosen, ()).await?);
        Ok(format!("{kind} {words:?} {counts:?} {pair:?} {from_step} {branches:?} {chosen}"))
    }
}

#[test]
fn constants_chosen_at_run_time_are_kept() {
    assert!(same(|| computed(0)).outcome.contains("none"));
    let seen = same(|| computed(3));
    assert!(seen.outcome.contains("large"), "{}", seen.outcome);
    assert!(locals(&seen.snapshots[0]).contains(&("kind".to_owned(), "some \"quoted\"\n".into())), "{}", seen.snapshots[0]);
}

/// A type with a constant, a type that takes either, and bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Label<'a> {
    #[serde(borrow)]
    name: &'a str,
    detail: Cow<'a, str>,
    path: Option<&'a std::path::Path>,
}

twin! {
    async fn inside_types(io, n: u32) -> anyhow::Result<String> {
        let label = Label { name: kind(n), detail: format!("{n}").into(), path: Some(std::path::Path::new("/tmp")) };
        let bytes: &'static [u8] = b"bytes";
        let list: Vec<Option<&'static str>> = vec![Some(label.name), None];
        step!("first", io.did("first", ()).await?);
        let name = label.name;
        step!("second", io.did(name, ()).await?);
        Ok(format!("{label:?} {bytes:?} {list:?}"))
    }
}

#[test]
fn constants_inside_other_types_are_kept() {
    same(|| inside_types(1));
    same(|| inside_types(10));
}

twin! {
    async fn after_waits(io, n: u32) -> anyhow::Result<String> {
        let outcome = match recv!("answer", timeout = std::time::Duration::from_millis(1)) {
            Some(true) => "yes",
            Some(false) => "no",
            None => {
                step!("remind", io.did("remind", ()).await?);
                match recv!("answer", timeout = std::time::Duration::from_millis(1)) {
                    Some(true) => "late",
                    _ => kind(n),
                }
            }
        };
        let verdict = loop {
            let round = step!("round", io.did("round", n).await?);
            if round > 0 { break "enough" }
            if outcome.len() > 2 { break outcome }
            break "other";
        };
        step!("close", io.did(format!("{outcome} {verdict}"), ()).await?);
        Ok(format!("{outcome} {verdict}"))
    }
}

#[test]
fn constants_that_branches_and_loops_with_steps_give_are_kept() {
    same(|| after_waits(0));
    same(|| after_waits(4));
    same_with(Letters::default().with("answer", true), || after_waits(0));
}
