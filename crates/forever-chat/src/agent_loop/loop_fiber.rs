//! The agent loop: alternates model calls and tool calls.
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use forever_macros::fiber;
use forever_runtime::__layers::{ContextOfLayer, Exit};
use forever_runtime::fiber::{FiberContext, Retry};
use forever_runtime::ops::{OnUnknown, Op};
use forever_runtime::store::BoxFuture;
use forever_runtime::{BoxError, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent_loop::compaction::{Length, Summary};
use crate::agent_loop::tool::{Tool, Tools, UnknownCall};
use crate::message::{Chunk, MAX_NESTING, Part, ToolState, UiMessage, nests_deeper};
use crate::model::{ChatModel, ModelError};
use crate::turn::Turn;

/// Model with its tools, and the limits of their loop; run by [`Turn::run_agent_loop`].
///
/// The builder is given it by [`ChatBuilder::agent_loop`](crate::ChatBuilder::agent_loop). A result
/// of a tool is stored before the model gets it. After a crash the loop resumes in the middle: an
/// answer that was cut off is continued, and a tool call that has a result is not repeated. A call
/// without one is in doubt, and [`Tool::on_unknown`] decides.
///
/// ```
/// use forever::chat::model::ChatModel;
/// use forever::chat::{AgentLoop, Tool};
/// use serde_json::{Value, json};
///
/// fn travel_agent(model: impl ChatModel) -> AgentLoop {
///     let weather = Tool::new("weather", |input: Value, _op| async move {
///         Ok(json!({ "city": input["city"].clone(), "degrees": 21 }))
///     });
///     AgentLoop::new(model)
///         .system("You answer in one sentence.")
///         .tool(weather.description("The weather of a city now."))
///         .max_steps(10)
/// }
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

    /// Sets the system prompt.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system = Some(text.into());
        self
    }

    /// Adds a tool, replacing one of the same name.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.add(tool);
        self
    }

    /// Sets the maximum number of model calls in one turn. Defaults to 50. Beyond it the turn ends
    /// in an error.
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = steps;
        self
    }

    /// Sets the maximum number of tools of one answer that run concurrently. Defaults to 8. With 1
    /// they run sequentially, in the order of the calls.
    pub fn parallel_tools(mut self, limit: usize) -> Self {
        self.parallel_tools = limit;
        self
    }

    /// Sets how often the model is called again after a transient error. Defaults to 5, with
    /// growing delays.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets a function that compacts a conversation that is too long for the model. Its result is
    /// sent to the model in place of the messages; the messages themselves stay unchanged. It is
    /// called when the model has refused a request as too long, once per answer, and in advance
    /// with [`max_input_tokens`](Self::max_input_tokens). If the process dies while it runs, it is
    /// called again.
    pub fn compact<F, B>(mut self, compact: F) -> Self
    where
        F: Fn(Vec<UiMessage>) -> B + Send + Sync + 'static,
        B: Future<Output = Result<Vec<UiMessage>, BoxError>> + Send + 'static,
    {
        self.compaction = Some(Arc::new(move |messages| Box::pin(compact(messages))));
        self
    }

    /// Sets how many tokens the model can read. At nine tenths of it the conversation is compacted
    /// before the model is called. The length is the provider's count of the last request, plus
    /// everything since as counted by [`count_tokens`](Self::count_tokens).
    pub fn max_input_tokens(mut self, tokens: u64) -> Self {
        self.max_input_tokens = Some(tokens);
        self
    }

    /// Sets the maximum number of compactions in advance in one turn. Defaults to one.
    pub fn max_compactions(mut self, compactions: u32) -> Self {
        self.max_compactions = compactions;
        self
    }

    /// Sets the function that counts or estimates the tokens of messages. Defaults to one per four
    /// bytes of text, and none for files.
    pub fn count_tokens(mut self, count: impl Fn(&[UiMessage]) -> u64 + Send + Sync + 'static) -> Self {
        self.count = Some(Arc::new(count));
        self
    }

    /// Whether a tool of this name runs here.
    pub(crate) fn has_tool(&self, name: &str) -> bool {
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

/// Result of a model call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Said {
    /// The tool calls that it makes.
    pub(super) calls: Vec<Call>,
    /// Length of the conversation, if known.
    pub(super) length: Option<Length>,
    /// Whether the conversation was too long for the model.
    pub(super) too_long: bool,
    /// Whether the model has called tools that do not exist. It is called again, with their errors.
    pub(super) is_refused: bool,
}

/// A tool call of the model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) input: Value,
    /// Whether a person was asked for approval, and the answer.
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

/// Answers the turn that runs it with a model and its tools. Returns the number of model calls.
#[fiber(name = "forever.agent_loop", crate = forever_runtime, max_recoveries = 1000)]
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
            return Err(format!("the model was called {steps} times and did not finish").into());
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
                return Err("the conversation is too long for the model, even after compaction".into());
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
        if said.calls.is_empty() && !said.is_refused {
            return Ok(steps);
        }
        calls = said.calls;
    }
}

