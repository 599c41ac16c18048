//! The loop of model and tools.
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use forever_macros::fiber;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::BoxError;
use crate::chat::agent_loop::compaction::{Length, Summary};
use crate::chat::agent_loop::tool::Tools;
use crate::chat::agent_loop::tool::{Tool, UnknownCall};
use crate::chat::message::{Chunk, MAX_NESTING, Part, ToolState, UiMessage, nests_deeper};
use crate::chat::model::{ChatModel, ModelError};
use crate::chat::turn::Turn;
use crate::error::Error;
use crate::frame::context::FiberContext;
use crate::frame::retry::Retry;
use crate::future::BoxFuture;
use crate::ops::on_unknown::OnUnknown;
use crate::ops::op::Op;
use crate::runtime::exit::Exit;

/// A model with tools: a resource, for [`Turn::run_agent_loop`].
///
/// ```ignore
/// let looped = AgentLoop::new(model)
///     .system("You answer in one sentence.")
///     .tool(Tool::new("weather", |input, _| async move { look_up(&input["city"]).await }));
/// let forever = Forever::builder().sqlite("chat.db").agent_loop(looped).chat_agent(|_| Assistant).open().await?;
/// // In `on_chat_message`:
/// turn.run_agent_loop().await
/// ```
#[must_use]
pub struct AgentLoop {
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) system: Option<String>,
    pub(super) tools: Tools,
    pub(super) max_steps: u32,
    pub(super) parallel_tools: usize,
    pub(super) retries: u32,
    pub(super) max_input_tokens: Option<u64>,
    pub(super) max_compactions: u32,
    pub(super) count: Option<Arc<Count>>,
    pub(super) compaction: Option<Arc<Compact>>,
}

type Count = dyn Fn(&[UiMessage]) -> u64 + Send + Sync;
type Compact = dyn Fn(Vec<UiMessage>) -> BoxFuture<'static, Result<Vec<UiMessage>, BoxError>> + Send + Sync;

impl AgentLoop {
    /// A loop around a model, without tools.
    pub fn new(model: impl ChatModel) -> Self {
        AgentLoop {
            model: Arc::new(model),
            system: None,
            tools: Tools::default(),
            max_steps: 50,
            parallel_tools: 8,
            retries: 5,
            max_input_tokens: None,
            max_compactions: 1,
            count: None,
            compaction: None,
        }
    }

    /// What the model is told beforehand.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system = Some(text.into());
        self
    }

    /// Adds a tool; a second one of the same name takes its place.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.add(tool);
        self
    }

    /// How often the model is asked in one turn at most; 50 unless this is called. Then the turn ends in an error.
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = steps;
        self
    }

    /// How many tools of one answer run side by side at most; 8 unless this is called. With 1 they run one after the other, in the order of the
    /// calls.
    pub fn parallel_tools(mut self, limit: usize) -> Self {
        self.parallel_tools = limit;
        self
    }

    /// How often the model is asked again after an error that may pass; 5 times unless this is called, later and later.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Makes a conversation shorter that has become too long for the model: what it gives is sent to the model in place of the messages, and the
    /// messages stay as they are. It is called when the model has refused a request as too long, once for each answer, and beforehand with
    /// [`max_input_tokens`](Self::max_input_tokens). When the process dies while it runs, it is called again.
    pub fn compact<F, B>(mut self, compact: F) -> Self
    where
        F: Fn(Vec<UiMessage>) -> B + Send + Sync + 'static,
        B: Future<Output = Result<Vec<UiMessage>, BoxError>> + Send + 'static,
    {
        self.compaction = Some(Arc::new(move |messages| Box::pin(compact(messages))));
        self
    }

    /// How much the model can read, in tokens: with nine tenths of that the conversation is made shorter before the model is asked. What the provider
    /// says that it has read counts, and what has come since is added as [`count_tokens`](Self::count_tokens) counts it.
    pub fn max_input_tokens(mut self, tokens: u64) -> Self {
        self.max_input_tokens = Some(tokens);
        self
    }

    /// How often a conversation is made shorter beforehand in one turn at most; once unless this is called.
    pub fn max_compactions(mut self, compactions: u32) -> Self {
        self.max_compactions = compactions;
        self
    }

    /// How many tokens messages have, or about how many; one for every four bytes of text unless this is called, and none for files.
    pub fn count_tokens(mut self, count: impl Fn(&[UiMessage]) -> u64 + Send + Sync + 'static) -> Self {
        self.count = Some(Arc::new(count));
        self
    }

    /// Whether a tool of this name runs here.
    pub(in crate::chat) fn has_tool(&self, name: &str) -> bool {
        self.tools.get(name).is_some()
    }

    fn retry(&self) -> Retry<BoxError> {
        Retry::times(self.retries).when(|error: &BoxError| error.downcast_ref::<ModelError>().is_some_and(|e| e.kind().is_transient()))
    }
}

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop").field("tools", &self.tools).field("max_steps", &self.max_steps).finish_non_exhaustive()
    }
}

