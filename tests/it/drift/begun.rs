//! What code has begun behind a snapshot of other code, or before there is one, is in the names of the code that began it.
use forever::ops::OnUnknown;

use super::{stopped, stopped_side_by_side, versions};

mod before {
    use super::super::World;
    use forever::prelude::*;

    #[fiber(name = "callee")]
    pub(super) async fn callee(io: Res<World>) -> anyhow::Result<u32> {
        step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("pay", op.id().len()).await?);
        Ok(1)
    }
}
mod after {
    use super::super::World;
    use forever::prelude::*;

    #[fiber(name = "callee")]
    pub(super) async fn callee(io: Res<World>) -> anyhow::Result<u32> {
        step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("fee", op.id().len()).await?);
        step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("pay", op.id().len()).await?);
        Ok(1)
    }
}

#[tokio::test(start_paused = true)]
async fn results_of_branches_are_known_by_the_code_that_stored_them() {
    versions! {
        old(io, n: u32) -> (u32, u32, u32) {
            let all = steps!(io.did("one", n).await?, io.did("one", n * 10).await?, io.did("one", n * 100).await?);
            Ok(all)
        }
        shorter(io, n: u32) -> (u32, u32) {
            let all = steps!(io.did("two", n * 10).await?, io.did("three", n * 100).await?);
            Ok(all)
        }
    }
    // The wait begins under the old code, which stores no result; one is stored by the shorter code, and then the old code is back.
    let fiber = stopped_side_by_side(old::work(3), "one", 0).await;
    fiber.resumes_side_by_side::<shorter::work>("two", 1).await;
    assert_eq!(fiber.parked_by_a_check::<old::work, old::work>().await, 1, "also under the layout of its snapshot");
    fiber.parks_naming::<old::work>("`did` stands for other branches of `all` than before").await;
    fiber.resumes::<shorter::work>((30, 300), &["two"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_known_by_the_code_that_began_it_behind_a_snapshot_of_other_code() {
    versions! {
        old(io, n: u32) -> u32 {
            step!("open", io.did("open", ()).await?);
            step!("hold", io.did("hold", ()).await?);
            Ok(n)
        }
        paying(io, n: u32) -> u32 {
            step!("open", io.did("open", ()).await?);
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("pay", op.id().len()).await?);
            Ok(n)
        }
        paying_more(io, n: u32) -> u32 {
            step!("open", io.did("open", ()).await?);
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("fee", op.id().len()).await?);
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("pay", op.id().len()).await?);
            Ok(n)
        }
    }
    let fiber = stopped(old::work(3), "hold").await;
    fiber.resumes_until::<paying::work>("pay", &[]).await;
    fiber.parks_naming::<paying_more::work>("which step began it cannot be told, `did` stands for 2 steps now and for 1 before").await;
    fiber.parks_naming::<old::work>("may have executed").await;
    fiber.resumes::<paying::work>(3, &["pay"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_behind_a_snapshot_of_the_same_code_is_known_by_that_code() {
    versions! {
        old(io, n: u32) -> u32 {
            step!("open", io.did("open", ()).await?);
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("pay", op.id().len()).await?);
            Ok(n)
        }
        paying_more(io, n: u32) -> u32 {
            step!("open", io.did("open", ()).await?);
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("fee", op.id().len()).await?);
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("pay", op.id().len()).await?);
            Ok(n)
        }
    }
    let fiber = stopped(old::work(3), "pay").await;
    fiber.parks_naming::<paying_more::work>("which step began it cannot be told, `did` stands for 2 steps now and for 1 before").await;
    fiber.resumes::<old::work>(3, &["pay"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_before_the_first_checkpoint_is_known_by_the_code_that_began_it() {
    versions! {
        old(io, n: u32) -> u32 {
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("pay", op.id().len()).await?);
            Ok(n)
        }
        paying_more(io, n: u32) -> u32 {
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("fee", op.id().len()).await?);
            step!(effect, on_unknown = OnUnknown::Retry, |op| io.did("pay", op.id().len()).await?);
            Ok(n)
        }
    }
    let fiber = stopped(old::work(3), "pay").await;
    fiber.parks_naming::<paying_more::work>("which step began it cannot be told, `did` stands for 2 steps now and for 1 before").await;
    fiber.resumes::<old::work>(3, &["pay"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stash_is_known_by_the_code_that_stored_it() {
    versions! {
        old(io, n: u32) -> u32 {
            let sum: u32 = step!("sum", |op| {
                op.stash(&n).await?;
                io.did("sum", n).await?
            });
            Ok(sum)
        }
        unnamed(io, n: u32) -> u32 {
            step!(|op| {
                op.stash(&n).await?;
                io.did("first", op.stashed::<u32>()?).await?;
            });
            Ok(n)
        }
        another_before(io, n: u32) -> u32 {
            step!(|op| {
                io.did("other", op.stashed::<u32>()?).await?;
            });
            step!(|op| {
                op.stash(&n).await?;
                io.did("first", op.stashed::<u32>()?).await?;
            });
            Ok(n)
        }
    }
    let fiber = stopped(unnamed::work(3), "first").await;
    fiber.parks_naming::<another_before::work>("has stored a stash or a log, and which step that is now cannot be told").await;
    fiber.resumes::<unnamed::work>(3, &["first"]).await;
    let fiber = stopped(old::work(3), "sum").await;
    fiber.resumes::<old::work>(3, &["sum"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_called_function_is_known_by_the_layout_that_it_began_under() {
    versions! {
        old(io, n: u32) -> u32 {
            let _ = &io;
            let one = call!(before::callee())?;
            Ok(n + one)
        }
        new(io, n: u32) -> u32 {
            let _ = &io;
            let one = call!(after::callee())?;
            Ok(n + one)
        }
    }
    let fiber = stopped(old::work(3), "pay").await;
    assert_eq!(fiber.parked_by_a_check::<old::work, before::callee>().await, 0);
    assert_eq!(fiber.parked_by_a_check::<new::work, after::callee>().await, 1, "the caller has no snapshot of the callee yet");
    fiber.parks_naming::<new::work>("which step began it cannot be told, `did` stands for 2 steps now and for 1 before").await;
    fiber.resumes::<old::work>(4, &["pay"]).await;
}
