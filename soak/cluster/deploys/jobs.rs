//! The fibers: jobs that advance a step or two, wait, and are woken at once, with everything that
//! they do outside the database.
use std::path::Path;
use std::time::Duration;

use forever::BoxError;
use forever::ops::Op;
use forever::prelude::*;

use crate::journal::Journal;

/// Jobs of a series.
pub(super) const JOBS: u32 = 200;

/// Parts that the stash of a step counts.
const PARTS: u64 = 3;

/// Result of a job of so many rounds.
pub(super) fn result_of(rounds: u64) -> u64 {
    // Both halves of a round give its number.
    (0..rounds).map(|round| 2 * round).sum()
}

/// Effects of a job of so many rounds.
pub(super) fn effects_of(rounds: u64) -> u64 {
    (0..rounds).filter(|round| matches!(round % 10, 2 | 8)).count() as u64
}

/// Id of a job, by its number.
pub(super) fn id_of(number: u32) -> String {
    format!("j{number}")
}

/// The world outside the database: the log, in which the bank counts charges.
#[derive(Debug)]
pub(super) struct Office {
    journal: Journal,
}

impl Office {
    pub(super) fn new(dir: &Path) -> anyhow::Result<Self> {
        Ok(Office { journal: Journal::open(dir)? })
    }

    /// The code of a job is entered in this process.
    fn enter(&self, job: &str) -> Desk<'_> {
        self.journal.write("enter", job, "");
        Desk { office: self, job: job.to_owned() }
    }
}

/// One stretch of work on a job in one process, from its begin or its resume on.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    office: &'a Office,
    job: String,
}

impl Desk<'_> {
    fn write(&self, what: &str, detail: impl std::fmt::Display) {
        self.office.journal.write(what, &self.job, detail);
    }

    /// The body of a step.
    async fn work(&self, step: &str, round: u64) -> Result<u64, BoxError> {
        self.write("begin", step);
        tokio::time::sleep(Duration::from_millis(round % 3)).await;
        self.write("ok", step);
        Ok(round)
    }

    /// The body of an effect: a charge, which the bank cannot tell from a second one.
    async fn charge(&self, effect: &str, op: &Op) -> Result<u64, BoxError> {
        self.write("begin", effect);
        self.write("charged", format_args!("{effect} {}", op.id()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.write("ok", effect);
        Ok(1)
    }

    /// The body of a step that stores how far it has come.
    async fn count(&self, step: &str, op: &Op) -> Result<u64, BoxError> {
        self.write("begin", step);
        let mut done: u64 = op.stashed()?.unwrap_or_default();
        self.write("reads", format_args!("{step} {done}"));
        while done < PARTS {
            done += 1;
            op.stash(&done).await?;
            self.write("stashed", format_args!("{step} {done}"));
        }
        self.write("ok", step);
        Ok(done)
    }

    /// A step has finished: its result is stored.
    fn passed(&self, step: &str) {
        self.write("passed", step);
    }

    /// The job is about to wait for a message.
    fn asks(&self, topic: &str, round: u64) {
        self.write("asks", format_args!("{topic} {round}"));
    }
}

/// A name of a step in the log.
fn named(step: &str, round: u64) -> String {
    format!("{step}-{round}")
}

#[fiber]
pub(super) async fn job(ctx: &FiberContext, office: Res<Office>, rounds: u64) -> Result<u64, BoxError> {
    #[fresh]
    let desk = office.enter(ctx.id());
    let mut sum = 0;
    for round in 0..rounds {
        desk.asks("go", round);
        let go: u64 = recv!("go");
        sum += step!("first", desk.work(&named("first", round), go).await?);
        desk.passed(&named("first", round));
        if round % 2 == 0 {
            sleep!(Duration::from_millis(100 + 100 * (round % 5)));
            sum += round;
        } else {
            desk.asks("ping", round);
            let ping: u64 = recv!("ping");
            sum += ping;
        }
        match round % 10 {
            2 => {
                step!("charge", effect, |op| desk.charge(&named("charge", round), op).await?);
                desk.passed(&named("charge", round));
            }
            8 => {
                steps!(
                    desk.work(&named("left", round), round).await?,
                    step!("right", effect, |op| desk.charge(&named("right", round), op).await?),
                );
                desk.passed(&named("left", round));
                desk.passed(&named("right", round));
            }
            3 | 6 => {
                steps!(desk.work(&named("left", round), round).await?, desk.work(&named("right", round), round).await?);
                desk.passed(&named("left", round));
                desk.passed(&named("right", round));
            }
            4 | 7 => {
                step!("count", |op| desk.count(&named("count", round), op).await?);
                desk.passed(&named("count", round));
            }
            _ => {
                step!("second", desk.work(&named("second", round), round).await?);
                desk.passed(&named("second", round));
            }
        }
        sleep!(Duration::from_millis(100 * (round % 4)));
    }
    Ok(sum)
}
