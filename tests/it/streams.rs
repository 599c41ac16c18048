//! Output streams and the progress of fibers, as readers outside of them see them.
use std::sync::Arc;
use std::time::Duration;

use forever::fiber::{FiberState, StreamReader};
use forever::prelude::*;
use forever::{Builder, ErrorKind};
use forever_testkit::waiting::{eventually, soon};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::stands;

#[derive(Clone)]
struct Gate(Arc<Semaphore>);

impl Gate {
    fn closed() -> Self {
        Gate(Arc::new(Semaphore::new(0)))
    }

    async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

#[fiber]
async fn counts(ctx: &FiberContext, gate: Res<Gate>, until: u32) -> anyhow::Result<u32> {
    let counted = ctx.stream::<u32>("counted");
    for n in 0..until {
        step!("count", {
            counted.send(&n)?;
            ctx.set_progress(&json!({ "of": until, "counted": n }))?;
            gate.pass().await;
        });
    }
    let word: String = recv!("word");
    counted.send(&(until + word.len() as u32))?;
    Ok(until)
}

#[fiber]
async fn flushes(ctx: &FiberContext, gate: Res<Gate>) -> anyhow::Result<()> {
    step!("long", {
        let tokens = ctx.stream("tokens");
        tokens.send(&"so ")?;
        tokens.send(&"far")?;
        tokens.flush().await?;
        gate.pass().await;
        anyhow::bail!("it fails");
    });
    Ok(())
}

fn builder(gate: &Gate) -> Builder {
    Forever::builder().fiber::<counts>().fiber::<flushes>().resource(gate.clone())
}

async fn next<T: serde::de::DeserializeOwned>(reader: &mut StreamReader<T>) -> Option<(u64, T)> {
    soon("an item", reader.next()).await.unwrap().map(|item| (item.number, item.value))
}

#[tokio::test(start_paused = true)]
async fn readers_follow_a_stream_through_waits_and_a_restart_of_the_process_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let gate = Gate::closed();
    let forever = builder(&gate).sqlite(&path).open().await.unwrap();
    let handle = forever.spawn(counts(3)).id("c").await.unwrap();
    let mut reader = handle.stream::<u32>("counted", 0);
    // Nothing is stored before the step is: what it has sent could be sent again.
    assert!(tokio::time::timeout(Duration::from_millis(50), reader.next()).await.is_err());
    gate.0.add_permits(1);
    assert_eq!(next(&mut reader).await, Some((0, 0)));
    gate.0.add_permits(1);
    assert_eq!(next(&mut reader).await, Some((1, 1)));
    drop((handle, reader));
    // As if the process had died in the third step.
    drop(forever);

