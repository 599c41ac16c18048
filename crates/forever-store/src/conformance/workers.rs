//! Several workers over one store: claims, takeovers, hand-over, and fibers that a worker cannot
//! resume.
use std::future::Future;
use std::sync::Arc;

use super::claims::{is_lost, seen};
use super::{ReadyReceiver, accept_by, branch_result, claimed, new, row, snapshot};
use crate::error::Result;
use crate::{
    AdminStore, AgentHold, AgentId, AgentStore, ClaimResult, ClusterStore, DeclineResult, End, FiberState, FiberStore, HoldResult,
    LoadedFiber, NewFiber, NewScheduleRow, OpKind, OpRecord, OpState, OpStore, Restart, RunResult, ScheduleTiming, Seq, Store, Wait, Watch,
    WorkerId,
};

/// Workers that share one store, for [`run_workers`](super::run_workers).
pub trait Workers {
    /// The store, as one worker has it.
    type Store: Store + 'static;

    /// Opens the store for one more worker, with a lease of an hour or longer.
    fn open(&self) -> impl Future<Output = Self::Store>;

    /// Lets the lease of `worker` end, and returns when `by` has taken over from it.
    ///
    /// The process of the worker lives, as after a pause: its store carries out calls.
    fn end_lease(&self, worker: WorkerId, by: &Self::Store) -> impl Future<Output = ()>;
}

/// A worker of a test.
pub(super) struct Worker<S> {
    pub(super) store: S,
    pub(super) id: WorkerId,
}

impl<S: Store> Worker<S> {
    pub(super) async fn join(of: &impl Workers<Store = S>) -> Self {
        let store = of.open().await;
        let id = store.join(0).await.unwrap();
        Worker { store, id }
    }

    /// What only a store with several workers has.
    pub(super) fn cluster(&self) -> &dyn ClusterStore {
        self.store.cluster().expect("a store with several workers")
    }

    async fn ready(&self) -> Vec<(Seq, u32)> {
        self.store.ready(Seq::MIN, 9).await.unwrap().into_iter().map(|fiber| (fiber.seq, fiber.deaths)).collect()
    }

    /// Becomes the holder of an agent that no other worker holds.
    pub(super) async fn hold(&self, agent: AgentId) -> AgentHold {
        match self.cluster().hold_agent(agent, self.id).await.unwrap() {
            HoldResult::Held(hold) => hold,
            HoldResult::Elsewhere(other) => panic!("it is held by {other}"),
        }
    }
}

pub(super) async fn run<W: Workers>(make: &impl AsyncFn() -> W) {
    takes_over_from_a_worker_whose_lease_has_ended(&make().await).await;
    hands_over_at_a_clean_close(&make().await).await;
    refuses_what_another_worker_has_left_behind(&make().await).await;
    gives_due_fibers_to_one_of_several_workers(&make().await).await;
    ends_the_run_of_a_schedule_in_its_new_worker_alone(&make().await).await;
    parks_a_fiber_when_every_worker_has_declined_it(&make().await).await;
    lets_one_worker_hold_an_agent(&make().await).await;
    stores_the_state_of_an_agent_under_a_hold_in_force_only(&make().await).await;
}

