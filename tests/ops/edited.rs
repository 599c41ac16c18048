//! Code that is changed while an operation is in doubt: whatever the change is, no other body begins, at any open.
use std::fmt::Debug;

use forever::fiber::{Fiber, FiberErrorKind};
use forever::ops::OpState;
use forever::prelude::*;
use forever_testkit::waiting::eventually;

use crate::support::{Bank, Place, Plan, soon, words};

const ID: &str = "order-1";

/// Versions of one fiber, each in a module of its own.
macro_rules! versions {
    ($($name:ident($bank:ident) { $($body:tt)* })*) => {
        $(#[allow(dead_code, reason = "most of them only resume what another has left")]
        mod $name {
            use super::*;

            #[fiber(name = "order")]
            pub(super) async fn order($bank: Res<Bank>) -> anyhow::Result<u64> { $($body)* }
        })*
    };
}

versions! {
    before(bank) {
        let receipt = step!(effect, |op| bank.charge(op.id(), 100).await?);
        step!("mail", bank.knock());
        Ok(receipt)
    }
    variable_renamed(bank) {
        let paid = step!(effect, |op| bank.charge(op.id(), 100).await?);
        step!("mail", bank.knock());
        Ok(paid)
    }
    named_without_was(bank) {
        let receipt = step!("charge", effect, |op| bank.charge(op.id(), 100).await?);
        step!("mail", bank.knock());
        Ok(receipt)
    }
    named_with_was(bank) {
        let receipt = step!("charge", was = "receipt", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), 100).await?);
        step!("mail", bank.knock());
        Ok(receipt)
    }
    no_effect(bank) {
        let receipt = step!(|op| bank.charge(op.id(), 100).await?);
        step!("mail", bank.knock());
        Ok(receipt)
    }
    moved_into_a_called_fiber(bank) {
        let receipt = call!(charging())?;
        let bank: &Bank = &bank;
        step!("mail", bank.knock());
        Ok(receipt)
    }
    moved_into_a_branch(bank) {
        let (receipt, ()) = steps!(step!("receipt", effect, |op| bank.charge(op.id(), 100).await?), bank.knock());
        Ok(receipt)
    }
    a_step_put_before(bank) {
        step!("note", bank.knock());
        let receipt = step!(effect, |op| bank.charge(op.id(), 100).await?);
        Ok(receipt)
    }
    an_effect_put_before(bank) {
        let fee = step!("fee", effect, |op| bank.charge(op.id(), 1).await?);
        let receipt = step!(effect, |op| bank.charge(op.id(), 100).await?);
        Ok(fee + receipt)
    }
    branches_put_before(bank) {
        let (_, _) = steps!(step!("a", bank.knock()), step!("b", bank.knock()));
        let receipt = step!(effect, |op| bank.charge(op.id(), 100).await?);
        Ok(receipt)
    }
    exchanged_with_the_next(bank) {
        step!("mail", bank.knock());
        let receipt = step!(effect, |op| bank.charge(op.id(), 100).await?);
        Ok(receipt)
    }
    removed(bank) {
        step!("mail", bank.knock());
        Ok(0)
    }
    removed_with_all_steps(bank) {
        let _ = &bank;
        Ok(0)
    }
    another_key(bank) {
        let receipt = step!(effect, key = "again", |op| bank.charge(op.id(), 100).await?);
        step!("mail", bank.knock());
        Ok(receipt)
    }
}

#[fiber]
async fn charging(bank: Res<Bank>) -> anyhow::Result<u64> {
    let receipt = step!(effect, |op| bank.charge(op.id(), 100).await?);
    Ok(receipt)
}

/// A fiber that was killed when the bank had been called as planned, and `stored` branches had their results.
async fn killed<F: Fiber<Output: Debug>>(call: F, plans: &[Plan], stored: i64) -> (Place, Bank) {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan(plans.iter().cloned());
    let forever = place.builder(&bank).fiber::<F>().open().await.unwrap();
    forever.spawn(call).id(ID).await.unwrap();
    soon(bank.called(plans.len())).await;
    eventually("the results", async || place.number("SELECT count(*) FROM branch_results") >= stored).await;
    drop(forever);
    (place, bank)
}

