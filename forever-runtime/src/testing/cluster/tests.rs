//! The modelled store: the suite that every store passes, and the tests of several workers that the
//! store on Postgres has.
use std::sync::Arc;
use std::time::Duration;

use super::simulation::{Plan, Simulation};
use super::store::ModelStore;
use crate::store::{
    AcceptResult, AdminStore, AgentId, AgentStore, Claim, ClaimResult, ClusterStore, DeclineResult, End, FiberRef, FiberState, FiberStore,
    NewAgentRequest, NewFiber, NewScheduleRow, NewSnapshot, OpsDelta, Publication, PublishedQuery, RequestOutcome, RequestProgress,
    Restart, RunResult, ScheduleTiming, SnapshotDelta, StreamsDelta, Wait, Watch, WorkerId,
};

fn simulation(lease: Duration) -> Arc<Simulation> {
    Arc::new(Simulation::new(&Plan { seed: 1, faults: Vec::new(), lease, patience: Duration::MAX, defect: None }, Vec::new()).unwrap())
}

#[tokio::test]
async fn modelled_store_conforms() {
    crate::store::conformance::run(async || ModelStore::new(&simulation(Duration::ZERO), 0)).await;
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
        number,
        at: "step",
        data: format!("{{\"n\":{number}}}"),
        now_ms: 2,
        layouts: None,
        ops: OpsDelta::default(),
        delta: SnapshotDelta::default(),
        streams: StreamsDelta::default(),
        received: None,
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
        ClaimResult::Granted(claim) => claim,
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

#[tokio::test(start_paused = true)]
async fn clean_close_hands_over_at_once_and_counts_no_death() {
    let [(a, one), (b, two)] = workers().await;
    let held = accept(&a, fiber("a", Some(one))).await;
    accept(&a, NewFiber { closure: true, ..fiber("closure", Some(one)) }).await;
    a.close(one, 5).await.unwrap();
    assert_eq!(state(&b, "closure").await, FiberState::Interrupted, "only its own process could run it");
    assert_eq!(ready(&b).await, [(held.fiber, 0)]);
    assert!(b.load(held.fiber).await.unwrap().interrupted);
    claim(&b, held.fiber, two).await;
    assert!(a.load(held.fiber).await.unwrap_err().is_closed());
}

#[tokio::test(start_paused = true)]
async fn due_fibers_are_given_to_one_of_several_workers() {
    let [(a, one), (b, _)] = workers().await;
    for n in 0..40 {
        let held = accept(&a, fiber(&format!("f{n}"), Some(one))).await;
        a.wait(held, Wait { due_ms: Some(10), ..Wait::default() }, 5).await.unwrap();
    }
    let take = async |store: &ModelStore| {
        let mut taken = Vec::new();
        while let due @ [_, ..] = &*store.take_due(20, 3).await.unwrap() {
            taken.extend(due.iter().map(|fiber| fiber.id.clone()));
        }
        taken
    };
    let (by_a, by_b) = futures_util::future::join(take(&a), take(&b)).await;
    assert!(!by_a.is_empty() && !by_b.is_empty());
    let mut all = [by_a, by_b].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 40);
}

#[tokio::test(start_paused = true)]
async fn run_of_a_schedule_that_was_taken_over_is_ended_by_its_new_worker_alone() {
    let [(a, _), (b, _)] = workers().await;
    a.recover_schedules(3).await.unwrap();
    b.recover_schedules(3).await.unwrap();
    let agent = AgentId { class: "gardener".to_owned(), name: "roses".to_owned() };
    let new = NewScheduleRow {
        id: "s".to_owned(),
        agent: agent.clone(),
        name: "water".to_owned(),
        payload: "null".to_owned(),
        timing: ScheduleTiming::Every(10),
        due_ms: 10,
        idempotent: false,
        begun: Vec::new(),
        now_ms: 1,
    };
    a.add_schedule(new).await.unwrap();
    let classes = vec!["gardener".to_owned()];
    let late = a.claim_schedules(classes.clone(), 10, 9).await.unwrap().remove(0);
    assert!(b.claim_schedules(classes.clone(), 10, 9).await.unwrap().is_empty(), "it runs");
    a.pause(LEASES);
    tokio::time::sleep(LEASES / 2).await;
    let run = b.claim_schedules(classes.clone(), 12, 9).await.unwrap().remove(0);
    a.end_run(late, RunResult::Done).await.unwrap();
    assert_eq!(b.schedules(agent.clone()).await.unwrap()[0].running_ms, Some(12), "it is the run of the other worker");
    b.end_run(run, RunResult::Next { due_ms: 20, error: None }).await.unwrap();
    let ended = b.schedules(agent).await.unwrap().remove(0);
    assert_eq!((ended.running_ms, ended.next_ms), (None, Some(20)));
}

