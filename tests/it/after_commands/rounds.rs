//! The rounds of a test of what is answered after a command: once it has returned `Ok`, no `wait` and no `status` says what
//! the fiber was before, also while earlier waits of the same fiber are held.
//!
//! Each round brings a fiber into a state, holds waits that have begun before, gives a command, and
//! asks at once. Every activation of a fiber leaves another result, reason or value, so an older
//! answer is told from the new one. `FOREVER_AFTER_COMMANDS` is the number of rounds of each
//! combination.
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, RecoveredFiber, RecoveryAction};
use forever::fiber::{FiberError, FiberFilter, FiberHandle, FiberState, Resolution};
use forever::ops::OpResolution;
use forever::prelude::*;
use forever::{BoxError, Builder, Retention};
use forever_testkit::waiting::{eventually, soon};
use tokio::sync::Notify;

/// What the activations of the fibers do: each takes its part from here.
#[derive(Clone, Default)]
pub(crate) struct World {
    attempts: Arc<Mutex<BTreeMap<u64, u32>>>,
    go: Arc<Mutex<BTreeMap<u64, Arc<Notify>>>>,
}

impl World {
    /// The number of this attempt of a fiber, from 1.
    fn attempt(&self, fiber: u64) -> u32 {
        let mut attempts = self.attempts.lock().unwrap();
        let attempt = attempts.entry(fiber).or_default();
        *attempt += 1;
        *attempt
    }

    /// The first attempt goes on when it is told, and then fails if it is to.
    async fn try_it(&self, fiber: u64, how: &str) -> anyhow::Result<u64> {
        let attempt = self.attempt(fiber);
        if attempt == 1 {
            self.go(fiber).notified().await;
            if how == "failed" {
                anyhow::bail!("attempt {attempt}");
            }
        }
        Ok(u64::from(attempt))
    }

    /// Whether a fiber has begun to try.
    fn has_tried(&self, fiber: u64) -> bool {
        self.attempts.lock().unwrap().contains_key(&fiber)
    }

    /// An answer that comes late: not in the first activation.
    fn pay(&self, fiber: u64) -> Option<u64> {
        let attempt = self.attempt(fiber);
        (attempt > 2).then_some(u64::from(attempt))
    }

    /// Rung when the waits that are to be held have begun.
    fn go(&self, fiber: u64) -> Arc<Notify> {
        Arc::clone(self.go.lock().unwrap().entry(fiber).or_default())
    }
}

/// Stops as `how` says in its first attempt, and completes in the next.
#[fiber]
pub(crate) async fn stops(world: Res<World>, fiber: u64, how: String) -> anyhow::Result<u64> {
    let mut value: u64 = step!("begin", async { 10 }.await);
    if how == "waiting" || how == "unreadable" {
        // A computed topic: the type of a message is known when it is received.
        let more: u64 = recv!("more".to_owned());
        value += more;
    }
    let attempt = step!("try", world.try_it(fiber, &how).await?);
    if how == "parked" {
        value += step!("pay", effect, |op| match world.pay(fiber) {
            Some(paid) => paid,
            None => Err(op.unknown(anyhow::anyhow!("no answer")))?,
        });
    }
    Ok(value + attempt)
}

/// Leaves what was interrupted as it is.
struct Keeper;

impl Agent for Keeper {
    const CLASS: &'static str = "keeper";
    type State = ();

    async fn on_fiber_recovered(&self, _: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        Ok(RecoveryAction::Skip)
    }
}

/// A runtime with all that the rounds need.
pub(crate) fn builder(world: &World) -> Builder {
    Forever::builder()
        .retention(Retention::forever())
        .cancel_grace(Duration::ZERO)
        .resource(world.clone())
        .agent(|_: AgentHandle<Keeper>| Keeper)
        .fiber::<stops>()
}

/// A command of which the answer depends on nothing but the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Command {
    Resume,
    Restart,
    EditAndResume,
    DiscardAndResume,
    Cancel,
    ResolveAsCompleted,
    ResolveAsFailed,
    ResolveOpAsCompleted,
    ResolveOpAsNotExecuted,
    ResolveOpAsFailed,
    Send,
    Delete,
}

/// The states, and the commands that each allows.
const COMBINATIONS: [(&str, &[Command]); 5] = [
    ("failed", &[Command::Resume, Command::Restart, Command::EditAndResume, Command::Delete]),
    ("cancelled", &[Command::Restart, Command::Delete]),
    (
        "parked",
        &[
            Command::Cancel,
            Command::ResolveAsCompleted,
            Command::ResolveAsFailed,
            Command::ResolveOpAsCompleted,
            Command::ResolveOpAsNotExecuted,
            Command::ResolveOpAsFailed,
        ],
    ),
    ("unreadable", &[Command::DiscardAndResume, Command::Cancel]),
    ("waiting", &[Command::Send, Command::Cancel]),
];

/// The state of fibers that a dead process has left, and the commands that it allows.
const INTERRUPTED: (&str, &[Command]) =
    ("interrupted", &[Command::Resume, Command::Restart, Command::Cancel, Command::ResolveAsCompleted, Command::ResolveAsFailed]);

