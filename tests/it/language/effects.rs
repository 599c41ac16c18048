//! Effects: a body with them behaves as the plain function does, wherever they stand and whatever their options.
use std::collections::BTreeMap;
use std::time::Duration;

use forever::prelude::*;

use super::harness::{Seen, everywhere, places, plain_call as call, plain_step as step, same, same_after, twin};

twin! {
    async fn alone(io, n: u32) -> anyhow::Result<String> {
        let a = step!("a", effect, io.did("a", n).await?);
        let b = step!("b", effect, |op| io.did("b", a + op.attempt()).await?);
        let c = step!("c", effect, key = (n, &a, "text"), on_unknown = OnUnknown::Retry, io.did(format!("c {b}"), b * 2).await?);
        let d = step!("d", effect, on_unknown = OnUnknown::check(async |op| (op.id().len() == c as usize).then_some(7)), was = "old", |op| io.did("d", op.id().len() as u32).await?);
        let e = step!("e", effect, timeout = Duration::from_secs(60), on_unknown = OnUnknown::Fail, io.did("e", d).await?);
        step!("f", effect, { io.did("f", ()).await?; });
        Ok(format!("{a} {b} {c} {d} {e}"))
    }
}

#[test]
fn an_effect_gives_what_its_body_gives() {
    let seen = same_after(|| alone(4));
    assert_eq!(seen.outcome, r#"Completed("4 5 10 32 32")"#);
    assert_eq!(seen.log, ["a", "b", "c 5", "d", "e", "f"]);
    assert_eq!(places(&seen.snapshots), ["a", "b", "c", "d", "e", "f"]);
}

twin! {
    async fn positions(io, list: Vec<u32>) -> anyhow::Result<u32> {
        let total = step!("left", effect, io.did("left", 1).await?) + step!("right", effect, key = 2, io.did("right", 2).await?);
        let (pair, [x, y]) = step!("pattern", effect, io.did("pattern", ((total, 3), [4, 5])).await?);
        let Some(inner) = step!("some", effect, io.did("some", list.first().copied()).await?) else {
            return Ok(step!("none", effect, |op| io.did("none", op.attempt()).await?));
        };
        let mut out = Vec::from([inner, step!("array", effect, io.did("array", x).await?)]);
        out.push(step!("argument", effect, on_unknown = OnUnknown::Retry, io.did("argument", y + pair.1).await?));
        if let Some(last) = step!("if let", effect, io.did("if let", list.get(1).copied()).await?) && last > 2 {
            out.push(match step!("match", effect, io.did("match", last % 3).await?) {
                0 => step!("zero", effect, key = last, io.did("zero", 100).await?),
                1 => 200,
                n => n + step!("other", effect, io.did("other", 300).await?),
            });
        }
        let mut left = list.len();
        while step!("while", effect, key = left, io.did("while", left > 1).await?) {
            step!("discarded", effect, io.did("discarded", left).await?);
            left -= 1;
        }
        let both = out.len() > 2 && step!("and", effect, io.did("and", true).await?);
        let text = step!("method", effect, io.did("method", "text").await?.to_owned()).to_uppercase();
        out.push(text.len() as u32 + u32::from(both));
        Ok(step!("tail", effect, io.did("tail", out.iter().sum::<u32>()).await?))
    }
}

#[test]
fn an_effect_stands_wherever_a_step_does() {
    assert_eq!(same(|| positions(vec![])).log, ["left", "right", "pattern", "some", "none"]);
    assert_eq!(same(|| positions(vec![1])).outcome, "Completed(18)");
    assert_eq!(same(|| positions(vec![1, 3, 3])).outcome, "Completed(118)");
    assert_eq!(same(|| positions(vec![1, 4])).outcome, "Completed(218)");
    assert_eq!(same(|| positions(vec![1, 5])).outcome, "Completed(320)");
}

twin! {
    async fn retried(io, fail: u32) -> anyhow::Result<u32> {
        let a = step!("a", effect, retry = Retry::times(2).backoff(Backoff::none()), |op| {
            if op.attempt() <= fail {
                io.fails(&format!("attempt {}", op.attempt())).await?;
            }
            io.did("done", op.attempt()).await?
        });
        let b = step!("b", effect, on_unknown = OnUnknown::Retry, key = a, retry = Retry::times(1).backoff(Backoff::none()), |op| {
            if fail == 1 && op.attempt() == 1 { io.fails("once").await? } else { io.did("b", op.attempt()).await? }
        });
        step!("end", effect, io.did(format!("{a} {b}"), ()).await?);
        Ok(a * 10 + b)
    }
}

#[test]
fn an_effect_is_tried_again_as_often_as_it_says() {
    assert_eq!(same_after(|| retried(0)).log, ["done", "b", "1 1"]);
    assert_eq!(same_after(|| retried(1)).log, ["attempt 1", "done", "once", "b", "2 2"]);
    assert_eq!(same_after(|| retried(2)).log, ["attempt 1", "attempt 2", "done", "b", "3 1"]);
    let seen = same_after(|| retried(3));
    assert_eq!(seen.outcome, "Failed(\"attempt 3 failed\")");
    assert_eq!(seen.log, ["attempt 1", "attempt 2", "attempt 3"]);
}

twin! {
    async fn looped(io, rows: Vec<Vec<u32>>) -> anyhow::Result<Vec<u32>> {
        let mut out = Vec::new();
        'rows: for (place, row) in rows.iter().enumerate() {
            for cell in row {
                let doubled = step!("cell", effect, key = (place, cell), on_unknown = OnUnknown::Retry, {
                    io.did(format!("{place}.{cell}"), cell * 2).await?
                });
                out.push(*cell);
                if doubled > 10 {
                    continue 'rows;
                }
                if doubled == 0 {
                    break 'rows;
                }
                out.push(doubled);
            }
            step!("row", effect, io.did(format!("row {place}"), ()).await?);
        }
        let last = loop {
            let n = step!("loop", effect, |op| io.did("loop", out.len() as u32 + op.attempt()).await?);
            if n > 4 {
                break n;
            }
            out.push(n);
        };
        out.push(last);
        Ok(out)
    }
}

