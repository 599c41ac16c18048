//! When agents come into memory, and when they leave it.
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forever_runtime::agent::Agent;
use forever_runtime::{ErrorKind, Forever};
use forever_testkit::waiting::settled;

use super::{Clerk, MINUTE, SECOND, World};
use crate::support::Plan;

#[tokio::test(start_paused = true)]
async fn a_call_wakes_an_agent_and_it_leaves_memory_when_it_has_been_idle_for_long_enough() {
    let world = World::new();
    let forever = world.builder().idle_timeout(10 * SECOND).open().await.unwrap();
    let ada = forever.agent::<Clerk>("ada");
    assert!(!ada.is_awake());
    let awake = ada.wake().await.unwrap();
    assert_eq!(awake.me.name(), "ada");
    world.pass(&forever, MINUTE).await;
    assert!(ada.is_awake(), "a request keeps it");
    drop(awake);
    world.pass(&forever, 9 * SECOND).await;
    drop(ada.wake().await.unwrap());
    world.pass(&forever, 9 * SECOND).await;
    assert!(ada.is_awake(), "a request in between begins the time anew");
    assert_eq!(world.probe.log(), ["ada starts"]);
    world.pass(&forever, SECOND).await;
    assert!(!ada.is_awake());
    assert_eq!(world.probe.log(), ["ada starts", "ada leaves"]);
    drop(ada.wake().await.unwrap());
    assert_eq!(world.probe.log(), ["ada starts", "ada leaves", "ada starts"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_leaves_after_ninety_seconds_unless_told_otherwise() {
    let world = World::new();
    let forever = world.open().await;
    drop(forever.agent::<Clerk>("a").wake().await.unwrap());
    world.pass(&forever, 89 * SECOND).await;
    assert!(forever.agent::<Clerk>("a").is_awake());
    world.pass(&forever, SECOND).await;
    assert!(!forever.agent::<Clerk>("a").is_awake());
}

#[tokio::test(start_paused = true)]
async fn on_start_runs_once_however_many_wake_the_agent_together() {
    let world = World::new();
    let gate = world.probe.hold("a starts");
    let forever = world.open().await;
    let mut wakes = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let agent = forever.agent::<Clerk>("a");
        wakes.spawn(async move { agent.wake().await.map(drop) });
    }
    world.probe.reached("a starts").await;
    gate.add_permits(50);
    while let Some(woken) = wakes.join_next().await {
        woken.unwrap().unwrap();
    }
    assert_eq!(world.probe.log(), ["a starts"]);
}

#[tokio::test(start_paused = true)]
async fn an_on_start_that_fails_fails_the_wake_and_the_next_wake_tries_again() {
    let world = World::new();
    world.probe.plan("a starts", Plan::Fail("no coffee".into()));
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let error = agent.wake().await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Agent, "failed to wake agent `clerk/a`"));
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no coffee");
    assert!(!agent.is_awake());
    world.probe.plan("a starts", Plan::Panic("spilled".into()));
    let error = agent.wake().await.unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "panicked: spilled");
    world.probe.clear();
    agent.wake().await.unwrap();
    assert_eq!(world.probe.log(), ["a starts"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_does_not_stop_the_waking() {
    let world = World::new();
    let gate = world.probe.hold("a starts");
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let gave_up = tokio::time::timeout(Duration::from_millis(1), agent.wake()).await;
    assert!(gave_up.is_err());
    world.probe.reached("a starts").await;
    gate.add_permits(1);
    agent.wake().await.unwrap();
    assert_eq!(world.probe.log(), ["a starts"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_wakes_itself_while_it_starts_is_told_so() {
    let world = World::new();
    world.on_start(|me| async move {
        me.wake().await?;
        Ok(())
    });
    let forever = world.open().await;
    let error = forever.agent::<Clerk>("a").wake().await.unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(why, "agent `clerk/a` cannot be woken by its own `on_start`, which would wait for itself");
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_keep_itself_alive_and_schedule_while_it_starts() {
    let world = World::new();
    world.on_start(|me| async move {
        me.set_state(&vec![me.name().to_owned()]).await?;
        me.schedule("0 * * * *", "hourly", ()).await?;
        let guard = me.keep_alive().await?;
        // Held by nobody but a task of its own.
        std::mem::forget(guard);
        Ok(())
    });
    let forever = world.open().await;
    drop(forever.agent::<Clerk>("a").wake().await.unwrap());
    world.pass(&forever, 10 * MINUTE).await;
    assert!(forever.agent::<Clerk>("a").is_awake());
    assert_eq!(forever.agent::<Clerk>("a").state().await.unwrap(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn names_and_classes_that_cannot_be_are_errors_at_first_use() {
    struct Unknown;
    impl Agent for Unknown {
        const CLASS: &'static str = "unknown";
        type State = ();
    }
    struct Impostor;
    impl Agent for Impostor {
        const CLASS: &'static str = "clerk";
        type State = Vec<String>;
    }
    let forever = World::new().open().await;
    for (name, why) in [
        (String::new(), "the name of an agent `clerk` must not be empty"),
        ("x".repeat(257), "the name of an agent `clerk` must not be longer than 256 bytes, and has 257"),
    ] {
        let agent = forever.agent::<Clerk>(name);
        for error in [agent.wake().await.unwrap_err(), agent.state().await.unwrap_err(), agent.schedules().await.unwrap_err()] {
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Value, why));
        }
    }
    forever.agent::<Clerk>("x".repeat(256)).wake().await.unwrap();
    forever.agent::<Clerk>("name/with strange\ncharacters\0").wake().await.unwrap();
    let error = forever.agent::<Unknown>("a").wake().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotRegistered);
    assert_eq!(error.to_string(), "agent class `unknown` is not registered: add it with `.agent(..)`");
    let error = forever.agent::<Impostor>("a").wake().await.unwrap_err();
    assert!(error.to_string().starts_with("agent class `clerk` is registered for another type than `"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn classes_that_cannot_be_told_apart_or_named_are_setup_errors() {
    macro_rules! class {
        ($name:ident, $class:literal) => {
            struct $name;
            impl Agent for $name {
                const CLASS: &'static str = $class;
                type State = ();
            }
        };
    }
    class!(One, "same");
    class!(Two, "same");
    class!(Slash, "a/b");
    class!(Empty, "");
    for (builder, why) in [
        (Forever::builder().agent(|_| One).agent(|_| Two), "two agent classes are called `same`"),
        (Forever::builder().agent(|_| Slash), "the name of an agent class must not have a `/`: `a/b`"),
        (Forever::builder().agent(|_| Empty), "the name of an agent class must not be empty"),
    ] {
        let error = builder.in_memory().open().await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Setup, why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_inside_an_agent_does_not_keep_the_runtime_open() {
    let world = World::new();
    let forever = world.open().await;
    let awake = forever.agent::<Clerk>("a").wake().await.unwrap();
    let me = awake.me.clone();
    let guard = me.keep_alive().await.unwrap();
    drop((awake, forever));
    assert!(me.wake().await.unwrap_err().is_closed());
    assert!(me.state().await.unwrap_err().is_closed());
    assert!(me.set_state(&vec![]).await.unwrap_err().is_closed());
    assert!(!me.is_awake());
    drop((guard, me));
    world.probe.reached("a leaves").await;
    assert_eq!(world.probe.log(), ["a starts", "a leaves"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_holds_guards_of_itself_goes_with_its_runtime() {
    use forever_runtime::BoxError;
    use forever_runtime::agent::{AgentHandle, KeepAlive};
    static LEFT: AtomicU32 = AtomicU32::new(0);
    struct Selfish {
        me: AgentHandle<Selfish>,
        guard: std::sync::Mutex<Option<KeepAlive>>,
    }
    impl Agent for Selfish {
        const CLASS: &'static str = "selfish";
        type State = ();
        async fn on_start(&self) -> Result<(), BoxError> {
            *self.guard.lock().unwrap() = Some(self.me.keep_alive().await?);
            Ok(())
        }
    }
    impl Drop for Selfish {
        fn drop(&mut self) {
            LEFT.fetch_add(1, Ordering::Relaxed);
        }
    }
    let forever = Forever::builder().in_memory().agent(|me| Selfish { me, guard: None.into() }).open().await.unwrap();
    drop(forever.agent::<Selfish>("a").wake().await.unwrap());
    forever.close().await.unwrap();
    drop(forever);
    // The tasks that were told to stop may still be about to.
    while LEFT.load(Ordering::Relaxed) == 0 {
        settled().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_runtime_wakes_nobody() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    forever.close().await.unwrap();
    assert!(agent.wake().await.unwrap_err().is_closed());
    assert!(agent.connect().await.unwrap_err().is_closed());
    assert!(agent.keep_alive().await.unwrap_err().is_closed());
    assert!(agent.schedule(SECOND, "x", ()).await.unwrap_err().is_closed());
    assert!(agent.schedules().await.unwrap_err().is_closed());
    assert!(agent.cancel_schedule("x").await.unwrap_err().is_closed());
    assert!(agent.state().await.unwrap_err().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_agents_come_and_go() {
    let world = World::new();
    let forever = world.open().await;
    let mut held = Vec::new();
    for n in 0..1000 {
        held.push(forever.agent::<Clerk>(format!("a{n}")).wake().await.unwrap());
    }
    let starts = || world.probe.log().iter().filter(|line| line.ends_with("starts")).count();
    let leaves = || world.probe.log().iter().filter(|line| line.ends_with("leaves")).count();
    world.pass(&forever, 100 * SECOND).await;
    assert_eq!((starts(), leaves()), (1000, 0));
    held.truncate(500);
    world.pass(&forever, 100 * SECOND).await;
    assert_eq!(leaves(), 500);
    drop(held);
    world.pass(&forever, 100 * SECOND).await;
    assert_eq!((starts(), leaves()), (1000, 1000));
}
