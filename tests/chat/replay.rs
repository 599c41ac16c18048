//! What a late observer sees is what a steady one saw: random answers, random ends, random deaths of the process, random moments at which somebody
//! looks.
use std::time::Duration;

use forever::agent::Agent;
use forever::chat::message::{Chunk, MessageBuilder, Role, UiMessage};
use forever::chat::{ChatAgent, Entry, RecoveryPolicy, Turn, TurnHandle};
use forever::prelude::*;
use forever::{BoxError, Builder, Forever};
use forever_testkit::database;
use forever_testkit::prng::Prng;
use forever_testkit::sizes::size;
use forever_testkit::waiting::soon;
use serde_json::{Value, json};

/// Writes the chunks that its body has, from where an earlier attempt was cut off, and ends as its body says.
struct Recites;

impl Agent for Recites {
    const CLASS: &'static str = "recites";
    type State = ();
}

impl ChatAgent for Recites {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let body = turn.body().cloned().unwrap_or_default();
        let chunks = body["chunks"].as_array().cloned().unwrap_or_default();
        let done = turn.stashed::<usize>()?.unwrap_or(0);
        for (n, chunk) in chunks.iter().enumerate().skip(done) {
            turn.write(Chunk::from_json(chunk.clone())?).await?;
            if n % 7 == 0 {
                // What is stashed is behind what is written.
                turn.flush().await?;
                turn.stash(&n).await?;
            }
            if n % 5 == 0 {
                tokio::task::yield_now().await;
            }
        }
        match body["end"].as_str() {
            Some("error") => turn.write(Chunk::error("provider said no")).await?,
            Some("throw") => return Err("thrown".into()),
            Some("abort") => turn.write(Chunk::from_json(json!({ "type": "abort" }))?).await?,
            Some("finish") => turn.write(Chunk::finish()).await?,
            _ => {}
        }
        Ok(())
    }

    fn recovery() -> RecoveryPolicy {
        RecoveryPolicy::default().max_deaths(1000)
    }
}

fn answer(prng: &mut Prng) -> Value {
    let mut chunks = Vec::new();
    for part in 0..prng.below(6) {
        let id = format!("p{}", prng.below(3) + 10 * part);
        match prng.below(5) {
            0 => {
                chunks.push(json!({ "type": "reasoning-start", "id": id }));
                for n in 0..prng.below(6) {
                    chunks.push(json!({ "type": "reasoning-delta", "id": id, "delta": format!("r{n} ") }));
                }
                chunks.push(json!({ "type": "reasoning-end", "id": id }));
            }
            1 => {
                chunks.push(json!({ "type": "tool-input-start", "toolCallId": id, "toolName": "t" }));
                chunks.push(json!({ "type": "tool-input-available", "toolCallId": id, "toolName": "t", "input": { "n": part } }));
                chunks.push(json!({ "type": "tool-output-available", "toolCallId": id, "output": part }));
            }
            2 => chunks.push(json!({ "type": "data-note", "id": "n", "data": part })),
            _ => {
                chunks.push(json!({ "type": "text-start", "id": id }));
                for n in 0..prng.below(12) {
                    chunks.push(
                        json!({ "type": "text-delta", "id": id, "delta": format!("{n}é\n ").repeat(1 + usize::try_from(part).unwrap()) }),
                    );
                }
                chunks.push(json!({ "type": "text-end", "id": id }));
            }
        }
    }
    json!({ "chunks": chunks, "end": prng.pick(&["error", "throw", "abort", "finish", "nothing"]) })
}

fn recites(prng: &mut Prng) -> Builder {
    let batch = *prng.pick(&[1, 3, 256]);
    let pause = Duration::from_millis(prng.below(2));
    Forever::builder().turn_batching(batch, pause).chat_agent(|_| Recites)
}

