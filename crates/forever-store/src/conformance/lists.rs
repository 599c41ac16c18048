//! Lists and counts for people: by every condition, newest first, by page.
use super::{FIRST, accept, claimed, new, row};
use crate::{
    AcceptResult, AgentId, Claim, End, FiberCount, FiberQuery, FiberState, NewFiber, NewScheduleRow, OpKind, SECRET_MARK, ScheduleTiming,
    Seq, Store, Suspension, Wait,
};

async fn spawn(store: &impl Store, fiber: NewFiber) -> Claim {
    let AcceptResult::Created(claim) = store.accept(fiber).await.unwrap() else { panic!("the id is free") };
    claim
}

async fn ids(store: &impl Store, query: FiberQuery) -> String {
    let newest = query.newest_first;
    let rows = store.list(query, if newest { Seq::MAX } else { Seq::MIN }, 100).await.unwrap();
    rows.into_iter().map(|row| row.id).collect()
}

/// Metadata is any JSON, and text that was written by hand is perhaps none. It keeps no other fiber
/// from being found.
pub(super) async fn finds_fibers_beside_odd_metadata(store: &impl Store) {
    let odd = "a\u{0}b\u{1a}c\"\\u0000";
    let field = serde_json::json!({ odd: odd, "tenant": "acme" }).to_string();
    let deep = "[".repeat(100_000);
    for (id, metadata) in [
        ("a", r#"{"tenant":"acme","\u0000":"\u0000"}"#),
        ("b", &*field),
        ("c", r#"{"tenant":"acme""#),
        ("d", "{"),
        ("e", "null"),
        ("f", r#"[{"tenant":"acme"}]"#),
        ("g", &*deep),
        ("h", r#"{"tenant":"\ud800"}"#),
        ("i", "tenant"),
        ("j", r#"{"tenant":"acme"}"#),
    ] {
        spawn(store, NewFiber { metadata: Some(metadata.into()), ..new(id, None) }).await;
    }
    let with = |field: &str, value: &str| FiberQuery {
        metadata: vec![(field.into(), serde_json::json!(value).to_string())],
        ..FiberQuery::default()
    };
    assert_eq!(ids(store, with("tenant", "acme")).await, "abj");
    assert_eq!(ids(store, with("\0", "\0")).await, "a");
    assert_eq!(ids(store, with(odd, odd)).await, "b");
    assert_eq!(ids(store, with("tenant", "\0")).await, "");
}

pub(super) async fn finds_fibers_by_each_condition(store: &impl Store) {
    let a = spawn(
        store,
        NewFiber { metadata: Some(r#"{"tenant":"acme","n":7,"ok":true,"deep":{"x":1}}"#.into()), ..new("a", Some("order-1")) },
    );
    let a = a.await;
    let b = NewFiber { parent: Some(a.fiber), name: "100%_done".into(), ..new("b", Some("order-2")) };
    spawn(store, NewFiber { now_ms: 50, ..b }).await;
    let agent = Some(AgentId { class: "Desk".into(), name: "Ada".into() });
    let c = spawn(store, NewFiber { agent, now_ms: 60, metadata: Some(r#"["tenant"]"#.into()), ..new("c", None) }).await;
    store.end(c, End::Failed("No such Thing".into()), Vec::new(), Vec::new(), 100).await.unwrap();
    let d = spawn(store, NewFiber { now_ms: 70, metadata: Some(r#"{"tenant":"other","é 'x\"":"y"}"#.into()), ..new("d", None) }).await;
    store.save_op(d, super::ops::record("op", OpKind::Effect), 70).await.unwrap();
    store.suspend(d, Suspension::Parked("in doubt".into()), 80).await.unwrap();

    let all = FiberQuery::default;
    assert_eq!(ids(store, all()).await, "abcd");
    assert_eq!(ids(store, FiberQuery { newest_first: true, ..all() }).await, "dcba");
    let parent = |id: &str| FiberQuery { parent: Some(id.into()), ..all() };
    assert_eq!(
        (ids(store, parent("a")).await, ids(store, parent("b")).await, ids(store, parent("?")).await),
        ("b".into(), String::new(), String::new())
    );
    assert_eq!(ids(store, FiberQuery { key: Some("order-2".into()), ..all() }).await, "b");
    assert_eq!(ids(store, FiberQuery { key: Some("order-".into()), ..all() }).await, "");
    assert_eq!(ids(store, FiberQuery { created_from_ms: Some(50), created_before_ms: Some(70), ..all() }).await, "bc");
    assert_eq!(ids(store, FiberQuery { changed_from_ms: Some(80), ..all() }).await, "acd");
    assert_eq!(ids(store, FiberQuery { changed_from_ms: Some(81), ..all() }).await, "ac");
    assert_eq!(ids(store, FiberQuery { from_seq: Some(c.fiber), ..all() }).await, "cd");
    assert_eq!(ids(store, FiberQuery { only_in_doubt: true, ..all() }).await, "d");
    assert_eq!(ids(store, FiberQuery { only_in_doubt: true, states: vec![FiberState::Failed], ..all() }).await, "");

    let with = |field: &str, value: &str| FiberQuery { metadata: vec![(field.into(), value.into())], ..all() };
    for (field, value, found) in [
        ("tenant", r#""acme""#, "a"),
        ("tenant", "acme", ""),
        ("n", "7", "a"),
        ("n", r#""7""#, ""),
        ("ok", "true", "a"),
        ("ok", "1", ""),
        ("deep", r#"{"x":1}"#, ""),
        ("é 'x\"", r#""y""#, "d"),
        ("0", r#""tenant""#, ""),
    ] {
        assert_eq!(ids(store, with(field, value)).await, found, "{field}: {value}");
    }
    let both = FiberQuery { metadata: vec![("tenant".into(), r#""acme""#.into()), ("n".into(), "8".into())], ..all() };
    assert_eq!(ids(store, both).await, "");

    let text = |text: &str| FiberQuery { text: Some(text.into()), ..all() };
    for (searched, found) in [
        ("ORDER-", "ab"),
        ("0%_d", "b"),
        ("0_", ""),
        ("%", "b"),
        ("no such thing", "c"),
        ("ada", "c"),
        ("\"acme\"", "a"),
        ("work", "acd"),
        ("\\", "d"),
        ("'", "d"),
    ] {
        assert_eq!(ids(store, text(searched)).await, found, "{searched}");
    }
    assert_eq!(ids(store, FiberQuery { states: vec![FiberState::Running], ..text("order") }).await, "ab");
    // A reason that may repeat a secret is not searched.
    for (id, reason) in [("told", "401 for the key".to_owned()), ("secret", format!("{SECRET_MARK}401 for the key"))] {
        let claim = accept(store, id).await;
        store.end(claim, End::Failed(reason), Vec::new(), Vec::new(), 100).await.unwrap();
    }
    assert_eq!(ids(store, text("401 for")).await, "told");
}

pub(super) async fn lists_the_newest_first_by_page(store: &impl Store) {
    for id in ["a", "b", "c", "d", "e", "f"] {
        let claim = accept(store, id).await;
        match id {
            "a" | "d" => drop(store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 100).await.unwrap()),
            "b" | "e" => drop(store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 100).await.unwrap()),
            _ => {}
        }
    }
    for (states, newest_first, pages) in [
        (vec![], true, ["fe", "dc", "ba", ""]),
        (vec![FiberState::Completed, FiberState::Failed], true, ["ed", "ba", "", ""]),
        (vec![FiberState::Failed, FiberState::Completed], false, ["ab", "de", "", ""]),
        (vec![FiberState::Failed, FiberState::Failed], true, ["eb", "", "", ""]),
    ] {
        for name in [None, Some("work".to_owned())] {
            let mut after = if newest_first { Seq::MAX } else { Seq::MIN };
            for page in pages {
                let query = FiberQuery { states: states.clone(), newest_first, name: name.clone(), ..FiberQuery::default() };
                let rows = store.list(query, after, 2).await.unwrap();
                assert_eq!(rows.iter().map(|row| &*row.id).collect::<String>(), page, "{states:?} {newest_first}");
                after = rows.last().map_or(after, |row| row.seq);
            }
        }
    }
}

pub(super) async fn tells_what_a_fiber_waits_for(store: &impl Store) {
    let child = accept(store, "child").await;
    let waits = accept(store, "waits").await;
    assert_eq!((row(store, "waits").await.wait, row(store, "waits").await.saved_ms), (None, None));
    let wait = Wait { due_ms: Some(900), topics: vec!["a".into(), "b".into()], fibers: vec!["child".into()], any_fiber: true };
    store.wait(waits, wait.clone(), 30).await.unwrap();
    let stored = row(store, "waits").await;
    assert_eq!((stored.wait, stored.changed_ms), (Some(wait), 30));
    let due = Wait { due_ms: Some(900), topics: vec!["one".into()], ..Wait::default() };
    store.wait(child, due.clone(), 40).await.unwrap();
    assert_eq!(row(store, "child").await.wait, Some(due));
    store.take_due(1000, 9).await.unwrap();
    assert_eq!(row(store, "child").await.wait, None);
    let claim = claimed(store, child.fiber, FIRST).await;
    store.checkpoint(claim, super::NewSnapshot { now_ms: 1200, ..super::snapshot(1) }).await.unwrap();
    assert_eq!(row(store, "child").await.saved_ms, Some(1200));
}

pub(super) async fn counts_by_function_and_state(store: &impl Store) {
    assert_eq!(store.counts(Vec::new()).await.unwrap(), []);
    for (id, name) in [("a", "work"), ("b", "work"), ("c", "play"), ("d", "work")] {
        let claim = spawn(store, NewFiber { name: name.into(), ..new(id, None) }).await;
        if id == "b" {
            store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 100).await.unwrap();
        }
    }
    let count = |name: &str, state, fibers| FiberCount { name: name.into(), state, fibers };
    let expected = [count("play", FiberState::Running, 1), count("work", FiberState::Completed, 1), count("work", FiberState::Running, 2)];
    assert_eq!(store.counts(Vec::new()).await.unwrap(), expected);
    for (states, counted) in [
        (vec![FiberState::Running], vec![&expected[0], &expected[2]]),
        (vec![FiberState::Completed, FiberState::Waiting], vec![&expected[1]]),
        (vec![FiberState::Completed, FiberState::Running], expected.iter().collect()),
        (vec![FiberState::Pending, FiberState::Failed], vec![]),
    ] {
        assert_eq!(store.counts(states).await.unwrap().iter().collect::<Vec<_>>(), counted);
    }
}

pub(super) async fn lists_agents_and_schedules_by_page(store: &impl Store) {
    let agent = |class: &str, name: &str| AgentId { class: class.into(), name: name.into() };
    for (class, name) in [("b", "x"), ("a", "y"), ("b", "w"), ("B", "z")] {
        store.save_state(agent(class, name), format!("\"{name}\""), None, 5).await.unwrap();
    }
    store.keep_awake(agent("b", "x"), 9).await.unwrap();
    let first = store.agents(None, 3).await.unwrap();
    assert_eq!(first.iter().map(|row| row.agent.to_string()).collect::<Vec<_>>(), ["B/z", "a/y", "b/w"]);
    let second = store.agents(Some(first[2].agent.clone()), 3).await.unwrap();
    let [last] = &second[..] else { panic!("{second:?}") };
    assert_eq!((last.agent.to_string().as_str(), last.state.as_deref(), last.awake_ms), ("b/x", Some("\"x\""), Some(9)));
    assert_eq!(first[0].awake_ms, None);

    for (id, class) in [("s1", "b"), ("s2", "a"), ("s3", "b")] {
        let schedule = NewScheduleRow {
            id: id.into(),
            agent: agent(class, "x"),
            name: "remind".into(),
            payload: "1".into(),
            timing: ScheduleTiming::Delay,
            due_ms: 70,
            idempotent: false,
            begun: Vec::new(),
            now_ms: 1,
        };
        store.add_schedule(schedule).await.unwrap();
    }
    let ids = async |after: Option<&str>, limit| {
        let rows = store.all_schedules(after.map(str::to_owned), limit).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<String>()
    };
    assert_eq!((ids(None, 2).await, ids(Some("s2"), 2).await, ids(Some("?"), 9).await), ("s1s2".into(), "s3".into(), "s1s2s3".into()));
}
