//! Interruptions: who is asked, what they are told, and when it is over. The numbers are those of the cases in docs/guide/src/internals/guarantees.md.
use std::sync::Arc;
use std::time::Duration;

use forever::Forever;
use forever::chat::message::{Chunk, Part, Role, ToolState, UiMessage};
use forever::chat::model::ToolSpec;
use forever::chat::{ChatRecovery, ChatRecoveryOptions, Exhausted, RecoveryKind, RecoveryPolicy, ToolAnswer, TurnState};
use forever::prelude::*;
use forever::testing::crash_everywhere;
use forever_testkit::database::Database;
use forever_testkit::notes::Notes;
use forever_testkit::sizes;
use forever_testkit::waiting::eventually;
use serde_json::{Value, json};

use crate::damaged::{parked, sql};
use crate::hooks::{Hooks, Place, ask, asked, killed, last, policy, rest, says, shown, turn};
use crate::scripted::{Passing, Scripted, in_world, told};

#[tokio::test(start_paused = true)]
async fn case_63_117_122_the_recovery_knows_everything_that_there_was() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["half ", "an answer"]).await?;
            turn.stash(&json!({ "cursor": 7 })).await?;
            turn.write(Chunk::data("ready", None, json!(1))).await?;
            turn.flush().await?;
            std::future::pending::<()>().await;
        }
        let recovery = turn.recovery().unwrap();
        assert_eq!(recovery.kind(), RecoveryKind::Continue);
        assert_eq!(recovery.incident_id(), "incident-r");
        assert_eq!((recovery.request_id(), recovery.stream_id()), ("r", "r"));
        assert_eq!((recovery.attempt(), recovery.max_attempts(), recovery.deaths()), (1, 10, 1));
        assert_eq!(recovery.partial_text(), "half an answer");
        assert_eq!(recovery.partial_parts().len(), 2);
        assert_eq!(recovery.recovery_data::<Value>().unwrap(), Some(json!({ "cursor": 7 })));
        assert_eq!(recovery.messages()[0].text(), "hi");
        assert_eq!(recovery.last_body(), Some(&json!({ "model": "m" })));
        assert_eq!(recovery.last_client_tools()[0].name, "location");
        assert_eq!(turn.stashed::<Value>().unwrap(), Some(json!({ "cursor": 7 })));
        assert!(turn.is_continuation());
        says(&turn, &[", and the other half"]).await
    });
    let (forever, agent) = place.open(&hooks).await;
    let location = ToolSpec { name: "location".into(), ..ToolSpec::default() };
    let asked = agent.save_messages([UiMessage::user("u", "hi")]).id("r").body(&json!({ "model": "m" })).client_tools([location]);
    let turn = asked.await.unwrap();
    shown(&turn, 5).await;
    drop((turn, agent, forever));
    let (_forever, agent) = place.open(&hooks).await;
    let turn = agent.turn("r").await.unwrap().unwrap();
    let end = turn.wait().await.unwrap();
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(agent.messages().await.unwrap().len(), 2, "the question is not doubled");
    assert!(last(&agent).await.text().starts_with("half an answer, and"));
}

#[tokio::test(start_paused = true)]
async fn case_70_an_error_of_should_keep_recovering_means_yes() {
    policy(RecoveryPolicy::default().max_attempts(4).should_keep_recovering(|_| async { Err("nobody knows".into()) }));
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move { if before < 3 { Err(Passing.into()) } else { says(&turn, &["done"]).await } });
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
}

#[tokio::test(start_paused = true)]
async fn case_71_should_keep_recovering_is_asked_from_the_second_attempt_on() {
    let asked = Notes::default();
    let of_policy = asked.clone();
    policy(RecoveryPolicy::default().terminal_message("over").should_keep_recovering(move |recovery: ChatRecovery| {
        of_policy.note(format!("{}", recovery.attempt()));
        async { Ok(false) }
    }));
    let place = Place::new();
    let hooks = Hooks::new(|_, _| async { Err(Passing.into()) });
    let (_forever, agent) = place.open(&hooks).await;
    let end = place.ended(&ask(&agent, json!({})).await).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("over")));
    assert_eq!(asked.all(), ["2"]);
    assert_eq!(hooks.seen.count("asked"), 2, "once, and once more");
}

