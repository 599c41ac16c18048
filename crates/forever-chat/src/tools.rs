//! Answers of a person or their client: results of tools that run at the client, and approvals.
//!
//! An answer to a call in the message of a running turn goes into the log of that turn, every other
//! into the stored message. The store decides which: it refuses an update of a message that a
//! running turn has read, or that was changed since it was read here. A refused answer is tried
//! again. So is one to a call that is only in the log of a running turn, until that turn is
//! answered in this process or has ended.
use std::sync::Arc;
use std::time::Duration;

use forever_runtime::__layers::{Engine, HandleOfLayer, race};
use forever_runtime::agent::AgentHandle;
use forever_runtime::store::{AgentId, FiberState, MessageUpdate, TurnState, UpdateRefused};
use forever_runtime::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::agent_loop::AgentLoop;
use crate::answer::{has_logged_call, message_row, read_message};
use crate::chat_agent::ChatAgent;
use crate::chat_handle::ChatHandle;
use crate::feed::ChatEvent;
use crate::handle::TurnHandle;
use crate::message::{Chunk, MAX_NESTING, Part, Role, ToolState, UiMessage, nests_deeper};
use crate::registry::{ChatRegistry, registry};
use crate::status::TurnStatus;
use crate::turn::Turn;

/// Interval at which an answer to the message of a turn that is about to be answered is tried
/// again.
///
/// Turns of this runtime notify it at once; this is for turns of other runtimes.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

/// Answer of a person or their client to a tool call.
///
/// ```
/// use forever::agent::AgentHandle;
/// use forever::chat::{ChatAgent, ToolAnswer, ToolCallRef};
/// use forever::prelude::*;
///
/// /// The click of a person on "yes" or "no".
/// async fn decide<A: ChatAgent>(
///     chat: &AgentHandle<A>,
///     call: ToolCallRef,
///     approved: bool,
/// ) -> forever::Result<()> {
///     let answer = if approved { ToolAnswer::Approved } else { ToolAnswer::Refused };
///     let answered = chat.answer_tool(call, answer, true).await?;
///     if !answered.applied {
///         println!("another answer came first");
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ToolAnswer {
    /// The tool has returned this value.
    Output(Value),
    /// The tool has failed, with this text.
    Error(String),
    /// The call is approved.
    Approved,
    /// The call is refused.
    Refused,
}

impl ToolAnswer {
    /// Whether a call in this state waits for such an answer.
    fn answers(&self, state: Option<ToolState>) -> bool {
        match self {
            ToolAnswer::Output(_) | ToolAnswer::Error(_) => state == Some(ToolState::InputAvailable),
            ToolAnswer::Approved | ToolAnswer::Refused => state == Some(ToolState::ApprovalRequested),
        }
    }

    fn apply(&self, part: &mut Part) {
        match self {
            ToolAnswer::Output(output) => {
                part.set("state", ToolState::OutputAvailable.as_str());
                part.set("output", output.clone());
                part.set("preliminary", false);
            }
            ToolAnswer::Error(text) => {
                part.set("state", ToolState::OutputError.as_str());
                part.set("errorText", text.as_str());
            }
            ToolAnswer::Approved | ToolAnswer::Refused => {
                let id = part.get("approval").and_then(|approval| approval.get("id")).cloned();
                part.set("state", ToolState::ApprovalResponded.as_str());
                part.set("approval", json!({ "id": id, "approved": *self == ToolAnswer::Approved }));
            }
        }
    }

    /// The chunk for a turn that is under way.
    fn chunk(&self, call: &str) -> Option<Chunk> {
        match self {
            ToolAnswer::Output(output) => Some(Chunk::tool_output_available(call, output.clone())),
            ToolAnswer::Error(text) => Some(Chunk::tool_output_error(call, text)),
            ToolAnswer::Approved | ToolAnswer::Refused => None,
        }
    }
}

/// The tool call that is answered: its id, and the input that was seen by the author of the answer.
///
/// A bare id is one without input: `answer_tool("call-1", ..)`.
///
/// ```
/// use forever::chat::ToolCallRef;
/// use serde_json::json;
///
/// // The person has approved this refund, and no other one.
/// let call = ToolCallRef::new("call-1").seen(json!({ "cents": 500 }));
/// # let _ = call;
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCallRef {
    id: String,
    input: Option<Value>,
}