#[test]
fn an_effect_in_a_loop_is_another_operation_each_time() {
    assert_eq!(same(|| looped(vec![])).outcome, "Completed([1, 2, 3, 4, 5])");
    let seen = same(|| looped(vec![vec![1, 1], vec![6, 2], vec![2, 0, 5], vec![9]]));
    assert_eq!(seen.outcome, "Completed([1, 2, 1, 2, 6, 2, 4, 0, 9])");
    assert_eq!(seen.log, ["0.1", "0.1", "row 0", "1.6", "2.2", "2.0", "loop"]);
}

twin! {
    async fn child(io, n: u32) -> anyhow::Result<u32> {
        let a = step!("a", effect, key = n, io.did(format!("child {n}"), n).await?);
        if a == 0 {
            step!("fails", effect, io.fails("child").await?);
        }
        let below = if n > 2 { call!(child(n - 2))? } else { 0 };
        Ok(a + step!("b", effect, |op| io.did(format!("back {n}"), below + op.attempt()).await?))
    }
}

twin! {
    async fn calling(io, n: u32) -> anyhow::Result<u32> {
        let before = step!("before", effect, io.did("before", 1).await?);
        let mut total = before;
        for i in 1..n {
            total += call!(child(i))? + step!("between", effect, on_unknown = OnUnknown::Retry, io.did("between", total).await?);
        }
        let caught = call!(child(0)).map_err(|error| error.to_string());
        let text = step!("after", effect, io.did(format!("{caught:?}"), caught.unwrap_err()).await?);
        Ok(total + text.len() as u32)
    }
}

