//! One model call: made anew, continued after an interruption, or found complete in the log.
use std::time::Duration;

use forever_runtime::__layers::race;
use forever_runtime::BoxError;
use forever_runtime::fiber::FiberContext;
use forever_runtime::ops::Op;
use futures_util::StreamExt;

use crate::agent_loop::compaction::Summary;
use crate::agent_loop::loop_fiber::{AgentLoop, Call, Said, failed, no_such_tool, no_tool, turn_of};
use crate::agent_loop::splice::{Kept, Splice};
use crate::message::{Chunk, INTERRUPTED, Part, Repair, Role, ToolState, UiMessage, repair};
use crate::model::{Finished, Interrupted, ModelErrorKind, ModelEvent, ModelRequest};
use crate::turn::{Step, Turn};
use crate::user_code::{called, caught};

impl AgentLoop {
    /// Calls the model.
    pub(super) async fn ask(&self, ctx: &FiberContext, number: u32, summary: Option<&Summary>, op: &Op) -> Result<Said, BoxError> {
        match self.ask_in(turn_of(ctx)?, number, summary, op).await {
            Ok(said) => Ok(said),
            Err(error) => failed(ctx, error).await,
        }
    }

    async fn ask_in(&self, turn: &Turn, number: u32, summary: Option<&Summary>, op: &Op) -> Result<Said, BoxError> {
        let step = turn.step(number).await;
        let mut length = None;
        if !step.finished {
            let kept: Option<Kept> = op.stashed()?;
            if kept.is_none() {
                // No other code has the parts.
                settle_half_calls(turn, &step).await?;
            }
            let left = left_of(&step, kept.as_ref());
            // A step that has reached tool calls counts as whole, unless the provider has all of
            // it: no model continues after its calls.
            if kept.is_some() || !left.iter().any(Part::is_tool) {
                match self.stream(turn, number, left, kept, summary, op).await {
                    Ok(finished) => length = self.length(finished.input_tokens, &conversation(turn, &step, summary)),
                    Err(error) => match error.downcast_ref::<crate::model::ModelError>() {
                        Some(why) if why.kind() == ModelErrorKind::ContextOverflow && self.compaction.is_some() => {
                            return Ok(Said { calls: Vec::new(), length: None, too_long: true, is_refused: false });
                        }
                        _ => return Err(error),
                    },
                }
            }
            settle_half_calls(turn, &turn.step(number).await).await?;
            turn.put(Chunk::finish_step()).await?;
            turn.flush().await?;
        }
        let here = |part: &Part| {
            part.get("providerExecuted") != Some(&true.into())
                && !part.tool_name().is_some_and(|name| turn.client_tools().iter().any(|tool| tool.name == name))
        };
        let parts = turn.step(number).await.parts;
        let asked = parts.iter().filter(|part| part.tool_state() == Some(ToolState::InputAvailable) && here(part));
        let asked = asked.filter_map(|part| Call::of(part, None));
        let (calls, refused): (Vec<Call>, Vec<Call>) = asked.partition(|call| self.has_tool(&call.tool));
        // Without an operation: one that a crash interrupts would be in doubt.
        for call in &refused {
            turn.put(no_such_tool(call)).await?;
        }
        if !refused.is_empty() {
            turn.flush().await?;
        }
        // A run that was cut off after that has left the errors.
        let is_error = |part: &Part| part.tool_name().is_some_and(|name| part.get("errorText") == Some(&no_tool(name).into()));
        let is_refused = !refused.is_empty() || parts.iter().any(|part| here(part) && is_error(part));
        Ok(Said { calls, length, too_long: false, is_refused })
    }

    /// Writes the model's answer to its end.
    async fn stream(
        &self,
        turn: &Turn,
        number: u32,
        left: Vec<Part>,
        kept: Option<Kept>,
        summary: Option<&Summary>,
        op: &Op,
    ) -> Result<Finished, BoxError> {
        let mut step = turn.step(number).await;
        if !step.started {
            turn.put(Chunk::start_step()).await?;
            step = turn.step(number).await;
        }
        // Until the provider names another one, this is the answer that it has stored, whose parts
        // begin here.
        let mut same_answer = kept.as_ref().map(|kept| step.before.len() + 1 + kept.parts);
        let cut_off = kept.is_some() || !left.is_empty();
        let request = ModelRequest {
            system: self.system.clone(),
            messages: conversation(turn, &step, summary),
            tools: self.tools.specs().chain(turn.client_tools().iter().cloned()).collect(),
            interrupted: cut_off.then_some(Interrupted { response: kept.map(|kept| kept.response), parts: left }),
        };
        let mut fitting: Option<Splice> = None;
        let mut answer = called(|| self.model.answer(request))?;
        let _listening = turn.listens();
        loop {
            let Some(event) = race(caught(answer.next()), turn.closed()).await.transpose()? else {
                return Err(crate::writer::over().into());
            };
            turn.expects_silence(Duration::ZERO);
            match event {
                Some(Ok(ModelEvent::Response(id))) => {
                    same_answer = None;
                    op.stash(&Kept::behind(&step.parts, id)).await?;
                }
                Some(Ok(ModelEvent::Chunk(chunk))) => {
                    let fitting = if let Some(fitting) = &mut fitting {
                        fitting
                    } else {
                        let behind = if cut_off { Some(turn.continuation().await) } else { None };
                        fitting.insert(Splice::new(behind, same_answer, &step))
                    };
                    for chunk in fitting.next(chunk) {
                        turn.put(chunk).await?;
                    }
                }
                Some(Ok(ModelEvent::Waiting(silence))) => turn.expects_silence(silence),
                Some(Ok(ModelEvent::Finished(finished))) => return Ok(finished),
                Some(Err(error)) => {
                    // The answer so far is stored, and the next attempt continues after it.
                    turn.flush().await?;
                    return Err(error.into());
                }
                None => return Err("the model's answer ended without `Finished`".into()),
            }
        }
    }
}

/// Input for the model: the conversation or its summary, and the parts of the answer before this
/// step.
pub(super) fn conversation(turn: &Turn, step: &Step, summary: Option<&Summary>) -> Vec<UiMessage> {
    let (mut messages, there) = match summary {
        Some(summary) => (summary.messages.clone(), summary.parts),
        None => (turn.messages().to_vec(), 0),
    };
    let since = step.before.get(there..).unwrap_or_default();
    if !since.is_empty() {
        messages.push(UiMessage { parts: since.to_vec(), ..UiMessage::new(turn.message_id(), Role::Assistant) });
    }
    repair(messages, |_| Repair::Interrupted).messages
}

/// Settles the tool calls of a step whose input was cut off.
async fn settle_half_calls(turn: &Turn, step: &Step) -> forever_runtime::Result<()> {
    let half = step.parts.iter().filter(|part| part.tool_state() == Some(ToolState::InputStreaming));
    for call in half.filter_map(Part::tool_call_id) {
        turn.put(Chunk::tool_output_error(call, INTERRUPTED)).await?;
    }
    Ok(())
}

/// The parts of a step that was cut off: its text, and the calls that still have to be made.
fn left_of(step: &Step, kept: Option<&Kept>) -> Vec<Part> {
    let parts = kept.map_or_else(|| step.parts.clone(), |kept| kept.cut(step.parts.clone()));
    let left = |part: &Part| part.tool_call_id().is_none() || part.tool_state() == Some(ToolState::InputAvailable);
    parts.into_iter().filter(left).collect()
}
