//! Decides which messages of a client are stored, and which parts of them.
//!
//! Input: messages sent by a client, and the stored ones. Output: messages to store. Invariant: an
//! open tool call is always one that the log of a turn has made.
use std::collections::{HashMap, HashSet};

use forever_chat::message::{Part, Role, UiMessage};
use forever_chat::{ChatHandle, ToolCallRef, TurnState};
use forever_runtime::__layers::check_name;
use forever_runtime::Result;
use forever_runtime::agent::AgentHandle;
use serde_json::{Map, Value};

use super::erased::Erased;

/// Maximum number of messages that come with a question.
pub(super) const MAX_QUESTIONS: usize = 100;

/// Policy for the messages that clients send.
///
/// It covers those with a question, and those in place of a conversation.
///
/// ```
/// # mod forever { pub use {forever_runtime::*, forever_serve as serve}; }
/// # fn server(forever: &forever::Forever) -> forever::serve::Server {
/// use forever::serve::{ClientMessages, Server};
///
/// // For clients that are programs of ours: they may also write what the assistant has said.
/// Server::new(forever).client_messages(ClientMessages::Trusted)
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ClientMessages {
    /// Clients write messages of the role `user`, of text, files and `data-*` parts.
    ///
    /// Stored messages keep their stored content. The one exception is the user message at the end
    /// of a question, which may be edited. All other messages and parts of a client are left out.
    /// The default.
    #[default]
    UserOnly,
    /// Clients write messages of every role, with all parts but tool calls that are open.
    ///
    /// For programs whose clients are their own. A tool call that waits to be run, answered or
    /// approved is still taken from the store, and left out if it is not there.
    Trusted,
}

/// The stored conversation, with which a client's messages are compared.
pub(super) struct Known {
    stored: Vec<UiMessage>,
    /// Ids of messages that turns are going to write.
    reserved: HashSet<String>,
}

impl Known {
    /// Reads the conversation of an agent.
    pub(super) async fn load(agent: &AgentHandle<Erased>) -> Result<Self> {
        // Turns are read first: if one ends in between, its message is among the stored ones.
        let open = agent.turns(&[TurnState::Queued, TurnState::Running]).await?;
        let reserved = open.iter().map(|turn| turn.message_id().to_owned()).collect();
        Ok(Known { stored: agent.messages().await?, reserved })
    }

    /// A conversation without turns under way.
    pub(super) fn of(stored: Vec<UiMessage>) -> Self {
        Known { stored, reserved: HashSet::new() }
    }

    fn places(&self) -> HashMap<&str, usize> {
        self.stored.iter().enumerate().map(|(place, message)| (&*message.id, place)).collect()
    }
}

impl ClientMessages {
    /// The messages to store with a question. `None` if the last message is refused, or there are
    /// more than a page would send.
    pub(super) fn question(self, known: &Known, sent: Vec<UiMessage>) -> Option<Vec<UiMessage>> {
        let places = known.places();
        let last = sent.len().saturating_sub(1);
        let mut accepted: Vec<UiMessage> = Vec::new();
        for (at, message) in sent.into_iter().enumerate() {
            let stored = places.get(&*message.id).map(|&place| &known.stored[place]);
            let new = match (self, stored) {
                (_, Some(stored)) if message.role != Role::User || stored.role != Role::User => continue,
                (ClientMessages::UserOnly, Some(_)) if at != last => continue,
                _ if known.reserved.contains(&message.id) => None,
                (ClientMessages::UserOnly, _) => written_by_a_user(message),
                (ClientMessages::Trusted, stored) => Some(without_open_calls(message, stored)),
            };
            match new {
                Some(new) => accepted.push(new),
                None if at == last => return None,
                None => {}
            }
        }
        // Their ids are sent to every client with the end of the turn.
        let is_too_much = self == ClientMessages::UserOnly && accepted.len() > MAX_QUESTIONS;
        (!is_too_much).then_some(accepted)
    }

