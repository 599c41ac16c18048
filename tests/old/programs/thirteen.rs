//! What a database of version 13 can hold besides: the places of fibers that wait, three at one and two at another.
use forever::prelude::*;
use forever::{Builder, Forever};

pub(crate) const HOLDS: &[(u32, &str)] = &[];

pub(crate) const SETTLED: &[(u32, &str)] = &[(
    1,
    "SELECT group_concat(fibers) = '2,3' FROM (SELECT count(*) AS fibers FROM waits JOIN fibers ON fiber = seq
     WHERE name = 'counter_clerk' AND state = 'waiting' AND place IS NOT NULL GROUP BY place ORDER BY 1)",
)];

pub(crate) const LEFT: &[&str] = &[];

#[fiber]
pub(crate) async fn counter_clerk(speaks: bool) -> anyhow::Result<String> {
    let word: String = if speaks { recv!("word") } else { recv!("sign") };
    Ok(word)
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<counter_clerk>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    for n in 0..5 {
        forever.spawn(counter_clerk(n < 3)).id(format!("counter clerk {n}")).await?;
    }
    Ok(())
}