/// Waits of the fiber that are there while the command is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    None,
    /// Polled before the fiber stopped, and not since.
    Still(usize),
    /// Waits in a task.
    Driven,
}

const HELD: [Held; 4] = [Held::None, Held::Still(1), Held::Still(3), Held::Driven];

/// How often each combination was met.
#[derive(Default)]
pub(crate) struct Met(BTreeMap<(&'static str, Command, Held), u32>);

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|((state, command, held), times)| writeln!(f, "{times:6} {state:12} {command:?}, held: {held:?}"))
    }
}

type Wait = Pin<Box<dyn Future<Output = Result<u64, FiberError>> + Send>>;

fn wait_of(handle: &FiberHandle<u64>) -> Wait {
    let handle = handle.clone();
    Box::pin(async move { handle.wait().await })
}

/// Polls a wait once, which must not have its answer yet.
async fn begun(mut wait: Wait) -> Wait {
    let pending = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx).is_pending())).await;
    assert!(pending, "a wait of a fiber that runs has an answer");
    wait
}

/// Until a fiber stands so. Its row says it before its activation has gone, as commands find it.
async fn stands(handle: &FiberHandle<u64>, wanted: FiberState) {
    eventually(&format!("{} {wanted}", handle.id()), async || handle.status().await.unwrap().state == wanted).await;
}

async fn command(forever: &Forever, id: &str, command: Command) {
    commanded(forever, id, command).await.unwrap_or_else(|error| panic!("{command:?} of {id}: {error}"));
}

/// Retried while the hook of its agent decides about the fiber, which counts as running until then.
async fn command_after_its_hook(forever: &Forever, id: &str, command: Command) {
    let is_given = async || match commanded(forever, id, command).await {
        Ok(()) => true,
        Err(error) if error.to_string().contains("it is running") => false,
        Err(error) => panic!("{command:?} of {id}: {error}"),
    };
    eventually(&format!("{command:?} of {id}"), is_given).await;
}

async fn commanded(forever: &Forever, id: &str, command: Command) -> forever::Result<()> {
    let op = async || forever.ops(id).await.unwrap().into_iter().find(|op| op.step == "pay").unwrap().id;
    match command {
        Command::Resume => forever.resume(id).await,
        Command::Restart => forever.restart(id).await,
        Command::EditAndResume => {
            forever.edit(id, |locals| locals.set("value", &100)).await.unwrap();
            forever.resume(id).await
        }
        Command::DiscardAndResume => {
            let unreadable = forever.messages(id).await.unwrap().remove(0).number;
            forever.discard_message(id, unreadable).await.unwrap();
            forever.send(id, "more", &1).await.unwrap();
            forever.resume(id).await
        }
        Command::Cancel => forever.cancel(id, "a person").await,
        Command::ResolveAsCompleted => forever.resolve(id, Resolution::completed(&7).unwrap()).await,
        Command::ResolveAsFailed => forever.resolve(id, Resolution::failed("a person")).await,
        Command::ResolveOpAsCompleted => forever.resolve_op(&op().await, OpResolution::completed(&1000).unwrap()).await,
        Command::ResolveOpAsNotExecuted => forever.resolve_op(&op().await, OpResolution::NotExecuted).await,
        Command::ResolveOpAsFailed => forever.resolve_op(&op().await, OpResolution::Failed("a person".into())).await,
        Command::Send => forever.send(id, "more", &1).await,
        Command::Delete => forever.delete(FiberFilter::new().key(id).forget_keys()).await.map(|deleted| assert_eq!(deleted, 1)),
    }
}

/// What a wait gives that begins after the command.
fn answer(state: &str, command: Command) -> Result<u64, String> {
    match (state, command) {
        ("failed" | "interrupted", Command::Resume | Command::Restart)
        | ("cancelled", Command::Restart)
        | ("waiting", Command::Send)
        | ("unreadable", Command::DiscardAndResume) => Ok(12),
        ("failed", Command::EditAndResume) => Ok(102),
        // Its effect is carried out again.
        ("parked", Command::ResolveOpAsNotExecuted) => Ok(14),
        ("parked", Command::ResolveOpAsCompleted) => Ok(1011),
        (_, Command::Cancel) => Err("was cancelled: a person".into()),
        (_, Command::ResolveAsCompleted) => Ok(7),
        (_, Command::ResolveAsFailed | Command::ResolveOpAsFailed) => Err("a person".into()),
        (_, Command::Delete) => Err("there is no fiber".into()),
        other => unreachable!("{other:?}"),
    }
}

/// Gives every command in every state, `rounds` times: `commands` gives them, and `waits` runs the
/// fibers and waits for them.
pub(crate) async fn every_combination(waits: &Forever, commands: &Forever, world: &World, met: &mut Met, rounds: u32) {
    for (state, allowed) in COMBINATIONS {
        for (command, held) in allowed.iter().flat_map(|command| HELD.map(|held| (*command, held))) {
            for _ in 0..rounds {
                let number = u64::from(met.0.values().sum::<u32>());
                *met.0.entry((state, command, held)).or_default() += 1;
                let id = format!("f{number}");
                let handle = waits.spawn(stops(number, state.into())).id(&id).key(&id).await.unwrap();
                round(waits, commands, world, &handle, (state, command, held), number).await;
            }
        }
    }
}

