//! The layouts of functions that are being called, and the loop of an agent.
use forever::chat::message::{Chunk, Part, ToolState, UiMessage};
use forever::chat::model::{ChatModel, FinishReason, Finished, ModelEvent, ModelRequest, ModelStream};
use forever::chat::{AgentLoop, ChatAgent, Tool, Turn, UnknownCall};
use forever::prelude::*;
use forever::{BoxError, Builder, agent::Agent};
use futures_util::StreamExt;
use futures_util::stream::{iter, once};
use serde_json::json;

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] =
    &[(1, "called: second"), (2, "called: second"), (1, "tool: dig"), (2, "tool: dig"), (1, "tool: sell"), (2, "model: 2 results")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT length(callees) = 32 FROM snapshots JOIN fibers ON fiber = seq WHERE id = 'caller'"),
    (2, "SELECT count(*) = 3 FROM branch_results JOIN fibers ON fiber = seq WHERE id = 'side' AND branch LIKE 'steps[%]'"),
];

#[fiber]
pub(crate) async fn called(desk: Res<Desk>) -> anyhow::Result<usize> {
    let first = step!("first", desk.work("called: first").await?);
    Ok(first + step!("second", desk.work("called: second").await?))
}

#[fiber]
pub(crate) async fn caller(desk: Res<Desk>) -> anyhow::Result<usize> {
    let sum = call!(called())?;
    Ok(sum + step!("end", desk.work("caller: end").await?))
}

/// The agents that are answered by a loop, and what each asks its second tool to do.
pub(crate) const MINERS: [(&str, &str, &str); 2] = [("ann", "digs", "dig"), ("bob", "sells", "sell")];

/// Calls two tools at once, and then says what is left.
struct Foreman(Desk);

impl ChatModel for Foreman {
    fn answer(&self, request: ModelRequest) -> ModelStream {
        let parts = || request.messages.iter().flat_map(|message| &message.parts);
        let results = parts().filter(|part| part.tool_state().is_some_and(ToolState::is_settled)).count();
        let tool = parts().find_map(Part::as_text).unwrap_or_default().to_owned();
        let desk = self.0.clone();
        let says = async move {
            desk.work(&format!("model: {results} results")).await.unwrap();
            let call = |id: &str, tool: &str| Chunk::tool_input_available(id, tool, json!({}));
            let (chunks, why) = match results {
                0 => (
                    vec![
                        Chunk::text_start("t"),
                        Chunk::text_delta("t", "Well. "),
                        Chunk::text_end("t"),
                        call("one", "survey"),
                        call("two", &tool),
                    ],
                    FinishReason::ToolCalls,
                ),
                _ => (vec![Chunk::text_start("u"), Chunk::text_delta("u", "Done."), Chunk::text_end("u")], FinishReason::Stop),
            };
            iter(chunks.into_iter().map(|chunk| Ok(ModelEvent::Chunk(chunk))).chain([Ok(ModelEvent::Finished(Finished::because(why)))]))
        };
        Box::pin(once(Box::pin(says)).flatten())
    }
}

/// Notes that it was asked, and lets the loop answer.
pub(crate) struct Miner {
    desk: Desk,
}

impl Agent for Miner {
    const CLASS: &'static str = "miner";
    type State = ();
}

impl ChatAgent for Miner {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let name = turn.messages().last().map(|message| message.id.replace("ore-", "miner: ")).unwrap_or_default();
        self.desk.work(&name).await?;
        turn.run_agent_loop().await
    }
}

pub(crate) fn registered(builder: Builder, desk: &Desk) -> Builder {
    let tool = |name: &'static str| {
        let desk = desk.clone();
        Tool::new(name, move |_, op| {
            let desk = desk.clone();
            async move {
                desk.work(&format!("tool: {name}")).await?;
                Ok(json!(op.id()))
            }
        })
    };
    // Of `sell` nobody knows, and the model is told so.
    let looped = AgentLoop::new(Foreman(desk.clone())).tool(tool("survey").on_unknown(UnknownCall::Retry)).tool(tool("sell"));
    let looped = looped.tool(tool("dig").on_unknown(UnknownCall::Retry));
    let desk = desk.clone();
    builder.fiber::<caller>().agent_loop(looped).chat_agent(move |_| Miner { desk: desk.clone() })
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(caller()).id("caller").await?;
    for (name, turn, tool) in MINERS {
        forever.agent::<Miner>(name).save_messages([UiMessage::user(format!("ore-{name}"), tool)]).id(turn).await?;
    }
    Ok(())
}
