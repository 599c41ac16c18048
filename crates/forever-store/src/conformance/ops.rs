//! The ledger of operations.
use super::{FIRST, SECOND, Told, accept, claimed, row, snapshot};
use crate::{
    Claim, CommandResult, End, FiberState, NewSnapshot, OpKind, OpOutcome, OpRecord, OpResolution, OpState, OpsDelta, ResolveOpResult,
    Restart, RestartResult, Store, Suspension,
};

pub(super) async fn run<S: Store>(make: &impl AsyncFn() -> S) {
    keeps_what_is_temporary_until_the_next_checkpoint(&make().await).await;
    keeps_effects_in_the_ledger(&make().await).await;
    says_what_is_open_and_nothing_more(&make().await).await;
    keeps_logs_until_their_operation_ends(&make().await).await;
    resolves_what_nobody_knows_and_nothing_else(&make().await).await;
    lets_a_parked_fiber_go_on(&make().await).await;
    finds_operations_wherever_they_are(&make().await).await;
}

pub(crate) fn record(id: &str, kind: OpKind) -> OpRecord {
    let number = (kind != OpKind::ByHand).then_some(0);
    OpRecord::begun(id.to_owned(), kind, "pay", "charge", None, number)
}

fn completed(id: &str) -> OpOutcome {
    OpOutcome { number: Some(0), id: id.to_owned(), state: OpState::Completed, outcome: Some("7".to_owned()) }
}

pub(crate) fn behind(settled: Vec<OpOutcome>) -> OpsDelta {
    OpsDelta { settled, temporary: true }
}

pub(crate) async fn open(store: &impl Store, claim: Claim) -> Vec<String> {
    let mut open: Vec<String> = store.load(claim.fiber).await.unwrap().ops.into_iter().map(|op| op.id).collect();
    open.sort();
    open
}

/// The ledger, in words.
pub(crate) async fn ledger(store: &impl Store, claim: Claim) -> Vec<String> {
    let ops = store.ops(claim.fiber).await.unwrap();
    ops.iter().map(|op| format!("{} {} {}", op.record.id, op.record.state, op.record.outcome.as_deref().unwrap_or("-"))).collect()
}

async fn keeps_what_is_temporary_until_the_next_checkpoint(store: &impl Store) {
    let claim = accept(store, "a").await;
    let kept = OpRecord { failed: 2, stash: Some("[1]".into()), ..record("x", OpKind::Step) };
    store.save_op(claim, record("x", OpKind::Step), 1).await.unwrap();
    store.save_op(claim, kept.clone(), 2).await.unwrap();
    store.save_op(claim, record("y", OpKind::Transaction), 2).await.unwrap();
    assert!(store.load(claim.fiber).await.unwrap().ops.contains(&kept));
    assert_eq!(ledger(store, claim).await, [""; 0]);

    store.checkpoint(claim, NewSnapshot { ops: behind(vec![]), ..snapshot(7) }).await.unwrap_err();
    assert_eq!(open(store, claim).await, ["x", "y"], "a checkpoint that failed took records with it");
    store.end(claim, End::Failed("no".into()), Vec::new(), 3).await.unwrap();
    assert_eq!(open(store, claim).await, ["x", "y"], "a failed fiber may be resumed");
    store.restart("a".into(), Restart::FromSnapshot, 4).await.unwrap();
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.checkpoint(claim, NewSnapshot { ops: behind(vec![]), ..snapshot(1) }).await.unwrap();
    assert_eq!(store.find_op("x".into()).await.unwrap(), None);
    store.restart("a".into(), Restart::FromStart, 4).await.unwrap();

    for (n, end) in [End::Completed("1".into()), End::Cancelled("enough".into())].into_iter().enumerate() {
        let claim = accept(store, &format!("end {n}")).await;
        store.save_op(claim, record("z", OpKind::Step), 1).await.unwrap();
        store.end(claim, end, Vec::new(), 2).await.unwrap();
        assert_eq!(open(store, claim).await, [""; 0]);
    }
}