/// A fiber that was killed in the body of its effect, when the bank had been asked and had not answered.
async fn killed_in_its_effect<F: Fiber<Output: Debug>>(call: F) -> (Place, Bank) {
    killed(call, &[Plan::Silent], 0).await
}

/// Under the code `F` the fiber is parked at each of five opens, for a reason that names the operation, and the bank hears nothing.
async fn parks<F: Fiber<Output: Debug>>(place: &Place, bank: &Bank) {
    for open in 1..=5 {
        let forever = place.builder(bank).fiber::<F>().open().await.unwrap();
        let error = soon(forever.fiber::<F>(ID).wait()).await.unwrap_err();
        let op = forever.ops(ID).await.unwrap().remove(0);
        assert_eq!(error.kind(), FiberErrorKind::Parked, "{error}");
        let said = format!("operation `{}` may have executed; verify, then resolve it", op.id);
        assert!(error.reason().starts_with(&said) || error.reason().contains("met again with key"), "{}", error.reason());
        assert!(error.reason().contains("`receipt`"), "{}", error.reason());
        assert_eq!((bank.calls(), op.step.as_str()), (1, "receipt"), "open {open}");
        // A person who resumes it without a look at the bank changes nothing.
        forever.resume(ID).await.unwrap();
        assert!(soon(forever.fiber::<F>(ID).wait()).await.unwrap_err().is_parked());
        assert_eq!(bank.calls(), 1, "open {open}, resumed");
        forever.close().await.unwrap();
    }
}

macro_rules! parks {
    ($($test:ident: $version:ident,)*) => {
        $(#[tokio::test(start_paused = true)]
        async fn $test() {
            let (place, bank) = killed_in_its_effect(before::order()).await;
            parks::<$version::order>(&place, &bank).await;
            // Said to be carried out, it is not begun either.
            let forever = place.builder(&bank).fiber::<$version::order>().open().await.unwrap();
            let op = forever.ops(ID).await.unwrap().remove(0);
            soon(forever.resolve_op(&op.id, forever::ops::OpResolution::completed(&1000_u64).unwrap())).await.unwrap();
            assert!(soon(forever.fiber::<$version::order>(ID).wait()).await.unwrap_err().is_parked());
            assert_eq!(bank.calls(), 1);
            forever.close().await.unwrap();
            // And where the code comes to it, its result is there.
            let forever = place.builder(&bank).fiber::<before::order>().open().await.unwrap();
            assert_eq!(soon(forever.fiber::<before::order>(ID).wait()).await.unwrap(), 1000);
            assert_eq!((words(&forever.ops(ID).await.unwrap()), bank.charges().len()), (vec!["receipt completed 1000".to_owned()], 1));
        })*
    };
}

parks! {
    an_effect_whose_variable_is_renamed_parks: variable_renamed,
    an_effect_that_is_named_without_was_parks: named_without_was,
    an_effect_that_is_none_any_more_parks: no_effect,
    an_effect_moved_into_a_called_fiber_parks: moved_into_a_called_fiber,
    an_effect_moved_into_a_branch_parks: moved_into_a_branch,
    a_step_put_before_an_effect_in_doubt_does_not_begin: a_step_put_before,
    an_effect_put_before_one_in_doubt_does_not_begin: an_effect_put_before,
    branches_put_before_an_effect_in_doubt_do_not_begin: branches_put_before,
    an_effect_exchanged_with_the_next_step_parks: exchanged_with_the_next,
    an_effect_that_is_removed_parks: removed,
    an_effect_with_another_key_parks: another_key,
}

#[tokio::test(start_paused = true)]
async fn an_effect_named_with_was_is_found_in_doubt_under_its_old_name() {
    let (place, bank) = killed_in_its_effect(before::order()).await;
    let forever = place.builder(&bank).fiber::<named_with_was::order>().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<named_with_was::order>(ID).wait()).await.unwrap(), 1000);
    assert_eq!((bank.calls(), bank.charges().len()), (3, 1), "asked again under the same id, and the mail");
}

#[tokio::test(start_paused = true)]
async fn a_function_without_the_effect_does_not_complete() {
    let (place, bank) = killed_in_its_effect(before::order()).await;
    parks::<removed_with_all_steps::order>(&place, &bank).await;
}

