//! From the store into memory: fibers whose time has come, or whose message or child has.
use std::sync::Arc;

use tracing::warn;

use super::core::Core;
use super::events::EventKind;
use super::frame::BoxFuture;
use super::live::{Alive, Stop};
use super::runner::{FiberTask, Turn};
use super::timer::{Alarm, Ring};
use crate::error::{Result, chain};
use crate::store::{Aside, Seq, Unfinished};

/// The alarm of the waiting fiber that is due next.
pub(crate) const WAITS: &str = "waits";

/// How many fibers are woken in one transaction.
const BATCH: u32 = 512;

/// How long until the store is asked again after it failed.
const AGAIN_MS: i64 = 1000;

/// Wakes the fibers that are due, and sets the alarm for the next one.
pub(crate) fn ring() -> Ring {
    Arc::new(|core, _| {
        let due: BoxFuture<'static, ()> = Box::pin(async move {
            let next = match wake_due(&core).await {
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

/// Wakes what is due now; says when the next one is.
async fn wake_due(core: &Arc<Core>) -> Result<Option<i64>> {
    loop {
        let due = core.store.take_due(core.now_ms(), BATCH).await?;
        let through = (due.len() as u64) < u64::from(BATCH);
        for fiber in due {
            // So many are on their way at a time; what is behind them is safe in the store.
            let Ok(permit) = Arc::clone(&core.entering).acquire_owned().await else { return Ok(None) };
            start_one(core, fiber, Some(permit));
        }
        if through {
            return core.store.next_due().await;
        }
    }
}

/// Sets the alarm for what already waits, when a runtime opens.
pub(crate) async fn prepare(core: &Arc<Core>) -> Result<()> {
    if let Some(next) = core.store.next_due().await? {
        core.timer.set_earlier(Alarm::the(WAITS), next);
    }
    Ok(())
}

/// Starts fibers that the store has woken.
pub(crate) fn start(core: &Arc<Core>, woken: Vec<Unfinished>) {
    for fiber in woken {
        start_one(core, fiber, None);
    }
}

fn start_one(core: &Arc<Core>, fiber: Unfinished, entering: Option<tokio::sync::OwnedSemaphorePermit>) {
    core.tell(&fiber.id, &fiber.name, || EventKind::Woken);
    let alive = core.live.enter(&fiber.id, &fiber.name);
    let of_task = Arc::clone(core);
    // A runtime that closes leaves it pending for the next one.
    let _ = match core.registry.get(&fiber.name) {
        Some(known) => {
            let task = FiberTask { core: of_task, known, seq: fiber.seq, agent: fiber.agent, alive, turn: Turn::default(), entering };
            core.start(task.recover(fiber.deaths))
        }
        None => core.start(park_unknown(of_task, fiber.seq, fiber.name, alive)),
    };
}

/// Parks a fiber whose function is not registered.
pub(crate) async fn park_unknown(core: Arc<Core>, seq: Seq, name: String, alive: Alive) {
    let why = format!("fiber `{name}` is not registered");
    warn!(fiber.id = %alive.id, fiber.name = %name, "fiber is not registered");
    match core.store.set_aside(seq, Aside::Parked(why.clone()), core.now_ms()).await {
        Ok(()) => {
            core.tell(&alive.id, &name, || EventKind::Parked { reason: why.as_str().into() });
            alive.stop(Stop::Parked(why.into()));
        }
        Err(e) => alive.stop(Stop::Interrupted(chain(&e).into())),
    }
}
