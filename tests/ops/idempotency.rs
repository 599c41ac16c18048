//! What docs/guide/src/effects.md says, tried.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forever::ErrorKind;
use forever::fiber::{Fiber, FiberHandle};
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;

use crate::support::{Bank, Place, Plan, words};

const ID: &str = "order-1";

#[fiber(name = "order")]
async fn parking(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    Ok(step!("charge", effect, key = (ID, cents), |op| bank.charge(op.idempotency_key(), cents).await?))
}

/// What the price list says, which changes.
static PRICE: AtomicU64 = AtomicU64::new(100);

#[fiber(name = "order")]
async fn priced(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let price = cents * PRICE.load(Ordering::Relaxed);
    Ok(step!("charge", effect, key = (ID, price), on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), price).await?))
}

#[fiber(name = "order")]
async fn hurried(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let retry = Retry::times(3);
    let soon = Duration::from_millis(20);
    Ok(step!("charge", effect, retry = retry, timeout = soon, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), cents).await?))
}

#[fiber(name = "order")]
async fn hurried_and_parking(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    Ok(step!("charge", effect, retry = Retry::times(3), timeout = Duration::from_millis(20), |op| bank.charge(op.id(), cents).await?))
}

#[fiber(name = "order")]
async fn hurried_once(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let check = OnUnknown::check(async |op| bank.find(op.id()));
    Ok(step!("charge", effect, timeout = Duration::from_millis(20), on_unknown = check, |op| bank.charge(op.id(), cents).await?))
}

/// Keeps how far it has come.
#[fiber(name = "order")]
async fn in_pieces(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    Ok(step!("charge", effect, |op| {
        let begun: u64 = op.stashed()?.unwrap_or_default();
        op.stash(&(begun + 1)).await?;
        op.log::<u64>().push(begun).await?;
        bank.charge(op.id(), cents).await?;
        assert_eq!(op.log::<u64>().items().await?, (0..=begun).collect::<Vec<_>>());
        begun
    }))
}

#[fiber(name = "order")]
async fn persistent(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    Ok(step!("charge", effect, retry = Retry::times(3), |op| bank.charge(op.id(), cents).await?))
}

/// The code after an edit: another step comes first.
#[fiber(name = "order")]
async fn edited(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    step!("greet", tokio::task::yield_now().await);
    Ok(step!("charge", effect, key = (ID, cents), |op| bank.charge(op.idempotency_key(), cents).await?))
}

#[fiber(name = "order")]
async fn asking(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let check = OnUnknown::check(async |_| Err(anyhow::anyhow!("the bank is closed")));
    Ok(step!("charge", effect, on_unknown = check, |op| bank.charge(op.id(), cents).await?))
}

#[fiber(name = "order")]
async fn by_hand(ctx: &FiberContext, bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let place = step!("begin", cents);
    let bank = bank.clone();
    let receipt: anyhow::Result<u64> = ctx.op("charge", place, |op| async move { bank.charge(op.id(), cents).await }).await;
    Ok(receipt?)
}

async fn opened<F: Fiber<Output = u64>>(place: &Place, bank: &Bank, call: F) -> (Forever, FiberHandle<u64>) {
    let forever = place.builder(bank).fiber::<F>().open().await.unwrap();
    let handle = forever.spawn(call).id(ID).await.unwrap();
    (forever, handle)
}

