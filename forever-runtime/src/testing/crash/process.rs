//! One run: a process that a fuse ends or closes repeatedly, until it reaches its end.
use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;

use super::World;
use super::db_state::DbState;
use super::steps::Steps;
use super::stored::{LOOK, Stored};
use crate::api::builder::Builder;
use crate::api::forever::Forever;
use crate::runtime::events::{Event, EventItem, Events};
use crate::runtime::race::race;
use crate::runtime::settings::Retention;
use crate::runtime::state::Runtime;
use crate::testing::fuse::{At, Fuse, Nth};

/// Number of checks without another write after which time advances.
const QUIET: u32 = 3;

/// Time after which a close drops what has not come to a checkpoint.
const DEADLINE: Duration = Duration::from_secs(10);

/// Number of turns for the tasks that a jump, or an answer, has woken.
const TURNS: u32 = 50;

/// Number of answers after which a program that asks all the time is looked at.
const RESTS: u32 = 100;

/// Moment at which a process ends or is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Death {
    pub(super) at: At,
    /// Seed for damage to the end of the write-ahead log.
    pub(super) torn: Option<u64>,
}

impl Death {
    pub(super) fn at(at: At) -> Self {
        Death { at, torn: None }
    }

    /// Whether the process closes its runtime before it ends.
    pub(super) fn is_clean(self) -> bool {
        matches!(self.at, At::Write(_) | At::Poll(_))
    }

    /// The same with another number.
    pub(super) fn numbered(self, change: impl Fn(u64) -> u64) -> Self {
        let at = match self.at {
            At::Poll(n) => At::Poll(change(n)),
            at => at.map(|write| Nth { n: change(write.n), ..write }),
        };
        Death { at, ..self }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            At::Never => f.write_str("at no moment")?,
            At::Before(write) => write!(f, "before {write}")?,
            At::After(write) => write!(f, "after {write}")?,
            At::Write(write) => write!(f, "by a close at {write}")?,
            At::Poll(poll) => write!(f, "by a close before poll {poll}")?,
        }
        if self.torn.is_some() {
            f.write_str(", the last commit torn")?;
        }
        Ok(())
    }
}

/// Result of a run.
#[derive(Debug)]
pub(in crate::testing) struct Run<R> {
    pub(in crate::testing) world: World,
    /// Result of the call, or the reason why it has none.
    pub(in crate::testing) outcome: Result<R, String>,
    pub(in crate::testing) processes: Vec<Process>,
    /// Events of all processes.
    pub(in crate::testing) steps: Steps,
    /// Database at the end.
    pub(in crate::testing) end: DbState,
}

impl<R> Run<R> {
    /// Number of processes that died as planned, and that were closed.
    pub(super) fn ends(&self) -> (u64, u64) {
        let (clean, killed): (Vec<_>, Vec<_>) =
            self.processes.iter().filter_map(|process| process.death).partition(|death| death.is_clean());
        (killed.len() as u64, clean.len() as u64)
    }
}

/// One process of a run.
#[derive(Debug)]
pub(in crate::testing) struct Process {
    /// How it was ended; `None` if it reached its end.
    pub(super) death: Option<Death>,
    /// The same, with the name of the write.
    pub(super) named: Option<Death>,
    pub(super) writes: Vec<&'static str>,
    /// Number of polls of the code of fibers.
    pub(super) polls: u64,
    pub(super) left: DbState,
}

/// Common parts of all runs.
pub(super) struct Script<'a, S, C> {
    pub(super) setup: &'a S,
    pub(super) call: &'a C,
    /// Maximum time of a process.
    pub(super) patience: Duration,
    /// Whether it takes the same path when it is interrupted.
    pub(super) same_way: bool,
}