/// Follows a turn to its end; if the process is to die first, until so many entries have come.
async fn watch(turn: &TurnHandle, seen: &mut Vec<Entry>, until: Option<usize>) -> bool {
    if matches!(seen.last(), Some(Entry::End(_))) {
        return true;
    }
    let mut follow = turn.follow(seen.len() as u64).await.unwrap();
    while until.is_none_or(|until| seen.len() < until) {
        match follow.next().await.unwrap() {
            Some(entry) => {
                let over = matches!(entry, Entry::End(_));
                seen.push(entry);
                if over {
                    return true;
                }
            }
            None => return true,
        }
    }
    false
}

/// What a client makes of what it has seen.
fn message_of(id: &str, seen: &[Entry]) -> UiMessage {
    let mut builder = MessageBuilder::new(UiMessage::new(id, Role::Assistant));
    for entry in seen {
        if let Entry::Chunk(_, chunk) = entry {
            builder.apply(&chunk.read().unwrap()).unwrap();
        }
    }
    builder.into_message()
}

fn open_parts_closed(mut message: UiMessage) -> UiMessage {
    for part in &mut message.parts {
        if part.get("state") == Some(&json!("streaming")) {
            part.set("state", "done");
        }
    }
    message.metadata = None;
    message
}

async fn one(seed: u64) {
    let mut prng = Prng::new(seed);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let turns = 1 + prng.below(3);
    let bodies: Vec<Value> = (0..turns).map(|_| answer(&mut prng)).collect();
    let mut watched: Vec<Vec<Entry>> = vec![Vec::new(); bodies.len()];
    let mut deaths = prng.below(4);
    loop {
        let forever = recites(&mut prng).sqlite(&path).open().await.unwrap();
        let agent = forever.agent::<Recites>("a");
        let mut handles = Vec::new();
        for (n, body) in bodies.iter().enumerate() {
            // Asked again after a death, as by a client that has not heard.
            handles.push(agent.save_messages([UiMessage::user(format!("u{n}"), "hi")]).id(format!("r{n}")).body(body).await.unwrap());
        }
        let dies_in = if deaths > 0 { usize::try_from(prng.below(turns)).unwrap() } else { usize::MAX };
        let mut died = false;
        for (n, turn) in handles.iter().enumerate() {
            let until = (n == dies_in).then(|| watched[n].len() + usize::try_from(prng.below(30)).unwrap());
            if !watch(turn, &mut watched[n], until).await {
                died = true;
                break;
            }
        }
        if died {
            deaths -= 1;
            drop((handles, agent, forever));
            continue;
        }
        let messages = agent.messages().await.unwrap();
        for (n, turn) in handles.iter().enumerate() {
            let steady = &watched[n];
            assert_eq!(&turn.entries().await.unwrap(), steady, "seed {seed}, turn {n}: replay is what was seen live");
            assert!(matches!(steady.last(), Some(Entry::End(_))), "seed {seed}, turn {n}");
            let from = prng.below(steady.len() as u64);
            let mut late = Vec::new();
            let mut follow = turn.follow(from).await.unwrap();
            while let Some(entry) = follow.next().await.unwrap() {
                late.push(entry);
            }
            assert_eq!(late, steady[usize::try_from(from).unwrap()..], "seed {seed}, turn {n}, from {from}");
            // And the message that is stored is the one that was watched.
            if let Some(stored) = messages.iter().find(|message| message.id == turn.message_id()) {
                let told = open_parts_closed(message_of(turn.message_id(), steady));
                assert_eq!(open_parts_closed(stored.clone()), told, "seed {seed}, turn {n}");
            }
        }
        return forever.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn replay_is_what_was_seen_live_whatever_happens() {
    let (gate, night) = if database::is_in_postgres() { (25, 25) } else { (30, 150) };
    let (first, cases) = (size("FOREVER_REPLAY_SEED", 1, 1), size("FOREVER_REPLAY_CASES", gate, night));
    for seed in first..first + cases {
        soon(&format!("the end of seed {seed}"), one(seed)).await;
    }
}
