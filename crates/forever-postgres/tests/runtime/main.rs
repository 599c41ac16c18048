//! Whole runtimes over the store: one worker that is killed and opened again, and two that share a database.
mod agents;
mod calls;
mod clients;
mod clocks;
mod commands;
mod damage;
mod elsewhere;
mod events;
mod paused;
mod serve;
mod servers;
mod streams;
mod transactions;
mod versions;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::fiber::FiberState;
use forever::prelude::*;
use forever::{BoxError, Error};
use forever_postgres::PostgresStore;
use forever_testkit::postgres as cluster;
use forever_testkit::waiting::{eventually, soon};

/// The steps that were carried out.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<String>>>);

impl Steps {
    async fn did(&self, step: &str) -> Result<u64, Error> {
        tokio::task::yield_now().await;
        self.0.lock().unwrap().push(step.to_owned());
        Ok(step.len() as u64)
    }

    fn sorted(&self) -> Vec<String> {
        let mut done = self.0.lock().unwrap().clone();
        done.sort();
        done
    }
}

#[fiber]
async fn double(steps: Res<Steps>, n: u64) -> Result<u64, Error> {
    step!("double", steps.did("double").await?);
    Ok(2 * n)
}

#[fiber]
async fn errand(steps: Res<Steps>) -> Result<String, BoxError> {
    let first = step!("first", steps.did("first").await?);
    let helper = spawn!(double(first));
    sleep!(Duration::from_millis(5));
    let word: String = recv!("word");
    let doubled = wait!(helper)?;
    step!("last", steps.did("last").await?);
    Ok(format!("{word} {doubled}"))
}

#[fiber]
async fn long(steps: Res<Steps>, name: String, until: u64) -> Result<u64, Error> {
    let mut sum = 0;
    for n in 0..until {
        sum += step!("add", {
            steps.did(&format!("{name} {n:03}")).await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
            n
        });
    }
    Ok(sum)
}

async fn store(url: &str, schema: &str, lease: Duration) -> PostgresStore {
    PostgresStore::builder(url).schema(schema).lease(lease).connect().await.unwrap()
}

async fn open(url: &str, schema: &str, lease: Duration, steps: &Steps) -> Forever {
    let store = store(url, schema, lease).await;
    let builder = Forever::builder().store(store).fiber::<errand>().fiber::<double>().fiber::<long>();
    builder.resource(steps.clone()).open().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_worker_is_opened_again_and_does_no_step_twice() {
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let lease = Duration::from_secs(3600);
    let forever = open(&url, &schema, lease, &steps).await;
    let id = forever.spawn(errand()).key("once").await.unwrap().id().to_owned();
    eventually("it waits for a message", async || {
        let status = forever.fiber::<errand>(&id).status().await.unwrap();
        status.state == FiberState::Waiting && status.at.as_deref() == Some("word")
    })
    .await;
    // As if the process had died.
    drop(forever);

    let forever = open(&url, &schema, lease, &steps).await;
    assert!(!forever.spawn(errand()).key("once").await.unwrap().accepted());
    forever.send(&id, "word", "twice five is").await.unwrap();
    let handle = forever.fiber::<errand>(&id);
    let result = soon("it ends", handle.wait()).await.unwrap();
    assert_eq!(result, "twice five is 10");
    assert_eq!(steps.sorted(), ["double", "first", "last"], "each step once");
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fibers_of_a_dead_worker_go_on_in_another_and_do_no_finished_step_twice() {
    const FIBERS: u64 = 8;
    const STEPS: u64 = 60;
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    // The lease alone would keep this test waiting for an hour.
    let lease = Duration::from_secs(3600);
    let a = open(&url, &schema, lease, &steps).await;
    let b = open(&url, &schema, lease, &steps).await;
    let mut ids = Vec::new();
    for n in 0..FIBERS {
        ids.push(a.spawn(long(format!("f{n}"), STEPS)).await.unwrap().id().to_owned());
    }
    eventually("they are under way", async || steps.0.lock().unwrap().len() as u64 > FIBERS * STEPS / 4).await;
    drop(a);
    for id in &ids {
        let handle = b.fiber::<long>(id);
        eventually("it ends in the other worker", async || handle.status().await.unwrap().state == FiberState::Completed).await;
    }
    let done = steps.sorted();
    let mut each = done.clone();
    each.dedup();
    assert_eq!(each.len() as u64, FIBERS * STEPS, "every step was done");
    // A step that was under way when the worker died is done again, and no other one.
    assert!(done.len() as u64 <= FIBERS * STEPS + FIBERS, "{} repetitions", done.len() - each.len());
    for id in &ids {
        assert_eq!(soon("it ends", b.fiber::<long>(id).wait()).await.unwrap(), STEPS * (STEPS - 1) / 2);
    }
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clean_close_hands_its_fibers_to_another_worker() {
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let a = open(&url, &schema, Duration::from_secs(3600), &steps).await;
    let b = open(&url, &schema, Duration::from_secs(3600), &steps).await;
    let id = a.spawn(long("f".into(), 40)).await.unwrap().id().to_owned();
    eventually("it is under way", async || steps.0.lock().unwrap().len() > 5).await;
    a.close().await.unwrap();
    let handle = b.fiber::<long>(&id);
    eventually("it ends in the other worker", async || handle.status().await.unwrap().state == FiberState::Completed).await;
    b.close().await.unwrap();
}
