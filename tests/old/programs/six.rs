//! What a database of version 6 can hold besides: the layouts of functions that are being called. What branches have given is known by their
//! names since then.
use forever::Builder;
use forever::prelude::*;

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "called: second"), (2, "called: second")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT length(callees) = 32 FROM snapshots JOIN fibers ON fiber = seq WHERE id = 'caller'"),
    (2, "SELECT count(*) = 3 FROM branch_results JOIN fibers ON fiber = seq WHERE id = 'side' AND branch LIKE 'steps[%]'"),
];

pub(crate) const LEFT: &[&str] = &["called: second", "caller: end"];

#[fiber]
pub(crate) async fn called(desk: Res<Desk>) -> anyhow::Result<usize> {
    let first = step!("first", desk.work("called: first").await?);
    Ok(first + step!("second", desk.work("called: second").await?))
}

#[fiber]
pub(crate) async fn caller(desk: Res<Desk>) -> anyhow::Result<usize> {
    let sum = call!(called())?;
    Ok(sum + step!("end", desk.work("caller: end").await?))
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<caller>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(caller()).id("caller").await?;
    Ok(())
}
