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
