//! The keys of fibers that were deleted.
use forever::prelude::*;
use forever::{Builder, fiber::FiberFilter};

pub(crate) const HOLDS: &[(u32, &str)] = &[];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (1, "SELECT count(*) = 2 FROM past_fibers WHERE name = 'past'"),
    (2, "SELECT count(*) = 0 FROM fibers WHERE name = 'past'"),
    (2, "SELECT id_given FROM fibers WHERE id = 'unknown'"),
];

/// Deleted when it has ended.
#[fiber]
pub(crate) async fn past(number: u32) -> anyhow::Result<u32> {
    Ok(number)
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<past>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(past(1)).key("past once").await?.wait().await?;
    forever.spawn(past(2)).id("past").await?.wait().await?;
    forever.delete(FiberFilter::new().name("past")).await?;
    Ok(())
}
