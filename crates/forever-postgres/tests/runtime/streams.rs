//! Output streams of fibers that another worker runs, and of one that is taken over.
use std::time::Duration;

use forever::prelude::*;
use forever::{Error, Forever};
use forever_testkit::waiting::{eventually, soon};

use crate::{Steps, cluster, store};

#[fiber]
async fn sends(ctx: &FiberContext, steps: Res<Steps>, until: u64) -> Result<u64, Error> {
    let sent = ctx.stream::<u64>("sent");
    for n in 0..until {
        step!("send", {
            sent.send(&n)?;
            ctx.set_progress(&n)?;
            steps.did(&format!("{n}")).await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        });
    }
    sent.send(&until)?;
    Ok(until)
}

async fn open(url: &str, schema: &str, steps: &Steps, runs: bool) -> Forever {
    let builder = Forever::builder().store(store(url, schema, Duration::from_secs(3600)).await).resource(steps.clone());
    if runs { builder.fiber::<sends>() } else { builder }.open().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_are_read_in_another_worker_and_each_once_when_the_fiber_is_taken_over() {
    const ITEMS: u64 = 100;
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let reader = open(&url, &schema, &steps, false).await;
    let first = open(&url, &schema, &steps, true).await;
    first.spawn(sends(ITEMS)).id("s").await.unwrap();
    let mut items = reader.stream::<u64>("s", "sent", 0);
    let mut next = async || soon("an item comes", items.next()).await.unwrap();
    for n in 0..20 {
        let item = next().await.unwrap();
        assert_eq!((item.number, item.value), (n, n));
    }
    eventually("its progress is stored", async || {
        let status = reader.find_fiber::<u64>("s").await.unwrap().status().await.unwrap();
        status.progress.and_then(|progress| progress.as_u64()).is_some_and(|n| n >= 19)
    })
    .await;
    // As if its process had died.
    drop(first);
    let second = open(&url, &schema, &steps, true).await;
    for n in 20..=ITEMS {
        let item = next().await.unwrap();
        assert_eq!((item.number, item.value), (n, n));
    }
    assert_eq!(next().await, None);
    second.close().await.unwrap();
    reader.close().await.unwrap();
}
