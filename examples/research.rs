//! A research agent: turns of a model and calls of tools in a loop, as one function that resumes
//! after a crash.
//!
//! ```text
//! cargo run -p examples-http --example research -- --crash-after 3     # dies after three steps
//! cargo run -p examples-http --example research                        # continues with the fourth
//! ```
//!
//! The second command prints
//!
//! ```text
//! question: How much higher is the Eiffel Tower than the Great Pyramid?
//! carrying on; these steps are stored and are not repeated:
//!   ✓ turn 1 of the model: I look up how high each of them is.
//!   ✓ search {"query": "height Eiffel Tower"}
//!   ✓ search {"query": "height Great Pyramid"}
//!   model: Now the difference.
//! step done: turn 2 of the model: Now the difference.
//!   tool: calculate {"expression": "330 - 138.5"}
//! step done: calculate {"expression": "330 - 138.5"}
//!   model: The Eiffel Tower is 191.5 m higher than the Great Pyramid of Giza: 330 m and 138.5 m.
//! step done: turn 3 of the model: The Eiffel Tower is 191.5 m higher than the Great Pyramid of Giza: 330 m and 138.5 m.
//!
//! answer: The Eiffel Tower is 191.5 m higher than the Great Pyramid of Giza: 330 m and 138.5 m.
//! ```
//!
//! and a third one only the answer, which is stored. The model is a script behind a real HTTP
//! server on loopback, so all of this works offline. A real model replaces it with
//!
//! ```text
//! OPENAI_BASE_URL=https://api.openai.com/v1 OPENAI_API_KEY=.. OPENAI_MODEL=gpt-4.1-mini \
//!     cargo run -p examples-http --example research -- --question "Which is longer, the Great Wall or the Panama Canal, and how many times?"
//! ```
//!
//! The database is `forever-research.db` in the temporary folder, or at the path of `--db`.
//! `--serve` runs the scripted model alone, for use by other programs; it prints its URL and a line
//! for each request.
//!
//! The client is async-openai: it is maintained, has the streaming types, and its messages can be
//! saved as they are.
#![forbid(unsafe_code)]

#[path = "support/openai.rs"]
mod openai;
#[path = "support/scripted_model.rs"]
mod scripted_model;
#[path = "support/tools.rs"]
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::Context;
use async_openai::types::chat::{
    ChatCompletionMessageToolCalls, ChatCompletionRequestAssistantMessageContent, ChatCompletionRequestSystemMessage,
    ChatCompletionRequestToolMessage, ChatCompletionRequestUserMessage,
};
use forever::Forever;
use forever::fiber::{FiberState, Retry};
use forever::prelude::*;

use forever_testkit::args::{Args, exit_code};
use openai::{Endpoint, Message, Model, Reply, ToolCall};

const USAGE: &str = "\
Answers a question with a model and tools, and carries on after a crash.

usage: research [--question TEXT] [--db PATH] [--crash-after N] [--serve]
  --question TEXT   what to ask
  --db PATH         the database (forever-research.db in the temporary folder)
  --crash-after N   dies after N steps, without any cleaning up
  --serve           runs the scripted model alone

With OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL set, a real model answers.";

const QUESTION: &str = "How much higher is the Eiffel Tower than the Great Pyramid?";
const INSTRUCTIONS: &str = "Answer in one sentence. Look facts up with `search`, and work numbers out with `calculate`.";
const MOST_TURNS: u32 = 20;

/// The agent. The transcript is a local variable; a crash costs at most the step that it hits.
#[fiber]
async fn research(ctx: &FiberContext, model: Res<Model>, progress: Res<Progress>, question: String) -> anyhow::Result<String> {
    let mut messages: Vec<Message> =
        vec![ChatCompletionRequestSystemMessage::from(INSTRUCTIONS).into(), ChatCompletionRequestUserMessage::from(question).into()];
    for _ in 0..MOST_TURNS {
        let reply = step!("turn", retry = Retry::times(3), model.turn(&messages).await?);
        messages.push(reply.clone().into());
        progress.passed(ctx, &messages);
        let calls = tool_calls(&reply);
        if calls.is_empty() {
            return Ok(text(&reply));
        }
        for call in calls {
            let result = step!("tool", tools::run(&call).await);
            messages.push(ChatCompletionRequestToolMessage { tool_call_id: call.id, content: result.into() }.into());
            progress.passed(ctx, &messages);
        }
    }
    anyhow::bail!("there is no answer after {MOST_TURNS} turns")
}

