//! The stored state of an agent.
use std::sync::Arc;

use super::registry::{Agents, Slot};
use super::{Message, Pushed};
use crate::error::Result;
use crate::fiber::core::Core;
use crate::fiber::detached::detached;
use crate::store::AgentId;

/// What is known in memory of the stored state.
#[derive(Debug, Default)]
pub(super) enum Known {
    #[default]
    Nothing,
    /// The text, if it was ever set.
    Stored(Option<Arc<str>>),
}

/// The state as text, if it was ever set.
pub(super) async fn load(core: &Arc<Core>, id: &AgentId) -> Result<Option<Arc<str>>> {
    let agents = Agents::of(core)?;
    agents.check(id)?;
    let hold = agents.hold(core, id);
    let mut state = hold.slot.state.lock().await;
    known(core, &hold.slot, &mut state).await
}

/// The state, read if it is not known.
pub(super) async fn known(core: &Core, slot: &Slot, state: &mut Known) -> Result<Option<Arc<str>>> {
    if let Known::Stored(known) = state {
        return Ok(known.clone());
    }
    let read: Option<Arc<str>> = core.store.load_state(slot.id.clone()).await?.map(Into::into);
    *state = Known::Stored(read.clone());
    Ok(read)
}

/// Stores a state and pushes it; a caller that goes away in between leaves nothing half done.
pub(super) async fn save(core: &Arc<Core>, id: &AgentId, text: String) -> Result<()> {
    let agents = Agents::of(core)?;
    agents.check(id)?;
    let hold = agents.hold(core, id);
    let mut state = Arc::clone(&hold.slot.state).lock_owned().await;
    let of_work = Arc::clone(core);
    let work = async move {
        // Until it is known whether it was stored.
        *state = Known::Nothing;
        let slot = &hold.slot;
        let text: Arc<str> = text.into();
        of_work.store.save_state(slot.id.clone(), text.to_string(), of_work.now_ms()).await?;
        *state = Known::Stored(Some(Arc::clone(&text)));
        slot.push(Pushed::State(Message(text)));
        Ok(())
    };
    detached(core, work).await
}