impl ToolCallRef {
    /// The call of this id.
    pub fn new(id: impl Into<String>) -> Self {
        ToolCallRef { id: id.into(), input: None }
    }

    /// Sets the input that was shown to the author of the answer. The answer counts only if it
    /// equals the input of the logged call: numbers are compared by value, objects without regard
    /// to the order of their fields.
    pub fn seen(mut self, input: Value) -> Self {
        self.input = Some(input);
        self
    }

    /// Refuses a call whose logged input is different.
    fn check(&self, part: &Part) -> Result<()> {
        let logged = part.get("input").unwrap_or(&Value::Null);
        if self.input.as_ref().is_none_or(|seen| is_same(seen, logged)) {
            return Ok(());
        }
        let why = format!("tool call `{}` has another input than the one that was answered", self.id);
        Err(Error::new(ErrorKind::Conflict, why))
    }
}

impl From<&str> for ToolCallRef {
    fn from(id: &str) -> Self {
        ToolCallRef::new(id)
    }
}

impl From<&String> for ToolCallRef {
    fn from(id: &String) -> Self {
        ToolCallRef::new(id.as_str())
    }
}

impl From<String> for ToolCallRef {
    fn from(id: String) -> Self {
        ToolCallRef::new(id)
    }
}

/// Whether two inputs are the same to a client in JavaScript, which writes 5.0 as 5 and rounds
/// large numbers.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| is_same(one, other)))
        }
        _ => one == other,
    }
}

/// Author of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// The program, which may settle every call.
    Program,
    /// A client, which settles calls of its own tools, and approvals.
    Client,
}

impl Author {
    /// Whether a call waits for an answer. The result of one that a client sees waiting for an
    /// approval is refused.
    fn is_awaited(self, part: &Part, answer: &ToolAnswer) -> Result<bool> {
        let state = part.tool_state();
        let is_result = matches!(answer, ToolAnswer::Output(_) | ToolAnswer::Error(_));
        if self == Author::Client && is_result && state == Some(ToolState::ApprovalRequested) {
            let call = part.tool_call_id().unwrap_or_default();
            return Err(Error::new(ErrorKind::Value, format!("tool call `{call}` waits for an approval")));
        }
        Ok(answer.answers(state))
    }

    /// Refuses the result of a tool that is not the client's to run.
    ///
    /// The tools of an [`AgentLoop`] run here, whatever tools a client says that it has. While a
    /// loop answers, only the tools that its client has declared are the client's.
    fn check(self, engine: &Engine, under_way: Option<&Turn>, part: &Part, answer: &ToolAnswer) -> Result<()> {
        if self == Author::Program || matches!(answer, ToolAnswer::Approved | ToolAnswer::Refused) {
            return Ok(());
        }
        let name = part.tool_name().unwrap_or_default();
        let of_loop = engine.resource::<AgentLoop>().is_some_and(|looped| looped.has_tool(name));
        let undeclared =
            under_way.is_some_and(|turn| turn.is_answered_by_a_fiber() && !turn.client_tools().iter().any(|tool| tool.name == name));
        if of_loop || undeclared || part.get("providerExecuted") == Some(&Value::Bool(true)) {
            return Err(Error::new(ErrorKind::Value, format!("tool `{name}` is not run by clients")));
        }
        Ok(())
    }
}

/// Result of an answer.
///
/// See [`ToolAnswer`] for an example.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolAnswered {
    /// Whether it counts, because the call waited for it. The first answer wins, and later ones
    /// change nothing.
    pub applied: bool,
    /// The turn that continues the message, if requested and if no other call of the message is
    /// open. `None` where the message is not the last of its chat: a tool that was approved in it
    /// does not run.
    pub continued: Option<TurnHandle>,
}

impl ToolAnswered {
    /// The call did not wait for the answer.
    fn ignored() -> Self {
        ToolAnswered { applied: false, continued: None }
    }
}

