//! Who may run a fiber is decided by its row, and by nothing else: recovery hooks, people and activations that meet over one fiber.
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::agent::{Agent, RecoveredFiber, RecoveryAction};
use forever::fiber::{FiberState, Resolution};
use forever::ops::OnUnknown;
use forever::prelude::*;
use forever::{BoxError, Builder, Error, ErrorKind};
use forever_testkit::database::Database;
use forever_testkit::waiting::{DEADLINE, eventually, soon};
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use crate::support::stands;

/// What a recovery hook does when it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Fail,
    Resume,
    Restart,
    Skip,
    Complete,
}

/// What outlives the processes of a test: a bank, hooks that are held, and how often each was asked.
#[derive(Clone)]
struct World {
    charges: Arc<AtomicU64>,
    /// Charges go through one by one.
    till: Arc<Semaphore>,
    charging: watch::Sender<u64>,
    answers: Arc<Mutex<Vec<Answer>>>,
    /// Hooks are let through one by one.
    door: Arc<Semaphore>,
    asked: watch::Sender<u64>,
}

impl World {
    fn new() -> Self {
        World {
            charges: Arc::default(),
            till: Arc::new(Semaphore::new(0)),
            charging: watch::Sender::new(0),
            answers: Arc::default(),
            door: Arc::new(Semaphore::new(0)),
            asked: watch::Sender::new(0),
        }
    }

    fn plan(&self, answers: &[Answer]) {
        *self.answers.lock().unwrap() = answers.to_vec();
    }

    async fn charge(&self) -> u64 {
        self.charging.send_modify(|n| *n += 1);
        self.till.acquire().await.unwrap().forget();
        self.charges.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// What the bank says of a charge of which nothing else is known.
    fn charged(&self) -> Option<u64> {
        let charges = self.charges.load(Ordering::SeqCst);
        (charges > 0).then_some(charges)
    }

    async fn charging(&self, times: u64) {
        soon("a charge", self.charging.subscribe().wait_for(|n| *n >= times)).await.unwrap();
    }

    async fn asked(&self, times: u64) {
        soon("a hook", self.asked.subscribe().wait_for(|n| *n >= times)).await.unwrap();
    }
}

struct Keeper(World);

impl Agent for Keeper {
    const CLASS: &'static str = "keeper";
    type State = ();

    async fn on_fiber_recovered(&self, _: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        self.0.asked.send_modify(|n| *n += 1);
        self.0.door.acquire().await?.forget();
        let answer = {
            let mut answers = self.0.answers.lock().unwrap();
            if answers.len() > 1 { answers.remove(0) } else { answers[0] }
        };
        match answer {
            Answer::Fail => Err("the hook is not ready".into()),
            Answer::Resume => Ok(RecoveryAction::Resume),
            Answer::Restart => Ok(RecoveryAction::Restart),
            Answer::Skip => Ok(RecoveryAction::Skip),
            Answer::Complete => Ok(RecoveryAction::complete("by the hook")?),
        }
    }
}

/// Charges once, though it is not known of a first attempt whether it was carried out.
#[fiber]
async fn buys(world: Res<World>) -> anyhow::Result<String> {
    step!("begin", 1);
    let receipt = step!("charge", effect, on_unknown = OnUnknown::check(async |_| world.charged()), world.charge().await);
    step!("end", ());
    Ok(format!("charge {receipt}"))
}

struct Place {
    _folder: TempDir,
    path: PathBuf,
    world: World,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Place { path: folder.path().join("owned.db"), _folder: folder, world: World::new() }
    }

    fn builder(&self) -> Builder {
        let world = self.world.clone();
        let agents = world.clone();
        Forever::builder()
            .sqlite(&self.path)
            .wait_for_lock(DEADLINE)
            .hook_timeout(DEADLINE)
            .resource(world)
            .fiber::<buys>()
            .agent(move |_| Keeper(agents.clone()))
    }

    async fn open(&self) -> Forever {
        self.builder().open().await.unwrap()
    }

    /// A fiber of an agent, left by a process that died before its charge.
    async fn left(&self) -> Forever {
        let forever = self.open().await;
        forever.spawn(buys()).id("buys").agent("keeper", "a").await.unwrap();
        self.world.charging(1).await;
        drop(forever);
        self.open().await
    }

    fn sql(&self) -> rusqlite::Connection {
        let sql = rusqlite::Connection::open(&self.path).unwrap();
        sql.busy_timeout(DEADLINE).unwrap();
        sql
    }
}

async fn state(forever: &Forever) -> FiberState {
    forever.fiber::<buys>("buys").status().await.unwrap().state
}

