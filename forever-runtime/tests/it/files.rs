//! Which file a runtime owns, by whatever name, and what happens when it is taken away while it is open.
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, Once};

use forever_runtime::{Error, ErrorKind, Forever};
use tokio::sync::Semaphore;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::child;
use crate::fibers::three;
use crate::support::{Place, Probe, usual};

fn this_binary() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// Opens a database in another process; says what came of it.
fn tried_by_another(path: &Path) -> String {
    child::start_by("try", path, this_binary()).said().unwrap().unwrap()
}

async fn tried_here(path: &Path) -> Error {
    usual(&Probe::default()).sqlite(path).open().await.unwrap_err()
}

/// Two names of one file: neither this process nor another opens it by the second while it is open by the first.
async fn one_at_a_time(first: &Path, second: &Path) {
    let owner = usual(&Probe::default()).sqlite(first).open().await.unwrap();
    owner.run(three("a")).await.unwrap();
    let pid = std::process::id();
    let error = tried_here(second).await;
    let busy = format!("failed to open database `{}`: owned by this process ({pid})", second.display());
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Busy, busy));
    assert_eq!(tried_by_another(second), format!("Busy: failed to open database `{}`: owned by process {pid}", second.display()));
    owner.run(three("b")).await.unwrap();
    owner.close().await.unwrap();

    let next = usual(&Probe::default()).sqlite(second).open().await.unwrap();
    assert_eq!(next.fibers().await.unwrap().fibers.len(), 2);
    next.close().await.unwrap();
    assert_eq!(tried_by_another(first), "opened");
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn symbolic_link_to_a_file_that_is_made_by_opening_it_is_the_file() {
    let place = Place::new();
    let link = place.folder.path().join("link.db");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    one_at_a_time(&link, &place.path()).await;
    assert!(!link.with_extension("db.lock").exists());
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn symbolic_link_with_a_relative_target_is_the_file() {
    let place = Place::new();
    let [links, data] = ["links", "data"].map(|name| place.folder.path().join(name));
    std::fs::create_dir(&links).unwrap();
    std::fs::create_dir(&data).unwrap();
    let (link, chain) = (links.join("link.db"), links.join("chain.db"));
    std::os::unix::fs::symlink("../data/fibers.db", &link).unwrap();
    std::os::unix::fs::symlink("link.db", &chain).unwrap();
    one_at_a_time(&chain, &data.join("fibers.db")).await;
    assert!(data.join("fibers.db.lock").exists());
    assert_eq!(std::fs::read_dir(&links).unwrap().count(), 2);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn symbolic_link_into_a_missing_folder_is_refused() {
    let place = Place::new();
    std::os::unix::fs::symlink("none/fibers.db", place.path()).unwrap();
    let error = tried_here(&place.path()).await;
    assert_eq!(error.to_string(), format!("failed to open database `{}`: it cannot be made", place.path().display()));
}

#[tokio::test(start_paused = true)]
async fn relative_and_absolute_path_are_one_file() {
    let place = Place::new();
    // Somewhere below the root, from wherever the tests run.
    let here = std::env::current_dir().unwrap().canonicalize().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let folder = place.folder.path().canonicalize().unwrap();
    let relative = up.join(folder.strip_prefix("/").unwrap_or(&folder)).join("fibers.db");
    one_at_a_time(&relative, &place.path()).await;
    one_at_a_time_again(&place.path(), &relative).await;
}

async fn one_at_a_time_again(first: &Path, second: &Path) {
    let owner = usual(&Probe::default()).sqlite(first).open().await.unwrap();
    assert!(tried_here(second).await.is_busy());
    owner.close().await.unwrap();
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn owner_that_changes_its_working_directory_keeps_its_file() {
    let place = Place::new();
    let mut command = this_binary();
    command.current_dir(place.folder.path());
    let mut owner = child::start_by("own from elsewhere", Path::new("fibers.db"), command);
    owner.until_said("open").unwrap();
    let error = tried_here(&place.path()).await;
    assert!(error.to_string().ends_with(&format!("owned by process {}", owner.id())), "{error}");
    assert_eq!(place.number("SELECT count(*) FROM fibers"), 1);
    owner.wait().unwrap();
}

const NAMES: &str = "it has several names (hard links), and SQLite would keep a log beside each: remove all but one, whose `-wal` is kept";

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn file_with_two_names_is_opened_by_neither() {
    let (place, probe) = (Place::new(), Probe::default());
    let other = place.folder.path().join("other.db");
    let owner = place.open(&probe).await;
    owner.run(three("a")).await.unwrap();
    std::fs::hard_link(place.path(), &other).unwrap();
    assert!(tried_here(&other).await.is_busy());
    assert_eq!(tried_by_another(&other), format!("Store: failed to open database `{}`: {NAMES}", other.display()));
    // Its owner goes on: it has one log.
    owner.run(three("b")).await.unwrap();
    owner.close().await.unwrap();
    for name in [&other, &place.path()] {
        assert!(tried_here(name).await.to_string().ends_with(NAMES));
    }
    std::fs::remove_file(&other).unwrap();
    assert_eq!(place.open(&probe).await.fibers().await.unwrap().fibers.len(), 2);
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn file_that_was_renamed_is_still_its_owners() {
    let (place, probe) = (Place::new(), Probe::default());
    let owner = place.open(&probe).await;
    let other = place.folder.path().join("other.db");
    std::fs::rename(place.path(), &other).unwrap();
    assert!(tried_here(&other).await.is_busy());
    // What says who it is has the old name.
    let said = format!("Busy: failed to open database `{}`: owned by another process", other.display());
    assert_eq!(tried_by_another(&other), said);
    drop(owner);
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn file_that_is_mounted_by_itself_is_refused_and_one_in_a_mounted_folder_is_not_opened_twice() {
    let (place, probe) = (Place::new(), Probe::default());
    let [mounted, data] = ["mounted", "data"].map(|name| place.folder.path().join(name));
    for folder in [&mounted, &data] {
        std::fs::create_dir(folder).unwrap();
    }
    let path = data.join("fibers.db");
    let forever = usual(&probe).sqlite(&path).open().await.unwrap();
    let file = place.folder.path().join("alone.db");
    File::create(&file).unwrap();
    // In a namespace of its own, so that nothing stays mounted.
    let in_mounts = |mounts: String| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", &format!("{mounts}; exec \"$0\" \"$@\"")]).arg(std::env::current_exe().unwrap());
        command
    };
    let mount = |from: &Path, to: &Path| format!("mount --bind '{}' '{}'", from.display(), to.display());
    if !in_mounts(mount(&data, &mounted)).arg("--list").output().is_ok_and(|out| out.status.success()) {
        println!("skipped: this user may not mount anything here");
        return;
    }
    let in_folder = mounted.join("fibers.db");
    let said = child::start_by("try", &in_folder, in_mounts(mount(&data, &mounted))).said().unwrap();
    let busy = format!("Busy: failed to open database `{}`: owned by process {}", in_folder.display(), std::process::id());
    assert_eq!(said, Some(busy));
    let said = child::start_by("try", &file, in_mounts(mount(&path, &file))).said().unwrap();
    let why = "the file is mounted by itself, and SQLite's log beside it would not be: mount its folder";
    assert_eq!(said, Some(format!("Store: failed to open database `{}`: {why}", file.display())));
    forever.close().await.unwrap();
}

/// A connection of the program, in the process of the runtime that opens the file and lets go of it.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn opening_and_closing_takes_no_locks_from_other_connections_of_the_process() {
    let (place, probe) = (Place::new(), Probe::default());
    place.open(&probe).await.close().await.unwrap();
    let reads = place.sql();
    reads.execute_batch("BEGIN; SELECT * FROM fibers").unwrap();
    let forever = place.open(&probe).await;
    assert!(tried_here(&place.path()).await.is_busy());
    forever.run(three("a")).await.unwrap();
    forever.close().await.unwrap();
    // Whoever closes a database last removes its log, which another process may not do as long as this one reads it.
    assert_eq!(tried_by_another(&place.path()), "opened");
    assert!(place.folder.path().join("fibers.db-wal").exists());
    drop(reads);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn owner_whose_lock_file_was_removed_puts_it_back_and_keeps_its_database() {
    let (place, probe) = (Place::new(), Probe::default());
    let first = place.open(&probe).await;
    first.run(three("before")).await.unwrap();
    let lock = place.folder.path().join("fibers.db.lock");
    std::fs::remove_file(&lock).unwrap();
    first.run(three("without a lock")).await.unwrap();
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), std::process::id().to_string());
    assert!(tried_here(&place.path()).await.is_busy());
    assert_eq!(
        tried_by_another(&place.path()),
        format!("Busy: failed to open database `{}`: owned by process {}", place.path().display(), std::process::id())
    );
    first.close().await.unwrap();
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), "");
    assert_eq!(place.open(&probe).await.fibers().await.unwrap().fibers.len(), 2);
}

