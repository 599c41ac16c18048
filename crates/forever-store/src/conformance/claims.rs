//! Claims: two workers over one store.
use std::sync::Arc;

use super::{FIRST, ReadyReceiver, SECOND, accept, branch_result, claimed, message, new, next_message, row, snapshot};
use crate::error::{ErrorKind, Result};
use crate::{
    AcceptResult, Claim, ClaimResult, CommandResult, End, FiberState, LoadedFiber, NewFiber, NewMessage, NewSnapshot, OpKind, OpRecord,
    OpState, ResolvedOp, Restart, RestartResult, SendResult, Seq, SnapshotDelta, Store, Suspension, Wait,
};

pub(super) async fn run<S: Store + 'static>(make: &impl AsyncFn() -> S) {
    numbers_workers(&make().await).await;
    gives_a_fiber_to_one_worker(&make().await).await;
    claims_what_was_looked_at_and_nothing_else(&make().await).await;
    gives_what_is_stored_with_the_claim(&make().await).await;
    refuses_what_was_loaded_before_another_activation(&make().await).await;
    refuses_every_write_of_a_lost_claim(&make().await).await;
    refuses_what_is_left_of_an_activation_that_has_stopped(&make().await).await;
    says_whether_a_fiber_was_interrupted(&make().await).await;
    ends_a_claim_with_every_command(&make().await).await;
    takes_over_from_others_only(&make().await).await;
    restarts_a_claimed_fiber(&make().await).await;
    ends_what_was_told_to_end(&make().await).await;
    tells_of_what_becomes_ready(&make().await).await;
    stores_a_message_with_an_id_once(&make().await).await;
    lists_and_discards_messages(&make().await).await;
    runs_each_fiber_once_between_two_workers(Arc::new(make().await)).await;
}

async fn numbers_workers(store: &impl Store) {
    let (one, two) = (store.join(1).await.unwrap(), store.join(2).await.unwrap());
    let three = store.join(4).await.unwrap();
    assert!(one < two && two < three, "{one} {two} {three}: the number of a worker that is gone is not given again");
}

/// A fiber that is ready.
async fn ready(store: &impl Store, id: &str) -> Claim {
    match store.accept(NewFiber { worker: None, ..new(id, None) }).await.unwrap() {
        AcceptResult::Created(seen) => seen,
        there => panic!("{there:?}"),
    }
}

/// Where a fiber could be claimed as it stands now.
pub(super) async fn seen(store: &impl Store, fiber: Seq) -> Claim {
    Claim { fiber, epoch: store.claim_of(fiber).await.unwrap().unwrap().epoch }
}

pub(super) fn is_lost<T: std::fmt::Debug>(stored: Result<T>) -> bool {
    stored.unwrap_err().kind() == ErrorKind::ClaimLost
}

async fn gives_a_fiber_to_one_worker(store: &impl Store) {
    let seen = ready(store, "a").await;
    assert_eq!(row(store, "a").await.state, FiberState::Pending);
    let listed: Vec<String> = store.ready(Seq::MIN, 9).await.unwrap().into_iter().map(|fiber| fiber.id).collect();
    assert_eq!(listed, ["a"]);

    let ClaimResult::Granted(claim, loaded) = store.claim(seen, FIRST, 5).await.unwrap() else { panic!() };
    assert!(claim.epoch > seen.epoch);
    assert_eq!((loaded.epoch, loaded.interrupted), (claim.epoch, false));
    assert_eq!(row(store, "a").await.state, FiberState::Running);
    assert!(store.ready(Seq::MIN, 9).await.unwrap().is_empty());
    for now_seen in [seen, claim] {
        assert_eq!(store.claim(now_seen, SECOND, 6).await.unwrap(), ClaimResult::Refused, "it is the first worker's");
    }
    // Its own worker may begin it again, where it could not store that it was interrupted.
    let ClaimResult::Granted(later, _) = store.claim(claim, FIRST, 7).await.unwrap() else { panic!() };
    assert!(is_lost(store.checkpoint(claim, snapshot(1)).await));
    store.checkpoint(later, snapshot(1)).await.unwrap();
}

