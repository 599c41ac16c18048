//! Many fibers: starting, running, sleeping, finished and orphaned ones.
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use forever::fiber::{History, Log};
use forever::prelude::*;
use forever::{Builder, Clock, Retention, SystemClock};
use tokio::sync::{Semaphore, watch};

use crate::child::{DATABASE, Probe, durability, payload, work};
use crate::numbers::{float, ms, percentiles};
use crate::usage::{Usage, say, tell};

#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) enum Scale {
    /// Starts `fibers` fibers without a step, `at_once` at a time, and waits for each.
    Trivial { fibers: u64, at_once: usize, power: bool },
    /// Measures the memory of fibers that are in a step.
    Standing { fibers: u64 },
    /// Leaves sleeping fibers, of which the first `due` wake up at intervals of a millisecond;
    /// measures their memory.
    FallAsleep { fibers: u64, due: u64 },
    /// Opens the database of [`Scale::FallAsleep`], shortly before the first fiber is due.
    Awake { due: u64 },
    /// Leaves finished fibers.
    Finished { fibers: u64 },
    /// Measures the time to open the database as it is, and to store checkpoints in it.
    Beside { steps: u64 },
    /// Fibers in a step that does not end; prints a word when all of them are there.
    Crowd { fibers: u64 },
    /// Steps of a fiber with a local of `bytes` bytes that stays the same.
    Ballast { bytes: usize, steps: u64 },
    /// Concurrent fibers of `steps` steps each, which are effects or plain steps.
    Effects { fibers: u64, steps: u64, effect: bool },
    /// Concurrent fibers of which the history is kept: nothing, the last hundred checkpoints, or all.
    History { fibers: u64, steps: u64, power: bool, keep: Keep },
    /// A transcript in a `Log` that grows by a message of 170 bytes at each step; measures the last
    /// tenth of it.
    Transcript { messages: u64 },
}

#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) enum Keep {
    Nothing,
    Last100,
    All,
}

/// Figures by name.
pub(crate) type Figures = BTreeMap<String, f64>;

#[tokio::main]
pub(crate) async fn run(scale: Scale, dir: &Path) -> anyhow::Result<()> {
    match scale {
        Scale::Trivial { fibers, at_once, power } => trivial_fibers(dir, fibers, at_once, power).await,
        Scale::Standing { fibers } => standing(dir, fibers).await,
        Scale::FallAsleep { fibers, due } => fall_asleep(dir, fibers, due).await,
        Scale::Awake { due } => awake(dir, due).await,
        Scale::Finished { fibers } => finished(dir, fibers).await,
        Scale::Beside { steps } => beside(dir, steps).await,
        Scale::Crowd { fibers } => crowd(dir, fibers).await,
        Scale::Ballast { bytes, steps } => ballast_fiber(dir, bytes, steps).await,
        Scale::Effects { fibers, steps, effect } => effects(dir, fibers, steps, effect).await,
        Scale::History { fibers, steps, power, keep } => history(dir, fibers, steps, power, keep).await,
        Scale::Transcript { messages } => transcript_fiber(dir, messages).await,
    }
}

fn builder(dir: &Path, power: bool) -> Builder {
    Forever::builder().sqlite(dir.join(DATABASE)).durability(durability(power)).history(History::off()).retention(Retention::forever())
}

/// A fiber that does nothing.
#[fiber]
async fn trivial(number: u64) -> anyhow::Result<u64> {
    Ok(number + 1)
}

async fn trivial_fibers(dir: &Path, fibers: u64, at_once: usize, power: bool) -> anyhow::Result<()> {
    let forever = builder(dir, power).fiber::<trivial>().open().await?;
    let places = Arc::new(Semaphore::new(at_once));
    let begun = Usage::now();
    let mut tasks = Vec::new();
    for number in 0..fibers {
        let place = Arc::clone(&places).acquire_owned().await?;
        let forever = forever.clone();
        tasks.push(tokio::spawn(async move {
            let done = forever.run(trivial(number)).await;
            drop(place);
            done
        }));
    }
    for task in tasks {
        task.await??;
    }
    tell(&begun.spent());
    Ok(forever.close().await?)
}

