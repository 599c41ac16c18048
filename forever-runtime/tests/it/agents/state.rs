//! State, broadcasts and connections.
use std::time::Duration;

use forever_runtime::agent::Pushed;
use forever_runtime::testing::VirtualClock;
use forever_runtime::{ErrorKind, Forever};

use super::{Clerk, MINUTE, World};

fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn state(pushed: Option<Pushed>) -> Vec<String> {
    match pushed {
        Some(Pushed::State(message)) => message.read().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_stored_when_set_state_returns_and_survives_a_crash() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    assert_eq!(agent.state().await.unwrap(), lines(&[]));
    agent.set_state(&lines(&["one"])).await.unwrap();
    assert_eq!(world.place.text("SELECT state FROM agents").as_deref(), Some(r#"["one"]"#));
    agent.set_state(&lines(&["one", "two"])).await.unwrap();
    assert_eq!(agent.state().await.unwrap(), lines(&["one", "two"]));
    assert_eq!(forever.agent::<Clerk>("b").state().await.unwrap(), lines(&[]));
    assert!(!agent.is_awake(), "a state needs no agent in memory");
    drop((forever, agent));

    let forever = world.open().await;
    assert_eq!(forever.agent::<Clerk>("a").state().await.unwrap(), lines(&["one", "two"]));
}

#[tokio::test(start_paused = true)]
async fn a_connection_gets_the_state_first_and_then_everything_in_order() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let mut early = agent.connect().await.unwrap();
    assert_eq!(early.try_recv(), None, "no state was set yet");
    agent.set_state(&lines(&["one"])).await.unwrap();
    let mut late = agent.connect().await.unwrap();
    agent.broadcast(&7).unwrap();
    agent.set_state(&lines(&["two"])).await.unwrap();
    forever.agent::<Clerk>("b").set_state(&lines(&["other"])).await.unwrap();
    forever.agent::<Clerk>("b").broadcast("other").unwrap();
    for connection in [&mut early, &mut late] {
        assert_eq!(state(connection.recv().await), ["one"]);
        match connection.recv().await {
            Some(Pushed::Broadcast(message)) => assert_eq!((message.json(), message.read::<u8>().unwrap()), ("7", 7)),
            other => panic!("{other:?}"),
        }
        assert_eq!(state(connection.recv().await), ["two"]);
        assert_eq!(connection.try_recv(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_keeps_the_agent_awake_and_ends_with_the_runtime() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let mut connection = agent.connect().await.unwrap();
    world.pass(&forever, 10 * MINUTE).await;
    assert!(agent.is_awake());
    agent.broadcast("last").unwrap();
    forever.close().await.unwrap();
    assert!(matches!(connection.recv().await, Some(Pushed::Broadcast(_))), "what was sent before the end is received");
    assert_eq!(connection.recv().await, None);

    let forever = Forever::builder().in_memory().clock(VirtualClock::new()).open().await.unwrap();
    drop(forever);
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_connections_leaves() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    drop(agent.connect().await.unwrap());
    world.pass(&forever, 10 * MINUTE).await;
    assert!(!agent.is_awake());
}

#[tokio::test(start_paused = true)]
async fn a_slow_connection_loses_the_oldest_messages_and_is_told_how_many() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let (mut slow, mut quick) = (agent.connect().await.unwrap(), agent.connect().await.unwrap());
    for n in 0..1000 {
        agent.broadcast(&n).unwrap();
        assert!(matches!(quick.recv().await, Some(Pushed::Broadcast(message)) if message.read::<u32>().unwrap() == n));
    }
    agent.set_state(&lines(&["last"])).await.unwrap();
    assert_eq!(slow.recv().await, Some(Pushed::Lagged(745)));
    let mut received = Vec::new();
    while let Some(Pushed::Broadcast(message)) = slow.try_recv() {
        received.push(message.read::<u32>().unwrap());
    }
    assert_eq!(received, (745..1000).collect::<Vec<_>>());
    assert_eq!(state(quick.recv().await), ["last"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_no_state_half_set() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let mut connection = agent.connect().await.unwrap();
    let wanted = lines(&["one"]);
    let gave_up = tokio::time::timeout(Duration::ZERO, agent.set_state(&wanted)).await;
    if gave_up.is_err() {
        assert_eq!(state(connection.recv().await), ["one"]);
    }
    assert_eq!(agent.state().await.unwrap(), ["one"]);
    assert_eq!(world.place.text("SELECT state FROM agents").as_deref(), Some(r#"["one"]"#));
}

#[tokio::test(start_paused = true)]
async fn states_set_at_the_same_time_are_pushed_in_the_order_in_which_they_are_stored() {
    let world = World::new();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let mut connection = agent.connect().await.unwrap();
    let mut sets = tokio::task::JoinSet::new();
    for n in 0..100 {
        let agent = agent.clone();
        sets.spawn(async move { agent.set_state(&vec![n.to_string()]).await.unwrap() });
    }
    while let Some(set) = sets.join_next().await {
        set.unwrap();
    }
    let mut last = Vec::new();
    for _ in 0..100 {
        last = state(connection.recv().await);
    }
    assert_eq!(agent.state().await.unwrap(), last);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_state_is_an_error_and_can_be_replaced() {
    let world = World::new();
    let forever = world.open().await;
    forever.agent::<Clerk>("a").set_state(&lines(&["one"])).await.unwrap();
    forever.agent::<Clerk>("b").set_state(&lines(&["two"])).await.unwrap();
    drop(forever);
    world.place.sql().execute("UPDATE agents SET state = '{\"half' WHERE name = 'a'", ()).unwrap();
    let forever = world.open().await;
    let agent = forever.agent::<Clerk>("a");
    let error = agent.state().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    assert!(
        error.to_string().starts_with("the state of agent `clerk/a` cannot be read as `alloc::vec::Vec<alloc::string::String>`"),
        "{error}"
    );
    assert_eq!(forever.agent::<Clerk>("b").state().await.unwrap(), ["two"]);
    agent.set_state(&lines(&["new"])).await.unwrap();
    assert_eq!(agent.state().await.unwrap(), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_saved_is_an_error() {
    let world = World::new();
    let forever = world.open().await;
    let mut deep = serde_json::Value::Null;
    for _ in 0..200 {
        deep = serde_json::Value::Array(vec![deep]);
    }
    let error = forever.agent::<Clerk>("a").broadcast(&deep).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    let error = forever.agent::<Clerk>("a").schedule(MINUTE, "x", deep).await.unwrap_err();
    assert!(error.to_string().starts_with("failed to schedule `x` of agent `clerk/a`: its payload cannot be saved: "), "{error}");
}