#[tokio::test(start_paused = true)]
async fn resolved_as_not_executed_the_new_code_runs() {
    let (place, bank) = killed_in_its_effect(before::order()).await;
    let forever = place.builder(&bank).fiber::<an_effect_put_before::order>().open().await.unwrap();
    let handle = forever.fiber::<an_effect_put_before::order>(ID);
    assert!(soon(handle.wait()).await.unwrap_err().is_parked());
    let op = forever.ops(ID).await.unwrap().remove(0);
    soon(forever.resolve_op(&op.id, forever::ops::OpResolution::NotExecuted)).await.unwrap();
    soon(handle.wait()).await.unwrap();
}

/// A caller, and versions of what it calls.
mod called {
    use super::*;

    pub(super) mod before {
        use super::*;

        #[fiber(name = "charging")]
        pub(in super::super) async fn charging(bank: Res<Bank>) -> anyhow::Result<u64> {
            step!("begin", bank.charge("fee", 1).await?);
            let receipt = step!(effect, |op| bank.charge(op.id(), 100).await?);
            Ok(receipt)
        }

        #[fiber(name = "order")]
        pub(in super::super) async fn order() -> anyhow::Result<u64> {
            let receipt = call!(charging())?;
            Ok(receipt)
        }
    }

    pub(super) mod renamed {
        use super::*;

        #[fiber(name = "charging")]
        pub(in super::super) async fn charging(bank: Res<Bank>) -> anyhow::Result<u64> {
            step!("begin", bank.charge("fee", 1).await?);
            let paid = step!(effect, |op| bank.charge(op.id(), 100).await?);
            Ok(paid)
        }

        #[fiber(name = "order")]
        pub(in super::super) async fn order() -> anyhow::Result<u64> {
            let receipt = call!(charging())?;
            Ok(receipt)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_renamed_in_a_called_fiber_parks() {
    let (place, bank) = killed(called::before::order(), &[Plan::Answers, Plan::Silent], 0).await;
    for _ in 0..5 {
        let forever = place.builder(&bank).fiber::<called::renamed::order>().open().await.unwrap();
        let error = soon(forever.fiber::<called::renamed::order>(ID).wait()).await.unwrap_err();
        assert!(error.is_parked() && error.reason().contains("before step `receipt` of `charging`, which began it"), "{error}");
        assert_eq!(bank.calls(), 2);
        forever.close().await.unwrap();
    }
    let forever = place.builder(&bank).fiber::<called::before::order>().open().await.unwrap();
    let op = forever.ops(ID).await.unwrap().remove(0);
    assert!(soon(forever.fiber::<called::before::order>(ID).wait()).await.unwrap_err().is_parked());
    soon(forever.resolve_op(&op.id, forever::ops::OpResolution::completed(&1000_u64).unwrap())).await.unwrap();
    assert_eq!(soon(forever.fiber::<called::before::order>(ID).wait()).await.unwrap(), 1000);
}

versions! {
    one(bank) {
        step!("begin", bank.knock());
        let receipt = step!({ bank.charge("fee", 1).await? });
        step!(effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), 100).await?);
        Ok(receipt)
    }
    another_before_it(bank) {
        step!("begin", bank.knock());
        let receipt = step!({ bank.charge("fee", 1).await? });
        step!(effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), 7).await?);
        step!(effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), 100).await?);
        Ok(receipt)
    }
    moved_and_rewritten(bank) {
        step!("begin", bank.knock());
        step!("note", bank.knock());
        let receipt = step!({ bank.charge("fee", 1).await? });
        step!("before", bank.knock());
        step!(effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), 7).await?);
        step!("behind", bank.knock());
        Ok(receipt)
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_of_a_derived_step_is_not_taken_for_another_one_of_its_name() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Answers, Plan::Silent]);
    let forever = place.builder(&bank).fiber::<one::order>().open().await.unwrap();
    forever.spawn(one::order()).id(ID).await.unwrap();
    soon(bank.called(3)).await;
    drop(forever);
    for _ in 0..3 {
        let forever = place.builder(&bank).fiber::<another_before_it::order>().open().await.unwrap();
        let error = soon(forever.fiber::<another_before_it::order>(ID).wait()).await.unwrap_err();
        let said = "which step began it cannot be told, `charge` stands for 2 steps now and for 1 before";
        assert!(error.is_parked() && error.reason().contains(said), "{error}");
        forever.close().await.unwrap();
        let forever = place.builder(&bank).fiber::<moved_and_rewritten::order>().open().await.unwrap();
        let error = soon(forever.fiber::<moved_and_rewritten::order>(ID).wait()).await.unwrap_err();
        let said = "which step began it cannot be told, `charge` has another body than before and stands elsewhere";
        assert!(error.is_parked() && error.reason().contains(said), "{error}");
        forever.close().await.unwrap();
    }
    assert_eq!(bank.charges().iter().map(|(_, cents)| *cents).collect::<Vec<_>>(), [1, 100]);
    let forever = place.builder(&bank).fiber::<one::order>().open().await.unwrap();
    soon(forever.fiber::<one::order>(ID).wait()).await.unwrap();
    assert_eq!(bank.charges().len(), 2, "asked again under the same id");
}