fn tool_calls(reply: &Reply) -> Vec<ToolCall> {
    let calls = reply.tool_calls.iter().flatten();
    calls.filter_map(|call| if let ChatCompletionMessageToolCalls::Function(call) = call { Some(call.clone()) } else { None }).collect()
}

fn text(reply: &Reply) -> String {
    match &reply.content {
        Some(ChatCompletionRequestAssistantMessageContent::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Shows the finished steps, and dies at the given one.
struct Progress {
    begun: AtomicBool,
    passed: AtomicU32,
    crash_after: Option<u32>,
}

impl Progress {
    fn new(crash_after: Option<u32>) -> Self {
        Progress { begun: AtomicBool::new(false), passed: AtomicU32::new(0), crash_after }
    }

    /// Counts a finished step, the one that added the last message.
    fn passed(&self, ctx: &FiberContext, messages: &[Message]) {
        let steps = steps(messages);
        if !self.begun.swap(true, Ordering::Relaxed) && ctx.is_resuming() {
            // The code after the last stored step runs again; the step itself does not.
            println!("carrying on; these steps are stored and are not repeated:");
            for step in steps {
                println!("  ✓ {step}");
            }
            return;
        }
        println!("step done: {}", steps.last().map_or("", String::as_str));
        if Some(self.passed.fetch_add(1, Ordering::Relaxed) + 1) == self.crash_after {
            println!("crash!");
            std::process::abort();
        }
    }
}

/// The steps that made a transcript.
fn steps(messages: &[Message]) -> Vec<String> {
    let (mut steps, mut turn, mut calls) = (Vec::new(), 0, Vec::new());
    for message in messages {
        match message {
            Message::Assistant(reply) => {
                turn += 1;
                calls = tool_calls(reply);
                steps.push(format!("turn {turn} of the model: {}", text(reply)));
            }
            Message::Tool(result) => {
                let call = calls.iter().find(|call| call.id == result.tool_call_id);
                steps.extend(call.map(|call| format!("{} {}", call.function.name, call.function.arguments)));
            }
            _ => {}
        }
    }
    steps
}

async fn ask(question: String, db: PathBuf, crash_after: Option<u32>) -> anyhow::Result<()> {
    println!("question: {question}");
    let endpoint = if let Some(endpoint) = Endpoint::from_env()? {
        endpoint
    } else {
        let base_url = scripted_model::start(false).await?;
        Endpoint { base_url, api_key: "none".into(), model: "script".into(), local: true }
    };
    let forever = Forever::builder()
        .sqlite(&db)
        .resource(Model::new(&endpoint, tools::offered()?)?)
        .resource(Progress::new(crash_after))
        .fiber::<research>()
        .open()
        .await?;
    let handle = forever.spawn(research(question.clone())).key(format!("{}: {question}", endpoint.model)).await?;
    if handle.status().await?.state == FiberState::Completed {
        println!("it was answered before; remove {} to ask again", db.display());
    }
    let answer = handle.wait().await.with_context(|| format!("no answer; remove {} to start over", db.display()))?;
    println!("\nanswer: {answer}");
    forever.close().await?;
    Ok(())
}

async fn serve() -> anyhow::Result<()> {
    println!("{}", scripted_model::start(true).await?);
    std::future::pending().await
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let alone = args.flag("--serve");
    let question = args.value("--question", "a question", |text: &String| !text.trim().is_empty()).unwrap_or(QUESTION.into());
    let db = args.value("--db", "a path", |path: &PathBuf| path.file_name().is_some());
    let crash_after = args.value("--crash-after", "a number from 1", |steps| *steps > 0);
    args.finish();
    let db = db.unwrap_or_else(|| std::env::temp_dir().join("forever-research.db"));
    let done = if alone { serve().await } else { ask(question, db, crash_after).await };
    exit_code(done.map(|()| true))
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../tests/crash/examples/research.rs"]
mod crash;
