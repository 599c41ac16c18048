//! Several calls in one answer of the model: made side by side, or one after the other in their order; each once, wherever the process ends.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forever::Forever;
use forever::chat::message::{Chunk, Part, UiMessage};
use forever::chat::model::{FinishReason, ModelEvent, ModelRequest};
use forever::chat::{AgentLoop, Tool, UnknownCall};
use forever::testing::{World, crash_everywhere};
use forever_testkit::models::{ScriptedModel, ends, text};
use forever_testkit::sizes;
use serde_json::json;
use tokio::sync::Barrier;

use crate::agent_loop::{answered, builder, outline, plain};

const TOOLS: [&str; 3] = ["first", "second", "third"];

/// Calls the three tools at once, or those of them that it has not called when it was cut off.
fn model(world: &World) -> ScriptedModel {
    let says = |_: usize, request: &ModelRequest| {
        let there = |tool: &&str| request.messages.iter().flat_map(|message| &message.parts).any(|part| part.tool_name() == Some(tool));
        let missing = TOOLS.into_iter().filter(|tool| !there(tool));
        let call = |tool| Ok(ModelEvent::Chunk(Chunk::tool_input_available(format!("call of {tool}"), tool, json!({}))));
        let calls: Vec<_> = missing.map(call).collect();
        if calls.is_empty() {
            return [text(&["Done."]), ends(FinishReason::Stop)].concat();
        }
        [calls, ends(FinishReason::ToolCalls)].concat()
    };
    ScriptedModel::new(says).noting(&world.shared())
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_answer_are_made_in_their_order_if_told_so_and_each_once_wherever_the_process_ends() {
    let survived = crash_everywhere(
        |world: &World| {
            // An office that takes an id once, and gives out numbers.
            let tool = |name: &'static str| {
                let world = world.clone();
                let run = move |_, op: forever::ops::Op| {
                    let taken: Arc<Mutex<BTreeMap<String, usize>>> = world.shared();
                    let mut taken = taken.lock().unwrap();
                    let next = taken.len();
                    let number = *taken.entry(op.id().to_owned()).or_insert_with(|| {
                        world.effect(name);
                        next
                    });
                    async move { Ok(json!(number)) }
                };
                Tool::new(name, run).on_unknown(UnknownCall::Retry)
            };
            let looped = AgentLoop::new(model(world)).parallel_tools(1);
            builder(world, TOOLS.into_iter().fold(looped, |looped, name| looped.tool(tool(name))))
        },
        async |forever: Forever| {
            let mut outline = outline(&answered(&forever).await.1);
            outline.retain(|part| part != "-");
            outline
        },
    )
    .crash_randomly(1, 60)
    .at_most(sizes::at_most(10))
    // A process that ends between the calls that come makes it two answers.
    .may_go_other_ways()
    .await
    .unwrap();
    let number = |tool: &str, number| format!("tool-{tool} \"output-available\" {number}");
    assert_eq!(survived.outcome, [number("first", 0), number("second", 1), number("third", 2), "Done.".to_owned()]);
}

/// How often each tool has run.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<BTreeMap<&'static str, u32>>>);

/// Of the run that is under way.
static RAN: Mutex<Option<Ran>> = Mutex::new(None);

#[tokio::test(start_paused = true)]
async fn of_calls_that_take_no_notice_of_ids_none_is_made_twice_and_those_behind_an_unknown_one_are_made() {
    let survived = crash_everywhere(
        |world: &World| {
            *RAN.lock().unwrap() = Some(world.shared());
            let tool = |name: &'static str| {
                let ran: Ran = world.shared();
                Tool::new(name, move |_, _| {
                    *ran.0.lock().unwrap().entry(name).or_default() += 1;
                    async { Ok(json!("ran")) }
                })
            };
            builder(world, TOOLS.into_iter().fold(AgentLoop::new(model(world)), |looped, name| looped.tool(tool(name))))
        },
        async |forever: Forever| {
            let message: UiMessage = answered(&forever).await.1;
            let ran = RAN.lock().unwrap().clone().unwrap().0.lock().unwrap().clone();
            let settled: Vec<&Part> = message.parts.iter().filter(|part| part.is_tool()).collect();
            assert_eq!(settled.len(), TOOLS.len(), "{message:?}");
            for (tool, part) in TOOLS.into_iter().zip(settled) {
                let times = ran.get(tool).copied().unwrap_or_default();
                let reported =
                    part.get("errorText").and_then(|why| why.as_str()).is_some_and(|why| why.contains("may have been carried out"));
                assert!(times == 1 || (times == 0 && reported), "{tool} ran {times} times: {message:?}");
                assert!(reported || part.get("output") == Some(&json!("ran")), "{message:?}");
            }
            message.text()
        },
    )
    .crash_randomly(1, 60)
    .at_most(sizes::at_most(10))
    .may_go_other_ways()
    .await
    .unwrap();
    assert_eq!(survived.outcome, "Done.");
}

/// Tools that end when so many of them run at once; how many ran at once at most.
async fn at_once(parallel: Option<usize>, meet: usize) -> usize {
    let world = World::default();
    let (now, most, barrier) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(meet)));
    let tool = |name: &'static str| {
        let (now, most, barrier) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&barrier));
        Tool::new(name, move |_, _| {
            let (now, most, barrier) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&barrier));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                barrier.wait().await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(json!(name))
            }
        })
    };
    let looped = TOOLS.into_iter().fold(AgentLoop::new(model(&world)), |looped, name| looped.tool(tool(name)));
    let looped = match parallel {
        Some(limit) => looped.parallel_tools(limit),
        None => looped,
    };
    let forever = plain(looped).open().await.unwrap();
    let mut outline = outline(&answered(&forever).await.1);
    outline.retain(|part| part != "-");
    let given = |tool: &str| format!("tool-{tool} \"output-available\" \"{tool}\"");
    assert_eq!(outline, [given("first"), given("second"), given("third"), "Done.".to_owned()], "in the order of the calls");
    most.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_answer_run_side_by_side_up_to_the_limit() {
    assert_eq!(at_once(None, 3).await, 3);
    assert_eq!(at_once(Some(1), 1).await, 1);
    assert!(at_once(Some(2), 1).await <= 2);
}
