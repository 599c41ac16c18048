//! The kind of interaction that a tool call waits for.
use forever_runtime::__layers::Engine;
use forever_runtime::store::InteractionKind;
use serde_json::Value;

use crate::agent_loop::AgentLoop;
use crate::message::Part;

/// The kind of interaction that a tool call waits for, if any.
///
/// A tool that runs here is not the client's: a call of it without a result was cut off when its
/// turn was cancelled or failed.
pub(super) fn interaction(engine: &Engine, part: &Part) -> Option<InteractionKind> {
    let kind = part.interaction()?;
    let runs_here = || {
        let name = part.tool_name().unwrap_or_default();
        part.get("providerExecuted") == Some(&Value::Bool(true)) || engine.resource::<AgentLoop>().is_some_and(|l| l.has_tool(name))
    };
    if kind == InteractionKind::ClientTool && runs_here() { None } else { Some(kind) }
}