versions! {
    a_branch(bank) {
        let (receipt, ()) = steps!("both", step!("receipt", effect, |op| bank.charge(op.id(), 100).await?), step!("mail", bank.knock()));
        Ok(receipt)
    }
    a_branch_removed(bank) {
        let ((), ()) = steps!("both", step!("mail", bank.knock()), step!("note", bank.knock()));
        Ok(0)
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_in_a_branch_that_is_removed_parks_before_another_branch_begins() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let forever = place.builder(&bank).fiber::<a_branch::order>().open().await.unwrap();
    forever.spawn(a_branch::order()).id(ID).await.unwrap();
    soon(bank.called(2)).await;
    drop(forever);
    for open in ["in doubt", "carried out"] {
        let forever = place.builder(&bank).fiber::<a_branch_removed::order>().open().await.unwrap();
        let handle = forever.fiber::<a_branch_removed::order>(ID);
        let error = soon(handle.wait()).await.unwrap_err();
        let said = "comes to step `both` before step `both[receipt]` of `order`, which began it";
        assert!(error.is_parked() && error.reason().contains(said), "{open}: {error}");
        let op = forever.ops(ID).await.unwrap().remove(0);
        if open == "in doubt" {
            soon(forever.resolve_op(&op.id, forever::ops::OpResolution::completed(&1000_u64).unwrap())).await.unwrap();
            assert!(soon(handle.wait()).await.unwrap_err().is_parked());
        }
        assert_eq!((bank.calls(), op.step.as_str()), (2, "both[receipt]"), "{open}");
        forever.close().await.unwrap();
    }
    let forever = place.builder(&bank).fiber::<a_branch::order>().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<a_branch::order>(ID).wait()).await.unwrap(), 1000);
}

versions! {
    branches_with_an_effect(bank) {
        let (fee, receipt) = steps!(
            "both",
            step!("fee", bank.charge("fee", 1).await?),
            step!("receipt", effect, |op| bank.charge(op.id(), 100).await?),
        );
        Ok(fee + receipt)
    }
    the_branch_is_plain(bank) {
        let (fee, receipt) = steps!("both", step!("fee", bank.charge("fee", 1).await?), step!("receipt", bank.charge("again", 100).await?));
        Ok(fee + receipt)
    }
    the_branch_is_renamed_and_plain(bank) {
        let (fee, receipt) = steps!(
            "both",
            step!("fee", bank.charge("fee", 1).await?),
            step!("paid", was = "receipt", |op| bank.charge(op.id(), 100).await?),
        );
        Ok(fee + receipt)
    }
    the_branch_is_retried_and_plain(bank) {
        let retry = || Retry::<anyhow::Error>::times(3);
        let (fee, receipt) = steps!(
            "both",
            step!("fee", bank.charge("fee", 1).await?),
            step!("receipt", retry = retry(), bank.charge("again", 100).await?),
        );
        Ok(fee + receipt)
    }
    items_that_are_effects(bank) {
        let receipts = steps!("all", for cents in [100, 200], limit = 1, effect, |op| bank.charge(op.id(), cents).await?);
        Ok(receipts.iter().sum())
    }
    items_that_are_plain(bank) {
        let receipts = steps!("all", for cents in [100, 200], limit = 1, bank.charge("again", cents).await?);
        Ok(receipts.iter().sum())
    }
    items_that_are_plain_with_an_op(bank) {
        let receipts = steps!("all", for cents in [200, 100], |op| bank.charge(op.id(), cents).await?);
        Ok(receipts.iter().sum())
    }
}

