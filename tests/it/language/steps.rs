//! Steps: their names, options, bodies and values.
use std::time::Duration;

use forever::fiber::{Backoff, Retry};
use forever::prelude::*;

use super::harness::{Io, everywhere, everywhere_after, places};

#[fiber]
async fn named(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let io = &*io;
    step!("literal", io.did("", ()).await?);
    let by_let = step!(io.did("", n).await?);
    let (_a, _b) = step!(io.did("", (1, 2)).await?);
    step!(helper(io).await?);
    step!(io.did("", ()).await.map_err(|e| e.to_string())).map_err(anyhow::Error::msg)?;
    step!({ helper(io).await? });
    step!({
        let x = 1;
        helper(io).await? + x
    });
    step!(5);
    step!((io.did("", ()).await?));
    step!(std::future::ready(n).await);
    let r#fn = step!(1);
    let _hidden = step!(2);
    let typed: u64 = step!(3);
    let mut total = step!(by_let + r#fn + _hidden);
    total += step!(helper(io).await?);
    let chained = step!(helper(io).await?) + 1;
    let text = step!(helper(io).await?.to_string());
    Ok(total + chained + typed as u32 + text.len() as u32)
}

async fn helper(io: &Io) -> anyhow::Result<u32> {
    io.did("helper", 7).await
}

#[test]
fn a_step_is_named_by_its_literal_its_let_its_callee_or_step() {
    let (outcome, _, snapshots) = everywhere(|| named(4));
    assert_eq!(outcome, "Completed(26)");
    assert_eq!(
        places(&snapshots),
        [
            "literal", "by_let", "did", "helper", "did#2", "helper#2", "step", "step#2", "did#3", "ready", "fn", "hidden", "typed",
            "total", "helper#3", "helper#4", "text"
        ]
    );
}

#[fiber]
async fn numbered(io: Res<Io>) -> anyhow::Result<u32> {
    let search = step!(io.did("a", 1).await?);
    let other = {
        let search = step!(io.did("b", 2).await?);
        search
    };
    step!("search", io.did("c", ()).await?);
    let search = search + step!(io.did("d", 3).await?);
    for did in 0..1 {
        let x = step!(io.did("e", did).await?);
        step!("did", io.did("f", x).await?);
    }
    Ok(search + other)
}

#[test]
fn a_derived_name_gives_way_to_an_explicit_one() {
    let (outcome, _, snapshots) = everywhere(numbered);
    assert_eq!(outcome, "Completed(6)");
    assert_eq!(places(&snapshots), ["search#2", "search#3", "search", "did#2", "x", "did"]);
}

#[fiber]
async fn renamed(io: Res<Io>) -> anyhow::Result<u32> {
    let a = step!("new", was = "old", io.did("a", 1).await?);
    let b = step!(was = "before", io.did("b", 2).await?);
    Ok(a + b)
}

#[test]
fn a_step_with_an_old_name_resumes_from_it() {
    use forever::testing::{Outcome, Stage, StartFrom};
    let (outcome, _, snapshots) = everywhere(renamed);
    assert_eq!((outcome.as_str(), &*places(&snapshots)), ("Completed(3)", &["new".to_owned(), "b".to_owned()][..]));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let io = Io::default();
    let old = snapshots[0].replace(r#""at":"new""#, r#""at":"old""#);
    assert_ne!(old, snapshots[0]);
    let resumed = runtime.block_on(Stage::new().resource(io.clone()).run::<renamed>(StartFrom::Snapshot(old), None));
    assert_eq!(resumed.outcome, Outcome::Completed(3));
    assert_eq!(io.taken(), ["b"]);
}

#[fiber]
async fn retried(io: Res<Io>, fail: u32) -> anyhow::Result<u32> {
    let times = 3;
    let a = step!("a", retry = Retry::times(times).backoff(Backoff::none()), |op| {
        if op.attempt() <= fail {
            io.fails(&format!("attempt {}", op.attempt())).await?;
        }
        io.did("done", op.attempt()).await?
    });
    let b = step!(retry = Retry::times(1).backoff(Backoff::none()).when(|e: &anyhow::Error| e.to_string() != "fatal failed"), {
        if fail == 9 { io.fails("fatal").await? } else { 1 }
    });
    step!("end", io.did("end", ()).await?);
    Ok(a * 10 + b)
}

#[test]
fn a_step_is_tried_again_as_often_as_it_says() {
    let (outcome, log, _) = everywhere_after(|| retried(0));
    assert_eq!((outcome.as_str(), log), ("Completed(11)", vec!["done".to_owned(), "end".into()]));
    let (outcome, log, _) = everywhere_after(|| retried(2));
    assert_eq!(outcome, "Completed(31)");
    assert_eq!(log, ["attempt 1", "attempt 2", "done", "end"]);
    let (outcome, log, snapshots) = everywhere_after(|| retried(5));
    assert_eq!(outcome, "Failed(\"attempt 4 failed\")");
    assert_eq!((log.len(), snapshots.len()), (4, 0));
}

#[fiber]
async fn fatal(io: Res<Io>) -> anyhow::Result<u32> {
    let first = step!(io.did("first", 1).await?);
    let b = step!(
        retry = Retry::times(5).backoff(Backoff::none()).when(|e: &anyhow::Error| e.to_string() != "fatal failed"),
        io.fails("fatal").await?
    );
    Ok(b + first)
}

#[test]
fn an_error_that_is_not_to_be_retried_leaves_at_once() {
    let (outcome, log, _) = everywhere(fatal);
    assert_eq!((outcome.as_str(), log), ("Failed(\"fatal failed\")", vec!["first".to_owned(), "fatal".into()]));
}

#[fiber]
async fn timed(io: Res<Io>, wait: u64) -> anyhow::Result<u32> {
    let limit = Duration::from_millis(20);
    let a = step!("a", timeout = limit, {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        io.did("a", 1).await?
    });
    let b = step!(timeout = Duration::from_secs(30), retry = Retry::times(1), |op| io.did("b", a + op.attempt()).await?);
    Ok(b)
}

#[test]
fn a_step_that_takes_too_long_fails() {
    assert_eq!(everywhere(|| timed(0)).0, "Completed(2)");
    let (outcome, log, _) = everywhere(|| timed(60_000));
    assert!(outcome.starts_with("Failed(") && outcome.contains('a'), "{outcome}");
    assert_eq!(log, Vec::<String>::new());
}

#[fiber]
async fn with_op(io: Res<Io>, n: u32) -> anyhow::Result<(bool, u32)> {
    let mut ids = Vec::new();
    for i in 0..n {
        let id = step!("id", |op| {
            let is_hex = op.id().chars().all(|c| c.is_ascii_hexdigit());
            io.did(format!("id {i}"), (op.id().len(), is_hex, op.attempt())).await?
        });
        ids.push(id);
    }
    let sum = step!("stash", |op| {
        let before: Option<u32> = op.stashed()?;
        op.stash(&(before.unwrap_or(0) + 5)).await?;
        let after: u32 = op.stashed()?.unwrap_or_default();
        io.did("stash", after).await?
    });
    let with_pattern = step!("ignored", |_op| sum);
    let whole = ids.iter().all(|id| *id == (32, true, 1));
    Ok((whole, with_pattern))
}

#[test]
fn a_steps_body_sees_its_op() {
    assert_eq!(everywhere_after(|| with_op(3)).0, "Completed((true, 5))");
}

struct NotSavable(#[allow(dead_code)] std::sync::mpsc::Sender<()>);

fn unsavable() -> NotSavable {
    NotSavable(std::sync::mpsc::channel().0)
}

#[fiber]
async fn unused_values(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    step!("a", {
        io.did("a", ()).await?;
        unsavable()
    });
    let _ = step!("b", {
        io.did("b", ()).await?;
        unsavable()
    });
    let _unused = step!("c", {
        io.did("c", ()).await?;
        std::time::Instant::now()
    });
    for _ in 0..n {
        step!("d", {
            io.did("d", ()).await?;
            std::rc::Rc::new(1)
        });
    }
    match n {
        1 => {
            step!("e", {
                io.did("e", ()).await?;
                unsavable()
            });
        }
        _ => drop(step!("f", {
            io.did("f", ()).await?;
            5
        })),
    }
    Ok(n)
}

#[test]
fn a_value_that_is_not_used_need_not_be_savable() {
    let (outcome, _, snapshots) = everywhere(|| unused_values(1));
    assert_eq!(outcome, "Completed(1)");
    assert_eq!(snapshots[2], r#"{"at":"c","locals":{"n":1},"call":null}"#);
}

#[fiber]
async fn bodies(io: Res<Io>, list: Vec<u32>) -> anyhow::Result<u32> {
    let total = step!({
        let mut total = 0;
        'sum: for x in &list {
            if *x == 0 {
                continue;
            }
            for y in 0..*x {
                if y > 2 {
                    continue 'sum;
                }
                if total > 100 {
                    break 'sum;
                }
                total += y;
            }
        }
        io.did("total", total).await?
    });
    let picked = step!(if total > 3 { io.did("big", 1).await? } else { io.did("small", 2).await? });
    let matched = step!(match list.first() {
        Some(x) if *x > 1 => io.did("more", *x).await?,
        Some(_) | None => 0,
    });
    let looped = step!(loop {
        break io.did("loop", 9).await?;
    });
    let closed = step!((|| {
        let f = || 4;
        return f();
    })());
    let blocked = step!(
        "async",
        async {
            if total == 0 {
                return Ok::<u32, anyhow::Error>(0);
            }
            Ok(1)
        }
        .await?
    );
    let unsafe_free = step!({
        struct Inner(u32);
        impl Inner {
            fn get(self) -> u32 {
                return self.0;
            }
        }
        Inner(2).get()
    });
    Ok(total * 100_000 + picked * 10_000 + matched * 1000 + looped * 100 + closed * 10 + blocked + unsafe_free)
}

#[test]
fn a_steps_body_is_any_expression_also_with_jumps_that_stay_inside() {
    assert_eq!(everywhere(|| bodies(vec![0, 3, 2, 5])).0, format!("Completed({})", 7 * 100_000 + 10_000 + 900 + 40 + 3));
}

#[fiber]
async fn trailing(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let a = step!("a", io.did("a", n).await?,);
    let b = step!(io.did("b", n).await?,);
    let c = step! { io.did("c", n).await? };
    let d = step!["d", io.did("d", n).await?];
    Ok(a + b + c + d)
}

#[test]
fn trailing_commas_and_other_brackets_are_fine() {
    let (outcome, _, snapshots) = everywhere(|| trailing(1));
    assert_eq!((outcome.as_str(), &*places(&snapshots)), ("Completed(4)", &["a", "b", "c", "d"].map(String::from)[..]));
}

#[fiber]
async fn changes_from_inside(io: Res<Io>, n: u32) -> anyhow::Result<Vec<u32>> {
    let mut list = vec![n];
    let mut count = 0;
    step!("push", {
        list.push(io.did("push", 2).await?);
        count += 1;
    });
    for x in list.clone() {
        step!("again", {
            list.push(io.did("again", x).await?);
            count += x;
        });
    }
    list.push(count);
    Ok(list)
}

#[test]
fn a_steps_body_may_change_locals() {
    assert_eq!(everywhere(|| changes_from_inside(1)).0, "Completed([1, 2, 1, 2, 4])");
}

/// A policy with a condition is code, and one without could be saved: both are made again.
#[fiber]
async fn shared_policies(io: Res<Io>, times: u32, fail: u32) -> anyhow::Result<u32> {
    let backoff = Backoff::fixed(Duration::ZERO);
    let retry = Retry::times(times).backoff(backoff);
    let once = Retry::times(2 - 1).backoff(backoff).when(|e: &anyhow::Error| e.to_string() == "known failed");
    let mut made = 0;
    for round in 0..2 {
        made += step!("a", retry = retry, |op| {
            if op.attempt() <= fail { io.fails("some").await? } else { io.did(format!("a {round}"), op.attempt()).await? }
        });
        made += step!("b", retry = once, |op| {
            if op.attempt() == 1 { io.fails("known").await? } else { io.did(format!("b {round}"), op.attempt()).await? }
        });
        let times = times + 100;
        step!(io.did("hides", times).await?);
    }
    step!("c", retry = once, if fail == 2 { io.fails("unknown").await? } else { 1 });
    Ok(made)
}

#[test]
fn a_retry_policy_is_shared_by_several_steps() {
    let round = |n: u32| ["some".to_owned(), format!("a {n}"), "known".into(), format!("b {n}"), "hides".into()];
    let (outcome, log, snapshots) = everywhere(|| shared_policies(1, 1));
    assert_eq!((outcome.as_str(), log), ("Completed(8)", [round(0), round(1)].concat()));
    // What it is made from is kept as long as it is needed.
    assert!(snapshots[0].contains("\"times\":1"), "{}", snapshots[0]);
    assert!(!snapshots[0].contains("retry"), "{}", snapshots[0]);
    let (outcome, ..) = everywhere(|| shared_policies(1, 2));
    assert_eq!(outcome, "Failed(\"some failed\")", "no more attempts than it says");
    let (outcome, log, _) = everywhere(|| shared_policies(2, 2));
    assert_eq!((outcome.as_str(), log.last().unwrap().as_str()), ("Failed(\"unknown failed\")", "unknown"));
}
