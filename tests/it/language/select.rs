//! `select!`, and `recv!` of computed and of several topics, in every position.
use std::time::{Duration, SystemTime};

use super::harness::{
    Io, Letters, names, places, plain_recv as recv, plain_select as select, plain_sleep as sleep, plain_step as step, same, same_with, twin,
};

const SHORT: Duration = Duration::from_millis(1);

twin! {
    async fn first_that_is_there(io, n: u32) -> anyhow::Result<String> {
        let before = vec![n];
        let text = select! {
            yes: bool = recv!("approval") => format!("approved {yes} {before:?}"),
            (a, b): (u32, String) = recv!("pair") => {
                let c = step!(io.did("inside", a + 1).await?);
                format!("{b} {c} {}", before.len())
            }
            _ = sleep!(SHORT * n) => step!(io.did("late", "nobody".to_owned()).await?),
        };
        step!(io.did(format!("after {text}"), ()).await?);
        Ok(text)
    }
}

#[test]
fn the_arm_that_is_ready_gives_the_value_of_the_select() {
    let seen = same_with(Letters::default().with("approval", true), || first_that_is_there(1));
    assert_eq!(seen.outcome, r#"Completed("approved true [1]")"#);
    let seen = same_with(Letters::default().with("pair", (4, "b")), || first_that_is_there(1));
    assert_eq!(seen.outcome, r#"Completed("b 5 1")"#);
    assert_eq!(seen.log, ["inside", "after b 5 1"]);
    let seen = same(|| first_that_is_there(1));
    assert_eq!(seen.log, ["late", "after nobody"]);
}

#[test]
fn of_several_arms_that_are_ready_the_first_in_source_order_is_taken() {
    let both = Letters::default().with("pair", (4, "b")).with("approval", false);
    assert_eq!(same_with(both, || first_that_is_there(2)).outcome, r#"Completed("approved false [2]")"#);
}

#[test]
fn a_snapshot_names_the_arm_and_what_is_waited_for() {
    let seen = same_with(Letters::default().with("pair", (4, "b")), || first_that_is_there(1));
    assert_eq!(places(&seen.snapshots), ["text pending", "text", "c", "did#2"]);
    assert_eq!(names(&seen.snapshots[0]), ["before", "text sleep until"]);
    assert!(seen.snapshots[1].contains(r#""text chosen":{"pair":[4,"b"]}"#), "{}", seen.snapshots[1]);
    let late = same(|| first_that_is_there(1));
    assert!(late.snapshots[1].contains(r#""text chosen":{"sleep":null}"#), "{}", late.snapshots[1]);
}

/// A number whose text in a snapshot is an escape, if it was negative.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(from = "f64", into = "f64")]
struct Reading(f64);

impl From<f64> for Reading {
    fn from(value: f64) -> Self {
        Reading(if value < 0.0 { f64::NAN } else { value })
    }
}

impl From<Reading> for f64 {
    fn from(reading: Reading) -> Self {
        reading.0
    }
}

twin! {
    async fn escaped(io, n: u32) -> anyhow::Result<String> {
        let text = select! {
            reading: Reading = recv!("reading") => {
                step!("read", io.did("read", ()).await?);
                format!("{}", reading.0)
            }
            (topic, inner): (String, Option<Option<u8>>) = recv!(["inner", "other"]) => {
                step!("look", io.did(topic.clone(), ()).await?);
                format!("{topic} {inner:?}")
            }
            perhaps: Option<Option<u8>> = recv!("perhaps", timeout = SHORT * n) => {
                step!("wait", io.did(format!("{perhaps:?}"), ()).await?);
                format!("{perhaps:?}")
            }
        };
        step!(io.did(format!("after {text}"), ()).await?);
        Ok(text)
    }
}

#[test]
fn a_message_whose_text_has_escapes_comes_back_as_it_was() {
    let given = |topic, value: serde_json::Value| same_with(Letters::default().with(topic, value), || escaped(1)).outcome;
    assert_eq!(given("reading", (-1).into()), r#"Completed("NaN")"#);
    assert_eq!(given("reading", 2.5.into()), r#"Completed("2.5")"#);
    assert_eq!(given("inner", serde_json::Value::Null), r#"Completed("inner None")"#);
    assert_eq!(given("other", 7.into()), r#"Completed("other Some(Some(7))")"#);
    assert_eq!(given("perhaps", serde_json::Value::Null), r#"Completed("Some(None)")"#);
    assert_eq!(same(|| escaped(1)).outcome, r#"Completed("None")"#);
}

twin! {
    async fn everywhere(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = 0;
        let mut lines = Vec::new();
        'rounds: loop {
            select! {
                line: String = recv!("line") => {
                    if line == "skip" { continue 'rounds; }
                    if line == "stop" { break; }
                    let line = step!(io.did("line", line + "!").await?);
                    lines.push(line);
                }
                add: u32 = recv!("add") => sum += add,
                _ = sleep!(SHORT) => break 'rounds,
            }
            sum += 1;
        }
        let name = String::from("late");
        if select! { ok: bool = recv!("ok") => ok, () = sleep!(SHORT) => false } {
            sum += 100;
        }
        while let Some(more) = select! {
            more: u32 = recv!("more") => Some(more),
            _ = sleep_until!(SystemTime::UNIX_EPOCH + SHORT) => None,
        } {
            sum += more;
            if more == 13 { return Ok(sum); }
        }
        let pair = (
            step!(io.did("one", 1).await?),
            select! { two: u32 = recv!("two") => { let two = two * 2; step!(io.did("two", two).await?) }, _ = sleep!(SHORT) => 7 },
        );
        match select! { text: String = recv!("text") => Ok(text.len()), _ = sleep!(SHORT) => Err(name) } {
            Ok(length) => sum += step!(io.did("length", u32::try_from(length)?).await?),
            Err(name) => { step!(io.did(name, ()).await?); }
        }
        select! {
            fail: bool = recv!("fail") => { anyhow::ensure!(!fail, "told to fail"); io.fails("fail").await?; }
            _ = sleep!(SHORT * n) => {}
        }
        let inner = select! {
            outer: u32 = recv!(step!(io.did("which", "outer".to_owned()).await?)) => select! {
                inner: u32 = recv!("inner") => outer + inner,
                _ = sleep!(SHORT) => outer,
            },
            _ = sleep!(SHORT) => 0,
        };
        Ok(sum + pair.0 + pair.1 + inner + u32::try_from(lines.len())?)
    }
}

#[test]
fn a_select_stands_wherever_an_await_would_and_its_arms_are_code_of_the_function() {
    let all = || {
        Letters::default()
            .with("line", "a")
            .with("line", "skip")
            .with("line", "b")
            .with("line", "stop")
            .with("add", 10)
            .with("ok", true)
            .with("more", 1)
            .with("more", 2)
            .with("two", 4)
            .with("text", "four")
            .with("outer", 1000)
            .with("inner", 500)
    };
    assert_eq!(same_with(all(), || everywhere(1)).outcome, "Completed(1620)");
    same(|| everywhere(1));
    same_with(all().with("fail", false), || everywhere(1));
    assert_eq!(same_with(all().with("fail", true), || everywhere(1)).outcome, r#"Failed("told to fail")"#);
    same_with(Letters::default().with("more", 13), || everywhere(1));
    same_with(Letters::default().with("add", 3).with("add", 4).with("outer", 9), || everywhere(0));
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Vote {
    by: String,
    yes: bool,
}

twin! {
    async fn computed(io, ids: Vec<String>) -> anyhow::Result<String> {
        let mut all = Vec::new();
        for id in &ids {
            let vote: Vote = recv!(format!("vote-{id}"));
            all.push((vote.by, vote.yes));
        }
        let topic = String::from("last");
        let last: u32 = recv!(topic);
        let next: u32 = recv!(step!(io.did("which", "next".to_owned()).await?));
        let none: Option<u32> = recv!(&ids[0], timeout = SHORT * next);
        let (which, word): (String, String) = recv!(["approve", "reject"]);
        let more: Option<(String, u32)> = recv!(ids.iter().map(|id| format!("more-{id}")).collect::<Vec<_>>(), timeout = SHORT);
        let again: Option<(String, u32)> = recv!(["more-a", "more-b"], timeout = SHORT);
        let chosen = select! {
            either: (String, u32) = recv!(["x", "y"]) => format!("{either:?}"),
            vote: Vote = recv!(format!("vote-{}", ids.len())) => vote.by,
            word: Option<String> = recv!("word", timeout = SHORT) => format!("{word:?}"),
        };
        Ok(format!("{all:?} {last} {next} {none:?} {which} {word} {more:?} {again:?} {chosen}"))
    }
}

fn vote(by: &str) -> Vote {
    Vote { by: by.to_owned(), yes: by.len() == 1 }
}

#[test]
fn topics_may_be_computed_and_of_several_the_oldest_message_comes_with_its_topic() {
    let letters = || {
        Letters::default()
            .with("vote-b", vote("bob"))
            .with("vote-a", vote("a"))
            .with("last", 5)
            .with("next", 6)
            .with("reject", "no")
            .with("approve", "yes")
            .with("more-b", 2)
            .with("more-a", 1)
    };
    let ids = || vec!["a".to_owned(), "b".to_owned()];
    let seen = same_with(letters().with("vote-2", vote("two")), || computed(ids()));
    let text = r#"Completed("[(\"a\", true), (\"bob\", false)] 5 6 None reject no Some((\"more-b\", 2)) Some((\"more-a\", 1)) two")"#;
    assert_eq!(seen.outcome, text);
    let seen = same_with(letters().with("y", 3), || computed(ids()));
    assert!(seen.outcome.ends_with(r#" (\"y\", 3)")"#), "{}", seen.outcome);
    assert!(same_with(letters().with("word", "w"), || computed(ids())).outcome.ends_with(r#" Some(\"w\")")"#));
    assert!(same_with(letters(), || computed(ids())).outcome.ends_with(r#" None")"#));
}

#[test]
fn a_snapshot_holds_the_computed_topics_while_it_waits() {
    let letters = Letters::default().with("vote-a", vote("a")).with("last", 5).with("next", 6).with("approve", "yes");
    let seen = same_with(letters, || computed(vec!["a".to_owned()]));
    assert_eq!(places(&seen.snapshots)[..4], ["vote pending", "vote", "last pending", "last"]);
    assert!(seen.snapshots[0].contains(r#""vote topic":"vote-a""#), "{}", seen.snapshots[0]);
    assert!(seen.snapshots.iter().any(|s| s.contains(r#""more topic":["more-a"]"#)), "{:#?}", seen.snapshots);
}

twin! {
    async fn empty(io, topics: Vec<String>) -> anyhow::Result<Option<(String, u32)>> {
        let got: Option<(String, u32)> = recv!(&topics, timeout = SHORT);
        step!(io.did("none", ()).await?);
        Ok(got)
    }
}

#[forever::fiber]
async fn for_ever(topics: Vec<String>) -> anyhow::Result<(String, u32)> {
    let got: (String, u32) = recv!(topics);
    Ok(got)
}

#[test]
fn no_topics_and_no_timeout_fail_and_do_not_wait_for_ever() {
    assert_eq!(same(|| empty(Vec::new())).outcome, "Completed(None)");
    let outcome = super::harness::everywhere(|| for_ever(Vec::new())).0;
    assert_eq!(outcome, r#"Failed("`for_ever` was given no topic to receive on, and would wait for ever")"#);
}
