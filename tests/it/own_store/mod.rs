//! A runtime over a store that is written outside of the library.
mod counting;
mod turns;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counting::{Calls, Counting, Fate};
use forever::agent::{Agent, Due, RecoveredFiber, RecoveryAction};
use forever::fiber::FiberState;
use forever::prelude::*;
use forever::store::{Durability, Sqlite, conformance};
use forever::testing::VirtualClock;
use forever::{BoxError, Error, ErrorKind};
use forever_testkit::waiting::{DEADLINE, eventually, settled, soon};
use tokio::sync::Notify;

async fn file(path: &Path, calls: &Calls) -> Counting {
    Counting::over(Sqlite::open(path, Durability::Process, DEADLINE).await.unwrap(), calls)
}

#[tokio::test(start_paused = true)]
async fn own_store_in_memory_conforms() {
    let calls = Calls::default();
    conformance::run(async || Counting::over(Sqlite::in_memory().await.unwrap(), &calls)).await;
    assert!(calls.of("checkpoint") > 0 && calls.of("ready fiber") > 0, "{calls:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_store_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let made = AtomicU64::new(0);
    conformance::run(async || file(&folder.path().join(made.fetch_add(1, Ordering::Relaxed).to_string()), &Calls::default()).await).await;
}

/// The steps that were carried out.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<String>>>);

impl Steps {
    async fn did(&self, step: &str) -> Result<u64, Error> {
        tokio::task::yield_now().await;
        self.0.lock().unwrap().push(step.to_owned());
        Ok(step.len() as u64)
    }
}

#[fiber]
async fn double(steps: Res<Steps>, n: u64) -> Result<u64, Error> {
    step!("double", steps.did("double").await?);
    Ok(2 * n)
}

const HOUR: Duration = Duration::from_secs(3600);

#[fiber]
async fn errand(steps: Res<Steps>) -> Result<String, BoxError> {
    let first = step!("first", steps.did("first").await?);
    let helper = spawn!(double(first));
    sleep!(HOUR);
    let word: String = recv!("word");
    let doubled = wait!(helper)?;
    step!("last", steps.did("last").await?);
    Ok(format!("{word} {doubled}"))
}

#[tokio::test(start_paused = true)]
async fn own_store_resumes_a_fiber() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fibers.db");
    let (steps, calls, clock) = (Steps::default(), Calls::default(), VirtualClock::new());
    let open = async || {
        let store = file(&path, &calls).await;
        Forever::builder()
            .store(store)
            .clock(clock.clone())
            .fiber::<errand>()
            .fiber::<double>()
            .resource(steps.clone())
            .open()
            .await
            .unwrap()
    };

    let forever = open().await;
    let id = forever.spawn(errand()).key("once").await.unwrap().id().to_owned();
    let waits = async || {
        let status = forever.fiber::<errand>(&id).status().await.unwrap();
        let at = status.at.as_deref().filter(|_| status.state == FiberState::Waiting);
        if at == Some("sleep") {
            clock.advance(HOUR);
        }
        at == Some("word")
    };
    eventually("the wait for a message", waits).await;
    // As if the process had died.
    drop(forever);
    assert!(calls.of("abandon") > 0);

    let forever = open().await;
    assert!(!forever.spawn(errand()).key("once").await.unwrap().accepted());
    forever.send(&id, "word", "twice five is").await.unwrap();
    let handle = forever.fiber::<errand>(&id);
    assert_eq!(soon("the result", handle.wait()).await.unwrap(), "twice five is 10");
    let mut done = steps.0.lock().unwrap().clone();
    done.sort();
    assert_eq!(done, ["double", "first", "last"], "each step once");
    for operation in ["join", "accept", "claim", "checkpoint", "wait", "take_due", "send", "topic", "end", "ready fiber"] {
        assert!(calls.of(operation) > 0, "{operation} was not called: {calls:?}");
    }
    drop(handle);
    forever.close().await.unwrap();
    assert_eq!(calls.of("close"), 1);
}

#[fiber]
async fn booking(ctx: &FiberContext) -> Result<(), Error> {
    ctx.transaction("nothing", |_| Ok::<_, Error>(())).await
}

