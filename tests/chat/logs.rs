//! Logs of turns: what is seen by those who follow from the start, come late, or are slow.
use std::time::Duration;

use forever::agent::Agent;
use forever::chat::message::{Chunk, MAX_CHUNK, UiMessage};
use forever::chat::{ChatAgent, Entry, Turn, TurnState};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Builder, ErrorKind, Forever};
use forever_testkit::database::{self, Database};
use forever_testkit::waiting::{eventually, soon};
use serde_json::json;

/// Writes what its body says: text of so many bytes, in so many chunks.
struct Writes;

impl Agent for Writes {
    const CLASS: &'static str = "writes";
    type State = ();
}

impl ChatAgent for Writes {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let body = turn.body().cloned().unwrap_or_default();
        let number = |field: &str| usize::try_from(body[field].as_u64().unwrap_or(1)).unwrap();
        turn.write(Chunk::text_start("t")).await?;
        for n in 0..number("chunks") {
            turn.write(Chunk::text_delta("t", format!("{n:x>9}").repeat(number("bytes").div_ceil(9)))).await?;
        }
        if body["too_long"] == true {
            let refused = turn.write(Chunk::data("blob", None, json!("x".repeat(MAX_CHUNK)))).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Value);
            assert!(refused.to_string().starts_with("a chunk `data-blob` has 4194"), "{refused}");
        }
        turn.write(Chunk::text_end("t")).await?;
        Ok(())
    }
}

fn writes() -> Builder {
    Forever::builder().chat_agent(|_| Writes)
}

async fn follow(turn: &forever::chat::TurnHandle, from: u64) -> Vec<Entry> {
    let (mut follow, mut entries) = (turn.follow(from).await.unwrap(), Vec::new());
    while let Some(entry) = follow.next().await.unwrap() {
        entries.push(entry);
    }
    entries
}

#[tokio::test(start_paused = true)]
async fn case_101_102_whoever_comes_late_or_is_slow_sees_what_was_seen_from_the_start() {
    let forever = writes().in_memory().open().await.unwrap();
    let agent = forever.agent::<Writes>("a");
    // More than is kept in memory.
    let turn = agent.save_messages([UiMessage::user("u", "hi")]).body(&json!({ "chunks": 3000, "bytes": 9 })).await.unwrap();
    let (steady, slow) = tokio::join!(follow(&turn, 0), async {
        let (mut follow, mut entries) = (turn.follow(0).await.unwrap(), Vec::new());
        while let Some(entry) = follow.next().await.unwrap() {
            entries.push(entry);
            if entries.len() == 10 {
                turn.wait().await.unwrap();
            }
        }
        entries
    });
    assert_eq!(steady.len(), 3000 + 4);
    assert!(steady.iter().zip(0..).take(3003).all(|(entry, n)| matches!(entry, Entry::Chunk(number, _) if *number == n)));
    assert_eq!(slow, steady);
    assert_eq!(follow(&turn, 0).await, steady);
    assert_eq!(turn.entries().await.unwrap(), steady);
    for from in [1, 1500, 3002, 3003] {
        assert_eq!(follow(&turn, from).await, steady[usize::try_from(from).unwrap()..]);
    }
}

/// Writes in a way that shows how its chunks are gathered.
struct Gathers;

impl Agent for Gathers {
    const CLASS: &'static str = "gathers";
    type State = ();
}

impl ChatAgent for Gathers {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        turn.write(Chunk::text_start("t")).await?;
        turn.flush().await?;
        // Long after the last commit, and one after the other.
        for n in 0..3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            turn.write(Chunk::text_delta("t", format!("{n} "))).await?;
        }
        turn.flush().await?;
        for n in 3..100 {
            turn.write(Chunk::text_delta("t", format!("{n} "))).await?;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_gathers_chunks_and_keeps_nobody_waiting_who_flushes_has_no_room_or_closes() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let forever = Forever::builder().sqlite(&path).turn_batching(10, Duration::from_secs(3600)).chat_agent(|_| Gathers);
    let forever = forever.open().await.unwrap();
    let turn = forever.agent::<Gathers>("a").save_messages([UiMessage::user("u", "hi")]).await.unwrap();
    let ended = async {
        assert!(turn.wait().await.unwrap().is_completed());
        forever.close().deadline(Duration::from_secs(7200)).await.unwrap();
    };
    soon("an end that waits for no hour", ended).await;
    // As they came: the log of a turn that has ended is one row.
    let rows = Database::open(&path).rows(&format!("SELECT count FROM {} ORDER BY first", database::chunks()));
    let counts: Vec<u32> = rows.into_iter().map(|row| row[0].as_deref().unwrap().parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u32>(), 2 + 100);
    assert!(counts.contains(&3), "those that were written within the pause are together: {counts:?}");
    assert!(counts.iter().all(|count| *count <= 10), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn text_of_any_length_is_stored_in_pieces_and_anything_else_too_long_is_refused() {
    let forever = writes().in_memory().open().await.unwrap();
    let agent = forever.agent::<Writes>("a");
    let long = json!({ "chunks": 1, "bytes": 18 << 20, "too_long": true });
    let turn = agent.save_messages([UiMessage::user("u", "hi")]).body(&long).await.unwrap();
    assert!(turn.wait().await.unwrap().is_completed());
    assert!(turn.entries().await.unwrap().len() > 6);
    assert_eq!(agent.messages().await.unwrap()[1].text().len(), 18 << 20);
}

#[tokio::test(start_paused = true)]
async fn past_turns_keep_their_own_ends_in_the_next_process_too() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let mut seen = Vec::new();
    {
        let forever = writes().sqlite(&path).open().await.unwrap();
        let agent = forever.agent::<Writes>("a");
        for n in 0..3 {
            let turn =
                agent.save_messages([UiMessage::user(format!("u{n}"), "hi")]).id(format!("r{n}")).body(&json!({ "chunks": n })).await;
            seen.push(follow(&turn.unwrap(), 0).await);
        }
        forever.close().await.unwrap();
    }
    let forever = writes().sqlite(&path).open().await.unwrap();
    let agent = forever.agent::<Writes>("a");
    for (n, seen) in seen.iter().enumerate() {
        let turn = agent.turn(&format!("r{n}")).await.unwrap().unwrap();
        assert_eq!(follow(&turn, 0).await, *seen);
    }
    assert_eq!(agent.turns(&[TurnState::Completed]).await.unwrap().len(), 3);
    assert!(agent.turns(&[TurnState::Running]).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn chunks_go_after_a_while_and_turns_later_and_messages_stay() {
    let clock = VirtualClock::new();
    let forever = writes().in_memory().clock(clock.clone()).replay_retention(Duration::from_secs(600)).open().await.unwrap();
    let agent = forever.agent::<Writes>("a");
    let turn = agent.save_messages([UiMessage::user("u", "hi")]).id("r").await.unwrap();
    let whole = follow(&turn, 0).await;
    clock.advance(Duration::from_secs(500));
    assert_eq!(follow(&turn, 0).await, whole);
    clock.advance(Duration::from_secs(200));
    eventually("the end of its chunks", async || {
        clock.advance(Duration::from_secs(60));
        follow(&turn, 0).await.len() == 1
    })
    .await;
    assert_eq!(follow(&turn, 0).await, whole[whole.len() - 1..], "its end is left");
    clock.advance(Duration::from_secs(8 * 24 * 3600));
    eventually("the end of its retention", async || {
        clock.advance(Duration::from_secs(3600));
        agent.turn("r").await.unwrap().is_none()
    })
    .await;
    assert_eq!(turn.wait().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(agent.messages().await.unwrap().len(), 2);
}