impl<S, C, R> Script<'_, S, C>
where
    S: Fn(&World) -> Builder,
    C: AsyncFn(Forever) -> R,
{
    /// Lives and dies as planned, and then runs to the end.
    pub(super) async fn run(&self, deaths: &[Death]) -> Run<R> {
        let world = World::default();
        let mut run = Run {
            world: world.clone(),
            outcome: Err("there was no process".to_owned()),
            processes: Vec::new(),
            steps: Steps::default(),
            end: DbState::default(),
        };
        let stored = match Stored::new(&world, (self.setup)(&world).place().as_ref()).await {
            Ok(stored) => stored,
            Err(why) => return Run { outcome: Err(why), ..run },
        };
        for death in deaths.iter().copied().map(Some).chain([None]) {
            let (ended, process, told) = self.run_process(&world, &stored, death).await;
            let mut db_state = match stored.db_state().await {
                Ok(db_state) => db_state,
                Err(error) => return Run { outcome: Err(format!("the database cannot be read after the death: {error}")), ..run },
            };
            db_state.deleted = run.end.deleted || process.writes.contains(&"delete fibers");
            run.steps.lived(&told, &run.end, &db_state, ended.is_none());
            run.processes.push(Process { left: db_state.clone(), ..process });
            run.end = db_state;
            if let Some(outcome) = ended {
                run.outcome = outcome;
                break;
            }
        }
        run
    }

    /// One process; returns its result if it was not ended, and its events.
    async fn run_process(&self, world: &World, stored: &Stored, death: Option<Death>) -> (Option<Result<R, String>>, Process, Vec<Event>) {
        let fuse = Fuse::at(death.map_or(At::Never, |death| death.at));
        let mut builder = (self.setup)(world);
        *builder.place() = Some(stored.place());
        let events = builder.all_events();
        // Ended fibers are compared, so they are kept whatever time passes.
        let builder = builder.retention(Retention::forever()).fuse(fuse.clone());
        let opened = Mutex::new(None::<Forever>);
        let process = async {
            let forever = builder.open().await.map_err(|error| format!("it could not be opened: {error}"))?;
            *opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(forever.clone());
            let outcome = (self.call)(forever.clone()).await;
            stored.at_rest(forever.runtime()).await?;
            forever.close().await.map_err(|error| format!("it could not be closed: {error}"))?;
            Ok(outcome)
        };
        let mut process = Box::pin(AssertUnwindSafe(process).catch_unwind());
        let too_long = race(time_passes(world, &fuse), tokio::time::sleep(self.patience));
        let close_asked = async {
            fuse.close_asked().await;
            let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if opened.is_some_and(|forever| forever.is_closing()) {
                // It closes already.
                fuse.close_begun();
                std::future::pending::<()>().await;
            }
        };
        let ends = race(fuse.blown(), close_asked).map(drop);
        let ended = match race(&mut process, race(ends, too_long.map(drop)).map(drop)).await {
            Some(ended) => Some(ended.unwrap_or_else(|payload| Err(format!("it panicked: {}", text_of(payload.as_ref()))))),
            None if fuse.is_blown() || fuse.is_close_asked() => None,
            None => Some(Err(format!("it has not come to its end after {:?}", self.patience))),
        };
        let is_to_close = ended.is_none() && fuse.is_close_asked();
        let runtime = opened.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|forever| Arc::clone(forever.runtime()));
        let closed = match runtime {
            Some(runtime) if is_to_close => self.close(world, &runtime, &fuse, process.as_mut().map(drop)).await,
            _ => Ok(()),
        };
        drop(process);
        let opened = opened.into_inner().unwrap_or_else(PoisonError::into_inner);
        // A process that is closed while it opens has nothing to be closed yet.
        fuse.close_begun();
        let left_behind = opened.map(|forever| Arc::downgrade(forever.runtime()));
        if let Some(runtime) = left_behind.and_then(|runtime| runtime.upgrade()) {
            runtime.died().await;
        }
        let gone = match closed {
            Ok(()) if ended.is_none() => stored.died(death.and_then(|death| death.torn), &fuse).await,
            closed => closed,
        };
        let death = death.filter(|_| ended.is_none());
        let named = death.map(|death| Death { at: fuse.named(), ..death });
        let process = Process { death, named, writes: fuse.what(), polls: fuse.polls(), left: DbState::default() };
        match gone {
            Ok(()) => (ended, process, told(events)),
            Err(why) => (Some(Err(why)), process, Vec::new()),
        }
    }

    /// Closes the runtime of a process. Its `caller` may fail meanwhile.
    async fn close(&self, world: &World, runtime: &Runtime, fuse: &Fuse, caller: impl Future<Output = ()>) -> Result<(), String> {
        let close = async {
            let mut closed = pin!(runtime.close(DEADLINE));
            // With its first poll it has begun.
            let first = poll_fn(|cx| Poll::Ready(closed.as_mut().poll(cx))).await;
            fuse.close_begun();
            match first {
                Poll::Ready(closed) => closed,
                Poll::Pending => closed.await,
            }
        };
        let caller = async {
            caller.await;
            std::future::pending::<()>().await;
        };
        let too_long = race(race(caller, time_passes(world, fuse)), tokio::time::sleep(self.patience)).map(drop);
        let closed = race(close, too_long).await.ok_or_else(|| format!("it was not closed after {:?}", self.patience))?;
        closed.map_err(|error| format!("it could not be closed: {error}"))
    }
}