async fn keeps_effects_in_the_ledger(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.save_op(claim, OpRecord { stash: Some("1".into()), failed: 3, ..record("x", OpKind::Effect) }, 10).await.unwrap();
    assert_eq!(ledger(store, claim).await, ["x started -"]);
    store.checkpoint(claim, NewSnapshot { ops: behind(vec![completed("x")]), ..snapshot(9) }).await.unwrap_err();
    assert_eq!(ledger(store, claim).await, ["x started -"], "a checkpoint that failed settled it");
    store.checkpoint(claim, NewSnapshot { ops: behind(vec![completed("x")]), ..snapshot(1) }).await.unwrap();
    let (_, there) = store.find_op("x".into()).await.unwrap().unwrap();
    assert_eq!(there, OpRecord { state: OpState::Completed, outcome: Some("7".into()), ..record("x", OpKind::Effect) });

    store.save_op(claim, OpRecord { number: Some(1), key: Some("[1]".into()), ..record("b", OpKind::Effect) }, 20).await.unwrap();
    store.save_op(claim, record("a", OpKind::ByHand), 20).await.unwrap();
    assert_eq!(store.load_op(claim.fiber, "a".into()).await.unwrap(), Some(record("a", OpKind::ByHand)));
    assert_eq!(store.load_op(claim.fiber, "b".into()).await.unwrap(), None, "it is not by hand");
    let failed = OpOutcome { number: Some(1), id: "b".into(), state: OpState::Failed, outcome: Some("declined".into()) };
    store.end(claim, End::Failed("declined".into()), vec![failed], 30).await.unwrap();
    assert_eq!(ledger(store, claim).await, ["x completed 7", "a started -", "b failed declined"], "by time, then place");
    let ops = store.ops(claim.fiber).await.unwrap();
    assert_eq!(ops.iter().map(|op| (op.started_ms, op.changed_ms)).collect::<Vec<_>>(), [(10, 2000), (20, 20), (20, 30)]);
    assert_eq!(ops[2].record.key.as_deref(), Some("[1]"));

    assert!(
        matches!(store.restart("a".into(), Restart::FromStart, 40).await.unwrap(), CommandResult::Done(RestartResult::InDoubt(op)) if op == "a")
    );
    assert_eq!(row(store, "a").await.state, FiberState::Failed);
    store.resolve_op(claim.fiber, OpResolution { id: "a".into(), state: OpState::NotExecuted, outcome: None }, 40).await.unwrap();
    store.restart("a".into(), Restart::FromStart, 40).await.unwrap();
    assert_eq!(ledger(store, claim).await.len(), 3, "a restart forgets nothing of it");
    assert_eq!((open(store, claim).await, store.load(claim.fiber).await.unwrap().restarts), (vec![], 1));
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.end(claim, End::Completed("1".into()), Vec::new(), 50).await.unwrap();
    assert_eq!(ledger(store, claim).await.len(), 3);
}

async fn says_what_is_open_and_nothing_more(store: &impl Store) {
    let (claim, other) = (accept(store, "a").await, accept(store, "b").await);
    store.save_op(other, record("o", OpKind::Effect), 1).await.unwrap();
    store.save_op(claim, record("x", OpKind::Effect), 1).await.unwrap();
    store.save_op(claim, record("y", OpKind::ByHand), 1).await.unwrap();
    assert_eq!(open(store, claim).await, ["x"], "one by hand is found by its id");
    // One that the program leaves as it is, because it is unknown, is behind it all the same.
    store.checkpoint(claim, NewSnapshot { ops: behind(vec![]), ..snapshot(1) }).await.unwrap();
    assert_eq!(open(store, claim).await, [""; 0]);
    assert_eq!(ledger(store, claim).await, ["y started -", "x started -"]);
    assert_eq!(open(store, other).await, ["o"]);
}

async fn keeps_logs_until_their_operation_ends(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.take_over(SECOND, 1).await.unwrap();
    let claim = claimed(store, claim.fiber, SECOND).await;
    let items = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
    let number = |id: &str| (id != "z").then_some(0);
    for (id, kind) in [("x", OpKind::Effect), ("y", OpKind::Step), ("z", OpKind::ByHand)] {
        store.append_op_log(claim, record(id, kind), items(&["1", "2"]), 1).await.unwrap();
        store.append_op_log(claim, record(id, kind), items(&["3"]), 1).await.unwrap();
        assert_eq!(store.op_log(claim.fiber, number(id), id.into()).await.unwrap(), ["1", "2", "3"]);
    }
    assert_eq!(row(store, "a").await.deaths, 0, "it has come further");
    store.save_op(claim, OpRecord { state: OpState::Completed, ..record("z", OpKind::ByHand) }, 2).await.unwrap();
    store.checkpoint(claim, NewSnapshot { ops: behind(vec![completed("x")]), ..snapshot(1) }).await.unwrap();
    for id in ["x", "y", "z"] {
        assert_eq!(store.op_log(claim.fiber, number(id), id.into()).await.unwrap(), [""; 0], "{id}");
    }
}

