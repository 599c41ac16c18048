//! Conformance suite: the same tests over every store, with two workers over one.
mod agents;
mod chat;
mod claims;
mod copies;
mod inbox;
mod lists;
pub(crate) mod ops;
mod requests;
mod streams;
mod troubles;
mod workers;

pub use workers::Workers;

use std::sync::Arc;

use super::{
    AcceptResult, BranchResult, Claim, ClaimResult, CommandResult, DeleteResult, Deletion, End, FiberQuery, FiberRef, FiberRow, FiberState,
    LayoutRow, NewFiber, NewMessage, NewSnapshot, OpKind, OpRecord, OpsDelta, PendingMessage, ReadySender, Restart, RestartResult,
    Runnable, SendResult, Seq, SnapshotDelta, SnapshotRows, Store, StreamAppend, StreamsDelta, Suspension, UnfinishedGroup, Wait,
    WaitResult, WorkerId, log_stream,
};
#[cfg(test)]
use super::{Durability, Sqlite};

/// Tests that a store keeps to the contract of [`Store`].
///
/// `make` gives an empty store each time. It is called about 70 times, and each store has one test.
///
/// - Workers are numbered from 1 in an empty store: the suite joins as workers 1 and 2, which share
///   the store and take over from each other.
/// - Every worker but the one that calls [`take_over`](super::FiberStore::take_over) counts as gone
///   at that moment. A store with leases is opened with a lease of zero, and without any other sign
///   of life.
///
/// Run it in a tokio runtime, with as many threads as there are. With a file or server behind the
/// store it takes seconds to minutes.
///
/// ```
/// # mod forever { pub use forever_store as store; }
/// use forever::store::{Sqlite, conformance};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// conformance::run(async || Sqlite::in_memory().await.unwrap()).await;
/// # }
/// ```
///
/// # Panics
/// At the first test that fails.
pub async fn run<S: Store + 'static>(make: impl AsyncFn() -> S) {
    // On the heap: the future of all tests is long.
    Box::pin(run_all(make)).await;
}

/// Tests that several workers over one store keep to the contract of
/// [`ClusterStore`](super::ClusterStore).
///
/// `make` gives workers over an empty store each time. It is called about ten times, and each store
/// has one test. A store that has no `ClusterStore` has no need of these tests.
///
/// # Panics
/// At the first test that fails.
pub async fn run_workers<W: Workers>(make: impl AsyncFn() -> W) {
    Box::pin(async {
        workers::run(&make).await;
        requests::run(&make).await;
    })
    .await;
}

async fn run_all<S: Store + 'static>(make: impl AsyncFn() -> S) {
    let make = async || {
        let store = make().await;
        let joined = (store.join(0).await.unwrap(), store.join(0).await.unwrap());
        assert_eq!(joined, (FIRST, SECOND), "workers are numbered from 1 in an empty store");
        store
    };
    accepts_once(&make().await).await;
    remembers_the_keys_of_what_was_deleted(&make().await).await;
    lists_what_has_not_ended_in_order(&make().await).await;
    replaces_snapshots_in_order_only(&make().await).await;
    keeps_each_layout_once(&make().await).await;
    keeps_parts_and_items_with_their_snapshot(&make().await).await;
    ends_with_a_result_or_an_error(&make().await).await;
    counts_deaths_of_running_fibers_only(&make().await).await;
    ops::run(&make).await;
    claims::run(&make).await;
    inbox::run(&make).await;
    copies::run(&make).await;
    streams::keep_their_items_with_the_checkpoints_that_append_them(&make().await).await;
    streams::keep_the_newest_items(&make().await).await;
    streams::take_items_between_checkpoints_and_with_branches_and_ends(&make().await).await;
    wakes_what_is_due_and_nothing_else(&make().await).await;
    groups_unfinished_fibers_and_wakes_those_that_wait(&make().await).await;
    keeps_messages_until_they_are_received(&make().await).await;
    wakes_a_parent_when_all_its_children_have_ended(&make().await).await;
    wakes_a_fiber_at_the_first_of_several_things(&make().await).await;
    makes_children_with_the_checkpoint_or_not_at_all(&make().await).await;
    cancels_a_fiber_and_all_below_it(&make().await).await;
    lets_a_stopped_fiber_run_again(&make().await).await;
    resolves_only_what_has_stopped(&make().await).await;
    keeps_branch_results_until_the_next_checkpoint(&make().await).await;
    keeps_the_layouts_that_operations_and_branch_results_began_under(&make().await).await;
    replaces_a_snapshot_under_its_number(&make().await).await;
    keeps_the_last_stash(&make().await).await;
    lists_by_page_and_deletes_what_has_ended(&make().await).await;
    lists::finds_fibers_by_each_condition(&make().await).await;
    lists::finds_fibers_beside_odd_metadata(&make().await).await;
    lists::lists_the_newest_first_by_page(&make().await).await;
    lists::tells_what_a_fiber_waits_for(&make().await).await;
    lists::counts_by_function_and_state(&make().await).await;
    troubles::lists_why_fibers_stopped(&make().await).await;
    troubles::lists_retried_steps(&make().await).await;
    troubles::lists_queues_of_messages(&make().await).await;
    lists::lists_agents_and_schedules_by_page(&make().await).await;
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
    chat::refuses_writes_without_the_claim_of_the_turn(&make().await).await;
    chat::cancels_a_turn_that_waits_and_asks_one_that_runs(&make().await).await;
    chat::lists_the_turns_of_all_chats(&make().await).await;
    chat::lists_the_failed_turns_of_all_chats(&make().await).await;
    chat::lets_a_parked_turn_see_that_it_was_cancelled(&make().await).await;
    chat::parks_no_turn_that_was_told_to_end(&make().await).await;
    chat::lets_others_take_the_place_of_a_turn(&make().await).await;
    chat::queues_no_more_turns_than_it_may(&make().await).await;
    chat::joins_the_turn_that_replies_to_a_message(&make().await).await;
    chat::continues_and_asks_again(&make().await).await;
    chat::replaces_and_clears_messages(&make().await).await;
    chat::holds_a_continuation_for_the_message_that_wants_it(&make().await).await;
    chat::updates_a_message_that_no_running_turn_has_read(&make().await).await;
    chat::lists_messages_for_as_long_as_they_are_pending(&make().await).await;
    chat::lists_pending_messages_by_page_and_by_agent(&make().await).await;
    chat::leaves_out_the_message_of_a_running_turn(&make().await).await;
    keeps_what_others_do_together_apart(Arc::new(make().await)).await;
    refuses_everything_when_closed(&make().await).await;
}

