//! Which turn is which: numbers are not used again, and ids that users choose are not taken apart.
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::UiMessage;
use forever::chat::{ChatAgent, Entry, Queueing, Turn, TurnHandle, TurnState};
use forever::fiber::FiberState;
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Builder, ErrorKind, Forever, Retention};
use forever_testkit::waiting::{eventually, found, over_time};
use serde_json::Value;

/// Answers with a fiber that waits to be told what to say, or at once.
struct Runs;

impl Agent for Runs {
    const CLASS: &'static str = "runs";
    type State = ();
}

impl ChatAgent for Runs {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        match turn.body().and_then(Value::as_str) {
            Some("runs") => turn.run(told()).await.map(drop).map_err(Into::into),
            _ => Ok(()),
        }
    }
}

#[fiber]
async fn told() -> Result<bool, BoxError> {
    let told: bool = recv!("told");
    Ok(told)
}

fn runs() -> Builder {
    Forever::builder().fiber::<told>().chat_agent(|_| Runs)
}

async fn ask(agent: &AgentHandle<Runs>, id: &str, body: &str) -> TurnHandle {
    agent.save_messages([UiMessage::user(format!("u-{id}"), "hi")]).id(id).metadata(&id).body(&body).await.unwrap()
}

/// The fibers of turns that wait to be told, as soon as there are so many.
async fn waiting(forever: &Forever, count: usize) -> Vec<String> {
    found(&format!("the waits of {count} fibers"), async || {
        let page = forever.fibers().name("forever.turn").state(FiberState::Running).await.unwrap();
        let ids: Vec<String> = page.fibers.iter().filter(|fiber| fiber.checkpoints > 0).map(|fiber| fiber.id.clone()).collect();
        (ids.len() == count).then_some(ids)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_a_turn_that_was_deleted_never_shows_another_turn() {
    let clock = VirtualClock::new();
    let keep = Duration::from_secs(600);
    let forever = runs().in_memory().clock(clock.clone()).replay_retention(keep).retention(Retention::default().failed(keep));
    let forever = forever.open().await.unwrap();
    let (ada, bob) = (forever.agent::<Runs>("ada"), forever.agent::<Runs>("bob"));
    let old = ask(&ada, "secret", "").await;
    let mut follow = old.follow(0).await.unwrap();
    old.wait().await.unwrap();
    clock.advance(2 * keep);
    eventually("the end of its retention", async || {
        clock.advance(Duration::from_secs(60));
        ada.turn("secret").await.unwrap().is_none()
    })
    .await;
    // Several, for as many as were deleted.
    let new = [ask(&bob, "other", "runs").await, ask(&bob, "third", "").await];
    waiting(&forever, 1).await;
    assert_eq!(old.wait().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(old.status().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(old.entries().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(old.follow(0).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(old.metadata::<Value>().await.unwrap_err().kind(), ErrorKind::NotFound);
    old.cancel("not the other one").await.unwrap();
    let mut seen = Vec::new();
    while let Some(entry) = follow.next().await.unwrap() {
        seen.push(entry);
    }
    assert!(matches!(seen.last(), Some(Entry::End(end)) if end.is_completed()), "its own end: {seen:?}");
    let fiber = waiting(&forever, 1).await.pop().unwrap();
    forever.send(&fiber, "told", &true).await.unwrap();
    for turn in new {
        assert!(turn.wait().await.unwrap().is_completed());
    }
}

#[tokio::test(start_paused = true)]
async fn turns_whose_names_and_ids_make_the_same_text_have_fibers_of_their_own() {
    let forever = runs().in_memory().open().await.unwrap();
    let mut turns = Vec::new();
    for (name, id) in [("x/turn/1", "2"), ("x", "1/turn/2"), ("x/turn", "turn/2"), ("x", "turn/turn/2"), ("turn", "2"), ("x%2F1", "2")] {
        turns.push(ask(&forever.agent::<Runs>(name), id, "runs").await);
        waiting(&forever, turns.len() - usize::from(turns.len() > 3)).await;
    }
    // The second turn of `x` waits for the first one.
    let before = waiting(&forever, turns.len() - 1).await;
    turns[1].cancel("one of them").await.unwrap();
    assert_eq!(turns[1].wait().await.unwrap().state(), TurnState::Aborted);
    // The fiber of a turn that was cancelled may still run for a moment, and the next turn of `x` have run nothing yet.
    let others = found("the fiber of the next turn", async || {
        let others = waiting(&forever, turns.len() - 1).await;
        others.iter().any(|fiber| !before.contains(fiber)).then_some(others)
    })
    .await;
    for fiber in others {
        forever.send(&fiber, "told", &true).await.unwrap();
    }
    for (n, turn) in turns.iter().enumerate() {
        assert_eq!(turn.wait().await.unwrap().is_completed(), n != 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_quiet_does_not_wait_for_a_clock_that_was_ahead() {
    let year = Duration::from_secs(365 * 24 * 3600);
    for closes in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let clock = VirtualClock::new();
        let open = || runs().clock(clock.clone()).sqlite(folder.path().join("chat.db")).open();
        let mut forever = open().await.unwrap();
        clock.set_ahead(year);
        let agent = forever.agent::<Runs>("a");
        let quiet = Queueing::Debounce(Duration::from_secs(60));
        let turn = agent.save_messages([UiMessage::user("u", "hi")]).id("r").queueing(quiet).await.unwrap();
        let waiting = async || forever.fibers().name("forever.turn").state(FiberState::Waiting).await.unwrap().fibers;
        eventually("its wait for quiet", async || !waiting().await.is_empty()).await;
        clock.set_back(year);
        if closes {
            drop((turn, agent));
            forever.close().await.unwrap();
            forever = open().await.unwrap();
        }
        let turn = forever.agent::<Runs>("a").turn("r").await.unwrap().unwrap();
        // Ten minutes at most.
        let mut seconds = std::iter::repeat_n(Duration::from_secs(1), 600);
        let passes = || clock.advance(seconds.next().unwrap_or_default());
        assert!(over_time("the end of a turn that waits for no year", turn.wait(), passes).await.unwrap().is_completed());
    }
}
