//! The logs of turns as server-sent events, for clients that are not the packages'.
use forever::prelude::*;
use serde_json::{Value, json};

use crate::support::events::{Event, Events};
use crate::support::place::{Place, Up};
use crate::support::scripted::says;
use crate::support::until;

/// What the chunks say, if they come without a gap from this number on, and the end.
fn told(events: &[Event], from: u64) -> (String, Option<Value>) {
    let (mut text, mut end) = (String::new(), None);
    for (event, number) in events.iter().zip(from..) {
        assert_eq!(end, None, "nothing comes behind the end: {event:?}");
        let data: Value = serde_json::from_str(&event.data).unwrap();
        if event.name.as_deref() == Some("end") {
            assert_eq!(event.id, None, "the end is no chunk");
            end = Some(data);
        } else {
            assert_eq!((event.id, event.name.as_deref()), (Some(number), None));
            text += data["delta"].as_str().unwrap_or_default();
        }
    }
    (text, end)
}

async fn asked(up: &Up, id: &str, body: &Value) {
    let message = forever::chat::message::UiMessage::user(format!("u-{id}"), "hi");
    up.agent("ada").save_messages([message]).id(id).body(body).await.unwrap();
}

async fn ended(up: &Up, id: &str) {
    up.agent("ada").turn(id).await.unwrap().unwrap().wait().await.unwrap();
}

#[tokio::test]
async fn a_log_is_told_from_its_first_chunk_to_its_end_and_then_the_response_is_over() {
    let place = Place::new();
    let up = place.up().await;
    let script = json!({ "script": [{ "say": "w0 " }, { "wait": "half" }, { "say": "w1\nw2 " }] });
    asked(&up, "r1", &script).await;
    let mut live = Events::of(up.address, "ada", "r1", None).await;
    assert_eq!(live.status, 200);
    let head = live.head.to_lowercase();
    assert!(head.contains("content-type: text/event-stream") && head.contains("cache-control: no-cache"), "{head}");
    let mut seen = live.some(3).await;
    place.gates.open("half");
    seen.extend(live.all().await);
    assert_eq!(told(&seen, 0), ("w0 w1\nw2 ".to_owned(), Some(json!({ "state": "completed", "reason": null }))));
    // Who comes when it is over is told the same.
    assert_eq!(Events::of(up.address, "ada", "r1", None).await.all().await, seen);
    up.down().await;
}

#[tokio::test]
async fn whoever_says_what_they_have_is_told_the_rest() {
    let place = Place::new();
    let up = place.up().await;
    asked(&up, "r1", &says(&["w0 ", "w1 ", "w2 "])).await;
    ended(&up, "r1").await;
    let all = Events::of(up.address, "ada", "r1", None).await.all().await;
    assert_eq!(told(&all, 0).0, "w0 w1 w2 ");
    for last in 0..all.len() - 1 {
        let rest = Events::of(up.address, "ada", "r1", Some(&last.to_string())).await.all().await;
        assert_eq!(rest, all[last + 1..], "behind {last}");
    }
    // Behind all there is nothing but the end.
    for last in ["1000", "9223372036854775807", "18446744073709551614"] {
        assert_eq!(Events::of(up.address, "ada", "r1", Some(last)).await.all().await, all[all.len() - 1..], "behind {last}");
    }
    up.down().await;
}

#[tokio::test]
async fn a_log_is_whole_over_connections_that_are_lost_and_servers_that_come_and_go() {
    let place = Place::new();
    let mut up = place.up().await;
    let gates = ["g0", "g1", "g2", "g3"];
    let script: Vec<Value> = gates
        .iter()
        .enumerate()
        .flat_map(|(n, gate)| [json!({ "say": format!("a{n} ") }), json!({ "say": format!("b{n} ") }), json!({ "wait": gate })])
        .collect();
    asked(&up, "r1", &json!({ "script": script })).await;
    let mut seen: Vec<Event> = Vec::new();
    for (n, gate) in gates.iter().enumerate() {
        let last = seen.iter().rev().find_map(|event| event.id).map(|id| id.to_string());
        let mut events = Events::of(up.address, "ada", "r1", last.as_deref()).await;
        let words = |seen: &[Event]| seen.iter().filter(|event| event.data.contains("text-delta")).count();
        while words(&seen) < 2 * (n + 1) {
            seen.push(events.next().await.unwrap());
        }
        place.gates.reached(gate).await;
        match n {
            // The client's network.
            0 => drop(events),
            // The server's process, which says goodbye, and then is a new one elsewhere.
            1 | 2 => {
                up.down().await;
                assert_eq!(events.next().await, None, "no end is told of what has not ended");
                up = place.up().await;
            }
            _ => {
                for gate in gates {
                    place.gates.open(gate);
                }
                seen.extend(events.all().await);
            }
        }
        place.gates.open(gate);
    }
    let (text, end) = told(&seen, 0);
    assert_eq!(text, "a0 b0 a1 b1 a2 b2 a3 b3 ");
    assert_eq!(end.unwrap()["state"], "completed");
    assert_eq!(Events::of(up.address, "ada", "r1", None).await.all().await, seen);
    up.down().await;
}

