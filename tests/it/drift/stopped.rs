//! A fiber that its process has left in the middle, and what other code makes of it.
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forever::Forever;
use forever::fiber::{Fiber, FiberState};
use forever::layout::{Layout, Verdict};
use forever::testing::VirtualClock;
use forever_testkit::database::{self, Database};
use forever_testkit::waiting::{eventually, soon};
use tempfile::TempDir;

use super::World;
use crate::support::stands;

const ID: &str = "the-fiber";

/// A database file with one fiber in it that has not ended.
pub(super) struct Stopped {
    folder: TempDir,
}

/// The row of a fiber, everything that must not change while it is parked.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    args: String,
    number: i64,
    at: Option<String>,
    data: Option<String>,
    /// The hash of the layout under which the snapshot was left, and its stored text.
    layout: Option<(String, String)>,
}

/// Runs a fiber until the step `before` has begun and drops the runtime there, as a crash would.
pub(super) async fn stopped<F: Fiber>(call: F, before: &str) -> Stopped {
    let stopped = Stopped { folder: tempfile::tempdir().unwrap() };
    let world = World::without(Some(before));
    let forever = stopped.builder(&world).fiber::<F>().open().await.unwrap();
    let handle = forever.spawn(call).id(ID).await.unwrap();
    tokio::select! {
        biased;
        () = world.reached() => {}
        ended = handle.wait() => panic!("it never came to `{before}`: {:?}, {:?}", ended.err(), world.log()),
    }
    drop((handle, forever));
    stopped
}

/// Runs a fiber until the branch `before` of a `steps!` has begun and so many others have their results stored, and drops the runtime
/// there.
pub(super) async fn stopped_side_by_side<F: Fiber>(call: F, before: &str, results: i64) -> Stopped {
    let stopped = Stopped { folder: tempfile::tempdir().unwrap() };
    let world = World::without(Some(before));
    let forever = stopped.builder(&world).fiber::<F>().open().await.unwrap();
    forever.spawn(call).id(ID).await.unwrap();
    world.reached().await;
    stopped.has_stored(results).await;
    drop(forever);
    stopped
}

/// Sends a message to a fiber on topic `m`, runs it until the step `before` has begun, and drops the runtime there.
pub(super) async fn stopped_after_a_message<F: Fiber>(call: F, message: &impl serde::Serialize, before: &str) -> Stopped {
    let stopped = Stopped { folder: tempfile::tempdir().unwrap() };
    let world = World::without(Some(before));
    let forever = stopped.builder(&world).fiber::<F>().open().await.unwrap();
    forever.spawn(call).id(ID).await.unwrap();
    forever.send(ID, "m", message).await.unwrap();
    world.reached().await;
    drop(forever);
    stopped
}

impl Stopped {
    /// Code `F` resumes the fiber up to the branch `before` of a `steps!`, where the process dies once more when so many results are stored.
    pub(super) async fn resumes_side_by_side<F: Fiber<Output: Debug>>(&self, before: &str, results: i64) {
        let world = World::without(Some(before));
        let forever = self.builder(&world).fiber::<F>().open().await.unwrap();
        world.reached().await;
        self.has_stored(results).await;
        drop(forever);
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("fibers.db")
    }

    /// Waits until so many results of branches are stored.
    async fn has_stored(&self, results: i64) {
        let stored = || Database::open(self.path()).number("SELECT count(*) FROM branch_results");
        eventually("the results of branches", async || stored() >= results).await;
    }

    fn builder(&self, world: &World) -> forever::Builder {
        Forever::builder().sqlite(self.path()).resource(world.clone())
    }

    fn row(&self) -> Row {
        let query = format!(
            "SELECT args, number, at, data, hash, layouts.layout FROM fibers JOIN snapshots ON snapshots.fiber = seq \
             LEFT JOIN layouts ON hash = snapshots.layout WHERE id = '{ID}'"
        );
        let [args, number, at, data, hash, layout] = Database::open(self.path()).rows(&query).remove(0).try_into().unwrap();
        Row { args: args.unwrap(), number: number.unwrap().parse().unwrap(), at, data, layout: hash.zip(layout) }
    }

    /// The text of the stored snapshot.
    pub(super) fn snapshot(&self) -> String {
        self.row().data.expect("it has come past a step")
    }

    /// Code `F` brings the fiber to its end: this result, and only these steps.
    pub(super) async fn resumes<F: Fiber<Output: Debug + PartialEq>>(&self, result: F::Output, steps: &[&str]) {
        self.says::<F>(false).await;
        let world = World::without(None);
        let forever = self.builder(&world).fiber::<F>().open().await.unwrap();
        let ended = forever.fiber::<F>(ID).wait().await;
        assert_eq!((ended, world.log().as_slice()), (Ok(result), steps.iter().map(|&s| s.to_owned()).collect::<Vec<_>>().as_slice()));
        assert_eq!(forever.fiber::<F>(ID).status().await.unwrap().state, FiberState::Completed);
        forever.close().await.unwrap();
    }

