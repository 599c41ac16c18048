//! Keep-alive: guards and the heartbeat. Numbers in brackets: the catalogue of cases that the behaviour is taken from.
use std::time::Duration;

use super::{Clerk, HOUR, MINUTE, SECOND, World};
use crate::support::Plan;

/// [43]
#[tokio::test(start_paused = true)]
async fn releasing_a_guard_twice_releases_it_once() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let mut first = agent.keep_alive().await.unwrap();
    let second = agent.keep_alive().await.unwrap();
    for _ in 0..3 {
        first.release().await.unwrap();
    }
    drop(first);
    world.pass(&forever, HOUR).await;
    assert!(agent.is_awake(), "the second guard still holds");
    assert_eq!(world.heartbeats(), 1);
    drop(second);
    world.until("SELECT count(*) FROM agents", 0).await;
    world.pass(&forever, HOUR).await;
    assert!(!agent.is_awake());
}

/// [44]
#[tokio::test(start_paused = true)]
async fn keep_alive_while_cleans_up_when_the_work_fails_or_panics() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let inside = agent.clone();
    let seen = world.clone();
    let failed: Result<(), &str> = agent
        .keep_alive_while(async {
            assert_eq!(seen.heartbeats(), 1);
            assert!(inside.is_awake());
            Err("no")
        })
        .await
        .unwrap();
    assert_eq!(failed, Err("no"));
    assert_eq!(world.heartbeats(), 0);

    let inside = agent.clone();
    let panicked = tokio::spawn(async move { inside.keep_alive_while(async { panic!("on purpose") }).await }).await;
    assert!(panicked.unwrap_err().is_panic());
    world.until("SELECT count(*) FROM agents", 0).await;
    assert_eq!(agent.keep_alive_while(async { 5 }).await.unwrap(), 5);
    world.pass(&forever, HOUR).await;
    assert!(!agent.is_awake());
}

/// [45]
#[tokio::test(start_paused = true)]
async fn guards_are_counted_and_never_below_none() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    for _ in 0..5 {
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(agent.keep_alive().await.unwrap());
        }
        for guard in &mut guards {
            guard.release().await.unwrap();
            guard.release().await.unwrap();
        }
        assert_eq!(world.heartbeats(), 0);
    }
    let guard = agent.keep_alive().await.unwrap();
    assert_eq!(world.heartbeats(), 1);
    world.pass(&forever, HOUR).await;
    assert!(agent.is_awake());
    drop(guard);
}

/// [46]
#[tokio::test(start_paused = true)]
async fn the_last_release_clears_the_heartbeat_so_that_the_agent_can_leave() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.set_state(&vec!["kept".to_owned()]).await.unwrap();
    let mut guard = agent.keep_alive().await.unwrap();
    world.pass(&forever, 10 * MINUTE).await;
    guard.release().await.unwrap();
    assert_eq!(world.place.number("SELECT count(*) FROM agents WHERE heartbeat_ms IS NULL AND state IS NOT NULL"), 1);
    world.pass(&forever, 90 * SECOND).await;
    assert!(!agent.is_awake());
    drop((forever, agent, guard));
    // Nothing is left that would wake it.
    let forever = world.open().await;
    world.pass(&forever, HOUR).await;
    assert_eq!(world.probe.times("a starts"), 1);
}

