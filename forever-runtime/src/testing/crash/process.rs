//! One run: a process that a fuse ends repeatedly, until it reaches its end.
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::super::dice::Dice;
use super::World;
use super::db_state::DbState;
use super::steps::Steps;
use super::torn_write::torn_write;
use crate::api::builder::{Builder, Place};
use crate::api::forever::Forever;
use crate::runtime::events::{Event, EventItem, Events};
use crate::runtime::race::race;
use crate::runtime::settings::Retention;
use crate::runtime::state::Runtime;
use crate::testing::fuse::Fuse;

/// Interval at which it is checked whether all is at rest.
const LOOK: Duration = Duration::from_millis(1);

/// Number of checks without changes after which time advances.
const QUIET: u32 = 3;

/// Number of turns for the tasks that a jump, or an answer, has woken.
const TURNS: u32 = 50;

/// Moment at which a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Death {
    /// Number of the write, from 1.
    pub(super) write: u64,
    pub(super) after: bool,
    /// Seed for damage to the end of the write-ahead log.
    pub(super) torn: Option<u64>,
}

impl Death {
    pub(super) fn at(write: u64, after: bool) -> Self {
        Death { write, after, torn: None }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} write {}", if self.after { "after" } else { "before" }, self.write)?;
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
    /// Number of processes that ended as planned.
    pub(super) fn deaths(&self) -> usize {
        self.processes.iter().filter(|process| process.death.is_some()).count()
    }
}

/// One process of a run.
#[derive(Debug)]
pub(in crate::testing) struct Process {
    /// How it was ended; `None` if it reached its end.
    pub(super) death: Option<Death>,
    pub(super) writes: Vec<&'static str>,
    pub(super) left: DbState,
}

/// The database of a run.
#[derive(Debug)]
enum Stored {
    /// In memory, while this connection is open.
    Memory {
        name: String,
        keeper: Connection,
    },
    File(PathBuf),
}

impl Stored {
    /// The place that the first builder of a run has chosen.
    fn new(world: &World, chosen: Option<&Place>) -> Result<Self, String> {
        match chosen {
            Some(Place::File(path)) if *path == world.database() => Ok(Stored::File(path.clone())),
            Some(Place::File(_)) => Err("each run needs a file of its own: give `.sqlite(world.database())`".to_owned()),
            Some(Place::Store(_)) => {
                Err("each run needs a database of its own: give `.sqlite(world.database())` or `.in_memory()`".to_owned())
            }
            _ => {
                let name = format!("forever-crash-{}", uuid::Uuid::now_v7());
                let keeper = Connection::open(format!("file:/{name}?vfs=memdb")).map_err(|e| e.to_string())?;
                Ok(Stored::Memory { name, keeper })
            }
        }
    }

    fn place(&self) -> Place {
        match self {
            Stored::Memory { name, .. } => Place::Named(name.clone()),
            Stored::File(path) => Place::File(path.clone()),
        }
    }

