//! Two versions of a program over one database at the same time.
use std::time::Duration;

use forever::Error;
use forever::fiber::{Fiber, FiberState};
use forever::prelude::*;
use forever_testkit::waiting::{eventually, soon};

use crate::{Steps, cluster, store};

const LEASE: Duration = Duration::from_secs(3600);

mod old {
    use super::*;

    #[fiber(name = "report")]
    pub(super) async fn report(steps: Res<Steps>) -> Result<u64, Error> {
        let found = step!("find", steps.did("old find").await?);
        let word: String = recv!("word");
        let sum = step!("sum", steps.did("old sum").await? + found);
        Ok(sum + word.len() as u64)
    }
}

mod new {
    use super::*;

    // The wait has another name, so snapshots at the old one do not fit.
    #[fiber(name = "report")]
    pub(super) async fn report(steps: Res<Steps>) -> Result<u64, Error> {
        let found = step!("find", steps.did("new find").await?);
        let words: String = recv!("word", name = "words");
        let total = step!("total", steps.did("new total").await? + found);
        Ok(total + words.len() as u64)
    }
}

mod decided {
    use super::*;

    // The wait is the same, on another topic.
    #[fiber(name = "report")]
    pub(super) async fn report(steps: Res<Steps>) -> Result<u64, Error> {
        let found = step!("find", steps.did("decided find").await?);
        let word: String = recv!("decision", name = "word");
        let sum = step!("sum", steps.did("decided sum").await? + found);
        Ok(sum + word.len() as u64)
    }
}

/// Workers of several versions, the oldest of which has left a fiber that waits.
struct Scene {
    url: String,
    schema: String,
    steps: Steps,
    old: Forever,
    id: String,
}

impl Scene {
    /// `None` without a server.
    async fn new() -> Option<Self> {
        let (url, schema, steps) = (cluster::url()?, cluster::schema(), Steps::default());
        let old = worker::<old::report>(&url, &schema, &steps).await;
        let id = old.spawn(old::report()).await.unwrap().id().to_owned();
        waits(&old, &id).await;
        Some(Scene { url, schema, steps, old, id })
    }

    async fn worker<F: Fiber>(&self) -> Forever {
        worker::<F>(&self.url, &self.schema, &self.steps).await
    }

    /// The fiber is parked, since `decided` alone is left.
    async fn is_parked(&self, by: &Forever) {
        let why = soon("it is parked", by.fiber::<decided::report>(&self.id).wait()).await.unwrap_err();
        assert!(why.is_parked() && why.reason().contains("`word` waits for a message on `word`, and receives on `decision` now"), "{why}");
    }
}

async fn worker<F: Fiber>(url: &str, schema: &str, steps: &Steps) -> Forever {
    let builder = Forever::builder().store(store(url, schema, LEASE).await).fiber::<F>();
    builder.resource(steps.clone()).open().await.unwrap()
}

async fn waits(forever: &Forever, id: &str) {
    eventually("it waits", async || forever.fiber::<old::report>(id).status().await.unwrap().state == FiberState::Waiting).await;
}

/// The message makes the fiber ready in the worker that cannot run it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fiber_goes_on_in_the_worker_whose_code_fits() {
    let Some(scene) = Scene::new().await else { return };
    let (old, id) = (&scene.old, &scene.id);
    let new = scene.worker::<new::report>().await;
    let by_new = new.spawn(new::report()).await.unwrap().id().to_owned();
    waits(&new, &by_new).await;

    new.send(id, "word", "hello").await.unwrap();
    let result = soon("it ends", old.fiber::<old::report>(id).wait()).await;
    assert_eq!(result.unwrap(), 20);
    old.send(&by_new, "word", "hello").await.unwrap();
    let result = soon("it ends", old.fiber::<new::report>(&by_new).wait()).await;
    assert_eq!(result.unwrap(), 22);
    assert_eq!(scene.steps.sorted(), ["new find", "new total", "old find", "old sum"]);
    old.close().await.unwrap();
    new.close().await.unwrap();
}

/// Nothing is left that could run it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fiber_that_no_worker_can_run_is_parked_and_goes_on_when_one_can() {
    let Some(scene) = Scene::new().await else { return };
    let (old, id) = (&scene.old, &scene.id);
    let (new, other) = (scene.worker::<new::report>().await, scene.worker::<new::report>().await);
    old.close().await.unwrap();
    new.send(id, "word", "hello").await.unwrap();
    let why = soon("it ends", other.fiber::<new::report>(id).wait()).await.unwrap_err();
    assert!(why.is_parked(), "{why}");
    assert!(why.reason().contains("word"), "{why}");

    let old = scene.worker::<old::report>().await;
    eventually("it ends", async || old.fiber::<old::report>(id).status().await.unwrap().state == FiberState::Completed).await;
    assert_eq!(scene.steps.sorted(), ["old find", "old sum"]);
    for forever in [old, new, other] {
        forever.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_on_a_topic_of_other_code_is_accepted_for_its_fiber() {
    let Some(scene) = Scene::new().await else { return };
    let (old, id) = (&scene.old, &scene.id);
    let new = scene.worker::<decided::report>().await;
    let refused = new.send(id, "nonsense", "hello").await.unwrap_err();
    assert!(refused.to_string().contains("it receives on `decision`"), "{refused}");
    new.send(id, "word", "hello").await.unwrap();
    assert_eq!(soon("it ends", old.fiber::<old::report>(id).wait()).await.unwrap(), 20);
    old.close().await.unwrap();
    new.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fiber_that_waits_is_parked_when_the_last_worker_leaves_that_could_run_it() {
    let Some(scene) = Scene::new().await else { return };
    let (old, id) = (&scene.old, &scene.id);
    let new = scene.worker::<decided::report>().await;
    eventually("both know of each other", async || new.workers().await.unwrap().len() == 2).await;
    assert_eq!(new.fiber::<decided::report>(id).status().await.unwrap().state, FiberState::Waiting);
    old.close().await.unwrap();
    scene.is_parked(&new).await;
    new.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fiber_that_waits_for_what_the_only_worker_does_not_receive_is_parked_at_open() {
    let Some(scene) = Scene::new().await else { return };
    scene.old.close().await.unwrap();
    let new = scene.worker::<decided::report>().await;
    scene.is_parked(&new).await;
    new.close().await.unwrap();
}
