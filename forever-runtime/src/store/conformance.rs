//! What every store keeps to: the same tests over each of them.
use std::future::Future;
use std::sync::Arc;

use super::sqlite::{Durability, Sqlite};
use super::{Accepted, Aside, End, FiberRow, FiberState, Find, NewFiber, NewSnapshot, Seq, Store, StoredLayout};
use crate::fiber::frame::OpRecord;
use crate::fiber::parts::Changes;

/// Runs every test over a store made by `make`, a new one for each.
async fn conforms<S: Store + 'static, M: Future<Output = S>>(make: impl Fn() -> M) {
    accepts_once(&make().await).await;
    lists_what_has_not_ended_in_order(&make().await).await;
    replaces_snapshots_in_order_only(&make().await).await;
    keeps_each_layout_once(&make().await).await;
    ends_with_a_result_or_an_error(&make().await).await;
    counts_deaths_of_running_fibers_only(&make().await).await;
    keeps_records_of_steps_until_they_finish(&make().await).await;
    keeps_what_others_do_together_apart(Arc::new(make().await)).await;
    refuses_everything_when_closed(&make().await).await;
}

#[tokio::test]
async fn sqlite_in_memory_conforms() {
    conforms(|| async { Sqlite::in_memory().await.unwrap() }).await;
}

#[tokio::test]
async fn sqlite_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::sync::atomic::AtomicU32::new(0);
    conforms(|| {
        let path = folder.path().join(made.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
        async move { Sqlite::open(&path, Durability::Power, std::time::Duration::ZERO).await.unwrap() }
    })
    .await;
}