#[cfg(test)]
#[tokio::test]
async fn sqlite_in_memory_conforms() {
    run(async || Sqlite::in_memory().await.unwrap()).await;
}

#[cfg(test)]
#[tokio::test]
async fn sqlite_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::sync::atomic::AtomicU32::new(0);
    run(async || {
        let path = folder.path().join(made.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
        Sqlite::open(path, Durability::Power, std::time::Duration::ZERO).await.unwrap()
    })
    .await;
}

/// The worker that claims the fibers it makes, and one that takes over.
pub(crate) const FIRST: WorkerId = 1;
pub(crate) const SECOND: WorkerId = 2;

pub(crate) fn new(id: &str, key: Option<&str>) -> NewFiber {
    NewFiber {
        id: id.to_owned(),
        name: "work".to_owned(),
        key: key.map(str::to_owned),
        id_given: false,
        closure: false,
        agent: None,
        parent: None,
        worker: Some(FIRST),
        args: r#"{"n":1}"#.to_owned(),
        metadata: Some(r#"{"by":"test"}"#.to_owned()),
        now_ms: 1000,
    }
}

pub(crate) fn snapshot(number: u64) -> NewSnapshot {
    NewSnapshot {
        replaces: false,
        number,
        at: "step",
        data: format!("{{\"n\":{number}}}"),
        now_ms: 2000,
        layouts: None,
        ops: OpsDelta::default(),
        delta: SnapshotDelta::default(),
        streams: StreamsDelta::default(),
        received: Vec::new(),
        closed: None,
        joined: false,
        children: Vec::new(),
    }
}

pub(crate) async fn accept(store: &impl Store, id: &str) -> Claim {
    accept_by(store, id, FIRST).await
}

/// Accepts a fiber that a worker claims at once.
pub(crate) async fn accept_by(store: &impl Store, id: &str, worker: WorkerId) -> Claim {
    match store.accept(NewFiber { worker: Some(worker), ..new(id, None) }).await.unwrap() {
        AcceptResult::Created(claim) => claim,
        there => panic!("{there:?}"),
    }
}

/// The oldest message of a topic that a fiber has not received.
pub(crate) async fn next_message(store: &impl Store, fiber: Seq, topic: &str) -> Option<PendingMessage> {
    store.topic(fiber, topic.to_owned(), i64::MIN, 1).await.unwrap().messages.pop()
}

/// Claims a fiber as it stands now.
pub(crate) async fn claimed(store: &impl Store, fiber: Seq, by: WorkerId) -> Claim {
    let seen = Claim { fiber, epoch: store.claim_of(fiber).await.unwrap().unwrap().epoch };
    match store.claim(seen, by, 1).await.unwrap() {
        ClaimResult::Granted(claim, _) => claim,
        other => panic!("{other:?}"),
    }
}

/// Fibers that the store has sent as ready.
pub(crate) struct ReadyReceiver(tokio::sync::mpsc::UnboundedReceiver<Runnable>);

impl ReadyReceiver {
    pub(crate) fn by(store: &impl Store) -> Self {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        store.on_ready(ReadySender::new(move |fiber| drop(tell.send(fiber))));
        ReadyReceiver(told)
    }

    /// The id of the next one.
    async fn next(&mut self) -> String {
        let told = tokio::time::timeout(std::time::Duration::from_secs(60), self.0.recv()).await;
        told.expect("a fiber is ready, and the sender was not told").unwrap().id
    }

    /// Ids of the fibers sent since the last call.
    pub(crate) fn ids(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.try_recv().ok()).map(|fiber| fiber.id).collect()
    }
}

pub(crate) async fn row(store: &impl Store, id: &str) -> FiberRow {
    store.find(FiberRef::Id(id.to_owned())).await.unwrap().unwrap()
}

async fn unfinished(store: &impl Store) -> Vec<(String, u32)> {
    store.unfinished(Seq::MIN, 100).await.unwrap().into_iter().map(|f| (f.id, f.deaths)).collect()
}