async fn claims_what_was_looked_at_and_nothing_else(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.wait(claim, Wait { due_ms: Some(99), ..Wait::default() }, 10).await.unwrap();
    let waiting = seen(store, claim.fiber).await;
    assert!(waiting.epoch > claim.epoch, "the claim is released");
    assert_eq!(store.claim(waiting, FIRST, 11).await.unwrap(), ClaimResult::Refused, "it waits");
    let due = store.take_due(99, 9).await.unwrap().remove(0);
    assert_eq!(store.claim(claim, FIRST, 11).await.unwrap(), ClaimResult::Refused, "it has waited since");
    let ready = Claim { epoch: due.epoch, ..claim };
    let ClaimResult::Granted(second, _) = store.claim(ready, SECOND, 12).await.unwrap() else { panic!() };
    store.suspend(second, Suspension::Parked("x".into()), 13).await.unwrap();
    for old in [claim, ready, second] {
        assert_eq!(store.claim(old, FIRST, 14).await.unwrap(), ClaimResult::Refused, "it was claimed or released since");
    }
    let parked = seen(store, claim.fiber).await;
    store.suspend(parked, Suspension::Parked("x".into()), 14).await.unwrap();
    assert_eq!(seen(store, claim.fiber).await, parked, "there was no claim to release");
    let ClaimResult::Granted(third, _) = store.claim(parked, FIRST, 15).await.unwrap() else { panic!() };
    store.end(third, End::Failed("no".into()), Vec::new(), Vec::new(), 16).await.unwrap();
    assert_eq!(store.claim(third, FIRST, 17).await.unwrap(), ClaimResult::Refused, "it has ended");
    assert_eq!(store.claim(Claim { fiber: 99, epoch: 0 }, FIRST, 18).await.unwrap(), ClaimResult::Refused);
}

/// What an activation runs from is of the moment of its claim, whatever it has looked at before.
async fn gives_what_is_stored_with_the_claim(store: &impl Store) {
    let claim = accept(store, "a").await;
    let delta = SnapshotDelta { parts: vec![("part".into(), "1".into())], ..SnapshotDelta::default() };
    store.checkpoint(claim, NewSnapshot { delta, ..snapshot(1) }).await.unwrap();
    store.save_branch(claim, 1, branch_result("both[x]", None), Vec::new(), 2).await.unwrap();
    let op = OpRecord::begun("x".into(), OpKind::Effect, "pay", "charge", None, Some(1));
    store.save_op(claim, op.clone(), 3).await.unwrap();
    store.suspend(claim, Suspension::Interrupted("x".into()), 4).await.unwrap();
    let (seen, stored) = (seen(store, claim.fiber).await, store.load(claim.fiber).await.unwrap());
    assert_eq!((stored.branches.len(), stored.ops.len(), stored.rows.parts.len(), stored.interrupted), (1, 1, 1, true));
    let ClaimResult::Granted(again, loaded) = store.claim(seen, SECOND, 5).await.unwrap() else { panic!() };
    assert_eq!(*loaded, LoadedFiber { epoch: again.epoch, ..stored });
}