/// Counts the fibers that have reached it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<watch::Sender<u64>>);

impl Gate {
    pub(crate) fn enter(&self) {
        self.0.send_modify(|inside| *inside += 1);
    }

    /// Counts this fiber, and never returns.
    async fn stand(&self) -> u64 {
        self.enter();
        std::future::pending().await
    }

    pub(crate) async fn has(&self, fibers: u64) -> anyhow::Result<()> {
        self.0.subscribe().wait_for(|inside| *inside >= fibers).await?;
        Ok(())
    }
}

/// A fiber that completes one step and stays in the next.
#[fiber]
async fn stand(gate: Res<Gate>, number: u64) -> anyhow::Result<u64> {
    let state = step!("first", async { payload(number) }.await);
    let inside = step!("stands", gate.stand().await);
    Ok(inside + state.len() as u64)
}

/// Starts a fiber for each number, some hundreds at a time, and keeps no handle.
async fn start_all<F: forever::fiber::Fiber>(forever: &Forever, fibers: u64, fiber: impl Fn(u64) -> F) -> anyhow::Result<()> {
    let places = Arc::new(Semaphore::new(500));
    for number in 0..fibers {
        let place = Arc::clone(&places).acquire_owned().await?;
        let (forever, fiber) = (forever.clone(), fiber(number));
        tokio::spawn(async move {
            forever.spawn(fiber).await.expect("the fiber is stored");
            drop(place);
        });
    }
    let _all = places.acquire_many(500).await?;
    Ok(())
}

/// Growth of this process's memory.
fn grown(since: Option<u64>) -> f64 {
    let grown = since.and_then(|since| Some(resident()?.saturating_sub(since)));
    grown.map_or(f64::NAN, float)
}

async fn standing(dir: &Path, fibers: u64) -> anyhow::Result<()> {
    let gate = Gate::default();
    let forever = builder(dir, false).resource(gate.clone()).fiber::<stand>().open().await?;
    let before = resident();
    start_all(&forever, fibers, stand).await?;
    gate.has(fibers).await?;
    tell(&Figures::from([("bytes".to_owned(), grown(before) / float(fibers))]));
    Ok(())
}

/// Time at which the first sleeping fiber is due, in milliseconds since 1970: in the year 2100, to
/// which the clock is shifted.
const DUE_MS: u64 = 4_102_444_800_000;

/// How long before that time the runtime is opened.
const EARLY: Duration = Duration::from_secs(4);

/// The system's clock, shifted to another time.
#[derive(Debug)]
struct Shifted {
    system: SystemClock,
    ahead: Duration,
}

impl Clock for Shifted {
    fn now(&self) -> SystemTime {
        self.system.now() + self.ahead
    }

    fn sleep(&self, duration: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        self.system.sleep(duration)
    }

    fn id(&self) -> String {
        self.system.id()
    }
}

/// Receives how late fibers wake up.
#[derive(Clone)]
struct Bell {
    clock: Arc<Shifted>,
    late_ms: Arc<watch::Sender<Vec<f64>>>,
}

impl Bell {
    fn new(ahead: Duration) -> Self {
        Bell { clock: Arc::new(Shifted { system: SystemClock::new(), ahead }), late_ms: Arc::default() }
    }

    fn rings(&self, at_ms: u64) -> u64 {
        let late = self.clock.now().duration_since(UNIX_EPOCH + Duration::from_millis(at_ms)).unwrap_or_default();
        self.late_ms.send_modify(|all| all.push(ms(late)));
        at_ms
    }

    async fn open(&self, dir: &Path, power: bool) -> anyhow::Result<Forever> {
        let clock = Shifted { system: SystemClock::new(), ahead: self.clock.ahead };
        Ok(builder(dir, power).clock(clock).resource(self.clone()).fiber::<sleeper>().open().await?)
    }
}

