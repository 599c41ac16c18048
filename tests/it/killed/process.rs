//! Workers: this test binary started again, to be killed; and the files that outlive them.
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use forever::{Builder, Clock, Forever, Retention, SystemClock};
use forever_testkit::database::{self, Database};
use forever_testkit::process::{Process, end_with_parent, this_test};
use tempfile::TempDir;

/// How often the journal is looked at.
const LOOK: Duration = Duration::from_micros(500);
/// After so many looks at which nothing is new (60 s and more), a worker hangs.
const HANGS: u32 = 120_000;

/// The database and the journal of a test, in a folder of its own.
pub(super) struct Place {
    folder: TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    /// The lines of the journal, without the processes that wrote them.
    pub(super) fn journal(&self) -> Vec<String> {
        self.journal_by_process().into_iter().map(|(_, line)| line).collect()
    }

    /// The lines of the journal, each with the process that wrote it.
    pub(super) fn journal_by_process(&self) -> Vec<(u32, String)> {
        let text = std::fs::read_to_string(journal(self.folder.path())).unwrap_or_default();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        whole
            .lines()
            .map(|line| {
                let (process, line) = line.split_once(' ').unwrap();
                (process.parse().unwrap(), line.to_owned())
            })
            .collect()
    }

    /// What the dead worker has stored: a copy, so that the next worker finds the database as it was left.
    pub(super) fn stored(&self) -> Stored {
        let folder = tempfile::tempdir().unwrap();
        if database::is_in_postgres() {
            return Stored { database: Database::open(self.folder.path().join("fibers.db")), _folder: folder };
        }
        for suffix in ["", "-wal"] {
            let name = format!("fibers.db{suffix}");
            if self.folder.path().join(&name).exists() {
                std::fs::copy(self.folder.path().join(&name), folder.path().join(&name)).unwrap();
            }
        }
        Stored { database: Database::open(folder.path().join("fibers.db")), _folder: folder }
    }

    /// A runtime over the database in this process.
    pub(super) fn builder(&self) -> Builder {
        builder(self.folder.path(), 0).0
    }

    /// The same, so many hours later.
    pub(super) async fn open_later(&self, hours: u64) -> Forever {
        builder(self.folder.path(), hours).0.open().await.unwrap()
    }

    pub(super) async fn open(&self) -> Forever {
        self.open_later(0).await
    }
}

/// The database as a dead worker has left it.
pub(super) struct Stored {
    database: Database,
    _folder: TempDir,
}

impl Stored {
    /// The rows of a query for a text and a number; none if the worker died before there was a table.
    pub(super) fn rows(&self, query: &str) -> Vec<(String, u32)> {
        if !self.database.has_tables() {
            return Vec::new();
        }
        let text = |value: Option<String>| value.unwrap();
        let pairs = self.database.rows(query).into_iter().map(|row| <[_; 2]>::try_from(row).unwrap().map(text));
        pairs.map(|[what, number]| (what, number.parse().unwrap())).collect()
    }
}

fn journal(folder: &Path) -> PathBuf {
    folder.join("journal.txt")
}

fn builder(folder: &Path, hours: u64) -> (Builder, Desk) {
    let journal = OpenOptions::new().append(true).create(true).open(journal(folder)).unwrap();
    let desk = Desk(Arc::new(journal));
    let clock = Later { system: SystemClock::new(), by: Duration::from_secs(hours * 60 * 60) };
    let builder = Forever::builder().sqlite(folder.join("fibers.db")).clock(clock).retention(Retention::forever()).resource(desk.clone());
    (super::registered(builder, desk.clone()), desk)
}

/// The system's clock, some hours later.
#[derive(Debug)]
struct Later {
    system: SystemClock,
    by: Duration,
}

impl Clock for Later {
    fn is_shared(&self) -> bool {
        true
    }

    fn now(&self) -> SystemTime {
        self.system.now() + self.by
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.system.sleep(duration)
    }

    fn id(&self) -> String {
        self.system.id()
    }
}