#[tokio::test(start_paused = true)]
async fn fiber_is_parked_when_every_living_worker_has_declined_it() {
    let [(a, one), (b, two), (c, three)] = workers().await;
    let held = accept(&a, fiber("a", Some(one))).await;
    a.checkpoint(held, snapshot(1)).await.unwrap();
    assert_eq!(a.decline(held, one, "x".to_owned(), 5).await.unwrap(), DeclineResult::Left);
    assert_eq!(state(&a, "a").await, FiberState::Pending);
    assert_eq!((ready(&a).await.len(), ready(&b).await.len()), (0, 1), "it is left to the others");
    assert!(b.load(held.fiber).await.unwrap().interrupted);
    let by_b = claim(&b, held.fiber, two).await;
    assert!(a.checkpoint(held, snapshot(2)).await.unwrap_err().is_claim_lost());
    assert_eq!(b.decline(by_b, two, "y".to_owned(), 6).await.unwrap(), DeclineResult::Left);
    c.close(three, 7).await.unwrap();
    assert_eq!((ready(&a).await.len(), ready(&b).await.len()), (1, 1), "no worker is left that could run it");
    assert_eq!(a.decline(by_b, one, "z".to_owned(), 8).await.unwrap(), DeclineResult::Parked);
    a.restart("a".to_owned(), Restart::FromSnapshot, 9).await.unwrap();
    assert_eq!((ready(&a).await.len(), ready(&b).await.len()), (1, 1));
    let by_b = claim(&b, held.fiber, two).await;
    b.checkpoint(by_b, snapshot(2)).await.unwrap();
}

fn agent(name: &str) -> AgentId {
    AgentId { class: "counter".to_owned(), name: name.to_owned() }
}

fn new(id: &str, name: &str, caller: WorkerId) -> NewAgentRequest {
    let (id, args) = (id.to_owned(), "1".to_owned());
    NewAgentRequest { id, agent: agent(name), method: "add".to_owned(), args, caller, limit_ms: 3_600_000 }
}

fn answer(text: &str) -> RequestOutcome {
    RequestOutcome::Answered(text.to_owned())
}

async fn begins(store: &ModelStore, worker: WorkerId) -> Option<String> {
    store.begin_request(agent("a"), worker).await.unwrap().map(|request| request.id)
}

async fn is_over(store: &ModelStore, worker: WorkerId, id: &str) -> bool {
    let watch = Watch { worker, requests: vec![id.to_owned()], ..Watch::default() };
    store.changes(watch).await.unwrap().requests == [id]
}

