//! Servers that crash, and connections that are cut at the worst moment.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{AcceptResult, FiberStore};
use forever_testkit::waiting::eventually;

use crate::cluster;
use crate::proxy::{Fate, Proxy};
use crate::{accept, fiber, row, snapshot};

pub(crate) fn has(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|there| there == word.as_bytes())
}

/// Cuts once, at the first bytes that have a word in them.
pub(crate) fn cut_once(proxy: &Proxy, word: &'static str, fate: Fate) {
    let mut left = Some(fate);
    proxy.on_sent(move |bytes| left.take_if(|_| has(bytes, word)).unwrap_or(Fate::Forward));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_is_cut_before_the_commit_is_made_anew_and_the_call_repeated() {
    let Some(server) = cluster::own() else { return };
    let proxy = Proxy::start(server.socket()).await;
    let store = PostgresStore::builder(proxy.url()).lease(Duration::ZERO).pooler(true).connect().await.unwrap();
    let worker = store.join(0).await.unwrap();
    for (n, (word, fate)) in
        [("BEGIN", Fate::CutBefore), ("BEGIN", Fate::CutAfter), ("INSERT INTO", Fate::CutBefore), ("INSERT INTO", Fate::CutAfter)]
            .into_iter()
            .enumerate()
    {
        cut_once(&proxy, word, fate);
        let claim = accept(&store, &format!("f{n}"), worker).await;
        cut_once(&proxy, word, fate);
        store.checkpoint(claim, snapshot(1)).await.unwrap();
    }
    assert_eq!(store.unfinished(0, 99).await.unwrap().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_is_unknown_where_the_connection_is_cut_at_the_commit() {
    let Some(server) = cluster::own() else { return };
    let proxy = Proxy::start(server.socket()).await;
    let store = PostgresStore::builder(proxy.url()).lease(Duration::ZERO).pooler(true).connect().await.unwrap();
    let worker = store.join(0).await.unwrap();
    for (id, fate, stored) in [("lost", Fate::CutBefore, false), ("there", Fate::CutAfter, true)] {
        // Not that of "READ COMMITTED".
        cut_once(&proxy, "COMMIT\0", fate);
        let error = store.accept(fiber(id, Some(worker))).await.unwrap_err();
        assert!(error.is_outcome_unknown(), "{error}");
        assert_eq!(row(&store, id).await.is_some(), stored, "{id}");
        // A repetition with the id finds out.
        let again = store.accept(fiber(id, Some(worker))).await.unwrap();
        assert_eq!(matches!(again, AcceptResult::Existing(_)), stored);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_was_acknowledged_is_lost_when_the_server_crashes() {
    const FIBERS: usize = 12;
    const CRASHES: usize = 3;
    let Some(server) = cluster::own() else { return };
    let store = PostgresStore::builder(server.url()).lease(Duration::from_secs(60)).pool(4).connect().await.unwrap();
    let (store, worker) = (Arc::new(store), 1);
    assert_eq!(store.join(0).await.unwrap(), worker);
    let (done, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..FIBERS {
        let (store, done, stored) = (Arc::clone(&store), Arc::clone(&done), Arc::clone(&stored));
        tasks.spawn(async move {
            let held = accept(&*store, &format!("f{n}"), worker).await;
            let (mut number, mut unknown) = (0, 0_u64);
            while !done.load(Ordering::Relaxed) {
                match store.checkpoint(held, snapshot(number + 1)).await {
                    Ok(_) => {
                        number += 1;
                        stored.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if error.is_outcome_unknown() => {
                        unknown += 1;
                        let there = loop {
                            match store.load(held.fiber).await {
                                Ok(loaded) => break loaded.number,
                                Err(error) => assert!(error.is_retryable(), "{error}"),
                            }
                        };
                        assert!(there == number || there == number + 1, "{there} behind {number}");
                        number = there;
                    }
                    // Nothing is stored, so the same one may come again.
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
            (held, number, unknown)
        });
    }
    for _ in 0..CRASHES {
        let before = stored.load(Ordering::Relaxed);
        eventually("they go on", async || stored.load(Ordering::Relaxed) >= before + 200).await;
        tokio::task::block_in_place(|| {
            server.crash();
            server.start_again();
        });
    }
    let before = stored.load(Ordering::Relaxed);
    eventually("they go on", async || stored.load(Ordering::Relaxed) >= before + 200).await;
    done.store(true, Ordering::Relaxed);
    let mut in_doubt = 0;
    while let Some(task) = tasks.join_next().await {
        let (held, number, unknown) = task.unwrap();
        in_doubt += unknown;
        let loaded = store.load(held.fiber).await.unwrap();
        assert_eq!((loaded.number, loaded.deaths), (number, 0), "fiber {}", held.fiber);
    }
    println!("{} checkpoints, {in_doubt} of unknown outcome, {CRASHES} crashes", stored.load(Ordering::Relaxed));
}
