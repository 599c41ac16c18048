//! The ledger of operations.
use super::{FIRST, ReadyReceiver, SECOND, accept, claimed, row, snapshot};
use crate::{
    Claim, CommandResult, End, FiberState, NewSnapshot, OpKind, OpOutcome, OpRecord, OpState, OpsDelta, ResolveOpResult, ResolvedOp,
    Restart, RestartResult, Store, Suspension, op_stream,
};

pub(super) async fn run<S: Store>(make: &impl AsyncFn() -> S) {
    keeps_what_is_temporary_until_the_next_checkpoint(&make().await).await;
    keeps_effects_in_the_ledger(&make().await).await;
    never_begins_again_what_has_completed(&make().await).await;
    says_what_is_open_and_nothing_more(&make().await).await;
    keeps_logs_until_their_operation_ends(&make().await).await;
    resolves_what_nobody_knows_and_nothing_else(&make().await).await;
    lets_a_parked_fiber_go_on(&make().await).await;
    finds_operations_wherever_they_are(&make().await).await;
    keeps_a_thousand_effects(&make().await).await;
    keeps_effects_whatever_they_are_called(&make().await).await;
    keeps_what_is_open_over_a_death(&make().await).await;
    keeps_effects_that_are_open_together(&make().await).await;
    replaces_the_record_of_an_effect(&make().await).await;
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
    store.suspend(claim, Suspension::Parked("no".into()), 3).await.unwrap();
    store.restart("a".into(), Restart::FromSnapshot, 3).await.unwrap();
    let claim = claimed(store, claim.fiber, FIRST).await;
    assert!(store.load(claim.fiber).await.unwrap().ops.contains(&kept), "the attempts that have failed count");
    store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 3).await.unwrap();
    assert_eq!(open(store, claim).await, ["x", "y"], "a failed fiber may be resumed");
    store.restart("a".into(), Restart::FromSnapshot, 4).await.unwrap();
    let claim = claimed(store, claim.fiber, FIRST).await;
    let anew = OpRecord { failed: 0, ..kept };
    assert!(store.load(claim.fiber).await.unwrap().ops.contains(&anew), "after its last attempt it has all of them again");
    store.checkpoint(claim, NewSnapshot { ops: behind(vec![]), ..snapshot(1) }).await.unwrap();
    assert_eq!(store.find_op("x".into()).await.unwrap(), None);
    store.restart("a".into(), Restart::FromStart, 4).await.unwrap();

    for (n, end) in [End::Completed("1".into()), End::Cancelled("enough".into())].into_iter().enumerate() {
        let claim = accept(store, &format!("end {n}")).await;
        store.save_op(claim, record("z", OpKind::Step), 1).await.unwrap();
        store.end(claim, end, Vec::new(), Vec::new(), 2).await.unwrap();
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
    store.end(claim, End::Failed("declined".into()), vec![failed], Vec::new(), 30).await.unwrap();
    assert_eq!(ledger(store, claim).await, ["x completed 7", "a started -", "b failed declined"], "by time, then place");
    let ops = store.ops(claim.fiber).await.unwrap();
    assert_eq!(ops.iter().map(|op| (op.started_ms, op.changed_ms)).collect::<Vec<_>>(), [(10, 2000), (20, 20), (20, 30)]);
    assert_eq!(ops[2].record.key.as_deref(), Some("[1]"));

    assert!(
        matches!(store.restart("a".into(), Restart::FromStart, 40).await.unwrap(), CommandResult::Done(RestartResult::InDoubt(op)) if op == "a")
    );
    assert_eq!(row(store, "a").await.state, FiberState::Failed);
    store.resolve_op(claim.fiber, ResolvedOp { id: "a".into(), state: OpState::NotExecuted, outcome: None }, 40).await.unwrap();
    store.restart("a".into(), Restart::FromStart, 40).await.unwrap();
    assert_eq!(ledger(store, claim).await.len(), 3, "a restart forgets nothing of it");
    assert_eq!((open(store, claim).await, store.load(claim.fiber).await.unwrap().restarts), (vec![], 1));
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 50).await.unwrap();
    assert_eq!(ledger(store, claim).await.len(), 3);
}