#[tokio::test(start_paused = true)]
async fn case_77_an_agent_that_does_not_wake_is_tried_again_and_then_the_turn_is_given_up() {
    let reasons = Notes::default();
    let of_policy = reasons.clone();
    let given_up = RecoveryPolicy::default().max_attempts(3).terminal_message("not there").on_exhausted(move |exhausted: Exhausted| {
        of_policy.note(exhausted.reason().as_str());
        async { Ok(()) }
    });
    policy(given_up);
    let place = Place::new();
    let mut hooks = Hooks::new(|turn, _| async move { says(&turn, &["here"]).await });
    hooks.starts = Arc::new(|_| Err("no connection".into()));
    let (_forever, agent) = place.open(&hooks).await;
    let end = place.ended(&ask(&agent, json!({})).await).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("not there")));
    assert_eq!(reasons.all(), ["stable_timeout"]);
    // One that wakes after a while answers.
    let mut late = Hooks::new(|turn, _| async move { says(&turn, &["here"]).await });
    late.starts = Arc::new(|starts| if starts < 3 { Err("no connection".into()) } else { Ok(()) });
    let place = Place::new();
    let (_forever, agent) = place.open(&late).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
}

#[tokio::test(start_paused = true)]
async fn case_81_a_turn_is_given_up_although_on_exhausted_fails() {
    policy(RecoveryPolicy::default().max_attempts(1).terminal_message("over").on_exhausted(|_| async { Err("no".into()) }));
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["partial"]).await?;
        }
        Err(Passing.into())
    });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    assert_eq!(place.ended(&turn).await.reason(), Some("over"));
    assert_eq!(told(&turn).await, "start|text-start|partial|error(over)");
    assert_eq!(last(&agent).await.text(), "partial", "what there was is kept");
}

#[tokio::test(start_paused = true)]
async fn case_83_results_of_tools_are_kept_whatever_the_hook_says_of_the_rest() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["thinking"]).await?;
            turn.write(Chunk::text_end("t")).await?;
            turn.write(Chunk::tool_input_available("c", "charge", json!({}))).await?;
            turn.write(Chunk::tool_output_available("c", json!("charged"))).await?;
            turn.flush().await?;
            return Err(Passing.into());
        }
        assert_eq!(turn.message().await.parts.len(), 1);
        says(&turn, &["done"]).await
    })
    .decides(|_| Ok(ChatRecoveryOptions::default().persist(false)));
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
    let message = last(&agent).await;
    assert_eq!(message.text(), "done");
    assert_eq!(message.parts[0].get("output"), Some(&json!("charged")));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_to_go_on_ends_as_interrupted() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        says(&turn, &["partial"]).await?;
        Err(Passing.into())
    })
    .decides(|_| Ok(ChatRecoveryOptions::default().continue_turn(false)));
    let (_forever, agent) = place.open(&hooks).await;
    let end = place.ended(&ask(&agent, json!({})).await).await;
    assert_eq!(end.state(), TurnState::Interrupted);
    let message = last(&agent).await;
    assert_eq!(message.text(), "partial");
    // Why is for the program; people are told that it was.
    assert!(end.reason().is_some_and(|why| why != "The answer was interrupted."), "{end:?}");
    let told = json!({ "outcome": "interrupted", "reason": "The answer was interrupted." });
    assert_eq!(message.metadata.unwrap()["forever"], told);
    assert_eq!(hooks.seen.count("asked"), 1);
}

