//! What makes an outcome unknown, what is an answer, and checks that go wrong.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forever::Builder;
use forever::fiber::FiberErrorKind;
use forever::ops::OpResolution;
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever_testkit::waiting::{eventually, over_time};

use crate::support::{Bank, Place, Plan, soon, words};

const ID: &str = "order-1";
const LONG: Duration = Duration::from_secs(3600);

/// How a check goes.
#[derive(Clone, Debug, Default)]
struct Checks(Arc<AtomicUsize>);

impl Checks {
    fn plan(&self, plan: usize) {
        self.0.store(plan, Ordering::Relaxed);
    }

    async fn check(&self, bank: &Bank, id: &str) -> anyhow::Result<Option<u64>> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(bank.find(id)),
            1 => Err(anyhow::anyhow!("no route").context("the bank cannot be asked")),
            2 => std::future::pending().await,
            _ => panic!("the check is broken"),
        }
    }
}

#[fiber]
async fn checked(bank: Res<Bank>, checks: Res<Checks>) -> anyhow::Result<u64> {
    let check = OnUnknown::check(async |op| checks.check(&bank, op.id()).await);
    Ok(step!("charge", effect, on_unknown = check, |op| bank.charge(op.id(), 100).await?))
}

/// A fiber that died in its effect, on a clock that the test drives.
async fn died(plan: Plan) -> (Place, Bank, Checks, VirtualClock) {
    let (place, bank, checks, clock) = (Place::new(), Bank::default(), Checks::default(), VirtualClock::new());
    bank.plan([plan]);
    let forever = builder(&place, &bank, &checks, &clock).open().await.unwrap();
    forever.spawn(checked()).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    (place, bank, checks, clock)
}

fn builder(place: &Place, bank: &Bank, checks: &Checks, clock: &VirtualClock) -> Builder {
    place.builder(bank).resource(checks.clone()).clock(clock.clone()).fiber::<checked>()
}