#[fiber]
async fn sleeper(bell: Res<Bell>, number: u64, at_ms: u64) -> anyhow::Result<u64> {
    let state = payload(number);
    sleep_until!(UNIX_EPOCH + Duration::from_millis(at_ms));
    let at = step!("wakes", bell.rings(at_ms));
    Ok(at + state.len() as u64)
}

async fn fall_asleep(dir: &Path, fibers: u64, due: u64) -> anyhow::Result<()> {
    let forever = Bell::new(Duration::ZERO).open(dir, false).await?;
    let before = resident();
    let day_ms = 24 * 60 * 60 * 1000;
    start_all(&forever, fibers, |number| sleeper(number, DUE_MS + if number < due { number } else { day_ms })).await?;
    let look = rusqlite::Connection::open(dir.join(DATABASE))?;
    while look.query_row("SELECT count(*) FROM waits", (), |row| row.get::<_, i64>(0))? < i64::try_from(fibers)? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tell(&Figures::from([("bytes".to_owned(), grown(before) / float(fibers))]));
    drop(look);
    Ok(forever.close().await?)
}

async fn awake(dir: &Path, due: u64) -> anyhow::Result<()> {
    let now = SystemClock::new().now().duration_since(UNIX_EPOCH)?;
    let bell = Bell::new(Duration::from_millis(DUE_MS).saturating_sub(EARLY).saturating_sub(now));
    let before = resident();
    let (forever, open_ms) = timed(bell.open(dir, true)).await?;
    let after_open = grown(before);
    bell.late_ms.subscribe().wait_for(|late| late.len() as u64 == due).await?;
    let [p50, p99, max] = percentiles(bell.late_ms.borrow().clone());
    tell(&figures([
        ("open_ms", open_ms),
        ("open_memory_mb", after_open / 1e6),
        ("due_memory_mb", grown(before) / 1e6),
        ("late_p50_ms", p50),
        ("late_p99_ms", p99),
        ("late_max_ms", max),
    ]));
    Ok(forever.close().await?)
}