/// A worker that loads a fiber while another one runs it must not run it from there, however that
/// activation has gone on: only an epoch that was read after it was released is claimed.
async fn refuses_what_was_loaded_before_another_activation(store: &impl Store) {
    let stops = ["waits and is woken", "stores a branch", "stores an operation", "stores a stash", "fails and is resumed", "is parked"];
    for id in stops {
        let first = accept(store, id).await;
        store.checkpoint(first, snapshot(1)).await.unwrap();
        let (loaded, early) = (store.load(first.fiber).await.unwrap(), seen(store, first.fiber).await);
        assert_eq!(loaded.epoch, early.epoch);
        let interrupts = || store.suspend(first, Suspension::Interrupted("x".into()), 3);
        match id {
            "waits and is woken" => {
                store.checkpoint(first, snapshot(2)).await.unwrap();
                store.wait(first, Wait { due_ms: Some(99), ..Wait::default() }, 3).await.unwrap();
                store.take_due(99, 9).await.unwrap();
            }
            "stores a branch" => {
                store.save_branch(first, 1, branch_result("both[x]", None), Vec::new(), 2).await.unwrap();
                interrupts().await.unwrap();
            }
            "stores an operation" => {
                let op = OpRecord::begun("x".into(), OpKind::Effect, "pay", "charge", None, Some(1));
                store.save_op(first, OpRecord { state: OpState::Completed, outcome: Some("1".into()), ..op }, 2).await.unwrap();
                interrupts().await.unwrap();
            }
            "stores a stash" => {
                store.stash(first, "\"stash\"".into(), 2).await.unwrap();
                interrupts().await.unwrap();
            }
            "fails and is resumed" => {
                store.end(first, End::Failed("no".into()), Vec::new(), Vec::new(), 2).await.unwrap();
                store.restart(id.into(), Restart::FromSnapshot, 3).await.unwrap();
            }
            _ => drop(store.suspend(first, Suspension::Parked("x".into()), 3).await.unwrap()),
        }
        assert_eq!(store.claim(early, SECOND, 4).await.unwrap(), ClaimResult::Refused, "{id}");
        let (late, stored) = (seen(store, first.fiber).await, store.load(first.fiber).await.unwrap());
        let ClaimResult::Granted(claim, loaded) = store.claim(late, SECOND, 5).await.unwrap() else { panic!("{id}") };
        assert_eq!(*loaded, LoadedFiber { epoch: claim.epoch, ..stored }, "{id}");
        assert!(is_lost(store.checkpoint(first, snapshot(loaded.number + 1)).await), "{id}");
    }
}

/// Every operation that takes a claim, with one that is no longer in force: refused, and nothing is
/// changed.
async fn refuses_every_write_of_a_lost_claim(store: &impl Store) {
    let lost = accept(store, "a").await;
    let op = OpRecord::begun("x".into(), OpKind::Effect, "pay", "charge", None, Some(0));
    store.save_op(lost, op.clone(), 1).await.unwrap();
    store.take_over(SECOND, 2).await.unwrap();
    let claim = claimed(store, lost.fiber, SECOND).await;
    let before = format!("{:?} {:?}", row(store, "a").await, store.load(lost.fiber).await.unwrap());

    assert!(is_lost(store.checkpoint(lost, snapshot(1)).await));
    let layouts = Some(vec![crate::LayoutRow { hash: "h".into(), fiber: "work".into(), layout: "{}".into() }.into()]);
    assert!(is_lost(store.checkpoint(lost, NewSnapshot { layouts, joined: true, ..snapshot(1) }).await));
    let child = NewFiber { parent: Some(lost.fiber), ..new("child", None) };
    assert!(is_lost(store.checkpoint(lost, NewSnapshot { children: vec![child], ..snapshot(1) }).await));
    assert!(is_lost(store.stash(lost, "1".into(), 3).await));
    assert!(is_lost(store.save_branch(lost, 0, branch_result("a", None), Vec::new(), 9).await));
    assert!(is_lost(store.wait(lost, Wait { due_ms: Some(99), ..Wait::default() }, 3).await));
    assert!(is_lost(store.wait(lost, Wait { due_ms: Some(1), ..Wait::default() }, 3).await), "also where it would not have waited");
    assert!(is_lost(store.end(lost, End::Completed("1".into()), Vec::new(), Vec::new(), 3).await));
    assert!(is_lost(store.suspend(lost, Suspension::Parked("x".into()), 3).await));
    assert!(is_lost(store.suspend(lost, Suspension::Interrupted("x".into()), 3).await));
    assert!(is_lost(store.restart_claimed(lost, 3).await));
    assert!(is_lost(store.save_op(lost, OpRecord { state: OpState::Completed, ..op.clone() }, 3).await));
    assert!(is_lost(store.append_op_log(lost, op.clone(), vec!["1".into()], 3).await));

    assert_eq!(format!("{:?} {:?}", row(store, "a").await, store.load(lost.fiber).await.unwrap()), before);
    assert!(store.find(crate::FiberRef::Id("child".into())).await.unwrap().is_none());
    store.checkpoint(claim, snapshot(1)).await.unwrap();
    store.end(claim, End::Completed("2".into()), Vec::new(), Vec::new(), 4).await.unwrap();
    for claim in [lost, claim] {
        assert!(is_lost(store.end(claim, End::Failed("late".into()), Vec::new(), Vec::new(), 5).await), "an end is not overwritten");
    }
    assert_eq!(row(store, "a").await.result.as_deref(), Some("2"));
}

