//! Adoption: a fiber whose spawn failed with an unknown outcome is started if it is stored.
//!
//! The row shows who owns the fiber: the spawn does, for as long as the fiber has the claim of its
//! creation. A commit that was requested may reach the database after the spawn has failed, so
//! looking for its row once is not enough: it is looked for again for [`LATEST`], and by each later
//! spawn that finds it.
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::error::{Result, chain};
use crate::exec::executor::Executor;
use crate::exec::{dispatch, recovery};
use crate::runtime::race::race;
use crate::store::{Claim, Epoch, FiberRef, FiberRow, FiberState, StoredClaim};

/// The epoch of the claim that a spawn creates its fiber with.
const MADE: Epoch = 1;

/// Time for which a row is looked for that is not there: an operating system goes on sending what
/// was written to a connection that was given up for about so long.
const LATEST: Duration = Duration::from_secs(120);

/// First and longest pause between two lookups of a row that is not there.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Starts a fiber that may have been stored, claimed by this worker, although the spawn got an
/// unknown outcome.
pub(crate) fn adopt(exec: &Arc<Executor>, id: String) {
    let of_task = Arc::clone(exec);
    // A runtime that is closing leaves it for the next one.
    let _ = exec.runtime.start(async move {
        let exec = of_task;
        let (mut failed, mut waited, mut next) = (0, Duration::ZERO, PAUSES.0);
        loop {
            let pause = match adopt_once(&exec, &id).await {
                Ok(Adoption::Done) => return,
                Ok(Adoption::Absent) if waited >= LATEST => return,
                Ok(Adoption::Absent) => {
                    let pause = next;
                    waited += pause;
                    next = (2 * next).min(PAUSES.1);
                    pause
                }
                Ok(Adoption::Later) => PAUSES.0,
                Err(error) if error.is_closed() => return,
                Err(error) => {
                    failed += 1;
                    warn!(fiber.id = id, error = %chain(&error), "a fiber whose acceptance is unknown could not be looked up");
                    exec.runtime.settings.timings.pause_after(failed)
                }
            };
            if race(exec.runtime.closing(), exec.runtime.clock.sleep(pause)).await.is_some() {
                return;
            }
        }
    });
}

/// Starts a fiber that a spawn has found, where the spawn that has stored it did not learn so.
pub(crate) fn adopt_found(exec: &Arc<Executor>, found: &FiberRow) {
    if found.state == FiberState::Running && !exec.runtime.active.is_active(&found.id) {
        adopt(exec, found.id.clone());
    }
}

/// Result of one lookup of such a fiber.
enum Adoption {
    /// There is no row of it.
    Absent,
    /// It is started, or another activation has it, or it has ended.
    Done,
    /// Another spawn with its id is under way, which may have created it and then starts it.
    Later,
}

async fn adopt_once(exec: &Arc<Executor>, id: &str) -> Result<Adoption> {
    let Some(row) = exec.runtime.store.find(FiberRef::Id(id.to_owned())).await? else { return Ok(Adoption::Absent) };
    if row.state != FiberState::Running {
        return Ok(Adoption::Done);
    }
    // If it was claimed since, or by another worker, it belongs to that claim: an activation, or
    // the hook of its agent.
    let made = Claim { fiber: row.seq, epoch: MADE };
    if exec.runtime.store.claim_of(row.seq).await? != Some(StoredClaim { epoch: MADE, worker: Some(exec.runtime.worker) }) {
        return Ok(Adoption::Done);
    }
    let there = exec.runtime.store.unfinished(row.seq - 1, 1).await?;
    let Some(fiber) = there.iter().find(|fiber| fiber.seq == row.seq) else { return Ok(Adoption::Done) };
    // After the lookups in the store. A spawn that created the fiber would start it under its own
    // claim, after the activation started here has run it.
    if exec.runtime.active.is_being_spawned(id) {
        return Ok(Adoption::Later);
    }
    if exec.runtime.active.is_active(id) {
        return Ok(Adoption::Done);
    }
    if fiber.closure {
        // Its code was dropped with the spawn.
        recovery::interrupt_closure(exec, fiber, made, "whether it was stored was unknown to the spawn that made it").await?;
    } else {
        dispatch::start(exec, fiber, None);
    }
    Ok(Adoption::Done)
}
