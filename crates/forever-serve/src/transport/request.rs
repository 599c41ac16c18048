//! Handles a POST of the AI SDK's transport, against the stored conversation.
//!
//! The body holds the conversation as the page has it. Two things are used: the user messages at
//! its end, and the answers to tool calls that are open in the stored conversation. Everything else
//! is ignored, above all messages that a page sends as the assistant's.
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::http::StatusCode;
use forever_chat::__server::{ClientRequests, unless_asked};
use forever_chat::message::{Part, Role, ToolState, UiMessage};
use forever_chat::model::ToolSpec;
use forever_chat::{ChatHandle, NewTurn, ToolAnswer, ToolAnswered, ToolCallRef, TurnHandle, TurnState};
use forever_runtime::__layers::{chain, check_name};
use forever_runtime::agent::AgentHandle;
use forever_runtime::{Error, ErrorKind, Result as StoreResult};
use forever_store::hex;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tracing::debug;

use super::super::auth::RequestKind;
use super::super::client_messages::{MAX_QUESTIONS, harmless, shown_call, written_by_a_user};
use super::super::erased::Erased;
use super::super::http::{At, Failed, Served};

type Agent = AgentHandle<Erased>;

/// Text for a POST whose answers match no open call.
pub(super) const NOTHING_OPEN: &str = "no tool call of the message waits for an answer";

/// Text for a question whose id is that of an answer.
const TAKEN: &str = "the id of the message is that of another message";

/// The body of a POST, as `DefaultChatTransport` sends it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Post {
    messages: Vec<UiMessage>,
    #[serde(default)]
    trigger: Trigger,
    message_id: Option<String>,
    #[serde(default)]
    client_tools: Vec<ToolSpec>,
    /// The fields that the page adds, which are the body of the turn.
    #[serde(flatten)]
    body: Map<String, Value>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Trigger {
    #[default]
    #[serde(rename = "submit-message")]
    Submit,
    #[serde(rename = "regenerate-message")]
    Regenerate,
}

impl Post {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Failed> {
        let mut post: Post = serde_json::from_slice(body).map_err(|why| {
            debug!(%why, "the body of a POST was not understood");
            bad("the body is not that of a chat request: `messages` are UI messages, `trigger` is `submit-message` or `regenerate-message`")
        })?;
        // The page's own name for the chat; the URL identifies the chat.
        post.body.remove("id");
        Ok(post)
    }
}

fn bad(why: &str) -> Failed {
    Failed(StatusCode::BAD_REQUEST, why.to_owned())
}

pub(super) fn conflict(why: &str) -> Failed {
    Failed(StatusCode::CONFLICT, why.to_owned())
}

/// The turn that responds to the POST; `None` if a call of the message still waits for an answer.
pub(super) async fn carry_out(served: &Served, at: &At, post: Post) -> Result<Option<TurnHandle>, Failed> {
    let agent = &at.agent(&served.forever);
    // Turns are read first: if one ends in between, its message is among the stored ones.
    let open = agent.turns(&[TurnState::Queued, TurnState::Running]).await?;
    let stored = agent.messages().await?;
    if post.messages.iter().any(|sent| sent.role == Role::User && open.iter().any(|turn| turn.message_id() == sent.id)) {
        return Err(conflict(TAKEN));
    }
    let answers = answers(&post.messages, &stored);
    for (_, answer) in &answers {
        at.permits(served, kind_of(answer)).await?;
    }
    match post.messages.last().map(|last| last.role) {
        Some(Role::User) => {
            at.permits(served, RequestKind::Ask).await?;
            for (call, answer) in answers {
                apply(agent, call, answer, false).await?;
            }
            ask(agent, post, &stored).await.map(Some)
        }
        Some(Role::Assistant) if post.trigger == Trigger::Submit => answer(agent, &post, &stored, answers).await,
        Some(_) => Err(bad("the last message is not a user message")),
        None => Err(bad("there are no messages")),
    }
}

fn kind_of(answer: &ToolAnswer) -> RequestKind {
    match answer {
        ToolAnswer::Approved | ToolAnswer::Refused => RequestKind::Approve,
        _ => RequestKind::ToolResult,
    }
}