#[tokio::test(start_paused = true)]
async fn case_79_84_a_turn_that_is_given_up_asks_nobody_any_more() {
    policy(RecoveryPolicy::default().max_attempts(2));
    let place = Place::new();
    let hooks = Hooks::new(|_, _| async { Err(Passing.into()) });
    let (forever, agent) = place.open(&hooks).await;
    assert_eq!(place.ended(&ask(&agent, json!({})).await).await.state(), TurnState::Error);
    let attempts: Vec<_> = hooks.seen.all().into_iter().filter(|seen| seen.starts_with("recovers")).collect();
    assert_eq!(attempts, ["recovers 1", "recovers 2"]);
    let seen = hooks.seen.all();
    forever.close().await.unwrap();
    let incident = |column: &str| Database::open(place.path()).text(&format!("SELECT {column} FROM incidents"));
    assert_eq!((incident("state").as_str(), incident("reason").as_str()), ("exhausted", "max_attempts_exceeded"));
    for _ in 0..3 {
        let (_forever, agent) = place.open(&hooks).await;
        assert!(turn(&agent).await.wait().await.unwrap().reason().is_some());
        assert!(agent.wait_until_stable(Duration::from_secs(5)).await.unwrap());
    }
    assert_eq!(hooks.seen.all(), seen, "nobody hears of it again");
}

#[tokio::test(start_paused = true)]
async fn case_85_a_recovery_hook_that_fails_is_one_more_interruption() {
    policy(RecoveryPolicy::default().max_attempts(3));
    let place = Place::new();
    let hooks = Hooks::new(|_, _| async { Err(Passing.into()) }).decides(|_| Err("it fails".into()));
    let (_forever, agent) = place.open(&hooks).await;
    assert_eq!(place.ended(&ask(&agent, json!({})).await).await.state(), TurnState::Error);
    assert_eq!(hooks.seen.count("recovers"), 3);
    assert_eq!(hooks.seen.count("asked"), 1);
}

#[tokio::test(start_paused = true)]
async fn case_96_121_a_stream_that_falls_silent_is_gone_on_with() {
    policy(RecoveryPolicy::default().stall_timeout(Duration::from_secs(20)));
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["One "]).await?;
            std::future::pending::<()>().await;
        }
        assert_eq!(turn.recovery().unwrap().reason(), "its stream was silent for 20s");
        says(&turn, &["two"]).await
    });
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
    let message = last(&agent).await;
    assert_eq!((message.text().as_str(), message.parts.len()), ("One two", 1), "in the same part");
}

#[tokio::test(start_paused = true)]
async fn case_113_a_turn_that_comes_further_is_not_ended_by_time_or_attempts() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        says(&turn, &["word "]).await?;
        if before < 40 { Err(Passing.into()) } else { Ok(()) }
    });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    assert!(place.ended_after(&turn, Duration::from_secs(600)).await.is_completed());
    assert_eq!(last(&agent).await.text().matches("word").count(), 41);
}

#[tokio::test(start_paused = true)]
async fn case_115_a_new_turn_is_its_own_message_after_one_that_was_left() {
    policy(RecoveryPolicy::default().max_attempts(1));
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        says(&turn, &["first"]).await?;
        if turn.id() == "r" { Err("broken".into()) } else { Ok(()) }
    });
    let (_forever, agent) = place.open(&hooks).await;
    place.ended(&ask(&agent, json!({})).await).await;
    let second = agent.save_messages([UiMessage::user("v", "again")]).await.unwrap();
    assert!(place.ended(&second).await.is_completed());
    let messages = agent.messages().await.unwrap();
    assert_eq!(messages.iter().map(|m| m.role).collect::<Vec<_>>(), [Role::User, Role::Assistant].repeat(2));
    assert_ne!(messages[1].id, messages[3].id);
}