async fn takes_over_from_a_worker_whose_lease_has_ended(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    assert_eq!((a.id, b.id), (1, 2));
    let mut told = ReadyReceiver::by(&b.store);
    let held = accept_by(&a.store, "a", a.id).await;
    let of_b = accept_by(&b.store, "b", b.id).await;
    a.store.checkpoint(held, snapshot(1)).await.unwrap();
    // A worker that is alive keeps what it has claimed.
    b.store.take_over(b.id, 5).await.unwrap();
    a.store.checkpoint(held, snapshot(2)).await.unwrap();
    assert_eq!(b.cluster().workers().await.unwrap().iter().map(|worker| worker.id).collect::<Vec<_>>(), [a.id, b.id]);

    workers.end_lease(a.id, &b.store).await;
    assert_eq!(told.next().await, "a");
    assert_eq!(b.ready().await, [(held.fiber, 1)]);
    assert_eq!(b.cluster().workers().await.unwrap().iter().map(|worker| worker.id).collect::<Vec<_>>(), [b.id]);
    assert!(is_lost(a.store.checkpoint(held, snapshot(3)).await), "before another worker has claimed it too");
    let loaded = b.store.load(held.fiber).await.unwrap();
    assert!(loaded.interrupted, "although it is ready");
    assert_eq!(loaded.number, 2);
    let by_b = claimed(&b.store, held.fiber, b.id).await;
    b.store.checkpoint(by_b, snapshot(3)).await.unwrap();
    assert!(is_lost(a.store.checkpoint(held, snapshot(4)).await));
    assert!(is_lost(a.store.end(held, End::Completed("1".into()), Vec::new(), Vec::new(), 9).await));
    b.store.end(by_b, End::Completed("2".into()), Vec::new(), Vec::new(), 9).await.unwrap();
    assert_eq!(row(&a.store, "a").await.result.as_deref(), Some("2"));
    b.store.checkpoint(of_b, snapshot(1)).await.unwrap();
}

async fn hands_over_at_a_clean_close(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    let held = accept_by(&a.store, "a", a.id).await;
    a.store.accept(NewFiber { closure: true, ..new("closure", None) }).await.unwrap();
    a.store.close(a.id, 5).await.unwrap();
    assert_eq!(row(&b.store, "closure").await.state, FiberState::Interrupted, "only its own process could run it");
    assert_eq!(b.ready().await, [(held.fiber, 0)], "no death is counted");
    assert!(b.store.load(held.fiber).await.unwrap().interrupted);
    claimed(&b.store, held.fiber, b.id).await;
    assert!(a.store.load(held.fiber).await.unwrap_err().is_closed());
}

/// A worker loads a fiber while another one runs it. That one goes on, and waits, stops or closes.
async fn refuses_what_another_worker_has_left_behind(workers: &impl Workers) {
    for how in ["waits and is woken", "stores a branch and closes", "stores an operation and closes", "stores a stash and closes"] {
        let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
        let held = accept_by(&a.store, how, a.id).await;
        a.store.checkpoint(held, snapshot(1)).await.unwrap();
        let early = seen(&b.store, held.fiber).await;
        assert_eq!(early.epoch, b.store.load(held.fiber).await.unwrap().epoch);
        match how {
            "waits and is woken" => {
                a.store.checkpoint(held, snapshot(2)).await.unwrap();
                a.store.wait(held, Wait { due_ms: Some(10), ..Wait::default() }, 5).await.unwrap();
                a.store.take_due(20, 9).await.unwrap();
            }
            "stores a branch and closes" => {
                a.store.save_branch(held, 1, branch_result("both[x]", None), Vec::new(), 5).await.unwrap();
            }
            "stores an operation and closes" => {
                let op = OpRecord::begun("x".into(), OpKind::Effect, "pay", "charge", None, Some(1));
                a.store.save_op(held, OpRecord { state: OpState::Completed, outcome: Some("1".into()), ..op }, 5).await.unwrap();
            }
            _ => a.store.stash(held, "\"stash\"".into(), 5).await.unwrap(),
        }
        if how.ends_with("closes") {
            a.store.close(a.id, 6).await.unwrap();
        }
        assert_eq!(b.store.claim(early, b.id, 7).await.unwrap(), ClaimResult::Refused, "{how}");
        let (late, stored) = (seen(&b.store, held.fiber).await, b.store.load(held.fiber).await.unwrap());
        let ClaimResult::Granted(claim, loaded) = b.store.claim(late, b.id, 8).await.unwrap() else { panic!("{how}") };
        assert_eq!(*loaded, LoadedFiber { epoch: claim.epoch, ..stored }, "{how}");
        b.store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 9).await.unwrap();
    }
}

