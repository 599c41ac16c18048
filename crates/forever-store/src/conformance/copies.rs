//! Copies of fibers, and changes of what a stopped fiber has stored.
use std::sync::Arc;

use super::claims::seen;
use super::{FIRST, ReadyReceiver, SECOND, accept, claimed, new, row, snapshot};
use crate::{
    AcceptResult, BranchResult, Claim, ClaimResult, CommandResult, Deletion, End, FiberCopy, FiberEdit, FiberQuery, FiberState, HISTORY,
    LayoutRow, NewFiber, NewSnapshot, OpKind, OpRecord, OpState, PendingMessage, SnapshotCopy, SnapshotDelta, Store, StreamAppend,
    Suspension, Wait, log_stream, op_stream,
};

pub(super) async fn run<S: Store>(make: &impl AsyncFn() -> S) {
    changes_what_a_stopped_fiber_resumes_from(&make().await).await;
    changes_no_fiber_that_runs_or_has_run_meanwhile(&make().await).await;
    stores_a_copy_with_all_that_belongs_to_it(&make().await).await;
    stores_copies_of_what_has_ended(&make().await).await;
    stores_a_copy_once(&make().await).await;
}

fn record(text: &str) -> StreamAppend {
    StreamAppend { name: HISTORY.into(), first: None, count: 1, data: format!("\"{text}\""), keep: None }
}

fn edit(seen: Claim) -> FiberEdit {
    FiberEdit {
        seen,
        args: None,
        snapshot: Some("{\"edited\":1}".into()),
        removed_parts: vec!["a".into(), "never".into()],
        record: record("edit"),
        now_ms: 9,
    }
}

async fn history(store: &impl Store, claim: Claim) -> Vec<String> {
    let batches = store.stream(claim.fiber, HISTORY.into(), 0, 100).await.unwrap();
    batches.iter().flat_map(|batch| batch.data.lines().map(str::to_owned)).collect()
}