    /// The messages to store in place of the conversation.
    pub(super) fn replacement(self, known: &Known, sent: Vec<UiMessage>) -> Vec<UiMessage> {
        let places = known.places();
        let mut seen = HashSet::new();
        let mut accepted = Vec::new();
        // Positions of stored messages in `accepted`, and their numbers: they keep their order.
        let (mut at, mut kept) = (Vec::new(), Vec::new());
        for message in sent {
            if known.reserved.contains(&message.id) || !seen.insert(message.id.clone()) {
                continue;
            }
            let place = places.get(&*message.id).copied();
            match (self, place) {
                (ClientMessages::UserOnly, Some(place)) => {
                    at.push(accepted.len());
                    kept.push(place);
                    accepted.push(message);
                }
                (ClientMessages::UserOnly, None) => accepted.extend(written_by_a_user(message)),
                (ClientMessages::Trusted, place) => {
                    accepted.push(without_open_calls(message, place.map(|place| &known.stored[place])));
                }
            }
        }
        kept.sort_unstable();
        for (at, place) in at.into_iter().zip(kept) {
            accepted[at] = known.stored[place].clone();
        }
        accepted
    }
}

/// A message as a user may write it; `None` if it is no user message, or nothing of it is left.
pub(super) fn written_by_a_user(message: UiMessage) -> Option<UiMessage> {
    if message.role != Role::User || check_name(&message.id).is_err() {
        return None;
    }
    let had_parts = !message.parts.is_empty();
    let parts: Vec<Part> = message.parts.iter().filter_map(part_of_a_user).collect();
    if had_parts && parts.is_empty() {
        return None;
    }
    let metadata = message.metadata.map(harmless).map(|mut metadata| {
        if let Value::Object(fields) = &mut metadata {
            // The server records there how a turn has ended.
            fields.remove("forever");
        }
        metadata
    });
    Some(UiMessage { id: message.id, role: Role::User, metadata, parts, other: Map::new() })
}

/// A part as a user may write it, with the fields that a user may write.
///
/// They exclude `providerMetadata`, by which providers refer to stored data.
fn part_of_a_user(part: &Part) -> Option<Part> {
    let is_text = |field: &str| part.get(field).is_some_and(Value::is_string);
    let fields: &[&str] = match part.kind() {
        "text" if is_text("text") => &["type", "text"],
        "file" if is_text("url") && is_text("mediaType") => &["type", "mediaType", "url", "filename"],
        kind if kind.starts_with("data-") => &["type", "id", "data"],
        _ => return None,
    };
    let written = fields.iter().filter_map(|&field| Some((field.to_owned(), harmless(part.get(field)?.clone()))));
    Part::from_json(Value::Object(written.collect()))
}

/// The call of this id, with the input that the client has shown, if it is known.
pub(super) fn shown_call(id: &str, input: Option<Value>) -> ToolCallRef {
    let call = ToolCallRef::new(id);
    match input {
        Some(input) => call.seen(input),
        None => call,
    }
}

/// A value without the keys that would change the prototype of a JavaScript object.
pub(super) fn harmless(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_harmless = |key: &str| !matches!(key, "__proto__" | "constructor" | "prototype");
            fields.into_iter().filter(|(key, _)| is_harmless(key)).map(|(key, value)| (key, harmless(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(harmless).collect(),
        value => value,
    }
}

/// A message whose open tool calls are the stored ones.
fn without_open_calls(message: UiMessage, stored: Option<&UiMessage>) -> UiMessage {
    let is_settled = |part: &Part| part.tool_state().is_some_and(forever_chat::message::ToolState::is_settled);
    let logged = |part: &Part| stored?.parts.iter().find(|there| there.is_tool() && there.get("toolCallId") == part.get("toolCallId"));
    let parts = message.parts.into_iter().filter_map(|part| match logged(&part) {
        // A call of a turn's log stays as it is there, also when it is settled: it does not run
        // again.
        Some(logged) => Some(logged.clone()),
        None if part.is_tool() && !is_settled(&part) => None,
        None => Some(part),
    });
    UiMessage { parts: parts.collect(), ..message }
}
