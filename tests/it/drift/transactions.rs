//! Transactions without a key that were committed before the process died, and no checkpoint after.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::{World, stopped};

/// How often each transaction has run.
static RUNS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

mod old {
    use super::*;

    #[forever::fiber]
    pub(super) async fn work(ctx: &forever::fiber::FiberContext, io: forever::fiber::Res<World>) -> anyhow::Result<u32> {
        let n = step!("book", {
            let n = ctx.transaction("count", |_| anyhow::Ok(RUNS[0].fetch_add(1, SeqCst))).await?;
            io.did("mail", n).await?
        });
        Ok(n)
    }
}

mod shifted {
    use super::*;

    #[forever::fiber]
    pub(super) async fn work(ctx: &forever::fiber::FiberContext, io: forever::fiber::Res<World>) -> anyhow::Result<u32> {
        // The same transaction, at another line, with another option and another text around it.
        let n = step!("book", timeout = std::time::Duration::from_secs(60), {
            let n = ctx.transaction("count", |_| anyhow::Ok(RUNS[0].fetch_add(1, SeqCst))).await?;
            anyhow::ensure!(n < 10);
            io.did("mail", n).await?
        });
        Ok(n + 10)
    }
}

mod with_another {
    use super::*;

    #[forever::fiber]
    pub(super) async fn work(ctx: &forever::fiber::FiberContext, io: forever::fiber::Res<World>) -> anyhow::Result<u32> {
        let n = step!("book", {
            let n = ctx.transaction("another", |_| anyhow::Ok(RUNS[1].fetch_add(1, SeqCst))).await?;
            io.did("mail", n).await?
        });
        Ok(n)
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_told_by_its_name_and_not_by_its_line() {
    let fiber = stopped(old::work(), "mail").await;
    fiber.parks_naming::<with_another::work>("in step `book` is committed, and the code has changed").await;
    fiber.resumes::<shifted::work>(10, &["mail"]).await;
    assert_eq!([RUNS[0].load(SeqCst), RUNS[1].load(SeqCst)], [1, 0]);
}

/// A version whose step has this name and this transaction.
macro_rules! booking {
    ($version:ident, $step:tt, $name:tt) => {
        #[allow(dead_code)]
        mod $version {
            use super::*;

            #[forever::fiber]
            pub(super) async fn work(ctx: &forever::fiber::FiberContext, io: forever::fiber::Res<World>) -> anyhow::Result<u32> {
                let n = step!($step, {
                    let n = ctx.transaction($name, |_| anyhow::Ok(7)).await?;
                    io.did("mail", n).await?
                });
                Ok(n)
            }
        }
    };
}

booking!(books, "book", "order");
booking!(books_others, "book", "audit");
booking!(buys, "buy", "order");

#[tokio::test(start_paused = true)]
async fn a_check_knows_of_a_committed_transaction() {
    let fiber = stopped(books::work(), "mail").await;
    let found = [fiber.verdict::<books::work>().await, fiber.verdict::<books_others::work>().await, fiber.verdict::<buys::work>().await];
    for may_park in &found[..2] {
        assert!(may_park.to_string().contains("is committed, and the code has to come to it in step `book` under its name"), "{may_park}");
    }
    assert!(found[2].to_string().contains("the code comes to step `buy` before step `book`"), "{}", found[2]);
    fiber.parks_naming::<books_others::work>("in step `book` is committed, and the code has changed").await;
    fiber.parks_saying::<buys::work>(&found[2].to_string()).await;
    fiber.resumes::<books::work>(7, &["mail"]).await;
}