/// Handles a question, new or sent again.
async fn ask(agent: &Agent, mut post: Post, stored: &[UiMessage]) -> Result<TurnHandle, Failed> {
    let from = post.messages.iter().rposition(|message| message.role != Role::User).map_or(0, |at| at + 1);
    let mut questions: Vec<UiMessage> = post.messages.split_off(from).iter().map(user_message).collect();
    if questions.len() > MAX_QUESTIONS {
        return Err(bad("there are more than 100 user messages behind the last answer"));
    }
    if questions.iter().any(|question| check_name(&question.id).is_err()) {
        return Err(bad("the id of a message has 1 to 256 bytes"));
    }
    let Some(last) = questions.last().cloned() else { return Err(bad("there are no messages")) };
    let at = stored.iter().position(|message| message.id == last.id);
    let there = at.and_then(|at| stored.get(at));
    let answer = at.and_then(|at| stored.get(at + 1)).map_or("", |answer| answer.id.as_str());
    // Stored messages stay as they are; other messages, which did not arrive before, are new.
    let known: HashSet<&str> = stored.iter().map(|message| message.id.as_str()).collect();
    questions.retain(|question| !known.contains(question.id.as_str()));
    let new = match there {
        Some(there) if there.role != Role::User => return Err(conflict(TAKEN)),
        _ if last.parts.is_empty() => return Err(bad("a user message has text, a file or data")),
        // Another POST may store it meanwhile, alone or with later questions.
        None => question(agent, post, questions, &last.id),
        Some(_) if post.trigger == Trigger::Regenerate => {
            // A repetition while it is under way is the same turn.
            if let Some(turn) = turn_of(agent, &last.id, &[TurnState::Queued, TurnState::Running]).await? {
                return Ok(turn);
            }
            let replaced = post.message_id.clone().filter(|id| *id != last.id).unwrap_or_else(|| answer.to_owned());
            let new = new_turn(agent, post, questions).after(&last.id);
            // A turn that was aborted before its first chunk has no message to name.
            if replaced.is_empty() { new } else { new.id(turn_id(&["regenerate", &replaced])) }
        }
        Some(there) if user_message(there) == last => match turn_of(agent, &last.id, &[]).await? {
            Some(turn) => return Ok(turn),
            None => question(agent, post, questions, &last.id),
        },
        // An edit, which `useChat` names; the answers after the message are deleted.
        Some(there) if post.message_id.as_deref() == Some(&last.id) => {
            let (before, after) = (json_of(there)?, json_of(&last)?);
            let id = turn_id(&["edit", &last.id, &before, &after, answer]);
            new_turn(agent, post, vec![last.clone()]).after(&last.id).id(id)
        }
        Some(_) => return Err(conflict("a message with this id is stored with other content: name it in `messageId` to edit it")),
    };
    new.await.map_err(|error| match error.kind() {
        ErrorKind::Busy => Failed(StatusCode::TOO_MANY_REQUESTS, "too many questions wait for an answer".to_owned()),
        ErrorKind::Value => {
            debug!(error = %chain(&error), "a question was refused");
            bad("the question was refused")
        }
        _ => error.into(),
    })
}

/// The turn that replies to a user message; there is one, however often the message is sent.
fn question(agent: &Agent, post: Post, questions: Vec<UiMessage>, last: &str) -> NewTurn {
    unless_asked(new_turn(agent, post, questions), last).id(turn_id(&["question", last]))
}

fn new_turn(agent: &Agent, post: Post, questions: Vec<UiMessage>) -> NewTurn {
    agent.save_messages(questions).body(&post.body).client_tools(post.client_tools)
}

/// Stores answers to tool calls; returns the turn that continues with them.
async fn answer(
    agent: &Agent,
    post: &Post,
    stored: &[UiMessage],
    answers: Vec<(ToolCallRef, ToolAnswer)>,
) -> Result<Option<TurnHandle>, Failed> {
    let mut applied = false;
    for (call, answer) in answers {
        let Some(answered) = apply(agent, call, answer, true).await? else { continue };
        applied |= answered.applied;
        if answered.continued.is_some() {
            return Ok(answered.continued);
        }
    }
    if applied {
        return Ok(None);
    }
    // Answered before, by the same POST or by another page: the turn that continues with those
    // answers.
    let of = |sent: &&UiMessage| sent.role == Role::Assistant && post.message_id.as_ref().is_none_or(|id| *id == sent.id);
    let sent = post.messages.iter().rev().find(of);
    if let Some(sent) = sent
        && let Some(there) = stored.iter().find(|message| message.id == sent.id)
    {
        let turn = agent.latest_turn(&[], |turn| turn.is_continuation() && turn.message_id() == sent.id).await?;
        if let Some(turn) = turn.filter(|turn| !turn.state().is_settled() || there.parts.len() > sent.parts.len()) {
            return Ok(agent.turn(turn.id()).await?);
        }
    }
    Err(conflict(NOTHING_OPEN))
}

