//! The settings of chats, as methods of the builder, and what an open runtime lists of all chats.
use std::time::Duration;

use forever_runtime::__layers::{engine_link, layer};
use forever_runtime::agent::AgentHandle;
use forever_runtime::store::InteractionQuery;
use forever_runtime::{Builder, Forever};

use crate::agent_loop::AgentLoop;
use crate::chat_agent::ChatAgent;
use crate::interactions::PendingInteractions;
use crate::registry::ChatRegistry;

/// Chats, as methods of [`Builder`]. The prelude has it.
///
/// ```
/// use std::time::Duration;
/// # use forever::BoxError;
/// # use forever::agent::Agent;
/// # use forever::chat::message::{Chunk, UiMessage};
/// # use forever::chat::{ChatAgent, Turn};
/// # use forever::prelude::*;
/// # struct Concierge;
/// # impl Agent for Concierge {
/// #     const CLASS: &'static str = "concierge";
/// #     type State = ();
/// # }
/// # impl ChatAgent for Concierge {
/// #     async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
/// #         turn.write(Chunk::text_start("t")).await?;
/// #         turn.write(Chunk::text_delta("t", "At seven.")).await?;
/// #         Ok(turn.write(Chunk::text_end("t")).await?)
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let forever = Forever::builder()
///     .in_memory()
///     .chat_agent(|_| Concierge)
///     .turn_batching(32, Duration::from_millis(20))
///     .open()
///     .await?;
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
pub trait ChatBuilder: Sized {
    /// Registers a class of chat agents, as [`Builder::agent`] does.
    fn chat_agent<A: ChatAgent>(self, make: impl Fn(AgentHandle<A>) -> A + Send + Sync + 'static) -> Self;

    /// Adds the model and tools of [`Turn::run_agent_loop`](crate::Turn::run_agent_loop).
    fn agent_loop(self, looped: AgentLoop) -> Self;

    /// Group commit of the chunks of a turn: queue length and shortest pause.
    ///
    /// A write to a full queue waits. The pause is cut short when a caller waits, for room or in
    /// [`flush`](crate::Turn::flush). Defaults to 256 and 4 ms; 1 and zero make every chunk a
    /// commit.
    fn turn_batching(self, chunks: usize, pause: Duration) -> Self;

    /// How long the chunks of a turn are kept after its end, for replays. Defaults to 10 minutes.
    ///
    /// Afterwards its message and its end are left.
    fn replay_retention(self, keep: Duration) -> Self;
}

impl ChatBuilder for Builder {
    fn chat_agent<A: ChatAgent>(mut self, make: impl Fn(AgentHandle<A>) -> A + Send + Sync + 'static) -> Self {
        layer::<ChatRegistry>(&mut self).classes.add::<A>();
        self.agent(make)
    }

    fn agent_loop(self, looped: AgentLoop) -> Self {
        self.resource(looped)
    }

    fn turn_batching(mut self, chunks: usize, pause: Duration) -> Self {
        let batching = &mut layer::<ChatRegistry>(&mut self).settings.batching;
        batching.chunks = chunks.max(1);
        batching.pause = pause;
        self
    }

    fn replay_retention(mut self, keep: Duration) -> Self {
        layer::<ChatRegistry>(&mut self).settings.replay = keep;
        self
    }
}

/// The chats of all agents, as methods of [`Forever`]. The prelude has it.
///
/// See [`pending_interactions`](Self::pending_interactions) for an example.
pub trait ChatForever {
    /// The pending interactions of all chats, the latest first: tool calls that wait for a person
    /// or their client.
    ///
    /// ```
    /// use forever::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// # let forever = forever::Forever::builder().in_memory().open().await?;
    /// let page = forever.pending_interactions().class("support").limit(20).await?;
    /// for asked in &page.interactions {
    ///     println!("{}: may `{}` be run with {}?", asked.agent, asked.tool, asked.input);
    /// }
    /// # assert_eq!(page.next, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An interaction is listed from the end of its turn until it is answered, or its message is
    /// replaced or deleted. The list is read from an index of the pending messages, so its cost
    /// does not depend on the number of chats.
    fn pending_interactions(&self) -> PendingInteractions;
}

impl ChatForever for Forever {
    fn pending_interactions(&self) -> PendingInteractions {
        PendingInteractions::new(engine_link(self), InteractionQuery::default())
    }
}