#[tokio::test(start_paused = true)]
async fn own_store_refuses_what_needs_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let calls = Calls::default();
    let store = async || Counting::over(Sqlite::in_memory().await.unwrap(), &calls);
    let forever = Forever::builder().store(store().await).fiber::<booking>().open().await.unwrap();

    let failed = soon("the end", forever.run(booking())).await.unwrap_err();
    assert!(failed.is_failed(), "{failed}");
    let why =
        "needs the SQLite store, and this runtime was opened with `.store(..)`: open the runtime with `.sqlite(path)` or `.in_memory()`";
    assert!(failed.reason().contains(&format!("`ctx.transaction` {why}")), "{failed}");
    let outside = forever.transaction(|_| Ok::<_, Error>(())).await.unwrap_err();
    assert_eq!((outside.kind(), outside.to_string()), (ErrorKind::Setup, format!("`Forever::transaction` {why}")));
    let backup = forever.backup(folder.path().join("copy.db")).await.unwrap_err();
    assert_eq!((backup.kind(), backup.to_string()), (ErrorKind::Setup, format!("`Forever::backup` {why}")));
    assert!(!folder.path().join("copy.db").exists());
    forever.close().await.unwrap();

    let migrated = Forever::builder().store(store().await).migration("bookings", "CREATE TABLE bookings (id TEXT) STRICT").open().await;
    let error = migrated.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert!(error.to_string().starts_with("`.migration(..)` needs the SQLite store"), "{error}");
}

#[fiber]
async fn parent(steps: Res<Steps>) -> Result<u64, BoxError> {
    step!("first", steps.did("first").await?);
    sleep!(Duration::from_millis(1));
    let child = spawn!(double(4));
    Ok(wait!(child)?)
}

#[tokio::test(start_paused = true)]
async fn answer_that_is_lost_leaves_no_fiber_behind() {
    for operation in ["accept", "claim", "checkpoint"] {
        for skipped in 0..4 {
            let (steps, calls) = (Steps::default(), Calls::default());
            let store = Counting::over(Sqlite::in_memory().await.unwrap(), &calls);
            let forever = Forever::builder().store(store).fiber::<parent>().fiber::<double>().resource(steps.clone()).open().await.unwrap();
            let mut id = format!("{operation} {skipped}");
            if operation == "accept" {
                calls.next(operation, Fate::AnswerLost);
                let unknown = forever.spawn(parent()).id(&id).await.unwrap_err();
                assert_eq!(unknown.kind(), ErrorKind::OutcomeUnknown);
            } else {
                let events = &mut forever.events();
                id = forever.spawn(parent()).id(&id).await.unwrap().id().to_owned();
                for _ in 0..skipped {
                    soon("an event", events.next()).await;
                }
                calls.next(operation, Fate::AnswerLost);
            }
            let handle = forever.spawn(parent()).id(&id).await.unwrap();
            assert_eq!(soon(&id, handle.wait()).await.unwrap(), 8, "{id}");
            forever.close().await.unwrap();
        }
    }
}

/// The spawn that is repeated makes the fiber, while the one before still looks for it.
#[tokio::test(start_paused = true)]
async fn spawn_that_is_lost_and_repeated_runs_the_fiber_once() {
    let (steps, calls) = (Steps::default(), Calls::default());
    let store = Counting::over(Sqlite::in_memory().await.unwrap(), &calls);
    let forever = Forever::builder().store(store).fiber::<double>().resource(steps.clone()).open().await.unwrap();
    calls.next("accept", Fate::Lost);
    calls.next("find", Fate::Held);
    let unknown = forever.spawn(double(4)).id("once").await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::OutcomeUnknown);
    soon("the look for it", calls.holds("find")).await;

    calls.next("accept", Fate::AnswerHeld);
    let again = tokio::spawn(forever.spawn(double(4)).id("once").into_future());
    soon("the second spawn", calls.holds("accept")).await;
    calls.release("find");
    // What was found is not for the one who found it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    calls.release("accept");
    let handle = soon("the handle", again).await.unwrap().unwrap();
    assert!(handle.accepted());
    assert_eq!(soon("the result", handle.wait()).await.unwrap(), 8);
    assert_eq!(*steps.0.lock().unwrap(), ["double"]);
    forever.close().await.unwrap();
}

