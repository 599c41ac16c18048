//! The resource of the fibers' steps: the log of effects, a bank, a clock that runs fast, and
//! planned mishaps.
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forever::{Clock, SystemClock};
use forever_testkit::prng::Prng;

use super::journal::{Journal, Reader};
use super::round;

/// Text of a planned panic.
pub(crate) const PLANNED: &str = "a panic as planned";

/// Way in which a process ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    Abort,
    Exit,
}

/// Exit code of an `exit` in a step.
pub(crate) const EXIT: i32 = 3;

/// Mishaps of a life, each with its step, counted from the beginning of the life.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mishaps {
    pub(crate) end: Option<(Mishap, u32)>,
    pub(crate) panic: Option<u32>,
}

/// The resource of all fibers.
#[derive(Clone)]
pub(crate) struct World(Arc<Inner>);

struct Inner {
    journal: Journal,
    books: Mutex<Books>,
    prng: Mutex<Prng>,
    steps: AtomicU32,
    mishaps: Mishaps,
    forgetful: bool,
}

/// The bank's books, over all lives.
struct Books {
    reader: Reader,
    /// Business key and id.
    charges: Vec<(String, String)>,
}

/// Account at the bank. One returns the same charge again for an id that it knows; at the other
/// each request is a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    HonoursIds,
    Plain,
}

impl World {
    pub(crate) fn open(dir: &Path, seed: u64, life: u32, mishaps: Mishaps, forgetful: bool) -> anyhow::Result<Self> {
        let books = Mutex::new(Books { reader: Reader::open(dir)?, charges: Vec::new() });
        let prng = Mutex::new(Prng::of_purpose(seed, &format!("life {life}")));
        let inner = Inner { journal: Journal::open(dir)?, books, prng, steps: AtomicU32::new(0), mishaps, forgetful };
        Ok(World(Arc::new(inner)))
    }

    /// Adds a line to the log of effects.
    pub(crate) fn write(&self, words: &str) {
        self.0.journal.write(words);
    }

    /// Begins every step's body.
    async fn begin(&self, fiber: &str, place: &str, may_panic: bool) {
        self.write(&format!("begin {fiber} {place}"));
        let nth = self.0.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let Mishaps { end, panic } = self.0.mishaps;
        match end {
            Some((Mishap::Abort, at)) if at == nth => std::process::abort(),
            Some((Mishap::Exit, at)) if at == nth => std::process::exit(EXIT),
            _ => {}
        }
        if may_panic && panic.is_some_and(|at| nth >= at && nth < at + 8) {
            self.write(&format!("panics {fiber} {place}"));
            panic!("{PLANNED}");
        }
        self.pause().await;
    }

    /// The body of a step of a fiber that is resumed if it panics.
    pub(crate) async fn work(&self, fiber: &str, place: u32) -> anyhow::Result<u64> {
        self.begin(fiber, &place.to_string(), true).await;
        Ok(round::value(fiber, place))
    }

    /// As [`work`](Self::work), for fibers that are not resumed after a panic.
    pub(crate) async fn calm(&self, fiber: &str, place: u32) -> anyhow::Result<u64> {
        self.begin(fiber, &place.to_string(), false).await;
        Ok(round::value(fiber, place))
    }

    /// The body of a step whose first attempt fails.
    pub(crate) async fn flaky(&self, fiber: &str, place: u32, attempt: u32) -> anyhow::Result<u64> {
        let value = self.work(fiber, place).await?;
        anyhow::ensure!(attempt > 1, "the first attempt fails");
        Ok(value)
    }

    /// The body of a step that runs concurrently with others.
    pub(crate) async fn branch(&self, fiber: &str, place: u32, branch: u32) -> anyhow::Result<String> {
        self.begin(fiber, &format!("{place}.{branch}"), true).await;
        Ok(format!("{fiber}/{place}.{branch}"))
    }