async fn changes_what_a_stopped_fiber_resumes_from(store: &impl Store) {
    let claim = accept(store, "a").await;
    let delta = SnapshotDelta { parts: vec![("a".into(), "1".into()), ("b".into(), "2".into())], ..SnapshotDelta::default() };
    let mut first = NewSnapshot { delta, ..snapshot(1) };
    first.streams.appended.push(record("one"));
    store.checkpoint(claim, first).await.unwrap();
    for (number, stop) in [(2, "parked"), (3, "failed"), (4, "waiting"), (5, "interrupted")] {
        let claim = Claim { epoch: store.claim_of(claim.fiber).await.unwrap().unwrap().epoch, ..claim };
        let claim = if row(store, "a").await.state == FiberState::Running { claim } else { claimed(store, claim.fiber, FIRST).await };
        match stop {
            "parked" => drop(store.suspend(claim, Suspension::Parked("why".into()), 2).await.unwrap()),
            "failed" => drop(store.end(claim, End::Failed("why".into()), Vec::new(), Vec::new(), 2).await.unwrap()),
            "interrupted" => drop(store.suspend(claim, Suspension::Interrupted("why".into()), 2).await.unwrap()),
            _ => drop(store.wait(claim, Wait { topics: vec!["go".into()], ..Wait::default() }, 2).await.unwrap()),
        }
        let claim = seen(store, claim.fiber).await;
        let before = row(store, "a").await;
        assert_eq!(before.state.as_str(), stop);
        let text = format!("{{\"edited\":{number}}}");
        let changed = store.edit(FiberEdit { snapshot: Some(text.clone()), ..edit(claim) }).await.unwrap();
        assert!(matches!(changed, CommandResult::Done(true)), "{stop}: {changed:?}");
        let (after, loaded) = (row(store, "a").await, store.load(claim.fiber).await.unwrap());
        assert_eq!((after.state, after.reason, after.wait, after.at), (before.state, before.reason, before.wait, before.at), "{stop}");
        assert_eq!((loaded.snapshot, loaded.number, loaded.args.as_str()), (Some(text), 1, r#"{"n":1}"#));
        assert_eq!(loaded.rows.parts, [("b".to_owned(), Arc::from("2"))].into(), "the other part stays");
        assert!(loaded.epoch > claim.epoch, "{stop}: who has loaded it as it was must not run it");
        assert!(matches!(store.claim(claim, SECOND, 3).await.unwrap(), ClaimResult::Refused));
        if stop == "failed" {
            store.restart("a".into(), crate::Restart::FromSnapshot, 3).await.unwrap();
        } else if stop == "waiting" {
            store.wake(vec![claim.fiber], 3).await.unwrap();
        }
    }
    assert_eq!(history(store, claim).await, ["\"one\"", "\"edit\"", "\"edit\"", "\"edit\"", "\"edit\""]);
    // The next activation goes on from it.
    let claim = claimed(store, claim.fiber, SECOND).await;
    store.checkpoint(claim, snapshot(2)).await.unwrap();

    let early = accept(store, "early").await;
    store.suspend(early, Suspension::Parked("why".into()), 2).await.unwrap();
    let early = seen(store, early.fiber).await;
    let arguments = FiberEdit { args: Some("{\"n\":2}".into()), snapshot: None, removed_parts: Vec::new(), ..edit(early) };
    assert!(matches!(store.edit(arguments).await.unwrap(), CommandResult::Done(true)));
    let loaded = store.load(early.fiber).await.unwrap();
    assert_eq!((loaded.args.as_str(), loaded.snapshot), ("{\"n\":2}", None));
}

async fn changes_no_fiber_that_runs_or_has_run_meanwhile(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.checkpoint(claim, snapshot(1)).await.unwrap();
    let refused = store.edit(edit(claim)).await.unwrap();
    assert!(matches!(refused, CommandResult::InvalidState(FiberState::Running)), "{refused:?}");
    store.suspend(claim, Suspension::Parked("why".into()), 2).await.unwrap();
    let again = claimed(store, claim.fiber, FIRST).await;
    store.suspend(again, Suspension::Parked("why".into()), 2).await.unwrap();
    assert!(matches!(store.edit(edit(claim)).await.unwrap(), CommandResult::Done(false)), "it has run since");
    for (id, end) in [("done", End::Completed("1".into())), ("cancelled", End::Cancelled("why".into()))] {
        let ended = accept(store, id).await;
        store.end(ended, end, Vec::new(), Vec::new(), 2).await.unwrap();
        assert!(matches!(store.edit(edit(ended)).await.unwrap(), CommandResult::InvalidState(_)), "{id}");
    }
    let unknown = Claim { fiber: claim.fiber + 100, ..claim };
    assert!(matches!(store.edit(edit(unknown)).await.unwrap(), CommandResult::NotFound));
    assert_eq!(store.load(claim.fiber).await.unwrap().snapshot.as_deref(), Some("{\"n\":1}"));
    assert_eq!(history(store, claim).await, [""; 0]);
}

fn layout(hash: &str) -> LayoutRow {
    LayoutRow { hash: hash.to_owned(), fiber: "work".to_owned(), layout: "{}".to_owned() }
}

fn copy(id: &str) -> FiberCopy {
    let completed = OpRecord {
        state: OpState::Completed,
        outcome: Some("7".into()),
        layout: Some(Arc::new(layout("of op"))),
        ..OpRecord::begun("paid".into(), OpKind::Effect, "work", "pay", None, Some(3))
    };
    let under_way =
        OpRecord { failed: 2, stash: Some("[1]".into()), ..OpRecord::begun("step".into(), OpKind::Step, "work", "try", None, Some(3)) };
    let earlier = OpRecord { number: Some(1), id: "earlier".into(), ..completed.clone() };
    let items = |name: String, data: &str| StreamAppend {
        name: name.into(),
        first: Some(0),
        count: data.lines().count() as u64,
        data: data.to_owned(),
        keep: None,
    };
    FiberCopy {
        fiber: NewFiber { worker: Some(FIRST), ..new(id, None) },
        state: FiberState::Pending,
        reason: None,
        result: None,
        restarts: 2,
        number: 3,
        snapshot: Some(SnapshotCopy {
            at: "third".into(),
            data: "{\"n\":3}".into(),
            layout: Some(layout("l")),
            callees: vec![layout("c1"), layout("c2")],
        }),
        ops: vec![completed, under_way, earlier],
        branches: vec![BranchResult { branch: "both[a]".into(), data: "1".into(), layout: Some(Arc::new(layout("of branch"))) }],
        streams: vec![
            items(op_stream(Some(3), "step"), "1\n2"),
            items(log_stream(4), "\"x\""),
            items(HISTORY.to_owned(), "\"one\"\n\"two\""),
        ],
        messages: ["go", "stop"].map(|topic| PendingMessage { seq: 0, topic: topic.into(), data: "1".into(), sent_ms: 5 }).into(),
        closed: vec![("over".into(), 2)],
    }
}

async fn stores_a_copy_with_all_that_belongs_to_it(store: &impl Store) {
    let mut ready = ReadyReceiver::by(store);
    let AcceptResult::Created(claim) = store.import(copy("copy")).await.unwrap() else { panic!("it is new") };
    assert_eq!(ready.next().await, "copy");
    let there = row(store, "copy").await;
    assert_eq!((there.state, there.checkpoints, there.at.as_deref(), there.deaths), (FiberState::Pending, 3, Some("third"), 0));
    let loaded = store.load(claim.fiber).await.unwrap();
    assert_eq!((loaded.snapshot.as_deref(), loaded.number, loaded.restarts), (Some("{\"n\":3}"), 3, 2));
    assert_eq!((loaded.layout, loaded.callees), (Some(layout("l")), vec![layout("c1"), layout("c2")]));
    assert_eq!(loaded.rows.logs, [(4, vec![Arc::from("\"x\"")])].into());
    assert_eq!(loaded.branches, copy("copy").branches);
    let mut ops = loaded.ops;
    ops.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(ops, copy("copy").ops[..2], "those that began behind its checkpoint");
    let ledger: Vec<String> = store.ops(claim.fiber).await.unwrap().into_iter().map(|op| op.record.id).collect();
    assert_eq!(ledger, ["earlier", "paid"]);
    assert_eq!(store.stream(claim.fiber, op_stream(Some(3), "step"), 0, 9).await.unwrap()[0].data, "1\n2");
    assert_eq!(history(store, claim).await, ["\"one\"", "\"two\""]);
    let messages = store.pending_messages("copy".into(), i64::MIN, 9).await.unwrap();
    let messages: Vec<_> = messages.iter().map(|message| (message.topic.as_str(), message.sent_ms)).collect();
    assert_eq!(messages, [("go", 5), ("stop", 5)]);
    let topics: Vec<_> = store.topics("copy".into()).await.unwrap().into_iter().map(|t| (t.topic, t.unread, t.closed)).collect();
    assert_eq!(topics, [("go".into(), 1, None), ("over".into(), 0, Some(2)), ("stop".into(), 1, None)]);
    assert_eq!(store.layouts(vec!["c2".into(), "none".into(), "l".into()]).await.unwrap(), [layout("c2"), layout("l")]);

    // It runs as any other, and what it appends follows.
    let claim = claimed(store, claim.fiber, SECOND).await;
    let mut next = snapshot(4);
    next.streams.appended.push(record("three"));
    store.checkpoint(claim, next).await.unwrap();
    assert_eq!(history(store, claim).await, ["\"one\"", "\"two\"", "\"three\""]);
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 20).await.unwrap();
    let query = FiberQuery { states: vec![FiberState::Completed], ..FiberQuery::default() };
    let deleted = store.delete(Deletion { query, limit: 9, ..Deletion::default() }).await.unwrap();
    assert_eq!(deleted.count, 1);
}

async fn stores_copies_of_what_has_ended(store: &impl Store) {
    let mut ready = ReadyReceiver::by(store);
    let completed =
        FiberCopy { state: FiberState::Completed, result: Some("8".into()), snapshot: None, branches: Vec::new(), ..copy("done") };
    let failed = FiberCopy { state: FiberState::Failed, reason: Some("no".into()), ..copy("failed") };
    let AcceptResult::Created(done) = store.import(completed).await.unwrap() else { panic!("it is new") };
    store.import(failed).await.unwrap();
    assert_eq!(ready.ids(), [""; 0]);
    let there = row(store, "done").await;
    assert_eq!((there.state, there.result.as_deref(), there.finished_ms), (FiberState::Completed, Some("8"), Some(1000)));
    assert_eq!(store.claim_of(done.fiber).await.unwrap(), None);
    assert_eq!(history(store, done).await, ["\"one\"", "\"two\""]);
    assert_eq!(row(store, "failed").await.reason.as_deref(), Some("no"));
    store.restart("failed".into(), crate::Restart::FromSnapshot, 3).await.unwrap();
    assert_eq!(ready.next().await, "failed");
}

async fn stores_a_copy_once(store: &impl Store) {
    assert!(matches!(store.import(copy("a")).await.unwrap(), AcceptResult::Created(_)));
    assert!(matches!(store.import(copy("a")).await.unwrap(), AcceptResult::Existing(row) if row.id == "a"));
    let with_key = |id: &str| FiberCopy { fiber: new(id, Some("k")), ..copy(id) };
    assert!(matches!(store.import(with_key("b")).await.unwrap(), AcceptResult::Created(_)));
    assert!(matches!(store.import(with_key("c")).await.unwrap(), AcceptResult::Existing(row) if row.id == "b"));
    assert_eq!(store.pending_messages("a".into(), i64::MIN, 9).await.unwrap().len(), 2, "nothing was added to it");
}