#[tokio::test(start_paused = true)]
async fn a_check_that_fails_parks_the_fiber_and_is_asked_again_when_it_is_resumed() {
    let (place, bank, checks, clock) = died(Plan::Silent).await;
    checks.plan(1);
    let forever = builder(&place, &bank, &checks, &clock).open().await.unwrap();
    let handle = forever.fiber::<checked>(ID);
    let error = soon(handle.wait()).await.unwrap_err();
    let id = forever.ops(ID).await.unwrap().remove(0).id;
    let why = "step `charge` was interrupted, and its check failed: the bank cannot be asked: no route";
    assert_eq!(error.kind(), FiberErrorKind::Parked);
    assert_eq!(error.reason(), format!("operation `{id}` may have executed; verify, then resolve it: {why}"));
    assert_eq!(bank.calls(), 1);

    checks.plan(0);
    forever.resume(ID).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 1000);
    assert_eq!((bank.calls(), words(&forever.ops(ID).await.unwrap())), (1, vec!["charge completed 1000".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_parks_the_fiber_after_its_timeout() {
    let (place, bank, checks, clock) = died(Plan::Lost).await;
    checks.plan(2);
    let forever = builder(&place, &bank, &checks, &clock).check_timeout(Duration::from_secs(7)).open().await.unwrap();
    let handle = forever.fiber::<checked>(ID);
    let waiting = soon(handle.wait());
    let time = async {
        // It waits for nothing but the limit of the check.
        eventually("the check", async || clock.next_sleeper() == Some(Duration::from_secs(7))).await;
        clock.advance(Duration::from_millis(6999));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(forever.fibers().state(forever::fiber::FiberState::Parked).await.unwrap().fibers.len(), 0, "too soon");
        clock.advance(Duration::from_millis(1));
    };
    let (ended, ()) = tokio::join!(waiting, soon(time));
    assert!(ended.unwrap_err().reason().ends_with("step `charge` was interrupted, and its check took longer than 7s"));
    assert_eq!(bank.calls(), 1);

    checks.plan(0);
    forever.resume(ID).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 1000);
    assert_eq!(bank.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn check_that_panics_parks_the_fiber_which_a_resolution_then_lets_go_on() {
    for is_resolved in [false, true] {
        let (place, bank, checks, clock) = died(Plan::Silent).await;
        checks.plan(3);
        let forever = builder(&place, &bank, &checks, &clock).open().await.unwrap();
        let handle = forever.fiber::<checked>(ID);
        let error = soon(handle.wait()).await.unwrap_err();
        assert_eq!(error.kind(), FiberErrorKind::Parked);
        assert!(error.reason().ends_with("step `charge` was interrupted, and its check panicked: the check is broken"), "{error}");
        let ops = forever.ops(ID).await.unwrap();
        assert_eq!(words(&ops), ["charge started"]);
        checks.plan(0);
        if is_resolved {
            forever.resolve_op(&ops[0].id, OpResolution::completed(&7).unwrap()).await.unwrap();
        } else {
            forever.resume(ID).await.unwrap();
        }
        assert_eq!(soon(handle.wait()).await.unwrap(), if is_resolved { 7 } else { 1000 });
        assert_eq!(bank.calls(), 1);
    }
}

#[fiber]
async fn declined(bank: Res<Bank>) -> anyhow::Result<u64> {
    let retry = Retry::times(2).backoff(Backoff::none()).when(|e: &anyhow::Error| e.to_string().contains("route"));
    Ok(step!("charge", effect, retry = retry, |op| {
        anyhow::ensure!(op.idempotency_key() == op.id());
        bank.charge(&format!("{} {}", op.id(), op.attempt()), 100).await?
    }))
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_body_is_an_answer_that_is_retried_under_one_id_or_kept() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).fiber::<declined>().open().await.unwrap();
    bank.plan([Plan::Down, Plan::Down]);
    soon(forever.run(declined())).await.unwrap();
    let fiber = forever.fibers().await.unwrap().fibers.remove(0).id;
    let ops = forever.ops(&fiber).await.unwrap();
    assert_eq!((words(&ops), bank.calls()), (vec!["charge completed 1000".to_owned()], 3));
    assert_eq!(bank.charges(), [(format!("{} 3", ops[0].id), 100)]);

    bank.plan([Plan::Down, Plan::Declined]);
    let handle = forever.spawn(declined()).id(ID).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap_err().reason(), "card declined");
    assert_eq!((words(&forever.ops(ID).await.unwrap()), bank.calls()), (vec!["charge failed card declined".to_owned()], 5));

    // Whoever resumes it has seen the error: the operation begins anew, with all its attempts, under its id.
    bank.plan([Plan::Down, Plan::Down]);
    let id = forever.ops(ID).await.unwrap().remove(0).id;
    forever.resume(ID).await.unwrap();
    soon(handle.wait()).await.unwrap();
    assert_eq!((bank.charges().last().unwrap().0.clone(), bank.calls()), (format!("{id} 3"), 8));
}

#[tokio::test(start_paused = true)]
async fn retries_go_on_where_the_process_died_between_them() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    let builder = || place.builder(&bank).fiber::<slow_retry>().clock(clock.clone());
    bank.plan([Plan::Down, Plan::Down]);
    let forever = builder().open().await.unwrap();
    forever.spawn(slow_retry()).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    eventually("the pause", async || clock.next_sleeper() == Some(LONG)).await;
    drop(forever);
    // It died while it waited: the answer of the last attempt is stored, and when the next one is due.
    let forever = builder().open().await.unwrap();
    eventually("the pause", async || clock.next_sleeper() == Some(LONG)).await;
    assert_eq!(bank.calls(), 1, "the next attempt is not due");
    clock.advance(LONG);
    soon(bank.called(2)).await;
    eventually("the pause", async || clock.next_sleeper() == Some(LONG)).await;
    clock.advance(LONG);
    assert_eq!(soon(forever.fiber::<slow_retry>(ID).wait()).await.unwrap(), 3, "the third attempt");
}

#[fiber]
async fn slow_retry(bank: Res<Bank>) -> anyhow::Result<u32> {
    let retry = Retry::times(2).backoff(Backoff::fixed(LONG));
    Ok(step!("charge", effect, retry = retry, on_unknown = OnUnknown::Retry, |op| {
        bank.charge(op.id(), 100).await?;
        op.attempt()
    }))
}

macro_rules! timing_out {
    ($name:ident, $bank:ident, $policy:expr, $retry:expr) => {
        #[fiber]
        async fn $name($bank: Res<Bank>) -> anyhow::Result<u64> {
            let limit = Duration::from_secs(5);
            Ok(step!("charge", effect, timeout = limit, retry = $retry, on_unknown = $policy, |op| $bank.charge(op.id(), 100).await?))
        }
    };
}

timing_out!(parks_late, bank, OnUnknown::Park, Retry::times(5).backoff(Backoff::none()));
timing_out!(retries_late, bank, OnUnknown::Retry, Retry::times(1).backoff(Backoff::none()));
timing_out!(asks_late, bank, OnUnknown::check(async |op| bank.find(op.id())), Retry::times(1).backoff(Backoff::none()));
timing_out!(fails_late, bank, OnUnknown::Fail, Retry::times(5).backoff(Backoff::none()));

/// Runs a fiber whose calls never come back until they time out.
async fn late<F: forever::fiber::Fiber<Output = u64>>(
    call: F,
    plans: &[Plan],
) -> (Result<u64, (FiberErrorKind, String)>, Bank, Vec<String>) {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    bank.plan(plans.iter().cloned());
    let forever = place.builder(&bank).fiber::<F>().clock(clock.clone()).open().await.unwrap();
    let handle = forever.spawn(call).id(ID).await.unwrap();
    let passes = || {
        if clock.next_sleeper() == Some(Duration::from_secs(5)) {
            clock.advance(Duration::from_secs(5));
        }
    };
    let ended = over_time("the end", handle.wait(), passes).await.map_err(|e| (e.kind(), e.reason().to_owned()));
    let words = words(&forever.ops(ID).await.unwrap());
    (ended, bank, words)
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_unknown_and_parks() {
    let (ended, bank, ledger) = late(parks_late(), &[Plan::Silent]).await;
    let (kind, why) = ended.unwrap_err();
    assert_eq!((kind, bank.calls(), ledger), (FiberErrorKind::Parked, 1, vec!["charge started".to_owned()]), "`retry` is for answers");
    assert!(why.ends_with("may have executed; verify, then resolve it: step `charge` took longer than 5s"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_retried_as_often_as_is_said() {
    let (ended, bank, ledger) = late(retries_late(), &[Plan::Silent]).await;
    assert_eq!((ended, bank.calls(), bank.charges().len(), ledger), (Ok(1000), 2, 1, vec!["charge completed 1000".to_owned()]));
    let (ended, bank, ledger) = late(retries_late(), &[Plan::Silent, Plan::Silent, Plan::Silent]).await;
    let why = "step `charge` took longer than 5s".to_owned();
    assert_eq!((ended, bank.calls()), (Err((FiberErrorKind::Failed, why.clone())), 2));
    assert_eq!(ledger, [format!("charge failed {why}")]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_asked_about() {
    let (ended, bank, _) = late(asks_late(), &[Plan::Silent]).await;
    assert_eq!((ended, bank.calls(), bank.asked()), (Ok(1000), 1, 1));
    let (ended, bank, _) = late(asks_late(), &[Plan::Lost]).await;
    assert_eq!((ended, bank.calls(), bank.asked()), (Ok(1000), 2, 1));
    let (ended, bank, ledger) = late(asks_late(), &[Plan::Lost, Plan::Lost]).await;
    assert_eq!((ended.unwrap_err().0, bank.calls(), bank.asked()), (FiberErrorKind::Failed, 2, 2));
    assert_eq!(ledger, ["charge failed step `charge` took longer than 5s"]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_an_error_of_its_own_kind() {
    let (ended, bank, ledger) = late(fails_late(), &[Plan::Silent]).await;
    let (kind, why) = ended.unwrap_err();
    assert_eq!((kind, bank.calls(), ledger), (FiberErrorKind::Failed, 1, vec!["charge started".to_owned()]));
    assert!(why.ends_with("step `charge` took longer than 5s"), "{why}");
}

#[fiber]
async fn stubborn(bank: Res<Bank>) -> anyhow::Result<u32> {
    let mut refused = 0;
    loop {
        match call!(insisting()) {
            Ok(_) => break Ok(refused),
            Err(error) if error.downcast_ref::<forever::Error>().is_some_and(forever::Error::is_op_unknown) => refused += 1,
            Err(error) => break Err(error),
        }
        if refused == 3 {
            drop(bank);
            break Ok(refused);
        }
    }
}

#[fiber]
async fn insisting(bank: Res<Bank>) -> anyhow::Result<u64> {
    Ok(step!("charge", effect, on_unknown = OnUnknown::Fail, |op| bank.charge(op.id(), 100).await?))
}

#[tokio::test(start_paused = true)]
async fn a_program_that_comes_again_to_an_unknown_operation_finds_it_as_unknown_as_before() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let builder = || place.builder(&bank).fiber::<stubborn>().fiber::<insisting>();
    let forever = builder().open().await.unwrap();
    forever.spawn(stubborn()).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    drop(forever);
    let forever = builder().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<stubborn>(ID).wait()).await.unwrap(), 3);
    assert_eq!(bank.calls(), 1);
}

#[fiber]
async fn stubborn_in_time(ctx: &FiberContext, bank: Res<Bank>) -> anyhow::Result<u32> {
    let mut refused = 0;
    while refused < 3 {
        match call!(hurried()) {
            Ok(_) => break,
            Err(error) if error.downcast_ref::<forever::Error>().is_some_and(forever::Error::is_op_unknown) => refused += 1,
            Err(error) => return Err(error),
        }
    }
    drop((bank, ctx));
    Ok(refused)
}

#[fiber]
async fn hurried(bank: Res<Bank>) -> anyhow::Result<u64> {
    let limit = Duration::from_millis(20);
    Ok(step!("charge", effect, timeout = limit, on_unknown = OnUnknown::Fail, |op| bank.charge(op.id(), 100).await?))
}

#[tokio::test(start_paused = true)]
async fn it_does_so_where_it_became_unknown_in_this_very_run() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let forever = place.builder(&bank).fiber::<stubborn_in_time>().fiber::<hurried>().open().await.unwrap();
    assert_eq!(soon(forever.run(stubborn_in_time())).await.unwrap(), 3);
    assert_eq!(bank.calls(), 1);
}

#[fiber]
async fn late_for_closing(ctx: &FiberContext, bank: Res<Bank>) -> anyhow::Result<u64> {
    bank.knock();
    ctx.closing().await;
    Ok(step!("charge", effect, |op| bank.charge(op.id(), 1).await?))
}

#[tokio::test(start_paused = true)]
async fn an_effect_does_not_begin_in_a_runtime_that_closes() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).fiber::<late_for_closing>().open().await.unwrap();
    forever.spawn(late_for_closing()).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    forever.close().await.unwrap();
    assert_eq!((place.number("SELECT count(*) FROM op_ledger"), bank.charges().len()), (0, 0), "better not begun than unknown");
}

/// Can be saved in good times only.
#[derive(Debug, serde::Deserialize)]
struct Moody {
    good: bool,
}

impl serde::Serialize for Moody {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeStruct};
        if !self.good {
            return Err(S::Error::custom("not today"));
        }
        let mut fields = serializer.serialize_struct("Moody", 1)?;
        fields.serialize_field("good", &self.good)?;
        fields.end()
    }
}

#[fiber]
async fn moody(bank: Res<Bank>, checks: Res<Checks>) -> anyhow::Result<(u64, bool)> {
    let mood = Moody { good: checks.0.load(Ordering::Relaxed) == 0 };
    let receipt = step!("charge", effect, |op| bank.charge(op.id(), 100).await?);
    Ok((receipt, mood.good))
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_stored_without_its_checkpoint_is_used_when_the_fiber_is_resumed() {
    let (place, bank, checks) = (Place::new(), Bank::default(), Checks::default());
    let forever = place.builder(&bank).resource(checks.clone()).fiber::<moody>().open().await.unwrap();
    checks.plan(1);
    let handle = forever.spawn(moody()).id(ID).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap_err().reason(), "local `mood` cannot be saved at step `charge`: not today");
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge completed 1000"]);
    checks.plan(0);
    forever.resume(ID).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), (1000, true));
    assert_eq!(bank.calls(), 1, "it is not made twice");
}