    /// Requests a charge of the bank; returns the receipt.
    pub(crate) async fn charge(&self, account: Account, key: &str, id: &str) -> anyhow::Result<String> {
        self.write(&format!("asks {key} {id}"));
        self.pause().await;
        {
            let mut books = self.books()?;
            let honoured = account == Account::HonoursIds && !self.0.forgetful;
            if !honoured || !books.charges.iter().any(|(_, there)| there == id) {
                self.write(&format!("charge {key} {id}"));
                books.read_new()?;
                if self.0.forgetful && account == Account::HonoursIds && books.charges.iter().filter(|(there, _)| there == key).count() == 1
                {
                    // So that the charge is requested again.
                    std::process::abort();
                }
            }
        }
        self.pause().await;
        Ok(receipt(key))
    }

    /// Queries the bank about a charge under an id; returns its receipt.
    pub(crate) async fn find(&self, key: &str, id: &str) -> anyhow::Result<Option<String>> {
        self.find_by(key, id, |(_, there)| there == id).await
    }

    /// As [`find`](Self::find), under any id.
    pub(crate) async fn find_key(&self, key: &str) -> anyhow::Result<Option<String>> {
        self.find_by(key, "any", |(there, _)| there == key).await
    }

    async fn find_by(&self, key: &str, id: &str, is: impl Fn(&(String, String)) -> bool) -> anyhow::Result<Option<String>> {
        self.pause().await;
        let found = self.books()?.charges.iter().any(is);
        self.write(&format!("finds {key} {id} {}", if found { "a charge" } else { "none" }));
        self.pause().await;
        Ok(found.then(|| receipt(key)))
    }

    /// The current books, with the charges of earlier processes.
    fn books(&self) -> anyhow::Result<MutexGuard<'_, Books>> {
        let mut books = locked(&self.0.books);
        books.read_new()?;
        Ok(books)
    }

    /// Waits for no time, a moment, or rarely some milliseconds.
    pub(crate) async fn pause(&self) {
        let (what, micros) = {
            let mut prng = locked(&self.0.prng);
            (prng.below(20), prng.below(1000_u64))
        };
        match what {
            0 => tokio::time::sleep(Duration::from_micros(8 * micros)).await,
            1..=5 => tokio::time::sleep(Duration::from_micros(micros)).await,
            6..=10 => tokio::task::yield_now().await,
            _ => {}
        }
    }

    /// A number from 0 to below `end`.
    pub(crate) fn below(&self, end: u32) -> u32 {
        locked(&self.0.prng).below(end)
    }
}

/// The receipt of a charge.
fn receipt(key: &str) -> String {
    format!("receipt:{key}")
}

impl Books {
    fn read_new(&mut self) -> anyhow::Result<()> {
        for line in self.reader.new_lines()? {
            if let ["charge", key, id] = line.words::<3>() {
                self.charges.push((key.to_owned(), id.to_owned()));
            }
        }
        Ok(())
    }
}

/// Locks a mutex. No panic under these locks leaves them inconsistent, so poison is ignored.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Speed of a round's clock, relative to real time. Waits of seconds take some tens of
/// milliseconds.
const SPEED: u32 = 20;

/// Clock that counts from the beginning of the round, at that speed; the same in each of its
/// processes.
#[derive(Debug)]
pub(crate) struct Hurry {
    system: SystemClock,
    since: SystemTime,
}

impl Hurry {
    /// `since` is in milliseconds since 1970.
    pub(crate) fn new(since: u64) -> Self {
        Hurry { system: SystemClock::new(), since: UNIX_EPOCH + Duration::from_millis(since) }
    }
}

impl Clock for Hurry {
    fn is_shared(&self) -> bool {
        true
    }

    fn now(&self) -> SystemTime {
        let passed = self.system.now().duration_since(self.since).unwrap_or_default();
        self.since + passed * SPEED
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.system.sleep(duration / SPEED)
    }

    fn id(&self) -> String {
        self.system.id()
    }
}
