//! Fiber functions that a hook runs: each is a frame in the fiber of its turn.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, RecoveryPolicy, Turn, TurnHandle, TurnState};
use forever::fiber::{Event, EventItem, EventKind, Events, FiberErrorKind, FiberState, FiberStatus};
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;
use forever::testing::{VirtualClock, World, crash_everywhere};
use forever::{BoxError, Forever};
use forever_testkit::database;
use forever_testkit::notes::Notes;
use forever_testkit::sizes;
use forever_testkit::waiting::{eventually, found, over_time, settled, soon};
use serde_json::json;
use tokio::sync::Notify;

use crate::given_up::polled;
use crate::hooks::{self, Hooks, Place, policy};

async fn says(turn: &Turn, text: impl std::fmt::Display) -> Result<(), BoxError> {
    turn.write(Chunk::text_start("t")).await?;
    turn.write(Chunk::text_delta("t", text.to_string())).await?;
    turn.write(Chunk::text_end("t")).await?;
    Ok(())
}

/// The fiber of the only turn.
async fn fiber(forever: &Forever) -> FiberStatus {
    let mut fibers = forever.fibers().await.unwrap().fibers;
    assert_eq!(fibers.len(), 1, "what a turn runs is in its own fiber");
    assert_eq!(fibers[0].name, "forever.turn");
    fibers.remove(0)
}

async fn until_it_is(forever: &Forever, state: FiberState) -> FiberStatus {
    found(&format!("the fiber {state}"), async || Some(fiber(forever).await).filter(|fiber| fiber.state == state)).await
}

/// Waits until a fiber is parked.
async fn parks(events: &mut Events) {
    let parked = async {
        while let Some(item) = events.next().await {
            if let EventItem::Event(Event { kind: EventKind::Parked { .. }, .. }) = item {
                return;
            }
        }
        panic!("the runtime was closed")
    };
    soon("a fiber that is parked", parked).await;
}

/// Waits for a turn, which must not take long.
async fn end(turn: &TurnHandle) -> forever::chat::TurnEnd {
    soon("the end of the turn", turn.wait()).await.unwrap()
}

#[fiber]
async fn counts(world: Res<World>, name: String, to: u64) -> anyhow::Result<u64> {
    let mut sum = 0;
    for n in 1..=to {
        sum += step!("count", {
            world.attempt(format!("{name} {n}"));
            n
        });
    }
    let paid =
        step!("pay", effect, on_unknown = OnUnknown::check(async |op| anyhow::Ok(paid(&world, op.id()))), |op| pay(&world, op.id(), &name));
    Ok(sum + paid)
}

type Payments = Arc<Mutex<Vec<String>>>;

fn paid(world: &World, id: &str) -> Option<u64> {
    let payments: Payments = world.shared();
    let there = payments.lock().unwrap().iter().any(|payment| payment == id);
    there.then_some(100)
}

fn pay(world: &World, id: &str, name: &str) -> u64 {
    let payments: Payments = world.shared();
    payments.lock().unwrap().push(id.to_owned());
    world.effect(format!("pay {name}"));
    100
}

/// Runs two functions one after the other.
struct Two;

impl Agent for Two {
    const CLASS: &'static str = "two";
    type State = ();
}

impl ChatAgent for Two {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let first = turn.run(counts("first".to_owned(), 2)).await?;
        let second = turn.run(counts("second".to_owned(), first - 100)).await?;
        if turn.text().is_empty() {
            says(turn, first + second).await?;
        }
        Ok(())
    }

    fn recovery() -> RecoveryPolicy {
        RecoveryPolicy::default().max_deaths(1000).max_attempts(1000)
    }
}

#[tokio::test(start_paused = true)]
async fn runs_one_after_the_other_go_on_where_they_were_after_every_death() {
    let survived = crash_everywhere(
        |world: &World| {
            let builder = Forever::builder().in_memory().clock(world.clock()).turn_batching(1, Duration::ZERO);
            builder.resource(world.clone()).fiber::<counts>().chat_agent(|_| Two)
        },
        async |forever: Forever| {
            let agent = forever.agent::<Two>("a");
            let turn = agent.save_messages([UiMessage::user("u", "go")]).id("r").await.unwrap();
            assert!(turn.wait().await.unwrap().is_completed());
            let fibers = forever.fibers().await.unwrap().fibers;
            assert_eq!(fibers.len(), 1);
            agent.messages().await.unwrap().pop().unwrap().text()
        },
    )
    .crash_randomly(1, 60)
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert_eq!(survived.outcome, (103 + 106).to_string());
}

/// Begins, and waits to be let go.
#[fiber]
async fn slow(gate: Res<Gate>) -> Result<u32, BoxError> {
    let begun = step!("begin", gate.begin());
    step!("wait", gate.0.open.notified().await);
    Ok(begun)
}

#[fiber]
async fn other() -> Result<u32, BoxError> {
    Ok(7)
}

#[fiber]
async fn wrong() -> Result<u32, BoxError> {
    step!("think", ());
    Err("it is wrong".into())
}

