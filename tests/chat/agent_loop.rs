//! The loop of model and tools, ended at every write: the model is asked again only where its answer was cut off, and a tool is not run twice.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Part, ToolState, UiMessage};
use forever::chat::model::{FinishReason, ModelError, ModelErrorKind, ModelRequest, ToolSpec};
use forever::chat::{AgentLoop, ChatAgent, Tool, ToolAnswer, Turn, UnknownCall};
use forever::fiber::FiberState;
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;
use forever::testing::{World, crash_everywhere};
use forever::{BoxError, Builder, Forever};
use forever_testkit::models::{Event, ScriptedModel, call, ends, text, whole_call};
use forever_testkit::notes::Notes;
use forever_testkit::sizes;
use forever_testkit::waiting::{found, over_time};
use serde_json::{Value, json};

/// Two tools, one after the other, then an answer.
fn two_tools(results: usize, _: &ModelRequest) -> Vec<Event> {
    match results {
        0 => [text(&["Let ", "me ", "see. "]), whole_call("c1", "weather", json!({ "city": "Rome" })), ends(FinishReason::ToolCalls)]
            .concat(),
        1 => [whole_call("c2", "charge", json!({ "cents": 5 })), ends(FinishReason::ToolCalls)].concat(),
        2 => [text(&["It ", "is ", "done."]), ends(FinishReason::Stop)].concat(),
        other => panic!("asked after {other} results"),
    }
}

/// Two tools at once, whose input comes in pieces. A model that is asked again gives its calls other ids.
fn tools_in_pieces(asked: &Notes) -> impl Fn(usize, &ModelRequest) -> Vec<Event> + use<> {
    let asked = asked.clone();
    move |_, request| {
        let parts = || request.messages.iter().flat_map(|message| &message.parts);
        let done = |tool| parts().any(|p| p.tool_name() == Some(tool) && p.tool_state() == Some(ToolState::OutputAvailable));
        let told =
            |part: &Part| part.get("errorText").is_some_and(|why| why.as_str().unwrap_or_default().contains("may have been carried out"));
        let reported = parts().any(|part| part.tool_name() == Some("charge") && told(part));
        let n = asked.count("asked");
        let mut said = Vec::new();
        if !done("weather") {
            said.extend(call(&format!("w{n}"), "weather", json!({ "city": "Rome" })));
        }
        if !done("charge") && !reported {
            said.extend(call(&format!("c{n}"), "charge", json!({ "cents": 5 })));
        }
        if said.is_empty() {
            return [text(&["Done."]), ends(FinishReason::Stop)].concat();
        }
        [said, ends(FinishReason::ToolCalls)].concat()
    }
}

pub(crate) struct Assistant;

impl Agent for Assistant {
    const CLASS: &'static str = "assistant";
    type State = ();
}

impl ChatAgent for Assistant {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        turn.run_agent_loop().await
    }

    fn client_error_text(&self, error: &BoxError) -> String {
        error.to_string()
    }
}

pub(crate) fn builder(world: &World, looped: AgentLoop) -> Builder {
    let builder = Forever::builder().in_memory().clock(world.clock());
    builder.turn_batching(1, Duration::ZERO).agent_loop(looped).chat_agent(|_| Assistant)
}

/// A bank that takes an id once.
fn charge(world: World) -> Tool {
    Tool::new("charge", move |input, op| {
        let world = world.clone();
        async move {
            let charges: Arc<Mutex<BTreeMap<String, Value>>> = world.shared();
            if charges.lock().unwrap().insert(op.id().to_owned(), input).is_none() {
                world.effect("charge");
            }
            Ok(json!("charged"))
        }
    })
}

fn weather() -> Tool {
    Tool::new("weather", |input, _| async move { Ok(json!({ "city": input["city"], "sun": true })) }).on_unknown(UnknownCall::Retry)
}

pub(crate) async fn answered(forever: &Forever) -> (AgentHandle<Assistant>, UiMessage) {
    let agent = forever.agent::<Assistant>("a");
    let turn = agent.save_messages([UiMessage::user("u", "go")]).id("r").await.unwrap();
    let end = turn.wait().await.unwrap();
    assert!(end.is_completed(), "{end:?}");
    let message = agent.messages().await.unwrap().pop().unwrap();
    (agent, message)
}

pub(crate) fn outline(message: &UiMessage) -> Vec<String> {
    let one = |part: &Part| match part.kind() {
        "text" => part.as_text().unwrap_or_default().to_owned(),
        "step-start" => "-".to_owned(),
        kind => format!("{kind} {} {}", part.get("state").unwrap(), part.get("output").or(part.get("errorText")).unwrap_or(&Value::Null)),
    };
    message.parts.iter().map(one).collect()
}

