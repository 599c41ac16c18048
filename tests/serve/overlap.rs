//! Questions that overlap, and turns that are stopped: behind their end every client is sent the stored conversation, in its order.
use forever::prelude::*;
use serde_json::{Value, json};

use crate::support::client::{Client, MESSAGES, RESPONSE, UPDATED, types};
use crate::support::place::{Place, Up};

/// A client as the packages of today are: its probes have ids.
async fn probing(up: &Up) -> Client {
    let mut client = up.settled("ada").await;
    client.send(json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" })).await;
    client.settled().await;
    client
}

/// Everything that the client has been sent behind the end of a turn.
async fn behind_the_end(client: &mut Client, id: &str) -> Vec<Value> {
    client.done(id).await;
    client.settled().await
}

async fn stored(up: &Up) -> Value {
    serde_json::to_value(up.agent("ada").messages().await.unwrap()).unwrap()
}

fn ids(messages: &Value) -> Vec<&str> {
    messages.as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn overlapping_questions_of_two_clients_end_with_the_stored_order_at_both() {
    let place = Place::new();
    let up = place.up().await;
    let (mut one, mut two) = (probing(&up).await, probing(&up).await);
    one.ask("r1", json!({ "script": [{ "say": "first " }, { "wait": "first" }] })).await;
    two.until(|frame| frame["type"] == RESPONSE && frame["id"] == "r1").await;
    two.ask("r2", json!({ "script": [{ "say": "second " }, { "wait": "second" }] })).await;
    // What had happened since has taken its question away there.
    let told = two.of_type(MESSAGES).await;
    assert_eq!(ids(&told["messages"]), ["u-r1", "u-r2"]);
    one.until(|frame| frame["type"] == MESSAGES && frame["messages"].as_array().unwrap().len() == 2).await;
    // Not behind the first end: there the second answer is still to come, and has its place already.
    place.gates.open("first");
    for client in [&mut one, &mut two] {
        let behind = behind_the_end(client, "r1").await;
        assert!(!types(&behind).contains(&MESSAGES), "{behind:?}");
    }
    place.gates.open("second");
    for client in [&mut one, &mut two] {
        let behind = behind_the_end(client, "r2").await;
        let stored = stored(&up).await;
        assert_eq!(behind, [json!({ "type": MESSAGES, "messages": stored })]);
        assert_eq!(ids(&stored).iter().map(|id| id.starts_with("u-")).collect::<Vec<_>>(), [true, false, true, false]);
    }
    // The next one overlaps nothing; its client may have asked it before it was sent the conversation, which it is sent once more.
    one.ask("r3", json!({})).await;
    let told = one.of_type(MESSAGES).await;
    assert_eq!(ids(&told["messages"]).last(), Some(&"u-r3"));
    for client in [&mut one, &mut two] {
        assert_eq!(types(&behind_the_end(client, "r3").await), [] as [&str; 0]);
    }
    up.down().await;
}

#[tokio::test]
async fn a_client_that_stops_its_own_turn_is_sent_what_is_stored_of_it() {
    let place = Place::new();
    let up = place.up().await;
    let (mut stops, mut watches) = (probing(&up).await, probing(&up).await);
    stops.ask("r1", json!({ "script": [{ "say": "well " }, { "wait": "never" }] })).await;
    place.gates.reached("never").await;
    stops.send(json!({ "type": "cf_agent_chat_request_cancel", "id": "r1" })).await;
    let behind = behind_the_end(&mut stops, "r1").await;
    let stored = stored(&up).await;
    assert_eq!(stored[1]["metadata"]["forever"]["outcome"], "aborted");
    assert_eq!(behind, [json!({ "type": MESSAGES, "messages": stored })]);
    // The other one has shown all of it, and was sent the message by itself.
    assert_eq!(types(&behind_the_end(&mut watches, "r1").await), [] as [&str; 0]);
    assert!(watches.seen.iter().any(|frame| frame["type"] == UPDATED && frame["message"] == stored[1]));
    // It is over: the next turn, which nothing stops, ends without.
    stops.ask("r2", json!({})).await;
    assert_eq!(types(&behind_the_end(&mut stops, "r2").await), [] as [&str; 0]);
    up.down().await;
}
