//! Output streams come through the end of the process at every write: each item is there once.
use forever::prelude::*;
use forever::testing::World;

use crate::kinds::{comes_through, noted};

#[fiber]
async fn searches(ctx: &FiberContext, world: Res<World>, pages: u64) -> anyhow::Result<u64> {
    // Kept at each cut point, as a name.
    let (found, log) = (ctx.stream::<u64>("found"), ctx.stream::<String>("log"));
    let mut total = 0;
    for page in 1..=pages {
        total += step!("page", {
            let words = noted(&world, "page", page);
            found.send(&page)?;
            log.send(&format!("page {page}"))?;
            words
        });
        // Between two steps, and so with the next one.
        log.send(&format!("{page} of {pages}"))?;
        ctx.set_progress(&page)?;
    }
    let (first, second) = steps!(
        {
            found.send(&100)?;
            tokio::task::yield_now().await;
            noted(&world, "left", 1)
        },
        noted(&world, "right", 2),
    );
    sleep!(std::time::Duration::from_secs(60));
    let paid = step!("pay", effect, on_unknown = OnUnknown::Retry, |_op| {
        found.send(&200)?;
        noted(&world, "pay", 4)
    });
    let last = step!("last", retry = Retry::times(1).backoff(Backoff::none()), |op| {
        found.send(&300)?;
        anyhow::ensure!(op.attempt() > 1, "the first attempt fails");
        noted(&world, "last", 8)
    });
    log.send(&"the end".to_owned())?;
    Ok(total + first + second + paid + last)
}

#[tokio::test]
async fn each_item_of_a_stream_is_there_once() {
    let setup = |w: &World| Forever::builder().clock(w.clock()).resource(w.clone()).fiber::<searches>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(searches(3)).id("s").await.unwrap();
        handle.wait().await.unwrap();
        let (mut found, mut log) = (forever.stream::<u64>("s", "found", 0), forever.stream::<String>("s", "log", 0));
        let (mut pages, mut lines) = (Vec::new(), Vec::new());
        while let Some(item) = found.next().await.unwrap() {
            assert_eq!(item.number, pages.len() as u64);
            pages.push(item.value);
        }
        while let Some(item) = log.next().await.unwrap() {
            lines.push(item.value);
        }
        let progress = handle.status().await.unwrap().progress.unwrap();
        (pages, lines, progress)
    })
    .await;
    let (pages, lines, progress) = survived.outcome;
    assert_eq!(pages, [1, 2, 3, 100, 200, 300]);
    assert_eq!(lines, ["page 1", "1 of 3", "page 2", "2 of 3", "page 3", "3 of 3", "the end"]);
    assert_eq!(progress, 3);
}
