//! Saying by hand how an operation ended, and everything that can be said wrong.
use forever::agent::{Agent, AgentHandle, RecoveredFiber, RecoveryAction};
use forever::fiber::{FiberErrorKind, FiberState};
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;
use forever::{BoxError, ErrorKind};
use serde_json::json;

use crate::support::{Bank, Place, Plan, soon, words};

const ID: &str = "order-1";

#[fiber]
async fn order(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let receipt = step!("charge", effect, |op| bank.charge(op.id(), cents).await?);
    step!("again", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), cents).await?);
    Ok(receipt)
}

/// A fiber whose operation is unknown, parked.
async fn parked(plan: Plan) -> (Place, Bank, Forever, String) {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([plan]);
    let forever = place.builder(&bank).fiber::<order>().open().await.unwrap();
    forever.spawn(order(100)).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    drop(forever);
    let forever = place.builder(&bank).fiber::<order>().open().await.unwrap();
    let error = soon(forever.fiber::<order>(ID).wait()).await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Parked);
    let id = forever.ops(ID).await.unwrap().remove(0).id;
    (place, bank, forever, id)
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_resolved_once() {
    let (_place, _bank, forever, id) = parked(Plan::Silent).await;
    forever.resolve_op(&id, OpResolution::Completed(json!(7))).await.unwrap();
    assert_eq!(soon(forever.fiber::<order>(ID).wait()).await.unwrap(), 7);
    for how in [OpResolution::Completed(json!(7)), OpResolution::NotExecuted, OpResolution::Failed("no".into())] {
        let error = forever.resolve_op(&id, how).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        assert_eq!(error.to_string(), format!("failed to resolve operation `{id}`: it was resolved before, as completed"));
    }
}