/// An activation that has missed how an operation ended must not carry it out again.
async fn never_begins_again_what_has_completed(store: &impl Store) {
    let claim = accept(store, "a").await;
    for kind in [OpKind::Effect, OpKind::ByHand] {
        let id = kind.as_str();
        let number = (kind == OpKind::Effect).then_some(0);
        let with = |state, resolved| OpRecord { state, resolved, number, outcome: Some("7".into()), ..record(id, kind) };
        let begun = OpRecord { outcome: None, ..with(OpState::Started, false) };
        // What has failed or was not executed may, and a person's word may be taken back.
        for before in [with(OpState::Failed, false), with(OpState::NotExecuted, true), with(OpState::Completed, true)] {
            store.save_op(claim, before, 1).await.unwrap();
            store.save_op(claim, begun.clone(), 2).await.unwrap();
        }
        store.save_op(claim, with(OpState::Completed, false), 3).await.unwrap();
        let refused = format!("{:?}", store.save_op(claim, begun.clone(), 4).await.unwrap_err());
        assert!(refused.contains("does not begin again"), "{refused}");
        store.append_op_log(claim, begun, vec!["1".into()], 5).await.unwrap_err();
    }
    assert_eq!(ledger(store, claim).await, ["op completed 7", "effect completed 7"]);
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

async fn log(store: &impl Store, claim: Claim, number: Option<u64>, id: &str) -> Vec<String> {
    let batches = store.stream(claim.fiber, op_stream(number, id), 0, u32::MAX).await.unwrap();
    batches.iter().flat_map(|batch| batch.data.lines().map(str::to_owned)).collect()
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
        assert_eq!(log(store, claim, number(id), id).await, ["1", "2", "3"]);
    }
    assert_eq!(row(store, "a").await.deaths, 0, "it has come further");
    store.save_op(claim, OpRecord { state: OpState::Completed, ..record("z", OpKind::ByHand) }, 2).await.unwrap();
    store.checkpoint(claim, NewSnapshot { ops: behind(vec![completed("x")]), ..snapshot(1) }).await.unwrap();
    for id in ["x", "y", "z"] {
        assert_eq!(log(store, claim, number(id), id).await, [""; 0], "{id}");
    }
}

async fn resolves_what_nobody_knows_and_nothing_else(store: &impl Store) {
    let claim = accept(store, "a").await;
    for id in ["x", "y"] {
        store.append_op_log(claim, OpRecord { stash: Some("1".into()), ..record(id, OpKind::Effect) }, vec!["1".into()], 1).await.unwrap();
    }
    store.save_op(claim, record("step", OpKind::Step), 1).await.unwrap();
    let how = |id: &str, state, outcome: Option<&str>| ResolvedOp { id: id.into(), state, outcome: outcome.map(Into::into) };
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
    assert_eq!((log(store, claim, Some(0), "x").await.len(), log(store, claim, Some(0), "y").await.len()), (0, 1));
}

async fn lets_a_parked_fiber_go_on(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.save_op(claim, record("x", OpKind::Effect), 1).await.unwrap();
    store.suspend(claim, Suspension::Parked("x".into()), 2).await.unwrap();
    let how = ResolvedOp { id: "x".into(), state: OpState::NotExecuted, outcome: None };
    let mut told = ReadyReceiver::by(store);
    assert!(matches!(store.resolve_op(claim.fiber, how, 3).await.unwrap(), CommandResult::Done(ResolveOpResult::Done)));
    assert_eq!(told.ids(), ["a"]);
    assert_eq!((row(store, "a").await.state, row(store, "a").await.reason), (FiberState::Pending, None));
}

async fn finds_operations_wherever_they_are(store: &impl Store) {
    let (one, two) = (accept(store, "one").await, accept(store, "two").await);
    store.save_op(one, record("x", OpKind::Effect), 1).await.unwrap();
    store.save_op(two, record("y", OpKind::ByHand), 1).await.unwrap();
    store.save_op(two, record("z", OpKind::Step), 1).await.unwrap();
    store.end(one, End::Completed("1".into()), Vec::new(), Vec::new(), 2).await.unwrap();
    for (id, seq) in [("x", Some(one.fiber)), ("y", Some(two.fiber)), ("z", None), ("no", None)] {
        assert_eq!(store.find_op(id.into()).await.unwrap().map(|(seq, op)| (seq, op.id)), seq.map(|seq| (seq, id.to_owned())));
    }
}

/// An effect that begins behind so many checkpoints.
fn effect(id: &str, number: u64) -> OpRecord {
    OpRecord { number: Some(number), ..record(id, OpKind::Effect) }
}

fn settled(id: &str, number: u64, state: OpState, outcome: &str) -> OpOutcome {
    OpOutcome { number: Some(number), id: id.to_owned(), state, outcome: Some(outcome.to_owned()) }
}