const TAKEN: &str = "its lock file was removed or replaced, and another process has written to it";

/// What another process does where the lock file was removed and is the only lock, as on some network mounts.
fn taken_by_another_process(place: &Place) -> File {
    let lock = place.folder.path().join("fibers.db.lock");
    std::fs::remove_file(&lock).unwrap();
    let lock = File::create(lock).unwrap();
    lock.try_lock().unwrap();
    place.sql().execute("UPDATE fibers SET metadata = '1'", ()).unwrap();
    lock
}

fn causes(error: &Error) -> Vec<String> {
    std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source()).map(ToString::to_string).collect()
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn an_owner_whose_lock_was_taken_away_does_not_write_into_the_database_of_the_next() {
    let (place, probe) = (Place::new(), Probe::default());
    let first = place.open(&probe).await;
    first.run(three("before")).await.unwrap();
    let next = taken_by_another_process(&place);
    for _ in 0..2 {
        let error = first.spawn(three("too late")).id("late").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DatabaseLost);
        assert!(causes(&error).iter().any(|cause| cause.contains(TAKEN)), "{error:?}");
    }
    first.close().await.unwrap_err();
    assert_eq!(place.number("SELECT count(*) FROM fibers"), 1);
    // Also when the other does not write any more.
    drop(next);
    assert_eq!(place.open(&probe).await.fibers().await.unwrap().fibers.len(), 1);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_single_statement_is_not_written_into_the_database_of_the_next_owner() {
    let (place, probe) = (Place::new(), Probe::default());
    let first = place.open(&probe).await;
    let gate = Arc::new(Semaphore::new(0));
    let (of_fiber, stashed) = (Arc::clone(&gate), probe.clone());
    let fiber = first.spawn_closure("stashes", |ctx| async move {
        ctx.stash(&1).await?;
        stashed.note("stashed");
        of_fiber.acquire().await.unwrap().forget();
        let told = ctx.stash(&2).await.map_err(|error| error.kind());
        stashed.note(format!("{told:?}"));
        stashed.note("told");
        Ok::<_, Error>(())
    });
    let running = tokio::spawn(fiber.into_future());
    probe.reached("stashed").await;
    let _next = taken_by_another_process(&place);
    gate.add_permits(1);
    probe.reached("told").await;
    assert_eq!(probe.log(), ["stashed", "Err(DatabaseLost)", "told"]);
    assert_eq!(place.text("SELECT data FROM snapshots").as_deref(), Some("1"));
    running.abort();
    drop(first);
}

