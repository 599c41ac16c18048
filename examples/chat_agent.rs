//! A chat: a turn is stored before anyone sees it, and any number of readers follow its log.
//!
//! ```text
//! cargo run -p examples-http --example chat_agent
//! ```
//!
//! `cargo run -p examples-http --example chat` serves such an agent to a page, with a model and
//! tools.
#![forbid(unsafe_code)]

use std::time::Duration;

use forever::BoxError;
use forever::agent::Agent;
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, Entry, Turn};
use forever::prelude::*;

struct Counter;

impl Agent for Counter {
    const CLASS: &'static str = "counter";
    type State = ();
}

impl ChatAgent for Counter {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        // 0, or the position of an interrupted attempt of this turn.
        let first: u32 = turn.stashed()?.unwrap_or(0);
        turn.write(Chunk::text_start("text")).await?;
        for n in first..5 {
            turn.write(Chunk::text_delta("text", format!("{n} "))).await?;
            turn.stash(&(n + 1)).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        turn.write(Chunk::text_end("text")).await?;
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().in_memory().chat_agent(|_| Counter).open().await?;
    let ada = forever.agent::<Counter>("ada");
    let turn = ada.submit("message-1", [UiMessage::user("u1", "count, please")]).await?;
    let mut log = turn.follow(0).await?;
    while let Some(entry) = log.next().await? {
        match entry {
            Entry::Chunk(number, chunk) => println!("{number}: {}", chunk.json()),
            Entry::End(end) => println!("{}", end.state()),
            _ => {}
        }
    }
    Ok(forever.close().await?)
}
