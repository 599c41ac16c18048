//! Requests to agents between two workers, and what workers publish to each other.
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{
    AgentId, ClusterStore, FiberStore, NewAgentRequest, Publication, PublishedQuery, RequestOutcome, RequestProgress, Watch,
};

use crate::workers::{shows_life, two_workers};

fn agent(name: &str) -> AgentId {
    AgentId { class: "counter".to_owned(), name: name.to_owned() }
}

fn new(id: &str, name: &str, caller: i64) -> NewAgentRequest {
    let (id, args) = (id.to_owned(), "1".to_owned());
    NewAgentRequest { id, agent: agent(name), method: "add".to_owned(), args, caller, limit_ms: 3_600_000 }
}

fn answer(text: &str) -> RequestOutcome {
    RequestOutcome::Answered(text.to_owned())
}

async fn hold(store: &PostgresStore, worker: i64) {
    assert_eq!(store.hold_agent(agent("a"), worker).await.unwrap(), None);
}

async fn begins(store: &PostgresStore, worker: i64) -> Option<String> {
    store.begin_request(agent("a"), worker).await.unwrap().map(|request| request.id)
}

/// Watches a request; says whether there is something to take.
async fn is_over(store: &PostgresStore, worker: i64, id: &str) -> bool {
    let watch = Watch { worker, requests: vec![id.to_owned()], ..Watch::default() };
    store.changes(watch).await.unwrap().requests == [id]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_begins_once_in_the_worker_that_holds_the_agent_and_its_outcome_is_taken_once() {
    let Some([(a, one), (b, two)]) = two_workers(3600).await else { return };
    let [of_a, of_b] = [one, two].map(|worker| Watch { worker, ..Watch::default() });
    // No worker holds the agent: its caller carries the request out, and no other one.
    a.request(new("r1", "a", one)).await.unwrap();
    a.request(new("r2", "a", one)).await.unwrap();
    assert_eq!(a.changes(of_a.clone()).await.unwrap().requested, [agent("a")]);
    assert!(b.changes(of_b.clone()).await.unwrap().requested.is_empty());
    // Now b does.
    hold(&b, two).await;
    assert!(a.changes(of_a.clone()).await.unwrap().requested.is_empty());
    assert_eq!(b.changes(of_b.clone()).await.unwrap().requested, [agent("a")]);
    assert_eq!(begins(&a, one).await, None, "it does not hold the agent");
    let begun = b.begin_request(agent("a"), two).await.unwrap().unwrap();
    assert_eq!((&*begun.id, &*begun.method, &*begun.args), ("r1", "add", "1"));
    assert!(!is_over(&a, one, "r1").await);
    assert_eq!(a.take_request("r1".to_owned()).await.unwrap(), RequestProgress::Begun);
    assert_eq!(a.take_request("r2".to_owned()).await.unwrap(), RequestProgress::Waiting);
    assert!(!b.end_request("r2".to_owned(), two, answer("7")).await.unwrap(), "it has not begun");
    assert_eq!(begins(&b, two).await.as_deref(), Some("r2"));
    assert_eq!(begins(&b, two).await, None, "each began");
    assert!(b.changes(of_b).await.unwrap().requested.is_empty());

    assert!(!a.end_request("r1".to_owned(), one, answer("7")).await.unwrap(), "another worker has begun it");
    assert!(b.end_request("r1".to_owned(), two, answer("\"a\0b\"")).await.unwrap());
    assert!(!b.end_request("r1".to_owned(), two, answer("8")).await.unwrap(), "it has ended");
    assert!(is_over(&a, one, "r1").await);
    assert_eq!(a.take_request("r1".to_owned()).await.unwrap(), RequestProgress::Ended(answer("\"a\0b\"")));
    assert_eq!(a.take_request("r1".to_owned()).await.unwrap(), RequestProgress::Lost, "it is deleted");
    assert!(is_over(&a, one, "r1").await);
    let failed = RequestOutcome::Failed("no".to_owned());
    assert!(b.end_request("r2".to_owned(), two, failed.clone()).await.unwrap());
    assert_eq!(a.take_request("r2".to_owned()).await.unwrap(), RequestProgress::Ended(failed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_counts_only_while_its_worker_holds_the_agent_as_it_did_at_the_begin() {
    let Some([(a, one), (b, two)]) = two_workers(3600).await else { return };
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
    // Nothing repeats it.
    assert_eq!(begins(&b, two).await.as_deref(), Some("r2"));

    // A worker that is gone. The one that was not begun is for the next holder.
    shows_life(&b, two).await;
    b.abandon();
    let begun = tokio::time::Instant::now();
    while !is_over(&a, one, "r2").await {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(a.take_request("r2".to_owned()).await.unwrap(), RequestProgress::Lost);
    assert_eq!(a.changes(Watch { worker: one, ..Watch::default() }).await.unwrap().requested, [agent("a")]);
    hold(&a, one).await;
    assert_eq!(begins(&a, one).await.as_deref(), Some("r3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_is_late_or_withdrawn_never_begins() {
    let Some([(a, one), (b, two)]) = two_workers(3600).await else { return };
    hold(&b, two).await;
    a.request(NewAgentRequest { limit_ms: 0, ..new("late", "a", one) }).await.unwrap();
    assert!(b.changes(Watch { worker: two, ..Watch::default() }).await.unwrap().requested.is_empty());
    assert_eq!(begins(&b, two).await, None, "its time is over");
    a.request(new("withdrawn", "a", one)).await.unwrap();
    assert!(a.withdraw_request("withdrawn".to_owned()).await.unwrap());
    assert_eq!(begins(&b, two).await, None);
    a.request(new("begun", "a", one)).await.unwrap();
    assert_eq!(begins(&b, two).await.as_deref(), Some("begun"));
    assert!(!a.withdraw_request("begun".to_owned()).await.unwrap());
    assert!(!a.withdraw_request("nothing".to_owned()).await.unwrap(), "nothing is known of it");
    assert!(!b.end_request("begun".to_owned(), two, answer("1")).await.unwrap(), "its caller is gone");
    // With the row of its worker, what a caller has requested is gone.
    a.request(new("orphan", "a", one)).await.unwrap();
    a.close(one, 0).await.unwrap();
    assert_eq!(begins(&b, two).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_begins_in_one_of_many_tasks() {
    let Some([(a, one), (b, two)]) = two_workers(3600).await else { return };
    hold(&b, two).await;
    for n in 0..20 {
        a.request(new(&format!("r{n:02}"), "a", one)).await.unwrap();
    }
    let b = std::sync::Arc::new(b);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let b = std::sync::Arc::clone(&b);
        tasks.spawn(async move {
            let mut begun = Vec::new();
            // One that another task is about to begin is passed over.
            for _ in 0..20 {
                begun.extend(begins(&b, two).await);
            }
            begun
        });
    }
    let mut begun: Vec<String> = tasks.join_all().await.into_iter().flatten().collect();
    begun.sort();
    assert_eq!(begun, (0..20).map(|n| format!("r{n:02}")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_items_are_read_in_order_by_those_who_ask_for_them() {
    let Some([(a, one), (b, two)]) = two_workers(3600).await else { return };
    let item = |name: Option<&str>, data: &str| Publication { agent: name.map(agent), data: data.to_owned() };
    let items = vec![item(Some("a"), "1"), item(Some("b"), "2\0"), item(None, "3")];
    b.publish(two, 1, items.clone()).await.unwrap();
    // A repetition after a lost connection.
    b.publish(two, 1, vec![item(Some("a"), "other")]).await.unwrap();
    let query = |after: u64, agents: &[&str], events| PublishedQuery {
        worker: one,
        after: vec![(two, after)],
        agents: agents.iter().map(|name| agent(name)).collect(),
        events,
    };
    let read = async |query| {
        let page = a.published(query).await.unwrap();
        assert_eq!(page.workers, [(two, 3)]);
        assert!(!page.more);
        page.items.into_iter().map(|item| (item.number, item.data.unwrap_or_default())).collect::<Vec<_>>()
    };
    let expected = |items: &[(u64, &str)]| items.iter().map(|(number, data)| (*number, (*data).to_owned())).collect::<Vec<_>>();
    assert_eq!(read(query(0, &["a"], false)).await, expected(&[(1, "1"), (2, ""), (3, "")]));
    assert_eq!(read(query(1, &["a", "b"], true)).await, expected(&[(2, "2\0"), (3, "3")]));
    assert_eq!(read(query(0, &[], false)).await, []);
    let of_no_known_worker = PublishedQuery { after: Vec::new(), ..query(0, &[], true) };
    assert_eq!(read(of_no_known_worker).await, expected(&[(1, ""), (2, ""), (3, "3")]));
    // Its own are not for it, and those of a worker that has closed are still there.
    let own = PublishedQuery { worker: two, after: vec![(two, 0)], events: true, ..PublishedQuery::default() };
    assert_eq!(b.published(own).await.unwrap().items, []);
    b.close(two, 0).await.unwrap();
    let page = a.published(query(2, &[], true)).await.unwrap();
    assert_eq!((page.items.len(), page.workers), (1, Vec::new()));

    assert!(!a.changes(Watch { worker: one, ..Watch::default() }).await.unwrap().listens);
    a.set_listens(one, true).await.unwrap();
    let changes = a.changes(Watch { worker: one, ..Watch::default() }).await.unwrap();
    assert!(changes.listens && !changes.listeners);
    assert!(a.changes(Watch { worker: two, ..Watch::default() }).await.unwrap().listeners);
}
