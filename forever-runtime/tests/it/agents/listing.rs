//! Making, listing and cancelling schedules, and what cannot be one.
use std::time::{Duration, SystemTime};

use forever_runtime::ErrorKind;
use forever_runtime::agent::{ScheduleKind, When};

use super::{Clerk, HOUR, MINUTE, SECOND, World, at};

#[tokio::test(start_paused = true)]
async fn schedules_are_listed_in_order_and_can_be_cancelled() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let delay = agent.schedule(MINUTE, "one", 1).await.unwrap();
    let cron = agent.schedule("0 9 * * MON", "two", "x").await.unwrap();
    let every = agent.schedule_every(HOUR, "three", (3, true)).await.unwrap();
    forever.agent::<Clerk>("b").schedule(MINUTE, "other", ()).await.unwrap();
    let list = agent.schedules().await.unwrap();
    let names: Vec<_> = list.iter().map(|s| (s.id(), s.name(), s.kind().clone(), s.next().map(at))).collect();
    assert_eq!(
        names,
        [
            (delay.id(), "one", ScheduleKind::Delay, Some(60)),
            // 2024-01-01 is a Monday.
            (cron.id(), "two", ScheduleKind::Cron("0 9 * * MON".into()), Some(32400)),
            (every.id(), "three", ScheduleKind::Every(HOUR), Some(3600)),
        ]
    );
    assert_eq!(list[2].payload::<(u8, bool)>().unwrap(), (3, true));
    assert_eq!(list[1].payload::<String>().unwrap(), "x");
    assert!(list[1].payload::<u8>().is_err());

    assert!(agent.cancel_schedule(delay.id()).await.unwrap());
    assert!(!agent.cancel_schedule(delay.id()).await.unwrap());
    assert!(!forever.agent::<Clerk>("b").cancel_schedule(cron.id()).await.unwrap(), "it is another agent's");
    world.pass(&forever, MINUTE).await;
    world.probe.reached("b: other").await;
    assert_eq!(world.probe.times("a: one"), 0);
    assert_eq!(agent.schedules().await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn cron_and_intervals_are_idempotent_and_what_is_due_once_is_not() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(agent.schedule("0 9 * * *", "cron", 1).await.unwrap().id().to_owned());
        ids.push(agent.schedule_every(HOUR, "every", 1).await.unwrap().id().to_owned());
        agent.schedule(MINUTE, "delay", 1).await.unwrap();
        agent.schedule(SystemTime::UNIX_EPOCH + 3_000_000 * HOUR, "time", 1).await.unwrap();
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2);
    assert_eq!(agent.schedules().await.unwrap().len(), 8);
    // Another name, payload, pattern or agent is another one.
    agent.schedule("0 9 * * *", "cron", 2).await.unwrap();
    agent.schedule("0 9 * * *", "other", 1).await.unwrap();
    agent.schedule("0 10 * * *", "cron", 1).await.unwrap();
    agent.schedule("0 9 * * *", "cron", 1).idempotent(false).await.unwrap();
    assert_eq!(agent.schedules().await.unwrap().len(), 12);
    forever.agent::<Clerk>("b").schedule("0 9 * * *", "cron", 1).await.unwrap();
    assert_eq!(forever.agent::<Clerk>("b").schedules().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_due_once_is_idempotent_on_demand_and_stays_due_when_it_was() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let first = agent.schedule(MINUTE, "tea", 1).idempotent(true).await.unwrap();
    world.pass(&forever, 30 * SECOND).await;
    let second = agent.schedule(MINUTE, "tea", 1).idempotent(true).await.unwrap();
    assert_eq!((first.id(), first.next()), (second.id(), second.next()));
    world.pass(&forever, 30 * SECOND).await;
    world.until("SELECT count(*) FROM schedules", 0).await;
    let third = agent.schedule(MINUTE, "tea", 1).idempotent(true).await.unwrap();
    assert_ne!(first.id(), third.id(), "the first is done");
}

#[tokio::test(start_paused = true)]
async fn an_interval_that_has_changed_takes_effect() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let hourly = agent.schedule_every(HOUR, "tick", ()).await.unwrap();
    let minutely = agent.schedule_every(MINUTE, "tick", ()).await.unwrap();
    assert_eq!((hourly.id(), minutely.kind()), (minutely.id(), &ScheduleKind::Every(MINUTE)));
    world.pass(&forever, MINUTE).await;
    world.probe.reached("a: tick").await;
}