/// The fiber is stored after its spawn has failed and has looked for it in vain.
#[tokio::test(start_paused = true)]
async fn fiber_that_is_stored_after_its_spawn_has_failed_is_run() {
    // With time that stands still it is looked for once, and found by the spawn that is repeated.
    for repeated in [false, true] {
        let (steps, calls) = (Steps::default(), Calls::default());
        let store = Counting::over(Sqlite::in_memory().await.unwrap(), &calls);
        let mut builder = Forever::builder().store(store).fiber::<double>().resource(steps.clone());
        if repeated {
            builder = builder.clock(VirtualClock::new());
        }
        let forever = builder.open().await.unwrap();
        calls.next("accept", Fate::Late);
        let unknown = forever.spawn(double(4)).id("late").await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::OutcomeUnknown);
        soon("the late call", calls.holds("accept")).await;
        eventually("the look for it", async || calls.of("find let through") > 0).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        calls.release("accept");
        eventually("the late call", async || calls.of("accept carried out late") > 0).await;
        if repeated {
            assert!(!forever.spawn(double(4)).id("late").await.unwrap().accepted());
        }
        assert_eq!(soon("the result", forever.fiber::<double>("late").wait()).await.unwrap(), 8);
        assert_eq!(*steps.0.lock().unwrap(), ["double"]);
        forever.close().await.unwrap();
    }
}

/// Says how an interrupted fiber ended, when it is allowed to.
struct Judge {
    asked: Arc<Notify>,
    allowed: Arc<Notify>,
}

impl Agent for Judge {
    const CLASS: &'static str = "judge";
    type State = ();

    async fn on_fiber_recovered(&self, _: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        self.asked.notify_one();
        self.allowed.notified().await;
        Ok(RecoveryAction::complete(&99_u64)?)
    }
}

async fn open_judged(store: Counting, steps: &Steps, asked: &Arc<Notify>, allowed: &Arc<Notify>) -> Forever {
    let (asked, allowed) = (Arc::clone(asked), Arc::clone(allowed));
    let builder = Forever::builder().store(store).fiber::<endless>().resource(steps.clone());
    builder.agent(move |_| Judge { asked: Arc::clone(&asked), allowed: Arc::clone(&allowed) }).open().await.unwrap()
}

#[fiber]
async fn endless(steps: Res<Steps>) -> Result<u64, Error> {
    step!("first", steps.did("first").await?);
    step!("second", {
        steps.did("second").await?;
        std::future::pending::<()>().await;
        0
    });
    Ok(0)
}

#[fiber]
async fn listens() -> Result<String, BoxError> {
    let word: String = recv!("word");
    Ok(word)
}

/// How many activations may be started at a time: from their claim until their fibers are loaded.
const STARTED_AT_ONCE: u64 = 512;

#[tokio::test(start_paused = true)]
async fn activations_are_started_a_limited_number_at_a_time_by_recovery_and_by_messages() {
    const EACH: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fibers.db");
    let (steps, calls) = (Steps::default(), Calls::default());
    let open = async || {
        let store = file(&path, &calls).await;
        Forever::builder().store(store).fiber::<endless>().fiber::<listens>().resource(steps.clone()).open().await.unwrap()
    };
    let forever = open().await;
    for n in 0..EACH {
        forever.spawn(endless()).id(format!("runs {n}")).await.unwrap();
        forever.spawn(listens()).id(format!("waits {n}")).await.unwrap();
    }
    eventually("the second step of each", async || steps.0.lock().unwrap().len() == 2 * EACH).await;
    eventually("the wait of each", async || calls.of("wait let through") == EACH as u64).await;
    drop(forever);

    steps.0.lock().unwrap().clear();
    calls.shut(Some("claim"));
    let before = calls.of("claim") - calls.of("claim let through");
    let forever = open().await;
    for n in 0..EACH {
        forever.send(&format!("waits {n}"), "word", "go").await.unwrap();
    }
    let being_started = || calls.of("claim") - calls.of("claim let through") - before;
    eventually("claims", async || being_started() >= STARTED_AT_ONCE).await;
    // Each task that can begin does.
    settled().await;
    assert_eq!(being_started(), STARTED_AT_ONCE);
    calls.shut(None);
    for n in 0..EACH {
        assert_eq!(soon("a word", forever.fiber::<listens>(&format!("waits {n}")).wait()).await.unwrap(), "go");
    }
    eventually("the second step of each", async || steps.0.lock().unwrap().len() == EACH).await;
    forever.close().deadline(Duration::ZERO).await.unwrap();
}