async fn keeps_a_thousand_effects(store: &impl Store) {
    let claim = accept(store, "a").await;
    let outcome = |n: u64| format!("\"{}\"", "r".repeat(usize::try_from(n * 37 % 300).unwrap()));
    for n in 0..1000 {
        let id = format!("op {n}");
        store.save_op(claim, effect(&id, n), 2000 + i64::try_from(n).unwrap()).await.unwrap();
        let state = if n % 7 == 0 { OpState::Failed } else { OpState::Completed };
        store.checkpoint(claim, NewSnapshot { ops: behind(vec![settled(&id, n, state, &outcome(n))]), ..snapshot(n + 1) }).await.unwrap();
    }
    assert_eq!(open(store, claim).await, [""; 0]);
    let check = async || {
        let ledger = store.ops(claim.fiber).await.unwrap();
        assert_eq!(ledger.len(), 1000);
        for (n, op) in (0..).zip(&ledger) {
            let state = if n % 7 == 0 { OpState::Failed } else { OpState::Completed };
            assert_eq!(op.record, OpRecord { state, outcome: Some(outcome(n)), ..effect(&format!("op {n}"), n) });
            assert_eq!(op.started_ms, 2000 + i64::try_from(n).unwrap());
        }
        for n in [0, 1, 2, 3, 500, 997, 998, 999] {
            assert_eq!(store.find_op(format!("op {n}")).await.unwrap(), Some((claim.fiber, ledger[n].record.clone())));
        }
        assert_eq!(store.find_op("op".into()).await.unwrap(), None);
    };
    check().await;
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 3000).await.unwrap();
    check().await;
}

async fn keeps_effects_whatever_they_are_called(store: &impl Store) {
    let claim = accept(store, "a").await;
    let texts =
        ["", " ", "\"", "\\", "[0,\"x\",", "],[", "a\u{1}\n\t\r\u{7f}", "é 漢 🦀 \u{2028}", "$[0]", "'; --", "null", "7", "{\"a\":[1]}"];
    let like = |n: usize| {
        let text = texts[n];
        OpRecord {
            key: Some(format!("{text:?}")),
            function: text.into(),
            step: format!("{text}]"),
            ..effect(&format!("id {text}"), n as u64)
        }
    };
    for (n, text) in texts.iter().enumerate() {
        let id = format!("id {text}");
        store.save_op(claim, like(n), 1).await.unwrap();
        assert_eq!(store.load(claim.fiber).await.unwrap().ops, [like(n)]);
        assert_eq!(store.find_op(id.clone()).await.unwrap(), Some((claim.fiber, like(n))));
        let of = settled(&id, n as u64, OpState::Failed, text);
        store.checkpoint(claim, NewSnapshot { ops: behind(vec![of]), ..snapshot(n as u64 + 1) }).await.unwrap();
        let ended = OpRecord { state: OpState::Failed, outcome: Some((*text).into()), ..like(n) };
        assert_eq!(store.find_op(id).await.unwrap(), Some((claim.fiber, ended)));
    }
    let ledger = store.ops(claim.fiber).await.unwrap();
    assert_eq!(ledger.iter().map(|op| op.record.function.as_str()).collect::<Vec<_>>(), texts);
}

