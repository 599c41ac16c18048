//! What is refused at open, with which words, and that nothing was touched.
use std::path::Path;
use std::time::Duration;

use forever_runtime::__private::{Arguments, CutKind, END, Frame, Machine, Needs, Unreadable};
use forever_runtime::fiber::{Fiber, FiberContext};
use forever_runtime::{Durability, Error, ErrorKind, Forever};

use crate::child;
use crate::fibers::{Three, cut, machine, three};
use crate::support::{Place, Probe, usual};

async fn refused(path: impl AsRef<Path>) -> Error {
    usual(&Probe::default()).sqlite(path).open().await.unwrap_err()
}

fn files(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.folder.path()).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_not_a_database_is_refused_and_left_alone() {
    for content in ["a letter to somebody".repeat(20), "short".to_owned()] {
        let place = Place::new();
        std::fs::write(place.path(), &content).unwrap();
        let error = refused(place.path()).await;
        assert_eq!(error.kind(), ErrorKind::Format);
        assert_eq!(error.to_string(), format!("failed to open database `{}`: it is not an SQLite database", place.path().display()));
        assert_eq!(std::fs::read_to_string(place.path()).unwrap(), content);
        assert_eq!(files(&place), ["fibers.db"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_database_of_another_program_is_refused_and_left_alone() {
    for (setup, why) in [
        ("CREATE TABLE notes (text)", "it is an SQLite database of another program"),
        ("PRAGMA user_version = 3", "it is an SQLite database of another program"),
        ("PRAGMA journal_mode = WAL; CREATE TABLE notes (text)", "it is an SQLite database of another program"),
        ("PRAGMA application_id = 7; CREATE TABLE notes (text)", "it belongs to another program (application id 0x7)"),
    ] {
        let place = Place::new();
        place.sql().execute_batch(setup).unwrap();
        let before = std::fs::read(place.path()).unwrap();
        let error = refused(place.path()).await;
        assert_eq!(error.kind(), ErrorKind::Format);
        assert!(error.to_string().ends_with(why), "{error}");
        assert_eq!(std::fs::read(place.path()).unwrap(), before);
        assert!(!files(&place).contains(&"fibers.db.lock".to_owned()));
    }
}

fn version(place: &Place) -> i64 {
    place.sql().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_database_of_a_newer_schema_is_refused_and_left_alone() {
    let (place, probe) = (Place::new(), Probe::default());
    place.open(&probe).await.close().await.unwrap();
    let ours = version(&place);
    place.sql().execute_batch("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let before = std::fs::read(place.path()).unwrap();
    let error = refused(place.path()).await;
    assert_eq!(error.kind(), ErrorKind::Format);
    let why = format!("its schema has version 99, and this program knows versions up to {ours}");
    assert!(error.to_string().ends_with(&why), "{error}");
    assert_eq!(std::fs::read(place.path()).unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_newer_schema_that_is_only_in_the_log_is_refused_too() {
    let (place, probe) = (Place::new(), Probe::default());
    place.open(&probe).await.close().await.unwrap();
    let ours = version(&place);
    let other = place.sql();
    other.pragma_update(None, "user_version", 99).unwrap();
    let error = refused(place.path()).await;
    let why = format!("its schema has version 99, and this program knows versions up to {ours}");
    assert!(error.to_string().ends_with(&why), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_file_becomes_a_database() {
    let (place, probe) = (Place::new(), Probe::default());
    std::fs::write(place.path(), "").unwrap();
    let forever = place.open(&probe).await;
    assert_eq!(forever.run(three("a")).await.unwrap(), 17);
}

/// Leaves what a process leaves that is killed while it makes a database: the first page is written, and the journal that takes it back
/// is still there.
fn killed_in_its_first_transaction(place: &Place) -> [Vec<u8>; 2] {
    let elsewhere = tempfile::tempdir().unwrap();
    let open = |name| rusqlite::Connection::open(elsewhere.path().join(name)).unwrap();
    open("made.db").execute_batch("PRAGMA journal_mode = WAL").unwrap();
    let making = open("making.db");
    // What does not fit into the cache is written before the commit, and before that the journal.
    making.execute_batch("PRAGMA cache_size = 1; BEGIN; CREATE TABLE notes (text); INSERT INTO notes VALUES (zeroblob(1000000))").unwrap();
    [("made.db", "fibers.db"), ("making.db-journal", "fibers.db-journal")].map(|(from, to)| {
        std::fs::copy(elsewhere.path().join(from), place.folder.path().join(to)).unwrap();
        std::fs::read(elsewhere.path().join(from)).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_database_whose_process_was_killed_in_its_first_moments_can_be_opened() {
    let (place, probe) = (Place::new(), Probe::default());
    killed_in_its_first_transaction(&place);
    // The dead process had taken the lock before it touched the file.
    std::fs::write(place.folder.path().join("fibers.db.lock"), "4711").unwrap();
    let forever = place.open(&probe).await;
    assert_eq!(forever.run(three("a")).await.unwrap(), 17);
}

#[tokio::test(start_paused = true)]
async fn what_another_program_was_killed_in_is_left_alone() {
    let place = Place::new();
    let before = killed_in_its_first_transaction(&place);
    let error = refused(place.path()).await;
    assert_eq!(error.kind(), ErrorKind::Store);
    assert_eq!(files(&place), ["fibers.db", "fibers.db-journal"]);
    let after = ["fibers.db", "fibers.db-journal"].map(|name| std::fs::read(place.folder.path().join(name)).unwrap());
    assert_eq!(before, after);
}

#[tokio::test(start_paused = true)]
async fn a_directory_is_refused() {
    let place = Place::new();
    let error = refused(place.folder.path()).await;
    assert_eq!(error.kind(), ErrorKind::Format);
    assert!(error.to_string().ends_with("it is a directory"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_folder_is_named() {
    let place = Place::new();
    let error = refused(place.folder.path().join("none/fibers.db")).await;
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("/none` cannot be used"), "{error}");
    assert!(files(&place).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_read_only_file_is_refused() {
    let (place, probe) = (Place::new(), Probe::default());
    place.open(&probe).await.close().await.unwrap();
    let mut permissions = std::fs::metadata(place.path()).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(place.path(), permissions).unwrap();
    let error = refused(place.path()).await;
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().ends_with("it is read-only"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_database_is_refused() {
    let (place, probe) = (Place::new(), Probe::default());
    place.open(&probe).await.close().await.unwrap();
    let mut bytes = std::fs::read(place.path()).unwrap();
    bytes[100..].fill(0xff);
    std::fs::write(place.path(), &bytes).unwrap();
    let error = refused(place.path()).await;
    assert_eq!(error.kind(), ErrorKind::Format, "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_second_runtime_over_an_open_file_is_refused() {
    let (place, probe) = (Place::new(), Probe::default());
    let first = place.open(&probe).await;
    let error = refused(place.path()).await;
    assert!(error.is_busy() && error.is_retryable());
    assert!(error.to_string().ends_with(&format!("owned by this process ({})", std::process::id())), "{error}");
    first.close().await.unwrap();
    place.open(&probe).await;
}

/// The POSIX locks that this process has on a file: their first and last bytes.
#[cfg(target_os = "linux")]
fn locks_of_this_process(path: &Path) -> std::collections::BTreeSet<String> {
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let (process, file) = (std::process::id().to_string(), format!(":{inode}"));
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let ours =
        |line: &&str| line.contains("POSIX") && line.split(' ').any(|word| word == process) && line.split(' ').any(|w| w.ends_with(&file));
    let bytes = |line: &str| line.split_once(&*file).map_or_else(String::new, |(_, bytes)| bytes.trim().to_owned());
    locks.lines().filter(ours).map(bytes).collect()
}

/// The system drops all locks of a process on a file when the process closes any descriptor of it. A person's SQLite tool would then take itself
/// for the last user of the database and remove its log, and everything that is stored afterwards would go to the removed file.
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn refused_second_runtime_leaves_the_locks_of_the_first() {
    let (place, probe) = (Place::new(), Probe::default());
    let first = place.open(&probe).await;
    let before = locks_of_this_process(&place.path());
    assert!(!before.is_empty());
    assert!(refused(place.path()).await.is_busy());
    // A connection of the first may have begun to read meanwhile.
    let after = locks_of_this_process(&place.path());
    assert!(before.is_subset(&after), "{before:?} before, {after:?} after");
    first.close().await.unwrap();
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_second_runtime_by_another_name_of_the_file_is_refused() {
    let (place, probe) = (Place::new(), Probe::default());
    let first = place.open(&probe).await;
    let link = place.folder.path().join("link.db");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    assert!(refused(&link).await.is_busy());
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_file_owned_by_a_live_process_names_it_and_is_free_when_it_is_killed() {
    let (place, probe) = (Place::new(), Probe::default());
    let mut owner = child::start("own", &place);
    owner.until_said("open").unwrap();
    let error = refused(place.path()).await;
    assert!(error.is_busy());
    assert!(error.to_string().ends_with(&format!("owned by process {}", owner.id())), "{error}");

    let waiting = tokio::spawn(place.builder(&probe).wait_for_lock(Duration::from_secs(60)).open());
    owner.kill().unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_owner_goes_on_when_a_tool_has_written_into_its_database() {
    let (place, probe) = (Place::new(), Probe::default());
    let owner = place.open(&probe).await;
    owner.run(three("before")).await.unwrap();
    rusqlite::Connection::open(place.path()).unwrap().execute("UPDATE fibers SET metadata = '1'", ()).unwrap();
    owner.run(three("after")).await.unwrap();
    owner.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_owner_ends_when_the_time_is_over() {
    let (place, probe) = (Place::new(), Probe::default());
    let first = place.open(&probe).await;
    let error = place.builder(&probe).wait_for_lock(Duration::from_millis(20)).open().await.unwrap_err();
    assert!(error.is_busy());
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_missing_resource_is_named_before_anything_is_touched() {
    let place = Place::new();
    let error = Forever::builder().sqlite(place.path()).fiber::<Three>().open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert_eq!(
        error.to_string(),
        "missing resources: fiber `three` needs a `it::support::Probe` for `probe`: add each with `.resource(..)`"
    );
    assert!(files(&place).is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_fibers_of_one_name_are_refused_and_one_twice_is_not() {
    let builder = || usual(&Probe::default()).in_memory();
    builder().fiber::<Three>().open().await.unwrap();
    let error = builder().fiber::<Impostor>().fiber::<Three>().open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert_eq!(error.to_string(), "two fibers are registered under the name `three`: give one of them `name = \"..\"`");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_without_a_database_is_refused() {
    let error = Forever::builder().open().await.unwrap_err();
    assert_eq!(error.to_string(), "no database was named: call `.sqlite(path)`, `.in_memory()` or `.store(store)`");
}

#[tokio::test(start_paused = true)]
async fn both_durabilities_keep_what_was_closed() {
    for durability in [Durability::Power, Durability::Process] {
        let (place, probe) = (Place::new(), Probe::default());
        let forever = place.builder(&probe).durability(durability).open().await.unwrap();
        forever.spawn(three("a")).key("k").await.unwrap().wait().await.unwrap();
        forever.close().await.unwrap();
        let forever = place.builder(&probe).durability(durability).open().await.unwrap();
        assert_eq!(forever.fiber_by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
    }
}

/// Another function with the name of [`Three`].
struct Impostor;

static IMPOSTOR: Machine = machine("three", &[], &[cut("other", CutKind::Step, &[], &[END])]);

impl Fiber for Impostor {
    type Output = ();
    type Error = String;
    const MACHINE: &'static Machine = &IMPOSTOR;
    fn needs(_: &mut Needs<'_>) {}
    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        Ok(matches!(access, Arguments::Load(_)).then_some(Impostor))
    }
    async fn drive<'run>(_: Option<Self>, _: &'run FiberContext, _: &'run mut Frame) -> Result<(), String> {
        Ok(())
    }
}