fn new(id: &str, key: Option<&str>) -> NewFiber {
    NewFiber {
        id: id.to_owned(),
        name: "work".to_owned(),
        key: key.map(str::to_owned),
        args: r#"{"n":1}"#.to_owned(),
        metadata: Some(r#"{"by":"test"}"#.to_owned()),
        now_ms: 1000,
    }
}

fn snapshot(number: u64) -> NewSnapshot {
    NewSnapshot {
        number,
        at: "step",
        data: format!("{{\"n\":{number}}}"),
        now_ms: 2000,
        layout: None,
        finished_op: None,
        changes: Changes::default(),
    }
}

async fn accept(store: &impl Store, id: &str) -> Seq {
    match store.accept(new(id, None)).await.unwrap() {
        Accepted::New(seq) => seq,
        Accepted::Existing(row) => panic!("{row:?}"),
    }
}

async fn row(store: &impl Store, id: &str) -> FiberRow {
    store.find(Find::Id(id.to_owned())).await.unwrap().unwrap()
}

async fn unfinished(store: &impl Store) -> Vec<(String, u32)> {
    store.unfinished(Seq::MIN, 100).await.unwrap().into_iter().map(|f| (f.id, f.deaths)).collect()
}

async fn accepts_once(store: &impl Store) {
    let first = store.accept(new("a", Some("k"))).await.unwrap();
    assert!(matches!(first, Accepted::New(_)));
    let by_id = store.accept(new("a", None)).await.unwrap();
    assert!(matches!(by_id, Accepted::Existing(row) if row.id == "a" && row.key.as_deref() == Some("k")));
    let by_key = store.accept(new("b", Some("k"))).await.unwrap();
    assert!(matches!(by_key, Accepted::Existing(row) if row.id == "a"));
    assert!(store.find(Find::Id("b".into())).await.unwrap().is_none());

    let stored = store.find(Find::Key("k".into())).await.unwrap().unwrap();
    assert_eq!((stored.state, stored.created_ms, stored.checkpoints), (FiberState::Running, 1000, 0));
    assert_eq!((stored.args.as_str(), stored.metadata.as_deref()), (r#"{"n":1}"#, Some(r#"{"by":"test"}"#)));
}

async fn lists_what_has_not_ended_in_order(store: &impl Store) {
    let mut seqs = Vec::new();
    for id in ["c", "a", "b", "d"] {
        seqs.push(accept(store, id).await);
    }
    store.end(seqs[1], End::Failed("no".into()), 1).await.unwrap();
    store.set_aside(seqs[2], Aside::Parked("why".into()), 1).await.unwrap();
    assert_eq!(unfinished(store).await, [("c".into(), 0), ("b".into(), 0), ("d".into(), 0)]);
    let page: Vec<String> = store.unfinished(seqs[0], 1).await.unwrap().into_iter().map(|f| f.id).collect();
    assert_eq!(page, ["b"]);
}

async fn replaces_snapshots_in_order_only(store: &impl Store) {
    let seq = accept(store, "a").await;
    let before = store.load(seq).await.unwrap();
    assert_eq!((before.snapshot, before.number, before.args.as_str()), (None, 0, r#"{"n":1}"#));
    store.checkpoint(seq, snapshot(1)).await.unwrap();
    store.checkpoint(seq, snapshot(2)).await.unwrap();
    store.checkpoint(seq, snapshot(2)).await.unwrap_err();
    store.checkpoint(seq, snapshot(4)).await.unwrap_err();
    store.checkpoint(seq + 1, snapshot(1)).await.unwrap_err();
    let after = store.load(seq).await.unwrap();
    assert_eq!((after.snapshot.as_deref(), after.number), (Some(r#"{"n":2}"#), 2));
    assert_eq!(row(store, "a").await.at.as_deref(), Some("step"));
}

async fn keeps_each_layout_once(store: &impl Store) {
    let layout = |hash: &str| StoredLayout { hash: hash.into(), fiber: "work".into(), layout: "{}".into() };
    let (a, b) = (accept(store, "a").await, accept(store, "b").await);
    for seq in [a, b] {
        store.checkpoint(seq, NewSnapshot { layout: Some(layout("h1")), ..snapshot(1) }).await.unwrap();
    }
    store.checkpoint(a, snapshot(2)).await.unwrap();
    assert_eq!(store.load(a).await.unwrap().layout, Some(layout("h1")));
    store.checkpoint(b, NewSnapshot { layout: Some(layout("h2")), ..snapshot(2) }).await.unwrap();
    assert_eq!(store.load(b).await.unwrap().layout, Some(layout("h2")));
}

async fn ends_with_a_result_or_an_error(store: &impl Store) {
    let (done, failed) = (accept(store, "done").await, accept(store, "failed").await);
    for seq in [done, failed] {
        store.checkpoint(seq, snapshot(1)).await.unwrap();
    }
    store.end(done, End::Completed("[1]".into()), 3000).await.unwrap();
    store.end(failed, End::Failed("broken".into()), 3000).await.unwrap();
    // What has ended stays as it ended.
    store.set_aside(done, Aside::Interrupted("late".into()), 4000).await.unwrap();

    let row_done = row(store, "done").await;
    assert_eq!((row_done.state, row_done.result.as_deref(), row_done.reason), (FiberState::Completed, Some("[1]"), None));
    assert_eq!(row_done.finished_ms, Some(3000));
    assert_eq!(store.load(done).await.unwrap().snapshot, None);
    let row_failed = row(store, "failed").await;
    assert_eq!((row_failed.state, row_failed.reason.as_deref()), (FiberState::Failed, Some("broken")));
    assert!(store.load(failed).await.unwrap().snapshot.is_some());
    assert!(unfinished(store).await.is_empty());
}

async fn counts_deaths_of_running_fibers_only(store: &impl Store) {
    let (ran, parked, stopped) = (accept(store, "ran").await, accept(store, "parked").await, accept(store, "stopped").await);
    store.set_aside(parked, Aside::Parked("why".into()), 1).await.unwrap();
    store.set_aside(stopped, Aside::Interrupted("closed".into()), 1).await.unwrap();
    store.recover(2).await.unwrap();
    store.recover(3).await.unwrap();
    assert_eq!(unfinished(store).await, [("ran".into(), 1), ("parked".into(), 0), ("stopped".into(), 0)]);
    assert_eq!(row(store, "ran").await.state, FiberState::Interrupted);
    assert_eq!(row(store, "parked").await.reason.as_deref(), Some("why"));

    store.enter(ran, 4).await.unwrap();
    assert_eq!((row(store, "ran").await.state, row(store, "ran").await.reason), (FiberState::Running, None));
    store.recover(5).await.unwrap();
    assert_eq!(row(store, "ran").await.deaths, 2);
    store.enter(ran, 6).await.unwrap();
    store.checkpoint(ran, snapshot(1)).await.unwrap();
    assert_eq!(row(store, "ran").await.deaths, 0);
}

async fn keeps_records_of_steps_until_they_finish(store: &impl Store) {
    let record =
        |id: &str, failed, stash: Option<&str>| OpRecord { id: id.into(), step: "charge".into(), failed, stash: stash.map(str::to_owned) };
    let seq = accept(store, "a").await;
    assert_eq!(store.load_op(seq, "x".into()).await.unwrap(), None);
    store.save_op(seq, record("x", 0, None), 1).await.unwrap();
    store.save_op(seq, record("x", 2, Some("[1]")), 2).await.unwrap();
    store.save_op(seq, record("y", 1, None), 2).await.unwrap();
    assert_eq!(store.load_op(seq, "x".into()).await.unwrap(), Some(record("x", 2, Some("[1]"))));

    store.checkpoint(seq, NewSnapshot { finished_op: Some("x".into()), ..snapshot(7) }).await.unwrap_err();
    assert!(store.load_op(seq, "x".into()).await.unwrap().is_some(), "a checkpoint that failed took the record with it");
    store.checkpoint(seq, NewSnapshot { finished_op: Some("x".into()), ..snapshot(1) }).await.unwrap();
    assert_eq!(store.load_op(seq, "x".into()).await.unwrap(), None);
    assert!(store.load_op(seq, "y".into()).await.unwrap().is_some());
    store.end(seq, End::Completed("1".into()), 3).await.unwrap();
    assert_eq!(store.load_op(seq, "y".into()).await.unwrap(), None);
}

/// Many at once, so that they share transactions, and one in ten of them wrong.
async fn keeps_what_others_do_together_apart<S: Store + 'static>(store: Arc<S>) {
    let seq = accept(&*store, "alone").await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..300_u64 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            if n % 10 == 0 {
                // Several statements, of which the last fails: nothing of it may stay.
                let layout = Some(StoredLayout { hash: format!("h{n}"), fiber: "work".into(), layout: "{}".into() });
                store.checkpoint(seq, NewSnapshot { layout, ..snapshot(99) }).await.unwrap_err();
            } else {
                let seq = accept(&*store, &format!("f{n}")).await;
                store.checkpoint(seq, snapshot(1)).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let alone = store.load(seq).await.unwrap();
    assert_eq!((alone.number, alone.layout), (0, None));
    assert_eq!(store.unfinished(Seq::MIN, 1000).await.unwrap().len(), 271);
}

async fn refuses_everything_when_closed(store: &impl Store) {
    accept(store, "a").await;
    store.close(9).await.unwrap();
    assert!(store.accept(new("b", None)).await.unwrap_err().is_closed());
    assert!(store.find(Find::Id("a".into())).await.unwrap_err().is_closed());
    assert!(store.close(10).await.unwrap_err().is_closed());
    store.abandon();
}