/// The ids of all fibers that are due.
async fn take_due(store: &impl Store) -> Vec<String> {
    let mut taken = Vec::new();
    while let due @ [_, ..] = &*store.take_due(20, 3).await.unwrap() {
        taken.extend(due.iter().map(|fiber| fiber.id.clone()));
    }
    taken
}

async fn gives_due_fibers_to_one_of_several_workers(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    for n in 0..40 {
        let held = accept_by(&a.store, &format!("f{n}"), a.id).await;
        a.store.wait(held, Wait { due_ms: Some(10), ..Wait::default() }, 5).await.unwrap();
    }
    let stores = [Arc::new(a.store), Arc::new(b.store)];
    let mut tasks = tokio::task::JoinSet::new();
    for store in &stores {
        let store = Arc::clone(store);
        tasks.spawn(async move { take_due(&*store).await });
    }
    let mut all = tasks.join_all().await.concat();
    // What each left to the other at its last look.
    all.extend(take_due(&*stores[0]).await);
    all.sort();
    assert_eq!(all.len(), 40);
    all.dedup();
    assert_eq!(all.len(), 40);
}

async fn ends_the_run_of_a_schedule_in_its_new_worker_alone(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    a.store.recover_schedules(3).await.unwrap();
    b.store.recover_schedules(3).await.unwrap();
    let agent = AgentId { class: "gardener".into(), name: "roses".into() };
    let new = NewScheduleRow {
        id: "s".into(),
        agent: agent.clone(),
        name: "water".into(),
        payload: "null".into(),
        timing: ScheduleTiming::Every(10),
        due_ms: 10,
        idempotent: false,
        begun: Vec::new(),
        now_ms: 1,
    };
    a.store.add_schedule(new).await.unwrap();
    let classes = vec!["gardener".to_owned()];
    let late = a.store.claim_schedules(classes.clone(), 10, 9).await.unwrap().remove(0);
    assert!(b.store.claim_schedules(classes.clone(), 10, 9).await.unwrap().is_empty(), "it runs");
    workers.end_lease(a.id, &b.store).await;
    let run = b.store.claim_schedules(classes, 12, 9).await.unwrap().remove(0);
    assert_eq!(run.deaths, 2, "that of the other worker, and one in advance");
    a.store.end_run(late, RunResult::Done).await.unwrap();
    assert_eq!(b.store.schedules(agent.clone()).await.unwrap()[0].running_ms, Some(12), "it is the run of the other worker");
    b.store.end_run(run, RunResult::Next { due_ms: 20, error: None }).await.unwrap();
    let ended = b.store.schedules(agent).await.unwrap().remove(0);
    assert_eq!((ended.running_ms, ended.next_ms, ended.deaths), (None, Some(20), 0));
}

/// Three workers that cannot resume a fiber, one after the other.
async fn parks_a_fiber_when_every_worker_has_declined_it(workers: &impl Workers) {
    let (a, b, c) = (Worker::join(workers).await, Worker::join(workers).await, Worker::join(workers).await);
    let held = accept_by(&a.store, "a", a.id).await;
    a.store.checkpoint(held, snapshot(1)).await.unwrap();
    assert_eq!(a.cluster().decline(held, a.id, "x".into(), true, 5).await.unwrap(), DeclineResult::Left);
    assert_eq!(row(&a.store, "a").await.state, FiberState::Pending);
    assert_eq!((a.ready().await.len(), b.ready().await.len()), (0, 1), "it is left to the others");
    assert!(b.store.load(held.fiber).await.unwrap().interrupted);
    let by_b = claimed(&b.store, held.fiber, b.id).await;
    assert!(is_lost(a.store.checkpoint(held, snapshot(2)).await));
    assert_eq!(b.cluster().decline(by_b, b.id, "y".into(), false, 6).await.unwrap(), DeclineResult::Left);
    let by_b = seen(&b.store, held.fiber).await;
    assert!(!b.store.load(held.fiber).await.unwrap().interrupted, "it was not before that claim");
    // The last one that has not looked at it leaves.
    c.store.close(c.id, 7).await.unwrap();
    assert_eq!((a.ready().await.len(), b.ready().await.len()), (1, 1), "no worker is left that could run it");
    assert_eq!(a.cluster().decline(by_b, a.id, "z".into(), false, 8).await.unwrap(), DeclineResult::Parked);
    let parked = row(&a.store, "a").await;
    assert_eq!((parked.state, parked.reason.as_deref()), (FiberState::Parked, Some("z")));
    // A command of a person lets all of them look again.
    a.store.restart("a".into(), Restart::FromSnapshot, 9).await.unwrap();
    assert_eq!((a.ready().await.len(), b.ready().await.len()), (1, 1));
    let by_b = claimed(&b.store, held.fiber, b.id).await;
    b.store.checkpoint(by_b, snapshot(2)).await.unwrap();
}

