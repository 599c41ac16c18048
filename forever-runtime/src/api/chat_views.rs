//! Views of chats for people: turns, conversations, and what waits for an answer.
use serde::Serialize;

use crate::api::redact::Redactor;
use crate::api::view::ValueView;
use crate::error::Result;
use crate::secret::shown;
use crate::store::{AgentId, InteractionQuery, InteractionRow, MessageRow, Store, TurnFilter, TurnKind, TurnRow, TurnSeq};

/// Turn of a chat in a list.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// // The newest turns of all chats.
/// for turn in forever.view_turns(None, 20).await? {
///     println!("{}/{}: turn {} is {}", turn.class, turn.agent, turn.id, turn.state);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TurnView {
    /// Sequence number. Later turns have greater ones.
    pub number: i64,
    /// Class of the chat's agent.
    pub class: String,
    /// Name of the chat's agent.
    pub agent: String,
    /// Id, unique in its chat.
    pub id: String,
    /// Idempotency key, unique in its chat.
    pub key: Option<String>,
    /// Whether it adds to the message before it, and does not make a new one.
    pub is_continuation: bool,
    /// `queued`, `running`, `completed`, `error`, `aborted`, `skipped` or `interrupted`.
    pub state: &'static str,
    /// Why it ended as it did, as clients are shown it.
    pub reason: Option<String>,
    /// The error that ended it, with its causes. Hidden where a function of the program has values
    /// marked `#[secret]`.
    pub error: Option<String>,
    /// Reason of its cancel.
    pub cancel: Option<String>,
    /// Id of its message.
    pub message: String,
    /// Deaths of the process in its attempts.
    pub deaths: u32,
    /// Time of its acceptance, in milliseconds since 1970.
    pub created_ms: i64,
    /// Time at which it began.
    pub started_ms: Option<i64>,
    /// Time of its end.
    pub settled_ms: Option<i64>,
}

/// Message of a conversation.
///
/// See [`ChatView`] for an example.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChatMessageView {
    /// Id, unique in its chat.
    pub id: String,
    /// `user`, `assistant` or `system`.
    pub role: &'static str,
    /// The message, as clients get it.
    pub message: ValueView,
    /// Whether a call in it waits for an answer of a person or of the client.
    pub is_pending: bool,
}

/// Chat: its newest turns, and the end of its conversation.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn show(forever: &forever::Forever) -> forever::Result<()> {
/// let chat = forever.view_chat("concierge", "table-7", 20).await?;
/// println!("({} earlier messages)", chat.earlier);
/// for message in &chat.messages {
///     println!("{}: {:?}", message.role, message.message.value);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChatView {
    /// Its turns, the newest first.
    pub turns: Vec<TurnView>,
    /// Its last messages, in their order.
    pub messages: Vec<ChatMessageView>,
    /// Number of messages before these.
    pub earlier: usize,
}

/// Message with a call that waits for an answer of a person or of the client.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// for waiting in forever.view_pending_interactions(20).await? {
///     println!("{}/{} waits for an answer", waiting.class, waiting.agent);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PendingInteractionView {
    /// Class of the chat's agent.
    pub class: String,
    /// Name of the chat's agent.
    pub agent: String,
    /// The message.
    pub message: ChatMessageView,
    /// Time since when it waits, in milliseconds since 1970.
    pub since_ms: i64,
}

impl TurnView {
    fn of(row: TurnRow) -> Self {
        let shown = |text: String| shown(&text).to_owned();
        TurnView {
            number: row.seq,
            class: row.chat.class,
            agent: row.chat.name,
            id: row.id,
            key: row.key,
            is_continuation: row.kind == TurnKind::Continue,
            state: row.state.as_str(),
            reason: row.reason.map(shown),
            error: row.error.map(shown),
            cancel: row.cancel,
            message: row.message,
            deaths: row.deaths,
            created_ms: row.created_ms,
            started_ms: row.started_ms,
            settled_ms: row.settled_ms,
        }
    }

    fn all(rows: Vec<TurnRow>) -> Vec<Self> {
        rows.into_iter().map(TurnView::of).collect()
    }
}

impl ChatMessageView {
    fn of(row: MessageRow) -> Self {
        let message = ValueView::of(&row.data, false, &Redactor::default());
        ChatMessageView { id: row.id, role: row.role.as_str(), message, is_pending: row.pending }
    }
}

impl PendingInteractionView {
    fn of(row: InteractionRow) -> Self {
        let AgentId { class, name: agent } = row.chat;
        PendingInteractionView { class, agent, message: ChatMessageView::of(row.message), since_ms: row.at.pending_ms }
    }
}

/// Turns of all chats before one, the newest first.
pub(crate) async fn turns(store: &dyn Store, before: Option<TurnSeq>, limit: u32) -> Result<Vec<TurnView>> {
    Ok(TurnView::all(store.all_turns(before, limit).await?))
}

/// Turns of all chats that failed, before one, the newest first.
pub(crate) async fn failed_turns(store: &dyn Store, before: Option<TurnSeq>, limit: u32) -> Result<Vec<TurnView>> {
    Ok(TurnView::all(store.failed_turns(before, limit).await?))
}

/// A chat with its newest turns and last messages, up to `limit` of each.
pub(crate) async fn chat(store: &dyn Store, chat: AgentId, limit: u32) -> Result<ChatView> {
    let newest = TurnFilter { latest_first: true, ..TurnFilter::default() };
    let turns = TurnView::all(store.turns(chat.clone(), newest, 0, limit).await?);
    let mut messages = store.chat_messages(chat, i64::MAX).await?;
    let earlier = messages.len().saturating_sub(limit as usize);
    messages.drain(..earlier);
    Ok(ChatView { turns, messages: messages.into_iter().map(ChatMessageView::of).collect(), earlier })
}

/// The newest messages with a call that waits for an answer.
pub(crate) async fn pending(store: &dyn Store, limit: u32) -> Result<Vec<PendingInteractionView>> {
    let rows = store.pending_interactions(InteractionQuery::default(), None, limit).await?;
    Ok(rows.into_iter().map(PendingInteractionView::of).collect())
}
