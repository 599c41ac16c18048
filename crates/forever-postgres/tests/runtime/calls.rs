//! Calls of agents by name, from the worker that holds the agent and from others.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, EndedFiber, Pushed};
use forever::prelude::*;
use forever::{BoxError, Error, ErrorKind};
use forever_postgres::PostgresStore;
use forever_testkit::waiting::{DEADLINE, eventually, soon};
use tokio::sync::Semaphore;
use tokio_postgres::NoTls;

use crate::{cluster, store};

const LEASE: Duration = Duration::from_secs(3600);

/// What the instances of an agent have done, by worker, and the permits that they wait for.
#[derive(Clone)]
struct World {
    done: Arc<Mutex<Vec<(char, u64)>>>,
    begun: Arc<Mutex<Vec<char>>>,
    permits: Arc<Semaphore>,
    completed: Arc<Mutex<BTreeMap<String, char>>>,
}

impl World {
    fn new() -> Self {
        World { done: Arc::default(), begun: Arc::default(), permits: Arc::new(Semaphore::new(0)), completed: Arc::default() }
    }

    fn begun(&self) -> Vec<char> {
        self.begun.lock().unwrap().clone()
    }
}

struct Counter {
    me: AgentHandle<Counter>,
    worker: char,
    world: World,
}

impl Agent for Counter {
    const CLASS: &'static str = "counter";
    type State = u64;

    async fn on_start(&self) -> Result<(), BoxError> {
        let is_broken = self.me.name() == "broken" || self.me.name() == "of a" && self.worker != 'a';
        if is_broken { Err("it is broken".into()) } else { Ok(()) }
    }

    async fn on_fiber_completed(&self, fiber: &EndedFiber) -> Result<(), BoxError> {
        self.world.completed.lock().unwrap().insert(fiber.result()?, self.worker);
        Ok(())
    }
}

#[allow(clippy::unused_async, reason = "methods of agents are async")]
impl Counter {
    /// Reads, lets others run, and writes.
    async fn add(self: Arc<Self>, n: u64) -> Result<u64, BoxError> {
        let sum = self.me.state().await? + n;
        tokio::task::yield_now().await;
        self.me.set_state(&sum).await?;
        self.world.done.lock().unwrap().push((self.worker, sum));
        Ok(sum)
    }

    /// Begins, and ends with a permit.
    async fn wait(self: Arc<Self>, (): ()) -> Result<char, BoxError> {
        self.world.begun.lock().unwrap().push(self.worker);
        self.world.permits.acquire().await?.forget();
        Ok(self.worker)
    }

    async fn fail(self: Arc<Self>, why: String) -> Result<(), BoxError> {
        assert!(why != "panic", "as it was told");
        Err(why.into())
    }

    async fn itself(self: Arc<Self>, (): ()) -> Result<u64, Error> {
        self.me.call("add", 1).await
    }

    async fn shout(self: Arc<Self>, word: String) -> Result<(), Error> {
        self.me.broadcast(&word)
    }
}

#[fiber]
async fn errand(name: String) -> Result<String, Error> {
    Ok(step!("name", name))
}

async fn open(url: &str, schema: &str, worker: char, world: &World) -> Forever {
    open_over(store(url, schema, LEASE).await, worker, world).await
}

async fn open_over(store: PostgresStore, worker: char, world: &World) -> Forever {
    let world = world.clone();
    let make = move |me: AgentHandle<Counter>| Counter { me, worker, world: world.clone() };
    let builder = Forever::builder().store(store).agent(make).fiber::<errand>();
    let builder = builder.callable("add", Counter::add).callable("wait", Counter::wait).callable("fail", Counter::fail);
    let builder = builder.callable("itself", Counter::itself).callable("shout", Counter::shout);
    builder.idle_timeout(Duration::from_millis(100)).open().await.unwrap()
}

/// Two workers, of which the first has agent `ada` in memory.
async fn two(world: &World) -> Option<(Forever, Forever, forever::agent::Awake<Counter>)> {
    Some(two_of(&cluster::url()?, &cluster::schema(), world).await)
}

/// Number of requests that are stored: those of calls from another worker that have no answer yet.
async fn requests(url: &str, schema: &str) -> i64 {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.query_one(&format!("SELECT count(*) FROM \"{schema}\".agent_requests"), &[]).await.unwrap().get(0)
}