macro_rules! unsure {
    ($name:ident, $bank:ident, $policy:expr $(, $option:ident = $value:expr)?) => {
        #[fiber]
        async fn $name($bank: Res<Bank>) -> anyhow::Result<u64> {
            Ok(step!("charge", effect, $($option = $value,)? on_unknown = $policy, |op| {
                $bank.charge(op.id(), 100).await.map_err(|e| if e.to_string().contains("broke") { op.unknown(e) } else { e })?
            }))
        }
    };
}

unsure!(parks_unsure, bank, OnUnknown::Park, retry = Retry::times(1).backoff(Backoff::none()));
unsure!(retries_unsure, bank, OnUnknown::Retry, retry = Retry::times(1).backoff(Backoff::none()));
unsure!(asks_unsure, bank, OnUnknown::check(async |op| bank.find(op.id())), retry = Retry::times(1).backoff(Backoff::none()));
unsure!(fails_unsure, bank, OnUnknown::Fail, retry = Retry::times(1).backoff(Backoff::none()));
unsure!(parks_once, bank, OnUnknown::Park);
unsure!(retries_once, bank, OnUnknown::Retry);
unsure!(asks_once, bank, OnUnknown::check(async |op| bank.find(op.id())));
unsure!(fails_once, bank, OnUnknown::Fail);

