//! Those who come later, go, and come again, and what they see. The numbers are those of the cases in docs/guide/src/internals/guarantees.md; what of these cases
//! is frames on a wire is the server's.
use std::time::Duration;

use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{Entry, TurnState, TurnStatus};
use forever::prelude::*;
use forever_testkit::database::{self, Database};
use forever_testkit::gates::Gates;
use forever_testkit::waiting::eventually;
use serde_json::json;

use crate::hooks::{Hooks, Place, ask, asked, killed, last, rest, says, shown, turn};
use crate::scripted::told;

#[tokio::test(start_paused = true)]
async fn case_86_87_88_a_turn_under_way_is_followed_by_all_who_like_as_often_as_they_like() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        says(&turn, &["a ", "b "]).await?;
        if before == 0 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let before = {
        let (_forever, agent) = place.open(&hooks).await;
        let turn = ask(&agent, json!({})).await;
        let first = shown(&turn, 4).await;
        let (second, third) = tokio::join!(shown(&turn, 4), shown(&turn, 4));
        assert_eq!((&second, &third), (&first, &first));
        first
    };
    // Those who had asked are gone with their process.
    let (_forever, agent) = place.open(&hooks).await;
    let turn = turn(&agent).await;
    let (all, later) = tokio::join!(rest(&turn, 0), rest(&turn, 4));
    assert_eq!(all[..4], before);
    assert_eq!(all[4..], later);
    assert_eq!(told(&turn).await, "start|text-start|a |b |a |b |completed");
}

#[tokio::test(start_paused = true)]
async fn case_89_95_112_who_follows_a_turn_before_it_begins_sees_all_of_it() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            std::future::pending::<()>().await;
        }
        says(&turn, &["word"]).await
    });
    let (_forever, agent) = place.open(&hooks).await;
    let first = ask(&agent, json!({})).await;
    asked(&hooks, 1).await;
    let second = agent.save_messages([UiMessage::user("v", "and then")]).await.unwrap();
    let mut early = second.follow(0).await.unwrap();
    assert!(early.try_next().await.unwrap().is_none());
    assert_eq!(second.status().await.unwrap().state(), TurnState::Queued);
    let mut of_first = first.follow(0).await.unwrap();
    first.cancel("go on").await.unwrap();
    assert!(matches!(of_first.next().await.unwrap(), Some(Entry::End(end)) if end.state() == TurnState::Aborted));
    assert!(of_first.next().await.unwrap().is_none(), "nothing of the next turn");
    let mut entries = Vec::new();
    while let Some(entry) = early.next().await.unwrap() {
        entries.push(entry);
    }
    assert_eq!(entries.len(), 4);
    assert_eq!(entries, rest(&second, 0).await);
}

