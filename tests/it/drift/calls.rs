//! Fibers called inline: the callee changes, or another takes its place, while it is under way.
use super::{stopped, versions};

// The callees; `child` is the one that most tests begin with.
versions! {
    child[name = "callee"](io, n: u32) -> u32 {
        let a = step!(io.did("child a", n).await?);
        let b = step!(io.did("child b", a + 1).await?);
        Ok(a + b)
    }
    with_steps_added[name = "callee"](io, n: u32) -> u32 {
        step!("child zero", io.did("child zero", ()).await?);
        let a = step!(io.did("child a", n).await?);
        let between = step!(io.did("child between", a * 10).await?);
        let b = step!(io.did("child b", a + 1).await?);
        Ok(a + b + between)
    }
    with_its_step_removed[name = "callee"](io, n: u32) -> u32 {
        let b = step!(io.did("child b", n + 1).await?);
        Ok(n + b)
    }
    with_its_step_renamed[name = "callee"](io, n: u32) -> u32 {
        let a = step!("first", io.did("child a", n).await?);
        let b = step!(io.did("child b", a + 1).await?);
        Ok(a + b)
    }
    with_its_step_renamed_by_was[name = "callee"](io, n: u32) -> u32 {
        let a = step!("first", was = "a", io.did("child a", n).await?);
        let b = step!(io.did("child b", a + 1).await?);
        Ok(a + b)
    }
    with_its_local_renamed[name = "callee"](io, n: u32) -> u32 {
        let first = step!("a", io.did("child a", n).await?);
        let b = step!(io.did("child b", first + 1).await?);
        Ok(first + b)
    }
    with_its_local_retyped[name = "callee"](io, n: u32) -> u32 {
        let a = step!(io.did("child a", n.to_string()).await?);
        let b = step!(io.did("child b", a.len()).await?);
        Ok(u32::try_from(b + a.len())?)
    }
    with_one_did[name = "callee"](io, n: u32) -> u32 {
        step!(io.did("first", ()).await?);
        let b = step!(io.did("b", n + 1).await?);
        Ok(b)
    }
    with_another_did[name = "callee"](io, n: u32) -> u32 {
        step!(io.did("zeroth", ()).await?);
        step!(io.did("first", ()).await?);
        let b = step!(io.did("b", n + 1).await?);
        Ok(b)
    }
    with_one_x[name = "callee"](io, n: u32) -> u32 {
        let x = n;
        let a = step!(io.did("a", x).await?);
        let b = step!(io.did("b", a).await?);
        Ok(x + b)
    }
    with_another_x[name = "callee"](io, n: u32) -> u32 {
        let x = n * 1000;
        step!("zero", io.did("zero", ()).await?);
        let rest = x;
        let x = n + rest;
        let a = step!(io.did("a", x).await?);
        let b = step!(io.did("b", a).await?);
        Ok(x + b)
    }
    of_version_2[name = "callee", version = 2](io, n: u32) -> u32 {
        let a = step!(io.did("child a", n).await?);
        let b = step!(io.did("child b", a + 1).await?);
        Ok(a + b)
    }
    other[name = "other"](io, n: u32) -> u32 {
        let a = step!(io.did("other a", n).await?);
        let b = step!(io.did("other b", a + 100).await?);
        Ok(a * b)
    }
    other_short[name = "other"](io, n: u32) -> u32 {
        let a = step!(io.did("other a", n).await?);
        Ok(a * 100)
    }
    that_migrates[name = "callee", migrate = super::mend_child](io, n: u32) -> u32 {
        let first = step!("a", io.did("child a", n).await?);
        let b = step!(io.did("child b", first + 1).await?);
        Ok(first + b)
    }
}

/// A callee of the stored name `child`, called by the version `$version` of `work`.
macro_rules! callers {
    ($($version:ident calls $callee:path;)*) => {
        versions! {$(
            $version(io, n: u32) -> u32 {
                let start = step!(io.did("start", n).await?);
                let sum = call!($callee(start))?;
                let end = step!(io.did("end", sum).await?);
                Ok(end + start)
            }
        )*}
    };
}