    /// A check of code `F` says of the fiber what will be; that it may be parked, and that `migrate` is asked, it may say of both.
    async fn says<F: Fiber>(&self, parks: bool) {
        let verdict = self.verdict::<F>().await;
        let is_so = match verdict {
            Verdict::Resumes => !parks,
            Verdict::Parks { .. } => parks,
            _ => true,
        };
        assert!(is_so, "{verdict}");
    }

    /// How many fibers a check of code `F`, which calls `Callee`, says that it would park.
    pub(super) async fn parked_by_a_check<F: Fiber, Callee: Fiber>(&self) -> u64 {
        self.builder(&World::without(None)).fiber::<F>().fiber::<Callee>().check().await.unwrap().parked()
    }

    /// What a check of code `F` says of the fiber.
    pub(super) async fn verdict<F: Fiber>(&self) -> Verdict {
        let mut found = self.builder(&World::without(None)).fiber::<F>().check().await.unwrap();
        found.entries.remove(0).verdict
    }

    /// Code `F` resumes the fiber and comes to the step `before`, where the process dies once more.
    pub(super) async fn resumes_until<F: Fiber<Output: Debug>>(&self, before: &str, steps: &[&str]) {
        self.says::<F>(false).await;
        let world = World::without(Some(before));
        let forever = self.builder(&world).fiber::<F>().open().await.unwrap();
        let handle = forever.fiber::<F>(ID);
        tokio::select! {
            biased;
            () = world.reached() => {}
            ended = handle.wait() => panic!("it never came to `{before}`: {ended:?}, {:?}", world.log()),
        }
        assert_eq!(world.log(), steps);
    }

    /// Code `F` cannot go on: the fiber is parked for this reason, in which both layouts are named, and nothing of it has changed.
    pub(super) async fn parks<F: Fiber<Output: Debug>>(&self, why: &str) {
        let before = self.row();
        let (hash, text) = before.layout.clone().expect("it has come past a step");
        let old: Layout = serde_json::from_str(&text).unwrap();
        assert_eq!(old.hash(), hash, "the layout that is kept is the one the snapshot was left under");
        let now = forever::layout::of::<F>();
        let reason = self.parked::<F>().await;
        let name = now.fiber();
        assert_eq!(reason, format!("`{name}` cannot resume: {why} (layout {hash} before, {} now)", now.hash()));
    }

    /// Code `F` cannot read what is kept: the fiber is parked for a reason that begins so, and nothing of it has changed.
    pub(super) async fn parks_saying<F: Fiber<Output: Debug>>(&self, why: &str) {
        let reason = self.parked::<F>().await;
        assert!(reason.starts_with(why), "{reason}");
    }

    /// Code `F` cannot go on: the fiber is parked for a reason that has `what` in it, and nothing of it has changed.
    pub(super) async fn parks_naming<F: Fiber<Output: Debug>>(&self, what: &str) {
        let reason = self.parked::<F>().await;
        assert!(reason.contains(what), "{reason}");
    }

    async fn parked<F: Fiber<Output: Debug>>(&self) -> String {
        self.says::<F>(true).await;
        self.parked_unseen::<F>().await
    }

    /// As `parks_naming`, of what a check does not see: it does not run the code.
    pub(super) async fn parks_unseen<F: Fiber<Output: Debug>>(&self, what: &str) {
        self.says::<F>(false).await;
        let reason = self.parked_unseen::<F>().await;
        assert!(reason.contains(what), "{reason}");
    }

    async fn parked_unseen<F: Fiber<Output: Debug>>(&self) -> String {
        let before = self.row();
        let world = World::without(None);
        let forever = self.builder(&world).fiber::<F>().open().await.unwrap();
        let handle = forever.fiber::<F>(ID);
        let ended = handle.wait().await;
        let Err(error) = &ended else { panic!("it went on: {ended:?} after {:?}; it stood at {before:?}", world.log()) };
        assert!(error.is_parked(), "{error}; it stood at {before:?}");
        let status = handle.status().await.unwrap();
        assert_eq!((status.state, status.reason.as_deref()), (FiberState::Parked, Some(error.reason())));
        assert_eq!(world.log(), [""; 0], "no step runs");
        drop(handle);
        forever.close().await.unwrap();
        assert_eq!(self.row(), before, "nothing is lost");
        error.reason().to_owned()
    }

