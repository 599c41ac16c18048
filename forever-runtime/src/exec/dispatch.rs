//! The dispatcher: from a row that is ready to an activation.
//!
//! Who runs a fiber is decided by its row. A command, a timer, a message or the end of a child only
//! makes the row ready, in its own transaction; the store then tells the dispatcher, which starts
//! an activation that claims the row. So the caller of a command may go away at any moment. A sweep
//! looks for rows that are ready and of which nothing was heard.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};

use crate::clock::later;
use crate::error::{Result, chain};
use crate::exec::activation::{FiberTask, Turn};
use crate::exec::executor::Executor;
use crate::exec::{compatibility, recovery};
use crate::future::BoxFuture;
use crate::runtime::cluster;
use crate::runtime::events::EventKind;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::sync::mpsc::Receiver;
use crate::runtime::sync::mpsc::error::TrySendError;
use crate::runtime::sync::{mpsc, sleep};
use crate::runtime::timer::{Alarm, Ring};
use crate::store::{FiberState, ReadySender, Runnable, Seq};

/// The alarm of the waiting fiber that is due next.
pub(crate) const WAITS: &str = "waits";

/// How many fibers are woken in one transaction.
const BATCH: u32 = 512;

/// Most fibers in the queue of the dispatcher. A sweep finds the others.
const QUEUE: usize = 4096;

/// Makes fibers ready that are due, and sets the alarm for the next one.
fn ring(exec: &Arc<Executor>) -> Ring {
    let exec = Arc::downgrade(exec);
    Arc::new(move |_, _| {
        let exec = Weak::clone(&exec);
        let due: BoxFuture<'static, ()> = Box::pin(async move {
            let Some(exec) = exec.upgrade() else { return };
            let next = match dispatch_due(&exec).await {
                Ok(next) => next,
                Err(error) if exec.runtime.is_closing() || error.is_closed() => return,
                Err(error) => {
                    warn!(error = %chain(&error), "fibers that are due could not be woken");
                    Some(later(exec.runtime.now_ms(), exec.runtime.settings.timings.store_retry))
                }
            };
            if let Some(next) = next {
                exec.runtime.timer.set_earlier(Alarm::the(WAITS), next);
            }
        });
        due
    })
}

/// Dispatches what is due now; says when the next one is.
async fn dispatch_due(exec: &Arc<Executor>) -> Result<Option<i64>> {
    loop {
        let due = exec.runtime.store.take_due(exec.runtime.now_ms(), BATCH).await?;
        let through = (due.len() as u64) < u64::from(BATCH);
        for fiber in due {
            // So many are on their way at a time; what is behind them is safe in the store.
            let Some(permit) = exec.permit_to_enter().await else { return Ok(None) };
            start(exec, &fiber, Some(permit));
        }
        if through {
            return exec.runtime.store.next_due().await;
        }
    }
}

/// Lets the store tell the dispatcher of fibers that become ready, and starts those.
pub(crate) fn listen(exec: &Arc<Executor>) -> Result<()> {
    exec.runtime.timer.on(WAITS, ring(exec));
    let (tell, ready) = mpsc::channel(QUEUE);
    let missed = Arc::<AtomicBool>::default();
    let of_sender = Arc::clone(&missed);
    let sender = ReadySender::new(move |fiber| {
        // A runtime that closes leaves it for the next one.
        if let Err(TrySendError::Full(_)) = tell.try_send(fiber) {
            of_sender.store(true, Ordering::Release);
        }
    });
    exec.runtime.active.on_ready(sender.clone());
    exec.runtime.store.on_ready(sender);
    exec.runtime.start(dispatch(Arc::clone(exec), ready, missed))
}

async fn dispatch(exec: Arc<Executor>, mut ready: Receiver<Runnable>, missed: Arc<AtomicBool>) {
    while let Some(Some(first)) = race(ready.recv(), exec.runtime.closing()).await {
        let mut fibers = vec![first];
        while let Ok(fiber) = ready.try_recv() {
            fibers.push(fiber);
        }
        fibers.sort_by_key(|fiber| fiber.deaths);
        for fiber in fibers {
            let Some(permit) = exec.permit_to_enter().await else { return };
            start_ready(&exec, &fiber, Some(permit));
        }
        if missed.swap(false, Ordering::AcqRel) {
            // They did not fit into the queue. What this leaves, the next sweep finds.
            sweep_soon(&exec).await;
        }
    }
}

