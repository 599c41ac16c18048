//! Messages and the end of their fiber: each one that was accepted is received, handed over by a
//! close, or reported as unread.
use std::sync::{Arc, Mutex};

use super::{FIRST, accept, claimed, message, next_message, snapshot};
use crate::{CommandResult, End, NewMessage, NewSnapshot, Restart, SendResult, Store, Suspension, TopicRow, UnreadMessages, UnreadSender};

pub(super) async fn run<S: Store + 'static>(make: &impl AsyncFn() -> S) {
    refuses_messages_to_a_closed_topic(&make().await).await;
    opens_topics_again_with_a_restart(&make().await).await;
    stores_a_message_again_that_an_earlier_run_had(&make().await).await;
    reports_unread_messages_of_every_end(&make().await).await;
    accounts_for_messages_beside_closes_and_ends(Arc::new(make().await)).await;
}

/// Topics with the number of messages that were not received.
type Topics = Vec<(String, u64)>;

/// What the store has reported as unread.
struct Reported(Arc<Mutex<Vec<UnreadMessages>>>);

impl Reported {
    fn by(store: &impl Store) -> Self {
        let all = Arc::<Mutex<Vec<UnreadMessages>>>::default();
        let to = Arc::clone(&all);
        store.on_unread(UnreadSender::new(move |unread| to.lock().unwrap().push(unread)));
        Reported(all)
    }

    /// Ids, states and topics since the last call.
    fn take(&self) -> Vec<(String, String, Topics)> {
        let topics = |topics: Vec<TopicRow>| topics.into_iter().map(|topic| (topic.topic, topic.unread)).collect();
        self.0.lock().unwrap().drain(..).map(|unread| (unread.id, unread.state.to_string(), topics(unread.topics))).collect()
    }
}

async fn send(store: &impl Store, message: NewMessage) -> SendResult {
    match store.send(message).await.unwrap() {
        CommandResult::Done(sent) => sent,
        other => panic!("{other:?}"),
    }
}

async fn topics(store: &impl Store, id: &str) -> Vec<(String, u64, Option<u64>)> {
    store.topics(id.into()).await.unwrap().into_iter().map(|row| (row.topic, row.unread, row.closed)).collect()
}

async fn refuses_messages_to_a_closed_topic(store: &impl Store) {
    let claim = accept(store, "a").await;
    let with_id = |topic: &str, data: &str, id: &str| NewMessage { id: Some(id.into()), ..message("a", topic, data) };
    for data in ["1", "2"] {
        assert_eq!(send(store, with_id("go", data, data)).await, SendResult::Sent);
    }
    assert_eq!(send(store, message("a", "stop", "3")).await, SendResult::Sent);
    // One that is refused closes nothing.
    store.checkpoint(claim, NewSnapshot { closed: Some("go".into()), ..snapshot(7) }).await.unwrap_err();
    assert!(!store.topic(claim.fiber, "go".into(), i64::MIN, 9).await.unwrap().closed);

    store.checkpoint(claim, NewSnapshot { closed: Some("go".into()), ..snapshot(1) }).await.unwrap();
    assert_eq!(send(store, message("a", "go", "4")).await, SendResult::Closed);
    assert_eq!(send(store, with_id("go", "4", "4")).await, SendResult::Closed);
    assert_eq!(send(store, with_id("go", "2", "2")).await, SendResult::Sent, "it was accepted before");
    assert_eq!(send(store, with_id("go", "4", "2")).await, SendResult::Conflict);
    assert_eq!(send(store, message("a", "stop", "5")).await, SendResult::Sent, "another topic");
    let page = store.topic(claim.fiber, "go".into(), i64::MIN, 9).await.unwrap();
    assert_eq!((page.closed, page.messages.iter().map(|m| &*m.data).collect::<Vec<_>>()), (true, vec!["1", "2"]));
    let behind = store.topic(claim.fiber, "go".into(), page.messages[0].seq, 9).await.unwrap();
    assert_eq!(behind.messages, page.messages[1..]);
    assert_eq!(topics(store, "a").await, [("go".into(), 2, Some(1)), ("stop".into(), 2, None)]);

    // What was sent before is handed over with a later checkpoint, at once.
    let all = page.messages.iter().map(|message| message.seq).collect();
    store.checkpoint(claim, NewSnapshot { received: all, ..snapshot(2) }).await.unwrap();
    assert_eq!(topics(store, "a").await, [("go".into(), 0, Some(1)), ("stop".into(), 2, None)]);
    assert_eq!(topics(store, "unknown").await, []);
}