#[tokio::test(start_paused = true)]
async fn case_119_a_dead_tool_of_the_server_is_settled_and_the_turn_goes_on() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            turn.write(Chunk::tool_input_available("c", "search", json!({}))).await?;
            turn.flush().await?;
            return Err(Passing.into());
        }
        says(&turn, &["without it"]).await
    });
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
    let message = last(&agent).await;
    assert_eq!(message.parts[0].tool_state(), Some(ToolState::OutputError));
    assert_eq!(message.text(), "without it");
    let open = |part: &Part| part.tool_state().is_some_and(|state| !state.is_settled());
    assert!(!message.parts.iter().any(open));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_does_not_wait_for_its_next_attempt() {
    policy(RecoveryPolicy::default().retry_delay(Duration::from_secs(60)));
    let place = Place::new();
    let hooks = Hooks::new(|_, _| async { Err(Passing.into()) });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    asked(&hooks, 1).await;
    // No time passes on the clock.
    turn.cancel("enough").await.unwrap();
    assert_eq!(turn.wait().await.unwrap().state(), TurnState::Aborted);
}

#[tokio::test(start_paused = true)]
async fn case_72_119_a_question_to_the_client_costs_no_attempts_however_many_processes_die() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            turn.write(Chunk::tool_input_available("c", "location", json!({}))).await?;
            turn.flush().await?;
            std::future::pending::<()>().await;
        }
        assert_eq!(turn.message().await.parts[0].get("output"), Some(&json!("here")));
        says(&turn, &["thanks"]).await
    });
    {
        let (_forever, agent) = place.open(&hooks).await;
        let location = ToolSpec { name: "location".into(), ..ToolSpec::default() };
        let turn = agent.save_messages([UiMessage::user("u", "hi")]).id("r").client_tools([location]).await.unwrap();
        shown(&turn, 2).await;
    }
    for _ in 0..12 {
        let (_forever, agent) = place.open(&hooks).await;
        assert!(turn(&agent).await.wait().await.unwrap().is_completed());
        assert!(agent.has_pending_interaction().await.unwrap());
        place.clock.advance(Duration::from_secs(3600));
    }
    let (_forever, agent) = place.open(&hooks).await;
    assert_eq!((hooks.seen.count("recovers"), hooks.seen.count("asked")), (0, 1));
    let answered = agent.answer_tool("c", ToolAnswer::Output(json!("here")), true).await.unwrap();
    assert!(answered.continued.unwrap().wait().await.unwrap().is_completed());
    assert_eq!(last(&agent).await.text(), "thanks");
}

#[tokio::test(start_paused = true)]
async fn case_75_an_incident_goes_with_its_turn_and_not_before() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        says(&turn, &["word"]).await?;
        match before {
            0 | 2 => Err(Passing.into()),
            1 => Ok(()),
            _ => std::future::pending().await,
        }
    });
    let (forever, agent) = place.open(&hooks).await;
    place.ended(&ask(&agent, json!({})).await).await;
    let under_way = agent.save_messages([UiMessage::user("v", "and now")]).id("under way").await.unwrap();
    eventually("the next turn, and the end of the retention of the first", async || {
        place.clock.advance(Duration::from_secs(3600));
        hooks.seen.count("asked") >= 4 && agent.turn("r").await.unwrap().is_none()
    })
    .await;
    assert_eq!(under_way.status().await.unwrap().state(), TurnState::Running);
    forever.close().await.unwrap();
    let database = Database::open(place.path());
    for (table, column) in [("turns", "seq"), ("incidents", "turn"), ("turn_requests", "turn")] {
        assert_eq!(database.text(&format!("SELECT {column} FROM {table}")), "2", "{table}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_76_118_an_interrupted_turn_is_gone_on_with_once_however_many_look_at_it() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["half "]).await?;
            std::future::pending::<()>().await;
        }
        says(&turn, &["whole"]).await
    });
    killed(&place, &hooks, 3).await;
    let (_forever, agent) = place.open(&hooks).await;
    let many = (0..20).map(|_| ask(&agent, json!({})));
    for turn in futures_util::future::join_all(many).await {
        assert!(!turn.accepted());
        assert!(turn.wait().await.unwrap().is_completed());
    }
    assert_eq!((hooks.seen.count("recovers"), hooks.seen.count("asked")), (1, 2));
    assert_eq!(last(&agent).await.text(), "half whole");
}