#[derive(Clone, Default)]
struct Gate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    open: Notify,
    begun: Mutex<u32>,
}

impl Gate {
    fn begin(&self) -> u32 {
        let mut begun = self.0.begun.lock().unwrap();
        *begun += 1;
        *begun
    }
}

/// A runtime whose only agent answers so.
async fn answers<B: Future<Output = Result<(), BoxError>> + Send + 'static>(
    hook: impl Fn(Turn, u32) -> B + Send + Sync + 'static,
) -> (Forever, TurnHandle, Gate) {
    answers_at(&VirtualClock::new(), hook).await
}

async fn answers_at<B: Future<Output = Result<(), BoxError>> + Send + 'static>(
    clock: &VirtualClock,
    hook: impl Fn(Turn, u32) -> B + Send + Sync + 'static,
) -> (Forever, TurnHandle, Gate) {
    let gate = Gate::default();
    let builder = Hooks::new(hook).builder().in_memory().clock(clock.clone()).resource(gate.clone());
    let forever = builder.fiber::<slow>().fiber::<other>().fiber::<wrong>().open().await.unwrap();
    let turn = hooks::ask(&forever.agent("a"), json!(null)).await;
    (forever, turn, gate)
}

async fn text(forever: &Forever) -> String {
    let agent: AgentHandle<hooks::Hooked> = forever.agent("a");
    hooks::last(&agent).await.text()
}

#[tokio::test(start_paused = true)]
async fn run_that_is_dropped_goes_on_and_the_next_one_of_it_is_given_its_result() {
    let gate = Arc::new(Mutex::new(None::<Gate>));
    let of_hook = Arc::clone(&gate);
    let (forever, turn, open) = answers(move |turn, _| {
        let gate = Arc::clone(&of_hook);
        async move {
            assert!(polled(turn.run(slow()), 1).await.is_none());
            let refused = turn.run(other()).await.unwrap_err();
            assert_eq!(refused.kind(), FiberErrorKind::NotStarted);
            assert!(refused.to_string().contains("its run of `slow` is still under way"), "{refused}");
            while gate.lock().unwrap().is_none() {
                settled().await;
            }
            gate.lock().unwrap().as_ref().unwrap().0.open.notify_one();
            let first = turn.run(slow()).await?;
            let second = turn.run(other()).await?;
            says(&turn, format!("{first} {second}")).await
        }
    })
    .await;
    *gate.lock().unwrap() = Some(open.clone());
    let end = end(&turn).await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!((text(&forever).await.as_str(), *open.0.begun.lock().unwrap()), ("1 7", 1));
}