async fn opens_topics_again_with_a_restart(store: &impl Store) {
    let claim = accept(store, "a").await;
    store.checkpoint(claim, NewSnapshot { closed: Some("go".into()), ..snapshot(1) }).await.unwrap();
    assert_eq!(send(store, message("a", "stop", "1")).await, SendResult::Sent);
    store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 5).await.unwrap();
    store.restart("a".into(), Restart::FromSnapshot, 6).await.unwrap();
    assert_eq!(send(store, message("a", "go", "2")).await, SendResult::Closed, "it goes on behind the close");
    let claim = claimed(store, claim.fiber, FIRST).await;
    store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 7).await.unwrap();
    store.restart("a".into(), Restart::FromStart, 8).await.unwrap();
    assert_eq!(send(store, message("a", "go", "3")).await, SendResult::Sent);
    assert_eq!(topics(store, "a").await, [("go".into(), 1, None), ("stop".into(), 1, None)], "a failed fiber keeps its messages");

    // Those of a cancelled fiber were reported, and do not come again.
    store.cancel("a".into(), "enough".into(), 9).await.unwrap();
    assert_eq!(topics(store, "a").await, [("go".into(), 1, None), ("stop".into(), 1, None)]);
    store.restart("a".into(), Restart::FromStart, 10).await.unwrap();
    assert_eq!(topics(store, "a").await, []);
}

/// A message that is repeated under its id reaches a run that begins anew, if it is not unread.
async fn stores_a_message_again_that_an_earlier_run_had(store: &impl Store) {
    let claim = accept(store, "a").await;
    let repeat = async |data: &str| send(store, NewMessage { id: Some(data.into()), ..message("a", "go", data) }).await;
    let unread = async || {
        let page = store.topic(claim.fiber, "go".into(), i64::MIN, 9).await.unwrap();
        page.messages.into_iter().map(|message| message.data).collect::<Vec<_>>()
    };
    for data in ["1", "2"] {
        assert_eq!(repeat(data).await, SendResult::Sent);
    }
    let first = next_message(store, claim.fiber, "go").await.unwrap();
    store.checkpoint(claim, NewSnapshot { received: vec![first.seq], ..snapshot(1) }).await.unwrap();
    let fails = async |claim| drop(store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 5).await.unwrap());
    fails(claim).await;
    store.restart("a".into(), Restart::FromSnapshot, 6).await.unwrap();
    assert_eq!((repeat("1").await, repeat("2").await), (SendResult::Sent, SendResult::Sent));
    assert_eq!(unread().await, ["2"], "the run goes on behind the first");

    fails(claimed(store, claim.fiber, FIRST).await).await;
    store.restart("a".into(), Restart::FromStart, 7).await.unwrap();
    assert_eq!(unread().await, ["2"]);
    assert_eq!((repeat("1").await, repeat("2").await), (SendResult::Sent, SendResult::Sent));
    assert_eq!(unread().await, ["2", "1"], "the new run has had none of them");
    let other = NewMessage { id: Some("2".into()), ..message("a", "go", "3") };
    assert_eq!(send(store, other).await, SendResult::Conflict);

    // The same where the hook of an agent lets it begin anew.
    let (again, number) = (claimed(store, claim.fiber, FIRST).await, store.load(claim.fiber).await.unwrap().number);
    let first = next_message(store, claim.fiber, "go").await.unwrap();
    store.checkpoint(again, NewSnapshot { received: vec![first.seq], ..snapshot(number + 1) }).await.unwrap();
    store.restart_claimed(again, 8).await.unwrap();
    assert_eq!((repeat("1").await, repeat("2").await), (SendResult::Sent, SendResult::Sent));
    assert_eq!(unread().await, ["1", "2"]);

    // Those of a cancelled fiber were reported as unread, and that is final.
    store.cancel("a".into(), "enough".into(), 9).await.unwrap();
    store.restart("a".into(), Restart::FromStart, 10).await.unwrap();
    assert_eq!(unread().await, [""; 0]);
    assert_eq!((repeat("2").await, repeat("1").await, repeat("2").await), (SendResult::Sent, SendResult::Sent, SendResult::Sent));
    assert_eq!(unread().await, ["2", "1"]);
}