/// A process dies while it waits for the bank's answer.
async fn died<F: Fiber<Output = u64>>(call: F, plan: Plan) -> (Place, Bank) {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([plan]);
    let (forever, handle) = opened(&place, &bank, call).await;
    bank.called(1).await;
    drop((handle, forever));
    (place, bank)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_called_until_an_operator_says_that_it_was_not_done() {
    let (place, bank) = died(parking(100), Plan::Lost).await;
    let (forever, handle) = opened(&place, &bank, parking(100)).await;
    let stopped = handle.wait().await.unwrap_err();
    let ops = forever.ops(ID).await.unwrap();
    assert!(stopped.is_parked());
    let why = format!("operation `{}` may have executed; verify, then resolve it: step `charge` was interrupted", ops[0].id);
    assert_eq!(stopped.reason(), why);
    assert_eq!((ops[0].state, ops[0].key.as_ref().unwrap().to_string()), (OpState::Started, r#"["order-1",100]"#.to_owned()));
    assert_eq!(bank.calls(), 1);

    forever.resolve_op(&ops[0].id, OpResolution::NotExecuted).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_eq!(bank.charges(), [(ops[0].id.clone(), 100)]);
    let error = forever.resolve_op(&ops[0].id, OpResolution::NotExecuted).await.unwrap_err();
    assert_eq!(error.to_string(), format!("failed to resolve operation `{}`: it is known to be completed", ops[0].id));
}

#[tokio::test(start_paused = true)]
async fn an_operator_gives_the_result_or_an_error() {
    let (place, bank) = died(parking(100), Plan::Silent).await;
    let (forever, handle) = opened(&place, &bank, parking(100)).await;
    handle.wait().await.unwrap_err();
    let id = forever.ops(ID).await.unwrap()[0].id.clone();
    let error = forever.resolve_op(&id, OpResolution::completed("a receipt").unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let receipt = bank.find(&id).unwrap();
    forever.resolve_op(&id, OpResolution::completed(&receipt).unwrap()).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_eq!((bank.calls(), words(&forever.ops(ID).await.unwrap())), (1, vec!["charge completed 1000".to_owned()]));
    drop(forever);

    let (place, bank) = died(parking(100), Plan::Lost).await;
    let (forever, handle) = opened(&place, &bank, parking(100)).await;
    handle.wait().await.unwrap_err();
    let id = forever.ops(ID).await.unwrap()[0].id.clone();
    forever.resolve_op(&id, OpResolution::Failed("account closed".into())).await.unwrap();
    let failed = handle.wait().await.unwrap_err();
    assert!(failed.is_failed());
    assert_eq!(failed.reason(), format!("operation `{id}` of step `charge` has failed: account closed"));
}

#[tokio::test(start_paused = true)]
async fn another_key_at_the_same_place_parks_with_both() {
    let (place, bank) = died(priced(1), Plan::Lost).await;
    PRICE.store(120, Ordering::Relaxed);
    let (forever, handle) = opened(&place, &bank, priced(1)).await;
    let stopped = handle.wait().await.unwrap_err();
    let id = &forever.ops(ID).await.unwrap()[0].id;
    let why = format!(
        "operation `{id}` of step `charge` was begun with key [\"order-1\",100] and is met again with key [\"order-1\",120]: what it was \
         begun for may have been done; let the step come to the same key again, or resolve the operation as not executed"
    );
    assert_eq!(stopped.reason(), why);
    assert_eq!(bank.calls(), 1);
    forever.resolve_op(id, OpResolution::NotExecuted).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge not_executed", "charge completed 1000"]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_an_unknown_outcome_and_an_attempt() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent, Plan::Lost]);
    let (forever, handle) = opened(&place, &bank, hurried(100)).await;
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_eq!((bank.calls(), bank.charges().len()), (3, 1));
    drop((forever, handle));

    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let (forever, handle) = opened(&place, &bank, hurried_and_parking(100)).await;
    let stopped = handle.wait().await.unwrap_err();
    assert!(stopped.is_parked() && stopped.reason().ends_with("step `charge` took longer than 20ms"), "{}", stopped.reason());
    assert_eq!((bank.calls(), words(&forever.ops(ID).await.unwrap())), (1, vec!["charge started".to_owned()]));
    drop((forever, handle));

    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Lost]);
    let (forever, handle) = opened(&place, &bank, hurried_once(100)).await;
    let failed = handle.wait().await.unwrap_err();
    assert!(failed.is_failed() && failed.reason() == "step `charge` took longer than 20ms", "{}", failed.reason());
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge failed step `charge` took longer than 20ms"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_body_is_an_answer() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Down, Plan::Down]);
    let (forever, handle) = opened(&place, &bank, persistent(100)).await;
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_eq!(bank.calls(), 3);
    drop((forever, handle));

    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Declined]);
    let (forever, handle) = opened(&place, &bank, parking(100)).await;
    assert!(handle.wait().await.unwrap_err().is_failed());
    let ops = forever.ops(ID).await.unwrap();
    assert_eq!(words(&ops), ["charge failed card declined"]);
    // Let run again, it is the same operation.
    forever.resume(ID).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_eq!(bank.charges(), [(ops[0].id.clone(), 100)]);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_edited_code_does_not_come_to_first_parks() {
    let (place, bank) = died(parking(100), Plan::Silent).await;
    let (forever, handle) = opened(&place, &bank, edited(100)).await;
    let stopped = handle.wait().await.unwrap_err();
    let id = forever.ops(ID).await.unwrap()[0].id.clone();
    let why = format!(
        "operation `{id}` may have executed; verify, then resolve it: the code comes to step `greet` before step `charge` of `order`, which \
         began it; let it come to that step first (`was = \"charge\"` if it was renamed), or resolve the operation as not executed"
    );
    assert_eq!(stopped.reason(), why);
    assert_eq!(bank.calls(), 1);
    drop((forever, handle));
    // Code that comes to it resumes it.
    let (forever, handle) = opened(&place, &bank, parking(100)).await;
    handle.wait().await.unwrap_err();
    forever.resolve_op(&id, OpResolution::completed(&bank.find(&id).unwrap()).unwrap()).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1000);
}

