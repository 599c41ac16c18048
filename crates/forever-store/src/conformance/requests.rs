//! Several workers over one store: requests to agents, and what workers publish to each other.
use super::workers::{Worker, Workers};
use crate::{AgentId, FiberStore, NewAgentRequest, Publication, PublishedQuery, RequestOutcome, RequestProgress, Store, Watch, WorkerId};

fn agent(name: &str) -> AgentId {
    AgentId { class: "counter".into(), name: name.into() }
}

fn new(id: &str, caller: WorkerId) -> NewAgentRequest {
    NewAgentRequest { id: id.into(), agent: agent("a"), method: "add".into(), args: "1".into(), caller, limit_ms: 3_600_000 }
}

fn answer(text: &str) -> RequestOutcome {
    RequestOutcome::Answered(text.to_owned())
}

impl<S: Store> Worker<S> {
    async fn requests(&self, id: &str, caller: WorkerId) {
        self.cluster().request(new(id, caller)).await.unwrap();
    }

    async fn begins(&self) -> Option<String> {
        self.cluster().begin_request(agent("a"), self.id).await.unwrap().map(|request| request.id)
    }

    async fn ends(&self, id: &str, outcome: RequestOutcome) -> bool {
        self.cluster().end_request(id.into(), self.id, outcome).await.unwrap()
    }

    async fn takes(&self, id: &str) -> RequestProgress {
        self.cluster().take_request(id.into()).await.unwrap()
    }

    /// The agents with requests that it would carry out.
    async fn requested(&self) -> Vec<AgentId> {
        self.cluster().changes(Watch { worker: self.id, ..Watch::default() }).await.unwrap().requested
    }

    /// Whether there is something to take of a request.
    async fn is_over(&self, id: &str) -> bool {
        let watch = Watch { worker: self.id, requests: vec![id.into()], ..Watch::default() };
        self.cluster().changes(watch).await.unwrap().requests == [id]
    }
}

pub(super) async fn run<W: Workers>(make: &impl AsyncFn() -> W) {
    begins_a_request_once_where_the_agent_is(&make().await).await;
    counts_an_outcome_only_under_the_hold_of_the_begin(&make().await).await;
    begins_no_request_that_is_late_or_withdrawn(&make().await).await;
    begins_each_request_in_one_of_many_tasks(&make().await).await;
    publishes_items_in_order_to_those_who_ask_for_them(&make().await).await;
}

async fn begins_a_request_once_where_the_agent_is(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    // No worker holds the agent: its caller carries the request out, and no other one.
    a.requests("r1", a.id).await;
    a.requests("r2", a.id).await;
    assert_eq!(a.requested().await, [agent("a")]);
    assert_eq!(b.requested().await, []);
    b.hold(agent("a")).await;
    assert_eq!(a.requested().await, []);
    assert_eq!(b.requested().await, [agent("a")]);
    assert_eq!(a.begins().await, None, "it does not hold the agent");
    let begun = b.cluster().begin_request(agent("a"), b.id).await.unwrap().unwrap();
    assert_eq!((&*begun.id, &*begun.method, &*begun.args), ("r1", "add", "1"));
    assert!(!a.is_over("r1").await);
    assert_eq!(a.takes("r1").await, RequestProgress::Begun);
    assert_eq!(a.takes("r2").await, RequestProgress::Waiting);
    assert!(!b.ends("r2", answer("7")).await, "it has not begun");
    assert_eq!(b.begins().await.as_deref(), Some("r2"));
    assert_eq!(b.begins().await, None, "each has begun");
    assert_eq!(b.requested().await, []);

    assert!(!a.ends("r1", answer("7")).await, "another worker has begun it");
    assert!(b.ends("r1", answer("\"a\0b\"")).await);
    assert!(!b.ends("r1", answer("8")).await, "it has ended");
    assert!(a.is_over("r1").await);
    assert_eq!(a.takes("r1").await, RequestProgress::Ended(answer("\"a\0b\"")));
    assert_eq!(a.takes("r1").await, RequestProgress::Lost, "it is deleted");
    assert!(a.is_over("r1").await);
    let failed = RequestOutcome::Failed("no".into());
    assert!(b.ends("r2", failed.clone()).await);
    assert_eq!(a.takes("r2").await, RequestProgress::Ended(failed));
}

async fn counts_an_outcome_only_under_the_hold_of_the_begin(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    b.hold(agent("a")).await;
    for id in ["r1", "r2", "r3"] {
        a.requests(id, a.id).await;
    }
    assert_eq!(b.begins().await.as_deref(), Some("r1"));
    b.hold(agent("a")).await;
    assert!(!a.is_over("r1").await, "to hold it once more changes nothing");
    b.cluster().release_agent(agent("a"), b.id).await.unwrap();
    assert!(a.is_over("r1").await);
    b.hold(agent("a")).await;
    assert!(a.is_over("r1").await, "it holds the agent again, and not as before");
    assert!(!b.ends("r1", answer("1")).await);
    assert_eq!(a.takes("r1").await, RequestProgress::Lost);
    assert_eq!(b.begins().await.as_deref(), Some("r2"), "nothing repeats the first");

    // A worker that is gone. The one that was not begun is for the next holder.
    workers.end_lease(b.id, &a.store).await;
    assert!(a.is_over("r2").await);
    assert!(!b.ends("r2", answer("2")).await);
    assert_eq!(a.takes("r2").await, RequestProgress::Lost);
    assert_eq!(a.requested().await, [agent("a")]);
    a.hold(agent("a")).await;
    assert_eq!(b.begins().await, None, "it does not hold the agent any more");
    assert_eq!(a.begins().await.as_deref(), Some("r3"));
}

