//! Recovery hooks of agents. Names begin with the numbers of the cases of the acceptance catalogue; docs/guide/src/internals/guarantees.md says whose they are.
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever_runtime::agent::{Agent, RecoveredFiber, RecoveryAction};
use forever_runtime::fiber::{FiberContext, FiberState, Resolution};
use forever_runtime::testing::VirtualClock;
use forever_runtime::{BoxError, Builder, Error, Forever, Retention};
use forever_testkit::waiting::settled;
use tokio::sync::{Barrier, watch};

use crate::support::Place;

/// What a hook does about a fiber.
#[derive(Clone)]
enum Plan {
    Complete(u32),
    Fail(&'static str),
    Skip,
    Resume,
    Error(&'static str),
    Panic,
    Hang,
}

/// What all hooks of a test have seen, and what they are to do; a fiber without a plan fails its hook.
#[derive(Clone, Default)]
struct World {
    plans: Arc<Mutex<HashMap<String, Plan>>>,
    seen: watch::Sender<Vec<String>>,
}

impl World {
    fn plan(&self, fiber: &str, plan: Plan) {
        self.plans.lock().unwrap().insert(fiber.to_owned(), plan);
    }

    fn seen(&self) -> Vec<String> {
        self.seen.borrow().clone()
    }

    async fn until(&self, calls: usize) {
        self.seen.subscribe().wait_for(|seen| seen.len() >= calls).await.unwrap();
    }

    fn builder(&self, place: &Place) -> Builder {
        let world = self.clone();
        Forever::builder().sqlite(place.path()).retention(Retention::forever()).agent(move |_| Keeper { world: world.clone() })
    }
}

struct Keeper {
    world: World,
}

impl Agent for Keeper {
    const CLASS: &'static str = "keeper";
    type State = ();

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        let stash: Option<u32> = fiber.snapshot()?;
        let plan = self.world.plans.lock().unwrap().get(fiber.id()).cloned();
        self.world.seen.send_modify(|seen| seen.push(format!("{} {} {stash:?}", fiber.id(), fiber.reason())));
        match plan.ok_or("no plan")? {
            Plan::Complete(value) => Ok(RecoveryAction::complete(&value)?),
            Plan::Fail(why) => Ok(RecoveryAction::fail(why)),
            Plan::Skip => Ok(RecoveryAction::Skip),
            Plan::Resume => Ok(RecoveryAction::Resume),
            Plan::Error(why) => Err(why.into()),
            Plan::Panic => panic!("in the hook"),
            Plan::Hang => std::future::pending().await,
        }
    }
}

/// Leaves closure fibers of one agent behind, each with a stash: its place in the list.
async fn leave_behind(world: &World, place: &Place, ids: &[&str]) {
    let forever = world.builder(place).open().await.unwrap();
    let ready = Arc::new(Barrier::new(ids.len() + 1));
    for (n, id) in ids.iter().enumerate() {
        let ready = Arc::clone(&ready);
        let work = move |ctx: FiberContext| async move {
            ctx.stash(&n).await?;
            ready.wait().await;
            std::future::pending::<Result<u32, Error>>().await
        };
        forever.agent::<Keeper>("a").spawn_closure("work", work).id(*id).start().await.unwrap();
    }
    ready.wait().await;
}

async fn state(forever: &Forever, id: &str) -> FiberState {
    forever.find_fiber::<u32>(id).await.unwrap().status().await.unwrap().state
}

#[tokio::test(start_paused = true)]
async fn case_04_a_running_fiber_keeps_its_agent_in_memory() {
    let (world, place, clock) = (World::default(), Place::new(), VirtualClock::new());
    let forever = world.builder(&place).clock(clock.clone()).open().await.unwrap();
    let agent = forever.agent::<Keeper>("a");
    drop(agent.wake().await.unwrap());
    let go = Arc::new(tokio::sync::Notify::new());
    let wait = Arc::clone(&go);
    let work = |_| async move {
        wait.notified().await;
        Ok::<_, Error>(())
    };
    let handle = agent.spawn_closure("work", work).start().await.unwrap();
    tokio::task::yield_now().await;
    clock.advance(Duration::from_secs(600));
    tokio::task::yield_now().await;
    assert!(agent.is_awake());
    go.notify_one();
    handle.wait().await.unwrap();
    while agent.is_awake() {
        clock.advance(Duration::from_secs(100));
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_12_to_17_each_interrupted_fiber_is_handed_over_once_with_its_stash() {
    let (world, place) = (World::default(), Place::new());
    let ids = ["x", "y", "z"];
    leave_behind(&world, &place, &ids).await;
    for (n, id) in ids.iter().enumerate() {
        world.plan(id, Plan::Complete(u32::try_from(n).unwrap() + 10));
    }
    let forever = world.builder(&place).open().await.unwrap();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(forever.find_fiber::<u32>(id).await.unwrap().wait().await.unwrap(), u32::try_from(n).unwrap() + 10);
    }
    assert_eq!(world.seen(), ["x the process died Some(0)", "y the process died Some(1)", "z the process died Some(2)"]);
    drop(forever);
    // Settled, so no later process asks again.
    let forever = world.builder(&place).open().await.unwrap();
    assert_eq!(state(&forever, "x").await, FiberState::Completed);
    assert_eq!(world.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn case_18_to_23_a_hook_that_fails_keeps_the_fiber_and_is_asked_again_later_and_later() {
    let (world, place, clock) = (World::default(), Place::new(), VirtualClock::new());
    leave_behind(&world, &place, &["good", "bad"]).await;
    world.plan("good", Plan::Complete(1));
    world.plan("bad", Plan::Error("not yet"));
    let forever = world.builder(&place).clock(clock.clone()).open().await.unwrap();
    // That the failure is stored says that the pass is over; its pause begins a moment later.
    let over = async || {
        while place.text("SELECT state FROM fibers WHERE id = 'bad'").as_deref() != Some("interrupted") {
            settled().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    world.until(2).await;
    // Each pause is twice the one before, up to five minutes. The first pass has settled one of the two, so it counts as progress.
    let mut asked = 2;
    for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        over().await;
        clock.advance(Duration::from_millis(pause * 1000 - 1));
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(world.seen().len(), asked, "not before its time");
        clock.advance(Duration::from_millis(1));
        asked += 1;
        world.until(asked).await;
    }
    over().await;
    let status = forever.find_fiber::<u32>("bad").await.unwrap().status().await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("`on_fiber_recovered` of agent `keeper/a` failed: not yet"));
    assert_eq!(state(&forever, "good").await, FiberState::Completed);

    // Once it is settled nobody is asked any more: nothing keeps the runtime busy.
    world.plan("bad", Plan::Complete(2));
    over().await;
    clock.advance(Duration::from_secs(300));
    world.until(asked + 1).await;
    while state(&forever, "bad").await != FiberState::Completed {
        settled().await;
    }
    clock.advance(Duration::from_secs(3600));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(world.seen().len(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn case_42_and_57_hooks_that_panic_or_hang_keep_nobody_else_waiting() {
    let (world, place, clock) = (World::default(), Place::new(), VirtualClock::new());
    leave_behind(&world, &place, &["panics", "hangs", "last"]).await;
    world.plan("panics", Plan::Panic);
    world.plan("hangs", Plan::Hang);
    world.plan("last", Plan::Complete(3));
    let forever = world.builder(&place).clock(clock.clone()).hook_timeout(Duration::from_secs(7)).open().await.unwrap();
    world.until(2).await;
    while clock.next_sleeper() != Some(Duration::from_secs(7)) {
        settled().await;
    }
    clock.advance(Duration::from_secs(7));
    assert_eq!(forever.find_fiber::<u32>("last").await.unwrap().wait().await.unwrap(), 3);
    let reason = async |id| forever.find_fiber::<u32>(id).await.unwrap().status().await.unwrap().reason.unwrap();
    assert_eq!(reason("panics").await, "`on_fiber_recovered` of agent `keeper/a` failed: panicked: in the hook");
    assert_eq!(reason("hangs").await, "its agent's recovery hook took longer than 7s");
}

#[tokio::test(start_paused = true)]
async fn case_36_37_40_and_41_what_the_hook_says_becomes_the_state() {
    let (world, place) = (World::default(), Place::new());
    leave_behind(&world, &place, &["completes", "fails", "stays", "cannot"]).await;
    world.plan("completes", Plan::Complete(5));
    world.plan("fails", Plan::Fail("given up"));
    world.plan("stays", Plan::Skip);
    world.plan("cannot", Plan::Resume);
    let forever = world.builder(&place).open().await.unwrap();
    let handle = async |id| forever.find_fiber::<u32>(id).await.unwrap();
    assert_eq!(handle("completes").await.wait().await.unwrap(), 5);
    assert_eq!(handle("fails").await.wait().await.unwrap_err().reason(), "given up");
    let stays = handle("stays").await.wait().await.unwrap_err();
    assert!(stays.is_interrupted());
    assert_eq!(stays.reason(), "the process died");
    let cannot = handle("cannot").await.wait().await.unwrap_err();
    assert!(cannot.reason().contains("of a closure nothing is left but its stash"), "{cannot}");
    forever.resolve("stays", Resolution::completed(&6).unwrap()).await.unwrap();
    assert_eq!(handle("stays").await.wait().await.unwrap(), 6);
}

#[tokio::test(start_paused = true)]
async fn case_52_a_waiter_of_a_fiber_whose_process_died_hears_what_became_of_it() {
    let (world, place) = (World::default(), Place::new());
    leave_behind(&world, &place, &["x"]).await;
    world.plan("x", Plan::Skip);
    let forever = world.builder(&place).open().await.unwrap();
    let joined = forever.agent::<Keeper>("a").spawn_closure("work", |_| async { Ok::<u32, Error>(0) }).id("x").start().await.unwrap();
    assert!(!joined.accepted());
    assert!(joined.wait().await.unwrap_err().is_interrupted());
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_kills_the_process_uses_up_the_recoveries_of_its_fiber() {
    let (world, place) = (World::default(), Place::new());
    leave_behind(&world, &place, &["x"]).await;
    world.plan("x", Plan::Hang);
    // Each death while the hook is asked counts, as the fiber is called running by then.
    for deaths in 1..=10 {
        let forever = world.builder(&place).open().await.unwrap();
        world.until(deaths).await;
        assert_eq!(place.number("SELECT deaths FROM snapshots"), i64::try_from(deaths).unwrap());
        drop(forever);
    }
    let forever = world.builder(&place).open().await.unwrap();
    let error = forever.find_fiber::<u32>("x").await.unwrap().wait().await.unwrap_err();
    assert!(error.is_failed());
    assert!(error.reason().starts_with("the process died 11 times while it ran or was recovered"), "{error}");
    assert_eq!(world.seen().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_was_parked_because_its_class_was_unknown_is_handed_over_when_it_is_known_again() {
    let (world, place) = (World::default(), Place::new());
    leave_behind(&world, &place, &["left"]).await;
    let forever = Forever::builder().sqlite(place.path()).retention(Retention::forever()).open().await.unwrap();
    let error = forever.find_fiber::<u32>("left").await.unwrap().wait().await.unwrap_err();
    assert_eq!(error.reason(), "agent class `keeper` is not registered");
    forever.close().await.unwrap();
    drop(forever);
    world.plan("left", Plan::Complete(7));
    let forever = world.builder(&place).open().await.unwrap();
    assert_eq!(forever.find_fiber::<u32>("left").await.unwrap().wait().await.unwrap(), 7);
    assert_eq!(world.seen(), ["left agent class `keeper` is not registered Some(0)"]);
}
