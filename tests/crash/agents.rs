//! Agents, their closures and their schedules come through the end of their process at every write.
use std::collections::BTreeSet;
use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, AgentHandle, Due, RecoveredFiber, RecoveryAction};
use forever::prelude::*;
use forever::testing::World;
use forever_testkit::waiting::found;

use crate::kinds::{comes_through, noted};

/// How many beds there are to be dug.
const BEDS: u64 = 3;

const HOUR: Duration = Duration::from_secs(60 * 60);

struct Gardener {
    me: AgentHandle<Gardener>,
    world: World,
    /// Two schedules that are due at once run side by side, and both change the state.
    writes: tokio::sync::Mutex<()>,
}

impl Agent for Gardener {
    const CLASS: &'static str = "gardener";
    type State = Vec<String>;

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        let _alone = self.writes.lock().await;
        // A run that was interrupted is repeated, so it looks at what is there.
        let mut done = self.me.state().await?;
        if !done.iter().any(|there| there == due.name()) {
            done.push(due.name().to_owned());
            self.me.set_state(&done).await?;
        }
        noted(&self.world, due.name(), 1);
        Ok(())
    }

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        noted(&self.world, "asked about", 0);
        if !fiber.is_closure() {
            return Ok(RecoveryAction::Resume);
        }
        // What it has stashed is as far as it came; the rest is done here.
        let from: u64 = fiber.snapshot()?.unwrap_or_default();
        for bed in from + 1..=BEDS {
            noted(&self.world, "digs", bed);
        }
        Ok(RecoveryAction::complete(&BEDS)?)
    }
}

#[fiber]
async fn plants(world: Res<World>, rows: u64) -> anyhow::Result<u64> {
    let mut planted = 0;
    for row in 0..rows {
        planted += step!("plant", noted(&world, "row", row + 1));
    }
    Ok(planted)
}

fn setup(world: &World) -> forever::Builder {
    let of_agents = world.clone();
    let builder = Forever::builder().clock(world.clock()).resource(world.clone()).fiber::<plants>();
    builder.agent(move |me| Gardener { me, world: of_agents.clone(), writes: tokio::sync::Mutex::default() })
}

#[tokio::test]
async fn a_fiber_of_an_agent_is_handed_over_and_goes_on() {
    let survived = comes_through(setup, async |forever: Forever| {
        forever.agent::<Gardener>("g").spawn(plants(3)).key("rows").await.unwrap().wait().await.unwrap()
    })
    .await;
    assert_eq!(survived.outcome, 6);
}

#[tokio::test]
async fn a_closure_is_finished_by_its_agent_from_its_stash() {
    let world = std::sync::Mutex::new(World::default());
    let keep = |w: &World| {
        *world.lock().unwrap() = w.clone();
        setup(w)
    };
    let survived = comes_through(keep, async |forever: Forever| {
        let world = world.lock().unwrap().clone();
        let dig = |ctx: FiberContext| async move {
            for bed in 1..=BEDS {
                noted(&world, "digs", bed);
                ctx.stash(&bed).await?;
                if ctx.is_closing() {
                    // It ends with its process, and its agent continues from the stash.
                    return Err(forever::Error::closed());
                }
            }
            Ok::<_, forever::Error>(BEDS)
        };
        let handle = forever.agent::<Gardener>("g").spawn_closure("dig", dig).id("beds").start().await.unwrap();
        // One that was interrupted is with its agent.
        let ended = found("the end of the closure", async || match handle.wait().await {
            Err(error) if error.is_interrupted() => None,
            ended => Some(ended.unwrap()),
        });
        ended.await
    })
    .await;
    assert_eq!(survived.outcome, 3);
}

#[tokio::test]
async fn schedules_run_at_least_once_and_none_is_lost() {
    let survived = comes_through(setup, async |forever: Forever| {
        let gardener = forever.agent::<Gardener>("g");
        // Asked for again after a death; what has run is not asked for again.
        let done = gardener.state().await.unwrap();
        let hours = [("water", 1), ("weed", 2)];
        for (name, hours) in hours {
            if !done.iter().any(|there| there == name) {
                gardener.schedule(HOUR * hours, name, ()).idempotent(true).await.unwrap();
            }
        }
        let all = found("both runs", async || {
            let (done, schedules) = (gardener.state().await.unwrap(), gardener.schedules().await.unwrap());
            for there in schedules.iter().filter(|there| there.next().is_none() && !there.is_running()) {
                // Three processes in a row have not survived it, and it was suspended: a person gives it another chance.
                gardener.cancel_schedule(there.id()).await.unwrap();
                let (name, hours) = hours.into_iter().find(|(name, _)| *name == there.name()).unwrap();
                if !done.iter().any(|there| there == name) {
                    gardener.schedule(HOUR * hours, name, ()).await.unwrap();
                }
            }
            // One that was asked for again may come after the other.
            (done.len() == 2 && schedules.is_empty()).then(|| BTreeSet::from_iter(done))
        });
        all.await
    })
    .await;
    assert_eq!(survived.outcome, BTreeSet::from(["water", "weed"].map(String::from)));
}
