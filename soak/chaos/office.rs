//! Agents: with closures that a hook finishes, fibers that it resumes, schedules and a state.
use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, AgentHandle, Due, RecoveredFiber, RecoveryAction};
use forever::prelude::*;

use super::world::{Account, World};

/// Interval of each agent's ticks, on the clock of the round.
const TICK: Duration = Duration::from_secs(1);

pub(crate) struct Clerk {
    pub(crate) me: AgentHandle<Clerk>,
    pub(crate) world: World,
}

impl Agent for Clerk {
    const CLASS: &'static str = "clerk";
    /// Number of ticks.
    type State = u64;

    async fn on_start(&self) -> Result<(), BoxError> {
        self.world.write(&format!("woken {} {}", self.me.name(), self.me.state().await?));
        self.me.schedule_every(TICK, "tick", ()).await?;
        Ok(())
    }

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        let at = due.scheduled().duration_since(std::time::UNIX_EPOCH)?.as_millis();
        self.world.write(&format!("due {} {} {at} {}", self.me.name(), due.name(), due.attempt()));
        if due.name() == "tick" {
            let ticks = self.me.state().await? + 1;
            self.me.set_state(&ticks).await?;
            self.world.write(&format!("state {} {ticks}", self.me.name()));
        } else if due.payload::<u32>()? >= due.attempt() {
            return Err("not at the first attempt".into());
        }
        Ok(())
    }

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        if !fiber.is_closure() {
            return Ok(RecoveryAction::Resume);
        }
        let id = fiber.id();
        // The first stash is stored before the first charge.
        let Some((size, done)) = fiber.snapshot::<(u32, u32)>()? else {
            let size = fiber.metadata().and_then(serde_json::Value::as_u64).and_then(|size| u32::try_from(size).ok());
            return self.finish(fiber, size.ok_or("a closure without its size")?).await;
        };
        self.world.write(&format!("stashed-was {id} {done}"));
        self.finish(fiber, size).await
    }
}

impl Clerk {
    /// Makes the charges that an interrupted closure has not reached; those that it made are in its
    /// ledger.
    async fn finish(&self, fiber: &RecoveredFiber, size: u32) -> Result<RecoveryAction, BoxError> {
        let mut receipts = Vec::new();
        for n in 1..=size {
            let (key, world) = (format!("{}/{n}", fiber.id()), &self.world);
            let check = OnUnknown::check(async |op| world.find(&key, op.id()).await);
            let charge = fiber.op("charge", n, async |op| world.charge(Account::Plain, &key, op.id()).await);
            receipts.push(charge.on_unknown(check).await?);
        }
        Ok(RecoveryAction::complete(&receipts.join(" "))?)
    }
}

/// The closure: a stash and a charge, again and again.
pub(crate) async fn errands(ctx: FiberContext, world: World, size: u32) -> anyhow::Result<String> {
    let mut receipts = Vec::new();
    for n in 1..=size {
        while let Err(error) = ctx.stash(&(size, n - 1)).await {
            until_there_is_room(error.into(), &world).await?;
        }
        world.write(&format!("stashed {} {}", ctx.id(), n - 1));
        let key = format!("{}/{n}", ctx.id());
        let receipt = loop {
            let check = OnUnknown::check(async |op| world.find(&key, op.id()).await);
            let charge = ctx.op("charge", n, async |op| world.charge(Account::Plain, &key, op.id()).await);
            match charge.on_unknown(check).await {
                Ok(receipt) => break receipt,
                Err(error) => until_there_is_room(error, &world).await?,
            }
        };
        receipts.push(receipt);
    }
    Ok(receipts.join(" "))
}

/// Waits while the disk is full. A closure does not run again, so it gets that error itself.
async fn until_there_is_room(error: anyhow::Error, world: &World) -> anyhow::Result<()> {
    if !error.downcast_ref::<forever::Error>().is_some_and(forever::Error::is_retryable) {
        return Err(error);
    }
    world.pause().await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    Ok(())
}