#[tokio::test(start_paused = true)]
async fn edited_code_goes_on_when_the_operation_was_not_executed() {
    let (place, bank) = died(parking(100), Plan::Lost).await;
    let (forever, handle) = opened(&place, &bank, edited(100)).await;
    handle.wait().await.unwrap_err();
    let id = forever.ops(ID).await.unwrap()[0].id.clone();
    forever.resolve_op(&id, OpResolution::NotExecuted).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_ne!(bank.charges()[0].0, id, "it stands at another place now");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_executed_goes_on_with_its_stash_and_log() {
    let (place, bank) = died(in_pieces(100), Plan::Lost).await;
    let (forever, handle) = opened(&place, &bank, in_pieces(100)).await;
    handle.wait().await.unwrap_err();
    forever.resolve_op(&forever.ops(ID).await.unwrap()[0].id, OpResolution::NotExecuted).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operation_under_way_cannot_be_resolved() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let (forever, handle) = opened(&place, &bank, parking(100)).await;
    bank.called(1).await;
    let id = forever.ops(ID).await.unwrap()[0].id.clone();
    let error = forever.resolve_op(&id, OpResolution::NotExecuted).await.unwrap_err();
    assert_eq!(error.to_string(), format!("failed to resolve operation `{id}`: its fiber `{ID}` is running"));
    drop(handle);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_fails_parks() {
    let (place, bank) = died(asking(100), Plan::Silent).await;
    let (_forever, handle) = opened(&place, &bank, asking(100)).await;
    let stopped = handle.wait().await.unwrap_err();
    assert!(
        stopped.is_parked() && stopped.reason().ends_with("was interrupted, and its check failed: the bank is closed"),
        "{}",
        stopped.reason()
    );
}

#[tokio::test(start_paused = true)]
async fn an_operation_between_steps_is_found_by_its_key() {
    let (place, bank) = died(by_hand(100), Plan::Silent).await;
    let (forever, handle) = opened(&place, &bank, by_hand(100)).await;
    let stopped = handle.wait().await.unwrap_err();
    let id = forever.ops(ID).await.unwrap()[0].id.clone();
    assert_eq!(stopped.reason(), format!("operation `{id}` may have executed; verify, then resolve it: step `charge` was interrupted"));
    forever.resolve_op(&id, OpResolution::completed(&bank.find(&id).unwrap()).unwrap()).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_eq!(bank.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_closure_has_begun_is_in_the_ledger_of_the_next_process() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let forever = place.builder(&bank).open().await.unwrap();
    let teller = bank.clone();
    let work = move |ctx: FiberContext| async move { ctx.op("charge", ID, |op| async move { teller.charge(op.id(), 100).await }).await };
    let handle = forever.spawn_closure("import", work).id(ID).start().await.unwrap();
    bank.called(1).await;
    drop((handle, forever));

    let forever = place.builder(&bank).open().await.unwrap();
    let ops = forever.ops(ID).await.unwrap();
    assert_eq!(words(&ops), ["charge started"]);
    let receipt = bank.find(&ops[0].id).unwrap();
    forever.resolve_op(&ops[0].id, OpResolution::completed(&receipt).unwrap()).await.unwrap();
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge completed 1000"]);
}

#[tokio::test(start_paused = true)]
async fn the_ledger_goes_with_its_fiber() {
    let (place, bank) = (Place::new(), Bank::default());
    let (forever, handle) = opened(&place, &bank, parking(100)).await;
    handle.wait().await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM op_ledger"), 1);
    forever.delete(forever::fiber::FiberFilter::new()).await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM op_ledger"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_the_code_resolves_for_the_next_process() {
    let (place, bank) = died(parking(100), Plan::Silent).await;
    let (forever, handle) = opened(&place, &bank, parking(100)).await;
    handle.wait().await.unwrap_err();
    drop((forever, handle));

    let tool = place.builder(&bank).open().await.unwrap();
    // Opening looks at each parked fiber again; here it finds that it cannot run it.
    let stopped = tool.find_fiber::<u64>(ID).await.unwrap().wait().await.unwrap_err();
    assert_eq!(stopped.reason(), "fiber `order` is not registered: register it, or give the function that it is now `name = \"order\"`");
    let id = tool.ops(ID).await.unwrap()[0].id.clone();
    tool.resolve_op(&id, OpResolution::completed(&bank.find(&id).unwrap()).unwrap()).await.unwrap();
    drop(tool);

    let (_forever, handle) = opened(&place, &bank, parking(100)).await;
    assert_eq!(handle.wait().await.unwrap(), 1000);
    assert_eq!(bank.calls(), 1);
}