/// The resource with which steps do their work.
#[derive(Clone)]
pub(super) struct Desk(Arc<File>);

impl Desk {
    /// Adds a line to the journal. A death of the process does not undo it.
    pub(super) fn write(&self, line: &str) {
        (&*self.0).write_all(format!("{} {line}\n", std::process::id()).as_bytes()).unwrap();
    }

    /// The body of a step: writes that it begins, and takes a moment.
    pub(super) async fn work<T>(&self, name: &str, value: T) -> anyhow::Result<T> {
        self.write(name);
        self.pause().await;
        Ok(value)
    }

    /// Takes a moment, in which a worker may be killed.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// A worker process.
pub(super) struct Worker(Process);

impl Worker {
    /// One that is to be killed: it stays when it has played its role.
    pub(super) fn start(role: &str, place: &Place) -> Self {
        Self::with(role, place, "stay")
    }

    /// One that plays its role to the end.
    pub(super) fn last(role: &str, place: &Place) -> Self {
        Self::with(role, place, "end")
    }

    fn with(role: &str, place: &Place, then: &str) -> Self {
        let mut command = this_test("killed::process::worker").unwrap();
        command.env("FOREVER_ROLE", role).env("FOREVER_PLACE", place.folder.path()).env("FOREVER_THEN", then).stderr(Stdio::null());
        Worker(Process::start(&mut command).unwrap())
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it says `what`.
    pub(super) fn said(&mut self, what: &str) {
        self.0.until_said(what).unwrap();
    }

    /// Waits until the journal is as it should be, and a while longer.
    pub(super) fn until(&mut self, place: &Place, enough: impl Fn(&[String]) -> bool, longer: Duration) {
        let (mut idle, mut last) = (0, 0);
        loop {
            let journal = place.journal();
            if enough(&journal) {
                break std::thread::sleep(longer);
            }
            assert_eq!(self.0.status().unwrap(), None, "the worker has ended: {:?}", journal.last());
            idle = if journal.len() > last { 0 } else { idle + 1 };
            assert!(idle < HANGS, "the worker does nothing after {:?}", journal.last());
            last = journal.len();
            std::thread::sleep(LOOK);
        }
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub(super) fn kill(mut self) {
        self.0.kill().unwrap();
    }

    /// Waits for its end.
    pub(super) fn end(mut self) -> ExitStatus {
        self.0.wait_with_input().unwrap()
    }
}

/// What a worker has to play its role.
pub(super) struct Role {
    pub(super) builder: Builder,
    pub(super) desk: Desk,
    folder: PathBuf,
}

impl Role {
    pub(super) fn journal(&self) -> Journal {
        Journal(journal(&self.folder))
    }
}

/// The journal, to be read by a worker.
pub(super) struct Journal(PathBuf);

impl Journal {
    pub(super) fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

/// Not a test: what a worker does.
#[test]
#[ignore = "started by other tests"]
fn worker() {
    let (Ok(role), Ok(folder)) = (std::env::var("FOREVER_ROLE"), std::env::var("FOREVER_PLACE")) else { return };
    end_with_parent();
    let async_runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    async_runtime.block_on(async {
        let folder = PathBuf::from(folder);
        let (builder, desk) = builder(&folder, 0);
        let with = Role { builder, desk, folder };
        match role.as_str() {
            "many" => super::many::many(with).await,
            "among others" => super::many::among_others(with).await,
            "wait" => super::waits::wait(with).await,
            "send" => super::waits::send(with).await,
            "side" => super::waits::run_side(with).await,
            "make" => super::children::make(with).await,
            "cancel" => super::children::cancel(with).await,
            "agents" => super::agents::agents(with).await,
            "take over" => super::many::many(Role { builder: with.builder.wait_for_lock(Duration::from_secs(60)), ..with }).await,
            other => panic!("no such role: {other}"),
        }
        if std::env::var("FOREVER_THEN").is_ok_and(|then| then == "stay") {
            std::future::pending::<()>().await;
        }
    });
}
