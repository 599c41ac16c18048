//! What a database of version 13 can hold besides: topics that are closed, and messages that a fiber had not received when it ended.
use forever::prelude::*;
use forever::{Builder, Forever};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "empty the box"), (2, "empty the box")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT count(*) = 1 FROM closed_topics JOIN fibers ON fiber = seq WHERE id = 'letterbox' AND topic = 'letter'"),
    (2, "SELECT count(*) = 1 FROM messages JOIN fibers f ON fiber = f.seq WHERE id = 'lodger' AND state = 'completed'"),
];

pub(crate) const LEFT: &[&str] = &["empty the box"];

#[fiber]
pub(crate) async fn empties(desk: Res<Desk>) -> anyhow::Result<String> {
    let letters: Vec<String> = close!("letter");
    step!("empty", desk.work("empty the box").await?);
    Ok(letters.join(", "))
}

#[fiber]
pub(crate) async fn leaves() -> anyhow::Result<String> {
    let (first, last): (String, Option<String>) = (recv!("letter"), try_recv!("card"));
    Ok(first + &last.unwrap_or_default())
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<empties>().fiber::<leaves>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    let lodger = forever.spawn(leaves()).id("lodger").await?;
    // It waits for a letter, so it has both when it goes on.
    lodger.send("parcel", "heavy").await.unwrap_err();
    lodger.send("card", "from the sea").await?;
    lodger.send("card", "from the hills").await?;
    lodger.send("letter", "dear ada ").await?;
    assert_eq!(lodger.wait().await?, "dear ada from the sea");
    forever.spawn(empties()).id("letterbox").await?;
    Ok(())
}
