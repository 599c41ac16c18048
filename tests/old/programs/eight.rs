//! What a database of version 8 can hold besides: the history of a fiber, in both tables of streams.
use forever::prelude::*;
use forever::{Builder, fiber::History};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "before filing"), (2, "file last")];

pub(crate) const SETTLED: &[(u32, &str)] =
    &[(2, "SELECT count(*) > 0 FROM stream_chunks c JOIN streams s ON s.seq = c.stream WHERE s.name = 'history'")];

/// What has to be so in a database of version 8 alone: later ones have the newest items elsewhere.
pub(crate) const SETTLED_BESIDE: &[(u32, &str)] = &[
    (2, "SELECT sum(count) = 41 FROM stream_log l JOIN fibers f ON f.seq = l.fiber WHERE f.id = 'clerk' AND l.name = 'history'"),
    (2, "SELECT count(*) > 0 FROM stream_tail_left t JOIN streams s ON s.seq = t.stream WHERE s.name = 'history'"),
];

pub(crate) const LEFT: &[&str] = &["file last"];

#[fiber]
pub(crate) async fn clerk(desk: Res<Desk>) -> anyhow::Result<usize> {
    let mut filed = step!("before", desk.work("before filing").await?);
    let mut note = String::new();
    for n in 0..20_usize {
        note = step!("note", format!("{n} {}", "n".repeat(500 + note.len() % 2)));
        filed += step!("file", note.len());
    }
    let last = step!("last", desk.work("file last").await?);
    Ok(filed + last)
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<clerk>().history(History::last(100))
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(clerk()).id("clerk").await?;
    Ok(())
}
