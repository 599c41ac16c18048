//! Answers if no model is named: a script of real sentences, word by word.
use std::time::Duration;

use forever::BoxError;
use forever::agent::Agent;
use forever::chat::message::{Chunk, Part, ToolState};
use forever::chat::{ChatAgent, RecoveryPolicy, Turn};
use serde_json::{Value, json};

use crate::survival;

/// Chat agent that answers by a script, as a model would: text, code, and a call that needs
/// approval.
pub(crate) struct Showcase;

/// The time between two words, unless the page says otherwise (`?delay=` in ms).
const DELAY_MS: u64 = 90;

const KILL: &str = "\
Try it: kill my process now, while I am in the middle of this sentence. Every word that you see was \
stored before it was shown to you, so there is nothing that a kill could take away.

When the program starts again, it opens the same SQLite file and finds this answer:

1. The **turn** is still marked as running, so it is claimed by the new process.
2. Its **log** holds every chunk up to the last word. The new attempt reads it and goes on behind it.
3. Your page connects again, asks for what it has missed, and the *same message* grows to its end.

No word is lost and none is said twice. You can do it more than once: each interruption leaves a mark \
at the place where it happened, with the time that the server was gone. If you read this far without \
a kill, ask me again, and be quicker with the command that is shown at the top of the page.";

const CODE: &str = "\
Here is a small one. It is an ordinary `async fn`; after every `step!` its locals are stored, and after \
a crash it carries on behind the last step that completed:

```rust
#[fiber]
async fn research(model: Res<Model>, topic: String) -> anyhow::Result<Report> {
    let plan = step!(model.plan(&topic).await?);
    let mut notes = Vec::new();
    for question in plan.questions {
        let hits = step!(\"search\", retry = Retry::times(3), search(&question).await?);
        notes.push(step!(model.summarise(&question, &hits).await?));
    }
    Ok(Report { topic, notes })
}
```

What it keeps, and when it would run again:

| code | after a crash |
| --- | --- |
| a `step!` that completed | is not run again |
| the body of a `step!` that was interrupted | runs again, at least once |
| code between two steps | runs again from the last step |

There is no history to replay: recovery takes as long after ten steps as after ten thousand. A chat like \
this one is the same idea with a log of chunks in place of a snapshot.";

const ASK: &str = "\
I would like to pay **12 euros to Ada**. That is not mine to decide, so I wait for you. Take your time: \
while I wait I am a row in a database and nothing else, and the server may be killed and started as often \
as you like.";

const PAID: &str = "\n\nDone, and only once: the approval, the payment and this sentence are stored in that order.";

const REFUSED: &str = "\n\nThen nothing was paid. The refusal is stored, so you will not be asked again.";

const OTHER: &str = "\
I follow a script, so that this example runs without a key and without a network. Set `ANTHROPIC_MODEL` or \
`OPENAI_MODEL` (and a key) before you start it, and a real model takes my place, with the same tools and the \
same survival.

Until then I have three good answers:

- what happens when my server is **killed** in the middle of an answer,
- the **code** of a durable agent,
- how I **pay** for something, for which I ask you first.";

impl Agent for Showcase {
    const CLASS: &'static str = "ChatAgent";
    type State = Value;
}

impl ChatAgent for Showcase {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        survival::visible(turn, answer(turn)).await
    }

    fn recovery() -> RecoveryPolicy {
        // The default would give up: this program is made to be killed.
        RecoveryPolicy::default().max_deaths(1000)
    }
}

async fn answer(turn: &Turn) -> Result<(), BoxError> {
    let message = turn.message().await;
    if let Some(call) = message.parts.iter().rfind(|part| part.tool_name() == Some("pay"))
        && let Some(approved) = approval(call)
    {
        if approved && call.tool_state() == Some(ToolState::ApprovalResponded) {
            let (id, input) = (call.tool_call_id().unwrap_or_default(), call.get("input").cloned().unwrap_or_default());
            turn.write(Chunk::tool_output_available(id, json!({ "paid": input["cents"], "to": input["to"], "receipt": id }))).await?;
        }
        say(turn, if approved { PAID } else { REFUSED }).await?;
        return Ok(turn.write(Chunk::finish()).await?);
    }
    let asked = turn.messages().last().map(|message| message.text().to_lowercase()).unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| asked.contains(word));
    if has(&["pay"]) {
        say(turn, ASK).await?;
        let call = format!("pay-{}", turn.id());
        turn.write(Chunk::tool_input_start(&call, "pay")).await?;
        turn.write(Chunk::tool_input_available(&call, "pay", json!({ "to": "Ada", "cents": 1200 }))).await?;
        turn.write(Chunk::tool_approval_request(&call, format!("approval-{call}"))).await?;
    } else if has(&["code", "rust", "show"]) {
        say(turn, CODE).await?;
    } else if has(&["kill", "crash", "die", "restart", "survive"]) {
        say(turn, KILL).await?;
    } else {
        say(turn, OTHER).await?;
    }
    Ok(turn.write(Chunk::finish()).await?)
}

/// The person's decision about a call, if there is one.
fn approval(call: &Part) -> Option<bool> {
    match call.tool_state()? {
        ToolState::OutputAvailable => Some(true),
        ToolState::ApprovalResponded => call.get("approval")?.get("approved")?.as_bool(),
        _ => None,
    }
}

/// Writes a text word by word, from the position of an interrupted attempt.
async fn say(turn: &Turn, text: &str) -> Result<(), BoxError> {
    let delay = turn.body().and_then(|body| body["delay"].as_u64()).unwrap_or(DELAY_MS);
    let said = turn.text();
    let rest = text.strip_prefix(said.as_str()).unwrap_or(text);
    turn.write(Chunk::text_start("text")).await?;
    for word in rest.split_inclusive(' ') {
        turn.write(Chunk::text_delta("text", word)).await?;
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    Ok(turn.write(Chunk::text_end("text")).await?)
}