async fn hold(store: &ModelStore, worker: WorkerId) {
    assert_eq!(store.hold_agent(agent("a"), worker).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn request_begins_once_in_the_worker_that_holds_the_agent_and_its_outcome_is_taken_once() {
    let [(a, one), (b, two)] = workers().await;
    let requested = async |store: &ModelStore, worker| {
        let changes = store.changes(Watch { worker, ..Watch::default() }).await.unwrap();
        changes.requested
    };
    a.request(new("r1", "a", one)).await.unwrap();
    a.request(new("r2", "a", one)).await.unwrap();
    assert_eq!(requested(&a, one).await, [agent("a")]);
    assert!(requested(&b, two).await.is_empty());
    hold(&b, two).await;
    assert_eq!(a.hold_agent(agent("a"), one).await.unwrap().map(|worker| worker.id), Some(two));
    assert!(requested(&a, one).await.is_empty());
    assert_eq!(requested(&b, two).await, [agent("a")]);
    assert_eq!(begins(&a, one).await, None, "it does not hold the agent");
    assert_eq!(begins(&b, two).await.as_deref(), Some("r1"));
    assert!(!is_over(&a, one, "r1").await);
    assert_eq!(a.take_request("r1".to_owned()).await.unwrap(), RequestProgress::Begun);
    assert_eq!(a.take_request("r2".to_owned()).await.unwrap(), RequestProgress::Waiting);
    assert!(!b.end_request("r2".to_owned(), two, answer("7")).await.unwrap(), "it has not begun");
    assert!(!a.end_request("r1".to_owned(), one, answer("7")).await.unwrap(), "another worker has begun it");
    assert!(b.end_request("r1".to_owned(), two, answer("7")).await.unwrap());
    assert!(!b.end_request("r1".to_owned(), two, answer("8")).await.unwrap(), "it has ended");
    assert!(is_over(&a, one, "r1").await);
    assert_eq!(a.take_request("r1".to_owned()).await.unwrap(), RequestProgress::Ended(answer("7")));
    assert_eq!(a.take_request("r1".to_owned()).await.unwrap(), RequestProgress::Lost, "it is deleted");
}

#[tokio::test(start_paused = true)]
async fn outcome_counts_only_while_its_worker_holds_the_agent_as_it_did_at_the_begin() {
    let [(a, one), (b, two)] = workers().await;
    hold(&b, two).await;
    for id in ["r1", "r2", "r3"] {
        a.request(new(id, "a", one)).await.unwrap();
    }
    assert_eq!(begins(&b, two).await.as_deref(), Some("r1"));
    hold(&b, two).await;
    assert!(!is_over(&a, one, "r1").await, "to hold it once more changes nothing");
    b.release_agent(agent("a"), two).await.unwrap();
    assert!(is_over(&a, one, "r1").await);
    hold(&b, two).await;
    assert!(is_over(&a, one, "r1").await, "it holds the agent again, and not as before");
    assert!(!b.end_request("r1".to_owned(), two, answer("1")).await.unwrap());
    assert_eq!(a.take_request("r1".to_owned()).await.unwrap(), RequestProgress::Lost);
    assert_eq!(begins(&b, two).await.as_deref(), Some("r2"), "nothing repeats the first");
    b.kill();
    tokio::time::sleep(LEASES).await;
    assert_eq!(a.take_request("r2".to_owned()).await.unwrap(), RequestProgress::Lost);
    assert_eq!(a.changes(Watch { worker: one, ..Watch::default() }).await.unwrap().requested, [agent("a")]);
    hold(&a, one).await;
    assert_eq!(begins(&a, one).await.as_deref(), Some("r3"));
}

#[tokio::test(start_paused = true)]
async fn request_that_is_late_or_withdrawn_never_begins() {
    let [(a, one), (b, two)] = workers().await;
    hold(&b, two).await;
    a.request(NewAgentRequest { limit_ms: 0, ..new("late", "a", one) }).await.unwrap();
    assert_eq!(begins(&b, two).await, None, "its time is over");
    a.request(new("withdrawn", "a", one)).await.unwrap();
    assert!(a.withdraw_request("withdrawn".to_owned()).await.unwrap());
    assert_eq!(begins(&b, two).await, None);
    a.request(new("begun", "a", one)).await.unwrap();
    assert_eq!(begins(&b, two).await.as_deref(), Some("begun"));
    assert!(!a.withdraw_request("begun".to_owned()).await.unwrap());
    assert!(!b.end_request("begun".to_owned(), two, answer("1")).await.unwrap(), "its caller is gone");
    a.request(new("orphan", "a", one)).await.unwrap();
    a.close(one, 0).await.unwrap();
    assert_eq!(begins(&b, two).await, None);
}

#[tokio::test(start_paused = true)]
async fn published_items_are_read_in_order_by_those_who_ask_for_them() {
    let [(a, one), (b, two)] = workers().await;
    let item = |name: Option<&str>, data: &str| Publication { agent: name.map(agent), data: data.to_owned() };
    b.publish(two, 1, vec![item(Some("a"), "1"), item(Some("b"), "2"), item(None, "3")]).await.unwrap();
    b.publish(two, 1, vec![item(Some("a"), "other")]).await.unwrap();
    let query = |after: u64, agents: &[&str], events| PublishedQuery {
        worker: one,
        after: vec![(two, after)],
        agents: agents.iter().map(|name| agent(name)).collect(),
        events,
    };
    let read = async |query| {
        let page = a.published(query).await.unwrap();
        assert_eq!((page.workers, page.more), (vec![(two, 3)], false));
        page.items.into_iter().map(|item| (item.number, item.data.unwrap_or_default())).collect::<Vec<_>>()
    };
    let expected = |items: &[(u64, &str)]| items.iter().map(|(number, data)| (*number, (*data).to_owned())).collect::<Vec<_>>();
    assert_eq!(read(query(0, &["a"], false)).await, expected(&[(1, "1"), (2, ""), (3, "")]));
    assert_eq!(read(query(1, &["a", "b"], true)).await, expected(&[(2, "2"), (3, "3")]));
    assert_eq!(read(query(0, &[], false)).await, []);
    assert_eq!(read(PublishedQuery { after: Vec::new(), ..query(0, &[], true) }).await, expected(&[(1, ""), (2, ""), (3, "3")]));
    b.close(two, 0).await.unwrap();
    let page = a.published(query(2, &[], true)).await.unwrap();
    assert_eq!((page.items.len(), page.workers), (1, Vec::new()));
    a.set_listens(one, true).await.unwrap();
    assert!(a.changes(Watch { worker: one, ..Watch::default() }).await.unwrap().listens);
}
