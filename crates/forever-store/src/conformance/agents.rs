//! What every store keeps to where agents and their schedules are concerned.
use crate::AgentId;
use crate::{FarSchedules, KeepAliveRow, NewScheduleRow, RunResult, ScheduleRow, ScheduleTiming, Store};

fn agent(name: &str) -> AgentId {
    AgentId { class: "clerk".into(), name: name.into() }
}

fn classes() -> Vec<String> {
    vec!["clerk".into(), "boss".into()]
}

fn schedule(id: &str, timing: ScheduleTiming, due_ms: i64) -> NewScheduleRow {
    NewScheduleRow {
        id: id.into(),
        agent: agent("a"),
        name: "tea".into(),
        payload: "1".into(),
        idempotent: timing.repeats(),
        begun: Vec::new(),
        timing,
        due_ms,
        now_ms: 5,
    }
}

async fn add(store: &impl Store, new: NewScheduleRow) -> ScheduleRow {
    store.add_schedule(new).await.unwrap().0
}

async fn claim(store: &impl Store, now_ms: i64) -> Vec<ScheduleRow> {
    store.claim_schedules(classes(), now_ms, 100).await.unwrap()
}

fn ids(rows: &[ScheduleRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

pub(super) async fn keeps_the_last_state(store: &impl Store) {
    assert_eq!(store.load_state(agent("a")).await.unwrap(), None);
    store.save_state(agent("a"), "1".into(), None, 1).await.unwrap();
    store.save_state(agent("a"), "2".into(), None, 2).await.unwrap();
    store.save_state(AgentId { class: "boss".into(), name: "a".into() }, "3".into(), None, 2).await.unwrap();
    assert_eq!(store.load_state(agent("a")).await.unwrap().as_deref(), Some("2"));
    assert_eq!(store.load_state(agent("b")).await.unwrap(), None);
}

pub(super) async fn keeps_heartbeats_until_they_are_taken_back(store: &impl Store) {
    let left = async || store.awake_agents().await.unwrap().into_iter().map(|left| (left.agent.name, left.deaths)).collect::<Vec<_>>();
    store.save_state(agent("state"), "1".into(), None, 1).await.unwrap();
    for name in ["a", "state", "b"] {
        store.keep_awake(agent(name), 10).await.unwrap();
    }
    store.keep_awake(agent("a"), 20).await.unwrap();
    store.end_keep_alive(agent("b")).await.unwrap();
    // What does not beat any more does not begin to.
    store.renew_keep_alives(vec![agent("b"), agent("state"), agent("never")], 30).await.unwrap();
    assert_eq!(left().await, [("a".into(), 0), ("state".into(), 0)]);
    store.count_wake_attempt(agent("a")).await.unwrap();
    store.count_wake_attempt(agent("a")).await.unwrap();
    assert_eq!(store.awake_agents().await.unwrap()[0], KeepAliveRow { agent: agent("a"), deaths: 2 });
    store.reset_wake_attempts(agent("a")).await.unwrap();
    assert_eq!(left().await, [("a".into(), 0), ("state".into(), 0)]);
    store.end_keep_alive(agent("state")).await.unwrap();
    assert_eq!(left().await, [("a".into(), 0)]);
    assert_eq!(store.load_state(agent("state")).await.unwrap().as_deref(), Some("1"), "a state outlives its heartbeat");
}

pub(super) async fn lists_and_cancels_an_agents_own_schedules(store: &impl Store) {
    let one = add(store, schedule("1", ScheduleTiming::Delay, 10)).await;
    assert_eq!((one.due_ms, one.next_ms, one.running_ms, one.attempts, one.deaths, one.created_ms), (10, Some(10), None, 0, 0, 5));
    add(store, NewScheduleRow { agent: agent("b"), ..schedule("2", ScheduleTiming::Time, 10) }).await;
    add(store, schedule("3", ScheduleTiming::Cron("* * * * *".into()), 10)).await;
    assert_eq!(ids(&store.schedules(agent("a")).await.unwrap()), ["1", "3"]);
    assert!(!store.cancel_schedule(agent("b"), "1".into()).await.unwrap());
    assert!(store.cancel_schedule(agent("a"), "1".into()).await.unwrap());
    assert!(!store.cancel_schedule(agent("a"), "1".into()).await.unwrap());
    assert_eq!(ids(&store.schedules(agent("a")).await.unwrap()), ["3"]);
    store.add_schedule(schedule("3", ScheduleTiming::Delay, 10)).await.unwrap_err();
}

pub(super) async fn finds_the_schedule_that_is_there(store: &impl Store) {
    let cron = |text: &str| ScheduleTiming::Cron(text.into());
    add(store, schedule("1", cron("a"), 10)).await;
    let asked = async |new: NewScheduleRow| {
        let (row, new) = store.add_schedule(new).await.unwrap();
        (row.id, new)
    };
    assert_eq!(asked(schedule("2", cron("a"), 99)).await, ("1".into(), false));
    assert_eq!(asked(schedule("2", cron("b"), 99)).await, ("2".into(), true));
    assert_eq!(asked(NewScheduleRow { payload: "2".into(), ..schedule("3", cron("a"), 9) }).await, ("3".into(), true));
    assert_eq!(asked(NewScheduleRow { name: "cake".into(), ..schedule("4", cron("a"), 9) }).await, ("4".into(), true));
    assert_eq!(asked(NewScheduleRow { agent: agent("b"), ..schedule("5", cron("a"), 9) }).await, ("5".into(), true));
    assert_eq!(asked(NewScheduleRow { idempotent: false, ..schedule("6", cron("a"), 9) }).await, ("6".into(), true));
    assert_eq!(store.schedules(agent("a")).await.unwrap()[0].due_ms, 10, "it stays due when it was");

    add(store, schedule("7", ScheduleTiming::Every(100), 100)).await;
    let changed = add(store, schedule("8", ScheduleTiming::Every(50), 60)).await;
    assert_eq!((changed.id.as_str(), changed.timing, changed.next_ms), ("7", ScheduleTiming::Every(50), Some(60)));
}

pub(super) async fn lets_schedules_in_when_they_are_due(store: &impl Store) {
    add(store, schedule("late", ScheduleTiming::Time, 30)).await;
    add(store, schedule("early", ScheduleTiming::Time, 10)).await;
    add(store, NewScheduleRow { agent: AgentId { class: "older".into(), name: "a".into() }, ..schedule("other", ScheduleTiming::Time, 1) })
        .await;
    assert_eq!(store.next_schedule(classes()).await.unwrap(), Some(10));
    assert_eq!(store.next_schedule(vec![]).await.unwrap(), None);
    assert!(claim(store, 9).await.is_empty());
    let due = claim(store, 10).await;
    assert_eq!((ids(&due), due[0].running_ms, due[0].deaths), (vec!["early"], Some(10), 1));
    assert!(claim(store, 20).await.is_empty(), "it runs already");
    assert_eq!(store.next_schedule(classes()).await.unwrap(), Some(30));
    assert_eq!(store.unregistered_classes(classes()).await.unwrap(), ["older"]);
    add(store, schedule("earlier", ScheduleTiming::Time, 5)).await;
    assert_eq!(ids(&store.claim_schedules(classes(), 40, 1).await.unwrap()), ["earlier"]);
    assert_eq!(ids(&claim(store, 40).await), ["late"]);
}

pub(super) async fn keeps_what_came_of_a_run(store: &impl Store) {
    for id in ["done", "again", "aside"] {
        add(store, schedule(id, ScheduleTiming::Time, 10)).await;
    }
    add(store, schedule("next", ScheduleTiming::Every(100), 10)).await;
    let due = claim(store, 10).await;
    let run = |id: &str| due.iter().find(|row| row.id == id).unwrap().clone();
    store.end_run(run("done"), RunResult::Done).await.unwrap();
    store.end_run(run("again"), RunResult::Retry { next_ms: 50, error: "no".into() }).await.unwrap();
    store.end_run(run("aside"), RunResult::Suspended { error: "never".into() }).await.unwrap();
    store.end_run(run("next"), RunResult::Next { due_ms: 110, error: None }).await.unwrap();
    let rows = store.schedules(agent("a")).await.unwrap();
    let seen: Vec<_> = rows.iter().map(|r| (r.id.as_str(), r.due_ms, r.next_ms, r.attempts, r.error.as_deref())).collect();
    assert_eq!(seen, [("again", 10, Some(50), 1, Some("no")), ("aside", 10, None, 1, Some("never")), ("next", 110, Some(110), 0, None)]);
    assert!(rows.iter().all(|row| row.running_ms.is_none() && row.deaths == 0));

    // One that was asked for anew, or taken away, while it ran.
    let due = claim(store, 200).await;
    assert_eq!(ids(&due), ["again", "next"]);
    add(store, schedule("x", ScheduleTiming::Every(7), 207)).await;
    store.cancel_schedule(agent("a"), "again".into()).await.unwrap();
    store.end_run(due[0].clone(), RunResult::Retry { next_ms: 300, error: "no".into() }).await.unwrap();
    store.end_run(due[1].clone(), RunResult::Next { due_ms: 210, error: None }).await.unwrap();
    let rows = store.schedules(agent("a")).await.unwrap();
    assert_eq!(ids(&rows), ["aside", "next"]);
    assert_eq!((rows[1].next_ms, rows[1].running_ms), (Some(207), None));
}

pub(super) async fn counts_deaths_of_schedules_that_run(store: &impl Store) {
    for id in ["a", "b", "c"] {
        add(store, schedule(id, ScheduleTiming::Time, 10)).await;
    }
    assert_eq!(claim(store, 10).await.len(), 3);
    // Each has seen a death, so from now on one is let in at a time.
    store.recover_schedules(3).await.unwrap();
    let first = claim(store, 10).await;
    assert_eq!((ids(&first), first[0].deaths), (vec!["a"], 2));
    assert!(claim(store, 10).await.is_empty());
    assert_eq!(store.next_schedule(classes()).await.unwrap(), None);
    store.recover_schedules(3).await.unwrap();
    let again = claim(store, 10).await;
    assert_eq!((ids(&again), again[0].deaths), (vec!["a"], 3));
    store.recover_schedules(3).await.unwrap();
    let rows = store.schedules(agent("a")).await.unwrap();
    assert_eq!((rows[0].next_ms, rows[0].error.as_deref()), (None, Some("the process died 3 times in a row while it ran")));
    assert_eq!((rows[1].next_ms, rows[1].error.as_deref()), (Some(10), None));
    let next = claim(store, 10).await;
    assert_eq!(ids(&next), ["b"]);
    store.end_run(next[0].clone(), RunResult::Done).await.unwrap();
    assert_eq!(ids(&claim(store, 10).await), ["c"]);
    // What killed the process is not brought back by being asked for.
    let asked = add(store, NewScheduleRow { idempotent: true, ..schedule("x", ScheduleTiming::Time, 99) }).await;
    assert_eq!((asked.id.as_str(), asked.next_ms), ("a", None));
}

/// What is due later than it can be is found and corrected, and nothing else.
pub(super) async fn corrects_schedules_that_are_far_ahead(store: &impl Store) {
    const SLACK: i64 = 100;
    let ahead = 1_000_000;
    let named = |name: &str, new: NewScheduleRow| NewScheduleRow { name: name.into(), id: name.into(), ..new };
    let made = |created_ms: i64, new: NewScheduleRow| NewScheduleRow { now_ms: created_ms, ..new };
    for new in [
        named("every, far", schedule("", ScheduleTiming::Every(70), ahead)),
        named("every, near", schedule("", ScheduleTiming::Every(70), 200)),
        named("cron, far", schedule("", ScheduleTiming::Cron("a".into()), ahead)),
        named("cron, near", schedule("", ScheduleTiming::Cron("a".into()), 210)),
        named("time", schedule("", ScheduleTiming::Time, ahead)),
        named("delay, far", made(ahead, schedule("", ScheduleTiming::Delay, ahead + 30))),
        named("delay, long", schedule("", ScheduleTiming::Delay, ahead)),
    ] {
        add(store, new).await;
    }
    // Two that have failed, one of them by a clock that was ahead.
    for (name, due_ms, next_ms) in [("failed, far", 1, ahead), ("failed, near", 2, 150)] {
        add(store, named(name, schedule("", ScheduleTiming::Delay, due_ms))).await;
        let run = claim(store, due_ms).await.pop().unwrap();
        store.end_run(run, RunResult::Retry { next_ms, error: "no".into() }).await.unwrap();
    }
    let crons = |latest_ms| vec![("a".to_owned(), latest_ms)];
    let far = store.far_schedules(50, SLACK).await.unwrap();
    assert_eq!(far, FarSchedules { crons: crons(ahead), others: true });
    assert_eq!(store.correct_schedules(50, SLACK, vec![(120, "a".into())]).await.unwrap(), 4);
    let next = async || {
        let rows = store.schedules(agent("a")).await.unwrap();
        let mut next: Vec<_> = rows.into_iter().map(|row| (row.name, row.next_ms.unwrap())).collect();
        next.sort();
        next
    };
    let expected = [
        ("cron, far", 120),
        ("cron, near", 210),
        ("delay, far", 80),
        ("delay, long", ahead),
        // The first time of its rhythm.
        ("every, far", 50 + (ahead - 50 - 1) % 70 + 1),
        ("every, near", 200),
        ("failed, far", 50),
        ("failed, near", 150),
        ("time", ahead),
    ];
    assert_eq!(next().await, expected.map(|(name, at)| (name.to_owned(), at)));
    // Once.
    assert_eq!(store.far_schedules(50, SLACK).await.unwrap(), FarSchedules { crons: crons(210), others: false });
    assert_eq!(store.correct_schedules(50, SLACK, vec![(200, "a".into())]).await.unwrap(), 0);
}