pub(crate) async fn answer_detached<A: ChatAgent>(
    agent: &AgentHandle<A>,
    call: ToolCallRef,
    answer: ToolAnswer,
    auto_continue: bool,
    author: Author,
    waits: Arc<Notify>,
) -> Result<ToolAnswered> {
    if matches!(&answer, ToolAnswer::Output(output) if nests_deeper(output, MAX_NESTING)) {
        let why = format!("the output of tool call `{}` is nested deeper than {MAX_NESTING} levels", call.id);
        return Err(Error::new(ErrorKind::Value, why));
    }
    let engine = agent.engine()?;
    // An answer and the turn that follows it do not depend on the caller, and do not keep the
    // runtime open.
    let unlinked = agent.weak()?;
    let work = async move { answer_call(&unlinked, &call, answer, auto_continue, author, &waits).await };
    let answered = engine.detached(Box::pin(work)).await?;
    let continued = answered.continued.map(|turn| turn.linked(&agent.engine_link()));
    Ok(ToolAnswered { continued, ..answered })
}

async fn answer_call<A: ChatAgent>(
    agent: &AgentHandle<A>,
    call: &ToolCallRef,
    answer: ToolAnswer,
    auto_continue: bool,
    author: Author,
    waits: &Notify,
) -> Result<ToolAnswered> {
    let chats = registry(&agent.engine()?)?;
    let asking = chats.answering(agent.id());
    let (mut ended, mut changed) = (None, chats.changes());
    loop {
        changed.mark_unchanged();
        // One at a time: each reads a message and writes it.
        let alone = asking.lock().await;
        let under_way = chats.turn_of(agent.id()).filter(|turn| ended.as_deref() != Some(turn.id()));
        let message = match &under_way {
            Some(turn) => Some(turn.message().await),
            None => None,
        };
        let part = message.as_ref().and_then(|message| find_call(message, &call.id));
        let (Some(turn), Some(part)) = (&under_way, part) else {
            match answer_stored(agent, &chats, call, &answer, auto_continue, author).await? {
                Ok(answered) => return Ok(answered),
                Err(UpdateRefused::InUse) => {
                    drop(alone);
                    waits.notify_one();
                    let engine = agent.engine()?;
                    // Ready when a turn begins to be answered, is released or ends.
                    let looks_again = race(changed.changed(), engine.clock().sleep(LOOKS_AGAIN));
                    if race(looks_again, engine.closing()).await.is_none() {
                        return Err(Error::closed());
                    }
                }
                Err(UpdateRefused::Changed) => {}
            }
            continue;
        };
        if author.is_awaited(part, &answer)? {
            call.check(part)?;
            author.check(&agent.engine()?, Some(turn), part, &answer)?;
        }
        if let Some(chunk) = answer.chunk(&call.id) {
            match answer_under_way(agent, turn, &call.id, &answer, chunk, auto_continue).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                answered => return answered,
            }
        }
        // No chunk fits, or the turn is just ending: the answer is stored once the call is in
        // the conversation.
        drop(alone);
        waits.notify_one();
        let Some(turn) = agent.turn(turn.id()).await? else { return Err(no_call(agent.id(), &call.id)) };
        turn.wait().await?;
        ended = Some(turn.id().to_owned());
    }
}

