//! Two workers: what one of them asks of fibers that the other one runs.
use std::time::Duration;

use forever::Forever;
use forever::fiber::FiberState;
use forever_testkit::waiting::{eventually, soon};

use crate::{Steps, cluster, double, errand, long, open};

const LEASE: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_is_waited_for_in_another_worker() {
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let (a, b) = (open(&url, &schema, LEASE, &steps).await, open(&url, &schema, LEASE, &steps).await);
    let id = a.spawn(long("f".into(), 30)).await.unwrap().id().to_owned();
    let by_b = b.fiber::<long>(&id);
    assert_eq!(soon("b hears of the end", by_b.wait()).await.unwrap(), 435);
    // One that has ended already, and one that does not exist.
    assert_eq!(soon("b reads the end", by_b.wait()).await.unwrap(), 435);
    assert!(soon("b finds nothing", b.fiber::<long>("nothing").wait()).await.unwrap_err().is_not_found());
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_from_another_worker_is_received() {
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let (a, b) = (open(&url, &schema, LEASE, &steps).await, open(&url, &schema, LEASE, &steps).await);
    let handle = a.spawn(errand()).await.unwrap();
    b.send(handle.id(), "word", "from b:").await.unwrap();
    assert_eq!(soon("a hears of the end, wherever it was", handle.wait()).await.unwrap(), "from b: 10");
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_fiber_is_cancelled_by_another_worker() {
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let (a, b) = (open(&url, &schema, LEASE, &steps).await, open(&url, &schema, LEASE, &steps).await);
    // It would run for hours.
    let handle = a.spawn(long("f".into(), 1_000_000)).await.unwrap();
    eventually("it is under way", async || steps.0.lock().unwrap().len() > 3).await;
    b.cancel(handle.id(), "not wanted").await.unwrap();
    let why = soon("it ends", b.fiber::<long>(handle.id()).wait()).await.unwrap_err();
    assert!(why.is_cancelled(), "{why}");
    assert_eq!(why.reason(), "not wanted");
    assert!(soon("a hears of it too", handle.wait()).await.unwrap_err().is_cancelled());
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_are_listed_while_they_are_open() {
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let (a, b) = (open(&url, &schema, LEASE, &steps).await, open(&url, &schema, LEASE, &steps).await);
    let handle = a.spawn(long("f".into(), 1_000_000)).await.unwrap();
    eventually("it is under way", async || !steps.0.lock().unwrap().is_empty()).await;
    let seen: Vec<_> = b.workers().await.unwrap().into_iter().map(|w| (w.id, w.is_this, w.process, w.running)).collect();
    let process = Some(std::process::id());
    assert_eq!(seen, [(1, false, process, 1), (2, true, process, 0)]);
    handle.cancel("enough").await.unwrap();
    a.close().await.unwrap();
    assert_eq!(b.workers().await.unwrap().into_iter().map(|worker| worker.id).collect::<Vec<_>>(), [2]);
    assert_eq!(b.fiber::<double>("x").status().await.unwrap_err().kind(), forever::fiber::FiberErrorKind::NotFound);
    assert_eq!(b.fiber::<long>(handle.id()).status().await.unwrap().state, FiberState::Cancelled);
    b.close().await.unwrap();
}

/// The schema is the default one, which other runs over the same server may have used before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builder_opens_a_database_by_its_url() {
    let Some(url) = cluster::url() else { return };
    let steps = Steps::default();
    let forever = Forever::builder().postgres(&url).fiber::<double>().resource(steps.clone()).open().await.unwrap();
    assert_eq!(forever.run(double(21)).await.unwrap(), 42);
    assert_eq!(steps.sorted(), ["double"]);
    assert!(forever.workers().await.unwrap().iter().any(|worker| worker.is_this));
    forever.close().await.unwrap();
    let refused = Forever::builder().postgres("port=none").open().await.unwrap_err();
    assert_eq!(refused.kind(), forever::ErrorKind::Setup, "{refused}");
}