async fn save(worker: &Worker<impl Store>, state: &str, hold: Option<AgentHold>) -> Result<()> {
    worker.store.save_state(agent("a"), state.to_owned(), hold, 5).await
}

fn agent(name: &str) -> AgentId {
    AgentId { class: "counter".into(), name: name.into() }
}

async fn lets_one_worker_hold_an_agent(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    let first = a.hold(agent("a")).await;
    assert_eq!(first.worker, a.id);
    assert_eq!(a.hold(agent("a")).await, first, "it holds the agent already");
    let elsewhere = b.cluster().hold_agent(agent("a"), b.id).await.unwrap();
    assert!(matches!(&elsewhere, HoldResult::Elsewhere(worker) if worker.id == a.id), "{elsewhere:?}");
    assert_eq!(b.hold(agent("b")).await.worker, b.id, "of another one");
    // Only the holder lets go.
    b.cluster().release_agent(agent("a"), b.id).await.unwrap();
    assert_eq!(a.hold(agent("a")).await, first);
    a.cluster().release_agent(agent("a"), a.id).await.unwrap();
    assert_ne!(a.hold(agent("a")).await, first, "a hold that has ended is over");
    workers.end_lease(a.id, &b.store).await;
    assert_eq!(b.hold(agent("a")).await.worker, b.id);
}

async fn stores_the_state_of_an_agent_under_a_hold_in_force_only(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    let version = async || {
        let watch = Watch { worker: b.id, agents: vec![agent("a")], ..Watch::default() };
        b.cluster().changes(watch).await.unwrap().agents
    };
    let first = a.hold(agent("a")).await;
    save(&a, "1", Some(first)).await.unwrap();
    save(&a, "2", Some(first)).await.unwrap();
    // A caller from outside, in any worker.
    save(&b, "3", None).await.unwrap();
    let before = version().await;
    for wrong in
        [AgentHold { worker: b.id, ..first }, AgentHold { epoch: first.epoch + 1, ..first }, AgentHold { epoch: first.epoch - 1, ..first }]
    {
        assert!(is_lost(save(&a, "wrong", Some(wrong)).await));
    }
    assert_eq!(version().await, before, "nothing was changed");
    a.cluster().release_agent(agent("a"), a.id).await.unwrap();
    assert!(is_lost(save(&a, "late", Some(first)).await));
    let second = a.hold(agent("a")).await;
    assert!(is_lost(save(&a, "late", Some(first)).await), "it holds the agent again, and not as before");
    save(&a, "4", Some(second)).await.unwrap();

    workers.end_lease(a.id, &b.store).await;
    let by_b = b.hold(agent("a")).await;
    save(&b, "5", Some(by_b)).await.unwrap();
    for late in [first, second] {
        assert!(is_lost(save(&a, "late", Some(late)).await));
    }
    assert_eq!(a.store.load_state(agent("a")).await.unwrap().as_deref(), Some("5"));
    // Of an agent that has no state either.
    let of_new = b.hold(agent("new")).await;
    b.cluster().release_agent(agent("new"), b.id).await.unwrap();
    assert!(is_lost(b.store.save_state(agent("new"), "1".into(), Some(of_new), 5).await));
    assert_eq!(b.store.load_state(agent("new")).await.unwrap(), None);
}
