//! Keep-alive: guards in memory, and a heartbeat in the store while there is a guard.
//!
//! The heartbeat is stored before the first guard is returned, and deleted after the last one is
//! released. A heartbeat found at open was left by a process that died, or was closed, with work in
//! progress: the agent is woken to handle it.
use std::fmt;
use std::sync::Arc;

use tracing::{info, warn};

use super::cached::Heartbeat;
use super::registry::{AgentRef, Agents, Kept};
use crate::clock::later;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::runtime::detached::detached;
use crate::runtime::link::Link;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::timer::{Alarm, Timer};
use crate::store::{AgentId, KeepAliveRow};

/// The alarm of the heartbeats.
const BEAT: &str = "keep-alive";

/// Number of deaths in a row, while an agent was being woken, after which it is no longer woken for
/// its heartbeat.
const STRIKES: u32 = 3;

/// Guard that keeps an agent awake until it is released or dropped.
///
/// Made by [`AgentHandle::keep_alive`](super::AgentHandle::keep_alive).
///
/// While there is a guard, the store has a heartbeat: if the process dies, the agent is woken when
/// the database is opened again, without any call. The same happens if the runtime is closed before
/// the guard is released: its work is not done.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::agent::{Agent, AgentHandle};
///
/// # async fn download() -> forever::Result<()> { Ok(()) }
/// async fn refresh<A: Agent>(library: &AgentHandle<A>) -> forever::Result<()> {
///     let mut guard = library.keep_alive().await?;
///     // If the process dies in here, the next one wakes the agent.
///     download().await?;
///     guard.release().await
/// }
/// ```
#[must_use = "the agent is kept awake until this is dropped"]
pub struct KeepAlive {
    /// Keeps the runtime open, if the handle did.
    _link: Link<Agents>,
    kept: Option<Kept>,
}

impl KeepAlive {
    pub(super) async fn take(link: Link<Agents>, hold: AgentRef) -> Result<Self> {
        let agents = hold.agents().ok_or_else(Error::closed)?;
        let runtime = agents.runtime()?;
        let now_ms = runtime.now_ms();
        // Whatever happens to this call, the guard makes sure that no heartbeat is left over.
        let guard = KeepAlive { _link: link, kept: Some(Kept::new(hold)) };
        if let Some(kept) = &guard.kept {
            let slot = &kept.hold.slot;
            let mut heart = slot.heart.lock().await;
            if *heart != Heartbeat::Beats {
                *heart = Heartbeat::Perhaps;
                runtime.store.keep_awake(slot.id.clone(), now_ms).await?;
                *heart = Heartbeat::Beats;
            }
        }
        runtime.timer.set_earlier(Alarm::the(BEAT), later(now_ms, agents.settings.keep_alive_interval));
        Ok(guard)
    }

    /// Releases the guard.
    ///
    /// After the last guard of the agent is released, no heartbeat is stored. A second release has
    /// no effect.
    ///
    /// # Errors
    /// When the store fails: then the heartbeat may remain, and wake the agent once more.
    pub async fn release(&mut self) -> Result<()> {
        let Some(kept) = self.kept.take() else { return Ok(()) };
        let Some((runtime, hold)) = let_go(kept) else { return Ok(()) };
        let of_work = Arc::clone(&runtime);
        detached(&runtime, async move { rest(&of_work, hold).await }).await
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        if let Some((runtime, hold)) = self.kept.take().and_then(let_go) {
            let of_task = Arc::clone(&runtime);
            // A runtime that is closing keeps the heartbeat: the guard was held until then.
            let _ = runtime.start(async move {
                let id = hold.slot.id.clone();
                if let Err(why) = rest(&of_task, hold).await {
                    warn!(agent = %id, error = %chain(&why), "the heartbeat of an agent could not be removed");
                }
            });
        }
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive").field("released", &self.kept.is_none()).finish_non_exhaustive()
    }
}

/// Releases a guard; returns what is needed to delete the heartbeat if it was the last.
fn let_go(kept: Kept) -> Option<(Arc<Runtime>, AgentRef)> {
    let agents = kept.hold.agents()?;
    let runtime = agents.runtime().ok()?;
    let hold = agents.hold(&runtime, &kept.hold.slot.id);
    drop(kept);
    (hold.slot.kept() == 0).then_some((runtime, hold))
}

