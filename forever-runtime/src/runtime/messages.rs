//! Messages to a fiber: sending one, which is stored first, then the fiber is woken if it waits for
//! it; and those that it has not received.
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use tracing::warn;

use crate::clock::from_ms;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::frame::saved::text_to_keep;
use crate::runtime::commands::done;
use crate::runtime::detached::detached;
use crate::runtime::events::EventKind;
use crate::runtime::handle::as_ms;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::runtime::unread::UnreadTopic;
use crate::store::{CommandResult, FiberRef, FiberState, NewMessage, PendingMessage, SendResult, UnreadMessages, UnreadSender};

/// The longest id or key, in bytes.
pub(crate) const LONGEST_ID: usize = 512;

/// How many messages of one fiber are listed.
const MOST_LISTED: u32 = 1000;

/// Message to a fiber, stored by `.await`.
///
/// Made by [`FiberHandle::send`](crate::fiber::FiberHandle::send) and
/// [`Forever::send`](crate::Forever::send).
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::FiberHandle;
///
/// /// The fiber waits for it by `recv!("approval")`.
/// async fn approve(order: &FiberHandle<String>, click: &str) -> forever::Result<()> {
///     // Stored once, however often the browser repeats the request.
///     order.send("approval", &true).message_id(click).await
/// }
/// ```
#[derive(Debug)]
#[must_use = "a message is sent when this is awaited"]
pub struct SendMessage {
    link: Link<Runtime>,
    fiber: String,
    topic: String,
    /// Text of the value, or why there is none.
    data: Result<String, String>,
    id: Option<String>,
}

impl SendMessage {
    pub(crate) fn new<V: Serialize + ?Sized>(link: Link<Runtime>, fiber: &str, topic: &str, value: &V) -> Self {
        let data = text_to_keep(value);
        SendMessage { link, fiber: fiber.to_owned(), topic: topic.to_owned(), data, id: None }
    }

    /// Id of the message, which makes sending it again safe.
    ///
    /// The same message with an id that the fiber was sent before, received or not, changes nothing
    /// and is no error. Another topic or value under this id is an error of kind
    /// [`Conflict`](ErrorKind::Conflict). Ids are remembered as long as the fiber is.
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl IntoFuture for SendMessage {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { send(&self.link.get()?, self).await })
    }
}

async fn send(runtime: &Arc<Runtime>, message: SendMessage) -> Result<()> {
    let SendMessage { link: _, fiber: id, topic, data, id: message_id } = message;
    let (id, topic) = (id.as_str(), topic.as_str());
    let refused = |kind, why: String| Error::new(kind, format!("failed to send to fiber `{id}` on topic `{topic}`: {why}"));
    let data = data.map_err(|why| refused(ErrorKind::Value, format!("the value {why}")))?;
    if message_id.as_ref().is_some_and(|id| id.trim().is_empty() || id.len() > LONGEST_ID) {
        let why = format!("its message id must not be blank, nor longer than {LONGEST_ID} bytes");
        return Err(refused(ErrorKind::Value, why));
    }
    let there = runtime.store.find(FiberRef::Id(id.to_owned())).await?;
    let Some(row) = there else { return Err(refused(ErrorKind::NotFound, "there is no such fiber".into())) };
    if row.closure {
        return Err(refused(ErrorKind::Conflict, "it is a closure, and receives no messages".into()));
    }
    let conflict = |why: String| refused(ErrorKind::Conflict, why);
    if let Err(which) = runtime.check_topic(&row.name, topic) {
        // Code of another version may have left it, and receives on the topic.
        let left = runtime.store.load(row.seq).await?;
        if !left.layout.iter().chain(&left.callees).any(|layout| runtime.takes(layout, topic)) {
            return Err(conflict(format!("it is a fiber `{}`, and {which}", row.name)));
        }
    }
    runtime.topics.check(&row.name, topic, &data).map_err(|why| conflict(format!("the value {why}")))?;
    let message = NewMessage { to: id.to_owned(), id: message_id, topic: topic.to_owned(), data, now_ms: runtime.now_ms() };
    let (of_task, to) = (Arc::clone(runtime), id.to_owned());
    let work = async move {
        // The store tells the dispatcher, if the fiber waits for it.
        let sent = of_task.store.send(message).await;
        // One that waits in memory looks itself, also where it is unknown whether there is one.
        if let Some(control) = of_task.active.get(&to).and_then(|entry| entry.control()) {
            control.ring();
        }
        sent
    };
    match detached(runtime, work).await.map_err(|e| refused(e.kind(), chain(&e)))? {
        CommandResult::Done(SendResult::Sent) => Ok(()),
        CommandResult::Done(SendResult::Conflict) => {
            Err(refused(ErrorKind::Conflict, "another message was sent to it with this message id".into()))
        }
        CommandResult::Done(SendResult::Closed) => Err(refused(ErrorKind::TopicClosed, "it has closed this topic".into())),
        CommandResult::NotFound => Err(refused(ErrorKind::NotFound, "there is no such fiber".into())),
        CommandResult::InvalidState(state) => Err(refused(ErrorKind::InvalidState, format!("it has {state} already"))),
    }
}