    /// Reads the database, beside the process or after it.
    fn look<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        match self {
            Stored::Memory { keeper, .. } => read(keeper),
            Stored::File(path) => {
                let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
                // The next process needs the log as the last one left it.
                conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                read(&conn)
            }
        }
    }

    fn db_state(&self) -> rusqlite::Result<DbState> {
        match self {
            Stored::File(path) if !path.exists() => Ok(DbState::default()),
            _ => self.look(DbState::read),
        }
    }

    /// Ready when no fiber and no schedule runs or is about to. A fiber that an earlier process has
    /// left is marked interrupted until it is claimed.
    async fn at_rest(&self, runtime: &Runtime) -> Result<(), String> {
        const INTERRUPTED: &str = "SELECT id FROM fibers WHERE state = 'interrupted'";
        const BUSY: &str = "SELECT (SELECT count(*) FROM fibers WHERE state IN ('pending', 'running'))
                                 + (SELECT count(*) FROM schedules WHERE running_ms IS NOT NULL)";
        let is_busy = |conn: &Connection| -> rusqlite::Result<bool> {
            // Fibers to be claimed are read first: one that is claimed in between then shows among
            // the running ones.
            let interrupted: Vec<String> = conn.prepare(INTERRUPTED)?.query_map((), |r| r.get(0))?.collect::<Result<_, _>>()?;
            let about_to = interrupted.iter().any(|id| runtime.active.is_active(id));
            Ok(about_to || conn.query_row(BUSY, (), |r| r.get::<_, i64>(0))? > 0)
        };
        while self.look(is_busy).map_err(|error| error.to_string())? {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
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
        let stored = match Stored::new(&world, (self.setup)(&world).place().as_ref()) {
            Ok(stored) => stored,
            Err(why) => return Run { outcome: Err(why), ..run },
        };
        for death in deaths.iter().copied().map(Some).chain([None]) {
            let (ended, process, told) = self.run_process(&world, &stored, death).await;
            let mut db_state = match stored.db_state() {
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
        let fuse = match death {
            Some(Death { write, after: true, .. }) => Fuse::after(write),
            Some(Death { write, after: false, .. }) => Fuse::before(write),
            None => Fuse::never(),
        };
        let mut builder = (self.setup)(world);
        *builder.place() = Some(stored.place());
        let events = builder.all_events();
        // Ended fibers are compared, so they are kept whatever time passes.
        let builder = builder.retention(Retention::forever()).fuse(fuse.clone());
        // A handle that was kept must not keep a dead process alive.
        let runtime = Mutex::new(Weak::<Runtime>::new());
        let process = async {
            let forever = builder.open().await.map_err(|error| format!("it could not be opened: {error}"))?;
            *runtime.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(forever.runtime());
            let outcome = (self.call)(forever.clone()).await;
            stored.at_rest(forever.runtime()).await?;
            forever.close().await.map_err(|error| format!("it could not be closed: {error}"))?;
            Ok(outcome)
        };
        let process = AssertUnwindSafe(process).catch_unwind();
        let too_long = race(time_passes(world, &fuse), tokio::time::sleep(self.patience));
        let ended = match race(process, race(fuse.blown(), too_long.map(drop)).map(drop)).await {
            Some(ended) => Some(ended.unwrap_or_else(|payload| Err(format!("it panicked: {}", text_of(payload.as_ref()))))),
            None if fuse.is_blown() => None,
            None => Some(Err(format!("it has not come to its end after {:?}", self.patience))),
        };
        let left_behind = runtime.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(runtime) = left_behind {
            runtime.died().await;
        }
        if let (Some(Death { torn: Some(seed), .. }), None, Stored::File(path), Some((heard, last))) = (death, &ended, stored, fuse.log())
            && let Err(error) = torn_write(path, heard, last, &mut Dice::new(seed))
        {
            let why = format!("its write-ahead log could not be torn: {error}");
            return (Some(Err(why)), Process { death, writes: fuse.what(), left: DbState::default() }, Vec::new());
        }
        let death = death.filter(|_| ended.is_none());
        (ended, Process { death, writes: fuse.what(), left: DbState::default() }, told(events))
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
        if fuse.idle().is_none() {
            // A program that asks how far it is, as often as this looks, is just asking. With the
            // answer it may begin something.
            race(fuse.rests(), tokio::time::sleep(LOOK)).await;
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        }
        let now = fuse.idle();
        quiet = if now.is_some() && now == before { quiet + 1 } else { 0 };
        before = now;
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
    use crate::store::sqlite::Witness;

    /// It is under way at each look, and in between it rests.
    #[tokio::test]
    async fn time_passes_under_a_program_that_asks_as_often_as_it_is_looked_at() {
        let (world, fuse) = (World::default(), Fuse::never());
        let clock = world.clock();
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
        let slept = async { clock.sleep(Duration::from_secs(3600)).await };
        let passes = async {
            race(time_passes(&world, &fuse), asks).await;
        };
        assert!(race(slept, race(passes, tokio::time::sleep(Duration::from_secs(20))).map(drop)).await.is_some());
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