async fn accepts_once(store: &impl Store) {
    let first = store.accept(new("a", Some("k"))).await.unwrap();
    assert!(matches!(first, AcceptResult::Created(_)));
    let by_id = store.accept(new("a", None)).await.unwrap();
    assert!(matches!(by_id, AcceptResult::Existing(row) if row.id == "a" && row.key.as_deref() == Some("k")));
    let by_key = store.accept(new("b", Some("k"))).await.unwrap();
    assert!(matches!(by_key, AcceptResult::Existing(row) if row.id == "a"));
    assert!(store.find(FiberRef::Id("b".into())).await.unwrap().is_none());

    let stored = store.find(FiberRef::Key("k".into())).await.unwrap().unwrap();
    assert_eq!((stored.state, stored.created_ms, stored.checkpoints), (FiberState::Running, 1000, 0));
    assert_eq!((stored.args.as_str(), stored.metadata.as_deref()), (r#"{"n":1}"#, Some(r#"{"by":"test"}"#)));
}

async fn lists_what_has_not_ended_in_order(store: &impl Store) {
    let mut seqs = Vec::new();
    for id in ["c", "a", "b", "d"] {
        seqs.push(accept(store, id).await);
    }
    store.end(seqs[1], End::Failed("no".into()), Vec::new(), Vec::new(), 1).await.unwrap();
    store.suspend(seqs[2], Suspension::Parked("why".into()), 1).await.unwrap();
    assert_eq!(unfinished(store).await, [("c".into(), 0), ("b".into(), 0), ("d".into(), 0)]);
    let page: Vec<String> = store.unfinished(seqs[0].fiber, 1).await.unwrap().into_iter().map(|f| f.id).collect();
    assert_eq!(page, ["b"]);
}

async fn replaces_snapshots_in_order_only(store: &impl Store) {
    let claim = accept(store, "a").await;
    let before = store.load(claim.fiber).await.unwrap();
    assert_eq!((before.snapshot, before.number, before.args.as_str()), (None, 0, r#"{"n":1}"#));
    store.checkpoint(claim, snapshot(1)).await.unwrap();
    store.checkpoint(claim, snapshot(2)).await.unwrap();
    store.checkpoint(claim, snapshot(2)).await.unwrap_err();
    store.checkpoint(claim, snapshot(4)).await.unwrap_err();
    store.checkpoint(Claim { fiber: claim.fiber + 1, ..claim }, snapshot(1)).await.unwrap_err();
    let after = store.load(claim.fiber).await.unwrap();
    assert_eq!((after.snapshot.as_deref(), after.number), (Some(r#"{"n":2}"#), 2));
    assert_eq!(row(store, "a").await.at.as_deref(), Some("step"));
}

async fn keeps_each_layout_once(store: &impl Store) {
    let layout = |hash: &str| LayoutRow { hash: hash.into(), fiber: "work".into(), layout: "{}".into() };
    let (a, b) = (accept(store, "a").await, accept(store, "b").await);
    for claim in [a, b] {
        store.checkpoint(claim, NewSnapshot { layouts: Some(vec![layout("h1").into()]), ..snapshot(1) }).await.unwrap();
    }
    store.checkpoint(a, snapshot(2)).await.unwrap();
    assert_eq!(store.load(a.fiber).await.unwrap().layout, Some(layout("h1")));
    let called = ["h2", "h3", "h1"].map(|hash| layout(hash).into()).to_vec();
    store.checkpoint(b, NewSnapshot { layouts: Some(called), ..snapshot(2) }).await.unwrap();
    let loaded = store.load(b.fiber).await.unwrap();
    assert_eq!((loaded.layout, loaded.callees), (Some(layout("h2")), vec![layout("h3"), layout("h1")]));
    store.checkpoint(b, snapshot(3)).await.unwrap();
    assert_eq!(store.load(b.fiber).await.unwrap().callees.len(), 2);
    store.checkpoint(b, NewSnapshot { layouts: Some(vec![layout("h2").into()]), ..snapshot(4) }).await.unwrap();
    assert_eq!(store.load(b.fiber).await.unwrap().callees, []);
}

async fn keeps_parts_and_items_with_their_snapshot(store: &impl Store) {
    let part = |name: &str, text: &str| (name.to_owned(), text.into());
    let items = |log, first, texts: &[&str]| StreamAppend {
        name: log_stream(log).into(),
        first: Some(first),
        count: texts.len() as u64,
        data: texts.join("\n"),
        keep: None,
    };
    let first = (
        SnapshotDelta { parts: vec![part("a", "1"), part("1:a", "[2]"), part("b", "3")], ..SnapshotDelta::default() },
        StreamsDelta { appended: vec![items(0, 0, &["\"x\"", "\"y\""]), items(4, 0, &["7"])], ..StreamsDelta::default() },
    );
    let second = (
        SnapshotDelta { parts: vec![part("b", "33"), part("c", "4")], removed_parts: vec!["a".into(), "never".into()] },
        StreamsDelta { appended: vec![items(0, 2, &["\"z\""]), items(5, 0, &["null"])], removed: vec![log_stream(4), log_stream(9)] },
    );
    let (claim, other) = (accept(store, "a").await, accept(store, "b").await);
    assert_eq!(store.load(claim.fiber).await.unwrap().rows, SnapshotRows::default());
    let mut beside = SnapshotRows::default();
    for (n, (delta, streams)) in (1..).zip([first.clone(), second.clone()]) {
        beside.apply(&delta, &streams);
        store.checkpoint(claim, NewSnapshot { delta, streams, ..snapshot(n) }).await.unwrap();
        assert_eq!(store.load(claim.fiber).await.unwrap().rows, beside);
    }
    assert_eq!((beside.parts.len(), beside.logs[&0].len(), beside.logs.contains_key(&4)), (3, 3, false));
    // All or nothing, and of this fiber only.
    let with = |(delta, streams): (SnapshotDelta, StreamsDelta), n| NewSnapshot { delta, streams, ..snapshot(n) };
    store.checkpoint(claim, with(second, 9)).await.unwrap_err();
    let lost = (SnapshotDelta { removed_parts: vec!["b".into()], ..first.0 }, StreamsDelta { removed: vec![log_stream(0)], ..first.1 });
    store.checkpoint(claim, with(lost.clone(), 2)).await.unwrap_err();
    store.checkpoint(other, with(lost, 1)).await.unwrap();
    assert_eq!(store.load(claim.fiber).await.unwrap().rows, beside);

    store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 3).await.unwrap();
    assert_eq!(store.load(claim.fiber).await.unwrap().rows, beside);
    store.restart("a".into(), Restart::FromSnapshot, 4).await.unwrap();
    assert_eq!(store.load(claim.fiber).await.unwrap().rows, beside);
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 5).await.unwrap();
    store.restart("a".into(), Restart::FromStart, 6).await.unwrap();
    assert_eq!(store.load(claim.fiber).await.unwrap().rows, SnapshotRows::default());
    // The new run starts with no rows of the old one.
    let streams = StreamsDelta { appended: vec![items(0, 0, &["1"])], ..StreamsDelta::default() };
    let number = store.load(claim.fiber).await.unwrap().number + 1;
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.checkpoint(claim, NewSnapshot { streams, ..snapshot(number) }).await.unwrap();
    assert_eq!(store.load(claim.fiber).await.unwrap().rows.logs, [(0, vec!["1".into()])].into());
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 7).await.unwrap();
    assert_eq!(store.load(claim.fiber).await.unwrap().rows, SnapshotRows::default());
}

async fn ends_with_a_result_or_an_error(store: &impl Store) {
    let (done, failed) = (accept(store, "done").await, accept(store, "failed").await);
    for claim in [done, failed] {
        store.checkpoint(claim, snapshot(1)).await.unwrap();
    }
    store.end(done, End::Completed("[1]".into()), Vec::new(), Vec::new(), 3000).await.unwrap();
    store.end(failed, End::Failed("broken".into()), Vec::new(), Vec::new(), 3000).await.unwrap();
    // A fiber that has ended stays as it ended.
    store.suspend(done, Suspension::Interrupted("late".into()), 4000).await.unwrap_err();
    store.suspend(failed, Suspension::Interrupted("late".into()), 4000).await.unwrap_err();
    store.end(failed, End::Completed("late".into()), Vec::new(), Vec::new(), 4000).await.unwrap_err();

    let row_done = row(store, "done").await;
    assert_eq!((row_done.state, row_done.result.as_deref(), row_done.reason), (FiberState::Completed, Some("[1]"), None));
    assert_eq!(row_done.finished_ms, Some(3000));
    assert_eq!(store.load(done.fiber).await.unwrap().snapshot, None);
    let row_failed = row(store, "failed").await;
    assert_eq!((row_failed.state, row_failed.reason.as_deref()), (FiberState::Failed, Some("broken")));
    assert!(store.load(failed.fiber).await.unwrap().snapshot.is_some());
    assert!(unfinished(store).await.is_empty());
}

async fn counts_deaths_of_running_fibers_only(store: &impl Store) {
    let (ran, parked, stopped) = (accept(store, "ran").await, accept(store, "parked").await, accept(store, "stopped").await);
    store.suspend(parked, Suspension::Parked("why".into()), 1).await.unwrap();
    store.suspend(stopped, Suspension::Interrupted("closed".into()), 1).await.unwrap();
    store.take_over(SECOND, 2).await.unwrap();
    store.take_over(SECOND, 3).await.unwrap();
    assert_eq!(unfinished(store).await, [("ran".into(), 1), ("parked".into(), 0), ("stopped".into(), 0)]);
    assert_eq!(row(store, "ran").await.state, FiberState::Interrupted);
    assert_eq!(row(store, "parked").await.reason.as_deref(), Some("why"));

    let ran = claimed(store, ran.fiber, FIRST).await;
    assert_eq!((row(store, "ran").await.state, row(store, "ran").await.reason), (FiberState::Running, None));
    store.take_over(SECOND, 5).await.unwrap();
    assert_eq!(row(store, "ran").await.deaths, 2);
    let ran = claimed(store, ran.fiber, SECOND).await;
    store.checkpoint(ran, snapshot(1)).await.unwrap();
    assert_eq!(row(store, "ran").await.deaths, 0);
}

/// Many writes at once, so that they share transactions, one in ten of them wrong.
async fn keeps_what_others_do_together_apart<S: Store + 'static>(store: Arc<S>) {
    let claim = accept(&*store, "alone").await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..300_u64 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            if n % 10 == 0 {
                // Several statements, of which the last fails: none of them may stay.
                let layout = LayoutRow { hash: format!("h{n}"), fiber: "work".into(), layout: "{}".into() };
                store.checkpoint(claim, NewSnapshot { layouts: Some(vec![layout.into()]), ..snapshot(99) }).await.unwrap_err();
            } else {
                let claim = accept(&*store, &format!("f{n}")).await;
                store.checkpoint(claim, snapshot(1)).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let alone = store.load(claim.fiber).await.unwrap();
    assert_eq!((alone.number, alone.layout), (0, None));
    assert_eq!(store.unfinished(Seq::MIN, 1000).await.unwrap().len(), 271);
}

async fn refuses_everything_when_closed(store: &impl Store) {
    accept(store, "a").await;
    store.close(FIRST, 9).await.unwrap();
    assert!(store.accept(new("b", None)).await.unwrap_err().is_closed());
    assert!(store.find(FiberRef::Id("a".into())).await.unwrap_err().is_closed());
    assert!(store.close(FIRST, 10).await.unwrap_err().is_closed());
    store.abandon();
}

fn ids(fibers: &[Runnable]) -> Vec<&str> {
    fibers.iter().map(|f| f.id.as_str()).collect()
}

async fn wakes_what_is_due_and_nothing_else(store: &impl Store) {
    let until = |due_ms| Wait { due_ms: Some(due_ms), ..Wait::default() };
    let (a, b, c) = (accept(store, "a").await, accept(store, "b").await, accept(store, "c").await);
    assert_eq!(store.next_due().await.unwrap(), None);
    assert_eq!(store.wait(a, until(30), 10).await.unwrap(), WaitResult::Waiting);
    assert_eq!(store.wait(b, until(20), 10).await.unwrap(), WaitResult::Waiting);
    assert_eq!(store.wait(c, until(10), 10).await.unwrap(), WaitResult::Ready);
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

    // A death of the worker while the fiber waits, or before it is claimed, does not count for it.
    store.take_over(SECOND, 40).await.unwrap();
    assert_eq!((row(store, "a").await.deaths, row(store, "a").await.state), (0, FiberState::Pending));
}

pub(crate) fn message(to: &str, topic: &str, data: &str) -> NewMessage {
    NewMessage { to: to.to_owned(), id: None, topic: topic.to_owned(), data: data.to_owned(), now_ms: 50 }
}

/// Sends, and gives the ids of the fibers that became ready.
async fn sent(store: &impl Store, told: &mut ReadyReceiver, to: &str, topic: &str, data: &str) -> Vec<String> {
    assert!(matches!(store.send(message(to, topic, data)).await.unwrap(), CommandResult::Done(SendResult::Sent)));
    told.ids()
}

async fn groups_unfinished_fibers_and_wakes_those_that_wait(store: &impl Store) {
    let claims = [accept(store, "a").await, accept(store, "b").await, accept(store, "c").await];
    let [a, b, c] = claims.map(|claim| claim.fiber);
    for claim in &claims[..2] {
        let layouts = Some(vec![layout("h1"), layout("h2"), layout("h3")]);
        store.checkpoint(*claim, NewSnapshot { layouts, ..snapshot(1) }).await.unwrap();
    }
    store.wait(claims[1], Wait { topics: vec!["yes".into()], ..Wait::default() }, 10).await.unwrap();
    let ended = accept(store, "ended").await;
    store.end(ended, End::Completed("1".into()), Vec::new(), Vec::new(), 20).await.unwrap();
    let closure = NewFiber { closure: true, ..new("closure", None) };
    store.accept(closure).await.unwrap();

    let group = |waiting, stands: bool| UnfinishedGroup {
        name: "work".into(),
        waiting,
        at: stands.then(|| "step".into()),
        layout: stands.then(|| "h1".into()),
        callees: stands.then(|| "h2 h3".into()),
        mixed: false,
        fibers: 1,
    };
    let groups = store.unfinished_groups().await.unwrap();
    let all = [group(false, false), group(false, true), group(true, true)];
    assert_eq!(groups.len(), all.len(), "{groups:?}");
    for (group, fiber) in all.into_iter().zip([c, a, b]) {
        assert!(groups.contains(&group), "{group:?} in {groups:?}");
        assert_eq!(store.unfinished_of(group.clone(), Seq::MIN, 9).await.unwrap(), [fiber]);
        assert!(store.unfinished_of(group.clone(), fiber, 9).await.unwrap().is_empty());
        assert!(store.unfinished_of(group, Seq::MIN, 0).await.unwrap().is_empty());
    }

    let mut told = ReadyReceiver::by(store);
    store.wake(vec![a, b, c, 99], 30).await.unwrap();
    assert_eq!(told.ids(), ["b"]);
    assert_eq!((row(store, "a").await.state, row(store, "b").await.state), (FiberState::Running, FiberState::Pending));
    assert_eq!(sent(store, &mut told, "b", "yes", "1").await, [""; 0], "it waits no longer");
}

async fn keeps_messages_until_they_are_received(store: &impl Store) {
    let claim = accept(store, "a").await;
    let mut told = ReadyReceiver::by(store);
    let on = |topic: &str| Wait { topics: vec![topic.to_owned()], ..Wait::default() };
    assert_eq!(sent(store, &mut told, "a", "yes", "1").await, [""; 0]);
    assert_eq!(store.wait(claim, on("yes"), 10).await.unwrap(), WaitResult::Ready);
    assert_eq!(store.wait(claim, on("no"), 10).await.unwrap(), WaitResult::Waiting);
    assert_eq!(sent(store, &mut told, "a", "yes", "2").await, [""; 0]);
    assert_eq!(sent(store, &mut told, "a", "no", "3").await, ["a"]);
    assert_eq!(sent(store, &mut told, "a", "no", "4").await, [""; 0]);

    let claim = claimed(store, claim.fiber, FIRST).await;
    let first = next_message(store, claim.fiber, "yes").await.unwrap();
    assert_eq!(first.data, "1");
    assert_eq!(next_message(store, claim.fiber, "yes").await.unwrap(), first);
    store.checkpoint(claim, NewSnapshot { received: vec![first.seq], ..snapshot(1) }).await.unwrap();
    assert_eq!(next_message(store, claim.fiber, "yes").await.unwrap().data, "2");
    let refused = store.checkpoint(claim, NewSnapshot { received: vec![first.seq + 1], ..snapshot(9) }).await;
    assert!(refused.is_err());
    assert_eq!(next_message(store, claim.fiber, "yes").await.unwrap().data, "2");
    assert_eq!(next_message(store, claim.fiber, "maybe").await, None);

    assert!(matches!(store.send(message("b", "yes", "1")).await.unwrap(), CommandResult::NotFound));
    store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 60).await.unwrap();
    assert!(matches!(store.send(message("a", "yes", "1")).await.unwrap(), CommandResult::InvalidState(FiberState::Failed)));
    // A failed fiber may be resumed, and then it needs its messages.
    assert_eq!(next_message(store, claim.fiber, "yes").await.unwrap().data, "2");
    assert!(matches!(store.restart("a".into(), Restart::FromSnapshot, 70).await.unwrap(), CommandResult::Done(_)));
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 80).await.unwrap();
    assert_eq!(next_message(store, claim.fiber, "yes").await.unwrap().data, "2", "it stays readable");
}

async fn wakes_a_parent_when_all_its_children_have_ended(store: &impl Store) {
    let (parent, one, two) = (accept(store, "p").await, accept(store, "1").await, accept(store, "2").await);
    let both = Wait { fibers: vec!["1".into(), "2".into(), "unknown".into()], ..Wait::default() };
    assert_eq!(store.wait(parent, both.clone(), 10).await.unwrap(), WaitResult::Waiting);
    let mut told = ReadyReceiver::by(store);
    store.end(two, End::Completed("2".into()), Vec::new(), Vec::new(), 20).await.unwrap();
    assert_eq!(told.ids(), [""; 0]);
    store.end(one, End::Failed("1".into()), Vec::new(), Vec::new(), 30).await.unwrap();
    assert_eq!(told.ids(), ["p"]);
    let parent = claimed(store, parent.fiber, FIRST).await;
    assert_eq!(store.wait(parent, both, 40).await.unwrap(), WaitResult::Ready);
}

async fn wakes_a_fiber_at_the_first_of_several_things(store: &impl Store) {
    let parent = accept(store, "p").await;
    let children = [accept(store, "1").await, accept(store, "2").await];
    let first = Wait {
        due_ms: Some(100),
        topics: vec!["yes".into(), "no".into(), "yes".into()],
        fibers: vec!["1".into(), "2".into(), "1".into()],
        any_fiber: true,
    };
    let waits = async || {
        let claim = claimed(store, parent.fiber, FIRST).await;
        assert_eq!(store.wait(claim, first.clone(), 10).await.unwrap(), WaitResult::Waiting);
    };
    let mut told = ReadyReceiver::by(store);
    assert_eq!(store.wait(parent, first.clone(), 10).await.unwrap(), WaitResult::Waiting);
    assert_eq!(sent(store, &mut told, "p", "maybe", "0").await, [""; 0]);
    assert_eq!(sent(store, &mut told, "p", "no", "1").await, ["p"]);
    assert_eq!(sent(store, &mut told, "p", "yes", "2").await, [""; 0], "it waits no longer");

    // Messages that are there already end the wait before it begins.
    let claim = claimed(store, parent.fiber, FIRST).await;
    for (number, topic) in [(1, "yes"), (2, "no")] {
        assert_eq!(store.wait(claim, first.clone(), 10).await.unwrap(), WaitResult::Ready);
        let message = next_message(store, claim.fiber, topic).await.unwrap();
        store.checkpoint(claim, NewSnapshot { received: vec![message.seq], ..snapshot(number) }).await.unwrap();
    }
    assert_eq!(store.wait(claim, first.clone(), 10).await.unwrap(), WaitResult::Waiting);
    assert_eq!(store.next_due().await.unwrap(), Some(100));
    assert_eq!(store.take_due(100, 9).await.unwrap().len(), 1);
    assert_eq!(store.next_due().await.unwrap(), None);

    waits().await;
    store.end(children[1], End::Completed("2".into()), Vec::new(), Vec::new(), 20).await.unwrap();
    assert_eq!(told.ids(), ["p"], "one of them is enough");
    let claim = claimed(store, parent.fiber, FIRST).await;
    assert_eq!(store.wait(claim, first.clone(), 30).await.unwrap(), WaitResult::Ready, "one has ended");
    let other = Wait { fibers: vec!["1".into()], ..first.clone() };
    assert_eq!(store.wait(claim, other, 30).await.unwrap(), WaitResult::Waiting);
    assert_eq!(sent(store, &mut told, "p", "yes", "3").await, ["p"]);
    store.end(children[0], End::Completed("1".into()), Vec::new(), Vec::new(), 40).await.unwrap();
    assert_eq!(told.ids(), [""; 0], "it does not wait for it any more");
    let unknown = Wait { fibers: vec!["unknown".into(), "p".into()], any_fiber: true, ..Wait::default() };
    let claim = claimed(store, parent.fiber, FIRST).await;
    assert_eq!(store.wait(claim, unknown, 50).await.unwrap(), WaitResult::Ready);
}

async fn makes_children_with_the_checkpoint_or_not_at_all(store: &impl Store) {
    let parent = accept(store, "p").await;
    let child = |id: &str| NewFiber { parent: Some(parent.fiber), ..new(id, None) };
    let refused = store.checkpoint(parent, NewSnapshot { children: vec![child("c")], ..snapshot(7) }).await;
    assert!(refused.is_err());
    assert!(store.find(FiberRef::Id("c".into())).await.unwrap().is_none());
    let taken = store.checkpoint(parent, NewSnapshot { children: vec![child("c"), child("p")], ..snapshot(1) }).await;
    assert!(taken.is_err());
    assert!(store.find(FiberRef::Id("c".into())).await.unwrap().is_none());
    assert_eq!(row(store, "p").await.checkpoints, 0);

    let made = store.checkpoint(parent, NewSnapshot { children: vec![child("c"), child("d")], ..snapshot(1) }).await.unwrap();
    let stored = row(store, "c").await;
    assert_eq!((made.len(), made[0].fiber, stored.parent.as_deref(), stored.state), (2, stored.seq, Some("p"), FiberState::Running));
}

async fn cancels_a_fiber_and_all_below_it(store: &impl Store) {
    let top = accept(store, "top").await;
    let child = |id: &str, parent: Claim| NewFiber { parent: Some(parent.fiber), ..new(id, None) };
    let made = store.checkpoint(top, NewSnapshot { children: vec![child("mid", top)], ..snapshot(1) }).await.unwrap();
    let low = store.checkpoint(made[0], NewSnapshot { children: vec![child("low", made[0])], ..snapshot(1) }).await.unwrap();
    let (done, aside) = (accept(store, "aside").await, low[0]);
    store.wait(top, Wait { fibers: vec!["mid".into()], ..Wait::default() }, 10).await.unwrap();
    store.wait(aside, Wait { due_ms: Some(99), ..Wait::default() }, 10).await.unwrap();
    store.wait(done, Wait { fibers: vec!["low".into()], ..Wait::default() }, 10).await.unwrap();

    let mut told = ReadyReceiver::by(store);
    let CommandResult::Done(cancelled) = store.cancel("top".into(), "enough".into(), 20).await.unwrap() else { panic!() };
    assert_eq!(ids(&cancelled), ["top", "mid", "low"]);
    assert_eq!(cancelled[2].state, FiberState::Waiting);
    assert_eq!(told.ids(), ["aside"]);
    for (id, state) in [("top", FiberState::Cancelled), ("mid", FiberState::Running), ("low", FiberState::Cancelled)] {
        assert_eq!(row(store, id).await.state, state, "{id}");
    }
    assert_eq!(row(store, "low").await.reason.as_deref(), Some("enough"));
    assert_eq!(store.next_due().await.unwrap(), None);
    // It has been cancelled, so a running fiber can store no children.
    assert!(store.checkpoint(made[0], NewSnapshot { children: vec![child("late", made[0])], ..snapshot(2) }).await.is_err());
    assert!(store.find(FiberRef::Id("late".into())).await.unwrap().is_none());
    let ended = store.end(made[0], End::Completed("1".into()), Vec::new(), Vec::new(), 30).await.unwrap();
    assert_eq!(ended, End::Cancelled("enough".into()));
    assert!(matches!(store.cancel("mid".into(), "again".into(), 40).await.unwrap(), CommandResult::InvalidState(FiberState::Cancelled)));
    assert!(matches!(store.cancel("unknown".into(), "x".into(), 40).await.unwrap(), CommandResult::NotFound));
}

async fn lets_a_stopped_fiber_run_again(store: &impl Store) {
    let claim = accept(store, "a").await;
    assert!(matches!(
        store.restart("a".into(), Restart::FromSnapshot, 10).await.unwrap(),
        CommandResult::InvalidState(FiberState::Running)
    ));
    store.checkpoint(claim, snapshot(1)).await.unwrap();
    store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 20).await.unwrap();
    let mut told = ReadyReceiver::by(store);
    let again = store.restart("a".into(), Restart::FromSnapshot, 30).await.unwrap();
    assert!(matches!(again, CommandResult::Done(RestartResult::Ready)));
    assert_eq!(told.ids(), ["a"]);
    let stored = row(store, "a").await;
    assert_eq!((stored.state, stored.reason, stored.finished_ms, stored.checkpoints), (FiberState::Pending, None, None, 1));
    assert!(store.load(claim.fiber).await.unwrap().snapshot.is_some());

    let claim = claimed(store, claim.fiber, FIRST).await;
    store.suspend(claim, Suspension::Parked("no".into()), 40).await.unwrap();
    assert!(matches!(store.restart("a".into(), Restart::FromStart, 50).await.unwrap(), CommandResult::Done(_)));
    let loaded = store.load(claim.fiber).await.unwrap();
    // The count of checkpoints continues, so operations of the new run have other ids.
    assert_eq!((loaded.snapshot, loaded.layout, loaded.number), (None, None, 2));
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 60).await.unwrap();
    assert!(matches!(store.restart("a".into(), Restart::FromStart, 70).await.unwrap(), CommandResult::InvalidState(FiberState::Completed)));
}