#[tokio::test(start_paused = true)]
async fn payloads_are_the_same_whatever_the_order_of_their_maps() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    for _ in 0..20 {
        let payload: std::collections::HashMap<u8, u8> = (0..20).map(|n| (n, n)).collect();
        agent.schedule("@daily", "tea", payload).await.unwrap();
    }
    assert_eq!(agent.schedules().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_failed_runs_again_when_it_is_asked_for_again() {
    use crate::support::Plan;
    let world = World::new();
    world.probe.plan("a: tea", Plan::Fail("no water".into()));
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let first = agent.schedule(SECOND, "tea", ()).idempotent(true).await.unwrap();
    for _ in 0..6 {
        world.pass(&forever, 3 * SECOND).await;
        world.until("SELECT count(*) FROM schedules WHERE running_ms IS NOT NULL", 0).await;
    }
    assert_eq!(agent.schedules().await.unwrap()[0].next(), None);
    world.probe.clear();
    let again = agent.schedule(SECOND, "tea", ()).idempotent(true).await.unwrap();
    assert_eq!((again.id(), again.attempts()), (first.id(), 0));
    world.pass(&forever, SECOND).await;
    world.probe.reached("a: tea").await;
    world.until("SELECT count(*) FROM schedules", 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_a_schedule_is_an_error_that_says_why() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(300_000_000_000);
    let cases: Vec<(When, &str)> = vec![
        ("every day".into(), "`every day` does not say when: it has 2 fields"),
        ("61 * * * *".into(), "`61 * * * *` does not say when: "),
        ("".into(), "`` does not say when: it has 0 fields"),
        ("0 0 30 2 *".into(), "`0 0 30 2 *` does not say when: it never holds"),
        (Duration::MAX.into(), "it would be due after the year 9999"),
        (far.into(), "it would be due after the year 9999"),
        (When::Every(Duration::ZERO), "an interval must be at least a millisecond"),
        (When::Every(Duration::from_micros(999)), "an interval must be at least a millisecond"),
        (When::Every(Duration::MAX), "it would be due after the year 9999"),
    ];
    for (when, why) in cases {
        let error = agent.schedule(when, "tea", ()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        let wanted = format!("failed to schedule `tea` of agent `clerk/a`: {why}");
        assert!(error.to_string().starts_with(&wanted), "{error}");
    }
    let error = agent.schedule(MINUTE, "", ()).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to schedule `` of agent `clerk/a`: its name must not be empty");
    assert!(agent.schedule(MINUTE, "x".repeat(257), ()).await.is_err());
    assert!(agent.schedule_every(Duration::ZERO, "tea", ()).await.is_err());
    assert_eq!(agent.schedules().await.unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_row_keeps_no_other_schedule_from_running() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    for name in ["payload", "cron", "every", "text", "deaths", "good"] {
        match name {
            "cron" => agent.schedule("* * * * *", name, ()).await.unwrap(),
            "every" => agent.schedule_every(MINUTE, name, ()).await.unwrap(),
            _ => agent.schedule(MINUTE, name, 5).await.unwrap(),
        };
    }
    drop((forever, agent));
    world
        .place
        .sql()
        .execute_batch(
            "UPDATE schedules SET payload = '{\"half' WHERE name = 'payload';
             UPDATE schedules SET cron = 'whenever', attempts = 4294967295 WHERE name = 'cron';
             UPDATE schedules SET every_ms = -5 WHERE name = 'every';
             UPDATE schedules SET id = CAST(x'ff' AS TEXT), payload = CAST(x'fffe' AS TEXT) WHERE name = 'text';
             UPDATE schedules SET deaths = 9223372036854775807 WHERE name = 'deaths';",
        )
        .unwrap();
    let forever = world.open().await;
    world.pass(&forever, MINUTE).await;
    for name in ["payload", "cron", "every", "text", "deaths", "good"] {
        world.probe.reached(&format!("a: {name}")).await;
    }
    world.until("SELECT count(*) FROM schedules WHERE name = 'good'", 0).await;
    world.until("SELECT count(*) FROM schedules WHERE name IN ('cron', 'every') AND next_ms IS NULL", 2).await;
    let errors: Vec<_> =
        forever.agent::<Clerk>("a").schedules().await.unwrap().iter().filter_map(|s| s.error().map(str::to_owned)).collect();
    assert_eq!(
        errors,
        [
            "`whenever` does not say when: it has 1 fields; 5 are wanted, `minute hour day-of-month month day-of-week`, or 6 with seconds in front",
            "its interval cannot be -5 ms"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn schedules_of_a_class_that_is_not_registered_stay_and_run_when_it_is() {
    let world = World::new();
    let forever = world.open().await;
    forever.agent::<Clerk>("a").schedule(MINUTE, "tea", ()).await.unwrap();
    drop(forever);
    world.place.sql().execute("UPDATE schedules SET class = 'older'", ()).unwrap();
    let forever = world.open().await;
    world.pass(&forever, HOUR).await;
    assert_eq!(world.place.number("SELECT count(*) FROM schedules WHERE running_ms IS NULL AND deaths = 0"), 1);
    drop(forever);
    world.place.sql().execute("UPDATE schedules SET class = 'clerk'", ()).unwrap();
    let _forever = world.open().await;
    world.probe.reached("a: tea").await;
}

#[tokio::test(start_paused = true)]
async fn a_class_without_on_schedule_fails_with_a_message_that_says_so() {
    use forever_runtime::Forever;
    use forever_runtime::agent::Agent;
    struct Deaf;
    impl Agent for Deaf {
        const CLASS: &'static str = "deaf";
        type State = ();
    }
    let clock = forever_runtime::testing::VirtualClock::new();
    let forever = Forever::builder().in_memory().clock(clock.clone()).agent(|_| Deaf).open().await.unwrap();
    let agent = forever.agent::<Deaf>("a");
    agent.schedule(Duration::ZERO, "tea", ()).await.unwrap();
    let error = loop {
        if let Some(error) = agent.schedules().await.unwrap()[0].error() {
            break error.to_owned();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(error, "class `deaf` has no `on_schedule`, so nothing does `tea`");
}
