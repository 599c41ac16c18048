//! Transactions without a key that were committed before the process died, and no checkpoint after.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use forever::layout::Verdict;

use super::{World, stopped};

/// How often each transaction has run.
static RUNS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

mod old {
    use super::*;

    #[forever::fiber]
    pub(super) async fn work(ctx: &forever::fiber::FiberContext, io: forever::fiber::Res<World>) -> anyhow::Result<u32> {
        let n = step!("book", {
            let n = ctx.transaction(|_| anyhow::Ok(RUNS[0].fetch_add(1, SeqCst))).await?;
            io.did("mail", n).await?
        });
        Ok(n)
    }
}

mod shifted {
    use super::*;

    #[forever::fiber]
    pub(super) async fn work(ctx: &forever::fiber::FiberContext, io: forever::fiber::Res<World>) -> anyhow::Result<u32> {
        // The same step, at other lines and with another option.
        let n = step!("book", timeout = std::time::Duration::from_secs(60), {
            let n = ctx.transaction(|_| anyhow::Ok(RUNS[0].fetch_add(1, SeqCst))).await?;
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
            let n = ctx.transaction(|_| anyhow::Ok(RUNS[1].fetch_add(1, SeqCst))).await?;
            io.did("mail", n).await?
        });
        Ok(n)
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_told_by_the_text_of_its_step_and_not_by_its_line() {
    let fiber = stopped(old::work(), "mail").await;
    fiber.parks_naming::<with_another::work>("in step `book` is committed, and the code has changed").await;
    fiber.resumes::<shifted::work>(10, &["mail"]).await;
    assert_eq!([RUNS[0].load(SeqCst), RUNS[1].load(SeqCst)], [1, 0]);
}

/// A version whose step has this name and this transaction.
macro_rules! booking {
    ($version:ident, $step:tt, $given:tt) => {
        #[allow(dead_code)]
        mod $version {
            use super::*;

            #[forever::fiber]
            pub(super) async fn work(ctx: &forever::fiber::FiberContext, io: forever::fiber::Res<World>) -> anyhow::Result<u32> {
                let n = step!($step, {
                    let n = ctx.transaction(|_| anyhow::Ok($given)).await?;
                    io.did("mail", n).await?
                });
                Ok(n)
            }
        }
    };
}

booking!(books, "book", 7_u32);
booking!(books_others, "book", 8_u32);
booking!(buys, "buy", 7_u32);

#[tokio::test(start_paused = true)]
async fn a_check_knows_of_a_committed_transaction() {
    let fiber = stopped(books::work(), "mail").await;
    let found = [fiber.verdict::<books::work>().await, fiber.verdict::<books_others::work>().await, fiber.verdict::<buys::work>().await];
    assert_eq!(found[0], Verdict::Resumes);
    assert!(found[1].to_string().contains("in step `book` is committed, and the code has changed"), "{}", found[1]);
    assert!(found[2].to_string().contains("the code comes to step `buy` before step `book`"), "{}", found[2]);
    fiber.parks_saying::<books_others::work>(&found[1].to_string()).await;
    fiber.parks_saying::<buys::work>(&found[2].to_string()).await;
    fiber.resumes::<books::work>(7, &["mail"]).await;
}
