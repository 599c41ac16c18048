//! The list in another process than the one that asked, which was killed.
use std::path::{Path, PathBuf};

use forever::chat::ToolAnswer;
use forever::prelude::*;
use forever::testing::{VirtualClock, World, crash_everywhere};
use forever::{Builder, Forever};
use forever_testkit::process::{Process, end_with_parent, say, this_test};
use forever_testkit::sizes;
use serde_json::json;
use tokio::sync::watch;

use super::{Clerk, all, ask, begin, builder, calls};

const ALL_DONE: &str = "everything is asked";

fn opened(path: &Path) -> (Builder, watch::Sender<bool>) {
    let gate = watch::Sender::new(true);
    (builder(&gate, &VirtualClock::new()).sqlite(path), gate)
}

/// Not a test: the process that is killed.
#[test]
#[ignore = "started by `the_list_survives_a_process_that_is_killed`"]
fn life() {
    let Ok(path) = std::env::var("FOREVER_DATABASE") else { return };
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (builder, gate) = opened(&PathBuf::from(path));
        let forever = builder.open().await.unwrap();
        for (name, round) in [("ada", json!(["tool", "approval"])), ("bob", json!(["approval"])), ("eve", json!([]))] {
            ask(&forever.agent::<Clerk>(name), "1", json!([round])).await;
        }
        let ada = forever.agent::<Clerk>("ada");
        let asked = ada.pending_interactions().await.unwrap().interactions;
        ada.answer_tool(&asked[0], ToolAnswer::Output(json!(1)), true).await.unwrap();
        // One that asks, and dies before its turn has ended.
        gate.send_replace(false);
        let turn = begin(&forever.agent::<Clerk>("may"), "1", json!([["tool"]])).await;
        let mut follow = turn.follow(0).await.unwrap();
        for _ in 0..3 {
            follow.next().await.unwrap();
        }
        say(ALL_DONE);
        std::future::pending::<()>().await;
    });
}

#[tokio::test(start_paused = true)]
async fn the_list_survives_a_process_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let mut process = Process::start(this_test("pending::killed::life").unwrap().env("FOREVER_DATABASE", &path)).unwrap();
    process.until_said(ALL_DONE).unwrap();
    process.kill().unwrap();

    let (builder, gate) = opened(&path);
    gate.send_replace(false);
    let forever = builder.open().await.unwrap();
    assert_eq!(calls(forever.pending_interactions()).await, ["bob -0-0", "ada -0-1"], "one has not ended its turn");
    gate.send_replace(true);
    forever.agent::<Clerk>("may").turn("1").await.unwrap().unwrap().wait().await.unwrap();
    assert_eq!(calls(forever.pending_interactions().agent("clerk", "may")).await, ["may -0-0"]);
    // The answer of the dead process has asked for what follows the last one.
    let ada = forever.agent::<Clerk>("ada");
    let asked = ada.pending_interactions().await.unwrap().interactions;
    assert!(ada.answer_tool(&asked[0], ToolAnswer::Approved, false).await.unwrap().continued.is_some());
    drop((forever, ada));
    let forever = opened(&path).0.open().await.unwrap();
    assert_eq!(calls(forever.pending_interactions()).await.len(), 2);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_list_is_what_the_messages_say_wherever_the_process_ends() {
    let gate = watch::Sender::new(true);
    let survived = crash_everywhere(
        move |world: &World| builder(&gate, &VirtualClock::new()).in_memory().clock(world.clock()),
        async |forever: Forever| {
            let agent = forever.agent::<Clerk>("a");
            ask(&agent, "1", json!([["tool"], ["tool"]])).await;
            // What an earlier process has had answered is not asked again.
            for asked in all(|| agent.pending_interactions()).await.iter().filter(|asked| asked.call.contains("-0-")) {
                assert!(agent.answer_tool(asked, ToolAnswer::Output(json!(1)), false).await.unwrap().applied);
                assert!(!agent.pending_interactions().await.unwrap().interactions.contains(asked));
            }
            let more = agent.continue_last_turn().id("2").await.unwrap();
            assert!(more.wait().await.unwrap().is_completed());
            calls(agent.pending_interactions()).await
        },
    )
    .crash_randomly(1, 50)
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert_eq!(survived.outcome, ["a -1-0"]);
}