async fn begins_no_request_that_is_late_or_withdrawn(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    b.hold(agent("a")).await;
    a.cluster().request(NewAgentRequest { limit_ms: 0, ..new("late", a.id) }).await.unwrap();
    assert_eq!(b.requested().await, []);
    assert_eq!(b.begins().await, None, "its time is over");
    let withdraw = async |id: &str| a.cluster().withdraw_request(id.into()).await.unwrap();
    a.requests("withdrawn", a.id).await;
    assert!(withdraw("withdrawn").await);
    assert_eq!(b.begins().await, None);
    a.requests("begun", a.id).await;
    assert_eq!(b.begins().await.as_deref(), Some("begun"));
    assert!(!withdraw("begun").await);
    assert!(!withdraw("unknown").await, "nothing is known of it");
    assert!(!b.ends("begun", answer("1")).await, "no caller waits for it");
    // With the row of its worker, what a caller has requested is gone.
    a.requests("orphan", a.id).await;
    a.store.close(a.id, 0).await.unwrap();
    assert_eq!(b.begins().await, None);
}

async fn begins_each_request_in_one_of_many_tasks(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    b.hold(agent("a")).await;
    for n in 0..20 {
        a.requests(&format!("r{n:02}"), a.id).await;
    }
    let b = std::sync::Arc::new(b);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let b = std::sync::Arc::clone(&b);
        tasks.spawn(async move {
            let mut begun = Vec::new();
            // One that another task is about to begin is passed over.
            for _ in 0..20 {
                begun.extend(b.begins().await);
            }
            begun
        });
    }
    let mut begun: Vec<String> = tasks.join_all().await.into_iter().flatten().collect();
    begun.sort();
    assert_eq!(begun, (0..20).map(|n| format!("r{n:02}")).collect::<Vec<_>>());
}

async fn publishes_items_in_order_to_those_who_ask_for_them(workers: &impl Workers) {
    let (a, b) = (Worker::join(workers).await, Worker::join(workers).await);
    let item = |name: Option<&str>, data: &str| Publication { agent: name.map(agent), data: data.into() };
    b.cluster().publish(b.id, 1, vec![item(Some("a"), "1"), item(Some("b"), "2\0"), item(None, "3")]).await.unwrap();
    // A repetition after a lost answer.
    b.cluster().publish(b.id, 1, vec![item(Some("a"), "other")]).await.unwrap();
    let query = |after: u64, agents: &[&str], events| PublishedQuery {
        worker: a.id,
        after: vec![(b.id, after)],
        agents: agents.iter().map(|name| agent(name)).collect(),
        events,
    };
    let read = async |query| {
        let page = a.cluster().published(query).await.unwrap();
        assert_eq!((page.workers, page.more), (vec![(b.id, 3)], false));
        page.items.into_iter().map(|item| (item.number, item.data.unwrap_or_default())).collect::<Vec<_>>()
    };
    let expected = |items: &[(u64, &str)]| items.iter().map(|(number, data)| (*number, (*data).to_owned())).collect::<Vec<_>>();
    assert_eq!(read(query(0, &["a"], false)).await, expected(&[(1, "1"), (2, ""), (3, "")]));
    assert_eq!(read(query(1, &["a", "b"], true)).await, expected(&[(2, "2\0"), (3, "3")]));
    assert_eq!(read(query(0, &[], false)).await, []);
    let of_no_known_worker = PublishedQuery { after: Vec::new(), ..query(0, &[], true) };
    assert_eq!(read(of_no_known_worker).await, expected(&[(1, ""), (2, ""), (3, "3")]));
    // Its own are not for it, and those of a worker that has closed are still there.
    let own = PublishedQuery { worker: b.id, after: vec![(b.id, 0)], events: true, ..PublishedQuery::default() };
    assert_eq!(b.cluster().published(own).await.unwrap().items, []);
    b.store.close(b.id, 0).await.unwrap();
    let page = a.cluster().published(query(2, &[], true)).await.unwrap();
    assert_eq!((page.items.len(), page.workers), (1, Vec::new()));

    let changes = async |worker| a.cluster().changes(Watch { worker, ..Watch::default() }).await.unwrap();
    assert!(!changes(a.id).await.listens);
    a.cluster().set_listens(a.id, true).await.unwrap();
    let of_a = changes(a.id).await;
    assert!(of_a.listens && !of_a.listeners);
    assert!(changes(b.id).await.listeners);
}
