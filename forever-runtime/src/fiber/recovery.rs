//! Picks up, at open, every fiber that an earlier process has left: oldest first, each in its own task.
//!
//! A fiber whose function is not registered is parked and left as it is; the next open looks at it again. What is wrong with
//! one fiber is found in its own task and never keeps the others.
use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::core::Core;
use super::live::{Alive, Stop};
use super::runner::{FiberTask, Turn};
use crate::error::{Result, chain};
use crate::store::{Aside, Seq};

/// How many rows are read at a time; snapshots are read later, each by its fiber.
const PAGE: u32 = 512;

/// Starts a task for every fiber that has not ended.
pub(crate) async fn recover(core: &Arc<Core>) -> Result<()> {
    core.store.recover(core.now_ms()).await?;
    let (mut after, mut found) = (Seq::MIN, 0_usize);
    let mut before = None;
    loop {
        let page = core.store.unfinished(after, PAGE).await?;
        found += page.len();
        let Some(last) = page.last() else { break };
        after = last.seq;
        for fiber in page {
            let alive = core.live.enter(&fiber.id, &fiber.name);
            let core_of_task = Arc::clone(core);
            match core.registry.get(&fiber.name) {
                Some(known) => {
                    let (through, next) = oneshot::channel();
                    let turn = Turn { before: before.replace(next), after: Some(through) };
                    let task = FiberTask { core: core_of_task, known, seq: fiber.seq, alive, turn };
                    core.start(task.recover(fiber.deaths))?;
                }
                None => core.start(park_unknown(core_of_task, fiber.seq, fiber.name, alive))?,
            }
        }
    }
    if found > 0 {
        info!(fibers = found, "recovering unfinished fibers");
    }
    Ok(())
}

async fn park_unknown(core: Arc<Core>, seq: Seq, name: String, alive: Alive) {
    let why = format!("fiber `{name}` is not registered");
    warn!(fiber.id = %alive.id, fiber.name = %name, "fiber is not registered");
    match core.store.set_aside(seq, Aside::Parked(why.clone()), core.now_ms()).await {
        Ok(()) => alive.stop(Stop::Parked(why.into())),
        Err(e) => alive.stop(Stop::Interrupted(chain(&e).into())),
    }
}
