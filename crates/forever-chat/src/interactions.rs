//! The list of pending interactions, of one chat or of all: tool calls that wait for a person or
//! their client.
//!
//! Input: messages that were marked as pending when they were stored. Output: their calls, by page.
//! The calls of a running turn are not included: they are in its log until it ends.
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::SystemTime;

use forever_runtime::__layers::{Engine, EngineLink, chain, from_ms, ms};
use forever_runtime::store::{InteractionKind, InteractionQuery, InteractionRow};
use forever_runtime::{Result, store};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use tracing::warn;

use crate::answer::read_message;
use crate::interaction_kind::interaction;
use crate::message::{Part, Role, UiMessage};
use crate::tools::ToolCallRef;

/// Default and maximum number of messages of a page.
const PAGE: (u32, u32) = (50, 1000);

/// One tool call that waits for a person or their client.
///
/// A reference to it is a [`ToolCallRef`] with the input that was seen, for
/// [`ChatHandle::answer_tool`](crate::ChatHandle::answer_tool): an answer to it does not count for another input.
///
/// ```
/// use forever::agent::AgentHandle;
/// use forever::chat::{ChatAgent, InteractionKind, ToolAnswer};
/// use forever::prelude::*;
///
/// /// Approves every refund that waits in a chat.
/// async fn approve<A: ChatAgent>(chat: &AgentHandle<A>) -> forever::Result<()> {
///     for waiting in chat.pending_interactions().await?.interactions {
///         if waiting.kind == InteractionKind::Approval && waiting.tool == "refund" {
///             // The approval counts only for the input that is listed.
///             chat.answer_tool(&waiting, ToolAnswer::Approved, true).await?;
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PendingInteraction {
    /// Class of the agent.
    pub class: String,
    /// Name of the agent.
    pub agent: String,
    /// Id of the message that has the call.
    pub message: String,
    /// Id of the call.
    pub call: String,
    /// Name of the tool.
    pub tool: String,
    /// Input of the call, as the model has written it; `null` if there is none.
    pub input: Value,
    /// What the call waits for.
    pub kind: InteractionKind,
    /// Id of the approval, of an [`Approval`](InteractionKind::Approval) that has one.
    pub approval: Option<String>,
    /// When its message was stored with a pending interaction, UTC; in JSON `since_ms`,
    /// milliseconds since the Unix epoch.
    ///
    /// It stays while the message has one: of several calls, one may have come later.
    #[serde(rename = "since_ms", serialize_with = "as_ms")]
    pub since: SystemTime,
    /// Whether there is a later message in the chat.
    ///
    /// An answer is stored all the same, but turns continue the last message only: a tool that is
    /// approved here is not run.
    pub superseded: bool,
}

fn as_ms<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(ms(*time))
}

impl From<&PendingInteraction> for ToolCallRef {
    fn from(interaction: &PendingInteraction) -> Self {
        ToolCallRef::new(interaction.call.as_str()).seen(interaction.input.clone())
    }
}

/// The pending interactions of a message.
fn of_message(engine: &Engine, row: &InteractionRow, message: &UiMessage) -> Vec<PendingInteraction> {
    let pending = |part: &Part| {
        let kind = interaction(engine, part)?;
        let approval = part.get("approval").and_then(|approval| approval.get("id")).and_then(Value::as_str);
        Some(PendingInteraction {
            class: row.chat.class.clone(),
            agent: row.chat.name.clone(),
            message: message.id.clone(),
            call: part.tool_call_id()?.to_owned(),
            tool: part.tool_name().unwrap_or_default().to_owned(),
            input: part.get("input").cloned().unwrap_or_default(),
            kind,
            approval: approval.filter(|_| kind == InteractionKind::Approval).map(str::to_owned),
            since: from_ms(row.at.pending_ms),
            superseded: row.superseded,
        })
    };
    if message.role == Role::Assistant { message.parts.iter().filter_map(pending).collect() } else { Vec::new() }
}

/// A page of pending interactions to be read; made by
/// [`ChatForever::pending_interactions`](crate::ChatForever::pending_interactions) and
/// [`ChatHandle::pending_interactions`](crate::ChatHandle::pending_interactions), read by `.await`.
///
/// ```
/// use forever::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = Forever::builder().in_memory().open().await?;
/// let support = || forever.pending_interactions().class("support");
/// let mut query = Some(support());
/// while let Some(interactions) = query {
///     let page = interactions.await?;
///     for waiting in &page.interactions {
///         println!("{} waits in {} since {:?}", waiting.tool, waiting.agent, waiting.since);
///     }
///     query = page.next.map(|cursor| support().after(cursor));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the store cannot be read, or the runtime is gone.
#[derive(Debug)]
#[must_use = "pending interactions are listed when this is awaited"]
pub struct PendingInteractions {
    link: EngineLink,
    query: InteractionQuery,
    limit: u32,
    after: Option<InteractionCursor>,
}

/// A page of pending interactions, the latest first.
///
/// See [`PendingInteractions`] for an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct InteractionPage {
    /// The pending interactions. Those of one message are adjacent, in the order of its calls.
    pub interactions: Vec<PendingInteraction>,
    /// Start of the next page, if there may be more; for [`PendingInteractions::after`].
    pub next: Option<InteractionCursor>,
}

/// Position in the list of pending interactions.
///
/// See [`PendingInteractions`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InteractionCursor(store::InteractionCursor);

impl PendingInteractions {
    pub(crate) fn new(link: EngineLink, query: InteractionQuery) -> Self {
        PendingInteractions { link, query, limit: PAGE.0, after: None }
    }

    /// Limits the list to agents of this class.
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.query = InteractionQuery { class: Some(class.into()), agent: None };
        self
    }

    /// Limits the list to this agent.
    pub fn agent(mut self, class: impl Into<String>, name: impl Into<String>) -> Self {
        self.query = InteractionQuery { class: Some(class.into()), agent: Some(name.into()) };
        self
    }

    /// Sets the maximum number of messages of a page. Defaults to 50, at most 1000.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit.clamp(1, PAGE.1);
        self
    }

    /// Continues after the page that returned this cursor.
    pub fn after(mut self, cursor: InteractionCursor) -> Self {
        self.after = Some(cursor);
        self
    }

    async fn read(self) -> Result<InteractionPage> {
        let engine = self.link.get()?;
        let mut next = self.after;
        loop {
            let after = next.map(|cursor| cursor.0);
            let rows = engine.store().pending_interactions(self.query.clone(), after, self.limit).await?;
            let full = u32::try_from(rows.len()) == Ok(self.limit);
            next = rows.last().filter(|_| full).map(|row| InteractionCursor(row.at));
            let mut interactions = Vec::new();
            for row in rows {
                match read_message(&row.message) {
                    Ok(message) => interactions.extend(of_message(&engine, &row, &message)),
                    Err(error) => warn!(agent = %row.chat, error = %chain(&error), "a message is left out of the pending interactions"),
                }
            }
            // An empty page means that there are no more.
            if next.is_none() || !interactions.is_empty() {
                return Ok(InteractionPage { interactions, next });
            }
        }
    }
}

impl IntoFuture for PendingInteractions {
    type Output = Result<InteractionPage>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}