/// What is said of the database, whatever failed for it.
fn why(error: &Error) -> String {
    let text = causes(error).pop().unwrap();
    text.split_once(": the database").map_or(text.clone(), |(_, why)| why.to_owned())
}

/// Takes something away from a runtime that is open, and gives back what its next calls say.
async fn taken_away(place: &Place, take: impl Fn(&Place)) -> (Forever, Error) {
    Errors::are_seen();
    let forever = place.open(&Probe::default()).await;
    forever.run(three("before")).await.unwrap();
    take(place);
    let first = forever.spawn(three("while it is gone")).id("late").await.unwrap_err();
    assert_eq!(first.kind(), ErrorKind::OutcomeUnknown, "{first:?}");
    for error in [
        forever.spawn(three("later")).await.unwrap_err(),
        forever.fibers().await.map(drop).unwrap_err(),
        forever.send("late", "topic", &1).await.unwrap_err(),
        forever.cancel("late", "why").await.unwrap_err(),
    ] {
        assert!(error.is_database_lost() && !error.is_retryable(), "{error:?}");
        assert_eq!(why(&error), why(&first));
    }
    (forever, first)
}

/// The end of a sentence that all calls say.
async fn is_lost(place: &Place, take: impl Fn(&Place), why: &str) -> Forever {
    let (forever, error) = taken_away(place, take).await;
    let text = causes(&error).pop().unwrap();
    let lost = format!("the database `{}` is lost to this runtime: {why}", place.path().display());
    assert!(text.ends_with(&lost), "{text}");
    assert_eq!(Errors::with(&lost), 1, "it is an event once");
    forever
}

