//! Calls inside calls, down to the stated limit and beyond it, with values that nest as deep as they may.
use std::sync::{Arc, Mutex};

use forever::BoxError;
use forever::agent::{Agent, RecoveredFiber, RecoveryAction};
use forever::fiber::{Fiber, FiberState, Log, Snapshot};
use forever::prelude::*;
use forever::testing::{Outcome, Stage, StartFrom};
use serde_json::Value;

use crate::support::{Place, World};

/// As in the runtime: a snapshot with more calls inside one another cannot be made.
const LIMIT: u32 = 200;

/// A value as deep as one may be.
fn nested() -> Value {
    (1..100).fold(Value::Array(vec![]), |value, _| Value::Array(vec![value]))
}

#[fiber]
async fn down(world: Res<World>, levels: u32) -> anyhow::Result<u32> {
    let deep = step!("down", world.step(nested()).await?);
    let mut below = 0;
    if levels > 0 {
        below = call!(down(levels - 1))?;
    }
    step!("up", world.did(format!("up {levels}")).await?);
    anyhow::ensure!(deep == nested(), "another value came back");
    Ok(below + 1)
}

/// Keeps more on each level, and takes much of the stack in a debug build.
#[fiber]
async fn wide(world: Res<World>, levels: u32) -> anyhow::Result<u32> {
    let long = step!("long", world.step(format!("{levels} ").repeat(200)).await?);
    let pair = steps!(world.step([7_u64; 32]).await?, world.step([levels; 32]).await?);
    let name = step!("name", retry = Retry::times(1), world.step(levels.to_string()).await?);
    let mut seen = Log::new();
    seen.push(name.clone());
    let mut below = 0;
    if let Some(next) = levels.checked_sub(1) {
        below = match call!(wide(next)) {
            Ok(below) => below,
            Err(why) => step!("failed", Err(why)?),
        };
    }
    step!("up", world.did(format!("{long}{pair:?}{name}{seen:?}")).await?);
    Ok(below + 1)
}

/// How many calls are inside one another.
fn calls(snapshot: &Snapshot) -> u32 {
    std::iter::successors(snapshot.call.as_deref(), |call| call.call.as_deref()).map(|_| 1).sum()
}

fn ups(levels: u32) -> Vec<String> {
    (0..=levels).map(|level| format!("up {level}")).collect()
}

/// Runs a fiber to its end, ended after each of its checkpoints. Gives its end and how many lives that took.
async fn killed_after_each<F: Fiber>(world: &World, call: F) -> (Outcome<F::Output>, usize) {
    let stage = Stage::new().resource(world.clone());
    let mut played = stage.run(StartFrom::Start(call), Some(1)).await;
    let mut lives = 1;
    while matches!(played.outcome, Outcome::Killed) {
        played = stage.run(StartFrom::<F>::Snapshot(played.snapshots.pop().unwrap()), Some(1)).await;
        lives += 1;
    }
    (played.outcome, lives)
}

#[tokio::test]
async fn calls_of_every_depth_survive_a_death_at_each_checkpoint() {
    for levels in [1, 64, 125, 126, 127, 128] {
        let world = World::new(usize::MAX);
        let (outcome, lives) = killed_after_each(&world, down(levels)).await;
        assert_eq!(outcome, Outcome::Completed(levels + 1));
        assert_eq!(world.done(), ups(levels), "{levels}");
        // A checkpoint for each step and each call that has returned, and the last life has none.
        assert_eq!(lives, 3 * levels as usize + 3);
    }
}

/// What a file has is read in another process at each depth on the way down, and up again.
#[tokio::test]
async fn a_process_that_dies_at_any_depth_goes_on_there() {
    let (place, world) = (Place::new(), World::new(1));
    let mut forever = place.open::<down>(&world).await;
    forever.spawn(down(LIMIT)).id("f").await.unwrap();
    for level in 0..=2 * LIMIT {
        world.held().await;
        let document: Snapshot = serde_json::from_str(&place.text("SELECT document FROM snapshot_documents")).unwrap();
        assert_eq!(calls(&document), level.min(2 * LIMIT - level));
        drop(forever);
        world.died();
        forever = place.open::<down>(&world).await;
        world.open(1);
    }
    assert_eq!(forever.fiber::<down>("f").wait().await.unwrap(), LIMIT + 1);
    assert_eq!(world.done(), ups(LIMIT));
}

#[tokio::test]
async fn one_call_beyond_the_limit_fails_the_fiber_and_says_so() {
    let (place, world) = (Place::new(), World::new(LIMIT as usize));
    let forever = place.open::<down>(&world).await;
    forever.spawn(down(LIMIT + 1)).id("f").await.unwrap();
    world.held().await;
    drop(forever);
    world.died();
    let forever = place.open::<down>(&world).await;
    world.open(1);
    let handle = forever.fiber::<down>("f");
    let why = "`down` cannot be called from here: calls nest deeper than 200";
    assert_eq!(handle.wait().await.unwrap_err().reason(), why);
    // It stands at the last checkpoint before that, and no step was made twice.
    let status = handle.status().await.unwrap();
    assert_eq!((status.state, status.checkpoints), (FiberState::Failed, u64::from(LIMIT) + 1));
    forever.resume("f").await.unwrap();
    assert_eq!(handle.wait().await.unwrap_err().reason(), why);
    assert!(world.done().is_empty());
}