/// Sets the alarm for what already waits.
pub(crate) async fn set_alarm(runtime: &Runtime) -> Result<()> {
    if let Some(next) = runtime.store.next_due().await? {
        runtime.timer.set_earlier(Alarm::the(WAITS), next);
    }
    Ok(())
}

/// Sets the alarm for what already waits, and begins to sweep; when a runtime opens.
pub(crate) async fn begin(exec: &Arc<Executor>, had_others: bool) -> Result<()> {
    set_alarm(&exec.runtime).await?;
    if exec.runtime.cluster().is_some() {
        let (ready, alone) = (Arc::clone(exec), Arc::clone(exec));
        let on_ready = move || sweep_after_notification(Arc::clone(&ready));
        let on_alone = move || compatibility::compare_again(Arc::clone(&alone));
        exec.runtime.start(cluster::run(Arc::clone(&exec.runtime), on_ready, on_alone, had_others))?;
    }
    exec.runtime.start(sweep(Arc::clone(exec)))
}

/// Looks at once for what another worker has left.
async fn sweep_after_notification(exec: Arc<Executor>) {
    sweep_soon(&exec).await;
}

/// Looks for fibers that are ready before the next sweep does.
async fn sweep_soon(exec: &Arc<Executor>) {
    if let Err(error) = sweep_once(exec).await {
        // The next sweep comes within a second.
        debug!(error = %chain(&error), "fibers that are ready could not be looked for");
    }
}

async fn sweep(exec: Arc<Executor>) {
    while race(exec.runtime.closing(), sleep(exec.runtime.settings.timings.sweep)).await.is_none() {
        match sweep_once(&exec).await {
            Err(error) if exec.runtime.is_closing() || error.is_closed() => return,
            Err(error) => warn!(error = %chain(&error), "ready fibers could not be listed"),
            Ok(0) => {}
            Ok(found) => debug!(found, "the sweep found fibers that were ready"),
        }
    }
}

/// Starts what is ready and not on its way, as many as may be on their way at a time; says how
/// many.
async fn sweep_once(exec: &Arc<Executor>) -> Result<usize> {
    let (mut after, mut found) = (Seq::MIN, 0);
    loop {
        let mut page = exec.runtime.store.ready(after, BATCH).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        page.sort_by_key(|fiber| fiber.deaths);
        for fiber in page.into_iter().filter(|fiber| !exec.runtime.active.is_active(&fiber.id)) {
            let Ok(permit) = Semaphore::try_acquire_owned(Arc::clone(&exec.entering)) else { return Ok(found) };
            found += usize::from(start_ready(exec, &fiber, Some(permit)));
        }
    }
    set_alarm(&exec.runtime).await?;
    Ok(found)
}

/// Starts a fiber that is ready. One that was interrupted in another worker, and is an agent's, is
/// handed to the agent's hook first.
fn start_ready(exec: &Arc<Executor>, fiber: &Runnable, entering: Option<OwnedSemaphorePermit>) -> bool {
    if fiber.state == FiberState::Interrupted {
        exec.runtime.tell(&fiber.id, &fiber.name, || EventKind::Recovered { deaths: fiber.deaths });
        if let Some(agent) = fiber.agent.clone().filter(|_| !exec.registry.is_ours(&fiber.name)) {
            return recovery::ask_hook(exec, agent, fiber);
        }
    }
    start(exec, fiber, entering)
}

/// Starts an activation, unless there is one, which then leaves the fiber to the dispatcher; says
/// whether it has.
pub(crate) fn start(exec: &Arc<Executor>, fiber: &Runnable, entering: Option<OwnedSemaphorePermit>) -> bool {
    let Some(alive) = exec.runtime.active.activate(fiber) else { return false };
    exec.runtime.tell(&fiber.id, &fiber.name, || EventKind::Woken);
    let task = FiberTask::new(exec, fiber, alive, Turn::default(), entering);
    // A runtime that closes leaves it ready for the next one.
    exec.runtime.start(task.recover()).is_ok()
}