#[tokio::test(start_paused = true)]
async fn case_78_82_a_turn_is_given_up_the_same_wherever_its_process_ends() {
    let survived = crash_everywhere(in_world, async |forever: Forever| {
        let agent = forever.agent::<Scripted>("a");
        let turn = crate::scripted::ask(&agent, "r", json!({ "n": 1, "mode": "always" })).await;
        assert_eq!(turn.wait().await.unwrap().state(), TurnState::Error);
        let message = agent.messages().await.unwrap().pop().unwrap();
        (told(&turn).await, message.text(), message.metadata)
    })
    .crash_randomly(1, 50)
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert!(survived.outcome.0.starts_with("start|text-start|w0 |error(The answer was interrupted"), "{:?}", survived.outcome);
}

#[tokio::test(start_paused = true)]
async fn case_80_99_a_turn_whose_incident_is_damaged_is_kept_until_it_is_put_right() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        says(&turn, &["word "]).await?;
        if before < 2 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    killed(&place, &hooks, 3).await;
    {
        let (_forever, agent) = place.open(&hooks).await;
        asked(&hooks, 2).await;
        shown(&turn(&agent).await, 4).await;
    }
    // What an incident does without: why it is over.
    sql(&place.path(), "UPDATE incidents SET reason = NULL, attempts = -1");
    let (forever, agent) = place.open(&hooks).await;
    assert!(parked(&forever, &place.path()).await.is_parked());
    assert_eq!(turn(&agent).await.status().await.unwrap().state(), TurnState::Running, "it is not dropped");
    forever.close().await.unwrap();
    sql(&place.path(), "UPDATE incidents SET attempts = 1");
    let (_forever, agent) = place.open(&hooks).await;
    assert!(turn(&agent).await.wait().await.unwrap().is_completed());
    assert_eq!(last(&agent).await.text(), "word word word ");
}

#[tokio::test(start_paused = true)]
async fn case_114_what_is_written_again_and_adds_nothing_is_no_progress() {
    policy(RecoveryPolicy::default().max_attempts(4));
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        turn.write(Chunk::start()).await?;
        if before == 0 {
            turn.write(Chunk::tool_input_available("c", "look", json!({}))).await?;
        }
        // As a stream that is played back.
        turn.write(Chunk::tool_output_available("c", json!(1))).await?;
        turn.flush().await?;
        Err(Passing.into())
    });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    assert_eq!(place.ended(&turn).await.state(), TurnState::Error);
    assert_eq!(hooks.seen.count("asked"), 5, "once, and the four attempts there may be");
}

#[tokio::test(start_paused = true)]
async fn case_116_a_turn_that_had_shown_nothing_is_asked_again_and_its_question_is_there_once() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            std::future::pending::<()>().await;
        }
        assert_eq!(turn.recovery().unwrap().kind(), RecoveryKind::Retry);
        assert!(!turn.is_continuation());
        assert_eq!(turn.messages().len(), 1);
        says(&turn, &["here"]).await
    });
    killed(&place, &hooks, 0).await;
    let (_forever, agent) = place.open(&hooks).await;
    assert!(turn(&agent).await.wait().await.unwrap().is_completed());
    let messages = agent.messages().await.unwrap();
    assert_eq!(messages.iter().map(UiMessage::text).collect::<Vec<_>>(), ["hi", "here"]);
}

