//! Fibers that wait, messages, children, steps side by side, cancelled fibers, closures, lists and long locals beside the snapshot, agents
//! and schedules.
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, Due, RecoveredFiber, RecoveryAction};
use forever::fiber::Log;
use forever::prelude::*;
use forever::{BoxError, Builder, Clock};
use serde::{Deserialize, Serialize};

use crate::desk::{Desk, LAST, Standing};

pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

pub(crate) const HOLDS: &[(u32, &str)] = &[
    (1, "inbox: read one"),
    (2, "inbox: read one"),
    (1, "child 1"),
    (2, "child 1"),
    (1, "side b"),
    (1, "side d"),
    (2, "side d"),
    (1, "page 1"),
    (1, "page 2"),
    (2, "page 2"),
    (2, "page 4"),
    (1, "line 3"),
    (2, "line 6"),
    (1, "told"),
    (2, "told"),
    (1, "held back"),
    (1, "closure"),
    (1, "closure of an agent"),
    (1, "owned"),
    (2, "owned"),
];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (1, "SELECT count(*) = 3 FROM messages JOIN fibers ON fiber = fibers.seq WHERE id = 'inbox'"),
    (1, "SELECT count(*) = 2 FROM joins JOIN fibers ON fiber = seq WHERE id = 'parent'"),
    (1, "SELECT count(*) = 2 FROM branch_results JOIN fibers ON fiber = seq WHERE id = 'side'"),
    (2, "SELECT count(*) = 3 FROM branch_results JOIN fibers ON fiber = seq WHERE id = 'side'"),
    (2, "SELECT count(*) = 3 FROM branch_results JOIN fibers ON fiber = seq WHERE id = 'pages'"),
    (2, "SELECT sum(count) = 5 FROM stream_log WHERE name LIKE 'log/%' AND fiber NOT IN (SELECT seq FROM fibers WHERE name = 'weighs')"),
    (2, "SELECT count(*) = 2 FROM parts"),
    (2, "SELECT state = 'waiting' AND due_ms IS NOT NULL FROM fibers JOIN waits ON fiber = seq WHERE id = 'sleeper'"),
    (2, "SELECT state = 'waiting' AND due_ms IS NULL FROM fibers JOIN waits ON fiber = seq WHERE id = 'patient'"),
    (2, "SELECT state = 'waiting' AND due_ms IS NOT NULL FROM fibers JOIN waits ON fiber = seq WHERE id = 'impatient'"),
    (2, "SELECT state = 'cancelled' FROM fibers WHERE id = 'cancelled'"),
    (2, "SELECT state = 'running' AND cancel IS NOT NULL FROM fibers WHERE id = 'told'"),
    (2, "SELECT state = 'failed' AND data IS NOT NULL FROM fibers JOIN messages ON fiber = fibers.seq WHERE id = 'choosy'"),
    (2, "SELECT state = 'interrupted' FROM fibers WHERE id = 'closure'"),
    (2, "SELECT state = 'interrupted' FROM fibers WHERE id = 'closure of ada'"),
    (2, "SELECT count(*) = 4 FROM schedules WHERE error IS NULL"),
    (2, "SELECT attempts >= 1 AND error IS NOT NULL FROM schedules WHERE name = 'shaky'"),
    (1, "SELECT heartbeat_ms IS NOT NULL FROM agents WHERE name = 'busy'"),
    (2, "SELECT heartbeat_ms IS NOT NULL FROM agents WHERE name = 'busy'"),
];

#[fiber]
pub(crate) async fn sleeper(desk: Res<Desk>) -> anyhow::Result<usize> {
    let before = step!(desk.work("before sleep").await?);
    sleep!(HOUR);
    Ok(before + step!(desk.work("slept").await?))
}

/// Has received one message of four, and does not know of two others that were sent.
#[fiber]
pub(crate) async fn inbox(desk: Res<Desk>) -> anyhow::Result<Vec<String>> {
    let mut read: Vec<String> = Vec::new();
    for n in 0..4 {
        let mail: String = recv!("mail");
        read.push(mail);
        if n == 0 {
            step!(desk.work("inbox: read one").await?);
        }
    }
    let note: Option<u32> = recv!("note", timeout = HOUR);
    read.push(format!("{note:?}"));
    Ok(read)
}

#[fiber]
pub(crate) async fn waits(patient: bool) -> anyhow::Result<Option<String>> {
    if patient { Ok(Some(recv!("word"))) } else { Ok(recv!("word", timeout = 2 * HOUR)) }
}

/// Fails between two messages; the second one is there already.
#[fiber]
pub(crate) async fn choosy(desk: Res<Desk>) -> anyhow::Result<u32> {
    let first: u32 = recv!("number");
    let _both_are_sent: bool = recv!("go");
    step!(if desk.life() < LAST { anyhow::bail!("no more") } else { desk.work("choosy: second").await? });
    let second: u32 = recv!("number");
    Ok(first * 10 + second)
}

#[fiber]
pub(crate) async fn parent(desk: Res<Desk>) -> anyhow::Result<Vec<u32>> {
    let mut children = Vec::new();
    for n in 0..3 {
        children.push(spawn!(child(n)));
    }
    step!(desk.work("spawned").await?);
    let first = wait!(&children[0])?;
    let mut all = vec![first];
    for answer in wait_all!(children) {
        all.push(answer?);
    }
    Ok(all)
}

/// One ends at once, one is held, one sleeps.
#[fiber]
pub(crate) async fn child(desk: Res<Desk>, n: u32) -> anyhow::Result<u32> {
    if n == 2 {
        sleep!(HOUR);
    }
    step!(desk.work(&format!("child {n}")).await?);
    Ok(n + 100)
}

