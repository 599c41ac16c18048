//! The newest items of histories of fibers that commit together, and a fiber that waits for a message on two topics.
use forever::prelude::*;
use forever::{Builder, Forever, fiber::History};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[
    (1, "stamp 0"),
    (1, "stamp 1"),
    (1, "stamp 2"),
    (1, "stamp 3"),
    (1, "stamp 4"),
    (1, "stamp 5"),
    (2, "stamp 0"),
    (2, "stamp 1"),
    (2, "stamp 2"),
    (2, "stamp 3"),
    (2, "stamp 4"),
    (2, "stamp 5"),
];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT count(DISTINCT stream) > 2 FROM history_tail_left"),
    (2, "SELECT count(*) = 2 FROM wait_topics JOIN fibers ON fiber = seq WHERE id = 'counter' AND state = 'waiting'"),
];

#[fiber]
pub(crate) async fn stamps(desk: Res<Desk>, n: u32) -> anyhow::Result<u32> {
    let mut letters = 0;
    for _ in 0..12 {
        letters += step!("letter", 1);
    }
    step!("stamp", desk.work(&format!("stamp {n}")).await?);
    Ok(letters)
}

#[fiber]
pub(crate) async fn receives() -> anyhow::Result<String> {
    let (topic, words): (String, String) = recv!(["letter", "telegram"]);
    Ok(format!("{topic}: {words}"))
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<stamps>().history(History::last(100)).fiber::<receives>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    for n in 0..6 {
        forever.spawn(stamps(n)).id(format!("clerk {n}")).await?;
    }
    forever.spawn(receives()).id("counter").await?;
    Ok(())
}