fn beside(place: &Place, name: &str) -> PathBuf {
    place.folder.path().join(name)
}

async fn ids(forever: &Forever) -> usize {
    forever.fibers().await.unwrap().fibers.len()
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn single_statement_into_a_file_that_is_gone_is_not_acknowledged() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    let (path, noted) = (place.path(), probe.clone());
    let stashes = forever.spawn_closure("stashes", |ctx| async move {
        ctx.stash(&1).await?;
        std::fs::remove_file(path).unwrap();
        for n in 2..4 {
            noted.note(format!("{n}: {:?}", ctx.stash(&n).await.map_err(|error| error.kind())));
        }
        Ok::<_, Error>(())
    });
    let running = tokio::spawn(stashes.into_future());
    probe.reached("3: Err(DatabaseLost)").await;
    assert_eq!(probe.log()[0], "2: Err(OutcomeUnknown)");
    running.abort();
}

const REMOVED: &str = "its file was removed or renamed";

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn database_that_is_removed_while_it_is_open_is_lost() {
    let place = Place::new();
    let forever = is_lost(&place, |place| std::fs::remove_file(place.path()).unwrap(), REMOVED).await;
    forever.close().await.unwrap_err();
    assert!(!place.path().exists());
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn database_that_is_renamed_while_it_is_open_is_lost_and_can_be_put_back() {
    let place = Place::new();
    let away = beside(&place, "away.db");
    let forever = is_lost(&place, |place| std::fs::rename(place.path(), &away).unwrap(), REMOVED).await;
    drop(forever);
    std::fs::rename(&away, place.path()).unwrap();
    let forever = place.open(&Probe::default()).await;
    // The one whose outcome was unknown is there: it was committed where the file was.
    assert_eq!(ids(&forever).await, 2);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn folder_that_is_renamed_while_its_database_is_open_is_noticed() {
    let outer = tempfile::tempdir().unwrap();
    let place = Place { folder: tempfile::tempdir_in(outer.path()).unwrap() };
    let away = outer.path().join("away");
    let take = |place: &Place| std::fs::rename(place.folder.path(), &away).unwrap();
    drop(is_lost(&place, take, REMOVED).await);
    std::fs::rename(&away, place.folder.path()).unwrap();
    assert_eq!(ids(&place.open(&Probe::default()).await).await, 2);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn log_that_is_removed_while_its_database_is_open_takes_nothing_along_that_was_acknowledged() {
    let place = Place::new();
    let take = |place: &Place| std::fs::remove_file(beside(place, "fibers.db-wal")).unwrap();
    let forever = is_lost(&place, take, "its write-ahead log (`-wal`) was removed or renamed").await;
    drop(forever);
    assert!(!beside(&place, "fibers.db-wal").exists());
    assert_eq!(ids(&place.open(&Probe::default()).await).await, 2);
}

/// A database that was restored from somewhere, with its log, at the place of one that is open.
fn restored(place: &Place, other: &Place) -> [Vec<u8>; 2] {
    ["fibers.db", "fibers.db-wal"].map(|name| {
        std::fs::rename(beside(other, name), beside(place, name)).unwrap();
        std::fs::read(beside(place, name)).unwrap()
    })
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn database_that_is_replaced_while_it_is_open_is_left_alone() {
    let (place, other) = (Place::new(), Place::new());
    let mut dead = child::start("own", &other);
    dead.until_said("open").unwrap();
    dead.kill().unwrap();
    let there = Mutex::new(None);
    let take = |place: &Place| *there.lock().unwrap() = Some(restored(place, &other));
    let forever = is_lost(&place, take, "its file was replaced").await;
    forever.close().await.unwrap_err();
    let after = ["fibers.db", "fibers.db-wal"].map(|name| std::fs::read(beside(&place, name)).unwrap());
    assert!(there.lock().unwrap().as_ref() == Some(&after), "the next owner's files are as they were");
    assert_eq!(ids(&place.open(&Probe::default()).await).await, 0);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn log_that_is_replaced_while_its_database_is_open_is_left_alone() {
    let place = Place::new();
    let take = |place: &Place| {
        let (log, copy) = (beside(place, "fibers.db-wal"), beside(place, "copy"));
        std::fs::copy(&log, &copy).unwrap();
        std::fs::rename(&copy, &log).unwrap();
    };
    let forever = is_lost(&place, take, "its write-ahead log (`-wal`) was replaced").await;
    let before = std::fs::read(beside(&place, "fibers.db-wal")).unwrap();
    forever.close().await.unwrap_err();
    assert_eq!(std::fs::read(beside(&place, "fibers.db-wal")).unwrap(), before);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn log_that_is_truncated_while_its_database_is_open_is_noticed() {
    for length in [0, 32 + 100] {
        let place = Place::new();
        let take =
            |place: &Place| std::fs::OpenOptions::new().write(true).open(beside(place, "fibers.db-wal")).unwrap().set_len(length).unwrap();
        let forever = is_lost(&place, take, "its write-ahead log (`-wal`) was truncated").await;
        let before = std::fs::read(place.path()).unwrap();
        forever.close().await.unwrap_err();
        assert!(std::fs::read(place.path()).unwrap() == before, "no hole is copied into the database");
    }
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn log_that_is_truncated_is_noticed_by_a_close_that_comes_next_or_had_nothing() {
    let place = Place::new();
    let forever = place.open(&Probe::default()).await;
    std::fs::OpenOptions::new().write(true).open(beside(&place, "fibers.db-wal")).unwrap().set_len(0).unwrap();
    match forever.close().await {
        Err(error) => assert!(causes(&error).pop().unwrap().ends_with("its write-ahead log (`-wal`) was truncated"), "{error:?}"),
        // All that the log had is in the database.
        Ok(()) => place.open(&Probe::default()).await.close().await.unwrap(),
    }
}

/// As a backup tool does it.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn log_that_another_connection_has_copied_and_truncated_is_no_loss() {
    let place = Place::new();
    let forever = place.open(&Probe::default()).await;
    let mut truncated = 0;
    for _ in 0..20 {
        place.sql().query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
        truncated += usize::from(std::fs::metadata(beside(&place, "fibers.db-wal")).unwrap().len() == 0);
        // One that changes nothing, and those that do.
        forever.cancel("nothing", "why").await.unwrap_err();
        forever.run(three("on")).await.unwrap();
    }
    assert!(truncated > 0);
    assert_eq!(ids(&forever).await, 20);
    forever.close().await.unwrap();
}

/// All errors that the library has told of as events.
struct Errors;

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Errors {
    fn are_seen() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Errors).unwrap());
    }

    fn with(text: &str) -> usize {
        SEEN.lock().unwrap().iter().filter(|seen| seen.contains(text)).count()
    }
}

impl Subscriber for Errors {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        SEEN.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