#[tokio::test]
async fn the_end_says_what_became_of_a_turn_in_words_that_are_meant_for_clients() {
    let place = Place::new();
    let up = place.up().await;
    let ends = [
        ("in-stream", json!({ "script": [{ "say": "a " }, { "error": "the provider said no" }] }), "error", Some("the provider said no")),
        ("thrown", json!({ "script": [{ "throw": "no such table: secrets, at /etc/secret" }] }), "error", Some("An error occurred.")),
        ("mapped", json!({ "script": [{ "throw": "the kitchen burns: oven 7" }] }), "error", Some("The kitchen is closed.")),
        ("panics", json!({ "script": [{ "panic": "a secret" }] }), "error", Some("An error occurred.")),
    ];
    for (id, body, state, reason) in ends {
        asked(&up, id, &body).await;
        let mut events = Events::of(up.address, "ada", id, None).await;
        let end = told(&events.all().await, 0).1.unwrap();
        assert_eq!(end, json!({ "state": state, "reason": reason }), "{id}");
        assert!(!events.text().contains("secret") && !events.text().contains("oven"), "{}", events.text());
    }
    asked(&up, "aborted", &json!({ "script": [{ "say": "a " }, { "wait": "never" }] })).await;
    place.gates.reached("never").await;
    up.agent("ada").cancel("aborted", "enough").await.unwrap();
    let end = told(&Events::of(up.address, "ada", "aborted", None).await.all().await, 0).1.unwrap();
    assert_eq!(end["state"], "aborted");
    up.down().await;
}

#[tokio::test]
async fn what_is_not_there_is_not_found_and_what_cannot_be_read_is_said_so() {
    let place = Place::new();
    let up = place.up().await;
    asked(&up, "r1", &says(&["a "])).await;
    ended(&up, "r1").await;
    for path in ["ada/stream/r2", "bob/stream/r1", "ada/stream/%00", "ada/stream/r1%00", "ada/stream/..%2Fr1", "ada/stream/R1"] {
        let answered = up.get(&format!("/agents/chat-agent/{path}")).await;
        assert_eq!((answered.status, answered.body.as_str()), (404, r#"{"error":"there is no such turn"}"#), "{path}");
    }
    for last in ["-1", "one", "1.0", "18446744073709551615", "18446744073709551616", "", "0x1", "1 2", "\u{e9}"] {
        let events = Events::of(up.address, "ada", "r1", Some(last)).await;
        assert_eq!(events.status, 400, "{last}");
    }
    up.down().await;
}

#[tokio::test]
async fn an_id_of_a_turn_may_need_to_be_written_in_percents() {
    let place = Place::new();
    let up = place.up().await;
    asked(&up, "a/b ?#%2F\u{e9}", &says(&["a "])).await;
    let mut events = Events::of(up.address, "ada", "a%2Fb%20%3F%23%252F%C3%A9", None).await;
    assert_eq!(events.status, 200);
    assert_eq!(told(&events.all().await, 0).0, "a ");
    up.down().await;
}

#[tokio::test]
async fn a_client_that_goes_gives_its_place_back_before_the_turn_ends() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_connections_per_agent(1)).await;
    asked(&up, "r1", &json!({ "script": [{ "say": "a " }, { "wait": "half" }] })).await;
    let mut first = Events::of(up.address, "ada", "r1", None).await;
    first.some(3).await;
    assert_eq!(Events::of(up.address, "ada", "r1", None).await.status, 429);
    drop(first);
    until("the place is given back", async || Events::of(up.address, "ada", "r1", None).await.status == 200).await;
    place.gates.open("half");
    // One whose log has ended gives it back too, though the connection stays.
    let mut last = None;
    until("the place is given back", async || {
        let mut events = Events::of(up.address, "ada", "r1", None).await;
        let so = events.status == 200;
        if so {
            events.all().await;
            last = Some(events);
        }
        so
    })
    .await;
    until("the place is given back", async || up.has_room("ada").await).await;
    drop(last);
    up.down().await;
}
