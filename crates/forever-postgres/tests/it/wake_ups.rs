//! Wake-ups that two workers bring about at the same time: none is lost, and none comes twice.
use std::sync::Arc;
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{AdminStore, CommandResult, FiberState, FiberStore, NewFiber, NewMessage, NewSnapshot, Wait, WaitResult};

use crate::{accept, cluster, end, fiber, row, snapshot};

const ROUNDS: usize = 30;

async fn two_workers() -> Option<(Arc<PostgresStore>, Arc<PostgresStore>)> {
    let url = cluster::url()?;
    let builder = PostgresStore::builder(url).schema(cluster::schema()).lease(Duration::from_secs(3600));
    let (a, b) = (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    assert_eq!((a.join(0).await.unwrap(), b.join(0).await.unwrap()), (1, 2));
    Some((Arc::new(a), Arc::new(b)))
}

/// Runs two futures at the same time, on threads of their own.
async fn at_once<T: Send + 'static, U: Send + 'static>(
    one: impl Future<Output = T> + Send + 'static,
    other: impl Future<Output = U> + Send + 'static,
) -> (T, U) {
    let other = tokio::spawn(other);
    let one = tokio::spawn(one).await.unwrap();
    (one, other.await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parent_is_woken_by_children_that_end_at_the_same_time() {
    let Some((a, b)) = two_workers().await else { return };
    for n in 0..ROUNDS {
        let parent = accept(&*a, &format!("p{n}"), 1).await;
        let (one, two) = (accept(&*a, &format!("a{n}"), 1).await, accept(&*b, &format!("b{n}"), 2).await);
        let both = Wait { fibers: vec![format!("a{n}"), format!("b{n}")], ..Wait::default() };
        assert_eq!(a.wait(parent, both, 5).await.unwrap(), WaitResult::Waiting);
        let (by_a, by_b) = (Arc::clone(&a), Arc::clone(&b));
        at_once(async move { end(&*by_a, one).await }, async move { end(&*by_b, two).await }).await;
        assert_eq!(row(&*a, &format!("p{n}")).await.unwrap().state, FiberState::Pending, "round {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_that_begins_when_its_condition_is_met_is_not_missed() {
    let Some((a, b)) = two_workers().await else { return };
    for n in 0..ROUNDS {
        let (parent, child) = (accept(&*a, &format!("p{n}"), 1).await, accept(&*b, &format!("c{n}"), 2).await);
        let wait = Wait { fibers: vec![format!("c{n}")], topics: vec!["never".into()], ..Wait::default() };
        let (by_a, by_b) = (Arc::clone(&a), Arc::clone(&b));
        let (waits, ()) = at_once(async move { by_a.wait(parent, wait, 5).await.unwrap() }, async move { end(&*by_b, child).await }).await;
        let expected = if waits == WaitResult::Ready { FiberState::Running } else { FiberState::Pending };
        assert_eq!(row(&*a, &format!("p{n}")).await.unwrap().state, expected, "round {n}");

        let receiver = accept(&*a, &format!("r{n}"), 1).await;
        let message = NewMessage { to: format!("r{n}"), id: None, topic: "go".into(), data: "1".into(), now_ms: 5 };
        let (by_a, by_b) = (Arc::clone(&a), Arc::clone(&b));
        let wait = Wait { topics: vec!["go".into()], ..Wait::default() };
        let (waits, _) =
            at_once(async move { by_a.wait(receiver, wait, 5).await.unwrap() }, async move { by_b.send(message).await.unwrap() }).await;
        let expected = if waits == WaitResult::Ready { FiberState::Running } else { FiberState::Pending };
        assert_eq!(row(&*a, &format!("r{n}")).await.unwrap().state, expected, "round {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_is_made_while_its_parent_is_cancelled_is_cancelled_or_not_made() {
    let Some((a, b)) = two_workers().await else { return };
    for n in 0..ROUNDS {
        let parent = accept(&*a, &format!("p{n}"), 1).await;
        let child = NewFiber { parent: Some(parent.fiber), worker: None, ..fiber(&format!("c{n}"), None) };
        let (by_a, by_b) = (Arc::clone(&a), Arc::clone(&b));
        let spawns = async move { by_a.checkpoint(parent, NewSnapshot { children: vec![child], ..snapshot(1) }).await };
        let id = format!("p{n}");
        let cancel = async move { by_b.cancel(id, "enough".into(), 6).await.unwrap() };
        let (made, cancelled) = at_once(spawns, cancel).await;
        let CommandResult::Done(cancelled) = cancelled else { panic!("{cancelled:?}") };
        let child = row(&*b, &format!("c{n}")).await;
        match (made.is_ok(), child) {
            (true, Some(child)) => {
                assert_eq!(child.state, FiberState::Cancelled, "round {n}");
                assert_eq!(cancelled.len(), 2);
            }
            (false, None) => assert_eq!(cancelled.len(), 1),
            (made, child) => panic!("round {n}: made {made}, and there is {child:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_fiber_is_claimed_by_one_of_two_workers() {
    let Some((a, b)) = two_workers().await else { return };
    for n in 0..ROUNDS {
        let held = accept(&*a, &format!("f{n}"), 1).await;
        a.suspend(held, forever_store::Suspension::Interrupted("x".into()), 5).await.unwrap();
        let (by_a, by_b) = (Arc::clone(&a), Arc::clone(&b));
        // The release has raised the epoch.
        let held = forever_store::Claim { epoch: held.epoch + 1, ..held };
        let of = |worker| (held, worker);
        let (one, two) = (of(1), of(2));
        let (by_one, by_two) =
            at_once(async move { by_a.claim(one.0, one.1, 6).await.unwrap() }, async move { by_b.claim(two.0, two.1, 6).await.unwrap() })
                .await;
        let granted = |claimed: &forever_store::ClaimResult| matches!(claimed, forever_store::ClaimResult::Granted(..));
        assert_ne!(granted(&by_one), granted(&by_two), "round {n}: {by_one:?} and {by_two:?}");
    }
}