/// Deletes the heartbeat, unless another guard was made meanwhile.
async fn rest(runtime: &Runtime, hold: AgentRef) -> Result<()> {
    let slot = &hold.slot;
    let mut heart = slot.heart.lock().await;
    if slot.kept() == 0 && *heart != Heartbeat::Still {
        *heart = Heartbeat::Perhaps;
        runtime.store.end_keep_alive(slot.id.clone()).await?;
        *heart = Heartbeat::Still;
    }
    Ok(())
}

pub(super) fn listen(agents: &Agents, timer: &Timer) {
    timer.on(BEAT, agents.ring(|agents, runtime, _| Box::pin(async move { beat(&agents, &runtime).await })));
}

/// Renews the heartbeats of all agents that are kept awake, in one transaction.
async fn beat(agents: &Agents, runtime: &Runtime) {
    let kept = agents.kept();
    if kept.is_empty() {
        return;
    }
    let now_ms = runtime.now_ms();
    if let Err(why) = runtime.store.renew_keep_alives(kept, now_ms).await {
        warn!(error = %chain(&why), "heartbeats could not be stored");
    }
    runtime.timer.set_earlier(Alarm::the(BEAT), later(now_ms, agents.settings.keep_alive_interval));
}

/// Wakes the agents that an earlier process has left awake. Those that may have killed it are woken
/// one at a time, after the others.
pub(super) async fn revive(agents: &Arc<Agents>, runtime: &Arc<Runtime>) -> Result<()> {
    // Among several workers this is asked again and again.
    let is_ours = |left: &AgentId| runtime.cluster().is_some() && agents.is_in_memory(left);
    let left = runtime.store.awake_agents().await?.into_iter().filter(|left| agents.check(&left.agent).is_ok() && !is_ours(&left.agent));
    let (suspects, others): (Vec<_>, Vec<_>) = left.partition(|left| left.deaths > 0);
    if suspects.len() + others.len() > 0 {
        info!(agents = suspects.len() + others.len(), "waking agents that were kept awake");
    }
    for KeepAliveRow { agent, .. } in others {
        runtime.start(wake_left(Arc::clone(agents), Arc::clone(runtime), agent))?;
    }
    if suspects.is_empty() {
        return Ok(());
    }
    let (agents, of_task) = (Arc::clone(agents), Arc::clone(runtime));
    runtime.start(async move {
        for KeepAliveRow { agent, deaths } in suspects {
            let runtime = &of_task;
            if deaths >= STRIKES {
                warn!(%agent, deaths, "the process died each time this agent was woken; it is not woken until it is used");
                let _ = runtime.store.end_keep_alive(agent).await;
                continue;
            }
            let waking = wake_left(Arc::clone(&agents), Arc::clone(runtime), agent.clone());
            if race(waking, runtime.clock.sleep(agents.settings.hung_schedule_timeout)).await.is_none() {
                warn!(%agent, "an agent takes long to wake");
                let _ = runtime.start(wake_left(Arc::clone(&agents), Arc::clone(runtime), agent));
            }
        }
    })
}

/// Wakes one agent, retrying until it succeeds, and deletes its heartbeat if no guard keeps it
/// awake then.
async fn wake_left(agents: Arc<Agents>, runtime: Arc<Runtime>, id: AgentId) {
    for failed in 1.. {
        let woken = async {
            runtime.store.count_wake_attempt(id.clone()).await?;
            let woken = agents.wake(&runtime, &id).await;
            runtime.store.reset_wake_attempts(id.clone()).await?;
            woken
        };
        match woken.await {
            Ok(woken) => {
                let slot = &woken.hold.slot;
                let mut heart = slot.heart.lock().await;
                if *heart == Heartbeat::Still {
                    *heart = Heartbeat::Perhaps;
                }
                drop(heart);
                if let Err(why) = rest(&runtime, woken.hold).await {
                    warn!(agent = %id, error = %chain(&why), "the heartbeat of an agent could not be removed");
                }
                return;
            }
            Err(why) if why.is_closed() => return,
            // It is awake, in another worker.
            Err(why) if why.kind() == ErrorKind::AgentElsewhere => return,
            Err(why) => warn!(agent = %id, error = %chain(&why), "an agent that was kept awake could not be woken"),
        }
        if race(runtime.closing(), runtime.pause_after(failed)).await.is_some() {
            return;
        }
    }
}