/// Message that a fiber was sent and has not received.
///
/// As JSON its time is in milliseconds since 1970, in the field `sent_ms`.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn discard(forever: &forever::Forever) -> forever::Result<()> {
/// for message in forever.messages("order-17").await? {
///     println!("{}: {} on `{}`", message.number, message.value, message.topic);
///     if message.topic == "approval" {
///         forever.discard_message("order-17", message.number).await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MessageStatus {
    /// Number, in the order in which messages were sent to all fibers.
    pub number: i64,
    /// Topic.
    pub topic: String,
    /// Value.
    pub value: serde_json::Value,
    /// Time at which it was sent, UTC.
    #[serde(rename = "sent_ms", serialize_with = "as_ms")]
    pub sent: SystemTime,
}

impl MessageStatus {
    fn of(message: PendingMessage) -> Self {
        let PendingMessage { seq, topic, data, sent_ms } = message;
        let value = serde_json::from_str(&data).unwrap_or(serde_json::Value::String(data));
        MessageStatus { number: seq, topic, value, sent: from_ms(sent_ms) }
    }
}

/// Messages that a fiber had not received when it ended: counts by topic, and the messages by page.
///
/// They are stored until the fiber is deleted. Of a fiber that completed or was cancelled nothing
/// receives them any more; one that failed receives them when it is resumed.
///
/// ```
/// # use forever_runtime as forever;
/// # use forever::BoxError;
/// # use forever::agent::{Agent, EndedFiber};
/// # struct Shop;
/// # impl Agent for Shop {
/// #     const CLASS: &'static str = "shop";
/// #     type State = ();
/// // In `impl Agent for Shop`:
/// async fn on_fiber_completed(&self, fiber: &EndedFiber) -> Result<(), BoxError> {
///     for message in fiber.unread().messages(None, 100).await? {
///         eprintln!("{} ended before it received {}", fiber.id(), message.value);
///     }
///     Ok(())
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Unread {
    link: Link<Runtime>,
    fiber: String,
    topics: Vec<UnreadTopic>,
}

impl Unread {
    pub(crate) fn new(link: Link<Runtime>, fiber: String, topics: Vec<UnreadTopic>) -> Self {
        Unread { link, fiber, topics }
    }

    /// Counts by topic, ordered by topic; empty if it had received all messages.
    pub fn topics(&self) -> &[UnreadTopic] {
        &self.topics
    }

    /// Number of messages on all topics.
    pub fn count(&self) -> u64 {
        self.topics.iter().map(|topic| topic.messages).sum()
    }

    /// Reads up to `limit` messages, at most 1 000, behind the one with the number `after`, in the
    /// order in which they were sent; without `after` from the first.
    ///
    /// # Errors
    /// When the store fails, or the runtime is closed.
    pub async fn messages(&self, after: Option<i64>, limit: u32) -> Result<Vec<MessageStatus>> {
        let runtime = self.link.get()?;
        let page = runtime.store.pending_messages(self.fiber.clone(), after.unwrap_or(i64::MIN), limit.min(MOST_LISTED)).await?;
        Ok(page.into_iter().map(MessageStatus::of).collect())
    }
}

/// Counts the messages that a fiber has not received.
pub(crate) async fn unread(runtime: &Runtime, fiber: &str) -> Result<Vec<UnreadTopic>> {
    Ok(UnreadTopic::all_of(runtime.store.topics(fiber.to_owned()).await?))
}

/// Reports each fiber that ends with unread messages: as an event and in the log.
pub(crate) fn report_unread(runtime: &Arc<Runtime>) {
    let of_sender = Arc::downgrade(runtime);
    runtime.store.on_unread(UnreadSender::new(move |unread| {
        let Some(runtime) = of_sender.upgrade() else { return };
        let UnreadMessages { id, name, state, topics } = unread;
        let topics = UnreadTopic::all_of(topics);
        let (messages, by_topic) = (topics.iter().map(|topic| topic.messages).sum::<u64>(), texts(&topics));
        let (fiber, name) = (id.as_str(), name.as_str());
        if state == FiberState::Failed {
            warn!(
                fiber.id = fiber,
                fiber.name = name,
                messages,
                topics = by_topic,
                "fiber failed with messages that it receives once it is resumed"
            );
        } else {
            warn!(fiber.id = fiber, fiber.name = name, messages, topics = by_topic, "fiber {state} with messages that it has not received");
        }
        runtime.tell(fiber, name, || EventKind::Unread { topics });
    }));
}

/// Counts by topic, as people read them.
fn texts(topics: &[UnreadTopic]) -> String {
    topics.iter().map(|UnreadTopic { topic, messages }| format!("{topic}: {messages}")).collect::<Vec<_>>().join(", ")
}

/// Lists the first messages that a fiber has not received.
pub(crate) async fn list(runtime: &Runtime, fiber: &str) -> Result<Vec<MessageStatus>> {
    let messages = runtime.store.pending_messages(fiber.to_owned(), i64::MIN, MOST_LISTED).await?;
    if messages.is_empty() && runtime.store.find(FiberRef::Id(fiber.to_owned())).await?.is_none() {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no fiber with id `{fiber}`")));
    }
    Ok(messages.into_iter().map(MessageStatus::of).collect())
}

/// Deletes a message that a fiber has not received.
pub(crate) async fn discard(runtime: &Runtime, fiber: &str, number: i64) -> Result<()> {
    let what = format!("discard message {number} of");
    if done(runtime.store.discard_message(fiber.to_owned(), number).await?, fiber, &what)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NotFound, format!("failed to {what} fiber `{fiber}`: no message with this number waits for it")))
}
