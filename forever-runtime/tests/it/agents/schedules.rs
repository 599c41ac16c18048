//! Schedules that run, fail, hang and repeat. Numbers in brackets: the catalogue of cases that the behaviour is taken from.
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forever_runtime::agent::AgentHandle;
use forever_runtime::{Clock, Forever};

use super::{Clerk, HOUR, MINUTE, SECOND, World, at};
use crate::support::Plan;

#[tokio::test(start_paused = true)]
async fn a_delay_wakes_the_agent_when_it_is_over_and_is_done_then() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule(10 * SECOND, "tea", ()).await.unwrap();
    assert!(!agent.is_awake());
    world.pass(&forever, 9 * SECOND).await;
    assert_eq!(world.probe.log(), [""; 0]);
    world.pass(&forever, SECOND).await;
    world.probe.reached("a: tea").await;
    world.until("SELECT count(*) FROM schedules", 0).await;
    world.pass(&forever, HOUR).await;
    assert_eq!(world.dues(), ["tea 10 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_time_is_kept_and_one_that_has_passed_is_now() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule(world.clock.now() + MINUTE, "later", ()).await.unwrap();
    agent.schedule(world.clock.now() - MINUTE, "before", ()).await.unwrap();
    agent.schedule(std::time::SystemTime::UNIX_EPOCH - HOUR, "long before", ()).await.unwrap();
    world.probe.reached("a: before").await;
    world.probe.reached("a: long before").await;
    assert_eq!(world.probe.times("a: later"), 0);
    world.pass(&forever, MINUTE).await;
    world.probe.reached("a: later").await;
}

#[tokio::test(start_paused = true)]
async fn a_cron_pattern_is_due_at_its_times_in_utc() {
    let world = World::new();
    let forever = world.open().await;
    forever.agent::<Clerk>("a").schedule("30 9 * * *", "tea", ()).await.unwrap();
    for day in 0..3 {
        let left = if day == 0 { 9 * HOUR + 30 * MINUTE } else { 24 * HOUR };
        world.pass(&forever, left).await;
        world.probe.reached_times("a: tea", day + 1).await;
        world.until("SELECT count(*) FROM schedules WHERE name = 'tea' AND running_ms IS NULL", 1).await;
    }
    assert_eq!(world.dues(), ["tea 34200 1", "tea 120600 1", "tea 207000 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_interval_never_overlaps_itself_and_keeps_its_rhythm() {
    let world = World::new();
    let gate = world.probe.hold("a: tick");
    let forever = world.builder().hung_schedule_timeout(HOUR).open().await.unwrap();
    forever.agent::<Clerk>("a").schedule_every(10 * SECOND, "tick", ()).await.unwrap();
    world.pass(&forever, 10 * SECOND).await;
    world.probe.reached("a: tick").await;
    // Four more times pass while the first run goes on.
    for _ in 0..4 {
        world.pass(&forever, 10 * SECOND).await;
    }
    assert_eq!(world.probe.times("a: tick"), 1);
    gate.add_permits(100);
    world.until("SELECT count(*) FROM schedules WHERE name = 'tick' AND running_ms IS NULL", 1).await;
    world.pass(&forever, 9 * SECOND).await;
    assert_eq!(world.probe.times("a: tick"), 1, "what was missed is not made up for");
    world.pass(&forever, SECOND).await;
    world.probe.reached_times("a: tick", 2).await;
    assert_eq!(world.dues(), ["tick 10 1", "tick 60 1"]);
}

#[tokio::test(start_paused = true)]
async fn what_fell_due_while_no_process_was_there_runs_once_at_open() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule(HOUR, "once", ()).await.unwrap();
    agent.schedule_every(MINUTE, "tick", ()).await.unwrap();
    agent.schedule("0 * * * *", "hourly", ()).await.unwrap();
    drop((forever, agent));
    world.clock.advance(5 * HOUR + SECOND);

    let forever = world.open().await;
    for name in ["once", "tick", "hourly"] {
        world.probe.reached(&format!("a: {name}")).await;
    }
    world.until("SELECT count(*) FROM schedules WHERE name <> 'mark' AND running_ms IS NULL", 2).await;
    let mut dues = world.dues();
    dues.sort();
    assert_eq!(dues, ["hourly 3600 1", "once 3600 1", "tick 60 1"]);
    world.pass(&forever, 59 * SECOND).await;
    world.probe.reached_times("a: tick", 2).await;
    assert_eq!(world.probe.times("a: hourly"), 1);
    assert_eq!(world.dues().last().map(String::as_str), Some("tick 18060 1"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_is_tried_three_times_and_then_kept_with_its_error() {
    let world = World::new();
    world.probe.plan("a: tea", Plan::Fail("no water".into()));
    world.probe.plan("a: cake", Plan::Panic("no flour".into()));
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let tea = agent.schedule(SECOND, "tea", ()).await.unwrap();
    agent.schedule(SECOND, "cake", ()).await.unwrap();
    for _ in 0..8 {
        world.pass(&forever, 3 * SECOND).await;
        world.until("SELECT count(*) FROM schedules WHERE running_ms IS NOT NULL", 0).await;
    }
    assert_eq!((world.probe.times("a: tea"), world.probe.times("a: cake")), (3, 3));
    let mut attempts: Vec<String> = world.dues().into_iter().filter(|due| due.starts_with("tea")).collect();
    attempts.sort();
    assert_eq!(attempts, ["tea 1 1", "tea 1 2", "tea 1 3"]);
    let left = agent.schedules().await.unwrap();
    let errors: Vec<_> = left.iter().map(|s| (s.name(), s.error(), s.next(), s.attempts())).collect();
    assert_eq!(errors, [("tea", Some("no water"), None, 3), ("cake", Some("panicked: no flour"), None, 3)]);
    // It stays so, also after a restart, and can be taken away.
    drop((forever, agent));
    world.probe.clear();
    let forever = world.open().await;
    world.pass(&forever, HOUR).await;
    assert_eq!((world.probe.times("a: tea"), world.probe.times("a: cake")), (0, 0));
    assert!(forever.agent::<Clerk>("a").cancel_schedule(tea.id()).await.unwrap());
    assert_eq!(forever.agent::<Clerk>("a").schedules().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_interval_that_fails_goes_on_at_its_next_time() {
    let world = World::new();
    world.probe.plan("a: tick", Plan::Fail("no clock".into()));
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule_every(MINUTE, "tick", ()).await.unwrap();
    world.pass(&forever, MINUTE).await;
    for times in 1..4 {
        world.probe.reached_times("a: tick", times).await;
        world.until("SELECT count(*) FROM schedules WHERE running_ms IS NOT NULL", 0).await;
        world.pass(&forever, 3 * SECOND).await;
    }
    let tick = &agent.schedules().await.unwrap()[0];
    assert_eq!((tick.error(), tick.attempts(), tick.next().map(at)), (Some("no clock"), 0, Some(120)));
    world.probe.clear();
    world.pass(&forever, 51 * SECOND).await;
    world.probe.reached("a: tick").await;
    world.until("SELECT count(*) FROM schedules WHERE running_ms IS NOT NULL", 0).await;
    assert_eq!(agent.schedules().await.unwrap()[0].error(), None, "a clean run forgets the error");
    assert_eq!(world.dues(), ["tick 60 1", "tick 60 2", "tick 60 3", "tick 120 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_woken_counts_as_a_failed_run() {
    let world = World::new();
    world.probe.plan("a starts", Plan::Fail("no agent".into()));
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule(SECOND, "tea", ()).await.unwrap();
    world.pass(&forever, SECOND).await;
    world.until("SELECT count(*) FROM schedules WHERE running_ms IS NULL AND attempts = 1", 1).await;
    world.probe.clear();
    world.pass(&forever, 3 * SECOND).await;
    world.probe.reached("a: tea").await;
    assert_eq!(world.dues(), ["tea 1 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_hangs_is_dropped_and_counts_as_failed() {
    let world = World::new();
    world.probe.hold("a: tea");
    let forever = world.builder().hung_schedule_timeout(5 * SECOND).open().await.unwrap();
    let agent = forever.agent::<Clerk>("a");
    agent.schedule(SECOND, "tea", ()).await.unwrap();
    world.pass(&forever, SECOND).await;
    world.probe.reached("a: tea").await;
    let running = &agent.schedules().await.unwrap()[0];
    assert!(running.is_running());
    world.pass(&forever, 4 * SECOND).await;
    assert_eq!(world.place.number("SELECT count(*) FROM schedules WHERE name = 'tea' AND running_ms IS NOT NULL"), 1);
    world.clock.advance(SECOND);
    world.until("SELECT count(*) FROM schedules WHERE attempts = 1 AND running_ms IS NULL", 1).await;
    let error = agent.schedules().await.unwrap()[0].error().map(str::to_owned);
    assert_eq!(error.as_deref(), Some("it was dropped after 5s, in which it had not ended"));
    world.probe.clear();
    world.pass(&forever, 3 * SECOND).await;
    world.probe.reached("a: tea").await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_schedule_keeps_no_other_waiting() {
    let world = World::new();
    let gate = world.probe.hold("slow: tea");
    let forever = world.builder().hung_schedule_timeout(HOUR).open().await.unwrap();
    for name in ["slow", "quick"] {
        forever.agent::<Clerk>(name).schedule(SECOND, "tea", ()).await.unwrap();
    }
    world.pass(&forever, SECOND).await;
    world.probe.reached("quick: tea").await;
    world.probe.reached("slow: tea").await;
    gate.add_permits(1);
    world.until("SELECT count(*) FROM schedules", 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_running_schedule_keeps_its_agent_awake() {
    let world = World::new();
    let gate = world.probe.hold("a: tea");
    let forever = world.builder().hung_schedule_timeout(HOUR).open().await.unwrap();
    forever.agent::<Clerk>("a").schedule(SECOND, "tea", ()).await.unwrap();
    world.pass(&forever, SECOND).await;
    world.probe.reached("a: tea").await;
    world.pass(&forever, 10 * MINUTE).await;
    assert!(forever.agent::<Clerk>("a").is_awake());
    gate.add_permits(1);
    world.until("SELECT count(*) FROM schedules", 0).await;
    world.pass(&forever, 10 * MINUTE).await;
    assert!(!forever.agent::<Clerk>("a").is_awake());
}

/// [61]
#[tokio::test(start_paused = true)]
async fn asking_for_an_interval_that_is_there_sets_its_alarm_again_if_it_was_lost() {
    let world = World::new();
    let forever = world.open().await;
    world.pass(&forever, SECOND).await;
    // A row of which the runtime has heard nothing.
    world
        .place
        .sql()
        .execute(
            "INSERT INTO schedules (id, class, agent, name, payload, kind, every_ms, due_ms, next_ms, created_ms)
             VALUES ('lost', 'clerk', 'a', 'tick', 'null', 'every', 60000, 1704067200000, 1704067200000, 0)",
            (),
        )
        .unwrap();
    world.clock.advance(SECOND);
    assert_eq!(world.probe.log(), [""; 0]);
    let tick = forever.agent::<Clerk>("a").schedule_every(MINUTE, "tick", ()).await.unwrap();
    assert_eq!(tick.id(), "lost");
    world.probe.reached("a: tick").await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_schedules_of_a_thousand_agents_run_together() {
    let world = World::new();
    let forever = world.open().await;
    let mut made = tokio::task::JoinSet::new();
    for n in 0..1000 {
        let agent = forever.agent::<Clerk>(format!("a{n}"));
        made.spawn(async move { agent.schedule(MINUTE, "tea", n).await.unwrap() });
    }
    while let Some(made) = made.join_next().await {
        made.unwrap();
    }
    world.pass(&forever, MINUTE).await;
    world.until("SELECT count(*) FROM schedules", 0).await;
    assert_eq!(world.dues().len(), 1000);
    forever.close().deadline(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_schedules_that_are_due_are_taken_page_by_page() {
    let world = World::new();
    drop(world.open().await);
    world
        .place
        .sql()
        .execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO schedules (id, class, agent, name, payload, kind, due_ms, next_ms, created_ms)
             SELECT 'n' || i, 'clerk', 'a', 'tea', 'null', 'time', i, i, 0 FROM n",
            (),
        )
        .unwrap();
    let _forever = world.open().await;
    world.until("SELECT count(*) FROM schedules", 0).await;
    assert_eq!(world.dues().len(), 2000);
}

/// An error that panics when it is shown.
#[derive(Debug)]
struct Unsayable;

impl std::fmt::Display for Unsayable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("on purpose")
    }
}

impl std::error::Error for Unsayable {}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_it_is_shown_counts_as_a_failed_run() {
    let world = World::new();
    world.on_start(|_| async { Err(Unsayable.into()) });
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule(SECOND, "tea", ()).await.unwrap();
    world.pass(&forever, SECOND).await;
    world.until("SELECT count(*) FROM schedules WHERE running_ms IS NULL AND attempts = 1", 1).await;
    assert!(agent.schedules().await.unwrap()[0].error().unwrap().ends_with("an error whose text cannot be had: it panicked"));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_asks_for_itself_in_its_run_comes_again() {
    let world = World::new();
    let me: Arc<OnceLock<AgentHandle<Clerk>>> = Arc::default();
    let agent = Arc::clone(&me);
    world.on_schedule(move || {
        let agent = agent.get().cloned().unwrap();
        async move {
            // Twice, as it is idempotent.
            let first = agent.schedule(MINUTE, "tea", ()).idempotent(true).await?;
            let second = agent.schedule(MINUTE, "tea", ()).idempotent(true).await?;
            assert_eq!(first.id(), second.id());
            Ok(())
        }
    });
    let forever = world.open().await;
    me.set(forever.agent::<Clerk>("a")).unwrap();
    forever.agent::<Clerk>("a").schedule(MINUTE, "tea", ()).idempotent(true).await.unwrap();
    for times in 1..5 {
        world.pass(&forever, MINUTE).await;
        world.probe.reached_times("a: tea", times).await;
        world.until("SELECT count(*) FROM schedules WHERE name = 'tea' AND running_ms IS NULL", 1).await;
        world.until("SELECT count(*) FROM schedules WHERE name = 'tea'", 1).await;
    }
    assert_eq!(world.dues(), ["tea 60 1", "tea 120 1", "tea 180 1", "tea 240 1"]);
    // A run that fails behind that is tried again, and neither is lost nor doubled by it.
    world.probe.plan("a: tea", Plan::Fail("no water".into()));
    world.pass(&forever, MINUTE).await;
    world.until("SELECT count(*) FROM schedules WHERE name = 'tea' AND running_ms IS NULL AND attempts = 1", 1).await;
    world.until("SELECT count(*) FROM schedules WHERE name = 'tea'", 2).await;
    world.probe.clear();
    world.pass(&forever, 3 * SECOND).await;
    world.until("SELECT count(*) FROM schedules WHERE name = 'tea'", 1).await;
    assert_eq!(world.dues().last().map(String::as_str), Some("tea 300 2"));
}

#[tokio::test(start_paused = true)]
async fn one_who_asks_before_a_run_begins_asks_for_that_run() {
    let world = World::new();
    // The agent is woken by the schedule, and asks for it again before it has run.
    world.on_start(|me| async move {
        me.schedule(MINUTE, "tea", ()).idempotent(true).await?;
        Ok(())
    });
    let forever = world.open().await;
    forever.agent::<Clerk>("a").schedule(MINUTE, "tea", ()).idempotent(true).await.unwrap();
    world.pass(&forever, MINUTE).await;
    world.probe.reached("a: tea").await;
    world.until("SELECT count(*) FROM schedules", 0).await;
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Sets the clock, and waits until the runtime has looked at what is due by it.
async fn set(world: &World, forever: &Forever, ahead: bool, by: Duration) {
    if ahead {
        world.clock.set_ahead(by);
    } else {
        world.clock.set_back(by);
    }
    world.pass(forever, Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ahead_and_back_neither_stops_nor_floods_what_repeats() {
    for (by, closes) in [(HOUR, false), (YEAR, false), (10 * YEAR, false), (YEAR, true)] {
        let world = World::new();
        let mut forever = world.open().await;
        let agent = forever.agent::<Clerk>("a");
        agent.schedule_every(MINUTE, "tick", ()).await.unwrap();
        agent.schedule("* * * * *", "tock", ()).await.unwrap();
        set(&world, &forever, true, by).await;
        for name in ["a: tick", "a: tock"] {
            world.probe.reached(name).await;
        }
        let none_runs = "SELECT count(*) FROM schedules WHERE class = 'clerk' AND running_ms IS NOT NULL";
        world.until(none_runs, 0).await;
        assert_eq!(world.dues().len(), 2, "what is overdue runs once");
        if closes {
            forever.close().await.unwrap();
            world.clock.set_back(by);
            drop(agent);
            forever = world.open().await;
        } else {
            set(&world, &forever, false, by).await;
        }
        world.until("SELECT count(*) FROM schedules WHERE class = 'clerk' AND next_ms > 1704067200000 + 3600000", 0).await;
        for minute in 1..4 {
            world.pass(&forever, MINUTE).await;
            for name in ["a: tick", "a: tock"] {
                world.probe.reached_times(name, minute + 1).await;
            }
            world.until(none_runs, 0).await;
        }
        assert_eq!(world.dues().len(), 2 + 2 * 3, "{:?}", world.dues());
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_keeps_what_repeats_going() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule_every(MINUTE, "tick", ()).await.unwrap();
    agent.schedule("* * * * *", "tock", ()).await.unwrap();
    set(&world, &forever, false, 5 * HOUR).await;
    world.until("SELECT count(*) FROM schedules WHERE class = 'clerk' AND next_ms > 1704067200000", 0).await;
    assert_eq!(world.dues(), [""; 0]);
    world.pass(&forever, MINUTE).await;
    for name in ["a: tick", "a: tock"] {
        world.probe.reached(name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_while_a_schedule_runs_does_not_stop_it() {
    let world = World::new();
    let gate = world.probe.hold("a: tick");
    let forever = world.builder().hung_schedule_timeout(HOUR).open().await.unwrap();
    forever.agent::<Clerk>("a").schedule_every(MINUTE, "tick", ()).await.unwrap();
    set(&world, &forever, true, YEAR).await;
    world.probe.reached("a: tick").await;
    set(&world, &forever, false, YEAR).await;
    gate.add_permits(100);
    world.until("SELECT count(*) FROM schedules WHERE name = 'tick' AND running_ms IS NULL", 1).await;
    // What is due in a minute has run.
    world.pass(&forever, 2 * MINUTE).await;
    world.probe.reached_times("a: tick", 2).await;
    world.until("SELECT count(*) FROM schedules WHERE name = 'tick' AND running_ms IS NULL", 1).await;
    assert_eq!(world.dues(), ["tick 60 1", "tick 120 1"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_or_failed_while_the_clock_was_ahead_is_not_due_in_a_year() {
    let world = World::new();
    world.probe.plan("a: cake", Plan::Fail("no flour".into()));
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    agent.schedule(MINUTE, "cake", ()).await.unwrap();
    agent.schedule_every(MINUTE, "tick", ()).await.unwrap();
    let at = world.clock.now() + 2 * YEAR;
    agent.schedule(at, "party", ()).await.unwrap();
    set(&world, &forever, true, YEAR).await;
    world.until("SELECT count(*) FROM schedules WHERE name = 'cake' AND attempts = 1 AND running_ms IS NULL", 1).await;
    agent.schedule(MINUTE, "tea", ()).await.unwrap();
    world.probe.clear();
    set(&world, &forever, false, YEAR).await;
    world.probe.reached("a: cake").await;
    world.pass(&forever, MINUTE).await;
    world.probe.reached("a: tea").await;
    world.until("SELECT count(*) FROM schedules WHERE class = 'clerk'", 2).await;
    let party = agent.schedules().await.unwrap().into_iter().find(|schedule| schedule.name() == "party").unwrap();
    assert_eq!(party.next(), Some(at), "a time stays what it is");
}

#[tokio::test(start_paused = true)]
async fn an_agent_leaves_memory_although_the_clock_was_set_back() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    set(&world, &forever, true, YEAR).await;
    drop(agent.wake().await.unwrap());
    set(&world, &forever, false, YEAR).await;
    world.pass(&forever, 10 * MINUTE).await;
    world.probe.reached("a leaves").await;
}