async fn unsure<F: forever::fiber::Fiber<Output = u64>>(
    call: F,
    plans: &[Plan],
) -> (Result<u64, (FiberErrorKind, String)>, Bank, Vec<String>) {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan(plans.iter().cloned());
    let forever = place.builder(&bank).fiber::<F>().open().await.unwrap();
    let ended = soon(forever.spawn(call).id(ID).await.unwrap().wait()).await.map_err(|e| (e.kind(), e.reason().to_owned()));
    let words = words(&forever.ops(ID).await.unwrap());
    (ended, bank, words)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_know_says_so_and_the_policy_decides() {
    let started = vec!["charge started".to_owned()];
    let why = "verify, then resolve it: step `charge` does not know what it has done: the connection broke";
    let (ended, bank, ledger) = unsure(parks_unsure(), &[Plan::Broken]).await;
    let (kind, text) = ended.unwrap_err();
    assert_eq!((kind, bank.calls(), &ledger), (FiberErrorKind::Parked, 1, &started));
    assert!(text.ends_with(why), "{text}");

    let (ended, bank, ledger) = unsure(fails_unsure(), &[Plan::Broken]).await;
    let (kind, text) = ended.unwrap_err();
    assert_eq!((kind, bank.calls(), &ledger), (FiberErrorKind::Failed, 1, &started));
    assert!(text.ends_with(why), "{text}");

    let (ended, bank, _) = unsure(asks_unsure(), &[Plan::Broken]).await;
    assert_eq!((ended, bank.calls(), bank.asked()), (Ok(1000), 1, 1));

    let (ended, bank, _) = unsure(retries_unsure(), &[Plan::Broken]).await;
    assert_eq!((ended, bank.calls(), bank.charges().len()), (Ok(1000), 2, 1));
    let (ended, bank, ledger) = unsure(retries_unsure(), &[Plan::Broken, Plan::Broken]).await;
    assert_eq!((ended.unwrap_err(), bank.calls()), ((FiberErrorKind::Failed, "the connection broke".to_owned()), 2));
    assert_eq!(ledger, ["charge failed the connection broke"]);

    // Any other error is an answer.
    let (ended, bank, ledger) = unsure(parks_unsure(), &[Plan::Declined, Plan::Declined]).await;
    assert_eq!((ended.unwrap_err().0, bank.calls()), (FiberErrorKind::Failed, 2));
    assert_eq!(ledger, ["charge failed card declined"]);
}

#[tokio::test(start_paused = true)]
async fn so_it_is_in_a_step_of_one_attempt() {
    let why = "verify, then resolve it: step `charge` does not know what it has done: the connection broke";
    for (ended, bank, ledger) in [unsure(parks_once(), &[Plan::Broken]).await, unsure(fails_once(), &[Plan::Broken]).await] {
        assert!(ended.unwrap_err().1.ends_with(why));
        assert_eq!((bank.calls(), ledger), (1, vec!["charge started".to_owned()]));
    }
    // Without `retry` its one attempt has failed.
    let (ended, bank, ledger) = unsure(retries_once(), &[Plan::Broken]).await;
    assert_eq!((ended.unwrap_err(), bank.calls()), ((FiberErrorKind::Failed, "the connection broke".to_owned()), 1));
    assert_eq!(ledger, ["charge failed the connection broke"]);
    // The fiber goes back to its snapshot, and asks from there.
    let (ended, bank, ledger) = unsure(asks_once(), &[Plan::Broken]).await;
    assert_eq!((ended, bank.calls(), bank.asked(), ledger), (Ok(1000), 1, 1, vec!["charge completed 1000".to_owned()]));
}
