//! Topics that are closed, messages that a fiber had not received when it ended, and the places of fibers that wait, three at one and two
//! at another.
use forever::prelude::*;
use forever::{Builder, Forever};

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "empty the box"), (2, "empty the box")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT count(*) = 1 FROM closed_topics JOIN fibers ON fiber = seq WHERE id = 'letterbox' AND topic = 'letter'"),
    (2, "SELECT count(*) = 1 FROM messages JOIN fibers f ON fiber = f.seq WHERE id = 'lodger' AND state = 'completed'"),
    (
        1,
        "SELECT group_concat(fibers) = '2,3' FROM (SELECT count(*) AS fibers FROM waits JOIN fibers ON fiber = seq
     WHERE name = 'counter_clerk' AND state = 'waiting' AND place IS NOT NULL GROUP BY place ORDER BY 1)",
    ),
];

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

#[fiber]
pub(crate) async fn counter_clerk(speaks: bool) -> anyhow::Result<String> {
    let word: String = if speaks { recv!("word") } else { recv!("sign") };
    Ok(word)
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<empties>().fiber::<leaves>().fiber::<counter_clerk>()
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
    for n in 0..5 {
        forever.spawn(counter_clerk(n < 3)).id(format!("counter clerk {n}")).await?;
    }
    Ok(())
}