async fn resolves_only_what_has_stopped(store: &impl Store) {
    let claim = accept(store, "a").await;
    let end = End::Completed("1".into());
    assert!(matches!(store.resolve("a".into(), end.clone(), 10).await.unwrap(), CommandResult::InvalidState(FiberState::Running)));
    assert!(matches!(store.resolve("b".into(), end.clone(), 10).await.unwrap(), CommandResult::NotFound));
    store.suspend(claim, Suspension::Interrupted("x".into()), 20).await.unwrap();
    assert!(matches!(store.resolve("a".into(), end.clone(), 30).await.unwrap(), CommandResult::Done(_)));
    assert!(matches!(store.resolve("a".into(), end, 40).await.unwrap(), CommandResult::InvalidState(FiberState::Completed)));
    assert_eq!(row(store, "a").await.result.as_deref(), Some("1"));
}

async fn keeps_branch_results_until_the_next_checkpoint(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.checkpoint(claim, snapshot(1)).await.unwrap();
    store.take_over(SECOND, 5).await.unwrap();
    let claim = claimed(store, claim.fiber, SECOND).await;
    let stored = async || store.load(claim.fiber).await.unwrap().branches;
    let c = branch_result("both[c]", None);
    store.save_branch(claim, 1, c.clone(), Vec::new(), 9).await.unwrap();
    assert_eq!(row(store, "a").await.deaths, 0);
    let a = branch_result("both[a]", Some(layout("l1")));
    store.save_branch(claim, 1, a.clone(), Vec::new(), 9).await.unwrap();
    assert_eq!(stored().await, [a, c]);
    store.end(claim, End::Failed("one of them".into()), Vec::new(), Vec::new(), 10).await.unwrap();
    assert!(matches!(store.restart("a".into(), Restart::FromSnapshot, 20).await.unwrap(), CommandResult::Done(_)));
    let claim = claimed(store, claim.fiber, SECOND).await;
    assert_eq!(stored().await.len(), 2);
    store.checkpoint(claim, NewSnapshot { joined: true, ..snapshot(2) }).await.unwrap();
    assert_eq!(stored().await, []);
}

