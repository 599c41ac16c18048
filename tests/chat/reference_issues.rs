//! What was reported against the closest system, each so that it would show here. See "Cases of another system" in docs/guide/src/internals/guarantees.md.
use std::sync::Arc;
use std::time::Duration;

use forever::chat::message::{Chunk, Role, UiMessage};
use forever::chat::{Entry, RecoveryKind, RecoveryPolicy, ToolAnswer, TurnState};
use forever::prelude::*;
use forever_testkit::waiting::eventually;
use serde_json::json;

use crate::hooks::{Hooks, Place, ask, asked, killed, last, policy, rest, says, shown, turn};
use crate::scripted::told;

fn texts(messages: &[UiMessage]) -> Vec<String> {
    messages.iter().map(UiMessage::text).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_open_and_empty_keeps_its_question_and_is_answered() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            turn.write(Chunk::start()).await?;
            turn.flush().await?;
            std::future::pending::<()>().await;
        }
        assert_eq!(turn.recovery().unwrap().kind(), RecoveryKind::Retry);
        assert_eq!(turn.messages()[0].text(), "hi");
        says(&turn, &["here"]).await
    });
    killed(&place, &hooks, 1).await;
    let (_forever, agent) = place.open(&hooks).await;
    assert!(turn(&agent).await.wait().await.unwrap().is_completed());
    assert_eq!(texts(&agent.messages().await.unwrap()), ["hi", "here"]);
    assert_eq!(told(&turn(&agent).await).await, "start|text-start|here|completed");
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_looked_at_again_after_a_look_that_failed() {
    let place = Place::new();
    let mut hooks = Hooks::new(|turn, before| async move {
        says(&turn, &["word "]).await?;
        if before == 0 { std::future::pending().await } else { Ok(()) }
    });
    killed(&place, &hooks, 3).await;
    // A process in which the agent does not come into memory, and that is killed too.
    hooks.starts = Arc::new(|_| Err("no connection".into()));
    {
        let (_forever, agent) = place.open(&hooks).await;
        eventually("its second start", async || hooks.seen.count("starts") >= 2).await;
        assert_eq!(turn(&agent).await.status().await.unwrap().state(), TurnState::Running);
    }
    // The next one has trouble at first.
    let before = hooks.seen.count("starts");
    hooks.starts = Arc::new(move |starts| if starts <= before + 2 { Err("no connection".into()) } else { Ok(()) });
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&turn(&agent).await).await.is_completed());
    assert_eq!(last(&agent).await.text(), "word word ");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_left_long_ago_does_not_recover_for_ever() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        turn.write(Chunk::data("attempt", None, json!(before))).await?;
        turn.flush().await?;
        std::future::pending().await
    });
    killed(&place, &hooks, 2).await;
    place.clock.advance(Duration::from_secs(30 * 24 * 3600));
    let mut ends = Vec::new();
    for process in 1..20 {
        let (_forever, agent) = place.open(&hooks).await;
        let turn = turn(&agent).await;
        tokio::select! {
            end = turn.wait() => ends.push(end.unwrap()),
            () = asked(&hooks, process + 1) => {}
        }
    }
    assert_eq!(hooks.seen.count("asked"), 6, "once, and after each of five deaths");
    assert_eq!(ends.len(), 20 - 6);
    assert!(ends.iter().all(|end| end.state() == TurnState::Error && *end == ends[0]));
}