/// [47]
#[tokio::test(start_paused = true)]
async fn without_a_guard_the_agent_wakes_at_its_next_schedule_and_not_before() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule(HOUR, "tea", ()).await.unwrap();
    let mut guard = agent.keep_alive().await.unwrap();
    world.pass(&forever, MINUTE).await;
    guard.release().await.unwrap();
    world.pass(&forever, 58 * MINUTE).await;
    assert!(!agent.is_awake());
    assert_eq!(world.probe.log(), ["a starts", "a leaves"]);
    world.pass(&forever, MINUTE).await;
    world.probe.reached("a: tea").await;
    assert_eq!(world.probe.log(), ["a starts", "a leaves", "a starts", "a: tea"]);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_is_renewed_while_a_guard_is_held() {
    let world = World::new();
    let forever = world.builder().keep_alive_interval(20 * SECOND).open().await.unwrap();
    let agent = forever.agent::<Clerk>("a");
    let beat = || world.place.number("SELECT heartbeat_ms FROM agents WHERE name = 'a'");
    let guard = agent.keep_alive().await.unwrap();
    let first = beat();
    world.pass(&forever, 19 * SECOND).await;
    assert_eq!(beat(), first);
    for n in 1..4 {
        world.clock.advance(20 * SECOND);
        world.until("SELECT heartbeat_ms / 1000 - 1704067200 FROM agents WHERE name = 'a'", 20 * n + 19).await;
    }
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_stored_before_it_is_given() {
    let world = World::new();
    let forever = world.open().await;
    for n in 0..20 {
        let guard = forever.agent::<Clerk>(format!("a{n}")).keep_alive().await.unwrap();
        assert_eq!(world.heartbeats(), n + 1);
        std::mem::forget(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_leaves_no_heartbeat() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let awake = agent.wake().await.unwrap();
    for _ in 0..20 {
        let _ = tokio::time::timeout(Duration::ZERO, agent.keep_alive()).await;
    }
    let mut guard = agent.keep_alive().await.unwrap();
    guard.release().await.unwrap();
    world.until("SELECT count(*) FROM agents", 0).await;
    drop(awake);
}

#[tokio::test(start_paused = true)]
async fn guards_taken_and_dropped_at_the_same_time_leave_the_heartbeat_of_the_one_that_is_held() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let mut last = None;
    for _ in 0..200 {
        drop(last.take());
        last = Some(agent.keep_alive().await.unwrap());
    }
    // The tasks that remove heartbeats have had their turn when this one has.
    world.pass(&forever, SECOND).await;
    assert_eq!(world.heartbeats(), 1);
    drop(last);
    world.until("SELECT count(*) FROM agents", 0).await;
}

/// The guard goes with the process, so this one plays its death with a handle that does not keep the runtime open.
#[tokio::test(start_paused = true)]
async fn the_heartbeat_of_a_crash_wakes_the_agent_once_and_is_gone_then() {
    let world = World::new();
    let forever = world.open().await;
    let awake = forever.agent::<Clerk>("a").wake().await.unwrap();
    let guard = awake.me.keep_alive().await.unwrap();
    drop((awake, forever, guard));
    assert_eq!(world.heartbeats(), 1);
    world.probe.reached("a leaves").await;

    world.probe.clear();
    let forever = world.open().await;
    world.probe.reached("a starts").await;
    world.until("SELECT count(*) FROM agents", 0).await;
    world.pass(&forever, HOUR).await;
    assert_eq!(world.probe.log(), ["a starts", "a leaves"]);
    drop(forever);
    let forever = world.open().await;
    world.pass(&forever, HOUR).await;
    assert_eq!(world.probe.log(), ["a starts", "a leaves"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_takes_a_guard_again_when_it_is_woken_keeps_its_heartbeat() {
    let world = World::new();
    let forever = world.open().await;
    let awake = forever.agent::<Clerk>("a").wake().await.unwrap();
    let guard = awake.me.keep_alive().await.unwrap();
    drop((awake, forever, guard));
    world.on_start(|me| async move {
        std::mem::forget(me.keep_alive().await?);
        Ok(())
    });
    let forever = world.open().await;
    world.probe.reached_times("a starts", 2).await;
    world.pass(&forever, HOUR).await;
    assert_eq!(world.heartbeats(), 1);
    assert!(forever.agent::<Clerk>("a").is_awake());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_held_when_the_runtime_closes_wakes_the_agent_at_the_next_open() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let guard = agent.keep_alive().await.unwrap();
    forever.close().await.unwrap();
    drop((guard, agent, forever));
    assert_eq!(world.heartbeats(), 1);
    let forever = world.open().await;
    world.probe.reached_times("a starts", 2).await;
    world.until("SELECT count(*) FROM agents", 0).await;
    drop(forever);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_before_the_runtime_closes_leaves_nothing() {
    let world = World::new();
    let forever = world.open().await;
    drop(forever.agent::<Clerk>("a").keep_alive().await.unwrap());
    forever.close().await.unwrap();
    assert_eq!(world.place.number("SELECT count(*) FROM agents"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_woken_at_open_is_tried_again_later() {
    let world = World::new();
    drop(world.open().await);
    world.place.sql().execute("INSERT INTO agents (class, name, heartbeat_ms, changed_ms) VALUES ('clerk', 'a', 1, 1)", ()).unwrap();
    world.probe.plan("a starts", Plan::Fail("not yet".into()));
    let forever = world.open().await;
    while world.probe.times("a starts") < 3 {
        world.clock.advance(SECOND);
        tokio::task::yield_now().await;
    }
    world.probe.clear();
    while world.probe.times("a starts") < 1 {
        world.clock.advance(SECOND);
        tokio::task::yield_now().await;
    }
    world.until("SELECT count(*) FROM agents", 0).await;
    drop(forever);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_kills_the_process_whenever_it_is_woken_is_left_alone_in_the_end() {
    let world = World::new();
    drop(world.open().await);
    world
        .place
        .sql()
        .execute(
            "INSERT INTO agents (class, name, heartbeat_ms, deaths, changed_ms)
             VALUES ('clerk', 'killer', 1, 3, 1), ('clerk', 'suspect', 1, 2, 1), ('clerk', 'good', 1, 0, 1)",
            (),
        )
        .unwrap();
    let forever = world.open().await;
    world.until("SELECT count(*) FROM agents", 0).await;
    let mut log = world.probe.log();
    log.sort();
    assert_eq!(log, ["good starts", "suspect starts"]);
    drop(forever);
}

#[tokio::test(start_paused = true)]
async fn a_death_is_counted_before_an_agent_that_was_kept_alive_is_woken() {
    let world = World::new();
    drop(world.open().await);
    world.place.sql().execute("INSERT INTO agents (class, name, heartbeat_ms, changed_ms) VALUES ('clerk', 'a', 1, 1)", ()).unwrap();
    for deaths in 1..=3 {
        world.probe.clear();
        world.probe.hold("a starts");
        let forever = world.open().await;
        world.probe.reached("a starts").await;
        assert_eq!(world.place.number("SELECT deaths FROM agents"), deaths, "it is stored before anything of the agent runs");
        // The process dies while the agent wakes.
        drop(forever);
    }
    world.probe.clear();
    let forever = world.open().await;
    world.until("SELECT count(*) FROM agents", 0).await;
    world.pass(&forever, HOUR).await;
    assert_eq!(world.probe.times("a starts"), 0, "it is not woken a fourth time");
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_a_class_that_is_not_registered_keeps_its_heartbeat() {
    let world = World::new();
    drop(world.open().await);
    world.place.sql().execute("INSERT INTO agents (class, name, heartbeat_ms, changed_ms) VALUES ('older', 'a', 1, 1)", ()).unwrap();
    let forever = world.open().await;
    world.pass(&forever, HOUR).await;
    assert_eq!(world.heartbeats(), 1);
}