async fn two_of(url: &str, schema: &str, world: &World) -> (Forever, Forever, forever::agent::Awake<Counter>) {
    let (a, b) = (open(url, schema, 'a', world).await, open(url, schema, 'b', world).await);
    let awake = a.agent::<Counter>("ada").wake().await.unwrap();
    (a, b, awake)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_from_another_worker_is_carried_out_where_the_agent_is() {
    let world = World::new();
    let Some((a, b, awake)) = two(&world).await else { return };
    let ada = b.agent::<Counter>("ada");
    assert_eq!(soon("it is answered", async { ada.call::<u64>("add", 2).await }).await.unwrap(), 2);
    assert_eq!(a.agent::<Counter>("ada").call::<u64>("add", 3).await.unwrap(), 5);
    assert_eq!(soon("it is answered", async { ada.call::<u64>("add", 4).await }).await.unwrap(), 9);
    assert_eq!(*world.done.lock().unwrap(), [('a', 2), ('a', 5), ('a', 9)]);
    // An agent in no worker's memory is woken where it is called.
    assert_eq!(b.agent::<Counter>("tom").call::<u64>("add", 1).await.unwrap(), 1);
    assert_eq!(world.done.lock().unwrap().last(), Some(&('b', 1)));
    drop(awake);
    // It leaves memory there when it was not called for a while, and is called here.
    eventually("b carries it out", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        ada.call::<u64>("add", 1).await.unwrap();
        world.done.lock().unwrap().last().is_some_and(|(worker, _)| *worker == 'b')
    })
    .await;
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_a_call_reach_the_caller_in_another_worker_as_in_its_own() {
    let world = World::new();
    let Some((a, b, _awake)) = two(&world).await else { return };
    let (by_a, by_b) = (a.agent::<Counter>("ada"), b.agent::<Counter>("ada"));
    for handle in [by_a, by_b] {
        let fails = async |method: &str, args: &str| {
            let args: serde_json::Value = serde_json::from_str(args).unwrap();
            let error = soon("it fails", async { handle.call::<u64>(method, args).await }).await.unwrap_err();
            (error.kind(), error.to_string())
        };
        let (kind, text) = fails("fail", "\"no\\u0000money\"").await;
        assert_eq!(kind, ErrorKind::Agent);
        assert_eq!(text, "method `fail` of agent `counter/ada` failed: no\0money");
        let (kind, text) = fails("fail", "\"panic\"").await;
        assert!(kind == ErrorKind::Agent && text.contains("panicked: as it was told"), "{text}");
        let (kind, text) = fails("itself", "null").await;
        assert!(kind == ErrorKind::Agent && text.contains("would wait for itself"), "{text}");
        for hostile in ["\"1\"", "-1", "[1]", "null", "{\"n\": 1}", "1e99"] {
            let (kind, text) = fails("add", hostile).await;
            assert!(kind == ErrorKind::Value && text.contains("its arguments cannot be read as `u64`"), "{hostile}: {text}");
        }
        for unknown in ["nothing", "", "forever.fiber_completed", "\0'; DROP TABLE agents; --"] {
            let (kind, text) = fails(unknown, "1").await;
            assert!(matches!(kind, ErrorKind::NotRegistered | ErrorKind::Agent), "{unknown}: {text}");
        }
        // The value is not what the caller wants.
        let error = soon("it fails", async { handle.call::<String>("add", 0).await }).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Value && error.to_string().contains("cannot be read as `alloc::string::String`"), "{error}");
    }
    assert_eq!(world.done.lock().unwrap().len(), 2, "only the last calls have run");
    let error = soon("it fails", async { b.agent::<Counter>("broken").call::<u64>("add", 1).await }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Agent, "{error}");
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_has_begun_in_a_worker_that_dies_is_not_repeated() {
    let world = World::new();
    let (Some(url), schema) = (cluster::url(), cluster::schema()) else { return };
    let (a, b, awake) = two_of(&url, &schema, &world).await;
    let ada = b.agent::<Counter>("ada");
    let call = tokio::spawn(ada.call::<char>("wait", ()).within(DEADLINE).into_future());
    eventually("it has begun", async || world.begun() == ['a']).await;
    // One behind it, which has not begun, is carried out by the worker of its caller.
    let behind = tokio::spawn(ada.call::<u64>("add", 5).within(DEADLINE).into_future());
    eventually("both are requested", async || requests(&url, &schema).await == 2).await;
    // As if the process had died.
    drop((a, awake));
    let error = soon("the caller is told", call).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(error.to_string().contains("has begun, and the worker that carried it out is gone"), "{error}");
    assert_eq!(soon("the other call is answered", behind).await.unwrap().unwrap(), 5);
    assert_eq!(*world.done.lock().unwrap(), [('b', 5)]);
    assert_eq!(world.begun(), ['a'], "it was not repeated");
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_closes_ends_the_call_that_has_begun_and_leaves_the_others() {
    let world = World::new();
    let (Some(url), schema) = (cluster::url(), cluster::schema()) else { return };
    let (a, b, awake) = two_of(&url, &schema, &world).await;
    let ada = b.agent::<Counter>("ada");
    let begun = tokio::spawn(ada.call::<char>("wait", ()).within(DEADLINE).into_future());
    eventually("it has begun", async || world.begun() == ['a']).await;
    let behind = tokio::spawn(ada.call::<char>("wait", ()).within(DEADLINE).into_future());
    eventually("both are requested", async || requests(&url, &schema).await == 2).await;
    drop(awake);
    let (closes, closing) = (a.clone(), tokio::spawn(async move { a.close().await }));
    // It starts nothing more.
    eventually("a closes", async || closes.spawn(errand("late".to_owned())).await.is_err()).await;
    world.permits.add_permits(2);
    assert_eq!(soon("the first one is answered", begun).await.unwrap().unwrap(), 'a');
    soon("a closes", closing).await.unwrap().unwrap();
    assert_eq!(soon("the other one is answered", behind).await.unwrap().unwrap(), 'b');
    assert_eq!(world.begun(), ['a', 'b']);
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_whose_agent_cannot_be_woken_here_after_the_death_of_its_worker_fails() {
    let world = World::new();
    let (Some(url), schema) = (cluster::url(), cluster::schema()) else { return };
    let (a, b, awake) = two_of(&url, &schema, &world).await;
    let of_a = a.agent::<Counter>("of a").wake().await.unwrap();
    let first = tokio::spawn(a.agent::<Counter>("of a").call::<char>("wait", ()).into_future());
    eventually("the agent is busy", async || world.begun() == ['a']).await;
    let call = tokio::spawn(b.agent::<Counter>("of a").call::<u64>("add", 1).within(DEADLINE).into_future());
    eventually("it is requested", async || requests(&url, &schema).await == 1).await;
    first.abort();
    drop((first.await, of_a, awake, a));
    let error = soon("the caller is told", call).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Agent, "{error}");
    assert!(error.to_string().contains("it is broken"), "{error}");
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_is_late_or_whose_caller_is_gone_never_begins() {
    let (Some(url), schema, world) = (cluster::url(), cluster::schema(), World::new()) else { return };
    let (a, b, _awake) = two_of(&url, &schema, &world).await;
    let by_a = a.agent::<Counter>("ada");
    let first = tokio::spawn(by_a.call::<char>("wait", ()).within(DEADLINE).into_future());
    eventually("the agent is busy", async || world.begun() == ['a']).await;
    let (late, dropped) = (Duration::from_millis(300), Duration::from_millis(100));
    for handle in [by_a.clone(), b.agent::<Counter>("ada")] {
        let error = soon("it is late", async { handle.call::<char>("wait", ()).within(late).await }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let unheard = tokio::time::timeout(dropped, handle.call::<char>("wait", ()).within(DEADLINE).into_future()).await;
        assert!(unheard.is_err());
    }
    // A caller that is dropped does not wait until its request is withdrawn.
    eventually("all are withdrawn", async || requests(&url, &schema).await == 0).await;
    // The first one ends; those would begin now.
    world.permits.add_permits(10);
    assert_eq!(soon("it ends", first).await.unwrap().unwrap(), 'a');
    assert_eq!(soon("it is answered", async { b.agent::<Counter>("ada").call::<u64>("add", 1).await }).await.unwrap(), 1);
    assert_eq!(world.begun(), ['a']);

    // One that has begun is not stopped, and its outcome is not known.
    world.permits.forget_permits(10);
    for handle in [by_a, b.agent::<Counter>("ada")] {
        let error = soon("it is late", async { handle.call::<char>("wait", ()).within(Duration::from_secs(1)).await }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        world.permits.add_permits(1);
    }
    assert_eq!(world.begun(), ['a', 'a', 'a']);
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_of_three_workers_are_carried_out_once_each_and_one_at_a_time() {
    const CALLS: u64 = 100;
    let (Some(url), schema, world) = (cluster::url(), cluster::schema(), World::new()) else { return };
    let mut workers = Vec::new();
    for worker in ['a', 'b', 'c'] {
        workers.push(open(&url, &schema, worker, &world).await);
    }
    let awake = workers[1].agent::<Counter>("ada").wake().await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..CALLS {
        let ada = workers[usize::try_from(n % 3).unwrap()].agent::<Counter>("ada");
        calls.spawn(async move { ada.call::<u64>("add", 1).within(DEADLINE).await.unwrap() });
    }
    let mut sums = soon("all are answered", calls.join_all()).await;
    sums.sort_unstable();
    // Each has seen the sum of all before it.
    assert_eq!(sums, (1..=CALLS).collect::<Vec<_>>());
    assert_eq!(*world.done.lock().unwrap(), (1..=CALLS).map(|sum| ('b', sum)).collect::<Vec<_>>());
    drop(awake);
    for worker in workers {
        worker.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_in_another_worker_receives_states_and_broadcasts() {
    let world = World::new();
    let Some((a, b, awake)) = two(&world).await else { return };
    let by_b = b.agent::<Counter>("ada");
    awake.me.broadcast("before").unwrap();
    by_b.call::<u64>("add", 7).await.unwrap();
    let mut connection = by_b.connect().await.unwrap();
    let text = |pushed: Option<Pushed>| match pushed {
        Some(Pushed::State(message)) => format!("state {}", message.json()),
        Some(Pushed::Broadcast(message)) => message.json().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(text(connection.recv().await), "state 7");
    for n in 0..300_u64 {
        awake.me.broadcast(&n).unwrap();
    }
    // Those of other agents are not for it.
    a.agent::<Counter>("tom").broadcast("other").unwrap();
    let mut next = 0;
    while next < 300 {
        match soon("b hears", connection.recv()).await {
            // It was slow for a moment, and loses the oldest.
            Some(Pushed::Lagged(missed)) => next += missed,
            pushed => {
                assert_eq!(text(pushed), next.to_string());
                next += 1;
            }
        }
    }
    by_b.call::<()>("shout", "hello").await.unwrap();
    assert_eq!(text(soon("b hears the shout", connection.recv()).await), "\"hello\"");
    awake.me.set_state(&8).await.unwrap();
    assert_eq!(text(soon("b is shown the state", connection.recv()).await), "state 8");
    a.close().await.unwrap();
    b.close().await.unwrap();
}

/// As behind a pooler: no worker listens, and no lock shows that one lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_looks_suffice() {
    let (Some(url), schema, world) = (cluster::url(), cluster::schema(), World::new()) else { return };
    let opened = async |worker| {
        let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(3)).sign_of_life(false);
        open_over(builder.connect().await.unwrap(), worker, &world).await
    };
    let (a, b) = (opened('a').await, opened('b').await);
    let awake = a.agent::<Counter>("ada").wake().await.unwrap();
    let ada = b.agent::<Counter>("ada");
    let mut connection = ada.connect().await.unwrap();
    assert_eq!(ada.call::<u64>("add", 2).within(DEADLINE).await.unwrap(), 2);
    assert!(matches!(soon("b is shown the state", connection.recv()).await, Some(Pushed::State(_))));
    awake.me.broadcast("hello").unwrap();
    assert!(matches!(soon("b hears", connection.recv()).await, Some(Pushed::Broadcast(_))));
    let begun = tokio::spawn(ada.call::<char>("wait", ()).within(DEADLINE).into_future());
    eventually("it has begun", async || world.begun() == ['a']).await;
    drop((awake, a));
    let error = soon("the caller is told", begun).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(ada.call::<u64>("add", 2).within(DEADLINE).await.unwrap(), 4);
    assert_eq!(*world.done.lock().unwrap(), [('a', 2), ('b', 4)]);
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_hears_of_the_end_of_its_fiber_in_another_worker() {
    let world = World::new();
    let Some((a, b, _awake)) = two(&world).await else { return };
    b.agent::<Counter>("ada").spawn(errand("by b".into())).await.unwrap().wait().await.unwrap();
    eventually("the agent in a is told", async || world.completed.lock().unwrap().get("by b") == Some(&'a')).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
}
