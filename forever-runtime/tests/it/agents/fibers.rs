//! Fibers that belong to agents. Numbers in brackets: the catalogue of cases that the behaviour is taken from.
use std::sync::{Arc, Mutex};

use forever_runtime::agent::{Agent, AgentHandle, EndedFiber, RecoveredFiber, RecoveryAction};
use forever_runtime::fiber::FiberState;
use forever_runtime::{BoxError, Builder, ErrorKind, Forever};

use super::{HOUR, MINUTE, World};
use crate::fibers::{Three, three};
use crate::support::{Place, Probe};

/// Writes into the probe's log what it hears of fibers.
struct Boss {
    me: AgentHandle<Boss>,
    probe: Probe,
    /// What becomes of fibers; resumed if nothing is said.
    rule: Rule,
}

type Rule = Arc<Mutex<Option<fn(&RecoveredFiber) -> Result<RecoveryAction, BoxError>>>>;

impl Agent for Boss {
    const CLASS: &'static str = "boss";
    type State = ();

    async fn on_start(&self) -> Result<(), BoxError> {
        Ok(self.probe.step(&format!("{} starts", self.me.name())).await.map(drop)?)
    }

    async fn on_fibers_recovered(&self, mut fibers: Vec<RecoveredFiber>) -> Result<Vec<RecoveredFiber>, BoxError> {
        let keys: Vec<_> = fibers.iter().filter_map(RecoveredFiber::key).collect();
        self.probe.step(&format!("{} orders {}", self.me.name(), keys.join(" "))).await?;
        fibers.reverse();
        Ok(fibers)
    }

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        self.probe.step(&format!("{} decides {}", self.me.name(), fiber.key().unwrap_or_default())).await?;
        let rule = *self.rule.lock().unwrap();
        rule.map_or(Ok(RecoveryAction::Resume), |rule| rule(fiber))
    }

    async fn on_fiber_completed(&self, fiber: &EndedFiber) -> Result<(), BoxError> {
        self.probe.note(format!("{} hears that {} has {}", self.me.name(), fiber.id(), fiber.state()));
        if fiber.state() == FiberState::Completed && fiber.result::<u64>()? == 13 {
            return Err("an unlucky number".into());
        }
        Ok(())
    }
}

impl Drop for Boss {
    fn drop(&mut self) {
        self.probe.note(format!("{} leaves", self.me.name()));
    }
}

fn builder(place: &Place, probe: &Probe, rule: &Rule) -> Builder {
    let (of_agents, rule) = (probe.clone(), Arc::clone(rule));
    place.builder(probe).agent(move |me| Boss { me, probe: of_agents.clone(), rule: Arc::clone(&rule) })
}

struct Office {
    place: Place,
    probe: Probe,
    rule: Rule,
}

impl Office {
    fn new() -> Self {
        Office { place: Place::new(), probe: Probe::default(), rule: Rule::default() }
    }

    fn builder(&self) -> Builder {
        builder(&self.place, &self.probe, &self.rule)
    }

    /// Leaves fibers of one agent behind in their second step, as a process that dies does.
    async fn leave_behind(&self, labels: &[&str]) {
        let forever = self.builder().open().await.unwrap();
        for label in labels {
            self.probe.hold(&format!("{label}.two"));
            forever.agent::<Boss>("b").spawn(three(label)).id(*label).key(*label).await.unwrap();
            self.probe.reached(&format!("{label}.two")).await;
        }
        drop(forever);
        self.probe.clear();
    }
}

/// [24]
#[tokio::test(start_paused = true)]
async fn on_start_is_over_before_the_agent_hears_of_its_fibers_oldest_first() {
    let office = Office::new();
    office.leave_behind(&["x", "y", "z"]).await;
    let gate = office.probe.hold("b starts");
    let forever = office.builder().open().await.unwrap();
    office.probe.reached("b starts").await;
    assert_eq!(office.probe.log(), ["b starts"]);
    gate.add_permits(1);
    for label in ["x", "y", "z"] {
        assert_eq!(forever.fiber_by_key::<Three>(label).await.unwrap().wait().await.unwrap(), 17);
    }
    let log = office.probe.log();
    assert_eq!(log[..2], ["b starts", "b orders x y z"]);
    let decided: Vec<_> = log.iter().filter(|line| line.contains("decides")).collect();
    assert_eq!(decided, ["b decides z", "b decides y", "b decides x"], "in the order that the hook has given");
}