#[fiber]
pub(crate) async fn side(desk: Res<Desk>, base: usize) -> anyhow::Result<usize> {
    let (a, b, c, d) =
        steps!(desk.work("side a").await?, desk.work("side b").await?, base + desk.work("side c").await?, desk.work("side d").await?);
    Ok(a + b + c + d)
}

#[fiber]
pub(crate) async fn pages(desk: Res<Desk>, count: u32) -> anyhow::Result<Vec<usize>> {
    let found = steps!(for n in 0..count, limit = 2, desk.work(&format!("page {n}")).await? + n as usize);
    Ok(found)
}

#[fiber]
pub(crate) async fn lines(desk: Res<Desk>, long: String) -> anyhow::Result<String> {
    let mut log = Log::new();
    let mut notes = Vec::new();
    for n in 0..8 {
        let length = step!(desk.work(&format!("line {n}")).await?);
        notes.push(format!("{n}").repeat(100));
        log.push((n, length, long.len()));
    }
    Ok(format!("{} {} {:?}", long.len(), notes.concat().len(), &log[..]))
}

#[fiber]
pub(crate) async fn told(desk: Res<Desk>, name: String) -> anyhow::Result<()> {
    step!(desk.work(&name).await?);
    Ok(())
}

pub(crate) struct Clerk {
    pub(crate) me: AgentHandle<Clerk>,
    pub(crate) desk: Desk,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Papers {
    pub(crate) pile: Vec<String>,
    pub(crate) top: Option<u64>,
}

impl Agent for Clerk {
    const CLASS: &'static str = "clerk";
    type State = Papers;

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        let payload: serde_json::Value = due.payload()?;
        if due.name() == "shaky" && self.desk.life() < LAST {
            return Err("the drawer is stuck".into());
        }
        let payload = payload.as_str().map_or_else(|| payload.to_string(), str::to_owned);
        self.desk.work(&format!("{}: {} {payload}", self.me.name(), due.name())).await?;
        Ok(())
    }

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        if !fiber.is_closure() {
            return Ok(RecoveryAction::Resume);
        }
        match fiber.snapshot::<Vec<u32>>()? {
            Some(stash) if self.desk.life() == LAST => Ok(RecoveryAction::complete(&(stash, fiber.reason().to_owned()))?),
            _ => Ok(RecoveryAction::Skip),
        }
    }
}

#[fiber]
pub(crate) async fn owned(desk: Res<Desk>) -> anyhow::Result<usize> {
    step!(desk.work("owned: first").await?);
    Ok(step!(desk.work("owned").await?))
}

pub(crate) fn registered(builder: Builder, desk: &Desk) -> Builder {
    let desk = desk.clone();
    let builder = builder.agent(move |me| Clerk { me, desk: desk.clone() }).fiber::<owned>();
    let builder = builder.fiber::<sleeper>().fiber::<inbox>().fiber::<waits>().fiber::<choosy>().fiber::<parent>().fiber::<child>();
    builder.fiber::<side>().fiber::<pages>().fiber::<lines>().fiber::<told>()
}

pub(crate) async fn start(forever: &Forever, desk: &Desk) -> anyhow::Result<()> {
    forever.spawn(sleeper()).id("sleeper").await?;
    forever.spawn(inbox()).id("inbox").await?;
    for mail in ["one", "two", "three"] {
        forever.send("inbox", "mail", mail).await?;
    }
    forever.send("inbox", "note", &4).await?;
    forever.spawn(waits(true)).id("patient").await?;
    forever.spawn(waits(false)).id("impatient").await?;
    forever.spawn(choosy()).id("choosy").await?;
    forever.send("choosy", "number", &1).await?;
    forever.send("choosy", "number", &2).await?;
    forever.send("choosy", "go", &true).await?;
    forever.spawn(parent()).id("parent").await?;
    forever.spawn(side(1000)).id("side").await?;
    forever.spawn(pages(6)).id("pages").await?;
    forever.spawn(lines("long ".repeat(200))).id("lines").await?;
    forever.spawn(told("told".to_owned())).id("told").await?;
    forever.spawn(told("held back".to_owned())).id("cancelled").key("cancelled too").await?;

    let (first, second) = (desk.clone(), desk.clone());
    let closure = forever.spawn_closure("import", move |fiber: FiberContext| async move {
        fiber.stash(&vec![1, 2, 3]).await?;
        first.work("closure").await
    });
    closure.id("closure").metadata("by hand").start::<_, anyhow::Error, _>().await?;
    let ada = forever.agent::<Clerk>("ada");
    let closure = ada.spawn_closure("import", move |fiber: FiberContext| async move {
        fiber.stash(&vec![4, 5]).await?;
        second.work("closure of an agent").await
    });
    closure.id("closure of ada").start::<_, anyhow::Error, _>().await?;
    ada.spawn(owned()).id("owned").await?;
    ada.set_state(&Papers { pile: vec!["a".to_owned(), "\u{e9}".to_owned()], top: Some(u64::MAX) }).await?;
    let now = Standing::default().now();
    ada.schedule(HOUR, "once", "after an hour").await?;
    ada.schedule(now + 3 * HOUR, "once", "at three").await?;
    ada.schedule("0 0 * * *", "cron", "midnight").await?;
    ada.schedule_every(HOUR, "often", serde_json::json!({ "n": 1 })).await?;
    ada.schedule(now, "shaky", "at last").await?;
    Ok(())
}

/// What is done once everything is held that is to be.
pub(crate) async fn then(forever: &Forever, life: u32) -> anyhow::Result<()> {
    match life {
        1 => forever.cancel("cancelled", "not needed").await?,
        _ => forever.cancel("told", "enough").await?,
    }
    // Kept until the process is gone.
    std::mem::forget(forever.agent::<Clerk>("busy").keep_alive().await?);
    Ok(())
}
