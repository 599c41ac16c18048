//! The digest of a message that was sent with an id.
use forever::prelude::*;
use forever::{Builder, Forever};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "sign"), (2, "sign")];

pub(crate) const SETTLED: &[(u32, &str)] =
    &[(2, "SELECT count(*) = 1 AND min(length(digest)) = 32 FROM message_ids WHERE id = 'letter 7'")];

#[fiber]
pub(crate) async fn signs(desk: Res<Desk>) -> anyhow::Result<String> {
    let name: String = recv!("name");
    step!("sign", desk.work("sign").await?);
    Ok(format!("signed {name}"))
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<signs>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(signs()).id("notary").await?;
    forever.send("notary", "name", "ada").message_id("letter 7").await?;
    Ok(())
}