fn figures<const N: usize>(figures: [(&str, f64); N]) -> Figures {
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Result of a future, and the milliseconds that it took.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
async fn timed<T>(what: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<(T, f64)> {
    let begun = Instant::now();
    let value = what.await?;
    Ok((value, ms(begun.elapsed())))
}

async fn finished(dir: &Path, fibers: u64) -> anyhow::Result<()> {
    builder(dir, false).open().await?.close().await?;
    let conn = rusqlite::Connection::open(dir.join(DATABASE))?;
    conn.pragma_update(None, "synchronous", "OFF")?;
    conn.execute(
        "INSERT INTO fibers (id, name, state, args, result, created_ms, changed_ms, finished_ms)
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
         SELECT format('01960000-0000-7000-8000-%012d', n), 'trivial', 'completed', format('{\"number\":%d}', n), n, n, n, n FROM n",
        [i64::try_from(fibers)?],
    )?;
    tell(&Figures::new());
    Ok(())
}

async fn beside(dir: &Path, steps: u64) -> anyhow::Result<()> {
    let open = async { Ok(builder(dir, true).resource(Probe::new(u64::MAX)).fiber::<work>().fiber::<trivial>().open().await?) };
    let (forever, open_ms) = timed(open).await?;
    let ((), steps_ms) = timed(async { Ok(forever.run(work(0, steps)).await.map(drop)?) }).await?;
    let fibers = steps / 4;
    let ((), fibers_ms) = timed(async {
        for number in 0..fibers {
            forever.run(trivial(number)).await?;
        }
        Ok(())
    })
    .await?;
    tell(&figures([
        ("open_ms", open_ms),
        ("steps_per_second", float(steps) * 1e3 / steps_ms),
        ("trivial_fibers_per_second", float(fibers) * 1e3 / fibers_ms),
    ]));
    Ok(forever.close().await?)
}

async fn crowd(dir: &Path, fibers: u64) -> anyhow::Result<()> {
    let gate = Gate::default();
    let new = !dir.join(DATABASE).exists();
    let forever = builder(dir, true).resource(gate.clone()).fiber::<stand>().open().await?;
    if new {
        start_all(&forever, fibers, stand).await?;
    }
    gate.has(1).await?;
    say("step");
    gate.has(fibers).await?;
    say("all");
    std::future::pending().await
}

/// A fiber with a long local.
#[fiber]
async fn carry(bytes: usize, steps: u64) -> anyhow::Result<usize> {
    let ballast = "x".repeat(bytes);
    let mut state = payload(0);
    for step in 0..steps {
        state = step!("work", async { payload(step) }.await);
    }
    Ok(ballast.len() + state.len())
}

async fn ballast_fiber(dir: &Path, bytes: usize, steps: u64) -> anyhow::Result<()> {
    let forever = builder(dir, true).fiber::<carry>().open().await?;
    let begun = Usage::now();
    forever.run(carry(bytes, steps)).await?;
    tell(&begun.spent());
    Ok(forever.close().await?)
}

/// The same steps, as plain steps and as effects.
#[fiber]
async fn plain_steps(number: u64, steps: u64) -> anyhow::Result<String> {
    let mut state = payload(number);
    for step in 0..steps {
        state = step!("work", |op| paid(op.id(), number + step));
    }
    Ok(state)
}

#[fiber]
async fn effect_steps(number: u64, steps: u64) -> anyhow::Result<String> {
    let mut state = payload(number);
    for step in 0..steps {
        state = step!("work", effect, |op| paid(op.id(), number + step));
    }
    Ok(state)
}

fn paid(_key: &str, step: u64) -> String {
    payload(step)
}

async fn effects(dir: &Path, fibers: u64, steps: u64, effect: bool) -> anyhow::Result<()> {
    let forever = builder(dir, true).fiber::<plain_steps>().fiber::<effect_steps>().open().await?;
    let begun = Usage::now();
    let runs = (0..fibers).map(|number| {
        let forever = forever.clone();
        tokio::spawn(async move {
            if effect { forever.run(effect_steps(number, steps)).await } else { forever.run(plain_steps(number, steps)).await }
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await??;
    }
    tell(&begun.spent());
    Ok(forever.close().await?)
}

async fn history(dir: &Path, fibers: u64, steps: u64, power: bool, keep: Keep) -> anyhow::Result<()> {
    let history = match keep {
        Keep::Nothing => History::off(),
        Keep::Last100 => History::last(100),
        Keep::All => History::all(),
    };
    let builder = builder(dir, power).history(history).resource(Probe::new(u64::MAX));
    let forever = builder.fiber::<work>().open().await?;
    let begun = Usage::now();
    let runs = (0..fibers).map(|number| {
        let forever = forever.clone();
        tokio::spawn(async move { forever.run(work(number, steps)).await })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await??;
    }
    tell(&begun.spent());
    Ok(forever.close().await?)
}

/// Reads what was used when the last tenth of the messages begins.
#[derive(Clone)]
struct Meter {
    from: u64,
    begun: Arc<std::sync::Mutex<Option<Usage>>>,
}

impl Meter {
    fn message(&self, number: u64) -> String {
        if number == self.from {
            *self.begun.lock().expect("nobody panics with it") = Some(Usage::now());
        }
        let text = payload(number);
        text.chars().cycle().take(170).collect()
    }
}

#[fiber]
async fn transcript(meter: Res<Meter>, messages: u64) -> anyhow::Result<usize> {
    let mut transcript = Log::new();
    for number in 0..messages {
        let message = step!("message", meter.message(number));
        transcript.push(message);
    }
    Ok(transcript.len())
}

async fn transcript_fiber(dir: &Path, messages: u64) -> anyhow::Result<()> {
    let meter = Meter { from: messages - messages / 10, begun: Arc::default() };
    let forever = builder(dir, true).resource(meter.clone()).fiber::<transcript>().open().await?;
    forever.run(transcript(messages)).await?;
    tell(&meter.begun.lock().expect("nobody panics with it").as_ref().context("it has come so far")?.spent());
    Ok(forever.close().await?)
}

/// Resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kib * 1024)
}