#[tokio::test(start_paused = true)]
async fn what_is_interrupted_is_not_added_to_the_answer_before_it() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        says(&turn, &[["first", "second, ", "and its rest"][before as usize]]).await?;
        if before == 1 { std::future::pending().await } else { Ok(()) }
    });
    {
        let (_forever, agent) = place.open(&hooks).await;
        let first = agent.save_messages([UiMessage::user("u1", "one")]).await.unwrap();
        first.wait().await.unwrap();
        let second = agent.save_messages([UiMessage::user("u2", "two")]).id("r").await.unwrap();
        shown(&second, 3).await;
    }
    let (_forever, agent) = place.open(&hooks).await;
    let second = turn(&agent).await;
    assert!(second.wait().await.unwrap().is_completed());
    let messages = agent.messages().await.unwrap();
    assert_eq!(texts(&messages), ["one", "first", "two", "second, and its rest"]);
    assert_eq!(messages[3].id, second.message_id());
    assert_ne!(messages[1].id, messages[3].id);
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_again_sees_each_chunk_once() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        says(&turn, if before == 0 { &["a ", "b ", "c "] } else { &["d ", "e "] }).await?;
        if before == 0 { std::future::pending().await } else { Ok(()) }
    });
    let seen = killed(&place, &hooks, 5).await;
    let (_forever, agent) = place.open(&hooks).await;
    let turn = turn(&agent).await;
    let (all, behind) = tokio::join!(rest(&turn, 0), rest(&turn, seen.len() as u64));
    assert_eq!(told(&turn).await, "start|text-start|a |b |c |d |e |completed");
    assert_eq!([seen, behind].concat(), all);
    let numbers: Vec<u64> = all.iter().filter_map(|entry| if let Entry::Chunk(n, _) = entry { Some(*n) } else { None }).collect();
    assert_eq!(numbers, (0..7).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_recovered_comes_to_those_who_wait_for_it() {
    policy(RecoveryPolicy::default().stall_timeout(Duration::from_secs(20)));
    let place = Place::new();
    let mut hooks = Hooks::new(|turn, before| async move {
        says(&turn, &["word "]).await?;
        if before < 2 { std::future::pending().await } else { Ok(()) }
    });
    {
        let (_forever, agent) = place.open(&hooks).await;
        let turn = ask(&agent, json!({})).await;
        shown(&turn, 3).await;
        let mut follow = turn.follow(3).await.unwrap();
        // Its stream falls silent, and the next attempt is heard by whoever was there.
        tokio::select! {
            more = follow.next() => assert!(matches!(more.unwrap(), Some(Entry::Chunk(3, _)))),
            _ = place.ended(&turn) => panic!("it waits"),
        }
    }
    // In the next process somebody is there before the agent is.
    let before = hooks.seen.count("starts");
    hooks.starts = Arc::new(move |starts| if starts <= before + 2 { Err("no connection".into()) } else { Ok(()) });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = turn(&agent).await;
    let (entries, _) = tokio::join!(rest(&turn, 4), place.ended(&turn));
    assert_eq!(entries.len(), 2);
    assert!(matches!(&entries[1], Entry::End(end) if end.is_completed()));
}

#[tokio::test(start_paused = true)]
async fn a_turn_keeps_its_id_however_often_it_is_gone_on_with() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        assert_eq!(turn.id(), "r");
        says(&turn, &["word "]).await?;
        if before < 3 { std::future::pending().await } else { Ok(()) }
    });
    let message = {
        let seen = killed(&place, &hooks, 3).await;
        let Entry::Chunk(0, start) = &seen[0] else { panic!("{seen:?}") };
        start.read().unwrap().get("messageId").unwrap().as_str().unwrap().to_owned()
    };
    for entries in [4, 5] {
        let (_forever, agent) = place.open(&hooks).await;
        shown(&turn(&agent).await, entries).await;
    }
    let (_forever, agent) = place.open(&hooks).await;
    // What a client asks that knows the id of its request and nothing else.
    let end = turn(&agent).await.wait().await.unwrap();
    assert!(end.is_completed());
    assert_eq!(agent.turns(&[]).await.unwrap().len(), 1);
    assert_eq!((last(&agent).await.id, turn(&agent).await.message_id()), (message.clone(), message.as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_or_hangs_at_each_recovery_is_asked_a_bounded_number_of_times() {
    for hangs in [false, true] {
        policy(RecoveryPolicy::default().max_attempts(3));
        let place = Place::new();
        let hooks = Hooks::new(|turn, _| async move {
            says(&turn, &["half"]).await?;
            std::future::pending().await
        });
        killed(&place, &hooks, 3).await;
        let hooks = if hangs { hooks.recovers_never() } else { hooks.decides(|_| Err("poison".into())) };
        let (_forever, agent) = place.open(&hooks).await;
        let turn = turn(&agent).await;
        assert_eq!(place.ended(&turn).await.state(), TurnState::Error);
        assert_eq!(hooks.seen.count("recovers"), 3);
        let next = agent.save_messages([UiMessage::user("v", "and now")]).await.unwrap();
        asked(&hooks, 2).await;
        next.cancel("enough").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_past_turn_keeps_its_own_error() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 1 {
            return says(&turn, &["fine"]).await;
        }
        turn.write(Chunk::error(format!("error {before}"))).await?;
        Ok(())
    });
    {
        let (forever, agent) = place.open(&hooks).await;
        for n in 0..3 {
            agent.save_messages([UiMessage::user(format!("u{n}"), "hi")]).id(format!("r{n}")).await.unwrap().wait().await.unwrap();
        }
        forever.close().await.unwrap();
    }
    let (_forever, agent) = place.open(&hooks).await;
    let ends = agent.turns(&[]).await.unwrap();
    let ends: Vec<_> = ends.iter().map(|turn| (turn.state(), turn.reason())).collect();
    assert_eq!(ends, [(TurnState::Error, Some("error 0")), (TurnState::Completed, None), (TurnState::Error, Some("error 2"))]);
    // A plain reload shows it, too: of each of them, in its own message.
    let messages = agent.messages().await.unwrap();
    let marks: Vec<_> =
        messages.iter().filter(|m| m.role == Role::Assistant).map(|m| m.metadata.as_ref().map(|m| &m["forever"]["reason"])).collect();
    assert_eq!(marks, [Some(&json!("error 0")), None, Some(&json!("error 2"))]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_tool_after_a_restart_and_an_error_of_another_lose_no_continuation() {
    for last_is_error in [false, true] {
        let place = Place::new();
        let hooks = Hooks::new(|turn, before| async move {
            if before == 0 {
                for call in ["one", "two"] {
                    turn.write(Chunk::tool_input_available(call, "look", json!({}))).await?;
                }
                return Ok(());
            }
            says(&turn, &["thanks"]).await
        });
        {
            let (_forever, agent) = place.open(&hooks).await;
            ask(&agent, json!({})).await.wait().await.unwrap();
        }
        let answers = [("one", ToolAnswer::Output(json!(1)), true), ("two", ToolAnswer::Error("no signal".into()), false)];
        let mut answers = Vec::from(answers);
        if !last_is_error {
            answers.reverse();
        }
        let mut continued = None;
        for (call, answer, wanted) in answers {
            // A process for each.
            let (forever, agent) = place.open(&hooks).await;
            let answered = agent.answer_tool(call, answer, wanted).await.unwrap();
            assert!(answered.applied);
            if let Some(turn) = answered.continued {
                assert!(turn.wait().await.unwrap().is_completed());
                continued = Some(last(&agent).await.text());
            }
            forever.close().await.unwrap();
        }
        assert_eq!(continued.as_deref(), Some("thanks"), "{last_is_error}");
        assert_eq!(hooks.seen.count("asked"), 2);
    }
}