#[tokio::test(start_paused = true)]
async fn a_step_made_a_call_parks_and_back() {
    versions! {
        step(io, n: u32) -> u32 {
            let sum = step!(io.did("sum", n).await?);
            let end = step!(io.did("end", sum).await?);
            Ok(end)
        }
        called(io, n: u32) -> u32 {
            let sum = call!(child::work(n))?;
            let end = step!(io.did("end", sum).await?);
            Ok(end)
        }
    }
    let fiber = stopped(step::work(3), "end").await;
    fiber
        .parks::<called::work>(
            "`sum` is a call now and was a step before: give the new one another name, or mend the snapshot with `migrate`",
        )
        .await;
    fiber.resumes::<step::work>(3, &["end"]).await;

    let fiber = stopped(called::work(3), "child b").await;
    fiber
        .parks::<step::work>(
            "`sum` is a step now and was a call before: give the new one another name, or mend the snapshot with `migrate`",
        )
        .await;
    fiber.resumes::<called::work>(7, &["child b", "end"]).await;

    let fiber = stopped(called::work(3), "end").await;
    fiber
        .parks::<step::work>(
            "`sum` is a step now and was a call before: give the new one another name, or mend the snapshot with `migrate`",
        )
        .await;
    fiber.resumes::<called::work>(7, &["end"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_added_to_the_callee_is_run_or_not_as_in_a_fiber_of_its_own() {
    callers! { old calls child::work; new calls with_steps_added::work; }
    stopped(old::work(3), "child b").await.resumes::<new::work>(3 + 4 + 30 + 3, &["child between", "child b", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_step_where_the_callee_stands_removed_or_renamed_parks() {
    callers! { old calls child::work; new calls with_its_step_removed::work; newer calls with_its_step_renamed::work; newest calls with_its_step_renamed_by_was::work; }
    let fiber = stopped(old::work(3), "child b").await;
    fiber.parks_naming::<new::work>("`a`").await;
    fiber.parks_naming::<newer::work>("`a`").await;
    fiber.resumes::<newest::work>(10, &["child b", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_local_of_the_callee_renamed_or_of_another_type_parks() {
    callers! { old calls child::work; new calls with_its_local_renamed::work; newer calls with_its_local_retyped::work; }
    let fiber = stopped(old::work(3), "child b").await;
    fiber.parks_naming::<new::work>("`first`").await;
    fiber.parks_naming::<newer::work>("`a` saved at step `a` cannot be read as").await;
    fiber.resumes::<old::work>(10, &["child b", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_derived_step_of_the_same_name_added_to_the_callee_parks() {
    callers! { old calls with_one_did::work; new calls with_another_did::work; }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks_naming::<new::work>("`did` stands for 2 steps now and for 1 before").await;
    fiber.resumes::<old::work>(7, &["b", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shadowing_local_added_to_the_callee_parks() {
    callers! { old calls with_one_x::work; new calls with_another_x::work; }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks_naming::<new::work>("`x").await;
    fiber.resumes::<old::work>(9, &["b", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_version_of_the_callee_raised_while_it_is_under_way_parks() {
    callers! { old calls child::work; new calls of_version_2::work; }
    let fiber = stopped(old::work(3), "child b").await;
    fiber.parks_naming::<new::work>("`callee` cannot resume: it has version 2 now and had 0 before").await;
    fiber.resumes::<old::work>(10, &["child b", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn another_fiber_in_the_place_of_the_callee_parks() {
    callers! { old calls child::work; new calls other::work; }
    let fiber = stopped(old::work(3), "child b").await;
    fiber.parks_naming::<new::work>("`other`").await;
    fiber.resumes::<old::work>(10, &["child b", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn another_callee_is_called_where_the_old_one_was_not_yet_or_has_ended() {
    callers! { old calls child::work; new calls other_short::work; }
    stopped(old::work(3), "child a").await.resumes::<new::work>(303, &["other a", "end"]).await;
    stopped(old::work(3), "end").await.resumes::<new::work>(10, &["end"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_migrate_function_of_the_callee_mends_its_part() {
    callers! { old calls child::work; new calls that_migrates::work; }
    stopped(old::work(3), "child b").await.resumes::<new::work>(10, &["child b", "end"]).await;
}

fn mend_child(mut old: forever::fiber::Snapshot) -> anyhow::Result<forever::fiber::Snapshot> {
    let a = old.locals.remove("a").ok_or_else(|| anyhow::anyhow!("no `a`"))?;
    old.locals.insert("first".to_owned(), a);
    Ok(old)
}

#[tokio::test(start_paused = true)]
async fn the_caller_changed_around_a_call_under_way_resumes_inside_the_call() {
    versions! {
        old(io, n: u32) -> u32 {
            let sum = call!(child::work(n))?;
            let end = step!(io.did("end", sum).await?);
            Ok(end)
        }
        new(io, n: u32) -> u32 {
            step!("start", io.did("start", ()).await?);
            let sum = call!(child::work(n * 1000))?;
            let after = step!(io.did("after", sum + 1).await?);
            let end = step!(io.did("end", after).await?);
            Ok(end)
        }
    }
    stopped(old::work(3), "child b").await.resumes::<new::work>(8, &["child b", "after", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_needed_only_since_the_call_came_under_way_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let extra = n * 10;
            let sum = call!(child::work(n))?;
            let end = step!(io.did("end", sum).await?);
            Ok(end)
        }
        new(io, n: u32) -> u32 {
            let extra = n * 10;
            let sum = call!(child::work(n))?;
            let end = step!(io.did("end", sum).await?);
            Ok(end + extra)
        }
    }
    let fiber = stopped(old::work(3), "child b").await;
    fiber.parks::<new::work>("local `extra` is needed after step `sum` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(7, &["child b", "end"]).await;
}

versions! {
    charging[name = "callee"](io, n: u32) -> u32 {
        step!(io.did("charge", ()).await?);
        step!(io.did("mail", ()).await?);
        let b = step!(io.did("child b", n).await?);
        Ok(b)
    }
    mailing_first[name = "callee"](io, n: u32) -> u32 {
        step!(io.did("mail", ()).await?);
        step!(io.did("charge", ()).await?);
        let b = step!(io.did("child b", n).await?);
        Ok(b)
    }
    both_rewritten[name = "callee"](io, n: u32) -> u32 {
        step!(io.did("mail", n).await?);
        step!(io.did("charge", n).await?);
        let b = step!(io.did("child b", n).await?);
        Ok(b)
    }
    replaced[name = "callee"](io, n: u32) -> u32 {
        let b = step!(io.did("child b", n).await?);
        step!(io.did("other", ()).await?);
        Ok(b)
    }
    charging_once[name = "callee"](io, n: u32) -> u32 {
        step!(io.did("charge", ()).await?);
        let b = step!(io.did("child b", n).await?);
        Ok(b)
    }
}

#[tokio::test(start_paused = true)]
async fn steps_of_the_callee_exchanged_or_replaced_park_as_in_a_fiber_of_its_own() {
    callers! { old calls charging::work; new calls mailing_first::work; rewritten calls both_rewritten::work; }
    let fiber = stopped(old::work(3), "mail").await;
    fiber.parks_naming::<new::work>("`did` stands for 2 steps").await;
    fiber.parks_naming::<rewritten::work>("`did` has another body than before and stands elsewhere").await;
    fiber.resumes::<old::work>(6, &["mail", "child b", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_callee_dropped_and_another_of_its_name_elsewhere_parks() {
    callers! { old calls charging_once::work; new calls replaced::work; }
    let fiber = stopped(old::work(3), "child b").await;
    fiber.parks_naming::<new::work>("`did` has another body than before and stands elsewhere").await;
    fiber.resumes::<old::work>(6, &["child b", "end"]).await;
}

// Callers of one text, and so of one layout, whose callees differ.
mod before {
    use super::child as callee;
    use crate::drift::World;
    use forever::prelude::*;

    #[fiber(name = "caller")]
    pub(super) async fn caller(io: Res<World>, n: u32) -> anyhow::Result<u32> {
        let sum = call!(callee::work(n))?;
        step!("end", io.did("end", sum).await?);
        Ok(sum)
    }
}

mod after {
    use super::with_its_step_removed as callee;
    use crate::drift::World;
    use forever::prelude::*;

    #[fiber(name = "caller")]
    pub(super) async fn caller(io: Res<World>, n: u32) -> anyhow::Result<u32> {
        let sum = call!(callee::work(n))?;
        step!("end", io.did("end", sum).await?);
        Ok(sum)
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_finds_what_a_callee_parks_also_where_its_caller_is_as_it_was() {
    let fiber = stopped(before::caller(3), "child b").await;
    assert_eq!(fiber.parked_by_a_check::<before::caller, child::work>().await, 0);
    assert_eq!(fiber.parked_by_a_check::<after::caller, with_its_step_removed::work>().await, 1);
    fiber.resumes::<before::caller>(7, &["child b", "end"]).await;
}