async fn keeps_what_is_open_over_a_death(store: &impl Store) {
    let lost = accept(store, "a").await;
    store.save_op(lost, effect("x", 0), 1).await.unwrap();
    store.checkpoint(lost, NewSnapshot { ops: behind(vec![completed("x")]), ..snapshot(1) }).await.unwrap();
    store.save_op(lost, effect("y", 1), 3).await.unwrap();
    // The process dies between the beginning of an effect and its checkpoint.
    store.take_over(SECOND, 4).await.unwrap();
    let stands = async || {
        assert_eq!(open(store, lost).await, ["y"]);
        assert_eq!(ledger(store, lost).await, ["x completed 7", "y started -"]);
    };
    stands().await;
    store.save_op(lost, effect("late", 1), 5).await.unwrap_err();
    let behind_it = || NewSnapshot { ops: behind(vec![settled("y", 1, OpState::Completed, "8")]), ..snapshot(2) };
    store.checkpoint(lost, behind_it()).await.unwrap_err();
    stands().await;
    let claim = claimed(store, lost.fiber, SECOND).await;
    stands().await;
    store.save_op(lost, effect("late", 1), 5).await.unwrap_err();
    store.checkpoint(lost, behind_it()).await.unwrap_err();
    store.end(lost, End::Completed("1".into()), vec![settled("y", 1, OpState::Completed, "8")], Vec::new(), 5).await.unwrap_err();
    stands().await;
    // It begins again what it began.
    store.save_op(claim, effect("y", 1), 6).await.unwrap();
    stands().await;
    store.checkpoint(claim, behind_it()).await.unwrap();
    assert_eq!((open(store, claim).await, ledger(store, claim).await), (vec![], vec!["x completed 7".into(), "y completed 8".into()]));

    store.save_op(claim, effect("z", 2), 7).await.unwrap();
    store.suspend(claim, Suspension::Parked("z".into()), 8).await.unwrap();
    assert!(
        matches!(store.restart("a".into(), Restart::FromStart, 9).await.unwrap(), CommandResult::Done(RestartResult::InDoubt(op)) if op == "z")
    );
    let known = ResolvedOp { id: "x".into(), state: OpState::Failed, outcome: None };
    assert!(matches!(
        store.resolve_op(claim.fiber, known, 9).await.unwrap(),
        CommandResult::Done(ResolveOpResult::Known(OpState::Completed))
    ));
    let how = ResolvedOp { id: "z".into(), state: OpState::NotExecuted, outcome: None };
    assert!(matches!(store.resolve_op(claim.fiber, how, 9).await.unwrap(), CommandResult::Done(ResolveOpResult::Done)));
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.save_op(claim, effect("z", 2), 10).await.unwrap();
    assert_eq!(ledger(store, claim).await, ["x completed 7", "y completed 8", "z started -"]);
    assert_eq!(store.ops(claim.fiber).await.unwrap()[2].started_ms, 7);
    let failed = settled("z", 2, OpState::Completed, "9");
    store.end(claim, End::Failed("no".into()), vec![failed], Vec::new(), 11).await.unwrap();
    assert_eq!(open(store, claim).await, ["z"], "there is no checkpoint behind it");
    assert_eq!(ledger(store, claim).await[2], "z completed 9");
}

async fn keeps_effects_that_are_open_together(store: &impl Store) {
    let claim = accept(store, "a").await;
    let ids: Vec<String> = (0..100).map(|n| format!("{n:03}")).collect();
    for id in &ids {
        store.save_op(claim, effect(id, 0), 1).await.unwrap();
    }
    assert_eq!(open(store, claim).await, ids);
    // Branches end before the checkpoint, each by itself, and some have failed attempts before.
    for id in &ids[..50] {
        store.save_op(claim, OpRecord { failed: 1, stash: Some("1".into()), ..effect(id, 0) }, 2).await.unwrap();
        let done = OpRecord { state: OpState::Completed, outcome: Some(id.clone()), ..effect(id, 0) };
        store.save_op(claim, done, 3).await.unwrap();
    }
    store.append_op_log(claim, effect("050", 0), vec!["1".into()], 3).await.unwrap();
    assert_eq!(open(store, claim).await, ids);
    let rest = ids[50..].iter().map(|id| settled(id, 0, OpState::Completed, id)).collect();
    store.checkpoint(claim, NewSnapshot { ops: behind(rest), ..snapshot(1) }).await.unwrap();
    assert_eq!(open(store, claim).await, [""; 0]);
    assert_eq!(ledger(store, claim).await, ids.iter().map(|id| format!("{id} completed {id}")).collect::<Vec<_>>());
}

async fn replaces_the_record_of_an_effect(store: &impl Store) {
    let claim = accept(store, "a").await;
    for n in 0..20 {
        let id = format!("op {n:02}");
        store.save_op(claim, effect(&id, n), 1).await.unwrap();
        let of = settled(&id, n, OpState::Completed, &"7".repeat(200));
        store.checkpoint(claim, NewSnapshot { ops: behind(vec![of]), ..snapshot(n + 1) }).await.unwrap();
    }
    for (number, id) in [(0, "op 00"), (10, "op 10"), (19, "op 19")] {
        store.save_op(claim, effect(id, number), 3).await.unwrap_err();
        let replaced = OpRecord { state: OpState::NotExecuted, resolved: true, ..effect(id, number) };
        store.save_op(claim, replaced.clone(), 3).await.unwrap();
        assert_eq!(store.find_op(id.into()).await.unwrap(), Some((claim.fiber, replaced)));
        assert_eq!(store.ops(claim.fiber).await.unwrap().len(), 20, "{id}");
    }
}