/// A spawn whose outcome is unknown looks for its fiber, and finds one that a hook decides about.
#[tokio::test(start_paused = true)]
async fn spawn_that_is_lost_leaves_a_fiber_to_the_hook_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fibers.db");
    let (steps, calls) = (Steps::default(), Calls::default());
    let (asked, allowed) = <(Arc<Notify>, Arc<Notify>)>::default();
    let forever = open_judged(file(&path, &calls).await, &steps, &asked, &allowed).await;
    forever.spawn(endless()).id("case").agent("judge", "one").await.unwrap();
    eventually("its second step", async || steps.0.lock().unwrap().len() == 2).await;
    drop(forever);

    let forever = open_judged(file(&path, &calls).await, &steps, &asked, &allowed).await;
    soon("the hook", asked.notified()).await;
    calls.next("accept", Fate::Lost);
    let looks = calls.of("find");
    let unknown = forever.spawn(endless()).id("case").agent("judge", "one").await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::OutcomeUnknown);
    eventually("the look for it", async || calls.of("find") > looks).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(*steps.0.lock().unwrap(), ["first", "second"], "the hook has not decided");
    allowed.notify_one();
    assert_eq!(soon("the result", forever.fiber::<endless>("case").wait()).await.unwrap(), 99);
    forever.close().await.unwrap();
}

/// Counts the runs of its schedules.
struct Bell(Arc<AtomicU64>);

impl Agent for Bell {
    const CLASS: &'static str = "bell";
    type State = ();

    async fn on_schedule(&self, _: &Due) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// It is stored as running, and its runtime does not know of it.
#[tokio::test(start_paused = true)]
async fn schedule_whose_claim_had_no_answer_runs() {
    let (calls, rung, clock) = (Calls::default(), Arc::<AtomicU64>::default(), VirtualClock::new());
    let store = Counting::over(Sqlite::in_memory().await.unwrap(), &calls);
    let of_agents = Arc::clone(&rung);
    let builder = Forever::builder().store(store).clock(clock.clone()).agent(move |_| Bell(Arc::clone(&of_agents)));
    let forever = builder.open().await.unwrap();
    let bell = forever.agent::<Bell>("b");
    bell.schedule(Duration::from_secs(60), "ring", ()).await.unwrap();
    calls.next("claim_schedules", Fate::AnswerLost);
    clock.advance(Duration::from_secs(60));
    eventually("the claim", async || calls.of("claim_schedules let through") > 0).await;
    eventually("the run", async || {
        clock.advance(Duration::from_secs(1));
        rung.load(Ordering::Relaxed) > 0
    })
    .await;
    eventually("the end of the run", async || bell.schedules().await.unwrap().is_empty()).await;
    assert_eq!(rung.load(Ordering::Relaxed), 1);
    forever.close().await.unwrap();
}

/// The code of a closure goes with the spawn that is told nothing.
#[tokio::test(start_paused = true)]
async fn closure_whose_answer_is_lost_is_interrupted_and_left_to_the_hook_of_its_agent() {
    let (steps, calls) = (Steps::default(), Calls::default());
    let (asked, allowed) = <(Arc<Notify>, Arc<Notify>)>::default();
    let store = Counting::over(Sqlite::in_memory().await.unwrap(), &calls);
    let forever = open_judged(store, &steps, &asked, &allowed).await;
    for (id, owned) in [("owned", true), ("free", false)] {
        calls.next("accept", Fate::AnswerLost);
        let closure = forever.spawn_closure("errands", async |_| Ok::<u64, BoxError>(1)).id(id);
        let closure = if owned { closure.agent("judge", "one") } else { closure };
        assert_eq!(closure.start().await.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        if owned {
            soon("the hook", asked.notified()).await;
            allowed.notify_one();
            assert_eq!(soon("the result", forever.find_fiber::<u64>(id).await.unwrap().wait()).await.unwrap(), 99);
        } else {
            let error = soon("the end", forever.find_fiber::<u64>(id).await.unwrap().wait()).await.unwrap_err();
            assert!(error.is_interrupted(), "{error}");
        }
    }
    forever.close().await.unwrap();
}
