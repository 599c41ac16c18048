//! The newest items of a history in the snapshot row.
use forever::prelude::*;
use forever::{Builder, Forever};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "open few"), (1, "open many"), (2, "seal few"), (2, "seal many")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT count(*) > 0 FROM snapshots s JOIN fibers f ON f.seq = s.fiber WHERE f.name = 'seals' AND s.history IS NOT NULL"),
    (2, "SELECT count(*) > 0 FROM streams s JOIN fibers f ON f.seq = s.fiber WHERE f.name = 'seals' AND s.name = 'history'"),
];

#[fiber]
pub(crate) async fn seals(letters: usize, which: String, desk: Res<Desk>) -> anyhow::Result<usize> {
    let mut sealed = step!("open", desk.work(&format!("open {which}")).await?);
    for n in 0..letters {
        sealed += step!("seal", n);
    }
    Ok(sealed + step!("last", desk.work(&format!("seal {which}")).await?))
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<seals>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(seals(10, "few".into())).id("few seals").await?;
    forever.spawn(seals(40, "many".into())).id("many seals").await?;
    Ok(())
}
