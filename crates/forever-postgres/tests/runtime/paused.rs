//! A worker that is paused in a body for longer than its lease, while another one takes over.
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::fiber::FiberState;
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Builder};
use forever_postgres::PostgresStore;
use forever_postgres::tokio_postgres::{self, Client, NoTls};
use forever_testkit::waiting::{DEADLINE, eventually, soon};
use tokio::sync::Semaphore;

use crate::cluster;

/// Short enough for four renewals a second.
const LEASE: Duration = Duration::from_secs(1);

/// After the end of a lease, until a check may ask.
const MARGIN: Duration = Duration::from_secs(1);

/// What is charged outside of the database.
#[derive(Clone)]
struct Bank {
    calls: Arc<AtomicU32>,
    /// How often it was asked for a charge.
    asked: Arc<AtomicU32>,
    charged: Arc<Mutex<Vec<String>>>,
    /// One permit lets the first call go on.
    gate: Arc<Semaphore>,
    /// Whether the first call is over, whichever way.
    first_is_over: Arc<AtomicBool>,
}

struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Bank {
    fn new() -> Self {
        Bank {
            calls: Arc::default(),
            asked: Arc::default(),
            charged: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            first_is_over: Arc::default(),
        }
    }

    async fn charge(&self, id: &str) -> Result<u32, BoxError> {
        let call = self.calls.fetch_add(1, SeqCst);
        let _over = (call == 0).then(|| Over(Arc::clone(&self.first_is_over)));
        if call == 0 {
            self.gate.acquire().await?.forget();
        }
        self.charged.lock().unwrap().push(id.to_owned());
        Ok(call)
    }

    async fn find(&self, id: String) -> Result<Option<u32>, BoxError> {
        tokio::task::yield_now().await;
        self.asked.fetch_add(1, SeqCst);
        Ok(self.charged.lock().unwrap().contains(&id).then_some(0))
    }
}

#[fiber]
async fn pays(bank: Res<Bank>) -> Result<u32, BoxError> {
    let charged = step!("charge", effect, on_unknown = OnUnknown::check(async |op| bank.find(op.id().to_owned()).await), |op| bank
        .charge(op.id())
        .await?);
    Ok(charged)
}

#[fiber]
async fn works(bank: Res<Bank>) -> Result<u32, BoxError> {
    let call = step!("work", bank.charge("work").await?);
    Ok(call)
}

struct World {
    url: String,
    schema: String,
    client: Client,
    bank: Bank,
}

impl World {
    /// `None` without a server.
    async fn new() -> Option<Self> {
        let url = cluster::url()?;
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        Some(World { url, schema: cluster::schema(), client, bank: Bank::new() })
    }

    async fn store(&self) -> PostgresStore {
        PostgresStore::builder(&self.url).schema(&self.schema).lease(LEASE).connect().await.unwrap()
    }

    fn builder(&self, store: PostgresStore) -> Builder {
        Forever::builder().store(store).resource(self.bank.clone()).fiber::<pays>().fiber::<works>()
    }

