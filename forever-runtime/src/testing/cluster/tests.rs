//! The modelled store: the suites that every store passes, and leases in simulated time.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::simulation::{Plan, Simulation};
use super::store::ModelStore;
use crate::store::{
    AcceptResult, AdminStore, Claim, ClaimResult, ClusterStore, End, FiberRef, FiberState, FiberStore, NewFiber, NewSnapshot, OpsDelta,
    SnapshotDelta, StreamsDelta, Watch, WorkerId,
};

fn simulation(lease: Duration) -> Arc<Simulation> {
    Arc::new(
        Simulation::new(
            &Plan { seed: 1, faults: Vec::new(), lease, patience: Duration::MAX, is_busy: false, skew: Duration::ZERO, defect: None },
            Vec::new(),
        )
        .unwrap(),
    )
}

#[tokio::test]
async fn modelled_store_conforms() {
    crate::store::conformance::run(async || ModelStore::new(&simulation(Duration::ZERO), 0)).await;
}

/// Workers over one modelled store, of which none dies by itself.
struct Workers {
    sim: Arc<Simulation>,
    opened: AtomicUsize,
}

impl crate::store::conformance::Workers for Workers {
    type Store = ModelStore;

    async fn open(&self) -> ModelStore {
        ModelStore::new(&self.sim, self.opened.fetch_add(1, Ordering::Relaxed))
    }

    async fn end_lease(&self, worker: WorkerId, by: &ModelStore) {
        self.sim.database.tables().workers.get_mut(&worker).unwrap().seen_ms = i64::MIN;
        by.take_over_now().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn workers_over_the_modelled_store_conform() {
    crate::store::conformance::run_workers(async || Workers { sim: simulation(Duration::from_secs(3600)), opened: AtomicUsize::new(0) })
        .await;
}

/// Workers over one database, with a lease of 4 s.
async fn workers<const N: usize>() -> [(ModelStore, WorkerId); N] {
    let sim = simulation(Duration::from_secs(4));
    let stores: [ModelStore; N] = std::array::from_fn(|slot| ModelStore::new(&sim, slot));
    let mut joined = Vec::new();
    for store in stores {
        let worker = store.join(0).await.unwrap();
        joined.push((store, worker));
    }
    joined.try_into().unwrap()
}

fn fiber(id: &str, worker: Option<WorkerId>) -> NewFiber {
    NewFiber {
        id: id.to_owned(),
        name: "work".to_owned(),
        key: None,
        id_given: false,
        closure: false,
        args: "{}".to_owned(),
        metadata: None,
        agent: None,
        parent: None,
        worker,
        now_ms: 1,
    }
}

fn snapshot(number: u64) -> NewSnapshot {
    NewSnapshot {
        replaces: false,
        number,
        at: "step",
        data: format!("{{\"n\":{number}}}"),
        now_ms: 2,
        layouts: None,
        ops: OpsDelta::default(),
        delta: SnapshotDelta::default(),
        streams: StreamsDelta::default(),
        received: Vec::new(),
        closed: None,
        joined: false,
        children: Vec::new(),
    }
}

async fn accept(store: &ModelStore, new: NewFiber) -> Claim {
    match store.accept(new).await.unwrap() {
        AcceptResult::Created(claim) => claim,
        other => panic!("{other:?}"),
    }
}

async fn claim(store: &ModelStore, fiber: i64, worker: WorkerId) -> Claim {
    let seen = Claim { fiber, epoch: store.claim_of(fiber).await.unwrap().unwrap().epoch };
    match store.claim(seen, worker, 3).await.unwrap() {
        ClaimResult::Granted(claim, _) => claim,
        other => panic!("{other:?}"),
    }
}

async fn state(store: &ModelStore, id: &str) -> FiberState {
    store.find(FiberRef::Id(id.to_owned())).await.unwrap().unwrap().state
}

async fn ready(store: &ModelStore) -> Vec<(i64, u32)> {
    store.ready(0, 9).await.unwrap().into_iter().map(|fiber| (fiber.seq, fiber.deaths)).collect()
}

const LEASES: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn living_worker_keeps_its_claims_and_a_dead_one_loses_them_when_its_lease_has_ended() {
    let [(a, one), (b, two)] = workers().await;
    assert_eq!((one, two), (1, 2));
    let held = accept(&a, fiber("a", Some(one))).await;
    for number in 1..=12 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        a.checkpoint(held, snapshot(number)).await.unwrap();
    }
    assert_eq!(state(&b, "a").await, FiberState::Running);
    a.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(state(&b, "a").await, FiberState::Running, "its lease has not ended");
    tokio::time::sleep(LEASES).await;
    assert_eq!(ready(&b).await, [(held.fiber, 1)]);
    assert!(b.load(held.fiber).await.unwrap().interrupted, "although it is ready");
    let by_b = claim(&b, held.fiber, two).await;
    assert_eq!(b.load(held.fiber).await.unwrap().number, 12);
    b.checkpoint(by_b, snapshot(13)).await.unwrap();
    b.end(by_b, End::Completed("1".to_owned()), Vec::new(), Vec::new(), 9).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn paused_worker_stores_nothing_under_its_old_claim_and_goes_on() {
    let [(a, one), (b, two)] = workers().await;
    let held = accept(&a, fiber("a", Some(one))).await;
    a.checkpoint(held, snapshot(1)).await.unwrap();
    a.pause(LEASES);
    let late = {
        let a = a.clone();
        tokio::spawn(async move { a.checkpoint(held, snapshot(2)).await })
    };
    tokio::time::sleep(LEASES / 2).await;
    let by_b = claim(&b, held.fiber, two).await;
    assert!(!late.is_finished());
    b.checkpoint(by_b, snapshot(2)).await.unwrap();
    assert!(late.await.unwrap().unwrap_err().is_claim_lost());
    assert_eq!(b.load(held.fiber).await.unwrap().number, 2);
    tokio::time::sleep(LEASES).await;
    let watch = Watch { worker: one, ..Watch::default() };
    assert!(a.changes(watch.clone()).await.unwrap().fenced);
    assert!(!a.changes(watch).await.unwrap().fenced, "said once");
    let listed = ClusterStore::workers(&b).await.unwrap();
    assert_eq!(listed.iter().map(|worker| worker.id).collect::<Vec<_>>(), [one, two]);
    let again = accept(&a, fiber("b", Some(one))).await;
    a.checkpoint(again, snapshot(1)).await.unwrap();
}
