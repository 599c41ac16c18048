//! Conversations that are made shorter before the model is asked: at the bound and not below it, as often as is allowed, and once wherever the process
//! ends.

use forever::Forever;
use forever::chat::message::{Chunk, Part, UiMessage};
use forever::chat::model::{FinishReason, Finished, ModelError, ModelErrorKind, ModelEvent, ModelRequest};
use forever::chat::{AgentLoop, Tool};
use forever::prelude::*;
use forever::testing::{World, crash_everywhere};
use forever_testkit::models::{ScriptedModel, call, text};
use forever_testkit::notes::Notes;
use forever_testkit::sizes;
use serde_json::{Value, json};

use crate::agent_loop::{answered, builder, plain};

type Events = Vec<Result<ModelEvent, ModelError>>;

/// A model whose answers this makes of the results that it has read; notes what it reads.
fn model(seen: &Notes, says: impl Fn(usize) -> Events + Send + Sync + 'static) -> ScriptedModel {
    let reads = seen.clone();
    let says = move |results: usize, request: &ModelRequest| {
        reads.note(format!("reads {}", request.messages.iter().map(UiMessage::text).collect::<Vec<_>>().join(", ")));
        says(results)
    };
    ScriptedModel::new(says)
}

fn ends(reason: FinishReason, tokens: u64) -> Events {
    let mut finished = Finished::because(reason);
    finished.input_tokens = Some(tokens);
    vec![Ok(ModelEvent::Finished(finished))]
}

/// Each byte of text and of what tools have given as text is a token.
fn bytes(messages: &[UiMessage]) -> u64 {
    let output = |part: &Part| part.get("output").and_then(Value::as_str).map_or(0, str::len);
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts.map(|part| part.as_text().map_or(0, str::len) + output(part)).sum::<usize>() as u64
}

/// A loop that may read 100 tokens; whatever is made shorter is `s` and how many messages it was made of.
fn looped(model: ScriptedModel, seen: &Notes) -> AgentLoop {
    let seen = seen.clone();
    AgentLoop::new(model).max_input_tokens(100).count_tokens(bytes).compact(move |messages| {
        seen.note("compacts");
        async move { Ok(vec![UiMessage::user("s", format!("s{}", messages.len()))]) }
    })
}

fn gives(text: impl Into<String>) -> Tool {
    let text: String = text.into();
    Tool::new("look", move |_, _| {
        let text = text.clone();
        async move { Ok(json!(text)) }
    })
}

#[tokio::test(start_paused = true)]
async fn a_conversation_of_earlier_turns_is_made_shorter_at_the_bound_and_not_below() {
    for (length, shorter) in [(87, false), (88, true)] {
        let seen = Notes::default();
        let model = model(&seen, |_| [text(&["Short."]), ends(FinishReason::Stop, 1)].concat());
        let forever = plain(looped(model, &seen)).open().await.unwrap();
        let before = "x".repeat(length);
        forever.agent::<crate::agent_loop::Assistant>("a").set_messages([UiMessage::user("x", &before)]).await.unwrap();
        // The question has two more.
        let (agent, _) = answered(&forever).await;
        let reads = if shorter { "reads s2".to_owned() } else { format!("reads {before}, go") };
        assert_eq!(seen.all().last(), Some(&reads), "{length}");
        assert_eq!(seen.count("compacts"), usize::from(shorter));
        assert_eq!(agent.messages().await.unwrap()[0].text(), before, "what is stored stays as it is");
    }
}

#[tokio::test(start_paused = true)]
async fn what_tools_have_given_since_is_added_to_what_the_provider_has_counted() {
    for (length, shorter) in [(39, false), (40, true)] {
        let seen = Notes::default();
        let asked = Notes::default();
        let model = model(&seen, move |_| {
            asked.note("asked");
            match asked.count("asked") {
                1 => [call("c", "look", json!({})), ends(FinishReason::ToolCalls, 50)].concat(),
                _ => [text(&["Short."]), ends(FinishReason::Stop, 1)].concat(),
            }
        });
        let forever = plain(looped(model, &seen).tool(gives("x".repeat(length)))).open().await.unwrap();
        assert_eq!(answered(&forever).await.1.text(), "Short.");
        assert_eq!(seen.count("compacts"), usize::from(shorter), "{length}");
        assert_eq!(seen.all().last().unwrap(), if shorter { "reads s2" } else { "reads go, " });
    }
}

