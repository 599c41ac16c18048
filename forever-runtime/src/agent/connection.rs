//! Connections to an agent, which receive its state and its broadcasts.
use std::fmt;
use std::sync::Arc;

use super::hooks::Hooks;
use super::pushed::{Message, Pushed};
use super::registry::{AgentRef, Agents};
use crate::error::{Error, Result};
use crate::fanout;
use crate::frame::current;
use crate::runtime::link::Link;
use crate::runtime::race::race;

/// Number of messages that are kept for a slow connection.
pub(super) const KEPT: usize = 256;

/// Connection to an agent, which keeps it awake if it is in the memory of this worker.
///
/// State and broadcasts arrive in the order in which they were set and sent. For a slow connection
/// 256 messages are kept; beyond that the oldest are lost, and [`Pushed::Lagged`] has their number.
/// An agent never waits for a connection.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::agent::{Agent, Pushed};
///
/// # struct Counter;
/// # impl Agent for Counter {
/// #     const CLASS: &'static str = "counter";
/// #     type State = u64;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), forever::BoxError> {
/// # let forever = Forever::builder().in_memory().agent(|_| Counter).open().await?;
/// let visits = forever.agent::<Counter>("visits");
/// visits.set_state(&7).await?;
///
/// // The present state comes first.
/// let mut connection = visits.connect().await?;
/// let Some(Pushed::State(state)) = connection.recv().await else { panic!() };
/// assert_eq!(state.read::<u64>()?, 7);
///
/// visits.broadcast("closing soon")?;
/// let Some(Pushed::Broadcast(text)) = connection.recv().await else { panic!() };
/// assert_eq!(text.read::<String>()?, "closing soon");
/// # Ok(())
/// # }
/// ```
pub struct Connection {
    /// Keeps the runtime open, if the handle did.
    _link: Link<Agents>,
    hold: AgentRef,
    /// The agent, unless another worker has it in memory.
    _agent: Option<Arc<dyn Hooks>>,
    first: Option<Pushed>,
    pushes: fanout::Receiver<Pushed>,
}

impl Connection {
    pub(super) async fn open(link: Link<Agents>, hold: AgentRef, agent: Option<Arc<dyn Hooks>>) -> Result<Self> {
        let runtime = hold.runtime().ok_or_else(Error::closed)?;
        let slot = &hold.slot;
        // What other workers have broadcast until now is not for this connection.
        runtime.read_published().await?;
        // No state is stored or pushed between the first one and those that follow.
        let mut state = slot.state.lock().await;
        let first = super::state::known(&runtime, slot, &mut state).await?;
        let pushes = slot.pushes.get_or_init(|| fanout::Sender::new(KEPT)).subscribe();
        drop(state);
        let first = first.map(|text| Pushed::State(Message(text)));
        Ok(Connection { _link: link, hold, _agent: agent, first, pushes })
    }

    /// The next message; `None` after the last one once the runtime is closed.
    ///
    /// Dropping the call loses no message.
    pub async fn recv(&mut self) -> Option<Pushed> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if let Some(runtime) = self.hold.runtime()
            && let Some(taken) = race(self.pushes.recv(), runtime.closing()).await
        {
            return Some(taken.into());
        }
        let left = self.try_recv();
        if left.is_none() {
            current::sees_closing();
        }
        left
    }

    /// The next message, if there is one by now.
    pub fn try_recv(&mut self) -> Option<Pushed> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        self.pushes.try_recv().map(Pushed::from)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("agent", &self.hold.slot.id).finish_non_exhaustive()
    }
}