/// What a level takes of the stack does not limit how many there can be, on a thread as small as tokio's.
#[test]
fn functions_that_take_much_of_the_stack_can_be_called_as_deep() {
    let on_small_stack = || {
        let world = World::new(usize::MAX);
        let whole = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let whole = Box::pin(Stage::new().resource(world.clone()).run(StartFrom::Start(wide(LIMIT)), None)).await;
            // From the deepest snapshot, all the way up.
            let deepest = whole.snapshots.iter().rev().max_by_key(|text| text.matches("\"call\":{").count()).unwrap().clone();
            let world = World::new(usize::MAX);
            let resumed = Box::pin(Stage::new().resource(world.clone()).run(StartFrom::<wide>::Snapshot(deepest), None)).await;
            assert_eq!(resumed.outcome, whole.outcome);
            assert_eq!(world.done().len(), LIMIT as usize + 1);
            whole
        });
        assert_eq!(whole.outcome, Outcome::Completed(LIMIT + 1));
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(on_small_stack).unwrap().join().unwrap();
}

mod before {
    #[forever::fiber]
    pub(super) async fn caller(world: forever::fiber::Res<crate::support::World>) -> anyhow::Result<u32> {
        let name = forever::step!("name", world.step("n".repeat(600)).await?);
        let below = forever::call!(super::wide(super::LIMIT - 1))?;
        Ok(below + u32::try_from(name.len())?)
    }
}

mod after {
    #[forever::fiber(version = 1, migrate = super::checked)]
    pub(super) async fn caller(world: forever::fiber::Res<crate::support::World>) -> anyhow::Result<u32> {
        let name = forever::step!("name", world.step("n".repeat(600)).await?);
        let below = forever::call!(super::wide(super::LIMIT - 1))?;
        Ok(below + u32::try_from(name.len())?)
    }
}

/// What both a hook and a `migrate` function are given: every level, with all its values.
fn whole(snapshot: &Snapshot) -> Result<(), String> {
    let mut level = snapshot.call.as_deref();
    for n in (0..LIMIT).rev() {
        let call = level.ok_or_else(|| format!("level {n} is missing"))?;
        let local = |name: &str| call.locals.get(name).map_or("nothing", |text| text.get()).to_owned();
        if local("long") != format!("\"{}\"", format!("{n} ").repeat(200)) {
            return Err(format!("level {n} has {}", local("long")));
        }
        if n > 0 && local("seen") != format!("[\"{n}\"]") {
            return Err(format!("level {n} has {}", local("seen")));
        }
        level = call.call.as_deref();
    }
    Ok(())
}

fn checked(snapshot: Snapshot) -> Result<Snapshot, BoxError> {
    whole(&snapshot)?;
    Ok(snapshot)
}

struct Keeper(Arc<Mutex<Vec<Result<(), String>>>>);

impl Agent for Keeper {
    const CLASS: &'static str = "Keeper";
    type State = ();

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        let snapshot: Option<Snapshot> = fiber.snapshot()?;
        self.0.lock().unwrap().push(whole(&snapshot.unwrap()));
        Ok(RecoveryAction::Resume)
    }
}

#[tokio::test]
async fn hooks_and_migrations_are_given_every_level() {
    // The steps of a level on the way down: one, two side by side, and one more. The deepest one is held in its second.
    let (place, world) = (Place::new(), World::new(1 + 4 * (LIMIT as usize - 1) + 1));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&seen);
    let forever = place.builder::<before::caller>(&world).agent(move |_| Keeper(Arc::clone(&hook))).open().await.unwrap();
    forever.spawn(before::caller()).id("f").agent("Keeper", "a").await.unwrap();
    world.entered(1 + 4 * (LIMIT as usize - 1) + 3).await;
    drop(forever);
    world.died();
    world.died();
    world.open(usize::MAX / 2);
    let hook = Arc::clone(&seen);
    let forever = place.builder::<after::caller>(&world).agent(move |_| Keeper(Arc::clone(&hook))).open().await.unwrap();
    assert_eq!(forever.fiber::<after::caller>("f").wait().await.unwrap(), LIMIT + 600);
    assert_eq!(*seen.lock().unwrap(), [Ok(())]);
    assert_eq!(world.done().len(), LIMIT as usize);
}

#[tokio::test]
async fn a_damaged_row_with_more_calls_parks_its_fiber() {
    let (place, world) = (Place::new(), World::new(1));
    let forever = place.open::<down>(&world).await;
    forever.spawn(down(1)).id("f").await.unwrap();
    world.held().await;
    drop(forever);
    let level = r#"{"fiber":"down","at":"down","locals":{},"call":"#;
    for (levels, parked) in [(LIMIT + 1, "calls nest deeper than 200"), (100_000, "calls nest deeper than 200")] {
        let data = format!(r#"{{"at":"down","locals":{{}},"call":{}null{}}}"#, level.repeat(levels as usize), "}".repeat(levels as usize));
        place.sql().execute("UPDATE snapshots SET data = ?1", [data]).unwrap();
        let forever = place.open::<down>(&world).await;
        let error = forever.fiber::<down>("f").wait().await.unwrap_err();
        assert!(error.is_parked() && error.reason().contains(parked), "{error}");
    }
}