#[tokio::test(start_paused = true)]
async fn a_person_and_a_hook_that_both_resume_start_one_activation() {
    let place = Place::new();
    place.world.plan(&[Answer::Fail, Answer::Resume]);
    let forever = place.left().await;
    // The first pass fails; a second one comes after a pause. Meanwhile a person resumes.
    place.world.door.add_permits(1);
    place.world.asked(1).await;
    stands(&forever.fiber::<buys>("buys"), FiberState::Interrupted).await;
    forever.resume("buys").await.unwrap();
    place.world.charging(2).await;
    place.world.door.add_permits(9);
    // The hook's later passes come while the charge is under way: they have nothing to decide.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    place.world.till.add_permits(9);
    assert_eq!(soon("the fiber", forever.fiber::<buys>("buys").wait()).await.unwrap(), "charge 1");
    assert_eq!((*place.world.charging.borrow(), place.world.charges.load(Ordering::SeqCst)), (2, 1), "the lost one, and one more");
}

#[tokio::test(start_paused = true)]
async fn a_fiber_whose_hook_is_being_asked_is_not_resolved_by_hand() {
    let place = Place::new();
    place.world.plan(&[Answer::Skip]);
    let forever = place.left().await;
    place.world.asked(1).await;
    for refused in [
        forever.resolve("buys", Resolution::completed("by hand").unwrap()).await,
        forever.resume("buys").await,
        forever.restart("buys").await,
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidState);
    }
    place.world.door.add_permits(1);
    stands(&forever.fiber::<buys>("buys"), FiberState::Interrupted).await;
    forever.resolve("buys", Resolution::completed("by hand").unwrap()).await.unwrap();
    assert_eq!(soon("the fiber", forever.fiber::<buys>("buys").wait()).await.unwrap(), "by hand");
}

