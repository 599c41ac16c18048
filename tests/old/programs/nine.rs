//! What a database of version 9 can hold besides: the newest items of a history in the snapshot row, alone and after those of a stream.
use forever::prelude::*;
use forever::{Builder, Forever};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(2, "seal first"), (2, "seal last")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT count(*) = 2 FROM snapshots s JOIN fibers f ON f.seq = s.fiber WHERE f.name = 'seals' AND s.history IS NOT NULL"),
    (2, "SELECT count(*) = 1 FROM streams s JOIN fibers f ON f.seq = s.fiber WHERE f.name = 'seals' AND s.name = 'history'"),
];

pub(crate) const LEFT: &[&str] = &["seal first", "seal last"];

#[fiber]
pub(crate) async fn seals(letters: usize, last: String, desk: Res<Desk>) -> anyhow::Result<usize> {
    let mut sealed = 0;
    for n in 0..letters {
        sealed += step!("seal", n);
    }
    Ok(sealed + step!("last", desk.work(&last).await?))
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<seals>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(seals(3, "seal first".into())).id("few seals").await?;
    forever.spawn(seals(30, "seal last".into())).id("many seals").await?;
    Ok(())
}
