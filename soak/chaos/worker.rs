//! A worker: a process that opens the database and continues the round, by its arguments. Most are
//! killed while they do.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forever::Retention;
use forever::fiber::{EventItem, EventKind};
use forever::prelude::*;
use forever_testkit::process;
use tokio::time::sleep;

use super::driver::{Driver, Past};
use super::journal;
use super::office::Clerk;
use super::round::Round;
use super::world::{Hurry, Mishaps, PLANNED, World};
use super::{fibers, money};

/// File name of a round's database, in its folder.
pub(crate) const DATABASE: &str = "chaos.db";

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(20 * 60);

/// Arguments of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) dir: PathBuf,
    pub(crate) seed: u64,
    pub(crate) life: u32,
    /// Start of the round, in milliseconds since 1970.
    pub(crate) since: u64,
    pub(crate) mishaps: Mishaps,
    /// When the disk becomes full, and for how long, in microseconds.
    pub(crate) full: Option<(u64, u64)>,
    /// When it closes by itself, in microseconds.
    pub(crate) close: Option<u64>,
    /// Whether it ends when everything has ended.
    pub(crate) last: bool,
    pub(crate) forgetful: bool,
    /// Whether faults are injected into its I/O.
    pub(crate) faulty: bool,
}

/// Runs a worker by its arguments, until it is killed.
pub(crate) fn run(orders: &Orders) -> anyhow::Result<()> {
    process::end_with_parent();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload();
        let text = said.downcast_ref::<String>().map(String::as_str).or_else(|| said.downcast_ref::<&str>().copied());
        if text != Some(PLANNED) {
            usual(info);
        }
    }));
    let round = Round::drawn(orders.seed);
    let mut builder = match round.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(2).enable_all().build()?.block_on(live(orders, round))
}

async fn live(orders: &Orders, round: Round) -> anyhow::Result<()> {
    let world = World::open(&orders.dir, orders.seed, orders.life, orders.mishaps, orders.forgetful)?;
    world.write(&format!("waits {}", std::env::var("FOREVER_FAULTS").unwrap_or_default()));
    let forever = open(orders, &round, &world).await?;
    world.write("opens");
    let events = tokio::spawn(tell(forever.events(), world.clone()));
    let past = Past::read(&journal::read(&orders.dir)?);
    if let Some((after, long)) = orders.full {
        tokio::spawn(fill_disk(forever.clone(), world.clone(), after, long));
    }
    let work = Arc::new(Driver { forever: forever.clone(), world: world.clone(), past }).drive(round);
    let closed = async {
        match orders.close {
            Some(after) => sleep(Duration::from_micros(after)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = work => {
            done?;
            world.write("done");
            if !orders.last && orders.close.is_none() {
                // Waits to be killed.
                std::future::pending::<()>().await;
            }
        }
        () = closed => {}
    }
    match forever.close().await {
        // On a disk that is full or fails, a close cannot be clean, and reports that.
        Err(error) if error.is_retryable() && (orders.full.is_some() || orders.faulty) => world.write(&format!("refused {error}")),
        closed => closed?,
    }
    events.await?;
    world.write("closed");
    Ok(())
}

/// Opens the database, and retries where faults are injected.
async fn open(orders: &Orders, round: &Round, world: &World) -> anyhow::Result<Forever> {
    loop {
        match builder(orders, round, world).open().await {
            Err(error) if error.is_retryable() && orders.faulty => world.write(&format!("refused {error}")),
            opened => return Ok(opened?),
        }
        sleep(Duration::from_millis(1)).await;
    }
}

fn builder(orders: &Orders, round: &Round, world: &World) -> forever::Builder {
    let of_agents = world.clone();
    let builder = Forever::builder().sqlite(orders.dir.join(DATABASE)).durability(round.durability).wait_for_lock(LONG);
    let builder = builder.clock(Hurry::new(orders.since)).retention(Retention::forever()).resource(world.clone());
    let builder = builder.idle_timeout(Duration::from_secs(1)).hook_timeout(LONG).check_timeout(LONG).hung_schedule_timeout(LONG);
    let builder = builder.migration("bookings", money::BOOKINGS).agent(move |me| Clerk { me, world: of_agents.clone() });
    let builder = builder.fiber::<fibers::chain>().fiber::<fibers::nested>().fiber::<fibers::side>().fiber::<fibers::notes>();
    let builder = builder.fiber::<fibers::sleeper>().fiber::<fibers::inbox>().fiber::<fibers::family>().fiber::<fibers::doomed>();
    let builder = builder.fiber::<fibers::child>().fiber::<money::by_retry>().fiber::<money::by_check>().fiber::<money::by_park>();
    builder.fiber::<money::by_fail>().fiber::<money::by_hand>().fiber::<money::booking>()
}

/// Records what the runtime reports as stored.
async fn tell(mut events: forever::fiber::Events, world: World) {
    while let Some(told) = events.next().await {
        if let EventItem::Event(event) = told {
            match event.kind {
                EventKind::StepFinished { checkpoint, .. } => world.write(&format!("finished {} {checkpoint}", event.fiber)),
                EventKind::Interrupted { reason } => world.write(&format!("interrupted {} {reason}", event.fiber)),
                _ => {}
            }
        }
    }
}

/// Makes the disk full for a while, by a limit on the database.
async fn fill_disk(forever: Forever, world: World, after: u64, long: u64) {
    sleep(Duration::from_micros(after)).await;
    // SQLite raises this to the current number of pages.
    if forever.limit_pages(1).await.is_ok() {
        world.write("full");
        sleep(Duration::from_micros(long)).await;
        if forever.limit_pages(u32::MAX / 2).await.is_ok() {
            world.write("room");
        }
    }
}

/// Path of a round's database.
pub(crate) fn database(dir: &Path) -> PathBuf {
    dir.join(DATABASE)
}