/// Stores an answer to a call; `None` if the call is not open, or not the client's to answer.
async fn apply(agent: &Agent, call: ToolCallRef, answer: ToolAnswer, auto_continue: bool) -> StoreResult<Option<ToolAnswered>> {
    match agent.answer_tool_as_client(call, answer, auto_continue, Arc::default()).await {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Value | ErrorKind::Conflict) => {
            debug!(error = %chain(&error), "an answer to a tool call was refused");
            Ok(None)
        }
        answered => answered.map(Some),
    }
}

/// The newest turn in one of these states, or in any, that answers a message.
async fn turn_of(agent: &Agent, message: &str, states: &[TurnState]) -> StoreResult<Option<TurnHandle>> {
    let asked = |id: &String| id == message;
    match agent.latest_turn(states, |turn| !turn.is_continuation() && turn.origins().iter().any(asked)).await? {
        Some(turn) => agent.turn(turn.id()).await,
        None => Ok(None),
    }
}

/// The answers in a page's messages to calls that are open in the stored conversation.
fn answers(sent: &[UiMessage], stored: &[UiMessage]) -> Vec<(ToolCallRef, ToolAnswer)> {
    // If an id was used twice, the newest message has it.
    let mut calls = HashMap::new();
    for message in stored {
        for part in &message.parts {
            if let Some(call) = part.tool_call_id() {
                calls.insert(call, (message, part));
            }
        }
    }
    let mut answers = Vec::new();
    for message in sent.iter().filter(|message| message.role == Role::Assistant) {
        for part in &message.parts {
            if let Some(call) = part.tool_call_id()
                && let Some((there, open)) = calls.get(call)
                && there.id == message.id
                && there.role == Role::Assistant
                && let Some(answer) = answer_to(open, part)
            {
                // The first answer in a body counts, as the first of all does.
                calls.remove(call);
                // An approval is for the input that the page has shown.
                let shown = part.get("input").filter(|_| kind_of(&answer) == RequestKind::Approve).cloned();
                answers.push((shown_call(call, shown), answer));
            }
        }
    }
    answers
}

/// The page's answer to an open call.
fn answer_to(open: &Part, sent: &Part) -> Option<ToolAnswer> {
    match (open.tool_state()?, sent.tool_state()?) {
        (ToolState::InputAvailable, ToolState::OutputAvailable) if sent.get("preliminary") != Some(&Value::Bool(true)) => {
            Some(ToolAnswer::Output(harmless(sent.get("output").cloned().unwrap_or_default())))
        }
        (ToolState::InputAvailable, ToolState::OutputError) => {
            let text = sent.get("errorText").and_then(Value::as_str).unwrap_or("the tool has failed");
            Some(ToolAnswer::Error(text.to_owned()))
        }
        (ToolState::ApprovalRequested, ToolState::ApprovalResponded) => {
            let (asked, answered) = (open.get("approval")?, sent.get("approval")?);
            let approved = answered.get("approved")?.as_bool()?;
            let same = asked.get("id") == answered.get("id");
            same.then_some(if approved { ToolAnswer::Approved } else { ToolAnswer::Refused })
        }
        _ => None,
    }
}

/// The parts of a user message that a page may write.
fn user_message(sent: &UiMessage) -> UiMessage {
    written_by_a_user(sent.clone()).unwrap_or_else(|| UiMessage::new(&sent.id, Role::User))
}

fn json_of(message: &UiMessage) -> StoreResult<String> {
    serde_json::to_string(message).map_err(|why| Error::new(ErrorKind::Value, "a message cannot be written").with_source(why))
}

/// Id of the turn that a POST requests: the same for the same POST.
fn turn_id(of: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in of {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    format!("post-{}", hex(&hash.finalize()[..16]))
}