async fn resolves_what_nobody_knows_and_nothing_else(store: &impl Store) {
    let claim = accept(store, "a").await;
    for id in ["x", "y"] {
        store.append_op_log(claim, OpRecord { stash: Some("1".into()), ..record(id, OpKind::Effect) }, vec!["1".into()], 1).await.unwrap();
    }
    store.save_op(claim, record("step", OpKind::Step), 1).await.unwrap();
    let how = |id: &str, state, outcome: Option<&str>| OpResolution { id: id.into(), state, outcome: outcome.map(Into::into) };
    let done = || how("x", OpState::Completed, Some("7"));
    assert!(matches!(store.resolve_op(claim.fiber, done(), 2).await.unwrap(), CommandResult::InvalidState(FiberState::Running)));
    store.suspend(claim, Suspension::Interrupted("x".into()), 2).await.unwrap();
    assert!(matches!(store.resolve_op(claim.fiber, how("step", OpState::NotExecuted, None), 2).await.unwrap(), CommandResult::NotFound));
    assert!(matches!(store.resolve_op(claim.fiber, how("no", OpState::NotExecuted, None), 2).await.unwrap(), CommandResult::NotFound));
    assert!(matches!(store.resolve_op(99, done(), 2).await.unwrap(), CommandResult::NotFound));
    assert!(matches!(store.resolve_op(claim.fiber, done(), 2).await.unwrap(), CommandResult::Done(ResolveOpResult::Done)));
    let known = |asked| matches!(asked, CommandResult::Done(ResolveOpResult::Known(OpState::Completed)));
    assert!(known(store.resolve_op(claim.fiber, how("x", OpState::Failed, Some("no")), 3).await.unwrap()));
    store.resolve_op(claim.fiber, how("y", OpState::NotExecuted, None), 4).await.unwrap();

    let there = store.load(claim.fiber).await.unwrap().ops;
    let of = |id: &str| there.iter().find(|op| op.id == id).cloned().unwrap();
    assert_eq!(
        (of("x").state, of("x").outcome.as_deref(), of("x").stash, of("x").resolved),
        (OpState::Completed, Some("7"), None, true),
        "the next run has to see it"
    );
    assert_eq!((of("y").state, of("y").stash.as_deref()), (OpState::NotExecuted, Some("1")), "it is run again, and goes on");
    assert_eq!(
        (
            store.op_log(claim.fiber, Some(0), "x".into()).await.unwrap().len(),
            store.op_log(claim.fiber, Some(0), "y".into()).await.unwrap().len()
        ),
        (0, 1)
    );
}

async fn lets_a_parked_fiber_go_on(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.save_op(claim, record("x", OpKind::Effect), 1).await.unwrap();
    store.suspend(claim, Suspension::Parked("x".into()), 2).await.unwrap();
    let how = OpResolution { id: "x".into(), state: OpState::NotExecuted, outcome: None };
    let mut told = Told::by(store);
    assert!(matches!(store.resolve_op(claim.fiber, how, 3).await.unwrap(), CommandResult::Done(ResolveOpResult::Done)));
    assert_eq!(told.ids(), ["a"]);
    assert_eq!((row(store, "a").await.state, row(store, "a").await.reason), (FiberState::Pending, None));
}

async fn finds_operations_wherever_they_are(store: &impl Store) {
    let (one, two) = (accept(store, "one").await, accept(store, "two").await);
    store.save_op(one, record("x", OpKind::Effect), 1).await.unwrap();
    store.save_op(two, record("y", OpKind::ByHand), 1).await.unwrap();
    store.save_op(two, record("z", OpKind::Step), 1).await.unwrap();
    store.end(one, End::Completed("1".into()), Vec::new(), 2).await.unwrap();
    for (id, seq) in [("x", Some(one.fiber)), ("y", Some(two.fiber)), ("z", None), ("no", None)] {
        assert_eq!(store.find_op(id.into()).await.unwrap().map(|(seq, op)| (seq, op.id)), seq.map(|seq| (seq, id.to_owned())));
    }
}