#[test]
fn effects_and_calls_go_together() {
    let seen = same(|| calling(4));
    assert_eq!(seen.log.last().unwrap(), r#"Err("child failed")"#);
    assert_eq!(seen.log.iter().filter(|l| l.starts_with("back")).count(), 4);
}

#[derive(Debug)]
enum Trouble {
    Declined(u32),
    Text(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Declined(code) => write!(f, "declined: {code}"),
            Trouble::Text(text) => write!(f, "text: {text}"),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<std::num::ParseIntError> for Trouble {
    fn from(error: std::num::ParseIntError) -> Self {
        Trouble::Text(error.to_string())
    }
}

twin! {
    async fn leaving(io, text: String) -> Result<u32, Trouble> {
        let n: u32 = step!("parsed", effect, io.get("parsed", text.parse()).await?);
        if n == 1 {
            return Ok(step!("one", effect, io.get("one", n).await));
        }
        step!("charge", effect, key = &text, {
            io.log("charge");
            if n == 2 { Err(Trouble::Declined(n))? }
        });
        // The error is the value here: it is stored, and is there after a resume.
        let kept = step!("kept", effect, io.get("kept", if n == 3 { Err("three".to_owned()) } else { Ok(n) }).await);
        let again = kept.map_err(Trouble::Text)?;
        let last = step!("last", effect, on_unknown = OnUnknown::check(async |_| if again == 5 { Err(Trouble::Declined(5)) } else { Ok(Some(again)) }), |op| io.get("last", again.checked_sub(4 * op.attempt())).await.ok_or(Trouble::Declined(4))?);
        assert_ne!(last, 1, "it was five");
        Ok(last)
    }
}

#[test]
fn an_error_in_an_effect_leaves_the_fiber_as_always() {
    let end = |text: &str| {
        let Seen { outcome, log, .. } = same_after(|| leaving(text.into()));
        (outcome, log.join(" "))
    };
    let failed = |text: &str| format!("Failed({text:?})");
    assert_eq!(end("x"), (failed("text: invalid digit found in string"), "parsed".into()));
    assert_eq!(end("1"), ("Completed(1)".into(), "parsed one".into()));
    assert_eq!(end("2"), (failed("declined: 2"), "parsed charge".into()));
    assert_eq!(end("3"), (failed("text: three"), "parsed charge kept".into()));
    assert_eq!(end("0"), (failed("declined: 4"), "parsed charge kept last".into()));
    assert!(end("5").0.contains("it was five"));
    assert_eq!(end("9"), ("Completed(5)".into(), "parsed charge kept last".into()));
}

twin! {
    async fn borrowing(io, names: Vec<String>) -> anyhow::Result<String> {
        let first = &names[0];
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut lines = Vec::new();
        let sent = step!("sent", effect, key = (first, &names[1..]), on_unknown = OnUnknown::check(async |_| counts.get(first).copied()), |op| {
            let mut counts = counts.clone();
            *counts.entry(first.clone()).or_default() += op.attempt();
            io.did(first.clone(), counts.len() as u32).await?
        });
        *counts.entry(first.clone()).or_default() += sent;
        lines.push(format!("sent to {first}"));
        for name in &names[1..] {
            lines.push(step!("each", effect, key = (&counts, name), {
                io.did(name.clone(), ()).await?;
                name.to_uppercase()
            }));
            *counts.entry(name.clone()).or_default() += 1;
        }
        let closing = "bye".to_owned();
        let said = step!("moved", effect, { io.did(closing.clone(), ()).await?; closing });
        lines.push(said);
        let shown = step!("shown", effect, |_op| io.did("shown", lines.join(",")).await?);
        Ok(format!("{sent} {counts:?} {shown} {first}"))
    }
}

#[test]
fn an_effect_borrows_and_moves_what_the_plain_function_could() {
    let names = || ["ada", "grace", "ada"].map(String::from).to_vec();
    let seen = same(|| borrowing(names()));
    assert_eq!(seen.outcome, r#"Completed("1 {\"ada\": 2, \"grace\": 1} sent to ada,GRACE,ADA,bye ada")"#);
}

mod in_a_fiber {
    use forever::prelude::*;

    use super::super::harness::Io;

    #[fiber]
    pub(super) async fn logs(io: Res<Io>, n: u32) -> anyhow::Result<Vec<u32>> {
        let mut parts = Vec::new();
        for round in 0..n {
            let part = step!("part", effect, key = round, on_unknown = OnUnknown::Retry, |op| {
                let id = op.id().to_owned();
                op.stash(&round).await?;
                let stashed: Option<u32> = op.stashed()?;
                io.did(format!("part {round}"), (id.len() as u32, stashed)).await?
            });
            parts.push(part.0 + part.1.unwrap_or(100));
        }
        Ok(parts)
    }
}

#[test]
fn an_effect_has_its_op() {
    assert_eq!(everywhere(|| in_a_fiber::logs(3)).0, "Completed([32, 33, 34])");
}

twin! {
    async fn named(io, n: u32) -> anyhow::Result<u32> {
        let receipt = step!(effect, io.did("a", n).await?);
        step!(effect, on_unknown = OnUnknown::Retry, io.did("b", n).await?);
        Ok(receipt + step!(key = n, effect, |_op| io.did("c", 1).await?))
    }
}

#[test]
fn an_effect_is_named_as_a_step_is() {
    let seen = same(|| named(2));
    assert_eq!((seen.outcome.as_str(), &*places(&seen.snapshots).join(" ")), ("Completed(3)", "receipt did did#2"));
}