/// A task of the program may hold on to what an activation was made of when that has stopped.
async fn refuses_what_is_left_of_an_activation_that_has_stopped(store: &impl Store) {
    for stops in ["waits", "is parked", "fails"] {
        let claim = accept(store, stops).await;
        let op = OpRecord::begun(stops.into(), OpKind::Effect, "pay", "charge", None, Some(0));
        match stops {
            "waits" => drop(store.wait(claim, Wait { due_ms: Some(99), ..Wait::default() }, 1).await.unwrap()),
            "is parked" => drop(store.suspend(claim, Suspension::Parked("x".into()), 1).await.unwrap()),
            _ => drop(store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 1).await.unwrap()),
        }
        assert!(is_lost(store.save_op(claim, op.clone(), 2).await), "{stops}");
        assert!(is_lost(store.append_op_log(claim, op, vec!["1".into()], 2).await), "{stops}");
        assert!(is_lost(store.stash(claim, "1".into(), 2).await), "{stops}");
        assert!(is_lost(store.save_branch(claim, 0, branch_result("a", None), Vec::new(), 9).await), "{stops}");
        assert!(store.ops(claim.fiber).await.unwrap().is_empty(), "{stops}");
    }
}

async fn says_whether_a_fiber_was_interrupted(store: &impl Store) {
    let interrupted = async |claim: Claim| store.load(claim.fiber).await.unwrap().interrupted;
    let ready = ready(store, "ready").await;
    assert!(!interrupted(ready).await, "it was not begun");
    // Its own worker may not have been able to store that it has stopped.
    let left = accept(store, "left").await;
    assert!(interrupted(left).await);
    store.take_over(SECOND, 1).await.unwrap();
    assert!(interrupted(left).await);
    for (id, how, expected) in [("stopped", Suspension::Interrupted("x".into()), true), ("parked", Suspension::Parked("x".into()), false)] {
        let claim = accept(store, id).await;
        store.suspend(claim, how, 2).await.unwrap();
        assert_eq!(interrupted(claim).await, expected, "{id}");
        store.restart(id.into(), Restart::FromSnapshot, 3).await.unwrap();
        assert!(!interrupted(claim).await, "{id}: it was resumed by hand");
    }
    let waits = accept(store, "waits").await;
    store.wait(waits, Wait { due_ms: Some(9), ..Wait::default() }, 4).await.unwrap();
    assert!(!interrupted(waits).await);
    store.take_due(9, 10).await.unwrap();
    assert_eq!(row(store, "waits").await.state, FiberState::Pending);
    assert!(!interrupted(waits).await, "it was woken");
}

/// What an activation has read must be what it begins with.
async fn ends_a_claim_with_every_command(store: &impl Store) {
    for command in ["resume", "restart", "resolve", "cancel", "resolve_op"] {
        let claim = accept(store, command).await;
        let op = OpRecord::begun("x".into(), OpKind::Effect, "pay", "charge", None, Some(0));
        if command == "resolve_op" {
            store.save_op(claim, op, 1).await.unwrap();
        }
        store.suspend(claim, Suspension::Interrupted("x".into()), 2).await.unwrap();
        let seen = Claim { fiber: claim.fiber, epoch: store.load(claim.fiber).await.unwrap().epoch };
        let id = command.to_owned();
        match command {
            "resume" => drop(store.restart(id, Restart::FromSnapshot, 3).await.unwrap()),
            "restart" => drop(store.restart(id, Restart::FromStart, 3).await.unwrap()),
            "resolve" => drop(store.resolve(id, End::Completed("1".into()), 3).await.unwrap()),
            "cancel" => drop(store.cancel(id, "enough".into(), 3).await.unwrap()),
            _ => {
                let how = ResolvedOp { id: "x".into(), state: OpState::NotExecuted, outcome: None };
                store.resolve_op(claim.fiber, how, 3).await.unwrap();
            }
        }
        assert_eq!(store.claim(seen, FIRST, 4).await.unwrap(), ClaimResult::Refused, "{command}");
        assert!(is_lost(store.suspend(seen, Suspension::Parked("late".into()), 5).await), "{command}");
    }
}