/// As a step does that leaves memory between two attempts.
async fn replaces_a_snapshot_under_its_number(store: &impl Store) {
    let claim = accept(store, "a").await;
    let replacing = |number, data: &str| NewSnapshot {
        replaces: true,
        at: "ask pending",
        data: data.to_owned(),
        layouts: Some(vec![layout("l1")]),
        ..snapshot(number)
    };
    let begun = |id: &str| OpRecord {
        failed: 1,
        layout: Some(layout("l1")),
        ..OpRecord::begun(id.to_owned(), OpKind::Step, "work", "ask", None, Some(0))
    };
    store.save_op(claim, begun("x"), 1).await.unwrap();
    // Before the first checkpoint, too.
    store.checkpoint(claim, replacing(0, "{\"n\":\"x\"}")).await.unwrap();
    store.checkpoint(claim, replacing(1, "{}")).await.unwrap_err();
    let loaded = store.load(claim.fiber).await.unwrap();
    assert_eq!((loaded.number, loaded.snapshot.as_deref(), loaded.ops.len()), (0, Some("{\"n\":\"x\"}"), 1));
    store.checkpoint(claim, NewSnapshot { ops: ops::behind(vec![]), ..snapshot(1) }).await.unwrap();
    store.checkpoint(claim, replacing(0, "{}")).await.unwrap_err();
    store.checkpoint(claim, replacing(2, "{}")).await.unwrap_err();

    let of_other_code = OpRecord { layout: Some(layout("l2")), number: Some(1), ..begun("y") };
    store.save_op(claim, of_other_code.clone(), 1).await.unwrap();
    store.save_branch(claim, 1, branch_result("both[a]", Some(layout("l1"))), Vec::new(), 9).await.unwrap();
    store.checkpoint(claim, replacing(1, "{\"n\":\"y\"}")).await.unwrap();
    let wait = Wait { due_ms: Some(90), ..Wait::default() };
    assert_eq!(store.wait(claim, wait, 10).await.unwrap(), WaitResult::Waiting);
    let group = store.unfinished_groups().await.unwrap().remove(0);
    assert_eq!((group.waiting, group.at.as_deref(), group.mixed, group.fibers), (true, Some("ask pending"), true, 1));
    assert_eq!(store.unfinished_of(group.clone(), Seq::MIN, 9).await.unwrap(), [claim.fiber]);
    assert_eq!(store.unfinished_of(UnfinishedGroup { mixed: false, ..group }, Seq::MIN, 9).await.unwrap(), [] as [Seq; 0]);
    let loaded = store.load(claim.fiber).await.unwrap();
    assert_eq!((loaded.number, loaded.snapshot.as_deref()), (1, Some("{\"n\":\"y\"}")));
    assert_eq!((loaded.ops, loaded.branches.len()), (vec![of_other_code], 1));
    // Under the claim that the wait has released.
    store.checkpoint(claim, replacing(1, "{}")).await.unwrap_err();
}