/// All events until the runtime was gone.
fn told(mut events: Events) -> Vec<Event> {
    let mut told = Vec::new();
    while let Some(Some(next)) = events.next().now_or_never() {
        if let EventItem::Event(event) = next {
            told.push(event);
        }
    }
    told
}

/// Advances the time of the world whenever the program is idle. Never ready.
async fn time_passes(world: &World, fuse: &Fuse) {
    let mut quiet = 0;
    let mut before = None;
    loop {
        // A task that was just woken runs first. A jump that woke no work is soon followed by the
        // next.
        if quiet < QUIET {
            tokio::time::sleep(LOOK).await;
        } else {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        }
        // A program that asks how far it is, as often as this looks, is just asking: it is looked
        // at when it has its answers. With one it may begin something.
        for _ in 0..RESTS {
            let rests = fuse.rests();
            if !fuse.is_in_use() {
                break;
            }
            rests.await;
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        }
        let now = fuse.writes();
        quiet = if before.replace(now) == Some(now) { quiet + 1 } else { 0 };
        if quiet >= QUIET
            && let Some(clock) = world.clock_in_use()
            && let Some(until) = clock.next_sleeper()
        {
            clock.advance(until);
        } else {
            quiet = quiet.min(QUIET - 1);
        }
    }
}

pub(in crate::testing) fn text_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("something that is not a text").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::store::Witness;

    /// Whether an hour passes under a program that asks.
    async fn hour_passes(world: &World, fuse: &Fuse, asks: impl Future<Output = ()>) -> bool {
        let slept = world.clock().sleep(Duration::from_secs(3600));
        let passes = race(race(time_passes(world, fuse), asks).map(drop), tokio::time::sleep(Duration::from_secs(20))).map(drop);
        race(slept, passes).await.is_some()
    }

    /// It is under way at each look, and in between it rests.
    #[tokio::test]
    async fn time_passes_under_a_program_that_asks_as_often_as_it_is_looked_at() {
        let (world, fuse) = (World::default(), Fuse::never());
        let asks = async {
            loop {
                fuse.asked();
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                }
                fuse.left();
                tokio::time::sleep(LOOK).await;
            }
        };
        assert!(hour_passes(&world, &fuse, asks).await);
    }

    /// As on a machine with other work: it never rests for two looks in a row.
    #[tokio::test(start_paused = true)]
    async fn time_passes_under_a_program_whose_answers_take_longer_than_a_look() {
        let (world, fuse) = (World::default(), Fuse::never());
        let asks = async {
            loop {
                for _ in 0..2 {
                    fuse.asked();
                    tokio::time::sleep(2 * LOOK).await;
                    fuse.left();
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        assert!(hour_passes(&world, &fuse, asks).await);
    }

    /// It stands still while an answer is awaited.
    #[tokio::test]
    async fn time_stands_still_while_the_store_is_in_use() {
        let (world, fuse) = (World::default(), Fuse::never());
        let clock = world.clock();
        fuse.asked();
        let slept = async { clock.sleep(Duration::from_secs(1)).await };
        let some_time = race(time_passes(&world, &fuse), tokio::time::sleep(20 * LOOK)).map(drop);
        assert!(race(slept, some_time).await.is_none());
    }
}