    let forever = builder(&gate).sqlite(&path).open().await.unwrap();
    let mut all = forever.stream::<u32>("c", "counted", 0);
    for n in 0..2_u32 {
        assert_eq!(next(&mut all).await, Some((u64::from(n), n)));
    }
    gate.0.add_permits(1);
    assert_eq!(next(&mut all).await, Some((2, 2)));
    let handle = forever.fiber::<counts>("c");
    stands(&handle, FiberState::Waiting).await;
    // It waits for a message, and the reader for the fiber.
    assert!(tokio::time::timeout(Duration::from_millis(50), all.next()).await.is_err());
    forever.send("c", "word", "four").await.unwrap();
    assert_eq!(next(&mut all).await, Some((3, 7)));
    assert_eq!(next(&mut all).await, None);
    assert_eq!(soon("the end", handle.wait()).await.unwrap(), 3);
    let items = |from| {
        let mut reader = forever.stream::<u32>("c", "counted", from);
        async move {
            let mut items = Vec::new();
            while let Some((_, item)) = next(&mut reader).await {
                items.push(item);
            }
            items
        }
    };
    assert_eq!((items(0).await, items(2).await, items(9).await), (vec![0, 1, 2, 7], vec![2, 7], vec![]));
    assert_eq!(next(&mut forever.stream::<u32>("c", "other", 0)).await, None, "nothing was sent to it");
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn flushed_items_are_seen_before_the_step_ends_and_after_it_has_failed() {
    let gate = Gate::closed();
    let forever = builder(&gate).in_memory().open().await.unwrap();
    let handle = forever.spawn(flushes()).id("f").await.unwrap();
    let mut tokens = handle.stream::<String>("tokens", 0);
    assert_eq!(next(&mut tokens).await, Some((0, "so ".to_owned())));
    assert_eq!(next(&mut tokens).await, Some((1, "far".to_owned())));
    assert_eq!(handle.status().await.unwrap().state, FiberState::Running);
    gate.0.add_permits(1);
    assert_eq!(next(&mut tokens).await, None);
    assert_eq!(handle.status().await.unwrap().state, FiberState::Failed);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_or_sent_is_an_error() {
    let forever = builder(&Gate::closed()).in_memory().open().await.unwrap();
    let missing = forever.stream::<u32>("none", "counted", 0).next().await.unwrap_err();
    assert_eq!((missing.kind(), missing.to_string()), (ErrorKind::NotFound, "there is no fiber `none`".to_owned()));

    let sends = |ctx: forever::fiber::FiberContext| async move {
        let refused =
            [ctx.stream::<u32>("").send(&1), ctx.stream::<u32>("x".repeat(600)).send(&1)].map(|sent| sent.unwrap_err().to_string());
        let mixed = ctx.stream::<serde_json::Value>("mixed");
        for item in [json!(1), json!("two"), json!(3)] {
            mixed.send(&item)?;
        }
        Ok::<_, forever::Error>(refused.to_vec())
    };
    let refused: Vec<String> = forever.spawn_closure("sends", sends).id("s").start().await.unwrap().wait().await.unwrap();
    assert_eq!(refused[0], "failed to send to stream ``: its name must not be empty");
    assert!(refused[1].ends_with("its name has 600 bytes, more than the 512 that are allowed"), "{}", refused[1]);
    let mut numbers = forever.stream::<u32>("s", "mixed", 0);
    assert_eq!(next(&mut numbers).await, Some((0, 1)));
    let unfit = numbers.next().await.unwrap_err();
    assert_eq!(unfit.kind(), ErrorKind::Value);
    assert!(unfit.to_string().starts_with("item 1 of stream `mixed` of fiber `s` cannot be read as `u32`: "), "{unfit}");
    assert_eq!(next(&mut numbers).await, Some((2, 3)), "the one behind it can");
    assert_eq!(next(&mut numbers).await, None);

    let mut open = forever.spawn(counts(1)).id("c").await.unwrap().stream::<u32>("counted", 0);
    let reads = tokio::spawn(async move { open.next().await.map(drop) });
    tokio::time::sleep(Duration::from_millis(20)).await;
    forever.close().deadline(Duration::ZERO).await.unwrap();
    let closed = soon("the close", reads).await.unwrap().unwrap_err();
    assert!(closed.is_closed(), "{closed}");
}

#[tokio::test(start_paused = true)]
async fn progress_is_seen_at_once_and_after_the_process_has_died() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let gate = Gate::closed();
    let forever = builder(&gate).sqlite(&path).open().await.unwrap();
    let handle = forever.spawn(counts(2)).id("c").await.unwrap();
    let progress = async |forever: &Forever, counted: u64| {
        let wanted = Some(json!({ "of": 2, "counted": counted }));
        eventually("the progress", async || forever.fiber::<counts>("c").status().await.unwrap().progress == wanted).await;
    };
    progress(&forever, 0).await;
    gate.0.add_permits(1);
    progress(&forever, 1).await;
    let list = forever.fibers().await.unwrap();
    assert_eq!(list.fibers[0].progress, Some(json!({ "of": 2, "counted": 1 })), "it runs in this process");
    drop(handle);
    drop(forever);

    // Without the code nothing runs: what is stored is shown. The second step had not ended. What
    // the code marks as secret is not known then, so a view leaves it out.
    let forever = Forever::builder().sqlite(&path).open().await.unwrap();
    progress(&forever, 0).await;
    assert_eq!(forever.view("c").await.unwrap().status.progress, None);
    forever.close().await.unwrap();

    let forever = builder(&gate).sqlite(&path).open().await.unwrap();
    gate.0.add_permits(1);
    forever.send("c", "word", "go").await.unwrap();
    soon("the end", forever.fiber::<counts>("c").wait()).await.unwrap();
    let view = forever.view("c").await.unwrap();
    assert_eq!(view.status.progress, Some(json!({ "of": 2, "counted": 1 })), "the last one stays");
    let streams: Vec<_> = view.streams.iter().map(|stream| (stream.name.as_str(), stream.items, stream.newest.len())).collect();
    assert_eq!(streams, [("counted", 3, 3)]);
    forever.close().await.unwrap();
}
