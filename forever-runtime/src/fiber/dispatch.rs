//! The dispatcher: from a row that is ready to an activation.
//!
//! Who runs a fiber is decided by its row. A command, a timer, a message or the end of a child only makes the row ready, in its own transaction;
//! the store then tells the dispatcher, which starts an activation that claims the row. So the caller of a command may go away at any moment. A sweep
//! looks for rows that are ready and of which nothing was heard.
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};

use super::core::{Core, race};
use super::events::EventKind;
use super::runner::{FiberTask, Turn};
use super::sync::mpsc::{self, UnboundedReceiver};
use super::sync::sleep;
use super::timer::{Alarm, Ring};
use crate::error::{Result, chain};
use crate::future::BoxFuture;
use crate::store::{ReadySender, Runnable, Seq};

/// The alarm of the waiting fiber that is due next.
pub(crate) const WAITS: &str = "waits";

/// How many fibers are woken in one transaction.
const BATCH: u32 = 512;

/// How long until the store is asked again after it failed.
const AGAIN_MS: i64 = 1000;

/// How often the dispatcher looks for rows that are ready and of which it has heard nothing; of the machine's time, as it is no business
/// of the fibers'.
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

/// Makes fibers ready that are due, and sets the alarm for the next one.
pub(crate) fn ring() -> Ring {
    Arc::new(|core, _| {
        let due: BoxFuture<'static, ()> = Box::pin(async move {
            let next = match dispatch_due(&core).await {
                Ok(next) => next,
                Err(error) if core.is_closing() || error.is_closed() => return,
                Err(error) => {
                    warn!(error = %chain(&error), "fibers that are due could not be woken");
                    Some(core.now_ms() + AGAIN_MS)
                }
            };
            if let Some(next) = next {
                core.timer.set_earlier(Alarm::the(WAITS), next);
            }
        });
        due
    })
}

/// Dispatches what is due now; says when the next one is.
async fn dispatch_due(core: &Arc<Core>) -> Result<Option<i64>> {
    loop {
        let due = core.store.take_due(core.now_ms(), BATCH).await?;
        let through = (due.len() as u64) < u64::from(BATCH);
        for fiber in due {
            // So many are on their way at a time; what is behind them is safe in the store.
            let Ok(permit) = Arc::clone(&core.entering).acquire_owned().await else { return Ok(None) };
            start(core, &fiber, Some(permit));
        }
        if through {
            return core.store.next_due().await;
        }
    }
}

/// Lets the store tell the dispatcher of fibers that become ready, and starts those.
pub(crate) fn listen(core: &Arc<Core>) -> Result<()> {
    let (tell, ready) = mpsc::unbounded_channel();
    let sender = ReadySender::new(move |fiber| {
        // A runtime that closes leaves them for the next one.
        let _ = tell.send(fiber);
    });
    core.live.on_ready(sender.clone());
    core.store.on_ready(sender);
    core.start(dispatch(Arc::clone(core), ready))
}

async fn dispatch(core: Arc<Core>, mut ready: UnboundedReceiver<Runnable>) {
    while let Some(Some(fiber)) = race(ready.recv(), core.closing()).await {
        start(&core, &fiber, None);
    }
}

/// Sets the alarm for what already waits.
pub(crate) async fn set_alarm(core: &Arc<Core>) -> Result<()> {
    if let Some(next) = core.store.next_due().await? {
        core.timer.set_earlier(Alarm::the(WAITS), next);
    }
    Ok(())
}

/// Sets the alarm for what already waits, and begins to sweep; when a runtime opens.
pub(crate) async fn begin(core: &Arc<Core>) -> Result<()> {
    set_alarm(core).await?;
    core.start(sweep(Arc::clone(core)))
}

async fn sweep(core: Arc<Core>) {
    while race(core.closing(), sleep(SWEEP)).await.is_none() {
        match sweep_once(&core).await {
            Err(error) if core.is_closing() || error.is_closed() => return,
            Err(error) => warn!(error = %chain(&error), "fibers that are ready could not be looked for"),
            Ok(0) => {}
            Ok(found) => debug!(found, "the sweep found fibers that were ready"),
        }
    }
}

/// Starts what is ready and not on its way, as many as may be on their way at a time; says how many.
async fn sweep_once(core: &Arc<Core>) -> Result<usize> {
    let (mut after, mut found) = (Seq::MIN, 0);
    loop {
        let page = core.store.ready(after, BATCH).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for fiber in page.into_iter().filter(|fiber| !core.live.is_active(&fiber.id)) {
            let Ok(permit) = Semaphore::try_acquire_owned(Arc::clone(&core.entering)) else { return Ok(found) };
            found += usize::from(start(core, &fiber, Some(permit)));
        }
    }
    set_alarm(core).await?;
    Ok(found)
}

/// Starts an activation, unless there is one, which then leaves the fiber to the dispatcher; says whether it has.
pub(crate) fn start(core: &Arc<Core>, fiber: &Runnable, entering: Option<OwnedSemaphorePermit>) -> bool {
    let Some(alive) = core.live.activate(fiber) else { return false };
    core.tell(&fiber.id, &fiber.name, || EventKind::Woken);
    let task = FiberTask::new(core, fiber, alive, Turn::default(), entering);
    // A runtime that closes leaves it ready for the next one.
    core.start(task.recover()).is_ok()
}