async fn keeps_the_layouts_that_operations_and_branch_results_began_under(store: &impl Store) {
    let claim = accept(store, "a").await;
    let mixed = async || store.unfinished_groups().await.unwrap().iter().map(|group| group.mixed).collect::<Vec<_>>();
    store.checkpoint(claim, NewSnapshot { layouts: Some(vec![layout("l1"), layout("l2")]), ..snapshot(1) }).await.unwrap();
    let begun = |id: &str, of| OpRecord { layout: of, ..OpRecord::begun(id.to_owned(), OpKind::Effect, "work", "charge", None, Some(1)) };
    store.save_op(claim, begun("x", Some(layout("l1"))), 1).await.unwrap();
    store.save_op(claim, begun("y", Some(layout("l2"))), 1).await.unwrap();
    store.save_branch(claim, 1, branch_result("both[a]", Some(layout("l2"))), Vec::new(), 9).await.unwrap();
    assert_eq!(mixed().await, [false], "those of the snapshot and of the calls under way");
    store.save_branch(claim, 1, branch_result("both[b]", Some(layout("l3"))), Vec::new(), 9).await.unwrap();
    assert_eq!(mixed().await, [true]);
    let group = store.unfinished_groups().await.unwrap().remove(0);
    assert_eq!(store.unfinished_of(group.clone(), Seq::MIN, 9).await.unwrap(), [claim.fiber]);
    assert_eq!(store.unfinished_of(UnfinishedGroup { mixed: false, ..group }, Seq::MIN, 9).await.unwrap(), [] as [Seq; 0]);
    store.checkpoint(claim, NewSnapshot { joined: true, ..snapshot(2) }).await.unwrap();
    assert_eq!(mixed().await, [false], "what is behind an earlier checkpoint does not count");
    let later = OpRecord { number: Some(2), ..begun("z", Some(layout("l4"))) };
    store.save_op(claim, later.clone(), 1).await.unwrap();
    assert_eq!(mixed().await, [true]);
    let loaded = store.load(claim.fiber).await.unwrap();
    assert_eq!(loaded.ops, [later]);
}