impl AgentLoop {
    /// The calls for which people were asked for approval, with their answers.
    async fn approved(&self, ctx: &FiberContext) -> Result<Vec<Call>, BoxError> {
        let turn = turn_of(ctx)?;
        let said = |part: &Part| {
            let answered = part.tool_state() == Some(ToolState::ApprovalResponded);
            let approved = part.get("approval").and_then(|approval| approval.get("approved")).and_then(Value::as_bool);
            if answered { Call::of(part, Some(approved.unwrap_or(false))) } else { None }
        };
        Ok(turn.message().await.parts.iter().filter_map(said).collect())
    }

    /// Whether a call before this step waits for a person or their client.
    async fn waits_for_a_person(&self, ctx: &FiberContext, step: u32) -> Result<bool, BoxError> {
        let parts = turn_of(ctx)?.step(step).await.before;
        Ok(parts.iter().any(|part| part.interaction().is_some()))
    }

    /// Makes one tool call, and writes its result.
    async fn call(&self, ctx: &FiberContext, call: &Call, op: &Op) -> Result<(), BoxError> {
        let chunk = match self.tools.get(&call.tool) {
            _ if call.approved == Some(false) => Chunk::tool_output_denied(&call.id),
            Some(tool) if call.approved.is_none() && tool.asks(&call.input) => Chunk::tool_approval_request(&call.id, op.id()),
            Some(tool) => match tool.call(call.input.clone(), op.clone()).await {
                Ok(output) if nests_deeper(&output, MAX_NESTING) => {
                    Chunk::tool_output_error(&call.id, format!("the result is nested deeper than {MAX_NESTING} levels"))
                }
                Ok(output) => Chunk::tool_output_available(&call.id, output),
                // The error may come from the end of the process: the tool is called again.
                Err(why) if ctx.is_interrupted() => return Err(why.into()),
                Err(why) => Chunk::tool_output_error(&call.id, why),
            },
            // New code does not have it, and this is its first run.
            None => no_such_tool(call),
        };
        self.write(ctx, chunk).await
    }

    /// Resolves a call that was started and whose outcome is unknown.
    fn unknown<'a>(&'a self, ctx: &'a FiberContext, call: &'a Call) -> OnUnknown<'a, (), BoxError> {
        OnUnknown::check(move |_| async move {
            let message = turn_of(ctx)?.message().await;
            let part = message.parts.iter().find(|part| part.tool_call_id() == Some(call.id.as_str()));
            let waits = |state| matches!(state, ToolState::InputAvailable | ToolState::ApprovalResponded);
            if part.and_then(Part::tool_state).is_some_and(|state| !waits(state)) {
                // The result is in the log.
                return Ok::<_, BoxError>(Some(()));
            }
            if call.approved == Some(false) {
                return Ok(None);
            }
            // An older version of the program had it, and what that has done is unknown here.
            let tool = self.tools.get(&call.tool).ok_or_else(|| format!("this program has no tool `{}`", call.tool))?;
            match tool.on_unknown {
                UnknownCall::Report => {
                    let why = "The process ended while the tool ran: it may have been carried out. Check before it is called again.";
                    self.write(ctx, Chunk::tool_output_error(&call.id, why)).await?;
                    Ok(Some(()))
                }
                UnknownCall::Retry => Ok(None),
            }
        })
    }

    /// Writes a chunk to the turn; it is stored when this returns.
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

/// The result of a call of a tool that does not exist.
pub(super) fn no_such_tool(call: &Call) -> Chunk {
    Chunk::tool_output_error(&call.id, no_tool(&call.tool))
}

/// The error of a call of a tool that does not exist.
pub(super) fn no_tool(name: &str) -> String {
    format!("there is no tool `{name}`")
}

/// The turn that is answered, in the attempt that runs the loop.
pub(super) fn turn_of(ctx: &FiberContext) -> Result<&Turn, BoxError> {
    ctx.host().ok_or_else(|| "the loop of an agent is run by a turn".into())
}

/// Handles an error of the loop. One of the store, or of a runtime that closes, interrupts the
/// fiber; any other is the fiber's own. Once the attempt is over, errors are ignored: the loop
/// continues in the next attempt.
pub(super) async fn failed<T: Send>(ctx: &FiberContext, error: BoxError) -> Result<T, BoxError> {
    if !turn_of(ctx)?.is_open() {
        return Ok(ctx.halt(Exit::Again(Arc::new(()))).await);
    }
    match error.downcast::<Error>() {
        Ok(error) if error.is_of_store() => Ok(ctx.halt(Exit::interrupted(*error)).await),
        Ok(error) => Err(error),
        Err(error) => Err(error),
    }
}
