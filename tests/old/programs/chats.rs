//! Chats, with turns in every state, one that was interrupted and one that waits for a person.
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::model::ToolSpec;
use forever::chat::{ChatAgent, Queueing, ToolAnswer, Turn};
use forever::prelude::*;
use forever::{BoxError, Builder, Forever};
use serde_json::{Value, json};

use crate::desk::Desk;

/// For how long `later` waits at least.
const QUIET: Duration = Duration::from_secs(60 * 60);

/// The agents whose chats there are.
pub(crate) const CHATS: [&str; 3] = ["grace", "hopper", "lovelace"];

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "grace: long three"), (2, "grace: long four")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (1, "SELECT sum(count) = 4 FROM turn_log JOIN turns ON turn = seq WHERE id = 'long'"),
    (1, "SELECT count(*) = 0 FROM incidents"),
    (1, "SELECT stash = '2' FROM turn_requests JOIN turns ON turn = seq WHERE id = 'long'"),
    (2, "SELECT state = 'running' AND deaths = 2 FROM turns WHERE id = 'long'"),
    (2, "SELECT sum(count) = 5 FROM turn_log JOIN turns ON turn = seq WHERE id = 'long'"),
    (2, "SELECT stash = '3' FROM turn_requests JOIN turns ON turn = seq WHERE id = 'long'"),
    (2, "SELECT incidents.state = 'attempting' AND chunks = 4 FROM incidents JOIN turns ON turn = seq WHERE id = 'long'"),
    (2, "SELECT state = 'completed' AND key IS NOT NULL FROM turns WHERE id = 'told'"),
    (2, "SELECT count(*) = 1 FROM chat_messages JOIN turns ON message = chat_messages.id WHERE turns.id = 'told'"),
    (2, "SELECT state = 'error' AND reason IS NOT NULL FROM turns WHERE id = 'refused'"),
    (2, "SELECT state = 'aborted' AND cancel IS NOT NULL FROM turns WHERE id = 'taken back'"),
    (2, "SELECT state = 'skipped' FROM turns WHERE id = 'first thought'"),
    (2, "SELECT count(*) = 2 FROM turns WHERE state = 'queued' AND id IN ('behind', 'second thought')"),
    (2, "SELECT state = 'queued' AND due_ms IS NOT NULL FROM turns WHERE id = 'later'"),
    (2, "SELECT turns.state = 'completed' AND held = message FROM turns JOIN chats ON chat = chats.seq WHERE id = 'asks'"),
];

/// Says the words that it is asked for, one after the other; or asks its client.
pub(crate) struct Talker {
    me: AgentHandle<Talker>,
    desk: Desk,
}

impl Agent for Talker {
    const CLASS: &'static str = "talker";
    type State = ();
}

impl ChatAgent for Talker {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let asked = turn.body().cloned().unwrap_or_default();
        if asked["fails"] == true {
            turn.write(Chunk::error("the provider said no")).await?;
            return Ok(());
        }
        // What follows the answers is asked with the same body.
        if let Some(calls) = asked["calls"].as_array()
            && !turn.is_continuation()
        {
            for call in calls.iter().filter_map(Value::as_str) {
                turn.write(Chunk::tool_input_available(call, "look", json!({ "at": call }))).await?;
            }
            return Ok(());
        }
        turn.write(Chunk::text_start("text")).await?;
        if let Some(words) = asked["says"].as_str() {
            self.say(turn, words).await?;
        } else {
            self.desk.work(&format!("{}: goes on", self.me.name())).await?;
            let message = turn.message().await;
            let answers: Vec<_> = message.parts.iter().filter_map(|part| part.get("output").cloned()).collect();
            turn.write(Chunk::text_delta("text", json!(answers).to_string())).await?;
        }
        turn.write(Chunk::text_end("text")).await?;
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

impl Talker {
    /// Each word is stored before the next one is thought of, and so is how many there are.
    async fn say(&self, turn: &Turn, words: &str) -> Result<(), BoxError> {
        let said = turn.text().split_inclusive(' ').count();
        if turn.stashed::<usize>()?.unwrap_or(0) != said {
            return Err("the stash is not that of these words".into());
        }
        for (n, word) in words.split(' ').enumerate().skip(said) {
            self.desk.work(&format!("{}: {} {word}", self.me.name(), turn.id())).await?;
            turn.write(Chunk::text_delta("text", format!("{word} "))).await?;
            turn.flush().await?;
            turn.stash(&(n + 1)).await?;
        }
        Ok(())
    }
}

pub(crate) fn registered(builder: Builder, desk: &Desk) -> Builder {
    let desk = desk.clone();
    builder.chat_agent(move |me| Talker { me, desk: desk.clone() })
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    let user = |id: &str| [UiMessage::user(format!("to {id}"), "what of it?")];
    let says = |words: &str| json!({ "says": words });
    let grace = forever.agent::<Talker>("grace");
    grace.submit("told once", user("told")).id("told").body(&says("all of it")).metadata(&"by hand").await?.wait().await?;
    grace.save_messages(user("refused")).id("refused").body(&json!({ "fails": true })).await?.wait().await?;
    grace.save_messages(user("long")).id("long").body(&says("one two three four five")).await?;
    grace.save_messages(user("behind")).id("behind").body(&says("one two")).await?;
    grace.save_messages(user("taken back")).id("taken back").body(&says("never")).await?.cancel("not needed").await?;
    for (id, words) in [("first thought", "nothing"), ("second thought", "too")] {
        grace.save_messages(user(id)).id(id).queueing(Queueing::Latest).body(&says(words)).await?;
    }

    let hopper = forever.agent::<Talker>("hopper");
    let look = ToolSpec { name: "look".to_owned(), ..ToolSpec::default() };
    let asks = hopper.save_messages(user("asks")).id("asks").body(&json!({ "calls": ["up", "down"] })).client_tools([look]);
    asks.await?.wait().await?;
    hopper.answer_tool("up", ToolAnswer::Output(json!("a roof")), true).await?;

    let lovelace = forever.agent::<Talker>("lovelace");
    lovelace.save_messages(user("later")).id("later").queueing(Queueing::Debounce(QUIET)).body(&says("on")).await?;
    Ok(())
}