fn branch_result(branch: &str, layout: Option<Arc<LayoutRow>>) -> BranchResult {
    BranchResult { branch: branch.to_owned(), data: "1".to_owned(), layout }
}

fn layout(hash: &str) -> Arc<LayoutRow> {
    Arc::new(LayoutRow { hash: hash.to_owned(), fiber: "work".to_owned(), layout: format!("{{\"of\":\"{hash}\"}}") })
}

async fn keeps_the_last_stash(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.take_over(SECOND, 10).await.unwrap();
    assert_eq!(row(store, "a").await.deaths, 1);
    let claim = claimed(store, claim.fiber, SECOND).await;
    for stash in ["1", "2"] {
        store.stash(claim, stash.to_owned(), 20).await.unwrap();
    }
    assert_eq!(store.load(claim.fiber).await.unwrap().snapshot.as_deref(), Some("2"));
    assert_eq!(row(store, "a").await.deaths, 0);
}

async fn lists_by_page_and_deletes_what_has_ended(store: &impl Store) {
    for id in ["a", "b", "c", "d", "e"] {
        let claim = accept(store, id).await;
        match id {
            "a" | "c" => drop(store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 100).await.unwrap()),
            "d" => drop(store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 200).await.unwrap()),
            _ => {}
        }
    }
    let list = async |which: FiberQuery, after, limit| {
        let rows = store.list(which, after, limit).await.unwrap();
        (rows.iter().map(|r| r.id.clone()).collect::<String>(), rows.last().map_or(0, |r| r.seq))
    };
    let (first, after) = list(FiberQuery::default(), Seq::MIN, 3).await;
    assert_eq!((first.as_str(), list(FiberQuery::default(), after, 3).await.0.as_str()), ("abc", "de"));
    let states = |states: &[FiberState]| FiberQuery { states: states.to_vec(), ..FiberQuery::default() };
    assert_eq!(list(states(&[FiberState::Completed]), Seq::MIN, 9).await.0, "ac");
    assert_eq!(list(states(&[FiberState::Running, FiberState::Failed]), Seq::MIN, 9).await.0, "bde");
    assert_eq!(list(FiberQuery { name: Some("other".into()), ..FiberQuery::default() }, Seq::MIN, 9).await.0, "");

    let ended = FiberQuery { ended_before_ms: Some(150), ..states(&[FiberState::Completed, FiberState::Failed]) };
    let delete = async |query: FiberQuery, limit| {
        let deletion = Deletion { query, limit, ..Deletion::default() };
        let DeleteResult { count: deleted, held, .. } = store.delete(deletion).await.unwrap();
        (deleted, held)
    };
    assert_eq!(delete(ended.clone(), 1).await, (1, 0));
    assert_eq!(delete(ended.clone(), 9).await, (1, 0));
    assert_eq!(delete(ended, 9).await, (0, 0));
    assert_eq!(list(FiberQuery::default(), Seq::MIN, 9).await.0, "bde");
    // Fibers that have not ended stay, whatever the query.
    assert_eq!(delete(states(&[FiberState::Running]), 9).await, (0, 0));
}

