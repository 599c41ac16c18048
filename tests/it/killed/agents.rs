//! Agents whose process is killed: heartbeats, schedules, and the fibers that a hook decides about.
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, Due, RecoveredFiber, RecoveryAction};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Clock, SystemClock};
use forever_testkit::process::say;
use forever_testkit::waiting::eventually;

use super::process::{Desk, Place, Role, Worker};

const HOUR: Duration = Duration::from_secs(60 * 60);

pub(super) struct Clerk {
    pub(super) me: AgentHandle<Clerk>,
    pub(super) desk: Desk,
}

impl Agent for Clerk {
    const CLASS: &'static str = "clerk";
    type State = ();

    async fn on_start(&self) -> Result<(), BoxError> {
        self.desk.write(&format!("woken {}", self.me.name()));
        Ok(())
    }

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        self.desk.write(&format!("due {}", due.name()));
        Ok(())
    }

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        self.desk.write(&format!("asked about {}", fiber.id()));
        if fiber.id() == "bad" { Err("no idea".into()) } else { Ok(RecoveryAction::Resume) }
    }
}

/// A worker: an agent with a guard, one with a schedule, and two with a fiber each.
pub(super) async fn agents(with: Role) {
    let journal = with.journal();
    let forever = with.builder.open().await.unwrap();
    let _guard = forever.agent::<Clerk>("busy").keep_alive().await.unwrap();
    for name in ["good", "bad"] {
        let agent = forever.agent::<Clerk>(name);
        agent.spawn(opening(name.to_owned())).id(name).await.unwrap();
    }
    let scheduler = forever.agent::<Clerk>("scheduler");
    scheduler.schedule(HOUR, "once", ()).await.unwrap();
    scheduler.schedule_every(HOUR / 60, "often", ()).await.unwrap();
    eventually("the work of both", async || journal.text().matches("works").count() >= 2).await;
    say("up");
    std::future::pending::<()>().await;
}

/// Has passed a step, and is in the middle of another one when its first process dies.
#[fiber]
pub(super) async fn opening(ctx: &FiberContext, desk: Res<Desk>, name: String) -> anyhow::Result<String> {
    step!("open", desk.work(&format!("{name} opens"), ()).await?);
    step!("work", {
        desk.write(&format!("{name} works"));
        if !ctx.is_resuming() {
            std::future::pending::<()>().await;
        }
    });
    Ok(name)
}

#[tokio::test]
async fn agents_of_a_killed_process_are_woken_told_and_asked_at_the_next_open() {
    let place = Place::new();
    let mut worker = Worker::start("agents", &place);
    worker.said("up");
    worker.kill();
    let before = place.journal().len();

    // A clock that the test drives from here, two hours later.
    let clock = VirtualClock::new();
    clock.advance(SystemClock::new().now().duration_since(clock.now()).unwrap() + 2 * HOUR);
    let forever = place.builder().clock(clock.clone()).open().await.unwrap();
    assert_eq!(forever.fiber::<opening>("good").wait().await.unwrap(), "good");
    let bad = forever.fiber::<opening>("bad");
    let error = bad.wait().await.unwrap_err();
    assert!(error.is_interrupted(), "{error}");
    assert_eq!(error.reason(), "`on_fiber_recovered` of agent `clerk/bad` failed: no idea");

    let seen = |line: &str| place.journal()[before..].iter().filter(|l| *l == line).count();
    for line in ["woken busy", "due once", "due often"] {
        eventually(line, async || seen(line) > 0).await;
    }
    // Asked again after a second, then after two.
    assert_eq!(seen("asked about bad"), 1);
    for (seconds, times) in [(1, 2), (2, 3)] {
        let pause = Duration::from_secs(seconds);
        eventually("the pause", async || clock.next_sleeper().is_some_and(|next| next <= pause)).await;
        clock.advance(pause);
        eventually("the next question", async || seen("asked about bad") >= times).await;
    }
    // Once for all that it missed, and the agents that nothing was left of stay where they are.
    for (line, times) in
        [("woken busy", 1), ("due once", 1), ("due often", 1), ("asked about good", 1), ("good works", 1), ("good opens", 0)]
    {
        assert_eq!(seen(line), times, "{line}: {:?}", place.journal());
    }
    forever.resume("bad").await.unwrap();
    assert_eq!(bad.wait().await.unwrap(), "bad");
}