/// Under `New`, whose branch is no effect, the fiber is parked at each of five opens, before and after the operation is said to be
/// carried out, and the bank is not called. Under `Old` it has that result.
async fn branch_without_its_effect_parks<Old, New>(old: Old, plans: &[Plan], stored: i64, result: u64)
where
    Old: Fiber<Output = u64>,
    New: Fiber<Output = u64>,
{
    let (place, bank) = killed(old, plans, stored).await;
    let mut in_doubt = None;
    for open in 1..=5 {
        let forever = place.builder(&bank).fiber::<New>().open().await.unwrap();
        let handle = forever.fiber::<New>(ID);
        let ops = forever.ops(ID).await.unwrap();
        let op = in_doubt.get_or_insert_with(|| ops.into_iter().find(|op| op.state == OpState::Started).unwrap());
        for time in 0..2 {
            let error = soon(handle.wait()).await.unwrap_err();
            assert!(error.is_parked() && error.reason().contains(&format!("`{}`", op.id)), "{error}");
            let said = "is another one now, or no effect any more; make it the effect that it was";
            let renamed = format!("before step `{}` of `order`, which began it", op.step);
            assert!(error.reason().contains(said) || error.reason().contains(&renamed), "{error}");
            assert_eq!(bank.calls(), plans.len(), "at open {open}");
            if (open, time) == (3, 0) {
                soon(forever.resolve_op(&op.id, forever::ops::OpResolution::completed(&1000_u64).unwrap())).await.unwrap();
            } else {
                forever.resume(ID).await.unwrap();
            }
        }
        forever.close().await.unwrap();
    }
    let forever = place.builder(&bank).fiber::<Old>().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<Old>(ID).wait()).await.unwrap(), result);
}

#[tokio::test(start_paused = true)]
async fn effect_in_doubt_whose_branch_is_plain_now_parks_before_any_branch_begins() {
    use branches_with_an_effect::order as old;
    let in_both = [Plan::Silent, Plan::Silent];
    branch_without_its_effect_parks::<old, the_branch_is_plain::order>(old(), &in_both, 0, 2000).await;
    branch_without_its_effect_parks::<old, the_branch_is_renamed_and_plain::order>(old(), &in_both, 0, 2000).await;
    branch_without_its_effect_parks::<old, the_branch_is_retried_and_plain::order>(old(), &in_both, 0, 2000).await;
    let in_one = [Plan::Answers, Plan::Silent];
    branch_without_its_effect_parks::<old, the_branch_is_plain::order>(old(), &in_one, 1, 2000).await;
}

#[tokio::test(start_paused = true)]
async fn effect_in_doubt_whose_items_are_plain_now_parks_before_any_item_begins() {
    use items_that_are_effects::order as old;
    let first = [Plan::Silent];
    branch_without_its_effect_parks::<old, items_that_are_plain::order>(old(), &first, 0, 2001).await;
    branch_without_its_effect_parks::<old, items_that_are_plain_with_an_op::order>(old(), &first, 0, 2001).await;
    let second = [Plan::Answers, Plan::Silent];
    branch_without_its_effect_parks::<old, items_that_are_plain::order>(old(), &second, 1, 2000).await;
}

#[tokio::test(start_paused = true)]
async fn stored_result_of_a_branch_stays_when_the_branch_is_no_effect_any_more() {
    let in_the_plain_one = [Plan::Silent, Plan::Answers];
    let (place, bank) = killed(branches_with_an_effect::order(), &in_the_plain_one, 1).await;
    let forever = place.builder(&bank).fiber::<the_branch_is_plain::order>().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<the_branch_is_plain::order>(ID).wait()).await.unwrap(), 2001);
    assert_eq!(bank.charges().len(), 2);
}