async fn takes_over_from_others_only(store: &impl Store) {
    let (gone, mine) = (accept(store, "gone").await, ready(store, "mine").await);
    let mine = claimed(store, mine.fiber, SECOND).await;
    store.take_over(SECOND, 5).await.unwrap();
    store.take_over(SECOND, 6).await.unwrap();
    assert_eq!((row(store, "gone").await.state, row(store, "gone").await.deaths), (FiberState::Interrupted, 1));
    assert_eq!((row(store, "mine").await.state, row(store, "mine").await.deaths), (FiberState::Running, 0));
    assert!(is_lost(store.checkpoint(gone, snapshot(1)).await));
    store.checkpoint(mine, snapshot(1)).await.unwrap();
}

async fn restarts_a_claimed_fiber(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.checkpoint(claim, snapshot(1)).await.unwrap();
    let op = OpRecord::begun("x".into(), OpKind::Effect, "pay", "charge", None, Some(1));
    store.save_op(claim, op.clone(), 1).await.unwrap();
    assert!(matches!(store.restart_claimed(claim, 2).await.unwrap(), RestartResult::InDoubt(op) if op == "x"));
    assert!(store.load(claim.fiber).await.unwrap().snapshot.is_some(), "nothing of it is forgotten");
    store.save_op(claim, OpRecord { state: OpState::NotExecuted, ..op }, 3).await.unwrap();
    let mut told = ReadyReceiver::by(store);
    assert!(matches!(store.restart_claimed(claim, 4).await.unwrap(), RestartResult::Ready));
    assert_eq!((told.ids(), row(store, "a").await.state), (vec!["a".to_owned()], FiberState::Pending));
    assert!(store.load(claim.fiber).await.unwrap().snapshot.is_none());
    assert!(is_lost(store.checkpoint(claim, snapshot(3)).await));
}

async fn ends_what_was_told_to_end(store: &impl Store) {
    // While it runs: it ends when it stops, however it stops.
    for (id, how) in [("skipped", Suspension::Interrupted("x".into())), ("parked", Suspension::Parked("x".into()))] {
        let claim = accept(store, id).await;
        store.cancel(id.into(), "enough".into(), 2).await.unwrap();
        assert_eq!(row(store, id).await.state, FiberState::Running);
        assert_eq!(store.suspend(claim, how, 3).await.unwrap(), Some(End::Cancelled("enough".into())));
        assert_eq!((row(store, id).await.state, row(store, id).await.reason.as_deref()), (FiberState::Cancelled, Some("enough")));
    }
    // And its worker is gone before it can.
    let claim = accept(store, "left").await;
    store.cancel("left".into(), "enough".into(), 4).await.unwrap();
    store.take_over(SECOND, 5).await.unwrap();
    let seen = Claim { fiber: claim.fiber, epoch: store.claim_of(claim.fiber).await.unwrap().unwrap().epoch };
    assert_eq!(store.claim(seen, SECOND, 6).await.unwrap(), ClaimResult::Ended(End::Cancelled("enough".into())));
    assert_eq!(row(store, "left").await.state, FiberState::Cancelled);
    assert!(is_lost(store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 7).await));
}

