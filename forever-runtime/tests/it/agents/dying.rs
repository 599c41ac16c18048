//! Schedules and agents over the death of processes. Numbers in brackets: the catalogue of cases that the behaviour is taken from.
use forever_runtime::SystemClock;
use forever_testkit::waiting::settled;

use super::{Clerk, HOUR, MINUTE, SECOND, World};

/// Lets a schedule's run be under way, and the process die: the runtime is dropped where it is.
async fn die_in_a_run(world: &World) {
    world.probe.clear();
    world.probe.hold("a: tea");
    let forever = world.open().await;
    world.clock.advance(MINUTE);
    world.probe.reached("a: tea").await;
    drop(forever);
}

/// [58]
#[tokio::test(start_paused = true)]
async fn a_process_that_dies_in_a_run_leaves_the_row_and_the_run_is_repeated() {
    let world = World::new();
    let forever = world.open().await;
    forever.agent::<Clerk>("a").schedule(MINUTE, "tea", ()).await.unwrap();
    drop(forever);
    die_in_a_run(&world).await;
    assert_eq!(world.place.number("SELECT count(*) FROM schedules WHERE running_ms IS NOT NULL AND deaths = 1"), 1);
    world.probe.clear();
    let _forever = world.open().await;
    world.probe.reached("a: tea").await;
    world.until("SELECT count(*) FROM schedules", 0).await;
    assert_eq!(world.dues(), ["tea 60 1", "tea 60 1"]);
}