    /// Ends the lease of the first worker, until it is taken over.
    async fn end_lease(&self) {
        let all = self.client.query(&format!("SELECT id FROM \"{}\".workers", self.schema), &[]).await.unwrap();
        let first = *all.iter().map(|row| row.get(0)).collect::<BTreeSet<i64>>().first().unwrap();
        let end = format!("UPDATE \"{}\".workers SET lease_ms = 0, lock = NULL WHERE id = $1", self.schema);
        eventually("the other worker takes over", async || self.client.execute(&end, &[&first]).await.unwrap() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_was_paused_in_a_body_does_not_go_on_with_it_after_a_take_over() {
    for of in ["pays", "works"] {
        let Some(world) = World::new().await else { return };
        let bank = &world.bank;
        let store = world.store().await;
        let stand_still = store.stand_still();
        let paused = world.builder(store).open().await.unwrap();
        let id = match of {
            "pays" => paused.spawn(pays()).await.unwrap().id().to_owned(),
            _ => paused.spawn(works()).await.unwrap().id().to_owned(),
        };
        eventually("the body is under way", async || bank.calls.load(SeqCst) == 1).await;
        let other = world.builder(world.store().await).open().await.unwrap();
        stand_still(true);
        world.end_lease().await;
        let ended = async {
            match of {
                "pays" => other.fiber::<pays>(&id).wait().await.unwrap(),
                _ => other.fiber::<works>(&id).wait().await.unwrap(),
            }
        };
        let call = soon("it ends", ended).await;
        assert_eq!(call, 1, "{of}: the other worker has carried it out");

        // What its code waits for is there, and it goes on.
        bank.gate.add_permits(1);
        stand_still(false);
        eventually("the first body is over", async || bank.first_is_over.load(SeqCst)).await;
        assert_eq!(bank.charged.lock().unwrap().len(), 1, "{of}: nothing was carried out after the takeover");
        paused.close().await.unwrap();
        other.close().await.unwrap();
    }
}

/// Others notice the loss of its session lock at once, whether it is dead or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_is_not_asked_before_the_lease_of_the_worker_before_is_over() {
    // Not the hour after which a worker looks for what it need not retain.
    const LONG: Duration = Duration::from_secs(1800);
    let Some(world) = World::new().await else { return };
    let bank = &world.bank;
    let store = async || PostgresStore::builder(&world.url).schema(&world.schema).lease(LONG).connect().await.unwrap();
    let first = store().await;
    let (dies, clock) = (world.builder(first).open().await.unwrap(), VirtualClock::new());
    let id = dies.spawn(pays()).await.unwrap().id().to_owned();
    eventually("the body is under way", async || bank.calls.load(SeqCst) == 1).await;
    let shows_life = format!("SELECT count(*) FROM \"{}\".workers WHERE lock IS NOT NULL", world.schema);
    eventually("it shows that it lives", async || world.client.query_one(&shows_life, &[]).await.unwrap().get::<_, i64>(0) == 1).await;
    drop(dies);

    let other = world.builder(store().await).clock(clock.clone()).open().await.unwrap();
    let waits = async || clock.next_sleeper().is_some_and(|left| left + DEADLINE > LONG && left <= LONG + MARGIN);
    eventually("it waits for the end of the lease", waits).await;
    assert_eq!((bank.asked.load(SeqCst), bank.calls.load(SeqCst)), (0, 1));
    clock.advance(LONG + MARGIN);
    let call = soon("it ends", other.fiber::<pays>(&id).wait()).await;
    assert_eq!(call.unwrap(), 1);
    assert_eq!(bank.asked.load(SeqCst), 1);
    other.close().await.unwrap();
}

/// As a worker does that is stopped for longer than its lease: it goes on with the poll in which it
/// was stopped before it looks at the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_is_not_asked_within_a_second_of_the_end_of_a_lease() {
    // That second passes meanwhile where the machine is slow. Then nothing is seen, and it is done
    // once more.
    let seen = async || {
        let Some(world) = World::new().await else { return true };
        let bank = &world.bank;
        let store = world.store().await;
        let stand_still = store.stand_still();
        let (stopped, clock) = (world.builder(store).open().await.unwrap(), VirtualClock::new());
        let id = stopped.spawn(pays()).await.unwrap().id().to_owned();
        eventually("the body is under way", async || bank.calls.load(SeqCst) == 1).await;
        let next = world.store().await;
        stand_still(true);
        let end = format!("UPDATE \"{}\".workers SET seen = clock_timestamp(), lease_ms = 1, lock = NULL WHERE lease_ms > 0", world.schema);
        assert_eq!(world.client.execute(&end, &[]).await.unwrap(), 1);
        let other = world.builder(next).clock(clock.clone()).open().await.unwrap();
        let waits = async || bank.asked.load(SeqCst) == 0 && clock.next_sleeper().is_some_and(|left| left <= MARGIN);
        eventually("it waits or has asked", async || bank.asked.load(SeqCst) > 0 || waits().await).await;
        let has_waited = waits().await;
        if !has_waited {
            let age =
                format!("SELECT (extract(epoch FROM clock_timestamp() - leased_until) * 1000)::bigint FROM \"{}\".snapshots", world.schema);
            let age_ms: i64 = world.client.query_one(&age, &[]).await.unwrap().get(0);
            assert!(age_ms >= 1000, "it was asked {age_ms} ms after the end of the lease at the latest");
        }
        let handle = other.fiber::<pays>(&id);
        let ended = async || {
            if has_waited {
                clock.advance(MARGIN);
            }
            handle.status().await.unwrap().state == FiberState::Completed
        };
        eventually("it ends", ended).await;
        assert_eq!((handle.wait().await.unwrap(), bank.asked.load(SeqCst)), (1, 1));
        stand_still(false);
        drop(stopped);
        other.close().await.unwrap();
        has_waited
    };
    eventually("it waits for the second", seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_was_paused_goes_on_with_what_is_still_its_own() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let stand_still = store.stand_still();
    let forever = world.builder(store).open().await.unwrap();
    let handle = forever.spawn(works()).await.unwrap();
    eventually("the body is under way", async || world.bank.calls.load(SeqCst) == 1).await;
    stand_still(true);
    world.bank.gate.add_permits(1);
    stand_still(false);
    assert_eq!(soon("it ends", handle.wait()).await.unwrap(), 0);
    assert_eq!(world.bank.calls.load(SeqCst), 1, "its body has run once");
    forever.close().await.unwrap();
}
