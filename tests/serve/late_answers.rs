//! Answers to tool calls that cannot be stored yet: they wait, and their connection does not.
use forever::prelude::*;
use serde_json::{Value, json};

use crate::support::client::{Client, RESPONSE, RESUMING};
use crate::support::place::{Place, Up};

fn approval(call: &str) -> Value {
    json!({ "type": "cf_agent_tool_approval", "toolCallId": call, "approved": true })
}

fn result(call: &str, output: &Value) -> Value {
    json!({ "type": "cf_agent_tool_result", "toolCallId": call, "output": output })
}

/// The connection is served.
async fn is_served(client: &mut Client) {
    client.settled().await;
}

async fn parts(up: &Up) -> Vec<Value> {
    let messages = up.agent("ada").messages().await.unwrap();
    messages.last().unwrap().parts.iter().map(|part| serde_json::to_value(part).unwrap()).collect()
}

#[tokio::test]
async fn an_approval_while_its_turn_is_under_way_keeps_its_connection_served() {
    let place = Place::new();
    let up = place.up().await;
    let (mut asker, mut person) = (up.settled("ada").await, up.settled("ada").await);
    asker.ask("r1", json!({ "script": [{ "approval": "c1" }, { "wait": "half" }, { "say": "more" }] })).await;
    place.gates.reached("half").await;
    person.send(approval("c1")).await;
    is_served(&mut person).await;
    // As many as there may be; one more is refused.
    for _ in 1..64 {
        person.send(approval("c1")).await;
    }
    person.send(approval("c1")).await;
    let refused =
        json!({ "type": "forever_refused", "of": "cf_agent_tool_approval", "toolCallId": "c1", "error": "too many answers at once" });
    assert_eq!(person.of_type("forever_refused").await, refused);
    place.gates.open("half");
    for client in [&mut asker, &mut person] {
        client.done("r1").await;
    }
    assert_eq!(person.heard("r1").0, "more");
    person.until(|frame| frame["message"]["parts"][0]["state"] == "approval-responded").await;
    assert_eq!(parts(&up).await[0]["approval"], json!({ "id": "of-c1", "approved": true }));
    is_served(&mut person).await;
    up.down().await;
}

#[tokio::test]
async fn an_answer_to_a_call_of_a_turn_that_is_not_recovered_yet_is_taken_when_it_is() {
    let place = Place::new();
    let up = place.up().await;
    let address = up.address;
    let mut asker = up.settled("ada").await;
    // What is asked stands in the log alone. `work` is what there is left to do for the turn.
    let script = json!({ "script": [{ "tool": "c1" }, { "approval": "c2" }, { "work": "w" }, { "wait": "half" }, { "say": "more" }],
        "recovers": "late", "clientTools": [{ "name": "look" }] });
    asker.ask("r1", script).await;
    place.gates.reached("half").await;
    up.down().await;
    let up = place.up_at(address, |server| server).await;
    place.gates.reached("recovery").await;
    let mut again = up.client("ada").await;
    again.of_type(RESUMING).await;
    again.send(result("c1", &json!("here"))).await;
    again.send(approval("c2")).await;
    // What no turn has asked is refused at once.
    again.send(result("none", &json!("forged"))).await;
    let refused = again.of_type("forever_refused").await;
    assert_eq!(refused["toolCallId"], "none", "{refused}");
    is_served(&mut again).await;
    place.gates.open("recovery");
    place.gates.open("half");
    again.done("r1").await;
    // The answer is taken as soon as the turn is recovered: before its end or behind it.
    let is_answered = |frame: &Value| frame["message"]["parts"][1]["state"] == "approval-responded";
    if !again.seen.iter().any(is_answered) {
        again.until(is_answered).await;
    }
    let parts = parts(&up).await;
    assert_eq!((&parts[0]["state"], &parts[0]["output"]), (&json!("output-available"), &json!("here")));
    assert_eq!(parts[1]["approval"], json!({ "id": "of-c2", "approved": true }));
    assert!(again.seen.iter().filter(|frame| frame["type"] == "forever_refused").count() == 1, "{:?}", again.seen);
    up.down().await;
}

#[tokio::test]
async fn a_turn_that_follows_from_an_answer_that_has_waited_is_offered_to_who_has_answered() {
    let place = Place::new();
    let up = place.up().await;
    let (mut asker, mut person) = (up.settled("ada").await, up.settled("ada").await);
    asker.ask("r1", json!({ "script": [{ "approval": "c1" }, { "wait": "half" }] })).await;
    place.gates.reached("half").await;
    let mut answer = approval("c1");
    answer["autoContinue"] = json!(true);
    person.send(answer).await;
    is_served(&mut person).await;
    place.gates.open("half");
    person.done("r1").await;
    person.send(json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" })).await;
    // Told to the probe, or to all; and nothing of it is shown before it is asked for.
    let resuming = person.of_type(RESUMING).await;
    let follows = up.agent("ada").turns(&[]).await.unwrap().pop().unwrap();
    assert!(follows.is_continuation());
    assert_eq!(resuming["id"], follows.id());
    let of_turn = |frame: &&Value| frame["type"] == RESPONSE && frame["id"] == follows.id();
    assert!(person.seen.iter().filter(of_turn).all(|frame| frame["seq"].is_null()), "{:?}", person.seen);
    up.down().await;
}

#[tokio::test]
async fn a_turn_that_follows_and_ends_before_it_is_asked_for_begins_for_clients_of_today_alone() {
    let place = Place::new();
    let up = place.up().await;
    for probes in [true, false] {
        let agent = format!("probes-{probes}");
        let mut client = up.settled(&agent).await;
        if probes {
            client.send(json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" })).await;
        }
        client.ask("r1", json!({ "script": [{ "tool": "c1" }], "then": [{ "say": "seen " }] })).await;
        client.done("r1").await;
        let mut answer = result("c1", &json!("here"));
        answer["autoContinue"] = json!(true);
        client.send(answer).await;
        let id = client.of_type(RESUMING).await["id"].as_str().unwrap().to_owned();
        client.done(&id).await;
        let begun = client.seen.iter().filter(|frame| frame["type"] == RESPONSE && frame["id"] == id.as_str() && frame["done"] == false);
        assert_eq!(begun.count(), usize::from(probes), "{:?}", client.seen);
    }
    up.down().await;
}