/// [59]
#[tokio::test(start_paused = true)]
async fn a_runtime_that_closes_in_a_run_counts_no_death_and_the_run_is_repeated() {
    let world = World::new();
    let forever = world.open().await;
    forever.agent::<Clerk>("a").schedule(MINUTE, "tea", ()).await.unwrap();
    drop(forever);
    for _ in 0..5 {
        world.probe.clear();
        world.probe.hold("a: tea");
        let forever = world.open().await;
        world.clock.advance(MINUTE);
        world.probe.reached("a: tea").await;
        let closing = tokio::spawn(forever.close().into_future());
        while !closing.is_finished() {
            // What runs is given ten seconds.
            world.clock.advance(SECOND);
            tokio::task::yield_now().await;
        }
        closing.await.unwrap().unwrap();
        let row = "SELECT count(*) FROM schedules WHERE running_ms IS NULL AND deaths = 0 AND attempts = 0 AND next_ms IS NOT NULL";
        assert_eq!(world.place.number(row), 1);
    }
    world.probe.clear();
    let _forever = world.open().await;
    world.until("SELECT count(*) FROM schedules", 0).await;
    assert_eq!(world.probe.times("a: tea"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_while_the_runtime_closes_is_done() {
    let world = World::new();
    let gate = world.probe.hold("a: tea");
    let forever = world.open().await;
    forever.agent::<Clerk>("a").schedule(MINUTE, "tea", ()).await.unwrap();
    world.clock.advance(MINUTE);
    world.probe.reached("a: tea").await;
    let closing = tokio::spawn(forever.close().into_future());
    while forever.agent::<Clerk>("late").wake().await.is_ok() {
        settled().await;
    }
    gate.add_permits(1);
    closing.await.unwrap().unwrap();
    assert_eq!(world.place.number("SELECT count(*) FROM schedules"), 0);
}

#[tokio::test(start_paused = true)]
async fn three_deaths_in_a_row_set_a_schedule_aside_and_no_other() {
    let world = World::new();
    let forever = world.open().await;
    forever.agent::<Clerk>("a").schedule_every(MINUTE, "tea", ()).await.unwrap();
    forever.agent::<Clerk>("b").schedule_every(MINUTE, "cake", ()).await.unwrap();
    drop(forever);
    for _ in 0..3 {
        die_in_a_run(&world).await;
    }
    world.probe.clear();
    let forever = world.open().await;
    world.pass(&forever, MINUTE).await;
    world.probe.reached("b: cake").await;
    assert_eq!(world.probe.times("a: tea"), 0);
    let agent = forever.agent::<Clerk>("a");
    let tea = &agent.schedules().await.unwrap()[0];
    assert_eq!((tea.next(), tea.error()), (None, Some("the process died 3 times in a row while it ran")));
    // To ask for it again does not let it kill again; to cancel it does.
    let again = agent.schedule_every(MINUTE, "tea", ()).await.unwrap();
    assert_eq!((again.id(), again.next()), (tea.id(), None));
    assert!(agent.cancel_schedule(tea.id()).await.unwrap());
    agent.schedule_every(MINUTE, "tea", ()).await.unwrap();
    world.pass(&forever, MINUTE).await;
    world.probe.reached("a: tea").await;
}

/// [60]
#[tokio::test(start_paused = true)]
async fn a_clean_run_forgets_the_deaths_before_it() {
    let world = World::new();
    let forever = world.open().await;
    forever.agent::<Clerk>("a").schedule_every(MINUTE, "tea", ()).await.unwrap();
    drop(forever);
    for round in 0..3 {
        die_in_a_run(&world).await;
        die_in_a_run(&world).await;
        world.probe.clear();
        let forever = world.open().await;
        world.probe.reached("a: tea").await;
        world.until("SELECT count(*) FROM schedules WHERE running_ms IS NULL AND deaths = 0", 1).await;
        assert_eq!(forever.agent::<Clerk>("a").schedules().await.unwrap()[0].error(), None, "round {round}");
        drop(forever);
    }
}

#[tokio::test(start_paused = true)]
async fn schedules_that_may_have_killed_the_process_run_one_at_a_time() {
    let world = World::new();
    let forever = world.open().await;
    for name in ["a", "b", "c"] {
        forever.agent::<Clerk>(name).schedule(SECOND, "tea", ()).await.unwrap();
    }
    drop(forever);
    world.place.sql().execute("UPDATE schedules SET deaths = 1", ()).unwrap();
    world.clock.advance(SECOND);
    let gates = ["a", "b", "c"].map(|name| world.probe.hold(&format!("{name}: tea")));
    let forever = world.builder().hung_schedule_timeout(HOUR).open().await.unwrap();
    for (n, gate) in gates.iter().enumerate() {
        world.probe.reached(&format!("{}: tea", ["a", "b", "c"][n])).await;
        world.pass(&forever, SECOND).await;
        assert_eq!(world.dues().len(), n + 1);
        gate.add_permits(1);
    }
    world.until("SELECT count(*) FROM schedules", 0).await;
}

mod killed {
    //! With processes that die for real.
    use super::*;
    use crate::child;

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_a_killed_process_kept_alive_is_woken_at_open_without_a_request() {
        let world = World::new();
        let mut child = child::start("keep an agent alive", &world.place);
        child.until_said("kept").unwrap();
        child.kill().unwrap();
        assert_eq!(world.heartbeats(), 1);
        let _forever = world.open().await;
        world.probe.reached("a starts").await;
        world.until("SELECT count(*) FROM agents WHERE heartbeat_ms IS NOT NULL", 0).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_schedule_that_kills_its_process_each_time_is_set_aside_after_three() {
        let world = World::new();
        for _ in 0..3 {
            assert!(!child::start("die in a schedule", &world.place).wait().unwrap().success());
        }
        let forever = world.open().await;
        world.pass(&forever, HOUR).await;
        let error = forever.agent::<Clerk>("a").schedules().await.unwrap()[0].error().map(str::to_owned);
        assert_eq!(error.as_deref(), Some("the process died 3 times in a row while it ran"));
        assert_eq!(world.dues(), [""; 0]);
    }
}

/// What the children do.
pub async fn keep_alive_for_ever(db: &std::path::Path) -> forever_runtime::Forever {
    let world = World::new();
    let forever = world.builder().clock(SystemClock::new()).sqlite(db).open().await.unwrap();
    std::mem::forget(forever.agent::<Clerk>("a").keep_alive().await.unwrap());
    forever
}

pub async fn die_in_a_schedule(db: &std::path::Path) {
    let world = World::new();
    world.probe.plan("a: tea", crate::support::Plan::Abort);
    let forever = world.builder().clock(SystemClock::new()).sqlite(db).open().await.unwrap();
    forever.agent::<Clerk>("a").schedule(std::time::Duration::ZERO, "tea", ()).idempotent(true).await.unwrap();
    std::future::pending::<()>().await;
}
