//! Several workers over one database: leases, signs of life, takeovers, and workers that only seemed dead.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forever_postgres::{Builder, PostgresStore};
use forever_store::{AdminStore, AgentId, ClusterStore, End, FiberState, FiberStore, NewFiber, Seq, Suspension, Wait, WaitResult, Watch};
use forever_testkit::waiting::{eventually, soon};
use tokio_postgres::Client;

use crate::cluster;
use crate::faults::has;
use crate::proxy::{Fate, Link, Proxy};
use crate::rows::fiber;
use crate::schemas::client;
use crate::{accept, claim, end, ready_of, row, snapshot};

pub(crate) async fn joined(builder: Builder) -> (PostgresStore, i64) {
    let store = builder.connect().await.unwrap();
    let worker = store.join(0).await.unwrap();
    (store, worker)
}

/// Two workers over a schema of their own, with a lease longer than a test; `None` without a server.
async fn two_workers() -> Option<[(PostgresStore, i64); 2]> {
    let builder = PostgresStore::builder(cluster::url()?).schema(cluster::schema()).lease(Duration::from_secs(3600));
    Some([joined(builder.clone()).await, joined(builder).await])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn living_worker_keeps_its_claims() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(4));
    let ((a, one), (b, two)) = (joined(builder.clone()).await, joined(builder).await);
    assert_eq!((one, two), (1, 2));
    let (held, looks) = (accept(&a, "a", one).await, client(&url).await);
    // Longer than a lease in all.
    for number in 1..=6 {
        b.take_over(two, 5).await.unwrap();
        a.checkpoint(held, snapshot(number)).await.unwrap();
        renewed(&looks, &schema, one, 1).await;
    }
    assert_eq!(row(&b, "a").await.unwrap().state, FiberState::Running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fibers_of_a_dead_worker_are_ready_elsewhere_before_its_lease_runs_out() {
    // The lease would keep this test waiting for an hour.
    let Some([(a, one), (b, two)]) = two_workers().await else { return };
    let mut ready = ready_of(&b);
    let held = accept(&a, "a", one).await;
    a.checkpoint(held, snapshot(1)).await.unwrap();
    shows_life(&a, one).await;
    a.abandon();
    let taken = soon("it is taken over", ready.recv()).await.unwrap();
    assert_eq!((taken.id.as_str(), taken.state, taken.deaths), ("a", FiberState::Pending, 1));
    assert!(b.load(held.fiber).await.unwrap().interrupted, "although it is ready");
    let held_by_b = claim(&b, held.fiber, two).await;
    assert_eq!(b.load(held.fiber).await.unwrap().number, 1);
    b.checkpoint(held_by_b, snapshot(2)).await.unwrap();
    end(&b, held_by_b).await;
}

/// Waits until a worker holds its lock.
pub(crate) async fn shows_life(store: &PostgresStore, worker: i64) {
    eventually("it shows that it lives", async || store.shows_life(worker).await.unwrap()).await;
}

/// Waits until the lease of a worker that is there was renewed so many times.
pub(crate) async fn renewed(looks: &Client, schema: &str, worker: i64, times: usize) {
    let sql = format!("SELECT seen::text FROM \"{schema}\".workers WHERE id = $1");
    let mut seen = BTreeSet::new();
    eventually("its lease is renewed", async || {
        seen.insert(looks.query_one(&sql, &[&worker]).await.unwrap().get::<_, String>(0));
        seen.len() > times
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_only_seemed_dead_stores_nothing_and_goes_on() {
    let Some(server) = cluster::own() else { return };
    let proxy = Proxy::start(server.socket()).await;
    let builder = |url: String| {
        PostgresStore::builder(url).schema("forever").lease(Duration::from_secs(1)).sign_of_life(false).call_limit(Duration::from_secs(60))
    };
    let (a, one) = joined(builder(proxy.url())).await;
    let (b, two) = joined(builder(server.url())).await;
    let mut ready = ready_of(&b);
    let held = accept(&a, "a", one).await;
    a.checkpoint(held, snapshot(1)).await.unwrap();

    proxy.partition();
    // It is on its way when the claim is taken over.
    let late = tokio::spawn(async move { (a.checkpoint(held, snapshot(2)).await, a) });
    let taken = soon("it ends", ready.recv()).await.unwrap();
    assert_eq!(taken.id, "a");
    let held_by_b = claim(&b, held.fiber, two).await;
    b.checkpoint(held_by_b, snapshot(2)).await.unwrap();
    proxy.heal();
    let (late, a) = late.await.unwrap();
    assert!(late.unwrap_err().is_claim_lost());
    assert_eq!(b.load(held.fiber).await.unwrap().snapshot.as_deref(), Some("{\"n\":2}"));
    b.checkpoint(held_by_b, snapshot(3)).await.unwrap();

    // Its lease begins anew. Until it has, it still counts as dead, and loses what it claims.
    let goes_on = async {
        for n in 0.. {
            let held = accept(&a, &format!("again {n}"), one).await;
            match a.checkpoint(held, snapshot(1)).await {
                Ok(_) => return end(&a, held).await,
                Err(error) => assert!(error.is_claim_lost(), "{error}"),
            }
        }
    };
    soon("it ends", goes_on).await;
}

/// A link that is cut in one direction: a write does not arrive, or its answer does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_is_cut_off_in_one_direction_stores_nothing_after_the_takeover() {
    let Some(server) = cluster::own() else { return };
    for (schema, link, arrives) in
        [("deaf", Link { to_server: true, to_client: false }, true), ("mute", Link { to_server: false, to_client: true }, false)]
    {
        let proxy = Proxy::start(server.socket()).await;
        let builder = |url: String| {
            // Without prepared statements a stash is one message.
            let builder = PostgresStore::builder(url).schema(schema).lease(Duration::from_secs(1)).pooler(true);
            builder.call_limit(Duration::from_secs(60))
        };
        let (a, one) = joined(builder(proxy.url())).await;
        let (b, two) = joined(builder(server.url())).await;
        let mut ready = ready_of(&b);
        let held = accept(&a, "a", one).await;
        a.checkpoint(held, snapshot(1)).await.unwrap();

        if arrives {
            // At the write itself, which needs a connection that is open.
            let cut = proxy.clone();
            proxy.on_sent(move |bytes| {
                if has(bytes, "SET number = number + 1") {
                    cut.cut(link);
                }
                Fate::Forward
            });
        } else {
            proxy.cut(link);
        }
        let late = tokio::spawn(async move { (a.stash(held, "{\"n\":2}".into(), 3).await, a) });
        let taken = soon("it ends", ready.recv()).await.unwrap();
        assert_eq!(taken.id, "a");
        let held_by_b = claim(&b, held.fiber, two).await;
        // What has arrived is not repeated.
        let stored = b.load(held.fiber).await.unwrap().number;
        assert_eq!(stored, if arrives { 2 } else { 1 }, "{schema}");
        b.checkpoint(held_by_b, snapshot(stored + 1)).await.unwrap();
        proxy.heal();
        let (late, a) = late.await.unwrap();
        match late {
            Ok(()) => assert!(arrives),
            Err(error) => assert!(error.is_claim_lost() && !arrives, "{error}"),
        }
        assert!(a.checkpoint(held, snapshot(3)).await.unwrap_err().is_claim_lost());
        assert_eq!(b.load(held.fiber).await.unwrap().number, stored + 1);
        end(&b, held_by_b).await;
    }
}

/// Many at once share statements. One in five of them has lost its claim, and one in seven a wrong number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_batch_keep_or_lose_their_claims_each_for_itself() {
    const FIBERS: i64 = 140;
    let Some([(a, one), (b, two)]) = two_workers().await else { return };
    let a = Arc::new(a);
    let mut held = Vec::new();
    for n in 0..FIBERS {
        held.push(accept(&*a, &format!("f{n}"), one).await);
    }
    for claimed in held.iter().filter(|held| held.fiber % 5 == 0) {
        b.suspend(*claimed, Suspension::Interrupted("x".into()), 5).await.unwrap();
        claim(&b, claimed.fiber, two).await;
    }
    let mut writes = tokio::task::JoinSet::new();
    for held in held.clone() {
        let a = Arc::clone(&a);
        writes.spawn(async move {
            let number = if held.fiber % 7 == 0 { 9 } else { 1 };
            (held, a.checkpoint(held, snapshot(number)).await)
        });
    }
    while let Some(written) = writes.join_next().await {
        let (held, written) = written.unwrap();
        match (held.fiber % 5 == 0, held.fiber % 7 == 0) {
            (true, _) => assert!(written.unwrap_err().is_claim_lost()),
            (false, true) => assert!(!written.unwrap_err().is_claim_lost()),
            (false, false) => assert_eq!(written.unwrap(), []),
        }
    }
    for held in held {
        let stored = u64::from(held.fiber % 5 != 0 && held.fiber % 7 != 0);
        assert_eq!(b.load(held.fiber).await.unwrap().number, stored, "fiber {}", held.fiber);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_counted_as_dead_shows_life_again() {
    let Some(server) = cluster::own() else { return };
    let builder = PostgresStore::builder(server.url()).schema("forever").lease(Duration::from_secs(4));
    let (a, one) = joined(builder).await;
    shows_life(&a, one).await;
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // As a takeover does.
    client.execute("DELETE FROM forever.workers", &[]).await.unwrap();
    shows_life(&a, one).await;
    let listed = ClusterStore::workers(&a).await.unwrap();
    assert_eq!(listed.iter().map(|worker| (worker.id, worker.process)).collect::<Vec<_>>(), [(one, Some(std::process::id()))]);
    assert!(a.changes(Watch { worker: one, ..Watch::default() }).await.unwrap().fenced);
    assert!(!a.changes(Watch { worker: one, ..Watch::default() }).await.unwrap().fenced, "said once");
}

/// Begins and ends that come together share statements. One in five fibers has lost its claim, one
/// in seven is cancelled, and a parent waits for one in four.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fibers_of_a_batch_end_each_by_its_own_claim() {
    const FIBERS: i64 = 70;
    let Some([(a, one), (b, two)]) = two_workers().await else { return };
    let a = Arc::new(a);
    let mut begins = tokio::task::JoinSet::new();
    for n in 0..FIBERS {
        let a = Arc::clone(&a);
        begins.spawn(async move { (n, accept(&*a, &format!("f{n}"), one).await) });
    }
    let mut held = begins.join_all().await;
    held.sort_unstable_by_key(|(n, _)| *n);
    let is_lost = |n: i64| n % 5 == 0;
    let is_cancelled = |n: i64| n % 7 == 0;
    let is_waited_for = |n: i64| n % 4 == 0;
    for (n, claimed) in &held {
        if is_waited_for(*n) {
            let parent = accept(&*a, &format!("p{n}"), one).await;
            let child = Wait { fibers: vec![format!("f{n}")], ..Wait::default() };
            assert_eq!(a.wait(parent, child, 5).await.unwrap(), WaitResult::Waiting);
        }
        if is_lost(*n) {
            b.suspend(*claimed, Suspension::Interrupted("x".into()), 5).await.unwrap();
            claim(&b, claimed.fiber, two).await;
        } else if is_cancelled(*n) {
            b.cancel(format!("f{n}"), "enough".into(), 5).await.unwrap();
        }
    }
    let mut ends = tokio::task::JoinSet::new();
    for (n, held) in held {
        let a = Arc::clone(&a);
        ends.spawn(async move { (n, a.end(held, End::Completed(n.to_string()), Vec::new(), Vec::new(), 6).await) });
    }
    for (n, ended) in ends.join_all().await {
        let (there, parent) = (row(&b, &format!("f{n}")).await.unwrap(), row(&b, &format!("p{n}")).await);
        match (is_lost(n), is_cancelled(n)) {
            (true, _) => {
                assert!(ended.unwrap_err().is_claim_lost(), "fiber {n}");
                assert_eq!(there.state, FiberState::Running, "fiber {n}");
            }
            (false, true) => {
                assert!(matches!(ended.unwrap(), End::Cancelled(_)), "fiber {n}");
                assert_eq!(there.state, FiberState::Cancelled, "fiber {n}");
            }
            (false, false) => {
                assert!(matches!(ended.unwrap(), End::Completed(_)), "fiber {n}");
                assert_eq!((there.state, there.result), (FiberState::Completed, Some(n.to_string())), "fiber {n}");
            }
        }
        let expected = if is_lost(n) { FiberState::Waiting } else { FiberState::Pending };
        assert_eq!(parent.map(|parent| parent.state), is_waited_for(n).then_some(expected), "the parent of fiber {n}");
    }
}

/// A transaction that stays open keeps every old version of every row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_find_their_rows_while_nothing_is_cleaned_up() {
    const FIBERS: u64 = 20;
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(3600));
    let (a, one) = joined(builder.clone()).await;
    let (b, two) = joined(builder).await;
    let a = Arc::new(a);
    let mut held = Vec::new();
    for n in 0..FIBERS {
        held.push(accept(&*a, &format!("f{n}"), one).await);
    }
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let idle = connect().await;
    idle.batch_execute(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM \"{schema}\".fibers")).await.unwrap();
    let checkpoint = async |held: &[forever_store::Claim], number: u64| {
        let mut stored = tokio::task::JoinSet::new();
        for held in held.iter().copied() {
            let a = Arc::clone(&a);
            stored.spawn(async move { a.checkpoint(held, snapshot(number)).await });
        }
        stored.join_all().await
    };
    let mut number = 0;
    while !a.reads_rows_at_their_places() {
        // One checkpoint follows the other: the table grows.
        number += 1;
        assert!(checkpoint(&held, number).await.iter().all(Result::is_ok));
    }
    for _ in 0..3 {
        number += 1;
        assert!(checkpoint(&held, number).await.iter().all(Result::is_ok));
    }
    // All rows are elsewhere by now.
    connect().await.batch_execute(&format!("UPDATE \"{schema}\".snapshots SET saved_ms = saved_ms")).await.unwrap();
    number += 1;
    assert!(checkpoint(&held, number).await.iter().all(Result::is_ok));
    number += 1;
    assert!(checkpoint(&held, number).await.iter().all(Result::is_ok));
    // And one of them is another worker's.
    b.suspend(held[0], Suspension::Interrupted("x".into()), 5).await.unwrap();
    claim(&b, held[0].fiber, two).await;
    let late = checkpoint(&held[..1], number + 1).await.remove(0);
    assert!(late.unwrap_err().is_claim_lost());
    assert!(checkpoint(&held[1..], number + 1).await.iter().all(Result::is_ok));
    for (n, held) in held.iter().enumerate() {
        assert_eq!(b.load(held.fiber).await.unwrap().number, if n == 0 { number } else { number + 1 });
    }
}