#[tokio::test(start_paused = true)]
async fn run_that_is_dropped_ends_with_its_turn() {
    let (forever, turn, _gate) = answers(|turn, _| async move {
        assert!(polled(turn.run(slow()), 1).await.is_none());
        says(&turn, "enough").await
    })
    .await;
    assert!(end(&turn).await.is_completed());
    assert_eq!(text(&forever).await, "enough");
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_runs_at_once_are_refused() {
    let (forever, turn, _gate) = answers(|turn, _| async move {
        let (one, two) = futures_util::future::join(turn.run(other()), turn.run(other())).await;
        let refused = two.unwrap_err();
        assert!(refused.to_string().contains("a turn runs one fiber at a time"), "{refused}");
        says(&turn, one?).await
    })
    .await;
    let end = end(&turn).await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(text(&forever).await, "7");
}

#[tokio::test(start_paused = true)]
async fn run_that_fails_fails_the_same_way_for_the_next_attempt() {
    let clock = VirtualClock::new();
    let (forever, turn, _gate) = answers_at(&clock, |turn, before| async move {
        let failed = turn.run(wrong()).await.unwrap_err();
        if before == 0 {
            return Err(crate::scripted::Passing.into());
        }
        assert!(failed.is_failed());
        let again = turn.run(wrong()).await.unwrap_err();
        says(&turn, format!("{} {}", failed.reason(), again.reason())).await
    })
    .await;
    let end = over_time("the end of the turn", turn.wait(), || clock.advance(Duration::from_secs(1))).await.unwrap();
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(text(&forever).await, "it is wrong it is wrong");
    // Over Postgres the end of the turn is stored before that of its fiber.
    if database::is_in_postgres() {
        until_it_is(&forever, FiberState::Completed).await;
    }
    assert_eq!(fiber(&forever).await.state, FiberState::Completed);
}

#[fiber]
async fn pays(seen: Res<Notes>) -> anyhow::Result<u64> {
    let before = step!("before", {
        seen.note("before");
        1
    });
    let paid = step!("pay", effect, {
        seen.note("pays");
        std::future::pending::<u64>().await
    });
    Ok(before + paid)
}

/// A turn whose function died in an effect.
async fn parked(hooks: &Hooks, place: &Place) -> (Forever, TurnHandle, FiberStatus) {
    let seen = hooks.seen.clone();
    let open = || async {
        let builder = hooks.builder().sqlite(place.path()).clock(place.clock.clone());
        let forever = builder.resource(seen.clone()).fiber::<pays>().open().await.unwrap();
        let agent: AgentHandle<hooks::Hooked> = forever.agent("a");
        (forever, agent)
    };
    {
        let (_forever, agent) = open().await;
        let _turn = hooks::ask(&agent, json!(null)).await;
        eventually("the payment", async || seen.count("pays") > 0).await;
    }
    let (forever, agent) = open().await;
    let turn = hooks::turn(&agent).await;
    let fiber = until_it_is(&forever, FiberState::Parked).await;
    assert!(fiber.reason.as_ref().unwrap().contains("may have executed"), "{fiber:?}");
    assert_eq!(turn.status().await.unwrap().state(), TurnState::Running);
    (forever, turn, fiber)
}

fn paying() -> Hooks {
    policy(RecoveryPolicy::default().max_deaths(1).max_attempts(1));
    Hooks::new(|turn, _| async move {
        let sum = turn.run(pays()).await?;
        says(&turn, sum).await
    })
}

#[tokio::test(start_paused = true)]
async fn operation_in_doubt_parks_its_turn_which_goes_on_when_it_is_resolved() {
    let (place, hooks) = (Place::new(), paying());
    let (forever, turn, fiber) = parked(&hooks, &place).await;
    let recovered = hooks.seen.count("recovers");
    // It is looked at again at every open, and that costs it nothing.
    drop((turn, forever));
    for _ in 0..3 {
        let builder = hooks.builder().sqlite(place.path()).clock(place.clock.clone()).resource(hooks.seen.clone());
        let mut events = builder.events();
        let forever = builder.fiber::<pays>().open().await.unwrap();
        // In the database it is parked before, too.
        parks(&mut events).await;
        drop(forever);
    }
    let builder = hooks.builder().sqlite(place.path()).clock(place.clock.clone()).resource(hooks.seen.clone());
    let forever = builder.fiber::<pays>().open().await.unwrap();
    let agent: AgentHandle<hooks::Hooked> = forever.agent("a");
    let turn = hooks::turn(&agent).await;
    until_it_is(&forever, FiberState::Parked).await;
    let ops = forever.ops(&fiber.id).await.unwrap();
    let doubtful: Vec<_> = ops.iter().filter(|op| op.state == OpState::Started).collect();
    assert_eq!(doubtful.len(), 1, "{ops:?}");
    assert_eq!((doubtful[0].function.as_str(), doubtful[0].step.as_str()), ("pays", "pay"));
    forever.resolve_op(&doubtful[0].id, OpResolution::completed(&41).unwrap()).await.unwrap();
    let end = end(&turn).await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(text(&forever).await, "42");
    assert_eq!((hooks.seen.count("before"), hooks.seen.count("pays")), (1, 1));
    assert_eq!(hooks.seen.count("recovers"), recovered, "a fiber that was parked was not interrupted");
}

#[tokio::test(start_paused = true)]
async fn turn_that_is_parked_can_be_cancelled() {
    let (place, hooks) = (Place::new(), paying());
    let (forever, turn, fiber) = parked(&hooks, &place).await;
    turn.cancel("no").await.unwrap();
    assert_eq!(end(&turn).await.state(), TurnState::Aborted);
    until_it_is(&forever, FiberState::Completed).await;
    assert_eq!(forever.ops(&fiber.id).await.unwrap()[0].state, OpState::Started, "it stays in doubt");
}

#[tokio::test(start_paused = true)]
async fn turn_that_is_parked_ends_when_its_chat_is_cleared() {
    let (place, hooks) = (Place::new(), paying());
    let (forever, turn, _) = parked(&hooks, &place).await;
    let agent: AgentHandle<hooks::Hooked> = forever.agent("a");
    agent.clear().await.unwrap();
    assert_eq!(end(&turn).await.state(), TurnState::Aborted);
    until_it_is(&forever, FiberState::Completed).await;
}

#[fiber]
async fn naps() -> anyhow::Result<String> {
    sleep!("nap", Duration::from_secs(60));
    let told: String = recv!("told");
    Ok(told)
}

#[tokio::test(start_paused = true)]
async fn run_that_waits_is_waited_for_in_memory() {
    let clock = VirtualClock::new();
    let hooks = Hooks::new(|turn, before| async move {
        assert_eq!(before, 0, "the hook runs once");
        let told = turn.run(naps()).await?;
        says(&turn, told).await
    });
    let forever = hooks.builder().in_memory().clock(clock.clone()).fiber::<naps>().open().await.unwrap();
    let turn = hooks::ask(&forever.agent("a"), json!(null)).await;
    let sleeps = || clock.next_sleeper().is_some_and(|left| left <= Duration::from_secs(60));
    eventually("the nap", async || fiber(&forever).await.checkpoints > 0 && sleeps()).await;
    clock.advance(Duration::from_secs(60));
    eventually("the wait for a word", async || fiber(&forever).await.at.as_deref() == Some("told")).await;
    let there = fiber(&forever).await;
    assert_eq!(there.state, FiberState::Running);
    forever.send(&there.id, "told", "hello").await.unwrap();
    assert!(end(&turn).await.is_completed());
    assert_eq!(text(&forever).await, "hello");
}