#[tokio::test(start_paused = true)]
async fn case_90_91_92_what_is_under_way_is_known_and_each_turn_has_its_own_log() {
    let place = Place::new();
    let gates = Gates::new();
    let answers = gates.clone();
    let hooks = Hooks::new(move |turn, _| {
        let answers = answers.clone();
        async move {
            answers.pass("answers").await;
            let id = turn.id().to_owned();
            says(&turn, &[&id]).await
        }
    });
    let (_forever, agent) = place.open(&hooks).await;
    let open = [TurnState::Queued, TurnState::Running];
    assert!(agent.turns(&open).await.unwrap().is_empty());
    assert!(agent.wait_until_stable(Duration::ZERO).await.unwrap());
    assert!(agent.turn("r").await.unwrap().is_none());
    let first = ask(&agent, json!({})).await;
    let second = agent.save_messages([UiMessage::user("v", "and then")]).id("other").await.unwrap();
    let listed = agent.turns(&open).await.unwrap();
    assert_eq!(listed.iter().map(TurnStatus::id).collect::<Vec<_>>(), ["r", "other"]);
    gates.open("answers");
    second.wait().await.unwrap();
    assert_eq!(told(&first).await, "start|text-start|r|completed");
    assert_eq!(told(&second).await, "start|text-start|other|completed");
    assert!(agent.turns(&open).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_93_94_110_111_an_error_is_told_with_what_came_before_it_as_often_as_it_is_asked_for() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["half"]).await?;
        }
        turn.write(Chunk::error(format!("provider said no to {}", turn.id()))).await?;
        Ok(())
    });
    {
        let (forever, agent) = place.open(&hooks).await;
        ask(&agent, json!({})).await.wait().await.unwrap();
        agent.save_messages([UiMessage::user("v", "again")]).id("s").await.unwrap().wait().await.unwrap();
        forever.close().await.unwrap();
    }
    let (_forever, agent) = place.open(&hooks).await;
    let (first, second) = (turn(&agent).await, agent.turn("s").await.unwrap().unwrap());
    for _ in 0..3 {
        // One who goes before the end is told when they come again.
        let mut gone = first.follow(0).await.unwrap();
        gone.next().await.unwrap();
        drop(gone);
        assert_eq!(told(&first).await, "start|text-start|half|error(provider said no to r)");
        assert_eq!(told(&second).await, "error(provider said no to s)");
    }
    assert_eq!(agent.messages().await.unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn case_100_chunks_that_come_together_are_stored_together() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        turn.write(Chunk::text_start("t")).await?;
        for n in 0..3000 {
            turn.write(Chunk::text_delta("t", format!("{n} "))).await?;
        }
        Ok(())
    });
    let builder = hooks.builder().turn_batching(256, Duration::from_millis(4)).sqlite(place.path());
    let forever = builder.open().await.unwrap();
    let turn = ask(&forever.agent("a"), json!({})).await;
    assert_eq!(rest(&turn, 0).await.len(), 3003);
    forever.close().await.unwrap();
    let database = Database::open(place.path());
    let chunks = database.number("SELECT sum(count) FROM turn_log");
    // In a file, long ones come into the one table and short ones into the other.
    let rows = database.number(if database::is_in_postgres() {
        "SELECT count(*) FROM turn_log"
    } else {
        "SELECT (SELECT count(*) FROM stream_chunks) + coalesce((SELECT max(seq) FROM stream_tail), 0)"
    });
    assert_eq!(chunks, 3002);
    assert!(rows <= 3002 / 64, "{rows} rows");
}

#[tokio::test(start_paused = true)]
async fn case_103_who_has_caught_up_knows_it() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        says(&turn, &["a ", "b "]).await?;
        std::future::pending().await
    });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    shown(&turn, 4).await;
    let mut follow = turn.follow(0).await.unwrap();
    for _ in 0..4 {
        assert!(follow.try_next().await.unwrap().is_some());
    }
    assert!(follow.try_next().await.unwrap().is_none());
    turn.cancel("enough").await.unwrap();
    assert!(matches!(follow.next().await.unwrap(), Some(Entry::End(_))));
}

