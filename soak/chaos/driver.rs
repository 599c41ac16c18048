//! The driver of a worker: starts the fibers that are missing, and looks after everything until it
//! has ended.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use forever::agent::Agent;
use forever::fiber::FiberError;
use forever::prelude::*;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::journal::Line;
use super::office::{Clerk, errands};
use super::round::{AGENTS, Errand, Kind, Round, Spec};
use super::world::{PLANNED, World};
use super::{fibers, money};

/// What earlier workers have done, by the log of effects.
#[derive(Debug, Default)]
pub(crate) struct Past {
    accepted: BTreeSet<String>,
    ended: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    scheduled: BTreeSet<String>,
    /// Number of the last message that was sent.
    sent: BTreeMap<String, u32>,
}

impl Past {
    pub(crate) fn read(lines: &[Line]) -> Self {
        let mut past = Past::default();
        for line in lines {
            match line.words() {
                ["accepted", fiber, _] => drop(past.accepted.insert(fiber.to_owned())),
                ["ended", fiber, _] => drop(past.ended.insert(fiber.to_owned())),
                ["cancelled", fiber, _] => drop(past.cancelled.insert(fiber.to_owned())),
                ["scheduled", _, errand] => drop(past.scheduled.insert(errand.to_owned())),
                ["set-aside", _, errand] => drop(past.scheduled.remove(errand.split(' ').next().unwrap_or_default())),
                ["sent", fiber, number] => drop(past.sent.insert(fiber.to_owned(), number.parse().unwrap_or_default())),
                _ => {}
            }
        }
        past
    }
}

/// Errors of SQLite when the disk fails. Inside a transaction of the program the error is the
/// program's, and its fiber fails.
const DISK: [&str; 3] = ["disk I/O error", "database disk image is malformed", "database or disk is full"];

pub(crate) struct Driver {
    pub(crate) forever: Forever,
    pub(crate) world: World,
    pub(crate) past: Past,
}