/// Looks four times, each time with a conversation that the provider says is nearly too long.
async fn looks_four_times(limit: impl FnOnce(AgentLoop) -> AgentLoop) -> Notes {
    let seen = Notes::default();
    let asked = Notes::default();
    let model = model(&seen, move |_| {
        asked.note("asked");
        match asked.count("asked") {
            n @ 1..=4 => [call(&format!("c{n}"), "look", json!({})), ends(FinishReason::ToolCalls, 95)].concat(),
            _ => [text(&["Done."]), ends(FinishReason::Stop, 1)].concat(),
        }
    });
    let forever = plain(limit(looped(model, &seen).tool(gives("")))).open().await.unwrap();
    assert_eq!(answered(&forever).await.1.text(), "Done.");
    seen
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_made_shorter_as_often_as_is_allowed() {
    assert_eq!(looks_four_times(|looped| looped).await.count("compacts"), 1);
    assert_eq!(looks_four_times(|looped| looped.max_compactions(3)).await.count("compacts"), 3);
    assert_eq!(looks_four_times(|looped| looped.max_compactions(0)).await.count("compacts"), 0);
    assert_eq!(looks_four_times(|looped| looped.max_input_tokens(1000)).await.count("compacts"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_answered_also_when_the_conversation_was_made_shorter_before() {
    let seen = Notes::default();
    let asked = Notes::default();
    let model = model(&seen, move |_| {
        asked.note("asked");
        match asked.count("asked") {
            1 => [call("c", "look", json!({})), ends(FinishReason::ToolCalls, 95)].concat(),
            2 => vec![Err(ModelError::new(ModelErrorKind::ContextOverflow, "too long"))],
            _ => [text(&["Done."]), ends(FinishReason::Stop, 1)].concat(),
        }
    });
    let forever = plain(looped(model, &seen).tool(gives(""))).open().await.unwrap();
    assert_eq!(answered(&forever).await.1.text(), "Done.");
    assert_eq!(seen.count("compacts"), 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_count_of_the_user_four_bytes_are_a_token() {
    for (length, shorter) in [(357, false), (358, true)] {
        let seen = Notes::default();
        let model = model(&seen, |_| [text(&["Short."]), ends(FinishReason::Stop, 1)].concat());
        let compacts = seen.clone();
        let looped = AgentLoop::new(model).max_input_tokens(100).compact(move |messages| {
            compacts.note("compacts");
            async move { Ok(messages) }
        });
        let forever = plain(looped).open().await.unwrap();
        let before = UiMessage::user("x", "x".repeat(length));
        forever.agent::<crate::agent_loop::Assistant>("a").set_messages([before]).await.unwrap();
        answered(&forever).await;
        assert_eq!(seen.count("compacts"), usize::from(shorter), "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_made_shorter_once_wherever_the_process_ends() {
    let survived = crash_everywhere(
        |world: &World| {
            let says = |_: usize, request: &ModelRequest| {
                let read = request.messages.iter().map(UiMessage::text).collect::<Vec<_>>().join(", ");
                let looked = request.messages.iter().flat_map(|message| &message.parts).any(Part::is_tool);
                if looked || read.starts_with('s') {
                    // What was made shorter twice would say so.
                    return [text(&["I have read: ", &read]), ends(FinishReason::Stop, 1)].concat();
                }
                let call = Chunk::tool_input_available("c", "look", json!({}));
                [vec![Ok(ModelEvent::Chunk(call))], ends(FinishReason::ToolCalls, 2)].concat()
            };
            let model = ScriptedModel::new(says).noting(&world.shared());
            let looped = AgentLoop::new(model).max_input_tokens(100).count_tokens(bytes).compact(|messages| async move {
                let all: Vec<String> = messages.iter().map(UiMessage::text).collect();
                Ok(vec![UiMessage::user("s", format!("s({}; {})", all.join(", "), messages.len()))])
            });
            builder(world, looped.tool(gives("x".repeat(90)).on_unknown(forever::chat::UnknownCall::Retry)))
        },
        async |forever: Forever| answered(&forever).await.1.text(),
    )
    .crash_randomly(1, 40)
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert_eq!(survived.outcome, "I have read: s(go, ; 2)");
}