async fn tells_of_what_becomes_ready(store: &impl Store) {
    let mut told = ReadyReceiver::by(store);
    let (parent, child) = (accept(store, "parent").await, accept(store, "child").await);
    store.wait(parent, Wait { fibers: vec!["child".into()], ..Wait::default() }, 1).await.unwrap();
    assert!(told.ids().is_empty());
    store.end(child, End::Completed("1".into()), Vec::new(), Vec::new(), 2).await.unwrap();
    assert_eq!(told.ids(), ["parent"]);
    let parent = claimed(store, parent.fiber, FIRST).await;
    store.end(parent, End::Failed("no".into()), Vec::new(), Vec::new(), 3).await.unwrap();
    store.restart("parent".into(), Restart::FromSnapshot, 4).await.unwrap();
    assert_eq!(told.ids(), ["parent"]);
    // A call that is given up before it is polled has done nothing; one that was polled is carried
    // out with all its consequences, or not at all.
    let parent = claimed(store, parent.fiber, FIRST).await;
    store.wait(parent, Wait { topics: vec!["go".into()], ..Wait::default() }, 5).await.unwrap();
    drop(store.send(message("parent", "go", "0")));
    let mut given_up = store.send(message("parent", "go", "1"));
    std::future::poll_fn(|cx| std::task::Poll::Ready(given_up.as_mut().poll(cx).is_pending())).await;
    drop(given_up);
    accept(store, "later").await;
    if let Some(sent) = next_message(store, parent.fiber, "go").await {
        assert_eq!(sent.data, "1");
        assert_eq!(told.next().await, "parent");
    }
}

async fn stores_a_message_with_an_id_once(store: &impl Store) {
    let claim = accept(store, "a").await;
    let with_id = |data: &str, id: &str| NewMessage { id: Some(id.into()), ..message("a", "go", data) };
    let sent = async |message| match store.send(message).await.unwrap() {
        CommandResult::Done(sent) => sent,
        other => panic!("{other:?}"),
    };
    for again in ["{\"a\":1,\"b\":2}", "{\"b\":2, \"a\":1}"] {
        assert_eq!(sent(with_id(again, "one")).await, SendResult::Sent, "the same value: {again}");
    }
    let on_other = NewMessage { topic: "stop".into(), ..with_id("{\"a\":1,\"b\":2}", "one") };
    for other in [with_id("{\"a\":1,\"b\":3}", "one"), on_other] {
        assert_eq!(sent(other).await, SendResult::Conflict);
    }
    assert_eq!(next_message(store, claim.fiber, "stop").await, None);
    let first = next_message(store, claim.fiber, "go").await.unwrap();
    assert_eq!((&*first.topic, &*first.data, first.sent_ms), ("go", "{\"a\":1,\"b\":2}", 50));
    store.checkpoint(claim, NewSnapshot { received: vec![first.seq], ..snapshot(1) }).await.unwrap();
    assert_eq!(sent(with_id("{\"a\":1,\"b\":2}", "one")).await, SendResult::Sent);
    assert_eq!(sent(with_id("3", "one")).await, SendResult::Conflict);
    assert_eq!(next_message(store, claim.fiber, "go").await, None, "it was received before");
    assert_eq!(sent(with_id("4", "two")).await, SendResult::Sent);
    assert_eq!(next_message(store, claim.fiber, "go").await.unwrap().data, "4");
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 9).await.unwrap();
    assert_eq!(sent(with_id("4", "two")).await, SendResult::Sent, "it was sent before the end");
    assert_eq!(sent(with_id("5", "two")).await, SendResult::Conflict);
    assert!(matches!(store.send(with_id("6", "three")).await.unwrap(), CommandResult::InvalidState(FiberState::Completed)));
}