/// What came of asking the model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Said {
    /// What it wants to have done.
    pub(super) calls: Vec<Call>,
    /// How long the conversation was, if it says.
    pub(super) length: Option<Length>,
    /// Whether it could not read so much.
    pub(super) too_long: bool,
}

/// Something that the model wants to have done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) input: Value,
    /// Whether a person was asked, and what they said.
    pub(super) approved: Option<bool>,
}

impl Call {
    pub(super) fn of(part: &Part, approved: Option<bool>) -> Option<Self> {
        Some(Call {
            id: part.tool_call_id()?.to_owned(),
            tool: part.tool_name()?.to_owned(),
            input: part.get("input").cloned().unwrap_or_default(),
            approved,
        })
    }
}

/// Answers the turn that runs it with a model and its tools. Gives how often the model was asked.
#[fiber(name = "forever.agent_loop", crate = crate, max_recoveries = 1000)]
pub(crate) async fn ask_and_call(ctx: &FiberContext, looped: Res<AgentLoop>) -> Result<u32, BoxError> {
    let mut summary: Option<Summary> = None;
    let mut length: Option<Length> = None;
    let mut compactions = 0;
    let mut refused = false;
    let mut steps = 0;
    let mut calls = step!("answers of people", looped.approved(ctx).await?);
    loop {
        if !calls.is_empty() {
            steps!(
                "tools",
                for call in &calls,
                limit = looped.parallel_tools,
                effect,
                key = &call.id,
                on_unknown = looped.unknown(ctx, call),
                |op| looped.call(ctx, call, op).await?
            );
        }
        if looped.waits_for_a_person(ctx, steps).await? {
            return Ok(steps);
        }
        if steps == looped.max_steps {
            return Err(format!("the model was asked {steps} times and still wants to go on").into());
        }
        let may_compact = !refused && compactions < looped.max_compactions;
        if may_compact && looped.is_nearly_full(ctx, steps, summary.as_ref(), length.as_ref()).await? {
            let shorter = step!("compact beforehand", looped.compacted(ctx, steps, summary.as_ref()).await?);
            summary = Some(shorter);
            compactions += 1;
        }
        let said = step!("model", retry = looped.retry(), |op| looped.ask(ctx, steps, summary.as_ref(), op).await?);
        if said.too_long {
            if refused {
                return Err("the conversation is too long for the model, also after it was made shorter".into());
            }
            let shorter = step!("compact", looped.compacted(ctx, steps, summary.as_ref()).await?);
            summary = Some(shorter);
            refused = true;
            calls = Vec::new();
            continue;
        }
        refused = false;
        length = said.length;
        steps += 1;
        if said.calls.is_empty() {
            return Ok(steps);
        }
        calls = said.calls;
    }
}

impl AgentLoop {
    /// The calls that people were asked about, with their answers.
    async fn approved(&self, ctx: &FiberContext) -> Result<Vec<Call>, BoxError> {
        let turn = turn_of(ctx)?;
        let said = |part: &Part| {
            let answered = part.tool_state() == Some(ToolState::ApprovalResponded);
            let approved = part.get("approval").and_then(|approval| approval.get("approved")).and_then(Value::as_bool);
            if answered { Call::of(part, Some(approved.unwrap_or(false))) } else { None }
        };
        Ok(turn.message().await.parts.iter().filter_map(said).collect())
    }