#[tokio::test(start_paused = true)]
async fn case_120_that_a_turn_was_given_up_is_told_to_whoever_comes_later_until_it_is_cleared() {
    policy(RecoveryPolicy::default().max_attempts(1).terminal_message("over"));
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["partial"]).await?;
        }
        Err(Passing.into())
    });
    let seen = {
        let (forever, agent) = place.open(&hooks).await;
        let turn = ask(&agent, json!({})).await;
        place.ended(&turn).await;
        let seen = rest(&turn, 0).await;
        forever.close().await.unwrap();
        seen
    };
    let (_forever, agent) = place.open(&hooks).await;
    let late = turn(&agent).await;
    assert_eq!(told(&late).await, "start|text-start|partial|error(over)");
    for _ in 0..2 {
        assert_eq!(rest(&late, 0).await, seen);
        assert_eq!(rest(&late, 2).await, seen[2..]);
    }
    agent.clear().await.unwrap();
    assert_eq!(told(&late).await, "error(over)", "nothing of what it has said");
    assert!(agent.messages().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_123_a_call_that_was_being_written_is_settled_and_the_turn_goes_on() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            turn.write(Chunk::tool_input_start("c", "search")).await?;
            turn.write(Chunk::tool_input_delta("c", "{\"query\": \"hal")).await?;
            turn.flush().await?;
            std::future::pending::<()>().await;
        }
        says(&turn, &["without it"]).await
    });
    killed(&place, &hooks, 3).await;
    let (_forever, agent) = place.open(&hooks).await;
    assert!(turn(&agent).await.wait().await.unwrap().is_completed());
    let message = last(&agent).await;
    assert_eq!(message.parts[0].tool_state(), Some(ToolState::OutputError));
    assert_eq!(message.text(), "without it");
    assert_eq!(hooks.seen.count("asked"), 2);
}

/// Says half an answer, waits for the end of the process, and hands over what it has: by a stash, and by a value that is no answer.
fn hands_over() -> Hooks {
    Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["half "]).await?;
            turn.closing().await;
            turn.stash(&json!({ "cursor": 1 })).await?;
            return Ok(());
        }
        assert_eq!(turn.stashed::<Value>()?, Some(json!({ "cursor": 1 })));
        assert_eq!(turn.recovery().unwrap().deaths(), 0, "no process died");
        says(&turn, &["an answer"]).await
    })
}

/// Closes the process in which a turn has shown something; gives the answer of the next one.
async fn answer_after_a_close(hooks: &Hooks) -> String {
    let place = Place::new();
    let (forever, agent) = place.open(hooks).await;
    let turn = ask(&agent, json!({})).await;
    shown(&turn, 3).await;
    forever.close().await.unwrap();
    drop((turn, agent, forever));
    let (_forever, agent) = place.open(hooks).await;
    let turn = agent.turn("r").await.unwrap().unwrap();
    assert!(place.ended(&turn).await.is_completed());
    last(&agent).await.text()
}

#[tokio::test(start_paused = true)]
async fn hook_that_hands_over_when_its_process_ends_has_given_no_answer() {
    assert_eq!(answer_after_a_close(&hands_over()).await, "half an answer");
}

/// A hook that does not listen is not waited for: the deadline of a close is by a clock that stands here.
#[tokio::test(start_paused = true)]
async fn hook_that_does_not_listen_is_dropped_when_its_process_ends() {
    let hooks = Hooks::new(|turn, before| async move {
        says(&turn, &["word "]).await?;
        if before == 0 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    assert_eq!(answer_after_a_close(&hooks).await, "word word ");
}

/// Nor is the time between two attempts of a turn: the next one is made by the next process.
#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_the_next_attempt_of_a_turn() {
    let hooks = Hooks::new(|turn, before| async move { if before == 0 { Err(Passing.into()) } else { says(&turn, &["an answer"]).await } });
    let place = Place::new();
    let (forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    asked(&hooks, 1).await;
    eventually("its pause", async || place.clock.next_sleeper().is_some()).await;
    forever.close().await.unwrap();
    assert_eq!(hooks.seen.count("asked"), 1);
    drop((turn, agent, forever));
    let (_forever, agent) = place.open(&hooks).await;
    let turn = agent.turn("r").await.unwrap().unwrap();
    assert!(place.ended(&turn).await.is_completed());
    assert_eq!((last(&agent).await.text(), hooks.seen.count("asked")), ("an answer".to_owned(), 2));
}