/// A tool whose pool is closed when the process ends.
fn pooled_weather(closed: Notes) -> Tool {
    Tool::new("weather", move |input, op| {
        let closed = closed.clone();
        async move {
            for _ in 0..3 {
                if op.is_closing() {
                    closed.note("closed");
                    return Err("the pool is closed".into());
                }
                tokio::task::yield_now().await;
            }
            Ok(json!({ "city": input["city"], "sun": true }))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn tool_that_fails_by_a_close_is_called_again_and_the_model_is_told_of_no_error() {
    let closed = Notes::default();
    let survived = crash_everywhere(
        |world| {
            let model = ScriptedModel::new(two_tools).noting(&world.shared());
            let weather = pooled_weather(closed.clone()).on_unknown(UnknownCall::Retry);
            builder(world, AgentLoop::new(model).tool(weather).tool(charge(world.clone()).on_unknown(UnknownCall::Retry)))
        },
        async |forever: Forever| outline(&answered(&forever).await.1),
    )
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert!(survived.outcome.contains(&r#"tool-weather "output-available" {"city":"Rome","sun":true}"#.to_owned()), "{survived:?}");
    assert!(closed.count("closed") > 0, "no close has met it");
    println!("closes={} in_the_tool={}", survived.closes, closed.count("closed"));
}

#[tokio::test(start_paused = true)]
async fn case_128_129_a_loop_with_two_tools_goes_on_exactly_where_it_was() {
    let survived = crash_everywhere(
        |world: &World| {
            let model = ScriptedModel::new(two_tools).noting(&world.shared());
            builder(world, AgentLoop::new(model).tool(weather()).tool(charge(world.clone()).on_unknown(UnknownCall::Retry)))
        },
        async |forever: Forever| outline(&answered(&forever).await.1),
    )
    .crash_randomly(1, 60)
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert_eq!(
        survived.outcome,
        [
            "-",
            "Let me see. ",
            r#"tool-weather "output-available" {"city":"Rome","sun":true}"#,
            "-",
            r#"tool-charge "output-available" "charged""#,
            "-",
            "It is done."
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_which_nobody_knows_is_reported_and_not_run_again() {
    let survived = crash_everywhere(
        |world: &World| {
            let seen: Notes = world.shared();
            let model = ScriptedModel::new(tools_in_pieces(&seen)).noting(&seen);
            let of_tool = world.clone();
            // One that takes no notice of ids.
            let charge = Tool::new("charge", move |_, _| {
                let charged: Charged = of_tool.shared();
                *charged.0.lock().unwrap() += 1;
                async { Ok(json!("charged")) }
            });
            let reads = world.clone();
            *WORLD.lock().unwrap() = Some(reads);
            builder(world, AgentLoop::new(model).tool(weather()).tool(charge))
        },
        async |forever: Forever| {
            let message = answered(&forever).await.1;
            let world = WORLD.lock().unwrap().clone().unwrap();
            let charged: Charged = world.shared();
            let times = *charged.0.lock().unwrap();
            assert!(times <= 1, "charged {times} times");
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

/// What an operator does about a call in doubt.
#[derive(Debug, Clone, Copy)]
enum Remedy {
    WasNotCarriedOut,
    WasCarriedOut,
    /// A program that has the tool again.
    ToolIsBack,
}

#[tokio::test(start_paused = true)]
async fn call_in_doubt_of_a_tool_that_is_gone_waits_for_an_operator() {
    for remedy in [Remedy::WasNotCarriedOut, Remedy::WasCarriedOut, Remedy::ToolIsBack] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        let model = || {
            ScriptedModel::new(|results, _| match results {
                0 => [whole_call("c1", "charge", json!({ "cents": 5 })), ends(FinishReason::ToolCalls)].concat(),
                _ => [text(&["Done."]), ends(FinishReason::Stop)].concat(),
            })
        };
        let open = async |looped| {
            Forever::builder()
                .sqlite(&path)
                .turn_batching(1, Duration::ZERO)
                .agent_loop(looped)
                .chat_agent(|_| Assistant)
                .open()
                .await
                .unwrap()
        };
        let begun = Arc::new(tokio::sync::Notify::new());
        let charge = || {
            let begun = Arc::clone(&begun);
            Tool::new("charge", move |_, _| {
                begun.notify_one();
                std::future::pending()
            })
        };
        let forever = open(AgentLoop::new(model()).tool(charge())).await;
        let agent = forever.agent::<Assistant>("a");
        agent.save_messages([UiMessage::user("u", "go")]).id("r").await.unwrap();
        begun.notified().await;
        // As if the process had died in the tool.
        drop((forever, agent));

        let forever = open(AgentLoop::new(model())).await;
        let error = crate::damaged::parked(&forever, &path).await;
        assert!(error.is_parked() && error.reason().contains("may have executed"), "{error}");
        assert!(error.reason().ends_with("this program has no tool `charge`"), "{error}");
        let fiber = forever.fibers().await.unwrap().fibers.remove(0).id;
        let ops = forever.ops(&fiber).await.unwrap();
        let [op] = &ops[..] else { panic!("{ops:?}") };
        assert_eq!(op.state, OpState::Started, "it is among the unknown outcomes");

        let forever = match remedy {
            Remedy::WasNotCarriedOut => {
                forever.resolve_op(&op.id, OpResolution::NotExecuted).await.unwrap();
                forever
            }
            Remedy::WasCarriedOut => {
                forever.resolve_op(&op.id, OpResolution::completed(&()).unwrap()).await.unwrap();
                forever
            }
            Remedy::ToolIsBack => {
                forever.close().await.unwrap();
                let forever = open(AgentLoop::new(model()).tool(charge())).await;
                // It is looked at again when the program is opened, and may be under way by now.
                if let Err(error) = forever.resume(&fiber).await {
                    assert!(error.is_invalid_state(), "{error}");
                }
                forever
            }
        };
        let agent = forever.agent::<Assistant>("a");
        assert!(agent.turn("r").await.unwrap().unwrap().wait().await.unwrap().is_completed());
        let result = match remedy {
            Remedy::WasNotCarriedOut => "there is no tool `charge`",
            // Its result is for the operator to say, as that of a client's tool.
            Remedy::WasCarriedOut => {
                assert!(agent.has_pending_interaction().await.unwrap());
                let answer = agent.answer_tool("c1", ToolAnswer::Output(json!("charged")), true).await.unwrap();
                assert!(answer.continued.unwrap().wait().await.unwrap().is_completed());
                "charged"
            }
            Remedy::ToolIsBack => "The process ended while the tool ran: it may have been carried out. Check before it is called again.",
        };
        let message = agent.messages().await.unwrap().pop().unwrap();
        let told = message.parts.iter().find_map(|part| part.get("output").or(part.get("errorText")));
        assert_eq!((told, message.text().as_str()), (Some(&json!(result)), "Done."), "{remedy:?}");
        forever.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn call_of_a_tool_that_never_existed_is_answered_without_an_operation() {
    let survived = crash_everywhere(
        |world: &World| {
            let model = ScriptedModel::new(|results, _| match results {
                0 => [whole_call("c1", "imagined", json!({})), ends(FinishReason::ToolCalls)].concat(),
                _ => [text(&["Done."]), ends(FinishReason::Stop)].concat(),
            });
            builder(world, AgentLoop::new(model))
        },
        async |forever: Forever| {
            let outline = outline(&answered(&forever).await.1);
            let fiber = forever.fibers().await.unwrap().fibers.remove(0).id;
            (outline, forever.ops(&fiber).await.unwrap().len())
        },
    )
    .await
    .unwrap();
    let outline = ["-", r#"tool-imagined "output-error" "there is no tool `imagined`""#, "-", "Done."].map(str::to_owned).to_vec();
    assert_eq!(survived.outcome, (outline, 0));
}

/// How often something was charged.
#[derive(Clone, Default)]
struct Charged(Arc<Mutex<u32>>);

/// The world of the run that is under way.
static WORLD: Mutex<Option<World>> = Mutex::new(None);

pub(crate) fn plain(looped: AgentLoop) -> Builder {
    Forever::builder().in_memory().turn_batching(1, Duration::ZERO).agent_loop(looped).chat_agent(|_| Assistant)
}

#[tokio::test(start_paused = true)]
async fn an_error_that_may_pass_is_gone_on_behind_what_was_said() {
    let seen = Notes::default();
    let asked = seen.clone();
    let says = move |_: usize, _: &ModelRequest| {
        if asked.count("asked") < 3 {
            let mut cut = text(&["One ", "two ", "three."]);
            cut.truncate(1 + asked.count("asked"));
            cut.push(Err(ModelError::new(ModelErrorKind::Transient, "the connection was lost")));
            return cut;
        }
        [text(&["One ", "two ", "three."]), ends(FinishReason::Stop)].concat()
    };
    let model = ScriptedModel::new(says).noting(&seen);
    let clock = forever::testing::VirtualClock::new();
    let forever = plain(AgentLoop::new(model)).clock(clock.clone()).open().await.unwrap();
    let (_, message) = over_time("the answer", answered(&forever), || clock.advance(Duration::from_secs(60))).await;
    assert_eq!(outline(&message), ["-", "One two three."]);
    assert_eq!(seen.all(), ["asked after 0 results, anew", "asked after 0 results, to go on", "asked after 0 results, to go on"]);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_is_too_long_is_made_shorter_once() {
    let seen = Notes::default();
    let says = |_: usize, request: &ModelRequest| {
        if request.messages.len() > 1 {
            return vec![Err(ModelError::new(ModelErrorKind::ContextOverflow, "too long"))];
        }
        assert_eq!(request.messages[0].text(), "a summary");
        [text(&["Short."]), ends(FinishReason::Stop)].concat()
    };
    let model = ScriptedModel::new(says).noting(&seen);
    let looped = AgentLoop::new(model.clone()).compact(|messages| async move {
        assert_eq!(messages.len(), 3);
        Ok(vec![UiMessage::user("s", "a summary")])
    });
    let forever = plain(looped).open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    agent.set_messages([UiMessage::user("x", "long"), UiMessage::user("y", "ago")]).await.unwrap();
    let (agent, message) = answered(&forever).await;
    assert_eq!(message.text(), "Short.");
    assert_eq!(agent.messages().await.unwrap().len(), 4, "what is stored stays as it is");
    // One that does not help is not tried for ever.
    let useless = AgentLoop::new(model).compact(|messages| async move { Ok(messages) });
    let forever = plain(useless).open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    agent.set_messages([UiMessage::user("x", "long")]).await.unwrap();
    let end = agent.save_messages([UiMessage::user("u", "go")]).await.unwrap().wait().await.unwrap();
    assert!(end.reason().unwrap().contains("too long for the model, even after compaction"), "{end:?}");
    assert_eq!(seen.count("asked"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_the_client_and_an_approval_end_the_turn_and_the_next_one_goes_on() {
    let seen = Notes::default();
    let says = |results: usize, _: &ModelRequest| match results {
        0 => [call("c1", "location", json!({})), call("c2", "charge", json!({ "cents": 5 })), ends(FinishReason::ToolCalls)].concat(),
        _ => [text(&["Done."]), ends(FinishReason::Stop)].concat(),
    };
    let model = ScriptedModel::new(says).noting(&seen);
    let charged = Notes::default();
    let of_tool = charged.clone();
    let charge = Tool::new("charge", move |_, _| {
        of_tool.note("charge");
        async { Ok(json!("charged")) }
    });
    let forever = plain(AgentLoop::new(model).tool(charge.needs_approval(|input| input["cents"] == 5))).open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    let location = ToolSpec { name: "location".into(), ..ToolSpec::default() };
    let turn = agent.save_messages([UiMessage::user("u", "go")]).client_tools([location]).await.unwrap();
    assert!(turn.wait().await.unwrap().is_completed());
    assert!(charged.all().is_empty() && agent.has_pending_interaction().await.unwrap());
    agent.answer_tool("c1", ToolAnswer::Output(json!("Rome")), true).await.unwrap();
    let approved = agent.answer_tool("c2", ToolAnswer::Approved, true).await.unwrap();
    let end = approved.continued.unwrap().wait().await.unwrap();
    assert!(end.is_completed(), "{end:?}");
    let message = agent.messages().await.unwrap().pop().unwrap();
    assert_eq!(
        outline(&message),
        ["-", r#"tool-location "output-available" "Rome""#, r#"tool-charge "output-available" "charged""#, "-", "Done."]
    );
    assert_eq!((charged.all().len(), seen.count("asked")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_ends_its_loop() {
    let model = ScriptedModel::new(|_, _| [call("c", "hang", json!({})), ends(FinishReason::ToolCalls)].concat());
    let hang = Tool::new("hang", |_, _| std::future::pending());
    let forever = plain(AgentLoop::new(model).tool(hang)).cancel_grace(Duration::from_millis(10)).open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    let turn = agent.save_messages([UiMessage::user("u", "go")]).id("r").await.unwrap();
    let mut follow = turn.follow(0).await.unwrap();
    for _ in 0..5 {
        follow.next().await.unwrap();
    }
    turn.cancel("enough").await.unwrap();
    turn.wait().await.unwrap();
    let ended = found("the end of its fiber", async || {
        let fibers = forever.fibers().await.unwrap().fibers;
        assert_eq!(fibers.len(), 1, "the loop is in the fiber of its turn");
        fibers[0].state.is_final().then_some(fibers[0].state)
    });
    assert_eq!(ended.await, FiberState::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_model_is_told_without_the_names_of_fibers() {
    let says = |_: usize, _: &ModelRequest| vec![Err(ModelError::new(ModelErrorKind::Denied, "the provider answered 401"))];
    let model = ScriptedModel::new(says);
    let forever = plain(AgentLoop::new(model)).open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    let end = agent.save_messages([UiMessage::user("u", "go")]).id("r").await.unwrap().wait().await.unwrap();
    let told = end.reason().unwrap();
    assert!(told.contains("the provider answered 401"), "{told}");
    assert!(!told.contains("fiber") && !told.contains("forever.agent_loop") && !told.contains("assistant/a"), "{told}");
    let message = agent.messages().await.unwrap().pop().unwrap();
    assert_eq!(message.metadata.unwrap()["forever"]["reason"], json!(told));
}