#[tokio::test(start_paused = true)]
async fn a_hook_says_what_becomes_of_a_fiber() {
    let office = Office::new();
    office.leave_behind(&["resume", "restart", "skip", "complete", "fail"]).await;
    *office.rule.lock().unwrap() = Some(|fiber| {
        assert_eq!((fiber.at(), fiber.deaths(), fiber.is_closure()), (Some("one"), 1, false));
        Ok(match fiber.key().unwrap() {
            "restart" => RecoveryAction::Restart,
            "skip" => RecoveryAction::Skip,
            "complete" => RecoveryAction::complete(&5_u64)?,
            "fail" => RecoveryAction::fail("not worth it"),
            _ => RecoveryAction::Resume,
        })
    });
    let forever = office.builder().open().await.unwrap();
    let handle = |key: &'static str| forever.fiber::<Three>(key);
    assert_eq!(handle("resume").wait().await.unwrap(), 32);
    assert_eq!(handle("restart").wait().await.unwrap(), 35);
    assert_eq!(handle("complete").wait().await.unwrap(), 5);
    assert_eq!(handle("fail").wait().await.unwrap_err().reason(), "not worth it");
    assert!(handle("skip").wait().await.unwrap_err().is_interrupted());
    assert_eq!((office.probe.times("resume.one"), office.probe.times("restart.one")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_agent_hears_of_the_end_of_its_fibers_and_a_failure_of_its_hook_harms_nobody() {
    let office = Office::new();
    let forever = office.builder().open().await.unwrap();
    let agent = forever.agent::<Boss>("b");
    office.probe.plan("bad.two", crate::support::Plan::Fail("no".into()));
    agent.spawn(three("good")).id("good").await.unwrap().wait().await.unwrap();
    agent.spawn(three("bad")).id("bad").await.unwrap().wait().await.unwrap_err();
    office.probe.reached("b hears that good has completed").await;
    office.probe.reached("b hears that bad has failed").await;
    let unowned = forever.spawn(three("alone")).id("alone").await.unwrap();
    unowned.wait().await.unwrap();
    assert_eq!(office.probe.times("b hears that alone has completed"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_hears_of_a_fiber_that_ends_while_the_runtime_closes() {
    let office = Office::new();
    let forever = office.builder().open().await.unwrap();
    let gate = office.probe.hold("late.end");
    forever.agent::<Boss>("b").spawn(three("late")).id("late").await.unwrap();
    office.probe.reached("late.end").await;
    let closing = tokio::spawn(forever.close().into_future());
    forever.closing().await;
    gate.add_permits(1);
    closing.await.unwrap().unwrap();
    assert_eq!(office.probe.times("b hears that late has completed"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_running_fiber_keeps_its_agent_awake() {
    let world = World::new();
    let (probe, rule) = (world.probe.clone(), Rule::default());
    let gate = probe.hold("a.two");
    let (of_agents, of_rule) = (probe.clone(), Arc::clone(&rule));
    let forever = world
        .builder()
        .resource(probe.clone())
        .fiber::<Three>()
        .agent(move |me| Boss { me, probe: of_agents.clone(), rule: Arc::clone(&of_rule) })
        .open()
        .await
        .unwrap();
    let agent = forever.agent::<Boss>("b");
    let awake = agent.wake().await.unwrap();
    let handle = awake.me.spawn(three("a")).await.unwrap();
    drop(awake);
    probe.reached("a.two").await;
    world.pass(&forever, HOUR).await;
    assert!(agent.is_awake());
    gate.add_permits(1);
    handle.wait().await.unwrap();
    probe.reached(&format!("b hears that {} has completed", handle.id())).await;
    // The task that has told it may still hold it.
    while agent.is_awake() {
        world.pass(&forever, 2 * MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_fiber_of_an_agent_hands_over_its_stash() {
    let office = Office::new();
    let forever = office.builder().open().await.unwrap();
    let probe = office.probe.clone();
    let running = forever.agent::<Boss>("b").spawn_closure("import", move |ctx| async move {
        ctx.stash(&41).await?;
        probe.note("stashed");
        std::future::pending::<Result<u64, forever_runtime::Error>>().await
    });
    let handle = running.key("import").start().await.unwrap();
    office.probe.reached("stashed").await;
    drop((handle, forever));
    *office.rule.lock().unwrap() = Some(|fiber| {
        assert!(fiber.is_closure());
        Ok(RecoveryAction::complete(&(fiber.snapshot::<u64>()?.unwrap_or_default() + 1))?)
    });
    let forever = office.builder().open().await.unwrap();
    loop {
        let page = forever.fibers().state(FiberState::Completed).await.unwrap();
        if let Some(done) = page.fibers.first() {
            assert_eq!(done.key.as_deref(), Some("import"));
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(office.place.text("SELECT result FROM fibers").as_deref(), Some("42"));
}

#[tokio::test(start_paused = true)]
async fn a_fiber_of_an_agent_that_cannot_be_is_refused() {
    let forever = Forever::builder().in_memory().resource(Probe::default()).fiber::<Three>().open().await.unwrap();
    let error = forever.agent::<Boss>("b").spawn(three("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert!(error.to_string().contains("agent class `boss` is not registered"), "{error}");
    let office = Office::new();
    let forever = office.builder().open().await.unwrap();
    let error = forever.agent::<Boss>("").spawn(three("a")).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to start fiber `three`: the name of its agent must not be empty");
}
