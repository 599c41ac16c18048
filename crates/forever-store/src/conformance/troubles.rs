//! What is wrong, in short rows of many fibers.
use super::{accept, message, new, ops, row};
use crate::{
    AcceptResult, Claim, End, FiberQuery, FiberState, LONGEST_QUEUE, NewFiber, OpKind, OpRecord, OpRetry, OpState, REASON, Seq, Store,
    Suspension, Wait,
};

async fn fails(store: &impl Store, id: &str, why: &str, now_ms: i64) -> Seq {
    let claim = accept(store, id).await;
    store.end(claim, End::Failed(why.into()), Vec::new(), Vec::new(), now_ms).await.unwrap();
    claim.fiber
}

pub(super) async fn lists_why_fibers_stopped(store: &impl Store) {
    let long = "é".repeat(REASON as usize + 1);
    let a = fails(store, "a", "no", 100).await;
    let b = fails(store, "b", &long, 90).await;
    let parked = accept(store, "c").await;
    store.suspend(parked, Suspension::Parked("in doubt".into()), 110).await.unwrap();
    let AcceptResult::Created(other) = store.accept(NewFiber { name: "play".into(), ..new("d", None) }).await.unwrap() else { panic!() };
    store.end(other, End::Failed("no".into()), Vec::new(), Vec::new(), 120).await.unwrap();
    let stops = async |name: &str, state, limit| {
        let rows = store.stops(name.into(), state, limit).await.unwrap();
        rows.into_iter().map(|row| (row.seq, row.reason.unwrap_or_default(), row.changed_ms)).collect::<Vec<_>>()
    };
    let shortened = (b, long.chars().take(REASON as usize).collect(), 90);
    assert_eq!(stops("work", FiberState::Failed, 9).await, [shortened.clone(), (a, "no".into(), 100)]);
    assert_eq!(stops("work", FiberState::Failed, 1).await, [shortened]);
    assert_eq!(stops("work", FiberState::Parked, 9).await, [(parked.fiber, "in doubt".into(), 110)]);
    assert_eq!(stops("work", FiberState::Completed, 9).await, []);
    assert_eq!(stops("play", FiberState::Failed, 9).await, [(other.fiber, "no".into(), 120)]);
}

/// Stores a failed attempt of the step under way.
async fn retries(store: &impl Store, claim: Claim, op: &str, failed: u32, next_ms: i64, now_ms: i64) {
    let retry = OpRetry { error: format!("error {failed}"), next_ms };
    let record = OpRecord { failed, retry: Some(retry), state: OpState::Started, ..ops::record(op, OpKind::Step) };
    store.save_op(claim, record, now_ms).await.unwrap();
}

pub(super) async fn lists_retried_steps(store: &impl Store) {
    let (a, b, c) = (accept(store, "a").await, accept(store, "b").await, accept(store, "c").await);
    let ended = accept(store, "d").await;
    retries(store, a, "op-a", 1, 500, 100).await;
    retries(store, a, "op-a", 2, 900, 200).await;
    retries(store, b, "op-b", 1, 800, 300).await;
    retries(store, ended, "op-d", 1, 850, 300).await;
    // One that is retried no more, and one whose step is over.
    store.end(ended, End::Failed("error 2".into()), Vec::new(), Vec::new(), 400).await.unwrap();
    retries(store, c, "op-c", 1, 700, 300).await;
    store.checkpoint(c, super::snapshot(1)).await.unwrap();
    let listed = async |looked_at| {
        let mut rows = store.retries(looked_at).await.unwrap();
        rows.sort_by_key(|row| row.seq);
        rows.into_iter().map(|row| (row.seq, row.error, row.started_ms, row.changed_ms)).collect::<Vec<_>>()
    };
    let (of_a, of_b) = ((a.fiber, "error 2".to_owned(), 100, 200), (b.fiber, "error 1".to_owned(), 300, 300));
    assert_eq!(listed(9).await, [of_a.clone(), of_b]);
    assert_eq!(listed(2).await, [of_a], "the one that has failed was looked at");
    let of_b = store.retries(9).await.unwrap().into_iter().find(|row| row.seq == b.fiber).unwrap();
    assert_eq!((&*of_b.name, &*of_b.step), ("work", "charge"));
    let query = FiberQuery { only_retrying: true, ..FiberQuery::default() };
    let found = store.list(query, Seq::MIN, 9).await.unwrap();
    // The number of failed attempts stays with a fiber that has failed.
    assert_eq!(found.iter().map(|row| &*row.id).collect::<String>(), "abd");
    assert!(found.iter().all(|row| row.retry.is_some()));
}

pub(super) async fn lists_queues_of_messages(store: &impl Store) {
    let (a, b, c) = (accept(store, "a").await, accept(store, "b").await, accept(store, "c").await);
    for (to, messages) in [("a", 3), ("b", 2), ("c", 5), ("b", 2)] {
        for n in 0..messages {
            store.send(crate::NewMessage { now_ms: 100 + n, ..message(to, "more", "1") }).await.unwrap();
        }
    }
    let wait = Wait { topics: vec!["another".into()], ..Wait::default() };
    store.wait(a, wait, 110).await.unwrap();
    // Nothing receives them any more.
    store.end(c, End::Completed("1".into()), Vec::new(), Vec::new(), 200).await.unwrap();
    let queues = async |looked_at, least, limit| {
        let rows = store.queues(looked_at, least, limit).await.unwrap();
        rows.into_iter().map(|row| (row.seq, row.messages, row.first_ms, row.last_ms)).collect::<Vec<_>>()
    };
    let (of_a, of_b) = ((a.fiber, 3, 100, 102), (b.fiber, 4, 100, 101));
    assert_eq!(queues(99, 3, 9).await, [of_b, of_a]);
    assert_eq!(queues(99, 4, 9).await, [of_b]);
    assert_eq!(queues(99, 1, 1).await, [of_b]);
    assert_eq!(queues(2, 2, 9).await, [of_b], "all of its messages are counted");
    assert_eq!(queues(2, 3, 9).await, []);
    assert_eq!(row(store, "a").await.state, FiberState::Waiting);
    let long = with_too_many(store).await;
    assert_eq!(queues(9_999, 100, 9).await.iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(), [(long, u64::from(LONGEST_QUEUE))]);
}

/// A fiber with more messages than are counted.
async fn with_too_many(store: &impl Store) -> Seq {
    let long = accept(store, "long").await;
    for _ in 0..LONGEST_QUEUE + 2 {
        store.send(message("long", "more", "1")).await.unwrap();
    }
    long.fiber
}