async fn lists_and_discards_messages(store: &impl Store) {
    let claim = accept(store, "a").await;
    let other = accept(store, "b").await;
    for (to, topic, data) in [("a", "go", "1"), ("b", "go", "2"), ("a", "stop", "3"), ("a", "go", "4")] {
        store.send(message(to, topic, data)).await.unwrap();
    }
    let listed = async |limit| {
        let messages = store.pending_messages("a".into(), i64::MIN, limit).await.unwrap();
        messages.into_iter().map(|m| (m.seq, m.topic, m.data)).collect::<Vec<_>>()
    };
    let all = listed(9).await;
    let texts: Vec<_> = all.iter().map(|(_, topic, data)| (&**topic, &**data)).collect();
    assert_eq!(texts, [("go", "1"), ("stop", "3"), ("go", "4")]);
    assert_eq!(listed(2).await, all[..2]);
    let behind = store.pending_messages("a".into(), all[0].0, 9).await.unwrap();
    assert_eq!(behind.iter().map(|m| m.seq).collect::<Vec<_>>(), [all[1].0, all[2].0], "by page");
    assert_eq!(store.pending_messages("unknown".into(), i64::MIN, 9).await.unwrap(), []);

    let first = all[0].0;
    let discard = async |id: &str, message| store.discard_message(id.into(), message).await.unwrap();
    assert!(matches!(discard("a", first).await, CommandResult::InvalidState(FiberState::Running)), "it may have been received");
    store.suspend(claim, Suspension::Parked("it does not fit".into()), 8).await.unwrap();
    store.suspend(other, Suspension::Parked("it does not fit".into()), 8).await.unwrap();
    assert!(matches!(discard("unknown", first).await, CommandResult::NotFound));
    assert!(matches!(discard("b", first).await, CommandResult::Done(false)), "it is another fiber's");
    assert_eq!(listed(9).await, all);
    assert!(matches!(discard("a", first).await, CommandResult::Done(true)));
    assert!(matches!(discard("a", first).await, CommandResult::Done(false)));
    assert_eq!(listed(9).await, all[1..]);
    assert_eq!(next_message(store, claim.fiber, "go").await.unwrap().data, "4");
}

/// Two workers claim what they find, make checkpoints, give fibers up in the middle, and take over
/// from each other.
async fn runs_each_fiber_once_between_two_workers<S: Store + 'static>(store: Arc<S>) {
    const FIBERS: u64 = 24;
    const CHECKPOINTS: u64 = 5;
    for n in 0..FIBERS {
        ready(&*store, &format!("f{n}")).await;
    }
    let mut workers = tokio::task::JoinSet::new();
    for (worker, other) in [(FIRST, SECOND), (SECOND, FIRST)] {
        let store = Arc::clone(&store);
        workers.spawn(async move {
            let (mut ended, mut lost, mut round) = (0_u64, 0_u64, u64::try_from(worker).unwrap());
            loop {
                let open = store.unfinished(Seq::MIN, 99).await.unwrap();
                if open.is_empty() {
                    return (ended, lost);
                }
                for fiber in open {
                    round += 1;
                    if round % 40 == 0 {
                        // The other is taken for dead, and may not be.
                        store.take_over(worker, 1).await.unwrap();
                    }
                    let loaded = store.load(fiber.seq).await.unwrap();
                    let seen = Claim { fiber: fiber.seq, epoch: loaded.epoch };
                    let ClaimResult::Granted(claim, _) = store.claim(seen, worker, 1).await.unwrap() else { continue };
                    for number in loaded.number + 1..=CHECKPOINTS {
                        match store.checkpoint(claim, snapshot(number)).await {
                            Ok(_) => {}
                            // Nothing else may ever be wrong: the number follows whenever the claim
                            // is in force.
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::ClaimLost, "{error}");
                                lost += 1;
                                break;
                            }
                        }
                        tokio::task::yield_now().await;
                    }
                    match store.end(claim, End::Completed(worker.to_string()), Vec::new(), Vec::new(), 2).await {
                        Ok(_) => ended += 1,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::ClaimLost, "{error}"),
                    }
                }
                let _ = other;
            }
        });
    }
    let mut all = 0;
    while let Some(done) = workers.join_next().await {
        all += done.unwrap().0;
    }
    assert_eq!(all, FIBERS, "each fiber ends once");
    for n in 0..FIBERS {
        assert_eq!(row(&*store, &format!("f{n}")).await.state, FiberState::Completed);
    }
}