    /// Code of other fibers alone leaves the fiber parked, whose handle is of type `F`.
    pub(super) async fn parks_unknown<F: Fiber<Output: Debug>, Other: Fiber>(&self) {
        let before = self.row();
        let world = World::without(None);
        let forever = self.builder(&world).fiber::<Other>().open().await.unwrap();
        let error = ended::<F>(&forever).await.unwrap_err();
        assert!(error.is_parked(), "{error}");
        let said = format!("fiber `{}` is not registered: register it, or", forever::layout::of::<F>().fiber());
        assert!(error.reason().starts_with(&said), "{error}");
        assert_eq!(world.log(), [""; 0], "no step runs");
        forever.close().await.unwrap();
        assert_eq!(self.row(), before, "nothing is lost");
    }
}

/// The end of the fiber, which must not wait for ever for what does not come.
async fn ended<F: Fiber>(forever: &Forever) -> Result<F::Output, forever::fiber::FiberError> {
    soon("the end", forever.fiber::<F>(ID).wait()).await
}

/// A database file with one fiber in it that waits.
pub(super) struct Waiting {
    stopped: Stopped,
    clock: VirtualClock,
}

impl Waiting {
    /// Runs a fiber until it waits, and closes the runtime there.
    pub(super) async fn at_its_first_wait<F: Fiber>(call: F) -> Waiting {
        let waiting = Waiting { stopped: Stopped { folder: tempfile::tempdir().unwrap() }, clock: VirtualClock::new() };
        let forever = waiting.open::<F>(&waiting.stopped.path()).await;
        let handle = forever.spawn(call).id(ID).await.unwrap();
        stands(&handle, FiberState::Waiting).await;
        forever.close().await.unwrap();
        waiting
    }

    async fn open<F: Fiber>(&self, path: &Path) -> Forever {
        Forever::builder()
            .sqlite(path)
            .clock(self.clock.clone())
            .resource(World::without(None))
            .fiber::<F>()
            .fiber::<super::waits::child>()
            .open()
            .await
            .unwrap()
    }

    /// A copy, so that several versions can go on from the same wait.
    async fn copied(&self) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fibers.db");
        database::copy(&self.stopped.path(), &path).await;
        (folder, path)
    }

    /// The time that it waits for has passed when it is opened again.
    pub(super) fn time_is_over(&self) {
        self.clock.advance(Duration::from_secs(2 * 3600));
    }

    /// Code `F` is given these messages and comes to this result.
    pub(super) async fn resumes<F: Fiber<Output: Debug + PartialEq>>(&self, messages: &[(&str, u32)], result: F::Output) {
        let (_folder, path) = self.copied().await;
        let forever = self.open::<F>(&path).await;
        for (topic, value) in messages {
            forever.send(ID, topic, value).await.unwrap();
        }
        assert_eq!(ended::<F>(&forever).await, Ok(result));
        forever.close().await.unwrap();
    }

    /// Code `F` parks it when the file is opened, for this reason, without anything being sent.
    pub(super) async fn parks_at_once<F: Fiber<Output: Debug>>(&self, why: &str) {
        let (_folder, path) = self.copied().await;
        let forever = self.open::<F>(&path).await;
        let error = ended::<F>(&forever).await.unwrap_err();
        assert!(error.is_parked() && error.reason().contains(why), "{error}");
        forever.close().await.unwrap();
    }

    /// A program with other functions parks it when it opens the file, and takes this message for it; code `F` comes to this result.
    pub(super) async fn parks_unknown<F: Fiber<Output: Debug + PartialEq>, Other: Fiber>(&self, message: (&str, u32), result: F::Output) {
        let (_folder, path) = self.copied().await;
        let forever = self.open::<Other>(&path).await;
        let error = ended::<F>(&forever).await.unwrap_err();
        assert!(error.is_parked(), "{error}");
        let said = format!("fiber `{}` is not registered: register it, or", forever::layout::of::<F>().fiber());
        assert!(error.reason().starts_with(&said), "{error}");
        forever.send(ID, message.0, &message.1).await.unwrap();
        forever.close().await.unwrap();
        let forever = self.open::<F>(&path).await;
        assert_eq!(ended::<F>(&forever).await, Ok(result));
        forever.close().await.unwrap();
    }

    /// Code `F` is given a message and parks for this reason.
    pub(super) async fn parks<F: Fiber<Output: Debug>>(&self, message: (&str, u32), why: &str) {
        let (_folder, path) = self.copied().await;
        let forever = self.open::<F>(&path).await;
        forever.send(ID, message.0, &message.1).await.unwrap();
        let error = ended::<F>(&forever).await.unwrap_err();
        assert!(error.is_parked() && error.reason().contains(why), "{error}");
        forever.close().await.unwrap();
    }
}
