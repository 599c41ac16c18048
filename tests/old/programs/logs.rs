//! Logs, and the log of an operation, as streams with several items in a row.
use forever::prelude::*;
use forever::{Builder, Forever, fiber::Log, ops::OnUnknown};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "weigh 3"), (2, "weigh 3")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT count(*) = 3 AND sum(count) = 4 FROM stream_log WHERE name = 'log/0' AND data LIKE '%crate%'"),
    (2, "SELECT max(count) = 3 FROM stream_log WHERE name LIKE 'op/%' AND data LIKE '%kg%'"),
];

#[fiber]
pub(crate) async fn weighs(desk: Res<Desk>) -> anyhow::Result<Vec<String>> {
    let mut crates = Log::new();
    crates.extend(["crate a".to_owned(), "crate b".to_owned()]);
    for n in 0..3 {
        step!("count", ());
        crates.push(format!("crate {n}"));
    }
    let weights = step!("weigh", effect, on_unknown = OnUnknown::Retry, |op| {
        let scale = op.log::<String>();
        if scale.items().await?.is_empty() {
            scale.extend(["1 kg".to_owned(), "2 kg".to_owned(), "3 kg".to_owned()]).await?;
        }
        desk.work("weigh 3").await?;
        scale.items().await?
    });
    Ok(crates.iter().cloned().chain(weights).collect())
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<weighs>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(weighs()).id("scale").await?;
    Ok(())
}
