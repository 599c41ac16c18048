//! What every store keeps to: the same tests over each of them.
mod agents;
mod chat;
mod ops;

use std::future::Future;
use std::sync::Arc;

use super::sqlite::{Durability, Sqlite};
use super::{
    Accepted, Again, Aside, Asked, End, FiberRow, FiberState, Find, NewFiber, NewMessage, NewSnapshot, OpsBehind, RunsAgain, Seq, Store,
    StoredLayout, Unfinished, Wait, Waits, Which,
};
use crate::exact::logs::NewItem;
use crate::fiber::parts::{Beside, Changes};

/// Runs every test over a store made by `make`, a new one for each.
pub(super) async fn conforms<S: Store + 'static, M: Future<Output = S>>(make: impl Fn() -> M) {
    accepts_once(&make().await).await;
    lists_what_has_not_ended_in_order(&make().await).await;
    replaces_snapshots_in_order_only(&make().await).await;
    keeps_each_layout_once(&make().await).await;
    keeps_parts_and_items_with_their_snapshot(&make().await).await;
    ends_with_a_result_or_an_error(&make().await).await;
    counts_deaths_of_running_fibers_only(&make().await).await;
    ops::conforms(&make).await;
    wakes_what_is_due_and_nothing_else(&make().await).await;
    keeps_messages_until_they_are_received(&make().await).await;
    wakes_a_parent_when_all_its_children_have_ended(&make().await).await;
    makes_children_with_the_checkpoint_or_not_at_all(&make().await).await;
    cancels_a_fiber_and_all_below_it(&make().await).await;
    lets_a_stopped_fiber_run_again(&make().await).await;
    resolves_only_what_has_stopped(&make().await).await;
    keeps_what_has_arrived_until_it_is_joined(&make().await).await;
    keeps_the_last_stash(&make().await).await;
    lists_by_page_and_deletes_what_has_ended(&make().await).await;
    agents::keeps_the_last_state(&make().await).await;
    agents::keeps_heartbeats_until_they_are_taken_back(&make().await).await;
    agents::lists_and_cancels_an_agents_own_schedules(&make().await).await;
    agents::finds_the_schedule_that_is_there(&make().await).await;
    agents::corrects_schedules_that_are_far_ahead(&make().await).await;
    agents::lets_schedules_in_when_they_are_due(&make().await).await;
    agents::keeps_what_came_of_a_run(&make().await).await;
    agents::counts_deaths_of_schedules_that_run(&make().await).await;
    chat::accepts_a_turn_once(&make().await).await;
    chat::begins_turns_in_order_and_counts_deaths(&make().await).await;
    chat::finds_turns_that_their_fibers_have_left(&make().await).await;
    chat::keeps_logs_without_gaps(&make().await).await;
    chat::ends_a_turn_once(&make().await).await;
    chat::cancels_a_turn_that_waits_and_asks_one_that_runs(&make().await).await;
    chat::lets_others_take_the_place_of_a_turn(&make().await).await;
    chat::continues_and_asks_again(&make().await).await;
    chat::replaces_and_clears_messages(&make().await).await;
    keeps_what_others_do_together_apart(Arc::new(make().await)).await;
    refuses_everything_when_closed(&make().await).await;
}

#[tokio::test]
async fn sqlite_in_memory_conforms() {
    conforms(|| async { Sqlite::in_memory(None, None).await.unwrap() }).await;
}

#[tokio::test]
async fn sqlite_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::sync::atomic::AtomicU32::new(0);
    conforms(|| {
        let path = folder.path().join(made.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
        async move { Sqlite::open(&path, Durability::Power, std::time::Duration::ZERO, None).await.unwrap() }
    })
    .await;
}