#[tokio::test(start_paused = true)]
async fn one_whose_outcome_is_known_is_not_resolved() {
    let (_place, _bank, forever, id) = parked(Plan::Lost).await;
    forever.resolve_op(&id, OpResolution::NotExecuted).await.unwrap();
    soon(forever.fiber::<order>(ID).wait()).await.unwrap();
    let ops = forever.ops(ID).await.unwrap();
    assert_eq!(words(&ops), ["charge completed 1000", "again completed 1001"]);
    assert_eq!((ops[0].resolved, ops[1].resolved, ops[0].id == id), (false, false, true), "it was carried out, under its id");
    for op in ops {
        let error = forever.resolve_op(&op.id, OpResolution::NotExecuted).await.unwrap_err();
        assert_eq!(error.to_string(), format!("failed to resolve operation `{}`: it is known to be completed", op.id));
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_of_the_wrong_type_is_refused_and_can_be_said_again() {
    let (_place, bank, forever, id) = parked(Plan::Silent).await;
    for wrong in [json!("seven"), json!(null), json!(-1), json!({ "receipt": 7 })] {
        let error = forever.resolve_op(&id, OpResolution::Completed(wrong.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let text = error.to_string();
        assert!(text.starts_with(&format!("failed to resolve operation `{id}`: the value cannot be read as `u64`: ")), "{wrong}: {text}");
    }
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge started"]);
    forever.resolve_op(&id, OpResolution::Completed(json!(7))).await.unwrap();
    assert_eq!(soon(forever.fiber::<order>(ID).wait()).await.unwrap(), 7);
    assert_eq!(bank.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_value_that_nobody_could_check_parks_again_and_can_be_said_again() {
    let (place, bank, forever, id) = parked(Plan::Silent).await;
    forever.close().await.unwrap();
    // A process that does not know the fiber, and so not its types.
    let other = place.builder(&bank).open().await.unwrap();
    soon(other.find_fiber::<u64>(ID).await.unwrap().wait()).await.unwrap_err();
    other.resolve_op(&id, OpResolution::Completed(json!("seven"))).await.unwrap();
    other.close().await.unwrap();

    let forever = place.builder(&bank).fiber::<order>().open().await.unwrap();
    let error = soon(forever.fiber::<order>(ID).wait()).await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Parked);
    let why = "step `charge` was resolved with a value that cannot be read as `u64`: ";
    assert!(error.reason().starts_with(&format!("operation `{id}` may have executed; verify, then resolve it: {why}")), "{error}");
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge started"]);
    forever.resolve_op(&id, OpResolution::Completed(json!(7))).await.unwrap();
    assert_eq!(soon(forever.fiber::<order>(ID).wait()).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_failed_is_the_error_of_its_step() {
    let (_place, bank, forever, id) = parked(Plan::Silent).await;
    forever.resolve_op(&id, OpResolution::Failed("charged back".into())).await.unwrap();
    let error = soon(forever.fiber::<order>(ID).wait()).await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Failed);
    assert_eq!(error.reason(), format!("operation `{id}` of step `charge` has failed: charged back"));
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge failed charged back"]);
    assert_eq!(bank.calls(), 1);
}

/// An error type that cannot be made of one of the library's.
#[derive(Debug)]
struct Own;

impl std::fmt::Display for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("own")
    }
}

impl std::error::Error for Own {}

#[fiber]
async fn own_error(bank: Res<Bank>) -> Result<u64, Own> {
    Ok(step!("charge", effect, |op| bank.charge(op.id(), 1).await.map_err(|_| Own)?))
}

#[fiber]
async fn caught(bank: Res<Bank>) -> anyhow::Result<String> {
    let cents = step!(bank.calls() as u64);
    Ok(match call!(order(cents)) {
        Ok(receipt) => receipt.to_string(),
        Err(error) => format!("no: {}", error.to_string().split(": ").last().unwrap()),
    })
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_said_fails_a_fiber_whose_error_cannot_be_made_of_it_and_others_catch_it() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent, Plan::Silent]);
    let builder = || place.builder(&bank).fiber::<own_error>().fiber::<caught>().fiber::<order>();
    let forever = builder().open().await.unwrap();
    forever.spawn(own_error()).id("own").await.unwrap();
    forever.spawn(caught()).id("caught").await.unwrap();
    soon(bank.called(2)).await;
    drop(forever);
    let forever = builder().open().await.unwrap();
    let (own, caught) = (forever.fiber::<own_error>("own"), forever.fiber::<caught>("caught"));
    soon(own.wait()).await.unwrap_err();
    soon(caught.wait()).await.unwrap_err();
    for fiber in ["own", "caught"] {
        let op = forever.ops(fiber).await.unwrap().remove(0);
        assert_eq!(op.function, if fiber == "own" { "own_error" } else { "order" });
        forever.resolve_op(&op.id, OpResolution::Failed("lost".into())).await.unwrap();
    }
    assert!(soon(own.wait()).await.unwrap_err().reason().ends_with("of step `charge` has failed: lost"));
    assert_eq!(soon(caught.wait()).await.unwrap(), "no: lost");
    assert_eq!(words(&forever.ops("caught").await.unwrap()), ["charge failed lost"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_cannot_be_resolved_or_listed() {
    let (_place, _bank, forever, _) = parked(Plan::Silent).await;
    let error = forever.resolve_op("4d867f1e80eb361a1341301bfedb8a1a", OpResolution::NotExecuted).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.to_string(), "failed to resolve operation `4d867f1e80eb361a1341301bfedb8a1a`: there is no such operation");
    let error = forever.ops("nobody").await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NotFound, "there is no fiber with id `nobody`"));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_under_way_cannot_be_resolved() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let forever = place.builder(&bank).fiber::<order>().open().await.unwrap();
    forever.spawn(order(1)).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    let op = forever.ops(ID).await.unwrap().remove(0);
    assert_eq!((op.state, op.step.as_str(), op.function.as_str(), op.checkpoints), (OpState::Started, "charge", "order", Some(0)));
    let error = forever.resolve_op(&op.id, OpResolution::NotExecuted).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert!(error.to_string().ends_with(&format!("its fiber `{ID}` is running")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_operation_of_a_fiber_that_has_ended_is_resolved_and_its_fiber_stays_as_it_is() {
    let (_place, _bank, forever, id) = parked(Plan::Silent).await;
    forever.cancel(ID, "enough").await.unwrap();
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge started"], "nobody knows");
    forever.resolve_op(&id, OpResolution::Completed(json!(1000))).await.unwrap();
    let op = forever.ops(ID).await.unwrap().remove(0);
    assert_eq!((op.state, op.resolved, op.result), (OpState::Completed, true, Some(json!(1000))));
    assert_eq!(forever.fiber::<order>(ID).status().await.unwrap().state, FiberState::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_is_begun_anew_has_other_operations_and_keeps_the_old_ones_in_its_ledger() {
    let (_place, bank, forever, id) = parked(Plan::Silent).await;
    let error = forever.restart(ID).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    let why = "may have executed, and would be repeated under another id; resolve it first";
    assert_eq!(error.to_string(), format!("failed to restart fiber `{ID}`: operation `{id}` {why}"));
    assert_eq!(forever.fiber::<order>(ID).status().await.unwrap().state, FiberState::Parked);

    forever.cancel(ID, "a refund is on its way").await.unwrap();
    forever.restart(ID).await.unwrap_err();
    forever.resolve_op(&id, OpResolution::completed(&1000).unwrap()).await.unwrap();
    forever.restart(ID).await.unwrap();
    assert_eq!(soon(forever.fiber::<order>(ID).wait()).await.unwrap(), 1001);
    let ops = forever.ops(ID).await.unwrap();
    assert_eq!(words(&ops), ["charge completed 1000", "charge completed 1001", "again completed 1002"]);
    assert_eq!(ops[0].id, id);
    assert_eq!(bank.charges().len(), 3, "whoever restarts it decides that");
}

/// An agent that begins its fibers anew, come what may.
struct Hasty;

impl Agent for Hasty {
    const CLASS: &'static str = "Hasty";
    type State = ();

    async fn on_fiber_recovered(&self, _: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        Ok(RecoveryAction::Restart)
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_would_repeat_an_unknown_operation_leaves_its_fiber_interrupted() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let builder = || place.builder(&bank).fiber::<order>().agent(|_: AgentHandle<Hasty>| Hasty);
    let forever = builder().open().await.unwrap();
    forever.spawn(order(1)).id(ID).agent("Hasty", "a").await.unwrap();
    soon(bank.called(1)).await;
    drop(forever);
    let forever = builder().open().await.unwrap();
    let error = soon(forever.fiber::<order>(ID).wait()).await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Interrupted);
    assert!(error.reason().starts_with("it is to be restarted, but operation `"), "{error}");
    assert_eq!(bank.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_resolved_right_after_opening() {
    for _ in 0..20 {
        let (place, bank, forever, id) = parked(Plan::Silent).await;
        drop(forever);
        let forever = place.builder(&bank).fiber::<order>().open().await.unwrap();
        forever.resolve_op(&id, OpResolution::Completed(json!(7))).await.unwrap();
        assert_eq!(soon(forever.fiber::<order>(ID).wait()).await.unwrap(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_row_of_the_ledger_parks_its_fiber_and_no_other() {
    let (place, bank, forever, id) = parked(Plan::Silent).await;
    forever.spawn(order(5)).id("other").await.unwrap();
    soon(forever.fiber::<order>("other").wait()).await.unwrap();
    forever.close().await.unwrap();
    place.database().run(&format!("UPDATE ops SET state = 'maybe' WHERE id = '{id}'"));
    let forever = place.builder(&bank).fiber::<order>().open().await.unwrap();
    let error = soon(forever.fiber::<order>(ID).wait()).await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Parked);
    assert!(error.reason().contains("`maybe` is not a state of an operation"), "{error}");
    assert!(forever.ops(ID).await.unwrap_err().to_string().contains("failed to list the operations of a fiber"));
    assert_eq!(words(&forever.ops("other").await.unwrap()).len(), 2);
    assert_eq!(place.number("SELECT count(*) FROM ops WHERE state = 'maybe'"), 1, "it is left as it is");
}