#[tokio::test(start_paused = true)]
async fn what_a_person_has_resolved_no_later_hook_overwrites() {
    for late in [Answer::Complete, Answer::Resume, Answer::Restart, Answer::Skip, Answer::Fail] {
        let place = Place::new();
        place.world.plan(&[Answer::Fail, late]);
        let forever = place.left().await;
        place.world.door.add_permits(9);
        place.world.asked(1).await;
        stands(&forever.fiber::<buys>("buys"), FiberState::Interrupted).await;
        forever.resolve("buys", Resolution::completed("by hand").unwrap()).await.unwrap();
        // Time enough for the next pass of the hook.
        tokio::time::sleep(Duration::from_millis(1300)).await;
        assert_eq!(soon("the fiber", forever.fiber::<buys>("buys").wait()).await.unwrap(), "by hand");
        assert_eq!((state(&forever).await, *place.world.charging.borrow()), (FiberState::Completed, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_is_cancelled_while_its_hook_says_skip_ends() {
    for answer in [Answer::Skip, Answer::Fail] {
        let place = Place::new();
        place.world.plan(&[answer]);
        let forever = place.left().await;
        place.world.asked(1).await;
        forever.cancel("buys", "enough").await.unwrap();
        place.world.door.add_permits(1);
        let error = soon("the fiber", forever.fiber::<buys>("buys").wait()).await.unwrap_err();
        assert!(error.is_cancelled() && error.reason() == "enough", "{error}");
        stands(&forever.fiber::<buys>("buys"), FiberState::Cancelled).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_cannot_be_stored_is_stored_later() {
    let place = Place::new();
    place.world.plan(&[Answer::Complete]);
    let forever = place.left().await;
    place.world.asked(1).await;
    // No write to the row of a fiber succeeds while the hook answers.
    let sql = place.sql();
    sql.execute_batch("CREATE TRIGGER refuses BEFORE UPDATE ON fibers BEGIN SELECT RAISE(ABORT, 'no'); END").unwrap();
    place.world.door.add_permits(1);
    tokio::time::sleep(Duration::from_millis(5600)).await;
    assert_ne!(state(&forever).await, FiberState::Completed);
    sql.execute_batch("DROP TRIGGER refuses").unwrap();
    assert_eq!(soon("the fiber", forever.fiber::<buys>("buys").wait()).await.unwrap(), "by the hook");
    assert_eq!(*place.world.asked.borrow(), 1, "it was not asked again");
}

#[fiber]
async fn counts(world: Res<World>) -> anyhow::Result<u64> {
    let mut n = 0;
    while n < 5 {
        n = step!("count", world.charge().await);
    }
    Ok(n)
}

/// What another worker does that takes a fiber over.
fn claim_away(place: &Place) {
    Database::open(&place.path).run("UPDATE snapshots SET epoch = epoch + 1, worker = 99");
}

#[tokio::test(start_paused = true)]
async fn an_activation_whose_claim_is_lost_stops_and_stores_nothing() {
    let place = Place::new();
    let forever = place.builder().fiber::<counts>().open().await.unwrap();
    let handle = forever.spawn(counts()).id("counts").await.unwrap();
    place.world.till.add_permits(1);
    place.world.charging(2).await;
    claim_away(&place);
    place.world.till.add_permits(9);
    // It stops at the checkpoint of the step that was under way.
    let stored = || Database::open(&place.path).rows("SELECT number, data FROM snapshots");
    let before = stored();
    forever.close().await.unwrap();
    assert_eq!(*place.world.charging.borrow(), 2, "no further step began");
    assert_eq!(stored(), before);
    assert_eq!(before[0][0].as_deref(), Some("1"));
    assert!(handle.wait().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_closure_whose_claim_is_lost_stops_at_its_next_stash() {
    let place = Place::new();
    let forever = place.open().await;
    let (bank, went_on) = (place.world.clone(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&went_on);
    let work = move |ctx: forever::fiber::FiberContext| async move {
        for n in 0..9_u64 {
            ctx.stash(&n).await?;
            counted.fetch_add(1, Ordering::SeqCst);
            bank.charge().await;
        }
        Ok::<_, Error>(())
    };
    forever.spawn_closure("work", work).id("work").start().await.unwrap();
    place.world.charging(1).await;
    claim_away(&place);
    place.world.till.add_permits(9);
    // Its row is another worker's: all that is seen of it here is that its code was dropped.
    eventually("the end of its code", async || Arc::strong_count(&went_on) == 1).await;
    assert_eq!(went_on.load(Ordering::SeqCst), 1);
    assert_eq!(Database::open(&place.path).text("SELECT data FROM snapshots"), "0");
}

/// What a task of the program does with the context of a fiber that has ended: refused, and answered.
#[tokio::test(start_paused = true)]
async fn context_that_outlives_its_activation_writes_nothing() {
    for ends in ["completed", "failed", "cancelled"] {
        let forever = Forever::builder().in_memory().cancel_grace(Duration::from_millis(1)).open().await.unwrap();
        let (ended, charges) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
        let (wait, count) = (Arc::clone(&ended), Arc::clone(&charges));
        let (tell, told) = tokio::sync::oneshot::channel();
        let leaking = forever.spawn_closure("leak", move |ctx| async move {
            tokio::spawn(async move {
                wait.acquire().await.unwrap().forget();
                let charge = |_: forever::ops::Op| async move { Ok::<u64, Error>(count.fetch_add(1, Ordering::SeqCst)) };
                let paid = ctx.op("pay", 1, charge).await.map_err(|error| error.kind());
                let stashed = ctx.stash(&1).await.map_err(|error| error.kind());
                let _ = tell.send((paid, stashed));
            });
            match ends {
                "completed" => Ok::<(), Error>(()),
                "failed" => Err(Error::new(ErrorKind::Agent, "no")),
                _ => std::future::pending().await,
            }
        });
        let handle = leaking.start().await.unwrap();
        if ends == "cancelled" {
            forever.cancel(handle.id(), "enough").await.unwrap();
        }
        assert_eq!(soon(ends, handle.wait()).await.is_ok(), ends == "completed");
        ended.add_permits(1);
        let told = soon(ends, told).await.unwrap();
        assert_eq!(told, (Err(ErrorKind::ClaimLost), Err(ErrorKind::ClaimLost)), "{ends}");
        assert_eq!(charges.load(Ordering::SeqCst), 0, "{ends}");
        forever.close().await.unwrap();
    }
}

/// Commits that are in the log of a database that was moved away are not thrown away with it.
#[tokio::test(start_paused = true)]
async fn database_that_was_moved_from_its_log_is_not_made_anew() {
    let folder = TempDir::new().unwrap();
    let (path, moved) = (folder.path().join("shop.db"), folder.path().join("shop.bak"));
    let open = async || Forever::builder().sqlite(&path).open().await;
    let forever = open().await.unwrap();
    forever.spawn_closure("a", |_| async { Ok::<_, Error>(1) }).id("a").await.unwrap();
    std::fs::rename(&path, &moved).unwrap();
    let _ = forever.spawn_closure("b", |_| async { Ok::<_, Error>(2) }).await;
    assert_eq!(forever.close().await.unwrap_err().kind(), ErrorKind::DatabaseLost);
    drop(forever);
    for _ in 0..2 {
        let refused = open().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Format);
        assert!(refused.to_string().contains("the database is not beside it: put the database back"), "{refused}");
    }
    std::fs::rename(&moved, &path).unwrap();
    let forever = open().await.unwrap();
    assert_eq!(forever.find_fiber::<i32>("a").await.unwrap().wait().await.unwrap(), 1);
    forever.close().await.unwrap();
}