fn new(id: &str, key: Option<&str>) -> NewFiber {
    NewFiber {
        id: id.to_owned(),
        name: "work".to_owned(),
        key: key.map(str::to_owned),
        closure: false,
        agent: None,
        parent: None,
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
        ops: OpsBehind::default(),
        changes: Changes::default(),
        received: None,
        joined: false,
        children: Vec::new(),
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
    store.end(seqs[1], End::Failed("no".into()), Vec::new(), 1).await.unwrap();
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

async fn keeps_parts_and_items_with_their_snapshot(store: &impl Store) {
    let part = |name: &str, text: &str| (name.to_owned(), text.into());
    let item = |log, n, text: &str| NewItem { log, n, text: text.to_owned() };
    let first = Changes {
        parts: vec![part("a", "1"), part("1:a", "[2]"), part("b", "3")],
        items: vec![item(0, 0, "\"x\""), item(0, 1, "\"y\""), item(4, 0, "7")],
        ..Changes::default()
    };
    let second = Changes {
        parts: vec![part("b", "33"), part("c", "4")],
        gone_parts: vec!["a".into(), "never".into()],
        items: vec![item(0, 2, "\"z\""), item(5, 0, "null")],
        gone_logs: vec![4, 9],
    };
    let (seq, other) = (accept(store, "a").await, accept(store, "b").await);
    assert_eq!(store.load(seq).await.unwrap().beside, Beside::default());
    let mut beside = Beside::default();
    for (n, changes) in (1..).zip([first.clone(), second.clone()]) {
        beside.apply(&changes);
        store.checkpoint(seq, NewSnapshot { changes, ..snapshot(n) }).await.unwrap();
        assert_eq!(store.load(seq).await.unwrap().beside, beside);
    }
    assert_eq!((beside.parts.len(), beside.logs[&0].len(), beside.logs.contains_key(&4)), (3, 3, false));
    // All or nothing, and of this fiber only.
    store.checkpoint(seq, NewSnapshot { changes: second, ..snapshot(9) }).await.unwrap_err();
    let lost = Changes { gone_parts: vec!["b".into()], gone_logs: vec![0], ..first };
    store.checkpoint(seq, NewSnapshot { changes: lost.clone(), ..snapshot(2) }).await.unwrap_err();
    store.checkpoint(other, NewSnapshot { changes: lost, ..snapshot(1) }).await.unwrap();
    assert_eq!(store.load(seq).await.unwrap().beside, beside);

    store.end(seq, End::Failed("no".into()), Vec::new(), 3).await.unwrap();
    assert_eq!(store.load(seq).await.unwrap().beside, beside);
    store.again("a".into(), Again::FromSnapshot, 4).await.unwrap();
    assert_eq!(store.load(seq).await.unwrap().beside, beside);
    store.end(seq, End::Failed("no".into()), Vec::new(), 5).await.unwrap();
    store.again("a".into(), Again::FromStart, 6).await.unwrap();
    assert_eq!(store.load(seq).await.unwrap().beside, Beside::default());
    // What it writes in its new life is all there is of it.
    let changes = Changes { items: vec![item(0, 0, "1")], ..Changes::default() };
    let number = store.load(seq).await.unwrap().number + 1;
    store.checkpoint(seq, NewSnapshot { changes, ..snapshot(number) }).await.unwrap();
    assert_eq!(store.load(seq).await.unwrap().beside.logs, [(0, vec!["1".into()])].into());
    store.end(seq, End::Completed("1".into()), Vec::new(), 7).await.unwrap();
    assert_eq!(store.load(seq).await.unwrap().beside, Beside::default());
}

async fn ends_with_a_result_or_an_error(store: &impl Store) {
    let (done, failed) = (accept(store, "done").await, accept(store, "failed").await);
    for seq in [done, failed] {
        store.checkpoint(seq, snapshot(1)).await.unwrap();
    }
    store.end(done, End::Completed("[1]".into()), Vec::new(), 3000).await.unwrap();
    store.end(failed, End::Failed("broken".into()), Vec::new(), 3000).await.unwrap();
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

fn ids(fibers: &[Unfinished]) -> Vec<&str> {
    fibers.iter().map(|f| f.id.as_str()).collect()
}

async fn wakes_what_is_due_and_nothing_else(store: &impl Store) {
    let until = |due_ms| Wait { due_ms: Some(due_ms), ..Wait::default() };
    let (a, b, c) = (accept(store, "a").await, accept(store, "b").await, accept(store, "c").await);
    assert_eq!(store.next_due().await.unwrap(), None);
    assert_eq!(store.wait(a, until(30), 10).await.unwrap(), Waits::Yes);
    assert_eq!(store.wait(b, until(20), 10).await.unwrap(), Waits::Yes);
    assert_eq!(store.wait(c, until(10), 10).await.unwrap(), Waits::No);
    assert_eq!(row(store, "a").await.state, FiberState::Waiting);
    assert_eq!(row(store, "c").await.state, FiberState::Running);
    assert_eq!(unfinished(store).await, [("c".to_owned(), 0)]);

    assert_eq!(store.next_due().await.unwrap(), Some(20));
    assert!(store.take_due(19, 9).await.unwrap().is_empty());
    assert_eq!(ids(&store.take_due(30, 1).await.unwrap()), ["b"]);
    assert_eq!(ids(&store.take_due(30, 9).await.unwrap()), ["a"]);
    assert!(store.take_due(99, 9).await.unwrap().is_empty());
    assert_eq!(row(store, "a").await.state, FiberState::Pending);
    assert_eq!(store.next_due().await.unwrap(), None);

    // A death of the process while it waited or was about to be entered is no death of the fiber.
    store.recover(40).await.unwrap();
    assert_eq!((row(store, "a").await.deaths, row(store, "a").await.state), (0, FiberState::Pending));
}

fn message(to: &str, topic: &str, data: &str) -> NewMessage {
    NewMessage { to: to.to_owned(), topic: topic.to_owned(), data: data.to_owned(), now_ms: 50 }
}

async fn sent(store: &impl Store, to: &str, topic: &str, data: &str) -> Vec<String> {
    match store.send(message(to, topic, data)).await.unwrap() {
        Asked::Done(woken) => woken.into_iter().map(|f| f.id).collect(),
        other => panic!("{other:?}"),
    }
}

async fn keeps_messages_until_they_are_received(store: &impl Store) {
    let seq = accept(store, "a").await;
    let on = |topic: &str| Wait { topic: Some(topic.to_owned()), ..Wait::default() };
    assert_eq!(sent(store, "a", "yes", "1").await, [""; 0]);
    assert_eq!(store.wait(seq, on("yes"), 10).await.unwrap(), Waits::No);
    assert_eq!(store.wait(seq, on("no"), 10).await.unwrap(), Waits::Yes);
    assert_eq!(sent(store, "a", "yes", "2").await, [""; 0]);
    assert_eq!(sent(store, "a", "no", "3").await, ["a"]);
    assert_eq!(sent(store, "a", "no", "4").await, [""; 0]);

    let first = store.message(seq, "yes").await.unwrap().unwrap();
    assert_eq!(first.data, "1");
    assert_eq!(store.message(seq, "yes").await.unwrap().unwrap(), first);
    store.checkpoint(seq, NewSnapshot { received: Some(first.seq), ..snapshot(1) }).await.unwrap();
    assert_eq!(store.message(seq, "yes").await.unwrap().unwrap().data, "2");
    let refused = store.checkpoint(seq, NewSnapshot { received: Some(first.seq + 1), ..snapshot(9) }).await;
    assert!(refused.is_err());
    assert_eq!(store.message(seq, "yes").await.unwrap().unwrap().data, "2");
    assert_eq!(store.message(seq, "maybe").await.unwrap(), None);

    assert!(matches!(store.send(message("b", "yes", "1")).await.unwrap(), Asked::Unknown));
    store.end(seq, End::Failed("no".into()), Vec::new(), 60).await.unwrap();
    assert!(matches!(store.send(message("a", "yes", "1")).await.unwrap(), Asked::Not(FiberState::Failed)));
    // It may be resumed, and then it needs them.
    assert_eq!(store.message(seq, "yes").await.unwrap().unwrap().data, "2");
    assert!(matches!(store.again("a".into(), Again::FromSnapshot, 70).await.unwrap(), Asked::Done(_)));
    store.end(seq, End::Completed("1".into()), Vec::new(), 80).await.unwrap();
    assert_eq!(store.message(seq, "yes").await.unwrap(), None);
}

async fn wakes_a_parent_when_all_its_children_have_ended(store: &impl Store) {
    let (parent, one, two) = (accept(store, "p").await, accept(store, "1").await, accept(store, "2").await);
    let both = Wait { fibers: vec!["1".into(), "2".into(), "unknown".into()], ..Wait::default() };
    assert_eq!(store.wait(parent, both.clone(), 10).await.unwrap(), Waits::Yes);
    assert!(store.end(two, End::Completed("2".into()), Vec::new(), 20).await.unwrap().woken.is_empty());
    assert_eq!(ids(&store.end(one, End::Failed("1".into()), Vec::new(), 30).await.unwrap().woken), ["p"]);
    assert_eq!(store.wait(parent, both, 40).await.unwrap(), Waits::No);
}

async fn makes_children_with_the_checkpoint_or_not_at_all(store: &impl Store) {
    let parent = accept(store, "p").await;
    let child = |id: &str| NewFiber { parent: Some(parent), ..new(id, None) };
    let refused = store.checkpoint(parent, NewSnapshot { children: vec![child("c")], ..snapshot(7) }).await;
    assert!(refused.is_err());
    assert!(store.find(Find::Id("c".into())).await.unwrap().is_none());
    let taken = store.checkpoint(parent, NewSnapshot { children: vec![child("c"), child("p")], ..snapshot(1) }).await;
    assert!(taken.is_err());
    assert!(store.find(Find::Id("c".into())).await.unwrap().is_none());
    assert_eq!(row(store, "p").await.checkpoints, 0);

    let made = store.checkpoint(parent, NewSnapshot { children: vec![child("c"), child("d")], ..snapshot(1) }).await.unwrap();
    let stored = row(store, "c").await;
    assert_eq!((made.len(), made[0], stored.parent.as_deref(), stored.state), (2, stored.seq, Some("p"), FiberState::Running));
}

async fn cancels_a_fiber_and_all_below_it(store: &impl Store) {
    let top = accept(store, "top").await;
    let child = |id: &str, parent| NewFiber { parent: Some(parent), ..new(id, None) };
    let made = store.checkpoint(top, NewSnapshot { children: vec![child("mid", top)], ..snapshot(1) }).await.unwrap();
    let low = store.checkpoint(made[0], NewSnapshot { children: vec![child("low", made[0])], ..snapshot(1) }).await.unwrap();
    let (done, aside) = (accept(store, "aside").await, low[0]);
    store.wait(top, Wait { fibers: vec!["mid".into()], ..Wait::default() }, 10).await.unwrap();
    store.wait(aside, Wait { due_ms: Some(99), ..Wait::default() }, 10).await.unwrap();
    store.wait(done, Wait { fibers: vec!["low".into()], ..Wait::default() }, 10).await.unwrap();

    let Asked::Done(cancelled) = store.cancel("top".into(), "enough".into(), 20).await.unwrap() else { panic!() };
    assert_eq!(ids(&cancelled.fibers), ["top", "mid", "low"]);
    assert_eq!(cancelled.fibers[2].state, FiberState::Waiting);
    assert_eq!(ids(&cancelled.woken), ["aside"]);
    for (id, state) in [("top", FiberState::Cancelled), ("mid", FiberState::Running), ("low", FiberState::Cancelled)] {
        assert_eq!(row(store, id).await.state, state, "{id}");
    }
    assert_eq!(row(store, "low").await.reason.as_deref(), Some("enough"));
    assert_eq!(store.next_due().await.unwrap(), None);
    // Whatever comes of one that runs, it has been cancelled.
    assert!(!store.enter(made[0], 30).await.unwrap());
    assert!(store.checkpoint(made[0], NewSnapshot { children: vec![child("late", made[0])], ..snapshot(2) }).await.is_err());
    assert!(store.find(Find::Id("late".into())).await.unwrap().is_none());
    let ended = store.end(made[0], End::Completed("1".into()), Vec::new(), 30).await.unwrap();
    assert_eq!(ended.end, End::Cancelled("enough".into()));
    assert!(matches!(store.cancel("mid".into(), "again".into(), 40).await.unwrap(), Asked::Not(FiberState::Cancelled)));
    assert!(matches!(store.cancel("nobody".into(), "x".into(), 40).await.unwrap(), Asked::Unknown));
}

async fn lets_a_stopped_fiber_run_again(store: &impl Store) {
    let seq = accept(store, "a").await;
    assert!(matches!(store.again("a".into(), Again::FromSnapshot, 10).await.unwrap(), Asked::Not(FiberState::Running)));
    store.checkpoint(seq, snapshot(1)).await.unwrap();
    store.end(seq, End::Failed("no".into()), Vec::new(), 20).await.unwrap();
    let Asked::Done(RunsAgain::Yes(again)) = store.again("a".into(), Again::FromSnapshot, 30).await.unwrap() else { panic!() };
    assert_eq!((again.id.as_str(), again.state), ("a", FiberState::Pending));
    let stored = row(store, "a").await;
    assert_eq!((stored.state, stored.reason, stored.finished_ms, stored.checkpoints), (FiberState::Pending, None, None, 1));
    assert!(store.load(seq).await.unwrap().snapshot.is_some());

    store.set_aside(seq, Aside::Parked("no".into()), 40).await.unwrap();
    assert!(matches!(store.again("a".into(), Again::FromStart, 50).await.unwrap(), Asked::Done(_)));
    let loaded = store.load(seq).await.unwrap();
    // Operations of the new life have other ids, because the count goes on.
    assert_eq!((loaded.snapshot, loaded.layout, loaded.number), (None, None, 2));
    store.end(seq, End::Completed("1".into()), Vec::new(), 60).await.unwrap();
    assert!(matches!(store.again("a".into(), Again::FromStart, 70).await.unwrap(), Asked::Not(FiberState::Completed)));
}

async fn resolves_only_what_has_stopped(store: &impl Store) {
    let seq = accept(store, "a").await;
    let end = End::Completed("1".into());
    assert!(matches!(store.resolve("a".into(), end.clone(), 10).await.unwrap(), Asked::Not(FiberState::Running)));
    assert!(matches!(store.resolve("b".into(), end.clone(), 10).await.unwrap(), Asked::Unknown));
    store.set_aside(seq, Aside::Interrupted("x".into()), 20).await.unwrap();
    assert!(matches!(store.resolve("a".into(), end.clone(), 30).await.unwrap(), Asked::Done(_)));
    assert!(matches!(store.resolve("a".into(), end, 40).await.unwrap(), Asked::Not(FiberState::Completed)));
    assert_eq!(row(store, "a").await.result.as_deref(), Some("1"));
}

async fn keeps_what_has_arrived_until_it_is_joined(store: &impl Store) {
    let seq = accept(store, "a").await;
    store.checkpoint(seq, snapshot(1)).await.unwrap();
    store.recover(5).await.unwrap();
    store.arrive(seq, 1, 2, "c".into()).await.unwrap();
    assert_eq!(row(store, "a").await.deaths, 0);
    store.arrive(seq, 1, 0, "a".into()).await.unwrap();
    assert_eq!(store.arrived(seq, 1).await.unwrap(), [(0, "a".to_owned()), (2, "c".to_owned())]);
    assert_eq!(store.arrived(seq, 0).await.unwrap(), []);
    store.end(seq, End::Failed("one of them".into()), Vec::new(), 10).await.unwrap();
    assert!(matches!(store.again("a".into(), Again::FromSnapshot, 20).await.unwrap(), Asked::Done(_)));
    assert_eq!(store.arrived(seq, 1).await.unwrap().len(), 2);
    store.checkpoint(seq, NewSnapshot { joined: true, ..snapshot(2) }).await.unwrap();
    assert_eq!(store.arrived(seq, 1).await.unwrap(), []);
}

async fn keeps_the_last_stash(store: &impl Store) {
    let seq = accept(store, "a").await;
    store.recover(10).await.unwrap();
    assert_eq!(row(store, "a").await.deaths, 1);
    for stash in ["1", "2"] {
        store.stash(seq, stash.to_owned(), 20).await.unwrap();
    }
    assert_eq!(store.load(seq).await.unwrap().snapshot.as_deref(), Some("2"));
    assert_eq!(row(store, "a").await.deaths, 0);
}

async fn lists_by_page_and_deletes_what_has_ended(store: &impl Store) {
    for id in ["a", "b", "c", "d", "e"] {
        let seq = accept(store, id).await;
        match id {
            "a" | "c" => drop(store.end(seq, End::Completed("1".into()), Vec::new(), 100).await.unwrap()),
            "d" => drop(store.end(seq, End::Failed("no".into()), Vec::new(), 200).await.unwrap()),
            _ => {}
        }
    }
    let list = async |which: Which, after, limit| {
        let rows = store.list(which, after, limit).await.unwrap();
        (rows.iter().map(|r| r.id.clone()).collect::<String>(), rows.last().map_or(0, |r| r.seq))
    };
    let (first, after) = list(Which::default(), Seq::MIN, 3).await;
    assert_eq!((first.as_str(), list(Which::default(), after, 3).await.0.as_str()), ("abc", "de"));
    let states = |states: &[FiberState]| Which { states: states.to_vec(), ..Which::default() };
    assert_eq!(list(states(&[FiberState::Completed]), Seq::MIN, 9).await.0, "ac");
    assert_eq!(list(states(&[FiberState::Running, FiberState::Failed]), Seq::MIN, 9).await.0, "bde");
    assert_eq!(list(Which { name: Some("other".into()), ..Which::default() }, Seq::MIN, 9).await.0, "");

    let ended = Which { ended_before_ms: Some(150), ..states(&[FiberState::Completed, FiberState::Failed]) };
    assert_eq!(store.delete(ended.clone(), 1).await.unwrap(), 1);
    assert_eq!(store.delete(ended.clone(), 9).await.unwrap(), 1);
    assert_eq!(store.delete(ended, 9).await.unwrap(), 0);
    assert_eq!(list(Which::default(), Seq::MIN, 9).await.0, "bde");
    // What has not ended stays, whatever is asked.
    assert_eq!(store.delete(states(&[FiberState::Running]), 9).await.unwrap(), 0);
}
