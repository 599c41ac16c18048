//! The history of a fiber.
use forever::prelude::*;
use forever::{Builder, fiber::History};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "before filing"), (2, "file last")];

pub(crate) const SETTLED: &[(u32, &str)] =
    &[(2, "SELECT count(*) > 0 FROM stream_chunks c JOIN streams s ON s.seq = c.stream WHERE s.name = 'history'")];

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