async fn round(
    waits: &Forever,
    commands: &Forever,
    world: &World,
    handle: &FiberHandle<u64>,
    (name, given, held): (&'static str, Command, Held),
    number: u64,
) {
    let what = format!("{given:?} of {name} {}, held: {held:?}", handle.id());
    let mut still = Vec::new();
    let mut driven = None;
    match held {
        Held::None => {}
        Held::Still(waits) => {
            for _ in 0..waits {
                still.push(begun(wait_of(handle)).await);
            }
        }
        Held::Driven => driven = Some(tokio::spawn(wait_of(handle))),
    }
    if matches!(name, "waiting" | "unreadable") {
        world.go(number).notify_one();
    }
    match name {
        "waiting" => stands(handle, FiberState::Waiting).await,
        "unreadable" => {
            waits.send(handle.id(), "more", "text").await.unwrap();
            stands(handle, FiberState::Parked).await;
        }
        "cancelled" => {
            eventually("its first attempt", async || world.has_tried(number)).await;
            waits.cancel(handle.id(), "attempt 1").await.unwrap();
            stands(handle, FiberState::Cancelled).await;
        }
        name => {
            world.go(number).notify_one();
            stands(handle, if name == "failed" { FiberState::Failed } else { FiberState::Parked }).await;
        }
    }
    command(commands, handle.id(), given).await;
    check(&what, handle, &commands.fiber::<stops>(handle.id()), (name, given)).await;
    // Those that were held say no older state either.
    for wait in still {
        let said = soon(&what, wait).await;
        expect(&format!("{what}: one that was held"), &said, (name, given));
    }
    if let Some(driven) = driven {
        let said = soon(&what, driven).await.unwrap();
        // It may have had its answer before the command.
        let before = said.as_ref().is_err_and(|error| error.reason().contains("attempt 1") || error.is_parked());
        if !before {
            expect(&format!("{what}: one that was driven"), &said, (name, given));
        }
    }
}

/// Asks at once what has become of the fiber, here and where the command was given.
async fn check(what: &str, handle: &FiberHandle<u64>, there: &FiberHandle<u64>, (name, given): (&str, Command)) {
    let before = match name {
        "failed" => FiberState::Failed,
        "cancelled" => FiberState::Cancelled,
        "parked" | "unreadable" => FiberState::Parked,
        "interrupted" => FiberState::Interrupted,
        _ => FiberState::Waiting,
    };
    for handle in [handle, there] {
        if let (Ok(status), true) = (handle.status().await, given != Command::Send) {
            assert_ne!(status.state, before, "{what}: the status is the older one, {status:?}");
        }
        let said = soon(what, handle.wait()).await;
        expect(what, &said, (name, given));
    }
}

fn expect(what: &str, said: &Result<u64, FiberError>, (name, given): (&str, Command)) {
    match (said, answer(name, given)) {
        (Ok(said), Ok(value)) => assert_eq!(*said, value, "{what}"),
        (Err(error), Err(text)) => assert!(error.to_string().contains(&text), "{what}: {error}"),
        (said, wanted) => panic!("{what}: {said:?} and not {wanted:?}"),
    }
}

/// Leaves fibers of an agent under way, as a process that dies does.
pub(crate) async fn leave_interrupted(forever: &Forever, world: &World) {
    for (left, _) in (0..).zip(INTERRUPTED.1.iter().flat_map(|_| HELD)) {
        let id = format!("i{left}");
        forever.spawn(stops(1_000_000 + left, "interrupted".into())).id(&id).agent(Keeper::CLASS, "one").await.unwrap();
        eventually("its first attempt", async || world.has_tried(1_000_000 + left)).await;
    }
}

/// Gives every command to the fibers that [`leave_interrupted`] has left.
pub(crate) async fn every_command_to_interrupted(waits: &Forever, commands: &Forever, met: &mut Met) {
    let (state, allowed) = INTERRUPTED;
    for (number, (given, held)) in allowed.iter().flat_map(|command| HELD.map(|held| (*command, held))).enumerate() {
        *met.0.entry((state, given, held)).or_default() += 1;
        let handle = waits.fiber::<stops>(&format!("i{number}"));
        stands(&handle, FiberState::Interrupted).await;
        let what = format!("{given:?} of {state} {}, held: {held:?}", handle.id());
        let still: Vec<Wait> = if let Held::Still(many) = held { (0..many).map(|_| wait_of(&handle)).collect() } else { Vec::new() };
        command_after_its_hook(commands, handle.id(), given).await;
        check(&what, &handle, &commands.fiber::<stops>(handle.id()), (state, given)).await;
        for wait in still {
            expect(&what, &soon(&what, wait).await, (state, given));
        }
    }
}

pub(crate) fn rounds() -> u32 {
    std::env::var("FOREVER_AFTER_COMMANDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}