/// Holds the transaction of the one that is first open at a gate, and lets the other begin meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_beside_an_open_strands_no_fiber() {
    let Some(url) = cluster::url() else { return };
    for (write, closes_first) in [("UPDATE ON fibers", true), ("INSERT ON workers", false)] {
        let schema = cluster::schema();
        let lease = Duration::from_secs(3600);
        let builder = PostgresStore::builder(&url).schema(&schema).lease(lease);
        let (a, one) = joined(builder.clone().call_limit(lease)).await;
        let b = builder.call_limit(lease).connect().await.unwrap();
        let agent = Some(AgentId { class: "gardener".into(), name: "roses".into() });
        let by_a = |id: &str| NewFiber { agent: agent.clone(), ..fiber(id, Some(one)) };
        for new in [fiber("function", Some(one)), by_a("of an agent"), NewFiber { closure: true, ..by_a("closure") }] {
            a.accept(new).await.unwrap();
        }
        let (gate, looks) = (client(&url).await, client(&url).await);
        let key = format!("hashtextextended('gate of {schema}', 0)");
        let write = write.replace("ON ", &format!("ON \"{schema}\"."));
        let closed = format!(
            "SET search_path = \"{schema}\"; SELECT pg_advisory_lock({key});
             CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared({key}); RETURN NEW; END $$;
             CREATE TRIGGER gate BEFORE {write} FOR EACH ROW EXECUTE FUNCTION pass()"
        );
        gate.batch_execute(&closed).await.unwrap();
        let waiting = async || {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE strpos(query, $1) > 0 AND wait_event_type = 'Lock'";
            looks.query_one(sql, &[&schema]).await.unwrap().get::<_, i64>(0)
        };

        let close = async move {
            a.close(one, 5).await.unwrap();
            Vec::new()
        };
        // What the recovery of a runtime looks for.
        let b = Arc::new(b);
        let at_b = Arc::clone(&b);
        let open = async move {
            at_b.join(0).await.unwrap();
            at_b.unfinished(Seq::MIN, 9).await.unwrap()
        };
        let mut tasks = tokio::task::JoinSet::new();
        let second = if closes_first {
            tasks.spawn(close);
            eventually("it is at the gate", async || waiting().await == 1).await;
            tasks.spawn(open)
        } else {
            tasks.spawn(open);
            eventually("it is at the gate", async || waiting().await == 1).await;
            tasks.spawn(close)
        };
        eventually("the other one is done, or waits", async || second.is_finished() || waiting().await == 2).await;
        gate.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
        let recovered = soon("both are done", tasks.join_all()).await.concat();
        let ready = b.ready(Seq::MIN, 9).await.unwrap();
        let found: BTreeSet<String> = recovered.into_iter().chain(ready).map(|fiber| fiber.id).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), ["closure", "function", "of an agent"], "{write}");
    }
}
