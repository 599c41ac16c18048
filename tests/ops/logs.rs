//! What an operation keeps between its runs: a log and a stash.
use forever::fiber::FiberErrorKind;
use forever::prelude::*;

use crate::support::{Bank, Place, Plan, soon};

const ID: &str = "answer-1";

/// A stream of four chunks, each of them an answer of the bank.
#[fiber]
async fn stream(bank: Res<Bank>) -> anyhow::Result<String> {
    let answer = step!("answer", |op| {
        let log = op.log::<String>();
        let mut chunks = log.items().await?;
        while chunks.len() < 4 {
            bank.charge(&format!("chunk {}", chunks.len()), 0).await?;
            let chunk = chunks.len().to_string();
            log.push(&chunk).await?;
            chunks.push(chunk);
        }
        log.extend(["!".to_owned(), "?".to_owned()]).await?;
        log.items().await?.concat()
    });
    step!(bank.charge("end", 0).await?);
    Ok(answer)
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_behind_its_last_stored_chunk() {
    let (place, bank) = (Place::new(), Bank::default());
    let open = || async { place.builder(&bank).fiber::<stream>().open().await.unwrap() };
    bank.plan([Plan::Answers, Plan::Answers, Plan::Silent]);
    let forever = open().await;
    forever.spawn(stream()).id(ID).await.unwrap();
    soon(bank.called(3)).await;
    assert_eq!(place.number("SELECT coalesce(sum(count), 0) FROM stream_log WHERE name LIKE 'op/%'"), 2);
    drop(forever);

    // The step fails, its fiber with it, and still nothing of the stream is lost.
    bank.plan([Plan::Answers, Plan::Down]);
    let forever = open().await;
    assert_eq!(soon(forever.fiber::<stream>(ID).wait()).await.unwrap_err().reason(), "no route to the bank");
    assert_eq!(place.number("SELECT coalesce(sum(count), 0) FROM stream_log WHERE name LIKE 'op/%'"), 3);
    forever.close().await.unwrap();

    let forever = open().await;
    forever.resume(ID).await.unwrap();
    assert_eq!(soon(forever.fiber::<stream>(ID).wait()).await.unwrap(), "0123!?");
    let asked: Vec<String> = bank.charges().into_iter().map(|(id, _)| id).collect();
    assert_eq!(asked, ["chunk 0", "chunk 1", "chunk 2", "chunk 3", "end"]);
    assert_eq!(bank.calls(), 7, "the third chunk was asked for twice and the fourth, one of them each time without an answer");
    assert_eq!(
        place.number("SELECT (SELECT coalesce(sum(count), 0) FROM stream_log WHERE name LIKE 'op/%') + (SELECT count(*) FROM ops)"),
        0,
        "it goes with its step"
    );
}

#[fiber]
async fn kept(bank: Res<Bank>, bytes: usize) -> anyhow::Result<usize> {
    Ok(step!("work", effect, on_unknown = OnUnknown::Retry, |op| {
        if let Some(text) = op.stashed::<String>()? {
            text.len()
        } else {
            op.stash("small").await?;
            op.stash(&"x".repeat(bytes)).await?;
            bank.charge("work", 0).await?;
            0
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn a_stash_of_16_mib_is_kept_and_a_larger_one_is_an_error_that_keeps_the_one_before() {
    const LIMIT: usize = 16 << 20;
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let forever = place.builder(&bank).fiber::<kept>().open().await.unwrap();
    // Two for the quotes.
    forever.spawn(kept(LIMIT - 2)).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    drop(forever);
    let forever = place.builder(&bank).fiber::<kept>().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<kept>(ID).wait()).await.unwrap(), LIMIT - 2);
    assert_eq!(place.number("SELECT count(*) FROM ops WHERE stash IS NOT NULL"), 0, "it goes with the end of its operation");

    let handle = forever.spawn(kept(LIMIT - 1)).id("too long").await.unwrap();
    let error = soon(handle.wait()).await.unwrap_err();
    assert_eq!(error.reason(), "stash of step `work` takes 16777217 bytes, more than the 16777216 that are allowed");
    assert_eq!(bank.calls(), 1);
}

#[fiber]
async fn wrong(which: u32) -> anyhow::Result<()> {
    step!("work", |op| {
        let log = op.log::<String>();
        log.push("x".repeat(if which == 0 { 16 << 20 } else { 1 })).await?;
        op.log::<u32>().items().await?;
    });
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_too_long_or_read_as_another_type_is_an_error_that_says_so() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).fiber::<wrong>().open().await.unwrap();
    let error = soon(forever.run(wrong(0))).await.unwrap_err();
    assert_eq!(error.reason(), "item of the log of step `work` takes 16777218 bytes, more than the 16777216 that are allowed");
    let error = soon(forever.run(wrong(1))).await.unwrap_err();
    assert!(error.reason().starts_with("item 0 of the log of step `work` cannot be read as `u32`: "), "{error}");
    assert_eq!(error.kind(), FiberErrorKind::Failed);
}