#[tokio::test(start_paused = true)]
async fn case_104_105_106_a_turn_that_its_fiber_has_left_is_settled_and_keeps_no_other_waiting() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        let speaks = turn.body().is_some_and(|body| body["speaks"] == true);
        if speaks {
            says(&turn, &["partial"]).await?;
        }
        if turn.body().is_some_and(|body| body["ends"] == true) {
            return Ok(());
        }
        std::future::pending().await
    });
    // Its fiber is ended behind its back.
    let left = async |body: serde_json::Value, continues: bool, entries: usize| {
        {
            let (_forever, agent) = place.open(&hooks).await;
            let before = hooks.seen.count("asked");
            let new = if continues { agent.continue_last_turn() } else { agent.save_messages([UiMessage::user("u", "hi")]) };
            let turn = new.id("left").body(&body).await.unwrap();
            asked(&hooks, before + 1).await;
            shown(&turn, entries).await;
        }
        let database = Database::open(place.path());
        assert_eq!(database.number("SELECT count(*) FROM fibers WHERE finished_ms IS NULL"), 1);
        database.run("UPDATE fibers SET state = 'failed', finished_ms = 1 WHERE finished_ms IS NULL");
        drop(database);
        let (forever, agent) = place.open(&hooks).await;
        assert_eq!(agent.turn("left").await.unwrap().unwrap().wait().await.unwrap().state(), TurnState::Interrupted);
        let next = agent.save_messages([UiMessage::user("w", "next")]).body(&json!({ "ends": true })).await.unwrap();
        assert!(next.wait().await.unwrap().is_completed(), "it waits for nothing");
        let texts: Vec<String> = agent.messages().await.unwrap().iter().map(UiMessage::text).collect();
        forever.close().await.unwrap();
        database::remove(&place.path()).await;
        texts
    };
    assert_eq!(left(json!({ "speaks": true }), false, 3).await, ["hi", "partial", "next"]);
    assert_eq!(left(json!({}), false, 0).await, ["hi", "next"]);
    // One that adds to an answer: what there is of it is in that answer.
    {
        let (forever, agent) = place.open(&hooks).await;
        ask(&agent, json!({ "speaks": true, "ends": true })).await.wait().await.unwrap();
        forever.close().await.unwrap();
    }
    assert_eq!(left(json!({ "speaks": true }), true, 3).await, ["hi", "partialpartial", "next"]);
}

#[tokio::test(start_paused = true)]
async fn case_107_the_log_of_a_turn_under_way_stays_however_long_it_takes() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        says(&turn, &["word "]).await?;
        while turn.body().is_some_and(|body| body["goes on"] == true) {
            turn.write(Chunk::text_delta("t", "more ")).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    });
    let (forever, agent) = place.open(&hooks).await;
    let long = ask(&agent, json!({ "goes on": true })).await;
    let before = shown(&long, 10).await;
    let short = ask(&forever.agent("b"), json!({})).await;
    short.wait().await.unwrap();
    // Until those of a turn that has ended since are gone.
    eventually("the end of their retention", async || {
        place.clock.advance(Duration::from_secs(24 * 3600));
        short.entries().await.unwrap().len() == 1
    })
    .await;
    let there = long.entries().await.unwrap().len();
    assert_eq!(shown(&long, there + 10).await[..10], before, "and it goes on");
    let stored = Database::open(place.path()).number("SELECT sum(count) FROM turn_log");
    assert!(stored >= i64::try_from(there + 10).unwrap(), "{stored} of {there} and 10 more");
}

#[tokio::test(start_paused = true)]
async fn case_108_a_turn_that_adds_to_an_answer_says_so_in_the_next_process_too() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        assert_eq!(turn.is_continuation(), turn.id() == "more" || turn.recovery().is_some());
        says(&turn, &["word "]).await?;
        if turn.id() == "more" && turn.recovery().is_none() {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    {
        let (_forever, agent) = place.open(&hooks).await;
        ask(&agent, json!({})).await.wait().await.unwrap();
        let more = agent.continue_last_turn().id("more").await.unwrap();
        assert!(more.status().await.unwrap().is_continuation());
        shown(&more, 3).await;
    }
    let (_forever, agent) = place.open(&hooks).await;
    let more = agent.turn("more").await.unwrap().unwrap();
    assert!(more.status().await.unwrap().is_continuation());
    assert!(!turn(&agent).await.status().await.unwrap().is_continuation());
    assert!(more.wait().await.unwrap().is_completed());
    assert_eq!(last(&agent).await.text(), "word word word ");
    assert_eq!(agent.messages().await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_has_no_end_yet_is_not_taken_for_one_that_has() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        says(&turn, &["half"]).await?;
        std::future::pending().await
    });
    let seen = killed(&place, &hooks, 3).await;
    let (_forever, agent) = place.open(&hooks).await;
    let turn = turn(&agent).await;
    assert_eq!(turn.entries().await.unwrap()[..3], seen);
    let mut follow = turn.follow(3).await.unwrap();
    while let Some(entry) = follow.try_next().await.unwrap() {
        assert!(matches!(entry, Entry::Chunk(..)), "{entry:?}");
    }
}