async fn remembers_the_keys_of_what_was_deleted(store: &impl Store) {
    let given = |id: &str, key| NewFiber { id_given: true, ..new(id, key) };
    for fiber in [given("id", None), new("made", Some("k")), new("neither", None), given("open", Some("o"))] {
        let id = fiber.id.clone();
        let AcceptResult::Created(seq) = store.accept(fiber).await.unwrap() else { panic!("{id}") };
        if id != "open" {
            store.end(seq, End::Completed("1".into()), Vec::new(), Vec::new(), 100).await.unwrap();
        }
    }
    let all =
        || Deletion { query: FiberQuery { states: vec![FiberState::Completed], ..FiberQuery::default() }, limit: 2, ..Deletion::default() };
    let first = store.delete(Deletion { tombstone_ms: Some(500), ..all() }).await.unwrap();
    assert_eq!((first.count, first.held), (2, 0));
    let second = store.delete(Deletion { tombstone_ms: Some(500), after: first.next, ..all() }).await.unwrap();
    assert_eq!((second.count, second.next), (1, None));
    for which in [FiberRef::Id("neither".into()), FiberRef::Id("open".into()), FiberRef::Key("o".into())] {
        assert_eq!(store.tombstone(which).await.unwrap(), None);
    }
    let past = store.tombstone(FiberRef::Key("k".into())).await.unwrap().unwrap();
    assert_eq!((past.id.as_str(), past.name.as_str(), past.state, past.finished_ms), ("made", "work", FiberState::Completed, 100));
    assert_eq!(past.args, super::arguments_digest(r#"{"n":1}"#));
    for again in [given("id", None), new("other", Some("k")), given("other", Some("k"))] {
        assert!(matches!(store.accept(again).await.unwrap(), AcceptResult::Deleted(_)));
    }
    // Not before its time; then it is as if it had never existed.
    assert_eq!(store.delete_tombstones(Deletion { limit: 9, ..Deletion::default() }, Some(500)).await.unwrap(), 0);
    let named =
        |name: &str| Deletion { query: FiberQuery { name: Some(name.into()), ..FiberQuery::default() }, limit: 1, ..Deletion::default() };
    assert_eq!(store.delete_tombstones(named("other"), Some(501)).await.unwrap(), 0);
    assert_eq!(store.delete_tombstones(named("work"), Some(501)).await.unwrap(), 1);
    assert_eq!(store.delete_tombstones(named("work"), None).await.unwrap(), 1);
    assert!(matches!(store.accept(given("id", Some("k"))).await.unwrap(), AcceptResult::Created(_)));
}
