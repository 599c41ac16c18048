//! Programs that hold locks on tables of the store, and roles without connections.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{AgentStore, ErrorKind, FiberStore, Seq};
use forever_testkit::waiting::{eventually, soon};
use tokio::task::JoinSet;

use crate::schemas::client;
use crate::transactions::work;
use crate::workers::{joined, renewed, shows_life};
use crate::{accept, cluster, end, ready_of, snapshot};

/// Longer than a test may take: what a test waits for must not be the end of a call.
const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_that_another_program_locks_stops_its_fiber_alone() {
    const FIBERS: usize = 20;
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(60)).call_limit(LONG);
    let (a, one) = joined(builder).await;
    let a = Arc::new(a);
    let mut held = Vec::new();
    for n in 0..FIBERS {
        held.push(accept(&*a, &format!("f{n}"), one).await);
    }
    let blocker = client(&url).await;
    let lock = |fiber: i64| format!("SELECT 1 FROM \"{schema}\".snapshots WHERE fiber = {fiber} FOR UPDATE;");
    blocker.batch_execute(&format!("BEGIN; {} {}", lock(held[0].fiber), lock(held[1].fiber))).await.unwrap();
    let mut pending = JoinSet::new();
    let (at_a, first, second) = (Arc::clone(&a), held[0], held[1]);
    pending.spawn(async move { at_a.checkpoint(first, snapshot(1)).await.map(drop) });
    let at_a = Arc::clone(&a);
    pending.spawn(async move { at_a.end(second, forever_store::End::Completed("1".into()), Vec::new(), Vec::new(), 4).await.map(drop) });
    for number in 1..=3 {
        let mut others = JoinSet::new();
        for held in held[2..].iter().copied() {
            let a = Arc::clone(&a);
            others.spawn(async move { a.checkpoint(held, snapshot(number)).await });
        }
        let stored = soon("others go on", others.join_all()).await;
        assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    }
    let ended = async {
        for held in &held[2..] {
            end(&*a, *held).await;
        }
        accept(&*a, "new", one).await
    };
    soon("others begin and end", ended).await;
    assert!(pending.try_join_next().is_none(), "the row is locked");
    blocker.batch_execute("ROLLBACK").await.unwrap();
    let stored = soon("they go on", pending.join_all()).await;
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    assert_eq!(a.load(held[0].fiber).await.unwrap().number, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_that_another_program_locks_takes_no_lease_away() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(3)).call_limit(LONG);
    let (a, one) = joined(builder.clone()).await;
    let (b, two) = joined(builder).await;
    let (a, b) = (Arc::new(a), Arc::new(b));
    let mut held = vec![(Arc::clone(&a), accept(&*a, "a", one).await), (Arc::clone(&b), accept(&*b, "b", two).await)];
    let (blocker, watcher) = (client(&url).await, client(&url).await);
    blocker.batch_execute(&format!("BEGIN; LOCK TABLE \"{schema}\".snapshots, \"{schema}\".fibers")).await.unwrap();
    let mut pending = JoinSet::new();
    for (store, held) in held.clone() {
        pending.spawn(async move { store.checkpoint(held, snapshot(1)).await.map(drop) });
    }
    // Each quarter of a lease, so for longer than a lease.
    for worker in [one, two] {
        renewed(&watcher, &schema, worker, 5).await;
    }
    assert!(pending.try_join_next().is_none(), "the tables are locked");
    blocker.batch_execute("ROLLBACK").await.unwrap();
    let stored = soon("they go on", pending.join_all()).await;
    assert!(stored.iter().all(Result::is_ok), "no claim is lost: {stored:?}");
    for (store, held) in held.drain(..) {
        store.checkpoint(held, snapshot(2)).await.unwrap();
        end(&*store, held).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn worker_goes_on_with_the_connections_that_it_has() {
    let Some(server) = cluster::own() else { return };
    let admin = client(&server.url()).await;
    admin.batch_execute("CREATE ROLE few LOGIN; GRANT CREATE ON DATABASE postgres TO few").await.unwrap();
    let limit = async |connections: u32| admin.batch_execute(&format!("ALTER ROLE few CONNECTION LIMIT {connections}")).await.unwrap();
    let builder = PostgresStore::builder(server.url().replace("user=postgres", "user=few")).lease(Duration::from_secs(4));
    let builder = builder.patience(Duration::from_secs(1)).sign_of_life(false);

    limit(0).await;
    let error = builder.clone().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    let cause = std::error::Error::source(&error).and_then(std::error::Error::source).map_or_else(String::new, ToString::to_string);
    assert!(cause.contains("too many connections for role \"few\""), "{error}: {cause}");

    // A pool of 8 that has one connection, and a worker that gets no other one for its lease.
    limit(1).await;
    let (a, one) = joined(builder).await;
    let a = Arc::new(a);
    let mut tasks = JoinSet::new();
    let is_over = Arc::new(AtomicBool::new(false));
    for n in 0..16 {
        let (a, is_over) = (Arc::clone(&a), Arc::clone(&is_over));
        tasks.spawn(async move {
            let held = accept(&*a, &format!("f{n}"), one).await;
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                a.checkpoint(held, snapshot(number)).await.unwrap();
                assert_eq!(a.load(held.fiber).await.unwrap().number, number);
            }
            end(&*a, held).await;
        });
    }
    renewed(&admin, "forever", one, 6).await;
    is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_gets_no_connection_fails_with_the_reason() {
    let Some(server) = cluster::own() else { return };
    let admin = client(&server.url()).await;
    admin.batch_execute("CREATE ROLE few_more LOGIN CONNECTION LIMIT 1; GRANT CREATE ON DATABASE postgres TO few_more").await.unwrap();
    let builder = PostgresStore::builder(server.url().replace("user=postgres", "user=few_more")).schema(cluster::schema());
    // Its one connection is of the pool of operations.
    let (a, one) = joined(builder.patience(Duration::from_secs(1)).sign_of_life(false).lease(Duration::from_secs(60))).await;
    let claim = accept(&a, "f", one).await;
    let mut work = work(async |_| Ok("7".to_owned()));
    for of in [None, Some((claim, None))] {
        let error = soon("it fails", a.transact(of, &mut work, 5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        let cause = std::error::Error::source(&error).and_then(std::error::Error::source).map_or_else(String::new, ToString::to_string);
        assert!(cause.contains("too many connections for role \"few_more\""), "{error}: {cause}");
    }
    end(&a, claim).await;
}

/// Clocks of workers that differ by days. What a store is given as the time is its worker's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_of_workers_that_differ_take_no_lease_away() {
    const DAY_MS: i64 = 86_400_000;
    let Some(url) = cluster::url() else { return };
    let (schema, looks) = (cluster::schema(), client(&url).await);
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(2));
    let (behind, ahead) = (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    let now_ms = 1_800_000_000_000;
    let one = behind.join(now_ms - DAY_MS).await.unwrap();
    let two = ahead.join(now_ms + DAY_MS).await.unwrap();
    let (of_one, of_two) = (accept(&behind, "behind", one).await, accept(&ahead, "ahead", two).await);
    for number in 1..=6 {
        ahead.take_over(two, now_ms + DAY_MS).await.unwrap();
        behind.take_over(one, now_ms - DAY_MS).await.unwrap();
        behind.checkpoint(of_one, snapshot(number)).await.unwrap();
        ahead.checkpoint(of_two, snapshot(number)).await.unwrap();
        // Longer than a lease in all.
        renewed(&looks, &schema, one, 1).await;
        renewed(&looks, &schema, two, 1).await;
    }
    end(&behind, of_one).await;
    end(&ahead, of_two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_of_a_dead_worker_that_is_locked_holds_up_no_other_fiber() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    // The lease would keep this test waiting for an hour.
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(3600));
    let (a, one) = joined(builder.clone()).await;
    let (b, _) = joined(builder).await;
    let mut ready = ready_of(&b);
    let locked = accept(&a, "locked", one).await;
    accept(&a, "free", one).await;
    shows_life(&a, one).await;
    let blocker = client(&url).await;
    blocker.batch_execute(&format!("BEGIN; SELECT 1 FROM \"{schema}\".fibers WHERE seq = {} FOR UPDATE", locked.fiber)).await.unwrap();
    a.abandon();
    let mut next = async || soon("it is taken over", ready.recv()).await.unwrap().id;
    assert_eq!(next().await, "free");
    blocker.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(next().await, "locked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_of_a_dead_worker_that_is_locked_holds_up_no_fiber() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(3600));
    let (a, one) = joined(builder.clone()).await;
    let (b, _) = joined(builder.clone()).await;
    b.recover_schedules(3).await.unwrap();
    let mut ready = ready_of(&b);
    accept(&a, "free", one).await;
    shows_life(&a, one).await;
    let (blocker, looks) = (client(&url).await, client(&url).await);
    let running = format!(
        "SET search_path = \"{schema}\";
         INSERT INTO schedules (id, class, agent, name, payload, kind, due_ms, next_ms, running_ms, worker, deaths, created_ms)
         VALUES ('s', 'gardener', 'roses', 'water', 'null', 'delay', 1, 1, 1, {one}, 1, 1)"
    );
    blocker.batch_execute(&running).await.unwrap();
    blocker.batch_execute("BEGIN; SELECT 1 FROM schedules FOR UPDATE").await.unwrap();
    a.abandon();
    assert_eq!(soon("it is taken over", ready.recv()).await.unwrap().id, "free");
    let (c, _) = joined(builder).await;
    soon("another worker opens", c.recover_schedules(3)).await.unwrap();
    blocker.batch_execute("ROLLBACK").await.unwrap();
    let is_due = format!("SELECT running_ms IS NULL AND worker IS NULL FROM \"{schema}\".schedules");
    eventually("it can run again", async || looks.query_one(&is_due, &[]).await.unwrap().get(0)).await;
}

/// The fibers that are ready for other workers, with their deaths.
async fn ready(store: &PostgresStore) -> Vec<(String, u32)> {
    store.ready(Seq::MIN, 99).await.unwrap().into_iter().map(|fiber| (fiber.id, fiber.deaths)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_row_holds_up_the_hand_over_of_its_fiber_alone() {
    const FIBERS: usize = 8;
    let Some(url) = cluster::url() else { return };
    for (locked, free) in
        [("fibers WHERE seq = 1", 7), ("snapshots WHERE fiber = 1", 7), ("schedules", FIBERS), ("agents", FIBERS), ("turns", FIBERS)]
    {
        let schema = cluster::schema();
        let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(3600)).call_limit(LONG).patience(LONG);
        let (a, one) = joined(builder.clone()).await;
        let (b, _) = joined(builder).await;
        for n in 0..FIBERS {
            accept(&a, &format!("f{n}"), one).await;
        }
        let (blocker, looks) = (client(&url).await, client(&url).await);
        let counted_in_advance = format!(
            "SET search_path = \"{schema}\";
             INSERT INTO schedules (id, class, agent, name, payload, kind, due_ms, running_ms, worker, deaths, created_ms)
             VALUES ('s', 'gardener', 'roses', 'water', 'null', 'delay', 1, 1, {one}, 1, 1);
             INSERT INTO agents (class, name, heartbeat_ms, deaths, worker, changed_ms) VALUES ('gardener', 'roses', 1, 1, {one}, 1);
             INSERT INTO chats (class, agent) VALUES ('gardener', 'roses');
             INSERT INTO turns (chat, id, kind, policy, state, fiber, worker, message, place, origins, deaths, created_ms)
             VALUES (1, 't', 'answer', 'queue', 'running', 2, {one}, 'm', 1, '[]', 1, 1)"
        );
        blocker.batch_execute(&counted_in_advance).await.unwrap();
        blocker.batch_execute(&format!("BEGIN; SELECT 1 FROM {locked} FOR UPDATE")).await.unwrap();
        let closing = tokio::spawn(async move { a.close(one, 5).await });
        eventually("the others are handed over", async || ready(&b).await.len() == free).await;
        assert!(ready(&b).await.iter().all(|(_, deaths)| *deaths == 0), "{locked}");
        assert!(!closing.is_finished(), "{locked}");
        blocker.batch_execute("ROLLBACK").await.unwrap();
        soon("it is closed", closing).await.unwrap().unwrap();
        let handed_over = ready(&b).await;
        assert!(handed_over.len() == FIBERS && handed_over.iter().all(|(_, deaths)| *deaths == 0), "{locked}: {handed_over:?}");
        let deaths = format!(
            "SELECT (SELECT sum(deaths) FROM \"{schema}\".schedules)::bigint, (SELECT sum(deaths) FROM \"{schema}\".agents)::bigint,
                    (SELECT sum(deaths) FROM \"{schema}\".turns)::bigint"
        );
        let deaths = looks.query_one(&deaths, &[]).await.unwrap();
        assert_eq!([0, 1, 2].map(|n| deaths.get::<_, i64>(n)), [0; 3], "{locked}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fiber_whose_row_is_still_locked_when_its_worker_has_closed_is_taken_over() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(3600));
    let (a, one) = joined(builder.clone().patience(Duration::from_millis(1))).await;
    let (b, _) = joined(builder).await;
    let locked = accept(&a, "locked", one).await;
    accept(&a, "free", one).await;
    shows_life(&a, one).await;
    let blocker = client(&url).await;
    blocker.batch_execute(&format!("BEGIN; SELECT 1 FROM \"{schema}\".fibers WHERE seq = {} FOR UPDATE", locked.fiber)).await.unwrap();
    let error = soon("it is closed", a.close(one, 5)).await.unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
    assert_eq!(ready(&b).await, [("free".to_owned(), 0)]);
    // In a search that leaves out the locked row.
    let gone = format!("SELECT NOT EXISTS (SELECT 1 FROM \"{schema}\".workers WHERE id = {one})");
    eventually("its worker is gone", async || blocker.query_one(&gone, &[]).await.unwrap().get(0)).await;
    blocker.batch_execute("ROLLBACK").await.unwrap();
    eventually("it is taken over", async || ready(&b).await.contains(&("locked".to_owned(), 1))).await;
}
