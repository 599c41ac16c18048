//! The stored state of an agent.
use std::sync::Arc;

use super::cached::CachedState;
use super::pushed::{Message, Pushed};
use super::registry::{Agents, Slot};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::detached::detached;
use crate::runtime::state::Runtime;
use crate::store::{AgentHold, AgentId};

/// The state as text; `None` if it was never set.
pub(super) async fn load(agents: &Agents, id: &AgentId) -> Result<Option<Arc<str>>> {
    agents.check(id)?;
    let runtime = &agents.runtime()?;
    let hold = agents.hold(runtime, id);
    let mut state = hold.slot.state.lock().await;
    known(runtime, &hold.slot, &mut state).await
}

/// The state, loaded if it is not known.
pub(super) async fn known(runtime: &Runtime, slot: &Slot, state: &mut CachedState) -> Result<Option<Arc<str>>> {
    // Another worker may have set it.
    let is_alone = runtime.cluster().is_none();
    if let CachedState::Stored(known) = state
        && is_alone
    {
        return Ok(known.clone());
    }
    let read: Option<Arc<str>> = runtime.store.load_state(slot.id.clone()).await?.map(Into::into);
    *state = CachedState::Stored(read.clone());
    Ok(read)
}

/// Stores a state and pushes it; if the caller is dropped in between, both still happen.
pub(super) async fn save(agents: &Agents, id: &AgentId, text: String, under: Option<AgentHold>) -> Result<()> {
    agents.check(id)?;
    let runtime = &agents.runtime()?;
    let hold = agents.hold(runtime, id);
    let mut state = Arc::clone(&hold.slot.state).lock_owned().await;
    let of_work = Arc::clone(runtime);
    let work = async move {
        // Unknown until the write has succeeded.
        *state = CachedState::Nothing;
        let slot = &hold.slot;
        let text: Arc<str> = text.into();
        let saved = of_work.store.save_state(slot.id.clone(), text.to_string(), under, of_work.now_ms()).await;
        saved.map_err(|error| {
            if !error.is_claim_lost() {
                return error;
            }
            // The next call wakes it anew.
            if let Some(agents) = hold.agents() {
                agents.evict(&slot.id);
            }
            let why = format!("this worker counted as dead, and agent `{}` has left its memory: the state is not stored", slot.id);
            Error::new(ErrorKind::AgentElsewhere, why).with_source(error)
        })?;
        *state = CachedState::Stored(Some(Arc::clone(&text)));
        slot.push(Pushed::State(Message(text)));
        Ok(())
    };
    detached(runtime, work).await
}
