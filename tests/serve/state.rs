//! The state of an agent, as its clients set it and see it.
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::place::Place;
use crate::support::scripted::Shared;

fn state(count: u64) -> Value {
    json!({ "type": "cf_agent_state", "state": { "count": count, "note": "" } })
}

fn counts(client: &Client) -> Vec<u64> {
    client.seen.iter().filter(|frame| frame["type"] == "cf_agent_state").map(|frame| frame["state"]["count"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_state_that_a_client_sets_reaches_the_agent_and_the_others_and_not_itself() {
    let place = Place::new();
    let up = place.up().await;
    let (mut sets, mut other) = (up.settled("ada").await, up.settled("ada").await);
    let mut elsewhere = up.settled("bob").await;
    sets.send(state(7)).await;
    assert_eq!(other.of_type("cf_agent_state").await, state(7));
    assert!(sets.settled().await.is_empty(), "its own");
    assert!(elsewhere.settled().await.is_empty());
    assert_eq!(up.agent("ada").state().await.unwrap().count, 7);
    // Whoever comes later has it, and knows that it comes.
    let mut late = up.client("ada").await;
    assert_eq!(late.next().await.unwrap()["stateFollows"], true);
    assert_eq!(late.next().await.unwrap(), state(7));
    up.down().await;
}

#[tokio::test]
async fn a_state_that_cannot_be_one_is_refused_and_changes_nothing() {
    let place = Place::new();
    let up = place.up().await;
    let (mut sets, mut other) = (up.settled("ada").await, up.settled("ada").await);
    sets.send(state(1)).await;
    other.of_type("cf_agent_state").await;
    for bad in [json!(null), json!(["seven"]), json!({ "count": "seven" }), json!({ "count": -1 }), json!({}), json!({ "count": 1e300 })] {
        sets.send(json!({ "type": "cf_agent_state", "state": bad })).await;
        let refused = sets.next().await.unwrap();
        assert_eq!(refused, json!({ "type": "cf_agent_state_error", "error": "the state was refused" }), "{bad}");
    }
    assert!(other.settled().await.is_empty());
    assert_eq!(up.agent("ada").state().await.unwrap().count, 1);
    up.down().await;
}

#[tokio::test]
async fn what_the_server_sets_reaches_all_in_the_order_in_which_it_was_set() {
    let place = Place::new();
    let up = place.up().await;
    let (mut one, mut two) = (up.settled("ada").await, up.settled("ada").await);
    let agent = up.agent("ada");
    for count in 0..20 {
        agent.set_state(&Shared { count, note: String::new() }).await.unwrap();
    }
    for client in [&mut one, &mut two] {
        client.until(|frame| frame["state"]["count"] == 19).await;
        assert_eq!(counts(client), (0..20).collect::<Vec<_>>());
    }
    up.down().await;
}

#[tokio::test]
async fn all_who_set_it_end_with_the_same_state() {
    let place = Place::new();
    let up = place.up().await;
    let (mut one, mut two, mut other) = (up.settled("ada").await, up.settled("ada").await, up.settled("ada").await);
    for count in 0..10 {
        one.send(state(100 + count)).await;
        two.send(state(200 + count)).await;
    }
    one.settled().await;
    two.settled().await;
    other.settled().await;
    let order = counts(&other);
    assert_eq!(order.len(), 20);
    assert_eq!(order.iter().filter(|count| **count < 200).copied().collect::<Vec<_>>(), (100..110).collect::<Vec<_>>());
    assert_eq!(order.iter().filter(|count| **count >= 200).copied().collect::<Vec<_>>(), (200..210).collect::<Vec<_>>());
    assert_eq!(up.agent("ada").state().await.unwrap().count, *order.last().unwrap());
    // Each has the other's, all of them, and none of its own.
    one.settled().await;
    assert_eq!(counts(&one), (200..210).collect::<Vec<_>>());
    assert_eq!(counts(&two), (100..110).collect::<Vec<_>>());
    up.down().await;
}

#[tokio::test]
async fn a_state_that_is_set_to_what_it_was_is_told_once_for_each_time() {
    let place = Place::new();
    let up = place.up().await;
    let (mut one, mut two) = (up.settled("ada").await, up.settled("ada").await);
    one.send(state(5)).await;
    two.of_type("cf_agent_state").await;
    // The same text, by another: it is not taken for one's own.
    two.send(state(5)).await;
    assert_eq!(one.of_type("cf_agent_state").await, state(5));
    up.agent("ada").set_state(&Shared { count: 5, note: String::new() }).await.unwrap();
    assert_eq!(one.of_type("cf_agent_state").await, state(5));
    assert_eq!(two.of_type("cf_agent_state").await, state(5));
    up.down().await;
}
