//! `catch`: the error of a step as a value, the same in every run.
use std::time::Duration;

use forever::fiber::StepError;
use forever::prelude::*;

use super::harness::{Io, everywhere};

/// An error with a cause behind it.
fn refused(n: u32) -> anyhow::Error {
    anyhow::anyhow!("no route {n}").context("bank down")
}

#[fiber]
async fn falls_back(io: Res<Io>, fail: u32) -> anyhow::Result<String> {
    let retry = Retry::times(2).backoff(Backoff::none());
    let asked = step!("ask", retry = retry, catch, |op| {
        io.log(format!("ask {}", op.attempt()));
        if op.attempt() <= fail {
            Err(refused(op.attempt()))?;
        }
        op.attempt()
    });
    step!("between", io.did("between", ()).await?);
    Ok(match asked {
        Ok(n) => format!("asked {n}"),
        Err(error) => {
            let small = step!("small", io.did("small", 7).await?);
            let causes: Vec<&str> = error.causes().collect();
            format!("{small} {error} after {} {causes:?} {}", error.attempts(), error.is_timeout())
        }
    })
}

#[test]
fn a_caught_error_takes_the_same_branch_after_a_resume() {
    let (outcome, log, _) = everywhere(|| falls_back(1));
    assert_eq!(outcome, r#"Completed("asked 2")"#);
    assert_eq!(log, ["ask 1", "ask 2", "between"]);
    let (outcome, log, snapshots) = everywhere(|| falls_back(9));
    assert_eq!(outcome, r#"Completed("7 bank down after 3 [\"no route 3\"] false")"#);
    assert_eq!(log, ["ask 1", "ask 2", "ask 3", "between", "small"]);
    let saved: serde_json::Value = serde_json::from_str(&snapshots[0]).unwrap();
    assert_eq!(saved["locals"]["asked"]["Err"]["causes"], serde_json::json!(["no route 3"]));
}

#[fiber]
async fn positions(io: Res<Io>, fails: Vec<bool>) -> anyhow::Result<String> {
    let mut tried = Vec::new();
    let mut place = 0;
    // In a condition.
    while let Err(error) = step!("loop", catch, if fails.get(place) == Some(&true) { io.fails("loop").await? } else { 1 }) {
        tried.push(error.to_string());
        place += 1;
    }
    // An operand, in a call, discarded, and with `?`.
    let sum = step!("left", catch, io.did("left", 1).await?).unwrap_or(10) + step!("right", catch, io.fails("right").await?).unwrap_or(20);
    tried.push(shown(step!("argument", catch, io.fails("argument").await?)));
    let _ = step!("discarded", catch, io.fails("discarded").await?);
    let moved = tried.join(",");
    let text = step!("moves", catch, {
        io.did("moves", ()).await?;
        moved
    })?;
    if step!("if", catch, io.did("if", ()).await?).is_ok() && fails.len() > 2 {
        step!("leaves", catch, io.fails("leaves").await?)?;
    }
    Ok(format!("{text} {sum}"))
}

fn shown(result: Result<u32, StepError>) -> String {
    format!("{result:?}").chars().take(9).collect()
}

#[test]
fn a_caught_error_is_a_value_wherever_a_step_is_one() {
    let (outcome, log, _) = everywhere(|| positions(vec![true, true]));
    assert_eq!(outcome, r#"Completed("loop failed,loop failed,Err(StepE 21")"#);
    assert_eq!(log, ["loop", "loop", "left", "right", "argument", "discarded", "moves", "if"]);
    let (outcome, ..) = everywhere(|| positions(vec![false, false, false]));
    assert_eq!(outcome, "Failed(\"leaves failed\")", "with `?` it is the fiber's");
}

#[derive(Debug)]
enum Trouble {
    Declined(u32),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Trouble::Declined(code) = self;
        write!(f, "declined: {code}")
    }
}

impl std::error::Error for Trouble {}

#[fiber]
async fn own_error(io: Res<Io>, n: u32) -> Result<String, Trouble> {
    // An error type that knows nothing of the library's, also with a timeout.
    let late = step!("late", timeout = Duration::ZERO, catch, std::future::pending::<u32>().await);
    let charge = step!("charge", effect, retry = Retry::times(1).backoff(Backoff::none()), catch, {
        io.log("charge");
        if n > 1 {
            Err(Trouble::Declined(n))?
        }
        n
    });
    step!("end", io.log("end"));
    let late = late.map_err(|error| (error.is_timeout(), error.to_string(), error.attempts()));
    let charge = charge.map_err(|error| (error.is_timeout(), error.to_string(), error.attempts()));
    Ok(format!("{late:?} {charge:?}"))
}

#[test]
fn an_error_type_of_ones_own_is_caught_by_its_texts() {
    let late = r#"Err((true, \"step `late` took longer than 0ns\", 1))"#;
    let (outcome, log, _) = everywhere(|| own_error(1));
    assert_eq!((outcome, log), (format!("Completed(\"{late} Ok(1)\")"), vec!["charge".to_owned(), "end".into()]));
    let (outcome, log, _) = everywhere(|| own_error(2));
    assert_eq!(outcome, format!("Completed(\"{late} Err((false, \\\"declined: 2\\\", 2))\")"));
    assert_eq!(log, ["charge", "charge", "end"]);
}

#[fiber]
async fn boxed_error(io: Res<Io>, n: u32) -> Result<String, forever::BoxError> {
    let (a, b) = steps!(step!("a", catch, io.fails("a").await?), step!("b", catch, io.get("b", n).await));
    let all = steps!(for n in 0..n, limit = 1, catch, { if n == 1 { io.fails("one").await? } else { io.did("other", n).await? } });
    let all: Vec<String> = all.into_iter().map(|one| one.map_or_else(|e| e.to_string(), |n| n.to_string())).collect();
    step!("end", io.log("end"));
    Ok(format!("{} {} {all:?}", a.unwrap_err(), b?))
}

#[test]
fn a_caught_branch_does_not_end_the_others() {
    let (outcome, log, _) = everywhere(|| boxed_error(3));
    assert_eq!(outcome, r#"Completed("a failed 3 [\"0\", \"one failed\", \"2\"]")"#);
    assert_eq!(log, ["a", "b", "other", "one", "other", "end"]);
}

#[fiber]
async fn panicking(io: Res<Io>) -> anyhow::Result<u32> {
    Ok(step!("panics", catch, { if io.taken().is_empty() { panic!("out of range") } else { 1 } })?)
}

#[test]
fn a_panic_is_not_caught() {
    assert_eq!(everywhere(panicking).0, "Failed(\"panicked: out of range\")");
}

#[fiber]
async fn changed_by_half(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let mut total = n;
    // The body runs once and is not skipped, so what it has changed by then stays.
    let caught = step!("half", catch, {
        total += 1;
        io.fails("half").await?;
        total += 10;
    });
    step!("end", io.did("end", ()).await?);
    Ok(total + u32::from(caught.is_err()) * 100)
}

#[test]
fn what_a_caught_body_has_changed_stays_changed() {
    assert_eq!(everywhere(|| changed_by_half(5)).0, "Completed(106)");
}