    /// Whether something is asked before this step that only a person or their client can answer.
    async fn waits_for_a_person(&self, ctx: &FiberContext, step: u32) -> Result<bool, BoxError> {
        let parts = turn_of(ctx)?.step(step).await.before;
        Ok(parts.iter().any(|part| part.interaction().is_some()))
    }

    /// Makes one call, and writes what came of it.
    async fn call(&self, ctx: &FiberContext, call: &Call, op: &Op) -> Result<(), BoxError> {
        let chunk = match self.tools.get(&call.tool) {
            _ if call.approved == Some(false) => Chunk::tool_output_denied(&call.id),
            Some(tool) if call.approved.is_none() && tool.asks(&call.input) => Chunk::tool_approval_request(&call.id, op.id()),
            Some(tool) => match tool.call(call.input.clone(), op.clone()).await {
                Ok(output) if nests_deeper(&output, MAX_NESTING) => {
                    Chunk::tool_output_error(&call.id, format!("the result is nested deeper than {MAX_NESTING} levels"))
                }
                Ok(output) => Chunk::tool_output_available(&call.id, output),
                Err(why) => Chunk::tool_output_error(&call.id, why),
            },
            None => Chunk::tool_output_error(&call.id, format!("there is no tool `{}`", call.tool)),
        };
        self.write(ctx, chunk).await
    }

    /// What becomes of a call that was begun and of which nobody knows how it ended.
    fn unknown<'a>(&'a self, ctx: &'a FiberContext, call: &'a Call) -> OnUnknown<'a, (), BoxError> {
        OnUnknown::check(move |_| async move {
            let message = turn_of(ctx)?.message().await;
            let part = message.parts.iter().find(|part| part.tool_call_id() == Some(call.id.as_str()));
            let waits = |state| matches!(state, ToolState::InputAvailable | ToolState::ApprovalResponded);
            if part.and_then(Part::tool_state).is_some_and(|state| !waits(state)) {
                // What came of it is in the log.
                return Ok::<_, BoxError>(Some(()));
            }
            match self.tools.get(&call.tool).map(|tool| tool.on_unknown) {
                Some(UnknownCall::Report) => {
                    let why = "The process ended while the tool ran: it may have been carried out. Check before it is called again.";
                    self.write(ctx, Chunk::tool_output_error(&call.id, why)).await?;
                    Ok(Some(()))
                }
                Some(UnknownCall::Retry) | None => Ok(None),
            }
        })
    }

    /// Writes to the turn; stored when this returns.
    async fn write(&self, ctx: &FiberContext, chunk: Chunk) -> Result<(), BoxError> {
        let turn = turn_of(ctx)?;
        let written = match turn.put(chunk).await {
            Ok(()) => turn.flush().await,
            failed => failed,
        };
        match written {
            Ok(()) => Ok(()),
            Err(error) => failed(ctx, error.into()).await,
        }
    }
}

/// The turn that is answered, in the attempt that runs the loop.
pub(super) fn turn_of(ctx: &FiberContext) -> Result<&Turn, BoxError> {
    ctx.host().ok_or_else(|| "the loop of an agent is run by a turn".into())
}

/// An error of the store, or of a runtime that closes, interrupts the fiber; any other is its own.
/// When the attempt is over none counts: the loop goes on in the next one.
pub(super) async fn failed<T>(ctx: &FiberContext, error: BoxError) -> Result<T, BoxError> {
    if !turn_of(ctx)?.is_open() {
        return Ok(ctx.run().halt(Exit::Again(Arc::new(()))).await);
    }
    match error.downcast::<Error>() {
        Ok(error) if error.is_of_store() => Ok(ctx.run().halt(Exit::interrupted(*error)).await),
        Ok(error) => Err(error),
        Err(error) => Err(error),
    }
}