impl Driver {
    /// Waits until everything has ended.
    pub(crate) async fn drive(self: Arc<Self>, round: Round) -> anyhow::Result<()> {
        let window = Arc::new(Semaphore::new(round.window as usize));
        let mut tasks = JoinSet::new();
        for errand in round.errands {
            let driver = Arc::clone(&self);
            tasks.spawn(async move { driver.schedule(errand).await });
        }
        for n in 0..AGENTS {
            while let Err(error) = self.forever.agent::<Clerk>(format!("clerk-{n}")).wake().await {
                self.may_fail(error)?;
                self.world.pause().await;
            }
        }
        // Accepted fibers are under way already, so the window does not limit them.
        let (there, new): (Vec<_>, Vec<_>) = round.fibers.into_iter().partition(|spec| self.past.accepted.contains(&spec.id));
        for spec in there.into_iter().chain(new) {
            if self.past.ended.contains(&spec.id) {
                continue;
            }
            let permit = Arc::clone(&window).acquire_owned().await?;
            let driver = Arc::clone(&self);
            tasks.spawn(async move {
                let _permit = permit;
                driver.look_after(&spec).await
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Allows failures of the store, also those that failed the `on_start` of an agent; they are
    /// retried. Any other error ends the worker.
    fn may_fail(&self, error: forever::Error) -> anyhow::Result<()> {
        let mut causes = std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |error| error.source());
        if !causes.any(|cause| cause.downcast_ref::<forever::Error>().is_some_and(forever::Error::is_retryable)) {
            bail!(error);
        }
        self.world.write(&format!("refused {error}"));
        Ok(())
    }

    /// Starts a fiber unless an earlier worker has, and looks after it until it ends.
    async fn look_after(&self, spec: &Spec) -> anyhow::Result<()> {
        // An accepted fiber is never started again: if it is missing, it is lost.
        if !self.past.accepted.contains(&spec.id) {
            while let Err(error) = self.start(spec).await {
                self.may_fail(error)?;
                self.world.pause().await;
            }
            self.world.write(&format!("accepted {}", spec.id));
        }
        let others = async {
            match spec.kind {
                Kind::Inbox => self.send(spec).await,
                Kind::Doomed => self.cancel(spec).await,
                _ => Ok(()),
            }
        };
        tokio::try_join!(self.end(spec), others)?;
        Ok(())
    }

    async fn start(&self, spec: &Spec) -> forever::Result<()> {
        let (forever, id, size) = (&self.forever, spec.id.clone(), spec.size);
        match spec.kind {
            Kind::Chain => {
                let spawn = forever.spawn(fibers::chain(size)).id(id);
                match &spec.agent {
                    Some(agent) => spawn.agent(Clerk::CLASS, agent).await.map(drop),
                    None => spawn.await.map(drop),
                }
            }
            Kind::Nested => forever.spawn(fibers::nested(size)).id(id).await.map(drop),
            Kind::Side => forever.spawn(fibers::side(size)).id(id).await.map(drop),
            Kind::Notes => forever.spawn(fibers::notes(size)).id(id).await.map(drop),
            Kind::Retry => forever.spawn(money::by_retry()).id(id).await.map(drop),
            Kind::Check => forever.spawn(money::by_check()).id(id).await.map(drop),
            Kind::Park => forever.spawn(money::by_park()).id(id).await.map(drop),
            Kind::Fail => forever.spawn(money::by_fail()).id(id).await.map(drop),
            Kind::ByHand => forever.spawn(money::by_hand(size)).id(id).await.map(drop),
            Kind::Booking => forever.spawn(money::booking(size)).id(id).await.map(drop),
            Kind::Sleeper => forever.spawn(fibers::sleeper(size)).id(id).await.map(drop),
            Kind::Inbox => forever.spawn(fibers::inbox(size)).id(id).await.map(drop),
            Kind::Family => forever.spawn(fibers::family(size)).id(id).await.map(drop),
            Kind::Doomed => forever.spawn(fibers::doomed()).id(id).await.map(drop),
            Kind::Closure => {
                let world = self.world.clone();
                let closure = forever.spawn_closure("errands", move |ctx| errands(ctx, world, size)).id(id).metadata(size);
                closure.agent(Clerk::CLASS, spec.agent.as_deref().unwrap_or_default()).start().await.map(drop)
            }
        }
    }

    /// Waits for the end of a fiber, and acts as an operator: resumes the fiber, or resolves an
    /// operation.
    async fn end(&self, spec: &Spec) -> anyhow::Result<()> {
        let id = &spec.id;
        loop {
            let error = match self.forever.find_fiber::<String>(id).await {
                Ok(handle) => match handle.wait().await {
                    Ok(_) => break self.world.write(&format!("ended {id} completed")),
                    Err(error) => error,
                },
                Err(error) if error.kind() == forever::ErrorKind::NotFound => break self.world.write(&format!("ended {id} missing")),
                Err(error) => {
                    self.may_fail(error)?;
                    continue;
                }
            };
            if error.is_cancelled() {
                break self.world.write(&format!("ended {id} cancelled"));
            }
            if error.is_closed() {
                return Ok(());
            }
            if !self.help(id, &error).await? {
                break self.world.write(&format!("ended {id} {error}"));
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Whether an operator can help, or time may.
    async fn help(&self, id: &str, error: &FiberError) -> anyhow::Result<bool> {
        let passes = |reason: &str| reason.contains(PLANNED) || DISK.iter().any(|text| reason.contains(text));
        let failed = if error.is_failed() && passes(error.reason()) {
            self.forever.resume(id).await.err()
        } else if error.is_parked() {
            match money::look_into(&self.forever, &self.world, id).await {
                Ok(resolved) => return Ok(resolved > 0),
                Err(error) => Some(error.downcast::<forever::Error>()?),
            }
        } else {
            return Ok(error.is_interrupted() || error.kind() == forever::fiber::FiberErrorKind::Store);
        };
        match failed {
            // Another caller, or the runtime itself, was faster.
            Some(error) if !matches!(error.kind(), forever::ErrorKind::Conflict | forever::ErrorKind::InvalidState) => {
                self.may_fail(error).map(|()| true)
            }
            _ => Ok(true),
        }
    }

    /// Sends messages up to number `size`, from the first one that is not known to be sent.
    async fn send(&self, spec: &Spec) -> anyhow::Result<()> {
        let id = &spec.id;
        let mut number = self.past.sent.get(id).copied().unwrap_or(0) + 1;
        while number <= spec.size {
            self.world.pause().await;
            self.world.write(&format!("sends {id} {number}"));
            let message = self.forever.send(id, "mail", &number);
            // A message with an id is stored once, however often it is sent.
            let message = if spec.names_messages() { message.message_id(number.to_string()) } else { message };
            match message.await {
                Ok(()) => {
                    self.world.write(&format!("sent {id} {number}"));
                    number += 1;
                }
                // The fiber has received the last message from an earlier worker.
                Err(error) if matches!(error.kind(), forever::ErrorKind::InvalidState | forever::ErrorKind::NotFound) => break,
                Err(error) => self.may_fail(error)?,
            }
        }
        Ok(())
    }

    async fn cancel(&self, spec: &Spec) -> anyhow::Result<()> {
        let id = &spec.id;
        if self.past.cancelled.contains(id) {
            return Ok(());
        }
        loop {
            sleep(Duration::from_micros(u64::from(self.world.below(30_000)))).await;
            match self.forever.cancel(id, "it is doomed").await {
                Ok(()) => break,
                Err(error) if matches!(error.kind(), forever::ErrorKind::InvalidState | forever::ErrorKind::NotFound) => return Ok(()),
                Err(error) => self.may_fail(error)?,
            }
        }
        self.world.write(&format!("cancelled {id}"));
        Ok(())
    }

    /// Schedules an errand unless an earlier worker has, and waits until it has run.
    async fn schedule(&self, errand: Errand) -> anyhow::Result<()> {
        let Errand { agent, name, .. } = &errand;
        let clerk = self.forever.agent::<Clerk>(agent.as_str());
        let mut scheduled = self.past.scheduled.contains(name);
        loop {
            sleep(Duration::from_micros(u64::from(self.world.below(20_000)))).await;
            if !scheduled {
                let delay = Duration::from_millis(u64::from(self.world.below(1500)));
                match clerk.schedule(delay, name.as_str(), errand.failures).idempotent(true).await {
                    Ok(_) => self.world.write(&format!("scheduled {agent} {name}")),
                    Err(error) => {
                        self.may_fail(error)?;
                        continue;
                    }
                }
                scheduled = true;
            }
            let there = match clerk.schedules().await {
                Ok(there) => there.into_iter().find(|schedule| schedule.name() == name),
                Err(error) => {
                    self.may_fail(error)?;
                    continue;
                }
            };
            match there {
                // The schedule is gone: it has run, or it is lost, which the audit finds.
                None => return Ok(()),
                // Three deaths in a row interrupted its runs: the operator enables it again.
                Some(schedule) if schedule.next().is_none() => {
                    self.world.write(&format!("set-aside {agent} {name} {}", schedule.error().unwrap_or_default()));
                    scheduled = !clerk.cancel_schedule(schedule.id()).await.unwrap_or(false);
                }
                Some(_) => {}
            }
        }
    }
}