async fn reports_unread_messages_of_every_end(store: &impl Store) {
    let reported = Reported::by(store);
    let with_messages = async |id: &str| {
        let claim = accept(store, id).await;
        for (topic, data) in [("stop", "1"), ("go", "2"), ("stop", "3")] {
            assert_eq!(send(store, message(id, topic, data)).await, SendResult::Sent);
        }
        claim
    };
    let one = |id: &str, state: &str| vec![(id.to_owned(), state.to_owned(), vec![("go".to_owned(), 1), ("stop".to_owned(), 2)])];
    let claim = with_messages("completed").await;
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 5).await.unwrap();
    assert_eq!(reported.take(), one("completed", "completed"));
    let kept = store.pending_messages("completed".into(), i64::MIN, 9).await.unwrap();
    assert_eq!(kept.iter().map(|m| &*m.data).collect::<Vec<_>>(), ["1", "2", "3"], "they stay readable");

    let claim = with_messages("failed").await;
    store.end(claim, End::Failed("no".into()), Vec::new(), Vec::new(), 5).await.unwrap();
    assert_eq!(reported.take(), one("failed", "failed"));

    let claim = with_messages("running").await;
    store.cancel("running".into(), "enough".into(), 5).await.unwrap();
    assert_eq!(reported.take(), [], "it has not ended yet");
    store.suspend(claim, Suspension::Parked("it does not fit".into()), 6).await.unwrap();
    assert_eq!(reported.take(), one("running", "cancelled"));

    let parked = async |id: &str| {
        let claim = with_messages(id).await;
        store.suspend(claim, Suspension::Parked("it does not fit".into()), 5).await.unwrap();
    };
    parked("parked").await;
    assert_eq!(reported.take(), [], "it has not ended");
    store.cancel("parked".into(), "enough".into(), 6).await.unwrap();
    assert_eq!(reported.take(), one("parked", "cancelled"));
    parked("resolved").await;
    store.resolve("resolved".into(), End::Completed("1".into()), 6).await.unwrap();
    assert_eq!(reported.take(), one("resolved", "completed"));

    let claim = accept(store, "without").await;
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 5).await.unwrap();
    assert_eq!(reported.take(), []);
}

/// Sends beside the checkpoints and the end of a fiber, all at once.
async fn accounts_for_messages_beside_closes_and_ends<S: Store + 'static>(store: Arc<S>) {
    const FIBERS: u64 = 12;
    const SENDERS: u64 = 4;
    const EACH: u64 = 6;
    let reported = Reported::by(&*store);
    for n in 0..FIBERS {
        let id = format!("f{n}");
        let claim = accept(&*store, &id).await;
        let mut senders = tokio::task::JoinSet::new();
        for sender in 0..SENDERS {
            let (store, id) = (Arc::clone(&store), id.clone());
            senders.spawn(async move {
                let mut accepted = 0;
                for each in 0..EACH {
                    let topic = if each % 2 == 0 { "go" } else { "stop" };
                    let sent = store.send(message(&id, topic, &format!("{}", sender * EACH + each))).await.unwrap();
                    accepted += u64::from(matches!(sent, CommandResult::Done(SendResult::Sent)));
                }
                accepted
            });
        }
        // It receives one, closes the topic, and takes what is left of it.
        let mut received = 0;
        let mut number = 1;
        if let Some(first) = next_message(&*store, claim.fiber, "go").await {
            store.checkpoint(claim, NewSnapshot { received: vec![first.seq], ..snapshot(number) }).await.unwrap();
            (received, number) = (1, 2);
        }
        store.checkpoint(claim, NewSnapshot { closed: Some("go".into()), ..snapshot(number) }).await.unwrap();
        let left: Vec<i64> = store.topic(claim.fiber, "go".into(), i64::MIN, 999).await.unwrap().messages.iter().map(|m| m.seq).collect();
        received += left.len() as u64;
        store.checkpoint(claim, NewSnapshot { received: left, ..snapshot(number + 1) }).await.unwrap();
        let end = if n % 2 == 0 { End::Completed("1".into()) } else { End::Failed("no".into()) };
        store.end(claim, end, Vec::new(), Vec::new(), 9).await.unwrap();
        let mut accepted = 0;
        while let Some(sender) = senders.join_next().await {
            accepted += sender.unwrap();
        }
        let unread: u64 = reported
            .take()
            .iter()
            .flat_map(|(_, _, topics)| topics)
            .map(|(topic, unread)| {
                assert_eq!(topic, "stop", "a closed topic takes no message");
                *unread
            })
            .sum();
        assert_eq!(accepted, received + unread, "fiber {n}: accepted, received, unread {unread}");
    }
}