/// Answers a call of a stored message, or returns why the store refuses that.
async fn answer_stored<A: ChatAgent>(
    agent: &AgentHandle<A>,
    chats: &ChatRegistry,
    call: &ToolCallRef,
    answer: &ToolAnswer,
    auto_continue: bool,
    author: Author,
) -> Result<Result<ToolAnswered, UpdateRefused>> {
    let engine = agent.engine()?;
    // Turns are read first: if one ends in between, its message is among the stored ones.
    let running = agent.turns(&[TurnState::Running]).await?;
    let rows = engine.store().chat_messages(agent.id().clone(), i64::MAX).await?;
    let messages = rows.into_iter().map(|row| Ok((read_message(&row)?, row))).collect::<Result<Vec<_>>>()?;
    // Only messages of the assistant contain tool calls.
    let asks = |message: &UiMessage| message.role == Role::Assistant && find_call(message, &call.id).is_some();
    let last = messages.last().map(|(last, _)| last.id.clone());
    let Some((mut message, stored)) = messages.into_iter().rev().find(|(message, _)| asks(message)) else {
        for turn in &running {
            if has_logged_call(&engine, turn.seq(), &call.id).await? {
                return will_be_recovered(&engine, turn, &call.id).await.map(|()| Err(UpdateRefused::InUse));
            }
        }
        return Err(no_call(agent.id(), &call.id));
    };
    if stored.id != message.id {
        let why = format!("message `{}` of agent `{}` has the id `{}` in its text", stored.id, agent.id(), message.id);
        return Err(Error::new(ErrorKind::Value, why));
    }
    // Only the last message can be continued. An answer in an earlier one is stored, and starts
    // no turn.
    let is_last = last.as_deref() == Some(&*message.id);
    let part = message.parts.iter_mut().find(|part| part.tool_call_id() == Some(&*call.id));
    let Some(part) = part else { return Ok(Ok(ToolAnswered::ignored())) };
    if !author.is_awaited(part, answer)? {
        return Ok(Ok(ToolAnswered::ignored()));
    }
    call.check(part)?;
    author.check(&engine, None, part, answer)?;
    answer.apply(part);
    let wanted = is_last && (auto_continue || is_to_continue(&engine, agent.id(), &message.id).await?);
    let update = MessageUpdate { message: message_row(&message)?, from: stored.data };
    if wanted && !is_open(&message) {
        // In one transaction: an answer whose turn is missing would never be processed.
        match agent.continue_last_turn().store_with(update.clone()).await {
            Ok(Ok(continued)) => {
                chats.feeds.tell(agent.id(), || ChatEvent::Updated(Arc::new(message)));
                return Ok(Ok(ToolAnswered { applied: true, continued: Some(continued) }));
            }
            Ok(Err(refused)) => return Ok(Err(refused)),
            // A person has written a new message since: the answer is in an earlier one.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let wanted = wanted && is_open(&message);
    if let Err(refused) = engine.store().update_message(agent.id().clone(), update, wanted, engine.now_ms()).await? {
        return Ok(Err(refused));
    }
    chats.feeds.tell(agent.id(), || ChatEvent::Updated(Arc::new(message)));
    Ok(Ok(ToolAnswered { applied: true, continued: None }))
}

/// Writes an answer to the log, while its message is still being written.
async fn answer_under_way<A: ChatAgent>(
    agent: &AgentHandle<A>,
    turn: &Turn,
    call: &str,
    answer: &ToolAnswer,
    chunk: Chunk,
    auto_continue: bool,
) -> Result<ToolAnswered> {
    let waits = |message: &UiMessage| find_call(message, call).is_some_and(|part| answer.answers(part.tool_state()));
    if !waits(&turn.message().await) {
        return Ok(ToolAnswered::ignored());
    }
    let engine = agent.engine()?;
    if auto_continue {
        // Before the answer, which is stored once: others may be the last.
        engine.store().want_continuation(agent.id().clone(), turn.message_id().to_owned()).await?;
    }
    turn.answered(chunk).await?;
    let goes_on = !is_open(&turn.message().await) && is_to_continue(&engine, agent.id(), turn.message_id()).await?;
    let continued = if goes_on { Some(agent.continue_last_turn().await?) } else { None };
    Ok(ToolAnswered { applied: true, continued })
}

/// Whether an earlier answer to a call of this message wants it to be continued.
async fn is_to_continue(engine: &Engine, chat: &AgentId, message: &str) -> Result<bool> {
    Ok(engine.store().continuation_target(chat.clone()).await?.as_deref() == Some(message))
}

/// Fails if the fiber of a running turn is parked: the caller might wait for the turn forever.
async fn will_be_recovered(engine: &Engine, turn: &TurnStatus, call: &str) -> Result<()> {
    if engine.store().turn_fiber(turn.seq()).await? == Some(FiberState::Parked) {
        let why = format!("tool call `{call}` is one of turn `{}`, whose fiber is parked", turn.id());
        return Err(Error::new(ErrorKind::Busy, why));
    }
    Ok(())
}

fn no_call(agent: &AgentId, call: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("agent `{agent}` has no message with a tool call `{call}`"))
}

fn find_call<'a>(message: &'a UiMessage, call: &str) -> Option<&'a Part> {
    message.parts.iter().find(|part| part.tool_call_id() == Some(call))
}

/// Whether a call of the last step of a message is open.
fn is_open(message: &UiMessage) -> bool {
    message.parts.iter().any(|part| part.interaction().is_some())
}
